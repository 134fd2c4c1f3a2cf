//! `defaults:` of agent.yaml, as far as it says something about tools themselves.

use crate::tool::approval::APPROVE_SHAPE;
use crate::tool::{ApprovalPolicy, Tool};
use delta_base::suggest;
use delta_sandbox::SANDBOX_SHAPE;
use delta_yaml::yaml::mapping_schema::KeySchema;
use delta_yaml::yaml::{MappingFields, MappingSchema, YamlDocument};

/// The section `defaults` of agent.yaml.
pub(super) static DEFAULTS_MAPPING: MappingSchema = MappingSchema::new(
    "`defaults`",
    "The settings of all tools that do not have their own.",
    &[
        KeySchema::optional(
            "approve",
            APPROVE_SHAPE,
            "Which calls a person has to approve, as in a tool; `finish` and `ask_human` of delta itself are not affected.",
        ),
        KeySchema::optional(
            "sandbox",
            SANDBOX_SHAPE,
            "What the tools may do, as in a tool; a map of keys is over `sandbox` of the agent.",
        ),
    ],
);

/// Gives the tools without `approve` the one in `defaults`.
pub(super) fn apply_tool_defaults(
    doc: &YamlDocument,
    fields: MappingFields<'_>,
    tools: &mut [Tool],
) {
    let Some(defaults) = fields.non_null("defaults") else { return };
    let Some(defaults) = doc.fields(defaults, &DEFAULTS_MAPPING) else { return };
    let Some(node) = defaults.non_null("approve") else { return };
    let parameters: Vec<&str> = tools
        .iter()
        .filter(|tool| tool.approve.is_none())
        .flat_map(|tool| &tool.parameters)
        .map(|parameter| parameter.name.as_str())
        .collect();
    let policy = ApprovalPolicy::read(doc, node, &mut |name| {
        // Each tool has its own parameter with a command line, or asks.
        let Some(name) = name.filter(|name| !parameters.contains(name)) else { return Ok(()) };
        Err(if parameters.is_empty() {
            "no tool that takes this default has parameters".to_owned()
        } else {
            suggest::did_you_mean(name, parameters.iter().copied())
        })
    });
    let Some(policy) = policy else { return };
    for tool in tools.iter_mut().filter(|tool| tool.approve.is_none()) {
        tool.approve = Some(policy.clone());
    }
}
