//! Packs: one file with all files of io/ and engine.log of a run that has ended.
//!
//! A pack is complete under its name, or does not exist. While files that are in it also exist outside of it, the pack
//! counts. So a crash at any point of packing or unpacking leaves every file readable, and doing it again completes it.

use super::record_files::{RecordFile, open_pack};
use delta_base::durable::{self, DraftFile, FileError};
use delta_base::hex::encode_hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// The name of the pack in a run directory.
pub const PACK_FILE: &str = "io.pack";
/// The log for humans, which is packed too.
const LOG_FILE: &str = "engine.log";
/// The directory whose files are packed.
const IO_DIR: &str = "io";
/// What the first line of a pack names.
const PACK_FORMAT: &str = "delta-pack";
/// The version of the format.
const PACK_VERSION: u32 = 1;
/// The longest index that is read: it comes with a run that others may have made.
const MAX_INDEX_BYTES: u64 = 256 << 20;
const COPY_BYTES: usize = 64 * 1024;

/// The first line of a pack.
#[derive(Debug, Serialize, Deserialize)]
struct PackHeader {
    format: String,
    version: u32,
    files: Vec<PackedEntry>,
}

#[derive(Debug, Serialize, Deserialize)]
struct PackedEntry {
    name: String,
    #[serde(flatten)]
    file: PackedFile,
}

/// A file in a pack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackedFile {
    /// Where its bytes begin, counted from the first byte after the index.
    pub offset: u64,
    /// Their number.
    pub bytes: u64,
    /// Their SHA-256, in hexadecimal digits.
    pub sha256: String,
}

/// The index of a pack.
#[derive(Debug)]
pub struct PackIndex {
    /// The files by their names, paths relative to the run directory.
    pub files: BTreeMap<String, PackedFile>,
    /// The first byte after the index.
    pub data_offset: u64,
}

/// What a pack contains, or contained.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PackSummary {
    /// The number of files.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
}

impl PackIndex {
    /// Reads the index of a pack of `length` bytes.
    pub(super) fn read(file: &File, length: u64) -> io::Result<Self> {
        let mut line = Vec::new();
        BufReader::new(file.take(MAX_INDEX_BYTES)).read_until(b'\n', &mut line)?;
        let data_offset = line.len() as u64;
        let header =
            line.strip_suffix(b"\n").ok_or_else(|| damaged_pack("its index is cut off"))?;
        let header: PackHeader = serde_json::from_slice(header)
            .map_err(|error| damaged_pack(&format!("its first line is not an index ({error})")))?;
        if (header.format.as_str(), header.version) != (PACK_FORMAT, PACK_VERSION) {
            let version = header.version;
            return Err(damaged_pack(&format!(
                "this version of delta does not read version {version}"
            )));
        }
        let mut files = BTreeMap::new();
        for PackedEntry { name, file } in header.files {
            let end =
                data_offset.checked_add(file.offset).and_then(|end| end.checked_add(file.bytes));
            if end.is_none_or(|end| end > length) {
                return Err(damaged_pack(&format!("the bytes of {name} are missing")));
            }
            files.insert(name, file);
        }
        Ok(Self { files, data_offset })
    }

    fn summary(&self) -> PackSummary {
        let bytes = self.files.values().map(|file| file.bytes).sum();
        PackSummary { files: self.files.len(), bytes }
    }
}

fn damaged_pack(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{PACK_FILE} cannot be read: {reason}"))
}

fn not_regular(path: &Path) -> FileError {
    FileError::at("pack", path)(io::Error::other("it is not a regular file"))
}

/// Packs the files of the run in `run_dir`, which this process owns and which has ended. Files that were packed before
/// stay in the pack.
///
/// # Errors
/// A file is not regular or cannot be read, an older pack is damaged, or the pack cannot be written. No file is removed.
pub fn pack_records(run_dir: &Path) -> Result<PackSummary, FileError> {
    let pack_path = run_dir.join(PACK_FILE);
    let opened = open_pack(run_dir).map_err(FileError::at("read", &pack_path))?;
    let loose_files = LooseFiles::find(run_dir)?;
    let mut names: BTreeSet<String> = loose_files.names.iter().cloned().collect();
    if let Some((_, index)) = &opened {
        // The same file outside of the pack may be the only intact one, and a new pack would have a hash of the damage.
        for (name, file) in &index.files {
            let mut source =
                RecordFile::open(run_dir, name).map_err(FileError::at("read", &pack_path))?;
            let read = read_hashed(&mut source, &pack_path, |_| Ok(()))?;
            check_hash(name, file, &read).map_err(FileError::at("pack", &pack_path))?;
        }
        names.extend(index.files.keys().cloned());
        if names.len() == index.files.len() {
            // Every file is in the pack: at most an earlier removal was cut short.
            loose_files.remove(run_dir)?;
            return Ok(index.summary());
        }
    }
    let summary = write_pack(run_dir, &pack_path, &names)?;
    loose_files.remove(run_dir)?;
    Ok(summary)
}

/// Writes a pack with the files `names`. It replaces an older one, from which it may take files.
fn write_pack(
    run_dir: &Path,
    pack_path: &Path,
    names: &BTreeSet<String>,
) -> Result<PackSummary, FileError> {
    let mut entries = Vec::new();
    let mut offset = 0;
    for name in names {
        let path = run_dir.join(name);
        let mut source = RecordFile::open(run_dir, name).map_err(FileError::at("read", &path))?;
        let file = PackedFile { offset, ..read_hashed(&mut source, &path, |_| Ok(()))? };
        offset += file.bytes;
        entries.push(PackedEntry { name: name.clone(), file });
    }
    let summary = PackSummary { files: entries.len(), bytes: offset };
    let header =
        PackHeader { format: PACK_FORMAT.to_owned(), version: PACK_VERSION, files: entries };
    let mut line = serde_json::to_vec(&header).unwrap_or_default();
    line.push(b'\n');
    let mut draft = DraftFile::create(&run_dir.join(format!("{PACK_FILE}.tmp")))?;
    draft.write(&line)?;
    for PackedEntry { name, file } in &header.files {
        let path = run_dir.join(name);
        let mut source = RecordFile::open(run_dir, name).map_err(FileError::at("read", &path))?;
        let copied = read_hashed(&mut source, &path, |piece| draft.write(piece))?;
        if copied.sha256 != file.sha256 {
            let source = io::Error::other("it has changed while it was packed");
            return Err(FileError::at("pack", &path)(source));
        }
    }
    draft.rename_synced(pack_path)?;
    Ok(summary)
}

/// Reads the rest of a file, and gives each piece to `take`. Returns its length and hash; the offset is 0.
fn read_hashed(
    source: &mut RecordFile,
    path: &Path,
    mut take: impl FnMut(&[u8]) -> Result<(), FileError>,
) -> Result<PackedFile, FileError> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; COPY_BYTES];
    let mut bytes = 0;
    loop {
        let count = source.read(&mut buffer).map_err(FileError::at("read", path))?;
        if count == 0 {
            return Ok(PackedFile { offset: 0, bytes, sha256: encode_hex(&hash.finalize()) });
        }
        hash.update(&buffer[..count]);
        bytes += count as u64;
        take(&buffer[..count])?;
    }
}

/// Puts the files of the pack of the run in `run_dir`, which this process owns, back where they were. `None` if the run
/// has no pack.
///
/// # Errors
/// The pack is damaged, or a file cannot be written. The pack stays, and every file that it has can still be read.
pub fn unpack_records(run_dir: &Path) -> Result<Option<PackSummary>, FileError> {
    let pack_path = run_dir.join(PACK_FILE);
    let opened = open_pack(run_dir).map_err(FileError::at("read", &pack_path))?;
    let Some((_, index)) = opened else { return Ok(None) };
    for (name, file) in &index.files {
        if name != LOG_FILE && !name.starts_with("io/") {
            let source = damaged_pack(&format!("{name} is not a file of io/"));
            return Err(FileError::at("unpack", &pack_path)(source));
        }
        let path =
            durable::join_beneath(run_dir, name).map_err(FileError::at("unpack", &pack_path))?;
        path.parent().map_or(Ok(()), durable::ensure_private_dir)?;
        let mut source =
            RecordFile::open(run_dir, name).map_err(FileError::at("read", &pack_path))?;
        let mut draft = DraftFile::create(&with_suffix(&path, ".tmp"))?;
        let copied = read_hashed(&mut source, &pack_path, |piece| draft.write(piece))?;
        check_hash(name, file, &copied).map_err(FileError::at("unpack", &pack_path))?;
        draft.rename_unsynced(&path)?;
    }
    crate::workspace::ensure_run_subdirs(run_dir)?;
    // Once the pack is removed, a power failure must not cost its files.
    durable::sync_file_system(run_dir)?;
    durable::remove_file_synced(&pack_path)?;
    Ok(Some(index.summary()))
}

/// Compares what was read of a file in a pack with the index.
fn check_hash(name: &str, indexed: &PackedFile, content: &PackedFile) -> io::Result<()> {
    if content.sha256 != indexed.sha256 {
        return Err(damaged_pack(&format!("the bytes of {name} do not match their SHA-256")));
    }
    Ok(())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    path.with_file_name(name)
}

/// The files of a run that are not in a pack, with their directories.
#[derive(Debug, Default)]
struct LooseFiles {
    /// Paths relative to the run directory.
    names: Vec<String>,
    /// The directories of io/, each after the one that contains it.
    dirs: Vec<String>,
}

impl LooseFiles {
    fn find(run_dir: &Path) -> Result<Self, FileError> {
        let mut files = Self::default();
        let log = run_dir.join(LOG_FILE);
        match durable::metadata_no_follow(&log) {
            Ok(metadata) if metadata.is_file() => files.names.push(LOG_FILE.to_owned()),
            Ok(_) => return Err(not_regular(&log)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(FileError::at("read", &log)(error)),
        }
        let io_dir = run_dir.join(IO_DIR);
        match durable::metadata_no_follow(&io_dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(files),
            Err(error) => return Err(FileError::at("read", &io_dir)(error)),
            Ok(_) => files.dirs.push(IO_DIR.to_owned()),
        }
        let mut next = 0;
        while let Some(dir) = files.dirs.get(next).cloned() {
            next += 1;
            let path = run_dir.join(&dir);
            let entries =
                durable::read_dir_no_follow(&path).map_err(FileError::at("read", &path))?;
            for entry in entries {
                let path = path.join(&entry.name);
                let Some(name) = entry.name.to_str() else {
                    let source = io::Error::other("its name is not UTF-8");
                    return Err(FileError::at("pack", &path)(source));
                };
                let name = format!("{dir}/{name}");
                if entry.is_dir() {
                    files.dirs.push(name);
                } else if entry.is_file() {
                    files.names.push(name);
                } else {
                    return Err(not_regular(&path));
                }
            }
        }
        Ok(files)
    }

    /// Removes the files and the empty directories, which the pack has from now on.
    fn remove(&self, run_dir: &Path) -> Result<(), FileError> {
        for name in &self.names {
            durable::remove_file_unsynced(&run_dir.join(name))?;
        }
        for dir in self.dirs.iter().rev() {
            // A directory that has got another file stays.
            let _ = durable::remove_empty_dir_no_follow(&run_dir.join(dir));
        }
        Ok(())
    }
}
