//! Rules granted at a question: number of uses, expiry, pattern, and revocation.

use serde_json::Value;

use crate::support::home::Home;
use crate::support::llm::{Answer, Chat, MockLlm};
use crate::support::pty::Pty;

const DOWN: &str = "\x1b[B";
const RIGHT: &str = "\x1b[C";
const LEFT: &str = "\x1b[D";

/// A model that runs these commands, one list per answer, and then says "All done.".
fn runs(turns: &'static [&'static [&'static str]]) -> MockLlm {
    MockLlm::by(move |chat: &Chat| {
        let mut done = chat.results().len();
        for turn in turns {
            if done == 0 {
                let first = chat.results().len();
                let calls = turn.iter().enumerate();
                return calls.fold(Answer::new(), |answer, (at, command)| {
                    answer.bash(&format!("c{}", first + at), command)
                });
            }
            done -= turn.len().min(done);
        }
        Answer::say("All done.")
    })
}

fn open(llm: &MockLlm) -> (Home, Pty) {
    let home = Home::with(llm);
    let tty = Pty::start(&home, &[], 100, 40);
    tty.ready();
    (home, tty)
}

fn grants(home: &Home) -> Vec<Value> {
    home.ok(&["grants", "list", "--all", "--json"]).json().as_array().expect("a list").clone()
}

#[test]
fn a_grant_for_one_call_allows_one_of_two() {
    let llm = runs(&[&["touch one"], &["touch two", "touch three"]]);
    let (home, mut tty) = open(&llm);
    tty.say("do it");
    tty.card("touch one");
    tty.send("a");
    tty.shows("Always allow exactly touch one in ");
    tty.send(DOWN);
    tty.send(LEFT);
    tty.send("ttt");
    tty.shows("Always allow any touch … in this conversation, for the next call");
    tty.send("\r");
    // The user's approval was for the first call; the grant's one use is for one of the next two.
    tty.card("touch three");
    tty.shows("your grant Bash(touch *) for this conversation is used up: it was for 1 call");
    assert!(home.work().join("two").exists() && !home.work().join("three").exists());
    let [grant] = &grants(&home)[..] else { panic!("one grant") };
    assert_eq!(
        (&grant["uses"], &grant["max_uses"], &grant["state"]),
        (&1.into(), &1.into(), &"used up".into())
    );
    tty.send("y");
    tty.shows("All done.");
    assert!(home.work().join("three").exists());
    assert_eq!(grants(&home)[0]["uses"], 1);
    // Ended grants are listed only on request.
    assert_eq!(home.ok(&["grants", "list"]).stdout, "");
    tty.quit();
}

#[test]
fn a_pattern_is_edited_and_shows_past_denials() {
    let llm = runs(&[&["mkdir -p one"], &["mkdir two"], &["mkdir three"]]);
    let (home, mut tty) = open(&llm);
    tty.say("do it");
    tty.card("mkdir -p one");
    tty.send("n\r");
    tty.card("mkdir two");
    tty.send("ae");
    tty.shows("pattern: Bash(");
    // Too broad, which is shown while typing.
    tty.send("\x15Bash(*)");
    tty.shows("Bash(*) cannot be granted here: it would allow any call of Bash");
    tty.send("\r\r");
    tty.shows("this pattern cannot be granted; e edits it");
    assert!(grants(&home).is_empty());
    tty.send("e\x15Bash(rmdir *)");
    tty.shows("Bash(rmdir *) cannot be granted here: it does not match this call");
    tty.send("\x15Bash(mkdir *)");
    tty.shows("would have matched 1 of 1 earlier call in this project:");
    tty.shows("mkdir -p one, just now, denied by you");
    // Narrower: the denied call is excluded.
    tty.send("\x15Bash(mkdir t*)");
    tty.shows("would have matched no earlier call in this project");
    tty.send("\r");
    tty.shows("Always allow calls that match Bash(mkdir t*) in ");
    tty.send("\r");
    tty.shows("All done.");
    assert!(home.work().join("three").exists() && !home.work().join("one").exists());
    let [grant] = &grants(&home)[..] else { panic!("one grant") };
    assert_eq!((&grant["pattern"], &grant["uses"]), (&"Bash(mkdir t*)".into(), &1.into()));
    tty.quit();
}

#[test]
fn a_grant_revoked_elsewhere_asks_again() {
    let llm = MockLlm::by(|chat: &Chat| {
        let words = chat.messages().iter().filter(|message| message["role"] == "user").count();
        if chat.results().len() < words {
            Answer::new().bash(&format!("c{words}"), "touch made")
        } else {
            Answer::say(&format!("Done {words}."))
        }
    });
    let (home, mut tty) = open(&llm);
    tty.say("first");
    tty.card("touch made");
    tty.send("a");
    tty.shows("Always allow exactly ");
    tty.send(&format!("{DOWN}tt"));
    tty.shows("until midnight");
    tty.send("\r");
    tty.shows("Done 1.");
    tty.say("second");
    tty.shows("Done 2.");
    let [grant] = &grants(&home)[..] else { panic!("one grant") };
    let id = grant["id"].as_str().expect("an id");
    assert!(grant["expires_at"].as_u64().expect("an end") > grant["created_at"].as_u64().expect("a start"));
    let told = home.ok(&["grants", "show", id]).stdout;
    for said in
        ["Bash(touch *)", "project /", "in force", "until 2", "by tester (tui", "uses      1", "perm_"]
    {
        assert!(told.contains(said), "{said}\n{told}");
    }
    home.ok(&["grants", "revoke", id]).says("revoked Bash(touch *)");
    home.ok(&["grants", "revoke", id]).says("was already revoked");
    tty.say("third");
    tty.card("touch made");
    tty.shows("your grant Bash(touch *) for this project was revoked just now");
    tty.send("y");
    tty.shows("Done 3.");
    tty.quit();
}

#[test]
fn a_grant_is_revoked_in_the_list() {
    let llm = runs(&[&["touch one"]]);
    let (home, mut tty) = open(&llm);
    tty.say("do it");
    tty.card("touch one");
    tty.send("a");
    tty.shows("Always allow exactly ");
    tty.send(&format!("{DOWN}{RIGHT}"));
    tty.shows("in all your projects");
    tty.send("\r");
    tty.shows("All done.");
    tty.say("/grants");
    tty.shows("all projects, no expiry, used 0");
    tty.send("\r");
    tty.shows("by tester (tui");
    tty.send(&format!("{DOWN}\r"));
    tty.shows("no, keep it");
    tty.send(&format!("{DOWN}\r"));
    tty.shows("revoked Bash(touch *)");
    assert_eq!(grants(&home)[0]["state"], "revoked");
    tty.quit();
}

#[test]
fn unknown_ids_are_refused_with_how_to_list() {
    let home = Home::new();
    for args in [&["grants", "show", "nope"][..], &["grants", "revoke", "nope"], &["grants", "show", ""]] {
        home.aye(args).run().exits(2).says("`aye grants list --all` shows all");
    }
    assert_eq!(home.ok(&["grants", "list", "--json"]).json(), Value::Array(Vec::new()));
}

#[test]
fn a_rule_is_granted_with_an_answer_from_the_shell() {
    let llm = runs(&[&["touch one"], &["touch two"], &["touch three"]]);
    let home = Home::with(&llm);
    home.aye(&["-p", "do it"]).run().exits(3);
    let id = home.question();
    assert!(home.ok(&["approvals", "show", &id]).stdout.contains("--grant 2: Bash(touch *)"));
    for (args, said) in [
        (&["--grant", "Bash"][..], "Bash cannot be granted: it would allow any call of Bash"),
        (&["--grant", "Bash(mkdir *)"], "it does not match this call"),
        (&["--grant", "3"], "unknown proposal 3; `aye approvals show` lists 2"),
        (&["--grant", "2", "--for", "soon"], "--for: invalid expiry `soon`"),
        (&["--grant", "2", "--for", "2020-01-01"], "would already have expired"),
        (&["--scope", "all"], "--grant"),
    ] {
        let args = [&["approvals", "approve", &id], args].concat();
        home.aye(&args).run().exits(2).says(said);
    }
    assert!(grants(&home).is_empty() && home.open().len() == 1, "nothing changed");
    let args = ["approvals", "approve", &id, "--grant", "2", "--scope", "project", "--for", "1use"];
    home.ok(&args).says("granted: Bash(touch *) for project /");
    // The answer is for the first call, the one use for the second; the third asks.
    home.aye(&["-c", "-p"]).run().exits(3);
    assert!(home.work().join("one").exists() && home.work().join("two").exists());
    assert!(!home.work().join("three").exists());
    let [grant] = &grants(&home)[..] else { panic!("one grant") };
    assert_eq!((&grant["state"], &grant["actor"]["channel"]), (&"used up".into(), &"cli".into()));
}
