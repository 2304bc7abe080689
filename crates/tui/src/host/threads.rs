//! Conversations: opening and reading them, saying something in one, and what runs in it.

use super::super::event_loop::Performer;
use super::super::msg::Msg;
use super::{HostFuture, words};
use crate::composer::paste::Draft;
use aye_core::contract::child::TaskRecord;
use aye_core::contract::command::CommandRecord;
use aye_core::contract::ids::ThreadId;
use aye_core::contract::image::ImageRef;
use aye_core::contract::inference::{ModelUsage, TokenUsage};
use aye_core::contract::record::{
    OpenIntent, QueueId, RunRecord, StoredMessage, SuspensionRecord, ThreadRecord, ThreadSummary,
};
use aye_core::contract::summary::SummaryRecord;

/// A conversation that can be continued.
#[derive(Clone, Debug, PartialEq)]
pub struct LastThread {
    pub id: ThreadId,
    pub title: String,
    /// What became of its last run, in a word; empty when it is done.
    pub state: String,
    /// When it last changed, in Unix milliseconds.
    pub at: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct UserInput {
    /// The text. With a skill, the text after its name.
    pub text: String,
    /// Pictures, each with its mark in the words.
    pub images: Vec<ImageRef>,
    /// The content of the composer, if the text includes long pastes.
    pub draft: Option<Draft>,
    /// The skill called by `/name`.
    pub skill: Option<String>,
    /// Set if the text is a command line that the user runs themselves.
    pub shell: Option<Shell>,
    /// It is read while the model works, after the calls that run.
    pub steers: bool,
}

impl UserInput {
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Returns the input as written, with the skill's name before it.
    pub fn written(&self) -> String {
        match (&self.skill, self.shell) {
            (Some(skill), _) => format!("/{skill} {}", self.text).trim_end().to_owned(),
            (None, Some(shell)) => format!("{}{}", shell.mark(), self.text),
            (None, None) => self.text.clone(),
        }
    }

    /// Returns the text with a mark in place of each long paste; `None` if there was no long paste.
    pub fn shown(&self) -> Option<&str> {
        self.draft.as_ref().map(|draft| draft.text.as_str())
    }
}

/// The audience for the output of the user's own command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shell {
    /// The model too: `!`.
    Shown,
    /// The user only: `!!`.
    Hidden,
}

impl Shell {
    /// Returns the prefix of the command line.
    pub fn mark(self) -> &'static str {
        match self {
            Shell::Shown => "!",
            Shell::Hidden => "!!",
        }
    }

    /// The command line in what was written, when it is one.
    pub fn of(written: &str) -> Option<(Shell, &str)> {
        let written = written.trim();
        if let Some(command) = written.strip_prefix("!!") {
            return Some((Shell::Hidden, command.trim_start()));
        }
        Some((Shell::Shown, written.strip_prefix('!')?.trim_start()))
    }
}

/// A conversation as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenedThread {
    pub thread: ThreadRecord,
    /// Its last messages, in order.
    pub messages: Vec<StoredMessage>,
    /// The messages before those; [`ThreadHost::earlier`] returns them.
    pub earlier: Option<Earlier>,
    pub run: Option<RunRecord>,
    /// Questions that are open, oldest first.
    pub waiting: Vec<SuspensionRecord>,
    /// Calls that were started and whose outcome is unknown, with their output so far.
    pub interrupted: Vec<OpenIntent>,
    /// The owner of its active run.
    pub driver: ThreadOwner,
    /// The messages that start runs once the conversation is free.
    pub queued: Vec<QueuedRow>,
    /// The agents below it that work or wait, oldest first.
    pub children: Vec<TaskRecord>,
    /// The commands that run in the background, those of the agents below it too, oldest first.
    pub commands: Vec<CommandRecord>,
    /// Summaries that replace older messages, oldest first.
    pub summaries: Vec<SummaryRecord>,
}

/// The part of a conversation that only the store has.
#[derive(Clone, Debug, PartialEq)]
pub struct Earlier {
    /// The number of messages.
    pub messages: u64,
    /// Tokens of the whole conversation.
    pub usage: TokenUsage,
    /// The same for each model that answered.
    pub spent: Vec<ModelUsage>,
}

/// Who is awake on a conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThreadOwner {
    #[default]
    Nobody,
    /// This process: its events report what happens.
    Own,
    /// Another process, by its number.
    Other(u32),
}

/// A message that starts a run once its conversation is free.
#[derive(Clone, Debug, PartialEq)]
pub struct QueuedRow {
    pub id: QueueId,
    pub text: String,
    /// The text with a mark in place of each long paste, if there is one.
    pub shown: Option<String>,
    /// Pictures that came with them.
    pub images: Vec<ImageRef>,
    /// Its conditions besides its turn; empty if there are none.
    pub note: String,
    /// Whether an active run reads it after the calls that run.
    pub steers: bool,
    /// Whether this reports the end of a background task instead of being a user's message.
    pub is_report: bool,
}

/// The changes of a displayed conversation, read from the store. All of them are committed.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadSync {
    pub thread: ThreadRecord,
    /// The owner of its active run.
    pub driver: ThreadOwner,
    /// Whether the events of this process report the rest: then only `waiting` and `queued` count.
    pub is_part: bool,
    /// Messages that were not reported before, in order.
    pub messages: Vec<StoredMessage>,
    /// Results of the open step, which are no messages yet.
    pub results: Vec<StoredMessage>,
    pub run: Option<RunRecord>,
    /// Questions that are open, oldest first.
    pub waiting: Vec<SuspensionRecord>,
    /// Calls that were started and have no outcome yet.
    pub running: Vec<OpenIntent>,
    /// The messages that start runs once the conversation is free.
    pub queued: Vec<QueuedRow>,
    /// The agents below it that work or wait, oldest first.
    pub children: Vec<TaskRecord>,
    /// The commands that run in the background, those of the agents below it too, oldest first.
    pub commands: Vec<CommandRecord>,
    /// Summaries that replace older messages, oldest first.
    pub summaries: Vec<SummaryRecord>,
}

/// The form of an exported conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportFormat {
    Markdown,
    /// For programs: everything that is stored.
    Json,
    /// For readers: one file for a browser, without scripts.
    Html,
}

impl ExportFormat {
    /// The format of that name.
    pub fn parse(name: &str) -> Option<ExportFormat> {
        match name {
            "md" | "markdown" => Some(ExportFormat::Markdown),
            "json" => Some(ExportFormat::Json),
            "html" => Some(ExportFormat::Html),
            _ => None,
        }
    }
}

/// Conversations, as the program keeps them.
pub trait ThreadHost: Send + Sync {
    /// Opens a conversation, or starts a new one, and resumes what an earlier process left unfinished in it.
    /// Events of the conversation that happen after the answer was prepared count, even if they arrive before
    /// it.
    fn open_thread(&self, id: Option<ThreadId>) -> HostFuture<'_, OpenedThread>;

    /// Messages of a conversation before that place, in order, as many as are good to hold at once.
    fn earlier<'a>(&'a self, thread: &'a ThreadId, seq: u64) -> HostFuture<'a, Vec<StoredMessage>>;

    /// Returns the position of one of the latest messages of a conversation, by its id.
    fn place<'a>(&'a self, thread: &'a ThreadId, message: &'a str) -> HostFuture<'a, Option<u64>>;

    /// Says something in a conversation; open questions of it are superseded. Returns when the message was accepted;
    /// what follows comes as events.
    fn start<'a>(&'a self, thread: &'a ThreadId, input: UserInput) -> HostFuture<'a, ()>;

    /// Queues a message after what the conversation does or waits for now. The message is durable when this
    /// returns; it starts its run automatically, in whichever process is active then.
    fn enqueue<'a>(&'a self, thread: &'a ThreadId, input: UserInput) -> HostFuture<'a, QueuedRow>;

    /// Takes a queued message back. `false`: it is gone already.
    fn unqueue(&self, id: QueueId) -> HostFuture<'_, bool>;

    /// Stops what runs or waits in a conversation.
    fn cancel(&self, thread: &ThreadId);

    /// Moves the running commands of a conversation to the background. Returns `false` if none run here.
    fn to_background(&self, thread: &ThreadId) -> bool;

    /// Connects the user to the terminal of a background command of a conversation, until the user returns or
    /// the command ends. The command has the terminal in the meantime; dropping the future ends the
    /// connection.
    fn take_over<'a>(&'a self, thread: &'a ThreadId, id: &'a str) -> HostFuture<'a, ()>;

    /// All conversations, newest first.
    fn threads(&self) -> HostFuture<'_, Vec<ThreadSummary>>;
}

/// Something is to be done with a conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum ThreadCmd {
    /// Open a conversation, or start a new one.
    Open(Option<ThreadId>),
    /// Ask for older messages of the conversation, before that place.
    Earlier(ThreadId, u64),
    /// Request the position in the store of the message with that id.
    Place(ThreadId, String),
    Start(ThreadId, UserInput),
    /// Queue a message after what the conversation does now.
    Enqueue(ThreadId, UserInput),
    /// Take queued messages back.
    Unqueue(Vec<QueueId>),
    /// Stop what runs or waits.
    Cancel(ThreadId),
    /// Move the running commands to the background.
    ToBackground(ThreadId),
    /// Ask for the list of conversations.
    List,
}

/// Something happened to a conversation. Errors are sentences for the person.
#[derive(Clone, Debug)]
pub enum ThreadMsg {
    /// It was opened, or could not be.
    Opened(Result<Box<OpenedThread>, String>),
    /// The last conversation of this folder.
    LastHere(LastThread),
    /// Older messages of it, as they were asked for.
    Earlier(ThreadId, Result<Vec<StoredMessage>, String>),
    /// Where a message of it stands in the store, as it was asked for.
    Placed(ThreadId, String, Result<Option<u64>, String>),
    /// A message was accepted, or not: then it is handed back.
    Started(Result<(), (String, UserInput)>),
    /// A message was queued, or not.
    Enqueued(UserInput, Result<QueuedRow, String>),
    /// Queued messages that were removed, and those that were already gone.
    Unqueued {
        /// Removed.
        back: Vec<QueueId>,
        gone: Vec<QueueId>,
    },
    /// The list of conversations.
    Listed(Result<Vec<ThreadSummary>, String>),
    /// Other processes did something in it.
    Synced(Box<ThreadSync>),
    /// A queued message starts a run in this process.
    Began(ThreadId, QueuedRow),
    /// A message was queued instead of starting a run.
    Deferred(ThreadId, QueuedRow, UserInput),
    /// Another process took it over.
    Lost(ThreadId),
}

impl ThreadCmd {
    pub(crate) fn perform(self, performer: &mut Performer) {
        let (host, send) = performer.both();
        match self {
            Self::Open(thread) => performer.spawn(async move {
                let opened = host.open_thread(thread).await.map(Box::new);
                send.info(host.as_ref());
                send.answer(ThreadMsg::Opened(words(opened)));
            }),
            Self::Earlier(thread, seq) => performer.spawn(async move {
                let messages = words(host.earlier(&thread, seq).await);
                send.answer(ThreadMsg::Earlier(thread, messages));
            }),
            Self::Place(thread, message) => performer.spawn(async move {
                let place = words(host.place(&thread, &message).await);
                send.answer(ThreadMsg::Placed(thread, message, place));
            }),
            Self::Start(thread, input) => performer.spawn(async move {
                let started = words(host.start(&thread, input.clone()).await);
                send.answer(ThreadMsg::Started(started.map_err(|error| (error, input))));
            }),
            Self::Enqueue(thread, input) => performer.spawn(async move {
                let row = words(host.enqueue(&thread, input.clone()).await);
                send.answer(ThreadMsg::Enqueued(input, row));
            }),
            Self::Unqueue(ids) => performer.spawn(async move {
                let (mut back, mut gone) = (Vec::new(), Vec::new());
                for id in ids {
                    match host.unqueue(id).await {
                        Ok(true) => back.push(id),
                        Ok(false) => gone.push(id),
                        Err(error) => send.failed(&error),
                    }
                }
                send.answer(ThreadMsg::Unqueued { back, gone });
            }),
            Self::Cancel(thread) => host.cancel(&thread),
            Self::ToBackground(thread) => {
                if !host.to_background(&thread) {
                    send.answer(Msg::Failed("the command cannot be moved to the background".to_owned()));
                }
            }
            Self::List => performer.spawn(async move {
                send.answer(ThreadMsg::Listed(words(host.threads().await)));
            }),
        }
    }
}
