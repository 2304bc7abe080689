//! Hooks: where their files are, how their commands are run, and `aye hooks`.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use crate::contract::clock::Clock;
use crate::failure::Failure;
use crate::plugins::hooks::{
    HookContext, HookLayer, HookNotRun, HookOutput, HookRequest, HookRunner, HookSpec, HooksPlugin,
    MAX_STDERR, load,
};
use crate::program::foundation::Foundation;
use crate::program::programs::ProjectPrograms;
use crate::tools;

/// Creates the plugin with all hooks in force here.
pub(crate) fn plugin(
    foundation: &Foundation,
    programs: ProjectPrograms,
    clock: &Arc<dyn Clock>,
) -> Result<HooksPlugin, Failure> {
    let runner = Arc::new(HookCommands { programs });
    let hook_context = HookContext {
        cwd: foundation.workspace.cwd.clone(),
        home: foundation.workspace.home.clone(),
        clock: Arc::clone(clock),
        terms: foundation.loaded.settings.questions.clone(),
    };
    Ok(HooksPlugin::new(in_force(foundation)?, runner, hook_context))
}

/// Returns the hooks in force: the user's, then the project's if it is trusted. An unreadable file is an error, because
/// its hooks would be skipped silently.
pub(crate) fn in_force(foundation: &Foundation) -> Result<Vec<HookSpec>, Failure> {
    if foundation.is_bare {
        return Ok(Vec::new());
    }
    let mut hooks = users(foundation)?;
    if foundation.is_trusted {
        hooks.extend(projects(foundation)?);
    }
    let mut names = std::collections::HashMap::new();
    for hook in &hooks {
        if let Some(other) = names.insert(hook.name.as_str(), hook) {
            return Err(Failure::usage(format!(
                "{}: a hook at {} is also named `{}`; give one of them another `name`",
                hook.origin, other.origin, hook.name
            )));
        }
    }
    Ok(hooks)
}

pub(crate) fn users(foundation: &Foundation) -> Result<Vec<HookSpec>, Failure> {
    load(&foundation.paths.hooks_file(), HookLayer::User, None).map_err(Failure::usage)
}

pub(crate) fn projects(foundation: &Foundation) -> Result<Vec<HookSpec>, Failure> {
    let mut hooks = Vec::new();
    for folder in folders(foundation) {
        let file = folder.join(".aye/hooks.toml");
        hooks.extend(load(&file, HookLayer::Project, Some(&folder)).map_err(Failure::usage)?);
    }
    Ok(hooks)
}

/// Returns the folders whose `.aye` applies: from the repository's root down to the open one.
fn folders(foundation: &Foundation) -> Vec<PathBuf> {
    let workspace = &foundation.workspace;
    let inside = workspace.cwd.ancestors().take_while(|folder| folder.starts_with(&workspace.root));
    let mut folders: Vec<PathBuf> = inside.map(PathBuf::from).collect();
    folders.reverse();
    folders
}

/// Runs commands of hooks as the Bash tool does, but with their own stdin and stdout.
pub(crate) struct HookCommands {
    pub(crate) programs: ProjectPrograms,
}

#[async_trait]
impl HookRunner for HookCommands {
    async fn run(&self, request: HookRequest, cancel: &CancellationToken) -> Result<HookOutput, HookNotRun> {
        let exec = tools::exec::ExecRequest {
            program: request.program.into(),
            args: request.args.into_iter().map(Into::into).collect(),
            cwd: request.cwd,
            env: self.programs.env.env_in(Some(request.profile), request.env),
            timeout: request.timeout,
            max_output: MAX_STDERR,
            output_dir: None,
            on_behalf: request.on_behalf,
            launcher: None,
            limits: None,
            frozen: None,
        };
        let confined = self.programs.confine(exec, request.profile, &request.domains).await;
        let (exec, confinement) = confined.map_err(|why| HookNotRun::NotConfined(why.into()))?;
        let (mut result, output) =
            tools::exec::converse(&self.programs.env.exec, exec, &request.input, cancel)
                .await
                .map_err(|error| HookNotRun::NotStarted(error.into()))?;
        for note in confinement.settle().await {
            let _ = write!(result.output, "\n[aye: {note}]");
        }
        let ended = if result.timed_out {
            Some(format!("stopped after {} s, its time limit", request.timeout.as_secs_f64()))
        } else if result.cancelled {
            Some("cancelled".to_owned())
        } else if result.supervisor_lost {
            Some("ended with the process that watches it".to_owned())
        } else {
            result.signal.map(|signal| format!("ended by {}", tools::exec::signal_name(signal)))
        };
        Ok(HookOutput {
            stdout: output.text,
            is_cut: output.is_cut,
            stderr: result.output,
            exit_code: result.exit_code,
            ended,
        })
    }
}
