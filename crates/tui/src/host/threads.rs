//! Conversations: opening and reading them, saying something in one, and what runs in it.

use async_trait::async_trait;

use super::super::event_loop::Performer;
use super::super::msg::Msg;
use super::words;
use crate::composer::paste::Draft;
use aye_core::contract::child::TaskRecord;
use aye_core::contract::command::CommandRecord;
use aye_core::contract::foreign::ForeignError;
use aye_core::contract::ids::ThreadId;
use aye_core::contract::image::ImageRef;
use aye_core::contract::inference::TokenUsage;
use aye_core::contract::record::{
    OpenIntent, QueueId, RunRecord, StoredMessage, SuspensionRecord, ThreadRecord, ThreadSummary,
};
use aye_core::contract::summary::SummaryRecord;

/// What a person says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UserInput {
    /// The words. With a skill, what was written behind its name.
    pub text: String,
    /// Pictures, each with its mark in the words.
    pub images: Vec<ImageRef>,
    /// What stood in the composer, when long pastes are among the words.
    pub draft: Option<Draft>,
    /// The skill called by `/name`.
    pub skill: Option<String>,
    /// The words are a command line that the person runs themselves.
    pub shell: Option<Shell>,
    /// It is read while the model works, after the calls that run.
    pub steers: bool,
}

impl UserInput {
    /// Words only.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// What was written, with the skill's name before it.
    pub fn written(&self) -> String {
        match (&self.skill, self.shell) {
            (Some(skill), _) => format!("/{skill} {}", self.text).trim_end().to_owned(),
            (None, Some(shell)) => format!("{}{}", shell.mark(), self.text),
            (None, None) => self.text.clone(),
        }
    }

    /// What was written, with a mark in the place of each long paste; `None`: nothing long was pasted.
    pub fn shown(&self) -> Option<&str> {
        self.draft.as_ref().map(|draft| draft.text.as_str())
    }
}

/// Who sees what came of a command line of the person's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shell {
    /// The model too: `!`.
    Shown,
    /// The person only: `!!`.
    Hidden,
}

impl Shell {
    /// What is written before the command line.
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
    /// The conversation.
    pub thread: ThreadRecord,
    /// Its last messages, in order.
    pub messages: Vec<StoredMessage>,
    /// What stands before those; [`ThreadHost::earlier`] gives it.
    pub earlier: Option<Earlier>,
    /// Its latest run.
    pub run: Option<RunRecord>,
    /// Questions that are open, oldest first.
    pub waiting: Vec<SuspensionRecord>,
    /// Calls that were started and whose outcome nobody knows, with what they had printed.
    pub interrupted: Vec<OpenIntent>,
    /// Who is awake on it.
    pub driver: ThreadOwner,
    /// What begins when it is free.
    pub queued: Vec<QueuedRow>,
    /// The agents below it that work or wait, oldest first.
    pub children: Vec<TaskRecord>,
    /// The commands that run in the background, those of the agents below it too, oldest first.
    pub commands: Vec<CommandRecord>,
    /// Summaries that stand for older messages, oldest first.
    pub summaries: Vec<SummaryRecord>,
}

/// The part of a conversation that only the store has.
#[derive(Clone, Debug, PartialEq)]
pub struct Earlier {
    /// How many messages.
    pub messages: u64,
    /// Tokens of the whole conversation.
    pub usage: TokenUsage,
}

/// Who is awake on a conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThreadOwner {
    /// Nobody.
    #[default]
    Nobody,
    /// This process: its events tell what happens.
    Own,
    /// Another process, by its number.
    Other(u32),
}

/// A message that begins when its conversation is free.
#[derive(Clone, Debug, PartialEq)]
pub struct QueuedRow {
    /// Its number.
    pub id: QueueId,
    /// The words.
    pub text: String,
    /// The words with a mark in the place of each long paste, when there is one.
    pub shown: Option<String>,
    /// Pictures that came with them.
    pub images: Vec<ImageRef>,
    /// What it waits for besides its turn; empty when for nothing.
    pub note: String,
    /// A run that is awake reads it after the calls that run.
    pub steers: bool,
}

/// What became of a conversation that is shown, by the store. Whatever it tells was committed.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadSync {
    /// The conversation.
    pub thread: ThreadRecord,
    /// Who is awake on it.
    pub driver: ThreadOwner,
    /// Whether the events of this process tell the rest: then only `waiting` and `queued` count.
    pub is_part: bool,
    /// Messages that were not told before, in order.
    pub messages: Vec<StoredMessage>,
    /// Results of the open step, which are no messages yet.
    pub results: Vec<StoredMessage>,
    /// Its latest run.
    pub run: Option<RunRecord>,
    /// Questions that are open, oldest first.
    pub waiting: Vec<SuspensionRecord>,
    /// Calls that were started and have no outcome yet.
    pub running: Vec<OpenIntent>,
    /// What begins when it is free.
    pub queued: Vec<QueuedRow>,
    /// The agents below it that work or wait, oldest first.
    pub children: Vec<TaskRecord>,
    /// The commands that run in the background, those of the agents below it too, oldest first.
    pub commands: Vec<CommandRecord>,
    /// Summaries that stand for older messages, oldest first.
    pub summaries: Vec<SummaryRecord>,
}

/// The form of an exported conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportFormat {
    /// For people.
    Markdown,
    /// For programs: everything that is stored.
    Json,
    /// For people: one file for a browser, without scripts.
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
#[async_trait]
pub trait ThreadHost: Send + Sync {
    /// Opens a conversation, or begins a new one, and goes on with what an earlier process left unfinished in it.
    /// Events of it that happen after the answer was put together count, also when they arrive before it.
    async fn open_thread(&self, id: Option<ThreadId>) -> Result<OpenedThread, ForeignError>;

    /// Messages of a conversation before that place, in order, as many as are good to hold at once.
    async fn earlier(&self, thread: &ThreadId, seq: u64) -> Result<Vec<StoredMessage>, ForeignError>;

    /// Where one of the latest messages of a conversation stands, by its id.
    async fn place(&self, thread: &ThreadId, message: &str) -> Result<Option<u64>, ForeignError>;

    /// Says something in a conversation; open questions of it are superseded. Returns when the message was accepted;
    /// what follows comes as events.
    async fn start(&self, thread: &ThreadId, input: UserInput) -> Result<(), ForeignError>;

    /// Puts a message behind what the conversation does now, or waits for. It is durable when this returns; it begins
    /// by itself, in whichever process is awake then.
    async fn enqueue(&self, thread: &ThreadId, input: UserInput) -> Result<QueuedRow, ForeignError>;

    /// Takes a queued message back. `false`: it is gone already.
    async fn unqueue(&self, id: QueueId) -> Result<bool, ForeignError>;

    /// Stops what runs or waits in a conversation.
    fn cancel(&self, thread: &ThreadId);

    /// Lets the commands that run for a conversation go on in the background. `false`: there are none here.
    fn to_background(&self, thread: &ThreadId) -> bool;

    /// Gives the person the terminal of a background command of a conversation, until the person returns or the command
    /// ends. The terminal is the command's meanwhile; dropping the future ends that.
    async fn take_over(&self, thread: &ThreadId, id: &str) -> Result<(), ForeignError>;

    /// All conversations, newest first.
    async fn threads(&self) -> Result<Vec<ThreadSummary>, ForeignError>;
}

/// Something is to be done with a conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum ThreadCmd {
    /// Open a conversation, or begin a new one.
    Open(Option<ThreadId>),
    /// Ask for older messages of the conversation, before that place.
    Earlier(ThreadId, u64),
    /// Ask where the message of that id stands in the store.
    Place(ThreadId, String),
    /// Say something.
    Start(ThreadId, UserInput),
    /// Put a message behind what the conversation does.
    Enqueue(ThreadId, UserInput),
    /// Take queued messages back.
    Unqueue(Vec<QueueId>),
    /// Stop what runs or waits.
    Cancel(ThreadId),
    /// Let the commands that run go on in the background.
    ToBackground(ThreadId),
    /// Ask for the list of conversations.
    List,
}

/// Something happened to a conversation. Errors are sentences for the person.
#[derive(Clone, Debug)]
pub enum ThreadMsg {
    /// It was opened, or could not be.
    Opened(Result<Box<OpenedThread>, String>),
    /// Older messages of it, as they were asked for.
    Earlier(ThreadId, Result<Vec<StoredMessage>, String>),
    /// Where a message of it stands in the store, as it was asked for.
    Placed(ThreadId, String, Result<Option<u64>, String>),
    /// A message was accepted, or not: then it is handed back.
    Started(Result<(), (String, UserInput)>),
    /// A message was queued, or not.
    Enqueued(UserInput, Result<QueuedRow, String>),
    /// Queued messages that were taken back, and those that were gone already.
    Unqueued {
        /// Taken back.
        back: Vec<QueueId>,
        /// Gone.
        gone: Vec<QueueId>,
    },
    /// The list of conversations.
    Listed(Result<Vec<ThreadSummary>, String>),
    /// Other processes did something in it.
    Synced(Box<ThreadSync>),
    /// A queued message begins a run of this process.
    Began(ThreadId, QueuedRow),
    /// A message was queued instead of begun.
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
