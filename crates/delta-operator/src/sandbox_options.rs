//! What the operator says about sandboxes: `--sandbox`, DELTA_SANDBOX, config.yaml, /etc/delta/sandbox.yaml and
//! `--sandbox-without`.
//!
//! Only the process's environment and files outside of workspaces and agents count.

use crate::failure::CommandFailure;
use crate::{config, environment};
use clap::Args;
use delta_agent::run_sandbox::OperatorPolicy;
use delta_base::hex::sha256_hex;
use delta_base::{durable, suggest};
use delta_run::event::{MACHINE_POLICY, PolicySource};
use delta_sandbox::{
    DeclaredProfile, Guarantee, HostRule, OFF_PROFILE, POLICY_MAPPING, ProfileKeys, READER_PROFILE,
    WORKSPACE_PROFILE, parse_host_rule,
};
use delta_yaml::diagnostic::DiagnosticReport;
use delta_yaml::yaml::{MappingFields, YamlDocument};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The variable in place of `--sandbox`.
pub const SANDBOX_VARIABLE: &str = "DELTA_SANDBOX";
/// Every guarantee, in `--sandbox-without`.
const EVERY_GUARANTEE: &str = "all";

/// The options for sandboxes.
#[derive(Debug, Clone, Default, Args)]
pub struct SandboxOptions {
    /// Let no tool do more than `workspace`, `reader` or a sandbox FILE allows; `off`: no limit
    ///
    /// [default: DELTA_SANDBOX, else `sandbox` in config.yaml]
    #[arg(long, value_name = "NAME|FILE", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    sandbox: Option<String>,
    /// Let tools in a sandbox reach HOST, such as `crates.io` or `localhost:8080`; repeatable
    ///
    /// Within /etc/delta/sandbox.yaml and `--sandbox`; `net` in config.yaml is for every run.
    #[arg(long, value_name = "HOST", value_parser = parse_host_rule, hide_short_help = true)]
    net: Vec<HostRule>,
    /// Run even if these guarantees cannot be enforced: `net,sockets`, or `all`
    #[arg(long, value_name = "LIST", value_parser = parse_guarantees, hide_short_help = true)]
    sandbox_without: Option<GuaranteeList>,
}

/// The guarantees in the value of an option.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct GuaranteeList(Vec<Guarantee>);

fn parse_guarantees(text: &str) -> Result<GuaranteeList, String> {
    if text == EVERY_GUARANTEE {
        return Ok(GuaranteeList(Guarantee::ALL.to_vec()));
    }
    let mut list = Vec::new();
    for name in text.split(',') {
        let names = Guarantee::ALL.map(Guarantee::name).into_iter().chain([EVERY_GUARANTEE]);
        let guarantee = Guarantee::parse(name).ok_or_else(|| {
            format!("`{name}` is not a guarantee; {}", suggest::did_you_mean(name, names))
        })?;
        list.push(guarantee);
    }
    list.sort();
    list.dedup();
    Ok(GuaranteeList(list))
}

impl SandboxOptions {
    /// Whether an option is set.
    pub fn are_set(&self) -> bool {
        self.sandbox.is_some() || self.sandbox_without.is_some() || !self.net.is_empty()
    }

    /// The options again, for a process in another directory.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = Vec::new();
        if let Some(text) = &self.sandbox {
            let is_file = text != OFF_PROFILE && DeclaredProfile::builtin(text).is_none();
            let path = std::path::absolute(text).ok().filter(|_| is_file);
            let text = path.map_or(text.clone(), |path| path.to_string_lossy().into_owned());
            arguments.push(format!("--sandbox={text}"));
        }
        arguments.extend(self.net.iter().map(|host| format!("--net={host}")));
        if let Some(GuaranteeList(list)) = &self.sandbox_without {
            let names: Vec<&str> = list.iter().map(|guarantee| guarantee.name()).collect();
            arguments.push(format!("--sandbox-without={}", names.join(",")));
        }
        arguments
    }

    /// What the operator and the machine say.
    ///
    /// # Errors
    /// A file has a mistake or belongs to another user, a name is unknown, or a guarantee is both required and waived.
    pub fn policy(&self) -> Result<OperatorPolicy, CommandFailure> {
        let mut policy = OperatorPolicy::default();
        let machine = read_machine_policy()?;
        let chosen = match chosen_sandbox(self.sandbox.as_deref())? {
            Some((text, origin, base)) => read_chosen_policy(&text, &origin, &base)?,
            None => None,
        };
        for file in machine.into_iter().chain(chosen) {
            policy.required.extend(file.required);
            policy.profiles.extend(file.profile);
            policy.sources.push(file.source);
        }
        policy.hosts.clone_from(&self.net);
        policy.waived = self.sandbox_without.clone().unwrap_or_default().0;
        let is_all = policy.waived.len() == Guarantee::ALL.len();
        let refused: Vec<&str> = policy
            .waived
            .iter()
            .filter(|guarantee| policy.required.contains(guarantee))
            .map(|guarantee| guarantee.name())
            .collect();
        if !refused.is_empty() && !is_all {
            let message = format!(
                "`--sandbox-without {}`: {MACHINE_POLICY} or `--sandbox` requires it",
                refused.join(",")
            );
            return Err(CommandFailure::config(message, "leave it out"));
        }
        policy.waived.retain(|guarantee| !policy.required.contains(guarantee));
        Ok(policy)
    }
}

/// A file or name, and what it says.
#[derive(Debug)]
pub struct PolicyFile {
    source: PolicySource,
    profile: Option<DeclaredProfile>,
    required: Vec<Guarantee>,
}

/// The name or file that the operator chose, its origin, and the directory of a relative path.
fn chosen_sandbox(
    option: Option<&str>,
) -> Result<Option<(String, String, PathBuf)>, CommandFailure> {
    let current = std::env::current_dir().unwrap_or_default();
    if let Some(text) = option {
        return Ok(Some((text.to_owned(), "--sandbox".to_owned(), current)));
    }
    if let Some(text) = environment::variable(SANDBOX_VARIABLE) {
        return Ok(Some((text, SANDBOX_VARIABLE.to_owned(), current)));
    }
    config::sandbox()
}

fn read_chosen_policy(
    text: &str,
    origin: &str,
    base: &Path,
) -> Result<Option<PolicyFile>, CommandFailure> {
    if text == OFF_PROFILE {
        return Ok(None);
    }
    if let Some(profile) = DeclaredProfile::builtin(text) {
        let source = PolicySource { file: text.to_owned(), sha256: None };
        return Ok(Some(PolicyFile { source, profile: Some(profile), required: Vec::new() }));
    }
    let path = base.join(text);
    match durable::read_regular_text(&path) {
        Ok(content) => Ok(Some(parse_policy(&path, content)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound && !text.contains(['/', '.']) => {
            let names = [WORKSPACE_PROFILE, READER_PROFILE, OFF_PROFILE];
            let message = format!("{origin}: there is no sandbox `{text}`");
            let help = match text {
                "none" | "false" | "no" => "write `off`".to_owned(),
                "true" | "yes" | "on" => "write `workspace`".to_owned(),
                _ => format!(
                    "name a file by its path, such as ./{text}.yaml; {}",
                    suggest::did_you_mean(text, names)
                ),
            };
            Err(CommandFailure::config(message, help))
        }
        Err(error) => {
            let message = format!("{origin}: could not read {}: {error}", path.display());
            Err(CommandFailure::config(message, None))
        }
    }
}

fn read_machine_policy() -> Result<Option<PolicyFile>, CommandFailure> {
    let path = Path::new(MACHINE_POLICY);
    for (path, kind) in [(path.parent().unwrap_or(path), "directory"), (path, "file")] {
        let metadata = match fs::symlink_metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                let message = format!("could not read {}: {error}", path.display());
                return Err(CommandFailure::config(message, None));
            }
        };
        let is_expected = if kind == "file" { metadata.is_file() } else { metadata.is_dir() };
        if !is_expected || metadata.uid() != 0 || metadata.mode() & 0o022 != 0 {
            let message = format!(
                "{} has to be a {kind} of root that no other user can write",
                path.display()
            );
            let hint = format!("`sudo chown root:root {0} && sudo chmod go-w {0}`", path.display());
            return Err(CommandFailure::config(message, hint));
        }
    }
    let content = durable::read_regular_text(path).map_err(|error| {
        CommandFailure::config(format!("could not read {MACHINE_POLICY}: {error}"), None)
    })?;
    Ok(Some(parse_policy(path, content)?))
}

/// Reads the text of the sandbox file at `path`.
///
/// # Errors
/// All mistakes of the file, with their positions.
pub fn parse_policy(path: &Path, content: String) -> Result<PolicyFile, DiagnosticReport> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = path.display().to_string();
    let sha256 = Some(sha256_hex(&content));
    let doc = YamlDocument::parse(name.clone(), content)
        .map_err(|diagnostic| DiagnosticReport { diagnostics: vec![diagnostic] })?;
    let source = PolicySource { file: name, sha256 };
    let mut file = PolicyFile { source, profile: None, required: Vec::new() };
    if doc.root.is_null() {
        let help = "write `write: [\"${CWD}\"]`, the sandbox `workspace`, or remove the file";
        doc.report(&doc.root, "the file is empty: it would limit nothing", help);
    } else if let Some(fields) = doc.fields(&doc.root, &POLICY_MAPPING) {
        file.required = read_required(&doc, fields);
        let keys = ProfileKeys::from_fields(&doc, fields);
        // The machine's file may only require; then each agent, or the operator, says what is limited.
        if keys != ProfileKeys::default() || path != Path::new(MACHINE_POLICY) {
            file.profile = Some(DeclaredProfile::workspace().with_keys(&keys));
        }
    }
    let mut report = DiagnosticReport::default();
    doc.drain_diagnostics(&mut report);
    if report.is_empty() { Ok(file) } else { Err(report) }
}

fn read_required(doc: &YamlDocument, fields: MappingFields<'_>) -> Vec<Guarantee> {
    let mut required = Vec::new();
    for item in fields.list("require") {
        let name = item.scalar().unwrap_or_default();
        match Guarantee::parse(name) {
            Some(guarantee) => required.push(guarantee),
            None => {
                let names = Guarantee::ALL.map(Guarantee::name);
                let help = suggest::did_you_mean(name, names);
                doc.report(item, format!("`{name}` is not a guarantee"), help);
            }
        }
    }
    required
}
