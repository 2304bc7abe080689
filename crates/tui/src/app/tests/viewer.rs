//! The viewer and the full screen.

use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
use insta::assert_snapshot;

use super::*;
use crate::host::{ProgramMsg, ThreadCmd, ThreadMsg};

/// A conversation with text, code, a call that asked and one with long output.
fn talked(width: u16, height: u16) -> TestApp {
    let mut test = TestApp::new(width, height);
    test.start("look at 漢字 and 👍🏽");
    let text =
        "# Findings\n\nIt is *here*, in `a.rs`:\n\n```rust\nfn main() {}\n```\n\nand\n\n```sh\nls -l\n```\n";
    test.event(E::TextDelta { delta: text.into() });
    test.prints_fifty_lines();
    test.event(E::StepStart { message_id: "m2".into() });
    test.event(E::TextDelta { delta: "All 50 lines are there.".into() });
    test.finish(TerminationReason::NaturalEnd);
    test.cmds.clear();
    test
}

fn mouse(test: &mut TestApp, kind: MouseEventKind, column: u16, row: u16) {
    let event = MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE };
    test.send(Msg::Mouse(event));
}

#[test]
fn the_viewer_shows_everything_at_all_widths() {
    for width in [40, 80, 140] {
        let mut test = talked(width, 24);
        test.keys("<ctrl-o><home>");
        assert_snapshot!(format!("viewer_top_{width}"), test.screen());
        test.keys("/LINE 49<enter>");
        assert_snapshot!(format!("viewer_found_{width}"), test.screen());
    }
    let mut test = talked(80, 24);
    test.keys("<ctrl-o>g<tab>");
    assert_snapshot!("viewer_folded", test.screen());
    test.keys("<enter>#");
    assert_snapshot!("viewer_code", test.screen());
}

/// A card leaves no room for a page; under a running call it would be cut. It opens above them, and Esc closes it.
#[test]
fn a_page_above_a_card_is_seen_whole() {
    for (width, height) in [(120, 40), (60, 15)] {
        let mut test = TestApp::new(width, height);
        test.start("go");
        test.ask_bash("a", "cargo test");
        test.finish(TerminationReason::Suspended);
        let text: Vec<String> = (1..=30).map(|n| format!("row {n} of the page")).collect();
        let page = crate::host::TextPage {
            title: "Context".into(),
            text: text.join("\n"),
            ..crate::host::TextPage::default()
        };
        test.send(Msg::Program(ProgramMsg::Page(Ok(page))));
        assert!(test.screen().contains("Context"), "{}", test.screen());
        assert!(test.screen().contains("row 1 of the page"), "the start comes first: {}", test.screen());
        test.keys("<end>");
        assert!(test.screen().contains("row 30 of the page"), "{}", test.screen());
        let foot = test.screen().lines().last().expect("a row").to_owned();
        assert!(
            foot.contains("q close · / search · y copy") && !foot.contains("hunk"),
            "a page has no parts: {foot}"
        );
        test.keys("<esc>");
        assert!(test.screen().contains("cargo test"), "the card is back: {}", test.screen());
        assert!(!test.screen().contains("row 30"), "{}", test.screen());
    }
    let mut test = TestApp::new(80, 24);
    test.start("go");
    test.call("a", "Bash", json!({"command": "sleep 9"}));
    let page = crate::host::TextPage {
        title: "Stats".into(),
        text: "one row".into(),
        ..crate::host::TextPage::default()
    };
    test.send(Msg::Program(ProgramMsg::Page(Ok(page.clone()))));
    assert!(test.app.overlays.viewer.is_some(), "beside a running call");
    test.keys("<esc>");
    test.finish(TerminationReason::NaturalEnd);
    test.send(Msg::Program(ProgramMsg::Page(Ok(page))));
    assert!(test.app.overlays.viewer.is_none(), "nothing hides it: it stays in the conversation");
    assert!(test.scrollback.join("\n").contains("one row"));
    let text: Vec<String> = (1..=30).map(|n| format!("row {n} of the page")).collect();
    let page = crate::host::TextPage {
        title: "Settings".into(),
        text: text.join("\n"),
        ..crate::host::TextPage::default()
    };
    test.send(Msg::Program(ProgramMsg::Page(Ok(page))));
    assert!(
        test.screen().contains("row 1 of the page"),
        "a long page starts at its start: {}",
        test.screen()
    );
    test.keys("<esc>");
    assert!(!test.scrollback.join("\n").contains("of the page"));
}

#[test]
fn the_full_screen_scrolls_and_returns() {
    for width in [40, 80, 140] {
        let mut test = talked(width, 20);
        test.keys("/screen<enter>");
        assert_snapshot!(format!("full_{width}"), test.screen());
        test.keys("half written<pageup>");
        assert!(test.screen().contains("more below"), "{}", test.screen());
        assert!(test.screen().contains("❯ half written"), "{}", test.screen());
    }
    let mut test = talked(80, 20);
    let printed = test.scrollback.len();
    test.keys("/screen<enter>");
    test.start("again");
    test.event(E::TextDelta { delta: "Meanwhile.".into() });
    test.finish(TerminationReason::NaturalEnd);
    assert_eq!(test.scrollback.len(), printed, "nothing is added to the scrollback meanwhile");
    assert!(test.screen().contains("Meanwhile."));
    test.keys("/screen<enter>");
    let all = test.scrollback.join("\n");
    assert_eq!(all.matches("Meanwhile.").count(), 1, "{all}");
    assert_eq!(all.matches("All 50 lines").count(), 1, "{all}");
}

#[test]
fn selected_text_is_copied_or_opened() {
    let mut test = talked(80, 24);
    test.keys("<ctrl-o>[[");
    test.cmds.clear();
    test.keys("y");
    let [Cmd::Copy(text)] = &test.cmds[..] else { panic!("{:?}", test.cmds) };
    assert!(text.starts_with("# Findings\n\nIt is *here*"), "the source, not the rendering: {text}");
    test.cmds.clear();
    test.keys("v");
    assert!(
        matches!(&test.cmds[..], [Cmd::View(name, text)] if name == "message.md" && text.contains("```rust"))
    );
    test.cmds.clear();
    test.keys("#2<enter>");
    assert_eq!(test.cmds, [Cmd::Copy("ls -l\n".into())]);
    test.cmds.clear();
    test.keys("#7<enter>");
    assert!(test.cmds.is_empty() && test.screen().contains("from 1 to 2"), "{}", test.screen());
    test.keys("ty");
    assert!(
        matches!(&test.cmds[..], [Cmd::Copy(text)] if text.starts_with("$ seq 50\nline 1\n") && text.ends_with("line 50"))
    );
    test.keys("<esc>");
    assert!(test.app.overlays.viewer.is_none());
}

#[test]
fn the_mouse_scrolls_and_selects() {
    let mut test = talked(80, 20);
    test.keys("/screen<enter>");
    test.cmds.clear();
    let last = test.screen();
    mouse(&mut test, MouseEventKind::ScrollUp, 5, 5);
    assert_ne!(test.screen(), last);
    mouse(&mut test, MouseEventKind::ScrollDown, 5, 5);
    assert_eq!(test.screen(), last);
    let row = last.lines().position(|line| line.contains("All 50 lines")).expect("exists") as u16;
    mouse(&mut test, MouseEventKind::Down(MouseButton::Left), 3, row);
    mouse(&mut test, MouseEventKind::Drag(MouseButton::Left), 8, row);
    mouse(&mut test, MouseEventKind::Up(MouseButton::Left), 8, row);
    assert_eq!(test.cmds, [Cmd::Copy("All 50".into())]);
    mouse(&mut test, MouseEventKind::Down(MouseButton::Left), 500, 500);
    mouse(&mut test, MouseEventKind::Moved, 0, 0);
    assert_eq!(test.cmds.len(), 1);
}

#[test]
fn no_viewer_key_answers_a_card() {
    let mut test = talked(80, 24);
    test.keys("<ctrl-o>");
    test.start("");
    test.ask_bash("q", "git push");
    test.cmds.clear();
    assert!(test.screen().contains("1 waiting"), "{}", test.screen());
    test.keys("y");
    assert!(test.decisions().is_empty());
    assert!(matches!(&test.cmds[..], [Cmd::Copy(_)]));
    test.keys("q");
    assert!(test.screen().contains("git push"));
    test.wait(1000);
    test.wait(1000);
    test.keys("y");
    assert_eq!(test.decisions().len(), 1);
}

#[test]
fn ctrl_c_only_closes_the_viewer() {
    let mut test = talked(80, 24);
    test.keys("draft<ctrl-o><ctrl-c>");
    assert!(test.app.overlays.viewer.is_none());
    assert!(test.screen().contains("❯ draft"), "{}", test.screen());
    let mut empty = TestApp::new(80, 24);
    empty.keys("<ctrl-o>");
    assert!(empty.app.overlays.viewer.is_none() && empty.screen().contains("no messages yet"));
    empty.keys("<alt-/>");
    assert!(empty.app.overlays.viewer.is_none());
}

#[test]
fn distant_entries_are_loaded_when_near_and_released_again() {
    use crate::host::Earlier;
    use aye_core::contract::inference::TokenUsage;
    use aye_core::contract::message::Message;
    use aye_core::contract::record::StoredMessage;
    let stored = |seqs: std::ops::Range<u64>| -> Vec<StoredMessage> {
        let message = |seq: u64| StoredMessage {
            seq,
            run_id: "r".into(),
            created_at: 1,
            message: if seq % 2 == 1 {
                Message::user(format!("question {seq}"))
            } else {
                Message::assistant(format!("answer {seq}"))
            },
        };
        seqs.map(message).collect()
    };
    let mut test = TestApp::new(80, 24);
    let usage = TokenUsage { total_tokens: Some(12_345), ..TokenUsage::default() };
    let earlier = Some(Earlier { messages: 3000, usage, spent: Vec::new() });
    let thread = OpenedThread { earlier, ..opened(stored(3001..3301)) };
    test.send(Msg::Thread(ThreadMsg::Opened(Ok(Box::new(thread)))));
    assert!(
        test.scrollback.iter().any(|line| line.contains("… 3100 earlier entries")),
        "{:?}",
        test.scrollback
    );
    assert_eq!(test.app.conversation.transcript.usage().total(), 12_345);
    let printed = test.scrollback.len();
    test.cmds.clear();
    test.keys("<ctrl-o>");
    assert!(test.cmds.is_empty(), "the end arrived here");
    test.keys("<home>");
    assert_eq!(test.cmds, [Cmd::Thread(ThreadCmd::Earlier("t".into(), 3001))]);
    test.keys("<up>");
    assert_eq!(test.cmds.len(), 1, "once");
    let before = test.screen();
    test.send(Msg::Thread(ThreadMsg::Earlier("t".into(), Ok(stored(1001..3001)))));
    assert_eq!(test.screen().lines().next(), before.lines().next(), "the visible text does not move");
    assert_eq!(test.app.conversation.transcript.entries().len(), 2300);
    test.cmds.clear();
    test.keys("<pageup>");
    assert!(test.screen().contains("answer 3000"), "{}", test.screen());
    test.keys("<home>");
    assert_eq!(test.cmds, [Cmd::Thread(ThreadCmd::Earlier("t".into(), 1001))]);
    test.send(Msg::Thread(ThreadMsg::Earlier("t".into(), Ok(stored(1..1001)))));
    test.keys("<home>");
    assert!(test.screen().contains("❯ question 1\n"), "{}", test.screen());
    test.keys("/QUESTION 2999<enter>");
    assert!(test.screen().contains("question 2999"), "{}", test.screen());
    // Entries that arrive meanwhile are printed once, afterwards.
    test.event(E::RunStart { thread_id: "t".into(), run_id: "r".into(), parent_run_id: None });
    test.event(E::StepStart { message_id: "m".into() });
    test.event(E::TextDelta { delta: "New words.".into() });
    test.finish(TerminationReason::NaturalEnd);
    test.keys("q");
    assert_eq!(test.app.conversation.transcript.entries().len(), 301);
    let new: Vec<&String> = test.scrollback[printed..].iter().filter(|line| !line.is_empty()).collect();
    assert_eq!(new, ["  New words."]);
    test.cmds.clear();
    test.keys("<ctrl-o><home>");
    assert_eq!(test.cmds, [Cmd::Thread(ThreadCmd::Earlier("t".into(), 3001))], "as before");
}
