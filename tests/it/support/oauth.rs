//! A loopback MCP server that needs a token, and its authorization server (OAuth 2.1): strict about all
//! duties of a client, and as odd as a test wants.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// Deviations from the standard behaviour, and the recorded events.
#[derive(Default)]
pub struct State {
    /// Overridden fields of its metadata.
    pub metadata: BTreeMap<&'static str, Value>,
    /// The lifetime of a token in seconds.
    pub lasts: u64,
    /// The scope that its tools need besides a login.
    pub scope: Option<&'static str>,
    /// Denies every login.
    pub denies: bool,
    /// Does not revoke tokens.
    pub keeps: bool,
    /// Sends 401 and nothing else.
    pub is_mute: bool,
    /// The paths that do not exist.
    pub without: Vec<&'static str>,
    /// The path of its issuer.
    pub path: &'static str,
    tokens: BTreeSet<String>,
    renewals: BTreeSet<String>,
    codes: BTreeMap<String, BTreeMap<String, String>>,
    /// The requests: method and path.
    pub asked: Vec<String>,
    /// Every issued secret.
    pub secrets: Vec<String>,
    /// Violations by the client.
    pub wrong: Vec<String>,
    count: usize,
}

#[derive(Clone)]
pub struct Far {
    base: String,
    state: Arc<Mutex<State>>,
}

struct Request {
    method: String,
    path: String,
    query: BTreeMap<String, String>,
    bearer: Option<String>,
    body: Vec<u8>,
}

fn pairs(text: &str) -> BTreeMap<String, String> {
    let url = reqwest::Url::parse(&format!("http://x/?{text}")).expect("a query");
    url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect()
}

fn read(stream: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let (mut length, mut bearer) = (0, None);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        match name.to_lowercase().as_str() {
            "content-length" => length = value.trim().parse().ok()?,
            "authorization" => bearer = value.trim().strip_prefix("Bearer ").map(str::to_owned),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Request { method, path: path.to_owned(), query: pairs(query), bearer, body })
}

fn say(mut stream: &TcpStream, status: &str, headers: &str, body: &str) {
    let text = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n{headers}\r\n{body}",
        body.len()
    );
    let _ = stream.write_all(text.as_bytes());
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let _ = std::io::copy(&mut stream, &mut std::io::sink());
}

impl Far {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let base = format!("http://{}", listener.local_addr().expect("a valid address"));
        let state = State { lasts: 3600, ..State::default() };
        let far = Self { base, state: Arc::new(Mutex::new(state)) };
        let server = far.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = server.clone();
                std::thread::spawn(move || {
                    if let Some(request) = read(&stream) {
                        server.answer(&request, &stream);
                    }
                });
            }
        });
        far
    }

    pub fn url(&self) -> String {
        format!("{}/mcp", self.base)
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("not poisoned")
    }

    /// How often a path was requested.
    pub fn count(&self, asked: &str) -> usize {
        self.state().asked.iter().filter(|line| *line == asked).count()
    }

    /// Revokes all tokens; with `renewals` also the refresh tokens.
    pub fn revoke(&self, renewals: bool) {
        let mut state = self.state();
        state.tokens.clear();
        if renewals {
            state.renewals.clear();
        }
    }

    fn answer(&self, request: &Request, stream: &TcpStream) {
        let mut state = self.state();
        state.asked.push(format!("{} {}", request.method, request.path));
        let issuer = format!("{}{}", self.base, state.path);
        let about_issuer = format!("/.well-known/oauth-authorization-server{}", state.path);
        match (request.method.as_str(), request.path.as_str()) {
            (_, path) if state.without.contains(&path) => say(stream, "404 Not Found", "", ""),
            (_, "/mcp") => self.tools(request, &state, stream),
            ("GET", "/.well-known/oauth-protected-resource/mcp") => {
                let about = json!({"resource": self.url(), "authorization_servers": [issuer],
                    "scopes_supported": ["tools"]});
                say(stream, "200 OK", "", &about.to_string());
            }
            ("GET", path) if path == about_issuer => {
                let at = |path: &str| format!("{}{path}", self.base);
                let mut about = json!({
                    "issuer": issuer,
                    "authorization_endpoint": at("/authorize"),
                    "token_endpoint": at("/token"),
                    "registration_endpoint": at("/register"),
                    "response_types_supported": ["code"],
                    "code_challenge_methods_supported": ["S256"],
                    "authorization_response_iss_parameter_supported": true,
                });
                for (name, value) in &state.metadata {
                    about[*name] = value.clone();
                    if value.is_null() {
                        about.as_object_mut().expect("an object").remove(*name);
                    }
                }
                say(stream, "200 OK", "", &about.to_string());
            }
            ("POST", "/register") => {
                let asked: Value = serde_json::from_slice(&request.body).expect("JSON");
                state.count += 1;
                let about = json!({"client_id": format!("client-{}", state.count), "redirect_uris": asked["redirect_uris"]});
                say(stream, "201 Created", "", &about.to_string());
            }
            ("GET", "/authorize") => self.authorize(request, &mut state, stream),
            ("POST", "/token") => self.token(request, &mut state, stream),
            ("POST", "/revoke") => Self::take_back(request, &mut state, stream),
            _ => say(stream, "404 Not Found", "", ""),
        }
    }

    fn authorize(&self, request: &Request, state: &mut State, stream: &TcpStream) {
        let query = &request.query;
        let has = |name: &str| query.get(name).map_or("", String::as_str);
        for (name, wanted) in
            [("response_type", "code"), ("code_challenge_method", "S256"), ("resource", &self.url())]
        {
            if has(name) != wanted {
                state.wrong.push(format!("{name} is {:?}", has(name)));
            }
        }
        if has("state").len() < 16 || !has("redirect_uri").starts_with("http://127.0.0.1:") {
            state.wrong.push(format!("{query:?}"));
        }
        let mut back = reqwest::Url::parse(has("redirect_uri")).expect("a valid address");
        if state.denies {
            back.query_pairs_mut().append_pair("error", "access_denied").append_pair("state", has("state"));
        } else {
            state.count += 1;
            let code = format!("code-{}-s3cret", state.count);
            state.secrets.push(code.clone());
            back.query_pairs_mut()
                .append_pair("code", &code)
                .append_pair("state", has("state"))
                .append_pair("iss", &format!("{}{}", self.base, state.path));
            state.codes.insert(code, query.clone());
        }
        say(stream, "302 Found", &format!("location: {back}\r\n"), "");
    }

    fn token(&self, request: &Request, state: &mut State, stream: &TcpStream) {
        let form = pairs(&String::from_utf8_lossy(&request.body));
        let has = |name: &str| form.get(name).map_or("", String::as_str);
        if has("resource") != self.url() {
            state.wrong.push(format!("resource is {:?}", has("resource")));
        }
        let is_good = match has("grant_type") {
            "authorization_code" => state.codes.remove(has("code")).is_some_and(|asked| {
                let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(has("code_verifier")));
                asked["code_challenge"] == challenge
                    && asked["redirect_uri"] == has("redirect_uri")
                    && asked["client_id"] == has("client_id")
            }),
            "refresh_token" => state.renewals.remove(has("refresh_token")),
            "client_credentials" => has("client_id") == "ci" && has("client_secret") == "ci-s3cret",
            _ => false,
        };
        if !is_good {
            return say(stream, "400 Bad Request", "", r#"{"error":"invalid_grant"}"#);
        }
        state.count += 1;
        let (token, renewal) =
            (format!("access-{}-s3cret", state.count), format!("renew-{}-s3cret", state.count));
        state.tokens.insert(token.clone());
        state.renewals.insert(renewal.clone());
        state.secrets.extend([token.clone(), renewal.clone()]);
        let given = json!({"access_token": token, "token_type": "Bearer", "expires_in": state.lasts,
            "refresh_token": renewal, "scope": "tools"});
        say(stream, "200 OK", "cache-control: no-store\r\n", &given.to_string());
    }

    /// Revokes tokens (RFC 7009).
    fn take_back(request: &Request, state: &mut State, stream: &TcpStream) {
        if state.keeps {
            return say(stream, "503 Service Unavailable", "", "");
        }
        let form = pairs(&String::from_utf8_lossy(&request.body));
        let has = |name: &str| form.get(name).map_or("", String::as_str);
        if !has("client_id").starts_with("client-") {
            state.wrong.push(format!("client_id is {:?}", has("client_id")));
        }
        let was_there = match has("token_type_hint") {
            "refresh_token" => state.renewals.remove(has("token")),
            "access_token" => state.tokens.remove(has("token")),
            other => {
                state.wrong.push(format!("token_type_hint is {other:?}"));
                false
            }
        };
        if !was_there {
            state.wrong.push("a token is taken back that was not given".to_owned());
        }
        say(stream, "200 OK", "", "");
    }

    /// The number of valid tokens.
    pub fn left(&self) -> usize {
        let state = self.state();
        state.tokens.len() + state.renewals.len()
    }

    fn tools(&self, request: &Request, state: &State, stream: &TcpStream) {
        if !request.bearer.as_ref().is_some_and(|token| state.tokens.contains(token)) {
            let told = format!(
                "www-authenticate: Bearer resource_metadata=\"{}/.well-known/oauth-protected-resource/mcp\"\r\n",
                self.base
            );
            return say(stream, "401 Unauthorized", if state.is_mute { "" } else { &told }, "");
        }
        if request.method != "POST" {
            return say(stream, "405 Method Not Allowed", "", "");
        }
        let asked: Value = serde_json::from_slice(&request.body).expect("JSON");
        let result = match asked["method"].as_str().unwrap_or_default() {
            "initialize" => json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                "serverInfo": {"name": "far", "version": "1"}}),
            "tools/list" => json!({"tools": [{"name": "echo", "description": "does echo",
                "inputSchema": {"type": "object"}}]}),
            "tools/call" => match state.scope {
                Some(scope) => {
                    let told = format!(
                        "www-authenticate: Bearer error=\"insufficient_scope\", scope=\"{scope}\"\r\n"
                    );
                    return say(stream, "403 Forbidden", &told, "");
                }
                None => json!({"content": [{"type": "text", "text": "called with a token"}]}),
            },
            method if method.starts_with("notifications/") => return say(stream, "202 Accepted", "", ""),
            _ => {
                let error =
                    json!({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "no"}});
                return say(stream, "200 OK", "", &error.to_string());
            }
        };
        say(
            stream,
            "200 OK",
            "",
            &json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}).to_string(),
        );
    }
}

/// Requests a URL like a browser, without following redirects.
pub fn get(address: &str) -> (u16, String) {
    let url = reqwest::Url::parse(address).expect("a valid address");
    let host = (url.host_str().expect("a host"), url.port().expect("a port"));
    let mut stream = TcpStream::connect(host).expect("a server");
    let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
    let target = format!("{}{query}", url.path());
    write!(stream, "GET {target} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", host.0).expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    let status = text.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status");
    (status, text)
}

/// The redirect target of a response.
pub fn location(answer: &str) -> String {
    let line = answer.lines().find_map(|line| line.strip_prefix("location: "));
    line.expect("has a redirect target").to_owned()
}
