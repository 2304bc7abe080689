use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use aye_core::contract::surface::{ACTION_SURFACE, Surface, SurfaceNode};
use aye_core::contract::suspension::ToolCallResumeMode;
use aye_core::contract::tool::{Tool, ToolCallContext, ToolError};
use aye_core::phase::PluginRegistrar;
use aye_core::state::StateStore;

fn apply(messages: Value) -> Result<BTreeMap<String, Surface>, String> {
    let mut surfaces = BTreeMap::new();
    apply_messages(&json!({ "messages": messages }), &mut surfaces).map_err(|e| e.to_string())?;
    Ok(surfaces)
}

fn book(kind: &str, body: Value) -> Value {
    json!({"version": "v0.8", kind: body})
}

fn create() -> Value {
    book("createSurface", json!({"surfaceId": "s", "catalogId": "c"}))
}

fn components(list: Value) -> Value {
    book("updateComponents", json!({"surfaceId": "s", "components": list}))
}

#[test]
fn the_form_of_the_book_makes_a_surface() {
    let surfaces = apply(json!([
        create(),
        components(json!([{"id": "root", "component": "Text", "text": {"path": "/greeting"}}])),
        book("updateDataModel", json!({"surfaceId": "s", "path": "/", "value": {"greeting": "?"}})),
        book("updateDataModel", json!({"surfaceId": "s", "path": "/greeting", "value": "Hello"})),
    ]))
    .expect("a surface");
    assert_eq!(surfaces["s"].catalog_id.as_deref(), Some("c"));
    assert_eq!(surfaces["s"].picture(), SurfaceNode::Text { text: "Hello".into(), hint: String::new() });
}

#[test]
fn the_published_form_makes_the_same_surface() {
    let surfaces = apply(json!([
        {"surfaceUpdate": {"surfaceId": "s", "components": [
            {"id": "top", "component": {"Column": {"children": {"explicitList": ["t"]}}}},
            {"id": "t", "component": {"Text": {"text": {"path": "/user/name"}, "usageHint": "h2"}}},
        ]}},
        {"dataModelUpdate": {"surfaceId": "s", "path": "/", "contents": [
            {"key": "user", "valueMap": [{"key": "name", "valueString": "Ada"}, {"key": "age", "valueNumber": 36}]},
            {"key": "a/b", "valueBoolean": true},
        ]}},
        {"beginRendering": {"surfaceId": "s", "root": "top"}},
    ]))
    .expect("a surface");
    let surface = &surfaces["s"];
    assert_eq!(surface.data, json!({"user": {"name": "Ada", "age": 36}, "a/b": true}));
    let text = SurfaceNode::Text { text: "Ada".into(), hint: "h2".into() };
    assert_eq!(surface.picture(), SurfaceNode::Column(vec![text]));
}

#[test]
fn errors_are_reported_with_their_place() {
    let args = |args: Value| apply_messages(&args, &mut BTreeMap::new()).unwrap_err().to_string();
    assert_eq!(args(json!({})), "missing required field \"messages\"");
    assert_eq!(args(json!({"messages": []})), "messages array must not be empty");
    assert!(args(json!({"messages": "x"})).contains("must be an array"));
    let root = json!({"id": "root", "component": "Text"});
    for (messages, words) in [
        (json!([3]), "messages[0]: a message must be an object"),
        (json!([{"version": "v0.8"}]), "no message type"),
        (json!([{"version": "v0.9", "createSurface": {"surfaceId": "s"}}]), "unsupported version \"v0.9\""),
        (json!([{"createSurface": {"surfaceId": "s"}}]), "unsupported version"),
        (
            json!([{"version": "v0.8", "createSurface": {}, "deleteSurface": {}}]),
            "multiple message types in one object",
        ),
        (json!([book("createSurface", json!({}))]), "createSurface.surfaceId is required"),
        (json!([book("createSurface", json!({"surfaceId": " "}))]), "surfaceId must be a string"),
        (json!([components(json!([root]))]), "send createSurface first"),
        (json!([create(), components(json!("x"))]), "components must be an array"),
        (json!([create(), components(json!([{"component": "Text"}]))]), "components[0].id is required"),
        (json!([create(), components(json!([{"id": "root"}]))]), "components[0].component is required"),
        (
            json!([create(), components(json!([{"id": "root", "component": {"A": {}, "B": {}}}]))]),
            "exactly one kind",
        ),
        (json!([create(), components(json!([root, root]))]), "duplicate `root`"),
        (
            json!([create(), components(json!([{"id": "a", "component": "Text"}]))]),
            "messages[1]: one component must have \"id\": \"root\"",
        ),
        (
            json!([create(), components(json!([{"id": "root", "component": "Card", "child": "gone"}]))]),
            "component `root` of `s` refers to the missing component `gone`",
        ),
        (
            json!([
                create(),
                components(json!([
                    {"id": "root", "component": "Card", "child": "a"},
                    {"id": "a", "component": "Column", "children": ["root"]},
                ]))
            ]),
            "contains itself",
        ),
        (
            json!([create(), book("updateDataModel", json!({"surfaceId": "s", "path": "x", "value": 1}))]),
            "must start with a slash",
        ),
        (json!([book("deleteSurface", json!({"surfaceId": "s"}))]), "unknown surface `s`"),
        (json!([{"beginRendering": {"surfaceId": "s", "root": "r"}}]), "send surfaceUpdate for `s` first"),
        (
            json!([
                {"surfaceUpdate": {"surfaceId": "s", "components": [root]}},
                {"beginRendering": {"surfaceId": "s", "root": "r"}},
            ]),
            "unknown component `r` in `s`",
        ),
        (json!([{"dataModelUpdate": {"surfaceId": "s", "contents": [{"key": "a"}]}}]), "needs one of"),
    ] {
        let error = apply(messages.clone()).expect_err("it is wrong");
        assert!(error.contains(words), "{messages}: {error}");
    }
}

#[test]
fn a_published_component_has_the_members_its_kind_needs() {
    let error = apply(json!([
        create(),
        components(json!([
            {"id": "root", "component": {"Column": {"children": {"explicitList": ["a", "b", "c", "d"]}}}},
            {"id": "a", "component": {"Text": {"texx": {"literalString": "a"}}}},
            {"id": "b", "component": {"Button": {"child": "a"}}},
            {"id": "c", "component": {"Text": {"text": {"literalString": 5}}}},
            {"id": "d", "component": {"Chart": {"of": "this catalog"}}},
        ])),
    ]))
    .expect_err("it is wrong");
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines[0], "3 errors:", "{error}");
    for words in [
        "components[1].component.Text.text is required",
        "components[2].component.Button.action is required",
        "components[3].text must be a string",
    ] {
        assert!(error.contains(words), "{words}: {error}");
    }
}

#[test]
fn every_error_is_reported_at_once() {
    let error = apply(json!([
        create(),
        components(json!([
            {"id": "root", "component": "Column", "children": ["a", 7]},
            {"component": "Text"},
            {"id": "b"},
            "x",
            {"id": 5, "component": ["Text"]},
            {"id": "c", "component": {"Text": "hello"}},
            {"id": "d", "component": "Card", "child": ["a"]},
            {"id": "e", "component": "Button", "action": {"context": {}}},
            {"id": "f", "component": "Text", "text": {"path": 3}},
        ])),
        book("updateDataModel", json!({"surfaceId": "s", "path": "x", "value": 1})),
        {"beginRendering": {"surfaceId": "s"}},
    ]))
    .expect_err("it is wrong");
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines[0], "12 errors:", "{error}");
    for words in [
        "- messages[1]: components[0].children must be a list of ids",
        "- messages[1]: components[1].id is required",
        "- messages[1]: components[2].component is required",
        "- messages[1]: components[3] must be an object",
        "- messages[1]: components[4].id must be a string",
        "- messages[1]: components[4].component must be the name of a kind",
        "- messages[1]: components[5].component.Text must be an object",
        "- messages[1]: components[6].child must be the id of a component",
        "- messages[1]: components[7].action must be",
        "- messages[1]: components[8].text must be a string",
        "- messages[2]: updateDataModel.path `x` must start with a slash",
        "- messages[3]: beginRendering.root is required",
    ] {
        assert!(lines.iter().any(|line| line.starts_with(words)), "{words}: {error}");
    }
    let many: Vec<Value> = (0..100).map(|_| json!({"id": "x"})).collect();
    let error = apply(json!([create(), components(json!(many))])).expect_err("it is wrong");
    assert!(error.ends_with("more") && error.lines().count() == MAX_ERRORS_SHOWN, "{error}");
    // Each reference to something missing is reported.
    let error = apply(json!([
        create(),
        components(json!([{"id": "root", "component": "Row", "children": ["x", "y"]}])),
    ]))
    .expect_err("it is wrong");
    assert!(error.contains("component `x`") && error.contains("component `y`"), "{error}");
}

/// The header, the errors, and the number of further ones.
const MAX_ERRORS_SHOWN: usize = 27;

#[test]
fn oversized_surfaces_are_refused() {
    let many: Vec<Value> =
        (0..=MAX_COMPONENTS).map(|n| json!({"id": n.to_string(), "component": "Text"})).collect();
    let messages = json!([{"surfaceUpdate": {"surfaceId": "s", "components": many}}]);
    assert!(apply(messages).expect_err("too many").contains("more than 500 components"));
    let long = "x".repeat(300_000);
    let error = apply(json!([book("createSurface", json!({"surfaceId": "s", "x": long}))]));
    assert!(error.expect_err("too long").contains("larger than 256 KiB"));
    let mut deep = json!({"key": "k", "valueString": "v"});
    for _ in 0..100 {
        deep = json!({"key": "k", "valueMap": [deep]});
    }
    let error = apply(json!([{"dataModelUpdate": {"surfaceId": "s", "contents": [deep]}}]));
    assert!(error.expect_err("too deep").contains("too deeply"));
}

async fn call(
    ctx: &ToolCallContext,
    messages: Value,
) -> Result<aye_core::contract::tool::ToolOutput, ToolError> {
    A2uiRenderTool.execute(json!({ "messages": messages }), ctx).await
}

#[tokio::test]
async fn a_display_surface_is_a_result_and_a_form_waits() {
    let ctx = ToolCallContext::test_default();
    let messages = json!([create(), components(json!([{"id": "root", "component": "Text", "text": "Hi"}]))]);
    let output = call(&ctx, messages.clone()).await.expect("an output");
    assert_eq!(output.result.data, json!({"a2ui": messages, "rendered": true}));
    assert_eq!(output.result.details.as_ref().expect("details")["surfaces"][0]["id"], "s");
    assert!(!output.command.is_empty());

    let messages = json!([
        create(),
        components(json!([
            {"id": "root", "component": "Button", "label": "Go", "action": {"event": {"name": "go"}}},
        ]))
    ]);
    let output = call(&ctx, messages).await.expect("an output");
    assert!(output.result.is_pending());
    let ticket = output.result.suspension.expect("a ticket");
    assert_eq!(ticket.suspension.action, ACTION_SURFACE);
    assert_eq!(ticket.resume_mode, ToolCallResumeMode::UseDecisionAsToolResult);
    let surface: Surface =
        serde_json::from_value(ticket.suspension.parameters["surface"].clone()).expect("the surface");
    let schema = ticket.suspension.response_schema.expect("a schema");
    let validator = jsonschema::validator_for(&schema).expect("a valid schema");
    assert!(validator.is_valid(&surface.pressed("root")));
    assert!(!validator.is_valid(&json!({"userAction": {"name": "go", "surfaceId": "other"}})));
}

#[tokio::test]
async fn later_calls_update_earlier_surfaces() {
    let store = StateStore::new();
    store.install_plugin(A2uiPlugin::new()).expect("installed");
    let ctx = || {
        let mut ctx = ToolCallContext::test_default();
        ctx.snapshot = store.snapshot();
        ctx
    };
    let text = |text: &str| components(json!([{"id": "root", "component": "Text", "text": text}]));
    let first = call(&ctx(), json!([create(), text("one")])).await.expect("an output");
    store.commit(first.command).expect("committed");
    let second = call(&ctx(), json!([text("two")])).await.expect("an output");
    store.commit(second.command).expect("committed");
    let picture = |store: &StateStore| store.read::<Surfaces>().unwrap_or_default()["s"].picture();
    assert_eq!(picture(&store), SurfaceNode::Text { text: "two".into(), hint: String::new() });
    let wrong = call(&ctx(), json!([text("three"), {"version": "v0.8"}])).await;
    assert!(matches!(wrong, Err(ToolError::InvalidArguments(_))), "nothing of an invalid call is kept");
    let gone =
        call(&ctx(), json!([book("deleteSurface", json!({"surfaceId": "s"}))])).await.expect("an output");
    store.commit(gone.command).expect("committed");
    assert!(store.read::<Surfaces>().unwrap_or_default().is_empty());
}

#[test]
fn instructions_are_a_separate_message() {
    let hooks = |plugin: A2uiPlugin| {
        let mut registrar = PluginRegistrar::new(A2UI_PLUGIN);
        aye_core::phase::Plugin::register(&plugin, &mut registrar).expect("registered");
        registrar.registered().hooks_for_phase(aye_core::state::Phase::BeforeInference).len()
    };
    assert_eq!(hooks(A2uiPlugin::new()), 0);
    assert_eq!(hooks(A2uiPlugin::with_catalog_and_examples("c", "Example: ...")), 1);
    assert_eq!(hooks(A2uiPlugin::with_custom_instructions("You can.")), 1);
}
