//! The parts shared by Write and Edit: a planned change of one file, its preview, its diff, and carrying it
//! out.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use encoding_rs::{Encoding, UTF_8};
use serde_json::json;

use super::ToolEnv;
use super::args::advised;
use super::atomic::{FileError, WriteTarget};
use super::paths::{absolute, resolve, shown};
use super::seen_files::{KnownContent, hash};
use super::text::{TextFile, decoded, is_unsaved};
use aye_core::contract::diff::{changed_lines, unified};
use aye_core::contract::path_policy::PathAccess;
use aye_core::contract::tool::{FilePreview, ParsedCall, ToolCallContext, ToolError, ToolOutput, ToolResult};

/// Texts above this are not shown on a card, and diffs are cut here.
const MAX_SHOWN: usize = 256 << 10;

impl From<FileError> for ToolError {
    fn from(error: FileError) -> Self {
        Self::ExecutionFailed(error.to_string())
    }
}

/// The state of a file to change.
pub(super) struct PlannedFile {
    /// As the call names it.
    path: PathBuf,
    pub(super) real: PathBuf,
    /// As the model knows it.
    pub(super) name: String,
    pub(super) before: Option<Vec<u8>>,
    target: Option<WriteTarget>,
}

impl PlannedFile {
    /// Reads the state of a file; nothing is created yet.
    pub(super) fn inspect(env: &ToolEnv, file_path: &str) -> Result<Self, ToolError> {
        if file_path.ends_with('/') {
            return Err(ToolError::InvalidArguments(
                "`file_path` ends with a slash; it must name a file".into(),
            ));
        }
        let path = absolute(&env.workspace, "file_path", file_path)?;
        let real = resolve(&env.workspace, &path)?;
        let name = shown(&env.workspace, &path);
        if aye_platform::is_of_the_kernel(&real) {
            return Err(ToolError::ExecutionFailed(format!(
                "{name} is a device or system file, not a regular file"
            )));
        }
        // Folders are created when the change is made, not when it is only previewed.
        if real.parent().is_some_and(|parent| parent.symlink_metadata().is_err()) {
            return Ok(Self { path, real, name, before: None, target: None });
        }
        let mut target = WriteTarget::open(&real, false)?;
        let before = target.read()?;
        Ok(Self { path, real, name, before, target: Some(target) })
    }

    /// Returns what the thread knows about the file's content.
    pub(super) fn seen(&self, env: &ToolEnv, ctx: &ToolCallContext) -> KnownContent {
        match &self.before {
            Some(bytes) => env.ledger.compare(thread(ctx), &self.real, &hash(bytes)),
            None => KnownContent::Current,
        }
    }

    /// Returns the text of the file as the thread saw it, if that is still known.
    pub(super) fn seen_text(&self, env: &ToolEnv, ctx: &ToolCallContext) -> Option<String> {
        let bytes = env.ledger.content(thread(ctx), &self.real)?;
        Some(TextFile::decode(&bytes).ok()?.text)
    }
}

fn thread(ctx: &ToolCallContext) -> &str {
    ctx.run_identity.thread_id.as_str()
}

/// Notes that the thread knows this content.
pub(super) fn note(env: &ToolEnv, ctx: &ToolCallContext, real: &Path, bytes: &[u8]) {
    env.ledger.note(thread(ctx), real, bytes);
}

/// Whether a user decided about exactly this call, or it is repeated after a crash: the ledger of that time
/// may be gone, and what was shown is what counts.
pub(super) fn is_decided(ctx: &ToolCallContext) -> bool {
    ctx.resume.is_some() || ctx.attempt > 1
}

/// Checks that the file is still the one the user was shown: if it has changed, the user is asked again.
/// Called under the ledger's lock, so that no other call of this process can intervene.
fn still_agreed(change: &PlannedChange, ctx: &ToolCallContext) -> Result<(), ToolError> {
    if ctx.agreed.is_empty() {
        return Ok(());
    }
    let name = &change.subject.name;
    let agreed = ctx.agreed.iter().find(|file| file.path == change.subject.real);
    match agreed {
        Some(file) if file.before == change.subject.before.as_deref().map(hash) => Ok(()),
        Some(_) => Err(ToolError::Moved(format!("{name} changed since the question"))),
        None => Err(ToolError::Moved(format!("{name} now leads to another file than in the question"))),
    }
}

/// The arguments of a call that changes one file.
pub(super) trait ChangeArgs: Send + Sync + 'static {
    const TOOL: &'static str;

    /// Returns the file, as the call names it.
    fn file_path(&self) -> &str;

    /// Returns what the call would change.
    fn plan(&self, env: &ToolEnv, ctx: &ToolCallContext) -> Result<PlannedChange, ToolError>;
}

/// A call that changes one file.
pub(super) struct ChangeCall<A> {
    pub(super) env: Arc<ToolEnv>,
    pub(super) args: Arc<A>,
}

/// Plans a change. A file that has unsaved changes in the editor is refused: one of the two would be lost, and what
/// users agree to is compared with the file on disk.
fn planned(
    env: &ToolEnv,
    args: &impl ChangeArgs,
    ctx: &ToolCallContext,
    open_text: Option<&str>,
) -> Result<PlannedChange, ToolError> {
    if let Some(text) = open_text {
        let PlannedFile { name, before, .. } = PlannedFile::inspect(env, args.file_path())?;
        if before.map_or(!text.is_empty(), |bytes| is_unsaved(text, &bytes)) {
            let what = format!("{name} has unsaved changes in the editor");
            return Err(advised(what, "ask the user to save it, then try again"));
        }
    }
    args.plan(env, ctx)
}

#[async_trait]
impl<A: ChangeArgs> ParsedCall for ChangeCall<A> {
    async fn preview(&self, ctx: &ToolCallContext) -> Result<Vec<FilePreview>, ToolError> {
        let open_text = self.env.editor_text(ctx, self.args.file_path()).await;
        let (env, args, call) = (Arc::clone(&self.env), Arc::clone(&self.args), ctx.clone());
        super::blocking(ctx, move |_| Ok(vec![planned(&env, &*args, &call, open_text.as_deref())?.preview()]))
            .await
    }

    /// Makes the change, when it is still the one that was agreed to.
    async fn execute(&self, ctx: &ToolCallContext) -> Result<ToolOutput, ToolError> {
        let open_text = self.env.editor_text(ctx, self.args.file_path()).await;
        let (env, args, call) = (Arc::clone(&self.env), Arc::clone(&self.args), ctx.clone());
        let changing = env.ledger.changing().await;
        super::blocking(ctx, move |cancel| {
            let _changing = changing;
            let change = planned(&env, &*args, &call, open_text.as_deref())?;
            let PlannedFile { path, real, target, .. } = &change.subject;
            env.must_not_be_denied(&call, real, PathAccess::Write)?;
            if !call.judged.is_empty() {
                env.must_be_judged(&call, path, real)?;
            }
            if let Some(target) = target {
                must_not_be_known(&env, &call, real, target)?;
            }
            still_agreed(&change, &call)?;
            Ok(change.apply(A::TOOL, &env, &call, || cancel.is_cancelled())?.into())
        })
        .await
    }
}

/// Refuses a file that rules know, itself or a folder above it, under another name.
fn must_not_be_known(
    env: &ToolEnv,
    ctx: &ToolCallContext,
    real: &Path,
    target: &WriteTarget,
) -> Result<(), ToolError> {
    if env.known.is_empty() {
        return Ok(());
    }
    let failed = |error: std::io::Error| ToolError::ExecutionFailed(error.to_string());
    let name = shown(&env.workspace, real);
    let place = env.place(ctx, real, PathAccess::Write).map_err(|error| error.or(&name, failed))?;
    if !target.is_in(&place.folder) {
        return Err(FileError::Raced(name).into());
    }
    match target.read_file() {
        None => Ok(()),
        Some(about) => env.must_not_be_known(ctx, &about.map_err(failed)?, Path::new(""), PathAccess::Write),
    }
}

/// A change that can be made.
pub(super) struct PlannedChange {
    pub(super) subject: PlannedFile,
    pub(super) after: Vec<u8>,
    /// The encoding of the file, before and after.
    pub(super) encoding: &'static Encoding,
    /// Whether the thread knows all of the file afterwards.
    pub(super) is_known: bool,
    pub(super) note: Option<ChangeNote>,
}

/// What is not as the call has it.
pub(super) struct ChangeNote {
    pub(super) shown: String,
    /// The lines that came of it, for the model.
    pub(super) lines: String,
}

impl PlannedChange {
    pub(super) fn preview(&self) -> FilePreview {
        FilePreview {
            path: self.subject.real.clone(),
            before: self.subject.before.as_deref().map(hash),
            after: hash(&self.after),
            old_text: self.subject.before.as_deref().and_then(|bytes| showable(bytes, self.encoding)),
            new_text: showable(&self.after, self.encoding),
        }
    }

    pub(super) fn apply(
        mut self,
        tool: &str,
        env: &ToolEnv,
        ctx: &ToolCallContext,
        cancelled: impl Fn() -> bool,
    ) -> Result<ToolResult, ToolError> {
        let name = self.subject.name.clone();
        let diff = Diff::of(&name, self.subject.before.as_deref(), &self.after, self.encoding);
        let saved = match self.subject.before.as_deref() {
            Some(before) if before == self.after => Saved::AsAgreed,
            _ => save_in_editor(&mut self, env, ctx, &cancelled)?,
        };
        if saved == Saved::No {
            let target = match self.subject.target.take() {
                Some(target) => target,
                None => WriteTarget::open(&self.subject.real, true)?,
            };
            target.replace(&self.after, &env.output_dir, cancelled)?;
        }
        // If the editor saved something else, the ledger finds the file changed.
        if self.is_known {
            note(env, ctx, &self.subject.real, &self.after);
        }
        let verb = match &self.subject.before {
            None => "created",
            Some(before) if *before == self.after => "already has this content:",
            Some(_) => "changed",
        };
        let mut message = format!("{verb} {name} (+{} -{})", diff.added, diff.removed);
        if self.encoding != UTF_8 {
            let _ = write!(message, "; it is still {}", self.encoding.name());
        }
        let details = json!({"path": self.subject.real, "added": diff.added, "removed": diff.removed, "diff": diff.text});
        Ok(match saved {
            Saved::Otherwise => {
                let shown = format!("{message}; the editor made changes of its own when it saved the file");
                ToolResult::text(tool, format!("{shown}: Read it again"))
                    .with_details(details)
                    .with_shown(shown)
            }
            Saved::No | Saved::AsAgreed => match self.note {
                Some(ChangeNote { shown, lines }) => {
                    let shown = format!("{message}; {shown}");
                    ToolResult::text(tool, format!("{shown}:{lines}")).with_details(details).with_shown(shown)
                }
                None => ToolResult::text(tool, message).with_details(details),
            },
        })
    }
}

/// What an editor made of a change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Saved {
    /// Nothing on disk.
    No,
    AsAgreed,
    /// It changed the text when it saved it, such as by a formatter.
    Otherwise,
}

/// Makes a change through the editor, so that an open file and its undo history follow, and compares the file on
/// disk. Called where the change would be written, under the ledger's lock.
fn save_in_editor(
    change: &mut PlannedChange,
    env: &ToolEnv,
    ctx: &ToolCallContext,
    cancelled: impl Fn() -> bool,
) -> Result<Saved, ToolError> {
    let real = change.subject.real.clone();
    let Some(editor) = env.editor.get() else { return Ok(Saved::No) };
    // A path through a link can lead elsewhere for the editor, and a byte order mark would be lost or doubled.
    let is_direct = change.subject.path == real && !change.after.starts_with("\u{feff}".as_bytes());
    // Nor is it known in which encoding an editor saves.
    let is_direct = is_direct && change.encoding == UTF_8;
    let Some(text) = std::str::from_utf8(&change.after).ok().filter(|_| is_direct) else {
        return Ok(Saved::No);
    };
    if cancelled() || env.must_not_be_denied(ctx, &real, PathAccess::Read).is_err() {
        return Ok(Saved::No);
    }
    // On a thread for work that blocks, so no task waits for this one.
    let save = editor.save(&real, text.to_owned());
    if !tokio::runtime::Handle::current().block_on(save) {
        return Ok(Saved::No);
    }
    let now = PlannedFile::inspect(env, &real.to_string_lossy())?;
    Ok(match &now.before {
        Some(bytes) if *bytes == change.after => Saved::AsAgreed,
        bytes if *bytes == change.subject.before => {
            change.subject.target = now.target;
            Saved::No
        }
        Some(_) => Saved::Otherwise,
        None => return Err(ToolError::Moved(format!("{} is gone", change.subject.name))),
    })
}

fn showable(bytes: &[u8], encoding: &'static Encoding) -> Option<String> {
    if bytes.len() > MAX_SHOWN { None } else { decoded(bytes, encoding) }
}

struct Diff {
    added: usize,
    removed: usize,
    text: String,
}

impl Diff {
    fn of(name: &str, before: Option<&[u8]>, after: &[u8], encoding: &'static Encoding) -> Self {
        let (old, _) = encoding.decode_without_bom_handling(before.unwrap_or_default());
        let (new, _) = encoding.decode_without_bom_handling(after);
        let (added, removed) = changed_lines(&old, &new);
        let from = if before.is_none() { "/dev/null".to_owned() } else { format!("a/{name}") };
        let mut text = unified(&old, &new, Some((&from, &format!("b/{name}"))), 3);
        if text.len() > MAX_SHOWN {
            text.truncate(text.floor_char_boundary(MAX_SHOWN));
            text.push_str("\n[… diff cut …]\n");
        }
        Self { added, removed, text }
    }
}
