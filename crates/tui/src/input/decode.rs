//! Decodes bytes of a terminal to keys: legacy and kitty forms, bracketed paste, focus, the mouse.

use crossterm::event::{
    KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};

use super::TerminalEvent;
use crate::theme::Background;

/// The start of most sequences.
const CSI: &[u8] = b"\x1b[";
const PASTE_BEGIN: &[u8] = b"\x1b[200~";
const PASTE_END: &[u8] = b"\x1b[201~";
/// Keys that end a paste whose end mark never comes, when they arrive alone.
const GIVE_UP: [&[u8]; 4] = [b"\x03", b"\x1b[99;5u", b"\x1b", b"\x1b[27u"];
/// The first bytes of the answers to the queries for the background and for the name. The rest is awaited: no
/// user types these.
const ANSWERS: [&[u8]; 2] = [b"\x1b]11;rgb", b"\x1bP>|"];
const MAX_ANSWER: usize = 64;
/// Maximum length of a sequence that can be ours.
const MAX_SEQUENCE: usize = 64 * 1024;

/// Decodes a stream of bytes in pieces of any size.
#[derive(Debug, Default)]
pub struct InputDecoder {
    bytes: Vec<u8>,
    /// How far the end of a paste was searched for.
    searched: usize,
    /// The escape that the bytes start with arrived without them.
    is_split: bool,
    /// The terminal marks what is pasted.
    marks_pastes: bool,
}

/// The result of decoding the first bytes.
enum DecodeStep {
    /// The number of bytes decoded, and their event.
    Took(usize, Option<TerminalEvent>),
    /// Undecided until more bytes arrive.
    More,
}

impl InputDecoder {
    /// Takes bytes that were read at once. Several lines of text among them were pasted, in a terminal that does not mark
    /// that: no user types a line end and the next line so soon. `follows_paste`: such lines came just before.
    /// Returns whether it was a paste.
    pub fn feed_burst(&mut self, bytes: &[u8], follows_paste: bool, out: &mut Vec<TerminalEvent>) -> bool {
        let text = self.bytes.is_empty().then(|| lines_of(bytes, follows_paste)).flatten();
        let Some(text) = text.filter(|_| !self.marks_pastes) else {
            self.feed(bytes, out);
            return false;
        };
        out.push(TerminalEvent::Paste(clean(text)));
        self.feed(&bytes[text.len()..], out);
        true
    }

    /// Takes bytes and appends what they mean to `out`.
    pub fn feed(&mut self, bytes: &[u8], out: &mut Vec<TerminalEvent>) {
        if self.bytes.starts_with(PASTE_BEGIN) && GIVE_UP.contains(&bytes) {
            // The end of the paste was lost, and the user presses Ctrl-C or Escape because nothing happens.
            self.bytes.extend_from_slice(PASTE_END);
        }
        if self.bytes == [0x1b] && !bytes.first().is_none_or(|first| continues_sequence(*first)) {
            // The terminal sends Alt and a key in one piece: this one was pressed after Escape.
            self.bytes.clear();
            out.push(key(KeyCode::Esc, KeyModifiers::NONE));
        }
        self.is_split = self.bytes == [0x1b] || self.is_split && !self.bytes.is_empty();
        self.bytes.extend_from_slice(bytes);
        let mut at = 0;
        while at < self.bytes.len() {
            let rest = &self.bytes[at..];
            let is_paste = rest.starts_with(PASTE_BEGIN);
            self.marks_pastes |= is_paste;
            let step = if is_paste { paste(rest, self.searched) } else { step(rest) };
            match step {
                DecodeStep::Took(taken, event) => {
                    at += taken;
                    self.searched = 0;
                    self.is_split = false;
                    out.extend(event);
                }
                DecodeStep::More => {
                    self.searched = rest.len().saturating_sub(PASTE_END.len());
                    break;
                }
            }
        }
        self.bytes.drain(..at);
        if self.bytes.is_empty() {
            self.bytes.shrink_to(4096);
        }
    }

    /// Whether there is an incomplete escape sequence that may as well be the Escape key. After `ESC [` the rest is
    /// awaited without a limit: as keys it would deny a question and type what follows.
    pub fn is_waiting(&self) -> bool {
        let begins = |answer: &&[u8]| self.bytes.starts_with(answer);
        let is_answer = ANSWERS.iter().any(begins) && self.bytes.len() < MAX_ANSWER;
        !self.bytes.is_empty() && !self.bytes.starts_with(CSI) && !is_answer
    }

    /// Decodes the remaining bytes as they are, because no more bytes came.
    pub fn flush(&mut self, out: &mut Vec<TerminalEvent>) {
        if !self.is_waiting() {
            return;
        }
        let bytes = std::mem::take(&mut self.bytes);
        let rest = match bytes.as_slice() {
            [0x1b] => {
                out.push(key(KeyCode::Esc, KeyModifiers::NONE));
                &[][..]
            }
            [0x1b, rest @ ..] if self.is_split => {
                out.push(key(KeyCode::Esc, KeyModifiers::NONE));
                rest
            }
            [0x1b, second, rest @ ..] if second.is_ascii_graphic() => {
                out.push(character(char::from(*second), KeyModifiers::ALT));
                rest
            }
            // The first bytes of a character whose rest never came.
            _ => &[],
        };
        let rest = rest.to_vec();
        self.feed(&rest, out);
    }
}

/// The text of bytes that are several lines of it, and nothing else; `None` for keys. After a paste its last line counts,
/// too. A character that is cut off at the end is left to the bytes that follow.
fn lines_of(bytes: &[u8], follows_paste: bool) -> Option<&[u8]> {
    let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
    let has_text = |bytes: &[u8]| bytes.iter().any(|byte| !byte.is_ascii_whitespace());
    let first = bytes.iter().position(is_end);
    let is_several = first.is_some_and(|at| has_text(&bytes[..at]) && has_text(&bytes[at..]));
    let is_text = !bytes.iter().any(|byte| byte.is_ascii_control() && !is_end(byte) && *byte != b'\t');
    if !is_text || !(is_several || follows_paste && has_text(bytes)) {
        return None;
    }
    match std::str::from_utf8(bytes) {
        Ok(_) => Some(bytes),
        Err(error) if error.error_len().is_none() => Some(&bytes[..error.valid_up_to()]),
        Err(_) => None,
    }
}

/// Whether a sequence may continue with this byte after an Escape that arrived alone, as over a slow line.
fn continues_sequence(byte: u8) -> bool {
    matches!(byte, b'[' | b'O' | b']' | b'P' | b'_' | b'^' | 0x1b)
}

/// A whole paste. An end mark inside of it (no honest terminal sends one) is known by the one that follows.
fn paste(bytes: &[u8], searched: usize) -> DecodeStep {
    let from = searched.max(PASTE_BEGIN.len()).min(bytes.len());
    let Some(first) = find(&bytes[from..], PASTE_END).map(|i| from + i) else {
        return DecodeStep::More;
    };
    let mut end = first;
    while let Some(next) = find(&bytes[end + PASTE_END.len()..], PASTE_END).map(|i| end + PASTE_END.len() + i)
    {
        if find(&bytes[end..next], PASTE_BEGIN).is_some() {
            break;
        }
        end = next;
    }
    let inside = typed_in(&bytes[PASTE_BEGIN.len()..end]);
    DecodeStep::Took(end + PASTE_END.len(), Some(TerminalEvent::Paste(clean(&inside))))
}

/// Returns pasted text with line ends as `\n`, and without marks and controls.
fn clean(paste: &[u8]) -> String {
    let text =
        String::from_utf8_lossy(paste).replace("\x1b[201~", "").replace("\r\n", "\n").replace('\r', "\n");
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

/// A paste without the keys in it: some terminals send its line ends as Ctrl-J, and that as a sequence. Other sequences
/// are part of the text.
fn typed_in(paste: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(paste.len());
    let mut rest = paste;
    while let Some(at) = find(rest, b"\x1b[") {
        text.extend_from_slice(&rest[..at]);
        rest = &rest[at..];
        let end = rest.iter().skip(2).position(|b| !(b.is_ascii_digit() || matches!(b, b';' | b':')));
        let (parameters, last) = match end {
            Some(end) => (&rest[2..2 + end], rest[2 + end]),
            None => (&rest[2..], 0),
        };
        let is_key = last == b'u' || last == b'~' && parameters.starts_with(b"27;");
        let key = is_key.then(|| meaning(parameters, last)).flatten();
        let Some(TerminalEvent::Key(KeyEvent { code, modifiers, .. })) = key else {
            text.extend_from_slice(&rest[..2]);
            rest = &rest[2..];
            continue;
        };
        let is_control = modifiers.contains(KeyModifiers::CONTROL);
        match code {
            KeyCode::Enter => text.push(b'\n'),
            KeyCode::Char('j' | 'm') if is_control => text.push(b'\n'),
            KeyCode::Tab => text.push(b'\t'),
            KeyCode::Char('i') if is_control => text.push(b'\t'),
            KeyCode::Char(c) if !is_control => text.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            _ => {}
        }
        rest = &rest[2 + parameters.len() + 1..];
    }
    text.extend_from_slice(rest);
    text
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

fn step(bytes: &[u8]) -> DecodeStep {
    match bytes {
        [0x1b] => DecodeStep::More,
        [0x1b, 0x1b, ..] => DecodeStep::Took(1, Some(key(KeyCode::Esc, KeyModifiers::NONE))),
        [0x1b, b'[', rest @ ..] => csi(rest),
        [0x1b, b'O'] => DecodeStep::More,
        [0x1b, b'O', last, ..] => match function(*last) {
            Some(code) => DecodeStep::Took(3, Some(key(code, KeyModifiers::NONE))),
            None => DecodeStep::Took(2, Some(character('O', KeyModifiers::ALT))),
        },
        // Answers to queries of other programs: skipped up to their end.
        [0x1b, b']' | b'P' | b'_' | b'^', rest @ ..] => {
            let bell = find(rest, b"\x07").map(|i| i + 1);
            let st = find(rest, b"\x1b\\").map(|i| i + 2);
            match bell.into_iter().chain(st).min() {
                Some(end) => DecodeStep::Took(2 + end, answer(&rest[..end])),
                None if rest.len() > MAX_SEQUENCE => DecodeStep::Took(bytes.len(), None),
                None => DecodeStep::More,
            }
        }
        [0x1b, rest @ ..] => match plain(rest) {
            DecodeStep::Took(taken, Some(TerminalEvent::Key(mut event))) => {
                event.modifiers |= KeyModifiers::ALT;
                DecodeStep::Took(taken + 1, Some(TerminalEvent::Key(event)))
            }
            DecodeStep::Took(taken, event) => DecodeStep::Took(taken + 1, event),
            DecodeStep::More => DecodeStep::More,
        },
        _ => plain(bytes),
    }
}

/// Decodes an answer of the terminal to our queries.
fn answer(bytes: &[u8]) -> Option<TerminalEvent> {
    let text = std::str::from_utf8(bytes).ok()?.trim_end_matches(['\x07', '\x1b', '\\']);
    Background::of_answer(text).map(TerminalEvent::Background)
}

/// Decodes a character or control that is not an escape sequence.
fn plain(bytes: &[u8]) -> DecodeStep {
    let Some(&first) = bytes.first() else {
        return DecodeStep::More;
    };
    let control = |c: u8| key(KeyCode::Char(char::from(c)), KeyModifiers::CONTROL);
    let event = match first {
        b'\r' => key(KeyCode::Enter, KeyModifiers::NONE),
        b'\t' => key(KeyCode::Tab, KeyModifiers::NONE),
        0x7f => key(KeyCode::Backspace, KeyModifiers::NONE),
        0 => control(b' '),
        0x01..=0x1a => control(first - 1 + b'a'),
        0x1b..=0x1f => control(first - 0x1c + b'4'),
        0x20..0x7f => character(char::from(first), KeyModifiers::NONE),
        0x80.. => {
            let length = match first {
                0xc2..=0xdf => 2,
                0xe0..=0xef => 3,
                0xf0..=0xf4 => 4,
                _ => return DecodeStep::Took(1, None),
            };
            let whole = &bytes[..length.min(bytes.len())];
            return match std::str::from_utf8(whole) {
                Ok(text) => {
                    let typed = text.chars().next().filter(|c| !c.is_control());
                    DecodeStep::Took(length, typed.map(|c| character(c, KeyModifiers::NONE)))
                }
                Err(error) if error.error_len().is_none() => DecodeStep::More,
                Err(_) => DecodeStep::Took(1, None),
            };
        }
    };
    DecodeStep::Took(1, Some(event))
}

/// The rest of a sequence after `ESC [`.
fn csi(rest: &[u8]) -> DecodeStep {
    // The function keys of the Linux console.
    if let [b'[', tail @ ..] = rest {
        return match tail {
            [] => DecodeStep::More,
            [c @ b'A'..=b'E', ..] => {
                DecodeStep::Took(4, Some(key(KeyCode::F(c - b'A' + 1), KeyModifiers::NONE)))
            }
            _ => DecodeStep::Took(3, None),
        };
    }
    let Some(end) = rest.iter().position(|b| (0x40..=0x7e).contains(b)) else {
        // A control inside means that the sequence was cut off.
        return match rest.iter().position(|b| *b < 0x20 || *b >= 0x80) {
            Some(bad) => DecodeStep::Took(2 + bad, None),
            None if rest.len() > MAX_SEQUENCE => DecodeStep::Took(2 + rest.len(), None),
            None => DecodeStep::More,
        };
    };
    if let Some(bad) = rest[..end].iter().position(|b| *b < 0x20 || *b >= 0x80) {
        return DecodeStep::Took(2 + bad, None);
    }
    let length = 2 + end + 1;
    // X10 mouse reports are followed by three bytes; they are not requested, but must not become keys.
    if &rest[..=end] == b"M" {
        return if rest.len() < 4 { DecodeStep::More } else { DecodeStep::Took(length + 3, None) };
    }
    DecodeStep::Took(length, meaning(&rest[..end], rest[end]))
}

/// Decodes a complete `ESC [ parameters last`. Answers that were not requested are ignored.
fn meaning(parameters: &[u8], last: u8) -> Option<TerminalEvent> {
    if let (Some((b'<', report)), b'M' | b'm') = (parameters.split_first(), last) {
        return mouse(report, last == b'M');
    }
    if matches!(parameters.first(), Some(b'<' | b'=' | b'>' | b'?')) {
        return None;
    }
    let text = std::str::from_utf8(parameters).ok()?;
    let mut fields = text.split(';').map(|field| field.split(':').map(|n| n.parse::<u32>().ok()));
    let mut first = fields.next()?;
    let code = first.next().flatten();
    let shifted = first.next().flatten();
    let mut second = fields.next().into_iter().flatten();
    let bits = second.next().flatten().unwrap_or(1);
    let kind = match second.next().flatten() {
        None | Some(1) => KeyEventKind::Press,
        Some(2) => KeyEventKind::Repeat,
        _ => return None,
    };
    let third = fields.next().and_then(|mut field| field.next().flatten());
    let with = modifiers(bits);
    let code = match last {
        b'I' if parameters.is_empty() => return Some(TerminalEvent::Focus(true)),
        b'O' if parameters.is_empty() => return Some(TerminalEvent::Focus(false)),
        b'Z' => return Some(key(KeyCode::BackTab, with | KeyModifiers::SHIFT)),
        b'~' => match code? {
            27 => return other(third?, with, None),
            n => tilde(n)?,
        },
        b'u' => return other(code?, with, shifted).map(|event| with_kind(event, kind)),
        // Some other answer than the key F3: a position of the cursor.
        b'R' if code.is_some_and(|n| n != 1) => return None,
        _ => function(last)?,
    };
    Some(with_kind(key(code, with), kind))
}

/// Decodes a report of the mouse: the button with its modifiers, the column and the row from 1.
fn mouse(report: &[u8], is_down: bool) -> Option<TerminalEvent> {
    let mut numbers = std::str::from_utf8(report).ok()?.split(';').map(|n| n.parse::<u16>().ok());
    let (button, column, row) = (numbers.next()??, numbers.next()??, numbers.next()??);
    let which = match button & 0b11 {
        0 => MouseButton::Left,
        1 => MouseButton::Middle,
        _ => MouseButton::Right,
    };
    let kind = match (button & 64 != 0, button & 32 != 0, button & 0b11) {
        (true, _, 0) => MouseEventKind::ScrollUp,
        (true, _, 1) => MouseEventKind::ScrollDown,
        (true, _, _) => return None,
        (false, true, 3) => MouseEventKind::Moved,
        (false, true, _) => MouseEventKind::Drag(which),
        (false, false, 3) => return None,
        (false, false, _) if is_down => MouseEventKind::Down(which),
        (false, false, _) => MouseEventKind::Up(which),
    };
    let held = [(4, KeyModifiers::SHIFT), (8, KeyModifiers::ALT), (16, KeyModifiers::CONTROL)];
    let modifiers = held.into_iter().filter(|(bit, _)| button & bit != 0).map(|(_, held)| held).collect();
    let (column, row) = (column.checked_sub(1)?, row.checked_sub(1)?);
    Some(TerminalEvent::Mouse(MouseEvent { kind, column, row, modifiers }))
}

fn with_kind(event: TerminalEvent, kind: KeyEventKind) -> TerminalEvent {
    match event {
        TerminalEvent::Key(event) => TerminalEvent::Key(KeyEvent { kind, ..event }),
        other => other,
    }
}

/// A key that is sent as a number of a character (kitty's `u`, xterm's `27;…~`).
fn other(code: u32, with: KeyModifiers, shifted: Option<u32>) -> Option<TerminalEvent> {
    let code = match code {
        27 => KeyCode::Esc,
        13 | 57414 => KeyCode::Enter,
        9 if with.contains(KeyModifiers::SHIFT) => KeyCode::BackTab,
        9 => KeyCode::Tab,
        8 | 127 => KeyCode::Backspace,
        57376..=57398 => KeyCode::F((code - 57376 + 13) as u8),
        57399..=57408 => KeyCode::Char(char::from(b'0' + (code - 57399) as u8)),
        57409 => KeyCode::Char('.'),
        57410 => KeyCode::Char('/'),
        57411 => KeyCode::Char('*'),
        57412 => KeyCode::Char('-'),
        57413 => KeyCode::Char('+'),
        57415 => KeyCode::Char('='),
        57416 => KeyCode::Char(','),
        57417 => KeyCode::Left,
        57418 => KeyCode::Right,
        57419 => KeyCode::Up,
        57420 => KeyCode::Down,
        57421 => KeyCode::PageUp,
        57422 => KeyCode::PageDown,
        57423 => KeyCode::Home,
        57424 => KeyCode::End,
        57425 => KeyCode::Insert,
        57426 => KeyCode::Delete,
        // Lock, media and modifier keys.
        57344..=63743 => return None,
        _ => {
            let shift = with.contains(KeyModifiers::SHIFT);
            let code = shifted.filter(|_| shift).unwrap_or(code);
            let c = char::from_u32(code).filter(|c| !c.is_control())?;
            // A letter with Shift alone is that letter's capital, as in the legacy form.
            let alone = with.difference(KeyModifiers::SHIFT).is_empty();
            let mut upper = c.to_uppercase();
            let c = match (shift && alone, upper.next(), upper.next()) {
                (true, Some(upper), None) => upper,
                _ => c,
            };
            return Some(key(KeyCode::Char(c), with));
        }
    };
    Some(key(code, with))
}

fn tilde(n: u32) -> Option<KeyCode> {
    Some(match n {
        1 | 7 => KeyCode::Home,
        2 => KeyCode::Insert,
        3 => KeyCode::Delete,
        4 | 8 => KeyCode::End,
        5 => KeyCode::PageUp,
        6 => KeyCode::PageDown,
        11..=15 => KeyCode::F((n - 10) as u8),
        17..=21 => KeyCode::F((n - 11) as u8),
        23..=26 => KeyCode::F((n - 12) as u8),
        28..=29 => KeyCode::F((n - 13) as u8),
        31..=34 => KeyCode::F((n - 14) as u8),
        _ => return None,
    })
}

/// Cursor and function keys by their last letter, after `ESC [` and `ESC O` alike.
fn function(last: u8) -> Option<KeyCode> {
    Some(match last {
        b'A' => KeyCode::Up,
        b'B' => KeyCode::Down,
        b'C' => KeyCode::Right,
        b'D' => KeyCode::Left,
        b'F' => KeyCode::End,
        b'H' => KeyCode::Home,
        b'M' => KeyCode::Enter,
        b'P'..=b'S' => KeyCode::F(last - b'P' + 1),
        _ => return None,
    })
}

fn modifiers(bits: u32) -> KeyModifiers {
    let bits = bits.saturating_sub(1);
    let all = [
        (1, KeyModifiers::SHIFT),
        (2, KeyModifiers::ALT),
        (4, KeyModifiers::CONTROL),
        (8, KeyModifiers::SUPER),
        (16, KeyModifiers::HYPER),
        (32, KeyModifiers::META),
    ];
    all.into_iter().filter(|(bit, _)| bits & bit != 0).map(|(_, modifier)| modifier).collect()
}

fn key(code: KeyCode, modifiers: KeyModifiers) -> TerminalEvent {
    TerminalEvent::Key(KeyEvent::new(code, modifiers))
}

/// A typed character; capitals carry Shift.
fn character(c: char, modifiers: KeyModifiers) -> TerminalEvent {
    let shift = if c.is_uppercase() { KeyModifiers::SHIFT } else { KeyModifiers::NONE };
    key(KeyCode::Char(c), modifiers | shift)
}
