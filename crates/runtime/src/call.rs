//! One tool call: the gate, the intent, the execution.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use serde_json::{Value, json};

use super::background::CallBackground;
use super::carry::{self, ChangedFiles};
use super::driver::{CallBounds, Driver};
use super::in_flight::Done;
use super::journal::another_id;
use super::output::CallSink;
use super::preconditions::agreed_files;
use super::ready::ReadyCall;
use super::request::RuntimeError;
use super::user_edit::CallProgress;
use aye_core::contract::digest::sha256_hex;
use aye_core::contract::ids::{CallId, SuspensionId};
use aye_core::contract::judgement::{JudgedCall, Profile};
use aye_core::contract::lifecycle::ToolCallOutcome;
use aye_core::contract::message::ToolCall;
use aye_core::contract::question::QuestionParameters;
use aye_core::contract::record::{AttemptId, ExecutionStart, IntentRecord, OutcomeKind};
use aye_core::contract::schema;
use aye_core::contract::storage::StoreError;
use aye_core::contract::suspension::{SuspendTicket, ToolCallResume, ToolCallResumeMode};
use aye_core::contract::tool::{
    FilePreview, Tool, ToolCallContext, ToolClass, ToolError, ToolOutput, ToolResult,
};
use aye_core::contract::tool_intercept::ToolInterceptPayload;
use aye_core::phase::{PhaseReport, ToolCallInfo};
use aye_core::run::{Fact, Gate, Settled};
use aye_core::state::{MutationBatch, Phase, StateError};

impl Driver {
    /// Judges a call: its arguments, its tool, the plugins. Nothing is executed here.
    pub(super) async fn gate(
        &mut self,
        id: CallId,
        resume: Option<ToolCallResume>,
    ) -> Result<Fact, RuntimeError> {
        let gate = self.judge(&id, resume).await?;
        if !matches!(gate, Gate::Proceed) {
            self.open.ready.remove(&id);
        }
        if matches!(gate, Gate::SetResult { .. }) {
            self.run_unexecuted_hooks(&id).await;
        }
        Ok(Fact::Gated { call: id, gate })
    }

    /// Shows hooks the result of a call that did not run.
    pub(super) async fn run_unexecuted_hooks(&mut self, id: &CallId) {
        let Some(result) = self.step.result(id).map(|known| known.result.clone()) else {
            return;
        };
        let Ok(call) = self.effective_call(id) else { return };
        let descriptor = self.agent.tools.get(&call.name).map(|tool| tool.descriptor());
        let mut ctx = self.context(Phase::AfterToolExecute).with_tool(ToolCallInfo::new(call, descriptor));
        ctx.came_to_nothing = result.is_error();
        ctx = ctx.with_tool_result(result);
        ctx.was_executed = false;
        match self.phases.run_phase(&self.agent.env, ctx).await {
            Ok(report) => {
                self.unsaved.commands.extend(report.commands);
                self.emit_activities(report.activities).await;
            }
            Err(error) => {
                tracing::error!(run = %self.record.id, call = %id, %error, "hooks failed after a call that did not run");
            }
        }
    }

    async fn judge(&mut self, id: &CallId, resume: Option<ToolCallResume>) -> Result<Gate, RuntimeError> {
        let call = self.effective_call(id)?;
        if let Some(why) = &call.invalid {
            return Ok(self.refuse(id, ToolResult::error(&call.name, format!("invalid arguments: {why}"))));
        }
        let Some(tool) = self.offered(&call.name) else {
            let text = self.not_offered(&call.name);
            return Ok(self.refuse(id, ToolResult::error(&call.name, text)));
        };
        let name = call.name.clone();
        let ready = match self.prepare(id, call, tool) {
            Ok(ready) => ready,
            Err(error) => return Ok(self.refuse(id, error.into_result(&name))),
        };
        let ticket = self.machine.call(id).and_then(|c| c.ticket().cloned());
        let mut info = ToolCallInfo::new(ready.call.clone(), Some(ready.descriptor()));
        if let Some(resume) = &resume {
            info = info.with_decision(resume.clone(), ticket.clone());
        }
        // The user's own command line has the user's rights.
        let own = self.machine.is_given().then_some(Profile::Outside);
        info.chosen = self.machine.call(id).and_then(|call| call.chosen).or(own);
        let report = match self.ask_plugins(id, &ready.call, info).await? {
            Ok(report) => report,
            // A gate that cannot judge does not open.
            Err(error) => {
                let text = format!("not run: a plugin failed while it checked the call: {error}");
                return Ok(self.refuse(id, ToolResult::error(&name, text)));
            }
        };
        match report.intercept {
            Some(ToolInterceptPayload::Block { reason }) => Ok(Gate::Block { reason }),
            Some(ToolInterceptPayload::SetResult(result) | ToolInterceptPayload::Deny(result)) => {
                Ok(self.refuse(id, result))
            }
            Some(ToolInterceptPayload::Suspend(ticket)) => self.ask(id, &ready, ticket, None).await,
            None => match ticket.filter(|_| resume.is_some()) {
                None => Ok(Gate::Proceed),
                Some(ticket) => self.check_preconditions(id, &ready, ticket).await,
            },
        }
    }

    /// Asks the plugins to judge a call. A grant that allowed the call is counted; if the grant turns out to
    /// be no longer in force, the call is judged again without it.
    async fn ask_plugins(
        &mut self,
        id: &CallId,
        call: &ToolCall,
        mut info: ToolCallInfo,
    ) -> Result<Result<PhaseReport, StateError>, RuntimeError> {
        loop {
            let ctx = self.context(Phase::BeforeToolExecute).with_tool(info.clone());
            let mut report = match self.phases.run_phase(&self.agent.env, ctx).await {
                Ok(report) => report,
                Err(error) => return Ok(Err(error)),
            };
            self.unsaved.commands.append(&mut report.commands);
            self.emit_activities(std::mem::take(&mut report.activities)).await;
            let Some(mut judgement) = report.judgement.take() else { return Ok(Ok(report)) };
            let now = self.shared.clock.now_ms();
            let grants: Vec<String> =
                judgement.grant.iter().chain(&judgement.other_grants).cloned().collect();
            let over = match &report.intercept {
                None if !grants.is_empty() => self.shared.store.spend_grants(grants, now).await?,
                None | Some(_) => None,
            };
            if let Some(grant) = over {
                if !info.spent_grants.contains(&grant) {
                    info.spent_grants.push(grant);
                    continue;
                }
                let text = "not run: the grant that allowed it is no longer in force";
                let result = ToolResult::error_with_code(&call.name, "grant_over", text);
                report.intercept = Some(ToolInterceptPayload::SetResult(result));
            }
            // They are of use only until the call ran.
            let paths = std::mem::take(&mut judgement.paths).into_iter().map(|path| path.0).collect();
            if report.intercept.is_none() {
                let bounds = CallBounds {
                    guards_git: judgement.guards_git,
                    profile: judgement.profile,
                    opened: judgement.opened.clone(),
                    paths,
                };
                self.open.bounds.insert(id.clone(), bounds);
            } else {
                self.open.bounds.remove(id);
            }
            self.unsaved.judged.push(JudgedCall {
                call_id: id.clone(),
                tool: call.name.clone(),
                arguments: call.arguments.clone(),
                cwd: self.shared.cwd.to_string_lossy().into_owned(),
                answered: info.resume.is_some(),
                judgement,
                at: now,
            });
            return Ok(Ok(report));
        }
    }

    /// Returns the call with the arguments it runs with: the user's, if the user edited those of the model.
    pub(super) fn effective_call(&self, id: &CallId) -> Result<ToolCall, RuntimeError> {
        let mut call = self.tool_call(id)?.clone();
        let Some(state) = self.machine.call(id) else { return Ok(call) };
        // A run that an older version saved has the payload in its decision only.
        let passed = || {
            let (ticket, decision) = (state.ticket()?, state.decision()?);
            (ticket.resume_mode == ToolCallResumeMode::PassDecisionToTool && decision.result.is_object())
                .then_some(&decision.result)
        };
        if let Some(arguments) = state.edited.as_ref().or_else(passed) {
            call.arguments = arguments.clone();
            call.invalid = None;
        }
        Ok(call)
    }

    /// Returns the message for a model that calls a tool which the step does not offer.
    fn not_offered(&self, name: &str) -> String {
        /// Maximum number of tools named.
        const NAMED: usize = 50;
        if let Some(why) = self.inference.shape.why_not(name).filter(|_| self.agent.tools.contains_key(name))
        {
            return format!("not run: the tool `{name}` {why}");
        }
        let offered =
            self.agent.tools.keys().map(String::as_str).filter(|id| self.inference.shape.offers(id));
        let mut names: Vec<_> = offered.take(NAMED + 1).collect();
        if names.len() > NAMED {
            names[NAMED] = "…";
        }
        format!("unknown tool `{name}`; the tools are {}", names.join(", "))
    }

    /// Reads a call as the model can only have meant it: a tool's name in other capitals, and strings in place of what the
    /// tool's schema demands. It is settled before anyone sees the call, so that rules, cards and the tool judge the same.
    pub(super) fn settle_spelling(&self, call: &mut ToolCall) {
        if call.invalid.is_some() {
            return;
        }
        if !self.agent.tools.contains_key(&call.name) {
            let offered = self.agent.tools.keys().filter(|id| self.inference.shape.offers(id));
            let mut alike = offered.filter(|id| id.eq_ignore_ascii_case(&call.name));
            if let (Some(only), None) = (alike.next(), alike.next()) {
                call.name.clone_from(only);
            }
        }
        if let Some(tool) = self.agent.tools.get(&call.name) {
            tool.settle_args(&mut call.arguments);
            schema::coerce(&tool.descriptor().parameters, &mut call.arguments);
        }
    }

    /// Has a tool parse the arguments of a call, and keeps that until the call ends.
    fn prepare(
        &mut self,
        id: &CallId,
        call: ToolCall,
        tool: Arc<dyn Tool>,
    ) -> Result<Arc<ReadyCall>, ToolError> {
        let ready = Arc::new(ReadyCall::new(call, tool)?);
        self.open.ready.insert(id.clone(), Arc::clone(&ready));
        Ok(ready)
    }

    /// Returns a call as it was judged. Only if it now has other arguments or another tool, it is parsed again.
    pub(super) fn ready_call(&mut self, id: &CallId) -> Result<Arc<ReadyCall>, ToolError> {
        let call = self.effective_call(id).map_err(|error| ToolError::Internal(error.to_string()))?;
        let Some(tool) = self.agent.tools.get(&call.name).cloned() else {
            return Err(ToolError::Internal("the tool disappeared".into()));
        };
        match self.open.ready.get(id).filter(|ready| ready.is_of(&call, &tool)) {
            Some(ready) => Ok(Arc::clone(ready)),
            None => self.prepare(id, call, tool),
        }
    }

    pub(super) fn offered(&self, name: &str) -> Option<Arc<dyn Tool>> {
        let shape = &self.inference.shape;
        // One that was loaded once stays known to the model, also when it is deferred again.
        let is_known = || !shape.withholds(name) && self.packing.was_offered(self.prompt_changes(), name);
        self.agent.tools.get(name).filter(|_| shape.offers(name) || is_known()).cloned()
    }

    /// A result that was made without the tool.
    pub(super) fn refuse(&mut self, id: &CallId, mut result: ToolResult) -> Gate {
        result.touched = self.touched(id, CallProgress::NotRun, None);
        let succeeded = result.is_success();
        let outcome = if succeeded { ToolCallOutcome::Succeeded } else { ToolCallOutcome::Failed };
        self.record_result(id, result, outcome);
        if let Some(ticket) = self.machine.call(id).and_then(|c| c.ticket()) {
            let id = ticket.suspension.id.clone();
            self.close_question(id);
        }
        Gate::SetResult { succeeded }
    }

    /// Completes a question with what the card shows, and opens it.
    pub(super) async fn ask(
        &mut self,
        id: &CallId,
        ready: &ReadyCall,
        mut ticket: SuspendTicket,
        files: Option<Vec<FilePreview>>,
    ) -> Result<Gate, RuntimeError> {
        let files = match files {
            Some(files) => files,
            None => match self.preview(id, ready).await {
                Ok(files) => files,
                // A change that cannot be made is not worth a question.
                Err(error) => return Ok(self.refuse(id, error.into_result(&ready.call.name))),
            },
        };
        if let Some(answered) = self.machine.call(id).and_then(|c| c.ticket()) {
            let id = answered.suspension.id.clone();
            self.close_question(id);
        }
        self.complete(id, ready, &mut ticket, &files).await?;
        self.open(id, &mut ticket);
        Ok(Gate::Suspend(ticket))
    }

    /// Completes a question with what its card shows, the preconditions of its answer and a unique id.
    pub(super) async fn complete(
        &mut self,
        id: &CallId,
        ready: &ReadyCall,
        ticket: &mut SuspendTicket,
        files: &[FilePreview],
    ) -> Result<(), RuntimeError> {
        let call = &ready.call;
        self.attach_preconditions(id, call, Some(&ready.parsed), ticket, files).await;
        let original = &self.tool_call(id)?.arguments;
        if call.arguments != *original {
            // Asked again about an edited call: the card shows what would run now, and that it was edited.
            let original = Some(original.clone());
            ticket.suspension.add(QuestionParameters { original, ..QuestionParameters::default() });
            ticket.pending.arguments = call.arguments.clone();
        }
        if !files.is_empty() {
            let preview = Some(files.to_vec());
            ticket.suspension.add(QuestionParameters { preview, ..QuestionParameters::default() });
        }
        ticket.suspension.id = self.free_id(ticket.suspension.id.clone()).await?;
        Ok(())
    }

    /// Question ids are unique over all threads; a model's call ids need not be.
    async fn free_id(&mut self, wanted: SuspensionId) -> Result<SuspensionId, RuntimeError> {
        // Children ask side by side, and small models number their calls from one: between a look whether an id is free
        // and the question another child could take it.
        let wanted = match &self.lineage {
            Some(own) => SuspensionId::from(format!("{wanted}_{:.8}", own.task_id())),
            None => wanted,
        };
        let is_taken = self.shared.store.suspension(&wanted).await?.is_some();
        // Another process may still take it before the question is stored: see `rename_questions`.
        Ok(if is_taken { another_id(&wanted) } else { wanted })
    }

    pub(super) async fn preview(
        &mut self,
        id: &CallId,
        ready: &ReadyCall,
    ) -> Result<Vec<FilePreview>, ToolError> {
        if ready.descriptor().class != ToolClass::Verifiable {
            return Ok(Vec::new());
        }
        let name = &ready.call.name;
        let ctx = self.call_context(id, name, None);
        AssertUnwindSafe(ready.parsed.preview(&ctx))
            .catch_unwind()
            .await
            .unwrap_or_else(|_| Err(ToolError::Internal(format!("the tool {name} failed"))))
    }

    pub(super) fn call_context(
        &self,
        id: &CallId,
        tool: &str,
        sink: Option<Arc<CallSink>>,
    ) -> ToolCallContext {
        let state = self.machine.call(id);
        let background = CallBackground {
            shared: Arc::clone(&self.shared),
            thread: self.record.thread_id.clone(),
            agent: self.record.agent_id.clone(),
            attempt: self.attempt(id, state.map_or(1, |c| c.attempt)),
            sink: sink.clone(),
            moves: self.slot.handle.moves.clone(),
        };
        let bounds = self.open.bounds.get(id).cloned().unwrap_or_default();
        ToolCallContext {
            call_id: id.to_string(),
            tool_name: tool.to_owned(),
            run_identity: self.identity.clone(),
            agent_spec: Arc::clone(&self.agent.spec),
            snapshot: self.phases.store().snapshot(),
            profile: Some(self.profile()),
            activity_sink: sink.map(|sink| sink as Arc<dyn aye_core::contract::event_sink::EventSink>),
            cancellation: self.slot.handle.cancel.clone(),
            resume: state.and_then(|c| c.decision().cloned()),
            agreed: state.map(agreed_files).unwrap_or_default(),
            attempt: state.map_or(1, |c| c.attempt),
            start_before: None,
            lease_end: None,
            guards_git: bounds.guards_git,
            sandbox: bounds.profile,
            opened: bounds.opened,
            judged: bounds.paths,
            background: Some(Arc::new(background)),
        }
    }

    /// Writes the intent. Only when this returned may the tool start.
    pub(super) async fn begin(&mut self, id: &CallId) -> Result<(), RuntimeError> {
        let call = self.effective_call(id)?;
        let Some(class) = self.agent.tools.get(&call.name).map(|tool| tool.descriptor().class) else {
            return Err(RuntimeError::Internal(format!("the tool {} disappeared", call.name)));
        };
        // A preview that fails leaves nothing to verify with: the call is then as opaque as any.
        let files = match self.ready_call(id) {
            Ok(ready) => self.preview(id, &ready).await.unwrap_or_default(),
            Err(_) => Vec::new(),
        };
        let (attempt, spends) = match self.machine.call(id) {
            Some(state) => (
                state.attempt,
                state.spends().map(|(ticket, decision)| (ticket.suspension.id.clone(), decision.clone())),
            ),
            None => (1, None),
        };
        self.record_step();
        let snapshot = self.snapshot_before(id, class, &files).await;
        let intent = IntentRecord {
            id: self.attempt(id, attempt),
            thread_id: self.record.thread_id.clone(),
            tool: call.name.clone(),
            hash: hash(&call, &self.shared.cwd),
            arguments: call.arguments,
            class,
            files,
            boot_id: self.shared.owner.boot_id.clone(),
            pid: self.shared.owner.pid,
            owner: Some(self.shared.owner.clone()),
            started_at: self.shared.clock.now_ms(),
        };
        let store = Arc::clone(&self.shared.store);
        let fence = self.lease.fence().clone();
        // The changes that led to the call and its intent share one commit.
        let judged = std::mem::take(&mut self.unsaved.judged);
        let commands = std::mem::take(&mut self.unsaved.commands);
        let mut opened = Vec::new();
        let written = if self.has_unsaved_rows() {
            let mut checkpoint = self.take_checkpoint()?;
            loop {
                let again = (!checkpoint.opened.is_empty()).then(|| checkpoint.clone());
                opened.clone_from(&checkpoint.opened);
                let begin = ExecutionStart {
                    fence: fence.clone(),
                    run: checkpoint.run.clone(),
                    intent: intent.clone(),
                    spends: spends.clone(),
                    judged: judged.clone(),
                    commands: commands.clone(),
                    snapshot: snapshot.clone(),
                };
                match (store.checkpoint_and_begin(checkpoint, begin).await, again) {
                    (Err(StoreError::Exists { what }), Some(again)) => {
                        checkpoint = self.rename_questions(again, &what).await?;
                    }
                    (written, _) => break written,
                }
            }
        } else {
            store
                .begin(ExecutionStart { fence, run: self.row()?, intent, spends, judged, commands, snapshot })
                .await
        };
        written.map_err(|e| self.store_error(&e))?;
        self.render_questions(&opened);
        Ok(())
    }

    fn attempt(&self, id: &CallId, attempt: u32) -> AttemptId {
        AttemptId { run_id: self.record.id.clone(), call_id: id.clone(), attempt }
    }

    /// Starts the tool; the result comes back as [`Done::Executed`].
    pub(super) fn execute(&mut self, id: &CallId) {
        let attempt = self.machine.call(id).map_or(1, |c| c.attempt);
        let sink = CallSink::new(
            Arc::clone(&self.events.sink),
            Arc::clone(&self.shared.store),
            self.lease.fence().clone(),
            self.attempt(id, attempt),
        );
        let sink = Arc::new(sink);
        self.in_flight.add_output(id.clone(), Arc::clone(&sink));
        let ready = self.ready_call(id).map(|ready| {
            let ctx = self.call_context(id, &ready.call.name, Some(sink));
            (ready, ctx)
        });
        let (id, lease) = (id.clone(), Arc::clone(&self.lease));
        self.in_flight.start(async move {
            let output = match ready {
                Err(error) => Err(error),
                Ok((ready, mut ctx)) => {
                    // The process may have been stopped for any time since the intent was written, and other intents
                    // were written meanwhile: right before the start it makes sure that the thread is still its own.
                    match lease.confirm().await {
                        Ok(start_before) => {
                            ctx.start_before = Some(start_before);
                            ctx.lease_end = Some(lease.end());
                        }
                        Err(error) => return Done::Kept(error),
                    }
                    AssertUnwindSafe(ready.parsed.execute(&ctx)).catch_unwind().await.unwrap_or_else(
                        |panic| Err(ToolError::Internal(format!("the tool panicked: {}", words_of(&*panic)))),
                    )
                }
            };
            Done::Executed { call: id, output }
        });
    }

    /// Handles a result: applies its state, runs the hooks after the call and records the outcome.
    pub(super) async fn executed(
        &mut self,
        id: CallId,
        output: Result<ToolOutput, ToolError>,
    ) -> Result<Fact, RuntimeError> {
        let call = self.effective_call(&id)?;
        self.in_flight.end_output(&id);
        if let Err(ToolError::Moved(why)) = &output
            && let Some(fact) = self.ask_about_changed_file(&id, why).await?
        {
            return Ok(fact);
        }
        self.open.ready.remove(&id);
        let came_to_nothing = output.is_err();
        let (mut result, command) = match output {
            Ok(output) => (output.result, Some(output.command)),
            Err(error) => (error.into_result(&call.name), None),
        };
        if let Some(profile) = self.open.bounds.get(&id).and_then(|bounds| bounds.profile) {
            result = result.with_profile(profile);
        }
        if let Some(command) = command.filter(|c| !c.is_empty()) {
            match self.phases.submit_command(&self.agent.env, command).await {
                Ok(report) => self.emit_activities(report.activities).await,
                Err(error) => {
                    let text = format!("the tool's change of state was refused: {error}");
                    result = ToolResult::error(&call.name, text);
                }
            }
        }
        if let Some(ticket) = result.suspension.take() {
            let mut ticket = *ticket;
            self.apply_question_terms(&mut ticket);
            ticket.suspension.id = self.free_id(ticket.suspension.id).await?;
            self.record_suspended(&id);
            self.open(&id, &mut ticket);
            return Ok(Fact::Settled { call: id, outcome: Settled::Suspended(ticket) });
        }
        let info = ToolCallInfo::new(call.clone(), self.agent.tools.get(&call.name).map(|t| t.descriptor()));
        let mut ctx =
            self.context(Phase::AfterToolExecute).with_tool(info.clone()).with_tool_result(result.clone());
        ctx.came_to_nothing = came_to_nothing;
        match self.phases.run_phase(&self.agent.env, ctx).await {
            Ok(report) => {
                self.unsaved.commands.extend(report.commands);
                self.emit_activities(report.activities).await;
            }
            // The tool ran: what hooks say of it afterwards does not undo that.
            Err(error) => {
                tracing::error!(run = %self.record.id, call = %id, %error, "hooks failed after a tool");
            }
        }
        if result.is_success() {
            if let Some(file) = info.descriptor.as_ref().and_then(|tool| carry::changed_file(tool, &call)) {
                let mut batch = MutationBatch::new();
                batch.update::<ChangedFiles>(file);
                self.phases.store().commit_batch(batch)?;
            }
            self.launch(&id, &call).await?;
        }
        // The hooks saw only the tool's result; the model also reads what the user did.
        result.touched = self.touched(&id, CallProgress::Ran, None);
        let succeeded = result.is_success();
        let outcome = if succeeded { ToolCallOutcome::Succeeded } else { ToolCallOutcome::Failed };
        self.record_result(&id, result, outcome);
        let attempt = self.machine.call(&id).map_or(1, |c| c.attempt);
        self.record_outcome(&id, attempt, OutcomeKind::Returned);
        let outcome = if succeeded { Settled::Succeeded } else { Settled::Failed };
        Ok(Fact::Settled { call: id, outcome })
    }

    /// Applies the configured terms to a question that a tool asks the user, unless the question has its own.
    pub(super) fn apply_question_terms(&self, ticket: &mut SuspendTicket) {
        let terms = &self.shared.question_terms;
        let question = &mut ticket.suspension;
        if question.is_choice() && question.expires_at.is_none() {
            question.expires_at = terms.ends_at(self.shared.clock.now_ms());
        }
        // A tool's value is not the user's setting: it could name a program to start.
        question.set_notify(terms.notify_value());
    }

    /// An execution that ended in a question has an outcome too: it asked.
    pub(super) fn record_suspended(&mut self, id: &CallId) {
        let name = self.tool_name(id);
        self.record_result(id, ToolResult::suspended(name, "it asks"), ToolCallOutcome::Suspended);
        let attempt = self.machine.call(id).map_or(1, |c| c.attempt);
        self.record_outcome(id, attempt, OutcomeKind::Returned);
        self.step.remove_result(id);
    }
}

fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|s| (*s).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}

/// SHA-256 over the tool, its arguments with sorted keys, and the working directory, hex.
fn hash(call: &ToolCall, cwd: &std::path::Path) -> String {
    let canonical = json!([call.name, sorted(&call.arguments), cwd.to_string_lossy()]);
    sha256_hex(canonical.to_string())
}

pub(super) fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<_> = map.iter().collect();
            keys.sort_by_key(|(key, _)| key.as_str());
            Value::Object(keys.into_iter().map(|(k, v)| (k.clone(), sorted(v))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}
