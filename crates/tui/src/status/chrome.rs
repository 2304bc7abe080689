//! The terminal's display outside its text: the window title and the progress next to it.

use super::short_path;
use crate::app::App;
use aye_core::contract::display::visible_line;

/// Characters of a title.
const MOST: usize = 120;

/// Progress beside the program's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TitleProgress {
    #[default]
    None,
    Working,
    /// A question is waiting for the user.
    Waiting,
}

impl TitleProgress {
    /// The bytes that show it.
    pub fn bytes(self) -> &'static [u8] {
        match self {
            TitleProgress::None => b"\x1b]9;4;0;0\x1b\\",
            TitleProgress::Working => b"\x1b]9;4;3;0\x1b\\",
            TitleProgress::Waiting => b"\x1b]9;4;4;100\x1b\\",
        }
    }
}

/// The title and progress of the window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chrome {
    /// The title, safe to send.
    pub title: String,
    pub progress: TitleProgress,
}

/// Returns the window title and progress for the model.
pub fn chrome(app: &App) -> Chrome {
    let progress = if app.own_cards() > 0 {
        TitleProgress::Waiting
    } else if app.conversation.is_active() {
        TitleProgress::Working
    } else {
        TitleProgress::None
    };
    let mark = match progress {
        TitleProgress::None => "",
        TitleProgress::Working => "… ",
        TitleProgress::Waiting => "? ",
    };
    let place = short_path(&app.info.cwd, app.info.home.as_deref());
    let place = place.rsplit('/').next().filter(|last| !last.is_empty()).unwrap_or(&place).to_owned();
    let title =
        app.conversation.thread.as_ref().map(|thread| thread.title.trim()).filter(|title| !title.is_empty());
    let text = match title {
        Some(title) => format!("{mark}{} · {place} · aye", visible_line(title)),
        None => format!("{mark}{place} · aye"),
    };
    Chrome { title: text.chars().take(MOST).collect(), progress }
}
