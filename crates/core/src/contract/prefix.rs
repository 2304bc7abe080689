//! The start of a conversation's requests. It is frozen with the first request and kept until the next compaction, so that
//! each request begins with the whole of the one before: providers find that start in their caches, and some refuse the
//! thoughts of a model when anything before them changed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::tool_descriptor::ToolDescriptor;
use crate::state::{KeyScope, StateKey};

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

/// One text of the system prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptPart {
    /// Names the text: a newer one with the same key replaces it.
    pub key: String,
    pub text: String,
    /// Whether nothing is said when it is gone.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ends_silently: bool,
}

/// The start of a conversation's requests, as it was sent first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PrefixRecord {
    /// The messages of the conversation when it was frozen.
    pub at_seq: u64,
    /// Thoughts in messages before this place belong to another start and are not sent.
    pub thoughts_from: u64,
    /// The messages that the summary in it replaces; 0 is no summary.
    pub summary_upto: u64,
    /// Messages before this place are left out.
    pub cut: u64,
    /// Large results before this place are previews.
    pub previewed: u64,
    /// Messages before the cut that are in it all the same.
    pub pinned: Vec<u64>,
    /// The number of messages left out that no summary replaces.
    pub left_out: u64,
    /// The number of images whose bytes are left out.
    pub images_left_out: u64,
    pub system: Vec<PromptPart>,
    pub tools: Vec<ToolDescriptor>,
    /// The time, in Unix milliseconds.
    pub created_at: u64,
}

/// The messages at the end of a conversation that say what changed since its [`PrefixRecord`] was frozen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PromptChanges {
    /// The [`at_seq`](PrefixRecord::at_seq) of that record.
    pub at_seq: u64,
    /// Texts that came or changed; `None` for those that no longer apply.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub parts: BTreeMap<String, Option<PromptPart>>,
    /// A digest of the parameters of each tool that came or changed; `None` for those that are withheld.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tools: BTreeMap<String, Option<String>>,
}

/// The thread's [`PromptChanges`].
pub struct PromptChangesKey;

impl StateKey for PromptChangesKey {
    const KEY: &'static str = "runtime.prompt_changes";
    const SCOPE: KeyScope = KeyScope::Thread;
    type Value = PromptChanges;
    type Update = PromptChanges;

    fn apply(value: &mut Self::Value, update: Self::Update) {
        *value = update;
    }
}
