//! Lists of commands and compound commands.

use super::forbidden_place::{
    CASE_EXPANSION, COMMENT, FUNCTION_BODY, FUNCTION_NAME, VARIABLE_NAME,
};
use super::shell_parser::{ListEnd, ParseResult, ShellParser, unclosed_error};
use super::shell_word::{ShellWord, WordRules};
use super::simple_command::CommandState;
use super::{QuotingContext, TemplateError, TemplateUnit};

/// The reserved words that end a compound command or a part of one.
const CLOSING_WORDS: [&str; 8] = ["then", "else", "elif", "fi", "do", "done", "esac", "}"];
/// The reserved words that begin a compound command.
const OPENING_WORDS: [&str; 6] = ["if", "while", "until", "for", "case", "{"];

const CASE_SYNTAX: &str = "write `case WORD in PATTERN) ...;; esac`";
const FOR_SYNTAX: &str = "write `for name in WORDS; do ...; done`";

impl ShellParser<'_> {
    /// Reads a list of commands with its end. Returns the text of the end; it is empty at the end of the units.
    pub(super) fn read_list(&mut self, end: ListEnd) -> ParseResult<&'static str> {
        let mut command = CommandState::default();
        loop {
            self.skip_blanks()?;
            match self.units.get(self.position) {
                None => {
                    self.finish_command(&mut command)?;
                    return self.finish_input(end);
                }
                Some(TemplateUnit::Char('\n')) => {
                    self.position += 1;
                    self.finish_command(&mut command)?;
                    self.read_heredoc_bodies()?;
                }
                Some(TemplateUnit::Char('#')) => self.skip_comment()?,
                Some(TemplateUnit::Char(')')) => {
                    self.finish_command(&mut command)?;
                    return self.read_closing_parenthesis(end);
                }
                Some(TemplateUnit::Char(';'))
                    if end == ListEnd::CaseItem && matches!(self.peek(1), Some(';' | '&')) =>
                {
                    self.position += 2;
                    self.skip_if("&");
                    self.finish_command(&mut command)?;
                    return Ok(";;");
                }
                Some(TemplateUnit::Char('&')) if self.next_is("&>") => {
                    self.position += 1;
                    self.state.add_bash_construct("&>");
                    self.read_redirection(&mut command)?;
                }
                Some(TemplateUnit::Char(operator @ (';' | '&' | '|'))) => {
                    self.record_pipe(*operator, &mut command);
                    self.position += 1;
                    self.finish_command(&mut command)?;
                }
                Some(TemplateUnit::Char('<' | '>')) => self.read_redirection(&mut command)?,
                Some(TemplateUnit::Char('(')) => self.read_parenthesis(&mut command)?,
                Some(_) => {
                    if let Some(closing) = self.read_command_word(&mut command, end)? {
                        return Ok(closing);
                    }
                }
            }
        }
    }

    /// Records in the outline that the output of `command` is piped, if `operator` is a pipe.
    fn record_pipe(&mut self, operator: char, command: &mut CommandState) {
        let is_or_operator = self.next_is("||")
            || self.position > 0 && self.units[self.position - 1] == TemplateUnit::Char('|');
        if operator != '|' || is_or_operator {
            return;
        }
        if self.next_is("|&") {
            self.state.add_bash_construct("|&");
        }
        if command.is_started() {
            self.state.command_draft(&mut command.outline_index).piped = true;
        }
    }

    fn finish_input(&self, end: ListEnd) -> ParseResult<&'static str> {
        match end {
            ListEnd::Input => self.check_no_pending_heredoc("the template").map(|()| ""),
            ListEnd::Paren => Err(unclosed_error("`(`")),
            ListEnd::CaseItem => Err(unclosed_error("`case`")),
            ListEnd::Keywords(keywords) => {
                let last = keywords.last().copied().unwrap_or_default();
                Err(TemplateError::new(
                    last,
                    format!("a `{last}` is missing"),
                    "close each `if`, `while`, `for` and `{`",
                ))
            }
        }
    }

    fn read_closing_parenthesis(&mut self, end: ListEnd) -> ParseResult<&'static str> {
        if end != ListEnd::Paren {
            return Err(TemplateError::new(")", "a `)` without its `(`", "quote it if it is text"));
        }
        self.position += 1;
        self.check_no_pending_heredoc("the parentheses").map(|()| ")")
    }

    pub(super) fn skip_comment(&mut self) -> ParseResult<()> {
        let start = self.position;
        while let Some(unit) = self.units.get(self.position) {
            match unit {
                TemplateUnit::Char('\n') => break,
                TemplateUnit::Char(_) => self.position += 1,
                TemplateUnit::Placeholder(_) => {
                    self.take_placeholder(QuotingContext::Unquoted, Some(COMMENT))?
                }
            }
        }
        self.check_literal_text(start, self.position)
    }

    /// Reads a word of a command. Returns the word if it is reserved and ends the list.
    fn read_command_word(
        &mut self,
        command: &mut CommandState,
        end: ListEnd,
    ) -> ParseResult<Option<&'static str>> {
        let rules = self.word_rules(command);
        let word = self.read_word(rules)?;
        if command.accepts_reserved_word() {
            if let Some(closing) = CLOSING_WORDS.into_iter().find(|text| word.is_unquoted(text)) {
                check_closing_word(closing, end)?;
                self.finish_command(command)?;
                return Ok(Some(closing));
            }
            if command.is_after_compound() && !self.is_descriptor(&word) {
                let message = "a word follows directly after a compound command";
                let help = "write `;` or a line break between them";
                return Err(TemplateError::new(&word.text, message, help));
            }
            if word.is_unquoted("!") {
                return Ok(None);
            }
            if let Some(opening) = OPENING_WORDS.into_iter().find(|text| word.is_unquoted(text)) {
                self.with_nesting(|parser| parser.read_compound_command(opening))?;
                *command = CommandState::after_compound();
                return Ok(None);
            }
        }
        if word.has_placeholder && self.peek(0) == Some('(') {
            return Err(FUNCTION_NAME.to_error("(", "a placeholder"));
        }
        check_word_after_prefix(command, &word)?;
        self.add_word(command, word).map(|()| None)
    }

    /// Reads a compound command after its first word, which is `opening`.
    fn read_compound_command(&mut self, opening: &str) -> ParseResult<()> {
        match opening {
            "if" => self.read_if(),
            "while" | "until" => self.read_loop(|parser| {
                parser.read_list(ListEnd::Keywords(&["do"]))?;
                parser.read_list(ListEnd::Keywords(&["done"])).map(|_| ())
            }),
            "for" => self.read_for(),
            "case" => self.read_case(),
            _ => self.read_list(ListEnd::Keywords(&["}"])).map(|_| ()),
        }
    }

    fn read_if(&mut self) -> ParseResult<()> {
        loop {
            self.read_list(ListEnd::Keywords(&["then"]))?;
            match self.read_list(ListEnd::Keywords(&["elif", "else", "fi"]))? {
                "elif" => {}
                "else" => return self.read_list(ListEnd::Keywords(&["fi"])).map(|_| ()),
                _ => return Ok(()),
            }
        }
    }

    fn read_for(&mut self) -> ParseResult<()> {
        self.skip_blanks()?;
        let variable =
            self.read_word(WordRules { any: Some(VARIABLE_NAME), ..WordRules::default() })?;
        if variable.is_empty() || variable.is_dynamic {
            let message = "`for` without the name of a variable";
            return Err(TemplateError::new("for", message, FOR_SYNTAX));
        }
        let mut word = self.read_word_after_separator()?;
        if word.is_unquoted("in") {
            if self.read_for_items(&variable.text)? {
                self.record_assignment(&variable.text)?;
            }
            word = self.read_word_after_separator()?;
        } else {
            // Without `in`, the loop is over `"$@"`: the values of the call.
            self.record_assignment(&variable.text)?;
        }
        if !word.is_unquoted("do") {
            return Err(TemplateError::new("for", "`for` without its `do`", FOR_SYNTAX));
        }
        self.read_loop(|parser| parser.read_list(ListEnd::Keywords(&["done"]))).map(|_| ())
    }

    /// Reads the words of a `for` over `variable` after its `in`. Returns whether one of them contains a placeholder.
    fn read_for_items(&mut self, variable: &str) -> ParseResult<bool> {
        let mut has_placeholder = false;
        loop {
            self.skip_blanks()?;
            if self.peek(0) == Some('#') {
                return Ok(has_placeholder);
            }
            let item = self.read_word(WordRules::default())?;
            if item.is_empty() {
                return Ok(has_placeholder);
            }
            has_placeholder |= item.has_placeholder;
            self.state.add_outline_value(variable, &item);
        }
    }

    /// Reads the next word of a `for`, after an optional `;` and line breaks.
    fn read_word_after_separator(&mut self) -> ParseResult<ShellWord> {
        self.skip_blanks()?;
        self.skip_if(";");
        self.skip_blank_lines()?;
        self.read_word(WordRules::default())
    }

    /// Reads `WORD in PATTERN) commands ;; ... esac`, which follows `case`.
    fn read_case(&mut self) -> ParseResult<()> {
        self.read_case_word()?;
        self.skip_blank_lines()?;
        if !self.read_word(WordRules::default())?.is_unquoted("in") {
            return Err(TemplateError::new("case", "`case` without its `in`", CASE_SYNTAX));
        }
        loop {
            self.skip_blank_lines()?;
            let has_parenthesis = self.skip_if("(");
            if self.read_case_word()?.is_unquoted("esac") && !has_parenthesis {
                return Ok(());
            }
            self.read_case_patterns()?;
            if self.with_nesting(|parser| parser.read_list(ListEnd::CaseItem))? == "esac" {
                return Ok(());
            }
        }
    }

    /// Reads the word that `case` compares, or a pattern. It must not be missing.
    fn read_case_word(&mut self) -> ParseResult<ShellWord> {
        self.skip_blanks()?;
        let is_comment = self.peek(0) == Some('#');
        let rules = WordRules { expansion: Some(CASE_EXPANSION), ..WordRules::default() };
        let word = self.read_word(rules)?;
        if is_comment || word.is_empty() {
            let message = "a word is missing in this `case`";
            return Err(TemplateError::new("case", message, CASE_SYNTAX));
        }
        Ok(word)
    }

    /// Reads the patterns of a case item after the first one, and the `)`.
    fn read_case_patterns(&mut self) -> ParseResult<()> {
        loop {
            self.skip_blanks()?;
            if self.skip_if(")") {
                return Ok(());
            }
            if !self.skip_if("|") {
                return Err(unclosed_error("`case`"));
            }
            self.read_case_word()?;
        }
    }

    /// Reads a subshell, or a function from its `()` on.
    fn read_parenthesis(&mut self, command: &mut CommandState) -> ParseResult<()> {
        if !command.is_started() && self.next_is("((") {
            return Err(double_parenthesis_error(
                "use `$((...))` for its value, `[ ... ]` for a condition, or a blank between nested `( (`",
            ));
        }
        self.position += 1;
        if !command.is_started() {
            self.read_subshell()?;
            *command = CommandState::after_compound();
            return Ok(());
        }
        self.skip_blanks()?;
        let may_define_function =
            command.may_define_function() && !command.last_word_has_placeholder();
        if may_define_function && self.skip_if(")") {
            if let Some(index) = command.outline_index.take() {
                self.state.outline.commands[index].words.clear();
            }
            self.state.outline.functions.push(command.name().to_owned());
            self.read_function_body()?;
            *command = CommandState::after_compound();
            return Ok(());
        }
        Err(TemplateError::new("(", "a `(` in the middle of a command", "quote it if it is text"))
    }

    fn read_function_body(&mut self) -> ParseResult<()> {
        self.skip_blank_lines()?;
        if self.next_is("((") {
            return Err(double_parenthesis_error("use `{ ...; }`"));
        }
        let is_subshell = self.skip_if("(");
        if !is_subshell && !self.read_word(WordRules::default())?.is_unquoted("{") {
            let message = "the body of a function has no braces";
            return Err(TemplateError::new("()", message, "write `name() { ...; }`"));
        }
        let end = if is_subshell { ListEnd::Paren } else { ListEnd::Keywords(&["}"]) };
        self.with_own_parameters(|parser| {
            parser.state.positional_change = Some(FUNCTION_BODY);
            parser.with_nesting(|parser| parser.read_list(end).map(|_| ()))
        })
    }

    /// Reads the commands of a `(...)` or `$(...)` after the opening parenthesis.
    pub(super) fn read_subshell(&mut self) -> ParseResult<()> {
        let outer_heredocs = std::mem::take(&mut self.pending_heredocs);
        let outer_expansion_depth = std::mem::take(&mut self.expansion_depth);
        let outer_in_heredoc = std::mem::take(&mut self.in_heredoc);
        let start = self.position;
        self.with_own_parameters(|parser| {
            parser.with_nesting(|parser| parser.read_list(ListEnd::Paren))
        })?;
        self.pending_heredocs = outer_heredocs;
        self.expansion_depth = outer_expansion_depth;
        self.in_heredoc = outer_in_heredoc;
        self.check_same_line(start)
    }
}

/// Rejects the reserved word `closing` in a list that it does not end.
fn check_closing_word(closing: &'static str, end: ListEnd) -> ParseResult<()> {
    let ends_list = match end {
        ListEnd::Keywords(keywords) => keywords.contains(&closing),
        ListEnd::CaseItem => closing == "esac",
        ListEnd::Input | ListEnd::Paren => false,
    };
    if ends_list {
        return Ok(());
    }
    let message = format!("a `{closing}` without the beginning of its compound command");
    Err(TemplateError::new(closing, message, "quote it if it is text"))
}

/// Rejects a reserved word after `time`, which is a reserved word in bash and a command in other shells. Those read the
/// reserved word as an argument.
fn check_word_after_prefix(command: &CommandState, word: &ShellWord) -> ParseResult<()> {
    let mut reserved_words = OPENING_WORDS.iter().chain(&CLOSING_WORDS).chain(&["!"]);
    if !command.awaits_name_after_prefix() || !reserved_words.any(|text| word.is_unquoted(text)) {
        return Ok(());
    }
    let message = "shells read a reserved word after `time` differently";
    Err(TemplateError::new(&word.text, message, "use `sh -c`"))
}

fn double_parenthesis_error(help: &str) -> TemplateError {
    let message = "`((` is arithmetic in bash and two subshells in other shells";
    TemplateError::new("((", message, help)
}
