//! [`Freezer`]: sandboxed commands stand still while aye checks, mounts and moves files that they could exchange
//! meanwhile.
//!
//! What is used is compared with what was checked anyway, so this decides how often a command does not start, and not what
//! it can reach. Supervisors are never stopped. They end their commands, stopped ones too, when aye dies; and after
//! [`LIMIT`] everything continues, whatever aye waits for.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use aye_core::failpoint::failpoint;
use rustix::process::Signal;

use aye_platform::{ProcessStat, descendants, known_descendants, system_call_filters as filters};

/// The longest time that commands stand still.
const LIMIT: Duration = Duration::from_secs(2);
/// The time to wait for processes to stop: one that waits for a disk stops when it has it.
const PATIENCE: Duration = Duration::from_millis(20);

/// Stops the sandboxed commands of this process.
#[derive(Debug, Default)]
pub(crate) struct Freezer {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Sandboxed programs that may be running.
    live: usize,
    is_frozen: bool,
    /// What was stopped, parents first.
    stopped: Vec<ProcessStat>,
    /// How often everything has continued.
    number: u64,
}

impl State {
    /// Children continue first: a shell that continued before its child would report it as stopped.
    fn thaw(&mut self) {
        for process in self.stopped.drain(..).rev() {
            process.signal(Signal::CONT);
        }
        self.is_frozen = false;
        self.number += 1;
    }
}

/// Sandboxed commands stand still until this is dropped.
#[derive(Debug)]
pub struct Frozen {
    freezer: Arc<Freezer>,
    number: u64,
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let mut state = self.freezer.lock();
        if state.number == self.number {
            state.thaw();
            self.freezer.changed.notify_all();
        }
    }
}

/// A sandboxed program that may be running.
#[derive(Debug)]
pub(crate) struct Live(Arc<Freezer>);

impl Drop for Live {
    fn drop(&mut self) {
        self.0.lock().live -= 1;
    }
}

impl Freezer {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a program until what is returned is dropped.
    pub(crate) fn enter(self: &Arc<Self>) -> Live {
        self.lock().live += 1;
        Live(Arc::clone(self))
    }

    /// Stops all sandboxed commands of this process, unless no program but `own` may be running. Waits for others that
    /// have stopped them.
    pub(crate) fn freeze(self: &Arc<Self>, own: usize) -> Frozen {
        let state = self.lock();
        let waited = self.changed.wait_timeout_while(state, LIMIT, |state| state.is_frozen);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.is_frozen {
            state.thaw();
        }
        state.is_frozen = true;
        let number = state.number;
        if state.live > own {
            stop(&mut state.stopped);
            if !state.stopped.is_empty() {
                failpoint("sandbox.frozen");
                let freezer = Arc::clone(self);
                let watch = std::thread::Builder::new().spawn(move || freezer.thaw_late(number));
                // Nobody would let them continue if this process hangs.
                if watch.is_err() {
                    state.thaw();
                    self.changed.notify_all();
                }
            }
        }
        Frozen { freezer: Arc::clone(self), number }
    }

    fn thaw_late(&self, number: u64) {
        let is_same = |state: &mut State| state.number == number;
        let waited = self.changed.wait_timeout_while(self.lock(), LIMIT, is_same);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.number == number {
            state.thaw();
            self.changed.notify_all();
        }
    }
}

/// Stops everything in the sandbox below this process.
fn stop(stopped: &mut Vec<ProcessStat>) {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let own_filters = filters(own);
    let end = Instant::now() + PATIENCE;
    loop {
        let below = known_descendants(own).unwrap_or_else(|| descendants(own));
        // What somebody else has stopped stays so.
        let running = below.iter().filter(|process| !process.is_stopped());
        let running: Vec<_> = running.filter(|process| filters(process.pid) > own_filters).collect();
        for process in &running {
            if !stopped.iter().any(|known| known.id() == process.id()) {
                process.signal(Signal::STOP);
                stopped.push(**process);
            }
        }
        // One of them may have started another one just before it was stopped.
        if running.is_empty() || Instant::now() >= end {
            return;
        }
        std::thread::yield_now();
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use aye_sandbox::{Launch, Layers, Policy, Profile, ThreadLaunch};
    use std::process::{Child, Stdio};

    /// Commands in the sandbox; `None` where there is none, or nothing tells which processes are in it.
    fn commands(count: usize) -> Option<Vec<Child>> {
        if aye_platform::IS_PORTABLE {
            return None;
        }
        let dir = tempfile::tempdir().expect("a folder");
        let layers = Layers { bwrap: None, ..Layers::of_kernel() };
        let policy = Policy::new(Profile::Read, dir.path().canonicalize().expect("exists"));
        let launch =
            Launch::new(&policy, &layers, "/proc/self/exe".as_ref(), dir.path(), "cat".as_ref(), &[]);
        let start = |_| {
            let thread = ThreadLaunch::of(&launch.args).expect("launcher arguments");
            thread
                .spawn(|command| command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn())
                .expect("starts")
        };
        layers.can_enforce(Profile::Read).then(|| (0..count).map(start).collect())
    }

    fn state(child: &Child) -> u8 {
        aye_platform::process(i32::try_from(child.id()).expect("a pid")).expect("lives").state
    }

    #[test]
    fn sandboxed_commands_stand_still_and_continue() {
        let Some(mut children) = commands(2) else { return };
        let mut other = std::process::Command::new("cat").stdin(Stdio::piped()).spawn().expect("starts");
        let freezer = Arc::new(Freezer::default());
        let live = freezer.enter();
        drop(freezer.freeze(1));
        let frozen = freezer.freeze(0);
        assert!(children.iter().all(|child| state(child) == b'T'), "all of them stand still");
        assert_ne!(state(&other), b'T', "it is not in the sandbox");
        drop(frozen);
        assert!(children.iter().all(|child| state(child) != b'T'), "all of them continue");
        // Whoever forgets to end it does not stop others for ever.
        let number = freezer.freeze(0).number;
        let forgotten = Frozen { freezer: Arc::clone(&freezer), number: number + 1 };
        freezer.lock().is_frozen = true;
        drop(freezer.freeze(0));
        drop(forgotten);
        assert!(!freezer.lock().is_frozen);
        drop(live);
        for child in children.iter_mut().chain([&mut other]) {
            drop(child.stdin.take());
            let _ = child.wait();
        }
    }
}
