//! `aye queue` and `aye work`: requests that wait, and those who work on them.

use clap::{Args, Subcommand};

/// `aye queue ...`
#[derive(Clone, Debug, Subcommand)]
pub enum QueueCommand {
    /// Queue a message, for whoever works on the queue: `aye work`, or a terminal that shows the conversation
    #[command(
        after_help = "Examples:\n  aye queue add \"bring the changelog up to date\"\n  aye queue add --thread 0198c --at 22:00 \"run the long tests\"\n  git diff | aye queue add --priority 10 \"review this\""
    )]
    Add(QueueAddArgs),
    /// What is queued, being worked on, waiting for an answer, or given up
    List(QueueListArgs),
    /// Take messages back that are not being worked on
    Cancel {
        /// Their numbers, or the beginnings of their ids
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
    /// Queue messages again that were given up
    Retry {
        /// Their numbers, or the beginnings of their ids
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
}

/// `aye queue add`
#[derive(Args, Clone, Debug)]
pub struct QueueAddArgs {
    /// What is said; piped input goes with it
    #[arg(value_name = "PROMPT")]
    pub text: Option<String>,

    /// The conversation it is for
    #[arg(long, value_name = "ID")]
    pub thread: Option<String>,

    /// A new conversation in this folder, which is the default
    #[arg(long, conflicts_with = "thread")]
    pub new: bool,

    /// The agent that answers
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,

    /// 0 comes first, 255 last
    #[arg(long, value_name = "N", default_value_t = crate::contract::mailbox::DEFAULT_PRIORITY)]
    pub priority: u8,

    /// Not before this time: 14:30, 2h from now, a day, or a moment such as 2026-11-21T14:30:00Z
    #[arg(long, value_name = "TIME")]
    pub at: Option<String>,

    /// Refuse it while the conversation has another open message with this key
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,

    /// Write JSON
    #[arg(long)]
    pub json: bool,
}

/// `aye queue list`
#[derive(Args, Clone, Debug)]
pub struct QueueListArgs {
    /// Of this conversation only
    #[arg(long, value_name = "ID")]
    pub thread: Option<String>,

    /// Also what is over
    #[arg(long)]
    pub all: bool,

    /// Write JSON
    #[arg(long)]
    pub json: bool,
}

/// `aye work`
#[derive(Args, Clone, Debug)]
pub struct WorkArgs {
    /// Do one job, if one is due, and end
    #[arg(long, conflicts_with_all = ["until_empty", "max"])]
    pub once: bool,

    /// End when nothing is left to do; what waits for a person or for its time is left
    #[arg(long)]
    pub until_empty: bool,

    /// End after this many jobs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max: Option<u64>,

    /// Write a line of JSON for each job
    #[arg(long)]
    pub json: bool,
}
