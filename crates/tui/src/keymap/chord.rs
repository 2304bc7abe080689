//! One key with its modifiers, in a single form whatever the terminal sent.

use std::fmt;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};

/// A key with its modifiers, normalised: shift is a part of a character, `BackTab` is shift and tab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Chord {
    code: KeyCode,
    modifiers: KeyModifiers,
}

/// First of the function keys that are not keys: each represents a completed sequence.
const SEQUENCES: u8 = 64;
/// Maximum number of sequences.
pub(super) const MAX_SEQUENCES: usize = 128;

/// Returns the usual notation of consecutive keys.
pub(super) fn written(chords: &[Chord]) -> String {
    chords.iter().map(Chord::to_string).collect::<Vec<_>>().join(" ")
}

/// Mouse actions use the codes of keys that no keyboard has.
const WHEEL_UP: KeyCode = KeyCode::F(200);
const WHEEL_DOWN: KeyCode = KeyCode::F(201);
const CLICK: KeyCode = KeyCode::F(202);
const DRAG: KeyCode = KeyCode::F(203);
const RELEASE: KeyCode = KeyCode::F(204);

const NAMES: [(&str, KeyCode); 19] = [
    ("enter", KeyCode::Enter),
    ("esc", KeyCode::Esc),
    ("tab", KeyCode::Tab),
    ("space", KeyCode::Char(' ')),
    ("backspace", KeyCode::Backspace),
    ("delete", KeyCode::Delete),
    ("insert", KeyCode::Insert),
    ("up", KeyCode::Up),
    ("down", KeyCode::Down),
    ("left", KeyCode::Left),
    ("right", KeyCode::Right),
    ("home", KeyCode::Home),
    ("end", KeyCode::End),
    ("pageup", KeyCode::PageUp),
    ("wheelup", WHEEL_UP),
    ("wheeldown", WHEEL_DOWN),
    ("click", CLICK),
    ("drag", DRAG),
    ("release", RELEASE),
];

impl Chord {
    /// The chord of a key event.
    pub fn of(key: KeyEvent) -> Chord {
        let known = KeyModifiers::CONTROL | KeyModifiers::ALT | KeyModifiers::SHIFT;
        Chord::new(key.code, key.modifiers & known)
    }

    /// The chord of what the mouse did, when that is something.
    pub fn of_mouse(event: MouseEvent) -> Option<Chord> {
        let code = match event.kind {
            MouseEventKind::ScrollUp => WHEEL_UP,
            MouseEventKind::ScrollDown => WHEEL_DOWN,
            MouseEventKind::Down(MouseButton::Left) => CLICK,
            MouseEventKind::Drag(MouseButton::Left) => DRAG,
            MouseEventKind::Up(MouseButton::Left) => RELEASE,
            MouseEventKind::Down(_) | MouseEventKind::Drag(_) | MouseEventKind::Up(_) => return None,
            MouseEventKind::Moved | MouseEventKind::ScrollLeft | MouseEventKind::ScrollRight => return None,
        };
        let known = KeyModifiers::CONTROL | KeyModifiers::ALT | KeyModifiers::SHIFT;
        Some(Chord::new(code, event.modifiers & known))
    }

    /// Returns the chord that represents the sequence of that number.
    pub(super) fn of_sequence(number: usize) -> Chord {
        let number = u8::try_from(number.min(MAX_SEQUENCES)).unwrap_or(u8::MAX - SEQUENCES);
        Chord { code: KeyCode::F(SEQUENCES + number), modifiers: KeyModifiers::NONE }
    }

    /// Returns the number of the sequence that the chord represents.
    pub(super) fn sequence(self) -> Option<usize> {
        match self.code {
            // Beyond them is the mouse.
            KeyCode::F(n) => n.checked_sub(SEQUENCES).map(usize::from).filter(|n| *n < MAX_SEQUENCES),
            _ => None,
        }
    }

    /// The event of this key.
    pub(super) fn key(self) -> KeyEvent {
        KeyEvent::new(self.code, self.modifiers)
    }

    /// Whether the chord types a character.
    pub(super) fn writes(self) -> bool {
        matches!(self.code, KeyCode::Char(_)) && self.modifiers.is_empty()
    }

    /// Reads keys that are pressed one after another: `ctrl-x ctrl-e`.
    pub fn parse_all(text: &str) -> Option<Vec<Chord>> {
        let chords: Option<Vec<Chord>> = text.split_whitespace().map(Chord::parse).collect();
        chords.filter(|chords| (1..=4).contains(&chords.len()))
    }

    fn new(code: KeyCode, mut modifiers: KeyModifiers) -> Chord {
        let code = match code {
            KeyCode::BackTab => {
                modifiers |= KeyModifiers::SHIFT;
                KeyCode::Tab
            }
            KeyCode::Char(c) if modifiers.intersects(KeyModifiers::CONTROL) => {
                // Terminals without a keyboard protocol send ctrl-7 or ctrl-/ for ctrl-_.
                KeyCode::Char(if matches!(c, '7' | '/') { '_' } else { c.to_ascii_lowercase() })
            }
            KeyCode::Char(c) if modifiers.contains(KeyModifiers::SHIFT) && c != ' ' => {
                modifiers -= KeyModifiers::SHIFT;
                KeyCode::Char(if c.is_ascii_lowercase() { c.to_ascii_uppercase() } else { c })
            }
            other => other,
        };
        Chord { code, modifiers }
    }

    /// Reads `ctrl-alt-x`, `shift-tab`, `f1`.
    pub fn parse(text: &str) -> Option<Chord> {
        let mut modifiers = KeyModifiers::NONE;
        let mut rest = text;
        loop {
            let lower = rest.to_ascii_lowercase();
            let (held, length) = if lower.starts_with("ctrl-") && rest.len() > 5 {
                (KeyModifiers::CONTROL, 5)
            } else if lower.starts_with("alt-") && rest.len() > 4 {
                (KeyModifiers::ALT, 4)
            } else if lower.starts_with("shift-") && rest.len() > 6 {
                (KeyModifiers::SHIFT, 6)
            } else {
                break;
            };
            modifiers |= held;
            rest = &rest[length..];
        }
        let mut chars = rest.chars();
        if let (Some(c), None) = (chars.next(), chars.next()) {
            return (!c.is_control() && c != ' ').then(|| Chord::new(KeyCode::Char(c), modifiers));
        }
        let lower = rest.to_ascii_lowercase();
        if lower == "pagedown" {
            return Some(Chord::new(KeyCode::PageDown, modifiers));
        }
        if let Some((_, code)) = NAMES.iter().find(|(name, _)| *name == lower) {
            return Some(Chord::new(*code, modifiers));
        }
        let number: u8 = lower.strip_prefix('f')?.parse().ok()?;
        (1..=12).contains(&number).then(|| Chord::new(KeyCode::F(number), modifiers))
    }

    /// Whether the key is one that is pressed without looking: it must never approve anything.
    pub(super) fn is_reflex(self) -> bool {
        let ctrl = self.modifiers.contains(KeyModifiers::CONTROL);
        matches!(self.code, KeyCode::Enter | KeyCode::Esc)
            || self.code == KeyCode::Char(' ')
            || (ctrl && matches!(self.code, KeyCode::Char('c' | 'd' | 'j' | 'm' | 'z')))
    }
}

impl fmt::Display for Chord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (held, name) in
            [(KeyModifiers::CONTROL, "Ctrl-"), (KeyModifiers::ALT, "Alt-"), (KeyModifiers::SHIFT, "Shift-")]
        {
            if self.modifiers.contains(held) {
                f.write_str(name)?;
            }
        }
        match self.code {
            KeyCode::Char(' ') => f.write_str("Space"),
            KeyCode::Char(c) if self.modifiers.is_empty() => write!(f, "{c}"),
            // `alt-T` is another key than `alt-t`.
            KeyCode::Char(c) if c.is_uppercase() => write!(f, "Shift-{c}"),
            KeyCode::Char(c) => write!(f, "{}", c.to_ascii_uppercase()),
            KeyCode::Up => f.write_str("↑"),
            KeyCode::Down => f.write_str("↓"),
            KeyCode::Left => f.write_str("←"),
            KeyCode::Right => f.write_str("→"),
            KeyCode::PageUp => f.write_str("PageUp"),
            KeyCode::PageDown => f.write_str("PageDown"),
            KeyCode::F(n @ 1..=12) => write!(f, "F{n}"),
            code => {
                let name = NAMES.iter().find(|known| known.1 == code).map_or("?", |known| known.0);
                let mut chars = name.chars();
                let first = chars.next().unwrap_or('?').to_ascii_uppercase();
                write!(f, "{first}{}", chars.as_str())
            }
        }
    }
}
