//! `AYE_PORTABLE=1` builds the program so that it uses nothing but POSIX, to test here what other systems run.

#![expect(clippy::disallowed_methods, reason = "a build gets its choices from the environment")]

fn main() {
    println!("cargo::rustc-check-cfg=cfg(portable)");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=AYE_PORTABLE");
    if std::env::var_os("AYE_PORTABLE").is_some_and(|value| value == "1") {
        println!("cargo::rustc-cfg=portable");
    }
}
