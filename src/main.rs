//! The program: a supervisor or the launcher of one command, or arguments, then the composition root, then a front end.

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().collect();
    // First of all: a supervisor must start fast and needs nothing of the rest.
    if args.get(1).is_some_and(|arg| arg == aye::tools::exec::SUPERVISE_ARG) {
        return aye::tools::exec::supervise_main(args.into_iter().skip(2));
    }
    if args.get(1).is_some_and(|arg| arg == aye::LAUNCH_ARG) {
        return aye::launch_main(args.into_iter().skip(2));
    }
    // Provider keys are in this process's environment: no core dump, and no other process of the user reads them there.
    aye_platform::hide_memory();
    aye::app::main(args)
}
