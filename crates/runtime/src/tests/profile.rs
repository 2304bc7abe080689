//! Values that outlive a thread, as seen by hooks and tools.

use super::*;
use aye_core::contract::profile::{ProfileKey, ProfileKeys, StateScope, StorageError};

struct Visits;
impl ProfileKey for Visits {
    const KEY: &'static str = "visits";
    type Value = Vec<String>;
}

struct Unregistered;
impl ProfileKey for Unregistered {
    const KEY: &'static str = "unregistered";
    type Value = u32;
}

struct Visitor;
struct VisitHook;
struct VisitTool;

#[async_trait]
impl PhaseHook for VisitHook {
    async fn run(&self, ctx: &PhaseContext) -> Result<StateCommand, StateError> {
        let profile = ctx.profile().expect("a run has a profile store");
        let scope = StateScope::global();
        let mut visits = profile.read::<Visits>(scope.as_str()).await.unwrap();
        visits.push(format!("hook of {}", ctx.run_identity.thread_id));
        profile.write::<Visits>(scope.as_str(), &visits).await.unwrap();
        Ok(StateCommand::new())
    }
}

#[async_trait]
impl Tool for VisitTool {
    fn descriptor(&self) -> ToolDescriptor {
        ToolDescriptor::new("visit", "visit", "visits")
    }

    async fn execute(&self, _args: Value, ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        let profile = ctx.profile().expect("a run has a profile store");
        let mut visits = profile.read::<Visits>("global").await.unwrap();
        visits.push("tool".into());
        profile.write::<Visits>("global", &visits).await.unwrap();
        let refused = profile.read::<Unregistered>("global").await;
        assert!(matches!(refused, Err(StorageError::NotFound(_))), "{refused:?}");
        Ok(ToolResult::text("visit", "visited").into())
    }
}

impl Plugin for Visitor {
    fn descriptor(&self) -> PluginDescriptor {
        PluginDescriptor { name: "visitor" }
    }

    fn register(&self, registrar: &mut PluginRegistrar) -> Result<(), StateError> {
        registrar.register_profile_key::<Visits>()?;
        registrar.register_tool("visit", Arc::new(VisitTool))?;
        registrar.register_phase_hook("visitor", Phase::RunStart, VisitHook)
    }
}

#[tokio::test]
async fn hooks_and_tools_of_all_threads_and_runtimes_share_it() {
    let house = House::new();
    let script = Script::of([calls(&[("c1", "visit")]), text("Done."), text("Again.")]);
    let runtime = house.builder(&script).with_plugin("visitor", Arc::new(Visitor)).build().unwrap();
    send(&runtime, "go").await;
    assert_eq!(script.result_of("c1"), "visited");

    // Another process, another thread.
    let runtime = house.builder(&script).with_plugin("visitor", Arc::new(Visitor)).build().unwrap();
    let sink = Arc::new(VecEventSink::new());
    runtime.run(RunRequest::new("t2", vec![Message::user("go")]), sink).await.unwrap();
    let keys = ProfileKeys::new().with::<Visits>();
    let profile = aye_core::contract::profile::ProfileAccess::new(Arc::clone(runtime.profiles()), keys);
    let visits = profile.read::<Visits>("global").await.unwrap();
    assert_eq!(visits, ["hook of t", "tool", "hook of t2"]);
}
