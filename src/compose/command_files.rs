//! Commands in files: `commands/NAME.md` of the project and the user, in the form that other agents use too. A command is
//! a prompt with places for arguments; it grants nothing, and nothing in it is executed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::config::read_resolved;
use crate::contract::display::visible_line;
use crate::contract::path_policy::PathPolicies as _;
use crate::contract::spec::AgentSpec;
use crate::program::app_context::AppContext;
use crate::program::links::may_follow;
use crate::program::parts::AGENT;

/// The maximum size of a command's file.
const MAX_FILE: u64 = 64 * 1024;
/// The maximum number of commands in a folder, and of entries that are looked at.
const MAX_COMMANDS: usize = 200;

/// A command in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandFile {
    /// Its name: that of the file, after those of its folders and a colon.
    pub(crate) name: String,
    /// Its description, or the start of its text.
    pub(crate) description: String,
    /// A hint for its arguments.
    pub(crate) hint: Option<String>,
    pub(crate) origin: &'static str,
    text: String,
}

/// Returns all commands in the order of precedence: the project's from the working directory upwards, in a trusted
/// folder, then the user's, then those of plugins. The first of a name counts.
pub(crate) fn all(app: &AppContext) -> Vec<CommandFile> {
    let foundation = &app.foundation;
    let workspace = &foundation.workspace;
    let rules = app.permission.policy(&AgentSpec::new(AGENT));
    let of_project = |path: &Path, real: &Path| {
        real.starts_with(&workspace.root) && (path == real || may_follow(rules.as_ref(), real))
    };
    let mut found = Vec::new();
    if foundation.is_trusted {
        for folder in workspace.cwd.ancestors().take_while(|folder| folder.starts_with(&workspace.root)) {
            for owner in [".aye", ".claude", ".agents"] {
                let dir = folder.join(owner).join("commands");
                read_dir(&dir, "", "project", &of_project, &mut found);
            }
        }
    }
    let home = foundation.env.home();
    let homes = [".claude", ".agents"].iter().filter_map(|owner| Some(home?.join(owner)));
    for folder in std::iter::once(foundation.paths.config_dir.clone()).chain(homes) {
        read_dir(&folder.join("commands"), "", "user", &|_, _| true, &mut found);
    }
    for plugin in &foundation.plugins {
        for dir in &plugin.commands {
            let prefix = format!("{}:", plugin.name);
            let is_inside = |_: &Path, real: &Path| real.starts_with(&plugin.dir);
            read_dir(dir, &prefix, "plugin", &is_inside, &mut found);
        }
    }
    let mut names = BTreeSet::new();
    found.retain(|command| names.insert(command.name.clone()));
    found
}

/// Returns the prompt that a line `/name arguments` stands for; `None` if no command has that name.
pub(crate) fn prompt(app: &AppContext, line: &str) -> Option<String> {
    let named = line.strip_prefix('/')?;
    let (name, arguments) = named.split_once(char::is_whitespace).unwrap_or((named, ""));
    if !is_name(name) {
        return None;
    }
    let command = all(app).into_iter().find(|command| command.name == name)?;
    Some(filled(&command.text, arguments.trim()))
}

/// Whether a word after a slash can be a command: a path such as `/usr/bin` is not.
pub(crate) fn is_name(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | ':'))
}

/// Reads the commands of a folder; their names start with the prefix. `counts` says of a path, and of where it leads, whether it is one.
fn read_dir(
    dir: &Path,
    prefix: &str,
    origin: &'static str,
    counts: &dyn Fn(&Path, &Path) -> bool,
    found: &mut Vec<CommandFile>,
) {
    let mut folders = vec![(dir.to_path_buf(), prefix.to_owned())];
    let mut visited = 0;
    while let Some((folder, prefix)) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            visited += 1;
            let Some(stem) = path.file_stem().and_then(|stem| stem.to_str()).filter(|stem| is_name(stem))
            else {
                continue;
            };
            let Ok(real) = path.canonicalize() else { continue };
            if visited > MAX_COMMANDS || !counts(&path, &real) {
                continue;
            }
            let name = format!("{prefix}{stem}");
            // Folders one below another are names with more than one colon; links may lead back up.
            if real.is_dir() && prefix.matches(':').count() < 3 {
                folders.push((path, format!("{name}:")));
            } else if path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("md"))
                && let Ok(Some(text)) = read_resolved(&real, MAX_FILE)
            {
                found.push(parsed(name, origin, &text));
            }
        }
    }
}

/// Takes the front matter off. Only its words for a list are used: a command's file grants no tools.
fn parsed(name: String, origin: &'static str, text: &str) -> CommandFile {
    let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
    let front = text.strip_prefix("---\n").and_then(|rest| rest.split_once("\n---"));
    let (front, body) = match front {
        Some((front, body)) => (front, body.split_once('\n').map_or("", |(_, body)| body)),
        None => ("", text.as_str()),
    };
    let value = |key: &str| {
        let line = front.lines().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix(':'));
        let text = line?.trim().trim_matches(['"', '\'']);
        (!text.is_empty()).then(|| visible_line(text).into_owned())
    };
    let first = || visible_line(body.trim_start().lines().next().unwrap_or_default()).into_owned();
    CommandFile {
        name,
        description: value("description").unwrap_or_else(first),
        hint: value("argument-hint"),
        origin,
        text: body.trim().to_owned(),
    }
}

/// Inserts the arguments: `$ARGUMENTS` is all of them, `$1` the first one as a shell would split them. Without a place
/// for them, they follow the text.
fn filled(text: &str, arguments: &str) -> String {
    const ALL: &str = "ARGUMENTS";
    let words =
        shlex::split(arguments).unwrap_or_else(|| arguments.split_whitespace().map(str::to_owned).collect());
    let (mut out, mut rest, mut is_placed) = (String::new(), text, false);
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        if let Some(after) = after.strip_prefix(ALL) {
            out.push_str(arguments);
            (rest, is_placed) = (after, true);
        } else if let Ok(number @ 1..=9) = after[..digits].parse::<usize>() {
            out.push_str(words.get(number - 1).map_or("", String::as_str));
            (rest, is_placed) = (&after[digits..], true);
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    if !is_placed && !arguments.is_empty() {
        out = format!("{}\n\nARGUMENTS: {arguments}", out.trim_end());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_have_places_or_follow() {
        for (text, arguments, prompt) in [
            ("Fix $ARGUMENTS now", "12 and 13", "Fix 12 and 13 now"),
            ("$1 to $2, $3.", "'a b' c", "a b to c, ."),
            ("It costs $5 and $10 and ${x}", "", "It costs  and $10 and ${x}"),
            ("Fix it", "12", "Fix it\n\nARGUMENTS: 12"),
            ("Say $ARGUMENTS", "$1 $ARGUMENTS", "Say $1 $ARGUMENTS"),
        ] {
            assert_eq!(filled(text, arguments), prompt);
        }
    }

    #[test]
    fn front_matter_is_for_lists_only() {
        let text = "---\r\ndescription: \"Fixes it\"\r\nargument-hint: [issue]\r\nallowed-tools: Bash\r\n---\r\nFix $1\r\n";
        let command = parsed("fix".into(), "user", text);
        assert_eq!((command.description.as_str(), command.text.as_str()), ("Fixes it", "Fix $1"));
        assert_eq!(command.hint.as_deref(), Some("[issue]"));
        let plain = parsed("fix".into(), "user", "\nFix it\nand test");
        assert_eq!((plain.description.as_str(), plain.text.as_str()), ("Fix it", "Fix it\nand test"));
    }

    #[test]
    fn commands_in_folders_have_a_prefix_and_stay_in_the_project() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path().canonicalize().expect("a path");
        let commands = root.join("repo/.claude/commands");
        fs::create_dir_all(commands.join("web")).expect("folders");
        fs::write(commands.join("fix.md"), "Fix").expect("written");
        fs::write(commands.join("web/build.md"), "Build").expect("written");
        fs::write(commands.join("notes.txt"), "x").expect("written");
        fs::write(root.join("secret.md"), "secret").expect("written");
        std::os::unix::fs::symlink(root.join("secret.md"), commands.join("evil.md")).expect("a link");
        std::os::unix::fs::symlink(&commands, commands.join("loop")).expect("a link");
        let names = |counts: &dyn Fn(&Path, &Path) -> bool| {
            let mut found = Vec::new();
            read_dir(&commands, "", "project", counts, &mut found);
            let names = found.into_iter().map(|command| command.name);
            names.filter(|name| !name.starts_with("loop")).collect::<Vec<_>>()
        };
        let repo = root.join("repo");
        assert_eq!(names(&|_, real| real.starts_with(&repo)), ["fix", "web:build"]);
        assert_eq!(names(&|path, real| path == real), ["fix", "web:build"]);
        assert_eq!(names(&|_, _| true), ["evil", "fix", "web:build"]);
    }
}
