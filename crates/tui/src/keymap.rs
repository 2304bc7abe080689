//! Keys: a closed list of actions, and a table of chords for each key context.
//!
//! The table is an embedded TOML file with the user's own laid over it; the help is generated from the same table.

use std::collections::HashMap;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

mod chord;
mod load;
#[cfg(test)]
mod tests;

pub use chord::Chord;
pub use load::KeymapError;

/// The context in which a key is pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeyContext {
    /// Anywhere, when the place itself says nothing about the key.
    Global,
    /// In the text that is being written.
    Composer,
    /// In the same, while nothing is written; what is not said here is as when something is.
    Empty,
    /// In the same, while a queued message is chosen; what is not said here is as when nothing is written.
    Queue,
    /// In the same, while letters are commands of vi; what is not said here is as in [`KeyContext::Composer`].
    Vim,
    /// On a question.
    Card,
    List,
    Viewer,
}

impl KeyContext {
    /// All of them, in the order of the help.
    pub const ALL: [KeyContext; 8] = [
        KeyContext::Composer,
        KeyContext::Empty,
        KeyContext::Queue,
        KeyContext::Vim,
        KeyContext::Card,
        KeyContext::List,
        KeyContext::Viewer,
        KeyContext::Global,
    ];

    /// The name of its table.
    pub fn name(self) -> &'static str {
        match self {
            KeyContext::Global => "global",
            KeyContext::Composer => "composer",
            KeyContext::Empty => "empty",
            KeyContext::Queue => "queue",
            KeyContext::Vim => "vim",
            KeyContext::Card => "card",
            KeyContext::List => "list",
            KeyContext::Viewer => "viewer",
        }
    }

    fn from_name(name: &str) -> Option<KeyContext> {
        KeyContext::ALL.into_iter().find(|place| place.name() == name)
    }

    /// Whether keys of the other context are checked while keys go to this one.
    fn meets(self, other: KeyContext) -> bool {
        self.layers().contains(&other)
    }

    /// Returns the tables to check, in order.
    pub fn layers(self) -> &'static [KeyContext] {
        match self {
            KeyContext::Global => &[KeyContext::Global],
            KeyContext::Composer => &[KeyContext::Composer, KeyContext::Global],
            KeyContext::Empty => &[KeyContext::Empty, KeyContext::Composer, KeyContext::Global],
            KeyContext::Queue => {
                &[KeyContext::Queue, KeyContext::Empty, KeyContext::Composer, KeyContext::Global]
            }
            KeyContext::Vim => &[KeyContext::Vim, KeyContext::Composer, KeyContext::Global],
            KeyContext::Card => &[KeyContext::Card, KeyContext::Global],
            KeyContext::List => &[KeyContext::List, KeyContext::Global],
            KeyContext::Viewer => &[KeyContext::Viewer, KeyContext::Global],
        }
    }

    /// The heading of its part of the help.
    pub fn heading(self) -> &'static str {
        match self {
            KeyContext::Global => "Everywhere",
            KeyContext::Composer => "Composer",
            KeyContext::Empty => "Composer, empty",
            KeyContext::Queue => "Queued message (Up in an empty composer)",
            KeyContext::Vim => "Composer, vi keys, outside insert mode",
            KeyContext::Card => "Question card",
            KeyContext::List => "List",
            KeyContext::Viewer => "Viewer, and the mouse on the full screen",
        }
    }
}

macro_rules! actions {
    ($($variant:ident = $name:literal, $help:literal;)*) => {
        /// The action of a key.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Action { $($variant,)* }

        impl Action {
            pub const ALL: &'static [Action] = &[$(Action::$variant,)*];

            /// The name in key files.
            pub fn name(self) -> &'static str {
                match self { $(Action::$variant => $name,)* }
            }

            /// Returns the description of the action for the help.
            pub fn help(self) -> &'static str {
                match self { $(Action::$variant => $help,)* }
            }
        }
    };
}

actions! {
    Send = "send", "send the message; during a run: after the current calls";
    SendBehind = "queue", "queue the message for the next run; pending questions stay";
    Newline = "newline", "insert a new line (also \\ and Enter)";
    Interrupt = "interrupt", "interrupt; twice: clear the text, else rewind";
    FocusCard = "focus-card", "go to the pending question; during a run: queue the message for the next run";
    DeleteOrQuit = "delete-or-quit", "delete to the right; quit from an empty composer";
    CancelOrQuit = "cancel-or-quit", "clear the text, else interrupt; twice: quit";
    Redraw = "redraw", "redraw the screen";
    Suspend = "suspend", "suspend to the shell; fg returns";
    Viewer = "viewer", "open the viewer: the whole transcript, nothing folded away";
    Expand = "expand", "show or fold the full output of tools";
    CycleMode = "cycle-mode", "permission mode: ask, accept-edits, plan";
    Help = "help", "show this list";
    Inbox = "inbox", "open the inbox: pending questions of all conversations";
    Allow = "allow", "allow this once";
    AllowOutside = "allow-outside", "allow this once, outside the sandbox with all your rights";
    Deny = "deny", "deny, with a reason if you like";
    Grant = "grant", "always allow; the rule and its scope are shown first";
    EditCall = "edit-call", "edit the call before allowing it";
    Hunks = "hunks", "choose hunks of a change: keep some, drop the rest";
    Unedit = "unedit", "discard edits";
    Modify = "modify", "request changes; it does not run";
    Explain = "explain", "show why the card asks: rule, reason, folder, risk";
    Comment = "comment", "add a comment to the decision";
    AllowReads = "allow-reads", "allow all pending read-only calls";
    DenyRest = "deny-rest", "deny all other pending calls";
    GrantEnd = "grant-end", "expiry of the rule: never, in 1 h, today, after 1, 5, 20 calls";
    GrantUntil = "grant-until", "custom expiry: a date or a number of calls";
    Stop = "stop", "deny and stop the run";
    WholeCard = "whole-card", "show the call on the whole screen";
    Phone = "phone", "show a QR code that opens the question on a phone";
    NextCard = "next-card", "next question, then your message";
    PreviousCard = "previous-card", "previous question";
    RunAgain = "run-again", "unknown outcome: run again";
    MarkDone = "mark-done", "unknown outcome: mark as done";
    Skip = "skip", "unknown outcome: skip";
    Toggle = "toggle", "select or deselect";
    Accept = "accept", "use the selected item";
    Drop = "drop", "drop the queued message";
    Complete = "complete", "insert the selected item into the text";
    Close = "close", "close";
    Jump = "jump", "inbox: go to the conversation; conversations: more actions";
    NextMessage = "next-message", "next message; in changes: next file";
    PreviousMessage = "previous-message", "previous message; in changes: previous file";
    NextTool = "next-tool", "next call; in changes: next hunk";
    PreviousTool = "previous-tool", "previous call; in changes: previous hunk";
    NextQuestion = "next-question", "next call that needed approval";
    PreviousQuestion = "previous-question", "previous call that needed approval";
    Fold = "fold", "fold or unfold the selected entry; on a file: its hunks";
    FoldAll = "fold-all", "fold or unfold all entries";
    Search = "search", "search";
    SearchNext = "search-next", "next match";
    SearchPrevious = "search-previous", "previous match";
    CopySource = "copy-source", "copy the selection, else the source of the selected entry";
    CodeBlock = "code-block", "copy a code block by its number";
    View = "view", "open the selected entry in your editor";
    ViewAll = "view-all", "open the conversation in your editor";
    OpenImage = "open-image", "open the images of the selected entry in the desktop's program";
    Choose = "choose", "select the entry and start a text selection";
    Mark = "mark", "mark";
    CopyMark = "copy-mark", "copy the selection";
    ToggleSides = "toggle-sides", "changes: side by side or unified";
    ScrollUp = "scroll-up", "up";
    ScrollDown = "scroll-down", "down";
    PageUp = "page-up", "page up";
    PageDown = "page-down", "page down";
    First = "first", "first";
    Last = "last", "last";
    Up = "up", "up; from the first line: queued messages, then earlier ones";
    Down = "down", "down; from the last line: later messages";
    Left = "left", "left";
    Right = "right", "right";
    WordLeft = "word-left", "word left";
    WordRight = "word-right", "word right";
    LineStart = "line-start", "start of the line";
    LineEnd = "line-end", "end of the line";
    TextStart = "text-start", "start of the text";
    TextEnd = "text-end", "end of the text";
    DeleteLeft = "delete-left", "delete to the left";
    DeleteRight = "delete-right", "delete to the right";
    DeleteWordLeft = "delete-word-left", "delete a word to the left";
    DeleteWordRight = "delete-word-right", "delete a word to the right";
    DeleteToStart = "delete-to-start", "delete to the start of the line";
    DeleteToEnd = "delete-to-end", "delete to the end of the line";
    Yank = "yank", "paste the last deleted text";
    YankPop = "yank-pop", "right after a paste: the deletion before it";
    Undo = "undo", "undo";
    Redo = "redo", "redo";
    Transpose = "transpose", "swap the two characters at the cursor";
    TransposeWords = "transpose-words", "swap the two words at the cursor";
    UpperWord = "upper-word", "upper-case the word";
    LowerWord = "lower-word", "lower-case the word";
    CapitalWord = "capital-word", "capitalise the word";
    OpenPaste = "open-paste", "expand a folded paste to edit it";
    AttachImage = "attach-image", "paste an image or text from the clipboard";
    Editor = "editor", "edit the text in your editor";
    History = "history", "search your earlier messages";
    Background = "background", "move command to background";
}

impl Action {
    fn from_name(name: &str) -> Option<Action> {
        Action::ALL.iter().copied().find(|action| action.name() == name)
    }

    /// Whether the action applies in that context.
    pub fn belongs_to(self, place: KeyContext) -> bool {
        use Action as A;
        // Editing actions also apply with the keys of vi.
        let place =
            if matches!(place, KeyContext::Vim | KeyContext::Empty) { KeyContext::Composer } else { place };
        match self {
            A::CancelOrQuit | A::Redraw | A::Suspend | A::Viewer | A::Expand | A::CycleMode => true,
            A::Help | A::Inbox => true,
            A::Send
            | A::SendBehind
            | A::Newline
            | A::Interrupt
            | A::FocusCard
            | A::DeleteOrQuit
            | A::Left
            | A::Right => place == KeyContext::Composer,
            A::WordLeft | A::WordRight | A::LineStart | A::LineEnd | A::TextStart | A::TextEnd => {
                place == KeyContext::Composer
            }
            A::DeleteRight | A::DeleteWordLeft | A::DeleteWordRight | A::DeleteToStart | A::DeleteToEnd => {
                place == KeyContext::Composer
            }
            A::Yank | A::YankPop | A::Undo | A::Redo | A::Transpose | A::TransposeWords => {
                place == KeyContext::Composer
            }
            A::UpperWord | A::LowerWord | A::CapitalWord | A::OpenPaste | A::Editor | A::History => {
                place == KeyContext::Composer
            }
            A::AttachImage | A::Background => place == KeyContext::Composer,
            A::Up | A::Down => matches!(place, KeyContext::Composer | KeyContext::Queue | KeyContext::List),
            A::DeleteLeft => matches!(place, KeyContext::Composer | KeyContext::List),
            A::Drop => place == KeyContext::Queue,
            A::Allow | A::Deny | A::Grant | A::Stop | A::NextCard | A::PreviousCard => {
                place == KeyContext::Card
            }
            A::AllowOutside
            | A::EditCall
            | A::Hunks
            | A::Unedit
            | A::Modify
            | A::Explain
            | A::WholeCard
            | A::Phone
            | A::Comment
            | A::AllowReads
            | A::DenyRest
            | A::GrantEnd
            | A::GrantUntil => place == KeyContext::Card,
            A::RunAgain | A::MarkDone | A::Skip | A::Toggle => place == KeyContext::Card,
            A::ScrollUp | A::ScrollDown => {
                matches!(place, KeyContext::Card | KeyContext::Viewer | KeyContext::Composer)
            }
            A::PageUp | A::PageDown => place != KeyContext::Global,
            A::Accept => matches!(place, KeyContext::Card | KeyContext::List | KeyContext::Queue),
            A::Complete | A::Jump => place == KeyContext::List,
            A::Close => matches!(place, KeyContext::List | KeyContext::Viewer | KeyContext::Queue),
            A::First | A::Last => matches!(place, KeyContext::List | KeyContext::Viewer),
            A::NextMessage | A::PreviousMessage | A::NextTool | A::PreviousTool => {
                place == KeyContext::Viewer
            }
            A::NextQuestion | A::PreviousQuestion | A::Fold | A::FoldAll => place == KeyContext::Viewer,
            A::ToggleSides => matches!(place, KeyContext::Card | KeyContext::Viewer),
            A::Search => matches!(place, KeyContext::Viewer | KeyContext::Composer),
            A::SearchNext | A::SearchPrevious | A::CopySource | A::CodeBlock => place == KeyContext::Viewer,
            A::View | A::ViewAll | A::OpenImage | A::Choose | A::Mark | A::CopyMark => {
                place == KeyContext::Viewer
            }
        }
    }
}

/// The actions of chords, by context.
#[derive(Clone, Debug, PartialEq)]
pub struct Keymap {
    bindings: HashMap<(KeyContext, Chord), Action>,
    /// The chords of an action in the order of the files, for the help.
    order: Vec<(KeyContext, Chord)>,
    /// Sequences of keys. One that was pressed whole counts as a key of its own, see [`Chord::of_sequence`].
    sequences: Vec<Vec<Chord>>,
}

/// The meaning of a key after the keys pressed before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stroke {
    /// A key, or the key that represents the sequence it completes.
    Key(KeyEvent),
    /// The sequence may continue.
    Pending,
    /// No sequence continues with this key.
    Nothing,
}

impl Keymap {
    /// Returns the action of a key in a context; see [`KeyContext::layers`].
    pub fn action(&self, place: KeyContext, key: KeyEvent) -> Option<Action> {
        self.action_of(place, Chord::of(key))
    }

    /// The same for a chord.
    pub fn action_of(&self, place: KeyContext, chord: Chord) -> Option<Action> {
        place.layers().iter().find_map(|place| self.bindings.get(&(*place, chord))).copied()
    }

    /// A key that does this in a place.
    pub fn key_of(&self, place: KeyContext, action: Action) -> Option<KeyEvent> {
        self.chords(place, action).next().map(Chord::key)
    }

    /// Returns the action in this context's own table, without those that it falls back to.
    pub fn own(&self, place: KeyContext, key: KeyEvent) -> Option<Action> {
        self.bindings.get(&(place, Chord::of(key))).copied()
    }

    /// Returns the meaning of a key in a context, after the keys of an incomplete sequence.
    pub fn stroke(&self, places: &[KeyContext], begun: &[Chord], key: KeyEvent) -> Stroke {
        let chord = Chord::of(key);
        let mut can_continue = false;
        for (number, sequence) in self.sequences.iter().enumerate() {
            let Some(rest) = sequence.strip_prefix(begun).and_then(|rest| rest.strip_prefix(&[chord])) else {
                continue;
            };
            let whole = Chord::of_sequence(number);
            if !places.iter().any(|place| self.bindings.contains_key(&(*place, whole))) {
                continue;
            }
            if rest.is_empty() {
                return Stroke::Key(whole.key());
            }
            can_continue = true;
        }
        match (can_continue, begun.is_empty()) {
            (true, _) => Stroke::Pending,
            (false, true) => Stroke::Key(key),
            (false, false) => Stroke::Nothing,
        }
    }

    /// Returns how an incomplete sequence can continue: the keys, and their actions.
    pub fn continuations_of(&self, places: &[KeyContext], begun: &[Chord]) -> Vec<(String, &'static str)> {
        let of = |(number, sequence): (usize, &Vec<Chord>)| {
            let rest = sequence.strip_prefix(begun).filter(|rest| !rest.is_empty())?;
            let whole = Chord::of_sequence(number);
            let action = places.iter().find_map(|place| self.bindings.get(&(*place, whole)))?;
            Some((chord::written(rest), action.help()))
        };
        self.sequences.iter().enumerate().filter_map(of).collect()
    }

    /// Returns the usual notation of a key or a sequence.
    fn text(&self, chord: Chord) -> String {
        let sequence = chord.sequence().and_then(|number| self.sequences.get(number));
        sequence.map_or_else(|| chord.to_string(), |chords| chord::written(chords))
    }

    /// Returns the usual notation of the first chord of an action; empty if it has none.
    pub fn chord_of(&self, place: KeyContext, action: Action) -> String {
        self.chords(place, action).next().map(|chord| self.text(chord)).unwrap_or_default()
    }

    fn chords(&self, place: KeyContext, action: Action) -> impl Iterator<Item = Chord> + '_ {
        self.order
            .iter()
            .filter(move |key| key.0 == place && self.bindings.get(key) == Some(&action))
            .map(|key| key.1)
    }

    /// Returns the usual notation of all chords of an action.
    pub fn chords_of(&self, place: KeyContext, action: Action) -> Vec<String> {
        self.chords(place, action).map(|chord| self.text(chord)).collect()
    }

    /// The help of a place: chords and what they do.
    pub fn help(&self, place: KeyContext) -> Vec<(String, &'static str)> {
        Action::ALL
            .iter()
            .filter_map(|action| {
                let chords = self.chords_of(place, *action);
                (!chords.is_empty()).then(|| (chords.join(" "), action.help()))
            })
            .collect()
    }
}

impl Default for Keymap {
    fn default() -> Keymap {
        Keymap::embedded()
    }
}

/// The character that a key types, when it types one.
pub fn typed(key: KeyEvent) -> Option<char> {
    match key.code {
        KeyCode::Char(c) if (key.modifiers - KeyModifiers::SHIFT).is_empty() => Some(c),
        _ => None,
    }
}
