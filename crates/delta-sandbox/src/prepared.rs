//! A sandbox that processes can enter.

use crate::kernel::landlock::{self, create_ruleset, landlock_version};
use crate::kernel::seccomp::outside_filter;
use crate::landlock_rules::prepare_landlock;
use crate::network::network_counters::NetworkCounters;
use crate::network::{HostServiceControl, NetworkReport, ProxySettings};
use crate::plan::helper_client::{HelperAnswer, ask_helper};
use crate::plan::refusal::explain_refusal;
use crate::plan::stage_layers::{StageLayers, StagedWorkspace};
use crate::plan::{HelperPlan, HelperReply, NamespacePlan};
use crate::profile::{Guarantee, HomeAccess, NetAccess, SandboxLimits, SandboxProfile};
use crate::sandbox_error::{MissingGuarantee, SandboxError};
use crate::scratch::SandboxScratch;
use delta_process::{EntrySteps, HelperProcess, SandboxEntry};
use std::fs::FileType;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{fs, io};

/// Where and for whom a sandbox is prepared.
#[derive(Debug, Clone, Copy)]
pub struct PrepareContext<'a> {
    /// The program `delta`, which has the command `__sandbox`.
    pub program: &'a Path,
    /// The workspace.
    pub workspace: &'a Path,
    /// The directory of the run; `None` outside of a run.
    pub run_dir: Option<&'a Path>,
    /// The home directory of the operator; `None` if it has none.
    pub home: Option<&'a Path>,
    /// The directory for /tmp and for what is thrown away. The sandboxes of a run share it.
    pub scratch: &'a SandboxScratch,
    /// What stays readable although it is in /tmp or in a home directory that is hidden: the agent's directory, for example.
    pub visible: &'a [PathBuf],
    /// The HTTP proxies of the operator, for a list of hosts.
    pub proxies: &'a ProxySettings,
    /// The guarantees that the operator does without.
    pub waived: &'a [Guarantee],
    /// The guarantees that are needed although the profile does not declare them.
    pub required: &'a [Guarantee],
    /// Paths that do not exist, and would be in the profile if they did: the sandbox has to be prepared again when one
    /// appears.
    pub absent: &'a [PathBuf],
    /// The layers of the workspace for one call whose changes are staged.
    pub stage: Option<&'a StageLayers>,
}

/// How a sandbox is enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SandboxGrade {
    /// Not at all, as the operator has accepted.
    None,
    /// By Landlock and seccomp.
    Landlock,
    /// By namespaces, and Landlock for signals.
    Namespaces,
}

impl SandboxGrade {
    /// The name in messages and records.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Landlock => "landlock",
            Self::Namespaces => "namespaces",
        }
    }
}

/// A sandbox that processes can enter. It ends when it is dropped; processes in it keep it alive.
#[derive(Debug)]
pub struct PreparedSandbox {
    /// How it is enforced.
    pub grade: SandboxGrade,
    /// The guarantees that do not hold, which the profile does not need or the operator has waived.
    pub missing: Vec<MissingGuarantee>,
    /// The guarantees that hold, in the order of [`Guarantee::ALL`].
    pub holds: Vec<Guarantee>,
    /// The guarantees that the kernel does not enforce here, and that the caller has to watch.
    pub watched: &'static [Guarantee],
    /// What does not hold although the profile says it, and no guarantee covers it: sentences without a full stop.
    pub warnings: Vec<String>,
    /// What a process does to enter it.
    pub entry: SandboxEntry,
    counters: Option<NetworkCounters>,
    service: Option<HostConnection>,
    is_service_dead: bool,
    roots: Vec<(PathBuf, FileIdentity)>,
    /// The directory for TMPDIR, where /tmp cannot be written; `None` where /tmp is a directory of the sandbox.
    pub temp_dir: Option<PathBuf>,
}

/// The process that serves the network of the sandbox. It ends before the descriptor that it is asked through.
#[derive(Debug)]
struct HostConnection {
    control: HostServiceControl,
    _process: HelperProcess,
}

/// Device, number, kind and birth of a file; `None` for one that does not exist. A number alone is used again at once.
type FileIdentity = Option<(u64, u64, FileType, Option<SystemTime>)>;

/// Prepares the sandbox of a profile.
///
/// # Errors
/// The profile cannot be enforced as a whole, except for what was waived.
pub fn prepare(
    profile: &SandboxProfile,
    context: &PrepareContext<'_>,
) -> Result<PreparedSandbox, SandboxError> {
    let plan =
        make_plan(profile, context).map_err(|error| SandboxError::Failed(error.to_string()))?;
    let roots = identify_roots(profile, context.absent);
    let plan = HelperPlan::Build(Box::new(plan));
    let answer = ask_helper(context.program, &plan)
        .map_err(|error| SandboxError::Failed(error.to_string()))?;
    let HelperPlan::Build(plan) = plan else { unreachable!("the plan is to build") };
    let sandbox = match answer.reply {
        HelperReply::Done => enter_namespaces(&plan, answer, roots)?,
        reply @ (HelperReply::Stage(_) | HelperReply::Refused { .. })
            if context.stage.is_some() =>
        {
            let error = reply.into_stage_error();
            return Err(SandboxError::Failed(format!("the workspace cannot be staged: {error}")));
        }
        HelperReply::Refused { step, error } => {
            let refusal = explain_refusal(&step, &error);
            let landlock = prepare_landlock(&plan, &refusal)?;
            let is_enforced = landlock.ruleset.is_some() || !landlock.filter.is_empty();
            let (limits, warnings) = resource_limits(&profile.limits, false);
            let steps = EntrySteps {
                limits,
                ruleset: landlock.ruleset,
                filter: landlock.filter,
                ..EntrySteps::default()
            };
            PreparedSandbox {
                grade: if is_enforced { SandboxGrade::Landlock } else { SandboxGrade::None },
                holds: Vec::new(),
                watched: landlock.watched,
                missing: landlock.missing,
                warnings,
                entry: SandboxEntry::new(steps),
                counters: None,
                service: None,
                is_service_dead: false,
                roots,
                temp_dir: Some(plan.scratch.join("tmp")),
            }
        }
        HelperReply::Home { reason } if context.waived.contains(&Guarantee::Home) => {
            let profile = SandboxProfile { home: HomeAccess::Read, ..profile.clone() };
            let mut sandbox = prepare(&profile, context)?;
            let remedy = None;
            sandbox.missing.push(MissingGuarantee { guarantee: Guarantee::Home, reason, remedy });
            sandbox.holds.retain(|guarantee| *guarantee != Guarantee::Home);
            return Ok(sandbox);
        }
        HelperReply::Home { reason } => {
            let remedy = Some("write `home: read` in the profile".to_owned());
            let missing = MissingGuarantee { guarantee: Guarantee::Home, reason, remedy };
            return Err(SandboxError::Missing(vec![missing]));
        }
        HelperReply::Path { path, reason } => return Err(SandboxError::Path { path, reason }),
        HelperReply::Stage(error) => return Err(SandboxError::Failed(error.to_string())),
        HelperReply::Canary { reason } => return Err(SandboxError::Canary(reason)),
        HelperReply::Failed { reason } => return Err(SandboxError::Failed(reason)),
    };
    sandbox.judged(profile, context)
}

fn make_plan(profile: &SandboxProfile, context: &PrepareContext<'_>) -> io::Result<NamespacePlan> {
    let mut visible = context.visible.to_vec();
    visible.push(context.workspace.to_owned());
    visible.extend(context.program.parent().map(Path::to_owned));
    visible.extend(context.run_dir.map(Path::to_owned));
    Ok(NamespacePlan {
        proxies: context.proxies.clone(),
        profile: profile.clone(),
        run_dir: context.run_dir.map(Path::to_owned),
        home: context.home.map(Path::to_owned),
        scratch: context.scratch.path().to_owned(),
        visible,
        stage: context.stage.map(StagedWorkspace::new).transpose()?,
        engine: rustix::process::getpid().as_raw_pid(),
        landlock: landlock_version(),
    })
}

fn enter_namespaces(
    plan: &NamespacePlan,
    answer: HelperAnswer,
    roots: Vec<(PathBuf, FileIdentity)>,
) -> Result<PreparedSandbox, SandboxError> {
    let failed = |error: io::Error| SandboxError::Failed(error.to_string());
    let HelperAnswer { mut descriptors, socket, helper, .. } = answer;
    let has_counters = plan.profile.net != NetAccess::All;
    let counters = match has_counters.then(|| (descriptors.pop(), descriptors.pop())) {
        Some((Some(second), Some(first))) => Some(NetworkCounters::new(first, second)),
        _ => None,
    };
    let service = if let NetAccess::Hosts(_) = plan.profile.net {
        let mut control = HostServiceControl::new(socket.into()).map_err(failed)?;
        // The first answer shows that it serves.
        control.take_counts().map_err(failed)?;
        Some(HostConnection { control, _process: helper })
    } else {
        helper.wait();
        None
    };
    let has_scopes = plan.landlock >= landlock::SCOPE_VERSION;
    let ruleset =
        has_scopes.then(|| create_ruleset(plan.landlock, 0)).transpose().map_err(failed)?;
    let (limits, warnings) = resource_limits(&plan.profile.limits, true);
    let mut missing = Vec::new();
    let mut add = |guarantee, reason: &str| {
        let reason = reason.to_owned();
        missing.push(MissingGuarantee { guarantee, reason, remedy: None });
    };
    if !has_scopes {
        add(Guarantee::Processes, "this kernel has no Landlock that controls signals (since 6.12)");
        if plan.profile.net == NetAccess::All {
            let reason = "this kernel has no Landlock that controls abstract sockets (since 6.12)";
            add(Guarantee::Sockets, reason);
        }
    }
    let filter = outside_filter(plan.profile.net != NetAccess::All).unwrap_or_default();
    let steps = EntrySteps { namespaces: descriptors, limits, ruleset, filter };
    Ok(PreparedSandbox {
        grade: SandboxGrade::Namespaces,
        holds: Vec::new(),
        watched: &[],
        missing,
        warnings,
        entry: SandboxEntry::new(steps),
        counters,
        service,
        is_service_dead: false,
        roots,
        temp_dir: None,
    })
}

/// The limits as the child sets them, and what they do not limit.
fn resource_limits(limits: &SandboxLimits, has_namespaces: bool) -> (Vec<(u32, u64)>, Vec<String>) {
    let mut warnings = Vec::new();
    // A user namespace counts its own processes, but never limits root's.
    let counts_processes = has_namespaces && !rustix::process::getuid().is_root();
    if limits.processes.is_some() && !counts_processes {
        let reason = if has_namespaces { "for root" } else { "without namespaces" };
        warnings.push(format!("the limit `processes` is not enforced {reason}"));
    }
    let all = [
        (libc::RLIMIT_CORE, Some(0)),
        (libc::RLIMIT_NPROC, limits.processes.filter(|_| counts_processes)),
        (libc::RLIMIT_DATA, limits.memory),
        (libc::RLIMIT_CPU, limits.cpu),
        (libc::RLIMIT_FSIZE, limits.file),
        (libc::RLIMIT_NOFILE, limits.open_files),
    ];
    let set = all.into_iter().filter_map(|(number, limit)| Some((limit_number(number), limit?)));
    (set.collect(), warnings)
}

/// The number of a limit, which is signed in musl and unsigned in glibc.
fn limit_number(number: impl TryInto<u32>) -> u32 {
    number.try_into().unwrap_or(u32::MAX)
}

fn identify_roots(profile: &SandboxProfile, absent: &[PathBuf]) -> Vec<(PathBuf, FileIdentity)> {
    let listed = match &profile.read {
        crate::profile::ReadAccess::All => &[],
        crate::profile::ReadAccess::Only(paths) => paths.as_slice(),
    };
    let paths = profile.write.iter().chain(&profile.keep).chain(&profile.hide).chain(listed);
    paths.chain(absent).map(|path| (path.clone(), identify(path))).collect()
}

fn identify(path: &Path) -> FileIdentity {
    let metadata = fs::symlink_metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino(), metadata.file_type(), metadata.created().ok()))
}

/// The guarantees that a profile needs.
fn needed_guarantees(profile: &SandboxProfile) -> Vec<Guarantee> {
    let needed = Guarantee::ALL.into_iter().filter(|guarantee| match guarantee {
        Guarantee::Files | Guarantee::Journal | Guarantee::Sockets | Guarantee::Processes => true,
        Guarantee::Metadata => false,
        Guarantee::Secrets => !profile.hide.is_empty(),
        Guarantee::Home => profile.home != HomeAccess::Write,
        Guarantee::Net => profile.net != NetAccess::All,
    });
    needed.collect()
}

impl PreparedSandbox {
    /// This sandbox, if it has every guarantee that is needed and not waived.
    fn judged(
        mut self,
        profile: &SandboxProfile,
        context: &PrepareContext<'_>,
    ) -> Result<Self, SandboxError> {
        let needed = needed_guarantees(profile);
        let missing = &self.missing;
        let watched = self.watched;
        self.holds = Guarantee::ALL
            .into_iter()
            .filter(|guarantee| missing.iter().all(|one| one.guarantee != *guarantee))
            .filter(|guarantee| !watched.contains(guarantee))
            .collect();
        let fatal = missing.iter().filter(|one| {
            let guarantee = one.guarantee;
            let is_required = context.required.contains(&guarantee);
            is_required || needed.contains(&guarantee) && !context.waived.contains(&guarantee)
        });
        let fatal: Vec<MissingGuarantee> = fatal.cloned().collect();
        if fatal.is_empty() { Ok(self) } else { Err(SandboxError::Missing(fatal)) }
    }

    /// What happened on the network since the last report.
    pub fn take_network_report(&mut self) -> NetworkReport {
        let loopback_refusals = self.counters.as_mut().map_or(0, NetworkCounters::take_refusals);
        if let Some(service) = &mut self.service {
            let counts = service.control.take_counts().unwrap_or_else(|error| {
                self.is_service_dead = true;
                NetworkReport::without_service(&error)
            });
            // What the service counts has been refused in the same namespace.
            let loopback_refusals = loopback_refusals.saturating_sub(counts.attempts);
            return NetworkReport { loopback_refusals, ..counts };
        }
        let attempts = self.counters.as_mut().map_or(0, NetworkCounters::take_attempts);
        NetworkReport { attempts, loopback_refusals, ..NetworkReport::default() }
    }

    /// Whether a path of the profile is another file or directory than when the sandbox was prepared, or the service of its
    /// network has died. It then has to be prepared again.
    pub fn has_changed_roots(&self) -> bool {
        self.is_service_dead
            || self.roots.iter().any(|(path, identity)| identify(path) != *identity)
    }
}
