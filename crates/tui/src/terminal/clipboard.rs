//! Writes the user's clipboard through the terminal (OSC 52): it works over a remote shell, too.

use base64::Engine as _;

/// The software between the program and the terminal that has the clipboard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clipboard {
    /// Nothing, or something that hands the request on.
    #[default]
    Direct,
    /// tmux. It handles the request itself when `set-clipboard` is `on`, and passes on wrapped requests when
    /// `allow-passthrough` is, so the request is sent in both forms.
    Tmux,
    /// GNU screen: it hands on what is wrapped.
    Screen,
}

/// GNU screen hands on so much in one piece.
const SCREEN_PIECE: usize = 700;

impl Clipboard {
    /// Judged by the environment.
    pub fn of(env: impl Fn(&str) -> Option<String>) -> Clipboard {
        let set = |name: &str| env(name).is_some_and(|value| !value.is_empty());
        if set("TMUX") {
            Clipboard::Tmux
        } else if set("STY") {
            Clipboard::Screen
        } else {
            Clipboard::Direct
        }
    }

    /// Returns the bytes that put a text on the terminal's clipboard.
    pub fn bytes(self, text: &str) -> Vec<u8> {
        let encoded = base64::engine::general_purpose::STANDARD.encode(text);
        let plain = format!("\x1b]52;c;{encoded}\x07");
        match self {
            Clipboard::Direct => plain.into_bytes(),
            Clipboard::Tmux => {
                let wrapped = plain.replace('\x1b', "\x1b\x1b");
                format!("{plain}\x1bPtmux;{wrapped}\x1b\\").into_bytes()
            }
            Clipboard::Screen => {
                let mut bytes = Vec::new();
                for piece in plain.as_bytes().chunks(SCREEN_PIECE) {
                    bytes.extend_from_slice(b"\x1bP");
                    bytes.extend_from_slice(piece);
                    bytes.extend_from_slice(b"\x1b\\");
                }
                bytes
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiplexers_are_detected_from_the_environment() {
        let of = |name: &'static str| Clipboard::of(move |asked| (asked == name).then(|| "x".to_owned()));
        assert_eq!(
            [of("TMUX"), of("STY"), of("HOME")],
            [Clipboard::Tmux, Clipboard::Screen, Clipboard::Direct]
        );
    }

    #[test]
    fn text_is_wrapped_for_the_multiplexer() {
        let text =
            |clipboard: Clipboard, text: &str| String::from_utf8(clipboard.bytes(text)).expect("ascii");
        assert_eq!(text(Clipboard::Direct, "hi\u{1b}"), "\x1b]52;c;aGkb\x07");
        assert_eq!(text(Clipboard::Tmux, "hi"), "\x1b]52;c;aGk=\x07\x1bPtmux;\x1b\x1b]52;c;aGk=\x07\x1b\\");
        let long = text(Clipboard::Screen, &"x".repeat(1000));
        assert_eq!(long.matches("\x1bP").count(), 2);
        assert!(long.ends_with("\x1b\\"));
    }
}
