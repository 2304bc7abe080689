//! `hooks.toml`: read with the place of every mistake.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use aye_core::contract::address::DomainPattern;
use aye_core::contract::display::visible_line;
use aye_core::contract::judgement::Profile;
use aye_core::state::Phase;
use aye_pattern::Pattern;

/// Time that a command may take when its entry does not say.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that an entry may give it.
pub const MAX_TIMEOUT: Duration = Duration::from_mins(10);
const MIN_TIMEOUT: Duration = Duration::from_millis(100);
/// Maximum bytes of a file; a larger one is refused.
const MAX_FILE: u64 = 1 << 20;
/// Hooks of one file.
const MAX_HOOKS: usize = 100;
const KEYS: &str = "phase, command, tool, timeout, name, domains, plain_output";

/// The phases as files name them, in their order.
pub const PHASES: [(&str, Phase); 8] = [
    ("run_start", Phase::RunStart),
    ("step_start", Phase::StepStart),
    ("before_inference", Phase::BeforeInference),
    ("after_inference", Phase::AfterInference),
    ("before_tool_execute", Phase::BeforeToolExecute),
    ("after_tool_execute", Phase::AfterToolExecute),
    ("step_end", Phase::StepEnd),
    ("run_end", Phase::RunEnd),
];

/// The name of a phase in files.
pub fn phase_name(phase: Phase) -> &'static str {
    PHASES.iter().find(|(_, known)| *known == phase).map_or("", |(name, _)| name)
}

/// The owner of the file that contains a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookLayer {
    User,
    /// The project's; it is used only in a folder that is trusted.
    Project,
}

impl HookLayer {
    /// The word in lists and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            HookLayer::User => "user",
            HookLayer::Project => "project",
        }
    }

    /// Returns the restrictions that the kernel enforces on its commands. The user's own commands are the
    /// user's choice.
    pub fn profile(self) -> Profile {
        match self {
            HookLayer::User => Profile::Outside,
            HookLayer::Project => Profile::Workspace,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct HookSpec {
    /// The name; unique among all hooks.
    pub name: String,
    /// When its command runs.
    pub phase: Phase,
    /// The calls it is about; `None` is all of them.
    pub tool: Option<Pattern>,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Time that it may take.
    pub timeout: Duration,
    /// The owner of the file that contains the hook.
    pub layer: HookLayer,
    /// The location of the hook: file and line.
    pub origin: String,
    /// The working directory of the command, for a project's hook: the folder that contains `.aye`.
    pub folder: Option<PathBuf>,
    /// The domains that its command may reach, for a project's.
    pub domains: Vec<DomainPattern>,
    /// Whether its command prints text that is no answer, as commands for Claude Code may: only an object is one.
    pub plain_output: bool,
}

/// Why a file of hooks cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .problems.join("\n"))]
pub struct HookFileError {
    /// All that is wrong, one sentence each, with its place.
    pub problems: Vec<String>,
}

/// Reads a file; one that is not there has no hooks.
///
/// # Errors
/// When it cannot be read, or anything in it is wrong.
pub fn load(path: &Path, layer: HookLayer, folder: Option<&Path>) -> Result<Vec<HookSpec>, HookFileError> {
    use std::io::Read as _;
    let fail = |why: String| HookFileError {
        problems: vec![format!("{}: {why}", visible_line(&path.to_string_lossy()))],
    };
    match path.metadata() {
        Ok(meta) if meta.is_file() => {}
        Ok(_) => return Err(fail("is not a file".to_owned())),
        Err(error)
            if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) =>
        {
            return Ok(Vec::new());
        }
        Err(error) => return Err(fail(format!("cannot be read: {error}"))),
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes))
        .map_err(|error| fail(format!("cannot be read: {error}")))?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(fail(format!("is larger than {} KiB", MAX_FILE / 1024)));
    }
    let text = String::from_utf8(bytes).map_err(|_| fail("is not UTF-8 text".to_owned()))?;
    parse(path, &text, layer, folder)
}

/// Reads the text of a file.
///
/// # Errors
/// As [`load`].
pub fn parse(
    path: &Path,
    text: &str,
    layer: HookLayer,
    folder: Option<&Path>,
) -> Result<Vec<HookSpec>, HookFileError> {
    let body = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut file = File { path, body, layer, folder, problems: Vec::new() };
    let mut hooks: Vec<HookSpec> = Vec::new();
    match DeTable::parse(body) {
        Ok(table) => {
            for (key, value) in table.get_ref() {
                match (key.get_ref().as_ref(), value.get_ref()) {
                    ("hooks", DeValue::Array(list)) if list.len() > MAX_HOOKS => {
                        file.wrong(key.span().start, format!("more than {MAX_HOOKS} hooks in one file"));
                    }
                    ("hooks", DeValue::Array(list)) => {
                        for entry in list {
                            if let Some(hook) = file.hook(entry, &hooks) {
                                hooks.push(hook);
                            }
                        }
                    }
                    ("hooks", _) => {
                        file.wrong(
                            value.span().start,
                            "`hooks` must be a list, written [[hooks]]".to_owned(),
                        );
                    }
                    (other, _) => {
                        let other = other.escape_debug();
                        file.wrong(
                            key.span().start,
                            format!("unknown key `{other}`; expected only [[hooks]]"),
                        );
                    }
                }
            }
        }
        Err(error) => {
            let message = visible_line(error.message().trim()).into_owned();
            file.wrong(error.span().map_or(0, |span| span.start), format!("{message}; invalid TOML"));
        }
    }
    if file.problems.is_empty() { Ok(hooks) } else { Err(HookFileError { problems: file.problems }) }
}

struct File<'a> {
    path: &'a Path,
    body: &'a str,
    layer: HookLayer,
    folder: Option<&'a Path>,
    problems: Vec<String>,
}

impl File<'_> {
    fn at(&self, offset: usize) -> String {
        let before = self.body.get(..offset).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        format!("{}:{line}", visible_line(&self.path.to_string_lossy()))
    }

    fn wrong(&mut self, offset: usize, what: impl fmt::Display) {
        let at = self.at(offset);
        self.problems.push(format!("{at}: {what}"));
    }

    fn hook(&mut self, entry: &Spanned<DeValue<'_>>, others: &[HookSpec]) -> Option<HookSpec> {
        let start = entry.span().start;
        let Some(table) = entry.get_ref().as_table() else {
            self.wrong(start, "a hook must be a table, written [[hooks]]");
            return None;
        };
        let before = self.problems.len();
        let (mut phase, mut tool, mut command, mut timeout, mut name) = (None, None, None, None, None);
        let (mut domains, mut plain_output) = (Vec::new(), false);
        for (key, value) in table {
            let at = value.span().start;
            let read = match key.get_ref().as_ref() {
                "phase" => read_phase(value.get_ref()).map(|read| phase = Some(read)),
                "tool" => read_tool(value.get_ref()).map(|read| tool = Some((read, at))),
                "command" => read_command(value.get_ref(), self.layer).map(|read| command = Some(read)),
                "timeout" => read_timeout(value.get_ref()).map(|read| timeout = Some(read)),
                "name" => read_name(value.get_ref()).map(|read| name = Some(read)),
                "domains" => read_domains(value.get_ref(), self.layer).map(|read| domains = read),
                "plain_output" => read_flag(value.get_ref()).map(|read| plain_output = read),
                other => Err(format!("unknown key `{}`; a hook has {KEYS}", other.escape_debug())),
            };
            if let Err(why) = read {
                self.wrong(at, why);
            }
        }
        if self.problems.len() > before {
            return None;
        }
        let Some(phase) = phase else {
            self.wrong(start, format!("this hook has no `phase`; it is one of {}", phases()));
            return None;
        };
        let Some(command) = command else {
            self.wrong(start, "this hook has no `command`; write command = [\"program\", \"argument\"]");
            return None;
        };
        let tool = match tool {
            Some((_, at)) if !matches!(phase, Phase::BeforeToolExecute | Phase::AfterToolExecute) => {
                self.wrong(
                    at,
                    format!(
                        "`tool` is for before_tool_execute and after_tool_execute, not {}",
                        phase_name(phase)
                    ),
                );
                return None;
            }
            tool => tool.map(|(tool, _)| tool),
        };
        let name = name.unwrap_or_else(|| {
            let place = others.iter().filter(|other| other.phase == phase).count() + 1;
            format!("{}-{}-{place}", self.layer.as_str(), phase_name(phase))
        });
        if others.iter().any(|other| other.name == name) {
            self.wrong(start, format!("duplicate hook `{name}`; give each a unique name"));
            return None;
        }
        Some(HookSpec {
            name,
            phase,
            tool,
            command,
            timeout: timeout.unwrap_or(DEFAULT_TIMEOUT),
            layer: self.layer,
            origin: self.at(start),
            folder: self.folder.map(Path::to_path_buf),
            domains,
            plain_output,
        })
    }
}

fn phases() -> String {
    PHASES.map(|(name, _)| name).join(", ")
}

fn read_phase(value: &DeValue<'_>) -> Result<Phase, String> {
    let word = value.as_str().unwrap_or_default();
    PHASES
        .iter()
        .find(|(name, _)| *name == word)
        .map(|(_, phase)| *phase)
        .ok_or_else(|| format!("`phase` must be one of {}", phases()))
}

fn read_flag(value: &DeValue<'_>) -> Result<bool, String> {
    match value {
        DeValue::Boolean(flag) => Ok(*flag),
        _ => Err("`plain_output` must be true or false".to_owned()),
    }
}

fn read_tool(value: &DeValue<'_>) -> Result<Pattern, String> {
    let text = value.as_str().ok_or("`tool` must be a pattern in quotes, such as \"Bash(git push *)\"")?;
    Pattern::parse(text).map_err(|error| format!("`tool`: {error}"))
}

fn read_command(value: &DeValue<'_>, layer: HookLayer) -> Result<Vec<String>, String> {
    let wanted = || {
        "`command` must be a list of strings such as [\"program\", \"argument\"]; for a shell line write \
         [\"sh\", \"-c\", \"…\"]"
            .to_owned()
    };
    let list = value.as_array().ok_or_else(wanted)?;
    let words = list
        .iter()
        .map(|word| word.get_ref().as_str().filter(|word| !word.contains('\0')).map(str::to_owned))
        .collect::<Option<Vec<_>>>()
        .ok_or_else(wanted)?;
    let program = words.first().filter(|program| !program.trim().is_empty()).ok_or_else(wanted)?;
    let is_relative = program.contains('/') && !program.starts_with('/') && !program.starts_with("~/");
    if is_relative && layer == HookLayer::User {
        return Err(format!(
            "`command`: `{}` would be a different program in each folder; write an absolute path, or one with \
             ~/",
            program.escape_debug()
        ));
    }
    Ok(words)
}

fn read_timeout(value: &DeValue<'_>) -> Result<Duration, String> {
    let wanted = || "`timeout` must be a time such as \"10s\", between 100ms and 10m".to_owned();
    let time = match value {
        DeValue::Integer(number) => number.to_string().parse().ok().map(Duration::from_secs),
        DeValue::String(text) => time(text),
        DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_)
        | DeValue::Array(_)
        | DeValue::Table(_) => None,
    };
    time.filter(|time| (MIN_TIMEOUT..=MAX_TIMEOUT).contains(time)).ok_or_else(wanted)
}

fn time(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    match unit.trim() {
        "ms" => Some(Duration::from_millis(number)),
        "" | "s" => Some(Duration::from_secs(number)),
        "m" => number.checked_mul(60).map(Duration::from_secs),
        _ => None,
    }
}

fn read_domains(value: &DeValue<'_>, layer: HookLayer) -> Result<Vec<DomainPattern>, String> {
    if layer == HookLayer::User {
        return Err("`domains` is for hooks of a project; yours run outside the sandbox".to_owned());
    }
    let wanted = || "`domains` must be a list of names such as [\"docs.example.org\"]".to_owned();
    let parse =
        |text: &str| text.parse().map_err(|why| format!("`domains`: `{}`: {why}", text.escape_debug()));
    let list = value.as_array().ok_or_else(wanted)?;
    list.iter().map(|entry| entry.get_ref().as_str().ok_or_else(wanted).and_then(parse)).collect()
}

fn read_name(value: &DeValue<'_>) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    value
        .as_str()
        .filter(|name| (1..=64).contains(&name.len()) && name.chars().all(is_plain))
        .map(str::to_owned)
        .ok_or_else(|| "`name` must be 1 to 64 letters, digits, `-`, `_` or `.`".to_owned())
}
