//! How the program is linked.
#![expect(clippy::disallowed_methods, reason = "cargo passes the target in the environment")]

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=DELTA_BUILD_OLD_GLIBC");
    let is_glibc = env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux")
        && env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "gnu");
    // A glibc older than 2.36 does not understand packed relocations.
    if is_glibc && env::var_os("DELTA_BUILD_OLD_GLIBC").is_none() {
        // 14,000 relocations take 10 KB instead of 340; a linker that cannot do this only warns.
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
