//! The handling of a verdict whose profile this machine cannot enforce.

use std::fmt;
use std::sync::Arc;

use aye_core::contract::judgement::Profile;

use super::evaluate::{AskKind, EnforcedProfiles, Verdict, VerdictKind};
use super::git_changes::AskGit;
use super::mode::Mode;

/// The requirements of a command on the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// The profile to enforce.
    pub profile: Profile,
    /// Whether Landlock is not enough: nobody checks what runs in [`Mode::Auto`].
    pub namespaces: bool,
}

/// Says whether commands can be kept to a profile, and what happens when they cannot.
#[derive(Clone)]
pub struct Enforcement {
    problem: Arc<dyn Fn(Need) -> Option<String> + Send + Sync>,
    allows_missing: bool,
    domains: bool,
    pub(super) git: Option<Arc<dyn AskGit>>,
}

impl fmt::Debug for Enforcement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Enforcement").field("allows_missing", &self.allows_missing).finish_non_exhaustive()
    }
}

impl Enforcement {
    /// By the kernel. `problem` says why the machine does not have what a command needs, or nothing when they can; with
    /// `allows_missing`, what the rules allow then runs outside without a question.
    pub fn by_kernel(
        problem: impl Fn(Need) -> Option<String> + Send + Sync + 'static,
        allows_missing: bool,
    ) -> Enforcement {
        Enforcement { problem: Arc::new(problem), allows_missing, domains: false, git: None }
    }

    /// The same where the settings list domains that commands may reach.
    #[must_use]
    pub fn with_domains(self, domains: bool) -> Enforcement {
        Enforcement { domains, ..self }
    }

    /// Sets the source for what a git command would change or print. Without it, changes are unknown, and
    /// files of older commits are not checked against the rules.
    #[must_use]
    pub fn with_git(self, git: Arc<dyn AskGit>) -> Enforcement {
        Enforcement { git: Some(git), ..self }
    }

    /// None: the user turned the sandbox off, and every command runs outside.
    pub fn off() -> Enforcement {
        Enforcement::by_kernel(|_| Some("the sandbox is off".to_owned()), true)
    }

    /// Returns the profiles that the machine enforces.
    pub fn enforced_profiles(&self) -> EnforcedProfiles {
        let can = |profile, namespaces| (self.problem)(Need { profile, namespaces }).is_none();
        // Without namespaces a command in the workspace reads denied files.
        EnforcedProfiles { read: can(Profile::Read, false), workspace: can(Profile::Workspace, true) }
    }

    /// Why nothing can run in a mode here.
    pub(super) fn against(&self, mode: Mode) -> Option<String> {
        let need = Need { profile: Profile::Workspace, namespaces: true };
        if mode == Mode::Auto { (self.problem)(need) } else { None }
    }

    /// Returns whether a command in a profile can reach listed domains here.
    pub(super) fn reaches_domains(&self, profile: Option<Profile>) -> bool {
        let need = Need { profile: Profile::Workspace, namespaces: true };
        self.domains && profile == Some(need.profile) && (self.problem)(need).is_none()
    }

    /// Returns the verdict with a profile that can be enforced here.
    pub(super) fn apply(&self, verdict: Verdict, mode: Mode) -> Verdict {
        let Some(profile) = verdict.profile.filter(|profile| *profile != Profile::Outside) else {
            return verdict;
        };
        let namespaces = mode == Mode::Auto;
        let Some(why) = (self.problem)(Need { profile, namespaces }) else { return verdict };
        let profile = Some(Profile::Outside);
        if verdict.decision == VerdictKind::Allow && (namespaces || !self.allows_missing) {
            let decision = VerdictKind::Ask(AskKind::Outside);
            return Verdict { decision, why: format!("it cannot be sandboxed: {why}"), profile, ..verdict };
        }
        Verdict { profile, ..verdict }
    }
}
