//! The requirements on every store, and those on the store of a program.

use std::sync::Arc;

use aye_store_suite::{Opened, OpenedProgram, program_store_suite, store_suite};

use super::Home;

pub(crate) fn open() -> Opened {
    let home = Home::new();
    Opened { store: Arc::new(home.open()), keep: Box::new(home) }
}

pub(crate) fn open_program() -> OpenedProgram {
    let home = Home::new();
    OpenedProgram { store: Arc::new(home.open()), keep: Box::new(home) }
}

store_suite!(crate::tests::suite::open);
program_store_suite!(crate::tests::suite::open_program);
