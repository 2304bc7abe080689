//! Arguments that several commands take.

use clap::Args;

/// The flag for programs that read the output.
#[derive(Args, Clone, Copy, Debug)]
pub struct JsonFlag {
    /// Write JSON
    #[arg(long)]
    pub json: bool,
}

/// The page of a list.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct PageArgs {
    /// Maximum number of rows
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Number of rows to skip
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub offset: usize,
}

/// Options of a list.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct ListArgs {
    /// Write JSON
    #[arg(long)]
    pub json: bool,
    /// The page of the list.
    #[command(flatten)]
    pub page: PageArgs,
}
