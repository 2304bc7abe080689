use clap::{Args, ValueEnum};

/// `aye stats`
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example:\n  aye stats --since 1w --by day")]
pub struct StatsArgs {
    /// Only activity since then: 2h, 3d, 1w, a day such as 2026-11-21, or an RFC 3339 time
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Show only this table; all three by default
    #[arg(long, value_enum, value_name = "WHAT")]
    pub by: Option<StatsBy>,
    /// Write JSON
    #[arg(long)]
    pub json: bool,
}

/// The grouping of a table.
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
    /// All groupings, in display order.
    pub const ALL: [Self; 3] = [Self::Model, Self::Tool, Self::Day];
}
