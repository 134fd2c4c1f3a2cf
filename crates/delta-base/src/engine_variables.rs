//! The engine variables `${AGENT_HOME}`, `${CWD}` and `${RUN_DIR}`, and plain strings, in which only these are replaced.

use std::path::{Path, PathBuf};

/// A variable that the engine sets. No parameter may have its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineVariable {
    /// `AGENT_HOME`: the agent directory.
    AgentHome,
    /// `CWD`: the workspace.
    Cwd,
    /// `RUN_DIR`: the run directory.
    RunDir,
}

impl EngineVariable {
    /// All variables.
    pub const ALL: [Self; 3] = [Self::AgentHome, Self::Cwd, Self::RunDir];

    /// The variable with the name `name`, which is case-sensitive.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|variable| variable.name() == name)
    }

    /// The variable that an author who writes `name` probably means, such as `CWD` for `work_dir`.
    pub fn from_similar_name(name: &str) -> Option<Self> {
        let normalized: String = name.to_ascii_lowercase().chars().filter(|c| *c != '_').collect();
        match normalized.as_str() {
            "agenthome" | "agentdir" | "agentpath" | "agentroot" => Some(Self::AgentHome),
            "cwd" | "workspacedir" | "workdir" => Some(Self::Cwd),
            "rundir" | "rundirectory" => Some(Self::RunDir),
            _ => None,
        }
    }

    /// The name in templates and in the environment of child processes.
    pub fn name(self) -> &'static str {
        match self {
            Self::AgentHome => "AGENT_HOME",
            Self::Cwd => "CWD",
            Self::RunDir => "RUN_DIR",
        }
    }
}

/// The values of the engine variables in one run.
#[derive(Debug, Clone)]
pub struct EngineVars {
    /// The agent directory, absolute.
    pub agent_home: PathBuf,
    /// The workspace, absolute.
    pub cwd: PathBuf,
    /// The run directory, absolute.
    pub run_dir: PathBuf,
}

impl EngineVars {
    /// The value of a variable.
    pub fn get(&self, variable: EngineVariable) -> &Path {
        match variable {
            EngineVariable::AgentHome => &self.agent_home,
            EngineVariable::Cwd => &self.cwd,
            EngineVariable::RunDir => &self.run_dir,
        }
    }

    /// Replaces the engine variables in a plain string; see [`parse_plain_string`].
    pub fn expand_text(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for part in parse_plain_string(text) {
            match part {
                StringPart::Text(text) => out.push_str(&text),
                StringPart::Variable(variable) => {
                    out.push_str(&self.get(variable).to_string_lossy())
                }
            }
        }
        out
    }
}

/// Whether `name` is valid for a parameter, and for a variable of a shell: `[A-Za-z_][A-Za-z0-9_]*`.
pub fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// A part of a plain string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StringPart {
    /// A text that is used unchanged.
    Text(String),
    /// An engine variable, which its value replaces.
    Variable(EngineVariable),
}

/// Splits a plain string into texts and engine variables. Any other `${...}` is text.
///
/// Backslashes directly before an engine variable are halved; an odd one makes the variable plain text.
pub fn parse_plain_string(text: &str) -> Vec<StringPart> {
    let mut parts = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let after = &rest[at + 2..];
        let variable = after
            .split_once('}')
            .and_then(|(name, after)| Some((EngineVariable::from_name(name)?, after)));
        let Some((variable, after_variable)) = variable else {
            plain.push_str(&rest[..at + 2]);
            rest = after;
            continue;
        };
        let before = &rest[..at];
        let backslashes = before.len() - before.trim_end_matches('\\').len();
        plain.push_str(&before[..at - backslashes + backslashes / 2]);
        if backslashes % 2 == 1 {
            plain.push_str(&rest[at..rest.len() - after_variable.len()]);
        } else {
            if !plain.is_empty() {
                parts.push(StringPart::Text(std::mem::take(&mut plain)));
            }
            parts.push(StringPart::Variable(variable));
        }
        rest = after_variable;
    }
    plain.push_str(rest);
    if !plain.is_empty() {
        parts.push(StringPart::Text(plain));
    }
    parts
}

/// The name in the first `${name}` of `text` that is not an engine variable. Nothing replaces it, so it is probably a
/// mistake.
pub fn find_unknown_variable(text: &str) -> Option<&str> {
    text.split("${").skip(1).find_map(|rest| {
        let name = &rest[..rest.find('}')?];
        EngineVariable::from_name(name).is_none().then_some(name)
    })
}

/// The words of a command that contain an unknown variable, by index. A word after an option that ends with `c` or `e`
/// is left out: it is a script, in which `${x}` belongs to the interpreter.
pub fn find_unknown_variables(command: &[String]) -> impl Iterator<Item = (usize, &str)> {
    command.iter().enumerate().filter_map(|(at, word)| {
        let is_script = at > 1 && is_script_flag(&command[at - 1]);
        let name = find_unknown_variable(word).filter(|_| !is_script)?;
        Some((at, name))
    })
}

fn is_script_flag(word: &str) -> bool {
    word.starts_with('-') && !word.starts_with("--") && word.ends_with(['c', 'e'])
}

/// A hint for an author who wrote the unknown variable `name` in `location`, such as "a hook's command".
pub fn unknown_variable_help(name: &str, location: &str) -> String {
    let quote = |variable: EngineVariable| format!("`${{{}}}`", variable.name());
    match EngineVariable::from_similar_name(name) {
        Some(variable) => format!("write {}", quote(variable)),
        None => format!(
            "the engine variables in {location} are {}",
            EngineVariable::ALL.map(quote).join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_2_2_engine_variables_are_replaced_and_escaped() {
        let vars = EngineVars {
            agent_home: "/a b".into(),
            cwd: "/w".into(),
            run_dir: "/w/.delta/r".into(),
        };
        let check =
            |text: &str, expected: &str| assert_eq!(vars.expand_text(text), expected, "{text}");
        check("${AGENT_HOME}/x ${CWD}${RUN_DIR}", "/a b/x /w/w/.delta/r");
        check("${HOME} $CWD ${CWD ${AGENT_HOMES}", "${HOME} $CWD ${CWD ${AGENT_HOMES}");
        check("${${CWD}", "${/w");
        check(r"\${CWD} \\${CWD} \\\${CWD} \n\\", r"${CWD} \/w \${CWD} \n\\");
    }

    #[test]
    fn c_8_1_unknown_variables_are_found() {
        assert_eq!(find_unknown_variable("${CWD}/${HOME}/${X}"), Some("HOME"));
        assert_eq!(find_unknown_variable("$HOME ${CWD} {HOME} ${open"), None);
        let indices = |words: &str| -> Vec<usize> {
            let command: Vec<String> = words.split(' ').map(str::to_owned).collect();
            find_unknown_variables(&command).map(|(at, _)| at).collect()
        };
        assert_eq!(indices("${A} -x ${B} ${CWD}"), [0, 2]);
        assert_eq!(indices("sh -ec ${a} sh ${b}"), [4], "a script has variables of its own");
        assert_eq!(indices("perl -e ${a} --exec ${b}"), [4]);
        assert_eq!(indices("-c ${a}"), [1], "the program is not an option");
        assert_eq!(unknown_variable_help("agent_home", "it"), "write `${AGENT_HOME}`");
        assert_eq!(
            unknown_variable_help("X", "it"),
            "the engine variables in it are `${AGENT_HOME}`, `${CWD}`, `${RUN_DIR}`"
        );
    }
}
