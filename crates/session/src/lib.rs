//! A conversation that a front end attends: its runs are driven, its questions waited for, other processes that drive it
//! followed, and its queue started.
//!
//! [`Attendance`] decides what is next. It is a pure machine: facts go in, one directive comes out, and it has no clock,
//! channel, file or `await`. [`Attender`] executes the directives over the runtime. A [`FrontEnd`] keeps what it shows,
//! and its [`Manner`] says when it leaves.
//!
//! ```text
//!   Requested, Continued, Changed,                        Read ──────────▶ Found
//!   Cancelled, Closed            ──▶  Attendance  ──▶     Start, Resume,
//!   (at any time)                        ▲                StartQueued,  ─▶ Ended
//!                                        │                EndWaiting, Report
//!                   Found, Ended ────────┘                Wait, Follow ──▶ Changed
//!                                                         Stop (while a run is driven), Leave
//! ```
//!
//! `Changed` has many reasons: a commit of another process, an answer, the expiry of a question, a queued message that is
//! due, the end of the process that drives. None of them is believed: each leads to a read of the store. One that arrives
//! during a read or a run is kept and leads to another read before anything waits or leaves, so that none is lost.
//!
//! Two attenders of one conversation may both try to drive it. The lease of the conversation picks one, and the other
//! learns from [`Ended::Elsewhere`] that it has to follow or to leave. No other code needs to know that error.
//!
//! An answer takes one path, too: [`answer`] checks it against its question and stores it.
//!
//! # A whole front end
//!
//! It sends a message, asks the user each question and shows the answers; a run that another process resumes is followed,
//! and what was queued meanwhile starts.
//!
//! ```
//! use std::io::BufRead;
//! use std::sync::Arc;
//!
//! use aye_core::contract::event_sink::{EventSink, NullEventSink};
//! use aye_core::contract::message::Message;
//! use aye_core::contract::suspension::{Actor, Answer};
//! use aye_runtime::{AgentRunResult, AgentRuntime, RunRequest, RuntimeError};
//! use aye_session::*;
//!
//! struct Lines<R>(R);
//!
//! impl<R: BufRead + Send + Sync> FrontEnd for Lines<R> {
//!     fn sink(&self) -> Arc<dyn EventSink> {
//!         Arc::new(NullEventSink)
//!     }
//!
//!     async fn ended(&mut self, result: Option<&Result<AgentRunResult, RuntimeError>>) -> Result<(), RuntimeError> {
//!         if let Some(Ok(result)) = result {
//!             println!("{}", result.response);
//!         }
//!         Ok(())
//!     }
//!
//!     async fn wait(&mut self, rest: &mut Rest<'_>) -> Result<SessionFact, RuntimeError> {
//!         let Some(question) = rest.waiting.and_then(|result| result.waiting.first()) else { return Ok(SessionFact::Closed) };
//!         println!("{} What is the answer?", question.ticket.suspension.message);
//!         let mut line = String::new();
//!         self.0.read_line(&mut line).map_err(|error| RuntimeError::Internal(error.to_string()))?;
//!         let reply = Reply::values(Answer::yes(line.trim().into()));
//!         let stored = answer(AnswerPlace::Runtime(rest.runtime()), &question.id, reply, Actor::default()).await;
//!         stored.map(|_| SessionFact::Changed).map_err(|error| RuntimeError::Internal(error.to_string()))
//!     }
//! }
//!
//! async fn converse(runtime: &AgentRuntime, text: &str, input: impl BufRead + Send + Sync) -> SessionEnd {
//!     let manner = Manner { waits: true, elsewhere: Elsewhere::Follow, queue: Queue::All, after_failure: false, stays: false };
//!     let request = RunRequest::new("greeting", vec![Message::user(text)]);
//! #   let request = asks_the_client(request);
//!     Attender::request(manner, request).attend(runtime, &"greeting".into(), &mut Lines(input)).await
//! }
//! # use aye_core::contract::{content::ContentBlock, inference::StreamResult, message::ToolCall, tool::ToolDescriptor};
//! # use aye_core::contract::executor::{InferenceExecutionError, InferenceRequest, LlmExecutor};
//! # use aye_core::contract::spec::{AgentSpec, ModelSpec};
//! # fn asks_the_client(mut request: RunRequest) -> RunRequest {
//! #     request.frontend_tools = vec![ToolDescriptor::new("ask", "ask", "asks the client")];
//! #     request
//! # }
//! # struct Script;
//! # #[async_trait::async_trait]
//! # impl LlmExecutor for Script {
//! #     async fn execute(&self, request: InferenceRequest) -> Result<StreamResult, InferenceExecutionError> {
//! #         let told = request.messages.iter().find(|message| message.tool_call_id.is_some()).map(|told| told.text());
//! #         Ok(match told {
//! #             Some(told) => StreamResult { content: vec![ContentBlock::text(told)], ..StreamResult::default() },
//! #             None => {
//! #                 let call = ToolCall::new("c1", "ask", serde_json::json!({}));
//! #                 StreamResult { tool_calls: vec![call], ..StreamResult::default() }
//! #             }
//! #         })
//! #     }
//! #     fn name(&self) -> &str {
//! #         "script"
//! #     }
//! # }
//! # let model = ModelSpec { id: "script".into(), provider: "script".into(), model: "script".into() };
//! # let runtime = aye_runtime::AgentRuntimeBuilder::new()
//! #     .with_agent_spec(AgentSpec::new("assistant").with_model("script"))
//! #     .with_provider("script", Arc::new(Script))
//! #     .with_model("script", model)
//! #     .build()
//! #     .unwrap();
//! # let end = tokio::runtime::Runtime::new().unwrap().block_on(converse(&runtime, "What time is it?", &b"noon\n"[..]));
//! # assert_eq!(end.why, Leaving::Done);
//! # assert!(end.result.unwrap().unwrap().response.contains("noon"));
//! ```

mod answer;
mod drive;
mod ended;
mod machine;

pub use answer::{AnswerError, AnswerPlace, Meaning, Reply, StoredAnswer, answer, check, shown_hash};
pub use drive::{Attender, FrontEnd, Rest, SessionEnd};
pub use ended::Ended;
pub use machine::{
    Attendance, Elsewhere, First, Found, Leaving, Manner, Mark, Queue, SessionDirective, SessionFact,
    Standing,
};
