//! Bash: runs a command line.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value, json};

use super::ToolEnv;
use super::args::{self, CallArgs, invalid};
use super::artifact::output_of;
use super::background::{self, Program};
use super::exec::{self, EnvVars, ExecError, ExecRequest, ExecResult, is_in_path, signal_name};
use super::paths::absolute;
use super::sandbox::{Confined, Confinement};
use super::words;
use aye_core::contract::address::domain_name;
use aye_core::contract::display::{shell_word, visible_line};
use aye_core::contract::judgement::Profile;
use aye_core::contract::tool::{
    ParsedCall, Tool, ToolCallContext, ToolDescriptor, ToolError, ToolOutput, ToolResult,
};
use aye_sandbox::{NetSession, SandboxRefusal, Serving};

const NAME: &str = "Bash";

/// Runs a command line in the working directory.
pub(super) struct Bash {
    pub(super) env: Arc<ToolEnv>,
}

struct BashArgs {
    command: String,
    timeout: Duration,
    in_background: bool,
    in_terminal: bool,
}

impl Bash {
    fn parse(&self, args: &Value) -> Result<BashArgs, ToolError> {
        if args.get("workdir").is_some() {
            return Err(invalid("Bash has no `workdir`; put `cd FOLDER &&` before the command"));
        }
        let known = ["command", "timeout", "description", "run_in_background", "tty", "outside", "reason"];
        let args = CallArgs::new(NAME, args, &known)?;
        let command = args.filled("command")?;
        if command.contains('\0') {
            return Err(invalid("`command` contains a NUL byte"));
        }
        args.opt_text("description")?;
        args.opt_text("reason")?;
        args.flag("outside", false)?;
        let config = &self.env.exec;
        let timeout = match args.opt_count("timeout", 1)? {
            Some(ms) if u128::from(ms) > config.max_timeout.as_millis() => {
                return Err(invalid(format!(
                    "`timeout` is in milliseconds and at most {}, not {ms}",
                    config.max_timeout.as_millis()
                )));
            }
            Some(ms) => Duration::from_millis(ms),
            None => config.default_timeout,
        };
        let in_terminal = args.flag("tty", false)?;
        let in_background = args.flag("run_in_background", false)? || in_terminal;
        Ok(BashArgs { command: command.to_owned(), timeout, in_background, in_terminal })
    }

    /// A command in another folder, where that is one line that `cd` can start.
    fn in_folder(&self, folder: &str, command: &str) -> Option<String> {
        let workspace = &self.env.workspace;
        let path = absolute(workspace, "workdir", folder).ok()?;
        if path == workspace.cwd {
            return Some(command.to_owned());
        }
        // What comes after one of these would run in the wrong folder if the right one is missing.
        if command.replace("&&", "").contains(['\n', ';', '&']) || command.contains("||") {
            return None;
        }
        let path = path.strip_prefix(&workspace.cwd).unwrap_or(&path).to_str()?;
        // `cd` takes `-` for the folder before.
        let here = if path.starts_with('-') { "./" } else { "" };
        Some(format!("cd {} && {command}", shell_word(&format!("{here}{path}"))))
    }

    fn request(&self, call: &BashArgs, profile: Option<Profile>, ctx: &ToolCallContext) -> ExecRequest {
        let mut env = self.env.env_of_call(profile, ctx, EnvVars::new());
        if call.in_terminal {
            env.insert("TERM".into(), "xterm-256color".into());
            env.remove(OsStr::new("GIT_TERMINAL_PROMPT"));
        }
        ExecRequest {
            program: shell(&env).into(),
            args: vec!["-c".into(), call.command.as_str().into()],
            cwd: self.env.workspace.cwd.clone(),
            env,
            timeout: call.timeout,
            max_output: self.env.exec.max_output,
            // A command in the background has its output stored as it arrives.
            output_dir: (!call.in_background)
                .then(|| output_of(&self.env.output_dir, ctx.run_identity.thread_id.as_str())),
            on_behalf: ctx.on_behalf(),
            launcher: None,
            limits: None,
            frozen: None,
        }
    }
}

impl Bash {
    /// Returns what the sandbox refused a command, as far as is known, with a line for each refusal.
    fn refused(
        &self,
        profile: Profile,
        result: &ExecResult,
        network: Option<&NetSession>,
    ) -> Vec<(SandboxRefusal, String)> {
        let again = "if the command needs it, call Bash again with `outside: true` and a `reason`, and the user is asked";
        let known = network.map(NetSession::refusals).unwrap_or_default().into_iter();
        let known = known.map(|(refusal, sentence)| {
            let listed = match &refusal {
                SandboxRefusal::Domain(_) => "; the user can list it there; or, ",
                SandboxRefusal::Path(_) | SandboxRefusal::Other(_) => "; ",
            };
            (refusal, format!("the sandbox ({profile}) refused a connection: {sentence}{listed}{again}"))
        });
        let mut all: Vec<_> = known.collect();
        if all.is_empty()
            && !result.is_success()
            && let Some((line, refusal)) = refused(&result.output, &self.env.workspace.root)
        {
            let line = visible_line(line).chars().take(MAX_REFUSAL).collect::<String>();
            let why = match (&refusal, &self.env.sandbox) {
                (SandboxRefusal::Domain(name), Some(sandbox)) if profile == Profile::Workspace => {
                    if sandbox.reaches(name) {
                        format!(
                            "; {name} is listed in sandbox.domains, but only programs that use HTTPS_PROXY reach it"
                        )
                    } else {
                        format!("; {name} is not listed in sandbox.domains")
                    }
                }
                _ => String::new(),
            };
            all.push((
                refusal,
                format!("the sandbox ({profile}) may have refused this: {line}{why}; {again}"),
            ));
        }
        all
    }
}

fn text_of<'a>(map: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    map.get(name)?.as_str()
}

/// The command line of a command that is a list of words.
fn line_of(command: &Value) -> Option<String> {
    let words: Vec<&str> = command.as_array()?.iter().map(Value::as_str).collect::<Option<_>>()?;
    match words.as_slice() {
        [] => None,
        ["bash" | "sh" | "/bin/bash" | "/bin/sh", "-c" | "-lc", line] => Some((*line).to_owned()),
        words => Some(words.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" ")),
    }
}

/// Returns `bash` if it is installed, otherwise `sh`.
fn shell(env: &EnvVars) -> &'static str {
    if env.get(OsStr::new("PATH")).is_some_and(|path| is_in_path(path, "bash")) {
        "bash"
    } else if Path::new("/bin/bash").exists() {
        "/bin/bash"
    } else {
        "/bin/sh"
    }
}

#[async_trait]
impl Tool for Bash {
    fn descriptor(&self) -> ToolDescriptor {
        super::describe(NAME, include_str!("bash.md"))
            .with_parameters(json!({
                "type": "object",
                "properties": {
                    "command": {"type": "string"},
                    "timeout": {"type": "integer", "description": "ms, default 120000, max 600000"},
                    "description": {"type": "string", "description": "what the command does, in a few words"},
                    "run_in_background": {"type": "boolean", "description": "for servers and long jobs: returns an id at once"},
                    "tty": {"type": "boolean", "description": "in the background with a terminal, for interactive \
                                                               programs: see BashInput"},
                    "outside": {"type": "boolean", "description": "run outside the sandbox, after it refused this \
                                                                   command; asks the user"},
                    "reason": {"type": "string", "description": "why it must run outside"}
                },
                "required": ["command"]
            }))
            .with_category("exec")
            .with_primary_argument("command")
    }

    fn settle_args(&self, args: &mut Value) {
        args::rename(args, &[("cmd", "command")]);
        let Value::Object(map) = args else { return };
        if let Some(line) = map.get("command").and_then(line_of) {
            map.insert("command".to_owned(), Value::String(line));
        }
        if let (Some(folder), Some(command)) = (text_of(map, "workdir"), text_of(map, "command"))
            && let Some(line) = self.in_folder(folder, command)
        {
            map.insert("command".to_owned(), Value::String(line));
            map.shift_remove("workdir");
        }
    }

    fn prepare(&self, args: &Value) -> Result<Option<Arc<dyn ParsedCall>>, ToolError> {
        let bash = Bash { env: Arc::clone(&self.env) };
        Ok(Some(Arc::new(BashCall { args: self.parse(args)?, bash })))
    }

    async fn execute(&self, args: Value, ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        self.run(&self.parse(&args)?, ctx).await
    }
}

struct BashCall {
    bash: Bash,
    args: BashArgs,
}

#[async_trait]
impl ParsedCall for BashCall {
    fn touches(&self, _ctx: &ToolCallContext) -> Vec<PathBuf> {
        words::files(&self.bash.env.workspace, &self.args.command)
    }

    async fn execute(&self, ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        self.bash.run(&self.args, ctx).await
    }
}

impl Bash {
    async fn run(&self, call: &BashArgs, ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        let profile = ctx.sandbox.or(call.in_terminal.then_some(Profile::Outside));
        let mut request = self.request(call, profile, ctx);
        if ctx.guards_git {
            let guarded = exec::guard_git(&mut request.env, &request.cwd).await;
            guarded.map_err(|why| ToolError::ExecutionFailed(format!("not run: {why}")))?;
        }
        let mut kept = Confinement::default();
        if let Some(profile) = profile {
            let what = Confined {
                profile,
                terminal: call.in_terminal,
                thread: ctx.run_identity.thread_id.clone(),
                opened: ctx.opened.clone(),
                readable: Vec::new(),
                serving: if call.in_background { Serving::Now } else { Serving::Later },
            };
            let confined = self.env.confine(request, what, &ctx.agent_spec).await;
            (request, kept) =
                confined.map_err(|why| ToolError::ExecutionFailed(format!("not run: {why}")))?;
        }
        let withheld = kept.take_withheld();
        let network = kept.network.clone();
        let config = self.env.exec.clone();
        let mut program = if call.in_terminal {
            let made = Program::in_terminal(config, request, kept);
            made.map_err(|error| {
                ToolError::ExecutionFailed(format!("not run: no terminal available: {error}"))
            })?
        } else {
            Program::new(config, request, kept)
        };
        if call.in_background {
            let id = program.move_to(background::host(ctx)?, &call.command).await?;
            return Ok(background::started(NAME, &id, "Runs in the background as").into());
        }
        let Some(result) = stay(&mut program, ctx).await else {
            if let Some(network) = &network {
                network.serve();
            }
            let id = program.move_to(background::host(ctx)?, &call.command).await?;
            return Ok(background::started(NAME, &id, "The user moved it to the background as").into());
        };
        let mut result = result.map_err(|error| ToolError::ExecutionFailed(error.to_string()))?;
        result.notes.extend(withheld.missed(&call.command, &result.output, !result.is_success()));
        let refused = match ctx.sandbox.filter(|profile| *profile != Profile::Outside) {
            Some(profile) => self.refused(profile, &result, network.as_deref()),
            None => Vec::new(),
        };
        Ok(answer(&result, call.timeout, refused).into())
    }
}

/// Waits for a program to end, and shows its output. Returns `None` if the program is to continue in the
/// background.
async fn stay(program: &mut Program, ctx: &ToolCallContext) -> Option<Result<ExecResult, ExecError>> {
    let Program { run, output, shown, stop, .. } = program;
    let forward = async {
        loop {
            tokio::select! {
                biased;
                Some(text) = output.recv() => ctx.store_output(&text),
                Some(text) = shown.recv() => ctx.stream_output(text).await,
                else => break,
            }
        }
    };
    let moved = async {
        match &ctx.background {
            Some(host) => host.moved().await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(forward, moved);
    let mut is_shown = false;
    let result = loop {
        tokio::select! {
            biased;
            result = &mut *run => break result,
            () = ctx.cancellation.cancelled(), if !stop.is_cancelled() => stop.cancel(),
            () = &mut forward, if !is_shown => is_shown = true,
            () = &mut moved, if !stop.is_cancelled() => return None,
        }
    };
    if !is_shown {
        forward.await;
    }
    Some(result)
}

/// Returns the result that the model and the user read.
fn answer(result: &ExecResult, timeout: Duration, refused: Vec<(SandboxRefusal, String)>) -> ToolResult {
    let mut text = result.output.trim_end_matches('\n').to_owned();
    let is_silent = text.trim().is_empty();
    if is_silent {
        text = "(no output)".into();
    }
    let mut ends = Vec::new();
    if result.timed_out {
        ends.push(format!("timed out after {} s and was stopped", timeout.as_secs_f64()));
    }
    if result.cancelled {
        ends.push("cancelled and stopped".into());
    }
    if let Some(why) = &result.over_limit {
        ends.push(format!("{why}, and was stopped"));
    }
    if result.supervisor_lost && !result.timed_out && !result.cancelled {
        ends.push("the command killed its supervisor; its remaining processes were stopped".into());
    }
    match (result.exit_code, result.signal) {
        (Some(0), _) => {}
        (Some(code), _) => ends.push(format!("exit status {code}")),
        (None, Some(signal)) => ends.push(format!("ended by {}", signal_name(signal))),
        (None, None) => {}
    }
    let mut note = |line: &str| {
        let _ = write!(text, "\n{line}");
    };
    for line in &ends {
        note(line);
    }
    let mut refusals = Vec::new();
    for (refusal, line) in refused {
        refusals.push(refusal);
        note(&line);
    }
    for line in &result.notes {
        note(line);
    }
    if !result.left_behind.is_empty() {
        let names: Vec<_> = result.left_behind.iter().map(|name| visible_line(name)).collect();
        note(&format!("still running when the command ended, and stopped: {}", names.join(", ")));
    }
    let mut details = json!({
        "exit_code": result.exit_code,
        "signal": result.signal,
        "timed_out": result.timed_out,
        "cancelled": result.cancelled,
        "duration_ms": u64::try_from(result.duration.as_millis()).unwrap_or(u64::MAX),
        "truncated": result.truncated,
        "total_bytes": result.total_bytes,
        "output_file": result.output_file,
        "left_behind": result.left_behind,
    });
    // A command that ended by itself says in its output why it failed.
    let is_stopped = result.timed_out
        || result.cancelled
        || result.supervisor_lost
        || result.over_limit.is_some()
        || result.signal.is_some();
    if let Some(why) = ends.first().filter(|_| is_silent || is_stopped) {
        details["why"] = json!(why);
    }
    if !refusals.is_empty() {
        details["refused"] = json!(refusals);
    }
    let answer =
        if result.is_success() { ToolResult::text(NAME, text) } else { ToolResult::error(NAME, text) };
    answer.with_details(details)
}

/// Characters of a refusal that are repeated.
const MAX_REFUSAL: usize = 200;

/// The messages that programs print when the kernel refuses an access, or hides the keys that they sign with, in lower
/// case.
const REFUSALS: [&str; 6] = [
    "permission denied",
    "operation not permitted",
    "read-only file system",
    "eacces",
    "failed to sign the data",
    "couldn't load public key",
];

/// The messages that programs print when there is no network or no name server.
const NO_NETWORK: [&str; 7] = [
    "network is unreachable",
    "could not resolve host",
    "unable to resolve host",
    "failed to resolve",
    "temporary failure in name resolution",
    "name or service not known",
    "eai_again",
];

/// Returns a line with what the sandbox may have refused a program that failed, according to the program's
/// output.
pub fn refused_line(profile: Profile, output: &str, workspace: &Path) -> Option<String> {
    let (line, _) = refused(output, workspace).filter(|_| profile != Profile::Outside)?;
    let line = visible_line(line).chars().take(MAX_REFUSAL).collect::<String>();
    Some(format!(
        "the sandbox ({profile}) may have refused this: {line}; only the user can allow it outside the sandbox"
    ))
}

/// The last line in which a command says that it was refused something, or misses a file that the machine has.
fn refused<'a>(output: &'a str, workspace: &Path) -> Option<(&'a str, SandboxRefusal)> {
    output.lines().rev().map(str::trim).find_map(|line| {
        // It leaves the places of letters as they are.
        let small = line.to_ascii_lowercase();
        let position_of =
            |sentences: &[&str]| sentences.iter().filter_map(|sentence| small.find(sentence)).min();
        let found = position_of(&NO_NETWORK).or_else(|| position_of(&REFUSALS));
        let part = found.map_or(line, |at| around(line, at));
        let other = || SandboxRefusal::Other(part.chars().take(MAX_REFUSAL).collect());
        let refusal = if let Some(at) = position_of(&NO_NETWORK) {
            let (before, after) = line.split_at(at);
            let name = words_of(after).find_map(domain_name);
            name.or_else(|| words_of(before).filter_map(domain_name).last()).map(SandboxRefusal::Domain)
        } else if position_of(&REFUSALS).is_some() {
            paths_of(line, workspace).next().map(SandboxRefusal::Path)
        } else if small.contains("no such file or directory") {
            Some(SandboxRefusal::Path(hidden_path(line, workspace)?))
        } else {
            return None;
        };
        Some((part, refusal.unwrap_or_else(other)))
    })
}

/// The part of a long line that is repeated, for a message at this position: a few words before it.
fn around(line: &str, at: usize) -> &str {
    if at < MAX_REFUSAL / 2 {
        return line;
    }
    let start = (0..=at - MAX_REFUSAL / 4).rev().find(|start| line.is_char_boundary(*start)).unwrap_or(0);
    let word = line[start..at].find(' ').map_or(start, |space| start + space + 1);
    &line[word..]
}

/// The words of a message, without its quotes and colons.
fn words_of(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| {
        c.is_whitespace() || matches!(c, '\'' | '"' | '`' | '‘' | '’' | ':' | ',' | '(' | ')')
    })
}

/// The paths that a line names: absolute ones, and those above the folder that the command started in.
fn paths_of<'a>(line: &'a str, workspace: &'a Path) -> impl Iterator<Item = PathBuf> {
    words_of(line).filter(|word| word.starts_with('/') || word.starts_with("../")).map(|word| {
        let mut path = PathBuf::new();
        for part in workspace.join(word).components() {
            match part {
                Component::ParentDir => drop(path.pop()),
                other => path.push(other),
            }
        }
        path
    })
}

/// The path outside the workspace that a line names and that exists, or could: the sandbox may not show it.
fn hidden_path(line: &str, workspace: &Path) -> Option<PathBuf> {
    paths_of(line, workspace).filter(|path| path.parent().is_some()).find(|path| {
        let is_there = |path: &Path| path.symlink_metadata().is_ok();
        let is_elsewhere = !path.starts_with(workspace) && !path.starts_with("/tmp");
        is_elsewhere && (is_there(path) || path.parent().is_some_and(is_there))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::Sandbox;
    use aye_core::contract::tool::ToolCallContext;

    #[test]
    fn kernel_refusals_are_recognised() {
        use aye_sandbox::SandboxRefusal;
        let of = |output| super::refused(output, std::path::Path::new("/srv/w"));
        let path = |line, path: &str| Some((line, SandboxRefusal::Path(path.into())));
        let domain = |line, name: &str| Some((line, SandboxRefusal::Domain(name.into())));
        assert_eq!(
            of("a\nsh: 1: cannot create /etc/x: Permission denied\nb"),
            path("sh: 1: cannot create /etc/x: Permission denied", "/etc/x")
        );
        let line = "touch: cannot touch '/usr/x': Read-only file system";
        assert_eq!(of(line), path(line, "/usr/x"));
        for line in [
            "curl: (6) Could not resolve host: example.org",
            "npm error request to https://example.org/x failed, reason: getaddrinfo EAI_AGAIN example.org",
            "NameResolutionError: Failed to resolve 'example.org' ([Errno -3] Temporary failure in name resolution)",
            "urllib3.exceptions.NameResolutionError: <x.y object at 0x7f>: Failed to resolve 'example.org' (z)",
            "wget: unable to resolve host address ‘example.org’",
            "ping: example.org: Name or service not known",
        ] {
            assert_eq!(of(line), domain(line, "example.org"));
        }
        let line = "[Errno -3] Temporary failure in name resolution";
        assert_eq!(of(line), Some((line, SandboxRefusal::Other(line.into()))));
        let long = format!("WARNING: Retrying after {}'NewConnectionError(x): {line}'", "(x) ".repeat(90));
        let (part, _) = of(&long).expect("is recognised");
        assert!(part.len() < 100 && part.contains(line), "{part}");
        let line = "mount: permission denied";
        assert_eq!(of(line), Some((line, SandboxRefusal::Other(line.into()))));
        // A path that the sandbox does not show.
        let line = "cat: /etc/passwd: No such file or directory";
        assert_eq!(of(line), path(line, "/etc/passwd"));
        let line = "mkdir: cannot create directory '../../etc/x': No such file or directory";
        assert_eq!(of(line), path(line, "/etc/x"));
        let line = "touch: cannot touch '../x': Read-only file system";
        assert_eq!(of(line), path(line, "/srv/x"));
        // A script that signs: git was not asked before it ran.
        let line = "error: gpg failed to sign the data:";
        let text = format!("{line}\nfatal: failed to write commit object");
        assert!(of(&text).is_some_and(|(found, _)| found == line));
        let line = "error: Couldn't load public key /root/.ssh/id.pub: No such file or directory?";
        assert_eq!(of(line), path(line, "/root/.ssh/id.pub"));
        assert!(of("mkdir: cannot create directory ‘/x-of-nobody’: No such file or directory").is_some());
        // A file that is simply not there.
        assert_eq!(of("cat: /srv/w/x: No such file or directory"), None);
        assert_eq!(of("cat: x: No such file or directory"), None);
        assert_eq!(of("cat: /of-nobody/x/y: No such file or directory"), None);
        assert_eq!(of("assertion failed"), None);
    }

    #[tokio::test]
    async fn git_is_guarded_only_where_the_call_says_so() {
        let sandbox = Sandbox::new();
        let line = json!({"command": "echo ${GIT_CONFIG_COUNT:-none} $GIT_ALLOW_PROTOCOL"});
        for guards_git in [false, true] {
            let ctx = ToolCallContext { guards_git, ..ToolCallContext::test_default() };
            let output = sandbox.tool("Bash").execute(line.clone(), &ctx).await.expect("it runs");
            let text = output.result.model_text();
            assert_eq!(text.trim().ends_with(" none"), guards_git, "{text}");
        }
    }
}
