//! The kinds of sessions, and what differs between them.

use crate::store::{SessionStateChange, SessionTurn};
use crate::{SessionResult, bash, python};

/// How a session keeps its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionKind {
    Bash,
    Python,
    Other,
}

impl SessionKind {
    /// The kind follows from the name of the program.
    pub(crate) fn from_program(program: &str) -> Self {
        let name = program.rsplit('/').next().unwrap_or(program);
        if name == "bash" {
            Self::Bash
        } else if name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.') == "python" {
            Self::Python
        } else {
            Self::Other
        }
    }

    /// Saves the state that a command left, in the directory of the next state.
    pub(crate) fn save_state(self, turn: &SessionTurn<'_>) -> SessionResult<SessionStateChange> {
        match self {
            Self::Bash => Ok(bash::save_bash_state(turn)?),
            Self::Python => Ok(python::python_state_change(turn)),
            Self::Other => Ok(SessionStateChange::Unchanged),
        }
    }

    /// Removes the files that were needed only while the command ran.
    pub(crate) fn clean_up(self, turn: &SessionTurn<'_>) {
        match self {
            Self::Bash => bash::clean_up_bash(turn),
            Self::Python => python::clean_up_python(turn.next_state_dir),
            Self::Other => {}
        }
    }

    /// Why a command that ended before its timeout has saved no state.
    pub(crate) fn abnormal_exit(self) -> &'static str {
        match self {
            Self::Python => {
                "the interpreter did not exit normally (a signal, `os._exit`, `os.exec*` or a full disk)"
            }
            _ => "the shell did not exit normally (a signal, `exec` or a full disk)",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_14_3_the_kind_follows_from_the_name() {
        let kinds = [
            ("bash", SessionKind::Bash),
            ("/usr/bin/bash", SessionKind::Bash),
            ("python", SessionKind::Python),
            ("/opt/bin/python3.12", SessionKind::Python),
            ("python3-config", SessionKind::Other),
            ("bashful", SessionKind::Other),
            ("sqlite3", SessionKind::Other),
        ];
        for (program, kind) in kinds {
            assert_eq!(SessionKind::from_program(program), kind, "{program}");
        }
    }
}
