//! Absurd values in every argument of every tool, and in the files that they encounter.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::testing::Sandbox;
use aye_core::contract::path_policy::{PathAccess, PathCheck, PathPolicies, PathPolicy, PathRestriction};
use aye_core::contract::spec::AgentSpec;
use aye_core::contract::tool::{ToolCallContext, ToolError};

fn texts() -> Vec<String> {
    let mut texts: Vec<String> =
        ["{", "}", "[", "(", "(?", "*", "**/", "?", "\\", "!", "[!", "{a,", "../", "~", "-"]
            .iter()
            .flat_map(|part| [1, 1_300].map(|n| part.repeat(n)))
            .collect();
    texts.extend(
        ["", " ", "\n", "\0", "\u{202e}", "\u{feff}x", "/", "//", ".", "..", "~root", "/dev/zero"]
            .map(String::from),
    );
    texts.extend(
        [
            "[z-a]",
            "(?R)",
            "\\p{Foo}",
            "a{99999}",
            "((((a{99}){99}){99}){99})",
            "\\xff",
            "\\u{110000}",
            "%n%s",
            "{,}",
        ]
        .map(String::from),
    );
    texts.extend([
        "a/".repeat(5_000),
        "{".repeat(60_000),
        "x".repeat(60_000),
        format!("{}x", "[^/]*".repeat(2_000)),
        "é".repeat(5_000),
    ]);
    texts
}

fn values() -> Vec<Value> {
    let mut values: Vec<Value> = texts().into_iter().map(Value::from).collect();
    values.extend([json!(null), json!(true), json!(-1), json!(0), json!(1e308), json!(u64::MAX), json!(0.5)]);
    let mut deep = json!([]);
    for _ in 0..100 {
        deep = json!([deep]);
    }
    values.extend([deep, json!({}), json!({"a": [1]}), json!(["x"])]);
    values
}

/// Valid arguments, replaced one by one.
fn arguments(tool: &str) -> Value {
    match tool {
        "Read" => json!({"file_path": "f", "offset": 1, "limit": 1}),
        "Write" => json!({"file_path": "new/f", "content": "x"}),
        "Edit" => json!({"file_path": "f", "old_string": "x", "new_string": "y", "replace_all": true}),
        "List" => json!({"path": ".", "depth": 2}),
        "Glob" => json!({"pattern": "*", "path": "."}),
        "Grep" => json!({
            "pattern": "x", "path": ".", "glob": "*", "output_mode": "content", "-i": true, "-n": true,
            "-A": 1, "-B": 1, "-C": 1, "head_limit": 1, "multiline": true
        }),
        "Bash" => json!({"command": "true", "timeout": 1000, "description": "d"}),
        "WebFetch" => json!({"url": "http://127.0.0.1:9/"}),
        "AskUser" => json!({"questions": [{"question": "q?", "options": ["a", "b"]}]}),
        "TodoWrite" => json!({"todos": [{"content": "c", "status": "pending"}]}),
        other => panic!("{other} has no arguments here"),
    }
}

#[tokio::test]
async fn no_argument_makes_a_tool_panic() {
    let sandbox = Sandbox::new();
    let names = ["Read", "Write", "Edit", "List", "Glob", "Grep", "Bash", "WebFetch", "AskUser", "TodoWrite"];
    for name in names {
        let tool = sandbox.tool(name);
        let properties = tool.descriptor().parameters["properties"].as_object().expect("an object").clone();
        for property in properties.keys() {
            for value in values() {
                sandbox.write("f", "x\n");
                let mut args = arguments(name);
                args[property] = value;
                // Other tests run these: nothing here may reach a shell, the network, or a whole disk.
                let leads_out =
                    |text: &str| text.starts_with('/') || text.starts_with('~') || text.contains("..");
                let is_only_checked = matches!(name, "Bash" | "WebFetch")
                    || ["path", "file_path", "pattern"]
                        .iter()
                        .any(|key| args[key].as_str().is_some_and(leads_out));
                if tool.validate_args(&args).is_ok() && !is_only_checked {
                    drop(tool.execute(args, &ToolCallContext::test_default()).await);
                }
            }
        }
    }
}

#[tokio::test]
async fn long_or_invalid_patterns_are_refused_with_a_reason() {
    let sandbox = Sandbox::new();
    sandbox.write("f", "x");
    let braces = sandbox.refused("Glob", json!({"pattern": "{".repeat(2_000)})).await;
    assert!(braces.contains("invalid `pattern`") && braces.len() < 400, "{braces}");
    let closed = format!("{}x{}", "{".repeat(2_000), "}".repeat(2_000));
    let closed = sandbox.refused("Glob", json!({"pattern": closed})).await;
    assert!(closed.contains("invalid `pattern`") && closed.len() < 400, "{closed}");
    let long = sandbox.refused("Glob", json!({"pattern": "x".repeat(5_000)})).await;
    assert!(long.contains("longer than 4096 bytes"), "{long}");
    for (words, args) in [
        ("`pattern` is longer than 10000 bytes", json!({"pattern": "x".repeat(20_000)})),
        ("`glob` is longer than 4096 bytes", json!({"pattern": "x", "glob": "x".repeat(5_000)})),
    ] {
        let text = sandbox.refused("Grep", args).await;
        assert!(text.contains(words), "{text}");
    }
    let glob = format!("{}x{}", "{".repeat(2_000), "}".repeat(2_000));
    let text = sandbox.refused("Grep", json!({"pattern": "x", "glob": glob})).await;
    assert!(text.contains("invalid `glob`") && text.len() < 1_500, "{text}");
}

#[tokio::test]
async fn irregular_ignore_files_do_not_block_a_search() {
    let sandbox = Sandbox::new();
    sandbox.write("sub/x.rs", "name\n");
    for place in [".gitignore", ".ignore", "sub/.gitignore"] {
        let status = std::process::Command::new("mkfifo").arg(sandbox.path(place)).status().expect("mkfifo");
        assert!(status.success());
    }
    let started = Instant::now();
    assert_eq!(sandbox.ok("Glob", json!({"pattern": "*.rs"})).await, "sub/x.rs");
    assert_eq!(sandbox.ok("Grep", json!({"pattern": "name"})).await, "sub/x.rs");
    assert_eq!(sandbox.ok("List", json!({})).await, "sub/\n[2 hidden or ignored]");
    assert!(started.elapsed() < Duration::from_secs(15));
}

#[tokio::test]
async fn a_hanging_search_is_abandoned_when_cancelled() {
    let (release, held) = std::sync::mpsc::channel::<()>();
    let ctx = ToolCallContext { cancellation: CancellationToken::new(), ..ToolCallContext::test_default() };
    let cancel = ctx.cancellation.clone();
    let work = crate::looking(&ctx, move |_| {
        let _ = held.recv();
        Ok(())
    });
    let (result, ()) = tokio::join!(work, async { cancel.cancel() });
    assert!(matches!(&result, Err(ToolError::ExecutionFailed(why)) if why == "cancelled"), "{result:?}");
    drop(release);
}

/// Restricts every path that contains `secret`.
struct Secrets;

impl PathPolicies for Secrets {
    fn policy(&self, _: &AgentSpec) -> Arc<dyn PathPolicy> {
        Arc::new(Secrets)
    }
}

fn restricted(path: &Path) -> Option<PathRestriction> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    path.to_string_lossy()
        .contains("secret")
        .then(|| PathRestriction { is_denied: false, why: "a rule".into() })
}

impl PathPolicy for Secrets {
    fn restriction(&self, path: &Path, _: PathAccess) -> Option<PathRestriction> {
        restricted(path)
    }

    fn below(&self, _: &Path) -> PathCheck {
        Arc::new(|path, _| restricted(path))
    }

    fn fingerprint(&self) -> u64 {
        0
    }
}

#[tokio::test]
async fn searches_skip_restricted_files_and_count_them() {
    let sandbox = Sandbox::with(|env| env.policies = Some(Arc::new(Secrets)));
    sandbox.write("a.rs", "name\n");
    sandbox.write("secret.rs", "name\n");
    sandbox.write("secrets/b.rs", "name\n");
    sandbox.write("secrets/c.rs", "name\n");
    sandbox.link("secret.rs", "link.rs");
    let note = "[skipped 1 file and 1 folder: permission rules deny reading them, or ask first]";
    assert_eq!(sandbox.ok("Grep", json!({"pattern": "name"})).await, format!("a.rs\n{note}"));
    let glob = json!({"pattern": "name", "glob": "secret.rs"});
    let text = sandbox.ok("Grep", glob).await;
    assert_eq!(text, format!("no match\n{note}"));
    let note = "[skipped 2 files and 1 folder: permission rules deny reading them, or ask first]";
    assert_eq!(sandbox.ok("Glob", json!({"pattern": "**/*.rs"})).await, format!("a.rs\n{note}"));
    assert_eq!(sandbox.ok("List", json!({})).await, format!("a.rs\n{note}"));
    // A file named by the call was judged with the call.
    assert_eq!(sandbox.ok("Grep", json!({"pattern": "name", "path": "secret.rs"})).await, "secret.rs");
}
