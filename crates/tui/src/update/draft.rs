//! Keeps the draft across the end of the program, however it ends.

use super::super::app::App;
use super::super::composer::paste::Draft;
use super::super::host::{KeepDraft, WritingCmd};
use super::super::msg::Cmd;
use aye_core::contract::ids::ThreadId;

/// How long a change may wait before it is stored, in milliseconds. Long enough that a message that was sent
/// is stored by then.
const KEEP_MS: u64 = 400;

impl App {
    /// Keeps the text when it changed some time ago.
    pub(super) fn keep_draft(&mut self, cmds: &mut Vec<Cmd>) {
        let is_kept = self.composer.text() == self.kept.text
            && (self.kept.text.is_empty() || self.kept.thread.as_ref() == self.conversation.id());
        match self.kept.due {
            _ if is_kept => self.kept.due = None,
            None => self.kept.due = Some(self.now.plus(KEEP_MS)),
            Some(due) if due <= self.now => self.keep_draft_now(cmds),
            Some(_) => {}
        }
    }

    /// Keeps the text as it is now.
    pub(super) fn keep_draft_now(&mut self, cmds: &mut Vec<Cmd>) {
        self.kept.due = None;
        let Some(thread) = self.conversation.id().cloned() else { return };
        let is_same = self.composer.text() == self.kept.text;
        if is_same && (self.kept.text.is_empty() || self.kept.thread.as_ref() == Some(&thread)) {
            return;
        }
        let before = self.kept.thread.replace(thread.clone()).filter(|before| *before != thread);
        if let Some(before) = before.filter(|_| !self.kept.text.is_empty()) {
            self.send_draft(before, Draft::default(), cmds);
        }
        self.kept.text = self.composer.text().to_owned();
        self.send_draft(thread, self.composer.draft(), cmds);
    }

    fn send_draft(&mut self, thread: ThreadId, draft: Draft, cmds: &mut Vec<Cmd>) {
        self.kept.number += 1;
        let is_new = self.conversation.transcript.is_empty();
        cmds.push(Cmd::Writing(WritingCmd::KeepDraft(KeepDraft {
            number: self.kept.number,
            thread,
            is_new,
            draft,
        })));
    }

    /// Restores the draft that an earlier process stored. What was written here before the answer came is no such draft, and
    /// may have been sent since.
    pub(super) fn drafted(&mut self, thread: &ThreadId, draft: Draft, cmds: &mut Vec<Cmd>) {
        if self.conversation.id() != Some(thread)
            || self.kept.thread.as_ref() == Some(thread)
            || draft.text.is_empty()
            || draft.text == self.composer.text()
        {
            return;
        }
        self.composer.restore(draft);
        self.show_hint("draft restored");
        self.refresh_palette(cmds);
    }
}
