//! Rules about files on a real volume that takes several spellings of a name for one.

use serde_json::{Value, json};

use crate::support::home::Home;

/// Makes a folder that ignores case, `$VOLUME` or one of this machine's, and runs `$0` in it.
const SCRIPT: &str = r#"
if [ -z "$VOLUME" ] && mkdir "$AYE_HOME/volume" && [ ! -e "$AYE_HOME/VOLUME" ]; then
    image="$AYE_HOME/image"
    { truncate -s 16M "$image" && mkfs.ext4 -q -O casefold "$image" && mount -o loop "$image" "$AYE_HOME/volume"; } ||
        mount -t tmpfs -o casefold tmpfs "$AYE_HOME/volume" || exit 77
    mkdir "$AYE_HOME/volume/folded" && chattr +F "$AYE_HOME/volume/folded" || exit 77
    VOLUME="$AYE_HOME/volume/folded"
fi
folder=$(mktemp -d "${VOLUME:-$AYE_HOME/volume}/aye.XXXXXX") && cd "$folder" || exit 1
mkdir src empty && echo x >.env && echo x >src/key && [ -e .ENV ] || exit 77
"$0" permissions check
status=$?
cd / && rm -r "$folder"
exit $status
"#;

#[test]
fn rules_hold_for_every_spelling_of_a_name() {
    let home = Home::new();
    let read = |path: &str| json!({"tool": "Read", "args": {"file_path": path}});
    let write = |path: &str| json!({"tool": "Write", "args": {"file_path": path, "content": ""}});
    let bash = |command: &str| json!({"tool": "Bash", "args": {"command": command}});
    let cases = [
        (read(".ENV"), json!({"default": "allow", "deny": ["Read(.env)"]}), "deny"),
        (read(".env"), json!({"default": "allow", "deny": ["Read(.ENV)"]}), "deny"),
        (read(".envx"), json!({"default": "allow", "deny": ["Read(.env)"]}), "allow"),
        (bash("cat .Env"), json!({"default": "allow", "deny": ["Read(.env)"]}), "deny"),
        (write("SRC/new"), json!({"default": "allow", "deny": ["Write(src/**)"]}), "deny"),
        (write("empty/New"), json!({"default": "allow", "deny": ["Write(**/new)"]}), "deny"),
        (read("SRC/Key"), json!({"default": "ask", "allow": ["Read(file_path !~ \"src/**\")"]}), "ask"),
        (read("src/key"), json!({"default": "ask", "allow": ["Read(src/**)"]}), "allow"),
    ];
    let lines = cases.iter().map(|(call, rules, _)| {
        let mut line = call.clone();
        line["rules"] = rules.clone();
        format!("{line}\n")
    });
    // To try it on a volume that this test cannot make, such as one of another system.
    let volume = std::env::var("AYE_TEST_VOLUME").unwrap_or_default();
    let program = if volume.is_empty() { "unshare" } else { "env" };
    let isolation: &[&str] = if volume.is_empty() { &["-m"] } else { &[] };
    let words = [isolation, &["sh", "-c", SCRIPT, env!("CARGO_BIN_EXE_aye")]].concat();
    let out = home.program(program, &words).env("VOLUME", &volume).stdin(lines.collect::<String>()).run();
    if out.status.code() != Some(0) && volume.is_empty() && out.stdout.is_empty() {
        eprintln!("skipped: no volume here ignores case, and none can be made: {}", out.stderr.trim());
        return;
    }
    let verdicts: Vec<Value> = out.lines();
    for ((call, rules, want), verdict) in cases.iter().zip(&verdicts) {
        assert_eq!(verdict["verdict"], **want, "{call} under {rules}: {verdict}");
    }
    assert_eq!(verdicts.len(), cases.len(), "{out:?}");
}
