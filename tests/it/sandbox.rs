//! Kernel enforcement of commands.

use crate::support::home::Home;
#[cfg(feature = "failpoints")]
use crate::support::llm::until;
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

/// A sandboxed command gets the variables that builds need and those that the settings name; the result names one that it
/// asked for and did not get.
#[test]
fn a_sandboxed_command_gets_the_variables_of_a_build() {
    if !has_all_layers() {
        return;
    }
    let secrets = [
        ("STRIPE", "rk_live_canary"),
        ("HEADER", "Authorization: Bearer canary"),
        ("DOCKER_AUTH_CONFIG", "{\"auth\": \"canary\"}"),
        ("WEBHOOK", "https://hooks.example/canary"),
        ("SESSION", "canary"),
        ("UV_INDEX_URL", "https://canary@mirror.example/simple"),
    ];
    for (line, profile) in [("env", "read"), ("sh all.sh", "workspace")] {
        let needs = "set -u; echo $SESSION";
        let llm = MockLlm::answers([
            Answer::new().bash("c1", line),
            Answer::new().bash("c2", "sh needs.sh"),
            Answer::new().bash("c3", "sh named.sh"),
            Answer::say("Done."),
        ]);
        let home = Home::with(&llm);
        let bash = "rules:\n  - {tool: 'Bash(sh *)', behavior: allow}\n";
        let named = "  - {tool: 'Bash(sh named.sh)', behavior: allow, env: [SESSION]}\n";
        let env = format!("  - {{tool: 'Bash(env)', behavior: allow, sandbox: {profile}}}\n");
        home.rules(&[bash, named, &env].concat());
        home.write("named.sh", "echo $SESSION $STRIPE\n");
        home.write("all.sh", "env\n");
        home.write("needs.sh", needs);
        let mut aye = home.aye(&["-p", "go", "--config", "sandbox.env=[\"APP_*\"]"]);
        for (name, value) in secrets.into_iter().chain([("APP_COLOUR", "blue"), ("GOFLAGS", "-mod=mod")]) {
            aye = aye.env(name, value);
        }
        aye.run().exits(0);
        let (all, missed) = (llm.last().result("c1"), llm.last().result("c2"));
        assert!(all.contains("APP_COLOUR=blue") && all.contains("GOFLAGS=-mod=mod"), "{all}");
        assert!(all.contains("PATH=") && all.contains("LANG=C.UTF-8"), "{all}");
        assert!(!all.contains("canary"), "{profile}: {all}");
        let says = "the variable SESSION is set, but the sandbox passes only what builds need; the user can name it \
                    in sandbox.env, or in `env` of the rule";
        assert!(missed.contains(says), "{missed}");
        assert_eq!(llm.last().result("c3").trim(), "canary", "its rule names the variable");
    }
}

/// A command sees the long output of its own conversation, and of git's folder what git reads; a repository's links to the
/// rest lead nowhere.
#[test]
fn a_command_sees_no_output_of_other_conversations() {
    if !has_all_layers() {
        return;
    }
    let llm = MockLlm::answers([
        Answer::new().bash("c1", "sh long.sh canary"),
        Answer::say("Done."),
        Answer::new().bash("c1", "sh long.sh own"),
        Answer::new().bash("c2", "sh look.sh"),
        Answer::say("Done."),
    ]);
    let home = Home::with(&llm);
    home.rules("rules:\n  - {tool: 'Bash(sh *)', behavior: allow}\n");
    home.write("long.sh", "for i in $(seq 1 9000); do echo $1 $i; done\n");
    home.write("look.sh", "cat g/*; cd o && find . -name '*.txt' | while read f; do head -n 1 $f; done\n");
    let folder = home.root().join("home/.config/git");
    std::fs::create_dir_all(&folder).expect("made");
    std::fs::write(folder.join("credentials"), "https://me:canary@example.org\n").expect("written");
    std::fs::write(folder.join("ignore"), "*.visible\n").expect("written");
    let data = home.root().join("aye/data/output");
    std::os::unix::fs::symlink(&data, home.work().join("o")).expect("linked");
    std::os::unix::fs::symlink(&folder, home.work().join("g")).expect("linked");
    home.ok(&["-p", "go"]);
    assert!(data.is_dir(), "{}", data.display());
    home.ok(&["-p", "go"]);
    let seen = llm.last().result("c2");
    assert!(seen.contains("own 1") && seen.contains("*.visible"), "{seen}");
    assert!(!seen.contains("canary"), "{seen}");
}

/// What a command writes into a cache of downloads is there for the next one of the project, and for no other project.
#[test]
fn each_project_has_its_own_downloads() {
    if !has_all_layers() {
        return;
    }
    let mut home = None;
    for (folder, line, found) in [
        ("work", "mkdir -p $XDG_CACHE_HOME; echo canary > $XDG_CACHE_HOME/x", ""),
        ("work", "cat $XDG_CACHE_HOME/x", "canary"),
        ("other", "ls -R $XDG_CACHE_HOME/.. ; cat $XDG_CACHE_HOME/x", "No such file"),
    ] {
        let llm = MockLlm::answers([Answer::new().bash("c1", "sh take.sh"), Answer::say("Done.")]);
        let home = home.get_or_insert_with(Home::new);
        home.model(&llm);
        home.rules("rules:\n  - {tool: 'Bash(sh *)', behavior: allow}\n");
        let folder = home.root().join(folder);
        std::fs::create_dir_all(&folder).expect("made");
        std::fs::write(folder.join("take.sh"), line).expect("written");
        home.ok(&["-p", "go", "-C", &folder.display().to_string()]);
        let result = llm.last().result("c1");
        assert!(result.contains(found), "{line}: {result}");
    }
}

/// The objects of git contain the tracked files that rules deny: a program that starts git prints them.
#[test]
fn git_objects_contain_what_rules_deny() {
    if !has_all_layers() {
        return;
    }
    let llm = MockLlm::answers([Answer::new().bash("c1", "sh look.sh"), Answer::say("Done.")]);
    let home = Home::with(&llm);
    home.git(&["init", "-q"]);
    home.write("secret.txt", "canary\n");
    home.write("look.sh", "cat secret.txt; git show HEAD:secret.txt\n");
    home.git(&["add", "."]);
    home.git(&["commit", "-qm", "all"]);
    home.rules(
        "rules:\n  - {tool: 'Bash(sh *)', behavior: allow}\n  - {tool: 'Read(secret.txt)', behavior: deny}\n",
    );
    home.ok(&["-p", "go"]);
    let result = llm.last().result("c1");
    assert_eq!(result.matches("canary").count(), 1, "{result}");
}

/// A command that takes too many processes, too much memory or too large temporary files fails, and the result says which
/// limit it met.
#[test]
fn a_command_that_meets_a_limit_says_so() {
    if !has_all_layers() {
        return;
    }
    let many = "for i in $(seq 1 400); do sleep 3 & done; wait; exit 1";
    let large = "head -c 60000000 /dev/zero > /tmp/x; sleep 20; echo after";
    let memory = "dd if=/dev/zero of=/dev/null bs=1500M count=9";
    for (line, limit) in
        [(many, "max_processes=40"), (large, "max_tmp_mib=10"), (memory, "max_memory_percent=1")]
    {
        let llm = MockLlm::answers([Answer::new().bash("c1", "sh take.sh"), Answer::say("Done.")]);
        let home = Home::with(&llm);
        home.rules("rules:\n  - {tool: 'Bash(sh *)', behavior: allow}\n");
        home.write("take.sh", line);
        home.ok(&["-p", "go", "--config", &format!("sandbox.{limit}")]);
        let result = llm.last().result("c1");
        let (setting, _) = limit.split_once('=').expect("a value");
        assert!(result.contains("the command met the limit of "), "{result}");
        assert!(result.contains(&format!("(sandbox.{setting})")) && !result.contains("after"), "{result}");
    }
}

/// Files in shared memory have a limit of their own, and the folder of the devices has no room for others.
#[test]
fn shared_memory_has_a_limit() {
    if !has_all_layers() {
        return;
    }
    let llm = MockLlm::answers([Answer::new().bash("c1", "sh fill.sh"), Answer::say("Done.")]);
    let home = Home::with(&llm);
    home.rules("rules:\n  - {tool: 'Bash(sh *)', behavior: allow}\n");
    home.write(
        "fill.sh",
        "echo x > /dev/x; echo small > /dev/shm/x; cat /dev/shm/x; dd if=/dev/zero of=/dev/shm/y bs=1M\n",
    );
    home.ok(&["-p", "go", "--config", "sandbox.max_memory_percent=1"]);
    let result = llm.last().result("c1");
    assert!(result.contains("small") && result.contains("/dev/x: Read-only file system"), "{result}");
    assert!(result.contains(" MiB in /dev/shm (half of sandbox.max_memory_percent)"), "{result}");
}

/// What aye was started with is in no file that a command can read, even outside and as root.
#[test]
fn no_command_reads_what_aye_was_started_with() {
    let llm = MockLlm::answers([Answer::new().bash("c1", "sh look.sh"), Answer::say("Done.")]);
    let home = Home::with(&llm);
    home.write(
        "look.sh",
        "cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep -E \"^(AYE_NOTE|GH_TOKEN|OWN)=\"; echo $OWN\n",
    );
    let aye = home.aye(&["-p", "--permission-mode", "yolo", "go"]);
    let aye = aye.env("AYE_NOTE", "CANARY-1").env("GH_TOKEN", "CANARY-2").env("OWN", "own");
    aye.run().exits(0);
    let result = llm.last().result("c1");
    assert!(result.contains("OWN=own") && !result.contains("CANARY"), "{result}");
}

/// Links and files of a project open nothing outside of it, and the repository of a linked worktree stays as it is until the
/// user trusts the folder with it.
#[test]
fn what_a_project_names_opens_nothing() {
    if !has_all_layers() {
        return;
    }
    let Some(place) = folder_that_commands_see() else { return };
    let top = place.path().canonicalize().expect("exists");
    let git = |folder: &std::path::Path, args: &[&str]| {
        let mut git = std::process::Command::new("git");
        git.args(["-c", "user.name=t", "-c", "user.email=t@example.org"]).args(args).current_dir(folder);
        let output = git.output().expect("git runs");
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    // Another repository, and a folder of programs, neither of which names the project.
    let other = top.join("other");
    std::fs::create_dir_all(other.join("bin")).expect("made");
    git(&top, &["init", "-q", "other"]);
    std::fs::write(other.join("canary.txt"), "canary\n").expect("written");
    std::fs::write(other.join("config"), "[alias]\n\tlook = !cat canary.txt\n[user]\n\tname = canary\n")
        .expect("written");
    git(&other, &["add", "."]);
    git(&other, &["commit", "-qm", "canary"]);
    let shown = other.display().to_string();
    let lines = [
        // Alternates, settings, the worktree and a submodule of the project's own repository.
        "echo {}/.git/objects > .git/objects/info/alternates; git log --all -p; git cat-file --batch-all-objects --batch",
        "git config include.path {}/config; git config user.name",
        "git config core.worktree {}; git status --short; git ls-files -o; cat $(git ls-files -o)",
        "mkdir sub; echo 'gitdir: {}/.git' > sub/.git; git -C sub log -p",
        // Links in the place of what builds make.
        "for name in target node_modules .venv; do ln -s {} $name; cat $name/canary.txt; ls $name/; done",
        // Workspaces, servers, agents and skills with paths.
        "printf '[workspace]\\nmembers = [\"{}\"]\\n' > Cargo.toml; cat {}/canary.txt",
        "echo '{\"mcpServers\": {\"x\": {\"command\": \"cat\", \"cwd\": \"{}\"}}}' > .mcp.json; cat {}/canary.txt",
        "mkdir -p .aye/skills/x; ln -s {} .aye/skills/x/scripts; cat .aye/skills/x/scripts/canary.txt",
        "echo 'rules: [{tool: \"Read({}/**)\", behavior: allow}]' > .aye/permissions.yaml; cat {}/canary.txt",
    ];
    for line in lines {
        let line = line.replace("{}", &shown);
        let llm = MockLlm::answers([
            Answer::new().bash("c1", "sh look.sh"),
            Answer::new().bash("c2", "sh look.sh"),
            Answer::say("Done."),
        ]);
        let home = Home::with(&llm);
        home.git(&["init", "-q"]);
        // As a project that comes with all this.
        home.write("look.sh", &line);
        let _ = std::process::Command::new("sh").arg("look.sh").current_dir(home.work()).output();
        home.rules("rules:\n  - {tool: 'Bash(sh *)', behavior: allow}\n");
        home.aye(&["-p", "go", "--trust"]).run();
        for id in ["c1", "c2"] {
            let result = llm.last().result(id);
            assert!(!result.contains("canary\n") && !result.contains("\ncanary"), "{line}: {result}");
        }
    }
    // The other repository lists this worktree: it can be read, and changed once that is trusted.
    for (trust, can_commit) in [(&[][..], false), (&["--trust"], true)] {
        let llm = MockLlm::answers([Answer::new().bash("c1", "sh commit.sh"), Answer::say("Done.")]);
        let home = Home::with(&llm);
        let tree = top.join(format!("tree-{can_commit}"));
        git(&other, &["worktree", "add", "-q", &tree.display().to_string()]);
        std::fs::write(tree.join("commit.sh"), "git log --format=%s; git -c user.name=t -c user.email=t@example.org commit --allow-empty -qm freshly-made && git log --format=%s\n").expect("written");
        home.rules("rules:\n  - {tool: 'Bash(sh *)', behavior: allow}\n");
        let folder = tree.display().to_string();
        let out = home.aye(&[&["-p", "go", "-C", &folder], trust].concat()).run().exits(0);
        let result = llm.last().result("c1");
        assert!(result.contains("canary"), "{result}");
        assert_eq!(result.contains("freshly-made"), can_commit, "{result}");
        assert_eq!(out.stderr.contains("this folder is not trusted"), !can_commit, "{}", out.stderr);
    }
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
    assert_eq!(read(".aye-set-aside/1/sub/AGENTS.md"), "obey\n");
    assert!(!home.work().join("sub/.vscode").exists());
    let result = llm.last().result("c1");
    let told = "sub/AGENTS.md is protected: the command's version is in .aye-set-aside/1/sub/AGENTS.md; the original is";
    assert!(result.contains(told), "{result}");
    let shown = home.ok(&["approvals", "show", "perm_c2"]).stdout;
    assert!(shown.contains("`git checkout -q other` would change CLAUDE.md"), "{shown}");
    home.ok(&["approve", "perm_c2", "--resume"]);
    assert_eq!(read("CLAUDE.md"), "two\n");
}

/// What rules deny to change and to read holds for commands, whatever they rename, and sockets of other programs are
/// hidden.
#[test]
fn rules_about_files_hold_for_commands() {
    if !has_all_layers() {
        return;
    }
    let lines = [
        "mv h/.docker h/docker; mv h x; cat h/.docker/config.json h/docker/config.json x/.docker/config.json",
        "echo x >> migrations/1.sql; touch migrations/2.sql; rm -r migrations; echo y > other.sql",
        "mkdir -p made/.aws; echo CANARY-2 > made/.aws/credentials",
        "cat .aye-set-aside/*/made/.aws/credentials; ls -a made; for it in one two; do test -S $it && echo $it; done",
    ];
    // A line that names such a file asks; a script does not.
    let run = |n: usize| Answer::new().bash(&format!("c{n}"), &format!("sh {n}.sh"));
    let mut answers: Vec<Answer> = (1..=lines.len()).map(run).collect();
    answers.push(Answer::say("Done."));
    let llm = MockLlm::answers(answers);
    let home = Home::with(&llm);
    for (n, line) in (1..).zip(lines) {
        home.write(&format!("{n}.sh"), line);
    }
    home.write("h/.docker/config.json", "CANARY-1\n");
    home.write("migrations/1.sql", "one\n");
    home.rules("rules:\n  - {tool: 'Edit(migrations/**)', behavior: deny}\n");
    let sockets = ["one", "two"].map(|name| std::os::unix::net::UnixListener::bind(home.work().join(name)));
    let args = ["-p", "go", "--permission-mode", "auto", "--config", r#"sandbox.sockets=["two"]"#];
    home.ok(&args);
    let result = |call: &str| llm.last().result(call);
    assert!(!result("c1").contains("CANARY"), "{}", result("c1"));
    let read = |name: &str| std::fs::read_to_string(home.work().join(name)).expect("readable");
    assert_eq!(read("h/.docker/config.json"), "CANARY-1\n");
    assert_eq!(read("migrations/1.sql"), "one\n", "{}", result("c2"));
    assert!(!home.work().join("migrations/2.sql").exists() && read("other.sql") == "y\n");
    assert_eq!(read(".aye-set-aside/1/made/.aws/credentials"), "CANARY-2\n");
    let last = result("c4");
    assert!(!last.contains("CANARY") && !last.lines().any(|line| line == ".aws"), "{last}");
    assert!(last.lines().any(|line| line == "two") && !last.lines().any(|line| line == "one"), "{last}");
    drop(sockets);
}

/// What rules deny to change, a command cannot make where it is missing.
#[test]
fn what_rules_deny_to_change_is_not_made_either() {
    if !has_all_layers() {
        return;
    }
    let line = "mkdir -p migrations deep/gen node_modules/p; echo x > migrations/1.sql; echo x > deep/gen/a.lock; \
                echo x > node_modules/p/a.lock; echo y > other.sql";
    for (rules, is_kept) in [("'Edit(migrations/**)'", true), ("'Write(**/*.lock)'", true), ("Edit", false)] {
        let llm = MockLlm::answers([Answer::new().bash("c1", "sh make.sh"), Answer::say("Done.")]);
        let home = Home::with(&llm);
        home.write("make.sh", line);
        home.rules(&format!(
            "rules:\n  - {{tool: {rules}, behavior: deny}}\n  - {{tool: Bash, behavior: allow}}\n"
        ));
        home.ok(&["-p", "go"]);
        let result = llm.last().result("c1");
        let has = |name: &str| home.work().join(name).exists();
        let is_about = |name: &str| rules.contains(name);
        assert_eq!(has("migrations/1.sql"), !is_about("migrations"), "{rules}: {result}");
        assert_eq!(has("deep/gen/a.lock"), !is_about("lock"), "{rules}: {result}");
        assert!(has("node_modules/p/a.lock") && has("other.sql"), "{rules}: {result}");
        assert_eq!(result.contains("rules deny creating "), is_kept, "{rules}: {result}");
        if is_about("migrations") {
            assert_eq!(home.read(".aye-set-aside/1/migrations/1.sql"), "x\n");
            assert!(result.contains("what the command made is in .aye-set-aside/1/migrations"), "{result}");
        }
    }
}

/// A file that rules deny is denied under the name that a command of an earlier process gave it, even one outside.
#[test]
fn a_later_process_knows_what_was_renamed() {
    let answers = [
        Answer::new().bash("c1", "sh move.sh"),
        Answer::say("Done."),
        Answer::new()
            .call("r", "Read", serde_json::json!({"file_path": "pub/a.txt"}))
            .call("o", "Read", serde_json::json!({"file_path": "pub/b.md"}))
            .call("e", "Write", serde_json::json!({"file_path": "old/1.sql", "content": "two"})),
        Answer::say("Done."),
    ];
    let llm = MockLlm::answers(answers);
    let home = Home::with(&llm);
    home.write("secrets/a.txt", "CANARY\n");
    home.write("secrets/b.md", "plain\n");
    home.write("migrations/1.sql", "one\n");
    home.write("move.sh", "mv secrets pub; mv migrations old\n");
    home.rules(
        "rules:\n  - {tool: 'Read(secrets/*.txt)', behavior: deny}\n  - {tool: 'Edit(migrations/**)', behavior: deny}\n",
    );
    home.ok(&["-p", "--permission-mode", "yolo", "go"]);
    assert_eq!(home.read("pub/a.txt"), "CANARY\n");
    home.ok(&["-p", "--permission-mode", "yolo", "go"]);
    let result = |call: &str| llm.last().result(call);
    assert!(result("r").contains("blocked by rule `Read(secrets/*.txt)`"), "{}", result("r"));
    assert!(result("o").contains("plain"), "{}", result("o"));
    assert!(result("e").contains("blocked by rule `Edit(migrations/**)`"), "{}", result("e"));
    assert_eq!(home.read("old/1.sql"), "one\n");
}

/// When aye dies while its other commands stand still, they end.
#[cfg(feature = "failpoints")]
#[test]
fn nothing_stays_stopped_when_aye_dies() {
    if !has_all_layers() {
        return;
    }
    let holds = serde_json::json!({"command": "sh hold.sh", "run_in_background": true});
    let llm = MockLlm::answers([
        Answer::new().call("c1", "Bash", holds),
        Answer::new().bash("c2", "sh wait.sh"),
        Answer::new().bash("c3", "true"),
        Answer::say("Done."),
    ]);
    let home = Home::with(&llm);
    home.write("held", "");
    home.write("hold.sh", "exec 9<>held; flock 9; touch ready; sleep 1000");
    home.write("wait.sh", "until [ -e ready ]; do :; done");
    let args = ["-p", "go", "--permission-mode", "auto"];
    let out = home.aye(&args).env("AYE_FAILPOINT", "sandbox.frozen").run();
    assert!(out.was_killed(), "{out:?}");
    let held = std::fs::File::open(home.work().join("held")).expect("exists");
    until("the command has ended", || held.try_lock().is_ok());
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
        for (id, tool) in [("perm_c1", "Write"), ("perm_c2", "Read"), ("perm_c3", "$ touch")] {
            let pending = run(&["approvals", "list"]).exits(0).stdout;
            assert!(pending.contains(id) && pending.contains(tool), "{pending}");
            run(&["deny", id, "--resume", "--config", "sandbox.missing=ask"]);
        }
        assert!(!home.work().join("own/config/hooks.toml").exists());
        assert!(!home.work().join("own/config/made").exists());
    }
}
