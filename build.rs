//! Packs the relative relocations of the program, where the C library of this machine can unpack them: some 50,000 of
//! them are 1.1 MiB otherwise, which every start reads.

use std::env;
use std::process::Command;

/// The first glibc version that unpacks relative relocations. A program that needs them declares it, so an
/// older glibc does not start the program.
const SINCE: (u32, u32) = (2, 36);

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let var = |name| env::var(name).unwrap_or_default();
    // A cross build cannot know the target machine's glibc.
    let is_native = var("HOST") == var("TARGET");
    let is_gnu = var("CARGO_CFG_TARGET_OS") == "linux" && var("CARGO_CFG_TARGET_ENV") == "gnu";
    if is_native && is_gnu && glibc().is_some_and(|version| version >= SINCE) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// The version of this machine's glibc, from a line such as `glibc 2.36`.
fn glibc() -> Option<(u32, u32)> {
    let said = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let said = String::from_utf8(said.stdout).ok()?;
    let (major, minor) = said.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
}
