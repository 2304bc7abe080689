//! The composer: its keys during a run, on cards and in lists.

use insta::assert_snapshot;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use super::{TestApp, queued, suspended, ticket};
use crate::composer::paste::Draft;
use crate::composer::vim::VimMode;
use crate::host::{
    LastThread, ProgramCmd, Shell, SkillRow, ThreadCmd, ThreadMsg, UserInput, WritingCmd, WritingMsg,
};
use crate::msg::{Cmd, Msg};
use crate::thread_actions::RewindCmd;
use aye_core::contract::activity::STEERED_ACTIVITY_TYPE;
use aye_core::contract::event::AgentEvent as E;
use aye_core::contract::lifecycle::TerminationReason;
use aye_core::contract::suspension::ACTION_PERMISSION;

fn last_input(test: &TestApp) -> &UserInput {
    match test.cmds.last() {
        Some(Cmd::Thread(ThreadCmd::Start(_, input) | ThreadCmd::Enqueue(_, input))) => input,
        other => panic!("{other:?}"),
    }
}

#[test]
fn enter_steers_and_tab_queues_while_the_agent_works() {
    let mut test = TestApp::new(100, 30);
    test.start("go");
    assert!(test.live().contains("Enter: send now · Tab: queue"), "{}", test.live());
    test.keys("faster<enter>");
    assert!(
        matches!(test.cmds.last(), Some(Cmd::Thread(ThreadCmd::Enqueue(..)))) && last_input(&test).steers
    );
    let input = last_input(&test).clone();
    test.send(Msg::Thread(ThreadMsg::Enqueued(input, Ok(QueuedRow { steers: true, ..queued(7, "faster") }))));
    let early = json!({"queued": 6, "text": "early", "images": []});
    test.event(E::ActivitySnapshot {
        message_id: "m".into(),
        activity_type: STEERED_ACTIVITY_TYPE.into(),
        content: early,
        replace: Some(false),
    });
    test.send(Msg::Thread(ThreadMsg::Enqueued(UserInput::text("early"), Ok(queued(6, "early")))));
    assert!(!test.live().contains("queued early"), "it was read before the answer came: {}", test.live());
    test.keys("then this<tab>");
    assert!(!last_input(&test).steers);
    let input = last_input(&test).clone();
    test.send(Msg::Thread(ThreadMsg::Enqueued(input, Ok(queued(8, "then this")))));
    assert!(
        test.live().contains("steers faster") && test.live().contains("queued then this"),
        "{}",
        test.live()
    );
    let content = json!({"queued": 7, "text": "faster", "images": []});
    test.event(E::ActivitySnapshot {
        message_id: "m".into(),
        activity_type: STEERED_ACTIVITY_TYPE.into(),
        content,
        replace: Some(false),
    });
    assert!(!test.live().contains("steers") && test.screen().contains("❯ faster"), "{}", test.screen());
    test.keys("<up>");
    assert_eq!(test.cmds.last(), Some(&Cmd::Thread(ThreadCmd::Unqueue(vec![8]))));
    test.send(Msg::Thread(ThreadMsg::Unqueued { back: vec![8], gone: Vec::new() }));
    assert_eq!(test.app.composer.text(), "then this");
}

#[test]
fn the_end_of_a_task_is_not_shown_as_a_message() {
    let text = "[task b1] The background command `make` ended with exit status 0.";
    let mut test = TestApp::new(80, 24);
    test.start("go");
    let content = json!({"queued": 7, "text": text, "images": [], "is_report": true});
    test.event(E::ActivitySnapshot {
        message_id: "m".into(),
        activity_type: STEERED_ACTIVITY_TYPE.into(),
        content,
        replace: Some(false),
    });
    test.finish(TerminationReason::NaturalEnd);
    let row = QueuedRow { is_report: true, ..queued(8, text) };
    test.send(Msg::Thread(ThreadMsg::Began("t".into(), row)));
    let screen = test.screen();
    assert_eq!(screen.matches("· task b1 · The background command").count(), 2, "{screen}");
    assert!(!screen.contains("❯ [task") && !screen.contains("❯ task"), "{screen}");
}

#[test]
fn any_queued_message_can_be_edited_or_dropped() {
    for width in [40, 80, 140] {
        let mut test = TestApp::new(width, 24);
        test.start("go");
        let texts = ["first", "second 漢字 👍", "third e\u{301}", "fourth", "fifth"];
        for (id, text) in (1..).zip(texts) {
            test.send(Msg::Thread(ThreadMsg::Enqueued(UserInput::text(text), Ok(queued(id, text)))));
        }
        test.keys("<up><up><up><up>");
        assert!(
            test.cmds.iter().all(|cmd| !matches!(cmd, Cmd::Thread(ThreadCmd::Unqueue(_)))),
            "{:?}",
            test.cmds
        );
        assert_snapshot!(format!("queued_{width}"), test.live());
    }
    let mut test = TestApp::new(80, 24);
    test.start("go");
    for (id, text) in [(1, "one"), (2, "two"), (3, "three")] {
        test.send(Msg::Thread(ThreadMsg::Enqueued(UserInput::text(text), Ok(queued(id, text)))));
    }
    test.cmds.clear();
    test.keys("<up><up>");
    assert!(test.live().contains("▸ queued two"), "{}", test.live());
    assert!(test.live().contains("Enter: edit"), "{}", test.live());
    // It is dropped, but its text is not lost.
    test.keys("<delete>");
    assert_eq!(test.cmds, [Cmd::Thread(ThreadCmd::Unqueue(vec![2]))]);
    test.send(Msg::Thread(ThreadMsg::Unqueued { back: vec![2], gone: Vec::new() }));
    assert!(test.app.composer.is_empty());
    assert!(test.live().contains("dropped; Ctrl-Y"), "{}", test.live());
    assert!(test.live().contains("▸ queued three"), "{}", test.live());
    test.keys("<up><enter>");
    assert_eq!(test.cmds.last(), Some(&Cmd::Thread(ThreadCmd::Unqueue(vec![1]))));
    test.send(Msg::Thread(ThreadMsg::Unqueued { back: vec![1], gone: Vec::new() }));
    assert_eq!(test.app.composer.text(), "one");
    test.keys("<ctrl-u><ctrl-k>");
    // Two are left again, and one is consumed while selected.
    test.send(Msg::Thread(ThreadMsg::Enqueued(UserInput::text("four"), Ok(queued(4, "four")))));
    test.keys("<up><up><down>");
    assert_eq!(test.app.queue.at, Some(4));
    test.send(Msg::Thread(ThreadMsg::Began("t".into(), queued(4, "four"))));
    assert_eq!(test.app.queue.at, None);
    test.send(Msg::Thread(ThreadMsg::Enqueued(UserInput::text("five"), Ok(queued(5, "five")))));
    test.keys("<up>x");
    assert_eq!((test.app.queue.at, test.app.composer.text()), (None, "x"), "typed text is not a key");
    test.keys("<backspace><up><esc>");
    assert_eq!(test.app.queue.at, None);
    assert!(test.app.conversation.is_active(), "Esc left the row, and the run continues");
    test.keys("<up><down>");
    assert_eq!(test.app.queue.at, None);
}

#[test]
fn a_steering_message_queued_under_a_card_closes_nothing() {
    let mut test = TestApp::new(100, 30);
    test.start("go");
    test.keys("also that");
    test.call("a", "Bash", json!({"command": "git push"}));
    test.event(suspended(ticket(
        "a",
        "Bash",
        json!({"command": "git push"}),
        ACTION_PERMISSION,
        json!(null),
    )));
    test.keys("<enter>");
    assert!(
        last_input(&test).steers && matches!(test.cmds.last(), Some(Cmd::Thread(ThreadCmd::Enqueue(..))))
    );
    assert_eq!(test.app.cards.open.len(), 1);
}

#[test]
fn a_user_command_is_sent_as_one_and_never_steers() {
    let mut test = TestApp::new(100, 30);
    test.keys("!ls -l<enter>");
    let input = last_input(&test);
    assert_eq!((input.shell, input.text.as_str()), (Some(Shell::Shown), "ls -l"));
    assert_eq!(input.written(), "!ls -l");
    test.event(E::RunStart { thread_id: "t".into(), run_id: "r".into(), parent_run_id: None });
    test.keys("!!make<enter>");
    let input = last_input(&test);
    assert_eq!((input.shell, input.text.as_str(), input.steers), (Some(Shell::Hidden), "make", false));
    test.finish(TerminationReason::NaturalEnd);
    test.keys("!<enter>");
    assert!(test.live().contains("! runs the command after it"), "{}", test.live());
    test.app.composer.clear();
    test.start("go");
    test.ask_bash("a", "git push");
    test.keys("<right>!ls<enter>");
    assert!(
        matches!(test.cmds.last(), Some(Cmd::Thread(ThreadCmd::Enqueue(..)))),
        "it withdraws no question: {:?}",
        test.cmds
    );
}

#[test]
fn vi_keys_are_enabled_by_a_command_and_the_mode_is_shown() {
    let mut test = TestApp::new(100, 30);
    test.keys("/vim<enter>");
    test.wait(6000);
    assert!(test.live().contains("INSERT"), "{}", test.live());
    test.keys("one two<esc>b");
    assert!(test.live().contains("NORMAL"), "{}", test.live());
    test.keys("2d");
    assert!(test.live().contains("NORMAL 2d"), "{}", test.live());
    test.keys("<esc>ciwsix<esc>u<ctrl-r>");
    assert_eq!(test.app.composer.text(), "one six");
    test.keys("viw");
    assert!(test.live().contains("VISUAL"), "{}", test.live());
    test.keys("<esc><enter>");
    assert_eq!(last_input(&test).text, "one six");
    assert_eq!(test.app.vim.as_ref().map(Vim::mode), Some(VimMode::Insert), "ready for the next one");
    test.event(E::RunStart { thread_id: "t".into(), run_id: "r".into(), parent_run_id: None });
    test.keys("<esc>");
    assert!(!test.cmds.contains(&Cmd::Thread(ThreadCmd::Cancel("t".into()))), "it left insert mode");
    test.keys("<esc>");
    assert!(test.cmds.contains(&Cmd::Thread(ThreadCmd::Cancel("t".into()))));
    test.keys("i/vim<enter>");
    assert_eq!(test.app.vim.as_ref().map(Vim::mode), None);
}

#[test]
fn history_is_searched_everywhere_and_walked_within_the_conversation() {
    let mut test = TestApp::new(100, 30);
    test.start("first words");
    test.finish(TerminationReason::NaturalEnd);
    test.keys("<up>");
    assert_eq!(test.app.composer.text(), "first words");
    test.keys("<down><ctrl-r>");
    assert_eq!(test.cmds.last(), Some(&Cmd::Writing(WritingCmd::History)));
    test.send(Msg::Writing(WritingMsg::History(Ok(vec!["newest\nof all".into(), "older".into()]))));
    test.keys("all<enter>");
    assert_eq!(test.app.composer.text(), "newest\nof all");
}

#[test]
fn the_editor_gets_the_whole_text_and_returns_it() {
    let mut test = TestApp::new(100, 30);
    let long = "line\n".repeat(20);
    test.send(Msg::Paste(long.clone()));
    assert!(test.live().contains("[paste 1: 20 lines]"), "{}", test.live());
    test.keys("<ctrl-g>");
    assert_eq!(test.cmds.last(), Some(&Cmd::Compose(long.clone())));
    test.send(Msg::Composed(Ok(long.clone())));
    assert_eq!(test.app.composer.text(), "[paste 1: 20 lines]", "nothing changed");
    test.send(Msg::Composed(Ok("short\x1b[2J\n".into())));
    assert_eq!(test.app.composer.text(), "short^[[2J");
    test.keys("<ctrl-_><alt-p>");
    assert_eq!(test.app.composer.text(), long);
    test.send(Msg::Composed(Err("no editor is set".into())));
    assert!(test.live().contains("no editor is set"), "{}", test.live());
}

#[test]
fn the_first_start_text_is_not_a_message() {
    let mut test = TestApp::new(100, 30);
    test.app.welcome();
    test.draw();
    assert!(test.live().contains("Ask for something. / for commands, @ for files"), "{}", test.live());
    test.keys("hi<enter>");
    test.finish(TerminationReason::NaturalEnd);
    assert!(!test.live().contains("Ask for something"), "{}", test.live());
}

#[test]
fn a_long_paste_stays_a_mark_once_sent() {
    let long = "a line\n".repeat(20);
    let whole_text = format!("what is this: {}", long.trim_end());
    let mark = "what is this: [paste 1: 20 lines]";
    let is_marked = |test: &TestApp| {
        let screen = test.screen();
        assert!(screen.contains(mark) && !screen.contains("a line"), "{screen}");
    };
    let write = |test: &mut TestApp| {
        test.keys("what is this: ");
        test.send(Msg::Paste(long.clone()));
        test.keys("<enter>");
    };
    let mut test = TestApp::new(100, 30);
    write(&mut test);
    let input = last_input(&test).clone();
    assert_eq!(input.text, whole_text, "the model reads all of it");
    is_marked(&test);

    // The history contains the mark, even if another paste has the same one.
    test.keys("<up>");
    assert_eq!((test.app.composer.text(), test.app.composer.whole().as_str()), (mark, whole_text.as_str()));
    test.app.composer.take();
    test.send(Msg::Paste("other\n".repeat(20)));
    test.app.composer.recall(&whole_text);
    assert_eq!(test.app.composer.text(), "what is this: [paste 2: 20 lines]");
    assert_eq!(test.app.composer.whole(), whole_text);
    test.app.composer.recall(long.trim_end());
    assert_eq!(test.app.composer.text(), "[paste 2: 20 lines]");
    assert_eq!(test.app.composer.whole(), long.trim_end());
    test.app.composer.take();

    // Text that could not be sent has its mark again, and so has queued text.
    test.send(Msg::Thread(ThreadMsg::Started(Err(("the disk is full".into(), input.clone())))));
    assert_eq!(test.app.composer.text(), mark);
    assert_eq!(test.app.composer.whole().trim_end(), whole_text);
    test.keys("<enter>");
    write(&mut test);
    let row = QueuedRow { shown: Some(mark.into()), ..queued(7, &whole_text) };
    test.send(Msg::Thread(ThreadMsg::Enqueued(last_input(&test).clone(), Ok(row.clone()))));
    assert!(test.live().contains(&format!("queued {mark}")), "{}", test.live());
    test.send(Msg::Thread(ThreadMsg::Unqueued { back: vec![7], gone: Vec::new() }));
    assert_eq!((test.app.composer.text(), test.app.composer.whole().trim_end()), (mark, whole_text.as_str()));

    // A message queued by another process starts here.
    let mut test = TestApp::new(100, 30);
    test.send(Msg::Thread(ThreadMsg::Began("t".into(), row)));
    is_marked(&test);
    let content = json!({"queued": 8, "text": whole_text, "shown": mark, "images": []});
    let mut test = TestApp::new(100, 30);
    test.start("go");
    test.event(E::ActivitySnapshot {
        message_id: "m".into(),
        activity_type: STEERED_ACTIVITY_TYPE.into(),
        content,
        replace: Some(false),
    });
    is_marked(&test);
    // The viewer shows all of it.
    test.keys("<ctrl-o>");
    assert!(test.live().contains("a line"), "{}", test.live());
}

#[test]
fn a_draft_is_kept_and_restored() {
    let kept = |test: &TestApp| {
        let keeps = test.cmds.iter().filter_map(|cmd| match cmd {
            Cmd::Writing(WritingCmd::KeepDraft(keep)) => Some((keep.draft.text.clone(), keep.is_new)),
            _ => None,
        });
        keeps.collect::<Vec<_>>()
    };
    let mut test = TestApp::new(100, 30);
    assert!(test.cmds.contains(&Cmd::Writing(WritingCmd::Draft("t".into(), true))));
    test.send(Msg::Writing(WritingMsg::Draft(
        "other".into(),
        Draft { text: "no".into(), pastes: Vec::new() },
    )));
    test.send(Msg::Writing(WritingMsg::Draft(
        "t".into(),
        Draft { text: "half a".into(), pastes: Vec::new() },
    )));
    assert_eq!(test.app.composer.text(), "half a");
    test.keys(" thought");
    let due = test.app.deadline().expect("has a deadline");
    test.wait(due.since(test.app.now));
    assert_eq!(kept(&test), [("half a thought".to_owned(), true)]);
    test.keys("!");
    test.send(Msg::Hangup);
    assert_eq!(kept(&test).last().map(|(text, _)| text.as_str()), Some("half a thought!"));
    assert_eq!(test.cmds.last(), Some(&Cmd::Quit));
    test.keys("<enter>");
    test.wait(1000);
    assert_eq!(kept(&test).last().map(|(text, _)| text.as_str()), Some(""), "a sent message is not a draft");
    // Found on the disk before it was sent.
    test.send(Msg::Writing(WritingMsg::Draft("t".into(), Draft::from("half a thought!"))));
    assert_eq!(test.app.composer.text(), "", "what was written here does not come back");
    test.finish(TerminationReason::NaturalEnd);
    test.wait(6000);
    assert_eq!(test.app.deadline(), None);
}

#[test]
fn command_arguments_are_completed_and_enter_sends_the_text() {
    let mut test = TestApp::new(100, 30);
    test.keys("/export ");
    assert!(test.live().contains("/export [md|json|html]  export this conversation"), "{}", test.live());
    test.keys("<enter>");
    assert!(matches!(test.cmds.last(), Some(Cmd::Back(RewindCmd::Export(..)))), "{:?}", test.cmds);
    test.keys("/mode <down><down><down><enter>");
    assert_eq!(test.app.composer.text(), "/mode plan ");
    test.keys("<enter>");
    assert_eq!(test.cmds.last(), Some(&Cmd::Program(ProgramCmd::SetMode(crate::host::Mode::Plan))));
}

/// A draft with a paste, wide characters and emoji, the queue, and the vi mode.
#[test]
fn composer_and_queue_at_three_widths() {
    for width in [40, 80, 140] {
        let mut test = TestApp::new(width, 20);
        test.start("go");
        for (id, steers, text) in
            [(7, true, "schneller, 漢字 👩\u{200d}👧 e\u{301}"), (8, false, "then run all the tests again")]
        {
            test.send(Msg::Thread(ThreadMsg::Enqueued(
                UserInput::text(text),
                Ok(QueuedRow { steers, ..queued(id, text) }),
            )));
        }
        test.app.set_vim(true);
        test.keys("look at 漢字漢字 and 👨\u{200d}👩\u{200d}👧 ");
        test.send(Msg::Paste("line\n".repeat(40)));
        test.keys(" twice<esc>bv");
        insta::assert_snapshot!(format!("composer_{width}"), test.live());
        test.keys("<esc>");
        test.app.composer.clear();
        test.keys("i/mode ");
        insta::assert_snapshot!(format!("words_{width}"), test.live());
    }
}

#[derive(Clone, Debug)]
enum Step {
    Type(char),
    Back,
    Tab,
    Wait(u64),
    Card,
    Enter,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => prop::sample::select(vec!['y', 'n', 'a', 'e', 'R', 'x', '1']).prop_map(Step::Type),
        2 => Just(Step::Back),
        1 => Just(Step::Tab),
        3 => prop_oneof![1u64..399, 400u64..3000].prop_map(Step::Wait),
        2 => Just(Step::Card),
        1 => Just(Step::Enter),
    ];
    prop::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// A key goes to the card only if the card had the focus on screen; the card takes the focus only when
    /// the composer is empty and no key arrived for a while.
    #[test]
    fn a_card_never_takes_a_key_meant_for_the_composer(steps in steps()) {
        let mut test = TestApp::new(80, 24);
        test.start("go");
        let (mut count, mut typed_at, mut answers) = (0, None, 0);
        for step in steps {
            let (had_text, had_focus) = (!test.app.composer.is_empty(), test.app.focus);
            let before = test.app.composer.text().to_owned();
            let is_tab = matches!(step, Step::Tab);
            let is_key = !matches!(step, Step::Wait(_) | Step::Card);
            match step {
                Step::Type(c) => test.keys(&c.to_string()),
                Step::Back => test.keys("<backspace>"),
                Step::Tab => test.keys("<tab>"),
                Step::Enter => test.keys("<enter>"),
                Step::Wait(ms) => test.wait(ms),
                Step::Card => {
                    count += 1;
                    let id = format!("c{count}");
                    let arguments = json!({"command": "git push"});
                    test.call(&id, "Bash", arguments.clone());
                    test.event(suspended(ticket(&id, "Bash", arguments, ACTION_PERMISSION, json!(null))));
                }
            }
            let is_answered = test.decisions().len() > answers;
            answers = test.decisions().len();
            if had_focus == Focus::Composer && is_key {
                prop_assert!(!is_answered, "a key for the composer answered");
                let is_stray = matches!(step, Step::Type(c) if c.is_ascii_digit()) && before.is_empty();
                if is_stray && !test.app.cards.open.is_empty() {
                    prop_assert!(test.app.composer.is_empty(), "a digit started a message");
                } else if let Step::Type(c) = step {
                    prop_assert!(test.app.composer.text().ends_with(c) && test.app.composer.text().len() == before.len() + 1);
                }
                typed_at = Some(test.app.now);
            }
            if test.app.focus == Focus::Card && had_focus == Focus::Composer && !is_tab {
                prop_assert!(!had_text && test.app.composer.is_empty(), "it took the focus from a text field");
                let quiet = typed_at.is_none_or(|at: Moment| test.app.now.since(at) >= 400);
                prop_assert!(quiet, "it took the focus too soon");
            }
            // A card has a caret too, where text is typed on it.
            prop_assert!(test.caret.is_some() || test.app.focus == Focus::Card, "the focus is on the screen");
        }
    }
}

/// A new conversation names the last one of the folder below its first lines, until something is said; the one that is
/// open is not named.
#[test]
fn a_new_conversation_names_the_last_one() {
    let mut test = TestApp::new(100, 30);
    let last = |id: &str, title: &str| {
        let last = LastThread { id: id.into(), title: title.into(), state: "stopped".into(), at: 0 };
        Msg::Thread(ThreadMsg::LastHere(last))
    };
    test.app.clock.at_zero = 3 * 3_600_000;
    test.send(last("t0", "fix the \u{1b}parser"));
    let live = test.live();
    assert!(live.starts_with("        “fix the ^[parser”, stopped 3 h ago · aye -c\n"), "{live}");
    assert!(live.contains("Ask for something. /"), "{live}");
    for (id, title) in [("t", "this one"), ("t0", "")] {
        test.send(last(id, title));
        assert!(!test.live().contains("aye -c"), "{}", test.live());
    }
    test.send(last("t0", &"long ".repeat(20)));
    for width in [60, 40, 24] {
        test.send(Msg::Resize(width, 15));
        let row = test.live().lines().next().map(str::to_owned).unwrap_or_default();
        assert!(row.contains("stop") && row.chars().count() <= usize::from(width), "{width}: {row}");
    }
    test.send(last("t0", "fix it"));
    assert!(test.live().contains("stopped"), "{}", test.live());
    test.app.conversation.transcript.page("Status", "x");
    test.draw();
    assert!(!test.live().contains("stopped"), "a page came after the welcome: {}", test.live());
    test.keys("hi<enter>");
    assert!(!test.live().contains("stopped"), "{}", test.live());
    test.finish(TerminationReason::NaturalEnd);
    assert!(!test.live().contains("stopped"), "{}", test.live());
}

/// Esc twice clears what is written; Up brings it back, with its long pastes. One Esc does nothing, and neither rewinds.
#[test]
fn escape_twice_clears_the_text() {
    let mut test = TestApp::new(100, 30);
    test.send(Msg::Paste("line\n".repeat(20)));
    test.keys("and more");
    let written = test.app.composer.whole();
    test.keys("<esc>");
    assert!(test.live().contains("Esc again: clear the text"), "{}", test.live());
    test.wait(2_000);
    test.keys("<esc>");
    assert_eq!(test.app.composer.whole(), written, "too late to be the second");
    test.keys("<esc>");
    assert!(test.app.composer.is_empty() && test.app.overlays.picker.is_none());
    assert!(test.live().contains("cleared; ↑ brings it back"), "{}", test.live());
    test.keys("<up>");
    assert_eq!(test.app.composer.whole(), written);
    test.keys("<esc>x<esc>");
    assert!(!test.app.composer.is_empty(), "another key in between");
}

/// `$` offers skills, and starts one; money and variables stay words.
#[test]
fn a_dollar_starts_a_skill() {
    let mut test = TestApp::new(100, 30);
    test.app.skills = vec![skill_row("review"), skill_row("release")];
    test.keys("$re");
    assert!(test.live().contains("$review") && test.live().contains("$release"), "{}", test.live());
    test.keys("<enter>the diff<enter>");
    let input = last_input(&test);
    assert_eq!((input.skill.as_deref(), input.text.as_str()), (Some("review"), "the diff"));
    for (written, skill, text) in [
        ("$release 1.0", Some("release"), "1.0"),
        ("$HOME is what?", None, "$HOME is what?"),
        ("$5 for it", None, "$5 for it"),
    ] {
        let mut test = TestApp::new(100, 30);
        test.app.skills = vec![skill_row("release")];
        test.keys(&format!("{written}<enter>"));
        let input = last_input(&test);
        assert_eq!((input.skill.as_deref(), input.text.as_str()), (skill, text));
    }
}

fn skill_row(name: &str) -> SkillRow {
    SkillRow { name: name.into(), description: String::new(), origin: String::new() }
}
