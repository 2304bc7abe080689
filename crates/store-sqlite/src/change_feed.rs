//! Publishes commits to other processes; nothing polls.
//!
//! A subscriber binds a datagram socket in the folder `bells` next to the store; each commit sends a message
//! of a few bytes to every socket there. A message says only what to read: the truth is in the store, so a
//! forged, duplicated or late message does no harm. A lost one would: a receiver whose queue is full gets
//! [`StoreChange::anything`].
//!
//! A message that was never sent (its process was killed, or the folder was deleted) is not noticed. So
//! subscribers use [`ChangeSubscription::next_or_check`], which also reports a change every 30 seconds and
//! restores its socket. A process without subscriptions is never woken.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::{Store, StoreError};
use aye_core::contract::ids::ThreadId;
use aye_core::contract::storage::{ChangeKind, StoreChange};

/// Bytes of an address of a socket, with its end.
const MAX_ADDRESS: usize = 100;
/// Number of messages without a pause after which the queue may have been full: Linux holds 10 by default.
const BURST: usize = 8;
const MAX_MESSAGE: usize = 1024;
/// Interval at which a waiting subscriber checks on its own, because a message that was never sent is not
/// received.
const CHECK: Duration = Duration::from_secs(30);

fn to_bytes(change: &StoreChange) -> Vec<u8> {
    let letter = match change.kind {
        ChangeKind::Run => b'r',
        ChangeKind::Decision => b'd',
        ChangeKind::Owner => b'o',
        ChangeKind::Queue => b'q',
        ChangeKind::Grant => b'g',
        ChangeKind::Anything => b'*',
    };
    let thread = change.thread.as_ref().map_or("", ThreadId::as_str);
    [&[letter], thread.as_bytes()].concat()
}

/// Decodes a message; an unreadable one may mean anything.
fn from_bytes(bytes: &[u8]) -> StoreChange {
    let kind = match bytes.first() {
        Some(b'r') => ChangeKind::Run,
        Some(b'd') => ChangeKind::Decision,
        Some(b'o') => ChangeKind::Owner,
        Some(b'q') => ChangeKind::Queue,
        Some(b'g') => ChangeKind::Grant,
        Some(_) | None => return StoreChange::anything(),
    };
    let thread = std::str::from_utf8(&bytes[1..]).ok().filter(|id| !id.is_empty()).map(ThreadId::from);
    StoreChange { kind, thread }
}

/// The sender of changes, one per handle of a store; a handle does not receive its own messages.
#[derive(Clone, Debug, Default)]
pub(super) struct ChangeNotifier {
    place: Option<Arc<FeedSocket>>,
}

#[derive(Debug)]
struct FeedSocket {
    folder: PathBuf,
    /// The prefix of this handle's own socket names.
    token: String,
    socket: UnixDatagram,
}

impl ChangeNotifier {
    /// For a store in a file. One that cannot be set up is logged: then others look when they have another reason to.
    pub(super) fn beside(store: &Path) -> ChangeNotifier {
        let place = store.parent().map(|parent| -> std::io::Result<FeedSocket> {
            let socket = UnixDatagram::unbound()?;
            socket.set_nonblocking(true)?;
            Ok(FeedSocket {
                folder: parent.join("bells"),
                token: uuid::Uuid::now_v7().simple().to_string(),
                socket,
            })
        });
        match place {
            Some(Ok(place)) => ChangeNotifier { place: Some(Arc::new(place)) },
            Some(Err(error)) => {
                tracing::warn!(%error, "other processes cannot be notified of changes");
                ChangeNotifier::default()
            }
            None => ChangeNotifier::default(),
        }
    }

    /// Notifies all other handles. Never waits and never fails: the store contains what matters.
    pub(super) fn notify_others(&self, changes: &[StoreChange]) {
        let Some(place) = self.place.as_ref().filter(|_| !changes.is_empty()) else { return };
        let Ok(entries) = std::fs::read_dir(&place.folder) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            if name.as_bytes().starts_with(place.token.as_bytes()) {
                continue;
            }
            let sent = with_address(&place.folder, Path::new(&name), |address| {
                changes
                    .iter()
                    .try_for_each(|change| place.socket.send_to(&to_bytes(change), address).map(drop))
            });
            // The owner of the socket is gone and could not clean up.
            if sent.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused) {
                let _ = std::fs::remove_file(place.folder.join(&name));
            }
        }
    }
}

impl ChangeNotifier {
    /// Returns the number of sockets of other handles; those of dead processes count until the next message.
    fn others(&self) -> usize {
        let Some(place) = &self.place else { return 0 };
        let Ok(entries) = std::fs::read_dir(&place.folder) else { return 0 };
        let own = place.token.as_bytes();
        entries.flatten().filter(|entry| !entry.file_name().as_bytes().starts_with(own)).count()
    }
}

/// An address of at most as many bytes as a socket's may have: a long path has a short one.
fn with_address<T>(
    folder: &Path,
    name: &Path,
    work: impl FnOnce(&Path) -> std::io::Result<T>,
) -> std::io::Result<T> {
    let whole = folder.join(name);
    if whole.as_os_str().len() < MAX_ADDRESS {
        return work(&whole);
    }
    aye_platform::with_short_path(folder, |short| work(&short.join(name)))
}

/// Receives the commits of other handles, for as long as the subscription lives.
#[derive(Debug)]
pub struct ChangeSubscription {
    /// `None` for a store in memory, which no other process can write to.
    socket: Option<tokio::net::UnixDatagram>,
    place: Option<Arc<FeedSocket>>,
    path: PathBuf,
    burst: usize,
    lost: bool,
}

impl ChangeSubscription {
    /// As [`ChangeSubscription::next`], for callers that wait for a change: after 30 seconds without one this
    /// returns [`StoreChange::anything`], and ensures that others can reach the subscription.
    pub async fn next_or_check(&mut self) -> StoreChange {
        if self.socket.is_none() {
            return self.next().await;
        }
        if let Ok(change) = tokio::time::timeout(CHECK, self.next()).await {
            return change;
        }
        self.restore();
        StoreChange::anything()
    }

    /// Binds a new socket when the old one is gone from its folder.
    fn restore(&mut self) {
        let Some(place) = self.place.as_ref().filter(|_| !self.path.exists()) else { return };
        match place.bind() {
            Ok((socket, path)) => {
                self.socket = Some(socket);
                self.path = path;
            }
            Err(error) => tracing::warn!(%error, "changes by other processes are checked every 30 seconds"),
        }
    }

    /// Waits for the next change. Waiting costs nothing.
    pub async fn next(&mut self) -> StoreChange {
        if std::mem::take(&mut self.lost) {
            return StoreChange::anything();
        }
        let Some(socket) = &self.socket else { return std::future::pending().await };
        let mut bytes = [0; MAX_MESSAGE];
        let read = match socket.try_recv(&mut bytes) {
            Ok(read) => {
                self.burst += 1;
                if self.burst >= BURST {
                    self.burst = 0;
                    self.lost = true;
                }
                read
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                self.burst = 0;
                match socket.recv(&mut bytes).await {
                    Ok(read) => read,
                    Err(error) => return broken(&error).await,
                }
            }
            Err(error) => return broken(&error).await,
        };
        from_bytes(&bytes[..read])
    }
}

async fn broken(error: &std::io::Error) -> StoreChange {
    tracing::error!(%error, "changes by other processes are no longer received");
    std::future::pending().await
}

impl Drop for ChangeSubscription {
    fn drop(&mut self) {
        if self.socket.is_some() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Store {
    /// Whether another handle receives what is committed through this one, as far as can be determined.
    pub fn has_listener(&self) -> bool {
        self.notifier.others() > 0
    }

    /// Subscribes to the commits of other handles, most of them in other processes, from now on. Must be
    /// called inside a tokio runtime. Read the store once after this returned: earlier commits are not
    /// reported.
    ///
    /// # Errors
    /// [`StoreError::Bell`] when no socket can be created next to the store.
    pub fn watch(&self) -> Result<ChangeSubscription, StoreError> {
        let Some(place) = &self.notifier.place else {
            let path = PathBuf::new();
            return Ok(ChangeSubscription { socket: None, place: None, path, burst: 0, lost: false });
        };
        let (socket, path) = place.bind().map_err(StoreError::Bell)?;
        Ok(ChangeSubscription {
            socket: Some(socket),
            place: Some(Arc::clone(place)),
            path,
            burst: 0,
            lost: false,
        })
    }
}

impl FeedSocket {
    /// A new socket in the folder, which is created when it is missing.
    fn bind(&self) -> std::io::Result<(tokio::net::UnixDatagram, PathBuf)> {
        use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
        let name = PathBuf::from(format!("{}-{}", self.token, uuid::Uuid::now_v7().simple()));
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        // Regardless of the umask, the owner and no other user must be able to enter.
        std::fs::set_permissions(&self.folder, std::fs::Permissions::from_mode(0o700))?;
        let socket = with_address(&self.folder, &name, |address| UnixDatagram::bind(address))?;
        socket.set_nonblocking(true)?;
        Ok((tokio::net::UnixDatagram::from_std(socket)?, self.folder.join(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(id: &str) -> ThreadId {
        ThreadId::from(id)
    }

    #[test]
    fn messages_round_trip() {
        for kind in
            [ChangeKind::Run, ChangeKind::Decision, ChangeKind::Owner, ChangeKind::Queue, ChangeKind::Grant]
        {
            let change = StoreChange::of(kind, &thread("t1"));
            assert_eq!(from_bytes(&to_bytes(&change)), change);
        }
        assert_eq!(from_bytes(b""), StoreChange::anything());
        assert_eq!(from_bytes(b"\xff\xff"), StoreChange::anything());
    }

    #[tokio::test]
    async fn others_are_notified_but_not_the_sender() {
        let folder = tempfile::tempdir().unwrap();
        // Longer than an address may be.
        let store = folder.path().join("d".repeat(120)).join("store.db");
        std::fs::create_dir(store.parent().unwrap()).unwrap();
        let (one, two) = (Store::open(&store).unwrap(), Store::open(&store).unwrap());
        let (mut heard_by_one, mut heard_by_two) = (one.watch().unwrap(), two.watch().unwrap());
        let change = StoreChange::of(ChangeKind::Decision, &thread("t1"));
        one.notifier.notify_others(std::slice::from_ref(&change));
        assert_eq!(heard_by_two.next().await, change);
        assert!(one.has_listener() && two.has_listener());
        two.notifier.notify_others(&[StoreChange::of(ChangeKind::Run, &thread("t2"))]);
        // The first message received is the other handle's: its own was never sent to it.
        assert_eq!(heard_by_one.next().await, StoreChange::of(ChangeKind::Run, &thread("t2")));
    }

    #[tokio::test]
    async fn a_full_queue_reports_an_unspecified_change() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let (one, two) = (Store::open(&path).unwrap(), Store::open(&path).unwrap());
        let mut watch = two.watch().unwrap();
        for n in 0..1000 {
            one.notifier.notify_others(&[StoreChange::of(ChangeKind::Run, &thread(&format!("t{n}")))]);
        }
        loop {
            if watch.next().await == StoreChange::anything() {
                break;
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_notification_is_found_by_polling() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        let (one, two) = (Store::open(&path).unwrap(), Store::open(&path).unwrap());
        let mut watch = two.watch().unwrap();
        std::fs::remove_dir_all(folder.path().join("bells")).unwrap();
        let change = StoreChange::of(ChangeKind::Decision, &thread("t1"));
        one.notifier.notify_others(std::slice::from_ref(&change));
        let start = tokio::time::Instant::now();
        assert_eq!(watch.next_or_check().await, StoreChange::anything(), "that one was lost");
        assert_eq!(start.elapsed().as_secs(), 30);
        one.notifier.notify_others(std::slice::from_ref(&change));
        assert_eq!(watch.next_or_check().await, change);
        assert_eq!(start.elapsed().as_secs(), 30, "heard at once");
        // A subscriber that does not check is not woken.
        let idle = tokio::time::timeout(Duration::from_hours(1), watch.next());
        assert!(idle.await.is_err());
    }

    #[tokio::test]
    async fn leftovers_of_a_dead_process_are_cleaned_up() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("store.db")).unwrap();
        let bells = folder.path().join("bells");
        std::fs::create_dir(&bells).unwrap();
        drop(UnixDatagram::bind(bells.join("dead")).unwrap());
        assert!(bells.join("dead").exists());
        store.notifier.notify_others(&[StoreChange::anything()]);
        assert!(!bells.join("dead").exists() && !store.has_listener());
        drop(store.watch().unwrap());
        assert_eq!(std::fs::read_dir(&bells).unwrap().count(), 0);
    }
}
