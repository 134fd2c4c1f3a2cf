//! `delta schema`: what an editor needs to know of the files of an agent.

use super::stdout;
use crate::yaml::Mapping;
use crate::{agent, agent_test, context, hook, llm, schema};
use clap::{Args, ValueEnum};
use std::process::ExitCode;

/// Print the JSON Schema of a file
///
/// A YAML language server completes and checks with it: write `# yaml-language-server: $schema=PATH` as the first line of
/// the file.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct SchemaArgs {
    /// The file
    #[arg(value_name = "NAME", value_enum)]
    name: Name,
}

const EXAMPLES: &str = "\
Examples:
  delta schema agent > .schema/agent.json      for `# yaml-language-server: $schema=.schema/agent.json`
  delta schema context | jq .definitions";

/// A file of an agent directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// agent.yaml
    Agent,
    /// context.yaml
    Context,
    /// hooks.yaml
    Hooks,
    /// A script file, of the provider `script`
    Script,
    /// A test, a file in tests/
    Test,
    /// A file with `tools:` that agents import
    Tools,
}

impl Name {
    fn table(self) -> (&'static str, &'static Mapping) {
        match self {
            Self::Agent => ("agent.yaml of delta", &agent::AGENT),
            Self::Context => ("context.yaml of delta", &context::CONTEXT),
            Self::Hooks => ("hooks.yaml of delta", &hook::HOOKS),
            Self::Tools => ("an imported file of delta", &agent::imports::TOOLS),
            Self::Test => ("a test of delta", &agent_test::TEST),
            Self::Script => ("a script file of delta", &llm::script::SCRIPT),
        }
    }

    /// The schema of the file `name` of an agent directory, if there is one.
    pub fn of_file(name: &str) -> Option<Self> {
        match name {
            "agent.yaml" => Some(Self::Agent),
            "context.yaml" => Some(Self::Context),
            "hooks.yaml" => Some(Self::Hooks),
            "script.yaml" => Some(Self::Script),
            _ if name.starts_with("tests/") && name.ends_with(".yaml") => Some(Self::Test),
            _ => None,
        }
    }

    /// Where `delta init` keeps it, relative to the agent directory.
    pub fn path(self) -> String {
        let value = self.to_possible_value();
        format!(".schema/{}.json", value.as_ref().map_or("", |value| value.get_name()))
    }

    /// The schema, as JSON that ends with a newline.
    pub fn text(self) -> String {
        let (title, mapping) = self.table();
        format!("{:#}\n", schema::of_file(title, mapping))
    }
}

/// Prints the schema of a file.
pub fn schema(args: &SchemaArgs) -> ExitCode {
    match stdout::write_result(&args.name.text()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            stdout::complain(&format!("Error: the schema could not be written to stdout: {error}"));
            ExitCode::FAILURE
        }
    }
}
