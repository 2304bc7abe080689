//! Without a supervisor; `tests/it/exec.rs` runs the same with aye's own binary.

use serde_json::json;

use crate::testing::Sandbox;

#[tokio::test]
async fn a_command_reports_output_and_status() {
    let sandbox = Sandbox::new();
    assert_eq!(
        sandbox.ok("Bash", json!({"command": "echo out; echo err >&2; pwd"})).await,
        format!("out\nerr\n{}", sandbox.workspace.cwd.display())
    );
    assert_eq!(sandbox.refused("Bash", json!({"command": "echo x; exit 3"})).await, "x\nexit status 3");
    assert_eq!(
        sandbox.refused("Bash", json!({"command": "kill -9 $$"})).await,
        "(no output)\nended by SIGKILL"
    );
}

#[tokio::test]
async fn the_headline_of_a_failed_command_says_why() {
    let sandbox = Sandbox::new();
    for (command, why) in [
        ("exit 3", "exit status 3"),
        ("sleep 9", "timed out after 0.2 s and was stopped"),
        ("echo compiling; sleep 9", "timed out after 0.2 s and was stopped"),
        ("echo out; kill -9 $$", "ended by SIGKILL"),
        ("echo cannot open x; exit 1", "cannot open x"),
    ] {
        let args =
            json!({"command": command, "timeout": if command.contains("sleep") { 200 } else { 9_000 }});
        let result = sandbox.call("Bash", args).await.expect("a result");
        assert_eq!(result.headline(), why, "{result:?}");
    }
}

/// Where no control group counts, aye does.
#[tokio::test]
async fn a_command_that_takes_too_much_is_stopped() {
    use std::sync::Arc;

    use aye_core::contract::tool::SpawnContext;
    use tokio_util::sync::CancellationToken;

    use super::{CommandLimits, ControlGroups, ExecConfig, ExecRequest, run};

    let tmp = tempfile::tempdir().unwrap();
    let env = std::env::vars_os().filter(|(name, _)| name == "PATH").collect();
    let request = ExecRequest {
        program: "bash".into(),
        args: Vec::new(),
        cwd: tmp.path().into(),
        env,
        timeout: std::time::Duration::from_mins(1),
        max_output: 1000,
        output_dir: None,
        on_behalf: SpawnContext::default(),
        launcher: None,
        limits: None,
        frozen: None,
    };
    for (line, processes, setting) in [
        ("for i in 1 2 3 4 5 6 7 8; do sleep 90 & done; wait", 4, "(sandbox.max_processes)"),
        ("head -c 30000000 /dev/zero > x; sleep 90", 1000, "(sandbox.max_tmp_mib)"),
    ] {
        let limits = CommandLimits {
            processes,
            memory: u64::MAX,
            shared_memory: None,
            tmp: Some((tmp.path().into(), 1 << 20)),
            groups: Arc::new(ControlGroups::default()),
        };
        let args = ["-c", line].map(Into::into).to_vec();
        let request = ExecRequest { args, limits: Some(Arc::new(limits)), ..request.clone() };
        let result = run(&ExecConfig::default(), request, |_| {}, &CancellationToken::new()).await.unwrap();
        assert!(result.over_limit.as_deref().is_some_and(|why| why.contains(setting)), "{result:?}");
        assert!(!result.is_success() && result.duration.as_secs() < 60, "{result:?}");
    }
}
