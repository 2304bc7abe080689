//! The system prompt. Short, because each request pays for it, and the same bytes through a whole conversation, so
//! that prompt caches hold.

use crate::contract::workspace::Workspace;

const BASE: &str = include_str!("prompt.md");

/// The system prompt for a workspace with these instructions.
pub(super) fn system_prompt(workspace: &Workspace, instructions: &str, date: &str) -> String {
    let repository = if workspace.root.join(".git").symlink_metadata().is_ok() {
        format!("git repository at {}", workspace.root.display())
    } else {
        "not a git repository".to_owned()
    };
    let mut prompt = format!(
        "{}\n\nWorking directory: {} ({repository}). Platform: {}. Date: {date}.",
        BASE.trim_end(),
        workspace.cwd.display(),
        std::env::consts::OS,
    );
    if !instructions.trim().is_empty() {
        prompt.push_str("\n\n# Instructions of the user and the project\n\n");
        prompt.push_str(instructions.trim());
    }
    prompt
}
