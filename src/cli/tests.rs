//! Accepted and refused command lines.

use std::path::Path;
use std::time::Duration;

use super::global::split_patterns;
use super::time::span;
use super::*;

fn parse(args: &[&str]) -> Result<Cli, clap::Error> {
    Cli::parse_args(std::iter::once("aye").chain(args.iter().copied()))
}

fn ok(args: &[&str]) -> Cli {
    parse(args).unwrap_or_else(|error| panic!("{args:?}: {error}"))
}

#[test]
fn the_command_tree_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn a_prompt_is_positional_or_follows_print() {
    assert_eq!(ok(&["hello there"]).prompt.as_deref(), Some("hello there"));
    for args in [
        &["-p", "hello"][..],
        &["--print=hello"],
        &["-p", "--output-format", "json", "hello"],
        &["hello", "-p"],
        &["-c", "-p", "hello"],
        &["-r", "abc", "-p", "hello"],
        &["--permission-mode", "yolo", "--model", "mock", "-p", "hello"],
    ] {
        let cli = ok(args);
        assert!(cli.is_print(), "{args:?}");
        assert_eq!(cli.prompt.as_deref(), Some("hello"), "{args:?}");
    }
    assert!(ok(&["-p"]).is_print() && ok(&["-p"]).prompt.is_none());
    assert!(!ok(&[]).is_print());
    assert_eq!(parse(&["-p", "a", "b"]).expect_err("two prompts").exit_code(), 2);
}

#[test]
fn thread_flags_select_the_thread() {
    assert_eq!(ok(&[]).thread(), ThreadChoice::New);
    assert_eq!(ok(&["-c"]).thread(), ThreadChoice::Last);
    assert_eq!(ok(&["--continue", "go on"]).thread(), ThreadChoice::Last);
    assert_eq!(ok(&["-r"]).thread(), ThreadChoice::Pick);
    assert_eq!(ok(&["-r", "0198", "-p"]).thread(), ThreadChoice::Id("0198".into()));
    assert!(parse(&["-c", "-r", "x"]).is_err());
    assert!(parse(&["-p", "-r"]).is_err());
}

/// Row HL005: a leading `-` inside a value stays part of the value.
#[test]
fn no_flag_is_read_from_inside_a_value() {
    let cli = ok(&["--print=--config=model=evil"]);
    assert_eq!(cli.prompt.as_deref(), Some("--config=model=evil"));
    assert!(cli.global.config.is_empty());
    assert_eq!(ok(&["-p", "--", "--trust"]).prompt.as_deref(), Some("--trust"));
    assert_eq!(ok(&["--", "--permission-mode=yolo"]).prompt.as_deref(), Some("--permission-mode=yolo"));
    assert_eq!(ok(&["--model=--trust"]).global.model.as_deref(), Some("--trust"));
    assert!(!ok(&["--model=--trust"]).global.trust);
    assert!(!ok(&["--config", "--trust"]).global.trust);
    assert!(parse(&["--model", "--trust"]).is_err(), "a missing value is an error, not the next flag");
    assert_eq!(parse(&["--prompt=--settings=/tmp/evil"]).expect_err("unknown").exit_code(), 2);
    let cli = ok(&["approvals", "deny", "id", "--reason", "--trust me"]);
    assert!(!cli.global.trust);
    let Some(CliCommand::Approvals(ApprovalsCommand::Deny(DenyArgs { reason, .. }))) = cli.command else {
        panic!("deny")
    };
    assert_eq!(reason.as_deref(), Some("--trust me"));
    let Some(CliCommand::Answer(AnswerArgs { answer, .. })) = ok(&["answer", "id", "-1"]).command else {
        panic!("answer")
    };
    assert_eq!(answer.as_deref(), Some("-1"));
}

#[test]
fn patterns_and_settings_are_collected() {
    let cli = ok(&[
        "-p",
        "x",
        "--allowed-tools",
        "Bash(git *)",
        "--allowed-tools",
        "Read",
        "--disallowed-tools",
        "WebFetch",
        "--allowed-tools",
        "Edit",
        "--max-turns",
        "3",
        "--trust",
    ]);
    assert_eq!(cli.global.allowed_tools, ["Bash(git *)", "Read", "Edit"]);
    assert_eq!(cli.global.disallowed_tools, ["WebFetch"]);
    assert_eq!(cli.global.max_turns, Some(3));
    assert!(cli.global.trust);
    let cli = ok(&["config", "show", "--json", "--config", "theme=dark", "--model", "m", "-C", "/tmp"]);
    assert_eq!(cli.global.config, ["theme=dark"]);
    assert_eq!(cli.global.cd.as_deref(), Some(std::path::Path::new("/tmp")));
    assert!(matches!(cli.command, Some(CliCommand::Config(ConfigCommand::Show(JsonFlag { json: true })))));
    assert!(matches!(ok(&["--model", "m", "models"]).command, Some(CliCommand::Models(_))));
}

#[test]
fn a_tool_list_does_not_swallow_the_prompt() {
    for flag in ["--allowed-tools", "--disallowed-tools"] {
        let cli = ok(&[flag, "Bash(git *), Read", flag, "Edit", "-p", "review this"]);
        assert_eq!(cli.prompt.as_deref(), Some("review this"));
        let cli = ok(&["-p", flag, "Bash(git *)", "review this"]);
        assert_eq!(cli.prompt.as_deref(), Some("review this"));
        let cli = ok(&[flag, "Read", "hello"]);
        assert_eq!(cli.prompt.as_deref(), Some("hello"));
    }
}

#[test]
fn a_value_may_contain_several_patterns() {
    for (value, expected) in [
        ("Read,Bash(git add *), Edit", &["Read", "Bash(git add *)", "Edit"][..]),
        ("Read Bash(echo, x)  Edit ", &["Read", "Bash(echo, x)", "Edit"]),
        ("Bash (git *)", &["Bash(git *)"]),
        ("/Read|List, x/", &["/Read|List, x/"]),
        ("Bash(a (b) *)", &["Bash(a (b) *)"]),
        ("", &[]),
    ] {
        assert_eq!(split_patterns(&[value.to_owned()]), expected, "{value}");
    }
    assert_eq!(ok(&["-p", "x", "--allowed-tools", "A,B C"]).global.allowed_patterns(), ["A", "B", "C"]);
}

#[test]
fn every_command_exists() {
    for args in [
        "threads list --json",
        "threads show a",
        "threads delete a b",
        "threads export a --format json",
        "threads export a --format html",
        "threads rename a b",
        "threads pin a --off",
        "threads fork a --messages 2",
        "threads search words --json",
        "approvals list --json",
        "approvals show a --json",
        "approvals list --thread a --tool Bash --older-than 2h",
        "approvals approve a b",
        "approvals approve a --edit -m b",
        "approvals approve a --grant 2 --scope project --for 5uses",
        "approvals approve a --args {}",
        "approvals approve --all-reads --thread t",
        "approvals deny a b",
        "approvals deny a --comment b",
        "approvals deny --rest",
        "approvals modify a --feedback b",
        "approvals answer a {}",
        "grants list --all --json",
        "grants show a --json",
        "grants revoke a b",
        "inbox",
        "inbox --watch",
        "approve a b --resume --output-format stream-json",
        "deny a --reason no --resume",
        "answer a",
        "skills list",
        "skills check",
        "skills check dir --json",
        "permissions check",
        "permissions check --rules f",
        "permissions check --each-rule",
        "permissions simulate --rules f --since 2h --json",
        "permissions suggest --since 2026-11-21",
        "reminders check",
        "reminders check f --json",
        "audit",
        "audit --since 2h --thread a --tool Bash --rules --json",
        "audit --rows",
        "audit --verify --json",
        "models",
        "models --json",
        "config show",
        "doctor --json",
        "completion bash",
        "man",
    ] {
        let args: Vec<_> = args.split(' ').collect();
        assert!(ok(&args).command.is_some(), "{args:?}");
    }
    assert!(ok(&["threads of execution"]).command.is_none(), "a sentence is a prompt");
}

#[test]
fn usage_errors_exit_with_status_two() {
    for args in [
        &["--nope"][..],
        &["--permission-mode", "always", "x"],
        &["--max-turns", "many"],
        &["threads"],
        &["completion", "tcsh"],
        &["--output-format", "xml", "-p"],
        &["--output-format", "json", "x"],
        &["--on-ask", "deny", "x"],
        &["-p", "x", "threads", "list"],
        &["--on-unknown", "hope"],
        &["permissions", "simulate"],
        &["audit", "--verify", "--since", "2h"],
        &["-c", "models"],
        &["approve"],
        &["approve", "a", "--output-format", "json"],
        &["inbox", "--older-than", "soon"],
        &["inbox", "--older-than", ""],
        &["inbox", "--older-than", "9999999999999999999w"],
        &["approvals", "approve"],
        &["approvals", "approve", "a", "--all-reads"],
        &["approvals", "approve", "a", "--edit", "--args", "{}"],
        &["approvals", "approve", "a", "--thread", "t"],
        &["approvals", "deny"],
        &["approvals", "modify", "a"],
    ] {
        assert_eq!(parse(args).expect_err("refused").exit_code(), 2, "{args:?}");
    }
    assert_eq!(parse(&["--help"]).expect_err("help").exit_code(), 0);
}

/// One screen of a small terminal, with every command; `aye help all` has every flag.
#[test]
fn the_first_help_fits_a_screen_and_names_every_command() {
    let error = parse(&["--help"]).expect_err("help");
    let help = error.to_string();
    assert!(help.lines().count() <= 40 && help.lines().all(|line| line.len() <= 80), "{help}");
    let words: Vec<&str> = help.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').collect();
    let aye = Cli::command();
    for command in aye.get_subcommands().filter(|command| !command.is_hide_set()) {
        assert!(words.contains(&command.get_name()), "{}", command.get_name());
    }
    let flags: Vec<String> =
        aye.get_arguments().filter_map(|arg| arg.get_long().map(|flag| format!("--{flag}"))).collect();
    for flag in words.iter().filter(|word| word.starts_with("--")) {
        assert!(*flag == "--help" || flags.iter().any(|known| known == flag), "{flag}");
    }
    let whole = whole_help(&["aye", "help", "all"].map(OsString::from)).expect("all flags");
    for flag in flags {
        let is_hidden = aye.get_arguments().any(|arg| arg.is_hide_set() && arg.get_long() == flag.get(2..));
        assert!(is_hidden || whole.contains(&flag), "{flag}");
    }
    assert!(whole_help(&["aye", "help", "inbox"].map(OsString::from)).is_none());
}

#[test]
fn a_misspelt_command_is_no_message() {
    for (word, near) in
        [("inbx", "inbox"), ("thread", "threads"), ("doctr", "doctor"), ("permisions", "permissions")]
    {
        let error = parse(&[word]).expect_err("refused");
        assert_eq!(error.exit_code(), 2, "{word}");
        assert!(error.to_string().contains(&format!("did you mean `aye {near}`?")), "{error}");
        assert_eq!(ok(&["--", word]).prompt.as_deref(), Some(word));
        assert_eq!(ok(&["-p", word]).prompt.as_deref(), Some(word));
    }
    for word in ["hello", "continue", "yes", "refactor", "ship it", "Inbox?", "fix"] {
        assert_eq!(ok(&[word]).prompt.as_deref(), Some(word));
    }
}

/// Names that people know from other agents.
#[test]
fn flags_of_other_agents_mean_what_they_mean_there() {
    let cli = ok(&["-m", "x", "--allowedTools", "Read", "--disallowedTools", "Edit", "--cwd", "/tmp"]);
    assert_eq!(cli.global.model.as_deref(), Some("x"));
    assert_eq!(cli.global.allowed_tools, ["Read"]);
    assert_eq!(cli.global.disallowed_tools, ["Edit"]);
    assert_eq!(cli.global.cd.as_deref(), Some(Path::new("/tmp")));
    for flag in ["--yolo", "--dangerously-skip-permissions", "--dangerously-bypass-approvals-and-sandbox"] {
        assert_eq!(ok(&[flag]).global.permission_mode(), Some(crate::config::PermissionMode::Yolo), "{flag}");
    }
    assert!(parse(&["--yolo", "--permission-mode", "plan"]).is_err());
    let id = "0198c0de-0000-7000-8000-000000000001";
    assert_eq!(ok(&["-p", "x", "--session-id", id]).session_id.map(|id| id.to_string()).as_deref(), Some(id));
    assert!(parse(&["--session-id", "seven"]).is_err());
    assert!(parse(&["-c", "--session-id", id]).is_err());
    assert!(ok(&["-c", "--fork-session"]).fork_session);
    assert!(parse(&["--fork-session"]).is_err() && parse(&["-r", "--fork-session"]).is_err());
    assert!(parse(&["-o", "answer.txt"]).is_err(), "only with -p");
    assert_eq!(ok(&["-p", "x", "-o", "a"]).output_last_message.as_deref(), Some(Path::new("a")));
    for name in ["../x", "", ".x", "a/b"] {
        assert!(parse(&["--profile", name]).is_err(), "{name}");
    }
}

#[test]
fn files_of_settings_come_before_flags() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("profiles")).unwrap();
    std::fs::write(
        dir.path().join("profiles/deep.toml"),
        "effort = \"high\"\nmodel = \"p\"\ntheme = \"dark\"\n",
    )
    .unwrap();
    std::fs::write(dir.path().join("s.toml"), "model = \"s\"\n[sandbox]\nwritable = [\"/b\"]\n").unwrap();
    let load = |args: &[&str]| {
        let flags = ok(args).flags(dir.path(), dir.path());
        let env = crate::config::Env::new(std::collections::BTreeMap::new(), None, dir.path().to_owned());
        let user = dir.path().join("config.toml");
        crate::config::load(&crate::config::Sources {
            user: &user,
            project: &[],
            is_trusted: false,
            env: &env,
            flags: &flags,
            policy: None,
        })
    };
    let both = ["--profile", "deep", "--settings", "s.toml", "--config", "theme=light", "--add-dir", "out"];
    let settings = load(&both).unwrap().settings;
    assert_eq!(settings.model.as_deref(), Some("s"));
    assert_eq!(settings.effort.map(|effort| effort.to_string()).as_deref(), Some("high"));
    assert_eq!(settings.theme, "light");
    let out = dir.path().join("out").to_string_lossy().into_owned();
    assert_eq!(settings.sandbox.writable, ["/b", out.as_str()]);
    let settings = load(&[&both[..], &["-m", "flag"]].concat()).unwrap().settings;
    assert_eq!(settings.model.as_deref(), Some("flag"));
    let missing = load(&["--profile", "none"]).unwrap_err().to_string();
    assert!(
        missing.starts_with("--profile: cannot read ") && missing.contains("profiles/none.toml"),
        "{missing}"
    );
}

#[test]
fn durations_are_parsed() {
    for (text, seconds) in [("90s", 90), ("30m", 1800), ("2h", 7200), ("1d", 86_400), ("1h 30min", 5400)] {
        assert_eq!(span(text), Ok(Duration::from_secs(seconds)), "{text}");
    }
    for text in ["", " ", "2", "h", "-2h", "2h3", "1.5h", "２h"] {
        assert!(span(text).is_err(), "{text}");
    }
}

#[test]
fn version_needs_no_parser() {
    let args = |list: &[&str]| list.iter().map(OsString::from).collect::<Vec<_>>();
    let version = version_only(&args(&["aye", "--version"])).expect("a version");
    assert!(version.starts_with("aye ") && version.ends_with(env!("CARGO_PKG_VERSION")));
    assert!(version_only(&args(&["aye", "--version", "x"])).is_none());
    assert!(version_only(&args(&["aye"])).is_none());
}

#[test]
fn completions_are_written() {
    use clap_complete::Shell;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        assert!(String::from_utf8_lossy(&completion(shell)).contains("approvals"), "{shell}");
    }
}

fn help_of(args: &[&str]) -> String {
    let args = std::iter::once("aye").chain(args.iter().copied()).chain(["--help"]);
    Cli::parse_args(args).expect_err("help").to_string()
}

#[test]
fn settings_are_shown_where_they_apply() {
    let text = help_of(&["threads", "list"]);
    assert!(text.contains("--cd <DIR>") && !text.contains("--model") && !text.contains("--yolo"), "{text}");
    assert!(text.find("--limit") < text.find("--cd"), "own flags first: {text}");
    for args in [&["approve"][..], &["serve"], &["work"], &["config", "show"]] {
        assert!(help_of(args).contains("--model <NAME>"), "{args:?}");
    }
    assert!(help_of(&["permissions", "check"]).contains("--allowed-tools"));
    assert!(!help_of(&["serve"]).contains("--screen-reader"));
    // A hidden flag works all the same.
    let cli = Cli::parse_args(["aye", "threads", "list", "--model", "m"]).expect("accepted");
    assert_eq!(cli.global.model.as_deref(), Some("m"));
}

#[test]
fn every_command_has_an_example_that_can_be_typed() {
    fn each(command: &clap::Command, path: &str, missing: &mut Vec<String>) {
        for one in command.get_subcommands().filter(|one| one.get_name() != "help" && !one.is_hide_set()) {
            let path = format!("{path} {}", one.get_name());
            let is_group = one.is_subcommand_required_set() || one.is_arg_required_else_help_set();
            let help = one.get_after_help().map(ToString::to_string).unwrap_or_default();
            if !is_group && !help.contains("Example") {
                missing.push(path.clone());
            }
            each(one, &path, missing);
        }
    }
    let mut missing = Vec::new();
    each(&command_with_help(), "aye", &mut missing);
    assert!(missing.is_empty(), "{missing:?}");
    for (path, example) in help::EXAMPLES {
        assert!(example.starts_with(&format!("aye {path}")), "{path}: {example}");
        let line = example.split(" > ").next().unwrap_or_default();
        let words = shlex::split(line).expect("quoted");
        Cli::parse_args(words).unwrap_or_else(|error| panic!("{example}: {error}"));
    }
}
