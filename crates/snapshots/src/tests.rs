use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;
use aye_core::contract::clock::SystemClock;

struct Folder {
    dir: tempfile::TempDir,
    snapshots: FolderSnapshots,
}

impl Folder {
    fn new() -> Folder {
        Folder::with(SnapshotLimits::default())
    }

    fn with(limits: SnapshotLimits) -> Folder {
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

    fn back(&self, to: &TreeId) -> (RestorePlan, Restored) {
        let plan = self.snapshots.plan(to).unwrap();
        let restored = self.snapshots.restore(&plan);
        (plan, restored)
    }
}

fn words(plan: &RestorePlan) -> Vec<String> {
    let word = |file: &ChangedFile| {
        let counts = file.added.zip(file.removed).map_or_else(|| "?".into(), |(a, r)| format!("+{a} -{r}"));
        format!("{} {} {counts}", file.change.letter(), file.path)
    };
    plan.files.iter().map(word).collect()
}

#[test]
fn files_are_restored_and_the_restore_is_undone() {
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
    assert!(!folder.path("new").exists(), "the emptied folder is gone");
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
fn a_restored_file_keeps_its_attributes() {
    let folder = Folder::new();
    folder.write("a", "one");
    let path = folder.path("a");
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::setxattr(&path, "user.note", b"mine", flags).is_err() {
        return;
    }
    let first = folder.take();
    fs::write(&path, "two").unwrap();
    folder.back(&first);
    let mut value = [0; 8];
    let size = rustix::fs::getxattr(&path, "user.note", &mut value).unwrap();
    assert_eq!((&value[..size], folder.read("a").as_deref()), (&b"mine"[..], Some("one")));
}

#[test]
fn ignored_files_are_neither_saved_nor_touched() {
    let folder = Folder::new();
    folder.write(".gitignore", "target/\n*.log\n");
    folder.write("target/big", "x");
    folder.write("a.log", "x");
    folder.write(".git/config", "x");
    folder.write(".env", "kept: nothing says otherwise");
    folder.write("src/a", "1");
    let first = folder.take();
    // The rules change: a file ignored then is visible now, and must not be deleted for that.
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
    // An ignored file that was overwritten can be restored.
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

    // The link appears between the scan and the write.
    folder.write("sub/a.txt", "new");
    let plan = folder.snapshots.plan(&first).unwrap();
    fs::remove_dir_all(folder.path("sub")).unwrap();
    symlink(&outside, folder.path("sub")).unwrap();
    let restored = folder.snapshots.restore(&plan);
    assert_eq!(restored.failed.len(), 1, "{restored:?}");
    assert_eq!(fs::read_to_string(outside.join("a.txt")).unwrap(), "theirs");
}

#[test]
fn a_file_that_is_too_large_is_reported_and_left_alone() {
    let folder = Folder::with(SnapshotLimits { max_file: 10, max_files: 3, ..SnapshotLimits::default() });
    folder.write("big", "0123456789abc");
    folder.write("small", "1");
    let (first, note) = folder.snapshots.take_now().unwrap();
    assert_eq!(note, "not in the snapshot: big (0 MiB)");
    folder.write("big", "changed, and long");
    folder.write("small", "2");
    let (plan, _) = folder.back(&first);
    assert_eq!(words(&plan), ["M small +1 -1"]);
    assert_eq!(folder.read("big").as_deref(), Some("changed, and long"));
    for n in 0..5 {
        folder.write(&format!("more{n}"), "x");
    }
    let why = folder.snapshots.take_now().unwrap_err().to_string();
    assert!(why.contains("has more than 3 files; name folders"), "{why}");
}

/// One new file does not end what a folder had before.
#[test]
fn a_folder_that_grows_above_the_limits_is_kept_without_the_new_files() {
    let limits = SnapshotLimits { max_files: 3, max_total: 100, ..SnapshotLimits::default() };
    let folder = Folder::with(limits.clone());
    folder.write("b", "0");
    folder.write("c/d", "0");
    let (first, _) = folder.snapshots.take_now().unwrap();
    folder.write("a", "new");
    folder.write("b", "1");
    folder.write("c/e", "new");
    folder.write("f", "new");
    let (second, note) = folder.snapshots.take_now().unwrap();
    assert_eq!(note, "not in the snapshot: c/e, f (more than 3 files)");
    // So in the next process.
    let inner = &folder.snapshots.inner;
    let (root, objects, clock) = (inner.root.clone(), Arc::clone(&inner.objects), Arc::new(SystemClock));
    let sweeps = objects.sweeps().unwrap();
    objects.set_seen(&root, sweeps, |put| inner.hold().seen.write(put)).unwrap();
    let next = FolderSnapshots::new(root, Vec::new(), objects, limits, clock);
    folder.write("c/d", "1");
    assert_eq!(next.take_now().unwrap().1, note);
    let (plan, _) = folder.back(&second);
    assert_eq!(words(&plan), ["M c/d +1 -1"]);
    assert_eq!(plan.note, note);
    let (plan, _) = folder.back(&first);
    assert_eq!(words(&plan), ["D a +0 -1", "M b +1 -1"]);
    assert_eq!(folder.read("f").as_deref(), Some("new"), "it is left alone");
    // A file that is gone makes room for another one, and one with another name needs none.
    let (_, note) = folder.snapshots.take_now().unwrap();
    assert_eq!(note, "not in the snapshot: f (more than 3 files)");
    fs::remove_file(folder.path("b")).unwrap();
    assert_eq!(folder.snapshots.take_now().unwrap().1, "");
    fs::rename(folder.path("f"), folder.path("0")).unwrap();
    assert_eq!(folder.snapshots.take_now().unwrap().1, "");
    fs::remove_file(folder.path("0")).unwrap();
    folder.write("g", "x".repeat(100));
    assert_eq!(folder.snapshots.take_now().unwrap().1, "not in the snapshot: g (more than 0 MiB in all)");
}

#[test]
fn old_snapshots_are_pruned_and_the_rest_stays_readable() {
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
    assert!(folder.snapshots.plan(&trees[0]).unwrap_err().to_string().contains("dropped to make room"));
    let (_, restored) = folder.back(&trees[5]);
    assert!(restored.failed.is_empty());
    assert_eq!(folder.read("b").as_deref(), Some("5"));
    // An object believed to exist is written again.
    folder.write("b", "0");
    let again = folder.take();
    folder.write("b", "1");
    assert_eq!(folder.back(&again).1.failed, []);
    assert_eq!(folder.read("b").as_deref(), Some("0"));
}

#[test]
#[ignore = "measures"]
fn measure_snapshots() {
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

impl Folder {
    /// As before a tool that names the files it changes.
    fn take_files(&self, names: &[&str]) -> TreeId {
        let files: Vec<PathBuf> = names.iter().map(|name| self.path(name)).collect();
        self.snapshots.inner.take_files(&files).unwrap().unwrap().tree.unwrap()
    }

    /// The tree of a fresh scan.
    fn fresh(&self) -> TreeId {
        let inner = &self.snapshots.inner;
        let (objects, clock) = (Arc::clone(&inner.objects), Arc::clone(&inner.clock));
        let other =
            FolderSnapshots::new(inner.root.clone(), Vec::new(), objects, inner.limits.clone(), clock);
        // The stored index of the folder is not read.
        other.inner.hold().is_loaded = true;
        other.take_now().unwrap().0
    }
}

#[test]
fn a_file_snapshotted_alone_is_restored_alone() {
    let folder = Folder::new();
    folder.write("src/a", "one\n");
    folder.write("src/b", "mine\n");
    folder.write(".gitignore", "hidden\n");
    folder.write("hidden", "secret\n");
    let before = folder.take_files(&["src/a", "new/c", "hidden"]);
    assert!(!before.is_whole());
    folder.write("src/a", "two\n");
    folder.write("src/b", "changed by hand\n");
    folder.write("new/c", "new\n");
    folder.write("hidden", "other\n");
    let (plan, restored) = folder.back(&before);
    assert_eq!(words(&plan), ["M hidden +1 -1", "D new/c +0 -1", "M src/a +1 -1"]);
    assert_eq!((restored.changed, restored.failed), (3, Vec::new()));
    assert_eq!(folder.read("src/a").as_deref(), Some("one\n"));
    assert_eq!(folder.read("src/b").as_deref(), Some("changed by hand\n"));
    assert_eq!(folder.read("hidden").as_deref(), Some("secret\n"));
    assert!(!folder.path("new").exists());
    // Undo the restore.
    let (_, restored) = folder.back(&plan.now);
    assert!(restored.failed.is_empty());
    let now = ["src/a", "new/c", "hidden"].map(|name| folder.read(name).unwrap());
    assert_eq!(now, ["two\n", "new\n", "other\n"]);
}

#[test]
fn snapshots_of_several_steps_are_restored_together() {
    let folder = Folder::new();
    for name in ["a", "b", "c"] {
        folder.write(name, "0\n");
    }
    let first = folder.take_files(&["a"]);
    folder.write("a", "1\n");
    let second = folder.take_files(&["a", "b"]);
    folder.write("a", "2\n");
    folder.write("b", "2\n");
    let third = folder.take();
    folder.write("c", "3\n");
    folder.write("d", "3\n");
    let all = first.then(&second).then(&third);
    let changes = folder.snapshots.changes_since(&all, "", 9).unwrap();
    let shown = |change: &FileChange| format!("{} {}", change.about.change.letter(), change.about.path);
    assert_eq!(changes.files.iter().map(shown).collect::<Vec<_>>(), ["M a", "M b", "M c", "A d"]);
    let (plan, _) = folder.back(&all);
    assert_eq!(words(&plan), ["M a +1 -1", "M b +1 -1", "M c +1 -1", "D d +0 -1"]);
    assert_eq!(["a", "b", "c"].map(|name| folder.read(name).unwrap()), ["0\n", "0\n", "0\n"]);
}

#[test]
fn one_file_can_be_saved_in_a_folder_that_is_too_large() {
    let folder = Folder::with(SnapshotLimits { max_files: 3, ..SnapshotLimits::default() });
    for n in 0..9 {
        folder.write(&format!("f{n}"), "0");
    }
    assert!(folder.snapshots.take_now().is_err());
    let before = folder.take_files(&["f1"]);
    folder.write("f1", "1");
    let (plan, restored) = folder.back(&before);
    assert_eq!((restored.changed, folder.read("f1").as_deref()), (1, Some("0")));
    folder.back(&plan.now);
    assert_eq!(folder.read("f1").as_deref(), Some("1"));
    let inner = &folder.snapshots.inner;
    let outside = [PathBuf::from("/etc/passwd"), inner.root.join(".git/config"), inner.root.clone()];
    assert!(inner.take_files(&outside).unwrap().is_none());
}

/// Scans a folder; stops after `asks` checks for cancellation.
fn scan(folder: &Folder, seen: &mut FolderScan, asks: usize) -> Result<walk::WalkResult, SnapshotError> {
    let inner = &folder.snapshots.inner;
    let asked = std::cell::Cell::new(0);
    let is_stopped = || {
        asked.set(asked.get() + 1);
        asked.get() > asks
    };
    let place = WalkContext {
        root: &inner.root,
        without: &[],
        limits: &inner.limits,
        objects: &inner.objects,
        is_stopped: &is_stopped,
        progress: &|_| {},
    };
    walk::scan(&place, seen)
}

#[test]
fn an_interrupted_scan_resumes() {
    let folder = Folder::with(SnapshotLimits { settles: Duration::ZERO, ..SnapshotLimits::default() });
    for n in 0..60 {
        folder.write(&format!("d{}/f{n}", n % 6), format!("file {n}"));
    }
    let mut seen = FolderScan::default();
    let mut stops = 0;
    let scan = loop {
        match scan(&folder, &mut seen, 20) {
            Ok(scan) => break scan,
            Err(trouble) => assert!(matches!(trouble, SnapshotError::Stopped), "{trouble}"),
        }
        stops += 1;
        assert!(stops < 20, "it starts over each time");
    };
    assert!(stops > 2, "{stops}");
    assert_eq!(TreeId::of_all(&hex(&scan.tree)), folder.fresh());
    let again = self::scan(&folder, &mut seen, usize::MAX).unwrap();
    assert_eq!((again.tree, again.read), (scan.tree, 0), "nothing is read twice");
    // The next process continues too.
    let mut seen = FolderScan::read_back(parts_of(&seen)).unwrap();
    assert_eq!(seen.len(), 60);
    let later = self::scan(&folder, &mut seen, usize::MAX).unwrap();
    assert_eq!((later.tree, later.read), (scan.tree, 0));
}

fn parts_of(seen: &FolderScan) -> Vec<Vec<u8>> {
    let mut parts = Vec::new();
    seen.write(&mut |part| {
        parts.push(part.to_vec());
        Ok(())
    })
    .unwrap();
    parts
}

/// The index is never copied as a whole for the database.
#[test]
fn an_index_is_written_in_small_parts_and_an_old_one_is_read() {
    let folder = Folder::with(SnapshotLimits { settles: Duration::ZERO, ..SnapshotLimits::default() });
    let name = "n".repeat(200);
    for number in 0..1500 {
        folder.write(&format!("{name}{}/{number}", number % 3), "x");
    }
    let mut seen = FolderScan::default();
    let first = scan(&folder, &mut seen, usize::MAX).unwrap();
    let parts = parts_of(&seen);
    assert!(parts.len() > 3 && parts.iter().all(|part| part.len() < 136 << 10), "{}", parts.len());
    let objects = &folder.snapshots.inner.objects;
    let (root, sweeps) = (&folder.snapshots.inner.root, objects.sweeps().unwrap());
    objects.set_seen(root, sweeps, |put| seen.write(put)).unwrap();
    assert_eq!(objects.seen(root).unwrap(), parts);
    // A shorter index replaces all parts, and those of other folders stay.
    for other in ["work\u{1}", "work-b", "work/b"] {
        objects.set_seen(&root.with_file_name(other), sweeps, |put| put(other.as_bytes())).unwrap();
    }
    objects.set_seen(root, sweeps, |put| put(&[3])).unwrap();
    assert_eq!(objects.seen(root).unwrap(), [[3]]);
    for other in ["work\u{1}", "work-b", "work/b"] {
        assert_eq!(objects.seen(&root.with_file_name(other)).unwrap(), [other.as_bytes()]);
    }
    // An earlier version wrote a single row and left the others alone.
    let old: Vec<u8> = [2].into_iter().chain(parts[1..].concat()).collect();
    for written in [parts.clone(), vec![old.clone()], [vec![old], parts[1..].to_vec()].concat()] {
        let mut seen = FolderScan::read_back(written).unwrap();
        assert_eq!(seen.len(), 1500);
        let again = scan(&folder, &mut seen, usize::MAX).unwrap();
        assert_eq!((again.tree, again.read), (first.tree, 0));
    }
    for damaged in [vec![], vec![vec![]], vec![vec![9]], vec![vec![3], parts[1][..50].to_vec()]] {
        assert!(FolderScan::read_back(damaged).is_none());
    }
}

#[test]
fn ignore_rules_are_read_wherever_they_are_without_blocking() {
    let folder = Folder::with(SnapshotLimits { settles: Duration::ZERO, ..SnapshotLimits::default() });
    folder.write(".git/info/exclude", "excluded\n");
    folder.write("a/.gitignore", "*.log\n!keep.log\n");
    for name in ["excluded", "a/x.log", "a/keep.log", "a/b/y.log", "a/b/z", "x.log"] {
        folder.write(name, name);
    }
    let names = |tree: &TreeId| -> Vec<String> {
        let hash = parse_hash(tree.parts().0.unwrap()).unwrap();
        tree::all(&folder.snapshots.inner.objects, &hash)
            .unwrap()
            .into_keys()
            .map(|path| shown(&path))
            .collect()
    };
    assert_eq!(names(&folder.take()), ["a/.gitignore", "a/b/z", "a/keep.log", "x.log"]);
    folder.write("a/.gitignore", "z\n");
    folder.write(".git/info/exclude", "");
    assert_eq!(
        names(&folder.take()),
        ["a/.gitignore", "a/b/y.log", "a/keep.log", "a/x.log", "excluded", "x.log"]
    );
    fs::remove_file(folder.path("a/.gitignore")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        folder.path("a/.gitignore"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    assert_eq!(names(&folder.take()), ["a/b/y.log", "a/b/z", "a/keep.log", "a/x.log", "excluded", "x.log"]);
}

/// Enough files for several threads to read their timestamps.
#[test]
fn one_change_among_many_files_is_detected() {
    let limits = SnapshotLimits { settles: Duration::ZERO, ..SnapshotLimits::default() };
    let folder = Folder::with(limits);
    for n in 0..2_100 {
        folder.write(&format!("d{}/e{}/f{n}", n % 5, n % 35), format!("{n}"));
    }
    let first = folder.take();
    assert_eq!(folder.take(), first);
    folder.write("d3/e3/f1403", "other");
    folder.write("d0/e0/new", "new");
    fs::remove_file(folder.path("d1/e1/f71")).unwrap();
    let second = folder.take();
    let (plan, _) = folder.back(&first);
    assert_eq!(words(&plan), ["D d0/e0/new +0 -1", "A d1/e1/f71 +1 -0", "M d3/e3/f1403 +1 -1"]);
    assert_eq!(plan.now, second);
    assert_eq!(folder.take(), first);
}

mod incremental {
    use std::os::unix::fs::MetadataExt as _;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Deed {
        Write(usize, u8),
        Delete(usize),
        Rename(usize, usize),
        Execute(usize),
        Link(usize),
        Ignore(usize, usize),
        Take,
    }

    const NAMES: [&str; 8] = ["a", "b.log", "d/a", "d/b.log", "d/e/a", "d/e/f/c", "g/a", "g/h/b.log"];
    const RULES: [&str; 4] = ["*.log\n", "a\n", "e/\n", "!a\nb*\n"];
    const FOLDERS: [&str; 3] = ["", "d/", "d/e/"];

    /// Whether a change right after a look has another time than the change before it, as on Linux since 6.13.
    fn are_times_fine() -> bool {
        let folder = Folder::new();
        let changed = |text: &str| {
            folder.write("a", text);
            let about = fs::metadata(folder.path("a")).unwrap();
            (about.ctime(), about.ctime_nsec())
        };
        let times: std::collections::BTreeSet<_> = (0..20).map(|n| changed(&n.to_string())).collect();
        times.len() == 20
    }

    fn deed() -> impl Strategy<Value = Deed> {
        let name = 0..NAMES.len();
        prop_oneof![
            4 => (name.clone(), any::<u8>()).prop_map(|(name, text)| Deed::Write(name, text % 4)),
            2 => name.clone().prop_map(Deed::Delete),
            1 => (name.clone(), name.clone()).prop_map(|(from, to)| Deed::Rename(from, to)),
            1 => name.clone().prop_map(Deed::Execute),
            1 => name.prop_map(Deed::Link),
            1 => (0..FOLDERS.len(), 0..RULES.len()).prop_map(|(folder, rules)| Deed::Ignore(folder, rules)),
            3 => Just(Deed::Take),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

        #[test]
        fn an_incremental_scan_finds_what_a_full_scan_finds(deeds in prop::collection::vec(deed(), 1..40)) {
            // What was just changed is looked at again unless its times can be trusted.
            let settles = if are_times_fine() { Duration::ZERO } else { SnapshotLimits::default().settles };
            let folder = Folder::with(SnapshotLimits { settles, ..SnapshotLimits::default() });
            for deed in deeds {
                match deed {
                    Deed::Write(name, text) => {
                        let path = folder.path(NAMES[name]);
                        let _ = fs::create_dir_all(path.parent().unwrap());
                        let _ = fs::write(path, vec![text; usize::from(text)]);
                    }
                    Deed::Delete(name) => drop(fs::remove_file(folder.path(NAMES[name]))),
                    Deed::Rename(from, to) => {
                        drop(fs::rename(folder.path(NAMES[from]), folder.path(NAMES[to])));
                    }
                    Deed::Execute(name) => {
                        let mode = fs::Permissions::from_mode(0o755);
                        let path = folder.path(NAMES[name]);
                        if !path.is_symlink() {
                            drop(fs::set_permissions(path, mode));
                        }
                    }
                    Deed::Link(name) => drop(symlink("somewhere", folder.path(NAMES[name]))),
                    Deed::Ignore(at, rules) => {
                        let _ = fs::write(folder.path(&format!("{}.gitignore", FOLDERS[at])), RULES[rules]);
                    }
                    Deed::Take => prop_assert_eq!(folder.take(), folder.fresh()),
                }
            }
            prop_assert_eq!(folder.take(), folder.fresh());
        }
    }
}

/// Another thread exchanges a folder and a link to one outside: nothing from there is kept, and nothing is put there.
#[cfg(target_os = "linux")]
#[test]
fn nothing_outside_is_kept_or_changed_while_a_folder_becomes_a_link() {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use std::sync::atomic::AtomicBool;

    let folder = Folder::new();
    let outside = folder.dir.path().canonicalize().unwrap().join("outside");
    fs::create_dir_all(outside.join("sub")).unwrap();
    for name in ["f", "sub/f"] {
        folder.write(&format!("d/{name}"), "inside");
        fs::write(outside.join(name), "OUTSIDE").unwrap();
    }
    folder.write("other", "0");
    symlink(&outside, folder.path("l")).unwrap();
    let before = folder.take_files(&["d/f", "d/sub/f"]);
    let (from, to, is_over) = (folder.path("d"), folder.path("l"), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                renameat_with(CWD, &from, CWD, &to, RenameFlags::EXCHANGE).unwrap();
            }
        });
        for round in 0..400 {
            match round % 3 {
                0 => drop(folder.take_files(&["d/f", "d/sub/f"])),
                1 => drop(folder.snapshots.take_now()),
                _ => drop(folder.back(&before)),
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let objects = &folder.snapshots.inner.objects;
    let hash = |text: &str| aye_store_sqlite::objects::hash_of(ObjectKind::Bytes, text.as_bytes());
    assert!(objects.get(ObjectKind::Bytes, &hash("inside")).is_ok());
    assert!(objects.get(ObjectKind::Bytes, &hash("OUTSIDE")).is_err());
    let text = |name: &str| fs::read_to_string(outside.join(name)).unwrap();
    assert_eq!((text("f"), text("sub/f")), ("OUTSIDE".to_owned(), "OUTSIDE".to_owned()));
}
