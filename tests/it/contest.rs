//! Three concurrent processes repeatedly answer the same questions and drive the same run, each as if it were
//! alone. They are killed, and stopped for longer than a lease. The result is read from the store's history:
//! one answer per question, at most one execution per answer, nothing written by an owner that lost the
//! thread.
//!
//! `AYE_CONTEST=1000 cargo test --features failpoints --test it contest` for more calls, `AYE_SEED` to repeat
//! a seed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use rusqlite::{Connection, OpenFlags};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::home::{Home, Out};
use crate::support::llm::{Answer, Chat, MockLlm};
use crate::support::random::{number_of, seed};

const CONTESTANTS: u64 = 3;
/// Calls per answer of the model.
const TURN: usize = 20;
const LEASE_MS: u64 = 500;

fn name(n: usize) -> String {
    format!("c{n:04}")
}

/// A model that makes all the calls, some at a time, based on the results it sees.
fn model(calls: usize) -> MockLlm {
    MockLlm::by(move |chat: &Chat| {
        let known = chat.results().len();
        if known >= calls {
            return Answer::say("Finished.");
        }
        (known..calls.min(known + TURN)).map(name).fold(Answer::say("More."), |answer, id| {
            answer.bash(&id, &format!("echo {id} >> log.txt; sleep 0.1; echo {id} ran"))
        })
    })
}

/// An answer that a process reported as accepted.
#[derive(Clone, Debug)]
struct Taken {
    question: String,
    allows: bool,
    pid: u32,
}

/// Counts of events.
#[derive(Clone, Debug, Default)]
struct Tally {
    taken: Vec<Taken>,
    too_late: usize,
    kills: usize,
    pauses: usize,
    fenced: usize,
    busy: usize,
    wakes: usize,
}

struct Contest {
    home: Home,
    llm: MockLlm,
    thread: String,
    done: AtomicBool,
    tally: Mutex<Tally>,
    diary: Mutex<Vec<String>>,
}

enum Trouble {
    None,
    Kill(Duration),
    Die(String),
    Pause(Duration, Duration),
    /// Stops at this failpoint, and resumes after this time.
    Stop(String, Duration),
}

fn open(home: &Home) -> Connection {
    let path = home.root().join("aye/data/aye.db");
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).expect("the store");
    connection.busy_timeout(Duration::from_secs(10)).expect("succeeds");
    connection
}

fn rows<T>(store: &Connection, sql: &str, of: impl Fn(&rusqlite::Row<'_>) -> rusqlite::Result<T>) -> Vec<T> {
    let mut statement = store.prepare_cached(sql).expect("a query");
    let rows = statement.query_map((), |row| of(row)).expect("rows");
    rows.collect::<Result<_, _>>().expect("rows")
}

impl Contest {
    fn questions(store: &Connection, status: &str) -> Vec<String> {
        rows(
            store,
            &format!("SELECT id FROM suspension WHERE status {status} ORDER BY n DESC LIMIT 40"),
            |row| row.get(0),
        )
    }

    fn trouble(dice: &mut Rng, what: &str, places: &[&str], length: u64) -> Trouble {
        // Longer than a lease, and often longer than two.
        let pause = Duration::from_millis(LEASE_MS * 6 / 5 + dice.u64(..LEASE_MS * 2));
        let after = Duration::from_millis(dice.u64(..length));
        let has_places = cfg!(feature = "failpoints");
        let place = dice.choice(places).expect("a place");
        match dice.u64(..20) {
            0 | 1 => Trouble::Kill(after),
            2 | 3 if has_places => {
                let when = dice.choice(&["before", "after"]).expect("one");
                Trouble::Die(format!("store.{place}.{when}:{}", 1 + dice.u64(..6)))
            }
            4 | 5 => Trouble::Pause(after, pause),
            // Not before a commit: that would only block all others on the same lock.
            6..=8 if has_places && what == "wake" => {
                Trouble::Stop(format!("store.{place}.after:{}", 1 + dice.u64(..6)), pause)
            }
            _ => Trouble::None,
        }
    }

    /// Runs the program with trouble. `None` if it was killed.
    fn run(&self, args: &[&str], trouble: &Trouble) -> (u32, Option<Out>) {
        let mut aye = self.home.aye(args);
        match trouble {
            Trouble::Die(place) => aye = aye.env("AYE_FAILPOINT", place),
            Trouble::Stop(place, _) => aye = aye.env("AYE_FAILPOINT", &format!("stop:{place}")),
            Trouble::None | Trouble::Kill(_) | Trouble::Pause(..) => {}
        }
        let mut run = aye.spawn();
        let pid = run.pid();
        match trouble {
            Trouble::Kill(after) => run.kill_after(*after),
            Trouble::Pause(after, length) => {
                run.pause(*after, *length);
                self.tally.lock().expect("not poisoned").pauses += 1;
            }
            Trouble::Stop(_, length) => {
                let stopped = run.until_stopped();
                if stopped {
                    std::thread::sleep(*length);
                    run.signal(Signal::CONT);
                }
                self.tally.lock().expect("not poisoned").pauses += usize::from(stopped);
            }
            Trouble::None | Trouble::Die(_) => {}
        }
        let out = run.end();
        let line = format!("{pid}: aye {}: {} {}", args.join(" "), out.status, out.stderr.trim());
        self.diary.lock().expect("not poisoned").push(line);
        if out.was_killed() {
            self.tally.lock().expect("not poisoned").kills += 1;
            return (pid, None);
        }
        (pid, Some(out))
    }

    fn decide(&self, dice: &mut Rng, question: String) {
        let allows = dice.u64(..2) == 0;
        let trouble = Self::trouble(dice, "decide", &["decide"], 60);
        let word = if allows { "approve" } else { "deny" };
        let (pid, out) = self.run(&["approvals", word, &question], &trouble);
        let Some(out) = out else { return };
        let mut tally = self.tally.lock().expect("not poisoned");
        if out.status.success() {
            tally.taken.push(Taken { question, allows, pid });
        } else {
            assert!(out.stderr.contains("already decided by tester"), "{out:?}");
            tally.too_late += 1;
        }
    }

    fn wake(&self, dice: &mut Rng) {
        let trouble = Self::trouble(dice, "wake", &["checkpoint", "begin"], 400);
        let (_, out) = self.run(&["-r", &self.thread, "-p", "--output-format", "json"], &trouble);
        let Some(out) = out else { return };
        let mut tally = self.tally.lock().expect("not poisoned");
        match out.status.code() {
            Some(0) => {
                assert_eq!(out.json()["response"], "Finished.");
                self.done.store(true, Ordering::SeqCst);
            }
            Some(3) => tally.wakes += 1,
            Some(1) if out.stderr.contains("is running thread") => tally.busy += 1,
            Some(1) if out.stderr.contains("was taken over by another process") => tally.fenced += 1,
            Some(2) if out.stderr.contains("nothing to resume") => {
                self.done.store(true, Ordering::SeqCst);
            }
            _ => panic!("{out:?}"),
        }
    }

    /// A contestant that answers pending questions, and sometimes resumes the run.
    fn contestant(&self, seed: u64, end: Instant) {
        let mut dice = Rng::with_seed(seed);
        let store = open(&self.home);
        while !self.done.load(Ordering::SeqCst) {
            assert!(Instant::now() < end, "it never ends");
            let mut asked = Self::questions(&store, "= 'open'");
            if dice.u64(..8) == 0 {
                // Sometimes answer a question that was answered long ago.
                asked = Self::questions(&store, "IN ('decided', 'applied')");
            }
            match dice.choice(&asked) {
                Some(question) if dice.u64(..4) > 0 => self.decide(&mut dice, question.clone()),
                _ => self.wake(&mut dice),
            }
        }
    }
}

/// A question as finally stored.
#[derive(Debug)]
struct Asked {
    id: String,
    status: String,
    decision: Value,
    by: Value,
}

fn json(text: Option<String>) -> Value {
    text.map_or(Value::Null, |text| serde_json::from_str(&text).expect("JSON"))
}

/// Checks the history and returns the violations.
fn judge(store: &Connection, log: &str, calls: usize, tally: &Tally) -> (Vec<String>, String) {
    let mut wrong = Vec::new();
    let mut asked: BTreeMap<String, Vec<Asked>> = BTreeMap::new();
    let sql = "SELECT call_id, id, status, decision, decided_by FROM suspension";
    for (call, question) in rows(store, sql, |row| {
        let question = Asked {
            id: row.get(1)?,
            status: row.get(2)?,
            decision: json(row.get(3)?),
            by: json(row.get(4)?),
        };
        Ok((row.get::<_, String>(0)?, question))
    }) {
        asked.entry(call).or_default().push(question);
    }
    let intents: Vec<(String, u32, Option<String>, String)> =
        rows(store, "SELECT call_id, attempt, kind, coalesce(outcome, '') FROM intent", |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        });
    let audit: Vec<(String, String, Value)> =
        rows(store, "SELECT kind, coalesce(call_id, ''), body FROM audit ORDER BY n", |row| {
            Ok((row.get(0)?, row.get(1)?, json(row.get(2)?)))
        });

    let mut yes = 0;
    for n in 0..calls {
        let call = name(n);
        let Some([question]) = asked.get(&call).map(Vec::as_slice) else {
            wrong.push(format!("{call} was asked {:?}", asked.get(&call)));
            continue;
        };
        let decisions: Vec<_> =
            audit.iter().filter(|(kind, about, _)| kind == "decided" && *about == call).collect();
        if decisions.len() != 1 || question.status != "applied" {
            wrong.push(format!("{call} is {} with the decisions {decisions:?}", question.status));
        }
        let decision = &question.decision["decision_id"];
        if decisions.iter().any(|(_, _, body)| body["decision"] != *decision) {
            wrong.push(format!("{call}: {decisions:?} in the audit, {question:?} in its row"));
        }
        let allows = question.decision["action"] == "resume";
        yes += usize::from(allows);
        let taken: Vec<_> = tally.taken.iter().filter(|taken| taken.question == question.id).collect();
        if taken.len() > 1 {
            wrong.push(format!("several decisions of {call} were accepted: {taken:?}"));
        }
        for taken in taken {
            if taken.allows != allows || question.by["pid"] != taken.pid {
                wrong.push(format!("{taken:?} was acknowledged, and {question:?} is stored"));
            }
        }
        let begun: Vec<_> =
            audit.iter().filter(|(kind, about, _)| kind == "began" && *about == call).collect();
        let started: Vec<_> = intents.iter().filter(|(id, ..)| *id == call).collect();
        if begun.len() != started.len() || started.len() != usize::from(allows) {
            wrong.push(format!("{call} (allowed: {allows}) was started {started:?}, by the audit {begun:?}"));
        }
        if begun.iter().any(|(_, _, body)| body["decision"] != *decision) {
            wrong.push(format!("{call} started under another decision than {decision}: {begun:?}"));
        }
        let lines = log.lines().filter(|line| *line == call).count();
        let fits = match started.first() {
            None => lines == 0,
            // It was too late to start, and nothing was started.
            Some((_, _, Some(kind), outcome))
                if kind == "returned" && outcome.contains("too late: another") =>
            {
                lines == 0
            }
            Some((_, _, Some(kind), _)) if kind == "returned" => lines == 1,
            Some((_, _, Some(_), _)) => lines <= 1,
            Some((_, _, None, _)) => false,
        };
        if !fits {
            wrong.push(format!("{call} ran {lines} times: {started:?}"));
        }
    }
    // Writers under a lease store its epoch: it never decreases, and belongs to one process.
    let mut last = 0;
    let mut owners: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
    for (kind, call, body) in audit.iter().filter(|(kind, ..)| kind == "began" || kind == "ended") {
        let epoch = body["epoch"].as_u64().unwrap_or(0);
        if epoch < last {
            wrong.push(format!("{call} {kind} under epoch {epoch}, after epoch {last}"));
        }
        last = epoch;
        if kind == "began" {
            owners.entry(epoch).or_default().insert(body["pid"].to_string());
        }
    }
    for (epoch, pids) in owners.iter().filter(|(_, pids)| pids.len() > 1) {
        wrong.push(format!("epoch {epoch} had several owners: {pids:?}"));
    }
    let unknown = intents.iter().filter(|(_, _, kind, _)| kind.as_deref() == Some("unknown")).count();
    let late = intents.iter().filter(|(.., outcome)| outcome.contains("too late: another")).count();
    let said = format!(
        "{calls} calls: {} decided ({} acknowledged), {yes} allowed, {} lines in the file, {unknown} with an unknown \
         outcome, {late} too late to start; {} answers too late, {} kills, {} pauses, {} wake-ups, {} busy, \
         {} fenced, {last} owners",
        audit.iter().filter(|(kind, ..)| kind == "decided").count(),
        tally.taken.len(),
        log.lines().count(),
        tally.too_late,
        tally.kills,
        tally.pauses,
        tally.wakes,
        tally.busy,
        tally.fenced,
    );
    (wrong, said)
}

#[test]
fn three_processes_decide_the_same_calls_once() {
    let calls = number_of("AYE_CONTEST").unwrap_or(60) as usize;
    let seed = seed();
    let llm = model(calls);
    let home = Home::with(&llm);
    let config = home.root().join("aye/config/config.toml");
    let text = std::fs::read_to_string(&config).expect("settings");
    let text = text.replace("[stop]\n", "[stop]\nconsecutive_errors = 0\n");
    home.config(&format!("lease = \"{LEASE_MS}ms\"\nmax_turns = 0\n{text}"));
    home.aye(&["-p", "do it"]).run().exits(3);
    let thread = home.thread();
    let (done, tally, diary) = (AtomicBool::new(false), Mutex::default(), Mutex::default());
    let contest = Contest { home, llm, thread, done, tally, diary };
    let began = Instant::now();
    // Only a hanging contest takes this long.
    let end = began + Duration::from_secs(120 + 5 * calls as u64);
    let played = std::thread::scope(|scope| {
        let players: Vec<_> = (1..=CONTESTANTS)
            .map(|n| {
                let contest = &contest;
                scope.spawn(move || {
                    let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                        contest.contestant(seed.wrapping_mul(2 * n + 1), end);
                    }));
                    contest.done.store(true, Ordering::SeqCst);
                    played.is_ok()
                })
            })
            .collect();
        players.into_iter().map(|player| player.join().unwrap_or(false)).collect::<Vec<_>>()
    });
    let diary = contest.diary.lock().expect("not poisoned").join("\n");
    let diary_file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("contest-{seed}.txt"));
    std::fs::write(&diary_file, &diary).expect("written");
    let tally = contest.tally.lock().expect("not poisoned").clone();
    let (wrong, said) = judge(&open(&contest.home), &contest.home.read("log.txt"), calls, &tally);
    println!("{said} in {:?}", began.elapsed());
    assert!(played.iter().all(|fine| *fine), "a contestant failed; see {}", diary_file.display());
    assert!(wrong.is_empty(), "see {}: {wrong:#?}", diary_file.display());
    contest.home.ok(&["audit", "--verify"]);
    // In a short contest on a fast machine all kills may come after their process has ended.
    assert!(calls < 500 || tally.pauses > 0 && tally.kills > 0, "{said}");
    // The model always saw complete conversations, and finally knows a result of each call. The last request
    // need not be the fullest: an owner stopped just before its request sends it after resuming, and loses
    // the thread only with the answer.
    let most = contest.llm.asked().iter().map(|chat| chat.results().len()).max();
    assert_eq!(most, Some(calls));
    std::fs::remove_file(diary_file).expect("removed");
}
