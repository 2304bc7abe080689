//! Available models by server lists; stored keys; the effort of a model.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::support::home::Home;
use crate::support::llm::{Answer, MockLlm};
use crate::support::pty::Pty;

/// A provider on loopback: it lists models, knows no others, and requires its key if it has one.
struct Provider {
    url: String,
    /// The requests: path, and the header with the key.
    asked: Arc<Mutex<Vec<(String, String)>>>,
}

impl Provider {
    fn start(models: &'static [&'static str], key: Option<&'static str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/v1", listener.local_addr().expect("a valid address"));
        let asked: Arc<Mutex<Vec<(String, String)>>> = Arc::default();
        let seen = Arc::clone(&asked);
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                serve(stream, models, key, &seen);
            }
        });
        Self { url, asked }
    }

    /// The keys of requests for this path.
    fn keys(&self, path: &str) -> Vec<String> {
        let asked = self.asked.lock().expect("not poisoned");
        asked.iter().filter(|(asked, _)| asked.ends_with(path)).map(|(_, key)| key.clone()).collect()
    }

    fn settings(&self) -> String {
        format!(
            "[providers.box]\nadapter = \"openai\"\nbase_url = \"{}\"\napi_key_env = \"BOX_KEY\"\n[retry]\nmax_retries = 0\n",
            self.url
        )
    }
}

fn serve(mut stream: TcpStream, models: &[&str], wanted: Option<&str>, seen: &Mutex<Vec<(String, String)>>) {
    let mut reader = BufReader::new(stream.try_clone().expect("a stream"));
    let (mut line, mut length, mut key) = (String::new(), 0, String::new());
    reader.read_line(&mut line).expect("a line");
    let path = line.split([' ', '?']).nth(1).unwrap_or_default().to_owned();
    loop {
        line.clear();
        if reader.read_line(&mut line).expect("a line") <= 2 {
            break;
        }
        let (name, value) = line.split_once(':').expect("a header");
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().expect("a length"),
            "authorization" => value.trim().trim_start_matches("Bearer ").clone_into(&mut key),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("a body");
    seen.lock().expect("not poisoned").push((path.clone(), key.clone()));
    let model = serde_json::from_slice::<Value>(&body).map(|body| body["model"].as_str().map(str::to_owned));
    let is_known = model.ok().flatten().is_some_and(|model| models.contains(&model.as_str()));
    let (status, kind, body) = if wanted.is_some_and(|wanted| wanted != key) {
        ("401 Unauthorized", "application/json", json!({"error": {"message": "bad key"}}).to_string())
    } else if path.ends_with("/models") {
        let rows: Vec<Value> = models.iter().map(|id| json!({"id": id, "object": "model"})).collect();
        ("200 OK", "application/json", json!({"object": "list", "data": rows}).to_string())
    } else if is_known {
        let text = json!({"choices": [{"index": 0, "delta": {"content": "hello from the box"}}]});
        let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
        ("200 OK", "text/event-stream", format!("data: {text}\n\ndata: {end}\n\ndata: [DONE]\n\n"))
    } else {
        let error = json!({"error": {"message": "gone", "code": "model_not_found"}});
        ("404 Not Found", "application/json", error.to_string())
    };
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n", body.len());
    let _ = stream.write_all(format!("{head}connection: close\r\n\r\n{body}").as_bytes());
}

#[test]
fn a_custom_server_is_asked_for_its_models_and_the_first_one_answers() {
    let server = Provider::start(&["text-embedding-x", "qwen-coder", "other"], None);
    let home = Home::new();
    let rows = home.aye(&["models", "--json"]).env("OPENAI_BASE_URL", &server.url).run().exits(0).json();
    assert_eq!((&rows[0]["name"], &rows[0]["current"]), (&json!("openai/qwen-coder"), &json!(true)));
    let names: Vec<&str> =
        rows.as_array().expect("rows").iter().filter_map(|row| row["name"].as_str()).collect();
    assert!(
        names.contains(&"openai/other") && !names.iter().any(|name| name.contains("embedding")),
        "{names:?}"
    );
    let text = home.aye(&["models"]).env("OPENAI_BASE_URL", &server.url).run().exits(0).stdout;
    let (usable, rest) = text.split_once("Needs a key or a server:").expect("two parts");
    assert!(usable.starts_with("openai/qwen-coder") && rest.contains("anthropic/claude-sonnet-5"), "{text}");
    let out = home.aye(&["-p", "hi"]).env("OPENAI_BASE_URL", &server.url).run().exits(0);
    assert_eq!(out.stdout.trim(), "hello from the box");
}

/// Readers of some providers' streams report a refusal as the first event.
#[test]
fn a_retired_model_of_any_provider_is_reported_with_its_closest_successor() {
    for (provider, gone, next) in
        [("anthropic", "claude-sonnet-4-6", "claude-sonnet-5"), ("openai", "gpt-5", "gpt-6-sol")]
    {
        let server = Provider::start(&["claude-sonnet-5", "gpt-6-sol"], None);
        let home = Home::new();
        let upper = provider.to_uppercase();
        let out = home
            .aye(&["-p", "--model", &format!("{provider}/{gone}"), "hi"])
            .env(&format!("{upper}_BASE_URL"), &server.url)
            .env(&format!("{upper}_API_KEY"), "key")
            .run()
            .exits(1);
        let told = format!("the closest model that {provider} lists is {next}");
        assert!(out.stderr.contains(&told), "{}", out.stderr);
    }
}

#[test]
fn a_retired_model_is_reported_with_its_closest_successor() {
    let server = Provider::start(&["gpt-6-luna", "gpt-6-sol", "gpt-6-astra"], None);
    let home = Home::new();
    home.config(&server.settings());
    let out = home.aye(&["-p", "--model", "box/gpt-5", "hi"]).run();
    assert!(!out.status.success());
    assert!(out.stderr.contains("the closest model that box lists is gpt-6-sol"), "{}", out.stderr);
    home.ok(&["models"]);
    let checks = home.aye(&["--model", "box/gpt-5", "doctor", "--json"]).run().json();
    let model = checks
        .as_array()
        .expect("doctor checks")
        .iter()
        .find(|check| check["name"] == "model")
        .expect("a check");
    assert_eq!(model["state"], "warning");
    assert!(model["text"].as_str().expect("words").contains("box/gpt-6-sol"), "{model}");
}

#[test]
fn an_unknown_vendor_is_a_usage_error() {
    let home = Home::new();
    let out = home.aye(&["-p", "--model", "zz/zz", "hi"]).env("OPENAI_API_KEY", "k").run().exits(2);
    assert!(out.stderr.contains("names the unknown provider `zz`"), "{}", out.stderr);
}

#[test]
fn a_login_tests_a_key_stores_it_privately_and_a_logout_removes_it() {
    let server = Provider::start(&["m"], Some("sk-good-canary"));
    let home = Home::new();
    home.config(&server.settings());
    let file = home.root().join("aye/state/keys/box");
    let out = home.aye(&["login", "box"]).stdin("sk-bad-canary\n").run().exits(1);
    assert!(out.stderr.contains("box rejected the key") && !out.stderr.contains("canary"), "{}", out.stderr);
    assert!(!file.exists());
    home.aye(&["login", "boxx"]).stdin("k\n").run().exits(2).says("did you mean `box`?");
    let out = home.aye(&["login", "box"]).stdin("sk-good-canary\n").run().exits(0);
    assert!(out.stdout.contains("logged in to box (1 model)"), "{}", out.stdout);
    let mode = |path: &std::path::Path| std::fs::metadata(path).expect("exists").permissions().mode() & 0o777;
    assert_eq!((mode(&file), mode(file.parent().expect("a folder"))), (0o600, 0o700));
    let out = home.ok(&["-p", "--model", "box/m", "hi"]);
    assert_eq!(out.stdout.trim(), "hello from the box");
    let told = home.aye(&["doctor", "--json"]).run().stdout;
    assert!(told.contains("box: `aye login`") && !told.contains("canary"), "{told}");
    // The variable wins, and is refused here.
    home.aye(&["-p", "--model", "box/m", "hi"]).env("BOX_KEY", "sk-other").run();
    assert_eq!(server.keys("/chat/completions"), ["sk-good-canary", "sk-other"]);
    let told = home.aye(&["doctor", "--json"]).env("BOX_KEY", "sk-other").run().stdout;
    assert!(told.contains("box: BOX_KEY, which wins over"), "{told}");
    // Another URL does not get it.
    let other = Provider::start(&["m"], None);
    home.config(&other.settings());
    home.ok(&["-p", "--model", "box/m", "hi"]);
    assert_eq!(other.keys("/chat/completions"), [""]);
    home.ok(&["logout"]).prints("the stored key of box is removed");
    assert!(!file.exists());
    home.aye(&["logout", "box"]).run().exits(1).says("no key is stored for `box`");
}

#[test]
fn a_key_with_a_name_is_used_by_the_models_that_name_it() {
    let server = Provider::start(&["m"], Some("sk-work-canary"));
    let home = Home::new();
    home.config(&server.settings());
    let login = |name: &str| home.aye(&["login", "box", "--as", name]).stdin("sk-work-canary\n").run();
    login("../x").exits(2).says("`../x` is no name for a key");
    login("work").exits(0).prints("logged in to box@work (1 model)");
    assert!(home.root().join("aye/state/keys/box@work").exists());
    // No variable replaces it, and the key without a name stays another one.
    let ask = |args: &[&str]| home.aye(args).env("BOX_KEY", "sk-other").run();
    ask(&["-p", "--model", "box@work/m", "hi"]).exits(0).prints("hello from the box");
    let agents = home.root().join("aye/config/agents");
    std::fs::create_dir_all(&agents).expect("made");
    let agent = "---\ndescription: Works.\nmodel: box@work/m\n---\nWork.\n";
    std::fs::write(agents.join("worker.md"), agent).expect("written");
    ask(&["-p", "--agent", "worker", "hi"]).exits(0);
    ask(&["-p", "--model", "box/m", "hi"]);
    assert_eq!(server.keys("/chat/completions"), ["sk-work-canary", "sk-work-canary", "sk-other"]);
    let told = ask(&["doctor", "--json", "--model", "box@work/m"]).stdout;
    assert!(told.contains("box: BOX_KEY") && told.contains("box@work: `aye login`"), "{told}");
    assert!(told.contains("box@work/m") && !told.contains("canary"), "{told}");
    home.aye(&["-p", "--model", "box@home/m", "hi"]).run().exits(2).says("`aye login box --as home`");
    home.ok(&["logout", "box", "--as", "work"]).prints("the stored key of box@work is removed");
    home.aye(&["login", "--as", "work"]).run().exits(2);
}

/// Without a network a key is stored for later; the model that answers stays the one that works.
#[test]
fn a_key_that_cannot_be_checked_is_stored_and_switches_no_model() {
    let server = Provider::start(&["m"], None);
    let home = Home::new();
    home.config(&server.settings().replace(&server.url, "http://127.0.0.1:1/v1"));
    let out = home.aye(&["login", "box"]).stdin("sk-good\n").run().exits(0);
    assert!(out.stdout.starts_with("saved, not checked: no network (box: "), "{}", out.stdout);
    assert!(out.stdout.contains("; the key is in ") && !out.stdout.contains("logged in"), "{}", out.stdout);
    assert!(home.root().join("aye/state/keys/box").exists());
    let mut tty = Pty::start_with(&home, &["--model", "demo"], 100, 30, &[]);
    tty.ready();
    tty.send("/login box\r");
    tty.shows("Key:");
    tty.paste("sk-good");
    tty.shows("•••••••");
    tty.send("\r");
    tty.shows("saved, not checked: no network");
    tty.say("hi");
    tty.shows("I am the demo model");
    tty.quit();
}

#[test]
fn a_login_without_a_keyring_service_says_so_and_stores_nothing() {
    let server = Provider::start(&["m"], Some("sk-good-canary"));
    let home = Home::new();
    home.config(&server.settings());
    let nowhere = format!("unix:path={}", home.root().join("no-bus").display());
    let aye = |args: &[&str]| home.aye(args).env("DBUS_SESSION_BUS_ADDRESS", &nowhere);
    let file = home.root().join("aye/state/keys/box");
    let out = aye(&["login", "box", "--keyring"]).stdin("sk-good-canary\n").run().exits(1);
    assert!(out.stderr.contains("no system keyring responds"), "{}", out.stderr);
    assert!(out.stderr.contains("nothing is stored; without --keyring"), "{}", out.stderr);
    assert!(!out.stderr.contains("canary") && !file.exists(), "{}", out.stderr);
    // The key was stored on another day.
    std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
    let note = format!(r#"{{"base_url": "{}/", "keyring": true}}"#, server.url);
    std::fs::write(&file, note).expect("written");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("a mode");
    let told = aye(&["doctor", "--json"]).run().stdout;
    assert!(told.contains("box: `aye login` (system keyring; no system keyring responds"), "{told}");
    let out = aye(&["-p", "--model", "box/m", "hi"]).run();
    assert!(!out.status.success() && out.stderr.contains("no system keyring responds"), "{}", out.stderr);
    assert_eq!(server.keys("/chat/completions"), [""; 0]);
    // The environment wins, and the keyring is not queried.
    aye(&["-p", "--model", "box/m", "hi"]).env("BOX_KEY", "sk-good-canary").run().exits(0);
    let out = aye(&["logout", "box"]).run().exits(1);
    assert!(out.stderr.contains("may still contain it as `box "), "{}", out.stderr);
    assert!(!file.exists());
}

#[test]
fn a_pasted_key_is_not_shown_and_connects_the_provider() {
    let server = Provider::start(&["m"], Some("sk-good-canary"));
    let home = Home::new();
    home.config(&server.settings());
    let mut tty = Pty::start_with(&home, &["--model", "demo"], 100, 30, &[]);
    tty.ready();
    tty.send("/login box\r");
    tty.shows("Key:");
    tty.paste("sk-good-canary");
    tty.shows("••••••••••••••");
    tty.send("\r");
    tty.shows("logged in to box (1 model)");
    tty.shows("now using box/m");
    tty.say("hi");
    tty.shows("hello from the box");
    tty.send("/model\r");
    tty.shows("box/m");
    tty.shows("in use");
    tty.send("\x1b");
    tty.wait("the list is closed", |view| !view.has("Models"));
    tty.quit();
    assert!(!String::from_utf8_lossy(&tty.raw()).contains("canary"));
    assert_eq!(server.keys("/chat/completions")[0], "sk-good-canary");
}

#[test]
fn the_effort_from_a_flag_or_setting_goes_with_each_request() {
    let llm = MockLlm::answers(["a", "b", "c"].map(Answer::say));
    let home = Home::with(&llm);
    home.ok(&["-p", "one"]);
    home.ok(&["-p", "--effort", "high", "two"]);
    home.aye(&["-p", "three"]).env("AYE_EFFORT", "low").run().exits(0);
    let sent: Vec<Value> = llm.asked().iter().map(|chat| chat.body["reasoning_effort"].clone()).collect();
    assert_eq!(sent, [Value::Null, json!("high"), json!("low")]);
    home.aye(&["-p", "--effort", "huge", "four"]).run().exits(2);
}

#[test]
fn the_effort_that_is_sent_is_one_that_the_model_accepts() {
    let llm = MockLlm::answers(["a", "b", "c"].map(Answer::say));
    let home = Home::with(&llm);
    home.config(&format!(
        "model = \"groq/openai/gpt-oss-20b\"\n[providers.groq]\nbase_url = \"{}\"\n\
         api_key_env = \"MOCK_KEY\"\n[retry]\nmax_retries = 0\n",
        llm.url
    ));
    home.ok(&["-p", "one"]);
    home.ok(&["-p", "--effort", "none", "two"]);
    home.ok(&["-p", "--effort", "max", "three"]);
    let sent: Vec<Value> = llm.asked().iter().map(|chat| chat.body["reasoning_effort"].clone()).collect();
    assert_eq!(sent, ["medium", "low", "high"]);
}

#[test]
fn the_limit_on_an_answer_is_sent() {
    let llm = MockLlm::answers(["a", "b"].map(Answer::say));
    let home = Home::with(&llm);
    home.ok(&["-p", "one"]);
    home.ok(&["-p", "--config", "models.\"mock/m1\".max_output=777", "two"]);
    let sent: Vec<Value> = llm.asked().iter().map(|chat| chat.body["max_tokens"].clone()).collect();
    assert_eq!(sent, [Value::Null, json!(777)], "what is only known of a model is not");
}

/// Answers every request with the same JSON.
fn answering(json: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("a valid address"));
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut reader = BufReader::new(stream.try_clone().expect("a stream"));
            let mut line = String::new();
            while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
                line.clear();
            }
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n";
            // The client may be gone.
            let _ = write!(stream, "{head}Content-Length: {}\r\n\r\n{json}", json.len());
        }
    });
    url
}

#[test]
fn doctor_shows_what_ollama_runs_a_model_with() {
    let report = |json: &'static str, window: &str| {
        let home = Home::new();
        let url = answering(json);
        home.config(&format!(
            "model = \"o/qwen3\"\n[providers.o]\nadapter = \"ollama\"\nbase_url = \"{url}\"\n{window}"
        ));
        let out = home.aye(&["doctor"]).run();
        let text = out.stdout.clone();
        text.lines().find(|line| line.contains("model server")).unwrap_or_default().to_owned()
    };
    let small = r#"{"models": [{"name": "qwen3:latest", "model": "qwen3:latest", "context_length": 4096}]}"#;
    let line = report(small, "");
    assert!(
        line.starts_with("warning") && line.contains("4096") && line.contains("aye's requests set 32768"),
        "{line}"
    );
    let line = report(small, "[models.\"o/qwen3\"]\ncontext_window = 4096\n");
    assert!(line.starts_with("ok") && line.contains("aye's requests set 4096"), "{line}");
    let line = report(r#"{"models": []}"#, "");
    assert!(line.starts_with("ok") && line.contains("qwen3 is not loaded"), "{line}");
}

#[test]
fn model_and_effort_stay_chosen() {
    let server = Provider::start(&["m", "n"], None);
    let home = Home::new();
    home.config(&format!("model = \"box/m\" # mine\n{}", server.settings()));
    let chooses = |args: &[&str], lines: &[(&str, &str)]| {
        let mut tty = Pty::start_with(&home, args, 100, 30, &[("BOX_KEY", "k")]);
        tty.ready();
        for (line, shown) in lines {
            tty.say(line);
            tty.shows(shown);
        }
        tty.quit();
    };
    let config = || std::fs::read_to_string(home.root().join("aye/config/config.toml")).expect("exists");
    chooses(&[], &[("/model box/n", "now using box/n; saved"), ("/effort high", "effort: high; saved")]);
    assert!(config().starts_with("model = \"box/n\" # mine\n"), "{}", config());
    chooses(&[], &[("/effort default", "effort: the model's default; saved"), ("hi", "hello from the box")]);
    assert!(!config().contains("effort"), "{}", config());
    // An ephemeral conversation does not change the settings, and neither does a flag.
    chooses(&["--ephemeral"], &[("/model box/m", "now using box/m, in this session")]);
    chooses(&["--model", "box/m"], &[("hi", "hello from the box")]);
    assert!(config().starts_with("model = \"box/n\" # mine\n"), "{}", config());
}

#[test]
fn a_model_without_a_key_that_goes_elsewhere_is_reported_at_the_start() {
    let llm = MockLlm::answers([Answer::say("Hello."), Answer::say("Hello.")]);
    let home = Home::with(&llm);
    let out = home.ok(&["-p", "hi", "--model", "anthropic/claude-x"]);
    let text = "aye: requests for anthropic/claude-x go to mock (";
    assert_eq!(out.stderr.matches(text).count(), 1, "{}", out.stderr);
    let out = home.ok(&["-p", "hi"]);
    assert!(!out.stderr.contains("go to"), "{}", out.stderr);
}
