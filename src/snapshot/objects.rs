//! Where contents lie: each once, under the SHA-256 of its bytes, never changed and never half there.

use super::SnapshotError;
use crate::durable::{self, Draft, FileError};
use crate::text::{SecretStream, Secrets};
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// How much of a file is in memory at once. What is not larger is hashed before anything is written.
const PIECE: usize = 256 * 1024;

/// What a content is called until it is whole; the process that writes it stands behind.
const NEW: &str = "new-";

/// The SHA-256 of a content, by which it is found again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id([u8; 32]);

impl Id {
    /// That of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// What stands in the place of an id where there is no content.
    pub(super) const NONE: Self = Self([0; 32]);

    /// Reads 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return None;
        }
        let mut id = [0; 32];
        for (byte, pair) in id.iter_mut().zip(digits.chunks(2)) {
            let four =
                |digit: u8| char::from(digit).to_digit(16).and_then(|it| u8::try_from(it).ok());
            *byte = four(pair[0])? << 4 | four(pair[1])?;
        }
        Some(Self(id))
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::text::hex(&self.0))
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Asked between two pieces whether to go on; an error ends the work.
pub(super) type GoOn<'a> = &'a dyn Fn() -> Result<(), SnapshotError>;

/// What came of storing a file.
pub(super) enum Stored {
    /// It is there, with this length.
    Kept(Id, u64),
    /// It holds a secret, and nothing of it was kept.
    Secret,
    /// It could not be read.
    Unreadable(io::Error),
}

/// The contents that one run keeps.
#[derive(Debug)]
pub(super) struct Objects {
    dir: PathBuf,
    /// Those that this process has seen there, whole.
    known: HashSet<Id>,
    /// How many bytes this process has written.
    pub written: u64,
    buffer: Vec<u8>,
}

impl Objects {
    /// Those in `dir`, which is made when it is missing.
    pub fn open(dir: PathBuf) -> Result<Self, FileError> {
        durable::ensure_dir(&dir, true)?;
        sweep(&dir);
        Ok(Self { dir, known: HashSet::new(), written: 0, buffer: Vec::new() })
    }

    fn path(&self, id: Id) -> PathBuf {
        let name = id.to_string();
        self.dir.join(&name[..2]).join(&name[2..])
    }

    /// Whether the content is there, as long as it should be: a power failure may have left an empty file.
    pub fn has(&mut self, id: Id, length: u64) -> bool {
        let there = self.known.contains(&id)
            || fs::symlink_metadata(self.path(id))
                .is_ok_and(|found| found.is_file() && found.len() == length);
        if there {
            self.known.insert(id);
        }
        there
    }

    /// Keeps `bytes`.
    pub fn put(&mut self, bytes: &[u8]) -> Result<Id, FileError> {
        let id = Id::of(bytes);
        if !self.has(id, bytes.len() as u64) {
            let mut draft = self.draft()?;
            draft.write(bytes)?;
            self.keep(draft, id, bytes.len() as u64)?;
        }
        Ok(id)
    }

    /// Keeps what `file` holds, piece by piece: the id is that of the bytes that were read, whatever happens to the
    /// file meanwhile.
    pub fn put_file(
        &mut self,
        file: &mut File,
        secrets: &Secrets,
        go_on: GoOn<'_>,
    ) -> Result<Stored, SnapshotError> {
        let mut piece = std::mem::take(&mut self.buffer);
        piece.resize(PIECE, 0);
        let stored = self.put_pieces(file, &mut piece, secrets.stream(), go_on);
        self.buffer = piece;
        stored
    }

    fn put_pieces(
        &mut self,
        file: &mut File,
        piece: &mut [u8],
        mut secrets: SecretStream,
        go_on: GoOn<'_>,
    ) -> Result<Stored, SnapshotError> {
        let mut hash = Sha256::new();
        let mut length = 0;
        let mut draft: Option<Draft> = None;
        loop {
            go_on()?;
            let count = match fill(file, piece) {
                Ok(count) => count,
                Err(error) => return Ok(Stored::Unreadable(error)),
            };
            let read = &piece[..count];
            let _ = secrets.push(read);
            if secrets.found() {
                return Ok(Stored::Secret);
            }
            hash.update(read);
            length += count as u64;
            let is_last = count < piece.len();
            if is_last && draft.is_none() {
                let id = Id(hash.finalize().into());
                if !self.has(id, length) {
                    let mut draft = self.draft()?;
                    draft.write(read)?;
                    self.keep(draft, id, length)?;
                }
                return Ok(Stored::Kept(id, length));
            }
            let mut begun = match draft.take() {
                Some(begun) => begun,
                None => self.draft()?,
            };
            begun.write(read)?;
            if is_last {
                let id = Id(hash.finalize().into());
                if !self.has(id, length) {
                    self.keep(begun, id, length)?;
                }
                return Ok(Stored::Kept(id, length));
            }
            draft = Some(begun);
        }
    }

    /// Whoever looks at a run may write here beside the process that works on it.
    fn draft(&self) -> Result<Draft, FileError> {
        Draft::begin(&self.dir.join(format!("{NEW}{}", std::process::id())))
    }

    fn keep(&mut self, draft: Draft, id: Id, length: u64) -> Result<(), FileError> {
        let path = self.path(id);
        path.parent().map_or(Ok(()), |dir| durable::ensure_dir(dir, true))?;
        draft.keep(&path)?;
        self.known.insert(id);
        self.written += length;
        Ok(())
    }

    /// Takes a content over from another run, without a second copy where the file system can do that.
    pub fn adopt(&mut self, from: &Self, id: Id, length: u64) -> Result<(), FileError> {
        if self.has(id, length) {
            return Ok(());
        }
        let (source, path) = (from.path(id), self.path(id));
        path.parent().map_or(Ok(()), |dir| durable::ensure_dir(dir, true))?;
        // What stands there is damaged, or `has` would have found it.
        let _ = fs::remove_file(&path);
        let failed = |source| FileError { action: "create", path: path.clone(), source };
        if fs::hard_link(&source, &path).is_err() {
            let mut file = durable::open_regular(&source).map_err(failed)?;
            let (mut piece, mut draft) = (vec![0; PIECE], self.draft()?);
            loop {
                let count = fill(&mut file, &mut piece).map_err(failed)?;
                draft.write(&piece[..count])?;
                if count < piece.len() {
                    break;
                }
            }
            draft.keep(&path)?;
        }
        self.known.insert(id);
        Ok(())
    }

    /// The content, once it is seen to be the one that the id names.
    pub fn read(&self, id: Id) -> Result<Vec<u8>, String> {
        let path = self.path(id);
        let bytes = durable::read_whole(&path).map_err(|error| missing(&path, &error))?;
        if Id::of(&bytes) == id { Ok(bytes) } else { Err(damaged(&path)) }
    }

    /// Whether the content is the one that the id names, without having all of it in memory.
    pub fn check(&mut self, id: Id, go_on: GoOn<'_>) -> Result<Result<(), String>, SnapshotError> {
        let path = self.path(id);
        let mut file = match durable::open_regular(&path) {
            Ok(file) => file,
            Err(error) => return Ok(Err(missing(&path, &error))),
        };
        self.buffer.resize(PIECE, 0);
        let mut hash = Sha256::new();
        loop {
            go_on()?;
            match fill(&mut file, &mut self.buffer) {
                Ok(count) => {
                    hash.update(&self.buffer[..count]);
                    if count < PIECE {
                        break;
                    }
                }
                Err(error) => return Ok(Err(missing(&path, &error))),
            }
        }
        let whole = Id(hash.finalize().into()) == id;
        Ok(if whole { Ok(()) } else { Err(damaged(&path)) })
    }

    /// The file of a content.
    pub fn file(&self, id: Id) -> Result<File, FileError> {
        let path = self.path(id);
        durable::open_regular(&path).map_err(|source| FileError { action: "read", path, source })
    }
}

/// Takes away what processes have left behind that were killed while they wrote.
fn sweep(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(NEW)?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn missing(path: &Path, error: &io::Error) -> String {
    format!("{} cannot be read: {error}", path.display())
}

fn damaged(path: &Path) -> String {
    format!("{} is damaged: its SHA-256 is not its name", path.display())
}

/// Reads until the piece is full or the file is at its end.
pub(super) fn fill(file: &mut impl Read, piece: &mut [u8]) -> io::Result<usize> {
    let mut count = 0;
    while count < piece.len() {
        match file.read(&mut piece[count..]) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}
