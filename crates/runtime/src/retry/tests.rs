use std::time::Duration;

use tokio::time::Instant;

use super::*;
use crate::breaker::CircuitBreakerConfig;
use aye_core::contract::message::Message;
use aye_llm::{ScriptedExecutor, ScriptedReply};

fn down() -> InferenceExecutionError {
    InferenceExecutionError::Unavailable { message: "down".into(), retry_after: None }
}

fn limited(retry_after: Option<Duration>) -> InferenceExecutionError {
    InferenceExecutionError::RateLimited { message: "too many requests".into(), retry_after }
}

fn request() -> InferenceRequest {
    InferenceRequest {
        model: "first".into(),
        messages: Arc::new(vec![Message::user("go").into()]),
        ..InferenceRequest::default()
    }
}

fn policy(max_retries: u32, fallbacks: &[&str]) -> LlmRetryPolicy {
    LlmRetryPolicy {
        max_retries,
        fallback_models: fallbacks.iter().map(|name| (*name).to_owned()).collect(),
        ..LlmRetryPolicy::default()
    }
}

fn retrying(model: &ScriptedExecutor, policy: LlmRetryPolicy) -> RetryingExecutor {
    RetryingExecutor::new(Arc::new(model.clone()), policy).without_jitter()
}

async fn events(executor: &RetryingExecutor) -> Vec<Item> {
    executor.execute_stream(request()).await.expect("a stream").collect().await
}

/// The events in short form.
fn shape(events: &[Item]) -> Vec<String> {
    events
        .iter()
        .map(|event| match event {
            Ok(LlmStreamEvent::TextDelta(text)) => text.clone(),
            Ok(LlmStreamEvent::Retrying { attempt, max, delay, model, reset, .. }) => {
                format!(
                    "{attempt}/{max} {}ms {model}{}",
                    delay.as_millis(),
                    if *reset { " reset" } else { "" }
                )
            }
            Ok(LlmStreamEvent::Finish { model, .. }) => format!("finish {model}"),
            Ok(other) => format!("{other:?}"),
            Err(error) => format!("error {}", error.code()),
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn delays_double_up_to_eight_seconds() {
    let model =
        ScriptedExecutor::new((0..7).map(|_| ScriptedReply::from(down())).chain([ScriptedReply::from("hi")]));
    let start = Instant::now();
    let events = events(&retrying(&model, policy(7, &[]))).await;
    assert_eq!(
        shape(&events),
        [
            "1/7 500ms first",
            "2/7 1000ms first",
            "3/7 2000ms first",
            "4/7 4000ms first",
            "5/7 8000ms first",
            "6/7 8000ms first",
            "7/7 8000ms first",
            "hi",
            "finish first",
        ]
    );
    assert_eq!(start.elapsed(), Duration::from_millis(31_500));
}

#[tokio::test(start_paused = true)]
async fn the_delay_is_at_least_retry_after_and_at_most_a_tenth_longer() {
    let asked = Duration::from_secs(7);
    for jitter in [0.0, 0.3, 1.0] {
        let delay = LlmRetryPolicy::default().delay(0, Some(asked), jitter);
        assert!((asked..=asked.mul_f64(1.1)).contains(&delay), "{delay:?}");
        let own = LlmRetryPolicy::default().delay(0, None, jitter);
        assert!((Duration::from_millis(450)..=Duration::from_millis(550)).contains(&own), "{own:?}");
    }
    for _ in 0..1000 {
        assert!((0.0..1.0).contains(&random()));
    }
}

#[tokio::test(start_paused = true)]
async fn above_the_cap_it_fails_at_once_and_says_how_long() {
    let model = ScriptedExecutor::new([limited(Some(Duration::from_mins(123))).into()]);
    let start = Instant::now();
    let events = events(&retrying(&model, policy(2, &[]))).await;
    let [Err(error)] = &events[..] else { panic!("{events:?}") };
    assert!(error.to_string().contains("2 h 3 min") && error.to_string().contains("5 min"), "{error}");
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_base_of_zero_waits_only_for_retry_after() {
    let policy = LlmRetryPolicy { backoff_base_ms: 0, ..policy(2, &[]) };
    assert_eq!(policy.delay(5, None, 1.0), Duration::ZERO);
    assert!(policy.delay(0, Some(Duration::from_secs(3)), 0.0) >= Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn shown_text_is_withdrawn_before_it_is_repeated() {
    let model = ScriptedExecutor::new([
        ScriptedReply::new().text("half").cut(),
        ScriptedReply::from(down()),
        "whole".into(),
    ]);
    let events = events(&retrying(&model, policy(2, &[]))).await;
    assert_eq!(
        shape(&events),
        ["half", "1/2 500ms first reset", "2/2 1000ms first", "whole", "finish first",]
    );
}

#[tokio::test(start_paused = true)]
async fn a_stream_without_an_end_counts_as_interrupted() {
    struct Silent;
    #[async_trait]
    impl LlmExecutor for Silent {
        async fn execute(&self, _: InferenceRequest) -> Result<StreamResult, InferenceExecutionError> {
            Err(cut())
        }
        async fn execute_stream(&self, _: InferenceRequest) -> Result<LlmStream, InferenceExecutionError> {
            Ok(futures::stream::empty().boxed())
        }
        fn name(&self) -> &'static str {
            "silent"
        }
    }
    let executor = RetryingExecutor::new(Arc::new(Silent), policy(1, &[])).without_jitter();
    assert_eq!(shape(&events(&executor).await), ["1/1 500ms first", "error network"]);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_not_retried() {
    for error in [
        InferenceExecutionError::InvalidRequest("no".into()),
        InferenceExecutionError::Unauthorized("no".into()),
        InferenceExecutionError::ContextOverflow("long".into()),
    ] {
        let model = ScriptedExecutor::new([error.clone().into(), "never".into()]);
        let events = events(&retrying(&model, policy(5, &["second"]))).await;
        assert_eq!(events, [Err(error)]);
        assert_eq!(model.requests().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn fallback_models_are_tried_in_order_and_the_answering_one_is_named() {
    let first = ScriptedExecutor::new([down().into(), down().into(), down().into()]);
    let third = ScriptedExecutor::new(["hi".into()]);
    let executor = retrying(&first, policy(0, &["second", "third"])).with_fallback(
        "third",
        Fallback { executor: Arc::new(third.clone()), upstream_model: "wire-3".into() },
    );
    let events = events(&executor).await;
    assert_eq!(shape(&events), ["1/2 0ms second", "2/2 0ms third", "hi", "finish third"]);
    let asked: Vec<String> = first.requests().iter().map(|request| request.wire_model().to_owned()).collect();
    assert_eq!(asked, ["first", "second"]);
    assert_eq!(third.requests()[0].wire_model(), "wire-3");
}

#[tokio::test(start_paused = true)]
async fn without_retries_or_fallbacks_the_executor_is_used_directly() {
    let model = ScriptedExecutor::new([down().into()]);
    assert_eq!(shape(&events(&retrying(&model, policy(0, &[]))).await), ["error unavailable"]);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_stream_ends_a_wait_at_once() {
    let model = ScriptedExecutor::new([down().into(), "hi".into()]);
    let executor = retrying(&model, policy(2, &[]));
    let mut stream = executor.execute_stream(request()).await.expect("a stream");
    assert!(matches!(stream.next().await, Some(Ok(LlmStreamEvent::Retrying { .. }))));
    let waiting = tokio::time::timeout(Duration::from_millis(100), stream.next()).await;
    assert!(waiting.is_err(), "it waits");
    drop(stream);
    tokio::time::advance(Duration::from_mins(1)).await;
    assert_eq!(model.requests().len(), 1, "nobody is asked again");
}

/// Lets five requests fail, each with its repetitions.
async fn opened(model: &ScriptedExecutor, policy: LlmRetryPolicy) -> (Arc<CircuitBreaker>, RetryingExecutor) {
    let breaker = Arc::new(CircuitBreaker::new(CircuitBreakerConfig::default()));
    let executor = retrying(model, policy).with_breaker(Arc::clone(&breaker));
    for _ in 0..5 {
        assert!(!breaker.is_open("first"));
        assert!(matches!(events(&executor).await.last(), Some(Err(_))));
    }
    assert!(breaker.is_open("first"));
    (breaker, executor)
}

#[tokio::test(start_paused = true)]
async fn the_repetitions_of_a_request_are_one_failure() {
    let model = ScriptedExecutor::from_fn(|_| down().into());
    opened(&model, policy(6, &[])).await;
    assert_eq!(model.requests().len(), 5 * 7, "each request was repeated six times");
}

#[tokio::test(start_paused = true)]
async fn a_paused_model_is_skipped_for_another_one() {
    let model = ScriptedExecutor::from_fn(|_| down().into());
    let (breaker, _) = opened(&model, policy(0, &[])).await;
    let other = ScriptedExecutor::new(["hi".into()]);
    let with_other = retrying(&model, policy(4, &["second"]))
        .with_breaker(breaker)
        .with_fallback("second", Fallback { executor: Arc::new(other), upstream_model: String::new() });
    let events = events(&with_other).await;
    assert_eq!(shape(&events), ["1/9 0ms second", "hi", "finish second"]);
    assert!(
        matches!(&events[0], Ok(LlmStreamEvent::Retrying { reason, .. }) if reason.contains("first failed repeatedly") && reason.ends_with("last error: down")),
        "{events:?}"
    );
    assert_eq!(model.requests().len(), 5, "nobody was asked");
}

#[tokio::test(start_paused = true)]
async fn without_another_model_a_paused_one_is_waited_for() {
    let model = ScriptedExecutor::from_fn(|_| down().into());
    let (breaker, executor) = opened(&model, policy(0, &[])).await;
    model.push("hi");
    let start = Instant::now();
    let events = events(&executor).await;
    assert_eq!(shape(&events), ["0/0 30000ms first", "hi", "finish first"]);
    assert_eq!((start.elapsed(), model.requests().len()), (Duration::from_secs(30), 6));
    assert!(breaker.enter("first").is_ok(), "the answer closed the circuit");
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_paused_model_ends_without_a_request() {
    let model = ScriptedExecutor::from_fn(|_| down().into());
    let (breaker, executor) = opened(&model, policy(0, &[])).await;
    tokio::time::advance(Duration::from_secs(30)).await;
    // Another request probes, and never comes to an end.
    let _probe = breaker.enter("first").expect("half open");
    let start = Instant::now();
    let events = events(&executor).await;
    assert_eq!(shape(&events), ["0/0 1000ms first", "error paused"]);
    assert_eq!((start.elapsed(), model.requests().len()), (MAX_RETRY_AFTER, 5));
    let Some(Err(error)) = events.last() else { panic!("{events:?}") };
    assert!(error.retry_after().is_some(), "the next attempt has a time");
}

#[tokio::test(start_paused = true)]
async fn a_cancellation_in_the_middle_does_not_count() {
    let breaker =
        Arc::new(CircuitBreaker::new(CircuitBreakerConfig { failure_threshold: 1, ..Default::default() }));
    let model = ScriptedExecutor::from_fn(|_| ScriptedReply::new().text("a").hang());
    let executor = retrying(&model, policy(2, &[])).with_breaker(Arc::clone(&breaker));
    let mut stream = executor.execute_stream(request()).await.expect("a stream");
    assert!(stream.next().await.is_some());
    drop(stream);
    assert!(!breaker.is_open("first"));
}

#[test]
fn the_section_is_read_as_documented() {
    assert_eq!(RetryConfigKey::KEY, "retry");
    let policy: LlmRetryPolicy =
        serde_json::from_value(serde_json::json!({"max_retries": 3, "fallback_models": ["b"]}))
            .expect("a policy");
    assert_eq!((policy.max_retries, policy.backoff_base_ms), (3, 500));
    assert!(serde_json::from_value::<LlmRetryPolicy>(serde_json::json!({"max_retry": 3})).is_err());
}
