//! Asks the agent's questions at the terminal, for `-i`.

use delta_agent::ask_human::{self, HumanPrompt};
use delta_base::signal::CancelToken;
use delta_base::terminal;
use delta_run::event::{HumanQuestion, InputType};
use std::io;

/// Prompts for answers at the terminal.
pub struct TerminalPrompt {
    /// Ends the wait for an answer.
    pub cancel: CancelToken,
}

impl HumanPrompt for TerminalPrompt {
    fn ask(&mut self, question: &HumanQuestion) -> io::Result<Option<String>> {
        // The engine has printed the question itself.
        let answer = match (question.input_type, question.sensitive) {
            (InputType::Confirmation, _) => self.confirm(question),
            (InputType::Password, _) | (_, true) => {
                terminal::prompt_hidden_line("answer (hidden)> ", &self.cancel)
            }
            (InputType::Text, false) => terminal::prompt_line("answer> ", &self.cancel),
        };
        answer.map(Some)
    }
}

impl TerminalPrompt {
    /// Asks until the answer is yes or no.
    fn confirm(&self, question: &HumanQuestion) -> io::Result<String> {
        loop {
            let answer = terminal::prompt_line("answer (yes/no)> ", &self.cancel)?;
            if ask_human::is_valid_answer(question, &answer) {
                return Ok(answer.trim().to_owned());
            }
        }
    }
}
