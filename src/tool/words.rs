//! `exec:` templates cut into words, as POSIX does it with quotes and backslashes, and nothing more.
//!
//! Whatever only a shell could do is refused, with what to write instead; nothing is dropped silently.

use super::placeholder::{self, Hole, Part};
use super::quoting::Refusal;

/// One word of a command line: texts and placeholders side by side.
pub type Parts = Vec<Part>;

/// Cuts an `exec:` template into words.
pub fn split(template: &str) -> Result<Vec<Parts>, Refusal> {
    let mut splitter = Splitter { rest: template, words: Vec::new(), word: None };
    splitter.run()?;
    match splitter.words.first() {
        None => Err(Refusal::new(
            template,
            "the command of exec: is empty",
            "write the program and its arguments",
        )),
        Some(program) => {
            match program.iter().find(|part| matches!(part, Part::Hole(Hole::Parameter { .. }))) {
                Some(Part::Hole(hole)) => Err(Refusal::new(
                    &hole.source(),
                    format!(
                        "the program may not come from a parameter, and {} stands in the first word",
                        hole.source()
                    ),
                    "name the program; which one runs is the author's choice, not the LLM's",
                )),
                _ => Ok(splitter.words),
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Quote {
    None,
    Single,
    Double,
}

struct Splitter<'a> {
    rest: &'a str,
    words: Vec<Parts>,
    /// The word in the making; present as soon as a character, quote or placeholder belongs to it.
    word: Option<Parts>,
}

impl Splitter<'_> {
    fn run(&mut self) -> Result<(), Refusal> {
        while let Some(c) = self.rest.chars().next() {
            match c {
                ' ' | '\t' => {
                    self.skip(1);
                    self.words.extend(self.word.take());
                }
                '\'' => self.single()?,
                '"' => self.double()?,
                '\\' => self.backslash()?,
                '$' => self.dollar(Quote::None)?,
                '\n' | '\r' => return Err(metacharacter(self.rest, "newline")),
                '|' | '>' | '<' | '&' | ';' | '`' => {
                    return Err(metacharacter(self.rest, &format!("'{c}'")));
                }
                c => self.take(c),
            }
        }
        self.words.extend(self.word.take());
        Ok(())
    }

    fn single(&mut self) -> Result<(), Refusal> {
        let opened = self.rest;
        self.skip(1);
        self.word.get_or_insert_default();
        loop {
            match self.rest.chars().next() {
                None => return Err(unclosed(opened)),
                Some('\'') => {
                    self.skip(1);
                    return Ok(());
                }
                Some('$') if self.rest.starts_with("${") => self.dollar(Quote::Single)?,
                Some(c) => self.take(c),
            }
        }
    }

    fn double(&mut self) -> Result<(), Refusal> {
        let opened = self.rest;
        self.skip(1);
        self.word.get_or_insert_default();
        loop {
            let mut ahead = self.rest.chars();
            match ahead.next() {
                None => return Err(unclosed(opened)),
                Some('"') => {
                    self.skip(1);
                    return Ok(());
                }
                Some('$') => self.dollar(Quote::Double)?,
                Some('`') => return Err(metacharacter(self.rest, "'`'")),
                Some('\\') => {
                    self.skip(1);
                    match ahead.next() {
                        Some('\n') => self.skip(1),
                        Some(c @ ('$' | '`' | '"' | '\\')) => self.take(c),
                        _ => self.push('\\'),
                    }
                }
                Some(c) => self.take(c),
            }
        }
    }

    fn backslash(&mut self) -> Result<(), Refusal> {
        let opened = self.rest;
        self.skip(1);
        match self.rest.chars().next() {
            None => Err(Refusal::new(
                opened,
                "a backslash at the end escapes nothing",
                "write `\\\\` for a backslash",
            )),
            Some('\n') => {
                self.skip(1);
                Ok(())
            }
            Some(c) => {
                self.take(c);
                Ok(())
            }
        }
    }

    fn dollar(&mut self, quote: Quote) -> Result<(), Refusal> {
        if let Some((hole, length)) = placeholder::read(self.rest) {
            if hole.is_raw() {
                return Err(Refusal::new(
                    &hole.source(),
                    ":raw modifier is only allowed in shell: mode",
                    "use shell: for it, or drop `:raw`",
                ));
            }
            self.skip(length);
            self.word.get_or_insert_default().push(Part::Hole(hole));
            return Ok(());
        }
        if self.rest.starts_with("$(") {
            return Err(metacharacter(self.rest, "'$('"));
        }
        let form = expansion(self.rest);
        let help = match (quote, form.strip_prefix("${")) {
            (_, Some(name)) if name.contains('-') && !name.contains(':') => {
                "a parameter's name has letters, digits and `_` only".to_owned()
            }
            (Quote::Single, _) => {
                format!("no shell expands it in exec:; for the text itself write \"\\{form}\"")
            }
            _ => format!(
                "no shell expands it in exec:; use shell: for that, or write `\\{form}` for the text itself"
            ),
        };
        Err(Refusal::new(&form, format!("`{form}` is not a placeholder"), help))
    }

    /// Takes the next character, which is `c`, into the word.
    fn take(&mut self, c: char) {
        self.skip(c.len_utf8());
        self.push(c);
    }

    fn push(&mut self, c: char) {
        let word = self.word.get_or_insert_default();
        match word.last_mut() {
            Some(Part::Text(text)) => text.push(c),
            _ => word.push(Part::Text(c.to_string())),
        }
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = &self.rest[bytes..];
    }
}

/// The `$` form with which `text` begins, for a message.
fn expansion(text: &str) -> String {
    let end = match text[1..].chars().next() {
        Some('{') => text.find('}').map_or(text.len(), |close| close + 1),
        Some(c) if c.is_ascii_alphabetic() || c == '_' => text[1..]
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .map_or(text.len(), |end| end + 1),
        Some(c) if !c.is_whitespace() && !matches!(c, '"' | '\'') => 1 + c.len_utf8(),
        _ => 1,
    };
    text[..end].to_owned()
}

fn metacharacter(rest: &str, shown: &str) -> Refusal {
    let help = match shown {
        "'|'" => "Use shell: mode or remove pipe.",
        "newline" => "Use shell: mode for several commands, or write the command on one line.",
        "'`'" | "'$('" => {
            "Use shell: mode for command substitution, or single quotes for the text itself."
        }
        _ => "Use shell: mode, or quote it if it is plain text.",
    };
    let length = if shown == "'$('" { 2 } else { 1 };
    Refusal::new(
        &rest[..length],
        format!("Shell metacharacter {shown} not allowed in exec: mode. {help}"),
        help,
    )
}

fn unclosed(opened: &str) -> Refusal {
    Refusal::new(
        opened,
        format!("the quote {} is not closed", &opened[..1]),
        "close it, or write `\\` before it",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(template: &str) -> String {
        match split(template) {
            Err(refusal) => format!("refused: {}", refusal.message),
            Ok(words) => {
                let word = |word: Parts| {
                    let part = |part: &Part| match part {
                        Part::Text(text) => text.clone(),
                        Part::Hole(hole) => format!("<{}>", hole.source()),
                    };
                    format!("[{}]", word.iter().map(part).collect::<String>())
                };
                words.into_iter().map(word).collect()
            }
        }
    }

    #[test]
    fn c_2_5_words_are_posix_words() {
        let check =
            |template: &str, expected: &str| assert_eq!(shown(template), expected, "{template}");
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
    fn c_2_5_what_only_a_shell_could_do_is_refused() {
        let check = |template: &str, part: &str| {
            let found = shown(template);
            assert!(found.starts_with("refused: ") && found.contains(part), "{template}: {found}");
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
