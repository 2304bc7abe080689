//! Files and habits that users bring from other agents: commands, hooks, instructions of folders, signed commits, proxies.

use std::process::Command;

use serde_json::json;

use crate::sandbox::has_all_layers;
use crate::support::home::Home;
use crate::support::llm::{Answer, MockLlm};

#[test]
fn a_command_in_a_file_runs_by_its_name() {
    let llm = MockLlm::by(|_| Answer::say("Fixed."));
    let home = Home::with(&llm);
    home.git(&["init", "-q"]);
    home.write(
        ".claude/commands/fix.md",
        "---\ndescription: Fixes an issue\n---\nFix issue $1 and add a test.\n",
    );
    home.write(".claude/commands/web/build.md", "Build the pages.\n");
    home.ok(&["-p", "/fix 12", "--trust"]);
    assert_eq!(llm.last().user(), "Fix issue 12 and add a test.");
    home.ok(&["-p", "/web:build quickly", "--trust"]);
    assert_eq!(llm.last().user(), "Build the pages.\n\nARGUMENTS: quickly");
    home.ok(&["--trust", "queue", "add", "/fix 13"]);
    home.ok(&["--trust", "work", "--until-empty"]);
    assert_eq!(llm.last().user(), "Fix issue 13 and add a test.");
    home.aye(&["queue", "add", "/fixx 13"]).run().exits(2).says("/fixx is not a command");
    // A path is text, and so is what a blank comes before.
    home.ok(&["-p", "/usr/bin: what is there?"]);
    home.ok(&["-p", "/tmp"]);
    home.ok(&["-p", " /fixx 12"]);
    let asked = llm.asked().len();
    let out = home.aye(&["-p", "/fixx 12"]).run().exits(2);
    assert!(out.stderr.contains("/fixx is not a command"), "{}", out.stderr);
    assert_eq!(llm.asked().len(), asked, "nothing was sent");
}

#[test]
fn instructions_of_a_folder_reach_the_model_when_a_file_of_it_is_read() {
    let llm = MockLlm::answers([
        Answer::new().call("c1", "Read", json!({"file_path": "pkg/web/a.ts"})),
        Answer::say("Read."),
        Answer::say("Again."),
    ]);
    let home = Home::with(&llm);
    home.git(&["init", "-q"]);
    home.write("AGENTS.md", "Root rule.\n");
    home.write("pkg/web/AGENTS.md", "Use tabs in this package.\n");
    home.write("pkg/web/a.ts", "let a = 1;\n");
    home.ok(&["-p", "read it"]);
    let asked = llm.asked();
    assert!(asked[0].system().contains("Root rule.") && !asked[0].system().contains("Use tabs"));
    assert!(asked[1].told().contains("Use tabs in this package."), "{}", asked[1].told());
    assert!(asked[1].told().contains("pkg/web/AGENTS.md"), "its file is named");
    // They stay for the rest of the conversation, and are for no other one.
    home.ok(&["-c", "-p", "more"]);
    assert_eq!(llm.last().told().matches("Use tabs in this package.").count(), 1);
}

/// A link with the name of instructions brings no file to the model that rules keep from it.
#[test]
fn a_link_called_instructions_brings_no_secret() {
    let read = serde_json::json!({"file_path": "sub/x"});
    let llm = MockLlm::answers([Answer::new().call("c1", "Read", read), Answer::say("Done.")]);
    let home = Home::with(&llm);
    home.write(".env", "KEY=canary\n");
    home.write("sub/x", "x\n");
    home.write("docs/rules.md", "Use tabs.\n");
    for (target, link) in
        [(".env", "AGENTS.md"), ("../.env", "sub/AGENTS.md"), ("../docs/rules.md", "sub/CLAUDE.md")]
    {
        std::os::unix::fs::symlink(target, home.work().join(link)).expect("linked");
    }
    let out = home.ok(&["-p", "go"]);
    assert!(out.stderr.contains("AGENTS.md: links to a file that permission rules deny"), "{}", out.stderr);
    let (system, told) = (llm.last().system(), llm.last().told());
    assert!(!system.contains("canary") && !told.contains("canary"), "{system} {told}");
    assert!(told.contains("Use tabs."), "{told}");
    // Nor does one among the commands of the project.
    home.write(".claude/commands/fix.md", "Fix it.\n");
    std::os::unix::fs::symlink("../../.env", home.work().join(".claude/commands/leak.md")).expect("linked");
    home.aye(&["-p", "--trust", "/leak"]).run().exits(2);
    assert_eq!(llm.asked().len(), 2, "nothing was sent");
}

#[test]
fn truncated_instructions_are_reported() {
    let llm = MockLlm::by(|_| Answer::say("Hello."));
    let home = Home::with(&llm);
    home.write("AGENTS.md", &"A rule that is a line.\n".repeat(2000));
    let out = home.ok(&["-p", "hi"]);
    assert!(out.stderr.contains("work/AGENTS.md: 1"), "{}", out.stderr);
    assert!(out.stderr.contains("bytes left out: instructions are limited to 32 KiB"), "{}", out.stderr);
}

#[test]
fn a_hook_written_for_claude_code_denies_and_allows() {
    let answer = |decision: &str| {
        json!({"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": decision,
                                      "permissionDecisionReason": "not here"}})
        .to_string()
    };
    // As such hooks do, it looks at the tool's input.
    let script = format!(
        "input=$(cat)\ncase $input in\n*'\"tool_input\":{{\"command\":\"echo no'*) echo '{}' ;;\n*) echo '{}' ;;\nesac\n",
        answer("deny"),
        answer("allow")
    );
    let llm = MockLlm::answers([
        Answer::new().bash("c1", "echo yes >> log.txt"),
        Answer::new().bash("c2", "echo no >> log.txt"),
        Answer::say("Done."),
    ]);
    let home = Home::with(&llm);
    std::fs::write(home.root().join("hook.sh"), script).expect("written");
    let file = home.root().join("hook.sh").display().to_string();
    let hooks = format!("[[hooks]]\nphase = \"before_tool_execute\"\ncommand = [\"sh\", \"{file}\"]\n");
    std::fs::write(home.root().join("aye/config/hooks.toml"), hooks).expect("written");
    home.ok(&["-p", "go", "--allowed-tools", "Bash"]);
    assert_eq!(home.read("log.txt"), "yes\n");
    assert!(llm.last().result("c2").contains("not here"), "{}", llm.last().result("c2"));
    // An `allow` is no rule: without one the call still asks.
    let llm = MockLlm::answers([Answer::new().bash("c1", "echo yes >> log.txt"), Answer::say("Done.")]);
    let home = Home::with(&llm);
    let hooks = format!(
        "[[hooks]]\nphase = \"before_tool_execute\"\ncommand = [\"sh\", \"-c\", '''echo '{}' ''']\n",
        answer("allow")
    );
    std::fs::write(home.root().join("aye/config/hooks.toml"), hooks).expect("written");
    home.aye(&["-p", "go"]).run().exits(3);
}

/// The keys are hidden in the sandbox: the card says so, and offers the commit outside.
#[test]
fn a_signed_commit_is_offered_outside_the_sandbox() {
    if !has_all_layers() {
        return;
    }
    let llm = MockLlm::answers([Answer::new().bash("c1", "git commit -qam two"), Answer::say("Done.")]);
    let home = Home::with(&llm);
    home.write("a.txt", "one\n");
    home.git(&["init", "-q"]);
    home.git(&["add", "."]);
    home.git(&["commit", "-qm", "one"]);
    home.write("a.txt", "two\n");
    // A program in place of gpg, so that the test needs no key.
    let signer = home.root().join("signer");
    std::fs::write(
        &signer,
        "#!/bin/sh\ncat > /dev/null\nprintf '\\n[GNUPG:] SIG_CREATED \\n' >&2\necho SIGNED\n",
    )
    .expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&signer, mode).expect("is our file");
    let config = format!(
        "[user]\nname = a\nemail = a@example.org\n[commit]\ngpgsign = true\n[gpg]\nprogram = {}\n",
        signer.display()
    );
    std::fs::write(home.root().join("home/.gitconfig"), config).expect("written");
    home.aye(&["-p", "go", "--permission-mode", "auto"]).run().exits(3);
    let shown = home.ok(&["approvals", "show", "perm_c1"]).stdout;
    assert!(
        shown.contains("`git commit -qam two` signs (commit.gpgsign), and the sandbox hides the keys, so it has to run outside"),
        "{shown}"
    );
    home.ok(&["approve", "perm_c1", "--resume"]);
    let log = Command::new("git").args(["cat-file", "-p", "HEAD"]).current_dir(home.work()).output();
    let log = String::from_utf8_lossy(&log.expect("git starts").stdout).into_owned();
    assert!(log.contains("gpgsig SIGNED") && log.contains("\ntwo"), "{log}");
}

#[test]
fn a_deleted_working_folder_is_named() {
    let home = Home::new();
    let line = "mkdir gone && cd gone && rmdir ../gone && exec \"$AYE\" -p hi";
    let out = Command::new("sh")
        .args(["-c", line])
        .current_dir(home.work())
        .env_clear()
        .envs(home.env())
        .env("AYE", env!("CARGO_BIN_EXE_aye"))
        .output()
        .expect("sh starts");
    let told = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(2), "{told}");
    assert!(told.contains("work/gone no longer exists"), "{told}");
}

#[test]
fn a_proxy_that_does_not_answer_is_named() {
    let home = Home::new();
    home.config(
        "model = \"mock/m1\"\n[providers.mock]\nadapter = \"openai\"\nbase_url = \"https://models.example/v1\"\n\
         api_key_env = \"MOCK_KEY\"\n[retry]\nmax_retries = 0\n",
    );
    // Nothing listens on this port.
    let proxy = "http://me:s3cret@127.0.0.1:1";
    let out = home.aye(&["-p", "hi"]).env("NO_PROXY", "").env("HTTPS_PROXY", proxy).run().exits(75);
    assert!(out.stderr.contains("through the proxy http://127.0.0.1:1"), "{}", out.stderr);
    assert!(!out.stderr.contains("s3cret"), "{}", out.stderr);
}

#[test]
fn settings_that_are_an_endless_device_are_refused_at_once() {
    let home = Home::new();
    let file = home.root().join("aye/config/config.toml");
    std::os::unix::fs::symlink("/dev/zero", &file).expect("a link");
    let out = home.aye(&["-p", "hi"]).run().exits(2);
    assert!(out.stderr.contains("config.toml"), "{}", out.stderr);
}

#[test]
fn skills_of_a_large_collection_are_found_below_their_groups() {
    let llm = MockLlm::by(|_| Answer::say("Hello."));
    let home = Home::with(&llm);
    for number in 0..41 {
        let hidden = if number < 24 { "disable-model-invocation: true\n" } else { "" };
        let text = format!("---\nname: s{number}\ndescription: Skill {number}.\n{hidden}---\nx");
        home.write(&format!(".agents/skills/group/topic{}/s{number}/SKILL.md", number % 4), &text);
    }
    home.git(&["init", "-q"]);
    let out = home.ok(&["-p", "hi", "--trust"]);
    let system = llm.last().system();
    let offered = (0..41).filter(|number| system.contains(&format!("<name>s{number}</name>"))).count();
    assert_eq!(offered, 17);
    assert!(!out.stderr.contains("SKILL.md"), "{}", out.stderr);
}

#[test]
fn an_agent_file_with_a_byte_order_mark_and_windows_line_ends_is_loaded() {
    let llm = MockLlm::by(|_| Answer::say("Hello."));
    let home = Home::with(&llm);
    let dir = home.root().join("home/.claude/agents");
    std::fs::create_dir_all(&dir).expect("a folder");
    let text = "\u{feff}---\r\nname: reviewer\r\ndescription: Reviews\r\n---\r\nYou review changes.\r\n";
    std::fs::write(dir.join("reviewer.md"), text).expect("written");
    home.ok(&["-p", "hi", "--agent", "reviewer"]);
    assert!(llm.last().system().contains("You review changes."), "{}", llm.last().system());
}

#[test]
fn problems_of_skills_are_no_news_at_each_headless_start() {
    let llm = MockLlm::by(|_| Answer::say("Hello."));
    let home = Home::with(&llm);
    let skill = home.root().join("aye/config/skills/a");
    std::fs::create_dir_all(&skill).expect("a folder");
    std::fs::write(skill.join("skill.md"), "---\nname: a\ndescription: d\n---\nx").expect("written");
    let out = home.ok(&["-p", "hi"]);
    assert!(!out.stderr.contains("skill.md"), "{}", out.stderr);
    let doctor = home.aye(&["doctor"]).run();
    assert!(doctor.stdout.contains("SKILL.md; rename it"), "{}", doctor.stdout);
}

#[test]
fn settings_of_another_agent_are_taken_over() {
    let home = Home::new();
    home.git(&["init", "-q"]);
    home.write(
        ".claude/settings.json",
        r#"{"permissions": {"allow": ["Bash(make lint:*)"], "deny": ["Bash(git push:*)", "Read(./secret/**)", "Frobnicate"]},
            "hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "exit 0"}]}]}}"#,
    );
    home.write(
        ".cursor/mcp.json",
        r#"{"mcpServers": {"files": {"command": "npx", "args": ["-y", "files"]}}}"#,
    );
    // Nothing is written without an answer.
    let shown = home.aye(&["import"]).run().exits(1);
    assert!(shown.stderr.contains("nothing was written"), "{}", shown.stderr);
    for part in [
        "Claude Code, this project\n  found: 3 rules, 1 hook\n",
        "  not taken: Frobnicate (deny): aye has no such tool (.claude/settings.json)\n",
        "permissions.yaml\n+rules:\n+  - {tool: \"Bash(git push *)\", behavior: deny}\n",
        "+command = [\"sh\", \"-c\", \"exit 0\"]\n",
        "+plain_output = true\n",
        "+    \"files\": {\n",
    ] {
        assert!(shown.stdout.contains(part), "{part}\n{}", shown.stdout);
    }
    assert!(!home.work().join(".aye").exists());
    home.aye(&["import", "--yes"]).run().exits(0).prints("written");
    home.aye(&["import", "--yes"]).run().exits(0).prints("nothing new to write");
    let calls = [("make lint src", "allow"), ("git push origin", "deny"), ("git fetch", "ask")];
    for (command, verdict) in calls {
        let call = json!({"tool": "Bash", "args": {"command": command}}).to_string();
        let out = home.aye(&["permissions", "check", "--trust"]).stdin(call).run();
        assert!(out.stdout.contains(&format!("\"verdict\":\"{verdict}\"")), "{command}: {}", out.stdout);
    }
    home.aye(&["hooks", "list", "--trust"]).run().exits(0).prints("imported-1");
    home.aye(&["import", "codex"]).run().exits(0).prints("nothing of another agent is here");
    // A file that cannot be read may hold a deny: the import succeeds for the others only.
    home.write(".gemini/settings.json", "{\"tools\": {\"exclude\": [\"web_fetch\"");
    home.write(".cursor/cli.json", r#"{"permissions": {"deny": ["Shell(rm)"]}}"#);
    for _ in 0..2 {
        let out = home.aye(&["import", "--yes"]).run().exits(1);
        assert!(out.stderr.contains(".gemini/settings.json cannot be read; nothing of it"), "{}", out.stderr);
        assert!(out.stdout.contains("not taken: .gemini/settings.json: is no JSON"), "{}", out.stdout);
    }
    assert!(home.read(".aye/permissions.yaml").contains("Bash(rm *)"));
}

#[test]
fn a_plugin_folder_brings_skills_agents_commands_and_servers() {
    let llm = MockLlm::by(|_| Answer::say("Shipped."));
    let home = Home::with(&llm);
    let plugin = home.root().join("aye/config/plugins/tools");
    let put = |path: &str, text: &str| {
        let path = plugin.join(path);
        std::fs::create_dir_all(path.parent().expect("below")).expect("made");
        std::fs::write(path, text).expect("written");
    };
    put(".claude-plugin/plugin.json", r#"{"name": "tools", "version": "1.0.0", "hooks": "./hooks.json"}"#);
    put("skills/sorting/SKILL.md", "---\nname: sorting\ndescription: Sorts.\n---\nSort it.\n");
    put("agents/tester.md", "---\nname: tester\ndescription: Tests.\n---\nTest it.\n");
    put("commands/ship.md", "Ship $1 now.\n");
    put("serve.sh", include_str!("support/mcp_server.sh"));
    put("tools.json", r#"[{"name": "echo", "description": "does echo", "inputSchema": {"type": "object"}}]"#);
    let args = ["${CLAUDE_PLUGIN_ROOT}/serve.sh", "${CLAUDE_PLUGIN_ROOT}/tools.json", "plain"];
    put(".mcp.json", &json!({"mcpServers": {"shed": {"command": "sh", "args": args}}}).to_string());
    home.ok(&["skills", "list"]).prints("sorting");
    home.ok(&["agents", "list"]).prints("tester");
    // However long the server takes on a busy machine.
    let patient = ["--config", "mcp.wait=5m", "--config", "mcp.start_timeout=5m"];
    home.ok(&[&patient[..], &["-p", "/tools:ship it"]].concat());
    assert_eq!(llm.last().user(), "Ship it now.");
    assert!(llm.last().system().contains("Sorts."));
    assert!(llm.last().knows("mcp__shed__echo"), "{:?}", llm.last().tools());
    home.aye(&["--bare", "-p", "/tools:ship it"]).run().exits(2).says("/tools:ship is not a command");
    let told = home.aye(&["doctor"]).run().stdout;
    assert!(told.contains("its hooks are not used"), "{told}");
}
