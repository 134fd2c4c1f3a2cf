//! The syntax of `.env` files: names and values, and nothing that is computed.
//!
//! It reads text and gives pairs. `$` is a character like any other: a file that an agent can write must not be able to
//! copy a key of the environment into a variable that is not taken for one. Mistakes show no line of the file, for what
//! stands in it may be a key.

use crate::diag::{Diagnostic, Report};

/// The variables of a file in its order; `name` is how messages call it. Of two with one name the later one counts.
///
/// # Errors
/// Everything that is wrong, each with its line and column.
pub fn parse(name: &str, text: &str) -> Result<Vec<(String, String)>, Report> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n");
    let mut reader = Reader { file: name, text: &text, at: 0, report: Report::default() };
    let mut found = Vec::new();
    while reader.at < text.len() {
        match reader.line() {
            Ok(pair) => found.extend(pair),
            Err(mistake) => reader.tell(&mistake),
        }
        reader.skip_while(|c| c != '\n');
        reader.skip_if('\n');
    }
    if reader.report.is_empty() { Ok(found) } else { Err(reader.report) }
}

struct Reader<'a> {
    file: &'a str,
    text: &'a str,
    /// The byte that is read next.
    at: usize,
    report: Report,
}

/// What is wrong, and the byte at which it is.
struct Mistake {
    at: usize,
    message: String,
    help: &'static str,
}

/// Whether `c` separates the parts of a line.
fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r')
}

impl Reader<'_> {
    /// The variable of a line; `None` for a blank one and a comment. Stays before the end of the line.
    fn line(&mut self) -> Result<Option<(String, String)>, Mistake> {
        self.skip_while(is_blank);
        if matches!(self.peek(), None | Some('\n' | '#')) {
            return Ok(None);
        }
        let mut at = self.at;
        let mut name = self.name();
        if name == "export" && self.peek().is_some_and(is_blank) {
            self.skip_while(is_blank);
            at = self.at;
            name = self.name();
        }
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
            let message = "this is not the name of a variable".to_owned();
            let help = "a line is `NAME=value`; a name has letters, digits and `_`, and does not begin with a digit";
            return Err(Mistake { at, message, help });
        }
        self.skip_while(is_blank);
        if !self.skip_if('=') {
            let message = format!("`{name}` has no `=` after it");
            return Err(Mistake { at: self.at, message, help: "write `NAME=value`" });
        }
        self.skip_while(is_blank);
        let at = self.at;
        let value = match self.peek() {
            Some(quote @ ('\'' | '"')) => self.quoted(quote)?,
            _ => self.plain(),
        };
        if value.contains('\0') {
            let message = format!("the value of `{name}` holds a NUL character");
            return Err(Mistake { at, message, help: "no environment variable can carry one" });
        }
        Ok(Some((name, value)))
    }

    fn name(&mut self) -> String {
        let start = self.at;
        self.skip_while(|c| c.is_ascii_alphanumeric() || c == '_');
        self.text[start..self.at].to_owned()
    }

    /// A value without quotes: the rest of the line, up to a comment.
    fn plain(&mut self) -> String {
        let start = self.at;
        self.skip_while(|c| c != '\n');
        let rest = &self.text[start..self.at];
        let comment = rest.match_indices('#').find(|(at, _)| rest[..*at].ends_with(is_blank));
        let end = if rest.starts_with('#') { 0 } else { comment.map_or(rest.len(), |(at, _)| at) };
        rest[..end].trim_end().to_owned()
    }

    /// A value in quotes, over as many lines as it takes. Single ones keep every character; in double ones a few escapes
    /// count.
    fn quoted(&mut self, quote: char) -> Result<String, Mistake> {
        let start = self.at;
        self.skip_if(quote);
        let mut value = String::new();
        loop {
            let Some(c) = self.next() else {
                let message = format!("the quote {quote} is not closed");
                return Err(Mistake { at: start, message, help: "close it" });
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
            let message = "text follows the closing quote".to_owned();
            let help = "put the whole value in one pair of quotes; a comment begins with `#`";
            return Err(Mistake { at: self.at, message, help });
        }
        Ok(value)
    }

    fn tell(&mut self, mistake: &Mistake) {
        let before = &self.text[..mistake.at];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        let place = format!("{}:{line}:{column}", self.file);
        let help = Some(mistake.help.to_owned());
        self.report.push(Diagnostic::of_file(place, mistake.message.clone(), help));
    }

    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn skip_if(&mut self, wanted: char) -> bool {
        let there = self.peek() == Some(wanted);
        if there {
            self.at += wanted.len_utf8();
        }
        there
    }

    fn skip_while(&mut self, wanted: impl Fn(char) -> bool) {
        while self.peek().is_some_and(&wanted) {
            self.next();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        parse(".env", text).unwrap()
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
            " # c\n\nexport  A = b c  # c\n\texport=1\nB=\nC= # c\nD=a#b",
            &[("A", "b c"), ("export", "1"), ("B", ""), ("C", ""), ("D", "a#b")],
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
        let report = parse(".env", text).unwrap_err();
        let found: Vec<_> =
            report.diagnostics.iter().map(|d| (d.file.as_str(), d.message.as_str())).collect();
        assert_eq!(
            found,
            [
                (".env:2:3", "`sk` has no `=` after it"),
                (".env:3:1", "this is not the name of a variable"),
                (".env:4:1", "this is not the name of a variable"),
                (".env:5:3", "`B` has no `=` after it"),
                (".env:6:15", "text follows the closing quote"),
                (".env:7:2", "`D` has no `=` after it"),
                (".env:8:3", "the quote \" is not closed"),
            ]
        );
        let nul = parse(".env", "A=a\0b").unwrap_err();
        assert_eq!(nul.diagnostics[0].message, "the value of `A` holds a NUL character");
    }

    proptest! {
        #[test]
        fn c_1_7_every_text_is_read_or_refused(text in "[A='\"\\\\\n# $x\u{e9}]{0,40}") {
            let _ = parse(".env", &text);
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
