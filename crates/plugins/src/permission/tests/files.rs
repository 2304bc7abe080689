//! Rules about files bind every tool and every command.

use crate::permission::*;
use async_trait::async_trait;
use aye_core::contract::path_policy::{PathAccess, PathPolicies as _};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;

struct Place {
    _dir: tempfile::TempDir,
    root: PathBuf,
}

/// A project with a secret, and with links to a folder outside.
fn place() -> Place {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().canonicalize().unwrap();
    let root = base.join("w");
    for folder in ["w/src", "w/conf", "w/.git", "outside"] {
        std::fs::create_dir_all(base.join(folder)).unwrap();
    }
    for file in ["w/src/a.rs", "w/.env", "w/conf/.env", "w/conf/app.toml", "outside/x", "w/.git/config"] {
        std::fs::write(base.join(file), "x\n").unwrap();
    }
    let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, root.join(name)).unwrap();
    link("../outside", "out");
    link("../outside", "odd\nname");
    link(".env", "plain");
    Place { _dir: dir, root }
}

fn rules(allow: &[&str], ask: &[&str], deny: &[&str]) -> RuleSet {
    let mut set = shipped_rules();
    for (behavior, patterns) in [
        (ToolPermissionBehavior::Allow, allow),
        (ToolPermissionBehavior::Ask, ask),
        (ToolPermissionBehavior::Deny, deny),
    ] {
        set.join(RuleSet::from_patterns(Layer::User, behavior, patterns).unwrap());
    }
    set
}

impl Place {
    fn verdict(&self, rules: &RuleSet, tool: &str, args: &Value, mode: Mode) -> Verdict {
        let question =
            CallRequest { tool, args, cwd: &self.root, workspace: &self.root, home: None, primary: None };
        evaluate_in(rules, &question, mode)
    }

    fn word(&self, rules: &RuleSet, tool: &str, args: &Value) -> &'static str {
        self.verdict(rules, tool, args, Mode::Ask).decision.word()
    }

    fn bash(&self, rules: &RuleSet, command: &str, mode: Mode) -> (&'static str, String) {
        let verdict = self.verdict(rules, "Bash", &json!({ "command": command }), mode);
        (verdict.decision.word(), verdict.why)
    }

    /// The verdict on a command where the kernel enforces the sandbox.
    fn held(&self, rules: &RuleSet, command: &str) -> (&'static str, String) {
        let args = json!({ "command": command });
        let question = CallRequest {
            tool: "Bash",
            args: &args,
            cwd: &self.root,
            workspace: &self.root,
            home: None,
            primary: None,
        };
        let verdict = PreparedCall::of(&question).unwrap().enforced_by(EnforcedProfiles::ALL).verdict(rules);
        (verdict.decision.word(), verdict.why)
    }
}

#[test]
fn a_read_rule_binds_every_file_tool() {
    let place = place();
    let env = json!({"file_path": "conf/../.env"});
    let all = ["Read", "Edit", "Write", "Grep", "Glob", "List"];
    let denied = rules(&all, &[], &["Read(**/.env)"]);
    for tool in ["Read", "Edit", "Write"] {
        assert_eq!(place.word(&denied, tool, &env), "deny", "{tool}");
        assert_eq!(place.word(&denied, tool, &json!({"file_path": "src/a.rs"})), "allow", "{tool}");
        assert_eq!(
            place.word(&denied, tool, &json!({"file_path": "plain"})),
            "deny",
            "{tool} through a link"
        );
    }
    assert_eq!(place.word(&denied, "Grep", &json!({"pattern": "x", "path": ".env"})), "deny");
    // Files found by a search are skipped by the search.
    assert_eq!(place.word(&denied, "Grep", &json!({"pattern": "x", "glob": ".env"})), "allow");
    assert_eq!(place.word(&rules(&all, &["Read(**/.env)"], &[]), "Write", &env), "ask");

    let folder = rules(&all, &[], &["Read(conf/**)"]);
    for (tool, args) in [
        ("Grep", json!({"pattern": "x", "path": "conf"})),
        ("Glob", json!({"pattern": "*", "path": "conf"})),
        ("Glob", json!({"pattern": "conf/*"})),
        ("List", json!({"path": "conf"})),
    ] {
        assert_eq!(place.word(&folder, tool, &args), "deny", "{tool} {args}");
    }
    assert_eq!(place.word(&folder, "List", &json!({})), "allow");
    // A rule about all but some files leaves folders to the searches.
    let only_src = rules(&all, &[], &["Read(file_path !~ \"src/**\")"]);
    assert_eq!(place.word(&only_src, "Grep", &json!({"pattern": "x"})), "allow");
    assert_eq!(place.word(&only_src, "Read", &json!({"file_path": "src/a.rs"})), "allow");
    assert_eq!(place.word(&only_src, "Edit", &json!({"file_path": "conf/app.toml"})), "deny");
}

#[test]
fn a_write_rule_binds_writers_and_an_allow_never_extends_it() {
    let place = place();
    let file = json!({"file_path": "conf/app.toml"});
    for (ours, other) in [("Edit", "Write"), ("Write", "Edit")] {
        let denied = rules(&["Edit", "Write"], &[], &[&format!("{ours}(conf/**)")]);
        assert_eq!(place.word(&denied, other, &file), "deny");
        assert_eq!(place.word(&denied, "Read", &file), "allow");
        assert_eq!(place.word(&denied, "Grep", &json!({"pattern": "x", "path": "conf"})), "allow");
    }
    let denied = rules(&["Bash(touch *)", "Bash(mytool *)"], &[], &["Edit(conf/**)"]);
    assert_eq!(place.bash(&denied, "touch conf/app.toml", Mode::Ask).0, "deny");
    assert_eq!(place.bash(&denied, "cat conf/app.toml", Mode::Ask).0, "allow");
    assert_eq!(place.bash(&denied, "mytool conf/app.toml", Mode::Ask).0, "ask");
    assert_eq!(place.bash(&denied, "echo x > conf/app.toml", Mode::Yolo).0, "deny");
    assert_eq!(place.word(&rules(&["Read(**)"], &[], &[]), "Edit", &file), "ask");
    assert_eq!(place.word(&rules(&["Edit(**)"], &[], &[]), "Write", &file), "ask");
}

#[test]
fn a_named_file_is_matched_however_a_command_names_it() {
    let place = place();
    let denied = rules(&["Bash(cat *)", "Bash(mytool *)"], &[], &["Read(**/.env)"]);
    let mut wrong = Vec::new();
    for command in [
        "cat .env",
        "cat ./conf/../.env",
        "cat plain",
        "cd conf && cat .env",
        "cat < .env",
        "head -c 100 .env",
        "grep -f.env x",
        "grep -vf.env x",
        "wc --files0-from=.env",
        "git show HEAD:.env",
        "git show :0:.env",
        "git diff -- ':(top).env'",
        "mytool --config .env",
        "mytool --config=.env",
        "cp .env /tmp/x",
        "for i in 1; do cat .env; done",
        "(cd conf; cat ../.env)",
        "echo $(cat .env)",
        "bash -c 'cat .env'",
    ] {
        for mode in [Mode::Ask, Mode::Yolo] {
            let (verdict, why) = place.bash(&denied, command, mode);
            if verdict != "deny" || !why.contains(".env") {
                wrong.push(format!("{command} in {mode:?}: {verdict}: {why}"));
            }
        }
    }
    for command in [
        "ls .env",
        "echo .env",
        "git status .env",
        "find . -name .env",
        "cat src/a.rs",
        "grep -n .env src/a.rs",
    ] {
        let (verdict, why) = place.bash(&denied, command, Mode::Ask);
        if verdict == "deny" {
            wrong.push(format!("{command}: {verdict}: {why}"));
        }
    }
    let asked = rules(&["Bash(cat *)"], &["Read(conf/app.toml)"], &[]);
    for mode in [Mode::Ask, Mode::Yolo, Mode::AcceptEdits] {
        let (verdict, why) = place.bash(&asked, "cat conf/app.toml", mode);
        if verdict != "ask" || !why.contains("conf/app.toml") {
            wrong.push(format!("asked in {mode:?}: {verdict}: {why}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_command_that_would_find_a_restricted_file_asks_and_names_it() {
    let place = place();
    let shipped =
        rules(&["Bash(diff *)", "Bash(rg *)", "Bash(git grep *)", "Bash(grep *)", "Bash(cat *)"], &[], &[]);
    let mut wrong = Vec::new();
    for command in [
        "grep -r x",
        "grep -rh '' .",
        "grep -rn x conf",
        "grep -nri x ./conf",
        "grep --recursive x .",
        "grep --recurs x .",
        "grep -d recurse x .",
        "rg -uuu ''",
        "rg --hidden x",
        "rg -uu x conf",
        "rg -. x",
        "rg -g '.env' x",
        "rg --glob=.env x",
        "git grep --no-index x",
        "diff -rN conf src",
        "diff -r --no-dereference conf src",
        "diff --recursive conf src",
        "cd conf && grep -r x .",
        "grep -R x src conf",
    ] {
        let (verdict, why) = place.bash(&shipped, command, Mode::Ask);
        let is_right = verdict == "ask" && (why.contains(".env") || command.starts_with("cd"));
        if !is_right {
            wrong.push(format!("{command}: {verdict}: {why}"));
        }
    }
    // A deny on a merely found file asks: nothing may run, and nothing is known to be requested.
    let denied = rules(&["Bash(grep *)"], &[], &["Read(**/.env)"]);
    for mode in [Mode::Ask, Mode::Yolo] {
        let (verdict, why) = place.bash(&denied, "grep -r x .", mode);
        if verdict != "ask" || !why.contains("denies") {
            wrong.push(format!("denied in {mode:?}: {verdict}: {why}"));
        }
    }
    for command in ["grep -r x src", "rg x", "rg x src", "diff -r src src", "rg --files -uuu"] {
        let (verdict, why) = place.bash(&shipped, command, Mode::Ask);
        if verdict != "allow" {
            wrong.push(format!("{command}: {verdict}: {why}"));
        }
    }
    // Words expanded by the shell.
    let mut globs =
        RuleSet::from_patterns(Layer::User, ToolPermissionBehavior::Allow, ["Bash(cat *)", "Bash(grep *)"])
            .unwrap();
    globs.join(RuleSet::from_patterns(Layer::User, ToolPermissionBehavior::Ask, ["Read(**/.env)"]).unwrap());
    for (command, want) in [
        ("grep x conf/.*", "ask"),
        ("cat .e*", "ask"),
        ("cat */.env*", "ask"),
        ("cat p*", "ask"),
        ("cat src/*.rs", "allow"),
        ("grep x src/*", "allow"),
        ("cat conf/*", "allow"),
    ] {
        let (verdict, why) = place.bash(&globs, command, Mode::Ask);
        if verdict != want {
            wrong.push(format!("{command}: {verdict}: {why}"));
        }
    }
    // A whole line, a default or a mode makes no difference.
    let mut open = shipped_rules();
    open.set_default(ToolPermissionBehavior::Allow);
    for (rules, mode) in
        [(open, Mode::Ask), (rules(&["Bash"], &[], &[]), Mode::Ask), (rules(&[], &[], &[]), Mode::Yolo)]
    {
        let (verdict, why) = place.bash(&rules, "grep -rh '' . | sort", mode);
        if verdict != "ask" {
            wrong.push(format!("{mode:?}: {verdict}: {why}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_walk_is_bounded_and_asks_when_truncated() {
    let place = place();
    let many = place.root.join("many");
    std::fs::create_dir(&many).unwrap();
    for n in 0..20_100 {
        std::fs::File::create(many.join(n.to_string())).unwrap();
    }
    let set = rules(&["Bash(grep *)"], &[], &[]);
    let (verdict, why) = place.bash(&set, "grep -r x many", Mode::Ask);
    assert_eq!(verdict, "ask");
    assert!(why.contains("too many files in many"), "{why}");
    assert_eq!(place.bash(&set, "grep -r x many", Mode::Yolo).0, "allow");
}

#[test]
fn links_that_lead_outside_ask() {
    let place = place();
    let shipped = shipped_rules();
    for (tool, args) in [
        ("Glob", json!({"pattern": "out/*"})),
        ("Glob", json!({"pattern": "./out/**/*.rs"})),
        ("Glob", json!({"pattern": "src/../out/x*"})),
        ("Glob", json!({"pattern": "*", "path": "out"})),
        ("Glob", json!({"pattern": "s*/../../outside/*"})),
        ("Grep", json!({"pattern": "x", "path": "out"})),
        ("Grep", json!({"pattern": "x", "path": "out/x"})),
        ("List", json!({"path": "out"})),
        ("Read", json!({"file_path": "out/x"})),
        // As displayed by a tool when the name is not plain text.
        ("Read", json!({"file_path": "odd\\x0aname/x"})),
        ("List", json!({"path": "odd\\x0aname"})),
    ] {
        assert_eq!(place.word(&shipped, tool, &args), "ask", "{tool} {args}");
    }
    for (tool, args) in [
        ("Glob", json!({"pattern": "src/*"})),
        ("Glob", json!({"pattern": "**/*.rs"})),
        ("Grep", json!({"pattern": "x", "path": "src"})),
        ("List", json!({"path": "src"})),
    ] {
        assert_eq!(place.word(&shipped, tool, &args), "allow", "{tool} {args}");
    }
}

#[test]
fn accept_edits_stops_at_files_that_run_later() {
    let place = place();
    let shipped = shipped_rules();
    let word = |path: &str| {
        place.verdict(&shipped, "Write", &json!({"file_path": path}), Mode::AcceptEdits).decision.word()
    };
    std::fs::create_dir_all(place.root.join("bare/objects")).unwrap();
    assert_eq!(word("bare/config"), "allow");
    std::fs::write(place.root.join("bare/HEAD"), "ref: refs/heads/main\n").unwrap();
    for path in
        ["bare/config", "bare/hooks/post-checkout", "HEAD", "new/HEAD", ".lldbinit", "AGENTS.md", "mise.toml"]
    {
        assert_eq!(word(path), "ask", "{path}");
    }
    for path in ["src/new.rs", "README.md", "bare2/config", "header"] {
        assert_eq!(word(path), "allow", "{path}");
    }
    // A rule that names the file applies whatever the letter case.
    let named = rules(&["Edit(AGENTS.md)", "Edit(bare/config)"], &[], &[]);
    assert_eq!(place.word(&named, "Edit", &json!({"file_path": "AGENTS.md"})), "allow");
    assert_eq!(place.word(&named, "Edit", &json!({"file_path": "bare/config"})), "allow");
}

#[test]
fn a_runs_policy_includes_its_agents_rules() {
    let place = place();
    let workspace = aye_core::contract::workspace::Workspace {
        cwd: place.root.clone(),
        root: place.root.clone(),
        home: place.root.clone(),
    };
    let clock = Arc::new(aye_core::contract::clock::SystemClock);
    let permissions = Permissions::new(workspace, clock, shipped_rules(), Mode::Ask);
    let mut spec = aye_core::contract::spec::AgentSpec::new("a");
    let file = place.root.join("src/a.rs");
    assert_eq!(permissions.policy(&spec).restriction(&file, PathAccess::Read), None);
    let section = json!({"rules": [{"tool": "Read(src/**)", "behavior": "deny"}]});
    spec.sections.insert("permission".to_owned(), section);
    let found = permissions.policy(&spec).restriction(&file, PathAccess::Read).unwrap();
    assert!(found.is_denied && found.why.contains("Read(src/**)"), "{found:?}");
    let env = permissions.policy(&spec).restriction(&place.root.join(".env"), PathAccess::Write).unwrap();
    assert!(!env.is_denied, "{env:?}");
}

/// Creates a repository that tracks these files.
fn repository(place: &Place, files: &[&str]) {
    std::fs::remove_dir_all(place.root.join(".git")).unwrap();
    for args in [&["init", "-q"][..], &[&["add", "-f"][..], files].concat()] {
        let status = std::process::Command::new("git")
            .args(args)
            .current_dir(&place.root)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", &place.root)
            .status();
        assert!(status.unwrap().success(), "{args:?}");
    }
}

#[test]
fn git_prints_no_tracked_secret_unasked() {
    let secret = place();
    repository(&secret, &["src/a.rs", "conf/.env", "conf/app.toml"]);
    let plain = place();
    repository(&plain, &["src/a.rs", "conf/app.toml"]);
    let rules = rules(&[], &[], &[]);
    for line in [
        "git log -p",
        "git log -5 --patch",
        "git log -2p",
        "git log -U3",
        "timeout 5 git log -p",
        "git show",
        "git show HEAD",
        "git show --stat -p HEAD",
        "git diff",
        "git diff HEAD~1",
        "git diff --cached",
        "git diff -- conf",
        "git diff HEAD -- .",
        "git cat-file -p 0123abcd",
        "git grep x HEAD",
        "git status -v",
        "ls && git show HEAD | head -5",
    ] {
        let (word, why) = secret.bash(&rules, line, Mode::Ask);
        assert_eq!(word, "ask", "{line}");
        assert!(why.contains("conf/.env from the repository"), "{line}: {why}");
        if !line.contains("grep") {
            assert_eq!(plain.bash(&rules, line, Mode::Ask).0, "allow", "{line}");
        }
    }
    for line in [
        "git log",
        "git log --oneline -5",
        "git log --stat -n 3",
        "git log --graph --all --format=%h",
        "git log -n 3 --author='A B' --since=2.weeks --no-merges",
        "git log -p -- src",
        "git status",
        "git status -sb -uno",
        "git status --porcelain=v2 --branch -z",
        "git diff -M90% --stat=80 HEAD~1",
        "git show --stat HEAD",
        "git show HEAD:src/a.rs",
        "git diff --stat",
        "git diff --name-only HEAD~1",
        "git diff HEAD -- src",
        "git log -p -- src/a.rs",
        "git ls-files",
        "git blame src/a.rs",
        "git cat-file -p HEAD:src/a.rs",
    ] {
        let (word, why) = secret.bash(&rules, line, Mode::Ask);
        assert_eq!(word, "allow", "{line}: {why}");
    }
    let denied = self::rules(&[], &[], &["Read(src/**)"]);
    assert_eq!(plain.bash(&denied, "git diff", Mode::Ask).0, "ask", "of the rules as they are");
}

#[test]
fn code_that_may_start_git_prints_no_tracked_secret_either() {
    let (secret, plain) = (place(), place());
    repository(&secret, &["src/a.rs", "conf/.env"]);
    repository(&plain, &["src/a.rs"]);
    let rules = rules(&[], &[], &[]);
    for line in ["awk 'BEGIN{system(\"git show HEAD:conf/.env\")}'", "awk '{print | \"sh\"}' src/a.rs"] {
        let (word, why) = secret.held(&rules, line);
        let part = "conf/.env from the repository if its code starts git";
        assert_eq!((word, why.contains(part)), ("ask", true), "{line}: {why}");
        assert_eq!(plain.held(&rules, line).0, "allow", "{line}");
    }
    assert_eq!(secret.held(&rules, "awk '{print $1}' src/a.rs").0, "allow", "that starts nothing");
}

/// Reports that commits contain these files, or that nothing is known.
struct Commits(Option<&'static [&'static str]>);

#[async_trait]
impl AskGit for Commits {
    async fn changed(&self, _: GitChange) -> Vec<String> {
        Vec::new()
    }

    async fn names_in_history(&self, _: &Path, _: &[String]) -> Option<Arc<NamesInHistory>> {
        Some(Arc::new(self.0?.iter().map(|name| name.as_bytes().to_vec()).collect()))
    }
}

#[tokio::test]
async fn git_prints_no_secret_of_an_older_commit_unasked() {
    let place = place();
    repository(&place, &["src/a.rs"]);
    let rules = rules(&[], &[], &[]);
    let judged = async |line: &str, names| {
        let args = json!({ "command": line });
        let (cwd, workspace) = (place.root.as_path(), place.root.as_path());
        let question = CallRequest { tool: "Bash", args: &args, cwd, workspace, home: None, primary: None };
        let call = PreparedCall::of(&question).unwrap().enforced_by(EnforcedProfiles::ALL);
        let verdict = call.with_history(Some(&Commits(names))).await.verdict(&rules);
        (verdict.decision.word(), verdict.why)
    };
    let (secret, plain) = (Some(&["conf/.env", "src/a.rs"][..]), Some(&["src/a.rs"][..]));
    for line in [
        "git log -p",
        "git log -p --follow -- src/a.rs",
        "git log -G KEY",
        "git log -SKEY --oneline",
        "git show",
        "git show v1",
        "git show ':^src'",
        "git show v1:src --all",
        "git show '[.:]env'",
        "git diff v1",
        "git diff --cached",
        "git diff v1 v2",
        "git grep KEY v1",
        "git grep -e KEY v1",
        "git grep -e . -e -- HEAD",
        "git log -p -- 'conf/*'",
        "git log -p -- 'conf/[.]env'",
        "git log --oneline --remerge-diff",
        "git log --check",
        "git status -sv",
        "git status --verbose",
        "git log -p -- src/a.rs ':(glob)conf/*'",
        "git diff --cached -- 'conf/.en?'",
        "git grep x v1 -- 'conf/.en?'",
        "git status -v",
        "git cat-file -p 0123abcd",
        "git stash show -p",
        "cd src && git log -p",
        "awk 'BEGIN{system(\"git show\")}'",
    ] {
        let is_allowed = judged(line, plain).await.0 == "allow";
        let (word, why) = judged(line, secret).await;
        assert_eq!(word, "ask", "{line}: {why}");
        if is_allowed {
            assert!(why.contains("conf/.env from an older commit"), "{line}: {why}");
            let (word, why) = judged(line, None).await;
            assert!(word == "ask" && why.starts_with("git does not say"), "{line}: {why}");
        }
    }
    let (word, why) = judged("git show --stat 0123abcd", None).await;
    assert!(word == "ask" && why.starts_with("git does not say"), "the object may be a file: {why}");
    for line in [
        "git show --stat 0123abcd",
        "git diff",
        "git diff -- src",
        "git log",
        "git log --oneline -5",
        "git log -p -- src/a.rs",
        "git show v1:src/a.rs",
        "git grep KEY",
    ] {
        assert_eq!(judged(line, secret).await.0, "allow", "{line}");
    }
}

#[test]
fn git_configured_for_another_folder_asks() {
    let place = place();
    repository(&place, &["src/a.rs"]);
    let rules = rules(&[], &[], &[]);
    std::fs::write(place.root.join(".git/config"), "[core]\n\tworktree = ../../outside\n").unwrap();
    for line in ["git status", "git diff", "git grep x", "git ls-files"] {
        let (word, why) = place.bash(&rules, line, Mode::Ask);
        assert_eq!((word, why.contains("../../outside")), ("ask", true), "{line}: {why}");
    }
    std::fs::write(place.root.join(".git/config"), "[core]\n\tworktree = ..\n").unwrap();
    assert_eq!(place.bash(&rules, "git status", Mode::Ask).0, "allow");
}

/// Git prints the lines of that file that name no commit.
#[test]
fn git_blame_asks_when_the_settings_name_a_file_that_is_not_checked() {
    let place = place();
    repository(&place, &["src/a.rs", "conf/.env"]);
    let rules = rules(&[], &[], &[]);
    for (config, file) in [
        ("[blame]\n\tignoreRevsFile = ../outside/secret\n", "../outside/secret"),
        ("[blame]\n\tignoreRevsFile = ~/.netrc\n", "~/.netrc"),
        ("[blame]\n\tignoreRevsFile = conf/.env\n\tignoreRevsFile =\n", "conf/.env"),
        ("[includeIf \"gitdir:.\"]\n\tpath = ../x\n", "included settings"),
    ] {
        std::fs::write(place.root.join(".git/config"), config).unwrap();
        for line in ["git blame src/a.rs", "timeout 9 git blame src/a.rs"] {
            let (word, why) = place.bash(&rules, line, Mode::Ask);
            assert_eq!((word, why.contains(file)), ("ask", true), "{line}: {why}");
        }
        assert_eq!(place.bash(&rules, "git log", Mode::Ask).0, "allow");
    }
    std::fs::write(place.root.join(".git/config"), "[blame]\n\tignoreRevsFile = .ignored-revisions\n")
        .unwrap();
    assert_eq!(place.bash(&rules, "git blame src/a.rs", Mode::Ask).0, "allow");
}

#[test]
fn a_path_after_a_revision_starts_at_the_repository_root() {
    let place = place();
    repository(&place, &["src/a.rs", "conf/app.toml"]);
    let rules = rules(&[], &[], &["Read(conf/app.toml)"]);
    let judged = |line: &str| {
        let args = json!({ "command": line });
        let cwd = place.root.join("src");
        let (cwd, workspace) = (cwd.as_path(), place.root.as_path());
        let question = CallRequest { tool: "Bash", args: &args, cwd, workspace, home: None, primary: None };
        PreparedCall::of(&question).unwrap().enforced_by(EnforcedProfiles::ALL).verdict(&rules)
    };
    for line in
        ["git show HEAD:conf/app.toml", "git cat-file -p :conf/app.toml", "git show HEAD:../conf/app.toml"]
    {
        let verdict = judged(line);
        assert_eq!(verdict.decision.word(), "deny", "{line}: {}", verdict.why);
    }
    assert_eq!(judged("git show HEAD:src/a.rs").decision.word(), "allow");
}
