//! The snapshots of the folder, as the settings limit them.

use std::sync::Arc;

use crate::contract::clock::Clock;
use crate::program::foundation::Foundation;
use crate::snapshots::{FolderSnapshots, SnapshotLimits};
use crate::store::objects::Objects;

/// Returns the snapshots of the folder, unless none are stored.
pub(crate) fn snapshots_of(foundation: &Foundation, clock: &Arc<dyn Clock>) -> Option<FolderSnapshots> {
    let settings = &foundation.loaded.settings.snapshots;
    if !settings.enabled || foundation.is_ephemeral {
        return None;
    }
    let limits = SnapshotLimits {
        max_file: settings.max_file_mib.saturating_mul(1 << 20).min(200 << 20),
        max_total: settings.max_folder_mib.saturating_mul(1 << 20),
        max_kept: settings.max_kept_mib.saturating_mul(1 << 20),
        ..SnapshotLimits::default()
    };
    let paths = &foundation.paths;
    let own = [&paths.data_dir, &paths.state_dir, &paths.cache_dir];
    let without = own.into_iter().map(|dir| dir.canonicalize().unwrap_or_else(|_| dir.clone())).collect();
    let objects = Arc::new(Objects::at(paths.snapshots()));
    Some(FolderSnapshots::new(foundation.workspace.root.clone(), without, objects, limits, Arc::clone(clock)))
}
