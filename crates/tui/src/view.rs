//! Renders the model to lines. Pure: no I/O, no clock.
//!
//! The live region is assembled from the bottom: the status line, the composer, the card, and as much of the
//! growing transcript as fits. Finished entries go to the terminal's own scrollback, see [`scrollback`].

use ratatui::layout::Position;
use ratatui::text::{Line, Span};

use super::app::App;
use super::highlight::Highlighter;
use super::host::{HostInfo, StartChoice, UserInput};
use super::picker::PickerKind;
use super::status;
use super::theme::{Role, Theme};
use super::wrap::{truncate, width};
use aye_core::contract::amount::short_number;
use aye_core::contract::display::visible_line;

mod card;
mod changes;
pub(super) use card::{CARD_TEXT, question};
mod composer;
mod document;
pub mod entry;
pub mod layout_cache;
pub mod linear;
mod lists;
mod sample;
mod screen_reader;
pub mod scrollback;
mod surface;
mod target;
#[cfg(test)]
mod tests;
mod text;
pub mod viewer;

use entry::Colours;
use scrollback::ScrollbackWriter;
pub(super) use target::Hint;
pub use target::{ClickTarget, Press};

/// The theme and the highlighter used for rendering.
#[derive(Clone, Debug)]
pub struct RenderStyle {
    /// Colours by meaning.
    pub theme: Theme,
    /// Colours of code.
    pub highlighter: Highlighter,
}

/// A live region: its rows, and the caret.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rendered {
    /// The rows, none wider than the terminal.
    pub lines: Vec<Line<'static>>,
    /// The caret's position, if it is shown.
    pub caret: Option<Position>,
    /// The effects of clicks, where the program gets mouse events.
    pub targets: Vec<ClickTarget>,
}

impl Rendered {
    /// Puts another one below.
    fn stack(&mut self, below: Rendered) {
        let rows = self.lines.len() as u16;
        if let Some(caret) = below.caret {
            self.caret = Some(Position::new(caret.x, caret.y + rows));
        }
        let targets =
            below.targets.into_iter().map(|target| ClickTarget { row: target.row + rows, ..target });
        self.targets.extend(targets);
        self.lines.extend(below.lines);
    }
}

impl From<Vec<Line<'static>>> for Rendered {
    fn from(lines: Vec<Line<'static>>) -> Rendered {
        Rendered { lines, ..Rendered::default() }
    }
}

/// The maximum rows of the model's plan.
const PLAN_ROWS: usize = 8;

/// The live region of the model.
pub fn live(app: &App, feed: &mut ScrollbackWriter, render_style: &RenderStyle) -> Rendered {
    live_of(app, feed, render_style, 0)
}

/// The live region of the model in at least `least` rows: missing ones are blank, and stand above the card and the
/// composer.
pub fn live_of(app: &App, feed: &mut ScrollbackWriter, render_style: &RenderStyle, least: usize) -> Rendered {
    let (width, height) = app.display.size;
    let rows = usize::from(height.max(1));
    let below = below(app, rows, &render_style.theme, feed.card_colours.of(app, &render_style.highlighter));
    let left = rows.saturating_sub(below.lines.len());
    let mut top: Vec<Line<'static>> = last_here(app, &render_style.theme).into_iter().collect();
    top.extend(feed.growing(app, render_style));
    // A card has a blank row above it.
    let gap = usize::from(left > 0 && !app.cards.open.is_empty() && app.overlays.picker.is_none());
    if top.len() > left - gap {
        top.drain(..top.len() - (left - gap));
    }
    let blank = gap.max(least.min(rows).saturating_sub(top.len() + below.lines.len()));
    top.extend(std::iter::repeat_n(Line::default(), blank));
    let mut rendered: Rendered = top.into();
    rendered.stack(below);
    for line in &mut rendered.lines {
        if line.width() > usize::from(width) {
            line.spans = fit(std::mem::take(&mut line.spans), usize::from(width));
        }
    }
    rendered.caret = rendered.caret.map(|at| Position::new(at.x.min(width.saturating_sub(1)), at.y));
    rendered
}

/// Renders everything below the conversation, in at most `rows` rows.
fn below(app: &App, rows: usize, theme: &Theme, code: &[Option<Colours>]) -> Rendered {
    let width = app.display.size.0;
    let mut status: Rendered = vec![status::line(app, width, theme)].into();
    status.targets = target::of_hints(&status.lines, &status::hints(app));
    let status = if rows >= 2 { status } else { Rendered::default() };
    let mut left = rows - status.lines.len();

    let bottom = if let Some(picker) = &app.overlays.picker {
        let hint = status::hint(app, width, theme).filter(|_| left > 3);
        let mut most = left.min((rows * 2 / 3).max(3));
        if picker.kind == PickerKind::Themes {
            // The sample is seen at every size.
            most = most.min(left.saturating_sub(sample::SMALLEST + 1).max(4));
        }
        let mut rendered = lists::picker(picker, &app.picker_details(), width, most, theme);
        if let Some(hint) = hint {
            rendered.lines.truncate(left - 1);
            rendered.lines.push(hint);
        }
        rendered
    } else {
        written(app, left, theme)
    };
    left -= bottom.lines.len().min(left);

    let mut middle = Rendered::default();
    if app.overlays.picker.is_none() {
        middle = card::cards(app, width, left, theme, code);
        left -= middle.lines.len().min(left);
    }
    if app.overlays.picker.as_ref().is_some_and(|picker| picker.kind == PickerKind::Themes) {
        middle = sample::sample(theme, width, left).into();
        left -= middle.lines.len();
    }
    let queue = queued(app, width, left.min(4), theme);
    left -= queue.lines.len().min(left);
    // A question needs the room more than the plan.
    let most =
        if app.cards.open.is_empty() { (rows / 4).min(PLAN_ROWS) } else { usize::from(rows >= 20) * 2 };
    let plan = if app.overlays.picker.is_none() {
        scrollback::plan(app, theme, most.min(left / 2))
    } else {
        Vec::new()
    };

    let mut rendered: Rendered = plan.into();
    rendered.stack(queue);
    rendered.stack(middle);
    rendered.stack(bottom);
    rendered.stack(status);
    rendered
}

/// The composer below everything else, in at most `left` rows.
fn written(app: &App, left: usize, theme: &Theme) -> Rendered {
    let (width, height) = app.display.size;
    let rows = usize::from(height.max(1));
    let most = match (app.cards.open.is_empty(), &app.completion.palette) {
        // The list to select from matters more than earlier messages.
        (true, Some(_)) => (rows * 3 / 4).max(1),
        (true, None) => (rows / 2).max(1),
        (false, _) => (rows / 4).max(1),
    };
    composer::composer(app, width, most.min(left), theme)
}

/// Returns which rows of the current card's body the live region shows: the first row, the row after the
/// last, and the total.
pub(super) fn card_window(app: &App) -> Option<(usize, usize, usize)> {
    let (width, height) = app.display.size;
    if app.display.is_linear {
        return card::window(app, width, linear::MOST);
    }
    let rows = usize::from(height.max(1));
    let left = rows - usize::from(rows >= 2);
    let bottom = written(app, left, &Theme::plain());
    card::window(app, width, left - bottom.lines.len().min(left))
}

/// Renders the messages that will be sent when the run is done.
fn queued(app: &App, width: u16, most: usize, theme: &Theme) -> Rendered {
    let mut rendered = Rendered::default();
    let shown = |input: &UserInput| input.shown().map_or_else(|| input.written(), str::to_owned);
    let early = app.queue.unsent.iter().map(|input| ("queued", String::new(), shown(input)));
    let chosen = app.queue.at.and_then(|id| app.queue.rows.iter().position(|row| row.id == id));
    let kept = app.queue.rows.iter().map(|row| {
        let note = if row.note.is_empty() { String::new() } else { format!("({}) ", row.note) };
        let kind = if row.steers && app.conversation.is_active() { "steers" } else { "queued" };
        (kind, note, row.shown.as_ref().unwrap_or(&row.text).clone())
    });
    let all: Vec<(&str, String, String)> = kept.chain(early).collect();
    let is_cut = all.len() > most && most > 0;
    let rows = if is_cut { most - 1 } else { most };
    // The selected row must be visible.
    let first = chosen.map_or(0, |at| (at + 1).saturating_sub(rows.max(1)));
    for (at, (kind, note, text)) in all.iter().enumerate().skip(first).take(rows) {
        let text = truncate(&visible_line(&format!("{note}{text}")), width.saturating_sub(11));
        let is_chosen = chosen == Some(at);
        let mark = if is_chosen { "▸" } else { " " };
        if at < app.queue.rows.len() {
            let row = rendered.lines.len() as u16;
            rendered.targets.push(ClickTarget { row, columns: 0..width, press: Press::Queued(at) });
        }
        rendered.lines.push(Line::from(vec![
            Span::styled(format!("{mark} {kind} "), theme.style(Role::Warning)),
            Span::styled(text, theme.style(if is_chosen { Role::Accent } else { Role::Dim })),
        ]));
    }
    if is_cut {
        rendered.lines.push(Line::styled(format!("  … {} queued", all.len()), theme.style(Role::Dim)));
    }
    rendered
}

/// The model and who serves it.
pub(super) fn spoken_model(info: &HostInfo) -> String {
    let name = if info.provider.is_empty() {
        info.model.clone()
    } else {
        format!("{}/{}", info.provider, info.model)
    };
    visible_line(&name).into_owned()
}

/// The mark of the program, a row each.
const MARK: [&str; 2] = ["▗▛▜▖", "▝▙▟▘"];

/// The columns before the words beside the mark.
const MARK_COLUMNS: usize = 8;

/// Columns of the title of the last conversation.
const LAST_TITLE: u16 = 40;

/// The ways to begin with their digits, in fewer words where there is little room.
fn start_hints(start: &[StartChoice], room: usize) -> String {
    let line = |is_short: bool| {
        let words = start.iter().enumerate().map(|(at, choice)| {
            let what = match choice {
                StartChoice::LogIn => "log in".to_owned(),
                StartChoice::Use { model, .. } if is_short => format!("use {}", visible_line(model)),
                StartChoice::Use { provider, model, .. } => {
                    format!("use {} (found: {})", text::capital(provider), visible_line(model))
                }
                StartChoice::Demo if is_short => "demo".to_owned(),
                StartChoice::Demo => "try the demo".to_owned(),
            };
            format!("{} {what}", at + 1)
        });
        words.collect::<Vec<_>>().join("   ")
    };
    Some(line(false)).filter(|text| width(text) <= room).unwrap_or_else(|| line(true))
}

/// The first lines of the program: what answers, where it works, and three hints. Nothing in them waits for a key.
pub fn banner(info: &HostInfo, width: u16, theme: &Theme) -> Vec<Line<'static>> {
    let dim = theme.style(Role::Dim);
    let model = if info.is_demo { "demo model".to_owned() } else { visible_line(&info.model).into_owned() };
    let window = info.context_window.filter(|_| !info.is_demo);
    let window = window.map(|window| format!("{} window", short_number(window)));
    let mode = format!("mode {}", info.mode.as_str());
    let about: Vec<String> = std::iter::once(model).chain(window).chain([mode]).collect();
    let place = status::short_path(&info.cwd, info.home.as_deref());
    let place = std::iter::once(place).chain(info.branch.clone()).chain(info.instructions.clone());
    let place: Vec<String> = place.map(|text| visible_line(&text).into_owned()).collect();
    let room = usize::from(width);
    let hints = if !info.start.is_empty() {
        start_hints(&info.start, room.saturating_sub(MARK_COLUMNS))
    } else if info.is_demo {
        let parts = ["/login connects a model", "or just try it: \"run ls\"", "? keys"];
        let all = parts.join(" · ");
        let fits = super::wrap::width(&all) + MARK_COLUMNS <= room;
        if fits { all } else { [parts[0], parts[2]].join(" · ") }
    } else {
        "? keys · / commands · @ files".to_owned()
    };
    let row = |mark: &'static str, spans: Vec<Span<'static>>| {
        let mut all = vec![Span::styled(format!("  {mark}  "), theme.style(Role::Accent))];
        all.extend(spans);
        Line::from(fit(all, room))
    };
    let name = format!("aye {}", info.version).trim_end().to_owned();
    let mut lines = vec![
        row(
            MARK[0],
            vec![
                Span::styled(name, theme.style(Role::Strong)),
                Span::styled(format!("  {}", about.join(" · ")), dim),
            ],
        ),
        row(MARK[1], vec![Span::styled(place.join(" · "), dim)]),
        row("    ", vec![Span::styled(hints, dim)]),
    ];
    for warning in &info.warnings {
        lines.extend(entry::notice(super::transcript::Level::Warning, warning, width, theme));
    }
    lines
}

/// The row below the banner of a new conversation: the last one of this folder. It is part of the live region, because
/// the store is read after the first frame.
fn last_here(app: &App, theme: &Theme) -> Option<Line<'static>> {
    let text = spoken_last_here(app)?;
    Some(Line::styled(format!("{}{text}", " ".repeat(MARK_COLUMNS)), theme.style(Role::Dim)))
}

fn spoken_last_here(app: &App) -> Option<String> {
    let last = app.last_here.as_ref().filter(|last| app.conversation.id() != Some(&last.id))?;
    let room = app.display.size.0.saturating_sub(MARK_COLUMNS as u16);
    let state = if last.state.is_empty() { String::new() } else { format!("{} ", last.state) };
    let about = format!("{state}{} · aye -c", app.clock.ago(app.now, last.at));
    let left = room.saturating_sub(width(&about) as u16 + 4).min(LAST_TITLE);
    let title = truncate(&visible_line(&last.title), left);
    // A page takes the place of the welcome.
    let has_page = app
        .conversation
        .transcript
        .entries()
        .iter()
        .any(|entry| matches!(entry.kind, super::transcript::EntryKind::Page(_)));
    let is_new = !app.conversation.is_active() && app.conversation.transcript.is_empty() && !has_page;
    is_new.then(|| if left < 8 { about } else { format!("“{title}”, {about}") })
}

/// Renders a row with one text on the left and one on the right; the left one is truncated if there is not
/// enough room.
fn spread(left: Vec<Span<'static>>, right: Vec<Span<'static>>, columns: u16) -> Line<'static> {
    let wide = |spans: &[Span<'static>]| spans.iter().map(|span| width(&span.content)).sum::<usize>();
    let columns = usize::from(columns);
    let (need, have) = (wide(&right), wide(&left));
    if need == 0 || need + 4 > columns {
        return Line::from(fit(left, columns));
    }
    let mut spans = fit(left, columns - need - 1);
    let used = have.min(columns - need - 1);
    spans.push(Span::raw(" ".repeat(columns - need - used)));
    spans.extend(right);
    Line::from(spans)
}

/// Spans cut to a width, with `…` when something is missing.
fn fit(spans: Vec<Span<'static>>, columns: usize) -> Vec<Span<'static>> {
    let mut left = columns;
    let mut kept = Vec::with_capacity(spans.len());
    let mut spans = spans.into_iter().peekable();
    while let Some(span) = spans.next() {
        let wide = width(&span.content);
        let is_last = spans.peek().is_none();
        if wide < left || (wide == left && is_last) {
            left -= wide;
            kept.push(span);
        } else {
            let text = if wide <= left { format!("{}…", span.content) } else { span.content.into_owned() };
            kept.push(Span::styled(truncate(&text, left as u16), span.style));
            break;
        }
    }
    kept
}
