//! The program: arguments, then the composition root, then a front end.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    // First of all: a supervisor must start fast and needs nothing of the rest.
    if args.next().is_some_and(|arg| arg == aye::tools::exec::SUPERVISE_ARG) {
        return aye::tools::exec::supervise_main(args);
    }
    ExitCode::SUCCESS
}
