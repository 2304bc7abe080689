//! Editing a call on its card: what is edited, how, and how the edit is assembled.

use std::path::PathBuf;

use serde_json::Value;

use super::{Card, CardAction, CardKind, CardStage};
use crate::composer::Composer;
use crate::diff::hunks::Hunks;
use crate::host::Review;
use aye_core::contract::judgement::{Risk, Ruling};

/// Arguments in place of the proposed ones, and what is known of them.
#[derive(Clone, Debug)]
pub struct ArgumentEdit {
    pub arguments: Value,
    /// The review of the arguments by the rules and the tool; `None` until it is known.
    pub review: Option<Result<Review, String>>,
}

/// The text to open in the user's editor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditorDocument {
    pub text: String,
    /// A name for its file.
    pub name: String,
    /// The argument that the text is; all of them as JSON when `None`.
    pub argument: Option<&'static str>,
}

impl Card {
    /// The arguments as they would run now: the edited ones, else the proposed ones.
    pub fn arguments(&self) -> &Value {
        self.edit.as_ref().map_or(&self.ticket.pending.arguments, |edit| &edit.arguments)
    }

    /// Whether the question is asked again for a version that was edited; the question then contains the
    /// model's original proposal.
    pub fn asked_again_as_edited(&self) -> bool {
        self.question.original.is_some()
    }

    /// The argument that is a text of its own, for tools that have one.
    fn text_argument(&self) -> Option<&'static str> {
        match self.ticket.pending.name.as_str() {
            "Write" => Some("content"),
            "Edit" => Some("new_string"),
            _ => None,
        }
        .filter(|name| self.arguments().get(*name).is_some_and(Value::is_string))
    }

    /// `e`: the command on the card, everything else in the editor.
    pub(super) fn begin_edit(&mut self) -> CardAction {
        if let Some(command) = self.command() {
            let mut text = Composer::default();
            text.set(command);
            self.stage = CardStage::Edit(Box::new(text));
            return CardAction::Taken;
        }
        let kept = self.draft.take();
        let arguments = self.arguments();
        let text = |name: &str| arguments.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let draft = match self.text_argument() {
            Some(argument) => {
                EditorDocument { text: text(argument), name: text("file_path"), argument: Some(argument) }
            }
            None => EditorDocument {
                text: kept.unwrap_or_else(|| {
                    format!("{}\n", serde_json::to_string_pretty(arguments).unwrap_or_default())
                }),
                name: format!("{}.json", self.ticket.pending.name),
                argument: None,
            },
        };
        self.stage = CardStage::Away;
        CardAction::Editor(draft)
    }

    /// Takes in the text from the editor.
    pub fn edited_away(
        &mut self,
        argument: Option<&'static str>,
        text: Result<String, String>,
    ) -> CardAction {
        self.stage = CardStage::Open;
        let text = match text {
            Ok(text) => text,
            Err(why) => {
                self.problem = Some(why);
                return CardAction::Taken;
            }
        };
        if let Some(name) = argument {
            return self.with_argument(name, text);
        }
        if text.trim().is_empty() {
            self.problem = Some("the text is empty; nothing changed".to_owned());
            return CardAction::Taken;
        }
        match serde_json::from_str::<Value>(&text) {
            Ok(arguments) => self.with_arguments(arguments),
            Err(error) => {
                let (line, column) = (error.line(), error.column());
                self.problem =
                    Some(format!("invalid JSON at line {line}, column {column}; e reopens your text"));
                self.draft = Some(text);
                CardAction::Taken
            }
        }
    }

    /// The command that was written on the card.
    pub(super) fn edited_here(&mut self) -> CardAction {
        let CardStage::Edit(text) = &mut self.stage else { return CardAction::NotMine };
        let text = text.take();
        self.stage = CardStage::Open;
        if text.trim().is_empty() {
            self.problem = Some("the command is empty; nothing changed".to_owned());
            return CardAction::Taken;
        }
        self.with_argument("command", text)
    }

    fn with_argument(&mut self, name: &str, text: String) -> CardAction {
        let mut arguments = self.arguments().clone();
        match arguments.get_mut(name) {
            Some(value) => *value = Value::from(text),
            None => return CardAction::Taken,
        }
        self.with_arguments(arguments)
    }

    fn with_arguments(&mut self, arguments: Value) -> CardAction {
        if arguments == self.ticket.pending.arguments {
            let text = if self.edit.is_some() {
                self.unedit();
                "edits discarded; this is the original proposal"
            } else {
                "nothing changed"
            };
            self.problem = Some(text.to_owned());
            return CardAction::Taken;
        }
        self.edit = Some(ArgumentEdit { arguments: arguments.clone(), review: None });
        self.mark_unseen();
        CardAction::Review(arguments)
    }

    /// Takes in the review of the edited arguments; a review of other arguments came too late and is ignored.
    pub fn reviewed(&mut self, arguments: &Value, review: Result<Review, String>) {
        if let Some(edit) = self.edit.as_mut().filter(|edit| edit.arguments == *arguments) {
            edit.review = Some(review);
            self.mark_unseen();
        }
    }

    /// Goes back to what was proposed.
    pub(super) fn unedit(&mut self) {
        self.edit = None;
        self.mark_unseen();
    }

    /// Resets the card because its content has changed: it has to be seen and read again.
    pub(crate) fn mark_unseen(&mut self) {
        self.seen = None;
        self.read = 0;
        self.is_unread = false;
        self.choice = None;
        self.scroll = 0;
    }

    /// Why the edited version cannot be allowed, when it cannot.
    pub(super) fn edit_problem(&self) -> Option<String> {
        let edit = self.edit.as_ref()?;
        match &edit.review {
            None => Some("the edited call is being checked; wait a moment".to_owned()),
            Some(Err(why)) => Some(format!("{why}; e: edit, u: discard")),
            Some(Ok(review)) => match review.ruling {
                Ruling::Allow | Ruling::Ask => None,
                Ruling::Deny | Ruling::Error => {
                    Some(format!("the edited call would not run: {}; e: edit, u: discard", review.words))
                }
            },
        }
    }

    /// Splits the change of the text that would be written into hunks; shows a message if there is none.
    pub(super) fn begin_hunks(&mut self) -> CardAction {
        let text = |name: &str| self.arguments().get(name).and_then(Value::as_str).map(str::to_owned);
        let texts = match self.text_argument() {
            Some("new_string") => text("old_string").zip(text("new_string")),
            Some("content") => {
                let previews = self.previews();
                let old = previews.first().and_then(|preview| match preview.before {
                    None => Some(String::new()),
                    Some(_) => preview.old_text.clone(),
                });
                old.zip(text("content"))
            }
            _ => None,
        };
        let hunks = texts.map(|(old, new)| {
            let (file, places, [before, after]) = self.places_of(&old);
            Hunks::between(&old, &new).in_file(file, places).within(before, after)
        });
        match hunks {
            Some(hunks) if !hunks.all().is_empty() => self.stage = CardStage::Hunks(Box::new(hunks)),
            Some(_) => self.problem = Some("the edited call changes nothing".to_owned()),
            None => {
                self.problem = Some("this call has no hunks to choose; e edits the call".to_owned());
            }
        }
        self.scroll = 0;
        CardAction::Taken
    }

    /// Returns the changed file, for each place where the text is replaced the number of lines before it, and what stands
    /// around the first place on its lines.
    fn places_of(&self, old: &str) -> (PathBuf, Vec<usize>, [&str; 2]) {
        let Some(preview) = self.previews().first() else { return Default::default() };
        if self.text_argument() == Some("content") {
            return (preview.path.clone(), vec![0], [""; 2]);
        }
        let text = preview.old_text.as_deref().unwrap_or_default();
        // Models write `\n` whatever line endings the file has.
        let crlf = old.replace('\n', "\r\n");
        let old = if text.contains(old) { old } else { &crlf };
        let is_for_all = self.arguments().get("replace_all") == Some(&Value::Bool(true));
        let most = if is_for_all { usize::MAX } else { 1 };
        let line_of = |(at, _): (usize, &str)| text[..at].matches('\n').count();
        let places: Vec<_> = text.match_indices(old).take(most).map(line_of).collect();
        let around = text.split_once(old).map(|(before, after)| {
            let before = before.rsplit('\n').next().unwrap_or_default();
            [before, after.split('\n').next().unwrap_or_default().trim_end_matches('\r')]
        });
        (preview.path.clone(), places, around.unwrap_or_default())
    }

    /// Takes the pieces that stay.
    pub(super) fn accept_hunks(&mut self) -> CardAction {
        let CardStage::Hunks(hunks) = &self.stage else { return CardAction::NotMine };
        if hunks.kept() == 0 {
            self.problem = Some("all hunks are dropped; press Esc, then n to deny the call".to_owned());
            return CardAction::Taken;
        }
        let (text, changed) = (hunks.text(), hunks.kept() < hunks.all().len());
        self.stage = CardStage::Open;
        self.scroll = 0;
        if !changed {
            return CardAction::Taken;
        }
        match self.text_argument() {
            Some(name) => self.with_argument(name, text),
            None => CardAction::Taken,
        }
    }

    /// Whether the call only reads, according to the rules when the question was asked.
    pub fn only_reads(&self) -> bool {
        self.question.approval().and_then(|request| request.risk) == Some(Risk::Reads)
    }

    /// Whether an answer to several cards at once may include this one.
    pub fn takes_batch(&self) -> bool {
        self.kind == CardKind::Permission && matches!(self.stage, CardStage::Open)
    }
}
