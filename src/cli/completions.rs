//! The command `completions` of each program: the script by which a shell completes command lines, and the answers to what
//! it asks then.
//!
//! The script asks the program itself, through a variable of the environment, so what is offered is what this program
//! knows: its options, and the runs and workspaces that are there.

use super::{list_runs, stdout};
use crate::workspace::Workspace;
use clap::{Args, ValueEnum};
use clap_complete::CompleteEnv;
use clap_complete::engine::{CompletionCandidate, PathCompleter, ValueCompleter};
use clap_complete::env::{EnvCompleter, Fish, Zsh};
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::OnceLock;

/// A program with the commands `completions` and `man`.
#[derive(Debug, Clone, Copy)]
pub struct Program {
    /// Its name.
    pub name: &'static str,
    /// The variable that turns a call of it into a question of the shell's.
    pub variable: &'static str,
    /// Its command line.
    pub command: fn() -> clap::Command,
}

/// The program that runs, for the candidates, which are asked for without it.
static RUNNING: OnceLock<Program> = OnceLock::new();

/// How many runs are offered, the last updated ones.
const MOST_RUNS: usize = 100;

/// Print the script that lets a shell complete command lines
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// How the script of a program is loaded, for the end of its help.
macro_rules! installation {
    ($program:literal) => {
        concat!(
            "Load it when the shell starts:\n  bash  echo 'source <(",
            $program,
            " completions bash)' >> ~/.bashrc\n  zsh   echo 'source <(",
            $program,
            " completions zsh)' >> ~/.zshrc       behind compinit\n  fish  echo '",
            $program,
            " completions fish | source' >> ~/.config/fish/config.fish"
        )
    };
}
pub(super) use installation;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// The script for bash; that of clap_complete does not know what bash makes of `--option=value`, and does not quote.
const BASH: &str = include_str!("completions.bash");

/// Prints the script; gives the exit code.
pub fn completions(args: &CompletionsArgs, program: &Program) -> ExitCode {
    let name = program.name;
    let shell: &dyn EnvCompleter = match args.shell {
        Shell::Bash => {
            let script = BASH.replace("@PROGRAM@", name).replace("@VARIABLE@", program.variable);
            stdout::write(&script.replace("@NAME@", &name.replace('-', "_")));
            return ExitCode::SUCCESS;
        }
        Shell::Zsh => &Zsh,
        Shell::Fish => &Fish,
    };
    let mut script = Vec::new();
    shell
        .write_registration(program.variable, name, name, name, &mut script)
        .expect("memory takes what is written");
    stdout::write(&String::from_utf8_lossy(&script));
    ExitCode::SUCCESS
}

/// Answers the shell when it is the one who asks; false when this is an ordinary call.
pub fn answer(program: Program) -> bool {
    let program = RUNNING.get_or_init(|| program);
    let here = std::env::current_dir().ok();
    let asked = CompleteEnv::with_factory(program.command).var(program.variable);
    // A shell that gets no answer offers nothing.
    asked.try_complete(std::env::args_os(), here.as_deref()).unwrap_or(true)
}

/// The runs of the workspace that the command line names, each with its status and task.
pub fn runs() -> Vec<CompletionCandidate> {
    let workspace = option(&["-w", "--work-dir"]).unwrap_or_else(|| PathBuf::from("."));
    let runs = list_runs::summaries(&workspace, MOST_RUNS).unwrap_or_default();
    let candidate = |(place, (id, about)): (usize, (String, String))| {
        CompletionCandidate::new(id).help(Some(about.into())).display_order(Some(place))
    };
    runs.into_iter().enumerate().map(candidate).collect()
}

/// The commands below those that stand behind `man` already.
pub fn commands() -> Vec<CompletionCandidate> {
    let words = words();
    let named = words.iter().skip_while(|word| *word != "man").skip(1);
    let Some(program) = RUNNING.get() else { return Vec::new() };
    let (root, mut names) = ((program.command)(), named.collect::<Vec<_>>());
    // The last word is the one that is being completed.
    names.pop();
    let found = names.iter().try_fold(&root, |command, name| command.find_subcommand(name));
    let below = found.map(|command| command.get_subcommands()).into_iter().flatten();
    below
        .filter(|command| !command.is_hide_set())
        .map(|command| {
            CompletionCandidate::new(command.get_name()).help(command.get_about().cloned())
        })
        .collect()
}

/// The workspaces of the agent that the command line names, and all directories.
#[derive(Clone)]
pub struct Workspaces;

impl ValueCompleter for Workspaces {
    fn complete(&self, current: &OsStr) -> Vec<CompletionCandidate> {
        let agent = option(&["--agent"]).unwrap_or_default();
        let own = Workspace::names_of(&agent).into_iter().map(|name| {
            CompletionCandidate::new(agent.join("workspaces").join(name))
                .help(Some("workspace".into()))
                .display_order(Some(0))
        });
        let fits = |candidate: &CompletionCandidate| {
            let value = candidate.get_value().as_encoded_bytes();
            value.starts_with(current.as_encoded_bytes())
        };
        let own: Vec<CompletionCandidate> = own.filter(fits).collect();
        let others = PathCompleter::dir().complete(current).into_iter();
        own.into_iter().chain(others.map(|other| other.display_order(Some(1)))).collect()
    }
}

/// Directories, those that hold an agent first.
#[derive(Clone)]
pub struct Agents;

impl ValueCompleter for Agents {
    fn complete(&self, current: &OsStr) -> Vec<CompletionCandidate> {
        let mark = |candidate: CompletionCandidate| match PathBuf::from(candidate.get_value())
            .join("agent.yaml")
            .is_file()
        {
            true => candidate.help(Some("agent".into())).display_order(Some(0)),
            false => candidate.display_order(Some(1)),
        };
        PathCompleter::dir().complete(current).into_iter().map(mark).collect()
    }
}

/// The words of the command line that is being completed.
fn words() -> Vec<String> {
    let behind = std::env::args_os().skip_while(|word| word != "--").skip(1);
    behind.map(|word| word.to_string_lossy().into_owned()).collect()
}

/// The value of an option in the command line that is being completed, as the shell shows it: not yet unquoted.
fn option(names: &[&str]) -> Option<PathBuf> {
    let words = words();
    let value = words.iter().enumerate().find_map(|(place, word)| {
        if names.contains(&word.as_str()) {
            return words.get(place + 1).cloned();
        }
        let (name, value) = word.split_once('=')?;
        names.contains(&name).then(|| value.to_owned())
    })?;
    let plain: String = value.chars().filter(|c| !matches!(c, '\\' | '\'' | '"')).collect();
    Some(match (plain.strip_prefix("~/"), std::env::home_dir()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(plain),
    })
}
