//! Logins at MCP servers, in the real program.

use base64::Engine as _;
use serde_json::json;

use crate::support::home::{Home, Out, Running};
use crate::support::llm::{Answer, MockLlm, until};
use crate::support::oauth::{Far, get, location};
use crate::support::pty::Pty;

fn calls() -> MockLlm {
    MockLlm::by(|chat| match chat.results().len() {
        0 => Answer::say("I will.").call("c1", "mcp__far__echo", json!({"a": 1})),
        _ => Answer::say("It is done."),
    })
}

fn added(llm: &MockLlm) -> (Home, Far) {
    let (home, far) = (Home::with(llm), Far::start());
    home.ok(&["mcp", "add", "far", "--url", &far.url()]);
    home.rules("rules: [{tool: 'mcp__far__*', behavior: allow}]");
    (home, far)
}

/// Starts a login; returns the URL for the browser.
fn begun(home: &Home) -> (Running, String) {
    let mut login = home.aye(&["mcp", "login", "far"]).spawn();
    let address = login.until_line("/authorize?").trim().to_owned();
    (login, address)
}

/// Completes a login like a user with a browser.
fn logged_in(home: &Home) -> Out {
    let (login, address) = begun(home);
    let (status, answer) = get(&address);
    assert_eq!(status, 302, "{answer}");
    let (status, page) = get(&location(&answer));
    assert_eq!(status, 200, "{page}");
    login.end().exits(0).prints("logged in to far")
}

fn everything(home: &Home) -> String {
    let mut text = String::new();
    let mut folders = vec![home.root().to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                if !path.ends_with("mcp-logins") {
                    folders.push(path);
                }
            } else if let Ok(bytes) = std::fs::read(&path) {
                text.push_str(&String::from_utf8_lossy(&bytes));
            }
        }
    }
    text
}

fn login_files(home: &Home) -> Vec<std::path::PathBuf> {
    let folder = home.root().join("aye/state/mcp-logins");
    let all = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    all.filter(|path| path.extension().is_some_and(|kind| kind == "json")).collect()
}

#[test]
fn a_login_gets_a_token_for_calls_that_nothing_else_sees() {
    let llm = calls();
    let (home, far) = added(&llm);
    // Nobody waits for a login where nobody can log in.
    let out = home.ok(&["-p", "go"]);
    assert!(out.stderr.contains("MCP server far: needs login: aye mcp login far"), "{}", out.stderr);
    assert!(!llm.last().tools().iter().any(|tool| tool.starts_with("mcp__")));
    home.aye(&["mcp", "test", "far"]).run().exits(1).says("far: needs login: aye mcp login far");
    let list = home.ok(&["mcp", "list"]).stdout;
    assert!(list.contains("far  user  needs login: aye mcp login far"), "{list}");

    let mut login = home.aye(&["mcp", "login", "far"]).env("AYE_LOG", "trace").spawn();
    let address = login.until_line("/authorize?").trim().to_owned();
    let (_, answer) = get(&address);
    get(&location(&answer));
    let out = login.end().exits(0);
    assert!(home.ok(&["mcp", "test", "far"]).stdout.contains("mcp__far__echo"));
    let list = home.ok(&["mcp", "list", "--json"]).json();
    assert_eq!(list["servers"][0]["login"], "logged_in", "{list:#}");
    let run = home.aye(&["-p", "go"]).env("AYE_LOG", "trace").run().exits(0);
    assert_eq!(llm.last().result("c1"), "called with a token");

    let state = far.state();
    assert_eq!(state.wrong, [] as [String; 0]);
    assert!(state.secrets.len() >= 3, "{:?}", state.secrets);
    let seen = everything(&home) + &out.stdout + &out.stderr + &run.stdout + &run.stderr;
    for secret in &state.secrets {
        assert!(!seen.contains(secret), "{secret} is elsewhere");
        assert!(!llm.last().body.to_string().contains(secret));
    }
    drop(state);
    use std::os::unix::fs::PermissionsExt as _;
    let [file] = &login_files(&home)[..] else { panic!("one login") };
    assert_eq!(file.metadata().expect("exists").permissions().mode() & 0o777, 0o600);
    assert!(std::fs::read_to_string(file).expect("read").contains("s3cret"), "it exists");
}

#[test]
fn an_expired_token_is_renewed_silently() {
    let llm = calls();
    let (home, far) = added(&llm);
    far.state().lasts = 1;
    logged_in(&home);
    far.state().lasts = 3600;
    let out = home.ok(&["-p", "go"]);
    assert_eq!(llm.last().result("c1"), "called with a token");
    assert!(!out.stderr.contains("login"), "{}", out.stderr);
    assert_eq!(far.count("POST /token"), 2, "one login, one renewal");
    home.ok(&["-p", "go"]);
    assert_eq!(far.count("POST /token"), 2, "fresh data is used");
    // A rejected token is renewed too.
    far.revoke(false);
    home.ok(&["-p", "go"]);
    assert_eq!(llm.last().result("c1"), "called with a token");
    assert_eq!(far.count("POST /token"), 3);
    // Until nothing is left to renew it with.
    far.revoke(true);
    home.ok(&["-p", "go"]).says("needs login");
    assert!(home.ok(&["mcp", "list"]).stdout.contains("needs login"));
    assert_eq!(far.state().wrong, [] as [String; 0]);
    logged_in(&home);
    assert!(!home.ok(&["mcp", "list"]).stdout.contains("needs login"));
}

#[test]
fn a_login_that_was_not_started_here_is_refused() {
    let llm = calls();
    let (home, far) = added(&llm);
    let (login, address) = begun(&home);
    let back = location(&get(&address).1);
    let stranger = back.replace("state=", "state=x");
    assert_eq!(get(&stranger).0, 400);
    assert_eq!(get(back.split('?').next().expect("a valid address")).0, 400);
    assert_eq!(get(&back.replace("/callback", "/favicon.ico")).0, 404);
    login.until_told("its `state` differs; still waiting");
    assert_eq!(far.count("POST /token"), 0);
    assert_eq!(get(&back).0, 200);
    login.end().exits(0);
    // The issuer is checked too.
    let (login, address) = begun(&home);
    let back = location(&get(&address).1).replace("iss=", "iss=http%3A%2F%2Fevil.test%2F");
    get(&back);
    login.end().exits(1).says("refused: its login identifies");
    assert_eq!(far.count("POST /token"), 1);
    far.state().denies = true;
    let (login, address) = begun(&home);
    get(&location(&get(&address).1));
    login.end().exits(1).says("the login was refused (access_denied)");
}

#[test]
fn another_url_does_not_get_the_token() {
    let llm = calls();
    let (home, far) = added(&llm);
    logged_in(&home);
    let other = Far::start();
    let file = home.root().join("aye/config/config.toml");
    let settings = std::fs::read_to_string(&file).expect("read");
    home.config(&settings.replace(&far.url(), &other.url()));
    let list = home.ok(&["mcp", "list"]).stdout;
    assert!(list.contains("the stored login is for another URL"), "{list}");
    home.ok(&["-p", "go"]).says("needs login");
    assert!(!other.state().asked.iter().any(|asked| asked.contains("token")), "{:?}", other.state().asked);
    // It is still valid for its own server.
    home.config(&settings);
    home.ok(&["-p", "go"]);
    assert_eq!(llm.last().result("c1"), "called with a token");
}

#[test]
fn a_token_is_not_renewed_at_another_issuer() {
    let llm = calls();
    let (home, far) = added(&llm);
    far.state().lasts = 1;
    logged_in(&home);
    far.state().metadata.insert("issuer", json!("https://evil.test"));
    let out = home.ok(&["--config", "mcp.wait=2s", "-p", "go"]);
    assert!(out.stderr.contains("MCP server"), "{}", out.stderr);
    assert_eq!(far.count("POST /token"), 1, "nothing was sent");
}

#[test]
fn logging_out_forgets_the_login() {
    let llm = calls();
    let (home, _far) = added(&llm);
    logged_in(&home);
    assert_eq!(login_files(&home).len(), 1);
    home.ok(&["mcp", "logout", "far"]).prints("logged out of far");
    assert_eq!(login_files(&home).len(), 0);
    home.ok(&["mcp", "logout", "far"]).prints("not logged in to far");
    home.ok(&["-p", "go"]).says("needs login");
    logged_in(&home);
    home.ok(&["mcp", "remove", "far"]);
    assert_eq!(login_files(&home).len(), 0, "removing a server removes its login");
}

/// The issuer is asked to revoke the tokens, where that can be done safely.
#[test]
fn logging_out_revokes_the_tokens() {
    let llm = calls();
    let (home, far) = added(&llm);
    let revoke = far.url().replace("/mcp", "/revoke");
    for (end, keeps, says) in [
        (json!(revoke), false, "its tokens are revoked"),
        (json!(revoke), true, "could not be revoked: its login answered HTTP 503"),
        (json!("http://evil.test/revoke"), false, "could not be revoked: a login needs https, not http"),
        (json!(null), false, "could not be revoked: its login has no revocation URL"),
    ] {
        far.state().metadata.remove("revocation_endpoint");
        far.revoke(true);
        logged_in(&home);
        far.state().metadata.insert("revocation_endpoint", end);
        far.state().keeps = keeps;
        home.ok(&["mcp", "logout", "far"]).prints("logged out of far").prints(says);
        assert_eq!(login_files(&home).len(), 0);
        assert_eq!(far.left(), if says.starts_with("its") { 0 } else { 2 }, "{says}");
    }
    assert_eq!(far.state().wrong, [] as [String; 0]);
    assert_eq!(far.count("POST /revoke"), 3);
}

/// The URL of a link shown in the terminal.
fn linked(tty: &Pty) -> Option<String> {
    let raw = String::from_utf8_lossy(&tty.raw()).into_owned();
    let links = raw.split("\u{1b}]8;").skip(1).filter_map(|link| link.split_once(';'));
    let addresses = links.filter_map(|(_, rest)| rest.split('\u{1b}').next());
    addresses.filter(|address| address.contains("/authorize?")).last().map(str::to_owned)
}

#[test]
fn a_user_logs_in_and_out_in_the_terminal() {
    let llm = calls();
    let (home, far) = added(&llm);
    far.state().metadata.insert("revocation_endpoint", json!(far.url().replace("/mcp", "/revoke")));
    let mut tty = Pty::start_with(&home, &[], 120, 40, &[("TERM", "xterm-kitty")]);
    tty.ready();
    tty.shows("needs login");
    tty.say("/mcp login far");
    tty.shows("/mcp cancel far");
    let address = linked(&tty).expect("a link");
    assert!(tty.raw().windows(4).any(|w| w == b"\x1b]8;"), "it is a link");
    tty.say("/copy");
    let copied = format!("]52;c;{}", base64::engine::general_purpose::STANDARD.encode(&address));
    until("the copied URL", || String::from_utf8_lossy(&tty.raw()).contains(&copied));
    let (status, answer) = get(&address);
    assert_eq!(status, 302, "{answer}");
    assert_eq!(get(&location(&answer)).0, 200);
    tty.shows("logged in to far");
    tty.connects("✓ far  connected");
    tty.say("go");
    tty.shows("It is done.");
    assert_eq!(llm.last().result("c1"), "called with a token");
    // Without a token only the fact that the server needs a login is kept, as the server reports when asked
    // again.
    let with_token = || {
        let has = |path: &std::path::PathBuf| {
            std::fs::read_to_string(path).is_ok_and(|text| text.contains("access_token"))
        };
        login_files(&home).iter().filter(|path| has(path)).count()
    };
    assert_eq!(with_token(), 1);
    tty.say("/mcp logout far");
    tty.shows("its tokens are revoked");
    assert_eq!((far.left(), with_token()), (0, 0));
    assert_eq!(far.state().wrong, [] as [String; 0]);
    // An aborted login stores nothing.
    tty.say("/mcp login far");
    until("another URL", || linked(&tty).is_some_and(|now| now != address));
    tty.say("/mcp cancel far");
    tty.shows("Cancelled the login to far");
    assert_eq!((far.count("POST /token"), far.left()), (1, 0));
    tty.quit();
    tty.is_restored();
}

#[test]
fn an_untrustworthy_login_is_not_started() {
    let llm = calls();
    let (home, far) = added(&llm);
    for (field, value, why) in [
        ("issuer", json!("https://evil.test"), "refused: its login identifies"),
        ("issuer", json!(null), "does not identify itself"),
        ("authorization_endpoint", json!("http://evil.test/authorize"), "needs https, not http"),
        ("authorization_endpoint", json!("javascript:alert(1)"), "needs a host"),
        ("token_endpoint", json!("http://evil.test/token"), "needs https, not http"),
        ("registration_endpoint", json!("ftp://evil.test/"), "needs https, not ftp"),
        ("registration_endpoint", json!(null), "oauth_client_id"),
        ("code_challenge_methods_supported", json!(["plain"]), "PKCE"),
        ("code_challenge_methods_supported", json!(null), "PKCE"),
        ("padding", json!("x".repeat(300_000)), "larger than 256 KiB"),
    ] {
        far.state().metadata = [(field, value.clone())].into();
        let out = home.aye(&["mcp", "login", "far"]).run().exits(1);
        assert!(out.stderr.contains(why), "{field} {value}: {}", out.stderr);
        assert!(!out.stdout.contains("/authorize"), "{}", out.stdout);
    }
    assert_eq!(far.count("POST /register"), 0);
    far.state().metadata =
        [("authorization_endpoint", json!("https://evil.test/a\u{1b}]0;x\u{7}?\u{202e}"))].into();
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
        let mut login = home.aye(&["mcp", "login", "far"]).spawn();
        let shown = login.until_line("https://evil.test/a");
        assert!(!shown.trim_end().contains(|c: char| c.is_control() || c == '\u{202e}'), "{shown:?}");
        login.signal(signal);
        login.end().ends_by(signal);
    }
}

#[test]
fn a_server_without_login_says_so() {
    let llm = calls();
    let (home, far) = added(&llm);
    home.ok(&["mcp", "add", "prog", "--", "true"]);
    home.aye(&["mcp", "login", "prog"]).run().exits(1).says("it is a local program");
    home.ok(&["mcp", "add", "keyed", "--url", &far.url(), "--header", "Authorization=Bearer x"]);
    home.aye(&["mcp", "login", "keyed"]).run().exits(1).says("has an `Authorization` in its `headers`");
    home.aye(&["mcp", "test", "keyed"]).run().exits(1).says("rejects the `Authorization`");
    home.aye(&["mcp", "login", "nobody"]).run().exits(2);
    home.aye(&["mcp", "login", "far", "--wait", "1"]).run().exits(1).says("no login within 1 s");
    far.state().is_mute = true;
    home.aye(&["mcp", "test", "far"]).run().exits(1).says("needs login");
    far.state().lasts = 3600;
}

const RESOURCE: &str = "/.well-known/oauth-protected-resource/mcp";
const ISSUER: &str = "/.well-known/oauth-authorization-server";

/// Revision 2025-03-26 has no metadata of the resource: the server itself is the authorization server.
#[test]
fn a_server_of_an_older_revision_is_its_own_issuer() {
    for without in [vec![RESOURCE], vec![RESOURCE, ISSUER]] {
        let llm = calls();
        let (home, far) = added(&llm);
        {
            let mut state = far.state();
            (state.is_mute, state.lasts) = (true, 1);
            state.without.clone_from(&without);
        }
        logged_in(&home);
        home.ok(&["-p", "go"]).prints("It is done.");
        // Its tokens are renewed where they come from.
        far.revoke(false);
        home.ok(&["-p", "go"]).prints("It is done.");
        assert_eq!(far.count("POST /register"), 1);
        assert!(far.count("POST /token") > 1, "{without:?}");
        assert_eq!(far.state().wrong, [] as [String; 0], "{without:?}");
    }
}

#[test]
fn a_server_without_any_login_gets_no_made_up_one() {
    let llm = calls();
    let (home, far) = added(&llm);
    far.state().without = vec!["/mcp", RESOURCE, ISSUER];
    home.aye(&["mcp", "login", "far"]).run().exits(1).says("does not describe how to log in");
    far.state().without = vec![RESOURCE, ISSUER, "/register"];
    far.state().is_mute = true;
    home.aye(&["mcp", "login", "far"]).run().exits(1);
    assert_eq!(far.count("GET /authorize"), 0);
}

/// Metadata that is missing for a while says nothing about the tokens.
#[test]
fn tokens_survive_a_login_server_that_does_not_describe_itself() {
    let llm = calls();
    let (home, far) = added(&llm);
    far.state().path = "/as";
    logged_in(&home);
    far.revoke(false);
    far.state().without = vec![RESOURCE, "/.well-known/oauth-authorization-server/as"];
    home.aye(&["mcp", "test", "far"]).run().exits(1);
    assert_eq!(far.count("POST /token"), 1, "nothing is sent to another issuer");
    far.state().without.clear();
    home.ok(&["mcp", "test", "far"]);
}

#[test]
fn a_manually_registered_client_is_used() {
    let llm = calls();
    let (home, far) = (Home::with(&llm), Far::start());
    let port =
        std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port();
    let servers = json!({"mcpServers": {"far": {"type": "http", "url": far.url(),
        "oauth": {"clientId": "by-hand", "callbackPort": port, "scopes": "tools more"}}}});
    home.write(".mcp.json", &servers.to_string());
    home.aye(&["mcp", "login", "far"]).run().exits(2).says("not trusted");
    let mut login = home.aye(&["--trust", "mcp", "login", "far"]).spawn();
    let address = login.until_line("/authorize?").trim().to_owned();
    assert!(address.contains("client_id=by-hand") && address.contains("scope=tools+more"), "{address}");
    let back = location(&get(&address).1);
    assert!(back.starts_with(&format!("http://127.0.0.1:{port}/callback?")), "{back}");
    get(&back);
    login.end().exits(0);
    assert_eq!(far.count("POST /register"), 0);
    assert_eq!(far.state().wrong, [] as [String; 0]);
}

#[test]
fn the_url_can_be_pasted_when_the_browser_is_elsewhere() {
    let llm = calls();
    let (home, far) = added(&llm);
    let tty = Pty::start(&home, &["mcp", "login", "far"], 200, 30);
    tty.shows("it ends at here.");
    let screen = tty.look(|view| view.screen());
    let at =
        screen.find("/authorize?").and_then(|at| screen[..at].rfind("http://")).expect("a valid address");
    let address: String = screen[at..].chars().take_while(|c| !c.is_whitespace()).collect();
    let back = location(&get(&address).1);
    tty.send("no address\r");
    tty.shows("invalid URL");
    tty.send(&format!("{back}\r"));
    tty.shows("logged in to far");
    assert_eq!(far.count("POST /token"), 1);
}

#[test]
fn a_revoked_token_is_reported_in_the_terminal() {
    let llm = calls();
    let (home, far) = added(&llm);
    logged_in(&home);
    let mut tty = Pty::start(&home, &[], 100, 40);
    tty.ready();
    tty.connects("✓ far  connected");
    far.revoke(true);
    tty.say("go");
    tty.shows("It is done.");
    tty.shows("MCP server far: needs login: aye mcp login far");
    tty.say("/mcp");
    tty.shows("/mcp login far, or aye mcp login far in a shell");
    assert!(llm.last().result("c1").contains("authorization required"), "{}", llm.last().result("c1"));
    logged_in(&home);
    tty.say("/mcp restart far");
    tty.shows("Restarting");
    tty.quit();
}

#[test]
fn a_call_beyond_the_granted_scope_says_how_to_grant_it() {
    let llm = calls();
    let (home, far) = added(&llm);
    logged_in(&home);
    far.state().scope = Some("tools write");
    home.ok(&["-p", "go"]);
    let result = llm.last().result("c1");
    assert!(result.contains("aye mcp login far --scope 'tools write'"), "{result}");
}

#[test]
fn doctor_shows_each_servers_login_and_starts_none() {
    let llm = calls();
    let (home, far) = added(&llm);
    let servers = json!({"mcpServers": {"shed": {"command": "touch", "args": ["started"]}}});
    home.write(".mcp.json", &servers.to_string());
    let rows = |home: &Home| {
        let checks = home.ok(&["doctor", "--json"]).json();
        let all = checks.as_array().expect("doctor checks");
        let check = all.iter().find(|check| check["name"] == "mcp servers").expect("servers").clone();
        (check["state"].clone(), check["servers"][0].clone(), check["servers"][1].clone())
    };
    let (state, own, project) = rows(&home);
    assert_eq!(state, "warning", "the project's needs trust");
    assert_eq!(
        (&own["name"], &own["transport"], &own["login"]),
        (&json!("far"), &json!("streamable http"), &json!("none"))
    );
    assert!(own["place"].as_str().is_some_and(|place| place.contains("config.toml:")), "{own:#}");
    assert_eq!(
        (&project["name"], &project["trusted"], &project["login"]),
        (&json!("shed"), &json!(false), &json!(null))
    );
    assert_eq!(project["agreed_tools"], json!(null));
    assert_eq!(far.state().asked, [] as [String; 0], "nobody is asked");
    home.aye(&["mcp", "test", "far"]).run().exits(1);
    let text = home.ok(&["doctor"]).stdout;
    for words in [
        "2 configured, 2 of them need your action",
        "far  user, streamable http, from ",
        "trusted; not used yet; needs login: aye mcp login far",
        "shed  project, stdio, from ",
        ".mcp.json:1:",
        "touch started",
        "not trusted: not started; no tool trusted yet",
    ] {
        assert!(text.contains(words), "{words} in {text}");
    }
    logged_in(&home);
    home.ok(&["-p", "go"]);
    let (_, own, _) = rows(&home);
    assert_eq!(
        (&own["login"], &own["agreed_tools"], &own["needs_login"]),
        (&json!("logged_in"), &json!(1), &json!(false))
    );
    assert!(!home.work().join("started").exists());
}

/// Configures the server as CI does: its own client, with the secret in a variable.
fn unattended(home: &Home, far: &Far) {
    let server = json!({"url": far.url(), "oauth": {"clientId": "ci", "clientSecret": "${CI_SECRET}",
        "grantType": "client_credentials"}});
    home.write(".mcp.json", &json!({"mcpServers": {"far": server}}).to_string());
    home.rules("rules: [{tool: 'mcp__far__*', behavior: allow}]");
}

#[test]
fn ci_logs_in_with_a_client_secret_and_stores_no_token() {
    let llm = calls();
    let (home, far) = (Home::with(&llm), Far::start());
    unattended(&home, &far);
    let aye = |secret: &str, args: &[&str]| home.aye(args).env("CI_SECRET", secret).run();
    // Such a login needs neither a browser nor PKCE.
    far.state().metadata.insert("code_challenge_methods_supported", json!(null));
    aye("ci-s3cret", &["--trust", "-p", "go"]).exits(0);
    assert_eq!(llm.last().result("c1"), "called with a token");
    assert_eq!((far.count("POST /token"), far.count("GET /authorize")), (1, 0));
    assert_eq!(far.state().wrong, [] as [String; 0]);
    assert_eq!(login_files(&home), [] as [std::path::PathBuf; 0]);
    let seen = everything(&home);
    for secret in far.state().secrets.iter().map(String::as_str).chain(["ci-s3cret"]) {
        assert!(!seen.contains(secret), "{secret} is elsewhere");
    }
    // A token that expires during a run is replaced.
    far.state().lasts = 1;
    aye("ci-s3cret", &["--trust", "-p", "go"]).exits(0);
    assert_eq!(llm.last().result("c1"), "called with a token");
    assert!(far.count("POST /token") > 2);
    let refused = aye("wrong", &["--trust", "mcp", "test", "far"]).exits(1);
    assert!(
        !refused.stderr.contains("aye mcp login") && !refused.stderr.contains("wrong\""),
        "{}",
        refused.stderr
    );
    aye("x", &["--trust", "mcp", "login", "far"]).exits(1).says("aye logs in automatically");
}
