use clap::{Args, ValueEnum};

/// `aye stats`
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example:\n  aye stats --since 1w --by day")]
pub struct StatsArgs {
    /// Only what was done since then: 2h, 3d, 1w, a day such as 2026-11-21, or a moment
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// One table; all three without it
    #[arg(long, value_enum, value_name = "WHAT")]
    pub by: Option<StatsBy>,
    /// Write JSON
    #[arg(long)]
    pub json: bool,
}

/// What the rows of a table are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StatsBy {
    /// Models
    Model,
    /// Tools
    Tool,
    /// Days
    Day,
}

impl StatsBy {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 3] = [Self::Model, Self::Tool, Self::Day];
}
