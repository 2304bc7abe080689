//! The files that a command line names: the files its outcome depends on, as far as its words show them.
//!
//! There is no shell grammar: quotes, spaces and separators are enough here. A missed word only means that
//! the user is not asked again about its file; what may run is decided elsewhere.

use std::path::{Path, PathBuf};

use super::paths::normal;
use aye_core::contract::tool::MAX_TOUCHED;
use aye_core::contract::workspace::Workspace;

/// Longer command lines are read up to here.
const MAX_BYTES: usize = 64 << 10;
/// More words than this are not looked up.
const MAX_WORDS: usize = 512;
/// Programs whose first argument that is not a flag is a script.
const INTERPRETERS: &[&str] = &[
    "bash", "sh", "zsh", "dash", "ksh", "fish", "source", ".", "python", "python3", "node", "ruby", "perl",
    "php", "lua", "deno", "bun", "awk", "sed", "make", "env", "sudo", "nohup", "time", "exec", "timeout",
];

/// One word of a command line.
#[derive(Debug, Default, PartialEq, Eq)]
struct Word {
    text: String,
    /// Nothing in it is expanded by a shell.
    is_literal: bool,
    /// Whether the word is in the position of a command's name.
    is_command: bool,
    /// Whether `>>` precedes the word: the content of the file is neither read nor lost.
    is_appended_to: bool,
}

/// The files that a command line names, scripts first: plain files in the workspace, and scripts that are not there
/// yet.
pub(super) fn files(workspace: &Workspace, command: &str) -> Vec<PathBuf> {
    let (mut scripts, mut others) = (Vec::new(), Vec::new());
    // The folders in which to look up the words: each `cd` adds one.
    let mut places = vec![workspace.cwd.clone()];
    let mut runs_script = false;
    let mut changes_dir = false;
    for word in words(command).into_iter().take(MAX_WORDS) {
        if word.is_command {
            changes_dir = word.text == "cd" || word.text == "pushd";
            let name = word.text.rsplit('/').next().unwrap_or_default();
            runs_script = word.is_literal && INTERPRETERS.contains(&name);
        } else if changes_dir {
            changes_dir = false;
            if word.is_literal
                && let Some(last) = places.last().filter(|_| places.len() < 8)
            {
                places.push(normal(&last.join(&word.text)));
            }
            continue;
        }
        if !word.is_literal || word.text.is_empty() || word.is_appended_to {
            continue;
        }
        let is_flag = word.text.starts_with('-');
        let is_script =
            (word.is_command && word.text.contains('/')) || (runs_script && !is_flag && !word.is_command);
        if is_script {
            runs_script = INTERPRETERS.contains(&word.text.as_str());
        }
        let text = match word.text.split_once('=') {
            // `--config=file` and `of=file`.
            Some((_, value)) if !word.is_command => value,
            Some(_) | None => word.text.as_str(),
        };
        let found = places.iter().map(|place| normal(&place.join(text)));
        let mut found =
            found.filter(|path| path.starts_with(&workspace.root) || path.starts_with(&workspace.cwd));
        let there = found.clone().find(|path| is_file_inside(workspace, path));
        let list = if is_script { &mut scripts } else { &mut others };
        match there {
            Some(path) => push(list, path),
            // A script that does not exist yet and would be started.
            None if is_script && text.contains(['/', '.']) => {
                if let Some(path) = found.next().filter(|path| path.symlink_metadata().is_err()) {
                    push(list, path);
                }
            }
            None => {}
        }
    }
    for path in others {
        push(&mut scripts, path);
    }
    scripts.truncate(MAX_TOUCHED);
    scripts
}

/// A plain file, and not by a link that leads out.
fn is_file_inside(workspace: &Workspace, path: &Path) -> bool {
    path.metadata().is_ok_and(|about| about.is_file())
        && path
            .canonicalize()
            .is_ok_and(|real| real.starts_with(&workspace.root) || real.starts_with(&workspace.cwd))
}

fn push(list: &mut Vec<PathBuf>, path: PathBuf) {
    if !list.contains(&path) {
        list.push(path);
    }
}

/// Takes a command line apart at blanks and operators.
fn words(command: &str) -> Vec<Word> {
    let mut command = command;
    if command.len() > MAX_BYTES {
        command = &command[..command.floor_char_boundary(MAX_BYTES)];
    }
    let mut words: Vec<Word> = Vec::new();
    let mut word: Option<Word> = None;
    let mut starts = true;
    let mut appends = false;
    let mut chars = command.chars().peekable();
    let fresh = || Word { is_literal: true, ..Word::default() };
    loop {
        let c = chars.next();
        let is_end = c.is_none_or(|c| c.is_whitespace() || ";|&()<>{}".contains(c));
        if is_end {
            if let Some(mut done) = word.take() {
                let is_assignment = starts
                    && done.text.split_once('=').is_some_and(|(name, _)| {
                        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
                    });
                done.is_appended_to = std::mem::take(&mut appends);
                if !is_assignment {
                    done.is_command = std::mem::take(&mut starts);
                }
                words.push(done);
            }
            match c {
                None => return words,
                Some('\n' | ';' | '|' | '&' | '(' | ')' | '{' | '}') => starts = true,
                Some('>') if chars.next_if_eq(&'>').is_some() => appends = true,
                Some(_) => {}
            }
            continue;
        }
        let here = word.get_or_insert_with(fresh);
        match c {
            Some('\'') => {
                for c in chars.by_ref().take_while(|c| *c != '\'') {
                    here.text.push(c);
                }
            }
            Some('"') => {
                while let Some(c) = chars.next().filter(|c| *c != '"') {
                    match c {
                        '\\' => here.text.extend(chars.next()),
                        '$' | '`' => here.is_literal = false,
                        c => here.text.push(c),
                    }
                }
            }
            Some('\\') => match chars.next() {
                Some('\n') | None => {}
                Some(c) => here.text.push(c),
            },
            Some('$' | '`' | '*' | '?' | '[') => here.is_literal = false,
            Some('#') if here.text.is_empty() => {
                // A comment, to the end of the line.
                word = None;
                while chars.next_if(|c| *c != '\n').is_some() {}
            }
            Some(c) => here.text.push(c),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Sandbox;

    fn found(sandbox: &Sandbox, command: &str) -> Vec<String> {
        files(&sandbox.workspace, command)
            .iter()
            .map(|path| path.strip_prefix(sandbox.path("")).expect("inside").to_string_lossy().into_owned())
            .collect()
    }

    #[test]
    fn file_arguments_of_a_command_are_found() {
        let sandbox = Sandbox::new();
        for name in ["run.sh", "a.txt", "b c.txt", "sub/tool.py", "sub/in.txt", "log.txt"] {
            sandbox.write(name, "x");
        }
        for (command, files) in [
            ("./run.sh --fast a.txt", &["run.sh", "a.txt"][..]),
            ("cat a.txt; bash run.sh", &["run.sh", "a.txt"]),
            ("cat 'b c.txt' \"a.txt\" b\\ c.txt", &["b c.txt", "a.txt"]),
            ("cat < a.txt > log.txt", &["a.txt", "log.txt"]),
            ("echo x >> log.txt", &[]),
            ("cat $HOME/a.txt *.txt `ls a.txt`", &[]),
            ("cd sub && python3 -u tool.py in.txt", &["sub/tool.py", "sub/in.txt"]),
            ("X=1 ./run.sh", &["run.sh"]),
            ("tool --config=a.txt", &["a.txt"]),
            ("cat ../a.txt /etc/passwd", &[]),
            ("cat sub # run.sh", &[]),
            ("sh new.sh; ./later; sudo bash run.sh", &["new.sh", "later", "run.sh"]),
            ("echo new.txt", &[]),
            ("(cat a.txt)|wc", &["a.txt"]),
        ] {
            assert_eq!(found(&sandbox, command), files, "{command}");
        }
    }

    #[test]
    fn an_odd_command_is_parsed_without_harm() {
        let sandbox = Sandbox::new();
        for command in ["'", "\"", "\\", "$(", "a\0b", "echo \"$", &"x ".repeat(100_000), ">", "é>>ü", "#"]
        {
            let _ = found(&sandbox, command);
        }
        let many: Vec<String> = (0..100).map(|n| format!("f{n}")).collect();
        for name in &many {
            sandbox.write(name, "x");
        }
        sandbox.write("z.sh", "x");
        let all = found(&sandbox, &format!("cat {}; ./z.sh", many.join(" ")));
        assert_eq!(all.len(), MAX_TOUCHED);
        assert_eq!(all[0], "z.sh", "what is started goes first");
    }
}
