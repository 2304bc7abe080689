use clap::Args;
use clap::builder::PossibleValuesParser;

/// The pages of the manual by name, in reading order.
pub const PAGES: &[(&str, &str)] = &[
    ("getting-started", include_str!("../../docs/getting-started.md")),
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
