//! The model's task list: its changes in the call, and all of it below the transcript while an item is open.

use ratatui::text::{Line, Span};

use super::super::super::theme::Role;
use super::super::super::transcript::{Todo, TodoState, ToolEntry};
use super::super::super::wrap::{Wrap, truncate};
use super::EntryLayout;
use aye_core::contract::display::visible_line;

fn mark_of(state: TodoState) -> (&'static str, Role) {
    match state {
        TodoState::Done => ("✓ ", Role::Dim),
        TodoState::Current => ("▸ ", Role::Accent),
        TodoState::Open => ("○ ", Role::Text),
    }
}

/// Renders what a call changed in the plan; all of the plan if there was none before, or if everything is
/// done.
pub(super) fn changed(tool: &ToolEntry, page: EntryLayout<'_>) -> Vec<Line<'static>> {
    let plan = Todo::all(&tool.arguments);
    let is_over = plan.iter().all(|todo| todo.state == TodoState::Done);
    let mut lines = Vec::new();
    for todo in plan.iter().filter(|todo| is_over || page.expanded || !tool.planned.contains(todo)) {
        let (mark, role) = mark_of(todo.state);
        let style = page.theme.style(role);
        let wrap = Wrap::words(page.width)
            .prefix(vec![Span::styled(format!("    {mark}"), style)], vec![Span::raw("      ")]);
        lines.extend(wrap.text(&visible_line(&todo.text), style));
    }
    lines
}

/// Renders the plan in at most `most` rows: items in progress and those that come next stay longest.
pub(in crate::view) fn pinned(plan: &[Todo], most: usize, page: EntryLayout<'_>) -> Vec<Line<'static>> {
    if plan.is_empty() || most == 0 {
        return Vec::new();
    }
    let row = |todo: &Todo, more: &str| {
        let (mark, role) = mark_of(todo.state);
        let room = page.width.saturating_sub(4 + more.chars().count() as u16);
        let text = truncate(&visible_line(&todo.text), room);
        Line::from(vec![
            Span::styled(format!("  {mark}{text}"), page.theme.style(role)),
            Span::styled(more.to_owned(), page.theme.style(Role::Dim)),
        ])
    };
    if plan.len() <= most {
        return plan.iter().map(|todo| row(todo, "")).collect();
    }
    let done = plan.iter().filter(|todo| todo.state == TodoState::Done).count();
    let count = format!("{done} of {} done", plan.len());
    let at = plan.iter().position(|todo| todo.state == TodoState::Current);
    let at = at.or_else(|| plan.iter().position(|todo| todo.state == TodoState::Open)).unwrap_or(0);
    if most == 1 {
        return vec![row(&plan[at], &format!(" · {count}"))];
    }
    let kept = most - 1;
    let from = at.min(plan.len() - kept);
    let mut lines: Vec<Line<'static>> = plan[from..from + kept].iter().map(|todo| row(todo, "")).collect();
    let count = truncate(&format!("  … {count}"), page.width);
    lines.push(Line::styled(count, page.theme.style(Role::Dim)));
    lines
}
