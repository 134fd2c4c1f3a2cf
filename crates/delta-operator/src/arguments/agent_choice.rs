//! Which agent `delta run` runs: one that is named, the one in the current directory, the operator's default, or the
//! built-in one.

use crate::arguments::builtin_agent::{self, BUILTIN_AGENT};
use crate::arguments::options::RunOptions;
use crate::config::{self, OperatorSetting};
use crate::failure::CommandFailure;
use crate::{api_key, trust};
use delta_agent::agent::{self, Agent};
use delta_base::suggest;
use delta_lint::lint::intended_key;
use delta_llm::llm::{LlmSetting, ModelChoice, ModelSelection};
use delta_run::sweep::packed;
use delta_run::sweep::sweep_dir::SweepDir;
use delta_words::WireForm;
use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path, PathBuf};

/// The agent of a run.
pub struct ChosenAgent {
    /// The directory of the agent.
    pub home: PathBuf,
    /// Where it comes from, unless the path or the current directory shows it. Such an agent works in the current directory
    /// if no workspace is named.
    pub origin: Option<String>,
}

/// Chooses the agent. `named` is the value of `--agent`, `model` the one of `--model`.
///
/// # Errors
/// The operator's configuration has errors, or the built-in agent has no model or cannot be written.
pub fn choose_agent(
    named: Option<&Path>,
    model: Option<&ModelChoice>,
) -> Result<ChosenAgent, CommandFailure> {
    let current = Path::new(".");
    match named {
        Some(path) => Ok(find_named_agent(path)),
        None if is_agent_dir(current) => Ok(ChosenAgent { home: current.to_owned(), origin: None }),
        None => match &config::read()?.default_agent {
            Some(setting) => find_default_agent(setting),
            None => {
                check_has_model(model)?;
                let origin = Some(format!("{BUILTIN_AGENT} (built in)"));
                Ok(ChosenAgent { home: builtin_agent::ensure_builtin_agent()?, origin })
            }
        },
    }
}

/// The built-in agent has the operator's model. The general error would propose to change its files.
fn check_has_model(option: Option<&ModelChoice>) -> Result<(), CommandFailure> {
    let models = config::model_selection(option.cloned())?;
    if models.option.is_some() || models.default.is_some() {
        return Ok(());
    }
    let file = config::read()?.path_text();
    let file = if file.is_empty() { file } else { format!(", or write `model: gpt-4o` in {file}") };
    let mut hint = format!("pass `--model gpt-4o`, or set DELTA_MODEL=gpt-4o{file}");
    hint.push_str(if api_key::is_configured()? {
        "\n`delta models` lists what your endpoint offers"
    } else {
        "\nthe environment has no API key either: export DELTA_API_KEY=..., or for a local server DELTA_BASE_URL=http://localhost:11434/v1"
    });
    Err(CommandFailure::config("no model is chosen for the built-in agent", hint))
}

fn find_named_agent(path: &Path) -> ChosenAgent {
    let home = resolve_agent_dir(path);
    let origin = (home != path).then(|| home.display().to_string());
    ChosenAgent { home, origin }
}

/// The directory that `--agent` names: an installed agent, if its name is not the one of an agent in the current directory,
/// or else the path as it is.
pub fn resolve_agent_dir(path: &Path) -> PathBuf {
    let installed = installed_agent(path).filter(|_| !is_agent_dir(path));
    installed.filter(|home| home.is_dir()).unwrap_or_else(|| path.to_owned())
}

/// The same directory, for a command that loads the agent, which checks what is in it.
///
/// # Errors
/// There is nothing of that name, nor an installed agent.
pub fn find_existing_agent(path: &Path) -> Result<PathBuf, CommandFailure> {
    let home = resolve_agent_dir(path);
    if !home.metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return Ok(home);
    }
    let name = path.display();
    let places = match installed_agent(path) {
        Some(installed) => format!("./{name} and {}", installed.display()),
        None => name.to_string(),
    };
    let similar = suggest_agents(path, true);
    let hint =
        format!("{similar}delta searched {places}; name another directory with `--agent DIR`");
    Err(CommandFailure::config(agent::missing_agent(path), hint))
}

/// What a command that continues a run proposes where its agent is missing.
pub const MOVED_AGENT_HINT: &str = "if it has moved, name its new directory with `--agent DIR`";

/// A question with the agent that may be meant by a path where there is none, and a space after it: an agent next to it, in
/// the current directory, or if `finds_installed` is set an installed one. Empty if no name is similar.
pub fn suggest_agents(path: &Path, finds_installed: bool) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let parent = path.parent().unwrap_or(Path::new(""));
    let mut agents = BTreeMap::new();
    // Of several agents of a name, the one nearest to the path is named.
    for (dir, prefix) in [
        (config::agents_directory().filter(|_| finds_installed), Path::new("")),
        (Some(PathBuf::from(".")), Path::new("")),
        (Some(Path::new(".").join(parent)), parent),
    ] {
        let names = dir.map(|dir| list_agent_names(&dir)).unwrap_or_default();
        agents.extend(names.into_iter().map(|name| (name.clone(), prefix.join(name))));
    }
    let similar = suggest::nearest_names(&name, agents.keys().map(String::as_str));
    let similar =
        similar.first().map(|name| format!("did you mean `{}`? ", agents[*name].display()));
    similar.unwrap_or_default()
}

/// Loads the agent in `home` and prints its warnings. Creates and changes nothing.
pub fn load_agent(home: &Path, options: &RunOptions) -> Result<Agent, CommandFailure> {
    let models = config::model_selection(options.model.clone())?;
    let home = &find_existing_agent(home)?;
    let models = &ModelSelection { settings: options.llm.clone(), ..models };
    let agent = Agent::load(home, models, &trust::read_import_path())?;
    options.print_notes(&agent.all_warnings());
    options.print_notes(&misspelled_setting_notes(&options.llm));
    Ok(agent)
}

/// What an operator should know of `--llm`, whose other keys go into the request.
fn misspelled_setting_notes(settings: &[LlmSetting]) -> Vec<String> {
    let notes = settings.iter().filter_map(|setting| {
        let key = setting.key();
        let intended = intended_key(key, &WireForm::ALL)?;
        Some(format!(
            "Note: `--llm {key}` is a key that delta does not know, and goes into the request; did you mean `{intended}`?"
        ))
    });
    notes.collect()
}

/// The names of the agents directly in a directory.
fn list_agent_names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let agents = entries.filter(|entry| is_agent_dir(&entry.path()));
    agents.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Whether the agent in `home` is the built-in one, the operator's default or an installed one: such an agent has no
/// workspaces of its own. `home` is absolute and without symlinks.
pub fn works_in_current_dir(home: &Path) -> bool {
    let contains_home = |dir: PathBuf| dir.canonicalize().is_ok_and(|dir| home.starts_with(dir));
    let default = config::read().ok().and_then(|config| config.default_agent.as_ref());
    builtin_agent::builtin_directory().is_some_and(contains_home)
        || config::agents_directory().is_some_and(contains_home)
        || default.is_some_and(|setting| {
            let dir = PathBuf::from(&setting.value);
            dir.is_absolute() && contains_home(dir)
        })
}

/// The name of the agent in `home`, if it is the built-in one or an installed one: no agent of a repository has such a name.
pub fn installed_name(home: &Path) -> Option<String> {
    let home = home.canonicalize().ok()?;
    let canonical = |dir: Option<PathBuf>| dir?.canonicalize().ok();
    if canonical(builtin_agent::builtin_directory()).is_some_and(|dir| home.starts_with(dir)) {
        return Some(builtin_agent::BUILTIN_AGENT.to_owned());
    }
    let agents = config::agents_directory()?;
    let path = home.strip_prefix(canonical(Some(agents.clone()))?).ok()?.to_str()?;
    match path.strip_prefix(".trees/") {
        // What `delta add` has installed is a link; a tree that an update has replaced has no name.
        Some(_) => {
            let mut names = list_agent_names(&agents);
            names.sort();
            names
                .into_iter()
                .find(|name| canonical(Some(agents.join(name))).as_ref() == Some(&home))
        }
        None => (!path.is_empty() && !path.contains('/')).then(|| path.to_owned()),
    }
}

/// The directory whose `workspaces/` has the workspaces of the agent in `home`: its own directory, or `forks` of the sweep for
/// a copy that a sweep has of an agent. Such a copy never changes: its content has its hash.
pub fn workspaces_home(home: &Path) -> PathBuf {
    let path = home.canonicalize().unwrap_or_else(|_| home.to_owned());
    let agents = path.parent().filter(|agents| agents.ends_with("agents"));
    let sweep = agents.and_then(Path::parent).filter(|root| packed::is_sweep(root));
    sweep.map_or_else(|| home.to_owned(), |root| SweepDir::new(root).forks())
}

/// Never an agent in the current directory, which may be a cloned repository.
fn find_default_agent(setting: &OperatorSetting<String>) -> Result<ChosenAgent, CommandFailure> {
    let OperatorSetting { value, origin } = setting;
    let path = Path::new(value);
    let home = if path.is_absolute() { Some(path.to_owned()) } else { installed_agent(path) };
    match home {
        Some(home) => Ok(ChosenAgent { origin: Some(home.display().to_string()), home }),
        None => {
            let message = format!(
                "expected an absolute path or the name of an agent as `default_agent`, found `{value}`"
            );
            Err(CommandFailure::config(message, format!("change it in {origin}")))
        }
    }
}

/// The directory of the installed agent `name`, which need not exist.
fn installed_agent(name: &Path) -> Option<PathBuf> {
    let is_name = matches!(name.components().next(), Some(Component::Normal(_)));
    if !is_name || name.components().count() > 1 {
        return None;
    }
    config::agents_directory().map(|dir| dir.join(name))
}

/// Whether a directory is an agent. A `config.yaml` alone, the old name of agent.yaml, is too common a name.
pub fn is_agent_dir(dir: &Path) -> bool {
    let has = |name: &str| dir.join(name).is_file();
    has("agent.yaml") || has("config.yaml") && (has("system_prompt.md") || has("system_prompt.txt"))
}
