//! Which processes that use a store are alive.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::record::Owner;

/// Whether the process of an owner is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    Yes,
    /// It has ended, whatever its lease says.
    No,
    /// Nobody can tell from here: only the end of its lease counts, and nothing of it may be killed.
    Unknown,
}

impl Liveness {
    /// The same for the process that watches a command, seen from `here`. A command of another boot or machine cannot be
    /// observed or stopped, and nothing ever reports its end: it counts as ended, with an unknown outcome.
    #[must_use]
    pub fn of_watcher(self, owner: &Owner, here: &Owner) -> Liveness {
        match self {
            Liveness::Unknown if !owner.shares_boot(here) => Liveness::No,
            known => known,
        }
    }
}

/// Makes owners known to the other users of a store, and tells which of them are alive.
pub trait Presence: Send + Sync + fmt::Debug {
    /// Makes an owner known as alive for as long as the returned value exists and this process runs. Where that is
    /// impossible, the owner is returned as it was, and is [`Liveness::Unknown`] to others.
    fn announce(&self, owner: Owner) -> Announced;

    /// Returns whether an owner is alive. Never waits.
    fn liveness(&self, owner: &Owner) -> Liveness;
}

/// What keeps an announced owner known as alive until it is dropped.
pub trait Sign: Send + Sync + fmt::Debug {
    /// Restores what others see, if it was removed. Called from time to time.
    fn keep(&self) {}
}

/// An owner that others know as alive while this exists.
#[derive(Debug)]
pub struct Announced {
    /// The owner, as rows name it.
    pub owner: Owner,
    sign: Option<Box<dyn Sign>>,
}

impl Announced {
    /// An owner with what shows that it is alive.
    pub fn new(owner: Owner, sign: Box<dyn Sign>) -> Announced {
        Announced { owner, sign: Some(sign) }
    }

    /// An owner that others cannot observe.
    pub fn unseen(owner: Owner) -> Announced {
        Announced { owner: Owner { machine: String::new(), ..owner }, sign: None }
    }

    /// Restores what others see, if it was removed.
    pub fn keep(&self) {
        if let Some(sign) = &self.sign {
            sign.keep();
        }
    }
}

/// Of a store that does not know who uses it.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPresence;

impl Presence for NoPresence {
    fn announce(&self, owner: Owner) -> Announced {
        Announced::unseen(owner)
    }

    fn liveness(&self, _owner: &Owner) -> Liveness {
        Liveness::Unknown
    }
}

/// Of a store that only this process can use. Clones know the same owners.
#[derive(Clone, Debug, Default)]
pub struct LocalPresence {
    tokens: Arc<Mutex<HashSet<String>>>,
}

/// The machine of owners that were announced within one process.
const HERE: &str = "this process";

impl LocalPresence {
    fn change<T>(&self, work: impl FnOnce(&mut HashSet<String>) -> T) -> T {
        work(&mut self.tokens.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Presence for LocalPresence {
    fn announce(&self, owner: Owner) -> Announced {
        // Two users with one token would end together.
        if !self.change(|tokens| tokens.insert(owner.token.clone())) {
            return Announced::unseen(owner);
        }
        let sign = LocalSign { presence: self.clone(), token: owner.token.clone() };
        Announced::new(Owner { machine: HERE.to_owned(), ..owner }, Box::new(sign))
    }

    fn liveness(&self, owner: &Owner) -> Liveness {
        if self.change(|tokens| tokens.contains(&owner.token)) {
            Liveness::Yes
        } else if owner.machine == HERE {
            Liveness::No
        } else {
            Liveness::Unknown
        }
    }
}

#[derive(Debug)]
struct LocalSign {
    presence: LocalPresence,
    token: String,
}

impl Sign for LocalSign {}

impl Drop for LocalSign {
    fn drop(&mut self) {
        self.presence.change(|tokens| tokens.remove(&self.token));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::contract::record::LeaseRecord;

    #[test]
    fn an_owner_lives_as_long_as_it_is_announced() {
        let presence = LocalPresence::default();
        let stranger = Owner { token: "s".into(), ..Owner::default() };
        assert_eq!(presence.liveness(&stranger), Liveness::Unknown);
        let announced = presence.announce(Owner { token: "a".into(), ..Owner::default() });
        let owner = announced.owner.clone();
        assert_eq!(presence.clone().liveness(&owner), Liveness::Yes);
        let second = presence.announce(owner.clone());
        assert_eq!(second.owner.machine, "", "its end would not be seen");
        drop(second);
        assert_eq!(presence.liveness(&owner), Liveness::Yes);
        drop(announced);
        assert_eq!(presence.liveness(&owner), Liveness::No);
        assert_eq!(NoPresence.liveness(&NoPresence.announce(owner).owner), Liveness::Unknown);
    }

    #[test]
    fn a_lease_of_an_unknown_owner_holds_until_its_end() {
        let lease = |left| LeaseRecord { owner: Owner::default(), epoch: 1, left };
        let [ending, ended] = [1, 0].map(|left| lease(Some(Duration::from_millis(left))));
        assert!(ending.holds(Liveness::Yes) && ending.holds(Liveness::Unknown));
        assert!(!ending.holds(Liveness::No));
        for liveness in [Liveness::Yes, Liveness::Unknown, Liveness::No] {
            assert!(!ended.holds(liveness), "{liveness:?}");
        }
        assert!(lease(None).holds(Liveness::Yes));
        assert!(!lease(None).holds(Liveness::Unknown), "it would hold for ever");
    }

    #[test]
    fn a_row_of_an_earlier_version_is_an_owner_that_nobody_knows() {
        let row = r#"{"token":"t","boot_id":"b","pid":7,"pid_started":70}"#;
        let owner: Owner = serde_json::from_str(row).expect("it parses");
        assert_eq!((owner.machine.as_str(), owner.pid_namespace), ("", 0));
        assert_eq!(LocalPresence::default().liveness(&owner), Liveness::Unknown);
        assert!(!owner.shares_pids(&owner), "nothing of it may be signalled");
    }
}
