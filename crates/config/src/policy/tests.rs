use super::*;
use crate::{Env, Flags, Loaded, Sources, load};
use std::os::unix::fs::PermissionsExt as _;

fn policy(text: &str) -> MachinePolicy {
    MachinePolicy::parse(Path::new("/etc/aye/policy.toml"), text).expect("a policy")
}

fn problems(text: &str) -> String {
    MachinePolicy::parse(Path::new("/p.toml"), text).expect_err("it is refused").to_string()
}

/// Settings of a user and of flags below a policy.
fn narrowed(policy: &MachinePolicy, user: &str, flags: &[&str]) -> Loaded {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("config.toml");
    fs::write(&file, user).expect("written");
    let env = Env::of(&[], dir.path(), dir.path());
    let mut given = Flags::default();
    for flag in flags {
        given.config(flag);
    }
    let sources = Sources {
        user: &file,
        project: &[],
        is_trusted: true,
        env: &env,
        flags: &given,
        policy: Some(policy),
    };
    load(&sources).expect("settings load")
}

fn warnings(loaded: &Loaded) -> Vec<String> {
    loaded.warnings.iter().map(|warning| warning.message.clone()).collect()
}

#[test]
fn a_limit_is_the_most_whoever_sets_it() {
    let policy = policy(
        "[settings]\npermission_mode = \"auto\"\nmax_turns = 20\n[settings.threads]\nkeep = \"90d\"\n",
    );
    let loaded = narrowed(&policy, "permission_mode = \"plan\"\nmax_turns = 5\nthreads.keep = \"1d\"\n", &[]);
    assert_eq!(loaded.settings.permission_mode, PermissionMode::Plan);
    assert_eq!(loaded.settings.max_turns, Some(5));
    assert_eq!(loaded.settings.threads.keep.to_string(), "1d");
    assert_eq!(warnings(&loaded), [""; 0], "what is stricter counts");

    let loaded = narrowed(&policy, "", &["permission_mode=yolo", "max_turns=0"]);
    assert_eq!(loaded.settings.permission_mode, PermissionMode::Auto);
    assert_eq!(loaded.settings.max_turns, Some(20), "0 means no limit");
    assert_eq!(loaded.settings.threads.keep.to_string(), "90d", "by itself aye keeps conversations for ever");
    assert_eq!(
        warnings(&loaded),
        [
            "`max_turns` is ignored: the policy of this machine (/etc/aye/policy.toml:3:1) allows at most 20",
            "`permission_mode` is ignored: the policy of this machine (/etc/aye/policy.toml:2:1) allows at most \"auto\"",
        ]
    );
    assert_eq!(
        (policy.max_turns(), self::policy("[settings]\nmax_turns = 0\n").max_turns()),
        (Some(20), None)
    );
    let origin = loaded.provenance.origin("max_turns").map(ToString::to_string);
    assert_eq!(origin.as_deref(), Some("/etc/aye/policy.toml:3:1"));
    assert_eq!(
        narrowed(&policy, "", &[]).settings.permission_mode,
        PermissionMode::Ask,
        "a limit is no choice"
    );
}

#[test]
fn other_settings_are_fixed() {
    let policy = policy(
        "[settings.sandbox]\nenabled = true\n[settings.providers.anthropic]\nbase_url = \"https://proxy.example/\"\n",
    );
    let user =
        "[sandbox]\nenabled = false\n[providers.anthropic]\nbase_url = \"https://elsewhere.example\"\n";
    let loaded = narrowed(&policy, user, &[]);
    assert!(loaded.settings.sandbox.enabled);
    let url = loaded.settings.providers["anthropic"].base_url.clone();
    assert_eq!(url.as_deref(), Some("https://proxy.example/"));
    assert_eq!(loaded.warnings.len(), 2, "{:?}", loaded.warnings);
    assert!(warnings(&loaded)[1].ends_with("sets it to true"), "{:?}", loaded.warnings);
    assert_eq!(
        narrowed(&policy, "[sandbox]\nenabled = true\n", &[]).warnings,
        [],
        "the same is no contradiction"
    );
}

#[test]
fn lists_of_what_is_open_are_cut_to_those_of_the_policy() {
    let policy = policy(
        "[settings.sandbox]\ndomains = [\"*.example.org\", \"docs.rs\"]\nwritable = [\"/srv/cache\"]\nenv = [\"APP_*\"]\n",
    );
    let user = "[sandbox]\ndomains = [\"docs.rs\", \"a.b.example.org\", \"*.example.org\", \"example.org\", \"*.docs.rs\"]\n\
                writable = [\"/srv/cache/x\", \"/srv/cache/../etc\", \"/srv/cachelike\"]\nenv = [\"APP_KEY\", \"HOME\"]\n";
    let loaded = narrowed(&policy, user, &[]);
    let sandbox = &loaded.settings.sandbox;
    let domains: Vec<String> = sandbox.domains.iter().map(ToString::to_string).collect();
    assert_eq!(domains, ["docs.rs", "a.b.example.org", "*.example.org"]);
    assert_eq!(sandbox.writable, ["/srv/cache/x"]);
    assert_eq!(sandbox.env, ["APP_KEY"]);
    assert!(warnings(&loaded)[0].contains("example.org, *.docs.rs is ignored"), "{:?}", loaded.warnings);
    assert_eq!(loaded.warnings.len(), 3);
    assert_eq!(
        narrowed(&policy, "", &[]).settings.sandbox.writable,
        ["/srv/cache"],
        "unset means the policy's"
    );
    assert_eq!(narrowed(&policy, "[sandbox]\nwritable = []\n", &[]).settings.sandbox.writable, [""; 0]);
}

#[test]
fn models_are_those_that_a_pattern_covers() {
    let policy = policy("models = [\"anthropic/*\", \"ollama/qwen*-coder\"]\n");
    for (name, is_allowed) in [
        ("anthropic/claude-sonnet-5", true),
        ("anthropic@work/claude-sonnet-5", true),
        ("demo", true),
        ("ollama/qwen3-coder", true),
        ("ollama/qwen3", false),
        ("openai/gpt-5.2", false),
        ("anthropicx/claude", false),
    ] {
        assert_eq!(policy.refuses_model(name).is_none(), is_allowed, "{name}");
    }
    let why = policy.refuses_model("openai/gpt-5.2").expect("refused");
    assert_eq!(
        why,
        "the policy of this machine allows only anthropic/*, ollama/qwen*-coder (/etc/aye/policy.toml)"
    );

    let env = Env::of(&[("OPENAI_API_KEY", "k")], "/", "/");
    let choose = |flags: &[&str]| {
        let loaded = narrowed(&policy, "", flags);
        crate::select_model(&loaded.settings, &loaded.provenance, &env, &[])
    };
    for flags in [&[][..], &["model=openai/gpt-5.2"]] {
        let error = choose(flags).expect_err("refused").to_string();
        assert!(error.contains("cannot be used: the policy of this machine allows only"), "{error}");
    }
    assert_eq!(choose(&["model=demo"]).expect("a model").full_name(), "demo");
    let loaded = narrowed(&policy, "", &[]);
    let rows = crate::list_models(&loaded.settings, &env, &[], None, Some(&policy));
    assert!(rows.iter().all(|row| !row.usable || row.name == "demo"), "{rows:?}");
}

#[test]
fn mistakes_have_their_place_and_refuse_the_start() {
    assert_eq!(
        problems("model = \"x\""),
        "/p.toml:1:1: unknown key; a policy has `models`, [settings] and [[rules]]"
    );
    assert!(problems("[settings]\nmax_turn = 1").contains("/p.toml:2:1: unknown key `max_turn`"));
    assert!(problems("[settings]\nmax_turns = \"x\"").contains("/p.toml:2:13: `max_turns` must be"));
    assert!(
        problems("\nmodels = [\"x\"]").starts_with("/p.toml:2:1: `models` must be a list of PROVIDER/MODEL")
    );
    assert!(problems("rules = 1").contains("`rules` must be tables"));
    assert!(problems("settings = 1").contains("`settings` must be a table"));
    assert!(problems("x = ").starts_with("/p.toml:1:"));
}

#[test]
fn rules_keep_their_lines() {
    let policy = policy(
        "# rules\n[[rules]]\ntool = \"Bash(curl *)\"\nbehavior = \"deny\"\n\n[[rules]]\ntool = \"WebFetch\"\nbehavior = \"ask\"\n",
    );
    let rules: Vec<(String, u64)> =
        policy.rules().map(|(rule, line)| (rule["tool"].to_string(), line)).collect();
    assert_eq!(rules, [("\"Bash(curl *)\"".to_owned(), 2), ("\"WebFetch\"".to_owned(), 6)]);
    assert_eq!(policy.summary(), "/etc/aye/policy.toml: 2 rules");
}

#[test]
fn a_policy_belongs_to_its_owner_alone() {
    // The folders above a temporary one belong to root or to whoever runs the test, so only the ends are looked at.
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("policy.toml");
    let owner = dir.path().metadata().expect("a folder").uid();
    assert!(matches!(MachinePolicy::read(&dir.path().join("none"), owner), Ok(None)));
    fs::write(&file, "models = []\n").expect("written");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o664)).expect("opened");
    let error = MachinePolicy::read(&file, owner).expect_err("others can write it").to_string();
    assert!(error.contains("must belong to root and be writable only by root"), "{error}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("closed");
    let error = MachinePolicy::read(&file, owner + 1).expect_err("somebody else's").to_string();
    assert!(error.contains(&format!("owner {owner}")), "{error}");
    let link = dir.path().join("link.toml");
    std::os::unix::fs::symlink(dir.path().join("nothing"), &link).expect("a link");
    assert!(MachinePolicy::read(&link, owner).is_err(), "a link to nothing is no missing policy");
}
