//! Secret rows: a canary key appears only in the request it is for; every file is private.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::{ensure, of_area};
use crate::support::home::Home;
use crate::support::llm::{Answer, Gate, MockLlm};

pub const CHECKS: &[&str] = &["SE001", "SE002", "SE101o", "SE102o"];

const CANARY: &str = "sk-canary-0123456789abcdef";

#[test]
fn every_row_is_known() {
    for row in of_area("secret") {
        assert!(CHECKS.contains(&row.id.as_str()), "{}", row.id);
    }
}

fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a folder").flatten() {
        let path = entry.path();
        found.push(path.clone());
        if path.is_dir() && !path.is_symlink() {
            files(&path, found);
        }
    }
}

/// The files below the folder that contain the canary.
fn holding(dir: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    files(dir, &mut all);
    all.retain(|path| {
        path.is_file()
            && std::fs::read(path)
                .is_ok_and(|bytes| bytes.windows(CANARY.len()).any(|part| part == CANARY.as_bytes()))
    });
    all
}

const KEYS: &[&str] =
    &["MOCK_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GH_TOKEN", "MY_PASSWORD"];

/// SE001 and SE101o: every command, a run with tools, provider errors that repeat the key, the most verbose
/// logs.
#[test]
fn a_key_is_found_nowhere() {
    let llm = MockLlm::answers([
        Answer::new().bash("a", "bash probe.sh"),
        Answer::say("done"),
        Answer::error(401, &format!("Incorrect API key provided: {CANARY}. See https://x/?key={CANARY}")),
        Answer::error(400, &format!("bad header authorization: Bearer {CANARY}")),
        Answer::error(500, CANARY),
    ]);
    let home = Home::with(&llm);
    home.write(
        "probe.sh",
        "env\ncat /proc/$PPID/environ /proc/self/environ | tr '\\0' '\\n'\ntr '\\0' ' ' < /proc/$PPID/cmdline\n",
    );
    let mut printed = String::new();
    let mut run = |args: &[&str]| {
        let mut aye =
            home.aye(args).env("AYE_LOG", "trace").env("RUST_BACKTRACE", "full").env("RUST_LOG", "trace");
        for name in KEYS {
            aye = aye.env(name, CANARY);
        }
        let out = aye.run();
        printed.extend([format!("--- {args:?}\n"), out.stdout, out.stderr]);
        out.status.code()
    };
    assert_eq!(
        run(&[
            "-p",
            "go",
            "--permission-mode",
            "yolo",
            "--allowed-tools",
            "Bash",
            "--output-format",
            "stream-json"
        ]),
        Some(0)
    );
    for format in ["text", "json", "stream-json"] {
        assert_ne!(run(&["-p", "again", "--output-format", format]), Some(0));
    }
    for args in [
        &["config", "show"][..],
        &["config", "show", "--json"],
        &["doctor"],
        &["doctor", "--json"],
        &["models"],
        &["models", "--json"],
        &["threads", "list", "--json"],
        &[
            "-p",
            "x",
            "--model",
            "openai/nothing",
            "--config",
            "providers.openai.base_url=\"http://127.0.0.1:1\"",
        ],
        &["-p", "x", "--config", "nothing.at=all"],
        &["skills", "list"],
        &["approvals", "list"],
    ] {
        run(args);
    }
    let thread = home.thread();
    for args in [&["threads", "show"][..], &["threads", "export"]] {
        run(&[args, &[&thread]].concat());
    }
    let lines: Vec<&str> =
        printed.lines().filter(|line| line.starts_with("---") || line.contains(CANARY)).collect();
    assert!(!printed.contains(CANARY), "printed: {lines:#?}");
    assert_eq!(holding(home.root()), Vec::<PathBuf>::new());
    for chat in llm.asked() {
        assert!(!chat.body.to_string().contains(CANARY), "sent to the model: {}", chat.body);
    }
}

/// SE102o: processes started by aye cannot read the keys from the environment or memory of any process, even
/// as root.
#[cfg(target_os = "linux")]
#[test]
fn commands_do_not_see_ayes_environment() {
    let llm = MockLlm::answers([Answer::new().bash("a", "bash probe.sh"), Answer::say("done")]);
    let home = Home::with(&llm);
    home.write(
        "probe.sh",
        r#"p=$PPID
while [ "$p" -gt 1 ]; do
  tr '\0' '\n' < /proc/$p/environ 2>/dev/null | grep canary
  case "$(tr '\0' ' ' < /proc/$p/cmdline)" in *' -p go '*) aye=$p ;; esac
  p=$(sed 's/.*) . \([0-9]*\) .*/\1/' /proc/$p/stat)
done
echo "aye is $aye"
page=$(head -n 1 "/proc/$aye/maps" 2>/dev/null | cut -d- -f1)
dd if="/proc/$aye/mem" bs=1 count=1 skip=$((0x${page:-0})) iflag=skip_bytes >/dev/null 2>&1 && echo 'read mem'
head -c 1 "/proc/$aye/environ" >/dev/null 2>&1 && echo 'read environ'
readlink "/proc/$aye/fd/0" >/dev/null 2>&1 && echo 'read fd'
echo end
"#,
    );
    // aye's own protection, where the sandbox does not hide it anyway.
    let outside = ["-p", "go", "--allowed-tools", "Bash", "--config", "sandbox.enabled=false"];
    home.aye(&outside).env("MOCK_KEY", CANARY).run().exits(0);
    let result = llm.last().result("a");
    let has_found =
        result.lines().any(|line| line.strip_prefix("aye is ").is_some_and(|pid| !pid.is_empty()));
    assert!(has_found && result.contains("end"), "{result}");
    assert!(!result.contains("canary") && !result.contains("read "), "{result}");
}

/// Even root finds no key in the environment of a running aye, whatever its variable is called.
#[cfg(target_os = "linux")]
#[test]
fn no_key_is_in_the_environment_of_a_running_aye() {
    let gate = Gate::default();
    let llm = MockLlm::answers([Answer::say("started").wait(&gate).text(" and done")]);
    let home = Home::with(&llm);
    let mut aye = home.aye(&["-p", "go", "--output-format", "stream-json"]).env("CORP_LLM", CANARY);
    for name in KEYS {
        aye = aye.env(name, CANARY);
    }
    let mut aye = aye.env("DATABASE_URL", &format!("postgres://me:{CANARY}@db/x")).spawn();
    aye.until_line("started");
    let environ = std::fs::read(format!("/proc/{}/environ", aye.pid()));
    let comm = std::fs::read_to_string(format!("/proc/{}/comm", aye.pid())).expect("runs");
    gate.open();
    // aye got the keys nevertheless: the model answers only with the right key.
    aye.end().exits(0);
    assert_eq!(comm, "aye\n");
    match environ {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            assert!(text.contains("PATH=") && !text.contains("canary"), "{text}");
            // Nor did it have to start a second time for that, which costs milliseconds.
            assert_eq!(text.contains("LISTEN_FDS="), aye_platform::IS_PORTABLE, "{text}");
        }
        // Only root may read it.
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied),
    }
}

/// SE002: whatever the umask, every file that aye creates is 0600 and every folder 0700.
#[test]
fn every_file_is_private() {
    for umask in ["0000", "0777", "0027"] {
        let llm = MockLlm::answers([Answer::new().bash("a", "seq 1 20000"), Answer::say("done")]);
        let home = Home::with(&llm);
        let script = format!("umask {umask}; exec \"$0\" -p go --allowed-tools Bash");
        let out = std::process::Command::new("bash")
            .args(["-c", &script, env!("CARGO_BIN_EXE_aye")])
            .env_clear()
            .envs(home.env())
            .env("AYE_LOG", "trace")
            .current_dir(home.work())
            .output()
            .expect("runs");
        assert_eq!(out.status.code(), Some(0), "{umask}: {}", String::from_utf8_lossy(&out.stderr));
        let mut all = Vec::new();
        files(&home.root().join("aye"), &mut all);
        let mut wrong = Vec::new();
        // Files created by commands are their own; the folder that contains them is private.
        let of_commands = |path: &Path| {
            path.strip_prefix(home.root().join("aye/cache/tmp"))
                .is_ok_and(|below| below.components().count() > 1)
        };
        let config = home.root().join("aye/config");
        for path in all.iter().filter(|path| !path.starts_with(&config) && !of_commands(path)) {
            let mode = path.symlink_metadata().expect("exists").permissions().mode() & 0o777;
            let wanted = if path.is_dir() { 0o700 } else { 0o600 };
            if mode != wanted {
                wrong.push(format!("{umask}: {mode:o} {}", path.display()));
            }
        }
        assert!(all.len() > 3 && wrong.is_empty(), "{wrong:#?}");
    }
    ensure(true, String::new).expect("succeeds");
}
