//! The model: everything the screen shows, and nothing else. It changes in [`App::update`] only.

use std::collections::HashSet;

pub(super) use super::approval::QUIET_MS;
use super::approval::{Card, CardKind, SEEN_MS};
use super::composer::Composer;
use super::composer::vim::Vim;
use super::host::{
    ChangedTools, HostInfo, LastThread, QueuedRow, SkillRow, ThreadOwner, ThreadSync, UntrustedRow,
};
use super::keymap::{Chord, Keymap};
use super::picker::{Picker, PickerKind};
use super::theme::Theme;
use super::transcript::Moment;
use super::update::{Completion, MessageQueue, QuestionCards};
use aye_core::contract::event::AgentEvent;
use aye_core::contract::ids::ThreadId;

mod conversation;
mod display;
mod overlays;
#[cfg(test)]
pub(super) mod tests;

pub use conversation::ShownConversation;
pub use display::DisplayState;
pub use overlays::Overlays;

/// Interval of the animation while a run is active.
pub const TICK_MS: u64 = 125;
/// How long the animation continues after the last event.
pub const STILL_MS: u64 = 2000;
/// How long a second Ctrl-C may follow the first, and how long the hint about it is shown.
pub const QUIT_MS: u64 = 2000;
/// How long a hint is shown.
pub const HINT_MS: u64 = 5000;

/// The state of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RunState {
    #[default]
    Idle,
    /// A message was sent and nothing came back yet.
    Starting(Moment),
    /// The run is active.
    Running(Moment),
    /// A stop was requested.
    Stopping(Moment),
    /// Questions are open and nothing is in flight.
    Waiting,
}

impl RunState {
    /// Since when something is being done, while it is.
    pub fn active_since(self) -> Option<Moment> {
        match self {
            RunState::Starting(since) | RunState::Running(since) | RunState::Stopping(since) => Some(since),
            RunState::Idle | RunState::Waiting => None,
        }
    }
}

/// An event of a conversation that arrived before the conversation was open.
#[derive(Clone, Debug)]
pub(super) enum EarlyEvent {
    /// An event of a run in this process.
    Agent(Box<AgentEvent>),
    /// A change from the store.
    Synced(Box<ThreadSync>),
    /// A queued message was started.
    Began(QueuedRow),
    /// Another process took the conversation over, which is why it is opened again.
    TakenOver,
}

/// The target of keys, as long as no list is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Focus {
    #[default]
    Composer,
    Card,
}

/// The wall clock at the start, so that times of records can be shown in local time.
#[derive(Clone, Copy, Debug, Default)]
pub struct WallClock {
    /// Unix milliseconds when [`Moment`] was zero.
    pub at_zero: u64,
    /// Seconds east of UTC.
    pub offset: i32,
}

impl WallClock {
    /// Returns the hour and minute of a Unix time in milliseconds, in the user's time zone.
    pub fn hour_and_minute(&self, unix_ms: u64) -> String {
        let seconds = (unix_ms / 1000) as i64 + i64::from(self.offset);
        let of_day = seconds.rem_euclid(86_400);
        format!("{:02}:{:02}", of_day / 3600, of_day % 3600 / 60)
    }

    /// Returns how long ago a Unix time in milliseconds was.
    pub fn ago(&self, now: Moment, unix_ms: u64) -> String {
        let minutes = (self.at_zero + now.0).saturating_sub(unix_ms) / 60_000;
        match minutes {
            0 => "just now".to_owned(),
            1..=59 => format!("{minutes} min ago"),
            60..=2879 => format!("{} h ago", minutes / 60),
            _ => format!("{} days ago", minutes / 1440),
        }
    }
}

/// How long after a key an input method may follow the cursor.
const WRITING_MS: u64 = 10_000;

#[derive(Debug)]
pub struct App {
    /// The host's description of itself.
    pub info: HostInfo,
    /// The actions of keys.
    pub keymap: Keymap,
    /// The wall clock at the start.
    pub clock: WallClock,
    /// The time of the last message.
    pub now: Moment,
    /// Messages that wait for their turn.
    pub queue: MessageQueue,
    pub cards: QuestionCards,
    /// The target of keys.
    pub focus: Focus,
    /// The text that is written.
    pub composer: Composer,
    /// The keys of vi, while they are in use.
    pub vim: Option<Vim>,
    /// The completions offered for the draft.
    pub completion: Completion,
    /// The number of pending questions in other conversations.
    pub elsewhere: u64,
    /// The last conversation of this folder, once it is known.
    pub(crate) last_here: Option<LastThread>,
    /// Skills that can be called.
    pub skills: Vec<SkillRow>,
    /// Files that would grant or run something, and are not used: the folder is not trusted.
    pub untrusted: Vec<UntrustedRow>,
    /// Servers whose tools are not those that the user trusted, as they were last reported.
    pub changed_tools: Vec<ChangedTools>,
    /// Whether the user has not answered yet whether to use them.
    pub(super) asks_tools: bool,
    /// The folder was trusted: what its files grant or run is used from then on, when nothing is active.
    pub(super) renews: Option<Moment>,
    /// The keys of an unfinished sequence.
    pub begun: Vec<Chord>,
    pub(super) quit_armed: Option<Moment>,
    /// The last key that went into the text.
    pub(super) typed_at: Option<Moment>,
    /// When a digit was written into an empty text, unless another key came since.
    pub(super) digit_at: Option<Moment>,
    /// When the host was last notified that a question has expired.
    pub(super) expiry_reported: Option<Moment>,
    /// The stored state of the draft.
    pub(super) kept: KeptDraft,
    /// Pictures on their way into the text.
    pub(super) attaching: Attaching,
    /// The conversation on the screen: its entries, its run, and who drives it.
    pub conversation: ShownConversation,
    /// What covers the prompt or the whole screen, and the rows that it shows.
    pub overlays: Overlays,
    /// How things are shown: the size, the colours, the status line, and what the user prefers.
    pub display: DisplayState,
}

/// Pictures that are being read.
#[derive(Clone, Debug, Default)]
pub(super) struct Attaching {
    /// The words that each image will replace; empty for one from the clipboard.
    pub(super) open: HashSet<String>,
    /// Whether the draft is sent once the images have been read; `true`: after the pending questions.
    pub(super) sends: Option<bool>,
    /// Words that were checked and are not the path of an image.
    pub(super) tried: HashSet<String>,
}

/// The draft as last sent to be stored, so that it outlives the program.
#[derive(Clone, Debug, Default)]
pub(super) struct KeptDraft {
    pub(super) text: String,
    /// The conversation for which it is stored.
    pub(super) thread: Option<ThreadId>,
    /// When to store it again.
    pub(super) due: Option<Moment>,
    /// The number of times it was stored.
    pub(super) number: u64,
}

impl App {
    pub fn new(info: HostInfo, keymap: Keymap, clock: WallClock, size: (u16, u16)) -> App {
        let mut app = App {
            info,
            keymap,
            clock,
            now: Moment::default(),
            queue: MessageQueue::default(),
            cards: QuestionCards::default(),
            focus: Focus::Composer,
            composer: Composer::default(),
            vim: None,
            completion: Completion::default(),
            elsewhere: 0,
            last_here: None,
            skills: Vec::new(),
            untrusted: Vec::new(),
            changed_tools: Vec::new(),
            asks_tools: false,
            renews: None,
            begun: Vec::new(),
            quit_armed: None,
            typed_at: None,
            digit_at: None,
            expiry_reported: None,
            kept: KeptDraft::default(),
            attaching: Attaching::default(),
            conversation: ShownConversation::default(),
            overlays: Overlays::default(),
            display: DisplayState { size, has_focus: true, ..DisplayState::default() },
        };
        app.resize(size.0, size.1);
        app
    }

    pub(super) fn resize(&mut self, width: u16, height: u16) {
        self.display.size = (width, height);
        self.cards.are_laid_out_anew();
        // The prompt mark and its blank, a column for the caret, one for a blank that hangs over.
        self.composer.set_width(width.saturating_sub(4));
    }

    /// Unix milliseconds now.
    pub(super) fn unix_now(&self) -> u64 {
        self.clock.at_zero + self.now.0
    }

    /// The card that is shown whole.
    pub fn current_card(&self) -> Option<&Card> {
        self.cards.current()
    }

    /// The colours to draw with: those of the row that is chosen in the list of themes, else those in use.
    pub fn theme(&self) -> &Theme {
        let theme_picker = self.overlays.picker.as_ref().filter(|picker| picker.kind == PickerKind::Themes);
        let row = theme_picker.and_then(Picker::chosen);
        let found =
            row.and_then(|row| self.display.colours.listed.iter().find(|theme| theme.name == row.value));
        let choice = found.and_then(|row| row.theme.as_ref().ok()).unwrap_or(&self.display.colours.theme);
        choice.on(self.display.colours.background)
    }

    /// The card that keys are for. Beside an active run the question of trust waits in one row.
    pub(super) fn asking_card(&self) -> Option<&Card> {
        self.current_card().filter(|card| card.kind != CardKind::Trust || !self.conversation.is_active())
    }

    /// Returns the number of pending questions of this conversation.
    pub fn own_cards(&self) -> usize {
        self.cards.open.iter().filter(|card| card.elsewhere.is_none() && !card.is_own()).count()
    }

    /// Returns the number of pending questions in other conversations that are not shown here.
    pub fn unseen_elsewhere(&self) -> u64 {
        let shown = self.cards.open.iter().filter(|card| card.elsewhere.is_some()).count();
        self.elsewhere.saturating_sub(shown as u64)
    }

    /// Whether the user has not typed for a while.
    pub(super) fn is_quiet(&self) -> bool {
        self.typed_at.is_none_or(|typed| self.now.since(typed) >= QUIET_MS)
    }

    /// Whether the caret is only drawn: frames are drawn continuously, and the user is not in the middle of a
    /// text that an input method may write. Text that is only ASCII is typed without one.
    pub(super) fn parks_caret(&self) -> bool {
        let is_plain =
            self.composer.text().is_ascii() && self.overlays.picker.is_none() && self.cards.open.is_empty();
        let typed = self.typed_at.filter(|_| !is_plain);
        self.conversation.is_active() && typed.is_none_or(|typed| self.now.since(typed) >= WRITING_MS)
    }

    pub(super) fn show_hint(&mut self, text: impl Into<String>) {
        self.display.hint = Some((text.into(), self.now.plus(HINT_MS)));
    }

    /// Whether the last run was stopped by a limit and can be continued: then Enter on an empty text does
    /// that.
    pub fn can_continue(&self) -> bool {
        self.conversation.transcript.is_stopped()
            && matches!(self.conversation.run, RunState::Idle)
            && matches!(self.conversation.driver, ThreadOwner::Nobody | ThreadOwner::Own)
            && self.cards.open.is_empty()
            && self.queue.rows.is_empty()
    }

    /// The next time at which the picture changes without anybody doing anything; `None`: never.
    pub fn deadline(&self) -> Option<Moment> {
        let tick = self.conversation.run.active_since().filter(|_| !self.display.is_linear).map(|since| {
            // Until an inference is tried again only the seconds change.
            if let Some(again) = self.conversation.transcript.retry_at(self.now) {
                let rest = again.since(self.now) % 1000;
                return self.now.plus(if rest == 0 { 1000 } else { rest });
            }
            // When nothing comes, only the seconds change.
            let is_still = self.now.since(self.conversation.moved.max(since)) >= STILL_MS;
            let tick = if is_still || self.display.is_calm { 1000 } else { TICK_MS };
            let passed = self.now.since(since);
            since.plus((passed / tick + 1) * tick)
        });
        let focus = self.wants_focus().then(|| self.typed_at.map(|typed| typed.plus(QUIET_MS))).flatten();
        let hint = self.display.hint.as_ref().map(|(_, until)| *until);
        let quit = self.quit_armed.map(|armed| armed.plus(QUIT_MS));
        [
            tick,
            focus,
            hint,
            quit,
            self.expiry_deadline(),
            self.kept.due,
            self.display.feed.deadline(),
            self.renewal_deadline(),
            self.arming_deadline(),
            self.start_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// When the first answer of the card can be taken with Enter, which is shown.
    fn arming_deadline(&self) -> Option<Moment> {
        let card = self.current_card().filter(|card| self.focus == Focus::Card && card.preselects())?;
        card.seen.map(|seen| seen.plus(SEEN_MS)).filter(|armed| *armed > self.now)
    }

    /// Whether a card would take the focus if the user stopped typing.
    fn wants_focus(&self) -> bool {
        self.focus == Focus::Composer
            && self.asking_card().is_some()
            && self.composer.is_empty()
            && self.begun.is_empty()
            && self.overlays.picker.is_none()
            && self.overlays.viewer.is_none()
            && !self.cards.stays
            && !self.display.is_linear
    }

    /// Brings focus, card number and hints in line with what happened.
    pub(super) fn settle(&mut self) {
        if self.display.hint.as_ref().is_some_and(|(_, until)| *until <= self.now) {
            self.display.hint = None;
        }
        if self.quit_armed.is_some_and(|armed| self.now.since(armed) >= QUIT_MS) {
            self.quit_armed = None;
        }
        self.clear_stale_queue_selection();
        self.settle_late_cards();
        self.drop_finished_plan();
        self.cards.at = self.cards.at.min(self.cards.open.len().saturating_sub(1));
        if self.cards.open.is_empty() {
            self.cards.batch = None;
            self.focus = Focus::Composer;
            self.cards.stays = false;
        } else if self.wants_focus() && self.is_quiet() {
            self.focus = Focus::Card;
            self.cards.focused_at = self.now;
        }
        self.leave_trust_to_run();
    }
}
