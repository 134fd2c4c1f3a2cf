//! `delta sweep submit`: what is left of a sweep, as a job array of Slurm.

use crate::formats::result_line::ResultLine;
use crate::formats::slurm_array::{
    SlurmScript, count_tasks, estimate_runs_per_task, parse_max_array_size,
};
use crate::running::delta_program::find_delta;
use crate::running::result_reader::{ResultReader, read_sweep};
use clap::{Args, ValueEnum};
use delta_base::durable::{self, FileError};
use delta_base::shell_quote::shell_quote_path;
use delta_base::signal::CancelToken;
use delta_operator::command_line::pluralize;
use delta_operator::failure::CommandFailure;
use delta_operator::{cancel, environment};
use delta_process::{LaunchContext, ProcessCommand, ProcessEnd, ProcessResult, find_program};
use delta_program::stdio;
use delta_run::event::RunStatus;
use delta_run::record::describe_process_end;
use delta_run::sweep::sweep_dir::SweepDir;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// A controller that has much to do answers late.
const SLURM_TIMEOUT: Duration = Duration::from_secs(120);
/// The most bytes of the output of a command of Slurm; its configuration has some 10 KiB.
const MAX_OUTPUT_BYTES: usize = 1 << 20;

/// Submit the remaining runs of a sweep to a cluster
///
/// Writes a script into DIR/slurm, and submits one job array whose tasks call `delta sweep task`. DIR must be on a file system
/// that all nodes share. A task that is stopped while runs remain requeues itself.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct SubmitArgs {
    /// Directory of the sweep
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    dir: PathBuf,
    /// What runs the tasks: `slurm`, as a job array
    #[arg(value_enum, hide_possible_values = true, value_name = "ENGINE")]
    engine: SubmitEngine,
    /// Give each task about N runs [default: what takes half an hour; 10 while no run has ended]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    per_task: Option<u64>,
    /// Print the script; write and submit nothing
    #[arg(long)]
    print: bool,
    /// Options for sbatch, such as `--time=2:00:00`
    #[arg(last = true, value_name = "SBATCH")]
    sbatch: Vec<String>,
}

const EXAMPLES: &str = "\
Examples:
  delta sweep submit bugs slurm
  delta sweep submit bugs slurm -- --partition=cpu --cpus-per-task=4
  delta sweep submit bugs slurm --per-task 100 --print

Exit codes: 0 submitted, or no run remains, 1 sbatch failed, 2 usage error, 126 a file has a mistake or sbatch is missing, 130 interrupted";

/// What can run the tasks of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SubmitEngine {
    /// A job array of Slurm
    Slurm,
}

/// Submits a sweep; returns the exit code.
pub fn submit_command(args: &SubmitArgs) -> Result<ExitCode, CommandFailure> {
    let SubmitEngine::Slurm = args.engine;
    check_sbatch_options(&args.sbatch)?;
    let dir = SweepDir::new(canonical_sweep_dir(&args.dir)?);
    let (plan, ResultReader { results, .. }) = read_sweep(&dir)?;
    let lines = plan.runs.iter().map(|run| results.lines.get(&run.id));
    let left = lines.filter(|line| !line.is_some_and(has_no_work)).count() as u64;
    if left == 0 {
        stdio::print_error_line(&format!("no run remains in {}", args.dir.display()));
        return Ok(ExitCode::SUCCESS);
    }
    let slurm = SlurmClient::new()?;
    if !args.print {
        slurm.require_sbatch(&args.dir)?;
    }
    let per_task = args.per_task.unwrap_or_else(|| {
        let lines = results.lines.values();
        let settled = lines.filter(|line| line.settled && line.answers.is_none());
        estimate_runs_per_task(settled.map(|line| line.duration_ms).collect())
    });
    let program = find_delta()?;
    let script = SlurmScript {
        name: plan.settings().map_or("", |settings| &settings.name),
        program: &program,
        dir: &dir.root,
        logs: &dir.slurm(),
        tasks: count_tasks(left, per_task, slurm.max_array_size()),
    };
    let text = script.to_text().map_err(|error| {
        CommandFailure::config(error.to_string(), "move the sweep to another directory")
    })?;
    if args.print {
        stdio::print_text(&text);
        return Ok(ExitCode::SUCCESS);
    }
    let path = write_array_script(&dir, &text)?;
    let job = slurm.submit(&path, &args.sbatch)?;
    let runs = |count: u64, noun| pluralize(usize::try_from(count).unwrap_or(usize::MAX), noun);
    stdio::print_text(&format!(
        "submitted job {job}: {} for {}\nlogs: {} and so on\nnext: delta sweep status {}\n",
        runs(script.tasks, "task"),
        runs(left, "run"),
        shell_quote_path(&dir.slurm().join(format!("{job}_0.log"))),
        shell_quote_path(&args.dir),
    ));
    Ok(ExitCode::SUCCESS)
}

/// Whether a task has nothing to do for the run: it is settled, or a person has to answer first.
fn has_no_work(line: &ResultLine) -> bool {
    line.settled || line.status == RunStatus::WaitingForInput
}

/// The number of tasks is part of the script.
fn check_sbatch_options(options: &[String]) -> Result<(), CommandFailure> {
    let Some(option) = options.iter().find(|option| sets_array(option)) else { return Ok(()) };
    let hint = "`--per-task N` sets the size of the tasks; `scontrol update JobId=ID ArrayTaskThrottle=N` limits how many run at a time";
    let message = format!("`{option}` cannot be changed: the script names the number of its tasks");
    Err(CommandFailure::usage(message, hint.to_owned()))
}

/// Whether an option of sbatch is `-a` or `--array`, also abbreviated.
fn sets_array(option: &str) -> bool {
    let name = option.split('=').next().unwrap_or_default();
    option.starts_with("-a") || (name.len() > 3 && "--array".starts_with(name))
}

/// Tasks start in directories of their own.
fn canonical_sweep_dir(dir: &Path) -> Result<PathBuf, CommandFailure> {
    match dir.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(dir.to_owned()),
        path => {
            path.map_err(|source| FileError { action: "open", path: dir.to_owned(), source }.into())
        }
    }
}

/// Writes the script, for `sbatch` and for the record, under the first number that is free.
fn write_array_script(dir: &SweepDir, text: &str) -> Result<PathBuf, CommandFailure> {
    durable::ensure_shared_dir(&dir.slurm())?;
    let mut number = 1;
    loop {
        let path = dir.slurm().join(format!("submit-{number}.sh"));
        match durable::create_read_only_once(&path, text.as_bytes()) {
            Err(error) if error.source.kind() == io::ErrorKind::AlreadyExists => number += 1,
            written => return Ok(written.map(|()| path)?),
        }
    }
}

/// The commands of Slurm.
struct SlurmClient {
    launch: LaunchContext,
    cancel: CancelToken,
}

impl SlurmClient {
    fn new() -> Result<Self, CommandFailure> {
        let cancel = cancel::install_cancel()?;
        let cwd = std::env::current_dir().map_err(|error| {
            CommandFailure::config(format!("could not find the current directory: {error}"), None)
        })?;
        // With the operator's keys: sbatch gives its environment to the tasks.
        let launch = LaunchContext::new(cwd, environment::variables().clone());
        Ok(Self { launch, cancel })
    }

    fn require_sbatch(&self, dir: &Path) -> Result<(), CommandFailure> {
        find_program("sbatch", &self.launch).map(|_| ()).map_err(|_| {
            let dir = shell_quote_path(dir);
            let hint = format!("--print shows the script; `delta sweep run {dir}` works here");
            CommandFailure::config("sbatch is not found", hint)
        })
    }

    fn run(&self, argv: &[String]) -> ProcessResult {
        let command = ProcessCommand::new(argv, &self.launch, SLURM_TIMEOUT, 2 * MAX_OUTPUT_BYTES);
        delta_process::run_process(&command, &self.cancel)
    }

    /// `MaxArraySize`; unknown where `scontrol` is missing or has no answer.
    fn max_array_size(&self) -> Option<u64> {
        let argv = ["scontrol", "show", "config"].map(str::to_owned);
        let finished = self.run(&argv);
        let is_complete = finished.end == ProcessEnd::Exited(0);
        let config = String::from_utf8_lossy(&finished.stdout.head);
        is_complete.then(|| parse_max_array_size(&config))?
    }

    /// Submits a script; returns the id of the job.
    fn submit(&self, script: &Path, options: &[String]) -> Result<String, CommandFailure> {
        let mut argv = vec!["sbatch".to_owned(), "--parsable".to_owned()];
        argv.extend_from_slice(options);
        argv.push(script.display().to_string());
        let finished = self.run(&argv);
        let stderr = String::from_utf8_lossy(&finished.stderr.head).trim().to_owned();
        match finished.end {
            ProcessEnd::Exited(0) => {}
            ProcessEnd::Cancelled => {
                return Err(CommandFailure::interrupted(
                    "interrupted while sbatch ran: the job may be submitted, see `squeue --me`",
                ));
            }
            end => {
                let reason = match &end {
                    ProcessEnd::Exited(code) => format!("it exited with {code}"),
                    end => describe_process_end(end).unwrap_or_else(|| "it failed".to_owned()),
                };
                let message = format!("sbatch did not submit {}: {reason}", script.display());
                let message =
                    if stderr.is_empty() { message } else { format!("{message}\n{stderr}") };
                return Err(CommandFailure::not_submitted(message));
            }
        }
        if !stderr.is_empty() {
            stdio::print_error_line(&stderr);
        }
        // With several clusters: `ID;CLUSTER`.
        let output = String::from_utf8_lossy(&finished.stdout.head);
        let job = output.trim().split(';').next().unwrap_or_default().to_owned();
        if job.is_empty() {
            return Err(CommandFailure::not_submitted("sbatch printed no job id"));
        }
        Ok(job)
    }
}
