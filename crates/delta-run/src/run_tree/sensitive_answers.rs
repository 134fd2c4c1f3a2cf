//! The answers to sensitive questions in the journals of a run and of the runs around it, for readers that hide them.
//!
//! A run gives an answer to the runs that it starts, in a task or a file, and gets it from them, in an output.

use crate::event::Event;
use crate::state::sensitive_questions::SensitiveQuestions;
use crate::{journal, run_tree};
use std::path::Path;

/// What the types of both events of a question begin with.
const QUESTION_EVENTS: &[u8] = b"HUMAN_INPUT_RE";

/// The sensitive answers of the run in `run_dir`, as far as its journal can be read.
pub fn read_answers(run_dir: &Path) -> Vec<String> {
    let bytes = journal::read_journal_bytes(run_dir).unwrap_or_default();
    let mut questions = SensitiveQuestions::default();
    // Readers of many runs need this of each: most have no such lines.
    if memchr::memmem::find(&bytes, QUESTION_EVENTS).is_some() {
        for line in bytes.split(|byte| *byte == b'\n') {
            if memchr::memmem::find(line, QUESTION_EVENTS).is_some()
                && let Ok(event) = Event::from_line(&String::from_utf8_lossy(line))
            {
                questions.apply(&event);
            }
        }
    }
    questions.answers
}

/// The sensitive answers of the runs that started the run in `run_dir`, the directories of which may have moved with it.
pub fn read_enclosing_answers(run_dir: &Path) -> Vec<String> {
    let enclosing = run_tree::find_enclosing_runs(run_dir).into_iter().skip(1);
    let dirs = enclosing.flat_map(|dir| {
        let sibling = dir.file_name().map(|name| run_dir.with_file_name(name));
        sibling.filter(|sibling| *sibling != dir).into_iter().chain([dir])
    });
    dirs.flat_map(|dir| read_answers(&dir)).collect()
}

/// The sensitive answers of the run in `run_dir`, the runs that started it, and the runs below it.
pub fn read_tree_answers(run_dir: &Path) -> Vec<String> {
    let below = run_tree::find_runs_below(run_dir);
    let mut answers = read_enclosing_answers(run_dir);
    answers.extend(read_answers(run_dir));
    answers.extend(below.dirs.iter().flat_map(|dir| read_answers(dir)));
    answers
}
