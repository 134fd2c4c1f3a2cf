//! Stores contents: each once, under its SHA-256, never changed and never partial.

use super::SnapshotError;
use delta_base::durable::{self, DraftFile, FileError};
use delta_base::id::SnapshotId;
use delta_base::redact::{Secrets, StreamRedactor};
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The memory for reading a file. A file that fits is hashed before anything is written.
const CHUNK_BYTES: usize = 256 * 1024;

/// The first bytes of gzip, zip, zstd, xz, bzip2, PNG, JPEG and PDF.
const COMPRESSED: [&[u8]; 8] = [
    b"\x1f\x8b",
    b"PK\x03\x04",
    b"\x28\xb5\x2f\xfd",
    b"\xfd7zXZ",
    b"BZh",
    b"\x89PNG",
    b"\xff\xd8\xff",
    b"%PDF",
];

/// The name of an incomplete object, before the id of the process that writes it.
const DRAFT_PREFIX: &str = "new-";

/// Called between two pieces of work; an error ends the work.
pub(super) type CancelCheck<'a> = &'a dyn Fn() -> Result<(), SnapshotError>;

/// The result of storing a file.
pub(super) enum StoredFile {
    /// The file is stored: its id and length.
    Stored(SnapshotId, u64),
    /// The file contains a secret and is not stored.
    Secret,
    Unreadable(io::Error),
}

/// The copy of an object without secrets.
pub(super) struct RedactedObject {
    pub id: SnapshotId,
    pub length: u64,
    /// Whether the content is compressed, so that a secret in it cannot be seen.
    pub is_compressed: bool,
}

#[derive(Debug)]
pub(super) struct ObjectStore {
    dir: PathBuf,
    /// The objects that this process has seen complete.
    known: HashSet<SnapshotId>,
    /// The bytes that this process has written.
    pub written_bytes: u64,
    buffer: Vec<u8>,
}

impl ObjectStore {
    /// Opens the store in `dir`, and creates it when missing.
    pub fn open(dir: PathBuf) -> Result<Self, FileError> {
        durable::ensure_private_dir(&dir)?;
        remove_stale_drafts(&dir);
        Ok(Self { dir, known: HashSet::new(), written_bytes: 0, buffer: Vec::new() })
    }

    fn path(&self, id: SnapshotId) -> PathBuf {
        let name = id.to_string();
        self.dir.join(&name[..2]).join(&name[2..])
    }

    /// Whether the object exists with its full length. What a power failure has left of it is not looked at.
    pub fn contains(&mut self, id: SnapshotId, length: u64) -> bool {
        let exists = self.known.contains(&id)
            || durable::metadata_no_follow(&self.path(id))
                .is_ok_and(|metadata| metadata.is_file() && metadata.len() == length);
        if exists {
            self.known.insert(id);
        }
        exists
    }

    /// Whether the object exists with its content: a power failure may also have left zeros of its length.
    fn contains_intact(
        &mut self,
        id: SnapshotId,
        length: u64,
        check_cancelled: CancelCheck<'_>,
    ) -> Result<bool, SnapshotError> {
        if self.known.contains(&id) {
            return Ok(true);
        }
        let metadata = durable::metadata_no_follow(&self.path(id));
        let exists = metadata.is_ok_and(|metadata| metadata.is_file() && metadata.len() == length);
        let is_intact = exists && self.find_damage(id, check_cancelled)?.is_none();
        if is_intact {
            self.known.insert(id);
        }
        Ok(is_intact)
    }

    pub fn insert(&mut self, bytes: &[u8]) -> Result<SnapshotId, FileError> {
        let id = SnapshotId::from_content(bytes);
        self.insert_as(id, bytes)?;
        Ok(id)
    }

    fn insert_as(&mut self, id: SnapshotId, bytes: &[u8]) -> Result<(), FileError> {
        if self.known.contains(&id) || self.has_bytes(id, bytes) {
            self.known.insert(id);
            return Ok(());
        }
        let mut draft = self.create_draft()?;
        draft.write(bytes)?;
        self.commit_draft(draft, id, bytes.len() as u64)
    }

    /// Whether the object exists with this content.
    fn has_bytes(&self, id: SnapshotId, bytes: &[u8]) -> bool {
        let path = self.path(id);
        durable::metadata_no_follow(&path)
            .is_ok_and(|metadata| metadata.is_file() && metadata.len() == bytes.len() as u64)
            && durable::read_no_follow(&path).is_ok_and(|stored| stored == bytes)
    }

    /// Stores the content of `file` in chunks. The id is computed from the bytes that were read, even if the file changes
    /// meanwhile.
    pub fn insert_file(
        &mut self,
        file: &mut File,
        secrets: &Secrets,
        check_cancelled: CancelCheck<'_>,
    ) -> Result<StoredFile, SnapshotError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(CHUNK_BYTES, 0);
        let result =
            self.insert_chunks(file, &mut buffer, secrets.stream_redactor(), check_cancelled);
        self.buffer = buffer;
        result
    }

    fn insert_chunks(
        &mut self,
        file: &mut File,
        buffer: &mut [u8],
        mut secrets: StreamRedactor,
        check_cancelled: CancelCheck<'_>,
    ) -> Result<StoredFile, SnapshotError> {
        let mut hash = Sha256::new();
        let mut length = 0;
        let mut unfinished: Option<DraftFile> = None;
        loop {
            check_cancelled()?;
            let count = match read_chunk(file, buffer) {
                Ok(count) => count,
                Err(error) => return Ok(StoredFile::Unreadable(error)),
            };
            let chunk = &buffer[..count];
            let is_last = count < buffer.len();
            let _ = secrets.push(chunk);
            if is_last {
                secrets.flush();
            }
            if secrets.has_found_secret() {
                return Ok(StoredFile::Secret);
            }
            hash.update(chunk);
            length += count as u64;
            if is_last && unfinished.is_none() {
                let id = SnapshotId::from_digest(hash.finalize().into());
                self.insert_as(id, chunk)?;
                return Ok(StoredFile::Stored(id, length));
            }
            let mut draft = match unfinished.take() {
                Some(draft) => draft,
                None => self.create_draft()?,
            };
            draft.write(chunk)?;
            if is_last {
                let id = SnapshotId::from_digest(hash.finalize().into());
                if !self.contains_intact(id, length, check_cancelled)? {
                    self.commit_draft(draft, id, length)?;
                }
                return Ok(StoredFile::Stored(id, length));
            }
            unfinished = Some(draft);
        }
    }

    /// Stores the content of a file without the secrets.
    pub fn insert_redacted(
        &mut self,
        file: &mut File,
        redactor: &mut StreamRedactor,
    ) -> Result<RedactedObject, SnapshotError> {
        let mut draft = self.create_draft()?;
        let mut buffer = vec![0; CHUNK_BYTES];
        let mut hash = Sha256::new();
        let mut length = 0;
        let mut is_compressed = None;
        loop {
            let count = read_chunk(file, &mut buffer);
            let count = count.map_err(FileError::at("read", &self.dir))?;
            let chunk = &buffer[..count];
            is_compressed.get_or_insert(COMPRESSED.iter().any(|magic| chunk.starts_with(magic)));
            let mut redacted = redactor.push(chunk).into_owned();
            if count < buffer.len() {
                redacted.extend(redactor.flush());
            }
            hash.update(&redacted);
            length += redacted.len() as u64;
            draft.write(&redacted)?;
            if count < buffer.len() {
                break;
            }
        }
        let id = SnapshotId::from_digest(hash.finalize().into());
        self.commit_draft(draft, id, length)?;
        Ok(RedactedObject { id, length, is_compressed: is_compressed == Some(true) })
    }

    /// The draft has the process id in its name, because several processes may write to the store at the same time.
    fn create_draft(&self) -> Result<DraftFile, FileError> {
        DraftFile::create(&self.dir.join(format!("{DRAFT_PREFIX}{}", std::process::id())))
    }

    fn commit_draft(
        &mut self,
        draft: DraftFile,
        id: SnapshotId,
        length: u64,
    ) -> Result<(), FileError> {
        let path = self.path(id);
        path.parent().map_or(Ok(()), durable::ensure_private_dir)?;
        draft.rename_unsynced(&path)?;
        self.known.insert(id);
        self.written_bytes += length;
        Ok(())
    }

    /// Copies an object from another store, by a hard link where possible.
    pub fn copy_from(&mut self, from: &Self, id: SnapshotId, length: u64) -> Result<(), FileError> {
        if self.contains_intact(id, length, &|| Ok(())).unwrap_or(false) {
            return Ok(());
        }
        let source = from.path(id);
        let target = self.path(id);
        target.parent().map_or(Ok(()), durable::ensure_private_dir)?;
        // A file there is damaged, or `contains` would have found it.
        let _ = durable::remove_file_no_follow(&target);
        if durable::hard_link_unsynced(&source, &target).is_err() {
            let create_error =
                |source| FileError { action: "create", path: target.clone(), source };
            let mut file = durable::open_no_follow(&source).map_err(create_error)?;
            let mut buffer = vec![0; CHUNK_BYTES];
            let mut draft = self.create_draft()?;
            loop {
                let count = read_chunk(&mut file, &mut buffer).map_err(create_error)?;
                draft.write(&buffer[..count])?;
                if count < buffer.len() {
                    break;
                }
            }
            draft.rename_unsynced(&target)?;
        }
        self.known.insert(id);
        Ok(())
    }

    /// Whether there is a file of the object, intact or not.
    pub fn has_file(&self, id: SnapshotId) -> bool {
        durable::metadata_no_follow(&self.path(id)).is_ok()
    }

    /// Reads an object and checks its content; an error is the reason as a line of [`SnapshotError::Damaged`].
    pub fn read(&self, id: SnapshotId) -> Result<Vec<u8>, String> {
        let path = self.path(id);
        let bytes =
            durable::read_no_follow(&path).map_err(|error| unreadable_object(&path, &error))?;
        if SnapshotId::from_content(&bytes) == id { Ok(bytes) } else { Err(damaged_object(&path)) }
    }

    /// Checks the content of an object without loading it as a whole; returns the reason if it is missing or damaged.
    pub fn find_damage(
        &mut self,
        id: SnapshotId,
        check_cancelled: CancelCheck<'_>,
    ) -> Result<Option<String>, SnapshotError> {
        let path = self.path(id);
        let mut file = match durable::open_no_follow(&path) {
            Ok(file) => file,
            Err(error) => return Ok(Some(unreadable_object(&path, &error))),
        };
        self.buffer.resize(CHUNK_BYTES, 0);
        let mut hash = Sha256::new();
        loop {
            check_cancelled()?;
            match read_chunk(&mut file, &mut self.buffer) {
                Ok(count) => {
                    hash.update(&self.buffer[..count]);
                    if count < CHUNK_BYTES {
                        break;
                    }
                }
                Err(error) => return Ok(Some(unreadable_object(&path, &error))),
            }
        }
        let is_intact = SnapshotId::from_digest(hash.finalize().into()) == id;
        Ok((!is_intact).then(|| damaged_object(&path)))
    }

    pub fn open_object(&self, id: SnapshotId) -> Result<File, FileError> {
        let path = self.path(id);
        durable::open_no_follow(&path).map_err(|source| FileError { action: "read", path, source })
    }
}

/// Removes the drafts of processes that were killed while writing.
fn remove_stale_drafts(dir: &Path) {
    for entry in durable::read_dir_no_follow(dir).unwrap_or_default() {
        let name = &entry.name;
        let pid =
            name.to_str().and_then(|name| name.strip_prefix(DRAFT_PREFIX)?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = durable::remove_file_no_follow(&dir.join(name));
        }
    }
}

fn unreadable_object(path: &Path, error: &io::Error) -> String {
    format!("could not read {}: {error}", path.display())
}

fn damaged_object(path: &Path) -> String {
    format!("{} is damaged: its SHA-256 does not match its name", path.display())
}

/// Reads until the buffer is full or the file ends.
pub(super) fn read_chunk(file: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut count = 0;
    while count < buffer.len() {
        match file.read(&mut buffer[count..]) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}
