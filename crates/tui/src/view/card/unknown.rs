//! A call with an unknown outcome: when it started, and its output so far.

use std::fmt::Write as _;

use ratatui::text::Line;

use super::super::super::app::App;
use super::super::super::approval::Card;
use super::super::super::theme::{Role, Theme};
use super::super::super::wrap::Wrap;
use aye_core::contract::display::visible_line;
use aye_core::contract::question::QuestionDetails;

/// Rows of output that a card shows: the last ones.
const MAX_ROWS: usize = 12;

/// Renders what is known about the call.
pub(super) fn known(card: &Card, app: &App, inner: u16, theme: &Theme) -> Vec<Line<'static>> {
    let QuestionDetails::UnknownOutcome(known) = &card.question.details else { return Vec::new() };
    let dim = theme.style(Role::Dim);
    let mut lines = Vec::new();
    if let Some(started) = known.started_at {
        let mut text = format!("Started at {}", app.clock.hour_and_minute(started));
        if let Some(found) = known.found_at {
            let minutes = found.saturating_sub(started).div_ceil(60_000);
            let passed = match minutes {
                0 | 1 => "a minute".to_owned(),
                2..=120 => format!("{minutes} min"),
                _ => format!("{} h", minutes / 60),
            };
            let _ = write!(
                text,
                " and found interrupted at {}, within {passed}.",
                app.clock.hour_and_minute(found)
            );
        }
        lines.extend(Wrap::words(inner).text(&text, dim));
    }
    let rows: Vec<&str> = known.output.as_deref().unwrap_or_default().trim_end().lines().collect();
    if rows.is_empty() {
        lines.extend(Wrap::words(inner).text("No output was captured.", dim));
        return lines;
    }
    let hidden = rows.len().saturating_sub(MAX_ROWS);
    let head = match hidden {
        0 => "Its output:".to_owned(),
        hidden => format!("The end of its output ({hidden} earlier lines):"),
    };
    lines.extend(Wrap::words(inner).text(&head, dim));
    for row in &rows[hidden..] {
        let wrap = Wrap::kept(inner).prefix(vec!["  ".into()], vec!["  ".into()]);
        lines.extend(wrap.text(&visible_line(row), theme.style(Role::Text)));
    }
    lines
}
