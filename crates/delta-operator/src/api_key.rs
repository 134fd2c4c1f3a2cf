//! The key that the operator keeps outside of the environment: in a file, in an open descriptor, or as the output of a command.

use crate::failure::CommandFailure;
use crate::{config, environment};
use delta_agent::agent::env_layers::EnvMap;
use delta_base::api_key_names::{
    API_KEY_VARIABLES, KEY_COMMAND_VARIABLE, KEY_FD_VARIABLE, KEY_FILE_VARIABLE,
    KEY_SOURCE_VARIABLES,
};
use delta_base::redact::Secrets;
use delta_base::shell_quote::shell_quote;
use delta_base::signal::CancelToken;
use delta_llm::llm::LlmError;
use delta_llm::llm::endpoint::{ADDRESS_VARIABLES, KeySource};
use delta_process::{self as process, LaunchContext, ProcessCommand, ProcessEnd};
use delta_run::record::describe_process_end;
use delta_words::WireForm;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

/// No key is longer.
const MAX_KEY_BYTES: usize = 64 << 10;
/// A password manager may ask the operator for a passphrase.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(120);

/// A key and where it comes from.
#[derive(Debug, Clone)]
pub struct OperatorKey {
    /// The secret itself.
    pub value: String,
    /// Where the key is from, for messages; never a part of it.
    pub description: String,
}

/// The key in the file or the descriptor that the environment names.
///
/// # Errors
/// It cannot be read, or is not a key.
pub fn read_operator_key() -> Result<Option<OperatorKey>, CommandFailure> {
    // A descriptor can be read only once.
    static KEY: OnceLock<OperatorKey> = OnceLock::new();
    if let Some(key) = KEY.get() {
        return Ok(Some(key.clone()));
    }
    let (variable, path) = if let Some(path) = environment::variable(KEY_FILE_VARIABLE) {
        (KEY_FILE_VARIABLE, path)
    } else if let Some(number) = environment::variable(KEY_FD_VARIABLE) {
        if number.parse::<u32>().is_err() {
            let message = format!(
                "expected the number of a descriptor in DELTA_API_KEY_FD, found `{number}`"
            );
            let hint = "for example: DELTA_API_KEY_FD=9 delta run ... 9< <(pass show llm)";
            return Err(CommandFailure::config(message, hint));
        }
        (KEY_FD_VARIABLE, format!("/dev/fd/{number}"))
    } else {
        return Ok(None);
    };
    let source_name = format!("{path} ({variable})");
    let text = read_key_text(Path::new(&path)).map_err(|error| {
        CommandFailure::config(
            format!("could not read the API key from {source_name}: {error}"),
            None,
        )
    })?;
    let key = OperatorKey { value: check_key(&text, &source_name)?, description: source_name };
    Ok(Some(KEY.get_or_init(|| key).clone()))
}

/// Whether the environment has a key, the source of one or another endpoint, or the configuration a command for the key.
///
/// # Errors
/// The operator's configuration has errors.
pub fn is_configured() -> Result<bool, CommandFailure> {
    let names = API_KEY_VARIABLES.iter().chain(&KEY_SOURCE_VARIABLES).chain(&ADDRESS_VARIABLES);
    let mut names = names.copied();
    Ok(names.any(|name| environment::variable(name).is_some()) || config::read()?.has_key_command())
}

/// Reads a file that may also be a pipe: the operator chose it.
fn read_key_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MAX_KEY_BYTES as u64).read_to_string(&mut text)?;
    Ok(text)
}

fn check_key(text: &str, source_name: &str) -> Result<String, CommandFailure> {
    let key = text.trim();
    let problem = match key.lines().count() {
        0 => "nothing",
        1 => return Ok(key.to_owned()),
        _ => "several lines",
    };
    let message = format!("expected one line with the API key from {source_name}, found {problem}");
    Err(CommandFailure::config(message, None))
}

/// A command that prints a key.
#[derive(Debug, Clone)]
pub struct KeyCommand {
    argv: Vec<String>,
    env: EnvMap,
    /// What may be in the messages of the command.
    secrets: Secrets,
    /// Where the command is written, for messages.
    source_name: String,
}

impl KeyCommand {
    /// The command that the environment of the process names.
    pub fn from_environment() -> Option<Self> {
        let command = environment::variable(KEY_COMMAND_VARIABLE)?;
        Some(Self::of_operator(command, KEY_COMMAND_VARIABLE.to_owned()))
    }

    /// The command for keys of `form` in the operator's configuration.
    ///
    /// # Errors
    /// The configuration has errors.
    pub fn from_config(form: WireForm) -> Result<Option<Self>, CommandFailure> {
        let config = config::read()?;
        let Some(command) = config.api_key_command(form) else { return Ok(None) };
        let source_name = format!("api_key_command in {}", config.path_text());
        Ok(Some(Self::of_operator(command.to_owned(), source_name)))
    }

    fn of_operator(command: String, source_name: String) -> Self {
        let argv = ["sh".to_owned(), "-c".to_owned(), command];
        let env = environment::variables().clone();
        Self { argv: argv.into(), env, secrets: Secrets::default(), source_name }
    }

    /// The command of an agent, with the environment of its tools: it comes with the agent, so no key of the operator may
    /// reach it.
    pub fn of_agent(argv: Vec<String>, env: EnvMap, secrets: Secrets) -> Self {
        Self { argv, env, secrets, source_name: "`llm.api_key_command`".to_owned() }
    }

    /// Where the command is written.
    pub fn source_name(&self) -> &str {
        &self.source_name
    }

    /// Runs the command outside of the workspace, whose files might have the names of programs.
    ///
    /// # Errors
    /// The command failed, or printed no key.
    pub fn run(&self, cancel: &CancelToken) -> Result<OperatorKey, CommandFailure> {
        let launch = LaunchContext {
            secrets: self.secrets.clone(),
            ..LaunchContext::new(environment::home_or_root(), self.env.clone())
        };
        let command = ProcessCommand::new(&self.argv, &launch, COMMAND_TIMEOUT, 2 * MAX_KEY_BYTES);
        let finished = process::run_process(&command, cancel);
        let source_name = format!("the command of {}", self.source_name);
        if finished.end != ProcessEnd::Exited(0) {
            let reason = match &finished.end {
                ProcessEnd::Exited(code) => format!("it exited with {code}"),
                end => describe_process_end(end).unwrap_or_else(|| "it failed".to_owned()),
            };
            let stderr = String::from_utf8_lossy(&finished.stderr.head).trim().to_owned();
            let message = format!("{source_name} did not print the API key: {reason}");
            let stderr = Some(stderr).filter(|text| !text.is_empty());
            return Err(CommandFailure::config(message, stderr));
        }
        let output = String::from_utf8_lossy(&finished.stdout.head);
        Ok(OperatorKey { value: check_key(&output, &source_name)?, description: source_name })
    }
}

impl KeySource for KeyCommand {
    fn read_key(&self, cancel: &CancelToken) -> Result<String, LlmError> {
        let key = self.run(cancel).map_err(|failure| {
            if cancel.is_requested() { LlmError::Cancelled } else { failure.into_llm_error() }
        })?;
        Ok(key.value)
    }

    fn description(&self) -> String {
        let argv: Vec<&str> = self.argv.iter().map(String::as_str).collect();
        let command = match argv.as_slice() {
            ["sh", "-c", script] => (*script).to_owned(),
            words => words.iter().map(|word| shell_quote(word)).collect::<Vec<_>>().join(" "),
        };
        format!("`{command}` ({})", self.source_name.trim_matches('`'))
    }
}
