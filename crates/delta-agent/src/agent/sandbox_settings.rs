//! `sandbox:` and `sandboxes:` of agent.yaml: the profile of each tool and of the generators, as written.

use super::tool_defaults::DEFAULTS_MAPPING;
use crate::hook::AgentHooks;
use crate::tool::Tool;
use delta_sandbox::{DeclaredProfile, NamedProfiles, SandboxSetting};
use delta_yaml::diagnostic::{Diagnostic, DiagnosticReport};
use delta_yaml::yaml::{MappingFields, YamlDocument};

/// The command whose holder keeps the sandbox of the call that started it, and its name as a program.
const PTY_COMMANDS: [&str; 2] = ["delta-sessions pty", "delta-sessions-pty"];

/// The sandbox of an agent.
#[derive(Debug, Clone, Default)]
pub struct AgentSandbox {
    /// The profile of the generators, and of the tools without one; `None` for none.
    pub profile: Option<DeclaredProfile>,
    /// The profile of the command of `provider: command`; `None` for none.
    pub llm: Option<DeclaredProfile>,
    /// The profiles that tools and hooks name.
    pub named: NamedProfiles,
}

impl AgentSandbox {
    /// Reads the settings, and gives each tool its profile.
    pub(super) fn read(doc: &YamlDocument, fields: MappingFields<'_>, tools: &mut [Tool]) -> Self {
        let mut report = DiagnosticReport::default();
        let named = fields
            .non_null("sandboxes")
            .map(|node| NamedProfiles::read(doc, node))
            .unwrap_or_default();
        let mut sandbox = Self { profile: None, llm: None, named };
        let agent = fields.non_null("sandbox").and_then(|node| SandboxSetting::read(doc, node));
        sandbox.profile = sandbox.profile_of(agent.as_ref(), None, &mut report);
        let defaults = fields
            .non_null("defaults")
            .and_then(|node| doc.fields(node, &DEFAULTS_MAPPING))
            .and_then(|defaults| defaults.non_null("sandbox"))
            .and_then(|node| SandboxSetting::read(doc, node));
        let base = sandbox.profile.clone();
        let default = sandbox.profile_of(defaults.as_ref(), base, &mut report);
        for tool in tools.iter_mut() {
            tool.profile = sandbox.profile_of(tool.sandbox.as_ref(), default.clone(), &mut report);
        }
        let llm = fields.non_null("llm").and_then(|node| node.get("sandbox"));
        if let Some(node) = llm.filter(|node| !node.is_null())
            && let Some(setting) = SandboxSetting::read(doc, node)
        {
            let provider = fields.non_null("llm").and_then(|llm| llm.get("provider")?.scalar());
            if provider != Some("command") {
                let message =
                    "`sandbox` of `llm` is for `provider: command`: delta itself asks an endpoint";
                doc.report(node, message, "write it at the top of agent.yaml for the tools");
            }
            sandbox.llm = sandbox.profile_of(Some(&setting), sandbox.profile.clone(), &mut report);
        }
        check_session_tools(tools, &mut report);
        check_surviving_tools(tools, &mut report);
        doc.append_report(&mut report);
        sandbox
    }

    /// Gives each hook its profile: without `sandbox`, a hook has all rights.
    pub(super) fn apply_to_hooks(&self, hooks: &mut AgentHooks, report: &mut DiagnosticReport) {
        for config in hooks.configs_mut() {
            config.profile = match &config.sandbox {
                None => None,
                setting => self.profile_of(setting.as_ref(), self.profile.clone(), report),
            };
        }
    }

    /// The profile of a setting; `base` without one, and under a map.
    fn profile_of(
        &self,
        setting: Option<&SandboxSetting>,
        base: Option<DeclaredProfile>,
        report: &mut DiagnosticReport,
    ) -> Option<DeclaredProfile> {
        let Some(setting) = setting else { return base };
        let base = base.unwrap_or_else(DeclaredProfile::workspace);
        match setting.profile(&base, &self.named) {
            Ok(profile) => profile,
            Err(diagnostic) => {
                report.push(diagnostic);
                None
            }
        }
    }
}

/// Reports tools with `survive` and a sandbox, which would end with the engine.
fn check_surviving_tools(tools: &[Tool], report: &mut DiagnosticReport) {
    for tool in tools.iter().filter(|tool| tool.survives && tool.profile.is_some()) {
        let message = format!(
            "`{}` has `survive: true`, and its sandbox would end with the engine",
            tool.name
        );
        let help =
            "write `sandbox: off` for the tool if it may do everything, or leave out `survive`";
        report.push(Diagnostic {
            line: tool.line,
            column: 1,
            ..Diagnostic::for_file(tool.file.clone(), message, help)
        });
    }
}

/// The holder of a session serves the calls of several tools, in the sandbox of the first.
fn check_session_tools(tools: &[Tool], report: &mut DiagnosticReport) {
    let mut tools = tools.iter().filter_map(|tool| {
        let pty = PTY_COMMANDS.into_iter().find(|command| tool.template.contains(command))?;
        Some((tool, pty))
    });
    let Some((first, _)) = tools.next() else { return };
    for (tool, pty) in tools.filter(|(tool, _)| tool.profile != first.profile) {
        let message =
            format!("`{}` and `{}` use {pty} with different sandboxes", first.name, tool.name);
        let help = format!(
            "give both the same `sandbox`: a session keeps the sandbox of the call that started it ({}:{})",
            first.file, first.line
        );
        report.push(Diagnostic {
            line: tool.line,
            column: 1,
            ..Diagnostic::for_file(tool.file.clone(), message, help)
        });
    }
}
