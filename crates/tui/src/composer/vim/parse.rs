//! Parses what was typed outside insert mode: `[count] command`, `[count] operator [count] target`.

use super::motion::Find;
use super::object::Object;

/// A count beyond this is a slip of the hand.
const MOST: usize = 9999;

/// The operation on a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Delete,
    Change,
    Yank,
    Upper,
    Lower,
    Toggle,
}

/// A movement of the caret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Motion {
    Left,
    Right,
    Up,
    Down,
    WordForward { big: bool },
    WordBack { big: bool },
    WordEnd { big: bool },
    WordEndBack { big: bool },
    LineStart,
    FirstNonBlank,
    LineEnd,
    TextStart,
    TextEnd,
    Find(Find),
    FindAgain { reverse: bool },
    Pair,
    ParagraphBack,
    ParagraphForward,
}

impl Motion {
    /// Whether an operator with this motion takes whole lines.
    pub(super) fn is_by_line(self) -> bool {
        matches!(self, Motion::Up | Motion::Down | Motion::TextStart | Motion::TextEnd)
    }

    /// Whether an operator with this motion includes the character at its end.
    pub(super) fn is_inclusive(self) -> bool {
        match self {
            Motion::WordEnd { .. } | Motion::WordEndBack { .. } | Motion::LineEnd | Motion::Pair => true,
            Motion::Find(find) => !find.back,
            _ => false,
        }
    }
}

/// The target of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperatorTarget {
    Motion(Motion),
    Object {
        object: Object,
        around: bool,
    },
    /// The operator twice: whole lines.
    Lines,
}

/// The position where insert mode starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InsertAt {
    Before,
    Behind,
    LineStart,
    LineEnd,
    LineBelow,
    LineAbove,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VimCommand {
    Move(Motion),
    Operate {
        operator: Operator,
        target: OperatorTarget,
    },
    Insert(InsertAt),
    DeleteChar {
        left: bool,
    },
    Replace(char),
    ToggleCase,
    Put {
        before: bool,
    },
    Join,
    Undo,
    Repeat,
    Visual {
        lines: bool,
    },
    /// In visual mode: selects a text object.
    Select {
        object: Object,
        around: bool,
    },
    /// In visual mode: to the other end of the selection.
    OtherEnd,
}

/// A command with its count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ParsedKeys {
    pub(super) count: Option<usize>,
    pub(super) command: VimCommand,
}

impl ParsedKeys {
    pub(super) fn times(&self) -> usize {
        self.count.unwrap_or(1)
    }
}

/// The result of parsing the keys so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ParseStep {
    /// An incomplete command.
    More,
    No,
    Done(ParsedKeys),
}

/// Reads a count: `0` alone is a motion.
fn count(keys: &[char]) -> (Option<usize>, &[char]) {
    let digits = keys.iter().take_while(|c| c.is_ascii_digit()).count();
    if digits == 0 || keys[0] == '0' {
        return (None, keys);
    }
    let number = keys[..digits]
        .iter()
        .fold(0usize, |n, c| n.saturating_mul(10).saturating_add(c.to_digit(10).unwrap_or(0) as usize));
    (Some(number.min(MOST)), &keys[digits..])
}

pub(super) fn parse(keys: &[char], is_visual: bool) -> ParseStep {
    let (count, rest) = count(keys);
    let Some((first, more)) = rest.split_first() else { return ParseStep::More };
    let done = |command| ParseStep::Done(ParsedKeys { count, command });
    if is_visual && let Some(step) = visual(*first, more) {
        return match step {
            Some(command) => done(command),
            None => ParseStep::More,
        };
    }
    if let Some((operator, used)) = operator(rest) {
        let more = &rest[used..];
        if is_visual {
            return done(VimCommand::Operate { operator, target: OperatorTarget::Lines });
        }
        return operated(count, operator, &rest[..used], more);
    }
    let line_end = OperatorTarget::Motion(Motion::LineEnd);
    let right = OperatorTarget::Motion(Motion::Right);
    let operate = |operator, target| done(VimCommand::Operate { operator, target });
    match (first, more) {
        ('i', []) => done(VimCommand::Insert(InsertAt::Before)),
        ('a', []) => done(VimCommand::Insert(InsertAt::Behind)),
        ('I', []) => done(VimCommand::Insert(InsertAt::LineStart)),
        ('A', []) => done(VimCommand::Insert(InsertAt::LineEnd)),
        ('o', []) => done(VimCommand::Insert(InsertAt::LineBelow)),
        ('O', []) => done(VimCommand::Insert(InsertAt::LineAbove)),
        ('x', []) => done(VimCommand::DeleteChar { left: false }),
        ('X', []) => done(VimCommand::DeleteChar { left: true }),
        ('D', []) => operate(Operator::Delete, line_end),
        ('C', []) => operate(Operator::Change, line_end),
        ('Y', []) => operate(Operator::Yank, OperatorTarget::Lines),
        ('s', []) => operate(Operator::Change, right),
        ('S', []) => operate(Operator::Change, OperatorTarget::Lines),
        ('r', []) => ParseStep::More,
        ('r', [c]) => done(VimCommand::Replace(*c)),
        ('~', []) => done(VimCommand::ToggleCase),
        ('p', []) => done(VimCommand::Put { before: false }),
        ('P', []) => done(VimCommand::Put { before: true }),
        ('J', []) => done(VimCommand::Join),
        ('u', []) => done(VimCommand::Undo),
        ('.', []) => done(VimCommand::Repeat),
        ('v', []) => done(VimCommand::Visual { lines: false }),
        ('V', []) => done(VimCommand::Visual { lines: true }),
        _ => match motion(rest) {
            Some(Some(motion)) => done(VimCommand::Move(motion)),
            Some(None) => ParseStep::More,
            None => ParseStep::No,
        },
    }
}

/// Keys with a meaning of their own in visual mode; inside `None`: more is needed.
#[expect(clippy::option_option, reason = "no such key, more keys, or a command")]
fn visual(first: char, more: &[char]) -> Option<Option<VimCommand>> {
    let operate = |operator| Some(Some(VimCommand::Operate { operator, target: OperatorTarget::Lines }));
    match (first, more) {
        ('i' | 'a', []) => Some(None),
        ('i' | 'a', [c]) => {
            Object::of(*c).map(|object| Some(VimCommand::Select { object, around: first == 'a' }))
        }
        ('o', []) => Some(Some(VimCommand::OtherEnd)),
        ('x' | 'D' | 'X', []) => operate(Operator::Delete),
        ('s' | 'C' | 'S', []) => operate(Operator::Change),
        ('Y', []) => operate(Operator::Yank),
        ('u', []) => operate(Operator::Lower),
        ('U', []) => operate(Operator::Upper),
        ('~', []) => operate(Operator::Toggle),
        _ => None,
    }
}

/// Parses an operator at the start, and returns it with its number of keys.
fn operator(keys: &[char]) -> Option<(Operator, usize)> {
    match keys {
        ['d', ..] => Some((Operator::Delete, 1)),
        ['c', ..] => Some((Operator::Change, 1)),
        ['y', ..] => Some((Operator::Yank, 1)),
        ['g', 'u', ..] => Some((Operator::Lower, 2)),
        ['g', 'U', ..] => Some((Operator::Upper, 2)),
        ['g', '~', ..] => Some((Operator::Toggle, 2)),
        _ => None,
    }
}

fn operated(before: Option<usize>, operator: Operator, own: &[char], keys: &[char]) -> ParseStep {
    let (behind, rest) = count(keys);
    let both = match (before, behind) {
        (None, None) => None,
        (a, b) => Some((a.unwrap_or(1) * b.unwrap_or(1)).min(MOST)),
    };
    let done = |target| {
        ParseStep::Done(ParsedKeys { count: both, command: VimCommand::Operate { operator, target } })
    };
    match rest {
        [] => ParseStep::More,
        // `dd`, `gUU`, `gUgU`.
        [c] if own.last() == Some(c) => done(OperatorTarget::Lines),
        [_, ..] if rest == own => done(OperatorTarget::Lines),
        ['i' | 'a'] => ParseStep::More,
        [which @ ('i' | 'a'), c] => match Object::of(*c) {
            Some(object) => done(OperatorTarget::Object { object, around: *which == 'a' }),
            None => ParseStep::No,
        },
        _ => match motion(rest) {
            Some(Some(motion)) => done(OperatorTarget::Motion(motion)),
            Some(None) => ParseStep::More,
            None => ParseStep::No,
        },
    }
}

/// `None`: no motion; inside `None`: more is needed.
#[expect(clippy::option_option, reason = "no motion, more keys, or a motion")]
fn motion(keys: &[char]) -> Option<Option<Motion>> {
    let motion = match keys {
        ['h'] => Motion::Left,
        ['l' | ' '] => Motion::Right,
        ['k'] => Motion::Up,
        ['j'] => Motion::Down,
        ['w'] => Motion::WordForward { big: false },
        ['W'] => Motion::WordForward { big: true },
        ['b'] => Motion::WordBack { big: false },
        ['B'] => Motion::WordBack { big: true },
        ['e'] => Motion::WordEnd { big: false },
        ['E'] => Motion::WordEnd { big: true },
        ['g', 'e'] => Motion::WordEndBack { big: false },
        ['g', 'E'] => Motion::WordEndBack { big: true },
        ['g', 'g'] => Motion::TextStart,
        ['G'] => Motion::TextEnd,
        ['0'] => Motion::LineStart,
        ['^' | '_'] => Motion::FirstNonBlank,
        ['$'] => Motion::LineEnd,
        ['%'] => Motion::Pair,
        ['{'] => Motion::ParagraphBack,
        ['}'] => Motion::ParagraphForward,
        [';'] => Motion::FindAgain { reverse: false },
        [','] => Motion::FindAgain { reverse: true },
        ['f' | 'F' | 't' | 'T' | 'g'] => return Some(None),
        [how @ ('f' | 'F' | 't' | 'T'), c] => {
            Motion::Find(Find { c: *c, till: matches!(how, 't' | 'T'), back: matches!(how, 'F' | 'T') })
        }
        _ => return None,
    };
    Some(Some(motion))
}
