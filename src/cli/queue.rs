//! `aye queue` and `aye work`: requests that wait, and those who work on them.

use clap::{Args, Subcommand};

/// `aye queue ...`
#[derive(Clone, Debug, Subcommand)]
pub enum QueueCommand {
    /// Queue a message for `aye work`, or for a terminal that shows the conversation
    #[command(
        after_help = "Examples:\n  aye queue add \"bring the changelog up to date\"\n  aye queue add --thread 0198c --at 22:00 \"run the long tests\"\n  git diff | aye queue add --priority 10 \"review this\""
    )]
    Add(QueueAddArgs),
    /// List jobs: queued, running, waiting for an answer, or dead
    List(QueueListArgs),
    /// Cancel jobs that are not running
    Cancel {
        /// Job numbers, or the first characters of their ids
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
    /// List undelivered messages to webhooks, or send them again
    Outbox(QueueOutboxArgs),
    /// Retry dead jobs
    Retry {
        /// Job numbers, or the first characters of their ids
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
}

/// `aye queue add`
#[derive(Args, Clone, Debug)]
pub struct QueueAddArgs {
    /// The message; piped input is attached
    #[arg(value_name = "PROMPT")]
    pub text: Option<String>,

    /// The conversation to send it to
    #[arg(long, value_name = "ID")]
    pub thread: Option<String>,

    /// Start a new conversation in this folder (the default)
    #[arg(long, conflicts_with = "thread")]
    pub new: bool,

    /// The agent that answers
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,

    /// Priority from 0 (first) to 255 (last)
    #[arg(long, value_name = "N", default_value_t = crate::contract::mailbox::DEFAULT_PRIORITY)]
    pub priority: u8,

    /// Start at this time at the earliest: 14:30, 2h (from now), a day, or a time such as 2026-11-21T14:30:00Z
    #[arg(long, value_name = "TIME")]
    pub at: Option<String>,

    /// Refuse the message while the conversation has another open job with this key
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,

    /// Write JSON
    #[arg(long)]
    pub json: bool,
}

/// `aye queue list`
#[derive(Args, Clone, Debug)]
pub struct QueueListArgs {
    /// Only jobs of this conversation
    #[arg(long, value_name = "ID")]
    pub thread: Option<String>,

    /// Include closed jobs
    #[arg(long)]
    pub all: bool,

    /// Write JSON
    #[arg(long)]
    pub json: bool,
}

/// `aye queue outbox`
#[derive(Args, Clone, Debug)]
pub struct QueueOutboxArgs {
    /// Include delivered messages
    #[arg(long)]
    pub all: bool,

    /// Send the dead message with this number again
    #[arg(long, value_name = "N")]
    pub retry: Option<u64>,

    /// Write JSON
    #[arg(long)]
    pub json: bool,
}

/// `aye work`
#[derive(Args, Clone, Debug)]
pub struct WorkArgs {
    /// Run one job, if one is due, and exit
    #[arg(long, conflicts_with_all = ["until_empty", "max"])]
    pub once: bool,

    /// Exit when no job is due; jobs waiting for an answer or a time stay queued
    #[arg(long)]
    pub until_empty: bool,

    /// Exit after this many jobs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max: Option<u64>,

    /// Write one line of JSON per job
    #[arg(long)]
    pub json: bool,
}
