//! Diagnostics: errors in a user's files, with their position and a fix.
//!
//! Readers do not stop at the first error. They push it to a [`DiagnosticReport`] and continue, so that one run shows the
//! errors of all files.

use delta_base::error_text::HelpLine;
use delta_base::url_secrets::blank_url_secrets;
use std::fmt;

/// One error in a file: its position, message and fix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// The file's path, as displayed to the user.
    pub file: String,
    /// The line, from 1; 0 for an error of the whole file.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The text of the line; empty for an error of the whole file.
    pub source: String,
    /// How many characters of the line to underline, at least 1.
    pub width: usize,
    /// The error as a lower-case fragment.
    pub message: String,
    /// What to write instead, or what to do.
    pub help: Option<String>,
}

impl Diagnostic {
    /// An error of a whole file, such as a missing or empty one.
    pub fn for_file(
        file: impl Into<String>,
        message: impl Into<String>,
        help: impl Into<HelpLine>,
    ) -> Self {
        Self {
            file: file.into(),
            line: 0,
            column: 0,
            source: String::new(),
            width: 1,
            message: message.into(),
            help: help.into().0,
        }
    }
}

impl Diagnostic {
    /// Whether it points to the same place.
    pub(crate) fn is_at_place_of(&self, other: &Self) -> bool {
        (&self.file, self.line, self.column) == (&other.file, other.line, other.column)
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, "error")
    }
}

impl Diagnostic {
    /// Writes the diagnostic with a heading such as `error`.
    ///
    /// # Errors
    /// The errors of `f`.
    pub fn write(&self, f: &mut impl fmt::Write, heading: &str) -> fmt::Result {
        writeln!(f, "{heading}: {}", self.message)?;
        if self.line == 0 {
            write!(f, "  --> {}", self.file)?;
        } else {
            let number = self.line.to_string();
            let pad = " ".repeat(number.len());
            writeln!(f, "  --> {}:{}:{}", self.file, self.line, self.column)?;
            writeln!(f, " {pad} |")?;
            let (source, lead) = self.source_around_place();
            writeln!(f, " {number} | {source}")?;
            let width = self.width.clamp(1, MAX_SOURCE_CHARS);
            write!(f, " {pad} | {lead}{}", "^".repeat(width))?;
        }
        if let Some(help) = &self.help {
            let mut lines = help.lines();
            write!(f, "\n  = help: {}", lines.next().unwrap_or_default())?;
            for line in lines {
                let pad = if line.is_empty() { "" } else { "    " };
                write!(f, "\n{pad}{line}")?;
            }
        }
        Ok(())
    }
}

impl Diagnostic {
    /// The part of the line around the place, with `…` for what is left out, and the blanks up to the place: a file that is
    /// one long line would be printed whole with every error.
    fn source_around_place(&self) -> (String, String) {
        let source = blank_url_secrets(&self.source);
        let skipped = match source.chars().nth(MAX_SOURCE_CHARS) {
            Some(_) => (self.column - 1).saturating_sub(CHARS_BEFORE_PLACE),
            None => 0,
        };
        let mut rest = source.chars().skip(skipped);
        let start = if skipped > 0 { "…" } else { "" };
        let mut excerpt: String =
            start.chars().chain(rest.by_ref().take(MAX_SOURCE_CHARS)).collect();
        if rest.next().is_some() {
            excerpt.push('…');
        }
        let before = start.chars().count() + self.column - 1 - skipped;
        let lead =
            excerpt.chars().take(before).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        (excerpt, lead)
    }
}

/// The most characters of a line that are printed.
const MAX_SOURCE_CHARS: usize = 240;

/// What helps where a file of an agent cannot be read.
pub const READABLE_TEXT_HELP: &str = "make it a readable UTF-8 text";

/// The characters of a longer line that are printed before the place.
const CHARS_BEFORE_PLACE: usize = 80;

/// The errors found so far.
#[derive(Debug, Default)]
pub struct DiagnosticReport {
    /// The errors, in the order in which they were found.
    pub diagnostics: Vec<Diagnostic>,
}

impl DiagnosticReport {
    /// Whether there are no errors.
    pub fn is_empty(&self) -> bool {
        self.diagnostics.is_empty()
    }

    /// Adds an error.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.diagnostics.push(diagnostic);
    }
}

impl fmt::Display for DiagnosticReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, diagnostic) in self.diagnostics.iter().enumerate() {
            if index > 0 {
                f.write_str("\n\n")?;
            }
            diagnostic.fmt(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diagnostic(source: &str, column: usize) -> Diagnostic {
        let source = source.to_owned();
        Diagnostic { line: 1, column, source, width: 3, ..Diagnostic::for_file("f", "wrong", None) }
    }

    #[test]
    fn c_38_5_a_long_line_is_cut_around_the_place() {
        let long = format!("{}bad{}", "a".repeat(5000), "ä".repeat(5000));
        let text = diagnostic(&long, 5001).to_string();
        let after = "ä".repeat(MAX_SOURCE_CHARS - CHARS_BEFORE_PLACE - 3);
        let (before, blanks) = ("a".repeat(CHARS_BEFORE_PLACE), " ".repeat(CHARS_BEFORE_PLACE + 1));
        assert_eq!(
            text,
            format!(
                "error: wrong\n  --> f:1:5001\n   |\n 1 | …{before}bad{after}…\n   | {blanks}^^^"
            )
        );
        // At the start and at the end nothing is left out on that side.
        let text = diagnostic(&long, 1).to_string();
        assert!(text.contains("1 | aaa") && text.ends_with("…\n   | ^^^"), "{text}");
        let text = diagnostic(&long, 10_004).to_string();
        assert!(text.contains(&format!("1 | …{}\n", "ä".repeat(CHARS_BEFORE_PLACE))), "{text}");
        // A line of usual length is printed whole.
        let short = "x".repeat(MAX_SOURCE_CHARS);
        assert!(diagnostic(&short, 200).to_string().contains(&format!("1 | {short}\n")));
    }
}
