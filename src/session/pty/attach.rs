//! A person at a session, and output that is followed: the two answers that are no JSON.

use super::protocol::{Link, Reply, Request};
use super::screen::Size;
use super::{LARGEST, PtyError, PtySessions, Result, store};
use crate::id::SessionId;
use crate::signal::timespec;
use crate::terminal::{self, Raw};
use rustix::event::{PollFd, PollFlags, poll};
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// Control and `]`.
const LEAVE: u8 = 0x1d;
/// A holder that is stopped does not keep a person.
const GOODBYE: Duration = Duration::from_secs(1);
/// How much is typed at once.
const BUFFER: usize = 16 * 1024;
/// What may have been changed about a terminal: mouse, paste, keypad, colours, cursor, the other screen, its title.
const RESTORED: &[u8] = b"\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1004l\x1b[?2004l\x1b[?1l\x1b>\x1b[r\x1b[0m\x1b[?25h\x1b[0 q\x1b[?1049l\x1b[23;0t";
/// A screen of its own, empty; and the title is kept, to say there how the session is left.
const PREPARED: &[u8] = b"\x1b[22;0t\x1b[?1049h\x1b[2J\x1b[H";

/// Why a person is no longer at a session, or nothing follows any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// The person left it, or was detached; the program goes on.
    Detached,
    /// The session ended, with this exit code as far as it is known.
    Ended(Option<i32>),
}

impl PtySessions {
    /// Brings a session to the terminal that stdin and stdout are, until the person presses Control and `]`, is detached,
    /// or the program ends. The terminal is then as it was.
    pub fn attach(&self, id: &SessionId) -> Result<Left> {
        if !terminal::is_at_person() {
            return Err(PtyError::NoTerminal);
        }
        let system = |action| move |source| PtyError::System { action, source };
        let mut link = self.connect(id)?;
        let size = size();
        link.push(&Request::Attach(size), &[]);
        // Refused before anything changes.
        let painted = match self.next(&mut link, Instant::now().checked_add(super::PATIENCE))? {
            Some((Reply::Output, painted)) => painted,
            Some((Reply::Refused(reason), _)) => return Err(PtyError::Refused(reason)),
            Some(_) => return Err(PtyError::Silent),
            None => return Err(self.why_gone(id)),
        };
        self.cancel.wake_on_resize().map_err(system("prepare for signals"))?;
        let raw = Raw::begin(RESTORED).map_err(system("prepare the terminal"))?;
        show(PREPARED)?;
        show(format!("\x1b]2;{id}: Control and ] leaves\x07").as_bytes())?;
        show(&painted)?;
        let left = self.lend(&mut link, size);
        drop(raw);
        left
    }

    fn lend(&self, link: &mut Link, mut size: Size) -> Result<Left> {
        let (stdin, mut buffer) = (io::stdin(), vec![0; BUFFER]);
        // Until when the holder may take to let us go.
        let mut leaving: Option<Instant> = None;
        loop {
            link.receive();
            while let Some((reply, output)) = link.take() {
                match reply {
                    Reply::Output => show(&output)?,
                    Reply::Over { ended: false, .. } => return Ok(Left::Detached),
                    Reply::Over { exit_code, .. } => return Ok(Left::Ended(exit_code)),
                    Reply::Refused(reason) => return Err(PtyError::Refused(reason)),
                    Reply::Done(_) => {}
                }
            }
            let now = Instant::now();
            match leaving {
                _ if link.is_closed() => return Ok(Left::Ended(None)),
                Some(until) if now >= until => return Ok(Left::Detached),
                None if self.cancel.requested() => leaving = Some(leave(link)),
                _ => {}
            }
            if size != self::size() {
                size = self::size();
                link.push(&Request::Resized(size), &[]);
            }
            link.send();
            if self.wait(link, leaving) && leaving.is_none() {
                let length = rustix::io::read(&stdin, &mut buffer[..]).unwrap_or(0);
                let typed = &buffer[..length];
                let until = typed.iter().position(|byte| *byte == LEAVE);
                link.push(&Request::Write, &typed[..until.unwrap_or(length)]);
                if until.is_some() || length == 0 {
                    leaving = Some(leave(link));
                }
            }
        }
    }

    /// Waits until there is something to be done; says whether something was typed.
    fn wait(&self, link: &Link, leaving: Option<Instant>) -> bool {
        let stdin = io::stdin();
        let write = if link.waiting() > 0 { PollFlags::OUT } else { PollFlags::empty() };
        let mut fds = vec![
            PollFd::from_borrowed_fd(link.fd(), PollFlags::IN | write),
            PollFd::from_borrowed_fd(self.cancel.fd(), PollFlags::IN),
        ];
        if leaving.is_none() {
            fds.push(PollFd::new(&stdin, PollFlags::IN));
        }
        let limit = leaving.map(|until| until.saturating_duration_since(Instant::now()));
        // An interrupted poll only means to look again.
        let polled = poll(&mut fds, limit.map(timespec).as_ref());
        self.cancel.drain();
        polled.is_ok() && fds.get(2).is_some_and(|fd| !fd.revents().is_empty())
    }

    /// Gives the output of a session to `write` until the session ends, at most for `limit`, or until `write` fails.
    pub fn follow(
        &self,
        id: &SessionId,
        (raw, lines): (bool, Option<usize>),
        limit: Option<Duration>,
        mut write: impl FnMut(&[u8]) -> bool,
    ) -> Result<Left> {
        let until = limit.and_then(|limit| Instant::now().checked_add(limit));
        let mut link = match self.connect(id) {
            Ok(link) => link,
            Err(PtyError::Ended(_) | PtyError::Terminated(_)) => {
                return self.left(id, raw, lines, write);
            }
            Err(error) => return Err(error),
        };
        link.push(&Request::Follow { raw, lines }, &[]);
        loop {
            match self.next(&mut link, until) {
                Ok(Some((Reply::Output, output))) => {
                    if !write(&output) {
                        return Ok(Left::Detached);
                    }
                }
                Ok(Some((Reply::Over { exit_code, .. }, _))) => return Ok(Left::Ended(exit_code)),
                Ok(Some((Reply::Refused(reason), _))) => return Err(PtyError::Refused(reason)),
                Ok(Some((Reply::Done(_), _))) => {}
                Ok(None) => return Err(self.why_gone(id)),
                // The time is over.
                Err(PtyError::Silent) => return Ok(Left::Detached),
                Err(error) => return Err(error),
            }
        }
    }

    /// The same for a session that has ended.
    fn left(
        &self,
        id: &SessionId,
        raw: bool,
        lines: Option<usize>,
        mut write: impl FnMut(&[u8]) -> bool,
    ) -> Result<Left> {
        let dir = store::dir(&self.sessions.cwd, id)?;
        let (output, _) = store::Output::restore(&dir)?;
        let ring = if raw { &output.raw } else { &output.text };
        write(&ring.from(lines.map_or_else(|| ring.mark(), |lines| ring.lines(lines))));
        Ok(Left::Ended(store::read(&dir)?.exit_code))
    }
}

/// Asks to be let go; gives until when that is waited for.
fn leave(link: &mut Link) -> Instant {
    link.push(&Request::Detach, &[]);
    Instant::now() + GOODBYE
}

/// The size of the person's terminal.
fn size() -> Size {
    let (cols, rows) = terminal::size().unwrap_or((80, 24));
    let number = |number: u16, usual| number.min(LARGEST).try_into().unwrap_or(usual);
    Size { cols: number(cols, Size::USUAL.cols), rows: number(rows, Size::USUAL.rows) }
}

fn show(output: &[u8]) -> Result<()> {
    let mut stdout = io::stdout().lock();
    let shown = stdout.write_all(output).and_then(|()| stdout.flush());
    shown.map_err(|source| PtyError::System { action: "write to the terminal", source })
}
