use clap::{Args, Subcommand};

/// `aye memory ...`
#[derive(Clone, Debug, Subcommand)]
#[command(
    after_help = "Examples:\n  aye memory add --user \"answer in German\"\n  aye memory edit p3\n  aye memory forget p1 u2"
)]
pub enum MemoryCommand {
    /// List the notes about you and this project, with date and author
    List {
        /// Include notes about all other projects
        #[arg(long)]
        all: bool,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Add a note about this project
    Add {
        /// Text of the note; `-` reads stdin
        text: String,
        /// A note about you, for all projects
        #[arg(long)]
        user: bool,
        /// The output format.
        #[command(flatten)]
        form: MemoryForm,
    },
    /// Edit a note, in $EDITOR unless TEXT is given
    Edit {
        /// Id of the note; `aye memory list` shows it
        id: String,
        /// New text; `-` reads stdin
        text: Option<String>,
        /// The output format.
        #[command(flatten)]
        form: MemoryForm,
    },
    /// Remove notes for good
    Forget {
        /// Ids of notes; `aye memory list` shows them
        #[arg(required = true)]
        ids: Vec<String>,
        /// The output format.
        #[command(flatten)]
        form: MemoryForm,
    },
}

/// The output format of changed notes.
#[derive(Args, Clone, Copy, Debug)]
pub struct MemoryForm {
    /// Write JSON
    #[arg(long)]
    pub json: bool,
}
