//! The person at the terminal, for `-i`.

use crate::event::{InputType, Question};
use crate::human::{self, Person};
use crate::signal::Cancel;
use crate::terminal;
use std::io;

/// Asks at the terminal.
pub struct AtTerminal {
    /// Ends the wait for an answer.
    pub cancel: Cancel,
}

impl Person for AtTerminal {
    fn ask(&mut self, question: &Question) -> io::Result<String> {
        // The question itself has been shown.
        match (question.input_type, question.sensitive) {
            (InputType::Confirmation, _) => self.confirm(question),
            (InputType::Password, _) | (_, true) => {
                terminal::ask_hidden("answer (hidden)> ", &self.cancel)
            }
            (InputType::Text, false) => terminal::ask("answer> ", &self.cancel),
        }
    }
}

impl AtTerminal {
    /// Asks until the answer is yes or no.
    fn confirm(&self, question: &Question) -> io::Result<String> {
        loop {
            let answer = terminal::ask("answer (yes/no)> ", &self.cancel)?;
            if human::accepts(question, &answer) {
                return Ok(answer.trim().to_owned());
            }
        }
    }
}
