//! Background commands: programs that outlive the call that started them. Each belongs to its conversation
//! and is kept by the process that started it; its output and its end are stored.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::output::{CallSink, UnwrittenOutput};
use super::request::RuntimeError;
use super::{AgentRuntime, RuntimeCore};
use aye_core::contract::command::{
    BackgroundCommand, BackgroundHost, CommandEnd, CommandNews, CommandRecord, CommandReport, CommandTerminal,
};
use aye_core::contract::ids::ThreadId;
use aye_core::contract::presence::Liveness;
use aye_core::contract::record::{AttemptId, Owner};
use aye_core::contract::storage::{ChangeFeed, ChangeKind, StoreError};
use aye_core::contract::tool::ToolError;

/// Pieces of output that are taken together.
const TOGETHER: usize = 64;
/// Time between two writes of a command's output, and the same once much was written.
const WRITE_GAP: Duration = Duration::from_millis(100);
const LONG_WRITE_GAP: Duration = Duration::from_millis(200);
/// After this many bytes it is much.
const MUCH: usize = 1 << 20;

/// The commands that this process keeps, by number.
#[derive(Default)]
pub(super) struct Commands {
    running: Mutex<HashMap<u64, Arc<RunningCommand>>>,
}

struct RunningCommand {
    thread: ThreadId,
    stop: CancellationToken,
    terminal: Option<Arc<dyn CommandTerminal>>,
    /// The destination of the report about the command's end.
    report: Mutex<CommandReport>,
    over: watch::Sender<bool>,
}

impl RunningCommand {
    /// Asks it to end, and waits until that is written down.
    async fn end(&self, report: CommandReport) {
        *self.report.lock().expect("no panic while it is held") = report;
        self.stop.cancel();
        // Its sender is this very value.
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }
}

impl Commands {
    fn get(&self, number: u64) -> Option<Arc<RunningCommand>> {
        self.running.lock().expect("no panic while commands are held").get(&number).cloned()
    }

    /// Ends the commands of a thread and of those below it, and gives their numbers.
    pub(super) async fn end_below(&self, thread: &ThreadId, report: CommandReport) -> Vec<u64> {
        let below: Vec<_> = {
            let running = self.running.lock().expect("no panic while commands are held");
            let own = running.iter().filter(|(_, kept)| kept.thread.is_at_or_below(thread));
            own.map(|(number, kept)| (*number, Arc::clone(kept))).collect()
        };
        let end = |(number, kept): (u64, Arc<RunningCommand>)| async move {
            kept.end(report).await;
            number
        };
        futures::future::join_all(below.into_iter().map(end)).await
    }
}

/// The background as one call has it.
pub(super) struct CallBackground {
    pub(super) shared: Arc<RuntimeCore>,
    pub(super) thread: ThreadId,
    pub(super) agent: String,
    pub(super) attempt: AttemptId,
    pub(super) sink: Option<Arc<CallSink>>,
    /// Changes when the user moves what runs to the background.
    pub(super) moves: watch::Sender<u64>,
}

fn failed(error: &StoreError) -> ToolError {
    ToolError::ExecutionFailed(error.to_string())
}

impl CallBackground {
    fn number(id: &str) -> Result<u64, ToolError> {
        CommandRecord::number_of(id).ok_or_else(|| Self::unknown(id))
    }

    /// Returns the current record of a command of this conversation.
    async fn own(&self, id: &str) -> Result<CommandRecord, ToolError> {
        let found = self.shared.store.command(Self::number(id)?).await.map_err(|error| failed(&error))?;
        let own = found.filter(|record| record.thread_id == self.thread).ok_or_else(|| Self::unknown(id))?;
        Ok(self.shared.as_it_stands(own))
    }

    fn unknown(id: &str) -> ToolError {
        ToolError::NotFound(format!("this conversation has no background command `{id}`"))
    }
}

#[async_trait]
impl BackgroundHost for CallBackground {
    async fn adopt(&self, command: BackgroundCommand) -> Result<String, ToolError> {
        let shared = &self.shared;
        if let Some(sink) = &self.sink {
            sink.detach().await;
        }
        let (owner, now) = (shared.owner.clone(), shared.clock.now_ms());
        let line = command.command.clone();
        let begun = shared.store.begin_command(&self.attempt, self.agent.clone(), line, owner, now).await;
        let record = begun.map_err(|error| failed(&error))?;
        let kept = Arc::new(RunningCommand {
            thread: self.thread.clone(),
            stop: command.stop.clone(),
            terminal: command.terminal.clone(),
            report: Mutex::new(CommandReport::Queued),
            over: watch::Sender::new(false),
        });
        let mut running = shared.commands.running.lock().expect("no panic while commands are held");
        running.insert(record.number, Arc::clone(&kept));
        drop(running);
        tokio::spawn(keep(Arc::clone(shared), record.number, kept, command));
        shared.tasks.changed();
        Ok(record.id())
    }

    async fn moved(&self) {
        // The sender is this very value.
        let _ = self.moves.subscribe().changed().await;
    }

    async fn read_new_output(&self, id: &str) -> Result<CommandNews, ToolError> {
        let output = self.shared.store.read_command_output(&self.thread, Self::number(id)?).await;
        let mut news = output.map_err(|error| failed(&error))?.ok_or_else(|| Self::unknown(id))?;
        news.record = self.shared.as_it_stands(news.record);
        Ok(news)
    }

    async fn write(&self, id: &str, keys: &[u8]) -> Result<CommandRecord, ToolError> {
        let record = self.own(id).await?;
        let refuse = |why: String| Err(ToolError::ExecutionFailed(format!("{why}; nothing was typed")));
        if let Some(end) = &record.end {
            return refuse(format!("{} {}", record.id(), end.words()));
        }
        let Some(kept) = self.shared.commands.get(record.number) else {
            return refuse(format!("{} runs in another aye process", record.id()));
        };
        match &kept.terminal {
            None => refuse(format!("{} runs without a terminal; start it with `tty: true`", record.id())),
            Some(terminal) if terminal.write(keys) => Ok(record),
            Some(_) => refuse(format!("{} does not read its input", record.id())),
        }
    }

    async fn stop(&self, id: &str) -> Result<CommandRecord, ToolError> {
        let number = self.own(id).await?.number;
        let ended = self.shared.end_command(number, CommandReport::Known).await;
        ended.map_err(|error| failed(&error))?.ok_or_else(|| Self::unknown(id))
    }
}

/// Stays with a command until it is over.
async fn keep(shared: Arc<RuntimeCore>, number: u64, kept: Arc<RunningCommand>, command: BackgroundCommand) {
    let BackgroundCommand { output, mut end, stop, command: _, terminal: _ } = command;
    let mut output = output.ready_chunks(TOGETHER);
    let mut wanted = StopListener { changes: shared.store.watch().ok(), is_unread: true };
    let (mut ended, mut is_open) = (None, true);
    // Writing must not hold up reading: the command would wait for the disk.
    let mut unwritten = UnwrittenOutput::default();
    let mut writing: Option<BoxFuture<'_, Result<bool, StoreError>>> = None;
    let (mut written, mut write_at) = (0, Instant::now());
    while ended.is_none() || is_open || writing.is_some() || !unwritten.is_empty() {
        if writing.is_none() && !unwritten.is_empty() && (!is_open || write_at <= Instant::now()) {
            let chunk = unwritten.take();
            written += chunk.len();
            writing = Some(shared.store.append_command_output(number, chunk));
        }
        let is_due = writing.is_none() && !unwritten.is_empty();
        let write = async {
            match &mut writing {
                Some(writing) => writing.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            how = &mut end, if ended.is_none() => ended = Some(how),
            pieces = output.next(), if is_open => match pieces {
                None => is_open = false,
                Some(pieces) => pieces.iter().for_each(|piece| unwritten.push(piece)),
            },
            result = write => {
                writing = None;
                write_at = Instant::now() + if written > MUCH { LONG_WRITE_GAP } else { WRITE_GAP };
                match result {
                    Ok(true) => {}
                    // Its conversation was deleted.
                    Ok(false) => stop.cancel(),
                    Err(error) => tracing::warn!(number, %error, "output of a background command is lost"),
                }
            }
            () = sleep_until(write_at), if is_due => {}
            () = wanted.wait(&shared, number, &kept.thread), if !stop.is_cancelled() => stop.cancel(),
        }
    }
    let report = *kept.report.lock().expect("no panic while it is held");
    let (end, now) = (ended.unwrap_or(CommandEnd::Unknown), shared.clock.now_ms());
    if let Err(error) = shared.store.end_command(number, end, report, now).await {
        tracing::error!(number, %error, "the end of a background command cannot be stored");
    }
    shared.commands.running.lock().expect("no panic while commands are held").remove(&number);
    kept.over.send_replace(true);
    shared.tasks.changed();
}

/// Receives requests of other processes to end a command. Dropping a wait loses nothing.
struct StopListener {
    changes: Option<Box<dyn ChangeFeed>>,
    /// Whether a change has not been read yet.
    is_unread: bool,
}

impl StopListener {
    /// Ends when another process wants the command to end, or its conversation is gone.
    async fn wait(&mut self, shared: &RuntimeCore, number: u64, thread: &ThreadId) {
        let Some(changes) = &mut self.changes else { return std::future::pending().await };
        loop {
            if self.is_unread {
                match shared.store.command(number).await {
                    Ok(Some(record)) if !record.stop => {}
                    Ok(_) => return,
                    Err(error) => tracing::warn!(number, %error, "a background command cannot be read"),
                }
                self.is_unread = false;
            }
            let change = changes.next().await;
            let is_ours = matches!(change.kind, ChangeKind::Decision | ChangeKind::Anything);
            self.is_unread = is_ours && change.concerns(thread);
        }
    }
}

impl RuntimeCore {
    /// Whether the process that watches a command is alive.
    fn command_liveness(&self, owner: &Owner) -> Liveness {
        self.liveness(owner).of_watcher(owner, &self.owner)
    }

    /// A command whose process is dead has ended with it.
    pub(super) fn as_it_stands(&self, mut record: CommandRecord) -> CommandRecord {
        let is_kept = record.owner.token != self.owner.token || self.commands.get(record.number).is_some();
        if record.end.is_none() && !(is_kept && self.command_liveness(&record.owner) != Liveness::No) {
            record.end = Some(CommandEnd::Unknown);
        }
        record
    }

    /// Ends a command, in whichever process it runs, and returns its record afterwards; `None` if there is no
    /// such command.
    async fn end_command(
        &self,
        number: u64,
        report: CommandReport,
    ) -> Result<Option<CommandRecord>, StoreError> {
        if let Some(kept) = self.commands.get(number) {
            kept.end(report).await;
        } else if let Some(record) = self.store.command(number).await?
            && self.as_it_stands(record.clone()).end.is_none()
        {
            let mut changes = self.store.watch()?;
            self.store.stop_command(number).await?;
            let ended = async {
                while let Some(record) = self.store.command(number).await?
                    && self.as_it_stands(record).end.is_none()
                {
                    changes.next_or_check().await;
                }
                Ok::<(), StoreError>(())
            };
            if self.command_liveness(&record.owner) == Liveness::Unknown {
                // It may be dead, and then nobody ever reads that the command must end.
                tokio::time::timeout(3 * self.lease, ended).await.unwrap_or(Ok(()))?;
            } else {
                ended.await?;
            }
        }
        Ok(self.store.command(number).await?.map(|record| self.as_it_stands(record)))
    }
}

impl AgentRuntime {
    /// The commands in the background of a thread, and of those below it, oldest first.
    ///
    /// # Errors
    /// [`RuntimeError::Store`].
    pub async fn commands(&self, thread: &ThreadId) -> Result<Vec<CommandRecord>, RuntimeError> {
        let shared = &self.inner.shared;
        let found = shared.store.commands(thread).await?;
        Ok(found.into_iter().map(|record| shared.as_it_stands(record)).collect())
    }

    /// Returns the current record of a command: one whose process is dead has ended.
    pub fn as_it_stands(&self, record: CommandRecord) -> CommandRecord {
        self.inner.shared.as_it_stands(record)
    }

    /// Ends a background command, in whichever process it runs, and reports the end to its conversation.
    /// Returns `false` if there was nothing to end.
    ///
    /// # Errors
    /// [`RuntimeError::Store`].
    pub async fn stop_command(&self, number: u64) -> Result<bool, RuntimeError> {
        let shared = &self.inner.shared;
        let found = shared.store.command(number).await?;
        if found.is_none_or(|record| shared.as_it_stands(record).end.is_some()) {
            return Ok(false);
        }
        let ended = shared.end_command(number, CommandReport::Queued).await?;
        match ended.filter(|record| record.end.is_none()) {
            None => Ok(true),
            Some(record) => Err(RuntimeError::Store(format!(
                "{} has not stopped {} yet, and nobody can tell whether it is alive",
                record.owner.name_for(&shared.owner),
                record.id()
            ))),
        }
    }

    /// Ends the commands that this process keeps for a thread, and for those below it. The next run of each
    /// thread receives a report. Returns the ended commands.
    ///
    /// # Errors
    /// [`RuntimeError::Store`].
    pub async fn end_commands(&self, thread: &ThreadId) -> Result<Vec<CommandRecord>, RuntimeError> {
        let shared = &self.inner.shared;
        let below = shared.commands.end_below(thread, CommandReport::NextRun).await;
        let mut ended = Vec::new();
        for number in below {
            ended.extend(shared.store.command(number).await?);
        }
        ended.sort_by_key(|record| record.number);
        Ok(ended)
    }

    /// The terminal of a command that this process keeps for a thread, or for one below it.
    ///
    /// # Errors
    /// [`NoTerminal`].
    pub fn terminal(&self, thread: &ThreadId, id: &str) -> Result<Arc<dyn CommandTerminal>, NoTerminal> {
        let number = CommandRecord::number_of(id);
        let kept = number.and_then(|number| self.inner.shared.commands.get(number));
        let kept = kept.filter(|kept| kept.thread.is_at_or_below(thread));
        let kept = kept.ok_or_else(|| NoTerminal::NoCommand(id.to_owned()))?;
        kept.terminal.clone().ok_or_else(|| NoTerminal::Without(id.to_owned()))
    }

    /// Moves the commands that run in the foreground of a thread to the background. Returns `false` if there
    /// are none in this process.
    pub fn move_to_background(&self, thread: &ThreadId) -> bool {
        self.inner.live.move_to_background(thread)
    }
}

/// Why the terminal of a command cannot be shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoTerminal {
    /// The conversation has no such command in this process.
    #[error("no command `{0}` of this conversation runs here")]
    NoCommand(String),
    /// The command was started without one.
    #[error("{0} runs without a terminal")]
    Without(String),
}

impl RuntimeCore {
    /// Queues what happened to commands of the thread that its next run has to know.
    pub(super) async fn report_commands(&self, thread: &ThreadId) -> Result<(), StoreError> {
        self.store.report_commands(thread, self.clock.now_ms()).await
    }
}
