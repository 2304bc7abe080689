//! The manual: `aye docs`, generated tables, links and names that must exist.
//!
//! `AYE_WRITE_DOCS=1 cargo test --test it docs::generated` rewrites the tables.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use aye::config::documented_settings;
use aye::tui::keymap::{Action, KeyContext, Keymap};
use aye::tui::palette::COMMANDS;
use regex::Regex;

use crate::support::home::Home;
use crate::support::llm::{Answer, MockLlm};
use crate::support::pty::Pty;

/// The architecture must be readable in one sitting.
const MAX_ARCHITECTURE: usize = 12_000;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn text(file: impl AsRef<Path>) -> String {
    let file = root().join(file);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// A cell of a Markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn code(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("`{}`", cell(text)) }
}

fn keys() -> String {
    let keymap = Keymap::embedded();
    let mut out = String::new();
    for place in KeyContext::ALL {
        let _ = writeln!(out, "## {}\n\nTable `[{}]`.\n", place.heading(), place.name());
        out.push_str("| keys | action | what it does |\n|---|---|---|\n");
        for action in Action::ALL {
            let keys: Vec<String> = keymap.chords_of(place, *action).iter().map(|key| code(key)).collect();
            if !keys.is_empty() {
                let (name, help) = (action.name(), cell(action.help()));
                let _ = writeln!(out, "| {} | `{name}` | {help} |", keys.join(" "));
            }
        }
        out.push('\n');
    }
    out
}

fn commands() -> String {
    let mut out = String::from("| command | what it does |\n|---|---|\n");
    for command in COMMANDS {
        let written = format!("/{} {}", command.name, command.argument);
        let _ = writeln!(out, "| {} | {} |", code(written.trim_end()), cell(command.help));
    }
    out
}

fn settings() -> String {
    let mut out = String::from(
        "| key | what it is | value | default | a project may set it |\n|---|---|---|---|---|\n",
    );
    for row in documented_settings() {
        let default = code(row.default.unwrap_or_default());
        let _ = writeln!(
            out,
            "| `{}` | {} | {} | {default} | {} |",
            row.key,
            cell(&row.doc),
            cell(&row.values),
            row.project
        );
    }
    out
}

/// Variables that are no setting and no provider's key.
const VARIABLES: &[(&str, &str)] = &[
    ("AYE_HOME", "one folder for all of aye's files"),
    ("AYE_LOG", "what goes to the log, such as `debug` or `aye=trace,warn`; `warn` by default"),
    ("XDG_CONFIG_HOME, XDG_DATA_HOME, XDG_STATE_HOME, XDG_CACHE_HOME", "places of the folders below"),
    ("OLLAMA_HOST", "address of Ollama"),
    ("HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY", "proxy for models, MCP servers and remote agents"),
    ("SSL_CERT_FILE", "certificates to trust instead of the system's"),
    ("VISUAL, EDITOR", "editor for long text and edited calls; without one vi, then nano"),
    ("PAGER", "program that shows long lists and pages"),
    ("TERM, COLORTERM, NO_COLOR, COLORFGBG", "colours of the terminal, and whether it is light or dark"),
    ("FORCE_HYPERLINK", "`1` writes links, `0` writes none, whatever the terminal says"),
    ("TZ", "time zone of shown times"),
    ("TMPDIR", "folder for temporary files"),
    ("OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SDK_DISABLED", "telemetry collector, and whether it gets nothing"),
    (
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT",
        "`true` includes prompts and answers in telemetry",
    ),
];

fn environment() -> String {
    let mut out = String::from("| variable | what it does |\n|---|---|\n");
    let mut row = |names: &str, what: &str| {
        let names: Vec<String> = names.split(", ").map(code).collect();
        let _ = writeln!(out, "| {} | {what} |", names.join(", "));
    };
    for (name, key) in aye::config::ENV_KEYS {
        row(name, &format!("the setting `{key}`"));
    }
    for provider in aye::config::PROVIDERS.iter().filter(|provider| !provider.key_envs.is_empty()) {
        row(&provider.key_envs.join(", "), &format!("key of {}", provider.name));
    }
    for provider in aye::config::PROVIDERS {
        if let Some(name) = provider.base_url_env.filter(|name| *name != "OLLAMA_HOST") {
            row(name, &format!("address of {}", provider.name));
        }
    }
    for (names, what) in VARIABLES {
        row(names, what);
    }
    out
}

/// The tools of the first request.
fn tools() -> String {
    let llm = MockLlm::answers([Answer::say("Hello.")]);
    Home::with(&llm).ok(&["-p", "hi"]);
    let mut out =
        String::from("| tool | what it does | main argument | other arguments |\n|---|---|---|---|\n");
    let body = llm.last().body;
    for tool in body["tools"].as_array().expect("tools") {
        let tool = &tool["function"];
        let name = tool["name"].as_str().expect("a name");
        let about = tool["description"].as_str().unwrap_or_default();
        let ends = [". ", "; ", " (", "\n"];
        let end = ends.iter().filter_map(|end| about.find(end)).min().unwrap_or(about.len());
        let first = about[..end].trim_end_matches('.');
        let main = aye::plugins::permission::known_primary(name).unwrap_or_default();
        let arguments = tool["parameters"]["properties"].as_object().cloned().unwrap_or_default();
        let others: Vec<String> = arguments.keys().filter(|key| *key != main).map(|key| code(key)).collect();
        let _ = writeln!(out, "| `{name}` | {} | {} | {} |", cell(first), code(main), others.join(", "));
    }
    out
}

/// Each variable of aye's own that the program reads is in the manual.
#[test]
fn every_variable_is_in_the_reference() {
    let page = text("docs/reference.md");
    let name = Regex::new(r#"var(?:_os)?\("(AYE_[A-Z_]+)"\)|try_from_env\("(AYE_[A-Z_]+)"\)"#)
        .expect("an expression");
    // For tests only.
    let is_for_tests = |name: &str| name.starts_with("AYE_TEST_") || name == "AYE_FAILPOINT";
    let mut found = 0;
    for folder in ["src", "crates/config/src", "crates/tui/src", "crates/llm/src", "crates/server/src"] {
        let mut all = String::new();
        sources(&root().join(folder), &mut all);
        for name in name.captures_iter(&all).filter_map(|found| found.get(1).or(found.get(2))) {
            let name = name.as_str();
            assert!(
                is_for_tests(name) || page.contains(&format!("`{name}`")),
                "{name} is not in docs/reference.md"
            );
            found += 1;
        }
    }
    assert!(found > 3, "only {found} were found");
}

#[test]
fn generated_tables_are_current() {
    for (file, name, table) in [
        ("docs/reference.md", "environment", environment()),
        ("docs/reference.md", "tools", tools()),
        ("docs/keys.md", "keys", keys()),
        ("docs/keys.md", "commands", commands()),
        ("docs/configuration.md", "settings", settings()),
    ] {
        let page = text(file);
        let (start, end) = (format!("<!-- generated: {name} -->\n"), "<!-- end -->");
        let from = page.find(&start).unwrap_or_else(|| panic!("{file}: no {start}")) + start.len();
        let to = from + page[from..].find(end).unwrap_or_else(|| panic!("{file}: no {end} after {start}"));
        let wanted = format!("\n{}\n\n", table.trim());
        if page[from..to] == wanted {
            continue;
        }
        if std::env::var_os("AYE_WRITE_DOCS").is_some() {
            fs::write(root().join(file), format!("{}{wanted}{}", &page[..from], &page[to..]))
                .expect("written");
        } else {
            panic!(
                "{file}: the table of {name} is not current; run \
                 AYE_WRITE_DOCS=1 cargo test --features failpoints --test it docs::generated"
            );
        }
    }
}

/// All Markdown pages below a folder.
fn pages(folder: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join(folder)).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|ending| ending == "md") {
            found.push(path);
        }
    }
    assert!(!found.is_empty(), "{folder}");
    found.sort();
    found
}

/// Adds the text of all Rust files below a folder.
fn sources(folder: &Path, all: &mut String) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.ends_with("target") {
            sources(&path, all);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            all.push_str(&fs::read_to_string(&path).unwrap_or_default());
        }
    }
}

/// Names of tests in the table of what the sandbox enforces.
#[test]
fn each_row_of_what_is_enforced_has_a_test() {
    let mut tests = String::new();
    for folder in ["tests/it", "crates/sandbox/tests"] {
        sources(&root().join(folder), &mut tests);
    }
    // Attempts, which report their names, and the modules of races.
    let attempts = text("crates/sandbox/tests/probes.c");
    let page = text("docs/sandbox.md");
    let (_, rows) = page.split_once("| a command tries to |").expect("the table");
    for row in rows.lines().skip(2).take_while(|line| line.starts_with('|')) {
        let names = row.trim_matches('|').rsplit('|').next().unwrap_or_default();
        assert!(names.contains('`'), "no test: {row}");
        for name in names.split('`').filter(|name| !name.trim().is_empty()) {
            let is_test =
                ["fn NAME(", "mod NAME;"].iter().any(|form| tests.contains(&form.replace("NAME", name)));
            assert!(is_test || attempts.contains(&format!("tell(\"{name}\"")), "{name} is no test");
        }
    }
}

/// The blocks of a page in one language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let start = format!("```{language}\n");
    let found = page.split(start.as_str()).skip(1).filter_map(|rest| rest.split_once("```"));
    found.map(|(block, _)| block.to_owned()).collect()
}

/// What the tutorial prints is run in its order, with the demo model; what is typed in the terminal goes through `-p`.
#[test]
fn the_tutorial_can_be_followed() {
    let home = Home::new();
    let page = text("docs/tutorial.md");
    let [edit, run] = &blocks(&page, "text")[..] else { panic!("two messages: {page}") };
    let [project, inbox, elsewhere, audit] = &blocks(&page, "sh")[..] else { panic!("four blocks: {page}") };
    let aye = Path::new(env!("CARGO_BIN_EXE_aye")).parent().expect("a folder").display().to_string();
    let script = format!(
        "set -e; PATH=\"{aye}:$PATH\"\n{project}\n\
         aye -p '{}' --on-ask suspend || [ $? = 3 ]; aye approve ID --resume; grep -q hello greet.py\n\
         aye -c -p '{}' || [ $? = 3 ]\n{inbox}\naye approve ID --resume\n{elsewhere}\n{audit}",
        edit.trim(),
        run.trim()
    );
    let script = script.replace(" ID ", " $(aye inbox | awk 'NR == 1 {print $1}') ");
    let out = home.program("bash", &["-c", &script]).run().exits(0);
    for part in ["$ python3 greet.py", "exit status 3", "Write notes.txt", "hello from aye", "intact: "] {
        assert!(out.stdout.contains(part), "{part}: {}\n{}", out.stdout, out.stderr);
    }
}

/// The headings of a page as links name them.
fn headings(page: &str) -> impl Iterator<Item = String> {
    page.lines().filter(|line| line.starts_with('#')).map(|line| {
        let kept = line.trim_start_matches('#').trim().to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

#[test]
fn links_lead_to_files() {
    let link = Regex::new(r"\]\(([^)#:]*)(?:#([^)]*))?\)").expect("an expression");
    let mut all = pages("docs");
    all.extend(pages("docs/decisions"));
    all.extend(
        ["README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md", "src/ARCHITECTURE.md"]
            .map(|file| root().join(file)),
    );
    let mut links = 0;
    for page in all {
        for found in link.captures_iter(&text(&page)) {
            let target = if found[1].is_empty() { page.clone() } else { page.with_file_name(&found[1]) };
            assert!(target.exists(), "{}: {}", page.display(), &found[1]);
            if let Some(part) = found.get(2) {
                let part = part.as_str();
                assert!(
                    headings(&text(&target)).any(|heading| heading == part),
                    "{}: #{part}",
                    page.display()
                );
            }
            links += 1;
        }
    }
    assert!(links > 50, "only {links} links were found");
}

#[test]
fn the_architecture_is_short_and_names_files_that_exist() {
    let page = text("src/ARCHITECTURE.md");
    assert!(page.len() <= MAX_ARCHITECTURE, "{} bytes", page.len());
    let name = Regex::new(r"`([a-z_-]+(?:/[a-z_.]+)*(?:\.rs|\.md|\.toml|/))`").expect("an expression");
    let mut names = 0;
    for found in name.captures_iter(&page) {
        let path = &found[1];
        let (place, rest) = path.split_once('/').unwrap_or((path, ""));
        assert!(
            root().join("src").join(path).exists()
                || root().join(path).exists()
                || root().join("crates").join(place).join("src").join(rest).exists(),
            "src/ARCHITECTURE.md names {path}, which does not exist"
        );
        names += 1;
    }
    assert!(names > 50, "only {names} names were found");
}

#[test]
fn every_page_of_the_manual_is_embedded() {
    let home = Home::new();
    let list = home.ok(&["docs"]).stdout;
    assert!(home.ok(&["docs", "rules"]).stdout == text("docs/rules.md"), "piped, a page is its source");
    home.ok(&["docs", "security"]).prints("threat model");
    for page in pages("docs") {
        let name = page.file_stem().expect("a name").to_string_lossy().into_owned();
        assert!(list.lines().any(|line| line.split(' ').next() == Some(&name)), "{name} is not in:\n{list}");
        let source = aye::cli::DOCS_PAGES.iter().find(|(known, _)| *known == name).map(|(_, text)| *text);
        assert!(source == Some(&text(&page)), "{name}");
        let index = text("docs/index.md");
        let is_linked = index.contains(&format!("({name}.md)"));
        // Names of pages that became several.
        assert!(
            is_linked || ["index", "skills-and-agents"].contains(&name.as_str()),
            "{name} is not in the index"
        );
    }
}

#[test]
fn an_unknown_page_names_the_closest_one() {
    let home = Home::new();
    let out = home.aye(&["docs", "rule"]).run().exits(2);
    assert!(out.stderr.contains("'rules'") && out.stderr.contains("crash-safety"), "{}", out.stderr);
    home.ok(&["completion", "bash"]).prints("troubleshooting");
    home.ok(&["man"]).prints("docs");
}

#[test]
fn the_manual_is_shown_even_with_broken_settings() {
    let home = Home::new();
    home.config("model = ");
    let tty = Pty::start(&home, &["docs", "crash-safety"], 80, 60);
    tty.shows("decisions are applied exactly once");
    assert!(
        !tty.look(crate::support::pty::View::all).contains("# Crash safety"),
        "a title is laid out, not shown as its source"
    );
}
