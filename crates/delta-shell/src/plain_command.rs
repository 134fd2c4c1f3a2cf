//! Command lines that are one command of plain words, and patterns for them.
//!
//! A reader of all of a shell's language would have to agree with each shell in all of it. This one takes so little that
//! they all agree: words of letters and a few other characters, quotes in which nothing is expanded, and blanks. Everything
//! else is refused, so what it takes starts one program with exactly these words (`tests/props` compares it with shells).

use delta_base::text::hidden_text::has_hidden_character;

/// Words that begin a compound command, or modify one, in sh or in bash.
const RESERVED_WORDS: [&str; 16] = [
    "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if",
    "select", "then", "time", "until", "while",
];

/// The words of a line that every shell takes for one command with these words and nothing else. `None` for any other line:
/// one with an operator, a redirection, an expansion, an assignment, a comment, a backslash, or a character that is hidden.
pub fn read_plain_command(line: &str) -> Option<Vec<String>> {
    let words = split_words(line, "").ok()?;
    let first = words.first()?;
    // Not `x=1`, which is an assignment, nor `%1`, which is a job. Quotes would make another word of a reserved one.
    let is_name = first.text.chars().all(|c| c.is_ascii_alphanumeric() || "_+./-".contains(c));
    let is_command = is_name && !first.is_quoted && !RESERVED_WORDS.contains(&first.text.as_str());
    is_command.then(|| words.into_iter().map(|word| word.text).collect())
}

#[derive(Debug, Default)]
struct PlainWord {
    text: String,
    is_quoted: bool,
}

/// Splits a line at its blanks; `more` are further characters that words may have outside of quotes. The error is the first
/// character that is more than text, or the quote that nothing closes.
fn split_words(line: &str, more: &str) -> Result<Vec<PlainWord>, char> {
    if has_hidden_character(line) {
        return Err(line.chars().find(|c| c.is_control() || !c.is_ascii()).unwrap_or_default());
    }
    let mut words = Vec::new();
    let mut current: Option<PlainWord> = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            ' ' => words.extend(current.take()),
            '\'' | '"' => {
                let word = current.get_or_insert_default();
                word.is_quoted = true;
                loop {
                    match chars.next().ok_or(c)? {
                        end if end == c => break,
                        text if is_literal_inside(c, text) => word.text.push(text),
                        other => return Err(other),
                    }
                }
            }
            c if is_plain_character(c) || more.contains(c) => {
                let word = current.get_or_insert_default();
                // Here it would be a home directory: bash expands it in what looks like an assignment, too.
                if c == '~' && word.text.chars().next_back().is_none_or(|last| ":=".contains(last))
                {
                    return Err(c);
                }
                word.text.push(c);
            }
            other => return Err(other),
        }
    }
    words.extend(current);
    Ok(words)
}

/// Whether no shell takes the character for more than text outside of quotes, but for a leading `~`.
fn is_plain_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_@:^~,%+=./-".contains(c)
}

/// Whether a character inside of quotes is itself.
fn is_literal_inside(quote: char, c: char) -> bool {
    !c.is_control() && (quote == '\'' || !"$`\\!".contains(c))
}

/// A pattern for command lines: words that are themselves, `*` for any word, `**` at the end for any number of words, and
/// options in brackets. See [`CommandPattern::matches`].
#[derive(Debug, Clone)]
pub struct CommandPattern {
    words: Vec<PatternWord>,
    /// The options that may be anywhere after the first `fixed_words` words.
    options: Vec<String>,
    fixed_words: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum PatternWord {
    Literal(String),
    AnyWord,
    AnyWords,
}

/// Why a text is not a [`CommandPattern`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandPatternError {
    /// It has no word, or its first one cannot be the name of a command.
    NoCommand,
    /// The character is more than text to a shell, so no plain command has it.
    NotPlain(char),
    /// Words follow `**`.
    WordsAfterAnyWords,
    /// The text in brackets is not an option.
    NotAnOption(String),
}

impl CommandPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    ///
    /// For a text that matches no plain command.
    pub fn parse(text: &str) -> Result<Self, CommandPatternError> {
        let words = split_words(text, "*#[]").map_err(CommandPatternError::NotPlain)?;
        let mut pattern = Self { words: Vec::new(), options: Vec::new(), fixed_words: 0 };
        for word in words {
            let is_special = !word.is_quoted && word.text.contains(['*', '#', '[', ']']);
            let bracketed = word.text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
            match (word.text.as_str(), bracketed) {
                (_, Some(option)) if is_special => {
                    let plain = option.strip_suffix('#').unwrap_or(option);
                    if !plain.starts_with('-') || plain.contains(['*', '#', '[', ']']) {
                        return Err(CommandPatternError::NotAnOption(option.to_owned()));
                    }
                    pattern.options.push(option.to_owned());
                    continue;
                }
                _ if pattern.words.last() == Some(&PatternWord::AnyWords) => {
                    return Err(CommandPatternError::WordsAfterAnyWords);
                }
                ("*", _) if is_special => pattern.words.push(PatternWord::AnyWord),
                ("**", _) if is_special => pattern.words.push(PatternWord::AnyWords),
                (text, _) if is_special => {
                    let special = text.chars().find(|c| "*#[]".contains(*c));
                    return Err(CommandPatternError::NotPlain(special.unwrap_or_default()));
                }
                _ if pattern.words.is_empty() && read_plain_command(&word.text).is_none() => {
                    return Err(CommandPatternError::NoCommand);
                }
                _ => pattern.words.push(PatternWord::Literal(word.text)),
            }
            if pattern.options.is_empty() {
                pattern.fixed_words = pattern.words.len();
            }
        }
        if pattern.fixed_words == 0 {
            return Err(CommandPatternError::NoCommand);
        }
        Ok(pattern)
    }

    /// The name of the command; `None` if any is.
    pub fn program(&self) -> Option<&str> {
        match self.words.first()? {
            PatternWord::Literal(name) => Some(name),
            PatternWord::AnyWord | PatternWord::AnyWords => None,
        }
    }

    /// Whether the word after the name of the command can be any.
    pub fn has_any_subcommand(&self) -> bool {
        matches!(self.words.get(1), Some(PatternWord::AnyWord | PatternWord::AnyWords))
    }

    /// Whether a word can be any word.
    pub fn has_wildcard(&self) -> bool {
        self.words.iter().any(|word| !matches!(word, PatternWord::Literal(_)))
    }

    /// Whether the pattern matches the words of a plain command.
    ///
    /// Words match in order. From the first bracket on, the options in brackets may be anywhere, any number of times; `#` at
    /// the end of one is a number. `*` and `**` match no option, and no path that is absolute, hidden or leads up.
    pub fn matches(&self, words: &[String]) -> bool {
        self.matches_where(words, is_inside)
    }

    /// As [`CommandPattern::matches`], but `*` and `**` match no word with `..` in it, not even a range of revisions.
    pub fn matches_strictly(&self, words: &[String]) -> bool {
        self.matches_where(words, |word| is_inside(word) && !word.contains(".."))
    }

    fn matches_where(&self, words: &[String], is_any_word: fn(&str) -> bool) -> bool {
        let mut expected = self.words.iter().peekable();
        for (index, word) in words.iter().enumerate() {
            if index >= self.fixed_words
                && self.options.iter().any(|option| is_option(option, word))
            {
                continue;
            }
            let is_match = match expected.peek() {
                Some(PatternWord::Literal(text)) => text == word,
                Some(PatternWord::AnyWord | PatternWord::AnyWords) => is_any_word(word),
                None => false,
            };
            if !is_match {
                return false;
            }
            expected.next_if(|word| **word != PatternWord::AnyWords);
        }
        expected.all(|word| *word == PatternWord::AnyWords)
    }
}

/// Whether a word is the option of a pattern, where `#` is any number.
fn is_option(option: &str, word: &str) -> bool {
    match option.strip_suffix('#') {
        None => option == word,
        Some(name) => word.strip_prefix(name).is_some_and(|number| {
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        }),
    }
}

/// Whether `*` matches the word: its characters are plain, because programs hand words on to shells, and no part of it is an
/// option or a path that is absolute, in a home directory, hidden, or leads up. Parts begin where programs take values apart.
fn is_inside(word: &str) -> bool {
    !word.is_empty()
        && word.chars().all(|c| is_plain_character(c) || c == ' ')
        && word.split([' ', ':', '=', ',', '@']).all(|part| {
            !part.starts_with(['-', '/', '~'])
                && part.split('/').all(|name| name == "." || !name.starts_with('.'))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, line: &str) -> bool {
        let pattern = CommandPattern::parse(pattern).unwrap();
        read_plain_command(line).is_some_and(|words| pattern.matches(&words))
    }

    #[test]
    fn c_38_4_a_word_more_an_operator_or_an_expansion_is_another_command() {
        for line in ["git status", "  git   status ", "git 'status'", "git \"sta\"tus"] {
            assert!(matches("git status", line), "{line}");
        }
        for line in [
            "git",
            "git status x",
            "git status -s",
            "GIT status",
            "'git' status",
            "git stat",
            "",
            "git status;",
            "git status && ls",
            "git status | cat",
            "git status &",
            "git status\n",
            "git status\r",
            "git status\0",
            "git\tstatus",
            "git\u{a0}status",
            "git status\u{200b}",
            "git status > x",
            "git status 2>&1",
            "git status <x",
            "git status <<x",
            "! git status",
            "x=1 git status",
            "(git status)",
            "{ git status; }",
            "git status #",
            "git $(x)status",
            "git `x`status",
            "git $x",
            "git ${x}",
            "git s*",
            "git ?tatus",
            "git [s]tatus",
            "git {status,x}",
            "git stat\\us",
            "git $'status'",
            "git $\"status\"",
            "git 'status",
            "git \"status$x\"",
            "git \"status!\"",
            "git \"s\\t\"",
            "time git status",
            "git status'\n'",
        ] {
            assert!(!matches("git status", line), "{line:?}");
        }
    }

    #[test]
    fn c_38_4_a_star_is_a_word_and_two_are_all_that_follow() {
        for line in ["t", "t a", "t a b/c.rs", "t ./a .", "t A..B HEAD~1 x:y k=v", "t 'a b'"] {
            assert!(matches("t **", line), "{line}");
        }
        for word in [
            "-x", "--", "/x", "~", "..", "../x", "x/../y", "a/..", ".env", "./.env", "a/.git",
            "a:.env", "f=/x", "f=.x", "@/x", "a,/x", "http://x", "'/x'", "' /x'", "' -x'", "'$x'",
            "'a;b'", "'*'", "'{a}'", "''", "'a\"b'", "é", "'é'",
        ] {
            assert!(!matches("t **", &format!("t {word}")), "{word}");
            assert!(!matches("t * x", &format!("t {word} x")), "{word}");
        }
        assert!(matches("t * x", "t a x"));
        assert!(!matches("t * x", "t x"));
        assert!(!matches("t *", "t a b"));
        assert!(matches("t '*' 'a b'", "t '*' \"a b\""));
        assert!(!matches("t '*'", "t a"));
    }

    #[test]
    fn c_36_18_a_range_is_no_word_of_a_star_where_the_operator_allows() {
        let allows = |pattern: &str, line: &str| {
            let words = read_plain_command(line).unwrap();
            CommandPattern::parse(pattern).unwrap().matches_strictly(&words)
        };
        assert!(allows("t ** ", "t a b/c") && allows("t a..b *", "t a..b x"));
        for word in ["a..b", "..", "a/..b", "-x", "/x"] {
            assert!(!allows("t **", &format!("t a {word}")), "{word}");
            assert!(!allows("t * a", &format!("t {word} a")), "{word}");
        }
    }

    #[test]
    fn c_38_4_options_in_brackets_may_be_anywhere_after_the_first() {
        let pattern = "git log [-p] [-n] [-#] [-U#] [--] **";
        for line in ["git log", "git log -p -p", "git log main -12 -U3", "git log -n 5 -- a -p"] {
            assert!(matches(pattern, line), "{line}");
        }
        for line in
            ["git -p log", "git log -pp", "git log -", "git log -U", "git log -x", "git log --p"]
        {
            assert!(!matches(pattern, line), "{line}");
        }
        assert!(matches("a [-x] b", "a b -x") && matches("a [-x] b", "a -x b"));
    }

    #[test]
    fn c_38_4_a_pattern_that_no_command_matches_is_an_error() {
        use CommandPatternError::{NoCommand, NotAnOption, NotPlain, WordsAfterAnyWords};
        for (text, error) in [
            ("", NoCommand),
            ("if x", NoCommand),
            ("x=1 y", NoCommand),
            ("[-x] git", NoCommand),
            ("git status && ls", NotPlain('&')),
            ("git $x", NotPlain('$')),
            ("git src/*", NotPlain('*')),
            ("git a#", NotPlain('#')),
            ("git 'x", NotPlain('\'')),
            ("git ** x", WordsAfterAnyWords),
            ("git [x]", NotAnOption("x".to_owned())),
            ("git [-*]", NotAnOption("-*".to_owned())),
        ] {
            assert_eq!(CommandPattern::parse(text).unwrap_err(), error, "{text}");
        }
    }
}
