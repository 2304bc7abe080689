//! Programs that aye starts besides commands, scripts of skills: what the kernel keeps them to.

use serde_json::json;

use crate::sandbox::has_all_layers;
use crate::support::home::Home;
use crate::support::llm::{Answer, MockLlm};

/// Reads what is not the project's, and writes inside and outside.
const PROBE: &str =
    "cat ../home/canary.txt .env > seen.txt 2>&1; echo in > inside.txt; echo out > ../outside.txt";

fn home(llm: &MockLlm) -> Home {
    let home = Home::with(llm);
    std::fs::write(home.root().join("home/canary.txt"), "canary of the home folder\n").expect("written");
    home.write(".env", "KEY=canary of the project\n");
    home
}

/// What the probe got: whether it saw a secret, wrote inside, wrote outside.
fn reached(home: &Home) -> (bool, bool, bool) {
    let seen = home.read("seen.txt").contains("canary of");
    (seen, home.work().join("inside.txt").exists(), home.root().join("outside.txt").exists())
}

const KEPT: (bool, bool, bool) = (false, true, false);
const OUTSIDE: (bool, bool, bool) = (true, true, true);

fn skill(home: &Home) {
    home.write(".agents/skills/probe/SKILL.md", "---\nname: probe\ndescription: Probes.\n---\nRun it.\n");
    home.write(
        ".agents/skills/probe/scripts/probe.sh",
        &format!("cat extra.txt; cd \"$AYE_PROJECT_DIR\" || exit 1\n{PROBE}\n"),
    );
    home.write(".agents/skills/probe/extra.txt", "its own file\n");
}

#[test]
fn a_script_of_a_skill_runs_in_the_profile_of_its_verdict() {
    if !has_all_layers() {
        return;
    }
    let script = json!({"skill": "probe", "script": "probe.sh"});
    let llm =
        || MockLlm::answers([Answer::new().call("c1", "skill_script", script.clone()), Answer::say("Done.")]);
    for (mode, answer, expected) in [
        ("ask", Some(&[][..]), KEPT),
        ("ask", Some(&["--outside"][..]), OUTSIDE),
        ("auto", None, KEPT),
        ("yolo", None, OUTSIDE),
    ] {
        let llm = llm();
        let home = home(&llm);
        skill(&home);
        let run = home.aye(&["--trust", "-p", "go", "--permission-mode", mode]).run();
        if let Some(more) = answer {
            run.exits(3);
            let shown = home.ok(&["approvals", "show", "perm_c1", "--json"]).stdout;
            assert!(shown.contains("\"profile\": \"workspace\""), "{shown}");
            home.ok(&[&["--trust", "approve", "perm_c1", "--resume"], more].concat());
        } else {
            run.exits(0);
        }
        let result = llm.last().result("c1");
        assert!(result.contains("its own file"), "{result}");
        assert_eq!(reached(&home), expected, "{mode}: {result}");
    }
}

/// A skill of the user's is in the home folder, where a script reads its own files and no others.
#[test]
fn a_script_sees_its_own_skill_in_the_home_folder() {
    if !has_all_layers() {
        return;
    }
    let script = json!({"skill": "probe", "script": "probe.sh"});
    let llm = MockLlm::answers([Answer::new().call("c1", "skill_script", script), Answer::say("Done.")]);
    let home = home(&llm);
    let skill = home.root().join("home/.agents/skills/probe");
    std::fs::create_dir_all(skill.join("scripts")).expect("made");
    std::fs::write(skill.join("SKILL.md"), "---\nname: probe\ndescription: Probes.\n---\nRun it.\n")
        .expect("written");
    let line = "cat extra.txt; cat ../../../canary.txt; echo x > new.txt\n";
    std::fs::write(skill.join("scripts/probe.sh"), line).expect("written");
    std::fs::write(skill.join("extra.txt"), "its own file\n").expect("written");
    home.ok(&["-p", "go", "--allowed-tools", "skill_script"]);
    let result = llm.last().result("c1");
    assert!(result.contains("its own file") && !result.contains("canary of"), "{result}");
    assert!(!skill.join("new.txt").exists(), "{result}");
    assert!(result.contains("the sandbox (workspace) may have refused this: "), "{result}");
}
