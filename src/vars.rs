//! The engine's own variables: `${AGENT_HOME}`, `${CWD}`, `${RUN_DIR}`.

use std::path::{Path, PathBuf};

/// One of the three names that are the engine's and never a parameter's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variable {
    /// The agent directory, absolute.
    AgentHome,
    /// The workspace, absolute.
    Cwd,
    /// The run directory, absolute.
    RunDir,
}

impl Variable {
    /// All three.
    pub const ALL: [Self; 3] = [Self::AgentHome, Self::Cwd, Self::RunDir];

    /// The variable of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|variable| variable.name() == name)
    }

    /// The variable that `name` is nearly.
    pub fn near(name: &str) -> Option<Self> {
        let plain: String = name.to_ascii_lowercase().chars().filter(|c| *c != '_').collect();
        match plain.as_str() {
            "agenthome" | "agentdir" | "agentpath" | "agentroot" => Some(Self::AgentHome),
            "cwd" | "workspacedir" | "workdir" => Some(Self::Cwd),
            "rundir" | "rundirectory" => Some(Self::RunDir),
            _ => None,
        }
    }

    /// Its name, in configuration and in the environment of children.
    pub fn name(self) -> &'static str {
        match self {
            Self::AgentHome => "AGENT_HOME",
            Self::Cwd => "CWD",
            Self::RunDir => "RUN_DIR",
        }
    }
}

/// The values of the engine's variables for one run.
#[derive(Debug, Clone)]
pub struct Vars {
    /// The agent directory, absolute.
    pub agent_home: PathBuf,
    /// The workspace, absolute.
    pub cwd: PathBuf,
    /// The run directory, absolute.
    pub run_dir: PathBuf,
}

impl Vars {
    /// The value of one variable.
    pub fn get(&self, variable: Variable) -> &Path {
        match variable {
            Variable::AgentHome => &self.agent_home,
            Variable::Cwd => &self.cwd,
            Variable::RunDir => &self.run_dir,
        }
    }

    /// `text` with every engine variable replaced, everything else as it is.
    ///
    /// Backslashes directly before `${NAME}` escape it as in a plain string of `command:`: each pair stands for one,
    /// an odd one leaves `${NAME}` as it is.
    pub fn fill(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for piece in pieces(text) {
            match piece {
                Piece::Text(text) => out.push_str(&text),
                Piece::Variable(variable) => out.push_str(&self.get(variable).to_string_lossy()),
            }
        }
        out
    }
}

/// A part of a text that holds engine variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// As it stands.
    Text(String),
    /// To be replaced.
    Variable(Variable),
}

/// Cuts `text` at the engine's variables.
pub fn pieces(text: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let close = rest[at..].find('}').map(|offset| at + offset);
        let variable = close.and_then(|close| Variable::named(&rest[at + 2..close]));
        let (Some(close), Some(variable)) = (close, variable) else {
            plain.push_str(&rest[..at + 2]);
            rest = &rest[at + 2..];
            continue;
        };
        let before = &rest[..at];
        let backslashes = before.len() - before.trim_end_matches('\\').len();
        plain.push_str(&before[..at - backslashes + backslashes / 2]);
        if backslashes % 2 == 1 {
            plain.push_str(&rest[at..=close]);
        } else {
            if !plain.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
            }
            pieces.push(Piece::Variable(variable));
        }
        rest = &rest[close + 1..];
    }
    plain.push_str(rest);
    if !plain.is_empty() {
        pieces.push(Piece::Text(plain));
    }
    pieces
}

/// The first `${name}` in `text` that is not the engine's: it would stay as it is, so it is more likely a slip.
pub fn unknown(text: &str) -> Option<&str> {
    text.split("${").skip(1).find_map(|rest| {
        let name = &rest[..rest.find('}')?];
        Variable::named(name).is_none().then_some(name)
    })
}

/// The words of a command, by their place, that hold such a name. What follows `-c` or `-e` is a script, in which `${x}`
/// is the interpreter's own.
pub fn unknown_in_command(command: &[String]) -> impl Iterator<Item = (usize, &str)> {
    let is_script = |at: usize| at > 1 && is_script_flag(&command[at - 1]);
    let words = command.iter().enumerate().filter(move |(at, _)| !is_script(*at));
    words.filter_map(|(at, word)| Some((at, unknown(word)?)))
}

fn is_script_flag(word: &str) -> bool {
    word.starts_with('-') && !word.starts_with("--") && word.ends_with(['c', 'e'])
}

/// What to write in the place of such a name, in a sentence that says `where_` it stands.
pub fn instead_of(name: &str, where_: &str) -> String {
    let shown = |variable: Variable| format!("`${{{}}}`", variable.name());
    match Variable::near(name) {
        Some(variable) => format!("write {}", shown(variable)),
        None => format!("in {where_} there are {}", Variable::ALL.map(shown).join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_2_2_engine_variables_are_replaced_and_escaped() {
        let vars =
            Vars { agent_home: "/a b".into(), cwd: "/w".into(), run_dir: "/w/.delta/r".into() };
        let check = |text: &str, expected: &str| assert_eq!(vars.fill(text), expected, "{text}");
        check("${AGENT_HOME}/x ${CWD}${RUN_DIR}", "/a b/x /w/w/.delta/r");
        check("${HOME} $CWD ${CWD ${AGENT_HOMES}", "${HOME} $CWD ${CWD ${AGENT_HOMES}");
        check("${${CWD}", "${/w");
        check(r"\${CWD} \\${CWD} \\\${CWD} \n\\", r"${CWD} \/w \${CWD} \n\\");
    }
    #[test]
    fn c_8_1_a_name_that_is_not_the_engines_is_found() {
        assert_eq!(unknown("${CWD}/${HOME}/${X}"), Some("HOME"));
        assert_eq!(unknown("$HOME ${CWD} {HOME} ${open"), None);
        let found = |words: &str| -> Vec<usize> {
            let command: Vec<String> = words.split(' ').map(str::to_owned).collect();
            unknown_in_command(&command).map(|(at, _)| at).collect()
        };
        assert_eq!(found("${A} -x ${B} ${CWD}"), [0, 2]);
        assert_eq!(found("sh -ec ${a} sh ${b}"), [4], "a script has its own");
        assert_eq!(found("perl -e ${a} --exec ${b}"), [4]);
        assert_eq!(found("-c ${a}"), [1], "the program is no option");
        assert_eq!(instead_of("agent_home", "it"), "write `${AGENT_HOME}`");
        assert_eq!(
            instead_of("X", "it"),
            "in it there are `${AGENT_HOME}`, `${CWD}`, `${RUN_DIR}`"
        );
    }
}
