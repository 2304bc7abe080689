//! Server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use aye_core::contract::event::AgentEvent;
use futures::{Stream, StreamExt as _};
use serde::Serialize;

use super::api::{HandlerInput, OperationBuilder};
use super::error::ApiError;
use super::follow::{Follower, Frame};

/// Interval of heartbeats on an idle stream.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// The header with which a browser says what it has.
const LAST_EVENT_ID: &str = "last-event-id";

/// A response of frames.
pub(super) fn respond<S>(frames: S) -> Response
where
    S: Stream<Item = Result<Event, Infallible>> + Send + 'static,
{
    let mut response = Sse::new(frames).keep_alive(KeepAlive::new().interval(HEARTBEAT)).into_response();
    // A proxy that collects a stream before it passes it on would hold it for ever.
    response.headers_mut().insert("x-accel-buffering", axum::http::HeaderValue::from_static("no"));
    let no_store = axum::http::HeaderValue::from_static("no-store");
    response.headers_mut().insert(axum::http::header::CACHE_CONTROL, no_store);
    response
}

/// A frame of JSON.
pub(super) fn json<T: Serialize>(name: Option<&str>, id: Option<u64>, data: &T) -> Event {
    // Everything sent here can be written as JSON; if that failed, the reader would get an empty frame.
    let text = serde_json::to_string(data).unwrap_or_default();
    let mut event = Event::default().data(text);
    if let Some(name) = name {
        event = event.event(name);
    }
    match id {
        Some(id) => event.id(id.to_string()),
        None => event,
    }
}

/// The number of messages that a reader reports to have.
pub(super) struct LastEvent(pub(super) Option<u64>);

impl<S: Send + Sync> FromRequestParts<S> for LastEvent {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        last_event_id(&parts.headers).map(Self)
    }
}

impl HandlerInput for LastEvent {
    fn describe(sketch: &mut OperationBuilder<'_>) {
        sketch.takes_header::<u32>("Last-Event-ID");
    }
}

/// The header with which a client says what the end of its connection means.
const ON_DISCONNECT: &str = "aye-on-disconnect";

/// Whether a run stops when its reader leaves. Without the header it goes on: a lost connection stops nothing.
#[derive(Clone, Copy)]
pub(super) struct StopsOnLeave(pub(super) bool);

impl<S: Send + Sync> FromRequestParts<S> for StopsOnLeave {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        match parts.headers.get(ON_DISCONNECT).map(axum::http::HeaderValue::as_bytes) {
            None | Some(b"continue") => Ok(Self(false)),
            Some(b"cancel") => Ok(Self(true)),
            Some(_) => Err(ApiError::new(
                StatusCode::BAD_REQUEST,
                "invalid_on_disconnect",
                "Aye-On-Disconnect must be `cancel` or `continue`",
            )),
        }
    }
}

impl HandlerInput for StopsOnLeave {
    fn describe(sketch: &mut OperationBuilder<'_>) {
        sketch.takes_header::<String>("Aye-On-Disconnect");
    }
}

/// Returns the number of messages that a reader reports to have.
///
/// # Errors
/// 400 if it is not a number.
fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, ApiError> {
    let Some(value) = headers.get(LAST_EVENT_ID) else { return Ok(None) };
    let text = value.to_str().unwrap_or("?");
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = is_number.then(|| text.parse().ok()).flatten();
    number.map(Some).ok_or_else(|| {
        ApiError::new(
            StatusCode::BAD_REQUEST,
            "invalid_last_event_id",
            "Last-Event-ID must be the id of a frame of this conversation",
        )
    })
}

/// Frames of what `next` gives, until it gives nothing, and the mark of the end where the protocol has one.
pub(super) fn chunks<S, C, F, N>(
    end: Option<&'static str>,
    state: S,
    next: N,
) -> impl Stream<Item = Result<Event, Infallible>> + Send
where
    S: Send + 'static,
    C: Serialize + Send + 'static,
    F: Future<Output = Option<(Vec<C>, S)>> + Send + 'static,
    N: Fn(S) -> F + Send + 'static,
{
    let pieces = futures::stream::unfold((state, next), |(state, next)| async move {
        let (chunks, after) = next(state).await?;
        Some((chunks, (after, next)))
    });
    let frames = pieces.flat_map(|chunks| {
        futures::stream::iter(
            chunks.into_iter().map(|chunk| Ok(json(None, None, &chunk))).collect::<Vec<_>>(),
        )
    });
    frames.chain(futures::stream::iter(end.map(|mark| Ok(Event::default().data(mark)))))
}

/// An event of a conversation.
#[derive(Serialize)]
struct FollowedEvent<'a> {
    #[serde(flatten)]
    event: &'a AgentEvent,
    /// The client's id of the request that the run serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation_id: Option<&'a str>,
}

/// The frames of a follower, for ever.
pub(super) fn follow(follower: Follower) -> impl Stream<Item = Result<Event, Infallible>> + Send {
    futures::stream::unfold((follower, None), |(mut follower, mut correlation_id)| async move {
        let frame = follower.next().await?;
        let event = match &frame {
            Frame::Event { committed, event } => {
                if let AgentEvent::RunStart { run_id, .. } = &**event {
                    correlation_id = follower.correlation_id(run_id).await;
                }
                let event = FollowedEvent { event, correlation_id: correlation_id.as_deref() };
                json(Some("agent"), *committed, &event)
            }
            Frame::Message(stored) => json(Some("message"), Some(stored.seq), stored),
            Frame::Dropped(cursor) => json(Some("dropped"), None, &serde_json::json!({ "cursor": cursor })),
        };
        Some((Ok(event), (follower, correlation_id)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Streams are not what the guard adds this to: they have a policy of their own, which allows to keep them.
    #[tokio::test]
    async fn no_stream_is_kept_by_anybody() {
        let response = respond(futures::stream::empty());
        let values: Vec<_> = response.headers().get_all(axum::http::header::CACHE_CONTROL).iter().collect();
        assert_eq!(values, ["no-store"]);
    }

    #[test]
    fn a_last_event_id_is_a_number_or_an_error() {
        let of = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(LAST_EVENT_ID, text.parse().expect("a header"));
            last_event_id(&headers).map_err(|error| error.status())
        };
        assert_eq!(last_event_id(&HeaderMap::new()).expect("none is fine"), None);
        assert_eq!(of("12"), Ok(Some(12)));
        for wrong in ["", "-1", "+1", "1.0", "x", "99999999999999999999999"] {
            assert_eq!(of(wrong), Err(StatusCode::BAD_REQUEST), "{wrong}");
        }
    }
}
