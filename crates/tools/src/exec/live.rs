//! Output while it arrives: in few pieces, soon, and never more than a screen can use.

use std::time::Duration;

use tokio::time::Instant;

/// Pieces are this far apart.
const GAP: Duration = Duration::from_millis(40);
/// The same, once much was shown already.
const SLOW_GAP: Duration = Duration::from_millis(400);
/// After this many bytes it is much.
const MUCH: usize = 1 << 20;
/// A piece is not longer than this; a command that writes faster is shown in part.
const MAX_PIECE: usize = 8 << 10;

/// Collects output between two deliveries.
pub(super) struct LiveOutput {
    pending: String,
    skipped: usize,
    last: Option<Instant>,
    delivered: usize,
}

impl LiveOutput {
    pub(super) fn new() -> Self {
        Self { pending: String::new(), skipped: 0, last: None, delivered: 0 }
    }

    pub(super) fn push(&mut self, text: &str) {
        self.pending.push_str(text);
        if self.pending.len() > 2 * MAX_PIECE {
            let cut = self.pending.ceil_char_boundary(self.pending.len() - MAX_PIECE);
            self.skipped += cut;
            self.pending.drain(..cut);
        }
    }

    /// Returns when the next piece is due; `None` if there is no output.
    pub(super) fn due(&self) -> Option<Instant> {
        if self.pending.is_empty() {
            return None;
        }
        let gap = if self.delivered > MUCH { SLOW_GAP } else { GAP };
        // The first words are due at once: an instant that is over.
        Some(self.last.map_or_else(Instant::now, |last| last + gap))
    }

    /// Takes the piece that is due.
    pub(super) fn take(&mut self) -> String {
        self.last = Some(Instant::now());
        let piece = std::mem::take(&mut self.pending);
        self.delivered += piece.len();
        match std::mem::take(&mut self.skipped) {
            0 => piece,
            skipped => format!("\n[… {skipped} bytes not shown …]\n{piece}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_output_is_immediate_and_the_rest_batched() {
        let mut live = LiveOutput::new();
        assert_eq!(live.due(), None);
        live.push("a");
        assert!(live.due().expect("due") <= Instant::now());
        assert_eq!(live.take(), "a");
        assert_eq!(live.due(), None);
        live.push("b");
        live.push("c");
        assert_eq!(live.due(), Some(Instant::now() + GAP));
        assert_eq!(live.take(), "bc");
    }

    #[test]
    fn a_flood_is_shown_in_part() {
        let mut live = LiveOutput::new();
        for _ in 0..1000 {
            live.push(&"漢".repeat(1000));
        }
        let piece = live.take();
        assert!(piece.len() < 3 * MAX_PIECE, "{}", piece.len());
        assert!(piece.contains("bytes not shown"));
    }
}
