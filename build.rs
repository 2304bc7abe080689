//! Packs the relative relocations of the program on request: some 50,000 of them are 1.1 MiB otherwise, which every start
//! reads. A program that is packed declares it, and a glibc before 2.36 does not start it, so nothing that is handed on is
//! packed. Ask for it with `AYE_PACK_RELOCATIONS=1`, for a program that stays on this machine.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=AYE_PACK_RELOCATIONS");
    let var = |name| env::var(name).unwrap_or_default();
    let is_gnu = var("CARGO_CFG_TARGET_OS") == "linux" && var("CARGO_CFG_TARGET_ENV") == "gnu";
    if is_gnu && var("AYE_PACK_RELOCATIONS") == "1" {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
