//! Path rows about file tools: links, races, odd bytes, irregular files.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aye::config::{TrustAssessment, TrustStore};
use aye::contract::display::count_unsafe;
use aye::contract::tool::{Tool, ToolCallContext, ToolResult};
use aye::contract::workspace::Workspace;
use aye::tools::{ToolEnv, builtin};
use serde_json::{Value, json};

use super::{Found, each, ensure, of_area};
use crate::support::home::Home;

type Check = fn() -> Found;

pub fn check_of(id: &str) -> Option<Check> {
    Some(match id {
        "PA018" => a_folder_becomes_a_link,
        "PA025" => ten_gigabytes,
        "PA030" => a_name_that_is_no_text,
        "PA034" => what_an_edit_keeps,
        "PA035" => bytes_that_are_no_text,
        "PA037" => trust_of_another_repository,
        "PA101o" => pipes,
        "PA102o" => devices_and_folders,
        "PA103o" => links_in_a_circle,
        "PA104o" => long_paths,
        "PA105o" => changed_since_it_was_read,
        "PA106o" => a_read_only_file,
        "PA107o" => a_read_only_folder,
        "PA108o" => walks_that_end,
        "PA109o" => odd_names,
        "PA110o" => odd_arguments,
        "PA111o" => odd_patterns,
        "PA112o" => one_long_line,
        "PA113o" => a_folder_that_is_a_file,
        "PA114o" => odd_windows,
        _ => return None,
    })
}

#[test]
fn every_row_about_files() {
    let rows = of_area("path").into_iter().filter(|row| check_of(&row.id).is_some()).collect();
    each(rows, |row| check_of(&row.id).expect("a check")());
}

/// The built-in tools in a separate folder.
struct HeadlessSession {
    _dir: tempfile::TempDir,
    base: PathBuf,
    tools: Vec<Arc<dyn Tool>>,
}

impl HeadlessSession {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let base = dir.path().canonicalize().expect("exists");
        let work = base.join("w");
        std::fs::create_dir_all(work.join("src")).expect("a folder");
        std::fs::create_dir(base.join("home")).expect("a folder");
        let workspace = Workspace { cwd: work.clone(), root: work, home: base.join("home") };
        let tools = builtin(ToolEnv::new(workspace, base.join("out")));
        Self { _dir: dir, base, tools }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.base.join("w").join(name)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.at(name), bytes).expect("written");
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.at(name)).expect("readable")
    }

    /// The text of a result and whether the call succeeded. A slow call counts as failed.
    fn call(&self, tool: &str, args: Value) -> (bool, String) {
        let tool = self.tools.iter().find(|t| t.descriptor().id == tool).expect("a tool");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let context = ToolCallContext::test_default();
        let shown = args.to_string();
        let work = async {
            tool.validate_args(&args)?;
            Ok::<_, aye::contract::tool::ToolError>(tool.execute(args, &context).await?.result)
        };
        let ended = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(20), work).await });
        runtime.shutdown_background();
        let result: Result<ToolResult, _> = ended.unwrap_or_else(|_| {
            panic!("the call does not end: {}", shown.chars().take(60).collect::<String>())
        });
        match result {
            Ok(result) => (result.is_success(), result.model_text()),
            Err(error) => (false, error.to_string()),
        }
    }

    fn refused(&self, tool: &str, args: Value) -> Result<String, String> {
        let (is_ok, text) = self.call(tool, args.clone());
        if is_ok || text.trim().is_empty() { Err(format!("{tool} {args}: {is_ok} {text}")) } else { Ok(text) }
    }

    fn ok(&self, tool: &str, args: Value) -> Result<String, String> {
        let (is_ok, text) = self.call(tool, args.clone());
        if is_ok { Ok(text) } else { Err(format!("{tool} {args}: {text}")) }
    }
}

/// Between the decision and the write, `src` becomes a link to the outside.
fn a_folder_becomes_a_link() -> Found {
    let desk = HeadlessSession::new();
    desk.write("src/main.rs", "one\n");
    desk.ok("Read", json!({"file_path": "src/main.rs"}))?;
    let outside = desk.base.join("etc");
    std::fs::create_dir(&outside).expect("a folder");
    std::fs::write(outside.join("main.rs"), "one\n").expect("written");
    std::fs::rename(desk.at("src"), desk.at("old")).expect("renamed");
    symlink(&outside, desk.at("src")).expect("a link");
    let edit = json!({"file_path": "src/main.rs", "old_string": "one", "new_string": "two"});
    desk.refused("Edit", edit)?;
    desk.refused("Write", json!({"file_path": "src/main.rs", "content": "two"}))?;
    let kept = std::fs::read_to_string(outside.join("main.rs")).expect("readable");
    ensure(kept == "one\n", || format!("written outside: {kept}"))
}

fn ten_gigabytes() -> Found {
    let desk = HeadlessSession::new();
    let file = std::fs::File::create(desk.at("src/big")).expect("created");
    file.set_len(10 << 30).expect("a sparse file");
    let before = resident();
    let (_, text) = desk.call("Read", json!({"file_path": "src/big"}));
    ensure(text.len() < 200_000 && !text.is_empty(), || format!("{} bytes", text.len()))?;
    let grown = resident().saturating_sub(before);
    // Other tests run in this process: the bound is generous, but 10 GiB would exceed it.
    ensure(grown < 512 << 10, || format!("grown by {grown} KiB"))?;
    // The same with text in it.
    std::fs::write(desk.at("src/text"), "line\n".repeat(4 << 20)).expect("written");
    let text = desk.ok("Read", json!({"file_path": "src/text"}))?;
    ensure(text.contains("truncated") && text.len() < 200_000, || format!("{} bytes", text.len()))
}

/// The resident memory of this process in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

fn a_name_that_is_no_text() -> Found {
    let desk = HeadlessSession::new();
    let name = OsStr::from_bytes(b"src/\xff.rs");
    std::fs::write(desk.base.join("w").join(name), "needle\n").expect("written");
    for (tool, args) in [
        ("Glob", json!({"pattern": "src/*"})),
        ("List", json!({"path": "src"})),
        ("Grep", json!({"pattern": "needle"})),
    ] {
        let text = desk.ok(tool, args)?;
        ensure(text.contains(".rs"), || format!("{tool}: {text}"))?;
    }
    Ok(())
}

fn what_an_edit_keeps() -> Found {
    let desk = HeadlessSession::new();
    desk.write("src/x.sh", b"\xef\xbb\xbf#!/bin/sh\r\necho one\r\necho end");
    std::fs::set_permissions(desk.at("src/x.sh"), std::fs::Permissions::from_mode(0o755)).expect("a mode");
    desk.ok("Read", json!({"file_path": "src/x.sh"}))?;
    desk.ok(
        "Edit",
        json!({"file_path": "src/x.sh", "old_string": "echo one\n", "new_string": "echo two\necho three\n"}),
    )?;
    let found = desk.read("src/x.sh");
    let wanted = b"\xef\xbb\xbf#!/bin/sh\r\necho two\r\necho three\r\necho end";
    ensure(found == wanted, || format!("{:?}", String::from_utf8_lossy(&found)))?;
    let mode = std::fs::metadata(desk.at("src/x.sh")).expect("exists").permissions().mode() & 0o7777;
    ensure(mode == 0o755, || format!("mode {mode:o}"))
}

fn bytes_that_are_no_text() -> Found {
    let desk = HeadlessSession::new();
    for bytes in [&b"a\xff\xfe\0b"[..], b"text \xe9 latin", b"\0\0\0", b"\xff\xfea\0b\0"] {
        desk.write("src/bin", bytes);
        let _ = desk.call("Read", json!({"file_path": "src/bin"}));
        desk.refused("Edit", json!({"file_path": "src/bin", "old_string": "b", "new_string": "c"}))?;
        ensure(desk.read("src/bin") == bytes, || "it was changed".into())?;
    }
    Ok(())
}

/// A folder whose `.git` points at a trusted repository is a different folder.
fn trust_of_another_repository() -> Found {
    let home = Home::new();
    home.write("good/.git/HEAD", "ref: refs/heads/main\n");
    home.write("good/.aye/permissions.yaml", "rules:\n  - {tool: Bash, behavior: allow}\n");
    let good = home.work().join("good").canonicalize().expect("exists");
    let trust = home.root().join("aye/state/trust.json");
    let assessment = TrustAssessment::of(&good, &good).map_err(|e| e.to_string())?;
    TrustStore::at(&trust).trust(&assessment).map_err(|e| e.to_string())?;
    home.write("bad/.aye/permissions.yaml", "rules:\n  - {tool: Bash, behavior: allow}\n");
    let check = |dir: &str| {
        let input = "{\"tool\":\"Bash\",\"args\":{\"command\":\"touch x\"}}";
        let out = home.aye(&["permissions", "check", "-C", dir]).stdin(input).run().exits(0);
        out.json()["verdict"].as_str().unwrap_or_default().to_owned()
    };
    let verdict = check("good");
    ensure(verdict == "allow", || format!("the trusted one: {verdict}"))?;
    let link = good.join(".git");
    for (setup, text) in [("file", format!("gitdir: {}\n", link.display())), ("commondir", String::new())] {
        let git = home.work().join("bad/.git");
        let _ = std::fs::remove_file(&git);
        if setup == "file" {
            std::fs::write(&git, text).expect("written");
        } else {
            std::fs::create_dir(&git).expect("a folder");
            std::fs::write(git.join("commondir"), format!("{}\n", link.display())).expect("written");
            std::fs::write(git.join("HEAD"), "ref: refs/heads/main\n").expect("written");
        }
        let verdict = check("bad");
        ensure(verdict == "ask", || format!("{setup}: {verdict}"))?;
    }
    // A link to the trusted folder is the trusted folder; changes since are not trusted.
    symlink(&good, home.work().join("link")).expect("a link");
    let verdict = check("link");
    ensure(verdict == "allow", || format!("by a link: {verdict}"))?;
    home.write(
        "good/.aye/permissions.yaml",
        "rules:\n  - {tool: Write, behavior: allow}\n  - {tool: Bash, behavior: allow}\n",
    );
    let verdict = check("good");
    ensure(verdict == "ask", || format!("after a change: {verdict}"))
}

fn pipes() -> Found {
    let desk = HeadlessSession::new();
    rustix::fs::mkfifoat(rustix::fs::CWD, desk.at("pipe"), 0o600.into()).expect("a FIFO");
    desk.refused("Read", json!({"file_path": "pipe"}))?;
    desk.refused("Write", json!({"file_path": "pipe", "content": "x"}))?;
    desk.refused("Edit", json!({"file_path": "pipe", "old_string": "a", "new_string": "b"}))?;
    desk.call("Grep", json!({"pattern": "x"}));
    desk.call("Grep", json!({"pattern": "x", "path": "pipe"}));
    Ok(())
}

fn devices_and_folders() -> Found {
    let desk = HeadlessSession::new();
    for path in ["/dev/zero", "/dev/tty", "/dev/full", "src", "/proc/self/environ", "/proc/self/fd/0"] {
        desk.refused("Read", json!({"file_path": path}))?;
        if path != "/proc/self/environ" {
            desk.refused("Write", json!({"file_path": path, "content": "x"}))?;
        }
    }
    desk.call("Grep", json!({"pattern": "x", "path": "/dev/zero"}));
    Ok(())
}

fn links_in_a_circle() -> Found {
    let desk = HeadlessSession::new();
    symlink("b", desk.at("a")).expect("a link");
    symlink("a", desk.at("b")).expect("a link");
    symlink("nowhere", desk.at("dangling")).expect("a link");
    for name in ["a", "a/x", "dangling"] {
        desk.refused("Read", json!({"file_path": name}))?;
        desk.refused("Write", json!({"file_path": name, "content": "x"}))?;
    }
    ensure(!desk.at("nowhere").exists(), || "created through a link".into())
}

fn long_paths() -> Found {
    let desk = HeadlessSession::new();
    for path in ["a/".repeat(2500), "x".repeat(300), format!("src/{}", "é".repeat(200))] {
        desk.refused("Read", json!({"file_path": path}))?;
        desk.refused("Write", json!({"file_path": path, "content": "x"}))?;
        desk.refused("Edit", json!({"file_path": path, "old_string": "a", "new_string": "b"}))?;
        let text = desk.refused("List", json!({"path": path}))?;
        ensure(text.len() < 20_000, || format!("{} bytes", text.len()))?;
    }
    Ok(())
}

fn changed_since_it_was_read() -> Found {
    let desk = HeadlessSession::new();
    desk.write("f", "one two\n");
    desk.ok("Read", json!({"file_path": "f"}))?;
    desk.write("f", "one two three two\n");
    desk.refused("Edit", json!({"file_path": "f", "old_string": "two", "new_string": "2"}))?;
    desk.refused("Edit", json!({"file_path": "f", "old_string": "one  two", "new_string": "2"}))?;
    // The text that is replaced is there as it was read, once.
    desk.ok("Edit", json!({"file_path": "f", "old_string": "one", "new_string": "1"}))?;
    desk.refused("Write", json!({"file_path": "f", "content": "mine"}))?;
    ensure(desk.read("f") == b"1 two three two\n", || "the other's change is lost".into())
}

fn a_read_only_file() -> Found {
    let desk = HeadlessSession::new();
    desk.write("f", "one\n");
    std::fs::set_permissions(desk.at("f"), std::fs::Permissions::from_mode(0o444)).expect("a mode");
    desk.ok("Read", json!({"file_path": "f"}))?;
    let (is_ok, text) =
        desk.call("Edit", json!({"file_path": "f", "old_string": "one", "new_string": "two"}));
    let now = desk.read("f");
    let mode = std::fs::metadata(desk.at("f")).expect("exists").permissions().mode() & 0o777;
    ensure(mode == 0o444, || format!("mode {mode:o}"))?;
    ensure(now == if is_ok { &b"two\n"[..] } else { b"one\n" }, || format!("{text}: {now:?}"))
}

fn a_read_only_folder() -> Found {
    let desk = HeadlessSession::new();
    std::fs::create_dir(desk.at("locked")).expect("a folder");
    std::fs::set_permissions(desk.at("locked"), std::fs::Permissions::from_mode(0o555)).expect("a mode");
    let (is_ok, text) = desk.call("Write", json!({"file_path": "locked/f", "content": "x"}));
    let names: Vec<_> =
        std::fs::read_dir(desk.at("locked")).expect("a folder").flatten().map(|e| e.file_name()).collect();
    std::fs::set_permissions(desk.at("locked"), std::fs::Permissions::from_mode(0o755)).expect("a mode");
    // Root may write there; then the file is complete, and alone.
    ensure(names.len() == usize::from(is_ok), || format!("{text}: {names:?}"))
}

fn walks_that_end() -> Found {
    let desk = HeadlessSession::new();
    desk.write("src/a.rs", "needle\n");
    symlink("/", desk.at("root")).expect("a link");
    symlink("..", desk.at("src/up")).expect("a link");
    rustix::fs::mkfifoat(rustix::fs::CWD, desk.at("src/pipe"), 0o600.into()).expect("a FIFO");
    let text = desk.ok("Glob", json!({"pattern": "**/*.rs"}))?;
    ensure(text.lines().filter(|line| line.contains("a.rs")).count() == 1, || text.clone())?;
    let text = desk.ok("Grep", json!({"pattern": "needle", "output_mode": "content"}))?;
    ensure(text.matches("needle").count() == 1, || text.clone())?;
    let text = desk.ok("Glob", json!({"pattern": "**/etc/passwd"}))?;
    ensure(!text.contains("root:") && !text.contains("root/etc"), || text.clone())
}

fn odd_names() -> Found {
    let desk = HeadlessSession::new();
    let names = [
        "a\nb.txt",
        "c\u{1b}[2Jd.txt",
        "e\u{202e}f.txt",
        "g\rh.txt",
        "-rf",
        "i\u{200b}.txt",
        " ",
        "j:1:k.txt",
    ];
    for name in names {
        desk.write(name, "needle\n");
    }
    for (tool, args) in
        [("Glob", json!({"pattern": "*"})), ("Grep", json!({"pattern": "needle"})), ("List", json!({}))]
    {
        let text = desk.ok(tool, args)?;
        ensure(!text.lines().any(|line| line.trim() == "b.txt"), || format!("{tool}: {text:?}"))?;
        let _ = count_unsafe(&text);
    }
    Ok(())
}

fn odd_arguments() -> Found {
    let desk = HeadlessSession::new();
    desk.write("f", "one\n");
    desk.ok("Read", json!({"file_path": "f"}))?;
    for args in [
        json!({}),
        json!(null),
        json!([]),
        json!("f"),
        json!({"file_path": 7}),
        json!({"file_path": ["f"]}),
        json!({"file_path": "f", "old_string": "", "new_string": "x"}),
        json!({"file_path": "f", "old_string": "one", "new_string": "one"}),
        json!({"file_path": "f", "old_string": "missing", "new_string": "x"}),
        json!({"file_path": "f", "old_string": 1, "new_string": 2}),
        json!({"file_path": "f", "old_string": "one", "new_string": "x", "replace_all": {"a": 1}}),
        json!({"file_path": "f\0", "old_string": "one", "new_string": "x"}),
    ] {
        desk.refused("Edit", args)?;
    }
    for args in [
        json!({}),
        json!({"file_path": "f"}),
        json!({"file_path": "f", "content": {"a": 1}}),
        json!({"content": "x"}),
    ] {
        desk.refused("Write", args)?;
    }
    for args in [
        json!({}),
        json!({"command": ""}),
        json!({"command": "  "}),
        json!({"command": ["ls"]}),
        json!({"command": "ls\0"}),
        json!({"command": "ls", "timeout": "soon"}),
        json!({"command": "ls", "timeout": -1}),
    ] {
        desk.refused("Bash", args)?;
    }
    for args in [
        json!({"url": "file:///etc/passwd"}),
        json!({"url": "http://127.0.0.1:1/"}),
        json!({"url": "http://169.254.169.254/"}),
        json!({"url": "http://[::1]/"}),
        json!({"url": "http://0x7f.1/"}),
        json!({"url": "http://2130706433/"}),
        json!({"url": "javascript:1"}),
        json!({"url": ""}),
        json!({"url": 7}),
    ] {
        desk.refused("WebFetch", args)?;
    }
    ensure(desk.read("f") == b"one\n", || "it was changed".into())
}

fn odd_patterns() -> Found {
    let desk = HeadlessSession::new();
    desk.write("f", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!\n");
    for pattern in [
        "(".to_owned(),
        "[".into(),
        "a{1000}{1000}{1000}".into(),
        "(a|b".repeat(30_000),
        "\\".into(),
        "(?P<x".into(),
    ] {
        let text = desk.refused("Grep", json!({"pattern": pattern}))?;
        ensure(text.len() < 5_000, || format!("{} bytes", text.len()))?;
    }
    // Known to take forever in a backtracking engine.
    desk.call("Grep", json!({"pattern": "(a*)*b"}));
    desk.call("Grep", json!({"pattern": "(x+x+)+y"}));
    for pattern in ["[".to_owned(), "{".repeat(2000), "**/".repeat(2000), "/etc/*".into(), "a\0b".into()] {
        let (_, text) = desk.call("Glob", json!({"pattern": pattern}));
        ensure(text.len() < 60_000, || format!("{} bytes", text.len()))?;
    }
    Ok(())
}

fn one_long_line() -> Found {
    let desk = HeadlessSession::new();
    desk.write("f", "x".repeat(10 << 20));
    let text = desk.ok("Read", json!({"file_path": "f"}))?;
    ensure(text.len() < 100_000, || format!("{} bytes", text.len()))?;
    let text = desk.ok("Grep", json!({"pattern": "x", "output_mode": "content"}))?;
    ensure(text.len() < 100_000, || format!("{} bytes of Grep", text.len()))
}

fn a_folder_that_is_a_file() -> Found {
    let desk = HeadlessSession::new();
    desk.write("f", "x");
    let text = desk.refused("Write", json!({"file_path": "f/g", "content": "x"}))?;
    ensure(text.contains('f') && desk.read("f") == b"x", || text)
}

fn odd_windows() -> Found {
    let desk = HeadlessSession::new();
    desk.write("f", "1\n2\n3\n");
    for (offset, limit) in [
        (json!(-1), json!(1)),
        (json!(0), json!(0)),
        (json!("a"), json!("b")),
        (json!(u64::MAX), json!(1)),
        (json!(1), json!(u64::MAX)),
        (json!(1e300), json!(null)),
        (json!(1.5), json!(1)),
        (json!(4), json!(1)),
    ] {
        let (_, text) = desk.call("Read", json!({"file_path": "f", "offset": offset, "limit": limit}));
        ensure(!text.is_empty() && text.len() < 1000, || format!("{offset} {limit}: {text}"))?;
    }
    Ok(())
}
