//! What an agent says about itself.

use serde::{Deserialize, Serialize};

/// The card of an agent, as far as clients need it to reach the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct A2aCard {
    pub name: String,
    pub description: String,
    /// Where it is reached, the preferred way first.
    pub supported_interfaces: Vec<A2aInterface>,
    /// What it can do besides answering.
    pub capabilities: A2aCapabilities,
}

/// One way to reach an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct A2aInterface {
    /// The address that the paths of the protocol follow.
    pub url: String,
    /// How it is spoken there.
    pub protocol_binding: String,
    /// The version that is spoken there.
    pub protocol_version: String,
}

/// What an agent can do besides answering.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct A2aCapabilities {
    pub streaming: bool,
    /// Whether it posts updates to an address.
    pub push_notifications: bool,
    /// Whether callers with a token get another card.
    pub extended_agent_card: bool,
}
