//! A user who restarts the program whenever it dies, and answers its questions. Checks the invariants of
//! every such scenario: no accepted answer is lost, nothing runs twice, nothing runs that was not approved.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::home::{Home, Out};
use super::http::lasting_address;
use super::llm::{Answer, Chat, MockLlm, until};
use super::pty::Pty;

/// The fate of one process.
#[derive(Clone, Debug)]
pub enum Trouble {
    None,
    /// Dies at this failpoint.
    At(String),
    /// Dies after this time.
    After(Duration),
    /// A call of the system fails, as `strace -e inject=` has it.
    Fault(String),
}

impl Trouble {
    /// Whether a process did not get to its end: it died, or said that it could not go on.
    fn ended(&self, out: &Out) -> bool {
        out.was_killed() || matches!(self, Self::Fault(_)) && !matches!(out.status.code(), Some(0 | 3))
    }
}

/// The user's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Say,
    Decide,
    Resume,
    Done,
}

/// One command of the scenario: its call id, and whether the user approves it.
pub type Plan = &'static [(&'static str, bool)];

/// The front end through which the user says what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Print,
    /// A tool of `aye mcp serve`.
    Mcp,
    /// A message to an agent of `aye serve`.
    A2a,
}

/// Calls of a plan whose id starts with this run in the background: their result is that they were started.
const BACKGROUND: &str = "bg";

/// Two steps of the model: first `first` beside a call that needs no approval, then `second`.
pub struct Operator {
    pub home: Home,
    pub llm: MockLlm,
    first: Plan,
    second: Plan,
    /// Questions whose answer the program reported as accepted.
    taken: BTreeSet<String>,
    /// Answered calls, acknowledged or not.
    tried: BTreeSet<String>,
    /// Calls with an unknown outcome that the user skipped.
    skipped: BTreeSet<String>,
    thread: Option<String>,
    started: bool,
    waiting: Option<Vec<Value>>,
    done: bool,
    pub deaths: usize,
    /// The way of the first message that was stored.
    pub began: Option<Way>,
    /// Processes that an injected fault stopped.
    pub faults: usize,
    pub diary: Vec<String>,
}

/// How long a server runs that is told what to do.
const SAYING: Duration = Duration::from_millis(1200);

/// The messages of an MCP client that calls the agent.
fn mcp_call(text: &str) -> String {
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}});
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
        "name": "aye", "arguments": {"message": text}}});
    format!("{hello}\n{ready}\n{call}\n")
}

/// Sends a message to the agent as soon as its server answers, or gives up.
fn send(address: &str, token: &Path, longest: Duration) {
    let body = json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "do it"}]},
        "configuration": {"returnImmediately": true}})
    .to_string();
    let end = Instant::now() + longest;
    while Instant::now() < end {
        let token = std::fs::read_to_string(token).unwrap_or_default();
        if let Ok(mut stream) = TcpStream::connect(address) {
            let head = format!(
                "POST /v1/a2a/message:send HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nA2A-Version: 1.0\r\n\
                 Authorization: Bearer {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                token.trim(),
                body.len()
            );
            let mut answer = String::new();
            // The server may die at any moment.
            let _ = stream.set_read_timeout(Some(longest));
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.read_to_string(&mut answer));
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn command(id: &str) -> String {
    // Long enough that a kill may hit it while it runs.
    format!("echo {id} >> log.txt; sleep 0.02; echo {id} ran")
}

impl Operator {
    pub fn new(first: Plan, second: Plan) -> Self {
        let llm = MockLlm::by(move |chat: &Chat| {
            let known = |plan: Plan| plan.iter().all(|(id, _)| chat.results().iter().any(|(k, _)| k == id));
            let ask = |plan: Plan, answer: Answer| {
                plan.iter().fold(answer, |answer, (id, _)| {
                    let behind = id.starts_with(BACKGROUND);
                    let arguments = json!({"command": command(id), "run_in_background": behind});
                    if behind { answer.call(id, "Bash", arguments) } else { answer.bash(id, &command(id)) }
                })
            };
            if !known(first) {
                ask(first, Answer::say("First.").call("look", "Read", json!({"file_path": "a.txt"})))
            } else if !known(second) {
                ask(second, Answer::say("Second."))
            } else {
                Answer::say("Finished.")
            }
        });
        let home = Home::with(&llm);
        home.write("a.txt", "five\n");
        Self {
            home,
            llm,
            first,
            second,
            taken: BTreeSet::new(),
            tried: BTreeSet::new(),
            skipped: BTreeSet::new(),
            thread: None,
            started: false,
            waiting: None,
            done: false,
            deaths: 0,
            began: None,
            faults: 0,
            diary: Vec::new(),
        }
    }

    fn plan(&self) -> impl Iterator<Item = (&'static str, bool)> {
        self.first.iter().chain(self.second).copied()
    }

    /// Decides the next step.
    pub fn next(&mut self) -> Step {
        if self.done {
            return Step::Done;
        }
        if self.waiting.is_none() {
            self.waiting = Some(self.home.open());
        }
        if self.waiting.as_ref().is_some_and(|open| !open.is_empty()) {
            Step::Decide
        } else if self.started {
            Step::Resume
        } else {
            Step::Say
        }
    }

    /// Performs one step, with trouble.
    pub fn take(&mut self, step: Step, trouble: &Trouble) {
        if step == Step::Decide && self.deaths > 0 {
            // The rest of a command whose process died: it ends soon, and does not affect the answer.
            until("the end of the last command", || !self.home.works("__supervise"));
        }
        let before = self.home.read("log.txt");
        match step {
            Step::Done => {}
            Step::Say => {
                let out = self.run(&["-p", "do it", "--output-format", "json"], trouble);
                // A message that was not stored yet is sent again.
                self.started = !trouble.ended(&out) || self.has_run();
                self.told(&out, trouble);
            }
            Step::Resume => {
                let thread = self.thread();
                let out = self.run(&["-r", &thread, "-p", "--output-format", "json"], trouble);
                self.told(&out, trouble);
            }
            Step::Decide => {
                let open = self.waiting.take().expect("was listed before").remove(0);
                let id = open["id"].as_str().expect("an id").to_owned();
                assert!(!self.taken.contains(&id), "the answer to {id} was lost: {:#?}", self.diary);
                let call = open["call_id"].as_str().expect("a call").to_owned();
                let allow = self.plan().find(|(known, _)| *known == call).expect("a call of the plan").1;
                let word = if allow { "approve" } else { "deny" };
                let out = if id.starts_with("unknown_") {
                    // A front end that stays asks what happened to a call that died with another one.
                    self.skipped.insert(call.clone());
                    self.run(&["approvals", "answer", &id, "{\"choice\": \"skip\"}"], trouble)
                } else {
                    self.run(&["approvals", word, &id], trouble)
                };
                let was_taken = out.status.success() || out.stderr.contains("already decided by tester");
                assert!(was_taken || trouble.ended(&out), "{out:?}");
                if was_taken {
                    self.taken.insert(id);
                }
                self.tried.insert(call);
                assert_eq!(before, self.home.read("log.txt"), "deciding runs nothing");
            }
        }
        self.check();
    }

    /// Says what to do to a server that is killed after a while.
    pub fn say(&mut self, way: Way, trouble: &Trouble) {
        let (place, time) = match trouble {
            Trouble::At(place) => (Some(place.as_str()), SAYING),
            Trouble::After(time) => (None, *time + SAYING / 4),
            Trouble::None | Trouble::Fault(_) => (None, SAYING),
        };
        let address = lasting_address();
        let args: &[&str] = match way {
            Way::Print => return self.take(Step::Say, trouble),
            Way::Mcp => &["mcp", "serve"],
            Way::A2a => &["serve", "--bind", &address],
        };
        let aye = self.home.aye(args).open_stdin();
        let aye = place.into_iter().fold(aye, |aye, place| aye.env("AYE_FAILPOINT", place));
        let mut run = aye.spawn();
        let sender = match way {
            Way::A2a => {
                let token = self.home.root().join("aye/data/serve-token");
                Some(std::thread::spawn(move || send(&address, &token, SAYING * 2)))
            }
            Way::Mcp | Way::Print => {
                run.try_write_stdin(&mcp_call("do it"));
                None
            }
        };
        run.kill_after(time);
        let out = run.end();
        if let Some(sender) = sender {
            sender.join().expect("no panic");
        }
        self.note(&format!("{way:?} ({trouble:?})"), &out);
        // A message that was not stored yet is sent again.
        self.started = self.has_run();
        self.began = self.started.then_some(way);
        self.waiting = None;
        self.check();
    }

    fn run(&mut self, args: &[&str], trouble: &Trouble) -> Out {
        let aye = self.home.aye(args);
        let out = match trouble {
            Trouble::None => aye.run(),
            Trouble::At(place) => aye.env("AYE_FAILPOINT", place).run(),
            Trouble::After(time) => {
                let mut run = aye.spawn();
                run.kill_after(*time);
                run.end()
            }
            Trouble::Fault(fault) => {
                let inject = format!("inject={fault}");
                let strace = ["-f", "-qq", "-o", "/dev/null", "-e", &inject, env!("CARGO_BIN_EXE_aye")];
                let out = self.home.program("strace", &[&strace[..], args].concat()).run();
                self.faults += usize::from(trouble.ended(&out));
                out
            }
        };
        self.note(&format!("aye {} ({trouble:?})", args.join(" ")), &out);
        out
    }

    fn note(&mut self, what: &str, out: &Out) {
        self.diary.push(format!("{what}: {}", out.status));
        self.deaths += usize::from(out.was_killed());
        // Whatever died where: the log of a healthy store is never taken for a lost or foreign one.
        let is_doubted = out.stderr.contains("the log of the store") || out.stderr.contains("another store");
        assert!(!is_doubted, "{out:?}: {:#?}", self.diary);
    }

    /// A front end that stays until it is killed, and drives what it finds meanwhile. Without arguments it is the
    /// terminal.
    pub fn visit(&mut self, args: &[&str], trouble: &Trouble, longest: Duration) {
        until("the end of the last command", || !self.home.works("__supervise"));
        let (place, time) = match trouble {
            Trouble::None | Trouble::Fault(_) => (None, longest),
            Trouble::At(place) => (Some(place.as_str()), longest),
            Trouble::After(time) => (None, *time),
        };
        let env = place.map(|place| ("AYE_FAILPOINT", place));
        if args.is_empty() {
            let thread = self.thread();
            let tty = Pty::start_with(&self.home, &["-r", &thread], 100, 30, env.as_slice());
            std::thread::sleep(time);
            tty.kill();
            self.diary.push(format!("the terminal ({trouble:?})"));
            self.deaths += 1;
        } else {
            let aye = self.home.aye(args).open_stdin();
            let mut run = env.into_iter().fold(aye, |aye, (name, place)| aye.env(name, place)).spawn();
            run.kill_after(time);
            let out = run.end();
            self.note(&format!("aye {} ({trouble:?})", args.join(" ")), &out);
        }
        self.waiting = None;
        self.check();
    }

    /// Whether there is a conversation to visit.
    pub fn has_started(&self) -> bool {
        self.started
    }

    /// Another program copies the log into the file and removes it: the next commit makes a new one.
    pub fn fold_log(&self) {
        let conn = rusqlite::Connection::open(self.home.root().join("aye/data/aye.db")).expect("a database");
        let _: i64 = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |row| row.get(0)).expect("folded");
    }

    fn told(&mut self, out: &Out, trouble: &Trouble) {
        self.waiting = None;
        if trouble.ended(out) {
            return;
        }
        match out.status.code() {
            Some(0) => {
                assert_eq!(out.json()["response"], "Finished.", "{:#?}", self.diary);
                self.done = true;
            }
            Some(3) => {
                let waiting = out.json()["waiting"].as_array().expect("a list").clone();
                assert!(!waiting.is_empty(), "{:#?}\n{out:?}", self.diary);
                self.waiting = Some(waiting);
            }
            // The run was over, and the process died before it could say so.
            Some(2) if out.stderr.contains("nothing") || out.stderr.contains("no unfinished") => {
                self.done = true;
            }
            _ => panic!("{:#?}\n{out:?}", self.diary),
        }
    }

    fn threads(&self) -> Value {
        self.home.ok(&["threads", "list", "--json"]).json()
    }

    fn has_run(&self) -> bool {
        self.threads().as_array().expect("a list").iter().any(|row| row["messages"].as_u64() > Some(0))
    }

    fn thread(&mut self) -> String {
        if self.thread.is_none() {
            let threads = self.threads();
            let row =
                threads.as_array().expect("a list").iter().find(|row| row["messages"].as_u64() > Some(0));
            let id = row.and_then(|row| row["thread"]["id"].as_str().or(row["id"].as_str()));
            self.thread = Some(id.unwrap_or_else(|| panic!("no thread: {threads:#}")).to_owned());
        }
        self.thread.clone().expect("was just found")
    }

    /// The invariants at every moment.
    fn check(&self) {
        let log = self.home.read("log.txt");
        for (id, allow) in self.plan() {
            let times = log.lines().filter(|line| *line == id).count();
            assert!(times <= 1, "{id} ran {times} times: {:#?}", self.diary);
            // An unacknowledged answer may have been stored; one that was never given may not.
            assert!(allow || times == 0, "{id} ran against the answer: {:#?}", self.diary);
        }
    }

    /// The invariants at the end.
    pub fn finish(&mut self) {
        for _ in 0..60 {
            let step = self.next();
            if step == Step::Done {
                break;
            }
            self.take(step, &Trouble::None);
        }
        assert!(self.done, "it never ends: {:#?}", self.diary);
        let last = self.llm.last();
        let results: BTreeMap<String, String> = last.results().into_iter().collect();
        let log = self.home.read("log.txt");
        for (id, allow) in self.plan() {
            let text = results.get(id).unwrap_or_else(|| panic!("{id} has no result: {:#?}", self.diary));
            let ran = log.lines().any(|line| line == id);
            let unknown = text.contains("may have run") || self.skipped.contains(id);
            let diary = &self.diary;
            assert!(self.tried.contains(id), "nobody answered {id}: {diary:#?}");
            if id.starts_with(BACKGROUND) {
                // What it printed is no part of its result.
            } else if !allow {
                assert!(text.contains("user denied") && !unknown, "{id}: {text}\n{diary:#?}");
            } else if !unknown {
                assert!(ran && text.contains(&format!("{id} ran")), "{id}: {text}\n{diary:#?}");
            }
        }
        let files = std::fs::read_dir(self.home.root().join("aye/data")).expect("a folder").flatten();
        let aside: Vec<_> = files.map(|file| file.file_name()).collect();
        let is_aside = |name: &std::ffi::OsString| name.to_string_lossy().contains("foreign");
        assert!(!aside.iter().any(is_aside), "a log was set aside: {aside:?}");
        assert!(results.get("look").is_some_and(|text| text.contains("five")), "{results:?}");
        assert!(self.home.open().is_empty());
        // Wherever it was interrupted, the audit is complete and matches the tables.
        self.home.ok(&["audit", "--verify"]);
    }
}
