//! Definitions that `@path#name` and `@#name` mention, found in the files of the project on request.

use std::collections::HashMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::compose::images::{self, OpenedFile};
use crate::contract::content::ContentBlock;
use crate::contract::display::visible_line;
use crate::failure::AppError;
use crate::program::app_context::AppContext;
use crate::tui::highlight::symbols::{Symbol, extent, find};
use crate::tui::host::MentionRow;

/// The maximum size of files that are searched, in bytes.
const MAX_BYTES: u64 = 256 << 10;
/// The maximum number of files searched in a project.
const MAX_FILES: usize = 5_000;
/// The maximum time for a list; results found by then are available the next time.
const MAX_TIME: Duration = Duration::from_secs(1);
/// The maximum number of completions.
const OFFERED: usize = 50;
/// The minimum length of a name: shorter ones match too much.
const SHORTEST: usize = 2;
/// The maximum definitions of a name in one file attached to a message.
const ATTACHED: usize = 3;

/// The symbols of a file as it was at a time.
type Known = HashMap<PathBuf, (SystemTime, Arc<[Symbol]>)>;

/// The symbols of the files that were asked about.
#[derive(Default)]
pub(crate) struct Symbols {
    known: Mutex<Known>,
}

impl Symbols {
    /// Returns the definitions that match what was typed: `path#name`, or `#name` for the whole project. Blocks.
    pub(crate) fn complete(&self, cwd: &Path, files: &[String], query: &str) -> Vec<MentionRow> {
        let Some((path, name)) = query.rsplit_once('#') else { return Vec::new() };
        let (end, name) = (Instant::now() + MAX_TIME, name.to_lowercase());
        let mut rows: Vec<(bool, MentionRow)> = Vec::new();
        let one = [path.to_owned()];
        let files = if path.is_empty() { files } else { &one[..] };
        if path.is_empty() && name.chars().count() < SHORTEST {
            return Vec::new();
        }
        for file in files.iter().filter(|file| !file.ends_with('/')).take(MAX_FILES) {
            if Instant::now() >= end {
                break;
            }
            for symbol in self.of_file(&cwd.join(file), &name, end).iter() {
                let lower = symbol.name.to_lowercase();
                if lower.contains(&name) {
                    let label = format!("{file}#{}", symbol.name);
                    let detail = format!("line {}", symbol.line);
                    rows.push((!lower.starts_with(&name), MentionRow { label, detail }));
                }
            }
        }
        rows.sort_by_key(|(is_inside, _)| *is_inside);
        rows.dedup_by(|a, b| a.1.label == b.1.label);
        rows.into_iter().map(|(_, row)| row).take(OFFERED).collect()
    }

    /// Returns the definitions in a file; empty if the file does not contain the name.
    fn of_file(&self, place: &Path, name: &str, end: Instant) -> Arc<[Symbol]> {
        let none = || Arc::from(Vec::new());
        let Some(changed) = changed(place) else { return none() };
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, symbols)) = known.get(place).filter(|(at, _)| *at == changed) {
            return Arc::clone(symbols);
        }
        drop(known);
        let Some((text, _)) = read(place) else { return none() };
        if !name.is_empty() && !text.to_lowercase().contains(name) {
            return none();
        }
        let file = place.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let found = find(&file, &text, || Instant::now() < end).unwrap_or_default();
        let found: Arc<[Symbol]> = found.into();
        // An incomplete search is repeated the next time.
        if Instant::now() < end {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            if known.len() >= MAX_FILES {
                known.clear();
            }
            known.insert(place.to_owned(), (changed, Arc::clone(&found)));
        }
        found
    }
}

/// Returns when a file was changed, if it is small enough to be searched.
fn changed(place: &Path) -> Option<SystemTime> {
    let meta = place.metadata().ok().filter(|meta| meta.is_file() && meta.len() <= MAX_BYTES)?;
    meta.modified().ok()
}

/// The text of such a file.
fn read(place: &Path) -> Option<(String, OpenedFile)> {
    let opened = OpenedFile::at(place).ok()?;
    let mut text = String::new();
    (&opened.file).take(MAX_BYTES).read_to_string(&mut text).ok()?;
    Some((text, opened))
}

/// The paths and names in a text.
fn named(text: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices('@') {
        if text[..at].chars().next_back().is_some_and(|before| !before.is_whitespace()) {
            continue;
        }
        let rest = &text[at + 1..];
        let word = match rest.strip_prefix('"').and_then(|rest| rest.split_once('"')) {
            Some((word, _)) => word,
            None => rest.split(char::is_whitespace).next().unwrap_or_default(),
        };
        let word = word.trim_end_matches([',', ';', '.', ')', '"', '\'', '?', '!', ':']);
        found.extend(word.rsplit_once('#').filter(|(path, name)| !path.is_empty() && !name.is_empty()));
    }
    found
}

/// Returns the lines of the definitions that a text mentions. A mention stays text if it is not a file, or if
/// the file does not define the name.
pub(crate) async fn attached(
    app: &AppContext,
    symbols: &Arc<Symbols>,
    text: &str,
) -> Result<Vec<ContentBlock>, AppError> {
    let mut blocks = Vec::new();
    for (path, name) in named(text) {
        let place = app.foundation.workspace.cwd.join(path);
        let (symbols, wanted, file) = (Arc::clone(symbols), name.to_owned(), path.to_owned());
        let source = place.clone();
        let found = tokio::task::spawn_blocking(move || definitions(&symbols, &source, &file, &wanted)).await;
        let Some((found, opened)) = found.unwrap_or_default().filter(|(found, _)| !found.is_empty()) else {
            continue;
        };
        images::may_be_read(app, &place, path)?;
        opened.may_be_read(app, path)?;
        blocks.extend(found.into_iter().map(ContentBlock::text));
    }
    Ok(blocks)
}

fn definitions(symbols: &Symbols, place: &Path, file: &str, name: &str) -> Option<(Vec<String>, OpenedFile)> {
    let end = Instant::now() + MAX_TIME * 3;
    let all = symbols.of_file(place, &name.to_lowercase(), end);
    if all.is_empty() {
        return None;
    }
    let (text, opened) = read(place)?;
    let mut found = Vec::new();
    for symbol in all.iter().filter(|symbol| symbol.name == name).take(ATTACHED) {
        let (first, last) = extent(&text, symbol.line);
        let lines: Vec<&str> = text.lines().skip(first - 1).take(last + 1 - first).collect();
        let (file, name) = (visible_line(file), visible_line(name));
        found.push(format!("[`{name}` of {file}, lines {first} to {last}]\n\n{}", lines.join("\n")));
    }
    Some((found, opened))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_a_text() {
        let text = "see @src/a.rs#main, (@b.rs#x) @\"c d.py#run\"? x@y#z @#alone @e.rs# @f.rs";
        assert_eq!(named(text), [("src/a.rs", "main"), ("c d.py", "run")]);
    }

    #[test]
    fn definitions_are_completed_by_file_and_across_the_project() {
        let dir = tempfile::tempdir().expect("a folder");
        let put = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect("written");
        put("a.rs", "fn start() {}\nfn restart() {\n    start();\n}\n");
        put("b.py", "def start_all():\n    pass\n");
        put("large.rs", &format!("fn start() {{}}\n{}", "// x\n".repeat(60_000)));
        let files: Vec<String> = ["a.rs", "b.py", "large.rs", "gone.rs", "src/"].map(str::to_owned).to_vec();
        let symbols = Symbols::default();
        let of = |query: &str| -> Vec<String> {
            let rows = symbols.complete(dir.path(), &files, query);
            rows.into_iter().map(|row| format!("{} {}", row.label, row.detail)).collect()
        };
        assert_eq!(of("a.rs#"), ["a.rs#start line 1", "a.rs#restart line 2"]);
        assert_eq!(of("a.rs#RES"), ["a.rs#restart line 2"]);
        assert_eq!(of("#start"), ["a.rs#start line 1", "b.py#start_all line 1", "a.rs#restart line 2"]);
        assert!(of("#s").is_empty() && of("a.rs").is_empty() && of("gone.rs#x").is_empty());
        let found = definitions(&symbols, &dir.path().join("a.rs"), "a.rs", "restart");
        let found = found.map(|(found, _)| found).unwrap_or_default();
        assert_eq!(found, ["[`restart` of a.rs, lines 2 to 4]\n\nfn restart() {\n    start();\n}"]);
        // A file that was changed is read again.
        put("a.rs", "\n\nfn restart() {}\n");
        let later = SystemTime::now() + Duration::from_secs(5);
        let file = std::fs::File::options().write(true).open(dir.path().join("a.rs")).expect("it is there");
        file.set_modified(later).expect("a time");
        assert_eq!(of("a.rs#"), ["a.rs#restart line 3"]);
    }
}
