//! Group commit: requests share a transaction and an fsync. Each has its own savepoint, so a refused request rolls
//! back only itself; and each is answered after the commit, so that acknowledged writes are durable.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};

use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::oneshot;

use super::no_sync::Relaxed;
use super::place::OpenFile;
use super::{SqlFailure, Store, StoreChange, StoreError, StoreRequest, change_feed, failpoint};

/// Maximum requests per transaction: the first of them waits for the last.
const MOST: usize = 256;

/// A request on its way through a shared transaction.
pub(super) trait GroupRequest: Send {
    /// Whether the request waits for the disk.
    fn is_durable(&self) -> bool;
    /// Does the work inside of the transaction; `false` when nothing of it may stay.
    fn work(&mut self, conn: &Connection) -> bool;
    /// Returns the change that others are notified of, once it is durable.
    fn change(&mut self) -> Option<StoreChange>;
    /// Answers. `failed`: the transaction did not become durable.
    fn answer(self: Box<Self>, failed: Option<StoreError>);
}

struct Request<T, W, C> {
    durable: bool,
    work: Option<W>,
    change: Option<C>,
    result: Option<Result<T, SqlFailure>>,
    reply: oneshot::Sender<Result<T, SqlFailure>>,
}

impl<T, W, C> GroupRequest for Request<T, W, C>
where
    T: Send,
    W: FnOnce(&Connection) -> Result<T, SqlFailure> + Send,
    C: FnOnce(&T) -> Option<StoreChange> + Send,
{
    fn is_durable(&self) -> bool {
        self.durable
    }

    fn work(&mut self, conn: &Connection) -> bool {
        self.result = self.work.take().map(|work| work(conn));
        matches!(self.result, Some(Ok(_)))
    }

    fn change(&mut self) -> Option<StoreChange> {
        let Some(Ok(value)) = &self.result else { return None };
        self.change.take().and_then(|change| change(value))
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
        let (reply, answer) = oneshot::channel();
        let member = Request { durable, work: Some(work), change: Some(change), result: None, reply };
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

/// Executes a request together with those queued after it. Returns the first one that does not belong to the
/// group.
pub(super) fn execute_group(
    conn: &mut Connection,
    first: Box<dyn GroupRequest>,
    beside: &Beside,
    queue: &mpsc::Receiver<StoreRequest>,
) -> Option<StoreRequest> {
    // The kind of commit is fixed before the transaction starts: one that does not wait for the disk takes
    // only requests that need not wait.
    let durable = first.is_durable();
    let mut members = vec![first];
    let mut next = None;
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
        while let Some(member) = members.last_mut() {
            work(&tx, &mut **member)?;
            if members.len() == MOST {
                break;
            }
            match queue.try_recv() {
                Ok(StoreRequest::Grouped(another, _)) if durable || !another.is_durable() => {
                    members.push(another);
                }
                Ok(
                    job @ (StoreRequest::Grouped(..) | StoreRequest::Work(_) | StoreRequest::Close { .. }),
                ) => {
                    next = Some(job);
                    break;
                }
                Err(_) => break,
            }
        }
        failpoint::failpoint("store.mailbox.before");
        tx.commit()?;
        failpoint::failpoint("store.mailbox.after");
        Ok::<_, SqlFailure>(())
    })();
    let failed = Result::err(done).map(|SqlFailure(error)| error);
    if failed.is_none() {
        let mut told: Vec<StoreChange> = Vec::new();
        for change in members.iter_mut().filter_map(|member| member.change()) {
            if !told.contains(&change) {
                beside.notifier.notify_others(&change);
                told.push(change);
            }
        }
    }
    for member in members {
        member.answer(failed.as_ref().map(copy_of));
    }
    next
}

/// Does the work of one member. If the work is refused or panics, nothing of it stays.
fn work(tx: &Connection, member: &mut dyn GroupRequest) -> rusqlite::Result<()> {
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
