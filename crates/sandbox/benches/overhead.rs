//! Measures the overhead of the sandbox on `true`, in milliseconds: medians. `cargo bench -p aye-sandbox`.

#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program of its own, which reports on its output"
)]

use std::ffi::OsStr;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Instant;

use aye_sandbox::{
    LAUNCH_ARG, Launch, Layers, NetHub, NetSession, Policy, Profile, Serving, SystemDialler, launch_main,
};

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
    // With a way to the network, which is opened for each command.
    let runtime = tokio::runtime::Runtime::new().expect("it starts");
    let _inside = runtime.enter();
    let sockets = tempfile::tempdir().expect("a folder");
    let domains = vec!["docs.example.org".parse().expect("a name")];
    let hub = Arc::new(NetHub::new(sockets.path().to_owned(), domains, Arc::new(SystemDialler)));
    let mut cases = vec![("bare".to_owned(), Profile::Outside, without.clone(), false)];
    for profile in [Profile::Read, Profile::Workspace] {
        if with.bwrap.is_some() {
            cases.push((format!("{profile}, bwrap"), profile, with.clone(), false));
            let by_path = Layers { can_mount: false, ..with.clone() };
            cases.push((format!("{profile}, by path"), profile, by_path, false));
        }
        cases.push((format!("{profile}, no bwrap"), profile, without.clone(), false));
    }
    if with.bwrap.is_some() {
        cases.push(("workspace, domains".to_owned(), Profile::Workspace, with.clone(), true));
    }
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); cases.len()];
    // In turn, so that a busy moment is everybody's.
    for _ in 0..RUNS {
        for ((_, profile, layers, has_relay), times) in cases.iter().zip(&mut times) {
            let toolchains = aye_sandbox::toolchains(&path, home.as_deref(), None);
            let start = Instant::now();
            let session =
                has_relay.then(|| hub.open("t", Serving::Never, &[]).expect("it listens")).flatten();
            let policy = Policy {
                relay: session.as_ref().map(NetSession::relay),
                home: home.clone(),
                toolchains,
                ..Policy::new(*profile, &workspace)
            };
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
    for ((name, profile, ..), times) in cases.iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        let median = times[times.len() / 2];
        if *profile == Profile::Outside {
            bare = median;
        }
        println!("{name:22} {median:6.2} ms   + {:5.2} ms", median - bare);
    }
    ExitCode::SUCCESS
}
