//! Serves the terminal's requests with the runtime.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;

use super::agent::App;
use super::drafts::Drafts;
use super::elsewhere::{Elsewhere, folder_of, tell};
use super::files::Files;
use super::grants::CallHistory;
use super::symbols::{self, Symbols};
use super::viewer::{Viewer, row_of, running_of};
use super::{compose, edited, editor, images, keys, ledger, mentions, models, statusline, take_over, themes};
use crate::cli::Cli;
use crate::config::{ProbeHit, TrustItem, key_sources, list_models, repository_root};
use crate::contract::content::ContentBlock;
use crate::contract::grant::GrantPreview;
use crate::contract::ids::{CallId, SuspensionId, ThreadId};
use crate::contract::image::{Canvas, Drawn, ImageRef, Packed, Pixels};
use crate::contract::inference::ReasoningEffort;
use crate::contract::judgement::Profile;
use crate::contract::lifecycle::RunStatus;
use crate::contract::message::{Message, Role, ToolCall, Visibility};
use crate::contract::path_policy::PathPolicies as _;
use crate::contract::record::{
    DecideOutcome, GrantScope, InboxRow, QueueId, RunRecord, StoredMessage, SuspensionRecord, ThreadRecord,
    ThreadSummary,
};
use crate::contract::spec::AgentSpec;
use crate::contract::suspension::Answer;
use crate::plugins::skills::list_rows;
use crate::runtime::{DecideError, RunDocument, RunRequest, RuntimeError, UnknownPolicy};
use crate::store::{ChangeKind, InboxFilter, Part, ThreadView};
use crate::tui::back::{BackCmd, BackMsg};
use crate::tui::composer::paste::Draft;
use crate::tui::host::{
    Attach, Attached, Choice, Driver, Earlier, ExportFormat, GrantRow, Host, HostEvent, HostInfo, KeepDraft,
    MentionRow, Mode, ModelRow, OpenedQuestion, OpenedThread, Page, Price, QueuedRow, Review, RuleRow,
    Secret, Shell, SkillRow, UntrustedRow, UserInput,
};
use crate::tui::theme::ThemeRow;

mod back;

/// So many messages of a conversation are in memory, and fetched when older ones are looked at.
const OPENED: usize = 2000;

/// How long programs that were told of a question may go on when the terminal is left.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// After a change by another process, so long is waited for the ones that come with it.
const GATHER: Duration = Duration::from_millis(100);

/// The tool that runs a command line of the person's own.
const BASH: &str = "Bash";
/// So much of what was said can be searched.
const HISTORY: usize = 10_000;

/// Where the terminal's events come from.
pub(super) type Events = UnboundedSender<HostEvent>;

pub(super) struct TerminalHost {
    app: Arc<App>,
    viewer: Viewer,
    files: Arc<Files>,
    symbols: Arc<Symbols>,
    drafts: Drafts,
    pasts: CallHistory,
    events: Events,
    elsewhere: Arc<Elsewhere>,
    searching: back::Searching,
    /// The flags of this start.
    cli: Cli,
    watching: Vec<JoinHandle<()>>,
    /// What serves the terminal since the folder was trusted.
    next: OnceLock<Arc<TerminalHost>>,
}

impl TerminalHost {
    /// Looks at the conversation that is shown from now on, and at what waits in all: to be called where tokio runs.
    pub(super) fn new(app: Arc<App>, events: Events, elsewhere: Arc<Elsewhere>, cli: Cli) -> Self {
        let viewer = Viewer::new(Arc::clone(&app), events.clone());
        let mut watching = vec![tokio::spawn(viewer.clone().watch())];
        watching.extend(watch_inbox(&app, &events));
        let foundation = &app.foundation;
        let kept = (!foundation.is_ephemeral).then(|| foundation.paths.drafts_dir());
        let drafts = Drafts::new(kept, foundation.workspace.cwd.clone());
        {
            let events = events.clone();
            app.notifier.complain_to(move |text| drop(events.send(HostEvent::Warned(text))));
        }
        if let Some(snapshots) = &app.snapshots {
            let events = events.clone();
            snapshots.on_trouble(move |text| drop(events.send(HostEvent::Warned(text))));
        }
        Self {
            app,
            viewer,
            files: Arc::default(),
            symbols: Arc::default(),
            drafts,
            pasts: CallHistory::default(),
            events,
            elsewhere,
            searching: back::Searching::default(),
            cli,
            watching,
            next: OnceLock::new(),
        }
    }

    /// The app that a question's run belongs to: the one on the screen, or that of its folder.
    async fn app_of(&self, question: &SuspensionRecord) -> Result<Arc<App>, String> {
        if self.viewer.shows_above(&question.thread_id) {
            return Ok(Arc::clone(&self.app));
        }
        self.elsewhere.app_of(&self.app, question).await
    }

    /// Goes on with the run of a conversation that is not on the screen.
    async fn go_on_elsewhere(&self, question: &SuspensionRecord, thread: &ThreadId) {
        let events = self.events.clone();
        match self.elsewhere.app_of(&self.app, question).await {
            Ok(app) if Arc::ptr_eq(&app, &self.app) => {
                let (own, sink) = (thread.clone(), self.viewer.sink(thread));
                self.viewer.drive(thread, async move {
                    let result = app.runtime.resume(&own, sink, UnknownPolicy::Ask).await;
                    tell(&app, &events, &own, &result).await;
                    result.map(Some)
                });
            }
            Ok(app) => self.elsewhere.go_on(app, thread.clone()),
            Err(why) => {
                let _ = events.send(HostEvent::Note(format!("stored, but it cannot resume here: {why}")));
            }
        }
    }

    /// Writes what was chosen into the user's settings, and says so.
    fn chosen(&self, key: &str, value: Option<&str>, what: &str) -> Result<String, String> {
        let foundation = &self.app.foundation;
        if foundation.is_ephemeral {
            return Ok(format!("{what}, in this session"));
        }
        match themes::keep(foundation, key, value) {
            Ok(file) => Ok(format!("{what}; saved in {}", foundation.paths.display(&file))),
            Err(why) => Err(format!("{what}, but it was not saved: {why}")),
        }
    }

    /// Ends what goes on in the background, in order.
    pub(super) async fn leave(&self) {
        self.app.mcp.manager.close().await;
        match self.next.get() {
            Some(next) => Box::pin(next.leave()).await,
            None => self.elsewhere.leave().await,
        }
        self.app.notifier.settle(LAST_WAIT).await;
        self.app.telemetry.end().await;
    }

    /// What is said, as the model reads it; a command line with the call that it is.
    async fn messages_of(&self, input: &UserInput) -> Result<Vec<Message>, String> {
        let mut messages = self.said(input).await?;
        if let (Some(shown), Some(first)) = (input.shown(), messages.first_mut()) {
            *first = first.clone().shown_as(shown);
        }
        Ok(messages)
    }

    async fn said(&self, input: &UserInput) -> Result<Vec<Message>, String> {
        let Some(shell) = input.shell else {
            let message = self.message_of(input).await?;
            return Ok(vec![if input.steers { message.steering() } else { message }]);
        };
        let visibility = match shell {
            Shell::Shown => Visibility::All,
            Shell::Hidden => Visibility::Person,
        };
        let id = CallId::fresh().to_string();
        // The end of an id is what differs most.
        let id = format!("cmd_{}", id.get(id.len().saturating_sub(12)..).unwrap_or(&id));
        let call = ToolCall::new(id, BASH, json!({"command": input.text}));
        Ok(Message::command(&input.written(), call, visibility).into())
    }

    /// What is said, as the model reads it.
    async fn message_of(&self, input: &UserInput) -> Result<Message, String> {
        let (app, written) = (&self.app, input.written());
        let command = compose::command(app, &written).await?;
        let is_command = command.is_some();
        let mut goes_with = Vec::new();
        let mut content = match (command, &input.skill) {
            (Some(content), _) => content,
            (None, Some(name)) => return Err(format!("unknown skill `{name}`")),
            (None, None) => {
                goes_with = mentions::attached(app, &input.text).await?;
                goes_with.extend(symbols::attached(app, &self.symbols, &input.text).await?);
                super::mcp::with_resources(app, &input.text).await?
            }
        };
        content.extend(input.images.iter().cloned().map(ContentBlock::StoredImage));
        let is_more = is_command || !goes_with.is_empty();
        Ok(compose::joined(content, goes_with, is_more.then_some(written.as_str())))
    }
}

/// Tells the terminal when another process committed something that the inbox may show. Nothing is done while nothing is
/// committed.
fn watch_inbox(app: &App, events: &Events) -> Option<JoinHandle<()>> {
    let mut changes = match app.store.watch() {
        Ok(changes) => changes,
        Err(error) => {
            tracing::warn!(%error, "pending questions elsewhere are counted only when something happens here");
            return None;
        }
    };
    let events = events.clone();
    Some(tokio::spawn(async move {
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
    }))
}

/// What can be called by its name: skills, and the prompts of tool servers.
fn skill_rows(app: &App) -> Vec<SkillRow> {
    let skills = list_rows(&app.skills).into_iter().filter(|row| row.user_invocable).map(|row| {
        let hint = row.argument_hint.as_deref().map(|hint| format!("{hint}  ")).unwrap_or_default();
        SkillRow {
            description: format!("{hint}{}", row.summary()),
            name: row.name,
            origin: row.scope.to_string(),
        }
    });
    skills.chain(super::mcp::commands(app)).collect()
}

/// The stored messages, and behind them the results of an open step that are not in the conversation yet.
pub(super) fn with_open_results(
    mut messages: Vec<StoredMessage>,
    run: Option<&RunRecord>,
) -> Vec<StoredMessage> {
    let Some(run) = run else { return messages };
    let next = messages.last().map_or(0, |m| m.seq) + 1;
    for (seq, message) in (next..).zip(RunDocument::unrecorded_results(run)) {
        messages.push(StoredMessage { seq, run_id: run.id.clone(), created_at: run.updated_at, message });
    }
    messages
}

/// Why an answer was not taken, where the card says already which question it is about.
fn on_card(error: DecideError) -> String {
    match error {
        DecideError::Schema { message, .. } | DecideError::Unfit { message, .. } => {
            format!("rejected: {message}")
        }
        DecideError::Arguments { message, .. } => format!("the edited arguments cannot be used: {message}"),
        error @ DecideError::Store(_) => error.to_string(),
    }
}

#[async_trait]
impl Host for TerminalHost {
    async fn open_thread(&self, id: Option<ThreadId>) -> Result<OpenedThread, String> {
        let now = self.app.clock.now_ms();
        let Some(id) = id else {
            let thread = ThreadRecord {
                id: ThreadId::fresh(),
                title: String::new(),
                cwd: self.app.foundation.workspace.cwd.clone(),
                created_at: now,
                updated_at: now,
            };
            self.viewer.show(&thread.id, 0);
            return Ok(OpenedThread {
                thread,
                messages: Vec::new(),
                earlier: None,
                run: None,
                waiting: Vec::new(),
                interrupted: Vec::new(),
                driver: Driver::Nobody,
                queued: Vec::new(),
                children: Vec::new(),
                commands: Vec::new(),
                summaries: Vec::new(),
            });
        };
        let text = |e: crate::store::StoreError| e.to_string();
        let glance = self
            .app
            .store
            .glance_at(&id, Part::Last(OPENED))
            .await
            .map_err(text)?
            .ok_or_else(|| format!("unknown thread {id}"))?;
        if !self.viewer.shows(&id)
            && let Some(notice) = self.app.continue_with_its_agent(&id).await.map_err(text)?
        {
            drop(self.events.send(HostEvent::Warned(notice)));
        }
        let driver = self.viewer.driver_of(&glance);
        self.viewer.show(&id, glance.messages.last().map_or(0, |stored| stored.seq));
        let before = glance.total.saturating_sub(glance.messages.len() as u64);
        let earlier = match before {
            0 => None,
            messages => {
                let usage = self.app.store.usage_of_thread(&id).await.map_err(text)?;
                Some(Earlier { messages, usage })
            }
        };
        let ThreadView {
            thread,
            messages,
            run,
            waiting,
            running,
            queued,
            summaries,
            lease: _,
            decided: _,
            total: _,
            children,
            commands,
        } = glance;
        let mut messages = with_open_results(messages, run.as_ref());
        for stored in messages.iter_mut().filter(|stored| stored.message.role == Role::Tool) {
            images::name(&self.app, &mut stored.message.content).await;
        }
        // While somebody is awake its calls run; else nobody knows what became of them.
        let interrupted = if driver == Driver::Nobody { running } else { Vec::new() };
        if driver == Driver::Nobody && run.as_ref().is_some_and(|run| run.status != RunStatus::Done) {
            self.viewer.wake(&id);
        }
        let queued = queued.iter().map(row_of).collect();
        self.viewer.mind(&id);
        Ok(OpenedThread {
            thread,
            messages,
            earlier,
            run,
            waiting,
            interrupted,
            driver,
            queued,
            children,
            commands: running_of(&self.app.runtime, &commands),
            summaries,
        })
    }

    async fn earlier(&self, thread: &ThreadId, seq: u64) -> Result<Vec<StoredMessage>, String> {
        self.app.store.messages_before(thread, seq, OPENED).await.map_err(|e| e.to_string())
    }

    async fn place(&self, thread: &ThreadId, message: &str) -> Result<Option<u64>, String> {
        self.app.store.place_of_message(thread, message).await.map_err(|e| e.to_string())
    }

    async fn start(&self, thread: &ThreadId, input: UserInput) -> Result<(), String> {
        let messages = self.messages_of(&input).await?;
        let request = RunRequest::new(thread.clone(), messages.clone());
        // Before it is begun, so that the draft comes back.
        self.app.runtime.fits(&request).map_err(|e| e.to_string())?;
        let events = self.events.clone();
        let (app, viewer, own, sink) =
            (Arc::clone(&self.app), self.viewer.clone(), thread.clone(), self.viewer.sink(thread));
        self.viewer.drive(thread, async move {
            let result = app.runtime.run(request, sink).await;
            if let Err(RuntimeError::ThreadAlreadyRunning { .. }) = &result {
                // Another process became awake in the same moment. Nothing that was said is lost.
                viewer.defer(&own, messages, input).await?;
            }
            if result.is_ok() {
                super::titles::begin(&app, &own, move |event| drop(events.send(event)));
            }
            result.map(Some)
        });
        Ok(())
    }

    async fn enqueue(&self, thread: &ThreadId, input: UserInput) -> Result<QueuedRow, String> {
        let messages = self.messages_of(&input).await?;
        let queued = self.app.runtime.enqueue(thread, messages).await.map_err(|e| e.to_string())?;
        // Whoever was awake when it was said may have looked at the queue for the last time.
        let run = self.app.store.latest_run(thread).await.map_err(|e| e.to_string())?;
        if run.is_none_or(|run| run.status == RunStatus::Done) {
            self.viewer.begin_queued(thread);
        }
        Ok(row_of(&queued))
    }

    async fn attach(&self, what: Attach) -> Result<Attached, String> {
        images::attach(&self.app, what).await
    }

    async fn picture(&self, image: &ImageRef) -> Result<Pixels, String> {
        images::pixels(&self.app, image).await
    }

    async fn packed(&self, image: &ImageRef) -> Result<Packed, String> {
        images::packed(&self.app, image).await
    }

    async fn plate(&self, image: &ImageRef, canvas: Canvas) -> Result<Drawn, String> {
        images::plate(&self.app, image, canvas).await
    }

    async fn unqueue(&self, id: QueueId) -> Result<bool, String> {
        self.app.runtime.unqueue(id).await.map_err(|e| e.to_string())
    }

    async fn question(&self, id: &SuspensionId) -> Result<Option<SuspensionRecord>, String> {
        self.app.store.suspension(id).await.map_err(|e| e.to_string())
    }

    async fn decide(&self, id: &SuspensionId, mut answer: Answer) -> Result<DecideOutcome, String> {
        let actor = self.app.actor("tui");
        let grant = match answer.grant.take() {
            Some(request) => {
                let grant = self.app.checked_grant(request, actor.clone()).await;
                Some(grant.map_err(|error| format!("the rule was not stored: {error}"))?)
            }
            None => None,
        };
        let resume = answer.resume(self.app.clock.now_ms());
        let decided = self.app.runtime.decide_granting(id, resume, actor, grant);
        let outcome = decided.await.map_err(on_card)?;
        match &outcome {
            DecideOutcome::Accepted(record)
            | DecideOutcome::Repeated(record)
            | DecideOutcome::AlreadyDecided(record) => {
                // What a child asks moves the run on that waits for it.
                let store = &self.app.store;
                let thread = store.driven_with(&record.thread_id).await.map_err(|e| e.to_string())?;
                if self.viewer.shows(&thread) {
                    self.viewer.wake(&thread);
                } else {
                    self.go_on_elsewhere(record, &thread).await;
                }
            }
            DecideOutcome::Closed(_) | DecideOutcome::Expired(_) | DecideOutcome::NotFound => {}
        }
        Ok(outcome)
    }

    async fn preview_grant(&self, suspension: &SuspensionId, pattern: &str) -> Result<GrantPreview, String> {
        self.app.preview_grant(&self.pasts, suspension, pattern).await
    }

    async fn grants(&self) -> Result<Vec<GrantRow>, String> {
        let rows = ledger::rows(&self.app.store, self.app.clock.now_ms(), true).await?;
        Ok(rows.iter().map(ledger::Row::to_grant_row).collect())
    }

    async fn revoke_grant(&self, id: &str) -> Result<bool, String> {
        let now = self.app.clock.now_ms();
        let revoked = self.app.store.revoke_grant(id, now).await.map_err(|e| e.to_string())?;
        self.app.load_grants().await;
        Ok(revoked)
    }

    async fn review(&self, suspension: &SuspensionId, arguments: &Value) -> Result<Review, String> {
        let found = self.app.store.suspension(suspension).await.map_err(|e| e.to_string())?;
        let found = found.ok_or("the question no longer exists")?;
        let app = self.app_of(&found).await?;
        app.load_grants().await;
        let tool = app.runtime.catalog().tool(&found.ticket.pending.name).cloned();
        edited::review(&app.permission, tool, &found, arguments).await
    }

    async fn edit(&self, text: &str, name: &str) -> Result<String, String> {
        Ok(editor::edit(&self.app.foundation.env, text, name).await?.text)
    }

    async fn take_over(&self, thread: &ThreadId, id: &str) -> Result<(), String> {
        let terminal = self.app.runtime.terminal(thread, id).map_err(|error| error.to_string())?;
        take_over::take_over(terminal.as_ref(), id).await
    }

    fn cancel(&self, thread: &ThreadId) {
        if self.app.runtime.cancel(thread) {
            return;
        }
        let (app, own, sink) = (Arc::clone(&self.app), thread.clone(), self.viewer.sink(thread));
        self.viewer.drive(thread, async move { app.runtime.cancel_waiting(&own, sink).await.map(|_| None) });
    }

    fn to_background(&self, thread: &ThreadId) -> bool {
        self.app.runtime.move_to_background(thread)
    }

    fn expired(&self, thread: &ThreadId) {
        self.viewer.wake(thread);
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

    async fn opened_question(&self, id: &SuspensionId) -> Result<Option<OpenedQuestion>, String> {
        let text = |e: crate::store::StoreError| e.to_string();
        let Some(record) = self.app.store.suspension(id).await.map_err(text)? else { return Ok(None) };
        let Some(thread) = self.app.store.thread(&record.thread_id).await.map_err(text)? else {
            return Ok(None);
        };
        let project = repository_root(&folder_of(&record, &thread.cwd));
        let child = self.app.store.child(&record.thread_id).await.map_err(text)?;
        let title = match &child {
            Some(child) => {
                let root = self.app.store.thread(&child.root_thread).await.map_err(text)?;
                root.map_or(thread.title, |root| root.title)
            }
            None => thread.title,
        };
        Ok(Some(OpenedQuestion { record, title, project, child: child.map(|child| child.agent) }))
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
            model_why: selection.why.clone(),
            effort: self.app.foundation.effort.get(),
            agent: self.app.agents.named(),
            mode: self.app.permission.mode(),
            cwd: self.app.foundation.workspace.cwd.clone(),
            project: self.app.foundation.workspace.root.clone(),
            home: self.app.foundation.env.home().map(PathBuf::from),
            branch: statusline::branch(&self.app.foundation.workspace.root),
            instructions: self.app.instructions.status(),
            unsandboxed: match &self.app.sandbox {
                Some(sandbox) => sandbox.known_lack(&self.app.foundation.workspace.root),
                None => Some("no sandbox".to_owned()),
            },
            warnings: self.app.warnings.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    fn untrusted(&self) -> Vec<UntrustedRow> {
        let reach = super::programs::reach(&self.app.foundation);
        let row = |item: &TrustItem| {
            let reach = if item.starts { format!("\n{reach}") } else { String::new() };
            UntrustedRow { path: item.path.clone(), does: format!("{}{reach}", item.summary) }
        };
        self.app.foundation.untrusted.iter().map(row).collect()
    }

    async fn trust(&self) -> Result<(), String> {
        self.app.foundation.trust()
    }

    async fn renew(&self) -> Result<Option<Arc<dyn Host>>, String> {
        if !self.viewer.rests().await {
            return Ok(None);
        }
        let app = Arc::new(self.app.renewed(&self.cli).await.map_err(|failure| failure.message)?);
        let elsewhere = Arc::clone(&self.elsewhere);
        let next = Arc::new(TerminalHost::new(app, self.events.clone(), elsewhere, self.cli.clone()));
        for watching in &self.watching {
            watching.abort();
        }
        self.viewer.hand_over(&next.viewer);
        self.app.mcp.manager.close().await;
        let next = self.next.get_or_init(|| next);
        Ok(Some(Arc::<TerminalHost>::clone(next)))
    }

    fn set_mode(&self, mode: Mode) -> Result<(), String> {
        self.app.permission.set_mode(mode).map_err(|why| why.to_string())
    }

    fn models(&self) -> Vec<ModelRow> {
        keys::look(&self.app.foundation);
        let rows = self.app.model_rows(&models::kept_offers(&self.app.foundation));
        let (app, events) = (Arc::clone(&self.app), self.events.clone());
        tokio::spawn(async move {
            let all = models::all_offers(&app.foundation, true).await;
            let _ = events.send(HostEvent::Models(app.model_rows(&all.hits)));
            for why in all.refused {
                let _ = events.send(HostEvent::Warned(why));
            }
        });
        rows
    }

    async fn set_effort(&self, effort: Option<ReasoningEffort>) -> Result<String, String> {
        self.app.foundation.effort.set(effort);
        let word = effort.map(|effort| effort.to_string());
        let what = format!("effort: {}", word.as_deref().unwrap_or("the model's default"));
        self.chosen("effort", word.as_deref(), &what)
    }

    fn logins(&self) -> Vec<ModelRow> {
        let foundation = &self.app.foundation;
        keys::look(foundation);
        let sources = key_sources(&foundation.loaded.settings, &foundation.env);
        let row = |name: String| {
            let source = sources.iter().find(|source| source.provider == name);
            let note = match source {
                Some(source) if source.is_set => {
                    format!("{} is set", source.variable.as_deref().unwrap_or_default())
                }
                Some(_) => "has a stored key".to_owned(),
                None => String::new(),
            };
            ModelRow { login: Some(name.clone()), name, note, ..ModelRow::default() }
        };
        keys::takers(foundation).into_iter().map(|provider| row(provider.name)).collect()
    }

    async fn log_in(&self, provider: &str, key: Secret) -> Result<String, String> {
        let foundation = &self.app.foundation;
        let words = keys::log_in(foundation, provider, &key.0, false).await?;
        if !self.app.selection().is_demo() {
            return Ok(words);
        }
        // Whoever connects a provider wants to use it.
        let name = keys::provider(foundation, provider)?.name;
        match self.app.set_model(&format!("{name}/")).await {
            Ok(()) => Ok(format!("{words}; {} answers from now on", self.app.selection().full_name())),
            Err(why) => Ok(format!("{words}; choose a model with /model ({why})")),
        }
    }

    async fn log_out(&self, provider: Option<&str>) -> Result<String, String> {
        keys::log_out(&self.app.foundation, provider).await
    }

    async fn set_model(&self, name: &str) -> Result<String, String> {
        self.app.set_model(name).await?;
        let model = self.app.selection().full_name();
        let answers = format!("{model} answers from now on");
        if self.app.agents.has_own_model() {
            // The setting is for agents that name none.
            return Ok(format!("{answers}, in this session"));
        }
        // As it was written: a name of the settings stands for more than its model.
        self.chosen("model", Some(name), &answers)
    }

    async fn status_line(&self, json: String) -> Result<String, String> {
        statusline::run(&self.app.foundation, json).await
    }

    fn themes(&self) -> Vec<ThemeRow> {
        themes::list(&self.app.foundation)
    }

    async fn keep(&self, choice: Choice, value: &str) -> Result<PathBuf, String> {
        let (app, value) = (Arc::clone(&self.app), value.to_owned());
        let kept =
            tokio::task::spawn_blocking(move || themes::keep(&app.foundation, choice.key(), Some(&value)))
                .await;
        kept.map_err(|error| error.to_string())?
    }

    fn skills(&self) -> Vec<SkillRow> {
        skill_rows(&self.app)
    }

    fn permissions(&self) -> Vec<RuleRow> {
        self.app.permission_rows()
    }

    async fn complete_files(&self, query: &str) -> Vec<MentionRow> {
        let (files, cwd, wanted) =
            (Arc::clone(&self.files), self.app.foundation.workspace.cwd.clone(), query.to_owned());
        let named = |label: String| MentionRow { label, detail: String::new() };
        let mut rows: Vec<_> = super::mcp::complete(&self.app, query).await.into_iter().map(named).collect();
        let others = mentions::complete(&self.app, query).await;
        let (kinds, others): (Vec<_>, Vec<_>) = others.into_iter().partition(|row| row.label.ends_with(':'));
        rows.extend(kinds);
        let symbols = Arc::clone(&self.symbols);
        let found = tokio::task::spawn_blocking(move || {
            if wanted.contains('#') {
                let all = if wanted.starts_with('#') { files.all(&cwd) } else { Vec::new() };
                let found = symbols.complete(&cwd, &all, &wanted);
                if !found.is_empty() {
                    return found;
                }
            }
            files.complete(&cwd, &wanted).into_iter().map(named).collect()
        });
        rows.extend(found.await.unwrap_or_default());
        rows.extend(others);
        rows
    }

    async fn export(&self, thread: &ThreadId, format: ExportFormat) -> Result<PathBuf, String> {
        self.write_export(thread, format).await
    }

    async fn back(&self, cmd: BackCmd) -> BackMsg {
        self.do_back(cmd).await
    }

    async fn shown(&self) {
        // The picture is there and nobody has typed yet.
        let events = self.events.clone();
        let (app, of_prompts) = (Arc::downgrade(&self.app), self.events.clone());
        self.app.mcp.on_prompts(move || {
            if let Some(app) = app.upgrade() {
                let _ = of_prompts.send(HostEvent::Skills(skill_rows(&app)));
            }
        });
        self.app.mcp.start(move |text| drop(events.send(HostEvent::Note(text))));
        let store = self.app.store.clone();
        tokio::spawn(async move { store.warm().await });
        // Looking what the machine can enforce starts a process, and a first command would wait for that and for a walk
        // through the folder.
        if let Some(sandbox) = self.app.sandbox.clone() {
            let root = self.app.foundation.workspace.root.clone();
            let events = self.events.clone();
            let rules = self.app.permission.policy(&AgentSpec::new(""));
            tokio::task::spawn_blocking(move || {
                if let Some(lack) = sandbox.lack(&root) {
                    let _ = events.send(HostEvent::Unsandboxed(lack));
                }
                if sandbox.problem(Profile::Workspace, false, &root).is_none() {
                    sandbox.prepare(&root, rules.as_ref());
                }
            });
        }
        // Reading a large folder takes long, and a first command would wait for it.
        if let Some(snapshots) = &self.app.snapshots {
            crate::contract::snapshot::Snapshots::prepare(snapshots);
        }
    }

    async fn history(&self) -> Result<Vec<String>, String> {
        self.app.store.all_prompts(HISTORY).await.map_err(|error| error.to_string())
    }

    async fn keep_draft(&self, keep: KeepDraft) {
        let drafts = self.drafts.clone();
        let _ = tokio::task::spawn_blocking(move || drafts.keep(&keep)).await;
    }

    async fn draft(&self, thread: &ThreadId, is_new: bool) -> Option<Draft> {
        let (drafts, thread) = (self.drafts.clone(), thread.clone());
        tokio::task::spawn_blocking(move || drafts.find(&thread, is_new)).await.ok().flatten()
    }

    async fn page(&self, thread: Option<&ThreadId>, name: &str, words: &str) -> Result<Page, String> {
        if name == "compact" {
            let _ = self.events.send(HostEvent::Note("summarising older messages …".to_owned()));
        }
        if name == "serve" {
            return self.elsewhere.serve(words.trim()).await;
        }
        let page = super::pages::page(&self.app, thread, name, words).await;
        // What a page did to the conversation is told as what others do to it.
        self.viewer.poke();
        page
    }

    async fn remember(&self, prompt: &str) {
        if let Err(error) = self.app.store.remember_prompt(&self.app.foundation.workspace.cwd, prompt).await {
            tracing::warn!(%error, "the prompt could not be added to the history");
        }
    }
}

impl App {
    /// What can be chosen as a model, by what servers list.
    pub(super) fn model_rows(&self, hits: &[ProbeHit]) -> Vec<ModelRow> {
        let (settings, env) = (&self.foundation.loaded.settings, &self.foundation.env);
        let rows = list_models(settings, env, hits, Some(&self.selection()));
        rows.into_iter()
            .map(|row| ModelRow {
                name: row.name,
                note: row.why.clone(),
                unusable: (!row.usable).then_some(row.why),
                is_current: row.current,
                login: row.login,
            })
            .collect()
    }

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
