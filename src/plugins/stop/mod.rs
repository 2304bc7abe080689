//! Stop policies.
