//! What a run has started and waits for: an inference, a summary, tools and their output.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;

use super::output::CallSink;
use super::parts::Inferred;
use super::request::RuntimeError;
use aye_core::contract::ids::CallId;
use aye_core::contract::tool::{ToolError, ToolOutput};

/// Time that tools have to end after a cancel before they are dropped.
const ABORT_GRACE: Duration = Duration::from_secs(4);

/// The result of work that was in flight.
#[expect(
    clippy::large_enum_variant,
    reason = "one is made for each thing that comes back and taken apart at once"
)]
pub(super) enum Done {
    Inferred(Box<Inferred>),
    Executed {
        call: CallId,
        output: Result<ToolOutput, ToolError>,
    },
    /// The attempt at a summary has ended, with or without one: the model is asked again.
    Compacted,
    /// A tool was not started, because the thread is not surely this driver's any more.
    Kept(RuntimeError),
}

/// The work of a run that is in flight.
#[derive(Default)]
pub(super) struct InFlight {
    work: FuturesUnordered<BoxFuture<'static, Done>>,
    /// The output of calls that run.
    outputs: HashMap<CallId, Arc<CallSink>>,
}

impl InFlight {
    pub(super) fn start(&mut self, work: impl Future<Output = Done> + Send + 'static) {
        self.work.push(Box::pin(work));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.work.is_empty()
    }

    /// Returns what comes back next; `None` if nothing is in flight.
    pub(super) async fn next(&mut self) -> Option<Done> {
        self.work.next().await
    }

    /// Keeps the output of a call that runs.
    pub(super) fn add_output(&mut self, call: CallId, output: Arc<CallSink>) {
        self.outputs.insert(call, output);
    }

    /// Ends the output of a call, if it runs, and returns it.
    pub(super) fn end_output(&mut self, call: &CallId) -> Option<Arc<CallSink>> {
        self.outputs.remove(call).inspect(|output| output.end())
    }

    /// Drops the work, after tools that run have had time to end.
    pub(super) async fn stop(&mut self) {
        let deadline = tokio::time::sleep(ABORT_GRACE);
        tokio::pin!(deadline);
        let executing = !self.outputs.is_empty();
        while executing && !self.work.is_empty() {
            tokio::select! {
                biased;
                done = self.work.next() => {
                    // The closing of the call reports its result, if any: for the call, the run has ended.
                    drop(done);
                }
                () = &mut deadline => break,
            }
        }
        self.work.clear();
    }
}
