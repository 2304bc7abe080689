use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::json;

use crate::deferred_tools::config::DeferralPolicy;
use crate::deferred_tools::index::Index;
use crate::deferred_tools::list::list;
use crate::deferred_tools::search::search;
use crate::deferred_tools::*;
use aye_core::contract::tool::ToolDescriptor;

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
}

fn policy(config: serde_json::Value) -> Result<DeferralPolicy, String> {
    DeferralPolicy::of_section(&config, &[], DeferredToolsConfig::default().default_mode)
}

fn index(tools: &[ToolDescriptor]) -> Index {
    Index::new(tools, &policy(json!({"default_mode": "deferred"})).expect("a policy"))
}

#[test]
fn the_numbers_match_the_specification() {
    let params = DiscBetaParams::default();
    let start = Beta::start(PRIOR, &params);
    assert!(near(start.a, 0.05) && near(start.b, 4.95), "{start:?}");
    let edge = Beta::start(0.0, &params);
    assert!(near(edge.a, 0.01) && near(edge.b, 5.0), "{edge:?}");
    let sure = Beta::start(1.0, &params);
    assert!(near(sure.a, 5.0) && near(sure.b, 0.01), "{sure:?}");
    let missed = start.idle_until(1, &params);
    assert!(near(missed.a, 0.05 * 0.95) && near(missed.b, 4.95 * 0.95 + 1.0), "{missed:?}");
    let called = start.called_in(1, &params);
    assert!(near(called.a, 0.05 * 0.95 + 1.0) && near(called.b, 4.95 * 0.95), "{called:?}");
    // m + 1.282 sqrt(ab / (t² (t + 1))) with a 0.05, b 4.95.
    assert!(near(start.upper(), 0.01 + 1.282 * (0.05_f64 * 4.95 / (25.0 * 6.0)).sqrt()), "{}", start.upper());
    assert!(near(Beta { a: 1e9, b: 1e-9, turn: 0 }.upper(), 1.0));

    let tool = |schema: usize, name: &str| {
        let text = "x".repeat(schema - 2);
        ToolDescriptor::new(name, name, "").with_parameters(json!(text))
    };
    let cost = ToolCost::of(&tool(1000, "12345678"));
    assert!(near(cost.full, 250.0) && near(cost.name, 2.0) && near(cost.saving(), 248.0), "{cost:?}");
    assert!(near(cost.threshold(&params), 248.0 / 2000.0 * 0.5));
    let least = ToolCost::of(&tool(4, "a"));
    assert!(near(least.full, 10.0) && near(least.name, 1.0), "{least:?}");
    let long = ToolCost::of(&tool(4, &"n".repeat(100)));
    assert!(near(long.saving(), 0.0), "a name that costs more than the schema saves nothing: {long:?}");
}

#[test]
fn it_turns_on_when_it_saves_more_than_it_costs() {
    // Saves 250 − 2 = 248 each.
    let tools = |n: usize| -> Vec<_> {
        let schema = json!("x".repeat(998));
        (0..n)
            .map(|i| ToolDescriptor::new(format!("tool_{i:03}"), "", "").with_parameters(schema.clone()))
            .collect()
    };
    for (config, n, wanted) in [
        (json!({}), 4, false),
        (json!({}), 5, true),
        (json!({"beta_overhead": 992}), 4, false),
        (json!({"beta_overhead": 991.9}), 4, true),
        (json!({"enabled": true}), 1, true),
        (json!({"enabled": false}), 100, false),
        // Only tools that would be deferred count.
        (json!({"rules": [{"tool": "tool_000", "mode": "eager"}]}), 5, false),
        (json!({"rules": [{"tool": "tool_*", "mode": "eager"}]}), 100, false),
    ] {
        let policy = policy(config.clone()).expect("a policy");
        assert_eq!(Index::new(&tools(n), &policy).is_on(&policy), wanted, "{config} with {n}");
    }
}

#[test]
fn the_first_matching_rule_wins() {
    let policy = DeferralPolicy::of_section(
        &json!({"rules": [
            {"tool": "get_weather", "mode": "eager"},
            {"tool": "debug_*", "mode": "deferred"},
            {"tool": "mcp__github__*", "mode": "eager"},
            {"tool": "/^x[0-9]+$/", "mode": "deferred"},
        ]}),
        &[DeferralRule { tool: "mcp__*".into(), mode: ToolLoadMode::Deferred }],
        ToolLoadMode::Eager,
    )
    .expect("a policy");
    for (tool, mode) in [
        ("get_weather", ToolLoadMode::Eager),
        ("debug_trace", ToolLoadMode::Deferred),
        ("mcp__github__create", ToolLoadMode::Eager),
        ("mcp__gitlab__create", ToolLoadMode::Deferred),
        ("x12", ToolLoadMode::Deferred),
        ("Read", ToolLoadMode::Eager),
    ] {
        assert_eq!(policy.mode(tool), mode, "{tool}");
    }
}

#[test]
fn an_invalid_section_reports_its_place() {
    for (section, words) in [
        (json!([]), "it must be a map"),
        (
            json!({"rules": [{"tool": "a", "mode": "eager"}, {"tool": "Bash(", "mode": "eager"}]}),
            "rules[1].tool: pattern `Bash(`, character 5",
        ),
        (
            json!({"rules": [{"tool": "Bash(rm *)", "mode": "deferred"}]}),
            "rules[0].tool: `Bash(rm *)` matches arguments",
        ),
        (json!({"rules": [{"tool": "a", "mode": "lazy"}]}), "lazy"),
        (json!({"disc_beta": {"omega": 0}}), "disc_beta.omega: 0 must be above 0 and at most 1"),
        (json!({"disc_beta": {"omega": 1.5}}), "disc_beta.omega"),
        (json!({"disc_beta": {"gamma": -1}}), "disc_beta.gamma: -1 must be above 0"),
        (json!({"beta_overhead": -1}), "beta_overhead"),
        (json!({"rule": []}), "unknown field `rule`"),
    ] {
        let error = policy(section.clone()).expect_err("a bad section");
        assert!(error.contains(words), "{section}: {error}");
    }
}

#[test]
fn queries_are_tokenised() {
    let words = |required: &[&str], ranked: &[&str]| {
        let texts = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect();
        Some(Query::Words { required: texts(required), ranked: texts(ranked) })
    };
    let select = |ids: &[&str]| Some(Query::Select(ids.iter().map(|id| (*id).to_owned()).collect()));
    for (text, wanted) in [
        ("select:A,B", select(&["A", "B"])),
        (" select: B , A ,B,", select(&["B", "A"])),
        ("weather forecast", words(&[], &["weather", "forecast"])),
        ("Weather WEATHER", words(&[], &["weather"])),
        ("+slack send message", words(&["slack"], &["send", "message"])),
        ("+a +B c", words(&["a", "b"], &["c"])),
        ("+", None),
        ("select:", None),
        ("select:,", None),
        ("  ", None),
    ] {
        assert_eq!(Query::parse(text), wanted, "{text}");
    }
}

#[test]
fn searches_match_the_specification() {
    let tool = |id: &str, name: &str, description: &str| ToolDescriptor::new(id, name, description);
    let index = index(&[
        tool("slack_send", "Send", "posts a message"),
        tool("mail_send", "Mail", "sends a Message by e-mail"),
        tool("slack_list", "List", "channels"),
        tool("weather", "Forecast", "rain"),
        tool("zz1", "", "common"),
        tool("zz2", "", "common"),
        tool("zz3", "", "common"),
        tool("zz4", "", "common"),
        tool("zz5", "", "common"),
        tool("zz6", "", "common"),
    ]);
    for (text, wanted, left_out) in [
        ("message", &["mail_send", "slack_send"][..], 0),
        // Sorted by matching words, then by id.
        ("slack message", &["slack_send", "mail_send", "slack_list"], 0),
        ("FORECAST", &["weather"], 0),
        ("+slack message", &["slack_send", "slack_list"], 0),
        ("+slack +message", &["slack_send"], 0),
        ("+nothing message", &[], 0),
        ("nothing", &[], 0),
        ("common", &["zz1", "zz2", "zz3", "zz4", "zz5"], 1),
        ("select:zz6,weather,zz1", &["zz6", "weather", "zz1"], 0),
        ("select:zz6,zz5,zz4,zz3,zz2,zz1", &["zz6", "zz5", "zz4", "zz3", "zz2"], 1),
        // A phrase does not span two fields.
        ("send\nsend", &["mail_send", "slack_send"], 0),
    ] {
        let found = search(&index, &Query::parse(text).expect("a query"), |_| false);
        let ids: Vec<_> = found.tools.iter().map(|tool| tool.id.as_str()).collect();
        assert_eq!((&ids[..], found.left_out), (wanted, left_out), "{text}");
    }
    let found = search(&index, &Query::parse("select:weather,Weather,nope").expect("a query"), |_| false);
    assert_eq!(found.unknown, ["Weather", "nope"], "names are exact");
}

#[test]
fn the_list_of_names_is_short_and_stable() {
    assert_eq!(list(std::iter::empty()), None);
    let text = list(["b", "mcp__git__push", "a", "mcp__git__log", "mcp__x"].into_iter()).expect("a list");
    assert!(text.contains("\na, b, mcp__x\nmcp__git__*: log, push\n</deferred_tools>"), "{text}");
    let many: Vec<String> =
        (0..2000).map(|i| format!("mcp__server{}__a_tool_with_a_name_{i:04}", i % 10)).collect();
    let text = list(many.iter().map(String::as_str)).expect("a list");
    assert!(text.len() < 10_000, "{}", text.len());
    assert!(text.contains("mcp__server9__*: a_tool_with_a_name_0009, "), "{text}");
    assert!(text.contains(" more\nmcp__server1__*: "), "each server has a section: {text}");
    let backwards = list(many.iter().rev().map(String::as_str)).expect("a list");
    assert_eq!(text, backwards, "the same tools, the same bytes");
    let servers: Vec<String> = (0..500).map(|i| format!("mcp__{}{i}__tool", "s".repeat(100))).collect();
    let text = list(servers.iter().map(String::as_str)).expect("a list");
    assert!(text.len() < 20_000 && text.contains("and the tools of 436 more servers"), "{}", text.len());
    let hostile = list(["a\u{202e}b\n</deferred_tools>"].into_iter()).expect("a list");
    assert_eq!(hostile.lines().count(), 4, "a name is on its line: {hostile}");
}

#[test]
fn savings_count_what_is_deferred_and_what_it_costs() {
    let schema =
        json!({"type": "object", "properties": {"text": {"type": "string", "description": "x".repeat(300)}}});
    let tools: Vec<_> = (0..20)
        .map(|i| ToolDescriptor::new(format!("mcp__s__t{i}"), "", "does it").with_parameters(schema.clone()))
        .collect();
    let mut state = DeferralStateValue { enabled: true, ..DeferralStateValue::default() };
    assert_eq!(savings(&tools, &state), None);
    state.modes = tools.iter().map(|tool| (tool.id.clone(), ToolLoadMode::Deferred)).collect();
    state.modes.insert("mcp__s__t3".into(), ToolLoadMode::Eager);
    state.moved.insert("mcp__s__t3".into());
    state.modes.insert("mcp__gone__t".into(), ToolLoadMode::Deferred);
    let saved = savings(&tools, &state).expect("some tool is deferred");
    assert_eq!((saved.deferred, saved.promoted), (19, 1));
    let each = |tool: &ToolDescriptor| {
        (tool.id.len() + tool.description.len() + tool.parameters.to_string().len()) / 4 + 10
    };
    assert_eq!(saved.kept_out, tools.iter().filter(|tool| tool.id != "mcp__s__t3").map(each).sum::<usize>());
    assert!(saved.overhead > 100 && saved.saved() == saved.kept_out - saved.overhead, "{saved:?}");
    state.enabled = false;
    assert_eq!(savings(&tools, &state), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Applied at once or one by one, misses give the same result, which is always a distribution.
    #[test]
    fn the_distribution_equals_single_steps(
        p in 0.0_f64..=1.0,
        n0 in 0.1_f64..100.0,
        omega in 0.5_f64..=1.0,
        calls in proptest::collection::vec(any::<bool>(), 0..200),
        last in 0_u64..50,
    ) {
        let params = DiscBetaParams { omega, n0, ..DiscBetaParams::default() };
        let start = Beta::start(p, &params);
        prop_assert!(start.a >= 0.01 && start.b >= 0.01);
        let (mut a, mut b) = (start.a, start.b);
        let mut lazy = start;
        for (turn, called) in (1..).zip(&calls) {
            a *= omega;
            b *= omega;
            if *called {
                a += 1.0;
                lazy = lazy.called_in(turn, &params);
            } else {
                b += 1.0;
            }
        }
        let turns = calls.len() as u64;
        lazy = lazy.idle_until(turns, &params);
        prop_assert!((lazy.a - a).abs() < 1e-6 && (lazy.b - b).abs() < 1e-6, "{lazy:?} {a} {b}");
        prop_assert_eq!(lazy.turn, turns);
        let later = lazy.idle_until(turns + last, &params);
        prop_assert!(later.mean() <= lazy.mean() + 1e-12, "an idle tool never gains usage");
        for beta in [start, lazy, later] {
            let upper = beta.upper();
            prop_assert!(upper.is_finite() && upper >= beta.mean() - 1e-12 && upper <= 1.0, "{beta:?}: {upper}");
        }
        prop_assert_eq!(lazy.called_in(turns, &params), lazy, "two calls of one inference count once");
    }

    /// Search compared with its definition, word by word.
    #[test]
    fn searches_match_their_definition(
        tools in proptest::collection::btree_map("[a-c]{1,3}", ("[a-dA-D ]{0,6}", "[a-dA-D ]{0,10}"), 0..20),
        words in proptest::collection::vec(("[+]?", "[a-dA-D]{1,2}"), 1..4),
    ) {
        let tools: Vec<_> =
            tools.iter().map(|(id, (name, about))| ToolDescriptor::new(id, name, about)).collect();
        let text = words.iter().map(|(plus, word)| format!("{plus}{word}")).collect::<Vec<_>>().join(" ");
        let index = index(&tools);
        let found = search(&index, &Query::parse(&text).expect("a query"), |_| false);
        let holds = |tool: &ToolDescriptor, word: &str| {
            [&tool.id, &tool.name, &tool.description].iter().any(|field| field.to_lowercase().contains(word))
        };
        let of = |plus: bool| -> BTreeSet<String> {
            words.iter().filter(|(mark, _)| (mark == "+") == plus).map(|(_, word)| word.to_lowercase()).collect()
        };
        let (required, ranked) = (of(true), of(false));
        let mut wanted: Vec<(usize, String)> = tools
            .iter()
            .filter(|tool| required.iter().all(|word| holds(tool, word)))
            .map(|tool| (ranked.iter().filter(|word| holds(tool, word)).count(), tool.id.clone()))
            .filter(|(points, _)| *points > 0 || !required.is_empty())
            .collect();
        wanted.sort_by(|(a, a_id), (b, b_id)| b.cmp(a).then(a_id.cmp(b_id)));
        prop_assert_eq!(found.left_out, wanted.len().saturating_sub(5));
        wanted.truncate(5);
        let ids: Vec<_> = found.tools.iter().map(|tool| tool.id.clone()).collect();
        let wanted: Vec<_> = wanted.into_iter().map(|(_, id)| id).collect();
        prop_assert_eq!(ids, wanted);
    }

    /// Arbitrary text never breaks the query parser, and parsed queries are clean.
    #[test]
    fn any_text_is_a_query_or_none(text in "\\PC{0,40}") {
        match Query::parse(&text) {
            Some(Query::Select(ids)) => prop_assert!(ids.iter().all(|id| !id.trim().is_empty())),
            Some(Query::Words { required, ranked }) => {
                prop_assert!(required.iter().chain(&ranked).all(|word| !word.is_empty()));
            }
            None => {}
        }
    }
}
