//! 45 attempts to leave the sandbox (`probes.c`), in each profile, as the user that runs the tests and, if
//! that is root, as an unprivileged one, with bubblewrap and without. The launcher is this program, started
//! again.

#![allow(clippy::print_stdout)] // A test without a harness prints its own report.

#[cfg(target_os = "linux")]
mod linux;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    linux::main()
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("skipped: the sandbox exists on Linux only");
}
