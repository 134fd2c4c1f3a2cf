//! The line at the end of the terminal into which a person types while a run works, and what is shown above it. Shared by the
//! thread that reads the keys and the one that paints.

use crate::terminal::key_decoder::Key;
use crate::terminal::line_editor::{EditorEffect, LineEditor, show_start};
use crate::text::text_width::{clip_to_width, wrap_words};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the line begins with.
const MARK: &str = "> ";
/// The most messages that are shown while they wait.
const MAX_WAITING_ROWS: usize = 3;

/// A line of input. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct InputLine(Arc<Mutex<InputState>>);

#[derive(Debug, Default)]
struct InputState {
    editor: LineEditor,
    /// What an empty line shows where it has another style than a text.
    placeholder: &'static str,
    waiting: Vec<WaitingText>,
    notice: Option<String>,
    is_open: bool,
    has_lost_screen: bool,
    painter: Option<Sender<()>>,
}

/// A message that was sent and not received yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingText {
    /// Its id.
    pub id: String,
    /// What it waits for, such as `waits`.
    pub label: &'static str,
    /// The message.
    pub text: String,
}

/// The rows of the line, without styles.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct InputRows {
    /// The messages that wait.
    pub waiting: Vec<String>,
    /// Why a text was not sent, or what the line is for.
    pub notice: Vec<String>,
    /// What the line begins with.
    pub mark: &'static str,
    /// The text, or the placeholder.
    pub text: String,
    /// Whether it is the placeholder.
    pub is_placeholder: bool,
    /// The column of the cursor.
    pub cursor_column: usize,
}

impl InputLine {
    fn lock(&self) -> MutexGuard<'_, InputState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut InputState) -> T) -> T {
        let mut state = self.lock();
        let changed = change(&mut state);
        if let Some(painter) = &state.painter {
            // Without a painter, the next one shows it.
            let _ = painter.send(());
        }
        changed
    }

    /// Makes each change send to `painter`.
    pub fn set_painter(&self, painter: Sender<()>) {
        self.lock().painter = Some(painter);
    }

    /// Opens the line for typing; `placeholder` is what it shows while it is empty.
    pub fn open(&self, placeholder: &'static str) {
        self.change(|state| {
            state.is_open = true;
            state.placeholder = placeholder;
        });
    }

    /// Hides the line, and what is shown above it.
    pub fn close(&self) {
        self.change(|state| {
            let editor = std::mem::take(&mut state.editor);
            let waiting = std::mem::take(&mut state.waiting);
            *state = InputState {
                editor,
                waiting,
                painter: state.painter.take(),
                ..InputState::default()
            };
        });
    }

    /// The text.
    pub fn text(&self) -> String {
        self.lock().editor.text().to_owned()
    }

    /// No message is shown any more.
    pub fn forget_waiting(&self) {
        self.change(|state| state.waiting.clear());
    }

    /// Applies a key; returns what it is for if it is not for the text.
    pub fn apply(&self, key: Key) -> Option<EditorEffect> {
        self.change(|state| {
            state.notice = None;
            state.editor.apply(key)
        })
    }

    /// Adds the end of a line to the text.
    pub fn break_line(&self) {
        self.apply(Key::Paste("\n".to_owned()));
    }

    /// Takes the text.
    pub fn take_text(&self) -> String {
        self.change(|state| state.editor.take())
    }

    /// Returns a text that was not sent to the line, before what was typed since.
    pub fn put_back(&self, text: &str) {
        self.change(|state| state.editor.put_before(text));
    }

    /// Shows a line above the input until the next key.
    pub fn set_notice(&self, notice: String) {
        self.change(|state| state.notice = Some(notice));
    }

    /// Shows a message until [`InputLine::remove_waiting`].
    pub fn add_waiting(&self, message: WaitingText) {
        self.change(|state| {
            state.waiting.retain(|known| known.id != message.id);
            state.waiting.push(message);
        });
    }

    /// Shows another label at a message, if it still waits.
    pub fn relabel_waiting(&self, id: &str, label: &'static str) {
        self.change(|state| {
            let waiting = state.waiting.iter_mut().filter(|message| message.id == id);
            waiting.for_each(|message| message.label = label);
        });
    }

    /// The message was received.
    pub fn remove_waiting(&self, id: &str) {
        self.change(|state| state.waiting.retain(|message| message.id != id));
    }

    /// The message that was sent first and still waits.
    pub fn first_waiting(&self) -> Option<WaitingText> {
        self.lock().waiting.first().cloned()
    }

    /// Another program has written to the terminal since the last painting.
    pub fn lose_screen(&self) {
        self.change(|state| state.has_lost_screen = true);
    }

    /// Whether another program has written to the terminal since this was called last.
    pub fn take_lost_screen(&self) -> bool {
        std::mem::take(&mut self.lock().has_lost_screen)
    }

    /// The rows in a terminal of `columns`; `None` unless it is open. `has_styles` says whether a placeholder looks different from a
    /// text.
    pub fn rows(&self, columns: usize, has_styles: bool) -> Option<InputRows> {
        let state = self.lock();
        if !state.is_open {
            return None;
        }
        // The last column stays free: a terminal would break the line.
        let room = columns.saturating_sub(1).max(1);
        let mark = if room > 2 * MARK.len() { MARK } else { "" };
        let window = state.editor.window(room - mark.len());
        let is_placeholder = has_styles && state.editor.text().is_empty();
        let text = if is_placeholder {
            clip_to_width(state.placeholder, room - mark.len())
        } else {
            window.text
        };
        let hidden = state.waiting.len().saturating_sub(MAX_WAITING_ROWS);
        let mut waiting: Vec<String> = state.waiting[hidden..]
            .iter()
            .map(|message| {
                let text = show_start(&message.text, columns);
                clip_to_width(&format!("  {}: {text}", message.label), room)
            })
            .collect();
        if hidden > 0 {
            waiting.insert(0, clip_to_width(&format!("  … {hidden} more wait"), room));
        }
        // Where a placeholder would look like a text, it is above the line.
        let hint = (!has_styles && state.editor.text().is_empty() && waiting.is_empty())
            .then(|| state.placeholder.to_owned());
        let notice = state.notice.as_ref().map(|notice| format!("! {notice}")).or(hint);
        let notice = notice.iter().flat_map(|notice| wrap_words(notice, room));
        let notice = notice.map(|row| clip_to_width(row, room)).collect();
        let cursor_column = mark.len() + window.cursor_column;
        Some(InputRows { waiting, notice, mark, text, is_placeholder, cursor_column })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_broken_at_spaces() {
        let line = InputLine::default();
        line.open("");
        line.set_notice("/clear was not sent: delta run".to_owned());
        let rows = line.rows(20, true).unwrap();
        assert_eq!(rows.notice, ["! /clear was not", "sent: delta run"]);
    }

    #[test]
    fn without_styles_the_placeholder_is_above_the_line_until_something_is_typed() {
        let line = InputLine::default();
        line.open("a task");
        let rows = line.rows(20, true).unwrap();
        assert_eq!((rows.notice.len(), &*rows.text), (0, "a task"));
        let rows = line.rows(20, false).unwrap();
        assert_eq!((rows.notice, &*rows.text), (vec!["a task".to_owned()], ""));
        line.apply(Key::Char('x'));
        assert!(line.rows(20, false).unwrap().notice.is_empty());
    }
}
