//! A case: files, a prompt, checks and limits.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use regex::Regex;
use serde::Deserialize;

use crate::contract::span::parse_span;
use crate::failure::Failure;
use crate::headless::AnswerSchema;

/// The file of a case in its folder.
const CASE_FILE: &str = "case.toml";
/// The folder of its files.
const FILES: &str = "files";

macro_rules! cases {
    ($($name:literal)*) => { [$(($name, include_str!(concat!("../../../evals/", $name, "/case.toml")))),*] };
}

/// The cases that come with aye.
const BUNDLED: [(&str, &str); 12] = cases!(
    "denied-call" "edit" "injection" "large-repository" "long-output" "plan" "refactor" "resume" "search" "stale-file"
    "test-repair" "unknown-outcome"
);

/// A case as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EvalCase {
    #[serde(skip)]
    pub(super) name: String,
    /// The folder with its files, if it has one.
    #[serde(skip)]
    pub(super) folder: Option<PathBuf>,
    pub(super) description: String,
    /// What the agent is asked, if that is all.
    prompt: Option<String>,
    /// What the agent is asked, in order.
    #[serde(default)]
    steps: Vec<EvalStep>,
    /// Small files by path.
    #[serde(default)]
    pub(super) files: BTreeMap<String, String>,
    /// A command that prepares the copy.
    pub(super) setup: Option<String>,
    #[serde(default = "auto")]
    pub(super) mode: String,
    /// Permission rules of the copy, as YAML.
    pub(super) rules: Option<String>,
    #[serde(default)]
    timeout: Option<String>,
    #[serde(default = "max_turns")]
    pub(super) max_turns: u32,
    pub(super) max_tokens: Option<u64>,
    pub(super) checks: Vec<EvalCheck>,
}

fn auto() -> String {
    "auto".to_owned()
}

fn max_turns() -> u32 {
    30
}

/// One start of the agent.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EvalStep {
    /// A command before it, such as one that changes a file.
    pub(super) before: Option<String>,
    /// What the agent is asked; without it, it resumes what was interrupted.
    pub(super) prompt: Option<String>,
    /// The agent is killed as soon as this file exists.
    pub(super) kill_when: Option<String>,
}

/// One thing that has to hold in the end. Each has exactly one of the members but `file`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EvalCheck {
    /// A command of the shell that ends with status 0.
    pub(super) command: Option<String>,
    /// The file that `contains`, `lacks` and `exists` are about.
    pub(super) file: Option<String>,
    /// A regular expression that the file matches.
    pub(super) contains: Option<String>,
    /// A regular expression that it does not match.
    pub(super) lacks: Option<String>,
    pub(super) exists: Option<bool>,
    /// Files that are what they were.
    pub(super) unchanged: Option<Vec<String>>,
    /// A regular expression that the last answer matches.
    pub(super) answer: Option<String>,
    /// A JSON Schema that the last answer matches.
    pub(super) schema: Option<String>,
}

impl EvalCheck {
    fn problem(&self) -> Option<String> {
        let of_file = [self.contains.is_some(), self.lacks.is_some(), self.exists.is_some()];
        let others =
            [self.command.is_some(), self.unchanged.is_some(), self.answer.is_some(), self.schema.is_some()];
        let count = |given: &[bool]| given.iter().filter(|is| **is).count();
        if count(&of_file) + count(&others) != 1 || (count(&of_file) == 1) != self.file.is_some() {
            return Some(
                "a check has one of command, answer, schema and unchanged, or file with contains, lacks or exists".to_owned(),
            );
        }
        let patterns = [&self.contains, &self.lacks, &self.answer];
        let wrong = patterns.into_iter().flatten().find_map(|text| Regex::new(text).err());
        wrong.map(|error| error.to_string().replace('\n', " ")).or_else(|| {
            AnswerSchema::parse(self.schema.as_deref()?).err().map(|error| format!("schema: {error}"))
        })
    }

    fn paths(&self) -> impl Iterator<Item = &String> {
        self.file.iter().chain(self.unchanged.iter().flatten())
    }
}

/// Returns whether a path stays below the folder it starts in.
fn is_inside(path: &str) -> bool {
    !path.is_empty() && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
}

impl EvalCase {
    fn parse(name: &str, text: &str, place: &str) -> Result<Self, Failure> {
        let wrong = |why: &str| Failure::usage(format!("{place}: {why}"));
        let mut case: Self = toml::from_str(text).map_err(|error| wrong(error.to_string().trim()))?;
        name.clone_into(&mut case.name);
        match (case.prompt.take(), case.steps.is_empty()) {
            (Some(prompt), true) => {
                case.steps.push(EvalStep { prompt: Some(prompt), ..EvalStep::default() });
            }
            (None, false) => {}
            (Some(_), false) | (None, true) => return Err(wrong("a case has either a prompt or steps")),
        }
        if case.steps[0].prompt.is_none() {
            return Err(wrong("the first step has no prompt"));
        }
        if case.checks.is_empty() {
            return Err(wrong("the case has no checks: nothing could fail"));
        }
        if let Some(why) = case.checks.iter().find_map(EvalCheck::problem) {
            return Err(wrong(&why));
        }
        let killed = case.steps.iter().filter_map(|step| step.kill_when.as_ref());
        let paths = case.files.keys().chain(case.checks.iter().flat_map(EvalCheck::paths)).chain(killed);
        if let Some(path) = paths.into_iter().find(|path| !is_inside(path)) {
            return Err(wrong(&format!("`{path}` is not a path below the folder of the case")));
        }
        if case.timeout.as_deref().is_some_and(|text| parse_span(text).is_none()) {
            return Err(wrong("invalid timeout; expected 30m, 2h or 1d"));
        }
        Ok(case)
    }

    pub(super) fn steps(&self) -> &[EvalStep] {
        &self.steps
    }

    /// How long one run may take.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout.as_deref().and_then(parse_span).unwrap_or(Duration::from_mins(10))
    }
}

/// The cases that come with aye.
pub(super) fn bundled() -> Result<Vec<EvalCase>, Failure> {
    BUNDLED
        .iter()
        .map(|(name, text)| EvalCase::parse(name, text, &format!("evals/{name}/{CASE_FILE}")))
        .collect()
}

/// The cases in a folder, by name.
pub(super) fn read_all(dir: &Path) -> Result<Vec<EvalCase>, Failure> {
    let fail = |error: std::io::Error| Failure::usage(format!("{}: {error}", dir.display()));
    let mut cases = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(fail)? {
        let folder = entry.map_err(fail)?.path();
        let file = folder.join(CASE_FILE);
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut case = EvalCase::parse(&name, &text, &file.display().to_string())?;
        case.folder = Some(folder.join(FILES)).filter(|files| files.is_dir());
        cases.push(case);
    }
    if cases.is_empty() {
        return Err(Failure::usage(format!("{}: no folder in it has a {CASE_FILE}", dir.display())));
    }
    cases.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(cases)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> String {
        EvalCase::parse("c", text, "c/case.toml").err().map(|failure| failure.message).unwrap_or_default()
    }

    #[test]
    fn the_cases_that_come_with_aye_are_valid() {
        let cases = bundled().expect("valid");
        assert_eq!(cases.len(), 12);
        assert!(cases.iter().all(|case| !case.description.is_empty() && !case.steps().is_empty()));
    }

    #[test]
    fn a_case_says_what_is_wrong_with_it() {
        for (text, why) in [
            ("description = 'd'\nchecks = []\nprompt = 'p'", "the case has no checks"),
            ("description = 'd'\nchecks = [{answer = 'a'}]", "either a prompt or steps"),
            ("description = 'd'\nprompt = 'p'\nchecks = [{answer = '('}]", "regex parse error"),
            ("description = 'd'\nprompt = 'p'\nchecks = [{file = 'a'}]", "a check has one of"),
            ("description = 'd'\nprompt = 'p'\nchecks = [{contains = 'a'}]", "a check has one of"),
            (
                "description = 'd'\nprompt = 'p'\nchecks = [{file = '../a', exists = true}]",
                "`../a` is not a path",
            ),
            (
                "description = 'd'\nprompt = 'p'\nfiles = {'/etc/x' = ''}\nchecks = [{answer = 'a'}]",
                "`/etc/x` is not a path",
            ),
            (
                "description = 'd'\nprompt = 'p'\ntimeout = 'soon'\nchecks = [{answer = 'a'}]",
                "invalid timeout",
            ),
            ("description = 'd'\nprompt = 'p'\nchecks = [{answer = 'a'}]\nmore = 1", "unknown field `more`"),
        ] {
            assert!(problem(text).contains(why), "{text}: {}", problem(text));
        }
        assert_eq!(
            problem("description = 'd'\nprompt = 'p'\nchecks = [{schema = '{\"type\": \"object\"}'}]"),
            ""
        );
    }
}
