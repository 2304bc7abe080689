use super::*;
use crate::endpoints::{normalise_base_url, probe_candidates};
use crate::settings::{ModelSettings, ProviderSettings};
use proptest::prelude::*;

fn settings(model: Option<&str>) -> Settings {
    Settings { model: model.map(str::to_owned), ..Settings::default() }
}

fn select(
    settings: &Settings,
    vars: &[(&str, &str)],
    hits: &[ProbeHit],
) -> Result<ModelSelection, SelectError> {
    select_model(settings, &Provenance::default(), &Env::of(vars, "/h", "/w"), hits)
}

/// The choice as `provider/model`, or the error.
fn chosen(model: Option<&str>, vars: &[(&str, &str)]) -> String {
    match select(&settings(model), vars, &[]) {
        Ok(selection) => selection.full_name(),
        Err(error) => error.to_string(),
    }
}

fn ollama(models: &[&str]) -> ProbeHit {
    let candidate = probe_candidates(&Env::default()).remove(0);
    ProbeHit { candidate, models: offered(models) }
}

fn offered(models: &[&str]) -> Vec<OfferedModel> {
    models.iter().map(|id| OfferedModel { id: (*id).to_owned(), ..OfferedModel::default() }).collect()
}

/// The server at the provider's URL, listing these models.
fn listed(provider: &str, vars: &[(&str, &str)], models: &[&str]) -> ProbeHit {
    let env = Env::of(vars, "/h", "/w");
    ProbeHit { candidate: resolve(&Settings::default(), &env, provider).candidate(), models: offered(models) }
}

#[test]
fn by_default_keys_win_over_a_local_server_and_the_demo() {
    assert_eq!(chosen(None, &[]), "demo");
    let all = [
        "ANTHROPIC_API_KEY",
        "OPENAI_API_KEY",
        "GEMINI_API_KEY",
        "DEEPSEEK_API_KEY",
        "XAI_API_KEY",
        "GROQ_API_KEY",
    ];
    let providers = ["anthropic", "openai", "gemini", "deepseek", "xai", "groq"];
    for (first, provider) in providers.iter().enumerate() {
        let vars: Vec<_> = all[first..].iter().map(|name| (*name, "k")).collect();
        assert!(chosen(None, &vars).starts_with(&format!("{provider}/")), "{}", chosen(None, &vars));
    }
    assert_eq!(chosen(None, &[("OPENAI_API_KEY", "  ")]), "demo", "an empty key does not count");
    let hits = [ollama(&["qwen3:latest", "llama3"])];
    let local = select(&settings(None), &[], &hits).expect("local");
    assert_eq!((local.full_name().as_str(), local.adapter), ("ollama/qwen3:latest", Adapter::Ollama));
    assert!(local.why.contains("runs on this machine"));
    let keyed = select(&settings(None), &[("OPENAI_API_KEY", "k")], &hits).expect("keyed");
    assert_eq!(keyed.provider, "openai");
    assert_eq!(keyed.why, "OPENAI_API_KEY is set");
    let empty = select(&settings(None), &[], &[ollama(&[])]).expect("demo");
    assert!(empty.is_demo() && empty.why.contains("no key is set"));
}

#[test]
fn a_requested_model_goes_to_its_provider_or_the_configured_one() {
    for (model, vars, expected) in [
        ("openai/gpt-x", &[("OPENAI_API_KEY", "k")][..], "openai/gpt-x"),
        ("mock", &[("OPENAI_API_KEY", "k"), ("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")], "openai/mock"),
        ("mock", &[("ANTHROPIC_API_KEY", "k"), ("OPENAI_API_KEY", "k")], "anthropic/mock"),
        ("mock", &[("ANTHROPIC_API_KEY", "k"), ("OPENAI_BASE_URL", "http://127.0.0.1:9")], "openai/mock"),
        ("gpt-5-mini", &[("ANTHROPIC_API_KEY", "k"), ("OPENAI_API_KEY", "k")], "openai/gpt-5-mini"),
        (
            "claude-opus-4-5",
            &[("OPENAI_API_KEY", "k"), ("ANTHROPIC_API_KEY", "k")],
            "anthropic/claude-opus-4-5",
        ),
        ("claude-opus-4-5", &[("OPENAI_BASE_URL", "http://127.0.0.1:9")], "openai/claude-opus-4-5"),
        ("claude-x", &[("OPENROUTER_API_KEY", "k")], "openrouter/claude-x"),
        ("openrouter/anthropic/claude-x", &[("OPENROUTER_API_KEY", "k")], "openrouter/anthropic/claude-x"),
        ("org/model", &[("OPENAI_BASE_URL", "http://127.0.0.1:9")], "openai/org/model"),
        ("ollama/qwen3", &[], "ollama/qwen3"),
        ("gemini/", &[("GOOGLE_API_KEY", "k")], "gemini/gemini-3.8-flash"),
        ("demo", &[("OPENAI_API_KEY", "k")], "demo"),
    ] {
        assert_eq!(chosen(Some(model), vars), expected, "{model} {vars:?}");
    }
}

#[test]
fn a_model_without_provider_is_an_error_with_a_remedy() {
    for (model, vars, expected) in [
        (
            "openai/gpt-x",
            &[][..],
            "model `openai/gpt-x` (default) needs a key: set OPENAI_API_KEY or run `aye login openai`",
        ),
        (
            "claude-x",
            &[("OPENAI_API_KEY", "k")],
            "model `claude-x` (default) needs a key: set ANTHROPIC_API_KEY or run `aye login anthropic`",
        ),
        ("ollama/", &[], "no model given; write ollama/NAME, or set `model` in your config.toml"),
    ] {
        assert_eq!(chosen(Some(model), vars), expected);
    }
    let refusal = chosen(Some("mo\u{1b}[2Jck"), &[]);
    assert!(
        refusal.starts_with("no provider for model `mo^[[2Jck`") && refusal.contains("OPENAI_BASE_URL"),
        "{refusal}"
    );
    let mut own = settings(Some("mine"));
    own.models.insert(
        "mine".into(),
        ModelSettings { provider: Some("nowhere".into()), ..ModelSettings::default() },
    );
    let refusal = select(&own, &[], &[]).expect_err("unknown provider").to_string();
    assert!(refusal.contains("names the unknown provider `nowhere`"), "{refusal}");
    own.providers.insert("nowhere".into(), ProviderSettings::default());
    let refusal = select(&own, &[], &[]).expect_err("no address").to_string();
    assert!(refusal.contains("set providers.nowhere.base_url"), "{refusal}");
}

#[test]
fn settings_define_providers_and_models() {
    let mut own = settings(Some("fast"));
    let provider = ProviderSettings {
        adapter: Some(Adapter::OpenAiResponses),
        base_url: Some("https://gateway.example/api".into()),
        api_key_env: Some("GATEWAY_KEY".into()),
    };
    own.providers.insert("gateway".into(), provider);
    let price = Price { input: 1.0, output: 2.0, ..Price::default() };
    let model = ModelSettings {
        provider: Some("gateway".into()),
        model: Some("gpt-4o".into()),
        context_window: Some(9000),
        max_output: None,
        price: Some(price),
    };
    own.models.insert("fast".into(), model);
    let selection = select(&own, &[("GATEWAY_KEY", "k")], &[]).expect("set up");
    assert_eq!(selection.base_url, "https://gateway.example/api/");
    assert_eq!(selection.api_key_env.as_deref(), Some("GATEWAY_KEY"));
    assert_eq!(
        (selection.model.as_str(), selection.context_window, selection.max_output),
        ("gpt-4o", 9000, 16_384)
    );
    assert_eq!(selection.price, Some(price));
    let refusal = select(&own, &[], &[]).expect_err("no key").to_string();
    assert!(refusal.ends_with("needs a key: set GATEWAY_KEY"), "{refusal}");
    own.model = Some("gateway/other".into());
    let selection = select(&own, &[("GATEWAY_KEY", "k")], &[]).expect("set up");
    assert_eq!(
        (selection.adapter, selection.context_window),
        (Adapter::OpenAiResponses, UNKNOWN_CONTEXT_WINDOW)
    );
    // The window alone can be set under the full name.
    let size = ModelSettings { context_window: Some(5000), ..ModelSettings::default() };
    own.models.insert("gateway/other".into(), size);
    let selection = select(&own, &[("GATEWAY_KEY", "k")], &[]).expect("set up");
    assert_eq!((selection.full_name().as_str(), selection.context_window), ("gateway/other", 5000));
}

#[test]
fn openai_uses_responses_and_other_servers_chat_completions() {
    let of = |base_url: Option<&str>, adapter: Option<Adapter>, env: &[(&str, &str)]| {
        let mut own = settings(Some("openai/gpt-5.4-pro"));
        let provider = ProviderSettings { adapter, base_url: base_url.map(str::to_owned), api_key_env: None };
        own.providers.insert("openai".into(), provider);
        select(&own, &[&[("OPENAI_API_KEY", "k")], env].concat(), &[]).expect("set up").adapter
    };
    assert_eq!(of(None, None, &[]), Adapter::OpenAiResponses);
    for official in ["https://api.openai.com/v1", "https://eu.api.openai.com/v1/", "api.openai.com"] {
        assert_eq!(of(Some(official), None, &[]), Adapter::OpenAiResponses, "{official}");
    }
    for other in
        ["https://api.openai.com.example/v1", "http://127.0.0.1:8080/v1", "https://x.openai.azure.com"]
    {
        assert_eq!(of(Some(other), None, &[]), Adapter::OpenAi, "{other}");
    }
    assert_eq!(of(None, None, &[("OPENAI_BASE_URL", "https://gateway.example/v1")]), Adapter::OpenAi);
    assert_eq!(of(None, Some(Adapter::OpenAi), &[]), Adapter::OpenAi, "an explicit wire format is used");
    // Under a custom name it is the same service.
    let mut own = settings(Some("mine/gpt-5.4"));
    own.providers.insert(
        "mine".into(),
        ProviderSettings {
            adapter: None,
            base_url: Some("https://api.openai.com/v1".into()),
            api_key_env: Some("KEY".into()),
        },
    );
    assert_eq!(select(&own, &[("KEY", "k")], &[]).expect("set up").adapter, Adapter::OpenAiResponses);
}

#[test]
fn a_base_url_needs_no_slash_or_version() {
    for (adapter, given, expected) in [
        (Adapter::OpenAi, "http://127.0.0.1:8099/v1", "http://127.0.0.1:8099/v1/"),
        (Adapter::OpenAi, "http://127.0.0.1:8099/v1///", "http://127.0.0.1:8099/v1/"),
        (Adapter::OpenAi, "http://127.0.0.1:8099", "http://127.0.0.1:8099/v1/"),
        (Adapter::OpenAi, "https://x.example/openai/v1beta", "https://x.example/openai/v1beta/"),
        (Adapter::Anthropic, "http://127.0.0.1:8099", "http://127.0.0.1:8099/v1/"),
        (Adapter::Anthropic, "https://x.example/anthropic/", "https://x.example/anthropic/v1/"),
        (Adapter::Anthropic, "https://x.example/v1", "https://x.example/v1/"),
        (Adapter::Gemini, "http://localhost:1", "http://localhost:1/v1beta/"),
        (Adapter::Ollama, "http://localhost:11434/v1", "http://localhost:11434/"),
        (Adapter::OpenAi, "localhost:1234/v1", "http://localhost:1234/v1/"),
        (Adapter::OpenAi, "  ", ""),
    ] {
        assert_eq!(normalise_base_url(adapter, given), expected);
    }
    let vars = [("ANTHROPIC_BASE_URL", "http://127.0.0.1:9"), ("ANTHROPIC_API_KEY", "k")];
    let selection = select(&settings(Some("claude-x")), &vars, &[]).expect("set up");
    assert_eq!(selection.base_url, "http://127.0.0.1:9/v1/");
}

#[test]
fn local_servers_are_probed_on_loopback_only() {
    let at = |host| probe_candidates(&Env::of(&[("OLLAMA_HOST", host)], "/h", "/w"));
    assert_eq!(at("")[0].models_url, "http://127.0.0.1:11434/api/tags");
    assert_eq!(at("0.0.0.0")[0].base_url, "http://127.0.0.1:11434/");
    assert_eq!(at("localhost:99")[0].base_url, "http://localhost:99/");
    assert_eq!(at(":99")[0].base_url, "http://127.0.0.1:99/");
    assert_eq!(at("http://127.0.0.1:99/")[0].base_url, "http://127.0.0.1:99/");
    assert!(at("10.0.0.1:99").iter().all(|candidate| candidate.provider != "ollama"));
    assert!(at("127.evil.example").iter().all(|candidate| candidate.provider != "ollama"));
    assert!(at("localhost.evil.example").iter().all(|candidate| candidate.provider != "ollama"));
    assert_eq!(at("").len(), 4);
}

#[test]
fn a_probe_happens_only_when_its_result_matters() {
    let needs = |model, vars: &[(&str, &str)]| needs_probe(&settings(model), &Env::of(vars, "/h", "/w"));
    assert!(needs(None, &[]));
    assert!(!needs(None, &[("OPENAI_API_KEY", "k")]));
    assert!(!needs(Some("demo"), &[]));
    assert!(needs(Some("qwen3"), &[]));
    assert!(!needs(Some("mock"), &[("OPENAI_API_KEY", "k")]));
    let hit = select(&settings(Some("qwen3")), &[], &[ollama(&["other", "qwen3:latest"])]).expect("local");
    assert_eq!(hit.full_name(), "ollama/qwen3:latest");
}

#[test]
fn prices_belong_to_the_exact_model_or_are_absent() {
    let price = |model: &str| {
        select(&settings(Some(model)), &[("OPENAI_API_KEY", "k"), ("ANTHROPIC_API_KEY", "k")], &[])
            .expect("set up")
            .price
    };
    assert_eq!(price("claude-sonnet-4-5-20250929").map(|price| price.output), Some(15.0));
    assert_eq!(price("gpt-4o-mini").map(|price| price.input), Some(0.15));
    assert_eq!(price("gpt-4o-audio"), None);
    assert_eq!(price("gpt-77"), None);
    let local =
        select(&settings(Some("gpt-4o")), &[("OPENAI_BASE_URL", "http://127.0.0.1:9")], &[]).expect("set up");
    assert_eq!(local.price, None);
}

#[test]
fn the_list_shows_usable_models_and_why_others_are_not() {
    let mut own = settings(None);
    own.models
        .insert("mine".into(), ModelSettings { provider: Some("openai".into()), ..ModelSettings::default() });
    own.providers.insert(
        "box".into(),
        ProviderSettings {
            base_url: Some("http://127.0.0.1:9/v1?key=canary".into()),
            ..ProviderSettings::default()
        },
    );
    let env = Env::of(&[("ANTHROPIC_API_KEY", "canary")], "/h", "/w");
    let current = select_model(&own, &Provenance::default(), &env, &[]).expect("set up");
    let rows = list_models(&own, &env, &[], Some(&current), None);
    let row = |name: &str| {
        rows.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("{name} in {rows:#?}"))
    };
    assert_eq!((rows[0].name.as_str(), rows[0].current), ("anthropic/claude-sonnet-5", true));
    assert_eq!(rows.iter().filter(|row| row.name == rows[0].name).count(), 1);
    assert!(
        row("anthropic/claude-opus-5-5").why.contains("not checked"),
        "the table, until the provider lists"
    );
    assert!(!row("openai/gpt-6-sol").usable);
    assert_eq!(row("openai/gpt-6-sol").why, "set OPENAI_API_KEY or run `aye login openai`");
    assert_eq!(row("openai/gpt-6-sol").login.as_deref(), Some("openai"));
    assert!(!row("mine").usable && row("mine").why.contains("OPENAI_API_KEY"));
    assert!(row("box/NAME").usable && row("box/NAME").why.contains("did not list"));
    assert!(!row("ollama/NAME").usable && row("ollama/NAME").why.contains("ollama serve"));
    assert!(row("demo").usable);
    let places: Vec<bool> = rows.iter().skip(2).map(|row| row.usable).collect();
    assert!(places.is_sorted_by(|a, b| a >= b), "models that need a key come last");
    let rows = list_models(&own, &env, &[ollama(&["qwen3"])], None, None);
    assert!(rows.iter().any(|row| row.name == "ollama/qwen3" && row.usable));
    assert!(!format!("{rows:?}").contains("canary"));
    // Nor does the reason for what is chosen.
    let url = "http://127.0.0.1:9/v1?key=canary";
    let env = Env::of(&[("OPENAI_BASE_URL", url), ("OPENAI_API_KEY", "k")], "/h", "/w");
    let why = select_model(&settings(None), &Provenance::default(), &env, &[]).expect("a demo").why;
    assert!(why.contains("127.0.0.1:9/v1?(redacted)") && !why.contains("canary"), "{why}");
}

#[test]
fn a_providers_own_list_overrides_the_table() {
    let vars = [("OPENAI_API_KEY", "k")];
    let env = Env::of(&vars, "/h", "/w");
    let own = settings(Some("openai/gpt-5"));
    let current = select(&own, &vars, &[]).expect("set up");
    let mut hit =
        listed("openai", &vars, &["gpt-6-luna", "text-embedding-3-large", "gpt-6-sol", "brand-new"]);
    hit.models[3].context_window = Some(7777);
    let rows = list_models(&own, &env, std::slice::from_ref(&hit), Some(&current), None);
    let names: Vec<&str> = rows.iter().filter(|row| row.usable).map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["openai/gpt-5", "openai/gpt-6-sol", "openai/gpt-6-luna", "openai/brand-new", "demo"]);
    assert_eq!(rows[0].why, "openai does not list it; its closest successor is openai/gpt-6-sol");
    assert_eq!(rows[3].context_window, 7777);
    assert_eq!(rows[1].why, "listed, OPENAI_API_KEY is set");
    let mut own = own;
    own.models.insert("openai/gpt-6-sol".into(), ModelSettings::default());
    let rows = list_models(&own, &env, std::slice::from_ref(&hit), Some(&current), None);
    let of = rows.iter().filter(|row| row.name == "openai/gpt-6-sol").collect::<Vec<_>>();
    assert_eq!(of.len(), 1, "in the settings and listed: {rows:#?}");
    let known = select(&settings(Some("openai/gpt-6-sol")), &vars, &[]).expect("set up");
    assert_eq!(gone(&known, &[hit]), None);
    let dated = listed("openai", &vars, &["gpt-6-sol-2026-10-01"]);
    assert_eq!(gone(&known, &[dated]), None, "a list may contain only the dated name");
}

#[test]
fn a_server_at_a_custom_url_is_asked_for_its_first_model() {
    let vars = [("OPENAI_BASE_URL", "http://127.0.0.1:9/v1"), ("OPENAI_API_KEY", "k")];
    let env = Env::of(&vars, "/h", "/w");
    let asked = wants_list(&settings(None), &env).expect("a provider to ask");
    assert_eq!(asked.candidate().models_url, "http://127.0.0.1:9/v1/models");
    let hit = listed("openai", &vars, &["text-embedding-x", "qwen3-coder", "other"]);
    let first = select(&settings(None), &vars, std::slice::from_ref(&hit)).expect("set up");
    assert_eq!((first.full_name().as_str(), first.adapter), ("openai/qwen3-coder", Adapter::OpenAi));
    assert_eq!(first.api_key_env.as_deref(), Some("OPENAI_API_KEY"), "the key belongs to the URL");
    assert!(wants_list(&settings(Some("m")), &env).is_none(), "one was named");
    assert!(wants_list(&settings(Some("openai/")), &env).is_some());
    let first = select(&settings(Some("openai/")), &vars, std::slice::from_ref(&hit)).expect("set up");
    assert_eq!(first.model, "qwen3-coder");
    let itself = [("OPENAI_BASE_URL", "https://api.openai.com/v1"), ("OPENAI_API_KEY", "k")];
    assert!(wants_list(&settings(None), &Env::of(&itself, "/h", "/w")).is_none());
    let chosen = select(&settings(None), &itself, &[]).expect("set up");
    assert_eq!((chosen.model.as_str(), chosen.adapter), ("gpt-6-sol", Adapter::OpenAiResponses));
}

#[test]
fn an_unknown_vendor_is_an_error_unless_a_gateway_may_know_it() {
    let key = [("OPENAI_API_KEY", "k")];
    let refusal = chosen(Some("zz/zz"), &key);
    assert!(refusal.starts_with("model `zz/zz` (default) names the unknown provider `zz`"), "{refusal}");
    assert!(chosen(Some("antropic/claude-x"), &key).contains("did you mean `anthropic`?"));
    assert!(chosen(Some("google/gemini-x"), &key).contains("did you mean `gemini`?"));
    for (model, vars, expected) in [
        ("zz/zz", &[("OPENAI_BASE_URL", "http://127.0.0.1:9")][..], "openai/zz/zz"),
        ("zz/zz", &[("OPENROUTER_API_KEY", "k")], "openrouter/zz/zz"),
        (
            "zai-org/GLM-5.3",
            &[("OPENAI_API_KEY", "k"), ("TOGETHER_API_KEY", "k")],
            "together/zai-org/GLM-5.3",
        ),
        ("anthropic/claude-x", &[("OPENROUTER_API_KEY", "k")], "openrouter/anthropic/claude-x"),
        ("anthropic/claude-x", &[("OPENAI_BASE_URL", "http://127.0.0.1:9")], "openai/anthropic/claude-x"),
        ("kimi-k3", &[("ANTHROPIC_API_KEY", "k"), ("MOONSHOT_API_KEY", "k")], "moonshotai/kimi-k3"),
    ] {
        assert_eq!(chosen(Some(model), vars), expected, "{model} {vars:?}");
    }
}

#[test]
fn a_model_without_a_key_that_goes_elsewhere_is_reported() {
    let rerouted = |vars: &[(&str, &str)]| {
        select(&settings(Some("anthropic/claude-x")), vars, &[]).expect("a selection").rerouted
    };
    let text = rerouted(&[("OPENROUTER_API_KEY", "k")]).expect("is reported");
    assert!(
        text.starts_with("requests for anthropic/claude-x go to openrouter (https://openrouter.ai"),
        "{text}"
    );
    assert!(text.contains("`aye login anthropic`"), "{text}");
    assert_eq!(rerouted(&[("OPENROUTER_API_KEY", "k"), ("ANTHROPIC_API_KEY", "k")]), None);
}

#[test]
fn a_stored_key_is_used_and_the_variable_wins() {
    let env = Env::of(&[], "/h", "/w");
    env.set_stored_keys(["gemini".to_owned()].into());
    let choose =
        |env: &Env| select_model(&settings(None), &Provenance::default(), env, &[]).expect("a selection");
    let stored = choose(&env);
    assert_eq!((stored.full_name().as_str(), stored.is_key_stored), ("gemini/gemini-3.8-flash", true));
    assert_eq!(
        (stored.api_key_env.as_deref(), stored.why.as_str()),
        (None, "`aye login gemini` stored a key")
    );
    let both = Env::of(&[("GEMINI_API_KEY", "k")], "/h", "/w");
    both.set_stored_keys(["gemini".to_owned()].into());
    let chosen = choose(&both);
    assert_eq!((chosen.api_key_env.as_deref(), chosen.is_key_stored), (Some("GEMINI_API_KEY"), false));
    let sources = key_sources(&settings(None), &both);
    assert_eq!(sources.len(), 1);
    assert!(sources[0].is_set && sources[0].is_stored);
    env.set_stored_keys(std::collections::BTreeSet::new());
    assert!(choose(&env).is_demo(), "a logout takes effect at once");
}

#[test]
fn a_key_with_a_name_is_a_provider_of_its_own() {
    let env = Env::of(&[("ANTHROPIC_API_KEY", "k"), ("OPENROUTER_API_KEY", "k")], "/h", "/w");
    let choose = |env: &Env, model: Option<&str>| {
        let mut own = settings(model);
        let mine = ProviderSettings {
            base_url: Some("https://llm.example.com/v1/".into()),
            ..ProviderSettings::default()
        };
        own.providers.insert("mine".into(), mine);
        select_model(&own, &Provenance::default(), env, &[])
    };
    // Neither a variable nor a gateway replaces a key that was named.
    let missing = choose(&env, Some("anthropic@work/claude-opus-5-5")).expect_err("no key");
    assert!(missing.to_string().contains("run `aye login anthropic --as work`"), "{missing}");
    let stored = ["anthropic@work", "mine@a", "gone@x", "openai@", "odd@a@b"].map(str::to_owned);
    env.set_stored_keys(stored.into());
    let named = choose(&env, Some("anthropic@work/claude-opus-5-5")).expect("a selection");
    assert_eq!(named.full_name(), "anthropic@work/claude-opus-5-5");
    assert_eq!((named.api_key_env.as_deref(), named.is_key_stored), (None, true));
    let plain = choose(&env, Some("anthropic/claude-opus-5-5")).expect("a selection");
    assert_eq!((plain.api_key_env.as_deref(), plain.is_key_stored), (Some("ANTHROPIC_API_KEY"), false));
    assert_eq!((named.price, named.efforts, named.base_url), (plain.price, plain.efforts, plain.base_url));
    assert!(crate::table::known_price("anthropic@work/claude-opus-5-5").is_some());
    assert_eq!(choose(&env, Some("mine@a/x")).expect("a selection").base_url, "https://llm.example.com/v1/");
    // Without a name, the key without one counts.
    assert_eq!(choose(&env, Some("claude-opus-5-5")).expect("a selection").provider, "anthropic");
    let names: Vec<_> =
        key_sources(&settings(None), &env).into_iter().map(|source| source.provider).collect();
    assert_eq!(names, ["anthropic", "openrouter", "anthropic@work"]);
    let alone = Env::of(&[], "/h", "/w");
    alone.set_stored_keys(["anthropic@work".to_owned()].into());
    assert_eq!(choose(&alone, Some("claude-opus-5-5")).expect("a selection").provider, "anthropic@work");
}

proptest! {
    #[test]
    fn arbitrary_names_never_panic_and_urls_end_in_one_slash(model in "\\PC{0,30}", url in "[a-z:/.0-9@]{0,30}") {
        let vars = [("OPENAI_BASE_URL", url.as_str()), ("OLLAMA_HOST", url.as_str()), ("OPENAI_API_KEY", "k")];
        if let Ok(selection) = select(&settings(Some(&model)), &vars, &[]) {
            prop_assert!(selection.is_demo() || selection.base_url.ends_with('/'));
        }
        probe_candidates(&Env::of(&vars, "/h", "/w"));
    }
}
