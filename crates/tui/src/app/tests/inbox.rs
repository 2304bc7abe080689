//! Pending questions of all conversations: the list, the badge, cards of other conversations.

use super::*;
use crate::host::{OpenedQuestion, QuestionCmd, QuestionMsg, ThreadCmd, ThreadMsg};
use aye_core::contract::judgement::Risk;
use aye_core::contract::record::InboxRow;

fn row(id: &str, thread: &str, summary: &str) -> InboxRow {
    InboxRow {
        id: id.into(),
        thread_id: thread.into(),
        thread_title: format!("about {thread}"),
        cwd: "/home/me/other".into(),
        run_id: "r9".into(),
        parent_run_id: None,
        call_id: "c9".into(),
        action: ACTION_PERMISSION.into(),
        tool: "Bash".into(),
        summary: summary.into(),
        why: format!("no rule allows `{summary}`; add `Bash({summary})`"),
        risk: Some(Risk::Runs),
        child: None,
        created_at: 1000,
        expires_at: Some((12 * 60 + 30) * 60_000),
    }
}

/// A question of the conversation `t2` about a call with the id `a`.
fn question(status: SuspensionStatus) -> OpenedQuestion {
    let parameters = json!({
        "why": "no rule allows it", "cwd": "/home/me/other",
        "proposals": [{"pattern": "Bash(make *)", "text": "make with any arguments"}],
    });
    let ticket = ticket("a", "Bash", json!({"command": "make it"}), ACTION_PERMISSION, parameters);
    let mut record = *record(ticket);
    record.thread_id = "t2".into();
    record.run_id = "r2".into();
    record.status = status;
    if status == SuspensionStatus::Open {
        record.decision = None;
        record.decided_by = None;
    }
    OpenedQuestion { record, title: "fix the parser".into(), project: "/home/me/other".into(), child: None }
}

fn perm_a() -> aye_core::contract::ids::SuspensionId {
    "perm_a".into()
}

fn found(status: SuspensionStatus) -> Msg {
    Msg::Question(QuestionMsg::Opened(perm_a(), Ok(Some(Box::new(question(status))))))
}

/// Opens the list with these rows.
fn listed(width: u16, height: u16, rows: Vec<InboxRow>) -> TestApp {
    let mut test = TestApp::new(width, height);
    test.cmds.clear();
    test.keys("<ctrl-t>");
    assert_eq!(test.cmds, [Cmd::Question(QuestionCmd::Inbox)]);
    test.send(Msg::Question(QuestionMsg::Inbox(Ok(rows))));
    test.cmds.clear();
    test
}

/// Selects the first question of the list and opens its card.
fn card(width: u16, height: u16) -> TestApp {
    let mut test = listed(width, height, vec![row("perm_a", "t2", "make it")]);
    test.keys("<enter>");
    assert_eq!(test.cmds, [Cmd::Question(QuestionCmd::Open(perm_a()))]);
    test.send(found(SuspensionStatus::Open));
    test.cmds.clear();
    test
}

#[test]
fn the_list_is_filtered_and_updated_live() {
    let mut test = listed(
        100,
        24,
        vec![row("perm_a", "t2", "make it"), row("perm_b", "t3", "touch it"), row("c", "t", "ls")],
    );
    let screen = test.screen();
    for text in ["Inbox", "1/3", "▸ $ make it", "about t2", "runs · just now", "expires at 12:30", "~/other"]
    {
        assert!(screen.contains(text), "{text}: {screen}");
    }
    test.keys("TOUCH");
    assert!(
        test.screen().contains("1/1") && test.screen().contains("no rule allows `touch it`"),
        "{}",
        test.screen()
    );
    // It was answered elsewhere, and another question arrived.
    test.send(Msg::Question(QuestionMsg::InboxChanged));
    assert_eq!(
        test.cmds,
        [Cmd::Question(QuestionCmd::CountElsewhere(Some("t".into()))), Cmd::Question(QuestionCmd::Inbox)]
    );
    test.send(Msg::Question(QuestionMsg::Inbox(Ok(vec![
        row("perm_a", "t2", "make it"),
        row("d", "t4", "touch that"),
    ]))));
    assert!(test.screen().contains("▸ $ touch that"), "{}", test.screen());
    test.send(Msg::Question(QuestionMsg::Inbox(Ok(Vec::new()))));
    assert!(test.screen().contains("no match"), "{}", test.screen());
    test.keys("<ctrl-t>");
    assert!(test.app.overlays.picker.is_none(), "the same chord closes it");
    test.cmds.clear();
    test.send(Msg::Question(QuestionMsg::InboxChanged));
    assert_eq!(
        test.cmds,
        [Cmd::Question(QuestionCmd::CountElsewhere(Some("t".into())))],
        "a closed list is not loaded"
    );
    test.keys("/inbox<enter>");
    assert!(test.cmds.contains(&Cmd::Question(QuestionCmd::Inbox)));
}

#[test]
fn a_small_terminal_shows_the_list() {
    let rows = (0..30).map(|n| row(&format!("perm_{n}"), "t2", &format!("make {n}"))).collect();
    let mut test = listed(60, 15, rows);
    test.keys("<down><down>");
    insta::assert_snapshot!(test.live(), @r"

      Inbox                                                3/30
        $ make 0   about t2                     runs · just now
        $ make 1   about t2                     runs · just now
      ▸ $ make 2   about t2                     runs · just now
        $ make 3   about t2                     runs · just now
        $ make 4   about t2                     runs · just now
        expires at 12:30 · no rule allows `make 2`
        about t2 · in ~/other
        Enter answer · → open · type to filter · Esc close
      demo · ask · ~/proj
    ");
    for (width, height) in [(20, 5), (10, 2), (1, 1), (200, 60)] {
        test.send(Msg::Resize(width, height));
    }
}

#[test]
fn the_badge_counts_questions_of_other_conversations() {
    let mut test = TestApp::new(100, 24);
    assert!(
        test.cmds.contains(&Cmd::Question(QuestionCmd::CountElsewhere(Some("t".into())))),
        "{:?}",
        test.cmds
    );
    assert!(!test.screen().contains("elsewhere"));
    test.send(Msg::Question(QuestionMsg::Elsewhere(3)));
    assert!(test.screen().contains("3 waiting elsewhere (Ctrl-T)"), "{}", test.screen());
    assert_eq!(test.app.deadline(), None, "nothing moves by itself");
    let mut test = card(100, 24);
    test.send(Msg::Question(QuestionMsg::Elsewhere(3)));
    assert!(test.screen().contains("2 waiting elsewhere"), "one of them is shown: {}", test.screen());
    assert!(!test.screen().contains("1 waiting ·"), "none of this conversation: {}", test.screen());
}

#[test]
fn a_question_of_another_conversation_is_answered_in_place() {
    let mut test = card(100, 24);
    let screen = test.screen();
    assert!(screen.contains("fix the parser › Run this command?"), "{screen}");
    assert!(
        screen.contains("$ make it") && screen.contains("in ~/other") && screen.contains("Esc dismiss"),
        "{screen}"
    );
    test.keys("y");
    assert!(test.decisions().is_empty(), "it was not on the screen long enough");
    assert_eq!(test.app.composer.text(), "", "nor is it text: the user asked for the card");
    test.wait(1000);
    test.keys("y");
    assert_eq!(test.decisions().len(), 1);
    assert!(
        test.cmds
            .contains(&Cmd::Question(QuestionCmd::Decide(perm_a(), Box::new(test.decisions()[0].clone()))))
    );
    test.cmds.clear();
    test.send(Msg::Question(QuestionMsg::Decided(
        perm_a(),
        Ok(DecideOutcome::Accepted(Box::new(question(SuspensionStatus::Decided).record))),
    )));
    assert!(test.app.cards.open.is_empty() && test.app.focus == Focus::Composer);
    assert!(test.screen().contains("“fix the parser” continues in the background"), "{}", test.screen());
    assert_eq!(test.cmds, [Cmd::Question(QuestionCmd::CountElsewhere(Some("t".into())))]);
}

#[test]
fn escape_dismisses_the_card_of_another_conversation_and_stops_nothing() {
    let mut test = card(100, 24);
    test.wait(1000);
    test.keys("<esc>");
    assert!(test.app.cards.open.is_empty());
    assert!(test.cmds.is_empty(), "{:?}", test.cmds);
    assert!(test.screen().contains("still in the inbox"), "{}", test.screen());

    // Pressed twice, with a question of this conversation after it: the second press does not answer that
    // one.
    let mut test = TestApp::new(100, 30);
    test.start("push it");
    test.ask_bash("own", "git push");
    test.keys("<ctrl-t>");
    test.send(Msg::Question(QuestionMsg::Inbox(Ok(vec![row("perm_a", "t2", "make it")]))));
    test.keys("<enter>");
    test.send(found(SuspensionStatus::Open));
    test.wait(1000);
    test.cmds.clear();
    assert!(test.screen().contains("fix the parser › Run"), "{}", test.screen());
    test.keys("<esc><esc>");
    assert!(test.cmds.is_empty(), "{:?}", test.cmds);
    assert_eq!(test.app.cards.open.len(), 1);
    assert!(test.screen().contains("▌   $ git push"), "{}", test.screen());
}

#[test]
fn events_of_this_conversation_leave_other_cards_alone() {
    let mut test = card(100, 24);
    test.start("go");
    // Its call has the same id as the card's.
    test.call("a", "Bash", json!({"command": "ls"}));
    let done = ToolResult::text("Bash", "x");
    test.event(E::ToolCallDone {
        id: "a".into(),
        message_id: "m".into(),
        result: done,
        outcome: ToolCallOutcome::Succeeded,
    });
    test.finish(TerminationReason::NaturalEnd);
    assert_eq!(test.app.cards.open.len(), 1);
    test.send(Msg::Thread(ThreadMsg::Opened(Ok(Box::new(opened(Vec::new()))))));
    assert!(test.app.cards.open.is_empty(), "another conversation is another screen");
}

#[test]
fn a_decision_elsewhere_closes_the_card_and_names_who_decided() {
    let mut test = card(100, 24);
    test.send(Msg::Question(QuestionMsg::InboxChanged));
    assert_eq!(
        test.cmds,
        [
            Cmd::Question(QuestionCmd::CountElsewhere(Some("t".into()))),
            Cmd::Question(QuestionCmd::Open(perm_a()))
        ]
    );
    test.keys("<right>");
    let focus = test.app.focus;
    test.send(found(SuspensionStatus::Open));
    assert_eq!((test.app.cards.open.len(), test.app.focus), (1, focus), "it was only viewed");
    test.send(found(SuspensionStatus::Decided));
    assert!(test.app.cards.open.is_empty());
    assert!(test.screen().contains("was approved by ann (cli)"), "{}", test.screen());

    // Selected, and gone before it was loaded.
    for (gone, text) in [
        (found(SuspensionStatus::Expired), "expired; the call did not run"),
        (found(SuspensionStatus::Superseded), "was closed"),
        (Msg::Question(QuestionMsg::Opened(perm_a(), Ok(None))), "no longer exists"),
    ] {
        let mut test = listed(100, 24, vec![row("perm_a", "t2", "make it")]);
        test.keys("<enter>");
        test.send(gone);
        assert!(test.app.cards.open.is_empty());
        assert!(test.screen().contains(text), "{text}: {}", test.screen());
    }
}

#[test]
fn right_opens_the_conversation() {
    let mut test = listed(100, 24, vec![row("perm_a", "t2", "make it")]);
    test.keys("<right>");
    assert_eq!(test.cmds, [Cmd::Thread(ThreadCmd::Open(Some("t2".into())))]);
    assert!(test.app.overlays.picker.is_none());

    let mut test = TestApp::new(100, 30);
    test.start("push it");
    test.ask_bash("own", "git push");
    test.keys("<right><ctrl-t>");
    test.send(Msg::Question(QuestionMsg::Inbox(Ok(vec![row("perm_own", "t", "git push")]))));
    assert!(test.screen().contains("this conversation"), "{}", test.screen());
    test.cmds.clear();
    test.keys("<right>");
    assert!(test.cmds.is_empty(), "it is pending: {:?}", test.cmds);
    assert_eq!(test.app.focus, Focus::Card);
}

/// A rule is granted only where the rules and history of its project are visible.
#[test]
fn no_rule_is_granted_on_a_card_of_another_project() {
    let mut test = card(100, 24);
    test.wait(1000);
    test.keys("a");
    assert!(test.screen().contains("this call belongs to another project"), "{}", test.screen());
    assert!(test.cmds.is_empty(), "{:?}", test.cmds);
    test.keys("y");
    assert_eq!(test.decisions().len(), 1);
}

#[test]
fn ten_thousand_rows_behave_like_any_list() {
    let rows: Vec<_> =
        (0..10_000).map(|n| row(&format!("perm_{n}"), "t2", &format!("make target {n}"))).collect();
    let mut test = listed(120, 40, rows);
    assert!(test.screen().contains("1/10000"), "{}", test.screen());
    test.keys("9999");
    assert!(test.screen().contains("1/1") && test.screen().contains("make target 9999"), "{}", test.screen());
}
