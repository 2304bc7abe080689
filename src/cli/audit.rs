//! `aye audit`

use clap::Args;

/// `aye audit`
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Whoever can write the file can write the whole chain anew: keep the last hash of `aye audit --rows` \
                  elsewhere to find that too.\n\nExamples:\n  aye audit --since 1d --tool Bash\n  aye audit --verify"
)]
pub struct AuditArgs {
    /// Calls of which something was written since then: 2h, 3d, 2026-11-21 or an RFC 3339 time
    #[arg(long, value_name = "WHEN")]
    pub since: Option<String>,
    /// Of this conversation, by id or the beginning of it; it may be deleted
    #[arg(long, value_name = "ID")]
    pub thread: Option<String>,
    /// Of this tool
    #[arg(long, value_name = "NAME")]
    pub tool: Option<String>,
    /// Show every rule that was tried, not only those that matched
    #[arg(long)]
    pub rules: bool,
    /// Write one JSON object for each call, a line each
    #[arg(long)]
    pub json: bool,
    /// Write the rows as they are in the chain, as JSON, a line each
    #[arg(long, conflicts_with_all = ["rules", "json"])]
    pub rows: bool,
    /// Look whether every row is there and as it was written, and whether the tables agree; exit status 1 if not
    #[arg(long, conflicts_with_all = ["since", "thread", "tool", "rules", "rows"])]
    pub verify: bool,
}
