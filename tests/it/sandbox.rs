//! What the kernel keeps commands to.

use crate::support::home::Home;
use crate::support::llm::{Answer, MockLlm};

/// What a shipped rule allows is kept to reading by the kernel, and a rule of the user's gives the right to write back.
#[test]
fn commands_that_only_shipped_rules_allow_can_write_nothing() {
    let home = Home::new();
    let doctor = home.ok(&["doctor"]).stdout;
    if !doctor.contains("bubblewrap, Landlock and seccomp") {
        eprintln!("not run: this machine cannot make the whole sandbox");
        return;
    }
    let line = "find . -maxdepth 1 -writable";
    for (more, written) in [(&[][..], false), (&["--allowed-tools", "Bash(find *)"], true)] {
        for off in [&[][..], &["--config", "sandbox.enabled=false"]] {
            let llm = MockLlm::answers([Answer::new().bash("c1", line), Answer::say("Done.")]);
            let home = Home::with(&llm);
            home.ok(&[&["-p", "--config", "on_ask=deny"], off, more, &["--", "look"]].concat());
            let found = llm.last().result("c1");
            assert_eq!(found.trim() == ".", written || !off.is_empty(), "{more:?} {off:?}: {found}");
            let audit = home.ok(&["audit", "--json"]).stdout;
            assert_eq!(audit.contains("\"profile\":\"read\""), !written, "{audit}");
        }
    }
}
