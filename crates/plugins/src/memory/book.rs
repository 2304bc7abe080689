//! The notes of one scope: plain data, and what may be done with it.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use aye_core::contract::display::{escape_markup, visible};

/// Bytes of one note.
pub const MAX_TEXT: usize = 2048;
/// Notes of one scope.
pub const MAX_NOTES: usize = 64;
/// Bytes that the notes of one scope may have in a prompt.
pub const MAX_RENDERED: usize = 8 * 1024;

/// Whom a note is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// The user, in all projects.
    User,
    Project,
}

impl Scope {
    /// Both scopes, in their order in a prompt.
    pub const ALL: [Self; 2] = [Self::User, Self::Project];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Project => "project",
        }
    }

    fn letter(self) -> char {
        match self {
            Self::User => 'u',
            Self::Project => 'p',
        }
    }

    /// Returns the scope that a note's id names.
    ///
    /// # Errors
    /// [`MemoryError::NoSuchNote`] if the text is not an id.
    pub fn of(id: &str) -> Result<Self, MemoryError> {
        Self::ALL
            .into_iter()
            .find(|scope| {
                id.strip_prefix(scope.letter()).is_some_and(|number| {
                    !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
                })
            })
            .ok_or_else(|| MemoryError::NoSuchNote { id: id.to_owned() })
    }
}

/// The author of a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Author {
    /// A model, as this agent.
    Agent { name: String },
    Person {
        /// The name of their account.
        user: String,
        /// The place where they wrote the text: the terminal, the command line.
        channel: String,
    },
}

/// When, by whom and in which conversation a text was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authorship {
    /// Unix milliseconds.
    pub at: u64,
    pub by: Author,
    /// The conversation, when there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The note's id; `u1` belongs to the user, `p1` to the project. Never reused.
    pub id: String,
    /// The text. Invisible characters are written out in it.
    pub text: String,
    /// The origin of the note.
    pub made: Authorship,
    /// The origin of the current text.
    pub written: Authorship,
    /// The call that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
}

/// Why notes were not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    #[error("the note is empty; nothing changed")]
    Empty,
    #[error("this note has {size} bytes; the maximum is {MAX_TEXT}; nothing changed")]
    TooLong {
        /// Its bytes.
        size: usize,
    },
    #[error(
        "the memory of the {} is full ({MAX_NOTES} notes, or {MAX_RENDERED} bytes of them); remove or shorten some first",
        scope.as_str()
    )]
    Full {
        /// The memory that is full.
        scope: Scope,
    },
    #[error("unknown note {}; nothing changed", aye_core::contract::display::visible_line(id))]
    NoSuchNote { id: String },
    /// The storage of the notes failed.
    #[error("memory is unavailable: {0}")]
    Store(String),
}

/// All notes of one scope.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// The number of the newest note that ever was.
    #[serde(default)]
    pub last: u64,
    /// The notes, oldest first.
    #[serde(default)]
    pub notes: Vec<Note>,
}

impl Memory {
    /// A note.
    ///
    /// # Errors
    /// [`MemoryError::NoSuchNote`].
    pub fn note(&self, id: &str) -> Result<&Note, MemoryError> {
        self.notes
            .iter()
            .find(|note| note.id == id)
            .ok_or_else(|| MemoryError::NoSuchNote { id: id.to_owned() })
    }

    /// Keeps a note. One with the same text stays as it is and is given, and so is the one that the same call made.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub fn add(
        &mut self,
        scope: Scope,
        text: &str,
        stamp: Authorship,
        call: Option<&str>,
    ) -> Result<Note, MemoryError> {
        let text = checked(text)?;
        let known = |note: &&Note| note.text == text || (call.is_some() && note.call.as_deref() == call);
        if let Some(note) = self.notes.iter().find(known) {
            return Ok(note.clone());
        }
        let id = format!("{}{}", scope.letter(), self.last + 1);
        let note = Note { id, text, made: stamp.clone(), written: stamp, call: call.map(str::to_owned) };
        if self.notes.len() >= MAX_NOTES || self.rendered() + rendered(scope, &note).len() > MAX_RENDERED {
            return Err(MemoryError::Full { scope });
        }
        self.last += 1;
        self.notes.push(note.clone());
        Ok(note)
    }

    /// Replaces a note's text. The note's author is from then on whoever replaced the text: a model cannot
    /// put its text into a user's note and leave the note attributed to the user.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub fn update(&mut self, id: &str, text: &str, stamp: Authorship) -> Result<(Note, Note), MemoryError> {
        let text = checked(text)?;
        let scope = Scope::of(id)?;
        let old = self.note(id)?.clone();
        if old.text == text {
            return Ok((old.clone(), old));
        }
        let new = Note { text, written: stamp, ..old.clone() };
        let size = self.rendered() - rendered(scope, &old).len() + rendered(scope, &new).len();
        if size > MAX_RENDERED {
            return Err(MemoryError::Full { scope });
        }
        for note in &mut self.notes {
            if note.id == id {
                note.clone_from(&new);
            }
        }
        Ok((old, new))
    }

    /// Removes a note.
    ///
    /// # Errors
    /// [`MemoryError::NoSuchNote`].
    pub fn remove(&mut self, id: &str) -> Result<Note, MemoryError> {
        let at = self.notes.iter().position(|note| note.id == id);
        at.map(|at| self.notes.remove(at)).ok_or_else(|| MemoryError::NoSuchNote { id: id.to_owned() })
    }

    fn rendered(&self) -> usize {
        self.notes.iter().map(|note| Scope::of(&note.id).map_or(0, |scope| rendered(scope, note).len())).sum()
    }

    /// The notes up to a number as elements, one after the other: the same bytes as long as none of them changes.
    pub fn elements(&self, scope: Scope, up_to: u64) -> String {
        let shown = |note: &&Note| number(&note.id).is_some_and(|number| number <= up_to);
        self.notes.iter().filter(shown).map(|note| rendered(scope, note)).collect()
    }
}

fn number(id: &str) -> Option<u64> {
    id.get(1..)?.parse().ok()
}

/// Returns a text as it is stored: invisible characters are written out, so that nothing is stored unseen.
fn checked(text: &str) -> Result<String, MemoryError> {
    let text = visible(text.trim()).into_owned();
    if text.is_empty() {
        return Err(MemoryError::Empty);
    }
    if text.len() > MAX_TEXT {
        return Err(MemoryError::TooLong { size: text.len() });
    }
    Ok(text)
}

fn rendered(scope: Scope, note: &Note) -> String {
    let by = match &note.written.by {
        Author::Agent { .. } => "agent",
        Author::Person { .. } => "person",
    };
    let mut out =
        format!("<note id=\"{}\" about=\"{}\" by=\"{by}\"", escape_markup(&note.id), scope.as_str());
    if let Some(day) = day(note.written.at) {
        let _ = write!(out, " day=\"{day}\"");
    }
    // The store is the user's own file, but text that another program wrote into it must not escape its
    // element either.
    let _ = writeln!(out, ">{}</note>", escape_markup(&visible(&note.text)));
    out
}

fn day(at: u64) -> Option<String> {
    let at = jiff::Timestamp::from_millisecond(i64::try_from(at).ok()?).ok()?;
    Some(at.strftime("%Y-%m-%d").to_string())
}
