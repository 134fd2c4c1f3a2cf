//! How the programs are linked.
#![expect(clippy::disallowed_methods, reason = "a build script is told things by the environment")]

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is_glibc = std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux")
        && std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "gnu");
    if is_glibc {
        // 14,000 relocations take 10 KB instead of 340; a linker that cannot do it says so and goes on.
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
