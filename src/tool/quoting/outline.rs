//! What the reader of `shell:` templates saw, for those who judge a template instead of running it: its simple commands
//! with their words, and the constructs that only some shells have.

use super::lexer::{self, State};
use super::word::Word;
use super::{Refusal, Unit, units};
use crate::tool::placeholder::Hole;

/// The simple commands of a template.
#[derive(Debug, Default)]
pub struct Outline {
    /// In the order in which they begin.
    pub commands: Vec<Simple>,
    /// The names of the functions that it defines.
    pub functions: Vec<String>,
    /// Constructs that bash has and other shells have not, as they are written.
    pub odd: Vec<&'static str>,
}

/// One simple command, from its name on; assignments and redirections are not in it.
#[derive(Debug, Default)]
pub struct Simple {
    /// Its words; none for a compound command.
    pub words: Vec<Vec<Seen>>,
    /// Its output goes to the command that follows.
    pub piped: bool,
    /// Its standard error goes somewhere else.
    pub quiet: bool,
    /// The placeholders in its here-document.
    pub input: Vec<Hole>,
}

/// A part of a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// A fixed text, without its quotes.
    Text(String),
    /// A placeholder.
    Hole(Hole),
    /// What is known when it runs only.
    Unknown,
}

/// The outline of a `shell:` template, also of one without placeholders.
///
/// # Errors
/// What shells read differently, or not at all.
pub fn outline(template: &str) -> Result<Outline, Refusal> {
    let (units, holes) = units(template);
    let state = lexer::read(&units, &holes)?;
    let hole = |number: usize| holes[number].clone();
    let commands = state
        .outline
        .commands
        .into_iter()
        .filter(|command| !command.words.is_empty() || command.piped);
    let commands = commands.map(|command| Simple {
        words: command
            .words
            .into_iter()
            .map(|word| word.into_iter().map(|p| p.seen(hole)).collect())
            .collect(),
        piped: command.piped,
        quiet: command.quiet,
        input: command.input.into_iter().map(hole).collect(),
    });
    Ok(Outline {
        commands: commands.collect(),
        functions: state.outline.functions,
        odd: state.outline.odd,
    })
}

/// The outline while it is made: placeholders are still numbers.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) commands: Vec<DraftCommand>,
    pub(super) functions: Vec<String>,
    pub(super) odd: Vec<&'static str>,
}

#[derive(Debug, Default)]
pub(super) struct DraftCommand {
    pub(super) words: Vec<Vec<Piece>>,
    pub(super) piped: bool,
    pub(super) quiet: bool,
    pub(super) input: Vec<usize>,
}

/// A part of a word while it is read.
#[derive(Debug, Clone)]
pub(super) enum Piece {
    Text(String),
    Hole(usize),
    Unknown,
}

impl Piece {
    fn seen(self, hole: impl Fn(usize) -> Hole) -> Seen {
        match self {
            Self::Text(text) => Seen::Text(text),
            Self::Hole(number) => Seen::Hole(hole(number)),
            Self::Unknown => Seen::Unknown,
        }
    }
}

impl State {
    /// The command with the number in `slot`, which is given one when it has none.
    pub(super) fn draft(&mut self, slot: &mut Option<usize>) -> &mut DraftCommand {
        let commands = &mut self.outline.commands;
        let number = *slot.get_or_insert_with(|| {
            commands.push(DraftCommand::default());
            commands.len() - 1
        });
        &mut commands[number]
    }

    /// Notes a word of a command.
    pub(super) fn saw_word(&mut self, slot: &mut Option<usize>, word: &Word) {
        self.draft(slot).words.push(word.pieces.clone());
    }

    /// Notes a construct that bash has and other shells have not.
    pub(super) fn saw_odd(&mut self, construct: &'static str) {
        if !self.outline.odd.contains(&construct) {
            self.outline.odd.push(construct);
        }
    }
}

/// Adds a piece of a word, quoted or not, to what was read of the word before it.
pub(super) fn add(pieces: &mut Vec<Piece>, segment: &[Unit]) {
    let quote = match segment.first() {
        Some(Unit::Char(c @ ('\'' | '"'))) => Some(*c),
        Some(Unit::Char('$' | '`')) => return pieces.push(Piece::Unknown),
        _ => None,
    };
    let inner = if quote.is_some() { &segment[1..segment.len() - 1] } else { segment };
    let mut at = 0;
    while let Some(unit) = inner.get(at) {
        at += 1;
        match unit {
            Unit::Hole(number) => pieces.push(Piece::Hole(*number)),
            Unit::Char('\\') if quote != Some('\'') => {
                if let Some(Unit::Char(c)) = inner.get(at) {
                    push(pieces, *c);
                    at += 1;
                }
            }
            Unit::Char('$' | '`') if quote == Some('"') => {
                pieces.push(Piece::Unknown);
                let name = |unit: &Unit| matches!(unit, Unit::Char(c) if c.is_ascii_alphanumeric() || *c == '_');
                match inner.get(at) {
                    Some(next) if name(next) && *unit == Unit::Char('$') => {
                        at += inner[at..].iter().take_while(|unit| name(unit)).count();
                    }
                    // What ends a substitution inside quotes is not looked for.
                    _ => return,
                }
            }
            Unit::Char(c) => push(pieces, *c),
        }
    }
}

fn push(pieces: &mut Vec<Piece>, c: char) {
    match pieces.last_mut() {
        Some(Piece::Text(text)) => text.push(c),
        _ => pieces.push(Piece::Text(c.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(template: &str) -> String {
        let outline = outline(template).unwrap();
        let word = |word: &Vec<Seen>| -> String {
            let piece = |piece: &Seen| match piece {
                Seen::Text(text) => text.clone(),
                Seen::Hole(hole) => format!("<{}>", hole.source()),
                Seen::Unknown => "?".to_owned(),
            };
            word.iter().map(piece).collect()
        };
        let command = |command: &Simple| {
            let words: Vec<_> = command.words.iter().map(word).collect();
            let input: Vec<_> = command.input.iter().map(|hole| hole.source()).collect();
            let marks =
                [(command.piped, " |"), (command.quiet, " quiet"), (!input.is_empty(), " <<")];
            let marks: String = marks.iter().filter(|(on, _)| *on).map(|(_, mark)| *mark).collect();
            format!("[{}]{marks}", words.join("]["))
        };
        let mut lines: Vec<String> = outline.commands.iter().map(command).collect();
        lines.extend(outline.functions.iter().map(|name| format!("{name}()")));
        lines.extend(outline.odd.iter().map(|odd| format!("odd {odd}")));
        lines.join("; ")
    }

    #[test]
    fn c_15_1_the_outline_of_a_template() {
        let check =
            |template: &str, expected: &str| assert_eq!(shown(template), expected, "{template}");
        check("grep -n ${p} ${f} | wc -l", "[grep][-n][<${p}>][<${f}>] |; [wc][-l]");
        check("a=1 cat \"x ${f}\" 2>/dev/null || b", "[cat][x <${f}>] quiet; [b]");
        check("awk '{print ${n}}' \"$d/${f}\"", "[awk][{print <${n}>}][?/<${f}>]");
        check("echo \"$(ls ${d})\" | tr a b", "[echo][?] |; [ls][<${d}>]; [tr][a][b]");
        check("python3 <<E\nprint(${x})\nE\n", "[python3] <<");
        check("f() { ls; }; if f; then g; fi | h", "[ls]; [f]; [g]; [] |; [h]; f()");
        check("for f in a; do b; done | sort | c", "[b]; [] |; [sort] |; [c]");
        check("cat <<<x &>f", "[cat] quiet; odd <<<; odd &>");
        check("cat <(ls) |& wc", "[cat] |; [ls]; [wc]; odd <(; odd |&");
        check("command ls -- '${x}'", "[ls][--][<${x}>]");
    }
}
