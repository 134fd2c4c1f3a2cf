//! `delta-sweep` started by hand. With the same name as the tests of delta's command line: `cargo test --test cli` builds the
//! program for both.

use test_support::sandbox::Sandbox;

/// The built program.
const SWEEP: &str = env!("CARGO_BIN_EXE_delta-sweep");

#[test]
fn c_11_14_the_program_has_the_help_of_delta_sweep() {
    let sandbox = Sandbox::new(SWEEP);
    let version = concat!("delta-sweep ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(sandbox.delta(["--version"]).output().expect_code(0).stdout, version);
    let build = sandbox.delta(["--version", "--json"]).output().expect_code(0).json();
    assert_eq!(
        (&build["name"], &build["version"]),
        (&"delta-sweep".into(), &env!("CARGO_PKG_VERSION").into())
    );
    for line in [&["plan", "--help"][..], &["help", "plan"]] {
        let help = sandbox.delta(line.iter().copied()).output().expect_code(0).stdout;
        assert!(help.contains("\nUsage: delta sweep plan [OPTIONS] [FILE]\n"), "{help}");
    }
    let unknown = sandbox.delta(["show", "x"]).output().expect_code(2).stderr;
    assert!(unknown.contains("tip: use `delta show ID -w SWEEP`\n"), "{unknown}");
}
