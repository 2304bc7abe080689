//! The traits of `aye_core::contract::storage`, for what is a store or opens one.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;

use super::{ChangeSubscription, FileStore, Mailbox, Store};
use aye_core::contract::audit::AuditRow;
use aye_core::contract::child::{ChildRecord, TaskRecord};
use aye_core::contract::clock::{Clock, SystemClock};
use aye_core::contract::command::{CommandEnd, CommandNews, CommandRecord, CommandReport};
use aye_core::contract::ids::{JobId, RunId, SuspensionId, ThreadId};
use aye_core::contract::image::ImageRef;
use aye_core::contract::inference::ModelUsage;
use aye_core::contract::lifecycle::RunStatus;
use aye_core::contract::mailbox::{MailboxInterrupt, MailboxJob};
use aye_core::contract::message::Message;
use aye_core::contract::prefix::PrefixRecord;
use aye_core::contract::presence::{NoPresence, Presence};
use aye_core::contract::profile::ProfileStore;
use aye_core::contract::record::{
    AttemptId, Checkpoint, DecideOutcome, Decision, ExecutionStart, Fence, GrantRecord, IntentRecord,
    LeaseRecord, NamedBy, OpenIntent, OutcomeRecord, Owner, QueueId, QueuedMessage, RunRecord, StoredMessage,
    SuspensionRecord, ThreadRecord, ThreadSummary,
};
use aye_core::contract::storage::{
    AcquireError, AuditFilter, AuditStore, ChangeFeed, ChildStore, CommandStore, DecisionStore, GrantStore,
    LeaseStore, MailboxStore, Portion, QueueStore, RunStore, Slice, StorageError, StoreChange, StoreError,
    SuspensionFilter, ThreadRunStore, ThreadStore, ThreadTail,
};
use aye_core::contract::summary::{RequestStart, SummaryRecord};
use aye_core::contract::suspension::Actor;

#[async_trait]
impl ChangeFeed for ChangeSubscription {
    async fn next(&mut self) -> StoreChange {
        ChangeSubscription::next(self).await
    }

    async fn next_or_check(&mut self) -> StoreChange {
        ChangeSubscription::next_or_check(self).await
    }
}

type Done<T> = Result<T, StoreError>;

/// Access to the store of a type that is a store, or opens one.
trait OpensStore {
    fn opened(&self) -> Done<Cow<'_, Store>>;
}

impl OpensStore for Store {
    fn opened(&self) -> Done<Cow<'_, Store>> {
        Ok(Cow::Borrowed(self))
    }
}

impl OpensStore for FileStore {
    fn opened(&self) -> Done<Cow<'_, Store>> {
        self.store().map(Cow::Owned).map_err(|error| StoreError::Unopened(error.to_string()))
    }
}

/// A trait whose methods are those of [`Store`], for each type that has one in [`OpensStore`]. `as` names the store's method
/// where the book calls it differently.
macro_rules! forward {
    ($($name:ident { $($method:ident as $own:ident ($($arg:ident: $kind:ty),*) -> $done:ty;)* })*) => {
        forward!(@impl Store $($name { $($method as $own ($($arg: $kind),*) -> $done;)* })*);
        forward!(@impl FileStore $($name { $($method as $own ($($arg: $kind),*) -> $done;)* })*);
    };
    (@impl $store:ident $($name:ident { $($method:ident as $own:ident ($($arg:ident: $kind:ty),*) -> $done:ty;)* })*) => {
        $(
            #[async_trait]
            impl $name for $store {
                $(async fn $method(&self, $($arg: $kind),*) -> $done {
                    self.opened()?.$own($($arg),*).await
                })*
            }
        )*
    };
}

forward! {
    ThreadStore {
        ensure_thread as ensure_thread(thread: ThreadRecord) -> Done<()>;
        load_thread as thread(id: &ThreadId) -> Done<Option<ThreadRecord>>;
        summaries as summaries(slice: Slice) -> Done<Vec<ThreadSummary>>;
        rename_thread as rename_thread(thread: &ThreadId, title: &str, by: NamedBy) -> Done<bool>;
        load_messages as messages(id: &ThreadId) -> Done<Vec<StoredMessage>>;
        thread_state as thread_state(id: &ThreadId) -> Done<BTreeMap<String, Value>>;
        add_summary as add_summary(summary: SummaryRecord) -> Done<bool>;
        summary as summary(thread: &ThreadId, beyond: u64) -> Done<Option<SummaryRecord>>;
        prefix as prefix(thread: &ThreadId) -> Done<Option<PrefixRecord>>;
        request_starts as request_starts(thread: &ThreadId) -> Done<Vec<RequestStart>>;
        put_image as put_image(image: &ImageRef, bytes: Vec<u8>, now_ms: u64) -> Done<()>;
        image as image(hash: &str) -> Done<Option<Vec<u8>>>;
        message_count as message_count(id: &ThreadId) -> Done<u64>;
        messages_tail as messages_tail(id: &ThreadId, n: usize) -> Done<(u64, Vec<StoredMessage>)>;
        messages_page as messages_page(id: &ThreadId, slice: Slice) -> Done<Vec<StoredMessage>>;
        messages_of_run as messages_of_run(id: &ThreadId, run: &RunId) -> Done<(u64, Vec<StoredMessage>)>;
        thread_tail as thread_tail(thread: &ThreadId, portion: Portion) -> Done<ThreadTail>;
        messages_back as messages_back(thread: &ThreadId, before: usize, portion: Portion) -> Done<Vec<Message>>;
        messages_from as messages_from(thread: &ThreadId, from: usize, bytes: usize) -> Done<Vec<Message>>;
        last_answer as last_answer(thread: &ThreadId, run: Option<&RunId>) -> Done<Option<Message>>;
        used_call_ids as used_call_ids(thread: &ThreadId, ids: Vec<String>) -> Done<HashSet<String>>;
        complete_outline as complete_outline(thread: &ThreadId) -> Done<()>;
    }
    RunStore {
        load_run as run(id: &RunId) -> Done<Option<RunRecord>>;
        latest_run as latest_run(thread: &ThreadId) -> Done<Option<RunRecord>>;
        list_runs as runs(thread: &ThreadId) -> Done<Vec<RunRecord>>;
        latest_runs as latest_runs(
            thread: Option<&ThreadId>, status: Option<RunStatus>, slice: Slice
        ) -> Done<Vec<RunRecord>>;
        unfinished_runs as unfinished_runs() -> Done<Vec<RunRecord>>;
        intents as intents(run: &RunId) -> Done<Vec<(IntentRecord, Option<OutcomeRecord>)>>;
        open_intents as open_intents(run: &RunId) -> Done<Vec<OpenIntent>>;
        append_output as append_output(fence: &Fence, id: &AttemptId, chunk: String) -> Done<()>;
        count_request as count_request(spent: &ModelUsage, now_ms: u64) -> Done<()>;
    }
    DecisionStore {
        suspension as suspension(id: &SuspensionId) -> Done<Option<SuspensionRecord>>;
        suspensions as suspensions(filter: SuspensionFilter) -> Done<Vec<SuspensionRecord>>;
        suspensions_page as suspensions_page(filter: SuspensionFilter, slice: Slice) -> Done<Vec<SuspensionRecord>>;
        pending_count as pending_count(now_ms: u64) -> Done<u64>;
        decide as decide(id: &SuspensionId, decision: Decision, now_ms: u64) -> Done<DecideOutcome>;
        expire_due as expire_due(now_ms: u64) -> Done<Vec<SuspensionRecord>>;
        expire as expire(ids: Vec<SuspensionId>, now_ms: u64) -> Done<Vec<SuspensionRecord>>;
    }
    GrantStore {
        add_grant as add_grant(grant: GrantRecord) -> Done<()>;
        grants as grants(active_at: u64) -> Done<Vec<GrantRecord>>;
        revoke_grant as revoke_grant(id: &str, now_ms: u64) -> Done<bool>;
        spend_grants as spend_grants(ids: Vec<String>, now_ms: u64) -> Done<Option<String>>;
    }
    AuditStore {
        audit as audit(filter: AuditFilter) -> Done<Vec<AuditRow>>;
        audit_page as audit_page(filter: AuditFilter, slice: Slice) -> Done<Vec<AuditRow>>;
    }
    ChildStore {
        create_child as create_child(child: ChildRecord, title: String, cwd: PathBuf) -> Done<ChildRecord>;
        child as child(thread: &ThreadId) -> Done<Option<ChildRecord>>;
        children as children(thread: &ThreadId) -> Done<Vec<ChildRecord>>;
        stop_child as stop_child(thread: &ThreadId) -> Done<bool>;
        queue_child_end as queue_child_end(
            thread: &ThreadId, agent: String, messages: Vec<Message>, now_ms: u64
        ) -> Done<bool>;
        driven_with as driven_with(thread: &ThreadId) -> Done<ThreadId>;
        tasks as tasks(thread: &ThreadId) -> Done<Vec<TaskRecord>>;
        waiting_below as waiting_below(thread: &ThreadId) -> Done<Vec<SuspensionRecord>>;
        has_answers as has_answers(thread: &ThreadId) -> Done<bool>;
        answered_threads as answered_threads() -> Done<Vec<ThreadId>>;
    }
    CommandStore {
        begin_command as begin_command(
            id: &AttemptId, agent: String, line: String, owner: Owner, now_ms: u64
        ) -> Done<CommandRecord>;
        append_command_output as append_command_output(number: u64, chunk: String) -> Done<bool>;
        read_command_output as read_command_output(thread: &ThreadId, number: u64) -> Done<Option<CommandNews>>;
        end_command as end_command(
            number: u64, end: CommandEnd, report: CommandReport, now_ms: u64
        ) -> Done<bool>;
        report_commands as report_ended_commands(thread: &ThreadId, now_ms: u64) -> Done<()>;
        stop_command as stop_command(number: u64) -> Done<bool>;
        command as command(number: u64) -> Done<Option<CommandRecord>>;
        commands as commands(thread: &ThreadId) -> Done<Vec<CommandRecord>>;
    }
    QueueStore {
        submit as submit(job: MailboxJob) -> Done<MailboxJob>;
        interrupt as interrupt(mailbox: &ThreadId, now_ms: u64) -> Done<MailboxInterrupt>;
        queued as queued(thread: &ThreadId) -> Done<Vec<QueuedMessage>>;
        open_jobs as open_jobs(thread: Option<&ThreadId>, slice: Slice) -> Done<Vec<MailboxJob>>;
        unqueue as unqueue(id: QueueId, now_ms: u64) -> Done<bool>;
    }
}

/// Implements the traits whose methods are not all single transactions of [`Store`].
macro_rules! whole {
    ($($store:ident)*) => {
        $(
            #[async_trait]
            impl LeaseStore for $store {
                async fn acquire(
                    &self,
                    thread: &ThreadId,
                    owner: &Owner,
                    length: Option<Duration>,
                ) -> Result<Fence, AcquireError> {
                    let store = self.opened()?;
                    Store::acquire(&*store, thread, owner, length, store.liveness()).await
                }

                async fn renew(&self, fence: &Fence, length: Duration) -> Done<Option<Duration>> {
                    Store::renew(&*self.opened()?, fence, length).await
                }

                async fn release(&self, fence: &Fence) -> Done<()> {
                    Store::release(&*self.opened()?, fence).await
                }

                async fn lease(&self, thread: &ThreadId) -> Done<Option<LeaseRecord>> {
                    Store::lease(&*self.opened()?, thread).await
                }

                fn presence(&self) -> Arc<dyn Presence> {
                    // A store that cannot be opened has no users.
                    self.opened().map_or_else(|_| Arc::new(NoPresence) as Arc<dyn Presence>, |store| store.presence())
                }
            }

            #[async_trait]
            impl ThreadRunStore for $store {
                async fn checkpoint(&self, checkpoint: Checkpoint) -> Done<()> {
                    Store::checkpoint(&*self.opened()?, checkpoint).await
                }

                async fn begin(&self, begin: ExecutionStart) -> Done<()> {
                    Store::begin(&*self.opened()?, begin).await
                }

                async fn checkpoint_and_begin(&self, checkpoint: Checkpoint, begin: ExecutionStart) -> Done<()> {
                    Store::checkpoint_and_begin(&*self.opened()?, checkpoint, begin).await
                }

                async fn delete_thread(
                    &self,
                    thread: &ThreadId,
                    own: &Owner,
                    actor: Actor,
                    now_ms: u64,
                ) -> Done<bool> {
                    let store = self.opened()?;
                    Store::delete_thread(&*store, thread, own, store.liveness(), (actor, now_ms)).await
                }

                fn clock(&self) -> Arc<dyn Clock> {
                    // A store that cannot be opened has no times.
                    self.opened().map_or_else(|_| Arc::new(SystemClock) as Arc<dyn Clock>, |store| store.clock())
                }

                fn mailboxes(&self) -> Done<Arc<dyn MailboxStore>> {
                    Ok(Arc::new(self.opened()?.mailbox()))
                }

                fn profile_store(&self, clock: Arc<dyn Clock>) -> Done<Arc<dyn ProfileStore>> {
                    Ok(self.opened()?.profiles(clock))
                }

                fn watch(&self) -> Done<Box<dyn ChangeFeed>> {
                    Ok(Box::new(Store::watch(&*self.opened()?)?))
                }

                fn handle(&self) -> Done<Arc<dyn ThreadRunStore>> {
                    Ok(Arc::new(Store::clone(&*self.opened()?)))
                }

                fn another(&self) -> Done<Arc<dyn ThreadRunStore>> {
                    Ok(Arc::new(self.opened()?.opened_again()?))
                }

                async fn close(&self) {
                    if let Ok(store) = self.opened() {
                        Store::close(&*store).await;
                    }
                }
            }
        )*
    };
}

whole!(Store FileStore);

/// The methods of [`Mailbox`], with the errors that the trait names.
macro_rules! mailbox {
    ($($method:ident($($arg:ident: $kind:ty),*) -> $done:ty;)*) => {
        #[async_trait]
        impl MailboxStore for Mailbox {
            $(async fn $method(&self, $($arg: $kind),*) -> Result<$done, StorageError> {
                Ok(Mailbox::$method(self, $($arg),*).await?)
            })*
        }
    };
}

mailbox! {
    enqueue(job: MailboxJob) -> MailboxJob;
    claim(mailbox: &ThreadId, consumer: &str, limit: usize, now: u64, lease_ms: u64) -> Vec<MailboxJob>;
    claim_job(job: &JobId, consumer: &str, now: u64, lease_ms: u64) -> Option<MailboxJob>;
    ack(job: &JobId, token: &str, now: u64) -> MailboxJob;
    nack(job: &JobId, token: &str, retry_at: u64, error: &str, now: u64) -> MailboxJob;
    cancel(job: &JobId, now: u64) -> Option<MailboxJob>;
    extend_lease(job: &JobId, token: &str, now: u64, lease_ms: u64) -> bool;
    interrupt(mailbox: &ThreadId, now: u64) -> MailboxInterrupt;
    load_job(job: &JobId) -> Option<MailboxJob>;
}
