//! Folders whose files are third-party or generated: nothing in them speaks for the project.

const NAMES: [&str; 10] = [
    "node_modules",
    "target",
    "vendor",
    "dist",
    "build",
    "out",
    "__pycache__",
    "venv",
    "site-packages",
    "bower_components",
];

/// Returns whether a folder of this name is hidden, or contains third-party or generated files.
pub fn is_foreign(name: &str) -> bool {
    name.starts_with('.') || NAMES.contains(&name)
}
