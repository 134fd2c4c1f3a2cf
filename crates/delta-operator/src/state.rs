//! The operator's state directory: what delta remembers outside of every workspace.

use crate::environment;
use delta_agent::allowed_calls::AllowedCalls;
use delta_agent::child_environment::INNER_SEAL_VARIABLE;
use delta_agent::trust_store::{AcceptedKey, TrustStore};
use delta_base::api_key_names::KEY_FILE_VARIABLE;
use delta_base::durable;
use delta_base::hex::sha256_hex;
use delta_program::user_directory::find_user_directory;
use delta_run::journal::seal::{SealKeys, Signer};
use delta_run::journal::seal_key::{SealKey, SealKeyError};
use std::path::{Path, PathBuf};

/// The variable with the path of the state directory.
pub const STATE_DIR_VARIABLE: &str = "DELTA_STATE_DIR";
/// The variable with the path of the key for seals.
pub const SEAL_KEY_VARIABLE: &str = "DELTA_SEAL_KEY_FILE";
/// The directory of the logins at MCP servers, in the state directory.
const MCP_LOGIN_DIR: &str = "mcp-tokens";
/// The key for seals, in the state directory.
const SEAL_KEY_FILE: &str = "seal.key";

/// Why the key for seals cannot be used.
pub enum MissingKey {
    /// No place can keep one; contains the reason.
    Nowhere(String),
    /// No run begins without it.
    Required(SealKeyError),
}

impl MissingKey {
    /// The reason.
    pub fn reason(&self) -> String {
        match self {
            Self::Nowhere(reason) => reason.clone(),
            Self::Required(error) => error.to_string(),
        }
    }
}

impl From<SealKeyError> for MissingKey {
    fn from(error: SealKeyError) -> Self {
        if error.prevents_runs() { Self::Required(error) } else { Self::Nowhere(error.to_string()) }
    }
}

/// The state directory, which need not exist: `$DELTA_STATE_DIR`, else `delta` in `$XDG_STATE_HOME`, else in
/// `~/.local/state`.
///
/// # Errors
/// There is none; contains the reason.
fn find_state_dir() -> Result<PathBuf, String> {
    if let Some(chosen) = operator_path(STATE_DIR_VARIABLE)? {
        return Ok(chosen);
    }
    find_user_directory("XDG_STATE_HOME", ".local/state", environment::os_variable)
        .map(|dir| dir.join("delta"))
        .ok_or_else(|| format!("neither HOME nor {STATE_DIR_VARIABLE} is set"))
}

/// The path of the state directory, for a list.
pub fn state_dir_text() -> Option<String> {
    find_state_dir().ok().map(|dir| dir.display().to_string())
}

/// The path in a variable that is set and not empty. A relative one would lead into the current directory, which may be a
/// cloned repository that brings the file.
fn operator_path(variable: &str) -> Result<Option<PathBuf>, String> {
    let path = Path::new(environment::raw_variable(variable));
    if path.as_os_str().is_empty() {
        return Ok(None);
    }
    if path.is_relative() {
        return Err(format!("{variable} is not an absolute path"));
    }
    Ok(Some(path.to_owned()))
}

/// What the operator trusts.
///
/// # Errors
/// There is no state directory; contains the reason.
pub fn trust_store() -> Result<TrustStore, String> {
    find_state_dir().map(TrustStore::new)
}

/// The same for a change of it.
///
/// # Errors
/// There is no state directory that belongs to this user; contains the reason.
pub fn own_trust_store() -> Result<TrustStore, String> {
    own_state_dir().map(TrustStore::new).map_err(|missing| missing.reason())
}

/// The calls that the operator has allowed, for a change of them.
///
/// # Errors
/// There is no state directory that belongs to this user; contains the reason.
pub fn allowed_calls() -> Result<AllowedCalls, String> {
    own_state_dir().map(|dir| AllowedCalls::new(&dir)).map_err(|missing| missing.reason())
}

/// The state directory in which this user may create files.
pub fn own_state_dir() -> Result<PathBuf, MissingKey> {
    let dir = find_state_dir().map_err(MissingKey::Nowhere)?;
    check_own_dir(&dir).map_err(MissingKey::Nowhere)?;
    Ok(dir)
}

/// Checks that a directory of delta, which need not exist, is not one of another user: with `sudo`, HOME may be the caller's.
///
/// # Errors
/// It is; contains the reason.
pub fn check_own_dir(dir: &Path) -> Result<(), String> {
    // A system says by a HOME that does not exist that the user has none.
    if let Some(home) = environment::path_variable("HOME")
        && dir.starts_with(&home)
        && !home.is_dir()
    {
        return Err(format!("HOME is {}, which is not a directory", home.display()));
    }
    let existing = dir.ancestors().find(|dir| dir.is_dir()).unwrap_or(Path::new("/"));
    if !existing.metadata().is_ok_and(|metadata| durable::is_own_or_roots(&metadata)) {
        return Err(format!("{} belongs to another user", existing.display()));
    }
    Ok(())
}

/// The files and directories with the operator's keys, which need not exist.
pub fn key_paths() -> Vec<PathBuf> {
    let named = [SEAL_KEY_VARIABLE, KEY_FILE_VARIABLE];
    let named = named.into_iter().filter_map(environment::path_variable);
    find_state_dir().into_iter().chain(named).collect()
}

/// The file with the login at the MCP server at `url` for the client `client_id`, or for one that a login registers. It need
/// not exist.
///
/// # Errors
/// There is no state directory that belongs to this user; contains the reason.
pub fn mcp_login_file(url: &str, client_id: Option<&str>) -> Result<PathBuf, String> {
    let dir = own_state_dir().map_err(|missing| missing.reason())?;
    let name = sha256_hex(format!("{url}\n{}", client_id.unwrap_or_default()));
    Ok(dir.join(MCP_LOGIN_DIR).join(format!("{name}.json")))
}

/// The operator's key for seals, created if it is missing; in a sandbox of a run, the one that the run gave its tool.
pub fn seal_key() -> Result<SealKey, MissingKey> {
    match inner_seal_key() {
        Some(key) => Ok(key),
        None => Ok(SealKey::load_or_create(&seal_key_path()?)?),
    }
}

/// The keys whose seals say something to the operator: the own ones, created if they are missing, and the accepted ones.
pub fn seal_keys() -> SealKeys {
    keys_with_accepted(seal_key().ok())
}

/// The same, without creating a key.
///
/// # Errors
/// There are none; contains the reason.
pub fn existing_seal_keys() -> Result<SealKeys, String> {
    let seal_key = existing_seal_key();
    let reason = seal_key.as_ref().err().map(MissingKey::reason);
    let keys = keys_with_accepted(seal_key.ok());
    match reason {
        Some(reason) if keys.is_empty() => Err(reason),
        _ => Ok(keys),
    }
}

fn keys_with_accepted(seal_key: Option<SealKey>) -> SealKeys {
    let mut keys = SealKeys::new(seal_key);
    for AcceptedKey { name, key } in
        trust_store().map(|store| store.list_keys()).unwrap_or_default()
    {
        keys.add(Signer::Accepted(name.as_str().to_owned()), key);
    }
    keys
}

/// Makes a new key seal what this operator's processes record from now on.
///
/// # Errors
/// The key cannot be kept, or the file of keys cannot be changed.
pub fn add_seal_key() -> Result<SealKey, MissingKey> {
    Ok(SealKey::add_new(&seal_key_path()?)?)
}

/// The public half of the key, created if it is missing; `None` if there is no place for it.
pub fn own_key_text() -> Option<String> {
    seal_key().ok().map(|key| key.public_key().to_string())
}

/// The key that the run around this process gave its tool.
fn inner_seal_key() -> Option<SealKey> {
    SealKey::from_derived(&environment::variable(INNER_SEAL_VARIABLE)?)
}

/// The operator's key for seals, which is not created.
pub fn existing_seal_key() -> Result<SealKey, MissingKey> {
    match find_seal_key()? {
        Some(key) => Ok(key),
        None => {
            let path = seal_key_path()?;
            Err(MissingKey::Nowhere(format!("there is no key in {}", path.display())))
        }
    }
}

/// The same; `None` if there is no file for it yet, which a run would create.
pub fn find_seal_key() -> Result<Option<SealKey>, MissingKey> {
    if let Some(key) = inner_seal_key() {
        return Ok(Some(key));
    }
    let path = seal_key_path()?;
    Ok(if path.exists() { Some(SealKey::load_or_create(&path)?) } else { None })
}

fn seal_key_path() -> Result<PathBuf, MissingKey> {
    match operator_path(SEAL_KEY_VARIABLE).map_err(MissingKey::Nowhere)? {
        Some(path) => Ok(path),
        None => Ok(own_state_dir()?.join(SEAL_KEY_FILE)),
    }
}
