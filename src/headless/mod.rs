//! The front end without a terminal.
