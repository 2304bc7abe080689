use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use super::*;

fn put(folder: &Path, files: &[(&str, &str)]) {
    for (path, text) in files {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().expect("below a folder")).expect("made");
        fs::write(path, text).expect("written");
    }
}

/// What an agent's files become, as text.
fn read(origin: ForeignAgent, scope: ImportScope, files: &[(&str, &str)]) -> String {
    let dir = tempfile::tempdir().expect("a folder");
    put(dir.path(), files);
    let import = origin.read(&SourceFolder { scope, folder: dir.path() });
    let mut out = String::new();
    for rule in &import.rules {
        let _ = writeln!(out, "{} {}", word(rule.behavior), rule.pattern);
    }
    for (name, server) in &import.servers {
        let _ = writeln!(out, "server {name} {}", Value::from(server.clone()));
    }
    for ImportedHook { phase, tool, command, timeout } in &import.hooks {
        let _ = writeln!(out, "hook {phase} {} {timeout}s: {command}", tool.as_deref().unwrap_or("-"));
    }
    for file in &import.files {
        let _ = writeln!(out, "file {} {:?}", file.path, file.text);
    }
    for path in &import.in_place {
        let _ = writeln!(out, "in place {path}");
    }
    for Left { what, why, from } in &import.left {
        let _ = writeln!(out, "left {what}: {why} ({from})");
    }
    out
}

#[test]
fn settings_of_claude_code() {
    let settings = r#"{
        "permissions": {
            "allow": ["Bash(npm run test:*)", "Bash(git diff *)", "Edit(/src/**)", "WebSearch", "Skill(review)",
                      "mcp__github__get_issue", "Read(//etc/hosts)", "Bash(a:*b)"],
            "ask": ["Bash(git push:*)"],
            "deny": ["Read(./.env)", "Bash(curl:*)", "Write(generated/**)", "WebFetch(domain:example.com)"],
            "defaultMode": "acceptEdits"
        },
        "hooks": {
            "PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "./check.sh", "timeout": 5}]}],
            "PostToolUse": [{"matcher": "Edit|MultiEdit|Write", "hooks": [{"type": "command", "command": "prettier --write ."}]}],
            "SessionStart": [{"hooks": [{"type": "command", "command": "date"}]}]
        },
        "model": "opus", "env": {"CI": "1"}
    }"#;
    let read = read(
        ForeignAgent::Claude,
        ImportScope::Project,
        &[(".claude/settings.json", settings), (".claude/agents/a.md", "")],
    );
    insta::assert_snapshot!(read, @r##"
    deny Read(./.env)
    deny Bash(curl *)
    deny Write(generated/**)
    deny WebFetch(domain:example.com)
    ask Bash(git push *)
    allow Bash(npm run test *)
    allow Bash(git diff *)
    allow Edit(./src/**)
    allow Write(./src/**)
    allow skill(skill = "review")
    allow mcp__github__get_issue
    allow Read(/etc/hosts)
    hook before_tool_execute Bash 5s: ./check.sh
    hook after_tool_execute /(Edit|Write)/ 60s: prettier --write .
    in place .claude/agents
    left WebSearch (allow): aye has no such tool (.claude/settings.json)
    left Bash(a:*b) (allow): `:*` counts only at the end (.claude/settings.json)
    left permissions.defaultMode: choose the mode with `permission_mode` in config.toml (.claude/settings.json)
    left hooks of SessionStart: aye has no such boundary (.claude/settings.json)
    left model, env: no rules, servers or hooks; see `aye docs configuration` (.claude/settings.json)
    "##);
}

#[test]
fn settings_of_a_user_of_claude_code() {
    let settings =
        r#"{"permissions": {"allow": ["Read(~/notes/**)", "Edit(/x)"], "deny": ["Bash(sudo:*)"]}}"#;
    let state = r#"{"mcpServers": {"docs": {"type": "http", "url": "https://docs.example.com/mcp"},
        "old": {"type": "sse", "url": "https://old.example.com/sse"},
        "files": {"command": "npx", "args": ["-y", "files"], "env": {"ROOT": "/srv"}}}}"#;
    let files =
        [(".claude/settings.json", settings), (".claude.json", state), (".claude/CLAUDE.md", "Be brief.\n")];
    insta::assert_snapshot!(read(ForeignAgent::Claude, ImportScope::User, &files), @r##"
    deny Bash(sudo *)
    allow Read(~/notes/**)
    server docs {"url":"https://docs.example.com/mcp"}
    server files {"command":"npx","args":["-y","files"],"env":{"ROOT":"/srv"}}
    file AGENTS.md "Be brief.\n"
    left Edit(/x) (allow): a path from `/` begins at ~/.claude there (.claude/settings.json)
    left MCP server old: the HTTP+SSE transport is not supported; use its streamable URL (.claude.json)
    "##);
}

#[test]
fn settings_of_codex() {
    let config = r#"
model = "gpt-5"
approval_policy = "on-request"

[mcp_servers.docs]
url = "https://docs.example.com/mcp"
bearer_token_env_var = "DOCS_TOKEN"
enabled_tools = ["search"]

[mcp_servers.files]
command = "uvx"
args = ["files"]
env = { ROOT = "/srv" }

[mcp_servers.off]
command = "x"
enabled = false
"#;
    let rules = r#"
# prefix_rule(pattern=["never"])
prefix_rule(pattern = ["git", ["push", "fetch"]], decision = "prompt", justification = "network, of course")
prefix_rule(
    pattern = ['cargo', 'test'],
    match = ["cargo test --lib"],
)
prefix_rule(decision = "forbidden", pattern = ["rm", "-rf"])
prefix_rule(pattern = variable, decision = "allow")
"#;
    let files = [
        (".codex/config.toml", config),
        (".codex/rules/default.rules", rules),
        (".codex/prompts/fix.md", "Fix $1."),
        (".codex/AGENTS.md", "Be brief.\n"),
    ];
    insta::assert_snapshot!(read(ForeignAgent::Codex, ImportScope::User, &files), @r##"
    ask Bash(git push *)
    ask Bash(git fetch *)
    allow Bash(cargo test *)
    deny Bash(rm -rf *)
    server docs {"enabled_tools":["search"],"url":"https://docs.example.com/mcp","headers":{"Authorization":"Bearer ${DOCS_TOKEN}"}}
    server files {"command":"uvx","args":["files"],"env":{"ROOT":"/srv"}}
    file commands/fix.md "Fix $1."
    file AGENTS.md "Be brief.\n"
    left MCP server off: is turned off there (.codex/config.toml)
    left approval_policy: choose the mode with `permission_mode` in config.toml (.codex/config.toml)
    left model: choose it with `model` in config.toml (.codex/config.toml)
    left prefix_rule(pattern = variable, decision = "allow") (allow): its pattern is no list of words (.codex/rules/default.rules)
    "##);
}

#[test]
fn settings_of_opencode() {
    let config = r#"{
        // comments are allowed
        "$schema": "https://opencode.ai/config.json",
        "permission": {
            "edit": "ask", "webfetch": "deny",
            "bash": {"*": "ask", "git status *": "allow", "rm *": "deny", "rm -i *": "allow", "ls *": "allow",},
            "read": {"*.env": "deny"},
        },
        "mcp": {
            "files": {"type": "local", "command": ["npx", "-y", "files"], "environment": {"A": "1"}},
            "docs": {"type": "remote", "url": "https://docs.example.com/mcp", "enabled": false},
        },
        "command": {"test": {"template": "Run the tests for $ARGUMENTS", "description": "Run tests"}},
        "theme": "dark", /* as */ "model": "x/y",
    }"#;
    let files = [
        ("opencode.json", config),
        (".opencode/agent/review.md", "---\ndescription: \"Reviews\"\nmode: subagent\n---\nReview it.\n"),
        (".opencode/agent/safe.md", "---\ndescription: Safe\ntools:\n  write: false\n---\nx\n"),
        (".opencode/command/ship.md", "---\ndescription: Ship it\n---\nShip $ARGUMENTS.\n"),
    ];
    insta::assert_snapshot!(read(ForeignAgent::Opencode, ImportScope::Project, &files), @r##"
    deny WebFetch
    allow Bash(git status *)
    deny Bash(rm *)
    allow Bash(ls *)
    deny Read(*.env)
    server files {"command":"npx","args":["-y","files"],"env":{"A":"1"}}
    file commands/test.md "---\ndescription: \"Run tests\"\n---\n\nRun the tests for $ARGUMENTS\n"
    file commands/ship.md "---\ndescription: \"Ship it\"\n---\n\nShip $ARGUMENTS.\n"
    file agents/review.md "---\nname: review\ndescription: \"Reviews\"\n---\n\nReview it.\n"
    left permission.bash: rm -i *: is an exception of a stricter pattern; here the stricter one counts (opencode.json)
    left MCP server docs: is turned off there (opencode.json)
    left theme, model: no rules, servers or commands; see `aye docs configuration` (opencode.json)
    left agent safe: has rights of its own; write it again: `aye docs agents` (.opencode/agent/safe.md)
    "##);
}

#[test]
fn settings_of_gemini_cli() {
    let settings = r#"{
        "mcpServers": {"files": {"command": "node", "args": ["f.js"], "trust": true, "includeTools": ["read"]},
                       "docs": {"httpUrl": "https://docs.example.com/mcp", "headers": {"X": "1"}}},
        "tools": {"allowed": ["run_shell_command(git status)", "replace", "save_memory"],
                  "exclude": ["run_shell_command(rm -rf)", "web_fetch"]},
        "context": {"fileName": "GEMINI.md"}
    }"#;
    let files = [
        (".gemini/settings.json", settings),
        (".gemini/commands/plan.toml", "description = \"Plan\"\nprompt = \"Plan {{args}}\"\n"),
        (".gemini/commands/log.toml", "prompt = \"!{git log}\"\n"),
        ("GEMINI.md", "x"),
    ];
    insta::assert_snapshot!(read(ForeignAgent::Gemini, ImportScope::Project, &files), @r##"
    deny Bash(rm -rf *)
    deny WebFetch
    allow Bash(git status *)
    allow Edit
    allow Write
    server files {"command":"node","args":["f.js"],"enabled_tools":["read"]}
    server docs {"headers":{"X":"1"},"url":"https://docs.example.com/mcp"}
    file commands/plan.md "---\ndescription: \"Plan\"\n---\n\nPlan $ARGUMENTS\n"
    left save_memory (allow): aye has no such tool (.gemini/settings.json)
    left context: no rules or servers; see `aye docs configuration` (.gemini/settings.json)
    left command log: runs commands; nothing in a command's file is run here (.gemini/commands/log.toml)
    left GEMINI.md: aye reads AGENTS.md: `ln -s GEMINI.md AGENTS.md` (GEMINI.md)
    "##);
}

#[test]
fn settings_of_cursor() {
    let files = [
        (
            ".cursor/cli.json",
            r#"{"permissions": {"allow": ["Shell(git)", "Shell(npm:run *)", "Write(docs/**)", "Mcp(github:get)"],
            "deny": ["Read(.env*)", "Shell(rm)", "Write(**/*.key)", "WebFetch(example.com)"]}}"#,
        ),
        (
            ".cursor/mcp.json",
            r#"{"mcpServers": {"files": {"command": "npx", "args": ["files"]}, "bad": {}}}"#,
        ),
        (".cursor/commands/ship.md", "Ship it.\n"),
        (".cursor/rules/style.mdc", "---\nalwaysApply: true\n---\nUse tabs.\n"),
    ];
    insta::assert_snapshot!(read(ForeignAgent::Cursor, ImportScope::Project, &files), @r##"
    deny Read(.env*)
    deny Bash(rm *)
    deny Edit(**/*.key)
    deny WebFetch(domain:example.com)
    allow Bash(git *)
    allow Bash(npm run *)
    allow Edit(docs/**)
    allow Write(docs/**)
    allow mcp__github__get
    server files {"command":"npx","args":["files"]}
    file commands/ship.md "Ship it.\n"
    left MCP server bad: has neither a command nor a url (.cursor/mcp.json)
    left rule style: put its text into AGENTS.md (.cursor/rules/style.mdc)
    "##);
}

#[test]
fn settings_of_a_project_with_codex() {
    let config = r#"
model = "gpt-5.5-codex"
model_reasoning_effort = "high"
sandbox_mode = "workspace-write"
notify = ["terminal-notifier", "-message"]

[sandbox_workspace_write]
network_access = true

[mcp_servers.linear]
url = "https://mcp.linear.app/mcp"
env_http_headers = { "X-Team" = "LINEAR_TEAM" }

[mcp_servers.playwright]
command = "npx"
args = ["@playwright/mcp@latest"]
startup_timeout_sec = 20
disabled_tools = ["browser_evaluate"]
"#;
    let rules = "prefix_rule(pattern=[\"gh\", \"pr\", [\"view\", \"list\"]])\nprefix_rule(pattern=[\"kubectl\"], decision=\"later\")\n";
    let files = [
        (".codex/config.toml", config),
        (".codex/rules/team.rules", rules),
        (".codex/prompts/fix.md", "Only the user's prompts are read."),
        ("AGENTS.md", "Use tabs.\n"),
    ];
    insta::assert_snapshot!(read(ForeignAgent::Codex, ImportScope::Project, &files), @r##"
    allow Bash(gh pr view *)
    allow Bash(gh pr list *)
    server linear {"url":"https://mcp.linear.app/mcp","headers":{"X-Team":"${LINEAR_TEAM}"}}
    server playwright {"disabled_tools":["browser_evaluate"],"command":"npx","args":["@playwright/mcp@latest"]}
    in place AGENTS.md
    left sandbox_mode: commands are always sandboxed; `aye docs sandbox` (.codex/config.toml)
    left sandbox_workspace_write: `[sandbox] writable` and `domains` in config.toml open folders and hosts (.codex/config.toml)
    left model: choose it with `model` in config.toml (.codex/config.toml)
    left notify: `notify` of a rule or `[questions]` does that; `aye docs rules` (.codex/config.toml)
    left prefix_rule(pattern=["kubectl"], decision="later"): has an unknown decision (.codex/rules/team.rules)
    "##);
}

#[test]
fn settings_of_a_user_of_opencode() {
    let config = r#"{
        "$schema": "https://opencode.ai/config.json",
        "autoupdate": true,
        "permission": {
            "*": "ask",
            "edit": {"*": "deny", "docs/**": "allow", "*.lock": "deny"},
            "bash": {"git push *": "ask", "gh pr view *": "allow", "terraform *": "deny"},
            "webfetch": {"https://example.com/*": "allow"},
            "skill": {"internal-*": "deny"},
            "task": "allow", "doom_loop": "ask"
        },
        "mcp": {
            "sentry": {"type": "remote", "url": "https://mcp.sentry.dev/mcp", "headers": {"X-Org": "{env:ORG}"}},
            "secret": {"type": "local", "command": ["x", "{file:~/.key}"]},
            "time": {"type": "local", "command": ["uvx", "mcp-server-time"], "enabled": true},
            "odd": {"type": "local"}
        },
        "agent": {"reviewer": {"prompt": "Review."}}
    }"#;
    let files = [
        (".config/opencode/opencode.json", config),
        (".config/opencode/AGENTS.md", "Be brief.\n"),
        (".config/opencode/commands/log.md", "---\ndescription: Log\nagent: plan\n---\nShow the log.\n"),
    ];
    insta::assert_snapshot!(read(ForeignAgent::Opencode, ImportScope::User, &files), @r##"
    deny Edit
    deny Write
    deny Edit(*.lock)
    ask Bash(git push *)
    allow Bash(gh pr view *)
    deny Bash(terraform *)
    allow WebFetch(https://example.com/*)
    deny skill(skill ~ "internal-*")
    allow agent_run_*
    server sentry {"url":"https://mcp.sentry.dev/mcp","headers":{"X-Org":"${ORG}"}}
    server time {"command":"uvx","args":["mcp-server-time"]}
    file commands/log.md "---\ndescription: \"Log\"\n---\n\nShow the log.\n"
    file AGENTS.md "Be brief.\n"
    left permission.*: aye has no such tool (.config/opencode/opencode.json)
    left permission.edit: docs/**: is an exception of a stricter pattern; here the stricter one counts (.config/opencode/opencode.json)
    left permission.doom_loop: aye has no such tool (.config/opencode/opencode.json)
    left MCP server secret: takes a value from a file; put it into a variable (.config/opencode/opencode.json)
    left MCP server odd: has neither a command nor a url (.config/opencode/opencode.json)
    left agent: agents are files here: `aye docs agents` (.config/opencode/opencode.json)
    left autoupdate: no rules, servers or commands; see `aye docs configuration` (.config/opencode/opencode.json)
    "##);
}

#[test]
fn settings_of_a_user_of_gemini_cli() {
    let settings = r#"{
        "general": {"vimMode": true},
        "coreTools": ["read_file", "run_shell_command(ls)"],
        "excludeTools": ["run_shell_command(sudo)", "glob(x)"],
        "allowedTools": ["ShellTool(npm test)", "read_many_files", "github__get_issue", "web_fetch"],
        "mcpServers": {
            "github": {"httpUrl": "https://api.githubcopilot.com/mcp/", "headers": {"Authorization": "Bearer $GITHUB_PAT"}},
            "legacy": {"url": "https://old.example.com/sse", "type": "sse"},
            "py": {"command": "python", "args": ["-m", "server"], "cwd": "./srv", "timeout": 15000, "excludeTools": ["drop"]}
        }
    }"#;
    let files = [
        (".gemini/settings.json", settings),
        (".gemini/GEMINI.md", "Be kind.\n"),
        (".gemini/commands/empty.toml", "description = \"x\"\n"),
        (".gemini/commands/broken.toml", "prompt = \n"),
    ];
    insta::assert_snapshot!(read(ForeignAgent::Gemini, ImportScope::User, &files), @r##"
    deny Bash(sudo *)
    allow Bash(npm test *)
    allow Read
    allow mcp__github__get_issue
    allow WebFetch
    server github {"headers":{"Authorization":"Bearer ${GITHUB_PAT}"},"url":"https://api.githubcopilot.com/mcp/"}
    server py {"command":"python","args":["-m","server"],"cwd":"./srv","disabled_tools":["drop"]}
    file AGENTS.md "Be kind.\n"
    left MCP server legacy: the HTTP+SSE transport is not supported; use its streamable URL (.gemini/settings.json)
    left glob(x) (deny): only commands have an argument there (.gemini/settings.json)
    left tools.core: `excluded_tools` of an agent leaves tools out: `aye docs agents` (.gemini/settings.json)
    left general: no rules or servers; see `aye docs configuration` (.gemini/settings.json)
    left .gemini/commands/broken.toml: is no TOML: string values must be quoted, expected literal string (.gemini/commands/broken.toml)
    left command empty: has no prompt (.gemini/commands/empty.toml)
    "##);
}

#[test]
fn settings_of_a_user_of_cursor() {
    let settings = r#"{
        "version": 1, "editor": {"vimMode": false},
        "permissions": {
            "allow": ["Shell(ls)", "Shell(*)", "Read(**)", "WebFetch(*)", "Mcp(linear)"],
            "deny": ["Shell(curl:*)", "Write(.env)", "Browse(x)", "Shell"]
        }
    }"#;
    let servers = r#"{"mcpServers": {
        "linear": {"url": "https://mcp.linear.app/mcp"},
        "db": {"command": "npx", "args": ["-y", "db"], "env": {"DATABASE_URL": "${env:DATABASE_URL}"}},
        "off": {"command": "x", "disabled": true}
    }}"#;
    let files = [
        (".cursor/cli-config.json", settings),
        (".cursor/mcp.json", servers),
        (".cursor/hooks.json", "{\"version\": 1, \"hooks\": {}}"),
    ];
    insta::assert_snapshot!(read(ForeignAgent::Cursor, ImportScope::User, &files), @r##"
    deny Bash(curl *)
    deny Edit(.env)
    allow Bash(ls *)
    allow Bash
    allow Read(**)
    allow WebFetch
    allow mcp__linear
    server linear {"url":"https://mcp.linear.app/mcp"}
    server db {"command":"npx","args":["-y","db"],"env":{"DATABASE_URL":"${env:DATABASE_URL}"}}
    left MCP server off: is turned off there (.cursor/mcp.json)
    left Browse(x) (deny): aye has no such tool (.cursor/cli-config.json)
    left Shell (deny): is not of the form TOOL(ARGUMENT) (.cursor/cli-config.json)
    left .cursor/hooks.json: hooks there read other input; `aye docs hooks` (.cursor/hooks.json)
    "##);
}

#[test]
fn a_name_leads_out_of_no_folder_and_no_hook_is_passed_over() {
    let config = r#"{"command": {"../../.ssh/x": {"template": "a"}, "a/b": {"template": "b"}, "c": {"template": "d"}}}"#;
    let hooks = r#"{"hooks": {"PreToolUse": [{"matcher": "Bash", "command": "./old.sh"}]}}"#;
    insta::assert_snapshot!(read(ForeignAgent::Opencode, ImportScope::Project, &[("opencode.json", config)]), @r##"
    file commands/c.md "d\n"
    left commands/../../.ssh/x: its name is none for a file (opencode.json)
    left commands/a/b: its name is none for a file (opencode.json)
    "##);
    insta::assert_snapshot!(read(ForeignAgent::Claude, ImportScope::Project, &[(".claude/settings.json", hooks)]), @r##"
    left PreToolUse hooks of Bash: has no list `hooks` (.claude/settings.json)
    "##);
}

#[test]
fn broken_and_foreign_files_are_named() {
    let dir = tempfile::tempdir().expect("a folder");
    put(dir.path(), &[("out/x.json", "{}"), ("p/.gemini/settings.json", "[1")]);
    fs::create_dir(dir.path().join("p/.claude")).expect("made");
    std::os::unix::fs::symlink("../../out/x.json", dir.path().join("p/.claude/settings.json"))
        .expect("linked");
    let place = SourceFolder { scope: ImportScope::Project, folder: &dir.path().join("p") };
    let left =
        |origin: ForeignAgent| origin.read(&place).left.into_iter().map(|left| left.why).collect::<Vec<_>>();
    assert_eq!(left(ForeignAgent::Claude), ["links out of the project"]);
    assert!(left(ForeignAgent::Gemini)[0].starts_with("is no JSON: "));
    let unreadable = |origin: ForeignAgent| origin.read(&place).unreadable;
    assert_eq!(unreadable(ForeignAgent::Claude), [".claude/settings.json"]);
    assert_eq!(unreadable(ForeignAgent::Gemini), [".gemini/settings.json"]);
    assert!(unreadable(ForeignAgent::Codex).is_empty());
}

#[test]
fn a_second_import_changes_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let own =
        "# mine\ndefault_behavior: ask\nrules:\n- {tool: \"Bash(ls *)\", behavior: allow}\n\n# the end\n";
    put(
        dir.path(),
        &[(".aye/permissions.yaml", own), (".mcp.json", r#"{"mcpServers": {"a": {"command": "other"}}}"#)],
    );
    let mut import = Import::default();
    for (behavior, pattern) in [(Behavior::Allow, "Bash(ls *)"), (Behavior::Deny, "Read(.env)")] {
        import.add_rule(behavior, pattern, "x", Ok(vec![pattern.to_owned()]));
    }
    for name in ["a", "b"] {
        import.add_server(name, common_server(&serde_json::json!({"command": "x", "args": ["y"]})), "x");
    }
    let tool = Some("Bash".to_owned());
    import.hooks.push(ImportedHook {
        phase: "before_tool_execute",
        tool,
        command: "it's \"x\"".into(),
        timeout: 5,
    });
    import.add_file("commands", "ship", command_text(Some("Ship: it"), "Ship.\n"), "x");
    let (first, left) = changes(&import, ImportScope::Project, dir.path()).expect("readable");
    let paths: Vec<_> =
        first.iter().map(|it| it.path.strip_prefix(dir.path()).expect("below").to_owned()).collect();
    let expected = [".aye/commands/ship.md", ".aye/hooks.toml", ".aye/permissions.yaml", ".mcp.json"];
    assert_eq!(paths, expected.map(PathBuf::from));
    let rules = "# mine\ndefault_behavior: ask\nrules:\n- {tool: \"Bash(ls *)\", behavior: allow}\n\n# the end\n- {tool: \"Read(.env)\", behavior: deny}\n";
    assert_eq!(first[2].after, rules);
    assert_eq!(left[0].why, "another server of this name is configured");
    for change in &first {
        put(
            dir.path(),
            &[(change.path.strip_prefix(dir.path()).expect("below").to_str().expect("text"), &change.after)],
        );
    }
    let (second, _) = changes(&import, ImportScope::Project, dir.path()).expect("readable");
    assert_eq!(second, []);
}
