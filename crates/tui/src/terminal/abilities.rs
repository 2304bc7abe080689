//! The features that a terminal supports besides text, inferred from its environment without a query.

use crate::theme::Depth;

/// A program between us and the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Multiplexer {
    Tmux,
    Screen,
    Zellij,
}

impl Multiplexer {
    pub fn name(self) -> &'static str {
        match self {
            Multiplexer::Tmux => "tmux",
            Multiplexer::Screen => "screen",
            Multiplexer::Zellij => "zellij",
        }
    }
}

/// The abilities of a terminal. A feature that is not known to be supported is not used if it would show up
/// as garbage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abilities {
    /// It obeys escape sequences. One that does not is written to line after line.
    pub escapes: bool,
    /// The number of colours the terminal shows.
    pub depth: Depth,
    /// Whether the terminal distinguishes modified keys (the keyboard protocol of kitty).
    pub keys: bool,
    /// It shows a frame at once (mode 2026).
    pub synchronized: bool,
    /// It lets us write the clipboard (OSC 52).
    pub clipboard: bool,
    /// Whether the terminal answers queries for its background colour (OSC 11).
    pub background: bool,
    /// Whether the terminal reports when it gets the focus.
    pub focus: bool,
    /// It has a title (OSC 2).
    pub title: bool,
    /// It shows progress beside its name (OSC 9;4).
    pub progress: bool,
    /// The multiplexer between the program and the terminal.
    pub multiplexer: Option<Multiplexer>,
    /// It is on another machine.
    pub remote: bool,
    /// It shows more than ASCII.
    pub utf8: bool,
}

impl Abilities {
    /// In how many colours pictures are drawn, two pixels a cell; `None`: they are named instead.
    pub fn pictures(&self) -> Option<Depth> {
        Some(self.depth).filter(|depth| self.utf8 && *depth >= Depth::Indexed)
    }

    /// Returns the abilities that the environment variables indicate.
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Abilities {
        let get = |name: &str| variable(name).unwrap_or_default();
        let set = |name: &str| !get(name).is_empty();
        let (term, program) = (get("TERM"), get("TERM_PROGRAM"));
        let multiplexer = if set("TMUX") {
            Some(Multiplexer::Tmux)
        } else if set("STY") {
            Some(Multiplexer::Screen)
        } else if set("ZELLIJ") {
            Some(Multiplexer::Zellij)
        } else {
            None
        };
        // A multiplexer hides the terminal outside it; the multiplexer's own abilities are known.
        let is_direct = multiplexer.is_none();
        let named = |terms: &[&str], programs: &[&str]| {
            is_direct
                && (terms.iter().any(|name| term.starts_with(name)) || programs.contains(&program.as_str()))
        };
        let is_modern = named(
            &["xterm-kitty", "xterm-ghostty", "alacritty", "foot", "wezterm", "contour", "rio"],
            &["iTerm.app", "vscode", "ghostty", "WezTerm", "rio"],
        );
        let is_windows = is_direct && set("WT_SESSION");
        let is_konsole = is_direct && set("KONSOLE_VERSION");
        let is_tmux = multiplexer == Some(Multiplexer::Tmux);
        let is_screen = multiplexer == Some(Multiplexer::Screen);
        let is_poor = matches!(term.as_str(), "" | "dumb" | "linux" | "cons25" | "vt100" | "vt220");
        let locale =
            [get("LC_ALL"), get("LC_CTYPE"), get("LANG")].into_iter().find(|value| !value.is_empty());
        let utf8 = locale.is_none_or(|locale| {
            let locale = locale.to_ascii_lowercase();
            locale.contains("utf-8") || locale.contains("utf8")
        });
        Abilities {
            escapes: term != "dumb",
            depth: Depth::of(&variable),
            keys: is_modern || multiplexer == Some(Multiplexer::Zellij),
            synchronized: is_modern || is_windows || is_konsole || is_tmux,
            clipboard: is_modern || is_windows || is_tmux,
            background: !is_poor && !is_screen,
            focus: !is_poor && !is_screen,
            title: !is_poor,
            progress: is_windows
                || (is_direct && get("ConEmuANSI") == "ON")
                || named(&["xterm-ghostty"], &["ghostty", "WezTerm"])
                || (program == "iTerm.app" && at_least(&get("TERM_PROGRAM_VERSION"), (3, 6))),
            multiplexer,
            remote: set("SSH_CONNECTION") || set("SSH_TTY"),
            utf8,
        }
    }
}

fn at_least(version: &str, wanted: (u32, u32)) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Abilities {
        Abilities::of(|name| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn unsupported_sequences_are_not_sent() {
        let dumb = of(&[("TERM", "dumb")]);
        assert!(!dumb.escapes && !dumb.title && !dumb.background && !dumb.progress && !dumb.focus);
        let xterm = of(&[("TERM", "xterm-256color")]);
        assert!(xterm.title && xterm.background && !xterm.progress, "old ones show progress as a message");
        let ghostty = [("TERM", "xterm-ghostty"), ("TERM_PROGRAM", "ghostty")];
        assert!(of(&ghostty).progress && of(&ghostty).keys);
        let inside = of(&[("TERM", "tmux-256color"), ("TERM_PROGRAM", "ghostty"), ("TMUX", "/tmp/t")]);
        assert!(!inside.progress && inside.clipboard && inside.multiplexer == Some(Multiplexer::Tmux));
        assert!(of(&[("TERM_PROGRAM", "iTerm.app"), ("TERM_PROGRAM_VERSION", "3.6.6")]).progress);
        assert!(!of(&[("TERM_PROGRAM", "iTerm.app"), ("TERM_PROGRAM_VERSION", "3.4.16")]).progress);
        assert!(!of(&[("LANG", "C")]).utf8 && of(&[("LANG", "de_DE.UTF-8")]).utf8);
    }
}
