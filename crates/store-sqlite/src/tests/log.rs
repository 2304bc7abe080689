//! Whose log lies beside a store: a deleted or foreign one is reported, a healthy one never, and none is touched.

use std::fs;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT, utimensat};

use super::*;
use crate::OpenErrorKind;
use crate::open::PAGE_SIZE;
use crate::rows::with_suffix;

fn log_of(home: &Home) -> PathBuf {
    with_suffix(&home.path(), "-wal")
}

/// Sets the time of the last write to a second before now: no commit of a test falls on the same moment.
fn age(file: &Path) {
    let written = fs::metadata(file).unwrap().modified().unwrap() - Duration::from_secs(1);
    let written = written.duration_since(std::time::UNIX_EPOCH).unwrap();
    let time = Timespec {
        tv_sec: i64::try_from(written.as_secs()).unwrap(),
        tv_nsec: written.subsec_nanos().into(),
    };
    let times =
        Timestamps { last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT }, last_modification: time };
    // By name: a descriptor that is closed again would drop the locks of a store that is open in this process.
    utimensat(CWD, file, &times, AtFlags::empty()).unwrap();
}

/// A store that was left with one thread in its log.
async fn left() -> Home {
    let home = Home::new();
    home.make();
    age(&home.path());
    let store = home.open();
    waiting(&store, None).await;
    store.leave().await;
    assert!(log_of(&home).exists());
    home
}

/// The files beside the store with their bytes, without the index of the log, which SQLite creates for itself.
fn files(home: &Home) -> BTreeMap<String, Vec<u8>> {
    let folder = fs::read_dir(home.path().parent().unwrap()).unwrap().flatten();
    folder
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path()).unwrap()))
        .filter(|(name, _)| !name.ends_with("-shm") && !name.ends_with("-mark"))
        .collect()
}

/// The header of a log without a frame, as a process leaves it that is killed when it syncs a new log.
fn header(checkpoints: u32, salts: [u32; 2]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [0x377f_0682, 3_007_000, PAGE_SIZE as u32, checkpoints, salts[0], salts[1]] {
        bytes.extend(u32::to_be_bytes(word));
    }
    let (mut one, mut two) = (0_u32, 0_u32);
    for pair in bytes.chunks(8) {
        let word = |at: usize| u32::from_le_bytes(pair[at..at + 4].try_into().unwrap());
        one = one.wrapping_add(word(0)).wrapping_add(two);
        two = two.wrapping_add(word(4)).wrapping_add(one);
    }
    bytes.extend(one.to_be_bytes());
    bytes.extend(two.to_be_bytes());
    bytes
}

#[tokio::test]
async fn a_deleted_log_is_reported_once() {
    let home = left().await;
    fs::remove_file(log_of(&home)).unwrap();
    let error = home.try_open().unwrap_err();
    assert_eq!(error.kind(), OpenErrorKind::Corrupt);
    let text = error.to_string();
    assert!(text.contains("is missing") && text.contains("latest writes are lost"), "{text}");
    assert_eq!(home.open().threads(None).await.unwrap(), Vec::new());
}

#[tokio::test]
async fn a_foreign_log_is_refused_and_nothing_is_touched() {
    let (home, other) = (left().await, left().await);
    fs::copy(log_of(&other), log_of(&home)).unwrap();
    let before = files(&home);
    for _ in 0..2 {
        let text = home.try_open().unwrap_err().to_string();
        assert!(text.contains("belongs to another store") && text.contains("nothing changed"), "{text}");
    }
    assert_eq!(files(&home), before);
    fs::remove_file(log_of(&home)).unwrap();
    home.try_open().expect_err("the log is missing, which is reported once");
    home.open().close().await;
}

#[tokio::test]
async fn a_header_without_a_commit_is_no_log() {
    for checkpoints in [0, 3] {
        let home = Home::new();
        home.make();
        age(&home.path());
        fs::write(log_of(&home), header(checkpoints, [7, 9])).unwrap();
        // Reads, and so sees the header; its first commit draws new salts when the header counts no checkpoint.
        let living = home.open();
        assert_eq!(living.threads(None).await.unwrap(), Vec::new());
        home.open().leave().await;
        waiting(&living, None).await;
        let other = home.open();
        assert_eq!(other.threads(None).await.unwrap().len(), 1, "{checkpoints}");
        other.leave().await;
        assert_eq!(living.messages(&"t1".into()).await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_mark_of_an_earlier_version_is_none() {
    let home = left().await;
    let mark = with_suffix(&home.path(), "-mark");
    let text = fs::read_to_string(&mark).unwrap();
    let (_, time) = text.split_once(' ').unwrap();
    fs::write(&mark, format!("00000007 {time}")).unwrap();
    assert_eq!(home.open().threads(None).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_living_store_notices_that_its_log_was_renamed() {
    let home = Home::new();
    let store = home.open();
    waiting(&store, None).await;
    fs::rename(log_of(&home), with_suffix(&home.path(), "-aside")).unwrap();
    let refused = store.create_thread(thread("t2")).await.unwrap_err();
    assert!(matches!(&refused, StoreError::Gone { path } if *path == log_of(&home)), "{refused:?}");
    fs::rename(with_suffix(&home.path(), "-aside"), log_of(&home)).unwrap();
    store.create_thread(thread("t2")).await.unwrap();
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]
    /// Whatever several users of a store do, and wherever they die, no healthy log is taken for a lost one.
    #[test]
    fn a_healthy_log_is_never_reported(steps in proptest::collection::vec((0..3_usize, 0..8_u8), 1..24)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let mut home = Home::new();
            let mut users: [Option<Store>; 3] = [None, None, None];
            let mut made = 0;
            for (who, what) in steps {
                if what == 7 {
                    // All die at once; the mark and the times of the files survive.
                    let copy = home.copy();
                    for suffix in ["", "-wal"] {
                        let (from, to) = (with_suffix(&home.path(), suffix), with_suffix(&copy.path(), suffix));
                        if let Ok(meta) = fs::metadata(from) {
                            let file = fs::File::options().write(true).open(to).unwrap();
                            file.set_modified(meta.modified().unwrap()).unwrap();
                        }
                    }
                    let _ = fs::copy(with_suffix(&home.path(), "-mark"), with_suffix(&copy.path(), "-mark"));
                    users = [None, None, None];
                    home = copy;
                    continue;
                }
                let Some(store) = users[who].clone() else {
                    users[who] = Some(home.open());
                    continue;
                };
                made += 1;
                let new = thread(&format!("t{made}"));
                match what {
                    0 | 1 => store.create_thread(new).await.unwrap(),
                    2 => drop(store.threads(None).await.unwrap()),
                    3 => drop(store.shrink(false).await.unwrap()),
                    4 => on_connection(&store, |conn| {
                        conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", (), |_| Ok(())).unwrap();
                    })
                    .await,
                    5 => {
                        store.close().await;
                        users[who] = None;
                    }
                    _ => {
                        store.leave().await;
                        users[who] = None;
                    }
                }
            }
        });
    }
}
