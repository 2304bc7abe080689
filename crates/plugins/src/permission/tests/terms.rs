//! `expires_in` and `notify` of rules: parsing, refusals, and the terms of a question.

use super::plugin::{World, world};
use crate::permission::*;
use aye_core::contract::terms::{Notify, Terms};
use serde_json::json;

fn read(text: &str, layer: Layer) -> Result<RuleSet, String> {
    RuleSet::read(text, RuleFormat::Yaml, layer, "p.yaml").map_err(|error| error.to_string())
}

#[test]
fn terms_are_read_from_rules() {
    let set = read(
        "rules:\n  - tool: Bash(git push *)\n    behavior: ask\n    expires_in: 30m\n    \
         notify: [bell, {command: [/bin/tell, -x]}]\n  - {tool: Read, behavior: ask}\n",
        Layer::User,
    )
    .unwrap();
    let terms = &set.rules()[0].terms;
    assert_eq!(terms.expires_in, Some("30m".parse().unwrap()));
    let command = Notify::Command(vec!["/bin/tell".into(), "-x".into()]);
    assert_eq!(terms.notify, Some(vec![Notify::Bell, command]));
    assert!(set.rules()[1].terms.is_empty());
}

#[test]
fn invalid_terms_are_refused_with_their_line() {
    let rule = |rest: &str| format!("rules:\n  - tool: Bash\n    behavior: ask\n    {rest}\n");
    for (text, layer, wanted) in [
        (rule("expires_in: soon"), Layer::User, "p.yaml:4: `expires_in` must be a time with a unit"),
        (rule("expires_in: 30"), Layer::User, "p.yaml:4: `expires_in` must be a time with a unit"),
        (rule("expires_in: 400d"), Layer::User, "1 second to 365 days"),
        (rule("notify: bell"), Layer::User, "p.yaml:4: `notify` must be a list"),
        (rule("notify: [horn]"), Layer::User, "p.yaml:4: `notify` must be \"bell\", \"desktop\","),
        (rule("notify: [{command: [./x]}]"), Layer::User, "an absolute path"),
        (
            rule("notify: [{command: [/x]}]"),
            Layer::Project,
            "p.yaml:4: a project's rules cannot name a `command`",
        ),
        (
            rule("notify: [{webhook: x}]"),
            Layer::Project,
            "p.yaml:4: a project's rules cannot name a `webhook`",
        ),
        (
            "rules:\n  - {tool: Bash, behavior: allow, expires_in: 1h}\n".to_owned(),
            Layer::User,
            "p.yaml:2: `expires_in` is for rules that ask; rule `Bash` is allow",
        ),
        (
            "rules:\n  - {tool: Bash, behavior: deny, notify: [bell]}\n".to_owned(),
            Layer::User,
            "`notify` is for rules that ask",
        ),
    ] {
        let error = read(&text, layer).expect_err(&text);
        assert!(error.contains(wanted), "{error}");
    }
    assert!(read(&rule("notify: [bell, desktop]"), Layer::Project).is_ok());
    let section: PermissionRulesConfig =
        serde_json::from_value(json!({"rules": [{"tool": "Bash", "behavior": "ask", "expires_in": "x"}]}))
            .unwrap();
    let error = section.into_ruleset().unwrap_err().to_string();
    assert!(error.contains("rule:1: `expires_in`"), "{error}");
}

async fn asked(world: &World, command: &str) -> aye_core::contract::suspension::Suspension {
    world.asks(command).await.suspension
}

#[tokio::test]
async fn a_question_gets_the_terms_of_all_its_rules() {
    let world = world(&[], &[], &[]);
    let rules = read(
        "rules:\n  - {tool: Bash(git *), behavior: ask, expires_in: 2h, notify: [bell]}\n  \
         - {tool: Bash(* push *), behavior: ask, expires_in: 10s, notify: [desktop]}\n  \
         - {tool: Bash(git tag *), behavior: ask, expires_in: never, notify: []}\n  \
         - {tool: Bash(make *), behavior: ask}\n",
        Layer::User,
    )
    .unwrap();
    world.permissions.set_rules(rules);
    let question = asked(&world, "git push origin").await;
    // The clock of these tests is at 1,000 ms.
    assert_eq!(question.expires_at, Some(11_000));
    assert_eq!(question.parameters["notify"], json!(["bell", "desktop"]));
    let question = asked(&world, "git status").await;
    assert_eq!(question.expires_at, Some(7_201_000));
    let question = asked(&world, "make all").await;
    assert_eq!((question.expires_at, question.parameters.get("notify")), (None, None));

    let settings = Terms { expires_in: Some("1m".parse().unwrap()), notify: Some(vec![Notify::Bell]) };
    world.permissions.set_terms(settings);
    let question = asked(&world, "make all").await;
    assert_eq!(question.expires_at, Some(61_000), "the settings apply where no rule does");
    assert_eq!(question.parameters["notify"], json!(["bell"]));
    assert_eq!(asked(&world, "curl x").await.expires_at, Some(61_000), "also where no rule asks");
    assert_eq!(asked(&world, "git push x").await.expires_at, Some(11_000));
}
