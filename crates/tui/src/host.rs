//! The terminal's interface to the program behind it. It sends requests through [`Host`] and reads events; it names
//! no runtime, no store and no model.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use super::back::{BackCmd, BackMsg};
use super::composer::paste::Draft;
use super::theme::ThemeRow;
use aye_core::contract::child::TaskRecord;
use aye_core::contract::command::CommandRecord;
use aye_core::contract::event::AgentEvent;
use aye_core::contract::grant::GrantPreview;
use aye_core::contract::ids::{SuspensionId, ThreadId};
use aye_core::contract::image::{Canvas, Drawn, ImageRef, Packed, Pixels};
use aye_core::contract::inference::{ReasoningEffort, TokenUsage};
use aye_core::contract::judgement::Ruling;
pub use aye_core::contract::mode::Mode;
use aye_core::contract::record::{
    DecideOutcome, InboxRow, OpenIntent, QueueId, RunRecord, StoredMessage, SuspensionRecord, ThreadRecord,
    ThreadSummary,
};
use aye_core::contract::summary::SummaryRecord;
use aye_core::contract::suspension::Answer;
use aye_core::contract::tool::FilePreview;

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

/// What is to become a picture of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attach {
    /// The file of that path.
    Path(String),
    /// What is on the clipboard.
    Clipboard,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attached {
    /// A picture that the store keeps now.
    Image(ImageRef),
    /// A text, on the clipboard.
    Text(String),
    /// No such file, or no picture.
    Nothing,
}

/// What is written and not sent, to be kept over the end of the program.
#[derive(Clone, Debug, PartialEq)]
pub struct KeepDraft {
    /// Counts them: an older one does not replace a newer one.
    pub number: u64,
    /// The conversation.
    pub thread: ThreadId,
    /// Nothing was said in it yet: the next new conversation in the folder takes it over.
    pub is_new: bool,
    /// The text.
    pub draft: Draft,
}

/// A conversation as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenedThread {
    /// The conversation.
    pub thread: ThreadRecord,
    /// Its last messages, in order.
    pub messages: Vec<StoredMessage>,
    /// What stands before those; [`Host::earlier`] gives it.
    pub earlier: Option<Earlier>,
    /// Its latest run.
    pub run: Option<RunRecord>,
    /// Questions that are open, oldest first.
    pub waiting: Vec<SuspensionRecord>,
    /// Calls that were started and whose outcome nobody knows, with what they had printed.
    pub interrupted: Vec<OpenIntent>,
    /// Who is awake on it.
    pub driver: Driver,
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
pub enum Driver {
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
    pub driver: Driver,
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

/// A question of any conversation, with what a card needs beside it.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenedQuestion {
    /// The question as it stands now.
    pub record: SuspensionRecord,
    /// What its conversation is called.
    pub title: String,
    /// The root of the project that it was asked in.
    pub project: PathBuf,
    /// The agent that asks, when another one set it to work.
    pub child: Option<String>,
}

/// Something happened behind the terminal without being asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum HostEvent {
    /// A run of this process told something.
    Agent(ThreadId, AgentEvent),
    /// Something may wait, or wait no more, in some conversation.
    InboxChanged,
    /// A word for the person that stays on the screen.
    Note(String),
    /// Other processes did something in the conversation that is shown.
    Synced(Box<ThreadSync>),
    /// A queued message begins a run of this process.
    Began(ThreadId, QueuedRow),
    /// A message could not begin, because another process had just become awake: it is queued instead.
    Deferred(ThreadId, QueuedRow, UserInput),
    /// Another process took the conversation over from this one: what is shown may not be what is stored.
    Lost(ThreadId),
    /// What can be called by its name is this from now on.
    Skills(Vec<SkillRow>),
    /// Servers listed their models.
    Models(Vec<ModelRow>),
    /// This machine does not have a layer of the sandbox: which one, in few words.
    Unsandboxed(String),
    /// Something beside a conversation went wrong; a sentence for the person.
    Warned(String),
}

/// What a person chooses for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The colours.
    Theme,
}

/// A key as it was typed; `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Choice {
    /// Its key in the settings.
    pub fn key(self) -> &'static str {
        match self {
            Choice::Theme => "theme",
        }
    }
}

/// What a million tokens cost, in the currency of the settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Price {
    /// Tokens that go in.
    pub input: f64,
    /// Tokens that come out.
    pub output: f64,
    /// Tokens read from a cache; the input price when `None`.
    pub cache_read: Option<f64>,
}

/// What the status line and the first lines say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostInfo {
    /// The model that answers next.
    pub model: String,
    /// Who serves it.
    pub provider: String,
    /// Whether it is the built-in script.
    pub is_demo: bool,
    /// Tokens that the model can read and write in all.
    pub context_window: Option<u64>,
    /// Its price.
    pub price: Option<Price>,
    /// Where it comes from, such as the variable that is set.
    pub model_why: String,
    /// How hard it thinks, when the user set it.
    pub effort: Option<ReasoningEffort>,
    /// The agent that is talked to, unless it is the built-in one.
    pub agent: Option<String>,
    /// How much is asked.
    pub mode: Mode,
    /// The folder that tools work in.
    pub cwd: PathBuf,
    /// The root of the project: what a grant for the project is tied to.
    pub project: PathBuf,
    /// The person's home, written as `~`.
    pub home: Option<PathBuf>,
    /// The branch of git that is checked out.
    pub branch: Option<String>,
    /// Which instruction files are in use, in few words, such as `AGENTS.md`.
    pub instructions: Option<String>,
    /// The layer of the sandbox that this machine does not have, in few words, as far as it is known.
    pub unsandboxed: Option<String>,
    /// What went wrong at the start and does not stop it.
    pub warnings: Vec<String>,
    /// The version of the program.
    pub version: String,
}

/// A model that can be chosen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelRow {
    /// What [`Host::set_model`] takes.
    pub name: String,
    /// Who serves it, and what else there is to say.
    pub note: String,
    /// Why it cannot be used now, when it cannot.
    pub unusable: Option<String>,
    /// Whether it is the one that answers next.
    pub is_current: bool,
    /// The provider that needs a key first, when one can be stored.
    pub login: Option<String>,
}

/// A skill that can be called by `/name`.
#[derive(Clone, Debug, PartialEq)]
pub struct SkillRow {
    /// The name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// Where it comes from.
    pub origin: String,
}

/// A file or folder of an untrusted folder that would grant or run something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UntrustedRow {
    /// Where it is.
    pub path: PathBuf,
    /// What it would do; may have several lines.
    pub does: String,
}

/// What a program was built anew with.
#[derive(Clone, Debug, PartialEq)]
pub struct Renewal {
    /// What its host says about itself.
    pub info: HostInfo,
    /// What is still not trusted, because it changed in the meantime.
    pub untrusted: Vec<UntrustedRow>,
}

/// Something that can be named behind `@`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MentionRow {
    /// What is written behind the `@`.
    pub label: String,
    /// What it is, when the name does not say so.
    pub detail: String,
}

/// A permission rule in force.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleRow {
    /// What it matches.
    pub pattern: String,
    /// `allow`, `ask` or `deny`.
    pub behavior: String,
    /// Where it comes from.
    pub origin: String,
}

/// A grant of the ledger, in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrantRow {
    /// Its id.
    pub id: String,
    /// What it allows.
    pub pattern: String,
    /// How far.
    pub scope: String,
    /// `in force`, or why it is not.
    pub state: String,
    /// Whether it can be taken back.
    pub holds: bool,
    /// Until when.
    pub end: String,
    /// How often it was used.
    pub uses: String,
    /// When it was given and by whom.
    pub given: String,
    /// The question it was given at.
    pub question: Option<String>,
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

/// Something to read: its lines stand as they are, so that columns stay columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// What it is.
    pub title: String,
    /// The lines.
    pub text: String,
}

/// What the rules and the tool say of an edited call.
#[derive(Clone, Debug, PartialEq)]
pub struct Review {
    /// The verdict of the rules.
    pub ruling: Ruling,
    /// The same in words.
    pub words: String,
    /// What it would do to files.
    pub files: Vec<FilePreview>,
    /// What goes beside the yes, so that it counts for the files as they were shown.
    pub payload: Value,
}

/// The program behind the terminal. Errors are sentences for the person.
#[async_trait]
pub trait Host: Send + Sync + 'static {
    /// Opens a conversation, or begins a new one, and goes on with what an earlier process left unfinished in it.
    /// Events of it that happen after the answer was put together count, also when they arrive before it.
    async fn open_thread(&self, id: Option<ThreadId>) -> Result<OpenedThread, String>;

    /// Messages of a conversation before that place, in order, as many as are good to hold at once.
    async fn earlier(&self, thread: &ThreadId, seq: u64) -> Result<Vec<StoredMessage>, String>;
    /// Where one of the latest messages of a conversation stands, by its id.
    async fn place(&self, thread: &ThreadId, message: &str) -> Result<Option<u64>, String>;

    /// Says something in a conversation; open questions of it are superseded. Returns when the message was accepted;
    /// what follows comes as events.
    async fn start(&self, thread: &ThreadId, input: UserInput) -> Result<(), String>;

    /// Puts a message behind what the conversation does now, or waits for. It is durable when this returns; it begins
    /// by itself, in whichever process is awake then.
    async fn enqueue(&self, thread: &ThreadId, input: UserInput) -> Result<QueuedRow, String>;

    /// Takes a queued message back. `false`: it is gone already.
    async fn unqueue(&self, id: QueueId) -> Result<bool, String>;

    /// A question, whatever became of it.
    async fn question(&self, id: &SuspensionId) -> Result<Option<SuspensionRecord>, String>;

    /// Stores an answer, and the rule that is granted with it; the run then continues, and its events arrive.
    async fn decide(&self, id: &SuspensionId, answer: Answer) -> Result<DecideOutcome, String>;

    /// What a pattern would have allowed of what was done in this project, and why it cannot be granted at the
    /// question when it cannot.
    async fn preview_grant(&self, suspension: &SuspensionId, pattern: &str) -> Result<GrantPreview, String>;

    /// The ledger of grants, those that hold first.
    async fn grants(&self) -> Result<Vec<GrantRow>, String>;

    /// Takes a grant back, everywhere at once. `false`: it was taken back before.
    async fn revoke_grant(&self, id: &str) -> Result<bool, String>;

    /// What the rules and the tool say of an edited call. Nothing is decided by it.
    async fn review(&self, suspension: &SuspensionId, arguments: &Value) -> Result<Review, String>;

    /// Opens a text in the person's editor and gives what it left. The terminal is the editor's meanwhile; dropping the
    /// future ends it.
    async fn edit(&self, text: &str, name: &str) -> Result<String, String>;

    /// Gives the person the terminal of a background command of a conversation, until the person returns or the command
    /// ends. The terminal is the command's meanwhile; dropping the future ends that.
    async fn take_over(&self, thread: &ThreadId, id: &str) -> Result<(), String>;

    /// Stops what runs or waits in a conversation.
    fn cancel(&self, thread: &ThreadId);

    /// Lets the commands that run for a conversation go on in the background. `false`: there are none here.
    fn to_background(&self, thread: &ThreadId) -> bool;

    /// A question of a conversation has ended unanswered: what waits for it goes on.
    fn expired(&self, thread: &ThreadId);

    /// All conversations, newest first.
    async fn threads(&self) -> Result<Vec<ThreadSummary>, String>;

    /// What waits, over all conversations, oldest first.
    async fn inbox(&self) -> Result<Vec<InboxRow>, String>;

    /// How many questions wait in other conversations than this one.
    async fn waiting_elsewhere(&self, here: Option<&ThreadId>) -> Result<u64, String>;

    /// A question of any conversation, with what a card of it needs.
    async fn opened_question(&self, id: &SuspensionId) -> Result<Option<OpenedQuestion>, String>;

    /// What of the folder would grant or run something, and is not used because nobody trusted it.
    fn untrusted(&self) -> Vec<UntrustedRow>;

    /// Trusts what [`Host::untrusted`] lists. It is used once a [`Host::renew`] has read it.
    async fn trust(&self) -> Result<(), String>;

    /// The same program, built again with what the folder grants now, for the conversation that is shown; `None`:
    /// something is still at work here.
    async fn renew(&self) -> Result<Option<Arc<dyn Host>>, String>;

    /// What the status line says. Asked again after every request that may change it.
    fn info(&self) -> HostInfo;

    /// Changes how much is asked, for calls from now on.
    ///
    /// # Errors
    /// A sentence when this machine cannot enforce the mode, which stays as it was.
    fn set_mode(&self, mode: Mode) -> Result<(), String>;

    /// Models that can be chosen, and those that cannot with the reason, as far as they are known; servers are asked in
    /// the background, and what they list comes as [`HostEvent::Models`].
    fn models(&self) -> Vec<ModelRow>;

    /// Sets how hard models think from now on, and in the settings; `None` leaves it to them. A sentence for the user.
    async fn set_effort(&self, effort: Option<ReasoningEffort>) -> Result<String, String>;

    /// The providers that a key can be stored for, with what is known of their keys.
    fn logins(&self) -> Vec<ModelRow>;

    /// Tries a key, stores it, and uses the provider's model when there was none but the demo model.
    async fn log_in(&self, provider: &str, key: Secret) -> Result<String, String>;

    /// Removes a stored key.
    async fn log_out(&self, provider: Option<&str>) -> Result<String, String>;

    /// Chooses the model for messages from now on, and in the settings. A sentence for the user.
    async fn set_model(&self, name: &str) -> Result<String, String>;

    /// Runs the command of the status line with that JSON on its standard input, and gives the line that it wrote.
    async fn status_line(&self, json: String) -> Result<String, String>;

    /// Themes that can be chosen, as this terminal shows them.
    fn themes(&self) -> Vec<ThemeRow>;

    /// Writes a choice into the person's settings, and says which file that is.
    async fn keep(&self, choice: Choice, value: &str) -> Result<PathBuf, String>;

    /// Skills that can be called.
    fn skills(&self) -> Vec<SkillRow>;

    /// Permission rules in force.
    fn permissions(&self) -> Vec<RuleRow>;

    /// What fits what was typed behind `@`, best first: paths relative to the folder, and what else has a name.
    async fn complete_files(&self, query: &str) -> Vec<MentionRow>;

    /// Writes a conversation to a file and says where.
    async fn export(&self, thread: &ThreadId, format: ExportFormat) -> Result<PathBuf, String>;

    /// Reads a picture and keeps its bytes.
    async fn attach(&self, what: Attach) -> Result<Attached, String>;

    /// A kept picture, small enough for a terminal.
    async fn picture(&self, image: &ImageRef) -> Result<Pixels, String>;

    /// A kept picture for a terminal that places pixels.
    async fn packed(&self, image: &ImageRef) -> Result<Packed, String>;

    /// The same for one that draws them where its cursor stands.
    async fn plate(&self, image: &ImageRef, canvas: Canvas) -> Result<Drawn, String>;

    /// The first picture is there: what it did not need can begin.
    async fn shown(&self);

    /// What was said before in all folders, newest first.
    async fn history(&self) -> Result<Vec<String>, String>;

    /// Carries out a command of [`COMMANDS`](super::palette::COMMANDS) that gives a page, with the words behind it.
    async fn page(&self, thread: Option<&ThreadId>, name: &str, words: &str) -> Result<Page, String>;

    /// Keeps what is written and not sent; one with an empty text is forgotten.
    async fn keep_draft(&self, keep: KeepDraft);

    /// What was written in a conversation by a process that is gone, and not sent. For one in which nothing was said yet
    /// also what was written in another such one of the folder.
    async fn draft(&self, thread: &ThreadId, is_new: bool) -> Option<Draft>;

    /// Does something with whole conversations.
    async fn back(&self, cmd: BackCmd) -> BackMsg;

    /// Adds to the history.
    async fn remember(&self, prompt: &str);
}
