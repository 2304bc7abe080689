//! The identity of a worker in a claim: its process, in a form that another process can look up.

use std::fmt;

use crate::contract::record::{LeaseRecord, Owner};
use crate::runtime::is_alive;

const MARK: &str = "aye-work";

/// A worker. As text it is `aye-work:PID:START:BOOT:TOKEN`.
#[derive(Clone, Debug)]
pub(crate) struct Consumer {
    owner: Owner,
}

impl fmt::Display for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Owner { token, boot_id, pid, pid_started } = &self.owner;
        write!(f, "{MARK}:{pid}:{pid_started}:{boot_id}:{token}")
    }
}

impl Consumer {
    pub(super) fn new(owner: Owner) -> Consumer {
        Consumer { owner }
    }

    fn owner_of(text: &str) -> Option<Owner> {
        let mut parts = text.split(':');
        if parts.next()? != MARK {
            return None;
        }
        let owner = Owner {
            pid: parts.next()?.parse().ok()?,
            pid_started: parts.next()?.parse().ok()?,
            boot_id: parts.next()?.to_owned(),
            token: parts.next()?.to_owned(),
        };
        parts.next().is_none().then_some(owner)
    }

    /// The process of a claimant.
    pub(crate) fn pid_of(text: &str) -> Option<u32> {
        Self::owner_of(text).map(|owner| owner.pid)
    }

    /// Returns whether a claimant is certainly gone. One that is not a worker of aye is trusted until its
    /// lease expires.
    pub(super) fn knows_dead(&self, other: &str) -> bool {
        Self::owner_of(other).is_some_and(|other| !is_alive(&self.owner, &other))
    }

    /// Returns a claimant as a lease that can be watched; `None` for this process itself.
    pub(super) fn lease_of(&self, other: &str) -> Option<LeaseRecord> {
        let owner = Self::owner_of(other).filter(|owner| owner.token != self.owner.token)?;
        Some(LeaseRecord { owner, epoch: 0, until: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_record_round_trips_and_shows_liveness() {
        let me = Consumer::new(super::super::app_context::owner());
        let text = me.to_string();
        assert_eq!(Consumer::owner_of(&text).as_ref(), Some(&me.owner));
        assert_eq!(Consumer::pid_of(&text), Some(std::process::id()));
        assert!(!me.knows_dead(&text));
        assert!(me.lease_of(&text).is_none(), "nobody stands by himself");
        let gone = Consumer::new(Owner { token: "t".into(), pid_started: 1, ..me.owner.clone() });
        assert!(me.knows_dead(&gone.to_string()), "the number belongs to another process by now");
        assert!(me.lease_of(&gone.to_string()).is_some());
        for foreign in ["", "somebody", "aye-work:1", "aye-work:x:1:b:t", "aye-work:1:1:b:t:more"] {
            assert!(!me.knows_dead(foreign), "{foreign}");
        }
    }
}
