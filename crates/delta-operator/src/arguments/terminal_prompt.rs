//! Asks the agent's questions, and for the approval of calls, at the terminal.

use delta_agent::approval_prompt::{ApprovalAnswer, ApprovalPrompt, approval_verb};
use delta_agent::ask_human::{self, HumanPrompt};
use delta_base::redact::redact_answers;
use delta_base::signal::CancelToken;
use delta_base::terminal;
use delta_base::terminal_text::escape_terminal_controls;
use delta_engine::progress;
use delta_program::stdio;
use delta_run::event::approval::ApprovalSource;
use delta_run::event::{HumanQuestion, InputType};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Prompts for answers at the terminal.
pub struct TerminalPrompt {
    /// Ends the wait for an answer.
    pub cancel: CancelToken,
    /// In an inbox, whose user can skip and quit at every question.
    pub inbox: Option<InboxExit>,
}

/// Whether the user of an inbox has quit, at a question of a run that the inbox continued.
#[derive(Debug, Clone, Default)]
pub struct InboxExit(Arc<AtomicBool>);

impl InboxExit {
    /// Whether the operator asked to leave the inbox.
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    fn request(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl HumanPrompt for TerminalPrompt {
    fn ask(&mut self, question: &HumanQuestion) -> io::Result<Option<String>> {
        if let Some(exit) = &self.inbox {
            let reply = read_inbox_answer(question, &self.cancel)?;
            return Ok(exit.take_message(reply));
        }
        // A line that was typed before the question was shown does not answer it.
        terminal::discard_input();
        // The engine has printed the question itself.
        let answer = match (question.input_type, question.sensitive) {
            (InputType::Confirmation, _) => self.confirm(question),
            (InputType::Password, _) | (_, true) => {
                prompt_whole_text("answer (hidden)> ", true, &self.cancel)
            }
            (InputType::Text, false) => self.ask_text(),
        };
        answer.map(Some)
    }

    fn approve(&mut self, prompt: &ApprovalPrompt<'_>) -> io::Result<Option<ApprovalAnswer>> {
        if let Some(exit) = &self.inbox {
            let reply = read_inbox_decision(prompt, &self.cancel)?;
            let message = exit.take_message(reply);
            return Ok(
                message.and_then(|text| ApprovalAnswer::parse(&text, ApprovalSource::Terminal))
            );
        }
        let tool = prompt.visible_text(&prompt.request.tool_name);
        let keys = format!("y yes, n no, a yes to every call of {tool} in this process, v view> ");
        if let Some(open) = prompt.remember {
            let names = if open.is_empty() {
                String::new()
            } else {
                format!(" with any {}", open.join(", "))
            };
            stdio::print_error_line(&format!(
                "p yes to this call{names} in this project from now on,"
            ));
        }
        // A line that was typed before the question was shown does not answer it.
        terminal::discard_input();
        loop {
            let line = terminal::prompt_line(&keys, &self.cancel)?;
            terminal::discard_input();
            let by = ApprovalSource::Terminal;
            match line.trim().to_lowercase().as_str() {
                "a" | "all" | "always" => {
                    let answer = ApprovalAnswer::new(true, by, None);
                    return Ok(Some(ApprovalAnswer { for_tool: true, ..answer }));
                }
                "p" | "project" if prompt.remember.is_some() => {
                    let answer = ApprovalAnswer::new(true, by, None);
                    return Ok(Some(ApprovalAnswer { for_project: true, ..answer }));
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
                    let known = if prompt.remember.is_some() {
                        "`y`, `n`, `a`, `p` or `v`"
                    } else {
                        "`y`, `n`, `a` or `v`"
                    };
                    print_known_keys(known);
                }
            }
        }
    }
}

impl InboxExit {
    /// The message of a reply; without one, the run waits as before.
    fn take_message(&self, reply: InboxReply) -> Option<String> {
        match reply {
            InboxReply::Message(message) => return Some(message),
            InboxReply::Skip => {}
            InboxReply::Quit => self.request(),
        }
        None
    }
}

impl TerminalPrompt {
    /// Asks until there is a text: Enter alone is more often a slip than an answer.
    fn ask_text(&self) -> io::Result<String> {
        loop {
            let answer = prompt_whole_text("answer> ", false, &self.cancel)?;
            if !answer.trim().is_empty() {
                return Ok(answer);
            }
            stdio::print_error_line("expected an answer; Ctrl-C leaves the question open");
        }
    }

    /// Asks until the answer is yes or no.
    fn confirm(&self, question: &HumanQuestion) -> io::Result<String> {
        loop {
            let answer = terminal::prompt_line("answer (yes/no)> ", &self.cancel)?;
            terminal::discard_input();
            if ask_human::is_valid_answer(question.input_type, &answer) {
                return Ok(answer.trim().to_owned());
            }
        }
    }
}

/// Reads a text; asks again if it is not whole.
fn prompt_whole_text(prompt: &str, is_hidden: bool, cancel: &CancelToken) -> io::Result<String> {
    loop {
        let text = if is_hidden {
            terminal::prompt_hidden_text(prompt, cancel)
        } else {
            terminal::prompt_text(prompt, cancel)
        };
        match text {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                let advice = "leave the question open, and answer with `-m -`";
                stdio::print_error_line(&format!("{error}: {advice}"));
            }
            text => return text,
        }
    }
}

/// Reports a key that means nothing here.
fn print_known_keys(keys: &str) {
    stdio::print_error_line(&format!("expected {keys}, and Enter"));
}

/// Prints the change of the file, or else all arguments, and the whole command line.
fn show_all(prompt: &ApprovalPrompt<'_>) {
    match prompt.preview_text() {
        Some(preview) => progress::print_diff_to_stderr(&preview),
        None => prompt.argument_texts().iter().for_each(|text| stdio::print_error_line(text)),
    }
    stdio::print_error_line(&prompt.command_text());
}

/// What a user does with an entry of the inbox.
pub enum InboxReply {
    /// Sends this answer.
    Message(String),
    /// Leaves the run waiting.
    Skip,
    /// Leaves this run and all others waiting.
    Quit,
}

/// Asks a question in the inbox, without the answers that are `hidden`. The end of the input quits.
pub fn ask_in_inbox(
    question: &HumanQuestion,
    hidden: &[String],
    cancel: &CancelToken,
) -> io::Result<InboxReply> {
    let prompt = redact_answers(hidden, escape_terminal_controls(&question.prompt));
    stdio::print_error_line(&format!("? {prompt}"));
    read_inbox_answer(question, cancel)
}

fn read_inbox_answer(question: &HumanQuestion, cancel: &CancelToken) -> io::Result<InboxReply> {
    terminal::discard_input();
    loop {
        let hidden = if question.sensitive { " (hidden)" } else { "" };
        let prompt = format!("answer{hidden}, Enter skips, Ctrl-D quits> ");
        match end_as_quit(prompt_whole_text(&prompt, question.sensitive, cancel))? {
            None => return Ok(InboxReply::Quit),
            Some(answer) if answer.is_empty() => return Ok(InboxReply::Skip),
            Some(answer) if ask_human::is_valid_answer(question.input_type, &answer) => {
                return Ok(InboxReply::Message(answer));
            }
            Some(_) => stdio::print_error_line("expected `yes` or `no`"),
        }
    }
}

/// Asks for an approval in the inbox. The end of the input quits.
pub fn approve_in_inbox(
    prompt: &ApprovalPrompt<'_>,
    cancel: &CancelToken,
) -> io::Result<InboxReply> {
    let verb = approval_verb(prompt.request);
    stdio::print_error_line(&format!(
        "? {verb} {}",
        prompt.visible_text(&prompt.request.tool_name)
    ));
    if prompt.request.stage.is_some() {
        show_all(prompt);
    }
    let width = terminal::stderr_width().unwrap_or(80);
    for line in prompt.summary_lines(width.saturating_sub(4), "v") {
        stdio::print_error_line(&format!("    {line}"));
    }
    read_inbox_decision(prompt, cancel)
}

fn read_inbox_decision(
    prompt: &ApprovalPrompt<'_>,
    cancel: &CancelToken,
) -> io::Result<InboxReply> {
    terminal::discard_input();
    loop {
        let line = terminal::prompt_line("y yes, n no, v view, s skip, q quit> ", cancel);
        let Some(line) = end_as_quit(line)? else { return Ok(InboxReply::Quit) };
        match line.trim().to_lowercase().as_str() {
            "s" | "skip" => return Ok(InboxReply::Skip),
            "q" | "quit" => return Ok(InboxReply::Quit),
            "v" | "view" => show_all(prompt),
            "n" | "no" => {
                let reason = terminal::prompt_line("reason, or Enter for none> ", cancel);
                return Ok(match end_as_quit(reason)? {
                    None => InboxReply::Quit,
                    Some(reason) => InboxReply::Message(format!("no: {reason}")),
                });
            }
            _ if ApprovalAnswer::parse(&line, ApprovalSource::Operator).is_some() => {
                return Ok(InboxReply::Message(line));
            }
            _ => print_known_keys("`y`, `n`, `v`, `s` or `q`"),
        }
    }
}

/// `None` at the end of the input.
fn end_as_quit(line: io::Result<String>) -> io::Result<Option<String>> {
    match line {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        line => line.map(Some),
    }
}
