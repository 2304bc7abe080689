//! Commands that the user's flags and settings name. They run in the sandbox without a question, unless a rule denies them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::contract::display::{shortened, visible_line};
use crate::contract::judgement::Profile;
use crate::contract::tool::SpawnContext;
use crate::failure::AppError;
use crate::plugins::hooks::{HookOutput, HookRequest, HookRunner};
use crate::plugins::permission::{Permissions, VerdictKind, evaluate};

/// Characters of a command in a message for users.
const MAX_SHOWN: usize = 100;

#[derive(Clone)]
pub(crate) struct OwnCommands {
    pub(crate) runner: Arc<dyn HookRunner>,
    pub(crate) rules: Permissions,
    pub(crate) cwd: PathBuf,
}

impl OwnCommands {
    /// Runs a line of bash, with arguments, for a run.
    ///
    /// # Errors
    /// Why it was not started.
    pub(crate) async fn run(
        &self,
        line: &str,
        args: &[String],
        run: &str,
        timeout: Duration,
        cancel: &CancellationToken,
    ) -> Result<HookOutput, AppError> {
        let call = json!({"command": line});
        let verdict = evaluate(&self.rules.rules(), &self.rules.question("Bash", &call, Some("command")));
        if matches!(verdict.decision, VerdictKind::Deny | VerdictKind::Error) {
            return Err(format!("a rule denies `{}`", shown(line)).into());
        }
        let words = ["-c", line, "bash"].map(str::to_owned);
        let request = HookRequest {
            program: "bash".into(),
            args: words.into_iter().chain(args.iter().cloned()).collect(),
            cwd: self.cwd.clone(),
            env: Vec::new(),
            input: Vec::new(),
            timeout,
            on_behalf: SpawnContext { run: run.to_owned(), ..SpawnContext::default() },
            profile: Profile::Workspace,
            domains: Vec::new(),
        };
        self.runner.run(request, cancel).await.map_err(|error| error.to_string().into())
    }
}

/// A command in a message for users.
pub(crate) fn shown(command: &str) -> String {
    shortened(&visible_line(command), MAX_SHOWN).into_owned()
}
