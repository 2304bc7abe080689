use std::path::Path;
use std::sync::Arc;

use serde_json::json;

use crate::FileArtifacts;
use crate::testing::Sandbox;
use aye_core::contract::content::ContentBlock;
use aye_core::contract::storage::ArtifactStore as _;

#[tokio::test]
async fn a_file_is_shown_with_line_numbers_and_paged() {
    let sandbox = Sandbox::new();
    sandbox.write("a.txt", "one\r\ntwo\r\n");
    assert_eq!(sandbox.ok("Read", json!({"file_path": "a.txt"})).await, "1\tone\n2\ttwo");
    let many = (1..=3000).fold(String::new(), |all, n| all + &format!("l{n}\n"));
    sandbox.write("many", many);
    let text = sandbox.ok("Read", json!({"file_path": "many"})).await;
    assert!(
        text.ends_with("2000\tl2000\n[truncated: lines 1-2000 of 3000; continue with offset 2001]"),
        "{text}"
    );
    let text = sandbox.ok("Read", json!({"file_path": "many", "offset": 2999, "limit": 5})).await;
    assert_eq!(text, "2999\tl2999\n3000\tl3000");
    let text = sandbox.refused("Read", json!({"file_path": "many", "offset": 3001})).await;
    assert_eq!(text, "many has only 3000 lines; line 3001 does not exist");
    sandbox.write("empty", "");
    assert_eq!(sandbox.ok("Read", json!({"file_path": "empty"})).await, "(empty is empty)");
}

#[tokio::test]
async fn binary_files_are_refused_with_their_kind() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.path("dir")).expect("created");
    sandbox.write("x.pdf", "%PDF-1.7 ...");
    sandbox.write("prog", b"\x7fELF\x02\x01\x01\0\0");
    sandbox.write("bin", b"\xff\xfe\0");
    sandbox.link("gone", "dangling");
    rustix::fs::mkfifoat(rustix::fs::CWD, sandbox.path("fifo"), 0o600.into()).expect("a FIFO");
    let _socket = std::os::unix::net::UnixListener::bind(sandbox.path("sock")).expect("a socket");
    for (path, word) in [
        ("dir", "dir is a folder; use List"),
        ("x.pdf", "a PDF document"),
        ("prog", "an ELF program"),
        ("bin", "UTF-16 text or binary data"),
        ("dangling", "a link to a missing file"),
        ("gone", "not found: gone does not exist"),
        ("fifo", "fifo is a FIFO"),
        ("sock", "sock is a socket"),
        ("/dev/zero", "a device"),
        ("/dev/stdin", "not a regular file"),
        ("/proc/self/environ", "belongs to a process"),
        ("src/\0../x", "NUL byte"),
        ("", "`file_path` is empty"),
    ] {
        let text = sandbox.refused("Read", json!({"file_path": path})).await;
        if path != "/dev/stdin" {
            assert!(text.contains(word), "{path}: {text}");
        }
    }
}

#[tokio::test]
async fn an_image_is_shown_as_one() {
    let sandbox = Sandbox::new();
    sandbox.write("x.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x02\x80\0\0\x01\xe0rest");
    let result = sandbox.call("Read", json!({"file_path": "x.png"})).await.expect("shown");
    let [ContentBlock::Image { media_type, data }] = &result.images[..] else { panic!("{result:?}") };
    assert_eq!(
        (media_type.as_str(), data.as_str()),
        ("image/png", "iVBORw0KGgoAAAANSUhEUgAAAoAAAAHgcmVzdA==")
    );
    assert_eq!(result.message.as_deref(), Some("x.png: image/png, 640×480 pixels, 28 bytes"));
    let file = std::fs::File::options().write(true).open(sandbox.path("x.png")).expect("exists");
    file.set_len((5 << 20) + 1).expect("extended");
    let text = sandbox.refused("Read", json!({"file_path": "x.png"})).await;
    assert!(text.contains("the maximum is 3.75 MiB"), "{text}");
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).expect("exists");
    line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("a number")
}

#[tokio::test]
async fn a_huge_sparse_file_costs_no_memory() {
    let sandbox = Sandbox::new();
    let path = sandbox.write("big", "");
    std::fs::File::options()
        .write(true)
        .open(&path)
        .expect("exists")
        .set_len(10 << 30)
        .expect("a sparse file");
    let before = resident_kib();
    let result = sandbox.call("Read", json!({"file_path": "big"})).await.expect("shown");
    assert!(result.is_success() && result.model_text().contains("truncated"), "{result:?}");
    // The same with text at its start, so that it is read at all.
    std::fs::write(&path, "first\nsecond".to_owned() + &"x".repeat(9000)).expect("written");
    std::fs::File::options()
        .write(true)
        .open(&path)
        .expect("exists")
        .set_len(10 << 30)
        .expect("a sparse file");
    let text = sandbox.ok("Read", json!({"file_path": "big", "limit": 1})).await;
    assert_eq!(text, "1\tfirst\n[truncated: lines 1-1; continue with offset 2]");
    assert!(resident_kib().saturating_sub(before) < 64 << 10);
}

#[tokio::test]
async fn paths_may_be_relative_absolute_or_below_home() {
    let sandbox = Sandbox::new();
    sandbox.write("a", "x");
    std::fs::write(sandbox.workspace.home.join("h"), "home").expect("written");
    let absolute = sandbox.path("a").to_string_lossy().into_owned();
    assert_eq!(sandbox.ok("Read", json!({"file_path": absolute})).await, "1\tx");
    assert_eq!(sandbox.ok("Read", json!({"file_path": "~/h"})).await, "1\thome");
    assert!(Path::new("/etc/passwd").exists());
    sandbox.ok("Read", json!({"file_path": "/etc/passwd"})).await;
}

/// A conversation that another machine, or a data folder in another place, kept output of.
#[tokio::test]
async fn kept_output_is_read_where_its_file_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let artifacts = Arc::new(FileArtifacts::new(folder.path()));
    let sandbox = Sandbox::with(|env| env.artifacts = artifacts.clone());
    let many = (1..=3000).fold(String::new(), |all, n| all + &format!("l{n}\n"));
    artifacts.keep_artifact(&"thread-1".into(), "result-1.txt", many.into()).await.expect("it is kept");
    artifacts.keep_artifact(&"thread-1".into(), "notes.txt", "secret".into()).await.expect("it is kept");
    artifacts.keep_artifact(&"thread-2".into(), "result-2.txt", "secret".into()).await.expect("it is kept");
    let text = sandbox.ok("Read", json!({"file_path": "/old/place/result-1.txt", "offset": 2999})).await;
    assert_eq!(text, "2999\tl2999\n3000\tl3000");
    let text = sandbox.refused("Read", json!({"file_path": "/old/place/result-1.txt", "offset": 3001})).await;
    assert!(text.ends_with("has only 3000 lines; line 3001 does not exist"), "{text}");
    for missing in
        ["/old/place/result-2.txt", "/old/place/result-3.txt", "/old/place/notes.txt", "/old/place/.."]
    {
        let text = sandbox.refused("Read", json!({"file_path": missing})).await;
        assert!(!text.contains("secret"), "{missing}: {text}");
    }
    // A file that is there counts.
    let here = sandbox.write("result-1.txt", "here\n");
    assert_eq!(sandbox.ok("Read", json!({"file_path": here})).await, "1\there");
}
