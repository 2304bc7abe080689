//! Runs of conversations that are not on the screen: they go on in the background, each in the folder that it belongs
//! to, under the rules of that folder.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinHandle;

use super::agent::App;
use super::foundation::Foundation;
use super::host::Events;
use crate::cli::Cli;
use crate::config::Env;
use crate::contract::event_sink::EventSink;
use crate::contract::ids::ThreadId;
use crate::contract::lifecycle::TerminationReason;
use crate::contract::record::SuspensionRecord;
use crate::runtime::{AgentRunResult, RuntimeError, UnknownPolicy};
use crate::tui::host::HostEvent;

/// How long runs in the background may take to write down where they stand when the program ends.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// The folder that a question was asked in; that of its conversation when it does not say.
pub(super) fn folder_of(question: &SuspensionRecord, of_thread: &Path) -> PathBuf {
    let asked = question.ticket.suspension.parameters.get("cwd").and_then(serde_json::Value::as_str);
    asked.map_or_else(|| of_thread.to_path_buf(), PathBuf::from)
}

/// See the module's text.
pub(super) struct Elsewhere {
    cli: Cli,
    env: Env,
    events: Events,
    /// One for each folder, made when its first question is answered here.
    apps: tokio::sync::Mutex<HashMap<PathBuf, Arc<App>>>,
    running: Mutex<HashMap<ThreadId, (Arc<App>, JoinHandle<()>)>>,
    /// The conversation on the screen.
    shown: Mutex<Option<ThreadId>>,
}

impl Elsewhere {
    pub(super) fn new(cli: &Cli, env: Env, events: Events) -> Elsewhere {
        let mut cli = cli.clone();
        // What was said at this start was said about this folder; what it forbids holds there too.
        cli.global.allowed_tools.clear();
        cli.global.permission_mode = None;
        cli.global.trust = false;
        Elsewhere {
            cli,
            env,
            events,
            apps: tokio::sync::Mutex::default(),
            running: Mutex::default(),
            shown: Mutex::default(),
        }
    }

    /// This conversation is on the screen from now on.
    pub(super) fn show(&self, thread: Option<&ThreadId>) {
        *self.shown.lock().expect("no panic while it is held") = thread.cloned();
    }

    pub(super) fn shows(&self, thread: &ThreadId) -> bool {
        self.shown.lock().expect("no panic while it is held").as_ref() == Some(thread)
    }

    /// Whether a run of the conversation goes on in the background here.
    pub(super) fn drives(&self, thread: &ThreadId) -> bool {
        let running = self.running.lock().expect("no panic while it is held");
        running.get(thread).is_some_and(|(_, task)| !task.is_finished())
    }

    /// The app that a question's run belongs to: the one on the screen, or that of its folder.
    pub(super) async fn app_of(
        &self,
        here: &Arc<App>,
        question: &SuspensionRecord,
    ) -> Result<Arc<App>, String> {
        if self.shows(&question.thread_id) {
            return Ok(Arc::clone(here));
        }
        let thread = here.store.thread(&question.thread_id).await.map_err(|e| e.to_string())?;
        let own = &here.foundation.workspace.cwd;
        let folder = folder_of(question, thread.as_ref().map_or(own, |thread| &thread.cwd));
        if folder == *own {
            return Ok(Arc::clone(here));
        }
        let mut apps = self.apps.lock().await;
        if let Some(app) = apps.get(&folder) {
            return Ok(Arc::clone(app));
        }
        let mut cli = self.cli.clone();
        cli.global.cd = Some(folder.clone());
        let foundation = Foundation::load(&cli, self.env.clone()).map_err(|e| e.message)?;
        let app = Arc::new(App::build(foundation, &cli).await.map_err(|e| e.message)?);
        apps.insert(folder, Arc::clone(&app));
        Ok(app)
    }

    /// Goes on with the run of a conversation that is not on the screen, unless another process drives it.
    pub(super) fn go_on(&self, app: Arc<App>, thread: ThreadId, sink: Arc<dyn EventSink>) {
        let (events, of) = (self.events.clone(), Arc::clone(&app));
        let mut running = self.running.lock().expect("no panic while it is held");
        running.retain(|_, (_, task)| !task.is_finished());
        let before = running.remove(&thread).map(|(_, task)| task);
        let id = thread.clone();
        let task = tokio::spawn(async move {
            // The one before has the conversation until it is done with it.
            if let Some(before) = before {
                let _ = before.await;
            }
            app.load_grants().await;
            let outcome = app.runtime.resume(&id, sink, UnknownPolicy::Ask).await;
            let title =
                app.store.thread(&id).await.ok().flatten().map_or_else(String::new, |thread| thread.title);
            if let Some(text) = told(outcome) {
                // Nobody is left to tell when the program ends.
                let _ = events.send(HostEvent::Note(format!("“{title}” {text}")));
            }
        });
        running.insert(thread, (of, task));
    }

    /// Stops what goes on and closes what was opened.
    pub(super) async fn leave(&self) {
        let running = std::mem::take(&mut *self.running.lock().expect("no panic while it is held"));
        for (thread, (app, _)) in &running {
            app.runtime.cancel(thread);
        }
        let all = futures::future::join_all(running.into_values().map(|(_, task)| task));
        let _ = tokio::time::timeout(LAST_WAIT, all).await;
        for app in self.apps.lock().await.values() {
            app.store.close().await;
        }
    }
}

/// What a person is told of a run that is not on the screen. A question of it is counted anyway.
fn told(outcome: Result<AgentRunResult, RuntimeError>) -> Option<String> {
    match outcome {
        Ok(result) => match result.termination {
            TerminationReason::Suspended => None,
            TerminationReason::NaturalEnd | TerminationReason::BehaviorRequested => {
                Some("went on and is done".to_owned())
            }
            TerminationReason::Cancelled => Some("was cancelled".to_owned()),
            TerminationReason::Blocked(why) => Some(format!("was blocked: {why}")),
            TerminationReason::Stopped(why) => Some(format!("stopped: {}", why.detail.unwrap_or(why.code))),
            TerminationReason::Error(why) => Some(format!("failed: {why}")),
        },
        // Another process drives it, or was faster.
        Err(RuntimeError::ThreadAlreadyRunning { .. } | RuntimeError::NothingToResume { .. }) => None,
        Err(error) => Some(format!("cannot go on: {error}")),
    }
}
