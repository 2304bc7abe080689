//! The addresses of push notifications.

use serde::{Deserialize, Serialize};

/// The place where a task stops for good.
pub const PUSH_DONE: &str = "done";

/// The URL and the credentials for a task's notifications.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct A2aPushConfig {
    /// Unique for the task; made when none is given.
    pub id: String,
    pub task_id: String,
    pub url: String,
    /// A secret of the receiver: it is sent with each message, which is also signed with it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub token: String,
    /// The credentials that the receiver expects in `Authorization`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authentication: Option<A2aAuthentication>,
}

/// The credentials that a receiver expects in `Authorization`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct A2aAuthentication {
    /// Such as `Bearer`.
    pub scheme: String,
    /// The text after the scheme.
    pub credentials: String,
}
