//! Shows questions outside of the terminal. Programs get a new question as JSON on stdin and decide nothing themselves:
//! they may call `aye approvals` like any program. Webhooks get a message.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::contract::display::visible_line;
use crate::contract::record::SuspensionRecord;
use crate::contract::renderer::Renderer;
use crate::contract::suspension::{ACTION_WAIT, Actor, ToolCallResume};
use crate::contract::terms::Notify;
use crate::failure::AppError;
use crate::program::foundation::Foundation;
use crate::program::webhook::{QuestionNews, Webhooks};

/// How long a program may take.
const LIMIT: Duration = Duration::from_secs(30);
/// The maximum number of programs that run at once.
const AT_ONCE: usize = 4;
/// The maximum bytes of a program's stderr kept for the log.
const MAX_WORDS: usize = 4 << 10;

/// The variable with the store's location, if the user chose another one.
const AYE_HOME: &str = "AYE_HOME";

/// The callback for the first failure.
type FailureReporter = Box<dyn Fn(String) + Send + Sync>;

/// Clones share everything.
#[derive(Clone)]
pub(crate) struct Notifier {
    shared: Arc<NotifierState>,
}

struct NotifierState {
    webhooks: Webhooks,
    cwd: PathBuf,
    home: Option<PathBuf>,
    variables: BTreeMap<OsString, OsString>,
    tasks: Mutex<JoinSet<()>>,
    room: Semaphore,
    /// Taken by the first failure, so that only that one is reported.
    report_failure: Mutex<Option<FailureReporter>>,
}

impl Notifier {
    pub(crate) fn new(foundation: &Foundation, webhooks: Webhooks) -> Self {
        let env = crate::program::parts::tool_env(foundation);
        // Commands do not know where this store is; a program that may answer must.
        let variables = env.child_env(foundation.env.var(AYE_HOME).map(|home| (AYE_HOME, home)));
        Self {
            shared: Arc::new(NotifierState {
                webhooks,
                cwd: foundation.workspace.cwd.clone(),
                home: foundation.env.home().map(Path::to_path_buf),
                variables: variables.into_iter().collect(),
                tasks: Mutex::default(),
                room: Semaphore::new(AT_ONCE),
                report_failure: Mutex::new(Some(Box::new(|text| crate::program::put_stderr(&text)))),
            }),
        }
    }

    /// Sets where the first failure is reported; stderr by default.
    pub(crate) fn complain_to(&self, report_failure: impl Fn(String) + Send + Sync + 'static) {
        let mut slot = self.shared.report_failure.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.is_some() {
            *slot = Some(Box::new(report_failure));
        }
    }

    /// Returns the sender of webhooks.
    pub(crate) fn webhooks(&self) -> &Webhooks {
        &self.shared.webhooks
    }

    /// Sends what other processes left for later, if questions escalate.
    pub(crate) fn send_escalations(&self) {
        if self.shared.webhooks.escalates() {
            self.send_leftover();
        }
    }

    /// Sends what other processes left.
    pub(crate) fn send_leftover(&self) {
        let shared = Arc::clone(&self.shared);
        self.spawn(async move { shared.webhooks.send_due().await });
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.shared.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(work);
    }

    fn notify_webhooks(&self, question: &SuspensionRecord, news: QuestionNews) {
        let names = Webhooks::wants(question);
        if names.is_empty() {
            return;
        }
        let (shared, question) = (Arc::clone(&self.shared), question.clone());
        self.spawn(async move {
            if let Err(why) = shared.webhooks.notify(names, &question, news).await {
                shared.failed("webhook", &why.to_string());
            }
        });
    }

    /// Has a question that stays pending go to those who want it then.
    fn escalate(&self, question: &SuspensionRecord) {
        // One that waits for a time asks nobody.
        if !self.shared.webhooks.escalates() || question.ticket.suspension.action == ACTION_WAIT {
            return;
        }
        let (shared, question) = (Arc::clone(&self.shared), question.clone());
        self.spawn(async move {
            if let Err(error) = shared.webhooks.escalate(&question).await {
                shared.failed("webhook", &error.to_string());
            }
        });
    }

    /// Starts the programs of a question's `notify`, and returns at once.
    fn start_programs(&self, question: &SuspensionRecord) {
        let Some(list) = question.ticket.suspension.notify() else { return };
        for entry in list {
            let Notify::Command(words) = entry else { continue };
            let Ok(json) = serde_json::to_vec(question) else { continue };
            let shared = Arc::clone(&self.shared);
            self.spawn(async move {
                let Ok(_turn) = shared.room.acquire().await else { return };
                if let Err(why) = shared.run_program(&words, json).await {
                    shared.failed(words.first().map_or("", String::as_str), &why.to_string());
                }
            });
        }
    }

    /// Waits until the started programs have ended, for at most `limit`; stops those that are left.
    pub(crate) async fn settle(&self, limit: Duration) {
        let mut tasks =
            std::mem::take(&mut *self.shared.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        let all = async { while tasks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(limit, all).await;
        tasks.shutdown().await;
    }

    /// Does the same as [`Notifier::settle`], but lets each program use its full time: the run has nothing else to do.
    pub(crate) async fn finish(&self) {
        self.settle(LIMIT + Duration::from_secs(1)).await;
    }
}

impl Renderer for Notifier {
    fn render(&self, question: &SuspensionRecord) {
        self.start_programs(question);
        self.notify_webhooks(question, QuestionNews::Asked);
        self.escalate(question);
    }

    fn decided(&self, question: &SuspensionRecord, _: &ToolCallResume, _: Option<&Actor>) {
        self.notify_webhooks(question, QuestionNews::Decided);
    }

    fn expired(&self, question: &SuspensionRecord) {
        self.notify_webhooks(question, QuestionNews::Expired);
    }
}

impl NotifierState {
    async fn run_program(&self, words: &[String], json: Vec<u8>) -> Result<(), AppError> {
        let (program, args) = words.split_first().ok_or("it does not name a program")?;
        let program = match (program.strip_prefix("~/"), &self.home) {
            (Some(rest), Some(home)) => home.join(rest).into_os_string(),
            (Some(_), None) => return Err("no home folder for `~/`".into()),
            (None, _) => program.into(),
        };
        let mut command = Command::new(program);
        command.args(args).current_dir(&self.cwd).env_clear().envs(&self.variables);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        // A separate process group: Ctrl-C does not reach it, and its children are stopped with it.
        command.process_group(0).kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| format!("it did not start: {error}"))?;
        let group = Group(child.id().and_then(|id| Pid::from_raw(id.cast_signed())));
        let mut errors = String::new();
        let ended = tokio::time::timeout(LIMIT, converse(&mut child, json, &mut errors)).await;
        drop(group);
        if !errors.trim().is_empty() {
            tracing::info!(program = words[0], words = errors.trim_end(), "a notify program");
        }
        match ended {
            Err(_) => Err(format!("it was stopped after {} s", LIMIT.as_secs()).into()),
            Ok(Err(error)) => Err(error.into()),
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => {
                let last = errors.lines().rev().find(|line| !line.trim().is_empty());
                Err(last
                    .map_or_else(|| status.to_string(), |line| format!("{status}: {}", visible_line(line)))
                    .into())
            }
        }
    }

    fn failed(&self, program: &str, why: &str) {
        tracing::warn!(program, why, "a notify program failed");
        let report_failure = self.report_failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(report_failure) = report_failure {
            let program = visible_line(program);
            report_failure(format!("notify: {program}: {why}; the question is still pending"));
        }
    }
}

/// Writes the question, reads stderr, and waits for the exit.
async fn converse(
    child: &mut Child,
    json: Vec<u8>,
    errors: &mut String,
) -> std::io::Result<std::process::ExitStatus> {
    let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
    let write = async {
        if let Some(mut stdin) = stdin {
            // A program need not read its input.
            let _ = stdin.write_all(&json).await;
            let _ = stdin.shutdown().await;
        }
    };
    let read = async {
        let Some(mut stderr) = stderr else { return };
        let mut bytes = [0; 1024];
        // All output is read, so that a full pipe blocks no program; the start of it is kept.
        while let Ok(count @ 1..) = stderr.read(&mut bytes).await {
            if errors.len() < MAX_WORDS {
                errors.push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        }
    };
    let wait = child.wait();
    tokio::pin!(write, read, wait);
    let (mut written, mut all_read) = (false, false);
    loop {
        tokio::select! {
            status = &mut wait => {
                if !all_read {
                    // The program's last output may still be on its way; other processes that hold the pipe
                    // are not waited for.
                    let _ = tokio::time::timeout(Duration::from_millis(100), &mut read).await;
                }
                return status;
            }
            () = &mut write, if !written => written = true,
            () = &mut read, if !all_read => all_read = true,
        }
    }
}

/// Kills a program and the processes it started.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(pid) = self.0 {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}
