//! What the program says about itself: the status line, its pages, trust and themes.

use super::super::app::App;
use super::super::host::{ProgramMsg, TextPage};
use super::super::msg::Cmd;
use super::super::transcript::Level;
use super::super::viewer::Document;

impl App {
    pub(super) fn program_msg(&mut self, msg: ProgramMsg, cmds: &mut Vec<Cmd>) {
        match msg {
            ProgramMsg::Info(info) => {
                if info.agent != self.info.agent {
                    self.conversation.transcript.forget_handoff();
                }
                self.info = *info;
            }
            ProgramMsg::Trusted(trusted) => self.trusted(trusted),
            ProgramMsg::Renewed(renewed) => self.renewed(renewed),
            ProgramMsg::Themes(themes, wanted) => self.list_themes(themes, wanted, cmds),
            ProgramMsg::StatusLine(text) => {
                if let Some(why) = self.display.feed.wrote(text) {
                    self.conversation.transcript.note(Level::Warning, why);
                }
            }
            ProgramMsg::Page(Ok(page)) => self.show_page(page),
            ProgramMsg::Page(Err(error)) => self.conversation.transcript.note(Level::Warning, error),
            ProgramMsg::Unsandboxed(lack) => self.info.unsandboxed = Some(lack),
        }
    }

    /// Shows a page that was asked for: in the conversation, or above it where a card or a running call would leave it
    /// no room.
    fn show_page(&mut self, page: TextPage) {
        let is_hidden = !self.cards.open.is_empty() || self.conversation.transcript.has_open_calls();
        if is_hidden && !self.display.is_linear {
            self.open_book(Document::of_page(page.title, page.text));
        } else {
            self.conversation.transcript.page(page.title, page.text);
        }
    }
}
