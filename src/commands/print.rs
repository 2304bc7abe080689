//! `aye -p`: one task without a terminal.

use std::io::{IsTerminal as _, Read as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::agents::HitlMode;
use crate::cli::start::{InputFormatArg, OnUnknown, OutputFormatArg, StartFlags, ThreadChoice};
use crate::commands;
use crate::compose::{self, WrittenMessage, images};
use crate::config::{self, Env, TrustAssessment};
use crate::contract::ids::ThreadId;
use crate::contract::message::{Message, Role};
use crate::contract::tool::ToolDescriptor;
use crate::failure::Failure;
use crate::headless::{self, AnswerSchema, AskPolicy, Job, Options, OutputFormat, TypedAnswers, Unstarted};
use crate::program::app_context::AppContext;
use crate::program::foundation::Foundation;
use crate::program::{moved, put_stderr, worktrees};
use crate::runtime::{RunRequest, UnknownPolicy};

mod input;

use input::{MAX_STDIN, MessageLines};

/// How long deleting old conversations may delay the end.
const MAX_PRUNE: Duration = Duration::from_secs(1);
/// In how many of the last messages the answer is looked for.
const MAX_TAIL: usize = 20;

pub(crate) async fn run(cli: &StartFlags, env: Env) -> Result<u8, Failure> {
    let mut is_due = true;
    let ended = attempt(cli, env, &mut is_due).await;
    if let Err(failure) = &ended
        && is_due
    {
        let (code, hints) = (failure.code(), failure.hints());
        let unstarted = Unstarted { error: &failure.message, exit: failure.exit, code, hints };
        headless::put_unstarted(format_of(cli.output_format), &unstarted);
    }
    ended
}

/// Does it. `is_due`: whether the message that is worked on has no result yet.
async fn attempt(cli: &StartFlags, env: Env, is_due: &mut bool) -> Result<u8, Failure> {
    let (foundation, cli) = worktrees::load(cli, env).await?;
    let cli = &cli;
    notice_untrusted(&foundation);
    let lines = (cli.input_format == InputFormatArg::StreamJson).then(MessageLines::of_stdin);
    let mut lines =
        lines.transpose().map_err(|error| Failure::failed(format!("stdin cannot be read: {error}")))?;
    let prompt = cli.prompt.as_deref().filter(|p| !p.trim().is_empty());
    let text = match &mut lines {
        Some(lines) => match lines.next().await.map_err(Failure::usage)? {
            None => return Err(Failure::usage("stdin has no message")),
            first => first,
        },
        None => compose::with_piped(prompt, piped()?),
    };
    let schema = answer_schema(cli.json_schema.as_deref())?;
    // Invalid settings are reported before anything starts.
    on_ask(&foundation, None)?;
    let _log = crate::logging::to_file(&foundation.paths.log_dir());
    let app = AppContext::build(foundation, cli).await?;
    app.warn_on_stderr();
    app.mcp.ready().await;
    let thread = commands::chosen_thread(&app, cli).await?;
    match cli.thread() {
        ThreadChoice::Pick => {
            return Err(Failure::usage("-r needs the id of a thread here; `aye threads list` shows them"));
        }
        ThreadChoice::Last if thread.is_none() => {
            return Err(Failure::usage("this folder has no conversation yet"));
        }
        ThreadChoice::New | ThreadChoice::Last | ThreadChoice::Id(_) => {}
    }
    if let Some(thread) = &thread
        && let Some(notice) = app.continue_with_its_agent(thread).await.map_err(Failure::failed)?
        // A run that is resumed stays with its own agent in any case.
        && text.is_some()
    {
        put_stderr(&format!("aye: {notice}"));
    }
    let job = match (thread, text) {
        (None, None) => {
            return Err(Failure::usage("no prompt; use aye -p \"...\" or pipe one in"));
        }
        (Some(thread), None) => Job::Resume(thread),
        (thread, Some(text)) => {
            let thread = match (thread, &cli.session_id) {
                (Some(thread), _) => thread,
                (None, Some(id)) => ThreadId::from(id.to_string()),
                (None, None) => ThreadId::fresh(),
            };
            let attached = images::of_flags(&app, &cli.image).await.map_err(Failure::usage)?;
            let typed = prompt.unwrap_or(&text);
            let written = WrittenMessage { text: &text, typed, attached, ..WrittenMessage::default() };
            let mut messages = vec![compose::message(&app, written).await.map_err(Failure::usage)?];
            messages.extend(schema.as_ref().map(|schema| schema.instruction()));
            let request = RunRequest {
                frontend_tools: client_tools(cli.client_tools.as_deref())?,
                ..RunRequest::new(thread, messages)
            };
            if cli.keep_waiting { Job::Behind(request) } else { Job::Run(request) }
        }
    };
    let on_ask = on_ask_of(&app)?;
    let mut options = options(&app, cli.output_format, cli.on_unknown, on_ask);
    options.schema = schema;
    options.typed = typed_answers(&app, on_ask)?;
    let thread = job.thread().clone();
    *is_due = false;
    let mut code = headless::run(&app.runtime, job, &options, &app.clock).await;
    if let Some(lines) = &mut lines {
        code = answer_lines(&app, lines, &thread, &options, code, is_due).await?;
    }
    if let Some(file) = cli.output_last_message.as_deref().filter(|_| is_answered(code)) {
        write_answer(&app, &thread, file).await?;
    }
    moved::note(&app).await;
    // Pruning comes last, so that neither a request nor an answer waits for it. What is left over is for the
    // next start.
    let prune = crate::commands::store::prune_by_setting(&app.store, &app.foundation);
    let _ = tokio::time::timeout(MAX_PRUNE, prune).await;
    app.mcp.manager.close().await;
    app.notifier.finish().await;
    app.telemetry.end().await;
    app.store.leave().await;
    Ok(code)
}

/// Answers the other messages of stdin, until one gets no answer. Returns the status of the last run.
async fn answer_lines(
    app: &AppContext,
    lines: &mut MessageLines,
    thread: &ThreadId,
    options: &Options,
    mut code: u8,
    is_due: &mut bool,
) -> Result<u8, Failure> {
    while is_answered(code) {
        *is_due = true;
        let Some(text) = lines.next().await.map_err(Failure::usage)? else { break };
        let written = WrittenMessage { text: &text, typed: &text, ..WrittenMessage::default() };
        let message = compose::message(app, written).await.map_err(Failure::usage)?;
        let job = Job::Run(RunRequest::new(thread.clone(), vec![message]));
        *is_due = false;
        code = headless::run(&app.runtime, job, options, &app.clock).await;
    }
    *is_due = false;
    Ok(code)
}

/// Whether a run of this exit status ended with an answer.
fn is_answered(code: u8) -> bool {
    matches!(code, headless::exit::DONE | headless::exit::LIMIT | headless::exit::EXPIRED)
}

/// Writes the last message of the agent to a file.
async fn write_answer(app: &AppContext, thread: &ThreadId, file: &Path) -> Result<(), Failure> {
    let (_, end) = app.store.messages_tail(thread, MAX_TAIL).await.map_err(Failure::failed)?;
    let answers =
        end.iter().rev().map(|stored| &stored.message).filter(|message| message.role == Role::Assistant);
    let text = answers.map(Message::text).find(|text| !text.trim().is_empty()).unwrap_or_default();
    let file = app.foundation.workspace.cwd.join(file);
    std::fs::write(&file, format!("{}\n", text.trim_end()))
        .map_err(|error| Failure::failed(format!("--output-last-message {}: {error}", file.display())))
}

/// Reads the schema that the answer must match.
fn answer_schema(file: Option<&Path>) -> Result<Option<Arc<AnswerSchema>>, Failure> {
    let Some(file) = file else { return Ok(None) };
    let wrong = |why: String| Failure::usage(format!("--json-schema {}: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    AnswerSchema::parse(&text).map(|schema| Some(Arc::new(schema))).map_err(|error| wrong(error.to_string()))
}

/// One tool of a client, in the names that clients use for it.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ClientTool {
    #[serde(alias = "id")]
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default, alias = "inputSchema", alias = "input_schema")]
    parameters: Option<serde_json::Value>,
}

/// Reads the tools that the caller of aye runs.
fn client_tools(file: Option<&Path>) -> Result<Vec<ToolDescriptor>, Failure> {
    let Some(file) = file else { return Ok(Vec::new()) };
    let wrong = |why: &dyn std::fmt::Display| {
        Failure::usage(format!(
            "--client-tools {}: {why}; expected a list such as [{{\"name\": \"pick_file\", \"description\": \
             \"…\"}}]",
            file.display()
        ))
    };
    let text = std::fs::read_to_string(file).map_err(|e| wrong(&e))?;
    let tools: Vec<ClientTool> = serde_json::from_str(&text).map_err(|e| wrong(&e))?;
    let tool = |tool: ClientTool| {
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if tool.name.is_empty() || tool.name.len() > 64 || !tool.name.chars().all(is_name) {
            let name = tool.name.escape_debug();
            return Err(wrong(&format!("the name `{name}` must be letters, digits, _ and -, at most 64")));
        }
        let descriptor = ToolDescriptor::new(tool.name.clone(), tool.name, tool.description);
        match tool.parameters {
            None => Ok(descriptor),
            Some(schema) if jsonschema::validator_for(&schema).is_err() => {
                Err(wrong(&format!("the parameters of `{}` are not a JSON Schema", descriptor.id)))
            }
            Some(schema) => Ok(descriptor.with_parameters(schema)),
        }
    };
    tools.into_iter().map(tool).collect()
}

/// Reports which files of the folder are not used because they are not trusted.
pub(crate) fn notice_untrusted(foundation: &Foundation) {
    if let Some(notice) = TrustAssessment::ignored_notice(&foundation.untrusted) {
        put_stderr(&notice);
    }
}

fn format_of(format: OutputFormatArg) -> OutputFormat {
    match format {
        OutputFormatArg::Text => OutputFormat::Text,
        OutputFormatArg::Json => OutputFormat::Json,
        OutputFormatArg::StreamJson => OutputFormat::StreamJson,
    }
}

/// Returns the options of a headless run: its output format, and how calls with an unknown outcome are
/// handled.
pub(crate) fn options(
    app: &AppContext,
    format: OutputFormatArg,
    unknown: OnUnknown,
    on_ask: AskPolicy,
) -> Options {
    Options {
        format: format_of(format),
        unknown: match unknown {
            OnUnknown::Report => UnknownPolicy::Report,
            OnUnknown::Ask => UnknownPolicy::Ask,
            OnUnknown::Stop => UnknownPolicy::Stop,
            OnUnknown::Retry => UnknownPolicy::Retry,
        },
        on_ask,
        is_kept: !app.foundation.is_ephemeral,
        actor: app.actor("headless"),
        typed: None,
        clean: std::io::stdout().is_terminal(),
        schema: None,
    }
}

/// Returns how questions of the current agent are handled.
pub(crate) fn on_ask_of(app: &AppContext) -> Result<AskPolicy, Failure> {
    on_ask(&app.foundation, app.agents.hitl(&app.agents.current()))
}

/// Returns how questions are handled. Without a store nothing outlives the process, so questions are denied
/// unless somebody waits for them. A flag takes precedence over the agent's file, which takes precedence over
/// the settings.
fn on_ask(foundation: &Foundation, hitl: Option<HitlMode>) -> Result<AskPolicy, Failure> {
    match hitl.filter(|_| !foundation.has_on_ask_flag()) {
        Some(HitlMode::Blocking) => return Ok(AskPolicy::Wait(None)),
        // An agent that insists on it was not chosen under --ephemeral.
        Some(HitlMode::Async) => return Ok(AskPolicy::Suspend),
        Some(HitlMode::Auto) if !foundation.is_ephemeral => return Ok(AskPolicy::Suspend),
        Some(HitlMode::Auto) if TypedAnswers::open().is_ok() => return Ok(AskPolicy::Wait(None)),
        Some(HitlMode::Auto) => return Ok(AskPolicy::Deny),
        None => {}
    }
    Ok(match foundation.loaded.settings.on_ask {
        config::OnAsk::Auto if foundation.is_ephemeral => AskPolicy::Deny,
        config::OnAsk::Suspend if foundation.is_ephemeral => {
            let origin = foundation.loaded.provenance.origin("on_ask").map(ToString::to_string);
            return Err(Failure::usage(format!(
                "{}: `suspend` does not work with --ephemeral, which keeps nothing to resume; use wait or deny",
                origin.unwrap_or_default()
            )));
        }
        config::OnAsk::Auto | config::OnAsk::Suspend => AskPolicy::Suspend,
        config::OnAsk::Deny => AskPolicy::Deny,
        config::OnAsk::Wait(limit) => AskPolicy::Wait(limit),
    })
}

/// Opens the terminal of this process for typed answers, if nobody else can give the answers it waits for.
fn typed_answers(app: &AppContext, on_ask: AskPolicy) -> Result<Option<Arc<TypedAnswers>>, Failure> {
    let foundation = &app.foundation;
    if !(foundation.is_ephemeral && matches!(on_ask, AskPolicy::Wait(_))) {
        return Ok(None);
    }
    TypedAnswers::open().map(|typed| Some(Arc::new(typed))).map_err(|error| {
        let agent = app.agents.current();
        let waits = match app.agents.hitl(&agent) {
            Some(_) if !foundation.has_on_ask_flag() => app.agents.hitl_place(&agent, "blocking"),
            Some(_) | None => {
                let origin = foundation.loaded.provenance.origin("on_ask").map(ToString::to_string);
                format!("{}: `wait`", origin.unwrap_or_default())
            }
        };
        Failure::failed(format!(
            "{waits} with --ephemeral asks in this terminal, and there is none: {error}; use --on-ask deny, or leave \
             out --ephemeral to answer from another terminal"
        ))
    })
}

/// Returns the content of a pipe or a file on stdin; `None` if stdin is neither, or is empty. A terminal, a
/// socket or a device is not read: it might never end.
pub(crate) fn piped() -> Result<Option<String>, Failure> {
    let Ok(meta) = std::fs::metadata("/dev/stdin") else { return Ok(None) };
    if !(meta.file_type().is_fifo() || meta.is_file()) {
        return Ok(None);
    }
    let is_pipe = meta.file_type().is_fifo();
    let bytes = read_stdin(is_pipe).map_err(|e| Failure::failed(format!("cannot read stdin: {e}")))?;
    if bytes.len() as u64 > MAX_STDIN {
        return Err(Failure::usage("stdin has more than 10 MiB; put it into a file and name the file"));
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok((!text.trim().is_empty()).then_some(text))
}

/// How long a pipe may stay open before the program reports what it is waiting for.
const QUIET: Duration = Duration::from_secs(2);

/// Reads stdin to its end. A pipe that stays open makes the program appear to hang, so it reports what it is
/// waiting for.
fn read_stdin(is_pipe: bool) -> std::io::Result<Vec<u8>> {
    let read = || {
        let mut bytes = Vec::new();
        std::io::stdin().lock().take(MAX_STDIN + 1).read_to_end(&mut bytes).map(|_| bytes)
    };
    if !is_pipe {
        return read();
    }
    let (done, ended) = mpsc::channel();
    std::thread::spawn(move || {
        // The receiver is gone only when the program ends.
        let _ = done.send(read());
    });
    let gone = |_| std::io::Error::other("its reader ended");
    match ended.recv_timeout(QUIET) {
        Ok(read) => read,
        Err(mpsc::RecvTimeoutError::Disconnected) => Err(gone(mpsc::RecvError)),
        Err(mpsc::RecvTimeoutError::Timeout) => {
            put_stderr(
                "aye: waiting for the end of stdin, which is an open pipe; without input, start it with < /dev/null",
            );
            ended.recv().map_err(gone)?
        }
    }
}
