//! The skills that are compiled in.

use std::sync::Arc;

use super::skill::{EmbeddedSkill, EmbeddedSkillData, Skill};

struct Parts {
    data: EmbeddedSkillData<'static>,
    scripts: &'static [(&'static str, &'static str)],
}

const BUNDLED: [Parts; 3] = [
    Parts {
        data: EmbeddedSkillData {
            skill_md: include_str!("../../../../skills/commit/SKILL.md"),
            references: &[("messages.md", include_str!("../../../../skills/commit/references/messages.md"))],
            assets: &[],
        },
        scripts: &[("staged.sh", include_str!("../../../../skills/commit/scripts/staged.sh"))],
    },
    Parts {
        data: EmbeddedSkillData {
            skill_md: include_str!("../../../../skills/review/SKILL.md"),
            references: &[(
                "checklist.md",
                include_str!("../../../../skills/review/references/checklist.md"),
            )],
            assets: &[],
        },
        scripts: &[],
    },
    Parts {
        data: EmbeddedSkillData {
            skill_md: include_str!("../../../../skills/skill-writer/SKILL.md"),
            references: &[(
                "format.md",
                include_str!("../../../../skills/skill-writer/references/format.md"),
            )],
            assets: &[],
        },
        scripts: &[],
    },
];

/// The skills that are compiled in; a skill of the same name in any folder is used instead.
pub fn bundled() -> Vec<Arc<dyn Skill>> {
    let skill =
        |parts: &Parts| EmbeddedSkill::new(&parts.data).ok().map(|skill| skill.with_scripts(parts.scripts));
    // None of them is broken: a test says so.
    BUNDLED.iter().filter_map(skill).map(|skill| Arc::new(skill) as Arc<dyn Skill>).collect()
}
