//! Allow, ask, deny.
