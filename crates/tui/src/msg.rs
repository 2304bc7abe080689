//! Messages to the application, and the commands it returns.

use std::path::PathBuf;

use crossterm::event::{KeyEvent, MouseEvent};
use serde_json::Value;

use super::approval::edit::Draft as CallDraft;
use super::back::{BackCmd, BackMsg};
use super::composer::paste::Draft;
use super::graphics::{Question, Reply};
use super::host::{
    Attach, Attached, Choice, ExportFormat, GrantRow, HostInfo, KeepDraft, MentionRow, Mode, ModelRow,
    OpenedQuestion, OpenedThread, Page, QueuedRow, Renewal, Review, RuleRow, Secret, SkillRow, ThreadSync,
    UserInput,
};
use super::theme::{Background, ThemeRow};
use aye_core::contract::event::AgentEvent;
use aye_core::contract::grant::GrantPreview;
use aye_core::contract::ids::{SuspensionId, ThreadId};
use aye_core::contract::image::{Canvas, Drawn, ImageRef, Packed, Pixels};
use aye_core::contract::inference::ReasoningEffort;
use aye_core::contract::record::{
    DecideOutcome, InboxRow, QueueId, StoredMessage, SuspensionRecord, ThreadSummary,
};
use aye_core::contract::suspension::Answer;

/// Something happened.
#[derive(Clone, Debug)]
pub enum Msg {
    /// A key.
    Key(KeyEvent),
    /// A paste, whole.
    Paste(String),
    /// The mouse, on a screen of ours.
    Mouse(MouseEvent),
    /// The terminal has another size.
    Resize(u16, u16),
    /// The terminal came to the front, or went behind another.
    Focus(bool),
    /// A run told something.
    Agent(ThreadId, Box<AgentEvent>),
    /// Other processes did something in the conversation.
    Synced(Box<ThreadSync>),
    /// A queued message begins a run of this process.
    Began(ThreadId, QueuedRow),
    /// A message was queued instead of begun.
    Deferred(ThreadId, QueuedRow, UserInput),
    /// Another process took the conversation over.
    Lost(ThreadId),
    /// The screen shows the model as it is now.
    Drawn,
    /// The time that [`super::app::App::deadline`] asked for has come.
    Tick,
    /// A conversation was opened, or could not be.
    Opened(Result<Box<OpenedThread>, String>),
    /// Older messages of the conversation, as they were asked for.
    Earlier(ThreadId, Result<Vec<StoredMessage>, String>),
    /// Where a message of the conversation stands in the store, as it was asked for.
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
    /// A question that is not open any more.
    Closed(Box<SuspensionRecord>),
    /// An answer was stored, or not.
    Decided(SuspensionId, Result<DecideOutcome, String>),
    /// What the rules and the tool say of these edited arguments of a question.
    Reviewed(SuspensionId, Value, Result<Review, String>),
    /// The person's editor was closed: the question, the argument that was edited, the text.
    EditorClosed(SuspensionId, Option<&'static str>, Result<String, String>),
    /// What a pattern would have matched.
    GrantPreviewed(SuspensionId, String, Result<GrantPreview, String>),
    /// The ledger of grants.
    Grants(Result<Vec<GrantRow>, String>),
    /// A grant was taken back; `false`: it was before.
    Revoked(String, Result<bool, String>),
    /// The list of conversations.
    Threads(Result<Vec<ThreadSummary>, String>),
    /// Something may wait, or wait no more, in some conversation.
    InboxChanged,
    /// What waits, over all conversations.
    Inbox(Result<Vec<InboxRow>, String>),
    /// How many questions wait in other conversations.
    Elsewhere(u64),
    /// A question of any conversation as it stands now.
    Question(SuspensionId, Result<Option<Box<OpenedQuestion>>, String>),
    /// A word for the person that stays.
    Note(String),
    /// The list of models.
    Models(Vec<ModelRow>),
    /// What servers list of it, now that they answered.
    Offered(Vec<ModelRow>),
    /// The providers that a key can be stored for.
    Logins(Vec<ModelRow>),
    /// What the command of the status line wrote, or why it did not.
    StatusLine(Result<String, String>),
    /// The themes that can be chosen, and the name of one that is to be used at once.
    Themes(Vec<ThemeRow>, Option<String>),
    /// The terminal said what is behind the text.
    Background(Background),
    /// The list of skills.
    Skills(Vec<SkillRow>),
    /// The layer of the sandbox that is missing here.
    Unsandboxed(String),
    /// The list of rules.
    Rules(Vec<RuleRow>),
    /// What can be named, for the query of that number.
    Files(u64, Vec<MentionRow>),
    /// What was said before, in all conversations, newest first.
    History(Result<Vec<String>, String>),
    /// What was written in the conversation and not sent, before this process.
    Draft(ThreadId, Draft),
    /// The person's editor was closed on the text that is being written.
    Composed(Result<String, String>),
    /// What the status line says.
    Info(Box<HostInfo>),
    /// The folder was trusted, or not.
    Trusted(Result<(), String>),
    /// The program was built anew with what the folder grants, or why not; `None`: something is still at work.
    Renewed(Result<Option<Box<Renewal>>, String>),
    /// A conversation was written to a file, or not.
    Exported(Result<PathBuf, String>),
    /// A page, or why there is none.
    Page(Result<Page, String>),
    /// What became of something with whole conversations.
    Back(Box<BackMsg>),
    /// What came of what was to be attached in the place of these words.
    Attached(String, Result<Attached, String>),
    /// The picture of that hash, or why it cannot be shown.
    Picture(String, Result<Pixels, String>),
    /// The terminal says something about itself.
    Reply(Reply),
    /// The picture of that hash for a terminal that places pixels, or why it cannot be shown.
    Packed(String, Result<Packed, String>),
    /// The same for one that draws them where its cursor stands.
    Plate(String, Result<Drawn, String>),
    /// Something that was asked for went wrong.
    Failed(String),
    /// The terminal is gone: stop without a question.
    Hangup,
    /// SIGTERM came: the same.
    Terminate,
}

/// Something is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Cmd {
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
    /// Ask what became of a question.
    WhoAnswered(SuspensionId),
    /// Store an answer.
    Decide(SuspensionId, Answer),
    /// Ask what the rules and the tool say of edited arguments.
    Review(SuspensionId, Value),
    /// Open a text in the person's editor.
    Editor(SuspensionId, CallDraft),
    /// Attach something in the place of these words of the text.
    Attach(String, Attach),
    /// Ask for a picture.
    Picture(ImageRef),
    /// Ask for a picture for a terminal that places pixels.
    Pack(ImageRef),
    /// Ask for a picture for a terminal that draws pixels where its cursor stands.
    Plate(ImageRef, Canvas),
    /// Open the text that is being written in the person's editor.
    Compose(String),
    /// Ask for what was said before, in all conversations.
    History,
    /// Keep what is written and not sent; nothing is kept of an empty text.
    KeepDraft(KeepDraft),
    /// Ask for what was written in a conversation and not sent; whether nothing was said in it yet.
    Draft(ThreadId, bool),
    /// Give the person the terminal of a background command of a conversation, by its id.
    TakeOver(ThreadId, String),
    /// Open a text of that name in the person's editor, only to look at it.
    View(String, String),
    /// Find out what a pattern would have matched.
    PreviewGrant(SuspensionId, String),
    /// Ask for the ledger of grants.
    Grants,
    /// Take a grant back.
    RevokeGrant(String),
    /// Stop what runs or waits.
    Cancel(ThreadId),
    /// Let the commands that run go on in the background.
    ToBackground(ThreadId),
    /// Ask for the list of conversations.
    Threads,
    /// Ask for what waits, over all conversations.
    Inbox,
    /// Count what waits in other conversations than this one.
    CountElsewhere(Option<ThreadId>),
    /// Look at a question of any conversation.
    Question(SuspensionId),
    /// Ask for the list of models.
    Models,
    /// Ask for what the status line says.
    Info,
    /// Trust the folder.
    Trust,
    /// Build the program anew with what the folder grants.
    Renew,
    /// Tell the command of the status line this JSON, and ask what it writes.
    StatusLine(String),
    /// Ask for the themes, to choose from or to use the one of that name.
    Themes(Option<String>),
    /// Write a choice into the settings.
    Keep(Choice, String),
    /// Ask the terminal what is behind the text.
    AskBackground,
    /// Ask the terminal something else about itself.
    AskTerminal(Question),
    /// Ask for the list of skills.
    Skills,
    /// Ask for the list of rules.
    Rules,
    /// Change how much is asked.
    SetMode(Mode),
    /// Choose a model.
    SetModel(String),
    /// Set how hard models think.
    SetEffort(Option<ReasoningEffort>),
    /// Ask for the providers that a key can be stored for.
    Logins,
    /// Try a key and store it.
    LogIn(String, Secret),
    /// Remove a stored key.
    LogOut(Option<String>),
    /// Find paths.
    Files(u64, String),
    /// Write a conversation to a file.
    Export(ThreadId, ExportFormat),
    /// Ask for the page of a command, with the words behind it.
    Page(Option<ThreadId>, String, String),
    /// Do something with whole conversations.
    Back(BackCmd),
    /// Add to the history.
    Remember(String),
    /// Tell the person that a question waits: ring, and show a notification of the desktop with this text.
    Notify {
        /// Ring.
        bell: bool,
        /// The text.
        desktop: Option<String>,
    },
    /// A question of the conversation has ended unanswered: see to it.
    Expire(ThreadId),
    /// Put text on the clipboard.
    Copy(String),
    /// Print these entries once more, whole.
    ShowWhole(Vec<u64>),
    /// Draw everything again.
    Redraw,
    /// Go back to the shell for a while.
    Suspend,
    /// End.
    Quit,
}
