//! The real program in a real tmux: a separate server with one pane, in which a shell starts it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::home::Home;
use super::llm::PATIENCE;
use super::pty::Pty;

/// The shell's prompt.
pub const SHELL: &str = "shell>";

/// A temporary tmux server with one pane.
pub struct Tmux {
    pub home: Home,
    socket: PathBuf,
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = self.command(["kill-server"]).output();
    }
}

/// Whether tmux is installed. If it is required, its absence fails the test.
fn is_here() -> bool {
    let here = Command::new("tmux").arg("-V").output().is_ok_and(|out| out.status.success());
    if !here {
        assert!(std::env::var_os("AYE_NEEDS_TMUX").is_none_or(|value| value != "1"), "tmux is missing");
        #[expect(clippy::print_stderr, reason = "a skipped test says so")]
        {
            eprintln!("not tested, because tmux is not here");
        }
    }
    here
}

impl Tmux {
    /// Starts a shell at its prompt in the workspace. `None` without tmux.
    pub fn start(home: Home) -> Option<Self> {
        if !is_here() {
            return None;
        }
        let tmux = Self { socket: home.root().join("tmux"), home };
        let size = ["-x", "100", "-y", "30"];
        let settings = [
            "set -g default-terminal tmux-256color",
            "set -g history-limit 5000",
            "set -g status off",
            "set -g focus-events on",
            "set -g set-clipboard on",
            "set -g mouse on",
            "set -s escape-time 20",
        ];
        // One command line: a server without a session would end.
        let mut line: Vec<&str> = vec!["start-server", ";"];
        line.extend(settings.iter().flat_map(|setting| setting.split(' ').chain([";"])));
        // Replaces the shell that starts it: a kill hits the child of the pane.
        line.extend(["new-session", "-d"].into_iter().chain(size).chain(["exec sh"]));
        tmux.tell(&line);
        // Not every shell takes its prompt from the environment.
        tmux.send(&format!("PS1='{SHELL} '"));
        tmux.key("Enter");
        tmux.wait("a shell", |text| text.trim_end().ends_with(SHELL));
        Some(tmux)
    }

    fn command<I: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = I>) -> Command {
        let bin = Path::new(env!("CARGO_BIN_EXE_aye")).parent().expect("a folder");
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
        let mut command = Command::new("tmux");
        command.arg("-S").arg(&self.socket).args(["-f", "/dev/null"]).args(args);
        command.current_dir(self.home.work()).env_clear().envs(self.home.env());
        // tmux starts panes with the user's shell, which is missing for a user who cannot log in.
        command.env("PATH", path).env("SHELL", "/bin/sh");
        command
    }

    /// Runs a command of the server and returns its output.
    #[track_caller]
    pub fn tell(&self, args: &[&str]) -> String {
        let out = self.command(args).output().expect("tmux runs");
        assert!(out.status.success(), "tmux {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    /// A format variable of the pane.
    #[track_caller]
    pub fn ask(&self, format: &str) -> String {
        self.tell(&["display-message", "-p", &format!("#{{{format}}}")]).trim_end_matches('\n').to_owned()
    }

    /// The rows of the pane.
    pub fn screen(&self) -> String {
        self.tell(&["capture-pane", "-p"])
    }

    /// The rows above the pane and those of the pane; lines broken at its width are joined.
    pub fn all(&self) -> String {
        self.tell(&["capture-pane", "-p", "-J", "-S", "-"])
    }

    /// The number of rows that contain the text, including those above the pane.
    pub fn count(&self, text: &str) -> usize {
        self.all().lines().filter(|line| line.contains(text)).count()
    }

    /// Types text.
    pub fn send(&self, text: &str) {
        self.tell(&["send-keys", "-l", text]);
    }

    /// Presses a key, by its name in tmux.
    pub fn key(&self, name: &str) {
        self.tell(&["send-keys", name]);
    }

    /// Waits until the pane matches.
    #[track_caller]
    pub fn wait(&self, what: &str, mut is: impl FnMut(&str) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is(&self.screen()) {
            assert!(Instant::now() < end, "{what} is not shown:\n{}", self.all());
            std::thread::sleep(Duration::from_millis(15));
        }
    }

    /// Waits for a text anywhere, including above the pane.
    #[track_caller]
    pub fn shows(&self, text: &str) {
        self.wait(text, |screen| screen.contains(text) || self.all().contains(text));
    }

    /// Types a message and sends it.
    #[track_caller]
    pub fn say(&self, text: &str) {
        self.send(text);
        self.wait("the typed text", |screen| screen.contains(text));
        self.key("Enter");
    }

    /// Starts the program in the shell.
    #[track_caller]
    pub fn aye(&self, args: &str) {
        self.run(format!("aye {args}").trim_end());
    }

    /// Starts it with a command line that ends with the program's name.
    #[track_caller]
    pub fn run(&self, line: &str) {
        self.say(line);
        self.wait("the prompt", |screen| screen.lines().any(|line| line.starts_with('❯')));
    }

    /// Waits for a card that contains the text, until it accepts keys.
    #[track_caller]
    pub fn card(&self, text: &str) {
        self.wait(&format!("a card about {text}"), |screen| {
            screen.lines().any(|line| line.starts_with('▌') && line.contains(text))
        });
        // Nothing on the screen shows when the time to read it is over.
        std::thread::sleep(Duration::from_millis(700));
    }

    /// A terminal that shows the pane.
    pub fn attach(&self) -> Pty {
        let socket = self.socket.display().to_string();
        let tty = Pty::run(&self.home, "tmux", &["-S", &socket, "attach"], 100, 30, &[]);
        self.wait_for("a client", || self.ask("session_attached") == "1");
        tty
    }

    /// Waits until the condition is true.
    #[track_caller]
    pub fn wait_for(&self, what: &str, is: impl Fn() -> bool) {
        self.wait(what, |_| is());
    }

    /// The program started by the shell.
    fn child(&self) -> Pid {
        let shell = self.ask("pane_pid");
        let child = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children"));
        let child = child.expect("the shell's children").trim().parse().expect("one child");
        Pid::from_raw(child).expect("a process")
    }

    /// Kills the program started by the shell, without notice.
    pub fn kill_aye(&self) {
        kill_process(self.child(), Signal::KILL).expect("is alive");
    }

    /// Resizes the pane while the program is between two frames, and waits for a frame of that size. tmux has
    /// its new size at once and notifies the program up to a quarter of a second later: frames drawn
    /// meanwhile are for another window, and no program can know.
    #[track_caller]
    pub fn resize_calmly(&self, columns: u16, rows: u16) {
        let child = self.child();
        kill_process(child, Signal::STOP).expect("is alive");
        let state = format!("/proc/{}/stat", child.as_raw_nonzero());
        let (mut before, mut calm) = (String::new(), 0);
        self.wait("the idle state", |screen| {
            let stopped = std::fs::read_to_string(&state).is_ok_and(|stat| stat.contains(") T "));
            calm = if stopped && screen == before { calm + 1 } else { 0 };
            screen.clone_into(&mut before);
            calm > 2
        });
        self.tell(&["resize-window", "-x", &columns.to_string(), "-y", &rows.to_string()]);
        let tty = self.ask("pane_tty");
        self.wait("the pane's new size", |_| {
            let size = Command::new("stty").args(["-F", &tty, "size"]).output();
            size.is_ok_and(|out| String::from_utf8_lossy(&out.stdout).trim() == format!("{rows} {columns}"))
        });
        kill_process(child, Signal::CONT).expect("is alive");
        let width = usize::from(columns);
        self.wait("a frame of the new size", |screen| {
            let mut rules =
                screen.lines().filter(|row| row.chars().all(|c| c == '─')).filter(|r| !r.is_empty());
            let first = rules.next();
            first.is_some_and(|row| row.chars().count() == width)
                && rules.all(|row| row.chars().count() == width)
        });
    }

    /// Waits for the shell, and checks that the pane is as it was before: lines, echo, a cursor, no modes.
    #[track_caller]
    pub fn is_restored(&self) {
        self.wait("the shell", |screen| screen.trim_end().ends_with(SHELL));
        for (mode, value) in [
            ("alternate_on", "0"),
            ("cursor_flag", "1"),
            ("mouse_any_flag", "0"),
            ("mouse_sgr_flag", "0"),
            ("wrap_flag", "1"),
            ("keypad_cursor_flag", "0"),
        ] {
            assert_eq!(self.ask(mode), value, "{mode}");
        }
        self.say("stty -a | tr ' ;' '\\n\\n' | grep -xE '(-?echo|-?icanon|-?isig|-?icrnl|-?opost)' | xargs");
        self.shows("isig icanon");
        let modes = self.screen();
        let modes = modes.lines().rev().find(|line| line.contains("isig")).unwrap_or_default();
        assert!(!modes.contains('-') && modes.contains("echo"), "{modes}");
        // Bracketed pastes and focus reports would appear here.
        self.tell(&["set-buffer", "-b", "plain", "echo pasted $((1+1))"]);
        self.tell(&["paste-buffer", "-p", "-b", "plain"]);
        self.key("Enter");
        self.shows("pasted 2");
    }

    /// Quits with Ctrl-C twice.
    #[track_caller]
    pub fn quit(&self) {
        self.key("C-c");
        self.wait("the quit hint", |screen| screen.contains("again to quit"));
        self.key("C-c");
        self.is_restored();
    }
}
