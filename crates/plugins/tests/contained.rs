//! Runs lines that the shipped rules allow under kernel enforcement through the real launcher: they must read
//! and write nothing outside the project, and print nothing that a rule denies or asks about. The launcher is
//! this program, started again.

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
