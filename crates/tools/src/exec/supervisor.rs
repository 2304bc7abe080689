//! The process between aye and a command: it outlives aye by two seconds at most, and the command never
//! outlives it.
//!
//! aye starts itself again with the hidden first argument [`SUPERVISE_ARG`]. That process leads its own
//! session (no controlling terminal, no signals from the terminal), is the subreaper of everything below it
//! (a daemon that leaves its group and session still becomes its child), and starts the command in its own
//! group. The descriptors:
//!
//! - 0 is the lifeline: when it ends, the command must stop. `kill -9` of aye ends it too. It carries lines: a later
//!   moment until which the command may run (`SupervisorSpec::lease_end`), or 0 if it may run on. A command whose moment
//!   passes is stopped: aye was stopped or frozen, and another process may take its run over.
//! - 1 takes the reports, one JSON object a line: [`SupervisorReport`].
//! - 2 is the stdout and stderr of the command.
//!
//! With bubblewrap, it is the first process in the command's namespaces: the command can neither signal nor inspect
//! it, and the kernel ends everything else in there when it ends.
//!
//! If 2 is a terminal (`SupervisorSpec::terminal`), it is the command's stdin, too. A command with an input
//! (`SupervisorSpec::input`) gets it from the first bytes of 0, and its stdout is not 2: it is sent in a
//! report.
#![allow(
    clippy::disallowed_methods,
    reason = "its stdin, stdout and stderr are pipes to the tool that started it"
)]

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Signal, WaitOptions, WaitStatus};
use serde::{Deserialize, Serialize};

use super::spec::SupervisorSpec;
use aye_core::contract::clock::uptime_ms;
use aye_platform::{ProcessStat, command_line, drop_inspection, signal, signal_group, started_by};
use aye_sandbox::{ThreadLaunch, take_mounts};

/// The hidden first argument that makes aye a supervisor.
pub const SUPERVISE_ARG: &str = "__supervise";

/// How long processes that outlive the command may take to end on their own: `> >(cat)` needs a moment.
const LINGER: Duration = Duration::from_millis(100);
/// The most between TERM and KILL when the lease is about to end: with leases of the default length, nothing runs after it.
const OVERDUE_GRACE: Duration = Duration::from_secs(1);
/// How long to wait for the command's stdout after the command and all its processes are gone.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// Bytes kept of a stdout that is sent in a report.
const MAX_OUTPUT_BYTES: usize = 256 << 10;
/// Maximum survivors to list.
const MAX_NAMES: usize = 20;

/// A report of a supervisor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", untagged)]
pub enum SupervisorReport {
    /// First: the command runs.
    Started { pid: i32, pgid: i32 },
    /// Instead: it could not be started.
    NotStarted { error: String },
    /// The output on its stdout, if that was a separate one.
    Said {
        said: String,
        /// Whether only the start was kept.
        cut: bool,
    },
    /// Last: it ended, and nothing of it is left.
    Ended {
        /// The exit status, when it exited.
        code: Option<i32>,
        /// The signal, when one ended it.
        signal: Option<i32>,
        /// Processes that outlived the command and were killed.
        left: Vec<String>,
        /// Whether it was stopped because the moment until which it may run had passed.
        #[serde(default)]
        overdue: bool,
    },
}

fn report(report: &SupervisorReport) {
    // aye may be gone: then there is no reader, and the work below continues.
    if let Ok(mut line) = serde_json::to_vec(report) {
        line.push(b'\n');
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(&line).and_then(|()| out.flush());
    }
}

/// Supervises one command: `args` are the arguments after [`SUPERVISE_ARG`], that is its `SupervisorSpec`,
/// the program, and its arguments. The exit status is the command's own, or 128 plus the signal.
pub fn supervise_main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let mut args = args;
    let first = args.next();
    if first.as_deref().is_some_and(|word| word == super::serve::SERVE_WORD) {
        return serve_main(args);
    }
    let duty = first.and_then(|word| word.to_str()?.parse::<SupervisorSpec>().ok());
    let (Some(duty), Some(program)) = (duty, args.next()) else {
        report(&SupervisorReport::NotStarted { error: "only aye starts a supervisor".into() });
        return ExitCode::from(2);
    };
    match start(&duty, program, args) {
        Ok((child, output)) => {
            let mut supervisor = Supervisor {
                child,
                grace: duty.grace,
                lifeline: PollFlags::IN,
                grace_period: None,
                main: None,
                stop_at: None,
                moments: Moments::new(duty.lease_end),
                overdue: false,
            };
            let (code, signal, left) = supervisor.watch();
            if let Some(output) = output {
                let (output, cut) = output.recv_timeout(LAST_WORDS).unwrap_or_default();
                report(&SupervisorReport::Said { said: String::from_utf8_lossy(&output).into_owned(), cut });
            }
            report(&SupervisorReport::Ended { code, signal, left, overdue: supervisor.overdue });
            ExitCode::from(u8::try_from(code.unwrap_or(128 + signal.unwrap_or(0))).unwrap_or(1))
        }
        Err(error) => {
            report(&SupervisorReport::NotStarted { error: error.to_string() });
            ExitCode::from(127)
        }
    }
}

/// Supervises a server: a program that aye speaks with over the program's own standard input and output. The lifeline
/// is that input: it ends when aye closes it or dies. `args` are the grace in milliseconds, the program, its arguments.
fn serve_main(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let grace = args.next().and_then(|word| word.to_str()?.parse().ok()).map(Duration::from_millis);
    let (Some(grace), Some(program)) = (grace, args.next()) else { return ExitCode::from(2) };
    match start_server(&program, args) {
        Ok(child) => {
            let (code, signal, _) = Supervisor {
                child,
                grace,
                // The data in the pipe is for the server; only the end of the pipe is checked.
                lifeline: PollFlags::empty(),
                grace_period: Some(grace),
                main: None,
                stop_at: None,
                moments: Moments::new(None),
                overdue: false,
            }
            .watch();
            ExitCode::from(u8::try_from(code.unwrap_or(128 + signal.unwrap_or(0))).unwrap_or(1))
        }
        Err(error) => {
            // The server's standard error: aye reads it.
            let _ = writeln!(std::io::stderr(), "cannot start {}: {error}", program.to_string_lossy());
            ExitCode::from(127)
        }
    }
}

fn start_server(program: &OsString, args: impl Iterator<Item = OsString>) -> std::io::Result<i32> {
    let _ = rustix::process::setsid();
    aye_platform::adopt_orphans()?;
    // bubblewrap may need the right to make namespaces, and drops all rights itself.
    drop_inspection(Path::new(program).file_name().is_some_and(|name| name == "bwrap"));
    let child = Command::new(program).args(args).process_group(0).spawn()?;
    // Only the server's own processes hold its output from here on, so its end means that they are gone.
    let nothing = File::options().write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&nothing)?;
    rustix::stdio::dup2_stderr(&nothing)?;
    i32::try_from(child.id()).map_err(std::io::Error::other)
}

/// Whether the lifeline has already ended: then the command must not start, because no process waits for it.
fn is_alone() -> bool {
    let stdin = std::io::stdin();
    // Data may be there already, and does not matter.
    let mut fds = [PollFd::new(&stdin, PollFlags::empty())];
    matches!(rustix::event::poll(&mut fds, Some(&Timespec::default())), Ok(1..))
}

/// The stdout of the command, sent once it is closed, and whether only its start was kept.
type OutputReceiver = mpsc::Receiver<(Vec<u8>, bool)>;

/// Reads the input from the first bytes of the lifeline.
fn input(duty: &SupervisorSpec) -> std::io::Result<Option<Vec<u8>>> {
    let Some(length) = duty.input else { return Ok(None) };
    let mut input = vec![0; length];
    File::from(std::io::stdin().as_fd().try_clone_to_owned()?).read_exact(&mut input)?;
    Ok(Some(input))
}

/// Gives the command its input and takes its stdout, each at the pace of the command.
fn converse(child: &mut Child, input: Vec<u8>) -> OutputReceiver {
    if let Some(mut stdin) = child.stdin.take() {
        // The command need not read its input.
        std::thread::spawn(move || stdin.write_all(&input));
    }
    let (sender, receiver) = mpsc::channel();
    if let Some(stdout) = child.stdout.take() {
        std::thread::spawn(move || {
            let (mut kept, mut stdout) = (Vec::new(), stdout);
            let _ = stdout.by_ref().take(MAX_OUTPUT_BYTES as u64).read_to_end(&mut kept);
            // A full pipe must not stop it.
            let more = std::io::copy(&mut stdout, &mut std::io::sink()).unwrap_or_default();
            let _ = sender.send((kept, more > 0));
        });
    }
    receiver
}

fn start(
    duty: &SupervisorSpec,
    program: OsString,
    args: impl Iterator<Item = OsString>,
) -> std::io::Result<(i32, Option<OutputReceiver>)> {
    let input = input(duty)?;
    if is_alone() {
        return Err(std::io::Error::other("its parent process is gone"));
    }
    // Refused only when it leads a group already, which a plainly spawned process does not.
    let _ = rustix::process::setsid();
    aye_platform::adopt_orphans()?;
    let output: OwnedFd = std::io::stderr().as_fd().try_clone_to_owned()?;
    // This is the last check before the start: the process that requested the command may have been stopped,
    // and another process may have resumed the run.
    if duty.start_before.is_some_and(|end| uptime_ms() >= end) {
        return Err(std::io::Error::other("too late: another process may have resumed the run"));
    }
    // Inside namespaces, the command sees this process.
    aye_platform::hide_memory();
    let streams = Streams { output: Arc::new(output), terminal: duty.terminal, converses: input.is_some() };
    // The mounts are made with one of these rights.
    let args = take_mounts(args.collect())?;
    drop_inspection(false);
    // A launcher costs a start of the program; if its thread fails, it says why.
    let in_thread = ThreadLaunch::of(&args).and_then(|launch| {
        let streams = streams.clone();
        launch.spawn(move |command| streams.spawn(command)).ok()
    });
    let mut child = match in_thread {
        Some(child) => child,
        None => streams.clone().spawn(Command::new(&program).args(&args))?,
    };
    drop(streams);
    let receiver = input.map(|input| converse(&mut child, input));
    // From here on only the command's own processes hold the output, so its end means that they are gone.
    rustix::stdio::dup2_stderr(File::options().write(true).open("/dev/null")?)?;
    let pid = i32::try_from(child.id()).map_err(std::io::Error::other)?;
    report(&SupervisorReport::Started { pid, pgid: pid });
    Ok((pid, receiver))
}

/// The standard streams of the command.
#[derive(Clone)]
struct Streams {
    output: Arc<OwnedFd>,
    terminal: bool,
    converses: bool,
}

impl Streams {
    /// Consumes them, so that this process does not keep the command's output open.
    fn spawn(self, command: &mut Command) -> std::io::Result<Child> {
        let output = || self.output.try_clone().map(Stdio::from);
        if self.terminal {
            // A group leader cannot create a session, which is what the command does first.
            command.stdin(output()?).stdout(output()?);
        } else if self.converses {
            command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        } else {
            command.process_group(0).stdin(Stdio::null()).stdout(output()?);
        }
        command.stderr(output()?).spawn()
    }
}

struct Supervisor {
    child: i32,
    grace: Duration,
    /// The events of the lifeline to poll for besides its end.
    lifeline: PollFlags,
    /// How long the command may take to end on its own once the lifeline has ended; `None` sends TERM at
    /// once.
    grace_period: Option<Duration>,
    main: Option<WaitStatus>,
    /// When KILL follows, once TERM was sent.
    stop_at: Option<Instant>,
    moments: Moments,
    /// Whether the moment of its end passed.
    overdue: bool,
}

/// The moment until which the command may run, as the lifeline moves it.
struct Moments {
    /// In the clock that stands still while the machine sleeps: then aye slept, too, and renews its lease or learns that it
    /// lost it a moment after it wakes.
    end: Option<Instant>,
    /// The start of a line that was not read to its end.
    rest: Vec<u8>,
}

impl Moments {
    fn new(lease_end: Option<u64>) -> Moments {
        Moments { end: lease_end.map(instant), rest: Vec::new() }
    }

    /// Reads what the lifeline has. Returns `false` at its end, and when it carries something else.
    fn read(&mut self) -> bool {
        let mut bytes = [0; 512];
        match rustix::io::read(std::io::stdin(), &mut bytes) {
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => true,
            Ok(0) | Err(_) => false,
            Ok(read) => self.take(&bytes[..read]),
        }
    }

    fn take(&mut self, bytes: &[u8]) -> bool {
        self.rest.extend_from_slice(bytes);
        while let Some(end) = self.rest.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let moment = std::str::from_utf8(&line).ok().and_then(|line| line.trim_end().parse::<u64>().ok());
            match moment {
                Some(0) => self.end = None,
                Some(moment) => self.end = Some(instant(moment)),
                None => return false,
            }
        }
        // No number is longer.
        self.rest.len() <= 20
    }
}

/// The instant of a moment since the boot.
fn instant(moment: u64) -> Instant {
    Instant::now() + Duration::from_millis(moment.saturating_sub(uptime_ms()))
}

type Ended = (Option<i32>, Option<i32>, Vec<String>);

impl Supervisor {
    fn watch(&mut self) -> Ended {
        self.wait_for_main();
        let left = self.end_the_rest();
        let (code, signal) = self.main.map_or((None, None), |s| (s.exit_status(), s.terminating_signal()));
        (code, signal, left)
    }

    /// Takes the exit statuses of all children that ended. Gives whether a child is left.
    fn reap(&mut self) -> bool {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    if pid.as_raw_nonzero().get() == self.child {
                        self.main = Some(status);
                    }
                }
                Ok(None) => return true,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }

    /// What the command has started and is still alive. A command with a terminal leads a session of its own.
    fn rest(&self) -> Vec<ProcessStat> {
        started_by(own_pid(), &[own_pid(), self.child])
    }

    /// Whether nothing of the command is left.
    fn is_alone(&mut self) -> bool {
        !self.reap() && (aye_platform::ADOPTS_ORPHANS || self.rest().is_empty())
    }

    fn wait_for_main(&mut self) {
        let end_of_child = aye_platform::end_of_child(self.child);
        let stdin = std::io::stdin();
        let mut lifeline = true;
        let mut killed = false;
        let mut term_at: Option<Instant> = None;
        loop {
            if !self.reap() || self.main.is_some() {
                return;
            }
            let now = Instant::now();
            if term_at.is_some_and(|at| at <= now) {
                term_at = None;
                self.signal_all(Signal::TERM);
                self.stop_at = Some(now + self.grace);
            }
            if self.stop_at.is_some_and(|at| at <= now) {
                self.signal_all(Signal::KILL);
                killed = true;
                self.stop_at = Some(now + Duration::from_millis(50));
            }
            if self.moments.end.is_some_and(|at| at <= now) && self.stop_at.is_none() {
                self.moments.end = None;
                self.overdue = true;
                lifeline = false;
                self.signal_all(Signal::TERM);
                self.stop_at = Some(now + self.grace.min(OVERDUE_GRACE));
            }
            // Orphans that end while the command runs are reaped now and then; nothing waits for that. Before Linux 5.3,
            // processes have no descriptors.
            let idle = Duration::from_millis(if end_of_child.is_some() { 30_000 } else { 5 });
            let wait = match self.stop_at.or(term_at) {
                Some(at) => at.saturating_duration_since(now),
                None => self.moments.end.map_or(idle, |at| at.saturating_duration_since(now).min(idle)),
            };
            let mut fds = Vec::with_capacity(2);
            if lifeline {
                fds.push(PollFd::new(&stdin, self.lifeline));
            }
            if let Some(end) = &end_of_child {
                fds.push(PollFd::new(end, PollFlags::IN));
            }
            let timeout = Timespec::try_from(wait).ok();
            let _ = rustix::event::poll(&mut fds, timeout.as_ref());
            let is_ready = lifeline && fds.first().is_some_and(|fd| !fd.revents().is_empty());
            if is_ready && (self.lifeline.is_empty() || !self.moments.read()) {
                lifeline = false;
                if let Some(grace_period) = self.grace_period {
                    term_at = Some(Instant::now() + grace_period);
                } else if !killed {
                    self.signal_all(Signal::TERM);
                    self.stop_at = Some(Instant::now() + self.grace);
                }
            }
        }
    }

    /// Signals the command's group and everything that left it.
    fn signal_all(&self, sig: Signal) {
        signal_group(self.child, sig);
        for process in self.rest() {
            if process.group != self.child {
                signal(process.pid, sig);
                // A stopped process handles TERM only once it continues.
                signal(process.pid, Signal::CONT);
            }
        }
        signal_group(self.child, Signal::CONT);
    }

    /// Ends what outlived the command. Gives what it was.
    fn end_the_rest(&mut self) -> Vec<String> {
        if self.is_alone() {
            return Vec::new();
        }
        if self.stop_at.is_none() && self.wait_until_alone(LINGER) {
            return Vec::new();
        }
        let left: Vec<_> = self
            .rest()
            .iter()
            .take(MAX_NAMES)
            .map(|p| format!("{} (pid {})", command_line(p.pid), p.pid))
            .collect();
        let grace = self.stop_at.map_or(self.grace, |at| at.saturating_duration_since(Instant::now()));
        self.signal_all(Signal::TERM);
        if !self.wait_until_alone(grace) {
            // A process may start another one while it is being killed; so it is done until none is left.
            let end = Instant::now() + Duration::from_secs(3);
            while Instant::now() < end {
                self.signal_all(Signal::KILL);
                if self.wait_until_alone(Duration::from_millis(20)) {
                    break;
                }
            }
        }
        left
    }

    fn wait_until_alone(&mut self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        // The first process of a namespace ends a moment after bubblewrap, and is nearly always all that is
        // left.
        let mut pause = Duration::from_micros(50);
        loop {
            if self.is_alone() {
                return true;
            }
            let now = Instant::now();
            if now >= end {
                return false;
            }
            std::thread::sleep((end - now).min(pause));
            pause = (2 * pause).min(Duration::from_millis(3));
        }
    }
}

fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}
