use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::testing::Sandbox;

fn tree() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("src/main.rs", "fn main() {\n    let NAME = 1;\n}\n");
    sandbox.write("src/deep/lib.rs", "pub fn name() {}\n\n\n\n// end name\n");
    sandbox.write("README.md", "the Name\n");
    sandbox.write(".gitignore", "/target\n*.log\n");
    sandbox.write("target/out.rs", "name\n");
    sandbox.write("x.log", "name\n");
    sandbox.write(".hidden/h.rs", "name\n");
    sandbox.write(".git/config", "name\n");
    sandbox.write("bin.dat", b"name\0name\n");
    sandbox
}

fn age(sandbox: &Sandbox, name: &str, seconds: u64) {
    let file = std::fs::File::options().write(true).open(sandbox.path(name)).expect("exists");
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000 - seconds))
        .expect("succeeds");
}

#[tokio::test]
async fn list_shows_a_folder() {
    let sandbox = tree();
    sandbox.link("src/main.rs", "link");
    sandbox.link(".", "loop");
    let text = sandbox.ok("List", json!({})).await;
    assert_eq!(text, "README.md\nbin.dat\nlink -> src/main.rs\nloop -> .\nsrc/\n[5 hidden or ignored]");
    let text = sandbox.ok("List", json!({"path": "src", "depth": 3})).await;
    assert_eq!(text, "deep/\n  lib.rs\nmain.rs");
    std::fs::create_dir(sandbox.path("empty")).expect("created");
    assert_eq!(sandbox.ok("List", json!({"path": "empty"})).await, "(empty is empty)");
    for (args, word) in [
        (json!({"path": "gone"}), "gone does not exist"),
        (json!({"path": "README.md"}), "not a folder"),
        (json!({"depth": 0}), "at least 1"),
    ] {
        let text = sandbox.refused("List", args).await;
        assert!(text.contains(word), "{text}");
    }
    for n in 0..600 {
        sandbox.write(format!("many/{n:03}"), "");
    }
    let text = sandbox.ok("List", json!({"path": "many"})).await;
    assert!(text.ends_with("499\n[100 more; List a subfolder]"), "{text}");
}

#[tokio::test]
async fn glob_finds_the_newest_first_and_respects_gitignore() {
    let sandbox = tree();
    age(&sandbox, "src/main.rs", 10);
    age(&sandbox, "src/deep/lib.rs", 5);
    age(&sandbox, ".hidden/h.rs", 1);
    let glob = async |args: Value| sandbox.ok("Glob", args).await;
    assert_eq!(glob(json!({"pattern": "**/*.rs"})).await, "src/deep/lib.rs\nsrc/main.rs");
    assert_eq!(glob(json!({"pattern": "*.rs"})).await, "src/deep/lib.rs\nsrc/main.rs");
    assert_eq!(glob(json!({"pattern": "src/*.rs"})).await, "src/main.rs");
    for pattern in ["src/", "./src/"] {
        let text = glob(json!({"pattern": pattern})).await;
        let mut lines: Vec<_> = text.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["src/deep/", "src/main.rs"]);
    }
    assert_eq!(glob(json!({"pattern": "*.rs", "path": "src"})).await, "src/deep/lib.rs\nsrc/main.rs");
    assert_eq!(glob(json!({"pattern": "./src/**/{lib,x}.rs"})).await, "src/deep/lib.rs");
    assert_eq!(glob(json!({"pattern": ".hidden/*"})).await, ".hidden/h.rs");
    assert_eq!(glob(json!({"pattern": "*.log"})).await, "no file matches");
    assert_eq!(glob(json!({"pattern": "gone/**"})).await, "no file matches");
    let pattern = format!("{}/src/*.rs", sandbox.workspace.cwd.display());
    assert_eq!(glob(json!({"pattern": pattern})).await, "src/main.rs");
    let text = sandbox.refused("Glob", json!({"pattern": "a["})).await;
    assert!(text.contains("invalid `pattern`: unclosed character class"), "{text}");
    for n in 0..250 {
        sandbox.write(format!("many/{n:03}.x"), "");
    }
    assert!(glob(json!({"pattern": "*.x"})).await.ends_with("\n[50 more; narrow the pattern]"));
}

#[tokio::test]
async fn a_name_that_is_not_utf8_is_listed_and_can_be_read() {
    let sandbox = Sandbox::new();
    sandbox.write(OsStr::from_bytes(b"src/\xff.rs"), "inside\n");
    let name = sandbox.ok("Glob", json!({"pattern": "src/*"})).await;
    assert_eq!(name, "src/\\xff.rs");
    assert_eq!(sandbox.ok("Read", json!({"file_path": name})).await, "1\tinside");
    assert_eq!(sandbox.ok("Grep", json!({"pattern": "inside"})).await, "src/\\xff.rs");
    assert_eq!(sandbox.ok("List", json!({"path": "src"})).await, "\\xff.rs");
}

#[tokio::test]
async fn grep_searches_as_ripgrep_does() {
    let sandbox = tree();
    let grep = async |args: Value| sandbox.ok("Grep", args).await;
    assert_eq!(grep(json!({"pattern": "name"})).await, "src/deep/lib.rs");
    assert_eq!(grep(json!({"pattern": "name", "-i": true})).await, "README.md\nsrc/deep/lib.rs\nsrc/main.rs");
    assert_eq!(
        grep(json!({"pattern": "name", "-i": true, "output_mode": "content", "glob": "*.rs"})).await,
        "src/deep/lib.rs\n1: pub fn name() {}\n5: // end name\n\nsrc/main.rs\n2:     let NAME = 1;"
    );
    assert_eq!(
        grep(json!({"pattern": "name", "output_mode": "content", "-n": false, "-C": 1})).await,
        "src/deep/lib.rs\npub fn name() {}\n\n--\n\n// end name"
    );
    assert_eq!(
        grep(json!({"pattern": "LET", "-i": true, "output_mode": "content", "-A": 1, "path": "src/main.rs"}))
            .await,
        "src/main.rs\n2:     let NAME = 1;\n3- }"
    );
    assert_eq!(
        grep(json!({"pattern": "NAM[eE]", "output_mode": "count", "-i": true, "path": "src"})).await,
        "src/deep/lib.rs:2\nsrc/main.rs:1"
    );
    assert_eq!(
        grep(json!({"pattern": "main.*\\}", "multiline": true, "output_mode": "content"})).await,
        "src/main.rs\n1: fn main() {\n2:     let NAME = 1;\n3: }"
    );
    assert_eq!(grep(json!({"pattern": "nowhere"})).await, "no match");
    let text = grep(json!({"pattern": "name", "output_mode": "content", "head_limit": 1})).await;
    assert_eq!(
        text,
        "src/deep/lib.rs\n1: pub fn name() {}\n[more matches; narrow the search or raise head_limit]"
    );
    for (args, word) in [
        (json!({"pattern": "("}), "not a valid regular expression"),
        (json!({"pattern": "a\\nb"}), "set multiline"),
        (json!({"pattern": "a", "output_mode": "x"}), "must be content, files_with_matches or count"),
        (json!({"pattern": "a", "path": "gone"}), "gone does not exist"),
        (json!({"pattern": "a", "glob": "{"}), "invalid `glob`"),
        (json!({"pattern": ""}), "empty"),
    ] {
        let text = sandbox.refused("Grep", args).await;
        assert!(text.contains(word), "{text}");
    }
}

#[tokio::test]
async fn a_long_line_is_truncated() {
    let sandbox = Sandbox::new();
    sandbox.write("min.js", "x".repeat(100_000));
    let text = sandbox.ok("Grep", json!({"pattern": "x", "output_mode": "content"})).await;
    assert!(text.ends_with("x [… 99500 more bytes]"), "{}", text.len());
}

#[tokio::test]
async fn a_fifo_in_the_tree_is_skipped() {
    let sandbox = Sandbox::new();
    rustix::fs::mkfifoat(rustix::fs::CWD, sandbox.path("fifo"), 0o600.into()).expect("a FIFO");
    sandbox.write("a", "x");
    assert_eq!(sandbox.ok("Grep", json!({"pattern": "x"})).await, "a");
    let text = sandbox.refused("Grep", json!({"pattern": "x", "path": "fifo"})).await;
    assert!(text.contains("neither a file nor a folder"), "{text}");
}
