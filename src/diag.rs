//! What is wrong with something a person wrote, and how that is shown.
//!
//! Parsing never stops at the first mistake: readers push into a [`Report`] and go on, so that all errors of
//! all files come out in one go.

use std::fmt;

/// One mistake: where it is, what it is, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// The file as the user knows it.
    pub file: String,
    /// Line, counted from 1; 0 when the whole file is meant.
    pub line: usize,
    /// Column in characters, counted from 1.
    pub column: usize,
    /// The line itself, empty when the whole file is meant.
    pub source: String,
    /// How many characters of the line are meant, at least 1.
    pub width: usize,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub help: Option<String>,
}

impl Diagnostic {
    /// A mistake of a whole file: missing, unreadable, empty.
    pub fn of_file(
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
    /// Writes it under a heading such as `error`.
    ///
    /// # Errors
    /// Those of `f`.
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
            writeln!(f, " {number} | {}", self.source)?;
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

/// The mistakes found so far.
#[derive(Debug, Default)]
pub struct Report {
    /// In the order in which they were found.
    pub diagnostics: Vec<Diagnostic>,
}

impl Report {
    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.diagnostics.is_empty()
    }

    /// Adds one mistake.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.diagnostics.push(diagnostic);
    }
}

impl fmt::Display for Report {
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
