//! C-2.6: wherever a placeholder stands in a `shell:` template, the value arrives as it is, byte for byte.
//!
//! A case is one script: a handful of constructs, nested into each other, with one to twelve parameters. Each construct
//! knows what it makes of a value, so that the output that is expected is built together with the template.

use crate::maker::{self, Script};
use crate::shells;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestError};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Values that tear badly quoted scripts apart.
fn value() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("$(touch PWNED)"),
        Just("`touch PWNED`"),
        Just(";touch PWNED;"),
        Just("\ntouch PWNED\n"),
        Just("\n"),
        Just("*"),
        Just("?"),
        Just("[a]"),
        Just("f*"),
        Just("'"),
        Just("\""),
        Just("\\"),
        Just("\\\\"),
        Just("${x}"),
        Just("$1"),
        Just("$@"),
        Just("${p0}"),
        Just("!"),
        Just("#"),
        Just(" #"),
        Just("{a,b}"),
        Just("="),
        Just("v=1"),
        Just("~"),
        Just("-n"),
        Just("--"),
        Just("-"),
        Just(" "),
        Just("\t"),
        Just("\r\n"),
        Just("a"),
        Just("\nE\n"),
        Just("\u{81}\u{82}\u{83}\u{84}\u{85}\u{86}\u{87}\u{88}"),
        Just("ā\u{102}\u{103}\u{104}"),
        Just("é😀"),
        Just("\u{1}"),
        Just("\u{7f}"),
        Just("\u{1b}[0m"),
        Just("|"),
        Just("&"),
        Just(">PWNED"),
        Just("<"),
        Just("("),
        Just(")"),
        Just("}"),
        Just("a[$(touch PWNED)]"),
        Just("%s%n"),
        Just("\u{2028}"),
        Just("esac"),
        Just("done"),
    ];
    prop_oneof![
        1 => Just(String::new()),
        12 => prop::collection::vec(piece, 1..5).prop_map(|pieces| pieces.concat()),
        4 => "\\PC{0,12}",
        1 => (1000..60_000usize).prop_map(|length| "x*'$(touch PWNED)".repeat(length / 17)),
    ]
}

fn check(
    tape: &[u8],
    values: &[String],
    utf8: bool,
    directories: &[PathBuf; 2],
) -> Result<(), TestCaseError> {
    let Script { template, output, files } = maker::script(tape, values);
    let tool = match shells::tool("shell", &template) {
        Ok(tool) => tool,
        // Some combinations of backquotes, quotes and braces are where bash and dash part ways; they are refused.
        Err(why) if why.contains("differently") => {
            return Err(TestCaseError::reject("shells disagree"));
        }
        Err(why) => return Err(TestCaseError::fail(format!("{why}\n{template}"))),
    };
    let invocation = shells::invocation(&tool, values);
    for directory in directories {
        std::fs::remove_dir_all(directory).unwrap();
        std::fs::create_dir(directory).unwrap();
    }
    let locale = if utf8 { "C.UTF-8" } else { "C" };
    let outputs =
        shells::run(&invocation.argv, directories, [("PATH", "/usr/bin:/bin"), ("LC_ALL", locale)]);
    for ((shell, found), directory) in shells::SHELLS.iter().zip(outputs).zip(directories) {
        let errors = String::from_utf8_lossy(&found.stderr).into_owned();
        let stdout = String::from_utf8_lossy(&found.stdout).into_owned();
        let same = found.stdout == output.as_bytes();
        prop_assert!(
            same,
            "{shell} {locale}\n{template}\n{}\n{errors}",
            difference(&stdout, &output)
        );
        prop_assert_eq!(errors, "", "{}\n{}", shell, template);
        let mut written = BTreeMap::new();
        for entry in std::fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            written.insert(name, std::fs::read_to_string(entry.path()).unwrap());
        }
        let (found, expected) = (format!("{written:?}"), format!("{files:?}"));
        prop_assert!(written == files, "{shell}\n{template}\n{}", difference(&found, &expected));
    }
    Ok(())
}

/// The first place where two texts differ.
fn difference(found: &str, expected: &str) -> String {
    let same = found.chars().zip(expected.chars()).take_while(|(a, b)| a == b).count();
    let part =
        |text: &str| text.chars().skip(same.saturating_sub(40)).take(120).collect::<String>();
    format!("found    {:?}\nexpected {:?}", part(found), part(expected))
}

/// Shows the property for `cases` scripts.
fn hold(cases: u32, length: usize) {
    let parent = tempfile::tempdir().unwrap();
    let directories = shells::directories(parent.path());
    let max_global_rejects = cases / 10;
    let config = ProptestConfig {
        cases,
        max_global_rejects,
        failure_persistence: None,
        max_shrink_iters: 4000,
        ..crate::base()
    };
    let strategy = (
        prop::collection::vec(any::<u8>(), 0..length),
        prop::collection::vec(value(), 1..=12),
        any::<bool>(),
    );
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let result =
        runner.run(&strategy, |(tape, values, utf8)| check(&tape, &values, utf8, &directories));
    match result {
        Ok(()) => {}
        Err(TestError::Fail(why, (_, values, _))) => {
            panic!("{why}\nvalues {}", difference(&format!("{values:?}"), ""))
        }
        Err(why) => panic!("{why}"),
    }
}

#[test]
fn c_2_6_a_value_arrives_byte_for_byte_in_small_scripts() {
    hold(crate::cases(200, 5000), 30);
}

#[test]
fn c_2_6_a_value_arrives_byte_for_byte_in_large_scripts() {
    hold(crate::cases(200, 5000), 120);
}
