//! Reads the events of one run for one reader, until the run is done or waits, whichever process drives it.

use std::sync::Arc;

use aye_core::contract::event::AgentEvent;
use aye_core::contract::ids::{RunId, ThreadId};

use super::error::ApiError;
use super::follow::{Follower, Frame};
use super::hub::Hub;

/// Reads one run.
pub(super) struct RunReader {
    follower: Follower,
    run: Option<RunId>,
    began: bool,
    is_over: bool,
}

impl RunReader {
    /// Creates a reader of what happens in a conversation from now on. It must be created before the run
    /// starts or is answered, so that the reader misses nothing.
    pub(super) async fn new(hub: &Arc<Hub>, thread: &ThreadId) -> Result<Self, ApiError> {
        let follower = Follower::from_now(Arc::clone(hub), thread.clone()).await?;
        Ok(Self { follower, run: None, began: false, is_over: false })
    }

    /// The same for a reader of the shared state.
    pub(super) async fn with_state(hub: &Arc<Hub>, thread: &ThreadId) -> Result<Self, ApiError> {
        let reader = Self::new(hub, thread).await?;
        reader.follower.want_state();
        Ok(reader)
    }

    /// Says which run it is about.
    pub(super) fn of(self, run: RunId) -> Self {
        Self { run: Some(run), ..self }
    }

    /// The same for a run that has started. Only an active one has frames to come.
    pub(super) fn joining(self, is_active: bool) -> Self {
        Self { began: true, is_over: !is_active, ..self }
    }

    /// Returns the next frame; `None` after the end of the run. Messages that users send meanwhile are left
    /// out.
    pub(super) async fn next(&mut self) -> Option<Frame> {
        while !self.is_over {
            let frame = self.follower.next().await?;
            let own = |id: &str| self.run.as_ref().is_none_or(|run| run.as_str() == id);
            match &frame {
                Frame::Event { event, .. } => match &**event {
                    AgentEvent::RunStart { run_id, .. } if own(run_id) => self.began = true,
                    AgentEvent::RunFinish { run_id, .. } if own(run_id) => {
                        (self.began, self.is_over) = (true, true);
                    }
                    _ => {}
                },
                Frame::Message(_) => continue,
                Frame::Dropped(_) => (self.began, self.is_over) = (true, true),
            }
            if self.began {
                return Some(frame);
            }
        }
        None
    }
}
