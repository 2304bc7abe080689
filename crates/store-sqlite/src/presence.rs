//! Which processes that use a store's file are alive: each holds a lock in the folder `alive` beside the store.

use std::path::Path;

use super::{Store, StoreError};
use aye_core::contract::digest::sha256_hex;
use aye_core::contract::ids::ThreadId;
use aye_core::contract::presence::{Announced, Liveness, Presence, Sign};
use aye_core::contract::record::Owner;
use aye_platform::{HeldLock, LockFolder, LockState};

/// The folder of the locks, beside the store.
const FOLDER: &str = "alive";

/// The processes that use one file.
#[derive(Clone, Debug)]
pub(super) struct FilePresence {
    locks: LockFolder,
    /// This machine: equal strings mean that a lock which nobody holds here is held nowhere.
    machine: String,
    boot_id: String,
    may_write: bool,
}

impl FilePresence {
    pub(super) fn beside(store: &Path, may_write: bool) -> FilePresence {
        let folder = store.parent().unwrap_or(Path::new("."));
        FilePresence {
            locks: LockFolder::new(folder.join(FOLDER)),
            machine: machine(),
            boot_id: aye_platform::boot_id().to_owned(),
            may_write,
        }
    }
}

/// An id of this machine that says nothing else about it. Without one, it is that of the boot.
fn machine() -> String {
    let id = aye_platform::machine_id();
    let id = if id.is_empty() { aye_platform::boot_id().to_owned() } else { id };
    if id.is_empty() { id } else { sha256_hex(format!("aye on {id}"))[..32].to_owned() }
}

impl Store {
    /// Tells whether the process of an owner is alive, on the store's own thread.
    pub(super) fn liveness(&self) -> impl Fn(&Owner) -> Liveness + Send + use<> {
        let presence = self.presence();
        move |owner| presence.liveness(owner)
    }

    /// [`Store::report_commands`], by what the store knows of the processes that watch them.
    pub(super) async fn report_ended_commands(
        &self,
        thread: &ThreadId,
        now_ms: u64,
    ) -> Result<(), StoreError> {
        let liveness = self.liveness();
        let here = Owner { boot_id: aye_platform::boot_id().to_owned(), ..Owner::default() };
        let is_alive = move |owner: &Owner| liveness(owner).of_watcher(owner, &here);
        self.report_commands(thread, is_alive, now_ms).await
    }
}

impl Presence for FilePresence {
    fn announce(&self, owner: Owner) -> Announced {
        if !self.may_write || self.machine.is_empty() {
            return Announced::unseen(owner);
        }
        match self.locks.hold(&owner.token) {
            Ok(held) => {
                self.locks.remove_released();
                Announced::new(Owner { machine: self.machine.clone(), ..owner }, Box::new(Lock(held)))
            }
            Err(error) => {
                tracing::warn!(%error, "other processes cannot tell whether this one is alive");
                Announced::unseen(owner)
            }
        }
    }

    fn liveness(&self, owner: &Owner) -> Liveness {
        if owner.machine.is_empty() {
            return Liveness::Unknown;
        }
        // Containers of one kernel see each other's locks, also where they count as machines of their own.
        let is_here =
            owner.machine == self.machine || (!owner.boot_id.is_empty() && owner.boot_id == self.boot_id);
        match self.locks.state(&owner.token) {
            LockState::Held => Liveness::Yes,
            // It had one: a process that cannot take its lock is not announced.
            LockState::Released | LockState::Absent if is_here => Liveness::No,
            LockState::Released | LockState::Absent | LockState::Unknown => Liveness::Unknown,
        }
    }
}

#[derive(Debug)]
struct Lock(HeldLock);

impl Sign for Lock {
    fn keep(&self) {
        if let Err(error) = self.0.keep() {
            tracing::warn!(%error, "other processes may take this one for dead");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn presence(folder: &Path, machine: &str, boot_id: &str) -> FilePresence {
        let known = FilePresence::beside(&folder.join("aye.db"), true);
        FilePresence { machine: machine.into(), boot_id: boot_id.into(), ..known }
    }

    fn owner(token: &str) -> Owner {
        Owner { token: token.into(), boot_id: "boot".into(), ..Owner::default() }
    }

    #[test]
    fn locks_of_this_machine_tell_the_living_from_the_dead() {
        let dir = tempfile::tempdir().unwrap();
        let here = presence(dir.path(), "m", "boot");
        let (one, two) = (here.announce(owner("one")), here.announce(owner("two")));
        assert_eq!(here.liveness(&one.owner), Liveness::Yes);
        let dead = two.owner.clone();
        drop(two);
        assert_eq!(here.liveness(&dead), Liveness::No, "its file is gone");
        std::fs::write(dir.path().join("alive/two"), "").unwrap();
        assert_eq!(here.liveness(&dead), Liveness::No, "its file is left");
        assert_eq!(presence(dir.path(), "m", "next").liveness(&dead), Liveness::No, "after a restart");
        assert_eq!(presence(dir.path(), "container", "boot").liveness(&dead), Liveness::No, "on one kernel");
        assert_eq!(presence(dir.path(), "container", "boot").liveness(&one.owner), Liveness::Yes);
    }

    #[test]
    fn nobody_can_tell_about_other_machines_old_rows_and_folders_without_locks() {
        let dir = tempfile::tempdir().unwrap();
        let here = presence(dir.path(), "m", "boot");
        let announced = here.announce(owner("one"));
        let there = presence(dir.path(), "other", "other");
        let dead = Owner { token: "dead".into(), ..announced.owner.clone() };
        assert_eq!(there.liveness(&dead), Liveness::Unknown, "its lock may be held on the other machine");
        assert_eq!(there.liveness(&announced.owner), Liveness::Yes, "a lock that is seen is held");
        assert_eq!(here.liveness(&owner("one")), Liveness::Unknown, "a row of an earlier version");
        let reader = FilePresence { may_write: false, ..here.clone() };
        assert_eq!(reader.announce(owner("reader")).owner.machine, "", "nothing is written to be seen");
        assert_eq!(reader.liveness(&announced.owner), Liveness::Yes);
        assert!(here.announce(owner("one")).owner.machine.is_empty(), "the lock is another's");
        drop(announced);
        std::fs::remove_dir(dir.path().join("alive")).unwrap();
        assert_eq!(here.liveness(&dead), Liveness::Unknown);
        std::fs::write(dir.path().join("alive"), "").unwrap();
        assert_eq!(here.announce(owner("two")).owner.machine, "", "no folder, no lock");
    }
}
