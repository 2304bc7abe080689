use super::*;
use serde_json::{Value, json};
use std::path::Path;

fn rows(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A workspace with what the rows need in it.
struct Home {
    _dir: tempfile::TempDir,
    root: std::path::PathBuf,
}

fn home() -> Home {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap().join("w");
    std::fs::create_dir_all(root.join("src/inner")).unwrap();
    std::fs::create_dir_all(root.join(".git")).unwrap();
    std::fs::create_dir_all(root.join("../out")).unwrap();
    std::fs::write(root.join("src/main.rs"), "x").unwrap();
    std::fs::write(root.join(".env"), "x").unwrap();
    Home { _dir: dir, root }
}

fn check(home: &Home, line: &Value) -> (String, String) {
    let ctx = CheckContext { cwd: &home.root, workspace: &home.root, home: None };
    let out: Value = serde_json::from_str(&check_line(&line.to_string(), &RuleSet::new(), ctx)).unwrap();
    (out["verdict"].as_str().unwrap().to_owned(), out["why"].as_str().unwrap().to_owned())
}

#[test]
fn every_hostile_shell_row() {
    let home = home();
    let mut wrong = Vec::new();
    for row in rows(include_str!("../../../tests/fixtures/hostile/shell.jsonl")) {
        let (verdict, why) = check(&home, &row["input"]);
        if verdict != row["expect"]["verdict"] {
            wrong.push(format!("{}: {} -> {verdict}: {why}", row["id"], row["input"]));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_hostile_path_row_about_rules() {
    let home = home();
    std::os::unix::fs::symlink("../../out/missing", home.root.join("src/d")).unwrap();
    let (mut wrong, mut judged) = (Vec::new(), 0);
    for row in rows(include_str!("../../../tests/fixtures/hostile/path.jsonl")) {
        let input = &row["input"];
        let want = row["expect"]["verdict"].as_str().unwrap();
        // Rows about what a tool does with the file are the tools' tests.
        let is_about_rules = matches!(want, "allow" | "ask" | "deny") || row["id"] == "PA026";
        let Some(path) = input["file_path"].as_str().filter(|_| is_about_rules) else { continue };
        let path = path.replace("{W}", &home.root.to_string_lossy());
        let mut line = json!({"tool": input["tool"], "args": {"file_path": path}, "rules": {}});
        if let Some((behavior, pattern)) = input["rule"].as_str().and_then(|rule| rule.split_once(' ')) {
            line["rules"][behavior] = json!([pattern]);
        }
        let (verdict, why) = check(&home, &line);
        judged += 1;
        if verdict != want {
            wrong.push(format!("{}: {line} -> {verdict}: {why}", row["id"]));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(judged >= 9, "{judged}");
}

#[test]
fn shipped_rules_load() {
    let error = RuleSet::read(SHIPPED_RULES, Format::Yaml, Layer::Shipped, "permissions.yaml").err();
    assert!(error.is_none(), "{}", error.unwrap());
}

fn ask_of(rules: &RuleSet, tool: &str, args: Value, root: &Path, mode: Mode) -> Decision {
    let question =
        Question { tool, args: &args, cwd: root, workspace: root, home: Some(Path::new("/home/user")), primary: None };
    evaluate_in(rules, &question, mode).decision
}
