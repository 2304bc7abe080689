//! Cards on which a call is edited, sent back, commented, or answered together with others.

use serde_json::{Value, json};

use super::TestApp;
use crate::app::Focus;
use crate::approval::edit::EditorDocument;
use crate::host::{QuestionCmd, QuestionMsg, Review, ThreadCmd};
use crate::msg::{Cmd, Msg};
use aye_core::contract::judgement::Ruling;
use aye_core::contract::suspension::{
    ACTION_ASK_USER, ACTION_PERMISSION, ACTION_UNKNOWN_OUTCOME, ResumeDecisionAction,
};
use aye_core::contract::tool::FilePreview;

fn asked(width: u16, height: u16, command: &str) -> TestApp {
    let mut test = TestApp::new(width, height);
    test.start("push it");
    test.ask_bash("a", command);
    test
}

fn review(ruling: Ruling, words: &str) -> Review {
    Review { ruling, words: words.into(), files: Vec::new(), payload: Value::Null }
}

/// The arguments last sent for review.
fn reviewed(test: &TestApp) -> Option<Value> {
    test.cmds.iter().rev().find_map(|cmd| match cmd {
        Cmd::Question(QuestionCmd::Review(id, arguments)) => {
            assert_eq!(id.as_str(), "perm_a");
            Some(arguments.clone())
        }
        _ => None,
    })
}

fn answer_review(test: &mut TestApp, review: Result<Review, String>) {
    let arguments = reviewed(test).expect("was asked");
    test.send(Msg::Question(QuestionMsg::Reviewed("perm_a".into(), arguments, review)));
}

fn preview(path: &str, old: Option<&str>, new: &str) -> Value {
    let preview = FilePreview {
        path: path.into(),
        before: old.map(|_| "h".into()),
        after: "g".into(),
        old_text: old.map(Into::into),
        new_text: Some(new.into()),
    };
    json!([preview])
}

fn write(content: &str, old: &str) -> TestApp {
    let mut test = TestApp::new(100, 30);
    test.start("write it");
    let parameters =
        json!({"cwd": "/home/me/proj", "preview": preview("/home/me/proj/a.rs", Some(old), content)});
    test.ask("a", "Write", json!({"file_path": "a.rs", "content": content}), ACTION_PERMISSION, parameters);
    test
}

#[test]
fn an_edited_command_is_reviewed_and_approved_exactly_as_shown() {
    let mut test = asked(100, 30, "git push");
    assert!(test.live().contains("e edit"), "{}", test.live());
    test.keys("e");
    assert!(test.caret.is_some(), "it is typed on the card");
    test.keys(" --dry-run<enter>");
    let edited = json!({"command": "git push --dry-run"});
    assert_eq!(reviewed(&test), Some(edited.clone()));
    let live = test.live();
    assert!(live.contains("$ git push --dry-run") && live.contains("as you edited it"), "{live}");
    assert!(live.contains("checking the rules…"), "{live}");
    assert!(!live.contains("it changes what others see"), "the rule was about the proposed one: {live}");
    test.wait(1000);
    test.keys("y");
    assert!(test.decisions().is_empty() && test.live().contains("being checked"), "{}", test.live());

    answer_review(
        &mut test,
        Ok(review(Ruling::Ask, "needs approval too: no rule covers `rm`; add `Bash(rm *)`")),
    );
    assert!(test.live().contains("your edit needs approval too: no rule covers `rm`\n"), "{}", test.live());
    test.keys("y");
    assert!(test.decisions().is_empty(), "the current card was not visible for long enough");
    test.wait(400);
    test.keys("y");
    let decisions = test.decisions();
    assert_eq!(decisions.len(), 1);
    assert_eq!(decisions[0].arguments, Some(edited));
    assert_eq!(decisions[0].action, ResumeDecisionAction::Resume);
    assert!(test.app.composer.is_empty());
}

#[test]
fn an_edit_is_discarded_and_the_proposed_call_is_approved() {
    for back in ["u", "<esc>"] {
        let mut test = asked(100, 30, "git push");
        test.keys("e --force<enter>");
        answer_review(&mut test, Ok(review(Ruling::Ask, "?")));
        test.wait(400);
        test.keys(back);
        let live = test.live();
        assert!(!live.contains("--force") && live.contains("$ git push"), "{live}");
        test.keys("y");
        assert!(test.decisions().is_empty(), "{back}: must be read again");
        test.wait(400);
        test.keys("y");
        assert_eq!(test.decisions()[0].arguments, None, "{back}");
        assert!(!test.cmds.iter().any(|cmd| matches!(cmd, Cmd::Thread(ThreadCmd::Cancel(_)))));
    }
    // Leaving the editor keeps the text; an unchanged text is not an edit.
    let mut test = asked(100, 30, "git push");
    test.keys("e more<esc>");
    assert!(test.app.cards.open[0].edit.is_none());
    test.keys("e<enter>");
    assert!(test.live().contains("nothing changed"), "{}", test.live());
    test.keys("e<ctrl-u><enter>");
    assert!(test.live().contains("the command is empty"), "{}", test.live());
    assert_eq!(reviewed(&test), None);
}

#[test]
fn an_invalid_edit_cannot_be_approved() {
    for bad in [
        Ok(review(Ruling::Deny, "the rules deny it: deny by rule `Bash(curl *)`")),
        Err("the edited arguments of perm_a cannot be used: `/command`".to_owned()),
    ] {
        let mut test = asked(100, 30, "git push");
        test.keys("e; curl x<enter>");
        answer_review(&mut test, bad);
        test.wait(400);
        test.keys("y");
        assert!(test.decisions().is_empty());
        assert!(test.live().contains("u: discard"), "{}", test.live());
    }
    // A review of an older version is ignored.
    let mut test = asked(100, 30, "git push");
    test.keys("e --a<enter>");
    let old = reviewed(&test).expect("asked");
    test.wait(400);
    test.keys("e --b<enter>");
    test.send(Msg::Question(QuestionMsg::Reviewed("perm_a".into(), old, Ok(review(Ruling::Ask, "?")))));
    test.wait(400);
    test.keys("y");
    assert!(test.decisions().is_empty(), "{}", test.live());
}

#[test]
fn a_long_edited_command_must_be_read_to_its_end_before_approval() {
    let mut test = asked(60, 15, "true");
    test.keys("e");
    for n in 0..14 {
        test.keys(&format!("<alt-enter>echo {n}"));
    }
    test.keys("<alt-enter>rm x<enter>");
    answer_review(&mut test, Ok(review(Ruling::Ask, "?")));
    test.wait(400);
    test.keys("y");
    assert!(test.decisions().is_empty() && test.live().contains("the end of the command"), "{}", test.live());
    for _ in 0..16 {
        test.keys("<down>");
    }
    test.keys("y");
    assert_eq!(test.decisions().len(), 1, "{}", test.live());
}

#[test]
fn a_paste_goes_into_the_command_and_answers_nothing() {
    let mut test = asked(100, 30, "cat");
    test.keys("e");
    test.send(Msg::Paste(" <<X\r\ny\nX".into()));
    test.keys("<enter>");
    assert_eq!(reviewed(&test), Some(json!({"command": "cat <<X\ny\nX"})));
    assert!(test.decisions().is_empty());
    // A backslash before Enter continues the line, as in a shell.
    let mut test = asked(100, 30, "ls");
    test.keys("e \\<enter>-a<enter>");
    assert_eq!(reviewed(&test), Some(json!({"command": "ls \\\n-a"})));
}

#[test]
fn changes_to_a_call_are_requested_with_feedback() {
    let mut test = asked(100, 30, "git push");
    test.keys("m<enter>");
    assert!(test.decisions().is_empty() && test.live().contains("write what to change"), "{}", test.live());
    test.keys("use make<enter>");
    let decision = test.decisions()[0];
    assert_eq!(decision.action, ResumeDecisionAction::Cancel);
    assert_eq!(decision.result, json!({"decision": "modify"}));
    assert_eq!(decision.reason.as_deref(), Some("use make"));
}

/// Tab comments, as in other agents; a question of the agent takes its answer as text, so there Tab goes on to the
/// message.
#[test]
fn tab_comments_where_a_comment_has_a_place() {
    let mut test = asked(100, 30, "git push");
    test.keys("<tab>2 of them, yes");
    assert!(test.decisions().is_empty() && test.app.composer.text().is_empty(), "{}", test.live());
    test.keys("<enter>");
    assert!(test.live().contains("comment: 2 of them, yes"), "{}", test.live());
    test.keys("<right>");
    assert_eq!(test.app.focus, Focus::Composer);
    test.keys("<tab>");
    assert_eq!(test.app.focus, Focus::Card);
    test.wait(400);
    test.keys("y");
    assert_eq!(test.decisions()[0].reason.as_deref(), Some("2 of them, yes"));

    let mut test = TestApp::new(100, 30);
    test.start("go");
    let parameters = json!({"question": "Which?", "choices": [{"label": "a"}, {"label": "b"}]});
    test.ask("a", "AskUser", Value::Null, ACTION_ASK_USER, parameters);
    test.keys("<tab>");
    assert_eq!((test.app.focus, test.decisions().len()), (Focus::Composer, 0));
}

#[test]
fn a_comment_goes_with_the_decision() {
    let mut test = asked(100, 30, "git push");
    test.keys("cgo easy<enter>");
    assert!(test.live().contains("comment: go easy"), "{}", test.live());
    test.keys("y");
    assert_eq!(test.decisions()[0].reason.as_deref(), Some("go easy"));

    let mut test = asked(100, 30, "git push");
    test.keys("cnot yet<enter>n<enter>");
    assert_eq!(test.decisions()[0].reason.as_deref(), Some("not yet"));
    assert_eq!(test.decisions()[0].action, ResumeDecisionAction::Cancel);

    let mut test = TestApp::new(100, 30);
    test.start("go");
    test.ask("a", "Bash", json!({"command": "make"}), ACTION_UNKNOWN_OUTCOME, json!({}));
    test.keys("cI looked<enter>d");
    let decision = test.decisions()[0];
    assert_eq!(
        (decision.result.clone(), decision.reason.as_deref()),
        (json!({"choice": "done"}), Some("I looked"))
    );
    // Such a question has nothing to edit: the letters are text.
    let mut test = TestApp::new(100, 30);
    test.start("go");
    test.ask("a", "Bash", json!({"command": "make"}), ACTION_UNKNOWN_OUTCOME, json!({}));
    test.keys("eh");
    assert_eq!(test.app.composer.text(), "eh");
}

#[test]
fn a_long_text_is_edited_externally_and_returns_as_a_diff() {
    let mut test = write("one\ntwo\n", "one\n");
    test.keys("e");
    let draft = test.cmds.iter().find_map(|cmd| match cmd {
        Cmd::Editor(id, draft) => Some((id.clone(), draft.clone())),
        _ => None,
    });
    let (id, draft) = draft.expect("the editor is opened");
    assert_eq!(
        draft,
        EditorDocument { text: "one\ntwo\n".into(), name: "a.rs".into(), argument: Some("content") }
    );
    assert!(test.live().contains("in your editor"), "{}", test.live());
    test.keys("y");
    assert!(test.decisions().is_empty());
    test.send(Msg::EditorClosed(id.clone(), Some("content"), Err("no editor is set".into())));
    assert!(test.live().contains("no editor is set"), "{}", test.live());
    test.wait(400);
    test.send(Msg::EditorClosed(id, Some("content"), Ok("one\nTWO\n".into())));
    let edited = json!({"file_path": "a.rs", "content": "one\nTWO\n"});
    assert_eq!(reviewed(&test), Some(edited.clone()));
    let files: Vec<FilePreview> =
        serde_json::from_value(preview("/home/me/proj/a.rs", Some("one\n"), "one\nTWO\n"))
            .expect("has previews");
    let payload = json!({"shown": []});
    answer_review(&mut test, Ok(Review { files, payload: payload.clone(), ..review(Ruling::Ask, "?") }));
    let live = test.live();
    assert!(live.contains("TWO") && !live.contains("two"), "{live}");
    test.wait(400);
    test.keys("y");
    assert_eq!(test.decisions()[0].arguments, Some(edited));
    assert_eq!(test.decisions()[0].result, payload);
}

#[test]
fn other_arguments_are_edited_as_json() {
    let mut test = TestApp::new(100, 30);
    test.start("go");
    test.ask("a", "WebFetch", json!({"url": "https://a.example"}), ACTION_PERMISSION, json!({}));
    test.keys("e");
    let Some(Cmd::Editor(id, draft)) = test.cmds.pop() else { panic!("no editor") };
    assert_eq!((draft.name.as_str(), draft.argument), ("WebFetch.json", None));
    test.send(Msg::EditorClosed(id.clone(), None, Ok("{\n \"url\": }".into())));
    assert!(test.live().contains("line 2, column 9"), "{}", test.live());
    test.wait(400);
    test.keys("e");
    let Some(Cmd::Editor(_, draft)) = test.cmds.pop() else { panic!("no editor") };
    assert_eq!(draft.text, "{\n \"url\": }", "no written text is lost");
    test.send(Msg::EditorClosed(id.clone(), None, Ok(" ".into())));
    assert!(test.live().contains("the text is empty"), "{}", test.live());
    test.send(Msg::EditorClosed(id, None, Ok("{\"url\": \"https://b.example\"}".into())));
    assert_eq!(reviewed(&test), Some(json!({"url": "https://b.example"})));
    test.send(Msg::EditorClosed("gone".into(), None, Ok("{}".into())));
    assert!(test.screen().contains("closed while you edited"), "{}", test.screen());
}

#[test]
fn hunks_of_a_change_are_kept_or_dropped() {
    let mut test = write("A\nb\nC\n", "a\nb\nc\n");
    assert!(test.live().contains("h choose hunks"), "{}", test.live());
    test.keys("h");
    let live = test.live();
    assert!(
        live.contains("▸ [x] hunk 1 of 2, line 1: keep") && live.contains("[x] hunk 2 of 2, line 3"),
        "{live}"
    );
    test.send(Msg::Key(crossterm::event::KeyCode::Char(' ').into()));
    assert!(test.live().contains("[ ] hunk 1 of 2, line 1: drop"), "{}", test.live());
    test.keys("<enter>");
    assert_eq!(reviewed(&test), Some(json!({"file_path": "a.rs", "content": "a\nb\nC\n"})));

    let mut test = write("A\nb\nC\n", "a\nb\nc\n");
    test.keys("h <down> <enter>");
    assert!(test.live().contains("all hunks are dropped"), "{}", test.live());
    assert_eq!(reviewed(&test), None);
    test.keys("<esc>h<enter>y");
    assert_eq!(test.decisions().len(), 1, "the whole call is the proposed one");
    assert_eq!(test.decisions()[0].arguments, None);

    // For an Edit, the replacement text is split into hunks.
    let mut test = TestApp::new(100, 30);
    test.start("go");
    let arguments = json!({"file_path": "a.rs", "old_string": "a\nb\nc", "new_string": "A\nb\nC"});
    let parameters = json!({"preview": preview("/home/me/proj/a.rs", Some("a\nb\nc\n"), "A\nb\nC\n")});
    test.ask("a", "Edit", arguments, ACTION_PERMISSION, parameters);
    test.keys("h<down> <enter>");
    assert_eq!(reviewed(&test).expect("asked")["new_string"], "A\nb\nc");
}

fn three(risks: [&str; 3]) -> TestApp {
    let mut test = TestApp::new(100, 30);
    test.start("go");
    for (id, risk) in ["a", "b", "c"].iter().zip(risks) {
        let parameters = json!({"risk": risk});
        test.ask(id, "Bash", json!({"command": format!("run {id}")}), ACTION_PERMISSION, parameters);
    }
    test
}

fn decided(test: &TestApp) -> Vec<(&str, ResumeDecisionAction)> {
    let decided = test.cmds.iter().filter_map(|cmd| match cmd {
        Cmd::Question(QuestionCmd::Decide(id, answer)) => Some((id.as_str(), answer.action)),
        _ => None,
    });
    decided.collect()
}

#[test]
fn read_only_calls_are_approved_at_once_and_the_rest_denied_singly() {
    use ResumeDecisionAction::{Cancel, Resume};
    let mut test = three(["reads", "runs", "reads"]);
    let live = test.live();
    assert!(live.contains("R allow 2 read-only") && live.contains("D deny the other\n"), "{live}");
    test.keys("R");
    let live = test.live();
    assert!(live.contains("Allow these 2 read-only calls?"), "{live}");
    assert!(live.contains("1. Run this command?") && live.contains("R allow these 2"), "{live}");
    assert!(live.contains("$ run a") && live.contains("$ run c") && !live.contains("$ run b"), "{live}");
    test.keys("R");
    assert!(decided(&test).is_empty(), "pressing twice by mistake does not approve");
    test.wait(400);
    // Another key returns and answers nothing.
    test.keys("y");
    assert!(decided(&test).is_empty() && test.app.cards.batch.is_none(), "{}", test.live());
    test.wait(400);
    test.keys("R");
    test.wait(400);
    test.keys("R");
    assert_eq!(decided(&test), [("perm_a", Resume), ("perm_c", Resume)]);
    test.wait(1000);
    assert!(test.live().contains("run b"), "the remaining one is shown: {}", test.live());
    test.keys("D");
    assert!(test.live().contains("Deny this call?") && test.live().contains("D deny it"), "{}", test.live());
    test.wait(400);
    test.keys("D");
    assert_eq!(decided(&test).last(), Some(&("perm_b", Cancel)));
    assert_eq!(decided(&test).len(), 3);
}

#[test]
fn a_new_or_edited_card_is_not_answered_with_the_others() {
    let mut test = three(["reads", "reads", "runs"]);
    test.keys("e -l<enter>");
    test.wait(400);
    assert!(test.live().contains("allow 1 read-only") || test.app.cards.open[0].edit.is_some());
    test.keys("R");
    test.wait(400);
    let late = json!({"risk": "reads"});
    test.call("d", "Bash", json!({"command": "late"}));
    let ticket = super::ticket("d", "Bash", json!({"command": "late"}), ACTION_PERMISSION, late);
    test.event(super::suspended(ticket));
    test.keys("R");
    assert_eq!(decided(&test), [("perm_b", ResumeDecisionAction::Resume)]);

    let mut test = three(["runs", "nonsense", "edits"]);
    assert!(!test.live().contains("only read") && test.live().contains("D deny all 3"), "{}", test.live());
    test.keys("R");
    assert!(test.live().contains("no pending call is read-only"), "{}", test.live());
    assert!(decided(&test).is_empty());
}
