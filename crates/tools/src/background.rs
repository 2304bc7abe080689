//! Commands that outlive their call: what Bash hands over, and BashOutput and KillShell, which take care of it.

use std::sync::Arc;

use async_trait::async_trait;
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, stream};
use grep_matcher::Matcher as _;
use grep_regex::RegexMatcher;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::ToolEnv;
use super::args::{CallArgs, invalid};
use super::exec::{self, ExecConfig, ExecError, ExecRequest, ExecResult, OutputPart, Terminal};
use super::sandbox::Confinement;
use super::screen::ScreenTerminal;
use aye_core::contract::command::{
    BackgroundCommand, BackgroundHost, CommandEnd, CommandRecord, CommandTerminal,
};
use aye_core::contract::tool::{
    Tool, ToolCallContext, ToolClass, ToolDescriptor, ToolError, ToolOutput, ToolResult,
};

/// Takes what a program prints.
type OnOutput = Box<dyn FnMut(OutputPart<'_>) + Send>;

/// A program that runs while its future is polled, wherever that is.
pub(super) struct Program {
    pub(super) run: BoxFuture<'static, Result<ExecResult, ExecError>>,
    /// All that it prints.
    pub(super) output: mpsc::UnboundedReceiver<String>,
    /// The part of it that a screen shows.
    pub(super) shown: mpsc::UnboundedReceiver<String>,
    pub(super) stop: CancellationToken,
    timeless: CancellationToken,
    terminal: Option<Arc<dyn CommandTerminal>>,
}

/// Maximum typed inputs that have not been read yet.
const MAX_TYPED: usize = 64;

/// Columns and rows of a terminal that is not displayed.
const SIZE: (u16, u16) = (100, 30);

impl Program {
    pub(super) fn new(config: ExecConfig, request: ExecRequest, kept: Confinement) -> Self {
        Self::running(kept, move |on_output, cancel, unlimited| {
            async move { exec::run_timeless(&config, request, on_output, &cancel, &unlimited).await }.boxed()
        })
    }

    /// With a way to the network, the output says what is refused there, when it is.
    fn running(
        Confinement { network, unchanged, notes, live, .. }: Confinement,
        start: impl FnOnce(
            OnOutput,
            CancellationToken,
            CancellationToken,
        ) -> BoxFuture<'static, Result<ExecResult, ExecError>>,
    ) -> Self {
        // Unbounded, because neither a slow screen nor a slow disk must stop the command: `run` bounds by time what it
        // hands out to a screen, and what stores the output takes it at once and bounds it.
        let (sender, output) = mpsc::unbounded_channel::<String>();
        let (screen, shown) = mpsc::unbounded_channel::<String>();
        let (stop, timeless) = (CancellationToken::new(), CancellationToken::new());
        let unlimited = timeless.clone();
        let (all, part) = (sender.clone(), screen.clone());
        // A reader that is gone needs nothing.
        let on_output: OnOutput = Box::new(move |printed| match printed {
            OutputPart::Whole(text) => drop(all.send(text.to_owned())),
            OutputPart::Shown(text) => drop(part.send(text.to_owned())),
        });
        let run = start(on_output, stop.clone(), timeless.clone());
        let run = async move {
            // The senders are dropped at the end of the command: then there is no more output.
            let (sender, screen, _live) = (sender, screen, live);
            let note = |text: &str| {
                let line = format!("\n[aye: {text}]\n");
                let _ = screen.send(line.clone());
                let _ = sender.send(line);
            };
            let result = match network {
                None => run.await,
                Some(network) => {
                    let refusals = network.each_refusal(&note);
                    tokio::select! {
                        result = run => result,
                        () = refusals => Err(ExecError::Io(std::io::ErrorKind::Other.into())),
                    }
                }
            };
            let mut result = result?;
            result.notes.extend(notes);
            if let Some(unchanged) = unchanged {
                let beside = unlimited.is_cancelled();
                let settled = tokio::task::spawn_blocking(move || unchanged.settle(beside)).await;
                result.notes.extend(settled.unwrap_or_else(|error| vec![error.to_string()]));
                result.notes.iter().filter(|_| beside).for_each(|text| note(text));
            }
            Ok(result)
        };
        Self { run: run.boxed(), output, shown, stop, timeless, terminal: None }
    }

    /// The same in a terminal, for as long as it takes.
    pub(super) fn in_terminal(
        config: ExecConfig,
        request: ExecRequest,
        kept: Confinement,
    ) -> std::io::Result<Self> {
        let Terminal { output, mut keys, program, size } = exec::open_terminal(SIZE.0, SIZE.1)?;
        let (typed, mut typing) = mpsc::channel::<Vec<u8>>(MAX_TYPED);
        let terminal = Arc::new(ScreenTerminal::new(typed, size, SIZE));
        let screen = Arc::clone(&terminal);
        let mut made = Self::running(kept, move |mut on_output, cancel, _| {
            async move {
                let _ended = screen.ends();
                let on_output = move |printed: OutputPart<'_>| {
                    if let OutputPart::Whole(text) = printed {
                        screen.print(text);
                    }
                    on_output(printed);
                };
                let typist = async {
                    while let Some(text) = typing.recv().await {
                        // A program that ended reads nothing.
                        let _ = keys.write_all(&text).await;
                    }
                    std::future::pending::<()>().await;
                };
                tokio::select! {
                    result = exec::run_in_terminal(&config, request, (output, program), on_output, &cancel) => result,
                    () = typist => Err(ExecError::Io(std::io::ErrorKind::Other.into())),
                }
            }
            .boxed()
        });
        made.terminal = Some(terminal);
        Ok(made)
    }

    /// Hands it over. From here on it has no time limit.
    pub(super) async fn move_to(
        self,
        host: &Arc<dyn BackgroundHost>,
        command: &str,
    ) -> Result<String, ToolError> {
        self.timeless.cancel();
        let pieces = stream::unfold(self.output, async |mut output| {
            let piece = output.recv().await?;
            Some((piece, output))
        });
        let command = BackgroundCommand {
            command: command.to_owned(),
            output: exec::plain_pieces(pieces.boxed()),
            end: self.run.map(end_of).boxed(),
            stop: self.stop,
            terminal: self.terminal,
        };
        host.adopt(command).await
    }
}

fn end_of(result: Result<ExecResult, ExecError>) -> CommandEnd {
    match result {
        Err(error) => CommandEnd::Failed(error.to_string()),
        Ok(result) if result.cancelled => CommandEnd::Stopped,
        Ok(result) => match (result.exit_code, result.signal) {
            (Some(status), _) => CommandEnd::Exited(status),
            (None, Some(signal)) => CommandEnd::Signal(signal),
            (None, None) => CommandEnd::Failed("it ended without a status".to_owned()),
        },
    }
}

/// The background of a call.
pub(super) fn host(ctx: &ToolCallContext) -> Result<&Arc<dyn BackgroundHost>, ToolError> {
    let none = || ToolError::ExecutionFailed("commands cannot run in the background here".to_owned());
    ctx.background.as_ref().ok_or_else(none)
}

/// Returns the result of a call whose command continues in the background.
pub(super) fn started(tool: &str, id: &str, words: &str) -> ToolResult {
    let text =
        format!("{words} {id}. A message reports its end; BashOutput reads its output, KillShell stops it.");
    // The rest is for the model.
    let result = ToolResult::text(tool, text).with_details(json!({ "background": id }));
    result.with_shown(format!("runs in the background as {id}"))
}

fn state_of(record: &CommandRecord) -> String {
    let state = record.end.as_ref().map_or_else(|| "is running".to_owned(), CommandEnd::words);
    format!("{} {state}", record.id())
}

const OUTPUT: &str = "BashOutput";
const INPUT: &str = "BashInput";
const KILL: &str = "KillShell";

/// Types into a command that runs in a terminal.
pub(super) struct BashInput;

fn input_args(args: &Value) -> Result<(&str, &str), ToolError> {
    let args = CallArgs::new(INPUT, args, &["bash_id", "text"])?;
    Ok((args.filled("bash_id")?, args.text("text")?))
}

/// Returns the bytes that the keys send: Enter is a carriage return.
fn keys_of(text: &str) -> Vec<u8> {
    text.replace("\r\n", "\r").replace('\n', "\r").into_bytes()
}

#[async_trait]
impl Tool for BashInput {
    fn descriptor(&self) -> ToolDescriptor {
        super::describe(INPUT, include_str!("bash_input.md"))
            .with_parameters(json!({
                "type": "object",
                "properties": {"bash_id": {"type": "string"}, "text": {"type": "string"}},
                "required": ["bash_id", "text"]
            }))
            .with_category("exec")
            .with_primary_argument("text")
    }

    fn validate_args(&self, args: &Value) -> Result<(), ToolError> {
        input_args(args).map(drop)
    }

    async fn execute(&self, args: Value, ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        let (id, text) = input_args(&args)?;
        let record = host(ctx)?.write(id, &keys_of(text)).await?;
        let details = json!({"background": record.id(), "state": record.word()});
        let text = format!("typed into {}; read the response with BashOutput", record.id());
        Ok(ToolResult::text(INPUT, text).with_details(details).into())
    }
}

/// Reads what a command in the background printed.
pub(super) struct BashOutput {
    pub(super) env: Arc<ToolEnv>,
}

fn output_args(args: &Value) -> Result<(&str, Option<RegexMatcher>), ToolError> {
    let args = CallArgs::new(OUTPUT, args, &["bash_id", "filter"])?;
    let filter = args.opt_text("filter")?.filter(|filter| !filter.is_empty()).map(RegexMatcher::new);
    let filter = filter.transpose().map_err(|why| invalid(format!("`filter`: {why}")))?;
    Ok((args.filled("bash_id")?, filter))
}

#[async_trait]
impl Tool for BashOutput {
    fn descriptor(&self) -> ToolDescriptor {
        super::describe(OUTPUT, include_str!("bash_output.md"))
            .with_parameters(json!({
                "type": "object",
                "properties": {
                    "bash_id": {"type": "string"},
                    "filter": {"type": "string", "description": "regex; other lines are dropped"}
                },
                "required": ["bash_id"]
            }))
            .with_category("exec")
            .with_class(ToolClass::Pure)
            .with_primary_argument("bash_id")
    }

    fn validate_args(&self, args: &Value) -> Result<(), ToolError> {
        output_args(args).map(drop)
    }

    async fn execute(&self, args: Value, ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        let (id, filter) = output_args(&args)?;
        let news = host(ctx)?.read_new_output(id).await?;
        let mut output = exec::as_read(&news.output, news.output.len());
        if let Some(filter) = filter {
            let fits = |line: &&str| filter.is_match(line.as_bytes()).unwrap_or(false);
            output = output.lines().filter(fits).collect::<Vec<_>>().join("\n");
        }
        let output = exec::as_read(&output, self.env.exec.max_output);
        let output = if output.trim().is_empty() { "(no new output)" } else { output.trim_end() };
        let text = format!("{}\n{output}", state_of(&news.record));
        let details = json!({"background": news.record.id(), "state": news.record.word()});
        Ok(ToolResult::text(OUTPUT, text).with_details(details).into())
    }
}

/// Ends a command in the background.
pub(super) struct KillShell;

fn shell_id(args: &Value) -> Result<&str, ToolError> {
    CallArgs::new(KILL, args, &["shell_id"])?.filled("shell_id")
}

#[async_trait]
impl Tool for KillShell {
    fn descriptor(&self) -> ToolDescriptor {
        super::describe(KILL, include_str!("kill_shell.md"))
            .with_parameters(json!({
                "type": "object",
                "properties": {"shell_id": {"type": "string"}},
                "required": ["shell_id"]
            }))
            .with_category("exec")
            .with_class(ToolClass::Pure)
            .with_primary_argument("shell_id")
    }

    fn validate_args(&self, args: &Value) -> Result<(), ToolError> {
        shell_id(args).map(drop)
    }

    async fn execute(&self, args: Value, ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        let record = host(ctx)?.stop(shell_id(&args)?).await?;
        let details = json!({"background": record.id(), "state": record.word()});
        Ok(ToolResult::text(KILL, state_of(&record)).with_details(details).into())
    }
}

#[cfg(test)]
mod tests;
