//! Subagents and background commands: `aye tasks` and `/tasks`.

use std::fmt::Write as _;

use clap::Subcommand;
use serde_json::{Value, json};

use crate::cli::start::StartFlags;
use crate::commands::columns::columns;
use crate::commands::{put_json, when};
use crate::contract::amount::{counted, duration, short_number};
use crate::contract::child::{ChildStatus, TaskRecord};
use crate::contract::command::{CommandEnd, CommandRecord};
use crate::contract::display::{shortened, visible_line};
use crate::contract::foreign::ForeignError;
use crate::contract::ids::ThreadId;
use crate::contract::lifecycle::RunStatus;
use crate::contract::presence::Liveness;
use crate::contract::record::Owner;
use crate::contract::storage::SharedStore;
use crate::failure::{AppError, Failure};
use crate::program::app_context::AppContext;
use crate::program::foundation::Foundation;
use crate::program::put;
use crate::tools::exec::as_read;
use crate::tui::host::TextPage;

/// `aye tasks ...`
#[derive(Clone, Debug, Subcommand)]
#[command(after_help = "Example:\n  aye tasks list && aye tasks stop 3f0c")]
pub enum TasksCommand {
    /// List subagents and background commands that are not done
    List {
        /// Include those that are done
        #[arg(long)]
        all: bool,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Show one: what it belongs to, its task, and its result or output
    Show {
        /// Id of the task, or its first characters
        id: String,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Stop one; its conversation is notified, and questions of a subagent are closed
    Stop {
        /// Id of the task, or its first characters
        id: String,
    },
}

/// `aye tasks`.
pub(crate) async fn run(
    command: TasksCommand,
    cli: &StartFlags,
    foundation: Foundation,
) -> Result<u8, Failure> {
    match command {
        TasksCommand::List { all, json } => {
            let store = foundation.open_store_to_read()?;
            let tasks = store.all_tasks(!all).await.map_err(Failure::failed)?;
            let mut commands =
                as_they_stand(&store, store.all_commands(!all).await.map_err(Failure::failed)?);
            commands.retain(|command| all || command.end.is_none());
            if json {
                let all = tasks.iter().map(object).chain(commands.iter().map(command_object));
                put_json(&Value::Array(all.collect()))?;
            } else {
                put(&lines(&tasks, &commands, store.clock().now_ms()))?;
            }
            store.close().await;
            Ok(0)
        }
        TasksCommand::Show { id, json } => {
            let store = foundation.open_store_to_read()?;
            if let Some(command) = command_of(&store, &id).await? {
                let output = store.command_output(command.number).await.map_err(Failure::failed)?;
                let output = as_read(&output, output.len());
                if json {
                    let mut value = command_object(&command);
                    value["output"] = output.into();
                    put_json(&value)?;
                } else {
                    put(&command_shown(&command, &output, store.clock().now_ms()))?;
                }
                store.close().await;
                return Ok(0);
            }
            let tasks = store.all_tasks(false).await.map_err(Failure::failed)?;
            let task = find(&tasks, &id).map_err(Failure::usage)?;
            let answer = last_answer(&store, task).await.map_err(Failure::failed)?;
            if json {
                let mut value = object(task);
                value["response"] = answer.into();
                put_json(&value)?;
            } else {
                put(&shown(task, answer.as_deref().unwrap_or_default(), store.clock().now_ms()))?;
            }
            store.close().await;
            Ok(0)
        }
        TasksCommand::Stop { id } => {
            let app = AppContext::build(foundation, cli).await?;
            let outcome = if let Some(command) = command_of(&app.store, &id).await? {
                stop_command(&app, &command).await.map_err(Failure::failed)
            } else {
                let tasks = app.store.all_tasks(false).await.map_err(Failure::failed)?;
                let task = find(&tasks, &id).map_err(Failure::usage)?.clone();
                stop(&app, &task).await.map_err(Failure::failed)
            };
            app.store.close().await;
            put(&format!("{}\n", outcome?))?;
            Ok(0)
        }
    }
}

/// `/tasks`.
pub(crate) async fn page(
    app: &AppContext,
    thread: Option<&ThreadId>,
    words: &str,
) -> Result<TextPage, AppError> {
    let (tasks, commands) = match thread {
        Some(thread) => (app.runtime.tasks(thread).await?, app.runtime.commands(thread).await?),
        None => (Vec::new(), Vec::new()),
    };
    let mut words = words.split_whitespace();
    match (words.next(), words.next(), words.next()) {
        (None, ..) => {
            let text = lines(&tasks, &commands, app.clock.now_ms());
            Ok(TextPage { title: "Tasks of this conversation".to_owned(), text, ..TextPage::default() })
        }
        (Some("stop"), Some(id), None) => {
            let text = match commands.iter().find(|command| command.id() == id) {
                Some(command) => stop_command(app, command).await?,
                None => stop(app, find(&tasks, id)?).await?,
            };
            Ok(TextPage { title: "stopped".to_owned(), text, ..TextPage::default() })
        }
        _ => {
            Err("use /tasks to list them, /tasks open ID to take over a terminal, /tasks stop ID to stop one"
                .into())
        }
    }
}

async fn stop(app: &AppContext, task: &TaskRecord) -> Result<String, AppError> {
    let (id, agent) = (task.child.task_id(), visible_line(&task.child.agent));
    let ended = app.runtime.stop_task(&task.child.thread_id).await?;
    if !ended {
        return Err(format!("task {id} ({agent}) is already done: {}", task.status().word()).into());
    }
    let goes_on = if task.child.background {
        "the conversation is notified with its next message".to_owned()
    } else {
        format!("resume the waiting run with: aye -r {} -p", task.child.root_thread)
    };
    Ok(format!("stopped task {id} ({agent}); {goes_on}"))
}

/// Stops a background command.
async fn stop_command(app: &AppContext, command: &CommandRecord) -> Result<String, AppError> {
    let (id, line) = (command.id(), line_of(command));
    if !app.runtime.stop_command(command.number).await? {
        return Err(format!("task {id} ({line}) is already done: {}", command.word()).into());
    }
    Ok(format!("stopped task {id} ({line}); the conversation is notified with its next message"))
}

/// Returns the command with exactly this id.
async fn command_of(store: &SharedStore, id: &str) -> Result<Option<CommandRecord>, Failure> {
    let commands = as_they_stand(store, store.all_commands(false).await.map_err(Failure::failed)?);
    Ok(commands.into_iter().find(|command| command.id() == id))
}

/// Why the terminal of a command cannot be opened, if another process keeps the command.
pub(crate) async fn kept_elsewhere(
    app: &AppContext,
    thread: &ThreadId,
    id: &str,
) -> Result<Option<ForeignError>, ForeignError> {
    let command = match CommandRecord::number_of(id) {
        Some(number) => app.store.command(number).await?,
        None => None,
    };
    let own = app.runtime.owner();
    let kept = command.filter(|it| it.thread_id.is_at_or_below(thread) && it.owner.token != own.token);
    let kept = kept.map(|it| app.runtime.as_it_stands(it)).filter(|it| it.end.is_none());
    Ok(kept.map(|it| {
        let process = it.owner.name_for(own);
        format!("{id} runs in {process}, which has its terminal: open it in that aye").into()
    }))
}

/// A command whose process is dead has ended with it.
fn as_they_stand(store: &SharedStore, commands: Vec<CommandRecord>) -> Vec<CommandRecord> {
    let (presence, here) = (store.presence(), Owner::of_this_process());
    let stands = |mut command: CommandRecord| {
        let watcher = presence.liveness(&command.owner).of_watcher(&command.owner, &here);
        if command.end.is_none() && watcher == Liveness::No {
            command.end = Some(CommandEnd::Unknown);
        }
        command
    };
    commands.into_iter().map(stands).collect()
}

fn line_of(command: &CommandRecord) -> String {
    shortened(&visible_line(command.command.trim()), 60).into_owned()
}

fn command_object(command: &CommandRecord) -> Value {
    let mut value = json!(command);
    value["kind"] = "command".into();
    value["task_id"] = command.id().into();
    value["task_status"] = command.word().into();
    value
}

fn about_command(command: &CommandRecord, now: u64) -> String {
    let seconds = command.ended_at.unwrap_or(now).saturating_sub(command.started_at) as f64 / 1000.0;
    // It is unknown when a command ended whose process died.
    let time =
        if command.end == Some(CommandEnd::Unknown) { String::new() } else { format!(" · {seconds:.1}s") };
    format!("command · {}{time}", command.word())
}

fn command_shown(command: &CommandRecord, output: &str, now: u64) -> String {
    let mut text = format!("task {}\n  {}\n", command.id(), about_command(command, now));
    let _ = writeln!(text, "  started   {}", when(command.started_at));
    let _ = writeln!(
        text,
        "  for       conversation {}, call {}",
        command.thread_id,
        visible_line(command.call_id.as_str())
    );
    for line in command.command.lines() {
        let _ = writeln!(text, "  > {}", visible_line(line));
    }
    for line in output.trim_end().lines() {
        let _ = writeln!(text, "  {}", visible_line(line));
    }
    text
}

/// Returns the task whose id starts with this prefix.
fn find<'a>(tasks: &'a [TaskRecord], id: &str) -> Result<&'a TaskRecord, AppError> {
    let fits = |task: &&TaskRecord| {
        !id.is_empty() && (task.child.task_id().starts_with(id) || task.child.thread_id.as_str() == id)
    };
    let mut found = tasks.iter().filter(fits);
    match (found.next(), found.next()) {
        (Some(task), None) => Ok(task),
        (None, _) => {
            Err(format!("unknown task `{}`; `aye tasks list --all` shows all", visible_line(id)).into())
        }
        (Some(_), Some(_)) => Err(format!("`{}` matches several tasks", visible_line(id)).into()),
    }
}

fn object(task: &TaskRecord) -> Value {
    let mut value = json!(task);
    value["kind"] = "agent".into();
    value["task_id"] = task.child.task_id().into();
    value["task_status"] = task.status().word().into();
    value
}

/// Renders one line for each task.
fn lines(tasks: &[TaskRecord], commands: &[CommandRecord], now: u64) -> String {
    if tasks.is_empty() && commands.is_empty() {
        return "none\n".to_owned();
    }
    let top = tasks.iter().map(|task| task.child.depth).min().unwrap_or(1);
    let agents = tasks.iter().map(|task| {
        let prompt = shortened(task.child.prompt.lines().next().unwrap_or_default(), 60).into_owned();
        let indent = "  ".repeat(usize::try_from(task.child.depth - top).unwrap_or(0));
        [format!("{indent}{}", task.child.task_id()), about(task, now), prompt]
    });
    let commands =
        commands.iter().map(|command| [command.id(), about_command(command, now), line_of(command)]);
    columns(agents.chain(commands))
}

fn about(task: &TaskRecord, now: u64) -> String {
    let mut words = vec![visible_line(&task.child.agent).into_owned(), state(task)];
    if task.child.background {
        words.push("background".to_owned());
    }
    if let Some(run) = &task.run {
        words.push(counted(run.steps, "step"));
        words.push(format!("{} tokens", short_number(run.usage.total())));
        let until = if run.status == RunStatus::Done { run.updated_at } else { now };
        words.push(duration(until.saturating_sub(run.created_at)));
    }
    words.join(" · ")
}

fn state(task: &TaskRecord) -> String {
    match (task.status(), task.waiting) {
        (ChildStatus::Waiting, 1) => "1 pending question".to_owned(),
        (ChildStatus::Waiting, n) => format!("{n} pending questions"),
        (status, _) => status.word().to_owned(),
    }
}

fn shown(task: &TaskRecord, answer: &str, now: u64) -> String {
    let child = &task.child;
    let mut text = format!("task {}\n  {}\n", child.task_id(), about(task, now));
    let _ = writeln!(text, "  started   {}", when(child.created_at));
    let _ = writeln!(
        text,
        "  for       conversation {}, call {}",
        child.parent_thread,
        visible_line(child.parent_call.as_str())
    );
    let _ = writeln!(text, "  thread    aye threads show {}", child.thread_id);
    for line in child.prompt.lines() {
        let _ = writeln!(text, "  > {}", visible_line(line));
    }
    for line in answer.trim().lines() {
        let _ = writeln!(text, "  {}", visible_line(line));
    }
    text
}

/// Returns the task's last answer.
async fn last_answer(
    store: &SharedStore,
    task: &TaskRecord,
) -> Result<Option<String>, crate::contract::storage::StoreError> {
    let last = store.last_answer(&task.child.thread_id, None).await?;
    Ok(last.map(|message| message.text()))
}
