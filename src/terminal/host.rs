//! Serves the terminal's requests with the runtime.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;

use crate::cli::start::StartFlags;
use crate::compose::symbols::Symbols;
use crate::contract::storage::ChangeKind;
use crate::program::app_context::AppContext;
use crate::program::grants::CallHistory;
use crate::terminal::background::BackgroundRuns;
use crate::terminal::drafts::Drafts;
use crate::terminal::files::Files;
use crate::terminal::follow::ThreadFollower;
use crate::tui::host::HostEvent;

mod images;
mod models;
mod program;
mod questions;
mod rewind;
mod threads;
mod writing;

pub(crate) use threads::with_open_results;

/// How long programs notified of a question may keep running after the terminal is left.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// How long to wait after a change by another process for related ones.
const GATHER: Duration = Duration::from_millis(100);

/// The sender of the terminal's events.
pub(crate) type Events = UnboundedSender<HostEvent>;

pub(crate) struct TerminalHost {
    app: Arc<AppContext>,
    viewer: ThreadFollower,
    files: Arc<Files>,
    symbols: Arc<Symbols>,
    drafts: Drafts,
    call_history: CallHistory,
    events: Events,
    elsewhere: Arc<BackgroundRuns>,
    searching: rewind::Searching,
    /// The model that the start found by itself, if the user has chosen none and has no key.
    found: Option<String>,
    /// The flags of this start.
    cli: StartFlags,
    watching: Vec<JoinHandle<()>>,
    /// The folder of the images that were opened in another program; it is removed at the end.
    opened: OnceLock<tempfile::TempDir>,
    /// The host that serves the terminal since the folder was trusted.
    next: OnceLock<Arc<TerminalHost>>,
}

impl TerminalHost {
    /// Creates the host and starts watching the conversation that is shown and all pending questions. Must be
    /// called within tokio.
    pub(crate) fn new(
        app: Arc<AppContext>,
        events: Events,
        elsewhere: Arc<BackgroundRuns>,
        cli: StartFlags,
    ) -> Self {
        let viewer = ThreadFollower::new(Arc::clone(&app), events.clone());
        let mut watching = vec![tokio::spawn(viewer.clone().watch())];
        watching.extend(watch_inbox(&app, &events));
        let foundation = &app.foundation;
        let kept = (!foundation.is_ephemeral).then(|| foundation.paths.drafts_dir());
        let drafts = Drafts::new(kept, foundation.workspace.cwd.clone());
        {
            let events = events.clone();
            app.notifier.complain_to(move |text| drop(events.send(HostEvent::Warned(text))));
        }
        if let Some(snapshots) = &app.snapshots {
            let events = events.clone();
            snapshots.on_trouble(move |text| drop(events.send(HostEvent::Warned(text))));
        }
        let found = {
            let settings = &foundation.loaded.settings;
            let is_found = settings.model.is_none()
                && !app.agents.has_own_model()
                && crate::config::needs_probe(settings, &foundation.env);
            is_found.then(|| app.selection().full_name())
        };
        Self {
            found,
            app,
            viewer,
            files: Arc::default(),
            symbols: Arc::default(),
            drafts,
            call_history: CallHistory::default(),
            events,
            elsewhere,
            searching: rewind::Searching::default(),
            cli,
            watching,
            opened: OnceLock::new(),
            next: OnceLock::new(),
        }
    }

    /// Stops the background work in order.
    pub(crate) async fn leave(&self) {
        self.viewer.leave();
        self.app.mcp.manager.close().await;
        match self.next.get() {
            Some(next) => Box::pin(next.leave()).await,
            None => self.elsewhere.leave().await,
        }
        self.app.notifier.settle(LAST_WAIT).await;
        self.app.telemetry.end().await;
    }
}

/// Notifies the terminal when another process committed something that the inbox may show. Does nothing while
/// nothing is committed.
fn watch_inbox(app: &AppContext, events: &Events) -> Option<JoinHandle<()>> {
    let mut changes = match app.store.watch() {
        Ok(changes) => changes,
        Err(error) => {
            tracing::warn!(%error, "pending questions elsewhere are counted only when something happens here");
            return None;
        }
    };
    let events = events.clone();
    Some(tokio::spawn(async move {
        loop {
            match changes.next().await.kind {
                ChangeKind::Run | ChangeKind::Decision | ChangeKind::Anything => {}
                ChangeKind::Owner | ChangeKind::Queue | ChangeKind::Grant => continue,
            }
            // An active run commits many times a second.
            let rest = async {
                loop {
                    changes.next().await;
                }
            };
            let _ = tokio::time::timeout(GATHER, rest).await;
            if events.send(HostEvent::InboxChanged).is_err() {
                return;
            }
        }
    }))
}
