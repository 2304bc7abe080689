use std::io::Read as _;
use std::os::unix::fs::symlink;

use super::*;

struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Tree {
        let tree = Tree(tempfile::tempdir().expect("a folder"));
        std::fs::create_dir_all(tree.path("a/b")).expect("made");
        std::fs::write(tree.path("a/b/file"), "inside").expect("written");
        tree
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().canonicalize().expect("exists").join(name)
    }
}

type Open = fn(&OwnedFd, &Path) -> Result<OwnedFd, Errno>;

/// Both ways: with the kernel's help, and without.
const WAYS: [Open; 2] = [
    |folder, path| open_beneath(folder, path, OFlags::RDONLY),
    |folder, path| open_by_steps(folder, path, OFlags::RDONLY, &mut |_| Ok(())),
];

#[test]
fn neither_a_link_nor_a_parent_is_followed() {
    let tree = Tree::new();
    symlink("b", tree.path("a/link")).expect("linked");
    symlink("file", tree.path("a/b/link")).expect("linked");
    let top = open(&tree.path(""), PASSAGE).expect("opened");
    for way in WAYS {
        let text = |path: &str| {
            let mut text = String::new();
            File::from(way(&top, Path::new(path))?).read_to_string(&mut text).expect("read");
            Ok::<_, Errno>(text)
        };
        assert_eq!(text("a/b/file").as_deref(), Ok("inside"));
        assert_eq!(text("./a/./b/file").as_deref(), Ok("inside"));
        for path in ["a/link/file", "a/b/link", "a/../a/b/file", "/etc/passwd", ".."] {
            assert!(is_link(text(path).expect_err(path)), "{path}");
        }
        assert_eq!(text("a/b/gone"), Err(Errno::NOENT));
        assert_eq!(text("a/b/file/x"), Err(Errno::NOTDIR));
        assert!(way(&top, Path::new("")).is_ok(), "the folder itself");
    }
    assert!(is_link(open_beneath(&top, Path::new("a/link"), PASSAGE).expect_err("a link")));
    assert!(is_link(open(&tree.path("a/link"), LISTED).expect_err("a link")));
}

#[test]
fn only_what_is_missing_of_a_folder_is_made() {
    let tree = Tree::new();
    make_folder(&tree.path("a/b/c/d")).expect("made");
    assert!(tree.path("a/b/c/d").is_dir());
    symlink("/tmp", tree.path("a/out")).expect("linked");
    assert!(is_link(make_folder(&tree.path("a/out/x")).expect_err("a link")));
    let top = open(&tree.path("a"), PASSAGE).expect("opened");
    assert!(is_link(make_folder_beneath(&top, Path::new("../x")).expect_err("leads out")));
}

#[test]
fn only_regular_files_are_opened() {
    let tree = Tree::new();
    symlink("file", tree.path("a/b/link")).expect("linked");
    rustix::fs::mkfifoat(rustix::fs::CWD, tree.path("a/b/fifo"), Mode::from_raw_mode(0o600)).expect("made");
    let open = |name: &str| FilePlace::of(&tree.path(name)).map(|place| place.open_regular().is_ok());
    assert_eq!(open("a/b/file"), Ok(true));
    for name in ["a/b", "a/b/link", "a/b/fifo", "a/b/gone"] {
        assert_eq!(open(name), Ok(false), "{name}");
    }
    assert_eq!(read_regular(&tree.path("a/b/link"), 3).as_deref(), Some(&b"ins"[..]), "resolved first");
    let place = FilePlace::beneath(tree_top(&tree), Path::new("a/b/link")).expect("opened");
    assert_eq!(place.link_target().expect("a link"), Path::new("file"));
}

fn tree_top(tree: &Tree) -> OwnedFd {
    open(&tree.path(""), PASSAGE).expect("opened")
}

/// A second thread exchanges a folder and a link that leads outside.
#[cfg(target_os = "linux")]
#[test]
fn what_is_opened_lies_where_it_was_judged() {
    use std::sync::atomic::{AtomicBool, Ordering};

    let tree = Tree::new();
    let outside = Tree::new();
    std::fs::write(outside.path("a/b/file"), "outside").expect("written");
    symlink(outside.path("a"), tree.path("link")).expect("linked");
    let is_over = AtomicBool::new(false);
    let (from, to) = (tree.path("a"), tree.path("link"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            use rustix::fs::{CWD, RenameFlags, renameat_with};
            while !is_over.load(Ordering::Relaxed) {
                renameat_with(CWD, &from, CWD, &to, RenameFlags::EXCHANGE).expect("exchanged");
            }
        });
        let top = tree_top(&tree);
        for round in 0..4000 {
            let Ok(fd) = WAYS[round % 2](&top, Path::new("a/b/file")) else { continue };
            let mut text = String::new();
            File::from(fd).read_to_string(&mut text).expect("read");
            assert_eq!(text, "inside");
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_private_folder_is_the_users_alone() {
    use std::os::unix::fs::PermissionsExt;

    let tree = Tree::new();
    let mode = |name: &str| tree.path(name).metadata().expect("exists").permissions().mode() & 0o777;
    symlink(tree.path("a"), tree.path("link")).expect("linked");
    let folder = PrivateFolder::make(&tree.path("link/new/private")).expect("made");
    assert_eq!(folder.path(), tree.path("a/new/private"));
    std::fs::set_permissions(tree.path("a/new/private"), PermissionsExt::from_mode(0o755)).expect("set");
    let folder = PrivateFolder::make(folder.path()).expect("there");
    drop(folder.create("part").expect("created"));
    assert!(folder.create("part").is_err(), "it exists");
    folder.rename("part", "whole").expect("renamed");
    assert_eq!((mode("a/new/private"), mode("a/new/private/whole")), (0o700, 0o600));
    folder.remove("whole").expect("removed");
    symlink("nowhere", tree.path("dangling")).expect("linked");
    assert!(PrivateFolder::make(&tree.path("dangling/x")).is_err());
}
