//! What the operator trusts: files of variables by their content, hosts that may receive the keys, and keys of other
//! operators.
//!
//! Each decision is a small file of its own in the operator's state directory, so that two commands at the same time lose
//! none, and a start looks up only what it needs.

use crate::agent::env_layers::DOTENV_FILE;
use delta_base::durable::{self, FileError};
use delta_base::hex::sha256_hex;
use delta_base::terminal_text::strip_terminal_controls;
use delta_http::host_of;
use delta_run::journal::signature::PublicKey;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The variable with files and directories to trust, whatever their content; `*` trusts every file.
pub const TRUST_VARIABLE: &str = "DELTA_TRUST";
/// The variable with hosts that may receive the keys.
pub const TRUSTED_HOSTS_VARIABLE: &str = "DELTA_TRUST_ENDPOINT";

const FILES_DIR: &str = "trusted-files";
const HOSTS_DIR: &str = "trusted-endpoints";
const KEYS_DIR: &str = "trusted-keys";
/// The longest name of a key in bytes.
const MAX_NAME_BYTES: usize = 64;
/// Between the hash or the key and the rest, as `sha256sum` prints them.
const SEPARATOR: &[u8] = b"  ";

/// The decisions in the operator's state directory.
#[derive(Debug, Clone)]
pub struct TrustStore {
    directory: PathBuf,
}

/// A file that the operator trusts as long as it has this content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedFile {
    /// The absolute path, without symlinks.
    pub path: PathBuf,
    /// The SHA-256 of the content in hexadecimal digits.
    pub sha256: String,
}

/// The key of another operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptedKey {
    /// What the operator calls the other one.
    pub name: KeyName,
    /// The key for seals.
    pub key: PublicKey,
}

/// The name of an accepted key: a line of text without control characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyName(String);

impl KeyName {
    /// Parses a name.
    ///
    /// # Errors
    /// The text is not a name; the message says what is expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        let is_name = !text.is_empty()
            && text.len() <= MAX_NAME_BYTES
            && text.trim() == text
            && strip_terminal_controls(text) == text
            && !text.contains('\n');
        is_name.then(|| Self(text.to_owned())).ok_or_else(|| {
            format!(
                "expected one line of at most {MAX_NAME_BYTES} bytes without control characters"
            )
        })
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TrustStore {
    /// The store in a state directory, which need not exist.
    pub fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Trusts the file at `path`, absolute and without symlinks, as long as it has this content.
    ///
    /// # Errors
    /// The decision could not be written.
    pub fn trust_file(&self, path: &Path, content: &[u8]) -> Result<(), FileError> {
        let sha256 = sha256_hex(content);
        let entry = [sha256.as_bytes(), SEPARATOR, path.as_os_str().as_bytes(), b"\n"].concat();
        self.write_entry(FILES_DIR, &file_entry_name(path), &entry)
    }

    /// Whether the file at `path` is trusted with this content.
    pub fn is_file_trusted(&self, path: &Path, content: &[u8]) -> bool {
        let entry = read_entry(&self.directory.join(FILES_DIR).join(file_entry_name(path)));
        entry
            .and_then(|entry| parse_file_entry(&entry))
            .is_some_and(|trusted| trusted.path == path && trusted.sha256 == sha256_hex(content))
    }

    /// Stops trusting the file at `path`; returns whether it was trusted.
    ///
    /// # Errors
    /// The decision could not be removed.
    pub fn remove_file(&self, path: &Path) -> Result<bool, FileError> {
        remove_entry(&self.directory.join(FILES_DIR).join(file_entry_name(path)))
    }

    /// The trusted files, by path.
    pub fn list_files(&self) -> Vec<TrustedFile> {
        let entries = list_entries(&self.directory.join(FILES_DIR));
        let entries = entries.iter().filter_map(|path| read_entry(path));
        let mut files: Vec<_> = entries.filter_map(|entry| parse_file_entry(&entry)).collect();
        files.sort_by(|one, other| one.path.cmp(&other.path));
        files
    }

    /// Allows keys to be sent to `host`.
    ///
    /// # Errors
    /// The decision could not be written.
    pub fn trust_host(&self, host: &TrustedHost) -> Result<(), FileError> {
        self.write_entry(HOSTS_DIR, &host.0, &host.entry())
    }

    /// Whether keys may be sent to `host`.
    pub fn is_host_trusted(&self, host: &TrustedHost) -> bool {
        // A file that a killed command has left has another content than its name says.
        read_entry(&self.directory.join(HOSTS_DIR).join(&host.0))
            .is_some_and(|entry| entry == host.entry())
    }

    /// Stops trusting `host`; returns whether it was trusted.
    ///
    /// # Errors
    /// The decision could not be removed.
    pub fn remove_host(&self, host: &TrustedHost) -> Result<bool, FileError> {
        remove_entry(&self.directory.join(HOSTS_DIR).join(&host.0))
    }

    /// The trusted hosts, sorted.
    pub fn list_hosts(&self) -> Vec<TrustedHost> {
        let names = list_entries(&self.directory.join(HOSTS_DIR));
        let names = names.iter().filter_map(|path| path.file_name()?.to_str());
        let hosts = names.filter_map(|name| TrustedHost::parse(name).ok());
        let mut hosts: Vec<_> = hosts.filter(|host| self.is_host_trusted(host)).collect();
        hosts.sort();
        hosts
    }

    /// Accepts the seals of another operator.
    ///
    /// # Errors
    /// The decision could not be written.
    pub fn accept_key(&self, accepted: &AcceptedKey) -> Result<(), FileError> {
        let AcceptedKey { name, key } = accepted;
        let entry = [key.to_string().as_bytes(), SEPARATOR, name.0.as_bytes(), b"\n"].concat();
        self.write_entry(KEYS_DIR, &key_entry_name(key), &entry)
    }

    /// Stops accepting the seals of a key; returns whether they were accepted.
    ///
    /// # Errors
    /// The decision could not be removed.
    pub fn remove_key(&self, key: &PublicKey) -> Result<bool, FileError> {
        remove_entry(&self.directory.join(KEYS_DIR).join(key_entry_name(key)))
    }

    /// The accepted keys, by name.
    pub fn list_keys(&self) -> Vec<AcceptedKey> {
        let entries = list_entries(&self.directory.join(KEYS_DIR));
        let keys = entries.iter().filter_map(|path| {
            let accepted = parse_key_entry(&read_entry(path)?)?;
            // A file that a killed command has left has another name.
            path.ends_with(key_entry_name(&accepted.key)).then_some(accepted)
        });
        let mut keys: Vec<_> = keys.collect();
        keys.sort_by(|one, other| one.name.cmp(&other.name));
        keys
    }

    fn write_entry(&self, kind: &str, name: &str, entry: &[u8]) -> Result<(), FileError> {
        let directory = self.directory.join(kind);
        durable::ensure_private_dir(&directory)?;
        durable::replace_private_synced(&directory.join(name), entry)
    }
}

/// A host that may receive the keys: a name or an address, in lower case, without scheme and port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TrustedHost(String);

impl TrustedHost {
    /// Parses a host, or the host of a URL.
    ///
    /// # Errors
    /// The text is neither; the message says what is expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        host_of(text).map(|host| Self(host.to_ascii_lowercase())).ok_or_else(|| {
            format!("expected a host such as `llm.example.com`, or a URL, found `{text}`")
        })
    }

    /// The host as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn entry(&self) -> Vec<u8> {
        format!("{}\n", self.0).into_bytes()
    }
}

/// Everything that the operator trusts: in the store, and for one process in variables.
#[derive(Debug, Default)]
pub struct OperatorTrust {
    store: Option<TrustStore>,
    /// The directory that the agent can write.
    workspace: Option<PathBuf>,
    trusts_all_files: bool,
    files: Vec<PathBuf>,
    hosts: Vec<TrustedHost>,
}

impl OperatorTrust {
    /// `files` and `hosts` are the values of [`TRUST_VARIABLE`] and [`TRUSTED_HOSTS_VARIABLE`]. A store inside of
    /// `workspace` does not count.
    pub fn new(
        store: Option<TrustStore>,
        workspace: Option<&Path>,
        files: &OsStr,
        hosts: &str,
    ) -> Self {
        let listed = files.as_bytes().split(|byte| *byte == b':').filter(|path| !path.is_empty());
        let listed: Vec<&[u8]> = listed.collect();
        Self {
            store,
            workspace: workspace.and_then(|dir| dir.canonicalize().ok()),
            trusts_all_files: listed.contains(&&b"*"[..]),
            files: listed
                .into_iter()
                .map(|path| OsString::from_vec(path.to_vec()).into())
                .collect(),
            hosts: hosts
                .split(',')
                .filter_map(|host| TrustedHost::parse(host.trim()).ok())
                .collect(),
        }
    }

    /// The state directory, if the workspace contains it: what the agent can write decides nothing.
    pub fn ignored_directory(&self) -> Option<&Path> {
        let directory = &self.store.as_ref()?.directory;
        contains_directory(self.workspace.as_ref()?, directory).then_some(directory)
    }

    fn usable_store(&self) -> Option<&TrustStore> {
        self.store.as_ref().filter(|_| self.ignored_directory().is_none())
    }

    /// Whether the file at `path`, absolute and without symlinks, is trusted with this content; `None` if it cannot be read.
    pub fn trusts_file(&self, path: &Path, content: Option<&[u8]>) -> bool {
        self.trusts_all_files
            || self.files.iter().any(|listed| names_file(listed, path))
            || content.is_some_and(|content| {
                self.usable_store().is_some_and(|store| store.is_file_trusted(path, content))
            })
    }

    /// Whether keys may be sent to `host`.
    pub fn trusts_host(&self, host: &str) -> bool {
        let Ok(host) = TrustedHost::parse(host) else { return false };
        self.hosts.contains(&host)
            || self.usable_store().is_some_and(|store| store.is_host_trusted(&host))
    }
}

/// Whether a directory of the operator is in `workspace`, where the agent can write.
pub(crate) fn contains_directory(workspace: &Path, directory: &Path) -> bool {
    let paths = workspace.canonicalize().ok().zip(directory.canonicalize().ok());
    paths.is_some_and(|(workspace, directory)| directory.starts_with(workspace))
}

/// Whether `listed` is the file at `path`, or the directory whose `.env` it is.
fn names_file(listed: &Path, path: &Path) -> bool {
    listed.canonicalize().is_ok_and(|listed| listed == path || listed.join(DOTENV_FILE) == path)
}

/// The name of the entry for a path, which may be of any length.
fn file_entry_name(path: &Path) -> String {
    sha256_hex(path.as_os_str().as_bytes())
}

/// The name of the entry for a key: no hyphen leads it.
fn key_entry_name(key: &PublicKey) -> String {
    key.to_string().replace(':', "-")
}

fn parse_key_entry(entry: &[u8]) -> Option<AcceptedKey> {
    let text = std::str::from_utf8(entry).ok()?.strip_suffix('\n')?;
    let (key, name) = text.split_once("  ")?;
    Some(AcceptedKey { name: KeyName::parse(name).ok()?, key: PublicKey::parse(key).ok()? })
}

fn parse_file_entry(entry: &[u8]) -> Option<TrustedFile> {
    let (sha256, rest) = entry.split_at_checked(64)?;
    let path = rest.strip_prefix(SEPARATOR)?.strip_suffix(b"\n")?;
    Some(TrustedFile {
        path: OsString::from_vec(path.to_vec()).into(),
        sha256: String::from_utf8(sha256.to_vec()).ok()?,
    })
}

/// Reads a decision, unless another user made it: with `sudo` the state directory may be another user's.
pub(crate) fn read_entry(path: &Path) -> Option<Vec<u8>> {
    if !durable::is_own_or_roots(&fs::symlink_metadata(path).ok()?) {
        return None;
    }
    durable::read_small_no_follow(path).ok()
}

pub(crate) fn list_entries(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

pub(crate) fn remove_entry(path: &Path) -> Result<bool, FileError> {
    match durable::remove_file_synced(path) {
        Ok(()) => Ok(true),
        Err(error) if error.source.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> TrustedHost {
        TrustedHost::parse(text).unwrap()
    }

    #[test]
    fn c_20_1_a_file_is_trusted_with_one_content_in_one_place() {
        let directory = tempfile::tempdir().unwrap();
        let store = TrustStore::new(directory.path().join("state"));
        let path = Path::new("/w/a b\nc/.env");
        assert_eq!((store.is_file_trusted(path, b"A=1"), store.list_files()), (false, vec![]));
        store.trust_file(path, b"A=1").unwrap();
        assert!(store.is_file_trusted(path, b"A=1"));
        assert!(!store.is_file_trusted(path, b"A=2"));
        assert!(!store.is_file_trusted(Path::new("/w/.env"), b"A=1"));
        assert_eq!(store.list_files()[0].path, path);
        store.trust_file(path, b"A=2").unwrap();
        assert_eq!((store.is_file_trusted(path, b"A=1"), store.list_files().len()), (false, 1));
        assert_eq!(
            (store.remove_file(path).unwrap(), store.remove_file(path).unwrap()),
            (true, false)
        );
        assert!(!store.is_file_trusted(path, b"A=2"));
    }

    #[test]
    fn c_20_3_a_host_is_trusted_by_its_name_alone() {
        let directory = tempfile::tempdir().unwrap();
        let store = TrustStore::new(directory.path().to_owned());
        store.trust_host(&host("https://LLM.example.com:8443/v1")).unwrap();
        store.trust_host(&host("[::1]")).unwrap();
        assert_eq!(store.list_hosts(), [host("[::1]"), host("llm.example.com")]);
        assert!(store.is_host_trusted(&host("llm.example.com")));
        assert!(!store.is_host_trusted(&host("example.com")));
        assert!(!store.is_host_trusted(&host("a.llm.example.com")));
        assert!(store.remove_host(&host("llm.example.com")).unwrap());
        assert!(!store.is_host_trusted(&host("llm.example.com")));
        for wrong in ["", ".", "..", "a/../b", "../x", "a b", "user@host", "*"] {
            assert!(TrustedHost::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn c_20_1_the_variables_trust_for_one_process() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        fs::write(root.join(".env"), "A=1").unwrap();
        let trusts = |files: &str| {
            let trust = OperatorTrust::new(None, None, OsStr::new(files), "");
            trust.trusts_file(&root.join(".env"), Some(b"A=1"))
        };
        let (dir, file) = (root.display().to_string(), root.join(".env").display().to_string());
        for files in ["*", &dir, &file, &format!("/nowhere:{file}"), &format!("{dir}/:/nowhere")] {
            assert!(trusts(files), "{files}");
        }
        for files in ["", ":", "/", &format!("{dir}/sub"), &format!("{dir}/.env.local")] {
            assert!(!trusts(files), "{files}");
        }
        let trust = OperatorTrust::new(None, None, OsStr::new(""), "a.example, B.example");
        assert!(trust.trusts_host("A.EXAMPLE") && trust.trusts_host("b.example"));
        assert!(!trust.trusts_host("c.example"));
    }

    #[test]
    fn c_20_1_a_store_inside_of_the_workspace_decides_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let store = TrustStore::new(directory.path().join("state"));
        store.trust_host(&host("a.example")).unwrap();
        let trust = |workspace: &Path| {
            OperatorTrust::new(Some(store.clone()), Some(workspace), OsStr::new(""), "")
        };
        assert!(!trust(directory.path()).trusts_host("a.example"));
        assert!(trust(directory.path()).ignored_directory().is_some());
        let other = tempfile::tempdir().unwrap();
        assert!(trust(other.path()).trusts_host("a.example"));
    }
}
