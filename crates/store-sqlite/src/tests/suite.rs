//! The requirements on every store, and those on the store of a program.

use std::sync::Arc;

use aye_store_suite::{Opened, OpenedProgram, TestClock, program_store_suite, store_suite};

use super::Home;

pub(crate) fn open() -> Opened {
    let home = Home::new();
    let time = Arc::new(TestClock::default());
    Opened { store: Arc::new(home.open().with_clock(time.clone())), time, keep: Box::new(home) }
}

pub(crate) fn open_program() -> OpenedProgram {
    let home = Home::new();
    OpenedProgram { store: Arc::new(home.open()), keep: Box::new(home) }
}

store_suite!(crate::tests::suite::open);
program_store_suite!(crate::tests::suite::open_program);
