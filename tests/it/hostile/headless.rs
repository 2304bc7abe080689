//! Headless rows: effects of a pipe, a full disk, a signal and odd arguments on a run without a terminal.

use std::process::{Command, Stdio};

use rustix::process::Signal;

use super::of_area;
use crate::support::home::Home;
use crate::support::llm::{Answer, MockLlm, Part};

pub const CHECKS: &[&str] = &["HL004", "HL005", "HL006", "HL101o", "HL102o", "HL103o", "HL104o", "HL105o"];

#[test]
fn every_row_is_known() {
    for row in of_area("headless") {
        assert!(CHECKS.contains(&row.id.as_str()), "{}", row.id);
    }
}

/// Runs a shell line with the program as `$0`.
fn sh(home: &Home, script: &str) -> std::process::Output {
    Command::new("bash")
        .args(["-c", script, env!("CARGO_BIN_EXE_aye")])
        .env_clear()
        .envs(home.env())
        .current_dir(home.work())
        .stdin(Stdio::null())
        .output()
        .expect("runs")
}

/// HL004
#[test]
fn a_full_disk_on_stdout_is_an_error() {
    let home = Home::new();
    for args in [
        "-p help",
        "-p help --output-format json",
        "-p help --output-format stream-json",
        "threads list",
        "config show",
        "doctor",
        "models",
        "skills list",
        "man",
        "completion bash",
        "--version",
        "--help",
    ] {
        let out = sh(&home, &format!("\"$0\" {args} > /dev/full"));
        assert_eq!(out.status.code(), Some(1), "{args}: {out:?}");
    }
}

/// HL101o
#[test]
fn a_closed_reader_or_stream_does_not_panic() {
    let home = Home::new();
    for script in [
        "\"$0\" -p help | head -c 1 > /dev/null; exit ${PIPESTATUS[0]}",
        "\"$0\" -p help --output-format stream-json | true; exit ${PIPESTATUS[0]}",
        "\"$0\" man | head -n 1 > /dev/null; exit ${PIPESTATUS[0]}",
        "\"$0\" -p help >&-",
        "\"$0\" -p help 2>&-",
        "\"$0\" -p help <&- >&- 2>&-",
        "\"$0\" -p help 2>/dev/full",
    ] {
        let out = sh(&home, script);
        // An unfinished run whose reader went away is stopped, and says so.
        let is_stopped = out.status.code() == Some(1)
            && String::from_utf8_lossy(&out.stderr).contains("stdout was closed");
        assert!(out.status.code() == Some(0) || is_stopped, "{script}: {out:?}");
        assert!(!String::from_utf8_lossy(&out.stderr).contains("panicked"), "{script}: {out:?}");
    }
    home.ok(&["threads", "list"]);
}

/// HL005
#[test]
fn no_flag_is_read_from_a_value() {
    let llm = MockLlm::by(|_| Answer::say("ok"));
    let home = Home::with(&llm);
    for (args, text) in [
        (&["-p", "--", "--settings=/tmp/evil"][..], "--settings=/tmp/evil"),
        (&["-p", "--", "-rf"], "-rf"),
        (&["-p", "--", "--permission-mode=yolo"], "--permission-mode=yolo"),
        (&["-p=--config=permission_mode=yolo"], "--config=permission_mode=yolo"),
        (&["--print=--trust"], "--trust"),
        (&["-p", "--", "threads"], "threads"),
        (&["-p", "-"], "-"),
        (&["-p", "a\nb\u{1b}[2J\t\u{202e}"], "a\nb\u{1b}[2J\t\u{202e}"),
    ] {
        home.aye(args).run().exits(0);
        assert_eq!(llm.last().user(), text, "{args:?}");
    }
    for args in [
        &["--prompt=--settings=/tmp/evil"][..],
        &["-p", "--prompt=--settings=/tmp/evil"],
        &["-p", "-x"],
        &["-p", ""],
        &["-p", "a", "b"],
        &["-p", "x", "-c", "-r", "y"],
        &["-p", "x", "--max-turns", "-1"],
        &["threads"],
        &["threads", "show", ""],
        &["threads", "delete", "%"],
        &["approvals", "approve", "\u{1b}[2J"],
        &["-p", "x", "-r", "' OR 1=1 --"],
        &["--nothing"],
        &["-p", "x", "--output-format", "\u{1b}"],
    ] {
        let out = home.aye(args).run();
        assert_eq!(out.status.code(), Some(2), "{args:?}: {}", out.stderr);
        assert!(!out.stderr.chars().any(aye::contract::display::is_unsafe), "{args:?}: {:?}", out.stderr);
    }
}

/// HL102o
#[test]
fn arguments_that_are_not_utf8_are_refused() {
    use std::os::unix::ffi::OsStrExt as _;
    let home = Home::new();
    let out = Command::new(env!("CARGO_BIN_EXE_aye"))
        .args(["-p".as_ref(), std::ffi::OsStr::from_bytes(b"a\xffb")])
        .env_clear()
        .envs(home.env())
        .output()
        .expect("runs");
    assert_eq!(out.status.code(), Some(2), "{out:?}");
}

/// HL006
#[test]
fn the_first_signal_cancels_and_the_second_ends() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let llm = MockLlm::answers([Answer::say("begun").part(Part::Hang), Answer::say("again")]);
        let home = Home::with(&llm);
        let mut run = home.aye(&["-p", "go", "--output-format", "stream-json"]).spawn();
        run.until_line("begun");
        run.signal(signal);
        let out = run.end();
        assert_eq!(out.status.code(), Some(code), "{out:?}");
        home.aye(&["-c", "-p", "again"]).run().exits(0);
        let said = llm.last().messages().iter().filter(|m| m["role"] == "user").count();
        assert_eq!(said, 2, "the first message is kept");
    }
    let llm = MockLlm::answers([
        Answer::new().bash("a", "trap '' TERM INT; echo up > up; sleep 30"),
        Answer::say("x"),
    ]);
    let home = Home::with(&llm);
    let run = home.aye(&["-p", "go", "--allowed-tools", "Bash"]).spawn();
    crate::support::llm::until("the command", || home.read("up") == "up\n");
    run.signal(Signal::INT);
    std::thread::sleep(std::time::Duration::from_millis(300));
    run.signal(Signal::INT);
    let out = run.end();
    assert_eq!(out.status.code(), Some(130), "{out:?}");
    home.ok(&["threads", "list"]);
}

/// HL103o
#[test]
fn stdin_of_every_kind() {
    let llm = MockLlm::by(|_| Answer::say("ok"));
    let home = Home::with(&llm);
    let binary: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    home.aye(&["-p", "look"]).stdin(binary).run().exits(0);
    home.aye(&["-p", "look"]).stdin("x".repeat(11 << 20)).run().exits(2).says("10 MiB");
    home.aye(&["-p", "look"]).stdin("").run().exits(0);
    home.aye(&["-p"]).stdin("only this").run().exits(0);
    assert_eq!(llm.last().user(), "only this");
    home.aye(&["-p"]).stdin(" \n\t").run().exits(2);
    home.aye(&["-p"]).run().exits(2);
    for script in [
        "\"$0\" -p look < /dev/zero",
        "\"$0\" -p look < /dev/tty",
        "\"$0\" -p look < .",
        "yes | \"$0\" -p look",
    ] {
        let out = sh(&home, &format!("{script} 2>&1"));
        assert!(out.status.code().is_some(), "{script}: {out:?}");
    }
}

/// HL104o
#[test]
fn only_the_answer_goes_to_stdout_and_json_escapes_it() {
    let text = "a\u{1b}]52;c;AA==\u{7}b\u{202e}c\u{9b}2J";
    let llm = MockLlm::by(move |_| Answer::say(text));
    let home = Home::with(&llm);
    for format in ["json", "stream-json"] {
        let out = home.ok(&["-p", "go", "--output-format", format]);
        assert!(!out.stdout.chars().any(aye::contract::display::is_unsafe), "{format}: {:?}", out.stdout);
        assert!(out.stdout.contains("\\u001b]52"), "{format}: {}", out.stdout);
    }
    // A pipe gets the answer verbatim.
    assert_eq!(home.ok(&["-p", "go"]).stdout, format!("{text}\n"));
}

/// HL105o
#[test]
fn unusable_working_folders() {
    let home = Home::new();
    for (script, code) in [
        ("mkdir gone; cd gone; rmdir ../gone; \"$0\" -p help", 2),
        ("\"$0\" -C nowhere -p help", 2),
        ("\"$0\" -C /dev/null -p help", 2),
        ("env -u HOME -u AYE_HOME \"$0\" --ephemeral -p help > /dev/null", 0),
        ("AYE_HOME=/dev/null \"$0\" -p help", 1),
        ("AYE_HOME=/proc/nothing \"$0\" -p help", 1),
    ] {
        let out = sh(&home, script);
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        let is = out.status.code() == Some(code)
            || (code == 0 && out.status.code() == Some(2))
            || (code == 1 && matches!(out.status.code(), Some(2 | 4)));
        assert!(is && !text.contains("panicked"), "{script}: {out:?}");
    }
}
