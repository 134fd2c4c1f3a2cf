//! C-38.4: a line that is read as a plain command starts one program with exactly these words, in every shell, and does
//! nothing else.

use crate::tape::Tape;
use delta_shell::read_plain_command;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestError, TestRunner};
use std::cell::Cell;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

const SHELLS: [&str; 3] = ["/bin/bash", "/bin/dash", "/bin/sh"];

const PIECES: [&str; 100] = [
    " ", " ", " ", " ", " ", "  ", "a", "b.c", "-x", "--y=z", "a/b", "git", "'a b'", "\"c d\"",
    "''", "'", "\"", "'\"'", "\"'\"", "\\", "\\\n", "\\a", "$", "$x", "${x}", "$(a)", "`a`",
    "$((1))", "$'a'", "$\"a\"", "~", "=~", ":~", "~a", "x=~", "x=1", "x+=1", "x[0]=1", "=", ":",
    ",", "%", "%1", "@", "^", "+", "-", "--", ".", "..", "/", "/tmp", "#", " #a", "*", "?", "[a]",
    "{a,b}", "{1..3}", "{", "}", "(", ")", "()", "!", "!!", "!a", ";", ";;", "&", "&&", "|", "||",
    "|&", "<", ">", ">>", ">f", "2>&1", "<<a", "<<<a", "<(a)", ">(a)", "&>f", "\n", "\r", "\t",
    "\u{b}", "\u{a0}", "\u{3000}", "\u{200b}", "\u{feff}", "é", "'é'", "time", "if", "do", "@(a)",
    "+(a)", "coproc",
];

/// The program in the place of each command: prints a line end, and its words with a zero byte after each.
const PROGRAM: &str = "#!/bin/sh\nprintf '\\n'; printf '%s\\0' \"${0##*/}\" \"$@\"\n";

fn line(tape: &mut Tape<'_>) -> String {
    let mut line = (*tape.of(&["p", "p", "p ", "p ", ""])).to_owned();
    while !tape.used_up() {
        line.push_str(tape.of(&PIECES));
    }
    line
}

/// Checks that the shell made exactly `words` of the line.
fn check_shell(shell: &str, line: &str, words: &[String], dir: &Path) -> Result<(), TestCaseError> {
    let output = Command::new(shell)
        .args(["-c", "--", line])
        .current_dir(dir)
        .env_clear()
        .env("PATH", dir)
        .env("HOME", "/home of x")
        .env("x", "value of x")
        .output()
        .unwrap();
    let mut expected = "\n".to_owned();
    for word in words {
        expected.push_str(word);
        expected.push('\0');
    }
    prop_assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{} {:?}", shell, line);
    prop_assert!(output.stderr.is_empty() && output.status.success(), "{} {:?}", shell, line);
    Ok(())
}

fn check(tape: &[u8], dir: &Path, checked: &Cell<usize>) -> Result<(), TestCaseError> {
    let line = line(&mut Tape::new(tape));
    let Some(words) = read_plain_command(&line) else { return Ok(()) };
    let name = words[0].as_str();
    // `.` is a command of the shell itself, and no program is a directory.
    if name.contains('/') || name.trim_matches('.').is_empty() {
        return Ok(());
    }
    let program = dir.join(name);
    // A copy is busy while a child that another test has just forked still has it open for writing.
    std::fs::hard_link(dir.with_file_name("program"), &program).unwrap();
    for shell in SHELLS.iter().filter(|shell| Path::new(shell).exists()) {
        check_shell(shell, &line, &words, dir)?;
    }
    std::fs::remove_file(program).unwrap();
    prop_assert_eq!(std::fs::read_dir(dir).unwrap().count(), 0, "files of {:?}", line);
    checked.set(checked.get() + 1);
    Ok(())
}

#[test]
fn c_38_4_a_plain_command_is_one_program_with_these_words_in_every_shell() {
    let temporary = tempfile::tempdir().unwrap();
    let program = temporary.path().join("program");
    std::fs::write(&program, PROGRAM).unwrap();
    std::fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    let dir = temporary.path().join("dir");
    std::fs::create_dir(&dir).unwrap();
    for missing in SHELLS.iter().filter(|shell| !Path::new(shell).exists()) {
        test_support::needs::skip_part(format!("there is no {missing}"));
    }
    let checked = Cell::new(0);
    let cases = crate::cases(750, 20_000);
    let config = ProptestConfig { cases, failure_persistence: None, ..crate::base() };
    let lines = prop::collection::vec(any::<u8>(), 0..9);
    let test = |tape: Vec<u8>| check(&tape, &dir, &checked);
    match TestRunner::new(config).run(&lines, test) {
        Ok(()) => {}
        Err(TestError::Fail(why, tape)) => panic!("{why}: {tape:?}"),
        Err(why) => panic!("{why}"),
    }
    assert!(checked.get() > 150, "only {} lines were plain commands", checked.get());
}
