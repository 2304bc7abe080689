//! The pure run machine: what has to happen next, as data.
