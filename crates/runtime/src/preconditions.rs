//! Preconditions of an approval; if one changes, the question is asked again.
//!
//! The question stores what the card showed: the arguments, the folder, what git has checked out, and the content of
//! each file that the call depends on. When the decision comes, all of it is compared again. The new question lists
//! what changed.

use std::io::Read as _;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::call::sorted;
use super::driver::Driver;
use super::git::{GitHead, short};
use super::ready::ReadyCall;
use super::request::RuntimeError;
use super::user_edit::reviewed_files;
use aye_core::contract::diff::unified;
use aye_core::contract::digest::{hex, sha256_hex};
use aye_core::contract::display::visible_line;
use aye_core::contract::ids::CallId;
use aye_core::contract::message::ToolCall;
use aye_core::contract::question::{FileDelta, Question, QuestionParameters, StaleQuestion};
use aye_core::contract::suspension::{SuspendTicket, ToolCallResumeMode};
use aye_core::contract::tool::{
    AgreedFile, FilePreview, MAX_TOUCHED, ParsedCall, ToolCallContext, ToolResult,
};
use aye_core::run::{Call, Fact, Gate, Settled};
use aye_files::opener::{self, FilePlace};

/// Maximum bytes of a file to hash; of a larger file the start and the size are hashed.
const MAX_HASHED: u64 = 8 << 20;
/// Texts of files that a question keeps, all together; the same for what it says of their changes.
const MAX_KEPT: usize = 64 << 10;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Preconditions {
    /// SHA-256 of the tool and its arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<String>,
    /// The folder that tools work in.
    #[serde(skip_serializing_if = "Option::is_none")]
    cwd: Option<String>,
    /// The git branch and commit; `None` outside a repository.
    git: Option<GitHead>,
    /// Each file that the call depends on.
    files: Vec<SeenFile>,
    /// Unix milliseconds.
    asked_at: u64,
}

/// One file as it was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct SeenFile {
    path: String,
    /// `None` when it was not there.
    hash: Option<String>,
    /// The file's content, if it is text and short. Content that a preview shows is not stored twice.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

impl SeenFile {
    fn of_preview(preview: &FilePreview) -> Self {
        Self { path: name(&preview.path), hash: preview.before.clone(), text: None }
    }

    /// Reads a file. Anything but a regular file counts as missing. If a link is on the path, only the hash is kept: a
    /// folder that is exchanged for a link must not bring the text of another file into the question.
    fn read_state(path: &Path, room: &mut usize) -> Self {
        let path_name = name(path);
        let Some((real, bytes, size)) = read(path) else {
            return Self { path: path_name, hash: None, text: None };
        };
        let mut hash = Sha256::new();
        hash.update(&bytes);
        if size > MAX_HASHED {
            hash.update(size.to_le_bytes());
        }
        let text = String::from_utf8(bytes).ok().filter(|text| real == path && text.len() <= *room);
        *room -= text.as_ref().map_or(0, String::len);
        Self { path: path_name, hash: Some(hex(&hash.finalize())), text }
    }
}

/// Reads the start of a regular file, its size, and where it is. The path is resolved once, and exactly that is opened.
fn read(path: &Path) -> Option<(PathBuf, Vec<u8>, u64)> {
    let real = opener::resolve(path).ok()?;
    let file = FilePlace::of(&real).ok()?.open_regular().ok()?;
    let size = file.metadata().ok()?.len();
    let mut bytes = Vec::new();
    file.take(MAX_HASHED).read_to_end(&mut bytes).ok()?;
    Some((real, bytes, size))
}

fn name(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The differences between two sets of preconditions.
#[derive(Debug, Default, PartialEq)]
struct Moved {
    /// One sentence for each thing.
    words: Vec<String>,
    /// Files that changed, and how.
    deltas: Vec<FileDelta>,
}

/// The inputs of a comparison besides the preconditions.
struct Compare<'a> {
    /// Whether the arguments that run differ from those of the question because the user edited them.
    is_edited: bool,
    /// Texts of the files of the question's preview, then and now.
    shown: &'a [FilePreview],
    now: &'a [FilePreview],
    /// Files that other calls of the same turn wrote.
    own: &'a [String],
}

impl Preconditions {
    /// Returns what has changed since.
    fn moved(&self, now: &Preconditions, with: &Compare<'_>) -> Moved {
        let mut moved = Moved::default();
        if !with.is_edited && self.arguments.is_some() && self.arguments != now.arguments {
            moved.words.push("the arguments differ from those in the question".to_owned());
        }
        if let Some(then) = &self.cwd
            && Some(then) != now.cwd.as_ref()
        {
            let here = now.cwd.as_deref().unwrap_or_default();
            moved.words.push(format!(
                "the folder was {}, now it is {}",
                visible_line(then),
                visible_line(here)
            ));
        }
        // Without a folder the head was never read.
        if self.cwd.is_some() && self.git != now.git {
            moved.words.push(head_moved(self.git.as_ref(), now.git.as_ref()));
        }
        let mut room = MAX_KEPT;
        for then in &self.files {
            let now_file = now.files.iter().find(|file| file.path == then.path);
            let Some(words) = file_moved(then, now_file) else { continue };
            let shown_name = shown(&then.path, self.cwd.as_deref());
            let by = if with.own.contains(&then.path) { " (by another call of this turn)" } else { "" };
            moved.words.push(format!("{} {words}{by}", visible_line(shown_name)));
            let old = text_of(&then.path, Some(then), with.shown);
            let new = text_of(&then.path, now_file, with.now);
            let hash = now_file.and_then(|file| file.hash.as_ref());
            if let (Some(old), Some(new), Some(_)) = (old, new, hash) {
                let diff = delta(shown_name, old, new, &mut room);
                moved.deltas.extend(diff.map(|diff| FileDelta { path: then.path.clone(), diff }));
            }
        }
        for file in with.now {
            let path = name(&file.path);
            if self.files.iter().all(|known| known.path != path) {
                moved.words.push(format!(
                    "it would change {}, which the question did not show",
                    visible_line(&path)
                ));
            }
            match with.shown.iter().find(|old| old.path == file.path) {
                Some(old) if !with.is_edited && old.before == file.before && old.after != file.after => {
                    moved.words.push(format!("the change of {} would now be different", visible_line(&path)));
                }
                Some(_) | None => {}
            }
        }
        moved
    }
}

fn head_moved(then: Option<&GitHead>, now: Option<&GitHead>) -> String {
    let words = match (then, now) {
        (Some(then), Some(now)) if then.branch.is_some() && then.branch == now.branch => {
            let commit = |head: &GitHead| {
                head.commit
                    .as_deref()
                    .map_or_else(|| "no commit".to_owned(), |commit| short(commit).to_owned())
            };
            let branch = then.branch.as_deref().unwrap_or_default();
            format!("the branch {branch} was at {}, now it is at {}", commit(then), commit(now))
        }
        (Some(then), Some(now)) => format!("the branch was {then}, now {now}"),
        (Some(then), None) => format!("the branch was {then}, now there is no git repository"),
        (None, Some(now)) => format!("there was no git repository, now the branch is {now}"),
        (None, None) => String::new(),
    };
    visible_line(&words).into_owned()
}

fn file_moved(then: &SeenFile, now: Option<&SeenFile>) -> Option<&'static str> {
    match (&then.hash, now.and_then(|file| file.hash.as_ref())) {
        (Some(then), Some(now)) if then != now => Some("changed since the question"),
        (Some(_), None) => Some("was deleted since the question"),
        (None, Some(_)) => Some("was created since the question"),
        (Some(_), Some(_)) | (None, None) => None,
    }
}

/// A file's text, from the question's own copy or from a preview of it.
fn text_of<'a>(path: &str, file: Option<&'a SeenFile>, previews: &'a [FilePreview]) -> Option<&'a str> {
    let file = file?;
    if file.hash.is_none() {
        return Some("");
    }
    file.text.as_deref().or_else(|| {
        let preview = previews.iter().find(|preview| name(&preview.path) == path)?;
        preview.old_text.as_deref().filter(|_| preview.before == file.hash)
    })
}

/// Shortens a path for display.
fn shown<'a>(path: &'a str, cwd: Option<&str>) -> &'a str {
    let inside = cwd.and_then(|cwd| Path::new(path).strip_prefix(cwd).ok());
    inside.and_then(Path::to_str).filter(|rest| !rest.is_empty()).unwrap_or(path)
}

fn delta(name: &str, old: &str, new: &str, room: &mut usize) -> Option<String> {
    let mut text = unified(old, new, Some((&format!("a/{name}"), &format!("b/{name}"))), 3);
    if text.is_empty() || *room == 0 {
        return None;
    }
    if text.len() > *room {
        text.truncate(text.floor_char_boundary(*room));
        text.push_str("\n… the diff is too long to show\n");
    }
    *room = room.saturating_sub(text.len());
    Some(text)
}

/// Returns the files of an answered question as they were, with which a tool that changes files compares them
/// first. The review of an edited call takes precedence over the card of the proposed call.
pub(super) fn agreed_files(call: &Call) -> Vec<AgreedFile> {
    let (Some(ticket), Some(decision)) = (call.ticket(), call.decision()) else { return Vec::new() };
    reviewed_files(decision).unwrap_or_else(|| {
        let agreed = |file: FilePreview| AgreedFile { path: file.path, before: file.before };
        ticket.suspension.files().into_iter().map(agreed).collect()
    })
}

fn arguments_hash(call: &ToolCall) -> String {
    sha256_hex(json!([call.name, sorted(&call.arguments)]).to_string())
}

impl Driver {
    /// Reads the current preconditions of a call. `also`: files to read besides those the call touches.
    async fn read_state(
        &mut self,
        call: &ToolCall,
        parsed: Option<&Arc<dyn ParsedCall>>,
        ctx: ToolCallContext,
        previews: &[FilePreview],
        also: &[SeenFile],
    ) -> Preconditions {
        let cwd = self.shared.cwd.clone();
        let asked_at = self.shared.clock.now_ms();
        let arguments = Some(arguments_hash(call));
        let parsed = parsed.cloned();
        let mut files: Vec<SeenFile> = previews.iter().map(SeenFile::of_preview).collect();
        let known: Vec<String> = also.iter().map(|file| file.path.clone()).collect();
        let checked = tokio::task::spawn_blocking(move || {
            let touched =
                std::panic::catch_unwind(AssertUnwindSafe(|| parsed.map(|call| call.touches(&ctx))));
            let mut paths: Vec<PathBuf> = touched.ok().flatten().unwrap_or_default();
            paths.truncate(MAX_TOUCHED);
            paths.extend(known.iter().map(PathBuf::from));
            let mut room = MAX_KEPT;
            for path in paths {
                if files.iter().all(|file| file.path != name(&path)) {
                    files.push(SeenFile::read_state(&path, &mut room));
                }
            }
            Preconditions {
                arguments,
                git: GitHead::of(&cwd),
                cwd: (!cwd.as_os_str().is_empty()).then(|| name(&cwd)),
                files,
                asked_at,
            }
        });
        checked.await.unwrap_or_default()
    }

    /// Puts the world into a question.
    pub(super) async fn attach_preconditions(
        &mut self,
        id: &CallId,
        call: &ToolCall,
        parsed: Option<&Arc<dyn ParsedCall>>,
        ticket: &mut SuspendTicket,
        previews: &[FilePreview],
    ) {
        let ctx = self.call_context(id, &call.name, None);
        let world = self.read_state(call, parsed, ctx, previews, &[]).await;
        let question = &mut ticket.suspension;
        if !question.parameters.is_object() {
            question.parameters = Value::Null;
        }
        let world = Some(serde_json::to_value(&world).unwrap_or(Value::Null));
        question.add(QuestionParameters { world, ..QuestionParameters::default() });
    }

    /// Checks that an answer still applies to what was shown. If a precondition changed, the question is
    /// asked again.
    pub(super) async fn check_preconditions(
        &mut self,
        id: &CallId,
        ready: &ReadyCall,
        ticket: SuspendTicket,
    ) -> Result<Gate, RuntimeError> {
        if preconditions_of(&ticket).is_none() {
            return Ok(Gate::Proceed);
        }
        let previews = match self.preview(id, ready).await {
            Ok(previews) => previews,
            // A question that showed no file was not about one: the tool itself reports what is wrong.
            Err(_) if !ticket.suspension.has_preview() => return Ok(Gate::Proceed),
            Err(error) => {
                let text = format!("not run: the file changed since the question: {error}");
                return Ok(self.refuse(id, ToolResult::error_with_code(&ready.call.name, "stale", text)));
            }
        };
        let moved = self.moved(id, ready, &ticket, &previews).await;
        if moved.words.is_empty() {
            return Ok(Gate::Proceed);
        }
        let ticket = self.again(&ready.call, ticket, moved);
        self.ask(id, ready, ticket, Some(previews)).await
    }

    /// Asks again about a call whose tool found a file changed since the approval, right before changing the
    /// file: the call did nothing. Returns `None` if that is not possible; the tool's message is then its
    /// result.
    pub(super) async fn ask_about_changed_file(
        &mut self,
        id: &CallId,
        why: &str,
    ) -> Result<Option<Fact>, RuntimeError> {
        let ticket = self.machine.call(id).and_then(|c| c.ticket().cloned());
        let (Some(ticket), Ok(ready)) = (ticket, self.ready_call(id)) else { return Ok(None) };
        let Ok(previews) = self.preview(id, &ready).await else { return Ok(None) };
        let mut moved = self.moved(id, &ready, &ticket, &previews).await;
        if moved.words.is_empty() {
            moved.words.push(why.to_owned());
        }
        let mut ticket = self.again(&ready.call, ticket, moved);
        self.complete(id, &ready, &mut ticket, &previews).await?;
        self.record_suspended(id);
        self.open(id, &mut ticket);
        Ok(Some(Fact::Settled { call: id.clone(), outcome: Settled::Suspended(ticket) }))
    }

    async fn moved(
        &mut self,
        id: &CallId,
        ready: &ReadyCall,
        ticket: &SuspendTicket,
        previews: &[FilePreview],
    ) -> Moved {
        let decision = self.machine.call(id).and_then(|c| c.decision().cloned());
        let is_passed = ticket.resume_mode == ToolCallResumeMode::PassDecisionToTool
            && decision.as_ref().is_some_and(|decision| decision.result.is_object());
        let is_edited = is_passed || decision.as_ref().is_some_and(|decision| decision.arguments.is_some());
        let mut then = preconditions_of(ticket).unwrap_or_default();
        if let Some(reviewed) = decision.as_ref().and_then(reviewed_files) {
            // The card's files were those of the proposed version.
            let shown = ticket.suspension.files();
            then.files.retain(|known| shown.iter().all(|file| name(&file.path) != known.path));
            for file in reviewed {
                let path = name(&file.path);
                then.files.retain(|known| known.path != path);
                then.files.push(SeenFile { path, hash: file.before, text: None });
            }
        }
        let ctx = self.call_context(id, &ready.call.name, None);
        let now = self.read_state(&ready.call, Some(&ready.parsed), ctx, previews, &then.files).await;
        let own = self.written_by_others(id, previews);
        let shown = ticket.suspension.files();
        then.moved(&now, &Compare { is_edited, shown: &shown, now: previews, own: &own })
    }

    /// The files that other calls of the step changed: by their results, or because a file is now what their card said
    /// it would be. A result may be still on its way.
    fn written_by_others(&self, id: &CallId, now: &[FilePreview]) -> Vec<String> {
        let path = |details: &Value| details.get("path").and_then(Value::as_str).map(str::to_owned);
        let done = self.step.results.iter().filter(|result| result.call != *id && result.result.is_success());
        let done = done.filter_map(|other| other.result.details.as_ref().and_then(path));
        let asked = self.open.tickets.iter().filter(|(other, _)| *other != id);
        let as_shown = |file: &FilePreview| {
            now.iter().any(|now| now.path == file.path && now.before.as_ref() == Some(&file.after))
        };
        let asked = asked.flat_map(|(_, ticket)| ticket.suspension.files()).filter(as_shown);
        done.chain(asked.map(|file| name(&file.path))).collect()
    }

    /// The same question once more, with what moved.
    fn again(&self, call: &ToolCall, mut ticket: SuspendTicket, moved: Moved) -> SuspendTicket {
        let now = self.shared.clock.now_ms();
        // It has as much time as it had.
        let had = preconditions_of(&ticket).map_or(0, |world| world.asked_at);
        let question = &mut ticket.suspension;
        question.expires_at = question.expires_at.map(|end| now.saturating_add(end.saturating_sub(had)));
        let before = Question::of(question).stale.message;
        let message = before.unwrap_or_else(|| question.message.clone());
        question.message = format!("Asked again: {}. {message}", moved.words.join("; "));
        let stale = StaleQuestion { moved: moved.words, deltas: moved.deltas, message: Some(message) };
        question.add(QuestionParameters { stale: Some(stale), ..QuestionParameters::default() });
        if call.arguments != ticket.pending.arguments {
            question.set_args(call.arguments.clone());
        }
        ticket
    }
}

/// The world of a question. One that an older version asked has only its preview.
fn preconditions_of(ticket: &SuspendTicket) -> Option<Preconditions> {
    let question = &ticket.suspension;
    if let Some(world) = question.world() {
        return serde_json::from_value(world.clone()).ok();
    }
    question.has_preview().then(|| Preconditions {
        files: ticket.suspension.files().iter().map(SeenFile::of_preview).collect(),
        ..Preconditions::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_question_is_not_that_of_another_file() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for (folder, text) in [("d", "inside"), ("out", "OUTSIDE")] {
            std::fs::create_dir(root.join(folder)).unwrap();
            std::fs::write(root.join(folder).join("f"), text).unwrap();
        }
        let read = || SeenFile::read_state(&root.join("d/f"), &mut 100);
        let before = read();
        assert_eq!(before.text.as_deref(), Some("inside"));
        // Somebody exchanges the folder for a link.
        std::fs::rename(root.join("d"), root.join("aside")).unwrap();
        std::os::unix::fs::symlink(root.join("out"), root.join("d")).unwrap();
        let after = read();
        assert_eq!(after.text, None);
        assert_ne!(after.hash, before.hash, "what is there now is another file");
        // A pipe is not waited for.
        let pipe = root.join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
        assert_eq!(SeenFile::read_state(&pipe, &mut 100).hash, None);
    }
}
