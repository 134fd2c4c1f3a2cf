//! The commands of a tool in one form, however they were written.

use crate::tool::placeholder::Hole;
use crate::tool::quoting::{Outline, Seen};
use crate::tool::{Inject, Kind, Parameter, Piece, Tool};
use crate::vars::Variable;

/// A command with its words.
#[derive(Debug)]
pub(super) struct Command {
    /// The first one is the program.
    pub words: Vec<Word>,
    /// Its output goes to the command that follows.
    pub piped: bool,
    /// Its errors go somewhere else.
    pub quiet: bool,
    /// The values in its here-document, as they are written.
    pub input: Vec<String>,
}

/// A word of a command.
#[derive(Debug, Clone)]
pub(super) struct Word {
    pub bits: Vec<Bit>,
}

/// A part of a word.
#[derive(Debug, Clone)]
pub(super) enum Bit {
    Text(String),
    Variable(Variable),
    /// A value that a call gives.
    Value(Value),
    /// What is known when it runs only.
    Unknown,
}

/// A value that a call gives.
#[derive(Debug, Clone)]
pub(super) struct Value {
    /// It as the author wrote it.
    pub source: String,
    /// What is known of how it begins.
    pub dash: Dash,
    /// Whether it can only be one of a list, a number or a boolean: nothing that an interpreter could run.
    pub tame: bool,
}

/// Whether a value may begin with `-`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dash {
    Never,
    /// As a negative number.
    Number,
    Anything,
}

impl Word {
    /// The text, when all of it is fixed.
    pub fn fixed(&self) -> Option<&str> {
        match self.bits.as_slice() {
            [] => Some(""),
            [Bit::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The text with which it surely begins.
    pub fn lead(&self) -> &str {
        match self.bits.first() {
            Some(Bit::Text(text)) => text,
            _ => "",
        }
    }

    /// The value with which it begins.
    pub fn leading_value(&self) -> Option<&Value> {
        match self.bits.first() {
            Some(Bit::Value(value)) => Some(value),
            _ => None,
        }
    }

    /// The first value in it.
    pub fn value(&self) -> Option<&Value> {
        self.values().next()
    }

    pub fn values(&self) -> impl Iterator<Item = &Value> {
        self.bits.iter().filter_map(|bit| match bit {
            Bit::Value(value) => Some(value),
            _ => None,
        })
    }

    /// The first value in it that stands beside a text, so that it is a part of what the author wrote.
    pub fn embedded(&self) -> Option<&Value> {
        let beside = self.bits.len() > 1;
        self.values().find(|value| !value.tame).filter(|_| beside)
    }

    /// The name of the program, when it is fixed: what stands behind the last `/`.
    pub fn program(&self) -> &str {
        match self.bits.last() {
            Some(Bit::Text(text)) => text.rsplit('/').next().unwrap_or(text),
            _ => "",
        }
    }

    /// It as it may be written in a command.
    pub fn shown(&self) -> String {
        let bit = |bit: &Bit| match bit {
            Bit::Text(text) => text.clone(),
            Bit::Variable(variable) => format!("${{{}}}", variable.name()),
            Bit::Value(value) => value.source.clone(),
            Bit::Unknown => "...".to_owned(),
        };
        self.bits.iter().map(bit).collect()
    }

    fn text(text: &str) -> Self {
        Self { bits: vec![Bit::Text(text.to_owned())] }
    }
}

impl Value {
    fn of(parameter: &Parameter, source: String) -> Self {
        let listed = !parameter.values.is_empty();
        let dash = match parameter.kind {
            // Whatever the author lists is meant.
            _ if listed => Dash::Never,
            Kind::Boolean => Dash::Never,
            Kind::Integer | Kind::Number => Dash::Number,
            // As one word it is a JSON text, which begins with a bracket.
            Kind::Array if parameter.in_template => Dash::Never,
            Kind::Array | Kind::String => Dash::Anything,
        };
        let numeric = matches!(parameter.kind, Kind::Boolean | Kind::Integer | Kind::Number);
        Self { source, dash, tame: listed || numeric }
    }
}

/// The commands of a `shell:` template.
pub(super) fn of_outline(outline: &Outline, tool: &Tool) -> Vec<Command> {
    let value = |hole: &Hole| match hole {
        Hole::Engine { variable, .. } => Some(Bit::Variable(*variable)),
        Hole::Parameter { name, .. } => {
            let parameter = tool.parameters.iter().find(|parameter| parameter.name == *name)?;
            Some(Bit::Value(Value::of(parameter, hole.source())))
        }
    };
    let bit = |seen: &Seen| match seen {
        Seen::Text(text) => Bit::Text(text.clone()),
        Seen::Hole(hole) => value(hole).unwrap_or(Bit::Unknown),
        Seen::Unknown => Bit::Unknown,
    };
    let word = |word: &Vec<Seen>| Word { bits: word.iter().map(bit).collect() };
    let tame = |hole: &&Hole| matches!(value(hole), Some(Bit::Value(value)) if !value.tame);
    let command = |command: &crate::tool::quoting::Simple| Command {
        words: command.words.iter().map(word).collect(),
        piped: command.piped,
        quiet: command.quiet,
        input: command.input.iter().filter(tame).map(Hole::source).collect(),
    };
    outline.commands.iter().map(command).collect()
}

/// The command of an `exec:` or `command:` tool, with the parameters that are appended.
pub(super) fn of_tool(tool: &Tool) -> Command {
    let bit = |piece: &Piece| match piece {
        Piece::Text(text) => Bit::Text(text.clone()),
        Piece::Variable(variable) => Bit::Variable(*variable),
        Piece::Parameter(index) => {
            let parameter = &tool.parameters[*index];
            Bit::Value(Value::of(parameter, format!("${{{}}}", parameter.name)))
        }
    };
    let mut words: Vec<Word> = tool
        .words
        .iter()
        .map(|word| Word { bits: word.pieces.iter().map(bit).collect() })
        .collect();
    words.extend(appended(tool));
    Command { words, piped: false, quiet: false, input: Vec::new() }
}

/// The words that follow those of the definition.
fn appended(tool: &Tool) -> Vec<Word> {
    let mut parameters: Vec<&Parameter> =
        tool.parameters.iter().filter(|parameter| !parameter.in_template).collect();
    parameters.sort_by_key(|parameter| parameter.position.unwrap_or(u64::MAX));
    let mut words = Vec::new();
    for parameter in parameters {
        if let Inject::Option(name) = &parameter.inject {
            words.push(Word::text(name));
        }
        if parameter.inject != Inject::Stdin {
            words.push(Word {
                bits: vec![Bit::Value(Value::of(parameter, parameter.name.clone()))],
            });
        }
    }
    words
}
