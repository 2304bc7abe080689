//! The help of each command: its own flags first, the settings of a start only where they change something, and an
//! example.

use clap::Command;

/// Settings that decide which settings and files are read; every command reads some.
const SOURCES: &[&str] = &["cd", "config", "settings", "profile", "debug"];

/// Settings that decide which of a folder's files count, for commands that list or check them.
const FOLDER: &[&str] = &["trust", "agent", "mcp_config"];

/// Settings that decide what a call may do, for commands that judge calls.
const CALLS: &[&str] = &["permission_mode", "yolo", "add_dir", "allowed_tools", "disallowed_tools"];

/// Settings of the terminal only.
const TERMINAL: &[&str] = &["reduced_motion", "screen_reader"];

/// Commands that answer, or start runs that do: all settings apply.
const RUNS: &[&str] = &[
    "acp",
    "answer",
    "approve",
    "approvals answer",
    "approvals approve",
    "approvals deny",
    "approvals modify",
    "deny",
    "mcp serve",
    "serve",
    "work",
];

/// Commands that show or check what the settings are.
const SHOWS_SETTINGS: &[&str] = &["config show", "doctor"];

/// Examples of the commands that have none beside their code.
pub(super) const EXAMPLES: &[(&str, &str)] = &[
    ("acp", "aye acp --model anthropic/claude-sonnet-5"),
    ("agents list", "aye agents list --json"),
    ("agents show", "aye agents show reviewer"),
    ("approvals deny", "aye approvals deny perm_call_ff20 --reason \"use the staging server\""),
    ("approvals list", "aye approvals list --tool Bash --json"),
    ("approvals modify", "aye approvals modify perm_call_ff20 --feedback \"keep the old name\""),
    ("approvals show", "aye approvals show perm_call_ff20"),
    ("config", "aye config show"),
    ("config show", "aye config show --json"),
    ("deny", "aye deny perm_call_ff20 --reason \"use the staging server\""),
    ("doctor", "aye doctor --json"),
    ("gate hook", "aye gate hook --wait 50s"),
    ("grants list", "aye grants list --json"),
    ("grants revoke", "aye grants revoke 0198c0de-7a31"),
    ("grants show", "aye grants show 0198c0de-7a31"),
    ("hooks", "aye hooks list"),
    ("hooks list", "aye hooks list"),
    ("logout", "aye logout anthropic"),
    ("mcp add", "aye mcp add files -- npx -y @modelcontextprotocol/server-filesystem ."),
    ("mcp list", "aye mcp list --json"),
    ("mcp login", "aye mcp login issues"),
    ("mcp logout", "aye mcp logout issues"),
    ("mcp remove", "aye mcp remove files"),
    ("mcp serve", "aye mcp serve --permission-mode plan"),
    ("mcp test", "aye mcp test files"),
    ("mcp trust", "aye mcp trust files"),
    ("memory add", "aye memory add --user \"answer in German\""),
    ("memory edit", "aye memory edit p3 \"tests need a database\""),
    ("memory forget", "aye memory forget p1 u2"),
    ("memory list", "aye memory list --all"),
    ("models", "aye models --json"),
    ("permissions", "aye permissions suggest"),
    ("permissions simulate", "aye permissions simulate --rules new.yaml"),
    ("queue", "aye queue add \"update the changelog\""),
    ("queue cancel", "aye queue cancel 3"),
    ("queue list", "aye queue list --all"),
    ("queue outbox", "aye queue outbox"),
    ("queue retry", "aye queue retry 2"),
    ("reminders", "aye reminders check"),
    ("serve token add", "aye serve token add phone --scope read,decide"),
    ("serve token list", "aye serve token list"),
    ("serve token revoke", "aye serve token revoke phone"),
    ("worktrees diff", "aye worktrees diff parser"),
    ("worktrees list", "aye worktrees list --json"),
    ("worktrees merge", "aye worktrees merge parser"),
    ("worktrees remove", "aye worktrees remove parser"),
    ("skills", "aye skills check"),
    ("skills check", "aye skills check .aye/skills/release"),
    ("skills list", "aye skills list"),
    ("store", "aye store check"),
    ("store backup", "aye store backup aye-2026-12-01.db"),
    ("store check", "aye store check"),
    ("store restore", "aye store restore aye-2026-12-01.db"),
    ("tasks list", "aye tasks list --json"),
    ("tasks show", "aye tasks show b3"),
    ("tasks stop", "aye tasks stop b3"),
    ("threads", "aye threads search \"slow query\""),
    ("threads delete", "aye threads delete 0198c0de-7a31"),
    ("threads export", "aye threads export 0198c0de-7a31 --format html > talk.html"),
    ("threads fork", "aye threads fork 0198c0de-7a31"),
    ("threads import", "aye threads import talk.json"),
    ("threads list", "aye threads list --limit 20"),
    ("threads pin", "aye threads pin 0198c0de-7a31"),
    ("threads rename", "aye threads rename 0198c0de-7a31 \"the slow query\""),
    ("threads search", "aye threads search \"slow query\""),
    ("threads show", "aye threads show 0198c0de-7a31"),
];

/// Returns the commands as their help shows them; every flag still works with each.
pub(super) fn dressed_commands(mut aye: Command) -> Command {
    aye.build();
    let names: Vec<String> = aye.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    for name in names {
        aye = aye.mut_subcommand(&name, |command| dressed(command, &name));
    }
    aye
}

fn dressed(mut command: Command, path: &str) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    for name in names {
        command = command.mut_subcommand(&name, |command| dressed(command, &format!("{path} {name}")));
    }
    let command = command.mut_args(|arg| {
        let is_hidden = arg.is_hide_set() || arg.is_global_set() && !applies(arg.get_id().as_str(), path);
        arg.hide(is_hidden)
    });
    match EXAMPLES.iter().find(|(name, _)| *name == path) {
        Some((_, example)) if command.get_after_help().is_none() => {
            command.after_help(format!("Example:\n  {example}"))
        }
        _ => command,
    }
}

/// Returns whether a setting changes what a command does.
fn applies(setting: &str, path: &str) -> bool {
    let is_group = |names: &[&str]| names.contains(&path.split(' ').next().unwrap_or_default());
    if SOURCES.contains(&setting) || SHOWS_SETTINGS.contains(&path) {
        return true;
    }
    if RUNS.contains(&path) {
        return !TERMINAL.contains(&setting);
    }
    (FOLDER.contains(&setting) && is_group(&["agents", "hooks", "mcp", "permissions", "reminders", "skills"]))
        || (CALLS.contains(&setting) && is_group(&["permissions"]))
        || (setting == "model" && is_group(&["agents", "models", "replay"]))
}
