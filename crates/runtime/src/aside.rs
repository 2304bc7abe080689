//! Requests to a model beside the answers of runs: summaries and titles.

use futures::StreamExt as _;

use super::RuntimeCore;
use super::resolve::ResolvedAgent;
use super::retry::cut;
use aye_core::contract::executor::{InferenceExecutionError, InferenceRequest, LlmStreamEvent};
use aye_core::contract::ids::ThreadId;
use aye_core::contract::inference::{ModelUsage, StreamResult};

impl RuntimeCore {
    /// Asks the agent's model for a conversation, and puts the request on the conversation's bill: a run is charged
    /// for it.
    pub(super) async fn ask_aside(
        &self,
        thread: &ThreadId,
        agent: &ResolvedAgent,
        request: InferenceRequest,
    ) -> Result<StreamResult, InferenceExecutionError> {
        let mut stream = agent.executor.execute_stream(request).await?;
        while let Some(event) = stream.next().await {
            if let LlmStreamEvent::Finish { result, model } = event? {
                if let Some(usage) = result.usage {
                    let spent = ModelUsage { model, usage };
                    self.windows.bill(thread, &spent);
                    self.count_request(&spent).await;
                }
                return Ok(result);
            }
        }
        Err(cut())
    }

    /// Counts a request that no message records. A count that is lost must not cost the answer.
    pub(super) async fn count_request(&self, spent: &ModelUsage) {
        if let Err(error) = self.store.count_request(spent, self.clock.now_ms()).await {
            tracing::warn!(%error, model = spent.model, "a request is missing from the statistics");
        }
    }
}
