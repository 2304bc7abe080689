//! `aye audit`

use clap::Args;

/// `aye audit`
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Write access to the file is enough to rewrite the whole chain: keep the last hash of `aye \
                  audit --rows` elsewhere to detect that too.\n\nExamples:\n  aye audit --since 1d --tool \
                  Bash\n  aye audit --verify"
)]
pub struct AuditArgs {
    /// Only calls with a row since then: 2h, 3d, 2026-11-21 or an RFC 3339 time
    #[arg(long, value_name = "WHEN")]
    pub since: Option<String>,
    /// Only calls of this conversation: its id, or its first characters; it may be deleted
    #[arg(long, value_name = "ID")]
    pub thread: Option<String>,
    /// Only calls of this tool
    #[arg(long, value_name = "NAME")]
    pub tool: Option<String>,
    /// Show every rule tried, not only those that matched
    #[arg(long)]
    pub rules: bool,
    /// Write one line of JSON per call
    #[arg(long)]
    pub json: bool,
    /// Write the rows of the chain, one line of JSON each
    #[arg(long, conflicts_with_all = ["rules", "json"])]
    pub rows: bool,
    /// Verify the chain and tables; exit 1 on mismatch
    #[arg(long, conflicts_with_all = ["since", "thread", "tool", "rules", "rows"])]
    pub verify: bool,
}
