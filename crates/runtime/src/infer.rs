//! One inference: the request, and the stream of its answer.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use futures::StreamExt;
use serde_json::json;

use super::driver::Driver;
use super::in_flight::Done;
use super::parts::{Answered, Inferred, Partial};
use super::request::RuntimeError;
use super::resolve::executor_of;
use super::retry::cut;
use super::window::{Packed, Prompt};
use aye_core::context::AGENT_KEY;
use aye_core::contract::activity::{Activity, InferenceRetry, KnownActivity};
use aye_core::contract::content::ContentBlock;
use aye_core::contract::context_message::ContextTarget;
use aye_core::contract::error_code::ErrorCode;
use aye_core::contract::event::AgentEvent;
use aye_core::contract::event_sink::EventSink;
use aye_core::contract::executor::{InferenceExecutionError, InferenceRequest, LlmExecutor, LlmStreamEvent};
use aye_core::contract::ids::{CallId, MessageId};
use aye_core::contract::inference::{ModelUsage, StopReason, StreamResult};
use aye_core::contract::lifecycle::TerminationReason;
use aye_core::contract::message::{Message, REFUSED_THOUGHTS, ToolCall};
use aye_core::contract::prefix::PromptPart;
use aye_core::contract::sent_request::SENT_REQUEST;
use aye_core::contract::spec::ModelEntry;
use aye_core::run::Fact;
use aye_core::state::Phase;

impl Driver {
    /// Asks the model; the answer comes back as [`Done::Inferred`].
    pub(super) async fn infer(&mut self) {
        self.inference.partial.clear();
        let request = self.request().await;
        let executor = self.inference.executor.take().unwrap_or_else(|| Arc::clone(&self.agent.executor));
        let sink = Arc::clone(&self.events.sink);
        let partial = Arc::clone(&self.inference.partial);
        let message_id = self.step.message_id.to_string();
        self.in_flight.start(async move {
            let started = Instant::now();
            let outcome = match request {
                Ok(request) => stream(executor, request, sink, partial, &message_id).await,
                Err(message) => Err(InferenceExecutionError::InvalidRequest(message)),
            };
            Done::Inferred(Box::new(Inferred { outcome, duration: started.elapsed() }))
        });
    }

    async fn request(&mut self) -> Result<InferenceRequest, String> {
        let mut overrides = self.inference.overrides.clone();
        overrides.merge(self.inference.shape.overrides.clone());
        let (model_id, model) = self.model_of_step(overrides.model.as_deref());
        let prompt = self.prompt();
        let Packed { system, tools, messages } =
            self.pack(prompt).await.map_err(|error| error.to_string())?;
        let request = InferenceRequest {
            model: model_id,
            upstream_model: model.model_name,
            system,
            messages,
            tools,
            overrides,
            enable_prompt_cache: self
                .agent
                .spec
                .context_policy
                .as_ref()
                .is_none_or(|p| p.enable_prompt_cache),
        };
        let ctx = self.context(Phase::BeforeInference);
        let request = self.agent.env.transform_request(request, &ctx).map_err(|e| e.to_string())?;
        // A remote agent gets the last message only.
        self.inference.sent = self.remote.is_none().then(|| {
            let at = self.history.len() as u64;
            self.packing.digests.sent(&request, at)
        });
        Ok(request)
    }

    /// What the agent and the plugins want to be said beside the conversation. What happened is taken out of the shape: it
    /// becomes a message of the conversation.
    fn prompt(&mut self) -> Prompt {
        let mut parts = Vec::new();
        let agent = self.handoff.active().unwrap_or(&self.handoff.base().spec.id);
        if !self.agent.spec.system_prompt.is_empty() {
            parts.push(PromptPart {
                key: format!("{AGENT_KEY}{agent}"),
                text: self.agent.spec.system_prompt.clone(),
                ends_silently: false,
            });
        }
        let tools = self.inference.shape.ordered(&self.agent.descriptors);
        let (mut events, mut front) = (Vec::new(), 0);
        let messages = std::mem::take(&mut self.inference.shape.context_messages);
        for message in messages {
            if message.is_event() {
                events.push(message.content);
                continue;
            }
            let part = PromptPart {
                key: message.key.clone(),
                text: message.content.clone(),
                ends_silently: message.persistent,
            };
            match message.target {
                ContextTarget::SystemFront => {
                    parts.insert(front, part);
                    front += 1;
                }
                ContextTarget::System | ContextTarget::Conversation => parts.push(part),
            }
            self.inference.shape.context_messages.push(message);
        }
        Prompt { parts, tools, events }
    }

    /// The model of the step: the one that a plugin wants in it, else the agent's. One that is not registered is left
    /// aside.
    fn model_of_step(&mut self, wanted: Option<&str>) -> (String, ModelEntry) {
        self.inference.executor = None;
        // A model cannot replace a remote agent.
        let wanted = wanted.filter(|_| self.remote.is_none());
        if let Some(id) = wanted.filter(|id| *id != self.agent.model_id) {
            match executor_of(&self.shared.catalog(), &self.shared.breaker, &self.agent.spec, id) {
                Ok((model, executor)) => {
                    self.inference.executor = Some(executor);
                    return (id.to_owned(), model);
                }
                Err(error) => {
                    tracing::warn!(run = %self.record.id, model = id, %error, "not used in this step");
                }
            }
        }
        (self.agent.model_id.clone(), self.agent.model.clone())
    }

    /// Adds a finished answer to the conversation. Returns `None` if the model is asked again for the same
    /// step.
    pub(super) async fn inferred(&mut self, inferred: Inferred) -> Result<Option<Fact>, RuntimeError> {
        match inferred.outcome {
            Ok(Answered { mut result, model, stop_detail }) => {
                self.separate_ids(&mut result).await?;
                for call in &mut result.tool_calls {
                    self.settle_spelling(call);
                }
                self.replace_calls(&mut result).await;
                if let Some(usage) = &result.usage {
                    self.charge(&model, usage);
                }
                let had_thoughts_refused = self.packing.is_without_thoughts();
                self.calibrate(result.usage.as_ref());
                self.record.steps = self.machine.steps();
                for call in &result.tool_calls {
                    self.events
                        .emit(AgentEvent::ToolCallReady {
                            id: call.id.clone(),
                            name: call.name.clone(),
                            arguments: call.arguments.clone(),
                        })
                        .await;
                }
                self.events
                    .emit(AgentEvent::InferenceComplete {
                        model: model.clone(),
                        usage: result.usage,
                        duration_ms: u64::try_from(inferred.duration.as_millis()).unwrap_or(u64::MAX),
                        stop_reason: result.stop_reason,
                    })
                    .await;
                let mut message = Message::assistant_with(result.content.clone(), result.tool_calls.clone());
                message.id = self.step.message_id.clone();
                let mut about = json!({
                    "model": model,
                    "usage": result.usage,
                    "duration_ms": u64::try_from(inferred.duration.as_millis()).unwrap_or(u64::MAX),
                    "stop_reason": result.stop_reason,
                });
                if had_thoughts_refused {
                    about[REFUSED_THOUGHTS] = true.into();
                }
                if let Some(sent) = self.inference.sent.take() {
                    about[SENT_REQUEST] = json!(sent);
                }
                message.metadata = Some(about);
                self.step.answered(&result.tool_calls);
                if !result.content.is_empty() || !result.tool_calls.is_empty() {
                    self.append_message(message);
                } else if let Some(usage) = result.usage {
                    self.shared.count_request(&ModelUsage { model: model.clone(), usage }).await;
                }
                self.inference.partial.clear();
                if result.has_incomplete_tool_calls && self.continue_cut_answer(&result).await {
                    return Ok(None);
                }
                self.inference.ended_early = ended_early(&result, &model, stop_detail.as_deref());
                if self.inference.ended_early.is_none() && is_empty(&result) {
                    if self.machine.steps() <= 1 {
                        let message = format!("{model} gave an empty answer; retry, or choose another model");
                        self.events.emit_error(&message, Some(ErrorCode::EmptyAnswer.as_str())).await;
                        self.inference.last_response = Some(result);
                        return Ok(Some(Fact::Failed { message }));
                    }
                    let words = format!("{model} ended without a closing message");
                    self.emit_activities(vec![Activity::notice("", words)]).await;
                }
                let calls = result.tool_calls.iter().map(|call| CallId::from(call.id.as_str())).collect();
                self.inference.last_response = Some(result);
                Ok(Some(Fact::Inferred { calls }))
            }
            Err(error) => {
                if let Some(fact) = self.postpone(&error) {
                    return Ok(Some(fact));
                }
                let mut message = error.to_string();
                if matches!(error, InferenceExecutionError::BoundThoughts(_)) && self.drop_thoughts()? {
                    tracing::info!(run = %self.record.id, %error, "the request is sent again without thoughts");
                    self.infer().await;
                    return Ok(None);
                }
                let is_too_long = matches!(error, InferenceExecutionError::ContextOverflow(_));
                // Not every provider says so.
                let may_be_too_long = matches!(error, InferenceExecutionError::Rejected(_))
                    && self.is_larger_than_any_accepted();
                if (is_too_long || may_be_too_long) && self.overflowed(&error).await {
                    return Ok(None);
                }
                if is_too_long {
                    message.push_str("; it is still too long after older messages were left out");
                } else {
                    self.forget_suspected_limit()?;
                }
                self.events.emit_failure(&message, &error, self.shared.clock.now_ms()).await;
                self.keep_partial();
                Ok(Some(Fact::Failed { message }))
            }
        }
    }

    /// Asks the model to continue an answer of which a call was cut off at the output limit and dropped: at
    /// once if nothing else of the answer is left to do, otherwise after the results. Returns `true` if the
    /// model is asked now.
    async fn continue_cut_answer(&mut self, result: &StreamResult) -> bool {
        if !self.may_continue_answer() {
            let words = "the answer was repeatedly cut off at the model's output limit; an incomplete tool \
                         call was dropped";
            self.emit_activities(vec![Activity::warning("", words)]).await;
            self.packing.is_exhausted = true;
            return false;
        }
        self.emit_activities(vec![Activity::notice(
            "",
            "the answer was cut off at the model's output limit; asking it to continue",
        )])
        .await;
        if !result.tool_calls.is_empty() {
            self.packing.was_cut = true;
            return false;
        }
        self.ask_to_continue_answer();
        self.step.message_id = MessageId::fresh();
        self.infer().await;
        true
    }

    /// Why the run ends here although no hook wants it to: the model refused, its provider withheld the answer, or the
    /// answer was cut off at the output limit.
    pub(super) fn ended_by_answer(&self, phase: Phase) -> Option<TerminationReason> {
        match phase {
            Phase::AfterInference => self.inference.ended_early.clone(),
            Phase::StepEnd if self.packing.is_exhausted => Some(cut_off()),
            _ => None,
        }
    }

    /// Keeps the shown text of an interrupted answer, and marks it.
    pub(super) fn keep_partial(&mut self) {
        let text = self.inference.partial.take();
        if text.trim().is_empty() {
            return;
        }
        let mut message = Message::assistant(text);
        message.id = self.step.message_id.clone();
        let mut about = json!({"interrupted": true});
        if let Some(sent) = self.inference.sent.take() {
            about[SENT_REQUEST] = json!(sent);
        }
        message.metadata = Some(about);
        self.append_message(message);
    }

    /// Call ids are unique in the thread: an id that was used before never binds to an old decision or result.
    async fn separate_ids(&mut self, result: &mut StreamResult) -> Result<(), RuntimeError> {
        let calls = &mut result.tool_calls;
        if calls.is_empty() {
            return Ok(());
        }
        let mut seen: HashSet<String> =
            self.history.loaded().flat_map(|m| m.tool_calls.iter().map(|c| c.id.clone())).collect();
        if self.history.base() > 0 {
            let ids = calls.iter().map(|call| call.id.clone()).collect();
            let used = self.shared.store.used_call_ids(&self.record.thread_id, ids).await;
            seen.extend(used.map_err(|error| self.store_error(&error))?);
        }
        for call in calls {
            if call.id.is_empty() || !seen.insert(call.id.clone()) {
                let id = fresh_call_id();
                let place = result.content.iter_mut().rev().find_map(|block| match block {
                    ContentBlock::ToolCall { id } if *id == call.id => Some(id),
                    _ => None,
                });
                if let Some(place) = place {
                    place.clone_from(&id);
                }
                call.id = id;
                seen.insert(call.id.clone());
            }
        }
        Ok(())
    }

    /// Puts the calls of other tools in the place of those that stand for them. The first keeps the id.
    async fn replace_calls(&mut self, result: &mut StreamResult) {
        for mut call in std::mem::take(&mut result.tool_calls) {
            let tool = self.offered(&call.name).filter(|_| call.invalid.is_none());
            let mut meant = tool.map(|tool| tool.stands_for(&call.arguments)).unwrap_or_default().into_iter();
            if let Some((name, arguments)) = meant.next() {
                (call.name, call.arguments) = (name, arguments);
                self.settle_spelling(&mut call);
            }
            let is_own =
                |block: &ContentBlock| matches!(block, ContentBlock::ToolCall { id } if *id == call.id);
            let mut place = result.content.iter().position(is_own);
            result.tool_calls.push(call);
            for (name, arguments) in meant {
                let mut call = ToolCall::new(fresh_call_id(), name, arguments);
                self.settle_spelling(&mut call);
                if let Some(place) = &mut place {
                    *place += 1;
                    result.content.insert(*place, ContentBlock::ToolCall { id: call.id.clone() });
                }
                let (id, name) = (call.id.clone(), call.name.clone());
                self.events.emit(AgentEvent::ToolCallStart { id, name }).await;
                result.tool_calls.push(call);
            }
        }
    }
}

fn fresh_call_id() -> String {
    format!("call_{}", uuid::Uuid::now_v7().simple())
}

/// Returns the reason why an answer ends the run on its own.
fn ended_early(result: &StreamResult, model: &str, detail: Option<&str>) -> Option<TerminationReason> {
    let detail = detail.map_or_else(String::new, |detail| format!(" ({detail})"));
    match result.stop_reason? {
        StopReason::Refusal => Some(TerminationReason::Blocked(format!("{model} refused to answer{detail}"))),
        StopReason::ContentFilter => Some(TerminationReason::Blocked(format!(
            "the provider's content filter withheld the answer of {model}{detail}"
        ))),
        // Calls that came whole are carried out; the model sees their results and writes on.
        StopReason::MaxTokens if result.tool_calls.is_empty() => Some(cut_off()),
        StopReason::MaxTokens
        | StopReason::EndTurn
        | StopReason::ToolUse
        | StopReason::StopSequence
        | StopReason::Other => None,
    }
}

fn cut_off() -> TerminationReason {
    TerminationReason::stopped("length", "the answer was cut off at the model's output limit")
}

/// Whether the answer contains nothing to read or execute.
fn is_empty(result: &StreamResult) -> bool {
    result.tool_calls.is_empty()
        && !result.content.iter().any(|block| match block {
            ContentBlock::Text { text } => !text.trim().is_empty(),
            ContentBlock::Image { .. } | ContentBlock::StoredImage(_) => true,
            ContentBlock::Thinking { .. } | ContentBlock::Opaque { .. } | ContentBlock::ToolCall { .. } => {
                false
            }
        })
}

async fn stream(
    executor: Arc<dyn LlmExecutor>,
    request: InferenceRequest,
    sink: Arc<dyn EventSink>,
    partial: Arc<Partial>,
    message_id: &str,
) -> Result<Answered, InferenceExecutionError> {
    let wanted = request.model.clone();
    let mut stop_detail = None;
    let mut stream = executor.execute_stream(request).await?;
    while let Some(event) = stream.next().await {
        match event? {
            LlmStreamEvent::TextDelta(delta) => {
                partial.push(&delta);
                sink.emit(AgentEvent::TextDelta { delta }).await;
            }
            LlmStreamEvent::ReasoningDelta(delta) => sink.emit(AgentEvent::ReasoningDelta { delta }).await,
            LlmStreamEvent::ReasoningEncrypted(encrypted_value) => {
                sink.emit(AgentEvent::ReasoningEncryptedValue { encrypted_value }).await;
            }
            LlmStreamEvent::ToolCallStart { id, name } => {
                sink.emit(AgentEvent::ToolCallStart { id, name }).await;
            }
            LlmStreamEvent::ToolCallDelta { id, args_delta } => {
                sink.emit(AgentEvent::ToolCallDelta { id, args_delta }).await;
            }
            LlmStreamEvent::Retrying { attempt, max, delay, model, reason, reset } => {
                stop_detail = None;
                if reset {
                    partial.clear();
                }
                let retry = InferenceRetry {
                    attempt: attempt.into(),
                    max: max.into(),
                    delay_ms: u64::try_from(delay.as_millis()).unwrap_or(u64::MAX),
                    instead: model != wanted,
                    model,
                    reason,
                    reset,
                };
                sink.emit(KnownActivity::Retry(retry).event(message_id)).await;
            }
            LlmStreamEvent::StopDetail(detail) => stop_detail = Some(detail),
            LlmStreamEvent::Finish { result, model } => return Ok(Answered { result, model, stop_detail }),
        }
    }
    Err(cut())
}
