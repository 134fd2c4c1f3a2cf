//! C-2.6 attacked where bash evaluates a value by itself: it takes one for a variable name with a subscript, for a
//! number, or for an option that says so. Whatever the engine takes, no value may be run.

use crate::shells;
use crate::tape::Tape;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestError, TestRunner};
use std::path::PathBuf;

const VALUES: [&str; 5] =
    ["a[$(>PWNED)]", "-va[$(>PWNED)]", "-v", "a[$(>PWNED)]=1", "(($(>PWNED)))"];

/// Builtins and reserved words; not those that stop or end shells, or whose business is running their argument.
const COMMANDS: &str = ". : [ ] [[ ]] (( )) alias bg bind break builtin caller cd command compgen complete compopt \
    continue coproc declare dirs disown echo enable exec exit export false fc fg getopts hash help history jobs let \
    local mapfile popd printf pushd pwd read readarray readonly return select set shift shopt source test time times \
    true type typeset ulimit umask unalias unset wait for function";

const TOKENS: &str = "-v -p -n -a -A -i -r -R -t -u -d -s -o -e -f -g -l -x -k -c -C -W -- ! = == -eq -lt -gt -a -o \
    -z -ef < > >& <& >> 2>& v n OPTIND RANDOM v= n= RANDOM= OPTIND+= v+= a[ a[0]= ] { } , in do done ; | && & # if \
    then fi $((n)) $(( )) $n \"$v\" ${v: ${n:= \" ' \\ x %s '%s' \"%s";

fn template(tape: &mut Tape<'_>) -> String {
    let commands: Vec<&str> = COMMANDS.split_whitespace().collect();
    let tokens: Vec<&str> = TOKENS.split_whitespace().collect();
    let mut text = tape.of(&commands).to_owned();
    while !tape.used_up() {
        let blank = tape.of(&[" ", " ", " ", "", "; ", "\n"]);
        text.push_str(blank);
        match tape.below(8) {
            0..=2 => text.push_str(&format!("${{p{}}}", tape.below(VALUES.len()))),
            3 => text.push_str(&format!("\"${{p{}}}\"", tape.below(VALUES.len()))),
            4 => text.push_str(tape.of(&commands)),
            _ => text.push_str(tape.of(&tokens)),
        }
    }
    text
}

fn check(tape: &[u8], directories: &[PathBuf; 2]) -> Result<(), TestCaseError> {
    let template = template(&mut Tape::new(tape));
    let Ok(tool) = shells::tool("shell", &template) else { return Ok(()) };
    if tool.parameters.is_empty() || tool.parameters.iter().any(|p| !p.name.starts_with('p')) {
        return Ok(());
    }
    let argv = shells::invocation(&tool, &VALUES.map(str::to_owned)).argv;
    shells::run(&argv, directories, [("PATH", "/nowhere")]);
    for (shell, directory) in shells::SHELLS.iter().zip(directories) {
        let pwned = directory.join("PWNED").exists();
        let _ = std::fs::remove_file(directory.join("PWNED"));
        prop_assert!(!pwned, "{} ran a value:\n{}\n{}", shell, template, argv[2]);
    }
    Ok(())
}

#[test]
fn c_2_6_no_builtin_evaluates_a_value() {
    let parent = tempfile::tempdir().unwrap();
    let directories = shells::directories(parent.path());
    let cases = crate::cases(600, 5000);
    let config = ProptestConfig {
        cases,
        failure_persistence: None,
        max_shrink_iters: 3000,
        ..crate::base()
    };
    let result = TestRunner::new(config)
        .run(&prop::collection::vec(any::<u8>(), 4..24), |tape| check(&tape, &directories));
    match result {
        Ok(()) => {}
        Err(TestError::Fail(why, _)) => panic!("{why}"),
        Err(why) => panic!("{why}"),
    }
}
