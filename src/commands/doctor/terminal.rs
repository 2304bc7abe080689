//! The features that the terminal supports according to its environment, and the settings that would improve
//! it.

use std::fmt::Write as _;

use super::CheckStatus;
use crate::config::Env;
use crate::tui::links::Links;
use crate::tui::terminal::{Abilities, Multiplexer};
use crate::tui::theme::{Background, Depth};

/// Returns a row for each feature of terminals.
pub(super) fn checks(env: &Env, are_drawn: bool) -> Vec<(&'static str, CheckStatus, String)> {
    let var = |name: &str| env.var(name).map(str::to_owned);
    let can = Abilities::of(var);
    let term = var("TERM").unwrap_or_else(|| "not set".to_owned());
    let is_poor = matches!(term.as_str(), "dumb" | "not set");
    let mut rows = Vec::new();
    let mut about = format!("TERM {term}");
    if let Some(program) = var("TERM_PROGRAM") {
        let version = var("TERM_PROGRAM_VERSION").unwrap_or_default();
        let _ = write!(about, ", {program} {version}");
    }
    if let Some(multiplexer) = can.multiplexer {
        let _ = write!(about, ", in {}", multiplexer.name());
    }
    if can.remote {
        about.push_str(", over ssh");
    }
    let advice = if is_poor { "; set TERM to your terminal, for example xterm-256color" } else { "" };
    let state = if is_poor { CheckStatus::Warning } else { CheckStatus::Ok };
    rows.push(("terminal", state, format!("{}{advice}", about.trim_end())));

    let is_tmux = can.multiplexer == Some(Multiplexer::Tmux);
    let colours = match can.depth {
        Depth::True => String::new(),
        Depth::None if env.has("NO_COLOR") => "; NO_COLOR is set".to_owned(),
        Depth::None => String::new(),
        Depth::Indexed | Depth::Sixteen if is_tmux => {
            "; if your terminal supports more: `set -ga terminal-features \",*:RGB\"` in tmux.conf and \
             COLORTERM=truecolor"
                .to_owned()
        }
        Depth::Indexed | Depth::Sixteen => {
            "; if your terminal supports more, set COLORTERM=truecolor".to_owned()
        }
    };
    rows.push(("colours", CheckStatus::Ok, format!("{}{colours}", can.depth.name())));
    let text = if can.utf8 { "UTF-8" } else { "the locale is not UTF-8; set LANG, for example LANG=C.UTF-8" };
    rows.push(("text", if can.utf8 { CheckStatus::Ok } else { CheckStatus::Warning }, text.to_owned()));

    let yes_no = |has: bool, what: &str, otherwise: &str| {
        if has { format!("yes: {what}") } else { format!("unknown; {otherwise}") }
    };
    let keys = if is_tmux {
        "`set -s extended-keys on` in tmux.conf helps; Alt-Enter or Ctrl-J always inserts a new line"
    } else {
        "Alt-Enter or Ctrl-J always inserts a new line"
    };
    let tmux_clipboard = if is_tmux { "; needs `set -s set-clipboard on` in tmux.conf" } else { "" };
    let tmux_focus = if is_tmux { "; needs `set -g focus-events on` in tmux.conf" } else { "" };
    let background = match var("COLORFGBG").as_deref().and_then(Background::of_colorfgbg) {
        Some(Background::Dark) => "; COLORFGBG says dark",
        Some(Background::Light) => "; COLORFGBG says light",
        None => "",
    };
    let lines = [
        ("keys", yes_no(can.keys, "Shift-Enter and the like (kitty keyboard)", keys)),
        (
            "frames",
            yes_no(can.synchronized, "frames appear at once (mode 2026)", "aye writes only what changed"),
        ),
        ("images", images(&can, are_drawn)),
        ("links", yes_no(Links::of(var).are_on(), "clickable (OSC 8)", "URLs are written out")),
        (
            "clipboard",
            yes_no(
                can.clipboard,
                &format!("/copy (OSC 52){tmux_clipboard}"),
                "/copy may do nothing; /export writes a file",
            ),
        ),
        (
            "background",
            yes_no(
                can.background,
                &format!("queried for the theme auto (OSC 11){background}"),
                "choose the theme by name",
            ),
        ),
        (
            "focus",
            yes_no(
                can.focus,
                &format!("notifies only when unfocused{tmux_focus}"),
                "notifies only where a rule says so",
            ),
        ),
        ("title", yes_no(can.title, "shows current activity", "nothing is sent")),
        ("progress", yes_no(can.progress, "shown beside the name (OSC 9;4)", "nothing is sent")),
    ];
    rows.extend(lines.map(|(name, text)| (name, CheckStatus::Ok, text)));
    rows
}

/// Describes how images of a conversation are shown.
fn images(can: &Abilities, are_drawn: bool) -> String {
    let why = match can.pictures() {
        Some(depth) if are_drawn => return format!("in half blocks, {}", depth.name()),
        Some(_) => "as tui.images says,",
        None if !can.utf8 => "without UTF-8",
        None => "with too few colours",
    };
    format!("{why} only their names and sizes are shown; models still see them")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(variables: &[(&str, &str)]) -> String {
        let rows = checks(&Env::of(variables, "/h", "/w"), true);
        let line = |(name, state, text): (&str, CheckStatus, String)| {
            let mark = if state == CheckStatus::Ok { "" } else { "! " };
            format!("{mark}{name}: {text}\n")
        };
        rows.into_iter().map(line).collect()
    }

    #[test]
    fn it_reports_what_a_terminal_can_do_and_what_to_set() {
        insta::assert_snapshot!("doctor_dumb", rows(&[("TERM", "dumb"), ("LANG", "C")]));
        let tmux = [
            ("TERM", "tmux-256color"),
            ("TMUX", "/tmp/tmux-1/default,1,0"),
            ("LANG", "en_US.UTF-8"),
            ("SSH_CONNECTION", "1 2 3 4"),
            ("COLORFGBG", "15;0"),
        ];
        insta::assert_snapshot!("doctor_tmux_over_ssh", rows(&tmux));
        let ghostty = [("TERM", "xterm-ghostty"), ("TERM_PROGRAM", "ghostty"), ("COLORTERM", "truecolor")];
        insta::assert_snapshot!("doctor_ghostty", rows(&ghostty));
    }
}
