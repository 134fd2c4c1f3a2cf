//! What the children of a run find around them: their directory and their environment variables.
//!
//! The LLM's key is in none of them, unless the child's definition passes it by name.

use crate::process::Launch;
use crate::text::Secrets;
use crate::vars::{Variable, Vars};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

/// The variables that hold a key by convention.
pub const KEY_VARIABLES: [&str; 2] = ["DELTA_API_KEY", "OPENAI_API_KEY"];

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
    vars: Vars,
    secrets: Secrets,
}

impl Environment {
    /// The surroundings in a run. `all` is the engine's environment with all `.env` files, `trusted` the same without
    /// those that the agent can write; `api_key_env` is the agent's name for its key.
    pub fn new(
        mut all: BTreeMap<OsString, OsString>,
        mut trusted: BTreeMap<OsString, OsString>,
        api_key_env: Option<&str>,
        run_id: &str,
        vars: Vars,
        secrets: Secrets,
    ) -> Self {
        // An engine that a tool started is inside a call; its own children are not, unless they are its tools.
        all.remove(OsStr::new("DELTA_CALL_ID"));
        trusted.remove(OsStr::new("DELTA_CALL_ID"));
        let keys = KEY_VARIABLES.into_iter().chain(api_key_env).map(str::to_owned).collect();
        let mut run = BTreeMap::new();
        let mut set =
            |name: &str, value: &OsStr| run.insert(OsString::from(name), value.to_owned());
        for variable in Variable::ALL {
            set(variable.name(), vars.get(variable).as_os_str());
        }
        set("DELTA_AGENT_HOME", vars.agent_home.as_os_str());
        set("DELTA_CWD", vars.cwd.as_os_str());
        set("DELTA_RUN_ID", OsStr::new(run_id));
        set("JOURNAL_PATH", vars.run_dir.join(crate::journal::FILE_NAME).as_os_str());
        Self { all, trusted, keys, run, vars, secrets }
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
        let mut env = self.below(pass_env).clone();
        for key in self.keys.iter().filter(|key| !pass_env.contains(key)) {
            env.remove(OsStr::new(key));
        }
        env.extend(
            more.into_iter().map(|(name, value)| (OsString::from(name), OsString::from(value))),
        );
        env.extend(self.run.clone());
        env.insert("ITERATION_COUNT".into(), iteration.to_string().into());
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
