//! The rule for shell tools without a sandbox.

use super::{Linter, ToolSubject};
use delta_agent::tool::ToolSyntax;
use delta_yaml::yaml::{YamlDocument, YamlNode};

/// Whether the agent says for all of its tools whether they have a sandbox.
pub(super) fn has_default_sandbox(main: &YamlDocument) -> bool {
    let defaults = main.root.get("defaults").and_then(|defaults| defaults.get("sandbox"));
    main.root.get("sandbox").or(defaults).is_some_and(|node: &YamlNode| !node.is_null())
}

/// Reports the first tool with a shell that has no sandbox: what is missing is one line for all of them.
pub(super) fn check_sandbox_use(subject: &ToolSubject<'_>, linter: &mut Linter<'_>) {
    let has_sandbox = subject.tool.sandbox.is_some();
    if !linter.expects_sandbox || has_sandbox || subject.tool.syntax != ToolSyntax::Shell {
        return;
    }
    let message = format!("`{}` can change and read whatever you can", subject.tool.name);
    let help = "write `sandbox: workspace` at the top of agent.yaml, or `sandbox: off` if the tools need all rights";
    let count = linter.findings.len();
    linter.warn("no-sandbox", subject.diagnostic_at_key("shell", message, help));
    // The other tools can still lack one if this tool allows it.
    linter.expects_sandbox = linter.findings.len() == count;
}
