//! From a policy to the program that is started, and the launcher that becomes it.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use crate::layers::Layers;
use crate::namespaces;
use crate::policy::Policy;
use crate::seatbelt;
use aye_core::contract::judgement::Profile;

/// The hidden first argument that makes aye the launcher of one command.
pub const LAUNCH_ARG: &str = "__launch";

/// The word that replaces the policy if the command only needs its own terminal.
pub(crate) const TERMINAL_WORD: &str = "terminal";

/// The exit status when the launcher cannot enforce the policy, or start the program.
#[cfg(target_os = "linux")]
const NOT_STARTED: u8 = 126;

/// The policy that the launcher enforces on itself, as JSON in the argument after [`LAUNCH_ARG`].
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LaunchPolicy {
    pub(crate) policy: Policy,
    /// Namespaces already hide what the policy does not name.
    pub(crate) inside: bool,
}

/// The program to start in place of another one, so that the kernel enforces a policy on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The program.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Variables to set in its environment.
    pub env: Vec<(OsString, OsString)>,
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
            return Launch { program: program.to_owned(), args: args.to_vec(), env: Vec::new() };
        }
        let tmp = policy.tmp.iter().map(|tmp| ("TMPDIR".into(), tmp.clone().into_os_string())).collect();
        if layers.seatbelt {
            let words = ["-p".into(), seatbelt::profile(policy).into(), program.to_owned()];
            let args = words.into_iter().chain(args.iter().cloned()).collect();
            return Launch { program: seatbelt::PROGRAM.into(), args, env: tmp };
        }
        let mut all = Vec::new();
        let (first, policy_to_enforce) = match &layers.bwrap {
            Some(bwrap) => {
                all.extend(namespaces::arguments(policy, own, cwd));
                all.push(namespaces::LAUNCHER.into());
                // The mounts already determine what is hidden or visible.
                let policy = Policy {
                    readable: Vec::new(),
                    toolchains: Vec::new(),
                    masked: Vec::new(),
                    tmp: None,
                    ..policy.clone()
                };
                (bwrap.clone().into_os_string(), LaunchPolicy { policy, inside: true })
            }
            None => (own.as_os_str().to_owned(), LaunchPolicy { policy: policy.clone(), inside: false }),
        };
        all.push(LAUNCH_ARG.into());
        all.push(serde_json::to_string(&policy_to_enforce).unwrap_or_default().into());
        all.push(program.to_owned());
        all.extend(args.iter().cloned());
        let env = if layers.bwrap.is_none() { tmp } else { Vec::new() };
        Launch { program: first, args: all, env }
    }

    /// The program that starts `program` with all rights, and gives it the terminal on its standard input as its own.
    pub fn in_terminal(own: &Path, program: &OsStr, args: &[OsString]) -> Launch {
        let words = [LAUNCH_ARG.into(), TERMINAL_WORD.into(), program.to_owned()];
        let args = words.into_iter().chain(args.iter().cloned()).collect();
        Launch { program: own.as_os_str().to_owned(), args, env: Vec::new() }
    }
}
                    partial: Vec::new(),

/// Runs the launcher: `args` follow [`LAUNCH_ARG`]. Restricts this process and becomes the program. Returns only if
/// that fails, or with the program's exit status if a relay for its network runs beside it.
#[cfg(target_os = "linux")]
#[expect(clippy::disallowed_methods, reason = "a separate process, whose stderr is the command's")]
pub fn launch_main(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    use std::io::Write as _;
    use std::os::unix::process::CommandExt as _;
    let first = args.next();
    let only_terminal = first.as_deref().is_some_and(|word| word == TERMINAL_WORD);
    let policy_to_enforce = first.and_then(|word| serde_json::from_str::<LaunchPolicy>(word.to_str()?).ok());
    let mut stderr = std::io::stderr();
    let (Some(program), true) = (args.next(), only_terminal || policy_to_enforce.is_some()) else {
        let _ = writeln!(stderr, "aye: only aye starts a launcher");
        return ExitCode::from(2);
    };
    let relay = policy_to_enforce.as_ref().and_then(|policy_to_enforce| {
        policy_to_enforce.policy.way_out().filter(|_| policy_to_enforce.inside)
    });
    let has_terminal = policy_to_enforce
        .as_ref()
        .map_or(only_terminal, |policy_to_enforce| policy_to_enforce.policy.terminal);
    // Beside a relay the terminal is the command's alone: what is typed to interrupt it would end the relay.
    if has_terminal
        && relay.is_none()
        && let Err(error) = take_terminal()
    {
        let _ = writeln!(stderr, "aye: the command cannot have a terminal, and nothing was started: {error}");
        return ExitCode::from(NOT_STARTED);
    }
    if let Some(policy_to_enforce) = &policy_to_enforce
        && let Err(error) = crate::kernel::restrict(policy_to_enforce)
    {
        let _ = writeln!(stderr, "aye: the sandbox cannot be enforced, and nothing was started: {error}");
        return ExitCode::from(NOT_STARTED);
    }
    let error = match relay {
        None => std::process::Command::new(&program).args(args).exec(),
        Some(relay) => match crate::net::relay::run(relay, (&program, has_terminal), args) {
            Ok(code) => return code,
            Err(error) => error,
        },
    };
    let _ = writeln!(stderr, "aye: cannot start {}: {error}", program.to_string_lossy());
    ExitCode::from(if error.kind() == std::io::ErrorKind::NotFound { 127 } else { NOT_STARTED })
}

/// A launch in a thread of the process that would otherwise start the launcher.
#[cfg(target_os = "linux")]
pub struct ThreadLaunch {
    policy_to_enforce: LaunchPolicy,
}

#[cfg(target_os = "linux")]
impl ThreadLaunch {
    /// Parses `args` of a launcher, with [`LAUNCH_ARG`] as the first one, and also returns the program and
    /// its arguments. Returns `None` if they are not those of a launcher, or if only a separate process can
    /// launch: for a terminal, and inside namespaces.
    pub fn of(args: &[OsString]) -> Option<(ThreadLaunch, &OsStr, &[OsString])> {
        let [first, policy_to_enforce, program, args @ ..] = args else { return None };
        let policy_to_enforce = (first == LAUNCH_ARG)
            .then(|| serde_json::from_str::<LaunchPolicy>(policy_to_enforce.to_str()?).ok())??;
        let is_enough = !policy_to_enforce.inside && !policy_to_enforce.policy.terminal;
        is_enough.then_some((ThreadLaunch { policy_to_enforce }, program.as_os_str(), args))
    }

    /// Calls `spawn` in a thread that is restricted first and ends afterwards. A process started by the
    /// thread inherits its restrictions; other threads do not have them.
    ///
    /// # Errors
    /// The restrictions cannot be enforced, or `spawn` fails. Nothing was started then.
    pub fn spawn<T: Send>(&self, spawn: impl FnOnce() -> std::io::Result<T> + Send) -> std::io::Result<T> {
        std::thread::scope(|scope| {
            let restricted = scope.spawn(|| {
                crate::kernel::restrict(&self.policy_to_enforce)?;
                spawn()
            });
            restricted.join().unwrap_or_else(|_| Err(std::io::Error::other("its thread ended")))
        })
    }
}

/// Makes a session whose terminal is the standard input.
#[cfg(target_os = "linux")]
fn take_terminal() -> std::io::Result<()> {
    rustix::process::setsid()?;
    Ok(rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?)
}

/// Fails: there is no launcher for this system.
#[cfg(not(target_os = "linux"))]
pub fn launch_main(_args: impl Iterator<Item = OsString>) -> ExitCode {
    ExitCode::from(2)
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
    fn outside_is_the_program_itself() {
        let launch = launch(Profile::Outside, true);
        assert_eq!((launch.program, launch.args.len()), ("bash".into(), 2));
    }

    #[test]
    fn with_a_terminal_outside_has_a_launcher_too() {
        let policy = Policy { terminal: true, ..Policy::new(Profile::Outside, "/srv/w") };
        let (own, cwd, args) = (Path::new("/opt/aye"), Path::new("/srv/w"), [OsString::from("-c")]);
        let launch = Launch::new(&policy, &Layers::default(), own, cwd, OsStr::new("bash"), &args);
        assert_eq!(launch.program, "/opt/aye");
        assert_eq!(launch.args, [LAUNCH_ARG, TERMINAL_WORD, "bash", "-c"]);
    }

    #[test]
    fn on_macos_the_program_of_the_system_is_the_launcher() {
        let layers = Layers { seatbelt: true, ..Layers::default() };
        let policy = Policy { tmp: Some("/var/x".into()), ..Policy::new(Profile::Read, "/srv/w") };
        let (own, cwd, args) = (Path::new("/opt/aye"), Path::new("/srv/w"), [OsString::from("-c")]);
        let launch = Launch::new(&policy, &layers, own, cwd, OsStr::new("bash"), &args);
        assert_eq!(launch.program, "/usr/bin/sandbox-exec");
        assert_eq!(launch.args[0], "-p");
        assert_eq!(launch.args[1].to_str(), Some(seatbelt::profile(&policy).as_str()));
        assert_eq!(launch.args[2..], ["bash", "-c"]);
        assert_eq!(launch.env, [("TMPDIR".into(), "/var/x".into())]);
    }

    #[test]
    fn the_launcher_is_inside_of_the_namespaces_or_alone() {
        let with = launch(Profile::Read, true);
        assert_eq!(with.program, "/usr/bin/bwrap");
        let at = with.args.iter().position(|word| word == "--").expect("it ends its arguments");
        assert_eq!(with.args[at + 1..at + 3], [namespaces::LAUNCHER, LAUNCH_ARG]);
        let without = launch(Profile::Read, false);
        assert_eq!(without.program, "/opt/aye");
        assert_eq!(without.args[0], LAUNCH_ARG);
        assert_eq!(without.args[2..], ["bash", "-c", "ls"]);
        assert_eq!(without.env, [("TMPDIR".into(), "/var/x".into())]);
    }
}
