//! `env-file`: variables in `env_file` that no tool gets from a file.

use super::Linter;
use delta_agent::agent::env_layers::is_process_only;
use delta_base::api_key_names::VENDOR_KEY_VARIABLES;
use delta_yaml::yaml::{YamlDocument, YamlNode};

const RULE: &str = "env-file";

pub(super) fn check_env_file(doc: &YamlDocument, linter: &mut Linter<'_>) {
    let key_variable = doc.root.get("llm").and_then(|llm| llm.get("api_key_env")?.scalar());
    for node in doc.root.get("env_file").map(YamlNode::items).unwrap_or_default() {
        let name = node.scalar().unwrap_or_default();
        let (message, help) = if VENDOR_KEY_VARIABLES.contains(&name) || key_variable == Some(name)
        {
            (
                format!("`{name}` is a key, which `env_file` does not pass to tools"),
                format!("write `pass_env: [{name}]` in the tool that needs it"),
            )
        } else if is_process_only(name) {
            (
                format!("`{name}` is used only from the environment of delta, never from a file"),
                "remove it".to_owned(),
            )
        } else {
            continue;
        };
        linter.warn(RULE, doc.diagnostic_at(node, message, help));
    }
}
