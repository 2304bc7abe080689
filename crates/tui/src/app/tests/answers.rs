//! Questions on the screen, and the keys that answer them.

use super::*;
use aye_core::contract::surface::ACTION_SURFACE;
use aye_core::contract::suspension::{CHANNEL_HTTP, CHANNEL_REMOTE};

/// Esc closes the card; text typed right after it is text, even before the run has stopped.
#[test]
fn text_typed_after_esc_is_not_swallowed_by_the_closing_card() {
    let mut test = TestApp::new(120, 40);
    test.start("push it");
    test.ask_bash("a", "git push");
    test.keys("<esc><esc>no, y");
    assert!(test.cmds.contains(&Cmd::Thread(ThreadCmd::Cancel("t".into()))) && test.decisions().is_empty());
    assert_eq!(test.app.composer.text(), "no, y");
    test.finish(TerminationReason::Cancelled);
    test.keys("et");
    assert_eq!((test.app.composer.text(), test.app.cards.open.len()), ("no, yet", 0));

    // The same after an answer that is not stored yet; pressing the answer key twice is not text.
    let mut test = TestApp::new(120, 40);
    test.start("push it");
    test.ask_bash("a", "git push");
    test.keys("yyi see");
    assert_eq!((test.decisions().len(), test.app.composer.text()), (1, "i see"));
}

#[test]
fn text_in_the_composer_answers_no_question() {
    let mut test = TestApp::new(120, 40);
    test.start("push it");
    test.ask_bash("a", "git push");
    assert_eq!(test.app.focus, Focus::Card);
    assert!(test.screen().contains("Allow once"), "{}", test.screen());
    assert_eq!(test.caret, None, "the focus is not in the composer");
    test.keys("<ctrl-c>");
    test.send(Msg::Paste("y\n".into()));
    assert!(test.decisions().is_empty());
    assert_eq!(test.app.composer.text(), "y\n", "a paste is text");
    test.keys("y");
    assert!(test.decisions().is_empty(), "the composer is not empty");
    test.app.composer.clear();
    test.wait(500);
    test.keys("y");
    let yes = Answer::yes(Value::Null);
    assert_eq!(test.decisions(), [&yes]);
    assert!(test.live().contains("allowing…"), "{}", test.live());
    test.keys("yyn");
    assert_eq!(test.decisions().len(), 1, "it is answered once");
}

#[test]
fn text_typed_before_the_card_stays_text() {
    let mut test = TestApp::new(100, 30);
    test.start("push it");
    test.call("a", "Bash", json!({"command": "git push"}));
    test.keys("ye");
    let event =
        suspended(ticket("a", "Bash", json!({"command": "git push"}), ACTION_PERMISSION, Value::Null));
    test.event(event);
    test.keys("y");
    assert_eq!((test.app.composer.text(), test.decisions().len()), ("yey", 0));
    assert!(test.live().contains("Tab to answer:"), "{}", test.live());
    test.wait(5000);
    test.keys("y");
    assert_eq!(test.decisions().len(), 0, "text in the composer keeps the focus");
    test.keys("<tab>");
    assert_eq!(test.app.focus, Focus::Card);
    test.wait(400);
    test.keys("y");
    assert_eq!(test.decisions().len(), 1);
    assert_eq!(test.app.composer.text(), "yeyy", "the draft is kept");
}

#[test]
fn a_key_pressed_before_the_card_was_seen_does_not_answer() {
    let mut test = TestApp::new(100, 30);
    test.start("push it");
    test.wait(5000);
    test.call("a", "Bash", json!({"command": "git push"}));
    let event =
        suspended(ticket("a", "Bash", json!({"command": "git push"}), ACTION_PERMISSION, Value::Null));
    // The event and the key arrive together: the user cannot have seen the card.
    test.send_undrawn(Msg::Agent(ThreadId::from("t"), Box::new(event)));
    test.send_undrawn(Msg::Key(named("y")));
    test.draw();
    assert_eq!((test.app.composer.text(), test.decisions().len()), ("y", 0));
    test.keys("<backspace>");
    test.wait(200);
    assert_eq!(test.app.focus, Focus::Composer, "typed into a moment ago");
    test.wait(200);
    assert_eq!(test.app.focus, Focus::Card);
    test.keys("y");
    assert_eq!(test.decisions().len(), 1);
}

#[test]
fn enter_and_escape_typed_ahead_do_not_reach_the_card() {
    let mut test = TestApp::new(100, 30);
    test.start("x");
    test.wait(5000);
    test.call("a", "Bash", json!({"command": "ls"}));
    let event = suspended(ticket("a", "Bash", json!({"command": "ls"}), ACTION_PERMISSION, Value::Null));
    test.send_undrawn(Msg::Agent(ThreadId::from("t"), Box::new(event)));
    test.send_undrawn(Msg::Key(named("enter")));
    assert!(test.app.cards.open.iter().all(|card| !card.is_deciding()));
}

#[test]
fn deny_with_and_without_a_reason() {
    let mut test = TestApp::new(100, 30);
    test.start("push it");
    test.ask_bash("a", "git push");
    test.keys("n");
    assert!(test.decisions().is_empty());
    assert!(test.live().contains("reason:"), "{}", test.live());
    test.keys("not on friday<enter>");
    assert_eq!(test.decisions()[0].reason.as_deref(), Some("not on friday"));
    assert_eq!(test.decisions()[0].action, ResumeDecisionAction::Cancel);

    let mut test = TestApp::new(100, 30);
    test.start("push it");
    test.ask_bash("a", "git push");
    test.keys("n<esc>n<enter>");
    assert_eq!(test.decisions().len(), 1);
    assert_eq!(test.decisions()[0].reason, None);
}

#[test]
fn a_grant_is_spelled_out_before_it_is_stored() {
    let mut test = TestApp::new(100, 30);
    test.start("push it");
    test.ask_bash("a", "git push");
    test.keys("a<down>");
    let live = test.live();
    let stores = "Always allow exactly this command in ~/proj, never expires";
    assert!(live.contains(stores), "{live}");
    test.keys("tt");
    assert!(test.live().contains("in ~/proj, until midnight"), "{}", test.live());
    test.keys("w2 calls<enter>");
    assert!(test.live().contains("in ~/proj, for the next 2 calls"), "{}", test.live());
    assert!(test.grants().is_empty());
    test.keys("<enter>");
    let scope = GrantScope::Project("/home/me/proj".into());
    let pattern = "Bash(git push)".to_owned();
    let end = GrantEnd::Uses(2);
    assert_eq!(test.grants(), [&GrantRequest { suspension: "perm_a".into(), pattern, scope, end }]);
}

#[test]
fn an_invalid_expiry_is_refused_with_the_expected_form() {
    let mut test = TestApp::new(100, 30);
    test.start("push it");
    test.ask_bash("a", "git push");
    test.keys("awsoon<enter>");
    assert!(test.live().contains("invalid expiry `soon`; expected never, 1h"), "{}", test.live());
    test.keys("<esc>");
    assert!(test.live().contains("never expires"), "{}", test.live());
}

/// A custom pattern is checked by the host before it can be stored, and its matches are on the card.
#[test]
fn a_pattern_is_edited_with_a_preview_of_past_matches() {
    let mut test = TestApp::new(100, 30);
    test.start("push it");
    test.ask_bash("a", "git push");
    test.keys("ae");
    assert!(test.live().contains("pattern: Bash("), "{}", test.live());
    test.keys("<ctrl-u>Bash(git push o*)");
    let pattern = "Bash(git push o*)".to_owned();
    let wanted = Cmd::Question(QuestionCmd::PreviewGrant("perm_a".into(), pattern.clone()));
    assert_eq!(test.cmds.last(), Some(&wanted));
    test.keys("<enter><enter>");
    assert!(test.live().contains("wait a moment"), "{}", test.live());
    assert!(test.grants().is_empty());
    let row =
        |summary: &str, times, declined| PastMatch { summary: summary.into(), times, declined, last_at: 0 };
    let preview = GrantPreview {
        problem: None,
        matches: vec![row("git push --force", 1, 1), row("git push origin", 3, 0)],
        total: 12,
        declined: 1,
        of: 40,
    };
    test.send(Msg::Question(QuestionMsg::GrantPreviewed("perm_a".into(), pattern.clone(), Ok(preview))));
    // A preview of an older text changes nothing, however late it arrives.
    let stale = GrantPreview { problem: Some("old".into()), ..GrantPreview::default() };
    test.send(Msg::Question(QuestionMsg::GrantPreviewed("perm_a".into(), "Bash(git pus".into(), Ok(stale))));
    let live = test.live();
    for expected in [
        "Always allow calls that match Bash(git push o*) in ~/proj, never expires",
        "would have matched 12 of 40 earlier calls in this project:",
        "and 10 more; you denied 1 of them all",
        "git push --force, ",
        ", denied by you",
        "git push origin ×3",
    ] {
        assert!(live.contains(expected), "{expected}\n{live}");
    }
    test.keys("<enter>");
    assert_eq!(test.grants().len(), 1);
    assert_eq!(test.grants()[0].pattern, pattern);
}

#[test]
fn a_pattern_that_cannot_be_granted_is_not_stored() {
    let mut test = TestApp::new(100, 30);
    test.start("push it");
    test.ask_bash("a", "git push");
    test.keys("ae<ctrl-u>Bash<enter>");
    let preview = GrantPreview { problem: Some("it would allow any call".into()), ..GrantPreview::default() };
    test.send(Msg::Question(QuestionMsg::GrantPreviewed("perm_a".into(), "Bash".into(), Ok(preview))));
    assert!(test.live().contains("Bash cannot be granted here: it would allow any call"), "{}", test.live());
    test.keys("<enter>");
    assert!(test.live().contains("this pattern cannot be granted"), "{}", test.live());
    assert!(test.grants().is_empty() && test.decisions().is_empty());
}

#[test]
fn a_card_shows_the_risk_and_the_grant_that_would_have_applied() {
    let mut test = TestApp::new(100, 30);
    test.start("push it");
    let parameters = json!({
        "risk": "network", "why": "no rule allows it",
        "grant": {"id": "g", "pattern": "Bash(git push *)", "scope": "this project", "why": "ended", "at": 0},
    });
    test.ask("a", "Bash", json!({"command": "git push"}), ACTION_PERMISSION, parameters);
    let live = test.live();
    assert!(live.contains("Run this command?") && !live.contains("risk"), "{live}");
    assert!(live.contains("your grant `Bash(git push *)` for this project ended "), "{live}");
}

#[test]
fn a_grant_is_revoked_after_confirmation() {
    let mut test = TestApp::new(100, 30);
    test.start("hello");
    test.finish(TerminationReason::NaturalEnd);
    test.keys("/grants<enter>");
    assert_eq!(test.cmds.last(), Some(&Cmd::Question(QuestionCmd::Grants)));
    let row = GrantRow {
        id: "g1".into(),
        pattern: "Bash(git push *)".into(),
        scope: "all projects".into(),
        state: "in force".into(),
        holds: true,
        end: "no end".into(),
        uses: "3".into(),
        given: "2026-11-21 10:00 by ann (tui)".into(),
        question: Some("perm_a".into()),
    };
    test.send(Msg::Question(QuestionMsg::Grants(Ok(vec![row]))));
    let screen = test.screen();
    assert!(
        screen.contains("Bash(git push *)") && screen.contains("all projects, no end, used 3"),
        "{screen}"
    );
    test.keys("<enter>");
    let screen = test.screen();
    assert!(screen.contains("granted: 2026-11-21 10:00 by ann (tui)"), "{screen}");
    test.keys("<down><enter>");
    // The first row keeps it.
    assert!(test.screen().contains("no, keep it"), "{}", test.screen());
    test.keys("<down><enter>");
    assert_eq!(test.cmds.last(), Some(&Cmd::Question(QuestionCmd::RevokeGrant("g1".into()))));
    test.send(Msg::Question(QuestionMsg::Revoked("g1".into(), Ok(true))));
    let expected = "revoked Bash(git push *)";
    assert!(test.screen().contains(expected), "{}", test.screen());
}

#[test]
fn escape_on_a_card_stops_the_run() {
    let mut test = TestApp::new(100, 30);
    test.start("push it");
    test.ask_bash("a", "git push");
    test.keys("<esc>");
    assert_eq!(test.cmds, [Cmd::Thread(ThreadCmd::Cancel("t".into()))]);
    test.finish(TerminationReason::Cancelled);
    assert!(test.app.cards.open.is_empty());
    assert_eq!(test.app.conversation.run, RunState::Idle);
}

#[test]
fn several_cards_are_answered_separately_in_any_order() {
    let mut test = TestApp::new(100, 40);
    test.start("go");
    for id in ["a", "b", "c"] {
        test.ask_bash(id, &format!("git push {id}"));
    }
    assert!(test.live().contains("1 of 3"), "{}", test.live());
    test.keys("<right>");
    test.wait(400);
    // They are one list in their order, and the one that is asked about is open in it.
    let order = |test: &TestApp| {
        let live = test.live();
        let rows = live.lines().filter(|line| line.starts_with(['│', '▌']) && line.contains("git push"));
        rows.map(|row| row.trim_matches(['│', '▌', ' ']).to_owned()).collect::<Vec<_>>()
    };
    let rows = order(&test);
    assert_eq!(
        (rows.first().map(String::as_str), rows.last().map(String::as_str)),
        (Some("? 1  $ git push a"), Some("? 3  $ git push c")),
        "{rows:#?}"
    );
    assert_eq!(
        rows.iter().filter(|row| row.contains("push a") || row.contains("push c")).count(),
        2,
        "{rows:#?}"
    );
    test.keys("y");
    let live = test.live();
    let allowing = live.lines().find(|line| line.contains("$ git push b")).expect("a row");
    assert!(allowing.starts_with("│ … 2") && allowing.trim_end().ends_with("allowing…"), "{live}");
    assert!(matches!(&test.cmds[..], [Cmd::Question(QuestionCmd::Decide(id, _))] if id.as_str() == "perm_b"));
    test.event(E::ToolCallResumed { target_id: "b".into(), result: Value::Null });
    assert_eq!(
        test.app.cards.open.iter().map(|card| card.id.as_str()).collect::<Vec<_>>(),
        ["perm_a", "perm_c"]
    );
    // The same key pressed twice quickly does not answer the next card.
    test.wait(1000);
    test.cmds.clear();
    test.keys("y");
    test.keys("y");
    assert_eq!(test.decisions().len(), 1);
}

#[test]
fn a_late_answer_says_who_was_first() {
    let mut test = TestApp::new(100, 30);
    test.start("push it");
    test.ask_bash("a", "git push");
    test.keys("y");
    let ticket = ticket("a", "Bash", json!({"command": "git push"}), ACTION_PERMISSION, Value::Null);
    test.send(Msg::Question(QuestionMsg::Decided(
        "perm_a".into(),
        Ok(DecideOutcome::AlreadyDecided(record(ticket))),
    )));
    assert!(test.app.cards.open.is_empty());
    let expected = "Bash was already approved by ann (cli) at 12:03";
    assert!(test.screen().contains(expected), "{}", test.screen());
    for (user, channel, expected) in [
        ("ann (phone)", CHANNEL_HTTP, "approved by ann (phone) at 12:03"),
        ("reviewer", CHANNEL_REMOTE, "answered on the side of reviewer at 12:03"),
    ] {
        let mut record = record(self::ticket("a", "Bash", json!({}), ACTION_PERMISSION, Value::Null));
        record.decided_by =
            Some(Actor { user: user.into(), channel: channel.into(), pid: 7, ..Actor::default() });
        test.send(Msg::Question(QuestionMsg::Decided(
            "perm_a".into(),
            Ok(DecideOutcome::AlreadyDecided(record)),
        )));
        assert!(test.screen().contains(&format!("Bash was already {expected}")), "{}", test.screen());
    }
}

#[test]
fn a_failed_answer_leaves_the_question_pending() {
    let mut test = TestApp::new(100, 30);
    test.start("push it");
    test.ask_bash("a", "git push");
    test.keys("y");
    test.send(Msg::Question(QuestionMsg::Decided("perm_a".into(), Err("the disk is full".into()))));
    assert!(test.live().contains("the disk is full"), "{}", test.live());
    test.keys("y");
    assert_eq!(test.decisions().len(), 2);
}

#[test]
fn tool_questions_take_a_choice_or_text() {
    let parameters = json!({
        "question": "Which one?", "free_text": true, "multi": false,
        "choices": [{"label": "red"}, {"label": "blue", "description": "like the sky"}],
    });
    let mut test = TestApp::new(100, 30);
    test.start("ask me");
    test.ask("a", "AskUser", Value::Null, ACTION_ASK_USER, parameters.clone());
    test.keys("<enter>");
    assert!(test.decisions().is_empty(), "nothing is selected");
    test.keys("2<enter>");
    assert_eq!(test.decisions()[0].result, json!({"answer": "blue"}));

    let mut test = TestApp::new(100, 30);
    test.start("ask me");
    test.ask("a", "AskUser", Value::Null, ACTION_ASK_USER, parameters);
    test.keys("<up><up><enter>green, yes<enter>");
    assert_eq!(test.decisions()[0].result, json!({"answer": "green, yes"}));

    let parameters = json!({"question": "Which?", "multi": true, "choices": [{"label": "a"}, {"label": "b"}, {"label": "c"}]});
    let mut test = TestApp::new(100, 30);
    test.start("ask me");
    test.ask("a", "AskUser", Value::Null, ACTION_ASK_USER, parameters.clone());
    test.keys("13<down><down> <enter>");
    assert_eq!(test.decisions()[0].result, json!({"answers": ["c"]}));

    // The space bar does what its hint says before the arrows were used, too.
    let mut test = TestApp::new(100, 30);
    test.start("ask me");
    test.ask("a", "AskUser", Value::Null, ACTION_ASK_USER, parameters);
    test.keys(" <enter>");
    assert_eq!(test.decisions()[0].result, json!({"answers": ["a"]}));
}

fn library_question(free_text: bool) -> TestApp {
    let parameters = json!({
        "question": "Which library?", "free_text": free_text, "multi": false,
        "choices": [{"label": "arrow"}, {"label": "pendulum"}, {"label": "datetime"}],
    });
    let mut test = TestApp::new(100, 30);
    test.start("ask me");
    test.ask("a", "AskUser", Value::Null, ACTION_ASK_USER, parameters);
    test
}

#[test]
fn what_is_typed_on_a_question_is_its_answer() {
    for keys in ["4dateutil<enter>", "dateutil<enter>", "<down><down><down>dateutil<enter>"] {
        let mut test = library_question(true);
        test.keys(keys);
        assert_eq!(test.decisions()[0].result, json!({"answer": "dateutil"}), "{keys}");
        assert_eq!(test.app.composer.text(), "", "{keys}");
    }
    let mut test = library_question(true);
    test.send(Msg::Paste("dateutil\n".into()));
    assert!(test.decisions().is_empty(), "a paste is never an answer");
    test.keys("<enter>");
    assert_eq!(test.decisions()[0].result["answer"].as_str().map(str::trim), Some("dateutil"));
}

#[test]
fn a_blank_starts_no_answer() {
    let mut test = library_question(true);
    test.keys(" 2<enter>");
    assert_eq!(test.decisions()[0].result, json!({"answer": "pendulum"}));
}

#[test]
fn no_letter_decides_a_question() {
    for letter in 'a'..='z' {
        let mut test = library_question(false);
        test.keys(&letter.to_string());
        assert!(test.decisions().is_empty(), "{letter}");
        assert_eq!(test.app.composer.text(), letter.to_string(), "it is the start of a message");
        test.keys("x");
        let live = test.live();
        assert!(live.contains("Tab: answer · Enter: drop the question and send"), "{live}");
    }
    // Its last row gives no answer.
    let mut test = library_question(false);
    test.keys("<up><enter>");
    assert_eq!(test.decisions(), [&Answer::no(None)], "{}", test.live());
}

#[test]
fn a_question_is_answered_in_line_mode() {
    let ask = |free_text| {
        let mut test = library_question(free_text);
        test.app.display.is_linear = true;
        test
    };
    for (typed, answer) in [("2", "pendulum"), ("dateutil", "dateutil")] {
        let mut test = ask(true);
        test.keys(&format!("{typed}<enter>"));
        assert_eq!(test.decisions()[0].result, json!({ "answer": answer }));
    }
    // The number of the row for text asks for the text.
    let mut test = ask(true);
    test.keys("4<enter>");
    assert!(test.decisions().is_empty());
    test.keys("3<enter>");
    assert_eq!(test.decisions()[0].result, json!({"answer": "3"}));
    let mut test = ask(false);
    test.keys("skip<enter>");
    assert_eq!(test.decisions(), [&Answer::no(None)]);
}

#[test]
fn tab_goes_through_the_fields_of_a_form() {
    let surface = json!({
        "id": "s", "root": "root", "data": {},
        "components": {
            "root": {"kind": "Column", "props": {"children": ["name", "mail", "ok", "go"]}},
            "name": {"kind": "TextField", "props": {"label": "Name"}},
            "mail": {"kind": "TextField", "props": {"label": "Mail"}},
            "ok": {"kind": "CheckBox", "props": {"label": "Ok"}},
            "go": {"kind": "Button", "props": {"label": "Go", "action": {"name": "go"}}},
        },
    });
    let mut test = TestApp::new(100, 30);
    test.start("ask me");
    test.ask("a", "render_a2ui", Value::Null, ACTION_SURFACE, json!({ "surface": surface }));
    test.keys("Ada<tab>a@b.c<tab> <tab><enter>");
    let answer = &test.decisions()[0].result;
    assert_eq!(answer["dataModel"], json!({"name": "Ada", "mail": "a@b.c", "ok": true}), "{}", test.live());
}

#[test]
fn an_unknown_outcome_has_its_own_answers() {
    for (key, choice) in [("r", "rerun"), ("d", "done"), ("s", "skip")] {
        let mut test = TestApp::new(100, 30);
        test.start("go");
        test.ask("a", "Bash", json!({"command": "make"}), ACTION_UNKNOWN_OUTCOME, Value::Null);
        test.keys("yna<enter>");
        assert!(test.decisions().is_empty());
        assert!(test.screen().contains("its outcome is unknown"), "{}", test.screen());
        test.app.composer.clear();
        test.app.focus = Focus::Card;
        test.wait(1000);
        test.keys(key);
        assert_eq!(test.decisions()[0].result, json!({"choice": choice}));
    }
}
