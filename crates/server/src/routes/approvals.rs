//! Questions: the inbox of all conversations, and their answers. An answer takes the path that `y` takes.

use std::convert::Infallible;
use std::sync::Arc;

use async_trait::async_trait;
use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::sse::Event;
use aye_core::contract::grant::{GrantEnd, GrantRequest};
use aye_core::contract::ids::{CallId, DecisionId, RunId, SuspensionId, ThreadId};
use aye_core::contract::judgement::Profile;
use aye_core::contract::message::ToolCall;
use aye_core::contract::record::{
    DecideOutcome, GrantRecord, GrantScope, RunRecord, StoredMessage, SuspensionRecord, SuspensionStatus,
    ThreadRecord,
};
use aye_core::contract::storage::SuspensionFilter;
use aye_core::contract::suspension::{Answer, ResumeDecisionAction, ToolCallResume};
use aye_encode::answer::ClientAnswer;
use aye_session::{AnswerError, AnswerPlace, Reply, shown_hash};
use futures::Stream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::broadcast;

use super::extract::{Asked, Authorized, DecideScope, InThread, JsonBody, ReadScope, Signed};
use super::paging::{ListPage, Paging, one_more};
use crate::access::{Caller, TokenScope};
use crate::api::{Api, EventStream};
use crate::card::QuestionCard;
use crate::clock::now_ms;
use crate::error::ApiError;
use crate::guard::demand;
use crate::hub::Hub;
use crate::inbox_feed::{InboxEvent, QuestionSource};
use crate::sse;

pub(super) fn routes(api: Api) -> Api {
    api.get("/v1/approvals", "List questions", &[], list)
        .get("/v1/approvals/watch", "Follow the pending questions", &[], watch)
        .get("/v1/approvals/{id}", "Show a question", &[], show)
        .post("/v1/approvals/{id}/approve", "Say yes to what was shown", &[409, 410, 412], approve)
        .post("/v1/approvals/{id}/deny", "Deny the call", &[409, 410], deny)
        .post("/v1/approvals/{id}/request-changes", "Ask for another call", &[409, 410], request_changes)
        .post("/v1/approvals/{id}/answer", "Send the values that the question asks for", &[409, 410], answer)
        .post(
            "/v1/signed/answer",
            "Answer with a request signed with a webhook's key",
            &[401, 409, 410, 412],
            answer_signed,
        )
}

/// The receipt for an answer.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DecisionReceipt {
    outcome: AnswerOutcome,
    card: QuestionCard,
}

/// The effect of an answer.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum AnswerOutcome {
    /// It is the answer.
    Accepted,
    /// It was the answer already.
    Repeated,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
struct ListQuery {
    /// `open` when absent.
    #[schemars(regex(pattern = "^(open|all)$"))]
    status: Option<String>,
    thread_id: Option<ThreadId>,
}

async fn list(
    Authorized { hub, .. }: Authorized<ReadScope>,
    Asked(paging): Asked<Paging>,
    Asked(asked): Asked<ListQuery>,
) -> Result<Json<ListPage<QuestionCard>>, ApiError> {
    let slice = paging.slice();
    let status = match asked.status.as_deref() {
        None | Some("open") => Some(SuspensionStatus::Open),
        Some("all") => None,
        Some(other) => return Err(ApiError::field("status", format!("`{other}` is not `open` or `all`"))),
    };
    let filter = SuspensionFilter { thread: asked.thread_id, status, ..SuspensionFilter::default() };
    let records = hub.store().suspensions_page(filter, one_more(slice)).await?;
    let next_offset = (records.len() > slice.limit).then(|| slice.offset + slice.limit);
    let mut items = Vec::new();
    // Subagents answer their own questions, so a page may have fewer cards than its limit.
    for record in records.iter().take(slice.limit).filter(|record| !record.ticket.is_served()) {
        items.push(card(&hub, record).await?);
    }
    Ok(Json(ListPage { items, next_offset }))
}

async fn card(hub: &Hub, record: &SuspensionRecord) -> Result<QuestionCard, ApiError> {
    let thread = hub.store().load_thread(&record.thread_id).await?;
    Ok(QuestionCard::of(record, thread.as_ref()))
}

async fn question(hub: &Hub, id: &SuspensionId) -> Result<SuspensionRecord, ApiError> {
    let found = hub.store().suspension(id).await?;
    found.ok_or_else(|| ApiError::not_found("question", id.as_str()))
}

async fn show(
    Authorized { hub, .. }: Authorized<ReadScope>,
    Path(id): Path<SuspensionId>,
) -> Result<Json<QuestionCard>, ApiError> {
    let record = question(&hub, &id).await?;
    Ok(Json(card(&hub, &record).await?))
}

/// Streams the pending questions as they are now, and every one that is asked or closed from then on.
async fn watch(Authorized { hub, .. }: Authorized<ReadScope>) -> EventStream {
    EventStream(sse::respond(inbox(hub)))
}

#[async_trait]
impl QuestionSource for Hub {
    async fn open_questions(&self, thread: Option<&ThreadId>) -> Result<Vec<SuspensionRecord>, ApiError> {
        let status = Some(SuspensionStatus::Open);
        let filter = SuspensionFilter { thread: thread.cloned(), status, ..SuspensionFilter::default() };
        let mut open = self.store().suspensions(filter).await?;
        open.retain(|record| !record.ticket.is_served());
        Ok(open)
    }

    async fn shown(&self, record: &SuspensionRecord) -> Result<String, ApiError> {
        Ok(json!(card(self, record).await?).to_string())
    }

    async fn shown_closed(&self, id: &SuspensionId) -> Result<String, ApiError> {
        match self.store().suspension(id).await? {
            Some(record) => self.shown(&record).await,
            // It went with its conversation.
            None => Ok(json!({ "id": id, "status": "superseded" }).to_string()),
        }
    }
}

struct InboxWatch {
    hub: Arc<Hub>,
    /// `None` before the snapshot.
    events: Option<broadcast::Receiver<InboxEvent>>,
    _reader: crate::metrics::Present,
}

impl InboxWatch {
    /// Returns the next frame; `None` when the stream ends. A reader that is too slow starts again.
    async fn next(&mut self) -> Option<Event> {
        let frame = |name: &str, data: &str| Event::default().event(name).data(data);
        let Some(events) = &mut self.events else {
            let hub = &self.hub;
            // Subscribed before the first read.
            let watched = hub.inbox.watch(hub, hub.changes(), &hub.closing).await;
            let (cards, events) =
                watched.inspect_err(|error| tracing::warn!(?error, "the inbox cannot be read")).ok()?;
            self.events = Some(events);
            return Some(frame("snapshot", &format!("{{\"items\":[{}]}}", cards.join(","))));
        };
        let event = tokio::select! {
            event = events.recv() => event,
            () = self.hub.closing.cancelled() => return None,
        };
        match event {
            Ok(InboxEvent::Asked(card)) => Some(frame("asked", &card)),
            Ok(InboxEvent::Closed(card)) => Some(frame("closed", &card)),
            Err(broadcast::error::RecvError::Lagged(_)) => {
                self.hub.metrics.reader_dropped();
                None
            }
            Ok(InboxEvent::Failed) | Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

fn inbox(hub: Arc<Hub>) -> impl Stream<Item = Result<Event, Infallible>> + Send {
    let watching = InboxWatch { events: None, _reader: hub.metrics.reader(), hub };
    futures::stream::unfold(watching, |mut watching| async move {
        let event = watching.next().await?;
        watching.hub.metrics.frame();
        Some((Ok(event), watching))
    })
}

/// A yes.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Approve {
    /// The hash of what the user saw.
    shown_hash: Option<String>,
    comment: Option<String>,
    arguments: Option<Value>,
    profile: Option<Profile>,
    grant: Option<Grant>,
    decision_id: Option<DecisionId>,
}

/// A rule that is granted with a yes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Grant {
    pattern: String,
    #[serde(default)]
    scope: Reach,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Reach {
    #[default]
    Run,
    Thread,
    Project,
    All,
}

async fn approve(
    Authorized { hub, caller, .. }: Authorized<DecideScope>,
    Path(id): Path<SuspensionId>,
    JsonBody(yes): JsonBody<Approve>,
) -> Result<Json<DecisionReceipt>, ApiError> {
    let record = question(&hub, &id).await?;
    let Some(shown) = yes.shown_hash else {
        return Err(ApiError::field("shown_hash", "an approval must repeat the card's `shown_hash`"));
    };
    check_shown(&hub, &record, &shown).await?;
    if let Some(profile) = yes.profile
        && profile != Profile::Outside
    {
        return Err(ApiError::field("profile", "only `outside` can be chosen; leave it out otherwise"));
    }
    let grant = match yes.grant {
        Some(grant) => Some(proposed(&hub, &caller, &record, grant).await?),
        None => None,
    };
    let Approve { comment: reason, arguments, profile, .. } = yes;
    let answer = Answer { reason, arguments, profile, ..Answer::yes(Value::Null) };
    let reply = Reply { shown: Some(shown), grant, ..Reply::approval(answer) };
    settle(&hub, &caller, &id, named(yes.decision_id, reply)).await
}

/// Returns the error for an answer that was not stored.
async fn refused(hub: &Hub, record: &SuspensionRecord, error: AnswerError) -> ApiError {
    match error {
        AnswerError::NeedsData => {
            let (id, example) = (&record.id, record.ticket.example_answer());
            let message = format!(
                "the question needs data, not just approval: POST /v1/approvals/{id}/answer with `result`, such as \
                 {example}"
            );
            ApiError::field("result", message)
        }
        AnswerError::TakesNoData => {
            ApiError::field("result", "this question takes no values: approve or deny it")
        }
        AnswerError::Changed => match changed(hub, record).await {
            Ok(error) | Err(error) => error,
        },
        AnswerError::Refused(error) => error.into(),
    }
}

/// Rejects an answer to a question that is no longer as it was shown.
async fn check_shown(hub: &Hub, record: &SuspensionRecord, shown: &str) -> Result<(), ApiError> {
    if shown == shown_hash(record) {
        return Ok(());
    }
    Err(changed(hub, record).await?)
}

async fn changed(hub: &Hub, record: &SuspensionRecord) -> Result<ApiError, ApiError> {
    let now = json!(card(hub, record).await?);
    let message = AnswerError::Changed.to_string();
    Ok(ApiError::new(StatusCode::PRECONDITION_FAILED, "changed", message).with("card", now))
}

/// An answer of a program that was sent the question by a webhook.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SignedAnswer {
    /// The question's id.
    question: SuspensionId,
    /// The hash of what was shown: the `shown_hash` of the message.
    shown_hash: String,
    action: SignedAction,
    /// Why not, or what to change.
    reason: Option<String>,
    decision_id: Option<DecisionId>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum SignedAction {
    Approve,
    Deny,
    RequestChanges,
}

async fn answer_signed(
    Signed { hub, caller, body: given }: Signed<SignedAnswer>,
) -> Result<Json<DecisionReceipt>, ApiError> {
    let record = question(&hub, &given.question).await?;
    check_shown(&hub, &record, &given.shown_hash).await?;
    let reply = match given.action {
        SignedAction::Approve => Reply::approval(Answer { reason: given.reason, ..Answer::yes(Value::Null) }),
        SignedAction::Deny => Answer::no(given.reason).into(),
        SignedAction::RequestChanges => {
            let wanted = given.reason.filter(|reason| !reason.trim().is_empty());
            Answer::modify(wanted.ok_or_else(|| ApiError::field("reason", "say what to change"))?).into()
        }
    };
    let reply = Reply { shown: Some(given.shown_hash), ..reply };
    settle(&hub, &caller, &given.question, named(given.decision_id, reply)).await
}

/// The grant that the card proposes. Another pattern has to be granted where the user sees what it reaches.
async fn proposed(
    hub: &Hub,
    caller: &Caller,
    record: &SuspensionRecord,
    grant: Grant,
) -> Result<GrantRecord, ApiError> {
    let shown = card(hub, record).await?;
    if shown.proposals.iter().all(|proposal| proposal.pattern != grant.pattern) {
        return Err(ApiError::field(
            "grant.pattern",
            "only a rule that the card proposes can be granted from here",
        ));
    }
    let thread = hub.thread(&record.thread_id).await?;
    let agent_folder = hub.agent_folder(&thread.cwd).await?;
    let scope = match grant.scope {
        Reach::Run => GrantScope::Run(record.run_id.clone()),
        Reach::Thread => GrantScope::Thread(record.thread_id.clone()),
        Reach::Project => GrantScope::Project(agent_folder.root().to_path_buf()),
        Reach::All => GrantScope::Everywhere,
    };
    let request =
        GrantRequest { suspension: record.id.clone(), pattern: grant.pattern, scope, end: GrantEnd::Never };
    agent_folder.prepare().await;
    let actor = hub.program.actor(&caller.token);
    agent_folder.checked_grant(request, actor).await
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Deny {
    reason: Option<String>,
    decision_id: Option<DecisionId>,
}

async fn deny(
    Authorized { hub, caller, .. }: Authorized<DecideScope>,
    Path(id): Path<SuspensionId>,
    JsonBody(no): JsonBody<Deny>,
) -> Result<Json<DecisionReceipt>, ApiError> {
    settle(&hub, &caller, &id, named(no.decision_id, Answer::no(no.reason).into())).await
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RequestChanges {
    feedback: String,
    decision_id: Option<DecisionId>,
}

async fn request_changes(
    Authorized { hub, caller, .. }: Authorized<DecideScope>,
    Path(id): Path<SuspensionId>,
    JsonBody(wanted): JsonBody<RequestChanges>,
) -> Result<Json<DecisionReceipt>, ApiError> {
    if wanted.feedback.trim().is_empty() {
        return Err(ApiError::field("feedback", "say what to change"));
    }
    settle(&hub, &caller, &id, named(wanted.decision_id, Answer::modify(wanted.feedback).into())).await
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GivenAnswer {
    result: Value,
    comment: Option<String>,
    decision_id: Option<DecisionId>,
}

async fn answer(
    Authorized { hub, caller, .. }: Authorized<DecideScope>,
    Path(id): Path<SuspensionId>,
    JsonBody(given): JsonBody<GivenAnswer>,
) -> Result<Json<DecisionReceipt>, ApiError> {
    let answer = Answer { reason: given.comment, ..Answer::yes(given.result) };
    settle(&hub, &caller, &id, named(given.decision_id, Reply::values(answer))).await
}

/// A decision of the book: by call, in a conversation or a run.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CallDecision {
    tool_call_id: CallId,
    action: ResumeDecisionAction,
    #[serde(default)]
    payload: Value,
    reason: Option<String>,
    decision_id: Option<DecisionId>,
}

pub(super) async fn decide_in_thread(
    InThread { hub, caller, thread, .. }: InThread<DecideScope>,
    JsonBody(decision): JsonBody<CallDecision>,
) -> Result<Json<DecisionReceipt>, ApiError> {
    let filter = SuspensionFilter { thread: Some(thread.id), ..SuspensionFilter::default() };
    decide_by_call(&hub, &caller, filter, decision).await
}

pub(super) async fn decide_in_run(
    Authorized { hub, caller, .. }: Authorized<DecideScope>,
    Path(id): Path<RunId>,
    JsonBody(decision): JsonBody<CallDecision>,
) -> Result<Json<DecisionReceipt>, ApiError> {
    decide_call_of(&hub, &caller, &id, decision).await
}

/// Decides about a call of a run.
pub(super) async fn decide_call_of(
    hub: &Arc<Hub>,
    caller: &Caller,
    run: &RunId,
    decision: CallDecision,
) -> Result<Json<DecisionReceipt>, ApiError> {
    let filter = SuspensionFilter { run: Some(run.clone()), ..SuspensionFilter::default() };
    decide_by_call(hub, caller, filter, decision).await
}

async fn decide_by_call(
    hub: &Arc<Hub>,
    caller: &Caller,
    filter: SuspensionFilter,
    decision: CallDecision,
) -> Result<Json<DecisionReceipt>, ApiError> {
    let asked = hub.store().suspensions(filter).await?;
    // The last one: a call can be asked about again.
    let found = asked.into_iter().rfind(|record| record.call_id == decision.tool_call_id);
    let record = found
        .ok_or_else(|| ApiError::not_found("question about the call", decision.tool_call_id.as_str()))?;
    let CallDecision { action, payload, reason, .. } = decision;
    let answer = Answer { action, reason, ..Answer::yes(payload) };
    settle(hub, caller, &record.id, named(decision.decision_id, answer.into())).await
}

/// Gives an answer the id that a client names, which makes a retry safe.
fn named(id: Option<DecisionId>, mut reply: Reply) -> Reply {
    if let Some(id) = id {
        reply.resume.decision_id = id;
    }
    reply
}

/// Stores the answers in a message of a client that may be repeated: `key` names it in the decisions.
pub(super) async fn decide_all_as(
    hub: &Arc<Hub>,
    caller: &Caller,
    answers: Vec<ClientAnswer>,
    key: &str,
) -> Result<(), ApiError> {
    demand(caller, TokenScope::Decide)?;
    for (nth, answer) in answers.into_iter().enumerate() {
        let (id, resume) = answer.into_decision(now_ms());
        let decision_id = DecisionId::from(format!("{key}-{nth}"));
        let _accepted = decide(hub, caller, &id, ToolCallResume { decision_id, ..resume }).await?;
    }
    Ok(())
}

/// The run that answers of a client are for, and the last message that the client must have seen to answer.
pub(super) struct AnsweredRun {
    pub(super) run: RunRecord,
    pub(super) asked: u64,
}

/// Returns the run that answers are for.
pub(super) async fn run_of_answers(
    hub: &Hub,
    thread: &ThreadRecord,
    questions: &[SuspensionRecord],
    answers: &[ClientAnswer],
) -> Result<AnsweredRun, ApiError> {
    let is_about = |record: &&SuspensionRecord| {
        record.thread_id == thread.id && answers.iter().any(|answer| answer.suspension_id == record.id)
    };
    let about: Vec<_> = questions.iter().filter(is_about).collect();
    let run = match about.first() {
        Some(record) => hub.store().load_run(&record.run_id).await?,
        // The question of a subagent, which the last run of the conversation waits for.
        None => None,
    };
    let run = match run {
        Some(run) => run,
        None => hub.latest_run(&thread.id).await?,
    };
    let (_, messages) = hub.store().messages_of_run(&thread.id, &run.id).await?;
    let asks = |stored: &&StoredMessage| {
        let is_asked = |call: &ToolCall| about.iter().any(|record| record.call_id.as_str() == call.id);
        stored.message.tool_calls.iter().any(is_asked)
    };
    let calls = |stored: &&StoredMessage| !stored.message.tool_calls.is_empty();
    let asked = messages.iter().find(asks).or_else(|| messages.iter().rfind(calls)).or(messages.last());
    let asked = match asked {
        Some(asked) => asked.seq,
        None => hub.store().message_count(&thread.id).await?,
    };
    Ok(AnsweredRun { run, asked })
}

/// Stores the answers of a client that then reads the run. One that comes late, because somebody else was faster or the
/// question has expired, changes nothing, and is no error: the run says what happened.
pub(super) async fn decide_in_time(
    hub: &Arc<Hub>,
    caller: &Caller,
    answers: Vec<ClientAnswer>,
) -> Result<(), ApiError> {
    demand(caller, TokenScope::Decide)?;
    for answer in answers {
        let (id, resume) = answer.into_decision(now_ms());
        match decide(hub, caller, &id, resume).await {
            Err(error) if !error.is_late() => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(())
}

/// Stores the answer and resumes its run.
pub(crate) async fn decide(
    hub: &Arc<Hub>,
    caller: &Caller,
    id: &SuspensionId,
    resume: ToolCallResume,
) -> Result<Json<DecisionReceipt>, ApiError> {
    settle(hub, caller, id, Reply::literal(resume)).await
}

async fn settle(
    hub: &Arc<Hub>,
    caller: &Caller,
    id: &SuspensionId,
    reply: Reply,
) -> Result<Json<DecisionReceipt>, ApiError> {
    let _answering = hub.starts.answering();
    let record = question(hub, id).await?;
    let thread = hub.thread(&record.thread_id).await?;
    let actor = hub.program.actor(&caller.token);
    // Nothing runs here in a folder that is not served, but answers are accepted: the process that drives the
    // run resumes it.
    let agent_folder =
        if hub.serves(&thread.cwd) { hub.agent_folder(&thread.cwd).await? } else { hub.any_folder().await? };
    let answered =
        match aye_session::answer(AnswerPlace::Runtime(agent_folder.runtime()), id, reply, actor).await {
            Ok(answered) => answered,
            Err(error) => return Err(refused(hub, &record, error).await),
        };
    let wakes = answered.wakes.unwrap_or_else(|| record.thread_id.clone());
    let (outcome, record) = match answered.outcome {
        DecideOutcome::Accepted(record) => {
            hub.metrics.decision();
            (AnswerOutcome::Accepted, record)
        }
        DecideOutcome::Repeated(record) => (AnswerOutcome::Repeated, record),
        DecideOutcome::AlreadyDecided(record) => {
            let shown = json!(card(hub, &record).await?);
            let who = record.decided_by.as_ref().map_or_else(String::new, |by| format!(" by {}", by.shown()));
            let message = format!("it was already answered{who}");
            return Err(ApiError::new(StatusCode::CONFLICT, "already_decided", message).with("card", shown));
        }
        DecideOutcome::Closed(record) => {
            let shown = json!(card(hub, &record).await?);
            let message = "it is no longer pending: its run has ended or another message came";
            return Err(ApiError::new(StatusCode::GONE, "closed", message).with("card", shown));
        }
        DecideOutcome::Expired(record) => {
            let shown = json!(card(hub, &record).await?);
            hub.wake(&wakes);
            return Err(ApiError::new(StatusCode::GONE, "expired", "it has expired").with("card", shown));
        }
        DecideOutcome::NotFound => return Err(ApiError::not_found("question", id.as_str())),
    };
    hub.wake(&wakes);
    Ok(Json(DecisionReceipt { outcome, card: QuestionCard::of(&record, Some(&thread)) }))
}
