use crate::permission::*;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

struct Place {
    _dir: tempfile::TempDir,
    root: PathBuf,
    home: PathBuf,
}

/// A home that contains a workspace with links of all kinds.
fn place() -> Place {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().canonicalize().unwrap();
    let root = home.join("w");
    for folder in ["src/a", ".git/hooks", "secret", "real"] {
        std::fs::create_dir_all(root.join(folder)).unwrap();
    }
    std::fs::create_dir_all(home.join("out")).unwrap();
    std::fs::create_dir_all(home.join(".ssh")).unwrap();
    for file in ["src/main.rs", ".env", "secret/key", "real/x", ".git/config", "../out/x"] {
        std::fs::write(root.join(file), "x").unwrap();
    }
    let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, root.join(name)).unwrap();
    link("../../out", "src/outdir");
    link("../../out/x", "src/outfile");
    link("../../out/missing", "src/dangling");
    link("a", "src/inlink");
    link("../secret/key", "src/alias");
    link("../.git", "src/g");
    link("loop", "src/loop");
    link("../.env", "src/env");
    Place { _dir: dir, root, home }
}

impl Place {
    fn judge(&self, rules: &RuleSet, tool: &str, args: Value, mode: Mode) -> Verdict {
        let question = CallRequest {
            tool,
            args: &args,
            cwd: &self.root,
            workspace: &self.root,
            home: Some(&self.home),
            primary: None,
        };
        evaluate_in(rules, &question, mode)
    }

    fn word(&self, rules: &RuleSet, tool: &str, args: Value) -> &'static str {
        self.judge(rules, tool, args, Mode::Ask).decision.word()
    }

    fn proposals(&self, tool: &str, args: Value) -> Vec<String> {
        let question = CallRequest {
            tool,
            args: &args,
            cwd: &self.root,
            workspace: &self.root,
            home: Some(&self.home),
            primary: None,
        };
        propose_grants(&question).into_iter().map(|p| p.pattern).collect()
    }
}

fn set(allow: &[&str], ask: &[&str], deny: &[&str]) -> RuleSet {
    let mut set = RuleSet::from_patterns(Layer::User, ToolPermissionBehavior::Allow, allow).unwrap();
    set.join(RuleSet::from_patterns(Layer::User, ToolPermissionBehavior::Ask, ask).unwrap());
    set.join(RuleSet::from_patterns(Layer::User, ToolPermissionBehavior::Deny, deny).unwrap());
    set
}

#[test]
fn paths_of_an_allow() {
    let place = place();
    let src = set(&["Edit(file_path ~ \"src/**\")"], &[], &[]);
    let root = place.root.display().to_string();
    let mut wrong = Vec::new();
    for (path, want) in [
        ("src/main.rs", "allow"),
        ("src/new.rs", "allow"),
        ("src/new/deep/er.rs", "allow"),
        ("./src//a/../main.rs", "allow"),
        (&format!("{root}/src/main.rs"), "allow"),
        ("src/inlink/x", "allow"),
        ("src", "ask"),
        ("srcx/a", "ask"),
        ("SRC/main.rs", "ask"),
        ("src/../secret/key", "ask"),
        ("src/../.git/config", "ask"),
        ("src/../../out/x", "ask"),
        ("/etc/passwd", "ask"),
        ("src/../../../../../etc/passwd", "ask"),
        ("src/outdir/x", "ask"),
        ("src/outdir/../w/src/main.rs", "allow"),
        ("src/outfile", "ask"),
        ("src/dangling", "ask"),
        ("src/alias", "ask"),
        ("src/g/config", "ask"),
        ("src/g/hooks/pre-commit", "ask"),
        ("src/loop", "ask"),
        ("src/loop/x", "ask"),
        ("src/.git/config", "ask"),
        ("src/.GIT/config", "ask"),
        ("src/.git./config", "ask"),
        ("src/.git /config", "ask"),
        ("src/.git::$INDEX_ALLOCATION/config", "ask"),
        ("src/GIT~1/config", "ask"),
        ("src/git~12/config", "ask"),
        ("src/.g\u{200c}it/config", "ask"),
        ("src/x\\..\\.git\\config", "ask"),
        ("src/.bashrc", "ask"),
        ("src/a\nb.rs", "ask"),
        ("src/a\tb.rs", "ask"),
        ("src/a\u{202e}b.rs", "ask"),
        ("src/a\u{1b}[2Jb.rs", "ask"),
        ("~/src/x", "ask"),
        ("", "error"),
        ("src/\0x", "error"),
        (&"src/".repeat(1024), "error"),
    ] {
        let got = place.word(&src, "Edit", json!({ "file_path": path }));
        if got != want {
            wrong.push(format!("{path:?}: {got}, not {want}"));
        }
    }
    let all = set(&["Edit(file_path ~ \"**\")"], &[], &[]);
    for (path, want) in [
        ("x", "allow"),
        ("a/b", "allow"),
        ("GIT~1/config", "ask"),
        (".git/config", "ask"),
        (".aye/permissions.yaml", "ask"),
        (".husky/x", "ask"),
        ("/etc/passwd", "ask"),
        ("../x", "ask"),
        ("a/.vscode/tasks.json", "ask"),
        (".github/workflows/x.yml", "ask"),
        (".github/x", "allow"),
        (".gitignore", "allow"),
        ("digit~1/x", "allow"),
        (".gitmodules", "ask"),
        (".envrc", "ask"),
    ] {
        let got = place.word(&all, "Edit", json!({ "file_path": path }));
        if got != want {
            wrong.push(format!("** {path:?}: {got}, not {want}"));
        }
    }
    for (pattern, path, want) in [
        ("Edit", "/tmp/x", "allow"),
        ("Edit", ".git/config", "ask"),
        ("Edit(.git/config)", ".git/config", "allow"),
        ("Edit(file_path ~ \".git/**\")", "src/g/config", "ask"),
        ("Edit(/tmp/**)", "/tmp/aye-none/x", "allow"),
        ("Edit(~/out/**)", "../out/x", "allow"),
        ("Edit(src/*.rs)", "src/main.rs", "allow"),
        ("Edit(file_path =~ \"\\.rs$\")", "src/main.rs", "allow"),
        ("Edit(file_path =~ \"\\.rs$\")", "/tmp/main.rs", "ask"),
        ("Edit(file_path !~ \"secret/**\")", "src/main.rs", "allow"),
        ("Edit(file_path !~ \"secret/**\")", "src/alias", "ask"),
        ("Write(src/**)", "src/main.rs", "ask"),
        ("*(src/**)", "src/main.rs", "allow"),
    ] {
        let got = place.word(&set(&[pattern], &[], &[]), "Edit", json!({ "file_path": path }));
        if got != want {
            wrong.push(format!("{pattern} {path:?}: {got}, not {want}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn paths_of_a_deny() {
    let place = place();
    let root = place.root.display().to_string();
    let mut wrong = Vec::new();
    for (pattern, path, want) in [
        ("Read(file_path ~ \"**/.env\")", ".env", "deny"),
        ("Read(file_path ~ \"**/.env\")", "a/./b/../.env", "deny"),
        ("Read(file_path ~ \"**/.env\")", "src/../.env", "deny"),
        ("Read(file_path ~ \"**/.env\")", "src/env", "deny"),
        ("Read(file_path ~ \"**/.env\")", "/elsewhere/.env", "deny"),
        ("Read(file_path ~ \"secret/**\")", "src/alias", "deny"),
        ("Read(file_path ~ \"secret/**\")", &format!("{root}/secret/key"), "deny"),
        ("Read(file_path ~ \"src/alias\")", "src/alias", "deny"),
        ("Read(secret/**)", "secret/../secret/key", "deny"),
        ("Read(secret/)", "secret/key", "deny"),
        ("Read(secret)", "secret/key", "deny"),
        ("Read(./secret/)", "secret/key", "deny"),
        ("Read(**/secret/)", "secret/key", "deny"),
        ("Read(secret/)", "src/alias", "deny"),
        ("Read(key)", "secret/key", "deny"),
        ("Read(a/key)", "secret/key", "allow"),
        ("Read(//etc/hostname)", "/etc/hostname", "deny"),
        ("Read(/etc/)", "/etc/hostname", "deny"),
        ("Read(etc)", "/etc/hostname", "deny"),
        ("Read(**/etc/)", "/etc/hostname", "deny"),
        ("Read(~/.ssh)", "~/.ssh/id", "deny"),
        ("Read(file_path = \"secret\")", "secret/key", "deny"),
        ("Read(~/.ssh/**)", "~/.ssh/id", "deny"),
        ("Read(~/.ssh/**)", "../.ssh/id", "deny"),
        ("Read(**/.ssh/**)", "~/.ssh/id", "deny"),
        ("Read(file_path !~ \"src/**\")", "src/main.rs", "allow"),
        ("Read(file_path !~ \"src/**\")", "secret/key", "deny"),
        ("Read(file_path !~ \"src/**\")", "src/alias", "deny"),
        ("Read(secret/**)", "src/main.rs", "allow"),
    ] {
        let mut rules = set(&[], &[], &[pattern]);
        rules.set_default(ToolPermissionBehavior::Allow);
        let got = place.word(&rules, "Read", json!({ "file_path": path }));
        if got != want {
            wrong.push(format!("{pattern} {path:?}: {got}, not {want}"));
        }
    }
    let rules = set(&["Grep", "Glob"], &[], &["Grep(path ~ \"secret{,/**}\")", "Glob(path = \".\")"]);
    for (tool, args, want) in [
        ("Grep", json!({"pattern": "x", "path": "secret"}), "deny"),
        ("Grep", json!({"pattern": "x", "path": "src/../secret/"}), "deny"),
        ("Grep", json!({"pattern": "x"}), "allow"),
        ("Glob", json!({"pattern": "x"}), "deny"),
        ("Glob", json!({"pattern": "x", "path": "src"}), "allow"),
        ("Grep", json!({"path": "src"}), "error"),
        ("Grep", json!({"pattern": 3}), "error"),
        ("Grep", json!("x"), "error"),
    ] {
        let got = place.word(&rules, tool, args.clone());
        if got != want {
            wrong.push(format!("{tool} {args}: {got}, not {want}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn shipped_rules_in_use() {
    let place = place();
    let rules = shipped_rules();
    assert_eq!(rules.refused(), None);
    let mut wrong = Vec::new();
    for (command, want) in [
        ("ls", "allow"),
        ("ls -la src", "allow"),
        ("cat src/main.rs | head -5", "allow"),
        ("git status && git diff", "allow"),
        ("rg -n 'fn main' src", "allow"),
        ("grep -rn '/api/v1' src", "allow"),
        ("find . -name '*.rs' | wc -l", "allow"),
        ("cd src && ls", "allow"),
        ("git log --oneline -5", "allow"),
        ("git show HEAD", "allow"),
        ("cat .env", "ask"),
        ("cat src/env", "ask"),
        ("head -1 ./.env", "ask"),
        ("cat ~/.ssh/id_rsa", "ask"),
        ("cat /etc/passwd", "ask"),
        ("cat ../out/x", "ask"),
        ("cat src/outfile", "ask"),
        ("ls src/outdir", "ask"),
        ("cat .e*", "ask"),
        ("git show HEAD:.env", "ask"),
        ("git diff --no-index /etc/passwd x", "ask"),
        ("grep -f /etc/passwd x", "ask"),
        ("grep x --file=/etc/passwd", "ask"),
        ("rg --files /etc", "ask"),
        ("sort --files0-from=/etc/passwd", "ask"),
        ("wc -l /etc/passwd", "ask"),
        ("find / -name x", "ask"),
        ("touch x", "ask"),
        ("npm test", "ask"),
        ("git push", "ask"),
        ("echo x > y", "ask"),
        ("find . -delete", "ask"),
        ("command ls", "ask"),
        ("command -v git", "allow"),
        ("rm -rf /", "deny"),
        ("sudo rm -rf /", "deny"),
        ("rm -rf ~/", "deny"),
        ("sh -c 'rm -fr /*'", "deny"),
        ("rm -rf \"$HOME\"", "deny"),
        ("rm -rf target", "ask"),
        ("rm -rf ./", "ask"),
        ("rm -rf ~/w/x", "ask"),
        ("dd if=x of=/dev/sda", "deny"),
        (":(){ :|:& };:", "deny"),
        ("git branch -D x", "ask"),
        ("git branch -a", "allow"),
        ("git branch", "allow"),
        ("git -C /x log", "ask"),
        ("cd .. && ls", "ask"),
        ("cat src/g/config", "ask"),
        ("ls -la .git", "allow"),
        ("cat $X", "ask"),
        ("date +%F", "allow"),
        ("date +%F -uf.env", "ask"),
        ("cd src && grep -rn x . | head", "allow"),
        ("(cd src); cat ../x", "ask"),
        ("cd src && cat ../src/main.rs", "allow"),
        ("cd src && cat ../../x", "ask"),
        ("cd src/inner/../.. && cat ../x", "ask"),
        // Programs and options that read more files than they name.
        ("jq . x.json", "ask"),
        ("jq 'env' x.json", "ask"),
        ("file -bf/etc/shadow", "ask"),
        ("file src/main.rs", "ask"),
        ("tree", "ask"),
        ("uniq - x", "ask"),
        ("sort x | uniq -c", "allow"),
        ("grep -vf/etc/passwd x", "ask"),
        ("grep -cf.env x", "ask"),
        ("grep --fil=.env x", "ask"),
        ("grep --exclude-from=.env x", "ask"),
        ("grep -R x src", "ask"),
        ("grep -rR x src", "ask"),
        ("grep --dereference-recursive x src", "ask"),
        ("grep -rniE --include='*.rs' 'a|b' src", "allow"),
        ("grep -A3 -B 2 -e x src/main.rs", "allow"),
        ("rg -nf.env x", "ask"),
        ("rg -L x src", "ask"),
        ("rg --follow x src", "ask"),
        ("rg --ignore-file=.env x", "ask"),
        ("rg -n -C2 -g '*.rs' --no-heading x src", "allow"),
        ("wc --files0-from=.env", "ask"),
        ("wc --files0=.env", "ask"),
        ("wc -lc src/main.rs", "allow"),
        ("du --files0-from=.env", "ask"),
        ("du -hX.env", "ask"),
        ("du -sh src", "allow"),
        ("sort --files0=.env", "ask"),
        ("sort -k2,2n -t, -u src/main.rs", "allow"),
        ("find . -files0-from .env", "ask"),
        ("find -L . -name x", "ask"),
        ("find . -type f -mtime -7 -size +10k -printf '%p'", "allow"),
        ("ls -LR src", "ask"),
        ("ls -lahtr src", "allow"),
        ("diff -r a b", "ask"),
        ("diff -u src/main.rs x", "allow"),
        ("md5sum -c x", "ask"),
        ("git show :0:.env", "ask"),
        ("git show :.env", "ask"),
        ("git show :0:src/main.rs", "allow"),
        ("git diff -- ':(top).env'", "ask"),
        ("git diff -- ':/.env'", "ask"),
        ("git diff -- ':!x'", "ask"),
        ("git log -p -- '.en?'", "ask"),
        ("git log -p -- '.en\\v'", "ask"),
        ("git log -L1,5:.env", "ask"),
        ("git log -p -- src/main.rs", "allow"),
        ("git log -p -3 --stat --author=a -S x -- src", "allow"),
        ("git diff -wO.env", "ask"),
        ("git blame -wS.env x", "ask"),
        ("git blame --ignore-revs-file=.env x", "ask"),
        ("git blame -L 1,5 src/main.rs", "allow"),
        ("git ls-files -uX.env", "ask"),
        ("git ls-files '*.rs'", "allow"),
        ("git grep -nf.env x", "ask"),
        ("git grep -n 'fn .*main' src", "allow"),
        ("git grep --no-index x", "ask"),
        ("git log --outp=x", "ask"),
        ("git status -sb -uno", "allow"),
        ("git shortlog -sne", "allow"),
        ("cargo --version", "ask"),
        ("node --version", "ask"),
        ("gcc --version", "allow"),
        ("git --version", "allow"),
    ] {
        let got = place.judge(&rules, "Bash", json!({ "command": command }), Mode::Ask);
        // Git's own files are not secret: reading them is fine, so both verdicts are accepted.
        if got.decision.word() != want && command != "cat src/g/config" {
            wrong.push(format!("{command:?}: {} not {want} ({})", got.decision.word(), got.why));
        }
    }
    for (tool, args, want) in [
        ("Read", json!({"file_path": "src/main.rs"}), "allow"),
        ("Read", json!({"file_path": "src/outfile"}), "ask"),
        ("Read", json!({"file_path": ".env"}), "ask"),
        ("Read", json!({"file_path": "src/env"}), "ask"),
        ("Read", json!({"file_path": "~/.ssh/config"}), "ask"),
        ("Edit", json!({"file_path": "src/main.rs"}), "ask"),
        ("Glob", json!({"pattern": "**/*.rs"}), "allow"),
        ("Glob", json!({"pattern": "src/outdir/../../*"}), "ask"),
        ("Glob", json!({"pattern": "*", "path": "/etc"}), "ask"),
        ("List", json!({}), "allow"),
        ("List", json!({"path": "src/outdir"}), "ask"),
        ("TodoWrite", json!({"todos": []}), "allow"),
        ("WebFetch", json!({"url": "http://x"}), "ask"),
        ("mcp__x__y", json!({}), "ask"),
    ] {
        let got = place.judge(&rules, tool, args.clone(), Mode::Ask);
        if got.decision.word() != want {
            wrong.push(format!("{tool} {args}: {} not {want} ({})", got.decision.word(), got.why));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_strictest_rule_wins_in_any_order() {
    let place = place();
    let git = |rules: &RuleSet, command: &str| place.word(rules, "Bash", json!({ "command": command }));
    let rules = set(&["Bash(git *)"], &["Bash(git push *)"], &[]);
    assert_eq!(git(&rules, "git push"), "ask");
    assert_eq!(git(&rules, "git log"), "allow");
    let rules = set(&["Bash(git push origin)"], &[], &["Bash(git *)"]);
    assert_eq!(git(&rules, "git push origin"), "deny");
    let mut rules = set(&[], &["Bash(git push *)"], &["Bash(rm *)"]);
    rules.grant("Bash(git push *)").unwrap();
    rules.grant("Bash(rm *)").unwrap();
    rules.grant("Bash(ls *)").unwrap();
    assert_eq!((git(&rules, "git push"), git(&rules, "rm x"), git(&rules, "ls")), ("ask", "deny", "allow"));
    let verdict = place.judge(
        &set(&[], &[], &["Bash", "Bash(rm *)", "B*"]),
        "Bash",
        json!({"command": "rm"}),
        Mode::Ask,
    );
    assert_eq!(verdict.rule.as_deref(), Some("Bash(rm *)"), "the narrowest rule is reported");
}

#[test]
fn broken_rules_make_everything_ask_but_keep_denials() {
    let place = place();
    let mut rules = set(&["Bash"], &[], &["Bash(rm *)"]);
    rules.refuse("permissions.yaml:3: x");
    rules.set_default(ToolPermissionBehavior::Allow);
    assert_eq!(place.word(&rules, "Bash", json!({"command": "ls"})), "ask");
    assert_eq!(place.word(&rules, "Bash", json!({"command": "rm x"})), "deny");
    let yolo = place.judge(&rules, "Bash", json!({"command": "ls"}), Mode::Yolo);
    assert_eq!(yolo.decision, VerdictKind::Ask(AskKind::BrokenRules));
}

#[test]
fn plan_mode_runs_read_only_lines_by_shipped_rules() {
    let place = place();
    let mut rules = crate::permission::shipped_rules();
    rules.join(set(&["Bash(cargo build *)", "Bash(touch *)"], &["Bash(git blame *)"], &["Bash(git show *)"]));
    rules.grant("Bash(make *)").unwrap();
    let bash = |rules: &RuleSet, command: &str| {
        place.judge(rules, "Bash", json!({ "command": command }), Mode::Plan)
    };
    for (command, want) in [
        ("ls src", "allow"),
        ("git log --oneline -5 | head -n 2", "allow"),
        ("ls src && git status", "allow"),
        // A user's rule, or a grant, may allow more than reading.
        ("cargo build", "deny"),
        ("make", "deny"),
        ("ls src && touch x", "deny"),
        ("ls > x", "deny"),
        ("ls $(touch x)", "deny"),
        ("sort -o a b", "deny"),
        ("cat /etc/passwd", "deny"),
        ("curl http://x", "deny"),
        // Calls that ask or are denied are not reads either.
        ("git blame x", "deny"),
        ("git show HEAD", "deny"),
    ] {
        assert_eq!(bash(&rules, command).decision.word(), want, "{command}: {}", bash(&rules, command).why);
    }
    let why = bash(&rules, "touch x").why;
    // A rule would not help.
    assert!(why.ends_with("is not known to be read-only (no rule covers `touch x`)"), "{why}");
    let why = bash(&rules, "ls $(touch x)").why;
    assert!(why.contains("read-only (") && !why.contains("a rule for the whole line"), "{why}");
    // An allow-all default makes no difference, and unreadable rules allow nothing.
    rules.set_default(ToolPermissionBehavior::Allow);
    assert_eq!(bash(&rules, "touch x").decision, VerdictKind::Deny);
    assert_eq!(bash(&rules, "ls src").grants, []);
    rules.refuse("permissions.yaml:3: x");
    assert_eq!(bash(&rules, "ls src").decision, VerdictKind::Deny);
}

#[test]
fn modes() {
    let place = place();
    let rules = set(&["Read"], &["Edit(src/a/**)", "Bash(git push *)"], &["Edit(secret/**)"]);
    let edit =
        |path: &str, mode| place.judge(&rules, "Edit", json!({ "file_path": path }), mode).decision.word();
    let bash = |rules: &RuleSet, command: &str, mode| {
        place.judge(rules, "Bash", json!({ "command": command }), mode).decision.word()
    };
    for (path, want) in [
        ("src/main.rs", "allow"),
        ("src/a/x", "ask"),
        ("secret/key", "deny"),
        (".git/config", "ask"),
        ("/etc/passwd", "ask"),
        ("src/outfile", "ask"),
        ("src/dangling", "ask"),
        ("src/alias", "deny"),
        ("../out/x", "ask"),
        ("src/a\nb", "ask"),
    ] {
        assert_eq!(edit(path, Mode::AcceptEdits), want, "accept-edits {path}");
    }
    assert_eq!(bash(&rules, "touch x", Mode::AcceptEdits), "ask");
    assert_eq!(edit("src/main.rs", Mode::Plan), "deny");
    assert_eq!(bash(&rules, "ls", Mode::Plan), "deny");
    assert_eq!(
        place.judge(&rules, "Read", json!({"file_path": "x"}), Mode::Plan).decision,
        VerdictKind::Allow
    );
    for (path, want) in [
        ("src/main.rs", "allow"),
        ("src/a/x", "ask"),
        ("secret/key", "deny"),
        (".git/config", "ask"),
        ("/tmp/x", "allow"),
    ] {
        assert_eq!(edit(path, Mode::Yolo), want, "yolo {path}");
    }
    let free = set(&[], &["Bash(git push *)"], &[]);
    assert_eq!(bash(&free, "eval \"$X\"", Mode::Yolo), "allow");
    assert_eq!(bash(&free, "touch x; $Y", Mode::Yolo), "allow");
    assert_eq!(bash(&free, "git push", Mode::Yolo), "ask");
    let denying = set(&[], &[], &["Bash(rm *)"]);
    assert_eq!(bash(&denying, "eval \"$X\"", Mode::Yolo), "ask");
    assert_eq!(bash(&denying, "touch x", Mode::Yolo), "allow");
    assert_eq!(bash(&denying, "echo `rm x`", Mode::Yolo), "deny");
    assert!("x".parse::<Mode>().is_err());
}

#[test]
fn proposed_grants() {
    let place = place();
    let bash = |command: &str| place.proposals("Bash", json!({ "command": command }));
    assert_eq!(bash("git status -sb"), ["Bash(command = \"git status -sb\")", "Bash(git status *)"]);
    assert_eq!(bash("cargo test --lib"), ["Bash(command = \"cargo test --lib\")", "Bash(cargo test *)"]);
    assert_eq!(bash("npm run build"), ["Bash(command = \"npm run build\")", "Bash(npm run build *)"]);
    assert_eq!(bash("rm x"), ["Bash(command = \"rm x\")"]);
    assert_eq!(bash("touch '*'"), ["Bash(command = \"touch '*'\")", "Bash(touch *)"]);
    assert_eq!(bash("cargo build && cargo test").len(), 1);
    for command in [
        "bash -c x",
        "bash",
        "python -c x",
        "python",
        "eval x",
        "env x",
        "sudo ls",
        "xargs ls",
        "ls $x",
        "ls > x",
        "FOO=1 ls",
        "find . -exec x {} +",
        "git -c a=b log",
        "git x",
        "ssh h",
        "ls; $x",
        "source x",
        "docker run x",
        "vim x",
        "cat <<EOF\n$x\nEOF",
        "awk 'BEGIN{system(1)}'",
        "ls )",
    ] {
        let exact = aye_pattern::Pattern::literal("Bash", "command", command).to_string();
        assert_eq!(bash(command), [exact], "{command}");
    }
    assert_eq!(bash("npx x")[1], "Bash(npx x *)");
    assert_eq!(bash("npm exec x")[1], "Bash(npm exec x *)");
    assert_eq!(bash("timeout 5 ls")[1], "Bash(ls *)");
    assert_eq!(bash("ls\u{200b}"), Vec::<String>::new());
    let edit = |path: &str| place.proposals("Edit", json!({ "file_path": path }));
    assert_eq!(edit("src/main.rs"), ["Edit(file_path = \"src/main.rs\")", "Edit(file_path ~ \"src/**\")"]);
    assert_eq!(edit("x.md"), ["Edit(file_path = \"x.md\")", "Edit(file_path ~ \"**\")"]);
    assert_eq!(edit("src/inlink/x*[1].rs")[1], "Edit(file_path ~ \"src/a/**\")");
    for path in [".git/config", "src/dangling", "src/a\nb", "src/g/x"] {
        assert_eq!(edit(path), Vec::<String>::new(), "{path}");
    }
    assert_eq!(place.proposals("mcp__a__b", json!({})), ["mcp__a__b"]);
    assert_eq!(
        place.proposals("WebFetch", json!({"url": "https://docs.rs/x"}))[1],
        "WebFetch(url ~ \"https://docs.rs/*\")"
    );
    assert_eq!(place.proposals("WebFetch", json!({"url": "https://docs.rs@evil/x"})).len(), 1);
}

#[test]
fn a_granted_proposal_allows_its_call() {
    let place = place();
    for (tool, args) in [
        ("Bash", json!({"command": "git status -sb"})),
        ("Bash", json!({"command": "touch '*' 'a b' \"c\""})),
        ("Bash", json!({"command": "cargo build && cargo test"})),
        ("Edit", json!({"file_path": "src/main.rs"})),
        ("Edit", json!({"file_path": "src/we[i]rd*{a,b}/x\\y\"z.rs"})),
        ("Read", json!({"file_path": "/etc/hosts"})),
        ("WebFetch", json!({"url": "https://docs.rs/x?y=*"})),
        ("mcp__x__y", json!({"a": 1})),
    ] {
        let patterns = place.proposals(tool, args.clone());
        assert!(!patterns.is_empty(), "{tool} {args}");
        for pattern in patterns {
            let mut rules = RuleSet::new();
            rules.grant(&pattern).unwrap();
            let verdict = place.judge(&rules, tool, args.clone(), Mode::Ask);
            assert_eq!(verdict.decision, VerdictKind::Allow, "{pattern}: {}", verdict.why);
        }
    }
}

fn refused(text: &str) -> String {
    RuleSet::read(text, RuleFormat::Yaml, Layer::User, "p.yaml").unwrap_err().to_string()
}

#[test]
fn invalid_files_are_refused_with_the_line() {
    for (text, line, part) in [
        ("rules:\n  - {tool: Bash, behavior: deny, pattern: 'rm *'}\n", 2, "pattern"),
        ("default_behavior: allow\nrules:\n  - {tool: 'Bash(rm *', behavior: deny}\n", 3, "unclosed"),
        (
            "default_behavior: allow\nrules:\n  - {tool: 'Bash(command =~ \"(rm\")', behavior: deny}\n",
            3,
            "regular expression",
        ),
        ("rules:\n  - {tool: no, behavior: deny}\n", 2, "string"),
        ("rules:\n  - {tool: 123, behavior: deny}\n", 2, "string"),
        ("rules:\n  - {tool: true, behavior: deny}\n", 2, "string"),
        ("rules:\n  - {tool: ~, behavior: deny}\n", 2, "string"),
        ("rules:\n  - {tool: [a], behavior: deny}\n", 2, "string"),
        ("x: !!python/object/apply:os.system ['touch pwn']\n", 1, ""),
        ("rules:\n  - {tool: !!python/name:os.system x, behavior: deny}\n", 2, ""),
        ("rules:\n  - {tool: !custom x, behavior: deny}\n", 2, ""),
        ("default_behavior: !x allow\n", 1, ""),
        ("rules: !x []\n", 1, ""),
        ("default_behavior: perhaps\n", 1, "unknown value `perhaps`"),
        ("rules:\n  - {tool: Bash, behavior: forbid}\n", 2, "forbid"),
        ("rules:\n  - {tool: Bash}\n", 2, "behavior"),
        ("rules:\n  - {behavior: deny}\n", 2, "tool"),
        ("rules:\n  - {tool: Bash, tool: Read, behavior: deny}\n", 2, "duplicate key: tool"),
        ("rules: []\nrules: []\n", 2, "rules"),
        ("rules: 3\n", 1, "expected a list"),
        ("rules:\n  - Bash\n", 2, "expected keys with values"),
        ("rules: &a [*a]\n", 1, "reference"),
        ("- a\n", 1, ""),
        ("rules:\n\t- x\n", 2, "use spaces"),
        ("rules:\n  - {tool: 'Bash(ls *)', behavior: allow, match: 'rm x'}\n", 2, "example"),
        ("rules:\n\n  - {tool: 'Bash(ls *)', behavior: allow, not_match: ['ls']}\n", 3, "not_match"),
        ("rules:\n  - {tool: 'Bash(ls *)', behavior: allow, match: ['ls; rm x']}\n", 2, "example"),
        ("rules:\n  - {tool: '', behavior: deny}\n", 2, "missing"),
        ("a: &a [x]\nb: *a\n", 1, ""),
    ] {
        let error = refused(text);
        assert!(error.starts_with(&format!("p.yaml:{line}: ")) && error.contains(part), "{text:?}: {error}");
        assert!(!error.contains('\n') && !error.contains(" at line "), "{error:?}");
    }
    let json =
        |text: &str| RuleSet::read(text, RuleFormat::Json, Layer::User, "p.json").map_err(|e| e.to_string());
    assert!(json("{\"rules\":[],}").unwrap_err().starts_with("p.json:1: not JSON"));
    assert!(json("{\"rules\":[],\"rules\":[]}").is_err());
    assert!(json("{\"rules\":[{\"tool\":123,\"behavior\":\"deny\"}]}").is_err());
    assert_eq!(
        json("{\n \"rules\":[\n  {\"tool\":\"Bash(x)\",\"behavior\":\"deny\"}]}").unwrap().rules()[0]
            .origin
            .to_string(),
        "p.json:3"
    );
}

#[test]
fn valid_files() {
    for text in ["", "\n", "# nothing\n", "---\n", "rules:\n", "rules: []\n", "{}\n", "\u{feff}rules: []\n"] {
        let set = RuleSet::read(text, RuleFormat::Yaml, Layer::User, "p.yaml").unwrap();
        assert_eq!((set.default_behavior(), set.rules().len()), (ToolPermissionBehavior::Ask, 0), "{text:?}");
    }
    let text = "default_behavior: deny\nrules:\n  - tool: \"no\"\n    behavior: deny\n  - tool: Bash(npm *)\n    behavior: allow\n    match: npm test\n    not_match: [npm exec x, {command: 'npm test; x'}]\n  - {tool: mcp__*, behavior: ask, match: [mcp__a__b], not_match: [Read]}\n";
    let set = RuleSet::read(text, RuleFormat::Yaml, Layer::Project, "p.yaml").unwrap();
    let origins: Vec<String> = set.rules().iter().map(|rule| rule.origin.to_string()).collect();
    assert_eq!(origins, ["p.yaml:3", "p.yaml:5", "p.yaml:9"]);
    assert_eq!(set.default_behavior(), ToolPermissionBehavior::Deny);
    let config: PermissionRulesConfig = serde_json::from_value(
        json!({"rules": [{"tool": "delete_*", "behavior": "deny", "match": "delete_x"}]}),
    )
    .unwrap();
    assert_eq!(config.into_ruleset().unwrap().hidden_tools(&["delete_x", "Read"]), ["delete_x"]);
}

#[test]
fn hidden_tools_are_those_denied_for_any_arguments() {
    let rules = set(&["Read"], &[], &["mcp__*", "Bash(rm *)", "/^Web/(*)"]);
    assert_eq!(rules.hidden_tools(&["Read", "mcp__a__b", "Bash", "WebFetch"]), ["mcp__a__b", "WebFetch"]);
}

#[test]
fn a_check_uses_the_requested_mode() {
    let edit = r#"{"tool":"Edit","args":{"file_path":"a.rs","old_string":"a","new_string":"b"}}"#;
    let word = |mode: Mode| {
        let (cwd, enforced) = (Path::new("/w"), EnforcedProfiles::default());
        let ctx = CheckContext { cwd, workspace: cwd, home: None, domains: &[], enforced, mode, git: None };
        let out: Value =
            serde_json::from_str(&futures::executor::block_on(check_line(edit, &RuleSet::new(), ctx)))
                .unwrap();
        out["verdict"].as_str().unwrap().to_owned()
    };
    assert_eq!([Mode::Ask, Mode::AcceptEdits, Mode::Plan].map(word), ["ask", "allow", "deny"]);
}

#[test]
fn invalid_check_lines() {
    let ctx = CheckContext {
        cwd: Path::new("/w"),
        workspace: Path::new("/w"),
        home: None,
        domains: &[],
        enforced: EnforcedProfiles::default(),
        mode: Mode::Ask,
        git: None,
    };
    let verdict = |line: &str| {
        let out: Value =
            serde_json::from_str(&futures::executor::block_on(check_line(line, &RuleSet::new(), ctx)))
                .unwrap();
        out["verdict"].as_str().unwrap().to_owned()
    };
    for line in [
        "",
        "x",
        "{}",
        "[]",
        "null",
        "{\"tool\":3}",
        "{\"tool\":\"Bash\"}",
        "{\"tool\":\"Bash\",\"args\":[]}",
        "{\"tool\":\"Bash\",\"args\":{\"command\":\"ls\"},\"rules\":{\"deny\":[\"Bash(\"]}}",
        "{\"tool\":\"Bash\",\"args\":{\"command\":\"ls\"},\"rules\":{\"denied\":[]}}",
        "{\"tool\":\"Bash\",\"args\":{\"command\":\"ls\"},\"rules\":{\"default\":\"maybe\"}}",
        "{\"tool\":\"Bash\",\"args\":{\"command\":\" \"}}",
        "{\"tool\":\"Read\",\"args\":{\"file_path\":null}}",
        "{\"tool\":\"Read\",\"args\":{\"file_path\":true}}",
        "{\"tool\":\"WebFetch\",\"args\":{}}",
    ] {
        assert_eq!(verdict(line), "error", "{line}");
    }
    assert_eq!(verdict("{\"tool\":\"Bash\",\"args\":{\"command\":\"ls\"}}"), "ask");
    assert_eq!(verdict("{\"tool\":\"x\"}"), "ask");
}

fn wrapped(depth: u32) -> impl Strategy<Value = String> {
    Just("rm -f x".to_owned()).prop_recursive(depth, 8, 1, |inner| {
        (inner, 0..18_usize).prop_map(|(inner, how)| match how {
            0 => format!("( {inner})"),
            1 => format!("{{ {inner}; }}"),
            2 => format!("echo $( {inner})"),
            3 => format!("echo \"$( {inner})\""),
            4 => format!("sh -c {}", aye_pattern::shell::quote(&inner)),
            5 => format!("eval {}", aye_pattern::shell::quote(&inner)),
            6 => format!("ls; {inner}"),
            7 => format!("ls | {inner}"),
            8 => format!("if true; then {inner}; fi"),
            9 => format!("cat <( {inner})"),
            10 => format!("env A=1 sh -c {}", aye_pattern::shell::quote(&inner)),
            11 => format!("timeout 5 bash -c {}", aye_pattern::shell::quote(&inner)),
            12 => format!("x=$( {inner})"),
            13 => format!("f() {{ {inner}; }}; f"),
            14 => format!("ls # c\n{inner}"),
            15 => format!("! {inner}"),
            16 => format!("for i in 1; do {inner}; done"),
            _ => format!("ls > /dev/null && {inner}"),
        })
    })
}

proptest! {
    #![proptest_config(super::with_cases(200))]

    /// However deeply a denied command is wrapped, it never runs unasked, and mostly it is denied outright.
    #[test]
    fn a_deny_is_never_lost(command in wrapped(5)) {
        let mut rules = set(&["Bash(ls *)", "Bash(echo *)"], &[], &["Bash(rm *)"]);
        rules.set_default(ToolPermissionBehavior::Allow);
        let args = json!({ "command": command });
        let question = CallRequest { tool: "Bash", args: &args, cwd: Path::new("/w"), workspace: Path::new("/w"), home: None, primary: None };
        let verdict = evaluate(&rules, &question);
        prop_assert!(verdict.decision != VerdictKind::Allow, "{command}: {verdict:?}");
        let analysis = aye_pattern::shell::analyse(&command);
        // Where the grammar cannot continue (`! if …` in an inner text), only a question is left.
        let is_read = analysis.unreadable.is_none()
            && analysis.undecided.is_none_or(|why| why.contains("function is defined"));
        if is_read {
            prop_assert_eq!(verdict.decision, VerdictKind::Deny, "{}", command);
        }
    }

    /// An allowed line consists of commands that are each matched by a rule.
    #[test]
    fn allowed_means_every_part_is_allowed(parts in proptest::collection::vec(prop_oneof![
        Just("ls"), Just("ls -la"), Just("touch pwn"), Just(";"), Just("&&"), Just("|"), Just("\n"), Just("("), Just(")"), Just("'"), Just("\""), Just("$(touch pwn)"),
        Just("`touch pwn`"), Just("#"), Just("\\"), Just(" "), Just("> pwn"), Just("2>&1"), Just("<<'EOF'\n"), Just("EOF\n"), Just("EOF"), Just("<<E"), Just("{"), Just("}"), Just("!"), Just("-"), Just("a=b"), Just("&"), Just("<"), Just("\t"),
    ], 0..14)) {
        let command = parts.concat();
        let rules = set(&["Bash(ls *)"], &[], &[]);
        let args = json!({ "command": command });
        let question = CallRequest { tool: "Bash", args: &args, cwd: Path::new("/w"), workspace: Path::new("/w"), home: None, primary: None };
        if evaluate(&rules, &question).decision == VerdictKind::Allow {
            let analysis = aye_pattern::shell::analyse(&command);
            for found in &analysis.commands {
                prop_assert_eq!(found.program(), Some("ls"), "{}", command);
            }
        }
    }

    /// No input makes the judge panic, and every answer is valid.
    #[test]
    fn check_never_panics(line in ".{0,80}", command in ".{0,60}", pattern in ".{0,30}", path in ".{0,30}") {
        let ctx = CheckContext { cwd: Path::new("/w"), workspace: Path::new("/w"), home: Some(Path::new("/h")), domains: &[], enforced: EnforcedProfiles::default(), mode: Mode::Ask, git: None };
        for line in [
            line,
            json!({"tool": "Bash", "args": {"command": command}, "rules": {"deny": [pattern], "default": "allow"}}).to_string(),
            json!({"tool": "Edit", "args": {"file_path": path}, "rules": {"allow": ["Edit"]}}).to_string(),
        ] {
            let out: Value = serde_json::from_str(&futures::executor::block_on(check_line(&line, &RuleSet::new(), ctx))).unwrap();
            prop_assert!(out["verdict"].is_string());
        }
    }
}
