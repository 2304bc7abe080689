//! One run of a case: a copy of its files, the program with a store of its own, and the checks.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use regex::Regex;
use serde_json::{Map, Value};
use tokio::process::Command;

use super::case::{EvalCase, EvalCheck, EvalStep};
use crate::contract::digest::sha256_hex;
use crate::failure::Failure;
use crate::headless::AnswerSchema;
use crate::program::foundation::Foundation;

/// How often the file is looked for at which a run is killed: the shell writes it, and nothing reports that.
const POLL_EVERY: Duration = Duration::from_millis(20);
/// Characters of a command's output that a failure quotes.
const QUOTED: usize = 300;

/// What differs between the runs that are compared.
#[derive(Clone, Debug, Default)]
pub(super) struct EvalVariant {
    /// As it was written; empty for the settings as they are.
    pub(super) name: String,
    flags: Vec<String>,
    /// Permission rules in place of the user's own.
    rules: Option<PathBuf>,
}

impl EvalVariant {
    pub(super) fn parse(text: &str, cwd: &Path) -> Result<Self, Failure> {
        let mut variant = Self { name: text.to_owned(), ..Self::default() };
        for part in text.split(',') {
            let Some((what, value)) = part.split_once('=').filter(|(_, value)| !value.is_empty()) else {
                return Err(Failure::usage(format!(
                    "--compare {text}: expected model=, agent=, prompt= or rules="
                )));
            };
            let file = || {
                let file = cwd.join(value);
                if file.is_file() {
                    Ok(file)
                } else {
                    Err(Failure::usage(format!("--compare {text}: {} is no file", file.display())))
                }
            };
            match what {
                "model" => variant.flags.extend(["--model".to_owned(), value.to_owned()]),
                "agent" => variant.flags.extend(["--agent".to_owned(), value.to_owned()]),
                "prompt" => {
                    let file = file()?.to_string_lossy().into_owned();
                    variant.flags.extend(["--append-system-prompt-file".to_owned(), file]);
                }
                "rules" => variant.rules = Some(file()?),
                other => {
                    return Err(Failure::usage(format!(
                        "--compare {text}: unknown `{other}`; expected model, agent, prompt or rules"
                    )));
                }
            }
        }
        Ok(variant)
    }

    /// A name for the folders of its runs.
    pub(super) fn folder(&self) -> String {
        if self.name.is_empty() { "run".to_owned() } else { sha256_hex(&self.name)[..8].to_owned() }
    }
}

/// A run to do.
pub(super) struct EvalWork<'a> {
    pub(super) case: &'a EvalCase,
    pub(super) variant: &'a EvalVariant,
    pub(super) nth: u32,
    pub(super) folder: PathBuf,
}

/// A run that ended.
#[derive(Clone, Debug, Default)]
pub(super) struct EvalEnd {
    /// What did not hold; empty if it passed.
    pub(super) failures: Vec<String>,
    pub(super) tokens: u64,
    pub(super) cost: f64,
    pub(super) seconds: f64,
    /// The questions that were asked.
    pub(super) cards: u64,
}

impl EvalWork<'_> {
    pub(super) async fn run(&self, foundation: &Foundation) -> EvalEnd {
        let started = Instant::now();
        let mut end = EvalEnd::default();
        match tokio::time::timeout(self.case.timeout(), self.attempt(foundation)).await {
            Ok(Ok(failures)) => end.failures = failures,
            Ok(Err(why)) => end.failures.push(why),
            Err(_) => end.failures.push(format!("not done after {} s", self.case.timeout().as_secs())),
        }
        end.seconds = started.elapsed().as_secs_f64();
        match self.stats(foundation).await {
            Ok(total) => {
                let count = |key: &str| total.get(key).and_then(Value::as_u64).unwrap_or(0);
                end.tokens = count("input_tokens") + count("output_tokens");
                end.cost = total.get("cost").and_then(Value::as_f64).unwrap_or(0.0);
                end.cards = count("questions");
            }
            Err(why) => end.failures.push(why),
        }
        end
    }

    fn work(&self) -> PathBuf {
        self.folder.join("work")
    }

    fn home(&self) -> PathBuf {
        self.folder.join("home")
    }

    /// Does it, and returns what does not hold.
    async fn attempt(&self, foundation: &Foundation) -> Result<Vec<String>, String> {
        self.prepare(foundation).map_err(|error| format!("the copy cannot be made: {error}"))?;
        if let Some(setup) = &self.case.setup {
            self.shell(setup).await.map_err(|why| format!("setup: {why}"))?;
        }
        let before = self.digests();
        let mut answer = String::new();
        for (nth, step) in self.case.steps().iter().enumerate() {
            if let Some(command) = &step.before {
                self.shell(command).await.map_err(|why| format!("step {}: {why}", nth + 1))?;
            }
            if let Some(text) = self.step(nth, step, foundation).await? {
                answer = text;
            }
        }
        let mut failures = Vec::new();
        for check in &self.case.checks {
            failures.extend(self.failure(check, &answer, &before).await);
        }
        Ok(failures)
    }

    fn prepare(&self, foundation: &Foundation) -> io::Result<()> {
        let (work, home) = (self.work(), self.home());
        std::fs::create_dir_all(&work)?;
        if let Some(folder) = &self.case.folder {
            copy(folder, &work)?;
        }
        for (path, text) in &self.case.files {
            write(&work.join(path), text)?;
        }
        if let Some(rules) = &self.case.rules {
            write(&work.join(".aye/permissions.yaml"), rules)?;
        }
        let (paths, config) = (&foundation.paths, home.join("config"));
        std::fs::create_dir_all(&config)?;
        if paths.config_dir.is_dir() {
            copy(&paths.config_dir, &config)?;
        }
        // It names the user's own databases.
        let _ = std::fs::remove_file(config.join("stores"));
        if let Some(rules) = &self.variant.rules {
            std::fs::copy(rules, config.join("permissions.yaml"))?;
        }
        let state = home.join("state");
        std::fs::create_dir_all(&state)?;
        // Keys are not copied.
        std::os::unix::fs::symlink(paths.keys_dir(), state.join("keys"))
    }

    /// The program with the variables that this one was started with, keys included: they are not in its own environment.
    fn aye(&self, args: &[String], foundation: &Foundation) -> Result<Command, String> {
        let program = std::env::current_exe().map_err(|error| format!("aye cannot be started: {error}"))?;
        let mut command = Command::new(program);
        command.args(args).current_dir(self.work()).kill_on_drop(true);
        command.env_clear().envs(foundation.env.vars()).env("AYE_HOME", self.home());
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        Ok(command)
    }

    /// Starts the agent once. Returns its answer, unless it was killed as the case wants.
    async fn step(
        &self,
        nth: usize,
        step: &EvalStep,
        foundation: &Foundation,
    ) -> Result<Option<String>, String> {
        let case = self.case;
        let mut args: Vec<String> =
            ["-p", "--trust", "--output-format", "json", "--on-ask", "deny"].map(str::to_owned).into();
        args.extend(["--permission-mode".to_owned(), case.mode.clone()]);
        args.extend(["--max-turns".to_owned(), case.max_turns.to_string()]);
        if let Some(tokens) = case.max_tokens {
            args.extend(["--max-tokens-total".to_owned(), tokens.to_string()]);
        }
        args.extend(self.variant.flags.iter().cloned());
        if nth > 0 {
            args.push("-c".to_owned());
        }
        if let Some(prompt) = &step.prompt {
            args.extend(["--".to_owned(), prompt.clone()]);
        }
        let log = std::fs::File::options().create(true).append(true).open(self.folder.join("stderr.log"));
        let mut command = self.aye(&args, foundation)?;
        command.stderr(log.map_err(|error| error.to_string())?);
        let mut child = command.spawn().map_err(|error| format!("aye cannot be started: {error}"))?;
        if let Some(file) = &step.kill_when {
            let file = self.work().join(file);
            let is_there = async {
                while !file.exists() {
                    tokio::time::sleep(POLL_EVERY).await;
                }
            };
            tokio::select! {
                () = is_there => {}
                _ = child.wait() => return Err(format!("step {}: it ended before it could be killed", nth + 1)),
            }
            child.kill().await.map_err(|error| error.to_string())?;
            return Ok(None);
        }
        let out = child.wait_with_output().await.map_err(|error| error.to_string())?;
        let result: Value = serde_json::from_slice(&out.stdout).map_err(|_| {
            format!("step {}: aye ended with {} and no result; see stderr.log", nth + 1, out.status)
        })?;
        if result["exit"] == 0 {
            return Ok(Some(result["response"].as_str().unwrap_or_default().to_owned()));
        }
        let why = result["error"].as_str().map_or_else(|| result["termination"].to_string(), str::to_owned);
        Err(format!("step {}: {why}", nth + 1))
    }

    /// Runs a command of the case.
    async fn shell(&self, command: &str) -> Result<(), String> {
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).current_dir(self.work()).stdin(Stdio::null()).kill_on_drop(true);
        let out = shell.output().await.map_err(|error| format!("sh cannot be started: {error}"))?;
        if out.status.success() {
            return Ok(());
        }
        let output = [out.stdout, out.stderr].concat();
        let output = String::from_utf8_lossy(&output);
        let end = output.chars().count().saturating_sub(QUOTED);
        let end: String = output.chars().skip(end).collect();
        Err(format!("`{command}` ended with {}: {}", out.status, end.trim()))
    }

    /// What the files are that must not change.
    fn digests(&self) -> BTreeMap<String, Option<String>> {
        let all = self.case.checks.iter().flat_map(|check| check.unchanged.iter().flatten());
        all.map(|path| (path.clone(), self.digest(path))).collect()
    }

    fn digest(&self, path: &str) -> Option<String> {
        std::fs::read(self.work().join(path)).ok().map(sha256_hex)
    }

    async fn failure(
        &self,
        check: &EvalCheck,
        answer: &str,
        before: &BTreeMap<String, Option<String>>,
    ) -> Option<String> {
        if let Some(command) = &check.command {
            return self.shell(command).await.err();
        }
        if let Some(files) = &check.unchanged {
            let changed = files.iter().find(|path| before.get(*path) != Some(&self.digest(path)));
            return changed.map(|path| format!("{path} changed"));
        }
        if let Some(pattern) = &check.answer {
            let is_found = Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(answer));
            return (!is_found).then(|| format!("the answer does not match /{pattern}/"));
        }
        if let Some(schema) = &check.schema {
            return match AnswerSchema::parse(schema).map(|schema| schema.check(answer)) {
                Ok(Ok(_)) => None,
                Ok(Err(errors)) => {
                    Some(format!("the answer does not match the schema: {}", errors.join("; ")))
                }
                Err(error) => Some(error.to_string()),
            };
        }
        let file = check.file.as_deref()?;
        let text = std::fs::read(self.work().join(file)).ok();
        if let Some(exists) = check.exists {
            let does = self.work().join(file).symlink_metadata().is_ok();
            return (does != exists)
                .then(|| format!("{file} {}", if does { "exists" } else { "does not exist" }));
        }
        let Some(text) = text else { return Some(format!("{file} does not exist")) };
        let text = String::from_utf8_lossy(&text);
        let has = |pattern: &String| Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(&text));
        match (&check.contains, &check.lacks) {
            (Some(pattern), _) if !has(pattern) => Some(format!("{file} does not match /{pattern}/")),
            (_, Some(pattern)) if has(pattern) => Some(format!("{file} matches /{pattern}/")),
            _ => None,
        }
    }

    /// What the run used, from its own store.
    async fn stats(&self, foundation: &Foundation) -> Result<Map<String, Value>, String> {
        if !self.home().join("data/aye.db").is_file() {
            return Ok(Map::new());
        }
        let mut command = self.aye(&["stats", "--json"].map(str::to_owned), foundation)?;
        let out = command.stderr(Stdio::null()).output().await.map_err(|error| error.to_string())?;
        let stats: Value =
            serde_json::from_slice(&out.stdout).map_err(|_| "its statistics cannot be read".to_owned())?;
        Ok(stats["total"].as_object().cloned().unwrap_or_default())
    }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, text)
}

/// Copies a folder. What is neither a file nor a folder is left out: a link might lead out of it.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (kind, target) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            copy(&entry.path(), &target)?;
        } else if kind.is_file() {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
