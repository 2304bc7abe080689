//! Handling of panics: a caught one goes to the log only, one that ends the program is printed at its end.
//!
//! A hook cannot know whether a panic will be caught, and the terminal may show a conversation. So it prints nothing;
//! resources are released while the stack unwinds, and only then the message is printed.

use std::io::Write as _;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};

/// The exit status of a program that panicked, as the standard library has it.
const PANICKED: u8 = 101;

/// The newest panic of the thread that may end the program.
type Last = Arc<Mutex<Option<String>>>;

pub(crate) fn contained(program: impl FnOnce() -> ExitCode) -> ExitCode {
    let last = Last::default();
    let (owner, noted) = (thread::current().id(), Arc::clone(&last));
    std::panic::set_hook(Box::new(move |panic| note(panic, owner, &noted)));
    catch_unwind(AssertUnwindSafe(program)).unwrap_or_else(|_| {
        let text = last.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default();
        let text = crate::contract::display::visible(&text).into_owned();
        let (words, status) = match exhausted(&text) {
            Some(cause) => (
                format!(
                    "aye: the system has no further thread, process or file descriptor for aye ({cause}); end other \
                     programs, or raise the limits (`ulimit -u`, `ulimit -n`)"
                ),
                1,
            ),
            None => (format!("aye {text}\nThis is a bug in aye."), PANICKED),
        };
        let _ = writeln!(std::io::stderr(), "{words}");
        ExitCode::from(status)
    })
}

/// The messages of libraries that panic where the system refuses a thread or a socket.
const EXHAUSTED: &[&str] =
    &["OS can't spawn worker thread", "failed to create UnixStream", "failed to spawn thread"];

/// Returns the message of a panic if its cause is the system's limits and not a bug.
fn exhausted(panic: &str) -> Option<&str> {
    panic.lines().find(|line| EXHAUSTED.iter().any(|message| line.starts_with(message)))
}

fn note(panic: &PanicHookInfo<'_>, owner: ThreadId, last: &Last) {
    let here = thread::current();
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    tracing::error!(thread = here.name().unwrap_or("unnamed"), place, "a thread panicked");
    if here.id() == owner {
        // Empty unless the environment asks for it.
        let backtrace = std::backtrace::Backtrace::capture();
        let trace = match backtrace.status() {
            std::backtrace::BacktraceStatus::Captured => format!("\n{backtrace}"),
            _ => String::new(),
        };
        *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!("{panic}{trace}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs in a process of its own: the hook is the whole process's.
    #[test]
    #[ignore = "started by the test below"]
    fn panicking_program() {
        let code = contained(|| {
            assert!(catch_unwind(|| panic!("caught here")).is_err());
            assert!(thread::spawn(|| panic!("on another thread")).join().is_err());
            assert!(std::env::var_os("AYE_TEST_END").is_none(), "the end of the program");
            ExitCode::SUCCESS
        });
        std::process::exit(if code == ExitCode::SUCCESS { 0 } else { 101 });
    }

    #[test]
    fn a_limit_of_the_system_is_not_a_bug() {
        let refused = std::io::Error::from_raw_os_error(11);
        let text = format!("panicked at x.rs:1:2:\nfailed to spawn thread: {refused:?}\nstack");
        assert!(exhausted(&text).is_some_and(|cause| cause.contains("code: 11")), "{text}");
        let tokio = "panicked at pool.rs:386:17:\nOS can't spawn worker thread: unavailable (os error 11)";
        assert_eq!(exhausted(tokio), Some("OS can't spawn worker thread: unavailable (os error 11)"));
        assert_eq!(exhausted("panicked at x.rs:1:2:\nindex out of bounds"), None);
    }

    #[test]
    fn only_a_fatal_panic_is_printed() {
        let run = |ends: bool| {
            let mut command = std::process::Command::new(std::env::current_exe().unwrap());
            command.args([
                "--exact",
                "program::panics::tests::panicking_program",
                "--ignored",
                "--nocapture",
            ]);
            command.env_remove("RUST_BACKTRACE");
            if ends {
                command.env("AYE_TEST_END", "1");
            }
            let output = command.output().unwrap();
            (output.status.code(), String::from_utf8(output.stderr).unwrap())
        };
        assert_eq!(run(false), (Some(0), String::new()));
        let (code, text) = run(true);
        assert_eq!(code, Some(101));
        assert!(text.starts_with("aye panicked at src/program/panics.rs:"), "{text}");
        assert!(text.contains("the end of the program") && !text.contains("caught here"), "{text}");
    }
}
