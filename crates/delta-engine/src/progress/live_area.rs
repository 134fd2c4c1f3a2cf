//! The end of the terminal while delta waits: the text of an answer and the output of a tool as they arrive, and a line
//! that shows what delta waits for. A thread keeps it up to date; every update is one write.

use super::live_text::{OutputTail, TextBlock};
use super::screen_region::{ScreenRegion, row_height};
use super::{BOLD, DIM, WARN, has_colours, text_columns};
use anstyle::Style;
use delta_base::redact::HiddenAnswers;
use delta_base::signal::CancelToken;
use delta_base::terminal::input_line::{InputLine, InputRows};
use delta_base::terminal::keyboard::renew_key_modes;
use delta_base::terminal::{self, StderrSize};
use delta_base::text::text_width::clip_to_width;
use std::io::Write;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const FRAMES: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
const FRAME_MS: u128 = 120;
/// The least time between two updates, except for the first text.
const UPDATE_INTERVAL: Duration = Duration::from_millis(50);
/// How long after the last piece of an answer the status line appears again.
const STATUS_DELAY: Duration = Duration::from_secs(1);
/// How long the size of the terminal has to stay the same. tmux wraps lines again at once, and reports the size of a second
/// change up to 250 ms later: what is painted before moves by the old number of lines, and leaves rows that nothing erases.
const RESIZE_TIME: Duration = Duration::from_millis(300);
/// The number of lines shown of the output of a running tool.
const OUTPUT_LINES: usize = 5;

/// The status after the first signal, while a tool has not ended yet.
const STOPPING: &str = "stopping; Ctrl-C again to stop at once";

/// What delta waits for.
#[derive(Debug, Clone)]
pub(super) enum LiveStatus {
    /// Nothing that has a line.
    Idle,
    /// A call that has started.
    Activity(&'static str),
    /// The next attempt of a call.
    Retry {
        /// Its number: `try 2 of 6`.
        attempt: String,
        /// When it starts.
        at: Instant,
        /// Why the last one failed.
        reason: String,
    },
}

/// How the area shows what arrives.
pub(super) struct LiveOptions<'a> {
    /// Whether everything fits on the screen and can be erased again: the result is printed to the same terminal.
    pub(super) is_erasable: bool,
    /// Whether output has more than its last lines.
    pub(super) is_verbose: bool,
    /// Answers of the user that are redacted.
    pub(super) sensitive_answers: &'a [String],
    /// Says when the user wants delta to stop.
    pub(super) cancel: Option<&'a CancelToken>,
    /// The line below everything into which the user types.
    pub(super) input: Option<&'a InputLine>,
}

/// The live end of the terminal on stderr. It must be dropped before anything else is printed.
pub(super) struct LiveArea {
    screen: Arc<Mutex<LiveScreen>>,
    thread: Option<(Sender<()>, JoinHandle<()>)>,
}

/// The size of the terminal, and since when.
#[derive(Debug, Default)]
struct SizeWatch {
    last: Option<StderrSize>,
    changed_at: Option<Instant>,
}

impl SizeWatch {
    /// Whether the terminal, which has this size now, may still be changing its size.
    fn is_changing(&mut self, size: StderrSize, now: Instant) -> bool {
        if self.last.replace(size).is_some_and(|last| last != size) {
            self.changed_at = Some(now);
        }
        self.changed_at.is_some_and(|changed| now.duration_since(changed) < RESIZE_TIME)
    }
}

struct LiveScreen {
    size: SizeWatch,
    region: ScreenRegion,
    reasoning: TextBlock,
    content: TextBlock,
    output: OutputTail,
    status: Option<LiveStatus>,
    started: Instant,
    /// When the area was painted last, or started.
    last_update: Instant,
    /// When the last piece of an answer arrived.
    last_piece: Option<Instant>,
    is_erasable: bool,
    has_colours: bool,
    cancel: Option<CancelToken>,
    input: Option<InputLine>,
    is_stopped: bool,
}

impl LiveArea {
    /// Starts on stderr, which must be a terminal.
    pub(super) fn start(status: LiveStatus, options: &LiveOptions<'_>) -> Self {
        let answers = HiddenAnswers::new(options.sensitive_answers);
        let lines = if options.is_verbose { usize::MAX } else { OUTPUT_LINES };
        let screen = Arc::new(Mutex::new(LiveScreen {
            size: SizeWatch::default(),
            region: ScreenRegion::default(),
            reasoning: TextBlock::new("~", DIM, answers.stream_redactor()),
            content: TextBlock::new("•", BOLD, answers.stream_redactor()),
            output: OutputTail::new(
                lines.min(terminal::stderr_size().lines.saturating_sub(2)),
                options.sensitive_answers.to_vec(),
            ),
            status: Some(status),
            started: Instant::now(),
            // The line of a call that ends at once would only flicker.
            last_update: Instant::now(),
            last_piece: None,
            is_erasable: options.is_erasable,
            has_colours: has_colours(&std::io::stderr()),
            cancel: options.cancel.cloned(),
            input: options.input.cloned(),
            is_stopped: false,
        }));
        let (painter, changed) = mpsc::channel::<()>();
        if let Some(input) = options.input {
            input.set_painter(painter.clone());
            lock_screen(&screen).paint();
        }
        let painted = Arc::clone(&screen);
        let thread = thread::Builder::new().spawn(move || {
            loop {
                let is_due =
                    changed.recv_timeout(UPDATE_INTERVAL) == Err(RecvTimeoutError::Timeout);
                let mut screen = lock_screen(&painted);
                if screen.is_stopped {
                    return;
                }
                // Several keys may have come at once.
                while changed.try_recv().is_ok() {}
                if is_due {
                    screen.paint_if_due();
                } else {
                    screen.paint();
                }
            }
        });
        // Without a thread only the arrival of text updates the area, which is harmless.
        Self { screen, thread: thread.ok().map(|thread| (painter, thread)) }
    }

    pub(super) fn set_status(&mut self, status: LiveStatus) {
        let mut screen = lock_screen(&self.screen);
        screen.status = Some(status);
        screen.started = Instant::now();
        screen.paint();
    }

    pub(super) fn push_content(&mut self, piece: &str) {
        let mut screen = lock_screen(&self.screen);
        screen.content.push(piece);
        screen.show_piece();
    }

    pub(super) fn push_reasoning(&mut self, piece: &str) {
        let mut screen = lock_screen(&self.screen);
        screen.reasoning.push(piece);
        screen.show_piece();
    }

    pub(super) fn push_output(&mut self, call_id: &str, is_stderr: bool, bytes: &[u8]) {
        let mut screen = lock_screen(&self.screen);
        screen.output.push(call_id, is_stderr, bytes);
        screen.paint_if_due();
    }

    /// Whether it has no status.
    pub(super) fn is_idle(&self) -> bool {
        matches!(lock_screen(&self.screen).status, Some(LiveStatus::Idle))
    }

    /// Whether an answer is on the screen.
    pub(super) fn has_answer(&self) -> bool {
        let screen = lock_screen(&self.screen);
        !(screen.content.is_blank() && screen.reasoning.is_blank())
    }

    /// Whether reasoning is on the screen.
    pub(super) fn has_reasoning(&self) -> bool {
        !lock_screen(&self.screen).reasoning.is_blank()
    }

    /// Removes the status line, and leaves the text of an answer.
    pub(super) fn stop(&mut self) {
        self.stop_thread();
        let mut screen = lock_screen(&self.screen);
        screen.status = None;
        screen.paint_at(terminal::stderr_size());
    }

    /// Ends the area with the complete texts of the answer, or without its content. Returns whether they are on the screen
    /// now; otherwise they have to be printed.
    pub(super) fn finish(mut self, reasoning: Option<&str>, content: Option<&str>) -> bool {
        self.stop_thread();
        let mut screen = lock_screen(&self.screen);
        screen.status = None;
        screen.input = None;
        reasoning.iter().for_each(|text| screen.reasoning.set_text(text));
        screen.content.set_text(content.unwrap_or_default());
        let is_shown = screen.finish();
        screen.reasoning.set_text("");
        screen.content.set_text("");
        is_shown
    }

    fn stop_thread(&mut self) {
        if let Some((painter, thread)) = self.thread.take() {
            lock_screen(&self.screen).is_stopped = true;
            let _ = painter.send(());
            let _ = thread.join();
        }
    }
}

/// The text of an answer stays, everything else is erased.
impl Drop for LiveArea {
    fn drop(&mut self) {
        self.stop_thread();
        let mut screen = lock_screen(&self.screen);
        screen.status = None;
        screen.input = None;
        screen.output.clear();
        screen.paint_at(terminal::stderr_size());
        screen.erase_echo();
        screen.settle();
    }
}

fn lock_screen(screen: &Mutex<LiveScreen>) -> MutexGuard<'_, LiveScreen> {
    screen.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LiveScreen {
    /// Paints the first piece of an answer at once, and others when an update is due.
    fn show_piece(&mut self) {
        if let Some(LiveStatus::Retry { .. }) = self.status {
            self.status = Some(LiveStatus::Activity("thinking"));
        }
        let is_first = self.last_piece.replace(Instant::now()).is_none();
        if is_first {
            self.paint();
        } else {
            self.paint_if_due();
        }
    }

    fn paint_if_due(&mut self) {
        if self.last_update.elapsed() >= UPDATE_INTERVAL {
            self.paint();
        }
    }

    /// Paints unless the terminal may still be changing its size; the next update is soon.
    fn paint(&mut self) {
        let size = terminal::stderr_size();
        if !self.size.is_changing(size, Instant::now()) {
            self.paint_at(size);
        }
    }

    fn paint_at(&mut self, size: StderrSize) {
        let input = self.input.as_ref();
        // Both: the thread that reads keys may have been faster.
        if input.is_some_and(|input| renew_key_modes() | input.take_lost_screen()) {
            self.region.forget();
        }
        let input = input.and_then(|input| input.rows(size.columns, self.has_colours));
        let mut rows = self.text_rows(size);
        if self.is_erasable {
            let below =
                input.as_ref().map_or(0, |input| input.waiting.len() + input.notice.len() + 2);
            let hidden = rows.len() - self.count_fitting(&rows, below, size);
            rows.drain(..hidden);
        }
        rows.extend(self.status_row(size));
        let cursor = input.as_ref().map(|input| input.cursor_column);
        rows.extend(input.into_iter().flat_map(|input| self.input_rows(input)));
        let sequence = self.region.repaint_with_cursor(&rows, cursor, size);
        self.write(&sequence);
    }

    /// The line of input, and what is shown above it.
    fn input_rows(&self, input: InputRows) -> Vec<String> {
        let InputRows { waiting, notice, mark, text, is_placeholder, .. } = input;
        let style = if is_placeholder { DIM } else { Style::new() };
        let mut rows: Vec<String> =
            waiting.iter().map(|row| format!("{DIM}{row}{DIM:#}")).collect();
        rows.extend(notice.iter().map(|row| format!("{WARN}{row}{WARN:#}")));
        rows.push(format!("{BOLD}{mark}{BOLD:#}{style}{text}{style:#}"));
        self.finish_rows(rows)
    }

    /// Paints the complete answer; returns whether it is on the screen.
    fn finish(&mut self) -> bool {
        let size = terminal::stderr_size();
        let rows = self.text_rows(size);
        if self.is_erasable && self.count_fitting(&rows, 0, size) < rows.len() {
            let erased = self.region.repaint(&[], size);
            self.write(&erased);
            return false;
        }
        let is_shown = self.region.can_show(&rows, size);
        if is_shown {
            let sequence = self.region.repaint(&rows, size);
            self.write(&sequence);
        }
        self.settle();
        is_shown
    }

    /// Erases what the terminal has echoed of the key that interrupts the run.
    fn erase_echo(&mut self) {
        if self.cancel.as_ref().is_some_and(CancelToken::is_requested) {
            let sequence = self.region.erase_echo(terminal::stderr_size());
            self.write(&sequence);
        }
    }

    fn settle(&mut self) {
        let end = self.region.settle();
        self.write(end);
    }

    /// The lines of the texts, without the status line.
    fn text_rows(&mut self, size: StderrSize) -> Vec<String> {
        let columns = text_columns(size.columns);
        // The mark and the space after it take two columns.
        let room = columns.saturating_sub(2);
        let mut rows = self.reasoning.layout(room);
        let content = self.content.layout(room);
        if !content.is_empty() {
            rows.push(String::new());
            rows.extend(content);
        }
        rows.extend(self.output.layout(columns));
        self.finish_rows(rows)
    }

    fn status_row(&self, size: StderrSize) -> Option<String> {
        let is_streaming = self.last_piece.is_some_and(|last| last.elapsed() < STATUS_DELAY);
        let status = self.status.as_ref().filter(|_| !is_streaming)?;
        let elapsed = self.started.elapsed();
        if self.input.is_some() && elapsed < UPDATE_INTERVAL {
            return None;
        }
        let frame = FRAMES[usize::try_from(elapsed.as_millis() / FRAME_MS % 10).unwrap_or(0)];
        // The cursor stays after the text: at the edge, an echoed ^C would start a new line.
        let room = size.columns.saturating_sub(4);
        let is_stopping = self
            .cancel
            .as_ref()
            .is_some_and(|cancel| cancel.is_requested() && !cancel.is_expired());
        let row = match status {
            _ if is_stopping => format!("{WARN}{frame} {STOPPING}{WARN:#}"),
            LiveStatus::Idle => return None,
            LiveStatus::Activity(activity) => {
                format!("{DIM}{frame} {activity} {}s{DIM:#}", elapsed.as_secs())
            }
            LiveStatus::Retry { attempt, at, reason } => {
                let left = at.saturating_duration_since(Instant::now());
                let when = if left.is_zero() {
                    String::new()
                } else {
                    format!(" in {} s", left.as_millis().div_ceil(1000))
                };
                let line = clip_to_width(&format!("{attempt}{when}: {reason}"), room);
                let mark = if left.is_zero() { frame } else { '!' };
                format!("{WARN}{mark} {line}{WARN:#}")
            }
        };
        self.finish_rows(vec![row]).pop()
    }

    /// The number of last lines that fit on the screen with the status line and the ones `below` it.
    fn count_fitting(&self, rows: &[String], below: usize, size: StderrSize) -> usize {
        let mut height = 0;
        let fitting = rows.iter().rev().take_while(|row| {
            height += row_height(row, size);
            height + 2 + below <= size.lines
        });
        fitting.count()
    }

    /// The rows, without colours unless the terminal gets them.
    fn finish_rows(&self, rows: Vec<String>) -> Vec<String> {
        if self.has_colours {
            return rows;
        }
        rows.iter().map(|row| anstream::adapter::strip_str(row).to_string()).collect()
    }

    fn write(&mut self, sequence: &str) {
        if sequence.is_empty() {
            return;
        }
        self.last_update = Instant::now();
        // stderr is not buffered: one write.
        let _ = std::io::stderr().write_all(sequence.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_25_4_the_first_text_is_painted_at_once_and_what_follows_when_it_is_due() {
        let block = || TextBlock::new("•", BOLD, HiddenAnswers::default().stream_redactor());
        let now = Instant::now();
        let mut screen = LiveScreen {
            size: SizeWatch::default(),
            region: ScreenRegion::default(),
            reasoning: block(),
            content: block(),
            output: OutputTail::new(OUTPUT_LINES, Vec::new()),
            status: None,
            started: now,
            last_update: now,
            last_piece: None,
            is_erasable: false,
            has_colours: false,
            cancel: None,
            input: None,
            is_stopped: false,
        };
        let mut is_painted = |piece: &str, last_update: Instant| {
            screen.last_update = last_update;
            screen.content.push(piece);
            screen.show_piece();
            screen.last_update != last_update
        };
        // Times that have not come yet: no delay makes an update due.
        let later = now + Duration::from_secs(3600);
        assert!(is_painted("first", later));
        assert!(!is_painted(" second", later));
        assert!(is_painted(" third", now - UPDATE_INTERVAL));
    }

    #[test]
    fn c_33_17_nothing_is_painted_while_the_terminal_changes_its_size() {
        let start = Instant::now();
        let mut watch = SizeWatch::default();
        let mut is_changing = |columns, millis| {
            watch.is_changing(
                StderrSize { columns, lines: 24 },
                start + Duration::from_millis(millis),
            )
        };
        assert!(!is_changing(80, 0) && !is_changing(80, 50));
        // tmux reports a drag every 250 ms.
        assert!(is_changing(74, 100) && is_changing(74, 349));
        assert!(is_changing(56, 350) && is_changing(41, 600) && is_changing(41, 899));
        assert!(!is_changing(41, 900) && !is_changing(41, 5_000));
    }
}
