//! Opening and reading conversations, saying something in one, and what runs in it.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::json;

use super::TerminalHost;
use crate::commands::tasks;
use crate::compose::{self, WrittenMessage, images};
use crate::contract::content::ContentBlock;
use crate::contract::ids::{CallId, MessageId, ThreadId};
use crate::contract::lifecycle::RunStatus;
use crate::contract::message::{Message, Role, ToolCall, Visibility};
use crate::contract::record::{QueueId, RunRecord, StoredMessage, ThreadRecord, ThreadSummary};
use crate::contract::storage::{MessageSelection, ThreadView};
use crate::failure::AppError;
use crate::runtime::{RunDocument, RunRequest, RuntimeError};
use crate::session::Ended;
use crate::terminal::follow::{row_of, rows_of, running_of};
use crate::terminal::take_over;
use crate::tui::composer::paste::Draft;
use crate::tui::host::{
    Earlier, HostEvent, HostFuture, OpenedThread, QueuedRow, Shell, ThreadHost, ThreadOwner, UserInput,
};

/// The number of messages loaded when a conversation is opened, and fetched at a time when the user reads
/// older ones.
const OPENED: usize = 2000;

/// The tool that runs a shell command of the user.
const BASH: &str = "Bash";

impl TerminalHost {
    /// Returns the user's input as messages for the model; a shell command includes its call.
    async fn messages_of(&self, input: &UserInput) -> Result<Vec<Message>, AppError> {
        let mut messages = self.input_messages(input).await?;
        if let (Some(shown), Some(first)) = (input.shown(), messages.first_mut()) {
            *first = first.clone().shown_as(shown);
        }
        Ok(messages)
    }

    /// Keeps the input as a draft that was sent, so that it is neither lost nor restored beside its message, whenever the
    /// process dies. Returns the id of that message.
    async fn keep_as_sent(
        &self,
        thread: &ThreadId,
        input: &UserInput,
        messages: &[Message],
    ) -> Option<MessageId> {
        let first = messages.first()?.id.clone();
        let is_new = matches!(self.app.store.message_count(thread).await, Ok(0));
        let draft = input.draft.clone().unwrap_or_else(|| Draft::from(input.written().as_str()));
        let (drafts, thread, message) = (self.drafts.clone(), thread.clone(), first.clone());
        let _ = tokio::task::spawn_blocking(move || drafts.send(&thread, is_new, draft, &message)).await;
        Some(first)
    }

    async fn input_messages(&self, input: &UserInput) -> Result<Vec<Message>, AppError> {
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

    /// Returns the user's input as a message for the model.
    async fn message_of(&self, input: &UserInput) -> Result<Message, AppError> {
        let text = input.written();
        let written = WrittenMessage {
            text: &text,
            // Long pastes are marks there.
            typed: input.shown().unwrap_or(&text),
            attached: input.images.iter().cloned().map(ContentBlock::StoredImage).collect(),
            symbols: Arc::clone(&self.symbols),
        };
        compose::message(&self.app, written).await
    }
}

impl ThreadHost for TerminalHost {
    fn open_thread(&self, id: Option<ThreadId>) -> HostFuture<'_, OpenedThread> {
        Box::pin(async move {
            let now = self.app.clock.now_ms();
            let Some(id) = id else {
                let given = self.cli.session_id.map(|id| ThreadId::from(id.to_string()));
                let id = match given {
                    // The id of the command line is for the first conversation.
                    Some(id) if self.app.store.load_thread(&id).await?.is_none() => id,
                    Some(_) | None => ThreadId::fresh(),
                };
                let thread = ThreadRecord {
                    id,
                    title: String::new(),
                    cwd: self.app.foundation.workspace.cwd.clone(),
                    created_at: now,
                    updated_at: now,
                };
                self.viewer.show(&thread.id, 0, false);
                return Ok(OpenedThread {
                    thread,
                    messages: Vec::new(),
                    earlier: None,
                    run: None,
                    waiting: Vec::new(),
                    interrupted: Vec::new(),
                    driver: ThreadOwner::Nobody,
                    queued: Vec::new(),
                    children: Vec::new(),
                    commands: Vec::new(),
                    summaries: Vec::new(),
                });
            };
            self.viewer.ready_sandbox();
            let thread_view = self
                .app
                .store
                .thread_view_at(&id, MessageSelection::Last(OPENED))
                .await?
                .ok_or_else(|| format!("unknown thread {id}"))?;
            if !self.viewer.shows(&id)
                && let Some(notice) = self.app.continue_with_its_agent(&id).await?
            {
                drop(self.events.send(HostEvent::Warned(notice)));
            }
            let driver = self.viewer.driver_of(&thread_view);
            let is_left = driver == ThreadOwner::Nobody
                && thread_view.run.as_ref().is_some_and(|run| run.status != RunStatus::Done);
            self.viewer.show(&id, thread_view.messages.last().map_or(0, |stored| stored.seq), is_left);
            let before = thread_view.total.saturating_sub(thread_view.messages.len() as u64);
            let earlier = match before {
                0 => None,
                messages => {
                    let (usage, spent) = self.app.store.usage_by_model(&id).await?;
                    Some(Earlier { messages, usage, spent })
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
            } = thread_view;
            let mut messages = with_open_results(messages, run.as_ref());
            for stored in messages.iter_mut().filter(|stored| stored.message.role == Role::Tool) {
                images::name(&self.app, &mut stored.message.content).await;
            }
            // While a driver is active its calls run; otherwise their outcome is unknown.
            let interrupted = if driver == ThreadOwner::Nobody { running } else { Vec::new() };
            let queued = rows_of(&queued);
            self.viewer.resume_tasks(&id);
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
        })
    }

    fn earlier<'a>(&'a self, thread: &'a ThreadId, seq: u64) -> HostFuture<'a, Vec<StoredMessage>> {
        Box::pin(async move { Ok(self.app.store.messages_before(thread, seq, OPENED).await?) })
    }

    fn place<'a>(&'a self, thread: &'a ThreadId, message: &'a str) -> HostFuture<'a, Option<u64>> {
        Box::pin(async move { Ok(self.app.store.place_of_message(thread, message).await?) })
    }

    fn start<'a>(&'a self, thread: &'a ThreadId, input: UserInput) -> HostFuture<'a, ()> {
        Box::pin(async move {
            let messages = self.messages_of(&input).await?;
            let request = RunRequest::new(thread.clone(), messages.clone());
            // Checked before the run starts, so that the draft is restored if the message does not fit.
            self.app.runtime.fits(&request)?;
            self.app.runtime.retry_paused_models();
            let first = self.keep_as_sent(thread, &input, &messages).await;
            let drafts = self.drafts.clone();
            let events = self.events.clone();
            let (app, viewer, own) = (Arc::clone(&self.app), self.viewer.clone(), thread.clone());
            let after = move |ended: Ended| -> BoxFuture<'static, Result<(), RuntimeError>> {
                Box::pin(async move {
                    if ended == Ended::Elsewhere {
                        // Another process became active at the same moment. The message must not be lost.
                        viewer.defer(&own, messages, input).await?;
                    }
                    if ended.is_run() {
                        if let Some(first) = first {
                            let own = own.clone();
                            let _ = tokio::task::spawn_blocking(move || drafts.stored(&own, &first)).await;
                        }
                        crate::terminal::titles::begin(&app, &own, move |event| drop(events.send(event)));
                    }
                    Ok(())
                })
            };
            self.viewer.start(thread, request, Box::new(after));
            Ok(())
        })
    }

    fn enqueue<'a>(&'a self, thread: &'a ThreadId, input: UserInput) -> HostFuture<'a, QueuedRow> {
        Box::pin(async move {
            let messages = self.messages_of(&input).await?;
            let first = self.keep_as_sent(thread, &input, &messages).await;
            let queued = self.app.runtime.enqueue(thread, messages).await?;
            if let Some(first) = first {
                let (drafts, own) = (self.drafts.clone(), thread.clone());
                let _ = tokio::task::spawn_blocking(move || drafts.stored(&own, &first)).await;
            }
            // The process that was active when the message was sent may already have read the queue for the last
            // time.
            let run = self.app.store.latest_run(thread).await?;
            if run.is_none_or(|run| run.status == RunStatus::Done) {
                self.viewer.start_queued(thread);
            }
            Ok(row_of(&queued))
        })
    }

    fn unqueue(&self, id: QueueId) -> HostFuture<'_, bool> {
        Box::pin(async move { Ok(self.app.runtime.unqueue(id).await?) })
    }

    fn cancel(&self, thread: &ThreadId) {
        self.viewer.interrupt(thread);
    }

    fn to_background(&self, thread: &ThreadId) -> bool {
        self.app.runtime.move_to_background(thread)
    }

    fn take_over<'a>(&'a self, thread: &'a ThreadId, id: &'a str) -> HostFuture<'a, ()> {
        Box::pin(async move {
            let terminal = match self.app.runtime.terminal(thread, id) {
                Ok(terminal) => terminal,
                Err(error) => {
                    return Err(tasks::kept_elsewhere(&self.app, thread, id)
                        .await?
                        .unwrap_or_else(|| error.into()));
                }
            };
            Ok(take_over::take_over(terminal.as_ref(), id).await?)
        })
    }

    fn threads(&self) -> HostFuture<'_, Vec<ThreadSummary>> {
        Box::pin(async move { Ok(self.app.store.threads_page(None, 0, None).await?) })
    }
}

/// Returns the stored messages, followed by the results of an open step that are not in the conversation yet.
pub(crate) fn with_open_results(
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
