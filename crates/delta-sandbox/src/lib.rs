#![doc = include_str!("../README.md")]
#![expect(
    unsafe_code,
    reason = "the system calls of namespaces, Landlock and mounts have no safe interface"
)]

mod helper;
mod kernel;
mod landlock_rules;
mod machine;
mod network;
mod other_helper;
mod plan;
mod prepared;
mod profile;
mod sandbox_error;
mod sandbox_text;
mod scratch;
mod stage;

#[cfg(not(target_os = "linux"))]
use other_helper as helper;

pub use helper::run_helper;
pub use kernel::mount_table::file_system_type;
pub use machine::{SandboxMachine, probe};
pub use network::{
    ConnectFailure, HostPolicy, HostServiceControl, HostTraffic, MachineNames, NetworkReport,
    ProxySettings,
};
#[cfg(target_os = "linux")]
pub use network::{HostService, HostSockets, bring_up_loopback};
pub use plan::HELPER_COMMAND;
pub use plan::refusal::NamespaceRefusal;
pub use plan::stage_layers::{StageError, StageLayers};
pub use prepared::{PrepareContext, PreparedSandbox, SandboxGrade, prepare};
pub use profile::declaration::{
    DeclaredProfile, GIT_ENTRY, NamedProfiles, OFF_PROFILE, POLICY_MAPPING, PROFILE_MAPPING,
    ProfileKeys, READER_PROFILE, ReadKey, SANDBOX_SHAPE, SandboxSetting, WORKSPACE_PROFILE,
    is_profile_name,
};
pub use profile::env_filter::{EnvAccess, EnvFilter, is_sensitive_name};
pub use profile::git_directory::{GitDirectory, find_git_directory, find_one_way_git_directory};
pub use profile::git_links::{
    GitLink, followed_in_work_trees, git_links, inner_git_directories, outside_git_directories,
    symlinks_in_path, tree_around,
};
pub use profile::hidden_entry::MissingHidden;
pub use profile::host_text::{DEFAULT_PORT, parse_host_rule};
pub use profile::resolution::{ResolutionProblem, ResolvedSandbox, SandboxPlaces, resolve_profile};
pub use profile::{
    Guarantee, HomeAccess, HostRule, NetAccess, ReadAccess, SandboxLimits, SandboxProfile,
};
pub use sandbox_error::{MissingGuarantee, SandboxError};
pub use sandbox_text::{CallFacts, describe_profile, is_in_own_tmp, join_paths, sandbox_hint};
pub use scratch::{SandboxScratch, ScratchError};
pub use stage::{check_stage, enter_stage, prepare_call_stage};
