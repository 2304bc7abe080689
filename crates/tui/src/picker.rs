//! Lists to choose from, in place of the composer.
//!
//! They may be long: the text that a filter searches is built once, and the matching rows are kept until the filter
//! changes.

use super::wrap::width;

/// The kind of a list, and the effect of choosing from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PickerKind {
    Threads,
    /// Opens a question of any conversation.
    Inbox,
    Models,
    /// Puts a skill into the text.
    Skills,
    Rules,
    /// The ledger of grants.
    Grants,
    Grant,
    /// Goes back to a message.
    Back,
    /// Copies a conversation up to a place.
    Fork,
    /// Chooses what goes back.
    RewindTarget,
    /// The actions for a conversation.
    Thread,
    /// Names a conversation: what is typed is the name.
    NameThread,
    /// Asks whether to delete a conversation.
    DeleteThread,
    /// Chooses a conversation to put beside another.
    Compare,
    /// Chooses the colours; what is chosen is shown at once.
    Themes,
    /// Chooses the permission mode.
    Modes,
    /// Chooses how hard models think.
    Efforts,
    /// Chooses a provider to store a key for.
    Logins,
    /// Takes a key: what is typed is the key, and not shown.
    Key,
    /// Puts what was said before into the text.
    History,
    /// Shows the keys and commands.
    Help,
}

impl PickerKind {
    /// The line above the list.
    pub fn title(self) -> &'static str {
        match self {
            PickerKind::Threads => "Conversations",
            PickerKind::Inbox => "Inbox",
            PickerKind::Models => "Models",
            PickerKind::Skills => "Skills",
            PickerKind::Rules => "Permission rules in force",
            PickerKind::Grants => "Grants",
            PickerKind::Grant => "A grant",
            PickerKind::Back => "Rewind to before",
            PickerKind::Fork => "Fork at",
            PickerKind::RewindTarget => "Rewind",
            PickerKind::Thread => "A conversation",
            PickerKind::NameThread => "Name:",
            PickerKind::DeleteThread => "Delete this conversation and its messages?",
            PickerKind::Compare => "Compare with",
            PickerKind::Themes => "Themes",
            PickerKind::Modes => "Permission mode",
            PickerKind::Efforts => "Reasoning effort",
            PickerKind::Logins => "Log in to",
            PickerKind::Key => "Key:",
            PickerKind::History => "Your earlier messages",
            PickerKind::Help => "Keys and commands",
        }
    }

    /// Returns the label of what Enter does.
    pub fn verb(self) -> Option<&'static str> {
        match self {
            PickerKind::Threads | PickerKind::Grants => Some("open"),
            PickerKind::Grant
            | PickerKind::Back
            | PickerKind::Fork
            | PickerKind::Thread
            | PickerKind::DeleteThread
            | PickerKind::Logins
            | PickerKind::Compare => Some("choose"),
            PickerKind::RewindTarget => Some("rewind"),
            PickerKind::NameThread => Some("name"),
            PickerKind::Inbox => Some("answer"),
            PickerKind::Models | PickerKind::Modes | PickerKind::Efforts | PickerKind::Themes => Some("use"),
            PickerKind::Key => Some("check and store"),
            PickerKind::Skills | PickerKind::History => Some("write"),
            PickerKind::Rules | PickerKind::Help => None,
        }
    }
}

/// One row of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PickRow {
    /// The value that Enter returns.
    pub value: String,
    /// The label of the row.
    pub label: String,
    /// More information about the row.
    pub detail: String,
    /// Said at the right.
    pub note: String,
    /// Why it cannot be chosen, when it cannot.
    pub unusable: Option<String>,
    /// A heading over the rows below it.
    pub is_heading: bool,
}

/// A list, what was typed to narrow it, and the chosen row.
#[derive(Clone, Debug, PartialEq)]
pub struct Picker {
    /// The purpose of the list.
    pub kind: PickerKind,
    /// All rows; `None` while they are fetched.
    rows: Option<Vec<PickRow>>,
    /// The text that the filter searches, row by row; created when the first letter is typed.
    folded: Vec<String>,
    /// The places of the rows that fit what was typed.
    fitting: Vec<usize>,
    /// Columns of the widest label among them.
    widest: usize,
    filter: String,
    selected: usize,
}

impl Picker {
    /// A list whose rows are still fetched.
    pub fn loading(kind: PickerKind) -> Picker {
        Picker {
            kind,
            rows: None,
            folded: Vec::new(),
            fitting: Vec::new(),
            widest: 0,
            filter: String::new(),
            selected: 0,
        }
    }

    pub fn new(kind: PickerKind, rows: Vec<PickRow>) -> Picker {
        let mut picker = Picker::loading(kind);
        picker.fill(rows);
        picker
    }

    /// Sets the rows, for the first time or again; the selected row stays selected as long as it exists.
    pub fn fill(&mut self, rows: Vec<PickRow>) {
        let chosen = self.chosen().map(|row| row.value.clone()).filter(|value| !value.is_empty());
        let before = self.selected;
        self.rows = Some(rows);
        self.folded.clear();
        self.narrow();
        let again = chosen.and_then(|chosen| {
            self.fitting.iter().position(|at| self.row(*at).is_some_and(|row| row.value == chosen))
        });
        self.selected = again.unwrap_or_else(|| before.min(self.count().saturating_sub(1)));
    }

    fn row(&self, at: usize) -> Option<&PickRow> {
        self.rows.as_ref()?.get(at)
    }

    /// Finds the rows that fit what was typed.
    fn narrow(&mut self) {
        let rows = self.rows.as_deref().unwrap_or_default();
        let words = self.words();
        if words.is_empty() {
            self.fitting = (0..rows.len()).collect();
        } else {
            if self.folded.len() != rows.len() {
                let fold = |row: &PickRow| {
                    format!("{} {} {} {}", row.label, row.detail, row.note, row.value).to_lowercase()
                };
                self.folded = rows.iter().map(fold).collect();
            }
            let fits = |at: &usize| {
                !rows[*at].is_heading && words.iter().all(|word| self.folded[*at].contains(word.as_str()))
            };
            self.fitting = (0..rows.len()).filter(fits).collect();
        }
        let labels = self.fitting.iter().map(|at| &rows[*at]).filter(|row| !row.is_heading);
        self.widest = labels.map(|row| width(&row.label)).max().unwrap_or(0);
    }

    /// Replaces the typed text.
    pub fn set_filter(&mut self, text: impl Into<String>) {
        self.filter = text.into();
        self.narrow();
    }

    /// Whether rows are still being fetched.
    pub fn is_loading(&self) -> bool {
        self.rows.is_none()
    }

    /// Returns the typed filter.
    pub fn filter(&self) -> &str {
        &self.filter
    }

    /// Returns the words of the filter, in lower case. Where the typed text is no filter there are none.
    pub fn words(&self) -> Vec<String> {
        match self.kind {
            PickerKind::NameThread | PickerKind::Key => Vec::new(),
            _ => self.filter.split_whitespace().map(str::to_lowercase).collect(),
        }
    }

    /// The place of the chosen row among those that fit.
    pub fn selected(&self) -> usize {
        self.selected
    }

    /// Returns the number of rows that match the filter.
    pub fn count(&self) -> usize {
        self.fitting.len()
    }

    /// Columns of the widest label of those that fit.
    pub fn widest(&self) -> usize {
        self.widest
    }

    /// Returns at most `most` matching rows, starting with number `from`, each with its position among the
    /// matches.
    pub fn window(&self, from: usize, most: usize) -> impl Iterator<Item = (usize, &PickRow)> {
        let shown = self.fitting.iter().enumerate().skip(from).take(most);
        shown.filter_map(|(place, at)| Some((place, self.row(*at)?)))
    }

    pub fn chosen(&self) -> Option<&PickRow> {
        self.row(*self.fitting.get(self.selected)?)
    }

    /// Moves the choice, stopping at the ends. A heading cannot be chosen where something is.
    pub fn step(&mut self, by: isize) {
        let (before, last) = (self.selected, self.count().saturating_sub(1));
        self.selected = self.selected.saturating_add_signed(by).min(last);
        if self.kind.verb().is_none() {
            return;
        }
        while self.chosen().is_some_and(|row| row.is_heading) {
            let next = self.selected.saturating_add_signed(by.signum()).min(last);
            if next == self.selected {
                self.selected = before;
                return;
            }
            self.selected = next;
        }
    }

    /// Goes to the first or the last row.
    pub fn end(&mut self, last: bool) {
        self.selected = if last { self.count().saturating_sub(1) } else { 0 };
    }

    /// Narrows the list.
    pub fn type_in(&mut self, c: char) {
        self.type_all(std::iter::once(c));
    }

    /// Narrows the list by several letters at once.
    pub fn type_all(&mut self, letters: impl Iterator<Item = char>) {
        self.filter.extend(letters);
        self.selected = 0;
        self.narrow();
    }

    /// Deletes the last character. Returns `false` if the filter was empty.
    pub fn delete(&mut self) -> bool {
        self.selected = 0;
        let had = self.filter.pop().is_some();
        if had {
            self.narrow();
        }
        had
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_filters_and_the_selection_stays_inside() {
        let row = |label: &str| PickRow { label: label.into(), ..PickRow::default() };
        let mut picker =
            Picker::new(PickerKind::Models, vec![row("gpt big"), row("gpt small"), row("claude")]);
        picker.step(9);
        assert_eq!(picker.chosen().map(|row| row.label.as_str()), Some("claude"));
        for c in "SMALL gpt".chars() {
            picker.type_in(c);
        }
        assert_eq!(picker.chosen().map(|row| row.label.as_str()), Some("gpt small"));
        picker.type_in('z');
        assert_eq!(picker.chosen(), None);
        picker.step(-1);
        picker.step(1);
        assert!(picker.delete());
        assert!(picker.chosen().is_some());
    }

    #[test]
    fn updated_rows_keep_the_selection_and_the_filter() {
        let row = |value: &str| PickRow { value: value.into(), label: value.into(), ..PickRow::default() };
        let rows = |values: &[&str]| values.iter().map(|value| row(value)).collect::<Vec<_>>();
        let mut picker = Picker::new(PickerKind::Inbox, rows(&["a1", "a2", "b3", "a4"]));
        picker.type_in('A');
        picker.step(1);
        assert_eq!(picker.chosen().map(|row| row.value.as_str()), Some("a2"));
        picker.fill(rows(&["a2", "b3", "a4", "a5"]));
        assert_eq!((picker.chosen().map(|row| row.value.as_str()), picker.count()), (Some("a2"), 3));
        picker.step(1);
        picker.fill(rows(&["a2", "a5"]));
        assert_eq!(picker.chosen().map(|row| row.value.as_str()), Some("a5"), "the one in its place");
        picker.fill(Vec::new());
        assert_eq!((picker.chosen(), picker.selected()), (None, 0));
        picker.fill(rows(&["a9"]));
        assert_eq!(
            picker.window(0, 9).map(|(at, row)| (at, row.value.as_str())).collect::<Vec<_>>(),
            [(0, "a9")]
        );
    }
}
