//! Real package managers in the sandbox, in mode auto: the only question is about the network. They download from the
//! hosts that they are configured for; without these programs or hosts there is nothing to test.

use std::process::{Command, Stdio};

use serde_json::json;

use crate::sandbox::has_all_layers;
use crate::support::home::Home;
use crate::support::llm::{Answer, MockLlm};

/// The output of a program of the machine, with the user's own settings; `None` if it fails.
fn output(program: &str, args: &[&str]) -> Option<String> {
    let out = Command::new(program).args(args).stdin(Stdio::null()).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

/// Whether a program and its hosts are here.
#[expect(clippy::print_stdout, reason = "a skipped test says so")]
fn is_here(program: &str, args: &[&str]) -> bool {
    let is_here = output("timeout", &[&["60", program], args].concat()).is_some();
    if !is_here {
        println!("skipped: {program} {} fails here", args.join(" "));
    }
    is_here
}

/// The settings of package managers that are in the environment, the host that npm is configured for, and this toolchain's
/// programs.
fn settings() -> Vec<(String, String)> {
    let is_setting = |name: &str| {
        let name = name.to_lowercase();
        ["pip_", "npm_config_", "ssl_cert", "requests_ca"].iter().any(|start| name.starts_with(start))
    };
    let registry = output("npm", &["config", "get", "registry"]).unwrap_or_default();
    let toolchain = std::path::Path::new(env!("CARGO")).parent().expect("a folder").display();
    let path = format!("{toolchain}:{}", std::env::var("PATH").unwrap_or_default());
    std::env::vars()
        .filter(|(name, _)| is_setting(name))
        .chain([("npm_config_registry".to_owned(), registry), ("PATH".to_owned(), path)])
        .collect()
}

/// Runs these lines in mode auto. The second one repeats the first outside; its question is approved.
fn session(home: &Home, llm: &MockLlm, lines: &[&str]) -> Vec<String> {
    let run =
        |args: &[&str]| settings().iter().fold(home.aye(args), |aye, (name, value)| aye.env(name, value));
    std::fs::write(home.root().join("home/.gitconfig"), "[user]\n\tname = a\n\temail = a@example.org\n")
        .expect("written");
    home.git(&["init", "-q"]);
    run(&["-p", "go", "--permission-mode", "auto"]).run().exits(3);
    let shown = home.ok(&["approvals", "show", &home.question()]).stdout;
    assert!(shown.contains("the sandbox refused"), "{shown}");
    run(&["approve", &home.question(), "--resume", "--permission-mode", "auto"]).run().exits(0);
    let last = llm.last();
    (0..lines.len()).map(|n| last.result(&format!("c{n}"))).collect()
}

fn agent(lines: &[&str]) -> MockLlm {
    let out = json!({"command": lines[1], "outside": true, "reason": "the package has to be downloaded"});
    let calls = lines.iter().enumerate().map(|(n, line)| match n {
        1 => Answer::new().call("c1", "Bash", out.clone()),
        _ => Answer::new().bash(&format!("c{n}"), line),
    });
    MockLlm::answers(calls.chain([Answer::say("Done.")]))
}

#[test]
fn npm_installs_and_tests_a_package() {
    if !has_all_layers() || !is_here("npm", &["view", "ms", "version"]) {
        return;
    }
    let install = "npm install ms --no-audit --no-fund";
    let lines = [
        install,
        install,
        "npm test",
        "git add -A && git commit -qm 'Add a package' && git log --oneline",
        // What was downloaded outside is there, and packages can be removed whatever they contain.
        "npm ci --no-audit --no-fund && npm test",
    ];
    let llm = agent(&lines);
    let home = Home::with(&llm);
    home.write("package.json", r#"{"name": "p", "version": "1.0.0", "scripts": {"test": "node test.js"}}"#);
    home.write(
        "test.js",
        "require('assert').equal(require('ms')('1s'), 1000); console.log('it is', 1000);\n",
    );
    home.write(".gitignore", "node_modules\n");
    let results = session(&home, &llm, &lines);
    assert!(results[0].contains("is not listed in sandbox.domains"), "{results:#?}");
    assert!(results[2].contains("it is 1000"), "{results:#?}");
    assert!(results[3].contains("Add a package"), "{results:#?}");
    assert!(results[4].contains("added 1 package") && results[4].contains("it is 1000"), "{results:#?}");
}

#[test]
fn pip_installs_in_a_virtual_environment() {
    let download =
        ["-m", "pip", "download", "-q", "--no-deps", "-d", env!("CARGO_TARGET_TMPDIR"), "iniconfig"];
    if !has_all_layers() || !is_here("python3", &download) {
        return;
    }
    let install = ".venv/bin/pip install iniconfig";
    let lines = [
        install,
        install,
        ".venv/bin/python -c 'import iniconfig; print(iniconfig.__name__)'",
        // pip's own list of certificates is no secret.
        "grep -c BEGIN .venv/lib/*/site-packages/pip/_vendor/certifi/cacert.pem && rm -r .venv && echo gone",
    ];
    let llm = agent(&lines);
    let home = Home::with(&llm);
    // This takes long on a busy machine.
    let venv = Command::new("python3").args(["-m", "venv", ".venv"]).current_dir(home.work()).status();
    assert!(venv.expect("it starts").success());
    let results = session(&home, &llm, &lines);
    assert!(results[0].contains("the sandbox (workspace) may have refused this"), "{results:#?}");
    assert_eq!(results[2], "iniconfig", "{results:#?}");
    assert!(results[3].ends_with("gone"), "{results:#?}");
}

#[test]
fn cargo_builds_and_tests_a_package() {
    if !has_all_layers() || !is_here(env!("CARGO"), &["info", "-q", "itoa"]) {
        return;
    }
    let commit = "git add -A && git commit -qm 'Add a package' && git log --oneline";
    let lines = ["cargo build", "cargo build", "cargo test", commit];
    let llm = agent(&lines);
    let home = Home::with(&llm);
    home.write(
        "Cargo.toml",
        "[package]\nname = \"p\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\nitoa = \"1\"\n",
    );
    home.write(
        "src/lib.rs",
        "#[test]\nfn a_number_is_written() {\n    assert_eq!(itoa::Buffer::new().format(42), \"42\");\n}\n",
    );
    home.write(".gitignore", "target\n");
    let results = session(&home, &llm, &lines);
    assert!(results[0].contains("the sandbox (workspace) may have refused this"), "{results:#?}");
    assert!(results[2].contains("1 passed"), "{results:#?}");
    assert!(results[3].contains("Add a package"), "{results:#?}");
}
