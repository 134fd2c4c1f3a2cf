//! Asks the agent's questions at the terminal, for `-i`, and for the approval of calls.

use delta_agent::approval_prompt::{ApprovalAnswer, ApprovalPrompt};
use delta_agent::ask_human::{self, HumanPrompt};
use delta_base::signal::CancelToken;
use delta_base::terminal;
use delta_engine::progress;
use delta_program::stdio;
use delta_run::approval::ApprovalSource;
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

    fn approve(&mut self, prompt: &ApprovalPrompt<'_>) -> io::Result<Option<ApprovalAnswer>> {
        let tool = &prompt.request.tool_name;
        let keys = format!("y yes, n no, a yes to every {tool}, v view> ");
        // A line that was typed before the question was shown does not answer it.
        terminal::discard_input();
        loop {
            let line = terminal::prompt_line(&keys, &self.cancel)?;
            let by = ApprovalSource::Terminal;
            match line.trim().to_lowercase().as_str() {
                "a" | "all" | "always" => {
                    let answer = ApprovalAnswer::new(true, by, None);
                    return Ok(Some(ApprovalAnswer { for_tool: true, ..answer }));
                }
                "v" | "view" => show_all(prompt),
                "n" | "no" => {
                    let reason =
                        terminal::prompt_line("reason, or Enter for none> ", &self.cancel)?;
                    let reason = Some(reason.trim().to_owned()).filter(|text| !text.is_empty());
                    return Ok(Some(ApprovalAnswer::new(false, by, reason)));
                }
                _ => {
                    if let Some(answer) = ApprovalAnswer::parse(&line, by) {
                        return Ok(Some(answer));
                    }
                }
            }
        }
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

/// Prints the change of the file, or else all arguments, and the whole command line.
fn show_all(prompt: &ApprovalPrompt<'_>) {
    match prompt.preview_text() {
        Some(preview) => progress::print_diff_to_stderr(&preview),
        None => prompt.argument_texts().iter().for_each(|text| stdio::print_error_line(text)),
    }
    stdio::print_error_line(&prompt.command_text());
}
