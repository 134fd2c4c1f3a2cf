//! Programs that are not there, or not where the author thinks.

use super::options::unwrapped;
use super::view::{Bit, Word};
use super::{Level, Sink, Subject, shell as script, table};
use crate::process::{self, Lack, Launch, NotFound};
use crate::tool::Syntax;
use crate::vars::Variable;
use crate::yaml::{Document, Node};
use std::path::Path;

pub(super) fn check(subject: &Subject<'_>, sink: &mut Sink) {
    let shell = subject.tool.syntax == Syntax::Shell;
    let functions =
        subject.outline.as_ref().map(|outline| outline.functions.as_slice()).unwrap_or_default();
    for command in &subject.commands {
        let inner = unwrapped(&command.words);
        let programs =
            [command.words.first(), inner.first().filter(|_| inner.len() < command.words.len())];
        for word in programs.into_iter().flatten() {
            let name = word.shown();
            let own = shell
                && (table::BUILTINS.contains(&name.as_str())
                    || script::is_of_bash(&name)
                    || functions.contains(&name));
            let asked = shell && is_asked_for(subject, &name);
            if !own && !asked {
                check_program(subject, word, sink);
            }
        }
    }
}

/// Whether the script looks itself whether there is a program of that name.
fn is_asked_for(subject: &Subject<'_>, name: &str) -> bool {
    ["command -v ", "which ", "type ", "hash "]
        .iter()
        .any(|ask| subject.tool.template.contains(&format!("{ask}{name}")))
}

fn check_program(subject: &Subject<'_>, word: &Word, sink: &mut Sink) {
    let Some(place) = Place::of(&word.bits) else { return };
    let fragment = word.shown();
    if let Some((rule, message, help)) =
        place.verdict(subject.home, subject.launch, subject.tool.syntax == Syntax::Shell)
    {
        sink.add(rule, Level::Warning, subject.at(&fragment, message, help));
    }
}

/// Looks at the program of a command in context.yaml or hooks.yaml.
pub(super) fn check_plain(
    doc: &Document,
    node: &Node,
    home: &Path,
    launch: &Launch,
    sink: &mut Sink,
) {
    let Some(text) = node.scalar() else { return };
    let bits: Vec<Bit> = crate::vars::pieces(text)
        .into_iter()
        .map(|piece| match piece {
            crate::vars::Piece::Text(text) => Bit::Text(text),
            crate::vars::Piece::Variable(variable) => Bit::Variable(variable),
        })
        .collect();
    if let Some((rule, message, help)) =
        Place::of(&bits).and_then(|place| place.verdict(home, launch, false))
    {
        sink.add(rule, Level::Warning, doc.at(node, message, help));
    }
}

/// Where a program lies.
enum Place {
    /// In the agent directory, under this name.
    Home(String),
    /// At an absolute path, or in PATH.
    Fixed(String),
    /// At a path relative to the workspace of each run.
    Relative(String),
}

type Verdict = (&'static str, String, String);

impl Place {
    /// The place of a program; none when it is known in a run only.
    fn of(bits: &[Bit]) -> Option<Self> {
        match bits {
            [Bit::Variable(Variable::AgentHome), Bit::Text(rest)] => {
                rest.strip_prefix('/').map(|rest| Self::Home(rest.to_owned()))
            }
            [Bit::Text(text)] if text.contains('/') && !text.starts_with('/') => {
                Some(Self::Relative(text.clone()))
            }
            [Bit::Text(text)] => Some(Self::Fixed(text.clone())),
            _ => None,
        }
    }

    fn verdict(&self, home: &Path, launch: &Launch, shell: bool) -> Option<Verdict> {
        match self {
            Self::Relative(name) => relative(name, home),
            Self::Home(rest) => {
                let path = home.join(rest);
                missing(&path.display().to_string(), rest, launch, shell)
            }
            Self::Fixed(name) => missing(name, name, launch, shell),
        }
    }
}

/// A program with a relative path is looked for in the workspace, which is not the agent directory.
fn relative(name: &str, home: &Path) -> Option<Verdict> {
    let inside = name.strip_prefix("./").unwrap_or(name);
    let here = home.join(inside).is_file();
    if name.starts_with('~') {
        return None;
    }
    let message = match here {
        true => format!(
            "`{name}` is looked for in the workspace of each run, and lies in the agent directory"
        ),
        false => {
            format!("`{name}` is looked for in the workspace of each run, and need not be there")
        }
    };
    let help = match here {
        true => format!("write `${{AGENT_HOME}}/{inside}`"),
        false => format!(
            "write `${{AGENT_HOME}}/{inside}` if it belongs to the agent; if the workspace brings it, allow this: `x-lint-allow: [relative-program]`"
        ),
    };
    Some(("relative-program", message, help))
}

fn missing(path: &str, shown: &str, launch: &Launch, shell: bool) -> Option<Verdict> {
    let NotFound { lack, reason } = process::find_program(path, launch).err()?;
    let help = match lack {
        Lack::File => None,
        Lack::Permission => Some(format!("make it executable: `chmod +x {shown}`")),
        // The shell reads such a file itself.
        Lack::Marker if shell => return None,
        Lack::Marker | Lack::Interpreter => Some(
            "begin it with the line `#!/bin/sh`, or with that of another program that is there"
                .to_owned(),
        ),
    };
    if let Some(help) = help {
        return Some(("program-not-executable", reason, help));
    }
    let help = match shell {
        false if table::BUILTINS.contains(&path) || path == "source" => {
            format!(
                "`{path}` is a part of the shell, not a program: write `shell:` in the place of `exec:`"
            )
        }
        _ if path.starts_with('~') => "write the whole path; `~` is not expanded".to_owned(),
        _ if path != shown => "create it, and make it executable".to_owned(),
        _ => "install it on the machine that runs the agent, or name it by its path".to_owned(),
    };
    Some(("program-not-found", reason, help))
}
