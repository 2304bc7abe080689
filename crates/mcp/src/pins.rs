//! What a person agreed to of a server's tools, and how that compares with what the server offers now.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::error::KeepError;

/// What was agreed to for one server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pinned {
    /// The hash of the server's description in the configuration.
    pub config: String,
    /// The hash of each tool, by the name that the server gave it.
    pub tools: BTreeMap<String, String>,
    /// The hash of its instructions, of an empty text where it had none; `None` if nobody was asked about them yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
}

/// Where agreements are kept.
pub trait PinStore: Send + Sync {
    /// What was agreed to; `None` when nothing ever was.
    ///
    /// # Errors
    /// Why it cannot be read: then nothing counts as agreed to.
    fn load(&self, scope: &str, server: &str) -> Result<Option<Pinned>, KeepError>;

    /// Keeps what was agreed to.
    ///
    /// # Errors
    /// Why it is not kept.
    fn save(&self, scope: &str, server: &str, pinned: &Pinned) -> Result<(), KeepError>;
}

/// How a tool stands to what was agreed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PinStatus {
    /// It is what was agreed to.
    Agreed,
    /// Nobody agreed to it yet.
    New,
    /// Something else was agreed to under this name.
    Changed,
}

impl Pinned {
    /// How a tool stands, under this description of its server.
    pub fn standing(&self, config: &str, tool: &str, hash: &str) -> PinStatus {
        match self.tools.get(tool) {
            Some(known) if known == hash && self.config == config => PinStatus::Agreed,
            Some(_) => PinStatus::Changed,
            None => PinStatus::New,
        }
    }

    /// How the instructions stand, under this description of their server.
    pub fn standing_of_instructions(&self, config: &str, hash: &str) -> PinStatus {
        match &self.instructions {
            Some(known) if known == hash && self.config == config => PinStatus::Agreed,
            Some(_) => PinStatus::Changed,
            None => PinStatus::New,
        }
    }
}
