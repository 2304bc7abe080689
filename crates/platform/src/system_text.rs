//! Short files of the system.

/// Returns the text of a file without what is around it; empty if it cannot be read.
pub(crate) fn line(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}
