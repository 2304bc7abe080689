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

#[test]
fn a_host_and_a_server_are_named_in_short() {
    let url = |url: &str| json!({"url": url});
    for (pattern, tool, args, want) in [
        ("WebFetch(domain:evil.example)", "WebFetch", url("https://evil.example/x"), true),
        ("WebFetch(domain:evil.example)", "WebFetch", url("https://good.example/x"), false),
        ("mcp__github", "mcp__github__push", json!({}), true),
        ("mcp__github", "mcp__github", json!({}), true),
        ("mcp__github", "mcp__github2__push", json!({}), false),
        ("mcp__git", "mcp__github__push", json!({}), false),
        ("mcp__my__tool", "mcp__my__tool__x", json!({}), false),
        ("mcp__", "mcp____x", json!({}), false),
    ] {
        assert_eq!(
            p(pattern).matches(tool, &args, Some("url"), Quantifier::One),
            want,
            "{pattern} on {tool} {args}"
        );
        assert_eq!(p(&p(pattern).to_string()), p(pattern));
    }
    assert!(Pattern::parse("WebFetch(domain:https://x)").is_err());
    // Only the tool that fetches pages knows this form.
    assert!(p("T(domain:x)").matches("T", &json!({"x": "domain:x"}), None, Quantifier::One));
}

#[test]
fn options_are_found_in_every_spelling() {
    use crate::shell::{OptionFit, analyse};
    let fit = |glob: &str, command: &str| {
        let analysis = analyse(command);
        let fits = analysis.commands.iter().flat_map(super::shell::Simple::spellings);
        let matcher = Matcher::glob(glob).unwrap();
        let fits: Vec<OptionFit> = fits.map(|words| matcher.options_fit(&words)).collect();
        if fits.contains(&OptionFit::Yes) {
            "yes"
        } else if fits.contains(&OptionFit::Maybe) {
            "maybe"
        } else {
            "no"
        }
    };
    let mut wrong = Vec::new();
    for (glob, command, want) in [
        ("rm -rf *", "rm -rf y", "yes"),
        ("rm -rf *", "rm -fr y", "yes"),
        ("rm -rf *", "rm -r -f y", "yes"),
        ("rm -rf *", "rm y -f -R", "yes"),
        ("rm -rf *", "rm -vrf y", "yes"),
        ("rm -rf *", "rm --recursive --force y", "yes"),
        ("rm -rf *", "rm --rec -f y", "yes"),
        ("rm -rf *", "/bin/rm -fr y", "yes"),
        ("rm -rf *", "sudo rm -fr y", "yes"),
        ("*rm -rf *", "rm -fr y", "yes"),
        ("rm -rf /*", "rm -fr /etc", "yes"),
        ("rm -rf /*", "rm -fr etc", "no"),
        ("rm -rf *", "rm -r y", "no"),
        ("rm -rf *", "rm -f y", "no"),
        ("rm -rf *", "rm -ri y", "no"),
        ("rm -rf *", "cp -rf y z", "no"),
        ("rm -rf *", "rm -f $X", "maybe"),
        ("rm -rf *", "rm -f ./$X", "maybe"),
        ("rm -rf *", "rm -f src/*.o", "no"),
        ("rm -rf *", "rm {-rf,x}", "maybe"),
        ("rm --recursive *", "rm -r y", "yes"),
        ("git push --force *", "git push origin main --force", "yes"),
        ("git push --force *", "git push origin main -f", "yes"),
        ("git push --force *", "git push -uf origin main", "yes"),
        ("git push --force *", "git -C x push --forc", "yes"),
        ("git push --force *", "git push --force-with-lease", "no"),
        ("git push --force-with-lease *", "git push --force", "no"),
        ("git push --force *", "git push -o force origin", "no"),
        ("git push --force *", "git push origin main", "no"),
        ("git push --force *", "git commit -m push --force", "no"),
        ("git push --force *", "git push $X", "maybe"),
        ("git push -f*", "git push origin --force", "yes"),
        ("git push --force*", "git push --force-with-lease", "yes"),
        ("git push {--force,-d} *", "git push origin --delete x", "yes"),
        ("git push origin --force", "git push --force origin main", "yes"),
        ("git push origin --force", "git push --force other", "no"),
        ("git branch -D *", "git branch -d -f x", "yes"),
        ("git branch -D *", "git branch --delete --force x", "yes"),
        ("git branch -D *", "git branch -d x", "no"),
        ("git commit -n *", "git commit -m x --no-verify", "yes"),
        ("*--no-verify*", "git commit -n -m x", "yes"),
        ("*--no-verify*", "git push -n", "no"),
        ("git reset --hard *", "git reset HEAD~1 --hard", "yes"),
        ("git clean -f *", "git clean -dxf", "yes"),
        ("curl -X POST *", "curl -XPOST http://x", "yes"),
        ("curl -X POST *", "curl http://x --request=POST", "yes"),
        ("curl -X POST *", "curl -X GET http://x", "no"),
        ("curl -o *", "curl -sSofile http://x", "yes"),
        ("curl -o *", "curl -Xo http://x", "no"),
        ("sort --output=* *", "sort -o x y", "yes"),
        ("docker run --privileged *", "docker run -it --privileged alpine", "yes"),
        ("docker run -v *", "docker run --volume=/:/h alpine", "yes"),
        ("docker run -v *", "docker run -itv /:/h alpine", "yes"),
        ("kill -9 *", "kill -KILL 1", "yes"),
        ("kill -9 *", "kill -s SIGKILL 1", "yes"),
        ("kill -9 *", "kill 9", "no"),
        ("find * -delete", "find . -name x -delete", "yes"),
        ("find -delete *", "find . -name x -print", "no"),
        ("terraform apply -auto-approve *", "terraform apply --auto-approve", "yes"),
        ("tar -x *", "tar xf a", "yes"),
        ("python3 -c *", "python3 -Bc 'x'", "yes"),
        ("bash -c *", "bash -lc 'x'", "yes"),
        ("* --force *", "git push x --force", "yes"),
        ("foo -ab *", "foo -b x -a", "yes"),
        ("foo --bar *", "foo x --bar=1", "yes"),
        ("foo -bar *", "foo -bar x", "yes"),
        ("git checkout -- *", "git checkout -- x", "no"),
        ("cat -", "cat -", "no"),
    ] {
        let got = fit(glob, command);
        if got != want {
            wrong.push(format!("{glob} | {command}: {got}, not {want}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let why = |glob: &str| Matcher::glob(glob).unwrap().undecided_options();
    for glob in
        ["rm -rf *", "git push --force *", "git *", "find * -delete", "*rm -rf *", "git checkout -- *"]
    {
        assert_eq!(why(glob), None, "{glob}");
    }
    for (glob, option) in
        [("foo -x *", "`-x` of foo"), ("git push --new *", "`--new` of git"), ("* --force", "any program")]
    {
        assert!(why(glob).is_some_and(|why| why.contains(option)), "{glob}: {:?}", why(glob));
    }
    assert!(Matcher::regex(r"^rm\s+-r").unwrap().undecided_options().is_some());
}

#[test]
fn a_runner_and_its_program_cover_all_arguments() {
    use crate::shell::{analyse, risks, runner_program};
    for (command, program) in [
        ("npx eslint .", Some("eslint")),
        ("npx -y -p typescript tsc --noEmit", Some("tsc")),
        ("npx --package=x tsc", Some("tsc")),
        ("npx -c 'rm x'", None),
        ("npx --new eslint .", None),
        ("pnpm --filter web exec tsc", Some("tsc")),
        ("pnpm test exec", None),
        ("yarn dlx create-x", Some("create-x")),
        ("uv run pytest -q", Some("pytest")),
        ("uv run --extra dev --frozen pytest -q", Some("pytest")),
        ("uv run -m pytest", None),
        ("uvx --from ruff ruff check", Some("ruff")),
        ("poetry run mypy .", Some("mypy")),
        ("bundle exec rspec", Some("rspec")),
        ("docker compose up -d", Some("compose")),
        ("docker compose exec web ls", Some("compose")),
        ("docker exec -it web psql -c x", Some("psql")),
        ("docker exec web", None),
        ("docker run alpine ls", None),
        ("kubectl exec -it pod -- ls -l", Some("ls")),
        ("kubectl exec pod ls", None),
        ("mise exec node@22 -- npm test", Some("npm")),
        ("nix develop .#ci -c make check", Some("make")),
        ("rustup run nightly cargo test", Some("cargo")),
        ("direnv exec . make", Some("make")),
        ("eslint .", None),
    ] {
        let analysis = analyse(command);
        let words = &analysis.commands[0].words;
        let found = runner_program(words).map(|at| words[at].text.as_str());
        assert_eq!(found, program, "{command}");
    }
    let first = |command: &str| risks(&analyse(command).commands[0].words);
    assert_eq!(first("npx eslint . --fix").len(), 1);
    // A shell or another runner below it is not covered.
    assert!(first("npx sh -c x").iter().any(|risk| !risk.is_named_by(2, false)));
    assert!(first("uv run npx x").iter().any(|risk| !risk.is_named_by(3, false)));
    assert!(first("uv run npx x").iter().all(|risk| risk.is_named_by(4, false)));
    for command in ["npx eslint .", "uv run ruff check .", "npx jest source", "uv run pytest case"] {
        assert_eq!(analyse(command).undecided, None, "{command}");
    }
    assert!(analyse("coproc . x").undecided.is_some());
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
        covering: regex.clone(),
        options: LazyOptions::default(),
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
            let matcher = Matcher::Glob {
                text: glob.clone(),
                regex: words_only.clone(),
                words: words_only.clone(),
                front: (front.into(), all),
                covering: words_only.clone(),
                options: LazyOptions::default(),
            };
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let plain = words_only.is_match(&words.join("\u{1f}"));
            prop_assert_eq!(matcher.is_match_words(&words, ""), plain, "{:?} on {:?}", glob, words);
        }
    }
}

#[test]
fn a_folded_path_is_found_by_any_spelling_of_a_pattern() {
    let glob = |text: &str| Matcher::glob(text).unwrap();
    let exact = |text: &str| Matcher::Exact(text.into());
    let regex = |text: &str| Matcher::regex(text).unwrap();
    for (matcher, path, want) in [
        (glob(".env"), ".ENV", true),
        (glob(".ENV"), "a/.env", true),
        (glob("**/Secret/"), "secret/x", true),
        (glob("[A-C]x"), "bX", true),
        (glob("caf\u{e9}/**"), "CAFE\u{301}/x", true),
        (glob("cafe\u{301}"), "caf\u{e9}", true),
        (glob("STRASSE"), "stra\u{df}e", true),
        (glob("\u{17f}ecret"), "Secret", true),
        (glob(".env"), ".envx", false),
        (exact("Keys/"), "keys/a", true),
        (exact("./KEYS"), "keys", true),
        (exact("keys"), "keysx", false),
        (regex(r"\.PEM$"), "x.pem", true),
        (regex(r"\.pem$"), "x.PEM", true),
        (regex(r"^\S+\.Key$"), "a b.key", false),
    ] {
        let folded = spelling::folded(path);
        assert_eq!(matcher.covers_folded(&folded), want, "{matcher:?} on {path:?}");
        let sieve = matcher.covering_sources().join("|");
        let sieve = regex::Regex::new(&sieve).unwrap();
        assert!(
            !want || sieve.is_match(&folded) || sieve.is_match(path),
            "{matcher:?} lets {path:?} through"
        );
    }
    assert!(
        glob("a/*.PEM").is_case_sensitive()
            && regex("[A-Z]").is_case_sensitive()
            && exact("\u{e9}").is_case_sensitive()
    );
    assert!(!glob("a/*.pem").is_case_sensitive() && !regex(r"\Aa\S*\z").is_case_sensitive());
}

#[test]
fn a_pattern_in_lower_case_compiles_nothing_more_for_folded_texts() {
    let regex = LazyRegex::later(r"(?s)\Aa.*\z".into());
    assert!(regex.is_match_folded("ab") && regex.is_compiled());
    assert_eq!(regex.folded_source(), regex.as_str());
}
