//! Two attenders of one conversation in a small world: a store, a lease, a queue, another process, and notices that
//! arrive late and in any order.

use proptest::prelude::*;

use super::*;

/// The run of the world's conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Run {
    /// A process died while it drove.
    Interrupted,
    Waiting {
        answered: bool,
    },
    Over {
        well: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Driver {
    Attender(usize),
    Stranger,
}

#[derive(Debug)]
struct World {
    run: Run,
    driver: Option<Driver>,
    queued: usize,
    /// Counts what happened to the run.
    moves: u64,
}

/// An attender, what it is doing, and the notices on their way to it.
#[derive(Debug)]
struct Side {
    manner: Manner,
    machine: Attendance,
    doing: Option<SessionDirective>,
    /// What a read saw when it began, which is the worst moment.
    saw: Option<Found>,
    notices: usize,
    /// It drives and was asked to stop.
    stops: bool,
    accepted: usize,
    started: usize,
}

impl World {
    fn becomes(&mut self, run: Run) {
        self.run = run;
        self.moves += 1;
    }

    fn standing(&self, of: usize) -> Found {
        let standing = match (self.driver, self.run) {
            (Some(driver), _) if driver != Driver::Attender(of) => Standing::Elsewhere,
            (_, Run::Interrupted) => Standing::Interrupted,
            (_, Run::Waiting { answered: true }) => Standing::Answered,
            (_, Run::Waiting { answered: false }) => Standing::Waiting { until: None },
            (_, Run::Over { well }) => {
                Standing::Over { ended_well: well, queued: self.queued > 0, until: None }
            }
        };
        Found { standing, mark: Mark(self.moves * 100 + self.queued as u64) }
    }
}

struct House {
    world: World,
    sides: [Side; 2],
}

const STAYS: Manner = Manner {
    waits: true,
    elsewhere: Elsewhere::Follow,
    queue: Queue::All,
    after_failure: false,
    stays: true,
};
const SERVES: Manner = Manner {
    waits: false,
    elsewhere: Elsewhere::Leave,
    queue: Queue::Messages,
    after_failure: true,
    stays: false,
};

impl Side {
    fn new(manner: Manner, first: First) -> (Self, SessionDirective) {
        let (machine, directive) = Attendance::new(manner, first);
        let accepted = usize::from(first == First::Request);
        let side =
            Self { manner, machine, doing: None, saw: None, notices: 0, stops: false, accepted, started: 0 };
        (side, directive)
    }
}

impl House {
    fn new(run: Run, manners: [Manner; 2]) -> Self {
        let world = World { run, driver: None, queued: 0, moves: 0 };
        let (sides, firsts): (Vec<_>, Vec<_>) =
            manners.into_iter().map(|manner| Side::new(manner, First::Look)).unzip();
        let mut house = Self { world, sides: sides.try_into().expect("two") };
        for (at, first) in firsts.into_iter().enumerate() {
            house.begin(at, Some(first));
        }
        house
    }

    /// Something was committed: all but its author get a notice. A lease is, too, but moves nothing.
    fn committed(&mut self, author: Option<usize>) {
        for (at, side) in self.sides.iter_mut().enumerate() {
            side.notices += usize::from(Some(at) != author);
        }
    }

    /// Begins what a machine directs.
    fn begin(&mut self, at: usize, directive: Option<SessionDirective>) {
        let Some(directive) = directive else { return };
        let saw = self.world.standing(at);
        let side = &mut self.sides[at];
        if directive == SessionDirective::Stop {
            assert!(
                matches!(side.doing, Some(doing) if drives(doing)),
                "only what drives can stop: {side:?}"
            );
            side.stops = true;
            return;
        }
        let is_busy = side.doing.is_some_and(|doing| doing == SessionDirective::Read || drives(doing));
        assert!(!is_busy, "{directive:?} while {:?} is in flight", side.doing);
        side.doing = Some(directive);
        side.saw = Some(saw);
        // The end of a process that died before it could be observed is noticed at once.
        side.notices += usize::from(directive == SessionDirective::Follow && self.world.driver.is_none());
        if drives(directive) && directive != SessionDirective::Report && self.world.driver.is_none() {
            self.world.driver = Some(Driver::Attender(at));
            self.sides[1 - at].notices += 1;
        }
    }

    fn report(&mut self, at: usize, fact: SessionFact) {
        let before = self.sides[at].machine.has_left();
        let directive = self.sides[at].machine.apply(fact);
        assert!(!before || directive.is_none(), "nothing follows after it left");
        self.begin(at, directive);
    }

    /// A fact from outside. An attender that has left is replaced, as its front end would do.
    fn notice(&mut self, at: usize, fact: SessionFact) {
        if self.sides[at].machine.has_left() {
            assert!(!matches!(self.sides[at].doing, Some(doing) if drives(doing)), "nothing is left behind");
            let first = if fact == SessionFact::Requested { First::Request } else { First::Look };
            let (accepted, started) = (self.sides[at].accepted, self.sides[at].started);
            let (mut side, directive) = Side::new(self.sides[at].manner, first);
            side.notices = self.sides[at].notices;
            side.accepted += accepted;
            side.started = started;
            match fact {
                SessionFact::Continued | SessionFact::Interrupted => _ = side.machine.apply(fact),
                SessionFact::Behaves(manner) => {
                    side.manner = manner;
                    let _ = side.machine.apply(fact);
                }
                _ => {}
            }
            self.sides[at] = side;
            self.begin(at, Some(directive));
        } else {
            self.sides[at].accepted += usize::from(fact == SessionFact::Requested);
            self.report(at, fact);
        }
    }

    /// Completes what is in flight.
    fn complete(&mut self, at: usize, chance: u8) {
        let side = &mut self.sides[at];
        let Some(doing) = side.doing else { return };
        match doing {
            SessionDirective::Read => {
                let found = side.saw.expect("it began");
                side.doing = None;
                self.report(at, SessionFact::Found(found));
            }
            SessionDirective::Report => {
                side.doing = None;
                let well = self.world.run == Run::Over { well: true };
                self.report(at, SessionFact::Ended(if well { Ended::Well } else { Ended::Badly }));
            }
            step if drives(step) => {
                side.doing = None;
                side.started += usize::from(step == SessionDirective::Start);
                let stops = std::mem::take(&mut side.stops);
                let ended = self.drive(at, step, stops, chance);
                self.report(at, SessionFact::Ended(ended));
            }
            _ => {}
        }
    }

    fn drive(&mut self, at: usize, step: SessionDirective, stops: bool, chance: u8) -> Ended {
        if self.world.driver != Some(Driver::Attender(at)) {
            return Ended::Elsewhere;
        }
        self.world.driver = None;
        let ended = match (step, self.world.run) {
            (SessionDirective::Resume, Run::Over { .. }) => Ended::Nothing,
            (SessionDirective::Resume, Run::Waiting { answered: false }) if !stops => Ended::Waits,
            (SessionDirective::EndWaiting, Run::Over { .. }) => Ended::Badly,
            (SessionDirective::StartQueued, _) if self.world.queued == 0 => Ended::Nothing,
            (SessionDirective::StartQueued, Run::Interrupted | Run::Waiting { .. }) => Ended::NotFree,
            _ if stops || step == SessionDirective::EndWaiting => {
                self.world.becomes(Run::Over { well: false });
                Ended::Badly
            }
            _ => {
                self.world.queued -= usize::from(step == SessionDirective::StartQueued);
                let (run, ended) = match chance % 4 {
                    0 => (Run::Waiting { answered: false }, Ended::Waits),
                    1 => (Run::Over { well: false }, Ended::Badly),
                    _ => (Run::Over { well: true }, Ended::Well),
                };
                self.world.becomes(run);
                ended
            }
        };
        // The lease is released in any case.
        self.committed(Some(at));
        ended
    }

    /// Something that happens outside.
    fn happens(&mut self, event: u8) {
        match (event, self.world.run, self.world.driver) {
            (0 | 1, Run::Waiting { answered: false }, _) => {
                self.world.becomes(Run::Waiting { answered: true });
                self.committed(None);
            }
            (2, _, _) => {
                self.world.queued += 1;
                self.committed(None);
            }
            (3, Run::Over { .. }, None) => {
                self.world.driver = Some(Driver::Stranger);
                self.world.becomes(Run::Interrupted);
                self.committed(None);
            }
            (3, _, None) => {
                self.world.driver = Some(Driver::Stranger);
                self.committed(None);
            }
            // It dies: nobody commits anything, and only those who follow it notice.
            (4, _, Some(Driver::Stranger)) => self.dies(),
            (5, _, Some(Driver::Stranger)) => {
                self.world.driver = None;
                self.world.becomes(Run::Over { well: true });
                self.committed(None);
            }
            (6, _, _) => self.notice(usize::from(event) % 2, SessionFact::Requested),
            (7, _, _) => self.notice(1, SessionFact::Continued),
            (8, _, _) => self.notice(0, SessionFact::Interrupted),
            (9, _, _) => self.notice(1, SessionFact::Behaves(SERVES)),
            (10, _, _) => self.notice(1, SessionFact::Behaves(STAYS)),
            _ => {}
        }
    }

    fn dies(&mut self) {
        self.world.driver = None;
        for side in &mut self.sides {
            side.notices += usize::from(side.doing == Some(SessionDirective::Follow));
        }
    }

    /// Lets everything arrive and come to its end.
    fn settle(&mut self) {
        for round in 0.. {
            assert!(round < 1_000, "it never rests: {:?} {:?}", self.world, self.sides);
            let mut is_quiet = true;
            for at in 0..2 {
                if self.sides[at].doing.is_some_and(|doing| doing == SessionDirective::Read || drives(doing))
                {
                    is_quiet = false;
                    self.complete(at, 2);
                }
                if self.sides[at].notices > 0 {
                    is_quiet = false;
                    self.sides[at].notices = 0;
                    self.notice(at, SessionFact::Changed);
                }
            }
            if is_quiet {
                return;
            }
        }
    }
}

fn drives(directive: SessionDirective) -> bool {
    match directive {
        SessionDirective::Start
        | SessionDirective::Resume
        | SessionDirective::StartQueued
        | SessionDirective::EndWaiting
        | SessionDirective::Report => true,
        SessionDirective::Read
        | SessionDirective::Stop
        | SessionDirective::Wait { .. }
        | SessionDirective::Follow
        | SessionDirective::Leave(_) => false,
    }
}

fn any_run() -> impl Strategy<Value = Run> {
    prop_oneof![
        Just(Run::Interrupted),
        any::<bool>().prop_map(|answered| Run::Waiting { answered }),
        any::<bool>().prop_map(|well| Run::Over { well }),
    ]
}

fn any_manner() -> impl Strategy<Value = Manner> {
    let elsewhere = prop_oneof![Just(Elsewhere::Leave), Just(Elsewhere::FollowOwn), Just(Elsewhere::Follow)];
    let queue = prop_oneof![Just(Queue::Messages), Just(Queue::All)];
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (flags, elsewhere, queue).prop_map(|((waits, after_failure, stays), elsewhere, queue)| Manner {
        waits,
        elsewhere,
        queue,
        after_failure,
        stays,
    })
}

/// What happens: to whom, what, and by which chance.
fn any_steps() -> impl Strategy<Value = Vec<(u8, u8, u8)>> {
    proptest::collection::vec((0..4_u8, 0..11_u8, any::<u8>()), 0..60)
}

fn live(house: &mut House, steps: Vec<(u8, u8, u8)>) {
    for (what, which, chance) in steps {
        let at = usize::from(which % 2);
        match what {
            0 => house.happens(which),
            1 if house.sides[at].notices > 0 => {
                house.sides[at].notices -= 1;
                house.notice(at, SessionFact::Changed);
            }
            _ => house.complete(at, chance),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happens in whatever order, in the end nothing is left undone that an attender should do.
    #[test]
    fn no_wake_up_is_lost(run in any_run(), manner in any_manner(), steps in any_steps()) {
        let mut house = House::new(run, [STAYS, manner]);
        live(&mut house, steps);
        house.settle();
        if house.world.driver == Some(Driver::Stranger) {
            house.dies();
        }
        house.settle();
        let World { run, driver, queued, .. } = &house.world;
        prop_assert_eq!(*driver, None);
        prop_assert!(!matches!(run, Run::Interrupted | Run::Waiting { answered: true }), "{:?}", house.sides);
        prop_assert!(*queued == 0 || *run != Run::Over { well: true }, "{queued} stay queued: {:?}", house.sides);
        for side in &house.sides {
            prop_assert_eq!(side.accepted, side.started, "each requested run starts");
        }
    }

    /// The same for one that leaves whenever it waits, and is replaced when something changes.
    #[test]
    fn one_that_leaves_and_returns_misses_nothing(run in any_run(), steps in any_steps()) {
        let mut house = House::new(run, [SERVES, SERVES]);
        live(&mut house, steps);
        house.settle();
        if house.world.driver == Some(Driver::Stranger) {
            house.dies();
        }
        // They follow nobody: that a process has died is noticed with the next change.
        house.notice(0, SessionFact::Changed);
        house.settle();
        prop_assert_eq!(house.world.driver, None);
        let run = house.world.run;
        prop_assert!(!matches!(run, Run::Interrupted | Run::Waiting { answered: true }), "{:?}", house.sides);
        prop_assert!(house.world.queued == 0 || !matches!(run, Run::Over { .. }), "{:?}", house.sides);
    }

    /// Leaving leaves nothing behind: what drives ends, and nothing follows.
    #[test]
    fn leaving_leaves_nothing_behind(
        run in any_run(),
        manner in any_manner(),
        steps in any_steps(),
        cancels in any::<bool>(),
    ) {
        let mut house = House::new(run, [manner, STAYS]);
        live(&mut house, steps);
        let had_left = house.sides[0].machine.has_left();
        house.report(0, if cancels { SessionFact::Cancelled } else { SessionFact::Closed });
        let mut most = 0;
        while house.sides[0].doing.is_some_and(|doing| doing == SessionDirective::Read || drives(doing)) {
            house.complete(0, 0);
            most += 1;
            prop_assert!(most < 5, "{:?}", house.sides[0]);
        }
        prop_assert!(house.sides[0].machine.has_left());
        let why = if cancels { Leaving::Cancelled } else { Leaving::Closed };
        prop_assert!(had_left || house.sides[0].doing == Some(SessionDirective::Leave(why)), "{:?}", house.sides[0]);
        prop_assert_ne!(house.world.driver, Some(Driver::Attender(0)));
        let facts = [
            SessionFact::Changed,
            SessionFact::Continued,
            SessionFact::Requested,
            SessionFact::Interrupted,
            SessionFact::Behaves(STAYS),
            SessionFact::Cancelled,
            SessionFact::Closed,
        ];
        for fact in facts {
            prop_assert_eq!(house.sides[0].machine.apply(fact), None);
        }
    }
}

fn directives(manner: Manner, first: First, facts: &[SessionFact]) -> Vec<SessionDirective> {
    let (mut machine, directive) = Attendance::new(manner, first);
    let rest = facts.iter().filter_map(|fact| machine.apply(*fact));
    std::iter::once(directive).chain(rest.collect::<Vec<_>>()).collect()
}

fn found(standing: Standing) -> SessionFact {
    SessionFact::Found(Found { standing, mark: Mark(1) })
}

#[test]
fn a_cancel_stops_the_run_and_ends_one_that_has_come_to_wait() {
    let ended =
        |ended| directives(STAYS, First::Resume, &[SessionFact::Cancelled, SessionFact::Ended(ended)]);
    let left = SessionDirective::Leave(Leaving::Cancelled);
    assert_eq!(ended(Ended::Badly), [SessionDirective::Resume, SessionDirective::Stop, left]);
    assert_eq!(
        ended(Ended::Waits),
        [SessionDirective::Resume, SessionDirective::Stop, SessionDirective::EndWaiting]
    );
    assert_eq!(
        ended(Ended::Dropped),
        [SessionDirective::Resume, SessionDirective::Stop, SessionDirective::EndWaiting]
    );
}

#[test]
fn a_run_that_failed_keeps_the_queue_until_the_user_continues() {
    let over = found(Standing::Over { ended_well: false, queued: true, until: None });
    let facts = [over, SessionFact::Changed, over, SessionFact::Continued, over];
    let wait = SessionDirective::Wait { until: None };
    assert_eq!(
        directives(STAYS, First::Look, &facts),
        [
            SessionDirective::Read,
            wait,
            SessionDirective::Read,
            wait,
            SessionDirective::Read,
            SessionDirective::StartQueued
        ]
    );
}

#[test]
fn an_attempt_that_failed_is_repeated_only_when_something_changed() {
    let interrupted = found(Standing::Interrupted);
    let failed = SessionFact::Ended(Ended::Failed);
    let changed = SessionFact::Found(Found { standing: Standing::Interrupted, mark: Mark(2) });
    let facts = [interrupted, failed, interrupted, SessionFact::Changed, changed];
    let wait = SessionDirective::Wait { until: None };
    assert_eq!(
        directives(STAYS, First::Look, &facts),
        [
            SessionDirective::Read,
            SessionDirective::Resume,
            SessionDirective::Read,
            wait,
            SessionDirective::Read,
            SessionDirective::Resume
        ]
    );
}

#[test]
fn only_a_run_of_its_own_is_followed_where_nothing_else_is_asked() {
    let manner = Manner { elsewhere: Elsewhere::FollowOwn, stays: false, ..STAYS };
    let busy = SessionFact::Ended(Ended::Elsewhere);
    let left = SessionDirective::Leave(Leaving::Elsewhere);
    assert_eq!(directives(manner, First::Request, &[busy]), [SessionDirective::Start, left]);
    let facts =
        [SessionFact::Ended(Ended::Waits), found(Standing::Answered), busy, found(Standing::Elsewhere)];
    assert_eq!(
        directives(manner, First::Request, &facts),
        [
            SessionDirective::Start,
            SessionDirective::Read,
            SessionDirective::Resume,
            SessionDirective::Read,
            SessionDirective::Follow
        ]
    );
    let over = found(Standing::Over { ended_well: true, queued: false, until: None });
    let facts = [&facts[..], &[SessionFact::Changed, over, SessionFact::Ended(Ended::Well), busy]].concat();
    let all = directives(manner, First::Request, &facts);
    assert_eq!(
        all[5..],
        [SessionDirective::Read, SessionDirective::Report, SessionDirective::StartQueued, left]
    );
}

#[test]
fn an_interruption_ends_what_waits_and_loses_no_request() {
    let waits = found(Standing::Waiting { until: None });
    let over = found(Standing::Over { ended_well: false, queued: true, until: None });
    let wait = SessionDirective::Wait { until: None };
    let ended = |ended| SessionFact::Ended(ended);
    let facts = [
        waits,
        SessionFact::Interrupted,
        SessionFact::Requested,
        ended(Ended::Badly),
        ended(Ended::Badly),
        over,
    ];
    assert_eq!(
        directives(STAYS, First::Look, &facts),
        [
            SessionDirective::Read,
            wait,
            SessionDirective::EndWaiting,
            SessionDirective::Start,
            SessionDirective::Read,
            wait
        ]
    );
    // A run that comes to wait after it was interrupted ends, too.
    let facts = [SessionFact::Interrupted, ended(Ended::Waits)];
    assert_eq!(
        directives(STAYS, First::Request, &facts),
        [SessionDirective::Start, SessionDirective::EndWaiting]
    );
    // Nothing waits.
    let facts = [over, SessionFact::Interrupted, over];
    assert_eq!(
        directives(STAYS, First::Look, &facts),
        [SessionDirective::Read, wait, SessionDirective::Read, wait]
    );
}

#[test]
fn a_manner_that_changes_holds_from_then_on() {
    let waits = found(Standing::Waiting { until: None });
    let leaves =
        SessionFact::Behaves(Manner { stays: false, waits: false, elsewhere: Elsewhere::Leave, ..STAYS });
    let facts = [waits, leaves, waits];
    let left = SessionDirective::Leave(Leaving::Waits);
    let wait = SessionDirective::Wait { until: None };
    assert_eq!(
        directives(STAYS, First::Look, &facts),
        [SessionDirective::Read, wait, SessionDirective::Read, left]
    );
    // What is driven comes to its rest, also with the queue.
    let facts = [leaves, SessionFact::Ended(Ended::Well), SessionFact::Ended(Ended::Nothing)];
    assert_eq!(
        directives(STAYS, First::Request, &facts),
        [SessionDirective::Start, SessionDirective::StartQueued, SessionDirective::Read]
    );
}

#[test]
fn an_attempt_that_cannot_succeed_is_made_once() {
    let wait = SessionDirective::Wait { until: None };
    let interrupted = |mark| SessionFact::Found(Found { standing: Standing::Interrupted, mark: Mark(mark) });
    let unfit = SessionFact::Ended(Ended::Unfit);
    // The attempt itself may have changed the mark.
    let facts = [unfit, interrupted(1), SessionFact::Changed, interrupted(2)];
    assert_eq!(
        directives(STAYS, First::Resume, &facts),
        [
            SessionDirective::Resume,
            SessionDirective::Read,
            wait,
            SessionDirective::Read,
            SessionDirective::Resume
        ]
    );
}
