//! Each block of the manual is tried: files by the program that reads them, shell lines by the program with the demo
//! model. A block that cannot be tried is in a table below, with the reason.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use aye::cli::Cli;
use aye::tui::keymap::Keymap;
use regex::Regex;
use serde_json::Value;

use crate::support::home::{Home, id_of};
use crate::support::llm::{Answer, MockLlm};

/// A block of code of a page.
struct Block {
    /// Page and line.
    at: String,
    page: String,
    language: String,
    text: String,
}

/// The blocks of README and of all pages, in order.
fn blocks() -> Vec<Block> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages: Vec<_> = fs::read_dir(root.join("docs"))
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|end| end == "md"))
        .collect();
    pages.sort();
    pages.extend(["README.md", "SECURITY.md"].map(|name| root.join(name)));
    let mut found: Vec<Block> = Vec::new();
    for path in pages {
        let page = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let mut open: Option<(usize, Block)> = None;
        for (index, line) in fs::read_to_string(&path).expect("a page").lines().enumerate() {
            let bare = line.trim_start();
            match (&mut open, bare.strip_prefix("```")) {
                (None, Some(language)) => {
                    let at = format!("{page}:{}", index + 1);
                    let block =
                        Block { at, page: page.clone(), language: language.into(), text: String::new() };
                    open = Some((line.len() - bare.len(), block));
                }
                (Some((indent, block)), None) => {
                    block.text.push_str(line.get(*indent..).unwrap_or_default());
                    block.text.push('\n');
                }
                (Some(_), Some(_)) => found.extend(open.take().map(|(_, block)| block)),
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{page}: a block has no end");
    }
    found
}

/// The commands of a block for the shell: the lines after `$ ` if there are any, with their continuations.
fn commands(text: &str) -> Vec<String> {
    let is_session = text.lines().any(|line| line.starts_with("$ "));
    let joined = text.replace("\\\n", " ");
    let lines = joined.lines().map(str::trim_end).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .filter_map(|line| if is_session { line.strip_prefix("$ ") } else { Some(line) })
        .map(str::to_owned)
        .collect()
}

/// Settings of a page go to the program that would read them.
#[test]
fn each_file_of_the_manual_is_read_by_the_program() {
    let llm = MockLlm::by(|_| Answer::say("Hello."));
    let mut tried = BTreeSet::new();
    let wrong = RefCell::new(Vec::new());
    for block in blocks() {
        let Block { at, language, text, .. } = &block;
        let home = Home::new();
        let config = home.root().join("aye/config");
        let put = |path: &str| {
            let path = config.join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(&path, text).expect("written");
            path.to_string_lossy().into_owned()
        };
        let ok = |args: &[&str]| {
            let out = home.aye(args).run();
            if out.status.code() != Some(0) {
                wrong.borrow_mut().push(format!("{at}: {args:?}: {}{}", out.stdout, out.stderr));
            }
            out.stdout
        };
        let first = text.lines().next().unwrap_or_default();
        let kind = match language.as_str() {
            "toml" if first == "[dependencies]" => "Cargo.toml",
            "toml" if first.starts_with("[[hooks]]") => {
                put("hooks.toml");
                assert!(ok(&["hooks", "list"]).contains("no-push"), "{at}");
                "hooks.toml"
            }
            "toml" if first == "# /etc/aye/policy.toml" => {
                aye::config::MachinePolicy::parse("/etc/aye/policy.toml".as_ref(), text)
                    .unwrap_or_else(|error| panic!("{at}: {error}"));
                "policy.toml"
            }
            "toml" if first.starts_with("inherits") => {
                put("themes/mine.toml");
                let out = ok(&["doctor", "--config", "theme=mine"]);
                assert!(!out.contains("themes/mine.toml"), "{at}: {out}");
                "theme"
            }
            "toml" if first.starts_with("[composer") || first.starts_with("[global") => {
                Keymap::with_file("keymap.toml", text).unwrap_or_else(|error| panic!("{at}: {error}"));
                "keymap.toml"
            }
            "toml" => {
                // A server of its own gets the request; its programs are not installed here.
                let text = text.replace("http://127.0.0.1:8080/v1", &llm.url);
                fs::write(config.join("config.toml"), text).expect("written");
                let out = home.aye(&["-p", "hi"]).env("PATH", "/nonexistent").env("WORK_KEY", "key").run();
                if out.status.code() != Some(0) {
                    wrong.borrow_mut().push(format!("{at}: {}", out.stderr));
                }
                "config.toml"
            }
            "yaml" if first.starts_with("name:") => "workflow",
            "yaml" => {
                let path = put("permissions.yaml");
                ok(&["permissions", "check", "--each-rule", "--rules", &path]);
                "permissions.yaml"
            }
            "json" => {
                let value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{at}: {error}"));
                let members: Vec<&str> =
                    value.as_object().expect("an object").keys().map(String::as_str).collect();
                match members[..] {
                    ["mcpServers"] => {
                        home.write(".mcp.json", text);
                        let name = value["mcpServers"].as_object().and_then(|all| all.keys().next());
                        assert!(ok(&["mcp", "list", "--trust"]).contains(name.expect("a server")), "{at}");
                        ".mcp.json"
                    }
                    ["rules"] => {
                        let path = put("reminders.json");
                        ok(&["reminders", "check", &path]);
                        "reminders.json"
                    }
                    // Of an editor or another agent, and of a container.
                    ["agent_servers" | "hooks"] | ["image", ..] => "another program",
                    _ => panic!("{at}: which program reads this? {members:?}"),
                }
            }
            "markdown" if text.contains("\nname: ") => {
                let name = text.lines().find_map(|line| line.strip_prefix("name: ")).expect("a name");
                put(&format!("skills/{name}/SKILL.md"));
                ok(&["skills", "check", &config.join("skills").join(name).to_string_lossy()]);
                assert!(ok(&["skills", "list"]).contains(name), "{at}");
                "SKILL.md"
            }
            "markdown" => {
                put("agents/mine.md");
                let out = home.aye(&["agents", "show", "mine"]).env("BILLING_TOKEN", "t").run();
                if out.status.code() != Some(0) || !out.stderr.is_empty() {
                    wrong.borrow_mut().push(format!("{at}: {}", out.stderr));
                }
                "agent"
            }
            "sh" | "text" | "js" | "rust" | "Dockerfile" => continue,
            other => panic!("{at}: a block of {other}"),
        };
        tried.insert(kind);
    }
    let wrong = wrong.take();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(tried.len() > 8, "{tried:?}");
}

/// Starts of commands that are read but not run, and why.
const NOT_RUN: &[(&str, &str)] = &[
    ("git clone", "needs the network"),
    ("cargo ", "builds aye"),
    ("sh install.sh", "needs packages; a test of its own runs it"),
    ("npm install", "needs packages; the check of the packages runs it"),
    ("pip install", "needs packages; the check of the packages runs it"),
    ("sudo apt install", "needs packages; the check of the packages installs it"),
    ("scripts/package", "builds aye"),
    ("export ", "is of the shell"),
    ("aye login", "asks for a key"),
    ("aye mcp login", "needs a browser"),
    ("aye mcp test", "starts a program from a registry"),
    ("aye \"", "opens the terminal"),
    ("aye  ", "opens the terminal"),
    ("aye -w parser \"", "opens the terminal"),
    ("aye -p --json-schema", "the demo model writes no JSON"),
    ("aye answer ID '{\"userAction\"", "the demo model draws no form"),
    ("aye approve ID --resume    # accepts the form", "the demo model draws no form"),
    ("aye serve", "serves until it is stopped"),
    ("aye work", "works until it is stopped"),
    ("aye -p \"/goal", "needs a model that can read"),
    ("aye queue retry", "no job is dead"),
    ("aye gate --", "starts a program from a registry"),
    ("aye gate --url", "needs the network"),
    ("aye eval --runs", "the demo model passes no case"),
    ("aye eval --compare", "the demo model passes no case"),
];

fn is_run(command: &str) -> bool {
    command.contains("aye ") && !NOT_RUN.iter().any(|(start, _)| command.starts_with(start))
}

/// The home for the commands of a page.
fn prepared(page: &str) -> Home {
    let home = Home::new();
    home.config("");
    home.git(&["init", "-q"]);
    home.write("a.txt", "one\n");
    home.git(&["add", "."]);
    home.git(&["commit", "-qm", "first"]);
    home.write("a.txt", "two\n");
    let printed = |language: &str| {
        let block = blocks().into_iter().find(|block| block.page == page && block.language == language);
        block.expect("a block").text
    };
    match page {
        "memory" => {
            for note in ["one", "two", "three"] {
                home.ok(&["memory", "add", note]);
                home.ok(&["memory", "add", "--user", note]);
            }
        }
        "rules" => {
            home.aye(&["-p", "run touch y"]).run().exits(3);
            home.ok(&["approve", &home.question(), "--grant", "1"]);
        }
        "headless" => {
            let image = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/themes.png");
            fs::copy(image, home.work().join("shot.png")).expect("copied");
            home.write("tests/run.sh", "true\n");
        }
        "goals" => home.write("tests/run.sh", "true\n"),
        "queue" => {
            for _ in 0..3 {
                home.ok(&["queue", "add", "hi"]);
            }
        }
        "write-a-skill" => {
            home.write(".agents/skills/release/SKILL.md", &printed("markdown"));
        }
        "skills" => home.write("DIR/SKILL.md", "---\nname: DIR\ndescription: d\n---\nText.\n"),
        "teams" => home.write(".aye/permissions.yaml", &printed("yaml")),
        "sessions" | "replay" => {
            home.ok(&["-p", "hi"]);
        }
        "hooks" => {
            fs::write(home.root().join("aye/config/hooks.toml"), printed("toml")).expect("written");
        }
        _ => {}
    }
    home
}

/// The conversation of the manual.
const THREAD: &str = "0198c0de-7a31";

/// The command with names of this home.
fn with_names(home: &Home, mut command: String) -> String {
    if let Some(name) =
        ["perm_call_ff20", " ID "].into_iter().find(|name| format!("{command} ").contains(name))
    {
        let id = if command.contains("aye grants") {
            let grants = home.ok(&["grants", "list", "--json"]).json();
            grants[0]["id"].as_str().expect("a grant").to_owned()
        } else {
            // A command that no earlier line of the page has allowed.
            let name = format!("run p{} x", home.ok(&["threads", "list"]).stdout.lines().count());
            home.aye(&["-p", &name]).run().exits(3);
            id_of(home.open().last().expect("a question"))
        };
        command = format!("{command} ").replace(name.trim(), &id);
    }
    if command.contains(THREAD) {
        command = command.replace(THREAD, &home.thread());
    }
    command
}

/// Each line for the shell runs as it is printed, in the order of its page, and ends well or with a question.
#[test]
fn each_command_of_the_manual_runs() {
    let aye = Path::new(env!("CARGO_BIN_EXE_aye")).parent().expect("a folder");
    let path = format!("{}:{}", aye.display(), std::env::var("PATH").unwrap_or_default());
    let mut home: Option<(String, Home)> = None;
    let (mut run, mut wrong) = (0, Vec::new());
    // The tutorial has a test of its own.
    for block in blocks().iter().filter(|block| block.language == "sh" && block.page != "tutorial") {
        for command in commands(&block.text).into_iter().filter(|command| is_run(command)) {
            if home.as_ref().is_none_or(|(page, _)| *page != block.page) {
                home = Some((block.page.clone(), prepared(&block.page)));
            }
            let (_, home) = home.as_ref().expect("prepared");
            let command = with_names(home, command);
            let editor = "sed -i s/x/y/";
            let out = home.program("bash", &["-c", &command]).env("PATH", &path).env("EDITOR", editor).run();
            run += 1;
            if !matches!(out.status.code(), Some(0 | 3)) {
                wrong.push(format!("{}: {command}\n{}{}", block.at, out.status, out.stderr));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(run > 30, "only {run} were run");
}

/// Values of the names that the manual uses for what a user chooses.
const VALUES: &[(&str, &str)] =
    &[("PAGE", "rules"), ("SHELL", "bash"), ("MODE", "ask"), ("N", "3"), ("SECONDS", "9"), ("JSON", "{}")];

/// Reads a command line as the program does; a call in a sentence may leave out what the program needs.
fn read_command(command: &str, is_in_a_sentence: bool) -> Result<(), String> {
    let command = command.split(" > ").next().unwrap_or_default();
    let words = shlex::split(command).ok_or("its quotes do not match")?;
    let mut words: Vec<String> = words
        .iter()
        .map(|word| {
            let word = word.trim_start_matches('[').trim_end_matches(']');
            VALUES.iter().find(|(name, _)| *name == word).map_or(word, |(_, value)| value).to_owned()
        })
        .collect();
    if is_in_a_sentence {
        let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
        words.insert(end, "--help".into());
    }
    match Cli::parse_args(words) {
        Err(error) if error.exit_code() != 0 => Err(error.to_string()),
        _ => Ok(()),
    }
}

/// Each command and flag that the manual names exists, in sentences and in blocks.
#[test]
fn each_command_that_the_manual_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let inline = Regex::new(r"`(aye [^`\n]+)`").expect("an expression");
    let parts = Regex::new(r" [|] | && | [|][|] ").expect("an expression");
    let (mut wrong, mut checked) = (Vec::new(), 0);
    let mut check = |at: &str, command: &str, is_in_a_sentence: bool| {
        // The overview of all flags is answered before anything is read.
        let is_read = !command.contains(['…', '|']) && !command.contains("...") && command != "aye help all";
        if is_read {
            checked += 1;
            if let Err(error) = read_command(command, is_in_a_sentence) {
                wrong.push(format!("{at}: {command}: {error}"));
            }
        }
    };
    let pages = fs::read_dir(root.join("docs")).expect("a folder").flatten().map(|entry| entry.path());
    for path in pages.chain([root.join("README.md"), root.join("CONTRIBUTING.md")]) {
        if path.extension().is_some_and(|end| end == "md") {
            let text = fs::read_to_string(&path).expect("a page");
            for found in inline.captures_iter(&text) {
                check(&path.display().to_string(), &found[1], true);
            }
        }
    }
    for block in blocks().iter().filter(|block| block.language == "sh") {
        for command in commands(&block.text) {
            let parts = parts.split(&command).map(str::trim);
            for part in parts.filter(|part| part.split(' ').next() == Some("aye")) {
                check(&block.at, part, false);
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked > 100, "only {checked} were checked");
}

/// The programs of the library's page need no crate that its `[dependencies]` do not list.
#[test]
fn the_programs_of_the_library_page_need_the_listed_crates() {
    let blocks: Vec<Block> = blocks().into_iter().filter(|block| block.page == "library").collect();
    let listed = &blocks.iter().find(|block| block.language == "toml").expect("dependencies").text;
    let root = Regex::new(r"(?m)(?:^|[^:\w])([a-z][a-z_0-9]*)::[A-Za-z_{]").expect("an expression");
    let used = Regex::new(r"(?s)use [^;]*?(\w+)(?:;|,|\})").expect("an expression");
    for block in blocks.iter().filter(|block| block.language == "rust") {
        let text: String = block.text.lines().flat_map(|line| [line, "\n"]).collect();
        let imported: BTreeSet<&str> =
            used.captures_iter(&text).filter_map(|found| Some(found.get(1)?.as_str())).collect();
        for found in root.captures_iter(&text) {
            let name = &found[1];
            let is_listed = listed.contains(&format!("\n{name} = "))
                || listed.contains(&format!("\n{} = ", name.replace('_', "-")));
            assert!(
                name == "std" || imported.contains(name) || is_listed,
                "{}: {name} is not listed",
                block.at
            );
        }
    }
}
