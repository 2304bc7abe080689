//! Random sequences of requests against a model of the tables in plain maps.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::SuspensionFilter;

/// Small numbers name everything, so that random requests collide.
#[derive(Clone, Debug)]
enum Op {
    Create(u8),
    Delete(u8, u8),
    Acquire {
        thread: u8,
        who: u8,
        alive: bool,
    },
    Release(u8),
    Checkpoint {
        fence: u8,
        run: u8,
        done: bool,
        messages: u8,
        open: Vec<(u8, Option<u64>)>,
        close: Vec<(u8, SuspensionStatus)>,
        end: Option<u8>,
    },
    Begin {
        fence: u8,
        run: u8,
        call: u8,
        spends: Option<(u8, u8)>,
    },
    Decide {
        question: u8,
        decision: u8,
        yes: bool,
        now: u64,
    },
    Expire(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let status = prop::sample::select(vec![
        SuspensionStatus::Open,
        SuspensionStatus::Decided,
        SuspensionStatus::Applied,
        SuspensionStatus::Superseded,
        SuspensionStatus::Expired,
    ]);
    let open = prop::collection::vec((0..6u8, prop::option::weighted(0.4, 0..100u64)), 0..3);
    let close = prop::collection::vec((0..6u8, status), 0..2);
    prop_oneof![
        2 => (0..2u8).prop_map(Op::Create),
        1 => (0..2u8, 0..2u8).prop_map(|(thread, who)| Op::Delete(thread, who)),
        4 => (0..2u8, 0..2u8, any::<bool>()).prop_map(|(thread, who, alive)| Op::Acquire { thread, who, alive }),
        1 => (0..4u8).prop_map(Op::Release),
        10 => (0..3u8, 0..9u8, prop::bool::weighted(0.05), 0..3u8, open, close, prop::option::of(0..6u8)).prop_map(
            |(fence, run, done, messages, open, close, end)| Op::Checkpoint { fence, run, done, messages, open, close, end }
        ),
        2 => (0..4u8, 0..9u8, 0..6u8, prop::option::of((0..6u8, 0..2u8)))
            .prop_map(|(fence, run, call, spends)| Op::Begin { fence, run, call, spends }),
        6 => (0..2u8, 0..9u8, 0..6u8, 0..2u8)
            .prop_map(|(fence, run, call, decision)| Op::Begin { fence, run, call, spends: Some((call, decision)) }),
        8 => (0..6u8, 0..2u8, prop::bool::weighted(0.7), 0..100u64)
            .prop_map(|(question, decision, yes, now)| Op::Decide { question, decision, yes, now }),
        1 => (0..100u64).prop_map(Op::Expire),
    ]
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Asked {
    run: u8,
    status: Option<SuspensionStatus>,
    expires: Option<u64>,
    answer: Option<(u8, bool)>,
}

#[derive(Clone, Debug, Default)]
struct Thread {
    messages: usize,
    owner: Option<u8>,
    epoch: u64,
}

/// The expected tables. Run `n` belongs to thread `n % 2`; question `n` to call `n` of its run.
#[derive(Clone, Debug, Default)]
struct Model {
    threads: BTreeMap<u8, Thread>,
    runs: BTreeMap<u8, bool>,
    asked: BTreeMap<u8, Asked>,
    /// (run, call) of each attempt 1, and whether it ended.
    begun: BTreeMap<(u8, u8), bool>,
    fences: Vec<(u8, u8, u64)>,
}

impl Model {
    /// Changes a copy and keeps it only if every part was allowed, like a transaction.
    fn try_change(&mut self, change: impl FnOnce(&mut Self) -> Option<()>) -> bool {
        let mut copy = self.clone();
        let done = change(&mut copy).is_some();
        if done {
            *self = copy;
        }
        done
    }

    fn write_run(&mut self, (thread, who, epoch): (u8, u8, u64), run: u8, done: bool) -> Option<()> {
        let held = self.threads.get(&thread)?;
        let over = self.runs.get(&run).copied().unwrap_or(false);
        (thread == run % 2 && held.owner == Some(who) && held.epoch == epoch && (!over || done))
            .then_some(())?;
        self.runs.insert(run, done);
        Some(())
    }

    fn expire(&mut self, now: u64) {
        for asked in self.asked.values_mut() {
            if asked.status == Some(SuspensionStatus::Open) && asked.expires.is_some_and(|at| at <= now) {
                asked.status = Some(SuspensionStatus::Expired);
            }
        }
    }

    fn close(&mut self, thread: u8, question: u8, to: SuspensionStatus) -> Option<()> {
        use SuspensionStatus::{Applied, Decided, Expired, Open, Superseded};
        let asked = self.asked.get_mut(&question).filter(|asked| asked.run % 2 == thread)?;
        let from = asked.status?;
        let is_over = matches!(from, Applied | Superseded | Expired);
        let after = match to {
            Open | Decided => return None,
            Applied if from == Decided => Applied,
            Applied if from == Applied => Applied,
            Applied => return None,
            Superseded | Expired if is_over => from,
            Expired if from == Decided => return None,
            Superseded | Expired => to,
        };
        asked.status = Some(after);
        Some(())
    }
}

fn name(kind: &str, n: u8) -> String {
    format!("{kind}{n}")
}

fn record(run_no: u8, done: bool) -> RunRecord {
    let status = if done { RunStatus::Done } else { RunStatus::Waiting };
    run(&name("r", run_no), &name("t", run_no % 2), status)
}

fn fence_of(&(thread, who, epoch): &(u8, u8, u64)) -> Fence {
    Fence { thread_id: name("t", thread).into(), epoch, token: name("o", who) }
}

/// Mostly a run that the fence may write, so that not all requests are refused for that reason.
fn run_for(fence: (u8, u8, u64), choice: u8) -> u8 {
    match choice {
        0..=5 => fence.0,
        6 if fence.0 == 0 => 2,
        _ => choice % 3,
    }
}

/// Applies the same operation to both, and compares the results.
async fn step(store: &Store, model: &mut Model, op: Op) {
    let fence_at = |model: &Model, n: u8| model.fences.iter().rev().nth(n as usize).copied();
    match op {
        Op::Create(n) => {
            let is_new = !model.threads.contains_key(&n);
            assert_eq!(store.create_thread(thread(&name("t", n))).await.is_ok(), is_new);
            model.threads.entry(n).or_default();
        }
        Op::Delete(n, who) => {
            let deleted = store
                .delete_thread(&name("t", n).into(), &owner(&name("o", who)), |_| Liveness::Yes, by())
                .await;
            let owned = model.threads.get(&n).and_then(|t| t.owner).is_some_and(|o| o != who);
            assert_eq!(deleted.is_err(), owned);
            if !owned {
                assert_eq!(deleted.unwrap(), model.threads.remove(&n).is_some());
                model.runs.retain(|run, _| run % 2 != n);
                model.asked.retain(|_, asked| asked.run % 2 != n);
                model.begun.retain(|(run, _), _| run % 2 != n);
            }
        }
        Op::Acquire { thread, who, alive } => {
            let got = store
                .acquire(&name("t", thread).into(), &owner(&name("o", who)), None, move |_| {
                    if alive { Liveness::Yes } else { Liveness::No }
                })
                .await;
            let free = model.threads.get(&thread).is_some_and(|t| t.owner.is_none_or(|o| o == who || !alive));
            assert_eq!(got.is_ok(), free);
            if let Ok(fence) = got {
                let held = model.threads.get_mut(&thread).unwrap();
                held.owner = Some(who);
                held.epoch += 1;
                let known = (thread, who, held.epoch);
                assert_eq!(fence, fence_of(&known));
                model.fences.push(known);
            }
        }
        Op::Release(n) => {
            let Some(fence) = fence_at(model, n) else { return };
            store.release(&fence_of(&fence)).await.unwrap();
            if let Some(held) = model.threads.get_mut(&fence.0)
                && held.owner == Some(fence.1)
                && held.epoch == fence.2
            {
                held.owner = None;
            }
        }
        Op::Checkpoint { fence, run, done, messages, open, close, end } => {
            let Some(fence) = fence_at(model, fence) else { return };
            let run = run_for(fence, run);
            let record = record(run, done);
            let sent = Checkpoint {
                messages: (0..messages).map(|n| Message::user(format!("{n}"))).collect(),
                opened: open
                    .iter()
                    .map(|(n, at)| question(&name("q", *n), &record, &name("c", *n), *at))
                    .collect(),
                closed: close.iter().map(|(n, to)| (name("q", *n).into(), *to)).collect(),
                outcomes: end
                    .map(|call| {
                        outcome(attempt(record.id.as_str(), &name("c", call), 1), OutcomeKind::Returned)
                    })
                    .into_iter()
                    .collect(),
                ..checkpoint(&fence_of(&fence), &record)
            };
            let done = model.try_change(|model| {
                model.write_run(fence, run, done)?;
                model.threads.get_mut(&fence.0)?.messages += messages as usize;
                if let Some(call) = end {
                    let ended = model.begun.get_mut(&(run, call)).filter(|ended| !**ended)?;
                    *ended = true;
                }
                for (question, to) in &close {
                    model.close(fence.0, *question, *to)?;
                }
                for (question, expires) in &open {
                    let asked =
                        Asked { run, status: Some(SuspensionStatus::Open), expires: *expires, answer: None };
                    model.asked.insert(*question, asked).is_none().then_some(())?;
                }
                if done {
                    for asked in model.asked.values_mut().filter(|asked| asked.run == run) {
                        if matches!(asked.status, Some(SuspensionStatus::Open | SuspensionStatus::Decided)) {
                            asked.status = Some(SuspensionStatus::Superseded);
                        }
                    }
                }
                Some(())
            });
            let sent = store.checkpoint(sent).await;
            assert_eq!(sent.is_ok(), done, "{sent:?}");
        }
        Op::Begin { fence, run, call, spends } => {
            let Some(fence) = fence_at(model, fence) else { return };
            let run = run_for(fence, run);
            let names = spends.map(|(question, decision)| (name("q", question), name("d", decision)));
            let spent = names.as_ref().map(|(question, decision)| (question.as_str(), decision.as_str()));
            let sent = begin(&fence_of(&fence), &record(run, false), &name("c", call), 1, spent);
            let done = model.try_change(|model| {
                model.write_run(fence, run, false)?;
                if let Some((question, decision)) = spends {
                    let asked = model.asked.get_mut(&question)?;
                    let fits = asked.run == run
                        && question == call
                        && asked.status == Some(SuspensionStatus::Decided)
                        && asked.answer == Some((decision, true));
                    fits.then_some(())?;
                    asked.status = Some(SuspensionStatus::Applied);
                }
                model.begun.insert((run, call), false).is_none().then_some(())
            });
            let sent = store.begin(sent).await;
            assert_eq!(sent.is_ok(), done, "{sent:?}");
        }
        Op::Decide { question, decision, yes: is_yes, now } => {
            let sent = if is_yes { yes(&name("d", decision)) } else { no(&name("d", decision)) };
            let got = store.decide(&name("q", question).into(), sent, now).await.unwrap();
            model.expire(now);
            let Some(asked) = model.asked.get_mut(&question) else {
                assert_eq!(got, DecideOutcome::NotFound);
                return;
            };
            match asked.status.unwrap() {
                SuspensionStatus::Open => {
                    assert!(matches!(got, DecideOutcome::Accepted(_)), "{got:?}");
                    asked.status = Some(SuspensionStatus::Decided);
                    asked.answer = Some((decision, is_yes));
                }
                SuspensionStatus::Decided | SuspensionStatus::Applied
                    if asked.answer.unwrap().0 == decision =>
                {
                    assert!(matches!(got, DecideOutcome::Repeated(_)), "{got:?}");
                }
                SuspensionStatus::Decided | SuspensionStatus::Applied => {
                    assert!(matches!(got, DecideOutcome::AlreadyDecided(_)), "{got:?}");
                }
                SuspensionStatus::Superseded => assert!(matches!(got, DecideOutcome::Closed(_)), "{got:?}"),
                SuspensionStatus::Expired => assert!(matches!(got, DecideOutcome::Expired(_)), "{got:?}"),
            }
        }
        Op::Expire(now) => {
            let due = store.expire_due(now).await.unwrap().len();
            let before = model.clone();
            model.expire(now);
            let changed = model.asked.iter().filter(|(n, asked)| before.asked[n] != **asked).count();
            assert_eq!(due, changed);
        }
    }
}

/// Everything readable matches the model.
async fn compare(store: &Store, model: &Model) {
    let threads = store.threads(None).await.unwrap();
    assert_eq!(threads.len(), model.threads.len());
    for (n, known) in &model.threads {
        let id = ThreadId::from(name("t", *n));
        let summary = threads.iter().find(|t| t.thread.id == id).unwrap();
        assert_eq!(summary.damaged, None);
        let waiting = model
            .asked
            .values()
            .filter(|a| a.run % 2 == *n && a.status == Some(SuspensionStatus::Open))
            .count();
        assert_eq!((summary.messages, summary.waiting), (known.messages as u64, waiting as u64));
        assert_eq!(store.messages(&id).await.unwrap().len(), known.messages);
        assert_eq!(store.owner(&id).await.unwrap(), known.owner.map(|who| owner(&name("o", who))));
    }
    let unfinished: Vec<_> = model.runs.iter().filter(|(_, done)| !**done).collect();
    assert_eq!(store.unfinished_runs().await.unwrap().len(), unfinished.len());
    let questions = store.suspensions(SuspensionFilter::default()).await.unwrap();
    assert_eq!(questions.len(), model.asked.len());
    for (n, asked) in &model.asked {
        let stored = questions.iter().find(|q| q.id.as_str() == name("q", *n)).unwrap();
        assert_eq!(
            (Some(stored.status), stored.run_id.as_str()),
            (asked.status, name("r", asked.run).as_str())
        );
        let answer = stored.decision.as_ref().map(|d| (d.decision_id.to_string(), d.action));
        let wanted = asked.answer.map(|(d, yes)| {
            let action = if yes { ResumeDecisionAction::Resume } else { ResumeDecisionAction::Cancel };
            (name("d", d), action)
        });
        assert_eq!(answer, wanted);
    }
    for run in 0..3u8 {
        let id = name("r", run).into();
        let stored = store.intents(&id).await.unwrap();
        let known: BTreeMap<_, _> = model.begun.iter().filter(|((r, _), _)| *r == run).collect();
        assert_eq!(stored.len(), known.len());
        for (intent, outcome) in stored {
            let call = intent.id.call_id.as_str()[1..].parse().unwrap();
            assert_eq!(outcome.is_some(), model.begun[&(run, call)]);
        }
        let open = model.begun.iter().filter(|((r, _), ended)| *r == run && !**ended).count();
        assert_eq!(store.open_intents(&id).await.unwrap().len(), open);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 160, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_tables_match_the_model(ops in prop::collection::vec(op(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let store = Store::in_memory().unwrap();
            let mut model = Model::default();
            for thread in 0..2 {
                step(&store, &mut model, Op::Create(thread)).await;
                step(&store, &mut model, Op::Acquire { thread, who: 0, alive: true }).await;
            }
            for op in ops {
                step(&store, &mut model, op).await;
                compare(&store, &model).await;
            }
            assert_eq!(store.verify_audit().await.unwrap().faults, []);
        });
    }
}
