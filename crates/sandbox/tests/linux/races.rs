//! Commands start while another process exchanges folders and links: what they may not see or change stays so.

use super::{Arc, Command, Launch, Layers, OsStr, OsString, Path, Policy, Profile, Stdio, UnixListener, fs};
use aye_sandbox::InodeId;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The first argument of a process that exchanges names.
pub(super) const SWAP_ARG: &str = "swap";
/// The same for one that may not exchange all of them.
pub(super) const TRY_SWAP_ARG: &str = "try-swap";
const ROUNDS: usize = 400;

/// Exchanges each two names until its input ends. It prints a line when each was exchanged once, or could not be.
pub(super) fn swap(names: &[OsString], must: bool) {
    let stop = Arc::new(AtomicBool::new(false));
    let until = Arc::clone(&stop);
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        until.store(true, Ordering::Relaxed);
    });
    let mut is_first = true;
    while !stop.load(Ordering::Relaxed) {
        for pair in names.chunks(2) {
            let (cwd, flags) = (rustix::fs::CWD, rustix::fs::RenameFlags::EXCHANGE);
            let exchanged = rustix::fs::renameat_with(cwd, &pair[0], cwd, &pair[1], flags);
            assert!(exchanged.is_ok() || !must, "{pair:?}: {exchanged:?}");
            if is_first {
                print!("{} ", if exchanged.is_ok() { "moved" } else { "kept" });
            }
        }
        if std::mem::take(&mut is_first) {
            println!();
        }
        // Long enough for a mount, and short enough for several exchanges while a command starts.
        let moment = Instant::now();
        while moment.elapsed() < Duration::from_micros(150) {
            std::hint::spin_loop();
        }
    }
}

/// Starts commands in a project whose folders are exchanged, and returns what they should not have been able to do.
pub(super) fn run(base: &Path, layers: &Layers) -> Vec<String> {
    let folder = base.join("races");
    let (home, work) = (folder.join("home"), folder.join("work"));
    for path in [home.join("workflows"), work.join(".github/workflows"), work.join("a"), work.join("b")] {
        fs::create_dir_all(path).expect("written");
    }
    for (path, text) in [
        (home.join("canary"), "HOME-CANARY"),
        (home.join("workflows/canary"), "HOME-CANARY"),
        (work.join("a/.env"), "SECRET-CANARY"),
        (work.join("b/.env"), "decoy"),
        (work.join(".github/workflows/ci.yml"), "on: push"),
    ] {
        fs::write(path, text).expect("written");
    }
    std::os::unix::fs::symlink(&home, work.join("link")).expect("written");
    let id = |path: &Path| path.metadata().map(|it| InodeId(it.dev(), it.ino())).expect("exists");
    let secret = work.join("a/.env");
    let policy = Policy {
        ids: [(secret.clone(), id(&secret))].into(),
        masked: vec![secret],
        home: Some(home.clone()),
        ..Policy::new(Profile::Workspace, &work)
    };
    let own = std::env::current_exe().expect("has a path");
    let line = "cat a/.env b/.env .github/canary .github/workflows/canary link/canary; \
                touch .github/evil .github/workflows/evil link/evil; echo started";
    let command = || {
        let launch = Launch::new(&policy, layers, &own, &work, OsStr::new("sh"), &["-c".into(), line.into()]);
        let mut command = Command::new(&launch.program);
        command.args(&launch.args).current_dir(&work).stdin(Stdio::null()).stderr(Stdio::null());
        String::from_utf8_lossy(&command.output().expect("starts").stdout).into_owned()
    };
    let mut swapper = Command::new(&own)
        .arg(SWAP_ARG)
        .args([work.join("a"), work.join("b"), work.join(".github"), work.join("link")])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("starts");
    let (mut escaped, mut started) = (Vec::new(), 0);
    for round in 0..ROUNDS {
        let printed = command();
        started += usize::from(printed.contains("started"));
        if printed.contains("CANARY") {
            escaped.push(format!("round {round}: {printed}"));
        }
    }
    drop(swapper.stdin.take());
    assert!(swapper.wait().expect("ends").success());
    for file in ["evil", "workflows/evil"] {
        if home.join(file).exists() {
            escaped.push(format!("{file} was written at home"));
        }
    }
    println!("races: {started} of {ROUNDS} commands started, {} escaped", escaped.len());
    // When nothing moves, commands start, unless the names ended up exchanged.
    if fs::read_to_string(work.join("a/.env")).expect("readable") == "decoy" {
        if command().contains("started") {
            escaped.push("another file had the name of the masked one".to_owned());
        }
        fs::rename(work.join("a"), work.join("c")).expect("renamed");
        fs::rename(work.join("b"), work.join("a")).expect("renamed");
        fs::rename(work.join("c"), work.join("b")).expect("renamed");
    }
    let printed = command();
    if !printed.contains("started") || !printed.contains("decoy") || printed.contains("CANARY") {
        escaped.push(format!("when nothing moves: {printed}"));
    }
    escaped
}

/// Starts commands in a project where a command of another aye exchanges what it can, and returns what they should not have
/// been able to do. Nobody stops that command meanwhile: what is hidden and protected here is so there, too, and keeps its
/// name, whoever makes the mounts.
pub(super) fn beside(base: &Path, layers: &Layers) -> Vec<String> {
    let by = if layers.can_mount { "launcher" } else { "bubblewrap" };
    let folder = base.join(format!("beside-{by}"));
    let (home, work) = (folder.join("home"), folder.join("work"));
    for path in
        [home.as_path(), &work.join(".github/workflows"), &work.join("a"), &work.join("b"), &work.join("c")]
    {
        fs::create_dir_all(path).expect("written");
    }
    for (path, text) in [
        (home.join("canary"), "HOME-CANARY"),
        (work.join("a/.env"), "SECRET-CANARY"),
        (work.join("b/.env"), "decoy"),
        (work.join("c/plain"), "plain"),
        (work.join(".github/workflows/ci.yml"), "on: push"),
    ] {
        fs::write(path, text).expect("written");
    }
    for link in ["link", "other"] {
        std::os::unix::fs::symlink(&home, work.join(link)).expect("written");
    }
    let own = std::env::current_exe().expect("has a path");
    let secret = work.join("a/.env");
    let about = secret.metadata().expect("exists");
    let policy = Policy {
        ids: [(secret.clone(), InodeId(about.dev(), about.ino()))].into(),
        masked: vec![secret],
        home: Some(home.clone()),
        readable: vec![own.clone()],
        ..Policy::new(Profile::Workspace, &work)
    };
    let command = |program: &OsStr, args: &[OsString]| {
        let launch = Launch::new(&policy, layers, &own, &work, program, args);
        let mut command = Command::new(&launch.program);
        command.args(&launch.args).current_dir(&work);
        command
    };
    let pairs = ["a", "b", "a/.env", "b/.env", ".github", "link", "c", "other"];
    let args: Vec<OsString> =
        [OsString::from(TRY_SWAP_ARG)].into_iter().chain(pairs.map(|name| work.join(name).into())).collect();
    let mut swapper =
        command(own.as_os_str(), &args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
    let mut moved = String::new();
    let mut output = BufReader::new(swapper.stdout.take().expect("piped"));
    output.read_line(&mut moved).expect("a line");
    let mut escaped = Vec::new();
    if moved.trim() != "kept kept kept moved" {
        escaped.push(format!("what another command renames, mounts by {by}: {moved}"));
    }
    let line =
        "cat a/.env b/.env c/plain c/canary other/canary; touch c/evil other/evil .github/evil; echo started";
    let mut started = 0;
    for round in 0..ROUNDS {
        let output = command(OsStr::new("sh"), &["-c".into(), line.into()]).stdin(Stdio::null()).output();
        let printed = String::from_utf8_lossy(&output.expect("starts").stdout).into_owned();
        started += usize::from(printed.contains("started"));
        if printed.contains("CANARY") || !printed.contains("decoy") {
            escaped.push(format!("round {round}, mounts by {by}: {printed}"));
        }
    }
    drop(swapper.stdin.take());
    assert!(swapper.wait().expect("ends").success());
    if home.join("evil").exists() {
        escaped.push(format!("a file was written at home, mounts by {by}"));
    }
    println!(
        "beside another aye, mounts by {by}: {started} of {ROUNDS} commands started, {} escaped",
        escaped.len()
    );
    if started != ROUNDS {
        escaped.push(format!("mounts by {by}: only {started} of {ROUNDS} commands started"));
    }
    escaped
}

/// Commands cannot rename what is hidden and what is above, nor change what is read-only.
pub(super) fn keeps_names(base: &Path, layers: &Layers) -> Vec<String> {
    let work = base.join(if layers.can_mount { "names" } else { "names-by-path" });
    for path in ["h/.docker", "migrations/old", "free", ".aye-set-aside", "node_modules/p"] {
        fs::create_dir_all(work.join(path)).expect("written");
    }
    for path in
        ["h/.docker/config.json", "migrations/1.sql", "free/x", ".aye-set-aside/x", "node_modules/p/.env"]
    {
        fs::write(work.join(path), "CANARY").expect("written");
    }
    let _listens = UnixListener::bind(work.join("free/socket")).expect("a socket");
    let masked = ["h/.docker/config.json", ".aye-set-aside", "free/socket", "node_modules/p/.env"]
        .map(|name| work.join(name))
        .to_vec();
    std::os::unix::fs::symlink("free/x", work.join("linked")).expect("written");
    let read_only = vec![work.join("migrations"), work.join("linked")];
    let policy = Policy { masked, read_only, ..Policy::new(Profile::Workspace, &work) };
    let own = std::env::current_exe().expect("has a path");
    let run = |policy: &Policy, line: &str| {
        let launch = Launch::new(policy, layers, &own, &work, OsStr::new("sh"), &["-c".into(), line.into()]);
        let mut command = Command::new(&launch.program);
        let output =
            command.args(&launch.args).current_dir(&work).stdin(Stdio::null()).output().expect("starts");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned(), errors)
    };
    let mut wrong = Vec::new();
    for line in [
        "mv h/.docker h/docker",
        "mv h x",
        "mv h/.docker/config.json x",
        "rm h/.docker/config.json",
        "ln h/.docker/config.json x",
        "cat h/.docker/config.json",
        "ls .aye-set-aside/x",
        "mv .aye-set-aside x",
        "echo x > migrations/1.sql",
        "touch migrations/2.sql",
        "rm migrations/1.sql",
        "rmdir migrations/old",
        "mv migrations x",
        "echo x > linked",
        "echo x > free/x",
        "test -S free/socket",
    ] {
        if run(&policy, line).0 {
            wrong.push(format!("{line}, mounts by the launcher: {}", layers.can_mount));
        }
    }
    for line in [
        "touch h/new h/.docker/new",
        "cat migrations/1.sql free/x",
        "true && mv node_modules/p node_modules/.p",
        "mv free other && mv other free",
    ] {
        let (is_done, _, errors) = run(&policy, line);
        // What is in a folder moves with it, unless something there is hidden.
        if is_done == line.starts_with("mv") {
            wrong.push(format!("{line}, mounts by the launcher: {}: {errors}", layers.can_mount));
        }
    }
    let other = work.join("free/x").metadata().map(|it| InodeId(it.dev(), it.ino())).expect("exists");
    let ids = [(work.join("h/.docker/config.json"), other)].into();
    let (is_started, _, errors) = run(&Policy { ids, ..policy.clone() }, "true");
    if layers.can_mount && (is_started || !errors.contains("h/.docker/config.json was renamed or replaced")) {
        wrong.push(format!("another file was hidden instead: {errors}"));
    }
    let ids = [(work.join("migrations"), other)].into();
    if run(&Policy { ids, ..policy }, "true").0 {
        wrong.push("another folder was read-only instead".to_owned());
    }
    wrong
}
