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
