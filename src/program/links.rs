//! What a link in a project may lead to.

use std::path::Path;

use crate::contract::path_policy::{PathAccess, PathPolicy};

/// Returns whether the model may read the file that a link of the project leads to: no rule denies it or asks about it.
pub(crate) fn may_follow(rules: &dyn PathPolicy, real: &Path) -> bool {
    rules.restriction(real, PathAccess::Read).is_none()
}
