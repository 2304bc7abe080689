//! Shell and path rows: the verdicts of `aye permissions check`, all rows in one process of the real binary.

use aye::contract::workspace::Workspace;
use aye::plugins::permission::ARGUMENTS;
use aye::tools::{ToolEnv, builtin};
use serde_json::{Value, json};

use super::{Row, of_area};
use crate::support::home::Home;

/// Whether the row is about the rules, not about what a tool does with the file.
pub fn is_about_rules(row: &Row) -> bool {
    row.input["file_path"].is_string()
        && (matches!(row.verdict(), "allow" | "ask" | "deny")
            || row.input["file_path"].as_str().is_some_and(|p| p.is_empty() || p.contains('\0')))
}

/// A workspace with everything the rows need.
fn home() -> Home {
    let home = Home::new();
    home.write("src/main.rs", "x");
    home.write("src/inner/deep.rs", "x");
    home.write(".git/config", "x");
    home.write(".env", "x");
    home.write("file", "x");
    let (work, link) = (home.work(), std::os::unix::fs::symlink::<&str, std::path::PathBuf>);
    std::fs::create_dir(home.root().join("out")).expect("a folder");
    std::fs::write(home.root().join("out/there"), "x").expect("written");
    link("../../out/missing", work.join("src/d")).expect("a link");
    link("../../out/there", work.join("src/outside")).expect("a link");
    link("../../out", work.join("src/folder")).expect("a link");
    link("main.rs", work.join("src/inside")).expect("a link");
    link("../.git", work.join("src/meta")).expect("a link");
    link("loop2", work.join("src/loop1")).expect("a link");
    link("loop1", work.join("src/loop2")).expect("a link");
    home
}

/// The question that a row asks of the rules.
fn question(row: &Row, home: &Home) -> Value {
    if row.area == "shell" {
        return row.input.clone();
    }
    let work = home.work().canonicalize().expect("exists");
    let path = row.input["file_path"].as_str().expect("a path").replace("{W}", &work.to_string_lossy());
    let mut line = json!({"tool": row.input["tool"], "args": {"file_path": path}, "rules": {}});
    let rules = row.input["rule"]
        .as_str()
        .into_iter()
        .chain(row.input["rules"].as_array().into_iter().flatten().filter_map(Value::as_str));
    for rule in rules {
        let (behavior, pattern) = rule.split_once(' ').expect("a behavior and a pattern");
        match line["rules"][behavior].as_array_mut() {
            Some(list) => list.push(json!(pattern)),
            None => line["rules"][behavior] = json!([pattern]),
        }
    }
    line
}

#[test]
fn every_shell_and_path_row_gets_its_verdict() {
    let home = home();
    let rows: Vec<Row> =
        of_area("shell").into_iter().chain(of_area("path").into_iter().filter(is_about_rules)).collect();
    let input =
        rows.iter().fold(String::new(), |input, row| input + &question(row, &home).to_string() + "\n");
    let out = home.aye(&["permissions", "check"]).stdin(input).run().exits(0);
    let answers = out.lines();
    assert_eq!(answers.len(), rows.len());
    let wrong: Vec<String> = rows
        .iter()
        .zip(&answers)
        .filter(|(row, answer)| answer["verdict"] != row.expect["verdict"])
        .map(|(row, answer)| format!("{}: {} -> {answer}, not {}", row.id, question(row, &home), row.expect))
        .collect();
    assert!(wrong.is_empty(), "{} rows:\n{}", wrong.len(), wrong.join("\n"));
    let names = std::fs::read_dir(home.work()).expect("a folder").flatten();
    assert!(!names.into_iter().any(|entry| entry.file_name() == "pwn"), "something ran");
}

/// Invalid lines get an answer too, each on its own line, and the next one is still answered.
#[test]
fn invalid_lines_are_errors() {
    let home = home();
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let lines = [
        "{",
        "null",
        "[]",
        "7",
        "\"Bash\"",
        "{}",
        "{\"tool\":7,\"args\":{}}",
        "{\"tool\":\"Bash\",\"args\":{\"command\":\"ls\"},\"rules\":{\"allow\":\"Bash\"}}",
        "{\"tool\":\"Bash\",\"args\":{\"command\":\"ls\"},\"rules\":{\"allow\":[7]}}",
        "{\"tool\":\"Bash\",\"args\":{\"command\":\"ls\"},\"rules\":[]}",
        "{\"tool\":\"Bash\",\"args\":{\"command\":\"ls\"},\"more\":1}",
        "{\"tool\":\"Bash\",\"args\":{\"command\":\"\\ud800\"}}",
        "\u{feff}{\"tool\":\"Bash\",\"args\":{\"command\":\"ls\"}} x",
        &deep,
    ];
    let mut input: Vec<u8> = lines.iter().flat_map(|line| format!("{line}\n").into_bytes()).collect();
    input.extend_from_slice(b"\xff\xfe\n");
    input.extend_from_slice(
        b"{\"tool\":\"Bash\",\"args\":{\"command\":\"ls\"},\"rules\":{\"allow\":[\"Bash(ls *)\"]}}",
    );
    let out = home.aye(&["permissions", "check"]).stdin(input).run().exits(0);
    let answers = out.lines();
    assert_eq!(answers.len(), lines.len() + 2);
    for (line, answer) in lines.iter().zip(&answers) {
        let shown: String = line.chars().take(100).collect();
        assert_eq!(answer["verdict"], "error", "{shown}: {answer}");
    }
    assert_eq!(answers[lines.len() + 1]["verdict"], "allow", "{:?}", answers[lines.len() + 1]);
}

/// A rule with a condition on any other argument is refused, so the list has to be complete.
#[test]
fn rules_know_the_arguments_of_the_tools() {
    let home = home();
    let workspace = Workspace { cwd: home.work(), root: home.work(), home: home.root().to_path_buf() };
    let tools = builtin(ToolEnv::new(workspace, home.root().join("out")));
    for tool in tools {
        let descriptor = tool.descriptor();
        let Some((_, known)) = ARGUMENTS.iter().find(|(name, _)| *name == descriptor.id) else { continue };
        let taken = descriptor.parameters["properties"].as_object().expect("an object");
        for name in taken.keys() {
            assert!(known.contains(&name.as_str()), "{} takes {name}", descriptor.id);
        }
    }
}

/// `--each-rule` checks the rules of a file, and a rule that never matches is an error.
#[test]
fn each_rule_of_a_file_is_checked() {
    let home = home();
    home.write(
        "rules.yaml",
        "rules:\n  - {tool: 'Bash(npx eslint *)', behavior: allow}\n  - {tool: 'Bash(npx *)', behavior: allow}\n  \
         - {tool: 'Bash(foo -x *)', behavior: deny}\n",
    );
    let check = || home.aye(&["permissions", "check", "--each-rule", "--rules", "rules.yaml"]);
    let out = check().run().exits(1);
    let lines = out.lines();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert_eq!(lines[0]["can_match"], true, "{:?}", lines[0]);
    assert_eq!(lines[1]["can_match"], false, "{:?}", lines[1]);
    assert!(lines[2]["why"].as_str().is_some_and(|why| why.contains("`-x` of foo")), "{:?}", lines[2]);
    home.write("rules.yaml", "rules:\n  - {tool: 'Read(../x)', behavior: deny}\n");
    check().run().exits(2);
}
