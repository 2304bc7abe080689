//! The policy of a machine: `/etc/aye/policy.toml`, in a mount namespace whose `/etc` is made for it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::support::home::{Aye, Home};
use crate::support::llm::{Answer, Chat, MockLlm};

/// Puts a folder over `/etc`. What programs look up there is copied.
const SCRIPT: &str = "set -e\nfor name in passwd group nsswitch.conf hosts; do cp \"/etc/$name\" \"$ETC/\" 2>/dev/null || :; done\n\
                      mount --bind \"$ETC\" /etc\nexec \"$0\" \"$@\"";

/// aye on a machine with that policy; `None` where no namespaces can be made.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn under(home: &Home, policy: &str, mode: u32, args: &[&str]) -> Option<Aye> {
    let etc = home.root().join("etc");
    let file = etc.join("aye/policy.toml");
    fs::create_dir_all(etc.join("aye")).expect("a folder");
    fs::write(&file, policy).expect("a policy");
    fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("its mode");
    let can = std::process::Command::new("unshare").args(["-m", "true"]).output();
    if !can.is_ok_and(|done| done.status.success()) {
        eprintln!("skipped: this user cannot make a mount namespace (root can)");
        return None;
    }
    let mut words = vec!["-m", "sh", "-c", SCRIPT, env!("CARGO_BIN_EXE_aye")];
    words.extend(args);
    Some(home.program("unshare", &words).env("ETC", &etc.to_string_lossy()))
}

#[test]
fn what_the_administrator_set_cannot_be_loosened() {
    let policy = "models = [\"mock/*\"]\n[settings]\npermission_mode = \"ask\"\nmax_turns = 7\n\n\
                  [[rules]]\ntool = \"Bash(touch *)\"\nbehavior = \"deny\"\n";
    let llm = MockLlm::by(|chat: &Chat| match chat.results().len() {
        0 => Answer::new().bash("c1", "touch made"),
        _ => Answer::say("End."),
    });
    let home = Home::with(&llm);
    home.rules("rules: [{tool: 'Bash(touch *)', behavior: allow}]\n");
    let Some(shown) = under(&home, policy, 0o644, &["config", "show", "--config", "max_turns=0"]) else {
        return;
    };
    let shown = shown.run().exits(0);
    shown
        .prints("max_turns = 7  # /etc/aye/policy.toml:4:1")
        .prints("policy of this machine: /etc/aye/policy.toml: 2 settings, 1 rule, models mock/*")
        .says(
            "`max_turns` is ignored: the policy of this machine (/etc/aye/policy.toml:4:1) allows at most 7",
        );

    let args = ["--permission-mode", "yolo", "--allowed-tools", "Bash", "-p", "go"];
    let ran = under(&home, policy, 0o644, &args).expect("as before").run().exits(0);
    ran.says("`permission_mode` is ignored: the policy of this machine").says("/etc/aye/policy.toml:6");
    assert!(!home.work().join("made").exists(), "the rule of the policy denies it");

    let args = ["--model", "openai/gpt-5.2", "-p", "go"];
    let refused =
        under(&home, policy, 0o644, &args).expect("as before").env("OPENAI_API_KEY", "k").run().exits(2);
    refused.says(
        "model `openai/gpt-5.2` (--model) cannot be used: the policy of this machine allows only mock/*",
    );
}

#[test]
fn a_policy_that_others_can_write_or_that_is_wrong_refuses_the_start() {
    let llm = MockLlm::by(|_: &Chat| Answer::say("End."));
    let home = Home::with(&llm);
    let Some(changeable) = under(&home, "models = []\n", 0o666, &["-p", "go"]) else { return };
    changeable.run().exits(2).says("must belong to root and be writable only by root");
    let wrong = "[settings]\nmax_turn = 1\n";
    under(&home, wrong, 0o644, &["-p", "go"])
        .expect("as before")
        .run()
        .exits(2)
        .says("/etc/aye/policy.toml:2:1: unknown key `max_turn`");
    let rule = "[[rules]]\ntool = \"Bash(\"\nbehavior = \"deny\"\n";
    under(&home, rule, 0o644, &["-p", "go"])
        .expect("as before")
        .run()
        .exits(2)
        .says("/etc/aye/policy.toml:1:");
    assert_eq!(llm.asked().len(), 0, "nothing was sent");
}
