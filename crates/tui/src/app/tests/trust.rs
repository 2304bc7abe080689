//! The trust question: a card beside the prompt that blocks nothing.

use serde_json::json;

use super::{Focus, RunState};
use super::{TestApp, opened, record, ticket};
use crate::host::{
    ChangedTools, HostInfo, ProgramCmd, ProgramMsg, ProjectServer, QuestionMsg, Renewal, ThreadCmd,
    ThreadMsg, UntrustedRow,
};
use crate::msg::{Cmd, Msg};
use crate::palette::HostPage;
use aye_core::contract::event::AgentEvent as E;
use aye_core::contract::lifecycle::TerminationReason;
use aye_core::contract::record::DecideOutcome;
use aye_core::contract::suspension::ACTION_PERMISSION;

fn row(path: &str, does: &str) -> UntrustedRow {
    UntrustedRow { path: path.into(), does: does.to_owned(), servers: Vec::new() }
}

/// A conversation in an untrusted folder, with the card on screen for a while.
fn untrusted(height: u16, rows: Vec<UntrustedRow>) -> TestApp {
    let mut test = TestApp::new(80, height);
    test.app.untrusted = rows;
    test.send(Msg::Thread(ThreadMsg::Opened(Ok(Box::new(opened(Vec::new()))))));
    test.wait(1000);
    test.wait(1000);
    test
}

fn one() -> TestApp {
    let hooks = "runs commands automatically (hooks):\n  before_tool make";
    untrusted(30, vec![row("/home/me/proj/.aye/hooks.toml", hooks), row("/home/me/x.json", "a server")])
}

fn asks(test: &TestApp) -> usize {
    test.cmds.iter().filter(|cmd| **cmd == Cmd::Program(ProgramCmd::Trust)).count()
}

#[test]
fn the_trust_card_names_the_files_and_is_answered_by_digits() {
    let test = one();
    for part in [
        "Trust the files of this folder?",
        "These files of ~/proj would grant or run something.",
        ".aye/hooks.toml",
        "    before_tool make",
        "~/x.json",
        "1  Trust this folder",
        "2  Not now",
        "Esc not now",
    ] {
        assert!(test.live().contains(part), "{part}\n{}", test.live());
    }
    assert_eq!((test.app.own_cards(), test.app.focus), (0, Focus::Card), "it is not a stored question");
    for keys in ["1", "<down><enter>"] {
        let mut test = one();
        test.keys(keys);
        assert_eq!(asks(&test), 1, "{keys}");
        assert!(test.live().contains("trusting…"), "{keys}: {}", test.live());
        test.send(Msg::Program(ProgramMsg::Trusted(Err("the disk is full".to_owned()))));
        assert!(test.live().contains("the disk is full"), "{keys}: {}", test.live());
        test.keys("1");
        test.send(Msg::Program(ProgramMsg::Trusted(Ok(()))));
        assert_eq!((asks(&test), test.app.cards.open.len()), (2, 0), "{keys}");
        assert!(test.cmds.contains(&Cmd::Renew), "{keys}");
    }
    for keys in ["2", "<esc>", "<down><down><enter>"] {
        let mut test = one();
        test.keys(keys);
        assert_eq!((asks(&test), test.app.cards.open.len()), (0, 0), "{keys}");
        assert!(test.live().contains("not used in this session"), "{keys}: {}", test.live());
        test.send(Msg::Thread(ThreadMsg::Opened(Ok(Box::new(opened(Vec::new()))))));
        assert!(test.app.cards.open.is_empty(), "{keys}: asked once");
    }
}

/// A server as the project's file names it.
fn server(name: &str, runs: &str, facts: &[&str]) -> ProjectServer {
    let facts = facts.iter().map(|fact| (*fact).to_owned()).collect();
    ProjectServer {
        name: name.to_owned(),
        runs: runs.to_owned(),
        is_program: !runs.starts_with("http"),
        facts,
    }
}

fn of_servers(servers: Vec<ProjectServer>) -> UntrustedRow {
    let path = "/home/me/proj/.mcp.json".into();
    UntrustedRow { path, does: "starts programs or connects to servers (MCP):".to_owned(), servers }
}

#[test]
fn a_projects_server_is_one_card_with_its_whole_command() {
    let tools = "tools: those that it offers when it first starts";
    let long = format!("npx -y files {} 'rm -rf ~'\u{202e} end", "word ".repeat(40));
    let rows = vec![of_servers(vec![server("files", &long, &["with the variables A=1", tools])])];
    let mut test = untrusted(40, rows.clone());
    for part in [
        "Use the MCP server files?",
        "1  Use it",
        "2  Not now",
        "files · .mcp.json",
        "$ npx -y files",
        "A=1",
        tools,
    ] {
        assert!(test.live().contains(part), "{part}\n{}", test.live());
    }
    let words = test.live().split_whitespace().filter(|word| *word == "word").count();
    assert_eq!(words, 40, "no part of the command is left out: {}", test.live());
    let shown = test.live().replace('▌', "").split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(shown.contains("'rm -rf ~'<U+202E> end"), "{}", test.live());
    assert_eq!(asks(&test), 0, "nothing runs before the answer");
    test.keys("1");
    assert_eq!(asks(&test), 1);
    // It is not answered before its end was on the screen.
    let mut test = untrusted(12, rows);
    test.keys("1");
    assert_eq!(asks(&test), 0, "{}", test.live());
    assert!(!test.live().contains("whole screen"), "a key that does nothing here: {}", test.live());
    // Several servers are one question, and other files beside them make it one about the folder.
    let two = of_servers(vec![server("a", "x", &[]), server("b", "https://h/mcp", &[])]);
    let test = untrusted(40, vec![two.clone()]);
    for part in ["Use 2 MCP servers?", "1  Use them", "$ x", "connects to https://h/mcp"] {
        assert!(test.live().contains(part), "{part}\n{}", test.live());
    }
    let test = untrusted(40, vec![two, row("/home/me/proj/.aye/hooks.toml", "runs commands")]);
    for part in ["Trust the files of this folder?", "$ x", "runs commands"] {
        assert!(test.live().contains(part), "{part}\n{}", test.live());
    }
}

/// Tools of a server that changed are one question for the same tools; the answer trusts what was shown.
#[test]
fn changed_tools_are_one_card_for_each_change() {
    let trusts = |test: &TestApp| {
        let words = test.cmds.iter().filter_map(|cmd| match cmd {
            Cmd::Program(ProgramCmd::Page(None, HostPage::Mcp, words)) => Some(words.clone()),
            _ => None,
        });
        words.collect::<Vec<_>>()
    };
    let changed = |text: &str| ChangedTools {
        server: "shed".to_owned(),
        typed: "shed".to_owned(),
        lines: vec!["echo [changed]".to_owned(), format!("  {text}")],
        digest: format!("digest-{}", text.len()),
    };
    let report = |test: &mut TestApp, text: &str| {
        test.send(Msg::Program(ProgramMsg::ToolsChanged(vec![changed(text)])));
        test.wait(2000);
    };
    let mut test = TestApp::new(80, 30);
    report(&mut test, "does something else");
    for part in ["Use the changed tools of shed?", "echo [changed]", "does something else", "1  Use them"] {
        assert!(test.live().contains(part), "{part}\n{}", test.live());
    }
    test.keys("2");
    assert!(!test.live().contains("Use the changed tools"), "{}", test.live());
    report(&mut test, "does something else");
    assert!(!test.live().contains("Use the changed tools"), "asked once: {}", test.live());
    report(&mut test, "does a third thing");
    assert!(trusts(&test).is_empty());
    test.keys("1");
    assert_eq!(trusts(&test), ["agree digest-18 shed"]);
    assert!(!test.live().contains("Use the changed tools"), "{}", test.live());
}

#[test]
fn a_first_message_does_not_answer_the_trust_question() {
    let mut test = one();
    test.keys("<enter>yes, and name it well");
    assert_eq!((asks(&test), test.app.composer.text()), (0, "yes, and name it well"));
    test.start("");
    assert!(matches!(test.app.conversation.run, RunState::Running(_)));
    // During the run it is one row, and ignores both Esc and digits.
    test.wait(1000);
    assert!(test.live().contains("│ Trust the files of this folder? · Tab: answer"), "{}", test.live());
    assert!(!test.live().contains("hooks.toml"), "{}", test.live());
    test.keys("1 of these<esc>");
    assert_eq!((asks(&test), test.app.composer.text()), (0, "1 of these"));
    assert!(
        test.cmds.iter().any(|cmd| matches!(cmd, Cmd::Thread(ThreadCmd::Cancel(_)))),
        "Esc stops the run"
    );
    test.keys("<ctrl-c>");
    test.finish(TerminationReason::Cancelled);
    // A key right after the run's end is meant for the composer.
    assert_eq!(test.app.cards.open.len(), 1);
    test.wait(1000);
    test.keys("1");
    assert_eq!(asks(&test), 1);
}

#[test]
fn questions_of_the_run_come_before_the_trust_question() {
    let mut test = one();
    test.start("go");
    test.ask_bash("a", "git push");
    assert!(test.live().contains("git push"), "{}", test.live());
    assert!(test.live().contains("? 2  Trust the files of this folder?"), "{}", test.live());
    test.keys("y");
    assert_eq!((test.decisions().len(), asks(&test)), (1, 0));
    // Once it is answered, the run has the screen and the keys, whatever arrives first.
    let decided = || {
        let record =
            record(ticket("a", "Bash", json!({"command": "git push"}), ACTION_PERMISSION, json!({})));
        Msg::Question(QuestionMsg::Decided("perm_a".into(), Ok(DecideOutcome::Accepted(record))))
    };
    let starts = || E::RunStart { thread_id: "t".into(), run_id: "r".into(), parent_run_id: None };
    for is_late in [false, true] {
        let mut test = one();
        test.start("go");
        test.ask_bash("a", "git push");
        test.keys("y");
        if is_late {
            test.event(starts());
            test.send(decided());
        } else {
            test.send(decided());
            test.wait(10);
            test.event(starts());
        }
        test.wait(1000);
        assert!(test.live().contains("Tab: answer"), "{is_late}: {}", test.live());
        assert_eq!(test.app.focus, Focus::Composer, "{is_late}");
        test.keys("<tab>");
        test.wait(1000);
        assert!(test.live().contains("1  Trust this folder"), "{is_late}: {}", test.live());
    }
}

#[test]
fn trust_covers_only_what_was_shown_to_its_end() {
    let rows = (0..40).map(|n| row(&format!("/home/me/proj/.aye/skills/s{n}"), "runs scripts")).collect();
    let mut test = untrusted(20, rows);
    test.keys("1");
    assert_eq!(asks(&test), 0);
    let text = "the end of the list was not shown yet; press ↓ for the rest, then 1";
    assert!(test.live().contains(text), "{}", test.live());
    for _ in 0..30 {
        test.keys("<pagedown>");
    }
    assert!(test.live().contains("skills/s39"), "{}", test.live());
    test.keys("1");
    assert_eq!(asks(&test), 1);
}

#[test]
fn trust_given_during_a_run_applies_after_it() {
    let mut test = one();
    test.start("go");
    test.wait(10);
    test.keys("<tab>");
    test.wait(1000);
    test.keys("1");
    test.send(Msg::Program(ProgramMsg::Trusted(Ok(()))));
    assert!(test.screen().contains("its files apply after this run"), "{}", test.screen());
    let renewals = |test: &TestApp| test.cmds.iter().filter(|cmd| **cmd == Cmd::Renew).count();
    assert_eq!(renewals(&test), 0);
    test.keys("half written");
    test.finish(TerminationReason::NaturalEnd);
    assert_eq!(renewals(&test), 1);
    // Something was still closing: it is retried after a while.
    test.send(Msg::Program(ProgramMsg::Renewed(Ok(None))));
    test.wait(10);
    assert_eq!(renewals(&test), 1);
    assert!(test.app.deadline().is_some());
    test.wait(1000);
    assert_eq!(renewals(&test), 2);
    let renewal = Renewal { info: test.app.info.clone(), untrusted: Vec::new() };
    test.send(Msg::Program(ProgramMsg::Renewed(Ok(Some(Box::new(renewal))))));
    assert!(test.screen().contains("this folder is trusted; its files apply"), "{}", test.screen());
    let info = HostInfo { warnings: vec!["a rule is wrong".into()], ..test.app.info.clone() };
    let renewal = Renewal { info, untrusted: vec![row("/home/me/proj/.mcp.json", "starts npx")] };
    test.send(Msg::Program(ProgramMsg::Renewed(Ok(Some(Box::new(renewal))))));
    assert!(test.screen().contains("a rule is wrong"), "{}", test.screen());
    assert!(test.live().contains("starts npx"), "changes in the meantime are asked about: {}", test.live());
    assert!(test.screen().contains("changed meanwhile; it is not trusted"), "{}", test.screen());
    assert_eq!(test.app.composer.text(), "half written");
    test.send(Msg::Program(ProgramMsg::Renewed(Err("config.toml:1: no".to_owned()))));
    assert!(test.screen().contains("config.toml:1: no"), "{}", test.screen());
}

#[test]
fn a_screen_reader_reads_the_trust_question_and_takes_words() {
    let mut test = TestApp::new(80, 24);
    test.app.display.is_linear = true;
    test.app.untrusted = vec![row("/home/me/proj/.mcp.json", "starts npx")];
    test.send(Msg::Thread(ThreadMsg::Opened(Ok(Box::new(opened(Vec::new()))))));
    test.wait(1000);
    let topics = crate::view::linear::topics(&test.app);
    let output: Vec<String> = topics.into_iter().flat_map(|(_, lines)| lines).collect();
    assert!(output.iter().any(|line| line.contains("starts npx")), "{output:?}");
    test.keys("yes<enter>");
    assert_eq!(asks(&test), 1);
}
