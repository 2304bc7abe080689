//! Empty or withheld answers, and limits that interrupt.

use std::time::Duration;

use super::*;
use aye_core::contract::activity::NOTICE_ACTIVITY_TYPE;
use aye_core::contract::executor::{LlmStream, LlmStreamEvent, pieces_of};
use aye_core::contract::inference::StopReason;
use aye_core::phase::TimeLimit;

fn ended(written: &str, reason: StopReason) -> StreamResult {
    StreamResult { stop_reason: Some(reason), ..text(written) }
}

#[tokio::test]
async fn the_stop_reason_decides_how_a_run_ends() {
    use StopReason::{ContentFilter, EndTurn, MaxTokens, Other, Refusal};
    let blocked = |why: &str| TerminationReason::Blocked(why.to_owned());
    let length = TerminationReason::stopped("length", "the answer was cut off at the model's output limit");
    for (written, reason, wanted) in [
        ("Hello.", EndTurn, TerminationReason::NaturalEnd),
        ("Hello.", Other, TerminationReason::NaturalEnd),
        ("I will not.", Refusal, blocked("m refused to answer")),
        ("", Refusal, blocked("m refused to answer")),
        ("Half", ContentFilter, blocked("the provider's content filter withheld the answer of m")),
        ("Half a sen", MaxTokens, length.clone()),
        ("", MaxTokens, length),
    ] {
        let house = House::new();
        let runtime = house.runtime(&Script::of([ended(written, reason)]));
        let (result, events) = send(&runtime, "go").await;
        assert_eq!(result.termination, wanted, "{reason:?}");
        assert_eq!((result.response.as_str(), result.stop_reason), (written, Some(reason)));
        let reported = events.iter().find_map(|event| match event {
            AgentEvent::InferenceComplete { stop_reason, .. } => *stop_reason,
            _ => None,
        });
        assert_eq!(reported, Some(reason));
        // The answer is kept, and the conversation continues.
        let (result, _) = send(&runtime, "and now?").await;
        assert_eq!((result.response.as_str(), result.termination), ("Done.", TerminationReason::NaturalEnd));
    }
}

#[tokio::test]
async fn calls_of_a_withheld_answer_do_not_run() {
    let house = House::new();
    let answer = StreamResult { stop_reason: Some(StopReason::Refusal), ..calls(&[("c1", "free")]) };
    let script = Script::of([answer]);
    let runtime = house.runtime(&script);
    let (result, events) = send(&runtime, "go").await;
    assert_eq!(result.termination, TerminationReason::Blocked("m refused to answer".into()));
    assert_eq!(house.executed(), 0);
    let names = names(&events);
    assert_eq!(
        names[names.len() - 3..],
        ["tool_call_done(cancelled)", "step_end", "run_finish(blocked)"],
        "{names:?}"
    );
    send(&runtime, "and now?").await;
    assert!(script.result_of("c1").contains("Not run"), "{}", script.result_of("c1"));
}

#[tokio::test]
async fn the_providers_reason_is_part_of_the_stop_reason() {
    struct Filtered;
    #[async_trait]
    impl LlmExecutor for Filtered {
        async fn execute(&self, _: InferenceRequest) -> Result<StreamResult, InferenceExecutionError> {
            Ok(ended("Half", StopReason::ContentFilter))
        }

        async fn execute_stream(
            &self,
            request: InferenceRequest,
        ) -> Result<LlmStream, InferenceExecutionError> {
            let result = self.execute(request).await?;
            let mut events = pieces_of(result, "m2".into());
            events.insert(1, LlmStreamEvent::StopDetail("SAFETY".into()));
            Ok(Box::pin(futures::stream::iter(events.into_iter().map(Ok))))
        }

        fn name(&self) -> &'static str {
            "filtered"
        }
    }
    let house = House::new();
    let builder = house
        .builder(&Script::of([]))
        .with_model("f", ModelEntry { provider: "filtered".into(), model_name: "f".into() })
        .with_provider("filtered", Arc::new(Filtered))
        .with_agent_spec(AgentSpec::new("b").with_model("f"));
    let (result, _) = send_to("b", &builder.build().unwrap()).await;
    let why = "the provider's content filter withheld the answer of m2 (SAFETY)";
    assert_eq!(result.termination, TerminationReason::Blocked(why.into()));
}

#[tokio::test]
async fn an_empty_answer_is_an_error_unless_a_call_was_settled() {
    let empty = || StreamResult {
        content: vec![
            ContentBlock::Thinking { thinking: "hm".into(), signature: None },
            ContentBlock::text(" \n"),
        ],
        stop_reason: Some(StopReason::EndTurn),
        ..StreamResult::default()
    };
    let house = House::new();
    let runtime = house.runtime(&Script::of([empty()]));
    let (result, events) = send(&runtime, "go").await;
    let why = "m gave an empty answer; retry, or choose another model";
    assert_eq!(result.termination, TerminationReason::Error(why.into()));
    assert_eq!(result.error_code.as_deref(), Some("empty_answer"));
    let names = names(&events);
    assert_eq!(names[names.len() - 3..], ["error", "step_end", "run_finish(error)"], "{names:?}");

    let house = House::new();
    let runtime = house.runtime(&Script::of([calls(&[("c1", "free")]), empty()]));
    let (result, events) = send(&runtime, "go").await;
    assert_eq!(result.termination, TerminationReason::NaturalEnd);
    let notices: Vec<&Value> = events
        .iter()
        .filter_map(|event| match event {
            AgentEvent::ActivitySnapshot { activity_type, content, .. }
                if activity_type == NOTICE_ACTIVITY_TYPE =>
            {
                Some(&content["text"])
            }
            _ => None,
        })
        .collect();
    assert_eq!(notices, ["m ended without a closing message"]);
}

/// A model that streams the start of an answer and then hangs.
struct Hanging;

#[async_trait]
impl LlmExecutor for Hanging {
    async fn execute(&self, _: InferenceRequest) -> Result<StreamResult, InferenceExecutionError> {
        std::future::pending().await
    }

    async fn execute_stream(&self, _: InferenceRequest) -> Result<LlmStream, InferenceExecutionError> {
        let half = futures::stream::iter([Ok(LlmStreamEvent::TextDelta("Half a sen".into()))]);
        Ok(Box::pin(futures::StreamExt::chain(half, futures::stream::pending())))
    }

    fn name(&self) -> &'static str {
        "hanging"
    }
}

/// Limits a run to a short time.
struct Hurry;

impl Plugin for Hurry {
    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor { name: "hurry" }
    }

    fn time_limit(&self, _: &AgentSpec) -> Option<TimeLimit> {
        Some(TimeLimit { active: Duration::from_millis(50), reason: out_of_time() })
    }
}

fn out_of_time() -> TerminationReason {
    TerminationReason::stopped("timeout", "the limit is a moment")
}

async fn send_to(agent: &str, runtime: &AgentRuntime) -> (AgentRunResult, Vec<AgentEvent>) {
    let sink = Arc::new(VecEventSink::new());
    let request = RunRequest::new("t", vec![Message::user("go")]).with_agent_id(agent);
    let run = tokio::time::timeout(Duration::from_secs(30), runtime.run(request, sink.clone()));
    (run.await.expect("an end").unwrap(), sink.take())
}

#[tokio::test]
async fn a_time_limit_interrupts_an_inference() {
    let house = House::new();
    let builder = house
        .builder(&Script::of([]))
        .with_model("h", ModelEntry { provider: "hanging".into(), model_name: "h".into() })
        .with_provider("hanging", Arc::new(Hanging))
        .with_agent_spec(AgentSpec::new("b").with_model("h"))
        .with_plugin("hurry", Arc::new(Hurry));
    let (result, events) = send_to("b", &builder.build().unwrap()).await;
    assert_eq!(result.termination, out_of_time());
    assert_eq!(names(&events), ["run_start", "step_start", "text_delta", "step_end", "run_finish(stopped)"]);
    let stored = house.store.messages(&"t".into()).await.unwrap();
    let last = &stored.last().unwrap().message;
    let about = last.metadata.as_ref().unwrap();
    assert_eq!((last.text().as_str(), &about["interrupted"]), ("Half a sen", &json!(true)));
    assert_eq!(about["request"]["at"], 1, "its request can be replayed, too");
}

#[tokio::test]
async fn a_time_limit_interrupts_a_tool_and_the_model_reads_why() {
    let house = House::new();
    let script = Script::of([calls(&[("c1", "hang"), ("c2", "free")])]);
    let runtime = house.builder(&script).with_plugin("hurry", Arc::new(Hurry)).build().unwrap();
    let (result, _) = send_to("a", &runtime).await;
    assert_eq!(result.termination, out_of_time());
    let (result, _) = send(&house.runtime(&script), "and now?").await;
    assert_eq!(result.termination, TerminationReason::NaturalEnd);
    let written = script.result_of("c1");
    assert!(written.starts_with("The run was stopped during this call: the limit is a moment."), "{written}");
    assert!(written.contains("half way") && !written.contains("user"), "{written}");
    assert!(script.result_of("c2").contains("Not run"));
}
