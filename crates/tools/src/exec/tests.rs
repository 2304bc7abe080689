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
