use clap::{Args, Subcommand};

/// `aye memory ...`
#[derive(Clone, Debug, Subcommand)]
#[command(
    after_help = "Examples:\n  aye memory add --user \"answer in German\"\n  aye memory edit p3\n  aye memory forget p1 u2"
)]
pub enum MemoryCommand {
    /// List what is remembered about you and this project, with when and by whom it was written
    List {
        /// What is remembered about all other projects too
        #[arg(long)]
        all: bool,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Remember something about this project
    Add {
        /// What; read from stdin when it is `-`
        text: String,
        /// Remember it about you, for all projects
        #[arg(long)]
        user: bool,
        /// The form of what is told.
        #[command(flatten)]
        form: MemoryForm,
    },
    /// Write a note anew, in $EDITOR unless its text is given
    Edit {
        /// The note, as `aye memory list` shows it
        id: String,
        /// What it says from now on; read from stdin when it is `-`
        text: Option<String>,
        /// The form of what is told.
        #[command(flatten)]
        form: MemoryForm,
    },
    /// Remove notes for good
    Forget {
        /// The notes, as `aye memory list` shows them
        #[arg(required = true)]
        ids: Vec<String>,
        /// The form of what is told.
        #[command(flatten)]
        form: MemoryForm,
    },
}

/// In which form notes that were changed are told.
#[derive(Args, Clone, Copy, Debug)]
pub struct MemoryForm {
    /// Write JSON
    #[arg(long)]
    pub json: bool,
}
