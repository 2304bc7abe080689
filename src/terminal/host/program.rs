//! The program itself: status, settings, pages, and trust in the folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;

use super::TerminalHost;
use super::writing::skill_rows;
use crate::config::{ModelSelection, OfferedServer, TrustItem, price_of};
use crate::contract::foreign::ForeignError;
use crate::contract::ids::ThreadId;
use crate::contract::lifecycle::{RunStatus, TerminationReason};
use crate::contract::storage::SharedStore;
use crate::program::environment::branch;
use crate::program::mcp::agree_to_shown;
use crate::program::mcp::show::changed;
use crate::terminal::{statusline, themes};
use crate::tui::host::{
    Choice, Host, HostEvent, HostFuture, HostInfo, LastThread, Mode, ModelPrices, ProgramHost, ProjectServer,
    StartChoice, TextPage, UntrustedRow,
};
use crate::tui::palette::HostPage;
use crate::tui::theme::ThemeRow;

/// Returns the last conversation of a folder, and what became of its run.
async fn last_here(store: &SharedStore, cwd: &Path) -> Option<LastThread> {
    let thread = store.latest_thread(cwd).await.ok()??;
    let run = store.latest_run(&thread.id).await.ok()?;
    let state = match run.map(|run| (run.status, run.termination)) {
        Some((RunStatus::Waiting, _)) => "waits for an answer,",
        Some((RunStatus::Done, Some(TerminationReason::Stopped(_)))) => "stopped",
        Some((RunStatus::Running | RunStatus::Done, _)) | None => "",
    };
    Some(LastThread { id: thread.id, title: thread.title, state: state.to_owned(), at: thread.updated_at })
}

/// The ways to begin for a user who has no key, when this model was found.
fn start_choices(found: &ModelSelection) -> Vec<StartChoice> {
    let local = (!found.is_demo()).then(|| StartChoice::Use {
        provider: found.provider.clone(),
        model: found.model.clone(),
        name: found.full_name(),
    });
    [StartChoice::LogIn].into_iter().chain(local).chain([StartChoice::Demo]).collect()
}

impl ProgramHost for TerminalHost {
    fn info(&self) -> HostInfo {
        let selection = self.app.selection();
        HostInfo {
            model: selection.model.clone(),
            provider: selection.provider.clone(),
            is_demo: selection.is_demo(),
            context_window: (!selection.is_demo()).then_some(selection.context_window),
            prices: {
                let models = self.app.foundation.loaded.settings.models.clone();
                ModelPrices::new(move |id| price_of(&models, id))
            },
            model_why: selection.why.clone(),
            start: if self.found.as_ref() == Some(&selection.full_name()) {
                start_choices(&selection)
            } else {
                Vec::new()
            },
            effort: self.app.foundation.effort.get(),
            effort_in_force: selection.effort(self.app.foundation.effort.get()),
            agent: self.app.agents.named(),
            mode: self.app.permission.mode(),
            most_mode: self.app.permission.most_mode(),
            cwd: self.app.foundation.workspace.cwd.clone(),
            project: self.app.foundation.workspace.root.clone(),
            home: self.app.foundation.env.home().map(PathBuf::from),
            branch: branch(&self.app.foundation.workspace.root),
            instructions: self.app.instructions.status(),
            unsandboxed: match &self.app.sandbox {
                Some(sandbox) => sandbox.known_lack(&self.app.foundation.workspace.root),
                None => Some("no sandbox".to_owned()),
            },
            warnings: self.app.all_warnings(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    fn shown(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // The first frame is shown and the user has not typed anything yet.
            self.app.notifier.send_escalations();
            let events = self.events.clone();
            let (app, of_prompts) = (Arc::downgrade(&self.app), self.events.clone());
            self.app.mcp.on_prompts(move || {
                if let Some(app) = app.upgrade() {
                    let _ = of_prompts.send(HostEvent::Skills(skill_rows(&app)));
                }
            });
            let (manager, runtime) =
                (Arc::downgrade(&self.app.mcp.manager), tokio::runtime::Handle::current());
            self.app.mcp.start(move |text| {
                let _ = events.send(HostEvent::Note(text));
                // Not here: the server that writes the note may not be asked before it is done.
                let (manager, events) = (manager.clone(), events.clone());
                runtime.spawn(async move {
                    let changed = manager.upgrade().map(|manager| changed(&manager)).unwrap_or_default();
                    if !changed.is_empty() {
                        let _ = events.send(HostEvent::ToolsChanged(changed));
                    }
                });
            });
            let store = self.app.store.clone();
            let (cwd, of_last) = (self.app.foundation.workspace.cwd.clone(), self.events.clone());
            tokio::spawn(async move {
                store.warm().await;
                if let Some(last) = last_here(&store, &cwd).await {
                    let _ = of_last.send(HostEvent::LastHere(last));
                }
            });
            let upgrade = self.app.foundation.loaded.settings.upgrade.clone();
            let (newest, of_upgrade) = (self.app.foundation.paths.newest_file(), self.events.clone());
            tokio::spawn(async move {
                if let Some(notice) = crate::program::installer::notice(upgrade, newest).await {
                    let _ = of_upgrade.send(HostEvent::Note(notice));
                }
            });
            // Looking what the machine can enforce starts a process, and a first command would wait for that.
            if let Some(sandbox) = self.app.sandbox.clone() {
                let root = self.app.foundation.workspace.root.clone();
                let events = self.events.clone();
                tokio::task::spawn_blocking(move || {
                    if let Some(lack) = sandbox.lack(&root) {
                        let _ = events.send(HostEvent::Unsandboxed(lack));
                    }
                });
            }
            let foundation = &self.app.foundation;
            let is_home = foundation.env.home() == Some(foundation.workspace.root.as_path());
            if !foundation.is_ephemeral && !foundation.is_bare && !is_home {
                let root = foundation.workspace.root.clone();
                let marker = foundation.paths.import_offers_dir().join(foundation.project_id());
                let events = self.events.clone();
                tokio::task::spawn_blocking(move || {
                    if let Some(text) = crate::import::hint(&root, &marker) {
                        let _ = events.send(HostEvent::Note(text));
                    }
                });
            }
            // Reading a large folder takes long, and a first command would wait for it.
            if let Some(snapshots) = &self.app.snapshots {
                crate::contract::snapshot::Snapshots::prepare(snapshots);
            }
        })
    }

    fn untrusted(&self) -> Vec<UntrustedRow> {
        let reach = crate::program::programs::reach(&self.app.foundation);
        let row = |item: &TrustItem| {
            let ending = if item.starts { format!("\n{reach}") } else { String::new() };
            let server = |server: &OfferedServer| ProjectServer {
                name: server.name.clone(),
                runs: server.runs.clone(),
                is_program: server.is_program,
                facts: server
                    .facts
                    .iter()
                    .cloned()
                    .chain(server.is_program.then(|| reach.to_owned()))
                    .collect(),
            };
            UntrustedRow {
                path: item.path.clone(),
                does: format!("{}{ending}", item.summary),
                servers: item.servers.iter().map(server).collect(),
            }
        };
        self.app.foundation.untrusted.iter().map(row).collect()
    }

    fn trust(&self) -> HostFuture<'_, ()> {
        Box::pin(async move {
            agree_to_shown(&self.app.foundation)?;
            Ok(self.app.foundation.trust()?)
        })
    }

    fn renew(&self) -> HostFuture<'_, Option<Arc<dyn Host>>> {
        Box::pin(async move {
            if !self.viewer.rests().await {
                return Ok(None);
            }
            let app = Arc::new(self.app.renewed(&self.cli).await.map_err(|failure| failure.message)?);
            let elsewhere = Arc::clone(&self.elsewhere);
            let next = Arc::new(TerminalHost::new(app, self.events.clone(), elsewhere, self.cli.clone()));
            for watching in &self.watching {
                watching.abort();
            }
            self.viewer.transfer_to(&next.viewer);
            self.app.mcp.manager.close().await;
            let next: Arc<dyn Host> = Arc::<TerminalHost>::clone(self.next.get_or_init(|| next));
            Ok(Some(next))
        })
    }

    fn set_mode(&self, mode: Mode) -> Result<(), ForeignError> {
        Ok(self.app.permission.set_mode(mode)?)
    }

    fn themes(&self) -> Vec<ThemeRow> {
        themes::list(&self.app.foundation)
    }

    fn keep<'a>(&'a self, choice: Choice, value: &'a str) -> HostFuture<'a, PathBuf> {
        Box::pin(async move {
            let (app, value) = (Arc::clone(&self.app), value.to_owned());
            let kept = tokio::task::spawn_blocking(move || {
                themes::keep(&app.foundation, choice.key(), Some(&value))
            })
            .await;
            Ok(kept??)
        })
    }

    fn status_line(&self, json: String) -> HostFuture<'_, String> {
        Box::pin(async move { Ok(statusline::run(&self.app.foundation, json).await?) })
    }

    fn page<'a>(
        &'a self,
        thread: Option<&'a ThreadId>,
        page: HostPage,
        words: &'a str,
    ) -> HostFuture<'a, TextPage> {
        Box::pin(async move {
            let note = match page {
                HostPage::Compact => Some("summarising older messages …"),
                HostPage::Btw if !words.trim().is_empty() => Some("asking beside the conversation …"),
                _ => None,
            };
            if let Some(note) = note {
                let _ = self.events.send(HostEvent::Note(note.to_owned()));
            }
            let page = crate::terminal::pages::page(&self.app, &self.elsewhere, thread, page, words).await;
            // What a page changed in the conversation is reported like changes by others.
            self.viewer.changed();
            Ok(page?)
        })
    }
}
