//! Lists to choose from, in place of the composer.

/// What is chosen from a list, and what choosing does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PickerKind {
    /// Opens a conversation.
    Threads,
    /// Chooses a model.
    Models,
    /// Puts a skill into the text.
    Skills,
    /// Rules, to look at.
    Rules,
    /// The ledger of grants.
    Grants,
    /// One grant.
    Grant,
    /// Chooses how much is asked.
    Modes,
    /// Keys and commands, to look at.
    Help,
}

impl PickerKind {
    /// The line above the list.
    pub fn title(self) -> &'static str {
        match self {
            PickerKind::Threads => "Conversations",
            PickerKind::Models => "Models",
            PickerKind::Skills => "Skills",
            PickerKind::Rules => "Permission rules in force",
            PickerKind::Grants => "Grants: what you allowed from now on",
            PickerKind::Grant => "A grant",
            PickerKind::Modes => "How much is asked",
            PickerKind::Help => "Keys and commands",
        }
    }

    /// What Enter does.
    pub fn verb(self) -> Option<&'static str> {
        match self {
            PickerKind::Threads | PickerKind::Grants => Some("open"),
            PickerKind::Grant => Some("choose"),
            PickerKind::Models | PickerKind::Modes => Some("use"),
            PickerKind::Skills => Some("write"),
            PickerKind::Rules | PickerKind::Help => None,
        }
    }
}

/// One row of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PickRow {
    /// What Enter hands on.
    pub value: String,
    /// What it is called.
    pub label: String,
    /// What else there is to say.
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
    /// What it is for.
    pub kind: PickerKind,
    /// All rows; `None` while they are fetched.
    rows: Option<Vec<PickRow>>,
    filter: String,
    selected: usize,
}

impl Picker {
    /// A list whose rows are still fetched.
    pub fn loading(kind: PickerKind) -> Picker {
        Picker { kind, rows: None, filter: String::new(), selected: 0 }
    }

    /// A list.
    pub fn new(kind: PickerKind, rows: Vec<PickRow>) -> Picker {
        Picker { rows: Some(rows), ..Picker::loading(kind) }
    }

    /// The rows have come.
    pub fn fill(&mut self, rows: Vec<PickRow>) {
        self.rows = Some(rows);
        self.selected = 0;
    }

    /// Whether rows are still fetched.
    pub fn is_loading(&self) -> bool {
        self.rows.is_none()
    }

    /// What was typed.
    pub fn filter(&self) -> &str {
        &self.filter
    }

    /// The place of the chosen row among [`Picker::shown`].
    pub fn selected(&self) -> usize {
        self.selected
    }

    /// The rows that fit what was typed.
    pub fn shown(&self) -> Vec<&PickRow> {
        let words: Vec<String> = self.filter.split_whitespace().map(str::to_lowercase).collect();
        let fits = |row: &&PickRow| {
            let text = format!("{} {} {} {}", row.label, row.detail, row.note, row.value).to_lowercase();
            words.is_empty() || (!row.is_heading && words.iter().all(|word| text.contains(word)))
        };
        self.rows.iter().flatten().filter(fits).collect()
    }

    /// The chosen row.
    pub fn chosen(&self) -> Option<&PickRow> {
        self.shown().get(self.selected).copied()
    }

    /// Moves the choice, stopping at the ends.
    pub fn step(&mut self, by: isize) {
        let last = self.shown().len().saturating_sub(1);
        self.selected = self.selected.saturating_add_signed(by).min(last);
    }

    /// Goes to the first or the last row.
    pub fn end(&mut self, last: bool) {
        self.selected = if last { self.shown().len().saturating_sub(1) } else { 0 };
    }

    /// Narrows the list.
    pub fn type_in(&mut self, c: char) {
        self.filter.push(c);
        self.selected = 0;
    }

    /// Takes back the last letter. `false`: there was none.
    pub fn delete(&mut self) -> bool {
        self.selected = 0;
        self.filter.pop().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_narrows_and_the_choice_stays_inside() {
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
}
