//! After a decision: resumes the run, or shows how to.

use std::time::Duration;

use crate::cli::start::StartFlags;
use crate::commands::approvals::ThenArgs;
use crate::commands::print;
use crate::contract::display::shell_word;
use crate::contract::ids::ThreadId;
use crate::contract::question::Question;
use crate::contract::record::{LeaseRecord, SuspensionRecord, SuspensionStatus};
use crate::contract::storage::{ChangeFeed, ChangeKind, SharedStore};
use crate::failure::Failure;
use crate::headless::{self, Job};
use crate::program::app_context::AppContext;
use crate::program::foundation::Foundation;
use crate::program::gate::GATE_AGENT;
use crate::program::put_stderr;

/// How long a process that received an answer may take to start acting on it.
const TAKEN_UP: Duration = Duration::from_millis(400);

/// Detects which process acts on an answer.
pub(super) struct Follow {
    /// The subscription from before the answer, so that nothing is missed. Without it no other process is
    /// noticed, but nothing worse happens.
    changes: Option<Box<dyn ChangeFeed>>,
}

impl Follow {
    pub(super) fn new(store: &SharedStore) -> Follow {
        Follow { changes: store.watch().ok() }
    }

    /// Reports how the runs of these questions resume; with `--resume`, resumes here unless another process
    /// does.
    pub(super) async fn on(
        &mut self,
        store: &SharedStore,
        answered: Vec<SuspensionRecord>,
        then: ThenArgs,
        cli: &StartFlags,
        foundation: &Foundation,
    ) -> Result<u8, Failure> {
        let mut threads: Vec<ThreadId> = Vec::new();
        for suspension in &answered {
            // A question of a child run resumes the parent run that waits for the child.
            let thread = store.driven_with(&suspension.thread_id).await.map_err(Failure::failed)?;
            if threads.contains(&thread) {
                continue;
            }
            threads.push(thread.clone());
            if let Some(pid) = self.wait_for_takeover(store, suspension, &thread).await? {
                put_stderr(&match pid {
                    Some(pid) => format!("process {pid} resumes the run"),
                    None => "another process resumed the run".to_owned(),
                });
                continue;
            }
            let run = store.load_run(&suspension.run_id).await.map_err(Failure::failed)?;
            if run.is_some_and(|run| run.agent_id == GATE_AGENT) {
                put_stderr(
                    "the answer waits for the other agent: it counts when that agent makes the same call again",
                );
                continue;
            }
            let place = ResumePoint::of(store, suspension, thread, foundation).await?;
            if then.resume {
                return place.resume(store, then, cli, foundation).await;
            }
            put_stderr(&format!("resume with: {}", place.command()));
        }
        Ok(0)
    }

    /// Returns whether another process drives the run or starts to; with that process's id while it still
    /// does.
    async fn wait_for_takeover(
        &mut self,
        store: &SharedStore,
        suspension: &SuspensionRecord,
        thread: &ThreadId,
    ) -> Result<Option<Option<u32>>, Failure> {
        let end = tokio::time::sleep(TAKEN_UP);
        tokio::pin!(end);
        loop {
            let lease = store.lease(thread).await.map_err(Failure::failed)?;
            let is_held = |lease: &LeaseRecord| lease.holds(store.presence().liveness(&lease.owner));
            if let Some(lease) = lease.filter(is_held) {
                return Ok(Some(Some(lease.owner.pid)));
            }
            let now = store.suspension(&suspension.id).await.map_err(Failure::failed)?;
            if now.is_some_and(|now| now.status != SuspensionStatus::Decided) {
                return Ok(Some(None));
            }
            let Some(changes) = self.changes.as_mut().filter(|_| store.has_listener()) else {
                return Ok(None);
            };
            tokio::select! {
                () = &mut end => return Ok(None),
                () = began(changes, thread) => {}
            }
        }
    }
}

/// Returns when a process may have started to drive the thread, or may have made progress with it.
async fn began(changes: &mut Box<dyn ChangeFeed>, thread: &ThreadId) {
    loop {
        let change = changes.next().await;
        let is_it = match change.kind {
            ChangeKind::Owner | ChangeKind::Run | ChangeKind::Anything => true,
            ChangeKind::Decision | ChangeKind::Queue | ChangeKind::Grant => false,
        };
        if is_it && change.concerns(thread) {
            return;
        }
    }
}

/// A run that waits to be resumed, and the folder it belongs to.
struct ResumePoint {
    thread: ThreadId,
    folder: std::path::PathBuf,
    is_elsewhere: bool,
}

impl ResumePoint {
    async fn of(
        store: &SharedStore,
        suspension: &SuspensionRecord,
        thread: ThreadId,
        foundation: &Foundation,
    ) -> Result<ResumePoint, Failure> {
        let here = &foundation.workspace.cwd;
        // The folder in the question is the one the user was shown; a question of an older version names
        // none.
        let folder = if let Some(cwd) = Question::of(&suspension.ticket.suspension).cwd {
            cwd.into()
        } else {
            let thread = store.load_thread(&suspension.thread_id).await.map_err(Failure::failed)?;
            thread.map_or_else(|| here.clone(), |thread| thread.cwd)
        };
        Ok(ResumePoint { thread, is_elsewhere: folder != *here, folder })
    }

    fn command(&self) -> String {
        let folder = self.folder.to_string_lossy();
        let place = if self.is_elsewhere { format!(" -C {}", shell_word(&folder)) } else { String::new() };
        format!("aye{place} -r {} -p", self.thread)
    }

    /// Resumes in this process, in the folder that the question was asked in.
    async fn resume(
        self,
        store: &SharedStore,
        then: ThenArgs,
        cli: &StartFlags,
        foundation: &Foundation,
    ) -> Result<u8, Failure> {
        let not_here = |why: Failure| {
            let message = format!("the decision is stored, but the run cannot resume: {}", why.message);
            why.with_message(message)
        };
        let mut cli = cli.clone();
        if cli.global.cd.is_none() {
            cli.global.cd = Some(self.folder.clone());
        }
        let there = Foundation::load(&cli, foundation.env.clone()).map_err(not_here)?;
        store.close().await;
        print::notice_untrusted(&there);
        let _log = crate::logging::to_file(&there.paths.log_dir());
        let app = AppContext::build(there, &cli).await.map_err(not_here)?;
        app.warn_on_stderr();
        app.continue_with_its_agent(&self.thread).await.map_err(Failure::failed)?;
        let on_ask = print::on_ask_of(&app).map_err(not_here)?;
        let options = print::options(&app, then.output_format, then.on_unknown, on_ask);
        app.mcp.ready().await;
        let code = headless::run(&app.runtime, Job::Answered(self.thread), &options, &app.clock).await;
        app.mcp.manager.close().await;
        app.notifier.finish().await;
        app.store.leave().await;
        Ok(code)
    }
}
