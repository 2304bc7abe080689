use std::time::Duration;

use aye_core::contract::server::{LoginGrant, ProtocolRevision, ServerTransport};
use secrecy::ExposeSecret as _;

use super::variables::fill;
use super::*;
use crate::{Flags, Sources, load};
use aye_core::contract::judgement::Profile;

fn read(text: &str) -> (Vec<Written>, Vec<String>) {
    parse(Path::new("/r/.mcp.json"), text)
}

fn all(text: &str, env: &Env) -> Servers {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join(SERVERS_FILE);
    std::fs::write(&file, text).expect("written");
    let settings = crate::Settings::default();
    let mut servers = load_servers(
        &settings.mcp_servers,
        &settings.mcp,
        &Provenance::default(),
        Path::new("/u/config.toml"),
        &[file],
        dir.path(),
        env,
    );
    let path = dir.path().to_string_lossy().into_owned();
    for problem in &mut servers.problems {
        *problem = problem.replace(&path, "/r");
    }
    servers
}

fn env() -> Env {
    Env::of(&[("TOKEN", "s3cret"), ("EMPTY", "")], "/home/u", "/r")
}

#[test]
fn the_common_mcp_json_format_is_read() {
    let text = r#"{
  "$schema": "x",
  "mcpServers": {
    "files": {"command": "npx", "args": ["-y", "server", "${DIR:-/tmp}"], "env": {"TOKEN": "${TOKEN}", "N": 1}, "alwaysAllow": ["x"]},
    "remote": {"type": "http", "url": "https://example.test/mcp?k=${TOKEN}", "headers": {"Authorization": "Bearer ${TOKEN}"}, "timeout": 1500},
    "off": {"command": "x", "disabled": true}
  }
}"#;
    let servers = all(text, &env());
    assert_eq!(servers.problems, [] as [String; 0]);
    let [files, remote] = &servers.usable[..] else { panic!("{servers:?}") };
    let ServerTransport::Stdio { command, args, env, .. } = &files.transport else { panic!("{files:?}") };
    assert_eq!(command, "npx");
    assert_eq!(
        args.iter().map(secrecy::ExposeSecret::expose_secret).collect::<Vec<_>>(),
        ["-y", "server", "/tmp"]
    );
    assert_eq!(env["TOKEN"].expose_secret(), "s3cret");
    assert_eq!(env["N"].expose_secret(), "1");
    assert_eq!(files.shown, "npx -y server '${DIR:-/tmp}' (env: N, TOKEN) (reads $TOKEN)");
    let ServerTransport::Http { url, headers, .. } = &remote.transport else { panic!("{remote:?}") };
    assert_eq!(url.expose_secret(), "https://example.test/mcp?k=s3cret");
    assert_eq!(headers["Authorization"].expose_secret(), "Bearer s3cret");
    assert_eq!(remote.timeout, Duration::from_millis(1500));
    assert!(!format!("{servers:?}").contains("s3cret"), "no value of a variable in the debug form");
}

#[test]
fn keys_in_the_users_own_files_are_not_shown() {
    let text = r#"{"mcpServers": {
    "files": {"command": "server", "args": ["--api-key", "s3cret", "/srv"]},
    "remote": {"url": "https://me:s3cret@example.test/mcp?k=s3cret"}
  }}"#;
    let (written, _) = read(text);
    let shown = |is_own| written.iter().map(|server| server.shown(is_own)).collect::<Vec<_>>();
    assert_eq!(
        shown(true),
        ["server --api-key '(redacted)' /srv", "https://(redacted)@example.test/mcp?(redacted)"]
    );
    assert_eq!(shown(false)[0], "server --api-key s3cret /srv", "a project's is trusted verbatim");
}

#[test]
fn a_missing_variable_disables_only_its_server() {
    let text = r#"{"mcpServers": {"a": {"command": "x", "args": ["${NOPE}"]}, "b": {"command": "x", "env": {"V": "${EMPTY:-d}"}}}}"#;
    let servers = all(text, &env());
    assert_eq!(servers.usable.len(), 1);
    assert_eq!(
        servers.problems,
        ["/r/.mcp.json:1:22: the server `a` is not started: it needs the variable NOPE, which is not set; \
          set it, or write ${NOPE:-default}"]
    );
}

#[test]
fn a_placeholder_of_another_program_is_named_and_never_sent() {
    let text = r#"{"mcpServers": {
    "a": {"url": "https://h/mcp", "headers": {"Authorization": "Bearer ${input:jenkins-token}"}},
    "b": {"command": "x", "env": {"K": "${env:TOKEN}", "S": "${x%%y}"}}
  }}"#;
    let servers = all(text, &env());
    assert_eq!(
        servers.problems,
        [
            "/r/.mcp.json:2:10: the server `a` is not started: it needs `${input:jenkins-token}`, which another \
          program asks for and aye does not; write ${JENKINS_TOKEN} and set that variable"
        ]
    );
    let [server] = &servers.usable[..] else { panic!("{servers:?}") };
    let ServerTransport::Stdio { env, .. } = &server.transport else { panic!("{server:?}") };
    assert_eq!((env["K"].expose_secret(), env["S"].expose_secret()), ("s3cret", "${x%%y}"));
}

#[test]
fn tools_can_be_left_out_and_a_revision_named() {
    let text = r#"{"mcpServers": {
    "a": {"command": "x", "disabledTools": ["drop"], "excludeTools": ["b"], "protocolVersion": "2025-11-25"},
    "b": {"command": "x", "tools": ["*"], "description": "does things"},
    "c": {"command": "x", "tools": ["one", "two"], "includeTools": ["two"]},
    "d": {"command": "x", "disabledTools": "drop"},
    "e": {"command": "x", "protocolVersion": "2"}
  }}"#;
    let servers = all(text, &env());
    let [a, b, c] = &servers.usable[..] else { panic!("{servers:?}") };
    assert_eq!((a.tools.allows("drop"), a.tools.allows("b"), a.tools.allows("read")), (false, false, true));
    assert_eq!(a.revision, Some(ProtocolRevision::V2025_11_25));
    assert!(a.shown.ends_with("(without the tools: drop, b)"), "{}", a.shown);
    assert!(b.tools.allows("anything"));
    assert_eq!((c.tools.allows("one"), c.tools.allows("two")), (false, true));
    assert_eq!(
        servers.problems,
        [
            "/r/.mcp.json:5:44: `disabledTools` must be a list of strings; the server `d` is not started",
            "/r/.mcp.json:6:46: `protocolVersion` must be one of \"2024-11-05\", \"2025-03-26\", \
             \"2025-06-18\", \"2025-11-25\", \"2026-07-28\"; the server `e` is not started",
        ]
    );
}

#[test]
fn a_mistake_is_reported_with_its_place_and_disables_one_server() {
    let text = "{\n  \"mcpServers\": {\n    \"a\": {\"command\": \"x\", \"args\": \"-y\"},\n    \"b\": {},\n    \"c\": {\"command\": \"x\", \"url\": \"http://h\"},\n    \"d\": [],\n    \"e\": {\"command\": \"e\"},\n    \"e\": {\"command\": \"evil\"},\n    \"f\": {\"command\": \"x\", \"command\": \"y\"},\n    \"g\": {\"type\": \"ws\", \"url\": \"ws://h\"},\n    \"h\": {\"command\": \"x\", \"env\": {\"A\": []}},\n    \"\": {\"command\": \"x\"}\n  }\n}";
    let (servers, problems) = read(text);
    assert_eq!(
        servers.iter().map(|s| (s.name.as_str(), s.entry.command.as_deref())).collect::<Vec<_>>(),
        [("e", Some("e"))]
    );
    assert_eq!(
        problems,
        [
            "/r/.mcp.json:3:35: `args` must be a list of strings; the server `a` is not started",
            "/r/.mcp.json:4:10: neither `command` nor `url` is set; add one; the server `b` is not started",
            "/r/.mcp.json:5:10: both `command` and `url` are set; remove one; the server `c` is not started",
            "/r/.mcp.json:6:10: a server must be an object, not a list; the server `d` is not started",
            "/r/.mcp.json:8:10: duplicate server `e`; the first one is used",
            "/r/.mcp.json:9:38: `command` is duplicated; the server `f` is not started",
            "/r/.mcp.json:10:19: `type` must be one of stdio, http; the server `g` is not started",
            "/r/.mcp.json:11:34: `env` has a list for `A`; expected a string; the server `h` is not started",
            "/r/.mcp.json:12:9: a server needs a name; the server `` is not started",
        ]
    );
}

#[test]
fn invalid_json_is_reported_with_line_and_column() {
    for (text, problem) in [
        ("{\n  \"mcpServers\": {,}}", "/r/.mcp.json:2:18: not a valid MCP server file: key must be a string"),
        ("", "/r/.mcp.json:1:0: not a valid MCP server file: EOF while parsing a value"),
        ("[]", "/r/.mcp.json:1:0: not a valid MCP server file: invalid type: sequence, expected an object"),
        ("{\"mcpServers\": 3}", "/r/.mcp.json:1:16: `mcpServers` must be an object, not a number"),
    ] {
        let (servers, problems) = read(text);
        assert!(servers.is_empty());
        assert_eq!(problems, [problem], "{text}");
    }
    assert!(read("{}").1[0].starts_with("/r/.mcp.json: `mcpServers` is missing"));
}

#[test]
fn the_trust_question_hides_nothing() {
    let text = "{\"mcpServers\": {\"a\\u202eb\": {\"command\": \"sh\", \"args\": [\"-c\", \"rm -rf ~\\n\"], \"env\": {\"K\": \"${OPENAI_API_KEY}\"}}}}";
    let (servers, unreadable) = offered(Path::new("/r/.mcp.json"), text);
    let [server] = servers.as_slice() else { panic!("{servers:?}") };
    assert!(server.is_program && unreadable == 0);
    assert_eq!((server.name.as_str(), server.runs.as_str()), ("a\u{202e}b", "sh -c 'rm -rf ~\n'"));
    assert_eq!(
        server.facts,
        [
            "with the variables 'K=${OPENAI_API_KEY}'",
            "reads $OPENAI_API_KEY from your environment",
            "tools: those that it offers when it first starts"
        ]
    );
}

#[test]
fn the_trust_question_names_the_tools_that_it_covers_and_no_server_that_is_off() {
    let text = r#"{"mcpServers": {
        "off": {"command": "x", "disabled": true},
        "a": {"command": "x", "cwd": "a b", "enabledTools": ["read"], "domains": ["api.example.org"]},
        "b": {"url": "https://h/mcp", "headers": {"X": "a b"}, "disabledTools": ["drop"]},
        "broken": {}
    }}"#;
    let (servers, unreadable) = offered(Path::new("/r/.mcp.json"), text);
    let shown: Vec<String> = servers
        .iter()
        .map(|server| format!("{} {} {}", server.name, server.runs, server.facts.join("; ")))
        .collect();
    assert_eq!(
        shown,
        [
            "a x in the folder 'a b'; may connect to api.example.org; tools: only read",
            "b https://h/mcp with the headers 'X=a b'; tools: those that it offers when it first starts, without drop",
        ]
    );
    assert_eq!(unreadable, 1);
    // The answer is about exactly this text: whatever else the server would do has another digest.
    let digest = |text: &str| offered(Path::new("/r/.mcp.json"), text).0[0].digest.clone();
    let of = |members: &str| digest(&format!(r#"{{"mcpServers": {{"a": {{"command": "x"{members}}}}}}}"#));
    let others = [
        "",
        r#", "args": ["y"]"#,
        r#", "env": {"A": "1"}"#,
        r#", "cwd": "y""#,
        r#", "domains": ["h.example"]"#,
    ];
    let digests: BTreeSet<String> = others.into_iter().map(of).collect();
    assert_eq!(digests.len(), others.len());
}

#[test]
fn allowed_domains_are_shown_and_covered_by_trust() {
    let of =
        |domains: &str| all(&format!(r#"{{"mcpServers": {{"a": {{"command": "x"{domains}}}}}}}"#), &env());
    let (none, some) = (of(""), of(r#", "domains": ["api.example.org", "*.example.com"]"#));
    let (none, some) = (&none.usable[0], &some.usable[0]);
    assert_eq!((none.shown.as_str(), none.profile()), ("x", Some(Profile::Workspace)));
    assert_eq!(some.shown, "x (network: api.example.org, *.example.com)");
    assert_ne!(none.digest, some.digest);
    let ServerTransport::Stdio { domains, .. } = &some.transport else { panic!("{some:?}") };
    assert!(domains[1].matches("x.example.com") && !domains[0].matches("x.example.org"));
    for wrong in [r#"["http://x"]"#, r#"["127.0.0.1"]"#, r#""example.org""#] {
        let problems = of(&format!(r#", "domains": {wrong}"#)).problems;
        assert!(problems[0].contains("`domains` "), "{problems:?}");
    }
}

#[test]
fn the_settings_name_servers_and_a_project_cannot_mix_into_them() {
    let dir = tempfile::tempdir().expect("a folder");
    let (user, project) = (dir.path().join("user.toml"), dir.path().join("project.toml"));
    std::fs::write(
        &user,
        "[mcp_servers.a]\ncommand = \"mine\"\nenv = {TOKEN = \"${TOKEN}\"}\ntimeout = \"3s\"\n[mcp_servers.off]\ncommand = \"x\"\nenabled = false\n",
    )
    .expect("written");
    std::fs::write(
        &project,
        "[mcp_servers.a]\ncommand = \"theirs\"\n[mcp_servers.\"b.c\"]\nurl = \"http://127.0.0.1:1/\"\n",
    )
    .expect("written");
    let env = env();
    let read = |is_trusted| {
        let sources = Sources {
            user: &user,
            project: std::slice::from_ref(&project),
            is_trusted,
            env: &env,
            flags: &Flags::default(),
            policy: None,
        };
        let loaded = load(&sources).expect("loads");
        let servers = load_servers(
            &loaded.settings.mcp_servers,
            &loaded.settings.mcp,
            &loaded.provenance,
            &user,
            &[],
            dir.path(),
            &env,
        );
        (loaded, servers)
    };
    let (loaded, servers) = read(true);
    assert_eq!(servers.problems, [] as [String; 0]);
    let names: Vec<_> =
        servers.usable.iter().map(|s| (s.name.as_str(), s.scope.to_string(), s.shown.as_str())).collect();
    assert_eq!(
        names,
        [
            ("a", "user".to_owned(), "mine (env: TOKEN) (reads $TOKEN)"),
            ("b.c", "project".to_owned(), "http://127.0.0.1:1/")
        ]
    );
    assert_eq!(servers.usable[0].timeout, Duration::from_secs(3));
    assert_eq!(loaded.warnings.len(), 1, "{:?}", loaded.warnings);
    assert!(loaded.warnings[0].to_string().contains("another file with precedence"));
    let (loaded, servers) = read(false);
    assert_eq!(servers.usable.len(), 1, "only the user's own before the folder is trusted");
    assert!(loaded.warnings.iter().any(|w| w.to_string().contains("until you trust this folder")));
}

#[test]
fn only_variable_names_are_expanded() {
    let mut asked = Vec::new();
    let text = fill("${A}-${B:-x}-${not a name}-$C-${D", &mut |name, default| {
        asked.push(name.to_owned());
        default.map(str::to_owned).or(Some("1".to_owned()))
    });
    assert_eq!(text.as_deref(), Ok("1-x-${not a name}-$C-${D"));
    assert_eq!(asked, ["A", "B"]);
}

#[test]
fn login_settings_are_shown_and_covered_by_trust() {
    let with = |more: &str| {
        let text = format!(r#"{{"mcpServers": {{"a": {{"url": "https://example.test/mcp"{more}}}}}}}"#);
        all(&text, &env())
    };
    let plain = with("");
    let one = with(
        r#", "oauth": {"clientId": "me", "clientSecret": "${TOKEN}", "callbackPort": 8123, "scopes": "a b", "x": 1}"#,
    );
    let [server] = &one.usable[..] else { panic!("{one:?}") };
    let ServerTransport::Http { login, .. } = &server.transport else { panic!("{server:?}") };
    assert_eq!((login.client_id.as_deref(), login.port), (Some("me"), Some(8123)));
    assert_eq!(login.client_secret.as_ref().map(secrecy::ExposeSecret::expose_secret), Some("s3cret"));
    assert_eq!(login.scopes, ["a", "b"]);
    // The trust question shows which variable is sent there.
    assert_eq!(server.shown, "https://example.test/mcp (reads $TOKEN)");
    assert_ne!(server.digest, plain.usable[0].digest);
    let unattended =
        r#", "oauth": {"clientId": "me", "clientSecret": "s", "grantType": "client_credentials"}"#;
    let unattended = with(unattended);
    let ServerTransport::Http { login, .. } = &unattended.usable[0].transport else {
        panic!("{unattended:?}")
    };
    assert_eq!(login.grant, LoginGrant::ClientCredentials);
    for (wrong, why) in [
        (r#""oauth": {"clientId": "me", "grantType": "client_credentials"}"#, "needs `oauth_client_id` and"),
        (
            r#""oauth": {"grantType": "password"}"#,
            "`oauth.grantType` must be one of \"authorization_code\", \"client_credentials\"",
        ),
    ] {
        let found = with(&format!(", {wrong}"));
        assert!(found.usable.is_empty() && found.problems[0].contains(why), "{found:?}");
    }
    assert_eq!(with(r#", "oauth": {}"#).usable[0].digest, plain.usable[0].digest);
    for wrong in [r#""oauth": 1"#, r#""oauth": {"callbackPort": 70000}"#, r#""oauth": {"clientId": 3}"#] {
        let found = with(&format!(", {wrong}"));
        assert_eq!((found.usable.len(), found.problems.len()), (0, 1), "{found:?}");
    }
}

#[test]
fn the_older_transport_is_refused_with_the_url_to_use() {
    for (kind, url, wanted) in [
        (
            "\"type\": \"sse\"",
            "https://h/v1/sse?key=s3cret",
            "streamable HTTP URL, probably https://h/v1/mcp;",
        ),
        ("\"transport\": \"sse\"", "https://h/events", "streamable HTTP URL, probably https://h/events;"),
        ("\"type\": \"SSE\"", "https://h/v1/SSE/", "streamable HTTP URL, probably https://h/v1/mcp;"),
    ] {
        // In any order of the fields.
        for fields in [format!("{kind}, \"url\": \"{url}\""), format!("\"url\": \"{url}\", {kind}")] {
            let (servers, problems) = read(&format!("{{\"mcpServers\": {{\"a\": {{{fields}}}}}}}"));
            let [problem] = &problems[..] else { panic!("{problems:?}") };
            assert!(
                servers.is_empty() && problem.contains("is \"sse\", the HTTP+SSE transport"),
                "{problem}"
            );
            assert!(problem.contains(wanted) && !problem.contains("s3cret"), "{problem}");
            assert!(problem.starts_with("/r/.mcp.json:1:"), "{problem}");
        }
    }
}
