//! The parts of a server's tools that a user trusts, compared with what the server offers now.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::error::KeepError;

/// The trusted state of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pinned {
    /// The hash of the server's description in the configuration.
    pub config: String,
    /// The hash of each tool, by the name that the server gave it.
    pub tools: BTreeMap<String, String>,
    /// The hash of the server's instructions, or of an empty string if it had none; `None` if no user was
    /// asked about them yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// Whether the user agreed to the tools and instructions with which the server starts first, under this
    /// configuration: they were not known when the user was asked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub first_offer: bool,
    /// The hash of the configuration with which the server answered `initialize` and not `server/discover`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initialize: Option<String>,
}

/// The storage of trusted servers.
pub trait PinStore: Send + Sync {
    /// Returns what the user trusts; `None` if nothing was ever trusted.
    ///
    /// # Errors
    /// The reason it cannot be read: nothing then counts as trusted.
    fn load(&self, scope: &str, server: &str) -> Result<Option<Pinned>, KeepError>;

    /// Keeps what was agreed to.
    ///
    /// # Errors
    /// Why it is not kept.
    fn save(&self, scope: &str, server: &str, pinned: &Pinned) -> Result<(), KeepError>;
}

/// The status of a tool compared with the trusted one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PinStatus {
    /// It is what was agreed to.
    Agreed,
    /// Nobody trusts it yet.
    New,
    /// Something else was agreed to under this name.
    Changed,
}

impl Pinned {
    /// Returns what is stored after the user agreed to use a server with this configuration and what it offers first.
    /// What was agreed to before is kept as long as the configuration is the same.
    #[must_use]
    pub fn with_first_offer(before: Option<Self>, config: &str) -> Self {
        match before {
            Some(pinned) if pinned.config == config && !pinned.tools.is_empty() => pinned,
            Some(Self { initialize, .. }) => {
                Self { config: config.to_owned(), initialize, first_offer: true, ..Self::default() }
            }
            None => Self { config: config.to_owned(), first_offer: true, ..Self::default() },
        }
    }

    /// Returns the status of a tool, under this configuration of its server.
    pub fn standing(&self, config: &str, tool: &str, hash: &str) -> PinStatus {
        match self.tools.get(tool) {
            Some(known) if known == hash && self.config == config => PinStatus::Agreed,
            Some(_) => PinStatus::Changed,
            None => PinStatus::New,
        }
    }

    /// Returns the status of the instructions, under this configuration of their server.
    pub fn standing_of_instructions(&self, config: &str, hash: &str) -> PinStatus {
        match &self.instructions {
            Some(known) if known == hash && self.config == config => PinStatus::Agreed,
            Some(_) => PinStatus::Changed,
            None => PinStatus::New,
        }
    }
}
