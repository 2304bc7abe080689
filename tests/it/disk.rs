//! Full disks: what aye says, and that it works again once there is space. The disks are small file systems in memory,
//! each in a mount namespace of its own.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::support::home::Home;
use crate::support::http::Server;
use crate::support::llm::{Answer, Gate, MockLlm, until};

/// A shell script in which `$0` is the program and `$AYE_HOME/data` is a small disk.
const MOUNT: &str = "mount -t tmpfs -o mode=700,size=\"$SIZE\" tmpfs \"$AYE_HOME/data\" || exit 77";

/// Runs a script on a small disk.
fn on_small_disk(home: &Home, size: &str, script: &str) -> crate::support::home::Aye {
    std::fs::create_dir_all(home.root().join("aye/data")).expect("a folder");
    let script = format!("{MOUNT}\n{script}");
    home.program("unshare", &["-m", "sh", "-c", &script, env!("CARGO_BIN_EXE_aye")]).env("SIZE", size)
}

/// Whether this machine lets the test mount a disk.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn can_mount() -> bool {
    let can = on_small_disk(&Home::new(), "64k", "true").run().status.success();
    if !can {
        eprintln!("skipped: this user cannot mount a file system (root can)");
    }
    can
}

#[test]
fn a_store_made_on_a_full_disk_is_not_damaged() {
    if !can_mount() {
        return;
    }
    let mut refused = 0;
    for size in ["32k", "256k", "400k", "700k"] {
        let home = Home::new();
        let script = "\"$0\" -p help; echo \"first: $?\"\n\
                      ls -A \"$AYE_HOME/data\" | grep '^[.]aye-'\n\
                      mount -o remount,size=64m \"$AYE_HOME/data\"\n\
                      \"$0\" -p help && \"$0\" store check";
        let out = on_small_disk(&home, size, script).run();
        assert!(out.status.success() && !out.stderr.contains("damaged"), "{size}: {out:?}");
        assert!(!out.stdout.contains(".aye-"), "{size}: it leaves half a store: {}", out.stdout);
        if !out.stdout.contains("first: 0") {
            refused += 1;
            assert!(
                out.stdout.contains("first: 1") && out.stderr.contains("disk is full"),
                "{size}: {out:?}"
            );
        }
    }
    assert!(refused > 0, "none of the disks was too small");
}

/// Fills a disk to its last page.
fn fill(file: &Path) {
    let mut file = std::fs::File::create(file).expect("created");
    for length in [1 << 16, 1 << 12] {
        while file.write_all(&vec![1; length]).is_ok() {}
    }
}

#[test]
fn a_server_continues_when_the_disk_has_space_again() {
    if !can_mount() {
        return;
    }
    let gate = Gate::default();
    let llm = MockLlm::answers([
        Answer::new().text("I will.").bash("c1", "echo ran >> log.txt"),
        Answer::new().text("It is").wait(&gate).text(" done."),
    ]);
    let home = Home::with(&llm);
    let running = on_small_disk(&home, "12m", "exec \"$0\" serve --bind 127.0.0.1:0").spawn();
    running.until_told("within five minutes");
    let data =
        PathBuf::from(format!("/proc/{}/root{}", running.pid(), home.root().join("aye/data").display()));
    let server = Server::of(running, &data);
    let reply = server.post("/v1/runs", &json!({ "text": "do it" }));
    let thread = reply.header("x-thread-id").expect("a conversation").to_owned();
    assert_eq!(server.approve(&server.card()).status, 200);
    until("the second request", || llm.asked().len() == 2);
    let filler = data.join("filler");
    fill(&filler);
    // A full disk is said as what it is, and not as a failure of the server.
    let refused = server.post("/v1/runs", &json!({ "text": "more" }));
    assert_eq!((refused.status, refused.code()), (507, "disk_full".to_owned()), "{refused:?}");
    assert!(refused.body.contains("the disk is full; nothing was written"), "{refused:?}");
    gate.open();
    until("the failed write", || home.log().contains("a run failed"));
    let status = || server.get(&format!("/v1/threads/{thread}")).json()["status"].clone();
    assert_ne!(status(), "done");
    std::fs::remove_file(&filler).expect("removed");
    until("the end of the run", || status() == "done");
    assert_eq!(home.read("log.txt"), "ran\n", "ran once");
    server.stop();
}
