//! Misspelt tool names, unknown runners, and the text of reasons.

use crate::permission::*;
use serde_json::json;
use std::path::Path;

fn judge(rules: &RuleSet, command: &str, mode: Mode) -> Verdict {
    let args = json!({ "command": command });
    let place = Path::new("/nowhere/at/all");
    let question =
        CallRequest { tool: "Bash", args: &args, cwd: place, workspace: place, home: None, primary: None };
    evaluate_in(rules, &question, mode)
}

fn read(text: &str) -> Result<RuleSet, String> {
    RuleSet::read(text, RuleFormat::Yaml, Layer::User, "permissions.yaml").map_err(|error| error.to_string())
}

#[test]
fn a_misspelt_tool_in_a_deny_or_ask_is_refused_with_its_place() {
    for (name, meant) in [
        ("bash", "Bash"),
        ("Bsh", "Bash"),
        ("Raed", "Read"),
        ("read", "Read"),
        ("WebFecth", "WebFetch"),
        ("Skill", "skill"),
        ("KillShel", "KillShell"),
        ("Todo_Write", "TodoWrite"),
    ] {
        for behavior in ["deny", "ask"] {
            let error = read(&format!("rules:\n  - {{tool: Read, behavior: ask}}\n  - {{tool: \"{name}(x *)\", behavior: {behavior}}}\n"))
                .unwrap_err();
            assert!(
                error.starts_with("permissions.yaml:3: ") && error.contains(&format!("`{meant}`")),
                "{error}"
            );
        }
        assert!(RuleSet::from_flags(&[], &[name]).unwrap_err().to_string().contains(meant), "{name}");
        read(&format!("rules:\n  - {{tool: \"{name}\", behavior: allow}}\n")).unwrap();
    }
    for name in
        ["Bash", "BashOutput", "Deploy", "mcp__bash", "agent_run_a", "Bas*", "/bash/", "skill_script", "*"]
    {
        read(&format!("rules:\n  - {{tool: \"{name}\", behavior: deny}}\n")).unwrap();
    }
    let mut refused = RuleSet::from_patterns(Layer::User, ToolPermissionBehavior::Allow, ["Bash"]).unwrap();
    refused.refuse("x");
    assert_eq!(judge(&refused, "ls", Mode::Yolo).decision, VerdictKind::Ask(AskKind::BrokenRules));
}

#[test]
fn rules_about_unknown_tools_are_named() {
    let rules = read(
        "rules:\n  - {tool: Deploy, behavior: deny}\n  - {tool: bash(ls *), behavior: allow}\n  - {tool: mcp__here__x, behavior: ask}\n  \
         - {tool: mcp__gone__x, behavior: ask}\n  - {tool: Bash(ls), behavior: allow}\n  - {tool: \"mcp__*\", behavior: ask}\n  \
         - {tool: \"b*sh(rm *)\", behavior: deny}\n  - {tool: /read/, behavior: ask}\n",
    )
    .unwrap();
    let warnings = rules.unknown_tools(|name| name == "mcp__here__x");
    assert_eq!(
        warnings,
        [
            "permissions.yaml:2: rule `Deploy` names an unknown tool",
            "permissions.yaml:3: rule `bash(ls *)` names an unknown tool; did you mean `Bash`?",
            "permissions.yaml:5: rule `mcp__gone__x` names an unknown tool",
            "permissions.yaml:8: rule `b*sh(rm *)` matches no tool; did you mean `Bash`? Tool names are case-sensitive",
            "permissions.yaml:9: rule `/read/` matches no tool; did you mean `Read`? Tool names are case-sensitive",
        ]
    );
}

#[test]
fn an_empty_word_is_valid_in_a_rule() {
    let rule = format!("Bash(mytool {} *)", crate::permission::grant::pattern_word(""));
    assert_eq!(rule, "Bash(mytool '' *)");
    let rules = RuleSet::from_flags(&[&rule], &[]).unwrap();
    assert_eq!(judge(&rules, "mytool '' f", Mode::Ask).decision, VerdictKind::Allow);
    assert_ne!(judge(&rules, "mytool f f", Mode::Ask).decision, VerdictKind::Allow);
}

/// In yolo mode only a deny stops a command.
#[test]
fn an_unknown_program_with_a_denied_word_is_undecided() {
    let deny = |pattern: &str| {
        let mut rules = shipped_rules();
        rules.join(RuleSet::from_flags(&[], &[pattern]).unwrap());
        rules
    };
    let rules = deny("Bash(rm *)");
    let mut wrong = Vec::new();
    for command in [
        "prlimit rm -f x",
        "prlimit --nofile=1 /bin/rm x",
        "x86_64 rm x",
        "i386 rm x",
        "choom -n 0 -- rm x",
        "sg users -c 'rm x'",
        "sg users -c rm",
        "gdb -batch -ex 'shell rm x'",
        "gdb --eval-command='!rm x'",
        "gdb -ex '!rm'",
        "gpg-agent --daemon rm x",
        "dbus-launch rm x",
        "runcon -t x rm x",
        "numactl rm x",
        "cpulimit -l 50 rm x",
        "eatmydata rm x",
        "chpst -u a rm x",
        "daemonize /bin/rm x",
        "systemd-inhibit rm x",
        "newgrp - rm",
        "softlimit -m 1 rm x",
        "tsp rm x",
        "dtach -c s rm x",
        "abduco -c s rm x",
        "heaptrack rm x",
        "rr record rm x",
        "socat - EXEC:rm",
        "foo -crm x",
        "foo --exec=rm x",
        "foo --exec='/bin/rm -f' x",
        "foo 'a;rm x'",
        "nice prlimit rm x",
        "find . -exec prlimit rm {} +",
        "./run rm",
        "setarch -R rm x",
        "setarch x86_64 -R rm x",
        "proxychains4 -q rm x",
        "chrt --idle rm x",
        "LESSOPEN='|rm x' less f",
        "MAKEFLAGS='--eval=$(shell rm x)' make",
        "BASH_ENV=/tmp/rm bash f",
        // Another shell reads these texts, and removes quotes.
        "sg users -c \"r''m x\"",
        "sg users \"r''m x\"",
        "sg - users -c \"r''m x\"",
        "runuser -c \"r''m x\"",
        "runuser -c\"r''m x\"",
        "runuser root -c \"r''m x\"",
        "runuser --session-command=\"r''m x\"",
        "su -c true -c \"r''m x\"",
        "script -c true -c \"r''m x\"",
        "flock f --command \"r''m x\"",
        "entr -s \"r''m x\"",
        "npx --call=\"r''m x\"",
        "npm --script-shell rm run x",
        "concurrently 'r\\m x'",
        "GIT_EDITOR=\"r''m x\" git commit",
        // A program of the project, or of anyone.
        "cargo run -- rm x",
        "cargo watch -s \"r''m x\"",
        // What reads commands from its input.
        "at now <<< 'rm x'",
        "echo 'rm x' | batch",
        "gdb <<< 'shell rm x'",
        "sftp h <<< '!rm x'",
        "ssh h <<< 'rm x'",
        "sudo -u root -s <<< 'rm x'",
        "sudo --login <<< 'rm x'",
        "chroot / <<< 'rm x'",
        "unshare -r <<< 'rm x'",
        "nsenter -t 1 -a <<< 'rm x'",
        "parallel <<< 'rm x'",
    ] {
        let verdict = judge(&rules, command, Mode::Yolo);
        if !matches!(verdict.decision, VerdictKind::Ask(AskKind::Undecided) | VerdictKind::Deny) {
            wrong.push(format!("{command}: {verdict:?}"));
        }
    }
    for command in [
        "echo rm x",
        "git rm x",
        "grep -rn rm .",
        "docker rm x",
        "cp rm.c x",
        "prlimit ls",
        "foo --format alarm",
        "foo rm.c",
        "cargo test rm",
        "cargo --locked add rm",
        "cargo run -- --format alarm",
        "foo \"it's a rm.c\"",
        "sudo ls -si",
        "sudo -v",
        "flock f gcc -c x.c",
        "runuser -u www ls",
        "ssh -V",
        "make rm",
        "timeout 5 ls",
        "RUST_LOG=rm cargo test",
        "echo $HOME",
        "for f in *.rs; do cat \"$f\"; done",
        "ls | while read -r x; do echo \"$x\"; done",
    ] {
        let verdict = judge(&rules, command, Mode::Yolo);
        // `read` sets variables: with deny rules, that asks.
        if verdict.decision != VerdictKind::Allow && !command.contains("read") {
            wrong.push(format!("{command}: {verdict:?}"));
        }
    }
    // Shipped rules apply there too, and so does a rule that names no program.
    for (rules, command) in [
        (shipped_rules(), "prlimit rm -rf /"),
        (shipped_rules(), "foo -c 'rm -rf /'"),
        (deny("Bash(* --force)"), "prlimit git push --force"),
        (deny("Bash(git push *)"), "prlimit git push"),
    ] {
        let verdict = judge(&rules, command, Mode::Yolo);
        if verdict.decision == VerdictKind::Allow {
            wrong.push(format!("{command}: {verdict:?}"));
        }
    }
    // A rule that names the program knows what it allows.
    let mut named = deny("Bash(rm *)");
    named.join(RuleSet::from_flags(&["Bash(prlimit *)"], &[]).unwrap());
    assert_eq!(judge(&named, "prlimit rm x", Mode::Ask).decision, VerdictKind::Allow);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_reason_names_the_part_and_remedy_but_no_regular_expression() {
    let mut rules = shipped_rules();
    rules.join(RuleSet::from_flags(&["Bash(sort *)", "Bash(git log *)"], &["Bash(git push *)"]).unwrap());
    let line = regex::Regex::new(r"\(built-in permissions\.yaml:\d+").unwrap();
    for (command, why) in [
        ("npm test --all", "no rule covers `npm test --all`; add `Bash(npm test *)`"),
        ("rm -r build", "no rule covers `rm -r build`; add `Bash(rm -r build)`"),
        ("ls && npm test", "no rule covers `npm test`; add `Bash(npm test *)`"),
        (
            "echo $HOME",
            "`$HOME` is a variable, so only this exact line can be always allowed: Bash(command = \"echo $HOME\")",
        ),
        (
            "for f in *.rs; do cat $f; done",
            "`*.rs` is an unquoted pattern, and `cat` may take it for an option, so only this exact line can be \
             always allowed: Bash(command = \"for f in *.rs; do cat $f; done\")",
        ),
        ("for f in a b; do touch $f; done", "no rule covers `touch a`; add `Bash(touch *)`"),
        (
            "case x in x) ls;; esac",
            "`case x in x) ls;; esac` is a choice, so only this exact line can be always allowed: \
             Bash(command = \"case x in x) ls;; esac\")",
        ),
        (
            "ls > out.txt",
            "`> out.txt` is a redirect, so only this exact line can be always allowed: Bash(command = \"ls > out.txt\")",
        ),
        ("timeout 60 cargo test", "no rule covers `cargo test`; add `Bash(cargo test *)`"),
        ("find / -name x", "`/` is outside the workspace; add `Bash(find / -name x)`"),
        ("tree -a src", "no rule covers `tree -a src`; add `Bash(tree *)`"),
        ("gsed -n 1,5p f", "no rule covers `gsed -n 1,5p f`; add `Bash(gsed *)`"),
        ("rg -L x", "`rg -L` may read more than the files it names; add `Bash(rg -L x)`"),
        (
            "sed 's/a/b/w out' f",
            "the script `s/a/b/w out` may run a program or write a file, so only this exact \
             line can be always allowed: Bash(command = \"sed 's/a/b/w out' f\")",
        ),
        (
            "sort -o x y",
            "rule `Bash(sort *)` (given for this run) does not cover it: `sort -o` writes a file; add `Bash(sort -o x *)`",
        ),
        (
            "git $X",
            "the arguments of `git $X` are only known when it runs, so rule `Bash(git push *)` (given for this run) \
             may match; write them out",
        ),
        (
            "ls | xargs git",
            "the arguments of `git …` are only known when it runs, so rule `Bash(git push *)` (given for this run) \
             may match; write them out",
        ),
        (
            "prlimit git push",
            "`prlimit git push` may run a command covered by rule `Bash(git push *)` (given for this run)",
        ),
        ("sudo rm -rf /", "blocked by a rule (built-in permissions.yaml:LINE), for `rm -rf /`"),
        ("(cd src); ls", "`cd` is accepted only as the first command of the line, followed by `&&`"),
        (
            "FOO=1 ls",
            "`FOO` is set for a command, so only this exact line can be always allowed: Bash(command = \"FOO=1 ls\")",
        ),
    ] {
        let verdict = judge(&rules, command, Mode::Ask);
        assert_eq!(line.replace(&verdict.why, "(built-in permissions.yaml:LINE"), why, "{command}");
        assert!(!verdict.why.contains(r"\s"), "{}", verdict.why);
    }
}

#[test]
fn git_is_guarded_where_only_a_shipped_rule_allowed_it() {
    let guards = |allow: &[&str], command: &str| {
        let mut rules = shipped_rules();
        rules.join(RuleSet::from_flags(allow, &[]).unwrap());
        let verdict = judge(&rules, command, Mode::Ask);
        assert_eq!(verdict.decision, VerdictKind::Allow, "{command}: {}", verdict.why);
        verdict.guards_git
    };
    assert!(guards(&[], "git status"));
    assert!(guards(&[], "git log -3 | head -5"));
    assert!(guards(&["Bash(mkdir *)"], "mkdir x && git status"));
    assert!(guards(&["Bash(timeout *)"], "timeout 5 git status"));
    assert!(!guards(&[], "ls"));
    assert!(!guards(&["Bash(git *)"], "git status"));
    assert!(!guards(&["Bash(git commit *)"], "git status && git commit -m x"));
    assert!(!guards(&["Bash"], "git status"));
}
