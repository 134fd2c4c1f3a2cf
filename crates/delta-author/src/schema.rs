//! `delta schema`: prints the JSON Schema of a file that an author writes, for editors.

use clap::Args;
use delta_operator::arguments::editor_schema::SchemaName;
use delta_program::stdio;
use std::process::ExitCode;

/// Print the JSON Schema of a configuration file
///
/// A YAML language server uses it to complete and check the file: write `# yaml-language-server: $schema=PATH` as its first
/// line.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct SchemaArgs {
    /// File to describe
    #[arg(value_name = "NAME", value_enum)]
    name: SchemaName,
}

const EXAMPLES: &str = "\
Examples:
  delta schema agent > .schema/agent.json   # where agent.yaml names it
  delta schema context | jq .definitions";

/// Prints the schema of a file; returns the exit code.
pub fn schema_command(args: &SchemaArgs) -> ExitCode {
    match stdio::print_result(&args.name.render()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            stdio::print_error_line(&format!(
                "error: could not write the schema to stdout: {error}"
            ));
            ExitCode::FAILURE
        }
    }
}
