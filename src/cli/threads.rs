//! `aye threads ...`

use clap::{Subcommand, ValueEnum};

use super::JsonFlag;

/// `aye threads ...`
#[derive(Clone, Debug, Subcommand)]
pub enum ThreadsCommand {
    /// List conversations, the latest first
    List(JsonFlag),
    /// Show one conversation
    Show {
        /// Its id, or the beginning of it
        id: String,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Delete conversations for good
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
    /// One JSON object
    Json,
    /// One file for a browser, without scripts
    Html,
}
