//! The skills that a run can use, and the catalogue that the model sees.

use std::fmt::Write as _;
use std::sync::Arc;

use super::front_matter::MAX_DESCRIPTION;
use super::skill::Skill;
use crate::contract::display::{escape_markup, visible_line};

/// Entries of a catalogue.
pub const MAX_CATALOGUE_ENTRIES: usize = 32;
/// Characters of a catalogue.
pub const MAX_CATALOGUE_CHARS: usize = 16_384;

/// Where skills are looked up.
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

    /// How many there are.
    pub fn len(&self) -> usize {
        self.skills.len()
    }

    /// Whether there are none.
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

const HEAD: &str = "\
Skills hold instructions for kinds of tasks. When one fits the task, call the tool `skill` with its name before you begin, \
and follow what it says.
<available_skills>
";
const TAIL: &str = "</available_skills>\n";

/// The text about the skills that the model sees before each inference; `None` when there are none.
pub fn catalogue(registry: &dyn SkillRegistry) -> Option<String> {
    let skills = registry.skills();
    if skills.is_empty() {
        return None;
    }
    let note = |left: usize| {
        format!("{left} more skills are not listed here; ask the person for the name of one.\n")
    };
    let room = MAX_CATALOGUE_CHARS - HEAD.chars().count() - TAIL.len() - note(skills.len()).chars().count();
    let (mut entries, mut used, mut shown) = (String::new(), 0, 0);
    for skill in skills.iter().take(MAX_CATALOGUE_ENTRIES) {
        let meta = skill.meta();
        let description: String = meta.description.chars().take(MAX_DESCRIPTION).collect();
        let mut entry = String::new();
        let _ = writeln!(
            entry,
            "<skill><name>{}</name><description>{}</description></skill>",
            escape_markup(&visible_line(&meta.name)),
            escape_markup(&visible_line(&description))
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

/// What a person's `/name arguments` means: the message that has the model take the skill up. `None` when no skill has
/// that name.
pub fn invocation(registry: &dyn SkillRegistry, line: &str) -> Option<String> {
    let (name, arguments) =
        line.strip_prefix('/')?.split_once(char::is_whitespace).unwrap_or((&line[1..], ""));
    let skill = registry.get(name)?;
    let name = &skill.meta().name;
    Some(match arguments.trim() {
        "" => format!("Use the skill `{name}`: call the tool `skill` with it and follow its instructions."),
        arguments => {
            format!(
                "Use the skill `{name}`: call the tool `skill` with it and follow its instructions for this:\n{arguments}"
            )
        }
    })
}
