//! macOS. It has never run there.

use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::RenameFlags;
use rustix::io::Errno;

pub use super::portable::{
    ACCESS_LIST, ADOPTS_ORPHANS, INSPECTED, PASSAGE, adopt_orphans, cannot_see_processes, drop_inspection,
    end_of_child, end_of_process, hide_memory, hide_variables, ignores_case, input_to_poll,
    is_copied_attribute, known_descendants, locks, memory_bytes, mounts, network_kind, open_beneath,
    open_terminal, own_control_groups, own_program, own_terminal, process, processes, processes_with_words,
    proportional_bytes, reserve, resident_bytes, set_folder_mode, set_thread_niceness, system_call_filters,
    with_short_path,
};
pub(crate) use super::portable::{UPTIME, boot_id, command_line, hostname, pid_namespace, started};

/// Renames a file within a folder to a name that nothing has. Returns `false`, having done nothing, where the file system
/// cannot do that at once.
///
/// # Errors
/// `EXIST` when something has the name; otherwise those of the system.
pub fn rename_new(folder: impl AsFd, from: &Path, to: &Path) -> Result<bool, Errno> {
    let folder = folder.as_fd();
    match rustix::fs::renameat_with(folder, from, folder, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(true),
        Err(Errno::INVAL | Errno::NOTSUP | Errno::NOSYS) => Ok(false),
        Err(errno) => Err(errno),
    }
}
