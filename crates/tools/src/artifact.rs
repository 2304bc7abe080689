//! Tool results as files that the model can read a page at a time.

use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use async_trait::async_trait;

use aye_core::contract::digest::sha256_hex;
use aye_core::contract::ids::ThreadId;
use aye_core::contract::storage::{ArtifactStore, MAX_ARTIFACT, StoreError, artifact_name, check_artifact};
use aye_files::opener::PrivateFolder;

/// The prefix of the names of results that became previews.
pub const RESULT_FILES: &str = "result-";

/// The folder of a conversation below the one for output. Its commands find it in the sandbox, and no other one.
pub fn output_of(dir: &Path, thread: &str) -> PathBuf {
    // An id may come from outside.
    dir.join(&sha256_hex(thread.as_bytes())[..16])
}

/// Whether a path has the name of output that was too long for the model.
pub(super) fn is_output(path: &Path) -> bool {
    let name = artifact_name(path).and_then(|name| name.strip_suffix(".txt"));
    name.is_some_and(|name| [RESULT_FILES, "output-", "web-"].iter().any(|prefix| name.starts_with(prefix)))
}

/// The name of the result of a call: the same for the same result.
pub fn result_name(thread: &str, call: &str, text: &str) -> String {
    // The call's id is the model's word, and no part of a path.
    let hash = sha256_hex(format!("{thread}\0{call}\0{text}"));
    format!("{RESULT_FILES}{}.txt", &hash[..32])
}

/// Output in private files: a folder for each conversation.
#[derive(Clone, Debug)]
pub struct FileArtifacts {
    dir: PathBuf,
}

impl FileArtifacts {
    /// Keeps output below this folder, which is made when it is needed.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// Returns the path at which content of this length is kept, or was: nothing is written.
    pub fn path_of(&self, thread: &str, name: &str, length: usize) -> PathBuf {
        // Earlier versions had one folder for all conversations: the model already knows the path there.
        Some(self.dir.join(name))
            .filter(|path| is_whole(path, length))
            .unwrap_or_else(|| output_of(&self.dir, thread).join(name))
    }

    /// A file is whole from the moment it has its name.
    fn keep(&self, thread: &str, name: &str, content: &[u8]) -> io::Result<PathBuf> {
        let path = self.path_of(thread, name, content.len());
        if is_whole(&path, content.len()) {
            return Ok(path);
        }
        let folder = output_of(&self.dir, thread);
        let part = format!("part-{}", uuid::Uuid::now_v7());
        let folder = PrivateFolder::make(&folder)?;
        let mut file = folder.create(&part)?;
        let written = file.write_all(content).and_then(|()| folder.rename(&part, name));
        if written.is_err() {
            let _ = folder.remove(&part);
        }
        written.map(|()| path)
    }

    fn find(&self, thread: &str, name: &str) -> io::Result<Option<Vec<u8>>> {
        let folder = output_of(&self.dir, thread);
        if !folder.symlink_metadata().is_ok_and(|about| about.is_dir()) {
            return Ok(None);
        }
        let file = match PrivateFolder::make(&folder)?.open(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut content = Vec::new();
        file.take(MAX_ARTIFACT as u64).read_to_end(&mut content)?;
        Ok(Some(content))
    }

    async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&FileArtifacts) -> io::Result<T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let files = self.clone();
        let done = tokio::task::spawn_blocking(move || work(&files)).await;
        done.map_err(io::Error::other).flatten().map_err(|error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::Full,
            _ => StoreError::Unwritable { what: "an output", why: error.to_string() },
        })
    }
}

fn is_whole(path: &Path, length: usize) -> bool {
    path.symlink_metadata().is_ok_and(|about| about.is_file() && about.len() == length as u64)
}

#[async_trait]
impl ArtifactStore for FileArtifacts {
    async fn keep_artifact(
        &self,
        thread: &ThreadId,
        name: &str,
        content: Vec<u8>,
    ) -> Result<PathBuf, StoreError> {
        check_artifact(name, &content)?;
        let (thread, name) = (thread.clone(), name.to_owned());
        self.work(move |files| files.keep(thread.as_str(), &name, &content)).await
    }

    async fn artifact(&self, thread: &ThreadId, path: &Path) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(name) = artifact_name(path).map(str::to_owned) else { return Ok(None) };
        let thread = thread.clone();
        self.work(move |files| files.find(thread.as_str(), &name)).await
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    use std::sync::Arc;

    use aye_store_suite::{OpenedArtifacts, artifact_store_suite};

    pub(crate) fn open() -> OpenedArtifacts {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(FileArtifacts::new(folder.path().join("output")));
        OpenedArtifacts { store, keep: Box::new(folder) }
    }

    artifact_store_suite!(crate::artifact::tests::open);

    #[tokio::test]
    async fn a_result_is_written_once_and_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("output");
        let files = FileArtifacts::new(&folder);
        let text = "all of it\n";
        let keep = async |thread: &str, call: &str| {
            let name = result_name(thread, call, text);
            files.keep_artifact(&thread.into(), &name, text.into()).await.unwrap()
        };
        let path = keep("t", "../../etc/passwd").await;
        let own = output_of(&folder, "t");
        assert_eq!((path.parent(), own.parent()), (Some(own.as_path()), Some(folder.as_path())));
        assert_ne!(
            keep("t2", "c1").await.parent(),
            Some(own.as_path()),
            "each conversation has its own folder"
        );
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(keep("t", "../../etc/passwd").await, path);
        assert_ne!(keep("t", "c2").await, path);
        assert_eq!(std::fs::read_dir(&own).unwrap().count(), 2, "nothing half is left");
        std::fs::write(&path, "cut").unwrap();
        keep("t", "../../etc/passwd").await;
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        // Where an earlier version has written it, it stays.
        let old = folder.join(path.file_name().unwrap());
        std::fs::rename(&path, &old).unwrap();
        assert_eq!(keep("t", "../../etc/passwd").await, old);
        // A link is not followed.
        std::os::unix::fs::symlink("/etc/passwd", own.join("result-link.txt")).unwrap();
        let linked = files.artifact(&"t".into(), Path::new("result-link.txt")).await;
        assert!(linked.is_err(), "{linked:?}");
    }
}
