//! C-2.6 attacked: templates of random tokens. Whatever the engine takes, no value may be run, split or globbed, and no
//! placeholder may reach a command as the text that the engine put in its place.
//!
//! The commands are functions that write their arguments, or their standard input, to a log. Of every value each
//! record must hold all or nothing.

use crate::shells;
use crate::tape::Tape;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestError, TestRunner};
use std::cell::Cell;
use std::path::{Path, PathBuf};

/// Defines `c`, which logs its arguments, and `h`, which logs its input.
const PRELUDE: &str = "c() { for n in \"$@\"; do printf '%s\\0' \"$n\" >>\"$L\"; done; }\n\
    h() ( r=; while IFS= read -r l; do r=\"$r$l \"; done; printf '%s\\0' \"$r$l\" >>\"$L\"; c \"$@\" )\n";

// No line breaks: bash writes by lines, and the commands of a pipeline write to one log.
const VALUES: [&str; 4] = ["A B  C", "*", "D $(>PWNED)`>PWNED`;>PWNED;'\"E\\", "Z*"];

/// What opens something, and what closes it.
const PAIRS: [(&str, &str); 34] = [
    ("\"", "\""),
    ("'", "'"),
    ("$(", ")"),
    ("\"$(", ")\""),
    ("`", "`"),
    ("\"`", "`\""),
    ("\\`", "\\`"),
    ("${u:-", "}"),
    ("\"${u:-", "}\""),
    ("${e:+", "}"),
    ("${u#", "}"),
    ("\"${e%%", "}\""),
    ("\\\"", "\\\""),
    ("(", ")"),
    ("{ ", "; }"),
    ("h <<E\n", "\nE\n"),
    ("h <<-E\n\t", "\n\tE\n"),
    ("h <<'E'\n", "\nE\n"),
    ("h <<E; c ", "\n x\nE\n"),
    ("case x in x) ", ";; esac"),
    ("case x in (y|x) ", " esac"),
    ("case x in ", " ) c x;; esac"),
    ("case ", " in x) c x;; esac"),
    ("if c; then ", "; fi"),
    ("if c x", "; then c; else c; fi"),
    ("for i in ", "; do c x; done"),
    ("for i do ", "; done"),
    ("while false; do ", "; done"),
    ("g() { ", "; }"),
    ("$((", "))"),
    ("${u/", "}"),
    ("# ", "\n"),
    ("! ", ""),
    ("time ", ""),
];

const TOKENS: [&str; 61] = [
    " ",
    "\n",
    "; ",
    "c ",
    "x",
    " c x",
    "\"",
    "'",
    "`",
    "\\",
    "\\\n",
    "$",
    "$(",
    ")",
    "(",
    "{",
    "}",
    "${",
    "${u",
    ":-",
    "#",
    " #",
    "h <<E ",
    "\nE\n",
    "<<-E",
    "<<E",
    "E",
    "\t",
    "case ",
    "in ",
    "esac",
    ";;",
    "x) ",
    "|",
    "&",
    "&&",
    " || ",
    " >f",
    " <f",
    "v=",
    "export v=",
    "!",
    "do ",
    "done",
    "then ",
    "fi",
    "if ",
    "for i ",
    "\\\"",
    "\\'",
    "\\$",
    "\\\\",
    "=",
    "$u",
    "\"$e\"",
    "~",
    "$((",
    "))",
    "[[ ",
    "é",
    "$'",
];

fn template(tape: &mut Tape<'_>) -> String {
    let mut text = "c ".to_owned();
    let mut closers = Vec::new();
    while !tape.used_up() {
        match tape.below(8) {
            0..=2 => text.push_str(&format!("${{p{}}}", tape.below(VALUES.len()))),
            3 | 4 => {
                let (open, close) = tape.of(&PAIRS);
                text.push_str(open);
                closers.push(close);
                if tape.below(2) == 0 {
                    text.push_str("c ");
                }
            }
            5 => text.push_str(closers.pop().unwrap_or("\n")),
            6 => text.push_str(tape.of(&TOKENS)),
            _ => text.push_str(tape.of(&[" ", "\n", "; ", " c ", "x", "\nc "])),
        }
    }
    while let Some(close) = closers.pop() {
        text.push_str(close);
    }
    text
}

/// What is wrong with a record of the log.
fn fault(record: &str) -> Option<&'static str> {
    let rest = VALUES.iter().rev().fold(record.to_owned(), |rest, value| match *value {
        "*" => rest,
        value => rest.replace(value, ""),
    });
    let rest = rest.replace('E', "");
    if rest.contains(|c: char| c.is_ascii_uppercase()) {
        return Some("a value was split, cut or globbed");
    }
    let placed = ["$1", "$2", "$3", "$4", "${1", "${2", "${3", "${4"];
    placed.iter().any(|text| rest.contains(text)).then_some("a placeholder was not expanded")
}

fn check(
    tape: &[u8],
    directories: &[PathBuf; 2],
    logs: &Path,
    taken: &Cell<usize>,
) -> Result<(), TestCaseError> {
    let template = format!("{PRELUDE}{}", template(&mut Tape::new(tape)));
    let Ok(tool) = shells::tool("shell", &template) else { return Ok(()) };
    // `${`, `x` and `}` can meet to a placeholder of another name.
    if tool.parameters.is_empty() || tool.parameters.iter().any(|p| !p.name.starts_with('p')) {
        return Ok(());
    }
    taken.set(taken.get() + 1);
    let values = VALUES.map(str::to_owned);
    let argv = shells::invocation(&tool, &values).argv;
    let template = &template[PRELUDE.len()..];
    for directory in directories {
        std::fs::remove_dir_all(directory).unwrap();
        std::fs::create_dir(directory).unwrap();
        std::fs::write(directory.join("Zf"), "").unwrap();
        std::fs::write(logs.join(directory.file_name().unwrap()), "").unwrap();
    }
    let log = |directory: &PathBuf| logs.join(directory.file_name().unwrap());
    let env = directories.each_ref().map(|directory| {
        [
            ("PATH", "/nowhere".to_owned()),
            ("e", "x".to_owned()),
            ("L", log(directory).to_str().unwrap().to_owned()),
        ]
    });
    shells::run_each(&argv, directories, &env);
    for (shell, directory) in shells::SHELLS.iter().zip(directories) {
        prop_assert!(
            !directory.join("PWNED").exists(),
            "{shell} ran a value:\n{template}\n{}",
            argv[2]
        );
        let bytes = std::fs::read(log(directory)).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        for record in text.split('\0') {
            if let Some(fault) = fault(record) {
                let script = &argv[2][PRELUDE.len()..];
                return Err(TestCaseError::fail(format!(
                    "{shell}: {fault}\n{template}\n---\n{script}\n---\n{record:?}"
                )));
            }
        }
    }
    Ok(())
}

#[test]
fn c_15_1_random_templates_never_run_split_or_glob_a_value() {
    let parent = tempfile::tempdir().unwrap();
    let directories = shells::directories(parent.path());
    let logs = parent.path().join("logs");
    std::fs::create_dir(&logs).unwrap();
    let cases = crate::cases(400, 8000);
    let config = ProptestConfig {
        cases,
        failure_persistence: None,
        max_shrink_iters: 3000,
        ..crate::base()
    };
    let taken = Cell::new(0);
    let mut runner = TestRunner::new(config);
    let result = runner.run(&prop::collection::vec(any::<u8>(), 2..28), |tape| {
        check(&tape, &directories, &logs, &taken)
    });
    match result {
        Ok(()) => {}
        Err(TestError::Fail(why, _)) => panic!("{why}"),
        Err(why) => panic!("{why}"),
    }
    // Too few would show nothing.
    assert!(taken.get() * 20 > cases as usize, "{} of {cases} templates were taken", taken.get());
    println!("{} of {cases} templates were taken", taken.get());
}
