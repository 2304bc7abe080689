//! The program as the server sees it: one store, and an app for each folder that is served.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::{FailureReporter, config};
use crate::cli::start::StartFlags;
use crate::commands::agents;
use crate::compose::{self, WrittenMessage};
use crate::contract::content::ContentBlock;
use crate::contract::grant::GrantRequest;
use crate::contract::ids::{RunId, ThreadId};
use crate::contract::message::Message;
use crate::contract::record::GrantRecord;
use crate::contract::storage::{PushTarget, PushTargetsOf, SharedStore, ThreadRunStore};
use crate::contract::suspension::{Actor, CHANNEL_HTTP};
use crate::program::app_context::AppContext;
use crate::runtime::AgentRuntime;
use crate::server::{
    A2aPushConfig, Access, AgentFolder, ApiError, ConfigHost, ConfigNamespace, PushHost, ServerHost,
    WaitingPush, catalog_view,
};
use crate::terminal::background::app_in;
use crate::tools::public_client;

/// The program that the server serves.
pub(super) struct Served {
    pub(super) here: Arc<AppContext>,
    cli: StartFlags,
    /// A separate handle: its change feed reports what the apps commit.
    pub(super) store: SharedStore,
    shared: Arc<dyn ThreadRunStore>,
    access: Access,
    folders: Vec<PathBuf>,
    report_failure: FailureReporter,
    /// The URL of the page.
    url: Option<String>,
    /// The apps of other folders, built when first requested.
    pub(super) apps: tokio::sync::Mutex<HashMap<PathBuf, Arc<AppContext>>>,
    /// Held while the configuration changes.
    pub(super) publishing: tokio::sync::Mutex<()>,
}

impl Served {
    pub(super) fn new(
        here: Arc<AppContext>,
        cli: StartFlags,
        store: SharedStore,
        access: Access,
        folders: Vec<PathBuf>,
        report_failure: FailureReporter,
        url: Option<String>,
    ) -> Self {
        let shared: Arc<dyn ThreadRunStore> = store.clone();
        let apps = tokio::sync::Mutex::default();
        let publishing = tokio::sync::Mutex::default();
        let served =
            Self { here, cli, store, shared, access, folders, report_failure, url, apps, publishing };
        served.listen_to(&served.here);
        served.here.notifier.send_leftover();
        served
    }

    /// Reports problems outside a run where this server was started.
    fn listen_to(&self, app: &AppContext) {
        let report_failure = Arc::clone(&self.report_failure);
        app.notifier.complain_to(move |text| report_failure(text));
        if let Some(url) = &self.url {
            app.notifier.webhooks().show_at(url);
        }
    }

    /// The app of a folder, built with its first request.
    async fn app_of(&self, folder: &Path) -> Result<Arc<AppContext>, ApiError> {
        if folder == self.here.foundation.workspace.cwd {
            return Ok(Arc::clone(&self.here));
        }
        let mut apps = self.apps.lock().await;
        if let Some(app) = apps.get(folder) {
            return Ok(Arc::clone(app));
        }
        let app = app_in(&self.cli, self.here.foundation.env.clone(), folder.to_path_buf())
            .await
            .map_err(ApiError::internal)?;
        let app = Arc::new(app);
        self.listen_to(&app);
        apps.insert(folder.to_path_buf(), Arc::clone(&app));
        Ok(app)
    }

    /// Closes what was opened.
    pub(super) async fn leave(&self) {
        for app in self.apps.lock().await.values().chain([&self.here]) {
            app.telemetry.end().await;
            app.mcp.manager.close().await;
            app.notifier.finish().await;
            app.store.leave().await;
        }
        self.store.leave().await;
    }
}

impl ServerHost for Served {
    fn store(&self) -> &Arc<dyn ThreadRunStore> {
        &self.shared
    }

    fn access(&self) -> &Access {
        &self.access
    }

    fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    fn connections(&self) -> usize {
        /// Descriptors for the store, commands and their output.
        const KEPT: u64 = 192;
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let places = limit.unwrap_or(u64::MAX).saturating_sub(KEPT).clamp(64, 4096);
        usize::try_from(places).unwrap_or(64)
    }

    fn workshop<'a>(&'a self, folder: &'a Path) -> BoxFuture<'a, Result<Arc<dyn AgentFolder>, ApiError>> {
        Box::pin(async move {
            let app: Arc<dyn AgentFolder> = Arc::new(FolderApp(self.app_of(folder).await?));
            Ok(app)
        })
    }

    fn webhook_key(&self, name: &str) -> Option<Vec<u8>> {
        self.here.notifier.webhooks().key(name)
    }

    fn actor(&self, token: &str) -> Actor {
        let actor = self.here.actor(CHANNEL_HTTP);
        Actor { user: format!("{} ({token})", actor.user), tty: None, ..actor }
    }

    fn pushes(&self) -> Option<&dyn PushHost> {
        Some(self)
    }

    fn config(&self) -> Option<&dyn ConfigHost> {
        Some(self)
    }

    fn capabilities(&self) -> BoxFuture<'_, Result<Value, ApiError>> {
        Box::pin(async move {
            let mut agents = agents::rows(&self.here);
            for agent in &mut agents {
                agent["id"] = agent["name"].clone();
            }
            let mut all = catalog_view(&self.here.runtime.catalog());
            all["agents"] = json!(agents);
            all["models"] = json!([self.here.selection().full_name()]);
            all["providers"] = config::providers(&self.here).into_iter().map(|one| one.id).collect();
            all["mode"] = self.here.permission.mode().as_str().into();
            all["namespaces"] = json!(ConfigNamespace::ALL.map(ConfigNamespace::as_str));
            Ok(all)
        })
    }
}

impl PushHost for Served {
    fn checked_push(&self, url: &str) -> Result<(), ApiError> {
        let given = public_client(url, &self.here.foundation.loaded.settings.serve.push_hosts);
        given.map(drop).map_err(|refused| ApiError::field("url", refused.to_string()))
    }

    fn keep_push<'a>(
        &'a self,
        thread: &'a ThreadId,
        run: &'a RunId,
        config: &'a A2aPushConfig,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let target = PushTarget {
                run_id: run.clone(),
                id: config.id.clone(),
                thread_id: thread.clone(),
                config: serde_json::to_string(config)
                    .map_err(|error| ApiError::internal(error.to_string()))?,
            };
            let is_kept = self.store.put_push_target(target, self.here.clock.now_ms()).await?;
            if is_kept { Ok(()) } else { Err(ApiError::not_found("conversation", thread.as_str())) }
        })
    }

    fn pushes_of_run<'a>(&'a self, run: &'a RunId) -> BoxFuture<'a, Result<Vec<A2aPushConfig>, ApiError>> {
        Box::pin(async move {
            let found = self.store.push_targets(PushTargetsOf::Run(run.clone())).await?;
            Ok(found.into_iter().filter_map(waiting_push).map(|push| push.config).collect())
        })
    }

    fn pushes_that_wait<'a>(
        &'a self,
        thread: Option<&'a ThreadId>,
    ) -> BoxFuture<'a, Result<Vec<WaitingPush>, ApiError>> {
        Box::pin(async move {
            let of =
                thread.map_or(PushTargetsOf::AllWaiting, |thread| PushTargetsOf::Waiting(thread.clone()));
            Ok(self.store.push_targets(of).await?.into_iter().filter_map(waiting_push).collect())
        })
    }

    fn remove_push<'a>(&'a self, run: &'a RunId, id: &'a str) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            self.store.delete_push_target(run, id.to_owned()).await?;
            Ok(())
        })
    }

    fn push<'a>(
        &'a self,
        to: &'a WaitingPush,
        stop: &'a str,
        body: Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            self.here.notifier.webhooks().push(to, stop, &body).await?;
            Ok(())
        })
    }
}

/// Returns a push target; one that another version wrote is left out.
fn waiting_push(target: PushTarget) -> Option<WaitingPush> {
    let config = serde_json::from_str(&target.config).ok()?;
    Some(WaitingPush { thread: target.thread_id, run: target.run_id, config })
}

struct FolderApp(Arc<AppContext>);

impl AgentFolder for FolderApp {
    fn runtime(&self) -> &AgentRuntime {
        &self.0.runtime
    }

    fn prepare(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.0.mcp.ready_quietly().await;
        })
    }

    fn checked_grant(
        &self,
        request: GrantRequest,
        actor: Actor,
    ) -> BoxFuture<'_, Result<GrantRecord, ApiError>> {
        Box::pin(async move {
            self.0
                .checked_grant(request, actor)
                .await
                .map_err(|why| ApiError::field("grant", why.to_string()))
        })
    }

    fn root(&self) -> &Path {
        &self.0.foundation.workspace.root
    }

    fn model(&self) -> String {
        self.0.selection().full_name()
    }

    fn message(
        &self,
        mut content: Vec<ContentBlock>,
        may_mention: bool,
    ) -> BoxFuture<'_, Result<Message, ApiError>> {
        Box::pin(async move {
            let text = content.iter().position(|block| matches!(block, ContentBlock::Text { .. }));
            let Some(ContentBlock::Text { text }) = text.map(|at| content.remove(at)) else {
                return Ok(Message::user_with(content));
            };
            let typed = if may_mention { text.as_str() } else { "" };
            let written =
                WrittenMessage { text: &text, typed, attached: content, ..WrittenMessage::default() };
            if written.may_mention() {
                // Its prompts and resources are those of servers that may still be starting.
                self.0.mcp.ready_quietly().await;
            }
            compose::message(&self.0, written).await.map_err(|why| ApiError::field("text", why.to_string()))
        })
    }
}
