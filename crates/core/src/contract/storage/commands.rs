//! Commands in the background of threads.

use async_trait::async_trait;

use super::StoreError;
use crate::contract::command::{CommandEnd, CommandNews, CommandRecord, CommandReport};
use crate::contract::ids::ThreadId;
use crate::contract::record::{AttemptId, Owner};

/// Keeps the commands that outlive their calls. A store that implements nothing of it starts none: the provided methods
/// refuse a command and know none.
///
/// # Errors
/// [`StoreError::Damaged`] when a row that is read is unreadable; see [`StoreError`] for the rest.
#[async_trait]
pub trait CommandStore: Send + Sync {
    /// Writes that a command is about to run in the background, for the call of this execution.
    ///
    /// # Errors
    /// [`StoreError::NotStarted`] without an intent; [`StoreError::Exists`] when the execution has a command.
    async fn begin_command(
        &self,
        _id: &AttemptId,
        _agent: String,
        _line: String,
        _owner: Owner,
        _now_ms: u64,
    ) -> Result<CommandRecord, StoreError> {
        let why = "this store does not support background commands".to_owned();
        Err(StoreError::Unwritable { what: "a background command", why })
    }

    /// Adds to what a command printed. A store may drop bytes from the middle. It need not wait for the disk. `false`:
    /// the command is over, or its thread was deleted.
    async fn append_command_output(&self, _number: u64, _chunk: String) -> Result<bool, StoreError> {
        Ok(false)
    }

    /// Returns the output of a command of this thread since the last check, if the command exists.
    async fn read_command_output(
        &self,
        _thread: &ThreadId,
        _number: u64,
    ) -> Result<Option<CommandNews>, StoreError> {
        Ok(None)
    }

    /// Records the end of a command, once, and queues in the same transaction the message that reports the
    /// end to its thread, if one is requested. Returns `false` if the end is already known, or the thread was
    /// deleted.
    async fn end_command(
        &self,
        _number: u64,
        _end: CommandEnd,
        _report: CommandReport,
        _now_ms: u64,
    ) -> Result<bool, StoreError> {
        Ok(false)
    }

    /// Queues what the thread does not know yet: the ends of commands, and that those ended whose process is known to be dead.
    async fn report_commands(&self, _thread: &ThreadId, _now_ms: u64) -> Result<(), StoreError> {
        Ok(())
    }

    /// Records a stop request for a command, for the process that supervises the command. Returns `false` if
    /// the command does not exist, or has ended.
    async fn stop_command(&self, _number: u64) -> Result<bool, StoreError> {
        Ok(false)
    }

    /// The command of that number, when it exists.
    async fn command(&self, _number: u64) -> Result<Option<CommandRecord>, StoreError> {
        Ok(None)
    }

    /// The commands of a thread and of those below it, oldest first.
    async fn commands(&self, _thread: &ThreadId) -> Result<Vec<CommandRecord>, StoreError> {
        Ok(Vec::new())
    }
}
