//! The content of the status line: the configured command, the configured segments, and the git branch.

use std::path::Path;
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
    let env = crate::program::app_context::tool_env(foundation);
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
    let (result, said) = exec::converse(&env.exec, request, json.as_bytes(), &CancellationToken::new())
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
    let line = said.text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    Ok(line.trim_end().chars().take(MAX_LINE).collect())
}

/// Returns the branch checked out in a repository, or the start of the commit. Reads two small files.
pub(crate) fn branch(root: &Path) -> Option<String> {
    // A foreign repository may have a FIFO there.
    let read = |file: &Path| String::from_utf8(crate::walk::read_regular(file, 4096)?).ok();
    let git = root.join(".git");
    let folder = if git.is_dir() {
        git
    } else {
        let text = read(&git)?;
        root.join(text.strip_prefix("gitdir:")?.trim())
    };
    let head = read(&folder.join("HEAD"))?;
    let head = head.trim();
    match head.strip_prefix("ref: refs/heads/") {
        Some(branch) => Some(branch.chars().take(200).collect()),
        None if head.len() >= 40 && head.bytes().all(|b| b.is_ascii_hexdigit()) => {
            head.get(..8).map(str::to_owned)
        }
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::STATUS_SEGMENTS;

    #[test]
    fn the_settings_and_the_terminal_know_the_same_segments() {
        assert_eq!(Segment::ALL.map(Segment::name).to_vec(), STATUS_SEGMENTS);
    }

    #[test]
    fn a_branch_a_commit_and_a_worktree() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(branch(dir.path()), None);
        std::fs::create_dir(dir.path().join(".git")).unwrap();
        let head = dir.path().join(".git/HEAD");
        std::fs::write(&head, "ref: refs/heads/fix/a b\n").unwrap();
        assert_eq!(branch(dir.path()).as_deref(), Some("fix/a b"));
        std::fs::write(&head, "0123456789012345678901234567890123456789\n").unwrap();
        assert_eq!(branch(dir.path()).as_deref(), Some("01234567"));
        let tree = tempfile::tempdir().unwrap();
        std::fs::write(tree.path().join(".git"), format!("gitdir: {}/.git\n", dir.path().display())).unwrap();
        assert_eq!(branch(tree.path()).as_deref(), Some("01234567"));
    }
}
