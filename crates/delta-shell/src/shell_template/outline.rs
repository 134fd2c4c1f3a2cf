//! The commands of a `shell:` template, for callers that check a template instead of running it.

use super::shell_parser::{self, ParserState};
use super::shell_word::ShellWord;
use super::{TemplateError, TemplateUnit, split_units};
use crate::placeholder::Placeholder;

/// The simple commands of a `shell:` template, and its constructs that only some shells support.
#[derive(Debug, Default)]
pub struct ShellOutline {
    /// The commands in the order in which they begin, those in substitutions included.
    pub commands: Vec<SimpleCommand>,
    /// The names of the functions that the template defines.
    pub functions: Vec<String>,
    /// The constructs that bash supports and other shells do not, such as `<<<`; each once.
    pub bash_constructs: Vec<&'static str>,
    /// The assignments of texts and placeholders, in their order.
    pub assignments: Vec<ShellAssignment>,
}

/// An assignment to a variable of the shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellAssignment {
    /// The name of the variable; `@` for each positional parameter, such as `$1`.
    pub name: String,
    /// The value.
    pub value: Vec<OutlinePart>,
}

/// The name of `$1`, `$@` and the other positional parameters in an outline.
pub(super) const POSITIONAL_PARAMETERS: &str = "@";

/// A simple command, from its name on, without assignments and redirections.
#[derive(Debug, Default)]
pub struct SimpleCommand {
    /// The words, each as its parts. A compound command whose output is piped has none.
    pub words: Vec<Vec<OutlinePart>>,
    /// The variables before the name, such as `$cmd`, which are not words if they are empty.
    pub vanishing: Vec<Vec<OutlinePart>>,
    /// Whether the next command reads the standard output.
    pub piped: bool,
    /// Whether standard error is redirected.
    pub redirects_stderr: bool,
    /// The placeholders in the here-document of the command.
    pub heredoc_placeholders: Vec<Placeholder>,
}

/// A part of a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutlinePart {
    /// A fixed text, without its quotes.
    Text(String),
    /// A placeholder.
    Placeholder(Placeholder),
    /// The value of a variable of the shell: `$name`, `${name}` or `${name:-...}`.
    Variable {
        /// The name; `@` for each positional parameter.
        name: String,
        /// Whether it has no quotes, so that the shell splits it if it is in a word of a command.
        is_bare: bool,
    },
    /// A text that is known only when the command runs, such as `$(ls)`.
    Unknown,
}

impl ShellOutline {
    /// Parses a `shell:` template, also one without placeholders.
    ///
    /// # Errors
    /// A placeholder is in a place where its value would not be literal, or shells parse the template differently.
    pub fn from_template(template: &str) -> Result<Self, TemplateError> {
        let (units, placeholders) = split_units(template);
        let outline = shell_parser::parse_units(&units, &placeholders)?.outline;
        let commands = outline
            .commands
            .into_iter()
            .filter(CommandDraft::is_command)
            .map(|command| command.into_simple_command(&placeholders))
            .collect();
        let assignments = outline.assignments.into_iter().map(|(name, parts)| {
            let parts = parts.into_iter().map(|part| part.into_outline_part(&placeholders));
            ShellAssignment { name, value: parts.collect() }
        });
        Ok(Self {
            commands,
            functions: outline.functions,
            bash_constructs: outline.bash_constructs,
            assignments: assignments.collect(),
        })
    }
}

/// An outline during parsing: placeholders are indices.
#[derive(Debug, Default)]
pub(super) struct OutlineDraft {
    pub(super) commands: Vec<CommandDraft>,
    pub(super) functions: Vec<String>,
    pub(super) bash_constructs: Vec<&'static str>,
    /// Names and values.
    pub(super) assignments: Vec<(String, Vec<PartDraft>)>,
}

#[derive(Debug, Default)]
pub(super) struct CommandDraft {
    pub(super) words: Vec<Vec<PartDraft>>,
    pub(super) vanishing: Vec<Vec<PartDraft>>,
    pub(super) piped: bool,
    pub(super) redirects_stderr: bool,
    pub(super) heredoc_placeholders: Vec<usize>,
}

#[derive(Debug, Clone)]
pub(super) enum PartDraft {
    Text(String),
    Placeholder(usize),
    Variable { name: String, is_bare: bool },
    Unknown,
}

impl CommandDraft {
    fn is_command(&self) -> bool {
        !self.words.is_empty() || !self.vanishing.is_empty() || self.piped
    }

    fn into_simple_command(self, placeholders: &[Placeholder]) -> SimpleCommand {
        let outline_words = |words: Vec<Vec<PartDraft>>| -> Vec<Vec<OutlinePart>> {
            let words = words.into_iter().map(|parts| {
                parts.into_iter().map(|part| part.into_outline_part(placeholders)).collect()
            });
            words.collect()
        };
        let heredoc_placeholders =
            self.heredoc_placeholders.iter().map(|index| placeholders[*index].clone()).collect();
        SimpleCommand {
            words: outline_words(self.words),
            vanishing: outline_words(self.vanishing),
            piped: self.piped,
            redirects_stderr: self.redirects_stderr,
            heredoc_placeholders,
        }
    }
}

impl PartDraft {
    fn into_outline_part(self, placeholders: &[Placeholder]) -> OutlinePart {
        match self {
            Self::Text(text) => OutlinePart::Text(text),
            Self::Placeholder(index) => OutlinePart::Placeholder(placeholders[index].clone()),
            Self::Variable { name, is_bare } => OutlinePart::Variable { name, is_bare },
            Self::Unknown => OutlinePart::Unknown,
        }
    }
}

impl ParserState {
    /// The command at the index in `slot`. An empty slot gets the index of a new command.
    pub(super) fn command_draft(&mut self, slot: &mut Option<usize>) -> &mut CommandDraft {
        let commands = &mut self.outline.commands;
        let index = *slot.get_or_insert_with(|| {
            commands.push(CommandDraft::default());
            commands.len() - 1
        });
        &mut commands[index]
    }

    pub(super) fn add_outline_word(&mut self, slot: &mut Option<usize>, word: &ShellWord) {
        self.command_draft(slot).words.push(word.parts.clone());
    }

    /// Records the assignment that a word such as `name=value` is.
    pub(super) fn add_outline_assignment(&mut self, word: &ShellWord) {
        let [PartDraft::Text(start), rest @ ..] = word.parts.as_slice() else { return };
        let Some((name, start)) = start.split_once('=') else { return };
        let value = std::iter::once(PartDraft::Text(start.to_owned())).chain(rest.iter().cloned());
        let value = value.filter(|part| !matches!(part, PartDraft::Text(text) if text.is_empty()));
        let mut value: Vec<_> = value.collect();
        let name = match name.strip_suffix('+') {
            Some(name) => {
                value.insert(0, PartDraft::Variable { name: name.to_owned(), is_bare: false });
                name
            }
            None => name,
        };
        self.outline.assignments.push((name.to_owned(), value));
    }

    /// Records that the word becomes a value of the variable `name`.
    pub(super) fn add_outline_value(&mut self, name: &str, word: &ShellWord) {
        self.outline.assignments.push((name.to_owned(), word.parts.clone()));
    }

    /// Records a construct that bash supports and other shells do not.
    pub(super) fn add_bash_construct(&mut self, construct: &'static str) {
        if !self.outline.bash_constructs.contains(&construct) {
            self.outline.bash_constructs.push(construct);
        }
    }
}

/// Appends the parts of a segment of a word. The segment may be quoted.
pub(super) fn append_parts(parts: &mut Vec<PartDraft>, segment: &[TemplateUnit]) {
    let quote = match segment.first() {
        Some(TemplateUnit::Char(c @ ('\'' | '"'))) => Some(*c),
        Some(TemplateUnit::Char('$')) => {
            let (part, _) = read_variable(&segment[1..], true);
            return parts.push(part);
        }
        Some(TemplateUnit::Char('`')) => return parts.push(PartDraft::Unknown),
        _ => None,
    };
    let content = if quote.is_some() { &segment[1..segment.len() - 1] } else { segment };
    let mut at = 0;
    while let Some(unit) = content.get(at) {
        at += 1;
        match unit {
            TemplateUnit::Placeholder(index) => parts.push(PartDraft::Placeholder(*index)),
            TemplateUnit::Char('\\') if quote != Some('\'') => {
                if let Some(TemplateUnit::Char(c)) = content.get(at) {
                    push_part_char(parts, *c);
                    at += 1;
                }
            }
            TemplateUnit::Char('$' | '`') if quote == Some('"') => {
                let is_variable = *unit == TemplateUnit::Char('$');
                let (part, length) = if is_variable {
                    read_variable(&content[at..], false)
                } else {
                    (PartDraft::Unknown, None)
                };
                let is_unknown = matches!(part, PartDraft::Unknown);
                parts.push(part);
                // The end of a substitution is not searched for: the rest of the quotes is unknown.
                let Some(length) = length else {
                    parts.extend((!is_unknown).then_some(PartDraft::Unknown));
                    return;
                };
                at += length;
            }
            TemplateUnit::Char(c) => push_part_char(parts, *c),
        }
    }
}

/// The variable whose `$` precedes `units`, and its length, `None` where its end is not known.
fn read_variable(units: &[TemplateUnit], is_bare: bool) -> (PartDraft, Option<usize>) {
    let has_braces = units.first() == Some(&TemplateUnit::Char('{'));
    let start = usize::from(has_braces);
    let chars = units[start..].iter().map_while(|unit| match unit {
        TemplateUnit::Char(c) => Some(*c),
        TemplateUnit::Placeholder(_) => None,
    });
    let mut chars = chars.peekable();
    let name: String = match chars.peek() {
        Some('@' | '*') => POSITIONAL_PARAMETERS.to_owned(),
        Some(c) if c.is_ascii_digit() && !has_braces => c.to_string(),
        _ => chars.take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect(),
    };
    if name.is_empty() {
        return (PartDraft::Unknown, None);
    }
    let length = start + name.len();
    let is_closed = units.get(length) == Some(&TemplateUnit::Char('}'));
    let is_positional = name.bytes().all(|byte| byte.is_ascii_digit());
    let name = if is_positional { POSITIONAL_PARAMETERS.to_owned() } else { name };
    let length = if has_braces { is_closed.then_some(length + 1) } else { Some(length) };
    (PartDraft::Variable { name, is_bare }, length)
}

fn push_part_char(parts: &mut Vec<PartDraft>, c: char) {
    match parts.last_mut() {
        Some(PartDraft::Text(text)) => text.push(c),
        _ => parts.push(PartDraft::Text(c.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn describe_word(parts: &[OutlinePart]) -> String {
        let describe_part = |part: &OutlinePart| match part {
            OutlinePart::Text(text) => text.clone(),
            OutlinePart::Placeholder(placeholder) => format!("<{}>", placeholder.to_source()),
            OutlinePart::Variable { name, .. } => format!("<${name}>"),
            OutlinePart::Unknown => "?".to_owned(),
        };
        parts.iter().map(describe_part).collect()
    }

    fn describe_command(command: &SimpleCommand) -> String {
        let words = command.vanishing.iter().chain(&command.words);
        let words: Vec<_> = words.map(|word| describe_word(word)).collect();
        let mut text = format!("[{}]", words.join("]["));
        if command.piped {
            text.push_str(" |");
        }
        if command.redirects_stderr {
            text.push_str(" stderr");
        }
        if !command.heredoc_placeholders.is_empty() {
            text.push_str(" <<");
        }
        text
    }

    fn describe_outline(template: &str) -> String {
        let outline = ShellOutline::from_template(template).unwrap();
        let mut lines: Vec<String> = outline.commands.iter().map(describe_command).collect();
        lines.extend(
            outline
                .assignments
                .iter()
                .map(|ShellAssignment { name, value }| format!("{name}={}", describe_word(value))),
        );
        lines.extend(outline.functions.iter().map(|name| format!("{name}()")));
        lines.extend(outline.bash_constructs.iter().map(|construct| format!("bash {construct}")));
        lines.join("; ")
    }

    #[test]
    fn c_15_1_an_outline_lists_commands_functions_and_bash_constructs() {
        let check = |template: &str, expected: &str| {
            assert_eq!(describe_outline(template), expected, "{template}")
        };
        check("grep -n ${p} ${f} | wc -l", "[grep][-n][<${p}>][<${f}>] |; [wc][-l]");
        check("a=1 cat \"x ${f}\" 2>/dev/null || b", "[cat][x <${f}>] stderr; [b]; a=1");
        check("awk '{print ${n}}' \"$d/${f}\"", "[awk][{print <${n}>}][<$d>/<${f}>]");
        check("echo \"$(ls ${d})\" | tr a b", "[echo][?] |; [ls][<${d}>]; [tr][a][b]");
        check("python3 <<E\nprint(${x})\nE\n", "[python3] <<");
        check("f() { ls; }; if f; then g; fi | h", "[ls]; [f]; [g]; [] |; [h]; f()");
        check("for f in a; do b; done | sort | c", "[b]; [] |; [sort] |; [c]; f=a");
        check("cat <<<x &>f", "[cat] stderr; bash <<<; bash &>");
        check("cat <(ls) |& wc", "[cat] |; [ls]; [wc]; bash <(; bash |&");
        check("eval \"$v\" $1 ${v#x}y \"\\${v}z\"", "[eval][<$v>][<$@>][<$v>y][<$v>z]");
        check("echo \"${v:-a}b\" `ls` ${#v}", "[echo][<$v>?][?][?]; [ls]");
        check("v=${x}; v+=\"b $v\" w='c'", "v=<${x}>; v=<$v>b <$v>; w=c");
        check("export v=\"ls ${x}\"", "[export][v=ls <${x}>]; v=ls <${x}>");
        check(
            "for v in ${y} c; do d; done; set -- ${x} b",
            "[d]; [set][--][<${x}>][b]; v=<${y}>; v=c; @=<${x}>; @=b",
        );
        check("v=${x}; $v; $v a", "[<$v>]; [<$v>][a]; v=<${x}>");
        check("command ls -- '${x}'", "[ls][--][<${x}>]");
    }
}
