//! Entries of the transcript as lines.

use std::path::Path;

use ratatui::style::Style;
use ratatui::text::{Line, Span};
use serde_json::Value;

use super::super::diff::DiffLayout;
use super::super::highlight::Highlighter;
use super::super::host::{HostInfo, TextPage};
use super::super::image_cache::ImageCache;
use super::super::status::short_path;
use super::super::theme::{Role, Theme};
use super::super::transcript::{Level, Moment, ToolEntry, ToolState};
use super::super::wrap::Wrap;
use super::surface::{self, At};
use super::text::{marked, text_width};
use aye_core::contract::amount::{counted, short_number};
use aye_core::contract::child::ChildStatus;
use aye_core::contract::display::{visible, visible_line};
use aye_core::contract::image::ImageRef;
use aye_core::contract::surface::Surface;

mod change;
mod page;
mod picture;
mod plan;
mod progress;
mod quiet;
mod sentence;

use change::change;
pub(super) use change::{Colours, colours_before, colours_of};

pub(super) use plan::pinned;
pub(super) use quiet::{group, is_quiet, may_be_quiet, thought};
use sentence::head;

/// The maximum lines of output shown for a call that is running or succeeded, and for one that failed.
const LINES: usize = 5;
const FAILED_LINES: usize = 10;
pub(super) const DIFF_LINES: usize = 16;
/// The maximum images shown of a call.
const IMAGES: usize = 2;
/// The maximum lines of thinking shown.
const THOUGHT_LINES: usize = 6;
/// The maximum width of a surface.
const SURFACE_COLUMNS: u16 = 100;
/// The maximum lines printed when the user asks for all of them.
const WHOLE_LINES: usize = 5000;
/// The indent of text: below the name after a mark and a space.
const INDENT: u16 = 2;
/// And output: one step further.
const OUTPUT_INDENT: u16 = 4;

/// The context that entries are laid out for.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryLayout<'a> {
    pub(super) width: u16,
    pub(super) theme: &'a Theme,
    pub(super) info: &'a HostInfo,
    pub(super) now: Moment,
    pub(super) expanded: bool,
    /// Pictures that are here.
    pub(super) image_cache: &'a ImageCache,
    /// The colours of the code that is changed.
    pub(super) colours: Option<&'a Colours>,
    /// The layout of changes.
    pub(super) layout: DiffLayout,
    /// Whether the model's plan is shown elsewhere, so that its calls do not show it again.
    pub(super) pins_plan: bool,
}

/// Asks for the colours of what a call changed or ran, if that is code.
pub(super) fn colours(tool: &ToolEntry, highlighter: &Highlighter) -> Option<Colours> {
    sentence::colours(tool, highlighter).or_else(|| change::colours(tool, highlighter))
}

pub(super) fn page(page: &TextPage, columns: u16, theme: &Theme) -> Vec<Line<'static>> {
    let TextPage { title, text, is_literal, is_markdown } = page;
    if *is_markdown {
        page::answer(title, text, columns, theme)
    } else {
        page::page(title, text, *is_literal, columns, theme)
    }
}

/// Returns whether more than a line of a call is shown: then it has a blank row around it.
pub(super) fn has_body(tool: &ToolEntry) -> bool {
    if tool.child.is_some() || !tool.images.is_empty() || tool.is_edited || tool.comment().is_some() {
        return true;
    }
    match tool.state {
        ToolState::Receiving | ToolState::Proposed | ToolState::Waiting => false,
        ToolState::Running => tool.progress.is_some() || tool.tail.total() > 0,
        ToolState::Unknown if tool.result.is_none() => tool.progress.is_some() || tool.tail.total() > 0,
        ToolState::Done if tool.name == "TodoWrite" => false,
        ToolState::Done if !surfaces(tool).is_empty() => true,
        ToolState::Done if change::is_shown(tool) => true,
        _ => limit(tool) > 0 && !tool.output().trim().is_empty(),
    }
}

/// Renders the user's message, on a background of its own if the theme has one.
pub(super) fn user(text: &str, images: &[ImageRef], page: EntryLayout<'_>) -> Vec<Line<'static>> {
    let style = page.theme.style(Role::User);
    let behind = Style { bg: style.bg, ..Style::default() };
    let mark = Span::styled("❯ ", page.theme.style(Role::Accent).patch(behind));
    let text = visible(text.trim_end());
    let rest = vec![Span::styled("  ", behind)];
    let mut lines = Wrap::words(page.width).prefix(vec![mark], rest).text(&text, style);
    if style.bg.is_some() {
        // As wide as its longest line: rows that are full would be broken when the terminal gets narrower.
        let widest = lines.iter().map(Line::width).max().unwrap_or_default();
        let columns = (widest + 1).min(usize::from(page.width));
        for line in &mut lines {
            let free = columns.saturating_sub(line.width());
            line.spans.push(Span::styled(" ".repeat(free), behind));
        }
    }
    for image in images {
        lines.extend(picture::picture(image, page));
    }
    lines
}

/// Thoughts: the last lines while they grow, the first ones when they are complete.
pub(super) fn thinking(text: &str, is_done: bool, whole: bool, page: EntryLayout<'_>) -> Vec<Line<'static>> {
    let style = page.theme.style(Role::Thinking);
    let lines = Wrap::words(page.width).indent(INDENT, INDENT).text(&visible(text.trim()), style);
    if whole || lines.len() <= THOUGHT_LINES {
        return lines;
    }
    if !is_done {
        return lines[lines.len() - THOUGHT_LINES..].to_vec();
    }
    let more = lines.len() - THOUGHT_LINES + 1;
    let mut shown = lines[..THOUGHT_LINES - 1].to_vec();
    shown.push(folded(more, page));
    shown
}

/// Renders a notice of the program.
pub(super) fn notice(level: Level, text: &str, width: u16, theme: &Theme) -> Vec<Line<'static>> {
    let (mark, role) = match level {
        Level::Info => ("· ", Role::Dim),
        Level::Summary => ("─ ", Role::Dim),
        Level::Warning => ("! ", Role::Warning),
        Level::Error => ("✗ ", Role::Error),
    };
    let style = theme.style(role);
    Wrap::words(width.min(text_width(width) + INDENT))
        .prefix(vec![Span::styled(mark, style)], vec![Span::raw("  ")])
        .line(&Line::from(marked(&visible(text), role, theme)))
}

/// The mark of an answer that was cut off.
pub(super) fn cut_off(page: EntryLayout<'_>) -> Line<'static> {
    Line::styled("  — cut off —", page.theme.style(Role::Warning))
}

/// Renders a tool call: its line, and the visible part of its output.
pub(super) fn tool(tool: &ToolEntry, page: EntryLayout<'_>) -> Vec<Line<'static>> {
    let mut lines = vec![head(tool, page)];
    lines.extend(touched(tool, page));
    lines.extend(child(tool, page));
    lines.extend(body(tool, page));
    lines.extend(returned(tool, IMAGES, page));
    lines
}

/// The pictures that a call returned.
fn returned(tool: &ToolEntry, most: usize, page: EntryLayout<'_>) -> Vec<Line<'static>> {
    let shown = tool.images.iter().take(most);
    let mut lines: Vec<Line<'static>> = shown.flat_map(|image| picture::picture(image, page)).collect();
    let more = tool.images.len().saturating_sub(most);
    if more > 0 {
        let text = format!("    … {} (Ctrl-O)", counted(more, "more image"));
        lines.push(Line::styled(super::truncate(&text, page.width), page.theme.style(Role::Dim)));
    }
    lines
}

/// The agent that works on a call: how far it is, and what it does and says.
fn child(tool: &ToolEntry, page: EntryLayout<'_>) -> Vec<Line<'static>> {
    let Some(child) = &tool.child else { return Vec::new() };
    let (mark, role) = match child.status {
        ChildStatus::Running => ("└ ", Role::Accent),
        ChildStatus::Waiting => ("└ ", Role::Warning),
        ChildStatus::Completed => ("└ ", Role::Dim),
        ChildStatus::Failed | ChildStatus::Timeout | ChildStatus::Cancelled => ("└ ", Role::Error),
    };
    let mut words = vec![visible_line(&child.agent).into_owned()];
    match child.status {
        ChildStatus::Waiting => words.push("waiting for you".to_owned()),
        ChildStatus::Running => {}
        over => words.push(over.word().to_owned()),
    }
    words.push(counted(child.steps, "step"));
    if child.tokens > 0 {
        words.push(format!("{} tokens", short_number(child.tokens)));
    }
    if let Some(tool) = &child.tool {
        words.push(visible_line(tool).into_owned());
    }
    let style = page.theme.style(role);
    let dim = page.theme.style(Role::Dim);
    let text = super::truncate(&words.join(" · "), page.width.saturating_sub(OUTPUT_INDENT));
    let mut lines = vec![Line::from(vec![Span::styled(format!("  {mark}"), style), Span::styled(text, dim)])];
    if let Some(line) = child.line.as_ref().filter(|_| !child.status.is_over()) {
        let text = format!("    {}", visible_line(&without_colours(line)));
        lines.push(Line::styled(super::truncate(&text, page.width), page.theme.style(Role::ToolOutput)));
    }
    lines
}

/// A finished call with all of its output.
pub(super) fn whole_tool(tool: &ToolEntry, page: EntryLayout<'_>) -> Vec<Line<'static>> {
    let mut lines = vec![head(tool, page)];
    lines.extend(touched(tool, page));
    lines.extend(child(tool, page));
    if tool.name == "TodoWrite" {
        lines.extend(plan::changed(tool, page));
        return lines;
    }
    let mut output =
        if let Some(diff) = change(tool, page, WHOLE_LINES) { diff } else { block(&tool.output(), page) };
    if output.len() > WHOLE_LINES {
        let more = output.len() - WHOLE_LINES;
        output.truncate(WHOLE_LINES);
        output.push(Line::styled(format!("    … {more} more lines"), page.theme.style(Role::Dim)));
    }
    lines.extend(output);
    lines.extend(returned(tool, usize::MAX, page));
    lines
}

/// A tool call with all that is known of it, for the viewer.
pub(super) fn everything(tool: &ToolEntry, page: EntryLayout<'_>) -> Vec<Line<'static>> {
    let mut lines = vec![head(tool, page)];
    lines.extend(touched(tool, page));
    lines.extend(child(tool, page));
    let is_surface = !surfaces(tool).is_empty();
    if is_surface || matches!(tool.name.as_str(), "TodoWrite") {
        lines.extend(body(tool, page));
        lines.extend(returned(tool, usize::MAX, page));
        return lines;
    }
    let diff = change(tool, page, usize::MAX);
    if diff.is_none() {
        lines.extend(asked(tool, page));
    }
    lines.extend(diff.unwrap_or_else(|| match &tool.result {
        Some(_) => block(&tool.output(), page),
        None => block(&tool.tail.last(usize::MAX).join("\n"), page),
    }));
    lines.extend(returned(tool, usize::MAX, page));
    lines
}

/// The arguments that the head cannot hold.
fn asked(tool: &ToolEntry, page: EntryLayout<'_>) -> Vec<Line<'static>> {
    let Some(map) = tool.arguments.as_object() else { return Vec::new() };
    let style = page.theme.style(Role::Dim);
    let wrap = Wrap::kept(page.width).indent(INDENT, OUTPUT_INDENT);
    let mut lines = Vec::new();
    for (name, value) in map {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        lines.extend(wrap.text(&visible(&format!("{name}: {}", text.trim_end())), style));
    }
    lines
}

fn role_of(state: ToolState) -> Role {
    match state {
        ToolState::Receiving | ToolState::Proposed => Role::Dim,
        ToolState::Waiting | ToolState::Unknown => Role::Warning,
        ToolState::Running => Role::Accent,
        ToolState::Done => Role::Success,
        ToolState::Failed | ToolState::Denied => Role::Error,
        ToolState::Declined | ToolState::Cancelled | ToolState::Expired => Role::Warning,
    }
}

/// Renders that the user edited or commented on the call.
fn touched(tool: &ToolEntry, page: EntryLayout<'_>) -> Vec<Line<'static>> {
    let mut text = String::new();
    if tool.is_edited {
        text.push_str("edited before it was allowed");
    }
    if let Some(comment) = tool.comment() {
        text.push_str(if text.is_empty() { "allowed with: " } else { ", with: " });
        text.push_str(&visible_line(comment));
    }
    if text.is_empty() {
        return Vec::new();
    }
    Wrap::words(page.width).indent(OUTPUT_INDENT, OUTPUT_INDENT).text(&text, page.theme.style(Role::Accent))
}

fn exit_code(tool: &ToolEntry) -> Option<i64> {
    tool.result.as_ref()?.details.as_ref()?.get("exit_code")?.as_i64()
}

/// Summarizes the call on one line.
pub(super) fn summary(tool: &ToolEntry, info: &HostInfo) -> String {
    if tool.arguments.is_null() {
        return if tool.received > 0 { format!("{} bytes …", tool.received) } else { String::new() };
    }
    summary_of(&tool.name, &tool.arguments, info)
}

/// Summarizes a call on one line.
pub(super) fn summary_of(name: &str, arguments: &Value, info: &HostInfo) -> String {
    let text = |key: &str| arguments.get(key).and_then(Value::as_str);
    let path = |path: &str| {
        let path = Path::new(path);
        let inside = path.strip_prefix(&info.cwd).ok().filter(|rest| !rest.as_os_str().is_empty());
        inside.map_or_else(|| short_path(path, info.home.as_deref()), |rest| short_path(rest, None))
    };
    match name {
        "Bash" => text("command").map(|command| visible_line(command.trim()).into_owned()),
        "BashOutput" | "BashInput" | "KillShell" => {
            text("bash_id").or_else(|| text("shell_id")).map(|id| visible_line(id).into_owned())
        }
        "Read" | "Write" | "Edit" => text("file_path").map(path),
        "List" => text("path").map(path).or_else(|| Some(".".to_owned())),
        "Glob" | "Grep" => text("pattern").map(|pattern| {
            let place = text("path").map(|place| format!(" in {}", path(place))).unwrap_or_default();
            format!("{}{place}", visible_line(pattern))
        }),
        "WebFetch" => text("url").map(|url| visible_line(url).into_owned()),
        _ if name.starts_with("agent_run_") => {
            text("prompt").map(|prompt| visible_line(prompt.trim()).into_owned())
        }
        "AskUser" | "Limit" => text("question").map(|question| visible_line(question).into_owned()),
        "render_a2ui" => arguments.get("messages").and_then(Value::as_array).map(|messages| {
            let surface = |message: &Value| {
                let mut bodies = message.as_object().into_iter().flatten();
                bodies.find_map(|(_, body)| body.get("surfaceId")?.as_str().map(str::to_owned))
            };
            let mut surfaces: Vec<String> = messages.iter().filter_map(surface).collect();
            surfaces.dedup();
            visible_line(&surfaces.join(", ")).into_owned()
        }),
        "TodoWrite" => arguments.get("todos").and_then(Value::as_array).map(|todos| {
            let done =
                todos.iter().filter(|todo| todo.get("status") == Some(&Value::from("completed"))).count();
            format!("{done} of {} done", todos.len())
        }),
        _ => None,
    }
    .unwrap_or_else(|| plain_arguments(arguments))
}

/// Arguments as `name: value` on one line.
fn plain_arguments(arguments: &Value) -> String {
    let Some(map) = arguments.as_object() else {
        return if arguments.is_null() {
            String::new()
        } else {
            visible_line(&arguments.to_string()).into_owned()
        };
    };
    let value = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let parts: Vec<String> = map.iter().map(|(key, held)| format!("{key}: {}", value(held))).collect();
    visible_line(&parts.join(", ")).into_owned()
}

fn body(tool: &ToolEntry, page: EntryLayout<'_>) -> Vec<Line<'static>> {
    match tool.state {
        ToolState::Receiving | ToolState::Proposed | ToolState::Waiting => Vec::new(),
        ToolState::Running => running(tool, page),
        ToolState::Unknown if tool.result.is_none() => running(tool, page),
        ToolState::Done if tool.name == "TodoWrite" && page.pins_plan => Vec::new(),
        ToolState::Done if tool.name == "TodoWrite" => plan::changed(tool, page),
        ToolState::Done if !surfaces(tool).is_empty() => {
            let columns = page.width.saturating_sub(OUTPUT_INDENT).min(SURFACE_COLUMNS);
            let draw = |shown: &Surface| surface::surface(shown, At::default(), columns, page.theme);
            let indented = |line: Line<'static>| {
                let mut spans = vec![Span::raw(" ".repeat(usize::from(OUTPUT_INDENT)))];
                spans.extend(line.spans.into_iter().map(|span| span.patch_style(line.style)));
                Line::from(spans)
            };
            surfaces(tool).iter().flat_map(draw).map(indented).collect()
        }
        ToolState::Done => match change(tool, page, DIFF_LINES) {
            Some(lines) => lines,
            None => done(tool, page),
        },
        ToolState::Failed | ToolState::Denied | ToolState::Declined | ToolState::Cancelled => {
            done(tool, page)
        }
        ToolState::Expired | ToolState::Unknown => done(tool, page),
    }
}

/// The surfaces that a finished call shows.
fn surfaces(tool: &ToolEntry) -> Vec<Surface> {
    let details = tool.result.as_ref().and_then(|result| result.details.as_ref());
    let shown = details.and_then(|details| details.get("surfaces")).cloned();
    shown.and_then(|shown| serde_json::from_value(shown).ok()).unwrap_or_default()
}

fn running(tool: &ToolEntry, page: EntryLayout<'_>) -> Vec<Line<'static>> {
    let most = if page.expanded { LINES * 4 } else { LINES };
    let mut lines = Vec::new();
    if let Some(progress) = &tool.progress {
        lines.push(progress::progress(progress, page));
    }
    let shown = tool.tail.last(most);
    let above = tool.tail.total() - shown.len();
    if above > 0 {
        lines.push(Line::styled(format!("    … {above} lines above"), page.theme.style(Role::Dim)));
    }
    for line in shown {
        let text = format!("    {}", visible_line(&without_colours(line)));
        lines.push(Line::styled(super::truncate(&text, page.width), page.theme.style(Role::ToolOutput)));
    }
    lines
}

/// The first and last lines of the output.
fn done(tool: &ToolEntry, page: EntryLayout<'_>) -> Vec<Line<'static>> {
    let output = tool.output();
    if output.trim().is_empty() {
        return Vec::new();
    }
    let (count, most) = (output.trim_end().lines().count(), limit(tool));
    if most == 0 {
        return Vec::new();
    }
    let is_words = !matches!(tool.state, ToolState::Done | ToolState::Failed);
    let render = |text: &str| if is_words { prose(text, page) } else { block(text, page) };
    if count <= most {
        let all = render(&output);
        if all.len() <= most + 2 {
            return all;
        }
    }
    let lines: Vec<&str> = output.trim_end().lines().collect();
    let for_head = most.div_ceil(3);
    let (head, from_head) = filled(lines.iter().copied(), for_head, false, render, page);
    let (tail, from_tail) =
        filled(lines[from_head..].iter().rev().copied(), most - for_head, true, render, page);
    let mut shown = head;
    shown.push(folded(count.saturating_sub(from_head + from_tail).max(1), page));
    shown.extend(tail);
    shown
}

/// Returns as many whole lines as fit into the rows, from the start or from the end, and their number. A line
/// that does not fit on its own is cut to its start or its end.
fn filled<'a>(
    lines: impl Iterator<Item = &'a str>,
    room: usize,
    from_end: bool,
    render: impl Fn(&str) -> Vec<Line<'static>>,
    page: EntryLayout<'_>,
) -> (Vec<Line<'static>>, usize) {
    // Wrapping all of a long line only to show a little of it would be slow.
    let most_bytes = room * usize::from(page.width) * 8;
    let mut kept: Vec<Vec<Line<'static>>> = Vec::new();
    let (mut left, mut whole) = (room, 0);
    for line in lines {
        let part = match (line.len() > most_bytes, from_end) {
            (false, _) => line,
            (true, false) => &line[..line.floor_char_boundary(most_bytes)],
            (true, true) => &line[line.ceil_char_boundary(line.len() - most_bytes)..],
        };
        let mut rows = if part.trim().is_empty() { vec![Line::default()] } else { render(part) };
        if rows.len() <= left && part.len() == line.len() {
            (left, whole) = (left - rows.len(), whole + 1);
            kept.push(rows);
            continue;
        }
        if whole == 0 {
            let cut = rows.len().saturating_sub(left);
            rows.drain(if from_end { 0..cut } else { rows.len() - cut..rows.len() });
            kept.push(rows);
        }
        break;
    }
    if from_end {
        kept.reverse();
    }
    (kept.concat(), whole)
}

/// Returns the maximum lines of output shown for a finished call.
fn limit(tool: &ToolEntry) -> usize {
    match (tool.state, tool.name.as_str()) {
        (ToolState::Done, "Read" | "Grep" | "Glob" | "List" | "WebFetch") => 0,
        (ToolState::Done, _) => LINES,
        _ => FAILED_LINES,
    }
}

/// Returns whether a finished call does not show all of its output.
pub(crate) fn is_folded(tool: &ToolEntry) -> bool {
    if let Some(long) = change::is_long(tool) {
        return long;
    }
    let output = tool.output();
    let lines = output.trim_end().lines().count();
    tool.images.len() > IMAGES || lines > limit(tool) || output.len() > limit(tool).max(1) * 200
}

fn folded(more: usize, page: EntryLayout<'_>) -> Line<'static> {
    let text = format!("    … {} (Ctrl-O)", counted(more, "more line"));
    Line::styled(super::truncate(&text, page.width), page.theme.style(Role::Dim))
}

/// Renders output, indented; all its spaces are preserved.
fn block(text: &str, page: EntryLayout<'_>) -> Vec<Line<'static>> {
    let text = without_colours(text.trim_end());
    if text.is_empty() {
        return Vec::new();
    }
    let wrap = Wrap::kept(page.width).indent(OUTPUT_INDENT, OUTPUT_INDENT);
    wrap.text(&visible(&text), page.theme.style(Role::ToolOutput))
}

/// Renders a message about a call that did not end normally: prose, not output.
fn prose(text: &str, page: EntryLayout<'_>) -> Vec<Line<'static>> {
    let wrap = Wrap::words(page.width).indent(OUTPUT_INDENT, OUTPUT_INDENT);
    wrap.text(&visible(text.trim()), page.theme.style(Role::Dim))
}

/// Text without colour sequences: they say nothing here, and written out they would bury the rest. Everything else
/// that steers a terminal stays, to be made visible.
fn without_colours(text: &str) -> String {
    if !text.contains('\u{1b}') {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("\u{1b}[") {
        let (before, sequence) = rest.split_at(at);
        out.push_str(before);
        let end = sequence[2..].find(|c: char| !matches!(c, '0'..='9' | ';' | ':'));
        match end {
            Some(end) if sequence[2 + end..].starts_with('m') => rest = &sequence[end + 3..],
            _ => {
                out.push_str(&sequence[..2]);
                rest = &sequence[2..];
            }
        }
    }
    out.push_str(rest);
    out
}
