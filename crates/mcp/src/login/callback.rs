//! The target of the browser's redirect: a port of this machine that answers once.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::error::LoginError;

const PATH: &str = "/callback";
const MAX_REQUEST: usize = 16 << 10;
const MAX_GUESTS: usize = 16;
const PATIENCE: Duration = Duration::from_secs(10);

/// The server that the browser returns to.
pub struct CallbackServer {
    listener: TcpListener,
    port: u16,
}

impl CallbackServer {
    /// Listens on this machine only, on the given port or any free one.
    ///
    /// # Errors
    /// The port is taken.
    pub async fn open(port: Option<u16>) -> Result<Self, LoginError> {
        let fail = |error| LoginError::Port { port: port.unwrap_or_default(), error };
        let listener = TcpListener::bind(("127.0.0.1", port.unwrap_or(0))).await.map_err(fail)?;
        let port = listener.local_addr().map_err(fail)?.port();
        Ok(Self { listener, port })
    }

    /// The address that the browser is to come back to.
    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{}{PATH}", self.port)
    }

    /// Waits for the browser. Returns the first requested URL for which `is_wanted` returns true; others are
    /// turned away.
    pub async fn wait_for_redirect(&self, is_wanted: impl Fn(&str) -> bool) -> String {
        let mut guests = FuturesUnordered::new();
        loop {
            tokio::select! {
                // A browser may come with connections that it says nothing over.
                Some(came) = guests.next() => if let Some(address) = came { return address },
                guest = self.listener.accept(), if guests.len() < MAX_GUESTS => match guest {
                    Ok((stream, _)) => guests.push(self.greet(stream, &is_wanted)),
                    // Out of file handles: not to be tried without a pause.
                    Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
                },
            }
        }
    }

    async fn greet(&self, mut stream: TcpStream, is_wanted: &impl Fn(&str) -> bool) -> Option<String> {
        let asked = tokio::time::timeout(PATIENCE, self.asked(&mut stream)).await.ok().flatten();
        let (status, words, taken) = match asked {
            Some(address) if is_wanted(&address) => {
                ("200 OK", "Return to the terminal: aye shows the result of the login there.", Some(address))
            }
            Some(_) => ("400 Bad Request", "This is not the expected login.", None),
            None => ("404 Not Found", "Not found.", None),
        };
        answer(&mut stream, status, words).await;
        taken
    }

    /// Returns the requested URL, if it is ours.
    async fn asked(&self, stream: &mut TcpStream) -> Option<String> {
        let mut bytes = Vec::new();
        while !bytes.windows(4).any(|four| four == b"\r\n\r\n") {
            if bytes.len() > MAX_REQUEST || stream.read_buf(&mut bytes).await.ok()? == 0 {
                return None;
            }
        }
        let text = String::from_utf8(bytes).ok()?;
        let mut words = text.lines().next()?.split(' ');
        let (method, target) = (words.next()?, words.next()?);
        let is_ours = method == "GET" && target.split('?').next() == Some(PATH);
        is_ours.then(|| format!("http://127.0.0.1:{}{target}", self.port))
    }
}

/// Says a sentence of ours, and nothing of what was asked.
async fn answer(stream: &mut TcpStream, status: &str, words: &str) {
    let page = format!("<!doctype html><meta charset=utf-8><title>aye</title><p>{words}</p>\n");
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {}\r\nconnection: close\r\n\
         cache-control: no-store\r\nreferrer-policy: no-referrer\r\n\
         content-security-policy: default-src 'none'\r\n\r\n",
        page.len()
    );
    let answered = async {
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(page.as_bytes()).await?;
        stream.shutdown().await
    };
    let _ = tokio::time::timeout(PATIENCE, answered).await;
}
