//! The one integration binary: the crate and the program as a user meets them.

mod support;
mod wire;
