//! The store as a file: backups, restoring, pruning, exported and imported conversations, a vanished file.

use std::path::PathBuf;

use rusqlite::Connection;

use crate::support::home::{Home, id_of};
use crate::support::http::Server;
use crate::support::llm::{Answer, MockLlm};

const TOUCH: &str = "echo ran >> log.txt";

fn file(home: &Home) -> PathBuf {
    home.root().join("aye/data/aye.db")
}

fn bytes(home: &Home) -> Vec<u8> {
    let wal = PathBuf::from(format!("{}-wal", file(home).display()));
    [std::fs::read(file(home)).unwrap_or_default(), std::fs::read(wal).unwrap_or_default()].concat()
}

fn holds(home: &Home, words: &str) -> bool {
    bytes(home).windows(words.len()).any(|window| window == words.as_bytes())
}

#[test]
fn a_run_finished_by_another_process_returns_its_answer() {
    let llm = MockLlm::answers([Answer::say("I will.").bash("c1", TOUCH), Answer::say("It is done.")]);
    let home = Home::with(&llm);
    home.aye(&["-p", "go"]).run().exits(3);
    let thread = home.thread();
    home.ok(&["approve", &home.question(), "--resume"]);
    let out = home.ok(&["-r", &thread, "-p"]);
    assert_eq!(out.stdout, "It is done.\n");
    assert!(out.stderr.contains("already done"), "{}", out.stderr);
    let out = home.ok(&["-r", &thread, "-p", "--output-format", "json"]).json();
    assert_eq!((&out["status"], &out["response"]), (&"done".into(), &"It is done.".into()));
    assert_eq!(home.read("log.txt"), "ran\n");
}

#[test]
fn a_restored_decision_does_not_run_its_call_again() {
    let llm = MockLlm::answers([
        Answer::say("I will.").bash("c1", TOUCH),
        Answer::say("It is done."),
        Answer::say("I looked."),
    ]);
    let home = Home::with(&llm);
    home.aye(&["-p", "go"]).run().exits(3);
    let thread = home.thread();
    home.ok(&["approve", &home.question()]);
    home.ok(&["store", "backup", "copy.db"]);
    home.ok(&["-r", &thread, "-p"]);
    assert_eq!(home.read("log.txt"), "ran\n");
    let out = home.ok(&["store", "restore", "copy.db"]);
    assert!(out.stdout.contains("restored 1 conversation"), "{}", out.stdout);
    assert!(out.stderr.contains("1 call may have run"), "{}", out.stderr);
    home.ok(&["audit", "--verify"]);
    home.ok(&["store", "check"]);
    let out = home.ok(&["-r", &thread, "-p"]);
    assert_eq!(out.stdout, "I looked.\n");
    assert_eq!(home.read("log.txt"), "ran\n", "ran once");
    assert!(llm.last().result("c1").contains("may have run"), "{}", llm.last().result("c1"));
    // The previous store is kept.
    let kept = std::fs::read_dir(home.root().join("aye/data"))
        .expect("a folder")
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().contains("before-restore"))
        .count();
    assert!(kept >= 1);
    // An invalid backup changes nothing.
    home.write("junk.db", &"junk".repeat(1000));
    home.aye(&["store", "restore", "junk.db"]).run().exits(1);
    assert_eq!(home.thread(), thread);
}

#[test]
fn a_store_that_another_process_has_open_is_not_replaced() {
    let home = Home::new();
    home.ok(&["-p", "help"]);
    home.ok(&["store", "backup", "copy.db"]);
    let server = Server::start(&home, &[]);
    let out = home.aye(&["store", "restore", "copy.db"]).run().exits(1);
    assert!(
        out.stderr.contains("another process has the store open") && out.stderr.contains("nothing changed")
    );
    assert_eq!(server.get("/v1/threads").status, 200);
    server.stop();
    home.ok(&["store", "restore", "copy.db"]);
}

#[test]
fn a_vanished_store_is_not_replaced_silently() {
    let home = Home::new();
    home.ok(&["-p", "help"]);
    home.ok(&["store", "backup", "copy.db"]);
    for suffix in ["", "-wal", "-shm", "-mark"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", file(&home).display()));
    }
    let refuses = || {
        for args in [&["-p", "help"][..], &["inbox"], &["threads", "list"]] {
            let out = home.aye(args).run().exits(1);
            assert!(
                out.stderr.contains("is missing or empty") && out.stderr.contains("store restore"),
                "{}",
                out.stderr
            );
        }
    };
    refuses();
    assert!(!file(&home).exists(), "nothing was created in its place");
    // A full disk or a stray `>` leaves a file without a byte.
    std::fs::write(file(&home), "").expect("written");
    refuses();
    assert_eq!(std::fs::metadata(file(&home)).map(|file| file.len()).ok(), Some(0));
    home.ok(&["store", "restore", "copy.db"]);
    assert_eq!(home.ok(&["threads", "list", "--json"]).json().as_array().map(Vec::len), Some(1));
    // An empty store is created only on request.
    std::fs::remove_file(file(&home)).expect("exists");
    std::fs::remove_file(home.root().join("aye/config/stores")).expect("exists");
    assert_eq!(home.ok(&["threads", "list", "--json"]).json().as_array().map(Vec::len), Some(0));
}

#[test]
fn a_deleted_conversation_leaves_the_file_and_is_restored_from_its_export() {
    let secret = "xyzzy-plugh-4711";
    let llm = MockLlm::answers([Answer::say(&format!("You said {secret}."))]);
    let home = Home::with(&llm);
    home.ok(&["-p", &format!("remember {secret}")]);
    let thread = home.thread();
    let found = home.ok(&["threads", "search", &secret.to_uppercase()]).stdout;
    assert!(found.contains(&thread) && found.contains(secret), "{found}");
    let shown = home.ok(&["threads", "show", &thread]).stdout;
    let exported = home.ok(&["threads", "export", &thread, "--format", "json"]);
    assert!(
        exported.json()["messages"].as_array().is_some_and(|said| said.len() == 2),
        "{}",
        exported.stdout
    );
    home.write("export.json", &exported.stdout);
    assert!(holds(&home, secret));
    home.ok(&["threads", "delete", &thread]);
    assert!(!holds(&home, secret), "it is still in the file");
    home.ok(&["audit", "--verify"]);
    let out = home.ok(&["threads", "import", "export.json"]);
    assert_eq!(out.stdout.trim(), thread);
    assert_eq!(home.ok(&["threads", "show", &thread]).stdout, shown);
    assert_eq!(home.ok(&["threads", "export", &thread, "--format", "json"]).stdout, exported.stdout);
    home.aye(&["threads", "import", "export.json"]).run().exits(1);
    home.aye(&["threads", "import", "nothing.json"]).run().exits(1);
    home.ok(&["store", "check"]);
    home.ok(&["audit", "--verify"]);
    home.ok(&["-r", &thread, "-p", "and now?"]);
}

#[test]
fn a_pending_question_is_restored_with_its_conversation() {
    let llm = MockLlm::answers([Answer::say("I will.").bash("c1", TOUCH), Answer::say("It is done.")]);
    let home = Home::with(&llm);
    home.aye(&["-p", "go"]).run().exits(3);
    let (thread, question) = (home.thread(), home.question());
    let exported = home.ok(&["threads", "export", &thread, "--format", "json"]).stdout;
    home.write("export.json", &exported);
    // The export of an older version has no questions.
    let mut older: serde_json::Value = serde_json::from_str(&exported).expect("JSON");
    assert!(older.as_object_mut().is_some_and(|members| members.remove("suspensions").is_some()));
    home.write("older.json", &older.to_string());
    home.ok(&["threads", "delete", &thread]);
    home.ok(&["threads", "import", "older.json"]);
    assert_eq!(home.open().len(), 0, "its run has ended here");
    home.ok(&["threads", "delete", &thread]);
    let out = home.ok(&["threads", "import", "export.json"]);
    assert!(out.stderr.contains("1 question is pending"), "{}", out.stderr);
    assert_eq!(home.question(), question);
    assert_eq!(home.ok(&["threads", "export", &thread, "--format", "json"]).stdout, exported);
    home.ok(&["store", "check"]);
    home.ok(&["approve", &question, "--resume"]);
    assert_eq!(home.read("log.txt"), "ran\n");
    home.ok(&["audit", "--verify"]);
    assert_eq!(home.ok(&["-r", &thread, "-p"]).stdout, "It is done.\n");
}

#[test]
fn a_decided_call_of_an_import_may_have_run_elsewhere() {
    let llm = MockLlm::answers([
        Answer::say("I will.").bash("c1", TOUCH),
        Answer::say("It is done."),
        Answer::say("I looked."),
    ]);
    let home = Home::with(&llm);
    home.aye(&["-p", "go"]).run().exits(3);
    let thread = home.thread();
    home.ok(&["approve", &home.question()]);
    home.write("export.json", &home.ok(&["threads", "export", &thread, "--format", "json"]).stdout);
    home.ok(&["-r", &thread, "-p"]);
    home.ok(&["threads", "delete", &thread]);
    let out = home.ok(&["threads", "import", "export.json"]);
    assert!(out.stderr.contains("1 call may have run since the export"), "{}", out.stderr);
    home.ok(&["audit", "--verify"]);
    home.ok(&["store", "check"]);
    assert_eq!(home.ok(&["-r", &thread, "-p"]).stdout, "I looked.\n");
    assert_eq!(home.read("log.txt"), "ran\n", "ran once");
    assert!(llm.last().result("c1").contains("may have run"), "{}", llm.last().result("c1"));
}

#[test]
fn an_approval_held_for_its_batch_may_have_run_since() {
    for answered in [1, 2] {
        let llm = MockLlm::answers([
            Answer::say("I will.").bash("c1", "echo one >> log.txt").bash("c2", "echo two >> log.txt"),
            Answer::say("It is done."),
            Answer::say("I looked."),
        ]);
        let home = Home::with(&llm);
        home.aye(&["-p", "go", "--on-ask", "suspend"]).run().exits(3);
        let thread = home.thread();
        let questions: Vec<String> = home.open().iter().map(id_of).collect();
        let approve = |at: usize| home.ok(&["approve", &questions[at]]);
        (0..answered).for_each(|at| drop(approve(at)));
        home.ok(&["store", "backup", "copy.db"]);
        (answered..2).for_each(|at| drop(approve(at)));
        home.ok(&["-r", &thread, "-p"]);
        let log = home.read("log.txt");
        assert_eq!(log.lines().count(), 2);
        let out = home.ok(&["store", "restore", "copy.db"]);
        let calls = if answered == 1 { "1 call may" } else { "2 calls may" };
        assert!(out.stderr.contains(calls), "{answered}: {}", out.stderr);
        home.ok(&["store", "check"]);
        if answered == 1 {
            assert!(
                out.stderr.contains("1 pending question was answered after the backup"),
                "{}",
                out.stderr
            );
            let why = home.ok(&["approvals", "show", &questions[1]]).stdout;
            assert!(why.contains("tester answered this after the backup, on "), "{why}");
            home.ok(&["deny", &questions[1]]);
        }
        assert_eq!(home.ok(&["-r", &thread, "-p"]).stdout, "I looked.\n", "{answered}");
        assert_eq!(home.read("log.txt"), log, "{answered}: nothing ran twice");
        home.ok(&["audit", "--verify"]);
    }
}

#[test]
fn pruning_removes_old_conversations_and_says_so() {
    let llm = MockLlm::answers([Answer::say("I will.").bash("c1", TOUCH)]);
    let home = Home::with(&llm);
    home.aye(&["-p", "waits"]).run().exits(3);
    let conn = Connection::open(file(&home)).expect("a database");
    conn.execute("UPDATE thread SET updated_at = 1", ()).expect("changed");
    for n in 0..3 {
        let id = format!("old-{n}");
        conn.execute(
            "INSERT INTO thread (id, title, cwd, created_at, updated_at) VALUES (?1, 'old', x'2f', 1, 1)",
            (&id,),
        )
        .expect("added");
    }
    drop(conn);
    home.aye(&["store", "prune"]).run().exits(2);
    let out = home.ok(&["store", "prune", "--older-than", "90d"]);
    assert!(out.stdout.contains("deleted 3 conversations"), "{}", out.stdout);
    let left = home.ok(&["threads", "list", "--json"]).json();
    assert_eq!(left.as_array().map(Vec::len), Some(1), "pending questions stay");
    home.ok(&["store", "prune", "--keep", "1KiB"]).says("still larger");
    assert_eq!(home.open().len(), 1);
    home.ok(&["audit", "--verify"]);
}

#[test]
fn a_headless_run_deletes_conversations_older_than_configured() {
    let home = Home::new();
    home.ok(&["-p", "help"]);
    home.ok(&["-p", "help"]);
    let conn = Connection::open(file(&home)).expect("a database");
    conn.execute("UPDATE thread SET updated_at = 1 WHERE id = (SELECT min(id) FROM thread)", ())
        .expect("changed");
    drop(conn);
    let count = || home.ok(&["threads", "list", "--json"]).json().as_array().map(Vec::len);
    home.ok(&["-p", "help"]);
    assert_eq!(count(), Some(3), "everything is kept by default");
    home.ok(&["-p", "help", "--config", "threads.keep=\"90d\""]);
    assert_eq!(count(), Some(3), "one more, and the old one is gone");
}

#[test]
fn lists_take_a_limit_and_an_offset() {
    let home = Home::new();
    for _ in 0..3 {
        home.ok(&["-p", "help"]);
    }
    let ids = |args: &[&str]| -> Vec<String> {
        let list = home.ok(&[&["threads", "list", "--json"], args].concat()).json();
        let ids = list.as_array().expect("a list").iter();
        ids.map(|row| row["id"].as_str().expect("an id").to_owned()).collect()
    };
    let all = ids(&[]);
    assert_eq!(all.len(), 3);
    assert_eq!(ids(&["--limit", "2"]), all[..2]);
    assert_eq!(ids(&["--limit", "2", "--offset", "2"]), all[2..]);
    let text = home.ok(&["threads", "list", "--limit", "1", "--offset", "1"]).stdout;
    assert!(text.lines().count() == 1 && text.contains(&all[1]), "{text}");
    let found = home.ok(&["threads", "search", "help", "--json", "--limit", "2"]).json();
    assert_eq!(found.as_array().map(Vec::len), Some(2));
    home.aye(&["inbox", "--watch", "--limit", "1"]).run().exits(2);
    assert_eq!(home.ok(&["inbox", "--json", "--limit", "1"]).json().as_array().map(Vec::len), Some(0));
}

#[test]
fn a_moved_project_is_found_by_its_first_commit() {
    let llm = MockLlm::answers([Answer::say("One."), Answer::say("Two."), Answer::say("Three.")]);
    let home = Home::with(&llm);
    let git = |folder: &str, args: &[&str]| {
        let done = std::process::Command::new("git")
            .args(["-c", "user.name=a", "-c", "user.email=a@b"])
            .args(args)
            .current_dir(home.root().join(folder))
            .env("HOME", home.root().join("home"))
            .output()
            .expect("git");
        assert!(done.status.success(), "{done:?}");
    };
    std::fs::create_dir(home.root().join("work/old")).expect("a folder");
    git("work/old", &["init", "-q"]);
    git("work/old", &["commit", "-q", "--allow-empty", "-m", "first"]);
    home.ok(&["-C", "old", "-p", "hi"]);
    let thread = home.thread();
    // A copy is another project while the old one exists.
    git("work", &["clone", "-q", "old", "new"]);
    home.aye(&["-C", "new", "-c", "-p", "go on"]).run().exits(2);
    std::fs::rename(home.root().join("work/old"), home.root().join("old")).expect("moved");
    let out = home.ok(&["-C", "new", "-c", "-p", "go on"]);
    assert!(
        out.stderr.contains("was moved") && out.stderr.contains("trust and grants did not"),
        "{}",
        out.stderr
    );
    assert_eq!((out.stdout.as_str(), home.thread()), ("Two.\n", thread));
    let out = home.ok(&["-C", "new", "-c", "-p", "and on"]);
    assert!(!out.stderr.contains("was moved"), "reported once: {}", out.stderr);
}

/// Returns how many commits are in the log of the store, and the bytes that they wrote there.
fn written(home: &Home) -> (usize, usize) {
    let log = std::fs::read(format!("{}-wal", file(home).display())).expect("a short log is kept");
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().expect("four bytes")) as usize;
    let size = 24 + number(&log[8..12]);
    let frames: Vec<&[u8]> =
        log[32..].chunks_exact(size).take_while(|frame| frame[8..16] == log[16..24]).collect();
    // The last page of a commit says how many the file has.
    (frames.iter().filter(|frame| number(&frame[4..8]) > 0).count(), frames.len() * size)
}

#[test]
fn a_turn_with_a_command_writes_little() {
    const TURNS: usize = 3;
    let turn = || [Answer::say("I will.").bash("c1", TOUCH), Answer::say("It is done.")];
    let llm = MockLlm::answers((0..=TURNS).flat_map(|_| turn()));
    let home = Home::with(&llm);
    home.ok(&["--permission-mode", "yolo", "-p", "go"]);
    // A reader keeps the log, however long it is.
    let reader = Connection::open(file(&home)).expect("opens");
    reader.execute_batch("BEGIN; SELECT 1 FROM thread").expect("reads");
    let before = written(&home);
    for _ in 0..TURNS {
        home.ok(&["--permission-mode", "yolo", "-c", "-p", "go on"]);
    }
    let after = written(&home);
    let (commits, bytes) = ((after.0 - before.0) / TURNS, (after.1 - before.1) / TURNS);
    assert_eq!(commits, 5, "the lease, the message, the start of the call, its outcome, the end");
    // Without the pages by which the file grows now and then, it is 35 pages of 2 KiB.
    assert!(bytes <= 110_000, "{bytes} bytes in a turn");
}
