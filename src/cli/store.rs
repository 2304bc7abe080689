//! `aye store ...`

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::JsonFlag;
use super::time::span;

/// `aye store ...`
#[derive(Clone, Debug, Subcommand)]
pub enum StoreCommand {
    /// Write a copy of the store to a new file; safe while aye runs
    ///
    /// The copy contains conversations, questions, grants, the queue and the audit; not settings, and not the
    /// files of snapshots.
    Backup {
        /// The file, which must not exist yet
        file: PathBuf,
    },
    /// Replace the store with a backup; the old store is kept beside it
    ///
    /// Calls that were approved or running when the backup was made may have run since: each has an unknown outcome,
    /// and needs your decision before it runs again.
    Restore {
        /// The backup
        file: PathBuf,
    },
    /// Check the file, each conversation and the audit; exit 1 on errors
    Check(JsonFlag),
    /// Delete old conversations permanently, oldest first, and free their space
    ///
    /// Conversations stay if they are pinned or have a pending question, a queued job or an active run. The audit
    /// stays, with the arguments of calls.
    #[command(after_help = "Examples:\n  aye store prune --older-than 90d\n  aye store prune --keep 5GiB")]
    Prune(PruneArgs),
}

/// `aye store prune`
#[derive(Args, Clone, Copy, Debug)]
#[group(required = true, multiple = true)]
pub struct PruneArgs {
    /// Conversations last changed longer ago, for example 90d
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub older_than: Option<Duration>,
    /// Delete until the store is at most this large, for example 5GiB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub keep: Option<u64>,
}

/// Reads a number of bytes such as `500MiB`, `5GiB` or `2GB`.
fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("invalid size `{text}`; expected 500MiB or 5GiB");
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err(wrong()),
    };
    number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor)).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_are_read_as_they_are_written() {
        assert_eq!(size("5GiB"), Ok(5 << 30));
        assert_eq!(size(" 500 mib"), Ok(500 << 20));
        assert_eq!((size("2GB"), size("0"), size("10")), (Ok(2_000_000_000), Ok(0), Ok(10)));
        for wrong in ["", "GiB", "1.5G", "-1G", "5 apples", "99999999999999999999"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
