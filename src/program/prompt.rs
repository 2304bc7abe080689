//! The system prompt. Short, because each request pays for it, and constant through a conversation, so that prompt
//! caches hit.
//!
//! It has three parts: who the agent is (aye, or the text of an agent's file), how to work with tools and permissions
//! here, and the environment. Only the first one is an agent's own. What may change during a conversation comes from
//! plugins: the instructions, the date, skills, notes.

use crate::contract::workspace::Workspace;

const AYE: &str = include_str!("prompt.md");
const RULES: &str = include_str!("prompt_rules.md");

/// Texts of the command line for the agent that the user talks to.
#[derive(Clone, Debug, Default)]
pub(crate) struct GivenPrompt {
    /// Takes the place of the agent's own text.
    pub(crate) own: Option<String>,
    /// Comes last.
    pub(crate) appended: Option<String>,
}

/// The part of the prompt shared by all agents of a workspace, after the agent's own.
#[derive(Clone, Debug)]
pub(crate) struct Common {
    text: String,
}

impl Common {
    /// Creates the prompt for a workspace.
    pub(crate) fn new(workspace: &Workspace) -> Self {
        let repository = if workspace.root.join(".git").symlink_metadata().is_ok() {
            format!("git repository at {}", workspace.root.display())
        } else {
            "not a git repository".to_owned()
        };
        let text = format!(
            "{}\n\nWorking directory: {} ({repository}). Platform: {}.",
            RULES.trim_end(),
            workspace.cwd.display(),
            std::env::consts::OS,
        );
        Self { text }
    }

    /// Returns the system prompt of the agent that the user talks to: what the command line gives it takes the place of
    /// its own text, or comes last.
    pub(crate) fn prompt_of_choice(&self, own: &str, given: &GivenPrompt) -> String {
        let mut prompt = self.prompt(given.own.as_deref().unwrap_or(own));
        if let Some(appended) = given.appended.as_deref().filter(|text| !text.trim().is_empty()) {
            prompt.push_str("\n\n");
            prompt.push_str(appended.trim());
        }
        prompt
    }

    /// Returns the system prompt of an agent with its own text, or with aye's if it has none.
    pub(crate) fn prompt(&self, own: &str) -> String {
        match own.trim() {
            "" => format!("{}\n{}", AYE.trim_end(), self.text),
            own => format!("{own}\n\n# How to work here\n\n{}", self.text),
        }
    }
}
