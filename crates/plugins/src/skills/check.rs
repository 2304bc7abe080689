//! The output of `aye skills list` and `aye skills check`.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::discover::{self, Discovery, SkillScope};
use super::front_matter::{Severity, SkillIssue};
use super::skill::{FsSkill, LinkPolicy, Skill, SkillError};
use aye_core::contract::display::{count_unsafe, visible, visible_line};

/// One skill of `aye skills list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListedSkill {
    pub name: String,
    /// Its description, with control and invisible characters written out.
    pub description: String,
    /// When to use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when_to_use: Option<String>,
    /// A hint for the arguments typed after `/name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub argument_hint: Option<String>,
    /// Whether the model may start it.
    pub model_invocable: bool,
    /// Whether a user may start it.
    pub user_invocable: bool,
    /// The number of invisible characters in the description.
    pub invisible_characters: usize,
    /// The scope the skill comes from.
    pub scope: SkillScope,
    /// Its folder, or `built in`.
    pub location: String,
    /// Tools that it asks to be allowed.
    pub allowed_tools: Vec<String>,
    /// The location of the skill that is used instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden_by: Option<String>,
}

impl ListedSkill {
    /// The description on one line.
    pub fn summary(&self) -> String {
        self.description.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// The rows of `aye skills list`.
pub fn list_rows(discovery: &Discovery) -> Vec<ListedSkill> {
    let rows = discovery.found.iter().map(|found| {
        let meta = found.skill.meta();
        ListedSkill {
            name: meta.name.clone(),
            description: visible(&meta.description).into_owned(),
            when_to_use: meta.when_to_use.clone(),
            argument_hint: meta.argument_hint.clone(),
            model_invocable: !meta.disable_model_invocation,
            user_invocable: !meta.is_hidden,
            invisible_characters: count_unsafe(&meta.description),
            scope: found.scope,
            location: visible_line(&found.skill.location()).into_owned(),
            allowed_tools: meta.allowed_tools.clone(),
            hidden_by: found.hidden_by.as_deref().map(|location| visible_line(location).into_owned()),
        }
    });
    rows.collect()
}

/// One skill of `aye skills check`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckRow {
    /// The skill's folder or file.
    pub path: PathBuf,
    /// Its name, when it can be loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether the skill can be loaded.
    pub ok: bool,
    pub issues: Vec<SkillIssue>,
}

/// The result of `aye skills check`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// By path.
    pub skills: Vec<CheckRow>,
}

impl CheckReport {
    /// 0 when each skill can be loaded, else 1.
    pub fn exit_code(&self) -> i32 {
        i32::from(self.skills.iter().any(|row| !row.ok))
    }

    /// One line for each finding, `file:line: error: message`, and one for each skill without any.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for row in &self.skills {
            for issue in &row.issues {
                let severity = issue.severity.word();
                let shown = issue.to_string();
                // The place comes first, as compilers write it, so that editors can jump to it.
                let place = shown.len() - issue.message.len();
                lines.push(format!("{}{severity}: {}", &shown[..place], issue.message));
            }
            if row.issues.is_empty() {
                lines.push(format!("{}: ok", visible_line(&row.path.to_string_lossy())));
            }
        }
        lines
    }
}

/// Checks a skill's folder, its `SKILL.md`, or all skills below a folder.
///
/// # Errors
/// If the folder cannot be read or contains no skill at all.
pub fn check_dir(dir: &Path) -> Result<CheckReport, SkillError> {
    let read = |source| SkillError::Read { path: dir.to_path_buf(), source };
    let named = match dir.file_name() {
        Some(name) if name == "SKILL.md" => dir.parent().filter(|dir| !dir.as_os_str().is_empty()),
        Some(_) | None => Some(dir),
    };
    let named = named.unwrap_or(Path::new("."));
    let real = named.canonicalize().map_err(read)?;
    if real.join("SKILL.md").symlink_metadata().is_ok() {
        let name = named.file_name().or(real.file_name()).unwrap_or_default().to_string_lossy();
        let (skill, issues) = FsSkill::load(&real, &name, &LinkPolicy::All);
        return Ok(report(skill.into_iter().collect(), issues, &[real]));
    }
    let found = discover::walk(&real, Some(&LinkPolicy::All))?;
    if found.skills.is_empty() && found.warnings.is_empty() {
        let path = "SKILL.md".to_owned();
        return Err(SkillError::NotFound { skill: dir.display().to_string(), path, known: Vec::new() });
    }
    Ok(report(found.skills, found.warnings, &[]))
}

/// Checks what a discovery found, hidden skills included.
pub fn check_discovery(discovery: &Discovery) -> CheckReport {
    let mut rows: Vec<CheckRow> = Vec::new();
    for found in &discovery.found {
        let path = PathBuf::from(found.skill.location());
        rows.push(CheckRow {
            path,
            name: Some(found.skill.meta().name.clone()),
            ok: true,
            issues: Vec::new(),
        });
    }
    attach(&mut rows, discovery.issues.clone());
    CheckReport { skills: rows }
}

fn report(skills: Vec<FsSkill>, issues: Vec<SkillIssue>, also: &[PathBuf]) -> CheckReport {
    let row = |skill: FsSkill| CheckRow {
        path: skill.dir().to_path_buf(),
        name: Some(skill.meta().name.clone()),
        ok: true,
        issues: Vec::new(),
    };
    let mut rows: Vec<CheckRow> = skills.into_iter().map(row).collect();
    for path in also {
        if !rows.iter().any(|row| row.path == *path) {
            rows.push(CheckRow { path: path.clone(), name: None, ok: false, issues: Vec::new() });
        }
    }
    attach(&mut rows, issues);
    CheckReport { skills: rows }
}

/// Attaches each finding to the row of its folder, and adds a row if there is none.
fn attach(rows: &mut Vec<CheckRow>, issues: Vec<SkillIssue>) {
    for issue in issues {
        let is_of = |row: &CheckRow| issue.path == row.path || issue.path == row.path.join("SKILL.md");
        let index = rows.iter().position(is_of).unwrap_or_else(|| {
            rows.push(CheckRow { path: issue.path.clone(), name: None, ok: true, issues: Vec::new() });
            rows.len() - 1
        });
        let row = &mut rows[index];
        row.ok &= issue.severity != Severity::Error;
        row.issues.push(issue);
    }
    rows.sort_by(|a, b| a.path.cmp(&b.path));
}
