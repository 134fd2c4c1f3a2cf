//! `delta test`: an author's own tests of an agent.

use super::failure::Failure;
use super::tool::agent_directory;
use super::{completions, drive, stdout};
use crate::agent::Agent;
use crate::agent_test::running::{self, Setting, TestResult};
use crate::agent_test::{self, DIRECTORY, Test, report};
use crate::durable;
use crate::environment::KEY_VARIABLES;
use crate::llm::cassette::Head;
use clap::{Args, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Carry out an agent's own tests
///
/// A test is a file `tests/NAME.yaml` of the agent directory: a task, what stands in for the LLM, and what has to come of it.
/// Each is a run in a temporary workspace, without a key. How to write one is in docs/guide/testing.md.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct TestArgs {
    /// The agent directory
    #[arg(default_value = ".", add = ArgValueCompleter::new(completions::Agents))]
    dir: PathBuf,
    /// Only these tests, by their names; `*` stands for any text
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Ask the agent's own LLM, and keep its answers in the cassettes of the tests
    #[arg(long)]
    record: bool,
    /// How many tests run at the same time (as many as there are processors by default)
    #[arg(short, long, value_name = "N", value_parser = super::parse_count)]
    jobs: Option<u32>,
    /// Keep the directories of all tests, not only of those that failed
    #[arg(long)]
    keep: bool,
    /// How to show what came of them
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

const EXAMPLES: &str = "\
Examples:
  delta test my-agent
  delta test my-agent greets 'refuses-*'
  delta test my-agent --format junit > report.xml
  DELTA_API_KEY=... delta test my-agent --record greets

Exit codes: 0 all passed, 1 some failed or there are none, 2 usage, 126 the agent or a test does not load, 130 interrupted";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs
    Json,
    /// For CI servers
    Junit,
}

/// How to begin with tests.
const FIRST: &str = "a test is a file such as tests/hello.yaml:
  task: Say hello
  llm: {turns: [{say: hello}]}
  expect: {result: hello}";

/// Carries out tests and prints what came of them; gives the exit code.
pub fn test(args: &TestArgs) -> ExitCode {
    match perform(args) {
        Ok(code) => code,
        Err(Refusal::Usage(message)) => super::usage_error("test", &message),
        Err(Refusal::Failure(failure)) => failure.complain(),
    }
}

/// Why no test was carried out.
enum Refusal {
    Usage(String),
    Failure(Failure),
}

impl<T: Into<Failure>> From<T> for Refusal {
    fn from(failure: T) -> Self {
        Self::Failure(failure.into())
    }
}

fn perform(args: &TestArgs) -> Result<ExitCode, Refusal> {
    let dir = agent_directory(&args.dir, "delta test").map_err(|it| for_a_name(args, it))?;
    let (agent, all) = load(&dir, args.record)?;
    if all.is_empty() {
        let there = agent.home.join(DIRECTORY);
        let message = format!("there are no tests in {}", there.display());
        return Err(Failure::none(message, FIRST).into());
    }
    let mut tests = agent_test::select(all, &args.names).map_err(Refusal::Usage)?;
    if args.record {
        tests = to_record(tests, &args.names)?;
        let (count, word) = counted(tests.len());
        stdout::complain(&format!("asking {} for the answers of {count} {word}", agent.llm.model));
    }
    let cancel = drive::cancel()?;
    let setting = setting(args, &agent)?;
    let (start, jobs) = (Instant::now(), args.jobs.and_then(|jobs| usize::try_from(jobs).ok()));
    let jobs = jobs.or_else(|| std::thread::available_parallelism().ok().map(Into::into));
    let mut done: Vec<TestResult> = Vec::new();
    let mut tell = |result: TestResult| {
        if args.format == Format::Text {
            stdout::write(&report::text(&result));
        }
        done.push(result);
    };
    let ran = running::run_all(&tests, &setting, jobs.unwrap_or(1), &cancel, &mut tell);
    // It is empty unless something of it is kept.
    let _ = std::fs::remove_dir(&setting.base);
    ran.map_err(|error| Failure::config(format!("the tests cannot be run: {error}"), None))?;
    let duration = start.elapsed();
    stdout::write(&match args.format {
        Format::Text => report::summary(&done, duration),
        Format::Json => report::json(&done),
        Format::Junit => report::junit(&agent.name, &done, duration),
    });
    if done.len() < tests.len() {
        let (count, word) = counted(tests.len());
        let message = format!("interrupted; {} of {count} {word} done", done.len());
        return Err(Failure::interrupted(message).into());
    }
    let passed = done.iter().all(|test| test.failures.is_empty());
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// `failure` with another hint, when what stands in the place of the directory is a test of the agent that is here.
fn for_a_name(args: &TestArgs, failure: Failure) -> Failure {
    let name = args.dir.display();
    let file = Path::new(DIRECTORY).join(format!("{name}.yaml"));
    if !file.is_file() || agent_directory(Path::new("."), "delta test").is_err() {
        return failure;
    }
    let hint = format!("the directory comes before the names of tests: `delta test . {name}`");
    failure.with_hint(Some(hint))
}

fn counted(count: usize) -> (usize, &'static str) {
    (count, if count == 1 { "test" } else { "tests" })
}

/// The agent and its tests; everything that is wrong with either at once.
fn load(dir: &Path, record: bool) -> Result<(Agent, Vec<Test>), Failure> {
    let agent = Agent::load(dir, None, &drive::import_path());
    let tests = match record {
        true => agent_test::load_to_record(dir),
        false => agent_test::load(dir),
    };
    match (agent, tests) {
        (Ok(agent), Ok(tests)) => Ok((agent, tests)),
        (Ok(_), Err(report)) | (Err(report), Ok(_)) => Err(report.into()),
        (Err(mut report), Err(mut more)) => {
            report.diagnostics.append(&mut more.diagnostics);
            Err(report.into())
        }
    }
}

/// Those of `tests` that have something to record; `names` are those that were asked for.
fn to_record(tests: Vec<Test>, names: &[String]) -> Result<Vec<Test>, Refusal> {
    let of_script = tests.iter().find(|test| !test.has_cassette());
    if let Some(test) = of_script.filter(|_| !names.is_empty()) {
        let message =
            format!("`{}` is answered by a script, there is nothing to record", test.name);
        return Err(Refusal::Usage(message));
    }
    let tests: Vec<Test> = tests.into_iter().filter(Test::has_cassette).collect();
    match tests.is_empty() {
        true => Err(Failure::none(
            "no test has a cassette, all are answered by scripts",
            "a test without `llm:` has the cassette tests/cassettes/NAME.jsonl",
        )
        .into()),
        false => Ok(tests),
    }
}

/// What the tests have in common. Where nothing is recorded no key is needed, and none is there.
fn setting(args: &TestArgs, agent: &Agent) -> Result<Setting, Failure> {
    let cannot = |what: &str, error: std::io::Error| {
        Failure::config(format!("{what} cannot be found: {error}"), None)
    };
    let program = std::env::current_exe().map_err(|error| cannot("the program itself", error))?;
    let temporary = std::env::temp_dir();
    let temporary = temporary.canonicalize().map_err(|error| {
        cannot(&format!("the directory for temporary files {}", temporary.display()), error)
    })?;
    let id = uuid::Uuid::new_v4().simple().to_string();
    let base = temporary.join(format!("delta-test-{}", &id[..8]));
    durable::ensure_dir(&base, true)?;
    let mut env: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
    let mut cwd = agent.home.clone();
    let record =
        args.record.then(|| Head::new(&agent.name, agent.llm.provider.name(), &agent.llm.model));
    match record {
        Some(_) => cwd = std::env::current_dir().unwrap_or(cwd),
        None => {
            let keys = KEY_VARIABLES.into_iter().chain(agent.llm.api_key_env.as_deref());
            keys.for_each(|key| drop(env.remove(OsStr::new(key))));
        }
    }
    Ok(Setting { program, home: agent.home.clone(), cwd, env, base, keep: args.keep, record })
}
