//! Calls of other agents, as runs of conversations of ours: rules judge them, questions about them are rows, and each one is
//! made at most once for an answer.
//!
//! A gate has places: conversations that serve one call at a time. A call is served in the first one that is free. When an
//! agent asks again with the same call, it gets what its first attempt came to: the pending question, or the result that was
//! not handed over yet.

use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use aye_platform::lock_private_file;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::contract::digest::sha256_hex;
use crate::contract::display::{call_summary, visible_line};
use crate::contract::event::AgentEvent;
use crate::contract::event_sink::EventSink;
use crate::contract::ids::{CallId, RunId, ThreadId};
use crate::contract::lifecycle::RunStatus;
use crate::contract::message::{Message, Role, ToolCall, Visibility};
use crate::contract::profile::ProfileStore;
use crate::contract::record::{RunRecord, SuspensionRecord};
use crate::contract::spec::AgentSpec;
use crate::contract::tool::{ToolResult, ToolStatus};
use crate::failure::{AppError, Failure};
use crate::program::app_context::AppContext;
use crate::runtime::{RunRequest, RuntimeError, UnknownPolicy};
use crate::session::{Attender, Elsewhere, FrontEnd, Manner, Queue, Rest, SessionFact};

/// The agent of such runs. Only a gate knows it, so nothing else resumes them.
pub(crate) const GATE_AGENT: &str = "gate";
/// Under this namespace the run that was handed over last is kept for each place.
const HANDED_OVER: &str = "gate";
/// The number of calls of a gate that may run or wait at once.
const MAX_PLACES: usize = 64;
/// How long a result waits to be handed over, in milliseconds.
const KEPT: u64 = 24 * 60 * 60 * 1000;

/// A call of another agent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GateCall {
    pub(crate) tool: String,
    pub(crate) arguments: Value,
}

/// What a call came to.
#[derive(Clone, Debug)]
pub(crate) enum GateEnd {
    Done(Box<DoneCall>),
    /// These questions wait for an answer.
    Waiting(Vec<SuspensionRecord>),
}

/// The result of a call.
#[derive(Clone, Debug)]
pub(crate) struct DoneCall {
    thread: ThreadId,
    run: RunId,
    pub(crate) result: ToolResult,
}

impl DoneCall {
    /// Returns whether the call was made as it was asked for.
    pub(crate) fn is_allowed(&self) -> bool {
        let edited = self.result.touched.as_ref().is_some_and(|edit| edit.arguments.is_some());
        self.result.status == ToolStatus::Success && !edited
    }
}

/// Where a call is served.
enum Place {
    /// It came to its end in this run, and nobody knows yet.
    Ended(ThreadId, RunRecord),
    /// It waits or runs.
    Open(ThreadId, RunRecord),
    Free(ThreadId),
}

pub(crate) struct CallGate {
    app: Arc<AppContext>,
    /// What the ids of its conversations begin with.
    places: String,
    /// The name of the server or of the other agent, for titles.
    who: String,
    handed_over: Arc<dyn ProfileStore>,
    lock: PathBuf,
}

impl CallGate {
    /// A gate of this name in the folder of the program.
    pub(crate) fn new(app: Arc<AppContext>, who: &str) -> Result<Self, Failure> {
        let cwd = app.foundation.workspace.cwd.as_os_str();
        let about = [cwd.as_encoded_bytes(), b"\0", who.as_bytes()].concat();
        let mut spec = AgentSpec::new(GATE_AGENT).with_model(app.selection().full_name());
        spec.context_policy = None;
        app.runtime.set_agent(spec);
        let handed_over = app.store.profile_store(Arc::clone(&app.clock)).map_err(Failure::failed)?;
        let lock = app.foundation.paths.state_dir.join("gate.lock");
        Ok(Self {
            places: format!("gate-{}", &sha256_hex(about)[..16]),
            who: who.to_owned(),
            app,
            handed_over,
            lock,
        })
    }

    /// Waits for the right to choose a place: no other process chooses one meanwhile.
    async fn hold(&self) -> Result<File, AppError> {
        let path = self.lock.clone();
        let held = tokio::task::spawn_blocking(move || lock_private_file(&path)).await;
        let held = held.map_err(|error| error.to_string())?;
        held.map_err(|error| format!("{}: {error}", self.lock.display()).into())
    }

    /// The call that a run serves.
    async fn call_of(&self, thread: &ThreadId, run: &RunRecord) -> Result<Option<GateCall>, AppError> {
        let (_, messages) = self.app.store.messages_of_run(thread, &run.id).await?;
        let asked = messages.iter().find_map(|stored| stored.message.tool_calls.first());
        Ok(asked.map(|call| GateCall { tool: call.name.clone(), arguments: call.arguments.clone() }))
    }

    async fn is_handed_over(&self, thread: &ThreadId, run: &RunRecord) -> Result<bool, AppError> {
        let last =
            self.handed_over.get(HANDED_OVER, thread.as_str()).await.map_err(|error| error.to_string())?;
        let is_old = self.app.clock.now_ms().saturating_sub(run.updated_at) > KEPT;
        Ok(is_old || last.is_some_and(|last| last.value == json!(run.id)))
    }

    async fn find(&self, call: &GateCall) -> Result<Place, AppError> {
        let store = &self.app.store;
        let mut free = None;
        for nth in 0..MAX_PLACES {
            let thread = ThreadId::from(format!("{}-{nth}", self.places));
            let Some(run) = store.latest_run(&thread).await? else {
                return Ok(Place::Free(free.unwrap_or(thread)));
            };
            let is_same = self.call_of(&thread, &run).await?.as_ref() == Some(call);
            if run.status != RunStatus::Done {
                if is_same {
                    return Ok(Place::Open(thread, run));
                }
            } else if self.is_handed_over(&thread, &run).await? {
                free = free.or(Some(thread));
            } else if is_same {
                return Ok(Place::Ended(thread, run));
            }
        }
        free.map(Place::Free).ok_or_else(|| {
            format!("{MAX_PLACES} calls of {} wait already; aye inbox lists their questions", self.who).into()
        })
    }

    /// Serves a call until it is done or nobody waits for it any longer. `place`: is set to the conversation that serves it.
    pub(crate) async fn serve(
        &self,
        call: &GateCall,
        until: Option<Instant>,
        place: &OnceLock<ThreadId>,
    ) -> Result<GateEnd, AppError> {
        let held = match until {
            None => self.hold().await?,
            Some(until) => tokio::time::timeout_at(until, self.hold())
                .await
                .map_err(|_| format!("another gate has held {} all the time", self.lock.display()))??,
        };
        let (thread, run, attender, held) = match self.find(call).await? {
            Place::Ended(thread, run) => return self.end_of(thread, run).await,
            Place::Open(thread, run) => {
                drop(held);
                (thread, run.id, Attender::resume(MANNER), None)
            }
            Place::Free(thread) => {
                let request = self.request(&thread, call);
                let run = request.run_id.clone().unwrap_or_else(RunId::fresh);
                (thread, run, Attender::request(MANNER, request), Some(held))
            }
        };
        let _ = place.set(thread.clone());
        let begun = Arc::new(Begun(Mutex::new(held)));
        let mut caller = Caller { begun, until };
        let end = attender.attend(&self.app.runtime, &thread, &mut caller).await;
        let Some(run) = self.app.store.load_run(&run).await? else {
            let why = end.result.and_then(Result::err).map(|error| error.to_string());
            return Err(why.unwrap_or_else(|| "the call could not be started".to_owned()).into());
        };
        self.end_of(thread, run).await
    }

    fn request(&self, thread: &ThreadId, call: &GateCall) -> RunRequest {
        let GateCall { tool, arguments } = call;
        let title = format!("{}: {tool} {}", self.who, call_summary(tool, arguments));
        let asked = ToolCall::new(CallId::fresh().to_string(), tool.as_str(), arguments.clone());
        let messages = Message::command(&visible_line(&title), asked, Visibility::All);
        RunRequest {
            agent_id: Some(GATE_AGENT.to_owned()),
            run_id: Some(RunId::fresh()),
            ..RunRequest::new(thread.clone(), messages.into())
        }
    }

    async fn end_of(&self, thread: ThreadId, run: RunRecord) -> Result<GateEnd, AppError> {
        if run.status != RunStatus::Done {
            return Ok(GateEnd::Waiting(self.app.runtime.waiting(&thread).await?));
        }
        let (_, messages) = self.app.store.messages_of_run(&thread, &run.id).await?;
        let answered =
            messages.iter().map(|stored| &stored.message).find(|message| message.role == Role::Tool);
        let result = match answered {
            Some(message) => {
                let kept = message.metadata.as_ref().and_then(|about| about.get("tool_result")).cloned();
                let kept = kept.and_then(|kept| serde_json::from_value::<ToolResult>(kept).ok());
                let images =
                    message.content.iter().filter(|block| block.as_text().is_none()).cloned().collect();
                ToolResult { images, ..kept.unwrap_or_else(|| ToolResult::error("", message.text())) }
            }
            None => ToolResult::error("", "the call ended without a result; its outcome is unknown"),
        };
        Ok(GateEnd::Done(Box::new(DoneCall { thread, run: run.id, result })))
    }

    /// Keeps in mind that a result is handed over: the same call is a new one from now on.
    pub(crate) async fn hand_over(&self, done: &DoneCall) -> Result<(), AppError> {
        let written = self.handed_over.put(HANDED_OVER, done.thread.as_str(), json!(done.run), None).await;
        written.map(drop).map_err(|error| error.to_string().into())
    }
}

const MANNER: Manner = Manner {
    waits: true,
    elsewhere: Elsewhere::Follow,
    queue: Queue::Nothing,
    after_failure: false,
    stays: false,
};

/// The right to choose a place, until the run has begun.
struct Begun(Mutex<Option<File>>);

#[async_trait]
impl EventSink for Begun {
    async fn emit(&self, _: AgentEvent) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

struct Caller {
    begun: Arc<Begun>,
    until: Option<Instant>,
}

impl FrontEnd for Caller {
    fn sink(&self) -> Arc<dyn EventSink> {
        Arc::<Begun>::clone(&self.begun)
    }

    fn unknown(&self) -> UnknownPolicy {
        UnknownPolicy::Report
    }

    async fn wait(&mut self, rest: &mut Rest<'_>) -> Result<SessionFact, RuntimeError> {
        let until = self.until;
        let over = async move {
            match until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = rest.changed() => Ok(SessionFact::Changed),
            () = over => Ok(SessionFact::Closed),
        }
    }
}

/// How long a call waits for its answer.
pub(crate) fn deadline(wait: Duration) -> Option<Instant> {
    Instant::now().checked_add(wait)
}
