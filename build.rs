//! How the programs are linked.
#![expect(clippy::disallowed_methods, reason = "a build script is told things by the environment")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is_glibc = env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux")
        && env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "gnu");
    if is_glibc {
        // 14,000 relocations take 10 KB instead of 340; a linker that cannot do it says so and goes on.
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
        if env::var("HOST") == env::var("TARGET") {
            link_statically();
        }
    }
}

/// What a library costs at the start of a program is the larger part of what a small program costs at all. So the one that
/// unwinds a stack is a part of each program, and `delta-sessions`, of which every command in a session is a process,
/// needs no library. `delta` does: only as a library glibc can resolve names in every way that it knows.
///
/// `crt-static` would be for all programs or for none; so what is changed is where the libraries are looked for.
fn link_statically() {
    let Some(dir) = env::var_os("OUT_DIR").map(PathBuf::from) else { return };
    let unwinder = ("libgcc_s.so", "GROUP(-l:libgcc_eh.a -l:libgcc.a)\n");
    let have = |files: &[&str]| files.iter().all(|file| c_compiler_has(file));
    if have(&["libgcc_eh.a"]) && write(&dir.join("unwinder"), &[unwinder]).is_ok() {
        println!("cargo::rustc-link-arg-bins=-L{}", dir.join("unwinder").display());
    }
    let all = [
        ("libc.so", "GROUP(-l:libc.a -l:libgcc_eh.a -l:libgcc.a)\n"),
        ("libm.so", "INPUT(-l:libm.a)\n"),
        unwinder,
    ];
    if have(&["rcrt1.o", "libc.a", "libm.a", "libgcc_eh.a"])
        && write(&dir.join("all"), &all).is_ok()
    {
        println!("cargo::rustc-link-arg-bin=delta-sessions=-L{}", dir.join("all").display());
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

/// What the linker finds for the names of shared libraries: the static ones.
fn write(dir: &Path, libraries: &[(&str, &str)]) -> std::io::Result<()> {
    fs::create_dir_all(dir)?;
    libraries.iter().try_for_each(|(name, text)| fs::write(dir.join(name), text))
}
