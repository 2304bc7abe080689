//! Without a supervisor or store; `tests/it/background.rs` has both.

use std::sync::Mutex;

use futures::stream::BoxStream;
use tokio::sync::Notify;

use super::*;
use crate::testing::Sandbox;
use aye_core::contract::command::CommandNews;
use aye_core::contract::record::Owner;

/// Tracks one command and takes its output when it is read.
#[derive(Default)]
struct OneCommand {
    kept: tokio::sync::Mutex<Option<Kept>>,
    line: Mutex<String>,
    moved: Notify,
    printed: Notify,
}

struct Kept {
    output: BoxStream<'static, String>,
    end: tokio::task::JoinHandle<CommandEnd>,
    stop: CancellationToken,
    terminal: Option<Arc<dyn CommandTerminal>>,
}

impl OneCommand {
    fn record(&self, end: Option<CommandEnd>) -> CommandRecord {
        CommandRecord {
            number: 7,
            thread_id: "t".into(),
            run_id: "r".into(),
            call_id: "c".into(),
            agent: String::new(),
            command: self.line.lock().expect("not poisoned").clone(),
            owner: Owner { pid: 1, ..Owner::default() },
            started_at: 0,
            stop: false,
            told: false,
            ended_at: None,
            end,
        }
    }
}

#[async_trait]
impl BackgroundHost for OneCommand {
    async fn adopt(&self, command: BackgroundCommand) -> Result<String, ToolError> {
        self.line.lock().expect("not poisoned").clone_from(&command.command);
        let BackgroundCommand { output, end, stop, terminal, .. } = command;
        *self.kept.lock().await = Some(Kept { output, end: tokio::spawn(end), stop, terminal });
        Ok("b7".into())
    }

    async fn write(&self, id: &str, keys: &[u8]) -> Result<CommandRecord, ToolError> {
        let kept = self.kept.lock().await;
        let terminal = kept.as_ref().and_then(|kept| kept.terminal.clone());
        match terminal.filter(|terminal| id == "b7" && terminal.write(keys)) {
            Some(_) => Ok(self.record(None)),
            None => Err(ToolError::ExecutionFailed("nothing was typed".into())),
        }
    }

    async fn moved(&self) {
        self.moved.notified().await;
    }

    /// Waits for the next output; after all of it comes the command's end.
    async fn read_new_output(&self, id: &str) -> Result<CommandNews, ToolError> {
        assert_eq!(id, "b7");
        let mut kept = self.kept.lock().await;
        let kept = kept.as_mut().ok_or_else(|| ToolError::NotFound("none".into()))?;
        Ok(if let Some(output) = kept.output.next().await {
            CommandNews { record: self.record(None), output }
        } else {
            let end = (&mut kept.end).await.expect("not poisoned");
            CommandNews { record: self.record(Some(end)), output: String::new() }
        })
    }

    async fn stop(&self, _id: &str) -> Result<CommandRecord, ToolError> {
        let mut kept = self.kept.lock().await;
        let kept = kept.as_mut().ok_or_else(|| ToolError::NotFound("none".into()))?;
        kept.stop.cancel();
        let end = (&mut kept.end).await.expect("not poisoned");
        Ok(self.record(Some(end)))
    }
}

#[async_trait]
impl aye_core::contract::event_sink::EventSink for OneCommand {
    async fn emit(&self, _event: aye_core::contract::event::AgentEvent) {
        self.printed.notify_one();
    }
}

fn with(host: &Arc<OneCommand>) -> ToolCallContext {
    ToolCallContext {
        background: Some(host.clone()),
        activity_sink: Some(host.clone()),
        ..ToolCallContext::test_default()
    }
}

#[tokio::test]
async fn a_background_command_keeps_running_and_its_output_is_read() {
    let (sandbox, host) = (Sandbox::new(), Arc::new(OneCommand::default()));
    let ctx = with(&host);
    // It ends once the test has created the file.
    let line = "printf 'a\\033[31mb\\033[0m\\nwarn: c\\n'; until [ -e go ]; do sleep 0.01; done; exit 3";
    let args = json!({"command": line, "run_in_background": true, "timeout": 1});
    let started = sandbox.call_in("Bash", args, &ctx).await.expect("starts");
    assert!(started.model_text().starts_with("Runs in the background as b7."), "{started:?}");
    let shown = "runs in the background as b7";
    assert_eq!(started.details, Some(json!({"background": "b7", "shown": shown})));
    let read_new_output =
        async |args: Value| sandbox.call_in("BashOutput", args, &ctx).await.expect("a result").model_text();
    // A shell may write each line separately.
    let mut output = String::new();
    while !output.ends_with("warn: c") {
        let text = read_new_output(json!({"bash_id": "b7"})).await;
        output += text.strip_prefix("b7 is running").expect("runs");
    }
    assert_eq!(output, "\nab\nwarn: c");
    sandbox.write("go", "");
    assert_eq!(
        read_new_output(json!({"bash_id": "b7"})).await,
        "b7 ended with exit status 3\n(no new output)"
    );
}

/// A screen shows part of what comes this fast.
#[tokio::test]
async fn all_that_a_background_command_prints_is_kept() {
    let (sandbox, host) = (Sandbox::new(), Arc::new(OneCommand::default()));
    let args = json!({"command": "seq 1 40000", "run_in_background": true});
    sandbox.call_in("Bash", args, &with(&host)).await.expect("starts");
    let kept = host.kept.lock().await.take().expect("a command");
    let printed = kept.output.collect::<Vec<_>>().await.concat();
    assert_eq!(kept.end.await.expect("not poisoned"), CommandEnd::Exited(0));
    assert_eq!(printed.lines().count(), 40_000);
    assert!(printed.starts_with("1\n2\n") && printed.ends_with("39999\n40000\n"));
}

#[tokio::test]
async fn a_filter_drops_lines() {
    let (sandbox, host) = (Sandbox::new(), Arc::new(OneCommand::default()));
    let ctx = with(&host);
    let args = json!({"command": "printf 'one\\ntwo\\nthree\\n'; sleep 1000", "run_in_background": true});
    sandbox.call_in("Bash", args, &ctx).await.expect("starts");
    let args = json!({"bash_id": "b7", "filter": "^t"});
    // A shell may write each line separately.
    let mut lines = String::new();
    while !lines.contains("three") {
        let text = sandbox.call_in("BashOutput", args.clone(), &ctx).await.expect("a result").model_text();
        let new = text.strip_prefix("b7 is running\n").expect("runs");
        lines += new.strip_prefix("(no new output)").unwrap_or(new);
    }
    assert_eq!(lines.replace('\n', ""), "twothree");
    let text = sandbox.refused("BashOutput", json!({"bash_id": "b7", "filter": "("})).await;
    assert!(text.contains("`filter`"), "{text}");
    let killed = sandbox.call_in("KillShell", json!({"shell_id": "b7"}), &ctx).await.expect("is killed");
    assert_eq!(killed.model_text(), "b7 was stopped");
}

/// The command keeps its process, and loses its time limit.
#[tokio::test]
async fn a_running_command_is_moved_to_the_background() {
    let (sandbox, host) = (Sandbox::new(), Arc::new(OneCommand::default()));
    let ctx = with(&host);
    let call = async {
        let line = "echo $$; until [ -e go ]; do sleep 0.01; done; echo $$";
        sandbox.call_in("Bash", json!({"command": line}), &ctx).await.expect("a result").model_text()
    };
    let user = async {
        host.printed.notified().await;
        host.moved.notify_one();
    };
    let (text, ()) = tokio::join!(call, user);
    assert!(text.starts_with("The user moved it to the background as b7."), "{text}");
    sandbox.write("go", "");
    let read_new_output = async || {
        let read = sandbox.call_in("BashOutput", json!({"bash_id": "b7"}), &ctx).await;
        read.expect("a result").model_text()
    };
    let printed = read_new_output().await;
    let pid = printed.lines().nth(1).expect("its process");
    assert!(pid.parse::<u32>().is_ok(), "{printed}");
    assert_eq!(read_new_output().await, "b7 ended with exit status 0\n(no new output)");
}

#[tokio::test]
async fn background_commands_are_refused_where_unsupported() {
    let sandbox = Sandbox::new();
    let text = sandbox.refused("Bash", json!({"command": "touch ran", "run_in_background": true})).await;
    assert!(text.contains("cannot run in the background here"), "{text}");
    assert!(!sandbox.path("ran").exists());
}
