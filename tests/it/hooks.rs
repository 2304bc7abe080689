//! Hook commands at the boundaries of a run: their input, their effects, and their failures.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::home::Home;
use crate::support::llm::{Answer, MockLlm, until};

const TOUCH: &str = "echo ran >> log.txt";

fn runs(command: &str) -> MockLlm {
    MockLlm::answers([Answer::say("I will.").bash("c1", command), Answer::say("It is done.")])
}

fn hooks(home: &Home, text: &str) {
    std::fs::write(home.root().join("aye/config/hooks.toml"), text).expect("written");
}

/// A hook with this shell line.
fn hook(phase: &str, more: &str, line: &str) -> String {
    format!(
        "[[hooks]]\nname = \"h\"\nphase = \"{phase}\"\n{more}\ncommand = [\"sh\", \"-c\", '''{line}\n''']\n"
    )
}

/// A hook at the gate of Bash calls.
fn gate(line: &str) -> String {
    hook("before_tool_execute", "tool = \"Bash\"", line)
}

/// The audit rows of hooks; also verifies the audit.
fn rows(home: &Home) -> Vec<Value> {
    assert!(home.ok(&["audit", "--verify"]).stdout.starts_with("intact: "));
    let rows = home.ok(&["audit", "--rows"]).lines();
    rows.into_iter().filter(|row| row["kind"] == "hook").collect()
}

#[test]
fn a_denying_command_stops_the_call_and_the_run_continues() {
    let llm = runs(TOUCH);
    let home = Home::with(&llm);
    hooks(&home, &gate("cat > event.json; echo 'not on a Friday' >&2; exit 2"));
    let out = home.ok(&["-p", "go", "--allowed-tools", "Bash"]);
    assert_eq!(out.stdout, "It is done.\n");
    assert_eq!(home.read("log.txt"), "");
    let result = llm.last().result("c1");
    assert!(result.contains("not on a Friday"), "{result}");
    assert!(result.contains("hooks.toml:1"), "{result}");

    let event: Value = serde_json::from_str(&home.read("event.json")).expect("JSON");
    for (key, value) in [
        ("version", json!(1)),
        ("hook", json!("h")),
        ("phase", json!("before_tool_execute")),
        ("agent", json!("aye")),
        ("cwd", json!(home.work().canonicalize().expect("a folder"))),
        ("call", json!({"id": "c1", "name": "Bash", "arguments": {"command": TOUCH}})),
        ("answered", json!(false)),
    ] {
        assert_eq!(event[key], value, "{key}: {event:#}");
    }
    let rows = rows(&home);
    assert_eq!(rows.len(), 1, "{rows:#?}");
    assert_eq!((&rows[0]["call_id"], &rows[0]["body"]["exit"]), (&json!("c1"), &json!(2)), "{rows:#?}");
    assert_eq!(rows[0]["body"]["answer"], "deny: not on a Friday");
    let told = home.ok(&["audit"]).stdout;
    assert!(told.contains("hook") && told.contains("h at before_tool_execute (exit 2"), "{told}");
}

#[test]
fn a_silent_command_lets_the_rules_decide() {
    for (args, exit, log) in [
        (&["-p", "go", "--allowed-tools", "Bash"][..], 0, "ran\n"),
        (&["-p", "go"], 3, ""),
        // It cannot lift a deny, and is not even run.
        (&["-p", "go", "--disallowed-tools", "Bash(*)"], 0, ""),
    ] {
        let llm = runs(TOUCH);
        let home = Home::with(&llm);
        hooks(&home, &gate("echo seen >> seen.txt; echo '{}'"));
        home.aye(args).run().exits(exit);
        assert_eq!(home.read("log.txt"), log, "{args:?}");
        assert_eq!(home.read("seen.txt") == "seen\n", exit != 0 || !log.is_empty(), "{args:?}");
    }
}

#[test]
fn a_block_ends_the_run_with_its_own_status() {
    let llm = runs(TOUCH);
    let home = Home::with(&llm);
    hooks(&home, &gate("echo '{\"block\": \"hands off\"}'"));
    let out = home.aye(&["-p", "go", "--allowed-tools", "Bash", "--output-format", "json"]).run().exits(4);
    let object = out.json();
    assert_eq!((&object["status"], &object["exit"]), (&json!("blocked"), &json!(4)), "{object:#}");
    assert!(object["termination"].to_string().contains("hands off"), "{object:#}");
    assert_eq!(home.read("log.txt"), "");
    assert_eq!(llm.asked().len(), 1);

    // Before any request to the model.
    let llm = runs(TOUCH);
    let home = Home::with(&llm);
    hooks(&home, &hook("run_start", "", "cat > event.json; echo 'not today' >&2; exit 2"));
    home.aye(&["-p", "do it"]).run().exits(4).says("not today");
    assert_eq!(llm.asked().len(), 0);
    let event: Value = serde_json::from_str(&home.read("event.json")).expect("JSON");
    assert_eq!(event["prompt"], "do it");
}

#[test]
fn a_command_failing_at_the_gate_closes_it() {
    for (line, why) in [
        ("echo broken pipe dream >&2; exit 3", "exit status 3: broken pipe dream"),
        ("echo not json", "an invalid answer"),
        ("echo '{\"allow\": true}'", "unknown field `allow`"),
        ("echo '{\"stop\": 1}'", "an invalid answer"),
        ("kill -9 $$", "ended by SIGKILL"),
        ("sleep 60", "its time limit"),
        ("yes | head -c 400000", "too much to stdout"),
    ] {
        let llm = runs(TOUCH);
        let home = Home::with(&llm);
        let limit = if line == "sleep 60" { "700ms" } else { "1m" };
        let more = format!("tool = \"Bash\"\ntimeout = \"{limit}\"");
        hooks(&home, &hook("before_tool_execute", &more, line));
        let out = home.ok(&["-p", "go", "--allowed-tools", "Bash"]).says("the call does not run");
        assert_eq!(home.read("log.txt"), "", "{line}");
        let result = llm.last().result("c1");
        assert!(result.contains(why) && result.contains("hooks.toml:1"), "{line}: {result}\n{}", out.stderr);
        assert!(!home.works("sleep 60"), "{line}");
    }
    let llm = runs(TOUCH);
    let home = Home::with(&llm);
    hooks(&home, "[[hooks]]\nphase = \"before_tool_execute\"\ncommand = [\"no-such-program-at-all\"]\n");
    home.ok(&["-p", "go", "--allowed-tools", "Bash"]);
    assert_eq!(home.read("log.txt"), "");
    assert!(llm.last().result("c1").contains("could not be started"), "{}", llm.last().result("c1"));
}

#[test]
fn a_command_failing_elsewhere_is_a_warning() {
    for phase in [
        "run_start",
        "step_start",
        "before_inference",
        "after_inference",
        "after_tool_execute",
        "step_end",
        "run_end",
    ] {
        let llm = runs(TOUCH);
        let home = Home::with(&llm);
        hooks(&home, &hook(phase, "", "echo oh dear >&2; exit 7"));
        home.ok(&["-p", "go", "--allowed-tools", "Bash"])
            .says("exit status 7: oh dear; the run continues without it");
        assert_eq!(home.read("log.txt"), "ran\n", "{phase}");
        assert!(!rows(&home).is_empty(), "{phase}");
    }
}

#[test]
fn a_hooks_question_waits_like_any_other() {
    let llm = runs(TOUCH);
    let home = Home::with(&llm);
    hooks(
        &home,
        &gate("cat >> events.txt; echo >> events.txt; echo '{\"ask\": {\"question\": \"touch the log?\"}}'"),
    );
    home.aye(&["-p", "go", "--allowed-tools", "Bash"]).run().exits(3);
    let open = home.open();
    assert!(open[0]["why"].to_string().contains("touch the log?"), "{open:#?}");
    assert_eq!(home.read("log.txt"), "");
    home.ok(&["approve", &home.question(), "--resume", "--allowed-tools", "Bash"]);
    assert_eq!(home.read("log.txt"), "ran\n");
    let events = home.read("events.txt");
    let answered: Vec<_> = events
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["answered"] == true)
        .collect();
    assert_eq!(answered, [false, true], "it is asked again with the answer, and not a third time");
    assert_eq!(rows(&home).len(), 2);
}

#[test]
fn rules_and_a_hook_that_both_ask_are_one_question() {
    let llm = runs(TOUCH);
    let home = Home::with(&llm);
    hooks(&home, &gate("echo '{\"ask\": {\"question\": \"touch the log?\"}}'"));
    home.aye(&["-p", "go"]).run().exits(3);
    let open = home.open();
    assert_eq!(open.len(), 1, "{open:#?}");
    assert!(open[0]["id"].as_str().is_some_and(|id| id.starts_with("perm_")), "{open:#?}");
    assert!(open[0]["why"].to_string().contains("touch the log?"), "{open:#?}");
    home.ok(&["approve", &home.question(), "--resume"]);
    assert_eq!(home.read("log.txt"), "ran\n");
}

#[test]
fn a_hooks_deny_spares_the_user_the_question() {
    let llm = runs(TOUCH);
    let home = Home::with(&llm);
    hooks(&home, &gate("echo '{\"deny\": \"never\"}'"));
    home.ok(&["-p", "go"]);
    assert!(home.open().is_empty());
    assert!(llm.last().result("c1").contains("never"));
}

#[test]
fn a_hook_returns_a_result_adds_messages_and_removes_a_tool() {
    let llm = runs(TOUCH);
    let home = Home::with(&llm);
    hooks(
        &home,
        &gate("echo '{\"set_result\": {\"text\": \"ran yesterday\"}, \"notice\": \"from the cache\"}'"),
    );
    home.ok(&["-p", "go", "--allowed-tools", "Bash"]).says("hook h: from the cache");
    assert_eq!((home.read("log.txt").as_str(), llm.last().result("c1").as_str()), ("", "ran yesterday"));

    let llm = runs(TOUCH);
    let home = Home::with(&llm);
    let answer = "{\"context\": [{\"content\": \"the build is red\"}, \
                  {\"content\": \"be brief\", \"target\": \"system\"}], \"exclude_tools\": [\"WebFetch\"]}";
    hooks(
        &home,
        &hook("after_tool_execute", "tool = \"Bash\"", &format!("cat > event.json; echo '{answer}'")),
    );
    home.ok(&["-p", "go", "--allowed-tools", "Bash"]);
    let (first, last) = (llm.asked()[0].clone(), llm.last());
    assert!(first.tools().contains(&"WebFetch".to_owned()));
    assert_eq!((last.system(), last.tools()), (first.system(), first.tools()));
    assert!(last.told().contains("Tools that cannot be used now: WebFetch."), "{}", last.told());
    assert!(last.told().contains("the build is red"), "{}", last.told());
    assert!(last.told().contains("be brief") && !first.told().contains("be brief"));
    let event: Value = serde_json::from_str(&home.read("event.json")).expect("JSON");
    assert_eq!(event["result"]["ok"], true, "{event:#}");
}

#[test]
fn a_hooks_stop_is_a_limit() {
    let llm = runs(TOUCH);
    let home = Home::with(&llm);
    hooks(&home, &hook("step_end", "", "echo '{\"stop\": \"that is enough\"}'"));
    home.aye(&["-p", "go", "--allowed-tools", "Bash"]).run().exits(5).says("that is enough");
    assert_eq!((home.read("log.txt").as_str(), llm.asked().len()), ("ran\n", 1));
}

#[test]
fn a_pattern_finds_its_command_anywhere_in_a_line() {
    for (line, is_found) in [
        ("git push origin main", true),
        ("cd . && git push", true),
        ("echo $(git -C . push)", true),
        ("git status", false),
        ("echo git push", false),
        ("echo $HOME", false),
    ] {
        let llm = runs(line);
        let home = Home::with(&llm);
        let deny = "echo '{\"deny\": \"no pushing\"}'";
        hooks(&home, &hook("before_tool_execute", "tool = \"Bash(git push *)\"", deny));
        home.ok(&["-p", "go", "--allowed-tools", "Bash(*)", "--on-ask", "deny"]);
        assert_eq!(
            llm.last().result("c1").contains("no pushing"),
            is_found,
            "{line}: {}",
            llm.last().result("c1")
        );
    }
}

#[test]
fn project_hooks_need_trust() {
    let llm = MockLlm::by(|chat| match chat.results().len() {
        0 => Answer::say("").bash(&format!("c{}", chat.nth), TOUCH),
        _ => Answer::say("Done."),
    });
    let home = Home::with(&llm);
    std::fs::create_dir_all(home.work().join(".git")).expect("a folder");
    home.write(
        ".aye/hooks.toml",
        "[[hooks]]\nname = \"ours\"\nphase = \"before_tool_execute\"\ncommand = [\"sh\", \".aye/check.sh\"]\n",
    );
    home.write(".aye/check.sh", "echo 'the project says no' >&2; exit 2\n");
    let out = home.ok(&["-p", "go", "--allowed-tools", "Bash"]);
    assert!(out.stderr.contains("not used") && out.stderr.contains("hooks.toml"), "{}", out.stderr);
    assert_eq!(home.read("log.txt"), "ran\n");
    assert!(home.ok(&["hooks", "list"]).stdout.contains("ours  before_tool_execute  (not used: "));

    home.ok(&["-p", "go", "--allowed-tools", "Bash", "--trust"]);
    assert!(llm.last().result(&format!("c{}", llm.asked().len() - 2)).contains("the project says no"));
    assert_eq!(home.read("log.txt"), "ran\n");
}

#[test]
fn a_cancellation_ends_a_hanging_command() {
    let llm = runs(TOUCH);
    let home = Home::with(&llm);
    hooks(&home, &hook("before_tool_execute", "timeout = \"5m\"", "echo 'begun' > begun.txt; sleep 300"));
    let running = home.aye(&["-p", "go", "--allowed-tools", "Bash"]).spawn();
    until("the hook runs", || !home.read("begun.txt").is_empty());
    running.signal(Signal::INT);
    running.end().exits(130);
    until("the command ends", || !home.works("sleep 300"));
    assert_eq!(home.read("log.txt"), "");
}

#[test]
fn an_invalid_file_is_refused_with_its_place() {
    let home = Home::new();
    for (text, says) in [
        (
            "[[hooks]]\nphase = \"before_tool\"\ncommand = [\"x\"]\n",
            "hooks.toml:2: `phase` must be one of run_start",
        ),
        ("[[hooks]]\nphase = \"run_end\"\n", "hooks.toml:1: this hook has no `command`"),
        ("[[hooks]]\nphase = \"run_end\"\ncommand = \"x\"\n", "hooks.toml:3: `command` must be a list"),
        ("[[hooks]]\nphase = \"run_end\"\ncommand = [\"./x\"]\n", "write an absolute path"),
        (
            "[[hooks]]\nphase = \"run_end\"\ncommand = [\"x\"]\ntool = \"Bash\"\n",
            "hooks.toml:4: `tool` is for",
        ),
        ("[[hooks]]\nphase = \"run_end\"\ncommand = [\"x\"]\ntimeout = \"1h\"\n", "between 100ms and 10m"),
        ("[[hooks]]\nphase = \"run_end\"\ncommand = [\"x\"]\nallow = true\n", "unknown key `allow`"),
        ("[hook]\n", "hooks.toml:1: unknown key `hook`"),
        ("[[hooks]\n", "invalid TOML"),
    ] {
        hooks(&home, text);
        home.aye(&["-p", "go"]).run().exits(2).says(says);
    }
    hooks(&home, "");
    home.config("[[hooks]]\nphase = \"run_end\"\n");
    home.aye(&["-p", "go"]).run().exits(2).says("put hooks into hooks.toml");
}

#[test]
fn hooks_are_listed_and_tested() {
    let home = Home::new();
    home.ok(&["hooks", "list"]).says("no hooks; add them");
    let line = "read event; case $event in *push*) echo '{\"deny\": \"no pushing\"}';; esac; echo looked >&2";
    hooks(&home, &hook("before_tool_execute", "tool = \"Bash(git *)\"", line));
    let list = home.ok(&["hooks", "list", "--json"]).json();
    assert_eq!(
        (&list[0]["name"], &list[0]["tool"], &list[0]["used"]),
        (&json!("h"), &json!("Bash(git *)"), &json!(true))
    );
    let try_on = |command: &str| {
        let event = json!({"call": {"name": "Bash", "arguments": {"command": command}}}).to_string();
        home.aye(&["hooks", "test", "h"]).stdin(event).run()
    };
    let out = try_on("git push").exits(0).stdout;
    assert!(
        out.contains("h at before_tool_execute: exit 0") && out.contains("answers deny: no pushing"),
        "{out}"
    );
    assert!(out.contains("stderr: looked"), "{out}");
    assert!(try_on("git status").exits(0).stdout.contains("answers nothing"));
    assert!(try_on("ls").exits(0).stdout.contains("would not run"));
    home.aye(&["hooks", "test", "nobody"]).stdin("{}").run().exits(2).says("unknown hook `nobody`");
    hooks(&home, &gate("exit 9"));
    assert!(try_on("git push").exits(1).stdout.contains("the call would not run"));
}
