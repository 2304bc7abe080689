use super::*;
use proptest::prelude::*;
use serde_json::json;

fn p(text: &str) -> Pattern {
    Pattern::parse(text).unwrap()
}

#[test]
fn forms() {
    let bash = |command: &str| json!({"command": command});
    for (pattern, tool, args, primary, want) in [
        ("Read", "Read", json!({}), None, true),
        ("Read", "Reader", json!({}), None, false),
        (" Read ", "Read", json!({}), None, true),
        ("mcp__*", "mcp__gh__x", json!({}), None, true),
        ("{Bash,Read}", "Bash", json!({}), None, true),
        ("{Bash,Read}", "Read", json!({}), None, true),
        ("{Bash,Read}", "Write", json!({}), None, false),
        ("{Bash,mcp__{gh,gl}__*}", "mcp__gl__x", json!({}), None, true),
        ("{Edit,Write}(file_path ~ '*.toml')", "Write", json!({"file_path": "a.toml"}), None, true),
        ("{Edit,Write}(file_path ~ '*.toml')", "Write", json!({"file_path": "a.rs"}), None, false),
        ("/mcp__(gh|gl)__.*/", "mcp__gl__y", json!({}), None, true),
        ("/gh/", "mcp__gh__y", json!({}), None, true),
        ("/(a/b)/", "a/b", json!({}), None, true),
        ("*", "anything", json!({}), None, true),
        ("Bash(FOO=bar *)", "Bash", bash("FOO=bar x"), Some("command"), true),
        ("Bash(ls ~/x)", "Bash", bash("ls ~/x"), Some("command"), true),
        ("Bash(* --force)", "Bash", bash("git push --force"), Some("command"), true),
        ("Bash(echo (a) b)", "Bash", bash("echo (a) b"), Some("command"), true),
        ("Bash(echo \\))", "Bash", bash("echo )"), Some("command"), true),
        ("Bash(command =~ \"(?i)rm\")", "Bash", bash("RM x"), Some("command"), true),
        ("Bash(command !=~ \"rm\")", "Bash", bash("rm x"), Some("command"), false),
        ("Bash(command != 'a')", "Bash", json!({}), Some("command"), false),
        ("T(a.b[1] = \"x\")", "T", json!({"a": {"b": [0, "x"]}}), None, true),
        ("T(a = \"\")", "T", json!({"a": null}), None, true),
        ("T(a = 'true')", "T", json!({"a": true}), None, true),
        ("T(a = '{\"x\":1}')", "T", json!({"a": {"x": 1}}), None, true),
        ("T(a ~ '*', b = '2')", "T", json!({"a": 1, "b": 2}), None, true),
        ("T(only)", "T", json!({"x": "only", "n": 3}), None, true),
        ("T(a = \"q\\\"\\\\\\n\")", "T", json!({"a": "q\"\\\\n"}), None, true),
        ("T(*.x = '1')", "T", json!({"k": {"x": 1}}), None, true),
    ] {
        assert_eq!(p(pattern).matches(tool, &args, primary, Quantifier::One), want, "{pattern} on {args}");
    }
}

#[test]
fn a_deny_needs_one_matching_value_and_an_allow_needs_all() {
    let pattern = p("T(e[*].f ~ \"src/*\")");
    let args = json!({"e": [{"f": "src/a"}, {"f": "x"}]});
    assert!(pattern.matches("T", &args, None, Quantifier::One));
    assert!(!pattern.matches("T", &args, None, Quantifier::Every));
    assert!(!pattern.matches("T", &json!({"e": []}), None, Quantifier::Every));
}

#[test]
fn any_arguments_are_one_rule() {
    for text in ["T", "T(*)", "T( * )", "T(**)", " T ( ** ) "] {
        assert_eq!(p(text), p("T"), "{text}");
        assert_eq!(p(text).to_string(), "T");
    }
    assert_eq!(p("Bash(git:*)"), p("Bash(git *)"));
    assert_ne!(p("Other(git:*)").to_string(), "Other(git *)");
}

#[test]
fn broken_patterns_report_their_position() {
    for (text, position) in [
        ("Bash(rm *", 4),
        ("", 0),
        ("  ", 2),
        ("Bash(command =~ \"(rm\")", 17),
        ("Bash()", 4),
        ("Bash(x) y", 8),
        ("Bash x", 5),
        ("/ab", 0),
        ("/(/x/", 0),
        ("Bash(a = \"x\" b)", 13),
        ("Bash(a = \"x\", )", 14),
        ("Bash(a = \"x", 9),
        ("Bash([ -f x)", 5),
        ("[a", 0),
        ("Bash)", 4),
        ("Bash(a = \"x\"", 12),
        ("Bash(x))", 7),
    ] {
        let error = Pattern::parse(text).unwrap_err();
        assert_eq!(error.position, position, "{text}: {error}");
    }
}

#[test]
fn specificity_orders_reports() {
    let order = ["/Bash/", "B*", "Bash", "Bash(command =~ \"x\")", "Bash(x *)", "Bash(command = \"x\")"];
    for pair in order.windows(2) {
        assert!(p(pair[0]).specificity() < p(pair[1]).specificity(), "{pair:?}");
    }
}

#[test]
fn a_literal_matches_only_itself() {
    let pattern = Pattern::literal("we*ird", "k", "a\"b\\*");
    assert_eq!(p(&pattern.to_string()), pattern);
    assert!(pattern.matches("we*ird", &json!({"k": "a\"b\\*"}), None, Quantifier::Every));
    assert!(!pattern.matches("weXird", &json!({"k": "a\"b\\*"}), None, Quantifier::Every));
}

proptest! {
    #[test]
    fn parsing_never_panics(text in ".{0,60}") {
        let _ = Pattern::parse(&text);
    }

    #[test]
    fn display_round_trips(text in r#"[A-Z/][a-z*?/(){}\[\],. "'=~!\\:-]{0,30}"#) {
        if let Ok(pattern) = Pattern::parse(&text) {
            prop_assert_eq!(Pattern::parse(&pattern.to_string()), Ok(pattern));
        }
    }

    #[test]
    fn conditions_round_trip(key in "[a-z_]{1,6}", value in ".{0,20}", op in "(=|!=|~|!~)") {
        let text = format!("T({key} {op} \"{}\")", value.replace('\\', "\\\\").replace('"', "\\\""));
        if let Ok(pattern) = Pattern::parse(&text) {
            prop_assert_eq!(Pattern::parse(&pattern.to_string()), Ok(pattern));
        }
    }

    #[test]
    fn an_escaped_text_matches_itself(text in "[^\u{0}]{0,30}", other in ".{0,30}") {
        let regex = glob::compile(&escape_glob(&text), glob::Reading::Text).unwrap();
        prop_assert!(regex.is_match(&text));
        prop_assert_eq!(regex.is_match(&other), text == other);
    }
}

#[test]
fn expressions_are_compiled_lazily() {
    let pattern = Pattern::parse("Bash(git status *)").unwrap();
    let Args::Primary(Matcher::Glob { regex, words, .. }) = pattern.args() else { panic!("{pattern:?}") };
    let matcher = Matcher::Glob {
        text: "git status *".into(),
        regex: regex.clone(),
        words: words.clone(),
        front: (["git".to_owned(), "status".to_owned()].into(), false),
    };
    assert!(!matcher.is_match_words(&["cargo", "status"], "cargo status"));
    assert!(!words.is_compiled(), "an expression was compiled for another program");
    assert!(matcher.is_match_words(&["git", "status", "-s"], "git status -s"));
    assert!(words.is_compiled() && !regex.is_compiled());
    let pattern = Pattern::parse("mcp__*").unwrap();
    let Name::Glob { regex, .. } = &pattern.name else { panic!("{pattern:?}") };
    assert!(
        !pattern.matches_tool("Bash") && !regex.is_compiled(),
        "an expression was compiled for another tool"
    );
    assert!(pattern.matches_tool("mcp__files__read") && regex.is_compiled());
    // Written expressions are compiled at once, so that mistakes are found when reading.
    assert!(Pattern::parse(r#"Bash(command =~ "(")"#).is_err());
    let long = format!("Bash({})", "[a-z]".repeat(100));
    let long = Pattern::parse(&long).unwrap();
    assert!(matches!(long.args(), Args::Primary(Matcher::Glob { regex, .. }) if regex.is_compiled()));
}

proptest! {
    /// The literal start of a glob for names only saves work as well.
    #[test]
    fn prefiltering_by_name_prefix_never_changes_the_result(
        glob in r"(a|b|\\a|\\\*|\*|\?|\[ab\]|\{a,bb?\}|,|\}){0,6}",
        name in "[ab*,}]{0,6}",
    ) {
        if let Ok(source) = glob::to_regex(&glob, glob::Reading::Text) {
            let whole = regex::Regex::new(&source).unwrap().is_match(&name);
            prop_assert!(!whole || name.starts_with(glob::literal_start(&glob)), "{glob:?} {name:?}");
        }
    }

    /// The literal words at the start of a glob only save the expression some work.
    #[test]
    fn prefiltering_by_glob_prefix_never_changes_the_result(
        glob in r#"[ab*?"' \\{},\[\]!-]{0,12}"#,
        words in proptest::collection::vec("[ab{}, ]{0,3}", 1..4),
    ) {
        if let Ok(words_only) = glob::compile(glob.trim(), glob::Reading::Words) {
            let (front, all) = glob::literal_words(&glob);
            let regex = words_only.clone();
            let matcher = Matcher::Glob { text: glob.clone(), regex, words: words_only.clone(), front: (front.into(), all) };
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let plain = words_only.is_match(&words.join("\u{1f}"));
            prop_assert_eq!(matcher.is_match_words(&words, ""), plain, "{:?} on {:?}", glob, words);
        }
    }
}
