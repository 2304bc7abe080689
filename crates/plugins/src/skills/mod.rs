//! Skills: folders with instructions, resources and scripts that an agent takes up when they help.
//!
//! [`discover`] finds them, [`SkillSubsystem`] makes the plugins that offer them to a model, and the tools they
//! bring.

mod arguments;
mod check;
mod discover;
mod front_matter;
mod plugin;
mod registry;
mod runner;
mod skill;
mod state;
mod tools;

pub use check::{CheckReport, CheckRow, ListedSkill, check_dir, check_discovery, list_rows};
pub use discover::{
    Discovery, FoundSkill, SkillRoot, SkillScope, discover, discover_following, project_roots, user_roots,
};
pub use front_matter::{
    Parsed, Severity, SkillDoc, SkillIssue, SkillMeta, SkillNameError, SkillNameFault, check_name, parse,
};
pub use plugin::{
    ACTIVE_INSTRUCTIONS_PLUGIN, ActiveSkillInstructionsPlugin, DISCOVERY_PLUGIN, SharedTargets,
    SkillDiscoveryPlugin, SkillSubsystem, SkillTargets,
};
pub use registry::{
    InMemorySkillRegistry, MAX_CATALOGUE_CHARS, MAX_CATALOGUE_ENTRIES, NotUserInvocable, SkillRegistry,
    catalogue, invocation,
};
pub use runner::{
    SCRIPT_MAX_OUTPUT, SCRIPT_TIMEOUT, ScriptNotRun, ScriptOutput, ScriptRequest, ScriptRunner,
};
pub use skill::{
    EmbeddedSkill, EmbeddedSkillData, FsDiscovery, FsSkill, Interpreter, MayFollow, Resource, Script,
    ScriptSource, Skill, SkillError,
};
pub use state::{
    ActiveSkill, ActiveSkills, Consent, ConsentUpdate, Invocation, InvocationUpdate, SkillConsent,
    SkillGrant, SkillInvocations, SkillModel, granted_patterns,
};
pub use tools::{
    ACTION_SKILL_CONSENT, LoadSkillResourceTool, RESOURCE_TOOL, SCRIPT_TOOL, SKILL_TOOL, SkillScriptTool,
    SkillTool,
};

#[cfg(test)]
mod tests;
