//! How the programs are linked.
#![expect(clippy::disallowed_methods, reason = "a build script is told things by the environment")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// What the C compiler has to have for a program that needs no library when it starts.
const STATIC: [&str; 4] = ["rcrt1.o", "libc.a", "libm.a", "libgcc_eh.a"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is_glibc = env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux")
        && env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "gnu");
    if is_glibc {
        // 14,000 relocations take 10 KB instead of 340; a linker that cannot do it says so and goes on.
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
        link_sessions_statically();
    }
}

/// A command in a session is a process of `delta-sessions`, and to load two libraries is half of what such a process costs.
/// It needs nothing that glibc can only do as a library. `delta` does (it resolves names), and `crt-static` is for both or
/// for none; so only where the libraries are looked for is changed, and for this program alone.
fn link_sessions_statically() {
    let is_native = env::var("HOST") == env::var("TARGET");
    if !is_native || !STATIC.iter().all(|file| c_compiler_has(file)) {
        return;
    }
    let Some(dir) = env::var_os("OUT_DIR").map(|dir| PathBuf::from(dir).join("static")) else {
        return;
    };
    if write_libraries(&dir).is_ok() {
        println!("cargo::rustc-link-arg-bin=delta-sessions=-L{}", dir.display());
        println!("cargo::rustc-link-arg-bin=delta-sessions=-static-pie");
    }
}

fn c_compiler_has(file: &str) -> bool {
    let compiler = env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into());
    let asked = Command::new(compiler).arg(format!("-print-file-name={file}")).output();
    // A file that it does not have is answered with its bare name.
    asked
        .is_ok_and(|answer| Path::new(String::from_utf8_lossy(&answer.stdout).trim()).is_absolute())
}

/// What the linker finds for the names of the shared libraries: the static ones.
fn write_libraries(dir: &Path) -> std::io::Result<()> {
    fs::create_dir_all(dir)?;
    fs::write(dir.join("libc.so"), "GROUP(-l:libc.a -l:libgcc_eh.a -l:libgcc.a)\n")?;
    fs::write(dir.join("libm.so"), "INPUT(-l:libm.a)\n")?;
    fs::write(dir.join("libgcc_s.so"), "INPUT(-l:libgcc_eh.a)\n")
}
