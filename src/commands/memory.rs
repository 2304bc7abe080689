//! Notes across conversations: `aye memory`, and `/memory` in the terminal.

use std::fmt::Write as _;
use std::io::Read as _;
use std::sync::Arc;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::commands::{put_json, when};
use crate::contract::display::{visible, visible_line};
use crate::contract::storage::SharedStore;
use crate::contract::suspension::Actor;
use crate::failure::{AppError, Failure};
use crate::plugins::memory::{Author, Authorship, MAX_TEXT, Memory, MemoryError, Note, Notes, Scope};
use crate::program::app_context::AppContext;
use crate::program::foundation::Foundation;
use crate::program::memory::places;
use crate::program::{put, put_stderr};
use crate::terminal::editor;
use crate::tui::host::TextPage;

/// `aye memory ...`
#[derive(Clone, Debug, Subcommand)]
#[command(
    after_help = "Examples:\n  aye memory add --user \"answer in German\"\n  aye memory edit p3\n  aye memory forget p1 u2"
)]
pub enum MemoryCommand {
    /// List the notes about you and this project, with date and author
    List {
        /// Include notes about all other projects
        #[arg(long)]
        all: bool,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Add a note about this project
    Add {
        /// Text of the note; `-` reads stdin
        text: String,
        /// A note about you, for all projects
        #[arg(long)]
        user: bool,
        /// The output format.
        #[command(flatten)]
        form: MemoryForm,
    },
    /// Edit a note, in $EDITOR unless TEXT is given
    Edit {
        /// Id of the note; `aye memory list` shows it
        id: String,
        /// New text; `-` reads stdin
        text: Option<String>,
        /// The output format.
        #[command(flatten)]
        form: MemoryForm,
    },
    /// Remove notes for good
    Forget {
        /// Ids of notes; `aye memory list` shows them
        #[arg(required = true)]
        ids: Vec<String>,
        /// The output format.
        #[command(flatten)]
        form: MemoryForm,
    },
}

/// The output format of changed notes.
#[derive(Args, Clone, Copy, Debug)]
pub struct MemoryForm {
    /// Write JSON
    #[arg(long)]
    pub json: bool,
}

fn stamp(actor: Actor, at: u64) -> Authorship {
    Authorship { at, by: Author::Person { user: actor.user, channel: actor.channel }, thread: None }
}

/// `aye memory`.
pub(crate) async fn run(command: MemoryCommand, foundation: &Foundation) -> Result<u8, Failure> {
    let only_lists = matches!(command, MemoryCommand::List { .. });
    let store = if only_lists { foundation.open_store_to_read()? } else { foundation.open_store()? };
    let done = execute(command, &store, foundation).await;
    store.close().await;
    done.map(|()| 0)
}

async fn execute(
    command: MemoryCommand,
    store: &SharedStore,
    foundation: &Foundation,
) -> Result<(), Failure> {
    let notes = places(foundation).access(store.profile_store(store.clock()).map_err(Failure::failed)?);
    let stamp = || stamp(crate::program::app_context::actor(foundation, "cli"), store.clock().now_ms());
    match command {
        MemoryCommand::List { all, json } => list(&notes, foundation, all, json).await,
        MemoryCommand::Add { text, user, form } => {
            let scope = if user { Scope::User } else { Scope::Project };
            let note = notes.add(scope, &given(text)?, &stamp(), None).await.map_err(failed)?;
            put_notes("kept", &[note], form.json)
        }
        MemoryCommand::Edit { id, text, form } => {
            let old = notes.note(&id).await.map_err(failed)?;
            let mut draft = None;
            let text = if let Some(text) = text {
                given(text)?
            } else {
                let made = editor::edit(&foundation.env, &format!("{}\n", old.text), &format!("{id}.txt"))
                    .await
                    .map_err(Failure::failed)?;
                let text = made.text.clone();
                draft = Some(made);
                text
            };
            let new = match notes.update(&id, &text, &stamp()).await {
                Ok((_, new)) => new,
                Err(error) => {
                    let kept =
                        draft.map(|draft| format!("; your text is saved in {}", draft.keep().display()));
                    let failure = failed(error);
                    let message = format!("{}{}", failure.message, kept.unwrap_or_default());
                    return Err(failure.with_message(message));
                }
            };
            let words = if new.text == old.text { "unchanged" } else { "changed" };
            put_notes(words, &[new], form.json)
        }
        MemoryCommand::Forget { ids, form } => {
            // All are looked up first, so that a typing error removes nothing.
            for id in &ids {
                notes.note(id).await.map_err(failed)?;
            }
            let mut removed = Vec::new();
            for id in &ids {
                match notes.remove(id).await {
                    Ok(note) => removed.push(note),
                    // The note was named twice, or removed by somebody else at the same moment.
                    Err(MemoryError::NoSuchNote { .. }) => {}
                    Err(error) => return Err(failed(error)),
                }
            }
            put_notes("forgotten", &removed, form.json)
        }
    }
}

fn failed(error: MemoryError) -> Failure {
    match error {
        MemoryError::Store(_) => Failure::failed(error),
        MemoryError::Empty
        | MemoryError::TooLong { .. }
        | MemoryError::Full { .. }
        | MemoryError::NoSuchNote { .. } => Failure::usage(error),
    }
}

/// Returns a text of the command line, or all of stdin.
fn given(text: String) -> Result<String, Failure> {
    if text != "-" {
        return Ok(text);
    }
    let mut bytes = Vec::new();
    // One byte more than the limit is enough to detect that the text is too long.
    let most = u64::try_from(MAX_TEXT).unwrap_or(u64::MAX) + 1;
    std::io::stdin()
        .lock()
        .take(most)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::failed(format!("cannot read stdin: {error}")))?;
    String::from_utf8(bytes).map_err(|_| Failure::usage("stdin is not valid UTF-8"))
}

fn put_notes(words: &str, notes: &[Note], json: bool) -> Result<(), Failure> {
    if json {
        return put_json(&json!(notes));
    }
    for note in notes {
        put_stderr(&format!("{words} {}: {}", note.id, visible_line(&note.text)));
    }
    Ok(())
}

async fn list(notes: &Notes, foundation: &Foundation, all: bool, json: bool) -> Result<(), Failure> {
    let mut places = here(notes, foundation).await.map_err(failed)?;
    if all {
        let shown: Vec<String> =
            Scope::ALL.into_iter().map(|scope| self::places(foundation).key(scope).to_string()).collect();
        let others = notes.all().await.map_err(failed)?.into_iter().filter(|(key, _)| !shown.contains(key));
        places.extend(others.map(|(key, memory)| {
            let title = format!("about {}", key.strip_prefix("project::").unwrap_or(&key));
            (title, key, memory)
        }));
    }
    if json {
        let rows: Vec<Value> = places
            .iter()
            .flat_map(|(_, key, memory)| {
                memory.notes.iter().map(move |note| {
                    let mut row = json!(note);
                    row["place"] = json!(key);
                    row
                })
            })
            .collect();
        return put_json(&json!(rows));
    }
    put(&visible(&text(&places)))
}

/// Returns the memory that applies here: a title, the key and the notes for each scope.
async fn here(notes: &Notes, foundation: &Foundation) -> Result<Vec<(String, String, Memory)>, MemoryError> {
    let places = places(foundation);
    let project = format!("about this project, {}", foundation.paths.display(places.project()));
    Ok(vec![
        (
            "about you, in all projects".to_owned(),
            places.key(Scope::User).to_string(),
            notes.read(Scope::User).await?,
        ),
        (project, places.key(Scope::Project).to_string(), notes.read(Scope::Project).await?),
    ])
}

fn text(places: &[(String, String, Memory)]) -> String {
    let mut out = String::new();
    for (title, _, memory) in places {
        if !out.is_empty() {
            out.push('\n');
        }
        let _ = writeln!(out, "{title}");
        if memory.notes.is_empty() {
            out.push_str("  nothing\n");
        }
        for note in &memory.notes {
            let _ = writeln!(out, "  {:<4} {}", note.id, origin(note));
            for line in note.text.lines() {
                let _ = writeln!(out, "       {line}");
            }
        }
    }
    out
}

/// The same on a page.
fn on_page(places: &[(String, String, Memory)]) -> String {
    let mut out = String::new();
    for (title, _, memory) in places {
        let gap = if out.is_empty() { "" } else { "\n" };
        let _ = writeln!(out, "{gap}── {title}");
        if memory.notes.is_empty() {
            out.push_str("nothing\n");
        }
        for note in &memory.notes {
            let mut lines = note.text.lines();
            let first = visible_line(lines.next().unwrap_or_default());
            let _ = writeln!(out, "{}\t{first}\t{}", note.id, origin(note));
            for line in lines {
                let _ = writeln!(out, "\t{}", visible_line(line));
            }
        }
    }
    out
}

/// Describes when, by whom and where a note was written, on one line.
fn origin(note: &Note) -> String {
    let of = |stamp: &Authorship| {
        let by = match &stamp.by {
            Author::Agent { name } => format!("the agent {name}"),
            Author::Person { user, channel } => format!("{user} ({channel})"),
        };
        let thread = stamp.thread.as_ref().map(|id| format!(" in conversation {id}"));
        format!("{} by {by}{}", when(stamp.at), thread.unwrap_or_default())
    };
    let line = if note.made == note.written {
        of(&note.written)
    } else {
        format!("{}, first {}", of(&note.written), of(&note.made))
    };
    visible_line(&line).into_owned()
}

/// Returns the page of `/memory` with its arguments.
pub(crate) async fn page(app: &AppContext, words: &str) -> Result<TextPage, AppError> {
    let foundation = &app.foundation;
    let notes = places(foundation).access(Arc::clone(app.runtime.profiles()));
    let stamp = stamp(app.actor("terminal"), app.clock.now_ms());
    let (verb, rest) = words.split_once(char::is_whitespace).unwrap_or((words, ""));
    let rest = rest.trim();
    let failed = |error: MemoryError| error.to_string();
    let page = |title: String, text: String| Ok(TextPage { title, text, ..TextPage::default() });
    match (verb, rest) {
        ("" | "list", "") => {
            let mut text = on_page(&here(&notes, foundation).await.map_err(failed)?);
            text.push_str(
                "\n`/memory add TEXT` adds a note about this project, `/memory add --user TEXT` one about \
                 you;\n`/memory edit ID TEXT` changes a note, `/memory forget ID` removes one.\n",
            );
            page("Memory".to_owned(), text)
        }
        ("add", rest) if !rest.is_empty() => {
            let (scope, rest) = match rest.strip_prefix("--user") {
                Some(rest) if rest.starts_with(char::is_whitespace) => (Scope::User, rest),
                Some(_) | None => (Scope::Project, rest),
            };
            let note = notes.add(scope, rest, &stamp, None).await.map_err(failed)?;
            page(format!("added as {}", note.id), note.text)
        }
        ("edit", rest) if !rest.is_empty() => {
            if let Some((id, text)) = rest.split_once(char::is_whitespace) {
                let (_, new) = notes.update(id, text, &stamp).await.map_err(failed)?;
                page(format!("changed {}", new.id), new.text)
            } else {
                let note = notes.note(rest).await.map_err(failed)?;
                let how = format!("/memory edit {rest} TEXT replaces it");
                page(format!("note {rest}"), format!("{}\n{}\n\n{how}\n", origin(&note), note.text))
            }
        }
        ("forget", id) if !id.is_empty() => {
            let note = notes.remove(id).await.map_err(failed)?;
            page(format!("removed {}", note.id), note.text)
        }
        _ => Err("/memory, /memory add TEXT, /memory edit ID TEXT or /memory forget ID".into()),
    }
}
