//! The real program in a pseudo-terminal: keys in, screen out.

use std::io::{Read as _, Write as _};
use std::num::NonZeroU16;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use pty_process::blocking as pty;
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{LocalModes, tcgetattr};

use super::emulator::Emulator;
use super::home::Home;
use super::llm::PATIENCE;

/// The content of the terminal.
pub struct View {
    parser: vt100::Parser,
    reflowing: Emulator,
    raw: Vec<u8>,
    ended: bool,
}

impl View {
    /// The rows of the screen.
    pub fn screen(&self) -> String {
        self.parser.screen().contents()
    }

    /// The rows above the screen and those of the screen.
    pub fn all(&mut self) -> String {
        let screen = self.parser.screen_mut();
        let (rows, columns) = screen.size();
        let (height, mut left) = (usize::from(rows.get()), screen.scrollback_len());
        let mut text = String::new();
        while left > 0 {
            screen.set_scrollback(left);
            for row in screen.rows(0, columns.get()).take(left.min(height)) {
                text.push_str(&row);
                text.push('\n');
            }
            left = left.saturating_sub(height);
        }
        screen.set_scrollback(0);
        text + &screen.contents()
    }

    /// The same in a terminal that reflows long rows when its width changes.
    pub fn reflowing(&self) -> &Emulator {
        &self.reflowing
    }

    /// All frames since the start, in order, including states too brief to poll.
    pub fn frames(&self) -> Vec<String> {
        const END: &[u8] = b"\x1b[?2026l";
        let (rows, columns) = self.parser.screen().size();
        let mut parser = vt100::Parser::new(rows, columns, 0);
        let mut ends: Vec<usize> =
            self.raw.windows(END.len()).enumerate().filter(|(_, at)| *at == END).map(|(at, _)| at).collect();
        ends.push(self.raw.len());
        let mut start = 0;
        ends.into_iter()
            .map(|end| {
                parser.process(&self.raw[start..end]);
                start = end;
                parser.screen().contents()
            })
            .collect()
    }

    /// The number of bytes written to it.
    pub fn written(&self) -> usize {
        self.raw.len()
    }

    pub fn has(&self, text: &str) -> bool {
        self.screen().contains(text)
    }

    /// Whether a run is active: the status line has its spinner.
    pub fn is_active(&self) -> bool {
        self.screen().contains(['⠋', '⠙', '⠸', '⠴', '⠦', '⠇', '⠏', '⠟'])
    }

    pub fn hides_cursor(&self) -> bool {
        self.parser.screen().hide_cursor()
    }

    pub fn brackets_pastes(&self) -> bool {
        self.parser.screen().bracketed_paste()
    }

    pub fn on_other_screen(&self) -> bool {
        self.parser.screen().alternate_screen()
    }
}

/// A program in a terminal.
pub struct Pty {
    master: Arc<pty::Pty>,
    view: Arc<(Mutex<View>, Condvar)>,
    child: Child,
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn size(columns: u16, rows: u16) -> (NonZeroU16, NonZeroU16) {
    (NonZeroU16::new(rows).expect("rows"), NonZeroU16::new(columns).expect("columns"))
}

impl Pty {
    pub fn start(home: &Home, args: &[&str], columns: u16, rows: u16) -> Self {
        Self::start_with(home, args, columns, rows, &[])
    }

    pub fn start_with(home: &Home, args: &[&str], columns: u16, rows: u16, env: &[(&str, &str)]) -> Self {
        Self::run(home, env!("CARGO_BIN_EXE_aye"), args, columns, rows, env)
    }

    /// Runs another program instead of ours.
    pub fn run(
        home: &Home,
        program: &str,
        args: &[&str],
        columns: u16,
        rows: u16,
        env: &[(&str, &str)],
    ) -> Self {
        let (pty, pts) = pty::open().expect("a terminal");
        pty.resize(pty_process::Size::new(rows, columns)).expect("its size");
        let command = pty::Command::new(program)
            .args(args)
            .current_dir(home.work())
            .env_clear()
            .envs(home.env())
            .envs(env.iter().copied());
        let child = command.spawn(pts).expect("the program starts");
        let (rows, columns) = size(columns, rows);
        let view = View {
            parser: vt100::Parser::new(rows, columns, 5000),
            reflowing: Emulator::new(columns.get(), rows.get()),
            raw: Vec::new(),
            ended: false,
        };
        let view = Arc::new((Mutex::new(view), Condvar::new()));
        let pty = Arc::new(pty);
        let (reader, shared) = (Arc::clone(&pty), Arc::clone(&view));
        std::thread::spawn(move || {
            let mut bytes = [0; 8192];
            // The end of output is an error here, not an empty read.
            while let Ok(count) = (&*reader).read(&mut bytes) {
                if count == 0 {
                    break;
                }
                let mut view = shared.0.lock().expect("not poisoned");
                view.raw.extend_from_slice(&bytes[..count]);
                view.parser.process(&bytes[..count]);
                view.reflowing.process(&bytes[..count]);
                shared.1.notify_all();
            }
            shared.0.lock().expect("not poisoned").ended = true;
            shared.1.notify_all();
        });
        Self { master: pty, view, child }
    }

    /// Types bytes.
    pub fn send(&self, bytes: &str) {
        (&*self.master).write_all(bytes.as_bytes()).expect("the terminal accepts input");
    }

    /// Pastes text like a terminal.
    pub fn paste(&self, text: &str) {
        self.send(&format!("\x1b[200~{text}\x1b[201~"));
    }

    /// Types a message and sends it.
    pub fn say(&self, text: &str) {
        self.send(text);
        self.wait("the typed text", |view| view.has(text));
        self.send("\r");
    }

    /// Queues a message for the next run.
    pub fn queue(&self, text: &str) {
        self.send(text);
        self.wait("the typed text", |view| view.has(text));
        self.send("\t");
    }

    pub fn resize(&self, columns: u16, rows: u16) {
        {
            let mut view = self.view.0.lock().expect("not poisoned");
            let (rows, columns) = size(columns, rows);
            view.parser.set_size(rows, columns);
            view.reflowing.resize(columns.get(), rows.get());
            let size = pty_process::Size::new(rows.get(), columns.get());
            self.master.resize(size).expect("its size");
        }
    }

    /// Resizes once the terminal has processed all output, while the program is between two frames.
    pub fn resize_calmly(&self, columns: u16, rows: u16) {
        let calm = |before: usize| {
            std::thread::sleep(Duration::from_millis(15));
            self.look(|view| view.written()) == before
        };
        for _ in 0..20 {
            if calm(self.look(|view| view.written())) {
                break;
            }
        }
        self.signal(Signal::STOP);
        let state = format!("/proc/{}/stat", self.pid());
        super::llm::until("the idle state", || {
            std::fs::read_to_string(&state).is_ok_and(|stat| stat.contains(") T "))
        });
        while !calm(self.look(|view| view.written())) {}
        self.resize(columns, rows);
        self.signal(Signal::CONT);
    }

    /// Asks for the servers until the text says that one is connected. Each answer is awaited: lines that are typed faster
    /// than anybody reads them are a paste.
    #[track_caller]
    pub fn connects(&self, text: &str) {
        super::llm::until(text, || {
            let lists = |view: &mut View| view.all().matches("MCP servers").count();
            let before = self.look(lists);
            self.say("/mcp");
            self.wait("a list of servers", |view| lists(view) > before);
            self.look(|view| view.all().contains(text))
        });
    }

    /// Waits until the view matches.
    #[track_caller]
    pub fn wait(&self, what: &str, is: impl Fn(&mut View) -> bool) {
        let end = Instant::now() + PATIENCE;
        let mut view = self.view.0.lock().expect("not poisoned");
        while !is(&mut view) {
            let left = end.saturating_duration_since(Instant::now());
            if view.ended || left.is_zero() {
                let all = view.all();
                let ended = view.ended;
                drop(view);
                panic!("{what} is not shown (ended: {ended}):\n{all}");
            }
            view =
                self.view.1.wait_timeout(view, left.min(Duration::from_millis(100))).expect("not poisoned").0;
        }
    }

    /// Waits for a text anywhere, including above the screen.
    #[track_caller]
    pub fn shows(&self, text: &str) {
        self.wait(text, |view| view.has(text) || view.all().contains(text));
    }

    /// Checks for a text in the output left by an ended program.
    #[track_caller]
    pub fn shows_after(&self, text: &str) {
        let all = self.look(View::all);
        assert!(all.contains(text), "{text} is not shown:\n{all}");
    }

    /// Reads the current view.
    pub fn look<T>(&self, of: impl FnOnce(&mut View) -> T) -> T {
        of(&mut self.view.0.lock().expect("not poisoned"))
    }

    /// Everything that was ever written to the terminal.
    pub fn raw(&self) -> Vec<u8> {
        self.look(|view| view.raw.clone())
    }

    /// Waits for the prompt.
    #[track_caller]
    pub fn ready(&self) {
        self.wait("the prompt", |view| view.has("❯"));
    }

    /// Waits for a focused card with the text, until it accepts keys: a key pressed sooner than a user can
    /// read does not answer.
    #[track_caller]
    pub fn card(&self, text: &str) {
        self.wait(&format!("a card about {text}"), |view| {
            let screen = view.screen();
            screen.lines().any(|l| l.starts_with('▌') && l.contains(text))
        });
        self.card_takes_keys();
    }

    /// Waits until a visible card accepts keys: it gives the user time to read, and nothing on the screen
    /// shows when that time is over.
    #[track_caller]
    pub fn card_takes_keys(&self) {
        std::thread::sleep(Duration::from_millis(700));
        assert!(!self.look(|view| view.ended), "it has ended");
    }

    /// Checks that the terminal is as a shell left it: lines, echo, a cursor, no modes.
    #[track_caller]
    pub fn is_restored(&self) {
        let modes = tcgetattr(&*self.master).expect("terminal modes").local_modes;
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG), "{modes:?}");
        let view = self.view.0.lock().expect("not poisoned");
        assert!(!view.hides_cursor(), "the cursor is hidden");
        assert!(!view.brackets_pastes(), "pastes are bracketed");
        assert!(!view.on_other_screen(), "the alternate screen is shown");
        let raw = String::from_utf8_lossy(&view.raw);
        for (on, off) in [
            ("\x1b[?1004h", "\x1b[?1004l"),
            ("\x1b[?7l", "\x1b[?7h"),
            ("\x1b[>1u", "\x1b[<1u"),
            ("\x1b[?2026h", "\x1b[?2026l"),
        ] {
            // Neither is written to a dumb terminal.
            assert!(raw.rfind(on) <= raw.rfind(off), "{on:?} is still on");
        }
    }

    /// The pid of its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("is alive");
    }

    /// Sends a signal to a process that may be gone.
    pub fn try_signal(&self, signal: Signal) {
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// Kills it without notice.
    pub fn kill(mut self) {
        self.child.kill().expect("is alive");
        self.child.wait().expect("ends");
    }

    /// Waits for its end, and for the rest of its output.
    #[track_caller]
    pub fn end(&mut self) -> ExitStatus {
        let end = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                break status;
            }
            if Instant::now() > end {
                let all = self.look(View::all);
                panic!("it does not end:\n{all}");
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let view = self.view.0.lock().expect("not poisoned");
        let waited = self.view.1.wait_timeout_while(view, Duration::from_secs(5), |view| !view.ended);
        drop(waited.expect("not poisoned"));
        status
    }

    /// Quits with Ctrl-C twice.
    #[track_caller]
    pub fn quit(&mut self) {
        self.send("\x03");
        self.wait("the quit hint", |view| view.has("again to quit"));
        self.send("\x03");
        let status = self.end();
        assert_eq!((status.code(), status.signal()), (Some(0), None));
    }
}
