//! Flags that every command takes.

use std::path::{Path, PathBuf};

use clap::Args;

use super::time::whole_seconds;
use crate::config::{Flags, PermissionMode};
use crate::contract::inference::ReasoningEffort;

/// Flags that every command takes.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Settings")]
pub struct Global {
    /// Work in this folder
    #[arg(
        short = 'C',
        long = "cd",
        alias = "cwd",
        value_name = "DIR",
        global = true,
        allow_hyphen_values = true
    )]
    pub cd: Option<PathBuf>,

    /// Model, as NAME or PROVIDER/NAME; `aye models` lists them
    #[arg(long, value_name = "NAME", global = true)]
    pub model: Option<String>,

    /// How hard the model thinks before it answers
    #[arg(long, value_name = "EFFORT", global = true, value_parser = ReasoningEffort::WORDS)]
    pub effort: Option<String>,

    /// Agent to talk to; `aye agents list` shows them
    #[arg(long, value_name = "NAME", global = true)]
    pub agent: Option<String>,

    /// How to handle calls that no rule decides
    #[arg(long, value_name = "MODE", global = true, value_parser = ["ask", "accept-edits", "auto", "plan", "yolo"])]
    pub permission_mode: Option<String>,

    /// Run nearly everything without asking and outside the sandbox: --permission-mode yolo; for containers only
    #[arg(long, global = true, conflicts_with = "permission_mode",
          aliases = ["dangerously-skip-permissions", "dangerously-bypass-approvals-and-sandbox"])]
    pub yolo: bool,

    /// Let sandboxed commands change this folder, too
    #[arg(long, value_name = "DIR", global = true, action = clap::ArgAction::Append, allow_hyphen_values = true)]
    pub add_dir: Vec<PathBuf>,

    /// Allow matching calls for this session, for example 'Bash(git diff *)'; deny and ask rules still win
    ///
    /// Separate patterns with commas or spaces, or repeat the flag.
    #[arg(long, alias = "allowedTools", value_name = "PATTERNS", global = true, action = clap::ArgAction::Append)]
    pub allowed_tools: Vec<String>,

    /// Deny matching calls for this session, for example WebFetch
    #[arg(long, alias = "disallowedTools", value_name = "PATTERNS", global = true, action = clap::ArgAction::Append)]
    pub disallowed_tools: Vec<String>,

    /// Stop after this many model answers; 0 means no limit
    #[arg(long, value_name = "N", global = true)]
    pub max_turns: Option<u32>,

    /// Stop a run after this many tokens, in and out; 0 means no limit
    #[arg(long, value_name = "N", global = true)]
    pub max_tokens_total: Option<u64>,

    /// Stop a run that costs more, at the configured prices; 0 means no limit
    #[arg(long, value_name = "USD", global = true, value_parser = amount)]
    pub max_budget_usd: Option<f64>,

    /// Stop a run after this active time, such as 90s or 10m, without waiting for you; 0 means no limit
    #[arg(long = "timeout", value_name = "TIME", global = true, value_parser = whole_seconds)]
    pub run_timeout: Option<u64>,

    /// Order in which the calls of one answer run
    #[arg(long, value_name = "MODE", global = true,
          value_parser = ["sequential", "parallel_batch_approval", "parallel_streaming"])]
    pub tool_execution: Option<String>,

    /// Show no animation; only elapsed seconds change
    #[arg(long, global = true)]
    pub reduced_motion: bool,

    /// Screen reader mode: plain lines, no redrawing, questions answered in words
    #[arg(long, global = true)]
    pub screen_reader: bool,

    /// Set one setting, for example --config retry.max_retries=2
    #[arg(long, value_name = "KEY=VALUE", global = true, action = clap::ArgAction::Append, allow_hyphen_values = true)]
    pub config: Vec<String>,

    /// Use the settings of a file over your own; --config and other flags take precedence
    #[arg(long, value_name = "FILE", global = true)]
    pub settings: Option<PathBuf>,

    /// Use the settings of profiles/NAME.toml, in the folder of your config.toml, over your own
    #[arg(long, value_name = "NAME", global = true, value_parser = profile_name)]
    pub profile: Option<String>,

    /// Start the MCP servers of a file in the format of .mcp.json, too; repeat the flag for several
    #[arg(long, value_name = "FILE", global = true, action = clap::ArgAction::Append)]
    pub mcp_config: Vec<PathBuf>,

    /// Replace the text that tells the agent who it is
    #[arg(long, value_name = "TEXT", global = true, conflicts_with = "system_prompt_file")]
    pub system_prompt: Option<String>,

    /// The same, from a file
    #[arg(long, value_name = "FILE", global = true)]
    pub system_prompt_file: Option<PathBuf>,

    /// Add to the agent's instructions
    #[arg(long, value_name = "TEXT", global = true, conflicts_with = "append_system_prompt_file")]
    pub append_system_prompt: Option<String>,

    /// The same, from a file
    #[arg(long, value_name = "FILE", global = true)]
    pub append_system_prompt_file: Option<PathBuf>,

    /// Write everything that aye does to its log; `aye doctor` names the file
    #[arg(long, global = true)]
    pub debug: bool,

    /// Leave out hooks, skills, configured MCP servers, notes, agents, reminders and AGENTS.md; rules hold as ever
    #[arg(long, global = true)]
    pub bare: bool,

    /// Trust this folder's own rules, settings and skills for this session, without asking
    #[arg(long, global = true)]
    pub trust: bool,

    /// Keep this conversation and its questions in memory only, until the process ends
    #[arg(long, global = true)]
    pub ephemeral: bool,
}

impl Global {
    /// Returns the settings that these flags represent; dedicated flags take precedence over `--config`, and that over
    /// the files of `--settings` and `--profile`. `config_dir` contains the user's settings; relative paths start at
    /// `cwd`.
    pub fn flags(&self, config_dir: &Path, cwd: &Path) -> Flags {
        let mut flags = Flags::default();
        if let Some(name) = &self.profile {
            flags.file("--profile", &config_dir.join("profiles").join(format!("{name}.toml")));
        }
        if let Some(file) = &self.settings {
            flags.file("--settings", &cwd.join(file));
        }
        for assignment in &self.config {
            flags.config(assignment);
        }
        let own = [
            ("--model", "model", self.model.clone()),
            ("--effort", "effort", self.effort.clone()),
            ("--agent", "agent", self.agent.clone()),
            ("--permission-mode", "permission_mode", self.permission_mode.clone()),
            ("--yolo", "permission_mode", self.yolo.then(|| "yolo".to_owned())),
            ("--max-turns", "max_turns", self.max_turns.map(|turns| turns.to_string())),
            ("--max-tokens-total", "stop.max_tokens_total", self.max_tokens_total.map(|n| n.to_string())),
            ("--max-budget-usd", "stop.max_budget_usd", self.max_budget_usd.map(|most| format!("{most:?}"))),
            ("--timeout", "stop.timeout_s", self.run_timeout.map(|seconds| seconds.to_string())),
            ("--tool-execution", "tool_execution", self.tool_execution.clone()),
            ("--reduced-motion", "tui.reduced_motion", self.reduced_motion.then(|| "true".to_owned())),
            ("--screen-reader", "tui.screen_reader", self.screen_reader.then(|| "true".to_owned())),
        ];
        for (flag, key, value) in own {
            if let Some(value) = value {
                flags.set(flag, key, &value);
            }
        }
        for folder in &self.add_dir {
            flags.add("--add-dir", "sandbox.writable", &cwd.join(folder).to_string_lossy());
        }
        flags
    }

    /// Removes what was meant for the folder of this start: permissions, servers and texts. What was denied stays.
    pub(crate) fn leave_folder(&mut self) {
        self.allowed_tools.clear();
        self.permission_mode = None;
        self.yolo = false;
        self.add_dir.clear();
        self.mcp_config.clear();
        self.system_prompt = None;
        self.system_prompt_file = None;
        self.append_system_prompt = None;
        self.append_system_prompt_file = None;
        // Runs elsewhere have agents of their own.
        self.agent = None;
        self.trust = false;
    }

    /// The patterns of `--allowed-tools`, one each: a value may hold several, with blanks or commas between them.
    pub fn allowed_patterns(&self) -> Vec<String> {
        split_patterns(&self.allowed_tools)
    }

    /// The patterns of `--disallowed-tools`, one each.
    pub fn disallowed_patterns(&self) -> Vec<String> {
        split_patterns(&self.disallowed_tools)
    }

    /// The permission mode of `--permission-mode`, when it was given.
    pub fn permission_mode(&self) -> Option<PermissionMode> {
        if self.yolo {
            return Some(PermissionMode::Yolo);
        }
        self.permission_mode.as_deref().and_then(|word| word.parse().ok())
    }
}

/// Checks that a profile names a file in the folder of profiles, and none elsewhere.
fn profile_name(text: &str) -> Result<String, String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if text.is_empty() || text.starts_with('.') || !text.chars().all(is_name) {
        return Err("a profile's name has letters, digits, `-`, `_` and `.`".to_owned());
    }
    Ok(text.to_owned())
}

fn amount(text: &str) -> Result<f64, String> {
    text.trim_start_matches('$')
        .parse::<f64>()
        .ok()
        .filter(|amount| amount.is_finite() && *amount >= 0.0)
        .ok_or_else(|| "invalid amount; expected for example 0.50".to_owned())
}

/// Takes lists of patterns apart at blanks and commas outside of parentheses, slashes and quotes left alone.
pub(super) fn split_patterns(values: &[String]) -> Vec<String> {
    let mut patterns: Vec<String> = Vec::new();
    for value in values {
        // A regex may contain spaces and commas, so a value that is one pattern on its own is not split.
        if value.trim_start().starts_with('/') {
            patterns.push(value.trim().to_owned());
            continue;
        }
        let (mut part, mut depth) = (String::new(), 0_usize);
        let mut rest = value.chars().peekable();
        while let Some(c) = rest.next() {
            match c {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            let is_between = depth == 0 && (c == ',' || c.is_whitespace());
            if !is_between {
                part.push(c);
                continue;
            }
            while c != ',' && rest.next_if(|next| next.is_whitespace()).is_some() {}
            // `Bash (git *)` is one pattern.
            if c != ',' && rest.peek() == Some(&'(') {
                continue;
            }
            patterns.extend(Some(std::mem::take(&mut part)).filter(|part| !part.is_empty()));
        }
        patterns.extend(Some(part).filter(|part| !part.is_empty()));
    }
    patterns
}
