//! Who may do what with a file, for the file that replaces it.

use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt as _, fchown};

use aye_platform::{ACCESS_LIST, is_copied_attribute};
use rustix::fs::{Mode, XattrFlags, fchmod, fgetxattr, flistxattr, fremovexattr, fsetxattr};
use rustix::io::Errno;

/// Copied where the system allows it: what a file without them may do is up to the folder's policy.
const OPTIONAL: [&str; 2] = ["security.selinux", "system.nfs4_acl"];
/// Maximum bytes of an attribute, and of the list of their names.
const MAX_ATTRIBUTE: usize = 64 << 10;

/// Gives a new file the owner, the group, the access control list and the attributes of the file that it is going to
/// replace, and these permission bits.
///
/// It never grants more than the old file: where only root could keep the owner or the group, the set-id bits go, and
/// another group gets what everybody has. An access control list that `to` inherited from its folder is removed.
///
/// # Errors
/// The list or an attribute cannot be copied: then `to` must not replace `from`.
pub fn copy(from: &File, to: &File, mode: Mode) -> io::Result<()> {
    let (old, new) = (from.metadata()?, to.metadata()?);
    if (new.uid(), new.gid()) != (old.uid(), old.gid())
        && fchown(to, Some(old.uid()), Some(old.gid())).is_err()
    {
        // A user may give a file to another of their groups, but not to another owner.
        let _ = fchown(to, None, Some(old.gid()));
    }
    let new = to.metadata()?;
    let keeps_group = new.gid() == old.gid();
    let mut has_acl = false;
    for name in names(from)? {
        // Of Apple's own, some are only for the system to set.
        let is_optional =
            OPTIONAL.iter().any(|optional| optional.as_bytes() == name) || name.starts_with(b"com.apple.");
        if !is_optional && !is_copied_attribute(&name) {
            continue;
        }
        let mut value = vec![0; MAX_ATTRIBUTE];
        let size = match fgetxattr(from, name.as_slice(), &mut *value) {
            // It went meanwhile.
            Err(Errno::NODATA) => continue,
            Err(_) if is_optional => continue,
            other => other?,
        };
        value.truncate(size);
        if ACCESS_LIST.is_some_and(|list| name == list.as_bytes()) {
            has_acl = true;
            if !keeps_group {
                limit_group(&mut value);
            }
        }
        match fsetxattr(to, name.as_slice(), &value, XattrFlags::empty()) {
            Err(_) if is_optional => {}
            other => other?,
        }
    }
    if let Some(list) = ACCESS_LIST
        && !has_acl
    {
        match fremovexattr(to, list) {
            // There is none, or there are none on this file system.
            Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut mode = mode;
    if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
        mode -= Mode::SUID | Mode::SGID;
    }
    if !keeps_group && !has_acl {
        let others = Mode::from_raw_mode((mode & Mode::RWXO).bits() << 3);
        mode -= Mode::RWXG - others;
    }
    Ok(fchmod(to, mode)?)
}

fn names(file: &File) -> io::Result<Vec<Vec<u8>>> {
    let mut list = vec![0; MAX_ATTRIBUTE];
    let size = match flistxattr(file, &mut *list) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => 0,
        other => other?,
    };
    let names = list[..size].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Ok(names.map(<[u8]>::to_vec).collect())
}

/// Gives the group of a list no more than everybody has: it is about another group now. See `acl(5)`: a version of four
/// bytes, then entries of eight, a tag and permissions of two bytes each first.
fn limit_group(list: &mut [u8]) {
    const GROUP: [u8; 2] = [0x04, 0];
    const OTHER: [u8; 2] = [0x20, 0];
    let Some(entries) = list.get_mut(4..) else { return };
    let other = entries.chunks_exact(8).find(|entry| entry[..2] == OTHER).map_or(0, |entry| entry[2]);
    for entry in entries.chunks_exact_mut(8).filter(|entry| entry[..2] == GROUP) {
        entry[2] &= other;
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const ACL: &str = "system.posix_acl_access";

    /// `user::rw- user:2001:rw- group::r-- mask::rw- other::---`.
    fn list() -> Vec<u8> {
        let entry = |tag: u16, permissions: u16, id: u32| {
            [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
        };
        let none = u32::MAX;
        let entries = [(1, 6, none), (2, 6, 2001), (4, 4, none), (0x10, 6, none), (0x20, 0, none)];
        let entries = entries.map(|(tag, permissions, id)| entry(tag, permissions, id)).concat();
        [&2_u32.to_le_bytes()[..], &entries].concat()
    }

    fn attribute(file: &File, name: &str) -> Option<Vec<u8>> {
        let mut value = vec![0; MAX_ATTRIBUTE];
        let size = fgetxattr(file, name, &mut *value).ok()?;
        value.truncate(size);
        Some(value)
    }

    fn mode(file: &File) -> u32 {
        file.metadata().expect("is there").permissions().mode() & 0o7777
    }

    /// `None` where the file system keeps no attributes.
    fn two_files(folder: &tempfile::TempDir) -> Option<(File, File)> {
        let make = |name: &str| File::create(folder.path().join(name)).expect("is made");
        let (from, to) = (make("from"), make("to"));
        fsetxattr(&from, "user.note", b"mine", XattrFlags::empty()).ok()?;
        Some((from, to))
    }

    #[test]
    fn a_replacement_has_the_list_and_the_attributes() {
        let folder = tempfile::tempdir().expect("a folder");
        let Some((from, to)) = two_files(&folder) else { return };
        fsetxattr(&from, ACL, &list(), XattrFlags::empty()).expect("a list");
        copy(&from, &to, Mode::from_raw_mode(mode(&from))).expect("copied");
        assert_eq!(attribute(&to, "user.note").as_deref(), Some(&b"mine"[..]));
        assert_eq!(attribute(&to, ACL), Some(list()), "the group reads, and does not write");
        assert_eq!(mode(&to), mode(&from));
    }

    #[test]
    fn a_list_inherited_from_the_folder_is_not_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let Some((from, _)) = two_files(&folder) else { return };
        let at = File::open(folder.path()).expect("a folder");
        fsetxattr(&at, "system.posix_acl_default", &list(), XattrFlags::empty()).expect("a list");
        let to = File::create(folder.path().join("new")).expect("is made");
        assert!(attribute(&to, ACL).is_some(), "inherited");
        copy(&from, &to, Mode::from_raw_mode(0o640)).expect("copied");
        assert_eq!((attribute(&to, ACL), mode(&to)), (None, 0o640));
    }

    #[test]
    fn another_group_gets_what_everybody_has() {
        let mut changed = list();
        limit_group(&mut changed);
        let differs: Vec<_> = changed.iter().zip(list()).filter(|(a, b)| **a != *b).collect();
        assert_eq!(differs, [(&0, 4)], "the entry of the group alone");
        limit_group(&mut [1, 2]);
    }
}
