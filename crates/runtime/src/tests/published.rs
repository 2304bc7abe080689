//! Published agents: a run finishes on the revision it started with.

use std::collections::BTreeMap;

use super::*;

/// Versions of an agent; an empty prompt removes it.
fn versions(prompts: &[(u64, &str)]) -> PublishedAgents {
    let spec = |prompt: &str| {
        let spec = AgentSpec::new("helper").with_model("m").with_system_prompt(prompt);
        (!prompt.is_empty()).then(|| Arc::new(spec))
    };
    let all = prompts.iter().map(|(revision, prompt)| (*revision, spec(prompt)));
    BTreeMap::from([("helper".to_owned(), all.collect())])
}

fn prompts(script: &Script) -> Vec<&'static str> {
    let requests = script.requests.lock().unwrap();
    let prompt = |request: &InferenceRequest| {
        let system = format!("{:?}", request.system);
        ["Old.", "New."].into_iter().find(|prompt| system.contains(prompt)).unwrap_or("?")
    };
    requests.iter().map(prompt).collect()
}

async fn start(runtime: &AgentRuntime, thread: &str) -> Result<AgentRunResult, RuntimeError> {
    let request = RunRequest::new(thread, vec![Message::user("go")]).with_agent_id("helper");
    runtime.run(request, Arc::new(VecEventSink::new())).await
}

async fn allow(runtime: &AgentRuntime) {
    let waiting = runtime.waiting(&"t".into()).await.unwrap();
    let id = &waiting.last().unwrap().ticket.suspension.id;
    runtime.decide(id, answer(ResumeDecisionAction::Resume), actor()).await.unwrap();
}

#[tokio::test]
async fn a_waiting_run_finishes_on_its_revision_even_after_a_restart() {
    let house = House::new();
    let script = Script::of([
        calls(&[("c1", "ask")]),
        calls(&[("c2", "ask")]),
        text("The old one."),
        text("The new one."),
    ]);
    let runtime = house.runtime(&script);
    runtime.publish(3, versions(&[(3, "Old.")]));
    assert_eq!(start(&runtime, "t").await.unwrap().termination, TerminationReason::Suspended);
    let now = [(3, "Old."), (5, "New.")];
    runtime.publish(5, versions(&now));
    allow(&runtime).await;
    let (result, _) = wake(&runtime, UnknownPolicy::Report).await;
    assert_eq!(result.termination, TerminationReason::Suspended, "it asks again");
    let runtime = house.runtime(&script);
    runtime.publish(5, versions(&now));
    allow(&runtime).await;
    let (result, _) = wake(&runtime, UnknownPolicy::Report).await;
    assert_eq!(result.response, "The old one.");
    assert_eq!(start(&runtime, "t2").await.unwrap().response, "The new one.");
    assert_eq!(prompts(&script), ["Old.", "Old.", "Old.", "New."]);
}

#[tokio::test]
async fn a_deleted_agent_finishes_its_runs_and_starts_none() {
    let house = House::new();
    let script = Script::of([calls(&[("c1", "ask")]), text("Done.")]);
    let runtime = house.runtime(&script);
    runtime.publish(1, versions(&[(1, "Old.")]));
    start(&runtime, "t").await.unwrap();
    runtime.publish(2, versions(&[(1, "Old."), (2, "")]));
    let error = start(&runtime, "t2").await.unwrap_err();
    assert_eq!(error, RuntimeError::AgentNotFound { agent_id: "helper".into() });
    allow(&runtime).await;
    assert_eq!(wake(&runtime, UnknownPolicy::Report).await.0.response, "Done.");
    assert_eq!(prompts(&script), ["Old.", "Old."]);
}

/// A file once defined the agent and is gone: a run must not continue with another agent of that name.
#[tokio::test]
async fn a_run_does_not_adopt_a_later_published_agent() {
    let house = House::new();
    let script = Script::of([calls(&[("c1", "ask")]), text("Never.")]);
    let runtime = house.runtime(&script);
    runtime.set_agent(AgentSpec::new("helper").with_model("m").with_system_prompt("Of a file."));
    start(&runtime, "t").await.unwrap();
    let runtime = house.runtime(&script);
    runtime.publish(1, versions(&[(1, "Published.")]));
    let sink = Arc::new(VecEventSink::new());
    let error = runtime.resume(&"t".into(), sink, UnknownPolicy::Report).await.unwrap_err();
    assert!(error.to_string().contains("which no longer exists"), "{error}");
}

#[tokio::test]
async fn an_unpublished_entry_disappears_and_the_others_stay() {
    let house = House::new();
    let runtime = house.runtime(&Script::of([]));
    runtime.publish(1, versions(&[(1, "Old.")]));
    assert_eq!(runtime.resolved("helper").unwrap().revision, 1);
    runtime.publish(2, PublishedAgents::new());
    assert!(runtime.resolved("helper").is_err());
    assert_eq!(runtime.resolved("a").unwrap().revision, 2);
}
