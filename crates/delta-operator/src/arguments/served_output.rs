//! What a process that works for a server prints for it: the run's result, and before it, if the server wants that, the
//! pieces of answers and output as they arrive.

use clap::ValueEnum;
use delta_base::redact::{HiddenAnswers, StreamRedactor};
use delta_program::stdio;
use delta_run::event::Payload;
use delta_run::run::RunNotice;
use delta_run::state::RunState;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a server wants on the standard output of a process. None prints a question to stderr: the server asks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ServedOutput {
    /// The result.
    Result,
    /// Pieces of answers and output too, each as one line before the result.
    Pieces,
}

/// What a piece belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PieceKind {
    /// The text of an answer.
    Answer,
    /// The reasoning of an answer.
    Reasoning,
    /// The output of a call.
    Output,
    /// The answer so far does not count: its attempt has failed.
    BrokenOff,
}

/// A piece of what a run generates. The journal has all of it later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedPiece {
    /// What the text is a piece of.
    pub piece: PieceKind,
    /// The number of the last event before it.
    pub after: u64,
    /// The call whose output it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// The text of the piece.
    pub text: String,
}

/// Prints pieces.
pub struct PiecePrinter {
    after: u64,
    /// The calls that run, by their ids; there can be several at the same time.
    calls: BTreeMap<String, CallStream>,
    /// The answers to sensitive questions.
    answers: Vec<String>,
}

/// The output of a call.
struct CallStream {
    /// The beginning of a character, whose end has not arrived.
    partial: Vec<u8>,
    /// Redacts the answers to sensitive questions.
    redactor: StreamRedactor,
}

impl CallStream {
    /// The text that is complete with `bytes`.
    fn push(&mut self, bytes: &[u8]) -> String {
        self.partial.extend_from_slice(&self.redactor.push(bytes));
        let complete = match std::str::from_utf8(&self.partial) {
            Ok(text) => text.len(),
            // The character may be complete with the next piece.
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Err(_) => self.partial.len(),
        };
        let rest = self.partial.split_off(complete);
        String::from_utf8_lossy(&std::mem::replace(&mut self.partial, rest)).into_owned()
    }
}

impl PiecePrinter {
    /// Prints what follows after the state `before`.
    pub fn new(before: &RunState) -> Self {
        let answers = before.sensitive.answers.clone();
        Self { after: before.seq, calls: BTreeMap::new(), answers }
    }

    /// Prints the piece that the notice brings, if it brings one.
    pub fn show_notice(&mut self, notice: &RunNotice<'_>) {
        match notice {
            RunNotice::EventDurable(event, state) => {
                self.after = event.seq;
                self.answers.clone_from(&state.sensitive.answers);
                match &event.payload {
                    Payload::ActionRequest(request) => {
                        let redactor = HiddenAnswers::new(&self.answers).stream_redactor();
                        let stream = CallStream { partial: Vec::new(), redactor };
                        self.calls.insert(request.call_id.clone(), stream);
                    }
                    Payload::ActionResult(result) => {
                        self.calls.remove(&result.call_id);
                    }
                    _ => {}
                }
            }
            // A model can repeat a secret, in pieces that do not show it: the journal's text follows, redacted.
            RunNotice::AnswerPiece(_) | RunNotice::ReasoningPiece(_)
                if !self.answers.is_empty() => {}
            RunNotice::AnswerPiece(text) => self.print(PieceKind::Answer, None, text),
            RunNotice::ReasoningPiece(text) => self.print(PieceKind::Reasoning, None, text),
            RunNotice::OutputPiece { call_id, piece } => {
                if let Some(stream) = self.calls.get_mut(*call_id) {
                    let text = stream.push(piece.bytes);
                    self.print(PieceKind::Output, Some(call_id), &text);
                }
            }
            RunNotice::AttemptFailed(..) => self.print(PieceKind::BrokenOff, None, ""),
            _ => {}
        }
    }

    fn print(&self, piece: PieceKind, call_id: Option<&str>, text: &str) {
        if text.is_empty() && piece != PieceKind::BrokenOff {
            return;
        }
        let call_id = call_id.map(str::to_owned);
        let piece = ServedPiece { piece, after: self.after, call_id, text: text.to_owned() };
        if let Ok(line) = serde_json::to_string(&piece) {
            stdio::print_json(&format!("{line}\n"));
        }
    }
}

/// The pieces at the beginning of `output`, which are removed; what follows them is the result.
pub fn take_pieces(output: &mut Vec<u8>) -> Vec<ServedPiece> {
    let mut pieces = Vec::new();
    let mut consumed = 0;
    while let Some(length) = output[consumed..].iter().position(|byte| *byte == b'\n') {
        let line = &output[consumed..consumed + length];
        let Ok(piece) = serde_json::from_slice(line) else { break };
        pieces.push(piece);
        consumed += length + 1;
    }
    output.drain(..consumed);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_taken_as_whole_lines_and_the_result_stays() {
        let piece = |text: &str| ServedPiece {
            piece: PieceKind::Answer,
            after: 3,
            call_id: None,
            text: text.to_owned(),
        };
        let line = |text: &str| format!("{}\n", serde_json::to_string(&piece(text)).unwrap());
        let all = format!("{}{}{{\"status\": \"COMPLETED\"}}\n", line("one\ntwo"), line("three"));
        for cut in 0..=all.len() {
            let mut output = all.as_bytes()[..cut].to_vec();
            let mut pieces = take_pieces(&mut output);
            output.extend_from_slice(&all.as_bytes()[cut..]);
            pieces.extend(take_pieces(&mut output));
            assert_eq!(pieces, [piece("one\ntwo"), piece("three")], "cut at {cut}");
            assert_eq!(output, b"{\"status\": \"COMPLETED\"}\n");
        }
    }
}
