//! Every list and every card at three widths, with wide characters, combining marks, emoji and sequences that
//! must not reach a terminal.

use insta::assert_snapshot;
use serde_json::{Value, json};

use super::{TestApp, opened};
use crate::host::{
    GrantRow, MentionRow, ModelMsg, ModelRow, QuestionMsg, RuleRow, SkillRow, ThreadMsg, UntrustedRow,
    WritingMsg,
};
use crate::msg::Msg;
use crate::thread_actions::{PickPurpose, RewindMsg, RewindPoint, RewindPoints};
use aye_core::contract::judgement::Risk;
use aye_core::contract::record::{InboxRow, ThreadMarks, ThreadRecord, ThreadSummary};
use aye_core::contract::surface::ACTION_SURFACE;
use aye_core::contract::suspension::{ACTION_ASK_USER, ACTION_PERMISSION, ACTION_UNKNOWN_OUTCOME};
use aye_core::contract::tool::FilePreview;

/// Wide, combining, joined, right-to-left, and an escape sequence.
pub(super) const ODD: &str =
    "für 漢字 e\u{301} 👩‍👩‍👧 \u{202e}x\u{1b}[31m and a good deal more than fits into forty columns";

fn shown(all: &mut String, name: &str, test: &TestApp) {
    assert!(!test.live().contains(['\u{1b}', '\u{202e}']), "{name}");
    all.extend(["== ", name, "\n", &test.live(), "\n"]);
}

fn thread(id: &str, title: &str) -> ThreadSummary {
    ThreadSummary {
        thread: ThreadRecord {
            id: id.into(),
            title: title.into(),
            cwd: "/home/me/漢字".into(),
            created_at: 1,
            updated_at: 1,
        },
        messages: 4,
        waiting: 1,
        status: None,
        damaged: None,
        marks: ThreadMarks { pinned: true, branch: Some("fix/é".into()), ..ThreadMarks::default() },
    }
}

fn waits() -> InboxRow {
    InboxRow {
        id: "q".into(),
        thread_id: "t2".into(),
        thread_title: ODD.into(),
        cwd: "/home/me/漢字".into(),
        run_id: "r9".into(),
        parent_run_id: None,
        call_id: "c9".into(),
        action: ACTION_PERMISSION.into(),
        tool: "Bash".into(),
        summary: format!("echo {ODD}"),
        why: format!("no rule allows {ODD}"),
        risk: Some(Risk::Runs),
        child: None,
        created_at: 1000,
        expires_at: None,
    }
}

fn lists(width: u16) -> String {
    let mut all = String::new();
    let mut test = TestApp::new(width, 18);
    test.keys("?");
    shown(&mut all, "help", &test);
    test.keys("<end>");
    shown(&mut all, "the end of the help", &test);
    test.keys("<esc>/model<enter>");
    let row = |name: &str, unusable: Option<&str>| ModelRow {
        name: name.into(),
        note: ODD.into(),
        unusable: unusable.map(Into::into),
        ..ModelRow::default()
    };
    test.send(Msg::Model(ModelMsg::Listed(vec![row("m1", None), row("模型-2", Some("no key: set KEY"))])));
    shown(&mut all, "models", &test);
    test.keys("<esc>/skills<enter>");
    let skill = SkillRow { name: "review".into(), description: ODD.into(), origin: "user".into() };
    test.send(Msg::Writing(WritingMsg::Skills(vec![skill])));
    shown(&mut all, "skills", &test);
    test.keys("<esc>/permissions<enter>");
    let rule = RuleRow {
        pattern: "Bash(git push *)".into(),
        behavior: "ask".into(),
        origin: "/home/me/漢字/permissions.yaml".into(),
    };
    test.send(Msg::Question(QuestionMsg::Rules(vec![rule])));
    shown(&mut all, "permissions", &test);
    test.keys("<esc>/grants<enter>");
    let grant = GrantRow {
        id: "g1".into(),
        pattern: format!("Bash(echo {ODD})"),
        scope: "all projects".into(),
        state: "in force".into(),
        holds: true,
        end: "no end".into(),
        uses: "3".into(),
        given: "2026-11-21 10:00 by änn (tui)".into(),
        question: None,
    };
    test.send(Msg::Question(QuestionMsg::Grants(Ok(vec![grant]))));
    shown(&mut all, "grants", &test);
    test.keys("<esc>/mode <enter>");
    shown(&mut all, "modes", &test);
    test.keys("<esc><ctrl-r>");
    test.send(Msg::Writing(WritingMsg::History(Ok(vec![ODD.into(), "second\nline".into()]))));
    shown(&mut all, "history", &test);
    test.keys("<esc><ctrl-t>");
    test.send(Msg::Question(QuestionMsg::Inbox(Ok(vec![waits()]))));
    shown(&mut all, "inbox", &test);
    test.keys("<esc>/threads<enter>");
    test.send(Msg::Thread(ThreadMsg::Listed(Ok(vec![thread("t1", ODD), thread("t2", "")]))));
    shown(&mut all, "conversations", &test);
    test.keys("<right>");
    shown(&mut all, "one of them", &test);
    test.keys("<down><enter>");
    shown(&mut all, "its name", &test);
    test.keys("<esc>/rewind<enter>");
    let point = |keep, text: &str| RewindPoint { keep, is_message: true, text: text.into(), at: 0 };
    let points = RewindPoints { points: vec![point(0, "hello"), point(2, ODD)], undo: Some(ODD.into()) };
    test.send(Msg::Back(Box::new(RewindMsg::Points(PickPurpose::Back, Ok(points)))));
    shown(&mut all, "places to go back to", &test);
    test.keys("<esc>/re");
    shown(&mut all, "commands", &test);
    test.keys("<ctrl-u>see @漢");
    let row = |label: &str, detail: &str| MentionRow { label: label.into(), detail: detail.into() };
    let number = test.app.completion.files_asked;
    test.send(Msg::Writing(WritingMsg::Files(
        number,
        vec![row("src/漢字 e\u{301}.rs", ""), row("thread:t1", ODD)],
    )));
    shown(&mut all, "files", &test);
    all
}

fn cards(width: u16) -> String {
    let mut all = String::new();
    let asked = |name: &str, arguments: Value, action: &str, parameters: Value| {
        let mut test = TestApp::new(width, 24);
        test.start("go");
        test.ask("a", name, arguments, action, parameters);
        test
    };
    let mut test = TestApp::new(width, 24);
    test.start("go");
    test.ask_bash("a", &format!("echo '{ODD}'"));
    shown(&mut all, "a command", &test);
    test.keys("a");
    shown(&mut all, "a rule", &test);
    test.keys("<esc>n");
    shown(&mut all, "no, and why", &test);
    test.keys("<esc>e");
    shown(&mut all, "a command that is edited", &test);
    let preview = FilePreview {
        path: "/home/me/proj/漢字.rs".into(),
        before: Some("h".into()),
        after: "g".into(),
        old_text: Some(format!("one\n{ODD}\nthree\n")),
        new_text: Some(format!("one\n{ODD}, changed\nthree\nfour\n")),
    };
    let parameters = json!({"cwd": "/home/me/proj", "preview": [preview]});
    let arguments = json!({"file_path": "漢字.rs", "content": preview.new_text});
    let mut test = asked("Write", arguments, ACTION_PERMISSION, parameters);
    shown(&mut all, "a file", &test);
    test.keys("h");
    shown(&mut all, "its pieces", &test);
    let test = asked("Bash", json!({"command": ODD}), ACTION_UNKNOWN_OUTCOME, json!({"output": ODD}));
    shown(&mut all, "it is unknown", &test);
    let choices = json!([{"label": "漢字", "description": ODD}, {"label": ODD}]);
    let parameters = json!({"question": ODD, "header": "Wéite", "choices": choices, "free_text": true});
    let mut test = asked("AskUser", json!({"question": ODD}), ACTION_ASK_USER, parameters.clone());
    test.keys("<down>");
    shown(&mut all, "one of several", &test);
    let mut parameters = parameters;
    parameters["multi"] = true.into();
    let mut test = asked("AskUser", json!({"question": ODD}), ACTION_ASK_USER, parameters);
    test.keys("2");
    shown(&mut all, "some of several", &test);
    let mut test = TestApp::new(width, 40);
    test.app.untrusted = vec![UntrustedRow {
        path: "/home/me/proj/漢字.toml".into(),
        does: ODD.to_owned(),
        servers: Vec::new(),
    }];
    test.send(Msg::Thread(ThreadMsg::Opened(Ok(Box::new(opened(Vec::new()))))));
    test.wait(1000);
    test.wait(1000);
    shown(&mut all, "files that are not trusted", &test);
    let mut test = asked("render_a2ui", json!({}), ACTION_SURFACE, json!({"surface": surface()}));
    test.keys("<down>");
    shown(&mut all, "a form", &test);
    test.keys("<enter>漢");
    shown(&mut all, "a form that is filled in", &test);
    all
}

pub(super) fn surface() -> Value {
    json!({
        "id": "s", "root": "root", "data": {"mail": "a@漢字", "ok": false},
        "components": {
            "root": {"kind": "Card", "props": {"child": "all"}},
            "all": {"kind": "Column", "props": {"children": ["title", "two", "table", "ok", "line", "go"]}},
            "title": {"kind": "Text", "props": {"text": "New order 注文 👍", "usageHint": "h1"}},
            "two": {"kind": "Row", "props": {"children": ["name", "mail", "pin"]}},
            "name": {"kind": "TextField", "props": {"label": "Näme"}},
            "mail": {"kind": "TextField", "props": {"label": "Mail\u{202e}", "value": {"path": "/mail"}}},
            "pin": {"kind": "TextField", "props": {"label": "Pin", "textFieldType": "obscured"}},
            "table": {"kind": "Table", "props": {"columns": ["what", "how many"], "rows": [["tea", 2], ["🍎", 10]]}},
            "ok": {"kind": "CheckBox", "props": {"label": "agreed", "value": {"path": "/ok"}}},
            "line": {"kind": "Divider", "props": {}},
            "go": {"kind": "Button", "props": {"label": "Send", "action": {"name": "send"}}},
        },
    })
}

#[test]
fn every_list_at_three_widths() {
    for width in [40, 80, 140] {
        assert_snapshot!(format!("lists_{width}"), lists(width));
    }
}

#[test]
fn every_card_at_three_widths() {
    for width in [40, 80, 140] {
        assert_snapshot!(format!("cards_{width}"), cards(width));
    }
}
