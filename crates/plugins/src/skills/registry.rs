//! The skills that a run can use, and the catalogue that the model sees.

use std::fmt::Write as _;
use std::sync::Arc;

use super::front_matter::MAX_DESCRIPTION;
use super::skill::Skill;
use aye_core::contract::display::{escape_markup, visible, visible_line};

/// Entries of a catalogue.
pub const MAX_CATALOGUE_ENTRIES: usize = 32;
/// Characters of a catalogue.
pub const MAX_CATALOGUE_CHARS: usize = 16_384;

/// A source of skills by name.
pub trait SkillRegistry: Send + Sync {
    /// The skill of a name.
    fn get(&self, name: &str) -> Option<Arc<dyn Skill>>;

    /// All skills in order of precedence.
    fn skills(&self) -> Vec<Arc<dyn Skill>>;
}

/// Skills in memory; the first of a name wins.
#[derive(Clone, Default)]
pub struct InMemorySkillRegistry {
    skills: Vec<Arc<dyn Skill>>,
}

impl InMemorySkillRegistry {
    /// Takes the skills in order of precedence.
    pub fn from_skills(skills: Vec<Arc<dyn Skill>>) -> Self {
        let mut registry = Self::default();
        for skill in skills {
            if registry.get(&skill.meta().name).is_none() {
                registry.skills.push(skill);
            }
        }
        registry
    }

    /// Returns the number of skills.
    pub fn len(&self) -> usize {
        self.skills.len()
    }

    /// Whether there are no skills.
    pub fn is_empty(&self) -> bool {
        self.skills.is_empty()
    }
}

impl SkillRegistry for InMemorySkillRegistry {
    fn get(&self, name: &str) -> Option<Arc<dyn Skill>> {
        self.skills.iter().find(|skill| skill.meta().name == name).cloned()
    }

    fn skills(&self) -> Vec<Arc<dyn Skill>> {
        self.skills.clone()
    }
}

const HEAD: &str =
    "Skills contain instructions for kinds of tasks. When one matches the task, call the tool \
                    `skill` with its name before you start, and follow its instructions.
<available_skills>
";
const TAIL: &str = "</available_skills>\n";

/// Characters of a description together with what says when to use the skill.
const MAX_ABOUT: usize = MAX_DESCRIPTION + 512;

/// The text about the skills that the model sees before each inference; `None` when there are none for it.
pub fn catalogue(registry: &dyn SkillRegistry) -> Option<String> {
    let mut skills = registry.skills();
    skills.retain(|skill| !skill.meta().disable_model_invocation);
    if skills.is_empty() {
        return None;
    }
    let note = |left: usize| format!("{left} more skills are not listed here; ask the user for a name.\n");
    let room = MAX_CATALOGUE_CHARS - HEAD.chars().count() - TAIL.len() - note(skills.len()).chars().count();
    let (mut entries, mut used, mut shown) = (String::new(), 0, 0);
    for skill in skills.iter().take(MAX_CATALOGUE_ENTRIES) {
        let meta = skill.meta();
        let mut about: String = meta.description.chars().take(MAX_DESCRIPTION).collect();
        if let Some(when) = &meta.when_to_use {
            about.push('\n');
            about.push_str(when);
        }
        let about: String = about.chars().take(MAX_ABOUT).collect();
        let mut entry = String::new();
        let _ = writeln!(
            entry,
            "<skill><name>{}</name><description>{}</description></skill>",
            escape_markup(&visible_line(&meta.name)),
            escape_markup(&visible(&about))
        );
        let length = entry.chars().count();
        if used + length > room {
            break;
        }
        used += length;
        shown += 1;
        entries.push_str(&entry);
    }
    let mut text = format!("{HEAD}{entries}{TAIL}");
    if shown < skills.len() {
        text.push_str(&note(skills.len() - shown));
    }
    Some(text)
}

/// The skill that a line `/name arguments` names, and the arguments. Of several names that fit, the longest counts: a
/// name may contain spaces.
pub(super) fn named(registry: &dyn SkillRegistry, line: &str) -> Option<(Arc<dyn Skill>, String)> {
    let line = line.strip_prefix('/')?;
    let fits = |skill: &Arc<dyn Skill>| {
        let after = line.strip_prefix(skill.meta().name.as_str())?;
        (after.is_empty() || after.starts_with(char::is_whitespace)).then(|| after.trim().to_owned())
    };
    let found = registry.skills().into_iter().filter_map(|skill| fits(&skill).map(|after| (skill, after)));
    found.max_by_key(|(skill, _)| skill.meta().name.len())
}

/// Why a user may not start a skill.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "only the model can use the skill `{}` (`user-invocable: false`); describe the task in your own words",
    visible_line(skill)
)]
pub struct NotUserInvocable {
    pub skill: String,
}

/// Converts a user's `/name arguments` to the message that makes the model load the skill. Returns `None` if
/// no skill has that name.
///
/// # Errors
/// The reason why a user may not start the skill.
pub fn invocation(registry: &dyn SkillRegistry, line: &str) -> Result<Option<String>, NotUserInvocable> {
    let Some((skill, arguments)) = named(registry, line) else { return Ok(None) };
    let name = &skill.meta().name;
    if skill.meta().is_hidden {
        return Err(NotUserInvocable { skill: name.clone() });
    }
    Ok(Some(match arguments.as_str() {
        "" => format!("Use the skill `{name}`: call the tool `skill` with it and follow its instructions."),
        arguments => {
            format!(
                "Use the skill `{name}`: call the tool `skill` with it and follow its instructions for this:\n{arguments}"
            )
        }
    }))
}
