//! One tool call from its start to its result, with the server's questions in between.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, ElicitResult, InputRequest, InputRequiredResult,
    ServerResult,
};
use serde_json::Value;
use tokio::sync::oneshot;

use super::client::{CallError, Client};
use super::elicitation::{Elicitation, declined};
use super::handler::ProgressReport;
use super::open::{CallEvent, OpenCall};
use aye_core::contract::progress::ProgressStatus;
use aye_core::contract::tool::ToolCallContext;

/// Progress is passed on no more often.
const REPORT_EVERY: Duration = Duration::from_millis(100);
/// A call that asks more often is answered with a no.
const MAX_QUESTIONS: usize = 10;
/// Maximum times a call is sent again with answers.
const MAX_ROUNDS: usize = 10;

/// A call in progress. Dropping it notifies the server that its result is no longer needed.
pub(super) struct CallSession {
    client: Arc<Client>,
    params: CallToolRequestParams,
    limit: Duration,
    open: Option<OpenCall>,
    asked: usize,
    rounds: usize,
    /// Questions that came together, for a server that takes the answers with the call sent again.
    waiting: VecDeque<(String, Elicitation)>,
    answers: BTreeMap<String, Value>,
    reported: Option<Instant>,
}

/// The destination of an answer.
pub(super) enum ReplyRoute {
    /// To a request that the server keeps open.
    Now(oneshot::Sender<ElicitResult>),
    /// Along with the call, when it is sent again.
    Later(String),
}

/// The next event of a call: its result, or a question.
#[expect(clippy::large_enum_variant, reason = "one at a time, and taken apart at once")]
pub(super) enum ElicitationReply {
    Result(Result<ServerResult, CallError>),
    Question(Elicitation, ReplyRoute),
}

impl CallSession {
    pub(super) fn new(client: Arc<Client>, params: CallToolRequestParams, limit: Duration) -> Self {
        Self {
            client,
            params,
            limit,
            open: None,
            asked: 0,
            rounds: 0,
            waiting: VecDeque::new(),
            answers: BTreeMap::new(),
            reported: None,
        }
    }

    /// Sends an answer to its requester. If the question was withdrawn in the meantime, the answer is
    /// dropped.
    pub(super) fn answer(&mut self, reply: ReplyRoute, answer: ElicitResult) {
        match reply {
            ReplyRoute::Now(sender) => drop(sender.send(answer)),
            ReplyRoute::Later(key) => {
                self.answers.insert(key, serde_json::to_value(answer).unwrap_or_default());
            }
        }
    }

    /// Starts or resumes the call, until it is done or has a question for the user.
    pub(super) async fn advance(&mut self, ctx: &ToolCallContext) -> ElicitationReply {
        loop {
            if let Some((key, question)) = self.waiting.pop_front() {
                return ElicitationReply::Question(question, ReplyRoute::Later(key));
            }
            let open = match &mut self.open {
                Some(open) => open,
                closed @ None => {
                    let mut params = self.params.clone();
                    if !self.answers.is_empty() {
                        params.input_responses = Some(std::mem::take(&mut self.answers));
                    }
                    let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
                    match self.client.open(request, self.limit, true).await {
                        Ok(open) => closed.insert(open),
                        Err(error) => return ElicitationReply::Result(Err(error)),
                    }
                }
            };
            match open.next(&ctx.cancellation).await {
                CallEvent::Progress(progress) => self.report(progress, ctx).await,
                CallEvent::Asked(asked) if self.asked >= MAX_QUESTIONS => drop(asked.reply.send(declined())),
                CallEvent::Asked(asked) => {
                    self.asked += 1;
                    return ElicitationReply::Question(asked.question, ReplyRoute::Now(asked.reply));
                }
                CallEvent::Done(Ok(ServerResult::InputRequiredResult(wanted))) => {
                    self.open = None;
                    if let Err(error) = self.take_wanted(wanted) {
                        return ElicitationReply::Result(Err(error));
                    }
                }
                CallEvent::Done(result) => return ElicitationReply::Result(result),
            }
        }
    }

    /// Stores the questions that the server needs answered before it continues.
    fn take_wanted(&mut self, wanted: InputRequiredResult) -> Result<(), CallError> {
        self.rounds += 1;
        if self.rounds > MAX_ROUNDS {
            return Err(CallError::Refused("it asked too many times".to_owned()));
        }
        self.params.request_state = wanted.request_state;
        for (key, request) in wanted.input_requests.into_iter().flatten() {
            let InputRequest::Elicitation(request) = request else {
                return Err(CallError::Refused(
                    "it requests something that is not supported here".to_owned(),
                ));
            };
            self.client.shared.note_refused(&request.params);
            match Elicitation::read(request.params) {
                Ok(question) if self.asked < MAX_QUESTIONS => {
                    self.asked += 1;
                    self.waiting.push_back((key, question));
                }
                Ok(_) | Err(_) => self.answer(ReplyRoute::Later(key), declined()),
            }
        }
        Ok(())
    }

    async fn report(&mut self, progress: ProgressReport, ctx: &ToolCallContext) {
        if self.reported.is_some_and(|at| at.elapsed() < REPORT_EVERY) {
            return;
        }
        self.reported = Some(Instant::now());
        let part = progress.total.filter(|total| *total > 0.0).map(|total| progress.done / total);
        let part = part.filter(|part| part.is_finite()).map(|part| part.clamp(0.0, 1.0));
        ctx.report_progress(ProgressStatus::Running, progress.message.as_deref(), part).await;
    }
}
