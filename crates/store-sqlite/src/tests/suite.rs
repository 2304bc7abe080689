//! The requirements on every store.

use std::sync::Arc;

use aye_store_suite::{Opened, store_suite};

use super::Home;

pub(crate) fn open() -> Opened {
    let home = Home::new();
    Opened { store: Arc::new(home.open()), keep: Box::new(home) }
}

store_suite!(crate::tests::suite::open);
