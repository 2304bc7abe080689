//! The content of the status line: the configured command, the configured segments, and the git branch.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::contract::tool::SpawnContext;
use crate::failure::AppError;
use crate::program::foundation::Foundation;
use crate::tools::exec;
use crate::tui::status::Segment;

/// How long the command may take.
const LIMIT: Duration = Duration::from_secs(3);
/// The maximum bytes of its error output kept.
const MAX_WORDS: usize = 4 << 10;
/// Characters of the line.
const MAX_LINE: usize = 500;

/// The parts that the settings name.
pub(crate) fn segments(foundation: &Foundation) -> Option<Vec<Segment>> {
    let names = foundation.loaded.settings.tui.status.as_ref()?;
    Some(names.iter().filter_map(|name| Segment::from_name(name)).collect())
}

/// Runs the command like those of the Bash tool and of hooks, and returns its first line.
pub(crate) async fn run(foundation: &Foundation, json: String) -> Result<String, AppError> {
    let words = &foundation.loaded.settings.tui.status_command;
    let (program, args) = words.split_first().ok_or("it does not name a program")?;
    let env = crate::program::parts::tool_env(foundation);
    let program = match (program.strip_prefix("~/"), foundation.env.home()) {
        (Some(rest), Some(home)) => home.join(rest).into_os_string(),
        (Some(_), None) => return Err("no home folder for `~/`".into()),
        (None, _) => program.into(),
    };
    let request = exec::ExecRequest {
        program,
        args: args.iter().map(Into::into).collect(),
        cwd: foundation.workspace.cwd.clone(),
        env: env.child_env(None::<(&str, &str)>),
        timeout: LIMIT,
        max_output: MAX_WORDS,
        output_dir: None,
        on_behalf: SpawnContext::default(),
        launcher: None,
        limits: None,
        frozen: None,
    };
    let (result, output) = exec::converse(&env.exec, request, json.as_bytes(), &CancellationToken::new())
        .await
        .map_err(|error| error.to_string())?;
    if result.timed_out {
        return Err(format!("it was stopped after {} s", LIMIT.as_secs()).into());
    }
    if !result.is_success() {
        let last = result.output.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let status =
            result.exit_code.map_or_else(|| "it was ended".to_owned(), |code| format!("exit status {code}"));
        return Err(format!("{status} {last}").trim_end().into());
    }
    let line = output.text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    Ok(line.trim_end().chars().take(MAX_LINE).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::STATUS_SEGMENTS;

    #[test]
    fn the_settings_and_the_terminal_know_the_same_segments() {
        assert_eq!(Segment::ALL.map(Segment::name).to_vec(), STATUS_SEGMENTS);
    }
}
