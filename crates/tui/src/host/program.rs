//! The program itself: what it says about itself, its settings, its pages, and trust in the folder.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;

use super::super::event_loop::Performer;
use super::super::msg::Msg;
use super::{Host, HostFuture, Price, words};
use crate::palette::HostPage;
use crate::theme::ThemeRow;
use aye_core::contract::foreign::ForeignError;
use aye_core::contract::ids::ThreadId;
use aye_core::contract::inference::{ModelUsage, ReasoningEffort};
use aye_core::contract::mode::Mode;
use aye_core::contract::spec::BILLION;

type FindPrice = dyn Fn(&str) -> Option<Price> + Send + Sync;

/// The prices of models by id, each looked up once.
#[derive(Clone)]
pub struct ModelPrices {
    find: Arc<FindPrice>,
    known: Arc<Mutex<HashMap<String, Option<Price>>>>,
}

impl ModelPrices {
    /// Finds prices with a function.
    pub fn new(find: impl Fn(&str) -> Option<Price> + Send + Sync + 'static) -> Self {
        Self { find: Arc::new(find), known: Arc::default() }
    }

    fn get(&self, model: &str) -> Option<Price> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match known.get(model) {
            Some(price) => *price,
            None => *known.entry(model.to_owned()).or_insert((self.find)(model)),
        }
    }

    /// Returns what models used in the currency of the prices; `None` if no price of them is known.
    pub fn cost(&self, spent: &[ModelUsage]) -> Option<f64> {
        let priced = spent.iter().filter_map(|one| Some(self.get(&one.model)?.cost(&one.usage)));
        priced.reduce(u64::saturating_add).map(|billionths| billionths as f64 / BILLION)
    }
}

impl Default for ModelPrices {
    fn default() -> Self {
        Self::new(|_| None)
    }
}

impl PartialEq for ModelPrices {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.known, &other.known)
    }
}

impl fmt::Debug for ModelPrices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ModelPrices")
    }
}

/// The content of the status line and the first lines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostInfo {
    /// The model that answers next.
    pub model: String,
    /// The provider of the model.
    pub provider: String,
    /// Whether it is the built-in script.
    pub is_demo: bool,
    /// Tokens that the model can read and write in all.
    pub context_window: Option<u64>,
    /// The prices of models.
    pub prices: ModelPrices,
    /// The origin of the model choice, such as the variable that is set.
    pub model_why: String,
    /// The ways to begin, by their digits, as long as the user has chosen no model and has no key.
    pub start: Vec<StartChoice>,
    /// The reasoning effort, if the user set it.
    pub effort: Option<ReasoningEffort>,
    /// The reasoning effort that requests ask for; `None` leaves it to the model.
    pub effort_in_force: Option<ReasoningEffort>,
    /// The agent that is talked to, unless it is the built-in one.
    pub agent: Option<String>,
    pub mode: Mode,
    /// The most that a mode may allow on this machine; `None` for no limit.
    pub most_mode: Option<Mode>,
    /// The folder that tools work in.
    pub cwd: PathBuf,
    /// The root of the project: what a grant for the project is tied to.
    pub project: PathBuf,
    /// The user's home, written as `~`.
    pub home: Option<PathBuf>,
    /// The branch of git that is checked out.
    pub branch: Option<String>,
    /// The instruction files in use, in a few words, such as `AGENTS.md`.
    pub instructions: Option<String>,
    /// The layer of the sandbox that this machine does not have, in a few words, if known.
    pub unsandboxed: Option<String>,
    /// Problems at the start that do not prevent it.
    pub warnings: Vec<String>,
    /// The version of the program.
    pub version: String,
}

/// A way to begin for a user who has no key and has chosen no model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartChoice {
    /// Log in to a provider.
    LogIn,
    /// Use a model of a server on this machine, and keep it in the settings.
    Use {
        provider: String,
        /// The model, as that server calls it.
        model: String,
        /// The argument for [`ModelHost::set_model`](super::ModelHost::set_model).
        name: String,
    },
    /// Try the built-in script.
    Demo,
}

/// A user setting that is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
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
    /// The path of the file or folder.
    pub path: PathBuf,
    /// What it would do; may have several lines.
    pub does: String,
    /// The MCP servers that it names.
    pub servers: Vec<ProjectServer>,
}

/// An MCP server of a project, before it ever runs. Its texts come from the project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectServer {
    pub name: String,
    /// The whole command line, or the URL.
    pub runs: String,
    /// Whether aye starts it as a program.
    pub is_program: bool,
    /// What else the answer covers, a sentence each.
    pub facts: Vec<String>,
}

/// Tools of an MCP server that are not those that the user trusted. Their texts come from the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedTools {
    /// The name of the server.
    pub server: String,
    /// What a command calls it.
    pub typed: String,
    /// All that the model would read of them, line by line.
    pub lines: Vec<String>,
    /// Stands for exactly these tools: what the server offers by the time of the answer may be something else.
    pub digest: String,
}

/// The result of rebuilding the program.
#[derive(Clone, Debug, PartialEq)]
pub struct Renewal {
    /// The host's description of itself.
    pub info: HostInfo,
    /// The files that are still not trusted, because they changed in the meantime.
    pub untrusted: Vec<UntrustedRow>,
}

/// A text to read: its lines are not wrapped, so that columns stay columns.
///
/// In the title, details may follow ` · `. A line that starts with `── ` is a heading or the head of a table. A tab separates
/// a label from its value, and the value from a note; labels are aligned, and may start with `✓`, `!` or `✗`. Words between
/// backticks are code. A line of [`BAR_MARKS`](crate::theme::BAR_MARKS) between `▕` and `▏` is a bar, and one that starts with such a mark is a row of
/// its legend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextPage {
    /// The title of the page.
    pub title: String,
    pub text: String,
    /// Whether the lines are shown as they are: nothing in them is a mark.
    pub is_literal: bool,
    /// Whether the text is Markdown, as answers of the model are.
    pub is_markdown: bool,
}

/// The program in its folder.
pub trait ProgramHost: Send + Sync {
    /// Returns the content of the status line. Called again after every request that may change it.
    fn info(&self) -> HostInfo;

    /// Reports that the first frame was drawn: work that it did not need can start.
    fn shown(&self) -> BoxFuture<'_, ()>;

    /// Returns the files of the folder that would grant or run something and are not used because the user
    /// has not trusted them.
    fn untrusted(&self) -> Vec<UntrustedRow>;

    /// Trusts what [`ProgramHost::untrusted`] lists. It is used once a [`ProgramHost::renew`] has read it.
    fn trust(&self) -> HostFuture<'_, ()>;

    /// The same program, built again with what the folder grants now, for the conversation that is shown; `None`:
    /// something is still at work here.
    fn renew(&self) -> HostFuture<'_, Option<Arc<dyn Host>>>;

    /// Changes how much is asked, for calls from now on.
    ///
    /// # Errors
    /// This machine cannot enforce the mode, which stays as it was.
    fn set_mode(&self, mode: Mode) -> Result<(), ForeignError>;

    /// Themes that can be chosen, as this terminal shows them.
    fn themes(&self) -> Vec<ThemeRow>;

    /// Writes a choice into the user's settings, and returns the path of that file.
    fn keep<'a>(&'a self, choice: Choice, value: &'a str) -> HostFuture<'a, PathBuf>;

    /// Runs the command of the status line with that JSON on its standard input, and gives the line that it wrote.
    fn status_line(&self, json: String) -> HostFuture<'_, String>;

    /// Runs a command that returns a page, with the words after it.
    fn page<'a>(
        &'a self,
        thread: Option<&'a ThreadId>,
        page: HostPage,
        words: &'a str,
    ) -> HostFuture<'a, TextPage>;
}

/// Something is wanted of the program.
#[derive(Clone, Debug, PartialEq)]
pub enum ProgramCmd {
    /// Ask for what the status line says.
    Info,
    Trust,
    /// Change the permission mode.
    SetMode(Mode),
    /// Ask for the themes, to choose from or to use the one of that name.
    Themes(Option<String>),
    /// Write a choice into the settings.
    Keep(Choice, String),
    /// Send this JSON to the command of the status line, and request its output.
    StatusLine(String),
    /// Request the page of a command, with the words after it.
    Page(Option<ThreadId>, HostPage, String),
}

/// The program says something about itself. Errors are sentences for the person.
#[derive(Clone, Debug)]
pub enum ProgramMsg {
    /// The content of the status line.
    Info(Box<HostInfo>),
    /// The folder was trusted, or not.
    Trusted(Result<(), String>),
    /// It was built anew with what the folder grants, or why not; `None`: something is still at work.
    Renewed(Result<Option<Box<Renewal>>, String>),
    /// The themes that can be chosen, and the name of one to use at once.
    Themes(Vec<ThemeRow>, Option<String>),
    /// The output of the status line's command, or its error.
    StatusLine(Result<String, String>),
    /// A page, or why it is not available.
    Page(Result<TextPage, String>),
    /// The layer of the sandbox that is missing here.
    Unsandboxed(String),
    /// The servers whose tools are not those that the user trusted.
    ToolsChanged(Vec<ChangedTools>),
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
            Self::Page(thread, page, typed) => performer.spawn(async move {
                send.answer(ProgramMsg::Page(words(host.page(thread.as_ref(), page, &typed).await)));
                send.info(host.as_ref());
            }),
        }
    }
}
