//! Folders of their own for children: a run of an agent with `worktree: true` that serves a call of another agent works
//! there, with the tools and rules of a runtime for that folder.

use std::sync::Arc;

use futures::future::BoxFuture;

use super::request::{AgentRunResult, RuntimeError};
use super::{AgentRuntime, RuntimeCore, windows};
use aye_core::contract::child::ChildRecord;
use aye_core::contract::lifecycle::{RunStatus, TerminationReason};

/// The folders of children, which the program makes.
pub trait Workplaces: Send + Sync {
    /// Returns the runtime of the folder that a child works in; the folder is made unless it exists. Called again for the
    /// same child by whoever resumes it.
    fn enter<'a>(&'a self, child: &'a ChildRecord) -> BoxFuture<'a, Result<AgentRuntime, String>>;

    /// Called when the child is over. Returns what its caller should know about the folder.
    fn leave<'a>(&'a self, child: &'a ChildRecord) -> BoxFuture<'a, Option<String>>;
}

impl RuntimeCore {
    fn workplaces_of(&self, child: &ChildRecord) -> Option<Arc<dyn Workplaces>> {
        let is_elsewhere = self.catalog().agents.get(&child.agent).is_some_and(|spec| spec.worktree);
        self.workplaces.clone().filter(|_| is_elsewhere)
    }
}

impl AgentRuntime {
    /// Returns the runtime that drives a child: this one, or one for the child's own folder.
    pub(super) async fn of_child(&self, child: &ChildRecord) -> Result<AgentRuntime, RuntimeError> {
        let shared = &self.inner.shared;
        let Some(workplaces) = shared.workplaces_of(child) else { return Ok(self.clone()) };
        let run = shared.store.latest_run(&child.thread_id).await?;
        if run.is_some_and(|run| run.status == RunStatus::Done) {
            return Ok(self.clone());
        }
        let there = workplaces.enter(child).await.map_err(|why| RuntimeError::ResolveFailed {
            message: format!("it has no folder of its own: {why}"),
        })?;
        Ok(self.with_agents_of(&there))
    }

    /// Leaves the folder of a child that is over, and adds to its answer what that says.
    pub(super) async fn after_child(
        &self,
        child: &ChildRecord,
        result: Result<AgentRunResult, RuntimeError>,
    ) -> Result<AgentRunResult, RuntimeError> {
        let mut result = result?;
        if result.termination != TerminationReason::Suspended
            && let Some(workplaces) = self.inner.shared.workplaces_of(child)
            && let Some(words) = workplaces.leave(child).await
        {
            let answer = result.response.trim_end();
            let space = if answer.is_empty() { "" } else { "\n\n" };
            result.response = format!("{answer}{space}[{words}]");
        }
        Ok(result)
    }

    /// The agents, tools and rules of another runtime in its folder, driven as a part of this one: with its lease, its
    /// drivers and its tasks, so that questions, answers and cancels find them.
    fn with_agents_of(&self, there: &AgentRuntime) -> AgentRuntime {
        let (own, other) = (&self.inner.shared, &there.inner.shared);
        let core = RuntimeCore {
            catalog: Arc::clone(&other.catalog),
            breaker: Arc::clone(&own.breaker),
            store: Arc::clone(&own.store),
            clock: Arc::clone(&own.clock),
            owner: own.owner.clone(),
            announced: Arc::clone(&own.announced),
            presence: Arc::clone(&own.presence),
            cwd: other.cwd.clone(),
            keys: other.keys.clone(),
            leftover_handler: other.leftover_handler.clone(),
            lease: own.lease,
            grants: other.grants.clone(),
            renderers: other.renderers.clone(),
            question_terms: other.question_terms.clone(),
            waits_for_limits: own.waits_for_limits,
            artifacts: other.artifacts.clone(),
            windows: windows::Windows::default(),
            phases: None,
            profiles: Arc::clone(&own.profiles),
            are_profiles_stored: own.are_profiles_stored,
            snapshots: other.snapshots.clone(),
            tasks: Arc::clone(&own.tasks),
            commands: Arc::clone(&own.commands),
            remotes: Arc::clone(&own.remotes),
            // A child of the child works where the child does.
            workplaces: None,
        };
        AgentRuntime::of(&Arc::new(core), &self.inner.live)
    }
}
