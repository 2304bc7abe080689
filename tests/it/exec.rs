//! Commands under aye's own binary as supervisor: whatever happens, no process is left.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aye::contract::clock::uptime_ms;
use aye::contract::event::AgentEvent;
use aye::contract::event_sink::VecEventSink;
use aye::contract::tool::{SpawnContext, ToolCallContext, ToolResult};
use aye::contract::workspace::Workspace;
use aye::tools::exec::{ExecConfig, ExecRequest, ExecResult, end_of_run, run};
use aye::tools::{ToolEnv, builtin};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

fn config() -> ExecConfig {
    ExecConfig {
        supervisor: Some(env!("CARGO_BIN_EXE_aye").into()),
        grace: Duration::from_millis(200),
        ..ExecConfig::default()
    }
}

fn request(dir: &Path, command: &str) -> ExecRequest {
    ExecRequest {
        program: "bash".into(),
        args: vec!["-c".into(), command.into()],
        cwd: dir.into(),
        env: [("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())].into(),
        timeout: Duration::from_secs(20),
        max_output: 1000,
        output_dir: None,
        on_behalf: SpawnContext::default(),
        launcher: None,
        limits: None,
        frozen: None,
    }
}

async fn sh(command: &str) -> ExecResult {
    let dir = tempfile::tempdir().expect("a folder");
    run(&config(), request(dir.path(), command), |_| {}, &CancellationToken::new()).await.expect("starts")
}

/// Whether a process exists and is not a zombie.
fn lives(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()))
        .is_ok_and(|stat| !stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')))
}

/// Waits for a condition that another process fulfils.
async fn until(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !is() {
        assert!(Instant::now() < end, "timed out: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn status_and_signal_are_forwarded() {
    let result = sh("echo out; echo err >&2; exit 7").await;
    assert_eq!((result.output.as_str(), result.exit_code, result.signal), ("out\nerr\n", Some(7), None));
    let result = sh("kill -SEGV $$").await;
    assert_eq!((result.exit_code, result.signal), (None, Some(11)));
    let result = sh("exit 255").await;
    assert_eq!(result.exit_code, Some(255));
}

#[tokio::test]
async fn stdin_is_empty_and_there_is_no_terminal() {
    let result = sh("cat; echo $?; tty; (exec </dev/tty) 2>/dev/null || echo none").await;
    assert_eq!(result.output, "0\nnot a tty\nnone\n");
}

#[tokio::test]
async fn a_missing_program_is_an_error() {
    let dir = tempfile::tempdir().expect("a folder");
    let request = ExecRequest { program: "no-such-program".into(), ..request(dir.path(), "") };
    let error = run(&config(), request, |_| {}, &CancellationToken::new()).await.expect_err("refused");
    assert_eq!(error.to_string(), "cannot start no-such-program: No such file or directory (os error 2)");
}

#[tokio::test]
async fn a_late_command_is_not_started() {
    let dir = tempfile::tempdir().expect("a folder");
    let on_behalf = |start_before| SpawnContext {
        run: "r1".into(),
        start_before: Some(start_before),
        ..SpawnContext::default()
    };
    let too_late = ExecRequest { on_behalf: on_behalf(uptime_ms()), ..request(dir.path(), "touch ran") };
    let error = run(&config(), too_late, |_| {}, &CancellationToken::new()).await.expect_err("refused");
    assert!(error.to_string().contains("too late: another"), "{error}");
    assert!(!dir.path().join("ran").exists());
    let in_time =
        ExecRequest { on_behalf: on_behalf(uptime_ms() + 60_000), ..request(dir.path(), "touch ran") };
    assert!(run(&config(), in_time, |_| {}, &CancellationToken::new()).await.expect("starts").is_success());
    assert!(dir.path().join("ran").exists());
}

/// As for a stopped owner: its lifeline does not end.
#[tokio::test]
async fn processes_of_a_run_are_ended_from_elsewhere() {
    let dir = tempfile::tempdir().expect("a folder");
    let behalf = |run: &str| SpawnContext { run: run.into(), ..SpawnContext::default() };
    let stubborn = "trap '' TERM; touch begun; sleep 1000 & wait; sleep 1000";
    let mine = ExecRequest { on_behalf: behalf("mine"), ..request(dir.path(), stubborn) };
    let yours = ExecRequest { on_behalf: behalf("yours"), ..request(dir.path(), "touch other; sleep 1000") };
    let cancel = CancellationToken::new();
    let (config, spare) = (config(), config());
    let mine = async { run(&config, mine, |_| {}, &cancel).await.expect("starts") };
    let yours = async { run(&spare, yours, |_| {}, &cancel).await.expect("starts") };
    let ender = async {
        until("both commands", || dir.path().join("begun").exists() && dir.path().join("other").exists())
            .await;
        let began = Instant::now();
        end_of_run(Some(std::process::id()), "mine".into()).await;
        let took = began.elapsed();
        // The other run is not affected; only this ends it.
        cancel.cancel();
        took
    };
    let (mine, yours, took) = tokio::join!(mine, yours, ender);
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert_eq!(mine.signal, Some(9), "{mine:?}");
    assert!(yours.cancelled, "{yours:?}");
}

#[tokio::test]
async fn a_command_that_ignores_term_is_killed_with_its_children() {
    let dir = tempfile::tempdir().expect("a folder");
    let pids = dir.path().join("pids");
    let command = "trap '' TERM; (trap '' TERM; sleep 1000) & echo $! $$ > pids; echo up; wait; sleep 1000";
    let request = ExecRequest { timeout: Duration::from_millis(300), ..request(dir.path(), command) };
    let result = run(&config(), request, |_| {}, &CancellationToken::new()).await.expect("starts");
    assert!(result.timed_out, "{result:?}");
    assert_eq!((result.signal, result.output.as_str()), (Some(9), "up\n"));
    for pid in std::fs::read_to_string(pids).expect("ran").split_whitespace() {
        assert!(!lives(pid), "{pid}");
    }
}

#[tokio::test]
async fn a_daemon_is_killed_when_its_command_ends_and_named() {
    // Named by what it became: the shell goes on before that.
    let until = "while [ \"$(cat /proc/$!/comm)\" != sleep ]; do :; done";
    let result = sh(&format!("setsid sleep 1000 & {until}; echo $!; disown")).await;
    assert_eq!(result.exit_code, Some(0));
    let pid = result.output.trim();
    assert!(!lives(pid));
    assert_eq!(result.left_behind, [format!("sleep 1000 (pid {pid})")]);
    // Forked twice, own session, own group, output closed: still found.
    let result = sh("(setsid setsid sh -c 'echo $$; exec sleep 1001 >/dev/null 2>&1' &)").await;
    assert!(!lives(&result.output), "{result:?}");
    assert_eq!(result.left_behind.len(), 1, "{result:?}");
}

#[tokio::test]
async fn processes_that_end_soon_are_waited_for() {
    let result = sh("echo late > >(sleep 0.02; cat)").await;
    assert_eq!((result.output.as_str(), result.left_behind.len()), ("late\n", 0));
}

#[tokio::test]
async fn a_command_that_kills_its_supervisor_gains_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let command = "echo $$ > pid; kill -9 $PPID; kill -STOP $PPID; sleep 1000";
    let result = run(&config(), request(dir.path(), command), |_| {}, &CancellationToken::new())
        .await
        .expect("starts");
    assert!(result.supervisor_lost && !result.is_success(), "{result:?}");
    let pid = std::fs::read_to_string(dir.path().join("pid")).expect("ran");
    until("its end", || !lives(&pid)).await;
    // Stopping it only causes a delay.
    let result = sh("kill -STOP $PPID; echo done").await;
    assert_eq!((result.output.as_str(), result.exit_code), ("done\n", Some(0)));
    assert!(result.duration < Duration::from_secs(10), "{result:?}");
}

#[tokio::test]
async fn cancelling_stops_child_processes_too() {
    let dir = tempfile::tempdir().expect("a folder");
    let pid = dir.path().join("pid");
    let cancel = CancellationToken::new();
    let config = config();
    let job = run(&config, request(dir.path(), "sleep 1000 & echo $! > pid; wait"), |_| {}, &cancel);
    let stop = async {
        until("the start", || std::fs::read_to_string(&pid).is_ok_and(|p| p.ends_with('\n'))).await;
        cancel.cancel();
    };
    let (result, ()) = tokio::join!(job, stop);
    let result = result.expect("started");
    assert!(result.cancelled && result.signal == Some(15), "{result:?}");
    assert!(!lives(&std::fs::read_to_string(pid).expect("ran")));
}

#[tokio::test]
async fn a_dropped_future_leaves_nothing() {
    for supervisor in [config().supervisor, None] {
        let dir = tempfile::tempdir().expect("a folder");
        let pid = dir.path().join("pid");
        let config = ExecConfig { supervisor, ..config() };
        let never = CancellationToken::new();
        let job = run(&config, request(dir.path(), "sleep 1000 & echo $! > pid; wait"), |_| {}, &never);
        tokio::select! {
            _ = job => panic!("it does not end"),
            () = until("the start", || std::fs::read_to_string(&pid).is_ok_and(|p| p.ends_with('\n'))) => {}
        }
        let pid = std::fs::read_to_string(pid).expect("ran");
        until("the end", || !lives(&pid)).await;
    }
}

/// The lifeline of a killed process ends like a closed descriptor.
#[tokio::test]
async fn the_end_of_the_lifeline_ends_the_command() {
    use std::io::BufRead as _;
    use std::process::{Command, Stdio};
    let dir = tempfile::tempdir().expect("a folder");
    let mut supervisor = Command::new(env!("CARGO_BIN_EXE_aye"))
        .args(["__supervise", "200", "bash", "-c"])
        .arg("trap '' TERM; setsid sleep 1000 & echo $! > pid; wait; sleep 1000")
        .current_dir(dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    let mut lines = std::io::BufReader::new(supervisor.stdout.take().expect("piped")).lines();
    let started: Value = serde_json::from_str(&lines.next().expect("a line").expect("text")).expect("JSON");
    assert_eq!(started["pid"], started["pgid"]);
    let pid = started["pid"].to_string();
    let daemon = dir.path().join("pid");
    until("the start", || std::fs::read_to_string(&daemon).is_ok_and(|p| p.ends_with('\n'))).await;
    assert!(lives(&pid));
    drop(supervisor.stdin.take());
    let status = supervisor.wait().expect("ends");
    assert!(!lives(&pid) && !lives(&std::fs::read_to_string(daemon).expect("written")));
    assert_eq!(status.code(), Some(137));
}

async fn bash(args: Value, sink: Option<Arc<VecEventSink>>) -> (ToolResult, tempfile::TempDir) {
    let dir = tempfile::tempdir().expect("a folder");
    let cwd = dir.path().canonicalize().expect("exists");
    let workspace = Workspace { cwd: cwd.clone(), root: cwd.clone(), home: cwd.clone() };
    let mut env = ToolEnv::new(workspace, cwd.join("out"));
    env.exec = config();
    env.variables = [
        ("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()),
        ("ANTHROPIC_API_KEY".into(), "canary".into()),
        ("GH_TOKEN".into(), "canary".into()),
        ("AYE_HOME".into(), "canary".into()),
        ("OPENAI_BASE_URL".into(), "canary".into()),
        ("EDITOR".into(), "vi".into()),
    ]
    .into();
    let tool = builtin(env).into_iter().find(|t| t.descriptor().id == "Bash").expect("exists");
    let mut ctx = ToolCallContext::test_default();
    if let Some(sink) = sink {
        ctx.activity_sink = Some(sink);
    }
    (tool.execute(args, &ctx).await.expect("a result").result, dir)
}

#[tokio::test]
async fn the_environment_has_no_secrets() {
    let (result, _dir) = bash(json!({"command": "env; cat /proc/$PPID/environ"}), None).await;
    let text = result.model_text();
    assert!(text.contains("EDITOR=vi") && text.contains("GIT_TERMINAL_PROMPT=0"), "{text}");
    assert!(!text.contains("canary"), "{text}");
}

#[tokio::test]
async fn output_arrives_while_the_command_runs() {
    let sink = Arc::new(VecEventSink::new());
    let command =
        json!({"command": "printf '1%%\\r'; until [ -e go ]; do sleep 0.01; done; printf '100%%\\r\\ndone'"});
    let dir_of = |sink: Arc<VecEventSink>| async move {
        let streamed = |sink: &VecEventSink| -> String {
            let delta = |event: AgentEvent| match event {
                AgentEvent::ToolCallStreamDelta { delta, .. } => Some(delta),
                _ => None,
            };
            sink.events().into_iter().filter_map(delta).collect()
        };
        until("the first output", || streamed(&sink) == "1%\r").await;
        streamed(&sink)
    };
    let dir = tempfile::tempdir().expect("a folder");
    let cwd = dir.path().canonicalize().expect("exists");
    let mut env =
        ToolEnv::new(Workspace { cwd: cwd.clone(), root: cwd.clone(), home: cwd.clone() }, cwd.join("out"));
    env.exec = config();
    env.variables = [("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())].into();
    let tool = builtin(env).into_iter().find(|t| t.descriptor().id == "Bash").expect("exists");
    let mut ctx = ToolCallContext::test_default();
    ctx.activity_sink = Some(sink.clone());
    let go = async {
        dir_of(sink.clone()).await;
        std::fs::write(cwd.join("go"), "").expect("written");
    };
    let (result, ()) = tokio::join!(tool.execute(command, &ctx), go);
    let result = result.expect("a result").result;
    assert_eq!(result.model_text(), "100%\ndone");
    let details = result.details.expect("details");
    assert_eq!((&details["exit_code"], &details["truncated"]), (&json!(0), &json!(false)));
}

#[tokio::test]
async fn long_output_is_in_a_file() {
    let (result, dir) = bash(json!({"command": "seq 1 20000"}), None).await;
    let text = result.model_text();
    assert!(text.starts_with("1\n2\n") && text.ends_with("\n19999\n20000"), "{text}");
    assert!(text.len() < 31_000, "{}", text.len());
    let details = result.details.expect("details");
    assert_eq!(details["truncated"], true);
    let file = details["output_file"].as_str().expect("a file");
    assert!(file.starts_with(dir.path().canonicalize().expect("exists").to_str().expect("text")), "{file}");
    assert!(text.contains(file), "{text}");
    assert_eq!(std::fs::read_to_string(file).expect("readable").lines().count(), 20000);
}

#[tokio::test]
async fn a_supervisor_costs_little() {
    // Not a timing test: only something absurd exceeds this bound.
    let began = Instant::now();
    for _ in 0..10 {
        assert_eq!(sh("exit 0").await.exit_code, Some(0));
    }
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

/// The real case: a process that holds the lifeline is killed without notice.
#[tokio::test]
async fn kill_9_of_the_parent_leaves_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let command = format!(
        "coproc S {{ exec {} __supervise 200 bash -c 'setsid sleep 1000 & echo $! $$ > pids; wait'; }}; wait",
        env!("CARGO_BIN_EXE_aye")
    );
    let mut parent = std::process::Command::new("bash")
        .args(["-c", &command])
        .current_dir(dir.path())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("starts");
    let file = dir.path().join("pids");
    until("the start", || std::fs::read_to_string(&file).is_ok_and(|p| p.ends_with('\n'))).await;
    let pids = std::fs::read_to_string(file).expect("written");
    assert!(pids.split_whitespace().all(lives), "{pids}");
    parent.kill().expect("is killed");
    parent.wait().expect("ended");
    until("the end", || !pids.split_whitespace().any(lives)).await;
}

#[tokio::test]
async fn a_crowd_that_ignores_term_is_killed() {
    let dir = tempfile::tempdir().expect("a folder");
    // 30 processes in separate sessions, each ignoring TERM, each writing its pid.
    let command = "for i in {1..30}; do setsid bash -c 'trap \"\" TERM HUP; echo $$ >> pids; while :; do sleep 1000; done' & done; \
                   until [ $(wc -l < pids) -ge 30 ]; do sleep 0.01; done; trap '' TERM; echo ready; kill -STOP $$";
    let request = ExecRequest { timeout: Duration::from_secs(5), ..request(dir.path(), command) };
    let cancel = CancellationToken::new();
    let stop = cancel.clone();
    let ready = |text: &str| {
        if text.contains("ready") {
            stop.cancel();
        }
    };
    let result = run(&config(), request, ready, &cancel).await.expect("starts");
    assert!(result.cancelled, "{result:?}");
    let pids = std::fs::read_to_string(dir.path().join("pids")).expect("ran");
    assert_eq!(pids.lines().count(), 30);
    assert!(!pids.lines().any(lives));
}

#[tokio::test]
async fn a_flood_is_bounded() {
    let dir = tempfile::tempdir().expect("a folder");
    let request = ExecRequest { timeout: Duration::from_millis(400), ..request(dir.path(), "yes flood") };
    let mut shown = 0;
    let result =
        run(&config(), request, |text| shown += text.len(), &CancellationToken::new()).await.expect("starts");
    assert!(result.timed_out && result.truncated && result.total_bytes > 100_000, "{result:?}");
    assert!(result.output.len() < 1200 && shown < 4 << 20, "{} {shown}", result.output.len());
}

#[tokio::test]
async fn odd_endings_are_reported() {
    // The output is closed long before the end.
    let result = sh("exec >&- 2>&-; sleep 0.1; exit 4").await;
    assert_eq!((result.exit_code, result.output.as_str()), (Some(4), ""));
    // Invalid UTF-8.
    let result = sh("printf 'a\\xff\\xe6b'").await;
    assert_eq!(result.output, "a\u{fffd}\u{fffd}b");
    // A missing folder, a command that is too long.
    let dir = tempfile::tempdir().expect("a folder");
    let gone = dir.path().join("gone");
    let never = CancellationToken::new();
    let error = run(&config(), request(&gone, "true"), |_| {}, &never).await.expect_err("refused");
    assert_eq!(
        error.to_string(),
        format!("cannot start bash: the working directory {} does not exist", gone.display())
    );
    let long = "#".repeat(200 << 10);
    let error = run(&config(), request(dir.path(), &long), |_| {}, &never).await.expect_err("refused");
    assert_eq!(error.to_string(), "cannot start bash: Argument list too long (os error 7)");
}
