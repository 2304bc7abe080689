//! The arrows and the absences of `src/ARCHITECTURE.md`, held by reading the sources.
//!
//! What counts is code: comments, texts and everything under `#[cfg(test)]` are taken out before a rule looks.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Each room, and the rooms it may name. The order is that of the architecture's picture, lowest first.
const ARROWS: &[(&str, &[&str])] = &[
    ("state", &[]),
    ("contract", &["state"]),
    ("front_matter", &["contract"]),
    ("walk", &[]),
    ("run", &["contract", "state"]),
    ("pattern", &["contract", "state"]),
    ("phase", &["contract", "state"]),
    ("context", &["contract", "state"]),
    ("llm", &["context", "contract"]),
    ("store", &["contract"]),
    ("runtime", &["llm", "store", "run", "phase", "pattern", "context", "contract", "state"]),
    ("snapshots", &["store", "walk", "contract"]),
    ("plugins", &["phase", "pattern", "context", "front_matter", "walk", "contract", "state"]),
    ("agents", &["pattern", "front_matter", "contract"]),
    ("tools", &["walk", "contract", "state"]),
    ("mcp", &["contract"]),
    ("picture", &["contract"]),
    ("config", &["contract"]),
    ("cli", &["config", "contract"]),
    ("headless", &["runtime", "contract"]),
    ("tui", &["runtime", "config", "contract"]),
    // Names for programs that embed aye: it points to what is elsewhere.
    ("facade", &["runtime", "store", "llm", "mcp", "plugins", "phase", "contract", "state"]),
    // The composition root names everything.
    (
        "app",
        &[
            "agents",
            "cli",
            "logging",
            "config",
            "context",
            "contract",
            "headless",
            "llm",
            "mcp",
            "pattern",
            "phase",
            "picture",
            "plugins",
            "run",
            "runtime",
            "snapshots",
            "state",
            "store",
            "tools",
            "tui",
            "walk",
        ],
    ),
];

/// Words that stand in some places only.
const ONLY_IN: &[(&str, &[&str])] = &[
    ("genai::", &["llm/"]),
    ("rmcp::", &["mcp/"]),
    ("rusqlite::", &["store/"]),
    ("ratatui::", &["tui/"]),
    ("crossterm::", &["tui/"]),
    ("syntect::", &["tui/"]),
    ("two_face::", &["tui/"]),
    ("pulldown_cmark::", &["tui/"]),
    ("png::", &["picture/"]),
    ("zune_jpeg::", &["picture/"]),
    ("gif::", &["picture/"]),
    ("image_webp::", &["picture/"]),
    ("tree_sitter::", &["pattern/"]),
    ("tree_sitter_bash::", &["pattern/"]),
    ("opentelemetry::", &["plugins/observe/"]),
    ("opentelemetry_sdk::", &["plugins/observe/"]),
    ("opentelemetry_otlp::", &["plugins/observe/"]),
    ("clap::", &["cli.rs", "cli/", "app/"]),
    ("tracing_subscriber::", &["logging.rs"]),
    // The environment and the home directory are read at the composition root and come down as values. The one
    // exception is the library's convenience `GenaiExecutor::new`, which says so.
    (
        "std::env::",
        &[
            "main.rs",
            "app/",
            "llm/executor/environment.rs",
            "facade/ext_permission.rs",
            // What the process of a server is started with.
            "facade/ext_mcp.rs",
        ],
    ),
    ("env::var", &["app/", "llm/executor/environment.rs", "facade/ext_mcp.rs"]),
    ("directories::", &["app/"]),
    // The terminal belongs to the front ends; a supervisor's stdout and stderr are pipes to the tool that started it.
    ("io::stdout", &["app/", "headless/", "tui/", "tools/exec/supervisor.rs"]),
    ("io::stderr", &["app/", "headless/", "tui/", "tools/exec/supervisor.rs"]),
    ("io::stdin", &["app/", "headless/", "tui/", "tools/exec/supervisor.rs"]),
    ("println!", &[]),
    ("eprintln!", &[]),
    ("dbg!", &[]),
];

/// Plain data code: no async, no clock, no file, no channel.
const PURE: [&str; 8] =
    ["state/", "run/", "pattern/", "context/", "tui/view.rs", "tui/view/", "tui/update.rs", "tui/update/"];
const IMPURE: [&str; 12] = [
    "async fn",
    "async move",
    ".await",
    "tokio::",
    "futures::",
    "std::fs",
    "std::net",
    "std::process",
    "std::thread",
    "SystemTime",
    "Instant",
    "jiff::",
];

struct Source {
    /// Below `src/`, with `/`.
    path: String,
    /// Comments, texts and test code blanked; lines stay where they are.
    code: String,
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of sources") {
            let path: PathBuf = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let name = path.strip_prefix(&root).expect("below src").to_string_lossy().into_owned();
                if !is_test_file(&name) {
                    let text = fs::read_to_string(&path).expect("a source");
                    found.push(Source { path: name, code: without_tests(&code_of(&text)) });
                }
            }
        }
    }
    assert!(found.len() > 100, "the sources are somewhere else: {} files", found.len());
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn is_test_file(path: &str) -> bool {
    path.split('/').any(|part| {
        matches!(part, "tests" | "tests.rs" | "testing.rs" | "tests_more.rs") || part.ends_with("_tests.rs")
    })
}

/// The text with comments, strings and characters blanked.
fn code_of(text: &str) -> String {
    let bytes: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut i = 0;
    let blank = |out: &mut String, chars: &[char]| {
        out.extend(chars.iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
    };
    while i < bytes.len() {
        let rest = &bytes[i..];
        let length = match rest {
            ['/', '/', ..] => rest.iter().position(|c| *c == '\n').unwrap_or(rest.len()),
            ['/', '*', ..] => block_comment(rest),
            ['r', '"' | '#', ..] | ['b', 'r', '"' | '#', ..]
                if i == 0 || !(bytes[i - 1].is_alphanumeric() || bytes[i - 1] == '_') =>
            {
                raw_string(rest)
            }
            ['"', ..] => quoted(rest, '"'),
            // A character, not a lifetime.
            ['\'', '\\', ..] | ['\'', _, '\'', ..] => quoted(rest, '\''),
            _ => 0,
        };
        if length == 0 {
            out.push(bytes[i]);
            i += 1;
        } else {
            blank(&mut out, &rest[..length]);
            i += length;
        }
    }
    out
}

fn block_comment(rest: &[char]) -> usize {
    let (mut depth, mut i) = (0_usize, 0);
    while i < rest.len() {
        match &rest[i..] {
            ['/', '*', ..] => (depth, i) = (depth + 1, i + 2),
            ['*', '/', ..] => {
                (depth, i) = (depth - 1, i + 2);
                if depth == 0 {
                    return i;
                }
            }
            _ => i += 1,
        }
    }
    rest.len()
}

fn raw_string(rest: &[char]) -> usize {
    let start = if rest[0] == 'b' { 2 } else { 1 };
    let hashes = rest[start..].iter().take_while(|c| **c == '#').count();
    if rest.get(start + hashes) != Some(&'"') {
        // A raw identifier.
        return 0;
    }
    let mut i = start + hashes + 1;
    while i < rest.len() {
        if rest[i] == '"' && rest[i + 1..].iter().take(hashes).filter(|c| **c == '#').count() == hashes {
            return i + 1 + hashes;
        }
        i += 1;
    }
    rest.len()
}

fn quoted(rest: &[char], quote: char) -> usize {
    let mut i = 1;
    while i < rest.len() {
        match rest[i] {
            '\\' => i += 2,
            c if c == quote => return i + 1,
            _ => i += 1,
        }
    }
    rest.len()
}

/// Blanks each item below `#[cfg(test)]`: to the brace that closes it, or to its semicolon.
fn without_tests(code: &str) -> String {
    let mut chars: Vec<char> = code.chars().collect();
    let mark: Vec<char> = "#[cfg(test)]".chars().collect();
    let mut i = 0;
    while i + mark.len() <= chars.len() {
        if chars[i..i + mark.len()] != mark[..] {
            i += 1;
            continue;
        }
        let mut end = i + mark.len();
        let mut depth = 0_usize;
        while end < chars.len() {
            match chars[end] {
                '{' => depth += 1,
                '}' if depth <= 1 => break,
                '}' => depth -= 1,
                ';' if depth == 0 => break,
                _ => {}
            }
            end += 1;
        }
        let end = (end + 1).min(chars.len());
        for c in &mut chars[i..end] {
            if *c != '\n' {
                *c = ' ';
            }
        }
        i = end;
    }
    chars.into_iter().collect()
}

fn line_of(code: &str, at: usize) -> usize {
    code[..at].matches('\n').count() + 1
}

/// Where a word stands that is not the tail of a longer one.
fn places<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word).map(|(at, _)| at).filter(|at| {
        let before = code[..*at].chars().next_back();
        // A path that goes on to the left (`other::std::env`) is another one; a leading `::` is the same.
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '.') || word.starts_with('.')
    })
}

/// The names that follow a path's beginning: one, or those of a group in braces.
fn names_after(code: &str, at: usize) -> Vec<String> {
    let ident = |text: &str| -> String {
        text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    let rest = code[at..].trim_start();
    let Some(group) = rest.strip_prefix('{') else { return vec![ident(rest)] };
    let (mut depth, mut names, mut piece) = (0_usize, Vec::new(), String::new());
    for c in group.chars() {
        match c {
            '}' if depth == 0 => break,
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                names.push(ident(&piece));
                piece.clear();
                continue;
            }
            _ => {}
        }
        piece.push(c);
    }
    names.push(ident(&piece));
    names.retain(|name| !name.is_empty());
    names
}

/// How many `super::` lead from the top of a file out of its room, to the crate's root.
fn depth(path: &str) -> usize {
    let parts = path.split('/').count();
    if path.ends_with("/mod.rs") { parts - 1 } else { parts }
}

/// The names of rooms and other things at the crate's root that a file speaks of, with their lines.
fn root_names(source: &Source) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    let up = "super::".repeat(depth(&source.path));
    for way in ["crate::", up.as_str()] {
        for at in places(&source.code, way) {
            for name in names_after(&source.code, at + way.len()) {
                found.push((name, line_of(&source.code, at)));
            }
        }
    }
    found
}

fn complain(broken: &[String]) {
    let mut text = String::new();
    for line in broken {
        let _ = writeln!(text, "  {line}");
    }
    assert!(broken.is_empty(), "the architecture does not allow:\n{text}");
}

#[test]
fn dependencies_point_down() {
    let mut broken = Vec::new();
    for source in sources() {
        let Some((room, _)) = source.path.split_once('/') else { continue };
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == room) else {
            broken.push(format!("src/{room}/ is not in the map: add it to ARROWS and to ARCHITECTURE.md"));
            continue;
        };
        for (name, line) in root_names(&source) {
            // What `lib.rs` exports again is for the outside: named from inside it would hide an arrow.
            if name != room && !allowed.contains(&name.as_str()) && name != "super" && name != "self" {
                broken.push(format!("src/{}:{line}: {room} -> {name}", source.path));
            }
        }
    }
    broken.sort();
    broken.dedup();
    complain(&broken);
}

#[test]
fn arrows_have_no_circle() {
    // Lower rooms stand first in the table; only `app` stands above two single files.
    for (i, (room, allowed)) in ARROWS.iter().enumerate() {
        for lower in *allowed {
            let at = ARROWS.iter().position(|(name, _)| name == lower);
            assert!(at.is_none_or(|at| at < i), "{room} names {lower}, which stands above it");
            assert!(at.is_some() || *room == "app", "{room} names {lower}, which is no room");
        }
    }
}

#[test]
fn plugins_do_not_name_each_other() {
    let mut broken = Vec::new();
    for source in sources() {
        let Some((plugin, _)) = source.path.strip_prefix("plugins/").and_then(|path| path.split_once('/'))
        else {
            continue;
        };
        for at in places(&source.code, "crate::plugins::") {
            for name in names_after(&source.code, at + "crate::plugins::".len()) {
                if name != plugin {
                    let line = line_of(&source.code, at);
                    broken.push(format!("src/{}:{line}: {plugin} -> {name}", source.path));
                }
            }
        }
    }
    complain(&broken);
}

#[test]
fn crates_and_the_outside_are_named_where_they_belong() {
    let mut broken = Vec::new();
    for source in sources() {
        for (word, allowed) in ONLY_IN {
            if allowed.iter().any(|place| source.path.starts_with(place)) {
                continue;
            }
            for at in places(&source.code, word) {
                let line = line_of(&source.code, at);
                broken.push(format!("src/{}:{line}: `{word}` belongs to {allowed:?}", source.path));
            }
        }
    }
    complain(&broken);
}

#[test]
fn plain_data_code_stays_plain() {
    let mut broken = Vec::new();
    for source in sources() {
        if !PURE.iter().any(|place| source.path.starts_with(place)) {
            continue;
        }
        for word in IMPURE {
            for at in places(&source.code, word) {
                let line = line_of(&source.code, at);
                broken.push(format!("src/{}:{line}: `{word}` in plain data code", source.path));
            }
        }
    }
    complain(&broken);
}

#[test]
fn no_state_is_global() {
    let mut broken = Vec::new();
    for source in sources() {
        // Crash points are armed once for the whole process, in test builds only.
        if source.path == "store/failpoint.rs" {
            continue;
        }
        for at in places(&source.code, "static ") {
            // `&'static str` is no item.
            if source.code[..at].ends_with('\'') {
                continue;
            }
            let item = source.code[at..].split(['=', ';']).next().unwrap_or_default();
            if ["mut ", "Mutex", "RwLock", "Atomic", "RefCell", "Cell<"]
                .iter()
                .any(|word| item.contains(word))
            {
                broken.push(format!("src/{}:{}: {item}", source.path, line_of(&source.code, at)));
            }
        }
        for at in places(&source.code, "thread_local!") {
            broken.push(format!("src/{}:{}: thread_local", source.path, line_of(&source.code, at)));
        }
    }
    complain(&broken);
}

#[test]
fn the_reader_sees_code_and_nothing_else() {
    let text = "use crate::llm; // crate::store\nlet a = \"crate::tui\"; let b = r#\"\"crate::app\"#;\n\
                /* crate::x /* y */ */ fn f<'a>(c: char) -> bool { c == '\"' }\n\
                #[cfg(test)]\nmod tests { use crate::cli; fn g() {} }\nuse crate::{run::Run, phase};\n";
    let code = without_tests(&code_of(text));
    let source = Source { path: "x/y.rs".into(), code };
    let names: Vec<_> =
        root_names(&source).into_iter().map(|(name, line)| format!("{name} {line}")).collect();
    assert_eq!(names, ["llm 1", "run 6", "phase 6"]);
    let source = Source { path: "x/mod.rs".into(), code: "use super::store::Store;".into() };
    assert_eq!(root_names(&source), [("store".to_owned(), 1)]);
}
