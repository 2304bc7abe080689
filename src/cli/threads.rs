//! `aye threads ...`

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};

use super::{ListArgs, PageArgs};

/// `aye threads ...`
#[derive(Clone, Debug, Subcommand)]
pub enum ThreadsCommand {
    /// List conversations, latest first
    List(ListArgs),
    /// Show one conversation
    Show {
        /// Id of the conversation, or its first characters
        id: String,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Delete conversations permanently; their messages are overwritten in the store
    ///
    /// The audit keeps their questions, decisions and outcomes, with the arguments of the calls; `aye audit` shows it.
    Delete {
        /// Ids of conversations, or their first characters
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Rename a conversation
    Rename {
        /// Id of the conversation, or its first characters
        id: String,
        /// The new title
        title: String,
    },
    /// Pin a conversation: list it first
    Pin {
        /// Id of the conversation, or its first characters
        id: String,
        /// Remove the pin
        #[arg(long)]
        off: bool,
    },
    /// Fork a conversation into a new one and print its id
    Fork {
        /// Id of the conversation, or its first characters
        id: String,
        /// Number of messages to copy; all by default
        #[arg(long, value_name = "N")]
        messages: Option<u64>,
    },
    /// Search all conversations
    Search {
        /// Text to find, ignoring case
        words: String,
        /// Write JSON
        #[arg(long)]
        json: bool,
        /// The page of the list.
        #[command(flatten)]
        page: PageArgs,
    },
    /// Import a conversation that `export --format json` wrote, and print its id
    ///
    /// Messages, runs, images, summaries and state are imported; pending questions are not, and the conversations of
    /// subagents are exported separately.
    Import {
        /// The file; `-` is stdin
        file: PathBuf,
    },
    /// Write one conversation to stdout
    Export {
        /// Id of the conversation, or its first characters
        id: String,
        /// Output format
        #[arg(long, value_enum, default_value_t = ExportFormatArg::Md)]
        format: ExportFormatArg,
    },
}

/// Form of an exported conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ExportFormatArg {
    /// Markdown
    #[default]
    Md,
    /// One JSON object with everything that `import` reads
    Json,
    /// One file for a browser, without scripts
    Html,
}
