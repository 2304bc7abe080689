//! Queued messages, and workers that run them: one, several, and some that die.

use std::time::Duration;

use fastrand::Rng;
use rusqlite::{Connection, OpenFlags};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::home::{Home, Out, Running};
use crate::support::llm::{Answer, Chat, Gate, MockLlm, Part, until};
use crate::support::pty::Pty;
use crate::support::random::{number_of, seed};

/// Queues a message; returns the number of its job and its conversation.
fn add(home: &Home, more: &[&str], said: &str) -> (String, String) {
    let args: Vec<&str> =
        ["queue", "add", "--json"].into_iter().chain(more.iter().copied()).chain([said]).collect();
    let job = home.ok(&args).json();
    (job["sequence"].to_string(), job["mailbox_id"].as_str().expect("a conversation").to_owned())
}

/// The queued jobs, as listed by `aye queue list`.
fn listed(home: &Home, more: &[&str]) -> Vec<Value> {
    let args: Vec<&str> = ["queue", "list", "--json"].into_iter().chain(more.iter().copied()).collect();
    home.ok(&args).json().as_array().expect("a list").clone()
}

fn states(home: &Home) -> Vec<String> {
    let state = |job: &Value| job["state"].as_str().expect("a state").to_owned();
    listed(home, &["--all"]).iter().map(state).collect()
}

/// Works until nothing is left; returns the report of each job.
fn work(home: &Home, code: i32) -> Vec<Value> {
    home.aye(&["work", "--until-empty", "--json"]).run().exits(code).lines()
}

fn statuses(told: &[Value]) -> Vec<&str> {
    told.iter().map(|job| job["status"].as_str().expect("a status")).collect()
}

fn echo() -> MockLlm {
    MockLlm::by(|chat| Answer::say(&format!("You said: {}", chat.user())))
}

/// The messages of a conversation with their roles.
fn said(home: &Home, thread: &str) -> Vec<(String, String)> {
    let shown = home.ok(&["threads", "show", thread, "--json"]).json();
    let messages = shown["messages"].as_array().expect("messages").clone();
    let text = |message: &Value| -> String {
        let blocks = message["message"]["content"].as_array().or(message["content"].as_array());
        blocks.into_iter().flatten().filter_map(|block| block["text"].as_str()).collect()
    };
    let role = |message: &Value| {
        message["message"]["role"].as_str().or(message["role"].as_str()).expect("a role").to_owned()
    };
    messages.iter().map(|message| (role(message), text(message))).collect()
}

fn by_user(home: &Home, thread: &str) -> Vec<String> {
    said(home, thread).into_iter().filter(|(role, _)| role == "user").map(|(_, text)| text).collect()
}

fn store(home: &Home) -> Connection {
    let path = home.root().join("aye/data/aye.db");
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).expect("the store");
    connection.busy_timeout(Duration::from_secs(10)).expect("succeeds");
    connection
}

fn count(home: &Home, sql: &str) -> usize {
    let count: i64 = store(home).query_row(sql, (), |row| row.get(0)).expect("a number");
    usize::try_from(count).expect("a count")
}

fn settings(home: &Home, text: &str) {
    let config = home.root().join("aye/config/config.toml");
    let known = std::fs::read_to_string(config).expect("settings");
    home.config(&format!("{known}{text}"));
}

/// A worker that keeps waiting for jobs.
fn worker(home: &Home) -> Running {
    home.aye(&["work", "--json"]).spawn()
}

fn stop(run: Running) -> Out {
    run.signal(Signal::TERM);
    run.end()
}

#[test]
fn queued_jobs_are_listed_and_withdrawn() {
    let home = Home::new();
    let out = home.ok(&["queue", "add", "first thing\nand more"]);
    assert!(out.stdout.starts_with("1  queued in conversation "), "{}", out.stdout);
    let (second, thread) = add(&home, &["--new", "--priority", "3", "--agent", "critic"], "urgent");
    let (third, same) = add(&home, &["--thread", &thread, "--at", "2h", "--key", "k"], "later");
    assert_eq!((second.as_str(), third.as_str(), &same), ("2", "3", &thread));
    home.aye(&["queue", "add", "--thread", &thread, "--key", "k", "x"]).run().exits(1).says("key `k`");
    let jobs = listed(&home, &[]);
    let order: Vec<&Value> = jobs.iter().map(|job| &job["sequence"]).collect();
    assert_eq!(order, [2, 1, 3], "by priority, then by time");
    assert_eq!((&jobs[0]["agent_id"], &jobs[0]["state"]), (&"critic".into(), &"queued".into()));
    assert!(jobs[0]["job_id"].is_string() && jobs[0].get("claim_token").is_none());
    let shown = home.ok(&["queue", "list"]).stdout;
    assert!(shown.contains("first thing") && !shown.contains("and more"), "{shown}");
    assert!(shown.contains("(not before 20"), "{shown}");
    assert_eq!(listed(&home, &["--thread", &thread]).len(), 2);

    home.aye(&["queue", "cancel", "1", "9"]).run().exits(2).says("unknown job `9`");
    assert_eq!(listed(&home, &[]).len(), 3, "a typing error changes nothing");
    let id = jobs[1]["job_id"].as_str().expect("an id");
    home.ok(&["queue", "cancel", id, "3"]);
    home.aye(&["queue", "cancel", "3"]).run().exits(1).says("it is already cancelled");
    home.aye(&["queue", "retry", "2"]).run().exits(1).says("is not dead but");
    assert_eq!(states(&home), ["queued", "cancelled", "cancelled"]);
    home.aye(&["queue", "add"]).run().exits(2).says("no prompt;");
    home.aye(&["queue", "add", "--at", "soon", "x"]).run().exits(2).says("invalid time");
    home.aye(&["work", "--ephemeral"]).run().exits(2).says("--ephemeral");
}

#[test]
fn a_worker_runs_jobs_in_order() {
    let llm = echo();
    let home = Home::with(&llm);
    let (_, thread) = add(&home, &[], "one");
    add(&home, &["--thread", &thread], "two");
    add(&home, &["--priority", "0"], "urgent");
    let piped = home.aye(&["queue", "add", "look"]).stdin("a text").run().exits(0);
    assert!(piped.stdout.contains("queued"));
    add(&home, &["--at", "3d"], "in three days");
    let told = work(&home, 0);
    assert_eq!(statuses(&told), ["done"; 4]);
    let answers: Vec<&Value> = told.iter().map(|job| &job["response"]).collect();
    assert_eq!(answers[..3], ["You said: urgent", "You said: one", "You said: two"]);
    assert!(answers[3].as_str().expect("a string").contains("a text"));
    assert_eq!(by_user(&home, &thread), ["one", "two"]);
    assert_eq!(states(&home), ["queued", "done", "done", "done", "done"]);
    // Nothing is due: it ends at once.
    assert!(work(&home, 0).is_empty());
    let text = home.ok(&["work", "--once"]);
    assert_eq!(text.stdout, "");
}

#[test]
fn a_worker_ends_after_its_number_of_jobs() {
    let llm = echo();
    let home = Home::with(&llm);
    for n in 0..4 {
        add(&home, &[], &format!("job {n}"));
    }
    let one = home.ok(&["work", "--once"]);
    assert!(one.stdout.contains("done") && one.stdout.contains("You said: job 0"), "{}", one.stdout);
    assert!(one.stderr.contains("· job 1: job 0"), "{}", one.stderr);
    assert_eq!(home.ok(&["work", "--max", "2", "--json"]).lines().len(), 2);
    assert_eq!(states(&home), ["queued", "done", "done", "done"]);
    home.aye(&["work", "--max", "0"]).run().exits(2);
}

#[test]
fn a_question_waits_for_a_user_and_the_job_resumes_after_the_answer() {
    let llm = MockLlm::by(|chat: &Chat| match (chat.user().as_str(), chat.results().len()) {
        ("do it", 0) => Answer::say("I will.").bash("c1", "echo ran >> log.txt"),
        ("do it", _) => Answer::say("It is done."),
        (other, _) => Answer::say(&format!("You said: {other}")),
    });
    let home = Home::with(&llm);
    let (_, thread) = add(&home, &[], "do it");
    add(&home, &["--thread", &thread], "and then");
    // It ends: nothing can be done without a user. The jobs after the question wait too.
    assert_eq!(statuses(&work(&home, 3)), ["waiting"]);
    assert_eq!(home.read("log.txt"), "");
    let jobs = listed(&home, &[]);
    assert_eq!((&jobs[0]["state"], &jobs[0]["waiting"][0]), (&"waiting".into(), &"perm_c1".into()));
    assert!(home.ok(&["queue", "list"]).stdout.contains("aye approve perm_c1"));
    // A worker that keeps waiting notices the answer.
    let mut run = worker(&home);
    home.ok(&["approvals", "approve", "perm_c1"]);
    run.until_line("It is done.");
    run.until_line("You said: and then");
    let out = stop(run).exits(0);
    assert_eq!(statuses(&out.lines()), ["done", "done"]);
    assert_eq!(home.read("log.txt"), "ran\n");
    assert_eq!(by_user(&home, &thread), ["do it", "and then"]);
    assert_eq!(count(&home, "SELECT count(*) FROM run"), 2);
}

#[test]
fn a_job_whose_run_is_ended_elsewhere_is_done() {
    let llm = MockLlm::by(|chat: &Chat| match chat.results().len() {
        0 => Answer::say("I will.").bash("c1", "echo ran >> log.txt"),
        _ => Answer::say("It is done."),
    });
    let home = Home::with(&llm);
    let (_, thread) = add(&home, &[], "do it");
    work(&home, 3);
    home.ok(&["approvals", "deny", "perm_c1"]);
    home.ok(&["-r", &thread, "-p"]);
    assert_eq!(states(&home), ["done"]);
    assert!(work(&home, 0).is_empty());
}

#[test]
fn an_unavailable_provider_is_retried_without_duplicates() {
    let llm = MockLlm::answers([
        Answer::error(503, "away"),
        Answer::error(429, "too much"),
        Answer::say("There I am."),
        Answer::say("Behind it."),
    ]);
    let home = Home::with(&llm);
    settings(&home, "[mailbox]\nretry_delay = \"20ms\"\n");
    let (_, thread) = add(&home, &[], "hello");
    add(&home, &["--thread", &thread], "behind it");
    let told = work(&home, 0);
    assert_eq!(statuses(&told), ["retry", "retry", "done", "done"]);
    assert!(told[0]["error"].as_str().expect("an error").contains("away"), "{told:#?}");
    assert_eq!((&told[1]["attempts"], &told[2]["response"]), (&2.into(), &"There I am.".into()));
    assert_eq!(by_user(&home, &thread), ["hello", "behind it"], "in order and once");
    assert_eq!(states(&home), ["done", "done"]);
}

#[test]
fn the_next_attempt_is_never_before_the_provider_allows_it() {
    let llm = MockLlm::by(|_| Answer::error(429, "slow down").header("retry-after", "3600"));
    let home = Home::with(&llm);
    add(&home, &[], "hello");
    let told = work(&home, 75);
    assert_eq!(statuses(&told), ["retry"]);
    // Nothing is due, so nothing is sent, by this worker or the next one.
    assert!(work(&home, 0).is_empty());
    assert_eq!(llm.asked().len(), 1);
    let job = &listed(&home, &[])[0];
    assert_eq!((&job["attempt_count"], &job["available_at"]), (&1.into(), &told[0]["retry_at"]));
    let failed = job["updated_at"].as_u64().expect("a time");
    let wait = job["available_at"].as_u64().expect("a time") - failed;
    assert!((3_590_000..4_000_000).contains(&wait), "{wait}");
}

#[test]
fn an_interrupted_answer_is_continued() {
    let llm =
        MockLlm::answers([Answer::say("The first half").part(Part::Cut), Answer::say("and the second.")]);
    let home = Home::with(&llm);
    settings(&home, "[mailbox]\nretry_delay = \"20ms\"\n");
    let (_, thread) = add(&home, &[], "hello");
    assert_eq!(statuses(&work(&home, 0)), ["retry", "done"]);
    assert_eq!(by_user(&home, &thread)[0], "hello");
    let last = llm.last();
    assert!(last.user().contains("cut off"), "{:#}", last.body["messages"]);
    assert!(last.messages().iter().any(|m| m["content"].to_string().contains("The first half")));
}

#[test]
fn a_job_is_dead_after_its_attempts_and_can_be_retried() {
    let home = Home::with(&MockLlm::by(|_| Answer::error(503, "it is away")));
    settings(&home, "[mailbox]\nmax_attempts = 2\nretry_delay = \"20ms\"\n");
    let (number, thread) = add(&home, &[], "hello");
    let told = work(&home, 1);
    assert_eq!(statuses(&told), ["retry", "dead"]);
    let listing = home.ok(&["queue", "list"]).stdout;
    assert!(listing.contains("dead") && listing.contains("attempt 2 of 2 failed"), "{listing}");
    assert!(listing.contains("it is away"), "{listing}");
    assert!(work(&home, 0).is_empty(), "it is not retried");
    // The provider is back.
    let llm = echo();
    home.config(&format!(
        "model = \"mock/m1\"\n[providers.mock]\nadapter = \"openai\"\nbase_url = \"{}\"\n\
         api_key_env = \"MOCK_KEY\"\n",
        llm.url
    ));
    let out = home.ok(&["queue", "retry", &number]);
    assert_eq!(out.stdout, "1  queued again as 2\n");
    home.aye(&["queue", "retry", &number]).run().exits(2).says("unknown job `1`");
    assert_eq!(statuses(&work(&home, 0)), ["done"]);
    assert_eq!(by_user(&home, &thread), ["hello"]);
}

#[test]
fn a_permanent_failure_is_dead_at_once() {
    let llm = MockLlm::by(|_| Answer::error(401, "who are you?"));
    let home = Home::with(&llm);
    add(&home, &[], "hello");
    add(&home, &["--agent", "nobody"], "hello");
    let told = work(&home, 1);
    assert_eq!(statuses(&told), ["dead", "dead"]);
    assert!(told[1]["error"].as_str().expect("an error").contains("unknown agent `nobody`"), "{told:#?}");
    assert_eq!(llm.asked().len(), 1);
}

#[test]
fn a_job_of_another_folder_runs_there() {
    let llm = MockLlm::by(|chat: &Chat| match chat.results().len() {
        0 => Answer::new().call("c1", "List", serde_json::json!({"path": "."})),
        _ => Answer::say(&chat.result("c1")),
    });
    let home = Home::with(&llm);
    home.write("sub/only-here.txt", "x");
    let sub = home.work().join("sub");
    add(&home, &["-C", &sub.to_string_lossy()], "what is here?");
    let told = work(&home, 0);
    assert!(told[0]["response"].as_str().expect("an answer").contains("only-here.txt"), "{told:#?}");
    std::fs::remove_dir_all(sub).expect("removed");
}

/// How often the threads of a process were suspended and woken so far.
fn switches(pid: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("is alive");
    let count = |status: String| -> u64 {
        let lines = status.lines().filter(|line| line.contains("ctxt_switches:"));
        lines.filter_map(|line| line.rsplit(char::is_whitespace).next()?.parse::<u64>().ok()).sum()
    };
    tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok())
        .map(count)
        .sum()
}

#[test]
fn an_idle_worker_costs_nothing_and_notices_work_at_once() {
    let llm = echo();
    let home = Home::with(&llm);
    let mut run = worker(&home);
    // It is idle after its first job.
    add(&home, &[], "wake up");
    run.until_line("wake up");
    let mut before = switches(run.pid());
    until("the idle worker", || {
        std::thread::sleep(Duration::from_millis(50));
        let now = switches(run.pid());
        std::mem::replace(&mut before, now) == now
    });
    for _ in 0..5 {
        home.open();
    }
    assert_eq!(switches(run.pid()), before);
    add(&home, &["--at", "1s"], "in a second");
    run.until_line("in a second");
    stop(run).exits(0);
}

#[test]
fn the_first_signal_ends_a_worker_after_its_job_and_the_second_at_once() {
    let gate = Gate::default();
    let waits = gate.clone();
    let llm = MockLlm::by(move |chat: &Chat| match chat.user().as_str() {
        "slow" => Answer::say("Slowly").wait(&waits).text(" done."),
        other => Answer::say(&format!("You said: {other}")),
    });
    let home = Home::with(&llm);
    let (_, thread) = add(&home, &[], "slow");
    add(&home, &[], "next");
    let run = worker(&home);
    until("its question", || !llm.asked().is_empty());
    run.signal(Signal::INT);
    run.until_told("stopping after job 1");
    gate.open();
    let out = run.end().exits(0);
    assert_eq!(statuses(&out.lines()), ["done"]);
    assert_eq!(states(&home), ["queued", "done"]);

    let (_, other) = add(&home, &["--priority", "0"], "slow");
    let shut = Gate::default();
    let llm = MockLlm::by(move |chat: &Chat| match chat.nth {
        0 => Answer::say("Slowly").wait(&shut),
        _ => Answer::say("Gone on with."),
    });
    home.config(&format!(
        "model = \"mock/m1\"\n[providers.mock]\nadapter = \"openai\"\nbase_url = \"{}\"\n\
         api_key_env = \"MOCK_KEY\"\n",
        llm.url
    ));
    let run = worker(&home);
    until("its question", || !llm.asked().is_empty());
    run.signal(Signal::INT);
    run.until_told("stopping after job");
    run.signal(Signal::TERM);
    run.end().exits(143).says("is left to the next worker");
    assert_eq!(states(&home)[0], "begun");
    let told = work(&home, 0);
    assert_eq!(told[0]["response"], "Gone on with.");
    assert_eq!(by_user(&home, &other), ["slow"]);
    assert_eq!(by_user(&home, &thread), ["slow"]);
    assert_eq!(count(&home, "SELECT count(*) FROM run"), 3, "it was not started again");
}

#[test]
fn a_killed_workers_job_is_resumed_by_another() {
    let llm = MockLlm::by(|chat: &Chat| match (chat.user().as_str(), chat.nth) {
        ("slow", 0) => Answer::say("Slowly").part(Part::Hang),
        (other, _) => Answer::say(&format!("You said: {other}")),
    });
    let home = Home::with(&llm);
    let (_, thread) = add(&home, &[], "slow");
    let one = worker(&home);
    until("its question", || !llm.asked().is_empty());
    let listing = home.ok(&["queue", "list"]).stdout;
    assert!(listing.contains("working") && listing.contains(&format!("process {}", one.pid())), "{listing}");
    home.aye(&["queue", "cancel", "1"]).run().exits(1).says("is running it");
    // The other one stands by while the first works, and wakes up when that dies.
    let mut two = worker(&home);
    add(&home, &[], "other");
    two.until_line("You said: other");
    one.signal(Signal::KILL);
    assert!(one.end().was_killed());
    two.until_line("You said: slow");
    stop(two).exits(0);
    assert_eq!(by_user(&home, &thread), ["slow"]);
    assert_eq!(count(&home, "SELECT count(*) FROM run"), 2, "no run started twice");
    assert_eq!(states(&home), ["done", "done"]);
}

/// A worker stopped for longer than its leases loses its job, and harms nothing when it wakes up.
#[test]
fn a_worker_paused_for_too_long_writes_nothing() {
    let llm = MockLlm::by(|chat: &Chat| match chat.nth {
        0 => Answer::say("Slowly").part(Part::Hang),
        _ => Answer::say("Gone on with."),
    });
    let home = Home::with(&llm);
    let config = std::fs::read_to_string(home.root().join("aye/config/config.toml")).expect("settings");
    home.config(&format!("lease = \"300ms\"\n{config}[mailbox]\nlease = \"400ms\"\n"));
    let (_, thread) = add(&home, &[], "hello");
    let one = worker(&home);
    until("its question", || !llm.asked().is_empty());
    one.signal(Signal::STOP);
    let mut two = worker(&home);
    two.until_line("Gone on with.");
    one.signal(Signal::CONT);
    one.until_told("was taken over by another worker");
    stop(one);
    stop(two).exits(0);
    assert_eq!(by_user(&home, &thread), ["hello"]);
    assert_eq!(count(&home, "SELECT count(*) FROM run"), 1);
    assert_eq!(states(&home), ["done"]);
}

const PLACES: [&str; 6] = [
    "store.checkpoint.before",
    "store.checkpoint.after",
    "store.begin.after",
    "store.mailbox.before",
    "store.mailbox.after",
    "store.begin.before",
];

/// Two workers at a time work on the same queue, and are killed repeatedly.
///
/// `AYE_KILLS=200 cargo test --features failpoints --test it mailbox` for more kills, `AYE_SEED` to repeat a
/// seed.
#[test]
fn two_killed_workers_lose_no_job_and_start_none_twice() {
    let kills = number_of("AYE_KILLS").unwrap_or(12);
    let jobs = 10 + kills as usize;
    let mut dice = Rng::with_seed(seed());
    let llm = MockLlm::by(|chat: &Chat| {
        let job = chat.user();
        let call = format!("c-{job}");
        if chat.results().iter().any(|(id, _)| *id == call) {
            Answer::say(&format!("Finished {job}."))
        } else {
            Answer::say("I will.").bash(&call, &format!("echo {job} >> log.txt; sleep 0.05"))
        }
    });
    let home = Home::with(&llm);
    settings(&home, "[mailbox]\nmax_attempts = 1000\n");
    // Several jobs of one conversation, and jobs in separate conversations.
    let (_, shared) = add(&home, &[], "j0");
    for n in 1..jobs {
        let said = format!("j{n}");
        if n % 3 == 0 {
            add(&home, &["--thread", &shared], &said)
        } else {
            add(&home, &[], &said)
        };
    }
    let args = ["work", "--until-empty", "--json", "--permission-mode", "yolo"];
    let (mut killed, mut rounds) = (0, 0);
    while killed < kills && count(&home, "SELECT count(*) FROM mailbox WHERE status = 'queued'") > 0 {
        rounds += 1;
        assert!(rounds < 20 * kills, "nothing was killed");
        let run = |dice: &mut Rng| {
            let mut aye = home.aye(&args);
            let has_place = cfg!(feature = "failpoints") && dice.u64(..2) == 0;
            if has_place {
                let place = PLACES[dice.usize(..PLACES.len())];
                aye = aye.env("AYE_FAILPOINT", &format!("{place}:{}", 1 + dice.u64(..6)));
            }
            (aye.spawn(), has_place)
        };
        let pair = [run(&mut dice), run(&mut dice)];
        for (mut run, has_place) in pair {
            if !has_place {
                run.kill_after(Duration::from_millis(20 + dice.u64(..500)));
            }
            killed += u64::from(run.end().was_killed());
        }
    }
    // Two living workers do the rest.
    let rest = [home.aye(&args).spawn(), home.aye(&args).spawn()];
    for run in rest {
        run.end().exits(0);
    }
    println!("{killed} of them died in {rounds} rounds");
    assert_eq!(count(&home, "SELECT count(*) FROM mailbox WHERE status = 'accepted'"), jobs, "none is lost");
    assert_eq!(count(&home, "SELECT count(*) FROM run"), jobs, "none started twice");
    assert_eq!(count(&home, "SELECT count(*) FROM run WHERE status = 'done'"), jobs);
    assert_eq!(count(&home, "SELECT count(DISTINCT run_id) FROM mailbox"), jobs);
    let log = home.read("log.txt");
    for n in 0..jobs {
        let job = format!("j{n}");
        let times = log.lines().filter(|line| *line == job).count();
        assert!(times <= 1, "{job} ran {times} times");
    }
    let heard = by_user(&home, &shared);
    let wanted: Vec<String> = (0..jobs).filter(|n| n % 3 == 0).map(|n| format!("j{n}")).collect();
    assert_eq!(heard, wanted, "in order, each once");
    home.ok(&["audit", "--verify"]);
    assert!(killed > 0);
}

#[test]
fn a_schedule_queues_the_next_job_when_one_begins_and_makes_up_for_nothing() {
    let llm = echo();
    let home = Home::with(&llm);
    let (number, first) = add(&home, &["--every", "1d at 7:30"], "check the dependencies");
    home.ok(&["queue", "list"]).prints("1d at 7:30, not before");
    assert!(work(&home, 0).is_empty(), "it is not due");
    // A worker comes after three of its times.
    let due_long_ago = |number: &str| {
        let db = Connection::open(home.root().join("aye/data/aye.db")).expect("a store");
        let at = "UPDATE mailbox SET available_at = available_at - 3 * 86400000 WHERE n = ?1";
        assert_eq!(db.execute(at, [number]).expect("it is queued"), 1);
    };
    due_long_ago(&number);
    assert_eq!(statuses(&work(&home, 0)), ["done"], "missed times come once");
    let jobs = listed(&home, &[]);
    let [next] = &jobs[..] else { panic!("{jobs:?}") };
    assert_eq!(next["request_extras"]["schedule"]["text"], "1d at 7:30");
    let second = next["mailbox_id"].as_str().expect("a conversation");
    assert_ne!(second, first, "each time a new conversation");
    assert!(next["available_at"].as_u64() > Some(0) && next["state"] == "queued");
    assert_eq!(said(&home, &first).len(), 2);

    // A worker that dies in the middle leaves one job with the schedule.
    let number = next["sequence"].to_string();
    due_long_ago(&number);
    let crashed = home.aye(&["work", "--once"]).env("AYE_FAILPOINT", "store.checkpoint.before").run();
    let is_scheduled = |job: &&Value| !job["request_extras"]["schedule"].is_null();
    assert_eq!(listed(&home, &[]).iter().filter(is_scheduled).count(), 1, "{}", crashed.stderr);
    work(&home, 0);
    let jobs = listed(&home, &[]);
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    home.ok(&["queue", "cancel", &jobs[0]["sequence"].to_string()]);
    assert!(listed(&home, &[]).is_empty(), "a schedule that is cancelled is over");

    let (_, thread) = add(&home, &["--thread", &first, "--cron", "0 9 * * mon"], "again");
    assert_eq!(thread, first);
    for (flag, text, why) in
        [("--every", "10s", "expected a span of at least 1m"), ("--cron", "* * *", "expected five fields")]
    {
        home.aye(&["queue", "add", flag, text, "x"]).run().exits(2).says(why);
    }
}

#[test]
fn a_unit_keeps_a_worker_running() {
    let home = Home::new();
    let unit = home.ok(&["work", "--print-unit", "systemd"]);
    unit.prints(" work\nWorkingDirectory=").prints("AYE_HOME=").prints("[Install]");
    home.ok(&["work", "--print-unit", "launchd"]).prints("<key>ProgramArguments</key>").prints("</plist>");
}

#[test]
fn tab_queues_a_message_while_the_agent_works() {
    let gate = Gate::default();
    let waits = gate.clone();
    let llm = MockLlm::by(move |chat: &Chat| match chat.user().as_str() {
        "slow" => Answer::say("Slowly").wait(&waits).text(" done."),
        other => Answer::say(&format!("You said: {other}")),
    });
    let home = Home::with(&llm);
    let tty = Pty::start(&home, &[], 100, 30);
    tty.ready();
    tty.say("slow");
    tty.shows("Slowly");
    tty.send("and then\t");
    tty.shows("queued and then");
    let jobs = listed(&home, &[]);
    assert_eq!((jobs.len(), &jobs[0]["state"]), (1, &"queued".into()));
    // Another process queues for the same conversation, for later.
    let thread = jobs[0]["mailbox_id"].as_str().expect("a conversation").to_owned();
    add(&home, &["--thread", &thread, "--at", "2h"], "much later");
    tty.shows("(not before 20");
    gate.open();
    tty.shows("You said: and then");
    tty.wait("the first leaving the queue", |view| !view.has("queued and then"));
    assert!(tty.look(|view| view.has("much later")));
    assert_eq!(states(&home), ["queued", "done"]);
}

#[test]
fn a_scheduled_message_starts_in_the_terminal_showing_its_conversation() {
    let llm = echo();
    let home = Home::with(&llm);
    let tty = Pty::start(&home, &[], 100, 30);
    tty.ready();
    tty.say("hello");
    tty.shows("You said: hello");
    let thread = home.thread();
    add(&home, &["--thread", &thread, "--at", "1s"], "by itself");
    tty.shows("You said: by itself");
    assert_eq!(states(&home), ["done"]);
}

#[test]
fn a_long_queue_is_listed_in_part_and_says_so() {
    let home = Home::new();
    for n in 1..=3 {
        home.ok(&["queue", "add", &format!("task {n}")]);
    }
    let listed = |args: &[&str]| {
        let out = home.ok(&[&["queue", "list"], args].concat());
        (out.stdout.lines().count(), out.stderr)
    };
    let (lines, said) = listed(&["--limit", "2"]);
    assert_eq!((lines, said.contains("1 more") && said.contains("--limit 0")), (2, true), "{said}");
    assert_eq!(listed(&[]), (3, String::new()));
    assert_eq!(listed(&["--limit", "3"]), (3, String::new()));
    assert_eq!(listed(&["--limit", "0"]), (3, String::new()));
    let json = home.ok(&["queue", "list", "--json", "--limit", "1"]);
    assert_eq!(json.json().as_array().map(Vec::len), Some(1));
    assert!(json.stderr.contains("2 more"), "{}", json.stderr);
}
