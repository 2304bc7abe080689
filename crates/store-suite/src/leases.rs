//! How long a lease lasts, and for whom.

use std::collections::HashMap;
use std::time::Duration;

use super::Opened;
use super::fixtures::*;
use aye_core::contract::ids::ThreadId;
use aye_core::contract::presence::{Announced, Liveness};
use aye_core::contract::record::*;
use aye_core::contract::storage::{AcquireError, StoreError};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Far longer than any test takes, for a store whose clock goes on by itself.
const HOUR: Duration = Duration::from_hours(1);

pub async fn an_expired_lease_is_taken_over_from_a_living_owner(opened: &Opened) {
    let store = &*opened.store;
    let (me, you) = (announced(store, "me"), announced(store, "you"));
    let (_, run) = waiting_of(store, &me.owner, None).await;
    let t1 = || "t1".into();
    let mine = store.acquire(&t1(), &me.owner, Some(HOUR)).await.unwrap();
    store.begin(begin(&mine, &run, "c2", 1, None)).await.unwrap();
    opened.time.pass(HOUR / 2).await;
    let busy = store.acquire(&t1(), &you.owner, Some(HOUR)).await.unwrap_err();
    assert!(matches!(busy, AcquireError::Busy { .. }), "{busy}");
    assert!(store.renew(&mine, HOUR).await.unwrap().unwrap() >= HOUR);
    assert!(store.renew(&mine, HOUR / 2).await.unwrap().unwrap() > HOUR / 2, "it does not get shorter");
    opened.time.pass(HOUR / 2).await;
    let left = store.lease(&t1()).await.unwrap().unwrap().left.unwrap();
    assert!(left <= HOUR / 2 && left > HOUR / 4, "{left:?}");
    assert!(store.acquire(&t1(), &you.owner, Some(HOUR)).await.is_err());
    opened.time.pass(HOUR / 2).await;
    let over = store.lease(&t1()).await.unwrap().unwrap();
    assert_eq!((over.owner.clone(), over.epoch, over.left), (me.owner.clone(), mine.epoch, Some(ms(0))));
    let yours = store.acquire(&t1(), &you.owner, Some(HOUR)).await.unwrap();
    let held = store.lease(&t1()).await.unwrap().unwrap();
    assert_eq!((&held.owner, held.epoch), (&you.owner, yours.epoch));

    assert_eq!(store.renew(&mine, 3 * HOUR).await.unwrap(), None);
    assert!(matches!(store.checkpoint(checkpoint(&mine, &run)).await, Err(StoreError::Fenced { .. })));
    let late = store.append_output(&mine, &attempt("r1", "c2", 1), "late".into()).await;
    assert!(matches!(late, Err(StoreError::Fenced { .. })));
    let still = store.lease(&t1()).await.unwrap().unwrap();
    assert!(still.is_same(&held) && still.left.unwrap() <= HOUR, "{still:?}");
    // A dead owner's expiry does not matter, and an owner without expiry keeps it while its process lives.
    drop(you);
    let mine = store.acquire(&t1(), &me.owner, None).await.unwrap();
    assert!(store.renew(&mine, ms(10)).await.unwrap().unwrap() >= ms(10));
    opened.time.pass(24 * HOUR).await;
    assert_eq!(store.lease(&t1()).await.unwrap().unwrap().left, None);
    assert!(store.acquire(&t1(), &owner("other"), Some(HOUR)).await.is_err());
    store.release(&mine).await.unwrap();
    assert_eq!(store.lease(&t1()).await.unwrap(), None);
}

pub async fn a_lease_that_nobody_took_over_is_renewed_after_its_end(opened: &Opened) {
    let store = &*opened.store;
    let (fence, run) = waiting(store, None).await;
    store.release(&fence).await.unwrap();
    let mine = store.acquire(&"t1".into(), &owner("me"), Some(HOUR)).await.unwrap();
    opened.time.pass(3 * HOUR).await;
    // Nobody else wrote: what was true before is still true.
    store.checkpoint(checkpoint(&mine, &run)).await.unwrap();
    assert!(store.renew(&mine, HOUR).await.unwrap().unwrap() >= HOUR);
    assert!(store.acquire(&"t1".into(), &owner("you"), Some(HOUR)).await.is_err());
}

pub async fn a_lease_of_an_owner_that_nobody_knows_lasts_until_its_end(opened: &Opened) {
    let store = &*opened.store;
    waiting(store, None).await;
    let acquire = async |token: &str, length| store.acquire(&"t1".into(), &owner(token), length).await;
    acquire("me", None).await.unwrap();
    let kept = acquire("you", Some(HOUR)).await.expect("a lease without an end would last for ever");
    opened.time.pass(HOUR / 2).await;
    let busy = acquire("me", Some(HOUR)).await.unwrap_err();
    assert!(matches!(&busy, AcquireError::Busy { owner } if owner.token == "you"), "{busy}");
    opened.time.pass(HOUR / 2).await;
    assert!(acquire("me", Some(HOUR)).await.unwrap().epoch > kept.epoch);
}

#[allow(clippy::unused_async, reason = "each test of the suite is awaited")]
pub async fn an_owner_is_alive_until_its_sign_is_gone(opened: &Opened) {
    let store = &*opened.store;
    let presence = store.presence();
    assert_eq!(presence.liveness(&owner("stranger")), Liveness::Unknown, "as in rows of earlier versions");
    let announced = presence.announce(owner("me"));
    let me = announced.owner.clone();
    assert_eq!((me.token.as_str(), me.pid), ("me", 7));
    assert_eq!(store.presence().liveness(&me), Liveness::Yes);
    assert_eq!(store.handle().unwrap().presence().liveness(&me), Liveness::Yes);
    drop(announced);
    assert_eq!(presence.liveness(&me), Liveness::No);
}

#[allow(clippy::unused_async, reason = "each test of the suite is awaited")]
pub async fn all_handles_take_their_times_from_one_clock(opened: &Opened) {
    let clock = opened.store.clock();
    assert!(
        clock.now_ms() > 1_600_000_000_000,
        "{} is no time of today in Unix milliseconds",
        clock.now_ms()
    );
    let handles = [opened.store.handle().unwrap(), opened.store.another().unwrap()];
    for other in handles.map(|handle| handle.clock()) {
        let difference = clock.now_ms().abs_diff(other.now_ms());
        assert!(difference < 1000, "{difference}");
    }
}

/// A lease as it should be. Times are those that passed in the test.
struct Known {
    owner: Owner,
    epoch: u64,
    ends: Option<Duration>,
}

impl Known {
    fn is_of(&self, fence: &Fence) -> bool {
        (&self.owner.token, self.epoch) == (&fence.token, fence.epoch)
    }

    fn keeps_out(&self, owner: &Owner, now: Duration, liveness: Liveness) -> bool {
        let is_over = self.ends.is_some_and(|ends| ends <= now);
        let may_be_alive = match liveness {
            Liveness::Yes => true,
            Liveness::Unknown => self.ends.is_some(),
            Liveness::No => false,
        };
        self.owner.token != owner.token && !is_over && may_be_alive
    }
}

/// Numbers that look random, the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(self.0 >> 33).unwrap() % sides
    }

    fn pick<T: Clone>(&mut self, list: &[T]) -> Option<T> {
        let sides = u32::try_from(list.len()).unwrap();
        (sides > 0).then(|| list[usize::try_from(self.below(sides)).unwrap()].clone())
    }
}

/// Whatever was requested before: the lease has the owner and the end that it should have, and epochs only count up.
pub async fn one_owner_has_a_lease_whatever_happened_before(opened: &Opened) {
    let store = &*opened.store;
    store.ensure_thread(thread("t1")).await.unwrap();
    let t1: ThreadId = "t1".into();
    let (mut known, mut epoch, mut now): (Option<Known>, _, _) = (None, 0, Duration::ZERO);
    let mut fences: Vec<Fence> = Vec::new();
    let mut living: HashMap<&str, Announced> = HashMap::new();
    let mut dice = Dice(7);
    for step in 0..1500 {
        let name = dice.pick(&["a", "b", "c"]).unwrap();
        // Leases end between the half hours at which the test looks.
        let length = dice.below(4) * HOUR + HOUR / 4;
        match dice.below(6) {
            0 => {
                let passes = dice.below(4) * HOUR / 2;
                opened.time.pass(passes).await;
                now += passes;
            }
            1 => {
                if living.remove(name).is_none() {
                    living.insert(name, announced(store, name));
                }
            }
            2 => {
                let Some(fence) = dice.pick(&fences) else { continue };
                store.release(&fence).await.unwrap();
                known = known.filter(|known| !known.is_of(&fence));
            }
            3 => {
                let Some(fence) = dice.pick(&fences) else { continue };
                let left = store.renew(&fence, length).await.unwrap();
                let mine = known.as_mut().filter(|known| known.is_of(&fence));
                assert_eq!(left.is_some(), mine.is_some(), "step {step}");
                if let Some(known) = mine {
                    known.ends = known.ends.map(|ends| ends.max(now + length));
                    assert!(left.unwrap() >= length, "step {step}: {left:?}");
                }
            }
            _ => {
                let me = living.get(name).map_or_else(|| owner(name), |sign| sign.owner.clone());
                let length = Some(length).filter(|_| dice.below(5) > 0);
                let liveness = |known: &Known| store.presence().liveness(&known.owner);
                let is_kept_out =
                    known.as_ref().is_some_and(|known| known.keeps_out(&me, now, liveness(known)));
                let acquired = store.acquire(&t1, &me, length).await;
                assert_eq!(acquired.is_err(), is_kept_out, "step {step}");
                if let Ok(fence) = acquired {
                    assert!(fence.epoch > epoch, "step {step}");
                    epoch = fence.epoch;
                    known = Some(Known { owner: me, epoch, ends: length.map(|length| now + length) });
                    fences.push(fence);
                }
            }
        }
        let found = store.lease(&t1).await.unwrap();
        let is_of = |known: &Known| (known.owner.clone(), known.epoch, known.ends.is_some());
        let should_be = known.as_ref().map(is_of);
        let found_of = |lease: &LeaseRecord| (lease.owner.clone(), lease.epoch, lease.left.is_some());
        assert_eq!(found.as_ref().map(found_of), should_be, "step {step}");
        if let (Some(ends), Some(left)) =
            (known.as_ref().and_then(|known| known.ends), found.and_then(|lease| lease.left))
        {
            let should_be = ends.saturating_sub(now);
            // A clock that goes on by itself takes a little of it.
            assert!(
                left <= should_be && left + HOUR / 8 > should_be,
                "step {step}: {left:?}, not {should_be:?}"
            );
        }
    }
}
