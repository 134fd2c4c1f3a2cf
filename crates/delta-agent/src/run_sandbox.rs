//! The sandboxes of a run, prepared when a process starts or continues the run: one for each different profile.

use crate::agent::Agent;
use crate::child_environment::EnvMap;
use delta_base::engine_variables::EngineVars;
use delta_llm::llm::ProviderKind;
use delta_process::SandboxEntry;
use delta_run::budget::ledger::ledger_files;
use delta_run::event::{PolicySource, ProfileRecord, SandboxRecord};
use delta_run::run_tree;
use delta_sandbox::{
    DeclaredProfile, EnvAccess, EnvFilter, Guarantee, HostRule, MissingGuarantee, NetAccess,
    NetworkReport, PrepareContext, PreparedSandbox, ProxySettings, ReadAccess, ResolutionProblem,
    ResolvedSandbox, SandboxError, SandboxLimits, SandboxPlaces, SandboxProfile, SandboxScratch,
    ScratchError, StageLayers, describe_profile, prepare, probe, resolve_profile,
};
use serde_json::{Map, Value as Json, json};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, fs};

mod git_config;

pub use git_config::followed_paths;

/// What the operator says about sandboxes.
#[derive(Debug, Clone, Default)]
pub struct OperatorPolicy {
    /// The most that any tool may do.
    pub profiles: Vec<DeclaredProfile>,
    /// Their files and names, and the files that only require guarantees.
    pub sources: Vec<PolicySource>,
    /// The guarantees that the operator does without.
    pub waived: Vec<Guarantee>,
    /// The guarantees that are needed whatever a profile says.
    pub required: Vec<Guarantee>,
    /// The hosts that tools in a sandbox reach besides their own ones, as far as `profiles` allow them.
    pub hosts: Vec<HostRule>,
}

/// What the sandboxes of a run are prepared from.
#[derive(Debug, Clone)]
pub struct SandboxSetup {
    /// The program `delta`.
    pub program: PathBuf,
    /// The places of the run.
    pub vars: EngineVars,
    /// The home directory of the operator, which `~` is.
    pub home: Option<PathBuf>,
    /// All home directories of the operator, whose secrets are hidden.
    pub homes: Vec<PathBuf>,
    /// The operator's files with keys.
    pub key_files: Vec<PathBuf>,
    /// What git follows because its configuration names it.
    pub git_follows: Vec<PathBuf>,
    /// The directories of the runs that started this process, innermost first.
    pub enclosing_runs: Vec<PathBuf>,
    /// The directory for temporary files.
    pub temp_dir: PathBuf,
    /// A name that no other process uses at the same time.
    pub key: String,
    /// What the operator says.
    pub policy: OperatorPolicy,
    /// The variables of the process.
    pub variables: EnvMap,
}

/// What a sandbox is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxSubject {
    /// In messages: "the tool `test`".
    pub label: String,
    /// The file and line that define it, if there are any.
    pub place: Option<(String, usize)>,
}

impl SandboxSubject {
    fn failure(&self, problem: SandboxProblem) -> SandboxFailure {
        SandboxFailure { subject: self.clone(), problem }
    }
}

/// Why the sandboxes of a run cannot be prepared.
#[derive(Debug)]
pub struct SandboxFailure {
    /// Whose sandbox it is.
    pub subject: SandboxSubject,
    /// What is wrong.
    pub problem: SandboxProblem,
}

/// What is wrong with a sandbox.
#[derive(Debug)]
pub enum SandboxProblem {
    /// Texts of the profile mean nothing here.
    Unresolved(Vec<ResolutionProblem>),
    /// Guarantees do not hold here.
    Missing(Vec<MissingGuarantee>),
    /// The directory for what is thrown away cannot be created.
    Scratch(ScratchError),
    /// It is an MCP server with a URL, and the operator limits the network.
    RemoteServer,
    /// It is a tool whose calls outlive the engine, which has the sandbox.
    Survives,
    /// Anything else.
    Other(String),
}

impl fmt::Display for SandboxFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let label = &self.subject.label;
        match &self.problem {
            SandboxProblem::Unresolved(problems) => {
                let texts: Vec<&str> = problems.iter().map(|one| one.message.as_str()).collect();
                write!(f, "the sandbox of {label}: {}", texts.join("; "))
            }
            SandboxProblem::Missing(missing) => {
                let names: Vec<&str> = missing.iter().map(|one| one.guarantee.name()).collect();
                write!(f, "the sandbox of {label} cannot be enforced here: {}", names.join(", "))
            }
            SandboxProblem::Scratch(error) => write!(f, "the sandbox of {label}: {error}"),
            SandboxProblem::RemoteServer => {
                write!(f, "{label} has a `url`, which the operator's sandbox does not cover")
            }
            SandboxProblem::Survives => {
                write!(f, "{label} has `survive: true`, and its sandbox would end with the engine")
            }
            SandboxProblem::Other(reason) => write!(f, "the sandbox of {label}: {reason}"),
        }
    }
}

/// The prepared sandboxes of a run.
pub struct RunSandbox {
    // The processes of the sandboxes end before the directory is removed.
    profiles: Vec<RunProfile>,
    record: SandboxRecord,
    setup: SandboxSetup,
    scratch: SandboxScratch,
}

/// A prepared profile.
struct RunProfile {
    name: String,
    subject: SandboxSubject,
    declared: Option<DeclaredProfile>,
    resolved: ResolvedSandbox,
    prepared: Mutex<PreparedSandbox>,
}

/// The sandbox of a tool, a generator or a hook.
#[derive(Clone, Copy)]
pub struct ActiveSandbox<'a> {
    run: &'a RunSandbox,
    profile: &'a RunProfile,
}

impl fmt::Debug for RunSandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunSandbox").field("record", &self.record).finish_non_exhaustive()
    }
}

/// Something that has a sandbox, and the declared profile; `None` for the operator's alone.
struct SandboxUse {
    subject: SandboxSubject,
    role: SandboxRole,
    declared: Option<DeclaredProfile>,
}

enum SandboxRole {
    /// A tool; of an MCP server, whose process is what the sandbox surrounds.
    Tool(String),
    Generators,
    Hook(&'static str),
    Llm,
}

impl RunSandbox {
    /// Prepares the sandboxes of an agent; `None` if nothing has one.
    ///
    /// # Errors
    /// One of them cannot be enforced. Nothing of them is left.
    pub fn prepare(
        agent: &Agent,
        setup: SandboxSetup,
    ) -> Result<Option<Arc<Self>>, SandboxFailure> {
        let uses = collect_uses(agent, &setup.policy)?;
        if uses.is_empty() { Ok(None) } else { Self::prepare_uses(uses, setup).map(Some) }
    }

    /// Prepares the sandbox for a command outside of a run; [`RunSandbox::of_tool`] has it under `label`. `declared` is `None`
    /// for the operator's profiles alone.
    ///
    /// # Errors
    /// It cannot be enforced.
    pub fn prepare_one(
        label: &str,
        declared: Option<DeclaredProfile>,
        setup: SandboxSetup,
    ) -> Result<Arc<Self>, SandboxFailure> {
        let subject = SandboxSubject { label: label.to_owned(), place: None };
        let role = SandboxRole::Tool(label.to_owned());
        Self::prepare_uses(vec![SandboxUse { subject, role, declared }], setup)
    }

    fn prepare_uses(
        uses: Vec<SandboxUse>,
        setup: SandboxSetup,
    ) -> Result<Arc<Self>, SandboxFailure> {
        let scratch = SandboxScratch::create(&setup.temp_dir, &setup.key)
            .map_err(|error| uses[0].subject.failure(SandboxProblem::Scratch(error)))?;
        let machine = probe(&setup.program);
        let mut record = SandboxRecord {
            kernel: machine.kernel,
            landlock: machine.landlock,
            namespaces: machine.namespaces.is_ok(),
            policy: setup.policy.sources.clone(),
            hosts: setup.policy.hosts.iter().map(ToString::to_string).collect(),
            without: setup.policy.waived.iter().map(|one| one.name().to_owned()).collect(),
            ..SandboxRecord::default()
        };
        let mut profiles: Vec<RunProfile> = Vec::new();
        for SandboxUse { subject, role, declared } in uses {
            let mut resolved = resolve_use(&subject, declared.as_ref(), &setup)?;
            if matches!(role, SandboxRole::Generators) {
                resolved.profile = with_run_dir(resolved.profile, &setup.vars.run_dir);
            }
            let position = profiles.iter().position(|profile| profile.resolved == resolved);
            let index = match position {
                Some(index) => index,
                None => {
                    let prepared = prepare_use(&subject, &resolved, &setup, &scratch, None)?;
                    let name = format!("p{}", profiles.len() + 1);
                    let entry = profile_record(&resolved, &prepared, &setup.vars.cwd);
                    record.profiles.insert(name.clone(), entry);
                    profiles.push(RunProfile {
                        name,
                        subject,
                        declared,
                        resolved,
                        prepared: Mutex::new(prepared),
                    });
                    profiles.len() - 1
                }
            };
            let name = profiles[index].name.clone();
            match role {
                SandboxRole::Tool(tool) => drop(record.tools.insert(tool, name)),
                SandboxRole::Generators => record.generators = Some(name),
                SandboxRole::Llm => record.llm = Some(name),
                SandboxRole::Hook(hook) => drop(record.hooks.insert(hook.to_owned(), name)),
            }
        }
        Ok(Arc::new(Self { profiles, record, setup, scratch }))
    }

    /// What ENGINE_START records.
    pub fn record(&self) -> &SandboxRecord {
        &self.record
    }

    /// Whether a tool in one of the sandboxes may start runs.
    pub fn starts_runs(&self) -> bool {
        self.profiles.iter().any(|profile| profile.resolved.profile.runs)
    }

    /// Whether a tool could change the journal, so that the engine has to find out.
    pub fn watches_journal(&self) -> bool {
        self.record.profiles.values().any(|profile| !profile.watched.is_empty())
    }

    /// What does not hold although a profile says it, for the user.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings: Vec<String> = Vec::new();
        for profile in &self.profiles {
            let prepared = profile.prepared.lock().unwrap_or_else(PoisonError::into_inner);
            let new = prepared.warnings.iter().filter(|text| !warnings.contains(text));
            let new: Vec<String> = new.cloned().collect();
            warnings.extend(new);
        }
        warnings
    }

    /// The guarantees of a profile that do not hold and do not have to, with the reasons.
    pub fn missing_of(&self, name: &str) -> Vec<(&'static str, String)> {
        self.named(name).map(|sandbox| sandbox.missing()).unwrap_or_default()
    }

    /// The sandbox of a tool; `None` for none.
    pub fn of_tool(&self, tool: &str) -> Option<ActiveSandbox<'_>> {
        self.named(self.record.tools.get(tool)?)
    }

    /// The sandbox of the generators; `None` for none.
    pub fn of_generators(&self) -> Option<ActiveSandbox<'_>> {
        self.named(self.record.generators.as_ref()?)
    }

    /// The sandbox of a hook; `None` for none.
    pub fn of_hook(&self, hook: &str) -> Option<ActiveSandbox<'_>> {
        self.named(self.record.hooks.get(hook)?)
    }

    /// The sandbox of the command of `provider: command`; `None` for none.
    pub fn of_llm(&self) -> Option<ActiveSandbox<'_>> {
        self.named(self.record.llm.as_ref()?)
    }

    fn named(&self, name: &str) -> Option<ActiveSandbox<'_>> {
        let profile = self.profiles.iter().find(|profile| profile.name == name)?;
        Some(ActiveSandbox { run: self, profile })
    }
}

impl<'a> ActiveSandbox<'a> {
    /// The name in the journal.
    pub fn name(&self) -> &'a str {
        &self.profile.name
    }

    /// What is enforced.
    pub fn profile(&self) -> &'a SandboxProfile {
        &self.profile.resolved.profile
    }

    /// Which variables of the operator are inherited.
    pub fn env(&self) -> &'a EnvFilter {
        &self.profile.resolved.env
    }

    /// The guarantees that do not hold, which the profile does not need or the operator has waived, with the reasons.
    pub fn missing(&self) -> Vec<(&'static str, String)> {
        let prepared = self.lock();
        let missing = prepared.missing.iter();
        missing.map(|one| (one.guarantee.name(), one.reason.clone())).collect()
    }

    /// What a process does to enter it.
    pub fn entry(&self) -> SandboxEntry {
        self.lock().entry.clone()
    }

    /// The directory for TMPDIR, where /tmp cannot be written; `None` where /tmp is a directory of the sandbox.
    pub fn temp_dir(&self) -> Option<PathBuf> {
        self.lock().temp_dir.clone()
    }

    /// What happened on the network since the last report.
    pub fn take_network_report(&self) -> NetworkReport {
        self.lock().take_network_report()
    }

    /// What git follows and was made.
    pub fn appeared_paths(&self) -> Vec<PathBuf> {
        self.profile.resolved.appeared_paths()
    }

    /// Prepares the sandbox again if one of its paths was replaced.
    ///
    /// # Errors
    /// What is there now cannot be enforced.
    pub fn refresh(&self) -> Result<(), SandboxFailure> {
        let mut prepared = self.lock();
        if prepared.has_changed_roots() {
            let Self { profile, run } = *self;
            let setup = &run.setup;
            let resolved = resolve_use(&profile.subject, profile.declared.as_ref(), setup)?;
            if !resolved.leads_to_same_places(&profile.resolved) {
                let reason = "a path that it names leads elsewhere now".to_owned();
                return Err(profile.subject.failure(SandboxProblem::Other(reason)));
            }
            let refreshed = prepare_use(&profile.subject, &resolved, setup, &run.scratch, None)?;
            if refreshed.grade < prepared.grade {
                // The journal says what is enforced.
                let reason = format!(
                    "it was enforced by {} and can only be enforced by {} now",
                    prepared.grade.name(),
                    refreshed.grade.name()
                );
                return Err(profile.subject.failure(SandboxProblem::Other(reason)));
            }
            *prepared = refreshed;
        }
        Ok(())
    }

    /// The same sandbox for one call, in which the workspace has these layers.
    ///
    /// # Errors
    /// The workspace cannot be staged, or the sandbox cannot be enforced any more.
    pub fn prepare_staged(&self, layers: &StageLayers) -> Result<PreparedSandbox, SandboxFailure> {
        let Self { profile, run } = *self;
        let resolved = &profile.resolved;
        prepare_use(&profile.subject, resolved, &run.setup, &run.scratch, Some(layers))
    }

    fn lock(&self) -> MutexGuard<'a, PreparedSandbox> {
        self.profile.prepared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What ENGINE_START of a run would have on the sandboxes of an agent's tools, apart from what the machine enforces: enough for
/// their descriptions. Prepares nothing.
///
/// # Errors
/// A profile means nothing here.
pub fn describe_sandboxes(
    agent: &Agent,
    setup: &SandboxSetup,
) -> Result<SandboxRecord, SandboxFailure> {
    let mut record = SandboxRecord::default();
    for SandboxUse { subject, role, declared } in collect_uses(agent, &setup.policy)? {
        let SandboxRole::Tool(tool) = role else { continue };
        let resolved = resolve_use(&subject, declared.as_ref(), setup)?;
        let line = describe_profile(&resolved.profile, &setup.vars.cwd);
        record.profiles.insert(tool.clone(), ProfileRecord { line, ..ProfileRecord::default() });
        record.tools.insert(tool.clone(), tool);
    }
    Ok(record)
}

/// Whether a tool can change the agent directory: it has no sandbox, or one that does not keep the directory.
pub fn can_change_agent(agent: &Agent, setup: &SandboxSetup) -> bool {
    let Ok(mut uses) = collect_uses(agent, &setup.policy) else { return true };
    uses.retain(|one| matches!(one.role, SandboxRole::Tool(_)));
    let has_policy = !setup.policy.profiles.is_empty();
    let has_free_tool = agent.tools.iter().any(|tool| match &tool.mcp {
        Some(mcp) => tool.profile.is_none() && !agent.has_remote_server(&mcp.server),
        None => tool.profile.is_none() && !tool.runs_delta,
    });
    if uses.is_empty() || has_free_tool && !has_policy {
        return true;
    }
    // Landlock cannot keep a directory below one that can be written.
    let has_namespaces = probe(&setup.program).namespaces.is_ok();
    let home = &setup.vars.agent_home;
    uses.iter().any(|one| {
        resolve_use(&one.subject, one.declared.as_ref(), setup).is_ok_and(|resolved| {
            let write = &resolved.profile.write;
            write.iter().any(|path| path.starts_with(home))
                || resolved.profile.allows_write(home)
                || !has_namespaces && write.iter().any(|path| home.starts_with(path))
        })
    })
}

/// Everything of an agent that has a sandbox, the operator's policy included.
fn collect_uses(agent: &Agent, policy: &OperatorPolicy) -> Result<Vec<SandboxUse>, SandboxFailure> {
    let has_policy = !policy.profiles.is_empty();
    let mut uses = Vec::new();
    for tool in &agent.tools {
        if tool.profile.is_none() && !has_policy {
            continue;
        }
        let label = match &tool.mcp {
            Some(mcp) => format!("the MCP server `{}`", mcp.server),
            None => format!("the tool `{}`", tool.name),
        };
        let subject = SandboxSubject { label, place: Some((tool.file.clone(), tool.line)) };
        if tool.mcp.as_ref().is_some_and(|mcp| agent.has_remote_server(&mcp.server)) {
            if has_policy {
                return Err(SandboxFailure { subject, problem: SandboxProblem::RemoteServer });
            }
            // No process is started for it that a sandbox could surround.
            continue;
        }
        if tool.survives {
            return Err(SandboxFailure { subject, problem: SandboxProblem::Survives });
        }
        uses.push(SandboxUse {
            subject,
            role: SandboxRole::Tool(tool.name.clone()),
            declared: tool.profile.clone().map(|profile| profile.with_hosts(&policy.hosts)),
        });
    }
    let declared = agent.sandbox.profile.clone();
    if agent.context.starts_programs() && (declared.is_some() || has_policy) {
        let subject = SandboxSubject { label: "the generators".to_owned(), place: None };
        uses.push(SandboxUse { subject, role: SandboxRole::Generators, declared });
    }
    // The operator may have chosen an endpoint instead.
    if let (Some(profile), ProviderKind::Command(_)) = (&agent.sandbox.llm, &agent.llm.provider) {
        let subject = SandboxSubject { label: "the command of `llm`".to_owned(), place: None };
        let declared = Some(profile.clone());
        uses.push(SandboxUse { subject, role: SandboxRole::Llm, declared });
    }
    for (point, config) in agent.hooks.all() {
        if config.profile.is_some() {
            let label = format!("the hook `{}`", point.name());
            uses.push(SandboxUse {
                subject: SandboxSubject { label, place: None },
                role: SandboxRole::Hook(point.name()),
                declared: config.profile.clone(),
            });
        }
    }
    Ok(uses)
}

/// The profile with the directory of the run, where generators write; what is in it stays read-only, the journal above all.
fn with_run_dir(mut profile: SandboxProfile, run_dir: &Path) -> SandboxProfile {
    if run_dir.as_os_str().is_empty() {
        return profile;
    }
    let entries = |dir: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    };
    let mut keep = entries(run_dir);
    // What inner runs write.
    keep.retain(|path| !profile.write.contains(path));
    for path in std::mem::take(&mut profile.keep) {
        if run_dir.starts_with(&path) {
            keep.extend(entries(&path).into_iter().filter(|entry| !run_dir.starts_with(entry)));
        } else {
            keep.push(path);
        }
    }
    profile.keep = keep;
    profile.write.push(run_dir.to_owned());
    profile.normalized()
}

/// What the profile and the operator's all allow.
fn resolve_use(
    subject: &SandboxSubject,
    declared: Option<&DeclaredProfile>,
    setup: &SandboxSetup,
) -> Result<ResolvedSandbox, SandboxFailure> {
    let places = SandboxPlaces {
        vars: &setup.vars,
        home: setup.home.as_deref(),
        homes: &setup.homes,
        key_files: &setup.key_files,
        git_follows: &setup.git_follows,
        variable: &|name| setup.variables.get(OsStr::new(name)).cloned(),
    };
    let policies = &setup.policy.profiles;
    let mut common: Option<ResolvedSandbox> = None;
    for profile in declared.into_iter().chain(policies) {
        let resolved = resolve_profile(profile, &places)
            .map_err(|problems| subject.failure(SandboxProblem::Unresolved(problems)))?;
        common = Some(match common {
            None => resolved,
            Some(common) => common.intersection(&resolved),
        });
    }
    let mut common = common
        .ok_or_else(|| subject.failure(SandboxProblem::Other("it has no profile".to_owned())))?;
    if common.profile.runs && !setup.vars.run_dir.as_os_str().is_empty() {
        common.profile =
            with_inner_runs(common.profile, &setup.vars.run_dir, &setup.enclosing_runs);
    }
    Ok(common)
}

/// The profile of a tool that starts runs: it creates their directories next to the one of this run, which stays read-only
/// apart from what inner runs write there.
fn with_inner_runs(
    mut profile: SandboxProfile,
    run_dir: &Path,
    enclosing: &[PathBuf],
) -> SandboxProfile {
    let Some(control) = run_dir.parent() else { return profile };
    // An error leaves the child unregistered, and nothing depends on that.
    let _ = run_tree::create_children_file(run_dir);
    profile.keep.retain(|path| path != control);
    profile.keep.push(run_dir.to_owned());
    profile.write.push(control.to_owned());
    let lists = [run_dir.join(run_tree::CHILDREN_FILE)];
    let ledgers = enclosing.iter().map(PathBuf::as_path).chain([run_dir]);
    let ledgers = ledgers.flat_map(ledger_files);
    profile.write.extend(lists.into_iter().chain(ledgers).filter(|path| path.is_file()));
    profile.keep.extend(enclosing.iter().filter(|dir| dir.starts_with(control)).cloned());
    profile.normalized()
}

fn prepare_use(
    subject: &SandboxSubject,
    resolved: &ResolvedSandbox,
    setup: &SandboxSetup,
    scratch: &SandboxScratch,
    stage: Option<&StageLayers>,
) -> Result<PreparedSandbox, SandboxFailure> {
    // Without listed hosts no connection is made for the tool, whatever the proxy is.
    let proxies = match &resolved.profile.net {
        NetAccess::Hosts(_) => ProxySettings::parse(|name| {
            setup.variables.get(OsStr::new(name))?.to_str().map(str::to_owned)
        })
        .map_err(|reason| subject.failure(SandboxProblem::Other(reason)))?,
        NetAccess::None | NetAccess::All => ProxySettings::default(),
    };
    // A command without an agent has no directory of one.
    let agent_home = Some(setup.vars.agent_home.clone());
    let visible: Vec<PathBuf> =
        agent_home.into_iter().filter(|home| !home.as_os_str().is_empty()).collect();
    let context = PrepareContext {
        visible: &visible,
        proxies: &proxies,
        program: &setup.program,
        workspace: &setup.vars.cwd,
        run_dir: Some(setup.vars.run_dir.as_path()).filter(|dir| !dir.as_os_str().is_empty()),
        home: setup.home.as_deref(),
        scratch,
        waived: &setup.policy.waived,
        required: &setup.policy.required,
        absent: &resolved.unhidden,
        stage,
    };
    prepare(&resolved.profile, &context).map_err(|error| {
        subject.failure(match error {
            SandboxError::Missing(missing) => SandboxProblem::Missing(missing),
            other => SandboxProblem::Other(other.to_string()),
        })
    })
}

/// A profile as the journal records it.
fn profile_record(
    resolved: &ResolvedSandbox,
    prepared: &PreparedSandbox,
    workspace: &Path,
) -> ProfileRecord {
    ProfileRecord {
        by: prepared.grade.name().to_owned(),
        keys: profile_keys(&resolved.profile),
        holds: prepared.holds.iter().map(|one| one.name().to_owned()).collect(),
        watched: prepared.watched.iter().map(|one| one.name().to_owned()).collect(),
        line: describe_profile(&resolved.profile, workspace),
    }
}

/// The keys of a profile as JSON, with the words of YAML.
pub fn profile_keys(profile: &SandboxProfile) -> Map<String, Json> {
    let paths = |paths: &[PathBuf]| -> Json {
        paths.iter().map(|path| path.to_string_lossy().into_owned()).collect()
    };
    let mut keys = Map::new();
    keys.insert("write".to_owned(), paths(&profile.write));
    keys.insert("keep".to_owned(), paths(&profile.keep));
    let read = match &profile.read {
        ReadAccess::All => json!("all"),
        ReadAccess::Only(list) => paths(list),
    };
    keys.insert("read".to_owned(), read);
    keys.insert("hide".to_owned(), paths(&profile.hide));
    keys.insert("home".to_owned(), json!(profile.home.name()));
    let net = match &profile.net {
        NetAccess::None => json!("none"),
        NetAccess::All => json!("all"),
        NetAccess::Hosts(rules) => rules.iter().map(ToString::to_string).collect(),
    };
    keys.insert("net".to_owned(), net);
    let env = match &profile.env {
        EnvAccess::Safe => json!("safe"),
        EnvAccess::All => json!("all"),
        EnvAccess::Only(names) => json!(names),
    };
    keys.insert("env".to_owned(), env);
    keys.insert("sockets".to_owned(), paths(&profile.sockets));
    keys.insert("limits".to_owned(), limits_json(&profile.limits));
    if profile.runs {
        keys.insert("runs".to_owned(), json!(true));
    }
    keys
}

fn limits_json(limits: &SandboxLimits) -> Json {
    let entries = [
        ("memory", limits.memory),
        ("processes", limits.processes),
        ("cpu", limits.cpu),
        ("file", limits.file),
        ("open_files", limits.open_files),
    ];
    let named =
        entries.into_iter().filter_map(|(name, value)| Some((name.to_owned(), json!(value?))));
    Json::Object(named.collect())
}

/// The names of the variables of the network that a sandbox without all of it takes away.
pub(crate) fn is_proxy_variable(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    matches!(name.as_str(), "http_proxy" | "https_proxy" | "ftp_proxy" | "all_proxy" | "no_proxy")
}

/// The variables of `inherited` that a process in the sandbox gets.
pub(crate) fn filter_variables(
    inherited: &EnvMap,
    sandbox: ActiveSandbox<'_>,
    passed: &[String],
) -> EnvMap {
    let filter = sandbox.env();
    let has_own_network = sandbox.profile().net != NetAccess::All;
    inherited
        .iter()
        .filter(|(name, value)| {
            name.to_str().is_some_and(|name| {
                passed.iter().any(|passed| passed == name)
                    || filter.allows_value(name, &value.to_string_lossy())
                        && !(has_own_network && is_proxy_variable(name))
            })
        })
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}
