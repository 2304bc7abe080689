//! `aye doctor --selftest`: tries on this machine what aye relies on, in a folder of its own, and prints a report to paste
//! into an issue.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use aye_platform::{LockFolder, LockState};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::cli::start::StartFlags;
use crate::contract::display::visible_line;
use crate::contract::judgement::Profile;
use crate::contract::tool::SpawnContext;
use crate::failure::Failure;
use crate::program::foundation::Foundation;
use crate::program::foundation::open_store_at;
use crate::program::programs::ProjectPrograms;
use crate::program::put;
use crate::tools::exec::{self, ExecConfig, ExecRequest, ExecResult};

/// How long a probe may take that waits for another process.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a command may run that is to be stopped: long enough to start on a machine with much to do.
const LIMIT: Duration = Duration::from_secs(3);
/// What a file contains that a sandboxed command must not see.
const MARK: &str = "seen from the sandbox";

/// Why a probe did not succeed.
enum Why {
    /// What aye relies on does not hold.
    Failed(String),
    /// The system doesn't have it; aye knows, and does without.
    Absent(String),
}

type Probe = Result<(), Why>;

/// Fails with a sentence unless something holds.
fn holds(is_true: bool, otherwise: impl FnOnce() -> String) -> Probe {
    if is_true { Ok(()) } else { Err(Why::Failed(otherwise())) }
}

fn failed(error: impl std::fmt::Display) -> Why {
    Why::Failed(error.to_string())
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    Ok,
    Failed,
    Absent,
}

#[derive(Serialize)]
struct Row {
    area: &'static str,
    name: &'static str,
    outcome: Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

#[derive(Default)]
struct Report(Vec<Row>);

impl Report {
    fn add(&mut self, area: &'static str, name: &'static str, probe: Probe) {
        let (outcome, why) = match probe {
            Ok(()) => (Outcome::Ok, None),
            Err(Why::Failed(why)) => (Outcome::Failed, Some(why)),
            Err(Why::Absent(why)) => (Outcome::Absent, Some(why)),
        };
        self.0.push(Row { area, name, outcome, why });
    }
}

/// Carries out the command. Returns the exit status: 1 if a probe failed.
pub(super) async fn run(json: bool, mut foundation: Foundation, cli: &StartFlags) -> Result<u8, Failure> {
    let top = tempfile::Builder::new().prefix("aye-selftest-").tempdir();
    let top = top.map_err(|error| Failure::failed(format!("cannot make a folder for the test: {error}")))?;
    let folder = top.path().canonicalize().map_err(|error| Failure::failed(error.to_string()))?;
    let mut report = Report::default();
    Commands { folder: folder.clone(), config: supervised(&folder) }.probe(&mut report).await;
    clock(&mut report);
    terminal(&mut report);
    files(&mut report, &folder);
    locks(&mut report, &folder);
    store(&mut report, &folder).await;
    sandbox(&mut report, &folder, &mut foundation, cli).await;
    keyring(&mut report).await;
    let has_failed = report.0.iter().any(|row| matches!(row.outcome, Outcome::Failed));
    if json {
        let text = serde_json::to_string_pretty(&report.0).unwrap_or_default();
        put(&format!("{text}\n"))?;
    } else {
        put(&text_of(&report.0))?;
    }
    Ok(u8::from(has_failed))
}

fn text_of(rows: &[Row]) -> String {
    let portable = if aye_platform::IS_PORTABLE { ", portable" } else { "" };
    let (system, cpu) = (std::env::consts::OS, std::env::consts::ARCH);
    let mut text = format!("aye {} on {system} {cpu}{portable}\n", env!("CARGO_PKG_VERSION"));
    let mut count = [0; 3];
    for row in rows {
        let (word, at) = match row.outcome {
            Outcome::Ok => ("ok      ", 0),
            Outcome::Failed => ("FAILED  ", 1),
            Outcome::Absent => ("not here", 2),
        };
        count[at] += 1;
        let why = row.why.as_deref().map(|why| format!(": {}", visible_line(why))).unwrap_or_default();
        let _ = writeln!(text, "{word}  {:<9}  {}{why}", row.area, row.name);
    }
    let _ = writeln!(text, "{} ok, {} failed, {} not here", count[0], count[1], count[2]);
    text
}

fn supervised(folder: &Path) -> ExecConfig {
    ExecConfig {
        supervisor: aye_platform::own_program(&folder.join("programs")),
        grace: Duration::from_millis(300),
        ..ExecConfig::default()
    }
}

/// Whether a process is there that has not ended.
fn lives(pid: i32) -> bool {
    aye_platform::process(pid).is_some_and(|process| !process.is_over())
}

/// Waits until something holds.
async fn becomes(holds: impl Fn() -> bool) -> bool {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        if Instant::now() > end {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    true
}

/// Commands below a supervisor.
struct Commands {
    folder: PathBuf,
    config: ExecConfig,
}

impl Commands {
    fn request(&self, script: &str) -> ExecRequest {
        let env = ["PATH", "HOME"].iter().filter_map(|name| Some(((*name).into(), std::env::var_os(name)?)));
        ExecRequest {
            program: "/bin/sh".into(),
            args: vec!["-c".into(), script.into()],
            cwd: self.folder.clone(),
            env: env.collect(),
            timeout: PATIENCE,
            max_output: 10_000,
            output_dir: None,
            on_behalf: SpawnContext::default(),
            launcher: None,
            limits: None,
            frozen: None,
        }
    }

    async fn result(&self, request: ExecRequest) -> Result<ExecResult, Why> {
        exec::run(&self.config, request, |_| {}, &CancellationToken::new()).await.map_err(failed)
    }

    async fn of(&self, script: &str) -> Result<ExecResult, Why> {
        self.result(self.request(script)).await
    }

    async fn probe(&self, report: &mut Report) {
        let mut add = |name, probe| report.add("commands", name, probe);
        let visible =
            aye_platform::cannot_see_processes().map_or(Ok(()), |why| Err(Why::Failed(why.to_owned())));
        add("processes can be seen", visible);
        add("an exit status arrives", self.exit_status().await);
        add("a signal that ends a command is named", self.ending_signal().await);
        add("both outputs arrive in order", self.output().await);
        add("a command gets only the variables that are meant for it", self.variables().await);
        let (timeout, stubborn) = tokio::join!(self.timeout(), self.stubborn());
        add("a command that takes too long is stopped with what it started", timeout);
        add("what a command leaves running is stopped", self.left_behind().await);
        add("a daemon that leaves its session is stopped", self.daemon().await);
        add("a command that ignores TERM is killed", stubborn);
        add("a cancelled command is stopped", self.cancelled().await);
        add("a command ends when nobody waits for it any more", self.abandoned().await);
    }

    async fn exit_status(&self) -> Probe {
        let result = self.of("exit 7").await?;
        holds(result.exit_code == Some(7), || format!("{:?} instead of 7", result.exit_code))
    }

    async fn ending_signal(&self) -> Probe {
        let result = self.of("kill -9 $$").await?;
        holds(result.signal == Some(9), || format!("{:?} instead of 9", result.signal))
    }

    async fn output(&self) -> Probe {
        let result = self.of("echo one; echo two >&2; echo three").await?;
        holds(result.output.trim_end() == "one\ntwo\nthree", || format!("{:?}", result.output))
    }

    async fn variables(&self) -> Probe {
        let result = self.of("env").await?;
        let is_known = |line: &str| {
            let name = line.split('=').next().unwrap_or_default();
            ["PATH", "HOME", "PWD", "OLDPWD", "SHLVL", "_", "__CF_USER_TEXT_ENCODING"].contains(&name)
        };
        match result.output.lines().find(|line| !is_known(line)) {
            None => Ok(()),
            Some(line) => Err(Why::Failed(line.to_owned())),
        }
    }

    /// Runs a script that writes the number of a process to a file; gives that number once it stands there.
    fn pid_in(&self, file: &str) -> Option<i32> {
        fs::read_to_string(self.folder.join(file)).ok()?.trim().parse().ok()
    }

    async fn timeout(&self) -> Probe {
        let script = "sleep 300 & echo $! > slow; wait";
        let request = ExecRequest { timeout: LIMIT, ..self.request(script) };
        let result = self.result(request).await?;
        let pid = self.pid_in("slow").ok_or_else(|| failed("it did not start"))?;
        holds(result.timed_out && !lives(pid), || {
            format!("timed out: {}, left: {}", result.timed_out, lives(pid))
        })
    }

    async fn left_behind(&self) -> Probe {
        let result = self.of("sleep 301 & echo $! > left").await?;
        let pid = self.pid_in("left").ok_or_else(|| failed("it did not start"))?;
        let named = result.left_behind.iter().any(|line| line.contains("sleep"));
        holds(named && !lives(pid), || format!("named: {:?}, alive: {}", result.left_behind, lives(pid)))
    }

    async fn daemon(&self) -> Probe {
        if !aye_platform::ADOPTS_ORPHANS {
            return Err(Why::Absent("such a process can escape here".to_owned()));
        }
        self.of("(setsid sh -c 'echo $$ > daemon; exec sleep 302' &) ; while [ ! -s daemon ]; do :; done")
            .await?;
        let pid = self.pid_in("daemon").ok_or_else(|| failed("it did not start"))?;
        holds(!lives(pid), || "it is alive".to_owned())
    }

    async fn stubborn(&self) -> Probe {
        let script = "trap '' TERM; echo $$ > stubborn; while :; do sleep 1; done";
        let request = ExecRequest { timeout: LIMIT, ..self.request(script) };
        self.result(request).await?;
        let pid = self.pid_in("stubborn").ok_or_else(|| failed("it did not start"))?;
        holds(!lives(pid), || "it is alive".to_owned())
    }

    async fn cancelled(&self) -> Probe {
        let cancel = CancellationToken::new();
        let request = self.request("echo $$ > cancelled; exec sleep 303");
        let runs = exec::run(&self.config, request, |_| {}, &cancel);
        let cancels = async {
            becomes(|| self.pid_in("cancelled").is_some()).await;
            cancel.cancel();
        };
        let (result, ()) = tokio::join!(runs, cancels);
        let pid = self.pid_in("cancelled").ok_or_else(|| failed("it did not start"))?;
        let is_cancelled = result.map_err(failed)?.cancelled;
        holds(is_cancelled && !lives(pid), || format!("cancelled: {is_cancelled}, alive: {}", lives(pid)))
    }

    async fn abandoned(&self) -> Probe {
        let cancel = CancellationToken::new();
        {
            let request = self.request("echo $$ > abandoned; exec sleep 304");
            let runs = exec::run(&self.config, request, |_| {}, &cancel);
            tokio::select! {
                _ = runs => {}
                _ = becomes(|| self.pid_in("abandoned").is_some()) => {}
            }
        }
        let pid = self.pid_in("abandoned").ok_or_else(|| failed("it did not start"))?;
        holds(becomes(|| !lives(pid)).await, || "it is alive".to_owned())
    }
}

fn clock(report: &mut Report) {
    let mut add = |name, probe| report.add("clock", name, probe);
    let (up, awake, at) = (aye_platform::uptime_ms(), aye_platform::awake_ms(), Instant::now());
    while at.elapsed() < Duration::from_millis(20) {
        std::hint::spin_loop();
    }
    let (up, awake) =
        (aye_platform::uptime_ms().saturating_sub(up), aye_platform::awake_ms().saturating_sub(awake));
    add("the clock of leases runs", holds((19..5_000).contains(&up), || format!("{up} ms in 20 ms")));
    add("the clock of work runs", holds((19..5_000).contains(&awake), || format!("{awake} ms in 20 ms")));
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_secs());
    // 2026-01-01.
    add("the date is plausible", holds(now > 1_767_225_600, || format!("{now} s since 1970")));
}

fn terminal(report: &mut Report) {
    let ends = || -> std::io::Result<String> {
        let (owner, program) = aye_platform::open_terminal()?;
        let (mut owner, mut program) = (fs::File::from(owner), fs::File::from(program));
        program.write_all(b"one")?;
        let mut read = [0; 16];
        let length = owner.read(&mut read)?;
        owner.write_all(b"two\n")?;
        let mut typed = [0; 16];
        let more = program.read(&mut typed)?;
        Ok(format!("{}{}", String::from_utf8_lossy(&read[..length]), String::from_utf8_lossy(&typed[..more])))
    };
    let probe = ends().map_err(failed).and_then(|read| holds(read == "onetwo\n", || format!("{read:?}")));
    report.add("terminal", "a command can have a terminal", probe);
}

fn files(report: &mut Report, folder: &Path) {
    let mut add = |name, probe| report.add("files", name, probe);
    let renames = || -> std::io::Result<bool> {
        let (one, other) = (folder.join("rename-1"), folder.join("rename-2"));
        fs::write(&one, "1")?;
        fs::write(&other, "2")?;
        let open = fs::File::open(folder)?;
        let refused = aye_platform::rename_new(&open, Path::new("rename-1"), Path::new("rename-2"));
        Ok(refused.is_err() && fs::read(&other)? == b"2")
    };
    add(
        "a new file replaces none",
        renames().map_err(failed).and_then(|is| holds(is, || "it did".to_owned())),
    );
    let follows = || -> std::io::Result<bool> {
        fs::create_dir(folder.join("real"))?;
        fs::write(folder.join("real/x"), "x")?;
        symlink("real", folder.join("link"))?;
        Ok(aye_files::opener::open(&folder.join("link/x"), rustix::fs::OFlags::RDONLY).is_ok())
    };
    let probe = follows().map_err(failed).and_then(|is| holds(!is, || "it was".to_owned()));
    add("a folder that became a link is not followed", probe);
    let private = || -> std::io::Result<u32> {
        let path = folder.join("private");
        crate::config::write_private(&path, b"key").map_err(std::io::Error::other)?;
        Ok(path.metadata()?.permissions().mode() & 0o777)
    };
    let probe = private().map_err(failed).and_then(|mode| holds(mode == 0o600, || format!("mode {mode:o}")));
    add("a private file is private", probe);
    let network = aye_platform::network_kind(folder);
    add(
        "the folder for temporary files is on this machine",
        holds(network.is_none(), || network.unwrap_or_default()),
    );
}

fn locks(report: &mut Report, folder: &Path) {
    let locks = LockFolder::new(folder.join("locks"));
    let probe = || -> std::io::Result<(LockState, LockState)> {
        let held = locks.hold("selftest")?;
        let while_held = locks.state("selftest");
        drop(held);
        Ok((while_held, locks.state("selftest")))
    };
    let is_right =
        |states: &(LockState, LockState)| states.0 == LockState::Held && states.1 != LockState::Held;
    let probe = probe().map_err(failed).and_then(|states| holds(is_right(&states), || format!("{states:?}")));
    report.add("store", "a lock shows whether its process is alive", probe);
}

/// A store of its own, and a second process that writes to it.
async fn store(report: &mut Report, folder: &Path) {
    let home = folder.join("home");
    let database = home.join("data/aye.db");
    let mut add = |name, probe| report.add("store", name, probe);
    let run = |args: &[&str]| -> Result<String, Why> {
        let program = aye_platform::own_program(&folder.join("programs"))
            .ok_or_else(|| failed("the program's path is not known"))?;
        let mut command = Command::new(program);
        command.args(args).env_clear().current_dir(&home).stdin(Stdio::null());
        command
            .env("HOME", &home)
            .env("AYE_HOME", &home)
            .env("PATH", std::env::var_os("PATH").unwrap_or_default());
        let output = command.output().map_err(failed)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        holds(output.status.success(), || complaint).map(|()| text)
    };
    let made = fs::create_dir_all(&home).map_err(failed);
    let first = made.and_then(|()| run(&["--model", "demo", "-p", "help"]));
    let is_stored = first.and_then(|answer| {
        holds(answer.contains("demo model"), || answer)?;
        let listed = run(&["threads", "list", "--json"])?;
        holds(listed.contains("\"title\""), || listed)
    });
    let can_go_on = is_stored.is_ok();
    add("a conversation is stored and found again", is_stored);
    if !can_go_on {
        return;
    }
    let opened = open_store_at(&database);
    let Ok(store) = opened else {
        add("two processes open one store", opened.map(drop).map_err(failed));
        return;
    };
    add("two processes open one store", Ok(()));
    let sound = store.check().await;
    let probe = sound.map_err(failed).and_then(|found| holds(found.is_empty(), || found.join("; ")));
    add("the store is sound", probe);
    let noticed = match store.watch() {
        Err(error) => Err(failed(error)),
        Ok(mut feed) => match run(&["--model", "demo", "-p", "help"]) {
            Err(why) => Err(why),
            Ok(_) => match tokio::time::timeout(PATIENCE, feed.next()).await {
                Ok(_) => Ok(()),
                Err(_) => Err(failed("nothing arrived")),
            },
        },
    };
    add("a commit of another process is noticed", noticed);
    store.close().await;
}

/// What a sandboxed command can and cannot do.
async fn sandbox(report: &mut Report, folder: &Path, foundation: &mut Foundation, cli: &StartFlags) {
    let mut add = |name, probe| report.add("sandbox", name, probe);
    const INSIDE: &str = "a command writes in its project";
    let root = folder.join("project");
    if let Err(error) = fs::create_dir(&root) {
        add(INSIDE, Err(failed(error)));
        return;
    }
    foundation.workspace.cwd.clone_from(&root);
    foundation.workspace.root.clone_from(&root);
    let programs = match ProjectPrograms::alone(foundation, cli) {
        Ok(programs) => programs,
        Err(failure) => {
            add(INSIDE, Err(failed(failure.message)));
            return;
        }
    };
    let Some(held) = programs.env.sandbox.clone() else {
        add(INSIDE, Err(Why::Absent("it is off (sandbox.enabled)".to_owned())));
        return;
    };
    if let Some(why) = held.problem(Profile::Workspace, false, &root) {
        add(INSIDE, Err(Why::Absent(why)));
        return;
    }
    let elsewhere = foundation.workspace.home.join(format!(".aye-selftest-{}", std::process::id()));
    let listener = std::net::TcpListener::bind("127.0.0.1:0");
    let port =
        listener.as_ref().ok().and_then(|listener| listener.local_addr().ok()).map_or(0, |at| at.port());
    let commands = Commands { folder: root.clone(), config: supervised(&root) };
    let sandboxed = async |script: &str| -> Result<ExecResult, Why> {
        let none: [(&str, &str); 0] = [];
        let env = programs.env.env_in(Some(Profile::Workspace), none);
        let request = ExecRequest { env, ..commands.request(script) };
        let (request, _kept) = programs.confine(request, Profile::Workspace, &[]).await.map_err(failed)?;
        commands.result(request).await
    };
    let written = sandboxed("echo in > inside && cat inside").await;
    add(INSIDE, written.and_then(|result| holds(result.is_success(), || result.output)));
    let script = format!("echo out > '{}'", elsewhere.display());
    let result = sandboxed(&script).await;
    let is_there = fs::remove_file(&elsewhere).is_ok();
    add("nothing is written outside of it", result.and_then(|_| holds(!is_there, || "it was".to_owned())));
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port} && echo reached");
    let request = format!("bash -c '{script}'");
    let reached = sandboxed(&request).await;
    let probe = reached.and_then(|result| holds(!result.output.contains("reached"), || "it was".to_owned()));
    add("this machine's ports are not reached", probe);
    let marked = folder.join("of-the-host");
    let is_marked = fs::write(&marked, MARK).is_ok();
    let shown = sandboxed(&format!("cat '{}'", marked.display())).await;
    let probe = shown.and_then(|result| {
        holds(is_marked && !result.output.contains(MARK), || "a command reads those of others".to_owned())
    });
    add("its temporary files are its own", probe);
}

async fn keyring(report: &mut Report) {
    let reached = crate::program::keyring::Keyring::system().reach().await;
    report.add("keyring", "the keyring responds", reached.map_err(|why| Why::Absent(why.to_string())));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_counts_and_says_why() {
        let mut report = Report::default();
        report.add("clock", "it runs", Ok(()));
        report.add("store", "it opens", Err(Why::Failed("no\nroom".into())));
        report.add("keyring", "it is there", Err(Why::Absent("no session".into())));
        let text = text_of(&report.0);
        assert!(text.contains("FAILED    store      it opens: no"), "{text}");
        assert!(text.ends_with("1 ok, 1 failed, 1 not here\n"), "{text}");
    }
}
