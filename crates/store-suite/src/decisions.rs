//! Questions, decisions, grants.

use super::fixtures::*;
use aye_core::contract::ids::SuspensionId;
use aye_core::contract::record::*;
use aye_core::contract::storage::{StoreError, SuspensionFilter, ThreadRunStore};
use aye_core::contract::suspension::Actor;

pub async fn an_answer_counts_once(store: &dyn ThreadRunStore) {
    waiting(store, None).await;
    let q = SuspensionId::from("q1");
    let DecideOutcome::Accepted(first) = store.decide(&q, yes("d1"), 100).await.unwrap() else { panic!() };
    assert_eq!(first.status, SuspensionStatus::Decided);
    assert_eq!(Some(*first.clone()), store.suspension(&q).await.unwrap());
    assert_eq!(store.decide(&q, yes("d1"), 101).await.unwrap(), DecideOutcome::Repeated(first.clone()));
    let DecideOutcome::AlreadyDecided(earlier) = store.decide(&q, no("d2"), 102).await.unwrap() else {
        panic!()
    };
    assert_eq!(earlier.decided_by.unwrap().user, "ada");
    assert_eq!(earlier.decision.unwrap().updated_at, 30);
    assert_eq!(store.suspension(&q).await.unwrap(), Some(*first));
    assert_eq!(store.decide(&"q9".into(), yes("d1"), 1).await.unwrap(), DecideOutcome::NotFound);
}

pub async fn a_spent_answer_is_repeated_and_a_closed_question_refuses(store: &dyn ThreadRunStore) {
    let (fence, run) = waiting(store, None).await;
    let opened = vec![question("q2", &run, "c2", None)];
    store.checkpoint(Checkpoint { opened, ..checkpoint(&fence, &run) }).await.unwrap();
    store.decide(&"q1".into(), yes("d1"), 1).await.unwrap();
    store.begin(begin(&fence, &run, "c1", 1, Some(("q1", "d1")))).await.unwrap();
    assert!(matches!(store.decide(&"q1".into(), yes("d1"), 1).await.unwrap(), DecideOutcome::Repeated(_)));
    assert!(matches!(
        store.decide(&"q1".into(), yes("d2"), 1).await.unwrap(),
        DecideOutcome::AlreadyDecided(_)
    ));
    let closed = vec![("q2".into(), SuspensionStatus::Superseded)];
    store.checkpoint(Checkpoint { closed, ..checkpoint(&fence, &run) }).await.unwrap();
    assert!(matches!(store.decide(&"q2".into(), yes("d3"), 1).await.unwrap(), DecideOutcome::Closed(_)));
}

pub async fn an_expired_question_stays_expired(store: &dyn ThreadRunStore) {
    let (fence, run) = waiting(store, Some(1000)).await;
    assert_eq!(store.expire_due(999).await.unwrap(), Vec::new());
    let gone = store.expire_due(1000).await.unwrap();
    assert_eq!(gone.iter().map(|q| q.id.as_str()).collect::<Vec<_>>(), ["q1"]);
    assert_eq!(gone[0].status, SuspensionStatus::Expired);
    assert_eq!(store.expire_due(2000).await.unwrap(), Vec::new());
    // The clock is set back; the question stays closed, and a new one gets its full time.
    assert!(matches!(store.decide(&"q1".into(), yes("d1"), 10).await.unwrap(), DecideOutcome::Expired(_)));
    let opened = vec![question("q2", &run, "c2", Some(20))];
    store.checkpoint(Checkpoint { opened, ..checkpoint(&fence, &run) }).await.unwrap();
    assert!(matches!(store.decide(&"q2".into(), yes("d2"), 19).await.unwrap(), DecideOutcome::Accepted(_)));
}

pub async fn all_due_questions_expire_at_once(store: &dyn ThreadRunStore) {
    let (fence, run) = waiting(store, Some(1000)).await;
    let opened = vec![question("q2", &run, "c2", None)];
    store.checkpoint(Checkpoint { opened, ..checkpoint(&fence, &run) }).await.unwrap();
    assert!(matches!(store.decide(&"q9".into(), no("d0"), 1001).await.unwrap(), DecideOutcome::NotFound));
    assert_eq!(status(store, "q1").await, SuspensionStatus::Expired);
    assert!(matches!(store.decide(&"q1".into(), no("d1"), 0).await.unwrap(), DecideOutcome::Expired(_)));
    assert!(matches!(
        store.decide(&"q2".into(), no("d2"), u64::MAX).await.unwrap(),
        DecideOutcome::Accepted(_)
    ));
}

pub async fn an_answer_in_time_is_not_revoked_by_expiry(store: &dyn ThreadRunStore) {
    let (fence, run) = waiting(store, Some(1000)).await;
    store.decide(&"q1".into(), yes("d1"), 999).await.unwrap();
    assert_eq!(store.expire_due(5000).await.unwrap(), Vec::new());
    let closed = vec![("q1".into(), SuspensionStatus::Expired)];
    let error = store.checkpoint(Checkpoint { closed, ..checkpoint(&fence, &run) }).await.unwrap_err();
    assert!(matches!(error, StoreError::IllegalMove { .. }), "{error}");
    store.begin(begin(&fence, &run, "c1", 1, Some(("q1", "d1")))).await.unwrap();
}

pub async fn exactly_one_of_many_decisions_is_accepted(store: &dyn ThreadRunStore) {
    waiting(store, None).await;
    let q = SuspensionId::from("q1");
    let ids: Vec<String> = (0..16).map(|n| format!("d{n}")).collect();
    let decided = futures::future::join_all(ids.iter().map(|id| store.decide(&q, yes(id), 1))).await;
    let accepted = |outcome: &&DecideOutcome| matches!(outcome, DecideOutcome::Accepted(_));
    let outcomes: Vec<_> = decided.into_iter().map(Result::unwrap).collect();
    assert_eq!(outcomes.iter().filter(accepted).count(), 1, "{outcomes:?}");
}

pub async fn questions_are_listed_oldest_first(store: &dyn ThreadRunStore) {
    let (fence, first) = waiting(store, None).await;
    let opened = vec![question("q0", &first, "c2", None)];
    store.checkpoint(Checkpoint { opened, ..checkpoint(&fence, &first) }).await.unwrap();
    assert_eq!(store.answered_threads().await.unwrap(), []);
    store.decide(&"q1".into(), yes("d1"), 1).await.unwrap();
    let list = async |filter| {
        let found = store.suspensions(filter).await.unwrap();
        found.into_iter().map(|q| q.id.to_string()).collect::<Vec<_>>()
    };
    let any = SuspensionFilter::default();
    assert_eq!(list(any.clone()).await, ["q1", "q0"]);
    assert_eq!(list(SuspensionFilter { thread: Some("t2".into()), ..any.clone() }).await, [""; 0]);
    assert_eq!(list(SuspensionFilter { run: Some("r1".into()), ..any.clone() }).await, ["q1", "q0"]);
    let open = SuspensionFilter { status: Some(SuspensionStatus::Open), ..any };
    assert_eq!(list(open).await, ["q0"]);
    let waiting: Vec<_> =
        store.waiting_below(&"t1".into()).await.unwrap().into_iter().map(|q| q.id).collect();
    assert_eq!(waiting, ["q0".into()]);
    assert!(store.has_answers(&"t1".into()).await.unwrap());
    assert_eq!(store.answered_threads().await.unwrap(), ["t1".into()]);
}

pub async fn only_an_unanswered_question_is_closed_early(store: &dyn ThreadRunStore) {
    let (fence, run) = waiting(store, None).await;
    let opened = vec![question("q2", &run, "c2", None)];
    store.checkpoint(Checkpoint { opened, ..checkpoint(&fence, &run) }).await.unwrap();
    store.decide(&"q1".into(), yes("d1"), 1).await.unwrap();
    let ended = store.expire(vec!["q1".into(), "q2".into(), "q9".into()], 5).await.unwrap();
    assert_eq!(ended.iter().map(|q| q.id.as_str()).collect::<Vec<_>>(), ["q2"]);
    assert_eq!(status(store, "q1").await, SuspensionStatus::Decided);
    assert_eq!(status(store, "q2").await, SuspensionStatus::Expired);
}

fn grant(id: &str, expires_at: Option<u64>, max_uses: Option<u64>) -> GrantRecord {
    GrantRecord {
        id: id.into(),
        pattern: "Bash(date)".into(),
        scope: GrantScope::Everywhere,
        created_at: 1,
        expires_at,
        sandbox: None,
        max_uses,
        uses: 0,
        revoked_at: None,
        suspension_id: None,
        actor: Actor::default(),
    }
}

pub async fn a_grant_ends_by_expiry_use_or_revocation(store: &dyn ThreadRunStore) {
    for row in [grant("a", None, None), grant("b", Some(100), None), grant("c", None, Some(2))] {
        store.add_grant(row).await.unwrap();
    }
    assert!(matches!(store.add_grant(grant("a", None, None)).await, Err(StoreError::Exists { .. })));
    let hold = async |at| {
        let held = store.grants(at).await.unwrap();
        held.into_iter().map(|row| (row.id, row.uses)).collect::<Vec<_>>()
    };
    let row = |id: &str, uses| (id.to_owned(), uses);
    let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
    assert_eq!(store.spend_grants(ids(&["a", "c"]), 50).await.unwrap(), None);
    assert_eq!(store.spend_grants(ids(&["a", "nothing"]), 50).await.unwrap(), Some("nothing".into()));
    assert_eq!(hold(50).await, [row("a", 1), row("b", 0), row("c", 1)], "all of them are counted, or none");
    assert_eq!(store.spend_grants(ids(&["c"]), 50).await.unwrap(), None);
    assert_eq!(store.spend_grants(ids(&["c"]), 50).await.unwrap(), Some("c".into()));
    assert_eq!(store.spend_grants(ids(&["b"]), 100).await.unwrap(), Some("b".into()));
    assert_eq!(hold(100).await, [row("a", 1)]);
    assert_eq!(hold(50).await, [row("a", 1)], "setting the clock back does not restore it");
    assert!(store.revoke_grant("a", 60).await.unwrap());
    assert!(!store.revoke_grant("a", 61).await.unwrap());
    assert_eq!(hold(50).await, []);
}

pub async fn an_answer_and_its_grant_are_one_transaction(store: &dyn ThreadRunStore) {
    let (fence, run) = waiting(store, None).await;
    let opened = vec![question("q2", &run, "c2", None)];
    store.checkpoint(Checkpoint { opened, ..checkpoint(&fence, &run) }).await.unwrap();
    let always = |id: &str, rule: &str| Decision { grant: Some(grant(rule, None, None)), ..yes(id) };
    let rules = async || {
        let held = store.grants(1).await.unwrap();
        held.into_iter().map(|row| row.id).collect::<Vec<_>>()
    };
    for decision in [always("d1", "a"), always("d1", "b"), always("d2", "c")] {
        store.decide(&"q1".into(), decision, 1).await.unwrap();
        assert_eq!(rules().await, ["a"], "only the accepted answer grants");
    }
    let refused = store.decide(&"q2".into(), always("d3", "a"), 1).await;
    assert!(matches!(refused, Err(StoreError::Exists { .. })));
    assert_eq!(status(store, "q2").await, SuspensionStatus::Open, "without the rule there is no response");
}
