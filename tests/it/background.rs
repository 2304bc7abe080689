//! Background commands with the real program: they outlive their turn, not aye.

use std::path::Path;

use serde_json::json;

use crate::support::home::Home;
use crate::support::llm::{Answer, Chat, MockLlm, until};
use crate::support::pty::Pty;

/// A server: prints that it is up, and stays.
const SERVER: &str = "echo $$ > pid; echo up; sleep 1000";

fn home(llm: &MockLlm) -> Home {
    let home = Home::with(llm);
    // Outside, where the pids are those that the test sees.
    home.rules("rules:\n  - {tool: Bash, behavior: allow, sandbox: outside}\n");
    home
}

fn lives(pid: &str) -> bool {
    Path::new("/proc").join(pid.trim()).exists()
}

/// The pid of the server, once it runs.
fn pid(home: &Home) -> String {
    until("the server", || home.read("pid").ends_with('\n'));
    home.read("pid")
}

fn starts(command: &str) -> Answer {
    Answer::new().call("c1", "Bash", json!({"command": command, "run_in_background": true}))
}

/// Reads the output until it contains this text, and then says so.
fn looks(chat: &Chat, text: &str) -> Answer {
    let last = chat.results().last().map(|(_, text)| text.clone()).unwrap_or_default();
    if last.contains(text) && !last.starts_with("Runs") {
        return Answer::say("I saw it.");
    }
    Answer::new().call(&format!("o{}", chat.results().len()), "BashOutput", json!({"bash_id": "b1"}))
}

/// The answer to each message of the user; any other message is acknowledged.
fn agent(command: &'static str) -> MockLlm {
    MockLlm::by(move |chat: &Chat| {
        let last = chat.messages().last().map(|last| last["role"].clone());
        match (chat.user().as_str(), last == Some(json!("tool"))) {
            // Text sent before it reaches the model in the same message.
            (said, _) if said.contains("[task b1]") => Answer::say("I heard of its end."),
            ("start", false) => starts(command),
            ("start", true) => Answer::say("It runs."),
            ("look", _) => looks(chat, "up"),
            ("kill", false) => Answer::new().call("k1", "KillShell", json!({"shell_id": "b1"})),
            ("kill", true) => Answer::say("It is gone."),
            _ => Answer::say("Well."),
        }
    })
}

#[test]
fn a_server_survives_its_turn_and_is_killed() {
    let llm = agent(SERVER);
    let home = home(&llm);
    let mut tty = Pty::start(&home, &[], 100, 30);
    tty.ready();
    tty.say("start");
    tty.shows("It runs.");
    assert!(llm.last().result("c1").starts_with("Runs in the background as b1."));
    let pid = pid(&home);
    tty.say("look");
    tty.shows("I saw it.");
    let seen = llm.last().results();
    assert!(seen.last().is_some_and(|(_, text)| text == "b1 is running\nup"), "{seen:?}");
    assert!(lives(&pid));
    tty.say("kill");
    tty.shows("It is gone.");
    assert_eq!(llm.last().result("k1"), "b1 was stopped");
    assert!(!lives(&pid), "it has ended when the call returns");
    // Its end is known: it is not mentioned again.
    assert!(!llm.asked().iter().any(|chat| chat.user().contains("[task")));
    tty.quit();
    home.ok(&["audit", "--verify"]);
}

/// A screen shows part of what comes this fast.
#[test]
fn all_that_a_fast_command_prints_is_stored() {
    let llm = agent("echo $$ > pid; seq 1 20000; echo up; sleep 1000");
    let home = home(&llm);
    let mut tty = Pty::start(&home, &[], 100, 30);
    tty.ready();
    tty.say("start");
    tty.shows("It runs.");
    tty.say("look");
    tty.shows("I saw it.");
    let shown = home.ok(&["tasks", "show", "b1"]).stdout;
    let numbers = shown.lines().filter_map(|line| line.trim().parse::<u32>().ok());
    assert!(numbers.eq(1..=20_000), "{}", shown.len());
    tty.say("kill");
    tty.shows("It is gone.");
    tty.quit();
}

#[test]
fn a_killed_aye_leaves_nothing_and_the_next_run_reports_it() {
    let llm = agent(SERVER);
    let home = home(&llm);
    let tty = Pty::start(&home, &[], 100, 30);
    tty.ready();
    tty.say("start");
    tty.shows("It runs.");
    let pid = pid(&home);
    assert!(lives(&pid));
    tty.kill();
    until("the end of the server", || !lives(&pid));
    let out = home.ok(&["-c", "-p", "look again"]);
    assert_eq!(out.stdout, "I heard of its end.\n", "one run, which knows both");
    let said = llm.last().user();
    assert!(said.starts_with("look again") && said.contains("its outcome is unknown"), "{said}");
    home.ok(&["-c", "-p", "and now"]);
    let told: Vec<_> = llm.last().messages().iter().map(ToString::to_string).collect();
    assert_eq!(told.iter().filter(|text| text.contains("[task b1]")).count(), 1, "{told:#?}");
}

#[test]
fn a_finished_command_wakes_an_idle_conversation() {
    let llm = agent("cat pipe");
    let home = home(&llm);
    let pipe = home.work().join("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .expect("a pipe");
    let mut tty = Pty::start(&home, &[], 100, 30);
    tty.ready();
    tty.say("start");
    tty.shows("It runs.");
    std::fs::write(&pipe, "the last words\n").expect("is read");
    tty.shows("I heard of its end.");
    let said = llm.last().user();
    assert!(said.contains("ended with exit status 0") && said.contains("the last words"), "{said}");
    tty.quit();
}

#[test]
fn a_finished_command_wakes_nobody_if_the_settings_say_so() {
    let llm = agent("cat pipe");
    let home = home(&llm);
    let pipe = home.work().join("pipe");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
    let mut tty = Pty::start(&home, &["--config", "background.wake=never"], 100, 30);
    tty.ready();
    tty.say("start");
    tty.shows("It runs.");
    tty.wait("the running command", |view| view.has("b1"));
    std::fs::write(&pipe, "the last words\n").expect("is read");
    until("the end of the command", || home.ok(&["tasks", "list"]).stdout == "none\n");
    tty.say("anything new");
    tty.shows("I heard of its end.");
    tty.shows("· task b1 · The background command");
    let messages: Vec<String> =
        llm.asked().iter().map(Chat::user).filter(|text| text.contains("[task")).collect();
    assert!(
        matches!(&messages[..], [text] if text.starts_with("anything new")),
        "one run, the user's: {messages:#?}"
    );
    tty.quit();
}

#[test]
fn headless_ends_its_background_commands_and_says_so() {
    let llm = agent(SERVER);
    let home = home(&llm);
    let out = home.ok(&["-p", "start"]);
    assert_eq!(out.stdout, "It runs.\n");
    assert!(
        out.stderr.contains("stopped background command b1 (echo $$ > pid; echo up; sleep 1000)"),
        "{}",
        out.stderr
    );
    assert!(!home.read("pid").ends_with('\n') || !lives(&home.read("pid")));
    let out = home.ok(&["-c", "-p", "hello"]);
    assert_eq!(out.stdout, "I heard of its end.\n");
    assert!(llm.last().user().contains("was stopped"), "{}", llm.last().user());
}

/// It ends during the run, which is notified before its next step, without a run of its own.
#[test]
fn an_active_run_is_notified_of_a_finished_command() {
    let llm = MockLlm::by(|chat: &Chat| match chat.results().len() {
        0 => starts("echo one; exit 4"),
        _ if chat.user().contains("[task") => Answer::say("I heard of its end."),
        _ => looks(chat, "no such words"),
    });
    let home = home(&llm);
    let out = home.ok(&["-p", "go"]);
    assert_eq!(out.stdout, "I heard of its end.\n");
    assert!(llm.last().user().contains("ended with exit status 4.\n\none"), "{}", llm.last().user());
    assert!(!out.stderr.contains("stopped background command"), "{}", out.stderr);
}

#[test]
fn a_command_of_another_conversation_is_not_visible() {
    let llm = agent(SERVER);
    let home = home(&llm);
    home.ok(&["-p", "start"]);
    home.ok(&["-p", "kill"]);
    assert!(llm.last().result("k1").contains("this conversation has no background command `b1`"));
}

#[test]
fn tasks_lists_and_stops_commands() {
    let llm = agent(SERVER);
    let home = home(&llm);
    let mut tty = Pty::start(&home, &[], 100, 30);
    tty.ready();
    tty.say("start");
    tty.shows("in the background: b1 echo");
    let pid = pid(&home);
    let list = home.ok(&["tasks", "list", "--json"]).json();
    let task = &list[0];
    assert_eq!(
        (&task["kind"], &task["task_id"], &task["task_status"], &task["command"]),
        (&json!("command"), &json!("b1"), &json!("running"), &json!(SERVER))
    );
    tty.say("/tasks");
    tty.shows("b1  command · running");
    let shown = home.ok(&["tasks", "show", "b1"]).stdout;
    assert!(shown.contains("> echo $$ > pid; echo up; sleep 1000\n  up\n"), "{shown}");
    // Another process asks the one that supervises it, whose conversation is notified.
    let stopped = home.ok(&["tasks", "stop", "b1"]).stdout;
    assert!(stopped.starts_with("stopped task b1 (echo $$ > pid;"), "{stopped}");
    assert!(!lives(&pid));
    tty.shows("I heard of its end.");
    assert!(llm.last().user().contains("was stopped"), "{}", llm.last().user());
    home.aye(&["tasks", "stop", "b1"]).run().exits(1);
    assert_eq!(home.ok(&["tasks", "list"]).stdout, "none\n");
    assert_eq!(home.ok(&["tasks", "list", "--all", "--json"]).json()[0]["task_status"], "stopped");
    tty.quit();
}

/// The process is the same before and after, and its output is complete.
#[test]
fn a_key_moves_a_command_to_the_background() {
    let llm = MockLlm::by(|chat: &Chat| match (chat.user().as_str(), chat.results().len()) {
        ("start", 0) => Answer::new().bash("c1", SERVER),
        ("start", _) => Answer::say("It runs."),
        _ => looks(chat, "is running\nup"),
    });
    let home = home(&llm);
    let mut tty = Pty::start(&home, &[], 100, 30);
    tty.ready();
    tty.say("start");
    tty.shows("running Bash");
    let pid = pid(&home);
    tty.send("\x02");
    tty.shows("It runs.");
    let told = llm.last().result("c1");
    assert!(told.starts_with("The user moved it to the background as b1."), "{told}");
    assert!(lives(&pid));
    tty.say("look");
    tty.shows("I saw it.");
    tty.quit();
    until("the end of the server", || !lives(&pid));
}

/// Programs with their own terminal, into which the model types.
mod terminal {
    use super::*;
    use crate::sandbox::has_all_layers;

    /// Asks for a name, then waits for an interrupt.
    const ASKS: &str = "sh asks.sh";

    const SCRIPT: &str = "echo $$ > pid\n\
        test -t 0 && test -t 1 && stty size\n\
        printf 'Name? '; read -r name; echo \"hello $name\"\n\
        trap 'echo interrupted' INT; echo ready; sleep 1000; echo over; cat\n";

    /// Types into the terminal, and each time reads until the answer appears.
    fn typist(asks: &'static str, typed: &'static [(&'static str, &'static str)]) -> MockLlm {
        MockLlm::by(move |chat: &Chat| {
            let results = chat.results();
            if results.is_empty() {
                return Answer::new().call("c1", "Bash", json!({"command": asks, "tty": true}));
            }
            let all = results.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("\n");
            let count = results.iter().filter(|(id, _)| id.starts_with('i')).count();
            let expected = if count == 0 { "Name?" } else { typed[count - 1].1 };
            if !all.contains(expected) {
                let id = format!("o{}", results.len());
                return Answer::new().call(&id, "BashOutput", json!({"bash_id": "b1"}));
            }
            match typed.get(count) {
                None => Answer::say("Done."),
                Some((text, _)) => {
                    let input = json!({"bash_id": "b1", "text": text});
                    Answer::new().call(&format!("i{count}"), "BashInput", input)
                }
            }
        })
    }

    const TYPED: &[(&str, &str)] = &[("ann\n", "ready"), ("\u{3}", "over")];

    fn all(llm: &MockLlm) -> String {
        llm.last().results().into_iter().map(|(_, text)| text + "\n").collect()
    }

    /// Outside, and inside with network access: a key that interrupts the program leaves its surroundings
    /// alone.
    #[test]
    fn a_program_asks_for_input_and_is_interrupted() {
        for profile in ["outside", "workspace"] {
            if profile == "workspace" && !has_all_layers() {
                continue;
            }
            let llm = typist(ASKS, TYPED);
            let home = Home::with(&llm);
            home.write("asks.sh", SCRIPT);
            home.rules(&format!(
                "rules:\n  - {{tool: Bash, behavior: allow, sandbox: {profile}}}\n  - {{tool: BashInput, behavior: allow}}\n"
            ));
            home.ok(&["-p", "start"]);
            let all = all(&llm);
            assert!(all.contains("30 100") && all.contains("hello ann"), "{profile}: {all}");
            assert!(all.contains("interrupted") && all.contains("over"), "{profile}: {all}");
            assert!(!all.contains('\r') && !all.contains('\u{1b}'), "{profile}: {all:?}");
        }
    }

    #[test]
    fn bash_input_needs_a_terminal_of_the_same_conversation() {
        let llm = MockLlm::answers([
            starts("sleep 1000"),
            Answer::new().call("c2", "BashInput", json!({"bash_id": "b1", "text": "x\n"})),
            Answer::new().call("c3", "BashInput", json!({"bash_id": "b9", "text": "x\n"})),
            Answer::say("Done."),
        ]);
        let home = home(&llm);
        home.ok(&["-p", "start", "--allowed-tools", "BashInput"]);
        let last = llm.last();
        assert!(last.result("c2").contains("b1 runs without a terminal"), "{}", last.result("c2"));
        assert!(last.result("c3").contains("no background command `b9`"), "{}", last.result("c3"));
    }

    /// Typing is a call of its own; its card names the profile and shows invisible keys.
    #[test]
    fn typing_asks_and_a_kill_leaves_nothing() {
        let llm = typist(ASKS, &[("ann\u{7f}\n", "ready")]);
        let home = home(&llm);
        home.write("asks.sh", SCRIPT);
        let tty = Pty::start(&home, &[], 100, 40);
        tty.ready();
        tty.say("start");
        tty.card("b1 runs outside the sandbox");
        tty.shows("ann^?⏎");
        let pid = pid(&home);
        tty.send("y");
        tty.shows("Done.");
        assert!(all(&llm).contains("hello an\n"), "{}", all(&llm));
        assert!(lives(&pid));
        tty.kill();
        until("the end of the program", || !lives(&pid));
    }

    /// The user answers instead of the model: the whole screen belongs to the program until Ctrl-].
    #[test]
    fn the_user_takes_over_the_terminal() {
        let llm = MockLlm::by(|chat: &Chat| match chat.results().len() {
            0 => Answer::new().call("c1", "Bash", json!({"command": ASKS, "tty": true})),
            _ => Answer::say("It asks."),
        });
        let home = home(&llm);
        home.write("asks.sh", SCRIPT);
        let mut tty = Pty::start(&home, &[], 90, 20);
        tty.ready();
        tty.say("start");
        tty.shows("It asks.");
        // Another aye that shows the conversation says where the terminal is.
        let mut other = Pty::start(&home, &["-c"], 90, 20);
        other.shows("It asks.");
        other.say("/tasks open b1");
        other.shows("which has its terminal: open it in that aye");
        other.quit();
        tty.say("/tasks open b1");
        tty.shows("b1 · Ctrl-] returns to aye");
        tty.shows("Name?");
        assert!(tty.look(|view| view.on_other_screen()));
        tty.send("ann\r");
        tty.shows("hello ann");
        // It has the size of the terminal, without aye's own line.
        tty.shows("ready");
        tty.send("\u{3}");
        tty.shows("over");
        tty.send("typed\r\u{1d}");
        tty.wait("aye is back", |view| !view.on_other_screen() && view.screen().contains("It asks."));
        tty.say("/tasks open b1");
        tty.shows("Ctrl-] returns to aye");
        tty.shows("typed");
        // The program's end returns to aye too.
        tty.send("\u{4}");
        tty.wait("aye is back", |view| !view.on_other_screen() && view.screen().contains("❯"));
        tty.say("/tasks open b9");
        tty.shows("no command b9 of this conversation runs here");
        tty.quit();
    }

    /// In the sandbox nothing can be injected into the terminal as if typed, and auto mode types without a
    /// question.
    #[test]
    fn a_sandboxed_program_cannot_type() {
        if !has_all_layers() {
            return;
        }
        let push = "printf 'Name? '; python3 -c 'import fcntl, termios\n\
                    try: fcntl.ioctl(0, termios.TIOCSTI, b\"x\"); print(\"pushed\")\n\
                    except OSError as e: print(\"refused\", e.errno)'; read -r n; echo \"hello $n\"";
        let llm = typist(push, &[("ann\n", "hello ann")]);
        let home = Home::with(&llm);
        home.ok(&["-p", "start", "--permission-mode", "auto"]);
        let all = all(&llm);
        assert!(all.contains("refused 1") && !all.contains("pushed"), "{all}");
        assert!(all.contains("typed into b1"), "{all}");
    }
}
