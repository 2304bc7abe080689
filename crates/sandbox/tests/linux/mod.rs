#![allow(clippy::disallowed_methods, reason = "a separate program, which reads its environment")]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;

use aye_sandbox::{
    LAUNCH_ARG, Launch, Layers, NetHub, NetSession, Policy, Profile, ProtectedFiles, Serving, SystemDialler,
    ThreadLaunch, launch_main, take_mounts,
};

mod races;

/// The number of attempts: each must be reported.
const COUNT: usize = 46;
/// The first argument of a child that runs the attempts as one user.
const DRIVE_ARG: &str = "drive";
/// The first argument of a supervisor inside the namespaces.
const INSIDE_ARG: &str = "inside";
const NOBODY: &str = "65534";

/// Attempts that succeed outside a sandbox: if they fail there, they test nothing.
const SUCCEED_OUTSIDE: &[&str] = &[
    "create",
    "truncate",
    "chmod",
    "utimens",
    "link",
    "symlink",
    "/proc/self/root",
    "masked secret",
    "kill",
    "environ",
    "TCP",
    "UDP",
    "unix socket by path",
    "abstract unix socket",
    "netlink",
    "host /tmp",
    "git config",
    "missing config file",
    "file metadata",
    "process list",
    "prlimit",
    "sched_setaffinity",
    "sched_setscheduler",
    "setpriority",
    "ioprio_set",
    "prlimit of the supervisor",
    "setuid chmod",
    "setuid open",
    "setuid mknod",
    "setuid openat2",
];

pub(super) fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next() {
        Some(word) if word == LAUNCH_ARG => return launch_main(args),
        Some(word) if word == INSIDE_ARG => return inside(&args.skip(2).collect::<Vec<_>>()),
        Some(word) if word == races::SWAP_ARG || word == races::TRY_SWAP_ARG => {
            races::swap(&args.collect::<Vec<_>>(), word == races::SWAP_ARG);
            return ExitCode::SUCCESS;
        }
        Some(word) if word == DRIVE_ARG => {
            let words: Vec<String> = args.filter_map(|word| word.into_string().ok()).collect();
            drive(&words);
            return ExitCode::SUCCESS;
        }
        // Test runners ask for the list of tests.
        Some(word) if word == "--list" => {
            println!("probes: test");
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    let dir = tempfile::tempdir().expect("a folder");
    let base = dir.path().canonicalize().expect("exists");
    fs::set_permissions(&base, fs::Permissions::from_mode(0o755)).expect("is our file");
    // A place where an unprivileged user can start them.
    let own = base.join("own");
    fs::copy(std::env::current_exe().expect("has a path"), &own).expect("copied");
    let probes = base.join("probes");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/probes.c");
    match Command::new("cc").args(["-O1", "-o"]).arg(&probes).arg(source).status() {
        Ok(status) => assert!(status.success(), "the probes do not compile"),
        Err(error) => {
            println!("skipped: no C compiler to build the probes with: {error}");
            return ExitCode::SUCCESS;
        }
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let layers = Layers::detect(&path);
    println!("layers: {layers:?}");
    for line in layers.missing() {
        println!("missing: {line}");
    }
    let is_needed = std::env::var_os("AYE_NEEDS_BWRAP").is_some();
    assert!(!is_needed || layers.bwrap.is_some(), "AYE_NEEDS_BWRAP is set, but bwrap does not work here");
    if !layers.can_enforce(Profile::Read) {
        println!("skipped: this machine cannot enforce a profile");
        return ExitCode::SUCCESS;
    }
    let mut users: Vec<Option<&str>> = vec![None];
    if rustix::process::geteuid().is_root() {
        match Command::new("setpriv").arg("--version").output() {
            Ok(_) => users.push(Some(NOBODY)),
            Err(error) => println!("skipped: the attempts of an unprivileged user: setpriv: {error}"),
        }
    } else {
        println!("skipped: the attempts of root, which this user is not");
    }
    let mut failures = Vec::new();
    let table = manual();
    for user in users {
        let run = |profile: Profile, kind: &str| {
            let name = format!("{profile}-{kind}-{}", user.unwrap_or("own"));
            attempt(&base, &name, user, &[profile.word(), kind])
        };
        let control = run(Profile::Outside, "bare");
        for name in SUCCEED_OUTSIDE {
            if !control.contains(*name) {
                failures.push(format!("{name} does not succeed without a sandbox, as {user:?}"));
            }
        }
        for profile in [Profile::Read, Profile::Workspace] {
            if layers.bwrap.is_some() {
                let kinds = ["bwrap", "inside", "relay"];
                let has_relay = profile == Profile::Workspace;
                for kind in kinds.into_iter().filter(|kind| *kind != "relay" || has_relay) {
                    let escaped = run(profile, kind);
                    println!("{profile}, {kind}, {user:?}: {} of {COUNT} escape {escaped:?}", escaped.len());
                    if !escaped.is_empty() {
                        failures.push(format!("{profile}, {kind}, as {user:?}: {escaped:?}"));
                    }
                    failures.extend(table.as_ref().and_then(|table| differs(&escaped, &control, &table.0)));
                }
            } else {
                println!("skipped: {profile} with bwrap, which does not work here");
            }
            let bare = Layers { bwrap: None, ..layers.clone() };
            if bare.can_enforce(profile) {
                let holes = bare.holes(profile);
                let named: BTreeSet<String> = holes
                    .iter()
                    .map(|(name, _)| (*name).to_owned())
                    .filter(|name| control.contains(name))
                    .collect();
                for kind in ["bare", "thread"] {
                    let escaped = run(profile, kind);
                    println!(
                        "{profile}, no bwrap, {kind}, {user:?}: {} of {COUNT} escape {escaped:?}",
                        escaped.len()
                    );
                    if escaped != named {
                        failures.push(format!(
                            "{profile} without bwrap, {kind}, as {user:?}: {escaped:?}, named are {named:?}"
                        ));
                    }
                    if profile == Profile::Workspace {
                        failures
                            .extend(table.as_ref().and_then(|table| differs(&escaped, &control, &table.1)));
                    }
                }
            } else {
                println!("skipped: {profile} without bwrap, which this kernel cannot enforce");
            }
        }
        println!("outside, {user:?}: {} of {COUNT} escape", control.len());
    }
    if layers.bwrap.is_some() {
        let by_path = Layers { can_mount: false, ..layers.clone() };
        failures.extend(races::keeps_names(&base, &by_path));
        failures.extend(races::beside(&base, &by_path));
    }
    if layers.can_mount {
        failures.extend(races::keeps_names(&base, &layers));
        failures.extend(races::run(&base, &layers));
        failures.extend(races::beside(&base, &layers));
    } else {
        println!("skipped: the races, because the launcher cannot make mounts here");
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    ExitCode::SUCCESS
}

/// The attempts that the manual's table says are possible in `workspace`, with bubblewrap and without it; `None` where the
/// manual is not here. Each attempt must be in one row.
fn manual() -> Option<(BTreeSet<String>, BTreeSet<String>)> {
    let page =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sandbox.md")).ok()?;
    let (_, rows) = page.split_once("| a command tries to |").expect("the table is in the manual");
    let attempts: Vec<&str> = include_str!("../probes.c")
        .split("tell(\"")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once('"')?.0))
        .collect();
    let (mut with, mut without) = (BTreeSet::new(), BTreeSet::new());
    let mut rest: BTreeSet<&str> = attempts.iter().copied().collect();
    for row in rows.lines().skip(1).take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [_, first, second, names] = cells[..] else { panic!("{row}") };
        for name in names.split('`').filter(|name| attempts.contains(name)) {
            assert!(rest.remove(name), "{name} is in the table twice");
            for (cell, possible) in [(first, &mut with), (second, &mut without)] {
                if cell == "possible" {
                    possible.insert(name.to_owned());
                }
            }
        }
    }
    assert!(rest.is_empty(), "not in the table of docs/sandbox.md: {rest:?}");
    Some((with, without))
}

/// What was possible and what the manual says differ, among what succeeds without a sandbox.
fn differs(
    escaped: &BTreeSet<String>,
    control: &BTreeSet<String>,
    manual: &BTreeSet<String>,
) -> Option<String> {
    let said: BTreeSet<String> = manual.intersection(control).cloned().collect();
    (*escaped != said).then(|| format!("possible are {escaped:?}, the manual says {said:?}"))
}

/// A supervisor inside the namespaces: it stays unrestricted beside the command.
fn inside(args: &[OsString]) -> ExitCode {
    let args = take_mounts(args.to_vec()).expect("mounted");
    let launch = ThreadLaunch::of(&args).expect("launcher arguments");
    let status = launch.spawn(std::process::Command::spawn).and_then(|mut child| child.wait()).expect("runs");
    ExitCode::from(u8::try_from(status.code().expect("it exits")).expect("a status"))
}

/// Runs the attempts in a separate folder. Returns those that succeeded.
fn attempt(base: &Path, name: &str, user: Option<&str>, words: &[&str]) -> BTreeSet<String> {
    let folder = base.join(name);
    fs::create_dir(&folder).expect("written");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("is our file");
    let own = base.join("own");
    let mut command = match user {
        Some(user) => {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", user, "--regid", user, "--clear-groups"]).arg(own);
            command
        }
        None => Command::new(own),
    };
    let id = format!("aye-probe-{}-{name}", std::process::id());
    let output = command
        .arg(DRIVE_ARG)
        .args(words)
        .args([&folder, &base.join("probes")])
        .arg(&id)
        .current_dir("/")
        .stderr(Stdio::inherit())
        .output()
        .expect("runs");
    assert!(output.status.success(), "{name}: {:?}", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    let mut told: BTreeMap<&str, &str> = text.lines().filter_map(|line| line.split_once('\t')).collect();
    assert_eq!(told.len(), COUNT, "{name}:\n{text}");
    // The command has its own folders by these names: the machine's folders matter here.
    let (workspace, shm, tmp) =
        (folder.join("work"), Path::new("/dev/shm").join(&id), Path::new("/tmp").join(&id));
    let config = fs::read_to_string(workspace.join(".git/config")).unwrap_or_default();
    for (name, is_changed) in [
        ("/dev/shm", shm.exists()),
        ("host /tmp", tmp.exists()),
        ("git config", config != CONFIG),
        ("missing config file", workspace.join(".envrc").exists()),
    ] {
        told.insert(name, if is_changed { "done" } else { "stopped" });
    }
    let _ = fs::remove_file(shm);
    let _ = fs::remove_file(tmp);
    told.into_iter().filter(|(_, how)| *how == "done").map(|(name, _)| name.to_owned()).collect()
}

const CONFIG: &str = "[core]\n\tbare = false\n";

/// Runs the attempts as the user of this process: their targets, the sandbox, and the program.
fn drive(words: &[String]) {
    let [profile, kind, folder, probes, id] = words else { panic!("{words:?}") };
    let folder = PathBuf::from(folder);
    let (outside, workspace) = (folder.join("outside"), folder.join("work"));
    for path in [&outside, &workspace.join("folder"), &workspace.join(".git/hooks")] {
        fs::create_dir_all(path).expect("written");
    }
    for path in ["outside/truncated", "outside/changed", "work/file", "work/.env"] {
        fs::write(folder.join(path), "canary").expect("written");
    }
    fs::write(workspace.join(".git/config"), CONFIG).expect("written");
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let _by_path = UnixListener::bind(outside.join("socket")).expect("a socket");
    let _abstract =
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(id).expect("a name")).expect("a socket");
    // The target ends with this process in any case, because its input ends.
    let mut target = Command::new("cat");
    target.env("CANARY", "x").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut target = target.spawn().expect("starts");

    let profile: Profile = serde_json::from_str(&format!("\"{profile}\"")).expect("a profile");
    let layers = match kind.as_str() {
        "bwrap" | "inside" | "relay" => Layers::detect(&std::env::var_os("PATH").unwrap_or_default()),
        _ => Layers::of_kernel(),
    };
    // aye's side of the network proxy, for the lifetime of the command.
    let runtime = tokio::runtime::Runtime::new().expect("starts");
    let _inside = runtime.enter();
    let net = folder.join("net");
    fs::create_dir(&net).expect("written");
    let domains = vec!["docs.example.org".parse().expect("a name")];
    let hub = Arc::new(NetHub::new(net, domains, Arc::new(SystemDialler)));
    let session = (kind == "relay").then(|| hub.open("t", Serving::Now, &[]).expect("listens")).flatten();
    let policy = Policy {
        relay: session.as_ref().map(NetSession::relay),
        masked: vec![workspace.join(".env")],
        home: Some(outside.clone()),
        readable: vec![PathBuf::from(probes)],
        ..Policy::new(profile, &workspace)
    };
    policy.check().expect("is enforceable");
    let own = std::env::current_exe().expect("has a path");
    if profile != Profile::Outside {
        works(&policy, &layers, &own);
    }
    if ["inside", "relay"].contains(&kind.as_str()) {
        spares_its_supervisor(&policy, &layers, &own);
    }
    let args = [
        outside.clone().into_os_string(),
        workspace.clone().into_os_string(),
        target.id().to_string().into(),
        tcp.local_addr().expect("has a local address").port().to_string().into(),
        udp.local_addr().expect("has a local address").port().to_string().into(),
        id.into(),
    ];
    let launch = Launch::new(&policy, &layers, &own, &workspace, OsStr::new(probes), &args);
    let protected = ProtectedFiles::default();
    let before = protected.before(&[&workspace]);
    let start = |program: &OsStr, args: &[OsString]| {
        let mut command = Command::new(program);
        command.args(args).envs(launch.env.clone()).current_dir(&workspace).spawn()
    };
    let child = if kind == "thread" {
        let thread = ThreadLaunch::of(&launch.args).expect("launcher arguments");
        let cwd = workspace.clone();
        thread.spawn(move |command| command.current_dir(cwd).spawn())
    } else if let Some(at) = launch.launcher.filter(|_| kind != "bwrap") {
        start(
            &launch.program,
            &Launch::supervised(&launch.args, at, [INSIDE_ARG, "supervisor"].map(Into::into)),
        )
    } else {
        start(&launch.program, &launch.args)
    };
    let status = child.and_then(|mut child| child.wait()).expect("starts");
    // Restrictions of a thread do not apply to the whole process.
    fs::write(outside.join("by the process"), "").expect("is unrestricted");
    if profile == Profile::Workspace {
        before.set_aside(&protected);
    }
    let _ = target.kill();
    let _ = target.wait();
    assert!(status.success(), "{status}");
}

/// The supervisor inside the namespaces can be neither read nor ended by the command.
fn spares_its_supervisor(policy: &Policy, layers: &Layers, own: &Path) {
    let line = "cat /proc/1/environ /proc/1/maps; readlink /proc/1/fd/*; kill -9 1; kill -STOP 1; echo alive";
    let args = ["-c".into(), line.into()];
    let launch = Launch::new(policy, layers, own, &policy.workspace, OsStr::new("sh"), &args);
    let at = launch.launcher.expect("it is inside");
    let words = [INSIDE_ARG, "supervisor"].map(OsString::from);
    let mut command = Command::new(&launch.program);
    command
        .args(Launch::supervised(&launch.args, at, words))
        .env("CANARY", "x")
        .current_dir(&policy.workspace);
    let output = command.stdin(Stdio::null()).output().expect("starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "alive", "{errors}");
    assert!(output.status.success(), "{errors}");
}

/// Checks that permitted actions work in a profile, and that the command sees refusals.
fn works(policy: &Policy, layers: &Layers, own: &Path) {
    let run = |line: &str| {
        let args = ["-c".into(), line.into()];
        let launch = Launch::new(policy, layers, own, &policy.workspace, OsStr::new("sh"), &args);
        let mut command = Command::new(&launch.program);
        command.args(&launch.args).envs(launch.env).current_dir(&policy.workspace).stdin(Stdio::null());
        let output = command.output().expect("starts");
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        (output.status.code(), text, String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, text, errors) =
        run("cat file | tr a-z A-Z && echo && ls -d /usr && cat /proc/self/comm && exit 3");
    assert_eq!((code, text.as_str()), (Some(3), "CANARY\n/usr\ncat"), "{errors}");
    let (code, _, errors) = run("cat .env");
    if policy.profile == Profile::Read || layers.bwrap.is_some() {
        assert_eq!(code, Some(1), "a masked file is an error: {errors}");
    }
    let (code, text, errors) =
        run("mkdir made && echo x >made/file && chmod +x made/file && rm -r made && echo ok");
    match policy.profile {
        Profile::Workspace => assert_eq!((code, text.as_str()), (Some(0), "ok"), "{errors}"),
        Profile::Read | Profile::Outside => assert_ne!(code, Some(0)),
    }
    let (code, _, _) = run("missing-program");
    assert_eq!(code, Some(127));
}
