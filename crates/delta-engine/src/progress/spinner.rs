//! The status line at the end of the terminal: what delta waits for, and for how long.

use super::DIM;
use std::io::Write;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const FRAMES: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
const INTERVAL: Duration = Duration::from_millis(120);

/// Turns until it is dropped, and then erases its line. It must be dropped before anything else is
/// printed.
pub(super) struct Spinner {
    stop_sender: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Spinner {
    /// Starts on stderr, which must be a terminal.
    pub(super) fn start(activity: &'static str) -> Self {
        let (stop, stopped) = mpsc::channel::<()>();
        let thread = thread::Builder::new().spawn(move || {
            let started = Instant::now();
            let frames = FRAMES.into_iter().cycle();
            for frame in frames {
                let seconds = started.elapsed().as_secs();
                // The cursor stays after the text: at the edge, an echoed ^C would start a new
                // line.
                draw_status_line(&format!("{DIM}{frame} {activity} {seconds}s{DIM:#}"));
                if stopped.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
            draw_status_line("");
        });
        // Without a thread there is no spinner, which is harmless.
        Self { stop_sender: Some(stop), thread: thread.ok() }
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.stop_sender = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Replaces the status line.
fn draw_status_line(text: &str) {
    // Without colour the line is still drawn.
    let plain = anstream::AutoStream::choice(&std::io::stderr()) == anstream::ColorChoice::Never;
    let text = if plain { anstream::adapter::strip_str(text).to_string() } else { text.to_owned() };
    let mut stderr = std::io::stderr().lock();
    let _ = write!(stderr, "\r\x1b[2K{text}").and_then(|()| stderr.flush());
}
