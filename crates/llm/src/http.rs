//! The one HTTP client, the streaming request, and the frames of its answer.

use std::sync::OnceLock;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use serde_json::Value;

use super::classify::{ModelEndpoint, is_html};
use super::provider::WireFormat;
use aye_core::contract::executor::InferenceExecutionError;
use aye_http::{EventTooLong, SseParser};

/// Builds the client on first use, so that starting the program does not pay for certificates it may not need.
#[derive(Debug, Default)]
pub(super) struct LazyClient {
    client: OnceLock<Result<reqwest::Client, String>>,
}

impl LazyClient {
    pub(super) fn get(
        &self,
        origin: &ModelEndpoint,
        base: Option<&reqwest::Url>,
    ) -> Result<reqwest::Client, InferenceExecutionError> {
        self.client.get_or_init(|| build(base).map_err(|error| error.to_string())).clone().map_err(|error| {
            InferenceExecutionError::InvalidRequest(format!(
                "{}: cannot create an HTTP client: {error}",
                origin.provider
            ))
        })
    }
}

/// Builds a client for the provider at `base`, or for any provider if there is no base.
///
/// - Redirects are followed on the same host only: a key in a custom header (`x-api-key`) would otherwise go
///   to any host that a response names.
/// - No compression: a stream gains nothing from it, and a small answer cannot unpack into a huge one.
pub(super) fn build(base: Option<&reqwest::Url>) -> reqwest::Result<reqwest::Client> {
    aye_http::client_builder(base)
        .no_gzip()
        .tcp_nodelay(true)
        .connect_timeout(Duration::from_secs(20))
        .pool_idle_timeout(Duration::from_secs(90))
        .http2_keep_alive_interval(Duration::from_secs(20))
        .http2_keep_alive_timeout(Duration::from_secs(10))
        .redirect(reqwest::redirect::Policy::custom(|attempt| {
            let same =
                attempt.previous().first().is_some_and(|first| first.origin() == attempt.url().origin());
            if same && attempt.previous().len() < 5 { attempt.follow() } else { attempt.stop() }
        }))
        .build()
}

/// The maximum length of a frame, in bytes: the longest arguments, escaped, and the text around them.
const MAX_FRAME: usize = 10 << 20;

/// Cuts an answer into frames.
enum Framing {
    Events(SseParser),
    Lines(Lines),
}

impl Framing {
    fn of(adapter: WireFormat) -> Self {
        match adapter {
            WireFormat::Ollama => Self::Lines(Lines::default()),
            _ => Self::Events(SseParser::new(MAX_FRAME)),
        }
    }

    fn push(&mut self, bytes: &[u8], frames: &mut Vec<String>) -> Result<(), EventTooLong> {
        match self {
            Self::Events(parser) => parser.push(bytes, frames),
            Self::Lines(lines) => lines.push(bytes, frames),
        }
    }

    /// Returns whether anything resembled a stream of frames.
    fn saw_frame(&self) -> bool {
        match self {
            Self::Events(parser) => parser.saw_field(),
            Self::Lines(lines) => lines.is_stream == Some(true),
        }
    }

    /// Returns the frame left in the buffers when the stream ends.
    fn unfinished(self) -> Option<String> {
        match self {
            Self::Events(parser) => parser.unfinished(),
            Self::Lines(lines) => Some(String::from_utf8_lossy(&lines.line).into_owned()),
        }
    }
}

/// One JSON object a line.
#[derive(Default)]
struct Lines {
    line: Vec<u8>,
    /// Whether the first line was an object; otherwise the whole body is something else.
    is_stream: Option<bool>,
}

impl Lines {
    fn push(&mut self, bytes: &[u8], frames: &mut Vec<String>) -> Result<(), EventTooLong> {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.line.len() + piece.len() > MAX_FRAME {
                return Err(EventTooLong);
            }
            self.line.extend_from_slice(piece);
            if !piece.ends_with(b"\n") {
                continue;
            }
            let line = std::mem::take(&mut self.line);
            let line = String::from_utf8_lossy(&line);
            let line = line.trim();
            if line.is_empty() {
                continue;
            }
            if *self.is_stream.get_or_insert_with(|| is_object(line)) {
                frames.push(line.to_owned());
            }
        }
        Ok(())
    }
}

fn is_object(text: &str) -> bool {
    text.starts_with('{') && serde_json::from_str::<Value>(text).is_ok()
}

/// The frames of one answer.
pub(super) struct Frames {
    bytes: BoxStream<'static, reqwest::Result<bytes::Bytes>>,
    framing: Option<Framing>,
    ready: std::collections::VecDeque<String>,
    read_timeout: Duration,
    origin: ModelEndpoint,
    content_type: String,
    /// The start of a body that may be no stream at all.
    head: Vec<u8>,
}

/// Sends one request, whose body is JSON, and waits for the headers of its answer.
pub(super) async fn send(
    client: &reqwest::Client,
    url: reqwest::Url,
    headers: HeaderMap,
    body: Vec<u8>,
    timeouts: (Duration, Duration),
    origin: ModelEndpoint,
) -> Result<Frames, InferenceExecutionError> {
    let (header_timeout, read_timeout) = timeouts;
    let request = client.post(url).headers(headers).header(CONTENT_TYPE, "application/json").body(body);
    let response = tokio::time::timeout(header_timeout, request.send())
        .await
        .map_err(|_| origin.no_headers(header_timeout))?
        .map_err(|error| origin.transport(&error))?;
    let status = response.status();
    let content_type = response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
        .to_ascii_lowercase();
    if !status.is_success() {
        let headers = response.headers().clone();
        let body = read_some(response, read_timeout).await;
        return Err(origin.http_error(status, &headers, &body));
    }
    Ok(Frames {
        bytes: response.bytes_stream().boxed(),
        framing: Some(Framing::of(origin.adapter)),
        ready: std::collections::VecDeque::new(),
        read_timeout,
        origin,
        content_type,
        head: Vec::new(),
    })
}

/// The body of an error, as much of it as is worth reading.
async fn read_some(response: reqwest::Response, limit: Duration) -> String {
    let mut body = Vec::new();
    let mut bytes = response.bytes_stream();
    // An error body gets less time than an answer, with one deadline for all of its pieces.
    let until = tokio::time::Instant::now() + limit.min(Duration::from_secs(10));
    while body.len() < 64 << 10 {
        match tokio::time::timeout_at(until, bytes.next()).await {
            Ok(Some(Ok(piece))) => body.extend_from_slice(&piece),
            Ok(Some(Err(_)) | None) | Err(_) => break,
        }
    }
    String::from_utf8_lossy(&body).into_owned()
}

/// The maximum bytes to keep of a body that is neither a stream nor JSON.
const MAX_HEAD: usize = 64 << 10;

/// Maximum bytes to keep of a body that may be no stream: a whole answer, or the start of something else.
fn most_head(head: &[u8]) -> usize {
    let first = head.iter().find(|byte| !byte.is_ascii_whitespace());
    if matches!(first, Some(b'{' | b'[')) { MAX_FRAME } else { MAX_HEAD }
}

impl Frames {
    /// The next frame; `None` at the end of the stream.
    pub(super) async fn next(&mut self) -> Result<Option<String>, InferenceExecutionError> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Ok(Some(frame));
            }
            let Some(framing) = &mut self.framing else { return Ok(None) };
            let next = tokio::time::timeout(self.read_timeout, self.bytes.next())
                .await
                .map_err(|_| self.origin.silence(self.read_timeout))?;
            let mut frames = Vec::new();
            match next {
                Some(Ok(bytes)) => {
                    framing.push(&bytes, &mut frames).map_err(|_| self.origin.too_long())?;
                    if !framing.saw_frame() && self.head.len() < most_head(&self.head) {
                        self.head.extend_from_slice(&bytes);
                    }
                }
                Some(Err(error)) => return Err(self.origin.transport(&error)),
                None => {
                    let Some(framing) = self.framing.take().filter(Framing::saw_frame) else {
                        self.no_stream()?;
                        continue;
                    };
                    // Some servers forget the empty line after their last word. What is whole is not cut off.
                    let is_whole = |frame: &String| {
                        let frame = frame.trim();
                        frame == "[DONE]" || is_object(frame)
                    };
                    frames.extend(framing.unfinished().filter(is_whole));
                }
            }
            self.ready.extend(frames);
        }
    }

    /// The whole body was something else: JSON (a gateway that ignores `stream`, or an error that comes with status 200),
    /// or a web page.
    fn no_stream(&mut self) -> Result<(), InferenceExecutionError> {
        let body = std::mem::take(&mut self.head);
        let body = String::from_utf8_lossy(&body);
        match serde_json::from_str::<Value>(&body) {
            Ok(value @ Value::Object(_)) => self.ready.push_back(value.to_string()),
            // Gemini without `alt=sse`: all chunks in one list.
            Ok(Value::Array(chunks)) => self.ready.extend(chunks.iter().map(Value::to_string)),
            Ok(_) | Err(_) if is_html(&body) || self.content_type.starts_with("text/html") => {
                return Err(InferenceExecutionError::InvalidRequest(format!(
                    "{} at {} answered with a web page instead of a model's answer; check base_url",
                    self.origin.provider, self.origin.base_url
                )));
            }
            Ok(_) | Err(_) => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_may_be_cut_anywhere() {
        let text = "{\"a\":\"é\"}\r\n\n{oops\n{\"b\":1}";
        for at in 0..=text.len() {
            let mut framing = Framing::of(WireFormat::Ollama);
            let mut frames = Vec::new();
            for piece in [&text.as_bytes()[..at], &text.as_bytes()[at..]] {
                framing.push(piece, &mut frames).expect("short");
            }
            assert!(framing.saw_frame());
            frames.extend(framing.unfinished());
            assert_eq!(frames, ["{\"a\":\"é\"}", "{oops", "{\"b\":1}"], "cut at {at}");
        }
    }

    #[test]
    fn a_body_that_starts_otherwise_is_no_stream_of_lines() {
        for text in ["{\n  \"message\": {}\n}\n", "<html>\n{}\n", ""] {
            let (mut framing, mut frames) = (Framing::of(WireFormat::Ollama), Vec::new());
            framing.push(text.as_bytes(), &mut frames).expect("short");
            assert!(frames.is_empty() && !framing.saw_frame(), "{text}");
        }
    }

    #[test]
    fn an_endless_line_is_refused() {
        let (mut framing, mut frames) = (Framing::of(WireFormat::Ollama), Vec::new());
        let piece = vec![b'x'; 1 << 20];
        let refused = (0..20).find(|_| framing.push(&piece, &mut frames).is_err());
        assert_eq!(refused, Some(10));
    }

    /// `cargo test -- --ignored --nocapture` prints what the client costs.
    #[test]
    #[ignore = "prints a measurement"]
    fn measure_client_construction() {
        for base in ["http://127.0.0.1:1/", "https://host/", "https://host/"] {
            let url = reqwest::Url::parse(base).expect("an address");
            let start = std::time::Instant::now();
            build(Some(&url)).expect("a client");
            println!("{base} {:?}", start.elapsed());
        }
    }
}
