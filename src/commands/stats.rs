//! `aye stats` and `/stats`: usage by model, tool and day.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::{Map, json};
use unicode_width::UnicodeWidthStr as _;

use crate::commands::put_json;
use crate::commands::since::since;
use crate::config::{ModelSettings, price_of};
use crate::contract::amount::{counted, duration, short_number};
use crate::contract::clock::{Clock as _, SystemClock};
use crate::contract::display::visible_line;
use crate::contract::spec::{BILLION, Price};
use crate::contract::statistics::{Tally, TallyKind};
use crate::failure::{AppError, Failure};
use crate::program::app_context::AppContext;
use crate::program::foundation::Foundation;
use crate::program::put;
use crate::tui::host::TextPage;

/// `aye stats`
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example:\n  aye stats --since 1w --by day")]
pub struct StatsArgs {
    /// Only activity since then: 2h, 3d, 1w, a day such as 2026-11-21, or an RFC 3339 time
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Show only this table; all three by default
    #[arg(long, value_enum, value_name = "WHAT")]
    pub by: Option<StatsBy>,
    /// Write JSON
    #[arg(long)]
    pub json: bool,
}

/// The grouping of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StatsBy {
    /// Models
    Model,
    /// Tools
    Tool,
    /// Days
    Day,
}

impl StatsBy {
    /// All groupings, in display order.
    pub const ALL: [Self; 3] = [Self::Model, Self::Tool, Self::Day];
}

/// The statistics of one model, one tool, or one day.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct StatsRow {
    /// Answers of models.
    answers: u64,
    /// Runs that ended with an error.
    failed_runs: u64,
    /// Executions of tools.
    calls: u64,
    /// Of these, how many failed.
    failed_calls: u64,
    input_tokens: u64,
    output_tokens: u64,
    cached_tokens: u64,
    cache_write_tokens: u64,
    /// In the currency of the prices, for models with a price.
    cost: f64,
    /// Answers of models without a price, which the cost excludes.
    unpriced_answers: u64,
    model_ms: u64,
    tool_ms: u64,
    /// Requests that were sent again without thoughts that the provider refused.
    refused_thoughts: u64,
    /// Questions that were answered.
    questions: u64,
    /// How long the questions waited for their answers.
    waited_ms: u64,
}

impl StatsRow {
    fn add(&mut self, tally: &Tally, price: Option<Price>) {
        match tally.kind {
            TallyKind::Inference => {
                self.answers += tally.count;
                self.input_tokens += tally.input;
                self.output_tokens += tally.output;
                self.cached_tokens += tally.cached;
                self.cache_write_tokens += tally.written;
                self.model_ms += tally.duration_ms;
                match price {
                    Some(price) => self.cost += cost(tally, price),
                    None => self.unpriced_answers += tally.count,
                }
            }
            TallyKind::FailedRun => self.failed_runs += tally.count,
            TallyKind::Call => {
                self.calls += tally.count;
                self.failed_calls += tally.failed;
                self.tool_ms += tally.duration_ms;
            }
            TallyKind::RefusedThoughts => self.refused_thoughts += tally.count,
            TallyKind::Wait => {
                self.questions += tally.count;
                self.waited_ms += tally.duration_ms;
            }
        }
    }
}

/// Returns the cost in the currency of the price.
fn cost(tally: &Tally, price: Price) -> f64 {
    price.cost_of(tally.input, tally.cached, tally.written, tally.output) as f64 / BILLION
}

#[derive(Debug, Default)]
struct Stats {
    total: StatsRow,
    tables: BTreeMap<u8, BTreeMap<String, StatsRow>>,
}

impl Stats {
    fn of(tallies: &[Tally], models: &BTreeMap<String, ModelSettings>, zone: &jiff::tz::TimeZone) -> Self {
        let mut stats = Self::default();
        let mut prices: BTreeMap<&str, Option<Price>> = BTreeMap::new();
        for tally in tallies {
            let price = match tally.kind {
                TallyKind::Inference => {
                    *prices.entry(&tally.name).or_insert_with(|| price_of(models, &tally.name))
                }
                TallyKind::FailedRun | TallyKind::Call | TallyKind::RefusedThoughts | TallyKind::Wait => None,
            };
            stats.total.add(tally, price);
            let by_name = match tally.kind {
                TallyKind::Inference | TallyKind::FailedRun | TallyKind::RefusedThoughts => StatsBy::Model,
                TallyKind::Call | TallyKind::Wait => StatsBy::Tool,
            };
            stats.row(by_name, tally.name.clone()).add(tally, price);
            stats.row(StatsBy::Day, day(tally.from, zone)).add(tally, price);
        }
        stats
    }

    fn row(&mut self, by: StatsBy, name: String) -> &mut StatsRow {
        self.tables.entry(by as u8).or_default().entry(name).or_default()
    }

    /// The rows of a table: models and tools with the most first, days in their order.
    fn rows(&self, by: StatsBy) -> Vec<(&str, &StatsRow)> {
        let table = self.tables.get(&(by as u8));
        let mut rows: Vec<_> = table.into_iter().flatten().map(|(name, row)| (name.as_str(), row)).collect();
        match by {
            StatsBy::Model => rows.sort_by_key(|(_, row)| std::cmp::Reverse(row.answers)),
            StatsBy::Tool => rows.sort_by_key(|(_, row)| std::cmp::Reverse(row.calls)),
            StatsBy::Day => {}
        }
        rows
    }
}

/// Returns the day of a point in time, in the given time zone.
fn day(at: u64, zone: &jiff::tz::TimeZone) -> String {
    let at = i64::try_from(at).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    at.map(|at| at.to_zoned(zone.clone()).date().to_string()).unwrap_or_default()
}

/// `aye stats`.
pub(crate) async fn run(args: StatsArgs, foundation: &Foundation) -> Result<u8, Failure> {
    let from = since(args.since.as_deref(), SystemClock.now_ms())?;
    let store = foundation.open_store_to_read()?;
    let tallies = store.tallies(from).await.map_err(Failure::failed);
    store.close().await;
    let stats = Stats::of(&tallies?, &foundation.loaded.settings.models, &crate::program::zone());
    if args.json {
        put_json(&json(&stats, args.by))?;
    } else {
        put(&text(&stats, args.by, ""))?;
    }
    Ok(0)
}

/// Returns the page of `/stats` with its arguments: a time, and `model`, `tool` or `day`.
pub(crate) async fn page(app: &AppContext, words: &str) -> Result<TextPage, AppError> {
    let mut by = None;
    let mut time = None;
    for word in words.split_whitespace() {
        match word {
            "model" => by = Some(StatsBy::Model),
            "tool" => by = Some(StatsBy::Tool),
            "day" => by = Some(StatsBy::Day),
            other => time = Some(other),
        }
    }
    let from = since(time, app.clock.now_ms())?;
    let tallies = app.store.tallies(from).await?;
    let stats = Stats::of(&tallies, &app.foundation.loaded.settings.models, &crate::program::zone());
    let title = time.map_or_else(|| "Usage".to_owned(), |time| format!("Usage · since {time}"));
    Ok(TextPage { title, text: text(&stats, by, HEAD), ..TextPage::default() })
}

fn key(by: StatsBy) -> &'static str {
    match by {
        StatsBy::Model => "model",
        StatsBy::Tool => "tool",
        StatsBy::Day => "day",
    }
}

fn json(stats: &Stats, by: Option<StatsBy>) -> serde_json::Value {
    let mut object = Map::new();
    object.insert("total".into(), json!(stats.total));
    for table in StatsBy::ALL.into_iter().filter(|table| by.is_none_or(|by| by == *table)) {
        let rows = stats.rows(table).into_iter().map(|(name, row)| {
            let mut row = json!(row);
            row[key(table)] = json!(name);
            row
        });
        object.insert(format!("by_{}", key(table)), rows.collect());
    }
    object.into()
}

/// What marks the heads of tables on a page.
const HEAD: &str = "── ";

/// Returns the tables and their sum; `mark` precedes their heads.
fn text(stats: &Stats, by: Option<StatsBy>, mark: &str) -> String {
    let mut out = String::new();
    for by in StatsBy::ALL.into_iter().filter(|table| by.is_none_or(|by| by == *table)) {
        let rows = stats.rows(by);
        if rows.is_empty() {
            continue;
        }
        if !out.is_empty() {
            out.push('\n');
        }
        let (head, cells): (&[&str], Cells) = match by {
            StatsBy::Model => {
                (&["model", "answers", "failed", "in", "cached", "out", "cost", "time"], of_model)
            }
            StatsBy::Tool => (&["tool", "calls", "failed", "time", "asked", "waited"], of_tool),
            StatsBy::Day => (&["day", "answers", "calls", "failed", "in", "out", "cost", "waited"], of_day),
        };
        let mut table = vec![head.iter().map(|&word| word.to_owned()).collect::<Vec<_>>()];
        table.extend(rows.iter().map(|(name, row)| {
            let mut line = vec![visible_line(name).into_owned()];
            line.extend(cells(row));
            line
        }));
        out.push_str(mark);
        aligned(&table, &mut out);
    }
    if out.is_empty() {
        return "no activity yet\n".to_owned();
    }
    let total = &stats.total;
    let _ = writeln!(
        out,
        "\n{} answers, {} calls, {} tokens in and {} out{}; {} waited {} for an answer",
        total.answers,
        total.calls,
        short_number(total.input_tokens),
        short_number(total.output_tokens),
        if total.cost > 0.0 { format!(", {}", money(total)) } else { String::new() },
        counted(total.questions, "question"),
        duration(total.waited_ms),
    );
    if total.refused_thoughts > 0 {
        let _ = writeln!(
            out,
            "+ {} requests were sent again without thoughts that the provider refused",
            total.refused_thoughts
        );
    }
    if total.cost > 0.0 && total.unpriced_answers > 0 {
        let _ = writeln!(
            out,
            "+ the cost excludes {} answers from models without a price",
            total.unpriced_answers
        );
    }
    out
}

/// Returns the cells of a row after its name.
type Cells = fn(&StatsRow) -> Vec<String>;

fn of_model(row: &StatsRow) -> Vec<String> {
    vec![
        row.answers.to_string(),
        row.failed_runs.to_string(),
        short_number(row.input_tokens),
        short_number(row.cached_tokens),
        short_number(row.output_tokens),
        money(row),
        duration(row.model_ms),
    ]
}

fn of_tool(row: &StatsRow) -> Vec<String> {
    vec![
        row.calls.to_string(),
        row.failed_calls.to_string(),
        duration(row.tool_ms),
        row.questions.to_string(),
        duration(row.waited_ms),
    ]
}

fn of_day(row: &StatsRow) -> Vec<String> {
    vec![
        row.answers.to_string(),
        row.calls.to_string(),
        (row.failed_calls + row.failed_runs).to_string(),
        short_number(row.input_tokens),
        short_number(row.output_tokens),
        money(row),
        duration(row.waited_ms),
    ]
}

/// Aligns the first column left and the others right.
fn aligned(table: &[Vec<String>], out: &mut String) {
    let columns = table.first().map_or(0, Vec::len);
    let widths: Vec<usize> =
        (0..columns).map(|at| table.iter().map(|row| row[at].width()).max().unwrap_or(0)).collect();
    for row in table {
        for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let blanks = " ".repeat(width - cell.width());
            let _ = if at == 0 { write!(out, "{cell}{blanks}") } else { write!(out, "  {blanks}{cell}") };
        }
        out.push('\n');
    }
}

fn money(row: &StatsRow) -> String {
    match (row.cost, row.unpriced_answers, row.answers) {
        (_, unpriced, answers) if unpriced == answers => "-".to_owned(),
        (cost, 0, _) => format!("{cost:.2}"),
        (cost, _, _) => format!("{cost:.2}+"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(from: u64, kind: TallyKind, name: &str, count: u64) -> Tally {
        let (input, output, cached) =
            if kind == TallyKind::Inference { (1_000_000, 500_000, 400_000) } else { (0, 0, 0) };
        let name = name.into();
        Tally { from, kind, name, count, failed: 0, input, output, cached, written: 0, duration_ms: 61_000 }
    }

    fn models() -> BTreeMap<String, ModelSettings> {
        let price = Price { input: 2.0, output: 10.0, cache_read: Some(0.5), cache_write: Some(4.0) };
        let bare = ModelSettings { model: Some("up/m1".into()), ..ModelSettings::default() };
        let priced = ModelSettings { price: Some(price), ..bare.clone() };
        // A name without a price comes first.
        [("a".to_owned(), bare), ("mine".to_owned(), priced)].into_iter().collect()
    }

    #[test]
    fn tokens_are_priced_by_the_settings_and_unpriced_ones_reported() {
        let tallies = [
            tally(0, TallyKind::Inference, "srv/up/m1", 3),
            tally(0, TallyKind::Inference, "nobody-knows", 1),
            Tally { failed: 2, ..tally(0, TallyKind::Call, "Bash", 5) },
            tally(0, TallyKind::Wait, "Bash", 2),
            tally(0, TallyKind::FailedRun, "srv/up/m1", 1),
        ];
        let stats = Stats::of(&tallies, &models(), &jiff::tz::TimeZone::UTC);
        // 600,000 fresh, 400,000 cached, 500,000 out.
        assert!((stats.total.cost - (1.2 + 0.2 + 5.0)).abs() < 1e-9, "{}", stats.total.cost);
        assert_eq!(stats.total.unpriced_answers, 1);
        let shown = text(&stats, None, "");
        assert!(shown.contains("6.40+") && shown.contains("excludes 1 answers"), "{shown}");
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], "model         answers  failed  in  cached   out  cost        time");
        assert_eq!(lines[1], "srv/up/m1           3       1  1M    400k  500k  6.40  1 min 01 s");
        assert_eq!(lines[2], "nobody-knows        1       0  1M    400k  500k     -  1 min 01 s");
        assert!(shown.contains("Bash      5       2  1 min 01 s      2  1 min 01 s"), "{shown}");
        let value = json(&stats, Some(StatsBy::Tool));
        assert_eq!(value["by_tool"][0]["tool"], "Bash");
        assert_eq!(value["by_tool"][0]["failed_calls"], 2);
        assert!(value.get("by_model").is_none());
    }

    #[test]
    fn what_is_written_to_a_cache_has_its_price() {
        let tally = Tally { written: 100_000, ..tally(0, TallyKind::Inference, "up/m1", 1) };
        let stats = Stats::of(&[tally], &models(), &jiff::tz::TimeZone::UTC);
        // 500,000 fresh, 400,000 cached, 100,000 written, 500,000 out.
        assert!((stats.total.cost - (1.0 + 0.2 + 0.4 + 5.0)).abs() < 1e-9, "{}", stats.total.cost);
        assert_eq!(stats.total.cache_write_tokens, 100_000);
    }

    #[test]
    fn a_day_follows_the_users_time_zone() {
        let zone = jiff::tz::TimeZone::fixed(jiff::tz::offset(2));
        let evening = 1_763_762_400_000; // 2025-11-21 22:00 UTC
        let stats = Stats::of(&[tally(evening, TallyKind::Call, "List", 1)], &models(), &zone);
        assert_eq!(stats.rows(StatsBy::Day)[0].0, "2025-11-22");
    }

    #[test]
    fn nothing_done_is_a_sentence() {
        assert_eq!(text(&Stats::default(), None, ""), "no activity yet\n");
    }
}
