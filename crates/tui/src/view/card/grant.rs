//! The rule to grant, in words, and the calls it would have matched.

use ratatui::text::{Line, Span};

use super::super::super::app::App;
use super::super::super::approval::grant::{GrantForm, Writing};
use super::super::super::approval::{Card, SCOPES};
use super::super::super::status::short_path;
use super::super::super::theme::{Role, Theme};
use super::super::super::wrap::{Wrap, truncate};
use super::super::text::marked;
use aye_core::contract::display::visible_line;
use aye_core::contract::grant::GrantPreview;
use aye_core::contract::question::GrantProposal;

/// Returns what can be always allowed, for the row of that answer.
pub(super) fn offer(proposals: &[GrantProposal]) -> String {
    let mut texts = proposals.iter().map(|proposal| visible_line(&proposal.text));
    let Some(first) = texts.next() else { return String::new() };
    let first = if first.starts_with("exactly ") { "exactly this command".into() } else { first };
    match texts.next() {
        Some(second) => format!("{first}, or {second}"),
        None => first.into_owned(),
    }
}

/// The form: first what Enter stores, in words, so that it is on the screen however small that is.
pub(super) fn grant(
    card: &Card,
    form: &GrantForm,
    app: &App,
    inner: u16,
    theme: &Theme,
) -> Vec<Line<'static>> {
    let pattern = form.pattern(card.question.proposals());
    let preview = form.preview(&pattern);
    let problem = preview.and_then(|preview| preview.problem.as_deref());
    let is_writing = matches!(form.writing, Some(Writing::Pattern(_)));
    let mut lines = Vec::new();
    if let Some(problem) = problem {
        let text = format!("{} cannot be granted here: {}", visible_line(&pattern), visible_line(problem));
        lines.extend(Wrap::words(inner).text(&text, theme.style(Role::Error)));
    }
    if !is_writing {
        if problem.is_none() {
            let chosen = card.question.proposals().get(form.chosen);
            let what = chosen.map_or_else(
                || format!("calls that match {}", visible_line(&pattern)),
                |proposal| visible_line(&proposal.text).into_owned(),
            );
            let text = format!("Always allow {what} {}, {}", reach(form.scope, card, app), form.end.words());
            lines.extend(Wrap::words(inner).line(&Line::from(marked(&text, Role::Strong, theme))));
        }
        lines.extend(choices(card, form, inner, theme));
        lines.extend(how_far(form, inner, theme));
        if problem.is_none() {
            lines
                .extend(Wrap::kept(inner).indent(2, 4).text(&visible_line(&pattern), theme.style(Role::Dim)));
        }
    }
    if let Some(preview) = preview.filter(|preview| preview.problem.is_none()) {
        lines.extend(matched(preview, app, inner, theme));
    }
    lines
}

fn reach(scope: usize, card: &Card, app: &App) -> String {
    match scope {
        0 => "until this run ends".to_owned(),
        1 => "in this conversation".to_owned(),
        2 => {
            let project = card.project(&app.info.project);
            format!("in {}", short_path(project, app.info.home.as_deref()))
        }
        _ => "in all your projects".to_owned(),
    }
}

/// The rules there are to choose from, in words.
fn choices(card: &Card, form: &GrantForm, inner: u16, theme: &Theme) -> Vec<Line<'static>> {
    let proposed = card.question.proposals().iter().map(|proposal| proposal.text.as_str());
    let own = form.own.iter().map(|_| "a pattern of your own");
    let mut lines = Vec::new();
    let texts: Vec<&str> = proposed.chain(own).collect();
    // A single one is in the first line already.
    for (i, text) in texts.iter().enumerate().filter(|_| texts.len() > 1) {
        let is_here = i == form.chosen;
        let role = if is_here { Role::Accent } else { Role::Text };
        let style = theme.style(role);
        let lead = format!("{} {}  ", if is_here { "▸" } else { " " }, i + 1);
        let wrap = Wrap::words(inner).prefix(vec![Span::styled(lead, style)], vec![Span::raw("     ")]);
        lines.extend(wrap.line(&Line::from(marked(&visible_line(text), role, theme))));
    }
    lines
}

fn how_far(form: &GrantForm, inner: u16, theme: &Theme) -> Vec<Line<'static>> {
    let mut scopes = vec![Span::styled("  for ", theme.style(Role::Dim))];
    for (i, name) in SCOPES.iter().enumerate() {
        if i > 0 {
            scopes.push(Span::styled(" · ", theme.style(Role::Dim)));
        }
        let text = if i == form.scope { format!("[{name}]") } else { (*name).to_owned() };
        scopes.push(Span::styled(text, theme.style(if i == form.scope { Role::Accent } else { Role::Dim })));
    }
    Wrap::words(inner).indent(0, 6).line(&Line::from(scopes))
}

/// Renders which past calls of this project the grant would have matched.
fn matched(preview: &GrantPreview, app: &App, inner: u16, theme: &Theme) -> Vec<Line<'static>> {
    let (dim, warning) = (theme.style(Role::Dim), theme.style(Role::Warning));
    let others = |n: usize| if n == 1 { "call" } else { "calls" };
    let head = match (preview.total, preview.of) {
        (_, 0) => "this project has no other call of this tool yet".to_owned(),
        (0, _) => "would have matched no earlier call in this project".to_owned(),
        (total, of) => format!("would have matched {total} of {of} earlier {} in this project:", others(of)),
    };
    let mut lines = Wrap::words(inner).indent(2, 2).text(&head, dim);
    for row in &preview.matches {
        let style = if row.declined > 0 { warning } else { dim };
        let times = if row.times > 1 { format!(" ×{}", row.times) } else { String::new() };
        let no = if row.declined > 0 { ", denied by you" } else { "" };
        let note = format!("{times}, {}{no}", app.clock.ago(app.now, row.last_at));
        let room = inner.saturating_sub(4).saturating_sub(note.chars().count() as u16).max(8);
        let text = format!("    {}{note}", truncate(&visible_line(&row.summary), room));
        lines.push(Line::styled(truncate(&text, inner), style));
    }
    let more = preview.total.saturating_sub(preview.matches.len());
    let (text, style) = match (more, preview.declined) {
        (0, 0) => (None, dim),
        (more, 0) => (Some(format!("and {more} more; you denied none of them")), dim),
        (0, declined) => (Some(format!("you denied {declined} of them")), warning),
        (more, declined) => (Some(format!("and {more} more; you denied {declined} of them all")), warning),
    };
    if let Some(text) = text {
        // A warning about denied calls goes where it is seen first.
        let at = if preview.declined > 0 { 1.min(lines.len()) } else { lines.len() };
        lines.insert(at, Line::styled(truncate(&format!("    {text}"), inner), style));
    }
    lines
}
