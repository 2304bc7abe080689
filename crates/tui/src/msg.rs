//! Messages to the application, and the commands it returns: those of each part, and those of the loop itself.

use crossterm::event::{KeyEvent, MouseEvent};

use super::approval::edit::EditorDocument as CallDraft;
use super::host::{
    ImageCmd, ImageMsg, ModelCmd, ModelMsg, ProgramCmd, ProgramMsg, QuestionCmd, QuestionMsg, ThreadCmd,
    ThreadMsg, WritingCmd, WritingMsg,
};
use super::theme::Background;
use super::thread_actions::{RewindCmd, RewindMsg};
use aye_core::contract::event::AgentEvent;
use aye_core::contract::ids::{SuspensionId, ThreadId};

#[derive(Clone, Debug)]
pub enum Msg {
    Key(KeyEvent),
    /// A paste, whole.
    Paste(String),
    /// The mouse, on a screen of ours.
    Mouse(MouseEvent),
    /// The terminal has another size.
    Resize(u16, u16),
    /// The terminal got or lost the focus.
    Focus(bool),
    /// The terminal reported its background colour.
    Background(Background),
    /// The screen shows the model as it is now.
    Drawn,
    /// The time that [`super::app::App::deadline`] asked for has come.
    Tick,
    /// An event of a run.
    Agent(ThreadId, Box<AgentEvent>),
    Thread(ThreadMsg),
    /// Questions, rules and grants.
    Question(QuestionMsg),
    Model(ModelMsg),
    Image(ImageMsg),
    /// What helps to write.
    Writing(WritingMsg),
    Program(ProgramMsg),
    /// The result of an action on whole conversations.
    Back(Box<RewindMsg>),
    /// The user's editor was closed: the question, the argument that was edited, the text.
    EditorClosed(SuspensionId, Option<&'static str>, Result<String, String>),
    /// The user's editor was closed on the draft.
    Composed(Result<String, String>),
    /// A note for the user that stays.
    Note(String),
    /// Something that was asked for went wrong.
    Failed(String),
    /// The terminal is gone: stop without a question.
    Hangup,
    /// SIGTERM came: the same.
    Terminate,
}

/// A command to carry out.
#[derive(Clone, Debug, PartialEq)]
pub enum Cmd {
    Thread(ThreadCmd),
    /// With a question, or with what is granted.
    Question(QuestionCmd),
    /// With models or keys.
    Model(ModelCmd),
    Image(ImageCmd),
    /// For what is being written.
    Writing(WritingCmd),
    Program(ProgramCmd),
    Back(RewindCmd),
    /// Open a text in the user's editor.
    Editor(SuspensionId, CallDraft),
    /// Open the draft in the user's editor.
    Compose(String),
    /// Open a text of that name in the user's editor, read-only.
    View(String, String),
    /// Connect the user to the terminal of a background command of a conversation, by its id.
    TakeOver(ThreadId, String),
    /// Rebuild the program with what the folder grants.
    Renew,
    /// Request the background colour from the terminal.
    AskBackground,
    /// Notify the user that a question is pending: sound the bell, and show a desktop notification with this
    /// text.
    Notify {
        /// Whether to sound the bell.
        bell: bool,
        desktop: Option<String>,
    },
    /// Put text on the clipboard.
    Copy(String),
    /// Print these entries once more, whole.
    ShowWhole(Vec<u64>),
    Redraw,
    /// Go back to the shell for a while.
    Suspend,
    Quit,
}

macro_rules! parts {
    ($($part:ident($cmd:ident, $msg:ident)),*) => {$(
        impl From<$cmd> for Cmd {
            fn from(cmd: $cmd) -> Self {
                Cmd::$part(cmd)
            }
        }

        impl From<$msg> for Msg {
            fn from(msg: $msg) -> Self {
                Msg::$part(msg)
            }
        }
    )*};
}

parts!(
    Thread(ThreadCmd, ThreadMsg),
    Question(QuestionCmd, QuestionMsg),
    Model(ModelCmd, ModelMsg),
    Image(ImageCmd, ImageMsg),
    Writing(WritingCmd, WritingMsg),
    Program(ProgramCmd, ProgramMsg)
);
