//! Patterns written by users at a question, and grants that did not apply.

use super::plugin::{World, grant, world};
use crate::permission::*;
use aye_core::contract::record::{GrantRecord, GrantScope};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

struct Place {
    _dir: tempfile::TempDir,
    home: PathBuf,
    root: PathBuf,
}

fn place() -> Place {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().canonicalize().unwrap().join("people/me");
    let root = home.join("proj");
    std::fs::create_dir_all(root.join("src")).unwrap();
    Place { _dir: dir, home, root }
}

impl Place {
    fn question<'a>(&'a self, tool: &'a str, args: &'a Value) -> CallRequest<'a> {
        CallRequest {
            tool,
            args,
            cwd: &self.root,
            workspace: &self.root,
            home: Some(&self.home),
            primary: None,
        }
    }

    fn check(&self, rules: &RuleSet, tool: &str, args: Value, pattern: &str) -> Result<(), String> {
        let rule = check_grant(&PreparedCall::of(&self.question(tool, &args)).unwrap(), rules, pattern);
        rule.map(drop).map_err(|why| why.to_string())
    }
}

fn denying(deny: &[&str]) -> RuleSet {
    RuleSet::from_patterns(Layer::User, ToolPermissionBehavior::Deny, deny).unwrap()
}

#[test]
fn a_pattern_must_cover_the_call_and_not_too_much_more() {
    let place = place();
    let rules = shipped_rules();
    let mut wrong = Vec::new();
    for (command, pattern, refusal) in [
        ("git push origin", "Bash(git push *)", None),
        ("git push origin", "  Bash(git push *) ", None),
        ("git push origin", "Bash(git push origin)", None),
        ("git push origin", r#"Bash(command = "git push origin")"#, None),
        ("git push origin", r#"Bash(command ~ "git push *")"#, None),
        ("git push origin", "Bash(git push {origin,upstream} *)", None),
        ("cargo test --lib", "Bash(cargo test *)", None),
        ("make check", "Bash(make check *)", None),
        ("npm run build", "Bash(npm run build *)", None),
        ("touch a", "Bash(touch *)", None),
        ("git push && touch a", r#"Bash(command = "git push && touch a")"#, None),
        // Too broad.
        ("git push", "Bash", Some("any call of Bash")),
        ("git push", "Bash(*)", Some("any call of Bash")),
        ("git push", "Bash( ** )", Some("any call of Bash")),
        ("git push", "*", Some("must be written out")),
        ("git push", "B?sh(git push *)", Some("must be written out")),
        ("git push", "/Bash/(git push *)", Some("must be written out")),
        ("git push", "Bash(git *)", Some("name a subcommand of `git`")),
        ("git push", "Bash(git*)", Some("must be written out")),
        ("git push", "Bash(git push*)", Some("name a subcommand of `git`")),
        ("git push", "Bash(* push)", Some("must be written out")),
        ("git push", "Bash({git,rm} *)", Some("must be written out")),
        ("git push", r#"Bash(command =~ "git")"#, Some("any call of Bash")),
        ("git push", r#"Bash(command != "rm")"#, Some("any call of Bash")),
        ("git push", r#"Bash(command !~ "rm *")"#, Some("any call of Bash")),
        ("git push", r#"Bash(description ~ "*")"#, Some("any call of Bash")),
        ("npm run build", "Bash(npm run *)", Some("name an argument of `npm run`")),
        ("rm a", "Bash(rm *)", Some("can do anything")),
        ("curl x", "Bash(curl *)", Some("can do anything")),
        ("python3 x.py", "Bash(python3 *)", Some("can do anything")),
        ("bash x.sh", "Bash(bash *)", Some("can do anything")),
        ("/bin/bash x.sh", "Bash(/bin/bash *)", Some("can do anything")),
        ("sudo ls", "Bash(sudo *)", Some("can do anything")),
        ("env ls", "Bash(env *)", Some("can do anything")),
        ("nice ls", "Bash(nice *)", Some("can do anything")),
        ("psql x", "Bash(psql *)", Some("can do anything")),
        ("eval x", "Bash(eval *)", Some("can do anything")),
        // Does not match this call.
        ("git push", "Bash(git pull *)", Some("does not match this call")),
        ("git push", "Read", Some("this is a call of Bash")),
        ("git push && touch a", "Bash(git push *)", Some("does not cover this call")),
        ("git push > out", "Bash(git push *)", Some("does not cover this call")),
        ("git push $X", "Bash(git push *)", Some("does not cover this call")),
        ("sort -o a b", "Bash(sort *)", Some("does not cover this call")),
        // Not a pattern.
        ("git push", "", Some("empty")),
        ("git push", "Bash(", Some("")),
        ("git push", "Bash(git push *)\u{202e}", Some("invisible characters")),
        ("git push", "Bash(git\npush)", Some("invisible characters")),
    ] {
        let got = place.check(&rules, "Bash", json!({ "command": command }), pattern);
        let fits = match (&got, refusal) {
            (Ok(()), None) => true,
            (Err(why), Some(refusal)) => why.contains(refusal),
            _ => false,
        };
        if !fits {
            wrong.push(format!("{command} / {pattern}: {got:?}, wanted {refusal:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn files_and_urls_are_bound_to_a_folder_or_host() {
    let place = place();
    let rules = RuleSet::new();
    let home = place.home.display();
    let root = place.root.display();
    let mut wrong = Vec::new();
    for (tool, args, pattern, ok) in [
        ("Edit", json!({"file_path": "src/a"}), r#"Edit(file_path ~ "src/**")"#.to_owned(), true),
        ("Edit", json!({"file_path": "src/a"}), r#"Edit(file_path ~ "**")"#.to_owned(), true),
        ("Edit", json!({"file_path": "src/a"}), "Edit(src/*)".to_owned(), true),
        ("Edit", json!({"file_path": "src/a"}), format!(r#"Edit(file_path ~ "{root}/**")"#), true),
        ("Edit", json!({"file_path": "src/a"}), "Edit".to_owned(), false),
        ("Edit", json!({"file_path": "src/a"}), r#"Edit(file_path ~ "/**")"#.to_owned(), false),
        ("Edit", json!({"file_path": "src/a"}), r#"Edit(file_path ~ "~/**")"#.to_owned(), false),
        ("Edit", json!({"file_path": "src/a"}), format!(r#"Edit(file_path ~ "{home}/**")"#), false),
        ("Edit", json!({"file_path": "src/a"}), format!(r#"Edit(file_path ~ "{home}/proj/../**")"#), false),
        ("Edit", json!({"file_path": "src/a"}), r#"Edit(file_path =~ "a$")"#.to_owned(), false),
        ("Edit", json!({"file_path": "src/a"}), r#"Edit(file_path != "x")"#.to_owned(), false),
        ("Edit", json!({"file_path": ".git/config"}), r#"Edit(file_path ~ ".git/**")"#.to_owned(), false),
        ("Edit", json!({"file_path": "/etc/hosts"}), r#"Edit(file_path ~ "/etc/**")"#.to_owned(), false),
        ("Edit", json!({"file_path": "/etc/hosts"}), r#"Edit(file_path = "/etc/hosts")"#.to_owned(), true),
        ("Edit", json!({"file_path": "/srv/www/x"}), r#"Edit(file_path ~ "/srv/www/**")"#.to_owned(), true),
        ("Edit", json!({"file_path": "/srv/www/x"}), r#"Edit(file_path ~ "/srv/**")"#.to_owned(), false),
        ("WebFetch", json!({"url": "https://a.b/c"}), r#"WebFetch(url ~ "https://a.b/*")"#.to_owned(), true),
        ("WebFetch", json!({"url": "https://a.b/c"}), r#"WebFetch(url ~ "https://*")"#.to_owned(), false),
        (
            "WebFetch",
            json!({"url": "https://a.b/c"}),
            r#"WebFetch(url ~ "https://a.b*/c")"#.to_owned(),
            false,
        ),
        ("WebFetch", json!({"url": "https://a.b/c"}), "WebFetch".to_owned(), false),
        ("mcp__a__b", json!({"x": 1}), "mcp__a__b".to_owned(), true),
        ("mcp__a__b", json!({"x": 1}), "mcp__*".to_owned(), false),
    ] {
        let got = place.check(&rules, tool, args.clone(), &pattern);
        if got.is_ok() != ok {
            wrong.push(format!("{tool} {args} / {pattern}: {got:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Every proposal can be granted: both use the same check.
#[test]
fn proposals_are_grantable_and_exclude_dangerous_programs() {
    let place = place();
    let rules = shipped_rules();
    for command in
        ["git push origin main", "cargo build", "npm run build", "make test", "touch a", "./x.sh a"]
    {
        let args = json!({ "command": command });
        let question = place.question("Bash", &args);
        let call = PreparedCall::of(&question).unwrap();
        let proposals = propose_grants(&question);
        assert!(!proposals.is_empty(), "{command}");
        for proposal in proposals {
            assert!(check_grant(&call, &rules, &proposal.pattern).is_ok(), "{command} {proposal:?}");
        }
    }
    for (command, pattern) in [
        ("npx eslint .", "Bash(npx eslint *)"),
        ("uv run pytest -q", "Bash(uv run pytest *)"),
        ("uv run python3 -m pytest -q", "Bash(uv run python3 -m pytest *)"),
        ("python3 -m pytest -q", "Bash(python3 -m pytest *)"),
        ("docker compose up -d", "Bash(docker compose up *)"),
        ("docker exec -it web ls -l", "Bash(docker exec -it web ls *)"),
        ("make -C docs html", "Bash(make -C docs html *)"),
        ("cargo +nightly fmt --all", "Bash(cargo +nightly fmt *)"),
        ("env CI=1 npm run build", "Bash(env CI=1 npm run build *)"),
        ("pnpm --filter web test", "Bash(pnpm --filter web test *)"),
        ("node --run test", "Bash(node --run test *)"),
        ("timeout 60 npm test", "Bash(npm test *)"),
        ("npm test 2>&1", "Bash(npm test *)"),
    ] {
        let args = json!({ "command": command });
        let question = place.question("Bash", &args);
        let call = PreparedCall::of(&question).unwrap();
        let proposals: Vec<String> =
            propose_grants(&question).into_iter().map(|grant| grant.pattern).collect();
        assert!(proposals.contains(&pattern.to_owned()), "{command}: {proposals:?}");
        for proposal in proposals {
            assert!(check_grant(&call, &rules, &proposal).is_ok(), "{command} {proposal:?}");
        }
    }
    // A line of many lines can be granted as it is, but nothing else with a newline in it.
    let args = json!({ "command": "git commit -F - <<'EOF'\nfix\nEOF" });
    let question = place.question("Bash", &args);
    let call = PreparedCall::of(&question).unwrap();
    let proposals = propose_grants(&question);
    assert!(check_grant(&call, &rules, &proposals[0].pattern).is_ok(), "{proposals:?}");
    assert_eq!(check_grant(&call, &rules, "Bash(git\ncommit *)"), Err(GrantRefusal::Invisible));
    for command in
        ["bash x.sh", "python3 x.py", "node x.js", "vim a", "bash -c 'ls'", "npx sh -c ls", "x > y"]
    {
        let args = json!({ "command": command });
        let proposals = propose_grants(&place.question("Bash", &args));
        assert!(proposals.iter().all(|proposal| proposal.pattern.contains(" = ")), "{proposals:?}");
    }
}

#[test]
fn rules_that_override_a_grant_are_named() {
    let place = place();
    let mut rules = denying(&["Bash(git push --force *)"]);
    let ask = RuleSet::from_patterns(Layer::User, ToolPermissionBehavior::Ask, ["Bash(git push *)"]).unwrap();
    let why =
        place.check(&rules, "Bash", json!({"command": "git push --force"}), "Bash(git push *)").unwrap_err();
    assert!(why.contains("`Bash(git push --force *)`") && why.contains("no grant overrides that"), "{why}");
    rules.join(ask);
    let why = place.check(&rules, "Bash", json!({"command": "git push"}), "Bash(git push *)").unwrap_err();
    assert!(why.contains("asked about by rule `Bash(git push *)`"), "{why}");
}

fn given(id: &str, pattern: &str, scope: GrantScope) -> GrantRecord {
    GrantRecord { pattern: pattern.into(), ..grant(id, scope, None) }
}

impl World {
    async fn missed(&self, command: &str) -> Value {
        self.asks(command).await.suspension.parameters["grant"].clone()
    }
}

#[tokio::test]
async fn a_card_names_the_grant_that_would_have_applied() {
    let world = world(&[], &["Bash(git tag *)"], &[]);
    let here = GrantScope::Project(world.permissions.workspace().root.clone());
    let there = GrantScope::Project("/other".into());
    let expired = GrantRecord { expires_at: Some(900), ..given("e", "Bash(git push *)", here.clone()) };
    world.permissions.set_grants(vec![
        given("asked", "Bash(git tag *)", GrantScope::Everywhere),
        given("there", "Bash(git pull *)", there),
        given("thread", "Bash(touch *)", GrantScope::Thread("thread-2".into())),
        given("other tool", "Read", GrantScope::Everywhere),
    ]);
    world.permissions.set_ended(vec![
        expired,
        GrantRecord { revoked_at: Some(800), ..given("r", "Bash(git stash pop *)", here.clone()) },
        GrantRecord { max_uses: Some(5), uses: 5, ..given("u", "Bash(git commit *)", here) },
        GrantRecord {
            revoked_at: Some(800),
            ..given("x", "Bash(git fetch *)", GrantScope::Run("run-9".into()))
        },
    ]);
    for (command, id, expected) in [
        ("git push origin", "e", json!({"scope": "this project", "why": "ended", "at": 900})),
        ("git stash pop", "r", json!({"scope": "this project", "why": "was revoked", "at": 800})),
        ("git commit -m x", "u", json!({"scope": "this project", "why": "is used up: it was for 5 calls"})),
        (
            "git tag v1",
            "asked",
            json!({"scope": "all projects", "why": "is in force, but a rule asks every \
                              time"}),
        ),
        ("git pull", "there", json!({"scope": "the project /other", "why": "does not cover this call"})),
        ("touch a", "thread", json!({"scope": "another conversation", "why": "does not cover this call"})),
    ] {
        let mut got = world.missed(command).await;
        assert_eq!(got["id"], id, "{command}: {got}");
        let map = got.as_object_mut().unwrap();
        map.remove("id");
        map.remove("pattern");
        assert_eq!(got, expected, "{command}");
    }
    // A grant that would not have applied, one that ended with another run, and none at all.
    for command in ["git push && rm x", "git fetch", "mkdir x", "git push $X"] {
        assert_eq!(world.missed(command).await, Value::Null, "{command}");
    }
}

#[tokio::test]
async fn a_grant_whose_last_use_was_just_taken_is_named() {
    let world = world(&[], &[], &[]);
    let one = GrantRecord { max_uses: Some(1), ..given("one", "Bash(touch *)", GrantScope::Everywhere) };
    world.permissions.set_grants(vec![one]);
    let mut info = World::info("touch a");
    info.spent_grants = vec!["one".into()];
    let Some(aye_core::contract::tool_intercept::ToolInterceptPayload::Suspend(ticket)) =
        world.gate(info).await
    else {
        panic!("it asks")
    };
    let expected = &ticket.suspension.parameters["grant"];
    assert_eq!(expected["why"], "is used up: it was for 1 call", "{expected}");
}

fn word() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "git", "push", "status", "touch", "a", "b*", "*", "rm", "sudo", "ls", "--force", "-rf", "sh", "-c",
        "{a,b}", "npm", "run", "$X", "&&", "|", ";", ">", "'x y'", "env", "cargo", "test", "?",
    ])
}

fn any_word() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        word(),
        prop::sample::select(vec![
            "npx",
            "eslint",
            ".",
            "uv",
            "run",
            "pytest",
            "-q",
            "docker",
            "compose",
            "exec",
            "web",
            "python3",
            "-m",
            "node",
            "--run",
            "make",
            "-C",
            "cargo",
            "+nightly",
            "A=b",
            "poetry",
            "bundle",
            "kubectl",
            "get",
            "--",
            "timeout",
            "60",
            "sed",
            "-i",
            "find",
            "-delete",
            "-exec",
            "{}",
            "+",
            "\\;",
            "(",
            ")",
            "<<'EOF'",
            "\n",
            "EOF",
            "if",
            "then",
            "fi",
            "for",
            "x",
            "in",
            "do",
            "done",
            "$(ls)",
            "`ls`",
            "<(ls)",
            "> f",
            "2>&1",
            "'",
            "\"",
            "ü",
            "sort",
            "-o",
            ".git/config",
            "eval",
            "source",
        ])
    ]
}

fn line_of(words: &[&str]) -> String {
    words.join(" ")
}

proptest! {
    #![proptest_config(super::with_cases(400))]

    /// Every line that a user can read has at least one proposal, and each proposal covers the line.
    #[test]
    fn a_proposal_covers_the_line_it_is_proposed_for(words in prop::collection::vec(any_word(), 1..7)) {
        let line = line_of(&words);
        let args = json!({ "command": line });
        let place = Path::new("/nowhere");
        let question = CallRequest { tool: "Bash", args: &args, cwd: place, workspace: place, home: None, primary: None };
        let Ok(call) = PreparedCall::of(&question) else { return Ok(()) };
        let proposals = propose_grants(&question);
        prop_assert!(!proposals.is_empty(), "{line}");
        for proposal in proposals {
            let rule = Rule::granted(&proposal.pattern).unwrap();
            let verdict = call.verdict_with(&RuleSet::new(), &rule);
            prop_assert_eq!(verdict.decision, VerdictKind::Allow, "{} / {}: {}", line, proposal.pattern, verdict.why);
            prop_assert!(check_grant(&call, &RuleSet::new(), &proposal.pattern).is_ok(), "{line} / {proposal:?}");
        }
        // The remedy that a reason names is one, too.
        let why = call.verdict(&RuleSet::new()).why;
        let remedy = why.rsplit_once("; add `").and_then(|(_, rest)| rest.strip_suffix('`'));
        if let Some(remedy) = remedy.filter(|_| !line.contains(['&', '|', ';', '\n'])) {
            let verdict = call.verdict_with(&RuleSet::new(), &Rule::granted(remedy).unwrap());
            prop_assert_eq!(verdict.decision, VerdictKind::Allow, "{} / {}: {}", line, remedy, verdict.why);
        }
    }

    /// A grantable pattern matches the call it was written for, whatever was typed.
    #[test]
    fn an_accepted_pattern_matches_the_call(
        call in prop::collection::vec(word(), 1..5),
        pattern in prop::collection::vec(word(), 0..5),
        form in 0..3,
    ) {
        let text = line_of(&pattern);
        let pattern = match form {
            0 => format!("Bash({text})"),
            1 => format!("Bash(command ~ \"{text}\")"),
            _ => format!("Bash({} *)", line_of(&call)),
        };
        let args = json!({ "command": line_of(&call) });
        let place = Path::new("/");
        let question = CallRequest { tool: "Bash", args: &args, cwd: place, workspace: place, home: None, primary: None };
        let prepared = PreparedCall::of(&question).unwrap();
        let rules = denying(&["Bash(rm *)", "Bash(git push --force *)"]);
        if let Ok(rule) = check_grant(&prepared, &rules, &pattern) {
            prop_assert!(prepared.is_matched_by(&rule), "{pattern} {args}");
            prop_assert_eq!(prepared.verdict_with(&rules, &rule).decision, VerdictKind::Allow);
        }
    }

    /// No accepted pattern lets a denied call through, whatever it is used for later.
    #[test]
    fn an_accepted_pattern_never_overrides_a_deny(
        call in prop::collection::vec(word(), 1..5),
        pattern in prop::collection::vec(word(), 1..5),
        later in prop::collection::vec(word(), 1..6),
    ) {
        let args = json!({ "command": line_of(&call) });
        let place = Path::new("/");
        let question = CallRequest { tool: "Bash", args: &args, cwd: place, workspace: place, home: None, primary: None };
        let prepared = PreparedCall::of(&question).unwrap();
        let rules = denying(&["Bash(rm *)", "Bash(git push --force *)"]);
        for pattern in [format!("Bash({})", line_of(&pattern)), format!("Bash({} *)", line_of(&call))] {
            let Ok(rule) = check_grant(&prepared, &rules, &pattern) else { continue };
            let args = json!({ "command": line_of(&later) });
            let question = CallRequest { args: &args, ..question };
            let Ok(later) = PreparedCall::of(&question) else { continue };
            let bare = later.verdict(&rules);
            let with = later.verdict_with(&rules, &rule);
            prop_assert!(
                bare.decision != VerdictKind::Deny || with.decision == VerdictKind::Deny,
                "{pattern} {args}: {bare:?} {with:?}"
            );
        }
    }
}
/// The shell may turn `b*` into two words, and then the second is the program that `timeout` runs.
#[test]
fn what_a_wrapper_runs_is_known_only_behind_words_that_stay_as_they_are() {
    let place = place();
    for line in ["timeout b* push", "timeout [5r]* push", "nice -n ? push", "timeout b* timeout 5 push"] {
        let args = json!({ "command": line });
        let question = place.question("Bash", &args);
        let call = PreparedCall::of(&question).unwrap();
        let rule = Rule::granted("Bash(push *)").unwrap();
        let verdict = call.verdict_with(&RuleSet::new(), &rule);
        assert!(matches!(verdict.decision, VerdictKind::Ask(_)), "{line}: {verdict:?}");
        assert!(propose_grants(&question).iter().all(|proposal| !proposal.pattern.contains("*)")), "{line}");
    }
    let args = json!({ "command": "timeout 5 push b" });
    let question = place.question("Bash", &args);
    assert!(propose_grants(&question).iter().any(|proposal| proposal.pattern == "Bash(push *)"));
}
