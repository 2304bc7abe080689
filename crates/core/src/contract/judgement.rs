//! The evaluation of a call at the gate, for the audit: the verdict, and every rule that was tried.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::ids::CallId;
use super::mode::Mode;
use crate::scheduled_actions;

/// The part of the machine that a command can access.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// The workspace and the system's programs, read-only; no home folder, no network.
    Read,
    /// In addition, the workspace is writable except protected names.
    Workspace,
    /// The machine as the user has it.
    Outside,
}

impl Profile {
    /// The word in rules, on cards and in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Profile::Read => "read",
            Profile::Workspace => "workspace",
            Profile::Outside => "outside",
        }
    }
}

impl Profile {
    /// Returns what a command with this profile can reach, as the line below a question. `domains`: whether
    /// the settings list any.
    pub fn reach(self, domains: bool) -> &'static str {
        match self {
            Profile::Workspace if domains => {
                "sandboxed · changes this project only · network only to sandbox.domains"
            }
            Profile::Read => "sandboxed · reads this project only · no network",
            Profile::Workspace => "sandboxed · changes this project only · no network",
            Profile::Outside => "not sandboxed · runs with all your rights",
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// The additions of grants and rules to a command's sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SandboxOpening {
    /// Folders outside the workspace that it can change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub writable: Vec<PathBuf>,
    /// Domains that it can reach, as in the settings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<String>,
    /// Variables of the user's that it gets, as in the settings.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
}

impl SandboxOpening {
    /// Returns whether nothing is added.
    pub fn is_empty(&self) -> bool {
        self.writable.is_empty() && self.domains.is_empty() && self.env.is_empty()
    }
}

/// The coarse effect of a call on the world, for sorting and for the user's eye. It never allows a call.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    /// It only looks.
    Reads,
    /// It changes files in the project that can be compared before and after.
    Edits,
    /// It speaks with other machines.
    Network,
    /// The call runs a program with unknown effects.
    Runs,
    /// It destroys, overwrites or leaves the project: deletes, moves, writes outside, raises rights.
    Destroys,
}

impl Risk {
    /// All classes, the mildest first.
    pub const ALL: [Risk; 5] = [Risk::Reads, Risk::Edits, Risk::Network, Risk::Runs, Risk::Destroys];

    /// The word in lists and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Risk::Reads => "reads",
            Risk::Edits => "edits",
            Risk::Network => "network",
            Risk::Runs => "runs",
            Risk::Destroys => "destroys",
        }
    }

    /// The class of that name.
    pub fn parse(word: &str) -> Option<Risk> {
        Risk::ALL.into_iter().find(|risk| risk.as_str() == word)
    }
}

impl std::fmt::Display for Risk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The word of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ruling {
    Allow,
    /// The user is asked.
    Ask,
    /// It does not run.
    Deny,
    /// The call is invalid: it does not run, and the user is not asked.
    Error,
}

/// A rule that was tried on a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriedRule {
    pub pattern: String,
    /// `allow`, `ask` or `deny`.
    pub behavior: String,
    /// The location of the rule.
    pub origin: String,
    /// Whether the rule matched, or may have.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub matched: bool,
}

/// A path that was judged. Unlike a plain one it can be written as JSON whatever bytes it consists of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "PathText", into = "PathText")]
pub struct JudgedPath(pub PathBuf);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum PathText {
    Text(String),
    Bytes(Vec<u8>),
}

impl From<PathText> for JudgedPath {
    fn from(text: PathText) -> JudgedPath {
        JudgedPath(match text {
            PathText::Text(text) => text.into(),
            PathText::Bytes(bytes) => OsString::from_vec(bytes).into(),
        })
    }
}

impl From<JudgedPath> for PathText {
    fn from(path: JudgedPath) -> PathText {
        match path.0.into_os_string().into_string() {
            Ok(text) => PathText::Text(text),
            Err(bytes) => PathText::Bytes(bytes.into_vec()),
        }
    }
}

/// The judgement of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judgement {
    pub ruling: Ruling,
    /// The rule that decided, as its pattern.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The location of that rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// The reason in words.
    pub why: String,
    /// The id of the grant that allowed it, when one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<String>,
    /// Other grants that it needed as well: a line of several commands can take one for each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_grants: Vec<String>,
    /// It runs git, and only rules that come with aye allowed that: git must not start what the repository's own
    /// settings name. A user's rule, or yes, changes nothing about hooks and filters.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub guards_git: bool,
    /// The profile that the kernel enforces. `None`: only the rules limit the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// The additions of grants to the profile.
    #[serde(default, skip_serializing_if = "SandboxOpening::is_empty")]
    pub opened: SandboxOpening,
    /// The file or folder that the call names, as written and where its links led: see
    /// [`ToolCallContext::judged`](super::tool::ToolCallContext::judged).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<JudgedPath>,
    /// The permission mode at that time.
    pub mode: Mode,
    /// The risk of the call.
    pub risk: Risk,
    /// Every rule that was tried, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tried: Vec<TriedRule>,
}

/// A call and what was made of it, on its way into the audit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JudgedCall {
    pub call_id: CallId,
    pub tool: String,
    /// The judged arguments: the edited ones, if the user edited them.
    pub arguments: serde_json::Value,
    /// The folder it runs in.
    pub cwd: String,
    /// Whether the user had already answered.
    pub answered: bool,
    /// The judgement of the call.
    pub judgement: Judgement,
    /// When, in Unix milliseconds.
    pub at: u64,
}

scheduled_actions! {
    /// The core action that carries a [`Judgement`] out of a hook: the engine hands it on in its report. The last one of
    /// a call counts.
    pub JudgementAction = "judgement" in BeforeToolExecute: Judgement;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_any_bytes_is_kept() {
        for bytes in [&b"/p/a.rs"[..], b"/p/\xff\n", b"/p/\\xff"] {
            let path = JudgedPath(OsString::from_vec(bytes.to_vec()).into());
            let json = serde_json::to_string(&path).unwrap();
            assert_eq!(serde_json::from_str::<JudgedPath>(&json).unwrap(), path, "{json}");
        }
    }
}
