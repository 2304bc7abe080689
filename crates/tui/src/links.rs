//! Links (OSC 8).
//!
//! A cell of the screen has no room for a URL, only for a number: the number is stored as the underline colour,
//! marked by a modifier that no terminal uses. URLs are kept for as long as the program runs, so that a number never
//! changes its meaning.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use ratatui::style::{Color, Modifier, Style};

use aye_core::contract::display::is_unsafe;

/// Says that the colour of the underline is the number of an address.
const LINKED: Modifier = Modifier::from_bits_retain(1 << 15);
/// Maximum number of URLs kept, and maximum length of one. Beyond these limits, URLs are plain text.
const MOST: usize = 20_000;
const MOST_BYTES: usize = 1_500;
/// The schemes that a click may open. None of them runs anything.
const SCHEMES: [&str; 4] = ["https://", "http://", "mailto:", "ftp://"];

/// The addresses that were shown. Clones share them; the default one makes no links.
#[derive(Clone, Debug, Default)]
pub struct Links {
    known: Option<Arc<Mutex<LinkTable>>>,
    files: bool,
}

#[derive(Debug, Default)]
struct LinkTable {
    all: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, usize>,
}

impl PartialEq for Links {
    fn eq(&self, other: &Links) -> bool {
        match (&self.known, &other.known) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }
}

impl Links {
    /// Returns links for a terminal that shows them, judged by its environment: by `FORCE_HYPERLINK`, or else
    /// by its name. Files are left out if the terminal is on another machine.
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Links {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let shown = match set("FORCE_HYPERLINK") {
            Some(value) => value != "0",
            None => are_shown(&set),
        };
        let is_remote = ["SSH_CONNECTION", "SSH_TTY", "SSH_CLIENT"].iter().any(|name| set(name).is_some());
        Links { known: shown.then(Arc::default), files: !is_remote }
    }

    /// Whether links are created.
    pub fn are_on(&self) -> bool {
        self.known.is_some()
    }

    /// The style that makes text lead to an address; without one where that is not possible or not wise.
    pub fn to(&self, address: &str) -> Style {
        let scheme = SCHEMES.iter().find(|scheme| {
            address.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        });
        if scheme.is_none_or(|scheme| address.len() == scheme.len()) || address.chars().any(is_unsafe) {
            return Style::default();
        }
        let mut encoded = String::with_capacity(address.len());
        for c in address.chars() {
            if c.is_ascii_graphic() && !matches!(c, '"' | '<' | '>' | '\\' | '^' | '`' | '{' | '|' | '}') {
                encoded.push(c);
            } else {
                percent(c, &mut encoded);
            }
        }
        self.number(encoded)
    }

    /// The same for a file, by its whole path.
    pub fn file(&self, path: &Path) -> Style {
        let Some(path) = path.to_str().filter(|path| self.files && path.starts_with('/')) else {
            return Style::default();
        };
        let mut encoded = String::from("file://");
        for c in path.chars() {
            if c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '-' | '_' | '~') {
                encoded.push(c);
            } else {
                percent(c, &mut encoded);
            }
        }
        self.number(encoded)
    }

    fn number(&self, address: String) -> Style {
        let Some(known) = self.known.as_ref().filter(|_| address.len() <= MOST_BYTES) else {
            return Style::default();
        };
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        let number = if let Some(number) = known.numbers.get(address.as_str()) {
            *number
        } else if known.all.len() < MOST {
            let address: Arc<str> = address.into();
            let number = known.all.len();
            known.all.push(Arc::clone(&address));
            known.numbers.insert(address, number);
            number
        } else {
            return Style::default();
        };
        let colour = Color::Rgb((number >> 16) as u8, (number >> 8) as u8, number as u8);
        Style::new().add_modifier(LINKED).underline_color(colour)
    }

    /// The address of a number.
    pub(super) fn address(&self, number: u32) -> Option<Arc<str>> {
        let known = self.known.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        known.all.get(number as usize).cloned()
    }
}

/// Whether a line is a URL and nothing else.
pub fn is_address(line: &str) -> bool {
    (line.starts_with("https://") || line.starts_with("http://")) && !line.contains(char::is_whitespace)
}

/// The address that a page is about: the only one that has a line of its own.
pub fn sole_address(text: &str) -> Option<&str> {
    let mut found = text.lines().filter(|line| is_address(line));
    found.next().filter(|_| found.next().is_none())
}

/// Takes the number of an address out of a cell's style: what is left is for the terminal.
pub(super) fn take(modifier: &mut Modifier, underline: &mut Color) -> Option<u32> {
    if !modifier.contains(LINKED) {
        return None;
    }
    modifier.remove(LINKED);
    match std::mem::take(underline) {
        Color::Rgb(high, middle, low) => Some(u32::from_be_bytes([0, high, middle, low])),
        _ => None,
    }
}

fn percent(c: char, out: &mut String) {
    for byte in c.encode_utf8(&mut [0; 4]).bytes() {
        let _ = write!(out, "%{byte:02X}");
    }
}

/// Whether a terminal with that environment shows links. Other terminals mostly hide the sequence; old ones
/// print it.
fn are_shown(set: &dyn Fn(&str) -> Option<String>) -> bool {
    let term = set("TERM").unwrap_or_default();
    if term == "dumb" || term == "linux" || term.is_empty() || set("STY").is_some() {
        return false;
    }
    let number = |name: &str| set(name).and_then(|value| value.parse::<u32>().ok()).unwrap_or(0);
    let program = set("TERM_PROGRAM").unwrap_or_default();
    if program == "tmux" || set("TMUX").is_some() {
        // It passes them on from 3.4, to terminals that it knows to show them.
        let version = set("TERM_PROGRAM_VERSION").unwrap_or_default();
        let mut parts = version.split('.').map(|part| {
            part.chars().take_while(char::is_ascii_digit).collect::<String>().parse::<u32>().unwrap_or(0)
        });
        return (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= (3, 4);
    }
    let by_name = ["kitty", "foot", "alacritty", "ghostty", "wezterm", "contour"];
    let programs =
        ["iTerm.app", "WezTerm", "vscode", "ghostty", "Hyper", "Tabby", "rio", "zed", "WarpTerminal"];
    by_name.iter().any(|name| term.contains(name))
        || programs.contains(&program.as_str())
        || number("VTE_VERSION") >= 5000
        || number("KONSOLE_VERSION") >= 201_200
        || set("WT_SESSION").is_some()
        || set("KITTY_WINDOW_ID").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Links {
        Links::of(|name| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned()))
    }

    fn address(links: &Links, style: Style) -> Option<String> {
        let mut underline = style.underline_color.unwrap_or_default();
        let mut modifier = style.add_modifier;
        let number = take(&mut modifier, &mut underline)?;
        links.address(number).map(|address| address.to_string())
    }

    #[test]
    fn only_terminals_that_support_links_get_them() {
        for shown in [
            &[("TERM", "xterm-kitty")][..],
            &[("TERM", "xterm-256color"), ("VTE_VERSION", "7600")],
            &[("TERM", "tmux-256color"), ("TERM_PROGRAM", "tmux"), ("TERM_PROGRAM_VERSION", "3.5a")],
            &[("TERM", "dumb"), ("FORCE_HYPERLINK", "1")],
        ] {
            assert!(of(shown).are_on(), "{shown:?}");
        }
        for hidden in [
            &[][..],
            &[("TERM", "dumb"), ("WT_SESSION", "1")],
            &[("TERM", "linux")],
            &[("TERM", "xterm-256color")],
            &[
                ("TERM", "screen"),
                ("TMUX", "/tmp/x"),
                ("TERM_PROGRAM", "tmux"),
                ("TERM_PROGRAM_VERSION", "3.3a"),
            ],
            &[("TERM", "xterm-kitty"), ("FORCE_HYPERLINK", "0")],
        ] {
            assert!(!of(hidden).are_on(), "{hidden:?}");
        }
    }

    #[test]
    fn urls_are_plain_and_open_nothing_that_runs() {
        let links = of(&[("TERM", "xterm-kitty")]);
        let to = |text: &str| address(&links, links.to(text));
        assert_eq!(to("https://example.org/a b?q=ü").as_deref(), Some("https://example.org/a%20b?q=%C3%BC"));
        assert_eq!(to("HTTPS://example.org").as_deref(), Some("HTTPS://example.org"));
        for bad in [
            "javascript:alert(1)",
            "file:///etc/passwd",
            "x",
            "https://",
            "https://a\u{1b}]8;;x",
            "http://\u{202e}y",
        ] {
            assert_eq!(to(bad), None, "{bad:?}");
        }
        assert_eq!(to(&format!("https://{}", "x".repeat(3000))), None);
        let file = |path: &str| address(&links, links.file(Path::new(path)));
        assert_eq!(file("/a b/ü;\u{1b}.rs").as_deref(), Some("file:///a%20b/%C3%BC%3B%1B.rs"));
        assert_eq!(file("a"), None);
        let remote = of(&[("TERM", "xterm-kitty"), ("SSH_TTY", "/dev/pts/1")]);
        assert_eq!(address(&remote, remote.file(Path::new("/a"))), None);
    }

    #[test]
    fn a_number_always_means_the_same_url() {
        let links = of(&[("TERM", "xterm-kitty")]);
        let first = links.to("https://a.org");
        for n in 0..MOST {
            links.to(&format!("https://b.org/{n}"));
        }
        assert_eq!(address(&links, first).as_deref(), Some("https://a.org"));
        assert_eq!(links.to("https://a.org"), first);
        assert_eq!(links.to("https://late.org"), Style::default());
    }
}
