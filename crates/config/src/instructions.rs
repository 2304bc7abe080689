//! `AGENTS.md`: the instructions of the user and the project for every agent.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::paths::{ReadTextError, read_resolved};
use aye_core::contract::display::visible_line;
use aye_files::foreign::is_foreign;

/// Bytes of all instructions together.
pub const MAX_INSTRUCTIONS: usize = 32 * 1024;
/// A file that is larger than this is not even opened.
const MAX_FILE: u64 = 4 << 20;
/// The names of instruction files; in each folder, the first one that exists is used.
const NAMES: [&str; 4] = ["AGENTS.override.md", "AGENTS.md", "CLAUDE.md", ".claude/CLAUDE.md"];
/// How deep imported files may import others.
const MAX_DEPTH: usize = 5;
/// The maximum number of files that one file imports, with those that they import.
const MAX_IMPORTS: usize = 32;

/// The text of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstructionFile {
    pub path: PathBuf,
    /// The file's text, or its start with a note.
    pub text: String,
    /// Whether the text was truncated.
    pub is_cut: bool,
}

/// All instructions for a working directory, the most general first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Instructions {
    /// The files in the order in which the model reads them.
    pub files: Vec<InstructionFile>,
    /// The read errors, one line each.
    pub warnings: Vec<String>,
}

impl Instructions {
    /// Returns the text for the system prompt; empty if there are no instructions.
    pub fn prompt(&self) -> String {
        let section = |file: &InstructionFile| {
            let path = file.path.to_string_lossy();
            format!("Instructions from {}:\n{}\n", visible_line(&path), file.text.trim_end())
        };
        self.files.iter().map(section).collect::<Vec<_>>().join("\n")
    }

    /// Returns the text for the status line, or `None` if there are no instructions.
    pub fn status(&self) -> Option<String> {
        let name =
            |file: &InstructionFile| file.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let first = self.files.first()?;
        let is_cut = self.files.iter().any(|file| file.is_cut);
        let cut = if is_cut { format!(", cut at {} KiB", MAX_INSTRUCTIONS / 1024) } else { String::new() };
        Some(match self.files.len() {
            1 => format!("{}{cut}", visible_line(&name(first))),
            count => format!("{count} instruction files{cut}"),
        })
    }
}

/// Returns the repository's root: the nearest folder upwards that contains a `.git`, or the folder itself if
/// none does.
pub fn repository_root(cwd: &Path) -> PathBuf {
    let has_git = |folder: &&Path| folder.join(".git").symlink_metadata().is_ok();
    cwd.ancestors().find(has_git).unwrap_or(cwd).to_path_buf()
}

/// Where instructions are read, and what may be read there.
pub struct InstructionPlaces<'a> {
    /// The folder of the user's settings.
    pub config_dir: &'a Path,
    /// The user's home folder.
    pub home: Option<&'a Path>,
    /// The repository's root.
    pub root: &'a Path,
    pub cwd: &'a Path,
    /// Says of a file to which a link of the project or an import leads whether no rule keeps it from being read.
    pub may_follow: &'a dyn Fn(&Path) -> bool,
}

impl InstructionPlaces<'_> {
    /// Reads the user's file and then one per folder from the repository's root down to the working directory, each with
    /// what it imports.
    ///
    /// Links are followed only inside the repository, so that a clone cannot have a file of the user's sent to a model.
    pub fn load(&self) -> Instructions {
        let mut reading = InstructionReader::new(self, MAX_INSTRUCTIONS, &|_| false);
        let claude = self.home.map(|home| home.join(".claude"));
        // As in every folder, the first that exists is used.
        let own = [Some(self.config_dir), claude.as_deref()];
        if let Some(file) = own.into_iter().flatten().find_map(|folder| reading.first_file(folder, None)) {
            reading.add(file, true);
        }
        let mut folders: Vec<&Path> =
            self.cwd.ancestors().take_while(|folder| folder.starts_with(self.root)).collect();
        folders.reverse();
        for folder in folders {
            if folder != self.config_dir
                && let Some(file) = reading.first_file(folder, Some(self.root))
            {
                reading.add(file, false);
            }
        }
        reading.found
    }

    /// Reads the instructions of the folders between the working directory and a file below it, the outermost first, at
    /// most `room` bytes of them. Files that `is_known` are left out, and so are hidden folders, folders of dependencies and
    /// other repositories, with everything below them.
    pub fn load_below(&self, file: &Path, room: usize, is_known: &dyn Fn(&Path) -> bool) -> Instructions {
        let mut reading = InstructionReader::new(self, room, is_known);
        let folder = file.parent().and_then(|folder| folder.canonicalize().ok());
        let below = folder.as_deref().and_then(|folder| folder.strip_prefix(self.cwd).ok());
        let mut folder = self.cwd.to_path_buf();
        for name in below.into_iter().flat_map(Path::components) {
            folder.push(name);
            let name = name.as_os_str().to_string_lossy();
            if is_foreign(&name) || folder.join(".git").symlink_metadata().is_ok() {
                break;
            }
            if NAMES.iter().any(|name| is_known(&folder.join(name))) {
                continue;
            }
            if let Some(file) = reading.first_file(&folder, Some(self.root)) {
                reading.add(file, false);
            }
        }
        reading.found
    }
}

/// Instructions that are being read.
struct InstructionReader<'a> {
    places: &'a InstructionPlaces<'a>,
    room: usize,
    is_known: &'a dyn Fn(&Path) -> bool,
    /// Files that were read, links resolved: each is read once.
    seen: BTreeSet<PathBuf>,
    imports: usize,
    found: Instructions,
}

impl<'a> InstructionReader<'a> {
    fn new(places: &'a InstructionPlaces<'a>, room: usize, is_known: &'a dyn Fn(&Path) -> bool) -> Self {
        let (seen, found) = (BTreeSet::new(), Instructions::default());
        Self { places, room, is_known, seen, imports: 0, found }
    }

    fn warn(&mut self, path: &Path, what: &str) {
        self.found.warnings.push(format!("{}: {what}", visible_line(&path.to_string_lossy())));
    }

    fn first_file(&mut self, folder: &Path, boundary: Option<&Path>) -> Option<(PathBuf, String)> {
        first_file(folder, boundary, self.places.may_follow, &mut self.found.warnings)
    }

    fn add(&mut self, (path, text): (PathBuf, String), is_users: bool) {
        // In the home folder, the user's file is found twice.
        if path.canonicalize().is_ok_and(|real| !self.seen.insert(real)) {
            return;
        }
        self.imports = 0;
        add(&mut self.found, &mut self.room, (path.clone(), text.clone()));
        self.import(&path, &text, is_users, 1);
    }

    /// Adds the files that a text imports, each followed by what it imports itself.
    fn import(&mut self, importing: &Path, text: &str, is_users: bool, depth: usize) {
        for token in imports(text) {
            let Some(real) = self.target(importing, token) else { continue };
            if self.seen.contains(&real) || (self.is_known)(&real) {
                continue;
            }
            if depth > MAX_DEPTH || self.imports >= MAX_IMPORTS {
                let what =
                    format!("imports {} too deep or after too many others; not read", visible_line(token));
                self.warn(importing, &what);
                return;
            }
            self.seen.insert(real.clone());
            self.imports += 1;
            let why_not = if !self.may_import(&real, is_users) {
                Some("which is neither in the project nor Markdown in a folder of yours; not read".to_owned())
            } else if !(self.places.may_follow)(&real) {
                Some("which permission rules deny or ask about; not read".to_owned())
            } else {
                None
            };
            let read = match why_not {
                Some(why) => Err(why),
                None => read_resolved(&real, MAX_FILE).map_err(|error| format!("which {error}")),
            };
            match read {
                Ok(Some(text)) => {
                    add(&mut self.found, &mut self.room, (real.clone(), text.clone()));
                    self.import(&real, &text, is_users, depth + 1);
                }
                Ok(None) => {}
                Err(why) => self.warn(importing, &format!("imports {}, {why}", visible_line(token))),
            }
        }
    }

    /// Returns the file that `@token` names, links resolved. What is no file is a mention of something else.
    fn target(&self, importing: &Path, token: &str) -> Option<PathBuf> {
        let file = |token: &str| {
            let path = match token.strip_prefix("~/") {
                Some(rest) => self.places.home?.join(rest),
                None => importing.parent()?.join(token),
            };
            path.canonicalize().ok().filter(|path| path.is_file())
        };
        file(token).or_else(|| file(token.trim_end_matches(['.', ',', ';', ':', '!', '?', ')'])))
    }

    /// Whether a file may be imported. What a repository says reaches nothing but the repository and the instructions that
    /// the user wrote for all agents.
    fn may_import(&self, real: &Path, is_users: bool) -> bool {
        let InstructionPlaces { config_dir, home, root, .. } = self.places;
        let is_in = |folder: &Path| folder.canonicalize().is_ok_and(|folder| real.starts_with(folder));
        let is_markdown = real.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("md"));
        let is_of_user = || {
            is_in(config_dir)
                || home.is_some_and(|home| [".claude", ".agents"].iter().any(|name| is_in(&home.join(name))))
        };
        is_in(root) || is_markdown && is_of_user() || is_users && home.is_some_and(is_in)
    }
}

/// Returns the paths that a text imports: `@path` at the start of a word, outside of code.
fn imports(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut fence: Option<&str> = None;
    for line in text.lines() {
        let start = line.trim_start();
        if let Some(mark) = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark)) {
            fence = match fence {
                None => Some(mark),
                Some(open) if open == mark => None,
                open => open,
            };
        } else if fence.is_none() {
            let (mut is_code, mut before) = (false, ' ');
            for (at, c) in line.char_indices() {
                if c == '`' {
                    is_code = !is_code;
                } else if c == '@' && !is_code && before.is_whitespace() {
                    let rest = &line[at + 1..];
                    let token =
                        &rest[..rest.find(|c: char| c.is_whitespace() || c == '`').unwrap_or(rest.len())];
                    found.extend((!token.is_empty()).then_some(token));
                }
                before = c;
            }
        }
    }
    found
}

fn first_file(
    folder: &Path,
    boundary: Option<&Path>,
    may_follow: &dyn Fn(&Path) -> bool,
    warnings: &mut Vec<String>,
) -> Option<(PathBuf, String)> {
    for name in NAMES {
        let path = folder.join(name);
        let Ok(real) = path.canonicalize() else { continue };
        if let Some(boundary) = boundary
            && !boundary.canonicalize().is_ok_and(|boundary| real.starts_with(boundary))
        {
            let path = path.to_string_lossy();
            warnings.push(format!("{}: links out of the repository; not followed", visible_line(&path)));
            continue;
        }
        let is_link = folder.canonicalize().is_ok_and(|folder| real != folder.join(name));
        if boundary.is_some() && is_link && !may_follow(&real) {
            let path = path.to_string_lossy();
            warnings.push(format!(
                "{}: links to a file that permission rules deny or ask about; not followed",
                visible_line(&path)
            ));
            continue;
        }
        match read_resolved(&real, MAX_FILE) {
            Ok(Some(text)) if text.trim().is_empty() => {}
            Ok(Some(text)) => return Some((path, text)),
            Ok(None) => {}
            Err(error @ ReadTextError::NotText { line }) => {
                warnings.push(format!("{}:{line}: {error}", visible_line(&path.to_string_lossy())));
            }
            Err(error) => warnings.push(format!("{}: {error}", visible_line(&path.to_string_lossy()))),
        }
    }
    None
}

fn add(instructions: &mut Instructions, room: &mut usize, (path, text): (PathBuf, String)) {
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    if text.len() <= *room {
        *room -= text.len();
        instructions.files.push(InstructionFile { path, text: text.to_owned(), is_cut: false });
        return;
    }
    let mut end = *room;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    // Whole lines only: half a sentence can say the opposite.
    let kept = &text[..text[..end].rfind('\n').map_or(0, |at| at + 1)];
    *room = 0;
    let left = text.len() - kept.len();
    let note = cut_note(left);
    let name = path.to_string_lossy();
    instructions.warnings.push(format!("{}: {note}; the model does not read the rest", visible_line(&name)));
    let note = format!("[{note}]\n");
    instructions.files.push(InstructionFile { path, text: format!("{kept}{note}"), is_cut: true });
}

fn cut_note(left: usize) -> String {
    format!("{left} bytes left out: instructions are limited to {} KiB in total", MAX_INSTRUCTIONS / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    struct Tree(tempfile::TempDir);

    /// A file, the room that is left, and what is known.
    type Below<'a> = (&'a str, usize, &'a dyn Fn(&Path) -> bool);

    impl Tree {
        fn new(files: &[(&str, &str)]) -> Self {
            let tree = Self(tempfile::tempdir().expect("temp"));
            for (path, text) in files {
                let path = tree.path(path);
                fs::create_dir_all(path.parent().expect("parent")).expect("dir");
                fs::write(path, text).expect("write");
            }
            tree
        }

        fn path(&self, path: &str) -> PathBuf {
            self.0.path().canonicalize().expect("real").join(path)
        }

        fn load(&self, cwd: &str) -> Instructions {
            self.at(cwd, &|_| true, None)
        }

        fn at(
            &self,
            cwd: &str,
            may_follow: &dyn Fn(&Path) -> bool,
            below: Option<Below<'_>>,
        ) -> Instructions {
            let cwd = self.path(cwd);
            let (config_dir, home, root) = (self.path("config"), self.path("home"), repository_root(&cwd));
            let (config_dir, home) = (config_dir.as_path(), Some(home.as_path()));
            let places = InstructionPlaces { config_dir, home, root: &root, cwd: &cwd, may_follow };
            match below {
                None => places.load(),
                Some((file, room, is_known)) => places.load_below(&cwd.join(file), room, is_known),
            }
        }
    }

    #[test]
    fn files_are_ordered_from_user_to_root_to_folder() {
        let tree = Tree::new(&[
            ("config/AGENTS.md", "user"),
            ("repo/.git/HEAD", ""),
            ("repo/AGENTS.md", "root"),
            ("repo/a/CLAUDE.md", "fallback"),
            ("repo/a/b/AGENTS.md", "hidden"),
            ("repo/a/b/AGENTS.override.md", "override"),
            ("repo/other/AGENTS.md", "elsewhere"),
            ("AGENTS.md", "above the repository"),
        ]);
        let texts = |cwd| tree.load(cwd).files.iter().map(|file| file.text.clone()).collect::<Vec<_>>();
        assert_eq!(texts("repo/a/b"), ["user", "root", "fallback", "override"]);
        assert_eq!(texts("repo"), ["user", "root"]);
        assert_eq!(tree.load("repo").status().as_deref(), Some("2 instruction files"));
        let prompt = tree.load("repo").prompt();
        assert!(
            prompt.starts_with("Instructions from ")
                && prompt.contains("config/AGENTS.md:\nuser\n\nInstructions"),
            "{prompt}"
        );
    }

    #[test]
    fn without_a_repository_only_the_folder_counts() {
        let tree = Tree::new(&[("x/AGENTS.md", "above"), ("x/y/AGENTS.md", "here")]);
        let instructions = tree.load("x/y");
        assert_eq!(instructions.files.len(), 1);
        assert_eq!(instructions.status().as_deref(), Some("AGENTS.md"));
        assert_eq!(tree.load("x").files[0].text, "above");
        assert_eq!(Instructions::default().status(), None);
    }

    #[test]
    fn the_total_is_truncated_at_a_line() {
        let line = format!("{}\n", "ä".repeat(49));
        let long = line.repeat(400);
        let tree =
            Tree::new(&[("repo/.git/HEAD", ""), ("repo/AGENTS.md", &long), ("repo/a/AGENTS.md", "more\n")]);
        let instructions = tree.load("repo/a");
        let first = &instructions.files[0];
        assert!(first.is_cut);
        let kept = first.text.lines().count() - 1;
        assert_eq!(kept, MAX_INSTRUCTIONS / line.len());
        assert!(first.text.ends_with("limited to 32 KiB in total]\n"));
        assert_eq!(
            instructions.files[1].text,
            "[5 bytes left out: instructions are limited to 32 KiB in total]\n"
        );
        assert_eq!(instructions.status().as_deref(), Some("2 instruction files, cut at 32 KiB"));
        assert_eq!(instructions.warnings.len(), 2);
        let warning = &instructions.warnings[1];
        assert!(warning.contains("repo/a/AGENTS.md: 5 bytes left out"), "{warning}");
    }

    #[test]
    fn links_are_followed_only_inside_the_repository() {
        let tree = Tree::new(&[("secret", "secret"), ("repo/.git/HEAD", ""), ("repo/AGENTS.md", "text")]);
        symlink("AGENTS.md", tree.path("repo/CLAUDE.md")).expect("link");
        symlink("../secret", tree.path("repo/AGENTS.override.md")).expect("link");
        let instructions = tree.load("repo");
        assert_eq!(instructions.files.len(), 1);
        assert_eq!(instructions.files[0].text, "text");
        assert!(instructions.warnings[0].contains("links out of the repository"));
    }

    #[test]
    fn a_link_brings_no_file_that_rules_restrict() {
        let tree = Tree::new(&[
            ("repo/.git/HEAD", ""),
            ("repo/.env", "SECRET"),
            ("repo/a/notes.md", "notes"),
            ("repo/a/x", ""),
        ]);
        for folder in ["repo", "repo/a"] {
            symlink(tree.path("repo/.env"), tree.path(folder).join("AGENTS.md")).expect("link");
        }
        symlink("notes.md", tree.path("repo/a/CLAUDE.md")).expect("link");
        let may_follow = |real: &Path| !real.ends_with(".env");
        let start = tree.at("repo", &may_follow, None);
        let below = tree.at("repo", &may_follow, Some(("a/x", 99, &|_| false)));
        assert_eq!((start.files.len(), below.files.len()), (0, 1));
        assert_eq!(below.files[0].text, "notes");
        for warnings in [start.warnings, below.warnings] {
            assert!(
                warnings[0].contains("AGENTS.md: links to a file that permission rules deny"),
                "{warnings:?}"
            );
        }
    }

    #[test]
    fn instructions_below_the_working_directory_are_those_of_the_project() {
        let tree = Tree::new(&[
            ("repo/.git/HEAD", ""),
            ("repo/AGENTS.md", "root"),
            ("repo/pkg/AGENTS.md", "pkg"),
            ("repo/pkg/web/CLAUDE.md", "web"),
            ("repo/pkg/web/src/a.ts", ""),
            ("repo/pkg/node_modules/x/AGENTS.md", "evil"),
            ("repo/pkg/node_modules/x/a.js", ""),
            ("repo/clone/.git/HEAD", ""),
            ("repo/clone/AGENTS.md", "another project"),
            ("repo/clone/a.ts", ""),
            ("other/AGENTS.md", "outside"),
            ("other/a.ts", ""),
        ]);
        let load = |file: &str, room, known: &[&str]| {
            let known: Vec<_> = known.iter().map(|file| tree.path(file)).collect();
            let is_known = |path: &Path| known.iter().any(|known| known == path);
            tree.at("repo", &|_| true, Some((file, room, &is_known)))
        };
        let texts = |found: Instructions| found.files.into_iter().map(|file| file.text).collect::<Vec<_>>();
        assert_eq!(texts(load("pkg/web/src/a.ts", 99, &[])), ["pkg", "web"]);
        assert_eq!(texts(load("pkg/web/../web/src/a.ts", 99, &["repo/pkg/AGENTS.md"])), ["web"]);
        for file in ["a.ts", "pkg/node_modules/x/a.js", "clone/a.ts", "../other/a.ts", "none/a.ts"] {
            let known = ["repo/pkg/AGENTS.md"];
            assert_eq!(texts(load(file, 99, &known)), [] as [String; 0], "{file}");
        }
        let full = load("pkg/web/src/a.ts", 3, &[]);
        assert!(full.files[1].is_cut && full.files[1].text.starts_with("[3 bytes left out"), "{full:?}");
    }

    fn texts(found: &Instructions) -> Vec<&str> {
        found.files.iter().map(|file| file.text.trim()).collect()
    }

    #[test]
    fn instructions_of_claude_code_are_read_where_there_are_no_others() {
        let tree = Tree::new(&[
            ("home/.claude/CLAUDE.md", "user"),
            ("repo/.git/HEAD", ""),
            ("repo/.claude/CLAUDE.md", "root"),
            ("repo/a/CLAUDE.md", "a"),
            ("repo/a/.claude/CLAUDE.md", "hidden"),
        ]);
        assert_eq!(texts(&tree.load("repo/a")), ["user", "root", "a"]);
        assert_eq!(texts(&tree.load("home")), ["user"], "once");
        fs::create_dir(tree.path("config")).expect("made");
        fs::write(tree.path("config/AGENTS.md"), "own").expect("written");
        assert_eq!(texts(&tree.load("repo/a")), ["own", "root", "a"]);
    }

    #[test]
    fn imports_are_words_outside_of_code() {
        let text =
            "See @a.md, (@b) x@c.org `@d` and @docs/e.md.\n```\n@f\n~~~\n```\n- @~/g.md `x` @h`i`\n@ @";
        assert_eq!(imports(text), ["a.md,", "docs/e.md.", "~/g.md", "h"]);
    }

    #[test]
    fn imported_files_follow_the_one_that_names_them() {
        let tree = Tree::new(&[
            ("config/AGENTS.md", "user @~/notes/style.txt @more.md"),
            ("config/more.md", "more"),
            ("home/notes/style.txt", "style"),
            ("home/.claude/mine.md", "mine"),
            ("repo/.git/HEAD", ""),
            ("repo/CLAUDE.md", "root @docs/a.md. @nobody @docs @~/.claude/mine.md @docs/a.md"),
            ("repo/docs/a.md", "a @b.md @../CLAUDE.md"),
            ("repo/docs/b.md", "b"),
            ("repo/sub/AGENTS.md", "sub @../docs/b.md @c.md"),
            ("repo/sub/c.md", "c"),
            ("repo/sub/x", ""),
        ]);
        let found = tree.load("repo");
        assert_eq!(found.warnings, [] as [String; 0]);
        let first: Vec<&str> =
            texts(&found).into_iter().map(|text| text.split(' ').next().expect("one")).collect();
        assert_eq!(first, ["user", "style", "more", "root", "a", "b", "mine"]);
        let known: Vec<_> = found.files.into_iter().map(|file| file.path).collect();
        let is_known = |path: &Path| known.iter().any(|known| known == path);
        let below = tree.at("repo", &|_| true, Some(("sub/x", 99, &is_known)));
        assert_eq!(texts(&below), ["sub @../docs/b.md @c.md", "c"], "b is known");
    }

    #[test]
    fn a_repository_imports_nothing_from_elsewhere() {
        let tree = Tree::new(&[
            ("home/.ssh/id.md", "SECRET"),
            ("home/.claude/settings.json", "SECRET"),
            ("home/notes.md", "SECRET"),
            ("other/x.md", "SECRET"),
            ("repo/.git/HEAD", ""),
            ("repo/.env", "SECRET"),
            ("repo/bin", "x\u{0}"),
        ]);
        let other = tree.path("other/x.md");
        symlink(&other, tree.path("repo/link.md")).expect("link");
        let text = format!(
            "@~/.ssh/id.md @~/.claude/settings.json @~/notes.md @{} @../other/x.md @link.md @.env",
            other.display()
        );
        fs::write(tree.path("repo/AGENTS.md"), &text).expect("written");
        let found = tree.at("repo", &|real| !real.ends_with(".env"), None);
        assert_eq!(texts(&found), [text.as_str()]);
        // The same file under three names is refused once.
        let warnings = found.warnings.join("\n");
        assert_eq!(found.warnings.len(), 5, "{warnings}");
        assert!(warnings.contains("imports ~/.ssh/id.md, which is neither in the project nor"), "{warnings}");
        assert!(warnings.contains("imports .env, which permission rules deny or ask about"), "{warnings}");
    }

    #[test]
    fn imports_are_bounded() {
        let tree = Tree::new(&[("repo/.git/HEAD", ""), ("repo/AGENTS.md", "@0.md")]);
        for n in 0..9 {
            fs::write(tree.path(&format!("repo/{n}.md")), format!("{n} @{}.md", n + 1)).expect("written");
        }
        let found = tree.load("repo");
        assert_eq!(found.files.len(), 1 + MAX_DEPTH);
        assert!(found.warnings[0].contains("4.md: imports 5.md too deep"), "{:?}", found.warnings);
        let many = (0..40).map(|n| format!("@m{n}.md ")).collect::<Vec<_>>().concat();
        for n in 0..40 {
            fs::write(tree.path(&format!("repo/m{n}.md")), "x\n").expect("written");
        }
        fs::write(tree.path("repo/AGENTS.md"), &many).expect("written");
        assert_eq!(tree.load("repo").files.len(), 1 + MAX_IMPORTS);
        fs::write(tree.path("repo/m0.md"), "y\n".repeat(MAX_INSTRUCTIONS)).expect("written");
        let found = tree.load("repo");
        assert!(found.files[1].is_cut);
        let total: usize = found.files.iter().map(|file| file.text.len()).sum();
        assert!(total < MAX_INSTRUCTIONS + 5000, "{total}");
    }

    #[test]
    fn a_file_that_is_not_text_is_a_warning() {
        let tree = Tree::new(&[("repo/.git/HEAD", "")]);
        fs::create_dir(tree.path("repo/AGENTS.md")).expect("dir");
        fs::write(tree.path("repo/CLAUDE.md"), b"a\n\xff").expect("write");
        let instructions = tree.load("repo");
        assert!(instructions.files.is_empty());
        assert!(instructions.warnings[0].ends_with("AGENTS.md: is not a file"));
        assert!(instructions.warnings[1].ends_with("CLAUDE.md:2: is not UTF-8 text"));
    }
}
