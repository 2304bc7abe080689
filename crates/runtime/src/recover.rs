//! Recovery after a dead process: calls that were running and have no stored outcome.

use serde_json::json;

use super::driver::Driver;
use super::request::RuntimeError;
use super::result_text;
use super::user_edit::CallProgress;
use aye_core::contract::digest::sha256_hex;
use aye_core::contract::error_code::ErrorCode;
use aye_core::contract::ids::{CallId, RunId};
use aye_core::contract::lifecycle::{ToolCallOutcome, ToolCallStatus};
use aye_core::contract::presence::Liveness;
use aye_core::contract::question::QuestionParameters;
use aye_core::contract::record::{OpenIntent, OutcomeKind};
use aye_core::contract::suspension::{
    ACTION_UNKNOWN_OUTCOME, PendingToolCall, SuspendTicket, Suspension, ToolCallResumeMode,
};
use aye_core::contract::tool::{FilePreview, ToolClass, ToolResult};
use aye_core::run::{Directive, Fact, Lost, Notice, Stage};

/// Maximum bytes of output in a question about an unknown outcome.
const MAX_OUTPUT: usize = 16 << 10;

/// The handling of a call that may have run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownPolicy {
    /// Ask the user: run again, mark as done, skip.
    #[default]
    Ask,
    /// Report to the model that the call may have run.
    Report,
    Retry,
    Stop,
}

/// A process that may still run for a run that was taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftoverProcess {
    /// The process that started it, dead or stopped.
    pub pid: u32,
    pub run: RunId,
    /// Whether processes of the run may be signalled. Else they are only waited for: the pid counts in another namespace,
    /// or nobody can tell whether the process that started them is alive.
    pub may_kill: bool,
}

enum Files {
    AsBefore,
    AsAfter,
    Neither,
}

impl Driver {
    /// Takes the run over from a dead process.
    pub(super) async fn recover(&mut self, policy: UnknownPolicy) -> Result<Vec<Directive>, RuntimeError> {
        self.children.unknown = policy;
        let running: Vec<(CallId, u32)> = self
            .machine
            .calls()
            .iter()
            .filter(|call| call.status() == ToolCallStatus::Running)
            .map(|call| (call.id.clone(), call.attempt))
            .collect();
        // A run that only waited has nothing to recover.
        let (open, known) = if running.is_empty() {
            Default::default()
        } else {
            let store = &self.shared.store;
            tokio::try_join!(store.open_intents(&self.record.id), store.intents(&self.record.id))?
        };
        let mut lost = Vec::new();
        for (id, attempt) in running {
            // No intent, no start: the process died between the two.
            if !known.iter().any(|(i, _)| i.id.call_id == id && i.id.attempt == attempt) {
                lost.push((id, Lost::NotStarted));
                continue;
            }
            let intent = open.iter().find(|o| o.intent.id.call_id == id && o.intent.id.attempt == attempt);
            // A command must not be reported or restarted while it still runs.
            if let (Some(open), Some(leftover_handler)) = (intent, &self.shared.leftover_handler)
                && open.intent.boot_id == self.shared.owner.boot_id
            {
                // Only what certainly belongs to that process is signalled.
                let owner = open.intent.owner.as_ref().filter(|owner| owner.shares_pids(&self.shared.owner));
                let may_kill = owner.is_some_and(|owner| self.shared.liveness(owner) != Liveness::Unknown);
                let (pid, run) = (open.intent.pid, self.record.id.clone());
                leftover_handler(LeftoverProcess { pid, run, may_kill }).await;
            }
            let fate = self.judge_lost(&id, attempt, intent, policy).await?;
            lost.push((id, fate));
        }
        let is_unknown = lost.iter().any(|(_, fate)| *fate == Lost::Ended { succeeded: false });
        let mut directives = self.apply(Fact::Recovered { lost })?;
        if policy == UnknownPolicy::Stop && is_unknown {
            let text = "a tool call was interrupted and may have run; the run was stopped";
            self.events.emit_error(text, Some(ErrorCode::UnknownOutcome.as_str())).await;
            directives.retain(is_closing);
            self.answers.add(Fact::Failed { message: text.into() });
        }
        Ok(directives)
    }

    /// Ends a run that a dead process left, or that waits: calls that were running are judged, and nothing
    /// continues.
    pub(super) async fn end_abandoned(&mut self, superseded: bool) -> Result<Vec<Directive>, RuntimeError> {
        let mut directives = self.recover(UnknownPolicy::Report).await?;
        if !matches!(self.machine.stage(), Stage::Ending(_) | Stage::Done(_)) {
            directives.retain(is_closing);
            self.answers.add(Fact::CancelRequested { superseded });
        }
        Ok(directives)
    }

    async fn judge_lost(
        &mut self,
        id: &CallId,
        attempt: u32,
        open: Option<&OpenIntent>,
        policy: UnknownPolicy,
    ) -> Result<Lost, RuntimeError> {
        let class = open.map_or(ToolClass::Opaque, |o| o.intent.class);
        match class {
            ToolClass::Pure | ToolClass::Keyed => return Ok(Lost::Again),
            ToolClass::Verifiable => {
                let files = open.map(|o| o.intent.files.clone()).unwrap_or_default();
                match compare_files(&files).await {
                    Files::AsAfter => {
                        let name = self.tool_call(id)?.name.clone();
                        let text = "Done. aye was interrupted before the result was stored; the file contains \
                              the change.";
                        let mut result = ToolResult::text(name, text);
                        result.touched = self.touched(id, CallProgress::Ran, None);
                        self.record_result(id, result, ToolCallOutcome::Succeeded);
                        self.record_outcome(id, attempt, OutcomeKind::Returned);
                        return Ok(Lost::Ended { succeeded: true });
                    }
                    Files::AsBefore => return Ok(Lost::Again),
                    Files::Neither => {}
                }
            }
            ToolClass::Opaque => {}
        }
        let output = open.map(|o| o.output.clone()).unwrap_or_default();
        match policy {
            UnknownPolicy::Retry => Ok(Lost::Again),
            UnknownPolicy::Report | UnknownPolicy::Stop => {
                let name = self.tool_call(id)?.name.clone();
                let mut result = result_text::unknown_result(&name, &output);
                result.touched = self.touched(id, CallProgress::Ran, None);
                self.record_result(id, result, ToolCallOutcome::Failed);
                self.record_outcome(id, attempt, OutcomeKind::Unknown);
                Ok(Lost::Ended { succeeded: false })
            }
            UnknownPolicy::Ask => {
                let started = open.map(|open| open.intent.started_at);
                let mut ticket = self.unknown_ticket(id, attempt, &output, started)?;
                self.apply_question_terms(&mut ticket);
                let call = self.effective_call(id)?;
                if self.agent.tools.contains_key(&call.name) {
                    let ready = self.ready_call(id).ok();
                    let parsed = ready.as_ref().map(|ready| &ready.parsed);
                    self.attach_preconditions(id, &call, parsed, &mut ticket, &[]).await;
                }
                self.open(id, &mut ticket);
                Ok(Lost::Ask(ticket))
            }
        }
    }

    fn unknown_ticket(
        &self,
        id: &CallId,
        attempt: u32,
        output: &str,
        started: Option<u64>,
    ) -> Result<SuspendTicket, RuntimeError> {
        // If the user edited the call, the edited version ran, and that is what would run again.
        let call = self.effective_call(id)?;
        Ok(SuspendTicket {
            suspension: Suspension {
                id: format!("unknown_{}_{}_{attempt}", self.record.id, id).into(),
                action: ACTION_UNKNOWN_OUTCOME.into(),
                message:
                    "aye stopped while this call ran. It may have run partly or completely. Run it again?"
                        .into(),
                parameters: QuestionParameters {
                    output: Some(tail(output)),
                    started_at: Some(started),
                    found_at: Some(self.shared.clock.now_ms()),
                    attempt: Some(attempt),
                    cwd: Some(self.shared.cwd.to_string_lossy().into_owned()),
                    ..QuestionParameters::default()
                }
                .into(),
                response_schema: Some(json!({
                    "type": "object",
                    "properties": {"choice": {"enum": ["rerun", "done", "skip"]}},
                    "required": ["choice"],
                })),
                expires_at: None,
            },
            pending: PendingToolCall { id: id.clone(), name: call.name, arguments: call.arguments },
            resume_mode: ToolCallResumeMode::ReplayToolCall,
        })
    }
}

/// The end of what a call had printed, for its question: whole lines when there are any.
fn tail(output: &str) -> String {
    let Some(over) = output.len().checked_sub(MAX_OUTPUT).filter(|over| *over > 0) else {
        return output.to_owned();
    };
    let rest = &output[output.ceil_char_boundary(over)..];
    let rest = rest.split_once('\n').map_or(rest, |(_, lines)| lines);
    format!("[… {} bytes before this …]\n{rest}", output.len() - rest.len())
}

/// Whether a directive completes calls that recovery closed; such directives are executed even if the run
/// does not continue.
fn is_closing(directive: &Directive) -> bool {
    matches!(directive, Directive::Checkpoint { intent: None } | Directive::Emit(Notice::CallDone(..)))
}

/// Compares the files with what the intent says of them.
async fn compare_files(files: &[FilePreview]) -> Files {
    if files.is_empty() {
        return Files::Neither;
    }
    let mut before = true;
    let mut after = true;
    for file in files {
        let now = match tokio::fs::read(&file.path).await {
            Ok(bytes) => Some(sha256_hex(&bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(_) => return Files::Neither,
        };
        before &= now == file.before;
        after &= now.as_deref() == Some(file.after.as_str());
    }
    match (before, after) {
        // Nothing would have changed: then it does not matter whether it ran.
        (_, true) => Files::AsAfter,
        (true, false) => Files::AsBefore,
        (false, false) => Files::Neither,
    }
}
