//! Commands in the background of threads.

use std::sync::Arc;

use async_trait::async_trait;

use super::InMemoryStore;
use super::rows::{CommandRow, Execution, Rows};
use aye_core::contract::command::{CommandEnd, CommandNews, CommandRecord, CommandReport};
use aye_core::contract::ids::ThreadId;
use aye_core::contract::presence::{Liveness, Presence as _};
use aye_core::contract::record::{AttemptId, Owner};
use aye_core::contract::storage::{ChangeKind, CommandStore, StoreError};

impl Rows {
    fn command_mut(&mut self, number: u64) -> Option<&mut CommandRow> {
        self.commands.iter_mut().find(|row| row.record.number == number).map(Arc::make_mut)
    }

    fn running_mut(&mut self, number: u64) -> Option<&mut CommandRow> {
        self.command_mut(number).filter(|row| row.record.end.is_none())
    }

    fn execution_mut(&mut self, id: &AttemptId) -> Option<&mut Execution> {
        self.intents.iter_mut().find(|known| known.intent.id == *id).map(Arc::make_mut)
    }

    fn settle_command(
        &mut self,
        number: u64,
        end: CommandEnd,
        report: CommandReport,
        now_ms: u64,
    ) -> Result<(), StoreError> {
        let Some(row) = self.command_mut(number) else { return Ok(()) };
        row.record.ended_at.get_or_insert(now_ms);
        row.record.end.get_or_insert(end.clone());
        row.record.told = report != CommandReport::NextRun;
        let CommandRow { record, intent, .. } = row.clone();
        if report == CommandReport::Queued {
            let printed = self.execution_mut(&intent).map(|known| known.output.text()).unwrap_or_default();
            self.enqueue(record.job(&end, &printed, now_ms))?;
        }
        Ok(())
    }
}

#[async_trait]
impl CommandStore for InMemoryStore {
    async fn begin_command(
        &self,
        id: &AttemptId,
        agent: String,
        line: String,
        owner: Owner,
        now_ms: u64,
    ) -> Result<CommandRecord, StoreError> {
        let record = self.write(|rows| {
            if rows.commands.iter().any(|row| row.intent == *id) {
                return Err(StoreError::Exists { what: format!("a command of call {}", id.call_id) });
            }
            let started = rows.execution_mut(id).ok_or_else(|| StoreError::NotStarted { id: id.clone() })?;
            let thread_id = started.intent.thread_id.clone();
            rows.command += 1;
            let record = CommandRecord {
                number: rows.command,
                thread_id,
                run_id: id.run_id.clone(),
                call_id: id.call_id.clone(),
                agent,
                command: line,
                owner,
                started_at: now_ms,
                stop: false,
                told: false,
                ended_at: None,
                end: None,
            };
            let row = CommandRow { record: record.clone(), intent: id.clone(), seen: 0 };
            rows.commands.push(Arc::new(row));
            Ok(record)
        })?;
        self.publish_change(ChangeKind::Run, &record.thread_id);
        Ok(record)
    }

    async fn append_command_output(&self, number: u64, chunk: String) -> Result<bool, StoreError> {
        self.write(|rows| {
            let Some(intent) = rows.running_mut(number).map(|row| row.intent.clone()) else {
                return Ok(false);
            };
            Ok(rows.execution_mut(&intent).map(|known| known.output.push(&chunk)).is_some())
        })
    }

    async fn read_command_output(
        &self,
        thread: &ThreadId,
        number: u64,
    ) -> Result<Option<CommandNews>, StoreError> {
        self.write(|rows| {
            let row = rows.command_mut(number).filter(|row| row.record.thread_id == *thread);
            let Some(CommandRow { record, intent, seen }) = row.cloned() else { return Ok(None) };
            let (output, upto) =
                rows.execution_mut(&intent).map(|known| known.output.since(seen)).unwrap_or_default();
            if let Some(row) = rows.command_mut(number) {
                row.seen = upto;
            }
            Ok(Some(CommandNews { record, output }))
        })
    }

    async fn end_command(
        &self,
        number: u64,
        end: CommandEnd,
        report: CommandReport,
        now_ms: u64,
    ) -> Result<bool, StoreError> {
        let thread = self.write(|rows| {
            let Some(thread) = rows.running_mut(number).map(|row| row.record.thread_id.clone()) else {
                return Ok(None);
            };
            rows.settle_command(number, end, report, now_ms)?;
            Ok(Some(thread))
        })?;
        if let Some(thread) = &thread {
            self.publish_change(ChangeKind::Queue, thread);
        }
        Ok(thread.is_some())
    }

    async fn report_commands(&self, thread: &ThreadId, now_ms: u64) -> Result<(), StoreError> {
        let here = Owner::of_this_process();
        let liveness = |owner: &Owner| self.shared.presence.liveness(owner).of_watcher(owner, &here);
        self.write(|rows| {
            let untold = rows.commands.iter().map(|row| &row.record);
            let untold = untold.filter(|record| record.thread_id == *thread && !record.told);
            let is_over =
                |record: &&CommandRecord| record.end.is_some() || liveness(&record.owner) == Liveness::No;
            for record in untold.filter(is_over).cloned().collect::<Vec<_>>() {
                let end = record.end.unwrap_or(CommandEnd::Unknown);
                rows.settle_command(record.number, end, CommandReport::Queued, now_ms)?;
            }
            Ok(())
        })
    }

    async fn stop_command(&self, number: u64) -> Result<bool, StoreError> {
        let thread = self.write(|rows| {
            Ok(rows.running_mut(number).map(|row| {
                row.record.stop = true;
                row.record.thread_id.clone()
            }))
        })?;
        if let Some(thread) = &thread {
            self.publish_change(ChangeKind::Decision, thread);
        }
        Ok(thread.is_some())
    }

    async fn command(&self, number: u64) -> Result<Option<CommandRecord>, StoreError> {
        self.read(|rows| {
            let row = rows.commands.iter().find(|row| row.record.number == number);
            row.map(|row| row.record.clone())
        })
    }

    async fn commands(&self, thread: &ThreadId) -> Result<Vec<CommandRecord>, StoreError> {
        self.read(|rows| {
            let mut threads = rows.below(thread);
            threads.push(thread);
            let records = rows.commands.iter().map(|row| &row.record);
            records.filter(|record| threads.contains(&&record.thread_id)).cloned().collect()
        })
    }
}
