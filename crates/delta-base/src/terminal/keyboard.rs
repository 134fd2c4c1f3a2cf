//! The terminal on stdin with single keys in place of lines: nothing is echoed, and Ctrl-C and Ctrl-Z keep their meaning. The
//! modes of the shell return however the process ends, except by SIGKILL.

use super::key_decoder::KeyDecoder;
use super::{is_in_foreground, key_decoder::Key};
use crate::signal::{self, to_timespec};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Asks the terminal to mark what is pasted, and no longer.
const MARK_PASTES: &[u8] = b"\x1b[?2004h";
const STOP_MARKING: &[u8] = b"\x1b[?2004l";
/// An ESC after which nothing arrives within this time is a key.
const ESCAPE_TIME: Duration = Duration::from_millis(100);
/// The time between two looks whether the modes were lost: a shell sets its own when the process is stopped, and some do not
/// restore the ones of the process.
const MODES_INTERVAL: Duration = Duration::from_millis(250);

/// The modes of the terminal before the first change.
static SHELL_MODES: OnceLock<Termios> = OnceLock::new();
/// How many [`KeyModes`] there are, except while a [`ShellModes`] exists.
static KEY_MODES: AtomicU32 = AtomicU32::new(0);
/// One change of the modes at a time. The handler of a signal waits for none.
static CHANGE: Mutex<()> = Mutex::new(());

/// Restores the modes of the shell if this process has changed them. Async-signal-safe.
pub fn restore_terminal() {
    super::restore_prompt();
    if KEY_MODES.swap(0, Ordering::SeqCst) > 0 {
        set_shell_modes(OptionalActions::Now);
    }
}

fn set_shell_modes(actions: OptionalActions) {
    // The terminal of a process in the background has the modes of another one.
    if let Some(modes) = SHELL_MODES.get().filter(|_| is_in_foreground()) {
        let _ = rustix::io::write(rustix::stdio::stderr(), STOP_MARKING);
        let _ = tcsetattr(rustix::stdio::stdin(), actions, modes);
    }
}

fn set_key_modes() -> io::Result<()> {
    let Some(modes) = SHELL_MODES.get() else { return Ok(()) };
    let mut modes = modes.clone();
    modes.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
    // Ctrl-C does not discard what was typed before it.
    modes.local_modes.insert(LocalModes::NOFLSH);
    modes.special_codes[SpecialCodeIndex::VMIN] = 1;
    modes.special_codes[SpecialCodeIndex::VTIME] = 0;
    tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &modes)?;
    rustix::io::write(rustix::stdio::stderr(), MARK_PASTES)?;
    Ok(())
}

/// Sets the modes again if another program has changed them, as a shell does when this process was stopped; returns whether it
/// did.
pub fn renew_key_modes() -> bool {
    let _change = lock_change();
    KEY_MODES.load(Ordering::SeqCst) > 0
        && is_in_foreground()
        && has_lost_modes()
        && set_key_modes().is_ok()
}

fn lock_change() -> MutexGuard<'static, ()> {
    CHANGE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the terminal has other modes than [`set_key_modes`] sets.
fn has_lost_modes() -> bool {
    let line_modes = LocalModes::ICANON | LocalModes::ECHO;
    tcgetattr(rustix::stdio::stdin()).is_ok_and(|modes| modes.local_modes.intersects(line_modes))
}

/// The terminal gives single keys until the last of these is dropped. stdin must be a terminal.
#[derive(Debug)]
pub struct KeyModes(());

impl KeyModes {
    /// Changes the modes. `None` if something was typed before the first change: it is for the shell.
    ///
    /// # Errors
    /// The modes cannot be changed.
    pub fn enter(takes_earlier_input: bool) -> io::Result<Option<Self>> {
        let change = lock_change();
        let is_first = SHELL_MODES.get().is_none();
        if is_first {
            let _ = SHELL_MODES.set(tcgetattr(rustix::stdio::stdin())?);
            signal::restore_terminal_on_quit()?;
        }
        if KEY_MODES.fetch_add(1, Ordering::SeqCst) == 0 {
            set_key_modes()?;
        }
        drop(change);
        let modes = Self(());
        // What was typed without Enter can be read now.
        let is_for_shell = is_first && !takes_earlier_input && has_typed_input(Duration::ZERO);
        if is_for_shell {
            KEY_MODES.store(0, Ordering::SeqCst);
            set_shell_modes(OptionalActions::Now);
            std::mem::forget(modes);
            return Ok(None);
        }
        Ok(Some(modes))
    }
}

impl Drop for KeyModes {
    fn drop(&mut self) {
        let _change = lock_change();
        let left = KEY_MODES.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        if left == Ok(1) {
            // What was typed for this process must not reach the shell.
            set_shell_modes(OptionalActions::Flush);
        }
    }
}

/// The modes of the shell, for a prompt that reads a line, until it is dropped.
#[derive(Debug)]
pub struct ShellModes(u32);

impl ShellModes {
    /// Changes the modes if they are others. What was typed before is discarded: it does not answer the prompt.
    pub fn enter() -> Self {
        let _change = lock_change();
        let count = KEY_MODES.swap(0, Ordering::SeqCst);
        if count > 0 {
            set_shell_modes(OptionalActions::Flush);
        }
        Self(count)
    }
}

impl Drop for ShellModes {
    fn drop(&mut self) {
        if self.0 > 0 {
            let _change = lock_change();
            KEY_MODES.store(self.0, Ordering::SeqCst);
            // The next look at the modes tries again.
            let _ = set_key_modes();
        }
    }
}

fn has_typed_input(limit: Duration) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(rustix::stdio::stdin(), PollFlags::IN)];
    poll(&mut fds, Some(&to_timespec(limit))).is_ok_and(|count| count > 0)
}

/// What [`Keyboard::wait`] has found.
#[derive(Debug, Default)]
pub struct KeyboardInput {
    /// The keys, in order.
    pub keys: Vec<Key>,
    /// Whether the other descriptor is readable.
    pub is_woken: bool,
    /// Whether no more keys can come.
    pub is_closed: bool,
    /// Whether another program has used the terminal meanwhile.
    pub has_lost_screen: bool,
}

/// Reads keys.
#[derive(Debug)]
pub struct Keyboard {
    decoder: KeyDecoder,
    _modes: KeyModes,
}

impl Keyboard {
    /// Reads keys as long as it exists.
    pub fn new(modes: KeyModes) -> Self {
        Self { decoder: KeyDecoder::default(), _modes: modes }
    }

    /// Waits until there are keys, `wake` is readable, or it is time to look again.
    pub fn wait(&mut self, wake: &impl AsFd) -> KeyboardInput {
        let mut input =
            KeyboardInput { has_lost_screen: renew_key_modes(), ..KeyboardInput::default() };
        let can_read = is_in_foreground();
        let has_escape = self.decoder.has_open_escape();
        let limit = to_timespec(if has_escape { ESCAPE_TIME } else { MODES_INTERVAL });
        let mut fds = vec![PollFd::new(wake, PollFlags::IN)];
        fds.extend(
            can_read.then(|| PollFd::from_borrowed_fd(rustix::stdio::stdin(), PollFlags::IN)),
        );
        let Ok(count) = poll(&mut fds, Some(&limit)) else { return input };
        input.is_woken = !fds[0].revents().is_empty();
        if fds.get(1).is_some_and(|fd| !fd.revents().is_empty()) {
            self.read(&mut input);
        } else if has_escape && count == 0 {
            input.keys.extend(self.decoder.end_escape());
        }
        input
    }

    fn read(&mut self, input: &mut KeyboardInput) {
        let mut buffer = [0; 4096];
        match rustix::io::read(rustix::stdio::stdin(), &mut buffer) {
            Ok(count @ 1..) => input.keys.extend(self.decoder.decode(&buffer[..count])),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            _ => input.is_closed = true,
        }
    }

    /// The keys that have been pressed and not read yet.
    pub fn read_rest(&mut self) -> Vec<Key> {
        let mut input = KeyboardInput::default();
        while !input.is_closed && is_in_foreground() && has_typed_input(Duration::ZERO) {
            self.read(&mut input);
        }
        input.keys
    }
}
