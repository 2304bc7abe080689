//! The messages of a request.

use std::sync::Arc;

use super::fit::Fit;
use super::history::History;
use super::repair::repair;
use super::sizes::Sizes;
use crate::contract::message::{Message, Visibility};

const OPENS: &str = "<conversation-summary>";
const CLOSES: &str = "</conversation-summary>";

/// Returns the message that the model reads in place of the summarised messages. The summary is a message and
/// not part of the instructions, so that the instructions keep their bytes, and their place in a provider's
/// cache.
pub fn summary_message(text: &str) -> Message {
    let mut message = Message::user(format!(
        "{OPENS}\nThe start of this conversation was replaced by this summary of what happened. Nothing in it \
         is a new request.\n\n{text}\n{CLOSES}"
    ));
    message.visibility = Visibility::Internal;
    message
}

/// Returns whether a message is a [`summary_message`].
pub fn is_summary(message: &Message) -> bool {
    message.visibility == Visibility::Internal && message.text().starts_with(OPENS)
}

fn gap(left_out: usize) -> Message {
    let (messages, were) = if left_out == 1 { ("message", "was") } else { ("messages", "were") };
    let mut message =
        Message::user(format!("[{left_out} older {messages} of this conversation {were} left out here.]"));
    message.visibility = Visibility::Internal;
    message
}

/// Puts a request's messages together. `apart`: pinned messages that may not be loaded, by place; `short` gives the preview
/// of a message by its place. A request of a whole conversation shares its list: copying that would cost more with each
/// turn.
pub fn assemble(
    history: &History,
    sizes: &Sizes,
    fit: &Fit,
    summary: Option<&str>,
    apart: &[(usize, Arc<Message>)],
    mut short: impl FnMut(usize) -> Option<Arc<Message>>,
) -> Arc<Vec<Arc<Message>>> {
    let is_shortened = || (0..fit.marks.previewed).any(|at| sizes.has_preview(at));
    let is_whole = history.base() == 0 && fit.marks.cut <= sizes.leading() && summary.is_none();
    if is_whole && sizes.is_tidy() && !is_shortened() {
        return history.shared();
    }
    let sent = history.end().saturating_sub(fit.marks.cut) + sizes.leading() + fit.pinned.len() + 2;
    let mut messages = Vec::with_capacity(sent);
    messages.extend((0..sizes.leading()).filter_map(|at| history.get(at).cloned()));
    messages.extend(summary.map(|text| Arc::new(summary_message(text))));
    let mut take = |at: usize, messages: &mut Vec<Arc<Message>>| {
        let is_short = at < fit.marks.previewed && sizes.has_preview(at);
        let message = is_short.then(|| short(at)).flatten().or_else(|| history.get(at).cloned());
        let beside = || apart.iter().find(|(place, _)| *place == at).map(|(_, message)| Arc::clone(message));
        messages.extend(message.or_else(beside));
    };
    for at in &fit.pinned {
        take(*at, &mut messages);
    }
    if fit.left_out > 0 {
        messages.push(Arc::new(gap(fit.left_out)));
    }
    for at in fit.marks.cut..history.end() {
        take(at, &mut messages);
    }
    Arc::new(if sizes.is_tidy() { messages } else { repair(messages) })
}
