//! The steps of the action for GitHub, run by hand: a question becomes a comment, an answer in a comment resumes the run.

use std::path::Path;

use crate::support::home::{Home, Out, with_program};
use crate::support::llm::{Answer, Chat, MockLlm};

/// One job: the script, with a `gh` that keeps what it would post.
fn job(home: &Home, variables: &[(&str, &str)]) -> Out {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/github/run.sh");
    let gh = with_program(home, "gh", "cat \"$5\" > \"$POSTED\"");
    let own = Path::new(env!("CARGO_BIN_EXE_aye")).parent().expect("a folder").to_string_lossy().into_owned();
    let mut job = home
        .program("bash", &[&script.to_string_lossy()])
        .env("PATH", &format!("{own}:{gh}"))
        .env("POSTED", &posted(home))
        .env("GITHUB_OUTPUT", &home.root().join("output").to_string_lossy())
        .env("AYE_NUMBER", "7");
    for (name, value) in variables {
        job = job.env(name, value);
    }
    job.run()
}

fn posted(home: &Home) -> String {
    home.root().join("comment.md").to_string_lossy().into_owned()
}

#[test]
fn a_comment_answers_the_question_of_an_earlier_job() {
    let llm = MockLlm::by(|chat: &Chat| match chat.results().as_slice() {
        [] => Answer::new().bash("c1", "touch made # ``` @everyone"),
        [result, ..] if result.1.contains("not this way") => Answer::say("Understood."),
        _ => Answer::say("It is made."),
    });
    let home = Home::with(&llm);
    job(&home, &[("AYE_PROMPT", "make it; $(touch injected)"), ("AYE_ARGS", "--max-turns\n9\n")]).exits(0);
    let comment = std::fs::read_to_string(posted(&home)).expect("a comment");
    let id = home.question();
    assert!(comment.contains("````\ntouch made # ``` @everyone\n````"), "nothing ends the block: {comment}");
    assert!(comment.contains(&format!("`/aye approve {id}` or `/aye deny {id} REASON`")), "{comment}");
    assert!(!home.work().join("injected").exists());

    for other in
        [format!("/aye approve {id}; touch injected"), "approve it".to_owned(), "/aye approve -h".to_owned()]
    {
        job(&home, &[("AYE_COMMENT", &other)]);
        assert_eq!(home.open().len(), 1, "{other} is no answer");
    }
    job(&home, &[("AYE_COMMENT", &format!("/aye deny {id} not this way,\nplease"))]).exits(0);
    let comment = std::fs::read_to_string(posted(&home)).expect("a comment");
    assert!(comment.starts_with("Understood.\n"), "{comment}");
    assert!(!home.work().join("made").exists() && !home.work().join("injected").exists());
}
