//! Code that the tests of delta share.
#![allow(clippy::disallowed_methods, reason = "tests start real processes")]

pub mod alone;
pub mod cpu_time;
pub mod effort;
pub mod file_server;
pub mod needs;
pub mod normal;
pub mod prompt_cache;
pub mod pty;
pub mod running;
pub mod sandbox;
pub mod server;
pub mod wait;

/// The path of a program that another package of the workspace builds, in the directory of the program under test.
/// `cargo test --workspace` builds all of them.
pub fn sibling(program: &str) -> String {
    let test = std::env::current_exe().expect("the path of this test");
    let dir = test.parent().and_then(std::path::Path::parent).expect("target/PROFILE/deps/TEST");
    let path = dir.join(program);
    assert!(path.is_file(), "{} is missing: cargo build --workspace", path.display());
    path.to_str().expect("a path in UTF-8").to_owned()
}

/// The path of a link with the name `delta-sessions-pty` to `delta-sessions`, next to it. Cargo makes no links.
pub fn pty_link() -> String {
    let link =
        std::path::PathBuf::from(sibling("delta-sessions")).with_file_name("delta-sessions-pty");
    // Other tests may use the link now: it must always be there.
    let unfinished = link.with_extension(std::process::id().to_string());
    std::os::unix::fs::symlink("delta-sessions", &unfinished).expect("a link");
    std::fs::rename(unfinished, &link).expect("the link gets its name");
    link.to_str().expect("a path in UTF-8").to_owned()
}
