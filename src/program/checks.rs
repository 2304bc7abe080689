//! Checks after an edit: commands of the settings that run when files were changed, such as a compiler's. The model reads
//! what they newly say about these files.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use aye_pattern::{Pattern, Quantifier};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::contract::activity::{Activity, ReportActivity};
use crate::contract::context_message::ContextMessage;
use crate::contract::display::{shortened, visible_line};
use crate::failure::AppError;
use crate::phase::{
    AddContextMessage, AnotherStep, PhaseContext, PhaseHook, Plugin, PluginDescriptor, PluginRegistrar,
};
use crate::program::goal::has_calls;
use crate::program::own_commands::{OwnCommands, shown};
use crate::state::{
    JsonValue, KeyScope, MergeStrategy, Phase, StateCommand, StateError, StateKey, StateKeyOptions,
};

pub(crate) const CHECKS_PLUGIN: &str = "checks";

/// Time for the checks of one step.
const MAX_TIME: Duration = Duration::from_mins(2);
/// A check that takes longer runs while the model answers.
const PATIENCE: Duration = Duration::from_secs(3);
/// Maximum lines that the model reads of the checks of a step.
const MAX_LINES: usize = 20;
/// Characters of such a line.
const MAX_LINE: usize = 240;
/// Lines that are remembered of a check.
const MAX_KNOWN: usize = 500;

type LineCounts = BTreeMap<String, usize>;

/// What was changed since the last checks, and what they said.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CheckedFiles {
    /// Files that no check has seen since they were changed, relative to the working directory.
    changed: BTreeSet<String>,
    /// How often each line was said last, whatever its numbers, by command.
    known: BTreeMap<String, LineCounts>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum CheckUpdate {
    Changed(String),
    /// The checks of these files were started.
    Started(BTreeSet<String>),
    /// What a command reported.
    #[serde(rename = "Said")]
    Reported(String, LineCounts),
}

impl StateKey for CheckedFiles {
    const KEY: &'static str = "checks";
    const MERGE: MergeStrategy = MergeStrategy::Commutative;
    const SCOPE: KeyScope = KeyScope::Thread;
    type Value = Self;
    type Update = CheckUpdate;

    fn apply(value: &mut Self::Value, update: Self::Update) {
        match update {
            CheckUpdate::Changed(file) => drop(value.changed.insert(file)),
            CheckUpdate::Started(files) => value.changed.retain(|file| !files.contains(file)),
            CheckUpdate::Reported(command, lines) => drop(value.known.insert(command, lines)),
        }
    }
}

/// A command for files of some names.
#[derive(Clone)]
struct FileCheck {
    files: Pattern,
    command: String,
}

/// What the check of some files said.
struct CheckOutput {
    command: String,
    files: BTreeSet<String>,
    output: Result<String, String>,
}

type RunningChecks = Arc<Mutex<HashMap<String, JoinHandle<Vec<CheckOutput>>>>>;

/// Runs the checks of the settings.
#[derive(Clone)]
pub(crate) struct ChecksPlugin {
    checks: Vec<FileCheck>,
    commands: OwnCommands,
    /// By run.
    running: RunningChecks,
}

impl ChecksPlugin {
    /// `checks` are commands by globs of files.
    ///
    /// # Errors
    /// Which glob is none.
    pub(crate) fn new(checks: &BTreeMap<String, String>, commands: OwnCommands) -> Result<Self, AppError> {
        let check = |(glob, command): (&String, &String)| {
            let files = Pattern::parse(&format!("File({glob})")).map_err(|error| {
                format!("`{}` is no glob of files: {}", visible_line(glob), error.message)
            })?;
            Ok(FileCheck { files, command: command.clone() })
        };
        let checks = checks.iter().map(check).collect::<Result<_, AppError>>()?;
        Ok(Self { checks, commands, running: RunningChecks::default() })
    }

    /// The checks for files, each once.
    fn of(&self, changed: &BTreeSet<String>) -> BTreeMap<String, BTreeSet<String>> {
        let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for check in &self.checks {
            let is_meant = |file: &&String| {
                let args = json!({"file_path": file});
                check.files.matches("File", &args, Some("file_path"), Quantifier::One)
            };
            let files: Vec<String> = changed.iter().filter(is_meant).cloned().collect();
            if !files.is_empty() {
                all.entry(check.command.clone()).or_default().extend(files);
            }
        }
        all
    }

    fn start(
        &self,
        ctx: &PhaseContext,
        checks: BTreeMap<String, BTreeSet<String>>,
    ) -> JoinHandle<Vec<CheckOutput>> {
        let (commands, run) = (self.commands.clone(), ctx.run_identity.run_id.to_string());
        let cancel = ctx.cancellation.child_token();
        tokio::spawn(async move {
            let mut all = Vec::new();
            for (command, files) in checks {
                let args: Vec<String> = files.iter().cloned().collect();
                let output = commands.run(&command, &args, &run, MAX_TIME, &cancel).await;
                let output = output.map_err(|why| why.to_string()).and_then(|output| match output.ended {
                    Some(ended) => Err(ended),
                    None => Ok(format!("{}\n{}", output.stdout, output.stderr)),
                });
                all.push(CheckOutput { command, files, output });
            }
            all
        })
    }

    /// Waits for the checks of a run: for a moment, or until they are over.
    async fn result(&self, run: &str, waits: bool) -> Vec<CheckOutput> {
        let taken = self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(run);
        let Some(mut task) = taken else { return Vec::new() };
        if waits {
            return task.await.unwrap_or_default();
        }
        if let Ok(done) = tokio::time::timeout(PATIENCE, &mut task).await {
            return done.unwrap_or_default();
        }
        self.running.lock().unwrap_or_else(PoisonError::into_inner).insert(run.to_owned(), task);
        Vec::new()
    }
}

impl Plugin for ChecksPlugin {
    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor::new(CHECKS_PLUGIN, "runs the checks of the settings after files were changed")
    }

    fn register(&self, registrar: &mut PluginRegistrar) -> Result<(), StateError> {
        registrar.register_key::<CheckedFiles>(StateKeyOptions {
            scope: KeyScope::Thread,
            ..StateKeyOptions::default()
        })?;
        if !self.checks.is_empty() {
            registrar.register_hook(Phase::AfterToolExecute, NoteChange(self.commands.cwd.clone()));
            registrar.register_hook(Phase::StepEnd, self.clone());
        }
        Ok(())
    }
}

/// Notes the files that calls changed.
struct NoteChange(PathBuf);

#[async_trait]
impl PhaseHook for NoteChange {
    async fn run(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        let changes =
            ctx.tool.as_ref().is_some_and(|info| crate::plugins::permission::is_file_edit(&info.call.name));
        let result = ctx.tool_result.as_ref().filter(|result| changes && result.is_success());
        let path = result.and_then(|result| result.details.as_ref()?.get("path").and_then(JsonValue::as_str));
        if let Some(file) = path.and_then(|path| Path::new(path).strip_prefix(&self.0).ok()) {
            command.update::<CheckedFiles>(CheckUpdate::Changed(file.to_string_lossy().into_owned()));
        }
        Ok(command)
    }
}

#[async_trait]
impl PhaseHook for ChecksPlugin {
    async fn run(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        let mut command = StateCommand::new();
        let run = ctx.run_identity.run_id.as_str();
        let state = ctx.state::<CheckedFiles>().cloned().unwrap_or_default();
        // The last answer of a run is no answer before the checks are over.
        let is_end = !has_calls(ctx);
        let mut results = if is_end { self.result(run, true).await } else { Vec::new() };
        let is_running = self.running.lock().unwrap_or_else(PoisonError::into_inner).contains_key(run);
        if !state.changed.is_empty() && !is_running {
            let checks = self.of(&state.changed);
            if !checks.is_empty() {
                let task = self.start(ctx, checks);
                self.running.lock().unwrap_or_else(PoisonError::into_inner).insert(run.to_owned(), task);
            }
            command.update::<CheckedFiles>(CheckUpdate::Started(state.changed.clone()));
        }
        results.extend(self.result(run, is_end).await);
        let mut known = state.known;
        let mut news = Vec::new();
        for CheckOutput { command: check, files, output } in results {
            match output {
                Err(why) => {
                    let text = format!("the check `{}` did not run to its end: {why}", shown(&check));
                    command.emit::<ReportActivity>(Activity::warning(CHECKS_PLUGIN, text))?;
                }
                Ok(output) => {
                    let before = known.entry(check.clone()).or_default();
                    let (new, counts) = new_lines(lines_about(&output, &files), before);
                    before.clone_from(&counts);
                    if !new.is_empty() {
                        news.push(format!("`{check}` says about changed files:"));
                        news.extend(new);
                    }
                    command.update::<CheckedFiles>(CheckUpdate::Reported(check, counts));
                }
            }
        }
        if news.is_empty() {
            return Ok(command);
        }
        let left = news.len().saturating_sub(MAX_LINES);
        news.truncate(MAX_LINES);
        if left > 0 {
            news.push(format!("[{left} more lines]"));
        }
        command.schedule_action::<AddContextMessage>(ContextMessage::conversation(
            CHECKS_PLUGIN,
            news.join("\n"),
        ))?;
        if is_end {
            command.emit::<AnotherStep>(())?;
        }
        Ok(command)
    }
}

/// The lines of an output that name one of these files, each once.
fn lines_about(output: &str, files: &BTreeSet<String>) -> Vec<String> {
    let mut known = BTreeSet::new();
    let lines = output.lines().map(|line| shortened(&visible_line(line.trim_end()), MAX_LINE).into_owned());
    let about = lines.filter(|line| files.iter().any(|file| line.contains(file.as_str())));
    about.filter(|line| known.insert(line.clone())).take(MAX_KNOWN).collect()
}

/// The lines that were not said before, and how often each is said now. Their numbers move with every edit, so they do not
/// count.
fn new_lines(lines: Vec<String>, known: &LineCounts) -> (Vec<String>, LineCounts) {
    let mut counts = LineCounts::new();
    let is_new = |line: &String| {
        let key: String = line.split(|c: char| c.is_ascii_digit()).filter(|part| !part.is_empty()).collect();
        let count = counts.entry(key.clone()).or_default();
        *count += 1;
        *count > known.get(&key).copied().unwrap_or_default()
    };
    (lines.into_iter().filter(is_new).collect(), counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_about_changed_files_count() {
        let output = "src/a.rs:1:2: error: no\nsrc/b.rs:1: error\nsrc/a.rs:1:2: error: no\n  --> src/a.rs:7:1\nerror: 2";
        let files = BTreeSet::from(["src/a.rs".to_owned()]);
        assert_eq!(lines_about(output, &files), ["src/a.rs:1:2: error: no", "  --> src/a.rs:7:1"]);
    }

    #[test]
    fn a_line_that_only_moved_is_known() {
        let lines = |all: &[&str]| all.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
        let (new, known) = new_lines(lines(&["a.rs:1: no x", "a.rs:5: no x"]), &LineCounts::new());
        assert_eq!(new.len(), 2);
        let (new, known) = new_lines(lines(&["a.rs:12: no x", "a.rs:50: no x", "a.rs:7: no y"]), &known);
        assert_eq!(new, ["a.rs:7: no y"]);
        let (new, _) = new_lines(lines(&["a.rs:1: no x", "a.rs:2: no x", "a.rs:3: no x"]), &known);
        assert_eq!(new, ["a.rs:3: no x"], "one more of them");
    }
    #[test]
    fn stored_updates_keep_their_tags() {
        let update = CheckUpdate::Reported("make".to_owned(), LineCounts::new());
        let stored = serde_json::json!({"Said": ["make", {}]});
        assert_eq!(serde_json::to_value(update).expect("JSON"), stored);
    }
}
