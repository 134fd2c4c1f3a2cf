//! C-2.5: `exec:` words are the words that a real shell makes of the same text, and values never change their number.

use crate::shells;
use crate::tape::Tape;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestError, TestRunner};

const TOKENS: [&str; 30] = [
    " ", "  ", "\t", "a", "b", "-x", "'", "'", "\"", "\"", "\\", "\\\\", "\\\n", "\\'", "\\\"",
    "\\ ", "''", "\"\"", "*", "?", "[a]", "é", "#", "{", "}", "=", "\\a", "\\$", "|", "\r",
];

fn text(tape: &mut Tape<'_>) -> String {
    // The shell takes a `~` and a comment for more than text; the first word is the program.
    let mut text = "p ".to_owned();
    while !tape.used_up() {
        text.push_str(tape.of(&TOKENS));
    }
    text
}

/// What `sh` makes of the words behind the first; `None` when it does not take them.
fn shell_words(shell: &str, text: &str) -> Option<Vec<String>> {
    use std::os::unix::process::CommandExt;
    let script = format!("set -f; p() {{ printf '%s\\0' \"$@\"; }}; {text}");
    let output = std::process::Command::new(shell)
        .arg0("sh")
        .args(["-c", &script])
        .env_clear()
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut words: Vec<String> = text.split('\0').map(str::to_owned).collect();
    words.pop();
    output.stderr.is_empty().then_some(words)
}

fn check(tape: &[u8]) -> Result<(), TestCaseError> {
    let template = text(&mut Tape::new(tape));
    // `p` without arguments prints one empty one; a comment is text to exec: and none to a shell, as is a brace.
    let comment = template.split([' ', '\t', '\n']).any(|word| word.starts_with('#'));
    if comment || template.trim() == "p" {
        return Ok(());
    }
    let Ok(tool) = shells::tool("exec", &template) else { return Ok(()) };
    let argv = shells::invocation(&tool, &[]).argv;
    for shell in shells::SHELLS {
        let Some(mut words) = shell_words(shell, &template) else {
            return Err(TestCaseError::fail(format!(
                "{shell} does not take {template:?}, which gave {argv:?}"
            )));
        };
        if argv.len() == 1 && words == [""] {
            words.clear();
        }
        prop_assert_eq!(&argv[1..], &words[..], "{} {:?}", shell, template);
    }
    Ok(())
}

fn run<S: Strategy>(
    cases: u32,
    strategy: &S,
    test: impl Fn(S::Value) -> Result<(), TestCaseError>,
) {
    let mut runner =
        TestRunner::new(ProptestConfig { cases, failure_persistence: None, ..crate::base() });
    match runner.run(strategy, test) {
        Ok(()) => {}
        Err(TestError::Fail(why, _)) => panic!("{why}"),
        Err(why) => panic!("{why}"),
    }
}

#[test]
fn c_2_5_static_words_are_the_words_of_a_shell() {
    run(crate::cases(300, 1500), &prop::collection::vec(any::<u8>(), 0..14), |tape| check(&tape));
}

#[test]
fn c_2_5_a_value_is_one_word_or_part_of_one() {
    let pieces = [
        ("${p0}", 1),
        ("\"${p1}\"", 1),
        ("'${p2}'", 1),
        ("--f=${p0}", 1),
        ("\"${p0}:${p1}\"", 1),
        ("a b", 2),
        ("'c d'${p2}", 1),
        ("\"\"", 1),
    ];
    let values =
        prop::collection::vec("[ \\t\\n*?$`'\"\\\\;|&<>(){}#~!=a-c\u{81}-\u{88}é-]{0,12}", 3);
    let strategy = (prop::collection::vec(0..pieces.len(), 1..6), values);
    run(crate::cases(200, 1000), &strategy, |(chosen, values)| {
        let template = chosen
            .iter()
            .fold("p".to_owned(), |text, piece| format!("{text} {}", pieces[*piece].0));
        let tool = shells::tool("exec", &template).map_err(TestCaseError::fail)?;
        let mut expected = vec!["p".to_owned()];
        for piece in &chosen {
            expected.extend(match *piece {
                0..=2 => vec![values[*piece].clone()],
                3 => vec![format!("--f={}", values[0])],
                4 => vec![format!("{}:{}", values[0], values[1])],
                5 => vec!["a".to_owned(), "b".to_owned()],
                6 => vec![format!("c d{}", values[2])],
                _ => vec![String::new()],
            });
        }
        prop_assert_eq!(shells::invocation(&tool, &values).argv, expected, "{}", template);
        Ok(())
    });
}
