//! The program in a terminal, against a server on loopback.

use crate::support::home::Home;
use crate::support::llm::{Answer, MockLlm};
use crate::support::pty::Pty;

const TOUCH: &str = "echo ran >> log.txt";

#[test]
fn a_conversation_with_a_card() {
    let llm = MockLlm::answers([Answer::say("I will.").bash("c1", TOUCH), Answer::say("It is **done**.")]);
    let home = Home::with(&llm);
    let mut tty = Pty::start(&home, &[], 100, 30);
    tty.ready();
    tty.say("do it");
    tty.card(TOUCH);
    assert_eq!(home.read("log.txt"), "");
    tty.send("y");
    tty.shows("It is done.");
    assert_eq!(home.read("log.txt"), "ran\n");
    tty.quit();
    tty.is_restored();
}
