//! Conversations and leases.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;

use super::InMemoryStore;
use super::parts::{last_of, plain, size_of};
use super::rows::{Conversation, LeaseRow, Rows};
use aye_core::contract::audit_entry::AuditEntry;
use aye_core::contract::child::ChildRecord;
use aye_core::contract::clock::in_ms;
use aye_core::contract::content::ContentBlock;
use aye_core::contract::ids::{RunId, ThreadId, check_given};
use aye_core::contract::image::ImageRef;
use aye_core::contract::message::{Message, Role};
use aye_core::contract::outline::Outline;
use aye_core::contract::prefix::PrefixRecord;
use aye_core::contract::presence::{LocalPresence, Presence};
use aye_core::contract::record::{
    Fence, LeaseRecord, NamedBy, Owner, StoredMessage, SuspensionRecord, SuspensionStatus, ThreadMarks,
    ThreadRecord, ThreadSummary,
};
use aye_core::contract::storage::{
    AcquireError, ChangeKind, LeaseStore, Portion, Slice, StoreError, ThreadStore, ThreadTail,
};
use aye_core::contract::summary::{RequestStart, SummaryRecord};
use aye_core::contract::suspension::Actor;

impl Rows {
    pub(super) fn ensure_thread(&mut self, thread: ThreadRecord) -> Result<(), StoreError> {
        if let Some(known) = self.threads.get_mut(&thread.id) {
            if known.record.title.is_empty() && !thread.title.is_empty() {
                Arc::make_mut(known).record.title = thread.title;
            }
            return Ok(());
        }
        check_given("thread", thread.id.as_str())?;
        let (messages, state, summaries, prefixes) = Default::default();
        let (id, named_by) = (thread.id.clone(), NamedBy::FirstLine);
        let conversation = Conversation { record: thread, named_by, messages, state, summaries, prefixes };
        self.threads.insert(id, Arc::new(conversation));
        Ok(())
    }

    fn summary(&self, thread: &Conversation) -> ThreadSummary {
        let id = &thread.record.id;
        let mut all = self.below(id);
        all.push(id);
        let is_pending = |row: &&Arc<SuspensionRecord>| {
            row.status == SuspensionStatus::Open && !row.ticket.is_served() && all.contains(&&row.thread_id)
        };
        ThreadSummary {
            thread: thread.record.clone(),
            messages: thread.messages.len() as u64,
            waiting: self.suspensions.iter().filter(is_pending).count() as u64,
            status: self.latest_run(id).map(|run| run.status),
            damaged: None,
            marks: ThreadMarks::default(),
        }
    }

    fn used_images(&self) -> BTreeSet<String> {
        let stored = self.threads.values().flat_map(|thread| &thread.messages).map(|stored| &stored.message);
        let blocks = stored.chain(self.jobs.iter().flat_map(|job| &job.messages));
        let blocks = blocks.flat_map(|message| &message.content);
        blocks.filter_map(ContentBlock::as_stored_image).map(|image| image.hash.clone()).collect()
    }

    pub(super) fn delete_thread(
        &mut self,
        id: &ThreadId,
        own: &Owner,
        presence: &LocalPresence,
        uptime: u64,
        (actor, now_ms): (&Actor, u64),
    ) -> Result<bool, StoreError> {
        if !self.threads.contains_key(id) {
            return Ok(false);
        }
        if let Some(lease) = self.leases.get(id).and_then(|lease| lease.record(uptime))
            && lease.owner.token != own.token
            && lease.is_in_use(presence.liveness(&lease.owner))
        {
            return Err(StoreError::Owned { thread: id.clone(), owner: Box::new(lease.owner) });
        }
        let questions = self.suspensions.iter().filter(|row| row.thread_id == *id).count() as u64;
        let executions = self.intents.iter().filter(|row| row.intent.thread_id == *id).count() as u64;
        let gone: Vec<ThreadId> = self.below(id).into_iter().chain([id]).cloned().collect();
        let before = self.used_images();
        let stays = |thread: &ThreadId| !gone.contains(thread);
        self.threads.retain(|thread, _| stays(thread));
        // The epoch stays, so that a fence of before does not fit a new thread with this id.
        self.leases.iter_mut().filter(|(thread, _)| !stays(thread)).for_each(|(_, lease)| lease.owner = None);
        self.generations.retain(|thread, _| stays(thread));
        self.artifacts.retain(|(thread, _), _| stays(thread));
        self.children.retain(|child| stays(&child.thread_id));
        self.runs.retain(|run| stays(&run.thread_id));
        self.intents.retain(|known| stays(&known.intent.thread_id));
        self.commands.retain(|row| stays(&row.record.thread_id));
        self.suspensions.retain(|row| stays(&row.thread_id));
        self.jobs.retain(|job| stays(&job.mailbox_id));
        let after = self.used_images();
        self.images.retain(|hash, _| after.contains(hash) || !before.contains(hash));
        self.append_audit(AuditEntry::deleted(now_ms, id, questions, executions, actor))?;
        Ok(true)
    }

    pub(super) fn child_mut(&mut self, thread: &ThreadId) -> Option<&mut ChildRecord> {
        self.children.iter_mut().find(|child| child.thread_id == *thread).map(Arc::make_mut)
    }
}

#[async_trait]
impl ThreadStore for InMemoryStore {
    async fn ensure_thread(&self, thread: ThreadRecord) -> Result<(), StoreError> {
        self.write(|rows| rows.ensure_thread(thread))
    }

    async fn load_thread(&self, id: &ThreadId) -> Result<Option<ThreadRecord>, StoreError> {
        self.read(|rows| rows.threads.get(id).map(|thread| thread.record.clone()))
    }

    async fn summaries(&self, slice: Slice) -> Result<Vec<ThreadSummary>, StoreError> {
        self.read(|rows| {
            let is_child = |id: &ThreadId| rows.children.iter().any(|child| child.thread_id == *id);
            let mut threads: Vec<_> =
                rows.threads.values().filter(|thread| !is_child(&thread.record.id)).collect();
            threads.sort_by_key(|thread| Reverse((thread.record.updated_at, thread.record.created_at)));
            slice.of(threads).into_iter().map(|thread| rows.summary(thread)).collect()
        })
    }

    async fn rename_thread(&self, thread: &ThreadId, title: &str, by: NamedBy) -> Result<bool, StoreError> {
        self.write(|rows| {
            let thread = rows.thread_mut(thread)?;
            let is_used = by == NamedBy::Person || thread.named_by == NamedBy::FirstLine;
            if is_used {
                title.clone_into(&mut thread.record.title);
                thread.named_by = by;
            }
            Ok(is_used)
        })
    }

    async fn load_messages(&self, id: &ThreadId) -> Result<Vec<StoredMessage>, StoreError> {
        self.messages_tail(id, usize::MAX).await.map(|(_, messages)| messages)
    }

    async fn messages_tail(&self, id: &ThreadId, n: usize) -> Result<(u64, Vec<StoredMessage>), StoreError> {
        self.read(|rows| {
            let messages = rows.threads.get(id).map_or(&[][..], |thread| &thread.messages);
            let last = &messages[messages.len().saturating_sub(n)..];
            (messages.len() as u64, last.iter().map(|message| StoredMessage::clone(message)).collect())
        })
    }

    async fn message_count(&self, id: &ThreadId) -> Result<u64, StoreError> {
        self.messages_tail(id, 0).await.map(|(count, _)| count)
    }

    async fn messages_page(&self, id: &ThreadId, slice: Slice) -> Result<Vec<StoredMessage>, StoreError> {
        Ok(slice.of(self.load_messages(id).await?))
    }

    async fn messages_of_run(
        &self,
        id: &ThreadId,
        run: &RunId,
    ) -> Result<(u64, Vec<StoredMessage>), StoreError> {
        let mut messages = self.load_messages(id).await?;
        let count = messages.len() as u64;
        messages.retain(|stored| stored.run_id == *run);
        Ok((count, messages))
    }

    async fn thread_tail(&self, thread: &ThreadId, portion: Portion) -> Result<ThreadTail, StoreError> {
        let mut rest = plain(self.load_messages(thread).await?);
        let summarised = self.summary(thread, 0).await?.map_or(0, |summary| summary.upto_seq);
        let floor = usize::try_from(summarised).unwrap_or(usize::MAX).saturating_sub(1);
        let outline = Outline::of(&rest);
        let messages = last_of(&rest, rest.len(), Portion { floor: portion.floor.max(floor), ..portion });
        let base = rest.len() - messages.len();
        rest.truncate(base);
        let apart = outline.needed().into_iter().filter_map(|at| Some((at, rest.get(at)?.clone()))).collect();
        Ok(ThreadTail { outline, is_assumed: false, base, messages, apart })
    }

    async fn messages_back(
        &self,
        thread: &ThreadId,
        before: usize,
        portion: Portion,
    ) -> Result<Vec<Message>, StoreError> {
        Ok(last_of(&plain(self.load_messages(thread).await?), before, portion))
    }

    async fn messages_from(
        &self,
        thread: &ThreadId,
        from: usize,
        bytes: usize,
    ) -> Result<Vec<Message>, StoreError> {
        let mut messages = plain(self.load_messages(thread).await?);
        messages.drain(..from.min(messages.len()));
        let mut read = 0;
        let count = messages.iter().take_while(|message| {
            let is_wanted = read < bytes;
            read += size_of(message);
            is_wanted
        });
        messages.truncate(count.count());
        Ok(messages)
    }

    async fn last_answer(
        &self,
        thread: &ThreadId,
        run: Option<&RunId>,
    ) -> Result<Option<Message>, StoreError> {
        let messages = self.load_messages(thread).await?;
        let is_it = |stored: &StoredMessage| {
            stored.message.role == Role::Assistant && run.is_none_or(|run| stored.run_id == *run)
        };
        Ok(messages.into_iter().rfind(is_it).map(|stored| stored.message))
    }

    async fn used_call_ids(
        &self,
        thread: &ThreadId,
        ids: Vec<String>,
    ) -> Result<HashSet<String>, StoreError> {
        let messages = plain(self.load_messages(thread).await?);
        let used: HashSet<&str> =
            messages.iter().flat_map(|message| &message.tool_calls).map(|call| call.id.as_str()).collect();
        Ok(ids.into_iter().filter(|id| used.contains(id.as_str())).collect())
    }

    async fn thread_state(&self, id: &ThreadId) -> Result<BTreeMap<String, Value>, StoreError> {
        self.read(|rows| rows.threads.get(id).map(|thread| thread.state.clone()).unwrap_or_default())
    }

    async fn add_summary(&self, summary: SummaryRecord) -> Result<bool, StoreError> {
        let id = summary.thread_id.clone();
        let is_added = self.write(|rows| {
            let thread = rows.thread_mut(&summary.thread_id)?;
            let last = thread.messages.iter().find(|stored| stored.seq == summary.upto_seq);
            if last.is_none_or(|stored| stored.message.id != summary.upto) {
                let why = format!("message {} is not the one that a summary ends at", summary.upto_seq);
                return Err(StoreError::Damaged { thread: summary.thread_id, why });
            }
            let is_farther = thread.summaries.last().is_none_or(|known| known.upto_seq < summary.upto_seq);
            if is_farther {
                thread.summaries.push(Arc::new(summary));
            }
            Ok(is_farther)
        })?;
        if is_added {
            self.publish_change(ChangeKind::Run, &id);
        }
        Ok(is_added)
    }

    async fn summary(&self, thread: &ThreadId, beyond: u64) -> Result<Option<SummaryRecord>, StoreError> {
        self.read(|rows| {
            let newest = rows.threads.get(thread)?.summaries.last()?;
            (newest.upto_seq > beyond).then(|| SummaryRecord::clone(newest))
        })
    }

    async fn prefix(&self, thread: &ThreadId) -> Result<Option<PrefixRecord>, StoreError> {
        self.read(|rows| rows.threads.get(thread)?.prefixes.last().map(|prefix| PrefixRecord::clone(prefix)))
    }

    async fn request_starts(&self, thread: &ThreadId) -> Result<Vec<RequestStart>, StoreError> {
        self.read(|rows| {
            let Some(known) = rows.threads.get(thread) else { return Vec::new() };
            let summary = |upto: u64| {
                known
                    .summaries
                    .iter()
                    .find(|summary| summary.upto_seq == upto)
                    .map(|s| SummaryRecord::clone(s))
            };
            let start = |prefix: &Arc<PrefixRecord>| RequestStart {
                summary: summary(prefix.summary_upto),
                prefix: PrefixRecord::clone(prefix),
            };
            known.prefixes.iter().map(start).collect()
        })
    }

    async fn put_image(&self, image: &ImageRef, bytes: Vec<u8>, _now_ms: u64) -> Result<(), StoreError> {
        self.write(|rows| {
            rows.images.insert(image.hash.clone(), Arc::new(bytes));
            Ok(())
        })
    }

    async fn image(&self, hash: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.read(|rows| rows.images.get(hash).map(|bytes| Vec::clone(bytes)))
    }
}

#[async_trait]
impl LeaseStore for InMemoryStore {
    async fn acquire(
        &self,
        thread: &ThreadId,
        owner: &Owner,
        length: Option<Duration>,
    ) -> Result<Fence, AcquireError> {
        let (presence, now) = (&self.shared.presence, self.clock.uptime_ms());
        let taken = self.write(|rows| {
            let known = rows.leases.get(thread);
            if let Some(lease) = known.and_then(|lease| lease.record(now))
                && lease.owner.token != owner.token
                && lease.holds(presence.liveness(&lease.owner))
            {
                return Ok(Err(lease.owner));
            }
            let epoch = known.map_or(1, |lease| lease.epoch + 1);
            rows.thread_mut(thread)?;
            let until = length.map(|length| now.saturating_add(in_ms(length)));
            let lease = LeaseRow { epoch, owner: Some(owner.clone()), until };
            rows.leases.insert(thread.clone(), lease);
            Ok(Ok(Fence { thread_id: thread.clone(), epoch, token: owner.token.clone() }))
        })?;
        let fence = taken.map_err(|owner| AcquireError::Busy { owner })?;
        self.publish_change(ChangeKind::Owner, thread);
        Ok(fence)
    }

    async fn renew(&self, fence: &Fence, length: Duration) -> Result<Option<Duration>, StoreError> {
        let now = self.clock.uptime_ms();
        let until = now.saturating_add(in_ms(length));
        self.write(|rows| {
            let held = rows.leases.get_mut(&fence.thread_id).filter(|lease| lease.is_held_by(fence));
            let Some(lease) = held else { return Ok(None) };
            lease.until = lease.until.map(|known| known.max(until));
            Ok(Some(lease.left(now).unwrap_or(Duration::MAX)))
        })
    }

    async fn release(&self, fence: &Fence) -> Result<(), StoreError> {
        self.write(|rows| {
            rows.release(fence);
            Ok(())
        })?;
        self.publish_change(ChangeKind::Owner, &fence.thread_id);
        Ok(())
    }

    async fn lease(&self, thread: &ThreadId) -> Result<Option<LeaseRecord>, StoreError> {
        let now = self.clock.uptime_ms();
        self.read(|rows| rows.leases.get(thread)?.record(now))
    }

    fn presence(&self) -> Arc<dyn Presence> {
        Arc::new(self.shared.presence.clone())
    }
}
