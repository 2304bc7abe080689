//! Lines that the grammar of the shell makes, through the whole judge: whatever is written, it answers, and a command that
//! a rule denies does not run. `PROPTEST_CASES=100000 cargo test -p aye-plugins grammar` looks at more of them.

use super::plugin::{World, world};
use aye_core::contract::tool_intercept::ToolInterceptPayload;
use proptest::prelude::*;
use proptest::sample::select;

/// A word, which may be a program: names of the judge's tables, options, quotes, expansions and globs.
fn word() -> impl Strategy<Value = String> {
    let names = select(vec![
        "ls", "cat", "git", "sed", "find", "xargs", "env", "sudo", "timeout", "bash", "sh", "eval", "tar",
        "awk", "time", "!", "npx", "uv", "python3", "make", "cd", "trap", "alias", "ssh", "watch", "nice",
        "coproc", "[[", "in",
    ]);
    let arguments = select(vec![
        "-c",
        "-e",
        "-i",
        "-n",
        "-exec",
        ";",
        "+",
        "--",
        "-",
        "-x",
        "--exec",
        "-I",
        "{}",
        "run",
        "status",
        "-C",
        "foreach",
        "1",
        "s/a/b/w x",
        "p",
        "a=b",
        "alias.x=!ls",
        "-S",
        "--split-string=a b",
        "../x",
        "/etc/passwd",
        "~",
        "~root",
        ".",
    ]);
    prop_oneof![
        6 => names.prop_map(str::to_owned),
        6 => arguments.prop_map(|text| if text == ";" || text.contains([' ', '!']) { format!("'{text}'") } else { text.to_owned() }),
        1 => "[a-z*?\\[\\]{},./_-]{1,8}",
        1 => "'[ -&(-~é]{0,6}'",
        1 => "\"[ a-z$]{0,6}\"",
        1 => select(vec!["$X", "${X:-y}", "$(ls)", "`ls`", "<(ls)", "$((1+2))", "$'\\n'", "\\ ", "\\;", "''", "é", "\u{200b}"])
            .prop_map(str::to_owned),
    ]
}

fn assignment() -> impl Strategy<Value = String> {
    (select(vec!["LANG", "CI", "PATH", "LD_PRELOAD", "X", "GIT_DIR"]), word())
        .prop_map(|(name, value)| format!("{name}={value}"))
}

/// A command without another one around it; it may have no program.
fn simple() -> impl Strategy<Value = String> {
    let redirect = select(vec!["", "", "", " >/dev/null", " 2>&1", " > out", " <<< x", " >&2", " &> log"]);
    let assignments = prop::collection::vec(assignment(), 0..3);
    (assignments, prop::collection::vec(word(), 0..6), redirect).prop_map(|(assignments, words, redirect)| {
        let parts: Vec<String> = assignments.into_iter().chain(words).collect();
        let text = if parts.is_empty() { "CI=1".to_owned() } else { parts.join(" ") };
        text + redirect
    })
}

fn line() -> impl Strategy<Value = String> {
    simple().prop_recursive(4, 24, 4, |inner| {
        let pair = (inner.clone(), inner.clone());
        prop_oneof![
            (pair.clone(), select(vec![" | ", " && ", " || ", "; ", " & ", "\n", " |& "]))
                .prop_map(|((one, two), between)| format!("{one}{between}{two}")),
            inner.clone().prop_map(|line| format!("( {line} )")),
            inner.clone().prop_map(|line| format!("{{ {line}; }}")),
            inner.clone().prop_map(|line| format!("! {line}")),
            inner.clone().prop_map(|line| format!("f() {{ {line}; }}; f")),
            inner.clone().prop_map(|line| format!("echo \"$({line})\" `{line}`")),
            inner.clone().prop_map(|line| format!("bash -c '{}'", line.replace('\'', ""))),
            inner.clone().prop_map(|line| format!("cat <<EOF\n{line}\nEOF")),
            inner.clone().prop_map(|line| format!("cat <<'EOF' | {line}\nx\nEOF")),
            pair.clone().prop_map(|(one, two)| format!("if {one}; then {two}; else {one}; fi")),
            pair.clone().prop_map(|(one, two)| format!("while {one}; do {two}; done")),
            (word(), pair).prop_map(|(word, (one, two))| format!(
                "for x in {word}; do {one}; done; case {word} in a) {two};; esac"
            )),
        ]
    })
}

fn answered(world: &World, line: &str) -> Option<ToolInterceptPayload> {
    futures::executor::block_on(world.gate(World::info(line)))
}

proptest! {
    #![proptest_config(super::with_cases(400))]

    #[test]
    fn every_line_is_answered_and_a_denied_command_never_runs(line in line()) {
        let world = world(&["Bash(ls *)", "Bash(git *)", "Bash(env *)", "Bash(cat *)"], &["Bash(git push *)"], &["Bash(rm *)"]);
        if let Some(ToolInterceptPayload::SetResult(result)) = answered(&world, &line) {
            prop_assert!(!result.model_text().contains("panicked"), "{line}: {}", result.model_text());
        }
        for denied in [format!("{line}\nrm -f x"), format!("rm -f x; {line}"), format!("CI=1; {line}\nLANG=C rm x")] {
            prop_assert!(answered(&world, &denied).is_some(), "{denied}");
        }
    }
}
