use serde_json::{Value, json};

use crate::app::RunState;
use crate::app::tests::{TestApp, opened, queued, record, ticket};
use crate::host::{QuestionCmd, QuestionMsg, ThreadCmd, ThreadMsg, ThreadOwner, ThreadSync, UserInput};
use crate::msg::{Cmd, Msg};
use aye_core::contract::lifecycle::{RunStatus, TerminationReason};
use aye_core::contract::record::{RunRecord, SuspensionRecord, SuspensionStatus};
use aye_core::contract::suspension::ACTION_PERMISSION;

fn run(id: &str, status: RunStatus, termination: Option<TerminationReason>) -> RunRecord {
    RunRecord { status, steps: 1, termination, ..RunRecord::new(id.into(), "t".into(), "aye", "m1", 0) }
}

fn question(id: &str) -> SuspensionRecord {
    let ticket = ticket(id, "Bash", json!({"command": "git push"}), ACTION_PERMISSION, Value::Null);
    SuspensionRecord { status: SuspensionStatus::Open, decision: None, decided_by: None, ..*record(ticket) }
}

fn sync(driver: ThreadOwner, run: Option<RunRecord>, waiting: &[&str]) -> ThreadSync {
    ThreadSync {
        thread: opened(Vec::new()).thread,
        driver,
        is_part: false,
        messages: Vec::new(),
        results: Vec::new(),
        run,
        waiting: waiting.iter().map(|id| question(id)).collect(),
        running: Vec::new(),
        queued: Vec::new(),
        children: Vec::new(),
        commands: Vec::new(),
        summaries: Vec::new(),
    }
}

fn send_sync(test: &mut TestApp, sync: ThreadSync) {
    test.cmds.clear();
    test.send(Msg::Thread(ThreadMsg::Synced(Box::new(sync))));
}

fn waits(ids: &[&str]) -> ThreadSync {
    sync(ThreadOwner::Nobody, Some(run("r", RunStatus::Waiting, None)), ids)
}

fn is_shown(test: &TestApp, id: &str) -> bool {
    test.app.cards.open.iter().any(|card| card.id.as_str() == format!("perm_{id}"))
}

#[test]
fn a_line_above_the_prompt_lists_background_commands() {
    use aye_core::contract::command::CommandRecord;
    use aye_core::contract::record::Owner;

    let command = |number, line: &str| CommandRecord {
        number,
        thread_id: "t".into(),
        run_id: "r".into(),
        call_id: "c".into(),
        agent: "aye".into(),
        command: line.into(),
        owner: Owner { token: "me".into(), pid: 1, ..Owner::default() },
        started_at: 0,
        stop: false,
        told: false,
        ended_at: None,
        end: None,
    };
    let mut test = TestApp::new(80, 24);
    let long = format!("cargo watch {}", "x".repeat(100));
    let commands = vec![command(3, "npm run\x1b[31m dev"), command(4, &long)];
    send_sync(&mut test, ThreadSync { commands, ..sync(ThreadOwner::Nobody, None, &[]) });
    let live = test.live();
    let line = live.lines().find(|line| line.contains("in the background")).expect("a line");
    assert!(
        line.starts_with("  in the background: b3 npm run") && line.contains(" · b4 cargo watch xx"),
        "{live}"
    );
    assert!(!line.contains('\x1b') && line.ends_with('…'), "{line:?}");
    send_sync(&mut test, sync(ThreadOwner::Nobody, None, &[]));
    assert!(!test.live().contains("in the background"), "{}", test.live());
}

#[test]
fn a_question_answered_by_others_disappears_and_says_who() {
    let mut test = TestApp::new(100, 30);
    send_sync(&mut test, waits(&["a", "b"]));
    assert!(is_shown(&test, "a") && is_shown(&test, "b"));
    send_sync(&mut test, waits(&["a", "b"]));
    assert_eq!(test.app.cards.open.len(), 2, "it is emitted twice and shown once");
    // The sync may be older than the question: its row is checked before the card goes.
    send_sync(&mut test, waits(&["b"]));
    assert_eq!(test.cmds, [Cmd::Question(QuestionCmd::WhoAnswered("perm_a".into()))]);
    assert!(is_shown(&test, "a"));
    let answered =
        record(ticket("a", "Bash", json!({"command": "git push"}), ACTION_PERMISSION, Value::Null));
    test.send(Msg::Question(QuestionMsg::Closed(answered)));
    assert!(!is_shown(&test, "a") && is_shown(&test, "b"));
    assert!(test.live().contains("Bash was approved by ann (cli) at 12:03"), "{}", test.live());
    // A sync from before the answer does not bring it back.
    send_sync(&mut test, waits(&["a", "b"]));
    assert!(!is_shown(&test, "a"));
}

#[test]
fn text_being_typed_on_a_card_is_kept() {
    let mut test = TestApp::new(100, 30);
    send_sync(&mut test, waits(&["a"]));
    test.wait(1000);
    test.wait(1000);
    test.keys("nuse make");
    send_sync(&mut test, waits(&[]));
    let answered =
        record(ticket("a", "Bash", json!({"command": "git push"}), ACTION_PERMISSION, Value::Null));
    test.send(Msg::Question(QuestionMsg::Closed(answered)));
    assert!(is_shown(&test, "a"));
    assert!(test.live().contains("was approved by ann"), "{}", test.live());
    assert!(test.live().contains("use make"), "{}", test.live());
    test.keys(" then");
    assert!(test.live().contains("your decision came too late"), "{}", test.live());
    test.cmds.clear();
    test.keys("<enter>");
    assert_eq!(test.decisions().len(), 1, "the store names the first");
    assert!(is_shown(&test, "a"), "until the store confirmed it");
    assert!(
        test.cmds
            .iter()
            .all(|cmd| !matches!(cmd, Cmd::Thread(ThreadCmd::Start(..) | ThreadCmd::Enqueue(..))))
    );
}

/// The run resumes here after an answer from elsewhere: its events keep the text being typed too.
#[test]
fn text_being_typed_is_kept_when_the_run_resumes_here() {
    use aye_core::contract::event::AgentEvent as E;
    let mut test = TestApp::new(100, 30);
    test.start("go");
    test.ask_bash("a", "git push");
    test.keys("nuse");
    test.cmds.clear();
    test.event(E::RunStart { thread_id: "t".into(), run_id: "r".into(), parent_run_id: None });
    test.event(E::ToolCallResumed { target_id: "a".into(), result: Value::Null });
    assert_eq!(test.cmds, [Cmd::Question(QuestionCmd::WhoAnswered("perm_a".into()))]);
    test.finish(TerminationReason::NaturalEnd);
    test.keys(" make");
    assert!(is_shown(&test, "a") && test.live().contains("use make"), "{}", test.live());
    assert!(test.app.composer.is_empty());
    test.keys("<esc>");
    assert!(!is_shown(&test, "a"), "it is closed");
}

/// A server in the same process resumes the run with the answer; the terminal follows it to its end.
#[test]
fn a_run_that_another_driver_ends_has_its_line() {
    let mut test = TestApp::new(100, 30);
    test.start("go");
    test.ask_bash("a", "make");
    test.finish(TerminationReason::Suspended);
    send_sync(&mut test, sync(ThreadOwner::Other(77), Some(run("r", RunStatus::Running, None)), &[]));
    test.wait(2000);
    let end = Some(run("r", RunStatus::Done, Some(TerminationReason::NaturalEnd)));
    send_sync(&mut test, sync(ThreadOwner::Nobody, end.clone(), &[]));
    send_sync(&mut test, sync(ThreadOwner::Nobody, end, &[]));
    let line = "─ worked 2.0 s · 1 call · asked once";
    assert_eq!(test.screen().matches(line).count(), 1, "{}", test.screen());
}

#[test]
fn a_follower_sends_through_the_queue_and_stops_nothing() {
    let mut test = TestApp::new(100, 30);
    send_sync(&mut test, sync(ThreadOwner::Other(77), Some(run("r", RunStatus::Running, None)), &[]));
    assert!(test.live().contains("running in process 77"), "{}", test.live());
    assert!(!test.live().contains("interrupts"), "{}", test.live());
    test.keys("hello<enter>");
    assert_eq!(
        test.cmds.last(),
        Some(&Cmd::Thread(ThreadCmd::Enqueue(
            "t".into(),
            UserInput { steers: true, ..UserInput::text("hello") }
        )))
    );
    assert!(!test.screen().contains("❯ hello"), "{}", test.screen());
    test.send(Msg::Thread(ThreadMsg::Enqueued(UserInput::text("hello"), Ok(queued(3, "hello")))));
    test.cmds.clear();
    test.keys("<esc>");
    assert!(test.cmds.is_empty() && test.live().contains("process 77 runs this"), "{}", test.live());
    // It started in the active process: the queue is empty, and the message arrives with the conversation.
    send_sync(&mut test, sync(ThreadOwner::Other(77), Some(run("r2", RunStatus::Running, None)), &[]));
    assert!(!test.live().contains("queued"), "{}", test.live());
    test.cmds.clear();
    test.keys("<ctrl-c><ctrl-c>");
    assert_eq!(test.cmds, [Cmd::Quit], "leaving stops nothing");
}

#[test]
fn the_end_of_a_run_elsewhere_is_reported_once_and_returns_what_was_queued_here() {
    let mut test = TestApp::new(100, 30);
    send_sync(&mut test, sync(ThreadOwner::Other(77), Some(run("r", RunStatus::Running, None)), &[]));
    test.send(Msg::Thread(ThreadMsg::Enqueued(UserInput::text("hello"), Ok(queued(3, "hello")))));
    let end = || {
        let mut end = sync(
            ThreadOwner::Nobody,
            Some(run("r", RunStatus::Done, Some(TerminationReason::Cancelled))),
            &[],
        );
        end.queued = vec![queued(3, "hello"), queued(4, "from elsewhere")];
        end
    };
    send_sync(&mut test, end());
    assert_eq!(test.app.conversation.run, RunState::Idle);
    assert_eq!(test.app.deadline(), None, "nothing is scheduled while no run is active");
    assert_eq!(test.cmds, [Cmd::Thread(ThreadCmd::Unqueue(vec![3]))], "messages queued by others are theirs");
    send_sync(&mut test, end());
    assert!(test.cmds.is_empty());
    assert_eq!(test.screen().matches("interrupted").count(), 1, "{}", test.screen());
    test.send(Msg::Thread(ThreadMsg::Unqueued { back: vec![3], gone: Vec::new() }));
    assert_eq!(test.app.composer.text(), "hello");
    assert!(test.live().contains("queued from elsewhere"), "{}", test.live());
    test.app.composer.clear();
    test.keys("<up>");
    assert_eq!(
        test.cmds.last(),
        Some(&Cmd::Thread(ThreadCmd::Unqueue(vec![4]))),
        "any of them can be withdrawn"
    );
}

#[test]
fn a_message_overtaken_by_another_process_is_queued_and_shown_once() {
    let mut test = TestApp::new(100, 30);
    test.keys("hello<enter>");
    assert!(test.screen().contains("hello") && test.app.conversation.is_active());
    test.send(Msg::Thread(ThreadMsg::Deferred("t".into(), queued(5, "hello"), UserInput::text("hello"))));
    assert!(!test.app.conversation.is_active());
    assert_eq!(test.screen().matches("hello").count(), 1, "{}", test.screen());
    assert!(test.live().contains("queued hello"), "{}", test.live());
}

#[test]
fn a_message_can_be_queued_after_pending_questions() {
    let mut test = TestApp::new(100, 30);
    test.start("go");
    test.ask_bash("a", "git push");
    test.keys("<right>and then this<alt-q>");
    assert_eq!(
        test.cmds.last(),
        Some(&Cmd::Thread(ThreadCmd::Enqueue("t".into(), UserInput::text("and then this"))))
    );
    assert!(is_shown(&test, "a"));
    test.send(Msg::Thread(ThreadMsg::Enqueued(
        UserInput::text("and then this"),
        Ok(queued(6, "and then this")),
    )));
    assert!(test.live().contains("queued after the pending question"), "{}", test.live());
    test.app.queue.keeps_waiting = true;
    test.keys("and that<enter>");
    assert_eq!(
        test.cmds.last(),
        Some(&Cmd::Thread(ThreadCmd::Enqueue("t".into(), UserInput::text("and that"))))
    );
    test.app.queue.keeps_waiting = false;
    test.keys("never mind<enter>");
    assert_eq!(
        test.cmds.last(),
        Some(&Cmd::Thread(ThreadCmd::Start("t".into(), UserInput::text("never mind"))))
    );
}

#[test]
fn a_conversation_that_was_taken_over_is_reopened() {
    let mut test = TestApp::new(100, 30);
    test.start("go");
    test.send(Msg::Thread(ThreadMsg::Lost("t".into())));
    assert_eq!(test.cmds, [Cmd::Thread(ThreadCmd::Open(Some("t".into())))]);
    // Events received meanwhile belong to the reopened conversation.
    send_sync(&mut test, sync(ThreadOwner::Other(9), Some(run("r", RunStatus::Running, None)), &["a"]));
    assert!(!is_shown(&test, "a"));
    test.send(Msg::Thread(ThreadMsg::Opened(Ok(Box::new(opened(Vec::new()))))));
    assert!(is_shown(&test, "a"));
    assert_eq!(test.app.conversation.driver, ThreadOwner::Other(9));
    assert!(test.screen().contains("another process took over this conversation"), "{}", test.screen());
}
