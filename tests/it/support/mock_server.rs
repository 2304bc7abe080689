//! A loopback server that sends exactly the given bytes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// How a reply ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Normally.
    Close,
    /// Breaks the connection before the end of the body.
    Cut,
    /// Sends nothing more and keeps the connection open.
    Hang,
    /// Sends a comment every few milliseconds, until the reader goes away.
    Trickle,
}

/// One reply.
#[derive(Clone, Debug)]
pub struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    pieces: Vec<Vec<u8>>,
    end: End,
}

impl Reply {
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), pieces: vec![body.into()], end: End::Close }
    }

    /// A stream of server-sent events.
    pub fn sse(body: impl Into<Vec<u8>>) -> Self {
        Self::new(200, body).header("content-type", "text/event-stream")
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sends the body in chunks of this number of bytes, each in a separate segment.
    pub fn in_pieces_of(mut self, size: usize) -> Self {
        let body = self.pieces.concat();
        self.pieces = body.chunks(size.max(1)).map(<[u8]>::to_vec).collect();
        self
    }

    pub fn ends(mut self, end: End) -> Self {
        self.end = end;
        self
    }
}

/// A request of a client.
#[derive(Clone, Debug)]
pub struct Asked {
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Value,
}

impl Asked {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// The server. Stops when dropped.
pub struct MockServer {
    pub url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    task: JoinHandle<()>,
}

impl Drop for MockServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl MockServer {
    /// Sends these replies, one per request; the last one again if there are more requests.
    pub async fn start(replies: impl IntoIterator<Item = Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("a valid address"));
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let seen = Arc::clone(&asked);
        let mut replies: VecDeque<Reply> = replies.into_iter().collect();
        let task = tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let Some(request) = read_request(&mut stream).await else { continue };
                seen.lock().expect("not poisoned").push(request);
                let reply = if replies.len() > 1 { replies.pop_front() } else { replies.front().cloned() };
                let Some(reply) = reply else { return };
                // A hanging connection is kept open.
                if answer(&mut stream, &reply).await.is_ok() && reply.end == End::Hang {
                    open.push(stream);
                }
            }
        });
        Self { url, asked, task }
    }

    /// The requests so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("not poisoned").clone()
    }
}

async fn read_request(stream: &mut TcpStream) -> Option<Asked> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let text = String::from_utf8_lossy(&bytes[..head]).into_owned();
    let mut lines = text.lines();
    let path = lines.next()?.split(' ').nth(1)?.to_owned();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
        .collect();
    let length = headers
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.parse::<usize>().ok())
        .unwrap_or(0);
    while bytes.len() < head + 4 + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    let body = serde_json::from_slice(&bytes[head + 4..head + 4 + length]).unwrap_or(Value::Null);
    Some(Asked { path, headers, body })
}

async fn answer(stream: &mut TcpStream, reply: &Reply) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut head =
        format!("HTTP/1.1 {} X\r\ntransfer-encoding: chunked\r\nconnection: close\r\n", reply.status);
    for (name, value) in &reply.headers {
        head.push_str(&[name, ": ", value, "\r\n"].concat());
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).await?;
    for piece in reply.pieces.iter().filter(|piece| !piece.is_empty()) {
        let mut chunk = format!("{:x}\r\n", piece.len()).into_bytes();
        chunk.extend_from_slice(piece);
        chunk.extend_from_slice(b"\r\n");
        stream.write_all(&chunk).await?;
        stream.flush().await?;
        tokio::task::yield_now().await;
    }
    match reply.end {
        End::Close => {
            stream.write_all(b"0\r\n\r\n").await?;
            stream.shutdown().await?;
            // Reads what the client still sends: closing with unread bytes would reset the connection.
            let mut rest = Vec::new();
            let _ = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut rest)).await;
        }
        End::Cut => stream.shutdown().await?,
        End::Hang => {}
        End::Trickle => loop {
            stream.write_all(b"6\r\n: ok\n\n\r\n").await?;
            tokio::time::sleep(Duration::from_millis(5)).await;
        },
    }
    Ok(())
}
