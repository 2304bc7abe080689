use serde_json::json;

use super::*;
use crate::contract::suspension::ACTION_PERMISSION;

fn question(action: &str, parameters: Value) -> Question {
    let message = "Bash needs approval".to_owned();
    let (id, action) = ("q".into(), action.to_owned());
    let asked = Suspension { id, action, message, parameters, response_schema: None, expires_at: None };
    Question::of(&asked)
}

#[test]
fn a_question_asks_in_words() {
    let plain = |does: &str| question(ACTION_PERMISSION, json!({ "does": does }));
    let none = json!({});
    for (does, text) in [
        ("opens /etc/shadow, outside this project", "Open /etc/shadow, outside this project?"),
        ("fetches https://example.com", "Fetch https://example.com?"),
        ("changes a note", "Change a note?"),
        ("uses the network", "Use the network?"),
    ] {
        assert_eq!(plain(does).asks("X", &none, &[], false), text);
    }
    let runs = plain("runs a command");
    let command = json!({"command": "make", "run_in_background": true});
    assert_eq!(runs.asks("Bash", &command, &[], false), "Run this command, in the background?");
    let described = json!({"command": "make test", "description": " run the tests. "});
    assert_eq!(runs.asks("Bash", &described, &[], false), "Run the tests?");
    let files = [("src/a.rs".to_owned(), false)];
    assert_eq!(runs.asks("Edit", &none, &files, true), "Edit src/a.rs, outside this project?");
    assert_eq!(runs.asks("Write", &none, &[("b".to_owned(), true)], false), "Create b?");
    let files = [("a".to_owned(), true), ("b".to_owned(), false)];
    assert_eq!(runs.asks("Patch", &none, &files, false), "Change 2 files?");
    let needs = plain("needs approval");
    for (tool, text) in [
        ("mcp__files__write_note", "Allow write_note (files)?"),
        ("agent_run_reviewer", "Allow agent reviewer?"),
        ("render_a2ui", "Allow a form?"),
        ("Memory", "Allow Memory?"),
    ] {
        assert_eq!(needs.asks(tool, &none, &[], false), text);
    }
}

#[test]
fn one_invalid_member_does_not_hide_others() {
    let read = question(
        ACTION_PERMISSION,
        json!({
            "why": "no rule covers this", "rule": 3, "risk": "unheard of", "outside": "yes", "preview": {},
            "proposals": [{"pattern": ""}, 7, {"pattern": "Bash(ls)"}],
            "stale": {"moved": ["git moved", 1], "deltas": [{"diff": "+a"}, {}]},
        }),
    );
    assert_eq!(read.why.as_deref(), Some("no rule covers this"));
    assert_eq!((read.files.len(), read.proposals()[0].pattern.as_str()), (0, "Bash(ls)"));
    assert_eq!((read.stale.moved, read.stale.deltas.len()), (vec!["git moved".to_owned()], 1));
    let QuestionDetails::Approval(request) = read.details else { panic!("{:?}", read.details) };
    assert_eq!((request.rule, request.risk, request.is_outside), (None, None, false));
}

#[test]
fn each_action_has_its_own_details() {
    let choices =
        json!({"question": "Which?", "header": " ", "choices": ["a", {"label": "b"}], "multi": true});
    let read = question(ACTION_ASK_USER, choices);
    let choice = read.choice().expect("a choice");
    let labels: Vec<&str> = choice.choices.iter().map(|choice| choice.label.as_str()).collect();
    assert_eq!((labels, choice.header.as_deref(), choice.is_multi), (vec!["a", "b"], None, true));
    let read = question(ACTION_CHILD_RUN, json!({"agent": "reviewer", "prompt": "look"}));
    let child = ChildRequest { agent: "reviewer".into(), prompt: "look".into(), model: None };
    assert_eq!(read.details, QuestionDetails::Child(child));
    let read = question(ACTION_SURFACE, json!({"surface": 3}));
    assert_eq!(read.details, QuestionDetails::Form(Box::default()));
    assert!(question("plugin:own", json!("no object")).approval().is_some());
}

/// The parameters of each producer, as released versions wrote them. Nothing may change in them: the audit has their hash.
const ROWS: [(&str, &str); 9] = [
    (
        "permission",
        r#"{"tool":"Bash","args":{"command":"make"},"rule":null,"origin":null,"why":"no rule","cwd":"/p","risk":"runs","danger":{"what":["deletes files"],"words":["rm"]},"does":"runs a command","outside":false,"profile":null,"proposals":[{"pattern":"Bash(make)","text":"make"}],"notify":["bell"],"paths":[{"path":"/p/a"}],"domains":true,"grant":{"id":"g","pattern":"Bash(make)","scope":"this project","why":"ended"},"world":{"cwd":"/p"},"original":{"command":"mak"},"preview":[{"path":"/p/a","before":null,"after":"00"}],"correlation_id":"c","stale":{"moved":["git moved"],"deltas":[{"path":"a","diff":"+a"}],"message":"m"}}"#,
    ),
    (
        "hooks",
        r#"{"tool":"Bash","args":{},"origin":"settings.json","why":"the hook `h` asks: ok?","cwd":"/p","proposals":[],"hooks":["h"],"notify":["bell"]}"#,
    ),
    (
        "AskUser",
        r#"{"question":"Which?","header":null,"choices":[{"label":"a","description":"first"},{"label":"b","description":null}],"multi":false,"free_text":false}"#,
    ),
    (
        "run",
        r#"{"question":"Go on?","choices":[{"label":"Yes","description":"d","value":null},{"label":"No","value":false}],"phase":"step_start"}"#,
    ),
    ("unknown", r#"{"output":"o","started_at":null,"found_at":2,"attempt":1,"cwd":"/p"}"#),
    ("child", r#"{"agent":"a","prompt":"p","thread":"t","skill":"s","model":"m"}"#),
    ("skill", r#"{"skill":"s","location":"/s","hash":"00","allowed_tools":["Read"]}"#),
    ("client", r#"{"tool":"paint","arguments":{"colour":"red"}}"#),
    ("plugin", r#"{"own":{"b":1,"a":2}}"#),
];

#[test]
fn rows_keep_their_bytes() {
    for (producer, row) in ROWS {
        let read: QuestionParameters = serde_json::from_str(row).expect("JSON");
        assert_eq!(serde_json::to_string(&read).expect("JSON"), row, "{producer}");
        assert_eq!(read.other.is_empty(), producer != "plugin", "{producer}");
    }
}

#[test]
fn members_that_are_added_go_to_the_end_and_replace_at_their_place() {
    let mut asked = Suspension {
        id: "q".into(),
        action: ACTION_PERMISSION.into(),
        message: String::new(),
        parameters: json!({"why": "no rule", "own": 1, "proposals": [], "cwd": "/p"}),
        response_schema: None,
        expires_at: None,
    };
    let none = QuestionParameters::default;
    asked.add(QuestionParameters { why: Some("a hook".into()), hooks: Some(vec!["h".into()]), ..none() });
    asked.add(QuestionParameters { world: Some(json!({})), ..none() });
    let text = |asked: &Suspension| asked.parameters.to_string();
    assert_eq!(
        text(&asked),
        r#"{"why":"a hook","own":1,"proposals":[],"cwd":"/p","hooks":["h"],"world":{}}"#
    );
    asked.set_notify(Some(json!(["bell"])));
    asked.set_args(json!({"a": 1}));
    // A member that is removed leaves its place to the last one, as in released versions.
    assert_eq!(
        text(&asked),
        r#"{"why":"a hook","own":1,"notify":["bell"],"cwd":"/p","hooks":["h"],"world":{},"args":{"a":1}}"#
    );
    // A tool may write what it wants.
    for (before, after) in [(Value::Null, r#"{"hooks":["h"]}"#), (json!("text"), r#""text""#)] {
        asked.parameters = before;
        asked.add(QuestionParameters { hooks: Some(vec!["h".into()]), ..none() });
        assert_eq!(text(&asked), after);
    }
}

#[test]
fn a_list_names_a_question_in_words() {
    let unknown = ACTION_UNKNOWN_OUTCOME;
    for (action, tool, summary, text) in [
        (ACTION_PERMISSION, "Bash", "make test", "$ make test"),
        (unknown, "Bash", "make test", "outcome unknown: $ make test"),
        (ACTION_PERMISSION, "Write", "notes.txt", "Write notes.txt"),
        (ACTION_PERMISSION, "WebFetch", "https://example.com", "Fetch https://example.com"),
        (ACTION_PERMISSION, "mcp__files__write_note", "a.md", "write_note (files) a.md"),
        (ACTION_PERMISSION, "Memory", "Memory", "Memory"),
        (ACTION_ASK_USER, "AskUser", "Which colour?", "Which colour?"),
        (ACTION_ASK_USER, "mcp__files__write_note", "a.md", "write_note (files) a.md"),
        // A call that is made, not asked about.
        ("", "AskUser", "Which colour?", "Ask: Which colour?"),
        (ACTION_WAIT, "Limit", "Rate limit reached", "Rate limit reached"),
        (ACTION_SURFACE, "render_a2ui", "{\"a\":1}", "a form of the agent"),
    ] {
        assert_eq!(subject(action, tool, summary), text);
    }
}
