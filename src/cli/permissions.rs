//! `aye permissions ...`

use std::path::PathBuf;

use clap::Subcommand;

/// `aye permissions ...`
#[derive(Clone, Debug, Subcommand)]
pub enum PermissionsCommand {
    /// Say what the rules make of calls: one JSON object a line on stdin, one on stdout
    #[command(
        after_help = "Example:\n  echo '{\"tool\":\"Bash\",\"args\":{\"command\":\"git push\"}}' | aye permissions check"
    )]
    Check {
        /// Use the rules of this file instead of those that hold here
        #[arg(long, value_name = "FILE")]
        rules: Option<PathBuf>,
    },
    /// Say what rules would have done with the calls of the past, and where that goes against what you decided
    ///
    /// The file stands in the place of your rules and the project's; the shipped ones hold besides it. Every call of
    /// the audit is judged as it first met the rules, in its own folder, in mode `ask`. Folders and links are looked
    /// at as they are today; in a folder that is gone, paths are judged by their letters alone. The exit status is 1
    /// when a call that you declined would be allowed.
    Simulate {
        /// The rules to try
        #[arg(long, value_name = "FILE")]
        rules: PathBuf,
        /// Calls since then only: 2h, 3d, 2026-11-21 or an RFC 3339 time
        #[arg(long, value_name = "WHEN")]
        since: Option<String>,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Suggest the fewest rules that would have answered what you always answered in the same way
    ///
    /// None of them would have allowed a call that you declined or changed, none is broader than what a question offers
    /// to grant, and each would have saved at least two questions. What the rules that hold here answer already is left
    /// out. The output is a file of rules; nothing is stored.
    #[command(
        after_help = "Example:\n  aye permissions suggest --since 2w > new.yaml && aye permissions simulate --rules new.yaml"
    )]
    Suggest {
        /// Calls since then only: 2h, 3d, 2026-11-21 or an RFC 3339 time
        #[arg(long, value_name = "WHEN")]
        since: Option<String>,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
}
