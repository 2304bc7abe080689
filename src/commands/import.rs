//! `aye import`: takes over rules, servers, hooks and commands of other agents.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum as _};

use crate::config::write_private;
use crate::contract::amount::counted;
use crate::contract::diff::unified;
use crate::contract::display::{visible, visible_line};
use crate::failure::Failure;
use crate::import::{ForeignAgent, Import, ImportScope, ImportedFile, Left, SourceFolder, changes};
use crate::program::foundation::Foundation;
use crate::program::{ask, put, put_stderr, write_shared};

/// `aye import`
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  aye import\n  aye import claude --project")]
pub struct ImportArgs {
    /// The agent; without it, all that have something here
    #[arg(value_enum, value_name = "AGENT")]
    pub origin: Option<ForeignAgent>,
    /// Only your own settings, from your home folder
    #[arg(long, conflicts_with = "project")]
    pub user: bool,
    /// Only those of this project
    #[arg(long)]
    pub project: bool,
    /// Write without asking
    #[arg(short, long)]
    pub yes: bool,
}

pub(crate) fn run(args: &ImportArgs, foundation: &Foundation) -> Result<u8, Failure> {
    let origins = args.origin.map_or_else(|| ForeignAgent::value_variants().to_vec(), |origin| vec![origin]);
    let (home, root) = (foundation.env.home(), foundation.workspace.root.as_path());
    let mut places = Vec::new();
    if !args.project {
        places.extend(home.map(|home| (ImportScope::User, home, foundation.paths.config_dir.as_path())));
    }
    // In the home folder there are no settings but the user's.
    if !args.user && home != Some(root) {
        places.push((ImportScope::Project, root, root));
    }
    let (mut out, mut all, mut unreadable) = (String::new(), Vec::new(), Vec::new());
    for (scope, folder, own) in places {
        let mut together = Import::default();
        for origin in &origins {
            let import = origin.read(&SourceFolder { scope, folder });
            if !import.is_empty() {
                describe(&mut out, *origin, scope, &import);
                unreadable.extend(import.unreadable.iter().map(|path| folder.join(path)));
                together.add(import);
            }
        }
        let (changes, left) = changes(&together, scope, own).map_err(Failure::failed)?;
        list_left(&mut out, &left);
        all.extend(changes.into_iter().map(|change| (scope, change)));
    }
    for (_, change) in &all {
        show(&mut out, change, foundation);
    }
    if all.is_empty() {
        out.push_str(if out.is_empty() {
            "nothing of another agent is here\n"
        } else {
            "\nnothing new to write\n"
        });
        put(&out)?;
        return Ok(status(&unreadable, foundation));
    }
    put(&out)?;
    if !args.yes && !is_agreed(all.len())? {
        return Ok(1);
    }
    for (scope, change) in &all {
        write(*scope, change, root)?;
    }
    put("written\n")?;
    if all.iter().any(|(scope, _)| *scope == ImportScope::Project) {
        put("The next start asks whether you trust what changed in this project.\n")?;
    }
    Ok(status(&unreadable, foundation))
}

/// Returns the exit status: a file that cannot be read may have held a deny.
fn status(unreadable: &[PathBuf], foundation: &Foundation) -> u8 {
    for path in unreadable {
        let path = foundation.paths.display(path);
        put_stderr(&format!("{} cannot be read; nothing of it was taken over", visible_line(&path)));
    }
    u8::from(!unreadable.is_empty())
}

fn describe(out: &mut String, origin: ForeignAgent, scope: ImportScope, import: &Import) {
    let whose = if scope == ImportScope::User { "your settings" } else { "this project" };
    let gap = if out.is_empty() { "" } else { "\n" };
    let _ = writeln!(out, "{gap}{}, {whose}", origin.name());
    let counts = [
        (import.rules.len(), "rule"),
        (import.servers.len(), "MCP server"),
        (import.hooks.len(), "hook"),
        (import.files.len(), "file"),
    ];
    let some = counts.iter().filter(|(count, _)| *count > 0);
    let some: Vec<String> = some.map(|(count, what)| counted(*count, what)).collect();
    if !some.is_empty() {
        let _ = writeln!(out, "  found: {}", some.join(", "));
    }
    if !import.in_place.is_empty() {
        let _ = writeln!(out, "  read where it is: {}", import.in_place.join(", "));
    }
    list_left(out, &import.left);
}

fn list_left(out: &mut String, left: &[Left]) {
    for Left { what, why, from } in left {
        let [what, why, from] = [what, why, from].map(|text| visible_line(text).into_owned());
        let _ = writeln!(out, "  not taken: {what}: {why} ({from})");
    }
}

fn show(out: &mut String, change: &ImportedFile, foundation: &Foundation) {
    let _ = writeln!(out, "\n{}", visible_line(&foundation.paths.display(&change.path)));
    let diff = unified(&change.before, &change.after, None, 1);
    let lines = diff.lines().filter(|line| !line.starts_with("@@"));
    lines.for_each(|line| {
        let _ = writeln!(out, "{}", visible(line));
    });
}

fn is_agreed(files: usize) -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        put_stderr("nothing was written: stdin is not a terminal; --yes writes without asking");
        return Ok(false);
    }
    let files = if files == 1 { "this file".to_owned() } else { format!("these {files} files") };
    let is_agreed = ask(&format!("\nWrite {files}? [y/N] "))?;
    if !is_agreed {
        put_stderr("nothing was written");
    }
    Ok(is_agreed)
}

/// Writes a file whole. One of the project must lie in the project, and everybody who can read that can read it.
fn write(scope: ImportScope, change: &ImportedFile, root: &Path) -> Result<(), Failure> {
    if scope == ImportScope::User {
        return write_private(&change.path, change.after.as_bytes()).map_err(Failure::failed);
    }
    let folder = change.path.parent().unwrap_or(root);
    // Nothing is created where a link leads either.
    let there = folder.ancestors().find_map(|folder| folder.canonicalize().ok());
    let root = root.canonicalize().map_err(Failure::failed)?;
    if !there.is_some_and(|there| there.starts_with(root)) || change.path.is_symlink() {
        return Err(Failure::failed(format!(
            "{} is a link; nothing was written there",
            change.path.display()
        )));
    }
    std::fs::create_dir_all(folder)
        .map_err(|error| Failure::failed(format!("{} cannot be made: {error}", folder.display())))?;
    write_shared(&change.path, &change.after)
}
