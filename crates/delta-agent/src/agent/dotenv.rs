//! The syntax of `.env` files: names and literal values.
//!
//! `$` is an ordinary character: a file that the agent can write must not copy a key of the
//! environment into a variable that does not count as a key. Error messages quote no value, because
//! it may be a key.

use delta_base::text::without_byte_order_mark;
use delta_yaml::diagnostic::{Diagnostic, DiagnosticReport};

/// Parses the variables of a file, in file order; of duplicates the last one counts. `name` is the
/// file's name in messages.
///
/// # Errors
/// All problems, each with its line and column.
pub fn parse_dotenv(name: &str, text: &str) -> Result<Vec<(String, String)>, DiagnosticReport> {
    let text = without_byte_order_mark(text).replace("\r\n", "\n");
    let mut reader =
        DotenvReader { file: name, text: &text, position: 0, report: DiagnosticReport::default() };
    let mut pairs = Vec::new();
    while reader.position < text.len() {
        match reader.read_line() {
            Ok(pair) => pairs.extend(pair),
            Err(error) => reader.report_error(&error),
        }
        reader.skip_while(|c| c != '\n');
        reader.skip_if('\n');
    }
    if reader.report.is_empty() { Ok(pairs) } else { Err(reader.report) }
}

struct DotenvReader<'a> {
    file: &'a str,
    text: &'a str,
    /// The next byte to read.
    position: usize,
    report: DiagnosticReport,
}

/// A problem, and the byte where it is.
struct DotenvError {
    position: usize,
    message: String,
    help: &'static str,
}

/// Whether `c` separates the parts of a line.
fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r')
}

impl DotenvReader<'_> {
    /// Reads one line, up to its newline; `None` for a blank line or a comment.
    fn read_line(&mut self) -> Result<Option<(String, String)>, DotenvError> {
        self.skip_while(is_blank);
        if matches!(self.peek(), None | Some('\n' | '#')) {
            return Ok(None);
        }
        let mut at = self.position;
        let mut name = self.read_name();
        if name == "export" && self.peek().is_some_and(is_blank) {
            self.skip_while(is_blank);
            at = self.position;
            name = self.read_name();
        }
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
            let message = "expected the name of a variable".to_owned();
            let help = "write `NAME=value`; a name has letters, digits and `_`, and does not begin with a digit";
            return Err(DotenvError { position: at, message, help });
        }
        self.skip_while(is_blank);
        if !self.skip_if('=') {
            let message = format!("expected `=` after `{name}`");
            return Err(DotenvError {
                position: self.position,
                message,
                help: "write `NAME=value`",
            });
        }
        let after_sign = self.position;
        self.skip_while(is_blank);
        let at = self.position;
        let value = match self.peek() {
            Some(quote @ ('\'' | '"')) => self.read_quoted(quote)?,
            _ => self.read_unquoted(after_sign),
        };
        if value.contains('\0') {
            let message = format!("the value of `{name}` contains a NUL character");
            return Err(DotenvError {
                position: at,
                message,
                help: "environment variables cannot contain NUL",
            });
        }
        Ok(Some((name, value)))
    }

    fn read_name(&mut self) -> String {
        let start = self.position;
        self.skip_while(|c| c.is_ascii_alphanumeric() || c == '_');
        self.text[start..self.position].to_owned()
    }

    /// Reads the line from `start` on as a value, up to a comment.
    fn read_unquoted(&mut self, start: usize) -> String {
        self.skip_while(|c| c != '\n');
        let rest = &self.text[start..self.position];
        let comment = rest.match_indices('#').find(|(at, _)| rest[..*at].ends_with(is_blank));
        let end = comment.map_or(rest.len(), |(at, _)| at);
        rest[..end].trim_matches(is_blank).to_owned()
    }

    /// Reads a quoted value, which may span lines. Single quotes keep every character; double
    /// quotes allow a few escapes.
    fn read_quoted(&mut self, quote: char) -> Result<String, DotenvError> {
        let start = self.position;
        self.skip_if(quote);
        let mut value = String::new();
        loop {
            let Some(c) = self.next() else {
                let message = format!("the quote {quote} is not closed");
                return Err(DotenvError {
                    position: start,
                    message,
                    help: "add the closing quote",
                });
            };
            match c {
                c if c == quote => break,
                '\\' if quote == '"' => match self.next() {
                    Some('n') => value.push('\n'),
                    Some('r') => value.push('\r'),
                    Some('t') => value.push('\t'),
                    Some(c @ ('"' | '\\' | '$' | '`')) => value.push(c),
                    other => value.extend(['\\'].into_iter().chain(other)),
                },
                c => value.push(c),
            }
        }
        self.skip_while(is_blank);
        if !matches!(self.peek(), None | Some('\n' | '#')) {
            let message = "unexpected text after the closing quote".to_owned();
            let help = "put the whole value in one pair of quotes; a comment begins with `#`";
            return Err(DotenvError { position: self.position, message, help });
        }
        Ok(value)
    }

    fn report_error(&mut self, error: &DotenvError) {
        let before = &self.text[..error.position];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        let location = format!("{}:{line}:{column}", self.file);
        let help = Some(error.help.to_owned());
        self.report.push(Diagnostic::for_file(location, error.message.clone(), help));
    }

    fn peek(&self) -> Option<char> {
        self.text[self.position..].chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.position += c.len_utf8();
        Some(c)
    }

    fn skip_if(&mut self, expected: char) -> bool {
        let is_next = self.peek() == Some(expected);
        if is_next {
            self.next();
        }
        is_next
    }

    fn skip_while(&mut self, is_skipped: impl Fn(char) -> bool) {
        while self.peek().is_some_and(&is_skipped) {
            self.next();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        parse_dotenv(".env", text).unwrap()
    }

    #[track_caller]
    fn check(text: &str, expected: &[(&str, &str)]) {
        let found = pairs(text);
        let found: Vec<_> = found.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(found, expected, "{text:?}");
    }

    #[test]
    fn c_1_7_the_syntax() {
        check("", &[]);
        check("\u{feff}A=1\r\nB=2", &[("A", "1"), ("B", "2")]);
        check(
            " # c\n\nexport  A = b c  # c\n\texport=1\nB=\nC= # c\nD=a#b\nE=#b\nF= a\u{a0} ",
            &[
                ("A", "b c"),
                ("export", "1"),
                ("B", ""),
                ("C", ""),
                ("D", "a#b"),
                ("E", "#b"),
                ("F", "a\u{a0}"),
            ],
        );
        check("A='$B \\n \"x\" # y'  # c", &[("A", "$B \\n \"x\" # y")]);
        check(r#"A="a\nb\t\"\\\$\q '" # c"#, &[("A", "a\nb\t\"\\$\\q '")]);
        check(
            "A=\"1\n2\r\n3\"\nB='x\ny'\nC=$A ${B} $(ls) `ls` \\n",
            &[("A", "1\n2\n3"), ("B", "x\ny"), ("C", "$A ${B} $(ls) `ls` \\n")],
        );
        check("A=it's\nB=a \"b\" c\nA=2", &[("A", "it's"), ("B", "a \"b\" c"), ("A", "2")]);
    }

    #[test]
    fn c_1_7_mistakes_come_at_once_and_show_no_value() {
        let text = "A=1\nsk-secret\n=sk-secret\n1A=sk-secret\nB sk-secret\nC='sk-secret' x\nD: sk-secret\nE=\"sk-secret\n";
        let report = parse_dotenv(".env", text).unwrap_err();
        let found: Vec<_> =
            report.diagnostics.iter().map(|d| (d.file.as_str(), d.message.as_str())).collect();
        assert_eq!(
            found,
            [
                (".env:2:3", "expected `=` after `sk`"),
                (".env:3:1", "expected the name of a variable"),
                (".env:4:1", "expected the name of a variable"),
                (".env:5:3", "expected `=` after `B`"),
                (".env:6:15", "unexpected text after the closing quote"),
                (".env:7:2", "expected `=` after `D`"),
                (".env:8:3", "the quote \" is not closed"),
            ]
        );
        let nul = parse_dotenv(".env", "A=a\0b").unwrap_err();
        assert_eq!(nul.diagnostics[0].message, "the value of `A` contains a NUL character");
    }

    proptest! {
        #[test]
        fn c_1_7_every_text_is_read_or_refused(text in "[A='\"\\\\\n# $x\u{e9}]{0,40}") {
            let _ = parse_dotenv(".env", &text);
        }

        #[test]
        fn c_1_7_single_quotes_keep_every_character(value in "[^'\0\r]{0,40}") {
            prop_assert_eq!(pairs(&format!("A='{value}'\nB=1")), [
                ("A".to_owned(), value),
                ("B".to_owned(), "1".to_owned()),
            ]);
        }
    }
}
