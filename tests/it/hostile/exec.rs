//! Exec rows: commands that flood, stay, hide, or attack their parent.

use std::path::Path;
use std::time::{Duration, Instant};

use aye::contract::tool::SpawnContext;
use aye::tools::exec::{EnvVars, ExecConfig, ExecRequest, ExecResult, child_env, run};
use tokio_util::sync::CancellationToken;

use super::{Found, each, ensure, of_area};

type Check = fn() -> Found;

pub fn check_of(id: &str) -> Option<Check> {
    Some(match id {
        "EX003" => || wants("cat; echo $?", |r| r.output == "0\n"),
        "EX005" => ignores_term,
        "EX006" => daemon,
        "EX009" => || wants("kill -STOP $PPID; echo on", |r| r.output == "on\n"),
        "EX013" => environment,
        "EX101o" => {
            || wants("head -c 3000000 /dev/zero", |r| r.output.len() < 5000 && r.total_bytes == 3_000_000)
        }
        "EX102o" => || wants("printf x", |r| r.output == "x"),
        "EX103o" => || wants("printf 'a\\xff\\xc3b'", |r| r.output.contains('a') && r.output.contains('b')),
        "EX104o" => || wants("exec >&- 2>&- <&-; sleep 0.1", |r| r.exit_code == Some(0)),
        "EX105o" => || wants("rmdir \"$PWD\"; pwd; ls", |r| r.exit_code.is_some()),
        "EX106o" => || {
            wants("f() { [ $1 -eq 0 ] && sleep 30 & [ $1 -gt 0 ] && f $(($1-1)); }; f 20", |r| {
                r.duration < Duration::from_secs(15)
            })
        },
        "EX107o" => || {
            wants("for i in $(seq 40); do sleep 60 & done", |r| {
                r.exit_code == Some(0) && !r.left_behind.is_empty()
            })
        },
        "EX108o" => || wants("read x; echo \"[$x]\"", |r| r.output == "[]\n"),
        "EX109o" => || wants("ulimit -c; kill -SEGV $$", |r| r.signal == Some(11) && r.output == "0\n"),
        "EX110o" => || wants("exit 300", |r| r.exit_code == Some(44)),
        "EX111o" => || wants("exec 1000>x 2>&1; echo hi", |r| r.exit_code.is_some()),
        "EX112o" => || wants("trap 'echo bye; sleep 1' EXIT; kill $$", |r| r.output == "bye\n"),
        "EX113o" => || wants("printf '\\033]52;c;AA==\\007'", |r| r.exit_code == Some(0)),
        "EX114o" => || wants("echo $((1/0)); false | true; echo ${PIPESTATUS[*]}", |r| r.exit_code.is_some()),
        "EX115o" => || {
            wants("nohup sleep 60 >/dev/null 2>&1 & echo up", |r| {
                r.output == "up\n" && r.left_behind.len() == 1
            })
        },
        _ => return None,
    })
}

#[test]
fn every_row() {
    let rows = of_area("exec").into_iter().filter(|row| check_of(&row.id).is_some()).collect();
    each(rows, |row| check_of(&row.id).expect("a check")());
}

fn execute(dir: &Path, command: &str, timeout: Duration) -> ExecResult {
    let config = ExecConfig {
        supervisor: Some(env!("CARGO_BIN_EXE_aye").into()),
        grace: Duration::from_millis(200),
        ..ExecConfig::default()
    };
    let request = ExecRequest {
        program: "bash".into(),
        args: vec!["-c".into(), command.into()],
        cwd: dir.into(),
        env: [("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())].into(),
        timeout,
        max_output: 2000,
        output_dir: None,
        on_behalf: SpawnContext::default(),
        launcher: None,
        limits: None,
        frozen: None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(run(&config, request, |_| {}, &CancellationToken::new())).expect("starts")
}

/// Runs the command and checks the result; nothing of it is left afterwards.
fn wants(command: &str, is: fn(&ExecResult) -> bool) -> Found {
    let dir = tempfile::tempdir().expect("a folder");
    let began = Instant::now();
    let result = execute(dir.path(), command, Duration::from_secs(20));
    ensure(is(&result), || format!("{command}: {result:?}"))?;
    ensure(began.elapsed() < Duration::from_secs(25), || "it takes too long".into())?;
    let here = dir.path().to_string_lossy().into_owned();
    let left = std::fs::read_dir("/proc").expect("/proc is readable").flatten().filter(|entry| {
        std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.to_string_lossy().starts_with(&here))
    });
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    ensure(left.is_empty(), || format!("{command}: {left:?} are left"))
}

fn lives(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()))
        .is_ok_and(|stat| !stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')))
}

fn ignores_term() -> Found {
    let dir = tempfile::tempdir().expect("a folder");
    let result = execute(dir.path(), "trap '' TERM; echo $$; sleep 1000", Duration::from_secs(2));
    ensure(result.timed_out && !lives(&result.output), || format!("{result:?}"))
}

fn daemon() -> Found {
    let dir = tempfile::tempdir().expect("a folder");
    let result = execute(dir.path(), "setsid sleep 1000 & echo $!; disown", Duration::from_secs(20));
    ensure(!lives(&result.output) && result.left_behind.len() == 1, || format!("{result:?}"))
}

fn environment() -> Found {
    let names = [
        "ANTHROPIC_API_KEY",
        "OPENAI_BASE_URL",
        "GH_TOKEN",
        "MY_SECRET",
        "AWS_SECRET_ACCESS_KEY",
        "AYE_HOME",
        "AYE_FAILPOINT",
        "DB_PASSWORD",
        "npm_config__authToken",
        "HF_TOKEN",
        "STRIPE_KEY",
        "OWN_LLM",
        "X_CREDENTIALS",
        "GEMINI_API_KEY",
    ];
    let base: EnvVars = names.iter().map(|name| ((*name).into(), "canary".into())).collect();
    let left = child_env(&base, &["OWN_LLM".into()]);
    let found: Vec<_> =
        left.iter().filter(|(_, value)| *value == "canary").map(|(name, _)| name.clone()).collect();
    ensure(found.is_empty(), || format!("{found:?}"))
}
