//! `aye -w`: work in a git worktree of its own, and `aye worktrees`.

use serde_json::json;

use crate::support::home::Home;
use crate::support::llm::{Answer, Chat, MockLlm};

/// A model that carries out the command in its task, and is done.
fn model() -> MockLlm {
    MockLlm::by(|chat: &Chat| match chat.results().len() {
        0 => Answer::new().bash("c1", &chat.user()),
        _ => Answer::say("Done."),
    })
}

/// A project with one commit.
fn project(llm: &MockLlm) -> Home {
    let home = Home::with(llm);
    let user = "[user]\n\tname = t\n\temail = t@example.org\n";
    std::fs::create_dir_all(home.root().join("home")).expect("a folder");
    std::fs::write(home.root().join("home/.gitconfig"), user).expect("written");
    home.write("a.txt", "one\n");
    home.git(&["init", "-q", "-b", "main"]);
    home.git(&["add", "-A"]);
    home.git(&["commit", "-q", "-m", "Begin"]);
    home
}

const COMMIT: &str = "git commit -q -a -m change";

#[test]
fn work_in_worktrees_is_apart_until_it_is_merged() {
    let llm = model();
    let home = project(&llm);
    home.write("a.txt", "one, not committed\n");
    let yolo = ["--permission-mode", "yolo"];
    let start =
        |name: &str, task: &str| home.aye(&[&yolo[..], &["-w", name, "-p", task]].concat()).run().exits(0);
    start("left", &format!("echo left > b.txt; git add b.txt; {COMMIT}"))
        .says("worktree left on branch aye/left; 1 changed file that is not committed stays where it is");
    start("right", "cat a.txt > seen; echo right > b.txt");
    assert!(!home.work().join("b.txt").exists(), "the checkout is as it was");

    let listed = home.ok(&["worktrees", "list", "--json"]).json();
    assert_eq!(listed[0]["branch"], "aye/left", "{listed:#}");
    assert_eq!((&listed[0]["commits"], &listed[0]["uncommitted"]), (&json!(1), &json!(0)));
    assert_eq!((&listed[1]["commits"], &listed[1]["uncommitted"]), (&json!(0), &json!(2)));
    assert_eq!(listed[1]["conversations"], 1);
    let right = std::path::PathBuf::from(listed[1]["path"].as_str().expect("a path"));
    assert_eq!(std::fs::read_to_string(right.join("seen")).expect("written"), "one\n");
    home.ok(&["worktrees", "list"]).prints("1 commit").prints("2 files not committed");
    home.ok(&["worktrees", "diff", "left"]).prints("+left");

    home.aye(&["worktrees", "merge", "right"]).run().exits(1).says("2 files not committed; commit first");
    home.aye(&["worktrees", "merge", "left"])
        .stdin("n\n")
        .run()
        .exits(1)
        .prints("+left")
        .prints("nothing changed");
    assert!(!home.work().join("b.txt").exists());
    home.aye(&["worktrees", "merge", "left"]).stdin("y\n").run().exits(0).prints("merged, not committed yet");
    assert_eq!(home.read("b.txt"), "left\n");
    assert_eq!(home.read("a.txt"), "one, not committed\n", "what was not committed is still there");

    // Not merged as long as it is not committed.
    home.aye(&["worktrees", "remove", "left"])
        .stdin("n\n")
        .run()
        .exits(1)
        .prints("1 commit, which would be lost");
    home.git(&["commit", "-q", "-m", "Merge"]);
    home.ok(&["worktrees", "remove", "left"]).prints("removed worktree left and its branch");
    home.aye(&["worktrees", "remove", "right"]).run().exits(1);
    assert!(right.join("b.txt").exists(), "without an answer nothing is removed");
    home.ok(&["worktrees", "remove", "right", "--force"]);
    home.ok(&["worktrees", "list"]).prints("no worktrees");
    assert!(!right.exists());
}

#[test]
fn a_merge_with_conflicts_changes_nothing() {
    let llm = model();
    let home = project(&llm);
    // Programs of the repository do not run.
    home.git(&["config", "merge.own.driver", "touch ran; false"]);
    home.write(".gitattributes", "a.txt merge=own\n");
    home.write(".git/hooks/post-checkout", "#!/bin/sh\ntouch \"$PWD/ran\"\n");
    home.git(&["add", "-A"]);
    home.git(&["commit", "-q", "-m", "More"]);
    home.aye(&["--permission-mode", "yolo", "-w", "w", "-p", &format!("echo two > a.txt; {COMMIT}")])
        .run()
        .exits(0);
    home.write("a.txt", "three\n");
    home.git(&["commit", "-q", "-a", "-m", "Three"]);
    home.aye(&["worktrees", "merge", "w", "--yes"])
        .run()
        .exits(1)
        .says("aye/w conflicts with this branch in a.txt; nothing changed");
    assert_eq!(home.read("a.txt"), "three\n");
    assert!(!home.work().join("ran").exists() && !home.work().join(".git/MERGE_HEAD").exists());
}

#[test]
fn a_worktree_is_trusted_as_its_checkout_is() {
    let llm = model();
    let home = project(&llm);
    home.write(".aye/permissions.yaml", "rules: [{tool: 'Bash(touch *)', behavior: allow}]\n");
    home.git(&["add", "-A"]);
    home.git(&["commit", "-q", "-m", "Rules"]);
    let worktree = |flags: &[&str]| home.aye(&[flags, &["-w", "w", "-p", "touch made"]].concat()).run();
    worktree(&[]).exits(3).says("this folder is not trusted");
    worktree(&["--trust"]).exits(0);
    worktree(&[]).exits(3).says("this folder is not trusted");
    let names = home.ok(&["worktrees", "list", "--json"]).json();
    assert_eq!(names.as_array().map(Vec::len), Some(1), "it is one and the same worktree");
    for (name, why) in [("../x", "cannot name a worktree"), ("-x", "cannot name a worktree")] {
        home.aye(&["-p", "hi", &format!("--worktree={name}")]).run().exits(2).says(why);
    }
    home.aye(&["-C", names[0]["path"].as_str().expect("a path"), "-w", "other", "-p", "hi"])
        .run()
        .exits(2)
        .says("is a worktree itself");
    home.aye(&["-C", "..", "-w", "other", "-p", "hi"]).run().exits(2).says("is no git repository");
}
