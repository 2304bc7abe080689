//! `aye threads ...`

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};

use super::{ListArgs, PageArgs};

/// `aye threads ...`
#[derive(Clone, Debug, Subcommand)]
pub enum ThreadsCommand {
    /// List conversations, the latest first
    List(ListArgs),
    /// Show one conversation
    Show {
        /// Its id, or the beginning of it
        id: String,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Delete conversations for good: what was said is overwritten in the store
    ///
    /// The audit keeps what was asked, decided and done in them, with the arguments of the calls; `aye audit` shows it.
    Delete {
        /// Their ids, or the beginnings of them
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Name a conversation
    Rename {
        /// Its id, or the beginning of it
        id: String,
        /// What it is called from now on
        title: String,
    },
    /// Put a conversation before all others in lists
    Pin {
        /// Its id, or the beginning of it
        id: String,
        /// Put it back among the others
        #[arg(long)]
        off: bool,
    },
    /// Make a new conversation of the beginning of one, and write its id
    Fork {
        /// Its id, or the beginning of it
        id: String,
        /// How many of its messages the new one has; all without this
        #[arg(long, value_name = "N")]
        messages: Option<u64>,
    },
    /// Find what was said, in all conversations
    Search {
        /// What was said, whatever the case of its letters
        words: String,
        /// Write JSON
        #[arg(long)]
        json: bool,
        /// Which of them.
        #[command(flatten)]
        page: PageArgs,
    },
    /// Add a conversation that `export --format json` wrote, and write its id
    ///
    /// Messages, runs, images, summaries and state come along; open questions do not, and the conversations of subagents
    /// are exported on their own.
    Import {
        /// The file; `-` is stdin
        file: PathBuf,
    },
    /// Write one conversation to stdout
    Export {
        /// Its id, or the beginning of it
        id: String,
        /// Form of the text
        #[arg(long, value_enum, default_value_t = ExportFormat::Md)]
        format: ExportFormat,
    },
}

/// Form of an exported conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// Markdown
    #[default]
    Md,
    /// One JSON object, with everything that `import` takes
    Json,
    /// One file for a browser, without scripts
    Html,
}
