//! `aye docs`: the manual without a network.

use std::fmt::Write as _;
use std::io::IsTerminal as _;

use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::cli::DOCS_PAGES;
use crate::commands::pager::Pager;
use crate::config::Env;
use crate::failure::Failure;
use crate::program::put;
use crate::tui::highlight::Highlighter;
use crate::tui::terminal::styled;
use crate::tui::theme::{Depth, Theme};
use crate::tui::{markdown, terminal};

/// The pages of the manual by name, in reading order.
pub const PAGES: &[(&str, &str)] = &[
    ("getting-started", include_str!("../../docs/getting-started.md")),
    ("tutorial", include_str!("../../docs/tutorial.md")),
    ("keys", include_str!("../../docs/keys.md")),
    ("configuration", include_str!("../../docs/configuration.md")),
    ("models", include_str!("../../docs/models.md")),
    ("rules", include_str!("../../docs/rules.md")),
    ("approvals", include_str!("../../docs/approvals.md")),
    ("sessions", include_str!("../../docs/sessions.md")),
    ("skills-and-agents", include_str!("../../docs/skills-and-agents.md")),
    ("mcp", include_str!("../../docs/mcp.md")),
    ("memory", include_str!("../../docs/memory.md")),
    ("hooks", include_str!("../../docs/hooks.md")),
    ("headless", include_str!("../../docs/headless.md")),
    ("queue", include_str!("../../docs/queue.md")),
    ("editors", include_str!("../../docs/editors.md")),
    ("server", include_str!("../../docs/server.md")),
    ("terminals", include_str!("../../docs/terminals.md")),
    ("background", include_str!("../../docs/background.md")),
    ("sandbox", include_str!("../../docs/sandbox.md")),
    ("crash-safety", include_str!("../../docs/crash-safety.md")),
    ("library", include_str!("../../docs/library.md")),
    ("reference", include_str!("../../docs/reference.md")),
    ("troubleshooting", include_str!("../../docs/troubleshooting.md")),
];

/// `aye docs`
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  aye docs\n  aye docs rules\n  aye docs keys | grep inbox")]
pub struct DocsArgs {
    /// The page; without it, list all pages
    #[arg(value_parser = PossibleValuesParser::new(PAGES.iter().map(|(name, _)| *name)))]
    pub page: Option<String>,
}

/// Longer lines are tiring to read.
const MAX_COLUMNS: u16 = 100;

/// Shows a page, laid out on a terminal and as Markdown elsewhere; lists the pages when none is named. Reads no
/// settings, so that the manual also helps when they are broken.
pub(crate) fn run(args: &DocsArgs, env: &Env) -> Result<(), Failure> {
    let Some(name) = &args.page else { return put(&list()) };
    let text = DOCS_PAGES.iter().find(|(page, _)| page == name).map_or("", |(_, text)| *text);
    if !std::io::stdout().is_terminal() {
        return put(text);
    }
    let columns = terminal::size().map_or(MAX_COLUMNS, |(columns, _)| columns.clamp(20, MAX_COLUMNS));
    let depth = Depth::of(|name| env.var(name).map(str::to_owned));
    let mut pager = Pager::new(env);
    pager.write(&page(text, columns, depth))?;
    pager.finish()
}

/// The names of all pages, each with its first sentence.
fn list() -> String {
    let mut out = String::new();
    for (name, text) in DOCS_PAGES {
        let about = text.lines().skip(1).find(|line| !line.is_empty()).unwrap_or_default();
        let _ = writeln!(out, "{name:<18} {about}");
    }
    out.push_str("\naye docs PAGE shows one of them.\n");
    out
}

fn page(text: &str, columns: u16, depth: Depth) -> String {
    // Marks for the tables that a test writes.
    let shown: Vec<&str> = text.lines().filter(|line| !line.starts_with("<!-- ")).collect();
    let mut shown = shown.join("\n");
    for (name, _) in DOCS_PAGES {
        shown = shown.replace(&format!("]({name}.md)"), &format!("](<aye docs {name}>)"));
    }
    let theme = match depth {
        Depth::None => Theme::plain(),
        depth => crate::terminal::themes::default_theme().mapped(depth),
    };
    styled(&markdown::render(&shown, columns, &theme, &Highlighter::off()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_has_a_title_and_a_first_sentence() {
        for (name, text) in DOCS_PAGES {
            assert!(text.starts_with("# "), "{name}");
            let about = text.lines().nth(2).unwrap_or_default();
            assert!(about.ends_with('.') && about.len() <= 120, "{name}: {about}");
        }
        assert!(
            list().lines().any(|line| line.starts_with("rules ") && line.ends_with("`permissions.yaml`."))
        );
    }

    #[test]
    fn a_page_fits_the_terminal_and_moves_no_cursor() {
        for (name, text) in DOCS_PAGES {
            let shown = page(text, 60, Depth::Sixteen);
            assert!(!shown.contains("<!--"), "{name}");
            for line in shown.lines() {
                let bare = without_styles(line);
                assert!(crate::tui::wrap::width(&bare) <= 60, "{name}: {bare}");
            }
        }
        assert!(page("# Title", 60, Depth::Sixteen).contains("\x1b["));
        let linked = page("See [rules](rules.md).", 60, Depth::None);
        assert!(linked.contains("aye docs rules") && !linked.contains(".md"), "{linked}");
    }

    /// The line without the codes of styles; any other sequence stays and makes it longer.
    fn without_styles(line: &str) -> String {
        let mut out = String::new();
        let mut rest = line;
        while let Some((before, code)) = rest.split_once("\x1b[") {
            out.push_str(before);
            match code
                .split_once('m')
                .filter(|(code, _)| code.chars().all(|c| c.is_ascii_digit() || c == ';'))
            {
                Some((_, after)) => rest = after,
                None => panic!("not a style: {line:?}"),
            }
        }
        out + rest
    }
}
