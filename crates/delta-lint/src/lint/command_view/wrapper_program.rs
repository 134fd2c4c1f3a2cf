//! Programs that run the command in their arguments, such as `env` and `timeout`.

use super::LintWord;

/// A program that runs the command after its own options and operands.
struct WrapperProgram {
    name: &'static str,
    /// The letters of the options that take the next word as their value.
    value_letters: &'static str,
    /// The long options that take the next word as their value.
    value_options: &'static [&'static str],
    /// The number of operands before the command.
    operand_count: usize,
    /// Whether words such as `NAME=value` precede the command.
    takes_assignments: bool,
    /// Whether it looks its commands up in PATH.
    uses_path: bool,
}

impl WrapperProgram {
    const fn new(
        name: &'static str,
        value_letters: &'static str,
        value_options: &'static [&'static str],
    ) -> Self {
        Self {
            name,
            value_letters,
            value_options,
            operand_count: 0,
            takes_assignments: false,
            uses_path: true,
        }
    }

    const fn with_operands(self, operand_count: usize) -> Self {
        Self { operand_count, ..self }
    }

    const fn with_assignments(self) -> Self {
        Self { takes_assignments: true, ..self }
    }

    const fn with_own_programs(self) -> Self {
        Self { uses_path: false, ..self }
    }
}

static WRAPPER_PROGRAMS: [WrapperProgram; 32] = [
    WrapperProgram::new("env", "uSC", &["--unset", "--split-string", "--chdir"]).with_assignments(),
    WrapperProgram::new("exec", "a", &[]),
    WrapperProgram::new("command", "", &[]),
    WrapperProgram::new("nohup", "", &[]),
    WrapperProgram::new("chronic", "", &[]),
    WrapperProgram::new("setsid", "", &[]),
    WrapperProgram::new("nice", "n", &["--adjustment"]),
    WrapperProgram::new("ionice", "cnp", &["--class", "--classdata", "--pid"]),
    WrapperProgram::new("chrt", "pTPD", &[]).with_operands(1),
    WrapperProgram::new("taskset", "p", &["--pid"]).with_operands(1),
    WrapperProgram::new("prlimit", "p", &["--pid"]),
    WrapperProgram::new("setarch", "", &[]).with_operands(1),
    WrapperProgram::new("stdbuf", "ioe", &["--input", "--output", "--error"]),
    WrapperProgram::new("time", "fo", &["--format", "--output"]),
    WrapperProgram::new("timeout", "ks", &["--kill-after", "--signal"]).with_operands(1),
    WrapperProgram::new(
        "flock",
        "wEc",
        &["--timeout", "--wait", "--conflict-exit-code", "--command"],
    )
    .with_operands(1),
    WrapperProgram::new(
        "sudo",
        "ugpCDhRrTtU",
        &["--user", "--group", "--prompt", "--close-from", "--chdir", "--host", "--chroot"],
    )
    .with_assignments(),
    WrapperProgram::new("doas", "uC", &[]).with_assignments(),
    WrapperProgram::new("setpriv", "", &["--reuid", "--regid", "--groups", "--inh-caps"]),
    WrapperProgram::new("fakeroot", "lsib", &["--lib", "--faked"]),
    WrapperProgram::new("strace", "eoOpPsSuaEbI", &["--trace", "--output", "--attach", "--user"]),
    WrapperProgram::new("ltrace", "eoplsuAaDFnxw", &["--output"]),
    WrapperProgram::new("nsenter", "tSGWw", &["--target", "--setuid", "--setgid"]),
    WrapperProgram::new("unshare", "SGRw", &["--setuid", "--setgid", "--root", "--wd"]),
    WrapperProgram::new("chroot", "", &["--userspec", "--groups"])
        .with_operands(1)
        .with_own_programs(),
    WrapperProgram::new("systemd-run", "pEHMu", &["--unit", "--property", "--setenv", "--slice"]),
    WrapperProgram::new("dbus-run-session", "", &["--config-file", "--dbus-daemon"]),
    WrapperProgram::new("tini", "peg", &[]),
    WrapperProgram::new("dumb-init", "r", &["--rewrite"]),
    WrapperProgram::new("busybox", "", &[]).with_own_programs(),
    WrapperProgram::new("toybox", "", &[]).with_own_programs(),
    WrapperProgram::new(
        "xargs",
        "aEdILnPs",
        &["--arg-file", "--delimiter", "--max-lines", "--max-args", "--max-procs", "--max-chars"],
    ),
];

fn find_wrapper(words: &[LintWord]) -> Option<&'static WrapperProgram> {
    let name = words.first()?.program_name();
    WRAPPER_PROGRAMS.iter().find(|wrapper| wrapper.name == name)
}

/// Whether `words` begin with a wrapper program.
pub fn is_wrapper(words: &[LintWord]) -> bool {
    find_wrapper(words).is_some()
}

/// The words of the command that wrapper programs run.
pub fn strip_wrappers(words: &[LintWord]) -> &[LintWord] {
    wrapped_commands(words).last().unwrap_or(words)
}

/// Like [`strip_wrappers`], where the program of the command is looked up in PATH.
pub fn strip_path_wrappers(words: &[LintWord]) -> &[LintWord] {
    let commands = std::iter::successors(Some(words), |words| {
        find_wrapper(words).filter(|wrapper| wrapper.uses_path)?;
        wrapped_command(words)
    });
    commands.last().unwrap_or(words)
}

/// The command, the command that its wrapper program runs, and so on.
pub fn wrapped_commands(words: &[LintWord]) -> impl Iterator<Item = &[LintWord]> {
    std::iter::successors(Some(words), |words| wrapped_command(words))
}

/// The words of the command that the wrapper program `words[0]` runs.
fn wrapped_command(words: &[LintWord]) -> Option<&[LintWord]> {
    let wrapper = find_wrapper(words)?;
    let mut index = 1;
    let mut operands = wrapper.operand_count;
    while let Some(word) = words.get(index) {
        let prefix = word.fixed_prefix();
        if prefix == "--" {
            index += 1 + operands;
            break;
        }
        if prefix.starts_with('-') {
            index += 1 + usize::from(takes_next_word(word, wrapper));
        } else if prefix.contains('=') && wrapper.takes_assignments {
            index += 1;
        } else if operands > 0 {
            operands -= 1;
            index += 1;
        } else {
            break;
        }
    }
    words.get(index..).filter(|words| !words.is_empty())
}

/// Whether the option `word` takes the next word as its value.
fn takes_next_word(word: &LintWord, wrapper: &WrapperProgram) -> bool {
    let Some(text) = word.fixed_text() else { return false };
    match text.strip_prefix('-') {
        Some(letters) if !letters.starts_with('-') => {
            letters.find(|letter| wrapper.value_letters.contains(letter))
                == letters.len().checked_sub(1)
                && !letters.is_empty()
        }
        _ => wrapper.value_options.contains(&text),
    }
}
