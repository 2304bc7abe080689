//! Themes: a list whose selected row is previewed at once, and the terminal's report of its background.

use super::super::app::App;
use super::super::host::{Choice, ProgramCmd};
use super::super::msg::Cmd;
use super::super::picker::{PickRow, PickerKind};
use super::super::theme::{Background, ThemeChoice, ThemeRow};
use super::super::transcript::{Level, Moment};

/// An answer of the terminal that comes later than this changes no colours any more.
const ANSWER_MS: u64 = 2000;

/// Themes and the terminal's background.
#[derive(Debug, Default)]
pub struct ThemeState {
    /// The colours in use.
    pub theme: ThemeChoice,
    /// Themes that can be chosen, while the list of them is open.
    pub listed: Vec<ThemeRow>,
    /// The terminal's background, if known.
    pub background: Option<Background>,
    /// When the terminal was asked for its background.
    pub(crate) asked: Option<Moment>,
}

impl App {
    /// Opens the list of themes and queries the terminal's background, on which theme pairs depend.
    pub(super) fn fetch_themes(&mut self, cmds: &mut Vec<Cmd>) {
        self.fetch(PickerKind::Themes, Cmd::Program(ProgramCmd::Themes(None)), cmds);
        self.ask_background(cmds);
    }

    /// Queries the terminal's background after the first frame, if the colours depend on the background.
    pub(super) fn ask_first(&mut self, cmds: &mut Vec<Cmd>) {
        if !std::mem::replace(&mut self.display.is_shown, true) && !self.display.colours.theme.is_fixed() {
            self.ask_background(cmds);
        }
    }

    fn ask_background(&mut self, cmds: &mut Vec<Cmd>) {
        self.display.colours.asked = Some(self.now);
        cmds.push(Cmd::AskBackground);
    }

    pub(super) fn background_is(&mut self, background: Background) {
        if self.display.colours.asked.take().is_some_and(|asked| self.now.since(asked) <= ANSWER_MS) {
            self.display.colours.background = Some(background);
        }
    }

    /// The themes have come: for the list, or to use one of them.
    pub(super) fn list_themes(&mut self, themes: Vec<ThemeRow>, wanted: Option<String>, cmds: &mut Vec<Cmd>) {
        self.display.colours.listed = themes;
        if let Some(name) = wanted {
            self.use_theme(&name, cmds);
            return;
        }
        let row = |theme: &ThemeRow| PickRow {
            value: theme.name.clone(),
            label: theme.name.clone(),
            detail: theme.detail.clone(),
            note: if theme.name == self.display.colours.theme.name { "in use".into() } else { String::new() },
            unusable: theme.theme.as_ref().err().cloned(),
            is_heading: false,
        };
        let rows: Vec<PickRow> = self.display.colours.listed.iter().map(row).collect();
        let used = rows.iter().position(|row| row.value == self.display.colours.theme.name).unwrap_or(0);
        if let Some(picker) = self.overlays.picker.as_mut().filter(|picker| picker.kind == PickerKind::Themes)
        {
            let is_first = picker.is_loading();
            picker.fill(rows);
            if is_first && picker.filter().is_empty() {
                picker.step(isize::try_from(used).unwrap_or(0));
            }
        }
    }

    /// Uses a theme from now on, and has it kept.
    pub(super) fn use_theme(&mut self, name: &str, cmds: &mut Vec<Cmd>) {
        match self.display.colours.listed.iter().find(|row| row.name == name).map(|row| row.theme.clone()) {
            Some(Ok(theme)) => {
                self.display.colours.theme = theme;
                cmds.push(Cmd::Program(ProgramCmd::Keep(Choice::Theme, name.to_owned())));
                if !self.display.colours.theme.is_fixed() {
                    self.ask_background(cmds);
                }
            }
            Some(Err(why)) => self.conversation.transcript.note(Level::Error, why),
            None => self.show_hint(format!("unknown theme {name}; /theme lists the themes")),
        }
    }
}
