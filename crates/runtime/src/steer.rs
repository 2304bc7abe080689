//! Messages that a user sends during a run: each is queued like any message, and the run takes it before its next
//! inference. A message that no step takes starts its own run, like any queued message; both happen in one
//! transaction with its removal from the queue.

use super::driver::Driver;
use super::request::RuntimeError;
use aye_core::contract::activity::{KnownActivity, SteeredMessage};
use aye_core::contract::child::ChildRunState;
use aye_core::contract::content::ContentBlock;
use aye_core::contract::message::Message;
use aye_core::contract::record::{JobClaim, QueuedMessage};

impl Driver {
    /// Takes in the messages sent since the last step started. The first step takes only the reports of
    /// background tasks, so that tasks that end together start one run.
    pub(super) async fn take_steering(&mut self) -> Result<(), RuntimeError> {
        let is_first = self.machine.steps() == 0;
        if is_first {
            if !self.step.calls.is_empty() {
                // The user's own call comes before anything else.
                return Ok(());
            }
            if let Err(error) = self.shared.report_commands(&self.record.thread_id).await {
                tracing::error!(thread = %self.record.thread_id, %error, "background commands cannot be read");
            }
        }
        let queued = match self.shared.store.queued(&self.record.thread_id).await {
            Ok(queued) => queued,
            Err(error) => {
                // It stays where it is.
                tracing::error!(thread = %self.record.thread_id, %error, "the queue cannot be read");
                return Ok(());
            }
        };
        let now = self.shared.clock.now_ms();
        let joins = |message: &QueuedMessage| message.reports_task() || !is_first && message.steers();
        for message in queued.into_iter().filter(|message| joins(message) && message.begins(now)) {
            self.take_one(message).await?;
        }
        Ok(())
    }

    async fn take_one(&mut self, queued: QueuedMessage) -> Result<(), RuntimeError> {
        // Earlier changes are stored on their own, because they must not depend on whether the message is
        // still queued.
        self.checkpoint().await?;
        let before = self.history.outline().clone();
        let charged = (self.record.usage, self.record.spent.clone());
        for message in &queued.messages {
            self.charge_all(&ChildRunState::spent_in_background(message));
            self.append_message(message.clone());
        }
        self.unsaved.takes = Some(JobClaim { id: queued.id, claim: None });
        match self.checkpoint().await {
            Ok(()) => {}
            Err(RuntimeError::NotQueued { .. }) => {
                self.history.back_to(before);
                (self.record.usage, self.record.spent) = charged;
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        let texts: Vec<String> = queued.messages.iter().map(Message::written).collect();
        let blocks = queued.messages.iter().flat_map(|message| &message.content);
        let message = SteeredMessage {
            queued: queued.id,
            text: texts.join("\n\n"),
            shown: queued.shown(),
            is_report: queued.reports_task(),
            images: blocks.filter_map(ContentBlock::as_stored_image).cloned().collect(),
        };
        self.emit_activities(vec![KnownActivity::Steered(message).into()]).await;
        Ok(())
    }
}
