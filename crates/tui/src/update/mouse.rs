//! The mouse, where it is ours: the wheel, text selection, and clicks below the transcript.

use crossterm::event::MouseEvent;

use super::super::app::{App, Focus};
use super::super::approval::QUIET_MS;
use super::super::keymap::{Action, Chord, KeyContext};
use super::super::msg::Cmd;
use super::super::palette::CompletionKind;
use super::super::view::{self, Press};

/// Rows that a turn of the wheel moves.
const WHEEL: isize = 3;

impl App {
    /// The mouse, while a screen of ours is up.
    pub(super) fn mouse(&mut self, event: MouseEvent, cmds: &mut Vec<Cmd>) {
        let Some(chord) = Chord::of_mouse(event) else { return };
        let Some(action) = self.keymap.action_of(KeyContext::Viewer, chord) else { return };
        if action == Action::Choose
            && let Some(press) = view::viewer::press_at(self, event.row, event.column)
        {
            self.press(press, event.column, cmds);
            return;
        }
        let (row, column) = (usize::from(event.row), usize::from(event.column).saturating_sub(1));
        let text = self.read(|reader, scene| match action {
            Action::Choose if row < scene.rows => {
                reader.choose(scene, row);
                reader.drag(scene, true, row, column);
                None
            }
            Action::Mark => {
                reader.drag(scene, false, row.min(scene.rows.saturating_sub(1)), column);
                None
            }
            Action::CopyMark => reader.marked(scene),
            _ => None,
        });
        match action {
            Action::Choose | Action::Mark | Action::CopyMark => {
                if let Some(text) = text.flatten() {
                    self.copy_out(text, "selection", cmds);
                }
            }
            Action::ScrollUp => drop(self.read(|reader, scene| reader.scroll(scene, -WHEEL))),
            Action::ScrollDown => drop(self.read(|reader, scene| reader.scroll(scene, WHEEL))),
            other => self.reader_action(other, cmds),
        }
    }

    /// A click below the conversation.
    fn press(&mut self, press: Press, column: u16, cmds: &mut Vec<Cmd>) {
        // The selection stays as it is, and is not copied again when the button is released.
        self.read(|reader, _| reader.mark = None);
        // A click at the moment a question appears was meant for something else.
        let is_sudden = self.focus == Focus::Card && self.now.since(self.cards.focused_at) < QUIET_MS;
        match press {
            Press::Key(_)
                if is_sudden && self.overlays.picker.is_none() && self.overlays.viewer.is_none() => {}
            Press::Key(key) => self.key(key, cmds),
            Press::Row(row) => self.press_row(row, cmds),
            Press::Queued(at) => self.press_queued(at, cmds),
            Press::Text(row) => {
                self.focus = Focus::Composer;
                self.typed_at = Some(self.now);
                self.composer.go_to_cell(row, usize::from(column.saturating_sub(2)));
                self.refresh_palette(cmds);
            }
        }
    }

    /// Chooses a row of the list that is open; one that is chosen is taken.
    fn press_row(&mut self, row: usize, cmds: &mut Vec<Cmd>) {
        let by = |selected: usize| row.cast_signed().wrapping_sub(selected.cast_signed());
        let is_chosen = if let Some(picker) = &mut self.overlays.picker {
            let by = by(picker.selected());
            picker.step(by);
            by == 0
        } else if let Some(palette) = &mut self.completion.palette {
            let is_chosen =
                row == palette.selected && (palette.is_chosen || palette.offer != CompletionKind::Words);
            palette.step(by(palette.selected));
            is_chosen
        } else {
            return;
        };
        if is_chosen && let Some(enter) = self.keymap.key_of(KeyContext::List, Action::Accept) {
            self.key(enter, cmds);
        }
    }
}
