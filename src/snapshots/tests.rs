use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;
use crate::contract::clock::SystemClock;

struct Folder {
    dir: tempfile::TempDir,
    snapshots: FolderSnapshots,
}

impl Folder {
    fn new() -> Folder {
        Folder::with(Limits::default())
    }

    fn with(limits: Limits) -> Folder {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap().join("work");
        fs::create_dir(&root).unwrap();
        let objects = Arc::new(Objects::in_memory());
        let snapshots = FolderSnapshots::new(root, Vec::new(), objects, limits, Arc::new(SystemClock));
        Folder { dir, snapshots }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.snapshots.inner.root.join(name)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(&self, name: &str) -> Option<String> {
        fs::read(self.path(name)).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    fn take(&self) -> TreeId {
        self.snapshots.take_now().unwrap().0
    }

    fn back(&self, to: &TreeId) -> (Plan, Restored) {
        let plan = self.snapshots.plan(to).unwrap();
        let restored = self.snapshots.restore(&plan);
        (plan, restored)
    }
}

fn words(plan: &Plan) -> Vec<String> {
    let word = |file: &ChangedFile| {
        let counts = file.added.zip(file.removed).map_or_else(|| "?".into(), |(a, r)| format!("+{a} -{r}"));
        format!("{} {} {counts}", file.change.letter(), file.path)
    };
    plan.files.iter().map(word).collect()
}

#[test]
fn files_go_back_and_forth_again() {
    let folder = Folder::new();
    folder.write("a.txt", "one\r\ntwo\n");
    folder.write("deep/er/b.txt", "b\n");
    folder.write("run.sh", "#!/bin/sh\n");
    fs::set_permissions(folder.path("run.sh"), fs::Permissions::from_mode(0o750)).unwrap();
    folder.write("bytes", [0, 255, 7]);
    symlink("a.txt", folder.path("link")).unwrap();
    let first = folder.take();
    assert_eq!(folder.take(), first, "nothing changed");

    folder.write("a.txt", "one\r\n2\n3\n");
    fs::remove_dir_all(folder.path("deep")).unwrap();
    folder.write("new/c.txt", "c");
    fs::remove_file(folder.path("link")).unwrap();
    symlink("/etc/passwd", folder.path("link")).unwrap();
    folder.write("run.sh", "#!/bin/bash\n");
    fs::set_permissions(folder.path("run.sh"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::remove_file(folder.path("bytes")).unwrap();

    let (plan, restored) = folder.back(&first);
    assert_eq!(
        words(&plan),
        [
            "M a.txt +1 -2",
            "A bytes ?",
            "A deep/er/b.txt +1 -0",
            "M link +1 -1",
            "D new/c.txt +0 -1",
            "M run.sh +1 -1"
        ]
    );
    assert_eq!((restored.changed, restored.failed), (6, Vec::new()));
    assert_eq!(folder.read("a.txt").as_deref(), Some("one\r\ntwo\n"));
    assert_eq!(folder.read("deep/er/b.txt").as_deref(), Some("b\n"));
    assert!(!folder.path("new").exists(), "the folder that became empty is gone");
    assert_eq!(fs::read_link(folder.path("link")).unwrap(), Path::new("a.txt"));
    assert_eq!(fs::metadata(folder.path("run.sh")).unwrap().permissions().mode() & 0o777, 0o750);
    assert_eq!(fs::read(folder.path("bytes")).unwrap(), [0, 255, 7]);
    assert_eq!(folder.take(), first);

    let (_, restored) = folder.back(&plan.now);
    assert!(restored.failed.is_empty());
    assert_eq!(folder.take(), plan.now, "the undo of the undo");
    assert_eq!(fs::read_link(folder.path("link")).unwrap(), Path::new("/etc/passwd"));
}

#[test]
fn what_is_ignored_is_neither_kept_nor_touched() {
    let folder = Folder::new();
    folder.write(".gitignore", "target/\n*.log\n");
    folder.write("target/big", "x");
    folder.write("a.log", "x");
    folder.write(".git/config", "x");
    folder.write(".env", "kept: nothing says otherwise");
    folder.write("src/a", "1");
    let first = folder.take();
    // The rules change: what was ignored then is seen now, and must not go for that.
    folder.write(".gitignore", "src/\n");
    folder.write("target/big", "y");
    folder.write("src/a", "2");
    folder.write("b.log", "new");
    folder.write("b.txt", "new");
    let (plan, restored) = folder.back(&first);
    assert_eq!(words(&plan), ["M .gitignore +2 -1", "D b.txt +0 -1", "M src/a +1 -1"]);
    assert!(restored.failed.is_empty());
    assert_eq!(folder.read("target/big").as_deref(), Some("y"));
    assert_eq!(folder.read("b.log").as_deref(), Some("new"));
    assert_eq!(folder.read(".git/config").as_deref(), Some("x"));
    // What was ignored and written over can be had again.
    let (_, restored) = folder.back(&plan.now);
    assert!(restored.failed.is_empty());
    assert_eq!(folder.read("src/a").as_deref(), Some("2"));
    assert_eq!(folder.read("b.txt").as_deref(), Some("new"));
}

#[test]
fn no_link_leads_out_of_the_folder() {
    let folder = Folder::new();
    folder.write("sub/a.txt", "old");
    folder.write("gone/b.txt", "old");
    let first = folder.take();
    let outside = folder.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("a.txt"), "theirs").unwrap();
    fs::write(outside.join("c.txt"), "theirs").unwrap();
    fs::remove_dir_all(folder.path("sub")).unwrap();
    symlink(&outside, folder.path("sub")).unwrap();
    let (plan, restored) = folder.back(&first);
    assert_eq!(words(&plan), ["D sub +0 -1", "A sub/a.txt +1 -0"]);
    assert!(restored.failed.is_empty(), "{restored:?}");
    assert_eq!(folder.read("sub/a.txt").as_deref(), Some("old"));
    assert_eq!(fs::read_to_string(outside.join("a.txt")).unwrap(), "theirs");
    assert!(!folder.path("sub").is_symlink());

    // The link comes between the look and the deed.
    folder.write("sub/a.txt", "new");
    let plan = folder.snapshots.plan(&first).unwrap();
    fs::remove_dir_all(folder.path("sub")).unwrap();
    symlink(&outside, folder.path("sub")).unwrap();
    let restored = folder.snapshots.restore(&plan);
    assert_eq!(restored.failed.len(), 1, "{restored:?}");
    assert_eq!(fs::read_to_string(outside.join("a.txt")).unwrap(), "theirs");
}

#[test]
fn what_is_too_large_is_said_and_left_alone() {
    let folder = Folder::with(Limits { max_file: 10, max_files: 3, ..Limits::default() });
    folder.write("big", "0123456789abc");
    folder.write("small", "1");
    let (first, note) = folder.snapshots.take_now().unwrap();
    assert_eq!(note, "not kept: big (0 MiB)");
    folder.write("big", "changed, and long");
    folder.write("small", "2");
    let (plan, _) = folder.back(&first);
    assert_eq!(words(&plan), ["M small +1 -1"]);
    assert_eq!(folder.read("big").as_deref(), Some("changed, and long"));
    for n in 0..4 {
        folder.write(&format!("more{n}"), "x");
    }
    let why = folder.snapshots.take_now().unwrap_err();
    assert!(why.ends_with("has more than 3 files"), "{why}");
}

#[test]
fn old_ones_make_room_and_the_rest_can_still_be_read() {
    let folder = Folder::new();
    let mut trees = Vec::new();
    for n in 0..6_u8 {
        let mut noise = n.wrapping_add(1);
        let bytes: Vec<u8> = (0..200_000)
            .map(|i: u32| {
                noise = noise.wrapping_mul(31).wrapping_add((i % 251) as u8) ^ n;
                noise
            })
            .collect();
        folder.write("a", bytes);
        folder.write("b", format!("{n}"));
        trees.push(folder.take());
        std::thread::sleep(Duration::from_millis(2));
    }
    let objects = &folder.snapshots.inner.objects;
    objects.make_room(1, tree::references).unwrap();
    assert!(folder.snapshots.plan(&trees[0]).unwrap_err().contains("dropped to make room"));
    let (_, restored) = folder.back(&trees[5]);
    assert!(restored.failed.is_empty());
    assert_eq!(folder.read("b").as_deref(), Some("5"));
    // What was thought to be there is written again.
    folder.write("b", "0");
    let again = folder.take();
    folder.write("b", "1");
    assert_eq!(folder.back(&again).1.failed, []);
    assert_eq!(folder.read("b").as_deref(), Some("0"));
}

#[test]
#[ignore = "measures"]
fn how_long_it_takes() {
    let folder = Folder::new();
    for n in 0..20_000 {
        folder.write(&format!("d{}/e{}/f{n}.rs", n % 50, n % 400), format!("// {n}\n").repeat(400));
    }
    let timed = |what: &str| {
        let start = Instant::now();
        folder.take();
        let took = start.elapsed();
        assert!(took < Duration::from_mins(1), "{what}: {took:?}");
        format!("{what}: {took:?}")
    };
    let first = timed("first");
    std::thread::sleep(Duration::from_millis(1100));
    let again = [timed("second"), timed("nothing changed")];
    folder.write("d1/e1/f1.rs", "changed");
    let changed = timed("one changed");
    let report = std::env::temp_dir().join("aye-snapshots.txt");
    fs::write(report, format!("{first}; {again:?}; {changed}\n")).unwrap();
}
