//! The handle of a program's permissions, for the composition root and a front end.

use super::enforce::Enforcement;
use super::evaluate::{CallRequest, EnforcedProfiles, Verdict};
use super::files::FileRules;
use super::git_changes::AskGit;
use super::mode::Mode;
use super::opening::SandboxGrant;
use super::path::PathRoots;
use super::plugin::{PermissionSection, read_section};
use super::rules::RuleSet;
use aye_core::contract::clock::Clock;
use aye_core::contract::ids::{RunId, SuspensionId, ThreadId};
use aye_core::contract::judgement::SandboxOpening;
use aye_core::contract::path_policy::{PathPolicies, PathPolicy};
use aye_core::contract::question::QuestionParameters;
use aye_core::contract::record::{GrantRecord, GrantScope};
use aye_core::contract::spec::{AgentSpec, PluginConfigKey as _};
use aye_core::contract::suspension::SuspendTicket;
use aye_core::contract::terms::Terms;
use aye_core::contract::workspace::Workspace;
use aye_core::phase::PhaseContext;
use aye_files::known::KnownFiles;
use aye_files::names::Mounted;
use aye_pattern::{Pattern, PatternError};
use serde_json::Value;
use std::sync::{Arc, PoisonError, RwLock};

/// The shared rules, mode and grants. Clones are the same thing.
#[derive(Clone)]
pub struct Permissions {
    shared: Arc<PermissionState>,
}

struct PermissionState {
    workspace: Workspace,
    clock: Arc<dyn Clock>,
    now: RwLock<Now>,
    known: Arc<KnownFiles>,
}

#[derive(Default)]
struct Now {
    rules: Arc<RuleSet>,
    mode: Mode,
    grants: Vec<GrantRecord>,
    /// Grants that are no longer valid: a card mentions it if one of them would have answered its question.
    ended: Vec<GrantRecord>,
    tools: Vec<String>,
    terms: Terms,
    enforcement: Option<Enforcement>,
    /// The most that a mode may allow, and the file that says so.
    most: Option<(Mode, String)>,
    /// Those of the checkout, in a worktree that works for it.
    checkout: Option<Permissions>,
}

/// Returns whether a grant is no longer valid, according to its own row.
pub(super) fn is_over(grant: &GrantRecord, now_ms: u64) -> bool {
    grant.revoked_at.is_some()
        || grant.expires_at.is_some_and(|end| end <= now_ms)
        || grant.max_uses.is_some_and(|most| grant.uses >= most)
}

impl std::fmt::Debug for Permissions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Permissions").field("mode", &self.mode()).finish_non_exhaustive()
    }
}

/// Why a mode cannot be used on this machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModeRefusal {
    /// A part of the sandbox is missing.
    #[error("mode {mode} needs the whole sandbox: {problem}")]
    Unsandboxed {
        mode: Mode,
        /// The missing part.
        problem: String,
    },
    /// The administrator of the machine does not allow it.
    #[error("mode {mode} cannot be used: the policy of this machine ({file}) allows at most {most}")]
    Policy {
        mode: Mode,
        /// The most that a mode may allow.
        most: Mode,
        /// The file that says so.
        file: String,
    },
}

impl Permissions {
    /// Rules and a mode for a workspace.
    pub fn new(workspace: Workspace, clock: Arc<dyn Clock>, rules: RuleSet, mode: Mode) -> Permissions {
        Permissions::knowing(workspace, clock, rules, mode, Arc::default())
    }

    /// The same with the names of files that earlier processes found.
    pub fn knowing(
        workspace: Workspace,
        clock: Arc<dyn Clock>,
        rules: RuleSet,
        mode: Mode,
        known: Arc<KnownFiles>,
    ) -> Permissions {
        let now = Now { rules: Arc::new(rules), mode, ..Now::default() };
        Permissions { shared: Arc::new(PermissionState { workspace, clock, now: RwLock::new(now), known }) }
    }

    /// The files that rules are about, by identity. Whoever looks through the project for them adds them here.
    pub fn known_files(&self) -> &Arc<KnownFiles> {
        &self.shared.known
    }

    fn read<T>(&self, reader: impl FnOnce(&Now) -> T) -> T {
        // A poisoned lock contains complete values: each write below is one assignment or one push.
        reader(&self.shared.now.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write(&self, change: impl FnOnce(&mut Now)) {
        change(&mut self.shared.now.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Returns the current mode.
    pub fn mode(&self) -> Mode {
        self.read(|now| now.checkout.as_ref().map_or(now.mode, Permissions::mode))
    }

    /// Makes the mode of a checkout hold in this worktree of it, whenever it changes, and the grants for its project.
    pub fn work_for(&self, checkout: Permissions) {
        self.write(|now| now.checkout = Some(checkout));
    }

    /// Changes the mode; the next call is judged by it.
    ///
    /// # Errors
    /// This machine does not have what [`Mode::Auto`] needs, or its policy does not allow the mode; it stays as it was.
    pub fn set_mode(&self, mode: Mode) -> Result<(), ModeRefusal> {
        let problem =
            self.read(|now| now.enforcement.clone()).and_then(|enforcement| enforcement.against(mode));
        if let Some(problem) = problem {
            return Err(ModeRefusal::Unsandboxed { mode, problem });
        }
        if let Some((most, file)) =
            self.read(|now| now.most.clone()).filter(|(most, _)| !mode.is_within(*most))
        {
            return Err(ModeRefusal::Policy { mode, most, file });
        }
        self.write(|now| now.mode = mode);
        Ok(())
    }

    /// Sets the most that a mode may allow, and the file that says so.
    pub fn limit_mode(&self, most: Mode, file: String) {
        self.write(|now| now.most = Some((most, file)));
    }

    /// Returns the most that a mode may allow.
    pub fn most_mode(&self) -> Option<Mode> {
        self.read(|now| now.most.as_ref().map(|(most, _)| *most))
    }

    /// The rules of all files and flags.
    pub fn rules(&self) -> Arc<RuleSet> {
        self.read(|now| Arc::clone(&now.rules))
    }

    pub fn set_rules(&self, rules: RuleSet) {
        self.write(|now| now.rules = Arc::new(rules));
    }

    /// Sets the terms of questions for which no rule has terms.
    pub fn set_terms(&self, terms: Terms) {
        self.write(|now| now.terms = terms);
    }

    /// Sets how profiles are enforced. Before this is called they are not enforced, and verdicts name none.
    pub fn set_enforcement(&self, enforcement: Enforcement) {
        self.write(|now| now.enforcement = Some(enforcement));
    }

    /// Returns the verdict with a profile that can be enforced on this machine; it asks if there is none.
    pub(super) fn enforced(&self, verdict: Verdict, mode: Mode) -> Verdict {
        match self.read(|now| now.enforcement.clone()) {
            Some(enforcement) => enforcement.apply(verdict, mode),
            None => Verdict { profile: None, ..verdict },
        }
    }

    /// Returns whether a command in a profile can reach domains that the settings list.
    pub(super) fn reaches_domains(&self, profile: Option<aye_core::contract::judgement::Profile>) -> bool {
        self.read(|now| now.enforcement.clone())
            .is_some_and(|enforcement| enforcement.reaches_domains(profile))
    }

    /// Answers what a git command would change or print.
    pub(super) fn ask_git(&self) -> Option<Arc<dyn AskGit>> {
        self.read(|now| now.enforcement.clone()).and_then(|enforcement| enforcement.git)
    }

    /// Returns the profiles that this machine enforces; the first call may start a process.
    pub(super) fn enforced_profiles(&self) -> EnforcedProfiles {
        self.read(|now| now.enforcement.clone())
            .as_ref()
            .map(Enforcement::enforced_profiles)
            .unwrap_or_default()
    }

    /// Gives a question the terms of its rules, and of the settings what they do not say.
    pub(super) fn on_terms(&self, mut ticket: SuspendTicket, of_rules: Terms) -> SuspendTicket {
        let terms = of_rules.or(&self.read(|now| now.terms.clone()));
        ticket.suspension.expires_at = terms.ends_at(self.shared.clock.now_ms());
        let notify = terms.notify_value();
        ticket.suspension.add(QuestionParameters { notify, ..QuestionParameters::default() });
        ticket
    }

    /// Names the tools of the program, so that rules over many of them can hide each.
    pub fn set_tools(&self, names: Vec<String>) {
        self.write(|now| now.tools = names);
    }

    /// Replaces the grants by those of the ledger.
    pub fn set_grants(&self, grants: Vec<GrantRecord>) {
        self.write(|now| now.grants = grants);
    }

    /// Replaces the grants that do not hold any more, newest first. They allow nothing.
    pub fn set_ended(&self, ended: Vec<GrantRecord>) {
        self.write(|now| now.ended = ended);
    }

    pub(super) fn ledger(&self) -> (Vec<GrantRecord>, Vec<GrantRecord>, u64) {
        let now_ms = self.shared.clock.now_ms();
        self.read(|now| (now.grants.clone(), now.ended.clone(), now_ms))
    }

    /// Returns whether a scope covers a run of this workspace.
    pub(super) fn reaches(&self, scope: &GrantScope, thread: &ThreadId, run: &RunId) -> bool {
        self.read(|now| self.covers(now, scope, thread, run))
    }

    fn covers(&self, now: &Now, scope: &GrantScope, thread: &ThreadId, run: &RunId) -> bool {
        match scope {
            GrantScope::Run(id) => id == run,
            GrantScope::Thread(id) => id == thread,
            GrantScope::Project(root) => {
                *root == self.shared.workspace.root
                    || now.checkout.as_ref().is_some_and(|main| *root == main.shared.workspace.root)
            }
            GrantScope::Everywhere => true,
        }
    }

    /// Adds a grant. The caller writes it to the ledger.
    ///
    /// # Errors
    /// When its pattern does not parse.
    pub fn add_grant(&self, grant: GrantRecord) -> Result<(), PatternError> {
        Pattern::parse(&grant.pattern)?;
        self.write(|now| now.grants.push(grant));
        Ok(())
    }

    /// Takes a grant back; true when there was one of this id.
    pub fn revoke(&self, id: &str) -> bool {
        let mut found = false;
        self.write(|now| {
            let before = now.grants.len();
            now.grants.retain(|grant| grant.id != id);
            found = now.grants.len() < before;
        });
        found
    }

    /// The grants, also those of other runs and projects.
    pub fn grants(&self) -> Vec<GrantRecord> {
        self.read(|now| now.grants.clone())
    }

    /// The rules and the grants that hold for a run, as one set; `spent` are ids of grants that do not hold any more.
    pub fn rules_for(&self, thread: &ThreadId, run: &RunId, spent: &[String]) -> RuleSet {
        let now_ms = self.shared.clock.now_ms();
        self.read(|now| {
            let mut rules = RuleSet::clone(&now.rules);
            for grant in &now.grants {
                let is_over = is_over(grant, now_ms);
                let reaches = self.covers(now, &grant.scope, thread, run);
                let holds = !is_over && reaches && !spent.contains(&grant.id);
                if holds && rules.grant_of(grant).is_err() {
                    // An older version wrote what this one cannot read: it grants nothing.
                    tracing::warn!(grant = %grant.id, "a grant's pattern cannot be read");
                }
            }
            rules
        })
    }

    /// Returns what grants add to the sandbox of a run, and whether one was given at this question.
    pub(super) fn opened(&self, ctx: &PhaseContext, asked: Option<&SuspensionId>) -> (SandboxOpening, bool) {
        let (run, now_ms) = (&ctx.run_identity, self.shared.clock.now_ms());
        self.read(|now| {
            let (mut opened, mut is_of_asked) = (SandboxOpening::default(), false);
            for grant in &now.grants {
                let reaches = self.covers(now, &grant.scope, &run.thread_id, &run.run_id);
                let holds = reaches && !is_over(grant, now_ms);
                let Some(opening) = SandboxGrant::of(&grant.pattern).filter(|_| holds) else { continue };
                opening.add_to(&mut opened);
                is_of_asked |= asked.is_some() && grant.suspension_id.as_ref() == asked;
            }
            (opened, is_of_asked)
        })
    }

    /// Returns the tools that are denied whatever their arguments, among those that rules name and those
    /// known to the program.
    pub fn hidden_tools(&self, rules: &RuleSet) -> Vec<String> {
        let mut names = self.read(|now| now.tools.clone());
        for rule in rules.rules() {
            names.extend(rule.pattern.exact_tool().map(str::to_owned));
        }
        names.sort_unstable();
        names.dedup();
        rules.hidden_tools(&names)
    }

    /// The question whether a call may run here.
    pub fn question<'a>(
        &'a self,
        tool: &'a str,
        args: &'a Value,
        primary: Option<&'a str>,
    ) -> CallRequest<'a> {
        let place = &self.shared.workspace;
        let home = (!place.home.as_os_str().is_empty()).then_some(place.home.as_path());
        CallRequest { tool, args, cwd: &place.cwd, workspace: &place.root, home, primary }
    }

    /// The folder calls run in.
    pub fn workspace(&self) -> &Workspace {
        &self.shared.workspace
    }
}

impl PathPolicies for Permissions {
    fn policy(&self, agent: &AgentSpec) -> Arc<dyn PathPolicy> {
        let place = &self.shared.workspace;
        let home = (!place.home.as_os_str().is_empty()).then_some(place.home.as_path());
        let places = PathRoots { cwd: &place.cwd, workspace: &place.root, home, volumes: &Mounted };
        let rules = self.rules();
        // An agent's section that cannot be read makes every call ask, so it adds nothing here.
        let own = agent.sections.get(PermissionSection::KEY).and_then(|section| read_section(section).ok());
        let rules = match own {
            None => FileRules::of(&rules, &places),
            Some(own) => {
                let mut joined = RuleSet::clone(&rules);
                joined.join(own);
                FileRules::of(&joined, &places)
            }
        };
        Arc::new(rules.knowing(Arc::clone(&self.shared.known)))
    }
}
