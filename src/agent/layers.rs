//! The layers of the environment: `.env` of the workspace, of the agent, of the project, then the process itself.
//!
//! The agent's tools write into the workspace, so a file that lies there is believed less: it never chooses which code
//! runs, and what it says never meets a key that it did not bring. Nothing here changes the environment of the process.

use super::dotenv;
use super::imports::IMPORT_PATH;
use crate::diag::{Diagnostic, Report};
use crate::ledger;
use crate::llm::endpoint::{Origin, PROXY_VARIABLES, Setting};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What a `.env` file may hold at most.
const LARGEST: u64 = 1 << 20;

/// The name of the file in each place.
const FILE_NAME: &str = ".env";

/// The variables that count in the environment of the process alone.
const OF_THE_PROCESS: [&str; 2] = [IMPORT_PATH, ledger::VARIABLE];

/// The variables of a process.
pub type Variables = BTreeMap<OsString, OsString>;

/// Where `.env` files are looked for.
#[derive(Debug)]
pub struct Places<'a> {
    /// The workspace; `None` when it is made only later.
    pub workspace: Option<&'a Path>,
    /// The agent directory, absolute.
    pub agent: &'a Path,
    /// The directory that the command was started in, for the project around it.
    pub current: &'a Path,
}

/// The files that were found, the strongest first, over the environment of the process.
#[derive(Debug)]
pub struct Layers {
    files: Vec<Layer>,
    process: Variables,
    /// What a person should know of them.
    pub notes: Vec<String>,
}

#[derive(Debug)]
struct Layer {
    origin: Origin,
    values: BTreeMap<String, String>,
}

impl Layers {
    /// Reads the files.
    ///
    /// # Errors
    /// Those that cannot be read, and all mistakes in the others.
    pub fn read(places: &Places<'_>, process: Variables) -> Result<Self, Report> {
        let workspace = places.workspace.and_then(|dir| dir.canonicalize().ok());
        let mut found: Vec<PathBuf> = Vec::new();
        found.extend(workspace.as_deref().map(|dir| dir.join(FILE_NAME)));
        found.push(places.agent.join(FILE_NAME));
        found.extend(project_file(places.current));
        let mut layers = Self { files: Vec::new(), process, notes: Vec::new() };
        let (mut report, mut seen) = (Report::default(), BTreeSet::new());
        for path in found {
            // A file that stands in two places counts in the stronger one, which is the one that is believed less.
            let real = path.canonicalize().unwrap_or_else(|_| path.clone());
            let inside =
                |path: &Path| workspace.as_ref().is_some_and(|root| path.starts_with(root));
            let origin = match inside(&path) || inside(&real) {
                true => Origin::Workspace(path.display().to_string()),
                false => Origin::File(path.display().to_string()),
            };
            if seen.insert(real) {
                layers.add(&path, origin, places.current, &mut report);
            }
        }
        layers.note_what_does_not_count();
        if report.is_empty() { Ok(layers) } else { Err(report) }
    }

    fn add(&mut self, path: &Path, origin: Origin, current: &Path, report: &mut Report) {
        let name = path.display().to_string();
        let text = match read_file(path) {
            Ok(None) => return,
            Ok(Some((_, owner))) if is_strange(owner, current) => {
                self.notes.push(format!("Note: {name} belongs to another user, and is not read"));
                return;
            }
            Ok(Some((text, _))) => text,
            Err(error) => {
                let message = format!("the file cannot be read: {error}");
                let help = "a .env file is text with lines `NAME=value`".to_owned();
                report.push(Diagnostic::of_file(name, message, Some(help)));
                return;
            }
        };
        match dotenv::parse(&name, &text) {
            Ok(pairs) => self.files.push(Layer { origin, values: pairs.into_iter().collect() }),
            Err(mut mistakes) => report.diagnostics.append(&mut mistakes.diagnostics),
        }
    }

    fn note_what_does_not_count(&mut self) {
        for layer in &self.files {
            let unsafe_here = |name: &&str| match &layer.origin {
                Origin::Workspace(_) => {
                    steers(name) || PROXY_VARIABLES.iter().any(|it| it.eq_ignore_ascii_case(name))
                }
                Origin::File(_) | Origin::Process => OF_THE_PROCESS.contains(name),
            };
            let names: Vec<&str> =
                layer.values.keys().map(String::as_str).filter(unsafe_here).collect();
            if !names.is_empty() {
                let (names, origin) = (names.join(", "), &layer.origin);
                let why = match origin {
                    Origin::Workspace(_) => "the agent can write that file",
                    Origin::File(_) | Origin::Process => {
                        "only the environment of the process counts"
                    }
                };
                self.notes.push(format!("Note: delta does not take {names} from {origin}: {why}"));
            }
        }
    }

    /// The values of a variable, the strongest first; an empty one counts as none.
    pub fn values(&self, name: &str) -> Vec<Setting> {
        let of_file = |layer: &Layer| {
            let value = layer.values.get(name)?.clone();
            Some(Setting { name: name.to_owned(), value, origin: layer.origin.clone() })
        };
        let own = self.process.get(OsStr::new(name)).and_then(|value| value.to_str());
        let own = own.map(|value| Setting {
            name: name.to_owned(),
            value: value.to_owned(),
            origin: Origin::Process,
        });
        let all = self.files.iter().filter_map(of_file).chain(own);
        all.filter(|setting| !setting.value.is_empty()).collect()
    }

    /// The values in all layers of the variables that hold keys.
    pub fn keys(&self, names: &[&str]) -> Vec<String> {
        let all = names.iter().flat_map(|name| self.values(name));
        let counts = |found: &Setting| match found.origin {
            // Otherwise the agent could have any word taken out of what people and the LLM are shown.
            Origin::Workspace(_) => is_like_a_key(&found.value),
            Origin::File(_) | Origin::Process => true,
        };
        all.filter(counts).map(|found| found.value).collect()
    }

    /// Which layer each `DELTA_...` and `OPENAI_...` is from, a line for each; of the process's own environment only
    /// those in `used`.
    pub fn account(&self, used: &[&str]) -> Vec<String> {
        let ours = |name: &&str| name.starts_with("DELTA_") || name.starts_with("OPENAI_");
        let of_files = self.files.iter().flat_map(|layer| layer.values.keys().map(String::as_str));
        let names: BTreeSet<&str> = of_files.filter(ours).chain(used.iter().copied()).collect();
        let first = |name: &str| self.values(name).into_iter().next();
        let line = |found: Setting| format!("{} is from {}", found.name, found.origin);
        let of_files = |name: &&str| !OF_THE_PROCESS.contains(name);
        names.into_iter().filter(of_files).filter_map(first).map(line).collect()
    }

    /// The environment of children: all layers, and those alone that the agent cannot write.
    pub fn merged(&self) -> (Variables, Variables) {
        let (mut all, mut trusted) = (self.process.clone(), self.process.clone());
        for layer in self.files.iter().rev() {
            let writable = matches!(layer.origin, Origin::Workspace(_));
            for (name, value) in layer.values.iter().filter(|(name, _)| !writable || !steers(name))
            {
                all.insert(name.into(), value.into());
                if !writable {
                    trusted.insert(name.into(), value.into());
                }
            }
        }
        (all, trusted)
    }
}

/// The text of a file and the id of its owner; `None` where there is no file. A directory of that name is somebody's
/// virtual environment.
fn read_file(path: &Path) -> io::Result<Option<(String, u32)>> {
    let nonblock = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    // A pipe would keep the engine waiting for whoever made it.
    let mut file = match OpenOptions::new().read(true).custom_flags(nonblock).open(path) {
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
    if !metadata.is_file() {
        return Err(invalid("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.by_ref().take(LARGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST {
        return Err(invalid("it is larger than 1 MiB"));
    }
    let text = String::from_utf8(bytes).map_err(|_| invalid("it is not UTF-8"))?;
    Ok(Some((text, metadata.uid())))
}

/// Where the project's file belongs: beside the nearest `.git` from `current` upward.
fn project_file(current: &Path) -> Option<PathBuf> {
    let root = current.ancestors().find(|dir| fs::symlink_metadata(dir.join(".git")).is_ok())?;
    Some(root.join(FILE_NAME))
}

/// Whether a file of that owner could be a trap: in a directory like /tmp anybody can make a `.git` and a `.env`. In a
/// container root works in a directory of somebody else's; the owner of that may write there.
fn is_strange(owner: u32, current: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    let hosts = |host: fs::Metadata| own == 0 && host.uid() == owner;
    owner != own && owner != 0 && !fs::metadata(current).is_ok_and(hosts)
}

/// Whether `value` has the form that keys have, and words and the names of fields have not.
fn is_like_a_key(value: &str) -> bool {
    value.starts_with(|c: char| c.is_ascii_alphanumeric())
        && value
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '+' | '/' | '='))
        && value.contains(|c: char| c.is_ascii_digit() || c == '-')
}

/// Whether a variable chooses which code a program runs, or what delta may read. No such list is complete: it has what
/// shells, loaders, interpreters and the common tools look at.
fn steers(name: &str) -> bool {
    const PREFIXES: [&str; 16] = [
        "LD_",
        "DYLD_",
        "BASH_",
        "PYTHON",
        "PERL",
        "RUBY",
        "GEM_",
        "BUNDLE_",
        "GIT_",
        "LUA_",
        "XDG_",
        "CARGO_",
        "RUSTC",
        "NPM_CONFIG_",
        "SSH_",
        "JAVA_",
    ];
    const NAMES: [&str; 39] = [
        "PATH",
        "HOME",
        "SHELL",
        "ENV",
        "IFS",
        "PS4",
        "CDPATH",
        "SHELLOPTS",
        "BASHOPTS",
        "PROMPT_COMMAND",
        "ZDOTDIR",
        "GCONV_PATH",
        "GLIBC_TUNABLES",
        "LOCPATH",
        "NODE_OPTIONS",
        "NODE_PATH",
        "JDK_JAVA_OPTIONS",
        "_JAVA_OPTIONS",
        "CLASSPATH",
        "GOFLAGS",
        "GOPATH",
        "GOROOT",
        "GOENV",
        "PHPRC",
        "PHP_INI_SCAN_DIR",
        "R_PROFILE",
        "MAKEFLAGS",
        "MAKEFILES",
        "CC",
        "CXX",
        "EDITOR",
        "VISUAL",
        "PAGER",
        "MANPAGER",
        "LESSOPEN",
        "LESSCLOSE",
        "BROWSER",
        IMPORT_PATH,
        ledger::VARIABLE,
    ];
    let upper = name.to_ascii_uppercase();
    NAMES.contains(&upper.as_str()) || PREFIXES.iter().any(|prefix| upper.starts_with(prefix))
}
