//! Chooses the messages of a conversation that go into a request.

use super::sizes::Sizes;

/// The limits on the messages of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FitLimits {
    /// Tokens for messages: the window without the answer, the tools and the instructions.
    pub room: usize,
    /// The number of newest messages that are never cut off.
    pub recent: usize,
}

/// The positions where earlier requests of the conversation were cut. They are kept as long as possible, so
/// that a request starts with the same bytes as the one before it and a provider finds them in its cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Messages before it are left out.
    pub cut: usize,
    /// Large results before it are previews.
    pub previewed: usize,
}

/// The messages of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fit {
    /// The positions where the conversation is cut.
    pub marks: Marks,
    /// Messages before the cut that are in it all the same.
    pub pinned: Vec<usize>,
    /// The number of messages left out, after those that a summary replaces.
    pub left_out: usize,
    /// Tokens of the messages.
    pub tokens: usize,
    /// Whether the messages exceed the limit although nothing more can be left out.
    pub is_over: bool,
}

/// Chooses the messages of a request. `from`: earlier messages are replaced by a summary.
///
/// Instructions at the very start and pinned messages are always included, then the newest messages as long
/// as they fit, but at least the newest ones that are never cut off. A call is never separated from its
/// result. When messages must be cut, an eighth of the room stays free, so that the cut lasts for some steps.
pub fn fit(sizes: &Sizes, from: usize, marks: Marks, limits: FitLimits) -> Fit {
    let count = sizes.len();
    let from = sizes.safe_before(from.min(count)).max(sizes.leading());
    let newest = count.saturating_sub(limits.recent);
    let mut marks = Marks {
        cut: sizes.safe_before(marks.cut.min(count)).max(from),
        previewed: marks.previewed.min(count),
    };
    let cost = |marks: Marks| {
        let apart: usize = sizes.pinned(marks.cut).into_iter().map(|at| sizes.at(at, marks.previewed)).sum();
        sizes.sum(0..sizes.leading(), 0) + apart + sizes.sum(marks.cut..count, marks.previewed)
    };
    let mut tokens = cost(marks);
    // The results that the model is working with stay whole; previews suffice for older ones, if they save
    // enough to justify the change.
    if newest > marks.previewed {
        let shorter = Marks { previewed: newest, ..marks };
        let saved = tokens.saturating_sub(cost(shorter));
        if tokens > limits.room || (saved > 0 && saved.saturating_mul(8) >= limits.room) {
            (marks, tokens) = (shorter, tokens - saved);
        }
    }
    if tokens > limits.room {
        marks.cut = cut(sizes, marks, newest, limits.room - limits.room / 8);
        tokens = cost(marks);
    }
    if tokens > limits.room {
        marks.previewed = count;
        tokens = cost(marks);
    }
    let pinned = sizes.pinned(marks.cut);
    let apart = pinned.iter().filter(|at| **at >= from).count();
    Fit { left_out: marks.cut - from - apart, is_over: tokens > limits.room, marks, pinned, tokens }
}

/// Returns the first message to keep for a target number of tokens.
fn cut(sizes: &Sizes, marks: Marks, newest: usize, aim: usize) -> usize {
    let pinned = sizes.pinned(sizes.len());
    let fixed: usize = pinned.iter().map(|at| sizes.at(*at, marks.previewed)).sum();
    let mut used = sizes.sum(0..sizes.leading(), 0) + fixed;
    let mut fits = sizes.len();
    while fits > marks.cut {
        let size = sizes.at(fits - 1, marks.previewed);
        if pinned.binary_search(&(fits - 1)).is_err() {
            if used + size > aim {
                break;
            }
            used += size;
        }
        fits -= 1;
    }
    // Never cuts messages that must be kept, and never cuts between a call and its result.
    sizes.safe_behind(fits).min(sizes.safe_before(newest)).max(marks.cut)
}
