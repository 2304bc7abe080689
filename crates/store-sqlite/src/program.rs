//! The store of a program: the traits of `aye_core::contract::program_store`.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use serde_json::Value;

use super::row_feed::feed;
use super::{AuditFilter, Store, StoreError};
use aye_core::contract::audit::{AuditReport, AuditRow, PastRow};
use aye_core::contract::audit_seal::AuditSeal;
use aye_core::contract::child::TaskRecord;
use aye_core::contract::command::CommandRecord;
use aye_core::contract::config_entry::{EntryConflict, EntryExpectation, EntryVersion};
use aye_core::contract::consumer::Consumer;
use aye_core::contract::ids::{JobId, RunId, SuspensionId, ThreadId};
use aye_core::contract::inference::{ModelUsage, TokenUsage};
use aye_core::contract::judgement::TriedRule;
use aye_core::contract::mailbox::MailboxJob;
use aye_core::contract::presence::Liveness;
use aye_core::contract::program_store::{
    AuditReader, AuditVerifier, ConfigStore, CopyPart, ExportPart, FolderStore, ForkAt, InboxFilter,
    InboxStore, JobFilter, JobLookup, Match, MessageSelection, OutboxOutcome, OutboxRow, OutboxStore,
    PromptStore, PrunePlace, Pruned, PushStore, PushTarget, PushTargetsOf, RecentCall, RewindStore, RowFeed,
    StatisticsStore, SuspensionLookup, TaskListStore, ThreadCopy, ThreadCopyFile, ThreadListStore,
    ThreadLookup, ThreadView, TransferStore, UpkeepStore, WorkClaim, WorkStore,
};
use aye_core::contract::record::{
    GrantRecord, InboxRow, NamedBy, Owner, StoredMessage, ThreadRecord, ThreadSummary,
};
use aye_core::contract::snapshot::{SnapshotRecord, WentBackRecord};
use aye_core::contract::statistics::Tally;
use aye_core::contract::suspension::Actor;

type Done<T> = Result<T, StoreError>;

/// Traits whose methods are those of [`Store`]. Those in brackets are written out.
macro_rules! same {
    ($($name:ident { $($method:ident($($arg:ident: $kind:ty),*) -> $done:ty;)* } $([ $($rest:tt)* ])?)*) => {
        $(
            #[async_trait]
            impl $name for Store {
                $(async fn $method(&self, $($arg: $kind),*) -> $done {
                    Store::$method(self, $($arg),*).await
                })*
                $($($rest)*)?
            }
        )*
    };
}

same! {
    AuditReader {
        recent_calls(tool: &str, below: &Path, rows: u64) -> Done<Vec<RecentCall>>;
        audit_rules() -> Done<Vec<(String, Vec<TriedRule>)>>;
        audit_threads(prefix: &str) -> Done<Vec<ThreadId>>;
        all_grants() -> Done<Vec<GrantRecord>>;
        ended_grants(most: u64) -> Done<Vec<GrantRecord>>;
    } [
        fn read_audit(&self, filter: AuditFilter) -> RowFeed<AuditRow> {
            let store = self.clone();
            feed(async move |mut rows| store.audit_each(filter, move |row| rows.send(row, 1)).await)
        }

        fn read_audit_calls(&self, filter: AuditFilter) -> RowFeed<Vec<AuditRow>> {
            let store = self.clone();
            feed(async move |mut calls| store.audit_calls(filter, move |call| calls.send(call, 4)).await)
        }

        fn read_past_calls(&self, since: Option<u64>) -> RowFeed<PastRow> {
            let store = self.clone();
            feed(async move |mut rows| store.past_calls(since, move |row| rows.send(row, 1)).await)
        }
    ]
    AuditVerifier {
        verify_audit() -> Done<AuditReport>;
        audit_hashes(rows: Vec<(String, u64)>) -> Done<Vec<Option<String>>>;
    } [
        fn read_seals(&self) -> RowFeed<AuditSeal> {
            feed(async |_| Ok(()))
        }
    ]
    ConfigStore {
        config_entries() -> Done<Vec<EntryVersion>>;
        publish_entry(
            name: (String, String), value: Option<Value>, expected: EntryExpectation, by: (Actor, u64)
        ) -> Done<Result<u64, EntryConflict>>;
    }
    FolderStore {
        knows_folder(cwd: &Path) -> Done<bool>;
        note_folder(cwd: &Path, first_commit: &str, below: &Path) -> Done<()>;
        folders_of(first_commit: &str, below: &Path) -> Done<Vec<PathBuf>>;
        move_folder(from: &Path, to: &Path) -> Done<u64>;
    }
    InboxStore {
        inbox(filter: InboxFilter) -> Done<Vec<InboxRow>>;
        waiting_count(except: Option<&ThreadId>, now_ms: u64) -> Done<u64>;
        short_ids(ids: Vec<SuspensionId>, least: usize) -> Done<Vec<String>>;
        find_suspension(prefix: &str) -> Done<SuspensionLookup>;
    }
    OutboxStore {
        put_into_outbox(thread: &ThreadId, key: String, target: String, body: String, now_ms: u64) -> Done<bool>;
        claim_from_outbox(now_ms: u64, lease_ms: u64) -> Done<Result<OutboxRow, Option<u64>>>;
        settle_in_outbox(number: u64, outcome: OutboxOutcome, now_ms: u64) -> Done<()>;
        outbox(all: bool) -> Done<Vec<OutboxRow>>;
        retry_in_outbox(number: u64, now_ms: u64) -> Done<bool>;
    }
    PromptStore {
        remember_prompt(cwd: &Path, text: &str) -> Done<()>;
        all_prompts(limit: usize) -> Done<Vec<String>>;
    }
    PushStore {
        put_push_target(target: PushTarget, now_ms: u64) -> Done<bool>;
        push_targets(of: PushTargetsOf) -> Done<Vec<PushTarget>>;
        delete_push_target(run: &RunId, id: String) -> Done<bool>;
    }
    RewindStore {
        snapshots(thread: &ThreadId) -> Done<Vec<SnapshotRecord>>;
        snapshot_behind(thread: &ThreadId, keep: u64) -> Done<Option<SnapshotRecord>>;
        go_back(fork: Option<ForkAt>, went: Option<WentBackRecord>) -> Done<Option<u64>>;
        last_went_back(thread: &ThreadId) -> Done<Option<WentBackRecord>>;
        set_left(thread: &ThreadId, to: Option<&ThreadId>) -> Done<()>;
    }
    StatisticsStore {
        tallies(since: Option<u64>) -> Done<Vec<Tally>>;
        usage_by_model(thread: &ThreadId) -> Done<(TokenUsage, Vec<ModelUsage>)>;
    }
    TaskListStore {
        all_tasks(open_only: bool) -> Done<Vec<TaskRecord>>;
        all_commands(open_only: bool) -> Done<Vec<CommandRecord>>;
        command_output(number: u64) -> Done<String>;
    }
    ThreadListStore {
        create_thread(thread: ThreadRecord) -> Done<()>;
        threads_page(cwd: Option<&Path>, offset: usize, limit: Option<usize>) -> Done<Vec<ThreadSummary>>;
        latest_thread(cwd: &Path) -> Done<Option<ThreadRecord>>;
        find_thread(prefix: &str) -> Done<ThreadLookup>;
        touch(thread: &ThreadId, now_ms: u64) -> Done<()>;
        pin_thread(thread: &ThreadId, pin: Option<u64>) -> Done<()>;
        named_by(thread: &ThreadId) -> Done<NamedBy>;
        thread_view_at(thread: &ThreadId, part: MessageSelection) -> Done<Option<ThreadView>>;
        messages_before(thread: &ThreadId, seq: u64, count: usize) -> Done<Vec<StoredMessage>>;
        place_of_message(thread: &ThreadId, message: &str) -> Done<Option<u64>>;
        search(wanted: &str, offset: usize, limit: Option<usize>) -> Done<Vec<Match>>;
        search_thread(thread: &ThreadId, wanted: &str, from: u64) -> Done<(Option<String>, Option<u64>)>;
        index_messages() -> Done<bool>;
        unindexed_messages() -> Done<u64>;
    } [
        fn read_threads(&self, offset: usize, limit: Option<usize>) -> RowFeed<ThreadSummary> {
            let store = self.clone();
            feed(async move |mut threads| {
                store.threads_each(offset, limit, move |thread| threads.send(thread, 1)).await
            })
        }
    ]
    TransferStore {
        import_thread_file(outline: ThreadCopy, file: ThreadCopyFile) -> Done<()>;
    } [
        fn export_thread(&self, thread: &ThreadId) -> RowFeed<ExportPart> {
            let (store, thread) = (self.clone(), thread.clone());
            feed(async move |mut parts| {
                let weight = |part: &ExportPart| match part {
                    ExportPart::Part(CopyPart::Image { .. }) => 64,
                    ExportPart::Part(_) => 4,
                    ExportPart::Start { .. } | ExportPart::End(_) => 16,
                };
                store.export_parts(&thread, move |part| { let weight = weight(&part); parts.send(part, weight) }).await
            })
        }
    ]
    UpkeepStore {
        check() -> Done<Vec<String>>;
        used_bytes() -> Done<u64>;
        shrink(with_rebuild: bool) -> Done<bool>;
        warm() -> ();
        leave() -> ();
    } [
        async fn prune(&self, before: Option<u64>, from: PrunePlace, actor: Actor, now_ms: u64) -> Done<Pruned> {
            Store::prune(self, before, from, &Owner::default(), self.liveness(), (actor, now_ms)).await
        }

        fn has_listener(&self) -> bool {
            Store::has_listener(self)
        }
    ]
}

#[async_trait]
impl WorkStore for Store {
    async fn claim_next(&self, worker: &Owner, now_ms: u64, lease_ms: u64) -> Done<WorkClaim> {
        self.mailbox().claim_next(worker, now_ms, lease_ms).await
    }

    async fn reclaim(&self, now_ms: u64, limit: usize) -> Done<Vec<MailboxJob>> {
        let liveness = self.liveness();
        // One that is not a worker of aye, or of which nobody can tell, is trusted until its claim is over.
        let is_gone = move |claimant: &str| {
            Consumer::owner_of(claimant).is_some_and(|owner| liveness(&owner) == Liveness::No)
        };
        self.mailbox().reclaim(now_ms, limit, is_gone).await
    }

    async fn extend_claim(&self, job: &JobId, token: &str, now_ms: u64, lease_ms: u64) -> Done<bool> {
        self.mailbox().extend_lease(job, token, now_ms, lease_ms).await
    }

    async fn accept_job(&self, job: &JobId, token: &str, now_ms: u64) -> Done<MailboxJob> {
        self.mailbox().ack(job, token, now_ms).await
    }

    async fn retry_job(
        &self,
        job: &JobId,
        token: &str,
        retry_at: u64,
        error: &str,
        now_ms: u64,
    ) -> Done<MailboxJob> {
        self.mailbox().nack(job, token, retry_at, error, now_ms).await
    }

    async fn postpone_job(
        &self,
        job: &JobId,
        token: &str,
        at: u64,
        why: &str,
        now_ms: u64,
    ) -> Done<MailboxJob> {
        self.mailbox().postpone(job, token, at, why, now_ms).await
    }

    async fn give_back_job(&self, job: &JobId, token: &str, now_ms: u64) -> Done<MailboxJob> {
        self.mailbox().give_back(job, token, now_ms).await
    }

    async fn dead_letter_job(&self, job: &JobId, token: &str, error: &str, now_ms: u64) -> Done<MailboxJob> {
        self.mailbox().dead_letter(job, token, error, now_ms).await
    }

    async fn cancel_job(&self, job: &JobId, now_ms: u64) -> Done<Option<MailboxJob>> {
        self.mailbox().cancel(job, now_ms).await
    }

    async fn requeue_dead(&self, job: &JobId, now_ms: u64) -> Done<Option<MailboxJob>> {
        self.mailbox().requeue_dead(job, now_ms).await
    }

    async fn purge_jobs(&self, before: u64) -> Done<usize> {
        self.mailbox().purge_terminal(before).await
    }

    async fn list_jobs(&self, filter: JobFilter) -> Done<Vec<MailboxJob>> {
        self.mailbox().list_jobs(filter).await
    }

    async fn count_jobs(&self, filter: JobFilter) -> Done<u64> {
        self.mailbox().count_jobs(filter).await
    }

    async fn find_job(&self, words: &str) -> Done<JobLookup> {
        self.mailbox().find_job(words).await
    }
}
