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

/// A project with an agent that gives three tasks to three subagents, each in a worktree of its own.
fn team(llm: &MockLlm) -> Home {
    let home = project(llm);
    let agent = |name: &str, text: &str| {
        let folder = home.root().join("aye/config/agents");
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join(format!("{name}.md")), text).expect("written");
    };
    agent("lead", "---\ndescription: Leads.\ndelegates: [maker]\n---\nYou lead.\n");
    agent("maker", "---\ndescription: Makes.\nworktree: true\n---\nYou make.\n");
    home
}

/// `lead` gives these commands to subagents in one step; each runs its own and commits.
fn lead_of(tasks: &'static [&'static str]) -> MockLlm {
    MockLlm::by(move |chat: &Chat| match (chat.system().contains("You make."), chat.results().len()) {
        (false, 0) => tasks.iter().enumerate().fold(Answer::new(), |answer, (nth, task)| {
            answer.call(&format!("t{nth}"), "agent_run_maker", json!({ "prompt": task }))
        }),
        (false, _) => Answer::say("All are done."),
        (true, 0) => Answer::new().bash("c1", &chat.user()),
        (true, _) => Answer::say("Made."),
    })
}

#[test]
fn three_subagents_work_side_by_side_and_are_merged_by_review() {
    let llm = lead_of(&[
        "echo one > one.txt; git add -A; git commit -q -m one",
        "echo two > two.txt; git add -A; git commit -q -m two",
        "echo three > three.txt; git add -A; git commit -q -m three",
    ]);
    let home = team(&llm);
    home.aye(&["-p", "go", "--agent", "lead"]).run().exits(3);
    // The questions of all three are in one inbox, each about its own folder.
    let open = home.open();
    assert_eq!(open.len(), 3, "{open:#?}");
    assert!(open.iter().all(|question| question["child"]["agent"] == "maker"), "{open:#?}");
    for question in &open {
        home.ok(&["approve", &crate::support::home::id_of(question)]);
    }
    let out = home.ok(&["-c", "-p"]);
    assert!(out.stdout.contains("All are done."), "{out:?}");
    for name in ["one.txt", "two.txt", "three.txt"] {
        assert!(!home.work().join(name).exists(), "the checkout is as it was");
    }
    // The caller knows where the work is.
    let answer = llm.last().result("t0");
    assert!(
        answer.contains("Made.")
            && answer.contains("1 commit")
            && answer.contains("aye worktrees merge maker-"),
        "{answer}"
    );
    let listed = home.ok(&["worktrees", "list", "--json"]).json();
    let listed = listed.as_array().expect("a list").clone();
    assert_eq!(listed.len(), 3, "{listed:#?}");
    for worktree in &listed {
        assert_eq!((&worktree["commits"], &worktree["uncommitted"]), (&json!(1), &json!(0)), "{worktree:#}");
        let name = worktree["name"].as_str().expect("a name");
        assert!(name.starts_with("maker-"), "{name}");
        home.aye(&["worktrees", "merge", name])
            .stdin("y\n")
            .run()
            .exits(0)
            .prints("diff --git")
            .prints("merged");
        home.git(&["commit", "-q", "-m", "Merge"]);
    }
    for (name, text) in [("one.txt", "one\n"), ("two.txt", "two\n"), ("three.txt", "three\n")] {
        assert_eq!(home.read(name), text);
    }
    home.ok(&["audit", "--verify"]);
}

#[test]
fn a_subagent_that_changes_nothing_leaves_no_worktree() {
    let llm = lead_of(&["pwd > /dev/null"]);
    let home = team(&llm);
    let out = home.aye(&["-p", "go", "--agent", "lead", "--permission-mode", "yolo"]).run().exits(0);
    assert!(out.stdout.contains("All are done."), "{out:?}");
    assert_eq!(llm.last().result("t0"), "Made.");
    home.ok(&["worktrees", "list"]).prints("no worktrees");
}

#[test]
fn a_killed_process_leaves_a_worktree_in_which_another_continues() {
    let gate = crate::support::llm::Gate::default();
    let held = gate.clone();
    let mut waits = true;
    let llm =
        MockLlm::by(move |chat: &Chat| match (chat.system().contains("You make."), chat.results().len()) {
            (false, 0) => Answer::new().call("t", "agent_run_maker", json!({"prompt": "make it"})),
            (false, _) => Answer::say("All are done."),
            (true, 0) => Answer::new().bash("c1", "echo one >> made"),
            (true, 1) if std::mem::take(&mut waits) => Answer::say("Half").wait(&held),
            (true, 1) => Answer::new().bash("c2", "echo two >> made; git add -A; git commit -q -m made"),
            (true, _) => Answer::say("Made."),
        });
    let home = team(&llm);
    let yolo = ["--permission-mode", "yolo"];
    let run = home.aye(&[&["-p", "go", "--agent", "lead"][..], &yolo].concat()).spawn();
    crate::support::llm::until("the second step", || {
        llm.asked().iter().any(|chat| chat.system().contains("You make.") && chat.results().len() == 1)
    });
    run.signal(rustix::process::Signal::KILL);
    run.end().ends_by(rustix::process::Signal::KILL);
    gate.open();
    home.aye(&[&["-c", "-p"][..], &yolo].concat()).run().exits(0).prints("All are done.");
    let listed = home.ok(&["worktrees", "list", "--json"]).json();
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed:#}");
    let made = std::path::Path::new(listed[0]["path"].as_str().expect("a path")).join("made");
    assert_eq!(std::fs::read_to_string(made).expect("written"), "one\ntwo\n");
}

#[test]
fn the_rules_of_the_checkout_hold_in_its_worktrees() {
    let llm = model();
    let home = project(&llm);
    // Neither committed nor trusted: it restricts all the same, and allows nothing.
    home.write(
        ".aye/permissions.yaml",
        "rules:\n  - {tool: 'Bash(touch *)', behavior: deny}\n  - {tool: 'Bash(rm *)', behavior: allow}\n",
    );
    let worktree = |task: &str, code: i32| {
        home.aye(&["-w", "w", "-p", task]).run().exits(code);
    };
    home.aye(&["-w", "w", "--permission-mode", "yolo", "-p", "touch made"]).run().exits(0);
    let listed = home.ok(&["worktrees", "list", "--json"]).json();
    let path = std::path::PathBuf::from(listed[0]["path"].as_str().expect("a path"));
    assert!(!path.join("made").exists(), "denied");
    assert!(llm.last().result("c1").contains("Bash(touch *)"), "{}", llm.last().result("c1"));
    worktree("rm a.txt", 3);
    home.write(".aye/permissions.yaml", "rules: [");
    home.aye(&["-w", "w", "--permission-mode", "yolo", "-p", "echo x"]).run().exits(3);
}

#[test]
fn dependencies_are_there_to_be_read_only() {
    let llm = model();
    let home = project(&llm);
    home.write(".gitignore", "node_modules/\n");
    home.git(&["add", "-A"]);
    home.git(&["commit", "-q", "-m", "Ignore"]);
    home.write("node_modules/dep/index.js", "original\n");
    home.write("vendor/dep/a.c", "not ignored\n");
    // Where commands may run outside the sandbox unasked, nothing is linked.
    home.aye(&["-w", "bare", "-p", "ls"]).run().exits(0);
    let path = |nth: usize| {
        let listed = home.ok(&["worktrees", "list", "--json"]).json();
        std::path::PathBuf::from(listed[nth]["path"].as_str().expect("a path"))
    };
    assert!(!path(0).join("node_modules").exists());
    let ask = ["--config", "sandbox.missing=ask", "--permission-mode", "auto"];
    let task = "cat node_modules/dep/index.js > seen; echo changed > node_modules/dep/index.js; touch node_modules/own";
    let out = home.aye(&[&ask[..], &["-w", "linked", "-p", task]].concat()).run();
    let linked = path(1);
    assert!(linked.join("node_modules/dep").is_symlink(), "{}", out.stderr);
    assert!(!linked.join("vendor").exists(), "git does not ignore it");
    assert_eq!(home.read("node_modules/dep/index.js"), "original\n");
    if out.status.success() {
        assert_eq!(std::fs::read_to_string(linked.join("seen")).expect("read"), "original\n");
        assert!(linked.join("node_modules/own").exists(), "the folder itself is its own");
    }
    let listed = home.ok(&["worktrees", "list", "--json"]).json();
    assert_eq!(listed[1]["uncommitted"], json!(i32::from(out.status.success())), "links are ignored");
    // In yolo commands run outside of it: the links go, and what is not one stays.
    let task = "echo changed > node_modules/dep/index.js; echo mine > node_modules/mine";
    let yolo = ["--config", "sandbox.missing=ask", "--permission-mode", "yolo", "-w", "linked", "-p", task];
    home.aye(&yolo).run().exits(0);
    assert!(!linked.join("node_modules/dep").exists() && linked.join("node_modules/mine").exists());
    assert_eq!(home.read("node_modules/dep/index.js"), "original\n");
    home.ok(&["worktrees", "remove", "linked", "--force"]);
    assert_eq!(home.read("node_modules/dep/index.js"), "original\n");
}
