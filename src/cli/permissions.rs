//! `aye permissions ...`

use std::path::PathBuf;

use clap::Subcommand;

/// `aye permissions ...`
#[derive(Clone, Debug, Subcommand)]
pub enum PermissionsCommand {
    /// Check calls against the rules: one JSON object per line on stdin, one verdict per line on stdout
    #[command(
        after_help = "Example:\n  echo '{\"tool\":\"Bash\",\"args\":{\"command\":\"git push\"}}' | aye permissions check"
    )]
    Check {
        /// Use the rules of this file instead of those in force
        #[arg(long, value_name = "FILE")]
        rules: Option<PathBuf>,
    },
    /// Simulate rules on past calls and show where they contradict your decisions
    ///
    /// The file replaces your rules and the project's; the shipped rules stay in force. Every call of
    /// the audit is evaluated as first proposed, in its own folder, in mode `ask`. Folders and links are read
    /// as they are today; in a deleted folder, paths are compared by their text alone. The exit status is 1
    /// if a call that you denied would be allowed.
    Simulate {
        /// The rules to simulate
        #[arg(long, value_name = "FILE")]
        rules: PathBuf,
        /// Only calls since then: 2h, 3d, 2026-11-21 or an RFC 3339 time
        #[arg(long, value_name = "WHEN")]
        since: Option<String>,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Suggest the fewest rules that match the questions you always answered the same way
    ///
    /// No suggested rule would have allowed a call that you denied or edited, and none is broader than what a question
    /// offers to grant; each would have saved at least two questions. Calls that the rules in force already cover are
    /// left out. The output is a file of rules; nothing is stored.
    #[command(
        after_help = "Example:\n  aye permissions suggest --since 2w > new.yaml && aye permissions simulate --rules new.yaml"
    )]
    Suggest {
        /// Only calls since then: 2h, 3d, 2026-11-21 or an RFC 3339 time
        #[arg(long, value_name = "WHEN")]
        since: Option<String>,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
}
