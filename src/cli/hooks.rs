use clap::Subcommand;

use super::JsonFlag;

/// `aye hooks ...`
#[derive(Clone, Debug, Subcommand)]
pub enum HooksCommand {
    /// List the commands that run at the boundaries of a run here, and those that would if the folder was trusted
    List(JsonFlag),
    /// Run the command of a hook on an event from stdin, and say what its answer would do; nothing else happens
    #[command(
        after_help = "Example:\n  echo '{\"call\":{\"name\":\"Bash\",\"arguments\":{\"command\":\"git push\"}}}' | aye hooks test no-push"
    )]
    Test {
        /// The hook, as `aye hooks list` names it
        name: String,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
}
