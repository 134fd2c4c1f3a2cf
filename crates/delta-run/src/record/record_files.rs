//! Finds the files of io/: in their directories, or in the pack of a run whose files were packed. No other module knows
//! where they are.

use super::pack::{PACK_FILE, PackIndex};
use delta_base::durable;
use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// The most bytes of a file that are read into memory.
const MAX_RECORD_BYTES: u64 = 1 << 30;

/// A file of io/, open for reading; in a pack, a part of it.
#[derive(Debug)]
pub struct RecordFile {
    file: File,
    start: u64,
    length: u64,
    position: u64,
}

impl RecordFile {
    /// Opens the file `name`, a path relative to the run directory.
    ///
    /// # Errors
    /// There is no such file, it is not regular, or the name leads out of the run directory.
    pub fn open(run_dir: &Path, name: &str) -> io::Result<Self> {
        if let Some(packed) = Self::open_packed(run_dir, name)? {
            return Ok(packed);
        }
        match Self::open_loose(&durable::join_beneath(run_dir, name)?) {
            // It may have been packed since the first look.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Self::open_packed(run_dir, name)?.ok_or(error)
            }
            opened => opened,
        }
    }

    /// Opens a file that is not in a pack.
    pub(super) fn open_loose(path: &Path) -> io::Result<Self> {
        let file = durable::open_no_follow(path)?;
        let length = file.metadata()?.len();
        Ok(Self { file, start: 0, length, position: 0 })
    }

    /// `None` if the run has no pack, or the file is not in it.
    fn open_packed(run_dir: &Path, name: &str) -> io::Result<Option<Self>> {
        let Some((file, index)) = open_pack(run_dir)? else { return Ok(None) };
        let Some(packed) = index.files.get(name) else { return Ok(None) };
        let start = index.data_offset + packed.offset;
        let mut opened = Self { file, start, length: packed.bytes, position: 0 };
        opened.rewind()?;
        Ok(Some(opened))
    }

    /// The bytes of the file.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Reads the whole file.
    ///
    /// # Errors
    /// The file cannot be read, or is larger than 1 GiB.
    pub fn read_bytes(mut self) -> io::Result<Vec<u8>> {
        if self.length > MAX_RECORD_BYTES {
            let reason = format!("it is larger than {MAX_RECORD_BYTES} bytes");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(self.length).unwrap_or_default());
        self.read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

impl Read for RecordFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(self.length - self.position).unwrap_or(usize::MAX);
        let end = buffer.len().min(rest);
        let count = self.file.read(&mut buffer[..end])?;
        if count == 0 && end > 0 && self.start > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.position += count as u64;
        Ok(count)
    }
}

impl Seek for RecordFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::End(offset) => self.length.checked_add_signed(offset),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
        };
        let position = position.filter(|position| *position <= self.length);
        self.position = position.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        self.file.seek(SeekFrom::Start(self.start + self.position))?;
        Ok(self.position)
    }
}

/// Reads the file `name` of io/, a path relative to the run directory.
///
/// # Errors
/// As for [`RecordFile::open`] and [`RecordFile::read_bytes`].
pub fn read_record_bytes(run_dir: &Path, name: &str) -> io::Result<Vec<u8>> {
    RecordFile::open(run_dir, name)?.read_bytes()
}

/// The entries of `dir`, a directory such as `io/hooks`, in order of their names, each with the length of the file; without
/// a length if it is not a regular file. None if the directory cannot be read.
pub fn list_record_files(run_dir: &Path, dir: &str) -> BTreeMap<String, Option<u64>> {
    let mut files = BTreeMap::new();
    for entry in durable::read_dir_no_follow(&run_dir.join(dir)).unwrap_or_default() {
        let metadata = durable::metadata_no_follow(&run_dir.join(dir).join(&entry.name));
        let length = metadata.ok().filter(Metadata::is_file).map(|metadata| metadata.len());
        if let Ok(name) = entry.name.into_string() {
            files.insert(name, length);
        }
    }
    if let Ok(Some((_, index))) = open_pack(run_dir) {
        let packed = index.files.iter().filter_map(|(name, packed)| {
            let name = name.strip_prefix(dir)?.strip_prefix('/')?;
            (!name.contains('/')).then(|| (name.to_owned(), Some(packed.bytes)))
        });
        files.extend(packed);
    }
    files
}

/// The index that was read last: readers of a run read one file after the other.
struct CachedIndex {
    path: PathBuf,
    identity: [u64; 3],
    modified_at: (i64, i64),
    index: Arc<PackIndex>,
}

static LAST_INDEX: Mutex<Option<CachedIndex>> = Mutex::new(None);

/// The pack of a run and its index; `None` if the run has no pack.
pub(super) fn open_pack(run_dir: &Path) -> io::Result<Option<(File, Arc<PackIndex>)>> {
    let path = run_dir.join(PACK_FILE);
    let file = match durable::open_no_follow(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let metadata = file.metadata()?;
    let identity = [metadata.dev(), metadata.ino(), metadata.len()];
    let modified_at = (metadata.mtime(), metadata.mtime_nsec());
    let mut last = LAST_INDEX.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(cached) = last.as_ref()
        && (&cached.path, cached.identity, cached.modified_at) == (&path, identity, modified_at)
    {
        return Ok(Some((file, Arc::clone(&cached.index))));
    }
    let index = Arc::new(PackIndex::read(&file, metadata.len())?);
    *last = Some(CachedIndex { path, identity, modified_at, index: Arc::clone(&index) });
    Ok(Some((file, index)))
}
