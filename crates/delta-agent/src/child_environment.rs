//! The working directory and the environment variables of a run's child processes.
//!
//! No child receives the LLM's key unless its definition passes the variable by name.

use crate::context::GENERATOR_MARK;
use crate::git_places::remove_foreign_git_places;
use crate::run_sandbox::{ActiveSandbox, RunSandbox, filter_variables};
use delta_base::api_key_names::{API_KEY_VARIABLES, KEY_NAMES_VARIABLE, KEY_SOURCE_VARIABLES};
use delta_base::engine_variables::{EngineVariable, EngineVars};
use delta_base::redact::Secrets;
use delta_process::{Background, CallLimits, Containment, EnvVars, LaunchContext, RunProcesses};
use delta_run::budget::call_rate::RATE_VARIABLE;
use delta_run::budget::ledger;
use delta_run::limits::bounds::{DEPTH_VARIABLE, MAX_DEPTH_VARIABLE, Nesting};
use delta_run::sweep::answer_scope::ANSWERS_VARIABLE;
use delta_run::workspace::{self, RUNS_DIR_VARIABLE};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::Arc;

/// The variable with the key for the seals of inner runs, in a sandbox that may start runs.
pub const INNER_SEAL_VARIABLE: &str = "DELTA_INNER_SEAL";
/// The environment variable that tells a hook its own name.
pub const HOOK_NAME_VARIABLE: &str = "HOOK_NAME";
/// Variables that only some hooks receive.
const HOOK_VARIABLES: [&str; 5] =
    ["TOOL_NAME", "TOOL_ARGS", "TOOL_RESULT", "TOOL_EXIT_CODE", "ERROR_MESSAGE"];
/// Longer values of a hook's variables are truncated: the kernel allows 128 KiB for a variable with
/// its name.
const MAX_VALUE_BYTES: usize = 64 * 1024;

/// What children have unless the environment or their own definition sets it: without a terminal, no user leaves an editor
/// or a pager, or types a password. In a sandbox or a stage, the workspace is a file system of its own, and git looks for its
/// directory in those above it only with a variable.
const UNATTENDED_VARIABLES: [(&str, &str); 8] = [
    ("EDITOR", "true"),
    ("VISUAL", "true"),
    ("GIT_EDITOR", "true"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("GIT_DISCOVERY_ACROSS_FILESYSTEM", "1"),
    ("MANPAGER", "cat"),
];

/// Variables that belong to a terminal, a login or a process: another shell of the same person has other values, and none of
/// them says what a program runs or loads. What may do that is not here, such as XDG_CURRENT_DESKTOP, by which `xdg-open` chooses.
const SESSION_VARIABLES: [&str; 73] = [
    "ALACRITTY_LOG",
    "ALACRITTY_SOCKET",
    "ALACRITTY_WINDOW_ID",
    "COLORFGBG",
    "COLORTERM",
    "COLUMNS",
    "DBUS_SESSION_BUS_ADDRESS",
    "DESKTOP_STARTUP_ID",
    "DISPLAY",
    "GNOME_TERMINAL_SCREEN",
    "GNOME_TERMINAL_SERVICE",
    "GPG_TTY",
    "INVOCATION_ID",
    "ITERATION_COUNT",
    "ITERM_PROFILE",
    "ITERM_SESSION_ID",
    "JOURNAL_STREAM",
    "KITTY_PID",
    "KITTY_PUBLIC_KEY",
    "KITTY_WINDOW_ID",
    "KONSOLE_DBUS_ACTIVATION_COOKIE",
    "KONSOLE_DBUS_SERVICE",
    "KONSOLE_DBUS_SESSION",
    "KONSOLE_DBUS_WINDOW",
    "KONSOLE_VERSION",
    "LANG",
    "LANGUAGE",
    "LINES",
    "LS_COLORS",
    "MAIL",
    "MANAGERPID",
    "MEMORY_PRESSURE_WATCH",
    "MEMORY_PRESSURE_WRITE",
    "MOTD_SHOWN",
    "OLDPWD",
    "PWD",
    "SESSION_MANAGER",
    "SHLVL",
    "SSH_AGENT_PID",
    "SSH_AUTH_SOCK",
    "SSH_CLIENT",
    "SSH_CONNECTION",
    "SSH_TTY",
    "STY",
    "SYSTEMD_EXEC_PID",
    "TERM",
    "TERMINAL_EMULATOR",
    "TERMINFO",
    "TERM_PROGRAM",
    "TERM_PROGRAM_VERSION",
    "TERM_SESSION_ID",
    "TMUX",
    "TMUX_PANE",
    "VTE_VERSION",
    "WAYLAND_DISPLAY",
    "WEZTERM_PANE",
    "WEZTERM_UNIX_SOCKET",
    "WINDOWID",
    "WINDOWPATH",
    "WT_PROFILE_ID",
    "WT_SESSION",
    "XAUTHORITY",
    "XDG_SEAT",
    "XDG_SEAT_PATH",
    "XDG_SESSION_CLASS",
    "XDG_SESSION_ID",
    "XDG_SESSION_PATH",
    "XDG_SESSION_TYPE",
    "XDG_VTNR",
    "ZELLIJ",
    "ZELLIJ_PANE_ID",
    "ZELLIJ_SESSION_NAME",
    "_",
];

/// Environment variables by name.
pub type EnvMap = BTreeMap<OsString, OsString>;

/// The environment of a run's child processes.
#[derive(Debug, Clone)]
pub struct ChildEnvironment {
    /// The environment of the engine and of the files that count, keys included.
    inherited: EnvMap,
    /// The variables that hold keys.
    key_names: Vec<String>,
    run_vars: EnvMap,
    /// The environment of a child that receives no key.
    default_env: EnvVars,
    vars: EngineVars,
    secrets: Secrets,
    processes: RunProcesses,
    /// What of the limits of calls cannot be enforced, for the user.
    limit_warnings: Vec<String>,
    /// The sandboxes of tools, generators and hooks, if there are any.
    sandbox: Option<Arc<RunSandbox>>,
    /// The key for the seals of the runs that tools in a sandbox start.
    inner_seal: Option<String>,
}

impl ChildEnvironment {
    /// The environment of a run's children. `key_names` are the variables that hold keys; `budget`
    /// is the ledger that nested runs draw on.
    pub fn new(
        mut inherited: EnvMap,
        key_names: Vec<String>,
        run_id: &str,
        budget: Option<&Path>,
        vars: EngineVars,
        secrets: Secrets,
    ) -> Self {
        // An engine started by a tool runs inside a call; its own children do not, unless they are
        // its tools.
        let of_outer_run = [
            "DELTA_CALL_ID",
            ledger::BUDGET_VARIABLE,
            DEPTH_VARIABLE,
            MAX_DEPTH_VARIABLE,
            KEY_NAMES_VARIABLE,
            ANSWERS_VARIABLE,
        ];
        for name in of_outer_run {
            inherited.remove(OsStr::new(name));
        }
        // A child that may have the key gets its value.
        KEY_SOURCE_VARIABLES.iter().for_each(|name| drop(inherited.remove(OsStr::new(name))));
        if inherited.remove(OsStr::new(HOOK_NAME_VARIABLE)).is_some() {
            HOOK_VARIABLES.iter().for_each(|name| drop(inherited.remove(OsStr::new(name))));
        }
        let caller = std::env::current_dir().unwrap_or_default();
        remove_foreign_git_places(&mut inherited, &vars.cwd, &caller);
        let mut run_vars = EnvMap::new();
        let mut set =
            |name: &str, value: &OsStr| run_vars.insert(OsString::from(name), value.to_owned());
        for variable in EngineVariable::ALL {
            set(variable.name(), vars.get(variable).as_os_str());
        }
        set("DELTA_AGENT_HOME", vars.agent_home.as_os_str());
        set("DELTA_CWD", vars.cwd.as_os_str());
        set("DELTA_RUN_ID", OsStr::new(run_id));
        if let Some(dir) = workspace::runs_dir() {
            set(RUNS_DIR_VARIABLE, dir.as_os_str());
        }
        if let Some(budget) = budget {
            set(ledger::BUDGET_VARIABLE, budget.as_os_str());
        }
        set("JOURNAL_PATH", vars.run_dir.join(delta_run::run_files::JOURNAL_FILE).as_os_str());
        let mut default_env = remove_keys(&inherited, &key_names, &[]);
        default_env.extend(run_vars.clone());
        let processes = RunProcesses::new(run_id, &vars.run_dir);
        Self {
            inherited,
            key_names,
            run_vars,
            default_env: default_env.into(),
            vars,
            secrets,
            processes,
            limit_warnings: Vec::new(),
            sandbox: None,
            inner_seal: None,
        }
    }

    /// Makes the runs that the children start one level deeper than `nesting`.
    #[must_use]
    pub fn with_nesting(mut self, nesting: Nesting) -> Self {
        self.processes.limit_run_levels(nesting.levels_below());
        let Nesting { depth, max_depth } = nesting;
        for (name, value) in [(DEPTH_VARIABLE, depth), (MAX_DEPTH_VARIABLE, max_depth)] {
            self.default_env.set(name, value.to_string());
            self.run_vars.insert(name.into(), value.to_string().into());
        }
        self
    }

    /// Makes the runs that the children start call the LLM at the rate in `dir`, if there is one.
    #[must_use]
    pub fn with_call_rate(mut self, dir: Option<&Path>) -> Self {
        if let Some(dir) = dir {
            self.default_env.set(RATE_VARIABLE, dir);
            self.run_vars.insert(RATE_VARIABLE.into(), dir.into());
        }
        self
    }

    /// Lets the runs that children start from now on draw on the ledger at `path`.
    pub fn set_budget(&mut self, path: &Path) {
        self.default_env.set(ledger::BUDGET_VARIABLE, path);
        self.run_vars.insert(ledger::BUDGET_VARIABLE.into(), path.into());
    }

    /// Limits the calls of tools.
    #[must_use]
    pub fn with_call_limits(mut self, limits: CallLimits) -> Self {
        self.limit_warnings = self.processes.limit_calls(limits);
        self
    }

    /// Gives the key for inner runs to the tools in a sandbox that may start runs.
    #[must_use]
    pub fn with_inner_seal(mut self, key: Option<String>) -> Self {
        self.inner_seal = key;
        self
    }

    /// Puts children into the sandboxes of the run.
    #[must_use]
    pub fn with_sandbox(mut self, sandbox: Option<Arc<RunSandbox>>) -> Self {
        self.sandbox = sandbox;
        self
    }

    /// The sandboxes of the run, if there are any.
    pub fn sandbox(&self) -> Option<&RunSandbox> {
        self.sandbox.as_deref()
    }

    /// What of the limits of calls cannot be enforced, for the user.
    pub fn limit_warnings(&self) -> &[String] {
        &self.limit_warnings
    }

    /// The values of the engine variables.
    pub fn vars(&self) -> &EngineVars {
        &self.vars
    }

    /// The processes that the run's children leave running.
    pub fn processes(&self) -> &RunProcesses {
        &self.processes
    }

    /// The secrets of the run.
    pub fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// How to start a child in `iteration`; `more` holds variables for this child only. What it leaves running ends with
    /// it.
    pub fn launch<'a>(
        &self,
        iteration: u32,
        pass_env: &[String],
        more: impl IntoIterator<Item = (&'a str, String)>,
    ) -> LaunchContext {
        let env = if pass_env.is_empty() {
            self.default_env.clone()
        } else {
            self.env_with_keys(pass_env)
        };
        self.launch_with(env, iteration, more)
    }

    /// How to start a child in `sandbox`; see [`ChildEnvironment::launch`].
    pub fn launch_in<'a>(
        &self,
        sandbox: Option<ActiveSandbox<'_>>,
        iteration: u32,
        pass_env: &[String],
        more: impl IntoIterator<Item = (&'a str, String)>,
    ) -> LaunchContext {
        let Some(sandbox) = sandbox else { return self.launch(iteration, pass_env, more) };
        let env = self.sandboxed_env(sandbox, pass_env);
        self.launch_with(env, iteration, more).with_sandbox(Some(sandbox.entry()))
    }

    /// Whether an approval of a call that gets the variable covers its value: variables of delta, of the run and of the session
    /// in which delta was started may change.
    pub fn is_approved_variable(&self, name: &OsStr) -> bool {
        let is_of_run =
            self.run_vars.contains_key(name) || name == "TMPDIR" && self.sandbox.is_some();
        let is_of_session = SESSION_VARIABLES.iter().any(|one| name == *one);
        !is_of_run
            && !is_of_session
            && !["DELTA_", "LC_"]
                .iter()
                .any(|start| name.as_encoded_bytes().starts_with(start.as_bytes()))
    }

    /// How to start a generator.
    pub fn launch_generator(&self, iteration: u32, pass_env: &[String]) -> LaunchContext {
        let mark = (GENERATOR_MARK.0, GENERATOR_MARK.1.to_owned());
        let sandbox = self.sandbox().and_then(RunSandbox::of_generators);
        self.launch_in(sandbox, iteration, pass_env, [mark])
    }

    /// How to start the hook `name`. `id` is unique to this process and finds what it leaves running.
    pub fn launch_hook(
        &self,
        iteration: u32,
        pass_env: &[String],
        name: &str,
        id: &str,
        more: &[(&'static str, String)],
    ) -> LaunchContext {
        let more = more.iter().map(|(name, value)| (*name, clamp_value(value)));
        let marks = [(HOOK_NAME_VARIABLE, name.to_owned()), ("DELTA_CALL_ID", id.to_owned())];
        let sandbox = self.sandbox().and_then(|sandbox| sandbox.of_hook(name));
        self.launch_in(sandbox, iteration, pass_env, more.chain(marks))
    }

    fn sandboxed_env(&self, sandbox: ActiveSandbox<'_>, pass_env: &[String]) -> EnvVars {
        let inherited = filter_variables(&self.inherited, sandbox, pass_env);
        let mut env = remove_keys(&inherited, &self.key_names, pass_env);
        env.extend(self.run_vars.clone());
        // The operator's directory cannot be written in the sandbox, which has a /tmp of its own.
        env.remove(OsStr::new("TMPDIR"));
        env.extend(sandbox.temp_dir().map(|dir| (OsString::from("TMPDIR"), dir.into())));
        // The operator's own key is hidden in a sandbox, and the one of the sandbox around this process is not for it.
        env.remove(OsStr::new(INNER_SEAL_VARIABLE));
        let seal = self.inner_seal.as_ref().filter(|_| sandbox.profile().runs);
        env.extend(seal.map(|key| (OsString::from(INNER_SEAL_VARIABLE), key.into())));
        env.into()
    }

    fn env_with_keys(&self, pass_env: &[String]) -> EnvVars {
        let mut env = remove_keys(&self.inherited, &self.key_names, pass_env);
        env.extend(self.run_vars.clone());
        env.into()
    }

    fn launch_with<'a>(
        &self,
        mut env: EnvVars,
        iteration: u32,
        more: impl IntoIterator<Item = (&'a str, String)>,
    ) -> LaunchContext {
        for (name, value) in UNATTENDED_VARIABLES {
            if env.get(name).is_none() {
                env.set(name, value);
            }
        }
        // Variables of the run cannot be overridden.
        let more =
            more.into_iter().filter(|(name, _)| !self.run_vars.contains_key(OsStr::new(name)));
        more.for_each(|(name, value)| env.set(name, value));
        env.set("ITERATION_COUNT", iteration.to_string());
        let containment = Containment {
            processes: self.processes.clone(),
            background: Background::End,
            is_limited: false,
        };
        LaunchContext {
            cwd: self.vars.cwd.clone(),
            env,
            secrets: self.secrets.clone(),
            containment: Some(containment),
            sandbox: None,
        }
    }

    /// How to start the command of `provider: command`; it receives the key variables `keys`.
    pub fn launch_provider(&self, keys: &[String]) -> LaunchContext {
        let mark = (delta_llm::llm::COMMAND_MARK.0, delta_llm::llm::COMMAND_MARK.1.to_owned());
        let sandbox = self.sandbox().and_then(RunSandbox::of_llm);
        self.launch_in(sandbox, 0, keys, [mark])
    }
}

/// `base` without the variables in `keys` that are not in `pass_env`.
fn remove_keys(base: &EnvMap, keys: &[String], pass_env: &[String]) -> EnvMap {
    let mut env = base.clone();
    for key in keys.iter().filter(|key| !pass_env.contains(key)) {
        env.remove(OsStr::new(key));
    }
    // A child that saves its environment, such as a session, must know which variables hold keys.
    let names = keys
        .iter()
        .map(String::as_str)
        .filter(|key| !API_KEY_VARIABLES.contains(key) && env.contains_key(OsStr::new(key)));
    let names = names.collect::<Vec<_>>().join(" ");
    if !names.is_empty() {
        env.insert(KEY_NAMES_VARIABLE.into(), names.into());
    }
    env
}

/// `value` as an environment variable can hold it: of limited length and without NUL.
fn clamp_value(value: &str) -> String {
    let mut value = value.replace('\0', "\u{fffd}");
    value.truncate(value.floor_char_boundary(MAX_VALUE_BYTES));
    value
}
