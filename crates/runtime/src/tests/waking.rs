//! Leases that expire, answers from other processes, and questions that expire.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::*;
use crate::lease::{Lease, LeaseGuard};
use aye_core::contract::clock::{in_ms, uptime_ms};
use aye_core::contract::event_sink::ChannelEventSink;
use aye_core::contract::record::{Decision, Fence, GrantRecord, GrantScope};
use aye_store_sqlite::Store;
use futures::FutureExt as _;

/// The time limit of every wait in these tests.
const PATIENCE: Duration = Duration::from_secs(20);

/// Clocks set by the test.
#[derive(Default)]
struct Hands {
    now: AtomicU64,
    uptime: AtomicU64,
}

impl Clock for Hands {
    fn now_ms(&self) -> u64 {
        self.now.load(Ordering::SeqCst)
    }

    fn uptime_ms(&self) -> u64 {
        self.uptime.load(Ordering::SeqCst)
    }
}

fn other() -> Owner {
    Owner { token: "other".into(), ..Owner::default() }
}

/// A run in another task, and the names of its events as they arrive.
struct Awake {
    events: tokio::sync::mpsc::UnboundedReceiver<AgentEvent>,
    run: tokio::task::JoinHandle<Result<AgentRunResult, RuntimeError>>,
}

impl Awake {
    fn start(runtime: &AgentRuntime) -> Self {
        let (sender, events) = tokio::sync::mpsc::unbounded_channel();
        let runtime = runtime.clone();
        let run = tokio::spawn(async move {
            let request = RunRequest::new("t", vec![Message::user("go")]);
            runtime.run(request, Arc::new(ChannelEventSink(sender))).await
        });
        Self { events, run }
    }

    async fn until(&mut self, event: &str) {
        let come = async {
            while let Some(got) = self.events.recv().await {
                if names(&[got])[0] == event {
                    return;
                }
            }
            panic!("{event} did not arrive");
        };
        tokio::time::timeout(PATIENCE, come).await.unwrap_or_else(|_| panic!("{event} does not arrive"));
    }

    async fn end(self) -> Result<AgentRunResult, RuntimeError> {
        // Without a timeout: a test that pauses tokio's clock would reach it at once.
        self.run.await.unwrap()
    }
}

/// Two houses over one file, like two processes.
fn neighbours() -> (tempfile::TempDir, House, House) {
    let folder = tempfile::tempdir().unwrap();
    let house = || House {
        store: Store::open(&folder.path().join("aye.db")).unwrap(),
        mode: ToolExecutionMode::ParallelStreaming,
        ..House::new()
    };
    let (here, there) = (house(), house());
    (folder, here, there)
}

fn bells(folder: &tempfile::TempDir) -> usize {
    std::fs::read_dir(folder.path().join("bells")).map_or(0, Iterator::count)
}

async fn leased(lease: u64) -> (House, Arc<Hands>, LeaseGuard) {
    let hands = Arc::new(Hands::default());
    let store = Store::in_memory().unwrap().with_clock(hands.clone());
    let house = House { store, ..House::new() };
    let runtime = house.builder(&Script::of([])).with_lease(Duration::from_millis(lease)).build().unwrap();
    let shared = Arc::clone(&runtime.inner.shared);
    runtime.ensure_thread(&"t".into(), &[]).await.unwrap();
    let fence =
        house.store.acquire(&"t".into(), &shared.owner, Some(shared.lease), |_| Liveness::Yes).await.unwrap();
    let lease_guard = LeaseGuard::new(shared, fence, 0);
    (house, hands, lease_guard)
}

async fn take_over(house: &House) -> Result<Fence, AcquireError> {
    house.store.acquire(&"t".into(), &other(), Some(Duration::from_secs(1)), |_| Liveness::Yes).await
}

#[tokio::test]
async fn a_valid_lease_permits_a_start_and_names_its_expiry() {
    // Long enough that nothing is renewed in the background.
    let (house, hands, lease_guard) = leased(600_000).await;
    let lease: &Lease = &lease_guard.lease;
    assert_eq!(lease.confirm().await, Ok(540_000));
    hands.uptime.store(299_000, Ordering::SeqCst);
    assert_eq!(lease.confirm().await, Ok(540_000), "not renewed while more than half is left");
    hands.uptime.store(300_000, Ordering::SeqCst);
    assert_eq!(lease.confirm().await, Ok(840_000));
    assert_eq!(house.store.lease(&"t".into()).await.unwrap().unwrap().left, Some(Duration::from_mins(10)));
    // The owner slept past the expiry, and nobody claimed the thread.
    hands.uptime.store(5_000_000, Ordering::SeqCst);
    assert_eq!(lease.confirm().await, Ok(5_540_000));
}

#[tokio::test]
async fn an_owner_that_slept_through_its_lease_starts_nothing_once_taken_over() {
    let (house, hands, lease_guard) = leased(600_000).await;
    hands.uptime.store(599_999, Ordering::SeqCst);
    assert!(matches!(take_over(&house).await, Err(AcquireError::Busy { .. })));
    hands.uptime.store(600_000, Ordering::SeqCst);
    take_over(&house).await.unwrap();
    hands.uptime.store(600_001, Ordering::SeqCst);
    let fenced = Err(RuntimeError::Fenced { thread_id: "t".into() });
    assert_eq!(lease_guard.lease.confirm().await, fenced);
    assert!(lease_guard.lease.lost().is_cancelled());
    // Not even when its own clock says that time is left: the lease is known to be lost.
    hands.uptime.store(0, Ordering::SeqCst);
    assert_eq!(lease_guard.lease.confirm().await, fenced);
}

/// A process that is stopped just before it reads the clock for a start: when it resumes, another process
/// owns the thread.
struct Sleeper {
    store: Store,
    checks: AtomicU32,
}

impl Clock for Sleeper {
    fn now_ms(&self) -> u64 {
        1
    }

    fn uptime_ms(&self) -> u64 {
        match self.checks.fetch_add(1, Ordering::SeqCst) {
            // The lease starts.
            0 => 0,
            1 => {
                let store = self.store.clone();
                let slept = std::thread::spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                    let length = Some(Duration::from_secs(100));
                    runtime.block_on(store.acquire(&"t".into(), &other(), length, |_| Liveness::No)).map(drop)
                });
                slept.join().unwrap().unwrap();
                600_001
            }
            _ => 600_002,
        }
    }
}

#[tokio::test]
async fn a_process_stopped_right_before_a_start_does_not_start() {
    let house = House::new();
    let clock = Arc::new(Sleeper { store: house.store.clone(), checks: AtomicU32::new(0) });
    let script = Script::of([calls(&[("c1", "free")])]);
    let builder = house.builder(&script).with_clock(clock).with_lease(Duration::from_mins(10));
    let request = RunRequest::new("t", vec![Message::user("go")]);
    let result = builder.build().unwrap().run(request, Arc::new(VecEventSink::new())).await;
    assert_eq!(result, Err(RuntimeError::Fenced { thread_id: "t".into() }));
    assert_eq!(house.executed(), 0);
    // The intent is stored, and the current owner of the thread decides about it.
    let run = house.store.latest_run(&"t".into()).await.unwrap().unwrap();
    assert!(house.store.intents(&run.id).await.unwrap()[0].1.is_none());
}

#[tokio::test]
async fn a_lease_is_renewed_while_its_driver_is_active_and_then_released() {
    let house = House::new();
    let script = Script::of([calls(&[("c1", "hang")])]);
    let runtime = house.builder(&script).with_lease(Duration::from_millis(150)).build().unwrap();
    let mut awake = Awake::start(&runtime);
    awake.until("tool_call_stream_delta").await;
    let first = house.store.lease(&"t".into()).await.unwrap().unwrap();
    let started = uptime_ms();
    let renewed = async {
        // Several terms: without renewals the lease would have expired.
        let is_renewed = |left: Duration| !left.is_zero() && uptime_ms() + in_ms(left) > started + 650;
        while !is_renewed(house.store.lease(&"t".into()).await.unwrap().unwrap().left.unwrap()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, renewed).await.expect("is renewed");
    assert_eq!(house.store.lease(&"t".into()).await.unwrap().unwrap().epoch, first.epoch);
    assert!(runtime.cancel(&"t".into()));
    tokio::time::pause();
    awake.end().await.unwrap();
    assert_eq!(house.store.lease(&"t".into()).await.unwrap(), None);
}

#[tokio::test]
async fn a_driver_that_lost_its_thread_stops_and_writes_nothing() {
    let house = House::new();
    let script = Script::of([calls(&[("c1", "hang")])]);
    let runtime = house.builder(&script).with_lease(Duration::from_millis(150)).build().unwrap();
    let mut awake = Awake::start(&runtime);
    awake.until("tool_call_stream_delta").await;
    let run = house.store.latest_run(&"t".into()).await.unwrap().unwrap();
    // The other process takes this one for dead, whatever its lease says.
    let fence = house.store.acquire(&"t".into(), &other(), None, |_| Liveness::No).await.unwrap();
    let (before, content) =
        (house.store.run(&run.id).await.unwrap(), house.store.messages(&"t".into()).await.unwrap());
    assert_eq!(awake.end().await, Err(RuntimeError::Fenced { thread_id: "t".into() }));
    assert_eq!(house.store.run(&run.id).await.unwrap(), before);
    assert_eq!(house.store.messages(&"t".into()).await.unwrap(), content);
    assert!(house.store.intents(&run.id).await.unwrap()[0].1.is_none());
    assert_eq!(
        house.store.lease(&"t".into()).await.unwrap().unwrap().epoch,
        fence.epoch,
        "it returned nothing"
    );
    assert!(!runtime.is_active(&"t".into()));
}

#[tokio::test]
async fn a_thread_driven_elsewhere_reports_the_remaining_lease() {
    let (house, hands, lease_guard) = leased(600_000).await;
    let runtime = house.runtime(&Script::of([]));
    // Its owner is dead.
    assert_eq!(runtime.driven_elsewhere(&"t".into()).await.unwrap(), None);
    drop(lease_guard);
    let alive = house.store.presence().announce(other());
    let length = Some(Duration::from_secs(5));
    house.store.acquire(&"t".into(), &alive.owner, length, |_| Liveness::No).await.unwrap();
    hands.uptime.store(2000, Ordering::SeqCst);
    assert_eq!(runtime.driven_elsewhere(&"t".into()).await.unwrap(), Some(Duration::from_secs(3)));
    hands.uptime.store(5000, Ordering::SeqCst);
    assert_eq!(runtime.driven_elsewhere(&"t".into()).await.unwrap(), None);
}

#[tokio::test]
async fn an_answer_from_another_process_reaches_the_active_run() {
    let (folder, here, there) = neighbours();
    let script = Script::of([calls(&[("a", "ask"), ("b", "hang"), ("c", "ask")])]);
    let runtime = here.runtime(&script);
    assert_eq!(bells(&folder), 0);
    let mut awake = Awake::start(&runtime);
    awake.until("tool_call_stream_delta").await;
    let asked = async {
        while there.store.suspension(&"perm_c".into()).await.unwrap().is_none() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.expect("both questions are pending");
    assert_eq!(bells(&folder), 1, "one subscription for the active driver");
    let yes = Decision::new(answer(ResumeDecisionAction::Resume), actor());
    there.store.decide(&"perm_a".into(), yes, 1).await.unwrap();
    awake.until("tool_call_done(succeeded)").await;
    assert_eq!(here.executed(), 2);
    let no = Decision::new(answer(ResumeDecisionAction::Cancel), actor());
    there.store.decide(&"perm_c".into(), no, 1).await.unwrap();
    awake.until("tool_call_done(cancelled)").await;
    assert!(runtime.cancel(&"t".into()));
    tokio::time::pause();
    awake.end().await.unwrap();
    assert_eq!(bells(&folder), 0, "nothing is subscribed while nothing runs");
}

/// Never returns from the event it receives.
struct Stuck {
    at: &'static str,
    reached: tokio::sync::Notify,
}

#[async_trait]
impl EventSink for Stuck {
    async fn emit(&self, event: AgentEvent) {
        if names(&[event])[0] == self.at {
            self.reached.notify_one();
            std::future::pending::<()>().await;
        }
    }
}

#[tokio::test]
async fn a_crash_loses_none_of_several_concurrent_decisions() {
    for mode in [ToolExecutionMode::ParallelStreaming, ToolExecutionMode::ParallelBatchApproval] {
        let house = House { mode, ..House::new() };
        let script = Script::of([calls(&[("a", "ask"), ("b", "ask"), ("c", "ask"), ("d", "ask_at_1000")])]);
        let hands = Arc::new(Hands::default());
        let runtime = || house.builder(&script).with_clock(hands.clone()).build().unwrap();
        send(&runtime(), "go").await;
        for (id, action) in [
            ("perm_a", ResumeDecisionAction::Cancel),
            ("perm_b", ResumeDecisionAction::Cancel),
            ("perm_c", ResumeDecisionAction::Resume),
        ] {
            runtime().decide(&id.into(), answer(action), actor()).await.unwrap();
        }
        hands.now.store(1000, Ordering::SeqCst);
        // The first decision is committed and emitted; then the process dies.
        let stuck = Arc::new(Stuck { at: "tool_call_done(cancelled)", reached: tokio::sync::Notify::new() });
        let (dying, sink) = (runtime(), stuck.clone());
        let run = tokio::spawn(async move { dying.resume(&"t".into(), sink, UnknownPolicy::Ask).await });
        stuck.reached.notified().await;
        run.abort();
        let _ = run.await;
        let (result, _) = wake(&runtime(), UnknownPolicy::Ask).await;
        assert_eq!(result.termination, TerminationReason::NaturalEnd, "{mode:?}");
        for (call, reported) in [("a", "denied"), ("b", "denied"), ("c", "ran"), ("d", "expired")] {
            assert!(script.result_of(call).contains(reported), "{call}: {}", script.result_of(call));
        }
        assert_eq!(house.executed(), 1);
        for (id, status) in [
            ("perm_a", SuspensionStatus::Applied),
            ("perm_b", SuspensionStatus::Applied),
            ("perm_c", SuspensionStatus::Applied),
            ("perm_d", SuspensionStatus::Expired),
        ] {
            assert_eq!(house.store.suspension(&id.into()).await.unwrap().unwrap().status, status, "{id}");
        }
    }
}

#[tokio::test]
async fn a_crash_between_questions_leaves_none_unknown_to_its_run() {
    let house = House { mode: ToolExecutionMode::ParallelStreaming, ..House::new() };
    let script = Script::of([calls(&[("a", "ask"), ("b", "free"), ("c", "ask"), ("d", "ask")])]);
    let stuck = Arc::new(Stuck { at: "tool_call_done(suspended)", reached: tokio::sync::Notify::new() });
    let (dying, sink) = (house.runtime(&script), stuck.clone());
    let request = RunRequest::new("t", vec![Message::user("go")]);
    let run = tokio::spawn(async move { dying.run(request, sink).await });
    stuck.reached.notified().await;
    run.abort();
    let _ = run.await;
    let asked = async || {
        let all = house.store.suspensions(SuspensionFilter::default()).await.unwrap();
        all.into_iter().map(|question| (question.id.to_string(), question.status)).collect::<Vec<_>>()
    };
    // The run knows the first decision; decisions made now are not lost.
    assert_eq!(asked().await, [("perm_a".to_owned(), SuspensionStatus::Open)]);
    let (result, _) = wake(&house.runtime(&script), UnknownPolicy::Ask).await;
    assert_eq!(result.waiting.len(), 3);
    let ids = ["perm_a", "perm_c", "perm_d"].map(|id| (id.to_owned(), SuspensionStatus::Open));
    assert_eq!(asked().await, ids, "the same questions under the same ids");
    assert_eq!(house.executed(), 1);
}

#[tokio::test]
async fn a_question_expires_while_a_sibling_still_runs() {
    let (_folder, here, there) = neighbours();
    let script = Script::of([calls(&[("a", "ask_soon"), ("b", "hang")])]);
    let runtime = here.runtime(&script);
    let mut awake = Awake::start(&runtime);
    awake.until("tool_call_done(failed)").await;
    let row = there.store.suspension(&"perm_a".into()).await.unwrap().unwrap();
    assert_eq!(row.status, SuspensionStatus::Expired);
    let late = runtime.decide(&"perm_a".into(), answer(ResumeDecisionAction::Resume), actor()).await.unwrap();
    assert!(matches!(late, DecideOutcome::Expired(_)), "{late:?}");
    assert_eq!(here.executed(), 1);
    assert!(runtime.cancel(&"t".into()));
    tokio::time::pause();
    awake.end().await.unwrap();
    let stored = there.store.messages(&"t".into()).await.unwrap();
    let reported = stored.iter().find(|m| m.message.tool_call_id.as_deref() == Some("a")).unwrap();
    assert!(reported.message.text().contains("expired"), "{}", reported.message.text());
}

#[tokio::test]
async fn a_question_expired_by_another_process_is_closed_at_the_next_resume() {
    let house = House::new();
    let hands = Arc::new(Hands::default());
    let script = Script::of([calls(&[("a", "ask_at_1000"), ("b", "ask")]), text("I see.")]);
    let house = House { mode: ToolExecutionMode::ParallelStreaming, ..house };
    let runtime = || house.builder(&script).with_clock(hands.clone()).build().unwrap();
    let (result, _) = send(&runtime(), "go").await;
    assert_eq!(result.waiting.len(), 2);
    assert_eq!(runtime().next_expiry(&"t".into()).await.unwrap(), Some(1000));
    hands.now.store(1000, Ordering::SeqCst);
    let late =
        runtime().decide(&"perm_a".into(), answer(ResumeDecisionAction::Resume), actor()).await.unwrap();
    assert!(matches!(late, DecideOutcome::Expired(_)), "{late:?}");
    assert_eq!(runtime().next_expiry(&"t".into()).await.unwrap(), None);
    // Setting the clock back does not reopen it.
    hands.now.store(10, Ordering::SeqCst);
    let (result, events) = wake(&runtime(), UnknownPolicy::Ask).await;
    assert_eq!(names(&events)[..2], ["run_start", "tool_call_done(failed)"]);
    assert_eq!(result.waiting.len(), 1);
    assert_eq!(result.waiting[0].id.as_str(), "perm_b");
    runtime().decide(&"perm_b".into(), answer(ResumeDecisionAction::Cancel), actor()).await.unwrap();
    let (result, _) = wake(&runtime(), UnknownPolicy::Ask).await;
    assert_eq!(result.response, "I see.");
    assert!(script.result_of("a").contains("expired"), "{}", script.result_of("a"));
    assert_eq!(house.executed(), 0);
}

#[tokio::test]
async fn grants_are_loaded_before_a_run_starts_or_resumes_and_with_a_grant() {
    let house = House { mode: ToolExecutionMode::ParallelBatchApproval, ..House::new() };
    let script = Script::of([calls(&[("c1", "ask"), ("c2", "ask")]), text("It is done.")]);
    let loads = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&loads);
    let load = move || {
        counter.fetch_add(1, Ordering::SeqCst);
        std::future::ready(()).boxed()
    };
    let runtime = house.builder(&script).with_grant_loader(Arc::new(load)).build().unwrap();
    let loaded = || loads.swap(0, Ordering::SeqCst);
    let (result, _) = send(&runtime, "go").await;
    assert_eq!(loaded(), 1, "a run starts");
    let [first, second] = [0, 1].map(|at| result.waiting[at].clone());
    let yes = answer(ResumeDecisionAction::Resume);
    runtime.decide(&first.id, yes.clone(), actor()).await.unwrap();
    assert_eq!(loaded(), 0, "an answer alone");
    let grant = GrantRecord {
        id: "g1".into(),
        pattern: "ask".into(),
        sandbox: None,
        scope: GrantScope::Everywhere,
        created_at: 1,
        expires_at: None,
        max_uses: None,
        uses: 0,
        revoked_at: None,
        suspension_id: Some(second.id.clone()),
        actor: actor(),
    };
    runtime.decide_granting(&second.id, yes, actor(), Some(grant)).await.unwrap();
    assert_eq!(loaded(), 1, "an answer with a grant");
    wake(&runtime, UnknownPolicy::Ask).await;
    assert_eq!((loaded(), house.executed()), (1, 2), "a run continues");
}

/// The clock of a laptop that sleeps for an hour whenever it is looked at.
#[derive(Default)]
struct SleepyLaptop {
    hours: AtomicU64,
}

impl Clock for SleepyLaptop {
    fn now_ms(&self) -> u64 {
        self.hours.fetch_add(1, Ordering::SeqCst) * 3_600_000
    }

    fn awake_ms(&self) -> u64 {
        7
    }
}

#[tokio::test]
async fn time_in_which_the_machine_sleeps_is_not_active_time() {
    let house = House::new();
    let script = Script::of([calls(&[("c1", "free")]), text("Done.")]);
    let runtime = house.builder(&script).with_clock(Arc::new(SleepyLaptop::default())).build().unwrap();
    send(&runtime, "go").await;
    let run = house.store.latest_run(&"t".into()).await.unwrap().unwrap();
    assert_eq!(run.active_ms, 0);
}

/// Another process that asks a question of the same id when the clock is read for the n-th time.
struct Thief {
    other: AgentRuntime,
    left: AtomicU32,
}

impl Clock for Thief {
    fn now_ms(&self) -> u64 {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 0 {
            let other = self.other.clone();
            let asks = move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                let request = RunRequest::new("x", vec![Message::user("go")]);
                runtime.block_on(other.run(request, Arc::new(VecEventSink::new()))).map(drop)
            };
            std::thread::spawn(asks).join().unwrap().unwrap();
        }
        1
    }
}

#[tokio::test]
async fn a_question_whose_id_another_process_took_meanwhile_gets_another_one() {
    for n in 0.. {
        let house = House::new();
        let script = || Script::of([calls(&[("c1", "ask")]), text("Done.")]);
        let other = house.builder(&script()).build().unwrap();
        let clock = Arc::new(Thief { other: other.clone(), left: AtomicU32::new(n) });
        let runtime = house.builder(&script()).with_clock(clock).build().unwrap();
        let (result, _) = send(&runtime, "go").await;
        assert_eq!(result.termination, TerminationReason::Suspended, "read {n}");
        let asked = |waiting: Vec<aye_core::contract::record::SuspensionRecord>| {
            waiting.first().map(|question| question.id.clone())
        };
        let mine = asked(runtime.waiting(&"t".into()).await.unwrap()).unwrap();
        let Some(theirs) = asked(other.waiting(&"x".into()).await.unwrap()) else {
            assert!(n > 5, "the clock was read {n} times only");
            return;
        };
        assert_ne!(mine, theirs, "read {n}");
        runtime.decide(&mine, answer(ResumeDecisionAction::Resume), actor()).await.unwrap();
        let (result, _) = wake(&runtime, UnknownPolicy::Report).await;
        assert_eq!((result.response.as_str(), house.executed()), ("Done.", 1), "read {n}");
    }
}
