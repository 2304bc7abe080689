//! The text that an editor has of a file.
//!
//! An editor opens files by name, and nobody can hand it a descriptor. What it sends is shown only if nothing on the path
//! was renamed meanwhile: otherwise it may be the text of a file that nobody judged.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use aye_core::contract::path_policy::PathAccess;
use aye_core::contract::tool::ToolCallContext;
use aye_core::contract::workspace::Workspace;

use super::ToolEnv;
use super::paths::absolute;

/// Within this time after a change a folder may change again without a new time: the kernel's clock for files ticks.
const TICKS: Duration = Duration::from_millis(25);
/// How often to try when something is renamed.
const TRIES: usize = 3;

impl ToolEnv {
    /// Returns the text of a file as the editor has it open, unless a rule denies the file or there is no editor. It may be
    /// that of another file: it is to be compared, and not shown.
    pub(super) async fn editor_text(&self, ctx: &ToolCallContext, file_path: &str) -> Option<String> {
        let path = self.path_for_editor(ctx, file_path)?;
        self.editor.get()?.text(&path).await
    }

    /// Returns the text to show. `None`, too, if a folder above the file changed meanwhile, or if the path has links.
    pub(super) async fn editor_text_to_show(&self, ctx: &ToolCallContext, file_path: &str) -> Option<String> {
        let path = self.path_for_editor(ctx, file_path)?;
        let editor = self.editor.get()?;
        let stamps = || {
            let (path, workspace) = (path.clone(), self.workspace.clone());
            tokio::task::spawn_blocking(move || stamps(&workspace, &path))
        };
        for _ in 0..TRIES {
            let before = stamps().await.ok()??;
            if !is_settled(&before, SystemTime::now()) {
                tokio::time::sleep(TICKS).await;
                continue;
            }
            let text = editor.text(&path).await?;
            if stamps().await.ok()?? == before {
                return Some(text);
            }
        }
        tracing::warn!(path = %path.display(), "folders above the file keep changing; the saved text is read");
        None
    }

    fn path_for_editor(&self, ctx: &ToolCallContext, file_path: &str) -> Option<PathBuf> {
        self.editor.get()?;
        let path = absolute(&self.workspace, "file_path", file_path).ok()?;
        self.must_not_be_denied(ctx, &path, PathAccess::Read).ok()?;
        Some(path)
    }
}

/// A folder by its identity and the time of its last change.
type Stamp = (u64, u64, i64, i64);

/// The folders above a file, as far as commands can rename something in them. `None` if one is a link, or if there is no
/// regular file.
fn stamps(workspace: &Workspace, path: &Path) -> Option<Vec<Stamp>> {
    path.symlink_metadata().ok().filter(Metadata::is_file)?;
    let is_inside = |folder: &Path| folder.starts_with(&workspace.root) || folder.starts_with(&workspace.cwd);
    let above = path.ancestors().skip(1);
    // Renaming something changes the time of the folder that contains it.
    let inside = above.enumerate().take_while(|(n, folder)| *n == 0 || is_inside(folder));
    let stamp = |folder: &Path| {
        let about = folder.symlink_metadata().ok().filter(Metadata::is_dir)?;
        Some((about.dev(), about.ino(), about.ctime(), about.ctime_nsec()))
    };
    inside.map(|(_, folder)| stamp(folder)).collect()
}

fn is_settled(stamps: &[Stamp], now: SystemTime) -> bool {
    let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    stamps.iter().all(|(_, _, seconds, nanoseconds)| {
        let changed = u64::try_from(*seconds).ok().zip(u32::try_from(*nanoseconds).ok());
        let changed = changed.map(|(seconds, nanoseconds)| Duration::new(seconds, nanoseconds));
        changed.and_then(|changed| now.checked_sub(changed)).is_some_and(|age| age > TICKS)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use async_trait::async_trait;
    use aye_core::contract::editor::EditorFiles;
    use serde_json::json;

    use super::*;
    use crate::testing::Sandbox;

    /// Reads files by name, and has unsaved changes of each. While it reads, somebody exchanges two names.
    #[derive(Default)]
    struct Editor {
        exchanged: Option<(PathBuf, PathBuf)>,
    }

    impl Editor {
        fn exchange(&self) {
            let Some((one, other)) = &self.exchanged else { return };
            let aside = one.with_extension("aside");
            for (from, to) in [(one, &aside), (other, one), (&aside, other)] {
                std::fs::rename(from, to).expect("renamed");
            }
        }
    }

    #[async_trait]
    impl EditorFiles for Editor {
        async fn text(&self, path: &Path) -> Option<String> {
            self.exchange();
            let text = std::fs::read_to_string(path).expect("readable");
            self.exchange();
            Some(format!("unsaved {text}"))
        }

        async fn save(&self, _path: &Path, _text: String) -> bool {
            false
        }
    }

    fn workspace(exchanged: Option<[&str; 2]>) -> Sandbox {
        let sandbox = Sandbox::with(|env| {
            let path = |name: &str| env.workspace.cwd.join(name);
            let exchanged = exchanged.map(|[one, other]| (path(one), path(other)));
            assert!(env.editor.set(Arc::new(Editor { exchanged })).is_ok());
        });
        sandbox.write("a/b/file", "inside");
        std::fs::create_dir_all(sandbox.workspace.home.join("out/b")).expect("made");
        std::fs::write(sandbox.workspace.home.join("out/b/file"), "OUTSIDE").expect("written");
        sandbox.link(sandbox.workspace.home.join("out"), "link");
        sandbox.link(sandbox.workspace.home.join("out/b/file"), "a/b/link");
        sandbox
    }

    #[tokio::test]
    async fn unsaved_text_is_read() {
        let args = json!({"file_path": "a/b/file"});
        assert_eq!(workspace(None).ok("Read", args).await, "1\tunsaved inside");
    }

    #[tokio::test]
    async fn what_an_editor_reads_elsewhere_is_not_shown() {
        for exchanged in [["a", "link"], ["a/b/file", "a/b/link"]] {
            let args = json!({"file_path": "a/b/file"});
            assert_eq!(workspace(Some(exchanged)).ok("Read", args).await, "1\tinside", "{exchanged:?}");
        }
    }

    #[tokio::test]
    async fn behind_a_link_the_saved_text_is_read() {
        let sandbox = workspace(None);
        sandbox.link("a", "inner");
        assert_eq!(sandbox.ok("Read", json!({"file_path": "inner/b/file"})).await, "1\tinside");
    }
}
