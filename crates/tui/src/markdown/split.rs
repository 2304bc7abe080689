//! Cuts markdown into blocks that later text cannot change.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

use super::Definitions;

/// The supported markdown extensions.
pub(super) const OPTIONS: Options = Options::ENABLE_TABLES
    .union(Options::ENABLE_FOOTNOTES)
    .union(Options::ENABLE_MATH)
    .union(Options::ENABLE_STRIKETHROUGH)
    .union(Options::ENABLE_TASKLISTS);

/// A block, or an item of a list at the top.
#[derive(Clone, Debug)]
pub(super) struct MarkdownBlock {
    pub(super) source: String,
    pub(super) kind: BlockKind,
    /// Whether it continues the list of the piece before: a blank line only where the source has one.
    pub(super) continues: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockKind {
    Block,
    /// An item; the number when the list has numbers.
    Item(Option<u64>),
    /// Definitions of links: shown verbatim, so that none of the text is lost.
    Definition,
}

impl MarkdownBlock {
    pub(super) fn empty() -> MarkdownBlock {
        MarkdownBlock { source: String::new(), kind: BlockKind::Block, continues: false }
    }

    /// Whether the source ends with a blank line.
    pub(super) fn ends_blank(&self) -> bool {
        ends_blank(&self.source)
    }

    /// Whether a code block may be inside.
    pub(super) fn may_have_code(&self) -> bool {
        self.kind != BlockKind::Definition && (self.source.contains("```") || self.source.contains("~~~"))
    }
}

fn ends_blank(text: &str) -> bool {
    text.ends_with('\n') && text.split_inclusive('\n').next_back().is_some_and(|line| line.trim().is_empty())
}

/// A list that continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListBlock {
    next: Option<u64>,
}

/// The text that follows the pieces.
#[derive(Debug)]
pub(super) enum Next {
    /// A fenced code block, with the number of bytes of its opening line.
    Fence(CodeFence, usize),
    /// Text that may still change, or nothing.
    Done,
}

/// The opening line of a code block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CodeFence {
    mark: char,
    length: usize,
    indent: usize,
    pub(super) info: String,
}

/// The result of a cut.
#[derive(Debug)]
pub(super) struct Cut {
    /// The pieces, each with the definitions that precede its end.
    pub(super) pieces: Vec<(MarkdownBlock, Definitions)>,
    pub(super) definitions: Definitions,
    pub(super) list: Option<ListBlock>,
    /// Bytes of the text that the pieces took.
    pub(super) taken: usize,
    pub(super) next: Next,
}

/// A block at the top of the text.
struct TopBlock {
    range: Range<usize>,
    what: What,
}

enum What {
    Block,
    /// Ends with its line, or with a blank line after it.
    Closing {
        at_line_end: bool,
    },
    Fence,
    List {
        start: Option<u64>,
        items: Vec<usize>,
    },
    /// Links that are defined, by label and address.
    Definition(Vec<(String, String)>),
}

/// Cuts a text of whole lines. Without `finished` the last block, or the last item of it, stays.
pub(super) fn split(text: &str, list: Option<ListBlock>, definitions: &Definitions, finished: bool) -> Cut {
    let nodes = nodes(text);
    let mut cut = Cut {
        pieces: Vec::new(),
        definitions: Arc::clone(definitions),
        list: None,
        taken: 0,
        next: Next::Done,
    };
    let mut list = list;
    for (i, node) in nodes.iter().enumerate() {
        let begin = line_start(text, node.range.start);
        let is_last = i + 1 == nodes.len();
        let end = nodes.get(i + 1).map_or(text.len(), |next| line_start(text, next.range.start)).max(begin);
        let continued = list.take().filter(|_| i == 0);
        cut.taken = begin;
        match &node.what {
            What::Fence => {
                if let Some((fence, opening)) = CodeFence::parse(&text[begin..]) {
                    cut.next = Next::Fence(fence, opening);
                    return cut;
                }
                // Not in the form that is read line by line (an indented block): like any other.
                if is_last && !finished {
                    return cut;
                }
                cut.push(&text[begin..end], BlockKind::Block, false);
            }
            What::Block => {
                if is_last && !finished {
                    return cut;
                }
                cut.push(&text[begin..end], BlockKind::Block, false);
            }
            What::Closing { at_line_end } => {
                if is_last && !finished && !at_line_end && !ends_blank(&text[begin..end]) {
                    return cut;
                }
                cut.push(&text[begin..end], BlockKind::Block, false);
            }
            What::Definition(found) => {
                if is_last && !finished && !ends_blank(&text[begin..end]) {
                    return cut;
                }
                let known = Arc::make_mut(&mut cut.definitions);
                for (label, url) in found {
                    known.entry(label.to_lowercase()).or_insert_with(|| url.clone());
                }
                cut.push(&text[begin..end], BlockKind::Definition, false);
            }
            What::List { start, items } => {
                let mut continues = continued.is_some();
                let mut number = match continued {
                    // The number of the first item counts, the others follow it.
                    Some(list) if list.next.is_some() == start.is_some() => list.next,
                    _ => *start,
                };
                for (k, item) in items.iter().enumerate() {
                    let from = line_start(text, *item);
                    let to = items.get(k + 1).map_or(end, |next| line_start(text, *next)).max(from);
                    cut.taken = from;
                    if is_last && k + 1 == items.len() && !finished {
                        if continues {
                            cut.list = Some(ListBlock { next: number });
                        }
                        return cut;
                    }
                    cut.push(&text[from..to], BlockKind::Item(number), continues);
                    continues = true;
                    number = number.map(|n| n.saturating_add(1));
                }
            }
        }
        cut.taken = end;
    }
    if finished {
        cut.taken = text.len();
    } else if nodes.is_empty() {
        // Blank lines before the first block say nothing; in a list they do.
        cut.list = list;
        cut.taken = if cut.list.is_some() { 0 } else { text.len() };
    }
    cut
}

impl Cut {
    fn push(&mut self, source: &str, kind: BlockKind, continues: bool) {
        let piece = MarkdownBlock { source: source.to_owned(), kind, continues };
        self.pieces.push((piece, Arc::clone(&self.definitions)));
    }
}

fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |i| i + 1)
}

/// The blocks at the top, in order.
fn nodes(text: &str) -> Vec<TopBlock> {
    let mut nodes: Vec<TopBlock> = Vec::new();
    let parser = Parser::new_ext(text, OPTIONS);
    let definitions: Vec<(Range<usize>, (String, String))> = parser
        .reference_definitions()
        .iter()
        .map(|(label, found)| (found.span.clone(), (label.to_owned(), found.dest.to_string())))
        .collect();
    let mut depth = 0;
    // The end of each block's text. The parser may extend the range of a container over the text up to the
    // next block, or not, depending on what follows.
    let mut covered: Vec<usize> = Vec::new();
    for (event, range) in parser.into_offset_iter() {
        let holds_blocks = matches!(
            &event,
            Event::Start(Tag::List(_) | Tag::Item | Tag::BlockQuote(_) | Tag::FootnoteDefinition(_))
                | Event::End(
                    TagEnd::List(_) | TagEnd::Item | TagEnd::BlockQuote(_) | TagEnd::FootnoteDefinition
                )
        );
        if depth == 0 {
            let line_end = text[range.start..].find('\n').map_or(text.len(), |i| range.start + i + 1);
            covered.push(if holds_blocks { line_end } else { range.end });
        } else if let (Some(covered), false) = (covered.last_mut(), holds_blocks) {
            *covered = range.end.max(*covered);
        }
        match event {
            Event::Start(tag) => {
                if depth == 0 {
                    let what = match tag {
                        Tag::List(start) => What::List { start, items: Vec::new() },
                        Tag::CodeBlock(CodeBlockKind::Fenced(_)) => What::Fence,
                        Tag::Heading { .. } => What::Closing { at_line_end: true },
                        Tag::Paragraph | Tag::Table(_) | Tag::BlockQuote(_) => {
                            What::Closing { at_line_end: false }
                        }
                        _ => What::Block,
                    };
                    nodes.push(TopBlock { range, what });
                } else if depth == 1
                    && matches!(tag, Tag::Item)
                    && let Some(TopBlock { what: What::List { items, .. }, .. }) = nodes.last_mut()
                {
                    items.push(range.start);
                }
                depth += 1;
            }
            Event::End(_) => depth -= 1,
            Event::Rule if depth == 0 => {
                nodes.push(TopBlock { range, what: What::Closing { at_line_end: true } });
            }
            _ if depth == 0 => nodes.push(TopBlock { range, what: What::Block }),
            _ => {}
        }
    }
    // Text that no block covers consists of definitions. They are recognised by that, because the parser
    // reports only the first one of a label, and which is the first depends on how much of the text it sees.
    let mut between = Vec::new();
    let mut from = 0;
    let mut in_container = false;
    let starts = nodes.iter().map(|node| node.range.start).zip(covered).chain([(text.len(), text.len())]);
    for (i, (until, end)) in starts.enumerate() {
        let from_line = if from == 0 || text[..from].ends_with('\n') {
            from
        } else {
            text[from..].find('\n').map_or(text.len(), |i| from + i + 1)
        };
        let until_line = if until == text.len() { until } else { line_start(text, until) };
        if from_line < until_line {
            // Indented after a list, a definition belongs to the list.
            let ours =
                |range: &Range<usize>| !(in_container && text[range.start..].starts_with([' ', '\t', '>']));
            between.extend(paragraphs(text, from_line..until_line).into_iter().filter(ours));
        }
        from = end.max(from);
        in_container = nodes
            .get(i)
            .is_some_and(|node| matches!(node.what, What::List { .. } | What::Block | What::Closing { .. }));
    }
    nodes.extend(between.into_iter().map(|range| {
        let inside = |span: &Range<usize>| range.start <= span.start && span.start < range.end;
        let found =
            definitions.iter().filter(|(span, _)| inside(span)).map(|(_, found)| found.clone()).collect();
        TopBlock { range, what: What::Definition(found) }
    }));
    nodes.sort_by_key(|node| node.range.start);
    // Two on one line cannot be cut apart; the first one carries both.
    nodes.dedup_by(|later, earlier| {
        let same = line_start(text, later.range.start) == line_start(text, earlier.range.start);
        let empty = matches!(&later.what, What::List { items, .. } if items.is_empty());
        same || empty
    });
    nodes
}

/// Runs of lines that are not blank.
fn paragraphs(text: &str, range: Range<usize>) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    let mut at = range.start;
    for line in text[range].split_inclusive('\n') {
        let end = at + line.len();
        match found.last_mut() {
            _ if line.trim().is_empty() => {}
            Some(last) if last.end == at => last.end = end,
            _ => found.push(at..end),
        }
        at = end;
    }
    found
}

impl CodeFence {
    /// Reads the opening line at the front of a text, and how many bytes it has with its line end.
    fn parse(text: &str) -> Option<(CodeFence, usize)> {
        let opening = text.find('\n').map_or(text.len(), |i| i + 1);
        let line = text[..opening].trim_end_matches(['\n', '\r']);
        let indent = line.len() - line.trim_start_matches(' ').len();
        let rest = &line[indent..];
        let mark = rest.chars().next().filter(|c| matches!(c, '`' | '~'))?;
        let length = rest.chars().take_while(|c| *c == mark).count();
        let info = rest[length..].trim();
        let right = indent <= 3 && length >= 3 && (mark == '~' || !info.contains('`'));
        right.then(|| (CodeFence { mark, length, indent, info: info.to_owned() }, opening))
    }

    /// Whether a line closes the block.
    pub(super) fn is_end(&self, line: &str) -> bool {
        let rest = line.trim_start_matches(' ');
        let length = rest.chars().take_while(|c| *c == self.mark).count();
        line.len() - rest.len() <= 3
            && length >= self.length
            && rest[length..].chars().all(|c| c == ' ' || c == '\t')
    }

    /// Whether an unfinished line may still become the end.
    pub(super) fn may_be_end(&self, line: &str) -> bool {
        let rest = line.trim_start_matches(' ');
        line.len() - rest.len() <= 3 && rest.chars().all(|c| c == self.mark) || self.is_end(line)
    }

    /// A line of code without the indent of the fence.
    pub(super) fn content<'l>(&self, line: &'l str) -> &'l str {
        let blanks = line.bytes().take_while(|b| *b == b' ').count();
        &line[blanks.min(self.indent)..]
    }
}

/// Whether the whole text may be the start of a fence, which would otherwise be shown as text for a moment.
pub(super) fn may_be_fence(text: &str) -> bool {
    let text = text.trim();
    text.len() < 3 && !text.is_empty() && text.chars().all(|c| matches!(c, '`' | '~'))
}

/// Definitions as pulldown-cmark asks for them.
pub(super) fn lookup(known: &HashMap<String, String>, label: &str) -> Option<String> {
    known.get(&label.to_lowercase()).cloned()
}
