//! A line at the end of the terminal that says what delta waits for, and for how long.

use super::DIM;
use std::io::Write;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const FRAMES: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
const INTERVAL: Duration = Duration::from_millis(120);

/// Turns until it is dropped, and leaves nothing behind then. Whoever writes to the terminal drops it first.
pub(super) struct Spinner {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Spinner {
    /// Starts one on stderr, which is a terminal.
    pub(super) fn start(doing: &'static str) -> Self {
        let (stop, stopped) = mpsc::channel::<()>();
        let thread = thread::Builder::new().spawn(move || {
            let begun = Instant::now();
            let frames = FRAMES.into_iter().cycle();
            for frame in frames {
                let seconds = begun.elapsed().as_secs();
                // The cursor stays behind the text, not at the edge: an echoed ^C there would begin a line of its own.
                draw(&format!("{DIM}{frame} {doing} {seconds}s{DIM:#}"));
                if stopped.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
            draw("");
        });
        // Without a thread there is no spinner, and nothing else is missing.
        Self { stop: Some(stop), thread: thread.ok() }
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Puts `text` in the place of the line.
fn draw(text: &str) {
    // Where there is no colour there is the line all the same.
    let plain = anstream::AutoStream::choice(&std::io::stderr()) == anstream::ColorChoice::Never;
    let text = if plain { anstream::adapter::strip_str(text).to_string() } else { text.to_owned() };
    let mut stderr = std::io::stderr().lock();
    let _ = write!(stderr, "\r\x1b[2K{text}").and_then(|()| stderr.flush());
}
