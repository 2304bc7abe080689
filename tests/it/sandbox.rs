//! Kernel enforcement of commands.

use crate::support::home::Home;
use crate::support::llm::{Answer, MockLlm};

/// Whether this machine can create the whole sandbox; without it there is nothing to test.
#[expect(clippy::print_stdout, reason = "a skipped test says so")]
pub fn has_all_layers() -> bool {
    let doctor = Home::new().ok(&["doctor"]).stdout;
    let has = doctor.contains("bubblewrap, Landlock and seccomp");
    if !has {
        println!("skipped: bubblewrap, Landlock and seccomp are not all here:\n{doctor}");
    }
    has
}

/// The kernel limits commands of shipped rules to reading, and a user's rule restores the right to write.
#[test]
fn commands_allowed_only_by_shipped_rules_cannot_write() {
    if !has_all_layers() {
        return;
    }
    let line = "find . -maxdepth 1 -writable";
    for (more, profile) in [(&[][..], "read"), (&["--allowed-tools", "Bash(find *)"], "workspace")] {
        for off in [&[][..], &["--config", "sandbox.enabled=false"]] {
            let llm = MockLlm::answers([Answer::new().bash("c1", line), Answer::say("Done.")]);
            let home = Home::with(&llm);
            home.ok(&[&["-p", "--config", "on_ask=deny"], off, more, &["--", "look"]].concat());
            let found = llm.last().result("c1");
            let profile = if off.is_empty() { profile } else { "outside" };
            assert_eq!(found.trim() == ".", profile != "read", "{more:?} {off:?}: {found}");
            let audit = home.ok(&["audit", "--json"]).stdout;
            assert!(audit.contains(&format!("\"profile\":\"{profile}\"")), "{profile}: {audit}");
            let exported = home.ok(&["threads", "export", &home.thread(), "--format", "md"]).stdout;
            assert!(exported.contains(&format!("succeeded: Bash ({profile})")), "{profile}: {exported}");
        }
    }
}

/// An approval lets a command change the project and nothing else; `--outside` lets it leave the sandbox.
#[test]
fn an_approval_is_for_the_workspace_unless_it_says_outside() {
    if !has_all_layers() {
        return;
    }
    let write = "echo in > inside.txt; echo out > ../outside.txt";
    // A folder that neither a sandboxed command nor most users can write to.
    let refused = format!("{write}; mkdir /opt/refused");
    for (more, line, is_out) in [(&[][..], refused.as_str(), false), (&["--outside"], write, true)] {
        let llm = MockLlm::answers([Answer::new().bash("c1", line), Answer::say("Done.")]);
        let home = Home::with(&llm);
        home.aye(&["-p", "go"]).run().exits(3);
        let shown = home.ok(&["approvals", "show", "perm_c1", "--json"]).stdout;
        assert!(shown.contains("\"profile\": \"workspace\""), "{shown}");
        home.ok(&[&["approve", "perm_c1", "--resume"], more].concat());
        assert!(home.work().join("inside.txt").exists());
        assert_eq!(home.root().join("outside.txt").exists(), is_out);
        let result = llm.last().result("c1");
        assert_eq!(result.contains("the sandbox (workspace) may have refused this"), !is_out, "{result}");
    }
}

/// Files that rules deny or ask about cannot be read by a command that does not name them; `/tmp` belongs to
/// the conversation.
#[test]
fn denied_files_are_masked_and_tmp_is_kept() {
    if !has_all_layers() {
        return;
    }
    let llm = MockLlm::answers([
        Answer::new().bash("c1", "sh look.sh > /tmp/seen 2>&1; true"),
        Answer::new().bash("c2", "cat /tmp/seen"),
        Answer::say("Done."),
    ]);
    let home = Home::with(&llm);
    home.write(".env", "KEY=canary\n");
    home.write("deep/secret.txt", "canary\n");
    home.write("plain.txt", "plain words\n");
    home.write("look.sh", "cat .e* deep/* plain.txt\n");
    home.rules("rules:\n  - {tool: 'Read(deep/**)', behavior: deny}\n  - {tool: Bash, behavior: allow}\n");
    home.ok(&["-p", "go"]);
    let result = llm.last().result("c2");
    assert!(result.contains("plain words") && !result.contains("canary"), "{result}");
    assert!(!std::path::Path::new("/tmp/seen").exists());
}

/// If too many files need masks, their folder is hidden, and the command runs.
#[test]
fn very_many_denied_files_hide_their_folder() {
    if !has_all_layers() {
        return;
    }
    let llm = MockLlm::answers([Answer::new().bash("c1", "sh look.sh"), Answer::say("Done.")]);
    let home = Home::with(&llm);
    for n in 0..600 {
        home.write(&format!("keys/{n}.pem"), "canary\n");
        home.write(&format!("mixed/{n}.pem"), "canary\n");
    }
    home.write("mixed/plain.txt", "plain words\n");
    home.write("other/plain.txt", "other words\n");
    home.write("look.sh", "cat */*; ls; ls keys mixed\n");
    home.rules("rules:\n  - {tool: 'Read(**/*.pem)', behavior: deny}\n  - {tool: Bash, behavior: allow}\n");
    home.ok(&["-p", "go"]);
    let result = llm.last().result("c1");
    assert!(result.contains("other words") && result.contains("mixed"), "{result}");
    assert!(!result.contains("canary") && !result.contains("plain words"), "{result}");
    assert!(result.contains("hidden from the command as a whole: mixed"), "{result}");
    assert!(!result.contains("as a whole: keys"), "nothing else is in it: {result}");
}

/// With more files to hide in the project's folder itself than can be masked, a command sees and changes the other entries.
#[test]
fn very_many_denied_files_in_the_root_leave_the_rest() {
    if !has_all_layers() {
        return;
    }
    for (more, line) in [("", "sh look.sh"), (", sandbox: read", "cat look.sh; sh look.sh")] {
        let llm = MockLlm::answers([Answer::new().bash("c1", line), Answer::say("Done.")]);
        let home = Home::with(&llm);
        for n in 0..600 {
            home.write(&format!("{n}.pem"), "canary\n");
        }
        home.write("plain.txt", "plain words\n");
        home.write("src/.env", "canary\n");
        home.write("look.sh", "cat 5.pem *.pem src/.env link; echo x > src/new; touch made; ls; exit 0\n");
        std::os::unix::fs::symlink("plain.txt", home.work().join("link")).expect("written");
        home.rules(&format!(
            "rules:\n  - {{tool: 'Read(**/*.pem)', behavior: deny}}\n  - {{tool: Bash, behavior: allow{more}}}\n"
        ));
        home.ok(&["-p", "go"]);
        let result = llm.last().result("c1");
        assert!(result.contains("plain words") && !result.contains("canary\n"), "{result}");
        assert!(result.contains("saw only the other entries of the project's folder"), "{result}");
        assert!(result.contains("'made': Read-only file system"), "{result}");
        assert_eq!(home.work().join("src/new").exists(), more.is_empty(), "{result}");
        assert!(!home.work().join("made").exists());
    }
}

/// Auto mode asks nothing about a sandboxed command, and asks when it wants to leave the sandbox.
#[test]
fn auto_asks_only_to_leave_the_sandbox() {
    if !has_all_layers() {
        return;
    }
    let out = serde_json::json!({"command": "touch ../out", "outside": true, "reason": "it belongs there"});
    let llm = MockLlm::answers([
        Answer::new().bash("c1", "mkdir made && touch made/x; touch ../out"),
        Answer::new().call("c2", "Bash", out),
        Answer::say("Done."),
    ]);
    let home = Home::with(&llm);
    home.aye(&["-p", "go", "--permission-mode", "auto"]).run().exits(3);
    assert!(home.work().join("made/x").exists() && !home.root().join("out").exists());
    let inbox = home.ok(&["approvals", "show", "perm_c2", "--json"]).stdout;
    assert!(inbox.contains("it wants to run outside the sandbox: it belongs there"), "{inbox}");
    assert!(inbox.contains("\"profile\": \"outside\""), "{inbox}");
    home.ok(&["approve", "perm_c2", "--resume"]);
    assert!(home.root().join("out").exists());
}

/// Code and searches limited to reading by the kernel ask nothing, and find no file covered by rules.
#[test]
fn kernel_enforced_limits_are_not_asked_about() {
    if !has_all_layers() {
        return;
    }
    let lines = [
        "grep -rh KEY .; sed -n '/plain/p' plain.txt",
        "awk 'BEGIN{while((getline l < \".env\") > 0) print l; print \"out\" > \"made.txt\"}'",
        "cat *.txt | head -n 1 | cut -d' ' -f1",
    ];
    let llm = MockLlm::answers([
        Answer::new().bash("c1", lines[0]),
        Answer::new().bash("c2", lines[1]),
        Answer::new().bash("c3", lines[2]),
        Answer::say("Done."),
    ]);
    let home = Home::with(&llm);
    home.write(".env", "KEY=canary\n");
    home.write("plain.txt", "plain words\n");
    home.ok(&["-p", "look", "--config", "on_ask=deny"]);
    let request = llm.last();
    let (first, second, third) = (request.result("c1"), request.result("c2"), request.result("c3"));
    assert!(first.contains("plain words") && !first.contains("canary"), "{first}");
    assert!(!second.contains("canary") && second.contains("made.txt"), "{second}");
    assert!(!home.work().join("made.txt").exists());
    assert_eq!(third.trim(), "plain");
}

/// Makes a folder that exists for sandboxed commands, too: `/tmp` and `/var/tmp` are private to each conversation, and
/// the checkout with its target directory may be in one of them.
fn folder_that_commands_see() -> Option<tempfile::TempDir> {
    let home = std::env::var_os("HOME").map(std::path::PathBuf::from);
    [Some(env!("CARGO_TARGET_TMPDIR").into()), home].into_iter().flatten().find_map(|place| {
        let place = place.canonicalize().ok()?;
        let is_private = place.starts_with("/tmp") || place.starts_with("/var/tmp");
        if is_private { None } else { tempfile::tempdir_in(place).ok() }
    })
}

/// The card of a retry shows the refusal, and its narrowest grant opens one folder for the sandbox.
#[test]
fn a_folder_is_opened_after_a_refusal() {
    if !has_all_layers() {
        return;
    }
    let Some(builds) = folder_that_commands_see() else {
        eprintln!("left out: neither the target directory nor the home is outside of /tmp");
        return;
    };
    let folder = builds.path().display().to_string();
    let line = format!("mkdir {folder}/new");
    let out = serde_json::json!({"command": line, "outside": true, "reason": "builds go there"});
    let llm = MockLlm::answers([
        Answer::new().bash("c1", &line),
        Answer::new().call("c2", "Bash", out),
        Answer::new().bash("c3", &format!("touch {folder}/new/x {folder}-other")),
        Answer::say("Done."),
    ]);
    let home = Home::with(&llm);
    home.rules("rules:\n  - {tool: 'Bash(touch *)', behavior: allow}\n");
    home.aye(&["-p", "go", "--permission-mode", "auto"]).run().exits(3);
    let shown = home.ok(&["approvals", "show", "perm_c2"]).stdout;
    assert!(shown.contains("it wants to run outside the sandbox: builds go there"), "{shown}");
    assert!(shown.contains("the sandbox refused "), "{shown}");
    assert!(shown.contains(&format!("Sandbox(writable = \"{folder}\")")), "{shown}");
    let counted = ["approve", "perm_c2", "--grant", "1", "--for", "5uses"];
    let refused = home.aye(&counted).run().exits(2);
    assert!(refused.stderr.contains("ends at a time or when revoked"), "{}", refused.stderr);
    home.ok(&["approve", "perm_c2", "--grant", "1", "--scope", "thread", "--resume"]);
    assert!(
        builds.path().join("new/x").exists() && !std::path::Path::new(&format!("{folder}-other")).exists()
    );
    let audit = home.ok(&["audit", "--json"]).stdout;
    assert!(audit.contains("\"opened\":{\"writable\":["), "{audit}");
}

/// Protected files that a sandboxed command creates below the root are set aside, and git asks before
/// replacing one.
#[test]
fn protected_files_below_the_root_are_unchanged() {
    if !has_all_layers() {
        return;
    }
    let write =
        "mkdir -p sub/.vscode; echo '{}' > sub/.vscode/tasks.json; echo obey > sub/AGENTS.md; echo a > sub/x";
    let llm = MockLlm::answers([
        Answer::new().bash("c1", write),
        Answer::new().bash("c2", "git checkout -q other"),
        Answer::say("Done."),
    ]);
    let home = Home::with(&llm);
    home.write("sub/AGENTS.md", "rules\n");
    home.write("CLAUDE.md", "one\n");
    let git = "git init -q -b main && git add . && git -c user.name=a -c user.email=a@b commit -qm one && \
               git checkout -qb other && echo two > CLAUDE.md && \
               git -c user.name=a -c user.email=a@b commit -qam two && git checkout -q main";
    let made = std::process::Command::new("sh").args(["-c", git]).current_dir(home.work()).status();
    assert!(made.expect("git starts").success());
    home.aye(&["-p", "go", "--permission-mode", "auto"]).run().exits(3);
    let read = |name: &str| std::fs::read_to_string(home.work().join(name)).expect("readable");
    assert_eq!((read("sub/AGENTS.md").as_str(), read("sub/x").as_str()), ("rules\n", "a\n"));
    assert_eq!(read("sub/set-aside-1-AGENTS.md"), "obey\n");
    assert!(!home.work().join("sub/.vscode").exists());
    let result = llm.last().result("c1");
    let told =
        "sub/AGENTS.md is protected: the command's version is in sub/set-aside-1-AGENTS.md; the original is";
    assert!(result.contains(told), "{result}");
    let shown = home.ok(&["approvals", "show", "perm_c2"]).stdout;
    assert!(shown.contains("`git checkout -q other` would change CLAUDE.md"), "{shown}");
    home.ok(&["approve", "perm_c2", "--resume"]);
    assert_eq!(read("CLAUDE.md"), "two\n");
}

/// Without namespaces, auto mode does not start and says what is missing.
#[test]
fn auto_needs_bubblewrap() {
    let home = Home::new();
    let path = home.root().join("no-programs");
    std::fs::create_dir(&path).expect("created");
    let path = path.display().to_string();
    let out = home.aye(&["-p", "help", "--permission-mode", "auto"]).env("PATH", &path).run();
    let out = out.exits(2);
    assert!(out.stderr.contains("mode auto needs the whole sandbox"), "{}", out.stderr);
}

/// A project that contains aye's own folders has no sandbox, and its rules cannot be changed without a question.
#[test]
fn a_project_with_ayes_own_files_does_not_give_them_away() {
    let rules = serde_json::json!({"file_path": "own/config/hooks.toml", "content": "\n"});
    let key = serde_json::json!({"file_path": "own/state/keys/mock"});
    let agent = || {
        MockLlm::answers([
            Answer::new().call("c1", "Write", rules.clone()),
            Answer::new().call("c2", "Read", key.clone()),
            Answer::new().bash("c3", "touch own/config/made"),
            Answer::say("Done."),
        ])
    };
    for (more, shown) in [
        (&["--permission-mode", "accept-edits"][..], None),
        (&["--permission-mode", "auto"][..], Some("contains aye's own files")),
    ] {
        // Mode auto names a missing layer first.
        if shown.is_some() && !has_all_layers() {
            continue;
        }
        let llm = agent();
        let home = Home::with(&llm);
        home.rules("rules:\n  - {tool: 'Bash(touch *)', behavior: allow}\n");
        let own = home.work().join("own");
        std::fs::rename(home.root().join("aye"), &own).expect("moved");
        std::fs::create_dir_all(own.join("state/keys")).expect("created");
        std::fs::write(own.join("state/keys/mock"), "canary").expect("written");
        let own = own.to_string_lossy();
        let run = |args: &[&str]| home.aye(args).env("AYE_HOME", &own).run();
        let start = run(&[&["-p", "go", "--config", "sandbox.missing=ask"], more].concat());
        if let Some(shown) = shown {
            let out = start.exits(2);
            assert!(out.stderr.contains(shown), "{}", out.stderr);
            continue;
        }
        for (id, tool) in [("perm_c1", "Write"), ("perm_c2", "Read"), ("perm_c3", "Bash")] {
            let pending = run(&["approvals", "list"]).exits(0).stdout;
            assert!(pending.contains(id) && pending.contains(tool), "{pending}");
            run(&["deny", id, "--resume", "--config", "sandbox.missing=ask"]);
        }
        assert!(!home.work().join("own/config/hooks.toml").exists());
        assert!(!home.work().join("own/config/made").exists());
    }
}
