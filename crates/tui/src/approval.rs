//! Pending questions as cards, and their keys. "Approval" is only the name on screen; what is answered is a
//! suspension.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::composer::Composer;
use super::diff::hunks::Hunks;
use super::transcript::Moment;
use aye_core::contract::child::TaskRecord;
use aye_core::contract::ids::{RunId, SuspensionId, ThreadId};
use aye_core::contract::judgement::Profile;
use aye_core::contract::mode::Mode;
use aye_core::contract::question::{ApprovalRequest, ChoiceQuestion, Question, QuestionDetails};
use aye_core::contract::record::{GrantScope, SuspensionRecord};
use aye_core::contract::suspension::{
    Answer, PendingToolCall, SuspendTicket, Suspension, ToolCallResumeMode,
};
use aye_core::contract::tool::FilePreview;

pub mod ask;
pub mod edit;
pub mod form;
pub mod grant;
mod keys;

use ask::AskState;
use edit::{ArgumentEdit, EditorDocument};
use form::FormState;
use grant::GrantForm;

/// How long a card must have been on the screen before it takes a key: keys typed before it appeared are not
/// an answer to it.
pub const SEEN_MS: u64 = 300;
/// How long the user must not have typed anything else, in addition.
pub const QUIET_MS: u64 = 400;

/// The kind of answer that a card expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CardKind {
    /// Yes or no.
    Permission,
    /// A choice or words.
    Ask,
    /// A surface that is filled in.
    Form,
    /// The decision about a call that may have run.
    Unknown,
    /// Whether to carry out a plan: only this terminal asks, and the question is not stored.
    Plan,
    /// Whether to use the files of the folder that would grant or run something: only this terminal asks
    /// this, too.
    Trust,
}

/// The progress of an answer.
#[derive(Clone, Debug)]
pub enum CardStage {
    /// Nothing is answered.
    Open,
    /// The reason of a no is being written.
    Reason(Box<Composer>),
    /// The requested changes are being written.
    Modify(Box<Composer>),
    /// The comment on the answer is being written.
    Comment(Box<Composer>),
    /// The command is being changed.
    Edit(Box<Composer>),
    /// The change is taken apart.
    Hunks(Box<Hunks>),
    /// The user's editor has it.
    Away,
    /// A rule is being chosen.
    Grant(Box<GrantForm>),
    /// The answer was sent and is not stored yet.
    Deciding(&'static str),
    /// The run was asked to stop, which closes the question.
    Stopping,
}

/// Not an action of a stored question: the terminal asks this itself.
const ACTION_PLAN: &str = "terminal:Plan";
const ACTION_TRUST: &str = "terminal:Trust";
const ACTION_TOOLS: &str = "terminal:Tools";

/// The scopes of a grant, narrowest first.
pub const SCOPES: [&str; 4] = ["this run", "this conversation", "this project", "all projects"];
/// The place of the conversation among them.
const CONVERSATION: usize = 1;
/// The place of the project among them.
const PROJECT: usize = 2;

/// The result of a key on a card.
#[derive(Clone, Debug, PartialEq)]
pub enum CardAction {
    /// The card changed, or nothing happened.
    Taken,
    /// The key means nothing here.
    NotMine,
    Decide(Box<Answer>),
    Review(Value),
    /// Open a text in the user's editor.
    Editor(EditorDocument),
    /// Answer several cards at once.
    Batch(Batch),
    /// No, and stop the run.
    Stop,
    /// The next card has the focus.
    Next,
    /// The card before has it.
    Previous,
    /// Put the card away; its question keeps waiting.
    Dismiss,
    /// Carry the plan out in a mode; without one, keep planning.
    AcceptPlan(Option<Mode>),
    /// Trust the folder; `false`: not now.
    Trust(bool),
}

/// The conversation of a question, if it is not the one that is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherThread {
    /// The title of that conversation.
    pub title: String,
    /// The root of its project.
    pub project: PathBuf,
}

/// One answer to several cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batch {
    /// Yes to all that only read.
    AllowReads,
    /// No to all others.
    DenyRest,
}

/// The size of a card's body on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodyWindow {
    /// The largest row that can come first.
    pub(crate) last_scroll: usize,
    /// The rows that are shown at once.
    pub(crate) rows: usize,
}

impl Default for BodyWindow {
    fn default() -> BodyWindow {
        BodyWindow { last_scroll: 0, rows: 10 }
    }
}

/// A question that waits.
#[derive(Clone, Debug)]
pub struct Card {
    pub id: SuspensionId,
    pub thread_id: ThreadId,
    pub run_id: RunId,
    /// The question, and the call.
    pub ticket: SuspendTicket,
    pub question: Question,
    /// The kind of answer that the card expects.
    pub kind: CardKind,
    /// The progress of the answer.
    pub stage: CardStage,
    /// The state of a question with choices.
    pub ask: AskState,
    /// The state of a surface.
    pub surface: FormState,
    /// When the card was first drawn.
    pub seen: Option<Moment>,
    /// The first line of its body that is shown.
    pub scroll: usize,
    /// The rows of its body that were on the screen, counted from the first without a gap.
    pub read: usize,
    /// Rows of its body were never on the screen: it cannot be allowed yet.
    pub is_unread: bool,
    /// The choice that the arrows are at. Without one, Enter takes the first where [`Card::preselects`] says so.
    pub choice: Option<usize>,
    /// Whether the card shows why it asks, and all that is known of the call.
    pub is_explained: bool,
    /// The size of the body on the screen, as of the last key.
    pub(crate) window: BodyWindow,
    /// The problem with the last answer.
    pub problem: Option<String>,
    /// Set when it belongs to another conversation.
    pub elsewhere: Option<OtherThread>,
    /// The agent that asks, when another one set it to work.
    pub child: Option<String>,
    /// The call as edited by the user.
    pub edit: Option<ArgumentEdit>,
    /// The comment on the answer.
    pub comment: Option<String>,
    /// The scope that the user chose last, by its place in [`SCOPES`].
    pub(crate) last_scope: Option<usize>,
    /// Whether it is read aloud line by line: an empty line is no answer there.
    pub(crate) is_spoken: bool,
    /// A text of the editor that was not right yet.
    draft: Option<String>,
}

impl Card {
    /// The surface as it came.
    pub(crate) fn fresh_form(&self) -> FormState {
        match &self.question.details {
            QuestionDetails::Form(surface) => FormState::of(surface),
            _ => FormState::default(),
        }
    }

    /// A card for a question.
    pub fn new(thread_id: ThreadId, run_id: RunId, ticket: SuspendTicket) -> Card {
        let question = Question::of(&ticket.suspension);
        let (mut ask, mut surface) = (AskState::default(), FormState::default());
        let kind = match &question.details {
            QuestionDetails::Choice(choice) => {
                ask = AskState::of(choice);
                CardKind::Ask
            }
            // The user may enter the result that a client would have produced.
            QuestionDetails::Client => {
                ask = AskState::of(&ChoiceQuestion::default());
                CardKind::Ask
            }
            QuestionDetails::Form(form) => {
                surface = FormState::of(form);
                CardKind::Form
            }
            QuestionDetails::UnknownOutcome(_) => CardKind::Unknown,
            QuestionDetails::Approval(_) | QuestionDetails::Child(_) => {
                match ticket.suspension.action.as_str() {
                    ACTION_PLAN => CardKind::Plan,
                    ACTION_TRUST | ACTION_TOOLS => CardKind::Trust,
                    _ => CardKind::Permission,
                }
            }
        };
        Card {
            id: ticket.suspension.id.clone(),
            thread_id,
            run_id,
            kind,
            ticket,
            question,
            stage: CardStage::Open,
            ask,
            surface,
            seen: None,
            scroll: 0,
            read: 0,
            is_unread: false,
            choice: None,
            is_explained: false,
            window: BodyWindow::default(),
            problem: None,
            elsewhere: None,
            child: None,
            edit: None,
            comment: None,
            last_scope: None,
            is_spoken: false,
            draft: None,
        }
    }

    /// A card for the plan that a run ended with.
    pub fn plan(thread_id: ThreadId, run_id: RunId) -> Card {
        let id = format!("plan_{run_id}").as_str().into();
        Card::new(thread_id, run_id, own_ticket(id, ACTION_PLAN, "Plan", "Carry out the plan?"))
    }

    /// A card for the trust in a folder.
    pub fn trust(thread_id: ThreadId) -> Card {
        let ticket =
            own_ticket(SuspensionId::fresh(), ACTION_TRUST, "This folder", "Trust the files of this folder?");
        Card::new(thread_id, RunId::from(""), ticket)
    }

    /// A card for tools that are not those that the user trusted.
    pub fn tools(thread_id: ThreadId) -> Card {
        let ticket = own_ticket(SuspensionId::fresh(), ACTION_TOOLS, "Tools", "Use the changed tools?");
        Card::new(thread_id, RunId::from(""), ticket)
    }

    /// Whether it asks about tools, not about the folder.
    pub fn is_of_tools(&self) -> bool {
        self.ticket.suspension.action == ACTION_TOOLS
    }

    /// Whether it asks about the folder.
    pub fn is_of_folder(&self) -> bool {
        self.kind == CardKind::Trust && !self.is_of_tools()
    }

    /// Whether the terminal asks this itself, so that the store has no such question.
    pub fn is_own(&self) -> bool {
        matches!(self.kind, CardKind::Plan | CardKind::Trust)
    }

    /// A card for a question that is stored, of a conversation or of one of the agents below it.
    pub fn of(record: &SuspensionRecord, children: &[TaskRecord]) -> Card {
        let card = Card::new(record.thread_id.clone(), record.run_id.clone(), record.ticket.clone());
        let child = children.iter().find(|task| task.child.thread_id == record.thread_id);
        Card { child: child.map(|task| task.child.agent.clone()), ..card }
    }

    /// The root of the project that it belongs to.
    pub fn project<'a>(&'a self, here: &'a Path) -> &'a Path {
        self.elsewhere.as_ref().map_or(here, |elsewhere| &elsewhere.project)
    }

    /// Returns the verdict on the call as it was proposed; for an edited call, it is unknown.
    pub fn proposed(&self) -> Option<&ApprovalRequest> {
        self.question.approval().filter(|_| self.edit.is_none())
    }

    /// Returns the profile that the kernel enforces on the call after a plain approval; `None` for calls that
    /// start no command.
    pub fn profile(&self) -> Option<Profile> {
        self.question.approval()?.profile
    }

    /// What is dangerous about the call, as a sentence. For an edited call it is unknown.
    pub fn danger(&self) -> Option<String> {
        if self.kind != CardKind::Permission {
            return None;
        }
        self.proposed()?.danger_title()
    }

    /// Whether Enter takes the first answer before an arrow key chose one: it must not be able to do harm, and the
    /// user must have seen all of it.
    pub fn preselects(&self) -> bool {
        let is_harmless = match self.kind {
            CardKind::Permission => self.edit.is_none() && self.danger().is_none(),
            CardKind::Plan => true,
            CardKind::Ask | CardKind::Form | CardKind::Unknown | CardKind::Trust => false,
        };
        is_harmless && !self.is_spoken && !self.is_unread && matches!(self.stage, CardStage::Open)
    }

    /// Returns the answer that Enter takes, on a card that was on the screen long enough.
    pub fn selected(&self) -> Option<usize> {
        self.choice.or_else(|| self.preselects().then_some(0))
    }

    /// Whether the kernel confines the call at all.
    pub fn is_sandboxed(&self) -> bool {
        self.profile().is_some_and(|profile| profile != Profile::Outside)
    }

    /// Whether the command gets a terminal, which the model can type into.
    pub fn in_terminal(&self) -> bool {
        self.arguments().get("tty") == Some(&Value::Bool(true))
    }

    /// Whether the command continues after its call.
    pub fn in_background(&self) -> bool {
        self.arguments().get("run_in_background") == Some(&Value::Bool(true))
    }

    /// The exact command line, for tools that run one.
    pub fn command(&self) -> Option<&str> {
        self.arguments().get("command").and_then(Value::as_str)
    }

    /// What the model says that the command does, on one line.
    pub fn description(&self) -> Option<String> {
        let text = self.command().and_then(|_| self.arguments().get("description")?.as_str())?;
        let text = aye_core::contract::display::visible_line(text.trim()).into_owned();
        Some(text).filter(|text| !text.is_empty())
    }

    /// When it ends unanswered, in Unix milliseconds.
    pub fn expires_at(&self) -> Option<u64> {
        self.ticket.suspension.expires_at
    }

    /// The question of a tool, in its own words.
    pub fn asked(&self) -> &str {
        let question = self.question.choice().and_then(|choice| choice.question.as_deref());
        question.unwrap_or(&self.ticket.suspension.message)
    }

    /// Returns the changes that the call would make to files.
    pub fn previews(&self) -> &[FilePreview] {
        match self.edit.as_ref().map(|edit| &edit.review) {
            None => &self.question.files,
            Some(Some(Ok(review))) => &review.files,
            Some(Some(Err(_)) | None) => &[],
        }
    }

    /// Whether an answer is being sent.
    pub fn is_deciding(&self) -> bool {
        matches!(self.stage, CardStage::Deciding(_) | CardStage::Stopping)
    }

    /// Whether the user is in the middle of an answer.
    pub fn is_written_on(&self) -> bool {
        self.line().is_some()
            || matches!(
                self.stage,
                CardStage::Edit(_) | CardStage::Hunks(_) | CardStage::Away | CardStage::Grant { .. }
            )
    }

    /// Whether the card was on the screen long enough to take a key.
    pub fn was_seen(&self, now: Moment) -> bool {
        self.seen.is_some_and(|seen| now.since(seen) >= SEEN_MS)
    }

    /// The line of text that is being written on the card.
    pub fn line(&self) -> Option<&Composer> {
        match &self.stage {
            CardStage::Reason(line) | CardStage::Modify(line) | CardStage::Comment(line) => Some(line),
            CardStage::Open if self.kind == CardKind::Form => self.surface.line(),
            CardStage::Open => self.ask.line(),
            CardStage::Grant(form) => form.line(),
            CardStage::Edit(_)
            | CardStage::Hunks(_)
            | CardStage::Away
            | CardStage::Deciding(_)
            | CardStage::Stopping => None,
        }
    }

    /// The columns there are for a text that is changed on the card.
    pub fn fit(&mut self, columns: u16) {
        if let CardStage::Edit(text) = &mut self.stage {
            text.set_width(columns);
        }
    }

    /// The scope of that number.
    pub fn scope(&self, number: usize, project: &Path) -> GrantScope {
        match number {
            0 => GrantScope::Run(self.run_id.clone()),
            1 => GrantScope::Thread(self.thread_id.clone()),
            2 => GrantScope::Project(project.to_path_buf()),
            _ => GrantScope::Everywhere,
        }
    }

    /// The scope that is selected first: "always" means always, and for a dangerous call no more than the conversation.
    pub(crate) fn first_scope(&self) -> usize {
        let chosen = self.last_scope.unwrap_or(PROJECT);
        if self.danger().is_some() { chosen.min(CONVERSATION) } else { chosen }
    }

    /// Text that was pasted while a line of the card is written.
    pub fn paste(&mut self, text: &str) -> bool {
        let one_line = aye_core::contract::display::visible_line(text).replace('⏎', " ");
        let line = match &mut self.stage {
            // A command may have several lines.
            CardStage::Edit(command) => {
                let text = text.replace("\r\n", "\n").replace('\r', "\n");
                command.insert_text(&aye_core::contract::display::visible(&text));
                return true;
            }
            CardStage::Reason(line) | CardStage::Modify(line) | CardStage::Comment(line) => Some(&mut **line),
            CardStage::Open if self.kind == CardKind::Form => self.surface.line_mut(),
            CardStage::Open if self.kind == CardKind::Ask && self.ask.takes_text() => {
                self.ask.write(&one_line);
                return true;
            }
            CardStage::Open => None,
            // Nothing is written there: a paste is not an answer, and not a message either.
            CardStage::Hunks(_) | CardStage::Away => return true,
            CardStage::Grant(form) => return form.insert(&one_line),
            CardStage::Deciding(_) | CardStage::Stopping => None,
        };
        let Some(line) = line else { return false };
        line.insert_text(&one_line);
        true
    }
}

/// A question of the terminal's own.
fn own_ticket(id: SuspensionId, action: &str, name: &str, message: &str) -> SuspendTicket {
    SuspendTicket {
        pending: PendingToolCall { id: id.as_str().into(), name: name.to_owned(), arguments: Value::Null },
        suspension: Suspension {
            id,
            action: action.to_owned(),
            message: message.to_owned(),
            parameters: Value::Null,
            response_schema: None,
            expires_at: None,
        },
        resume_mode: ToolCallResumeMode::ReplayToolCall,
    }
}

/// An empty line to write in.
pub(super) fn line() -> Composer {
    let mut line = Composer::default();
    line.set_width(u16::MAX);
    line
}
