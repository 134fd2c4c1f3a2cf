//! What one stream printed: in memory while it is small, in a file when it is not, never more than that.

use crate::text::{SecretStream, Secrets};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A stream of at most this many bytes is given whole: 64 KiB.
pub const INLINE: usize = 64 * 1024;

/// With [`keep_all`](super::Command::keep_all), a stream of at most this many bytes is given whole: 64 MiB.
pub const INLINE_ALL: usize = 64 * 1024 * 1024;

/// At most this many bytes of a stream go to its file: 1 GiB.
pub const MAX_SPOOL: u64 = 1024 * 1024 * 1024;

/// So old may output be before it lies in a file, where it outlives an engine that is killed.
const SPOOL_AFTER: Duration = Duration::from_millis(100);

/// What one stream printed.
#[derive(Debug, Default)]
pub struct Capture {
    /// How many bytes it was, counted after secrets were hidden; all that was printed, the discarded too.
    pub bytes: u64,
    /// The whole stream, when it is at most [`INLINE`] bytes (with `keep_all`: [`INLINE_ALL`]).
    pub whole: Option<Vec<u8>>,
    /// When `bytes` is more than `keep`: the first `keep / 2` bytes. Otherwise everything.
    pub head: Vec<u8>,
    /// When `bytes` is more than `keep`: the last `keep / 2` bytes. Otherwise empty.
    pub tail: Vec<u8>,
    /// Where the stream lies, when it lies in a file: it is more than [`INLINE`] bytes or not UTF-8.
    pub file: Option<PathBuf>,
    /// The check value of the file.
    pub crc: Option<u32>,
    /// How many bytes beyond [`MAX_SPOOL`] were not written to the file.
    pub discarded: u64,
    /// Why the stream does not lie in a file although it should: the file could not be created or written (a full
    /// disk). What had been written is removed; all else about the stream is still right.
    pub error: Option<String>,
}

impl Capture {
    /// The capture of a stream that was `bytes` and lies in `file`, of which `keep` bytes are shown; as with
    /// [`keep_all`](super::Command::keep_all).
    pub fn of(bytes: Vec<u8>, keep: usize, file: Option<PathBuf>) -> Self {
        let mut ends = Ends { keep, head: Vec::new(), tail: Vec::new() };
        ends.push(&bytes);
        let count = bytes.len() as u64;
        let (head, tail) = ends.finish(count);
        let whole = Some(bytes).filter(|bytes| bytes.len() <= INLINE_ALL);
        Self { bytes: count, whole, head, tail, file, ..Self::default() }
    }

    /// The capture of a stream on which nothing was printed.
    pub(super) fn empty() -> Self {
        Self { whole: Some(Vec::new()), ..Self::default() }
    }
}

/// Takes a stream piece by piece and becomes its [`Capture`].
pub(super) struct Recorder {
    filter: SecretStream,
    sink: Sink,
}

impl Recorder {
    /// A recorder that hides `secrets`, shows `keep` bytes, and writes a large stream to `file` if there is one.
    pub(super) fn new(
        secrets: &Secrets,
        keep: usize,
        keep_all: bool,
        file: Option<PathBuf>,
    ) -> Self {
        let sink = Sink {
            bytes: 0,
            memory: Some(Vec::new()),
            limit: if keep_all { INLINE_ALL } else { INLINE },
            ends: Ends { keep, head: Vec::new(), tail: Vec::new() },
            store: file.map_or(Store::None, |path| Store::Planned { path, since: None }),
            max_spool: MAX_SPOOL,
            discarded: 0,
            error: None,
        };
        Self { filter: secrets.stream(), sink }
    }

    /// Takes the next piece as it was printed.
    pub(super) fn push(&mut self, piece: &[u8]) {
        self.sink.push(&self.filter.push(piece));
    }

    /// When [`Recorder::flush`] has something to do.
    pub(super) fn flush_at(&self) -> Option<Instant> {
        match self.sink.store {
            Store::Planned { since: Some(since), .. } => Some(since + SPOOL_AFTER),
            _ => None,
        }
    }

    /// Writes what was printed into the file if it has been out of it for long enough.
    pub(super) fn flush(&mut self, now: Instant) {
        if self.flush_at().is_some_and(|at| at <= now) {
            self.sink.open();
        }
    }

    /// Ends the stream.
    pub(super) fn finish(self) -> Capture {
        let Self { filter, mut sink } = self;
        sink.push(&filter.finish());
        sink.finish()
    }
}

/// Where the clean bytes of a stream go.
struct Sink {
    bytes: u64,
    /// Everything so far, as long as it is at most `limit`.
    memory: Option<Vec<u8>>,
    limit: usize,
    ends: Ends,
    store: Store,
    max_spool: u64,
    discarded: u64,
    error: Option<String>,
}

enum Store {
    /// There is no file: none was wanted, or it failed.
    None,
    /// The file does not exist yet. Then the stream is small and wholly in memory, its first byte there `since`.
    Planned { path: PathBuf, since: Option<Instant> },
    /// The file holds the stream.
    Open { path: PathBuf, file: File, written: u64, crc: crc32fast::Hasher },
}

impl Sink {
    fn push(&mut self, piece: &[u8]) {
        if piece.is_empty() {
            return;
        }
        self.bytes += piece.len() as u64;
        self.ends.push(piece);
        if self.bytes > INLINE as u64 {
            self.open();
        }
        self.write(piece);
        self.remember(piece);
        if let Store::Planned { since, .. } = &mut self.store {
            since.get_or_insert_with(Instant::now);
        }
    }

    fn remember(&mut self, piece: &[u8]) {
        match &mut self.memory {
            Some(memory) if memory.len() + piece.len() <= self.limit => {
                memory.extend_from_slice(piece)
            }
            memory => *memory = None,
        }
    }

    /// Creates a planned file with what is in memory.
    fn open(&mut self) {
        let Store::Planned { path, .. } = &mut self.store else { return };
        let path = std::mem::take(path);
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => {
                self.store = Store::Open { path, file, written: 0, crc: crc32fast::Hasher::new() };
                let memory = self.memory.take().unwrap_or_default();
                self.write(&memory);
                self.memory = Some(memory);
            }
            Err(error) => {
                self.store = Store::None;
                self.error = Some(format!("cannot create {}: {error}", path.display()));
            }
        }
    }

    /// Writes to the file if it is open, up to its limit. After a failure there is no file any more.
    fn write(&mut self, piece: &[u8]) {
        let Store::Open { path, file, written, crc } = &mut self.store else { return };
        let room = usize::try_from(self.max_spool - *written).unwrap_or(usize::MAX);
        let fitting = &piece[..piece.len().min(room)];
        match file.write_all(fitting) {
            Ok(()) => {
                crc.update(fitting);
                *written += fitting.len() as u64;
                self.discarded += (piece.len() - fitting.len()) as u64;
            }
            Err(error) => {
                self.error = Some(format!("cannot write {}: {error}", path.display()));
                // A torn file would be taken for the stream, and the disk may be full.
                let _ = std::fs::remove_file(path);
                self.store = Store::None;
            }
        }
    }

    fn finish(mut self) -> Capture {
        let small = self.memory.as_ref().filter(|whole| whole.len() <= INLINE);
        let file = if small.is_some_and(|whole| std::str::from_utf8(whole).is_ok()) {
            self.remove()
        } else {
            self.open();
            self.path()
        };
        let crc = match &self.store {
            Store::Open { crc, .. } if file.is_some() => Some(crc.clone().finalize()),
            _ => None,
        };
        let (head, tail) = self.ends.finish(self.bytes);
        let Self { bytes, memory: whole, discarded, error, .. } = self;
        Capture { bytes, whole, head, tail, file, crc, discarded, error }
    }

    fn path(&self) -> Option<PathBuf> {
        match &self.store {
            Store::Open { path, .. } => Some(path.clone()),
            _ => None,
        }
    }

    /// Removes the file, which memory made superfluous; gives it if it cannot be removed.
    fn remove(&self) -> Option<PathBuf> {
        let path = self.path()?;
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Some(path),
            _ => None,
        }
    }
}

/// The beginning and the end of a stream.
struct Ends {
    keep: usize,
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl Ends {
    fn push(&mut self, piece: &[u8]) {
        let (first, rest) = piece.split_at(piece.len().min(self.keep / 2 - self.head.len()));
        self.head.extend_from_slice(first);
        let room = self.keep - self.keep / 2;
        self.tail.extend_from_slice(&rest[rest.len().saturating_sub(room)..]);
        // Trimmed only when it has doubled, so that small pieces do not move the whole tail each time.
        if self.tail.len() / 2 > room {
            self.trim(room);
        }
    }

    fn trim(&mut self, room: usize) {
        self.tail.drain(..self.tail.len().saturating_sub(room));
    }

    fn finish(mut self, bytes: u64) -> (Vec<u8>, Vec<u8>) {
        if bytes > self.keep as u64 {
            self.trim(self.keep / 2);
        } else {
            self.head.append(&mut self.tail);
        }
        (self.head, self.tail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorder(keep: usize, file: Option<PathBuf>) -> Recorder {
        Recorder::new(&Secrets::default(), keep, false, file)
    }

    #[test]
    fn head_and_tail_are_right_however_the_stream_is_cut() {
        let stream: Vec<u8> = (0..=99).collect();
        for keep in [0, 1, 2, 7, 20, 99, 100, 101, usize::MAX] {
            for size in [1, 3, 10, 64, 100] {
                let mut recorder = recorder(keep, None);
                stream.chunks(size).for_each(|piece| recorder.push(piece));
                let capture = recorder.finish();
                let half = keep / 2;
                let expected = if keep < 100 {
                    (&stream[..half], &stream[100 - half..])
                } else {
                    (&stream[..], &[][..])
                };
                assert_eq!(
                    (&capture.head[..], &capture.tail[..]),
                    expected,
                    "keep {keep}, pieces of {size}"
                );
                assert_eq!(capture.whole.as_deref(), Some(&stream[..]));
            }
        }
    }

    #[test]
    fn output_is_on_disk_soon_and_a_small_text_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.stdout");
        let mut recorder = recorder(10, Some(path.clone()));
        assert_eq!(recorder.flush_at(), None);
        recorder.push(b"one ");
        let at = recorder.flush_at().unwrap();
        recorder.flush(at - Duration::from_millis(1));
        assert!(!path.exists());
        recorder.flush(at);
        assert_eq!(std::fs::read(&path).unwrap(), b"one ");
        recorder.push(b"two");
        assert_eq!(std::fs::read(&path).unwrap(), b"one two");
        let capture = recorder.finish();
        assert_eq!((capture.whole.as_deref(), capture.file), (Some(&b"one two"[..]), None));
        assert!(!path.exists());
    }

    #[test]
    fn bytes_that_are_no_text_lie_in_a_private_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.stdout");
        let mut recorder = recorder(10, Some(path.clone()));
        recorder.push(b"\xff\x00");
        let capture = recorder.finish();
        assert_eq!(
            (capture.whole.as_deref(), capture.file.as_ref()),
            (Some(&b"\xff\x00"[..]), Some(&path))
        );
        assert_eq!(std::fs::read(&path).unwrap(), b"\xff\x00");
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &std::fs::metadata(&path).unwrap().permissions(),
        );
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn what_is_beyond_the_limit_of_the_file_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let mut recorder = recorder(4, Some(dir.path().join("x.stdout")));
        recorder.sink.max_spool = 100_000;
        (0..3).for_each(|_| recorder.push(&[b'a'; 50_000]));
        recorder.push(b"end");
        let capture = recorder.finish();
        assert_eq!((capture.bytes, capture.discarded, capture.whole), (150_003, 50_003, None));
        assert_eq!((&capture.head[..], &capture.tail[..]), (&b"aa"[..], &b"nd"[..]));
        assert_eq!(std::fs::metadata(capture.file.unwrap()).unwrap().len(), 100_000);
    }

    #[test]
    fn an_existing_file_is_never_touched() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.stdout");
        std::fs::write(&path, "other").unwrap();
        let mut recorder = recorder(4, Some(path.clone()));
        recorder.push(&[b'a'; 100_000]);
        let capture = recorder.finish();
        assert!(capture.error.unwrap().contains("cannot create"));
        assert_eq!((capture.bytes, capture.file), (100_000, None));
        assert_eq!(std::fs::read(&path).unwrap(), b"other");
    }

    #[test]
    fn a_full_disk_leaves_no_torn_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.stdout");
        std::fs::write(&path, "torn").unwrap();
        let mut recorder = recorder(4, None);
        let file = OpenOptions::new().write(true).open("/dev/full").unwrap();
        recorder.sink.store =
            Store::Open { path: path.clone(), file, written: 0, crc: crc32fast::Hasher::new() };
        recorder.push(b"abcdef");
        recorder.push(b"ghi");
        let capture = recorder.finish();
        assert!(capture.error.unwrap().contains("cannot write"));
        assert_eq!((capture.whole.as_deref(), capture.file), (Some(&b"abcdefghi"[..]), None));
        assert!(!path.exists());
    }
}
