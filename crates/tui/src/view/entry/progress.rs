//! The progress of a running call.

use ratatui::text::{Line, Span};

use super::super::super::theme::Role;
use super::super::super::transcript::ToolProgress;
use super::super::fit;
use super::EntryLayout;
use aye_core::contract::display::visible_line;

/// Renders a bar if the completed part is known, then the count and the message.
pub(super) fn progress(progress: &ToolProgress, page: EntryLayout<'_>) -> Line<'static> {
    let style = |role| page.theme.style(role);
    let mut spans = vec![Span::raw("    ")];
    let mut words = Vec::new();
    if let Some(part) = progress.part {
        let columns = if page.width < 60 { 10 } else { 20 };
        let full = (part * f64::from(columns)).floor() as usize;
        spans.push(Span::styled("━".repeat(full), style(Role::Accent)));
        spans.push(Span::styled("─".repeat(columns as usize - full), style(Role::Dim)));
        spans.push(Span::raw(" "));
        words.push(format!("{}%", (part * 100.0).floor()));
    }
    if let Some((done, all)) = progress.count {
        words.push(format!("{done} of {all}"));
    }
    words.extend(progress.message.as_ref().map(|message| visible_line(message).into_owned()));
    spans.push(Span::styled(words.join(" · "), style(Role::Dim)));
    Line::from(fit(spans, usize::from(page.width)))
}
