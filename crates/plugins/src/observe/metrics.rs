//! The reported metrics.

use std::collections::BTreeMap;

/// The run that something belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RunRef {
    pub thread_id: String,
    pub run_id: String,
    /// The run whose call it serves.
    pub parent_run_id: Option<String>,
    pub agent_id: String,
    /// The client's id of the request that the run serves.
    pub correlation_id: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenAISpan {
    pub run: RunRef,
    /// The model's name, as its provider knows it; the agent's model when no answer came.
    pub model: String,
    /// The provider, as far as the agent's model names it.
    pub provider: String,
    /// `chat`.
    pub operation: String,
    /// Why the model stopped.
    pub finish_reasons: Vec<String>,
    /// The error, if no answer arrived: `error` or `cancelled`.
    pub error_type: Option<String>,
    /// Tokens that went in.
    pub input_tokens: Option<i32>,
    /// Tokens that came out.
    pub output_tokens: Option<i32>,
    pub total_tokens: Option<i32>,
    /// Tokens that came from a cache.
    pub cache_read_input_tokens: Option<i32>,
    /// Tokens that were put into a cache.
    pub cache_creation_input_tokens: Option<i32>,
    /// Tokens that were thought.
    pub thinking_tokens: Option<i32>,
    /// The start, in Unix milliseconds.
    pub started_at_ms: u64,
    pub duration_ms: u64,
    /// The conversation sent to the model, as JSON; only if contents are requested.
    pub input: Option<String>,
    /// The answer, as JSON; only if contents are requested.
    pub output: Option<String>,
}

impl GenAISpan {
    /// Returns whether an answer arrived.
    pub fn is_success(&self) -> bool {
        self.error_type.is_none()
    }
}

/// One execution of a tool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolSpan {
    pub run: RunRef,
    pub name: String,
    /// `execute_tool`.
    pub operation: String,
    pub call_id: String,
    /// `function`.
    pub tool_type: String,
    /// `tool_error`, when it failed.
    pub error_type: Option<String>,
    /// The start, in Unix milliseconds.
    pub started_at_ms: u64,
    /// The duration, from the last gate on: waiting for a user does not count.
    pub duration_ms: u64,
    /// The arguments, as JSON; only if contents are requested.
    pub arguments: Option<String>,
    /// The part of the result that the model reads; only if contents are requested.
    pub result: Option<String>,
}

impl ToolSpan {
    /// Returns whether the execution succeeded.
    pub fn is_success(&self) -> bool {
        self.error_type.is_none()
    }
}

/// The metrics of one run, or of all runs reported to a sink.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentMetrics {
    /// The run; of several, the last one that ended.
    pub run: RunRef,
    /// The inferences, in their order.
    pub inferences: Vec<GenAISpan>,
    /// The executions of tools, in the order of their ends.
    pub tools: Vec<ToolSpan>,
    /// The time that runs were active.
    pub session_duration_ms: u64,
}

/// The inferences of one model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelStats {
    pub model: String,
    pub provider: String,
    /// The number of inferences.
    pub inference_count: usize,
    /// Tokens that went in.
    pub input_tokens: i64,
    /// Tokens that came out.
    pub output_tokens: i64,
    pub total_duration_ms: u64,
}

/// The executions of one tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolStats {
    pub name: String,
    /// The number of executions.
    pub call_count: usize,
    /// The number of failed executions.
    pub failure_count: usize,
    pub total_duration_ms: u64,
}

fn tokens(count: Option<i32>) -> i64 {
    count.map_or(0, i64::from)
}

impl AgentMetrics {
    /// Tokens that went in.
    pub fn total_input_tokens(&self) -> i64 {
        self.inferences.iter().map(|span| tokens(span.input_tokens)).sum()
    }

    /// Tokens that came out.
    pub fn total_output_tokens(&self) -> i64 {
        self.inferences.iter().map(|span| tokens(span.output_tokens)).sum()
    }

    /// Returns the number of failed executions.
    pub fn tool_failures(&self) -> usize {
        self.tools.iter().filter(|span| !span.is_success()).count()
    }

    /// The inferences by model, by name.
    pub fn stats_by_model(&self) -> Vec<ModelStats> {
        let mut stats: BTreeMap<(&str, &str), ModelStats> = BTreeMap::new();
        for span in &self.inferences {
            let stat = stats.entry((&span.model, &span.provider)).or_insert_with(|| ModelStats {
                model: span.model.clone(),
                provider: span.provider.clone(),
                ..ModelStats::default()
            });
            stat.inference_count += 1;
            stat.input_tokens += tokens(span.input_tokens);
            stat.output_tokens += tokens(span.output_tokens);
            stat.total_duration_ms += span.duration_ms;
        }
        stats.into_values().collect()
    }

    /// The executions by tool, by name.
    pub fn stats_by_tool(&self) -> Vec<ToolStats> {
        let mut stats: BTreeMap<&str, ToolStats> = BTreeMap::new();
        for span in &self.tools {
            let stat = stats
                .entry(&span.name)
                .or_insert_with(|| ToolStats { name: span.name.clone(), ..ToolStats::default() });
            stat.call_count += 1;
            stat.failure_count += usize::from(!span.is_success());
            stat.total_duration_ms += span.duration_ms;
        }
        stats.into_values().collect()
    }
}
