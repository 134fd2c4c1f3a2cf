//! The line of input at the end of the terminal: its texts are messages to a run that works, or the next task. A thread reads
//! the keys while the run works; it stops while a question is asked.

use delta_agent::approval_prompt::{ApprovalAnswer, ApprovalPrompt};
use delta_agent::ask_human::HumanPrompt;
use delta_base::hex::encode_hex;
use delta_base::id::RunId;
use delta_base::random::random_bytes;
use delta_base::signal::CancelToken;
use delta_base::terminal::input_line::{InputLine, WaitingText};
use delta_base::terminal::keyboard::{KeyModes, Keyboard};
use delta_base::terminal::line_editor::EditorEffect;
use delta_engine::progress::InputScreen;
use delta_program::stdio;
use delta_run::event::{HumanQuestion, MessageTime};
use delta_run::mailbox::{
    self, MAX_MESSAGE_BYTES, MAX_WAITING, Mailbox, MailboxMessage, Sent, new_message_source,
};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// What the line shows while it is empty.
const MESSAGE_PLACEHOLDER: &str = "Enter sends, Alt-Enter for the end, Esc at once";
/// How long a run without a mailbox is waited for: its process has just started, or ends.
const MAILBOX_PATIENCE: Duration = Duration::from_secs(2);
/// The time between two looks at it.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// What users of other programs type as a command, and what delta has for it.
const HABITS: [(&str, &str); 9] = [
    ("/help", "Enter sends, Alt-Enter for the end, Esc at once; commands: `delta --help`"),
    ("/clear", "`delta run` begins a new run; this one keeps what was said"),
    ("/new", "`delta run` begins a new run; this one keeps what was said"),
    ("/exit", "Ctrl-C stops a run; Enter in an empty line leaves after it"),
    ("/quit", "Ctrl-C stops a run; Enter in an empty line leaves after it"),
    ("/model", "leave, then `delta continue --model NAME`"),
    ("/models", "`delta models` lists them"),
    ("/cost", "`delta list-runs --cost`"),
    ("/compact", "`context.yaml` of the agent decides what its LLM gets"),
];

/// What to type in place of a line that other programs take as a command.
fn unsent_command_tip(line: &str) -> Option<String> {
    let (_, tip) = HABITS.iter().find(|(habit, _)| line == *habit)?;
    Some(format!("{line} was not sent: {tip}"))
}

/// Takes the text of the line to send it; `None` if there is none, or it is a command of other programs.
fn take_line(line: &InputLine) -> Option<String> {
    let text = line.take_text();
    if let Some(tip) = unsent_command_tip(text.trim_end()) {
        line.set_notice(tip);
        return None;
    }
    Some(text.trim_end().to_owned()).filter(|text| !text.trim().is_empty())
}

/// Prints what was typed into the line and not sent.
pub fn print_unsent(line: &InputLine) {
    let text = line.take_text();
    if !text.trim().is_empty() {
        stdio::print_error_line(&format!("not sent: {}", text.trim_end()));
    }
}

/// The run that gets the messages.
#[derive(Debug)]
struct MessageTarget {
    run_id: RunId,
    run_dir: PathBuf,
    mailbox: Mailbox,
}

impl MessageTarget {
    fn act(&self, effect: EditorEffect, line: &InputLine, stop: &CancelToken) {
        match effect {
            EditorEffect::Enter => self.send_line(line, MessageTime::Next, stop),
            EditorEffect::AltEnter => self.send_line(line, MessageTime::End, stop),
            EditorEffect::Escape if !line.text().trim().is_empty() => {
                self.send_line(line, MessageTime::Now, stop);
            }
            EditorEffect::Escape => {
                // A message with a known id is received once, and then takes all others along.
                if let Some(waiting) = line.first_waiting() {
                    self.send(line, waiting.id, waiting.text, MessageTime::Now, stop);
                }
            }
            EditorEffect::EndOfInput => {}
        }
    }

    fn send_line(&self, line: &InputLine, when: MessageTime, stop: &CancelToken) {
        if let Some(text) = take_line(line) {
            self.send(line, encode_hex(&random_bytes::<16>()), text, when, stop);
        }
    }

    /// Sends a message, which the line shows until the run has received it, or returns the text to the line.
    fn send(
        &self,
        line: &InputLine,
        id: String,
        text: String,
        when: MessageTime,
        stop: &CancelToken,
    ) {
        let label = match when {
            MessageTime::Next => "waits",
            MessageTime::Now => "at once",
            MessageTime::End => "for the end",
        };
        // Before the run can have received it.
        line.add_waiting(WaitingText { id: id.clone(), label: "sending", text: text.clone() });
        let source = new_message_source(id.clone(), mailbox::TERMINAL, when);
        let message = MailboxMessage::new(source, self.run_id.clone(), Some(text.clone()));
        match self.deliver(&message, &text, stop) {
            Ok(()) => line.relabel_waiting(&id, label),
            Err(reason) => {
                line.remove_waiting(&id);
                line.put_back(&text);
                line.set_notice(format!("not sent: {reason}"));
            }
        }
    }

    fn deliver(
        &self,
        message: &MailboxMessage,
        text: &str,
        stop: &CancelToken,
    ) -> Result<(), String> {
        if text.len() > MAX_MESSAGE_BYTES {
            return Err(format!("a message has at most {MAX_MESSAGE_BYTES} bytes"));
        }
        if mailbox::count_waiting(&self.run_dir) >= MAX_WAITING {
            return Err(format!("{MAX_WAITING} messages wait"));
        }
        let started = Instant::now();
        loop {
            match self.mailbox.send(message).map_err(|error| error.to_string())? {
                Sent::Durable => return Ok(()),
                Sent::Uncertain(error) => {
                    return Err(format!("it may be received, and may be lost: {error}"));
                }
                Sent::Closed if started.elapsed() < MAILBOX_PATIENCE => {
                    if stop.wait(LOOK_INTERVAL) {
                        return Err("the run has ended".to_owned());
                    }
                }
                Sent::Closed => return Err("the run takes no message now".to_owned()),
            }
        }
    }
}

/// The thread that reads keys.
#[derive(Debug)]
struct KeyReader {
    stop: CancelToken,
    thread: JoinHandle<()>,
}

/// The line of input of a run that works.
#[derive(Debug)]
pub struct RunInput {
    line: InputLine,
    target: Arc<MessageTarget>,
    reader: Mutex<Option<KeyReader>>,
}

impl RunInput {
    /// Lets the user type messages to the run in `run_dir`. `None` if no message can be sent, or if something was typed before
    /// this process began: it is for the shell.
    pub fn open(
        line: &InputLine,
        run_id: &RunId,
        run_dir: &Path,
        mailbox: Mailbox,
    ) -> Option<Arc<Self>> {
        if !mailbox.has_key() {
            return None;
        }
        let modes = KeyModes::enter(false).ok()??;
        let run_dir = run_dir.to_owned();
        let target = Arc::new(MessageTarget { run_id: run_id.clone(), run_dir, mailbox });
        line.forget_waiting();
        let input = Self { line: line.clone(), target, reader: Mutex::new(None) };
        input.start(modes).ok()?;
        Some(Arc::new(input))
    }

    /// The line.
    pub fn line(&self) -> &InputLine {
        &self.line
    }

    fn start(&self, modes: KeyModes) -> io::Result<()> {
        let stop = CancelToken::manual()?;
        let stopped = stop.clone();
        let line = self.line.clone();
        let target = Arc::clone(&self.target);
        let thread = Builder::new().name("keys".to_owned()).spawn(move || {
            read_messages(Keyboard::new(modes), &line, &target, &stopped);
        })?;
        self.line.open(MESSAGE_PLACEHOLDER);
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        *reader = Some(KeyReader { stop, thread });
        Ok(())
    }

    /// Stops reading keys; what was typed stays in the line.
    pub fn pause(&self) {
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(KeyReader { stop, thread }) = reader.take() {
            stop.request();
            let _ = thread.join();
        }
        self.line.close();
    }

    /// Reads keys again.
    fn resume(&self) {
        if let Ok(Some(modes)) = KeyModes::enter(true) {
            // If the thread cannot start, the line stays hidden.
            let _ = self.start(modes);
        }
    }
}

fn read_messages(
    mut keyboard: Keyboard,
    line: &InputLine,
    target: &MessageTarget,
    stop: &CancelToken,
) {
    let mut is_over = false;
    while !is_over {
        let input = keyboard.wait(&stop.fd());
        if input.has_lost_screen {
            line.lose_screen();
        }
        // What wakes this thread may have been drained by a message that waited for the mailbox.
        is_over = stop.is_requested() || input.is_closed;
        let rest = if is_over { keyboard.read_rest() } else { Vec::new() };
        for key in input.keys.into_iter().chain(rest) {
            if let Some(effect) = line.apply(key) {
                target.act(effect, line, stop);
            }
        }
    }
}

/// Asks the user while the line of input is paused.
pub struct PausingPrompt {
    /// Asks.
    pub inner: Box<dyn HumanPrompt>,
    /// The line.
    pub input: Arc<RunInput>,
}

impl PausingPrompt {
    fn pause_for<T>(
        &mut self,
        ask: impl FnOnce(&mut dyn HumanPrompt) -> io::Result<T>,
    ) -> io::Result<T> {
        self.input.pause();
        let answer = ask(&mut *self.inner);
        self.input.resume();
        answer
    }
}

impl HumanPrompt for PausingPrompt {
    fn ask(&mut self, question: &HumanQuestion) -> io::Result<Option<String>> {
        self.pause_for(|inner| inner.ask(question))
    }

    fn approve(&mut self, prompt: &ApprovalPrompt<'_>) -> io::Result<Option<ApprovalAnswer>> {
        self.pause_for(|inner| inner.approve(prompt))
    }
}

/// What the user has done at a prompt for a text.
#[derive(Debug, PartialEq, Eq)]
pub enum TextReply {
    /// Sent a text.
    Text(String),
    /// Left, with Enter in an empty line or Ctrl-D.
    Left,
    /// Pressed Ctrl-C; what was typed stays in the line.
    Interrupted,
}

/// Asks for a text in the line, which begins with what it has. `placeholder` says for what.
///
/// # Errors
/// The terminal has no modes that can be changed.
pub fn ask_text(
    line: &InputLine,
    placeholder: &'static str,
    cancel: &CancelToken,
) -> io::Result<TextReply> {
    let Some(modes) = KeyModes::enter(true)? else { return Ok(TextReply::Left) };
    let mut keyboard = Keyboard::new(modes);
    line.open(placeholder);
    let screen = InputScreen::show(line);
    let mut reply = None;
    while reply.is_none() {
        if cancel.is_requested() {
            for key in keyboard.read_rest() {
                line.apply(key);
            }
            reply = Some(TextReply::Interrupted);
            break;
        }
        let input = keyboard.wait(&cancel.fd());
        if input.is_woken {
            cancel.drain();
        }
        if input.has_lost_screen {
            line.lose_screen();
        }
        for key in input.keys {
            let effect = line.apply(key);
            if reply.is_some() {
                // What was typed ahead is not sent; its lines stay apart.
                if matches!(effect, Some(EditorEffect::Enter | EditorEffect::AltEnter)) {
                    line.break_line();
                }
                continue;
            }
            reply = match effect {
                Some(EditorEffect::Enter) if line.text().trim().is_empty() => Some(TextReply::Left),
                Some(EditorEffect::Enter | EditorEffect::AltEnter) => {
                    take_line(line).map(TextReply::Text)
                }
                Some(EditorEffect::EndOfInput) => Some(TextReply::Left),
                Some(EditorEffect::Escape) | None => None,
            };
        }
        if input.is_closed {
            reply = reply.or(Some(TextReply::Left));
        }
    }
    drop(screen);
    line.close();
    Ok(reply.unwrap_or(TextReply::Left))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_33_20_a_habit_is_not_sent_and_a_blank_before_it_sends_it() {
        for (habit, _) in HABITS {
            let tip = unsent_command_tip(habit).expect("a tip");
            assert!(tip.starts_with(habit) && tip.len() <= 100, "{tip}");
            assert_eq!(unsent_command_tip(&format!(" {habit}")), None);
            assert_eq!(unsent_command_tip(&format!("{habit} now")), None);
        }
    }
}
