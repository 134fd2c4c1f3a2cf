//! `delta trust`: what the operator trusts: files of variables, endpoints with the keys, runs that others made, and keys of
//! other operators.

use crate::drive::continue_run::ClaimedRun;
use clap::Args;
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter};
use delta_agent::agent::env_layers::{
    DOTENV_FILE, is_engine_variable, parse_dotenv_names, read_dotenv_file,
};
use delta_agent::allowed_calls::{AllowedCall, CallIdentity, SHOWN_ID_DIGITS};
use delta_agent::trust_store::{AcceptedKey, KeyName, TrustStore, TrustedFile, TrustedHost};
use delta_base::redact::Secrets;
use delta_base::shell_quote::shell_quote_visibly;
use delta_base::terminal_text::{
    escape_terminal_controls, strip_terminal_controls, truncate_to_line,
};
use delta_operator::arguments::completion_candidates;
use delta_operator::failure::{CommandFailure, refuse_inside_run};
use delta_operator::runs::run_argument::RunArgument;
use delta_operator::runs::run_list;
use delta_operator::{cancel, state};
use delta_program::default_format::TextOrJson;
use delta_program::stdio;
use delta_run::event::Payload;
use delta_run::journal::signature::PublicKey;
use delta_run::run_files::JOURNAL_FILE;
use serde_json::{Value as Json, json};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Trust a .env file, a foreign run, an endpoint, or a key
///
/// A trusted `.env` file is read until it changes. A RUN is sealed with your key: `delta continue` then loads the agent
/// directory that its journal names, so do this only with a run whose origin you know. With --key, runs of another operator
/// verify, and `run --ensure` takes their results; their agents and approvals are not used.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct TrustArgs {
    /// File of variables, directory with a .env, run as in other commands, or with `--remove` the id of a call
    #[arg(value_name = "FILE|DIR|RUN", required_unless_present_any = ["list", "endpoint", "key", "new_key"], add = ArgValueCandidates::new(run_list::run_candidates))]
    targets: Vec<PathBuf>,
    /// Workspace
    #[arg(short, long, value_name = "DIR", default_value = ".", add = ArgValueCompleter::new(completion_candidates::WorkspaceCompleter))]
    work_dir: PathBuf,
    /// Allow your keys to be sent to HOST; repeatable
    #[arg(long, value_name = "HOST", value_parser = TrustedHost::parse)]
    endpoint: Vec<TrustedHost>,
    /// Accept the seals of another operator's key, which `delta config` prints
    #[arg(long, value_name = "KEY", value_parser = PublicKey::parse)]
    key: Option<PublicKey>,
    /// What delta calls the operator with the key
    #[arg(long, value_name = "NAME", requires = "key", value_parser = KeyName::parse)]
    name: Option<KeyName>,
    /// Seal with a new key; the former ones still verify your runs
    #[arg(long, conflicts_with_all = ["targets", "endpoint", "key", "remove"])]
    new_key: bool,
    /// Stop trusting the files, endpoints and keys, and allowing the calls
    #[arg(long, conflicts_with = "name")]
    remove: bool,
    /// List what you trust, and the calls that you have allowed with `p`
    #[arg(long, conflicts_with_all = ["targets", "endpoint", "key", "new_key", "remove"])]
    list: bool,
    /// Output format of the list
    #[arg(long, value_enum, default_value_t = TextOrJson::Text, requires = "list")]
    format: TextOrJson,
}

const EXAMPLES: &str = "\
Examples:
  delta trust ~/project                  # ~/project/.env, until it changes
  delta trust --endpoint openrouter.ai   # send your keys there
  delta show RUN -w ./work               # first see what a run is,
  delta trust RUN -w ./work              # then seal it as your own
  delta trust --key ed25519:Gb9E... --name alice   # believe the runs of alice
  delta trust --remove ~/project
  delta trust --list                     # also what you allowed with `p`
  delta trust --remove 4f2a91c03b7e      # ask about this call again";

/// Changes or lists what is trusted; returns the exit code.
pub fn trust_command(args: &TrustArgs) -> ExitCode {
    match change_or_list(args) {
        Ok(text) => {
            stdio::print_text(&text);
            ExitCode::SUCCESS
        }
        Err(failure) => failure.report(),
    }
}

fn change_or_list(args: &TrustArgs) -> Result<String, CommandFailure> {
    if args.list {
        let store = state::trust_store().map_err(no_state_directory)?;
        let calls = state::allowed_calls().map(|calls| calls.list()).unwrap_or_default();
        return Ok(list_trusted(&store, &calls, args.format));
    }
    refuse_inside_run("trust anything")?;
    if args.new_key {
        return add_key();
    }
    let store = state::own_trust_store().map_err(no_state_directory)?;
    if args.remove { remove_trusted(args, &store) } else { add_trusted(args, &store) }
}

fn no_state_directory(reason: String) -> CommandFailure {
    let message = format!("there is no state directory: {reason}");
    let hint = "set DELTA_STATE_DIR, or for one command DELTA_TRUST or DELTA_TRUST_ENDPOINT";
    CommandFailure::config(message, hint.to_owned())
}

/// Makes a new key seal the runs from now on.
fn add_key() -> Result<String, CommandFailure> {
    let key = state::add_seal_key().map_err(|missing| {
        let message = format!("could not write a new key: {}", missing.reason());
        CommandFailure::config(message, None)
    })?;
    Ok(format!("New key {}; seals of the former keys stay yours\n", key.public_key()))
}

fn add_trusted(args: &TrustArgs, store: &TrustStore) -> Result<String, CommandFailure> {
    let (runs, targets): (Vec<&PathBuf>, Vec<&PathBuf>) =
        args.targets.iter().partition(|target| names_run(target));
    // All files or none.
    let files = targets.into_iter().map(|target| FileToTrust::read(target));
    let files: Vec<FileToTrust> = files.collect::<Result<_, _>>()?;
    let mut out = String::new();
    for run in runs {
        out.push_str(&trust_run(run, args)?);
    }
    for file in &files {
        store.trust_file(&file.path, file.text.as_bytes())?;
        file.describe(&mut out);
    }
    for host in &args.endpoint {
        store.trust_host(host)?;
        let _ = writeln!(out, "Trusted the endpoint {} with your keys", host.as_str());
    }
    if let Some(key) = args.key {
        let accepted = AcceptedKey { name: choose_key_name(args, key, store)?, key };
        store.accept_key(&accepted)?;
        let _ = writeln!(out, "Accepted the key of {}: {key}", accepted.name.as_str());
    }
    Ok(out)
}

/// The name for a key, which no other key has.
fn choose_key_name(
    args: &TrustArgs,
    key: PublicKey,
    store: &TrustStore,
) -> Result<KeyName, CommandFailure> {
    let Some(name) = args.name.clone() else {
        let hint = format!("`delta trust --key {key} --name NAME`");
        return Err(CommandFailure::usage("a key that you accept needs a name", hint));
    };
    let known = store.list_keys();
    if let Some(other) = known.iter().find(|known| known.name == name && known.key != key) {
        let message = format!("{} is the name of the key {}", name.as_str(), other.key);
        let hint = "choose another name, or remove that key with `--remove --key KEY`";
        return Err(CommandFailure::already_exists(message, hint.to_owned()));
    }
    Ok(name)
}

/// Whether a target is a run: the directory of one, or the name of nothing in the current directory that can name a run.
fn names_run(target: &Path) -> bool {
    if target.exists() {
        return target.join(JOURNAL_FILE).exists();
    }
    target
        .to_str()
        .is_some_and(|text| !text.contains(".env") && RunArgument::parse_name(text).is_ok())
}

/// Seals a run with the operator's key.
fn trust_run(target: &Path, args: &TrustArgs) -> Result<String, CommandFailure> {
    let argument = match target.to_str().map(RunArgument::parse_name) {
        Some(Ok(name)) if !target.exists() => name,
        _ => RunArgument::Dir(target.to_owned()),
    };
    let run = argument.find(&args.work_dir).map_err(|failure| {
        if target.exists() || !failure.is_not_found() {
            return failure;
        }
        let message = format!("there is no file, directory or run {}", target.display());
        let hint = "name a file of variables, a directory with one in .env, or a run of the workspace `-w DIR`";
        CommandFailure::not_found(message, hint)
    })?;
    if let Err(missing) = state::seal_key() {
        let message = format!("there is no key to seal the run with: {}", missing.reason());
        let hint = "set DELTA_STATE_DIR to a directory of yours";
        return Err(CommandFailure::config(message, hint));
    }
    let cancel = cancel::install_cancel()?;
    let claimed = ClaimedRun::claim(&run, false)?;
    claimed.check_directory_owner()?;
    let agent_home = claimed.start.agent_home.clone();
    let task = truncate_to_line(&strip_terminal_controls(claimed.state().conversation.task()), 60);
    let observer = Box::new(|_: delta_run::run::RunNotice<'_>| {});
    let mut opened = claimed.open_run(Secrets::default(), observer, &cancel)?;
    let run_id = run.id.clone();
    opened.record(Payload::RunTrusted {
        run_id,
        agent_home: agent_home.clone(),
        received: None,
        seal: None,
    });
    opened.commit()?;
    let agent_home = strip_terminal_controls(&agent_home);
    Ok(format!("Trusted run {}: \"{task}\", with the agent in {agent_home}\n", run.id))
}

fn remove_trusted(args: &TrustArgs, store: &TrustStore) -> Result<String, CommandFailure> {
    let mut out = String::new();
    for target in &args.targets {
        if let Some(call) = find_allowed_call(target)? {
            state::allowed_calls().map_err(no_state_directory)?.remove(&call)?;
            let _ = writeln!(out, "No longer allowed: {}", describe_call(&call));
            continue;
        }
        let path = find_trusted_path(target, store);
        if !store.remove_file(&path)? {
            return Err(not_trusted_failure(&path.display().to_string()));
        }
        let _ = writeln!(out, "Stopped trusting {}", path.display());
    }
    for host in &args.endpoint {
        if !store.remove_host(host)? {
            return Err(not_trusted_failure(host.as_str()));
        }
        let _ = writeln!(out, "Stopped trusting the endpoint {}", host.as_str());
    }
    if let Some(key) = args.key {
        if !store.remove_key(&key)? {
            return Err(not_trusted_failure(&key.to_string()));
        }
        let _ = writeln!(out, "Stopped accepting the key {key}");
    }
    Ok(out)
}

/// The allowed call whose id begins with the target, where no file has that name.
fn find_allowed_call(target: &Path) -> Result<Option<AllowedCall>, CommandFailure> {
    let digits = target.to_string_lossy();
    let is_id =
        digits.len() >= SHOWN_ID_DIGITS && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_id || target.exists() {
        return Ok(None);
    }
    let calls = state::allowed_calls().map_err(no_state_directory)?.list();
    Ok(calls.into_iter().find(|call| call.id().starts_with(&*digits)))
}

/// An allowed call in one line.
fn describe_call(call: &AllowedCall) -> String {
    let CallIdentity { agent, tool, dir, .. } = &call.identity;
    let command =
        call.argv.iter().map(|word| shell_quote_visibly(word)).collect::<Vec<_>>().join(" ");
    let open = call.open.join(", ");
    let open = if open.is_empty() { open } else { format!(" with any {open}") };
    let line = format!("{agent} {tool} in {}: {command}{open}", dir.display());
    escape_terminal_controls(&line).replace('\n', "\\n")
}

fn not_trusted_failure(name: &str) -> CommandFailure {
    let hint = "`delta trust --list` shows what you trust";
    CommandFailure::nothing_found(format!("{name} is not trusted"), hint)
}

/// A file of variables without errors.
struct FileToTrust {
    /// Absolute, without symlinks.
    path: PathBuf,
    text: String,
    names: Vec<String>,
}

impl FileToTrust {
    fn read(target: &Path) -> Result<Self, CommandFailure> {
        let path = if target.is_dir() { target.join(DOTENV_FILE) } else { target.to_owned() };
        let name = path.display().to_string();
        let hint = "name a file with lines `NAME=value`, or a directory that contains .env";
        let failure = |reason: &str| {
            CommandFailure::config(format!("could not read {name}: {reason}"), hint.to_owned())
        };
        let text = match read_dotenv_file(&path) {
            Ok(Some((text, _))) => text,
            Ok(None) => return Err(failure("it does not exist")),
            Err(error) => return Err(failure(&error.to_string())),
        };
        let names = parse_dotenv_names(&name, &text)?;
        let path = path.canonicalize().map_err(|error| failure(&error.to_string()))?;
        Ok(Self { path, text, names })
    }

    /// Writes what the file can do from now on.
    fn describe(&self, out: &mut String) {
        let _ = writeln!(out, "Trusted {} until it changes", self.path.display());
        let (of_engine, of_tools): (Vec<&str>, Vec<&str>) =
            self.names.iter().map(String::as_str).partition(|name| is_engine_variable(name));
        if !of_engine.is_empty() {
            let _ = writeln!(out, "  delta takes {}", of_engine.join(", "));
        }
        if !of_tools.is_empty() {
            let names = of_tools.join(", ");
            let _ = writeln!(out, "  tools get of {names} those in `env_file` of agent.yaml");
        }
    }
}

/// The path under which a file was trusted, which may no longer exist.
fn find_trusted_path(target: &Path, store: &TrustStore) -> PathBuf {
    let absolute = std::path::absolute(target).unwrap_or_else(|_| target.to_owned());
    let real = absolute.canonicalize().unwrap_or_else(|_| {
        let parent = absolute.parent().and_then(|parent| parent.canonicalize().ok());
        parent.zip(absolute.file_name()).map_or(absolute.clone(), |(dir, name)| dir.join(name))
    });
    let in_directory = real.join(DOTENV_FILE);
    let files = store.list_files();
    if files.iter().any(|file| file.path == in_directory) { in_directory } else { real }
}

fn list_trusted(store: &TrustStore, calls: &[AllowedCall], format: TextOrJson) -> String {
    let files = store.list_files();
    let hosts = store.list_hosts();
    let keys = store.list_keys();
    match format {
        TextOrJson::Text => {
            let mut out = String::new();
            for file in &files {
                let state = match file_state(store, file) {
                    "trusted" => String::new(),
                    state => format!("  ({state}: not trusted)"),
                };
                // A name with a line end must not look like a second entry.
                let path = file.path.display().to_string().replace('\n', "\\n");
                let _ = writeln!(out, "file      {path}{state}");
            }
            for host in &hosts {
                let _ = writeln!(out, "endpoint  {}", host.as_str());
            }
            for AcceptedKey { name, key } in &keys {
                let _ = writeln!(out, "key       {key}  {}", name.as_str());
            }
            for call in calls {
                let id = &call.id()[..SHOWN_ID_DIGITS];
                let _ = writeln!(out, "call      {id}  {}", describe_call(call));
            }
            out
        }
        TextOrJson::Json => {
            let files: Vec<Json> = files
                .iter()
                .map(|file| {
                    let state = file_state(store, file);
                    json!({"path": file.path, "sha256": file.sha256, "state": state})
                })
                .collect();
            let hosts: Vec<&str> = hosts.iter().map(TrustedHost::as_str).collect();
            let calls = calls.iter().map(|call| {
                let CallIdentity { agent, tool, dir, .. } = &call.identity;
                json!({"id": call.id(), "agent": agent, "tool": tool, "dir": dir, "argv": call.argv, "open": call.open, "at": call.at})
            });
            let calls: Vec<Json> = calls.collect();
            let keys = keys.iter().map(
                |accepted| json!({"name": accepted.name.as_str(), "key": accepted.key.to_string()}),
            );
            let keys: Vec<Json> = keys.collect();
            format!(
                "{}\n",
                json!({"files": files, "endpoints": hosts, "keys": keys, "calls": calls})
            )
        }
    }
}

/// Whether the file is still what was trusted.
fn file_state(store: &TrustStore, file: &TrustedFile) -> &'static str {
    match read_dotenv_file(&file.path) {
        Ok(Some((text, _))) if store.is_file_trusted(&file.path, text.as_bytes()) => "trusted",
        Ok(None) => "missing",
        Ok(Some(_)) | Err(_) => "changed",
    }
}
