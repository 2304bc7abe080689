//! Skills: folders with instructions, resources and scripts that an agent takes up when they help.

mod check;
mod discover;
mod front_matter;
mod registry;
mod skill;

pub use check::{CheckReport, CheckRow, SkillRow, check_dir, check_discovery, list_rows};
pub use discover::{Discovery, FoundSkill, SkillRoot, SkillScope, discover, project_roots, user_roots};
pub use front_matter::{Parsed, Severity, SkillDoc, SkillIssue, SkillMeta, check_name, parse};
pub use registry::{
    InMemorySkillRegistry, MAX_CATALOGUE_CHARS, MAX_CATALOGUE_ENTRIES, SkillRegistry, catalogue, invocation,
};
pub use skill::{
    EmbeddedSkill, EmbeddedSkillData, FsDiscovery, FsSkill, Interpreter, Resource, Script, ScriptSource, Skill, SkillError,
};

#[cfg(test)]
mod tests;
