//! Patterns over tool calls, and what a shell command line consists of.
