//! What of a conversation goes into a request.

use super::sizes::Sizes;

/// How much there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FitLimits {
    /// Tokens for messages: the window without the answer, the tools and the instructions.
    pub room: usize,
    /// So many of the newest messages are never cut off.
    pub recent: usize,
}

/// Where earlier requests of the conversation were cut. They are kept as long as they serve, so that a request begins
/// with the bytes of the one before it and a provider finds them in its cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Messages before it are left out.
    pub cut: usize,
    /// Large results before it are previews.
    pub previewed: usize,
}

/// What goes into a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fit {
    /// Where it is cut.
    pub marks: Marks,
    /// Messages before the cut that are in it all the same.
    pub pinned: Vec<usize>,
    /// How many messages are left out, behind those that a summary stands for.
    pub left_out: usize,
    /// Tokens of the messages.
    pub tokens: usize,
    /// More than there is room for; nothing can be left out any more.
    pub is_over: bool,
}

/// Chooses what goes into a request. `from`: messages before it are not there, a summary stands for them.
///
/// Instructions at the very start and what is pinned are always in it, then the newest messages as long as they fit,
/// and so many of them that are never cut off. No call is parted from its result. When it has to be cut an eighth of
/// the room stays free, so that the cut holds for some steps.
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
    // What the model works with stays whole; of what is older a preview is enough, when that is worth the change.
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

/// The first message that is kept when so many tokens are aimed at.
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
    // Never more than what is to be kept in any case, and never across a call and its result.
    sizes.safe_behind(fits).min(sizes.safe_before(newest)).max(marks.cut)
}
