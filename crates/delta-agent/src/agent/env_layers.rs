//! The layers of the environment: files of variables, then the environment of the process.
//!
//! `.env` in the agent directory is the author's. Any other file is data until the operator trusts its very content; even
//! then it only sets keys and addresses, and for children the variables that agent.yaml names. The environment of the
//! process is not changed.

use super::dotenv;
use super::tool_imports::IMPORT_PATH_VARIABLE;
pub use crate::child_environment::EnvMap;
use crate::trust_store::{TRUST_VARIABLE, TRUSTED_HOSTS_VARIABLE};
use delta_base::api_key_names::{KEY_SOURCE_VARIABLES, VENDOR_KEY_VARIABLES};
use delta_base::redact::Secrets;
use delta_base::shell_quote::shell_quote_path;
use delta_base::text::utf8_text;
use delta_base::url_secrets::url_secrets;
use delta_llm::llm::endpoint::{ADDRESS_VARIABLES, EnvOrigin, EnvSetting};
use delta_run::budget::call_rate::RATE_VARIABLE;
use delta_run::budget::ledger;
use delta_run::limits::bounds::{DEPTH_VARIABLE, MAX_DEPTH_VARIABLE};
use delta_run::sweep::answer_scope::ANSWERS_VARIABLE;
use delta_yaml::diagnostic::{Diagnostic, DiagnosticReport};
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The maximum size of a file of variables.
const MAX_DOTENV_BYTES: u64 = 1 << 20;

/// The name of the file of variables in a directory.
pub const DOTENV_FILE: &str = ".env";

/// Whether a variable counts only in the environment of the process: it is how the operator speaks to delta.
pub fn is_process_only(name: &str) -> bool {
    const NAMES: [&str; 11] = [
        IMPORT_PATH_VARIABLE,
        ledger::BUDGET_VARIABLE,
        RATE_VARIABLE,
        ANSWERS_VARIABLE,
        DEPTH_VARIABLE,
        MAX_DEPTH_VARIABLE,
        TRUST_VARIABLE,
        TRUSTED_HOSTS_VARIABLE,
        "DELTA_STATE_DIR",
        "DELTA_SEAL_KEY_FILE",
        "DELTA_MODEL",
    ];
    NAMES.contains(&name) || KEY_SOURCE_VARIABLES.contains(&name)
}

/// The files of variables to look for.
#[derive(Debug)]
pub struct DotenvLocations<'a> {
    /// The workspace; `None` if it does not exist yet.
    pub workspace: Option<&'a Path>,
    /// The agent directory, absolute.
    pub agent_home: &'a Path,
    /// The current directory. The project's `.env` is next to the nearest `.git`, here or above.
    pub current_dir: &'a Path,
    /// The files of `--env-file`, strongest first.
    pub named_files: &'a [PathBuf],
}

/// Whether the operator trusts a file, given its path without symlinks and its content, `None` if it cannot be read.
pub type FileTrust<'a> = &'a dyn Fn(&Path, Option<&[u8]>) -> bool;

/// The files that count, strongest first, on top of the environment of the process.
#[derive(Debug)]
pub struct EnvLayers {
    files: Vec<DotenvLayer>,
    process: EnvMap,
    /// The key from a file, a descriptor or a command of the operator.
    operator_key: Option<EnvSetting>,
    /// The addresses in the operator's configuration, which count where no variable has one.
    operator_addresses: Vec<EnvSetting>,
    /// Notes for the operator about ignored files and variables.
    pub notes: Vec<String>,
    /// Whether the agent directory is inside of the workspace, so that its `.env` needs trust.
    pub has_agent_in_workspace: bool,
}

#[derive(Debug)]
struct DotenvLayer {
    origin: EnvOrigin,
    values: BTreeMap<String, String>,
}

/// What must hold for a file to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Requirement {
    /// The operator named it.
    Named,
    /// It is the author's.
    Agent,
    /// The operator trusts its content.
    Trust,
}

impl EnvLayers {
    /// Reads the files that count. `process` is the environment of this process.
    ///
    /// # Errors
    /// Files that cannot be read, and every syntax error in the others. Files without trust are skipped.
    pub fn read(
        locations: &DotenvLocations<'_>,
        process: EnvMap,
        is_trusted: FileTrust<'_>,
    ) -> Result<Self, DiagnosticReport> {
        let workspace = locations.workspace.and_then(|dir| dir.canonicalize().ok());
        let is_inside = |path: &Path| workspace.as_ref().is_some_and(|root| path.starts_with(root));
        let has_agent_in_workspace = is_inside(locations.agent_home);
        let mut layers = Self {
            files: Vec::new(),
            process,
            operator_key: None,
            operator_addresses: Vec::new(),
            notes: Vec::new(),
            has_agent_in_workspace,
        };
        let agent_file = locations.agent_home.join(DOTENV_FILE);
        let agent_requirement =
            if has_agent_in_workspace { Requirement::Trust } else { Requirement::Agent };
        let mut candidates: Vec<(PathBuf, Requirement)> = Vec::new();
        candidates
            .extend(locations.named_files.iter().map(|path| (path.clone(), Requirement::Named)));
        let in_workspace = workspace.as_deref().map(|dir| dir.join(DOTENV_FILE));
        candidates.extend(in_workspace.map(|path| (path, Requirement::Trust)));
        candidates.push((agent_file, agent_requirement));
        let of_project = find_project_dotenv(locations.current_dir);
        candidates.extend(of_project.map(|path| (path, Requirement::Trust)));
        let mut report = DiagnosticReport::default();
        let mut real_paths = BTreeSet::new();
        for (path, mut requirement) in candidates {
            let real = path.canonicalize().unwrap_or_else(|_| path.clone());
            // A symlink of the agent's may lead to a file that its tools can write.
            if requirement == Requirement::Agent && is_inside(&real) {
                requirement = Requirement::Trust;
            }
            // A file that is reached twice counts as the stronger layer.
            if real_paths.insert(real.clone()) {
                let file = DotenvCandidate { path: &path, real: &real, requirement };
                layers.add_file(&file, locations.current_dir, is_trusted, &mut report);
            }
        }
        layers.note_ignored_variables();
        if report.is_empty() { Ok(layers) } else { Err(report) }
    }

    fn add_file(
        &mut self,
        file: &DotenvCandidate<'_>,
        current_dir: &Path,
        is_trusted: FileTrust<'_>,
        report: &mut DiagnosticReport,
    ) {
        let name = file.path.display().to_string();
        let read = read_env_file(file.path, file.requirement == Requirement::Named);
        if file.requirement == Requirement::Trust {
            let text = match &read {
                Ok(Some((text, _))) => Some(text),
                Ok(None) => return,
                Err(_) => None,
            };
            if !is_trusted(file.real, text.map(String::as_bytes)) {
                // The content decides only whether there is something to say.
                if text.is_some_and(|text| sets_variables(text)) {
                    self.notes.push(untrusted_file_note(file.path));
                }
                return;
            }
        }
        let text = match read {
            Ok(None) if file.requirement == Requirement::Named => {
                let message = if file.path.is_dir() {
                    "expected a file, found a directory"
                } else {
                    "the file does not exist"
                };
                let help = "name an existing file with `--env-file`";
                report.push(Diagnostic::for_file(name, message, help));
                return;
            }
            Ok(None) => return,
            Ok(Some((_, owner)))
                if file.requirement == Requirement::Agent
                    && is_foreign_owner(owner, current_dir) =>
            {
                self.notes
                    .push(format!("Note: delta ignores {name}, which belongs to another user"));
                return;
            }
            Ok(Some((text, _))) => text,
            Err(error) => {
                let message = format!("could not read the file: {error}");
                let help = "a .env file is text with lines `NAME=value`";
                report.push(Diagnostic::for_file(name, message, help));
                return;
            }
        };
        let origin = match file.requirement {
            Requirement::Agent => EnvOrigin::Agent(name.clone()),
            Requirement::Named | Requirement::Trust => EnvOrigin::File(name.clone()),
        };
        match dotenv::parse_dotenv(&name, &text) {
            Ok(pairs) => {
                self.files.push(DotenvLayer { origin, values: pairs.into_iter().collect() })
            }
            Err(mut mistakes) => report.diagnostics.append(&mut mistakes.diagnostics),
        }
    }

    fn note_ignored_variables(&mut self) {
        for DotenvLayer { origin, values } in &self.files {
            let names = values.keys().map(String::as_str).filter(|name| is_process_only(name));
            let names = names.collect::<Vec<_>>().join(", ");
            if !names.is_empty() {
                self.notes.push(format!(
                    "Note: delta ignores {names} in {origin}: only the environment of the process counts"
                ));
            }
        }
    }

    /// Sets the key that the operator keeps in a file, a descriptor or a command, which `description` names. It counts
    /// where no variable holds one.
    pub fn set_operator_key(&mut self, name: &str, value: String, description: String) {
        let origin = EnvOrigin::KeySource(description);
        self.operator_key = Some(EnvSetting { name: name.to_owned(), value, origin });
    }

    /// Sets the addresses in the operator's configuration.
    pub fn set_operator_addresses(&mut self, addresses: Vec<EnvSetting>) {
        self.operator_addresses = addresses;
    }

    /// The variables for a program of the agent that runs before its tools do: the environment of the process and the
    /// `.env` file of the agent directory, without other values of the keys `key_names`.
    pub fn agent_program_variables(&self, key_names: &[String]) -> EnvMap {
        let mut env = self.process.clone();
        let withheld = key_names.iter().map(String::as_str).chain(KEY_SOURCE_VARIABLES);
        withheld.for_each(|name| drop(env.remove(OsStr::new(name))));
        let agent_files =
            self.files.iter().filter(|file| matches!(file.origin, EnvOrigin::Agent(_)));
        for (name, value) in agent_files.flat_map(|file| &file.values) {
            if !is_process_only(name) {
                env.insert(name.into(), value.into());
            }
        }
        env
    }

    /// Whether the variable has its value from the `.env` file of the agent directory.
    pub fn is_of_agent(&self, name: &str) -> bool {
        let strongest = self.settings(name).into_iter().next();
        strongest.is_some_and(|setting| matches!(setting.origin, EnvOrigin::Agent(_)))
    }

    /// All values of a variable, strongest first; empty values do not count.
    pub fn settings(&self, name: &str) -> Vec<EnvSetting> {
        let layers = self.files.iter().filter_map(|DotenvLayer { origin, values }| {
            Some((values.get(name)?.as_str(), origin.clone()))
        });
        let process = self.process.get(OsStr::new(name)).and_then(|value| value.to_str());
        let of_operator = self.operator_key.iter().chain(&self.operator_addresses);
        let of_operator = of_operator.filter(|setting| setting.name == name).cloned();
        layers
            .chain(process.map(|value| (value, EnvOrigin::Process)))
            .map(|(value, origin)| EnvSetting {
                name: name.to_owned(),
                value: value.to_owned(),
                origin,
            })
            .chain(of_operator)
            .filter(|setting| !setting.value.is_empty())
            .collect()
    }

    /// The values to redact: all values of the variables `key_names`, and the secrets in addresses, in every layer, used or
    /// not.
    pub fn secrets(&self, key_names: &[String]) -> Secrets {
        let keys = key_names.iter().flat_map(|name| self.settings(name));
        let addresses = ADDRESS_VARIABLES.iter().flat_map(|name| self.settings(name));
        let of_addresses = addresses.flat_map(|setting| url_secrets(&setting.value));
        Secrets::new(keys.map(|setting| setting.value).chain(of_addresses))
    }

    /// The files that set one of the variables `key_names`.
    pub fn key_files(&self, key_names: &[String]) -> Vec<PathBuf> {
        let files = self
            .files
            .iter()
            .filter(|layer| key_names.iter().any(|name| layer.values.contains_key(name)));
        let paths = files.filter_map(|layer| match &layer.origin {
            EnvOrigin::Agent(path) | EnvOrigin::File(path) => Some(PathBuf::from(path)),
            EnvOrigin::Process | EnvOrigin::KeySource(_) | EnvOrigin::AgentCommand => None,
        });
        paths.collect()
    }

    /// One line for each `DELTA_...` and `OPENAI_...` variable, saying which layer it comes from.
    /// Variables in `used` are listed from every layer; the environment of the process is listed only if `with_process`.
    pub fn describe_origins(&self, used: &[&str], with_process: bool) -> Vec<String> {
        let names = self.files.iter().flat_map(|layer| layer.values.keys().map(String::as_str));
        let names = names.filter(|name| name.starts_with("DELTA_") || name.starts_with("OPENAI_"));
        let names: BTreeSet<&str> = names.chain(used.iter().copied()).collect();
        let settings = names
            .into_iter()
            .filter(|name| !is_process_only(name))
            .filter_map(|name| self.settings(name).into_iter().next())
            .filter(|setting| with_process || !matches!(setting.origin, EnvOrigin::Process));
        settings.map(|setting| format!("{} is from {}", setting.name, setting.origin)).collect()
    }

    /// The variables for children: of the agent's file all, of another file those in `passed` and the keys, which a child
    /// gets by `pass_env` only.
    pub fn child_variables(&self, passed: &[String], key_names: &[String]) -> EnvMap {
        let mut env = self.process.clone();
        if let Some(key) = &self.operator_key {
            let value = env.entry(key.name.as_str().into()).or_default();
            if value.is_empty() {
                *value = key.value.as_str().into();
            }
        }
        for DotenvLayer { origin, values } in self.files.iter().rev() {
            let is_agent = matches!(origin, EnvOrigin::Agent(_));
            for (name, value) in values {
                let is_passed = is_agent || passed.contains(name) || key_names.contains(name);
                if is_passed && !is_process_only(name) {
                    env.insert(name.into(), value.into());
                }
            }
        }
        env
    }
}

/// A file of variables that may count.
struct DotenvCandidate<'a> {
    path: &'a Path,
    /// The path without symlinks.
    real: &'a Path,
    requirement: Requirement,
}

fn untrusted_file_note(path: &Path) -> String {
    format!(
        "Note: delta does not read {}, which you have not trusted; if it is yours: delta trust {}",
        path.display(),
        shell_quote_path(path)
    )
}

/// The names of the variables that a file sets, each once, in the order of the file; `name` is the file's name in messages.
///
/// # Errors
/// Every syntax error.
pub fn parse_dotenv_names(name: &str, text: &str) -> Result<Vec<String>, DiagnosticReport> {
    let mut unique = BTreeSet::new();
    let names = dotenv::parse_dotenv(name, text)?.into_iter().map(|(name, _)| name);
    Ok(names.filter(|name| unique.insert(name.clone())).collect())
}

/// Whether delta itself takes a variable from a trusted file, unless agent.yaml gives the key another name.
pub fn is_engine_variable(name: &str) -> bool {
    let is_known = VENDOR_KEY_VARIABLES.contains(&name) || ADDRESS_VARIABLES.contains(&name);
    is_known || name.starts_with("DELTA_") && !is_process_only(name)
}

/// Whether a file sets a variable, or might: it may have errors.
fn sets_variables(text: &str) -> bool {
    dotenv::parse_dotenv("", text).map_or(true, |pairs| !pairs.is_empty())
}

/// The text and the owner of a file; `None` if there is none, or if it is a directory, which may be
/// a virtual environment.
///
/// # Errors
/// The file cannot be read, is not regular or not UTF-8, or exceeds 1 MiB.
pub fn read_dotenv_file(path: &Path) -> io::Result<Option<(String, u32)>> {
    read_env_file(path, false)
}

/// The same. A file that the operator has named `may_be_pipe`, which another process fills, such as `<(pass show key)`.
fn read_env_file(path: &Path, may_be_pipe: bool) -> io::Result<Option<(String, u32)>> {
    let nonblock = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    // Opening a pipe would block until a process opens it for writing.
    let file = match OpenOptions::new().read(true).custom_flags(nonblock).open(path) {
        Ok(file) => file,
        Err(error) => {
            let absent = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
            return if absent.contains(&error.kind()) { Ok(None) } else { Err(error) };
        }
    };
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Ok(None);
    }
    let invalid = |reason: &str| io::Error::new(io::ErrorKind::InvalidData, reason.to_owned());
    let mut bytes = Vec::new();
    if metadata.is_file() {
        file.take(MAX_DOTENV_BYTES + 1).read_to_end(&mut bytes)?;
    } else if may_be_pipe && metadata.file_type().is_fifo() {
        bytes = read_pipe(file)?;
    } else {
        return Err(invalid("it is not a regular file"));
    }
    if bytes.len() as u64 > MAX_DOTENV_BYTES {
        return Err(invalid("it is larger than 1 MiB"));
    }
    let text = utf8_text(bytes).map_err(|problem| invalid(&problem))?;
    Ok(Some((text, metadata.uid())))
}

/// What other processes write into a pipe, until the last of them has closed it or there is too much. A signal ends the wait.
fn read_pipe(mut pipe: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    while bytes.len() as u64 <= MAX_DOTENV_BYTES {
        // Waits for the first process that writes, too: reading would be at the end at once.
        poll(&mut [PollFd::new(&pipe, PollFlags::IN)], None)?;
        match pipe.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

/// The project's `.env`: next to the nearest `.git`, from `current_dir` upward.
fn find_project_dotenv(current_dir: &Path) -> Option<PathBuf> {
    let root =
        current_dir.ancestors().find(|dir| fs::symlink_metadata(dir.join(".git")).is_ok())?;
    Some(root.join(DOTENV_FILE))
}

/// Whether a file with this owner may be a trap: in a directory such as /tmp, any user can create
/// `.git` and `.env`. In a container, root may work in the directory of another user; files of that
/// user are not foreign there.
fn is_foreign_owner(owner: u32, current_dir: &Path) -> bool {
    let user = rustix::process::geteuid().as_raw();
    if owner == user || owner == 0 {
        return false;
    }
    user != 0 || !fs::metadata(current_dir).is_ok_and(|metadata| metadata.uid() == owner)
}
