//! Clicks on the full screen: each label does what it says.

use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};

use super::*;
use crate::host::{ThreadCmd, ThreadMsg};

fn full(width: u16, height: u16) -> TestApp {
    let mut test = TestApp::new(width, height);
    test.keys("/screen<enter>");
    test.cmds.clear();
    test
}

/// Clicks on the first cell of a text on the screen.
fn click(test: &mut TestApp, text: &str) {
    let found = test.live.iter().enumerate().find_map(|(row, line)| Some((row, line.find(text)?)));
    let (row, at) = found.unwrap_or_else(|| panic!("{text:?} is missing:\n{}", test.screen()));
    let column = crate::wrap::width(&test.live[row][..at]) as u16;
    for kind in [MouseEventKind::Down(MouseButton::Left), MouseEventKind::Up(MouseButton::Left)] {
        let event = MouseEvent { kind, column, row: row as u16, modifiers: KeyModifiers::NONE };
        test.send(Msg::Mouse(event));
    }
}

#[test]
fn clicking_a_key_hint_answers_the_card() {
    for (key, is_yes) in [("Allow once", true), ("Deny", false)] {
        for size in [(120, 40), (80, 24), (40, 12), (60, 15)] {
            let mut test = full(size.0, size.1);
            test.start("push");
            test.ask_bash("a", "git push origin");
            click(&mut test, key);
            if !is_yes {
                assert!(test.decisions().is_empty(), "it asks why: {}", test.screen());
                test.keys("<enter>");
            }
            assert_eq!(test.decisions().len(), 1, "{key} {size:?}: {}", test.screen());
        }
    }
}

#[test]
fn a_click_arriving_with_the_question_does_not_answer() {
    let mut test = full(80, 24);
    test.start("push");
    test.wait(5000);
    test.call("a", "Bash", json!({"command": "git push"}));
    let parameters = json!({"rule": "ask Bash", "why": "", "cwd": "/", "proposals": []});
    test.event(suspended(ticket("a", "Bash", json!({"command": "git push"}), ACTION_PERMISSION, parameters)));
    assert_eq!(test.app.focus, Focus::Card);
    click(&mut test, "Allow once");
    assert!(test.decisions().is_empty(), "it was meant for the previous content");
    test.wait(400);
    click(&mut test, "Allow once");
    assert_eq!(test.decisions().len(), 1);
}

#[test]
fn keys_of_an_unfocused_card_type_into_the_composer() {
    let mut test = full(80, 24);
    test.start("push");
    test.keys("half");
    test.ask_bash("a", "git push origin");
    click(&mut test, "Allow once");
    assert!(test.decisions().is_empty());
    assert_eq!(test.app.composer.text(), "half");
    click(&mut test, "to answer:");
    assert_eq!(test.app.focus, Focus::Card);
    test.wait(400);
    click(&mut test, "Allow once");
    assert_eq!(test.decisions().len(), 1);
}

#[test]
fn list_rows_are_selected_and_accepted() {
    let mut test = full(80, 24);
    test.keys("/");
    click(&mut test, "/threads");
    assert_eq!(test.app.composer.text(), "/", "a click selects");
    click(&mut test, "▸ /threads");
    assert!(test.app.overlays.picker.is_some(), "another click accepts it: {}", test.screen());
    click(&mut test, "Esc close");
    assert!(test.app.overlays.picker.is_none());
    test.keys("/mode<enter>");
    let mode = test.app.info.mode;
    click(&mut test, "plan");
    click(&mut test, "Enter");
    assert!(test.app.overlays.picker.is_none(), "{}", test.screen());
    assert_ne!(test.app.info.mode, mode);
}

#[test]
fn the_caret_moves_to_the_click() {
    let mut test = full(40, 24);
    test.keys("漢字 and some more words that wrap here");
    click(&mut test, "字");
    test.keys("!");
    assert!(test.app.composer.text().starts_with("漢!字"), "{}", test.app.composer.text());
    click(&mut test, "wrap");
    test.keys("?");
    assert!(test.app.composer.text().contains("?wrap"), "{}", test.app.composer.text());
}

#[test]
fn a_click_closes_the_viewer_and_interrupts_a_run() {
    let mut test = full(100, 24);
    test.start("look");
    click(&mut test, "Esc interrupts");
    assert!(test.cmds.iter().any(|cmd| matches!(cmd, Cmd::Thread(ThreadCmd::Cancel(_)))), "{:?}", test.cmds);
    test.finish(TerminationReason::Cancelled);
    test.keys("<ctrl-o>");
    assert!(test.app.overlays.viewer.is_some());
    click(&mut test, "close");
    // A click anywhere on a key hint counts as the key.
    assert!(test.app.overlays.viewer.is_none(), "{}", test.screen());
}

#[test]
fn a_click_selects_a_queued_message_and_another_one_edits_it() {
    let mut test = full(80, 24);
    test.start("go");
    for (id, text) in [(7, "the first one"), (8, "the second one")] {
        test.send(Msg::Thread(ThreadMsg::Enqueued(UserInput::text(text), Ok(queued(id, text)))));
    }
    let taken = |test: &TestApp| -> Vec<Cmd> {
        test.cmds.iter().filter(|cmd| matches!(cmd, Cmd::Thread(ThreadCmd::Unqueue(_)))).cloned().collect()
    };
    click(&mut test, "the first one");
    assert_eq!((test.app.queue.at, taken(&test)), (Some(7), Vec::new()));
    assert!(test.live().contains("▸ queued the first one"), "{}", test.live());
    click(&mut test, "the second one");
    assert_eq!((test.app.queue.at, taken(&test)), (Some(8), Vec::new()));
    click(&mut test, "the second one");
    assert_eq!((test.app.queue.at, taken(&test)), (None, vec![Cmd::Thread(ThreadCmd::Unqueue(vec![8]))]));
    test.send(Msg::Thread(ThreadMsg::Unqueued { back: vec![8], gone: Vec::new() }));
    assert_eq!(test.app.composer.text(), "the second one");
    // The draft is kept; a single queued message needs no selection.
    test.app.queue.rows.retain(|row| row.id == 7);
    click(&mut test, "the first one");
    assert!(test.live().contains("send or clear the draft first"), "{}", test.live());
    test.keys("<ctrl-u>");
    click(&mut test, "the first one");
    assert_eq!(taken(&test).len(), 2);
}
