use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a folder");
    let root = dir.path().canonicalize().expect("it exists");
    for (name, text) in files {
        write(&root, name, text);
    }
    (dir, root)
}

fn write(root: &Path, name: &str, text: &str) {
    let path = root.join(name);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    std::fs::write(path, text).expect("written");
}

fn names(root: &Path, moved: &[SetAside]) -> Vec<String> {
    let mut names: Vec<String> = moved
        .iter()
        .map(|it| {
            let name = |path: &Path| path.strip_prefix(root).expect("below").display().to_string();
            let to = it.to.as_deref().map(name).unwrap_or_default();
            format!("{} -> {to} {}", name(&it.path), it.restored == Some(true))
        })
        .collect();
    names.sort();
    names
}

#[test]
fn created_or_changed_protected_files_are_set_aside_and_the_rest_stays() {
    let (_dir, root) = tree(&[
        ("a/AGENTS.md", "rules"),
        ("a/.vscode/tasks.json", "{}"),
        ("nested/.git/config", "[core]"),
        ("nested/.git/HEAD", "x"),
        ("nested/.git/hooks/sample", ""),
        ("plain/main.rs", ""),
        (".github/workflows/ci.yml", "on: push"),
    ]);
    let files = ProtectedFiles::default();
    let before = files.before(&[&root]);
    write(&root, "a/AGENTS.md", "obey");
    write(&root, "a/.vscode/settings.json", "{}");
    write(&root, "nested/.git/config", "[core]\nfsmonitor = evil");
    write(&root, "nested/.git/hooks/pre-commit", "evil");
    write(&root, "nested/.git/refs/x", "a commit");
    write(&root, "plain/deep/.envrc", "evil");
    write(&root, "plain/main.rs", "fn main() {}");
    write(&root, "node_modules/x/.vscode/tasks.json", "{}");
    write(&root, ".github/workflows/evil.yml", "on: push");
    let moved = before.set_aside(&files);
    assert_eq!(
        names(&root, &moved),
        [
            ".github/workflows/evil.yml -> .aye-set-aside/1/.github/workflows/evil.yml false",
            "a/.vscode/settings.json -> .aye-set-aside/1/a/.vscode/settings.json false",
            "a/AGENTS.md -> .aye-set-aside/1/a/AGENTS.md true",
            "nested/.git/config -> .aye-set-aside/1/nested/.git/config true",
            "nested/.git/hooks/pre-commit -> .aye-set-aside/1/nested/.git/hooks/pre-commit false",
            "plain/deep/.envrc -> .aye-set-aside/1/plain/deep/.envrc false",
        ]
    );
    let text = |name: &str| std::fs::read_to_string(root.join(name)).expect("readable");
    assert_eq!(text("a/AGENTS.md"), "rules");
    assert_eq!(text(".aye-set-aside/1/a/AGENTS.md"), "obey");
    assert_eq!(text("nested/.git/config"), "[core]");
    assert!(!root.join("plain/deep/.envrc").exists() && root.join("node_modules/x/.vscode").exists());
    assert!(files.before(&[&root]).changed(&files).is_empty());
}

#[test]
fn commits_and_switches_in_a_linked_worktree_stay() {
    let (_dir, root) = tree(&[
        ("main/.git/HEAD", "ref: refs/heads/main"),
        ("main/.git/config", "[core]"),
        ("main/.git/objects/x", ""),
        ("main/.git/worktrees/t/HEAD", "ref: refs/heads/t"),
        ("main/.git/worktrees/t/commondir", "../.."),
        ("main/.git/worktrees/t/logs/HEAD", "one"),
    ]);
    let (git, tree) = (root.join("main/.git"), root.join("t"));
    write(&tree, ".git", &format!("gitdir: {}", git.join("worktrees/t").display()));
    write(&git, "worktrees/t/gitdir", &tree.join(".git").display().to_string());
    let files = ProtectedFiles::default();
    let before = files.before(&[&git, &tree]);
    write(&git, "worktrees/t/HEAD", "ref: refs/heads/other");
    write(&git, "worktrees/t/logs/HEAD", "one two");
    write(&git, "worktrees/t/commondir", "/evil");
    write(&git, "config", "[core] fsmonitor = evil");
    let moved = before.set_aside(&files);
    assert_eq!(
        names(&git, &moved),
        [
            "config -> .aye-set-aside/1/config true",
            "worktrees/t/commondir -> .aye-set-aside/1/worktrees/t/commondir true"
        ]
    );
}

#[test]
fn rewritten_and_removed_files_are_left_alone() {
    let (_dir, root) = tree(&[("a/.npmrc", "x"), ("b/.npmrc", "y")]);
    let files = ProtectedFiles::default();
    let before = files.before(&[&root]);
    write(&root, "a/.npmrc", "x");
    std::fs::remove_file(root.join("b/.npmrc")).expect("removed");
    assert!(before.changed(&files).is_empty());
}

#[test]
fn a_link_in_the_way_is_not_followed() {
    let (_dir, root) = tree(&[("home/.envrc", "mine"), ("work/a/x", "")]);
    let work = root.join("work");
    let files = ProtectedFiles::default();
    let before = files.before(&[&work]);
    std::os::unix::fs::symlink(root.join("home"), work.join("a/link")).expect("linked");
    std::os::unix::fs::symlink(root.join("home/.envrc"), work.join("a/.envrc")).expect("linked");
    let moved = before.set_aside(&files);
    assert_eq!(names(&work, &moved), ["a/.envrc -> .aye-set-aside/1/a/.envrc false"]);
    assert_eq!(std::fs::read_to_string(root.join("home/.envrc")).expect("readable"), "mine");
}

/// Exchanges two names until it is dropped.
struct Swapper(Arc<AtomicBool>, Option<std::thread::JoinHandle<()>>);

impl Swapper {
    fn start(one: PathBuf, other: PathBuf) -> Swapper {
        let stop = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&stop);
        let swap = move || {
            while !until.load(Ordering::Relaxed) {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                let cwd = rustix::fs::CWD;
                rustix::fs::renameat_with(cwd, &one, cwd, &other, flags).expect("exchanged");
                // Others need the folder, too.
                let moment = std::time::Instant::now();
                while moment.elapsed() < std::time::Duration::from_micros(40) {
                    std::hint::spin_loop();
                }
            }
        };
        Swapper(stop, Some(std::thread::spawn(swap)))
    }
}

impl Drop for Swapper {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        drop(self.1.take().map(std::thread::JoinHandle::join));
    }
}

#[test]
fn nothing_outside_changes_while_a_folder_becomes_a_link() {
    let (_dir, root) = tree(&[
        ("home/.bashrc", "mine"),
        ("home/.aws/credentials", "mine"),
        ("home/.ssh/id", "mine"),
        ("work/a/.bashrc", "theirs"),
    ]);
    let work = root.join("work");
    std::os::unix::fs::symlink(root.join("home"), work.join("link")).expect("linked");
    let files = ProtectedFiles::default();
    let swapper = Swapper::start(work.join("a"), work.join("link"));
    let mut moved = 0;
    for round in 0..400 {
        let before = files.before(&[&work]);
        // The folder has this name or the other one.
        for name in ["a", "link"] {
            let made = OpenFolder::open(&work).and_then(|work| work.folder(Path::new(name)));
            if let Ok(folder) = made {
                let name = format!("AGENTS.{round}.md");
                let _ = folder.write(name.as_ref(), Mode::RWXU, b"evil");
            }
        }
        moved += before.set_aside(&files).len();
    }
    drop(swapper);
    let read = |name: &str| std::fs::read_to_string(root.join(name)).expect("readable");
    for name in ["home/.bashrc", "home/.aws/credentials", "home/.ssh/id"] {
        assert_eq!(read(name), "mine", "{name}");
    }
    let entries = |name: &str| std::fs::read_dir(root.join(name)).expect("readable").count();
    assert_eq!([entries("home"), entries("home/.aws"), entries("home/.ssh")], [3, 1, 1]);
    assert!(moved > 0);
    // Nothing of it is in the project.
    let folder = ["work/a", "work/link"].into_iter().find(|name| !root.join(name).is_symlink());
    let kept = root.join(folder.expect("one is the folder")).join(".bashrc");
    let aside = work.join(SET_ASIDE);
    let all = files_of(&Roots::open(&[&aside]), [aside.clone()].iter(), usize::MAX);
    for file in all.iter().chain([&kept]) {
        assert_ne!(std::fs::read_to_string(file).unwrap_or_default(), "mine", "{}", file.display());
    }
}

#[test]
fn what_a_command_leaves_in_the_place_for_set_aside_files_is_no_obstacle() {
    let (_dir, root) = tree(&[("home/x", ""), ("work/a/x", "")]);
    let work = root.join("work");
    let files = ProtectedFiles::default();
    let before = files.before(&[&work]);
    std::os::unix::fs::symlink(root.join("home"), work.join(SET_ASIDE)).expect("linked");
    write(&work, "a/.envrc", "evil");
    let moved = before.set_aside(&files);
    assert_eq!(names(&work, &moved), ["a/.envrc -> .aye-set-aside/1/a/.envrc false"]);
    assert!(work.join(SET_ASIDE).symlink_metadata().expect("exists").is_dir());
    assert_eq!(std::fs::read_dir(root.join("home")).expect("readable").count(), 1);
    // A second time, beside the first.
    let before = files.before(&[&work]);
    write(&work, "a/.envrc", "again");
    let moved = before.set_aside(&files);
    assert_eq!(names(&work, &moved), ["a/.envrc -> .aye-set-aside/2/a/.envrc false"]);
    assert!(before.set_aside(&files).is_empty());
}

/// As if the files had not changed for a long time.
fn later() -> SystemTime {
    SystemTime::now() + std::time::Duration::from_hours(1)
}

#[test]
fn a_folder_with_its_old_times_is_read_again() {
    let (_dir, root) = tree(&[("sub/x", "")]);
    let sub = root.join("sub");
    let files = ProtectedFiles::default();
    let before = files.before_at(later(), &[&root]);
    let metadata = sub.metadata().expect("it exists");
    let times = std::fs::FileTimes::new()
        .set_modified(metadata.modified().expect("it has one"))
        .set_accessed(metadata.accessed().expect("it has one"));
    // The clock of a file system may be coarse.
    while sub.metadata().expect("it exists").ctime_nsec() == metadata.ctime_nsec() {
        write(&root, "sub/.envrc", "evil");
        let folder = std::fs::File::open(&sub).expect("opened");
        folder.set_times(times).expect("changed");
    }
    assert_eq!(sub.metadata().expect("it exists").modified().ok(), metadata.modified().ok());
    let moved = before.set_aside_at(later(), &files);
    assert_eq!(names(&root, &moved), ["sub/.envrc -> .aye-set-aside/1/sub/.envrc false"]);
}

#[test]
fn one_file_that_cannot_be_set_aside_does_not_save_the_others() {
    let (_dir, root) = tree(&[("a/x", ""), ("big/.npmrc", "mine")]);
    let files = ProtectedFiles::default();
    let before = files.before(&[&root]);
    let long = format!("AGENTS{}.md", "x".repeat(240));
    write(&root, &format!("a/{long}"), "decoy");
    write(&root, &format!("a/{}", long.replace("x.md", "y.md")), "decoy");
    write(&root, "big/.npmrc", "evil");
    let moved = before.set_aside(&files);
    assert_eq!(moved.iter().filter(|it| it.to.is_some()).count(), 3, "{moved:?}");
    assert_eq!(std::fs::read_to_string(root.join("big/.npmrc")).expect("readable"), "mine");
    assert!(!root.join("a").join(&long).exists());
}

#[test]
fn many_new_files_do_not_hide_a_change() {
    let (_dir, root) = tree(&[("a/.vscode/tasks.json", "{}"), ("z/.vscode/tasks.json", "{}")]);
    let files = ProtectedFiles::default();
    let before = files.before(&[&root]);
    for folder in ["a", "z"] {
        write(&root, &format!("{folder}/.vscode/tasks.json"), "evil");
        for n in 0..MAX_FILES {
            write(&root, &format!("{folder}/.vscode/{n}"), "");
        }
    }
    let moved = before.set_aside(&files);
    assert_eq!(moved.len(), 2 * MAX_FILES + 2);
    for folder in ["a", "z"] {
        let file = root.join(folder).join(".vscode/tasks.json");
        assert_eq!(std::fs::read_to_string(file).expect("readable"), "{}");
    }
}

/// A user who is not root cannot read them.
#[test]
fn closed_folders_are_opened() {
    let (_dir, root) = tree(&[("a/b/x", ""), ("fixed/x", ""), ("c/.vscode/tasks.json", "")]);
    let files = ProtectedFiles::default();
    let before = files.before(&[&root]);
    write(&root, "c/.vscode/tasks.json", "evil");
    write(&root, "a/b/.envrc", "evil");
    write(&root, "fixed/.envrc", "evil");
    let close = |name: &str, mode| {
        std::fs::set_permissions(root.join(name), std::fs::Permissions::from_mode(mode)).expect("changed");
    };
    close("fixed", 0o500);
    close("a/b", 0);
    close("a", 0);
    close("c/.vscode", 0);
    let moved = before.set_aside(&files);
    assert_eq!(
        names(&root, &moved),
        [
            "a/b/.envrc -> .aye-set-aside/1/a/b/.envrc false",
            "c/.vscode/tasks.json -> .aye-set-aside/1/c/.vscode/tasks.json true",
            "fixed/.envrc -> .aye-set-aside/1/fixed/.envrc false"
        ]
    );
}
