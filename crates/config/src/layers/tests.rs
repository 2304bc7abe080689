use super::*;
use crate::settings::{Adapter, Images, PermissionMode, SandboxMissing};
use proptest::prelude::*;
use std::fs;
use std::time::Duration;
use tempfile::TempDir;

/// A user file, a project file, variables and flags; everything else at its default.
#[derive(Default)]
struct Case {
    user: &'static str,
    project: &'static str,
    is_trusted: bool,
    env: &'static [(&'static str, &'static str)],
    config: &'static [&'static str],
    policy: &'static str,
}

impl Case {
    fn load(&self) -> (TempDir, Result<Loaded, ConfigError>) {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let (user, project) = (dir.path().join("user.toml"), dir.path().join("project.toml"));
        fs::write(&user, self.user).expect("user");
        fs::write(&project, self.project).expect("project");
        let mut flags = Flags::default();
        for text in self.config {
            flags.config(text);
        }
        let env = Env::of(self.env, dir.path(), dir.path());
        let project = [project];
        let policy = MachinePolicy::parse(Path::new("/etc/aye/policy.toml"), self.policy).expect("a policy");
        let sources = Sources {
            user: &user,
            project: &project,
            is_trusted: self.is_trusted,
            env: &env,
            flags: &flags,
            policy: Some(&policy),
        };
        let loaded = load(&sources);
        (dir, loaded)
    }

    fn ok(&self) -> Loaded {
        self.load().1.expect("settings load")
    }

    /// The problems, without the folder prefix.
    fn problems(&self) -> Vec<String> {
        let (dir, loaded) = self.load();
        let prefix = format!("{}/", dir.path().display());
        loaded
            .expect_err("settings are refused")
            .problems
            .iter()
            .map(|p| p.to_string().replace(&prefix, ""))
            .collect()
    }

    fn warnings(&self) -> Vec<String> {
        let (dir, loaded) = self.load();
        let prefix = format!("{}/", dir.path().display());
        loaded.expect("settings load").warnings.iter().map(|p| p.to_string().replace(&prefix, "")).collect()
    }
}

#[test]
fn defaults_are_valid_and_cautious() {
    let settings = Case::default().ok().settings;
    assert_eq!(settings, Settings::default());
    assert_eq!(settings.permission_mode, PermissionMode::Ask);
    assert_eq!(settings.bash.timeout, Duration::from_mins(2));
    assert_eq!(settings.lease, Duration::from_secs(10));
    assert_eq!(settings.stop.max_tokens_total, None);
    assert_eq!(settings.max_turns, Some(100));
}

#[test]
fn later_layers_win_and_values_know_their_origin() {
    let case = Case {
        user: "model = \"user\"\nmax_turns = 5\n[tui]\nbell = false\n",
        project: "model = \"project\"\ntheme = \"dark\"\n",
        is_trusted: true,
        env: &[("AYE_MODEL", "env"), ("AYE_MAX_TURNS", " 7 ")],
        config: &["model=flag"],
        ..Case::default()
    };
    let loaded = case.ok();
    assert_eq!(loaded.settings.model.as_deref(), Some("flag"));
    assert_eq!(loaded.settings.max_turns, Some(7));
    let origin = |key| loaded.provenance.origin(key).expect("has an origin").to_string();
    assert_eq!(origin("model"), "--config model=flag");
    assert_eq!(origin("max_turns"), "environment AYE_MAX_TURNS");
    assert!(origin("theme").ends_with("project.toml:2:1"), "{}", origin("theme"));
    assert!(origin("tui.bell").ends_with("user.toml:4:1"));
    assert_eq!(origin("bash.timeout"), "default");
    let row = loaded.provenance.rows().into_iter().find(|row| row.key == "theme").expect("a row");
    assert_eq!(row.value, "\"dark\"");
}

#[test]
fn an_unknown_key_reports_file_line_and_nearest_key() {
    for (text, expected) in [
        ("modle = \"x\"", "user.toml:1:1: unknown key `modle`; did you mean `model`?"),
        (
            "\n[retry]\nmax_retrys = 1",
            "user.toml:3:1: unknown key `retry.max_retrys`; did you mean `max_retries`?",
        ),
        ("[bash]\ntimout = 1", "user.toml:2:1: unknown key `bash.timout`; did you mean `timeout`?"),
        (
            "[stop]\nmax_token_total = 1",
            "user.toml:2:1: unknown key `stop.max_token_total`; did you mean `max_tokens_total`?",
        ),
        ("[tui]\n  mouze = true", "user.toml:2:3: unknown key `tui.mouze`; did you mean `mouse`?"),
        (
            "[providers.a]\nbaseurl = \"http://x\"",
            "user.toml:2:1: unknown key `providers.a.baseurl`; did you mean `base_url`?",
        ),
        (
            "models.\"a.b\".prize.input = 1",
            "user.toml:1:14: unknown key `models.\"a.b\".prize`; did you mean `price`?",
        ),
        (
            "models.m.price = { inputs = 1 }",
            "user.toml:1:20: unknown key `models.m.price.inputs`; did you mean `input`?",
        ),
        (
            "base_url = \"http://x\"",
            "user.toml:1:1: unknown key `base_url`; did you mean `providers.NAME.base_url`?",
        ),
        (
            "[providers]\nbase_url = \"http://x\"",
            "user.toml:2:1: `providers.base_url` needs a name; write [providers.NAME] and put `base_url` \
             below it",
        ),
    ] {
        assert_eq!(Case { user: text, ..Case::default() }.problems(), [expected]);
    }
    let known = crate::schema::names(crate::schema::ROOT);
    let expected = format!("user.toml:1:2: unknown key `nothing`; expected one of {known}");
    assert_eq!(Case { user: "[nothing]\nx = 1", ..Case::default() }.problems(), [expected]);
}

#[test]
fn a_wrong_type_is_reported_with_the_expected_one() {
    for (text, expected) in [
        ("model = 4", "user.toml:1:9: `model` must be a quoted string, not the number 4"),
        ("model = 2026-01-02", "user.toml:1:9: `model` must be a quoted string, not a date"),
        (
            "max_turns = 99999999999999999999",
            "user.toml:1:13: `max_turns` must be a whole number, not the number 99999999999999999999",
        ),
        ("max_turns = -1", "user.toml:1:13: `max_turns` must be a whole number, not the number -1"),
        ("max_turns = \"9\"", "user.toml:1:13: `max_turns` must be a whole number, not the string \"9\""),
        ("[tui]\nmouse = 1", "user.toml:2:9: `tui.mouse` must be true or false, not the number 1"),
        ("retry = 3", "user.toml:1:9: `retry` must be a table, written [retry], not the number 3"),
        (
            "providers.x = []",
            "user.toml:1:15: `providers.x` must be a table, written [providers.x], not a list",
        ),
        (
            "[bash]\nmax_output = 3",
            "user.toml:2:14: `bash.max_output` must be a whole number, at least 1024, not the number 3",
        ),
        (
            "[sandbox]\ndomains = [\"a.example.org\", \"*.com\"]",
            "user.toml:2:11: `sandbox.domains` must be a list of domains such as [\"docs.example.org\", \"*.example.com\"], not a list that contains \"*.com\"; a name has at least two parts of letters, digits and `-`",
        ),
        (
            "[sandbox]\nenv = [\"APP_*\", \"*\"]",
            "user.toml:2:7: `sandbox.env` must be a list of names of variables such as [\"DATABASE_URL\", \"APP_*\"], not a list that contains \"*\"",
        ),
        (
            "permission_mode = \"never\"",
            "user.toml:1:19: `permission_mode` must be one of \"plan\", \"ask\", \"accept-edits\", \"auto\", \"yolo\", not the string \"never\"",
        ),
        (
            "lease = \"11m\"",
            "user.toml:1:9: `lease` must be a time such as \"10s\", between 100ms and 10m, not the string \"11m\"",
        ),
        (
            "lease = \"99ms\"",
            "user.toml:1:9: `lease` must be a time such as \"10s\", between 100ms and 10m, not the string \"99ms\"",
        ),
        (
            "[bash]\ntimeout = \"soon\"",
            "user.toml:2:11: `bash.timeout` must be seconds as a whole number, or a string with a unit such \
             as \"90s\" or \"2m\", not the string \"soon\"",
        ),
        (
            "[models.m.price]\ninput = nan",
            "user.toml:2:9: `models.m.price.input` must be a non-negative number, not the number nan",
        ),
        (
            "[retry]\nfallback_models = [1]",
            "user.toml:2:19: `retry.fallback_models` must be a list of strings such as [\"a\", \"b\"], not a \
             list that contains the number 1",
        ),
    ] {
        assert_eq!(Case { user: text, ..Case::default() }.problems(), [expected]);
    }
}

#[test]
fn a_misplaced_secret_is_refused_and_not_repeated() {
    for text in [
        "providers.x.api_key_env = \"sk-canary0123456789\"",
        "providers.x.base_url = \"https://me:canary@host/v1\"",
        "providers.x.api_key = \"canary\"",
    ] {
        let problems = Case { user: text, ..Case::default() }.problems();
        assert_eq!(problems.len(), 1, "{text}");
        assert!(!problems[0].contains("canary"), "{}", problems[0]);
    }
}

#[test]
fn invalid_toml_reports_line_and_column() {
    for (text, place) in [
        ("a = ", "user.toml:1:"),
        ("model = \"x\nmax_turns = 1", "user.toml:1:"),
        ("\n\n[bash\n", "user.toml:3:"),
        ("model = \"a\"\nmodel = \"b\"", "user.toml:2:"),
        ("model = unquoted", "user.toml:1:"),
        ("\u{feff}model = ", "user.toml:1:"),
        ("{\"a\":1,}", "user.toml:1:"),
    ] {
        let problems = Case { user: text, ..Case::default() }.problems();
        assert!(problems[0].starts_with(place), "{text:?}: {problems:?}");
    }
}

#[test]
fn all_problems_are_reported_together() {
    let case = Case {
        user: "modle = 1\n[tui]\nx = 1",
        env: &[("AYE_SCREEN", "big")],
        config: &["nope"],
        ..Case::default()
    };
    let problems = case.problems();
    assert_eq!(problems.len(), 4, "{problems:?}");
    assert!(problems[2].starts_with("environment AYE_SCREEN: `screen` must be one of"), "{}", problems[2]);
    assert_eq!(problems[3], "--config nope: missing `=`; expected KEY=VALUE, for example max_turns=20");
}

#[test]
fn config_flags_take_dotted_keys_and_toml_values() {
    let case = Case {
        config: &[
            "models.\"gpt-4.1\".context_window=2_000",
            "models.\"gpt-4.1\".price.input = 0.5",
            "providers.local.adapter=ollama",
            "providers.local.base_url=\"http://127.0.0.1:1/\"",
            "retry.fallback_models=['a', 'b']",
            "tui.mouse=true",
            "bash.timeout=90s",
            "lease=100ms",
            "stop.timeout_s=30",
            "model=4",
        ],
        ..Case::default()
    };
    let settings = case.ok().settings;
    assert_eq!(settings.models["gpt-4.1"].context_window, Some(2000));
    assert_eq!(settings.models["gpt-4.1"].price.map(|price| price.input), Some(0.5));
    assert_eq!(settings.providers["local"].adapter, Some(Adapter::Ollama));
    assert_eq!(settings.retry.fallback_models, ["a", "b"]);
    assert!(settings.tui.mouse);
    assert_eq!(settings.bash.timeout, Duration::from_secs(90));
    assert_eq!(settings.lease, Duration::from_millis(100));
    assert_eq!(settings.stop.timeout_s, Some(30));
    assert_eq!(settings.model.as_deref(), Some("4"));
}

#[test]
fn an_invalid_config_flag_is_named() {
    for (text, expected) in [
        ("modle=x", "--config modle=x: unknown key `modle`; did you mean `model`?"),
        (
            "retry=1",
            "--config retry=1: `retry` is a table; write retry.KEY with one of max_retries, backoff_base_ms, fallback_models",
        ),
        (
            "providers.x=1",
            "--config providers.x=1: `providers.x` is a table; write providers.x.KEY with one of adapter, base_url, api_key_env",
        ),
        ("model.x=1", "--config model.x=1: `model` is a value and cannot contain keys"),
        (
            "max_turns=many",
            "--config max_turns=many: `max_turns` must be a whole number, not the string \"many\"",
        ),
        ("=1", "--config =1: invalid key ``; write it as a.b, with quotes around a part that contains a dot"),
        ("model=", "--config model=: `model` has no value; it must be a quoted string"),
        ("max_turns= ", "--config max_turns= : `max_turns` has no value; it must be a whole number"),
        ("model='x", "--config model='x: `model` must be a quoted string, not `'x`"),
    ] {
        let text: &'static [&'static str] = Box::leak(Box::new([text]));
        assert_eq!(Case { config: text, ..Case::default() }.problems(), [expected]);
    }
}

#[test]
fn one_config_flag_sets_only_one_key() {
    for text in
        ["theme=\"a\"\npermission_mode=\"yolo\"", "theme\npermission_mode=yolo", "theme=1\nmax_turns=0"]
    {
        let mut flags = Flags::default();
        flags.config(text);
        let keys: Vec<_> = flags.layer.entries.iter().map(|entry| entry.key.to_string()).collect();
        assert!(keys.is_empty() || keys == ["theme"], "{text:?} set {keys:?}");
    }
}

#[test]
fn an_untrusted_project_may_only_tighten() {
    let project = "permission_mode = \"plan\"\nmax_turns = 3\nmodel = \"x\"\n[stop]\ntimeout_s = 60\n[bash]\ntimeout = \"1h\"\n";
    let case = Case { project, ..Case::default() };
    let settings = case.ok().settings;
    assert_eq!(settings.permission_mode, PermissionMode::Plan);
    assert_eq!(settings.max_turns, Some(3));
    assert_eq!(settings.stop.timeout_s, Some(60));
    assert_eq!(settings.model, None);
    assert_eq!(settings.bash.timeout, Duration::from_mins(2));
    let warnings = case.warnings();
    assert!(
        warnings.contains(&"project.toml:3:1: `model` is ignored until you trust this folder".to_owned()),
        "{warnings:?}"
    );
    assert!(
        warnings.contains(
            &"project.toml:7:1: `bash.timeout` is ignored: an untrusted folder can only lower it".to_owned()
        ),
        "{warnings:?}"
    );
    for (seconds, lowered) in [("60", 60), ("121", 120), ("\"1m\"", 60)] {
        let project: &'static str = Box::leak(format!("[bash]\ntimeout = {seconds}").into_boxed_str());
        let timeout = Case { project, ..Case::default() }.ok().settings.bash.timeout;
        assert_eq!(timeout.as_secs(), lowered, "both ways to write a time can be compared");
    }
    let unlimited =
        Case { project: "max_turns = 0\n[stop]\nconsecutive_errors = 0", ..Case::default() }.ok().settings;
    assert_eq!((unlimited.max_turns, unlimited.stop.consecutive_errors), (Some(100), Some(8)));
}

/// Row CO030 and CVE-2026-21852: endpoints and keys never come from a project, trusted or not.
#[test]
fn a_project_cannot_set_endpoints_keys_or_a_looser_mode() {
    let project = "permission_mode = \"yolo\"\n[providers.anthropic]\nbase_url = \"http://evil.example\"\napi_key_env = \"HOME\"\n[models.m]\nprovider = \"p\"\n";
    for is_trusted in [false, true] {
        let case = Case { user: "permission_mode = \"ask\"", project, is_trusted, ..Case::default() };
        let settings = case.ok().settings;
        assert_eq!(settings.permission_mode, PermissionMode::Ask);
        assert!(settings.providers.is_empty() && settings.models.is_empty());
        let warnings = case.warnings();
        assert_eq!(warnings.len(), 4, "{warnings:?}");
        assert!(
            warnings
                .iter()
                .any(|line| line.starts_with("project.toml:3:1: `providers.anthropic.base_url` is ignored"))
        );
    }
    let unknown = Case { project: "[provider]\nbase_url = \"http://evil.example\"\n", ..Case::default() };
    assert!(unknown.ok().settings.providers.is_empty());
    assert!(
        unknown.warnings()[0].starts_with("project.toml:1:2: unknown key `provider`"),
        "{:?}",
        unknown.warnings()
    );
}

/// Only the user sets what the kernel restricts commands to.
#[test]
fn a_project_cannot_open_the_sandbox() {
    let project = "[sandbox]\nenabled = false\nreadable = [\"/\"]\nwritable = [\"/\"]\ndomains = [\"evil.example.net\"]\nenv = [\"AWS\"]\nmissing = \"allow\"\n";
    for is_trusted in [false, true] {
        let user = "[sandbox]\ndomains = [\"Docs.example.org\"]";
        let case = Case { user, project, is_trusted, ..Case::default() };
        let sandbox = case.ok().settings.sandbox;
        assert_eq!(sandbox.domains.iter().map(ToString::to_string).collect::<Vec<_>>(), ["docs.example.org"]);
        assert!(sandbox.enabled && sandbox.readable.is_empty() && sandbox.missing == SandboxMissing::Ask);
        assert!(sandbox.env.is_empty());
        assert_eq!(case.warnings().len(), 6, "{:?}", case.warnings());
    }
}

#[test]
fn a_broken_project_file_is_an_error_if_trusted_and_a_warning_otherwise() {
    let broken = Case { project: "model = ", ..Case::default() };
    assert!(broken.warnings()[0].contains("ignored, this folder is not trusted"));
    assert!(Case { project: "model = ", is_trusted: true, ..Case::default() }.load().1.is_err());
}

#[test]
fn irregular_files_are_problems_and_missing_ones_are_not() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    assert!(read_layer(&dir.path().join("none.toml")).problems.is_empty());
    let first_problem = |path: &Path| read_layer(path).problems[0].to_string();
    assert!(first_problem(dir.path()).ends_with("is not a file"));
    let bytes = dir.path().join("bytes.toml");
    fs::write(&bytes, b"theme = \"a\"\n\xff").expect("writes");
    assert!(first_problem(&bytes).ends_with("bytes.toml:2:1: is not UTF-8 text"));
    let big = dir.path().join("big.toml");
    fs::write(&big, " ".repeat(1 << 21)).expect("writes");
    assert!(first_problem(&big).ends_with("is larger than 1024 KiB"));
}

proptest! {
    #[test]
    fn arbitrary_text_never_panics(text in "\\PC*|[\\[\\]a-z.=\"'{}\n #0-9\u{feff}\u{1b}-]{0,80}") {
        let layer = SettingsLayer::from_toml(Path::new("f"), &text);
        for problem in layer.problems {
            let shown = problem.to_string();
            prop_assert!(!shown.contains(|c: char| c.is_control()), "{shown:?}");
            let lines = text.split('\n').count();
            let is_inside = matches!(problem.origin, Origin::File { line, .. } if line >= 1 && line <= lines);
            prop_assert!(is_inside);
        }
        Flags::default().config(&text);
    }

    #[test]
    fn an_unknown_key_is_refused_in_every_position(key in "[a-z]{1,8}_zz", table in 0usize..6) {
        let tables = ["", "[retry]\n", "[bash]\n", "[stop]\n", "[providers.p]\n", "[models.m.price]\n"];
        let text = format!("{}{key} = 1\n", tables[table]);
        let problems = SettingsLayer::from_toml(Path::new("f"), &text).problems;
        prop_assert_eq!(problems.len(), 1);
        let line = if table == 0 { 1 } else { 2 };
        let start = format!("f:{line}:1: unknown key");
        prop_assert!(problems[0].to_string().starts_with(&start));
    }
}

#[test]
fn sections_take_any_value_and_locate_each_part() {
    let loaded = Case {
        user: "[sections.stop]\nconditions = [\n  {type = \"loop_detection\", window = 3},\n]\n[sections.\"a/b\"]\nx = -1.5\nwhen = 2026-01-02\n",
        ..Case::default()
    }
    .ok();
    let sections = &loaded.settings.sections;
    assert_eq!(
        sections["stop"],
        serde_json::json!({"conditions": [{"type": "loop_detection", "window": 3}]})
    );
    assert_eq!(sections["a/b"], serde_json::json!({"x": -1.5, "when": "2026-01-02"}));
    let place = |name: &str, pointer: &str| match loaded.provenance.origin_in("sections", name, pointer) {
        Some(Origin::File { line, column, .. }) => Some((line, column)),
        _ => None,
    };
    assert_eq!(place("stop", ""), Some((1, 11)));
    assert_eq!(place("stop", "/conditions"), Some((2, 1)));
    assert_eq!(place("stop", "/conditions/0/window"), Some((3, 29)));
    assert_eq!(place("stop", "/conditions/0/window/deeper"), Some((3, 29)), "the nearest part above");
    assert_eq!(place("stop", "/other"), Some((1, 11)), "the section itself");
    assert_eq!(place("a/b", "/x"), Some((6, 1)));
    assert_eq!(place("nothing", ""), None);
    let shown: Vec<String> =
        loaded.provenance.rows().iter().map(|row| format!("{} = {}", row.key, row.value)).collect();
    assert!(
        shown
            .contains(&"sections.stop = {conditions = [{type = \"loop_detection\", window = 3}]}".to_owned()),
        "{shown:?}"
    );
}

#[test]
fn a_flag_replaces_a_section_of_the_file() {
    let loaded = Case {
        user: "[sections.a]\nx = 1\ny = 2\n",
        config: &["sections.a={x = 3}", "sections.b=words"],
        ..Case::default()
    }
    .ok();
    assert_eq!(loaded.settings.sections["a"], serde_json::json!({"x": 3}));
    assert_eq!(loaded.settings.sections["b"], serde_json::json!("words"));
    let refused = Case { config: &["sections.a.x=1", "sections=1"], ..Case::default() }.problems();
    assert_eq!(
        refused,
        [
            "--config sections.a.x=1: `sections.a.x` is not one of [sections]; write sections.NAME = VALUE",
            "--config sections=1: `sections` is not one of [sections]; write sections.NAME = VALUE",
        ]
    );
}

#[test]
fn a_protocol_for_images_that_aye_no_longer_speaks_is_a_warning() {
    for (user, are_drawn, warning) in [
        ("[tui]\nimages = \"iterm2\"\n", true, "`tui.images = \"iterm2\"` means \"auto\": "),
        ("[tui]\nimages = \"sixel\"\n", true, "`tui.images = \"sixel\"` means \"auto\": "),
        ("[tui]\nimages = \"blocks\"\n", true, ""),
        ("[tui]\nimages = \"off\"\n", false, ""),
    ] {
        let case = Case { user, ..Case::default() };
        assert_eq!(case.ok().settings.tui.images != Images::Off, are_drawn, "{user}");
        let warnings = case.warnings().join("\n");
        assert!(warnings.contains(warning) && warnings.is_empty() == warning.is_empty(), "{warnings}");
    }
}

#[test]
fn a_project_sets_sections_once_trusted() {
    let case = Case { project: "[sections.stop]\nconditions = []\n", ..Case::default() };
    assert!(case.ok().settings.sections.is_empty());
    assert_eq!(
        case.warnings(),
        ["project.toml:1:11: `sections.stop` is ignored until you trust this folder"]
    );
    assert!(Case { is_trusted: true, ..case }.ok().settings.sections.contains_key("stop"));
}

#[test]
fn sections_accept_only_json_values() {
    let problems = Case { user: "[sections]\na = {x = nan}\n[[sections.b]]\n", ..Case::default() }.problems();
    assert_eq!(problems, ["user.toml:2:5: `sections.a` must be a TOML value, not the number nan"]);
    assert_eq!(
        Case { user: "sections = 1\n", ..Case::default() }.problems(),
        ["user.toml:1:12: `sections` must be a table, written [sections], not the number 1"]
    );
}
