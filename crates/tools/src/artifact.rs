//! A tool result as a file that the model can read a page at a time.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use aye_core::contract::digest::sha256_hex;
use aye_files::opener::PrivateFolder;

/// The prefix of the names of these files.
pub const RESULT_FILES: &str = "result-";

/// The folder of a conversation below the one for output. Its commands find it in the sandbox, and no other one.
pub fn output_of(dir: &Path, thread: &str) -> PathBuf {
    // An id may come from outside.
    dir.join(&sha256_hex(thread.as_bytes())[..16])
}

/// Writes a result into a private file of the conversation's folder below `dir` and gives its path. The same result of
/// the same call is the same file, which is whole from the moment it has its name.
///
/// # Errors
/// Any of the file system.
pub fn keep_result(dir: &Path, thread: &str, call: &str, text: &str) -> std::io::Result<PathBuf> {
    // The call's id is the model's word, and no part of a path.
    let hash = sha256_hex(format!("{thread}\0{call}\0{text}"));
    let name = format!("{RESULT_FILES}{}.txt", &hash[..32]);
    let folder = output_of(dir, thread);
    let path = folder.join(&name);
    let is_whole = |path: &Path| {
        path.symlink_metadata().is_ok_and(|about| about.is_file() && about.len() == text.len() as u64)
    };
    // Earlier versions had one folder for all conversations: the model already knows the path there.
    if let Some(path) = [dir.join(&name), path.clone()].into_iter().find(|path| is_whole(path)) {
        return Ok(path);
    }
    let part = format!("part-{}", uuid::Uuid::now_v7());
    let folder = PrivateFolder::make(&folder)?;
    let mut file = folder.create(&part)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| folder.rename(&part, &name));
    if written.is_err() {
        let _ = folder.remove(&part);
    }
    written.map(|()| path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_result_is_written_once_and_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("output");
        let path = keep_result(&folder, "t", "../../etc/passwd", "all of it\n").unwrap();
        let own = output_of(&folder, "t");
        assert_eq!((path.parent(), own.parent()), (Some(own.as_path()), Some(folder.as_path())));
        let other = keep_result(&folder, "t2", "c1", "all of it\n").unwrap();
        assert_ne!(other.parent(), Some(own.as_path()), "each conversation has its own folder");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "all of it\n");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(keep_result(&folder, "t", "../../etc/passwd", "all of it\n").unwrap(), path);
        assert_ne!(keep_result(&folder, "t", "c2", "all of it\n").unwrap(), path);
        assert_eq!(std::fs::read_dir(&own).unwrap().count(), 2, "nothing half is left");
        std::fs::write(&path, "cut").unwrap();
        keep_result(&folder, "t", "../../etc/passwd", "all of it\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "all of it\n");
        // Where an earlier version has written it, it stays.
        let old = folder.join(path.file_name().unwrap());
        std::fs::rename(&path, &old).unwrap();
        assert_eq!(keep_result(&folder, "t", "../../etc/passwd", "all of it\n").unwrap(), old);
    }
}
