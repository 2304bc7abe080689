//! Surfaces described by the model, in the real program: viewed, filled in, answered from elsewhere.

use serde_json::{Value, json};

use crate::support::home::Home;
use crate::support::llm::{Answer, Chat, MockLlm};
use crate::support::pty::Pty;

fn form() -> Value {
    let text = |id: &str, text: &str| json!({"id": id, "component": "Text", "text": text});
    json!({"messages": [
        {"version": "v0.8", "createSurface": {"surfaceId": "order"}},
        {"version": "v0.8", "updateComponents": {"surfaceId": "order", "components": [
            {"id": "root", "component": "Column", "children": ["title", "name", "ok", "go"]},
            text("title", "New order"),
            {"id": "name", "component": "TextField", "label": "Name", "value": {"path": "/name"}},
            {"id": "ok", "component": "CheckBox", "label": "Receipt", "value": {"path": "/receipt"}},
            {"id": "go", "component": "Button", "label": "Order", "action": {"event": {"name": "order"}}},
        ]}},
        {"version": "v0.8", "updateDataModel": {"surfaceId": "order", "path": "/", "value": {"receipt": true}}},
    ]})
}

fn draws(arguments: Value) -> MockLlm {
    MockLlm::by(move |chat: &Chat| match chat.results().len() {
        0 => Answer::new().call("c1", "render_a2ui", arguments.clone()),
        _ => Answer::say("End."),
    })
}

#[test]
fn a_form_is_filled_in_on_its_card() {
    let llm = draws(form());
    let home = Home::with(&llm);
    let mut tty = Pty::start(&home, &[], 90, 30);
    tty.ready();
    tty.say("order something");
    tty.card("[x] Receipt");
    // A field, its text, a checkbox, the button.
    tty.send("\x1b[B\r");
    tty.send("Ada\r");
    tty.shows("Name: Ada");
    tty.send(" \x1b[B\r");
    tty.shows("End.");
    let result: Value = serde_json::from_str(&llm.last().result("c1")).expect("an answer");
    assert_eq!(result["userAction"]["name"], "order");
    assert_eq!(result["dataModel"], json!({"receipt": false, "name": "Ada"}));
    tty.quit();
}

#[test]
fn a_screen_reader_reads_a_form_and_fills_it_in() {
    let llm = draws(form());
    let home = Home::with(&llm);
    let mut tty = Pty::start(&home, &["--screen-reader"], 80, 40);
    tty.shows("> ");
    tty.send("order something\r");
    for line in [
        "New order",
        "Name, text, empty, 1 of 3",
        "Receipt, checkbox, ticked, 2 of 3",
        "Order, button, 3 of 3",
        "Tab selects the question",
    ] {
        tty.shows(line);
    }
    tty.send("\t");
    tty.shows("question>");
    tty.card_takes_keys();
    tty.send("\x1b[B");
    tty.shows("At Name, text, empty, 1 of 3");
    tty.send("\r");
    tty.shows("Name: ");
    tty.send("Ada 漢\r");
    // The position of the keys and their effect are announced.
    tty.shows("At Receipt, checkbox, ticked, 2 of 3");
    tty.send(" ");
    tty.shows("At Receipt, checkbox, not ticked, 2 of 3");
    tty.send("\x1b[A");
    tty.shows("At Name, text, Ada 漢, 1 of 3");
    tty.send("\x1b[B\x1b[B");
    tty.shows("At Order, button, 3 of 3");
    tty.send("\r");
    tty.shows("End.");
    let result: Value = serde_json::from_str(&llm.last().result("c1")).expect("an answer");
    assert_eq!(result["userAction"]["name"], "order");
    assert_eq!(result["dataModel"], json!({"receipt": false, "name": "Ada 漢"}));
    let raw = String::from_utf8_lossy(&tty.raw()).into_owned();
    for line in ["New order", "Question 1 of 1."] {
        assert_eq!(raw.matches(line).count(), 1, "{line}: {raw}");
    }
    let drawn = |c: char| ('\u{2500}'..='\u{257f}').contains(&c) || ('\u{2800}'..='\u{28ff}').contains(&c);
    assert!(!raw.contains(drawn) && !raw.contains('▸'), "{raw:?}");
    for moves in ["\x1b[J", "\x1b[A", "\x1b[K", "\x1b[2K"] {
        assert!(!raw.contains(moves), "{moves:?} in {raw:?}");
    }
    tty.quit();
    tty.is_restored();
}

#[test]
fn on_a_small_screen_the_rows_follow_the_arrows() {
    let mut arguments = form();
    let rows: Vec<Value> = (0..20).map(|n| json!([n, n * n])).collect();
    let components = arguments.pointer_mut("/messages/1/updateComponents/components").expect("components");
    components[0]["children"] = json!(["title", "table", "name", "ok", "go"]);
    let table = json!({"id": "table", "component": "Table", "columns": ["n", "square"], "rows": rows});
    components.as_array_mut().expect("a list").push(table);
    let llm = draws(arguments);
    let home = Home::with(&llm);
    let mut tty = Pty::start(&home, &[], 60, 15);
    tty.ready();
    tty.say("order something");
    tty.card("New order");
    tty.send("\x1b[A");
    tty.shows("▸ skip this question");
    tty.send("\x1b[A");
    tty.shows("▸ [ Order ]");
    tty.send("\r");
    tty.shows("End.");
    tty.quit();
}

#[test]
fn a_form_is_accepted_as_it_stands_and_its_command_has_its_values() {
    let llm = draws(form());
    let home = Home::with(&llm);
    let tty = Pty::start(&home, &[], 60, 15);
    tty.ready();
    tty.say("order something");
    tty.shows("The agent asks you to fill in a form");
    tty.kill();
    let id = home.question();
    let said = home.aye(&["answer", &id]).run().exits(2).stderr;
    let command = format!(
        "aye answer {id} '{{\"userAction\":{{\"name\":\"order\",\"surfaceId\":\"order\"}},\"dataModel\":{{\"receipt\":true}}}}'"
    );
    assert!(said.contains(&command), "{said}");
    home.ok(&["approve", &id, "--resume"]).prints("End.");
    let result: Value = serde_json::from_str(&llm.last().result("c1")).expect("an answer");
    assert_eq!(
        (&result["userAction"]["name"], &result["dataModel"]),
        (&json!("order"), &json!({"receipt": true}))
    );
}

#[test]
fn a_form_outlives_its_terminal_and_is_answered_from_elsewhere() {
    let llm = draws(form());
    let home = Home::with(&llm);
    let tty = Pty::start(&home, &[], 60, 15);
    tty.ready();
    tty.say("order something");
    tty.shows("The agent asks you to fill in a form");
    tty.kill();
    let id = home.question();
    let wrong = json!({"userAction": {"name": "order", "surfaceId": "another"}}).to_string();
    home.aye(&["answer", &id, &wrong]).run().exits(2);
    let answer = json!({"userAction": {"name": "order", "surfaceId": "order"}, "dataModel": {"name": "Bo"}});
    home.ok(&["answer", &id, &answer.to_string(), "--resume"]).prints("End.");
    let result: Value = serde_json::from_str(&llm.last().result("c1")).expect("an answer");
    assert_eq!(result, answer);
}

#[test]
fn a_display_surface_stays_in_the_conversation() {
    let llm = draws(json!({"messages": [
        {"surfaceUpdate": {"surfaceId": "s", "components": [
            {"id": "top", "component": {"Table": {"columns": ["what"], "rows": [["tea\u{202e}"]]}}},
        ]}},
        {"beginRendering": {"surfaceId": "s", "root": "top"}},
    ]}));
    let home = Home::with(&llm);
    let mut tty = Pty::start(&home, &[], 90, 30);
    tty.ready();
    tty.say("show it");
    tty.shows("tea<U+202E>");
    tty.shows("End.");
    tty.quit();
    assert!(llm.last().result("c1").contains("\"rendered\":true"));
    // Without a viewer there is no such tool.
    home.ok(&["-p", "hello"]);
    assert!(!llm.last().tools().contains(&"render_a2ui".to_owned()));
}
