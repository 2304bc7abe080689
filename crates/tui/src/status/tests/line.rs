//! The configured status line, the command that writes it, and output outside the text.

use std::fmt::Write as _;

use crate::app::tests::TestApp;
use crate::host::{ModelPrices, Price, ProgramCmd, ProgramMsg};
use crate::msg::{Cmd, Msg};
use crate::status::{Segment, StatusCommand, TitleProgress, chrome};
use aye_core::contract::event::AgentEvent as E;
use aye_core::contract::inference::TokenUsage;
use aye_core::contract::lifecycle::TerminationReason;

fn status(test: &TestApp) -> String {
    test.live().lines().last().unwrap_or_default().to_owned()
}

fn done(test: &mut TestApp) {
    let usage = TokenUsage {
        prompt_tokens: Some(12_345),
        completion_tokens: Some(678),
        total_tokens: Some(310),
        ..TokenUsage::default()
    };
    test.event(E::InferenceComplete {
        model: "m1".into(),
        usage: Some(usage),
        duration_ms: 4,
        stop_reason: None,
    });
    test.event(E::StepEnd);
    test.finish(TerminationReason::NaturalEnd);
}

#[test]
fn a_user_configures_the_line() {
    let mut lines = String::new();
    for width in [40, 80, 140] {
        let mut test = TestApp::new(width, 24);
        test.app.display.segments = Some(Segment::ALL.to_vec());
        test.app.info.branch = Some("fix/ümläut-🦀-branch\u{202e}evil".into());
        test.app.info.agent = Some("reviewer".into());
        test.app.conversation.tasks = 2;
        test.start("go");
        test.wait(1500);
        let _ = writeln!(lines, "{}", status(&test));
        done(&mut test);
        let _ = writeln!(lines, "{}", status(&test));
    }
    insta::assert_snapshot!(lines);
    let mut test = TestApp::new(80, 24);
    test.app.display.segments = Some(Vec::new());
    test.wait(1);
    assert!(test.live().ends_with('\n'), "none: {}", test.live());
}

/// Each answer at the price of the model that gave it, whichever is chosen now.
#[test]
fn answers_cost_what_their_model_costs() {
    let price = Price { input: 1000.0, ..Price::default() };
    let mut test = TestApp::new(80, 24);
    test.app.display.segments = Some(vec![Segment::Cost]);
    test.app.info.prices = ModelPrices::new(move |id| (id == "big/m2").then_some(price));
    test.start("go");
    done(&mut test);
    assert!(!status(&test).contains('$'), "m1 has no price: {}", status(&test));
    test.start("go");
    let usage = TokenUsage { prompt_tokens: Some(2000), ..TokenUsage::default() };
    test.event(E::InferenceComplete {
        model: "big/m2".into(),
        usage: Some(usage),
        duration_ms: 4,
        stop_reason: None,
    });
    test.finish(TerminationReason::NaturalEnd);
    assert!(status(&test).contains("$2.00"), "only what m2 answered: {}", status(&test));
}

fn sent_inputs(test: &TestApp) -> Vec<&String> {
    let inputs = test.cmds.iter().filter_map(|cmd| match cmd {
        Cmd::Program(ProgramCmd::StatusLine(json)) => Some(json),
        _ => None,
    });
    inputs.collect()
}

#[test]
fn a_command_is_passed_changes_and_sleeps_while_idle() {
    let mut test = TestApp::new(80, 24);
    test.app.display.feed = StatusCommand::on();
    test.wait(10);
    assert_eq!(sent_inputs(&test).len(), 1);
    assert!(sent_inputs(&test)[0].contains("\"state\":\"idle\""), "{}", sent_inputs(&test)[0]);
    test.send(Msg::Program(ProgramMsg::StatusLine(Ok("my \u{1b}[31mline".into()))));
    assert!(status(&test).contains("my ") && !status(&test).contains('\u{1b}'), "{}", status(&test));
    test.wait(60_000);
    assert_eq!((sent_inputs(&test).len(), test.app.deadline()), (1, None), "nothing changed: no wake-up");

    // Several changes are reported once; a running command is not started again.
    test.cmds.clear();
    test.start("go");
    for _ in 0..50 {
        test.event(E::TextDelta { delta: "x".into() });
    }
    assert!(sent_inputs(&test).is_empty(), "it waits for what comes with it");
    test.wait(2000);
    assert_eq!(sent_inputs(&test).len(), 1);
    done(&mut test);
    test.wait(5000);
    assert_eq!(sent_inputs(&test).len(), 1, "the first is still running");
    test.send(Msg::Program(ProgramMsg::StatusLine(Ok("two".into()))));
    test.wait(5000);
    assert_eq!(sent_inputs(&test).len(), 2);
    test.send(Msg::Program(ProgramMsg::StatusLine(Err("exit status 1".into()))));
    assert!(test.screen().contains("exit status 1; showing the built-in line"), "{}", test.screen());
    assert!(status(&test).contains("demo"), "{}", status(&test));
    test.keys("hello");
    test.wait(60_000);
    assert_eq!(sent_inputs(&test).len(), 2, "failed items are left alone");
}

#[test]
fn calm_mode_has_no_spinner_and_redraws_once_a_second() {
    let mut test = TestApp::new(80, 24);
    test.app.display.is_calm = true;
    test.start("go");
    test.wait(2600);
    assert!(status(&test).contains("waiting for the model 2 s"), "{}", status(&test));
    assert!(!status(&test).contains(['⠋', '⠙', '⠸', '⠴', '⠦', '⠇', '⠏', '⠟']), "{}", status(&test));
    let next = test.app.deadline().expect("has a deadline");
    assert!(next.since(test.app.now) > 125, "at most once a second");
}

#[test]
fn the_window_title_shows_current_activity() {
    let mut test = TestApp::new(80, 24);
    assert_eq!(
        (chrome(&test.app).title.as_str(), chrome(&test.app).progress),
        ("proj · aye", TitleProgress::None)
    );
    test.start("go");
    let title = |test: &TestApp| chrome(&test.app).title;
    assert_eq!((title(&test).as_str(), chrome(&test.app).progress), ("… proj · aye", TitleProgress::Working));
    test.ask_bash("c", "git push");
    assert_eq!((title(&test).as_str(), chrome(&test.app).progress), ("? proj · aye", TitleProgress::Waiting));
    if let Some(thread) = &mut test.app.conversation.thread {
        thread.title = "a\u{1b}]0;evil\u{7}\nb".repeat(60);
    }
    let title = title(&test);
    assert!(title.chars().count() <= 120 && !title.contains(['\u{1b}', '\u{7}', '\n']), "{title:?}");
}

#[test]
fn a_missing_sandbox_layer_is_named() {
    let mut test = TestApp::new(100, 10);
    assert!(!status(&test).contains("bwrap"));
    test.send(Msg::Program(ProgramMsg::Unsandboxed("no bwrap".into())));
    assert!(status(&test).contains("ask · no bwrap"), "{}", status(&test));
    test.app.info.mode = crate::host::Mode::Yolo;
    test.draw();
    assert!(!status(&test).contains("bwrap"), "nothing is sandboxed there anyway");
}
