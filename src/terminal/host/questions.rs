//! Questions of any conversation, rules and grants.

use std::sync::Arc;

use serde_json::Value;

use super::TerminalHost;
use crate::commands::approvals::user_edit;
use crate::commands::grants;
use crate::config::repository_root;
use crate::contract::grant::GrantPreview;
use crate::contract::ids::{SuspensionId, ThreadId};
use crate::contract::record::{DecideOutcome, GrantScope, InboxRow, SuspensionRecord};
use crate::contract::storage::InboxFilter;
use crate::contract::suspension::Answer;
use crate::failure::AppError;
use crate::program::app_context::AppContext;
use crate::program::gate::GATE_AGENT;
use crate::runtime::DecideError;
use crate::session::{self, AnswerError, AnswerPlace, Reply};
use crate::terminal::background::folder_of;
use crate::tui::host::{GrantRow, HostEvent, HostFuture, OpenedQuestion, QuestionHost, Review, RuleRow};

impl TerminalHost {
    /// The app that a question's run belongs to: the one on the screen, or that of its folder.
    async fn app_of(&self, question: &SuspensionRecord) -> Result<Arc<AppContext>, AppError> {
        if self.viewer.shows_above(&question.thread_id) {
            return Ok(Arc::clone(&self.app));
        }
        self.elsewhere.app_of(&self.app, question).await
    }

    /// Resumes the run of a conversation that is not on the screen.
    async fn resume_elsewhere(&self, question: &SuspensionRecord, thread: &ThreadId) {
        let events = self.events.clone();
        match self.elsewhere.app_of(&self.app, question).await {
            Ok(app) if Arc::ptr_eq(&app, &self.app) => self.viewer.wake(thread),
            Ok(app) => self.elsewhere.resume_thread(app, thread.clone()),
            Err(why) => {
                let _ = events.send(HostEvent::Note(format!("stored, but it cannot resume here: {why}")));
            }
        }
    }
}

impl QuestionHost for TerminalHost {
    fn question<'a>(&'a self, id: &'a SuspensionId) -> HostFuture<'a, Option<SuspensionRecord>> {
        Box::pin(async move { Ok(self.app.store.suspension(id).await?) })
    }

    fn opened_question<'a>(&'a self, id: &'a SuspensionId) -> HostFuture<'a, Option<OpenedQuestion>> {
        Box::pin(async move {
            let Some(record) = self.app.store.suspension(id).await? else { return Ok(None) };
            let Some(thread) = self.app.store.load_thread(&record.thread_id).await? else {
                return Ok(None);
            };
            let project = repository_root(&folder_of(&record, &thread.cwd));
            let child = self.app.store.child(&record.thread_id).await?;
            let title = match &child {
                Some(child) => {
                    let root = self.app.store.load_thread(&child.root_thread).await?;
                    root.map_or(thread.title, |root| root.title)
                }
                None => thread.title,
            };
            Ok(Some(OpenedQuestion { record, title, project, child: child.map(|child| child.agent) }))
        })
    }

    fn decide<'a>(&'a self, id: &'a SuspensionId, mut answer: Answer) -> HostFuture<'a, DecideOutcome> {
        Box::pin(async move {
            let actor = self.app.actor("tui");
            let grant = match answer.grant.take() {
                Some(request) => {
                    let grant = self.app.checked_grant(request, actor.clone()).await;
                    Some(grant.map_err(|error| format!("the rule was not stored: {error}"))?)
                }
                None => None,
            };
            let reply = Reply { grant, ..Reply::from(answer) };
            let place = AnswerPlace::Runtime(&self.app.runtime);
            let answered = session::answer(place, id, reply, actor).await.map_err(on_card)?;
            if let (Some(thread), Some(record)) = (&answered.wakes, answered.record()) {
                let run = self.app.store.load_run(&record.run_id).await?;
                if run.is_some_and(|run| run.agent_id == GATE_AGENT) {
                    // Only a gate resumes it: the one that asked, or the one that is asked the same again.
                } else if self.viewer.shows(thread) {
                    self.viewer.wake(thread);
                } else {
                    self.resume_elsewhere(record, thread).await;
                }
            }
            Ok(answered.outcome)
        })
    }

    fn review<'a>(&'a self, suspension: &'a SuspensionId, arguments: &'a Value) -> HostFuture<'a, Review> {
        Box::pin(async move {
            let found = self.app.store.suspension(suspension).await?;
            let found = found.ok_or("the question no longer exists")?;
            let app = self.app_of(&found).await?;
            app.load_grants().await;
            let tool = app.runtime.catalog().tool(&found.ticket.pending.name).cloned();
            Ok(user_edit::review(&app.permission, tool, &found, arguments).await?)
        })
    }

    fn expired(&self, thread: &ThreadId) {
        self.viewer.wake(thread);
    }

    fn inbox(&self) -> HostFuture<'_, Vec<InboxRow>> {
        Box::pin(async move {
            let now = self.app.clock.now_ms();
            let waiting = crate::commands::approvals::waiting(&self.app.store, InboxFilter::default(), now);
            waiting.await.map_err(|failure| failure.message.into())
        })
    }

    fn waiting_elsewhere<'a>(&'a self, here: Option<&'a ThreadId>) -> HostFuture<'a, u64> {
        Box::pin(async move { Ok(self.app.store.waiting_count(here, self.app.clock.now_ms()).await?) })
    }

    fn preview_grant<'a>(
        &'a self,
        suspension: &'a SuspensionId,
        pattern: &'a str,
    ) -> HostFuture<'a, GrantPreview> {
        Box::pin(async move { Ok(self.app.preview_grant(&self.call_history, suspension, pattern).await?) })
    }

    fn grants(&self) -> HostFuture<'_, Vec<GrantRow>> {
        Box::pin(async move {
            let rows = grants::rows(&self.app.store, self.app.clock.now_ms(), true).await?;
            Ok(rows.iter().map(grants::GrantStatus::to_grant_row).collect())
        })
    }

    fn revoke_grant<'a>(&'a self, id: &'a str) -> HostFuture<'a, bool> {
        Box::pin(async move {
            let now = self.app.clock.now_ms();
            let revoked = self.app.store.revoke_grant(id, now).await?;
            self.app.load_grants().await;
            Ok(revoked)
        })
    }

    fn permissions(&self) -> Vec<RuleRow> {
        self.app.permission_rows()
    }
}

/// Describes why an answer was not accepted; the card already names the question.
fn on_card(error: AnswerError) -> String {
    match error {
        AnswerError::Refused(DecideError::Schema { message, .. } | DecideError::Unfit { message, .. }) => {
            format!("rejected: {message}")
        }
        AnswerError::Refused(DecideError::Arguments { message, .. }) => {
            format!("the edited arguments cannot be used: {message}")
        }
        error => error.to_string(),
    }
}

impl AppContext {
    /// The rules and grants in force.
    pub(crate) fn permission_rows(&self) -> Vec<RuleRow> {
        let rules = self.permission.rules();
        let mut rows: Vec<RuleRow> = rules
            .rules()
            .iter()
            .map(|rule| RuleRow {
                pattern: rule.pattern.to_string(),
                behavior: rule.behavior.to_string(),
                origin: rule.origin.to_string(),
            })
            .collect();
        rows.extend(self.permission.grants().into_iter().map(|grant| RuleRow {
            pattern: grant.pattern,
            behavior: "allow".to_owned(),
            origin: match grant.scope {
                GrantScope::Run(_) => "granted for a run".to_owned(),
                GrantScope::Thread(_) => "granted for a thread".to_owned(),
                GrantScope::Project(path) => format!("granted for {}", path.display()),
                GrantScope::Everywhere => "granted everywhere".to_owned(),
            },
        }));
        rows
    }
}
