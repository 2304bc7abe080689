//! The identity of a worker in a claim: its process, in a form that another process can look up.

use std::fmt;

use super::record::Owner;

const MARK: &str = "aye-work";

/// A worker. As text it is `aye-work:PID:START:BOOT:TOKEN:MACHINE:PID-NAMESPACE`; earlier versions end after the token.
#[derive(Clone, Debug)]
pub struct Consumer {
    owner: Owner,
}

impl fmt::Display for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Owner { token, boot_id, pid, pid_started, machine, pid_namespace, host: _ } = &self.owner;
        write!(f, "{MARK}:{pid}:{pid_started}:{boot_id}:{token}:{machine}:{pid_namespace}")
    }
}

impl Consumer {
    /// Returns a process as a worker.
    pub fn new(owner: Owner) -> Consumer {
        Consumer { owner }
    }

    /// Returns the process of a claimant, without the name of its machine; `None` if it is not a worker of aye.
    pub fn owner_of(text: &str) -> Option<Owner> {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_round_trips_as_text() {
        let owner = Owner {
            token: "t".into(),
            boot_id: "b".into(),
            pid: 7,
            pid_started: 70,
            pid_namespace: 3,
            machine: "m".into(),
            host: String::new(),
        };
        let text = Consumer::new(owner.clone()).to_string();
        assert_eq!(text, "aye-work:7:70:b:t:m:3");
        assert_eq!(Consumer::owner_of(&text), Some(owner.clone()));
        let earlier = Owner { machine: String::new(), pid_namespace: 0, ..owner };
        assert_eq!(Consumer::owner_of("aye-work:7:70:b:t"), Some(earlier));
        for foreign in ["", "somebody", "aye-work:1", "aye-work:x:1:b:t", "aye-work:1:1:b:t:m:1:more"] {
            assert_eq!(Consumer::owner_of(foreign), None, "{foreign}");
        }
    }
}
