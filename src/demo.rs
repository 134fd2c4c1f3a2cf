//! `delta demo`: runs an example agent, which is compiled into the program.

use clap::{Args, Command, FromArgMatches};
use delta_base::durable::{self, FileError};
use delta_base::shell_quote::{shell_quote, shell_quote_path};
use delta_launch::drive::run::{self, RunArgs};
use delta_operator::arguments::run_sandbox;
use delta_operator::failure::CommandFailure;
use delta_program::stdio;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Run an example agent, without an API key
///
/// Runs the agent `hello-world` from DIR/agent in a new workspace, DIR/work, DIR/work-2 and so on. A script plays the LLM;
/// everything else is real.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct DemoArgs {
    /// Directory for the agent and its workspace, created if missing
    #[arg(value_name = "DIR", default_value = "delta-demo", value_hint = clap::ValueHint::DirPath)]
    dir: PathBuf,
}

const EXAMPLES: &str = "\
Example:
  delta demo /tmp/demo";

/// The task, whose words the agent counts.
const TASK: &str = "The journal is the run; everything else follows from the journal";

/// The files of the example.
const FILES: [(&str, &str); 5] = [
    ("agent.yaml", include_str!("../examples/hello-world/agent.yaml")),
    ("context.yaml", include_str!("../examples/hello-world/context.yaml")),
    ("script.yaml", include_str!("../examples/hello-world/script.yaml")),
    ("system_prompt.md", include_str!("../examples/hello-world/system_prompt.md")),
    ("tests/counts.yaml", include_str!("../examples/hello-world/tests/counts.yaml")),
];

/// Runs the example; returns the exit code of the run.
pub fn demo_command(args: &DemoArgs) -> ExitCode {
    // A relative path that begins with `-` would be an option.
    let is_like_option = args.dir.to_string_lossy().starts_with('-');
    let dir = if is_like_option { Path::new(".").join(&args.dir) } else { args.dir.clone() };
    let agent = dir.join("agent");
    let work = new_workspace(&dir);
    if let Err(failure) = ensure_example(&dir, &agent) {
        return failure.report();
    }
    let mut arguments: Vec<OsString> = vec!["delta".into(), "run".into(), "--agent".into()];
    arguments.extend([agent.clone().into(), "-w".into(), work.clone().into()]);
    if let Some((missing, reason)) = run_sandbox::find_missing_guarantees(&agent) {
        stdio::print_error_line(&format!(
            "Note: this machine cannot enforce the agent's sandbox ({missing}): {reason}"
        ));
        arguments.extend(["--sandbox-without".into(), missing.into()]);
    }
    arguments.extend(["-m".into(), TASK.into()]);
    let words = arguments.iter().map(|word| shell_quote(&word.to_string_lossy()));
    stdio::print_error_line(&format!("$ {}\n", words.collect::<Vec<_>>().join(" ")));
    // The first word is the name of the program.
    let mut command = RunArgs::augment_args(Command::new("run"));
    let code = match command.try_get_matches_from_mut(&arguments[1..]) {
        Ok(matches) => RunArgs::from_arg_matches(&matches)
            .map_or(ExitCode::FAILURE, |args| run::run_command(&args)),
        Err(_) => ExitCode::FAILURE,
    };
    if code == ExitCode::SUCCESS {
        print_demo_steps(&agent, &work);
    }
    code
}

/// The workspace of the next run: files of an earlier one would change what the agent counts.
fn new_workspace(dir: &Path) -> PathBuf {
    let names = (2..).map(|number| format!("work-{number}"));
    let mut paths = std::iter::once("work".to_owned()).chain(names).map(|name| dir.join(name));
    paths.find(|path| !path.exists()).unwrap_or_else(|| dir.join("work"))
}

/// Writes the example, unless the directory has an agent.
fn ensure_example(dir: &Path, agent: &Path) -> Result<(), CommandFailure> {
    if agent.join("agent.yaml").is_file() {
        return Ok(());
    }
    let mut entries = fs::read_dir(dir).into_iter().flatten();
    if entries.next().is_some() || dir.exists() && !dir.is_dir() {
        let message = format!("{} has other files, and no agent of `delta demo`", dir.display());
        return Err(CommandFailure::already_exists(
            message,
            "name a new directory: `delta demo DIR`",
        ));
    }
    Ok(write_example(agent)?)
}

fn write_example(agent: &Path) -> Result<(), FileError> {
    for (path, text) in FILES {
        let path = agent.join(path);
        durable::ensure_shared_dir(path.parent().unwrap_or(agent))?;
        durable::create_shared_unsynced(&path, text.as_bytes(), false)?;
    }
    Ok(())
}

fn print_demo_steps(agent: &Path, work: &Path) {
    let agent = shell_quote_path(agent);
    let work = shell_quote_path(work);
    stdio::print_error_line(&format!(
        "
Look at the run, change the agent, write your own:
  delta show -v -w {work}
  delta view -w {work}
  less {agent}/agent.yaml
  delta test {agent}
  delta init my-agent"
    ));
}
