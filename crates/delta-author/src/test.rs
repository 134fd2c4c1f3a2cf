//! `delta test`: runs the tests of an agent.

use crate::tool::find_agent_dir;
use clap::{Args, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use delta_agent::agent::Agent;
use delta_base::api_key_names::{API_KEY_VARIABLES, KEY_SOURCE_VARIABLES, api_key_variables};
use delta_base::hex::encode_hex;
use delta_base::{durable, random};
use delta_lint::agent_test::test_runner::{self, TestResult, TestSetup};
use delta_lint::agent_test::{self, AgentTest, TESTS_DIR_NAME, test_report};
use delta_llm::llm::cassette::CassetteHeader;
use delta_llm::llm::{LlmConfig, ModelSelection};
use delta_operator::api_key::{self, KeyCommand, OperatorKey};
use delta_operator::arguments::completion_candidates;
use delta_operator::command_line::{self, pluralize};
use delta_operator::env_files::EnvFileOptions;
use delta_operator::failure::CommandFailure;
use delta_operator::sandbox_options::SandboxOptions;
use delta_operator::{cancel, config, environment, trust};
use delta_program::number_argument::parse_number_in;
use delta_program::stdio;
use delta_run::workspace::RUNS_DIR_VARIABLE;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Run an agent's tests
///
/// A test, the file `tests/NAME.yaml`, is a run in a temporary workspace and needs no API key. `delta schema test` prints the
/// keys of the file.
#[derive(Debug, Args)]
#[command(mut_arg("sandbox_without", |arg| arg.hide_long_help(true)), after_long_help = EXAMPLES)]
pub struct TestArgs {
    /// Agent directory
    #[arg(default_value = ".", add = ArgValueCompleter::new(completion_candidates::AgentCompleter))]
    dir: PathBuf,
    /// Run only the tests with these names; `*` matches any text
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Ask the agent's LLM and record its answers in the tests' cassettes
    #[arg(long)]
    record: bool,
    #[command(flatten)]
    env_files: EnvFileOptions,
    #[command(flatten)]
    sandbox: SandboxOptions,
    /// Run N tests in parallel [default: number of processors]
    #[arg(short, long, value_name = "N", value_parser = parse_number_in(1..=u32::MAX))]
    jobs: Option<u32>,
    /// Keep the directories of all tests, not only of failed ones
    #[arg(long)]
    keep: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = TestReportFormat::Text)]
    format: TestReportFormat,
}

const EXAMPLES: &str = "\
Examples:
  delta test my-agent greets 'refuses-*'
  delta test my-agent --format junit > report.xml
  DELTA_API_KEY=... delta test my-agent --record greets

Exit codes: 0 all tests passed, 1 a test failed or there are none, 2 usage error, 126 the agent or a test does not load, 130 interrupted";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TestReportFormat {
    /// Readable report
    Text,
    /// One JSON object
    Json,
    /// JUnit XML, for CI servers
    Junit,
}

/// The hint for an agent without tests.
const FIRST_TEST_HINT: &str = "create a test file such as tests/hello.yaml:
  task: Say hello
  llm: {turns: [{say: hello}]}
  expect: {result: hello}";

/// Runs tests and prints their results; returns the exit code.
pub fn test_command(args: &TestArgs) -> ExitCode {
    match run_agent_tests(args) {
        Ok(code) => code,
        Err(TestCommandError::Usage(message)) => {
            command_line::print_usage_error::<TestArgs>("test", &message)
        }
        Err(TestCommandError::Failure(failure)) => failure.report(),
    }
}

enum TestCommandError {
    Usage(String),
    Failure(CommandFailure),
}

impl<T: Into<CommandFailure>> From<T> for TestCommandError {
    fn from(failure: T) -> Self {
        Self::Failure(failure.into())
    }
}

fn run_agent_tests(args: &TestArgs) -> Result<ExitCode, TestCommandError> {
    let dir = find_agent_dir(&args.dir, "delta test")
        .map_err(|failure| with_directory_hint(args, failure))?;
    let (agent, all) = load_agent_and_tests(&dir, args.record)?;
    if all.is_empty() {
        let message =
            format!("there are no tests in {}", agent.home.join(TESTS_DIR_NAME).display());
        return Err(CommandFailure::nothing_found(message, FIRST_TEST_HINT).into());
    }
    let mut tests = agent_test::select_tests(all, &args.names).map_err(TestCommandError::Usage)?;
    if args.record {
        tests = select_recordable_tests(tests, &args.names)?;
        let count = pluralize(tests.len(), "test");
        let model = &agent.llm.model;
        stdio::print_error_line(&format!("recording the answers of {model} for {count}"));
    }
    let cancel = cancel::install_cancel()?;
    let setup = prepare_test_setup(args, &agent)?;
    let start = Instant::now();
    let jobs = args.jobs.and_then(|jobs| usize::try_from(jobs).ok());
    let jobs = jobs.or_else(|| std::thread::available_parallelism().ok().map(Into::into));
    let mut results: Vec<TestResult> = Vec::new();
    let outcome =
        test_runner::run_tests(&tests, &setup, jobs.unwrap_or(1), &cancel, &mut |result| {
            if args.format == TestReportFormat::Text {
                stdio::print_text(&test_report::render_test_text(&result));
            }
            results.push(result);
        });
    // Fails if the directories of tests were kept in it.
    let _ = std::fs::remove_dir(&setup.base_dir);
    outcome.map_err(|error| {
        CommandFailure::config(format!("could not run the tests: {error}"), None)
    })?;
    let duration = start.elapsed();
    stdio::print_text(&match args.format {
        TestReportFormat::Text => test_report::render_test_summary(&results, duration),
        TestReportFormat::Json => test_report::render_tests_json(&results),
        TestReportFormat::Junit => test_report::render_tests_junit(&agent.name, &results, duration),
    });
    if results.len() < tests.len() {
        let count = pluralize(tests.len(), "test");
        let message = format!("interrupted after {} of {count}", results.len());
        return Err(CommandFailure::interrupted(message).into());
    }
    let all_passed = results.iter().all(|test| test.failures.is_empty());
    Ok(if all_passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Replaces the hint if the directory argument is the name of a test of the agent in the current directory.
fn with_directory_hint(args: &TestArgs, failure: CommandFailure) -> CommandFailure {
    let name = args.dir.display();
    let file = Path::new(TESTS_DIR_NAME).join(format!("{name}.yaml"));
    if !file.is_file() || find_agent_dir(Path::new("."), "delta test").is_err() {
        return failure;
    }
    failure.with_hint(format!("name the directory before the tests: `delta test . {name}`"))
}

/// Loads the agent and its tests, and reports the mistakes in both at once.
fn load_agent_and_tests(
    dir: &Path,
    record: bool,
) -> Result<(Agent, Vec<AgentTest>), CommandFailure> {
    let models =
        if record { config::model_selection(None)? } else { ModelSelection::without_llm() };
    let agent = Agent::load(dir, &models, &trust::read_import_path());
    let tests =
        if record { agent_test::load_tests_to_record(dir) } else { agent_test::load_tests(dir) };
    match (agent, tests) {
        (Ok(agent), Ok(tests)) => Ok((agent, tests)),
        (Ok(_), Err(report)) | (Err(report), Ok(_)) => Err(report.into()),
        (Err(mut report), Err(mut more)) => {
            report.diagnostics.append(&mut more.diagnostics);
            Err(report.into())
        }
    }
}

/// Selects the tests that have a cassette. If the command line has `names`, a test without one is an error.
fn select_recordable_tests(
    tests: Vec<AgentTest>,
    names: &[String],
) -> Result<Vec<AgentTest>, TestCommandError> {
    if let Some(test) = tests.iter().find(|test| !test.has_cassette())
        && !names.is_empty()
    {
        let message = format!("test `{}` uses a script and has no answers to record", test.name);
        return Err(TestCommandError::Usage(message));
    }
    let tests: Vec<AgentTest> = tests.into_iter().filter(AgentTest::has_cassette).collect();
    if tests.is_empty() {
        return Err(CommandFailure::nothing_found(
            "no test has a cassette to record; all use scripts",
            "a test without `llm:` uses the cassette tests/cassettes/NAME.jsonl",
        )
        .into());
    }
    agent_test::check_own_cassettes(&tests).map_err(CommandFailure::from)?;
    Ok(tests)
}

fn find_operator_key() -> Result<Option<OperatorKey>, CommandFailure> {
    match api_key::read_operator_key()? {
        None => match KeyCommand::from_environment() {
            Some(command) => command.run(&cancel::install_cancel()?).map(Some),
            None => Ok(None),
        },
        key => Ok(key),
    }
}

/// The common setup of the tests. Without `--record` no test needs a key, and their environment has none.
fn prepare_test_setup(args: &TestArgs, agent: &Agent) -> Result<TestSetup, CommandFailure> {
    let not_found = |path: &str, error: std::io::Error| {
        CommandFailure::config(format!("could not find {path}: {error}"), None)
    };
    let program = std::env::current_exe().map_err(|error| not_found("the program delta", error))?;
    let temporary = std::env::temp_dir();
    let temporary = temporary.canonicalize().map_err(|error| {
        not_found(&format!("the temporary directory {}", temporary.display()), error)
    })?;
    let id = encode_hex(&random::random_bytes::<4>());
    let base_dir = temporary.join(format!("delta-test-{id}"));
    durable::ensure_private_dir(&base_dir)?;
    let mut env: BTreeMap<OsString, OsString> = environment::variables().clone();
    // Each test is a process of its own, and not every source of a key can be read twice.
    KEY_SOURCE_VARIABLES.iter().for_each(|name| drop(env.remove(OsStr::new(name))));
    // The runs of a test are in its own workspaces, wherever the operator keeps runs.
    env.insert(RUNS_DIR_VARIABLE.into(), OsString::new());
    // Nothing of a test outlives it.
    env.insert(environment::SURVIVE_VARIABLE.into(), "0".into());
    let mut keyless_env = env.clone();
    let key_names: Vec<&str> = agent.llm.models().flat_map(LlmConfig::key_variables).collect();
    for key in api_key_variables(&env, &key_names) {
        keyless_env.remove(OsStr::new(&key));
    }
    let mut cwd = agent.home.clone();
    let mut recording = None;
    if args.record {
        cwd = std::env::current_dir().unwrap_or(cwd);
        recording =
            Some(CassetteHeader::new(&agent.name, agent.llm.provider.name(), &agent.llm.model));
    } else {
        env.clone_from(&keyless_env);
    }
    let has_key = API_KEY_VARIABLES.iter().any(|name| env.contains_key(OsStr::new(name)));
    if args.record
        && !has_key
        && let Some(key) = find_operator_key()?
    {
        env.insert(API_KEY_VARIABLES[0].into(), key.value.into());
    }
    Ok(TestSetup {
        program,
        agent_home: agent.home.clone(),
        cwd,
        env,
        keyless_env,
        env_files: args.env_files.env_file.clone(),
        run_options: args.sandbox.arguments(),
        base_dir,
        keep_all: args.keep,
        recording,
    })
}
