//! What a sandbox allows, as it is enforced: every path is absolute and resolved, every name of a profile is replaced by
//! what it means.

use crate::profile::env_filter::EnvAccess;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

pub(crate) mod declaration;
pub(crate) mod env_filter;
pub(crate) mod git_directory;
pub(crate) mod git_links;
pub(crate) mod hidden_entry;
pub(crate) mod host_text;
pub(crate) mod intersection;
pub(crate) mod resolution;

/// What the processes of a tool may do. Everything that is not allowed is refused by the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxProfile {
    /// Below these directories, or in these files, everything can be changed. They exist.
    #[serde(with = "any_paths")]
    pub write: Vec<PathBuf>,
    /// Below a path of `write`, but read-only. They exist.
    #[serde(with = "any_paths")]
    pub keep: Vec<PathBuf>,
    /// What can be read, apart from `hide`.
    pub read: ReadAccess,
    /// What cannot be read, and looks empty. They exist.
    #[serde(with = "any_paths")]
    pub hide: Vec<PathBuf>,
    /// The home directory of the operator.
    pub home: HomeAccess,
    /// The network.
    pub net: NetAccess,
    /// The environment.
    pub env: EnvAccess,
    /// Unix sockets outside of the sandbox that can be connected to.
    pub sockets: Vec<PathBuf>,
    /// Resources.
    pub limits: SandboxLimits,
    /// Whether the tool may start runs of its own below the `.delta` of the workspace.
    pub runs: bool,
}

/// Paths whose bytes can be any; serde refuses a path that is not UTF-8.
mod any_paths {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::ffi::{OsStr, OsString};
    use std::path::PathBuf;

    pub(super) fn serialize<S: Serializer>(
        paths: &[PathBuf],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let names: Vec<&OsStr> = paths.iter().map(|path| path.as_os_str()).collect();
        names.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<PathBuf>, D::Error> {
        let names = Vec::<OsString>::deserialize(deserializer)?;
        Ok(names.into_iter().map(PathBuf::from).collect())
    }
}

/// Which files can be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReadAccess {
    /// Everything.
    All,
    /// The directories of the system, and these files and directories.
    Only(Vec<PathBuf>),
}

/// What a tool sees of the home directory, from the least to the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum HomeAccess {
    /// An empty directory.
    Hidden,
    /// Read-only.
    Read,
    /// Can be changed, but the changes are gone when the process that drives the run leaves it.
    Copy,
    /// As it is.
    Write,
}

impl HomeAccess {
    const ALL: [Self; 4] = [Self::Hidden, Self::Read, Self::Copy, Self::Write];

    /// The word in YAML and in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hidden => "hidden",
            Self::Read => "read",
            Self::Copy => "copy",
            Self::Write => "write",
        }
    }

    /// The access with this word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|access| access.name() == word)
    }
}

/// What a tool reaches of the network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NetAccess {
    /// A loopback of its own.
    None,
    /// These hosts, by TCP.
    Hosts(Vec<HostRule>),
    /// As it is.
    All,
}

/// A host that can be connected to with TCP.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HostRule {
    /// A name, `*.` and a name for all names below it, an address, or `localhost` for the loopback of the machine.
    pub host: String,
    /// The port of the host.
    pub port: u16,
}

/// Resource limits; `None` for unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxLimits {
    /// Bytes of memory of all processes of a call, or of each, as the machine allows.
    pub memory: Option<u64>,
    /// Processes and threads at one time.
    pub processes: Option<u64>,
    /// Seconds of processor time of each process.
    pub cpu: Option<u64>,
    /// Bytes of the largest file.
    pub file: Option<u64>,
    /// Open descriptors of each process.
    pub open_files: Option<u64>,
}

/// What a sandbox promises, by the name that users read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Guarantee {
    /// No content and no name outside of `write` changes.
    Files,
    /// Nor do modes, times and extended attributes.
    Metadata,
    /// Nothing below `.delta` changes.
    Journal,
    /// What is hidden cannot be read.
    Secrets,
    /// The home directory is what [`HomeAccess`] says.
    Home,
    /// The network is what [`NetAccess`] says.
    Net,
    /// No socket of a process outside can be reached, except [`SandboxProfile::sockets`].
    Sockets,
    /// No process outside can be signalled, traced or read.
    Processes,
}

impl Guarantee {
    /// All of them, in the order in which they are listed.
    pub const ALL: [Self; 8] = [
        Self::Files,
        Self::Metadata,
        Self::Journal,
        Self::Secrets,
        Self::Home,
        Self::Net,
        Self::Sockets,
        Self::Processes,
    ];

    /// The guarantee with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|guarantee| guarantee.name() == name)
    }

    /// The name in options, messages and records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Metadata => "metadata",
            Self::Journal => "journal",
            Self::Secrets => "secrets",
            Self::Home => "home",
            Self::Net => "net",
            Self::Sockets => "sockets",
            Self::Processes => "processes",
        }
    }
}
