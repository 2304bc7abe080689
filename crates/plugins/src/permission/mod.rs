//! Allow, ask, deny: which tool calls run, which ask the user, which do not run.
//!
//! Rules come in layers that are joined ([`RuleSet`]); the strictest matching rule wins, whatever its order,
//! file or narrowness. Shell commands are judged by their parts, files by where their paths really lead.
//! [`evaluate()`] is the whole judgement, and a function of its request; [`Mode`] adjusts the result for a
//! run; the plugin applies it at the gate of each call.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, reason = "the judge must not panic on any call"))]

mod call_description;
mod check;
mod command_match;
mod disguise;
mod editing;
mod enforce;
mod evaluate;
mod file;
mod files;
mod git_changes;
mod grant;
mod handle;
mod missed;
mod mode;
mod names;
mod opening;
#[expect(clippy::indexing_slicing, reason = "indices into its own lists; it judges no call that runs")]
mod past;
mod path;
mod plugin;
mod protected;
mod reach;
mod reachable;
mod repository;
mod rule_texts;
mod rules;
mod shell;
mod shipped;
#[expect(clippy::indexing_slicing, reason = "indices into its own lists; it judges no call that runs")]
mod simulate;
#[expect(clippy::indexing_slicing, reason = "indices into its own lists; it judges no call that runs")]
mod suggest;
mod tables;
mod tried;
mod typing;

#[cfg(test)]
mod tests;

pub use aye_core::contract::question::GrantProposal;
pub use check::{CheckContext, check_line};
pub use editing::{GrantRefusal, check_grant, check_grant_in};
pub use enforce::{Enforcement, Need};
pub use evaluate::{
    AskKind, CallRequest, EnforcedProfiles, InvalidCall, PreparedCall, Verdict, VerdictKind, evaluate,
    is_file_edit, known_primary,
};
pub use file::{PermissionRuleEntry, PermissionRulesConfig, RuleFormat, RulesFileError};
pub use files::FileRules;
pub use git_changes::{AskGit, GitChange};
pub use grant::propose_grants;
pub use handle::{ModeRefusal, Permissions};
pub use mode::{Mode, evaluate_in};
pub use names::BUILT_IN;
pub use opening::{FolderFault, FolderRefusal, SandboxGrant};
pub use past::{Past, PastFolder, PastMade, PastQuestion};
pub use path::NotAPath;
pub use plugin::{GrantedPatterns, PERMISSION_PLUGIN, PermissionPlugin, PermissionSection};
pub use reachable::{ARGUMENTS, RuleReport};
pub use repository::NamesInHistory;
pub use rules::{GrantMark, Layer, Rule, RuleSet, RuleSource, ToolPermissionBehavior};
pub use shipped::shipped_rules;
pub use simulate::{Difference, Simulation, VerdictCounts, simulate};
pub use suggest::{SuggestedRule, Suggestions, suggest};
