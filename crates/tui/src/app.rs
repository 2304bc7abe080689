//! The model: everything the screen shows, and nothing else. It changes in [`App::update`] only.

use std::collections::HashSet;

use super::approval::{Card, CardKind, QUIET_MS};
use super::composer::Composer;
use super::composer::vim::Vim;
use super::diff::DiffLayout;
use super::host::{GrantRow, HostInfo, QueuedRow, SkillRow, ThreadOwner, ThreadSync, UntrustedRow};
use super::image_cache::ImageCache;
use super::keymap::{Chord, Keymap};
use super::picker::{Picker, PickerKind};
use super::status::{Segment, StatusCommand};
use super::theme::Theme;
use super::thread_actions::RewindState;
use super::transcript::{Moment, Transcript};
use super::update::{Completion, MessageQueue, QuestionCards, ThemeState, ThreadLoading};
use super::viewer::Viewer;
use aye_core::contract::event::AgentEvent;
use aye_core::contract::ids::{RunId, ThreadId};
use aye_core::contract::record::{InboxRow, ThreadRecord};

#[cfg(test)]
mod cards_tests;
#[cfg(test)]
mod comfort_tests;
#[cfg(test)]
mod compose_tests;
#[cfg(test)]
mod edited_tests;
#[cfg(test)]
mod images_tests;
#[cfg(test)]
mod rewind_tests;
#[cfg(test)]
mod states_tests;
#[cfg(test)]
pub(super) mod tests;
#[cfg(test)]
mod trust_tests;
#[cfg(test)]
mod widths_tests;

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
    /// Nothing.
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
    /// To the text.
    #[default]
    Composer,
    /// To the card.
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

/// The whole model.
#[derive(Debug)]
pub struct App {
    /// The host's description of itself.
    pub info: HostInfo,
    /// The actions of keys.
    pub keymap: Keymap,
    /// The wall clock at the start.
    pub clock: WallClock,
    /// Columns and rows of the terminal.
    pub size: (u16, u16),
    /// The time of the last message.
    pub now: Moment,
    /// The time of the run's last event.
    pub moved: Moment,
    /// The conversation, once it is open.
    pub thread: Option<ThreadRecord>,
    /// The number of conversations opened, which tells the screen when another one starts.
    pub epoch: u32,
    /// The entries of the conversation.
    pub transcript: Transcript,
    /// The state of the run.
    pub run: RunState,
    /// The latest run.
    pub run_id: Option<RunId>,
    /// The owner of the conversation's active run, if that is another process.
    pub driver: ThreadOwner,
    /// Messages that wait for their turn.
    pub queue: MessageQueue,
    /// Open questions.
    pub cards: QuestionCards,
    /// The target of keys.
    pub focus: Focus,
    /// The text that is written.
    pub composer: Composer,
    /// The keys of vi, while they are in use.
    pub vim: Option<Vim>,
    /// The completions offered for the draft.
    pub completion: Completion,
    /// The segments of the status line, if the user chose them.
    pub segments: Option<Vec<Segment>>,
    /// A command that writes the status line.
    pub feed: StatusCommand,
    /// The layout of changes.
    pub layout: DiffLayout,
    /// Whether animations are off; only the seconds change.
    pub is_calm: bool,
    /// It is written for a screen reader: cards are answered in words and do not take the keys by themselves.
    pub is_linear: bool,
    /// Agents and commands at work in the background.
    pub tasks: usize,
    /// The commands among them: their ids and command lines.
    pub commands: Vec<(String, String)>,
    /// How long the last run took.
    pub last_run_ms: Option<u64>,
    /// A list in place of the text.
    pub picker: Option<Picker>,
    /// The whole transcript on its own screen, while it is open.
    pub viewer: Option<Viewer>,
    /// The conversation on the whole screen, while that is the terminal's other one.
    pub pane: Option<Viewer>,
    /// The pending questions of all conversations, while their list is open.
    pub inbox: Vec<InboxRow>,
    /// The number of pending questions in other conversations.
    pub elsewhere: u64,
    /// The themes and the background of the text.
    pub colours: ThemeState,
    /// Skills that can be called.
    pub skills: Vec<SkillRow>,
    /// Files that would grant or run something, and are not used: the folder is not trusted.
    pub untrusted: Vec<UntrustedRow>,
    /// The folder was trusted: what its files grant or run is used from then on, when nothing is active.
    pub(super) renews: Option<Moment>,
    /// Going back, and the list of conversations.
    pub back: RewindState,
    /// The ledger of grants, while it is shown.
    pub grants: Vec<GrantRow>,
    /// Pictures of the conversation that are shown.
    pub image_cache: ImageCache,
    /// Whether running tools show more of their output.
    pub expanded: bool,
    /// The keys of an unfinished sequence.
    pub begun: Vec<Chord>,
    /// A line for the user that disappears after a while.
    pub hint: Option<(String, Moment)>,
    pub(super) quit_armed: Option<Moment>,
    /// The last key that went into the text.
    pub(super) typed_at: Option<Moment>,
    /// The last entry that was shown whole.
    pub(super) unfolded: Option<u64>,
    pub(super) resumes_by_list: bool,
    /// The place of the last message that the transcript has from the store.
    pub(super) seen: u64,
    /// The last run whose end was reported.
    pub(super) ended: Option<RunId>,
    /// Whether the terminal has the focus. It is assumed to until it reports otherwise.
    pub(super) has_focus: bool,
    /// Whether a question sounds the bell while the terminal does not have the focus.
    pub(super) rings: bool,
    /// When the host was last notified that a question has expired.
    pub(super) expiry_told: Option<Moment>,
    /// Whether the first frame was shown.
    pub(super) is_shown: bool,
    /// Models of the list that need a key first, with the provider that it is stored for.
    pub(super) need_key: Vec<(String, String)>,
    /// Conversations that are being opened, and earlier parts of them that are fetched.
    pub loading: ThreadLoading,
    /// The number of documents opened in the viewer.
    pub(super) books: u32,
    /// The stored state of the draft.
    pub(super) kept: KeptDraft,
    /// Pictures on their way into the text.
    pub(super) attaching: Attaching,
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
    /// The stored text.
    pub(super) text: String,
    /// The conversation for which it is stored.
    pub(super) thread: Option<ThreadId>,
    /// When to store it again.
    pub(super) due: Option<Moment>,
    /// The number of times it was stored.
    pub(super) number: u64,
}

impl App {
    /// An empty model.
    pub fn new(info: HostInfo, keymap: Keymap, clock: WallClock, size: (u16, u16)) -> App {
        let mut app = App {
            info,
            keymap,
            clock,
            size,
            now: Moment::default(),
            moved: Moment::default(),
            thread: None,
            epoch: 0,
            transcript: Transcript::default(),
            run: RunState::Idle,
            run_id: None,
            driver: ThreadOwner::Nobody,
            queue: MessageQueue::default(),
            cards: QuestionCards::default(),
            focus: Focus::Composer,
            composer: Composer::default(),
            vim: None,
            completion: Completion::default(),
            segments: None,
            feed: StatusCommand::default(),
            layout: DiffLayout::Auto,
            is_calm: false,
            is_linear: false,
            tasks: 0,
            commands: Vec::new(),
            last_run_ms: None,
            picker: None,
            viewer: None,
            pane: None,
            inbox: Vec::new(),
            elsewhere: 0,
            colours: ThemeState::default(),
            skills: Vec::new(),
            untrusted: Vec::new(),
            renews: None,
            back: RewindState::default(),
            grants: Vec::new(),
            image_cache: ImageCache::default(),
            expanded: false,
            begun: Vec::new(),
            hint: None,
            quit_armed: None,
            typed_at: None,
            unfolded: None,
            resumes_by_list: false,
            seen: 0,
            ended: None,
            has_focus: true,
            rings: false,
            expiry_told: None,
            is_shown: false,
            need_key: Vec::new(),
            loading: ThreadLoading::default(),
            kept: KeptDraft::default(),
            attaching: Attaching::default(),
            books: 0,
        };
        app.resize(size.0, size.1);
        app
    }

    pub(super) fn resize(&mut self, width: u16, height: u16) {
        self.size = (width, height);
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
        let looked_at = self.picker.as_ref().filter(|picker| picker.kind == PickerKind::Themes);
        let row = looked_at.and_then(Picker::chosen);
        let found = row.and_then(|row| self.colours.listed.iter().find(|theme| theme.name == row.value));
        let choice = found.and_then(|row| row.theme.as_ref().ok()).unwrap_or(&self.colours.theme);
        choice.on(self.colours.background)
    }

    /// The card that keys are for. Beside an active run the question of trust waits in one row.
    pub(super) fn asking_card(&self) -> Option<&Card> {
        self.current_card().filter(|card| card.kind != CardKind::Trust || !self.is_run_active())
    }

    /// Returns the number of pending questions of this conversation.
    pub fn own_cards(&self) -> usize {
        self.cards.open.iter().filter(|card| card.elsewhere.is_none() && !card.is_own()).count()
    }

    /// Whether the terminal's alternate screen is needed.
    pub fn wants_other_screen(&self) -> bool {
        self.viewer.is_some() || self.pane.is_some()
    }

    /// Returns the number of pending questions in other conversations that are not shown here.
    pub fn unseen_elsewhere(&self) -> u64 {
        let shown = self.cards.open.iter().filter(|card| card.elsewhere.is_some()).count();
        self.elsewhere.saturating_sub(shown as u64)
    }

    /// The conversation's id, once it is open.
    pub fn thread_id(&self) -> Option<&ThreadId> {
        self.thread.as_ref().map(|thread| &thread.id)
    }

    /// Whether the run is active.
    pub fn is_run_active(&self) -> bool {
        self.run.active_since().is_some()
    }

    /// Whether the user has not typed for a while.
    pub(super) fn is_quiet(&self) -> bool {
        self.typed_at.is_none_or(|typed| self.now.since(typed) >= QUIET_MS)
    }

    /// Whether the caret is only drawn: frames are drawn continuously, and the user is not in the middle of a
    /// text that an input method may write. Text that is only ASCII is typed without one.
    pub(super) fn parks_caret(&self) -> bool {
        let is_plain = self.composer.text().is_ascii() && self.picker.is_none() && self.cards.open.is_empty();
        let typed = self.typed_at.filter(|_| !is_plain);
        self.is_run_active() && typed.is_none_or(|typed| self.now.since(typed) >= WRITING_MS)
    }

    pub(super) fn show_hint(&mut self, text: impl Into<String>) {
        self.hint = Some((text.into(), self.now.plus(HINT_MS)));
    }

    /// Whether the last run was stopped by a limit and can be continued: then Enter on an empty text does
    /// that.
    pub fn can_continue(&self) -> bool {
        self.transcript.is_stopped()
            && matches!(self.run, RunState::Idle)
            && matches!(self.driver, ThreadOwner::Nobody | ThreadOwner::Own)
            && self.cards.open.is_empty()
            && self.queue.rows.is_empty()
    }

    /// The next time at which the picture changes without anybody doing anything; `None`: never.
    pub fn deadline(&self) -> Option<Moment> {
        let tick = self.run.active_since().filter(|_| !self.is_linear).map(|since| {
            // Until an inference is tried again only the seconds change.
            if let Some(again) = self.transcript.retry_at(self.now) {
                let rest = again.since(self.now) % 1000;
                return self.now.plus(if rest == 0 { 1000 } else { rest });
            }
            // When nothing comes, only the seconds change.
            let is_still = self.now.since(self.moved.max(since)) >= STILL_MS;
            let tick = if is_still || self.is_calm { 1000 } else { TICK_MS };
            let passed = self.now.since(since);
            since.plus((passed / tick + 1) * tick)
        });
        let focus = self.wants_focus().then(|| self.typed_at.map(|typed| typed.plus(QUIET_MS))).flatten();
        let hint = self.hint.as_ref().map(|(_, until)| *until);
        let quit = self.quit_armed.map(|armed| armed.plus(QUIT_MS));
        [
            tick,
            focus,
            hint,
            quit,
            self.expiry_deadline(),
            self.kept.due,
            self.feed.deadline(),
            self.renewal_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Whether a card would take the focus if the user stopped typing.
    fn wants_focus(&self) -> bool {
        self.focus == Focus::Composer
            && self.asking_card().is_some()
            && self.composer.is_empty()
            && self.begun.is_empty()
            && self.picker.is_none()
            && self.viewer.is_none()
            && !self.cards.stays
            && !self.is_linear
    }

    /// Brings focus, card number and hints in line with what happened.
    pub(super) fn settle(&mut self) {
        if self.hint.as_ref().is_some_and(|(_, until)| *until <= self.now) {
            self.hint = None;
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
