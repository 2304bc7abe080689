use std::path::Path;
use std::time::{Duration, Instant};

use super::{MAX_OPEN, WalkFilter, walk};

fn write(root: &Path, name: &str, text: &str) {
    let path = root.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn fifo(path: &Path) {
    let status = std::process::Command::new("mkfifo").arg(path).status().unwrap();
    assert!(status.success());
}

fn walked(root: &Path, selection: WalkFilter) -> Vec<String> {
    let mut names: Vec<String> = walk(root, selection, |_| true)
        .filter(super::WalkEntry::is_file)
        .map(|entry| entry.path().strip_prefix(root).unwrap().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// The library's own reading of ignore files is the reference, except where it would hang.
#[test]
fn ignore_files_behave_as_in_ripgrep() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("up/w");
    std::fs::create_dir_all(root.join(".git/info")).unwrap();
    for name in [
        "a.rs",
        "b.log",
        "keep.log",
        "x.tmp",
        "sub/c.rs",
        "sub/d.log",
        "sub/deep/keep.log",
        "sub/deep/e.tmp",
        "target/out",
        "sub/target/out",
        ".dot",
        ".seen",
        "only/here/f",
        "excluded",
        "sub/excluded",
        "q y/z.log",
    ] {
        write(&root, name, "x");
    }
    write(&root, ".gitignore", "\u{feff}*.log\n!keep.log\n/target\n# comment\n\n!.seen\nonly/**/f\n[z-\n");
    write(&root, "sub/.gitignore", "!d.log\r\n*.tmp\r\n");
    write(&root, "sub/deep/.ignore", "!e.tmp\n");
    write(&root, ".git/info/exclude", "excluded\n");
    write(&root, "../.ignore", "x.tmp\n");
    let reference = |hidden: bool, parents: bool| {
        let mut walk = ignore::WalkBuilder::new(&root);
        walk.hidden(!hidden).parents(parents).require_git(false).git_global(false);
        walk.filter_entry(|entry| entry.file_name() != ".git");
        let files =
            walk.build().filter_map(Result::ok).filter(|e| e.file_type().is_some_and(|k| k.is_file()));
        let mut names: Vec<String> = files
            .map(|entry| entry.path().strip_prefix(&root).unwrap().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    };
    for (hidden, parents) in [(false, true), (true, true), (true, false)] {
        let selection = WalkFilter { hidden, parents, ..WalkFilter::default() };
        let mut named: Vec<String> = super::builder(&root, selection.clone(), |_| true)
            .build()
            .filter_map(Result::ok)
            .filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file()))
            .map(|entry| entry.path().strip_prefix(&root).unwrap().to_string_lossy().into_owned())
            .collect();
        named.sort();
        assert_eq!(named, walked(&root, selection.clone()));
        assert_eq!(
            walked(&root, selection),
            reference(hidden, parents),
            "hidden {hidden}, parents {parents}"
        );
    }
    assert!(!walked(&root, WalkFilter::default()).contains(&"x.tmp".to_owned()));
}

#[test]
fn rules_above_a_repository_do_not_apply_inside() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), ".gitignore", "*\n");
    write(dir.path(), "repo/a", "x");
    let root = dir.path().join("repo");
    assert!(walked(&root, WalkFilter::default()).is_empty());
    std::fs::create_dir(root.join(".git")).unwrap();
    assert_eq!(walked(&root, WalkFilter::default()), ["a"]);
}

#[test]
fn ignore_files_are_those_of_the_folders_that_were_opened() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().canonicalize().unwrap();
    for (folder, ignored) in [("up", "a"), ("out", "b")] {
        write(&dir, &format!("{folder}/w/a"), "x");
        write(&dir, &format!("{folder}/w/b"), "x");
        write(&dir, &format!("{folder}/.ignore"), ignored);
    }
    std::fs::create_dir(dir.join("up/w/s")).unwrap();
    std::os::unix::fs::symlink(dir.join("out/.ignore"), dir.join("up/w/s/.ignore")).unwrap();
    write(&dir, "up/w/s/b", "x");
    std::os::unix::fs::symlink("up", dir.join("link")).unwrap();
    let root = dir.join("up/w");
    assert_eq!(walked(&root, WalkFilter::default()), ["b", "s/b"], "as in git, a link is no ignore file");
    assert_eq!(walked(&dir.join("link/w"), WalkFilter::default()), ["b", "s/b"]);
    // The folder above is exchanged for a link when the walked one is open.
    let folder = crate::opener::open(&root, crate::opener::LISTED).unwrap();
    std::fs::rename(dir.join("up"), dir.join("aside")).unwrap();
    std::os::unix::fs::symlink("out", dir.join("up")).unwrap();
    let names = super::walk_in(folder, &root, WalkFilter::default(), super::WalkEntry::is_file)
        .map(|entry| entry.file_name().to_string_lossy().into_owned());
    assert_eq!(names.collect::<Vec<_>>(), ["a", "b"], "nothing above says what is ignored");
}

#[test]
fn worktrees_share_the_exclude_file() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "main/.git/info/exclude", "local\n");
    write(dir.path(), "main/.git/worktrees/w/commondir", "../..\n");
    write(dir.path(), "w/.git", "gitdir: ../main/.git/worktrees/w\n");
    write(dir.path(), "w/local", "x");
    write(dir.path(), "w/other", "x");
    assert_eq!(
        walked(&dir.path().join("w"), WalkFilter { hidden: false, ..WalkFilter::default() }),
        ["other"]
    );
}

#[test]
fn irregular_files_are_never_opened() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    for folder in ["a", "b", "c", "d/.git/info"] {
        std::fs::create_dir_all(root.join(folder)).unwrap();
        write(root, &format!("{folder}/x"), "x");
    }
    fifo(&root.join("a/.gitignore"));
    fifo(&root.join("b/.ignore"));
    std::os::unix::fs::symlink("/dev/zero", root.join("c/.gitignore")).unwrap();
    fifo(&root.join("d/.git/info/exclude"));
    fifo(&root.join(".gitignore"));
    write(root, "d/y", "x");
    let started = Instant::now();
    assert_eq!(walked(root, WalkFilter::default()), ["a/x", "b/x", "c/x", "d/y"]);
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[test]
fn folders_come_before_their_content_and_only_where_they_may_be_entered() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["b/x", "b/c/y", "a", "d/z"] {
        write(dir.path(), name, "x");
    }
    std::os::unix::fs::symlink("b", dir.path().join("link")).unwrap();
    let walked = |depth: usize| -> Vec<String> {
        let visit = |entry: &super::WalkEntry| entry.file_name() != "d";
        let walk = walk(dir.path(), WalkFilter::default(), visit).max_depth(depth);
        let name =
            |entry: super::WalkEntry| entry.path().strip_prefix(dir.path()).unwrap().display().to_string();
        walk.map(|entry| format!("{} {}", name(entry.clone()), entry.depth())).collect()
    };
    assert_eq!(walked(9), ["a 1", "b 1", "b/c 2", "b/c/y 3", "b/x 2", "link 1"]);
    assert_eq!(walked(1), ["a 1", "b 1", "link 1"]);
    let linked: Vec<_> = walk(&dir.path().join("link"), WalkFilter::default(), |_| true).collect();
    assert_eq!(linked[1].path(), dir.path().join("link/c/y"), "the walked folder itself may be a link");
    let single: Vec<_> = walk(&dir.path().join("a"), WalkFilter::default(), |_| true).collect();
    assert_eq!((single.len(), single[0].depth(), single[0].is_file()), (1, 0, true));
    assert_eq!(walk(&dir.path().join("gone"), WalkFilter::default(), |_| true).count(), 0);
}

#[test]
fn a_deep_tree_needs_few_descriptors_and_is_walked_to_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let deep = "f/".repeat(MAX_OPEN * 4);
    write(dir.path(), &format!("{deep}last"), "x");
    write(dir.path(), &format!("{deep}g/last"), "x");
    let files: Vec<_> =
        walk(dir.path(), WalkFilter::default(), |_| true).filter(super::WalkEntry::is_file).collect();
    assert_eq!(files.len(), 2);
    assert!(files.iter().all(|file| file.open().is_ok()));
}

#[test]
fn a_folder_that_became_a_link_is_not_entered() {
    let dir = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    write(outside.path(), "secret", "x");
    write(dir.path(), "a/inside", "x");
    let walk = walk(dir.path(), WalkFilter::default(), |entry| {
        if entry.is_dir() {
            std::fs::remove_dir_all(entry.path()).unwrap();
            std::os::unix::fs::symlink(outside.path(), entry.path()).unwrap();
        }
        true
    });
    let names: Vec<_> = walk.map(|entry| entry.file_name().to_owned()).collect();
    assert_eq!(names, ["a"]);
}
