//! Webhooks: new questions and their outcomes, as signed messages to other programs. A message stays in the
//! store until it is accepted or given up. A link in it shows the card and never answers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::Url;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE};
use serde_json::{Value, json};

use crate::config::{Env, Paths, WebhookFormat, WebhookSettings, read_private, write_private};
use crate::contract::address::is_this_machine;
use crate::contract::clock::{Clock, SystemClock};
use crate::contract::display::visible;
use crate::contract::ids::SuspensionId;
use crate::contract::record::{SuspensionRecord, SuspensionStatus};
use crate::contract::storage::{OutboxOutcome, OutboxRow, PushTargetsOf, SharedStore, StoreError, push_key};
use crate::contract::terms::Notify;
use crate::failure::AppError;
use crate::program::foundation::Foundation;
use crate::server::{A2aPushConfig, QuestionCard, WaitingPush, fresh_token, sign};
use crate::tools::{public_client, root_cause};

/// How long an attempt may take; another process takes the message over after twice that.
const LIMIT: Duration = Duration::from_secs(10);
/// Attempts until a message is given up: about six hours.
const ATTEMPTS: u32 = 12;
/// The pause after the first attempt, doubled each time, and the longest pause.
const PAUSES: (Duration, Duration) = (Duration::from_secs(5), Duration::from_hours(1));
/// The pause after the store could not be read or written.
const PAUSE_AFTER_STORE_ERROR: Duration = Duration::from_mins(1);
/// The shortest pause, for a clock that is behind or a message that another process is sending.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
/// The maximum characters of a text that users read on a phone.
const SHORT: usize = 500;
/// Bytes of the file of the key.
const MAX_KEY: u64 = 1 << 10;
/// The prefix before a webhook's name in the target of a message.
const TARGET: &str = "webhook:";
/// The prefix before a webhook's name in the target of a message about a question that is still pending.
const ESCALATION: &str = "escalate:";
/// How often a process looks for messages that others stored for a later time.
const CHECKED_EVERY: Duration = Duration::from_mins(1);
/// The prefix before the task and the address id in the target of an A2A push notification.
const PUSH: &str = "a2a:";

/// An event of a question.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum QuestionNews {
    Asked,
    /// It was not answered for a time.
    StillPending,
    Decided,
    Expired,
}

impl QuestionNews {
    fn as_str(self) -> &'static str {
        match self {
            Self::Asked => "question.asked",
            Self::StillPending => "question.still_pending",
            Self::Decided => "question.decided",
            Self::Expired => "question.expired",
        }
    }
}

/// Sends messages to webhooks. Clones are the same.
#[derive(Clone)]
pub(crate) struct Webhooks(Arc<Inner>);

struct Inner {
    named: BTreeMap<String, WebhookSettings>,
    env: Env,
    paths: Paths,
    store: SharedStore,
    /// The URL of the page.
    page: Mutex<Option<String>>,
    /// Hosts that push notifications may go to although they are not public.
    push_hosts: Vec<String>,
    /// Whether a task waits for the next attempt.
    has_waiter: AtomicBool,
    /// Notified when something was written that may be due before the next attempt.
    rows_changed: Arc<tokio::sync::Notify>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.rows_changed.notify_one();
    }
}

impl Webhooks {
    pub(crate) fn new(foundation: &Foundation, store: SharedStore) -> Self {
        let settings = &foundation.loaded.settings;
        Self(Arc::new(Inner {
            named: settings.webhooks.clone(),
            env: foundation.env.clone(),
            paths: foundation.paths.clone(),
            store,
            page: Mutex::new(settings.serve.public_url.clone()),
            push_hosts: settings.serve.push_hosts.clone(),
            has_waiter: AtomicBool::new(false),
            rows_changed: Arc::default(),
        }))
    }

    /// Returns the problems in the settings.
    pub(crate) fn problems(&self) -> Vec<String> {
        let wrong = |(name, webhook): (&String, &WebhookSettings)| {
            let why = usable(webhook).err()?;
            Some(format!("[webhooks.{name}] {why}; nothing is sent there"))
        };
        self.0.named.iter().filter_map(wrong).collect()
    }

    /// Says where the page is reached, unless the settings do.
    pub(crate) fn show_at(&self, url: &str) {
        self.0.page.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| url.to_owned());
    }

    /// The key that is shared with the receiver of a webhook.
    pub(crate) fn key(&self, name: &str) -> Option<Vec<u8>> {
        self.0.key(self.0.named.get(name)?).ok()
    }

    /// Returns whether a question that is still pending after a time goes to somebody.
    pub(crate) fn escalates(&self) -> bool {
        self.0.named.values().any(|webhook| webhook.escalate_after.is_some())
    }

    /// Stores for each webhook that wants it a message for the time when the question will have been pending long enough.
    /// Whoever sends it then finds out whether it still is. Nothing here answers a question.
    ///
    /// # Errors
    /// The store cannot be written.
    pub(crate) async fn escalate(&self, question: &SuspensionRecord) -> Result<(), StoreError> {
        for (name, webhook) in &self.0.named {
            let Some(after) = webhook.escalate_after else { continue };
            let after = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
            let key = format!("{} {} {name}", question.id, QuestionNews::StillPending.as_str());
            let body = json!({ "question": question.id }).to_string();
            let due = question.created_at.saturating_add(after);
            let target = format!("{ESCALATION}{name}");
            self.0.store.put_into_outbox(&question.thread_id, key, target, body, due).await?;
        }
        self.send_due().await;
        Ok(())
    }

    /// Returns the names of the webhooks that a question goes to; empty if there are none.
    pub(crate) fn wants(question: &SuspensionRecord) -> Vec<String> {
        let names = question.ticket.suspension.notify().into_iter().flatten();
        names.filter_map(|one| if let Notify::Webhook(name) = one { Some(name) } else { None }).collect()
    }

    /// Stores a message for each of those webhooks and sends what is due. A message that is not accepted is
    /// retried in the background while this process lives, and by other processes after it.
    ///
    /// # Errors
    /// What cannot be sent at all, for the user.
    pub(crate) async fn notify(
        &self,
        names: Vec<String>,
        question: &SuspensionRecord,
        news: QuestionNews,
    ) -> Result<(), AppError> {
        let mut wrong = None;
        for name in names {
            let Some(webhook) = self.0.named.get(&name) else {
                wrong = Some(format!("there is no [webhooks.{name}] in your settings"));
                continue;
            };
            let body = self.0.body(webhook, question, news).to_string();
            let key = format!("{} {} {name}", question.id, news.as_str());
            let put = self.0.store.put_into_outbox(
                &question.thread_id,
                key,
                format!("{TARGET}{name}"),
                body,
                self.0.store.clock().now_ms(),
            );
            put.await?;
        }
        self.send_due().await;
        wrong.map_or(Ok(()), |why| Err(why.into()))
    }

    /// Writes a push notification and sends what is due in the background.
    pub(crate) async fn push(&self, to: &WaitingPush, stop: &str, body: &Value) -> Result<(), StoreError> {
        let id = &to.config.id;
        let put = self.0.store.put_into_outbox(
            &to.thread,
            push_key(&to.run, id, stop),
            format!("{PUSH}{} {id}", to.run),
            body.to_string(),
            self.0.store.clock().now_ms(),
        );
        if put.await? {
            let webhooks = self.clone();
            tokio::spawn(async move { webhooks.send_due().await });
        }
        Ok(())
    }

    /// Sends what is due, and waits in the background for the rest.
    pub(crate) async fn send_due(&self) {
        let Some(at) = self.0.send_all().await else { return };
        if self.0.has_waiter.swap(true, Ordering::AcqRel) {
            // The one that waits may wait for something later.
            self.0.rows_changed.notify_one();
            return;
        }
        let (weak, rows_changed) = (Arc::downgrade(&self.0), Arc::clone(&self.0.rows_changed));
        let clock = self.0.store.clock();
        tokio::spawn(async move {
            let mut at = at;
            loop {
                let pause = Duration::from_millis(at.saturating_sub(clock.now_ms())).max(SHORTEST_PAUSE);
                let _ = tokio::time::timeout(pause, rows_changed.notified()).await;
                let Some(inner) = weak.upgrade() else { return };
                if let Some(next) = inner.send_all().await {
                    at = next;
                    continue;
                }
                inner.has_waiter.store(false, Ordering::Release);
                // Something that was written since then found a waiter.
                match inner.send_all().await {
                    Some(next) if !inner.has_waiter.swap(true, Ordering::AcqRel) => at = next,
                    _ => return,
                }
            }
        });
    }
}

/// When to try again after the store could not be read or written.
fn after_store_error(clock: &dyn Clock) -> u64 {
    let pause = u64::try_from(PAUSE_AFTER_STORE_ERROR.as_millis()).unwrap_or(u64::MAX);
    clock.now_ms().saturating_add(pause)
}

impl Inner {
    /// Sends everything that is due. Returns the time of the next look, or `None` when nothing is left to send. Where
    /// questions escalate, other processes may have stored something for later.
    async fn send_all(&self) -> Option<u64> {
        let next = self.send_each().await;
        if self.named.values().all(|webhook| webhook.escalate_after.is_none()) {
            return next;
        }
        let pause = u64::try_from(CHECKED_EVERY.as_millis()).unwrap_or(u64::MAX);
        let check = self.store.clock().now_ms().saturating_add(pause);
        Some(next.unwrap_or(check).min(check))
    }

    async fn send_each(&self) -> Option<u64> {
        let lease = u64::try_from(LIMIT.as_millis()).unwrap_or(u64::MAX) * 2;
        loop {
            let row = match self.store.claim_from_outbox(self.store.clock().now_ms(), lease).await {
                Ok(Ok(row)) => row,
                Ok(Err(next)) => return next,
                Err(error) => {
                    tracing::warn!(%error, "messages to webhooks cannot be read");
                    return Some(after_store_error(&*self.store.clock()));
                }
            };
            let outcome = match self.send(&row).await {
                Ok(true) => OutboxOutcome::Accepted,
                Ok(false) => OutboxOutcome::Obsolete,
                Err((error, is_final)) => {
                    tracing::warn!(target = row.target, error, "a message was not taken");
                    if is_final || row.attempt_count + 1 >= ATTEMPTS {
                        OutboxOutcome::DeadLetter { error }
                    } else {
                        let pause = PAUSES.0.saturating_mul(1 << row.attempt_count.min(16)).min(PAUSES.1);
                        let pause = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
                        OutboxOutcome::Retry { at: self.store.clock().now_ms().saturating_add(pause), error }
                    }
                }
            };
            if let Err(error) =
                self.store.settle_in_outbox(row.number, outcome, self.store.clock().now_ms()).await
            {
                tracing::warn!(%error, "the outcome of a delivery cannot be stored");
                return Some(after_store_error(&*self.store.clock()));
            }
        }
    }

    /// One attempt to send a push notification.
    async fn send_push(&self, run: &str, id: &str, row: &OutboxRow) -> Result<(), (String, bool)> {
        let known = self.store.push_targets(PushTargetsOf::Run(run.into())).await;
        let known = known.map_err(|error| (error.to_string(), false))?;
        let target = known.into_iter().find(|target| target.id == id);
        let target = target.ok_or(("its address was removed".to_owned(), true))?;
        let config: A2aPushConfig =
            serde_json::from_str(&target.config).map_err(|error| (error.to_string(), true))?;
        let (client, url) =
            public_client(&config.url, &self.push_hosts).map_err(|why| (why.to_string(), true))?;
        // A receiver that named no secret has none to compare with.
        let key = match config.token.as_bytes() {
            [] => self.key(&WebhookSettings::default()).map_err(|why| (why.to_string(), false))?,
            token => token.to_vec(),
        };
        let mut request = client
            .post(url)
            .timeout(LIMIT)
            .header(CONTENT_TYPE, "application/a2a+json")
            .header("a2a-version", "1.0")
            .header("aye-delivery", row.number)
            .header("aye-signature", sign(&key, SystemClock.now_ms() / 1000, row.body.as_bytes()));
        if !config.token.is_empty() {
            request = request.header("x-a2a-notification-token", &config.token);
        }
        if let Some(given) = &config.authentication {
            request = request.header(AUTHORIZATION, format!("{} {}", given.scheme, given.credentials));
        }
        answered(request.body(row.body.clone())).await
    }

    /// The question of an escalation, if it is still pending.
    async fn pending(&self, row: &OutboxRow) -> Result<Option<SuspensionRecord>, (String, bool)> {
        let body: Value = serde_json::from_str(&row.body).map_err(|error| (error.to_string(), true))?;
        let id = SuspensionId::from(body["question"].as_str().unwrap_or_default());
        let question = self.store.suspension(&id).await.map_err(|error| (error.to_string(), false))?;
        let now = self.store.clock().now_ms();
        let is_over = |end: Option<u64>| end.is_some_and(|end| end <= now);
        Ok(question.filter(|question| {
            question.status == SuspensionStatus::Open && !is_over(question.ticket.suspension.expires_at)
        }))
    }

    /// One attempt. Returns `false` if there is nothing to send any more. The error says whether another attempt would be
    /// in vain.
    async fn send(&self, row: &OutboxRow) -> Result<bool, (String, bool)> {
        if let Some((run, id)) = row.target.strip_prefix(PUSH).and_then(|rest| rest.split_once(' ')) {
            return self.send_push(run, id, row).await.map(|()| true);
        }
        let (name, escalated) = match row.target.strip_prefix(ESCALATION) {
            None => (row.target.strip_prefix(TARGET).unwrap_or(&row.target), None),
            Some(name) => match self.pending(row).await? {
                Some(question) => (name, Some(question)),
                None => return Ok(false),
            },
        };
        let webhook = self.named.get(name).ok_or((format!("[webhooks.{name}] is gone"), true))?;
        let url = usable(webhook).map_err(|why| (why.to_owned(), true))?;
        let key = self.key(webhook).map_err(|why| (why.to_string(), false))?;
        let body = match &escalated {
            Some(question) => self.body(webhook, question, QuestionNews::StillPending).to_string(),
            None => row.body.clone(),
        };
        let at = SystemClock.now_ms();
        let client = crate::mcp::http_client(url.as_str()).map_err(|error| (error.to_string(), false))?;
        let request = client
            .post(if webhook.format == WebhookFormat::Ntfy { root_of(&url) } else { url })
            .timeout(LIMIT)
            .header(CONTENT_TYPE, "application/json")
            .header("aye-webhook", name)
            .header("aye-delivery", row.number)
            .header("aye-signature", sign(&key, at / 1000, body.as_bytes()))
            .body(body);
        answered(request).await.map(|()| true)
    }

    fn key(&self, webhook: &WebhookSettings) -> Result<Vec<u8>, AppError> {
        if let Some(name) = &webhook.secret_env {
            let key = self.env.var(name).filter(|key| !key.is_empty());
            return key.map(|key| key.as_bytes().to_vec()).ok_or_else(|| format!("{name} is not set").into());
        }
        let file = self.paths.webhook_key_file();
        if file.symlink_metadata().is_err() {
            write_private(&file, format!("{}\n", fresh_token()).as_bytes())
                .map_err(|error| error.to_string())?;
        }
        let key = read_private(&file, MAX_KEY).map_err(|error| error.to_string())?.unwrap_or_default();
        Some(key.trim().as_bytes().to_vec()).filter(|key| key.len() >= 16).ok_or_else(|| {
            format!("{} holds no key of at least 16 characters", self.paths.display(&file)).into()
        })
    }

    /// Returns the body of the message to a receiver.
    fn body(&self, webhook: &WebhookSettings, question: &SuspensionRecord, news: QuestionNews) -> Value {
        let card = QuestionCard::of(question, None);
        let page = self.page.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let page = page.map(|url| url.trim_end_matches('/').to_owned());
        let link = page.as_ref().map(|url| format!("{url}/#/card/{}", card.id));
        let state = match news {
            QuestionNews::Asked => None,
            QuestionNews::StillPending => Some("still pending".to_owned()),
            QuestionNews::Decided => question.answered(),
            QuestionNews::Expired => Some("expired unanswered".to_owned()),
        };
        let title =
            state.as_ref().map_or_else(|| card.title.clone(), |state| format!("{}: {state}", card.title));
        let summary = shown(&card.summary);
        let why = shown(&card.why);
        match webhook.format {
            WebhookFormat::Json => json!({
                "type": news.as_str(),
                "id": card.id,
                "thread_id": card.thread_id,
                "run_id": card.run_id,
                "call_id": card.call_id,
                "correlation_id": card.correlation_id,
                "kind": card.kind,
                "title": card.title,
                "summary": card.summary,
                "why": card.why,
                "risk": card.risk,
                "options": match news {
                    QuestionNews::Asked | QuestionNews::StillPending => options(&card),
                    QuestionNews::Decided | QuestionNews::Expired => Vec::new(),
                },
                "created_at": card.created_at,
                "expires_at": card.expires_at,
                "shown_hash": card.shown_hash,
                "decision": card.decision,
                "links": {
                    "card": link,
                    "answer": page.map(|url| format!("{url}/v1/signed/answer")),
                },
            }),
            WebhookFormat::Slack => {
                let escaped =
                    |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
                let link =
                    link.map_or_else(String::new, |link| format!("\n<{}|Open the card>", escaped(&link)));
                json!({ "text": format!("*{}*\n{}\n{}{link}", escaped(&title), escaped(&summary), escaped(&why)) })
            }
            WebhookFormat::Discord => {
                let link = link.map_or_else(String::new, |link| format!("\n{link}"));
                json!({
                    "content": format!("**{title}**\n{summary}\n{why}{link}"),
                    // Text written by a model must not mention anyone.
                    "allowed_mentions": { "parse": [] },
                })
            }
            WebhookFormat::Ntfy => {
                let topic = usable(webhook).ok().map(|url| topic_of(&url));
                let mut body =
                    json!({ "topic": topic, "title": title, "message": format!("{summary}\n{why}") });
                if let Some(link) = link {
                    body["click"] = link.clone().into();
                    body["actions"] = json!([{ "action": "view", "label": "Open the card", "url": link }]);
                }
                body
            }
        }
    }
}

/// Sends a message. The error says whether another attempt would be in vain.
async fn answered(request: reqwest::RequestBuilder) -> Result<(), (String, bool)> {
    // The URL may be a secret.
    let reply = request.send().await.map_err(|error| (root_cause(&error.without_url()), false))?;
    let status = reply.status();
    if status.is_success() {
        return Ok(());
    }
    let comes_again = status.is_server_error() || matches!(status.as_u16(), 408 | 425 | 429);
    Err((format!("the response was {status}"), !comes_again))
}

/// Returns the answers that a receiver can give.
fn options(card: &QuestionCard) -> Vec<&'static str> {
    match card.kind {
        crate::server::QuestionKind::Permission => vec!["approve", "deny", "request_changes"],
        _ => Vec::new(),
    }
}

fn shown(text: &str) -> String {
    let text = visible(text);
    match text.char_indices().nth(SHORT) {
        Some((at, _)) => format!("{} …", &text[..at]),
        None => text.into_owned(),
    }
}

/// The URL of a webhook: TLS, except on this machine.
fn usable(webhook: &WebhookSettings) -> Result<Url, &'static str> {
    let url = webhook.url.as_deref().ok_or("has no url")?;
    let url = Url::parse(url).map_err(|_| "has no valid url")?;
    let is_own = url.host_str().is_some_and(is_this_machine);
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_own => Ok(url),
        _ => Err("needs an https:// url"),
    }
}

/// The topic of a URL such as `https://ntfy.sh/mine`.
fn topic_of(url: &Url) -> String {
    url.path().trim_matches('/').to_owned()
}

fn root_of(url: &Url) -> Url {
    let mut root = url.clone();
    root.set_path("/");
    root
}
