#![doc = include_str!("../README.md")]
#![expect(
    unsafe_code,
    reason = "the system calls of namespaces, Landlock and mounts have no safe interface"
)]

mod canary;
mod declaration;
mod devices;
mod env_filter;
mod git_directory;
mod helper;
mod helper_client;
mod hidden_entry;
mod home_copy;
mod host_text;
mod intersection;
mod landlock;
mod landlock_rules;
mod machine;
mod mount_table;
mod mount_tree;
mod mounts;
mod namespaces;
mod network;
mod network_counters;
mod other_system;
mod plan;
mod prepared;
mod profile;
mod refusal;
mod resolution;
mod sandbox_error;
mod sandbox_text;
mod scratch;
mod seccomp;
mod stage;
mod stage_layers;
mod stage_mounts;
mod unix_sockets;
mod user_namespace;

#[cfg(not(target_os = "linux"))]
use other_system::{helper, landlock, mount_tree, seccomp, stage_mounts};

pub use declaration::{
    DeclaredProfile, GIT_ENTRY, NamedProfiles, OFF_PROFILE, POLICY_MAPPING, PROFILE_MAPPING,
    ProfileKeys, READER_PROFILE, ReadKey, SANDBOX_SHAPE, SandboxSetting, WORKSPACE_PROFILE,
    is_profile_name,
};
pub use env_filter::{EnvAccess, EnvFilter, is_sensitive_name};
pub use git_directory::{GitDirectory, find_git_directory};
pub use helper::run_helper;
pub use hidden_entry::MissingHidden;
pub use host_text::{DEFAULT_PORT, parse_host_rule};
pub use machine::{SandboxMachine, probe};
pub use mount_table::file_system_type;
pub use network::{
    ConnectFailure, HostPolicy, HostServiceControl, HostTraffic, MachineNames, NetworkReport,
    ProxySettings,
};
#[cfg(target_os = "linux")]
pub use network::{HostService, HostSockets, bring_up_loopback};
pub use plan::HELPER_COMMAND;
pub use prepared::{PrepareContext, PreparedSandbox, SandboxGrade, prepare};
pub use profile::{
    Guarantee, HomeAccess, HostRule, NetAccess, ReadAccess, SandboxLimits, SandboxProfile,
};
pub use refusal::NamespaceRefusal;
pub use resolution::{ResolutionProblem, ResolvedSandbox, SandboxPlaces, resolve_profile};
pub use sandbox_error::{MissingGuarantee, SandboxError};
pub use sandbox_text::{CallFacts, describe_profile, is_in_own_tmp, sandbox_hint};
pub use scratch::{SandboxScratch, ScratchError};
pub use stage::{check_stage, enter_stage, prepare_call_stage};
pub use stage_layers::{StageError, StageLayers};
