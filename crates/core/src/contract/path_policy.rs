//! The permission rules for files, as one value for all code that reads or writes them.
//!
//! The gate of a call checks the paths in its arguments. Files that a call only encounters (those below a searched
//! folder, those attached to a message, those that a command line would read) are checked against the same rules
//! through a [`PathPolicy`]. A sandbox uses it too.

use std::path::Path;
use std::sync::Arc;

use super::spec::AgentSpec;

/// The kind of access to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathAccess {
    /// Its content is read.
    Read,
    /// It is created, changed or removed. Rules about reading count too.
    Write,
}

/// A rule that restricts an access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathRestriction {
    /// Whether the rule denies the access; otherwise the rule requires asking the user.
    pub is_denied: bool,
    /// The rule and where it was written.
    pub why: String,
}

/// Checks an entry below a folder; the flag says that the entry is a folder itself, which restricts all of its content.
pub type PathCheck = Arc<dyn Fn(&Path, bool) -> Option<PathRestriction> + Send + Sync>;

/// The rules about files that are in force for a run.
pub trait PathPolicy: Send + Sync {
    /// The strictest rule against an access to a path. Relative paths and `..` are resolved, links are followed.
    fn restriction(&self, path: &Path, access: PathAccess) -> Option<PathRestriction>;

    /// A fast check for the entries that a search of a folder finds without following links. The call that searches was
    /// judged already: a rule that asks about the folder itself was answered and is left out.
    fn below(&self, folder: &Path) -> PathCheck;

    /// A fast check for the entries below a folder that rules deny to change, and not to read. `None` if there are no such
    /// rules.
    fn unchangeable_below(&self, folder: &Path) -> Option<PathCheck> {
        let _ = folder;
        None
    }

    /// Returns a number that changes with the rules, for cached results.
    fn fingerprint(&self) -> u64;
}

/// Makes the policy that is in force for the runs of an agent.
pub trait PathPolicies: Send + Sync {
    /// The policy at this moment.
    fn policy(&self, agent: &AgentSpec) -> Arc<dyn PathPolicy>;
}
