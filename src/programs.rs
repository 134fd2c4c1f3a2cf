//! Other programs as commands: `delta NAME` becomes the program `delta-NAME`, from the directory of delta, else from PATH.

use clap::error::ErrorKind;
use clap::{Command, CommandFactory, Parser, Subcommand};
use delta_base::shell_quote::shell_quote_path;
use delta_operator::global_options::GlobalOptions;
use delta_operator::{build_info, environment};
use delta_process::{become_program, is_program};
use delta_program::{completions, stdio};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A program that comes with delta.
struct OwnProgram {
    /// Its name after `delta-`.
    name: &'static str,
    /// Its summary in the list of commands: the first line of its own help.
    about: &'static str,
    /// Its directory in the sources of delta.
    sources: &'static str,
    /// Whether it reads the command line of delta as it is, and not only the words after its name: then completions, manual
    /// pages and errors are the ones of a command of delta.
    is_wing: bool,
}

const OWN_PROGRAMS: [OwnProgram; 2] = [
    OwnProgram {
        name: "sweep",
        about: "Plan and run many runs: agents, models and parameters on inputs",
        sources: "crates/delta-sweep",
        is_wing: true,
    },
    OwnProgram {
        name: "sessions",
        about: "Keep the state of bash, Python or another command between calls",
        sources: "crates/delta-sessions",
        is_wing: false,
    },
];

/// A second name of `sessions`, which has its commands as `sessions pty`.
const LINK_NAME: &str = "sessions-pty";

/// A program that was found.
#[derive(Debug, PartialEq, Eq)]
pub struct Program {
    /// Its name after `delta-`.
    pub name: String,
    /// Its summary; none of a program of others, which is not started to get one.
    pub about: Option<&'static str>,
}

/// A command line that names a program: the options before the name, the name, and what follows it.
#[derive(Debug, Parser)]
#[command(name = "delta", disable_help_flag = true, disable_help_subcommand = true)]
struct Invocation {
    #[command(flatten)]
    options: GlobalOptions,
    #[command(subcommand)]
    words: Words,
}

#[derive(Debug, Subcommand)]
enum Words {
    #[command(external_subcommand)]
    All(Vec<OsString>),
}

impl Invocation {
    /// The name, after `help` or `man` too, and what follows it.
    fn named(&self) -> Option<(&str, &[OsString])> {
        let Words::All(words) = &self.words;
        let words = match words.split_first()? {
            (first, rest) if first == "help" || first == "man" => rest,
            _ => words,
        };
        let (name, rest) = words.split_first()?;
        Some((name.to_str()?, rest))
    }

    fn asks_for(&self, command: &str) -> bool {
        let Words::All(words) = &self.words;
        words.first().is_some_and(|word| word == command)
    }
}

/// Becomes the program that the command line names, if `error` says that delta has no such command. Returns the exit code if
/// a program that comes with delta is missing or does not start, and `None` if no program has the name.
pub fn start_named(error: &clap::Error, arguments: &[OsString]) -> Option<ExitCode> {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let invocation = Invocation::try_parse_from(arguments).ok()?;
    let (name, rest) = invocation.named()?;
    start_program(name, &invocation, rest, arguments)
}

/// Becomes the program whose manual page `words` name, as in `delta man sweep plan` and `delta man sweep-plan`.
pub fn start_for_manual(words: &[String]) -> Option<ExitCode> {
    let first = words.first()?;
    let known = OWN_PROGRAMS.iter().find(|known| {
        let rest = first.strip_prefix(known.name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-') && known.is_wing)
    })?;
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let invocation = Invocation::try_parse_from(&arguments).ok()?;
    let (_, rest) = invocation.named()?;
    start_program(known.name, &invocation, rest, &arguments)
}

/// Becomes the program that has the words of the completion request of this process in its command line.
pub fn start_for_completion() -> Option<ExitCode> {
    environment::os_variable(crate::PROGRAM.completion_variable)?;
    let words = completions::completed_words();
    let (_, typed) = words.split_last()?;
    let invocation = Invocation::try_parse_from(typed).ok()?;
    let known = find_own(invocation.named()?.0).filter(|known| known.is_wing)?;
    let path = find(known.name)?;
    Some(become_wing(&path, &std::env::args_os().collect::<Vec<_>>()))
}

fn start_program(
    name: &str,
    invocation: &Invocation,
    rest: &[OsString],
    arguments: &[OsString],
) -> Option<ExitCode> {
    // `delta mcp NAME` has an unknown command too, and it is not `mcp`.
    if crate::DeltaCli::command().find_subcommand(name).is_some() {
        return None;
    }
    let known = find_own(name);
    let Some(path) = find(name) else { return known.map(report_missing) };
    if known.is_some_and(|known| known.is_wing) {
        return Some(become_wing(&path, arguments));
    }
    let mut words = rest.to_vec();
    if invocation.asks_for("help") {
        words.push("--help".into());
    } else if invocation.asks_for("man") {
        words.insert(0, "man".into());
    }
    let mut env = environment::variables().clone();
    env.extend(invocation.options.variables());
    Some(replace(&path, path.as_os_str(), &words, &env))
}

/// Becomes a program that reads the command line of delta, with the program as its first word.
pub fn become_wing(path: &Path, arguments: &[OsString]) -> ExitCode {
    let mut env = environment::variables().clone();
    env.extend([build_info::starter_variable()]);
    replace(path, OsStr::new("delta"), arguments.get(1..).unwrap_or_default(), &env)
}

fn replace(
    path: &Path,
    name: &OsStr,
    arguments: &[OsString],
    env: &BTreeMap<OsString, OsString>,
) -> ExitCode {
    let error = become_program(path, name, arguments, env);
    stdio::print_error_line(&format!("error: {} does not start: {error}", shell_quote_path(path)));
    ExitCode::from(126)
}

fn report_missing(known: &OwnProgram) -> ExitCode {
    let OwnProgram { name, sources, .. } = known;
    let own_path =
        own_dir().map_or_else(|| "the directory of delta".to_owned(), |dir| shell_quote_path(&dir));
    stdio::print_error_line(&format!(
        "error: the program `delta-{name}`, which comes with delta, is missing: it is neither in {own_path} nor in PATH"
    ));
    let help = match checkout_build(sources) {
        Some(command) => format!("here `{command}` makes it"),
        None => format!(
            "every package of delta has it; from the sources: `cargo install --locked --path {sources}`"
        ),
    };
    stdio::print_error_line(&format!("help: {help}"));
    ExitCode::from(2)
}

/// What compiles the package `sources` to this directory, if cargo has compiled delta here, in a checkout.
fn checkout_build(sources: &str) -> Option<String> {
    let dir = own_dir()?;
    let manifest = dir.ancestors().nth(2)?.join(sources).join("Cargo.toml");
    let profile = match dir.file_name()?.to_str()? {
        "debug" => String::new(),
        profile => format!(" --profile {profile}"),
    };
    let command = format!("cargo build{profile} --manifest-path {}", shell_quote_path(&manifest));
    manifest.is_file().then_some(command)
}

fn find_own(name: &str) -> Option<&'static OwnProgram> {
    OWN_PROGRAMS.iter().find(|known| known.name == name)
}

/// The file of the program `delta-NAME`.
pub fn find(name: &str) -> Option<PathBuf> {
    if !is_name(name) {
        return None;
    }
    let file = format!("delta-{name}");
    search_dirs().map(|dir| dir.join(&file)).find(|path| is_program(path))
}

/// The programs that are found, sorted by name.
pub fn list_programs() -> Vec<Program> {
    let mut names: Vec<String> = search_dirs()
        .flat_map(|dir| std::fs::read_dir(dir).into_iter().flatten().flatten())
        .filter_map(|entry| {
            let name = entry.file_name().to_str()?.strip_prefix("delta-")?.to_owned();
            (is_name(&name) && name != LINK_NAME && is_program(&entry.path())).then_some(name)
        })
        .collect();
    names.sort();
    names.dedup();
    names
        .into_iter()
        .map(|name| Program { about: find_own(&name).map(|known| known.about), name })
        .collect()
}

/// The description of the command line with the programs as commands.
pub fn with_programs(mut command: Command, programs: Vec<Program>) -> Command {
    for Program { name, about } in programs {
        // A command of delta is never a program.
        if command.find_subcommand(&name).is_none() {
            // Names of commands live as long as the process.
            let stub = Command::new(&*name.leak()).disable_help_flag(true);
            command = command.subcommand(match about {
                Some(about) => stub.about(about),
                None => stub,
            });
        }
    }
    command
}

/// Whether this page is one of a program that writes it itself.
pub fn is_page_of_program(page: &str) -> bool {
    let name = page.strip_prefix("delta-").unwrap_or_default();
    OWN_PROGRAMS.iter().any(|known| {
        name.strip_prefix(known.name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    })
}

/// The names of programs have no separator of paths and begin with no dash.
fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with('-')
        && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
}

/// The directory of the running program, whose links are resolved.
fn own_dir() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    Some(program.canonicalize().unwrap_or(program).parent()?.to_owned())
}

/// Where programs are looked for. An empty or relative directory of PATH would be one below the working directory, where an
/// agent may have written.
fn search_dirs() -> impl Iterator<Item = PathBuf> {
    let path = environment::os_variable("PATH").unwrap_or_default();
    let dirs: Vec<PathBuf> = std::env::split_paths(&path).filter(|dir| dir.is_absolute()).collect();
    own_dir().into_iter().chain(dirs)
}
