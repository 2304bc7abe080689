//! The list of pending questions, for users and for programs.

use std::fmt::Write as _;

use serde_json::json;

use super::waiting;
use crate::commands::approvals::InboxArgs;
use crate::commands::pager::Pager;
use crate::commands::{put_json, thread_by_prefix, when};
use crate::contract::display::visible_line;
use crate::contract::record::InboxRow;
use crate::contract::storage::{InboxFilter, SharedStore, StoreError};
use crate::contract::suspension::ACTION_WAIT;
use crate::failure::Failure;
use crate::program::foundation::Foundation;
use crate::program::put_stderr;
use crate::tui::wrap::{truncate, width};

/// Ids are shown with at least this many characters, although fewer may be enough: users read them out, and
/// type them again after other questions have arrived.
const LEAST: usize = 12;

pub(super) async fn run(
    args: &InboxArgs,
    store: &SharedStore,
    foundation: &Foundation,
) -> Result<u8, Failure> {
    let now = store.clock().now_ms();
    // A store that cannot be written to keeps what is over; it is left out of the list all the same.
    match store.expire_due(now).await {
        Ok(_) | Err(StoreError::ReadOnly) => {}
        Err(error) => return Err(Failure::failed(error)),
    }
    let filter = filter(args, store, now).await?;
    let mut list = List { store, filter, now, at: args.page.offset, left: args.page.limit };
    if args.json {
        put_json(&json!(list.next(usize::MAX).await?))?;
        return Ok(0);
    }
    let mut pager = Pager::new(&foundation.env);
    let mut is_first = true;
    loop {
        let piece = if pager.is_paged() { PIECE } else { usize::MAX };
        let rows = list.next(piece).await?;
        if rows.is_empty() && is_first {
            put_stderr("No pending questions");
        }
        is_first = false;
        let goes_on = pager.write(&text(&rows, &list.short(&rows).await?, now, columns()))?;
        if !goes_on || rows.len() < piece {
            pager.finish()?;
            return Ok(0);
        }
    }
}

/// The number of rows read at a time for a pager.
const PIECE: usize = 200;

/// The pending questions, read in parts.
struct List<'a> {
    store: &'a SharedStore,
    filter: InboxFilter,
    now: u64,
    at: usize,
    left: Option<usize>,
}

impl List<'_> {
    /// Returns the next rows, at most this many.
    async fn next(&mut self, piece: usize) -> Result<Vec<InboxRow>, Failure> {
        let wanted = self.left.map_or(piece, |left| left.min(piece));
        let limit = Some(wanted).filter(|wanted| *wanted < usize::MAX);
        let filter = InboxFilter { offset: self.at, limit, ..self.filter.clone() };
        let rows = waiting(self.store, filter, self.now).await?;
        self.at += rows.len();
        self.left = self.left.map(|left| left - rows.len());
        Ok(rows)
    }

    /// Returns the shortest unique prefixes of their ids.
    async fn short(&self, rows: &[InboxRow]) -> Result<Vec<String>, Failure> {
        let ids = rows.iter().map(|row| row.id.clone()).collect();
        self.store.short_ids(ids, LEAST).await.map_err(Failure::failed)
    }
}

/// Returns the filter that the arguments describe.
pub(super) async fn filter(args: &InboxArgs, store: &SharedStore, now: u64) -> Result<InboxFilter, Failure> {
    let thread = match &args.thread {
        Some(id) => Some(thread_by_prefix(store, id).await?.id),
        None => None,
    };
    let span = args.older_than.map(|span| u64::try_from(span.as_millis()).unwrap_or(u64::MAX));
    Ok(InboxFilter {
        thread,
        tool: args.tool.clone(),
        asked_before: span.map(|span| now.saturating_sub(span)),
        ..InboxFilter::default()
    })
}

/// Returns the terminal's columns; a pipe has no limit.
fn columns() -> u16 {
    rustix::termios::tcgetwinsize(rustix::stdio::stdout())
        .ok()
        .map(|size| size.ws_col)
        .filter(|columns| *columns > 0)
        .unwrap_or(u16::MAX)
}

/// Renders two lines for each question: the call, then its details, most important first.
fn text(rows: &[InboxRow], short: &[String], now: u64, columns: u16) -> String {
    let shown: Vec<String> = short.iter().map(|id| visible_line(id).into_owned()).collect();
    let wide = shown.iter().map(|id| width(id)).max().unwrap_or(0).min(40);
    let mut out = String::new();
    for (row, id) in rows.iter().zip(shown) {
        let gap = " ".repeat(wide.saturating_sub(width(&id)));
        let first = format!("{id}{gap}  {:>6}  {}", age(now, row.created_at), row.subject());
        let second = format!("{}{}", " ".repeat(wide + 10), details(row, now).join(" · "));
        let _ = writeln!(out, "{}\n{}", truncate(&first, columns), truncate(&second, columns));
    }
    out
}

fn details(row: &InboxRow, now: u64) -> Vec<String> {
    let mut parts = Vec::new();
    parts.extend(row.risk.map(|risk| risk.to_string()));
    let verb = if row.action == ACTION_WAIT { "resumes" } else { "expires" };
    parts.extend(row.expires_at.map(|end| format!("{verb} in {}", age(end, now))));
    let title = visible_line(&row.thread_title);
    let of = if row.parent_run_id.is_some() { " (subagent)" } else { "" };
    parts.push(format!("{}{of}", if title.is_empty() { "(no title)" } else { &title }));
    // Of a question of the agent itself, the first line is the question.
    if !row.why.is_empty() && row.why != row.subject() {
        parts.push(row.why.clone());
    }
    parts
}

/// Returns the age in few characters.
pub(super) fn age(now: u64, then: u64) -> String {
    let seconds = now.saturating_sub(then) / 1000;
    match seconds {
        0..=59 => format!("{seconds} s"),
        60..=5999 => format!("{} min", seconds / 60),
        6000..=172_799 => format!("{} h", seconds / 3600),
        172_800..=8_639_999 => format!("{} d", seconds / 86_400),
        _ => when(then),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::judgement::Risk;
    use crate::contract::suspension::ACTION_ASK_USER;

    fn row(id: &str, summary: &str) -> InboxRow {
        InboxRow {
            id: id.into(),
            thread_id: "t".into(),
            thread_title: "fix the parser, which loses the last token of a line that has no end\u{1b}[2J"
                .into(),
            cwd: "/work".into(),
            run_id: "r".into(),
            parent_run_id: None,
            call_id: "c".into(),
            action: "tool:PermissionConfirm".into(),
            tool: "Bash".into(),
            summary: summary.into(),
            why: "no rule allows `git push`".into(),
            risk: Some(Risk::Network),
            created_at: 1_000_000,
            expires_at: Some(1_000_000 + 4 * 3_600_000),
            child: None,
        }
    }

    #[test]
    fn a_question_takes_two_lines_at_any_width() {
        let rows = [row("perm_call_ff20", "git push origin main"), row("q", &"make ".repeat(40))];
        let short = ["perm_call_ff20".to_owned(), "q".to_owned()];
        let now = 1_000_000 + 2 * 3_600_000;
        insta::assert_snapshot!(text(&rows[..1], &short, now, 80), @r"
        perm_call_ff20     2 h  $ git push origin main
                                network · expires in 2 h · fix the parser, which loses …
        ");
        insta::assert_snapshot!(text(&rows[..1], &short, now, 120), @r"
        perm_call_ff20     2 h  $ git push origin main
                                network · expires in 2 h · fix the parser, which loses the last token of a line that has no end…
        ");
        for columns in [1, 20, 80, 120, u16::MAX] {
            let text = text(&rows, &short, now, columns);
            assert_eq!(text.lines().count(), 4);
            assert!(text.lines().all(|line| width(line) <= usize::from(columns)), "{columns}: {text}");
            assert!(!text.contains('\u{1b}'));
        }
        let asked = InboxRow {
            action: ACTION_ASK_USER.into(),
            tool: "AskUser".into(),
            summary: "Which colour?".into(),
            why: "Which colour?".into(),
            ..row("ask", "")
        };
        let shown = text(&[asked], &["ask".to_owned()], now, 200);
        assert_eq!(shown.matches("Which colour?").count(), 1, "{shown}");
        assert!(text(&rows, &short, now, u16::MAX).contains("has no end^[[2J · no rule allows `git push`"));
    }

    #[test]
    fn ages_are_short() {
        let ages = [0, 59_000, 60_000, 5_999_000, 6_000_000, 172_800_000].map(|ms| age(ms, 0));
        assert_eq!(ages, ["0 s", "59 s", "1 min", "99 min", "1 h", "2 d"]);
        assert_eq!(age(5, 10), "0 s", "a clock that was put back");
    }
}
