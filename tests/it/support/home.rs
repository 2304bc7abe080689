//! A separate home for the program, a working folder, and runs of the real binary in them.

use std::fs::Permissions;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::llm::{MockLlm, PATIENCE};

/// A temporary folder with a home, settings and a workspace.
pub struct Home {
    dir: tempfile::TempDir,
}

impl Home {
    /// Without any model except the demo.
    pub fn new() -> Self {
        default_signals();
        let dir = tempfile::Builder::new().prefix("aye-it-").tempdir().expect("a folder");
        for name in ["work", "home", "aye/config"] {
            std::fs::create_dir_all(dir.path().join(name)).expect("a folder");
        }
        // The first start asks questions; tests of it remove this.
        std::fs::create_dir_all(dir.path().join("aye/state")).expect("a folder");
        let started = dir.path().join("aye/state/started");
        std::fs::write(&started, "").expect("written");
        std::fs::set_permissions(&started, Permissions::from_mode(0o600)).expect("is our file");
        Self { dir }
    }

    /// With this server as its model.
    pub fn with(llm: &MockLlm) -> Self {
        let home = Self::new();
        home.model(llm);
        home
    }

    /// The same home with this server as its model.
    pub fn model(&self, llm: &MockLlm) {
        self.config(&format!(
            "model = \"mock/m1\"\n[providers.mock]\nadapter = \"openai\"\nbase_url = \"{}\"\n\
             api_key_env = \"MOCK_KEY\"\n[retry]\nmax_retries = 0\n",
            llm.url
        ));
    }

    pub fn config(&self, text: &str) {
        // Title requests would disturb scripted answers.
        let titles = if text.contains("[threads]") { "" } else { "\n[threads]\ntitles = false\n" };
        // Nor does a scripted model expect to be reminded before its end.
        let text = &match text.split_once("[stop]\n") {
            _ if text.contains("check_before_end") => text.to_owned(),
            Some((before, after)) => format!("{before}[stop]\ncheck_before_end = false\n{after}"),
            None => format!("{text}\n[stop]\ncheck_before_end = false\n"),
        };
        // A test must not depend on the machine's kernel.
        let missing = if text.contains("[sandbox]") { "" } else { "\n[sandbox]\nmissing = \"allow\"\n" };
        std::fs::write(self.dir.path().join("aye/config/config.toml"), format!("{text}{titles}{missing}"))
            .expect("written");
    }

    pub fn rules(&self, text: &str) {
        std::fs::write(self.dir.path().join("aye/config/permissions.yaml"), text).expect("written");
    }

    pub fn root(&self) -> &Path {
        self.dir.path()
    }

    pub fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    /// Writes a workspace file.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.work().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, text).expect("written");
    }

    /// Runs git in the workspace.
    pub fn git(&self, args: &[&str]) {
        let out = std::process::Command::new("git")
            .args(["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"])
            .args(args)
            .current_dir(self.work())
            .env("HOME", self.root())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .output()
            .expect("git is installed");
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    }

    /// Reads a workspace file; empty if it does not exist.
    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.work().join(name)).unwrap_or_default()
    }

    pub fn env(&self) -> Vec<(String, String)> {
        let path = |name: &str| self.dir.path().join(name).to_string_lossy().into_owned();
        [
            ("PATH", std::env::var("PATH").unwrap_or_default()),
            ("HOME", path("home")),
            ("AYE_HOME", path("aye")),
            ("LANG", "C.UTF-8".into()),
            ("TERM", "xterm-256color".into()),
            ("USER", "tester".into()),
            ("TZ", "UTC".into()),
            ("MOCK_KEY", "sk-mock-secret".into()),
            ("NO_PROXY", "*".into()),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
    }

    /// A run of the program.
    pub fn aye(&self, args: &[&str]) -> Aye {
        let aye = self.program(env!("CARGO_BIN_EXE_aye"), args);
        Aye { what: format!("aye {}", args.join(" ")), ..aye }
    }

    /// A run of another program in this home, which may start aye.
    pub fn program(&self, name: &str, args: &[&str]) -> Aye {
        let mut command = Command::new(name);
        command.args(args).current_dir(self.work()).env_clear().envs(self.env());
        Aye { command, stdin: None, is_stdin_open: false, what: format!("{name} {}", args.join(" ")) }
    }

    /// The log of the program.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.root().join("aye/state/log/aye.log")).unwrap_or_default()
    }

    /// A run of the program in a pid namespace of its own, as in a container that shares this home. `None` where this is
    /// not possible: the test then says so.
    pub fn contained(&self, args: &[&str]) -> Option<Aye> {
        let unshare = |command: &mut Command, program: &str| {
            command.args(["--pid", "--fork", "--kill-child", "--mount-proc", program]);
        };
        let mut probe = Command::new("unshare");
        unshare(&mut probe, "true");
        if !probe.output().is_ok_and(|out| out.status.success()) {
            let _ = writeln!(
                std::io::stderr(),
                "skipped: `unshare --pid --fork --mount-proc` needs root and is not possible here"
            );
            return None;
        }
        let mut command = Command::new("unshare");
        unshare(&mut command, env!("CARGO_BIN_EXE_aye"));
        command.args(args).current_dir(self.work()).env_clear().envs(self.env());
        Some(Aye {
            command,
            stdin: None,
            is_stdin_open: false,
            what: format!("contained aye {}", args.join(" ")),
        })
    }

    /// Runs it and expects success.
    pub fn ok(&self, args: &[&str]) -> Out {
        self.aye(args).run().exits(0)
    }

    /// Whether a process in the workspace has the text in its command line.
    pub fn works(&self, text: &str) -> bool {
        let work = self.work().canonicalize().expect("a folder");
        std::fs::read_dir("/proc").expect("processes are listed").flatten().any(|entry| {
            std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == work)
                && std::fs::read(entry.path().join("cmdline"))
                    .is_ok_and(|line| String::from_utf8_lossy(&line).replace('\0', " ").contains(text))
        })
    }

    /// The pending questions.
    pub fn open(&self) -> Vec<Value> {
        let list = self.ok(&["approvals", "list", "--json"]).json();
        list.as_array().expect("a list").clone()
    }

    /// The id of the only pending question.
    pub fn question(&self) -> String {
        let open = self.open();
        assert_eq!(open.len(), 1, "{open:#?}");
        id_of(&open[0])
    }

    /// The id of the latest thread.
    pub fn thread(&self) -> String {
        let list = self.ok(&["threads", "list", "--json"]).json();
        let id = list[0]["thread"]["id"].as_str().or_else(|| list[0]["id"].as_str());
        id.unwrap_or_else(|| panic!("no thread: {list:#}")).to_owned()
    }
}

/// Gives started programs the signals as a terminal's shell would. A script's background job ignores SIGINT,
/// and its children inherit that; a signal that is handled here is not ignored there.
fn default_signals() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let ignored = status
            .lines()
            .find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok())
            .unwrap_or_default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let _inside = runtime.enter();
        for signal in [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM] {
            let number = signal.as_raw();
            if ignored & (1 << (number - 1)) != 0 {
                // The handler stays even if nobody waits for it any more.
                drop(tokio::signal::unix::signal(number.into()).expect("a handler"));
            }
        }
    });
}

pub fn id_of(suspension: &Value) -> String {
    suspension["id"].as_str().expect("an id").to_owned()
}

/// A run that is about to start.
pub struct Aye {
    command: Command,
    stdin: Option<Vec<u8>>,
    is_stdin_open: bool,
    pub what: String,
}

impl Aye {
    pub fn stdin(mut self, text: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(text.into());
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Leaves its stdin open, as a pipe to write into.
    pub fn open_stdin(mut self) -> Self {
        self.is_stdin_open = true;
        self
    }

    pub fn spawn(mut self) -> Running {
        let is_piped = self.stdin.is_some() || self.is_stdin_open;
        let stdin = if is_piped { Stdio::piped() } else { Stdio::null() };
        self.command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A program that the test wrote just now is busy until the processes that another test forked meanwhile have
        // executed theirs.
        let mut child = loop {
            match self.command.spawn() {
                Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                    std::thread::yield_now();
                }
                started => break started.expect("the program starts"),
            }
        };
        if let Some(text) = self.stdin
            && let Some(mut stdin) = child.stdin.take()
        {
            std::thread::spawn(move || stdin.write_all(&text));
        }
        let stdout = BufReader::new(child.stdout.take().expect("stdout"));
        let mut stderr = child.stderr.take().expect("stderr");
        let (send, errors) = mpsc::channel();
        let told: Told = Arc::default();
        let writer = Arc::clone(&told);
        std::thread::spawn(move || {
            let (mut text, mut bytes) = (Vec::new(), [0; 4096]);
            while let Ok(read @ 1..) = stderr.read(&mut bytes) {
                text.extend_from_slice(&bytes[..read]);
                *writer.0.lock().expect("not poisoned") = String::from_utf8_lossy(&text).into_owned();
                writer.1.notify_all();
            }
            let _ = send.send(String::from_utf8_lossy(&text).into_owned());
        });
        Running { child, stdout: Some(stdout), errors, told, seen: String::new(), what: self.what }
    }

    /// Runs it to its end.
    pub fn run(self) -> Out {
        self.spawn().end()
    }
}

/// The text that a run has written to stderr so far.
type Told = Arc<(Mutex<String>, Condvar)>;

/// A started run.
pub struct Running {
    child: Child,
    /// `None` once closed.
    stdout: Option<BufReader<ChildStdout>>,
    errors: mpsc::Receiver<String>,
    told: Told,
    seen: String,
    pub what: String,
}

/// A test that fails leaves no program behind.
impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    /// Reads lines of stdout until one contains the text, and returns that line.
    pub fn until_line(&mut self, text: &str) -> String {
        loop {
            let mut line = String::new();
            let read = self.stdout.as_mut().expect("open").read_line(&mut line).expect("stdout");
            self.seen.push_str(&line);
            assert!(read > 0, "{}: {text:?} did not arrive: {}", self.what, self.seen);
            if line.contains(text) {
                return line;
            }
        }
    }

    /// The current content of stderr.
    pub fn told(&self) -> String {
        self.told.0.lock().expect("not poisoned").clone()
    }

    /// Waits until stderr contains the text.
    #[track_caller]
    pub fn until_told(&self, text: &str) {
        let told = self.told.0.lock().expect("not poisoned");
        let (told, waited) = self
            .told
            .1
            .wait_timeout_while(told, PATIENCE, |told| !told.contains(text))
            .expect("not poisoned");
        assert!(!waited.timed_out(), "{}: {text:?} is not reported: {told}", self.what);
    }

    /// Stops reading its output.
    pub fn close_stdout(&mut self) {
        self.stdout = None;
    }

    /// Writes to the open stdin.
    pub fn write_stdin(&mut self, text: &str) {
        self.child.stdin.as_mut().expect("open").write_all(text.as_bytes()).expect("written");
    }

    /// Writes to the open stdin of a program that may have ended.
    pub fn try_write_stdin(&mut self, text: &str) {
        let _ = self.child.stdin.as_mut().expect("open").write_all(text.as_bytes());
    }

    pub fn close_stdin(&mut self) {
        self.child.stdin = None;
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("is alive");
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether a signal has stopped it.
    pub fn is_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
    }

    /// Waits until it is stopped; `false` if it ends instead.
    pub fn until_stopped(&mut self) -> bool {
        loop {
            if self.is_stopped() {
                return true;
            }
            if self.child.try_wait().expect("a child").is_some() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Stops it after a while, and lets it continue after another.
    pub fn pause(&mut self, after: Duration, length: Duration) {
        std::thread::sleep(after);
        // An ended process still exists until it is waited for.
        self.signal(Signal::STOP);
        std::thread::sleep(length);
        self.signal(Signal::CONT);
    }

    /// Kills it after a while, unless it has ended before.
    pub fn kill_after(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            if self.child.try_wait().expect("a child").is_some() {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = self.child.kill();
    }

    /// Waits for its end.
    pub fn end(mut self) -> Out {
        let (send, watch) = mpsc::channel::<()>();
        let pid = Pid::from_child(&self.child);
        let watchdog = std::thread::spawn(move || {
            if watch.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
                let _ = kill_process(pid, Signal::KILL);
                return true;
            }
            false
        });
        let mut stdout = std::mem::take(&mut self.seen);
        let mut rest = Vec::new();
        if let Some(open) = &mut self.stdout {
            open.read_to_end(&mut rest).expect("stdout");
        }
        stdout.push_str(&String::from_utf8_lossy(&rest));
        let status = self.child.wait().expect("a child");
        let _ = send.send(());
        let hung = watchdog.join().expect("not poisoned");
        let stderr = self.errors.recv_timeout(PATIENCE).unwrap_or_else(|_| "(stderr stays open)".into());
        assert!(!hung, "{} hangs\n--- stdout\n{stdout}\n--- stderr\n{stderr}", self.what);
        Out { what: self.what.clone(), status, stdout, stderr }
    }
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Out {
    pub what: String,
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Out {
    /// Expects it to be ended by a signal: by the kernel, or with the equivalent exit status.
    #[track_caller]
    pub fn ends_by(self, signal: Signal) {
        let number = signal.as_raw();
        let is_it = self.status.signal() == Some(number) || self.status.code() == Some(128 + number);
        assert!(is_it, "{}: {}\n--- stderr\n{}", self.what, self.status, self.stderr);
    }

    /// Expects this exit status.
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(
            self.status.code(),
            Some(code),
            "{}: {}\n--- stdout\n{}\n--- stderr\n{}",
            self.what,
            self.status,
            self.stdout,
            self.stderr
        );
        self
    }

    pub fn was_killed(&self) -> bool {
        self.status.signal() == Some(9)
    }

    /// Expects this text on stderr.
    #[track_caller]
    pub fn says(self, text: &str) -> Self {
        assert!(self.stderr.contains(text), "{}: {text:?} is not in: {}", self.what, self.stderr);
        self
    }

    /// Expects this text on stdout.
    #[track_caller]
    pub fn prints(self, text: &str) -> Self {
        assert!(self.stdout.contains(text), "{}: {text:?} is not in: {}", self.what, self.stdout);
        self
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|e| panic!("{}: {e}: {}\n{}", self.what, self.stdout, self.stderr))
    }

    /// The lines of stdout as JSON.
    #[track_caller]
    pub fn lines(&self) -> Vec<Value> {
        let line = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        self.stdout.lines().map(line).collect()
    }

    /// The kinds of the events of a stream, with outcomes and ends in brackets; repeated deltas count as one.
    #[track_caller]
    pub fn events(&self) -> Vec<String> {
        let mut kinds: Vec<String> = Vec::new();
        for line in self.lines().iter().filter(|line| line["event_type"] != "result") {
            let kind = kind_of(line);
            if kind.contains("delta") && kinds.last() == Some(&kind) {
                continue;
            }
            kinds.push(kind);
        }
        kinds
    }
}

/// The kind of an event, with its outcome or end.
fn kind_of(event: &Value) -> String {
    let name = ["event_type", "type", "event"].iter().find_map(|key| event[*key].as_str());
    let name = name.unwrap_or_else(|| panic!("no event: {event}"));
    let detail = ["outcome", "termination"].iter().find_map(|key| match &event[*key] {
        Value::String(text) => Some(text.clone()),
        Value::Object(map) => {
            map.get("type").and_then(Value::as_str).map(str::to_owned).or_else(|| map.keys().next().cloned())
        }
        _ => None,
    });
    detail.map_or_else(|| name.to_owned(), |detail| format!("{name}({detail})"))
}

/// A `PATH` that begins with a folder that has this program, a shell script.
pub fn with_program(home: &Home, name: &str, script: &str) -> String {
    let bin = home.root().join("bin");
    std::fs::create_dir_all(&bin).expect("a folder");
    let program = bin.join(name);
    std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("written");
    let mode = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
    std::fs::set_permissions(&program, mode).expect("is our file");
    format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default())
}
