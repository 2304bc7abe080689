//! Programs that a project brings, its hooks and MCP servers, and the sandbox that they run in.

use std::sync::Arc;

use crate::cli::start::StartFlags;
use crate::config::SandboxMissing;
use crate::contract::address::DomainPattern;
use crate::contract::clock::SystemClock;
use crate::contract::ids::ThreadId;
use crate::contract::judgement::{Profile, SandboxOpening};
use crate::contract::spec::AgentSpec;
use crate::failure::{AppError, Failure};
use crate::program::foundation::Foundation;
use crate::program::parts::{permissions_of, tool_env};
use crate::tools::exec::ExecRequest;
use crate::tools::{Confined, Confinement, Sandbox, Serving, ToolEnv};

/// Starts programs of the user's with the user's rights, and those of a project in the sandbox.
#[derive(Clone)]
pub(crate) struct ProjectPrograms {
    pub(crate) env: ToolEnv,
    allows_missing: bool,
}

impl ProjectPrograms {
    /// `env` knows the rules about files.
    pub(crate) fn new(foundation: &Foundation, env: ToolEnv) -> Self {
        Self { env, allows_missing: foundation.loaded.settings.sandbox.missing == SandboxMissing::Allow }
    }

    /// Creates it for a command that needs nothing else of the program.
    pub(crate) fn alone(foundation: &mut Foundation, cli: &StartFlags) -> Result<Self, Failure> {
        let rules = foundation.rules(cli)?;
        let permissions = permissions_of(foundation, rules, Arc::new(SystemClock));
        let mut env = tool_env(foundation);
        env.known = Arc::clone(permissions.known_files());
        env.policies = Some(Arc::new(permissions));
        Ok(Self::new(foundation, env))
    }

    /// Returns the request with the profile that the kernel must enforce.
    ///
    /// # Errors
    /// A sentence when this machine cannot: nothing may be started then.
    pub(crate) async fn confine(
        &self,
        request: ExecRequest,
        profile: Profile,
        domains: &[DomainPattern],
    ) -> Result<(ExecRequest, Confinement), AppError> {
        let Some(sandbox) = self.env.sandbox.clone().filter(|_| profile != Profile::Outside) else {
            return Ok((request, Confinement::default()));
        };
        let root = self.env.workspace.root.clone();
        let (has_domains, allows_missing) = (!domains.is_empty(), self.allows_missing);
        // It starts a process.
        let held = tokio::task::spawn_blocking({
            let root = root.clone();
            move || enforced_profile(&sandbox, profile, has_domains, allows_missing, &root)
        });
        let profile = held.await??;
        let opened = SandboxOpening {
            domains: domains.iter().map(ToString::to_string).collect(),
            ..SandboxOpening::default()
        };
        let what = Confined {
            profile,
            thread: ThreadId::from(format!("programs of {}", root.display())),
            opened,
            readable: Vec::new(),
            serving: Serving::Never,
            terminal: false,
        };
        Ok(self.env.confine(request, what, &AgentSpec::new("")).await?)
    }
}

/// Returns the profile that is enforced here for a program of a project.
fn enforced_profile(
    sandbox: &Sandbox,
    profile: Profile,
    has_domains: bool,
    allows_missing: bool,
    root: &std::path::Path,
) -> Result<Profile, AppError> {
    match sandbox.problem(profile, has_domains, root) {
        None => Ok(profile),
        Some(_) if allows_missing => Ok(Profile::Outside),
        Some(why) => Err(format!("not started, because it cannot be sandboxed here: {why}").into()),
    }
}

/// Returns what the hooks and servers of a project can reach, as a sentence for the trust question.
pub(crate) fn reach(foundation: &Foundation) -> &'static str {
    let sandbox = &foundation.loaded.settings.sandbox;
    match (sandbox.enabled, sandbox.missing) {
        (false, _) => "not sandboxed (sandbox.enabled = false): they run with all your rights",
        (true, SandboxMissing::Allow) => {
            "in the sandbox: they can change this project and nothing else; where this machine cannot enforce \
             that, they run with all your rights (sandbox.missing = \"allow\")"
        }
        (true, SandboxMissing::Ask) => {
            "in the sandbox (workspace): they can change this project and nothing else, network only to the \
             domains named here and in your sandbox.domains"
        }
    }
}
