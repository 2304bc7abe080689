//! Handles the notifications and requests that a server sends on its own initiative.
#![expect(deprecated, reason = "servers of earlier revisions ask for models and roots, and send logs")]

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rmcp::model::{
    ClientCapabilities, ClientConfig, CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams,
    ElicitResult, ElicitationAction, ElicitationCapability, ErrorCode, ErrorData, FormElicitationCapability,
    Implementation, ListRootsResult, LoggingLevel, LoggingMessageNotificationParam,
    ProgressNotificationParam, ProgressToken, ProtocolVersion, Root,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ClientHandler, RoleClient};
use tokio::sync::{Notify, mpsc, oneshot, watch};

use super::Tell;
use super::elicitation::{Elicitation, PendingElicitation, declined};
use aye_core::contract::display::visible_line;

/// Lines of a server that are kept, and characters of each.
const MAX_LINES: usize = 50;
const MAX_LINE: usize = 500;
/// Minimum interval between notifications to the user about a server's errors.
const NOTICE_EVERY: Duration = Duration::from_secs(30);

/// One report of progress.
#[derive(Clone, Debug)]
pub(super) struct ProgressReport {
    pub(super) done: f64,
    pub(super) total: Option<f64>,
    pub(super) message: Option<String>,
}

/// The receiver of a call's reports and questions.
struct Listener {
    /// The order of the calls: earlier calls have smaller numbers.
    number: u64,
    progress: mpsc::Sender<ProgressReport>,
    asked: Option<mpsc::Sender<PendingElicitation>>,
}

/// The state shared by a connection's handler and its owner.
pub(super) struct ConnectionState {
    server: String,
    tell: Tell,
    /// The list of tools, or of prompts, may be another one.
    pub(super) changed: Notify,
    is_changed: AtomicBool,
    calls: Mutex<HashMap<ProgressToken, Listener>>,
    /// The number of calls being sent that nothing listens to yet: a server may ask before its call is known
    /// here.
    opening: watch::Sender<usize>,
    /// The number of calls listened to so far.
    count: AtomicU64,
    lines: Mutex<VecDeque<String>>,
    last_logged: Mutex<Option<Instant>>,
    /// The number of times the server asked to use the model.
    refused: AtomicU64,
    /// Signals that the server accepts nothing before a user logs in.
    pub(super) wants_login: tokio_util::sync::CancellationToken,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic while it is held")
}

impl ConnectionState {
    pub(super) fn new(server: &str, tell: Tell) -> Self {
        Self {
            server: visible_line(server).into_owned(),
            tell,
            changed: Notify::new(),
            is_changed: AtomicBool::new(false),
            calls: Mutex::default(),
            opening: watch::channel(0).0,
            count: AtomicU64::new(0),
            lines: Mutex::default(),
            last_logged: Mutex::default(),
            refused: AtomicU64::new(0),
            wants_login: tokio_util::sync::CancellationToken::new(),
        }
    }

    /// Keeps a line that the server wrote or logged.
    pub(super) fn line(&self, line: &str) {
        let line: String = line.chars().take(MAX_LINE).collect();
        tracing::info!(server = %self.server, "{}", visible_line(&line));
        let mut lines = locked(&self.lines);
        if lines.len() >= MAX_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    /// Forgets the lines: the server is started again.
    pub(super) fn forget_lines(&self) {
        locked(&self.lines).clear();
    }

    /// The last lines.
    pub(super) fn lines(&self, count: usize) -> Vec<String> {
        let lines = locked(&self.lines);
        lines.iter().skip(lines.len().saturating_sub(count)).cloned().collect()
    }

    /// Listens to the progress of one call, and to questions asked during it.
    pub(super) fn listen(
        &self,
        token: ProgressToken,
        takes_questions: bool,
    ) -> (mpsc::Receiver<ProgressReport>, mpsc::Receiver<PendingElicitation>) {
        let (progress, reports) = mpsc::channel(1);
        let (asked, questions) = mpsc::channel(1);
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let listener = Listener { number, progress, asked: takes_questions.then_some(asked) };
        locked(&self.calls).insert(token, listener);
        (reports, questions)
    }

    /// Registers a call that is about to be sent, until the returned value is dropped: the call must be
    /// listened to before that.
    pub(super) fn opens(&self) -> Opening<'_> {
        self.opening.send_modify(|count| *count += 1);
        Opening(self)
    }

    /// Passes a question to the call that it must belong to: the protocol does not name the call, so it is
    /// the oldest one that can take a question. Returns `false` if there is none.
    async fn ask(&self, mut asked: PendingElicitation) -> bool {
        let mut opening = self.opening.subscribe();
        loop {
            // Read the count first: every call that is listened to by the time the count is zero is then
            // found.
            let is_any_opening = *opening.borrow_and_update() > 0;
            match self.put(asked) {
                None => return true,
                Some(_) if !is_any_opening => return false,
                Some(back) => asked = back,
            }
            if opening.changed().await.is_err() {
                return false;
            }
        }
    }

    /// Returns the question if no call can take it.
    fn put(&self, mut asked: PendingElicitation) -> Option<PendingElicitation> {
        let mut takers: Vec<(u64, mpsc::Sender<PendingElicitation>)> = locked(&self.calls)
            .values()
            .filter_map(|call| Some((call.number, call.asked.clone()?)))
            .collect();
        takers.sort_by_key(|(number, _)| *number);
        for (_, taker) in takers {
            match taker.try_send(asked) {
                Ok(()) => return None,
                Err(mpsc::error::TrySendError::Full(back) | mpsc::error::TrySendError::Closed(back)) => {
                    asked = back;
                }
            }
        }
        Some(asked)
    }

    pub(super) fn stop_listening(&self, token: &ProgressToken) {
        locked(&self.calls).remove(token);
    }

    /// Records that the lists may have changed; however often this is called, the lists are read once.
    pub(super) fn note_change(&self) {
        self.is_changed.store(true, Ordering::Release);
        self.changed.notify_one();
    }

    /// Returns whether the lists may have changed since the last call.
    pub(super) fn take_change(&self) -> bool {
        self.is_changed.swap(false, Ordering::AcqRel)
    }

    /// Notifies the user that a URL which a server wanted them to open was refused: what they do there, they
    /// would do for a stranger, with whatever account is logged in there.
    pub(super) fn note_refused(&self, asked: &ElicitRequestParams) {
        if let ElicitRequestParams::UrlElicitationParams { url, .. } = asked {
            let host = reqwest::Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned));
            let host = host.unwrap_or_else(|| "somewhere".to_owned());
            self.log_throttled(|| {
                format!("refused: MCP server {} tried to send you to {}", self.server, visible_line(&host))
            });
        }
    }

    fn log_throttled(&self, text: impl FnOnce() -> String) {
        let mut last_logged = locked(&self.last_logged);
        if last_logged.is_none_or(|at| at.elapsed() > NOTICE_EVERY) {
            *last_logged = Some(Instant::now());
            drop(last_logged);
            (self.tell)(text());
        }
    }
}

/// A call that is about to be sent.
pub(super) struct Opening<'a>(&'a ConnectionState);

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.0.opening.send_modify(|count| *count -= 1);
    }
}

pub(super) struct Handler {
    pub(super) shared: std::sync::Arc<ConnectionState>,
    /// The reply to a server that asks for the working folder; only a program of this machine gets one.
    pub(super) root: Option<String>,
    /// The revision that `initialize` offers.
    pub(super) offered: ProtocolVersion,
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        if self.root.is_some() {
            capabilities.roots = serde_json::from_value(serde_json::json!({})).ok();
        }
        let form = FormElicitationCapability::new().with_schema_validation(true);
        capabilities.elicitation = Some(ElicitationCapability::new().with_form(form));
        let about = Implementation::new("aye", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(capabilities, about).with_protocol_version(self.offered.clone())
    }

    async fn create_message(
        &self,
        _: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        // This would spend the user's money on a stranger's prompt.
        if self.shared.refused.fetch_add(1, Ordering::Relaxed) == 0 {
            (self.shared.tell)(format!("refused: MCP server {} asked to use your model", self.shared.server));
        }
        Err(ErrorData::new(ErrorCode(-1), "this client does not offer its model to servers", None))
    }

    async fn create_elicitation(
        &self,
        asked: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        self.shared.note_refused(&asked);
        let question = Elicitation::read(asked).map_err(|why| ErrorData::invalid_params(why, None))?;
        let (reply, answer) = oneshot::channel();
        // A question that belongs to no call, or is one of a flood, is declined.
        if !self.shared.ask(PendingElicitation { question, reply }).await {
            return Ok(declined());
        }
        let cancelled = ElicitResult::new(ElicitationAction::Cancel);
        tokio::select! {
            answer = answer => Ok(answer.unwrap_or(cancelled)),
            () = context.ct.cancelled() => Ok(cancelled),
        }
    }

    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        Ok(ListRootsResult::new(self.root.iter().map(Root::new).collect()))
    }

    async fn on_progress(&self, progress: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        let sender =
            locked(&self.shared.calls).get(&progress.progress_token).map(|call| call.progress.clone());
        if let Some(sender) = sender {
            let message = progress.message.map(|text| text.chars().take(MAX_LINE).collect());
            // A report that cannot be delivered now is useless later.
            let _ =
                sender.try_send(ProgressReport { done: progress.progress, total: progress.total, message });
        }
    }

    async fn on_logging_message(
        &self,
        message: LoggingMessageNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let text = match &message.data {
            serde_json::Value::String(text) => text.clone(),
            data => data.to_string(),
        };
        let is_bad = matches!(
            message.level,
            LoggingLevel::Error | LoggingLevel::Critical | LoggingLevel::Alert | LoggingLevel::Emergency
        );
        self.shared.line(&text);
        if is_bad {
            let short: String = text.chars().take(200).collect();
            self.shared
                .log_throttled(|| format!("MCP server {}: {}", self.shared.server, visible_line(&short)));
        }
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.shared.note_change();
    }

    async fn on_prompt_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.shared.note_change();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn an_elicitation_that_overtakes_its_call_waits_for_it() {
        let shared = Arc::new(ConnectionState::new("s", Arc::new(|_| {})));
        let question = || {
            let asked = serde_json::json!({"mode": "form", "message": "?", "requestedSchema": {"type": "object", "properties": {}}});
            let (reply, _) = oneshot::channel();
            PendingElicitation {
                question: Elicitation::read(serde_json::from_value(asked).expect("a form"))
                    .expect("a question"),
                reply,
            }
        };
        assert!(!shared.ask(question()).await, "there is no call");
        let opening = shared.opens();
        let asking = {
            let shared = Arc::clone(&shared);
            let question = question();
            tokio::spawn(async move { shared.ask(question).await })
        };
        tokio::task::yield_now().await;
        assert!(!asking.is_finished());
        let token = ProgressToken(rmcp::model::NumberOrString::Number(1));
        let (_progress, mut asked) = shared.listen(token, true);
        drop(opening);
        assert!(asking.await.expect("no panic"));
        assert!(asked.recv().await.is_some());
    }
}
