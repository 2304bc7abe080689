//! Lays out one block of markdown.
//!
//! A loop over events with stacks of our own, not a recursion: a thousand nested quotes must not end the program.

use pulldown_cmark::{BrokenLink, CodeBlockKind, CowStr, Event, HeadingLevel, Parser, Tag, TagEnd};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::formula::{formula, in_dollars, is_tex};
use super::split::{BlockKind, MarkdownBlock, OPTIONS, lookup};
use super::table::Table;
use super::{Definitions, address};
use crate::highlight::{CodeBlock, Highlighter, is_plain};
use crate::theme::{Role, Theme};
use crate::wrap::{Wrap, truncate};
use aye_core::contract::display::visible_line;

/// Deeper levels of quotes and lists get no more indent.
const MAX_LEVELS: usize = 12;
/// Maximum width of a rule, so that it survives in the scrollback of a terminal that gets narrower.
const RULE: u16 = 60;
const CODE_INDENT: usize = 2;
/// The columns that the ground of code covers. Wider rows would be broken in a terminal that gets a little narrower.
const TINTED: usize = 72;
/// The digits of a footnote's number.
const RAISED: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];

/// The treatment of code blocks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Coding<'a> {
    pub(super) highlighter: Option<&'a Highlighter>,
    /// The number of code blocks before the piece, if they are numbered.
    pub(super) before: Option<usize>,
}

/// The line above a block of code: its language, and its number where blocks are numbered.
pub(super) fn code_head(
    info: &str,
    number: Option<usize>,
    width: u16,
    theme: &Theme,
    mut before: Vec<Span<'static>>,
) -> Option<Line<'static>> {
    let language: String = info.split([' ', ',']).next().unwrap_or_default().chars().take(20).collect();
    let number = number.map(|number| format!(" #{number}")).unwrap_or_default();
    // Plain text has no language.
    let language = if is_plain(&language) { String::new() } else { language };
    let text = format!("{}{number}", visible_line(&language));
    let text = text.trim();
    if text.is_empty() {
        return None;
    }
    let levels = before.len();
    before.push(Span::raw(" ".repeat(CODE_INDENT)));
    let used: usize = before.iter().map(Span::width).sum();
    let text = truncate(text, width.saturating_sub(used as u16));
    before.push(Span::styled(text, theme.style(Role::Dim)));
    let mut line = Line::from(before);
    tint(&mut line, levels, width, theme);
    Some(line).filter(|line| line.width() <= usize::from(width))
}

/// Gives a line of code its ground, if the theme has one; `levels` spans before it have none.
fn tint(line: &mut Line<'static>, levels: usize, width: u16, theme: &Theme) {
    let ground = Style { bg: theme.style(Role::Composer).bg, ..Style::default() };
    if ground.bg.is_none() {
        return;
    }
    let rest = TINTED.min(usize::from(width)).saturating_sub(line.width());
    line.spans.push(Span::raw(" ".repeat(rest)));
    for span in line.spans.iter_mut().skip(levels) {
        span.style = ground.patch(span.style);
    }
}

/// Lays out a piece and appends its lines. `code` keeps the code blocks inside between two layouts; without a
/// highlighter, code that is not in it stays plain.
pub(super) fn block(
    piece: &MarkdownBlock,
    definitions: &Definitions,
    width: u16,
    theme: &Theme,
    coding: Coding<'_>,
    code: &mut Vec<CodeBlock>,
    out: &mut Vec<Line<'static>>,
) {
    if piece.kind == BlockKind::Definition {
        for line in piece.source.lines().filter(|line| !line.trim().is_empty()) {
            Wrap::words(width).indent(0, 4).spans_into(
                &[Span::styled(line.trim(), theme.style(Role::LinkUrl))],
                Style::default(),
                out,
            );
        }
        return;
    }
    let number = match piece.kind {
        BlockKind::Item(number) => number,
        _ => None,
    };
    let mut layout = Layout {
        width,
        theme,
        coding,
        code,
        seen: 0,
        out,
        levels: Vec::new(),
        containers: vec![Container { kind: Holds::Blocks, children: 0 }],
        spans: None,
        styles: vec![theme.style(Role::Text)],
        links: Vec::new(),
        first_number: number,
        table: None,
        code_text: None,
    };
    let source = in_dollars(&piece.source);
    if definitions.is_empty() {
        Parser::new_ext(&source, OPTIONS).for_each(|event| layout.event(event));
    } else {
        let resolve = |link: BrokenLink<'_>| {
            lookup(definitions, &link.reference).map(|url| (CowStr::from(url), CowStr::from("")))
        };
        Parser::new_with_broken_link_callback(&source, OPTIONS, Some(resolve))
            .for_each(|event| layout.event(event));
    }
    layout.end_text();
}

/// The prefixes that one level adds to the lines inside it.
struct Level {
    /// Before the first line, until it was used.
    first: Option<Span<'static>>,
    rest: Span<'static>,
}

#[derive(Clone, Copy, PartialEq)]
enum Holds {
    /// Blocks with a blank line between.
    Blocks,
    /// Items; the next number.
    Items(Option<u64>),
    /// The content of an item.
    Item,
}

struct Container {
    kind: Holds,
    children: usize,
}

struct Layout<'a> {
    width: u16,
    theme: &'a Theme,
    coding: Coding<'a>,
    code: &'a mut Vec<CodeBlock>,
    /// Code blocks that were met so far.
    seen: usize,
    out: &'a mut Vec<Line<'static>>,
    levels: Vec<Level>,
    containers: Vec<Container>,
    /// The text that is being collected.
    spans: Option<Vec<Span<'static>>>,
    styles: Vec<Style>,
    /// The index of the first span of each open link, and its target; an image has no start.
    links: Vec<(usize, String)>,
    first_number: Option<u64>,
    table: Option<Table>,
    code_text: Option<(String, String)>,
}

impl Layout<'_> {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => match &mut self.code_text {
                Some((_, code)) => code.push_str(&text),
                None => self.text(&text, self.style()),
            },
            Event::Code(text) => self.text(&text, self.style().patch(self.theme.style(Role::Code))),
            Event::Html(text) | Event::InlineHtml(text) if is_break(&text) => self.text("\n", self.style()),
            Event::Html(text) | Event::InlineHtml(text) => {
                self.text(&text, self.style().patch(self.theme.style(Role::Dim)));
            }
            Event::FootnoteReference(label) => {
                self.text(&footnote(&label), self.style().patch(self.theme.style(Role::Accent)));
            }
            Event::SoftBreak => self.text(" ", self.style()),
            Event::HardBreak => self.text("\n", self.style()),
            Event::Rule => {
                self.begin_block(false);
                let rule = "─".repeat(usize::from(self.width.min(RULE)));
                let (first, rest) = self.prefixes();
                let used: usize = first.iter().map(Span::width).sum();
                let fits = usize::from(self.width).saturating_sub(used).max(1);
                let rule: String = rule.chars().take(fits).collect();
                let span = Span::styled(rule, self.theme.style(Role::Rule));
                Wrap::kept(self.width).prefix(first, rest).spans_into(&[span], Style::default(), self.out);
            }
            Event::TaskListMarker(done) => {
                let (mark, role) = if done { ("☑ ", Role::Success) } else { ("☐ ", Role::Dim) };
                let mark = Span::styled(mark, self.theme.style(role));
                match self.levels.last_mut().and_then(|level| level.first.as_mut()) {
                    // The box takes the place of the bullet.
                    Some(bullet) if bullet.content == "• " => *bullet = mark,
                    Some(_) | None => self.text(&mark.content, mark.style),
                }
            }
            Event::InlineMath(text) | Event::DisplayMath(text) if is_tex(&text) => {
                self.text(&formula(&text), self.style().patch(self.theme.style(Role::Code)));
            }
            Event::InlineMath(text) => self.text(&format!("${text}$"), self.style()),
            Event::DisplayMath(text) => self.text(&format!("$${text}$$"), self.style()),
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph => {
                self.begin_block(false);
                self.spans = Some(Vec::new());
            }
            Tag::HtmlBlock => {
                self.begin_block(false);
                self.spans = Some(Vec::new());
            }
            Tag::Heading { level, .. } => {
                self.begin_block(false);
                self.spans = Some(Vec::new());
                let style = self.theme.style(Role::Heading);
                self.styles.push(if level == HeadingLevel::H1 {
                    style.add_modifier(Modifier::UNDERLINED)
                } else {
                    style
                });
            }
            Tag::BlockQuote(_) => {
                self.begin_block(false);
                let bar = Span::styled("│ ", self.theme.style(Role::Quote));
                self.level(Some(bar.clone()), bar);
                self.styles.push(self.style().patch(self.theme.style(Role::Quote)));
                self.containers.push(Container { kind: Holds::Blocks, children: 0 });
            }
            Tag::CodeBlock(kind) => {
                self.begin_block(false);
                let info = match kind {
                    CodeBlockKind::Fenced(info) => info.to_string(),
                    CodeBlockKind::Indented => String::new(),
                };
                self.code_text = Some((info, String::new()));
            }
            Tag::List(start) => {
                self.begin_block(true);
                let start = start.map(|n| self.first_number.take().unwrap_or(n));
                self.containers.push(Container { kind: Holds::Items(start), children: 0 });
            }
            Tag::Item => {
                let mark = match self.containers.last_mut().map(|container| &mut container.kind) {
                    Some(Holds::Items(Some(number))) => {
                        let mark = format!("{number}. ");
                        *number = number.saturating_add(1);
                        mark
                    }
                    _ => "• ".to_owned(),
                };
                let rest = Span::raw(" ".repeat(mark.chars().count()));
                self.level(Some(Span::styled(mark, self.theme.style(Role::Bullet))), rest);
                self.containers.push(Container { kind: Holds::Item, children: 0 });
            }
            Tag::FootnoteDefinition(label) => {
                self.begin_block(false);
                let mark = Span::styled(format!("{} ", footnote(&label)), self.theme.style(Role::Accent));
                self.level(Some(mark), Span::raw("  "));
                self.containers.push(Container { kind: Holds::Blocks, children: 0 });
            }
            Tag::Table(alignments) => {
                self.begin_block(false);
                self.table = Some(Table::new(alignments));
            }
            Tag::TableHead | Tag::TableRow => {
                if let Some(table) = &mut self.table {
                    table.rows.push(Vec::new());
                }
            }
            Tag::TableCell => self.spans = Some(Vec::new()),
            Tag::Emphasis => self.styles.push(self.style().patch(self.theme.style(Role::Emphasis))),
            Tag::Strong => self.styles.push(self.style().patch(self.theme.style(Role::Strong))),
            Tag::Strikethrough => self.styles.push(self.style().add_modifier(Modifier::CROSSED_OUT)),
            Tag::Link { dest_url, .. } => {
                self.links.push((self.spans.as_ref().map_or(0, Vec::len), dest_url.to_string()));
                self.styles.push(self.style().patch(self.theme.style(Role::Link)));
            }
            Tag::Image { dest_url, .. } => {
                self.text("[image: ", self.theme.style(Role::Dim));
                self.links.push((usize::MAX, dest_url.to_string()));
            }
            Tag::Superscript
            | Tag::Subscript
            | Tag::DefinitionList
            | Tag::DefinitionListTitle
            | Tag::DefinitionListDefinition
            | Tag::MetadataBlock(_) => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => self.end_text(),
            TagEnd::Heading(_) => {
                self.end_text();
                self.styles.pop();
            }
            TagEnd::BlockQuote(_) => {
                self.end_text();
                self.styles.pop();
                self.containers.pop();
                self.levels.pop();
            }
            TagEnd::CodeBlock => self.end_code(),
            TagEnd::List(_) => {
                self.containers.pop();
            }
            TagEnd::Item => {
                self.end_text();
                // An empty item still has its mark.
                if self.levels.last().is_some_and(|level| level.first.is_some()) {
                    self.emit(&[]);
                }
                self.containers.pop();
                self.levels.pop();
            }
            TagEnd::FootnoteDefinition => {
                self.end_text();
                self.containers.pop();
                self.levels.pop();
            }
            TagEnd::TableCell => {
                let cell = self.spans.take().unwrap_or_default();
                if let Some(row) = self.table.as_mut().and_then(|table| table.rows.last_mut()) {
                    row.push(cell);
                }
            }
            TagEnd::Table => {
                if let Some(table) = self.table.take() {
                    let (first, rest) = self.prefixes();
                    let used = first.iter().map(Span::width).sum::<usize>() as u16;
                    for (i, line) in table
                        .lines(self.width.saturating_sub(used).max(1), self.theme)
                        .into_iter()
                        .enumerate()
                    {
                        let before = if i == 0 { first.clone() } else { rest.clone() };
                        Wrap::kept(self.width).prefix(before, rest.clone()).spans_into(
                            &line.spans,
                            Style::default(),
                            self.out,
                        );
                    }
                }
            }
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => {
                self.styles.pop();
            }
            TagEnd::Link => {
                self.styles.pop();
                if let Some((begin, url)) = self.links.pop() {
                    let spans = self.spans.as_deref().unwrap_or_default();
                    let text: String = spans.iter().skip(begin).map(|span| span.content.as_ref()).collect();
                    let same = url.strip_prefix("mailto:").unwrap_or(&url).trim_end_matches('/')
                        == text.trim_end_matches('/');
                    let link = self.theme.links().to(&url);
                    // Text that looks like a URL must not lead to another one.
                    let poses =
                        !same && !text.contains(char::is_whitespace) && text.contains(['.', ':', '/']);
                    if !poses {
                        let spans = self.spans.get_or_insert_default();
                        spans.iter_mut().skip(begin).for_each(|span| span.style = span.style.patch(link));
                    }
                    if !same && !url.is_empty() {
                        self.address(&url);
                    }
                }
            }
            TagEnd::Image => {
                if let Some((_, url)) = self.links.pop() {
                    self.text("]", self.theme.style(Role::Dim));
                    self.address(&url);
                }
            }
            TagEnd::TableHead
            | TagEnd::TableRow
            | TagEnd::Superscript
            | TagEnd::Subscript
            | TagEnd::DefinitionList
            | TagEnd::DefinitionListTitle
            | TagEnd::DefinitionListDefinition
            | TagEnd::MetadataBlock(_) => {}
        }
    }

    fn style(&self) -> Style {
        self.styles.last().copied().unwrap_or_default()
    }

    fn text(&mut self, text: &str, style: Style) {
        if self.spans.is_none() {
            // The text of a tight item comes without a paragraph.
            self.begin_block(false);
        }
        let spans = self.spans.get_or_insert_default();
        match spans.last_mut() {
            Some(last) if last.style == style && self.links.is_empty() => {
                last.content.to_mut().push_str(text);
            }
            _ => spans.push(Span::styled(text.to_owned(), style)),
        }
    }

    /// Ends open text and puts a blank line between blocks, but none before a list inside of an item.
    fn begin_block(&mut self, list: bool) {
        self.end_text();
        let Some(container) = self.containers.last_mut() else {
            return;
        };
        let tight = container.kind == Holds::Item && list;
        container.children += 1;
        if container.children > 1 && !tight {
            let mut blank: Vec<Span<'static>> = self.levels.iter().map(|level| level.rest.clone()).collect();
            while blank.last().is_some_and(|span| span.content.trim().is_empty()) {
                blank.pop();
            }
            let blank: Vec<Span<'static>> =
                blank.into_iter().map(|span| Span::styled(span.content.into_owned(), span.style)).collect();
            let line = Wrap::kept(self.width).prefix(blank, Vec::new()).text("", Style::default());
            self.out.extend(line);
        }
    }

    /// Lays out the text that was collected.
    fn end_text(&mut self) {
        if let Some(mut spans) = self.spans.take() {
            // The line ending of an HTML block is not an empty line.
            if let Some(last) = spans.last_mut() {
                let kept = last.content.trim_end_matches('\n').len();
                last.content.to_mut().truncate(kept);
            }
            self.emit(&spans);
        }
    }

    /// Adds the target of a link after its text.
    fn address(&mut self, url: &str) {
        let style = self.theme.style(Role::LinkUrl);
        self.text(" (", style);
        self.text(url, style.patch(self.theme.links().to(url)));
        self.text(")", style);
    }

    fn emit(&mut self, spans: &[Span<'static>]) {
        let (first, rest) = self.prefixes();
        let noted: Vec<Span<'static>>;
        let spans = if spans.iter().any(|span| span.content.contains("[^")) {
            let code = self.style().patch(self.theme.style(Role::Code));
            let is_code = |span: &Span<'static>| span.style == code && code != self.style();
            let raised = |span: &Span<'static>| {
                if is_code(span) { span.clone() } else { Span::styled(raised(&span.content), span.style) }
            };
            noted = spans.iter().map(raised).collect();
            &noted
        } else {
            spans
        };
        let wrap = Wrap::words(self.width).prefix(first, rest);
        if self.theme.links().are_on() && spans.iter().any(|span| span.content.contains("://")) {
            wrap.spans_into(&address::linked(spans, self.theme.links()), Style::default(), self.out);
        } else {
            wrap.spans_into(spans, Style::default(), self.out);
        }
    }

    fn end_code(&mut self) {
        let Some((info, text)) = self.code_text.take() else {
            return;
        };
        let at = self.seen;
        self.seen += 1;
        if at >= self.code.len()
            && let Some(highlighter) = self.coding.highlighter
        {
            self.code.push(highlighter.whole(&info, &text));
        }
        let number = self.coding.before.as_mut().filter(|_| !text.is_empty()).map(|before| {
            *before += 1;
            *before
        });
        if !text.is_empty() && code_head(&info, number, self.width, self.theme, Vec::new()).is_some() {
            let (first, _) = self.prefixes();
            self.out.extend(code_head(&info, number, self.width, self.theme, first));
        }
        for (number, line) in text.lines().enumerate() {
            let pieces = self.code.get(at).and_then(|block| block.pieces(number));
            let (first, rest) = self.prefixes();
            let line = code_line_within(line, pieces.as_deref(), self.width, self.theme, first, rest);
            self.out.extend(line);
        }
    }

    fn level(&mut self, first: Option<Span<'static>>, rest: Span<'static>) {
        let deep = self.levels.len() >= MAX_LEVELS;
        self.levels.push(Level {
            first: if deep { None } else { first },
            rest: if deep { Span::default() } else { rest },
        });
    }

    /// Returns the prefix of the next line, and of those after it.
    fn prefixes(&mut self) -> (Vec<Span<'static>>, Vec<Span<'static>>) {
        let rest: Vec<Span<'static>> =
            self.levels.iter().take(MAX_LEVELS).map(|level| level.rest.clone()).collect();
        let first = self
            .levels
            .iter_mut()
            .take(MAX_LEVELS)
            .map(|level| level.first.take().unwrap_or_else(|| level.rest.clone()))
            .collect();
        (first, rest)
    }
}

fn is_break(html: &str) -> bool {
    matches!(html.trim().to_ascii_lowercase().as_str(), "<br>" | "<br/>" | "<br />")
}

/// Returns the rows of one line of a code block: indented by two columns, the continuations of a long one by
/// four.
pub(super) fn code_line(
    text: &str,
    pieces: Option<&[(Role, u32)]>,
    width: u16,
    theme: &Theme,
    before: &[Span<'static>],
) -> Vec<Line<'static>> {
    code_line_within(text, pieces, width, theme, before.to_vec(), before.to_vec())
}

fn code_line_within(
    text: &str,
    pieces: Option<&[(Role, u32)]>,
    width: u16,
    theme: &Theme,
    mut first: Vec<Span<'static>>,
    mut rest: Vec<Span<'static>>,
) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let levels = first.len();
    let is_tinted = theme.style(Role::Composer).bg.is_some();
    if text.trim().is_empty() {
        while !is_tinted && first.last().is_some_and(|span| span.content.trim().is_empty()) {
            first.pop();
        }
        lines = Wrap::kept(width).prefix(first, rest).text("", Style::default());
    } else {
        first.push(Span::raw(" ".repeat(CODE_INDENT)));
        // The rest of a long line is indented as its start is.
        let indent = (text.len() - text.trim_start_matches(' ').len()).min(usize::from(width) / 2);
        rest.push(Span::raw(" ".repeat(CODE_INDENT + 2 + indent)));
        let spans = code_spans(text, pieces, theme);
        Wrap::kept(width).prefix(first, rest).spans_into(&spans, Style::default(), &mut lines);
    }
    for line in &mut lines {
        tint(line, levels, width, theme);
    }
    lines
}

/// A footnote's mark: its number, raised, or its name.
fn footnote(label: &str) -> String {
    let digits: Option<String> =
        label.chars().map(|c| RAISED.get(c.to_digit(10)? as usize).copied()).collect();
    digits.filter(|digits| !digits.is_empty()).unwrap_or_else(|| format!("[{label}]"))
}

/// Text whose references to footnotes, `[^1]`, are marks: the notes themselves may come in another block.
fn raised(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("[^") {
        out.push_str(before);
        match after.split_once(']') {
            Some((label, next))
                if (1..=3).contains(&label.len()) && label.bytes().all(|b| b.is_ascii_digit()) =>
            {
                out.push_str(&footnote(label));
                rest = next;
            }
            Some(_) | None => {
                out.push_str("[^");
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

/// A line of code in its colours.
pub(super) fn code_spans<'t>(text: &'t str, pieces: Option<&[(Role, u32)]>, theme: &Theme) -> Vec<Span<'t>> {
    let mut spans = Vec::new();
    let mut rest = text;
    for (role, length) in pieces.unwrap_or_default() {
        let Some((piece, after)) = rest.split_at_checked(*length as usize) else {
            break;
        };
        spans.push(Span::styled(piece, theme.style(*role)));
        rest = after;
    }
    if !rest.is_empty() {
        spans.push(Span::styled(rest, theme.style(Role::Text)));
    }
    spans
}
