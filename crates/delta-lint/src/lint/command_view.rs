//! The commands of a tool in one form, whichever syntax the tool is written in.

use delta_agent::tool::{CommandPart, InjectAs, ParameterType, Tool, ToolParameter};
use delta_base::engine_variables::{EngineVariable, StringPart, parse_plain_string};
use delta_base::shell_quote;
use delta_shell::{ExecWord, OutlinePart, Placeholder, ShellOutline, SimpleCommand, TemplatePart};
use std::collections::HashMap;

pub(super) mod interpreter;
pub(super) mod wrapper_program;

/// A variable with more parts is expanded to its values only.
const MAX_VARIABLE_PARTS: usize = 16;

/// A command as the checks see it.
#[derive(Debug)]
pub(super) struct CommandView {
    /// The program and its arguments.
    pub words: Vec<LintWord>,
    /// The output goes to the next command.
    pub is_piped: bool,
    pub redirects_stderr: bool,
    /// The unconstrained values in the here-document, as placeholders.
    pub heredoc_values: Vec<String>,
}

/// A word of a command.
#[derive(Debug, Clone)]
pub(super) struct LintWord {
    pub parts: Vec<WordPart>,
}

/// A part of a word.
#[derive(Debug, Clone)]
pub(super) enum WordPart {
    Text(String),
    Variable(EngineVariable),
    Value(ArgumentValue),
    /// A text that is only known when the command runs.
    Unknown,
}

/// A value from the arguments of a call.
#[derive(Debug, Clone)]
pub(super) struct ArgumentValue {
    /// The placeholder as the author wrote it, or the name of an appended parameter.
    pub source: String,
    pub leading_dash: LeadingDash,
    /// The value is a number, a boolean or one of a list: an interpreter cannot run it.
    pub is_constrained: bool,
    /// The variable outside of quotes through which it came here: the shell splits it.
    pub bare_variable: Option<String>,
}

/// Whether a value may begin with `-`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeadingDash {
    Never,
    /// As a negative number.
    Number,
    Any,
}

impl CommandView {
    /// Whether it has words, or is a compound command whose output is piped.
    fn is_command(&self) -> bool {
        !self.words.is_empty() || self.is_piped
    }
}

impl LintWord {
    /// The text, if no part of it depends on the call or the run.
    pub fn fixed_text(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [] => Some(""),
            [WordPart::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The fixed text at the beginning.
    pub fn fixed_prefix(&self) -> &str {
        match self.parts.first() {
            Some(WordPart::Text(text)) => text,
            _ => "",
        }
    }

    /// The value at the beginning.
    pub fn leading_value(&self) -> Option<&ArgumentValue> {
        match self.parts.first() {
            Some(WordPart::Value(value)) => Some(value),
            _ => None,
        }
    }

    pub fn first_value(&self) -> Option<&ArgumentValue> {
        self.values().next()
    }

    pub fn values(&self) -> impl Iterator<Item = &ArgumentValue> {
        self.parts.iter().filter_map(|part| match part {
            WordPart::Value(value) => Some(value),
            _ => None,
        })
    }

    /// The first unconstrained value that is only a part of the word, so that it extends what the author wrote.
    pub fn embedded_value(&self) -> Option<&ArgumentValue> {
        let has_other_parts = self.parts.len() > 1;
        self.values().find(|value| !value.is_constrained).filter(|_| has_other_parts)
    }

    /// The file name of the program that the word names; empty if it is not fixed.
    pub fn program_name(&self) -> &str {
        match self.parts.last() {
            Some(WordPart::Text(text)) => text.rsplit('/').next().unwrap_or(text),
            _ => "",
        }
    }

    /// The word as template text, without quotes.
    pub fn display_text(&self) -> String {
        self.parts.iter().map(WordPart::display_text).collect()
    }

    /// The word with the quotes that it has in `template`, or, if it does not occur there, with the quotes that a shell
    /// needs.
    pub fn quote_as_in(&self, template: &str) -> String {
        let text = self.display_text();
        let quoted = ["'", "\""].map(|quote| format!("{quote}{text}{quote}"));
        if let Some(original) = quoted.iter().find(|quoted| template.contains(*quoted)) {
            return original.clone();
        }
        let mut fixed_texts = self.parts.iter().filter_map(|part| match part {
            WordPart::Text(text) => Some(text),
            _ => None,
        });
        let has_any = |specials: &str| {
            fixed_texts.clone().any(|text| text.contains(|c| specials.contains(c)))
        };
        // Without quotes, `sh` expands these. A word that is in the template without quotes is meant to be expanded.
        let is_literal = has_any("*?[]{}~#") && !has_bare_word(template, &text);
        let has_special = has_any("|&;<>()$`\"'\\")
            || fixed_texts.clone().any(|text| text.contains(char::is_whitespace));
        if !text.is_empty() && !has_special && !is_literal {
            text
        } else if fixed_texts.any(|text| text.contains('\'')) {
            format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
        } else {
            format!("'{text}'")
        }
    }

    /// The word with each of its texts in quotes, and its values outside of them.
    pub fn quote_each_part(&self) -> String {
        if self.parts.is_empty() {
            return "''".to_owned();
        }
        let parts = self.parts.iter().map(|part| match part {
            WordPart::Text(text) => shell_quote::shell_quote(text).replace("${", "\\${"),
            part => part.display_text(),
        });
        parts.collect()
    }

    /// Whether the words have the same texts and values in the same places. A part that is only known in a run is equal to
    /// nothing.
    pub fn is_same(&self, other: &Self) -> bool {
        let keys = [self, other].map(|word| {
            let mut keys: Vec<(bool, String)> = Vec::new();
            for part in &word.parts {
                let is_text = matches!(part, WordPart::Text(_));
                match keys.last_mut() {
                    Some((true, text)) if is_text => text.push_str(&part.display_text()),
                    _ => keys.push((is_text, part.display_text())),
                }
            }
            keys.retain(|(is_text, text)| !is_text || !text.is_empty());
            keys
        });
        let is_known =
            |word: &Self| !word.parts.iter().any(|part| matches!(part, WordPart::Unknown));
        keys[0] == keys[1] && is_known(self) && is_known(other)
    }

    /// The word after `prefix`.
    pub fn with_prefix(&self, prefix: &str) -> Self {
        let mut parts = vec![WordPart::Text(prefix.to_owned())];
        parts.extend(self.parts.iter().cloned());
        Self { parts }
    }

    pub fn from_text(text: &str) -> Self {
        Self { parts: vec![WordPart::Text(text.to_owned())] }
    }

    /// A word of a command that is not a tool.
    pub fn from_plain_string(text: &str) -> Self {
        let parts = parse_plain_string(text).into_iter().map(|piece| match piece {
            StringPart::Text(text) => WordPart::Text(text),
            StringPart::Variable(variable) => WordPart::Variable(variable),
        });
        Self { parts: parts.collect() }
    }

    /// A word of a script in such a command.
    pub fn from_plain_script(word: &[OutlinePart]) -> Self {
        let parts = word.iter().map(|part| match part {
            OutlinePart::Text(text) => WordPart::Text(text.clone()),
            OutlinePart::Placeholder(Placeholder::Variable { variable, .. }) => {
                WordPart::Variable(*variable)
            }
            OutlinePart::Placeholder(Placeholder::Parameter { .. })
            | OutlinePart::Variable { .. }
            | OutlinePart::Unknown => WordPart::Unknown,
        });
        Self { parts: parts.collect() }
    }
}

/// Whether `word` is a word of `template` without quotes and backslashes.
fn has_bare_word(template: &str, word: &str) -> bool {
    let mut quote = None;
    let mut is_escaped = false;
    template
        .split(|c: char| {
            let is_plain = quote.is_none() && !is_escaped;
            match quote {
                _ if is_escaped => is_escaped = false,
                _ if c == '\\' && quote != Some('\'') => is_escaped = true,
                Some(open) if c == open => quote = None,
                None if matches!(c, '\'' | '"') => quote = Some(c),
                _ => {}
            }
            is_plain && (c.is_whitespace() || "|&;<>()".contains(c))
        })
        .any(|raw_word| raw_word == word)
}

impl WordPart {
    /// A part of a word in a script.
    fn from_script(part: &OutlinePart, tool: &Tool) -> Self {
        match part {
            OutlinePart::Text(text) => Self::Text(text.clone()),
            OutlinePart::Placeholder(placeholder) => {
                Self::from_placeholder(placeholder, tool).unwrap_or(Self::Unknown)
            }
            OutlinePart::Variable { .. } | OutlinePart::Unknown => Self::Unknown,
        }
    }

    fn from_placeholder(placeholder: &Placeholder, tool: &Tool) -> Option<Self> {
        match placeholder {
            Placeholder::Variable { variable, .. } => Some(Self::Variable(*variable)),
            Placeholder::Parameter { name, .. } => {
                let parameter = tool.parameters.iter().find(|parameter| parameter.name == *name)?;
                Some(Self::Value(ArgumentValue::new(parameter, placeholder.to_source())))
            }
        }
    }

    /// A part of a word of `exec:` or `command:`.
    fn from_argv(part: &CommandPart, tool: &Tool) -> Self {
        match part {
            CommandPart::Text(text) => Self::Text(text.clone()),
            CommandPart::Variable(variable) => Self::Variable(*variable),
            CommandPart::Parameter(index) => {
                let parameter = &tool.parameters[*index];
                Self::Value(ArgumentValue::new(parameter, format!("${{{}}}", parameter.name)))
            }
        }
    }

    fn display_text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Variable(variable) => format!("${{{}}}", variable.name()),
            Self::Value(value) => value.source.clone(),
            Self::Unknown => "...".to_owned(),
        }
    }
}

impl ArgumentValue {
    fn new(parameter: &ToolParameter, source: String) -> Self {
        let is_listed = !parameter.allowed_values.is_empty();
        let leading_dash = match parameter.kind {
            // The author chose the listed values.
            _ if is_listed => LeadingDash::Never,
            ParameterType::Boolean => LeadingDash::Never,
            ParameterType::Integer | ParameterType::Number => LeadingDash::Number,
            // One word holds the array as JSON, which begins with a bracket.
            ParameterType::Array if parameter.in_template => LeadingDash::Never,
            ParameterType::Object => LeadingDash::Never,
            ParameterType::Array | ParameterType::String => LeadingDash::Any,
        };
        let is_scalar = matches!(
            parameter.kind,
            ParameterType::Boolean | ParameterType::Integer | ParameterType::Number
        );
        let is_constrained = is_listed || is_scalar;
        Self { source, leading_dash, is_constrained, bare_variable: None }
    }
}

/// The commands of a `shell:` template.
pub(super) fn outline_commands(outline: &ShellOutline, tool: &Tool) -> Vec<CommandView> {
    let commands = outline.commands.iter().map(|command| script_command(command, tool));
    commands.filter(CommandView::is_command).collect()
}

/// The commands of a `shell:` template whose variables are replaced by what the script assigns to them, if that comes from
/// the arguments of a call.
pub(super) fn expanded_commands(outline: &ShellOutline, tool: &Tool) -> Vec<CommandView> {
    let mut variables = VariableValues { tool, values: HashMap::new() };
    for assignment in &outline.assignments {
        // The shell splits no value of an assignment.
        let parts = variables.expand_parts(&assignment.value, false);
        let has_value = parts.iter().any(|part| matches!(part, WordPart::Value(_)));
        if has_value {
            variables.values.insert(&assignment.name, parts);
        }
    }
    let commands = outline.commands.iter().map(|command| {
        let expand = |word: &Vec<_>| LintWord { parts: variables.expand_parts(word, true) };
        let vanishing = command.vanishing.iter().map(expand);
        let vanishing = vanishing.filter(|word| word.first_value().is_some());
        let words = vanishing.chain(command.words.iter().map(expand)).collect();
        CommandView { words, ..script_command(command, tool) }
    });
    commands.filter(CommandView::is_command).collect()
}

/// The variables of a script that contain values from the arguments of a call.
struct VariableValues<'a> {
    tool: &'a Tool,
    values: HashMap<&'a str, Vec<WordPart>>,
}

impl VariableValues<'_> {
    /// The parts of a word, of a limited number: a variable that contains itself twice would double with each assignment.
    fn expand_parts(&self, parts: &[OutlinePart], is_split: bool) -> Vec<WordPart> {
        let mut expanded = Vec::new();
        for part in parts {
            match part {
                OutlinePart::Variable { name, is_bare }
                    if self.values.contains_key(name.as_str()) =>
                {
                    let bare_variable = (is_split && *is_bare).then(|| format!("${name}"));
                    let value = self.values[name.as_str()].iter().cloned();
                    expanded.extend(value.map(|mut part| {
                        if let WordPart::Value(value) = &mut part {
                            value.bare_variable.clone_from(&bare_variable);
                        }
                        part
                    }));
                }
                part => expanded.push(WordPart::from_script(part, self.tool)),
            }
        }
        if expanded.len() > MAX_VARIABLE_PARTS {
            expanded.retain(|part| matches!(part, WordPart::Value(_)));
            expanded.truncate(MAX_VARIABLE_PARTS);
        }
        expanded
    }
}

fn script_command(command: &SimpleCommand, tool: &Tool) -> CommandView {
    let words = command.words.iter().map(|word| LintWord {
        parts: word.iter().map(|part| WordPart::from_script(part, tool)).collect(),
    });
    CommandView {
        words: words.collect(),
        is_piped: command.piped,
        redirects_stderr: command.redirects_stderr,
        heredoc_values: command
            .heredoc_placeholders
            .iter()
            .filter(|placeholder| is_unconstrained(placeholder, tool))
            .map(Placeholder::to_source)
            .collect(),
    }
}

fn is_unconstrained(placeholder: &Placeholder, tool: &Tool) -> bool {
    match WordPart::from_placeholder(placeholder, tool) {
        Some(WordPart::Value(value)) => !value.is_constrained,
        _ => false,
    }
}

/// The command of an `exec:` or `command:` tool, with the appended parameters.
pub(super) fn argv_command(tool: &Tool) -> CommandView {
    let words = tool.words.iter().map(|word| LintWord {
        parts: word.parts.iter().map(|part| WordPart::from_argv(part, tool)).collect(),
    });
    CommandView {
        words: words.chain(appended_argument_words(tool)).collect(),
        is_piped: false,
        redirects_stderr: false,
        heredoc_values: Vec::new(),
    }
}

/// The words of an `exec:` template.
pub(super) fn exec_words(words: &[ExecWord], tool: &Tool) -> Vec<LintWord> {
    let words = words.iter().map(|word| {
        let parts = word.iter().map(|part| match part {
            TemplatePart::Text(text) => WordPart::Text(text.clone()),
            TemplatePart::Placeholder(placeholder) => {
                WordPart::from_placeholder(placeholder, tool).unwrap_or(WordPart::Unknown)
            }
        });
        LintWord { parts: parts.collect() }
    });
    words.collect()
}

/// The words of the parameters that the command does not name, in their order.
fn appended_argument_words(tool: &Tool) -> Vec<LintWord> {
    let mut parameters: Vec<&ToolParameter> =
        tool.parameters.iter().filter(|parameter| !parameter.in_template).collect();
    parameters.sort_by_key(|parameter| parameter.position.unwrap_or(u64::MAX));
    let mut words = Vec::new();
    for parameter in parameters {
        if let InjectAs::Option(name) = &parameter.inject_as {
            words.push(LintWord::from_text(name));
        }
        if parameter.inject_as != InjectAs::Stdin {
            let value = ArgumentValue::new(parameter, parameter.name.clone());
            words.push(LintWord { parts: vec![WordPart::Value(value)] });
        }
    }
    words
}
