//! [`run`]: start, read, stop, and see that nothing is left.

use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::capture::{Capture, OutputDecoder, Spill};
use super::live::LiveOutput;
use super::plain::Plain;
use super::spec::SupervisorSpec;
use super::{ExecConfig, ExecError, ExecRequest, ExecResult};
use aye_core::contract::tool::LeaseEnd;
use aye_platform::{ProcessStat, descendants, in_session, process, signal, signal_group, started_by};
use aye_sandbox::Launch;

/// How long output may continue after the awaited process has ended.
const DRAIN: Duration = Duration::from_millis(500);
/// Bytes kept of a separate stdout, if no supervisor limits it.
const MAX_REPORT_BYTES: usize = 256 << 10;
/// How often to check whether the supervisor was stopped.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The time a supervisor may need beyond the grace between TERM and KILL, before it is killed itself.
const SUPERVISOR_SLACK: Duration = Duration::from_secs(4);

/// A process that must not outlive the call.
struct Running {
    child: Child,
    pid: i32,
    supervised: bool,
    /// The supervisor is below the process, inside namespaces.
    inside: bool,
    done: bool,
    /// Kept open while the command may run; dropping the lifeline makes the supervisor stop the command.
    lifeline: Option<tokio::process::ChildStdin>,
}

impl Running {
    fn kill(&self) {
        if self.supervised {
            // The supervisor leads the session; what is in it is the command's.
            let below = if self.inside { descendants(self.pid) } else { in_session(self.pid) };
            for process in below {
                signal(process.pid, Signal::KILL);
            }
            signal(self.pid, Signal::KILL);
        } else {
            signal_group(self.pid, Signal::KILL);
        }
    }

    /// A command may stop its supervisor, taking it for aye: then the supervisor is woken.
    fn wake(&self) {
        if process(self.pid).is_some_and(|process| process.is_stopped()) {
            signal(self.pid, Signal::CONT);
        }
    }

    /// Asks it to end.
    fn stop(&mut self) {
        if self.supervised {
            self.lifeline = None;
        } else {
            signal_group(self.pid, Signal::TERM);
            signal_group(self.pid, Signal::CONT);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Supervised: the lifeline closes with this value, and the supervisor does the rest.
        if !self.done && !self.supervised {
            signal_group(self.pid, Signal::KILL);
        }
    }
}

fn start(
    config: &ExecConfig,
    request: &ExecRequest,
    input: Option<&[u8]>,
    terminal: Option<(pipe::Receiver, OwnedFd)>,
) -> Result<(Running, pipe::Receiver), ExecError> {
    let in_terminal = terminal.is_some();
    let (output, writer) = if let Some(terminal) = terminal {
        terminal
    } else {
        let (reader, writer) = std::io::pipe()?;
        (pipe::Receiver::from_owned_fd(reader.into())?, writer.into())
    };
    let supervisor = config.supervisor.as_ref();
    let inside = request.launcher.filter(|_| supervisor.is_some());
    let mut command;
    if let Some(supervisor) = supervisor {
        let spec = SupervisorSpec::of(config.grace, input.map(<[u8]>::len), &request.on_behalf);
        let spec = SupervisorSpec { terminal: in_terminal, ..spec }.to_string();
        let words = [super::SUPERVISE_ARG.into(), spec.into()];
        if let Some(at) = inside {
            command = Command::new(&request.program);
            // The supervisor cannot leave the group of the process above it: keys that interrupt aye are not for that one.
            command.args(Launch::supervised(&request.args, at, words)).process_group(0);
        } else {
            command = Command::new(supervisor);
            command.args(words).arg(&request.program).args(&request.args);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
    } else {
        command = Command::new(&request.program);
        command.args(&request.args);
        if input.is_some() {
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
        } else {
            command.stdin(Stdio::null()).stdout(Stdio::from(writer.try_clone()?));
        }
        command.process_group(0).kill_on_drop(true);
    }
    command.current_dir(&request.cwd).env_clear().envs(&request.env).stderr(Stdio::from(writer));
    let mut child = command.spawn().map_err(|error| ExecError::Start {
        program: request.program.to_string_lossy().into_owned(),
        reason: match error.kind() {
            std::io::ErrorKind::NotFound if !request.cwd.is_dir() => {
                format!("the working directory {} does not exist", request.cwd.display())
            }
            _ => error.to_string(),
        },
    })?;
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).unwrap_or(0);
    let lifeline = child.stdin.take();
    let (supervised, inside) = (supervisor.is_some(), inside.is_some());
    let running = Running { child, pid, supervised, inside, done: false, lifeline };
    Ok((running, output))
}

/// Waits until the remaining commands of a run whose owner lost it are gone, and kills those that stay. Returns within
/// seconds in any case.
///
/// The supervisors of a dead owner end its commands, and so do those of one that was stopped or frozen, once its lease
/// is over. A supervisor that does not gets help: TERM to its commands, and KILL after the grace. No other command of the
/// run may be started in the meantime: a supervisor that starts late refuses, see
/// [`ToolCallContext::start_before`](aye_core::contract::tool::ToolCallContext::start_before).
///
/// `owner` is the owner's pid in this pid namespace. Without one, nothing is killed, and supervisors that cannot be seen
/// from here get the time they need.
pub async fn end_of_run(owner: Option<u32>, run: String) {
    let grace = ExecConfig::default().grace;
    let now = Instant::now();
    let alone = now + grace + Duration::from_secs(1);
    let is_dead =
        |pid: u32| i32::try_from(pid).ok().and_then(process).is_none_or(|process| process.is_over());
    let term_at = if owner.is_none_or(is_dead) { alone } else { now };
    let (kill_at, end) = (term_at + grace, term_at + grace + SUPERVISOR_SLACK);
    let mut signalled = Vec::new();
    loop {
        let supervisors = supervisors_of(&run);
        let now = Instant::now();
        if supervisors.is_empty() && (owner.is_some() || now >= alone) {
            return;
        }
        if now >= end {
            tracing::warn!(%run, ?supervisors, "commands of a run that was taken over keep running");
            return;
        }
        for supervisor in supervisors.iter().filter(|_| owner.is_some()) {
            // A stopped one takes no notice of the end of its command.
            supervisor.signal(Signal::CONT);
            for process in started_by(supervisor.pid, &[supervisor.pid]) {
                if now >= kill_at {
                    process.signal(Signal::KILL);
                } else if now >= term_at && !signalled.contains(&process.id()) {
                    signalled.push(process.id());
                    process.signal(Signal::TERM);
                    process.signal(Signal::CONT);
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The supervisors that live and work for this run.
fn supervisors_of(run: &str) -> Vec<ProcessStat> {
    let works_for_it = |words: &[Vec<u8>]| {
        let mut words = words.iter().skip(1);
        words.next().is_some_and(|word| word == super::SUPERVISE_ARG.as_bytes())
            && words
                .next()
                .and_then(|word| std::str::from_utf8(word).ok()?.parse::<SupervisorSpec>().ok())
                .is_some_and(|duty| duty.run == run)
    };
    let all = aye_platform::processes_with_words().into_iter();
    all.filter(|(_, words)| works_for_it(words)).map(|(process, _)| process).collect()
}

/// Runs a program to its end. `on_output` receives its output while it runs, about 25 times a second at most;
/// output that arrives faster is shown in part. After the timeout, or when `cancel` is cancelled, TERM is
/// sent to all of the program's processes, and KILL after the grace. Dropping the future has the same effect,
/// in the background.
///
/// # Errors
/// [`ExecError`] when the program was not started; everything else is a result.
pub async fn run(
    config: &ExecConfig,
    request: ExecRequest,
    on_output: impl FnMut(&str) + Send,
    cancel: &CancellationToken,
) -> Result<ExecResult, ExecError> {
    run_timeless(config, request, shown(on_output), cancel, &CancellationToken::new()).await
}

/// Output of a program while it runs, for its two readers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OutputPart<'a> {
    /// All of it, as it arrives.
    Whole(&'a str),
    /// For a screen: what comes faster than one can use is left out.
    Shown(&'a str),
}

/// Passes on what a screen shows.
fn shown(mut on_output: impl FnMut(&str) + Send) -> impl FnMut(OutputPart<'_>) + Send {
    move |printed| match printed {
        OutputPart::Shown(text) => on_output(text),
        OutputPart::Whole(_) => {}
    }
}

/// As [`run`], with all of the output, and without the timeout from when `timeless` is cancelled.
///
/// # Errors
/// As [`run`].
pub(crate) async fn run_timeless(
    config: &ExecConfig,
    request: ExecRequest,
    on_output: impl FnMut(OutputPart<'_>) + Send,
    cancel: &CancellationToken,
    timeless: &CancellationToken,
) -> Result<ExecResult, ExecError> {
    run_supervised(config, request, Connection::Output, on_output, cancel, timeless)
        .await
        .map(|(result, _)| result)
}

/// As [`run`], in a terminal and without a timeout. The program makes a session of its own.
///
/// # Errors
/// As [`run`].
pub(crate) async fn run_in_terminal(
    config: &ExecConfig,
    request: ExecRequest,
    terminal: (pipe::Receiver, OwnedFd),
    on_output: impl FnMut(OutputPart<'_>) + Send,
    cancel: &CancellationToken,
) -> Result<ExecResult, ExecError> {
    let timeless = CancellationToken::new();
    timeless.cancel();
    let connection = Connection::Terminal(terminal.0, terminal.1);
    let ended = run_supervised(config, request, connection, on_output, cancel, &timeless).await;
    ended.map(|(result, _)| result)
}

/// As [`run`], for a program that is given something on its stdin and answers on its stdout: [`ExecResult::output`] is
/// what it wrote to stderr.
///
/// # Errors
/// As [`run`].
pub async fn converse(
    config: &ExecConfig,
    request: ExecRequest,
    input: &[u8],
    cancel: &CancellationToken,
) -> Result<(ExecResult, ProgramOutput), ExecError> {
    run_supervised(config, request, Connection::Input(input), |_| {}, cancel, &CancellationToken::new()).await
}

/// The stdout of a program that was given something on its stdin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramOutput {
    pub text: String,
    /// Whether only the start was kept.
    pub is_cut: bool,
}

/// Writes the next piece, while there is a reader.
async fn write_some(
    lifeline: &mut Option<tokio::process::ChildStdin>,
    rest: &[u8],
) -> std::io::Result<usize> {
    match lifeline {
        Some(lifeline) => lifeline.write(rest).await,
        None => std::future::pending().await,
    }
}

/// Waits until the lease of a command was renewed.
async fn moved(lease_end: &mut Option<LeaseEnd>) -> u64 {
    match lease_end {
        Some(end) => end.moved().await,
        None => std::future::pending().await,
    }
}

/// Reads the next piece, while there is a source to read from.
async fn read_some(pipe: &mut Option<tokio::process::ChildStdout>, buf: &mut [u8]) -> std::io::Result<usize> {
    match pipe {
        Some(pipe) => pipe.read(buf).await,
        None => std::future::pending().await,
    }
}

/// How a program is connected to aye.
enum Connection<'a> {
    /// All that it writes goes to one pipe; it has no input.
    Output,
    /// It reads this; what it writes to stdout is its answer.
    Input(&'a [u8]),
    /// It has a terminal; its output is read here and written there.
    Terminal(pipe::Receiver, OwnedFd),
}

async fn run_supervised(
    config: &ExecConfig,
    mut request: ExecRequest,
    connection: Connection<'_>,
    mut on_output: impl FnMut(OutputPart<'_>) + Send,
    cancel: &CancellationToken,
    timeless: &CancellationToken,
) -> Result<(ExecResult, ProgramOutput), ExecError> {
    let (input, terminal) = match connection {
        Connection::Output => (None, None),
        Connection::Input(input) => (Some(input), None),
        Connection::Terminal(reader, writer) => (None, Some((reader, writer))),
    };
    let began = Instant::now();
    // What is written to a terminal reaches its reader a moment later.
    let is_pipe = terminal.is_none();
    // A command in the background is not part of the run, and ends with this process only.
    request.on_behalf.lease_end.take_if(|_| timeless.is_cancelled());
    let (mut running, output) = start(config, &request, input, terminal)?;
    let group = request.limits.as_ref().and_then(|limits| limits.groups.make(limits));
    let group = group.map(Arc::new);
    let pid = running.pid;
    let taken_in = group.clone().map(|group| tokio::task::spawn_blocking(move || group.take_in(pid)));
    let limits = request.limits.clone();
    let over_limit = async {
        let is_counted = match taken_in {
            Some(taken_in) => taken_in.await.unwrap_or(false),
            None => false,
        };
        match limits {
            Some(limits) => limits.exceeded(pid, is_counted).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(over_limit);
    // A supervisor says when the command has started.
    request.frozen.take_if(|_| !running.supervised);
    let mut lease_end = request.on_behalf.lease_end.clone().filter(|_| running.supervised);
    // The moment to write to the lifeline, and what is left of the line with the one before.
    let (mut moment, mut line) = (None, Vec::new());
    let mut unwritten = input.unwrap_or_default();
    if input.is_some() && unwritten.is_empty() && !running.supervised {
        running.lifeline = None;
    }
    // Reports, or the stdout of a program that has one of its own and no supervisor.
    let mut reports = Vec::new();
    let mut piece = vec![0_u8; 8 << 10];
    let mut status_pipe = running.child.stdout.take();
    let spill = request
        .output_dir
        .as_ref()
        .map(|dir| Spill { dir: dir.clone(), name: format!("output-{}.txt", uuid::Uuid::now_v7()) });
    let mut capture = Capture::new(request.max_output, spill);
    let mut decoder = OutputDecoder::default();
    let mut plain = Plain::default();
    let mut live = LiveOutput::new();
    let mut output = Some(output);
    let mut buf = vec![0_u8; 32 << 10];
    let mut text = String::new();
    let mut result = ExecResult::default();
    let mut exit = None;
    let timeout = began + request.timeout;
    // Set once the supervisor was asked to stop: processes that still exist at that time are killed from
    // here.
    let mut kill_at: Option<Instant> = None;
    // Set once the process has ended: when to stop reading its output.
    let mut end_at: Option<Instant> = None;
    let mut check_at = began + CHECK_INTERVAL;
    let mut is_timeless = timeless.is_cancelled();
    while exit.is_none() || output.is_some() || (input.is_some() && status_pipe.is_some()) {
        let read = async {
            match &mut output {
                Some(output) => output.read(&mut buf).await,
                None => std::future::pending().await,
            }
        };
        let far = began + Duration::from_hours(24);
        if line.is_empty()
            && let Some(moment) = moment.take()
        {
            line = format!("{moment}\n").into_bytes();
        }
        let next = if unwritten.is_empty() { line.as_slice() } else { unwritten };
        tokio::select! {
            () = cancel.cancelled(), if kill_at.is_none() => {
                result.cancelled = true;
                running.stop();
                kill_at = Some(Instant::now() + config.grace + slack(&running));
            }
            () = timeless.cancelled(), if !is_timeless => {
                is_timeless = true;
                moment = lease_end.take().map(|_| 0);
            }
            later = moved(&mut lease_end), if lease_end.is_some() => moment = Some(later),
            () = sleep_until(timeout), if kill_at.is_none() && !is_timeless => {
                result.timed_out = true;
                running.stop();
                kill_at = Some(Instant::now() + config.grace + slack(&running));
            }
            why = &mut over_limit, if kill_at.is_none() => {
                result.over_limit = Some(why);
                running.stop();
                kill_at = Some(Instant::now() + config.grace + slack(&running));
            }
            () = sleep_until(kill_at.unwrap_or(far)), if kill_at.is_some() => {
                running.kill();
                kill_at = Some(Instant::now() + Duration::from_millis(100));
            }
            // A process that still has the output open after that is no longer one of ours.
            () = sleep_until(end_at.unwrap_or(far)), if end_at.is_some() => {
                output = None;
                if input.is_some() {
                    status_pipe = None;
                }
            }
            written = write_some(&mut running.lifeline, next), if !next.is_empty() => {
                if unwritten.is_empty() {
                    line.drain(..written.unwrap_or(line.len()));
                } else {
                    // The program need not read its input.
                    unwritten = written.map_or(&[], |n| &unwritten[n..]);
                    if unwritten.is_empty() && !running.supervised {
                        running.lifeline = None;
                    }
                }
            }
            count = read_some(&mut status_pipe, &mut piece), if input.is_some() || running.supervised => match count {
                Ok(0) | Err(_) => status_pipe = None,
                // A supervisor limits its reports.
                Ok(n) if running.supervised || reports.len() <= MAX_REPORT_BYTES => {
                    request.frozen = None;
                    reports.extend_from_slice(&piece[..n]);
                    if running.inside && is_pipe && has_ended(&reports) {
                        // Everything of the command is gone, and what it printed is in the pipe. That its namespaces are
                        // still being removed concerns nobody.
                        break;
                    }
                }
                Ok(_) => {}
            },
            () = sleep_until(check_at), if running.supervised && exit.is_none() => {
                running.wake();
                check_at = Instant::now() + CHECK_INTERVAL;
            }
            status = running.child.wait(), if exit.is_none() => {
                exit = Some(status?);
                request.frozen = None;
                if running.supervised {
                    result.supervisor_lost = status_is_signal(exit);
                    if result.supervisor_lost {
                        running.kill();
                    }
                } else {
                    signal_group(running.pid, Signal::KILL);
                }
                end_at = Some(Instant::now() + DRAIN);
            }
            () = sleep_until(live.due().unwrap_or(far)), if live.due().is_some() => on_output(OutputPart::Shown(&live.take())),
            read = read => match read {
                Ok(0) | Err(_) => output = None,
                Ok(n) => {
                    text.clear();
                    decoder.push(&buf[..n], &mut text);
                    keep(&mut capture, &mut plain, &text);
                    on_output(OutputPart::Whole(&text));
                    live.push(&text);
                }
            },
        }
    }
    running.done = true;
    while let Some(output) = &output
        && let Ok(n @ 1..) = rustix::io::read(output, &mut buf)
    {
        text.clear();
        decoder.push(&buf[..n], &mut text);
        keep(&mut capture, &mut plain, &text);
        on_output(OutputPart::Whole(&text));
        live.push(&text);
    }
    text.clear();
    decoder.finish(&mut text);
    if !text.is_empty() {
        keep(&mut capture, &mut plain, &text);
        on_output(OutputPart::Whole(&text));
        live.push(&text);
    }
    if live.due().is_some() {
        on_output(OutputPart::Shown(&live.take()));
    }
    result.duration = began.elapsed();
    if let Some(pipe) = &mut status_pipe
        && exit.is_some()
    {
        // The supervisor has the other end open. It is gone, unless the process that made its namespaces was killed: then
        // this ends it.
        running.stop();
        let _ = pipe.read_to_end(&mut reports).await;
    }
    let mut program_output = ProgramOutput::default();
    if running.supervised {
        let started = read_reports(&request, &reports, &mut result, &mut program_output)?;
        let is_stopped = result.cancelled || result.timed_out;
        if running.inside
            && started.is_none()
            && !is_stopped
            && exit.and_then(|status| status.code()).is_some()
        {
            // The program that makes the namespaces says why it could not.
            let program = request.program.to_string_lossy().into_owned();
            return Err(ExecError::Start { program, reason: capture.finish().text.trim().to_owned() });
        }
        // A command in a terminal has its own session, which was not ended when the supervisor was lost. Namespaces end
        // with their first process, and have their own process ids.
        for process in
            started.filter(|_| result.supervisor_lost && !running.inside).map(in_session).unwrap_or_default()
        {
            signal(process.pid, Signal::KILL);
        }
    } else if let Some(status) = exit {
        use std::os::unix::process::ExitStatusExt as _;
        result.exit_code = status.code();
        result.signal = status.signal();
        program_output.is_cut = reports.len() > MAX_REPORT_BYTES;
        reports.truncate(MAX_REPORT_BYTES);
        program_output.text = String::from_utf8_lossy(&reports).into_owned();
    }
    let captured = capture.finish();
    result.output = captured.text;
    result.total_bytes = captured.total;
    result.truncated = captured.omitted > 0;
    result.output_file = captured.file;
    if let Some(limits) = &request.limits {
        limits.explain(group.as_deref(), &mut result);
    }
    Ok((result, program_output))
}

/// Adds plain text for the model; the user's screen gets the colours.
fn keep(capture: &mut Capture, plain: &mut Plain, text: &str) {
    let mut kept = String::with_capacity(text.len());
    plain.push(text, &mut kept);
    capture.push(&kept);
}

fn slack(running: &Running) -> Duration {
    if running.supervised { SUPERVISOR_SLACK } else { Duration::ZERO }
}

fn status_is_signal(status: Option<std::process::ExitStatus>) -> bool {
    use std::os::unix::process::ExitStatusExt as _;
    status.and_then(|s| s.signal()).is_some()
}

/// Whether a supervisor reported the end of its command.
fn has_ended(reports: &[u8]) -> bool {
    let mut lines = reports.split(|b| *b == b'\n');
    // What follows the last line's end is not a report yet.
    lines.next_back();
    lines.any(|line| matches!(serde_json::from_slice(line), Ok(super::SupervisorReport::Ended { .. })))
}

/// Gives the process that was started.
fn read_reports(
    request: &ExecRequest,
    reports: &[u8],
    result: &mut ExecResult,
    to: &mut ProgramOutput,
) -> Result<Option<i32>, ExecError> {
    use super::SupervisorReport;
    let (mut ended, mut started) = (false, None);
    for line in reports.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
        match serde_json::from_slice(line) {
            Ok(SupervisorReport::Started { pid, .. }) => started = Some(pid),
            Ok(SupervisorReport::Said { said, cut }) => (to.text, to.is_cut) = (said, cut),
            // Whoever waits for it stopped it before it began.
            Ok(SupervisorReport::NotStarted { .. }) if result.cancelled || result.timed_out => {
                return Ok(None);
            }
            Ok(SupervisorReport::NotStarted { error }) => {
                let program = request.program.to_string_lossy().into_owned();
                return Err(ExecError::Start { program, reason: error });
            }
            Ok(SupervisorReport::Ended { code, signal, left, overdue }) => {
                ended = true;
                if overdue {
                    result.notes.push(
                        "aye was stopped for longer than its lease, so the command was stopped, too"
                            .to_owned(),
                    );
                }
                result.exit_code = code;
                result.signal = signal;
                result.left_behind = left;
            }
            Err(error) => tracing::warn!(%error, "a supervisor's report cannot be read"),
        }
    }
    result.supervisor_lost |= !ended;
    Ok(started)
}

#[cfg(test)]
mod tests {
    use super::*;
    use aye_core::contract::tool::SpawnContext;

    #[test]
    fn a_command_that_was_stopped_before_it_began_is_no_failure_to_start() {
        let request = ExecRequest {
            program: "sh".into(),
            args: Vec::new(),
            cwd: "/".into(),
            env: super::super::EnvVars::default(),
            timeout: Duration::ZERO,
            max_output: 0,
            output_dir: None,
            on_behalf: SpawnContext::default(),
            launcher: None,
            limits: None,
            frozen: None,
        };
        let report = br#"{"error":"its parent process is gone"}"#;
        let read = |result: &mut ExecResult| {
            read_reports(&request, report, result, &mut ProgramOutput::default()).map(|pid| pid.is_some())
        };
        let mut cancelled = ExecResult { cancelled: true, ..ExecResult::default() };
        assert!(matches!(read(&mut cancelled), Ok(false)));
        assert!(!cancelled.supervisor_lost);
        assert!(matches!(read(&mut ExecResult::default()), Err(ExecError::Start { .. })));
    }
}
