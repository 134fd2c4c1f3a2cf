//! `delta init`: creates an agent from a template. Never changes an existing file.

use crate::init_provider::InitProvider;
use clap::{Args, ValueEnum};
use delta_agent::agent::agents_lock::{AGENT_NAME_RULE, is_agent_name};
use delta_base::shell_quote::shell_quote;
use delta_base::signal::CancelToken;
use delta_base::terminal_text::strip_terminal_controls;
use delta_base::{durable, terminal};
use delta_operator::arguments::agent_template::AgentTemplate;
use delta_operator::arguments::run_sandbox;
use delta_operator::failure::CommandFailure;
use delta_operator::{cancel, command_line};
use delta_program::stdio;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fs, io};

/// Create an agent from a template
///
/// Prints the path of the directory, which must be new, or empty except for .git. The agent gets your model (DELTA_MODEL, or
/// `model` in config.yaml), else the provider whose key the environment has.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct InitArgs {
    /// Agent directory; its last component is the agent's name [default: the current directory]
    name: Option<PathBuf>,
    /// Template to start from [default: ask at the terminal]
    #[arg(short, long, value_enum)]
    template: Option<AgentTemplate>,
    /// Do not ask; use the template `minimal`
    #[arg(short, long)]
    yes: bool,
}

const EXAMPLES: &str = "\
Examples:
  delta init my-agent                 # asks for the template
  delta init -t file-ops agents/editor
  cd \"$(delta init -y my-agent)\" &&
    delta run --model script:script.yaml -m \"What is here?\"";

/// Creates an agent; returns the exit code.
pub fn init_command(args: &InitArgs) -> Result<ExitCode, CommandFailure> {
    let dir = args.name.clone().unwrap_or_else(|| PathBuf::from("."));
    let name = match parse_agent_name(&dir) {
        Ok(name) => name,
        Err(message) => return Ok(command_line::print_usage_error::<InitArgs>("init", &message)),
    };
    check_directory_is_empty(&dir)?;
    let default = args.yes.then_some(AgentTemplate::Minimal);
    let template = args.template.or(default);
    if template.is_none() && !terminal::can_prompt() {
        let names = AgentTemplate::value_variants().iter().map(|template| template.name());
        let names = names.collect::<Vec<_>>().join(", ");
        let message = format!(
            "delta cannot ask for the template without a terminal: pass `-t TEMPLATE` ({names}), or `-y` for minimal"
        );
        return Ok(command_line::print_usage_error::<InitArgs>("init", &message));
    }
    create_agent(&dir, &name, template, args.yes).map(|()| ExitCode::SUCCESS)
}

fn create_agent(
    dir: &Path,
    name: &str,
    template: Option<AgentTemplate>,
    accepts_default: bool,
) -> Result<(), CommandFailure> {
    let cancel = cancel::install_cancel()?;
    let template = match template {
        Some(template) => template,
        None => choose_template(&cancel)?,
    };
    let provider = InitProvider::choose(accepts_default, &cancel)?;
    let mut created = CreatedPaths::default();
    if let Err(error) = write_template(dir, name, template, &provider, &mut created) {
        let remaining = created.remove_all();
        let hint = format!("could not remove: {}", list_paths(&remaining));
        let hint = (!remaining.is_empty()).then_some(hint);
        return Err(CommandFailure::from(error).with_hint(hint));
    }
    stdio::print_text(&format!("{}\n", dir.display()));
    // In its own directory an agent needs no name.
    let agent = match dir.to_string_lossy() {
        current if current == "." => String::new(),
        other => format!(" --agent {}", shell_quote(&other)),
    };
    let task = shell_quote(template.example_task());
    stdio::print_error_line(&format!(
        "Created agent `{name}` from template `{}`.",
        template.name()
    ));
    print_sandbox_note(dir);
    // The coding agent has no model.
    let (heading, model) = match template {
        AgentTemplate::Coding if !provider.is_operators => {
            ("Run it with a model:", format!(" --model {}", provider.model_option()))
        }
        AgentTemplate::Coding => ("Run it with your model:", String::new()),
        _ => ("Run it with the model in agent.yaml:", String::new()),
    };
    let key =
        if provider.is_key_set { String::new() } else { format!("{}=... ", provider.key_variable) };
    stdio::print_error_line("Try it without an API key:");
    stdio::print_error_line(&format!("  delta run{agent} --model script:script.yaml -m {task}"));
    stdio::print_error_line(heading);
    stdio::print_error_line(&format!("  {key}delta run{agent}{model} -m {task}"));
    Ok(())
}

/// Prints that a run of the new agent would not start here, and how it does. The agent is for other machines too.
fn print_sandbox_note(dir: &Path) {
    let Some((missing, reason)) = run_sandbox::find_missing_guarantees(dir) else { return };
    stdio::print_error_line(&format!(
        "Note: this machine cannot enforce the agent's sandbox ({missing}): {reason}.\n\
         \x20 `delta sandbox check` prints what is enforced here and what to change. To run without, add \
         `--sandbox-without {missing}`, or write `sandbox: off` in agent.yaml."
    ));
}

/// The name of the agent in `dir`: the last part of its path.
fn parse_agent_name(dir: &Path) -> Result<String, String> {
    // A directory that only `..` leads out of would be created, and stay empty.
    for path in dir.ancestors().filter(|path| path.ends_with("..")) {
        path.metadata().map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let path = match dir.file_name() {
        Some(_) => dir.to_owned(),
        // `.` and `..` must be resolved to a name.
        None => dir.canonicalize().map_err(|error| format!("{}: {error}", dir.display()))?,
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if !is_agent_name(&name) {
        return Err(format!(
            "`{}` is not an agent name: {AGENT_NAME_RULE}",
            strip_terminal_controls(&name)
        ));
    }
    Ok(name.into_owned())
}

/// Refuses a directory with files: the template would overwrite them or mix with them.
fn check_directory_is_empty(dir: &Path) -> Result<(), CommandFailure> {
    let hint = "name a new directory: `delta init NAME`";
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries.flatten(),
        Err(error) if error.kind() == io::ErrorKind::NotFound && !dir.is_symlink() => return Ok(()),
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotADirectory | io::ErrorKind::NotFound) =>
        {
            return Err(CommandFailure::already_exists(
                format!("{} is not a directory", dir.display()),
                hint,
            ));
        }
        Err(source) => {
            let error = durable::FileError { action: "read", path: dir.to_owned(), source };
            return Err(error.into());
        }
    };
    let mut names: Vec<PathBuf> = entries.map(|entry| entry.file_name().into()).collect();
    names.retain(|name| name != Path::new(".git"));
    names.sort();
    if names.is_empty() {
        return Ok(());
    }
    let message = format!("{} is not empty: it contains {}", dir.display(), list_paths(&names));
    Err(CommandFailure::already_exists(message, hint))
}

/// Lists the first paths, for a message.
fn list_paths(paths: &[PathBuf]) -> String {
    const MAX_PATHS: usize = 5;
    let mut names: Vec<String> = paths
        .iter()
        .take(MAX_PATHS)
        .map(|path| strip_terminal_controls(&path.to_string_lossy()))
        .collect();
    if paths.len() > MAX_PATHS {
        names.push(format!("{} more", paths.len() - MAX_PATHS));
    }
    names.join(", ")
}

fn choose_template(cancel: &CancelToken) -> Result<AgentTemplate, CommandFailure> {
    let all = AgentTemplate::value_variants();
    let mut prompt = String::from("Template?\n");
    for (index, template) in all.iter().enumerate() {
        let value = template.to_possible_value();
        let about = value.as_ref().and_then(|value| value.get_help()).map(ToString::to_string);
        let about = about.unwrap_or_default();
        prompt.push_str(&format!("  {}) {:<13}{about}\n", index + 1, template.name()));
    }
    prompt.push_str("choose [1]> ");
    loop {
        let answer = terminal::prompt_line(&prompt, cancel).map_err(|error| {
            let hint = "pass `-t TEMPLATE`, or `-y` for minimal";
            CommandFailure::unanswered("no template was chosen", &error, hint)
        })?;
        let answer = answer.trim();
        let number = if answer.is_empty() { Some(1) } else { answer.parse::<usize>().ok() };
        let by_number = number.and_then(|number| all.get(number.checked_sub(1)?).copied());
        if let Some(template) = by_number.or_else(|| AgentTemplate::from_str(answer, true).ok()) {
            return Ok(template);
        }
        prompt = format!("expected a number or a name, found `{answer}`> ");
    }
}

fn write_template(
    dir: &Path,
    name: &str,
    template: AgentTemplate,
    provider: &InitProvider,
    created: &mut CreatedPaths,
) -> Result<(), durable::FileError> {
    for file in template.render(name) {
        let path = dir.join(&file.path);
        let text = match file.path.as_str() {
            "agent.yaml" | "README.md" => provider.adapt_template_text(&file.text),
            _ => file.text.clone(),
        };
        created.ensure_parents(&path)?;
        durable::create_shared_unsynced(&path, text.as_bytes(), file.is_executable())?;
        created.0.push(path);
    }
    Ok(())
}

/// The files and directories that were created, outer ones first.
#[derive(Default)]
struct CreatedPaths(Vec<PathBuf>);

impl CreatedPaths {
    fn ensure_parents(&mut self, file: &Path) -> Result<(), durable::FileError> {
        let parents = file.ancestors().skip(1).filter(|dir| !dir.as_os_str().is_empty());
        let missing: Vec<&Path> = parents.take_while(|dir| !dir.exists()).collect();
        for dir in missing.into_iter().rev() {
            durable::ensure_shared_dir(dir)?;
            self.0.push(dir.to_owned());
        }
        Ok(())
    }

    /// Removes them, except directories that contain other files; returns what could not be removed.
    fn remove_all(self) -> Vec<PathBuf> {
        let mut paths = self.0;
        paths.reverse();
        paths.retain(|path| {
            if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) }.is_err()
        });
        paths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_11_4_names_are_plain() {
        for good in ["a", "agents/my-agent", "../x.y_z", &"a".repeat(64)] {
            let last = good.rsplit('/').next().unwrap();
            assert_eq!(parse_agent_name(Path::new(good)), Ok(last.to_owned()));
        }
        for bad in ["-a", "a b", "ä", "1", "a\nb", ".hidden", "x/a:b", "Null", &"a".repeat(65)] {
            assert!(parse_agent_name(Path::new(bad)).is_err(), "{bad:?}");
        }
    }
}
