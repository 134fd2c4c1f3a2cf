//! `delta tool ...`: expands, checks and migrates the files of an agent.

pub use crate::lint::LintArgs;
pub use crate::migrate::MigrateArgs;
use crate::tool_holder;
use clap::{Args, Subcommand};
use delta_agent::agent::{self, Agent};
use delta_agent::tool::expand::{brought_tools_comment, expand_tools as expand_document};
use delta_lint::lint::MAIN_FILES;
use delta_llm::llm::ModelSelection;
use delta_operator::arguments::agent_choice;
use delta_operator::failure::CommandFailure;
use delta_operator::trust;
use delta_program::stdio;
use delta_yaml::diagnostic::Diagnostic;
use delta_yaml::yaml::YamlDocument;
use std::path::{Path, PathBuf};

/// The keys of agent.yaml that can bring tools which no file has.
const BRINGING_KEYS: [&str; 3] = ["imports", "mcp", "skills"];

/// Expand, check and migrate the files of an agent
#[derive(Debug, Subcommand)]
#[command(about = "Expand, check and migrate the files of an agent", defer = true)]
pub enum ToolCommand {
    /// Print FILE with every `exec:` and `shell:` tool in `command:` form
    Expand(ExpandArgs),
    /// Report errors and likely mistakes in the files of an agent
    Lint(LintArgs),
    /// Migrate an agent directory from an older format
    Migrate(MigrateArgs),
    /// Hold the command of a call that outlives its engine
    #[command(hide = true)]
    Hold(tool_holder::CallHolderArgs),
    /// Wait for the end of such a command
    #[command(hide = true)]
    Await(tool_holder::AwaitArgs),
}

/// Print FILE with every `exec:` and `shell:` tool in `command:` form
///
/// The rest of the file is unchanged, and the output is a valid file that runs the same commands. What MCP servers and skills
/// bring is in comments at its end.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  delta tool expand my-agent/agent.yaml | less")]
pub struct ExpandArgs {
    /// agent.yaml, its directory, or any file with a `tools:` list
    file: PathBuf,
}

/// Prints the expanded file.
pub fn expand_command(args: &ExpandArgs) -> Result<(), CommandFailure> {
    stdio::print_text(&expand_file(&args.file)?);
    Ok(())
}

/// The agent directory at `path`, which may also be the main file in it. `command` is named in the hint of the failure.
pub fn find_agent_dir(path: &Path, command: &str) -> Result<PathBuf, CommandFailure> {
    let is_main_file =
        path.file_name().is_some_and(|name| MAIN_FILES.iter().any(|main| name == *main));
    let dir = match path.parent().filter(|_| is_main_file && !path.is_dir()) {
        Some(parent) if parent == Path::new("") => Path::new("."),
        Some(parent) => parent,
        None => path,
    };
    if MAIN_FILES.iter().any(|name| dir.join(name).exists()) || agent::is_unsearchable(dir) {
        return Ok(dir.to_owned());
    }
    let problem = if dir.exists() {
        "it has no agent.yaml; ".to_owned()
    } else {
        agent_choice::suggest_agents(dir, false)
    };
    let hint = format!("{problem}name an agent directory: `{command} DIR`");
    Err(CommandFailure::config(agent::missing_agent(dir), hint))
}

/// The main file of an agent directory.
fn main_agent_file(path: &Path) -> PathBuf {
    let main_file = MAIN_FILES.iter().map(|name| path.join(name)).find(|file| file.exists());
    main_file.unwrap_or_else(|| path.join(MAIN_FILES[0]))
}

fn expand_file(path: &Path) -> Result<String, CommandFailure> {
    let file = if path.is_dir() { main_agent_file(path) } else { path.to_owned() };
    let name = file.display().to_string();
    if !file.exists() {
        let similar = agent_choice::suggest_agents(path, false);
        let hint = format!(
            "{similar}name agent.yaml, its directory, or a file with a `tools:` list: `delta tool expand FILE`"
        );
        return Err(CommandFailure::config(format!("there is no file {name}"), hint));
    }
    let text = std::fs::read_to_string(&file).map_err(|error| {
        let message = format!("could not read the file: {error}");
        CommandFailure::from(Diagnostic::for_file(name.clone(), message, None))
    })?;
    let doc = YamlDocument::parse(name, text).map_err(CommandFailure::from)?;
    let is_main_file =
        file.file_name().is_some_and(|name| MAIN_FILES.iter().any(|main| name == *main));
    let brings_tools = is_main_file && BRINGING_KEYS.iter().any(|key| doc.root.get(key).is_some());
    let mut expanded = if brings_tools && doc.root.get("tools").is_none() {
        doc.text.clone()
    } else {
        expand_document(&doc)?
    };
    if brings_tools {
        let home = file.parent().filter(|dir| *dir != Path::new("")).unwrap_or(Path::new("."));
        let import_path = trust::read_import_path();
        let agent = Agent::load(home, &ModelSelection::without_llm(), &import_path)?;
        if !expanded.ends_with('\n') {
            expanded.push('\n');
        }
        expanded.push_str(&brought_tools_comment(&agent.tools));
    }
    Ok(expanded)
}
