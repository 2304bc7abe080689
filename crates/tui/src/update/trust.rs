//! The question of trust: a card beside the prompt, which nothing waits for.

use super::super::app::{App, Focus, RunState};
use super::super::approval::{Card, CardKind, CardStage};
use super::super::host::{ChangedTools, ProgramCmd, Renewal};
use super::super::msg::Cmd;
use super::super::palette::HostPage;
use super::super::transcript::{Level, Moment};

/// How long to wait for activity to end before the next attempt to renew the program, in milliseconds.
const AGAIN_MS: u64 = 500;

impl App {
    /// Adds the trust card as the last one, unless there is nothing to trust, and that of changed tools.
    pub(super) fn offer_trust(&mut self) {
        let Some(thread) = self.conversation.id().cloned() else { return };
        if !self.untrusted.is_empty() && !self.cards.open.iter().any(Card::is_of_folder) {
            self.cards.open.push(Card::trust(thread.clone()));
        }
        if self.asks_tools && !self.cards.open.iter().any(Card::is_of_tools) {
            self.cards.open.push(Card::tools(thread));
        }
    }

    /// Asks about tools that changed, once for the same tools.
    pub(super) fn tools_changed(&mut self, rows: Vec<ChangedTools>) {
        if rows == self.changed_tools {
            return;
        }
        // An answer to what was shown before would be one to something else.
        self.remove_cards(Card::is_of_tools);
        self.asks_tools = !rows.is_empty();
        self.changed_tools = rows;
        self.offer_trust();
    }

    /// The answer to that question.
    pub(super) fn use_tools(&mut self, is_yes: bool, cmds: &mut Vec<Cmd>) {
        self.asks_tools = false;
        self.remove_cards(Card::is_of_tools);
        if is_yes {
            let page = |row: &ChangedTools| {
                Cmd::Program(ProgramCmd::Page(
                    None,
                    HostPage::Mcp,
                    format!("agree {} {}", row.digest, row.typed),
                ))
            };
            cmds.extend(self.changed_tools.iter().map(page));
        } else {
            self.show_hint("not used; /mcp shows them");
        }
    }

    /// Returns whether the current card is shown in full: next to an active run, the trust question is one
    /// row.
    pub(in super::super) fn is_card_whole(&self) -> bool {
        self.asking_card().is_some() || self.focus == Focus::Card || self.display.is_linear
    }

    /// Gives the keys back to the text when a run becomes active, unless the user went to the card since.
    pub(in super::super) fn leave_trust_to_run(&mut self) {
        let since = self.conversation.run.active_since();
        let trust = self.current_card().filter(|card| card.kind == CardKind::Trust);
        if trust.is_some_and(|card| since.zip(card.seen).is_some_and(|(since, seen)| seen <= since)) {
            self.focus = Focus::Composer;
        }
    }

    pub(super) fn leave_untrusted(&mut self) {
        self.end_trust();
        self.show_hint("not trusted; these files are not used in this session");
    }

    fn end_trust(&mut self) {
        self.untrusted.clear();
        self.remove_cards(Card::is_of_folder);
    }

    pub(super) fn trusted(&mut self, trusted: Result<(), String>) {
        match trusted {
            Ok(()) => {
                self.end_trust();
                self.renews = Some(self.now);
                if !self.is_at_rest() {
                    self.conversation
                        .transcript
                        .note(Level::Info, "this folder is trusted; its files apply after this run");
                }
            }
            Err(error) => {
                for card in self.cards.open.iter_mut().filter(|card| card.is_of_folder()) {
                    card.stage = CardStage::Open;
                    card.problem = Some(error.clone());
                }
            }
        }
    }

    /// Returns whether nothing is active that the folder's settings could affect.
    pub(in super::super) fn is_at_rest(&self) -> bool {
        matches!(self.conversation.run, RunState::Idle | RunState::Waiting)
            && self.conversation.thread.is_some()
            && self.conversation.tasks == 0
            && self.conversation.loading.opening == 0
            && self.queue.unsent.is_empty()
            && !self.cards.open.iter().any(Card::is_deciding)
    }

    pub(super) fn renew_trust(&mut self, cmds: &mut Vec<Cmd>) {
        let now = self.now;
        if self.is_at_rest() && self.renews.take_if(|at| *at <= now).is_some() {
            cmds.push(Cmd::Renew);
        }
    }

    /// The earliest time of the next try, while one is due.
    pub(in super::super) fn renewal_deadline(&self) -> Option<Moment> {
        self.renews.filter(|_| self.is_at_rest())
    }

    pub(super) fn renewed(&mut self, renewed: Result<Option<Box<Renewal>>, String>) {
        match renewed {
            Ok(Some(renewal)) => {
                let Renewal { info, untrusted } = *renewal;
                for warning in info.warnings.iter().filter(|warning| !self.info.warnings.contains(warning)) {
                    self.conversation.transcript.note(Level::Warning, warning.clone());
                }
                let (level, text) = if untrusted.is_empty() {
                    (Level::Info, "this folder is trusted; its files apply from now on")
                } else {
                    (Level::Warning, "files of this folder changed meanwhile; it is not trusted")
                };
                self.conversation.transcript.note(level, text);
                self.info = info;
                self.untrusted = untrusted;
                self.offer_trust();
            }
            Ok(None) => self.renews = Some(self.now.plus(AGAIN_MS)),
            Err(error) => {
                let text =
                    format!("this folder is trusted, but its files do not apply in this session: {error}");
                self.conversation.transcript.note(Level::Error, text);
            }
        }
    }
}
