//! The command `completions` of every program: the script by which a shell completes command lines, and the answers to
//! the shell's requests.
//!
//! The script calls the program with an environment variable set, so the candidates are what this program knows: its
//! options, and the runs and workspaces that exist.

use crate::user_directory::ReadVariable;
use crate::{completion_install, stdio};
use clap::{Args, ValueEnum};
use clap_complete::CompleteEnv;
use clap_complete::engine::CompletionCandidate;
use clap_complete::env::{EnvCompleter, Fish, Zsh};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::OnceLock;

/// A program with the commands `completions` and `man`.
#[derive(Debug, Clone, Copy)]
pub struct CliProgram {
    /// The name by which a shell calls it.
    pub name: &'static str,
    /// The environment variable that marks a call as a completion request.
    pub completion_variable: &'static str,
    /// Builds the description of its command line.
    pub command: fn() -> clap::Command,
    /// A paragraph on exit codes, and the commands whose manual pages contain it.
    pub exit_codes: Option<(&'static str, &'static [&'static str])>,
    /// Whether the manual page with this name is one of this program. Its description may contain commands of others.
    pub has_page: fn(&str) -> bool,
}

/// The running program. Functions that return candidates take no arguments and find it here.
static CURRENT_PROGRAM: OnceLock<CliProgram> = OnceLock::new();

/// Print the completion script for a shell
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// Shell to print the script for [default with --install: the one in $SHELL]
    #[arg(required_unless_present = "install")]
    shell: Option<CompletionShell>,
    /// Write the script to the file from which the shell loads it, and print its path
    #[arg(long)]
    install: bool,
}

/// The installation instructions at the end of the help of `completions`.
#[macro_export]
macro_rules! installation {
    ($program:literal) => {
        concat!("Install it:\n  ", $program, " completions --install")
    };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompletionShell {
    Bash,
    Zsh,
    Fish,
}

/// The script for bash. The one of clap_complete neither handles how bash splits `--option=value` nor quotes candidates.
const BASH_SCRIPT: &str = include_str!("completions.bash");

/// Prints the completion script of `program`, or installs it. Returns the exit code.
pub fn print_completions(
    args: &CompletionsArgs,
    program: &CliProgram,
    read_variable: ReadVariable,
) -> ExitCode {
    let Some(shell) = args.shell.or_else(|| completion_install::users_shell(read_variable)) else {
        let name = program.name;
        stdio::print_error_line("error: SHELL names no shell with completions: bash, zsh or fish");
        stdio::print_error_line(&format!(
            "help: name the shell: `{name} completions bash --install`"
        ));
        return ExitCode::from(2);
    };
    let script = completion_script(shell, program);
    if !args.install {
        stdio::print_text(&script);
        return ExitCode::SUCCESS;
    }
    match completion_install::install_script(shell, program.name, &script, read_variable) {
        Ok(installed) => {
            stdio::print_text(&format!("{}\n", installed.path.display()));
            if let Some(note) = installed.note {
                stdio::print_error_line(&format!("Note: {note}"));
            }
            ExitCode::SUCCESS
        }
        Err(reason) => {
            stdio::print_error_line(&format!("error: {reason}"));
            ExitCode::FAILURE
        }
    }
}

fn completion_script(shell: CompletionShell, program: &CliProgram) -> String {
    let CliProgram { name, completion_variable, .. } = program;
    let completer: &dyn EnvCompleter = match shell {
        CompletionShell::Bash => {
            return BASH_SCRIPT
                .replace("@PROGRAM@", name)
                .replace("@VARIABLE@", completion_variable)
                .replace("@NAME@", &name.replace('-', "_"));
        }
        CompletionShell::Zsh => &Zsh,
        CompletionShell::Fish => &Fish,
    };
    let mut script = Vec::new();
    completer
        .write_registration(completion_variable, name, name, name, &mut script)
        .expect("writing to memory does not fail");
    let script = String::from_utf8_lossy(&script).into_owned();
    match shell {
        // As a file in `fpath`, it is the function that zsh loads at the first completion, which it then has to answer, too.
        CompletionShell::Zsh => {
            let completer = format!("_clap_dynamic_completer_{}", name.replace('-', "_"));
            format!(
                "{script}\nif [ \"$funcstack[1]\" = \"_{name}\" ]; then {completer} \"$@\"; fi\n"
            )
        }
        CompletionShell::Bash | CompletionShell::Fish => script,
    }
}

/// Answers a completion request of the shell. Returns false for an ordinary call, which the caller then handles.
pub fn answer_completion_request(program: CliProgram) -> bool {
    let program = CURRENT_PROGRAM.get_or_init(|| program);
    let current_dir = std::env::current_dir().ok();
    // Without an answer the shell offers no candidates.
    CompleteEnv::with_factory(program.command)
        .var(program.completion_variable)
        .try_complete(std::env::args_os(), current_dir.as_deref())
        .unwrap_or(true)
}

/// The subcommands of the command that the words after `man` name.
pub fn manual_page_candidates() -> Vec<CompletionCandidate> {
    let Some(program) = CURRENT_PROGRAM.get() else { return Vec::new() };
    let words = completed_words();
    let mut names: Vec<&String> = words.iter().skip_while(|word| *word != "man").skip(1).collect();
    // The last word is the one being completed.
    names.pop();
    let root = (program.command)();
    let command = names.iter().try_fold(&root, |command, name| command.find_subcommand(name));
    let subcommands = command.into_iter().flat_map(clap::Command::get_subcommands);
    subcommands
        // What has no summary is a program of others.
        .filter(|command| !command.is_hide_set() && command.get_about().is_some())
        .map(|command| {
            CompletionCandidate::new(command.get_name()).help(command.get_about().cloned())
        })
        .collect()
}

/// The words of the command line that is being completed, the last of which may be unfinished.
pub fn completed_words() -> Vec<String> {
    let words = std::env::args_os().skip_while(|word| word != "--").skip(1);
    words.map(|word| word.to_string_lossy().into_owned()).collect()
}

/// The value of the option with one of `names` in the command line that is being completed, with quotes and backslashes
/// removed and `~/` expanded.
pub fn option_value(names: &[&str], read_variable: ReadVariable) -> Option<PathBuf> {
    let words = completed_words();
    let value = words.iter().enumerate().find_map(|(index, word)| {
        if names.contains(&word.as_str()) {
            return words.get(index + 1).cloned();
        }
        let (name, value) = word.split_once('=')?;
        names.contains(&name).then(|| value.to_owned())
    })?;
    let path: String = value.chars().filter(|c| !matches!(c, '\\' | '\'' | '"')).collect();
    Some(match (path.strip_prefix("~/"), read_variable("HOME")) {
        (Some(rest), Some(home)) => PathBuf::from(home).join(rest),
        _ => PathBuf::from(path),
    })
}
