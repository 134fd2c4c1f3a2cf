//! The work of others judges the wire forms: the types of the vendors' SDKs judge what delta sends, the SDKs themselves
//! what the scripted server answers, and recorded answers what delta reads.
//!
//! `.ci/run` puts the SDKs and the recordings below target/: this repository has none of them. A test whose
//! comparison is missing is skipped.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "tests may, and start real processes"
)]

mod odd_streams;
mod otlp;
mod recorded_answers;
mod sdk_clients;
mod sdk_types;

use std::path::Path;
use std::process::{Command, Stdio};
use test_support::needs;

const DELTA: &str = env!("CARGO_BIN_EXE_delta");

/// Runs a script of tests/wire with the Python that has the SDKs; `None` if there is none.
fn python(script: &str, argument: &str, stdin: Vec<u8>) -> Option<String> {
    let python = needs::python_env("sdks")?.join("python");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire").join(script);
    let mut command = Command::new(python);
    command.arg("-B").arg(script).arg(argument).env_clear().env("PATH", "/usr/bin:/bin");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || {
        // A script that ends early has its own error.
        let _ = std::io::Write::write_all(&mut input, &stdin);
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}
