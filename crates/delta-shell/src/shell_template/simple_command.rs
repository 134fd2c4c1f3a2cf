//! Simple commands: assignments, words and redirections, and the builtins that interpret their arguments.

use super::forbidden_place::{
    DESCRIPTOR_TARGET, PRINTF_FORMAT, SCRIPT_ARGUMENT, TEST_OPERAND, VARIABLE_NAME, WAIT_ARGUMENT,
};
use super::outline::POSITIONAL_PARAMETERS;
use super::shell_parser::{ParseResult, ShellParser};
use super::shell_word::{ShellWord, WordRules, may_be_option};
use super::{TemplateError, TemplateUnit};

/// How far a command has been read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum CommandPhase {
    /// At the beginning, where a reserved word is possible.
    #[default]
    Start,
    /// After an assignment, a redirection or a word such as `command`; the name follows.
    BeforeName,
    AfterName,
    AfterCompound,
}

impl CommandPhase {
    /// The phase after a redirection.
    fn after_redirection(self) -> Self {
        if self == Self::Start { Self::BeforeName } else { self }
    }
}

/// The part of a command that has been read.
#[derive(Debug, Default)]
pub(super) struct CommandState {
    phase: CommandPhase,
    /// The name; without the parts of it that are known only at run time.
    name: String,
    /// The number of words from the name on.
    word_count: usize,
    previous_word: ShellWord,
    /// After a redirection operator: the rules for its target.
    target_rules: Option<WordRules>,
    /// Whether `command`, `builtin` or `time` precedes, or a word that may be empty at run time.
    is_prefixed: bool,
    /// Whether the format of `printf` has been read.
    has_format: bool,
    /// Whether the command is a `set` or `shift` that changes the positional parameters.
    changes_positional: bool,
    /// The index of the command in the outline.
    pub(super) outline_index: Option<usize>,
}

impl CommandState {
    /// The state after a compound command, which only redirections may follow.
    pub(super) fn after_compound() -> Self {
        Self { phase: CommandPhase::AfterCompound, ..Self::default() }
    }

    pub(super) fn accepts_reserved_word(&self) -> bool {
        matches!(self.phase, CommandPhase::Start | CommandPhase::AfterCompound)
            && self.target_rules.is_none()
    }

    /// Whether the command is one word, so that `()` makes it the name of a function.
    pub(super) fn may_define_function(&self) -> bool {
        self.phase == CommandPhase::AfterName
            && self.word_count == 1
            && !self.is_prefixed
            && self.target_rules.is_none()
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn is_after_compound(&self) -> bool {
        self.phase == CommandPhase::AfterCompound
    }

    /// Whether the name follows after `command`, `builtin` or `time`.
    pub(super) fn awaits_name_after_prefix(&self) -> bool {
        self.is_prefixed && self.phase == CommandPhase::BeforeName
    }

    pub(super) fn last_word_has_placeholder(&self) -> bool {
        self.previous_word.has_placeholder
    }

    pub(super) fn is_started(&self) -> bool {
        self.phase != CommandPhase::Start || self.target_rules.is_some()
    }
}

impl ShellParser<'_> {
    /// Ends `command`, and makes it an empty one.
    pub(super) fn finish_command(&mut self, command: &mut CommandState) -> ParseResult<()> {
        let finished = std::mem::take(command);
        if finished.changes_positional {
            self.change_positional_parameters()?;
        }
        Ok(())
    }

    /// The rules for the next word of `command`.
    pub(super) fn word_rules(&self, command: &CommandState) -> WordRules {
        if let Some(rules) = command.target_rules {
            return rules;
        }
        if command.phase != CommandPhase::AfterName {
            return WordRules { may_assign: true, ..WordRules::default() };
        }
        let no_placeholder = |reason| WordRules { any: Some(reason), ..WordRules::default() };
        let no_raw = |reason| WordRules { raw: Some(reason), ..WordRules::default() };
        let previous = command.previous_word.as_fixed().unwrap_or_default();
        match command.name.as_str() {
            "eval" | "trap" => no_placeholder(SCRIPT_ARGUMENT),
            "wait" => no_placeholder(WAIT_ARGUMENT),
            "unset" => no_placeholder(VARIABLE_NAME),
            "export" | "readonly" | "local" => {
                WordRules { before_equals: Some(VARIABLE_NAME), ..no_raw(VARIABLE_NAME) }
            }
            "read" if read_option_takes_value(previous) => no_raw(VARIABLE_NAME),
            "read" => no_placeholder(VARIABLE_NAME),
            "getopts" if command.word_count == 2 => no_placeholder(VARIABLE_NAME),
            "getopts" if command.word_count == 1 => no_raw(VARIABLE_NAME),
            "printf" if command.has_format => WordRules::default(),
            "printf" if previous == "-v" => no_placeholder(VARIABLE_NAME),
            "printf" => WordRules { start: Some(PRINTF_FORMAT), ..no_raw(PRINTF_FORMAT) },
            "test" | "[" if matches!(previous, "-v" | "-R") => no_placeholder(VARIABLE_NAME),
            "test" | "[" => no_raw(TEST_OPERAND),
            _ => WordRules::default(),
        }
    }

    /// Adds a word that is not reserved to `command`.
    pub(super) fn add_word(
        &mut self,
        command: &mut CommandState,
        word: ShellWord,
    ) -> ParseResult<()> {
        if let Some(rules) = command.target_rules.take() {
            if let Some(descriptor) = rules.any.filter(|_| word.is_dynamic) {
                return Err(descriptor.to_error("&", "a variable"));
            }
            command.phase = command.phase.after_redirection();
            return Ok(());
        }
        if self.is_descriptor(&word) {
            command.phase = command.phase.after_redirection();
            return Ok(());
        }
        if matches!(self.peek(0), Some('<' | '>')) && word.text.starts_with('{') {
            let message =
                "`{name}` before a redirection is a variable in bash and a word in other shells";
            return Err(TemplateError::new(&word.text, message, "use a number, such as `3>file`"));
        }
        let is_prefix_argument =
            command.is_prefixed && (word.text.starts_with('-') || word.text.contains('='));
        if command.phase == CommandPhase::AfterName {
            self.state.add_outline_word(&mut command.outline_index, &word);
            self.check_argument(command, &word)?;
        } else if word.is_assignment || is_prefix_argument {
            command.phase = CommandPhase::BeforeName;
            if word.is_assignment {
                self.state.add_outline_assignment(&word);
            }
            if self.peek(0) == Some('(') {
                return Err(TemplateError::new(
                    "(",
                    "this is an array, and `sh` has none",
                    "use `set -- ...` and then \"$@\"",
                ));
            }
        } else {
            self.set_command_name(command, &word)?;
        }
        command.previous_word = word;
        Ok(())
    }

    /// Takes `word` as the name of `command`, or as a prefix of the name.
    fn set_command_name(
        &mut self,
        command: &mut CommandState,
        word: &ShellWord,
    ) -> ParseResult<()> {
        let name = word.as_fixed().unwrap_or(&word.fixed_text);
        // The shell removes an unquoted variable that is empty, and the next word is the name.
        let may_vanish = word.is_dynamic
            && !word.is_quoted
            && name.is_empty()
            && !word.has_only_plain_placeholders();
        if may_vanish {
            let draft = self.state.command_draft(&mut command.outline_index);
            draft.vanishing.push(word.parts.clone());
        }
        if matches!(name, "command" | "builtin" | "time") || may_vanish {
            command.phase = CommandPhase::BeforeName;
            command.is_prefixed = true;
            return Ok(());
        }
        if let Some(help) = sh_alternative(name) {
            let message = format!(
                "`{name}` is not sh, and its effect on a value differs from shell to shell"
            );
            return Err(TemplateError::new(name, message, help));
        }
        self.state.add_outline_word(&mut command.outline_index, word);
        command.name = name.to_owned();
        command.phase = CommandPhase::AfterName;
        command.word_count = 1;
        command.changes_positional = name == "shift";
        Ok(())
    }

    /// Checks an argument of a builtin that interprets its arguments, and records its effect.
    fn check_argument(&mut self, command: &mut CommandState, word: &ShellWord) -> ParseResult<()> {
        command.word_count += 1;
        let fixed = word.as_fixed();
        let previous = command.previous_word.as_fixed();
        match command.name.as_str() {
            "set" => {
                let is_option_name = command.word_count > 2
                    && previous
                        .is_some_and(|text| text.starts_with(['-', '+']) && text.ends_with('o'));
                let is_option = fixed.is_some_and(|text| {
                    text.len() > 1 && text != "--" && text.starts_with(['-', '+'])
                });
                command.changes_positional |= !is_option && !is_option_name;
                if fixed != Some("--") && !is_option && !is_option_name {
                    self.state.add_outline_value(POSITIONAL_PARAMETERS, word);
                }
            }
            "printf" => {
                let belongs_to_v = fixed == Some("-v") || previous == Some("-v");
                // A word that may be an option, or empty at run time, is perhaps not the format.
                let is_format = fixed == Some("--")
                    || !may_be_option(&word.fixed_prefix)
                    || word.fixed_prefix.is_empty() && word.is_quoted;
                command.has_format |= !belongs_to_v && is_format;
            }
            "read" => self.state.assigned_variables.extend(fixed.map(str::to_owned)),
            "getopts" => self.state.assigned_variables.push("OPTARG".to_owned()),
            "test" | "[" => {
                let follows_dynamic =
                    command.word_count > 2 && command.previous_word.is_dynamic && word.is_dynamic;
                if follows_dynamic
                    && (word.has_placeholder || command.previous_word.has_placeholder)
                {
                    return Err(TEST_OPERAND.to_error("", "a placeholder"));
                }
            }
            "export" | "readonly" | "local" => {
                self.state.add_outline_assignment(word);
                let attribute =
                    fixed.filter(|text| text.starts_with('-') && text.contains(['a', 'A', 'i']));
                if let Some(option) = attribute {
                    let message = format!("`{option}` makes bash evaluate the variable's value");
                    let help = "omit the option; in `sh`, all values are texts";
                    return Err(TemplateError::new(option, message, help));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether `word` is the number directly before a redirection, as in `2>file`.
    pub(super) fn is_descriptor(&self, word: &ShellWord) -> bool {
        let is_number = word.is_unquoted(&word.text)
            && !word.text.is_empty()
            && word.text.bytes().all(|b| b.is_ascii_digit());
        is_number && matches!(self.peek(0), Some('<' | '>'))
    }

    /// Reads a redirection operator. The next word is its target.
    pub(super) fn read_redirection(&mut self, command: &mut CommandState) -> ParseResult<()> {
        if command.target_rules.is_some() {
            return Err(TemplateError::new(
                "",
                "a redirection has no target",
                "write the file after the `<` or `>`",
            ));
        }
        if self.next_is("<<") && !self.next_is("<<<") {
            self.position += 2;
            let strip_tabs = self.skip_if("-");
            command.phase = command.phase.after_redirection();
            self.state.command_draft(&mut command.outline_index);
            return self.read_heredoc_delimiter(strip_tabs, command.outline_index);
        }
        if self.next_is("<<<") {
            self.state.add_bash_construct("<<<");
        }
        let follows_stderr = self.position > 0
            && matches!(self.units[self.position - 1], TemplateUnit::Char('2' | '&'));
        let is_output = self.peek(0) == Some('>');
        let draft = self.state.command_draft(&mut command.outline_index);
        draft.redirects_stderr |= follows_stderr && is_output;
        let start = self.position;
        while matches!(self.peek(0), Some('<' | '>')) {
            self.position += 1;
        }
        let is_single = self.position - start == 1;
        if is_single && self.skip_if("(") {
            // A process substitution contains a list of commands, as a subshell does.
            self.state.add_bash_construct(if is_output { ">(" } else { "<(" });
            command.phase = CommandPhase::AfterName;
            command.word_count += 1;
            return self.read_subshell();
        }
        let is_descriptor_target = is_single && self.peek(0) == Some('&');
        if matches!(self.peek(0), Some('&' | '|')) {
            self.position += 1;
        }
        let any = is_descriptor_target.then_some(DESCRIPTOR_TARGET);
        command.target_rules = Some(WordRules { any, ..WordRules::default() });
        Ok(())
    }
}

/// Whether the option `text` of `read` takes the next word as its value.
fn read_option_takes_value(text: &str) -> bool {
    let Some(letters) = text.strip_prefix('-') else { return false };
    let last = letters.trim_start_matches(['r', 's', 'e']);
    matches!(last, "p" | "t" | "n" | "N" | "d" | "u" | "i")
}

/// A hint what to write instead of `name`, if it is a builtin or a reserved word that only some shells have and that
/// evaluates its arguments.
fn sh_alternative(name: &str) -> Option<&'static str> {
    Some(match name {
        "alias" => "use a function; an alias changes how the following text is parsed",
        "let" => "write `name=$((...))`; no value is allowed in it",
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
