//! Configuration of plugins in the settings, agents as files, and what is said about them.

use crate::support::home::Home;
use crate::support::llm::{Answer, MockLlm};

fn settings(llm: &MockLlm, more: &str) -> String {
    format!(
        "model = \"mock/m1\"\n[providers.mock]\nadapter = \"openai\"\nbase_url = \"{}\"\n\
         api_key_env = \"MOCK_KEY\"\n[retry]\nmax_retries = 0\n{more}",
        llm.url
    )
}

#[test]
fn a_section_of_the_settings_reaches_its_plugin() {
    let llm = MockLlm::answers([Answer::say("I stop when I say BANANA.").bash("c1", "true")]);
    let home = Home::with(&llm);
    home.config(&settings(
        &llm,
        "[sections.stop]\nconditions = [{type = \"content_match\", pattern = \"BANANA\"}]\n",
    ));
    let out = home.aye(&["-p", "hi", "--output-format", "json"]).run();
    assert_eq!(out.json()["termination"]["code"], "content_match", "{}", out.stdout);
}

#[test]
fn a_wrong_section_refuses_the_start_with_its_line() {
    let llm = MockLlm::answers([Answer::say("never")]);
    let home = Home::with(&llm);
    home.config(&settings(
        &llm,
        "[sections.stop]\nconditions = [\n  {type = \"loop_detection\", window = 3},\n  {type = \"content_match\", pattern = \"\"},\n]\n",
    ));
    let out = home.aye(&["-p", "hi"]).run().exits(2);
    assert!(out.stderr.contains("config.toml:11:3: "), "{}", out.stderr);
    assert!(out.stderr.contains("`pattern` is empty"), "{}", out.stderr);
    assert_eq!(llm.asked().len(), 0);
}

#[test]
fn a_section_that_nobody_reads_is_a_warning_with_its_line() {
    let llm = MockLlm::answers([Answer::say("Hello.")]);
    let home = Home::with(&llm);
    home.config(&settings(&llm, "[sections.stopp]\nx = 1\n"));
    let out = home.ok(&["-p", "hi"]);
    assert_eq!(out.stdout, "Hello.\n");
    assert!(out.stderr.contains("config.toml:8:11: no plugin reads the section `stopp`"), "{}", out.stderr);
}
