//! `delta run`: a new run, from the arguments to the exit code.

use super::failure::Failure;
use super::person::AtTerminal;
use super::stdout;
use crate::agent::Agent;
use crate::durable::{self, LogFile};
use crate::engine::Engine;
use crate::environment::Environment;
use crate::event::{EngineStart, Event, Payload, RunStatus};
use crate::human::Person;
use crate::id::RunId;
use crate::janitor;
use crate::llm::config::ModelChoice;
use crate::llm::{self, Endpoint, ProviderKind};
use crate::outcome::RunResult;
use crate::output::{self, Format};
use crate::progress::{Progress, Verbosity};
use crate::run::{Notice, Observer, Run};
use crate::signal::Cancel;
use crate::terminal;
use crate::text::Secrets;
use crate::time;
use crate::vars::Vars;
use crate::workspace::{Workspace, WorkspaceError};
use clap::Args;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

/// Run an agent on a task
///
/// Makes a new run in a workspace, and drives it until the task is done, a person has to answer, or something fails. The
/// result goes to stdout; what happens meanwhile to stderr.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct RunArgs {
    /// The agent directory
    #[arg(long, value_name = "DIR", default_value = ".")]
    agent: PathBuf,
    /// The task; `-` reads it from stdin
    #[arg(short, long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    message: String,
    /// The directory to work in, made when missing; a new one in the agent's workspaces/ by default
    #[arg(short, long, value_name = "DIR")]
    work_dir: Option<PathBuf>,
    /// LLM answers that may be asked for (the agent says how many by default)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_iterations: Option<u32>,
    /// The id of the run, for those who track it themselves (made by default)
    #[arg(long, value_name = "ID", value_parser = parse_run_id)]
    run_id: Option<RunId>,
    /// Another LLM than the agent's: NAME, or PROVIDER:NAME with openai, script or command
    #[arg(long, value_name = "MODEL", value_parser = ModelChoice::parse)]
    model: Option<ModelChoice>,
    /// What stdout carries
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Answer the agent's questions here, at the terminal
    #[arg(short, long)]
    interactive: bool,
    /// Never ask which workspace to use: make a new one
    #[arg(short, long)]
    yes: bool,
    /// Show reasoning and whole results too
    #[arg(short, long, conflicts_with = "quiet")]
    verbose: bool,
    /// Show errors only
    #[arg(short, long)]
    quiet: bool,
}

const EXAMPLES: &str = "\
Examples:
  delta run --agent ./my-agent -m \"Summarise the logs\"
  delta run -m - < task.md                      the task from a file
  delta run -w . -m \"Fix the test\"              work in this directory
  delta run -m \"...\" --format json | jq .result
  delta run --run-id \"$(uuidgen)\" -m \"...\"      an id of your own
  delta run --model openai:gpt-4o -m \"...\"      another LLM";

fn parse_run_id(text: &str) -> Result<RunId, String> {
    RunId::parse(text).map_err(|error| error.to_string())
}

impl RunArgs {
    fn verbosity(&self) -> Verbosity {
        match (self.quiet, self.verbose) {
            (true, _) => Verbosity::Quiet,
            (false, true) => Verbosity::Verbose,
            (false, false) => Verbosity::Normal,
        }
    }
}

/// Makes a run and drives it.
pub fn run(args: &RunArgs) -> ExitCode {
    let result = match perform(args) {
        Ok(result) => result,
        Err(failure) => {
            let code = failure.complain();
            if matches!(args.format, Format::Json | Format::Jsonl) {
                let id = args.run_id.as_ref().map(ToString::to_string);
                let (status, error) = (failure.status(), failure.info());
                let result = RunResult::without_run(id, status, error, time::now());
                stdout::write(&output::render(&result, args.format));
            }
            return code;
        }
    };
    stdout::write(&output::render(&result, args.format));
    ExitCode::from(match result.status {
        RunStatus::Completed => 0,
        RunStatus::Failed | RunStatus::Running => 1,
        RunStatus::WaitingForInput => 101,
        RunStatus::Interrupted => 130,
    })
}

fn perform(args: &RunArgs) -> Result<RunResult, Failure> {
    let message = message(&args.message)?;
    let agent = Agent::load(&args.agent, args.model.as_ref())?;
    let endpoint = match agent.llm.provider {
        ProviderKind::Openai => Some(Endpoint::resolve(&agent.llm, &variable)?),
        ProviderKind::Script(_) | ProviderKind::Command(_) => None,
    };
    let secrets = secrets(&agent);
    let cancel =
        Cancel::install().map_err(|error| Failure::config(format!("signals: {error}"), None))?;
    let workspace = choose_workspace(args, &agent, &cancel)?;
    let (id, dir, lock) = create_run(args, &workspace)?;
    for (name, text) in &agent.sources {
        durable::write_new(&dir.join("agent").join(name), secrets.hide(text).as_bytes())?;
    }
    let vars =
        Vars { agent_home: agent.home.clone(), cwd: workspace.root.clone(), run_dir: dir.clone() };
    let own: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
    let api_key_env = agent.llm.api_key_env.as_deref();
    let environment = Environment::new(own, api_key_env, id.as_str(), vars, secrets.clone());
    let provider = llm::connect(&agent.llm, endpoint, environment.launch_provider())?;
    let observer = observer(args, LogFile::open(&dir.join("engine.log"))?);
    let mut run = Run::create(id, &dir, lock, secrets, time::now, observer)?;
    let max_iterations = args.max_iterations.unwrap_or(agent.max_iterations);
    run.record(Payload::EngineStart(Box::new(start(&run, &agent, &workspace, max_iterations))));
    run.record(Payload::UserMessage { content: message });
    run.commit()?;

    let person = person(args, &cancel);
    Engine::new(&agent, environment, provider, cancel, person, time::now).drive(&mut run)?;
    guide(args, &run, &workspace);
    RunResult::of(run.state()).ok_or_else(|| Failure::config("the run has no beginning", None))
}

/// Who answers the agent's questions here: for `-i`, and only at a terminal.
fn person(args: &RunArgs, cancel: &Cancel) -> Option<Box<dyn Person>> {
    if args.interactive && !terminal::can_ask() && !args.quiet {
        stdout::complain(
            "Note: `-i` has no effect without a terminal; questions wait for `delta continue`",
        );
    }
    let here = args.interactive && terminal::can_ask();
    here.then(|| Box::new(AtTerminal { cancel: cancel.clone() }) as Box<dyn Person>)
}

/// The task: the option's text, or stdin.
fn message(option: &str) -> Result<String, Failure> {
    if option != "-" {
        return Ok(option.to_owned());
    }
    let mut text = String::new();
    let read = std::io::stdin().lock().read_to_string(&mut text);
    read.map_err(|error| {
        Failure::config(format!("the message cannot be read from stdin: {error}"), None)
    })?;
    match text.trim().is_empty() {
        true => Err(Failure::config(
            "the message on stdin is empty",
            Some("give the task on stdin".to_owned()),
        )),
        false => Ok(text.trim_end().to_owned()),
    }
}

/// A variable of the environment; an empty one counts as none.
#[expect(clippy::disallowed_methods, reason = "cli reads the environment")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The keys in the environment, used or not: none of them belongs into a file.
fn secrets(agent: &Agent) -> Secrets {
    let names =
        crate::environment::KEY_VARIABLES.into_iter().chain(agent.llm.api_key_env.as_deref());
    Secrets::new(names.filter_map(variable))
}

fn choose_workspace(args: &RunArgs, agent: &Agent, cancel: &Cancel) -> Result<Workspace, Failure> {
    if let Some(dir) = &args.work_dir {
        return Ok(Workspace::open(dir)?);
    }
    let names = Workspace::names_of(&agent.home);
    if args.yes || names.is_empty() || !terminal::can_ask() {
        return Ok(Workspace::next_of(&agent.home)?);
    }
    let mut prompt = String::from("Workspace?\n");
    for (index, name) in names.iter().enumerate() {
        let last = if index == 0 { "  (last used)" } else { "" };
        prompt.push_str(&format!("  {}) {name}{last}\n", index + 1));
    }
    prompt.push_str("  n) a new one\nchoose [n]> ");
    loop {
        let answer = terminal::ask(&prompt, cancel).map_err(|error| {
            let hint = "name one with `-w DIR`, or give `-y` for a new one";
            Failure::unanswered("no workspace was chosen", &error, hint)
        })?;
        let answer = answer.trim();
        if answer.is_empty() || answer.eq_ignore_ascii_case("n") {
            return Ok(Workspace::next_of(&agent.home)?);
        }
        let by_number =
            answer.parse::<usize>().ok().and_then(|number| names.get(number.checked_sub(1)?));
        if let Some(name) =
            by_number.or_else(|| names.iter().find(|name| name.eq_ignore_ascii_case(answer)))
        {
            let workspace = Workspace::open(&agent.home.join("workspaces").join(name))?;
            workspace.mark_last_used(&agent.home);
            return Ok(workspace);
        }
        prompt = format!("`{answer}` is not among them; a number, a name, or n> ");
    }
}

fn create_run(
    args: &RunArgs,
    workspace: &Workspace,
) -> Result<(RunId, PathBuf, durable::Lock), Failure> {
    loop {
        let id = args.run_id.clone().unwrap_or_else(|| {
            let [a, b, c, ..] = *uuid::Uuid::new_v4().as_bytes();
            RunId::mint(time::now(), [a, b, c])
        });
        match workspace.create_run(&id) {
            Ok((dir, lock)) => return Ok((id, dir, lock)),
            Err(WorkspaceError::Exists { .. }) if args.run_id.is_none() => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn start(run: &Run, agent: &Agent, workspace: &Workspace, max_iterations: u32) -> EngineStart {
    EngineStart {
        run_id: run.id.to_string(),
        epoch: 1,
        agent_home: agent.home.to_string_lossy().into_owned(),
        agent_name: agent.name.clone(),
        work_dir: workspace.root.to_string_lossy().into_owned(),
        workspace_id: workspace.name(),
        max_iterations,
        config: agent.summary(),
        process: janitor::myself(),
        engine_version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// Shows what happens on stderr, writes engine.log, and with `jsonl` every event to stdout.
fn observer(args: &RunArgs, log: LogFile) -> Observer {
    let mut progress = Progress::new(args.verbosity(), terminal::is_watched(), time::now);
    progress.log_to(log);
    if terminal::shows_result() && matches!(args.format, Format::Text | Format::Raw) {
        progress.leave_result_out();
    }
    let mut read = args.format == Format::Jsonl;
    Box::new(move |notice| {
        if let Notice::Recorded(event) = &notice {
            read = read && stdout::write(&Event::to_line(event));
        }
        progress.show(&notice);
    })
}

/// Says how to go on with a run that has no result yet.
fn guide(args: &RunArgs, run: &Run, workspace: &Workspace) {
    let (id, root) = (&run.id, shell_word(&workspace.root.to_string_lossy()));
    match run.state().status {
        Some(RunStatus::WaitingForInput) => {
            let response = run.dir.join("interaction/response.txt");
            stdout::complain("The agent waits for your answer. Give it in one of two ways:");
            stdout::complain(&format!("  delta continue --run-id {id} -w {root} -m ANSWER"));
            stdout::complain(&format!("  write it to {}", response.display()));
            stdout::complain(&format!("    and then: delta continue --run-id {id} -w {root}"));
        }
        Some(RunStatus::Interrupted) if !args.quiet => {
            stdout::complain(&format!("Go on with: delta continue --run-id {id} -w {root}"));
        }
        _ => {}
    }
}

/// `text` as one word of a shell command.
fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    if text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}
