//! Random kills: `scripts/faults` runs many more of them. They hit headless runs and answers of other processes; the front
//! ends that stay: the server, the worker, ACP and the terminal; runs that a client of A2A or MCP starts; and commands
//! in the background.

use std::time::Duration;

use fastrand::Rng;
use serde_json::json;

use crate::support::home::Home;
use crate::support::http::Server;
use crate::support::llm::{Answer, Chat, MockLlm, until};
use crate::support::operator::{Operator, Plan, Step, Trouble, Way};
use crate::support::random::{number_of, seed};

const FIRST: Plan = &[("c1", true), ("c2", false), ("c3", true)];
const SECOND: Plan = &[("d1", true), ("d2", false), ("bg", true)];
const PLACES: [&str; 6] = [
    "store.checkpoint.before",
    "store.checkpoint.after",
    "store.begin.before",
    "store.begin.after",
    "store.decide.before",
    "store.decide.after",
];

/// Front ends that stay until they are killed. Without arguments it is the terminal.
const VISITORS: [&[&str]; 4] = [&["serve", "--bind", "127.0.0.1:0"], &["work"], &["acp"], &[]];
/// The longest visit.
const VISIT: Duration = Duration::from_millis(600);

#[test]
fn a_hundred_random_kills_lose_no_decision_and_repeat_no_command() {
    let kills = number_of("AYE_KILLS").unwrap_or(100) as usize;
    let mut dice = Rng::with_seed(seed());
    let (mut deaths, mut stories, mut served) = (0, 0, [0; 2]);
    while deaths < kills {
        let mut story = Operator::new(FIRST, SECOND);
        for _ in 0..40 {
            let mut step = story.next();
            if dice.u64(..3) == 0 {
                story.fold_log();
            }
            if step == Step::Done || deaths + story.deaths >= kills {
                break;
            }
            // Resuming before everything is answered is fine too.
            if step == Step::Decide && dice.u64(..5) == 0 {
                step = Step::Resume;
            }
            let trouble = if cfg!(feature = "failpoints") && dice.u64(..2) == 0 {
                let place = PLACES[dice.usize(..PLACES.len())];
                Trouble::At(format!("{place}:{}", 1 + dice.u64(..5)))
            } else if step == Step::Decide {
                Trouble::After(Duration::from_millis(dice.u64(..60)))
            } else {
                Trouble::After(Duration::from_millis(dice.u64(..300)))
            };
            if dice.u64(..4) == 0 && story.has_started() {
                let visitor = VISITORS[dice.usize(..VISITORS.len())];
                story.visit(visitor, &trouble, VISIT);
            } else if step == Step::Say {
                story.say([Way::Print, Way::Mcp, Way::A2a][dice.usize(..3)], &trouble);
            } else {
                story.take(step, &trouble);
            }
        }
        story.finish();
        deaths += story.deaths;
        stories += 1;
        for (count, way) in served.iter_mut().zip([Way::Mcp, Way::A2a]) {
            *count += usize::from(story.began == Some(way));
        }
    }
    println!("{deaths} kills in {stories} stories; of these, {served:?} began with MCP and A2A");
}

/// The calls by which a store is written, and how they fail.
const FAULTS: [&str; 6] = [
    "pwrite64:error=ENOSPC",
    "pwrite64:error=EIO",
    "fdatasync:error=EIO",
    "fsync:error=EIO",
    "ftruncate:error=EIO",
    "pread64:error=EIO",
];

/// `scripts/faults` runs it with more of them.
#[test]
#[ignore = "needs strace"]
fn failing_writes_lose_no_decision_and_repeat_no_command() {
    let faults = number_of("AYE_FAULTS").unwrap_or(20) as usize;
    let mut dice = Rng::with_seed(seed());
    let (mut seen, mut stories) = (0, 0);
    while seen < faults {
        let mut story = Operator::new(FIRST, SECOND);
        for _ in 0..20 {
            let step = story.next();
            if step == Step::Done || seen + story.faults >= faults {
                break;
            }
            let fault = FAULTS[dice.usize(..FAULTS.len())];
            // Once, or from there on: a disk that is full stays so for a while.
            let rest = if dice.bool() { "" } else { "+" };
            story.take(step, &Trouble::Fault(format!("{fault}:when={}{rest}", 1 + dice.u64(..60))));
        }
        story.finish();
        seen += story.faults;
        stories += 1;
    }
    println!("{seen} faults in {stories} stories");
}

/// A process that is killed when it syncs a new log leaves a header without a commit.
#[test]
fn a_header_that_a_kill_left_is_no_log() {
    let llm = MockLlm::by(|chat: &Chat| match chat.results().len() {
        0 if chat.body.to_string().contains("do it") => {
            Answer::say("I will.").bash("c1", "echo ran >> log.txt")
        }
        _ => Answer::say("It is done."),
    });
    let home = Home::with(&llm);
    home.ok(&["-p", "hello"]);
    let file = home.root().join("aye/data/aye.db");
    let conn = rusqlite::Connection::open(&file).expect("a database");
    let _: i64 = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |row| row.get(0)).expect("folded");
    drop(conn);
    std::fs::write(home.root().join("aye/data/aye.db-wal"), empty_log()).expect("written");
    let server = Server::start(&home, &[]);
    let reply = server.post("/v1/runs", &json!({ "text": "do it" }));
    let thread = reply.header("x-thread-id").expect("a conversation").to_owned();
    assert_eq!(server.approve(&server.card()).status, 200);
    for _ in 0..4 {
        home.ok(&["inbox"]);
        home.ok(&["-p", "hello"]);
    }
    until("the end", || server.get(&format!("/v1/threads/{thread}")).json()["status"] == "done");
    assert_eq!(home.read("log.txt"), "ran\n");
    server.stop();
    assert_eq!(home.ok(&["threads", "list", "--json"]).json().as_array().map(Vec::len), Some(6));
    home.ok(&["store", "check"]);
    home.ok(&["audit", "--verify"]);
}

/// The header of a log without a frame and without a checkpoint before it.
fn empty_log() -> Vec<u8> {
    let words = [0x377f_0682, 3_007_000, 4096, 0, 7, 9_u32];
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    let (mut one, mut two) = (0_u32, 0_u32);
    for pair in words.chunks(2) {
        one = one.wrapping_add(pair[0].swap_bytes()).wrapping_add(two);
        two = two.wrapping_add(pair[1].swap_bytes()).wrapping_add(one);
    }
    bytes.extend(one.to_be_bytes());
    bytes.extend(two.to_be_bytes());
    bytes
}
