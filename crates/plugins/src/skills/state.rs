//! The state that a thread and a run keep about skills.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use aye_core::state::{KeyScope, MergeStrategy, Snapshot, StateKey};

/// A skill that was taken up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActiveSkill {
    pub name: String,
    /// The content it had then.
    pub hash: String,
    /// Its instructions, as they were then: what follows does not change under a conversation.
    pub instructions: String,
}

/// The skills that were taken up in the thread, by name.
pub struct ActiveSkills;

impl StateKey for ActiveSkills {
    const KEY: &'static str = "skills.active";
    // Two skills taken up in one step do not disturb each other.
    const MERGE: MergeStrategy = MergeStrategy::Commutative;
    const SCOPE: KeyScope = KeyScope::Thread;
    type Value = BTreeMap<String, ActiveSkill>;
    type Update = ActiveSkill;

    fn apply(value: &mut Self::Value, update: Self::Update) {
        value.insert(update.name.clone(), update);
    }
}

/// Tool patterns that the user granted to a skill, for this run and this content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkillGrant {
    pub skill: String,
    /// The hash of the skill's content when the user agreed.
    pub hash: String,
    /// The patterns, as they were shown.
    pub patterns: Vec<String>,
}

/// Questions and answers about the tools of skills.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Consent {
    /// The hash that was shown, by the call that asked.
    pub asked: BTreeMap<String, String>,
    /// The grants, by skill.
    pub grants: BTreeMap<String, SkillGrant>,
}

/// A change of [`SkillConsent`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConsentUpdate {
    /// A call asks about a content.
    Asked {
        call_id: String,
        /// The content.
        hash: String,
    },
    Granted(SkillGrant),
}

/// The [`Consent`] of the run; it is over with the run.
pub struct SkillConsent;

impl StateKey for SkillConsent {
    const KEY: &'static str = "skills.consent";
    const MERGE: MergeStrategy = MergeStrategy::Commutative;
    type Value = Consent;
    type Update = ConsentUpdate;

    fn apply(value: &mut Self::Value, update: Self::Update) {
        match update {
            ConsentUpdate::Asked { call_id, hash } => {
                value.asked.insert(call_id, hash);
            }
            ConsentUpdate::Granted(grant) => {
                value.grants.insert(grant.skill.clone(), grant);
            }
        }
    }
}

/// A skill that a user started by its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invocation {
    /// The message that did it.
    pub message: String,
    /// The text typed after the name, until the skill is loaded with it.
    pub arguments: Option<String>,
}

/// A change of [`SkillInvocations`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvocationUpdate {
    /// A user typed its name.
    Typed(String, Invocation),
    /// It was taken up: what was typed is used.
    Taken(String),
}

/// The skills that a user started in this run, by name. The model may load such a skill even if it may not
/// start the skill on its own.
pub struct SkillInvocations;

impl StateKey for SkillInvocations {
    const KEY: &'static str = "skills.invoked";
    const MERGE: MergeStrategy = MergeStrategy::Commutative;
    type Value = BTreeMap<String, Invocation>;
    type Update = InvocationUpdate;

    fn apply(value: &mut Self::Value, update: Self::Update) {
        match update {
            InvocationUpdate::Typed(skill, invocation) => {
                if value.get(&skill).is_none_or(|known| known.message != invocation.message) {
                    value.insert(skill, invocation);
                }
            }
            InvocationUpdate::Taken(skill) => {
                if let Some(known) = value.get_mut(&skill) {
                    known.arguments = None;
                }
            }
        }
    }
}

/// The model that a skill names, for the rest of the run.
pub struct SkillModel;

impl StateKey for SkillModel {
    const KEY: &'static str = "skills.model";
    const MERGE: MergeStrategy = MergeStrategy::Commutative;
    type Value = Option<String>;
    type Update = String;

    fn apply(value: &mut Self::Value, update: Self::Update) {
        *value = Some(update);
    }
}

/// Returns the tool patterns that skills were granted in this run, in the form of permission rules
/// (`Bash(git:*)`).
///
/// They are allow rules of the run; the evaluator must never let them override a deny or ask rule.
pub fn granted_patterns(snapshot: &Snapshot) -> Vec<String> {
    let consent = snapshot.get::<SkillConsent>();
    consent
        .map(|consent| consent.grants.values().flat_map(|grant| grant.patterns.clone()).collect())
        .unwrap_or_default()
}
