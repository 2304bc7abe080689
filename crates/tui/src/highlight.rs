//! Highlights code on a separate thread.
//!
//! A worker thread starts with the first block of a known language; until then nothing is loaded. It keeps
//! the parser's state of each open block, so that a line that streams in is highlighted at once. Its results
//! are roles, not colours: a theme can change without running the worker again.
//!
//! Nothing waits for the worker. Code is drawn plain until its colours arrive; lines printed for good (see
//! `MarkdownStream::drain_stable`) are held back until then, but at most [`MAX_WAITING`] of them.

use std::collections::VecDeque;
use std::fmt;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};

use syntect::parsing::SyntaxSet;

use super::theme::Role;

mod scopes;
pub mod symbols;
#[cfg(test)]
mod tests;
mod worker;

use worker::{HighlightJob, Worker};

/// The syntax definitions of all languages, loaded on first use.
static SYNTAXES: LazyLock<SyntaxSet> = LazyLock::new(two_face::syntax::extra_newlines);

/// Maximum finished lines that wait for their colours; beyond it they are released plain.
pub const MAX_WAITING: usize = 200;

/// The pieces of a line: a role and the number of bytes it covers. The remainder is plain text.
pub type Pieces = Vec<(Role, u32)>;

/// Hands code to the worker. Clones share it.
#[derive(Clone)]
pub struct Highlighter(Arc<Engine>);

enum Engine {
    /// Everything is plain.
    Off,
    /// In a thread that the first block starts. With `wait`, each block of lines is waited for.
    Thread { jobs: OnceLock<Option<Jobs>>, notify: Arc<dyn Fn() + Send + Sync>, wait: bool },
}

/// Jobs for the worker, each with an optional sender to signal when it is done.
type Jobs = Mutex<Sender<(HighlightJob, Option<Sender<()>>)>>;

/// The known colours of one block.
#[derive(Debug, Default)]
struct HighlightState {
    lines: VecDeque<Pieces>,
    /// Lines that were taken from the front.
    taken: usize,
    /// Lines that were asked about.
    pushed: usize,
    /// No colours will come (any more).
    given_up: bool,
}

/// A block of code that grows line by line. Dropping it lets the worker forget it.
#[derive(Debug)]
pub struct CodeBlock {
    id: u64,
    highlighter: Highlighter,
    found: Arc<Mutex<HighlightState>>,
    opened: Option<String>,
}

impl Highlighter {
    /// Leaves all code plain.
    pub fn off() -> Highlighter {
        Highlighter(Arc::new(Engine::Off))
    }

    /// Waits for the colours of all lines, so that they are there at once: for tests and exports.
    pub fn waiting() -> Highlighter {
        Highlighter(Arc::new(Engine::Thread { jobs: OnceLock::new(), notify: Arc::new(|| {}), wait: true }))
    }

    /// Works in a thread of its own, started by the first block. `notify` is called from there whenever there are
    /// new colours: it should ask for a frame.
    pub fn in_thread(notify: impl Fn() + Send + Sync + 'static) -> Highlighter {
        Highlighter(Arc::new(Engine::Thread { jobs: OnceLock::new(), notify: Arc::new(notify), wait: false }))
    }

    /// Opens a block in a language, named as after a code fence.
    pub fn block(&self, language: &str) -> CodeBlock {
        let language = token(language);
        let plain =
            matches!(*self.0, Engine::Off) || language.is_empty() || PLAIN.contains(&language.as_str());
        let found = Arc::new(Mutex::new(HighlightState { given_up: plain, ..HighlightState::default() }));
        CodeBlock {
            // Jobs are worked in order, so the place is free again only after the block was closed.
            id: Arc::as_ptr(&found) as u64,
            highlighter: self.clone(),
            found,
            opened: (!plain).then_some(language),
        }
    }

    /// Opens a block that already contains all of `code`.
    pub fn whole(&self, language: &str, code: &str) -> CodeBlock {
        let block = self.block(language);
        block.push(code);
        block
    }

    /// Returns `false` if no worker will do the job.
    fn send(&self, job: HighlightJob) -> bool {
        match &*self.0 {
            Engine::Off => false,
            Engine::Thread { jobs, notify, wait } => {
                let Some(sender) = jobs.get_or_init(|| start(Arc::clone(notify))) else {
                    return false;
                };
                let (done, answer) = mpsc::channel();
                let done = (*wait).then_some(done);
                let sent = sender.lock().unwrap_or_else(PoisonError::into_inner).send((job, done)).is_ok();
                // Without `wait` the sender is gone, and this returns at once.
                let _ = answer.recv();
                sent
            }
        }
    }
}

impl fmt::Debug for Highlighter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &*self.0 {
            Engine::Off => "Highlighter::off",
            Engine::Thread { .. } => "Highlighter::in_thread",
        })
    }
}

/// Starts the worker; it ends with the last highlighter.
fn start(notify: Arc<dyn Fn() + Send + Sync>) -> Option<Jobs> {
    let (sender, jobs) = mpsc::channel::<(HighlightJob, Option<Sender<()>>)>();
    let work = move || {
        let mut worker = Worker::default();
        for (job, done) in jobs {
            if worker.work(job) {
                notify();
            }
            drop(done);
        }
    };
    let started = std::thread::Builder::new().name("highlight".into()).spawn(work);
    started.ok().map(|_| Mutex::new(sender))
}

impl CodeBlock {
    /// Adds complete lines, without or with the last `\n`.
    pub fn push(&self, text: &str) {
        {
            let mut found = self.lock();
            found.pushed += text.strip_suffix('\n').unwrap_or(text).split('\n').count();
            if found.given_up {
                return;
            }
        }
        let job = HighlightJob::Lines {
            id: self.id,
            open: self.opened.clone(),
            text: text.to_owned(),
            found: Arc::clone(&self.found),
        };
        if !self.highlighter.send(job) {
            self.lock().given_up = true;
        }
    }

    /// Returns the number of lines that were pushed.
    pub fn len(&self) -> usize {
        self.lock().pushed
    }

    /// Whether no line was pushed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the colours of a line are known, or never will be.
    pub fn is_ready(&self, line: usize) -> bool {
        let found = self.lock();
        found.given_up || line < found.taken + found.lines.len()
    }

    /// Returns the colours of a line, if known.
    pub fn pieces(&self, line: usize) -> Option<Pieces> {
        let found = self.lock();
        found.lines.get(line.checked_sub(found.taken)?).cloned()
    }

    /// Forgets the colours of all lines before this one.
    pub fn forget_before(&self, line: usize) {
        let mut found = self.lock();
        while found.taken < line && found.lines.pop_front().is_some() {
            found.taken += 1;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HighlightState> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CodeBlock {
    fn drop(&mut self) {
        if self.opened.is_some() && !self.is_empty() {
            self.highlighter.send(HighlightJob::Close { id: self.id });
        }
    }
}

/// Names of languages that have no colours.
const PLAIN: [&str; 8] = ["text", "txt", "plain", "plaintext", "output", "none", "ascii", "log"];

/// Whether the words after a fence declare plain text.
pub fn is_plain(language: &str) -> bool {
    PLAIN.contains(&language.to_lowercase().as_str())
}

/// The language out of the words after a fence: `rust,no_run`, `{.python}`, `C++ title=x`.
fn token(info: &str) -> String {
    let word = info.split([' ', '\t', ',', '{', '}', ':']).find(|word| !word.is_empty()).unwrap_or("");
    let word = word.trim_start_matches('.').to_lowercase();
    let known = match word.as_str() {
        "shell" | "console" | "shellsession" | "shell-session" => "sh",
        "jsonc" | "json5" => "json",
        "yml" => "yaml",
        "golang" => "go",
        "c++" => "cpp",
        "docker" => "dockerfile",
        other => other,
    };
    known.chars().take(32).collect()
}

#[cfg(test)]
impl Highlighter {
    /// One whose worker never gets to its jobs.
    pub(super) fn stuck() -> Highlighter {
        let (sender, jobs) = mpsc::channel();
        let jobs = Mutex::new(jobs);
        let engine = Engine::Thread {
            jobs: OnceLock::new(),
            notify: Arc::new(move || assert!(!jobs.is_poisoned())),
            wait: false,
        };
        if let Engine::Thread { jobs, .. } = &engine {
            let _ = jobs.set(Some(Mutex::new(sender)));
        }
        Highlighter(Arc::new(engine))
    }
}
