//! Finds, reads and checks reminder files.

use std::path::PathBuf;

use crate::plugins::reminder::{ReminderRule, load_rules};
use crate::program::foundation::Foundation;

/// Returns the reminder files in force: the user's, then those of the trusted project from its root down.
pub(crate) fn files(foundation: &Foundation) -> Vec<PathBuf> {
    if foundation.is_bare {
        return Vec::new();
    }
    let mut files = vec![foundation.paths.reminders_file()];
    if foundation.is_trusted {
        let workspace = &foundation.workspace;
        let levels = workspace.cwd.ancestors().take_while(|level| level.starts_with(&workspace.root));
        let mut project: Vec<_> = levels.map(|level| level.join(".aye/reminders.json")).collect();
        project.reverse();
        files.extend(project);
    }
    files.retain(|file| file.symlink_metadata().is_ok());
    files
}

/// Returns the reminders in force. An unusable file is left out with a warning.
pub(crate) fn in_force(foundation: &mut Foundation) -> Vec<ReminderRule> {
    let mut rules = Vec::new();
    for file in files(foundation) {
        match load_rules(&file) {
            Ok(more) => rules.extend(more),
            Err(error) => foundation.warnings.push(format!("{error}; its reminders are not used")),
        }
    }
    rules
}
