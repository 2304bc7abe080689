//! `aye docs`: the manual without a network.

use std::fmt::Write as _;
use std::io::IsTerminal as _;

use clap::Args;
use clap::builder::PossibleValuesParser;

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
    ("index", include_str!("../../docs/index.md")),
    ("getting-started", include_str!("../../docs/getting-started.md")),
    ("tutorial", include_str!("../../docs/tutorial.md")),
    ("coming-from", include_str!("../../docs/coming-from.md")),
    ("how-do-i", include_str!("../../docs/how-do-i.md")),
    ("keys", include_str!("../../docs/keys.md")),
    ("sessions", include_str!("../../docs/sessions.md")),
    ("worktrees", include_str!("../../docs/worktrees.md")),
    ("replay", include_str!("../../docs/replay.md")),
    ("background", include_str!("../../docs/background.md")),
    ("terminals", include_str!("../../docs/terminals.md")),
    ("memory", include_str!("../../docs/memory.md")),
    ("models", include_str!("../../docs/models.md")),
    ("rules", include_str!("../../docs/rules.md")),
    ("modes", include_str!("../../docs/modes.md")),
    ("sandbox", include_str!("../../docs/sandbox.md")),
    ("approvals", include_str!("../../docs/approvals.md")),
    ("crash-safety", include_str!("../../docs/crash-safety.md")),
    ("privacy", include_str!("../../docs/privacy.md")),
    ("skills", include_str!("../../docs/skills.md")),
    ("write-a-skill", include_str!("../../docs/write-a-skill.md")),
    ("agents", include_str!("../../docs/agents.md")),
    ("mcp", include_str!("../../docs/mcp.md")),
    ("web-search", include_str!("../../docs/web-search.md")),
    ("hooks", include_str!("../../docs/hooks.md")),
    ("headless", include_str!("../../docs/headless.md")),
    ("ci", include_str!("../../docs/ci.md")),
    ("evals", include_str!("../../docs/evals.md")),
    ("containers", include_str!("../../docs/containers.md")),
    ("goals", include_str!("../../docs/goals.md")),
    ("queue", include_str!("../../docs/queue.md")),
    ("editors", include_str!("../../docs/editors.md")),
    ("server", include_str!("../../docs/server.md")),
    ("remote", include_str!("../../docs/remote.md")),
    ("http-api", include_str!("../../docs/http-api.md")),
    ("webhooks", include_str!("../../docs/webhooks.md")),
    ("web-front-ends", include_str!("../../docs/web-front-ends.md")),
    ("other-agents", include_str!("../../docs/other-agents.md")),
    ("gate", include_str!("../../docs/gate.md")),
    ("teams", include_str!("../../docs/teams.md")),
    ("security", include_str!("../../SECURITY.md")),
    ("reference", include_str!("../../docs/reference.md")),
    ("configuration", include_str!("../../docs/configuration.md")),
    ("library", include_str!("../../docs/library.md")),
    ("releasing", include_str!("../../docs/releasing.md")),
    ("speed", include_str!("../../docs/speed.md")),
    ("troubleshooting", include_str!("../../docs/troubleshooting.md")),
    ("skills-and-agents", include_str!("../../docs/skills-and-agents.md")),
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
    let text = PAGES.iter().find(|(page, _)| page == name).map_or("", |(_, text)| *text);
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
    for (name, text) in PAGES {
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
    for (name, _) in PAGES {
        let command = format!("](<aye docs {name}>)");
        shown = shown.replace(&format!("]({name}.md)"), &command);
        // The part of a page that a link names cannot be opened alone.
        while let Some((before, (_, after))) = shown
            .split_once(&format!("]({name}.md#"))
            .and_then(|(before, after)| Some((before, after.split_once(')')?)))
        {
            shown = format!("{before}{command}{after}");
        }
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
        for (name, text) in PAGES {
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
        for (name, text) in PAGES {
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
        let linked = page("See [files](rules.md#files) and [notes](memory.md).", 60, Depth::None);
        assert!(linked.contains("aye docs rules") && linked.contains("aye docs memory"), "{linked}");
        assert!(!linked.contains(".md"), "{linked}");
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
