//! Agents that people write: files with front matter, and tables of the settings.
//!
//! A file is an [`AgentSpec`] in YAML with the system prompt below it. What is wrong with one is said with its place,
//! and only that one is left out.

mod discover;
mod fields;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;

pub use aye_files::front_matter::Severity;
pub use discover::{AgentRoot, discover, project_roots, read_file, user_roots};
pub use fields::{AgentDialect, read_fields};

use aye_core::contract::display::visible_line;
use aye_core::contract::spec::AgentSpec;

/// Where a part of an agent's description stands, by JSON pointer: `file:line`.
pub type SourceLocator = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// Whose an agent is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentScope {
    /// It stands in the settings.
    Settings,
    /// The project's, used in trusted folders only.
    Project,
    /// The user's.
    User,
}

impl fmt::Display for AgentScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Settings => "settings",
            Self::Project => "project",
            Self::User => "user",
        })
    }
}

/// Something to say about an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AgentIssue {
    /// `file:line`, or the file alone.
    pub place: String,
    /// How bad it is: with an error the agent is not used.
    pub severity: Severity,
    /// What is wrong and what would be right.
    pub message: String,
}

impl fmt::Display for AgentIssue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", visible_line(&self.place), self.message)
    }
}

/// An agent as it was written.
#[derive(Clone)]
pub struct WrittenAgent {
    /// The specification. An empty model is that of the person, an empty prompt that of aye.
    pub spec: AgentSpec,
    /// Who waits while a question of the agent is open, when the file says so.
    pub hitl: Option<HitlMode>,
    /// The fields that were written, under their own names.
    pub given: Vec<&'static str>,
    /// Whether a model that is not there is an error: other programs have names of their own for models.
    pub insists_on_model: bool,
    /// Whose it is.
    pub scope: AgentScope,
    /// Its file, when it has one.
    pub path: Option<PathBuf>,
    /// Where its parts stand.
    pub places: SourceLocator,
    /// The place of the agent of the same name that is used instead.
    pub hidden_by: Option<String>,
}

/// Who waits while a question of an agent is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HitlMode {
    /// Nobody where conversations are kept; else the process, when it has a terminal.
    Auto,
    /// The process, until the answer is there.
    Blocking,
    /// Nobody: the run ends for now, and the question stays in the store.
    Async,
}

impl fmt::Debug for WrittenAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WrittenAgent")
            .field("spec", &self.spec)
            .field("scope", &self.scope)
            .field("place", &self.place(""))
            .field("hidden_by", &self.hidden_by)
            .finish_non_exhaustive()
    }
}

impl WrittenAgent {
    /// Where a part of it stands, by JSON pointer; the whole with an empty one.
    pub fn place(&self, pointer: &str) -> String {
        (self.places)(pointer)
    }

    /// Whether it says something for a field; what it does not say is as the settings have it.
    pub fn says(&self, field: &str) -> bool {
        self.given.contains(&field)
    }

    /// Something that is wrong with a part of it.
    pub fn issue(&self, severity: Severity, pointer: &str, message: impl Into<String>) -> AgentIssue {
        AgentIssue { place: self.place(pointer), severity, message: message.into() }
    }
}

/// All agents that were found.
#[derive(Clone, Debug, Default)]
pub struct WrittenAgents {
    /// In order of precedence, hidden ones included.
    pub found: Vec<WrittenAgent>,
    /// What is wrong or odd.
    pub issues: Vec<AgentIssue>,
}

impl WrittenAgents {
    /// The agents that can be used.
    pub fn used(&self) -> impl Iterator<Item = &WrittenAgent> {
        self.found.iter().filter(|agent| agent.hidden_by.is_none())
    }

    /// The one of a name.
    pub fn get(&self, id: &str) -> Option<&WrittenAgent> {
        self.used().find(|agent| agent.spec.id == id)
    }

    /// Adds one behind those that are there: of two with one name the first is used.
    pub fn add(&mut self, agent: WrittenAgent) {
        let mut agent = agent;
        agent.hidden_by = self.get(&agent.spec.id).map(|used| used.place(""));
        if let Some(by) = &agent.hidden_by {
            let message = format!(
                "the agent `{}` is not used, because {} defines one of the same name",
                agent.spec.id,
                visible_line(by)
            );
            self.issues.push(agent.issue(Severity::Warning, "", message));
        }
        self.found.push(agent);
    }

    /// Leaves an agent out that turned out to be of no use, and says why. One that it hid is used then.
    pub fn refuse(&mut self, id: &str, issue: AgentIssue) {
        self.issues.push(issue);
        self.found.retain(|agent| agent.hidden_by.is_some() || agent.spec.id != id);
        if let Some(next) = self.found.iter_mut().find(|agent| agent.spec.id == id) {
            next.hidden_by = None;
        }
    }
}
