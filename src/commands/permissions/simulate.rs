//! `aye permissions simulate` and `suggest`: rules compared with past decisions.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::cli::start::StartFlags;
use crate::commands::since::since;
use crate::commands::{put_json, when};
use crate::config::repository_root;
use crate::contract::audit::PastAnswer;
use crate::contract::clock::{Clock as _, SystemClock};
use crate::contract::display::{call_summary, visible_line};
use crate::failure::Failure;
use crate::plugins::permission::{
    Difference, Layer, Past, PastFolder, PastMade, RuleSet, Simulation, shipped_rules, suggest,
};
use crate::program::foundation::Foundation;
use crate::program::{put, put_stderr};

/// All calls of the audit since a time.
async fn past(foundation: &Foundation, since: Option<u64>) -> Result<Past, Failure> {
    let store = foundation.open_store_to_read()?;
    let mut past = Past::default();
    let mut feed = store.read_past_calls(since);
    while let Some(rows) = feed.next().await.map_err(Failure::failed)? {
        for row in rows {
            past.add(row, folder);
        }
    }
    store.close().await;
    if past.calls.is_empty() {
        put_stderr("the audit has no call that the rules judged in that time");
    }
    let gone: Vec<&PastFolder> = past.folders.iter().filter(|folder| folder.is_gone).collect();
    if let Some(first) = gone.first() {
        let more = match gone.len() {
            1 => String::new(),
            n => format!(" and {} more", n - 1),
        };
        let first = visible_line(&first.cwd.to_string_lossy()).into_owned();
        put_stderr(&format!("{first}{more} no longer exists; paths in it are compared as text"));
    }
    Ok(past)
}

/// A folder of the past as it is today.
pub(crate) fn folder(cwd: &str) -> PastFolder {
    let cwd = PathBuf::from(cwd);
    let is_gone = !cwd.is_dir();
    let workspace = if is_gone { cwd.clone() } else { repository_root(&cwd) };
    PastFolder { cwd, workspace, is_gone }
}

pub(crate) async fn simulate(
    file: &Path,
    when: Option<&str>,
    json: bool,
    foundation: &Foundation,
) -> Result<u8, Failure> {
    let since = since(when, SystemClock.now_ms())?;
    let mut rules = shipped_rules();
    rules.join(RuleSet::load(&foundation.workspace.cwd.join(file), Layer::User).map_err(Failure::usage)?);
    let past = past(foundation, since).await?;
    let home = foundation.env.home().map(Path::to_path_buf);
    let (past, simulation) =
        judged(past, move |past| crate::plugins::permission::simulate(past, &rules, home.as_deref())).await?;
    if json {
        put_json(&as_json(&past, &simulation))?;
    } else {
        put(&as_text(&past, &simulation))?;
    }
    Ok(u8::from(simulation.allows_declined()))
}

/// Judging keeps the processors busy for a while: not on the thread that waits for signals.
async fn judged<T: Send + 'static>(
    past: Past,
    work: impl FnOnce(&Past) -> T + Send + 'static,
) -> Result<(Past, T), Failure> {
    tokio::task::spawn_blocking(move || {
        let done = work(&past);
        (past, done)
    })
    .await
    .map_err(Failure::failed)
}

pub(crate) async fn suggestions(
    when: Option<&str>,
    json: bool,
    foundation: &mut Foundation,
    cli: &StartFlags,
) -> Result<u8, Failure> {
    let since = since(when, SystemClock.now_ms())?;
    let rules = foundation.rules(cli)?;
    if let Some(why) = rules.refused() {
        return Err(Failure::usage(why));
    }
    let past = past(foundation, since).await?;
    let home = foundation.env.home().map(Path::to_path_buf);
    let (_, found) = judged(past, move |past| suggest(past, &rules, home.as_deref())).await?;
    if json {
        put_json(&json!(found))?;
    } else {
        put(&found.to_yaml())?;
    }
    Ok(0)
}

fn words(difference: Difference) -> &'static str {
    match difference {
        Difference::AllowsDeclined => "you denied it; these rules would allow it",
        Difference::AllowsDenied => "a rule denied it; these rules would allow it",
        Difference::AllowsUnchanged => "you edited it; these rules would allow the original",
        Difference::AllowsExpired => "it got no answer; these rules would allow it",
        Difference::DeniesAllowed => "you approved it; these rules would deny it",
        Difference::DeniesModified => "you edited and approved it; these rules would deny the original",
    }
}

fn summary(past: &Past, call: &PastMade) -> String {
    let question = &past.questions[call.question];
    format!("{}  {}", visible_line(&question.tool), call_summary(&question.tool, &question.arguments))
}

fn as_text(past: &Past, simulation: &Simulation) -> String {
    let (now, then) = (simulation.tally, simulation.then);
    let mut out = String::new();
    let times = match (past.calls.first(), past.calls.last()) {
        (Some(first), Some(last)) => format!(", {} to {}", when(first.at), when(last.at)),
        _ => String::new(),
    };
    let _ = writeln!(out, "{} calls, {} distinct{times}", past.calls.len(), past.questions.len());
    let _ = writeln!(out, "{:>10}  {:>10}", "these", "then");
    for (word, now, then) in [
        ("allowed", now.allowed, then.allowed),
        ("asked", now.asked, then.asked),
        ("denied", now.denied, then.denied),
        ("invalid", now.errors, then.errors),
    ] {
        if now + then > 0 || word != "invalid" {
            let _ = writeln!(out, "{now:>10}  {then:>10}  {word}");
        }
    }
    let _ = writeln!(
        out,
        "{} questions that you approved would not be asked; of the calls that ran without a question, {} \
         would ask and {} would be denied",
        simulation.saved, simulation.asked_more, simulation.denied_more
    );
    // Equal calls are grouped at the position of the first one.
    let mut groups: BTreeMap<(Difference, usize), (usize, u64)> = BTreeMap::new();
    for (difference, at) in &simulation.differences {
        let call = &past.calls[*at];
        let group = groups.entry((*difference, call.question)).or_insert((*at, 0));
        group.1 += 1;
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|((difference, _), (at, _))| (*difference, *at));
    let mut last = None;
    for ((difference, _), (at, count)) in groups {
        if last != Some(difference) {
            let all = simulation.differences.iter().filter(|(other, _)| *other == difference).count();
            let _ = writeln!(out, "\n{}: {all}", words(difference));
            last = Some(difference);
        }
        let call = &past.calls[at];
        let times = if count > 1 { format!("  ({count} times)") } else { String::new() };
        let _ = writeln!(out, "  {}  {}{times}", when(call.at), summary(past, call));
        let why = visible_line(&simulation.verdict(call).why).into_owned();
        let _ = writeln!(
            out,
            "    call {} of thread {}: {why}",
            visible_line(call.call_id.as_str()),
            call.thread_id
        );
    }
    if simulation.differences.is_empty() {
        out.push_str("nothing contradicts your decisions\n");
    }
    out
}

fn as_json(past: &Past, simulation: &Simulation) -> Value {
    let difference = |(difference, at): &(Difference, usize)| {
        let call = &past.calls[*at];
        let (question, verdict) = (&past.questions[call.question], simulation.verdict(call));
        json!({
            "difference": difference,
            "decided": call.answer.map_or(json!(call.ruling), |answer: PastAnswer| json!(answer)),
            "verdict": verdict.decision.word(),
            "rule": verdict.rule,
            "origin": verdict.origin,
            "why": verdict.why,
            "n": call.n,
            "at": call.at,
            "thread_id": call.thread_id,
            "call_id": call.call_id,
            "tool": question.tool,
            "arguments": question.arguments,
            "cwd": past.folders[question.folder].cwd,
        })
    };
    json!({
        "calls": past.calls.len(),
        "different": past.questions.len(),
        "these": simulation.tally,
        "then": simulation.then,
        "questions_saved": simulation.saved,
        "asked_more": simulation.asked_more,
        "denied_more": simulation.denied_more,
        "allows_declined": simulation.allows_declined(),
        "folders_gone": past.folders.iter().filter(|f| f.is_gone).map(|f| &f.cwd).collect::<Vec<_>>(),
        "differences": simulation.differences.iter().map(difference).collect::<Vec<_>>(),
    })
}
