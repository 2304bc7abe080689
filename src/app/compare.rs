//! Two conversations side by side.

use std::fmt::Write as _;

use crate::contract::display::visible;
use crate::contract::ids::ThreadId;
use crate::contract::message::{Message, Role};
use crate::contract::record::StoredMessage;
use crate::store::Store;
use crate::tui::host::Page;
use crate::tui::wrap::{truncate, width};

/// Columns of each side.
const SIDE: u16 = 58;
/// Lines of one message.
const LINES: usize = 12;

/// Both from where they part, row by row.
pub(super) async fn page(store: &Store, one: &ThreadId, other: &ThreadId) -> Result<Page, String> {
    let load = async |id: &ThreadId| {
        let record = store.thread(id).await.map_err(|e| e.to_string())?;
        let record = record.ok_or_else(|| format!("there is no thread {id}"))?;
        Ok::<_, String>((record, store.messages(id).await.map_err(|e| e.to_string())?))
    };
    let ((left, said_left), (right, said_right)) = (load(one).await?, load(other).await?);
    let same = said_left.iter().zip(&said_right).take_while(|(a, b)| a.message == b.message).count();
    let mut text = format!("the first {same} messages are the same\n\n");
    row(&mut text, &left.title, &right.title);
    row(&mut text, &"─".repeat(usize::from(SIDE)), &"─".repeat(usize::from(SIDE)));
    let (mut a, mut b) = (said_left[same..].iter(), said_right[same..].iter());
    loop {
        let (one, other) = (a.next(), b.next());
        if one.is_none() && other.is_none() {
            break;
        }
        let (one, other) = (lines(one), lines(other));
        for i in 0..one.len().max(other.len()) {
            let line = |side: &Vec<String>| side.get(i).cloned().unwrap_or_default();
            row(&mut text, &line(&one), &line(&other));
        }
        text.push('\n');
    }
    Ok(Page { title: format!("{one} and {other}"), text })
}

fn row(text: &mut String, left: &str, right: &str) {
    let left = truncate(&visible(left), SIDE);
    let gap = " ".repeat(usize::from(SIDE).saturating_sub(width(&left)));
    let _ = writeln!(text, "{}", format!("{left}{gap} │ {}", truncate(&visible(right), SIDE)).trim_end());
}

fn lines(stored: Option<&StoredMessage>) -> Vec<String> {
    let Some(Message { role, content: _, tool_calls, .. }) = stored.map(|stored| &stored.message) else {
        return Vec::new();
    };
    let said = stored.map(|stored| stored.message.text()).unwrap_or_default();
    let mark = match role {
        Role::User => "❯ ",
        Role::Tool => "  ⎿ ",
        Role::Assistant | Role::System => "",
    };
    let mut lines = Vec::new();
    for line in said.trim_end().lines() {
        // Long lines go on below.
        let mut rest: Vec<char> = line.chars().collect();
        while rest.len() > usize::from(SIDE) - 4 {
            let tail = rest.split_off(usize::from(SIDE) - 4);
            lines.push(rest.into_iter().collect::<String>());
            rest = tail;
        }
        lines.push(rest.into_iter().collect());
    }
    if let Some(first) = lines.first_mut() {
        first.insert_str(0, mark);
    }
    lines.extend(tool_calls.iter().map(|call| format!("• {} {}", call.name, call.arguments)));
    if lines.len() > LINES {
        let more = lines.len() - LINES;
        lines.truncate(LINES);
        lines.push(format!("… {more} more lines"));
    }
    lines
}
