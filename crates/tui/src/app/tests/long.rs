//! A conversation that grows for a long time while shown.

use super::*;
use crate::host::{ThreadCmd, ThreadMsg};
use aye_core::contract::message::Message;
use aye_core::contract::record::StoredMessage;

/// The message of a step, as stored.
fn stored(seq: u64) -> StoredMessage {
    let message = Message::assistant(format!("answer {seq}"));
    StoredMessage { seq, run_id: "r".into(), created_at: 1, message }
}

/// A step that writes one message, and the store's reply about positions.
fn step(test: &mut TestApp, seq: u64) {
    let emit = |test: &mut TestApp, event: E| {
        test.send_undrawn(Msg::Agent(ThreadId::from("t"), Box::new(event)));
    };
    emit(test, E::StepStart { message_id: format!("m{seq}") });
    emit(test, E::TextDelta { delta: format!("answer {seq}") });
    emit(test, E::StepEnd);
    if seq.is_multiple_of(20) {
        test.draw();
    }
    answer(test);
}

fn answer(test: &mut TestApp) {
    for cmd in std::mem::take(&mut test.cmds) {
        if let Cmd::Thread(ThreadCmd::Place(thread, message)) = cmd {
            let seq = message.trim_start_matches('m').parse().ok();
            test.send_undrawn(Msg::Thread(ThreadMsg::Placed(thread, message, Ok(seq))));
        }
    }
}

fn begin(width: u16) -> TestApp {
    let mut test = TestApp::new(width, 24);
    test.event(E::RunStart { thread_id: "t".into(), run_id: "r".into(), parent_run_id: None });
    test
}

fn answers(test: &TestApp) -> Vec<String> {
    let lines = test.scrollback.iter().map(|line| line.trim().to_owned());
    lines.filter(|line| line.starts_with("answer")).collect()
}

#[test]
fn distant_entries_are_left_to_the_store_and_reloaded_for_reading() {
    let mut test = begin(80);
    let mut most = 0;
    for seq in 1..=10_000 {
        step(&mut test, seq);
        most = most.max(test.app.conversation.transcript.entries().len());
    }
    test.draw();
    assert!((1000..=2600).contains(&most), "{most} entries were in memory");
    // Each was printed once.
    let expected: Vec<String> = (1..=10_000).map(|seq| format!("answer {seq}")).collect();
    assert_eq!(answers(&test), expected);

    let held = test.app.conversation.transcript.entries().len();
    let from = test.app.conversation.transcript.starts_at().expect("some entries are in the store");
    assert_eq!(held as u64, 10_000 - from + 1, "the store has exactly the missing part");
    test.keys("<ctrl-o><home>");
    assert_eq!(test.cmds, [Cmd::Thread(ThreadCmd::Earlier("t".into(), from))]);
    test.cmds.clear();
    test.send(Msg::Thread(ThreadMsg::Earlier("t".into(), Ok((from - 2000..from).map(stored).collect()))));
    test.keys("<pageup>");
    assert!(test.screen().contains(&format!("answer {}\n", from - 1)), "{}", test.screen());
    test.keys("<home>");
    assert!(test.screen().contains(&format!("answer {}\n", from - 2000)), "{}", test.screen());
    assert_eq!(test.cmds, [Cmd::Thread(ThreadCmd::Earlier("t".into(), from - 2000))]);

    // Nothing disappears while it is being read; afterwards it may.
    test.cmds.clear();
    for seq in 10_001..=13_000 {
        step(&mut test, seq);
    }
    assert_eq!(test.app.conversation.transcript.entries().len(), held + 2000 + 3000);
    test.keys("q");
    answer(&mut test);
    test.draw();
    answer(&mut test);
    assert!(
        test.app.conversation.transcript.entries().len() <= 2600,
        "{}",
        test.app.conversation.transcript.entries().len()
    );
}

#[test]
fn entries_trimmed_on_the_full_screen_are_counted_and_not_printed() {
    let mut test = begin(80);
    test.keys("/screen<enter>");
    for seq in 1..=6000 {
        step(&mut test, seq);
    }
    assert!(test.app.conversation.transcript.entries().len() <= 2600);
    let trimmed = test.app.conversation.transcript.trimmed();
    test.keys("/screen<enter>");
    assert!(
        test.scrollback.iter().any(|line| line.contains(&format!("… {trimmed} earlier entries"))),
        "{:?}",
        test.scrollback.first()
    );
    let answers = answers(&test);
    assert_eq!(answers.len(), 6000 - trimmed);
    assert_eq!(answers.last().map(String::as_str), Some("answer 6000"));
}

/// A step whose message was never stored is not a position to trim at.
#[test]
fn an_unknown_store_position_is_skipped() {
    let mut test = begin(80);
    for seq in 1..=6000 {
        let emit = |test: &mut TestApp, event: E| {
            test.send_undrawn(Msg::Agent(ThreadId::from("t"), Box::new(event)));
        };
        emit(&mut test, E::StepStart { message_id: format!("m{seq}") });
        emit(&mut test, E::TextDelta { delta: format!("answer {seq}") });
        emit(&mut test, E::StepEnd);
        for cmd in std::mem::take(&mut test.cmds) {
            let Cmd::Thread(ThreadCmd::Place(thread, message)) = cmd else { continue };
            let seq: u64 = message.trim_start_matches('m').parse().expect("a number");
            let known = (seq % 128 > 64).then_some(seq);
            test.send_undrawn(Msg::Thread(ThreadMsg::Placed(thread, message, Ok(known))));
        }
    }
    assert!(
        test.app.conversation.transcript.entries().len() <= 3000,
        "{}",
        test.app.conversation.transcript.entries().len()
    );
}
