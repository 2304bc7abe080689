//! What the program says about itself: the status line, its pages, trust and themes.

use super::super::app::App;
use super::super::host::{ProgramMsg, TextPage};
use super::super::msg::Cmd;
use super::super::transcript::Level;
use super::super::viewer::Document;
use super::super::wrap::width;

/// Rows beside a page in the conversation: its title, the blank rows around it, the composer and the status line.
const BESIDE_PAGE: usize = 7;

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
            ProgramMsg::ToolsChanged(rows) => self.tools_changed(rows),
        }
    }

    /// Shows a page that was asked for: in the conversation, or above it where it is too long for the screen, or a card or
    /// a running call would leave it no room.
    fn show_page(&mut self, page: TextPage) {
        self.display.hint = None;
        // A long line has several rows.
        let columns = usize::from(self.display.size.0.saturating_sub(4).max(1));
        let rows = page.text.lines().map(|line| width(line).div_ceil(columns).max(1)).sum::<usize>();
        let is_long = rows + BESIDE_PAGE > usize::from(self.display.size.1);
        let is_hidden = !self.cards.open.is_empty() || self.conversation.transcript.has_open_calls();
        if (is_long || is_hidden) && !self.display.is_linear {
            self.open_document(Document::of_page(page));
        } else {
            self.conversation.transcript.add_page(page);
        }
    }
}
