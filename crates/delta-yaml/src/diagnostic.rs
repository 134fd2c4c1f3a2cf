//! Diagnostics: errors in a user's files, with their position and a fix.
//!
//! Readers do not stop at the first error. They push it to a [`DiagnosticReport`] and continue, so that one run shows the
//! errors of all files.

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
        help: Option<String>,
    ) -> Self {
        Self {
            file: file.into(),
            line: 0,
            column: 0,
            source: String::new(),
            width: 1,
            message: message.into(),
            help,
        }
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
            let lead: String = self
                .source
                .chars()
                .take(self.column - 1)
                .map(|c| if c == '\t' { '\t' } else { ' ' })
                .collect();
            writeln!(f, "  --> {}:{}:{}", self.file, self.line, self.column)?;
            writeln!(f, " {pad} |")?;
            writeln!(f, " {number} | {}", blank_url_secrets(&self.source))?;
            write!(f, " {pad} | {lead}{}", "^".repeat(self.width.max(1)))?;
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
