//! Group commit: requests share a transaction and an fsync. Each has its own savepoint, so a refused request rolls
//! back only itself; and each is answered after the commit, so that acknowledged writes are durable.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};

use rusqlite::{Connection, Transaction, TransactionBehavior};
use tokio::sync::oneshot;

use super::no_sync::Relaxed;
use super::place::OpenFile;
use super::{SqlFailure, Store, StoreChange, StoreError, StoreRequest, change_feed, failpoint};

/// Maximum requests per transaction: the first of them waits for the last.
const MOST: usize = 256;

/// The names of the failpoints before and after a commit.
pub(super) type CommitPlaces = (&'static str, &'static str);

/// A request on its way through a shared transaction.
pub(super) trait GroupRequest: Send {
    /// Whether the request waits for the disk.
    fn is_durable(&self) -> bool;
    /// Does the work inside of the transaction; `false` when nothing of it may stay.
    fn work(&mut self, tx: &Transaction<'_>) -> bool;
    /// The failpoints of a request whose work stays.
    fn places(&self) -> Option<CommitPlaces>;
    /// Returns the changes that others are notified of, once they are durable.
    fn changes(&mut self) -> Vec<StoreChange>;
    /// Answers. `failed`: the transaction did not become durable.
    fn answer(self: Box<Self>, failed: Option<StoreError>);
}

struct Request<T, W, C> {
    durable: bool,
    places: CommitPlaces,
    work: Option<W>,
    changes: Option<C>,
    result: Option<Result<T, SqlFailure>>,
    reply: oneshot::Sender<Result<T, SqlFailure>>,
}

impl<T, W, C, I> GroupRequest for Request<T, W, C>
where
    T: Send,
    W: FnOnce(&Transaction<'_>) -> Result<T, SqlFailure> + Send,
    C: FnOnce(&T) -> I + Send,
    I: IntoIterator<Item = StoreChange>,
{
    fn is_durable(&self) -> bool {
        self.durable
    }

    fn work(&mut self, tx: &Transaction<'_>) -> bool {
        self.result = self.work.take().map(|work| work(tx));
        matches!(self.result, Some(Ok(_)))
    }

    fn places(&self) -> Option<CommitPlaces> {
        matches!(self.result, Some(Ok(_))).then_some(self.places)
    }

    fn changes(&mut self) -> Vec<StoreChange> {
        let Some(Ok(value)) = &self.result else { return Vec::new() };
        self.changes.take().map(|changes| changes(value).into_iter().collect()).unwrap_or_default()
    }

    fn answer(self: Box<Self>, failed: Option<StoreError>) {
        let Self { result, reply, .. } = *self;
        let result = match (failed, result) {
            (Some(error), Some(Ok(_)) | None) => Err(error.into()),
            (_, Some(result)) => result,
            // It panicked. Its caller reads `Closed`.
            (None, None) => return,
        };
        let _ = reply.send(result);
    }
}

impl Store {
    /// Writes in a transaction that other requests may share. Others are notified of the change after the
    /// commit. `durable`: the commit waits for the disk.
    pub(super) async fn write_grouped<T, W, C>(
        &self,
        durable: bool,
        work: W,
        change: C,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: FnOnce(&Connection) -> Result<T, SqlFailure> + Send + 'static,
        C: FnOnce(&T) -> Option<StoreChange> + Send + 'static,
    {
        let places = ("store.mailbox.before", "store.mailbox.after");
        self.write_and_publish(durable, places, move |tx: &Transaction<'_>| work(tx), change).await
    }

    /// The same, with failpoints before and after the commit and any number of changes. The changes are
    /// published on the store's thread, so that other processes receive them even if the caller stops
    /// waiting.
    pub(super) async fn write_and_publish<T, W, C, I>(
        &self,
        durable: bool,
        places: CommitPlaces,
        work: W,
        changes: C,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: FnOnce(&Transaction<'_>) -> Result<T, SqlFailure> + Send + 'static,
        C: FnOnce(&T) -> I + Send + 'static,
        I: IntoIterator<Item = StoreChange> + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let member =
            Request { durable, places, work: Some(work), changes: Some(changes), result: None, reply };
        let job = StoreRequest::Grouped(
            Box::new(member),
            Beside { notifier: self.notifier.clone(), file: self.file.clone() },
        );
        self.jobs.send(job).map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?.map_err(|SqlFailure(error)| self.named(error))
    }
}

/// The resources of a group besides the connection.
pub(super) struct Beside {
    notifier: change_feed::ChangeNotifier,
    file: Option<Arc<OpenFile>>,
}

/// Executes a request together with those queued after it. Returns what to execute next: the reads that were
/// queued between them, which read after the commit, and the first request that does not belong to the group.
pub(super) fn execute_group(
    conn: &mut Connection,
    first: Box<dyn GroupRequest>,
    beside: &Beside,
    queue: &mpsc::Receiver<StoreRequest>,
) -> VecDeque<StoreRequest> {
    let mut members = vec![first];
    let mut rest = Rest { queue, next: VecDeque::new(), has_end: false };
    // What is queued already decides about the kind of commit, because it is fixed before the transaction starts.
    while members.len() < MOST
        && let Some(member) = rest.member(true)
    {
        members.push(member);
    }
    let durable = members.iter().any(|member| member.is_durable());
    let done = (|| {
        beside.file.as_ref().map_or(Ok(()), |file| file.check())?;
        let mut relaxed;
        let conn = if durable {
            conn
        } else {
            relaxed = Relaxed::new(conn)?;
            &mut *relaxed
        };
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for member in &mut members {
            work(&tx, &mut **member)?;
        }
        while members.len() < MOST
            && let Some(mut member) = rest.member(durable)
        {
            let worked = work(&tx, &mut *member);
            members.push(member);
            worked?;
        }
        let places: Vec<CommitPlaces> = members.iter().filter_map(|member| member.places()).collect();
        for (before, _) in &places {
            failpoint::failpoint(before);
        }
        tx.commit()?;
        for (_, after) in &places {
            failpoint::failpoint(after);
        }
        Ok::<_, SqlFailure>(())
    })();
    let failed = Result::err(done).map(|SqlFailure(error)| error);
    if failed.is_none() {
        let mut published: Vec<StoreChange> = Vec::new();
        for change in members.iter_mut().flat_map(|member| member.changes()) {
            if !published.contains(&change) {
                published.push(change);
            }
        }
        beside.notifier.notify_others(&published);
    }
    for member in members {
        member.answer(failed.as_ref().map(copy_of));
    }
    rest.next
}

/// The requests queued after the first one of a group.
struct Rest<'a> {
    queue: &'a mpsc::Receiver<StoreRequest>,
    /// What is executed after the group.
    next: VecDeque<StoreRequest>,
    /// Whether a request was found that the group must not overtake.
    has_end: bool,
}

impl Rest<'_> {
    /// Takes the next member out of the queue. Members overtake reads, whose callers wait for the answer before
    /// they write. `durable`: it may be one that waits for the disk.
    fn member(&mut self, durable: bool) -> Option<Box<dyn GroupRequest>> {
        while !self.has_end {
            match self.queue.try_recv().ok()? {
                StoreRequest::Grouped(another, _) if durable || !another.is_durable() => {
                    return Some(another);
                }
                read @ StoreRequest::Read(_) => self.next.push_back(read),
                other @ (StoreRequest::Grouped(..) | StoreRequest::Work(_) | StoreRequest::Close { .. }) => {
                    self.next.push_back(other);
                    self.has_end = true;
                }
            }
        }
        None
    }
}

/// Does the work of one member. If the work is refused or panics, nothing of it stays.
fn work(tx: &Transaction<'_>, member: &mut dyn GroupRequest) -> rusqlite::Result<()> {
    tx.prepare_cached("SAVEPOINT member")?.execute(())?;
    let stays = catch_unwind(AssertUnwindSafe(|| member.work(tx))).unwrap_or_else(|_| {
        tracing::error!("a request to the store panicked");
        false
    });
    if !stays {
        tx.prepare_cached("ROLLBACK TO member")?.execute(())?;
    }
    tx.prepare_cached("RELEASE member")?.execute(())?;
    Ok(())
}

/// The same failure for each of a group.
fn copy_of(error: &StoreError) -> StoreError {
    match error {
        StoreError::Busy { pid } => StoreError::Busy { pid: *pid },
        StoreError::Gone { path } => StoreError::Gone { path: path.clone() },
        StoreError::Full => StoreError::Full,
        StoreError::ReadOnly => StoreError::ReadOnly,
        StoreError::Corrupt(why) => StoreError::Corrupt(why.clone()),
        StoreError::Database(why) => StoreError::Database(why.to_string().into()),
        other => StoreError::Database(other.to_string().into()),
    }
}
