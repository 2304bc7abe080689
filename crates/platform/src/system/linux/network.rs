//! The file system that a folder is on. Network file systems give no locks and no shared memory that every process sees
//! at once.

use std::path::Path;

/// The network file systems, by the number that the kernel gives their kind.
const NETWORK: &[(u32, &str)] = &[
    (0x0000_6969, "nfs"),
    (0xFF53_4D42, "cifs"),
    (0xFE53_4D42, "smb2"),
    (0x0000_517B, "smbfs"),
    (0x0102_1997, "9p"),
    (0x5346_414F, "afs"),
    (0x6B41_4653, "afs"),
    (0x7375_7245, "coda"),
    (0x00C3_6400, "ceph"),
    (0x0BD0_0BD0, "lustre"),
    (0x4750_4653, "gpfs"),
    (0x1983_0326, "beegfs"),
    (0x0116_1970, "gfs2"),
    (0x7461_636F, "ocfs2"),
    (0x2003_0528, "orangefs"),
];
/// File systems in user space have one number: only their mount names them.
const FUSE: u32 = 0x6573_5546;
/// Those in user space whose files are on another machine.
const NETWORK_FUSE: &[&str] = &[
    "sshfs",
    "rclone",
    "s3fs",
    "gcsfuse",
    "goofys",
    "glusterfs",
    "ceph-fuse",
    "davfs",
    "curlftpfs",
    "juicefs",
    "seaweedfs",
    "blobfuse2",
    "nfs-ganesha",
    "cvmfs",
    "moosefs",
    "lizardfs",
    "gvfsd-fuse",
    "kio-fuse",
];

/// Returns the name of the network file system that a folder is on; `None` on a local disk.
pub(super) fn kind(folder: &Path, mounts: impl FnOnce() -> String) -> Option<String> {
    let kind = rustix::fs::statfs(folder).ok()?.f_type;
    let kind = u32::try_from(i128::from(kind) & 0xFFFF_FFFF).ok()?;
    let device = rustix::fs::stat(folder).ok()?.st_dev;
    kind_of(kind, (rustix::fs::major(device), rustix::fs::minor(device)), mounts)
}

/// The same from the kernel's number of the kind, the device, and the list of mounts.
fn kind_of(kind: u32, device: (u32, u32), mounts: impl FnOnce() -> String) -> Option<String> {
    if kind != FUSE {
        return NETWORK.iter().find(|(number, _)| *number == kind).map(|(_, name)| (*name).to_owned());
    }
    let device = format!("{}:{}", device.0, device.1);
    // `36 35 0:52 / /mnt/far rw,nosuid shared:1 - fuse.sshfs host:/home rw,user_id=0`
    let name = mounts().lines().find_map(|line| {
        let (place, source) = line.split_once(" - ")?;
        (place.split(' ').nth(2) == Some(&device)).then(|| source.split(' ').next().map(str::to_owned))?
    })?;
    name.strip_prefix("fuse.").is_some_and(|kind| NETWORK_FUSE.contains(&kind)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_named_and_local_ones_are_not() {
        let mounts = "36 35 0:52 / /mnt/far rw,nosuid shared:1 - fuse.sshfs host:/home rw,user_id=0\n\
                      37 35 0:53 / /mnt/vault rw master:2 - fuse.gocryptfs /vault rw\n\
                      38 35 8:17 / /mnt/stick rw - fuseblk /dev/sdb1 rw\n";
        let kind = |number, minor| kind_of(number, (0, minor), || mounts.to_owned());
        for (number, name) in NETWORK {
            assert_eq!(kind(*number, 52).as_deref(), Some(*name));
        }
        // ext4, btrfs, tmpfs, overlay.
        for local in [0xEF53, 0x9123_683E, 0x0102_1994, 0x794C_7630] {
            assert_eq!(kind(local, 52), None);
        }
        assert_eq!(kind(FUSE, 52).as_deref(), Some("fuse.sshfs"));
        assert_eq!(kind(FUSE, 53), None);
        assert_eq!(kind_of(FUSE, (8, 17), || mounts.to_owned()), None);
        assert_eq!(kind(FUSE, 99), None, "not in the list of mounts");
        assert_eq!(crate::network_kind(&std::env::temp_dir()), None);
    }
}
