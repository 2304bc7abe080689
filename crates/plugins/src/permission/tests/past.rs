//! Past calls under other rules, and rules derived from past calls.

use crate::permission::*;
use aye_core::contract::audit::{PastAnswer, PastCall, PastRow};
use aye_core::contract::judgement::Ruling;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::path::PathBuf;

const CWD: &str = "/nowhere/project";

fn folder(cwd: &str) -> PastFolder {
    PastFolder { cwd: PathBuf::from(cwd), workspace: PathBuf::from(cwd), is_gone: true }
}

struct History {
    past: Past,
    calls: usize,
}

impl History {
    fn new() -> History {
        History { past: Past::default(), calls: 0 }
    }

    fn call(
        &mut self,
        tool: &str,
        arguments: &Value,
        ruling: Ruling,
        answer: Option<PastAnswer>,
    ) -> &mut History {
        let n = self.calls as u64 + 1;
        let call = PastCall {
            n,
            at: n,
            thread_id: "t".into(),
            run_id: "r".into(),
            call_id: format!("c{n}").into(),
            tool: tool.into(),
            arguments: arguments.to_string(),
            cwd: CWD.into(),
            ruling,
            mode: Mode::Ask,
        };
        self.past.add(PastRow::Call(Box::new(call)), folder);
        if let Some(answer) = answer {
            self.past.add(PastRow::Answer(self.calls, answer), folder);
        }
        self.calls += 1;
        self
    }

    fn bash(&mut self, command: &str, answer: PastAnswer) -> &mut History {
        self.call("Bash", &json!({ "command": command }), Ruling::Ask, Some(answer))
    }

    fn suggest(&self) -> Suggestions {
        suggest(&self.past, &shipped_rules(), None)
    }
}

fn patterns(suggestions: &Suggestions) -> Vec<(String, String, u64)> {
    let shown = |rule: &SuggestedRule| (rule.rule.behavior.to_string(), rule.rule.tool.clone(), rule.saves);
    suggestions.rules.iter().map(shown).collect()
}

fn rules(text: &str) -> RuleSet {
    let mut set = shipped_rules();
    set.join(RuleSet::read(text, RuleFormat::Yaml, Layer::Run, "r.yaml").unwrap());
    set
}

#[test]
fn a_simulation_counts_and_locates_differences() {
    let mut history = History::new();
    history
        .bash("git push", PastAnswer::Declined)
        .bash("git push", PastAnswer::Declined)
        .bash("cargo test", PastAnswer::Allowed)
        .bash("npm test", PastAnswer::Allowed)
        .bash("git fetch", PastAnswer::Expired)
        .bash("git pull", PastAnswer::Modified)
        .call("Bash", &json!({"command": "git status"}), Ruling::Allow, None)
        .call("Bash", &json!({"command": "git commit"}), Ruling::Deny, None)
        .call("Bash", &json!({"command": "date"}), Ruling::Ask, None);
    let set =
        rules("rules:\n- {tool: Bash(git *), behavior: allow}\n- {tool: Bash(npm *), behavior: deny}\n");
    let simulation = simulate(&history.past, &set, None);
    assert_eq!(simulation.tally, VerdictCounts { allowed: 7, asked: 1, denied: 1, errors: 0 });
    assert_eq!(simulation.then, VerdictCounts { allowed: 1, asked: 7, denied: 1, errors: 0 });
    assert_eq!(
        simulation.differences,
        [
            (Difference::AllowsDeclined, 0),
            (Difference::AllowsDeclined, 1),
            (Difference::DeniesAllowed, 3),
            (Difference::AllowsExpired, 4),
            (Difference::AllowsUnchanged, 5),
            (Difference::AllowsDenied, 7),
        ]
    );
    assert!(simulation.allows_declined());
    let verdict = simulation.verdict(&history.past.calls[3]);
    assert_eq!((verdict.rule.as_deref(), verdict.origin.as_deref()), (Some("Bash(npm *)"), Some("r.yaml:3")));
    assert_eq!(history.past.questions.len(), 8, "identical calls are one question");

    let same = simulate(&history.past, &shipped_rules(), None);
    assert_eq!(same.differences, []);
    assert!(!same.allows_declined());
    let strict = rules("rules:\n- {tool: 'Bash(git *)', behavior: ask}\n");
    assert_eq!(simulate(&history.past, &strict, None).asked_more, 1);
}

#[test]
fn the_fewest_and_narrowest_rules_are_suggested() {
    let mut history = History::new();
    for package in ["a", "b", "c"] {
        history.bash(&format!("cargo test -p {package}"), PastAnswer::Allowed);
    }
    for _ in 0..2 {
        history.bash("make release", PastAnswer::Allowed);
        history.bash("git push", PastAnswer::Declined);
    }
    history.bash("npm ci", PastAnswer::Allowed);
    history.bash("npm install x", PastAnswer::Allowed);
    for name in ["a", "b"] {
        history.call(
            "Edit",
            &json!({"file_path": format!("src/{name}.rs")}),
            Ruling::Ask,
            Some(PastAnswer::Allowed),
        );
    }
    let suggestions = history.suggest();
    assert_eq!(
        patterns(&suggestions),
        [
            ("deny".into(), "Bash(command = \"git push\")".into(), 2),
            ("allow".into(), "Bash(cargo test *)".into(), 3),
            ("allow".into(), "Bash(command = \"make release\")".into(), 2),
            ("allow".into(), "Edit(file_path ~ \"src/**\")".into(), 2),
        ],
        "{suggestions:#?}"
    );
    assert_eq!((suggestions.asked, suggestions.saved), (11, 9));
    let yaml = suggestions.to_yaml();
    let read = RuleSet::read(&yaml, RuleFormat::Yaml, Layer::User, "x.yaml")
        .unwrap_or_else(|e| panic!("{e}\n{yaml}"));
    assert_eq!(read.rules().len(), 4, "{yaml}");
    assert!(
        yaml.contains("match: [\"cargo test -p a\", \"cargo test -p b\", \"cargo test -p c\"]"),
        "{yaml}"
    );
    assert!(yaml.contains("match: [\"src/a.rs\""), "{yaml}");
    assert!(yaml.contains("  # 3 questions, you always approved: any `cargo test …`\n"), "{yaml}");
}

#[test]
fn nothing_denied_or_already_decided_is_suggested() {
    let mut history = History::new();
    history
        .bash("cargo run -p a", PastAnswer::Allowed)
        .bash("cargo run -p b", PastAnswer::Allowed)
        .bash("cargo run -p evil", PastAnswer::Declined)
        .bash("cargo fmt", PastAnswer::Allowed)
        .bash("cargo fmt", PastAnswer::Modified)
        .bash("npm test", PastAnswer::Allowed)
        .bash("npm test", PastAnswer::Allowed)
        .bash("npm test", PastAnswer::Declined)
        .bash("git fetch", PastAnswer::Expired)
        .bash("git fetch", PastAnswer::Expired);
    assert_eq!(patterns(&history.suggest()), []);
    let yaml = history.suggest().to_yaml();
    assert_eq!(RuleSet::read(&yaml, RuleFormat::Yaml, Layer::User, "x").unwrap().rules(), []);
    let mut history = History::new();
    history.bash("cargo test", PastAnswer::Allowed).bash("cargo test", PastAnswer::Allowed);
    let settled = rules("rules:\n- {tool: Bash(cargo test *), behavior: allow}\n");
    assert_eq!(suggest(&history.past, &settled, None).rules, []);
    let asks = rules("rules:\n- {tool: Bash(cargo test *), behavior: ask}\n");
    assert_eq!(
        suggest(&history.past, &asks, None).rules,
        [],
        "a grant would not apply, and neither does this"
    );
}

/// Each part was allowed alone; together they were denied.
#[test]
fn two_rules_never_combine_to_allow_a_denied_call() {
    let mut history = History::new();
    for _ in 0..3 {
        history.bash("cargo build", PastAnswer::Allowed).bash("cargo test", PastAnswer::Allowed);
    }
    history.bash("cargo build && cargo test", PastAnswer::Declined);
    let suggestions = history.suggest();
    assert_eq!(patterns(&suggestions).len(), 1, "{suggestions:#?}");
}

#[test]
fn a_suggested_denial_spares_commands_that_ran() {
    let mut history = History::new();
    history
        .bash("git push origin a", PastAnswer::Declined)
        .bash("git push origin b", PastAnswer::Declined)
        .bash("git push --dry-run", PastAnswer::Allowed);
    assert_eq!(patterns(&history.suggest()), []);
    let mut history = History::new();
    history
        .bash("git push origin a", PastAnswer::Declined)
        .bash("git push origin b", PastAnswer::Declined)
        .bash("x | sh -c \"$y\"", PastAnswer::Declined)
        .bash("x | sh -c \"$y\"", PastAnswer::Declined);
    let suggestions = history.suggest();
    assert_eq!(
        patterns(&suggestions),
        [
            ("deny".into(), "Bash(command = \"x | sh -c \\\"$y\\\"\")".into(), 2),
            ("deny".into(), "Bash(git push *)".into(), 2),
        ],
        "{suggestions:#?}"
    );
    let yaml = suggestions.to_yaml();
    assert!(RuleSet::read(&yaml, RuleFormat::Yaml, Layer::User, "x").is_ok(), "{yaml}");
}

fn command() -> impl Strategy<Value = String> {
    let simple = prop::sample::select(vec![
        "cargo test",
        "cargo test -p a",
        "cargo build",
        "git push",
        "git push origin",
        "git fetch",
        "npm run x",
        "npm run y",
        "make all",
        "rm -rf x",
        "echo $HOME",
        "touch a",
        "curl http://a.b/c",
        "x \u{202e}y",
        "ls /etc",
    ]);
    prop_oneof![
        4 => simple.clone().prop_map(str::to_owned),
        1 => (simple.clone(), prop::sample::select(vec![" && ", " | ", "; "]), simple)
            .prop_map(|(a, with, b)| format!("{a}{with}{b}")),
    ]
}

fn call() -> impl Strategy<Value = (&'static str, Value)> {
    prop_oneof![
        6 => command().prop_map(|command| ("Bash", json!({ "command": command }))),
        2 => prop::sample::select(vec!["a.rs", "src/a.rs", "src/b.rs", "src/in/c.rs", "../x", ".git/config", "/etc/x"])
            .prop_map(|path| ("Edit", json!({ "file_path": path, "old_string": "a" }))),
        1 => prop::sample::select(vec!["http://a.b/1", "http://a.b/2", "https://c.d/"])
            .prop_map(|url| ("WebFetch", json!({ "url": url }))),
        1 => Just(("mcp__x__y", json!({ "n": 1 }))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..super::with_cases(200) })]

    #[test]
    fn no_suggestion_allows_a_denied_call_and_each_is_needed(
        calls in prop::collection::vec((call(), 0..5u8), 1..40)
    ) {
        let mut history = History::new();
        for ((tool, arguments), answer) in &calls {
            let answer = match answer {
                0 => Some(PastAnswer::Declined),
                1 => Some(PastAnswer::Modified),
                4 => None,
                _ => Some(PastAnswer::Allowed),
            };
            history.call(tool, arguments, Ruling::Ask, answer);
        }
        let suggestions = history.suggest();
        let yaml = suggestions.to_yaml();
        let read = RuleSet::read(&yaml, RuleFormat::Yaml, Layer::User, "x.yaml");
        let own = read.unwrap_or_else(|error| panic!("{error}\n{yaml}"));
        assert_eq!(own.rules().len(), suggestions.rules.len());
        let with = |skip: Option<usize>| {
            let mut set = shipped_rules();
            for (_, rule) in own.rules().iter().enumerate().filter(|(at, _)| Some(*at) != skip) {
                set.push(Rule::clone(rule));
            }
            set
        };
        // The promised number of questions is saved, and none of them contradicts a decision.
        let saved = |set: &RuleSet| -> u64 {
            let simulation = simulate(&history.past, set, None);
            let mut saved = 0;
            for call in &history.past.calls {
                match (call.answer, simulation.verdict(call).decision) {
                    (Some(PastAnswer::Declined | PastAnswer::Modified), VerdictKind::Allow) => panic!("{call:?}\n{yaml}"),
                    (Some(PastAnswer::Allowed), VerdictKind::Deny) => panic!("{call:?}\n{yaml}"),
                    (Some(PastAnswer::Allowed), VerdictKind::Allow) => saved += 1,
                    (Some(PastAnswer::Declined), VerdictKind::Deny) => saved += 1,
                    _ => {}
                }
            }
            saved
        };
        let nothing = saved(&shipped_rules());
        let whole = saved(&with(None));
        assert_eq!(whole - nothing, suggestions.saved, "{yaml}");
        for (at, rule) in suggestions.rules.iter().enumerate() {
            assert!(rule.saves >= 2, "{rule:?}");
            assert!(saved(&with(Some(at))) < whole, "{rule:?} is not needed\n{yaml}");
        }
    }
}
