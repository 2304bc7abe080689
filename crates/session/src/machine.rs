//! Decides what an attender does next. Facts go in, at most one directive comes out; a fact that does not fit the state
//! changes nothing.

#[cfg(test)]
mod tests;

use crate::Ended;

/// What a front end wants of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    /// Whether it stays while a run waits for answers.
    pub waits: bool,
    /// What it does while another process drives.
    pub elsewhere: Elsewhere,
    /// Which queued messages it starts.
    pub queue: Queue,
    /// Whether queued messages start after a run that was cancelled, was stopped or failed.
    pub after_failure: bool,
    /// Whether it stays when nothing is left to do.
    pub stays: bool,
}

/// What an attender does while another process drives the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elsewhere {
    Leave,
    /// It follows a run that it drove or was started for, and leaves any other.
    FollowOwn,
    Follow,
}

/// The queued messages that an attender starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    Nothing,
    /// Those of users: no report of a background command or subagent.
    Written,
    /// All but the reports of background commands.
    Messages,
    /// Also reports of background commands.
    All,
}

/// What an attender starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// The oldest requested run.
    Request,
    /// The unfinished run, whichever it is; if there is none, the queue.
    Resume,
    /// A certain unfinished run, which is followed to its end wherever that is.
    Own,
    /// Whatever a read of the store finds.
    Look,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionFact {
    /// The front end requests another run.
    Requested,
    /// The user wants the conversation to continue: the queue starts even after a run that failed.
    Continued,
    /// Something about the conversation may have changed.
    Changed,
    /// What a read of the store found.
    Found(Found),
    /// An attempt to drive ended.
    Ended(Ended),
    /// The user cancels what is active or waits, and leaves.
    Cancelled,
    /// The user interrupts: a run that waits ends. The front end itself stops a run that is active; if that one comes to wait
    /// instead, it ends, too.
    Interrupted,
    /// The front end wants something else of the conversation from now on.
    Behaves(Manner),
    /// The front end leaves; what is driven comes to its rest first, and what waits keeps waiting.
    Closed,
}

/// What a read of the store found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The state of the conversation.
    pub standing: Standing,
    /// Changes whenever something changes that an attempt depends on.
    pub mark: Mark,
}

/// A summary of what an attempt depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark(pub u64);

/// The state of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Another process drives it.
    Elsewhere,
    /// Its run was left unfinished, and nobody drives it.
    Interrupted,
    /// Its run waits, and resuming it has an effect: an answer can be applied, a question has expired, or other questions
    /// are open than those that this attender knows.
    Answered,
    /// Its run waits for answers.
    Waiting {
        /// When the next question expires, in Unix milliseconds.
        until: Option<u64>,
    },
    /// It has no unfinished run.
    Over {
        /// Whether queued messages may start without the user.
        ended_well: bool,
        /// Whether a queued message may start now.
        queued: bool,
        /// When the next queued message is due, in Unix milliseconds.
        until: Option<u64>,
    },
    /// It was deleted.
    Gone,
    /// It could not be read.
    Unreadable,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionDirective {
    /// Read the store; [`SessionFact::Found`] follows.
    Read,
    /// Start the oldest requested run; [`SessionFact::Ended`] follows, as for all that drive.
    Start,
    /// Resume the unfinished run.
    Resume,
    /// Start the first queued message that may start.
    StartQueued,
    /// End the run that waits, and close its questions.
    EndWaiting,
    /// Report the end of the run that another process drove.
    Report,
    /// Ask the run that is driven to stop.
    Stop,
    /// Wait for a change, or for this moment in Unix milliseconds.
    Wait { until: Option<u64> },
    /// Follow the process that drives: wait for a change, or for the end of the process or of its lease.
    Follow,
    /// Leave. Nothing is active, and no directive follows.
    Leave(Leaving),
}

/// Why an attender leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// Nothing is left to do.
    Done,
    /// The run waits for answers.
    Waits,
    /// Another process drives the conversation, or was faster.
    Elsewhere,
    Failed,
    /// The conversation was deleted.
    Gone,
    Cancelled,
    /// The front end left.
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Reading,
    /// The directive is being executed.
    Driving(SessionDirective),
    Resting,
    Left,
}

/// Decides what an attender of one conversation does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attendance {
    manner: Manner,
    state: State,
    /// Something may have changed since the last read began.
    wanted: bool,
    /// Requested runs that have not started.
    requests: usize,
    /// The run is one that this attender drove or was started for.
    own: bool,
    /// The run may be unfinished.
    unfinished: bool,
    /// The user wants the queue to start.
    continues: bool,
    /// The state in which the last attempt was made; while nothing has changed, it is not repeated.
    tried: Option<Mark>,
    /// The last attempt would fail in the same way, and no fact has come since.
    unfit: bool,
    /// The run that waits is to be ended.
    interrupts: bool,
    end: Option<Leaving>,
}

impl Attendance {
    /// Creates an attender and returns its first directive.
    pub fn new(manner: Manner, first: First) -> (Self, SessionDirective) {
        let mut attendance = Self {
            manner,
            state: State::Resting,
            wanted: false,
            requests: usize::from(first == First::Request),
            own: first == First::Own,
            unfinished: first != First::Request,
            continues: false,
            tried: None,
            unfit: false,
            interrupts: false,
            end: None,
        };
        let directive = match first {
            First::Request | First::Look => attendance.next(),
            First::Resume | First::Own => attendance.drive(SessionDirective::Resume),
        };
        (attendance, directive)
    }

    /// Returns what the front end wants of the conversation.
    pub fn manner(&self) -> Manner {
        self.manner
    }

    /// Returns whether it drives, or is about to.
    pub fn is_driving(&self) -> bool {
        matches!(self.state, State::Driving(_))
    }

    /// Returns whether it has left.
    pub fn has_left(&self) -> bool {
        self.state == State::Left
    }

    /// Takes back a requested run that has not started.
    pub fn withdraw(&mut self) {
        self.requests = self.requests.saturating_sub(1);
    }

    /// Leaves at once: whatever executed the directives is gone.
    pub fn abandon(&mut self) {
        self.state = State::Left;
    }

    /// Takes in a fact and returns what follows from it at once.
    pub fn apply(&mut self, fact: SessionFact) -> Option<SessionDirective> {
        match (self.state, fact) {
            (State::Left, _) => return None,
            (_, SessionFact::Requested) => self.requests += 1,
            (_, SessionFact::Changed) => self.changed(),
            (_, SessionFact::Continued) => {
                self.changed();
                self.continues = true;
                self.tried = None;
            }
            (_, SessionFact::Behaves(manner)) => {
                self.changed();
                self.tried = None;
                self.manner = manner;
            }
            (_, SessionFact::Interrupted) => self.interrupts = true,
            (_, SessionFact::Cancelled) => {
                let is_first = self.end != Some(Leaving::Cancelled);
                self.end = Some(Leaving::Cancelled);
                if is_first && matches!(self.state, State::Driving(_)) {
                    return Some(SessionDirective::Stop);
                }
            }
            (_, SessionFact::Closed) => _ = self.end.get_or_insert(Leaving::Closed),
            (State::Reading, SessionFact::Found(found)) => return Some(self.found(found)),
            (State::Driving(step), SessionFact::Ended(ended)) => return Some(self.ended(step, ended)),
            (_, SessionFact::Found(_) | SessionFact::Ended(_)) => return None,
        }
        (self.state == State::Resting).then(|| self.next())
    }

    fn changed(&mut self) {
        self.wanted = true;
        self.unfit = false;
    }

    /// Returns the next directive when nothing is in flight.
    fn next(&mut self) -> SessionDirective {
        match self.end {
            Some(Leaving::Cancelled) if self.unfinished => {
                self.unfinished = false;
                return self.drive(SessionDirective::EndWaiting);
            }
            Some(end) => return self.left(end),
            None => {}
        }
        if std::mem::take(&mut self.interrupts) && std::mem::take(&mut self.unfinished) {
            return self.drive(SessionDirective::EndWaiting);
        }
        if self.requests > 0 {
            self.requests -= 1;
            self.tried = None;
            return self.drive(SessionDirective::Start);
        }
        self.wanted = false;
        self.state = State::Reading;
        SessionDirective::Read
    }

    fn drive(&mut self, step: SessionDirective) -> SessionDirective {
        self.continues = false;
        self.unfit = false;
        self.state = State::Driving(step);
        step
    }

    fn left(&mut self, why: Leaving) -> SessionDirective {
        self.state = State::Left;
        SessionDirective::Leave(why)
    }

    /// Whether something is to be done before it waits or leaves.
    fn has_more(&self) -> bool {
        self.wanted || self.is_called()
    }

    /// Whether the front end wants something that does not depend on what was found.
    fn is_called(&self) -> bool {
        self.requests > 0 || self.interrupts || self.end.is_some()
    }

    fn rest(&mut self, how: SessionDirective) -> SessionDirective {
        if self.has_more() {
            return self.next();
        }
        self.state = State::Resting;
        how
    }

    fn leave(&mut self, why: Leaving) -> SessionDirective {
        if self.has_more() { self.next() } else { self.left(why) }
    }

    fn follows(&self) -> bool {
        match self.manner.elsewhere {
            Elsewhere::Leave => false,
            Elsewhere::FollowOwn => self.own,
            Elsewhere::Follow => true,
        }
    }

    fn found(&mut self, found: Found) -> SessionDirective {
        let Found { standing, mark } = found;
        self.unfinished = match standing {
            Standing::Elsewhere | Standing::Unreadable => self.unfinished,
            Standing::Interrupted | Standing::Answered | Standing::Waiting { .. } => true,
            Standing::Over { .. } | Standing::Gone => false,
        };
        if self.is_called() {
            return self.next();
        }
        match standing {
            Standing::Elsewhere if self.follows() => self.rest(SessionDirective::Follow),
            Standing::Elsewhere => self.leave(Leaving::Elsewhere),
            Standing::Interrupted => self.attempt(SessionDirective::Resume, mark, Leaving::Failed),
            Standing::Answered => self.attempt(SessionDirective::Resume, mark, Leaving::Waits),
            Standing::Waiting { until } if self.manner.waits => self.rest(SessionDirective::Wait { until }),
            Standing::Waiting { .. } => self.leave(Leaving::Waits),
            Standing::Over { .. } if self.own => {
                self.own = false;
                self.drive(SessionDirective::Report)
            }
            Standing::Over { ended_well, queued, until } => {
                let starts = queued
                    && (ended_well || self.continues || self.manner.after_failure)
                    && self.manner.queue != Queue::Nothing;
                if starts {
                    return self.attempt(SessionDirective::StartQueued, mark, Leaving::Done);
                }
                self.stay(until, Leaving::Done)
            }
            Standing::Gone => self.left(Leaving::Gone),
            Standing::Unreadable => self.stay(None, Leaving::Failed),
        }
    }

    /// Drives, unless nothing has changed since the last attempt.
    fn attempt(&mut self, step: SessionDirective, mark: Mark, otherwise: Leaving) -> SessionDirective {
        if self.unfit || self.tried == Some(mark) {
            let waits = otherwise == Leaving::Waits && self.manner.waits;
            return if waits {
                self.rest(SessionDirective::Wait { until: None })
            } else {
                self.stay(None, otherwise)
            };
        }
        self.tried = Some(mark);
        self.drive(step)
    }

    fn stay(&mut self, until: Option<u64>, otherwise: Leaving) -> SessionDirective {
        if self.manner.stays { self.rest(SessionDirective::Wait { until }) } else { self.leave(otherwise) }
    }

    fn ended(&mut self, step: SessionDirective, ended: Ended) -> SessionDirective {
        match ended {
            Ended::Well => {
                (self.own, self.unfinished, self.tried) = (false, false, None);
                self.then_queue()
            }
            Ended::Badly => {
                (self.own, self.unfinished, self.tried) = (false, false, None);
                if self.manner.after_failure { self.then_queue() } else { self.check_or_leave(Leaving::Done) }
            }
            Ended::Waits => {
                (self.own, self.unfinished) = (true, true);
                if step != SessionDirective::Resume {
                    self.tried = None;
                }
                self.next()
            }
            Ended::Elsewhere if self.follows() => {
                self.tried = None;
                self.next()
            }
            Ended::Elsewhere | Ended::NotFree | Ended::NotQueued | Ended::Fenced => {
                self.check_or_leave(Leaving::Elsewhere)
            }
            // Another process was faster with its own run.
            Ended::Nothing if step == SessionDirective::Resume && self.own => self.next(),
            Ended::Nothing if step == SessionDirective::Resume => {
                self.unfinished = false;
                self.then_queue()
            }
            Ended::Nothing => self.check_or_leave(Leaving::Done),
            Ended::Unfit | Ended::Failed => {
                self.unfit = ended == Ended::Unfit && !self.wanted;
                self.check_or_leave(Leaving::Failed)
            }
            Ended::Dropped => {
                // It may just have come to wait.
                self.unfinished = true;
                self.check_or_leave(Leaving::Failed)
            }
        }
    }

    /// Starts the queue after a run that is done.
    fn then_queue(&mut self) -> SessionDirective {
        if self.is_called() {
            return self.next();
        }
        if self.manner.queue == Queue::Nothing {
            return self.check_or_leave(Leaving::Done);
        }
        self.drive(SessionDirective::StartQueued)
    }

    fn check_or_leave(&mut self, why: Leaving) -> SessionDirective {
        if self.manner.stays { self.next() } else { self.leave(why) }
    }
}
