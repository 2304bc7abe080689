use clap::Subcommand;

use super::JsonFlag;

/// `aye hooks ...`
#[derive(Clone, Debug, Subcommand)]
pub enum HooksCommand {
    /// List the hooks of this folder, including those unused until it is trusted
    List(JsonFlag),
    /// Run a hook on an event from stdin and show what its answer would do; nothing else runs
    #[command(
        after_help = "Example:\n  echo '{\"call\":{\"name\":\"Bash\",\"arguments\":{\"command\":\"git push\"}}}' | aye hooks test no-push"
    )]
    Test {
        /// Name of the hook; `aye hooks list` shows it
        name: String,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
}
