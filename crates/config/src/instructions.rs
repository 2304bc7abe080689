//! `AGENTS.md`: the instructions of the user and the project for every agent.

use std::path::{Path, PathBuf};

use super::paths::{ReadTextError, read_resolved};
use aye_core::contract::display::visible_line;
use aye_files::foreign::is_foreign;

/// Bytes of all instructions together.
pub const MAX_INSTRUCTIONS: usize = 32 * 1024;
/// A file that is larger than this is not even opened.
const MAX_FILE: u64 = 4 << 20;
/// The names of instruction files; in each folder, the first one that exists is used.
const NAMES: [&str; 3] = ["AGENTS.override.md", "AGENTS.md", "CLAUDE.md"];

/// The text of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstructionFile {
    /// The file.
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

/// Reads the user's file and then one per folder from the repository's root down to the working directory.
///
/// Links are followed only inside the repository, so that a clone cannot have a file of the user's sent to a model.
pub fn load_instructions(config_dir: &Path, root: &Path, cwd: &Path) -> Instructions {
    load_instructions_following(config_dir, root, cwd, &|_| true)
}

/// The same, and follows links of the project only to files that `may_follow` says yes to: those that no rule keeps from
/// being read.
pub fn load_instructions_following(
    config_dir: &Path,
    root: &Path,
    cwd: &Path,
    may_follow: &dyn Fn(&Path) -> bool,
) -> Instructions {
    let mut instructions = Instructions::default();
    let mut room = MAX_INSTRUCTIONS;
    if let Some(file) = first_file(config_dir, None, may_follow, &mut instructions.warnings) {
        add(&mut instructions, &mut room, file);
    }
    let mut folders: Vec<&Path> = cwd.ancestors().take_while(|folder| folder.starts_with(root)).collect();
    folders.reverse();
    for folder in folders {
        if folder != config_dir
            && let Some(file) = first_file(folder, Some(root), may_follow, &mut instructions.warnings)
        {
            add(&mut instructions, &mut room, file);
        }
    }
    instructions
}

/// Reads the instructions of the folders between the working directory and a file below it, the outermost first, at
/// most `room` bytes of them. Files that `is_known` are left out, and so are hidden folders, folders of dependencies and
/// other repositories, with everything below them.
pub fn load_folder_instructions(
    root: &Path,
    cwd: &Path,
    file: &Path,
    room: usize,
    is_known: &dyn Fn(&Path) -> bool,
) -> Instructions {
    load_folder_instructions_following((root, cwd), file, room, is_known, &|_| true)
}

/// The same for a repository's root and a working directory, and follows links only to files that `may_follow` says yes to.
pub fn load_folder_instructions_following(
    (root, cwd): (&Path, &Path),
    file: &Path,
    room: usize,
    is_known: &dyn Fn(&Path) -> bool,
    may_follow: &dyn Fn(&Path) -> bool,
) -> Instructions {
    let mut instructions = Instructions::default();
    let mut room = room;
    let folder = file.parent().and_then(|folder| folder.canonicalize().ok());
    let below = folder.as_deref().and_then(|folder| folder.strip_prefix(cwd).ok());
    let mut folder = cwd.to_path_buf();
    for name in below.into_iter().flat_map(Path::components) {
        folder.push(name);
        let name = name.as_os_str().to_string_lossy();
        if is_foreign(&name) || folder.join(".git").symlink_metadata().is_ok() {
            break;
        }
        if NAMES.iter().any(|name| is_known(&folder.join(name))) {
            continue;
        }
        if let Some(file) = first_file(&folder, Some(root), may_follow, &mut instructions.warnings) {
            add(&mut instructions, &mut room, file);
        }
    }
    instructions
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
            let cwd = self.path(cwd);
            load_instructions(&self.path("config"), &repository_root(&cwd), &cwd)
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
        let root = tree.path("repo");
        for folder in ["repo", "repo/a"] {
            symlink(tree.path("repo/.env"), tree.path(folder).join("AGENTS.md")).expect("link");
        }
        symlink("notes.md", tree.path("repo/a/CLAUDE.md")).expect("link");
        let may_follow = |real: &Path| !real.ends_with(".env");
        let start = load_instructions_following(&tree.path("config"), &root, &root, &may_follow);
        let below = load_folder_instructions_following(
            (&root, &root),
            &root.join("a/x"),
            99,
            &|_| false,
            &may_follow,
        );
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
        let root = tree.path("repo");
        let load = |file: &str, room, known: &[&str]| {
            let known: Vec<_> = known.iter().map(|file| tree.path(file)).collect();
            let is_known = |path: &Path| known.iter().any(|known| known == path);
            load_folder_instructions(&root, &root, &root.join(file), room, &is_known)
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
