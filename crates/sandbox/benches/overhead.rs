//! What the sandbox adds to `true`, in milliseconds: medians. `cargo bench -p aye-sandbox`.

#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program of its own, which reports on its output"
)]

use std::ffi::OsStr;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use aye_sandbox::{LAUNCH_ARG, Launch, Layers, Policy, Profile, launch_main};

const RUNS: usize = 300;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    if args.next().is_some_and(|word| word == LAUNCH_ARG) {
        return launch_main(args);
    }
    let dir = tempfile::tempdir().expect("a folder");
    let workspace = dir.path().canonicalize().expect("it exists");
    std::fs::create_dir_all(workspace.join(".git/hooks")).expect("written");
    std::fs::write(workspace.join(".git/config"), "").expect("written");
    let own = std::env::current_exe().expect("it has a path");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let home = std::env::home_dir();
    let with = Layers::detect(&path);
    let without = Layers { bwrap: None, ..with.clone() };
    let mut cases = vec![("bare".to_owned(), Profile::Outside, without.clone())];
    for profile in [Profile::Read, Profile::Workspace] {
        if with.bwrap.is_some() {
            cases.push((format!("{profile}, bwrap"), profile, with.clone()));
        }
        cases.push((format!("{profile}, no bwrap"), profile, without.clone()));
    }
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); cases.len()];
    // In turn, so that a busy moment is everybody's.
    for _ in 0..RUNS {
        for ((_, profile, layers), times) in cases.iter().zip(&mut times) {
            let policy = Policy {
                home: home.clone(),
                toolchains: aye_sandbox::toolchains(&path, home.as_deref()),
                ..Policy::new(*profile, &workspace)
            };
            let start = Instant::now();
            let launch = Launch::new(&policy, layers, &own, &workspace, OsStr::new("true"), &[]);
            let status = Command::new(&launch.program)
                .args(&launch.args)
                .current_dir(&workspace)
                .stdin(Stdio::null())
                .status()
                .expect("it starts");
            times.push(start.elapsed().as_secs_f64() * 1e3);
            assert!(status.success(), "{status}");
        }
    }
    let mut bare = 0.0;
    for ((name, profile, _), times) in cases.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        let median = times[times.len() / 2];
        if *profile == Profile::Outside {
            bare = median;
        }
        println!("{name:22} {median:6.2} ms   + {:5.2} ms", median - bare);
    }
    ExitCode::SUCCESS
}
