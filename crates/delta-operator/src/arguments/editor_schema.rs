//! The JSON Schemas of the files that an author writes, by name.

use crate::config;
use clap::ValueEnum;
use delta_agent::{agent, context, hook};
use delta_lint::sweep_schema::SWEEP_MAPPING;
use delta_lint::{agent_test, schema};
use delta_llm::llm;
use delta_yaml::yaml::MappingSchema;

/// A file that an author or an operator writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SchemaName {
    /// agent.yaml
    Agent,
    /// context.yaml
    Context,
    /// hooks.yaml
    Hooks,
    /// Script file of the provider `script`
    Script,
    /// Test file in tests/
    Test,
    /// File with `tools:` that agents import
    Tools,
    /// The operator's config.yaml
    Config,
    /// sweep.yaml of a sweep
    Sweep,
}

impl SchemaName {
    fn mapping(self) -> (&'static str, &'static MappingSchema) {
        match self {
            Self::Agent => ("agent.yaml of delta", &agent::AGENT_MAPPING),
            Self::Context => ("context.yaml of delta", &context::CONTEXT_MAPPING),
            Self::Hooks => ("hooks.yaml of delta", &hook::HOOKS_MAPPING),
            Self::Tools => {
                ("an imported file of delta", &agent::tool_imports::IMPORTED_FILE_MAPPING)
            }
            Self::Config => ("config.yaml of delta", &config::CONFIG_MAPPING),
            Self::Sweep => ("sweep.yaml of delta", &SWEEP_MAPPING),
            Self::Test => ("a test of delta", &agent_test::TEST_MAPPING),
            Self::Script => ("a script file of delta", &llm::script::SCRIPT_MAPPING),
        }
    }

    /// The schema of the file at `name` in an agent directory, if there is one.
    pub fn for_file(name: &str) -> Option<Self> {
        match name {
            "agent.yaml" => Some(Self::Agent),
            "context.yaml" => Some(Self::Context),
            "hooks.yaml" => Some(Self::Hooks),
            "script.yaml" => Some(Self::Script),
            _ if name.starts_with("tests/") && name.ends_with(".yaml") => Some(Self::Test),
            _ => None,
        }
    }

    /// The path that `delta init` writes the schema to, relative to the agent directory.
    pub fn path(self) -> String {
        let value = self.to_possible_value();
        format!(".schema/{}.json", value.as_ref().map_or("", |value| value.get_name()))
    }

    /// The schema, as JSON that ends with a newline.
    pub fn render(self) -> String {
        let (title, mapping) = self.mapping();
        format!("{:#}\n", schema::file_schema(title, mapping))
    }
}
