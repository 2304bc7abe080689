//! Executes tool calls without a run, for programs and tests that have tools and no runtime.
//!
//! The executors ask no questions, store nothing and recover nothing: a run executes its calls through the
//! gate and the journal. Both share the order in which calls start, [`ToolExecutionMode`].

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt as _;
use futures::future::join_all;

use aye_core::contract::executor::{DecisionReplayPolicy, ToolExecutionMode};
use aye_core::contract::lifecycle::ToolCallOutcome;
use aye_core::contract::message::ToolCall;
use aye_core::contract::tool::{
    Tool, ToolCallContext, ToolError, ToolOutput, ToolResult, ToolStatus, prepare_call,
};
use aye_core::state::{StateCommand, StateError};

/// The result of one call.
#[derive(Debug)]
pub struct ToolExecutionResult {
    pub call: ToolCall,
    /// The result that the model reads.
    pub result: ToolResult,
    /// The outcome of the call, or that it waits for an answer.
    pub outcome: ToolCallOutcome,
    /// The state changes that the tool requests; the caller commits them.
    pub command: StateCommand,
}

/// Why calls were not executed, or their commands cannot all be committed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ToolExecutorError {
    /// The token of the context was cancelled; what calls did until then is lost.
    #[error("cancelled")]
    Cancelled,
    /// Calls that ran at the same time write one exclusive key.
    #[error(transparent)]
    State(#[from] StateError),
}

/// Executes the calls of one answer of a model.
#[async_trait]
pub trait ToolExecutor: Send + Sync {
    /// Executes the calls and returns their results in the order of the calls. A call that fails has an error result.
    ///
    /// # Errors
    /// [`ToolExecutorError`].
    async fn execute(
        &self,
        tools: &HashMap<String, Arc<dyn Tool>>,
        calls: &[ToolCall],
        base_ctx: &ToolCallContext,
    ) -> Result<Vec<ToolExecutionResult>, ToolExecutorError>;

    /// Name for logs.
    fn name(&self) -> &'static str;

    /// Whether a call may read what the previous one wrote: the caller then passes one call at a time, each
    /// with a snapshot that contains the commands of the earlier ones.
    fn requires_incremental_state(&self) -> bool {
        false
    }

    /// Whether it is an error if two calls write the same exclusive key.
    fn requires_conflict_check(&self) -> bool {
        false
    }
}

/// Executes calls one at a time, in order, up to the first one that waits. A failed call does not stop it.
#[derive(Clone, Copy, Debug, Default)]
pub struct SequentialToolExecutor;

#[async_trait]
impl ToolExecutor for SequentialToolExecutor {
    async fn execute(
        &self,
        tools: &HashMap<String, Arc<dyn Tool>>,
        calls: &[ToolCall],
        base_ctx: &ToolCallContext,
    ) -> Result<Vec<ToolExecutionResult>, ToolExecutorError> {
        let mut results = Vec::new();
        for call in calls {
            let result = execute_call(tools, call, base_ctx).await?;
            let waits = result.outcome == ToolCallOutcome::Suspended;
            results.push(result);
            if waits {
                break;
            }
        }
        Ok(results)
    }

    fn name(&self) -> &'static str {
        "sequential"
    }

    fn requires_incremental_state(&self) -> bool {
        true
    }
}

/// Executes all calls at once, on one snapshot; calls that wait or fail do not stop the others.
#[derive(Clone, Copy, Debug)]
pub struct ParallelToolExecutor {
    mode: ToolExecutionMode,
}

impl ParallelToolExecutor {
    /// Decided calls start together, when every question is decided.
    pub fn batch_approval() -> Self {
        Self { mode: ToolExecutionMode::ParallelBatchApproval }
    }

    /// A decided call starts at once.
    pub fn streaming() -> Self {
        Self { mode: ToolExecutionMode::ParallelStreaming }
    }

    /// When decided calls start.
    pub fn decision_replay_policy(&self) -> DecisionReplayPolicy {
        self.mode.decision_replay_policy()
    }
}

#[async_trait]
impl ToolExecutor for ParallelToolExecutor {
    async fn execute(
        &self,
        tools: &HashMap<String, Arc<dyn Tool>>,
        calls: &[ToolCall],
        base_ctx: &ToolCallContext,
    ) -> Result<Vec<ToolExecutionResult>, ToolExecutorError> {
        let results = join_all(calls.iter().map(|call| execute_call(tools, call, base_ctx))).await;
        let results = results.into_iter().collect::<Result<Vec<_>, _>>()?;
        for (at, one) in results.iter().enumerate() {
            let mut earlier = results[..at].iter();
            if let Some(key) = earlier.find_map(|other| other.command.batch.conflict(&one.command.batch)) {
                return Err(StateError::ParallelMergeConflict { key: key.into() }.into());
            }
        }
        Ok(results)
    }

    fn name(&self) -> &'static str {
        match self.mode {
            ToolExecutionMode::ParallelBatchApproval => "parallel_batch_approval",
            ToolExecutionMode::ParallelStreaming | ToolExecutionMode::Sequential => "parallel_streaming",
        }
    }

    fn requires_conflict_check(&self) -> bool {
        true
    }
}

async fn execute_call(
    tools: &HashMap<String, Arc<dyn Tool>>,
    call: &ToolCall,
    base_ctx: &ToolCallContext,
) -> Result<ToolExecutionResult, ToolExecutorError> {
    let ctx = ToolCallContext { call_id: call.id.clone(), tool_name: call.name.clone(), ..base_ctx.clone() };
    let output = async {
        let tool = tools
            .get(&call.name)
            .ok_or_else(|| ToolError::NotFound(format!("unknown tool `{}`", call.name)))?;
        if let Some(why) = &call.invalid {
            return Err(ToolError::InvalidArguments(why.clone()));
        }
        prepare_call(tool, &call.arguments)?.execute(&ctx).await
    };
    let output = AssertUnwindSafe(output).catch_unwind();
    let output = base_ctx.cancellation.run_until_cancelled(output).await;
    let output = output.ok_or(ToolExecutorError::Cancelled)?;
    let output = output.unwrap_or_else(|_| Err(ToolError::Internal("the tool panicked".into())));
    let ToolOutput { result, command } = output.unwrap_or_else(|error| error.into_result(&call.name).into());
    let outcome = match result.status {
        ToolStatus::Success => ToolCallOutcome::Succeeded,
        ToolStatus::Pending => ToolCallOutcome::Suspended,
        ToolStatus::Error => ToolCallOutcome::Failed,
    };
    Ok(ToolExecutionResult { call: call.clone(), result, outcome, command })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tokio::sync::Barrier;

    use super::*;
    use aye_core::contract::tool::ToolDescriptor;
    use aye_core::state::{MergeStrategy, StateKey};

    struct Owner;

    impl StateKey for Owner {
        const KEY: &'static str = "executor.owner";
        const MERGE: MergeStrategy = MergeStrategy::Exclusive;
        type Value = String;
        type Update = String;

        fn apply(value: &mut String, update: String) {
            *value = update;
        }
    }

    /// Does what `as` says; with a barrier, only together with others.
    #[derive(Default)]
    struct Act(Option<Barrier>);

    #[async_trait]
    impl Tool for Act {
        fn descriptor(&self) -> ToolDescriptor {
            ToolDescriptor::new("act", "Act", "Acts")
        }

        fn validate_args(&self, args: &Value) -> Result<(), ToolError> {
            args["as"].as_str().map(|_| ()).ok_or_else(|| ToolError::InvalidArguments("as is missing".into()))
        }

        async fn execute(&self, args: Value, ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
            if let Some(barrier) = &self.0 {
                barrier.wait().await;
            }
            let mut command = StateCommand::new();
            match args["as"].as_str() {
                Some("wait") => return Ok(ToolResult::suspended("act", "waiting").into()),
                Some("panic") => panic!("as asked"),
                Some("write") => command.update::<Owner>(ctx.call_id.clone()),
                Some("cancel") => {
                    ctx.cancellation.cancel();
                    std::future::pending::<()>().await;
                }
                _ => {}
            }
            Ok(ToolOutput::with_command(ToolResult::success("act", json!(ctx.call_id)), command))
        }
    }

    async fn run(
        executor: &dyn ToolExecutor,
        act: Act,
        how: &[Value],
    ) -> Result<Vec<ToolExecutionResult>, ToolExecutorError> {
        let tools = HashMap::from([("act".to_owned(), Arc::new(act) as Arc<dyn Tool>)]);
        let call = |(n, how): (usize, &Value)| {
            let name = if how == "unknown" { "other" } else { "act" };
            ToolCall::new(format!("c{n}"), name, json!({"as": how}))
        };
        let calls: Vec<_> = how.iter().enumerate().map(call).collect();
        executor.execute(&tools, &calls, &ToolCallContext::test_default()).await
    }

    fn outcomes(results: &[ToolExecutionResult]) -> Vec<ToolCallOutcome> {
        results.iter().map(|result| result.outcome).collect()
    }

    #[tokio::test]
    async fn sequential_execution_stops_at_the_first_question() {
        use ToolCallOutcome::{Failed, Succeeded, Suspended};
        let how = [json!("go"), json!("panic"), json!(7), json!("unknown"), json!("wait"), json!("go")];
        let executor = SequentialToolExecutor;
        let results = run(&executor, Act::default(), &how).await.expect("executed");
        assert_eq!(outcomes(&results), [Succeeded, Failed, Failed, Failed, Suspended]);
        assert_eq!(results[0].result.data, json!("c0"));
        assert!(results[2].result.model_text().contains("as is missing"));
        assert!(results[3].result.model_text().contains("unknown tool `other`"));
        assert!(executor.requires_incremental_state() && !executor.requires_conflict_check());
        assert_eq!(executor.name(), "sequential");
    }

    #[tokio::test]
    async fn parallel_execution_continues_past_questions_and_failures() {
        use ToolCallOutcome::{Failed, Succeeded, Suspended};
        let how = [json!("wait"), json!("panic"), json!("write")];
        for (executor, name, policy) in [
            (ParallelToolExecutor::streaming(), "parallel_streaming", DecisionReplayPolicy::Immediate),
            (
                ParallelToolExecutor::batch_approval(),
                "parallel_batch_approval",
                DecisionReplayPolicy::BatchAllSuspended,
            ),
        ] {
            // None of them passes the barrier before all have started.
            let results = run(&executor, Act(Some(Barrier::new(3))), &how).await.expect("executed");
            assert_eq!(outcomes(&results), [Suspended, Failed, Succeeded]);
            assert!(!results[2].command.is_empty());
            assert_eq!((executor.name(), executor.decision_replay_policy()), (name, policy));
            assert!(executor.requires_conflict_check() && !executor.requires_incremental_state());
        }
    }

    #[tokio::test]
    async fn writers_of_an_exclusive_key_conflict_only_in_parallel() {
        let how = [json!("write"), json!("go"), json!("write")];
        let refused = run(&ParallelToolExecutor::streaming(), Act::default(), &how).await;
        let conflict = StateError::ParallelMergeConflict { key: "executor.owner".into() };
        assert_eq!(refused.expect_err("a conflict"), ToolExecutorError::State(conflict));
        assert_eq!(run(&SequentialToolExecutor, Act::default(), &how).await.expect("executed").len(), 3);
    }

    #[tokio::test]
    async fn a_cancelled_call_ends_the_execution() {
        for executor in [&SequentialToolExecutor as &dyn ToolExecutor, &ParallelToolExecutor::streaming()] {
            let ended = run(executor, Act::default(), &[json!("go"), json!("cancel")]).await;
            assert_eq!(ended.expect_err("cancelled"), ToolExecutorError::Cancelled);
        }
    }
}
