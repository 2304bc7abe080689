//! Subagents with `worktree: true`: each works in a git worktree of the project, with the tools, rules and limits of that
//! folder. Nothing of it is kept here: the name of the worktree comes from the conversation, so whoever resumes it finds it.

use std::collections::HashMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::sync::Mutex;

use crate::cli::start::{StartFlags, StartKind};
use crate::config::Env;
use crate::contract::child::ChildRecord;
use crate::contract::digest::sha256_hex;
use crate::contract::ids::ThreadId;
use crate::contract::storage::SharedStore;
use crate::failure::Failure;
use crate::plugins::permission::Permissions;
use crate::program::foundation::Foundation;
use crate::program::worktrees::{Worktree, Worktrees, trust_copy};
use crate::runtime::{AgentRuntime, Workplaces};

/// Characters of an agent's name in that of its worktree.
const MAX_AGENT: usize = 40;

/// The program of a worktree.
pub(crate) trait WorktreeProgram: Send + Sync {
    fn runtime(&self) -> &AgentRuntime;
    fn permission(&self) -> &Permissions;
    /// Waits until its MCP servers are usable, as long as a start waits.
    fn ready(&self) -> BoxFuture<'_, ()>;
    /// Ends its servers.
    fn end(&self) -> BoxFuture<'_, ()>;
}

/// Assembles the program of a folder.
pub(crate) type Assemble =
    fn(SharedStore, Foundation, StartFlags) -> BoxFuture<'static, Result<Arc<dyn WorktreeProgram>, Failure>>;

/// The worktrees of the subagents of a project.
pub(crate) struct WorktreeAgents {
    env: Env,
    cli: StartFlags,
    store: SharedStore,
    permission: Permissions,
    /// The programs of the worktrees that children work in now.
    apps: Mutex<HashMap<ThreadId, Arc<dyn WorktreeProgram>>>,
    assemble: Assemble,
}

impl WorktreeAgents {
    pub(crate) fn new(
        foundation: &Foundation,
        cli: &StartFlags,
        store: &SharedStore,
        permission: &Permissions,
        assemble: Assemble,
    ) -> Self {
        let mut cli = cli.clone();
        let flags = &mut cli.global;
        // Paths of flags are those of this folder.
        let cwd = &foundation.workspace.cwd;
        let paths = flags.add_dir.iter_mut().chain(&mut flags.mcp_config);
        let files = [&mut flags.system_prompt_file, &mut flags.append_system_prompt_file];
        for path in paths.chain(files.into_iter().flatten()) {
            *path = cwd.join(&*path);
        }
        (flags.cd, cli.worktree, cli.until) = (None, None, None);
        if cli.kind == StartKind::Chat {
            // Only the conversation itself is on the screen.
            cli.kind = StartKind::Attended;
        }
        Self {
            env: foundation.env.clone(),
            cli,
            store: store.clone(),
            permission: permission.clone(),
            apps: Mutex::default(),
            assemble,
        }
    }

    /// The project's own folder, as it is now.
    fn checkout(&self) -> Result<Foundation, Failure> {
        Foundation::load(&self.cli, self.env.clone())
    }

    async fn open(&self, child: &ChildRecord) -> Result<AgentRuntime, Failure> {
        let mut apps = self.apps.lock().await;
        if let Some(app) = apps.get(&child.thread_id) {
            return Ok(app.runtime().clone());
        }
        let checkout = self.checkout()?;
        let worktrees = Worktrees::of(&checkout).await?.for_mode(self.permission.mode());
        let (worktree, _) = worktrees.enter(&name_of(child)).await?;
        trust_copy(&checkout, &worktree.path, self.cli.global.trust)?;
        let cwd = worktrees.cwd_in(&worktree, &checkout);
        let foundation = Foundation::load(&self.cli, self.env.clone().with_cwd(cwd))?;
        let app = (self.assemble)(self.store.clone(), foundation, self.cli.clone()).await?;
        app.permission().work_for(self.permission.clone());
        app.ready().await;
        let runtime = app.runtime().clone();
        apps.insert(child.thread_id.clone(), app);
        Ok(runtime)
    }

    /// Removes a worktree without work of its own, and says what another one has.
    async fn close(&self, child: &ChildRecord) -> Result<Option<String>, Failure> {
        let open = self.apps.lock().await.remove(&child.thread_id);
        if let Some(app) = open {
            app.end().await;
        }
        let worktrees = Worktrees::of(&self.checkout()?).await?;
        let Ok(worktree) = worktrees.named(&name_of(child)) else { return Ok(None) };
        let changes = worktrees.state(&worktree).await.map_err(Failure::failed)?;
        let Worktree { name, .. } = &worktree;
        if changes.is_empty() && worktrees.remove(&worktree, false).await.is_ok() {
            return Ok(None);
        }
        let commit = if changes.uncommitted > 0 { " once everything is committed" } else { "" };
        Ok(Some(format!(
            "Its work is in the worktree {name}, on branch {} ({changes}), and not in this folder. The user reads and merges it \
             with `aye worktrees merge {name}`{commit}.",
            worktree.branch()
        )))
    }
}

impl Workplaces for WorktreeAgents {
    fn enter<'a>(&'a self, child: &'a ChildRecord) -> BoxFuture<'a, Result<AgentRuntime, String>> {
        Box::pin(async move { self.open(child).await.map_err(|failure| failure.message) })
    }

    fn leave<'a>(&'a self, child: &'a ChildRecord) -> BoxFuture<'a, Option<String>> {
        Box::pin(async move {
            self.close(child).await.unwrap_or_else(|failure| {
                tracing::warn!(thread = %child.thread_id, why = failure.message, "a worktree was left as it is");
                None
            })
        })
    }
}

/// The name of a child's worktree: that of its agent, with a part of its own.
fn name_of(child: &ChildRecord) -> String {
    let agent: String = child.agent.chars().take(MAX_AGENT).collect();
    let agent = agent.trim_start_matches(['-', '_']);
    format!(
        "{}-{}",
        if agent.is_empty() { "agent" } else { agent },
        &sha256_hex(child.thread_id.as_str().as_bytes())[..6]
    )
}
