//! What the program says about itself: the status line, its pages, trust and themes.

use super::super::app::App;
use super::super::host::ProgramMsg;
use super::super::msg::Cmd;
use super::super::transcript::Level;

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
            ProgramMsg::Page(Ok(page)) => self.conversation.transcript.page(page.title, page.text),
            ProgramMsg::Page(Err(error)) => self.conversation.transcript.note(Level::Warning, error),
            ProgramMsg::Unsandboxed(lack) => self.info.unsandboxed = Some(lack),
        }
    }
}
