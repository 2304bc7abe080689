//! Shared state, the context window, and threads without their messages.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use aye::contract::event_sink::VecEventSink;
use aye::contract::message::Message;
use aye::contract::record::ThreadRecord;
use aye::contract::storage::StorageError;
use aye::contract::thread::{Thread, ThreadMetadata};
use aye::engine::{ScriptedExecutor, ScriptedReply};
use aye::stores::{InMemoryStore, ThreadRunStore as _, ThreadStore as _};
use aye::{
    AgentRuntimeBuilder, AgentSpec, CompactionConfig, CompactionConfigKey, ContextCompactionMode,
    ContextWindowPolicy, ModelSpec, Phase, PhaseContext, PhaseHook, Plugin, PluginDescriptor,
    PluginRegistrar, ProfileAccess, ProfileKey, RunRequest, StateCommand, StateError, StateScope,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

fn model(id: &str) -> ModelSpec {
    ModelSpec { id: id.into(), provider: id.into(), model: id.into() }
}

#[derive(Clone, Default, Debug, PartialEq, Serialize, Deserialize)]
struct Crew {
    goal: String,
    steps: u32,
}

struct CrewKey;

impl ProfileKey for CrewKey {
    const KEY: &'static str = "crew";
    type Value = Crew;
}

/// Never registered.
struct Stray;

impl ProfileKey for Stray {
    const KEY: &'static str = "stray";
    type Value = String;
}

struct CrewHook;

impl CrewHook {
    /// The book's hook has another signature than the trait described elsewhere in it; this is its body.
    async fn execute(&self, ctx: &PhaseContext) -> Result<(), anyhow::Error> {
        let profile = ctx.profile().expect("ProfileStore not configured");
        let identity = ctx.snapshot().run_identity();
        let scope = match &identity.parent_thread_id {
            Some(pid) => StateScope::parent_thread(pid),
            None => StateScope::global(),
        };
        let mut crew: Crew = profile.read::<CrewKey>(scope.as_str()).await?;
        crew.goal = "Ship the feature".into();
        crew.steps += 1;
        profile.write::<CrewKey>(scope.as_str(), &crew).await?;
        let own = StateScope::agent_type(&identity.agent_id);
        profile.write::<CrewKey>(own.as_str(), &Crew { goal: "its own".into(), steps: 0 }).await?;
        let refused = profile.read::<Stray>("global").await;
        assert_eq!(refused, Err(StorageError::NotFound("profile key not registered: stray".into())));
        Ok(())
    }
}

#[async_trait]
impl PhaseHook for CrewHook {
    async fn run(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        self.execute(ctx).await.expect("read and written");
        Ok(StateCommand::new())
    }
}

struct CrewPlugin;

impl Plugin for CrewPlugin {
    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor::new("crew", "Shares a goal")
    }

    fn register(&self, r: &mut PluginRegistrar) -> Result<(), StateError> {
        r.register_profile_key::<CrewKey>()?;
        r.register_phase_hook("crew", Phase::RunStart, CrewHook)
    }
}

#[tokio::test]
async fn agents_of_different_threads_share_state_in_one_scope() {
    let store = Arc::new(InMemoryStore::new());
    for (agent, thread) in [("planner", "thread-1"), ("writer", "thread-2")] {
        let runtime = AgentRuntimeBuilder::new()
            .with_thread_run_store(Arc::clone(&store))
            .with_plugin("crew", Arc::new(CrewPlugin))
            .with_agent_spec(AgentSpec::new(agent).with_model("m"))
            .with_provider("m", Arc::new(ScriptedExecutor::new([ScriptedReply::new().text("ok")])))
            .with_model("m", model("m"))
            .build()
            .expect("a runtime");
        let request = RunRequest::new(thread, vec![Message::user("go")]);
        runtime.run(request, Arc::new(VecEventSink::new())).await.expect("a run");
    }
    let clock = Arc::new(aye::contract::clock::SystemClock);
    let profiles = store.profile_store(clock).expect("values");
    let access = ProfileAccess::new(profiles, aye::contract::profile::ProfileKeys::new().with::<CrewKey>());
    let scope = StateScope::global();
    let shared = access.read::<CrewKey>(scope.as_str()).await.expect("read");
    assert_eq!(
        shared,
        Crew { goal: "Ship the feature".into(), steps: 2 },
        "two agents, two threads, one value"
    );
    let keys: Vec<String> =
        access.list::<CrewKey>().await.expect("read").into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["agent_type::planner", "agent_type::writer", "global"]);
    // Any string is a key; a missing value is the default.
    access.write::<CrewKey>("alice", &Crew { goal: "tea".into(), steps: 1 }).await.expect("written");
    assert_eq!(access.read::<CrewKey>("alice").await.expect("read").goal, "tea");
    access.delete::<CrewKey>("alice").await.expect("removed");
    assert_eq!(access.read::<CrewKey>("alice").await, Ok(Crew::default()));
}

#[test]
fn scopes_are_strings() {
    let texts = [
        StateScope::global(),
        StateScope::parent_thread("t"),
        StateScope::agent_type("planner"),
        StateScope::thread("t"),
        StateScope::new("custom-key"),
    ]
    .map(|scope| scope.as_str().to_owned());
    assert_eq!(texts, ["global", "parent_thread::t", "agent_type::planner", "thread::t", "custom-key"]);
}

#[test]
fn a_policy_has_the_documented_defaults() {
    let whole = ContextWindowPolicy {
        max_context_tokens: 200_000,
        max_output_tokens: 16_384,
        min_recent_messages: 10,
        enable_prompt_cache: true,
        autocompact_threshold: None,
        compaction_mode: ContextCompactionMode::KeepRecentRawSuffix,
        compaction_raw_suffix_messages: 2,
    };
    assert_eq!(ContextWindowPolicy::default(), whole);
    let config = CompactionConfig::default();
    assert_eq!(
        (config.summary_max_tokens, config.summary_model, config.min_savings_ratio),
        (None, None, 0.3)
    );
    assert!(config.summarizer_user_prompt.contains("{messages}"));
}

/// The book's `DefaultSummarizer` is no type here: the runtime writes summaries alongside the run, by this
/// section.
#[tokio::test]
async fn old_messages_are_summarised_as_configured() {
    let config = CompactionConfig {
        summarizer_system_prompt: "You keep minutes.".into(),
        summarizer_user_prompt: "Minutes of this, please:\n\n{messages}".into(),
        summary_max_tokens: Some(1024),
        summary_model: Some("small".into()),
        min_savings_ratio: 0.3,
    };
    let mut spec = AgentSpec::new("a").with_model("m");
    spec.set_config::<CompactionConfigKey>(config).expect("a section");
    spec.context_policy = Some(ContextWindowPolicy {
        max_context_tokens: 40_000,
        max_output_tokens: 500,
        min_recent_messages: 4,
        autocompact_threshold: Some(6000),
        compaction_mode: ContextCompactionMode::KeepRecentRawSuffix,
        compaction_raw_suffix_messages: 4,
        ..Default::default()
    });
    let long = |nth: usize| ScriptedReply::new().text(format!("answer {nth} {}", "w".repeat(6000)));
    let agent = Arc::new(ScriptedExecutor::new((0..9).map(long)));
    let writer = Arc::new(ScriptedExecutor::new([ScriptedReply::new().text("They drank tea.")]));
    let store = Arc::new(InMemoryStore::new());
    let runtime = AgentRuntimeBuilder::new()
        .with_thread_run_store(Arc::clone(&store))
        .with_agent_spec(spec)
        .with_provider("m", Arc::clone(&agent) as _)
        .with_model("m", model("m"))
        .with_provider("small", Arc::clone(&writer) as _)
        .with_model("small", model("small"))
        .build()
        .expect("a runtime");
    let say = async |text: String| {
        let request = RunRequest::new("t", vec![Message::user(text)]);
        runtime.run(request, Arc::new(VecEventSink::new())).await.expect("a run");
    };
    for nth in 0..6 {
        say(format!("request {nth}")).await;
    }
    let written = async {
        while store.summary(&"t".into(), 0).await.expect("a result").is_none() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), written).await.expect("a summary");
    let asked = format!("{:?}", writer.requests()[0]);
    assert!(asked.contains("You keep minutes.") && asked.contains("Minutes of this, please:"), "{asked}");
    assert!(asked.contains("request 0") && asked.contains("answer 0"));
    say("request 6".into()).await;
    let requests = agent.requests();
    let last = requests.last().expect("a request");
    let texts: Vec<String> = last.messages.iter().map(|message| message.text()).collect();
    assert!(texts[0].contains("<conversation-summary") && texts[0].contains("They drank tea."), "{texts:?}");
    assert!(!texts.iter().any(|text| text == "request 0"), "the summary replaces it");
    assert!(texts.iter().any(|text| text == "request 6"));
    assert_eq!(store.message_count(&"t".into()).await.expect("a count"), 14, "nothing is lost");
}

#[test]
fn a_thread_has_an_id_and_metadata() {
    let (one, other) = (Thread::new(), Thread::default());
    assert_ne!(one.id, other.id);
    let bare = Thread::with_id("t");
    assert_eq!(serde_json::to_value(&bare).expect("JSON"), json!({"id": "t", "metadata": {}}));
    let titled = bare.with_title("Tea");
    assert_eq!(titled.metadata, ThreadMetadata { title: Some("Tea".into()), ..Default::default() });
    let back: Thread =
        serde_json::from_value(serde_json::to_value(&titled).expect("JSON")).expect("a thread");
    assert_eq!(back, titled);
    let record = ThreadRecord {
        id: "t".into(),
        title: String::new(),
        cwd: PathBuf::from("/work"),
        created_at: 1,
        updated_at: 2,
    };
    let thread = Thread::from(record);
    assert_eq!((thread.id.as_str(), thread.metadata.title), ("t", None), "an empty title does not count");
    assert_eq!((thread.metadata.created_at, thread.metadata.updated_at), (Some(1), Some(2)));
    assert_eq!(thread.metadata.custom["cwd"], "/work");
}
