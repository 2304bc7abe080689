//! `aye replay`: the requests of a conversation, made again from its rows. Nothing is stored, and no tool runs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use clap::Args;
use serde_json::{Value, json};

use crate::cli::start::{StartFlags, StartKind};
use crate::commands::permissions::simulate;
use crate::commands::{put_json, thread_by_prefix};
use crate::context::AGENT_KEY;
use crate::contract::amount::counted;
use crate::contract::audit::PastAnswer;
use crate::contract::display::{call_summary, visible_line};
use crate::contract::executor::LlmExecutor;
use crate::contract::judgement::Ruling;
use crate::contract::message::{Message, ToolCall};
use crate::contract::prefix::PrefixRecord;
use crate::contract::record::ThreadRecord;
use crate::contract::storage::SharedStore;
use crate::contract::summary::RequestStart;
use crate::failure::Failure;
use crate::plugins::permission::{Past, simulate as judge};
use crate::plugins::skills::catalogue;
use crate::program::app_context::AppContext;
use crate::program::foundation::Foundation;
use crate::program::parts::output_dir;
use crate::program::{context, models, put, put_stderr};
use crate::runtime::{
    Replay, ReplayedRequest, RequestMatch, RequestPart, RequestParts, messages_without_thoughts,
};
use crate::tools::FileArtifacts;

/// `aye replay`
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Examples:\n  aye replay 0198c0de-7a31\n  aye replay 0198c0de-7a31 --at 12\n  aye replay \
                        0198c0de-7a31 --model ollama/qwen3\n\nExit status: 0 all requests are what was sent, 1 one \
                        differs or the other model parts from the record."
)]
pub struct ReplayArgs {
    /// The conversation: its id, or its first characters
    pub thread: String,
    /// Compare this request only, counted from 1, and show it
    #[arg(long, value_name = "STEP", value_parser = clap::value_parser!(u64).range(1..))]
    pub at: Option<u64>,
    /// Write JSON
    #[arg(long)]
    pub json: bool,
}

/// What today's settings would change.
struct SettingChange {
    cause: &'static str,
    what: String,
}

pub(crate) async fn run(args: &ReplayArgs, foundation: Foundation, cli: &StartFlags) -> Result<u8, Failure> {
    let store = foundation.open_store_to_read()?;
    let thread = thread_by_prefix(&store, &args.thread).await?;
    let ended = if let Some(model) = &cli.global.model {
        with_model(&store, &thread, args, model, &foundation).await
    } else if let Some(at) = args.at {
        show(&store, &thread, at, args.json, &foundation).await
    } else {
        compare(&store, &thread, args.json, foundation, cli).await
    };
    store.close().await;
    ended
}

async fn replay(
    store: &SharedStore,
    thread: &ThreadRecord,
    foundation: &Foundation,
) -> Result<Replay, Failure> {
    let artifacts = context::names_of_artifacts(FileArtifacts::new(output_dir(foundation)));
    Replay::read(store.clone(), &thread.id, Some(artifacts)).await.map_err(Failure::failed)
}

fn word(compared: &RequestMatch) -> &'static str {
    match compared {
        RequestMatch::Equal => "equal",
        RequestMatch::Differs(_) => "differs",
        RequestMatch::NotKept => "not_kept",
        RequestMatch::NoStart => "no_start",
    }
}

fn part_word(part: RequestPart) -> &'static str {
    match part {
        RequestPart::System => "system",
        RequestPart::Tools => "tools",
        RequestPart::Messages => "messages",
    }
}

fn parts_of(compared: &RequestMatch) -> Vec<&'static str> {
    match compared {
        RequestMatch::Differs(parts) => parts.iter().map(|part| part_word(*part)).collect(),
        RequestMatch::Equal | RequestMatch::NotKept | RequestMatch::NoStart => Vec::new(),
    }
}

fn row(thread: &ThreadRecord, step: u64, made: &ReplayedRequest) -> Value {
    json!({
        "thread_id": thread.id,
        "step": step,
        "answer": made.place + 1,
        "model": made.sent.as_ref().map(|sent| sent.model.as_str()),
        "compared": word(&made.compared),
        "differs": parts_of(&made.compared),
    })
}

/// The requests of a conversation and of its subagents.
#[derive(Default)]
struct Tally {
    rows: Vec<Value>,
    counts: BTreeMap<&'static str, u64>,
    /// The first one that differs, in words.
    first: Option<String>,
    /// The newest start of the requests of the conversation itself.
    start: Option<Arc<RequestStart>>,
    model: Option<String>,
}

impl Tally {
    async fn add(&mut self, mut replay: Replay, thread: &ThreadRecord, is_child: bool) {
        let (mut step, mut before) = (0, 0);
        while let Some(made) = replay.next().await {
            step += 1;
            *self.counts.entry(word(&made.compared)).or_default() += 1;
            if let (RequestMatch::Differs(_), None) = (&made.compared, &self.first) {
                let of = if is_child { format!(" of the subagent {}", thread.id) } else { String::new() };
                let why = cause(&parts_of(&made.compared), before, made.place);
                self.first = Some(format!("request {step}{of} is not what was sent: {why}"));
            }
            self.rows.push(row(thread, step, &made));
            before = made.place;
            if !is_child {
                self.model = made.sent.as_ref().map(|sent| sent.model.clone()).or(self.model.take());
                self.start = made.start.or(self.start.take());
            }
        }
    }

    fn count(&self, word: &str) -> u64 {
        self.counts.get(word).copied().unwrap_or(0)
    }
}

/// Says what the rows give differently. Messages of the request before were the same then.
fn cause(parts: &[&str], before: usize, place: usize) -> String {
    let mut words: Vec<String> = Vec::new();
    for part in parts {
        words.push(match *part {
            "system" => "its system text changed".to_owned(),
            "tools" => "its tools changed".to_owned(),
            _ if before == 0 => format!("one of messages 1 to {place} changed"),
            _ => format!("one of messages {} to {place} changed, or how they are shortened", before + 1),
        });
    }
    words.join("; ")
}

async fn compare(
    store: &SharedStore,
    thread: &ThreadRecord,
    is_json: bool,
    foundation: Foundation,
    cli: &StartFlags,
) -> Result<u8, Failure> {
    let mut tally = Tally::default();
    tally.add(replay(store, thread, &foundation).await?, thread, false).await;
    let children = store.children(&thread.id).await.map_err(Failure::failed)?;
    for child in &children {
        let below = store.load_thread(&child.thread_id).await.map_err(Failure::failed)?;
        let Some(below) = below else { continue };
        tally.add(replay(store, &below, &foundation).await?, &below, true).await;
    }
    let now = today(store, thread, &tally, foundation, cli).await;
    if is_json {
        let now = match &now {
            Ok(changes) => json!({"changes": changes.iter().map(|change| {
                json!({"cause": change.cause, "what": change.what})
            }).collect::<Vec<_>>()}),
            Err(why) => json!({"skipped": why}),
        };
        put_json(&json!({
            "thread_id": thread.id,
            "title": thread.title,
            "equal": tally.count("equal"),
            "differ": tally.count("differs"),
            "not_comparable": tally.count("not_kept") + tally.count("no_start"),
            "first_difference": tally.first,
            "requests": tally.rows,
            "today": now,
        }))?;
    } else {
        put(&as_text(thread, &tally, children.len(), &now))?;
    }
    Ok(u8::from(tally.first.is_some()))
}

fn as_text(
    thread: &ThreadRecord,
    tally: &Tally,
    children: usize,
    now: &Result<Vec<SettingChange>, String>,
) -> String {
    let mut out = format!("{}  {}\n", thread.id, visible_line(&thread.title));
    let subagents = match children {
        0 => String::new(),
        n => format!(", with {}", counted(n, "subagent")),
    };
    let requests = counted(tally.rows.len(), "request");
    let _ = writeln!(out, "{requests}{subagents}: {} equal byte for byte", tally.count("equal"));
    for (word, why) in [
        ("differs", "not what was sent"),
        ("not_kept", "cannot be compared: an earlier version of aye kept nothing of what it sent"),
        (
            "no_start",
            "cannot be made again: their system text and tools are not stored, as in an imported conversation",
        ),
    ] {
        let count = tally.count(word);
        if count > 0 {
            let _ = writeln!(out, "{count} {why}");
        }
    }
    if let Some(first) = &tally.first {
        let _ = writeln!(out, "{first}");
    }
    match now {
        Err(why) => {
            let _ = writeln!(out, "today's settings are not compared: {}", visible_line(why));
        }
        Ok(changes) if changes.is_empty() => out.push_str("today's settings would change nothing\n"),
        Ok(changes) => {
            out.push_str("today's settings would change:\n");
            for change in changes {
                let _ = writeln!(out, "  {:<12} {}", change.cause, visible_line(&change.what));
            }
        }
    }
    out
}

/// What a new conversation would have differently today: prompt, instructions, skills, tools, model, and the verdicts on the
/// calls. Nothing is started for it.
async fn today(
    store: &SharedStore,
    thread: &ThreadRecord,
    tally: &Tally,
    mut foundation: Foundation,
    cli: &StartFlags,
) -> Result<Vec<SettingChange>, String> {
    let Some(start) = &tally.start else { return Err("the conversation has no start of requests".into()) };
    if foundation.workspace.cwd != thread.cwd {
        return Err(format!("it is of another folder; run aye replay with -C {}", thread.cwd.display()));
    }
    foundation.is_ephemeral = true;
    let mut changes =
        verdicts(store, thread, &mut foundation, cli).await.map_err(|failure| failure.message)?;
    let cli = StartFlags { kind: StartKind::Command, ..cli.clone() };
    let app = Box::pin(AppContext::build(foundation, &cli)).await.map_err(|failure| failure.message)?;
    let found = settings(&app, &start.prefix, tally.model.as_deref());
    app.telemetry.end().await;
    app.store.close().await;
    changes.splice(0..0, found);
    Ok(changes)
}

fn settings(app: &AppContext, prefix: &PrefixRecord, model: Option<&str>) -> Vec<SettingChange> {
    let mut changes = Vec::new();
    let mut add = |cause, what: String| changes.push(SettingChange { cause, what });
    let text = |key: &str| prefix.system.iter().find(|part| part.key == key).map(|part| part.text.as_str());
    let own = prefix.system.iter().find(|part| part.key.starts_with(AGENT_KEY));
    let agent = own.map_or_else(|| app.agents.current(), |part| part.key[AGENT_KEY.len()..].to_owned());
    match app.runtime.resolved(&agent) {
        Err(error) => add("agent", error.to_string()),
        Ok(resolved) => {
            if own.is_some_and(|part| part.text != resolved.spec.system_prompt) {
                add("prompt", format!("the text of agent {agent}"));
            }
            if let Some(model) = model.filter(|model| *model != resolved.model_id) {
                add("model", format!("{model} then, {} now", resolved.model_id));
            }
            // Those of servers are not connected here.
            for tool in prefix.tools.iter().filter(|tool| !tool.id.starts_with("mcp__")) {
                match resolved.descriptors.iter().find(|now| now.id == tool.id) {
                    None => add("tool", format!("{} does not exist", tool.id)),
                    Some(now) if now.description != tool.description => {
                        add("tool", format!("the description of {}", tool.id));
                    }
                    Some(now) if now.parameters != tool.parameters => {
                        add("tool", format!("the parameters of {}", tool.id));
                    }
                    Some(_) => {}
                }
            }
        }
    }
    let instructions = app.instructions.prompt();
    let known = text("environment.instructions").unwrap_or_default();
    if known.is_empty() != instructions.trim().is_empty() || !known.ends_with(instructions.trim()) {
        add("prompt", "the instructions of the user and the project".to_owned());
    }
    if text("skills.catalogue") != catalogue(&app.skills.registry()).as_deref() {
        add("prompt", "the list of skills".to_owned());
    }
    changes
}

/// The calls on which today's rules have another verdict.
async fn verdicts(
    store: &SharedStore,
    thread: &ThreadRecord,
    foundation: &mut Foundation,
    cli: &StartFlags,
) -> Result<Vec<SettingChange>, Failure> {
    let rules = foundation.rules(cli)?;
    if let Some(why) = rules.refused() {
        return Err(Failure::usage(why));
    }
    let mut past = Past::default();
    let mut feed = store.read_past_calls(None);
    while let Some(rows) = feed.next().await.map_err(Failure::failed)? {
        for row in rows {
            // Answers name calls by their number: all are needed.
            past.add(row, simulate::folder);
        }
    }
    past.calls.retain(|call| call.thread_id == thread.id);
    let home = foundation.env.home().map(Path::to_path_buf);
    let work = move || {
        let simulation = judge(&past, &rules, home.as_deref());
        (past, simulation)
    };
    let (past, simulation) = tokio::task::spawn_blocking(work).await.map_err(Failure::failed)?;
    let mut changes = Vec::new();
    for call in &past.calls {
        let (verdict, question) = (simulation.verdict(call), &past.questions[call.question]);
        let ran = call.ruling == Ruling::Allow || call.answer == Some(PastAnswer::Allowed);
        let is_denied = matches!(verdict.decision.into(), Ruling::Deny | Ruling::Error);
        let is_allowed = Ruling::from(verdict.decision) == Ruling::Allow;
        let change = match (ran, call.ruling) {
            (true, _) if is_denied => "ran then, denied now",
            (false, Ruling::Deny) if is_allowed => "denied then, allowed now",
            _ => continue,
        };
        let call = format!("{} {}", question.tool, call_summary(&question.tool, &question.arguments));
        let rule = verdict.rule.as_deref().map(|rule| format!(" ({rule})")).unwrap_or_default();
        changes.push(SettingChange { cause: "rule", what: format!("{call}: {change}{rule}") });
    }
    Ok(changes)
}

/// Shows one request.
async fn show(
    store: &SharedStore,
    thread: &ThreadRecord,
    at: u64,
    is_json: bool,
    foundation: &Foundation,
) -> Result<u8, Failure> {
    let mut replay = replay(store, thread, foundation).await?;
    let made = nth(&mut replay, at).await?;
    let differs = matches!(made.compared, RequestMatch::Differs(_));
    let Some(request) = made.request.clone() else {
        return Err(Failure::failed(format!(
            "request {at} cannot be made again: its system text and tools are not stored"
        )));
    };
    if is_json {
        let message = |m: &Arc<Message>| json!({"role": m.role, "content": m.content, "tool_calls": m.tool_calls, "tool_call_id": m.tool_call_id});
        let mut shown = row(thread, at, &made);
        shown["request"] = json!({
            "model": request.model,
            "system": request.system,
            "tools": request.tools,
            "overrides": request.overrides,
            "messages": request.messages.iter().map(message).collect::<Vec<_>>(),
        });
        put_json(&shown)?;
    } else {
        let system = made.start.as_ref().map(|start| start.prefix.system.clone()).unwrap_or_default();
        let parts = RequestParts { system, tools: request.tools, messages: request.messages.to_vec() };
        let compared = match &made.compared {
            RequestMatch::Equal => "equal byte for byte to what was sent".to_owned(),
            RequestMatch::Differs(_) => {
                format!("not what was sent: {}", cause(&parts_of(&made.compared), 0, made.place))
            }
            RequestMatch::NotKept | RequestMatch::NoStart => "cannot be compared".to_owned(),
        };
        put(&format!("request {at}: {compared}\n"))?;
        put(&format!("{}\n", crate::contract::display::visible(&context::written_out(&parts).text)))?;
    }
    Ok(u8::from(differs))
}

async fn nth(replay: &mut Replay, at: u64) -> Result<ReplayedRequest, Failure> {
    let mut count = 0;
    while let Some(made) = replay.next().await {
        count += 1;
        if count == at {
            return Ok(made);
        }
    }
    Err(Failure::usage(format!("--at {at}: the conversation has {}", counted(count, "request"))))
}

/// Whether two answers ask for the same calls.
fn agree(then: &[ToolCall], now: &[ToolCall]) -> bool {
    then.len() == now.len()
        && then.iter().zip(now).all(|(then, now)| then.name == now.name && then.arguments == now.arguments)
}

fn calls_in_words(calls: &[ToolCall]) -> String {
    if calls.is_empty() {
        return "no call".to_owned();
    }
    let words = calls.iter().map(|call| format!("{} {}", call.name, call.arguments));
    visible_line(&words.collect::<Vec<_>>().join(", ")).into_owned()
}

/// Asks another model, as long as it asks for the calls of the record.
async fn with_model(
    store: &SharedStore,
    thread: &ThreadRecord,
    args: &ReplayArgs,
    name: &str,
    foundation: &Foundation,
) -> Result<u8, Failure> {
    let selection = models::choose_named(foundation, name).await.map_err(Failure::usage)?;
    let executor: Arc<dyn LlmExecutor> = models::executor(&selection, foundation);
    let id = selection.full_name();
    let mut replay = replay(store, thread, foundation).await?;
    let (mut step, mut rows, mut is_parted) = (0, Vec::new(), false);
    while let Some(made) = replay.next().await {
        step += 1;
        if args.at.is_some_and(|at| at != step) {
            continue;
        }
        let Some(mut request) = made.request else {
            return Err(Failure::failed(format!(
                "request {step} cannot be made again: its system text and tools are not stored"
            )));
        };
        if request.model != id {
            request.messages = Arc::new(messages_without_thoughts(&request.messages));
        }
        (request.model, request.upstream_model) = (id.clone(), selection.model.clone());
        let answer = executor.execute(request).await.map_err(Failure::failed)?;
        let then = &made.answer.tool_calls;
        is_parted = !agree(then, &answer.tool_calls);
        if args.json {
            rows.push(json!({
                "step": step, "agrees": !is_parted, "recorded": then, "calls": answer.tool_calls,
                "text": answer.text(), "usage": answer.usage,
            }));
        } else if is_parted {
            let now = calls_in_words(&answer.tool_calls);
            put(&format!("{step}  parts\n   recorded: {}\n   {id}: {now}\n", calls_in_words(then)))?;
            let text = answer.text();
            if !text.trim().is_empty() {
                put(&format!("   {}\n", visible_line(text.trim())))?;
            }
        } else {
            put(&format!("{step}  agrees: {}\n", calls_in_words(then)))?;
        }
        if is_parted {
            break;
        }
    }
    if args.json {
        put_json(&json!({"thread_id": thread.id, "model": id, "parted": is_parted, "steps": rows}))?;
    } else if step == 0 {
        put_stderr("the conversation has no requests");
    }
    Ok(u8::from(is_parted))
}
