//! Cards: the answers a key may give, the text that must be read first, and the description of a call.

use serde_json::{Value, json};

use super::Focus;
use super::{TestApp, suspended, ticket};
use crate::approval::QUIET_MS;
use crate::composer::Composer;
use crate::host::{ProgramCmd, ProgramMsg, TextPage, ThreadCmd};
use crate::msg::{Cmd, Msg};
use aye_core::contract::lifecycle::TerminationReason;
use aye_core::contract::suspension::{
    ACTION_PERMISSION, ACTION_UNKNOWN_OUTCOME, Answer, ResumeDecisionAction,
};
use aye_core::contract::tool::FilePreview;

fn preview(path: &str, old: Option<&str>, new: &str) -> FilePreview {
    FilePreview {
        path: path.into(),
        before: old.map(|_| "h".into()),
        after: format!("hash of {}", new.len()),
        old_text: old.map(Into::into),
        new_text: Some(new.into()),
    }
}

fn numbered(word: &str, count: usize) -> String {
    (1..=count).flat_map(|n| [format!("{word} {n}"), "\n".to_owned()]).collect()
}

fn asked(width: u16, height: u16, tool: &str, arguments: Value, mut parameters: Value) -> TestApp {
    let mut test = TestApp::new(width, height);
    test.start("go");
    parameters["proposals"] = json!([{"pattern": "X", "text": "x"}]);
    test.ask("a", tool, arguments, ACTION_PERMISSION, parameters);
    test
}

/// An edit whose diff is longer than the card.
fn long_edit(height: u16) -> TestApp {
    let (old, new) = (numbered("old", 60), numbered("new", 60));
    let arguments = json!({"file_path": "a.rs", "content": new});
    let files = json!({"preview": [preview("/home/me/proj/a.rs", Some(&old), &new)]});
    asked(100, height, "Write", arguments, files)
}

#[test]
fn a_change_must_be_read_to_its_end_before_approval() {
    for key in ["y", "1", "a", "2"] {
        let mut test = long_edit(24);
        test.keys(key);
        assert!(test.decisions().is_empty(), "{key}");
        assert!(test.live().contains("the end of the change was not shown yet"), "{key}: {}", test.live());
        assert!(test.app.cards.open[0].form().is_none(), "{key}: no rule is granted either");
    }
    // Jumping over rows does not count as reading: pages follow each other without a gap.
    let mut test = long_edit(24);
    test.app.cards.open[0].scroll = 200;
    test.draw();
    test.keys("y");
    assert!(test.decisions().is_empty(), "{}", test.live());
    assert!(test.live().contains("a part of the change was skipped and is shown now"), "{}", test.live());
    for _ in 0..20 {
        test.keys("<pagedown>");
    }
    test.keys("y");
    assert_eq!(test.decisions(), [&Answer::yes(Value::Null)], "{}", test.live());
    let mut test = long_edit(24);
    for _ in 0..20 {
        test.keys("<pagedown>");
    }
    test.keys("y");
    assert_eq!(test.decisions(), [&Answer::yes(Value::Null)], "{}", test.live());
}

#[test]
fn arguments_of_any_tool_must_be_read_to_their_end() {
    let body = numbered("line", 80);
    let mut test = asked(80, 20, "mcp__mail__send", json!({ "body": body }), json!({}));
    test.keys("y");
    assert!(test.decisions().is_empty(), "{}", test.live());
    assert!(test.live().contains("the end of the call was not shown yet"), "{}", test.live());

    // The same rule applies to rerunning a call that may have run.
    let mut test = TestApp::new(80, 20);
    test.start("go");
    test.ask("a", "Bash", json!({ "command": body }), ACTION_UNKNOWN_OUTCOME, Value::Null);
    test.keys("r");
    assert!(test.decisions().is_empty(), "{}", test.live());
    test.keys("s");
    assert_eq!(test.decisions()[0].result, json!({"choice": "skip"}), "skipping it runs nothing");
}

#[test]
fn widening_the_window_does_not_mark_unseen_rows_as_read() {
    let command = "x".repeat(58 * 90) + "; rm -r /";
    let mut test = asked(60, 20, "Bash", json!({ "command": command }), json!({}));
    for _ in 0..4 {
        test.keys("<pagedown>");
    }
    test.send(Msg::Resize(140, 20));
    test.keys("<pageup><pageup><pageup><pageup><pageup><pageup>");
    test.keys("y");
    assert!(test.decisions().is_empty() || test.live().contains("rm -r"), "{}", test.live());
}

#[test]
fn digits_answer_like_letters() {
    let ask = || asked(100, 30, "Bash", json!({"command": "git push"}), json!({}));
    let mut test = ask();
    let live = test.live();
    for (row, key) in [("1  Allow once", "y"), ("2  Always allow", "a"), ("3  Deny, and say why", "n")] {
        let line = live.lines().find(|line| line.contains(row)).unwrap_or_else(|| panic!("{row}\n{live}"));
        assert!(line.ends_with(&format!(" {key}")), "{line}");
    }
    test.keys("1");
    assert_eq!(test.decisions(), [&Answer::yes(Value::Null)]);
    test.keys("11");
    assert_eq!((test.decisions().len(), test.app.composer.text()), (1, ""), "the second press is not text");

    let mut test = ask();
    test.keys("2");
    assert!(test.live().contains("Always allow x in ~/proj, never expires"), "{}", test.live());

    let mut test = ask();
    test.keys("3busy<enter>");
    assert_eq!(test.decisions()[0].action, ResumeDecisionAction::Cancel);
    assert_eq!(test.decisions()[0].reason.as_deref(), Some("busy"));

    let mut test = ask();
    test.keys("47");
    assert!(test.decisions().is_empty() && test.live().contains("press 1, 2 or 3"), "{}", test.live());
    assert_eq!(test.app.composer.text(), "");

    for (key, choice) in [("1", "rerun"), ("2", "done"), ("3", "skip")] {
        let mut test = TestApp::new(100, 30);
        test.start("go");
        test.ask("a", "Bash", json!({"command": "make"}), ACTION_UNKNOWN_OUTCOME, Value::Null);
        test.keys(key);
        assert_eq!(test.decisions()[0].result, json!({ "choice": choice }));
    }
}

#[test]
fn enter_takes_the_first_answer_of_a_harmless_call() {
    let ask = || asked(100, 30, "Bash", json!({"command": "git push"}), json!({}));
    let mut test = ask();
    assert!(test.live().contains("▸ 1  Allow once"), "{}", test.live());
    test.keys("<enter>");
    assert_eq!(test.decisions(), [&Answer::yes(Value::Null)]);

    let mut test = ask();
    test.keys("<down><down><down><down><up>");
    assert!(test.live().contains("▸ 2  Always allow"), "{}", test.live());
    test.keys("<up><up><enter>");
    assert_eq!(test.decisions(), [&Answer::yes(Value::Null)], "the first one is selected again");

    // Body first: unseen answers cannot be selected.
    let mut test = long_edit(24);
    assert!(!test.live().contains('▸'), "{}", test.live());
    test.keys("<enter><down><enter>");
    assert!(test.decisions().is_empty() && !test.live().contains('▸'), "{}", test.live());
    assert!(test.live().contains("the end of the change was not shown yet"), "{}", test.live());
    for _ in 0..200 {
        test.keys("<down>");
    }
    assert!(test.live().contains("▸3 Deny"), "{}", test.live());
    test.keys("<up><up><enter>");
    assert_eq!(test.decisions(), [&Answer::yes(Value::Null)]);
}

/// A command that deletes and force-pushes.
fn dangerous(width: u16, height: u16) -> TestApp {
    let danger = json!({"what": ["deletes files", "force-pushes"], "words": ["rm", "-rf", "--force"]});
    let command = json!({"command": "rm -rf build && git push --force", "description": "Clean up"});
    asked(width, height, "Bash", command, json!({"risk": "destroys", "danger": danger}))
}

#[test]
fn nothing_is_preselected_on_a_dangerous_call() {
    let mut test = dangerous(100, 30);
    let live = test.live();
    assert!(live.contains("▌ Deletes files and force-pushes") && !live.contains("Clean up"), "{live}");
    assert!(!live.contains('▸'), "{live}");
    test.keys("<enter><enter>");
    assert!(test.decisions().is_empty() && test.live().contains("nothing is selected"), "{}", test.live());
    test.keys("<down><enter>");
    assert_eq!(test.decisions(), [&Answer::yes(Value::Null)], "an arrow key selects");
    let mut test = dangerous(100, 30);
    test.keys("y");
    assert_eq!(test.decisions().len(), 1);

    // Where the card is read aloud, an empty line is no answer at all.
    let mut test = asked(100, 30, "Bash", json!({"command": "git push"}), json!({}));
    test.app.display.is_linear = true;
    test.keys("<enter><enter>");
    assert!(test.decisions().is_empty(), "{}", test.live());

    // A question of an older version knows only the class.
    let old = json!({"risk": "destroys", "does": "runs a command that deletes files"});
    let mut test = asked(100, 30, "Bash", json!({"command": "rm x"}), old);
    test.keys("<enter>");
    assert!(test.decisions().is_empty(), "{}", test.live());
    // So is a call that the user edited: the rules have not named what it does.
    let mut test = asked(100, 30, "Bash", json!({"command": "ls"}), json!({}));
    test.keys("e<ctrl-u>rm x<enter>");
    let reviewed = json!({"command": "rm x"});
    let review = crate::host::Review {
        ruling: aye_core::contract::judgement::Ruling::Ask,
        words: "no rule covers it".into(),
        payload: Value::Null,
        files: Vec::new(),
    };
    test.send(Msg::Question(crate::host::QuestionMsg::Reviewed("perm_a".into(), reviewed, Ok(review))));
    test.wait(1000);
    test.keys("<enter>");
    assert!(test.decisions().is_empty(), "{}", test.live());
}

#[test]
fn the_dangerous_words_of_a_command_have_the_colour_of_errors() {
    use crate::theme::{Role, Theme};
    use crate::view::{self, RenderStyle, scrollback::ScrollbackWriter};
    let test = dangerous(100, 30);
    let theme = Theme::builtin("dark").expect("exists");
    let render_style =
        RenderStyle { theme: theme.clone(), highlighter: crate::highlight::Highlighter::waiting() };
    let rendered = view::live(&test.app, &mut ScrollbackWriter::default(), &render_style);
    let red = theme.style(Role::Error).fg;
    let is_red = |span: &&ratatui::text::Span<'_>| span.style.fg == red && !span.content.trim().is_empty();
    let line = rendered.lines.iter().find(|line| line.to_string().contains("rm -rf")).expect("the command");
    let words: Vec<&str> = line.spans.iter().skip(1).filter(is_red).map(|span| span.content.trim()).collect();
    assert_eq!(words, ["rm -rf", "--force"]);
    let title =
        rendered.lines.iter().find(|line| line.to_string().contains("Deletes files")).expect("a title");
    assert!(title.spans.iter().take(2).all(|span| span.style.fg == red), "the bar and the title: {title:?}");
    // The panel has the background of the composer to its last column.
    let band = theme.style(Role::Composer).bg;
    assert!(title.spans.iter().all(|span| span.style.bg == band) && title.width() == 100, "{title:?}");
}

#[test]
fn an_answer_that_is_not_possible_keeps_its_number_and_says_why() {
    let ask = |parameters: Value| {
        let mut test = TestApp::new(100, 30);
        test.start("go");
        test.ask("a", "Bash", json!({"command": "git push"}), ACTION_PERMISSION, parameters);
        test
    };
    let mut test = ask(json!({"rule": "Bash(git push *)", "proposals": []}));
    test.keys("2");
    let text = "the rule `Bash(git push *)` asks every time; no always-allow changes that";
    assert!(test.decisions().is_empty() && test.live().contains(text), "{}", test.live());
    test.keys("3<enter>");
    assert_eq!(test.decisions()[0].action, ResumeDecisionAction::Cancel);
    let mut test = ask(json!({"proposals": []}));
    test.keys("a");
    assert!(test.live().contains("no always-allow fits this call"), "{}", test.live());
}

#[test]
fn a_card_explains_itself_when_asked() {
    let parameters = json!({
        "rule": "ask Bash(git *)", "why": "it changes what others see", "risk": "network",
        "does": "runs a command that uses the network",
    });
    let command = json!({"command": "git push", "description": "publish"});
    let mut test = asked(100, 30, "Bash", command, parameters);
    let parts = [
        "in ~/proj",
        "rule: ask Bash(git *)",
        "it changes what others see",
        "risk: network",
        "says: publish",
    ];
    assert!(parts.iter().all(|part| !test.live().contains(part)), "{}", test.live());
    test.keys("?");
    for part in parts {
        assert!(test.live().contains(part), "{part}\n{}", test.live());
    }
    test.keys("?");
    assert!(!test.live().contains("rule:"), "{}", test.live());
}

#[test]
fn always_is_for_the_project_and_for_danger_the_conversation() {
    let scope = |mut test: TestApp, keys: &str| {
        test.keys(keys);
        let live = test.live();
        let row =
            live.lines().find(|row| row.contains("for ")).unwrap_or_else(|| panic!("{live}")).to_owned();
        row.split(['[', ']']).nth(1).map(str::to_owned)
    };
    let ask = || asked(100, 30, "Bash", json!({"command": "git push"}), json!({}));
    assert_eq!(scope(ask(), "a").as_deref(), Some("this project"));
    assert_eq!(scope(dangerous(100, 30), "a").as_deref(), Some("this conversation"));
    // The scope chosen last comes first; a dangerous call still gets no more than the conversation.
    for (chosen, keys, next) in
        [(3, "a<right><enter>", "all projects"), (1, "a<left><enter>", "this conversation")]
    {
        let mut test = ask();
        test.keys(keys);
        assert_eq!(test.grants().len(), 1, "{}", test.live());
        test.event(aye_core::contract::event::AgentEvent::ToolCallResumed {
            target_id: "a".into(),
            result: Value::Null,
        });
        test.ask_bash("b", "git pull");
        assert_eq!(test.app.cards.last_scope, Some(chosen));
        assert_eq!(scope(test, "a").as_deref(), Some(next));
    }
}

#[test]
fn a_step_of_an_answer_keeps_the_height_of_the_card() {
    for keys in ["a", "n", "m", "c", "y"] {
        let mut test = asked(100, 30, "Bash", json!({"command": "git push"}), json!({}));
        let before = test.live().lines().count();
        test.keys(keys);
        assert_eq!(test.live().lines().count(), before, "{keys}: {}", test.live());
    }
}

#[test]
fn a_card_shows_fifteen_rows_of_an_edit_in_24_rows() {
    let test = long_edit(24);
    let live = test.live();
    let rows = live.lines().filter(|row| row.contains("old ") || row.contains("new ")).count();
    assert!(rows >= 15, "{rows}\n{live}");
    assert!(live.contains("Edit a.rs?  +60 −60") && live.contains("1 Allow once y"), "{live}");
}

#[test]
fn a_call_on_a_card_is_not_a_row_as_well() {
    let mut test = TestApp::new(100, 40);
    test.start("go");
    for id in ["a", "b"] {
        test.ask_bash(id, &format!("git push {id}"));
    }
    let live = test.live();
    for id in ["a", "b"] {
        assert_eq!(live.matches(&format!("git push {id}")).count(), 1, "{live}");
    }
}

#[test]
fn a_selection_typed_ahead_does_not_answer() {
    let mut test = TestApp::new(100, 30);
    test.start("go");
    test.wait(5000);
    test.call("a", "Bash", json!({"command": "git push"}));
    let ticket = ticket("a", "Bash", json!({"command": "git push"}), ACTION_PERMISSION, Value::Null);
    test.event(suspended(ticket));
    test.keys("<down><enter>");
    assert!(test.decisions().is_empty());
    test.keys("<tab>");
    assert_eq!(test.app.focus, Focus::Card);
    assert!(!test.live().contains('▸'), "what is selected is shown when Enter takes it: {}", test.live());
    test.keys("<enter>");
    assert!(test.decisions().is_empty(), "it was not on the screen for long enough");
    let armed = test.app.now.plus(crate::approval::SEEN_MS);
    assert!(test.app.deadline().is_some_and(|at| at <= armed), "it is drawn again then");
    test.wait(1000);
    assert!(test.live().contains("▸ 1  Allow once"), "{}", test.live());
    test.keys("<enter>");
    assert_eq!(test.decisions(), [&Answer::yes(Value::Null)]);
}

#[test]
fn digits_never_start_a_message_while_a_question_is_pending() {
    let mut test = asked(100, 30, "Bash", json!({"command": "git push"}), json!({}));
    test.keys("<right>");
    assert_eq!(test.app.focus, Focus::Composer);
    test.keys("1");
    assert_eq!((test.app.composer.text(), test.decisions().len()), ("", 0));
    assert!(test.screen().contains("digits answer the question"), "{}", test.screen());
    test.keys("use 2 of them");
    assert_eq!(test.app.composer.text(), "use 2 of them", "text goes to the message, including digits");

    let mut test = asked(100, 30, "Bash", json!({"command": "git push"}), json!({}));
    test.keys("wait");
    assert_eq!((test.app.focus, test.app.composer.text()), (Focus::Composer, "wait"));
    assert!(test.decisions().is_empty());
}

#[test]
fn an_ignored_digit_delays_the_card_like_any_key() {
    let mut test = TestApp::new(80, 24);
    test.start("go");
    test.keys("x<backspace>");
    let arguments = json!({"command": "git push"});
    test.call("c1", "Bash", arguments.clone());
    test.event(suspended(ticket("c1", "Bash", arguments, ACTION_PERMISSION, json!(null))));
    test.wait(QUIET_MS - 1);
    assert_eq!(test.app.focus, Focus::Composer);
    test.keys("1");
    test.wait(QUIET_MS - 1);
    assert_eq!(test.app.focus, Focus::Composer, "the next key may be meant for the text");
    test.wait(1);
    assert_eq!(test.app.focus, Focus::Card);
}

#[test]
fn a_small_window_shows_the_answers_in_one_row() {
    let command = json!({"command": "a\nb\nc\nd\ne\nf"});
    let mut test = asked(60, 12, "Bash", command, json!({}));
    assert!(
        test.live().contains("▸1 Allow once y   2 Always allow a   3 Deny, and say why n"),
        "{}",
        test.live()
    );
    test.keys("<down><down><down>");
    assert!(test.live().contains("▸3 Deny, and say why n"), "{}", test.live());
}

#[test]
fn a_card_says_what_will_happen() {
    let title = |tool: &str, arguments: Value, parameters: Value| {
        let test = asked(100, 30, tool, arguments, parameters);
        let live = test.live();
        let row = live.lines().find(|row| row.starts_with('▌')).expect("a card").to_owned();
        row.trim_start_matches('▌').trim().to_owned()
    };
    let shadow = json!({"does": "opens /etc/shadow, outside this project", "outside": true});
    let shown = title("Read", json!({"file_path": "/etc/shadow"}), shadow);
    assert_eq!(shown, "Open /etc/shadow, outside this project?");
    let shown = title(
        "Bash",
        json!({"command": "rm x"}),
        json!({"danger": {"what": ["deletes files"], "words": ["rm"]}}),
    );
    assert_eq!(shown, "Deletes files");
    let shown = title("Bash", json!({"command": "make", "description": "run the tests."}), json!({}));
    assert_eq!(shown, "Run the tests?");
    let file = |path: &str, old: Option<&str>| preview(path, old, "new\n");
    let one = |path: &str, old: Option<&str>| json!({"preview": [file(path, old)], "outside": false});
    let write = || json!({"file_path": "x", "content": "new\n"});
    assert_eq!(title("Write", write(), one("/home/me/proj/src/a.rs", Some("a\n"))), "Edit src/a.rs?  +1 −1");
    assert_eq!(title("Write", write(), one("/home/me/proj/b.rs", None)), "Create b.rs?  +1 −0");
    let outside = json!({"preview": [file("/home/me/x", Some("a\n"))], "outside": true});
    assert_eq!(title("Write", write(), outside), "Edit ~/x, outside this project?  +1 −1");
    let two = json!({"preview": [file("/home/me/proj/a", None), file("/home/me/proj/b", None)]});
    assert_eq!(title("Patch", json!({}), two), "Change 2 files?");
    assert_eq!(title("Bash", json!({"command": "make"}), json!({})), "Run this command?");
    assert_eq!(title("Memory", json!({"action": "add"}), json!({})), "Allow Memory?");
}

#[test]
fn hunks_show_whole_lines_and_every_changed_place() {
    let old = format!("fn a() {{}}\nlet x = 1;\n{}let x = 1;\n", numbered("// filler", 40));
    let new = old.replace("x = 1", "x = 2");
    let arguments = json!({
        "file_path": "src/lib.rs", "old_string": "x = 1;", "new_string": "x = 2;", "replace_all": true,
    });
    let parameters = json!({"preview": [preview("/home/me/proj/src/lib.rs", Some(&old), &new)]});
    let mut test = asked(100, 40, "Edit", arguments.clone(), parameters.clone());
    test.keys("h");
    let live = test.live();
    assert!(live.contains("replaced in 2 places"), "{live}");
    assert!(live.contains("▸ [x] hunk 1 of 1, lines 2 and 43: keep"), "{live}");
    assert!(live.contains("2 - let x = 1;") && live.contains("2 + let x = 2;"), "{live}");

    // A single hunk, and a file with Windows line endings.
    let (old, new) = (old.replace('\n', "\r\n"), new.replace('\n', "\r\n"));
    let mut arguments = arguments;
    arguments["replace_all"] = json!(false);
    arguments["old_string"] = json!("fn a() {}\nlet x = 1;");
    arguments["new_string"] = json!("fn a() {}\nlet x = 2;");
    let parameters = json!({"preview": [preview("/home/me/proj/src/lib.rs", Some(&old), &new)]});
    let mut test = asked(100, 40, "Edit", arguments, parameters);
    test.keys("h");
    assert!(test.live().contains("▸ [x] hunk 1 of 1, line 2: keep"), "{}", test.live());
    assert!(
        test.live().contains("Edit src/lib.rs?") && !test.live().contains("~/proj/src"),
        "{}",
        test.live()
    );
}

#[test]
fn the_bar_key_toggles_the_side_by_side_view() {
    let (old, new) = (numbered("old", 3), numbered("new", 3));
    let parameters = json!({"preview": [preview("/home/me/proj/a.txt", Some(&old), &new)]});
    let mut test = asked(120, 40, "Write", json!({"file_path": "a.txt", "content": new}), parameters);
    assert!(!test.live().contains(" │ 1 + new 1"), "one below the other: {}", test.live());
    test.keys("|");
    assert!(test.live().contains(" │ 1 + new 1"), "{}", test.live());
    assert_eq!(test.app.composer.text(), "");
    test.keys("|");
    assert!(!test.live().contains(" │ 1 + new 1"), "{}", test.live());
    test.keys("n|");
    assert_eq!(
        test.app.cards.open[0].line().map(Composer::text),
        Some("|"),
        "in a text field it is a character"
    );
}

/// A plan-mode run that ended with text.
fn planned() -> TestApp {
    use aye_core::contract::event::AgentEvent as E;
    let mut test = TestApp::new(100, 30);
    test.app.info.mode = crate::host::Mode::Plan;
    test.start("how would you do it?");
    test.event(E::TextDelta { delta: "First the tests, then the parser.".into() });
    test.event(E::InferenceComplete { model: "m1".into(), usage: None, duration_ms: 1, stop_reason: None });
    test.event(E::StepEnd);
    test.finish(TerminationReason::NaturalEnd);
    test.wait(1000);
    test.wait(1000);
    test
}

#[test]
fn a_plan_offers_three_ways_to_continue() {
    use crate::host::{Mode, UserInput};
    use crate::msg::Cmd;
    let test = planned();
    let live = test.live();
    for row in ["Carry out this plan?", "1  Go ahead", "2  Go ahead and accept edits", "3  Keep planning"] {
        assert!(live.contains(row), "{row}\n{live}");
    }
    let first = live.lines().next().expect("a row");
    assert_eq!(first.trim(), "", "a blank row separates it from the text above: {live}");
    assert_eq!((test.app.own_cards(), test.app.focus), (0, Focus::Card), "it is not a stored question");
    for (keys, mode) in [
        ("1", Mode::Ask),
        ("2", Mode::AcceptEdits),
        ("y", Mode::Ask),
        ("a", Mode::AcceptEdits),
        ("<enter>", Mode::Ask),
        ("<down><enter>", Mode::AcceptEdits),
    ] {
        let mut test = planned();
        test.keys(keys);
        assert_eq!(test.app.info.mode, mode, "{keys}");
        assert!(test.cmds.contains(&Cmd::Program(ProgramCmd::SetMode(mode))), "{keys}");
        let go = Cmd::Thread(ThreadCmd::Start("t".into(), UserInput::text("Go ahead: carry out the plan.")));
        let at = |wanted: &Cmd| test.cmds.iter().position(|cmd| cmd == wanted);
        assert!(at(&Cmd::Program(ProgramCmd::SetMode(mode))) < at(&go), "{keys}: {:?}", test.cmds);
        assert!(test.app.cards.open.is_empty(), "{keys}");
    }
    for keys in ["3", "n", "<esc>"] {
        let mut test = planned();
        test.keys(keys);
        assert_eq!((test.app.info.mode, test.app.cards.open.len()), (Mode::Plan, 0), "{keys}");
        assert!(
            test.cmds
                .iter()
                .all(|cmd| !matches!(cmd, Cmd::Thread(ThreadCmd::Start(..) | ThreadCmd::Cancel(_)))),
            "{keys}"
        );
    }
    // Text is an answer too.
    let mut test = planned();
    test.keys("good, but name it well");
    assert_eq!((test.app.composer.text(), test.app.info.mode), ("good, but name it well", Mode::Plan));
    test.keys("<enter>");
    assert!(test.app.cards.open.is_empty());
    // Another mode needs no such card.
    let mut test = planned();
    test.app.info.mode = Mode::Ask;
    test.wait(10);
    assert!(test.app.cards.open.is_empty());
}

/// Code on a card has the colours of a finished change.
#[test]
fn a_change_on_a_card_is_highlighted() {
    use crate::highlight::Highlighter;
    use crate::theme::{Role, Theme};
    use crate::view::{self, RenderStyle, scrollback::ScrollbackWriter};
    let parameters =
        json!({"preview": [preview("/home/me/proj/a.rs", Some("let a = 1;\n"), "let b = 1;\n")]});
    let test = asked(100, 40, "Write", json!({"file_path": "a.rs", "content": "let b = 1;\n"}), parameters);
    let theme = Theme::builtin("dark").expect("exists");
    let render_style = RenderStyle { theme: theme.clone(), highlighter: Highlighter::waiting() };
    let rendered = view::live(&test.app, &mut ScrollbackWriter::default(), &render_style);
    let keyword = rendered.lines.iter().flat_map(|line| &line.spans).find(|span| span.content == "let");
    let style = keyword.expect("a separate span").style;
    assert_eq!(style.fg, theme.style(Role::CodeKeyword).fg);
    // The card's bar does not have the background of a changed line.
    let added = theme.style(Role::DiffAdd).bg;
    for line in rendered.lines.iter().filter(|line| line.to_string().contains("let b")) {
        assert_eq!(line.style.bg, None);
        assert_ne!(line.spans[0].style.bg, added);
        assert_eq!(line.spans.last().and_then(|span| span.style.bg), added);
        assert_eq!(line.width(), 100);
    }
    // So do its hunks, with the same writer.
    let mut test = test;
    let mut feed = ScrollbackWriter::default();
    view::live(&test.app, &mut feed, &render_style);
    test.keys("h");
    let rendered = view::live(&test.app, &mut feed, &render_style);
    assert!(rendered.lines.iter().any(|line| line.to_string().contains("hunk 1 of 1")), "{}", test.live());
    let keyword = rendered.lines.iter().flat_map(|line| &line.spans).find(|span| span.content == "let");
    assert_eq!(keyword.expect("a separate span").style.fg, theme.style(Role::CodeKeyword).fg);
}

/// A page with the link and its QR code; the question is still there afterwards.
#[test]
fn a_card_shows_the_code_that_opens_it_on_a_phone() {
    let mut test = TestApp::new(100, 40);
    test.start("go");
    test.ask_bash("a", "make");
    test.keys("?");
    assert!(test.live().contains("S on a phone"), "{}", test.live());
    test.keys("S");
    let asked = test.cmds.iter().find_map(|cmd| match cmd {
        Cmd::Program(ProgramCmd::Page(_, page, words)) => Some((*page, words.as_str())),
        _ => None,
    });
    assert_eq!(asked, Some((crate::palette::HostPage::Serve, "card perm_a")));
    let page = TextPage {
        title: "This question on a phone".into(),
        text: "http://h/#/card/perm_a".into(),
        ..TextPage::default()
    };
    test.send(Msg::Program(ProgramMsg::Page(Ok(page))));
    assert!(test.screen().contains("http://h/#/card/perm_a"), "{}", test.screen());
    test.keys("<esc>");
    assert_eq!(test.app.focus, Focus::Card, "{}", test.screen());
    assert!(test.decisions().is_empty() && test.live().contains("$ make"), "{}", test.live());
    // Where text is written, it is a letter.
    test.keys("nS");
    assert!(test.live().contains("reason: S"), "{}", test.live());
}

/// The call of a card on the whole screen: its change, or its command; the card is still there afterwards.
#[test]
fn a_call_is_shown_on_the_whole_screen() {
    let files = json!({"preview": [preview("/home/me/proj/a.rs", Some("let a = 1;\n"), "let b = 1;\n")]});
    let args = json!({"file_path": "a.rs", "content": "let b = 1;\n"});
    let mut test = asked(60, 20, "Write", args, files);
    test.keys("f");
    let screen = test.screen();
    assert!(screen.contains("Edit a.rs?") && screen.contains("+ let b = 1;"), "{screen}");
    test.keys("<esc>");
    assert!(test.app.overlays.viewer.is_none() && test.decisions().is_empty());
    assert!(test.live().contains("Allow once"), "{}", test.live());
    let mut test = TestApp::new(60, 20);
    test.start("go");
    test.ask_bash("a", &format!("make{}", "\nx".repeat(30)));
    assert!(test.live().contains("(↓) · f: whole screen"), "{}", test.live());
    test.keys("f");
    assert!(
        test.screen().contains("Run this command?") && test.screen().contains("make"),
        "{}",
        test.screen()
    );
}

/// A reason names a rule that the second answer adds, not how to write it into a file.
#[test]
fn a_missing_rule_is_added_by_the_second_answer() {
    let parameters = json!({"why": "no rule covers `npm test`; add `Bash(npm test *)`"});
    let mut test = asked(100, 30, "Bash", json!({"command": "npm test"}), parameters);
    test.keys("?");
    assert!(test.live().contains("No rule covers `npm test`. [2] adds one."), "{}", test.live());
}
