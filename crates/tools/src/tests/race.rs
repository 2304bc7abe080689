//! Another thread exchanges a folder and a link to a folder outside while tools work: no answer comes from outside, and
//! nothing is written there.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::{Value, json};

use crate::testing::Sandbox;
use aye_core::contract::path_policy::{PathAccess, PathCheck, PathPolicies, PathPolicy, PathRestriction};
use aye_core::contract::spec::AgentSpec;
use aye_core::contract::tool::ToolCallContext;
use aye_files::known::FileId;

const ROUNDS: usize = 400;

/// Exchanges two names until it is dropped.
struct Exchange(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl Exchange {
    fn of(from: PathBuf, to: PathBuf) -> Exchange {
        let is_over = Arc::new(AtomicBool::new(false));
        let exchanges = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            while !exchanges.load(Ordering::Relaxed) {
                renameat_with(CWD, &from, CWD, &to, RenameFlags::EXCHANGE).expect("exchanged");
            }
        });
        Exchange(is_over, Some(thread))
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        if let Some(thread) = self.1.take() {
            thread.join().expect("no panic");
        }
    }
}

/// A folder `d` in the workspace, and a link `l` to one outside that has a file of the same name.
fn with_link_out() -> (Sandbox, PathBuf) {
    let sandbox = Sandbox::new();
    let outside = sandbox.workspace.home.join("out");
    for (folder, text) in [(sandbox.path("d"), "inside"), (outside.clone(), "OUTSIDE")] {
        std::fs::create_dir_all(folder.join("sub")).expect("made");
        for name in ["f", "sub/f"] {
            std::fs::write(folder.join(name), text).expect("written");
        }
    }
    std::fs::write(outside.join("sub/OUTSIDE"), "OUTSIDE").expect("written");
    std::os::unix::fs::symlink(&outside, sandbox.path("l")).expect("linked");
    (sandbox, outside)
}

/// What the gate says of paths that it judged while `d` was the folder.
fn judged(sandbox: &Sandbox) -> [ToolCallContext; 2] {
    let paths = ["", "d", "d/f", "d/sub", "d/sub/f"]
        .map(|name| if name.is_empty() { sandbox.workspace.cwd.clone() } else { sandbox.path(name) });
    let judged = ToolCallContext { judged: paths.to_vec(), ..ToolCallContext::test_default() };
    [ToolCallContext::test_default(), judged]
}

async fn answers(tool: &str, calls: &[Value]) {
    let (sandbox, outside) = with_link_out();
    let contexts = judged(&sandbox);
    let exchange = Exchange::of(sandbox.path("d"), sandbox.path("l"));
    for round in 0..ROUNDS {
        let call = calls[round % calls.len()].clone();
        let ctx = &contexts[round / calls.len() % 2];
        let text = match sandbox.call_in(tool, call.clone(), ctx).await {
            Ok(result) => result.model_text(),
            Err(error) => error.to_string(),
        };
        // A listing may show where the link leads, and an error too.
        let text = text.replace(&*outside.to_string_lossy(), "");
        assert!(!text.contains("OUTSIDE"), "{tool} {call}: {text}");
    }
    drop(exchange);
}

#[tokio::test]
async fn read_answers_only_from_inside() {
    answers("Read", &[json!({"file_path": "d/f"}), json!({"file_path": "d/sub/f"})]).await;
}

#[tokio::test]
async fn grep_answers_only_from_inside() {
    let calls = ["d", ".", "d/sub/f"]
        .map(|path| json!({"pattern": "UTSIDE|nside", "path": path, "output_mode": "content"}));
    answers("Grep", &calls).await;
}

#[tokio::test]
async fn list_answers_only_from_inside() {
    answers("List", &[json!({"path": "d/sub"}), json!({"depth": 3}), json!({"path": "d", "depth": 2})]).await;
}

#[tokio::test]
async fn glob_answers_only_from_inside() {
    let calls = ["d/**/*", "**/*", "d/sub/*"].map(|pattern| json!({"pattern": pattern}));
    answers("Glob", &calls).await;
}

#[tokio::test]
async fn write_and_edit_change_only_what_is_inside() {
    for tool in ["Write", "Edit"] {
        let (sandbox, outside) = with_link_out();
        let contexts = judged(&sandbox);
        let exchange = Exchange::of(sandbox.path("d"), sandbox.path("l"));
        for round in 0..ROUNDS {
            let args = match (tool, round % 3) {
                ("Write", 0) => json!({"file_path": "d/sub/new", "content": "x"}),
                ("Write", _) => json!({"file_path": "d/f", "content": format!("inside {round}")}),
                _ => json!({"file_path": "d/f", "old_string": "S", "new_string": "SS"}),
            };
            drop(sandbox.call_in(tool, args, &contexts[round % 2]).await);
        }
        drop(exchange);
        let text = |name: &str| std::fs::read_to_string(outside.join(name)).expect("readable");
        assert_eq!((text("f"), text("sub/f")), ("OUTSIDE".into(), "OUTSIDE".into()));
        assert!(!outside.join("sub/new").exists());
        let names = std::fs::read_dir(&outside).expect("listed").count();
        assert_eq!(names, 2, "nothing temporary is left");
    }
}

/// Denies what lies in `secrets`, by name alone.
struct Secrets(PathBuf);

impl PathPolicies for Secrets {
    fn policy(&self, _: &AgentSpec) -> Arc<dyn PathPolicy> {
        Arc::new(Secrets(self.0.clone()))
    }
}

impl Secrets {
    fn rule(&self, path: &Path) -> Option<PathRestriction> {
        let is_denied = path.starts_with(&self.0);
        is_denied.then(|| PathRestriction { is_denied, why: "denied by a rule".into() })
    }
}

impl PathPolicy for Secrets {
    fn restriction(&self, path: &Path, _: PathAccess) -> Option<PathRestriction> {
        self.rule(path)
    }

    fn below(&self, _: &Path) -> PathCheck {
        let rules = Secrets(self.0.clone());
        Arc::new(move |path, _| rules.rule(path))
    }

    fn fingerprint(&self) -> u64 {
        0
    }
}

/// A workspace where rules deny `secrets`, and its content is known.
fn with_secrets() -> Sandbox {
    let known = Arc::new(aye_files::known::KnownFiles::default());
    let of_env = Arc::clone(&known);
    let sandbox = Sandbox::with(move |env| {
        env.policies = Some(Arc::new(Secrets(env.workspace.cwd.join("secrets"))));
        env.known = of_env;
    });
    for (name, text) in [("secrets/key", "KEY"), ("secrets/sub/key", "KEY"), ("d/key", "inside")] {
        sandbox.write(name, text);
    }
    for name in ["secrets/key", "secrets/sub"] {
        let path = sandbox.path(name);
        known.remember(FileId::of(&path.symlink_metadata().expect("exists")), &path);
    }
    sandbox
}

#[tokio::test]
async fn a_denied_file_stays_denied_under_any_name() {
    let sandbox = with_secrets();
    std::fs::hard_link(sandbox.path("secrets/key"), sandbox.path("d/linked")).expect("linked");
    std::fs::rename(sandbox.path("secrets"), sandbox.path("pub")).expect("renamed");
    sandbox.write("pub/open", "open");
    for path in ["pub/key", "pub/sub/key", "d/linked"] {
        for (tool, args) in [
            ("Read", json!({"file_path": path})),
            ("Grep", json!({"pattern": "KEY", "path": path})),
            ("Edit", json!({"file_path": path, "old_string": "KEY", "new_string": "x"})),
        ] {
            let text = sandbox.refused(tool, args).await;
            assert!(text.contains("denied by a rule"), "{tool} {path}: {text}");
        }
    }
    let text = sandbox.refused("List", json!({"path": "pub/sub"})).await;
    assert!(text.contains("denied by a rule"), "{text}");
    let note = "[skipped 2 files and 1 folder: permission rules deny reading them, or ask first]";
    for (tool, args, found) in [
        ("Grep", json!({"pattern": "KEY|open"}), "pub/open\n"),
        ("Glob", json!({"pattern": "{pub,d}/**"}), ""),
        ("List", json!({"depth": 3}), "d/\n  key\npub/\n  open\n"),
    ] {
        let text = sandbox.ok(tool, args).await;
        assert!(text.contains(note) && text.contains(found) && !text.contains("linked"), "{tool}: {text}");
    }
    assert_eq!(sandbox.ok("Read", json!({"file_path": "d/key"})).await, "1\tinside");
}

/// A folder that rules know is exchanged with another: the judge saw the other one.
#[tokio::test]
async fn a_known_folder_is_not_read_in_the_place_of_another() {
    let sandbox = with_secrets();
    sandbox.write("d/sub/key", "inside");
    let exchange = Exchange::of(sandbox.path("d/sub"), sandbox.path("secrets/sub"));
    for round in 0..ROUNDS {
        let (tool, args) = match round % 3 {
            0 => ("Read", json!({"file_path": "d/sub/key"})),
            1 => ("Grep", json!({"pattern": "KEY", "path": "d/sub", "output_mode": "content"})),
            _ => ("Grep", json!({"pattern": "KEY", "path": "d", "output_mode": "content"})),
        };
        let text = match sandbox.call(tool, args).await {
            Ok(result) => result.model_text(),
            Err(error) => error.to_string(),
        };
        assert!(!text.contains("KEY"), "{tool}: {text}");
    }
    drop(exchange);
}

#[tokio::test]
async fn links_that_were_judged_go_on_working() {
    let (sandbox, outside) = with_link_out();
    sandbox.link("d/f", "inner");
    let read = |path: &'static str| json!({"file_path": path});
    assert_eq!(sandbox.ok("Read", read("inner")).await, "1\tinside");
    let text = sandbox.refused("Read", read("l/f")).await;
    assert!(text.contains("leads out of the workspace"), "{text}");
    let judged = vec![sandbox.path("l/f"), outside.join("f")];
    let ctx = ToolCallContext { judged, ..ToolCallContext::test_default() };
    let result = sandbox.call_in("Read", read("l/f"), &ctx).await.expect("read");
    assert_eq!(result.model_text(), "1\tOUTSIDE");
    std::fs::remove_file(sandbox.path("l")).expect("removed");
    sandbox.link("d", "l");
    let error = sandbox.call_in("Read", read("l/f"), &ctx).await.expect_err("moved");
    assert!(error.to_string().contains("leads elsewhere than when it was checked"), "{error}");
}
