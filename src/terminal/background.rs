//! Background runs of conversations in other folders, each in its own folder under the rules of that folder. The
//! screen treats them like runs of another process.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::cli::start::StartFlags;
use crate::commands::serve::ServerInside;
use crate::config::Env;
use crate::contract::event_sink::{EventSink, NullEventSink};
use crate::contract::ids::ThreadId;
use crate::contract::lifecycle::TerminationReason;
use crate::contract::record::SuspensionRecord;
use crate::failure::AppError;
use crate::program::app_context::AppContext;
use crate::program::foundation::Foundation;
use crate::runtime::{AgentRunResult, RuntimeError};
use crate::session::{Attender, Elsewhere, Ended, FrontEnd, Manner, Queue};
use crate::terminal::host::Events;
use crate::tui::host::{HostEvent, TextPage};

/// How long background runs may take to store their state when the program ends.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// The folder that a question was asked in; that of its conversation when it does not say.
pub(crate) fn folder_of(question: &SuspensionRecord, of_thread: &Path) -> PathBuf {
    question.ticket.suspension.cwd().map_or_else(|| of_thread.to_path_buf(), PathBuf::from)
}

/// The flags of this start, for apps of other folders.
pub(crate) fn for_other_folders(cli: &StartFlags) -> StartFlags {
    let mut cli = cli.clone();
    cli.global.leave_folder();
    cli
}

/// Assembles the program for that folder.
pub(crate) async fn app_in(cli: &StartFlags, env: Env, folder: PathBuf) -> Result<AppContext, AppError> {
    let mut cli = cli.clone();
    cli.global.cd = Some(folder);
    let foundation = Foundation::load(&cli, env).map_err(|e| e.message)?;
    Ok(AppContext::build(foundation, &cli).await?)
}

/// What is asked or queued there is seen to by whoever answers or works there next.
const ONCE: Manner = Manner {
    waits: false,
    elsewhere: Elsewhere::Leave,
    queue: Queue::Nothing,
    after_failure: false,
    stays: false,
};

/// A front end that shows nothing but how a run ended.
struct Unseen;

impl FrontEnd for Unseen {
    fn sink(&self) -> Arc<dyn EventSink> {
        Arc::new(NullEventSink)
    }
}

/// A run that continues in the background, with the app that drives it.
type Running = (ThreadId, Arc<AppContext>, JoinHandle<()>);

pub(crate) struct BackgroundRuns {
    cli: StartFlags,
    env: Env,
    events: Events,
    /// The apps of other folders, each built when its first question is answered here.
    apps: tokio::sync::Mutex<HashMap<PathBuf, Arc<AppContext>>>,
    running: Mutex<Vec<Running>>,
    server: ServerInside,
}

impl BackgroundRuns {
    pub(crate) fn new(cli: &StartFlags, env: Env, events: Events) -> BackgroundRuns {
        let cli = for_other_folders(cli);
        BackgroundRuns {
            cli,
            env,
            events,
            apps: tokio::sync::Mutex::default(),
            running: Mutex::default(),
            server: ServerInside::default(),
        }
    }

    /// `/serve`.
    pub(crate) async fn serve(&self, words: &str) -> Result<TextPage, AppError> {
        self.server.page(&self.cli, &self.env, &self.events, words).await
    }

    /// The app that a question's run belongs to: this one, or that of its folder.
    pub(crate) async fn app_of(
        &self,
        here: &Arc<AppContext>,
        question: &SuspensionRecord,
    ) -> Result<Arc<AppContext>, AppError> {
        let thread = here.store.load_thread(&question.thread_id).await?;
        let own = &here.foundation.workspace.cwd;
        let folder = folder_of(question, thread.as_ref().map_or(own, |thread| &thread.cwd));
        if folder == *own {
            return Ok(Arc::clone(here));
        }
        let mut apps = self.apps.lock().await;
        if let Some(app) = apps.get(&folder) {
            return Ok(Arc::clone(app));
        }
        let app = Arc::new(app_in(&self.cli, self.env.clone(), folder.clone()).await?);
        apps.insert(folder, Arc::clone(&app));
        Ok(app)
    }

    /// Resumes the run of a conversation, unless another process drives it.
    pub(crate) fn resume_thread(&self, app: Arc<AppContext>, thread: ThreadId) {
        let (events, of, id) = (self.events.clone(), Arc::clone(&app), thread.clone());
        let task = tokio::spawn(async move {
            app.mcp.ready_quietly().await;
            let end = Box::pin(Attender::resume(ONCE).attend(&app.runtime, &id, &mut Unseen)).await;
            if let Some(result) = end.result {
                report_end(&app, &events, &id, &result).await;
            }
        });
        let mut running = self.running.lock().expect("no panic while it is held");
        running.retain(|(_, _, task)| !task.is_finished());
        running.push((thread, of, task));
    }

    /// Stops the background runs and closes the apps opened for them.
    pub(crate) async fn leave(&self) {
        self.server.leave().await;
        let running = std::mem::take(&mut *self.running.lock().expect("no panic while it is held"));
        for (thread, app, _) in &running {
            app.runtime.cancel(thread);
        }
        let all = futures::future::join_all(running.into_iter().map(|(_, _, task)| task));
        let _ = tokio::time::timeout(LAST_WAIT, all).await;
        for app in self.apps.lock().await.values() {
            app.telemetry.end().await;
            app.mcp.manager.close().await;
            app.store.close().await;
        }
    }
}

/// Reports the end of a run that is not on the screen. Its questions are counted anyway.
pub(crate) async fn report_end(
    app: &AppContext,
    events: &Events,
    thread: &ThreadId,
    result: &Result<AgentRunResult, RuntimeError>,
) {
    let Some(text) = end_text(result) else { return };
    let title =
        app.store.load_thread(thread).await.ok().flatten().map_or_else(String::new, |thread| thread.title);
    // When the program ends, nobody is left to receive the event.
    let _ = events.send(HostEvent::Note(format!("“{title}” {text}")));
}

fn end_text(result: &Result<AgentRunResult, RuntimeError>) -> Option<String> {
    match result {
        Ok(result) => match &result.termination {
            TerminationReason::Suspended => None,
            TerminationReason::NaturalEnd | TerminationReason::BehaviorRequested => {
                Some("resumed and done".to_owned())
            }
            TerminationReason::Cancelled => Some("was cancelled".to_owned()),
            TerminationReason::Blocked(why) => Some(format!("was blocked: {why}")),
            TerminationReason::Stopped(why) => {
                Some(format!("stopped: {}", why.detail.as_deref().unwrap_or(&why.code)))
            }
            TerminationReason::Error(why) => Some(format!("failed: {why}")),
        },
        // Another process drives it, or was faster.
        Err(_) if matches!(Ended::of(result), Ended::Elsewhere | Ended::Nothing) => None,
        Err(error) => Some(format!("cannot resume: {error}")),
    }
}
