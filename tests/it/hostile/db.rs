//! Store rows: a foreign, broken, newer, locked or inaccessible store, as seen by the program.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::{Found, each, ensure, of_area};
use crate::support::home::{Home, Out};
use crate::support::llm::{Answer, MockLlm, Part};

type Check = fn() -> Found;

pub fn check_of(id: &str) -> Option<Check> {
    Some(match id {
        "DB005" => newer,
        "DB007" => log_deleted,
        "DB010" => read_only,
        "DB011" => no_plain_file,
        "DB012" => wide_modes,
        "DB014" => gap,
        "DB020" => two_processes,
        "DB101o" => not_a_database,
        "DB102o" => other_program,
        "DB103o" => truncated,
        "DB104o" => corrupt,
        "DB105o" => garbage_beside,
        "DB106o" => locked,
        "DB107o" => code_in_the_schema,
        "DB108o" => no_space,
        "DB109o" => version_out_of_range,
        "DB110o" => folder_is_a_file,
        "DB111o" => ephemeral,
        "DB112o" => two_starts_at_once,
        _ => return None,
    })
}

#[test]
fn every_row() {
    let rows = of_area("db").into_iter().filter(|row| check_of(&row.id).is_some()).collect();
    each(rows, |row| check_of(&row.id).expect("a check")());
}

fn file(home: &Home) -> PathBuf {
    home.root().join("aye/data/aye.db")
}

/// A home with one conversation, all of it in the one file.
fn used() -> Home {
    let home = with_log();
    let conn = Connection::open(file(&home)).expect("a database");
    conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(())).expect("checkpointed");
    home
}

/// The same with a log beside the file: a short one is kept for the next start.
fn with_log() -> Home {
    let home = Home::new();
    home.ok(&["-p", "help"]);
    home
}

/// Checks for this status and a message that contains the words; the file is unchanged.
fn refused(home: &Home, code: i32, words: &[&str]) -> Found {
    let content = |path: &Path| path.is_file().then(|| std::fs::read(path).expect("readable"));
    let before = content(&file(home));
    for args in [&["threads", "list"][..], &["-p", "help"]] {
        let out = home.aye(args).run();
        ensure(out.status.code() == Some(code), || {
            format!("{args:?}: {} {}{}", out.status, out.stdout, out.stderr)
        })?;
        ensure(words.iter().all(|word| out.stderr.contains(word)), || format!("{words:?}: {}", out.stderr))?;
        ensure(!out.stderr.contains("panicked"), || out.stderr.clone())?;
    }
    ensure(content(&file(home)) == before, || "the file was changed".into())
}

fn newer() -> Found {
    let home = used();
    let conn = Connection::open(file(&home)).expect("a database");
    let ours: i64 = conn.query_row("PRAGMA user_version", (), |row| row.get(0)).expect("a number");
    conn.pragma_update(None, "user_version", ours + 1).expect("succeeds");
    drop(conn);
    refused(&home, 1, &[&format!("format {}", ours + 1), &format!("supports {ours}")])
}

fn version_out_of_range() -> Found {
    for version in [-1_i64, 0, i64::from(i32::MAX)] {
        let home = used();
        Connection::open(file(&home))
            .expect("a database")
            .pragma_update(None, "user_version", version)
            .expect("succeeds");
        let out = home.aye(&["threads", "list"]).run();
        ensure(out.status.code() == Some(1), || format!("{version}: {} {}", out.status, out.stderr))?;
    }
    Ok(())
}

fn log_deleted() -> Found {
    let remove = |home: &Home| {
        for suffix in ["-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{suffix}", file(home).display()));
        }
    };
    // The content of the file at its last checkpoint, and nothing partial.
    let last_state = |home: &Home, threads: std::ops::RangeInclusive<usize>| {
        let out = home.ok(&["threads", "list", "--json"]);
        let is = out.json().as_array().is_some_and(|list| threads.contains(&list.len()));
        ensure(is && !out.stdout.contains("damaged"), || out.stdout.clone())?;
        home.ok(&["-p", "help"]);
        home.ok(&["-c", "-p", "help"]);
        Ok(())
    };
    let folded = used();
    remove(&folded);
    last_state(&folded, 1..=1)?;
    // The log contained data: that is reported once, and not as a success.
    let home = with_log();
    remove(&home);
    let out = home.aye(&["inbox"]).run();
    ensure(
        out.status.code() == Some(1) && out.stderr.contains("log") && out.stderr.contains("lost"),
        || format!("{} {}{}", out.status, out.stdout, out.stderr),
    )?;
    last_state(&home, 0..=1)?;
    // Another store's log.
    let (home, other) = (with_log(), with_log());
    let log = |home: &Home| format!("{}-wal", file(home).display());
    let _ = std::fs::remove_file(format!("{}-shm", file(&home).display()));
    std::fs::copy(log(&other), log(&home)).expect("copied");
    let foreign = std::fs::read(log(&home)).expect("readable");
    for _ in 0..2 {
        let out = home.aye(&["inbox"]).run();
        ensure(out.status.code() == Some(1) && out.stderr.contains("another store"), || {
            format!("{} {}{}", out.status, out.stdout, out.stderr)
        })?;
    }
    ensure(std::fs::read(log(&home)).expect("readable") == foreign, || "the log was touched".to_owned())?;
    // As the message says.
    std::fs::rename(log(&home), home.root().join("foreign-wal")).expect("moved");
    home.aye(&["inbox"]).run().exits(1);
    last_state(&home, 0..=1)
}

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).expect("exists").permissions().mode() & 0o7777
}

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("a mode");
}

fn read_only() -> Found {
    let home = used();
    chmod(&file(&home), 0o444);
    refused_to_write(&home, &["read-only", "aye.db", "--ephemeral"])?;
    let only_read = reads(&home);
    chmod(&file(&home), 0o600);
    only_read?;
    let folder = home.root().join("aye/data");
    chmod(&folder, 0o555);
    let found = refused_to_write(&home, &["read-only", "data", "--ephemeral"]).and_then(|()| reads(&home));
    chmod(&folder, 0o700);
    found
}

/// Checks that a run ends with status 1 and a message that contains the words.
fn refused_to_write(home: &Home, words: &[&str]) -> Found {
    let out = home.aye(&["-p", "help"]).run();
    ensure(out.status.code() == Some(1) && words.iter().all(|word| out.stderr.contains(word)), || {
        format!("{} {}", out.status, out.stderr)
    })
}

/// Checks what a read-only store still provides.
fn reads(home: &Home) -> Found {
    let thread = home.thread();
    for args in [
        &["threads", "list"][..],
        &["threads", "show", &thread],
        &["threads", "search", "help"],
        &["threads", "export", &thread, "--format", "json"],
    ] {
        let out = home.aye(args).run();
        ensure(out.status.code() == Some(0) && !out.stdout.trim().is_empty(), || {
            format!("{args:?}: {} {}{}", out.status, out.stdout, out.stderr)
        })?;
        ensure(out.stderr.contains("read-only"), || format!("{args:?} does not say so: {}", out.stderr))?;
    }
    for args in [&["audit", "--verify"][..], &["grants", "list"], &["queue", "list"], &["inbox"]] {
        let out = home.aye(args).run();
        ensure(out.status.code() == Some(0), || format!("{args:?}: {} {}", out.status, out.stderr))?;
    }
    let out = home.aye(&["threads", "delete", &thread]).run();
    ensure(out.status.code() == Some(1) && out.stderr.contains("read-only"), || {
        format!("deleted: {} {}", out.status, out.stderr)
    })
}

fn no_plain_file() -> Found {
    for kind in ["directory", "pipe", "link", "dangling", "socket"] {
        let home = used();
        let (path, aside) = (file(&home), home.root().join("aside.db"));
        std::fs::rename(&path, &aside).expect("moved");
        match kind {
            "directory" => std::fs::create_dir(&path).expect("a folder"),
            "pipe" => rustix::fs::mkfifoat(rustix::fs::CWD, &path, 0o600.into()).expect("a FIFO"),
            "link" => symlink(&aside, &path).expect("a link"),
            "dangling" => symlink("nowhere", &path).expect("a link"),
            _ => drop(std::os::unix::net::UnixListener::bind(&path).expect("a socket")),
        }
        refused(&home, 1, &["aye.db", "plain file"]).map_err(|e| format!("{kind}: {e}"))?;
    }
    Ok(())
}

fn wide_modes() -> Found {
    let home = used();
    let folder = home.root().join("aye/data");
    chmod(&file(&home), 0o644);
    chmod(&folder, 0o755);
    home.ok(&["threads", "list"]);
    ensure(mode(&file(&home)) == 0o600 && mode(&folder) == 0o700, || {
        format!("{:o} {:o}", mode(&file(&home)), mode(&folder))
    })
}

fn gap() -> Found {
    for change in ["DELETE FROM message WHERE seq = 1", "UPDATE message SET seq = seq + 1 WHERE seq = 2"] {
        let home = used();
        let damaged = home.thread();
        let conn = Connection::open(file(&home)).expect("a database");
        conn.execute(change, ()).expect("changed");
        drop(conn);
        let out = home.aye(&["-r", &damaged, "-p", "help"]).run();
        ensure(out.status.code() == Some(1) && out.stderr.contains("damaged"), || {
            format!("{change}: {} {}", out.status, out.stderr)
        })?;
        let out = home.ok(&["threads", "list"]);
        ensure(out.stdout.contains("damaged"), || out.stdout.clone())?;
        home.ok(&["-p", "help"]);
        home.ok(&["-c", "-p", "help"]);
    }
    Ok(())
}

fn two_processes() -> Found {
    let llm = MockLlm::answers([Answer::say("one"), Answer::new().part(Part::Hang)]);
    let home = Home::with(&llm);
    home.ok(&["-p", "first"]);
    let thread = home.thread();
    let running = home.aye(&["-r", &thread, "-p", "second"]).spawn();
    crate::support::llm::until("the request", || llm.asked().len() >= 2);
    let out = home.aye(&["-r", &thread, "-p", "third"]).run();
    ensure(out.status.code() == Some(1), || format!("{} {}{}", out.status, out.stdout, out.stderr))?;
    ensure(out.stderr.contains("process"), || out.stderr.clone())?;
    home.ok(&["threads", "show", &thread]);
    running.signal(rustix::process::Signal::TERM);
    let out = running.end();
    ensure(out.status.code() == Some(143), || format!("{} {}", out.status, out.stderr))
}

fn not_a_database() -> Found {
    for bytes in [
        &b"hello world\n".repeat(1000)[..],
        b"S",
        &[0; 4096],
        b"SQLite format 3\0",
        &b"SQLite format 3\0".repeat(64),
    ] {
        let home = used();
        std::fs::write(file(&home), bytes).expect("written");
        refused(&home, 1, &["aye.db"]).map_err(|e| format!("{} bytes: {e}", bytes.len()))?;
    }
    Ok(())
}

fn other_program() -> Found {
    let home = used();
    std::fs::remove_file(file(&home)).expect("removed");
    Connection::open(file(&home))
        .expect("a database")
        .execute_batch("CREATE TABLE t(x); PRAGMA application_id = 7;")
        .expect("created");
    refused(&home, 1, &["aye.db", "another program"])
}

fn truncated() -> Found {
    let home = used();
    let handle = std::fs::OpenOptions::new().write(true).open(file(&home)).expect("open");
    handle.set_len(handle.metadata().expect("exists").len() / 2).expect("truncated");
    refused(&home, 1, &["damaged"])
}

fn corrupt() -> Found {
    use std::os::unix::fs::FileExt as _;
    let home = used();
    let handle = std::fs::OpenOptions::new().write(true).open(file(&home)).expect("open");
    handle.write_all_at(&[0xff; 12288], 8192).expect("written");
    let out = home.aye(&["threads", "list"]).run();
    ensure(out.status.code() == Some(1) && out.stderr.contains("damaged"), || {
        format!("{} {}", out.status, out.stderr)
    })?;
    let out = home.aye(&["doctor"]).run();
    ensure(out.status.code() == Some(1) && out.stdout.contains("error"), || {
        format!("{} {}", out.status, out.stdout)
    })
}

fn garbage_beside() -> Found {
    for suffix in ["-wal", "-shm", "-journal"] {
        let home = used();
        std::fs::write(format!("{}{suffix}", file(&home).display()), "garbage".repeat(5000))
            .expect("written");
        let out = home.aye(&["threads", "list", "--json"]).run();
        match out.status.code() {
            Some(0) => {
                ensure(out.json().as_array().is_some_and(|list| list.len() == 1), || out.stdout.clone())?;
            }
            Some(1) => ensure(out.stderr.contains("aye.db"), || out.stderr.clone())?,
            _ => return Err(format!("{suffix}: {} {}", out.status, out.stderr)),
        }
    }
    Ok(())
}

fn locked() -> Found {
    let home = used();
    let conn = Connection::open(file(&home)).expect("a database");
    conn.execute_batch("BEGIN EXCLUSIVE").expect("locked");
    let out: Out = home.aye(&["-p", "help"]).run();
    let holder = format!("process {}", std::process::id());
    ensure(
        out.status.code() == Some(1) && out.stderr.contains("locked") && out.stderr.contains(&holder),
        || format!("{} {}", out.status, out.stderr),
    )?;
    conn.execute_batch("ROLLBACK").expect("free");
    home.ok(&["-p", "help"]);
    Ok(())
}

fn code_in_the_schema() -> Found {
    let home = used();
    Connection::open(file(&home))
        .expect("a database")
        .execute_batch("CREATE TRIGGER x AFTER INSERT ON message BEGIN DELETE FROM message; END")
        .expect("created");
    refused(&home, 1, &["trigger"])
}

/// A file that may not grow, like a full disk: an error, not a signal, and nothing reported as done.
fn no_space() -> Found {
    for blocks in ["0", "8", "64", "160"] {
        let home = if blocks == "160" { used() } else { Home::new() };
        let env = home.env();
        let script = format!("ulimit -f {blocks}; exec \"$0\" -p help");
        let out = std::process::Command::new("bash")
            .args(["-c", &script, env!("CARGO_BIN_EXE_aye")])
            .env_clear()
            .envs(env)
            .current_dir(home.work())
            .output()
            .expect("runs");
        let text = String::from_utf8_lossy(&out.stderr);
        ensure(out.status.code().is_some() && !text.contains("panicked"), || {
            format!("{blocks}: {} {text}", out.status)
        })?;
        if blocks == "0" || blocks == "8" {
            ensure(out.status.code() == Some(1) && !text.is_empty(), || {
                format!("{blocks}: {} {text}", out.status)
            })?;
        }
        home.ok(&["-p", "help"]);
    }
    Ok(())
}

fn folder_is_a_file() -> Found {
    let home = Home::new();
    std::fs::write(home.root().join("aye/data"), "x").expect("written");
    let out = home.aye(&["-p", "help"]).run();
    ensure(out.status.code() == Some(1) && out.stderr.contains("data"), || {
        format!("{} {}", out.status, out.stderr)
    })
}

fn ephemeral() -> Found {
    let home = Home::new();
    home.ok(&["-p", "help", "--ephemeral"]);
    ensure(!file(&home).exists(), || "a store was created".into())
}

fn two_starts_at_once() -> Found {
    let home = Home::new();
    let running: Vec<_> = (0..4).map(|_| home.aye(&["-p", "help"]).spawn()).collect();
    for one in running {
        let out = one.end();
        ensure(out.status.code() == Some(0), || format!("{} {}", out.status, out.stderr))?;
    }
    let out = home.ok(&["threads", "list", "--json"]);
    ensure(out.json().as_array().is_some_and(|list| list.len() == 4), || out.stdout.clone())
}
