//! Time and a question: what changed since it was asked before, and when it expires.

use ratatui::text::Line;

use super::super::super::app::App;
use super::super::super::approval::Card;
use super::super::super::theme::{Role, Theme};
use super::super::super::wrap::Wrap;
use aye_core::contract::display::visible_line;

/// Lines of differences that a card shows.
const MAX_LINES: usize = 60;

/// Renders the preconditions that changed.
pub(super) fn moved(card: &Card, inner: u16, theme: &Theme) -> Vec<Line<'static>> {
    let style = theme.style(Role::Warning);
    let mut lines = Vec::new();
    for (i, words) in card.question.stale.moved.iter().enumerate() {
        let lead = if i == 0 { "Asked again: " } else { "and " };
        lines.extend(Wrap::words(inner).text(&format!("{lead}{}", visible_line(words)), style));
    }
    if !lines.is_empty() {
        lines.push(Line::default());
    }
    lines
}

/// Renders how files changed in the meantime.
pub(super) fn deltas(card: &Card, inner: u16, theme: &Theme) -> Vec<Line<'static>> {
    let dim = theme.style(Role::Dim);
    let (mut lines, mut shown, mut hidden) = (Vec::new(), 0, 0);
    for delta in &card.question.stale.deltas {
        let mut rest = delta.diff.lines();
        // `--- a/x` and `+++ b/x`: the name is shown once.
        let name = rest.next().and_then(|line| line.strip_prefix("--- a/")).unwrap_or_default();
        let _ = rest.next();
        lines.push(Line::default());
        let head = format!("Changes in {} since the question:", visible_line(name));
        lines.extend(Wrap::words(inner).text(&head, theme.style(Role::Warning)));
        for line in rest {
            if shown == MAX_LINES {
                hidden += 1;
                continue;
            }
            shown += 1;
            let role = match line.as_bytes().first() {
                Some(b'+') => Role::DiffAdd,
                Some(b'-') => Role::DiffDel,
                _ => Role::Dim,
            };
            lines.extend(Wrap::kept(inner).text(&visible_line(line), theme.style(role)));
        }
    }
    if hidden > 0 {
        let text = format!("{hidden} more lines: aye approvals show {}", visible_line(card.id.as_str()));
        lines.extend(Wrap::words(inner).text(&text, dim));
    }
    lines
}

/// Renders how long the question stays open.
pub(super) fn time_left(card: &Card, app: &App, inner: u16, theme: &Theme) -> Vec<Line<'static>> {
    let Some(end) = card.expires_at() else { return Vec::new() };
    let at = app.clock.hour_and_minute(end);
    if card.ticket.suspension.resumes_at().is_some() {
        let text =
            format!("resumes at {at} when the limit resets, also by `aye work` if this terminal is closed");
        return Wrap::words(inner).text(&text, theme.style(Role::Dim));
    }
    let (text, role) = match end.checked_sub(app.unix_now()).filter(|left| *left > 0) {
        None => (format!("expired at {at}; the call will not run"), Role::Warning),
        Some(left) => match left.div_ceil(60_000) {
            1 => (format!("expires in less than a minute, at {at}"), Role::Warning),
            minutes @ 2..=120 => (format!("expires in {minutes} min, at {at}"), Role::Dim),
            minutes @ 121..=2880 => (format!("expires in {} h, at {at}", minutes / 60), Role::Dim),
            minutes => (format!("expires in {} days", minutes / 1440), Role::Dim),
        },
    };
    Wrap::words(inner).text(&text, theme.style(role))
}
