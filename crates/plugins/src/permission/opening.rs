//! The accesses that the sandbox refused to a command, and the narrowest grant that would allow them.
//!
//! A grant that opens the sandbox, but lets nothing run on its own, is a pattern for a tool that nobody
//! calls: `Sandbox(writable = "/srv/builds")`.

use super::evaluate::{CallRequest, SHELL_TOOL};
use aye_core::contract::address::DomainPattern;
use aye_core::contract::display::visible_line;
use aye_core::contract::judgement::SandboxOpening;
use aye_core::contract::question::GrantProposal;
use aye_core::state::{KeyScope, MergeStrategy, StateKey};
use aye_pattern::shell::{analyse, only_reads, quote};
use aye_pattern::{Args, Matcher, Pattern};
use aye_sandbox::SandboxRefusal;
use serde_json::Value;
use std::path::{Component, Path, PathBuf};

/// The tool of patterns that open the sandbox.
const TOOL: &str = "Sandbox";

/// Refusals that a conversation remembers.
const MAX_REMEMBERED: usize = 20;

/// The commands of the conversation that the sandbox refused something, latest last.
pub(super) struct Refusals;

impl StateKey for Refusals {
    const KEY: &'static str = "permission.refusals";
    const MERGE: MergeStrategy = MergeStrategy::Commutative;
    const SCOPE: KeyScope = KeyScope::Thread;
    type Value = Vec<(String, Vec<SandboxRefusal>)>;
    type Update = (String, Vec<SandboxRefusal>);

    fn apply(value: &mut Self::Value, update: Self::Update) {
        value.retain(|(command, _)| *command != update.0);
        value.push(update);
        value.drain(..value.len().saturating_sub(MAX_REMEMBERED));
    }
}

/// Returns what this command was refused or, if the command has changed in the meantime, what the last one of
/// its program was refused.
pub(super) fn refusals_of<'a>(
    refusals: &'a [(String, Vec<SandboxRefusal>)],
    command: &str,
) -> &'a [SandboxRefusal] {
    let program = |command: &str| Some(analyse(command).commands.first()?.program()?.to_owned());
    let exact = refusals.iter().rev().find(|(known, _)| known == command);
    let wanted = program(command);
    let similar = || refusals.iter().rev().find(|(known, _)| wanted.is_some() && program(known) == wanted);
    exact.or_else(similar).map(|(_, refused)| refused.as_slice()).unwrap_or_default()
}

/// Describes what was refused, for a user; returns nothing if nothing was.
pub(super) fn summary_of(refused: &[SandboxRefusal]) -> Option<String> {
    let words = refused.iter().map(|refusal| match refusal {
        SandboxRefusal::Domain(name) => format!("the domain {}", visible_line(name)),
        SandboxRefusal::Path(path) => visible_line(&path.to_string_lossy()).into_owned(),
        SandboxRefusal::Other(sentence) => format!("“{}”", visible_line(sentence)),
    });
    let words = words.collect::<Vec<_>>().join(", ");
    (!words.is_empty()).then(|| format!("the sandbox refused {words}"))
}

/// Returns whether the model requests to run this call outside the sandbox.
pub(super) fn wants_out(question: &CallRequest<'_>) -> bool {
    question.tool == SHELL_TOOL && question.args.get("outside") == Some(&Value::Bool(true))
}

/// Something that a grant adds to the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SandboxGrant {
    /// Commands in the sandbox can change what is in this folder.
    Writable(PathBuf),
    /// Commands in the sandbox can reach this domain.
    Domain(DomainPattern),
}

impl SandboxGrant {
    /// The one that a pattern means.
    pub fn of(pattern: &str) -> Option<SandboxGrant> {
        let pattern = Pattern::parse(pattern).ok().filter(|pattern| pattern.exact_tool() == Some(TOOL))?;
        let Args::All(conditions) = pattern.args() else { return None };
        let [condition] = conditions.as_slice() else { return None };
        let Matcher::Exact(text) = &condition.matcher else { return None };
        match condition.path.single_key().filter(|_| !condition.negated) {
            Some("writable") => Some(SandboxGrant::Writable(PathBuf::from(text))),
            Some("domain") => text.parse().ok().map(SandboxGrant::Domain),
            _ => None,
        }
    }

    pub fn pattern(&self) -> Pattern {
        match self {
            SandboxGrant::Writable(folder) => Pattern::literal(TOOL, "writable", &folder.to_string_lossy()),
            SandboxGrant::Domain(domain) => Pattern::literal(TOOL, "domain", &domain.to_string()),
        }
    }

    /// Checks that it can be given, and opens nothing but a folder of the user's own.
    ///
    /// # Errors
    /// Why the folder is not opened.
    pub fn check(&self, home: Option<&Path>) -> Result<(), FolderRefusal> {
        match self {
            SandboxGrant::Writable(folder) => check_folder(folder, home),
            // A domain was checked when it was parsed.
            SandboxGrant::Domain(_) => Ok(()),
        }
    }

    /// Adds what it opens.
    pub(super) fn add_to(self, opened: &mut SandboxOpening) {
        match self {
            SandboxGrant::Writable(folder) => opened.writable.push(folder),
            SandboxGrant::Domain(domain) => opened.domains.push(domain.to_string()),
        }
    }

    fn words(&self) -> String {
        match self {
            SandboxGrant::Writable(folder) => {
                let shown = quote(&visible_line(&folder.to_string_lossy()));
                format!("sandboxed commands can change files in {shown}")
            }
            SandboxGrant::Domain(domain) => format!("sandboxed commands can reach {domain}"),
        }
    }
}

/// Why a folder is not opened for what runs in the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} {fault}", visible_line(&folder.to_string_lossy()))]
pub struct FolderRefusal {
    pub folder: PathBuf,
    /// The problem with the folder.
    pub fault: FolderFault,
}

/// A problem with a folder that is to be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FolderFault {
    /// Its meaning depends on the current folder.
    #[error("is not an absolute path")]
    NotAbsolute,
    /// The folder does not exist.
    #[error("does not exist")]
    Missing,
    /// It is a file, or elsewhere.
    #[error("is not a folder, or a link leads there")]
    NotAFolder,
    /// It contains more than a user means.
    #[error("is too broad; name a folder below it, or use sandbox.writable")]
    TooBroad,
}

fn check_folder(folder: &Path, home: Option<&Path>) -> Result<(), FolderRefusal> {
    const SYSTEM: &[&str] = &[
        "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/nix", "/proc", "/run",
        "/sbin", "/sys", "/usr", "/var", "/root",
    ];
    let refuse = |fault| Err(FolderRefusal { folder: folder.to_path_buf(), fault });
    if !folder.is_absolute() || folder.components().any(|part| part == Component::ParentDir) {
        return refuse(FolderFault::NotAbsolute);
    }
    let Ok(real) = folder.canonicalize() else { return refuse(FolderFault::Missing) };
    if real != folder || !real.is_dir() {
        return refuse(FolderFault::NotAFolder);
    }
    let refused = refuse(FolderFault::TooBroad);
    if let Some(rest) = home.and_then(|home| real.strip_prefix(home).ok()) {
        // Hidden folders of the home folder have the settings of programs, which run what they say.
        let first = rest.components().next().map(|part| part.as_os_str().to_string_lossy().into_owned());
        return if first.is_some_and(|first| !first.starts_with('.')) { Ok(()) } else { refused };
    }
    let is_system = SYSTEM.iter().any(|system| real.starts_with(system));
    let is_above_home = home.is_some_and(|home| home.starts_with(&real));
    if is_system || is_above_home || real.components().count() < 3 { refused } else { Ok(()) }
}

/// The grants that would let this command do what it was refused, narrowest first.
pub(super) fn proposals(question: &CallRequest<'_>, refused: &[SandboxRefusal]) -> Vec<GrantProposal> {
    let command = question.args.get("command").and_then(Value::as_str).unwrap_or_default();
    let only_reads_here =
        analyse(command).commands.iter().all(|command| command.program().is_some_and(only_reads));
    let grants = refused.iter().filter_map(|refusal| match refusal {
        // A command that only reads there needs no right to write.
        SandboxRefusal::Path(path) if !only_reads_here => {
            let folder = path.ancestors().find(|above| above.is_dir())?.canonicalize().ok()?;
            Some(SandboxGrant::Writable(folder)).filter(|_| !path.starts_with(question.workspace))
        }
        SandboxRefusal::Domain(name) => name.parse().ok().map(SandboxGrant::Domain),
        SandboxRefusal::Path(_) | SandboxRefusal::Other(_) => None,
    });
    grants
        .filter(|grant| grant.check(question.home).is_ok())
        .map(|grant| GrantProposal { pattern: grant.pattern().to_string(), text: grant.words() })
        .collect()
}
