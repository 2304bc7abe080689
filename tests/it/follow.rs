//! One conversation in several terminals and processes: the active one works, the others follow, decide, and
//! send messages; each takes over when the active one is gone.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::home::{Home, id_of};
use crate::support::llm::{Answer, Chat, MockLlm, until};
use crate::support::pty::Pty;

const TOUCH: &str = "echo ran >> log.txt";
/// Immediate for a user, on a machine with other load.
const AT_ONCE: Duration = Duration::from_secs(20);

fn asks_to_run(command: &str) -> MockLlm {
    MockLlm::answers([
        Answer::say("I will.").bash("c1", command),
        Answer::say("It is **done**."),
        Answer::say("And more."),
        Answer::say("And the last."),
    ])
}

fn terminal(home: &Home, args: &[&str]) -> Pty {
    let tty = Pty::start(home, args, 100, 30);
    tty.ready();
    tty
}

fn fifo(home: &Home, name: &str) {
    let made = std::process::Command::new("mkfifo").arg(home.work().join(name)).status();
    assert!(made.expect("mkfifo is installed").success());
}

fn let_go(home: &Home, name: &str) {
    std::fs::write(home.work().join(name), "x").expect("written");
}

/// A model that asks for a command that ends with [`let_go`].
fn with_pipe() -> (MockLlm, Home) {
    let llm = asks_to_run("echo begun >> log.txt; cat pipe");
    let home = Home::with(&llm);
    fifo(&home, "pipe");
    (llm, home)
}

/// A terminal in which that command runs.
fn at_work(home: &Home, args: &[&str]) -> Pty {
    let tty = terminal(home, args);
    tty.say("do it");
    tty.card("cat pipe");
    tty.send("y");
    until("the command", || home.works("cat pipe") && home.read("log.txt") == "begun\n");
    tty
}

#[track_caller]
fn has_no_card(tty: &Pty) {
    tty.wait("no card", |view| !view.screen().lines().any(|l| l.starts_with(['▌', '│'])));
}

/// How often a line of the conversation appears.
fn count(tty: &Pty, text: &str) -> usize {
    tty.look(super::support::pty::View::all).matches(text).count()
}

#[test]
fn two_cards_survive_a_kill_and_the_second_is_answered_first() {
    let commands = ["echo one >> log.txt", "echo two >> log.txt"];
    let llm = MockLlm::by(move |chat: &Chat| match chat.results().len() {
        0 => Answer::new().bash("c0", commands[0]).bash("c1", commands[1]),
        _ => Answer::say("Both."),
    });
    let home = Home::with(&llm);
    let mode = ["--tool-execution", "parallel_streaming"];
    let tty = terminal(&home, &mode);
    tty.say("do it");
    tty.card(commands[0]);
    tty.shows("1 of 2");
    let ids: Vec<String> = home.open().iter().map(id_of).collect();
    tty.kill();
    let mut tty = terminal(&home, &[&["-c"][..], &mode].concat());
    tty.card(commands[0]);
    tty.shows("1 of 2");
    assert_eq!(home.open().iter().map(id_of).collect::<Vec<_>>(), ids);
    tty.send("\x1b[C");
    tty.card(commands[1]);
    tty.send("y");
    until("the second", || home.read("log.txt") == "two\n");
    assert_eq!(home.open().iter().map(id_of).collect::<Vec<_>>(), ids[..1]);
    tty.card(commands[0]);
    tty.send("y");
    tty.shows("Both.");
    assert_eq!(home.read("log.txt"), "two\none\n");
    tty.quit();
}

/// No run is active while a card waits: the terminal that shows it receives the answer and resumes the run.
#[test]
fn an_answer_from_a_script_resumes_the_terminal() {
    let llm = asks_to_run(TOUCH);
    let home = Home::with(&llm);
    let mut tty = terminal(&home, &[]);
    tty.say("do it");
    tty.card(TOUCH);
    home.ok(&["approvals", "approve", &home.question()]);
    let stored = Instant::now();
    has_no_card(&tty);
    assert!(stored.elapsed() < AT_ONCE, "{:?}", stored.elapsed());
    tty.shows("approved by tester (cli)");
    tty.shows("It is done.");
    assert_eq!(home.read("log.txt"), "ran\n");
    assert_eq!(count(&tty, "It is done."), 1);
    tty.quit();
}

/// Text being typed on a card is kept, but arrives too late.
#[test]
fn the_later_answer_learns_who_was_first() {
    let llm = asks_to_run(TOUCH);
    let home = Home::with(&llm);
    let mut tty = terminal(&home, &[]);
    tty.say("do it");
    tty.card(TOUCH);
    tty.send("n");
    tty.shows("reason:");
    home.ok(&["approvals", "approve", &home.question()]);
    tty.card("your decision came too late");
    tty.shows("was approved by tester (cli)");
    tty.send("use make");
    tty.card("use make");
    tty.card("your decision came too late");
    tty.send("\r");
    has_no_card(&tty);
    tty.shows("It is done.");
    tty.wait("the message", |view| view.all().contains("! Bash was already approved by tester (cli)"));
    assert_eq!(home.read("log.txt"), "ran\n");
    assert_eq!(llm.asked().len(), 2, "text typed on the card is not a message");
    tty.quit();
}

#[test]
fn two_terminals_show_the_same_and_either_answers() {
    let llm = MockLlm::by(|chat: &Chat| match (chat.user().as_str(), chat.results().len()) {
        (_, n @ 0..=1) => {
            Answer::say(&format!("Call {n}.")).bash(&format!("c{n}"), &format!("echo n{n} >> log.txt"))
        }
        ("do it", _) => Answer::say("Both are made."),
        (said, _) => Answer::say(&format!("You said {said}.")),
    });
    let home = Home::with(&llm);
    let mut one = terminal(&home, &[]);
    one.say("do it");
    one.card("echo n0");
    let mut two = terminal(&home, &["-c"]);
    two.card("echo n0");
    two.send("y");
    // The second terminal drives now; the first follows and shows the next card.
    one.card("echo n1");
    two.card("echo n1");
    assert_eq!(home.read("log.txt"), "n0\n");
    one.send("y");
    for tty in [&one, &two] {
        tty.shows("Both are made.");
        has_no_card(tty);
    }
    assert_eq!(home.read("log.txt"), "n0\nn1\n");
    // Either sends a message.
    two.say("hello");
    for tty in [&one, &two] {
        tty.shows("You said hello.");
    }
    one.say("goodbye");
    for tty in [&one, &two] {
        tty.shows("You said goodbye.");
    }
    let mut three = terminal(&home, &["-c"]);
    three.shows("You said goodbye.");
    for text in ["do it", "Call 0.", "Call 1.", "Both are made.", "You said hello.", "You said goodbye."] {
        for (nth, tty) in [&one, &two, &three].into_iter().enumerate() {
            let all = tty.look(super::support::pty::View::all);
            // The title of an opened conversation contains it too.
            let shown = all.lines().filter(|line| line.contains(text) && !line.contains("──")).count();
            assert_eq!(shown, 1, "{text} in terminal {nth}:\n{all}");
        }
    }
    for tty in [&mut one, &mut two, &mut three] {
        tty.quit();
    }
}

#[test]
fn a_follower_sees_who_drives_and_what_runs() {
    let (_llm, home) = with_pipe();
    let mut one = at_work(&home, &[]);
    let mut two = terminal(&home, &["-c"]);
    two.wait("the driving process", |view| view.has(&format!("running in process {}", one.pid())));
    two.shows("I will.");
    two.wait("the running command", |view| {
        view.screen().lines().any(|l| l.contains('●') && l.contains("cat pipe"))
    });
    // It cannot be stopped from here, and leaving does not stop it.
    two.send("\x1b");
    two.wait("the stop hint", |view| view.has("interrupt it there"));
    two.quit();
    assert!(home.works("cat pipe"));
    let mut two = terminal(&home, &["-c"]);
    two.wait("the driving process", |view| view.has("running in process"));
    let_go(&home, "pipe");
    for tty in [&one, &two] {
        tty.shows("It is done.");
        tty.wait("the free thread", |view| !view.has("running in") && !view.is_active());
        assert_eq!(count(tty, "It is done."), 1);
        assert_eq!(count(tty, "I will."), 1);
    }
    assert_eq!(home.read("log.txt"), "begun\n");
    one.quit();
    two.quit();
}

#[test]
fn when_the_owner_is_killed_the_other_terminal_takes_over() {
    let (_llm, home) = with_pipe();
    let one = at_work(&home, &[]);
    let mut two = terminal(&home, &["-c"]);
    two.wait("the driving process", |view| view.has("running in process"));
    one.kill();
    two.card("cat pipe");
    two.shows("its outcome is unknown");
    assert_eq!(home.read("log.txt"), "begun\n", "not repeated");
    two.send("d");
    two.shows("It is done.");
    assert_eq!(home.read("log.txt"), "begun\n");
    two.quit();
}

/// A stopped process keeps its terminal, but not its lease.
#[test]
fn when_the_owner_is_stopped_the_other_terminal_takes_over_after_its_lease() {
    let (llm, home) = with_pipe();
    let lease = ["--config", "lease=1s"];
    let mut one = at_work(&home, &lease);
    let mut two = terminal(&home, &[&["-c"][..], &lease].concat());
    two.wait("the driving process", |view| view.has("running in process"));
    // While it lives and renews its lease, it drives.
    std::thread::sleep(Duration::from_millis(2500));
    assert!(two.look(|view| view.has("running in process")));
    one.signal(Signal::STOP);
    two.card("cat pipe");
    two.shows("its outcome is unknown");
    assert_eq!(home.read("log.txt"), "begun\n", "not repeated");
    // It resumes, sees that it lost the conversation, and follows.
    one.signal(Signal::CONT);
    one.shows("another process took over this conversation");
    one.card("cat pipe");
    one.send("d");
    for tty in [&one, &two] {
        tty.shows("It is done.");
        has_no_card(tty);
    }
    assert_eq!(home.read("log.txt"), "begun\n");
    assert_eq!(llm.asked().len(), 2);
    one.quit();
    two.quit();
}

#[test]
fn a_followers_message_is_sent_once() {
    let (llm, home) = with_pipe();
    let mut one = at_work(&home, &[]);
    let mut two = terminal(&home, &["-c"]);
    two.wait("the driving process", |view| view.has("running in process"));
    two.queue("from the second");
    for tty in [&one, &two] {
        tty.wait("the queue", |view| view.has("queued from the second"));
    }
    one.queue("from the first");
    for tty in [&one, &two] {
        tty.wait("the queue", |view| view.has("queued from the second") && view.has("queued from the first"));
    }
    let_go(&home, "pipe");
    for tty in [&one, &two] {
        tty.shows("It is done.");
        tty.shows("And more.");
        tty.shows("And the last.");
        tty.wait("an empty queue", |view| !view.has("queued"));
        assert_eq!(count(tty, "from the second"), 1);
        assert_eq!(count(tty, "from the first"), 1);
    }
    let said: Vec<String> = llm.asked().iter().map(Chat::user).collect();
    assert_eq!(said, ["do it", "do it", "from the second", "from the first"]);
    one.quit();
    two.quit();
}

/// The owner dies with queued messages: they start after the run, in the process that drives then.
#[test]
fn a_queued_message_outlives_its_terminal() {
    let (llm, home) = with_pipe();
    let tty = at_work(&home, &[]);
    tty.queue("and then this");
    tty.wait("the queue", |view| view.has("queued and then this"));
    tty.queue("not this");
    tty.wait("the queue", |view| view.has("queued not this"));
    tty.queue("never mind");
    tty.wait("the queue", |view| view.has("queued never mind"));
    // One in the middle is dropped, the last one is taken back and discarded.
    tty.send("\x1b[A\x1b[A");
    tty.wait("the choice", |view| view.has("▸ queued not this"));
    tty.send("\x1b[3~");
    tty.wait("one less", |view| !view.has("queued not this") && view.has("▸ queued never mind"));
    tty.send("\r");
    tty.wait("the text", |view| view.has("❯ never mind") && !view.has("queued never mind"));
    tty.kill();
    let mut tty = terminal(&home, &["-c"]);
    tty.card("cat pipe");
    tty.wait("the queue", |view| view.has("queued and then this"));
    tty.send("s");
    tty.shows("It is done.");
    tty.shows("And more.");
    tty.wait("an empty queue", |view| !view.has("queued"));
    let said: Vec<String> = llm.asked().iter().map(Chat::user).collect();
    assert_eq!(said, ["do it", "do it", "and then this"]);
    tty.quit();
}

#[test]
fn a_headless_message_is_queued_after_questions() {
    let llm = asks_to_run(TOUCH);
    let home = Home::with(&llm);
    home.aye(&["-p", "do it"]).run().exits(3);
    let question = home.question();
    let out = home.aye(&["-c", "-p", "--keep-waiting", "and then this"]).run().exits(3);
    assert!(out.stderr.contains("queued after 1 question"), "{out:?}");
    let out = home.aye(&["-c", "-p", "--keep-waiting", "--output-format", "json", "and that"]).run().exits(3);
    assert_eq!(out.json()["status"], "queued");
    assert_eq!(out.json()["waiting"][0]["id"], Value::from(question.clone()));
    assert_eq!(home.question(), question, "it stays");
    assert_eq!(llm.asked().len(), 1);
    // It is still pending.
    home.aye(&["-c", "-p"]).run().exits(3);
    home.ok(&["approvals", "approve", &question]);
    let out = home.ok(&["-c", "-p"]);
    assert_eq!(out.stdout, "It is **done**.\nAnd more.\nAnd the last.\n");
    let said: Vec<String> = llm.asked().iter().map(Chat::user).collect();
    assert_eq!(said, ["do it", "do it", "and then this", "and that"]);
    assert_eq!(home.read("log.txt"), "ran\n");
    // Nothing is left: the last answer is printed again. With nothing pending a message is sent at once.
    assert_eq!(home.ok(&["-c", "-p"]).stdout, "And the last.\n");
    let out = home.ok(&["-c", "-p", "--keep-waiting", "once more"]);
    assert_eq!(out.stdout, "NO MORE ANSWERS\n");
    home.aye(&["-p", "--keep-waiting", "x"]).run().exits(2);
}

#[test]
fn a_message_is_queued_after_a_card_or_supersedes_it() {
    let llm = asks_to_run(TOUCH);
    let home = Home::with(&llm);
    let mut tty = terminal(&home, &[]);
    tty.say("do it");
    tty.card(TOUCH);
    tty.send("\x1b[C");
    tty.send("and then this");
    tty.wait("the text", |view| view.has("❯ and then this"));
    tty.send("\x1bq");
    tty.wait("the queue", |view| view.has("queued and then this"));
    assert_eq!(home.open().len(), 1, "the question stays pending");
    assert_eq!(llm.asked().len(), 1);
    tty.card(TOUCH);
    tty.send("y");
    tty.shows("It is done.");
    tty.shows("And more.");
    assert_eq!(home.read("log.txt"), "ran\n");
    let said: Vec<String> = llm.asked().iter().map(Chat::user).collect();
    assert_eq!(said, ["do it", "do it", "and then this"]);
    tty.quit();

    let llm = asks_to_run(TOUCH);
    let home = Home::with(&llm);
    let mut tty = terminal(&home, &[]);
    tty.say("do it");
    tty.card(TOUCH);
    tty.send("\x1b[C");
    tty.say("leave it");
    tty.shows("It is done.");
    assert!(home.open().is_empty());
    assert_eq!(home.read("log.txt"), "");
    tty.quit();
    // The closed run is the parent of the new one.
    let thread = home.thread();
    let export = home.ok(&["threads", "show", &thread, "--json"]).json();
    assert!(export.to_string().contains("leave it"));

    // Configured at startup: Enter queues.
    let llm = asks_to_run(TOUCH);
    let home = Home::with(&llm);
    home.aye(&["-p", "do it"]).run().exits(3);
    let mut tty = terminal(&home, &["-c", "--keep-waiting"]);
    tty.card(TOUCH);
    tty.send("\x1b[C");
    tty.say("and then this");
    tty.wait("the queue", |view| view.has("queued and then this"));
    assert_eq!(home.open().len(), 1, "the question stays pending");
    tty.quit();
}

/// Following an idle conversation costs nothing: no timer, no polling.
#[test]
fn nothing_is_woken_while_no_run_is_active() {
    let llm = asks_to_run(TOUCH);
    let home = Home::with(&llm);
    let mut one = terminal(&home, &[]);
    one.say("do it");
    one.card(TOUCH);
    let mut two = terminal(&home, &["-c"]);
    two.card(TOUCH);
    let wakes = || -> u64 { [one.pid(), two.pid()].into_iter().map(wake_ups).sum() };
    // Work from startup may finish first.
    until("two seconds without a wake-up", || {
        let before = wakes();
        std::thread::sleep(Duration::from_secs(2));
        wakes() == before
    });
    two.send("y");
    one.shows("It is done.");
    one.quit();
    two.quit();
}

/// How often the threads of a process slept voluntarily, and so were woken.
fn wake_ups(pid: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("is alive").flatten();
    let of_one = |task: std::fs::DirEntry| -> u64 {
        let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
    };
    tasks.map(of_one).sum()
}
