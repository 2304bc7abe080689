//! User-defined agents: files with front matter, and tables of the settings.
//!
//! A file is an [`AgentSpec`] in YAML with the system prompt below it. A problem is reported with its
//! location, and leaves out only the agent that has it.

mod discover;
mod fields;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;

pub use aye_files::front_matter::Severity;
pub use discover::{AgentRoot, discover, discover_following, project_roots, read_file, user_roots};
pub use fields::{AgentDialect, read_fields};

use aye_core::contract::display::visible_line;
use aye_core::contract::spec::AgentSpec;

/// Maps a JSON pointer into an agent's description to its location, `file:line`.
pub type SourceLocator = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// The origin of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentScope {
    /// The agent is defined in the settings.
    Settings,
    /// The project's, used in trusted folders only.
    Project,
    User,
    /// The agent was defined over the server's API.
    Api,
}

impl fmt::Display for AgentScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Settings => "settings",
            Self::Project => "project",
            Self::User => "user",
            Self::Api => "api",
        })
    }
}

/// Something to say about an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AgentIssue {
    /// `file:line`, or the file alone.
    pub place: String,
    /// The severity of the issue; an agent with an error is not used.
    pub severity: Severity,
    /// The problem and the expected value.
    pub message: String,
}

impl fmt::Display for AgentIssue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", visible_line(&self.place), self.message)
    }
}

/// An agent as it was written.
#[derive(Clone)]
pub struct ParsedAgent {
    /// The specification. An empty model means the user's, an empty prompt means aye's.
    pub spec: AgentSpec,
    /// The way to wait for answers to the agent's questions, if the file sets one.
    pub hitl: Option<HitlMode>,
    /// The fields that were written, under their own names.
    pub given: Vec<&'static str>,
    /// Whether an unknown model is an error; other programs have names of their own for models.
    pub insists_on_model: bool,
    /// The scope of the agent.
    pub scope: AgentScope,
    /// Its file, when it has one.
    pub path: Option<PathBuf>,
    /// The locations of the agent's parts.
    pub places: SourceLocator,
    /// The place of the agent of the same name that is used instead.
    pub hidden_by: Option<String>,
}

/// The way to wait for the answer to an agent's question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HitlMode {
    /// Nothing waits if conversations are stored; otherwise the process does, if it has a terminal.
    Auto,
    /// The process waits for the answer.
    Blocking,
    /// Nothing waits: the run ends for now, and the question stays in the store.
    Async,
}

impl fmt::Debug for ParsedAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParsedAgent")
            .field("spec", &self.spec)
            .field("scope", &self.scope)
            .field("place", &self.place(""))
            .field("hidden_by", &self.hidden_by)
            .finish_non_exhaustive()
    }
}

impl ParsedAgent {
    /// Returns the location of a part of the agent by its JSON pointer; an empty pointer means the whole
    /// agent.
    pub fn place(&self, pointer: &str) -> String {
        (self.places)(pointer)
    }

    /// Returns whether the agent sets a field; for the others, the settings apply.
    pub fn sets(&self, field: &str) -> bool {
        self.given.contains(&field)
    }

    /// Something that is wrong with a part of it.
    pub fn issue(&self, severity: Severity, pointer: &str, message: impl Into<String>) -> AgentIssue {
        AgentIssue { place: self.place(pointer), severity, message: message.into() }
    }
}

/// All agents that were found.
#[derive(Clone, Debug, Default)]
pub struct ParsedAgents {
    /// In order of precedence, hidden ones included.
    pub found: Vec<ParsedAgent>,
    pub issues: Vec<AgentIssue>,
}

impl ParsedAgents {
    /// The agents that can be used.
    pub fn used(&self) -> impl Iterator<Item = &ParsedAgent> {
        self.found.iter().filter(|agent| agent.hidden_by.is_none())
    }

    /// The one of a name.
    pub fn get(&self, id: &str) -> Option<&ParsedAgent> {
        self.used().find(|agent| agent.spec.id == id)
    }

    /// Adds an agent after the existing ones; if two have the same name, the first is used.
    pub fn add(&mut self, agent: ParsedAgent) {
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
