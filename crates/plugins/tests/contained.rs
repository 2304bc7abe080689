//! Lines that the rules that come with aye allow where the kernel holds the rest, run for real through the launcher:
//! nothing outside the project may be read or written, and nothing that a rule denies or asks about be printed. The
//! launcher is this program, started again.

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
