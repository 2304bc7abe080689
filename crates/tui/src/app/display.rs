//! How things are shown.

use crate::diff::DiffLayout;
use crate::image_cache::ImageCache;
use crate::status::{Segment, StatusCommand};
use crate::transcript::Moment;
use crate::update::ThemeState;

/// How things are shown: the size, the colours, the status line, and what the user prefers.
#[derive(Debug, Default)]
pub struct DisplayState {
    /// Columns and rows of the terminal.
    pub size: (u16, u16),
    /// The segments of the status line, if the user chose them.
    pub segments: Option<Vec<Segment>>,
    /// A command that writes the status line.
    pub feed: StatusCommand,
    /// The layout of changes.
    pub layout: DiffLayout,
    /// A line for the user that disappears after a while.
    pub hint: Option<(String, Moment)>,
    /// Whether animations are off; only the seconds change.
    pub is_calm: bool,
    /// It is written for a screen reader: cards are answered in words and do not take the keys by themselves.
    pub is_linear: bool,
    /// Whether the terminal has the focus. It is assumed to until it reports otherwise.
    pub(crate) has_focus: bool,
    /// Whether a question sounds the bell while the terminal does not have the focus.
    pub(crate) rings: bool,
    /// Whether the first frame was shown.
    pub(crate) is_shown: bool,
    /// Whether running tools show more of their output.
    pub expanded: bool,
    /// The last entry that was shown whole.
    pub(crate) unfolded: Option<u64>,
    /// The themes and the background of the text.
    pub colours: ThemeState,
    /// Pictures of the conversation that are shown.
    pub image_cache: ImageCache,
}
