#![doc = include_str!("ARCHITECTURE.md")]

pub mod state;

pub mod contract;

pub mod run;

pub mod phase;

pub mod pattern;

pub mod llm;

pub mod store;

pub mod runtime;

pub mod plugins;

pub mod tools;

pub mod config;

pub mod headless;

pub mod tui;

pub mod app;
pub mod cli;
pub mod logging;
