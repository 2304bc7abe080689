//! What the terminal asks, done with the runtime.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc::UnboundedSender;

use super::agent::App;
use super::elsewhere::{Elsewhere, folder_of};
use super::export;
use super::files::Files;
use crate::config::{list_models, repository_root, write_private};
use crate::contract::content::ContentBlock;
use crate::contract::event::AgentEvent;
use crate::contract::event_sink::EventSink;
use crate::contract::ids::{SuspensionId, ThreadId};
use crate::contract::lifecycle::{RunStatus, TerminationReason, ToolCallOutcome};
use crate::contract::message::Message;
use crate::contract::record::{
    DecideOutcome, GrantScope, InboxRow, RunRecord, StoredMessage, ThreadRecord, ThreadSummary,
};
use crate::contract::suspension::ToolCallResume;
use crate::plugins::skills::{invocation, list_rows};
use crate::runtime::{RunDocument, RunRequest, RuntimeError, UnknownPolicy};
use crate::store::{ChangeKind, InboxFilter};
use crate::tui::host::{
    ExportFormat, Host, HostEvent, HostInfo, Mode, ModelRow, OpenedQuestion, OpenedThread, Price, RuleRow,
    SkillRow, UserInput,
};

/// After a change by another process, so long is waited for the ones that come with it.
const GATHER: Duration = Duration::from_millis(100);

/// Where the terminal's events come from.
pub(super) type Events = UnboundedSender<HostEvent>;

/// See the module's text.
pub(super) struct TerminalHost {
    app: Arc<App>,
    events: Events,
    files: Arc<Files>,
    elsewhere: Elsewhere,
}

/// Sends the events of one conversation to the terminal.
struct ThreadSink {
    thread: ThreadId,
    events: Events,
}

#[async_trait]
impl EventSink for ThreadSink {
    async fn emit(&self, event: AgentEvent) {
        let is_inbox = match &event {
            AgentEvent::ToolCallDone { outcome, .. } => *outcome == ToolCallOutcome::Suspended,
            AgentEvent::RunFinish { .. } => true,
            _ => false,
        };
        // The terminal is gone when the program ends: nobody is left to tell.
        let _ = self.events.send(HostEvent::Agent(self.thread.clone(), event));
        if is_inbox {
            let _ = self.events.send(HostEvent::InboxChanged);
        }
    }
}

impl TerminalHost {
    pub(super) fn new(app: Arc<App>, events: Events, elsewhere: Elsewhere) -> Self {
        Self { app, events, files: Arc::default(), elsewhere }
    }

    /// Tells the terminal when another process committed something that the inbox may show. Nothing is done while
    /// nothing is committed.
    pub(super) fn watch_inbox(&self) {
        let mut changes = match self.app.store.watch() {
            Ok(changes) => changes,
            Err(error) => {
                tracing::warn!(%error, "what waits elsewhere is counted only when something happens here");
                return;
            }
        };
        let events = self.events.clone();
        tokio::spawn(async move {
            loop {
                match changes.next().await.kind {
                    ChangeKind::Run | ChangeKind::Decision | ChangeKind::Anything => {}
                    ChangeKind::Owner | ChangeKind::Queue | ChangeKind::Grant => continue,
                }
                // A run that is awake commits many times a second.
                let rest = async {
                    loop {
                        changes.next().await;
                    }
                };
                let _ = tokio::time::timeout(GATHER, rest).await;
                if events.send(HostEvent::InboxChanged).is_err() {
                    return;
                }
            }
        });
    }

    /// Ends what goes on in the background, in order.
    pub(super) async fn leave(&self) {
        self.elsewhere.leave().await;
    }

    fn sink(&self, thread: &ThreadId) -> Arc<ThreadSink> {
        Arc::new(ThreadSink { thread: thread.clone(), events: self.events.clone() })
    }

    /// Wakes a conversation's run in the background. Nothing happens to one that only waits.
    fn wake(&self, thread: &ThreadId) {
        let (app, sink, thread) = (Arc::clone(&self.app), self.sink(thread), thread.clone());
        tokio::spawn(async move {
            app.load_grants().await;
            let outcome = app.runtime.resume(&thread, sink.clone(), UnknownPolicy::Ask).await;
            match outcome {
                Ok(_) | Err(RuntimeError::NothingToResume { .. }) => {}
                Err(error) => tell_failure(&sink, &thread, &error).await,
            }
        });
    }
}

/// A run that could not be driven is told in the form of a run that failed.
async fn tell_failure(sink: &Arc<ThreadSink>, thread: &ThreadId, error: &RuntimeError) {
    let message = error.to_string();
    sink.emit(AgentEvent::Error { message: message.clone(), code: Some("runtime".into()) }).await;
    sink.emit(AgentEvent::RunFinish {
        thread_id: thread.to_string(),
        run_id: String::new(),
        result: None,
        termination: TerminationReason::Error(message),
    })
    .await;
}

/// The stored messages, and behind them the results of an open step that are not in the conversation yet.
fn with_open_results(mut messages: Vec<StoredMessage>, run: Option<&RunRecord>) -> Vec<StoredMessage> {
    let Some(run) = run.filter(|run| run.status != RunStatus::Done) else { return messages };
    let Ok(document) = RunDocument::from_value(&run.machine) else { return messages };
    if document.recorded {
        return messages;
    }
    let next = messages.last().map_or(0, |m| m.seq) + 1;
    for (seq, message) in (next..).zip(document.tool_messages()) {
        messages.push(StoredMessage { seq, run_id: run.id.clone(), created_at: run.updated_at, message });
    }
    messages
}

#[async_trait]
impl Host for TerminalHost {
    async fn open_thread(&self, id: Option<ThreadId>) -> Result<OpenedThread, String> {
        self.elsewhere.show(id.as_ref());
        let now = self.app.clock.now_ms();
        let Some(id) = id else {
            let thread = ThreadRecord {
                id: ThreadId::fresh(),
                title: String::new(),
                cwd: self.app.foundation.workspace.cwd.clone(),
                created_at: now,
                updated_at: now,
            };
            self.elsewhere.show(Some(&thread.id));
            return Ok(OpenedThread {
                thread,
                messages: Vec::new(),
                run: None,
                waiting: Vec::new(),
                interrupted: Vec::new(),
            });
        };
        let store = &self.app.store;
        let text = |e: crate::store::StoreError| e.to_string();
        let thread =
            store.thread(&id).await.map_err(text)?.ok_or_else(|| format!("there is no thread {id}"))?;
        let run = store.latest_run(&id).await.map_err(text)?;
        let messages = with_open_results(store.messages(&id).await.map_err(text)?, run.as_ref());
        let waiting = self.app.runtime.waiting(&id).await.map_err(text)?;
        let interrupted = match &run {
            Some(run) if run.status == RunStatus::Running && !self.app.runtime.is_awake(&id) => {
                store.open_intents(&run.id).await.map_err(text)?
            }
            Some(_) | None => Vec::new(),
        };
        if run.as_ref().is_some_and(|run| run.status != RunStatus::Done) && !self.elsewhere.drives(&id) {
            self.wake(&id);
        }
        Ok(OpenedThread { thread, messages, run, waiting, interrupted })
    }

    async fn start(&self, thread: &ThreadId, input: UserInput) -> Result<(), String> {
        let text = match &input.skill {
            None => input.text,
            Some(name) => {
                let line = format!("/{name} {}", input.text);
                invocation(&self.app.skills.registry(), line.trim_end())
                    .ok_or_else(|| format!("there is no skill `{name}`"))?
            }
        };
        let mut content = vec![ContentBlock::text(text)];
        content.extend(input.images);
        let request = RunRequest::new(thread.clone(), vec![Message::user_with(content)]);
        let (app, sink, thread) = (Arc::clone(&self.app), self.sink(thread), thread.clone());
        tokio::spawn(async move {
            app.load_grants().await;
            if let Err(error) = app.runtime.run(request, sink.clone()).await {
                tell_failure(&sink, &thread, &error).await;
            }
        });
        Ok(())
    }

    async fn decide(&self, id: &SuspensionId, answer: ToolCallResume) -> Result<DecideOutcome, String> {
        let question = self.app.store.suspension(id).await.map_err(|e| e.to_string())?;
        let app = match &question {
            Some(question) => self.elsewhere.app_of(&self.app, question).await,
            None => Ok(Arc::clone(&self.app)),
        };
        // What cannot go on here can be answered here all the same.
        let runtime = app.as_ref().map_or(&self.app.runtime, |app| &app.runtime);
        let outcome = runtime.decide(id, answer, self.app.actor("tui")).await.map_err(|e| e.to_string())?;
        match &outcome {
            DecideOutcome::Accepted(record)
            | DecideOutcome::Repeated(record)
            | DecideOutcome::AlreadyDecided(record) => match app {
                _ if self.elsewhere.shows(&record.thread_id) => self.wake(&record.thread_id),
                Ok(app) => self.elsewhere.go_on(app, record.thread_id.clone(), self.sink(&record.thread_id)),
                Err(why) => {
                    let _ =
                        self.events.send(HostEvent::Note(format!("stored, but it cannot go on here: {why}")));
                }
            },
            DecideOutcome::Closed(_) | DecideOutcome::Expired(_) | DecideOutcome::NotFound => {}
        }
        Ok(outcome)
    }

    async fn grant(&self, suspension: &SuspensionId, pattern: &str, scope: GrantScope) -> Result<(), String> {
        self.app.add_grant(suspension, pattern, scope, "tui").await
    }

    fn cancel(&self, thread: &ThreadId) {
        let (app, sink, thread) = (Arc::clone(&self.app), self.sink(thread), thread.clone());
        tokio::spawn(async move {
            if let Err(error) = app.runtime.cancel_waiting(&thread, sink.clone()).await {
                tell_failure(&sink, &thread, &error).await;
            }
        });
    }

    async fn threads(&self) -> Result<Vec<ThreadSummary>, String> {
        self.app.store.threads(None).await.map_err(|e| e.to_string())
    }

    async fn inbox(&self) -> Result<Vec<InboxRow>, String> {
        let now = self.app.clock.now_ms();
        super::approvals::waiting(&self.app.store, InboxFilter::default(), now).await.map_err(|e| e.message)
    }

    async fn waiting_elsewhere(&self, here: Option<&ThreadId>) -> Result<u64, String> {
        self.app.store.waiting_count(here, self.app.clock.now_ms()).await.map_err(|e| e.to_string())
    }

    async fn question(&self, id: &SuspensionId) -> Result<Option<OpenedQuestion>, String> {
        let text = |e: crate::store::StoreError| e.to_string();
        let Some(record) = self.app.store.suspension(id).await.map_err(text)? else { return Ok(None) };
        let Some(thread) = self.app.store.thread(&record.thread_id).await.map_err(text)? else {
            return Ok(None);
        };
        let project = repository_root(&folder_of(&record, &thread.cwd));
        Ok(Some(OpenedQuestion { record, title: thread.title, project }))
    }

    fn info(&self) -> HostInfo {
        let selection = self.app.selection();
        HostInfo {
            model: selection.model.clone(),
            provider: selection.provider.clone(),
            is_demo: selection.is_demo(),
            context_window: (!selection.is_demo()).then_some(selection.context_window),
            price: selection.price.map(|p| Price {
                input: p.input,
                output: p.output,
                cache_read: p.cache_read,
            }),
            mode: self.app.permission.mode(),
            cwd: self.app.foundation.workspace.cwd.clone(),
            project: self.app.foundation.workspace.root.clone(),
            home: self.app.foundation.env.home().map(PathBuf::from),
            instructions: self.app.instructions.status(),
            warnings: self.app.warnings.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    fn set_mode(&self, mode: Mode) {
        self.app.permission.set_mode(mode);
    }

    fn models(&self) -> Vec<ModelRow> {
        let settings = &self.app.foundation.loaded.settings;
        list_models(settings, &self.app.foundation.env, &[])
            .into_iter()
            .map(|row| ModelRow {
                name: row.name,
                note: row.provider,
                unusable: (!row.usable).then_some(row.why),
            })
            .collect()
    }

    async fn set_model(&self, name: &str) -> Result<(), String> {
        self.app.set_model(name).await
    }

    fn skills(&self) -> Vec<SkillRow> {
        list_rows(&self.app.skills)
            .into_iter()
            .map(|row| SkillRow {
                name: row.name,
                description: row.description,
                origin: row.scope.to_string(),
            })
            .collect()
    }

    fn permissions(&self) -> Vec<RuleRow> {
        self.app.permission_rows()
    }

    async fn complete_files(&self, query: &str) -> Vec<String> {
        let (files, cwd, query) =
            (Arc::clone(&self.files), self.app.foundation.workspace.cwd.clone(), query.to_owned());
        tokio::task::spawn_blocking(move || files.complete(&cwd, &query)).await.unwrap_or_default()
    }

    async fn export(&self, thread: &ThreadId, format: ExportFormat) -> Result<PathBuf, String> {
        let opened = self.app.store.thread(thread).await.map_err(|e| e.to_string())?;
        let record = opened.ok_or("there is nothing to export yet")?;
        let messages = self.app.store.messages(thread).await.map_err(|e| e.to_string())?;
        let (text, ending) = match format {
            ExportFormat::Markdown => (export::as_markdown(&record, &messages), "md"),
            ExportFormat::Json => (export::as_json(&record, &messages).to_string(), "json"),
        };
        let path = self.app.foundation.workspace.cwd.join(format!("aye-{thread}.{ending}"));
        write_private(&path, text.as_bytes()).map_err(|e| e.to_string())?;
        Ok(path)
    }

    async fn history(&self) -> Vec<String> {
        let cwd = &self.app.foundation.workspace.cwd;
        let prompts = self.app.store.prompts(cwd, 1000).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the prompt history could not be read");
            Vec::new()
        });
        // The picture is there and nobody has typed yet.
        let store = self.app.store.clone();
        tokio::spawn(async move { store.warm().await });
        prompts
    }

    async fn remember(&self, prompt: &str) {
        if let Err(error) = self.app.store.remember_prompt(&self.app.foundation.workspace.cwd, prompt).await {
            tracing::warn!(%error, "the prompt could not be remembered");
        }
    }
}

impl App {
    /// The rules and grants in force.
    pub(super) fn permission_rows(&self) -> Vec<RuleRow> {
        let rules = self.permission.rules();
        let mut rows: Vec<RuleRow> = rules
            .rules()
            .iter()
            .map(|rule| RuleRow {
                pattern: rule.pattern.to_string(),
                behavior: rule.behavior.to_string(),
                origin: rule.origin.to_string(),
            })
            .collect();
        rows.extend(self.permission.grants().into_iter().map(|grant| RuleRow {
            pattern: grant.pattern,
            behavior: "allow".to_owned(),
            origin: match grant.scope {
                GrantScope::Run(_) => "granted for a run".to_owned(),
                GrantScope::Thread(_) => "granted for a thread".to_owned(),
                GrantScope::Project(path) => format!("granted for {}", path.display()),
                GrantScope::Everywhere => "granted everywhere".to_owned(),
            },
        }));
        rows
    }
}
