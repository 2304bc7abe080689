//! Themes, key sequences, help, the status line, and terminal output.

use serde_json::json;

use super::TestApp;
use crate::host::{
    Choice, ModelCmd, ModelMsg, ModelRow, ProgramCmd, ProgramMsg, Secret, StartChoice, ThreadCmd,
};
use crate::keymap::Keymap;
use crate::msg::{Cmd, Msg};
use crate::theme::{Background, Depth, Theme, ThemeChoice, ThemeRow};
use aye_core::contract::lifecycle::TerminationReason;

fn themes() -> Vec<ThemeRow> {
    let row = |name: &str| ThemeRow {
        name: name.into(),
        detail: String::new(),
        theme: ThemeChoice::find(name, Depth::True, crate::theme::tests::from_folder)
            .map_err(|e| e.to_string())
            .map(|t| t.expect("is known")),
    };
    let broken =
        ThemeRow { name: "mine".into(), detail: "yours".into(), theme: Err("mine.toml:2: no".into()) };
    vec![row("auto"), row("default"), row("nord"), row("solarized"), broken]
}

/// With the theme that the settings start with.
fn with_default_theme(width: u16, height: u16) -> TestApp {
    let mut test = TestApp::new(width, height);
    test.app.display.colours.theme = ThemeChoice::fixed(Theme::builtin("default").expect("is known"));
    test
}

#[test]
fn a_theme_is_previewed_while_selected_and_kept_by_enter() {
    let mut test = with_default_theme(80, 24);
    test.keys("/theme<enter>");
    assert!(
        test.cmds.contains(&Cmd::Program(ProgramCmd::Themes(None)))
            && test.cmds.contains(&Cmd::AskBackground)
    );
    test.send(Msg::Program(ProgramMsg::Themes(themes(), None)));
    assert_eq!(test.app.theme().name(), "default", "the one in use is selected");
    test.keys("<down>");
    assert_eq!(test.app.theme().name(), "nord");
    test.keys("<esc>");
    assert_eq!(test.app.theme().name(), "default", "Esc restores the old one");
    assert!(!test.cmds.iter().any(|cmd| matches!(cmd, Cmd::Program(ProgramCmd::Keep(..)))));

    test.keys("/theme<enter>");
    test.send(Msg::Program(ProgramMsg::Themes(themes(), None)));
    test.keys("sol");
    assert_eq!(test.app.theme().name(), "solarized-dark");
    test.send(Msg::Background(Background::Light));
    assert_eq!(test.app.theme().name(), "solarized-light");
    test.keys("<enter>");
    assert_eq!(test.app.theme().name(), "solarized-light");
    assert!(test.cmds.contains(&Cmd::Program(ProgramCmd::Keep(Choice::Theme, "solarized".into()))));
}

#[test]
fn a_theme_can_be_named_and_a_broken_one_is_reported() {
    let mut test = TestApp::new(80, 24);
    test.keys("/theme nord<enter>");
    test.send(Msg::Program(ProgramMsg::Themes(themes(), Some("nord".into()))));
    assert!(
        test.cmds.contains(&Cmd::Program(ProgramCmd::Keep(Choice::Theme, "nord".into())))
            && test.app.theme().name() == "nord"
    );
    test.send(Msg::Program(ProgramMsg::Themes(themes(), Some("mine".into()))));
    assert!(test.screen().contains("mine.toml:2: no") && test.app.theme().name() == "nord");
    test.send(Msg::Program(ProgramMsg::Themes(themes(), Some("nix".into()))));
    assert!(test.screen().contains("unknown theme nix"), "{}", test.screen());
}

#[test]
fn a_late_terminal_reply_changes_nothing() {
    let mut test = TestApp::new(80, 24);
    test.send(Msg::Background(Background::Light));
    assert_eq!(test.app.display.colours.background, None, "nobody asked");
    test.app.display.colours.theme = ThemeChoice::find("auto", Depth::True, crate::theme::tests::from_folder)
        .expect("valid")
        .expect("is known");
    test.app.display.is_shown = false;
    let cmds = test.app.update(test.app.now, Msg::Drawn);
    assert_eq!(cmds, [Cmd::AskBackground], "with the first frame");
    assert_eq!(test.app.update(test.app.now, Msg::Drawn), [], "and with no other");
    test.wait(5000);
    test.send(Msg::Background(Background::Light));
    assert_eq!(test.app.theme().name(), "default");
}

#[test]
fn a_key_sequence_is_shown_and_cancelled_without_a_clock() {
    let mut test = TestApp::new(100, 24);
    test.keys("hi<ctrl-x>");
    assert!(
        test.live().contains(
            "Ctrl-X …  Ctrl-E: edit the text in your editor · Ctrl-B: move command to background · Esc: cancel"
        ),
        "{}",
        test.live()
    );
    test.wait(60_000);
    assert!(test.live().contains("Ctrl-X …"), "it waits without a limit");
    test.keys("<esc>");
    assert!(!test.live().contains("Ctrl-X") && test.live().contains("❯ hi"), "{}", test.live());
    test.keys("<ctrl-x>q");
    assert!(test.live().contains("Ctrl-X q does nothing here") && test.live().contains("❯ hi"));
    test.keys("<ctrl-x><ctrl-e>");
    assert!(test.cmds.contains(&Cmd::Compose("hi".into())));
    // A paste ends the sequence and is not lost.
    test.keys("<ctrl-x>");
    test.send(Msg::Paste(" all".into()));
    assert!(test.live().contains("❯ hi all") && test.app.begun.is_empty());
}

#[test]
fn a_running_command_is_moved_to_the_background() {
    let mut test = TestApp::new(100, 24);
    let moved = |test: &TestApp| {
        test.cmds.iter().filter(|cmd| matches!(cmd, Cmd::Thread(ThreadCmd::ToBackground(_)))).count()
    };
    test.keys("<ctrl-b>");
    assert!(moved(&test) == 0 && test.live().contains("no command is running"), "{}", test.live());
    test.start("go");
    test.call("a", "Read", json!({"file_path": "a.txt"}));
    test.keys("<ctrl-b><ctrl-x><ctrl-b>");
    assert_eq!(moved(&test), 0, "nothing else is moved");
    test.call("b", "Bash", json!({"command": "sleep 100"}));
    test.keys("<ctrl-b>");
    assert_eq!(test.cmds.last(), Some(&Cmd::Thread(ThreadCmd::ToBackground("t".into()))));
    // In the composer the key moves the caret; the sequence moves the command to the background.
    test.keys("ab<ctrl-b>");
    assert_eq!((moved(&test), test.app.composer.caret()), (1, 1));
    test.keys("<ctrl-x><ctrl-b>");
    assert_eq!((moved(&test), test.app.composer.text()), (2, "ab"));
}

#[test]
fn the_cursor_is_shown_only_for_an_input_method() {
    let mut test = TestApp::new(80, 24);
    test.keys("ab");
    assert!(!test.app.parks_caret(), "no frame is drawn unprompted");
    test.start("go");
    assert!(test.app.parks_caret(), "text typed without one does not matter");
    test.keys("ab");
    assert!(test.app.parks_caret());
    test.keys("漢");
    assert!(!test.app.parks_caret(), "it shows its candidates at the cursor");
    test.wait(20_000);
    assert!(test.app.parks_caret(), "typing has ended");
}

#[test]
fn a_started_key_sequence_keeps_a_question_from_the_keys() {
    let mut test = TestApp::new(80, 24);
    test.start("go");
    test.app.keymap = Keymap::with_file("k", "[composer]\n\"ctrl-x y\" = \"undo\"\n").expect("valid");
    test.keys("<ctrl-x>");
    test.ask_bash("c", "git push");
    test.wait(10_000);
    test.keys("y");
    assert!(test.decisions().is_empty(), "the y belongs to the sequence");
}

#[test]
fn help_starts_with_the_keys_that_work_now() {
    let mut test = TestApp::new(80, 30);
    test.keys("?");
    insta::assert_snapshot!("help_on_an_empty_composer", test.live());
    test.keys("<esc>a?");
    assert!(test.live().contains("❯ a?"), "in a text field it is a character");
    test.start("go");
    test.ask_bash("c", "git push");
    test.send(Msg::Key(crossterm::event::KeyEvent::from(crossterm::event::KeyCode::F(1))));
    assert!(test.live().contains("Question card (now)"), "{}", test.live());
}

#[test]
fn a_screen_reader_gets_text_and_answers_with_words() {
    use crate::terminal::Linear;
    use crate::view::linear;
    let mut test = TestApp::new(80, 24);
    test.app.display.is_linear = true;
    test.start("go");
    test.ask_bash("c", "git push origin main");
    assert_eq!(test.app.focus, super::Focus::Composer, "a question does not take the focus by itself");
    let output: Vec<String> = linear::topics(&test.app).into_iter().flat_map(|(_, lines)| lines).collect();
    insta::assert_snapshot!("screen_reader_output", output.join("\n"));
    assert!(
        !output.iter().any(|line| line.chars().any(|c| ('\u{2500}'..='\u{257f}').contains(&c))),
        "{output:?}"
    );
    let mut reader = Linear::default();
    let first = reader.frame(&[], linear::topics(&test.app), &linear::prompt(&test.app));
    assert!(!first.contains(&0x1b), "no sequences at all");
    test.keys("what?");
    assert_eq!(linear::prompt(&test.app), "> what?");
    test.keys("<ctrl-u>yes<enter>");
    assert_eq!(test.decisions().len(), 1, "{:?}", test.cmds);
}

#[test]
fn a_screen_reader_reads_a_form_once_and_then_only_the_position() {
    use crate::terminal::Linear;
    use crate::view::linear;
    use aye_core::contract::surface::ACTION_SURFACE;
    let mut test = TestApp::new(80, 24);
    test.app.display.is_linear = true;
    test.start("go");
    let surface = super::widths::surface();
    test.ask("a", "render_a2ui", json!({}), ACTION_SURFACE, json!({"surface": surface}));
    let mut reader = Linear::default();
    let mut all = String::new();
    let mut heard = |test: &mut TestApp, keys: &str| {
        for key in keys.split_inclusive('>') {
            test.keys(key);
            let bytes = reader.frame(&[], linear::topics(&test.app), &linear::prompt(&test.app));
            all.push_str(&String::from_utf8(bytes).expect("is text"));
        }
    };
    heard(&mut test, "");
    heard(&mut test, "<tab>");
    test.wait(1000);
    heard(&mut test, "<down><enter>A<left>d<right>");
    heard(&mut test, "a");
    heard(&mut test, "<enter><down><enter>1<enter><enter><down>");
    insta::assert_snapshot!("form_for_a_screen_reader", all.replace('\r', ""));
    assert_eq!(all.matches("New order").count(), 1, "nothing is repeated");
    assert!(!all.contains('\u{1b}') && !all.contains('\u{202e}'), "{all:?}");
}

#[test]
fn the_first_start_names_the_model_and_keys_go_to_the_composer() {
    let mut test = TestApp::new(80, 24);
    test.app.welcome();
    test.keys("hello");
    assert!(test.app.overlays.picker.is_none() && test.app.composer.text() == "hello");
    let words = |test: &TestApp| test.screen().split_whitespace().collect::<Vec<_>>().join(" ");
    let shown = words(&test);
    assert!(shown.contains("I am the demo model") && shown.contains("type /login"), "{shown}");
    for width in [40, 140] {
        let mut test = TestApp::new(width, 24);
        test.app.info.is_demo = false;
        test.app.info.provider = "anthropic".into();
        test.app.info.model = "claude-sonnet-5".into();
        test.app.info.model_why = "ANTHROPIC_API_KEY is set".into();
        test.app.welcome();
        test.draw();
        let shown = words(&test);
        assert!(
            shown.contains(
                "Using anthropic/claude-sonnet-5 (ANTHROPIC_API_KEY is set). /model lists the others"
            ),
            "{shown}"
        );
    }
}

/// A start without a key: with a model that a server on this machine offers, or with none.
fn unkeyed(with_server: bool) -> TestApp {
    let mut test = TestApp::new(80, 24);
    let found =
        StartChoice::Use { provider: "ollama".into(), model: "qwen3".into(), name: "ollama/qwen3".into() };
    let found = with_server.then_some(found);
    test.app.info.is_demo = !with_server;
    test.app.info.start = [StartChoice::LogIn].into_iter().chain(found).chain([StartChoice::Demo]).collect();
    test
}

#[test]
fn a_digit_on_its_own_says_how_to_begin() {
    let wait = crate::approval::QUIET_MS;
    let chosen = |with_server: bool, keys: &str| {
        let mut test = unkeyed(with_server);
        test.keys(keys);
        test.wait(wait);
        let models: Vec<Cmd> = test.cmds.iter().filter(|cmd| matches!(cmd, Cmd::Model(_))).cloned().collect();
        assert!(test.app.composer.is_empty(), "{keys}");
        (models, test)
    };
    assert_eq!(chosen(true, "1").0, [Cmd::Model(ModelCmd::Logins)]);
    assert_eq!(chosen(true, "2").0, [Cmd::Model(ModelCmd::Set("ollama/qwen3".into()))]);
    assert_eq!(chosen(true, "3<enter>").0, [Cmd::Model(ModelCmd::Try("demo".into()))]);
    let (cmds, test) = chosen(false, "2");
    assert!(cmds.is_empty() && test.live().contains("the demo model answers"), "{}", test.live());
}

#[test]
fn the_ways_to_begin_stand_in_the_way_of_no_message() {
    let wait = crate::approval::QUIET_MS;
    let asks = |test: &TestApp| test.cmds.iter().any(|cmd| matches!(cmd, Cmd::Model(_)));
    for text in ["2 files are broken", "fix 2", "22", "4", "0"] {
        let mut test = unkeyed(true);
        test.keys(text);
        test.wait(wait);
        test.wait(wait);
        assert_eq!((test.app.composer.text(), asks(&test)), (text, false));
    }
    // A digit that is left over is not one that was written on its own.
    let mut test = unkeyed(true);
    test.keys("12<backspace>");
    test.wait(wait);
    assert_eq!((test.app.composer.text(), asks(&test)), ("1", false));
    // Nor is one of a later message, or where a model was chosen.
    let mut test = unkeyed(true);
    test.start("hello");
    test.finish(TerminationReason::NaturalEnd);
    test.keys("2");
    test.wait(wait);
    assert_eq!((test.app.composer.text(), asks(&test)), ("2", false));
    let mut test = TestApp::new(80, 24);
    test.keys("2");
    test.wait(wait);
    assert_eq!((test.app.composer.text(), asks(&test)), ("2", false));
}

#[test]
fn models_without_a_key_are_listed_last_and_ask_for_it() {
    let mut test = TestApp::new(80, 24);
    let row = |name: &str| ModelRow { name: name.into(), note: "listed".into(), ..ModelRow::default() };
    let locked = |name: &str, provider: &str| ModelRow {
        unusable: Some(format!("set KEY or run `aye login {provider}`")),
        login: Some(provider.to_owned()),
        ..row(name)
    };
    let rows = vec![
        ModelRow { is_current: true, ..row("box/b") },
        row("box/a"),
        row("demo"),
        locked("anthropic/claude", "anthropic"),
        locked("openai/gpt", "openai"),
    ];
    test.keys("/model<enter>");
    test.send(Msg::Model(ModelMsg::Listed(rows.clone())));
    insta::assert_snapshot!("models_grouped_by_key", test.live());
    test.keys("<down>");
    test.send(Msg::Model(ModelMsg::Listed(rows.clone())));
    test.keys("<enter>");
    assert!(
        test.cmds.contains(&Cmd::Model(ModelCmd::Set("box/a".into()))),
        "the choice stays when servers answer"
    );
    test.send(Msg::Model(ModelMsg::Listed(rows.clone())));
    assert!(test.app.overlays.picker.is_none(), "a closed list stays closed");
    test.keys("/model<enter>");
    test.send(Msg::Model(ModelMsg::Listed(rows)));
    // Three rows down is the heading: the cursor is on the first model below it.
    test.keys("<down><down><down><enter>");
    test.send(Msg::Paste("sk-canary\n".into()));
    let shown = test.live();
    assert!(shown.contains("Key:") && shown.contains("anthropic") && !shown.contains("canary"), "{shown}");
    insta::assert_snapshot!("key_prompt", shown);
    test.cmds.clear();
    test.keys("<enter>");
    assert!(test.cmds.contains(&Cmd::Model(ModelCmd::LogIn("anthropic".into(), Secret("sk-canary".into())))));
    assert!(!format!("{:?}", test.cmds).contains("canary"), "nor is it in the log");
    test.keys("/login openai sk-typed<enter>");
    assert!(test.app.overlays.picker.as_ref().is_some_and(|picker| picker.filter().is_empty()));
    test.keys("<esc>/logout<enter>");
    assert!(test.cmds.contains(&Cmd::Model(ModelCmd::LogOut(None))));
}

#[test]
fn the_effort_is_chosen_like_a_model_and_shown_beside_it() {
    use aye_core::contract::inference::ReasoningEffort;
    let mut test = TestApp::new(80, 24);
    test.keys("/effort high<enter>");
    assert!(test.cmds.contains(&Cmd::Model(ModelCmd::SetEffort(Some(ReasoningEffort::High)))));
    test.app.info.is_demo = false;
    test.app.info.effort = Some(ReasoningEffort::High);
    test.app.info.effort_in_force = Some(ReasoningEffort::High);
    test.draw();
    assert!(test.live().contains("m1 · effort high"), "{}", test.live());
    test.keys("/effort<enter>");
    assert!(test.live().contains("in use"), "{}", test.live());
    test.keys("<enter>");
    assert!(
        test.cmds.contains(&Cmd::Model(ModelCmd::SetEffort(None))),
        "the first row leaves it to the model"
    );
    test.keys("/effort huge<enter>");
    assert!(test.live().contains("unknown effort huge"), "{}", test.live());
}

#[test]
fn theme_lists_at_three_widths() {
    for width in [40, 80, 140] {
        let mut test = with_default_theme(width, 16);
        test.keys("/theme<enter>");
        let mut rows = themes();
        rows[3].detail = "für 宽的 terminals, 👩‍👩‍👧 and e\u{301}\u{202e}x".into();
        test.send(Msg::Program(ProgramMsg::Themes(rows, None)));
        test.keys("<down><down>");
        insta::assert_snapshot!(format!("themes_{width}"), test.live());
    }
}
