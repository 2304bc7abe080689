//! Rewinding files and conversations by keys, across a crash, and undoing it.

use crate::support::home::Home;
use crate::support::llm::{Answer, Chat, MockLlm};
use crate::support::pty::Pty;

/// A model that runs one requested command, and then reports it.
fn obeys() -> MockLlm {
    MockLlm::by(|chat: &Chat| {
        let wanted = chat.user();
        let done = chat.messages().last().is_some_and(|last| last["role"] == "tool");
        match (wanted.strip_prefix("do "), done) {
            (Some(command), false) => Answer::new().bash(&format!("c{}", chat.messages().len()), command),
            _ => Answer::say(&format!("Ready with: {wanted}")),
        }
    })
}

fn home_of(llm: &MockLlm) -> Home {
    let home = Home::with(llm);
    home.rules("rules:\n  - {tool: 'Bash(*)', behavior: allow}\n");
    home.write("file.txt", "one\ntwo\n");
    home.write(".gitignore", "ignored\n");
    home.write("ignored", "as it is");
    home
}

fn threads(home: &Home) -> serde_json::Value {
    home.ok(&["threads", "list", "--json"]).json()
}

#[test]
fn a_commands_changes_are_undone_and_redone() {
    let llm = obeys();
    let home = home_of(&llm);
    home.ok(&[
        "-p",
        "--permission-mode",
        "yolo",
        "do printf 'one\\n2\\n' > file.txt; mkdir sub; echo new > sub/made.txt; echo x > ignored",
    ]);
    assert_eq!(home.read("file.txt"), "one\n2\n");
    // The terminal is killed after the second change; snapshots are kept.
    let pty = Pty::start(&home, &["-c", "--permission-mode", "yolo"], 100, 30);
    pty.ready();
    pty.say("do rm file.txt; echo more >> sub/made.txt");
    pty.shows("Ready with: do rm file.txt");
    assert!(!home.work().join("file.txt").exists());
    pty.kill();

    let mut pty = Pty::start(&home, &["-c", "--permission-mode", "yolo"], 100, 30);
    pty.ready();
    pty.shows("Ready with: do rm file.txt");
    pty.send("\x1b");
    pty.shows("again: rewind to an earlier message");
    pty.send("\x1b");
    pty.shows("1/2");
    // The first message is the last row.
    pty.send("\x1b[F\r");
    pty.shows("A file.txt  +2");
    pty.shows("D sub/made.txt");
    pty.send("\r");
    pty.shows("can undo this");
    assert_eq!(home.read("file.txt"), "one\ntwo\n");
    assert!(!home.work().join("sub").exists());
    assert_eq!(home.read("ignored"), "x\n", "ignored files are left alone");
    pty.shows("❯ do printf");
    let rows = threads(&home);
    assert_eq!(rows.as_array().map(Vec::len), Some(2), "{rows}");

    // Undo the rewind.
    pty.send("\x15/rewind\r");
    pty.shows("undo the last rewind");
    pty.send("\r");
    pty.shows("conversation and files");
    pty.send("\r");
    pty.shows("can undo this too");
    assert!(!home.work().join("file.txt").exists());
    assert_eq!(home.read("sub/made.txt"), "new\nmore\n");
    pty.shows("Ready with: do rm file.txt");
    pty.quit();
    // The repository is untouched, and the folder has no new files.
    assert!(!home.work().join(".git").exists());
}

#[test]
fn changes_are_shown_and_a_fork_diverges() {
    let llm = obeys();
    let home = home_of(&llm);
    let mut pty = Pty::start(&home, &["--permission-mode", "yolo"], 100, 30);
    pty.ready();
    pty.say("do echo three >> file.txt");
    pty.shows("Ready with: do echo three");
    pty.say("/diff");
    pty.shows("1 file differs");
    pty.shows("file.txt +1 −0");
    pty.shows("] file · t hunk");
    pty.send("]\r");
    pty.shows("… 3 more");
    pty.send("q");
    pty.wait("the viewer closed", |view| !view.on_other_screen());
    pty.say("/fork");
    pty.shows("here: the whole conversation");
    pty.send("\r");
    pty.shows("fork of “do echo three >> file.txt” up to message 4; the original stays unchanged");
    pty.say("only in the copy");
    pty.shows("Ready with: only in the copy");
    let other = threads(&home)[1]["id"].as_str().expect("an id").to_owned();
    pty.say(&format!("/compare {other}"));
    pty.shows("messages are the same in both");
    pty.shows("only in the copy");
    pty.send("q");
    pty.wait("the viewer closed", |view| !view.on_other_screen());
    pty.say("/rename A name 漢字");
    pty.shows("renamed to");
    pty.say("/export");
    pty.shows("written to");
    let exports = std::fs::read_dir(home.root().join("aye/data/exports")).expect("a folder beside the store");
    assert_eq!(exports.count(), 1);
    let work = std::fs::read_dir(home.work()).expect("the project");
    assert!(
        work.flatten().all(|file| !file.file_name().to_string_lossy().starts_with("aye-")),
        "nothing here"
    );
    pty.quit();

    let rows = threads(&home);
    assert_eq!(rows[0]["title"], "A name 漢字");
    assert_eq!(rows[0]["fork"]["from"], rows[1]["id"]);
    let copy = rows[0]["id"].as_str().expect("an id").to_owned();
    let found = home.ok(&["threads", "search", "ONLY in the copy", "--json"]).json();
    assert_eq!((found.as_array().map(Vec::len), &found[0]["thread"]["id"]), (Some(1), &rows[0]["id"]));
    let html = home.ok(&["threads", "export", &copy, "--format", "html"]).stdout;
    assert!(html.contains("echo three &gt;&gt; file.txt") && !html.contains("<script"), "{html}");
    home.ok(&["threads", "pin", &copy]);
    home.ok(&["threads", "rename", &copy, "again"]);
    let forked = home.ok(&["threads", "fork", &copy, "--messages", "0"]).stdout;
    let rows = threads(&home);
    assert_eq!((&rows[0]["title"], &rows[0]["pinned"]), (&"again".into(), &true.into()));
    assert!(rows.to_string().contains(forked.trim()), "{rows}");
    home.ok(&["threads", "delete", &copy]);
    assert_eq!(threads(&home).as_array().map(Vec::len), Some(2));
}

#[test]
fn a_folder_that_is_too_large_is_reported_and_the_step_runs() {
    let llm = obeys();
    let home = home_of(&llm);
    let config = std::fs::read_to_string(home.root().join("aye/config/config.toml")).expect("settings");
    home.config(&format!("{config}\n[snapshots]\nmax_folder_mib = 1\nmax_file_mib = 5\n"));
    home.write("big", &"x".repeat(2 << 20));
    let mut pty = Pty::start(&home, &["--permission-mode", "yolo"], 100, 30);
    pty.ready();
    pty.say("do echo three >> file.txt");
    pty.shows("a rewind cannot restore the files of this step");
    pty.shows("Ready with: do echo three");
    pty.wait("the end of the run", |view| !view.is_active());
    pty.send("\x1b");
    pty.shows("again: rewind");
    pty.send("\x1b");
    pty.shows("1/1");
    pty.send("\r");
    pty.shows("files stay unchanged: the files of");
    pty.send("\x1b");
    pty.wait("the list closed", |view| !view.has("Rewind"));
    pty.quit();
    let told = home.ok(&["--permission-mode", "yolo", "-p", "do echo four >> file.txt"]).stderr;
    let reports = told.matches("aye: a rewind cannot restore the files of this step: the files of").count();
    assert_eq!(reports, 1, "{told}");
}

/// Viewing changes runs none of the programs that a repository names.
#[test]
fn changes_against_git_run_nothing_from_the_repository() {
    let llm = obeys();
    let home = home_of(&llm);
    home.write(".gitattributes", "*.txt filter=evil diff=evil\n*.x filter=a=b\n");
    home.write("staged.txt", "one\n");
    home.write("gone.txt", "gone\n");
    home.write("same.x", "same\n");
    home.git(&["init", "-q"]);
    home.git(&["add", "."]);
    home.git(&["commit", "-qm", "first"]);
    let evil = home.root().join("evil");
    let ran = home.root().join("ran");
    std::fs::write(&evil, format!("#!/bin/sh\necho $0 \"$@\" >> {}\ncat\n", ran.display())).expect("written");
    std::fs::set_permissions(&evil, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("succeeds");
    let evil = evil.to_str().expect("a name").to_owned();
    home.write("staged.txt", "one\nstaged\n");
    home.git(&["add", "staged.txt"]);
    for name in [
        "filter.evil.clean",
        "filter.evil.process",
        "filter.a=b.clean",
        "diff.evil.textconv",
        "diff.evil.command",
    ] {
        home.git(&["config", name, &evil]);
    }
    for name in ["core.fsmonitor", "diff.external", "core.pager", "core.sshCommand", "core.editor"] {
        home.git(&["config", name, &evil]);
    }
    home.git(&["config", "filter.a=b.required", "true"]);
    let hooks = home.work().join(".git/hooks");
    for hook in ["post-index-change", "fsmonitor-watchman", "reference-transaction"] {
        std::fs::copy(&evil, hooks.join(hook)).expect("copied");
    }
    home.write("file.txt", "one\n2\n");
    home.write("new 漢字.txt", "new\n");
    // Its timestamp changed, its text did not.
    home.write("same.x", "same\n");
    std::fs::remove_file(home.work().join("gone.txt")).expect("removed");

    let mut pty = Pty::start(&home, &[], 100, 40);
    pty.ready();
    pty.say("/diff git");
    pty.shows("4 files differ");
    pty.shows("compared with git: ");
    pty.shows("file.txt +1 −1");
    pty.shows("deleted gone.txt +0 −1");
    pty.shows("new new 漢字.txt +1 −0");
    pty.shows("staged.txt +1 −0");
    assert!(!pty.look(super::support::pty::View::all).contains("same.x"));
    pty.send("q");
    pty.wait("the viewer closed", |view| !view.on_other_screen());
    assert!(!ran.exists(), "{}", std::fs::read_to_string(&ran).unwrap_or_default());
    std::fs::remove_dir_all(home.work().join(".git")).expect("removed");
    pty.say("/diff git");
    pty.shows("not a git repository");
    pty.quit();
}
