//! Captures one output stream in bounded memory, and a large one in a spool file.

use delta_base::durable;
use delta_base::hex::encode_hex;
use delta_base::redact::{Secrets, StreamRedactor};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The length up to which a stream is captured whole: 64 KiB.
pub const INLINE_BYTES: usize = 64 * 1024;

/// The same with [`ProcessCommand::capture_whole`](super::ProcessCommand::capture_whole): 64 MiB.
pub const INLINE_WHOLE_BYTES: usize = 64 * 1024 * 1024;

/// The limit of a spool file: 1 GiB.
pub const MAX_SPOOL_BYTES: u64 = 1024 * 1024 * 1024;

/// The age at which output is written to the spool file, where it survives a killed engine.
const SPOOL_DELAY: Duration = Duration::from_millis(100);

/// The captured output of one stream.
#[derive(Debug, Default)]
pub struct OutputCapture {
    /// The length of the stream after redaction, including discarded bytes.
    pub bytes: u64,
    /// The whole stream, up to [`INLINE_BYTES`] (with `capture_whole`: [`INLINE_WHOLE_BYTES`]).
    pub whole: Option<Vec<u8>>,
    /// The first half of the excerpt; the whole stream when that fits in the excerpt.
    pub head: Vec<u8>,
    /// The last half of the excerpt; empty when the whole stream fits in the excerpt.
    pub tail: Vec<u8>,
    /// The spool file, for a stream that is larger than [`SpoolFiles::inline_bytes`](super::SpoolFiles::inline_bytes)
    /// or not text: with a NUL, or not UTF-8.
    pub file: Option<PathBuf>,
    /// The SHA-256 of the spool file.
    pub sha256: Option<String>,
    /// The bytes beyond the limit of the spool file, which were not written to the spool file.
    pub discarded: u64,
    /// Why the spool file could not be created or written, such as a full disk. The file is removed then; the other
    /// fields are still right.
    pub error: Option<String>,
}

impl OutputCapture {
    /// The capture of a stream with the content `bytes`, as with `capture_whole`; `file` is its spool file.
    pub fn from_bytes(bytes: Vec<u8>, excerpt_bytes: usize, file: Option<PathBuf>) -> Self {
        let mut excerpt = HeadAndTail::new(excerpt_bytes);
        excerpt.push(&bytes);
        let count = bytes.len() as u64;
        let (head, tail) = excerpt.finish(count);
        Self {
            bytes: count,
            whole: Some(bytes).filter(|bytes| bytes.len() <= INLINE_WHOLE_BYTES),
            head,
            tail,
            file,
            ..Self::default()
        }
    }

    /// The capture of a stream without output.
    pub(super) fn empty() -> Self {
        Self { whole: Some(Vec::new()), ..Self::default() }
    }
}

/// Receives a stream in pieces and builds its [`OutputCapture`].
pub(super) struct OutputRecorder {
    redactor: StreamRedactor,
    sink: CaptureSink,
}

impl OutputRecorder {
    /// A recorder that redacts `secrets` and spools a large stream to `file`.
    pub(super) fn new(
        secrets: &Secrets,
        excerpt_bytes: usize,
        capture_whole: bool,
        file: Option<PathBuf>,
    ) -> Self {
        let sink = CaptureSink {
            bytes: 0,
            memory: Some(Vec::new()),
            inline_bytes: INLINE_BYTES,
            limit: if capture_whole { INLINE_WHOLE_BYTES } else { INLINE_BYTES },
            excerpt: HeadAndTail::new(excerpt_bytes),
            spool: file.map_or(SpoolState::None, |path| SpoolState::Planned { path, since: None }),
            max_spool_bytes: MAX_SPOOL_BYTES,
            discarded: 0,
            error: None,
        };
        Self { redactor: secrets.stream_redactor(), sink }
    }

    /// Sets the length up to which a UTF-8 stream has no spool file.
    pub(super) fn with_inline_bytes(mut self, inline_bytes: usize) -> Self {
        self.sink.inline_bytes = inline_bytes;
        self
    }

    /// Sets the limit of the spool file.
    pub(super) fn with_max_bytes(mut self, max_bytes: u64) -> Self {
        self.sink.max_spool_bytes = max_bytes.min(MAX_SPOOL_BYTES);
        self
    }

    /// Takes the next piece, not yet redacted; returns what is final after it, redacted.
    pub(super) fn push<'a>(&mut self, piece: &'a [u8]) -> Cow<'a, [u8]> {
        let redacted = self.redactor.push(piece);
        self.sink.push(&redacted);
        redacted
    }

    /// When [`OutputRecorder::flush`] is due.
    pub(super) fn flush_at(&self) -> Option<Instant> {
        match self.sink.spool {
            SpoolState::Planned { since: Some(since), .. } => Some(since + SPOOL_DELAY),
            _ => None,
        }
    }

    /// Writes the output to the spool file if that is due.
    pub(super) fn flush(&mut self, now: Instant) {
        if self.flush_at().is_some_and(|at| at <= now) {
            self.sink.open_spool();
        }
    }

    /// Ends the capture of a stream that continues; also returns the bytes before the rest that may be the start of a secret.
    pub(super) fn interrupt(self) -> (OutputCapture, Vec<u8>) {
        (self.sink.finish(), self.redactor.into_held_back())
    }

    /// Ends the stream.
    pub(super) fn finish(self) -> OutputCapture {
        let Self { redactor, mut sink } = self;
        sink.push(&redactor.finish());
        sink.finish()
    }
}

/// Receives the redacted bytes of a stream.
struct CaptureSink {
    bytes: u64,
    /// The whole stream; `None` once it is longer than `limit`.
    memory: Option<Vec<u8>>,
    limit: usize,
    inline_bytes: usize,
    excerpt: HeadAndTail,
    spool: SpoolState,
    max_spool_bytes: u64,
    discarded: u64,
    error: Option<String>,
}

enum SpoolState {
    /// No file was requested, or it failed.
    None,
    /// The file does not exist yet: the whole stream is in memory, its first byte `since`.
    Planned { path: PathBuf, since: Option<Instant> },
    /// The file contains the stream.
    Open { path: PathBuf, file: File, written: u64, hash: Sha256 },
}

impl CaptureSink {
    fn push(&mut self, piece: &[u8]) {
        if piece.is_empty() {
            return;
        }
        self.bytes += piece.len() as u64;
        self.excerpt.push(piece);
        if self.bytes > self.inline_bytes as u64 {
            self.open_spool();
        }
        self.write_spool(piece);
        self.remember(piece);
        if let SpoolState::Planned { since, .. } = &mut self.spool {
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

    /// Creates a planned file with the stream in memory.
    fn open_spool(&mut self) {
        let SpoolState::Planned { path, .. } = &mut self.spool else { return };
        let path = std::mem::take(path);
        match durable::create_private_file(&path) {
            Ok(file) => {
                self.spool = SpoolState::Open { path, file, written: 0, hash: Sha256::new() };
                let memory = self.memory.take().unwrap_or_default();
                self.write_spool(&memory);
                self.memory = Some(memory);
            }
            Err(error) => {
                self.spool = SpoolState::None;
                self.error = Some(format!("cannot create {}: {error}", path.display()));
            }
        }
    }

    /// Writes to an open file, up to its limit. An error removes the file.
    fn write_spool(&mut self, piece: &[u8]) {
        let SpoolState::Open { path, file, written, hash } = &mut self.spool else { return };
        let room = usize::try_from(self.max_spool_bytes - *written).unwrap_or(usize::MAX);
        let fitting = &piece[..piece.len().min(room)];
        match file.write_all(fitting) {
            Ok(()) => {
                hash.update(fitting);
                *written += fitting.len() as u64;
                self.discarded += (piece.len() - fitting.len()) as u64;
            }
            Err(error) => {
                self.error = Some(format!("cannot write {}: {error}", path.display()));
                // A partial file would be read as the stream, and the disk may be full.
                let _ = durable::remove_file_no_follow(path);
                self.spool = SpoolState::None;
            }
        }
    }

    fn finish(mut self) -> OutputCapture {
        let is_small_text = self.memory.as_ref().is_some_and(|memory| {
            memory.len() <= self.inline_bytes
                && !memory.contains(&0)
                && std::str::from_utf8(memory).is_ok()
        });
        let file = if is_small_text {
            self.remove_spool()
        } else {
            self.open_spool();
            self.spool_path()
        };
        let sha256 = match &self.spool {
            SpoolState::Open { hash, .. } if file.is_some() => {
                Some(encode_hex(&hash.clone().finalize()))
            }
            _ => None,
        };
        let (head, tail) = self.excerpt.finish(self.bytes);
        let Self { bytes, memory, discarded, error, .. } = self;
        OutputCapture { bytes, whole: memory, head, tail, file, sha256, discarded, error }
    }

    fn spool_path(&self) -> Option<PathBuf> {
        match &self.spool {
            SpoolState::Open { path, .. } => Some(path.clone()),
            _ => None,
        }
    }

    /// Removes the file of a stream that is in memory; returns its path if it cannot be removed.
    fn remove_spool(&self) -> Option<PathBuf> {
        let path = self.spool_path()?;
        match durable::remove_file_no_follow(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Some(path),
            _ => None,
        }
    }
}

/// The start and the end of a stream.
struct HeadAndTail {
    excerpt_bytes: usize,
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl HeadAndTail {
    fn new(excerpt_bytes: usize) -> Self {
        Self { excerpt_bytes, head: Vec::new(), tail: Vec::new() }
    }

    fn push(&mut self, piece: &[u8]) {
        let (first, rest) =
            piece.split_at(piece.len().min(self.excerpt_bytes / 2 - self.head.len()));
        self.head.extend_from_slice(first);
        let room = self.excerpt_bytes - self.excerpt_bytes / 2;
        self.tail.extend_from_slice(&rest[rest.len().saturating_sub(room)..]);
        // Trimmed only at double length, so that small pieces do not move the whole tail each time.
        if self.tail.len() / 2 > room {
            self.trim(room);
        }
    }

    fn trim(&mut self, room: usize) {
        self.tail.drain(..self.tail.len().saturating_sub(room));
    }

    fn finish(mut self, bytes: u64) -> (Vec<u8>, Vec<u8>) {
        if bytes > self.excerpt_bytes as u64 {
            self.trim(self.excerpt_bytes / 2);
        } else {
            self.head.append(&mut self.tail);
        }
        (self.head, self.tail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorder(keep: usize, file: Option<PathBuf>) -> OutputRecorder {
        OutputRecorder::new(&Secrets::default(), keep, false, file)
    }

    #[test]
    fn head_and_tail_do_not_depend_on_the_pieces() {
        let stream: Vec<u8> = (0..=99).collect();
        for keep in [0, 1, 2, 7, 20, 99, 100, 101, usize::MAX] {
            for size in [1, 3, 10, 64, 100] {
                let mut recorder = recorder(keep, None);
                stream.chunks(size).for_each(|piece| drop(recorder.push(piece)));
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
    fn output_is_spooled_after_a_delay_and_a_small_text_leaves_no_file() {
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
    fn output_that_is_not_utf8_is_in_a_private_file() {
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
    fn bytes_beyond_the_limit_of_the_file_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let mut recorder = recorder(4, Some(dir.path().join("x.stdout")));
        recorder.sink.max_spool_bytes = 100_000;
        (0..3).for_each(|_| drop(recorder.push(&[b'a'; 50_000])));
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
        let file = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        recorder.sink.spool =
            SpoolState::Open { path: path.clone(), file, written: 0, hash: Sha256::new() };
        recorder.push(b"abcdef");
        recorder.push(b"ghi");
        let capture = recorder.finish();
        assert!(capture.error.unwrap().contains("cannot write"));
        assert_eq!((capture.whole.as_deref(), capture.file), (Some(&b"abcdefghi"[..]), None));
        assert!(!path.exists());
    }
}
