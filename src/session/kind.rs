//! What sessions there are, and what differs between them.

use super::store::{Left, Turn};
use super::{Result, bash, python};

/// How a session keeps its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Bash,
    Python,
    Other,
}

impl Kind {
    /// That of a program by its name.
    pub(super) fn of(program: &str) -> Self {
        let name = program.rsplit('/').next().unwrap_or(program);
        let version = name.strip_prefix("python");
        match name {
            "bash" => Self::Bash,
            _ if version.is_some_and(|rest| {
                rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
            }) =>
            {
                Self::Python
            }
            _ => Self::Other,
        }
    }

    /// Looks what a command has left, and writes it where it is to count.
    pub(super) fn leave(self, turn: &Turn<'_>) -> Result<Left> {
        match self {
            Self::Bash => Ok(bash::leave(turn)?),
            Self::Python => Ok(python::leave(turn)),
            Self::Other => Ok(Left::Same),
        }
    }

    /// Removes what only the run of the command needed.
    pub(super) fn tidy(self, turn: &Turn<'_>) {
        match self {
            Self::Bash => bash::tidy(turn),
            Self::Python => python::tidy(turn.next),
            Self::Other => {}
        }
    }

    pub(super) fn why_lost(self) -> &'static str {
        match self {
            Self::Python => {
                "the interpreter did not come to its end (a signal, `os._exit`, `os.exec*`, a full disk); \
                 the state before it stands"
            }
            _ => {
                "the shell did not come to its end (a signal, `exec`, a full disk); the state before it stands"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_14_3_the_kind_follows_from_the_name() {
        let kinds = [
            ("bash", Kind::Bash),
            ("/usr/bin/bash", Kind::Bash),
            ("python", Kind::Python),
            ("/opt/bin/python3.12", Kind::Python),
            ("python3-config", Kind::Other),
            ("bashful", Kind::Other),
            ("sqlite3", Kind::Other),
        ];
        for (program, kind) in kinds {
            assert_eq!(Kind::of(program), kind, "{program}");
        }
    }
}
