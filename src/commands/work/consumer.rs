//! The identity of a worker in a claim: its process, in a form that another process can look up.

use std::fmt;

use crate::contract::presence::Liveness;
use crate::contract::record::{LeaseRecord, Owner};

const MARK: &str = "aye-work";

/// A worker. As text it is `aye-work:PID:START:BOOT:TOKEN:MACHINE:PID-NAMESPACE`; earlier versions end after the token.
#[derive(Clone, Debug)]
pub(crate) struct Consumer {
    owner: Owner,
}

impl fmt::Display for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Owner { token, boot_id, pid, pid_started, machine, pid_namespace, host: _ } = &self.owner;
        write!(f, "{MARK}:{pid}:{pid_started}:{boot_id}:{token}:{machine}:{pid_namespace}")
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
            machine: parts.next().unwrap_or_default().to_owned(),
            pid_namespace: parts.next().and_then(|part| part.parse().ok()).unwrap_or(0),
            host: String::new(),
        };
        parts.next().is_none().then_some(owner)
    }

    /// The process of a claimant.
    pub(crate) fn pid_of(text: &str) -> Option<u32> {
        Self::owner_of(text).map(|owner| owner.pid)
    }

    /// Returns whether a claimant is certainly gone. One that is not a worker of aye, or of which nobody can tell, is
    /// trusted until its lease expires.
    pub(super) fn knows_dead(&self, other: &str, liveness: impl Fn(&Owner) -> Liveness) -> bool {
        let other = Self::owner_of(other).filter(|other| other.token != self.owner.token);
        other.is_some_and(|other| liveness(&other) == Liveness::No)
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
    use crate::contract::presence::{LocalPresence, Presence as _};

    #[test]
    fn a_worker_record_round_trips_and_shows_liveness() {
        let presence = LocalPresence::default();
        let liveness = |owner: &Owner| presence.liveness(owner);
        let announced = presence.announce(Owner { host: String::new(), ..Owner::of_this_process() });
        let me = Consumer::new(announced.owner.clone());
        let text = me.to_string();
        assert_eq!(Consumer::owner_of(&text).as_ref(), Some(&me.owner));
        assert_eq!(Consumer::pid_of(&text), Some(std::process::id()));
        assert!(!me.knows_dead(&text, liveness));
        assert!(me.lease_of(&text).is_none(), "nobody stands by himself");
        let gone = Consumer::new(presence.announce(Owner { token: "t".into(), ..me.owner.clone() }).owner);
        assert!(
            me.knows_dead(&gone.to_string(), liveness),
            "its process is the same, but has ended as a worker"
        );
        assert!(me.lease_of(&gone.to_string()).is_some());
        let earlier = "aye-work:1:1:b:t";
        assert!(!me.knows_dead(earlier, liveness), "nobody can tell");
        for foreign in ["", "somebody", "aye-work:1", "aye-work:x:1:b:t", "aye-work:1:1:b:t:m:1:more"] {
            assert!(!me.knows_dead(foreign, liveness), "{foreign}");
        }
    }
}
