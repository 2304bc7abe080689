//! The program itself: what it says about itself, its settings, its pages, and trust in the folder.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;

use super::super::event_loop::Performer;
use super::super::msg::Msg;
use super::{Host, Price, words};
use crate::theme::ThemeRow;
use aye_core::contract::foreign::ForeignError;
use aye_core::contract::ids::ThreadId;
use aye_core::contract::inference::ReasoningEffort;
use aye_core::contract::mode::Mode;

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

/// What a person chooses for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The colours.
    Theme,
}

impl Choice {
    /// Its key in the settings.
    pub fn key(self) -> &'static str {
        match self {
            Choice::Theme => "theme",
        }
    }
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

/// Something to read: its lines stand as they are, so that columns stay columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextPage {
    /// What it is.
    pub title: String,
    /// The lines.
    pub text: String,
}

/// The program in its folder.
#[async_trait]
pub trait ProgramHost: Send + Sync {
    /// What the status line says. Asked again after every request that may change it.
    fn info(&self) -> HostInfo;

    /// The first picture is there: what it did not need can begin.
    async fn shown(&self);

    /// What of the folder would grant or run something, and is not used because nobody trusted it.
    fn untrusted(&self) -> Vec<UntrustedRow>;

    /// Trusts what [`ProgramHost::untrusted`] lists. It is used once a [`ProgramHost::renew`] has read it.
    async fn trust(&self) -> Result<(), ForeignError>;

    /// The same program, built again with what the folder grants now, for the conversation that is shown; `None`:
    /// something is still at work here.
    async fn renew(&self) -> Result<Option<Arc<dyn Host>>, ForeignError>;

    /// Changes how much is asked, for calls from now on.
    ///
    /// # Errors
    /// This machine cannot enforce the mode, which stays as it was.
    fn set_mode(&self, mode: Mode) -> Result<(), ForeignError>;

    /// Themes that can be chosen, as this terminal shows them.
    fn themes(&self) -> Vec<ThemeRow>;

    /// Writes a choice into the person's settings, and says which file that is.
    async fn keep(&self, choice: Choice, value: &str) -> Result<PathBuf, ForeignError>;

    /// Runs the command of the status line with that JSON on its standard input, and gives the line that it wrote.
    async fn status_line(&self, json: String) -> Result<String, ForeignError>;

    /// Carries out a command of [`COMMANDS`](crate::palette::COMMANDS) that gives a page, with the words behind it.
    async fn page(
        &self,
        thread: Option<&ThreadId>,
        name: &str,
        words: &str,
    ) -> Result<TextPage, ForeignError>;
}

/// Something is wanted of the program.
#[derive(Clone, Debug, PartialEq)]
pub enum ProgramCmd {
    /// Ask for what the status line says.
    Info,
    /// Trust the folder.
    Trust,
    /// Change how much is asked.
    SetMode(Mode),
    /// Ask for the themes, to choose from or to use the one of that name.
    Themes(Option<String>),
    /// Write a choice into the settings.
    Keep(Choice, String),
    /// Tell the command of the status line this JSON, and ask what it writes.
    StatusLine(String),
    /// Ask for the page of a command, with the words behind it.
    Page(Option<ThreadId>, String, String),
}

/// The program says something about itself. Errors are sentences for the person.
#[derive(Clone, Debug)]
pub enum ProgramMsg {
    /// What the status line says.
    Info(Box<HostInfo>),
    /// The folder was trusted, or not.
    Trusted(Result<(), String>),
    /// It was built anew with what the folder grants, or why not; `None`: something is still at work.
    Renewed(Result<Option<Box<Renewal>>, String>),
    /// The themes that can be chosen, and the name of one that is to be used at once.
    Themes(Vec<ThemeRow>, Option<String>),
    /// What the command of the status line wrote, or why it did not.
    StatusLine(Result<String, String>),
    /// A page, or why there is none.
    Page(Result<TextPage, String>),
    /// The layer of the sandbox that is missing here.
    Unsandboxed(String),
}

impl ProgramCmd {
    pub(crate) fn perform(self, performer: &mut Performer) {
        let (host, send) = performer.both();
        match self {
            Self::Info => performer.spawn(async move { send.info(host.as_ref()) }),
            Self::Trust => performer.spawn(async move {
                send.answer(ProgramMsg::Trusted(words(host.trust().await)));
            }),
            Self::SetMode(mode) => {
                if let Err(error) = host.set_mode(mode) {
                    send.failed(&error);
                }
                send.info(host.as_ref());
            }
            Self::Themes(wanted) => send.answer(ProgramMsg::Themes(host.themes(), wanted)),
            Self::Keep(choice, value) => performer.spawn(async move {
                if let Err(error) = host.keep(choice, &value).await {
                    let what = choice.key();
                    send.answer(Msg::Failed(format!("the {what} applies now but was not saved: {error}")));
                }
            }),
            Self::StatusLine(json) => performer.spawn(async move {
                send.answer(ProgramMsg::StatusLine(words(host.status_line(json).await)));
            }),
            Self::Page(thread, name, typed) => performer.spawn(async move {
                send.answer(ProgramMsg::Page(words(host.page(thread.as_ref(), &name, &typed).await)));
                send.info(host.as_ref());
            }),
        }
    }
}
