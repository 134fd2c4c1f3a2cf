//! Simple commands: words, assignments, redirections, and the builtins that do more with a word than take it.

use super::Unit;
use super::forbidden::{DESCRIPTOR, EVALUATED, FORMAT, Forbidden, OPERAND, VARIABLE, WAIT};
use super::lexer::{Lexer, Result, refuse};
use super::word::{Place, Word, may_be_option};

/// Where in a command the reader is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum At {
    /// At its beginning, where reserved words are.
    #[default]
    Start,
    /// Behind an assignment, a redirection or a word such as `command`: its name is still to come.
    Begun,
    /// Behind its name.
    Words,
    /// Behind a compound command.
    Ended,
}

/// A command that is being read.
#[derive(Debug, Default)]
pub(super) struct Command {
    pub(super) at: At,
    /// Its name, when it is fixed.
    name: String,
    /// Words so far, from its name on.
    words: usize,
    /// The word before this one.
    previous: Word,
    /// What the next word is the target of, when it is one of a redirection.
    target: Option<Place>,
    /// `command`, `builtin` or `time` came before.
    prefixed: bool,
    /// printf's format has been read.
    format: bool,
    /// It is a `set` or `shift` that changes the positional parameters.
    moves: bool,
    /// Its number in the outline.
    pub(super) number: Option<usize>,
}

impl Command {
    /// The place behind a compound command.
    pub(super) fn ended() -> Self {
        Self { at: At::Ended, ..Self::default() }
    }

    /// Whether the next word may be a reserved one.
    pub(super) fn takes_reserved(&self) -> bool {
        matches!(self.at, At::Start | At::Ended) && self.target.is_none()
    }

    /// Whether one plain word has been read, which a `()` makes the name of a function.
    pub(super) fn may_be_function(&self) -> bool {
        self.at == At::Words && self.words == 1 && !self.prefixed && self.target.is_none()
    }

    /// Its name, when it is fixed.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn is_ended(&self) -> bool {
        self.at == At::Ended
    }

    /// Whether its name comes behind `command`, `builtin` or `time`.
    pub(super) fn is_prefixed(&self) -> bool {
        self.prefixed && self.at == At::Begun
    }

    pub(super) fn has_hole(&self) -> bool {
        self.previous.hole
    }

    /// Whether anything of it has been read.
    pub(super) fn has_begun(&self) -> bool {
        self.at != At::Start || self.target.is_some()
    }
}

impl Lexer<'_> {
    /// Ends a command.
    pub(super) fn finish(&mut self, command: &mut Command) -> Result<()> {
        let ended = std::mem::take(command);
        if ended.moves { self.move_parameters() } else { Ok(()) }
    }

    /// What may stand in the next word of `command`.
    pub(super) fn place(&self, command: &Command) -> Place {
        if let Some(place) = command.target {
            return place;
        }
        if command.at != At::Words {
            return Place { assignable: true, ..Place::default() };
        }
        let whole = |forbidden| Place { whole: Some(forbidden), ..Place::default() };
        let previous = command.previous.fixed().unwrap_or_default();
        match command.name.as_str() {
            "eval" | "trap" => whole(EVALUATED),
            "wait" => whole(WAIT),
            "unset" => whole(VARIABLE),
            "export" | "readonly" | "local" => {
                Place { name: Some(VARIABLE), raw: Some(VARIABLE), ..Place::default() }
            }
            "read" if takes_option_value(previous) => {
                Place { raw: Some(VARIABLE), ..Place::default() }
            }
            "read" => whole(VARIABLE),
            "getopts" if command.words == 2 => whole(VARIABLE),
            "getopts" if command.words == 1 => Place { raw: Some(VARIABLE), ..Place::default() },
            "printf" if command.format => Place::default(),
            "printf" if previous == "-v" => whole(VARIABLE),
            "printf" => Place { start: Some(FORMAT), raw: Some(FORMAT), ..Place::default() },
            "test" | "[" if matches!(previous, "-v" | "-R") => whole(VARIABLE),
            "test" | "[" => Place { raw: Some(OPERAND), ..Place::default() },
            _ => Place::default(),
        }
    }

    /// Takes a word that is not reserved into `command`.
    pub(super) fn take_word(&mut self, command: &mut Command, word: Word) -> Result<()> {
        if let Some(place) = command.target.take() {
            if let Some(descriptor) = place.whole.filter(|_| word.dynamic) {
                return Err(descriptor.refuse("&", "a variable"));
            }
            command.at = command.at.max_begun();
            return Ok(());
        }
        if self.is_descriptor(&word) {
            command.at = command.at.max_begun();
            return Ok(());
        }
        if matches!(self.peek(0), Some('<' | '>')) && word.text.starts_with('{') {
            let message =
                "`{name}` before a redirection is a variable to bash and a word to other shells";
            return Err(refuse(&word.text, message, "use a number, such as `3>file`"));
        }
        match command.at {
            At::Words => {
                self.state.saw_word(&mut command.number, &word);
                self.argument(command, &word)?;
            }
            _ if word.assigns
                || command.prefixed && (word.text.starts_with('-') || word.text.contains('=')) =>
            {
                command.at = At::Begun;
                if self.peek(0) == Some('(') {
                    return Err(refuse(
                        "(",
                        "an array stands here, and `sh` has none",
                        "use `set -- ...` and then \"$@\"",
                    ));
                }
            }
            _ => self.command_name(command, &word)?,
        }
        command.previous = word;
        Ok(())
    }

    fn command_name(&mut self, command: &mut Command, word: &Word) -> Result<()> {
        let name = word.fixed().unwrap_or(&word.remainder);
        // A variable that is empty vanishes, and the next word is the name.
        let may_vanish = word.dynamic && !word.quoted && name.is_empty();
        if matches!(name, "command" | "builtin" | "time") || may_vanish && !self.is_whole(word) {
            command.at = At::Begun;
            command.prefixed = true;
            return Ok(());
        }
        if let Some(help) = not_sh(name) {
            let message = format!(
                "`{name}` is not sh, and what it does with a value differs from shell to shell"
            );
            return Err(refuse(name, message, help));
        }
        self.state.saw_word(&mut command.number, word);
        command.name = name.to_owned();
        command.at = At::Words;
        command.words = 1;
        command.moves = name == "shift";
        Ok(())
    }

    /// Whether the word begins with a placeholder in the quotes that the engine gives it.
    fn is_whole(&self, word: &Word) -> bool {
        word.hole && !word.raw
    }

    /// Looks at an argument with the eyes of the builtins that are particular about theirs.
    fn argument(&mut self, command: &mut Command, word: &Word) -> Result<()> {
        command.words += 1;
        let fixed = word.fixed();
        match command.name.as_str() {
            "set" => {
                let previous = command.previous.fixed().unwrap_or_default();
                let names_option = previous.starts_with(['-', '+'])
                    && previous.ends_with('o')
                    && command.words > 2;
                let option = fixed.is_some_and(|text| {
                    text.len() > 1 && text != "--" && text.starts_with(['-', '+'])
                });
                command.moves |= !option && !names_option;
            }
            "printf" => {
                let option = fixed == Some("-v") || command.previous.fixed() == Some("-v");
                // A word that may vanish, or be an option, is not the format for sure.
                let sure = !may_be_option(&word.lead) || word.lead.is_empty() && word.quoted;
                command.format |= !option && (sure || fixed == Some("--"));
            }
            "read" => self.state.assigned.extend(fixed.map(str::to_owned)),
            "getopts" => self.state.assigned.push("OPTARG".to_owned()),
            "test" | "[" => {
                let beside = command.words > 2 && command.previous.dynamic && word.dynamic;
                if beside && (word.hole || command.previous.hole) {
                    return Err(OPERAND.refuse("", "a placeholder"));
                }
            }
            "export" | "readonly" | "local" => {
                let option =
                    fixed.filter(|text| text.starts_with('-') && text.contains(['a', 'A', 'i']));
                if let Some(option) = option {
                    let message =
                        format!("`{option}` makes bash evaluate what the variable is set to");
                    return Err(refuse(
                        option,
                        message,
                        "leave the option away; `sh` has texts only",
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether the word is the number before a redirection, as in `2>file`.
    pub(super) fn is_descriptor(&self, word: &Word) -> bool {
        let number = word.is(&word.text) && word.text.bytes().all(|b| b.is_ascii_digit());
        number && !word.text.is_empty() && matches!(self.peek(0), Some('<' | '>'))
    }

    /// Reads a redirection up to its target, which is the next word.
    pub(super) fn redirection(&mut self, command: &mut Command) -> Result<()> {
        if command.target.is_some() {
            return Err(refuse(
                "",
                "a redirection has no target",
                "write the file behind the `<` or `>`",
            ));
        }
        if self.next_is("<<") && !self.next_is("<<<") {
            self.at += 2;
            let strip = self.skip_if("-");
            command.at = command.at.max_begun();
            self.state.draft(&mut command.number);
            return self.heredoc(strip, command.number);
        }
        if self.next_is("<<<") {
            self.state.saw_odd("<<<");
        }
        let errors = self.at > 0 && matches!(self.units[self.at - 1], Unit::Char('2' | '&'));
        self.state.draft(&mut command.number).quiet |= errors && self.peek(0) == Some('>');
        let start = self.at;
        while matches!(self.peek(0), Some('<' | '>')) {
            self.at += 1;
        }
        let plain = self.at - start == 1;
        if plain && self.skip_if("(") {
            // Process substitution: its commands are a list like any other.
            self.state.saw_odd(if self.units[start] == Unit::Char('<') { "<(" } else { ">(" });
            command.at = At::Words;
            command.words += 1;
            return self.substitution();
        }
        let whole: Option<Forbidden> = (plain && self.peek(0) == Some('&')).then_some(DESCRIPTOR);
        if matches!(self.peek(0), Some('&' | '|')) {
            self.at += 1;
        }
        command.target = Some(Place { whole, ..Place::default() });
        Ok(())
    }
}

impl At {
    /// Where a redirection leaves the reader.
    fn max_begun(self) -> Self {
        if self == Self::Start { Self::Begun } else { self }
    }
}

/// Whether the option `text` of `read` takes the next word as its value.
fn takes_option_value(text: &str) -> bool {
    let Some(letters) = text.strip_prefix('-') else { return false };
    let flags = letters.trim_start_matches(['r', 's', 'e']);
    matches!(flags, "p" | "t" | "n" | "N" | "d" | "u" | "i")
}

/// What to write instead of a builtin or reserved word that only some shells have and that takes values for more than
/// values.
fn not_sh(name: &str) -> Option<&'static str> {
    Some(match name {
        "alias" => "an alias changes how the text behind it is read; use a function",
        "let" => "write `name=$((...))`; a value cannot stand in it",
        "declare" | "typeset" => "write `name=value`",
        "[[" => "use `[ ... ]`, with `=` for texts and `-eq` for numbers",
        "select" => "use `for`",
        "function" => "write `name() { ...; }`",
        "coproc" | "mapfile" | "readarray" | "compgen" | "complete" => {
            "run `bash -c` with the value as an argument"
        }
        _ => return None,
    })
}
