//! A model with scripted answers, for tests and for programs that embed the library.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use serde_json::Value;

use super::fold::{CallKey, Fold};
use aye_core::contract::content::ContentBlock;
use aye_core::contract::executor::{
    InferenceExecutionError, InferenceRequest, LlmExecutor, LlmStream, LlmStreamEvent,
};
use aye_core::contract::inference::{StopReason, StreamResult, TokenUsage};

/// One step of an answer.
#[derive(Clone, Debug, PartialEq)]
enum ScriptStep {
    Text(String),
    Reasoning(String),
    Call { id: Option<String>, name: String, args: String },
    Delay(Duration),
    Usage(TokenUsage),
    Stop(StopReason),
    Fail(InferenceExecutionError),
    Cut,
    Hang,
}

/// One answer, made of steps. It ends normally unless a step ends it otherwise.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScriptedReply {
    steps: Vec<ScriptStep>,
}

impl ScriptedReply {
    pub fn new() -> Self {
        Self::default()
    }

    fn then(mut self, step: ScriptStep) -> Self {
        self.steps.push(step);
        self
    }

    /// Says a text, in one piece.
    #[must_use]
    pub fn text(self, text: impl Into<String>) -> Self {
        self.then(ScriptStep::Text(text.into()))
    }

    #[must_use]
    pub fn reasoning(self, text: impl Into<String>) -> Self {
        self.then(ScriptStep::Reasoning(text.into()))
    }

    /// Asks for a tool; the call's id is made up.
    #[must_use]
    pub fn call(self, name: impl Into<String>, args: Value) -> Self {
        self.then(ScriptStep::Call { id: None, name: name.into(), args: args.to_string() })
    }

    /// Asks for a tool by a given call id.
    #[must_use]
    pub fn call_with_id(self, id: impl Into<String>, name: impl Into<String>, args: Value) -> Self {
        self.then(ScriptStep::Call { id: Some(id.into()), name: name.into(), args: args.to_string() })
    }

    /// Pauses, in tokio time.
    #[must_use]
    pub fn delay(self, delay: Duration) -> Self {
        self.then(ScriptStep::Delay(delay))
    }

    /// Reports what was used.
    #[must_use]
    pub fn usage(self, usage: TokenUsage) -> Self {
        self.then(ScriptStep::Usage(usage))
    }

    /// Says why it stops.
    #[must_use]
    pub fn stop(self, reason: StopReason) -> Self {
        self.then(ScriptStep::Stop(reason))
    }

    #[must_use]
    pub fn fail(self, error: InferenceExecutionError) -> Self {
        self.then(ScriptStep::Fail(error))
    }

    /// The connection is lost here.
    #[must_use]
    pub fn cut(self) -> Self {
        self.then(ScriptStep::Cut)
    }

    /// Hangs from here on; only dropping the stream ends the answer.
    #[must_use]
    pub fn hang(self) -> Self {
        self.then(ScriptStep::Hang)
    }
}

impl From<&str> for ScriptedReply {
    fn from(text: &str) -> Self {
        Self::new().text(text)
    }
}

impl From<String> for ScriptedReply {
    fn from(text: String) -> Self {
        Self::new().text(text)
    }
}

impl From<InferenceExecutionError> for ScriptedReply {
    fn from(error: InferenceExecutionError) -> Self {
        Self::new().fail(error)
    }
}

type Script = dyn Fn(&InferenceRequest) -> ScriptedReply + Send + Sync;

/// Gives one prepared answer after another and keeps the requests it got. A clone is the same model.
#[derive(Clone)]
pub struct ScriptedExecutor {
    inner: Arc<Inner>,
}

struct Inner {
    answers: Mutex<VecDeque<ScriptedReply>>,
    requests: Mutex<Vec<InferenceRequest>>,
    otherwise: Option<Box<Script>>,
}

impl ScriptedExecutor {
    /// Creates a model that gives these answers, in order. One request too many returns an error that reports
    /// this.
    pub fn new(answers: impl IntoIterator<Item = ScriptedReply>) -> Self {
        Self::build(answers.into_iter().collect(), None)
    }

    /// An answer made from each request.
    pub fn from_fn(script: impl Fn(&InferenceRequest) -> ScriptedReply + Send + Sync + 'static) -> Self {
        Self::build(VecDeque::new(), Some(Box::new(script)))
    }

    fn build(answers: VecDeque<ScriptedReply>, otherwise: Option<Box<Script>>) -> Self {
        Self {
            inner: Arc::new(Inner { answers: Mutex::new(answers), requests: Mutex::default(), otherwise }),
        }
    }

    /// Adds an answer after the others.
    pub fn push(&self, answer: impl Into<ScriptedReply>) {
        self.inner.answers.lock().unwrap_or_else(PoisonError::into_inner).push_back(answer.into());
    }

    /// The requests so far, in order.
    pub fn requests(&self) -> Vec<InferenceRequest> {
        self.inner.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the number of answers not requested yet.
    pub fn remaining(&self) -> usize {
        self.inner.answers.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn answer(&self, request: &InferenceRequest) -> Result<ScriptedReply, InferenceExecutionError> {
        self.inner.requests.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
        let next = self.inner.answers.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        next.or_else(|| self.inner.otherwise.as_ref().map(|script| script(request))).ok_or_else(|| {
            InferenceExecutionError::InvalidRequest("the script has no answer left for this request".into())
        })
    }
}

struct Playing {
    steps: std::vec::IntoIter<ScriptStep>,
    fold: Fold,
    over: bool,
    calls: u64,
}

impl Playing {
    async fn next(&mut self) -> Option<Result<LlmStreamEvent, InferenceExecutionError>> {
        loop {
            if let Some(event) = self.fold.next_event() {
                return Some(Ok(event));
            }
            if self.over {
                return None;
            }
            if let Err(error) = self.step().await {
                self.over = true;
                return Some(Err(error));
            }
        }
    }

    async fn step(&mut self) -> Result<(), InferenceExecutionError> {
        match self.steps.next() {
            Some(ScriptStep::Text(text)) => self.fold.text(&text)?,
            Some(ScriptStep::Reasoning(text)) => self.fold.reasoning(&text)?,
            Some(ScriptStep::Call { id, name, args }) => {
                let key = CallKey::Index(self.calls);
                self.calls += 1;
                let id = id.unwrap_or_else(super::fold::fresh_id);
                let name = if name.is_empty() { " " } else { &name };
                self.fold.call(key, Some(&id), Some(name), Some(&args))?;
            }
            Some(ScriptStep::Delay(delay)) => tokio::time::sleep(delay).await,
            Some(ScriptStep::Usage(usage)) => self.fold.usage(usage),
            Some(ScriptStep::Stop(reason)) => self.fold.stop(reason),
            Some(ScriptStep::Fail(error)) => return Err(error),
            Some(ScriptStep::Cut) => {
                return Err(InferenceExecutionError::Network(
                    "the stream ended before the answer was complete".into(),
                ));
            }
            Some(ScriptStep::Hang) => std::future::pending().await,
            None => {
                if !self.fold.has_stop_reason() {
                    self.fold.stop(StopReason::EndTurn);
                }
                self.fold.finish();
                self.over = true;
            }
        }
        Ok(())
    }
}

#[async_trait]
impl LlmExecutor for ScriptedExecutor {
    async fn execute(&self, request: InferenceRequest) -> Result<StreamResult, InferenceExecutionError> {
        whole(self.execute_stream(request).await?).await
    }

    async fn execute_stream(&self, request: InferenceRequest) -> Result<LlmStream, InferenceExecutionError> {
        let answer = self.answer(&request)?;
        let fold = Fold::new(request.model.clone(), Arc::clone(&request.messages));
        let playing = Playing { steps: answer.steps.into_iter(), fold, over: false, calls: 0 };
        Ok(futures::stream::unfold(playing, |mut playing| async move {
            let event = playing.next().await?;
            Some((event, playing))
        })
        .boxed())
    }

    fn name(&self) -> &'static str {
        "scripted"
    }
}

/// The whole answer of a stream.
pub(super) async fn whole(mut stream: LlmStream) -> Result<StreamResult, InferenceExecutionError> {
    while let Some(event) = stream.next().await {
        if let LlmStreamEvent::Finish { result, .. } = event? {
            return Ok(result);
        }
    }
    Err(InferenceExecutionError::Network("the stream ended before the answer was complete".into()))
}

/// The simplest model: texts, one after another; the last one is repeated.
#[derive(Clone, Debug)]
pub struct MockLlmExecutor {
    responses: Arc<Mutex<VecDeque<String>>>,
}

impl Default for MockLlmExecutor {
    fn default() -> Self {
        Self::new()
    }
}

impl MockLlmExecutor {
    /// Says "ok".
    pub fn new() -> Self {
        Self { responses: Arc::default() }
    }

    /// Says these, in order.
    #[must_use]
    pub fn with_responses(self, responses: Vec<String>) -> Self {
        *self.responses.lock().unwrap_or_else(PoisonError::into_inner) = responses.into();
        self
    }
}

#[async_trait]
impl LlmExecutor for MockLlmExecutor {
    async fn execute(&self, _request: InferenceRequest) -> Result<StreamResult, InferenceExecutionError> {
        let mut responses = self.responses.lock().unwrap_or_else(PoisonError::into_inner);
        let text = if responses.len() > 1 { responses.pop_front() } else { responses.front().cloned() };
        Ok(StreamResult {
            content: vec![ContentBlock::text(text.unwrap_or_else(|| "ok".into()))],
            stop_reason: Some(StopReason::EndTurn),
            ..StreamResult::default()
        })
    }

    fn name(&self) -> &'static str {
        "mock"
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    async fn events(model: &ScriptedExecutor) -> Vec<Result<LlmStreamEvent, InferenceExecutionError>> {
        let request = InferenceRequest { model: "m".into(), ..InferenceRequest::default() };
        match model.execute_stream(request).await {
            Ok(stream) => stream.collect().await,
            Err(error) => vec![Err(error)],
        }
    }

    #[tokio::test]
    async fn the_script_is_replayed() {
        let model = ScriptedExecutor::new([ScriptedReply::new().text("a").call_with_id(
            "1",
            "List",
            json!({"path": "."}),
        )]);
        let events = events(&model).await;
        assert_eq!(events.len(), 4);
        let Some(Ok(LlmStreamEvent::Finish { result, model: name })) = events.last() else {
            panic!("{events:?}")
        };
        assert_eq!((result.text().as_str(), name.as_str()), ("a", "m"));
        assert_eq!(result.tool_calls[0].arguments, json!({"path": "."}));
        assert_eq!(result.stop_reason, Some(StopReason::ToolUse));
        assert_eq!(model.requests().len(), 1);
    }

    #[tokio::test]
    async fn a_cut_stream_is_an_error_and_nothing_follows() {
        let model = ScriptedExecutor::new([ScriptedReply::new().text("a").cut().text("b")]);
        let events = events(&model).await;
        assert!(matches!(events[..], [Ok(_), Err(InferenceExecutionError::Network(_))]), "{events:?}");
    }

    #[tokio::test]
    async fn an_unscripted_request_is_an_error() {
        let model = ScriptedExecutor::new([]);
        assert!(matches!(events(&model).await[..], [Err(InferenceExecutionError::InvalidRequest(_))]));
    }

    #[tokio::test]
    async fn the_mock_of_the_book_answers() {
        let model = MockLlmExecutor::new().with_responses(vec!["Hello!".into()]);
        for _ in 0..2 {
            let result = model.execute(InferenceRequest::default()).await.expect("a text");
            assert_eq!(result.text(), "Hello!");
        }
    }
}
