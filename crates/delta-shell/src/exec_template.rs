//! `exec:` templates, which are split into words by the rules of POSIX for quotes and backslashes.
//!
//! Syntax that only a shell could execute is rejected with a hint. No character is dropped silently.

use crate::placeholder::{Placeholder, TemplatePart, parse_placeholder};
use crate::shell_template::TemplateError;

/// A word of a command line. A word of two quotes without content has no parts.
pub type ExecWord = Vec<TemplatePart>;

/// Splits an `exec:` template into words: the program and its arguments. There is at least one word.
///
/// # Errors
/// The template is empty, contains syntax of a shell or the modifier `:raw`, or takes the program from a parameter.
pub fn split_exec_template(template: &str) -> Result<Vec<ExecWord>, TemplateError> {
    let mut splitter = ExecSplitter { rest: template, words: Vec::new(), word: None };
    splitter.split_words()?;
    let words = splitter.words;
    let Some(program) = words.first().filter(|program| !program.is_empty()) else {
        return Err(TemplateError::new(
            template,
            "the command of exec: is empty",
            "write the program and its arguments",
        ));
    };
    let parameter = program.iter().find_map(|part| match part {
        TemplatePart::Placeholder(placeholder) if placeholder.is_parameter() => Some(placeholder),
        _ => None,
    });
    if let Some(source) = parameter.map(Placeholder::to_source) {
        let message =
            format!("the program may not come from a parameter, and {source} is in the first word");
        let help = "name the program; which one runs is the author's choice, not the LLM's";
        return Err(TemplateError::new(&source, message, help));
    }
    Ok(words)
}

struct ExecSplitter<'a> {
    rest: &'a str,
    words: Vec<ExecWord>,
    /// The current word; `None` until a character, quote or placeholder begins it.
    word: Option<ExecWord>,
}

impl ExecSplitter<'_> {
    fn split_words(&mut self) -> Result<(), TemplateError> {
        while let Some(c) = self.rest.chars().next() {
            match c {
                ' ' | '\t' => {
                    self.skip_bytes(1);
                    self.words.extend(self.word.take());
                }
                '\'' | '"' => self.read_quotes(c)?,
                '\\' => self.read_backslash()?,
                '$' => self.read_dollar(false)?,
                '\n' | '\r' => return Err(metacharacter_error(self.rest, "newline")),
                '|' | '>' | '<' | '&' | ';' | '`' => {
                    return Err(metacharacter_error(self.rest, &format!("'{c}'")));
                }
                c => self.take_char(c),
            }
        }
        self.words.extend(self.word.take());
        Ok(())
    }

    fn read_quotes(&mut self, quote: char) -> Result<(), TemplateError> {
        let opening = self.rest;
        self.skip_bytes(1);
        self.word.get_or_insert_default();
        loop {
            match self.rest.chars().next() {
                None => return Err(unclosed_quote_error(opening)),
                Some(c) if c == quote => {
                    self.skip_bytes(1);
                    return Ok(());
                }
                Some('$') if quote == '"' => self.read_dollar(false)?,
                Some('$') if self.rest.starts_with("${") => self.read_dollar(true)?,
                Some('`') if quote == '"' => return Err(metacharacter_error(self.rest, "'`'")),
                Some('\\') if quote == '"' => {
                    self.skip_bytes(1);
                    match self.rest.chars().next() {
                        Some('\n') => self.skip_bytes(1),
                        Some(c @ ('$' | '`' | '"' | '\\')) => self.take_char(c),
                        _ => self.push_char('\\'),
                    }
                }
                Some(c) => self.take_char(c),
            }
        }
    }

    fn read_backslash(&mut self) -> Result<(), TemplateError> {
        let backslash = self.rest;
        self.skip_bytes(1);
        match self.rest.chars().next() {
            None => {
                return Err(TemplateError::new(
                    backslash,
                    "a backslash at the end escapes nothing",
                    "write `\\\\` for a backslash",
                ));
            }
            Some('\n') => self.skip_bytes(1),
            Some(c) => self.take_char(c),
        }
        Ok(())
    }

    /// Reads a placeholder. Any other text that begins with `$` is an error.
    fn read_dollar(&mut self, in_single_quotes: bool) -> Result<(), TemplateError> {
        let Some((placeholder, length)) = parse_placeholder(self.rest) else {
            return Err(dollar_syntax_error(self.rest, in_single_quotes));
        };
        if placeholder.is_raw() {
            return Err(TemplateError::new(
                &placeholder.to_source(),
                ":raw modifier is only allowed in shell: mode",
                "use shell: instead, or drop `:raw`",
            ));
        }
        self.skip_bytes(length);
        self.word.get_or_insert_default().push(TemplatePart::Placeholder(placeholder));
        Ok(())
    }

    /// Moves the next character, which is `c`, into the word.
    fn take_char(&mut self, c: char) {
        self.skip_bytes(c.len_utf8());
        self.push_char(c);
    }

    fn push_char(&mut self, c: char) {
        let word = self.word.get_or_insert_default();
        match word.last_mut() {
            Some(TemplatePart::Text(text)) => text.push(c),
            _ => word.push(TemplatePart::Text(c.to_string())),
        }
    }

    fn skip_bytes(&mut self, count: usize) {
        self.rest = &self.rest[count..];
    }
}

fn dollar_syntax_error(rest: &str, in_single_quotes: bool) -> TemplateError {
    if rest.starts_with("$(") {
        return metacharacter_error(rest, "'$('");
    }
    let syntax = dollar_syntax(rest);
    let help = match syntax.strip_prefix("${") {
        Some(name) if name.contains('-') && !name.contains(':') => {
            "write the parameter's name with letters, digits and `_` only".to_owned()
        }
        _ if in_single_quotes => {
            format!(
                "exec: starts no shell to expand it; for the literal text, write \"\\{syntax}\""
            )
        }
        _ => format!(
            "write `${{name}}` for a parameter, `\\{syntax}` for the literal text, or use shell: to expand it"
        ),
    };
    TemplateError::new(syntax, format!("`{syntax}` is not a placeholder"), help)
}

/// The expansion at the beginning of `text`, as a shell would read it approximately: only for messages.
fn dollar_syntax(text: &str) -> &str {
    let end = match text[1..].chars().next() {
        Some('{') => text.find('}').map_or(text.len(), |close| close + 1),
        Some(c) if c.is_ascii_alphabetic() || c == '_' => text[1..]
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .map_or(text.len(), |end| end + 1),
        Some(c) if !c.is_whitespace() && !matches!(c, '"' | '\'') => 1 + c.len_utf8(),
        _ => 1,
    };
    &text[..end]
}

/// An error about the metacharacter at the beginning of `rest`, which the message calls `name`.
fn metacharacter_error(rest: &str, name: &str) -> TemplateError {
    let mut message = format!("Shell metacharacter {name} not allowed in exec: mode.");
    let help = match name {
        "'|'" => {
            // The specification of tools has this sentence in the message.
            message.push_str(" Use shell: mode or remove pipe.");
            "write `shell:` in place of `exec:`, or quote the `|` if it is text"
        }
        "newline" => {
            "use `shell:` for several commands, or write the command on one line; `>-` in YAML joins lines"
        }
        "'`'" | "'$('" => "use `shell:` for command substitution, or single quotes if it is text",
        _ => "use `shell:`, or quote it if it is text",
    };
    let length = if name == "'$('" { 2 } else { 1 };
    TemplateError::new(&rest[..length], message, help)
}

/// An error about the quote at the beginning of `opening`.
fn unclosed_quote_error(opening: &str) -> TemplateError {
    let message = format!("the quote {} is not closed", &opening[..1]);
    TemplateError::new(opening, message, "close it, or write `\\` before it")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn describe_word(word: &ExecWord) -> String {
        let describe_part = |part: &TemplatePart| match part {
            TemplatePart::Text(text) => text.clone(),
            TemplatePart::Placeholder(placeholder) => format!("<{}>", placeholder.to_source()),
        };
        format!("[{}]", word.iter().map(describe_part).collect::<String>())
    }

    #[test]
    fn c_2_5_words_are_posix_words() {
        let check = |template: &str, expected: &str| {
            let words = split_exec_template(template).unwrap();
            let description: String = words.iter().map(describe_word).collect();
            assert_eq!(description, expected, "{template}");
        };
        check("ls -la ${dir}", "[ls][-la][<${dir}>]");
        check("grep 'a  b' \"c d\" e\\ f ${x}", "[grep][a  b][c d][e f][<${x}>]");
        check("p \"\" '' a\"\"b", "[p][][][ab]");
        check(
            "p --file=${path} \"${a}:${b}\" '${x}'",
            "[p][--file=<${path}>][<${a}>:<${b}>][<${x}>]",
        );
        check("p \"|<>&;\" '| `$(x) $1'", "[p][|<>&;][| `$(x) $1]");
        check("p \\${x} \"\\${x}\" \\$HOME \\| \"\\a\"", "[p][${x}][${x}][$HOME][|][\\a]");
        check("p a#b # * ~ (x)", "[p][a#b][#][*][~][(x)]");
        check("${AGENT_HOME}/run ${CWD}", "[<${AGENT_HOME}>/run][<${CWD}>]");
        check("  p\ta  ", "[p][a]");
        check("p a\\\nb", "[p][ab]");
    }

    #[test]
    fn c_2_5_syntax_of_a_shell_is_rejected() {
        let check = |template: &str, part: &str| {
            let message = split_exec_template(template).unwrap_err().message;
            assert!(message.contains(part), "{template}: {message}");
        };
        check("cat ${f} | wc", "Shell metacharacter '|' not allowed in exec: mode.");
        check("echo a > b", "Shell metacharacter '>' not allowed in exec: mode.");
        check("a && b", "'&'");
        check("a; b", "';'");
        check("a\nb", "newline");
        check("a `b`", "'`'");
        check("a \"`b`\"", "'`'");
        check("a $(b)", "'$('");
        check("a \"$(b)\"", "'$('");
        check("a ${x:raw}", ":raw modifier is only allowed in shell: mode");
        check("a '${x:raw}'", ":raw modifier is only allowed in shell: mode");
        check("ls $HOME", "`$HOME` is not a placeholder");
        check("ls \"$HOME\"", "`$HOME` is not a placeholder");
        check("ls ${x:-y}", "`${x:-y}` is not a placeholder");
        check("ls ${my-param}", "`${my-param}` is not a placeholder");
        check("ls '${my-param}'", "`${my-param}` is not a placeholder");
        check("ls $", "`$` is not a placeholder");
        check("a 'b", "the quote ' is not closed");
        check("a \"b", "the quote \" is not closed");
        check("a \\", "a backslash at the end");
        check("", "empty");
        check("  ", "empty");
        check("${x} a", "the program may not come from a parameter");
        check("a${x} a", "the program may not come from a parameter");
    }
}
