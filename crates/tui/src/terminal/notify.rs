//! Notifications through the terminal.

use aye_core::contract::display::visible_line;

/// Characters of a notification.
const MOST: usize = 200;

/// In which forms the terminal takes notifications of the desktop. One that knows both would show two of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Desktop {
    osc9: bool,
    osc777: bool,
}

impl Desktop {
    /// Returns the forms that the environment variables indicate; both if they indicate none.
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Desktop {
        let program = variable("TERM_PROGRAM").unwrap_or_default();
        let term = variable("TERM").unwrap_or_default();
        let only9 = matches!(program.as_str(), "iTerm.app" | "vscode") || term.contains("kitty");
        let only777 = matches!(program.as_str(), "WezTerm" | "ghostty")
            || variable("VTE_VERSION").is_some()
            || term.starts_with("rxvt")
            || term.starts_with("foot");
        Desktop { osc9: only9 || !only777, osc777: only777 || !only9 }
    }

    /// Returns the bytes of a notification. Nothing in the text can start or end an escape sequence.
    pub fn bytes(self, text: &str) -> Vec<u8> {
        // A semicolon parts the fields of one form, and a number before one means something else in the other.
        let text: String = visible_line(text).replace(';', ",").chars().take(MOST).collect();
        let mut bytes = Vec::new();
        if self.osc9 {
            bytes.extend_from_slice(format!("\x1b]9;aye: {text}\x1b\\").as_bytes());
        }
        if self.osc777 {
            bytes.extend_from_slice(format!("\x1b]777;notify;aye;{text}\x1b\\").as_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Desktop {
        Desktop::of(|name| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn a_terminal_gets_its_supported_form() {
        assert_eq!(of(&[("TERM", "xterm-256color")]), Desktop { osc9: true, osc777: true });
        assert_eq!(of(&[("TERM_PROGRAM", "iTerm.app")]), Desktop { osc9: true, osc777: false });
        assert_eq!(of(&[("VTE_VERSION", "7000")]), Desktop { osc9: false, osc777: true });
    }

    #[test]
    fn nothing_escapes_a_notification() {
        let bytes = of(&[]).bytes("a\x07b\x1b]0;x\x1b\\c;d\n\u{9c}\u{202e}e");
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(text.matches('\x1b').count(), 4, "{text:?}");
        assert!(!text.contains(['\x07', '\n', '\u{9c}', '\u{202e}']), "{text:?}");
        assert_eq!(text.matches(';').count(), 4, "{text:?}");
        assert!(of(&[]).bytes(&"x".repeat(10_000)).len() < 1_000);
    }
}
