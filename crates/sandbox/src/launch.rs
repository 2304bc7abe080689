//! From a policy to the program that is started, and the launcher that becomes it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::process::{Command, ExitCode};

use serde::{Deserialize, Serialize};

use crate::folder::InodeId;
use crate::layers::Layers;
#[cfg(target_os = "linux")]
use crate::linked_cache::LinkedCache;
use crate::mounts;
use crate::namespaces;
#[cfg(target_os = "linux")]
use crate::net::Relay;
use crate::policy::Policy;
use crate::seatbelt;
use aye_core::contract::judgement::Profile;

/// The hidden first argument that makes aye the launcher of one command.
pub const LAUNCH_ARG: &str = "__launch";

/// The word that replaces the policy if the command only needs its own terminal.
pub(crate) const TERMINAL_WORD: &str = "terminal";

/// The exit status when the launcher cannot enforce the policy, or start the program.
const NOT_STARTED: u8 = 126;

/// The policy that the launcher enforces on itself, as JSON in the argument after [`LAUNCH_ARG`].
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LaunchPolicy {
    pub(crate) policy: Policy,
    /// Namespaces already hide what the policy does not name.
    pub(crate) inside: bool,
    /// What rules hide, where nothing but Landlock does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) hidden: Vec<InodeId>,
}

#[cfg(target_os = "linux")]
impl LaunchPolicy {
    /// Restricts this thread and those that it starts, and prepares what it finds.
    fn enforce(&self) -> io::Result<()> {
        crate::kernel::restrict(self)?;
        if self.inside {
            self.policy.linked_caches().iter().for_each(LinkedCache::link);
        }
        Ok(())
    }

    /// The relay to run beside the program.
    fn relay(&self) -> Option<&Relay> {
        self.policy.way_out().filter(|_| self.inside)
    }
}

/// The program to start in place of another one, so that the kernel enforces a policy on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    pub program: OsString,
    pub args: Vec<OsString>,
    /// Variables to set in its environment.
    pub env: Vec<(OsString, OsString)>,
    /// The position in `args` of the launcher, if it runs inside namespaces.
    pub launcher: Option<usize>,
}

impl Launch {
    /// The program that starts `program` with `args` in `cwd` under `policy`. `own` is the file of a program whose
    /// `main` hands [`LAUNCH_ARG`] to [`launch_main`].
    ///
    /// In [`Profile::Outside`] it is the program itself.
    pub fn new(
        policy: &Policy,
        layers: &Layers,
        own: &Path,
        cwd: &Path,
        program: &OsStr,
        args: &[OsString],
    ) -> Launch {
        if policy.profile == Profile::Outside && policy.terminal {
            return Launch::in_terminal(own, program, args);
        }
        if policy.profile == Profile::Outside {
            return Launch {
                program: program.to_owned(),
                args: args.to_vec(),
                env: Vec::new(),
                launcher: None,
            };
        }
        let tmp = policy.tmp.iter().map(|tmp| ("TMPDIR".into(), tmp.clone().into_os_string())).collect();
        if layers.seatbelt {
            let words = ["-p".into(), seatbelt::profile(policy).into(), program.to_owned()];
            let args: Vec<OsString> = words.into_iter().chain(args.iter().cloned()).collect();
            let program = OsString::from(seatbelt::PROGRAM);
            if policy.terminal {
                return Launch { env: tmp, ..Launch::in_terminal(own, &program, &args) };
            }
            return Launch { program, args, env: tmp, launcher: None };
        }
        let (mut all, mut launcher) = (Vec::new(), None);
        let (first, policy_to_enforce) = if let Some(bwrap) = &layers.bwrap {
            let (words, mounts) =
                namespaces::arguments(policy, own, cwd, (layers.can_mount, layers.can_limit));
            all.extend(words);
            launcher = Some(all.len());
            all.extend([namespaces::LAUNCHER.into(), LAUNCH_ARG.into()]);
            all.extend(mounts::words(&mounts, layers.can_mount));
            // The mounts already determine what is hidden or visible.
            let policy = Policy {
                readable: Vec::new(),
                toolchains: Vec::new(),
                masked: Vec::new(),
                read_only: Vec::new(),
                ids: BTreeMap::new(),
                partial: Vec::new(),
                tmp: None,
                ..policy.clone()
            };
            (bwrap.clone().into_os_string(), LaunchPolicy { policy, inside: true, hidden: Vec::new() })
        } else {
            all.push(LAUNCH_ARG.into());
            let hidden = policy.masked.iter().filter_map(|path| policy.ids.get(path)).copied().collect();
            // There are no mounts, and one argument has a limited length.
            let policy = Policy { read_only: Vec::new(), ids: BTreeMap::new(), ..policy.clone() };
            (own.as_os_str().to_owned(), LaunchPolicy { policy, inside: false, hidden })
        };
        all.push(serde_json::to_string(&policy_to_enforce).unwrap_or_default().into());
        all.push(program.to_owned());
        all.extend(args.iter().cloned());
        let env = if layers.bwrap.is_none() { tmp } else { Vec::new() };
        Launch { program: first, args: all, env, launcher }
    }

    /// Returns the arguments with a supervisor inside the namespaces, if there are any: `words` make aye the supervisor of
    /// what its further arguments start. It is the first process there, so that the command can neither signal it nor
    /// outlive it.
    pub fn supervised(args: &[OsString], launcher: usize, words: [OsString; 2]) -> Vec<OsString> {
        let (outside, launch) = args.split_at(launcher);
        let first = [OsString::from("--as-pid-1")].into_iter().chain(outside.iter().cloned());
        let inside = [OsString::from(namespaces::LAUNCHER)].into_iter().chain(words);
        first.chain(inside).chain(launch.iter().cloned()).collect()
    }

    /// The program that starts `program` with all rights, and gives it the terminal on its standard input as its own.
    pub fn in_terminal(own: &Path, program: &OsStr, args: &[OsString]) -> Launch {
        let words = [LAUNCH_ARG.into(), TERMINAL_WORD.into(), program.to_owned()];
        let args = words.into_iter().chain(args.iter().cloned()).collect();
        Launch { program: own.as_os_str().to_owned(), args, env: Vec::new(), launcher: None }
    }
}

/// Runs the launcher: `args` follow [`LAUNCH_ARG`]. Restricts this process and becomes the program. Returns only if
/// that fails, or with the program's exit status if a relay for its network runs beside it.
#[cfg(target_os = "linux")]
#[expect(clippy::disallowed_methods, reason = "a separate process, whose stderr is the command's")]
pub fn launch_main(args: impl Iterator<Item = OsString>) -> ExitCode {
    use std::io::Write as _;
    let args: Vec<OsString> = args.collect();
    let mut args = match mounts::take(&args) {
        Ok(rest) => rest.iter().cloned(),
        Err(error) => return not_enforced(&error),
    };
    let first = args.next();
    let only_terminal = first.as_deref().is_some_and(|word| word == TERMINAL_WORD);
    let policy_to_enforce = first.and_then(|word| serde_json::from_str::<LaunchPolicy>(word.to_str()?).ok());
    let mut stderr = std::io::stderr();
    let (Some(program), true) = (args.next(), only_terminal || policy_to_enforce.is_some()) else {
        let _ = writeln!(stderr, "aye: only aye starts a launcher");
        return ExitCode::from(2);
    };
    let relay = policy_to_enforce.as_ref().and_then(LaunchPolicy::relay);
    let has_terminal = policy_to_enforce
        .as_ref()
        .map_or(only_terminal, |policy_to_enforce| policy_to_enforce.policy.terminal);
    // Beside a relay the terminal is the command's alone: what is typed to interrupt it would end the relay.
    if has_terminal
        && relay.is_none()
        && let Err(error) = take_terminal()
    {
        return without_terminal(&error);
    }
    if let Some(policy_to_enforce) = &policy_to_enforce
        && let Err(error) = policy_to_enforce.enforce()
    {
        return not_enforced(&error);
    }
    let Some(relay) = relay.cloned() else { return become_program(&program, args) };
    let mut command = command(has_terminal, program.clone(), args);
    // The thread inherits the restrictions.
    let started = in_thread(move |started| {
        let spawn = |variables| command.envs::<Vec<_>, _, _>(variables).spawn();
        crate::net::relay::run(&relay, spawn, started);
    });
    match started.and_then(|mut child| child.wait()) {
        Ok(status) => exit_code(status),
        Err(error) => not_started(&program, &error),
    }
}

/// Becomes the program. Returns only if that fails.
fn become_program(program: &OsStr, args: impl Iterator<Item = OsString>) -> ExitCode {
    use std::os::unix::process::CommandExt as _;
    not_started(program, &Command::new(program).args(args).exec())
}

#[expect(clippy::disallowed_methods, reason = "a separate process, whose stderr is the command's")]
fn not_started(program: &OsStr, error: &io::Error) -> ExitCode {
    use std::io::Write as _;
    let program = program.to_string_lossy();
    let _ = writeln!(std::io::stderr(), "aye: cannot start {program}: {error}");
    ExitCode::from(if error.kind() == io::ErrorKind::NotFound { 127 } else { NOT_STARTED })
}

#[expect(clippy::disallowed_methods, reason = "a separate process, whose stderr is the command's")]
fn without_terminal(error: &io::Error) -> ExitCode {
    use std::io::Write as _;
    let _ = writeln!(
        std::io::stderr(),
        "aye: the command cannot have a terminal, and nothing was started: {error}"
    );
    ExitCode::from(NOT_STARTED)
}

#[cfg(target_os = "linux")]
#[expect(clippy::disallowed_methods, reason = "a separate process, whose stderr is the command's")]
fn not_enforced(error: &io::Error) -> ExitCode {
    use std::io::Write as _;
    let _ =
        writeln!(std::io::stderr(), "aye: the sandbox cannot be enforced, and nothing was started: {error}");
    ExitCode::from(NOT_STARTED)
}

/// Makes the mounts that the arguments of a launcher name, with [`LAUNCH_ARG`] as the first one, and takes them out of the
/// arguments. The process must have been started inside the namespaces, and have only one thread. It has no right to mount
/// anything after this.
///
/// # Errors
/// When a mount cannot be made, or something was renamed in the meantime. Nothing may be started then.
#[cfg(target_os = "linux")]
pub fn take_mounts(args: Vec<OsString>) -> io::Result<Vec<OsString>> {
    match args.split_first() {
        Some((first, rest)) if first == LAUNCH_ARG => {
            let rest = mounts::take(rest).map_err(|error| {
                io::Error::other(format!("the sandbox cannot be enforced, and nothing was started: {error}"))
            })?;
            Ok([first].into_iter().chain(rest).cloned().collect())
        }
        _ => Ok(args),
    }
}

#[cfg(target_os = "linux")]
fn exit_code(status: std::process::ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt as _;
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

/// Returns the command that starts a program inside the namespaces. A session for a terminal is made by a process of its
/// own.
#[cfg(target_os = "linux")]
fn command(has_terminal: bool, program: OsString, args: impl Iterator<Item = OsString>) -> Command {
    let mut command;
    if has_terminal {
        command = Command::new(namespaces::LAUNCHER);
        command.args([LAUNCH_ARG, TERMINAL_WORD]).arg(program);
    } else {
        command = Command::new(program);
    }
    command.args(args);
    command
}

/// Runs `work` in a thread, and returns what it reports as started. The thread may continue after that.
#[cfg(target_os = "linux")]
fn in_thread<T: Send + 'static>(work: impl FnOnce(&dyn Fn(io::Result<T>)) + Send + 'static) -> io::Result<T> {
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    std::thread::Builder::new().spawn(move || {
        work(&|started| {
            let _ = sender.send(started);
        });
    })?;
    receiver.recv().unwrap_or_else(|_| Err(io::Error::other("its thread ended")))
}

/// A launch in a thread of the process that would otherwise start the launcher.
pub struct ThreadLaunch {
    #[cfg(target_os = "linux")]
    policy_to_enforce: LaunchPolicy,
    #[cfg(target_os = "linux")]
    command: Command,
}

#[cfg(target_os = "linux")]
impl ThreadLaunch {
    /// Parses `args` of a launcher, with [`LAUNCH_ARG`] as the first one. Returns `None` if they are not those of a
    /// launcher, or if only a separate process can launch: for a terminal outside of namespaces. A process inside of
    /// them must have been started there.
    pub fn of(args: &[OsString]) -> Option<ThreadLaunch> {
        let [first, policy_to_enforce, program, args @ ..] = args else { return None };
        let policy_to_enforce = (first == LAUNCH_ARG)
            .then(|| serde_json::from_str::<LaunchPolicy>(policy_to_enforce.to_str()?).ok())??;
        let has_terminal = policy_to_enforce.policy.terminal;
        let command = command(has_terminal, program.clone(), args.iter().cloned());
        (policy_to_enforce.inside || !has_terminal).then_some(ThreadLaunch { policy_to_enforce, command })
    }

    /// Calls `spawn` with the program's command in a thread that is restricted first. A process started by the
    /// thread inherits its restrictions; other threads do not have them. The thread then ends, or relays the program's
    /// network for as long as this process lives.
    ///
    /// # Errors
    /// The restrictions cannot be enforced, or `spawn` fails. Nothing was started then.
    pub fn spawn<T: Send + 'static>(
        self,
        spawn: impl FnOnce(&mut Command) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let ThreadLaunch { policy_to_enforce, mut command } = self;
        in_thread(move |started| {
            if let Err(error) = policy_to_enforce.enforce() {
                return started(Err(error));
            }
            match policy_to_enforce.relay() {
                None => started(spawn(&mut command)),
                Some(relay) => {
                    let spawn = |variables| spawn(command.envs::<Vec<_>, _, _>(variables));
                    crate::net::relay::run(relay, spawn, started);
                }
            }
        })
    }
}

/// Makes a session whose terminal is the standard input.
fn take_terminal() -> std::io::Result<()> {
    rustix::process::setsid()?;
    Ok(rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?)
}

/// Returns the arguments: there are no mounts to make on this system.
///
/// # Errors
/// None.
#[cfg(not(target_os = "linux"))]
pub fn take_mounts(args: Vec<OsString>) -> io::Result<Vec<OsString>> {
    Ok(args)
}

#[cfg(not(target_os = "linux"))]
impl ThreadLaunch {
    /// Returns `None`: only a separate process can launch on this system.
    pub fn of(_: &[OsString]) -> Option<ThreadLaunch> {
        None
    }

    /// Starts nothing.
    ///
    /// # Errors
    /// Always.
    pub fn spawn<T>(self, _: impl FnOnce(&mut Command) -> io::Result<T>) -> io::Result<T> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Runs the launcher, which makes a terminal the command's own: all else is done by the system's launcher. Returns only if
/// that fails.
#[cfg(not(target_os = "linux"))]
#[expect(clippy::disallowed_methods, reason = "a separate process, whose stderr is the command's")]
pub fn launch_main(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    use std::io::Write as _;
    let mut stderr = std::io::stderr();
    let is_terminal = args.next().is_some_and(|word| word == TERMINAL_WORD);
    let (Some(program), true) = (args.next(), is_terminal) else {
        let _ = writeln!(stderr, "aye: only aye starts a launcher");
        return ExitCode::from(2);
    };
    match take_terminal() {
        Ok(()) => become_program(&program, args),
        Err(error) => without_terminal(&error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(profile: Profile, bwrap: bool) -> Launch {
        let layers = Layers { bwrap: bwrap.then(|| "/usr/bin/bwrap".into()), ..Layers::default() };
        let policy = Policy { tmp: Some("/var/x".into()), ..Policy::new(profile, "/srv/w") };
        let args = [OsString::from("-c"), "ls".into()];
        Launch::new(&policy, &layers, Path::new("/opt/aye"), Path::new("/srv/w"), OsStr::new("bash"), &args)
    }

    #[test]
    fn outside_runs_the_program_itself() {
        let launch = launch(Profile::Outside, true);
        assert_eq!((launch.program, launch.args.len()), ("bash".into(), 2));
    }

    #[test]
    fn outside_with_a_terminal_uses_a_launcher_too() {
        let policy = Policy { terminal: true, ..Policy::new(Profile::Outside, "/srv/w") };
        let (own, cwd, args) = (Path::new("/opt/aye"), Path::new("/srv/w"), [OsString::from("-c")]);
        let launch = Launch::new(&policy, &Layers::default(), own, cwd, OsStr::new("bash"), &args);
        assert_eq!(launch.program, "/opt/aye");
        assert_eq!(launch.args, [LAUNCH_ARG, TERMINAL_WORD, "bash", "-c"]);
    }

    #[test]
    fn macos_uses_the_system_launcher() {
        let layers = Layers { seatbelt: true, ..Layers::default() };
        let policy = Policy { tmp: Some("/var/x".into()), ..Policy::new(Profile::Read, "/srv/w") };
        let (own, cwd, args) = (Path::new("/opt/aye"), Path::new("/srv/w"), [OsString::from("-c")]);
        let launch = Launch::new(&policy, &layers, own, cwd, OsStr::new("bash"), &args);
        assert_eq!(launch.program, "/usr/bin/sandbox-exec");
        assert_eq!(launch.args[0], "-p");
        assert_eq!(launch.args[1].to_str(), Some(seatbelt::profile(&policy).as_str()));
        assert_eq!(launch.args[2..], ["bash", "-c"]);
        assert_eq!(launch.env, [("TMPDIR".into(), "/var/x".into())]);
        let policy = Policy { terminal: true, ..policy };
        let launch = Launch::new(&policy, &layers, own, cwd, OsStr::new("bash"), &args);
        assert_eq!(launch.program, "/opt/aye");
        assert_eq!(launch.args[..4], [LAUNCH_ARG, TERMINAL_WORD, "/usr/bin/sandbox-exec", "-p"]);
        assert_eq!(launch.env, [("TMPDIR".into(), "/var/x".into())]);
    }

    #[test]
    fn the_launcher_runs_inside_the_namespaces_or_alone() {
        let with = launch(Profile::Read, true);
        assert_eq!(with.program, "/usr/bin/bwrap");
        let at = with.args.iter().position(|word| word == "--").expect("it ends its arguments");
        assert_eq!(with.args[at + 1..at + 3], [namespaces::LAUNCHER, LAUNCH_ARG]);
        let supervised =
            Launch::supervised(&with.args, with.launcher.expect("there is one"), ["x", "y"].map(Into::into));
        assert_eq!(
            supervised[at + 2..at + 7],
            [namespaces::LAUNCHER, "x", "y", namespaces::LAUNCHER, LAUNCH_ARG]
        );
        let without = launch(Profile::Read, false);
        assert_eq!(without.program, "/opt/aye");
        assert_eq!(without.args[0], LAUNCH_ARG);
        assert_eq!(without.args[2..], ["bash", "-c", "ls"]);
        assert_eq!(without.env, [("TMPDIR".into(), "/var/x".into())]);
        assert_eq!(without.launcher, None);
    }
}
