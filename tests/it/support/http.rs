//! A client of `aye serve`: plain requests over a socket, so that tests check the bytes on the wire.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::Value;

use super::home::{Home, Running};
use super::llm::PATIENCE;

/// A server as seen by a client.
pub struct Far {
    /// `127.0.0.1:PORT`.
    pub address: String,
    /// The initial token.
    pub token: String,
}

/// A server and its client.
pub struct Server {
    far: Far,
    pub running: Running,
}

impl Deref for Server {
    type Target = Far;

    fn deref(&self) -> &Far {
        &self.far
    }
}

impl DerefMut for Server {
    fn deref_mut(&mut self) -> &mut Far {
        &mut self.far
    }
}

/// A response.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The code of an error.
    pub fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }
}

/// Returns a free address that no one else takes while a server restarts: its port is below those that the system hands
/// out, and no other test of this process gets it.
pub fn lasting_address() -> String {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = u16::try_from(std::process::id() % 8000).unwrap_or(0);
    let free = std::iter::repeat_with(|| 20_000 + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 8000)
        .map(|port| format!("127.0.0.1:{port}"))
        .find(|address| TcpListener::bind(address).is_ok());
    free.expect("a free port")
}

impl Server {
    /// Starts a server on a free port.
    pub fn start(home: &Home, args: &[&str]) -> Self {
        Self::start_at(home, "127.0.0.1:0", args)
    }

    pub fn start_at(home: &Home, address: &str, args: &[&str]) -> Self {
        let running = home.aye(&[&["serve", "--bind", address], args].concat()).spawn();
        running.until_told("within five minutes");
        Self::of(running, &home.root().join("aye/data"))
    }

    /// A server that was started, and the folder of its store.
    pub fn of(running: Running, data: &Path) -> Self {
        let told = running.told();
        let place =
            told.lines().find_map(|line| line.strip_prefix("serving on ")).expect("a serving address");
        let token = std::fs::read_to_string(data.join("serve-token")).unwrap_or_default();
        Self { far: Far { address: place.to_owned(), token: token.trim().to_owned() }, running }
    }

    /// The code to sign in with.
    pub fn sign_in_code(&self) -> String {
        let told = self.running.told();
        let (_, code) = told.split_once("#code=").expect("a code");
        code.split_whitespace().next().expect("a code").to_owned()
    }

    /// Stops it like a user.
    pub fn stop(self) {
        self.running.signal(rustix::process::Signal::TERM);
        self.running.end().exits(0);
    }
}

impl Far {
    /// Sends a request verbatim and reads the whole response.
    pub fn raw(&self, head: &str, body: &str) -> Reply {
        let mut stream = self.open(head, body);
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).expect("a status");
        let headers = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
        let headers: Vec<_> = headers.collect();
        let is_chunked =
            headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
        Reply { status, headers, body: if is_chunked { dechunked(body) } else { body.to_owned() } }
    }

    /// The status of the response to a head whose body never arrives.
    pub fn only_head(&self, head: &str) -> u16 {
        let mut stream = TcpStream::connect(&self.address).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
        stream.write_all(head.as_bytes()).expect("sent");
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).expect("an answer");
        line.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{line:?}"))
    }

    fn open(&self, head: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
        let length =
            if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        stream.write_all(format!("{head}{length}\r\n{body}").as_bytes()).expect("sent");
        stream
    }

    fn head(&self, method: &str, path: &str) -> String {
        format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Bearer {}\r\n",
            self.address, self.token
        )
    }

    pub fn get(&self, path: &str) -> Reply {
        self.raw(&self.head("GET", path), "")
    }

    pub fn send(&self, method: &str, path: &str, body: &Value) -> Reply {
        let head = format!("{}Content-Type: application/json\r\n", self.head(method, path));
        self.raw(&head, &body.to_string())
    }

    pub fn post(&self, path: &str, body: &Value) -> Reply {
        self.send("POST", path, body)
    }

    /// The one pending question.
    pub fn card(&self) -> Value {
        let cards = self.get("/v1/approvals").json();
        assert_eq!(cards["items"].as_array().map(Vec::len), Some(1), "{cards}");
        cards["items"][0].clone()
    }

    /// Approves a question as it was shown.
    pub fn approve(&self, card: &Value) -> Reply {
        let id = card["id"].as_str().expect("an id");
        self.post(
            &format!("/v1/approvals/{id}/approve"),
            &serde_json::json!({ "shown_hash": card["shown_hash"] }),
        )
    }

    /// Opens a stream of events.
    pub fn stream(&self, path: &str, headers: &str) -> Events {
        Self::events(self.open(&format!("{}{headers}", self.head("GET", path)), ""))
    }

    /// The same with a body; dropping the stream closes its connection.
    pub fn post_stream(&self, path: &str, headers: &str, body: &Value) -> Events {
        let head = format!("{}Content-Type: application/json\r\n{headers}", self.head("POST", path));
        Self::events(self.open(&head, &body.to_string()))
    }

    fn events(stream: TcpStream) -> Events {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        while reader.read_line(&mut line).expect("a request head") > 2 {
            assert!(!line.starts_with("HTTP/1.1 4") && !line.starts_with("HTTP/1.1 5"), "{line}");
            line.clear();
        }
        Events { reader, silences: 0 }
    }
}

/// A stream of server-sent events.
pub struct Events {
    reader: BufReader<TcpStream>,
    /// How often the server said that it is still there because it had sent nothing for a while.
    pub silences: usize,
}

/// A server-sent event.
#[derive(Clone, Debug)]
pub struct Event {
    pub name: String,
    pub id: Option<String>,
    pub data: Value,
}

impl Events {
    /// The next event; `None` at the end.
    pub fn next(&mut self) -> Option<Event> {
        let (mut name, mut id, mut data) = (String::new(), None, String::new());
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line).expect("a line in time") == 0 {
                return None;
            }
            let line = line.trim_end();
            // Chunk lengths appear between the lines; no field starts like one.
            match line.split_once(": ") {
                Some(("event", value)) => value.clone_into(&mut name),
                Some(("id", value)) => id = Some(value.to_owned()),
                Some(("data", value)) => data.push_str(value),
                _ if line.is_empty() && !data.is_empty() => {
                    let data = serde_json::from_str(&data).unwrap_or_else(|error| panic!("{error}: {data}"));
                    return Some(Event { name, id, data });
                }
                _ if line == ":" => self.silences += 1,
                _ => {}
            }
        }
    }

    /// The next event of this kind.
    #[track_caller]
    pub fn until(&mut self, kind: &str) -> Event {
        let mut seen = Vec::new();
        while let Some(event) = self.next() {
            if event.name == kind || event.data["event_type"] == kind {
                return event;
            }
            seen.push(event);
        }
        panic!("{kind} did not arrive: {seen:?}");
    }
}

fn dechunked(body: &str) -> String {
    let (mut rest, mut text) = (body, String::new());
    while let Some((length, behind)) = rest.split_once("\r\n") {
        let Ok(length) = usize::from_str_radix(length.trim(), 16) else { break };
        if length == 0 {
            break;
        }
        text.push_str(&behind[..length]);
        rest = behind[length..].trim_start_matches("\r\n");
    }
    text
}
