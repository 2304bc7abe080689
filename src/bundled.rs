//! The skills that are compiled in.

use std::sync::Arc;

use aye_plugins::skills::{EmbeddedSkill, EmbeddedSkillData, Skill};

struct Parts {
    data: EmbeddedSkillData<'static>,
    scripts: &'static [(&'static str, &'static str)],
}

const BUNDLED: [Parts; 3] = [
    Parts {
        data: EmbeddedSkillData {
            skill_md: include_str!("../skills/commit/SKILL.md"),
            references: &[("messages.md", include_str!("../skills/commit/references/messages.md"))],
            assets: &[],
        },
        scripts: &[("staged.sh", include_str!("../skills/commit/scripts/staged.sh"))],
    },
    Parts {
        data: EmbeddedSkillData {
            skill_md: include_str!("../skills/review/SKILL.md"),
            references: &[("checklist.md", include_str!("../skills/review/references/checklist.md"))],
            assets: &[],
        },
        scripts: &[],
    },
    Parts {
        data: EmbeddedSkillData {
            skill_md: include_str!("../skills/skill-writer/SKILL.md"),
            references: &[("format.md", include_str!("../skills/skill-writer/references/format.md"))],
            assets: &[],
        },
        scripts: &[],
    },
];

/// The skills that are compiled in; a skill of the same name in any folder is used instead.
pub fn bundled() -> Vec<Arc<dyn Skill>> {
    let skill =
        |parts: &Parts| EmbeddedSkill::new(&parts.data).ok().map(|skill| skill.with_scripts(parts.scripts));
    // None of them is invalid: a test checks that.
    BUNDLED.iter().filter_map(skill).map(|skill| Arc::new(skill) as Arc<dyn Skill>).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use aye_plugins::skills::{FsSkill, Skill, check_dir};

    use super::bundled;

    #[test]
    fn the_bundled_skills_are_valid() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("skills");
        let report = check_dir(&folder).expect("readable");
        assert_eq!(report.exit_code(), 0);
        let odd: Vec<_> = report.lines().into_iter().filter(|line| !line.ends_with(": ok")).collect();
        assert!(odd.is_empty(), "{odd:?}");
        let on_disk = FsSkill::discover(&folder).expect("readable").skills;
        let built_in = bundled();
        assert_eq!(built_in.len(), on_disk.len());
        for (built_in, on_disk) in built_in.iter().zip(&on_disk) {
            assert_eq!(built_in.meta(), on_disk.meta());
            assert_eq!(built_in.files(), on_disk.files(), "a file was not compiled in");
            assert_eq!(built_in.content_hash().expect("hash"), on_disk.content_hash().expect("hash"));
        }
    }
}
