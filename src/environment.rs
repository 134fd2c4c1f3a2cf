//! What the children of a run find around them: their directory and their environment variables.
//!
//! The LLM's key is in none of them, unless the child's definition passes it by name.

use crate::ledger;
use crate::process::{Env, Launch};
use crate::text::Secrets;
use crate::vars::{Variable, Vars};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The name of the hook that a process is, in its environment.
pub const HOOK_NAME: &str = "HOOK_NAME";
/// The variables that only some hooks get.
const OF_HOOKS: [&str; 5] =
    ["TOOL_NAME", "TOOL_ARGS", "TOOL_RESULT", "TOOL_EXIT_CODE", "ERROR_MESSAGE"];
/// A longer value of a hook's variable is cut: the kernel takes 128 KiB for one variable and its name.
const LONGEST_VALUE: usize = 64 * 1024;

/// The variables that hold a key by convention.
pub const KEY_VARIABLES: [&str; 2] = ["DELTA_API_KEY", "OPENAI_API_KEY"];
/// The variable that tells a child which others of those it is given hold a key: their names, with blanks between.
const KEY_NAMES: &str = "DELTA_KEY_NAMES";

/// The names of all variables that hold a key, for a process with this environment; `named` is one more.
pub fn key_names(own: &BTreeMap<OsString, OsString>, named: Option<&str>) -> Vec<String> {
    let told = own.get(OsStr::new(KEY_NAMES)).and_then(|names| names.to_str());
    let mut names: Vec<String> = KEY_VARIABLES
        .into_iter()
        .chain(named)
        .chain(told.into_iter().flat_map(str::split_whitespace))
        .map(str::to_owned)
        .collect();
    let mut seen = BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names
}

/// The surroundings of a run's children.
#[derive(Debug, Clone)]
pub struct Environment {
    /// The engine's own environment with all `.env` files, keys included.
    all: BTreeMap<OsString, OsString>,
    /// The same without the files that the agent can write.
    trusted: BTreeMap<OsString, OsString>,
    /// The names of the variables that hold a key.
    keys: Vec<String>,
    run: BTreeMap<OsString, OsString>,
    /// The environment of a child that is given no key: what all of them have.
    plain: Env,
    vars: Vars,
    secrets: Secrets,
}

impl Environment {
    /// The surroundings in a run. `all` is the engine's environment with all `.env` files, `trusted` the same without
    /// those that the agent can write; `keys` are the names of the variables that hold a key, `budget` is the ledger on
    /// which runs below draw.
    pub fn new(
        (mut all, mut trusted): (BTreeMap<OsString, OsString>, BTreeMap<OsString, OsString>),
        keys: Vec<String>,
        run_id: &str,
        budget: Option<&Path>,
        vars: Vars,
        secrets: Secrets,
    ) -> Self {
        // An engine that a tool started is inside a call; its own children are not, unless they are its tools.
        for own in [&mut all, &mut trusted] {
            own.remove(OsStr::new("DELTA_CALL_ID"));
            // A file named .env says nothing about it.
            own.remove(OsStr::new(ledger::VARIABLE));
            own.remove(OsStr::new(KEY_NAMES));
            if own.remove(OsStr::new(HOOK_NAME)).is_some() {
                OF_HOOKS.iter().for_each(|name| drop(own.remove(OsStr::new(name))));
            }
        }
        let mut run = BTreeMap::new();
        let mut set =
            |name: &str, value: &OsStr| run.insert(OsString::from(name), value.to_owned());
        for variable in Variable::ALL {
            set(variable.name(), vars.get(variable).as_os_str());
        }
        set("DELTA_AGENT_HOME", vars.agent_home.as_os_str());
        set("DELTA_CWD", vars.cwd.as_os_str());
        set("DELTA_RUN_ID", OsStr::new(run_id));
        if let Some(budget) = budget {
            set(ledger::VARIABLE, budget.as_os_str());
        }
        set("JOURNAL_PATH", vars.run_dir.join(crate::journal::FILE_NAME).as_os_str());
        let plain = with_run(without_keys(&all, &keys, &[]), &run).into();
        Self { all, trusted, keys, run, plain, vars, secrets }
    }

    /// The values of the engine's variables.
    pub fn vars(&self) -> &Vars {
        &self.vars
    }

    /// The surroundings of a child in the given iteration; `more` is what only this child gets.
    pub fn launch<'a>(
        &self,
        iteration: u32,
        pass_env: &[String],
        more: impl IntoIterator<Item = (&'a str, String)>,
    ) -> Launch {
        let env = match pass_env {
            [] => self.plain.clone(),
            _ => {
                with_run(without_keys(self.below(pass_env), &self.keys, pass_env), &self.run).into()
            }
        };
        self.launch_with(env, iteration, more)
    }

    /// The surroundings of the hook `name`: nothing that the agent can write is among them. By `id`, which no other
    /// child has, what it leaves behind is found.
    pub fn launch_hook(
        &self,
        iteration: u32,
        pass_env: &[String],
        (name, id): (&'static str, &str),
        more: &[(&'static str, String)],
    ) -> Launch {
        let more = more.iter().map(|(name, value)| (*name, fitting(value)));
        let marks = [(HOOK_NAME, name.to_owned()), ("DELTA_CALL_ID", id.to_owned())];
        let env = with_run(without_keys(&self.trusted, &self.keys, pass_env), &self.run);
        self.launch_with(env.into(), iteration, more.chain(marks))
    }

    fn launch_with<'a>(
        &self,
        mut env: Env,
        iteration: u32,
        more: impl IntoIterator<Item = (&'a str, String)>,
    ) -> Launch {
        // What the run says of itself is no other's to say.
        let more = more.into_iter().filter(|(name, _)| !self.run.contains_key(OsStr::new(name)));
        more.for_each(|(name, value)| env.set(name, value));
        env.set("ITERATION_COUNT", iteration.to_string());
        Launch { cwd: self.vars.cwd.clone(), env, secrets: self.secrets.clone() }
    }

    /// The variables of a child that is given the keys in `pass_env`. Where one of them is not from a file that the agent
    /// can write, such a file says nothing to that child: it could send the key to an address of the agent's choice.
    fn below(&self, pass_env: &[String]) -> &BTreeMap<OsString, OsString> {
        let at_risk = |key: &&String| {
            let key = OsStr::new(key.as_str());
            let value = self.trusted.get(key).filter(|value| !value.is_empty());
            value.is_some() && self.all.get(key) == value
        };
        let passed = self.keys.iter().filter(|key| pass_env.contains(key));
        if passed.clone().any(|key| at_risk(&key)) { &self.trusted } else { &self.all }
    }

    /// The surroundings of the command that stands in for the LLM: it is given the keys.
    pub fn launch_provider(&self) -> Launch {
        let mark = (crate::llm::COMMAND_MARK.0, crate::llm::COMMAND_MARK.1.to_owned());
        self.launch(0, &self.keys, [mark])
    }
}

/// `base` without the `keys` that are not in `pass_env`.
fn without_keys(
    base: &BTreeMap<OsString, OsString>,
    keys: &[String],
    pass_env: &[String],
) -> BTreeMap<OsString, OsString> {
    let mut env = base.clone();
    for key in keys.iter().filter(|key| !pass_env.contains(key)) {
        env.remove(OsStr::new(key));
    }
    // A child that keeps its environment, such as a session, has to know what of it is a key.
    let told = keys
        .iter()
        .map(String::as_str)
        .filter(|key| !KEY_VARIABLES.contains(key) && env.contains_key(OsStr::new(key)));
    let told = told.collect::<Vec<_>>().join(" ");
    if !told.is_empty() {
        env.insert(KEY_NAMES.into(), told.into());
    }
    env
}

/// `env` with what the run says of itself.
fn with_run(
    mut env: BTreeMap<OsString, OsString>,
    run: &BTreeMap<OsString, OsString>,
) -> BTreeMap<OsString, OsString> {
    env.extend(run.iter().map(|(name, value)| (name.clone(), value.clone())));
    env
}

/// `value` as a variable can hold it: not too long, and without NUL.
fn fitting(value: &str) -> String {
    let mut value = value.replace('\0', "\u{fffd}");
    value.truncate(value.floor_char_boundary(LONGEST_VALUE));
    value
}
