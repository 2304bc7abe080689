//! The context window: its size, what fills it, and `/compact`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use crate::config::{ModelSelection, Settings};
use crate::contract::amount::{counted, short_number};
use crate::contract::display::visible_line;
use crate::contract::ids::ThreadId;
use crate::contract::message::Role;
use crate::contract::spec::ContextWindowPolicy;
use crate::contract::storage::ArtifactStore;
use crate::failure::AppError;
use crate::plugins::deferred_tools::{DeferralStateValue, Savings};
use crate::plugins::skills::{ActiveSkill, ActiveSkills, catalogue};
use crate::program::app_context::AppContext;
use crate::program::environment::tokens_of;
use crate::runtime::{Artifact, Artifacts, CompactError, ContextReport, RequestParts};
use crate::state::StateKey as _;
use crate::tools::{FileArtifacts, RESULT_FILES, result_name};
use crate::tui::host::TextPage;

/// The width in cells of the bar for the whole window.
const BAR: usize = 60;
/// The word for the next request itself.
const EXACT: &str = "exact";

/// Returns the limits of a conversation's context, from what is known of the model.
pub(crate) fn policy_of(selection: &ModelSelection, settings: &Settings) -> ContextWindowPolicy {
    let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let window = count(selection.context_window);
    // A model that may answer with as much as it reads still has to read something.
    let answer = count(selection.max_output).min(window / 4);
    // Nothing would be left for the summary above this.
    let percent = count(settings.context.compact_at.min(95));
    ContextWindowPolicy {
        max_context_tokens: window,
        max_output_tokens: answer,
        autocompact_threshold: (percent > 0).then(|| (window - answer) / 100 * percent),
        ..ContextWindowPolicy::default()
    }
}

/// Keeps large results where Read finds them.
pub(crate) fn artifacts(store: Arc<dyn ArtifactStore>) -> Artifacts {
    Arc::new(move |Artifact { thread_id, call_id, text }| {
        let store = Arc::clone(&store);
        Box::pin(async move {
            let name = result_name(thread_id.as_str(), call_id.as_str(), &text);
            match store.keep_artifact(&thread_id, &name, text.into_bytes()).await {
                Ok(path) => Some(rest_is_in(&path)),
                Err(error) => {
                    tracing::warn!(%error, "a large result was not kept");
                    None
                }
            }
        })
    })
}

/// Names the files of large results as [`artifacts`] does, and writes none.
pub(crate) fn names_of_artifacts(files: FileArtifacts) -> Artifacts {
    Arc::new(move |Artifact { thread_id, call_id, text }| {
        let name = result_name(thread_id.as_str(), call_id.as_str(), &text);
        let path = files.path_of(thread_id.as_str(), &name, text.len());
        Box::pin(async move { Some(rest_is_in(&path)) })
    })
}

fn rest_is_in(path: &Path) -> String {
    format!("The full result is in {}: use Read with offset and limit, or Grep.", path.display())
}

/// Returns rules that let the model read results it already received, without a question; none if the folder's name
/// has a special meaning in a pattern.
pub(crate) fn readable(dir: &Path) -> Vec<String> {
    let dir = dir.to_string_lossy();
    if dir.contains(['*', '?', '[', ']', '{', '}', '\\', '"', '!']) || dir.chars().any(char::is_control) {
        return Vec::new();
    }
    // Their names cannot be guessed. Earlier versions had no folder for each conversation.
    let places = ["", "*/"].into_iter();
    let rules = places.flat_map(|place| {
        let files = format!("{dir}/{place}{RESULT_FILES}*.txt");
        [format!(r#"Read(file_path ~ "{files}")"#), format!(r#"Grep(path ~ "{files}")"#)]
    });
    rules.collect()
}

/// `/compact [HINT]`.
pub(crate) async fn compact(
    app: &AppContext,
    thread: Option<&ThreadId>,
    hint: &str,
) -> Result<TextPage, AppError> {
    let thread = thread.ok_or("nothing to summarise yet")?;
    let hint = (!hint.is_empty()).then(|| hint.to_owned());
    let made = app.runtime.compact(thread, &app.agents.current(), hint).await;
    let over = too_large(app, thread).await?;
    let summary = match made {
        Ok(summary) => summary,
        Err(CompactError::NoGain(_)) if over.is_some() => return Err(over.unwrap_or_default().into()),
        Err(error) => return Err(error.to_string().into()),
    };
    let saved = summary.before_tokens.saturating_sub(summary.after_tokens);
    let mut text = format!("It saves {} tokens. ", short_number(saved));
    text.push_str("The messages stay in the conversation; the model reads this summary instead:\n\n");
    text.push_str(&summary.text);
    if let Some(over) = over {
        let _ = write!(text, "\n\nEven so, the next message would not fit: {over}");
    }
    // The notice says how much it replaces, as in other terminals and when the conversation is opened again.
    Ok(TextPage { title: "summary".to_owned(), text, ..TextPage::default() })
}

/// Why the next request of a conversation cannot fit, and the ways out, when no summary helps.
async fn too_large(app: &AppContext, thread: &ThreadId) -> Result<Option<String>, AppError> {
    let beside = tokens_of(&app.instructions.prompt());
    let report = app.runtime.context_report(Some(thread), &app.agents.current(), beside, &|_| false).await?;
    let room = report.window.map_or(usize::MAX, |window| window.saturating_sub(report.answer));
    let newest = report.messages + report.results;
    let instructions = (beside as f64 * report.factor).round() as usize;
    if report.system + instructions + report.summary_tokens + newest <= room {
        return Ok(None);
    }
    Ok(Some(format!(
        "the newest messages alone are about {} tokens, {} accepts {} at once, and a summary cannot replace them; go \
         back with /rewind or /fork, or choose a model with a larger window with /model",
        short_number(newest as u64),
        app.selection().full_name(),
        short_number(room as u64)
    )))
}

/// A category of content in the context window.
struct ContextRow {
    name: String,
    tokens: usize,
    mark: char,
}

/// `/context exact`: the next request, part by part.
async fn exact(app: &AppContext, thread: Option<&ThreadId>) -> Result<TextPage, AppError> {
    let request = match thread {
        Some(thread) => app.runtime.next_request(thread).await?,
        None => None,
    };
    let request = request.ok_or(
        "the next request is put together when it is sent; /context exact shows it from the first answer on, and \
         after a compaction from the next one on",
    )?;
    Ok(written_out(&request))
}

/// A part of a request: what it is, and its bytes.
fn part(out: &mut String, sum: &mut usize, what: &str, text: &str) {
    *sum += text.len();
    let _ = writeln!(out, "\n── {what} · {} bytes\n{text}", text.len());
}

/// Writes a request out, part by part.
pub(crate) fn written_out(request: &RequestParts) -> TextPage {
    let (mut text, mut sum) = (String::new(), 0);
    for system in &request.system {
        part(&mut text, &mut sum, &format!("system · {}", visible_line(&system.key)), &system.text);
    }
    for tool in &request.tools {
        let schema = serde_json::json!({
            "name": tool.id, "description": tool.description, "input_schema": tool.parameters,
        });
        part(&mut text, &mut sum, &format!("tool · {}", visible_line(&tool.id)), &schema.to_string());
    }
    for (at, message) in request.messages.iter().enumerate() {
        let mut pieces: Vec<String> = Vec::new();
        for block in &message.content {
            // Text as it is; what else a message holds, as it is stored.
            pieces.push(match block.as_text() {
                Some(text) => text.to_owned(),
                None => serde_json::to_string(block).unwrap_or_default(),
            });
        }
        for call in &message.tool_calls {
            pieces.push(format!("call {} {}", call.name, call.arguments));
        }
        let role = match message.role {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "model",
            Role::Tool => "result",
        };
        part(&mut text, &mut sum, &format!("message {} · {role}", at + 1), &pieces.join("\n"));
    }
    let count = request.system.len() + request.tools.len() + request.messages.len();
    let head = format!(
        "{count} parts, {sum} bytes, as the model reads them; a provider's own format is around them, and your next \
         message follows.\n"
    );
    TextPage {
        title: "Next request".to_owned(),
        text: head + text.trim_end(),
        is_literal: true,
        ..TextPage::default()
    }
}

/// `/context [exact]`.
pub(crate) async fn page(
    app: &AppContext,
    thread: Option<&ThreadId>,
    words: &str,
) -> Result<TextPage, AppError> {
    match words.trim() {
        "" => {}
        EXACT => return exact(app, thread).await,
        other => {
            return Err(
                format!("unknown word {}; expected /context or /context exact", visible_line(other)).into()
            );
        }
    }
    let mut beside = 0;
    let mut skills = 0;
    let mut folders = 0;
    let mut deferral = DeferralStateValue::default();
    if let Some(text) = catalogue(&app.skills.registry()) {
        skills += text.len() / 4 + 4;
    }
    if let Some(thread) = thread {
        let state = app.store.thread_state(thread).await?;
        deferral = crate::program::deferred::state_in(&state);
        let active = state.get(ActiveSkills::KEY).cloned().unwrap_or_default();
        let active: BTreeMap<String, ActiveSkill> = serde_json::from_value(active).unwrap_or_default();
        skills += active.values().map(|skill| skill.instructions.len() / 4 + 20).sum::<usize>();
        folders = crate::program::folder_instructions::size_in(&state) / 4;
    }
    let instructions = tokens_of(&app.instructions.prompt());
    beside += skills + folders + instructions;
    let saved = crate::program::deferred::saved(app, &deferral)?;
    beside += saved.map_or(0, |saved| saved.names);
    let hidden = |tool: &str| crate::program::deferred::is_hidden(&deferral, tool);
    let agent = app.agents.current();
    let report = app.runtime.context_report(thread, &agent, beside, &hidden).await?;
    let real = |tokens: usize| (tokens as f64 * report.factor).round() as usize;
    let selection = app.selection();
    let saved = saved.map(|saved| Savings {
        kept_out: real(saved.kept_out),
        names: real(saved.names),
        overhead: real(saved.overhead),
        ..saved
    });
    Ok(draw(&selection.full_name(), &report, real(instructions), real(folders), real(skills), saved))
}

fn draw(
    model: &str,
    report: &ContextReport,
    instructions: usize,
    folders: usize,
    skills: usize,
    saved: Option<Savings>,
) -> TextPage {
    let (mcp, own): (Vec<_>, Vec<_>) = report.tools.iter().partition(|(id, _)| id.starts_with("mcp__"));
    let sum = |tools: &[&(String, usize)]| tools.iter().map(|(_, tokens)| tokens).sum::<usize>();
    let row = |name: &str, tokens, mark| ContextRow { name: name.to_owned(), tokens, mark };
    let mut rows = vec![
        row("system prompt", report.system, '█'),
        row("instructions", instructions, '▚'),
        row(&format!("tools ({})", own.len()), sum(&own), '▓'),
        row(&format!("MCP tools ({})", mcp.len()), sum(&mcp), '▛'),
        row(
            &format!("deferred ({})", saved.map_or(0, |saved| saved.deferred)),
            saved.map_or(0, |saved| saved.names),
            '▟',
        ),
        row("folder instructions", folders, '▞'),
        row("skills", skills, '▜'),
        row("summary", report.summary_tokens, '▙'),
        row("messages", report.messages, '▒'),
        row("tool results", report.results, '░'),
    ];
    let used: usize = rows.iter().map(|row| row.tokens).sum();
    rows.retain(|row| row.tokens > 0);
    let mut text = String::new();
    let window = report.window.unwrap_or(0);
    if window > 0 {
        text.push_str(&bar(&rows, window, report.answer));
        text.push('\n');
        rows.push(row("kept for the answer", report.answer, '·'));
        rows.push(row("free", window.saturating_sub(used + report.answer), ' '));
    }
    let whole = if window > 0 { window } else { used };
    for ContextRow { name, tokens, mark } in &rows {
        let share = percent(*tokens, whole);
        let _ = writeln!(text, "{mark} {name:<20} {:>6} {share:>5}", short_number(*tokens as u64));
    }
    notes(&mut text, report);
    if let Some(saved) = saved {
        let _ = writeln!(text, "{}", crate::program::deferred::note(&saved));
    }
    let title = match report.window {
        Some(window) => format!(
            "Context · {model} · {} of {} tokens ({})",
            short_number(used as u64),
            short_number(window as u64),
            percent(used, window)
        ),
        None => format!("Context · {model} · {} tokens", short_number(used as u64)),
    };
    TextPage { title, text: text.trim_end().to_owned(), ..TextPage::default() }
}

fn percent(part: usize, whole: usize) -> String {
    match (part, part.saturating_mul(100) / whole.max(1)) {
        (0, _) => "0 %".into(),
        (_, 0) => "<1 %".into(),
        (_, share) => format!("{share} %"),
    }
}

fn cells(tokens: usize, whole: usize, width: usize) -> usize {
    (tokens.saturating_mul(width) + whole / 2) / whole.max(1)
}

/// Draws all rows in one bar, in their order.
fn bar(rows: &[ContextRow], window: usize, answer: usize) -> String {
    let (mut text, mut sum, mut drawn) = (String::from("▕"), 0, 0);
    for row in rows {
        sum += row.tokens;
        let upto = cells(sum, window, BAR).min(BAR);
        text.extend(std::iter::repeat_n(row.mark, upto - drawn));
        drawn = upto;
    }
    let kept = cells(answer, window, BAR).min(BAR - drawn);
    text.extend(std::iter::repeat_n(' ', BAR - drawn - kept));
    text.extend(std::iter::repeat_n('·', kept));
    text.push_str("▏\n");
    text
}

fn notes(text: &mut String, report: &ContextReport) {
    text.push('\n');
    let _ = writeln!(text, "{} in the conversation.", counted(report.count, "message"));
    if let Some(summary) = &report.summary {
        let n = usize::try_from(summary.upto_seq).unwrap_or(usize::MAX);
        let _ = writeln!(text, "A summary replaces the first {n}; /compact writes a new one.");
    }
    if report.left_out > 0 {
        let n = report.left_out;
        let are = if n == 1 { "is" } else { "are" };
        let _ = writeln!(text, "{} {are} left out to fit the window.", counted(n, "older one"));
    }
    if report.previews > 0 {
        let n = report.previews;
        let are = if n == 1 { "is" } else { "are" };
        let _ = writeln!(text, "{} {are} shown as a preview.", counted(n, "large tool result"));
    }
    match (report.window, report.threshold) {
        (Some(_), Some(threshold)) => {
            let at = short_number(threshold as u64);
            let _ = writeln!(
                text,
                "Older messages are summarised at {at} tokens of messages (context.compact_at)."
            );
        }
        (Some(_), None) => text.push_str("Automatic summaries are off (context.compact_at is 0).\n"),
        (None, _) => {}
    }
    if (report.factor - 1.0).abs() >= 0.01 {
        let _ = writeln!(text, "Estimates, scaled by {:.2} to the provider's count.", report.factor);
    } else {
        text.push_str("Estimates: about four bytes per token.\n");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::tui::theme::BAR_MARKS;

    #[test]
    fn the_next_request_is_written_out_part_by_part() {
        use crate::contract::message::Message;
        use crate::contract::prefix::PromptPart;
        use crate::contract::tool::ToolDescriptor;

        let system =
            PromptPart { key: "agent:default".into(), text: "Be brief.".into(), ..PromptPart::default() };
        let mut tool = ToolDescriptor::new("Read", "Read", "Reads a file.");
        tool.parameters = serde_json::json!({"type": "object"});
        let messages = vec![Arc::new(Message::user("ä file")), Arc::new(Message::context("<x>"))];
        let page = written_out(&RequestParts { system: vec![system], tools: vec![tool], messages });
        let json = r#"{"name":"Read","description":"Reads a file.","input_schema":{"type":"object"}}"#;
        let wanted = [
            format!("4 parts, {} bytes, as the model reads them", 9 + json.len() + 7 + 3),
            "── system · agent:default · 9 bytes\nBe brief.".to_owned(),
            format!("── tool · Read · {} bytes\n{json}", json.len()),
            "── message 1 · user · 7 bytes\nä file".to_owned(),
            "── message 2 · system · 3 bytes\n<x>".to_owned(),
        ];
        for part in wanted {
            assert!(page.text.contains(&part), "{part}\n{}", page.text);
        }
    }

    fn report() -> ContextReport {
        ContextReport {
            window: Some(100_000),
            answer: 20_000,
            threshold: Some(64_000),
            system: 5000,
            tools: vec![("Read".into(), 900), ("mcp__a__b".into(), 9100)],
            messages: 20_000,
            results: 15_000,
            count: 80,
            left_out: 12,
            previews: 1,
            factor: 1.25,
            ..ContextReport::default()
        }
    }

    #[test]
    fn a_page_shows_each_category_and_what_was_trimmed() {
        let page = draw("mock/m1", &report(), 2000, 100, 300, None);
        assert_eq!(page.title, "Context · mock/m1 · 52k of 100k tokens (52 %)");
        let lines: Vec<&str> = page.text.lines().collect();
        assert_eq!(lines[0].chars().count(), BAR + 2, "{}", page.text);
        assert_eq!(lines[0].matches('·').count(), 12);
        for line in [
            "█ system prompt            5k   5 %",
            "▚ instructions             2k   2 %",
            "▓ tools (1)               900  <1 %",
            "▛ MCP tools (1)          9.1k   9 %",
            "▞ folder instructions     100  <1 %",
            "▜ skills                  300  <1 %",
            "▒ messages                20k  20 %",
            "░ tool results            15k  15 %",
            "· kept for the answer     20k  20 %",
            "  free                    28k  27 %",
            "12 older ones are left out to fit the window.",
            "1 large tool result is shown as a preview.",
            "Older messages are summarised at 64k tokens of messages (context.compact_at).",
            "Estimates, scaled by 1.25 to the provider's count.",
        ] {
            assert!(lines.iter().any(|l| l.trim_end() == line), "{line:?} is not in\n{}", page.text);
        }
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{}", page.text);
    }

    #[test]
    fn each_part_has_a_mark_of_its_own_that_the_terminal_colours() {
        let all = ContextReport { summary_tokens: 100, ..report() };
        let saved = Savings { deferred: 5, promoted: 0, kept_out: 900, names: 160, overhead: 10 };
        let page = draw("m", &all, 2000, 100, 300, Some(saved));
        let marks: Vec<char> = page.text.lines().skip(2).map_while(|line| line.chars().next()).collect();
        let marks: Vec<char> = marks.into_iter().filter(|mark| *mark != ' ').collect();
        let known: BTreeSet<char> = marks.iter().copied().collect();
        assert_eq!((marks.len(), known.len()), (11, 11), "{}", page.text);
        assert_eq!(known, BAR_MARKS.into_iter().collect(), "{}", page.text);
    }

    #[test]
    fn an_overfull_window_is_drawn() {
        let full = ContextReport { messages: 900_000, ..report() };
        let saved = Savings { deferred: 500, promoted: 2, kept_out: 52_000, names: 1600, overhead: 1900 };
        let text = draw("m", &full, 0, 0, 0, Some(saved)).text;
        assert!(text.contains("\n▟ deferred (500) "), "{text}");
        assert!(
            text.contains("500 tools are deferred: 50k tokens less in each request. 2 more were loaded"),
            "{text}"
        );
        let page = draw("m", &full, 0, 0, 0, None);
        assert_eq!(page.text.lines().next().unwrap().chars().count(), BAR + 2, "{}", page.text);
        let none = ContextReport { window: None, threshold: None, ..report() };
        assert!(!draw("m", &none, 0, 0, 0, None).text.contains("free"));
    }
}
