//! Reading regular files, up to a limit: the file of a tool, a record or a lock may be a pipe, a device or endless.

use super::{NO_FOLLOW_NONBLOCK, beneath, explain_file_error};
use crate::hex::sha256_hex_of_reader;
use crate::text::utf8_text;
use rustix::fs::OFlags;
use std::ffi::CString;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::Path;

/// The limit of [`read_regular`], 64 MiB: an endless file must not fill the memory.
pub const MAX_REGULAR_BYTES: u64 = 64 << 20;
const MAX_LARGE_BYTES: u64 = 1 << 30;
const MAX_SMALL_BYTES: u64 = 64 << 10;

/// Reads a file that others may have created, such as a tool of an agent. Follows symlinks, but reads only regular
/// files: a pipe could block forever, and a device may have no end.
///
/// # Errors
/// The file is missing, not readable, not regular, or larger than [`MAX_REGULAR_BYTES`].
pub fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    read_whole(beneath::open(path, OFlags::RDONLY | OFlags::NONBLOCK, 0)?)
}

/// Reads a file beneath a directory of the user, as [`read_regular`] does, but follows no symlink in `name`.
///
/// # Errors
/// As for [`read_regular`]; also when the name is absolute or contains `..`.
pub fn read_regular_beneath(dir: &Path, name: &Path) -> io::Result<Vec<u8>> {
    read_whole(open_file_beneath(dir, name)?)
}

fn read_whole(file: File) -> io::Result<Vec<u8>> {
    let (mut file, metadata) = require_regular_file(file)?;
    let length = usize::try_from(metadata.len().min(MAX_REGULAR_BYTES)).unwrap_or_default();
    let mut bytes = vec![0; length + 1];
    let read = file.read(&mut bytes)?;
    bytes.truncate(read);
    // The first read is complete when it returns exactly the reported length. Files in /proc report 0, and some file
    // systems return less than was asked for.
    if read != length || length == 0 {
        file.take(MAX_REGULAR_BYTES + 1 - read as u64).read_to_end(&mut bytes)?;
    }
    if bytes.len() as u64 > MAX_REGULAR_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is larger than 64 MiB"));
    }
    Ok(bytes)
}

/// Reads a UTF-8 file as [`read_regular`] does.
///
/// # Errors
/// As for [`read_regular`]; also when the content is not UTF-8.
pub fn read_regular_text(path: &Path) -> io::Result<String> {
    require_utf8(read_regular(path)?)
}

/// Reads a file of at most 1 GiB, as [`read_regular`] does: a file that has a line for each of many things.
///
/// # Errors
/// As for [`read_regular`], with this limit.
pub fn read_large(path: &Path) -> io::Result<Vec<u8>> {
    let file = beneath::open(path, OFlags::RDONLY | OFlags::NONBLOCK, 0)?;
    read_at_most(require_regular_file(file)?.0, MAX_LARGE_BYTES)
}

/// Reads a UTF-8 file of at most 1 GiB.
///
/// # Errors
/// As for [`read_large`]; also when the content is not UTF-8.
pub fn read_large_text(path: &Path) -> io::Result<String> {
    require_utf8(read_large(path)?)
}

/// Opens a regular file for reading, without following a symlink.
///
/// # Errors
/// The file is missing, not readable, or not regular.
pub fn open_no_follow(path: &Path) -> io::Result<File> {
    let file =
        beneath::open(path, OFlags::RDONLY | NO_FOLLOW_NONBLOCK, 0).map_err(explain_file_error)?;
    Ok(require_regular_file(file)?.0)
}

/// Reads a regular file of at most 1 GiB, without following a symlink.
///
/// # Errors
/// As for [`open_no_follow`]; also when the file is larger.
pub fn read_no_follow(path: &Path) -> io::Result<Vec<u8>> {
    read_no_follow_at_most(path, MAX_LARGE_BYTES)
}

/// Reads a regular file of at most 64 KiB, without following a symlink: for a word or a number.
///
/// # Errors
/// As for [`open_no_follow`]; also when the file is larger.
pub fn read_small_no_follow(path: &Path) -> io::Result<Vec<u8>> {
    read_no_follow_at_most(path, MAX_SMALL_BYTES)
}

/// Reads a regular file of at most `limit` bytes beneath a directory of the user: nothing in `name` leads out of it, and
/// no symlink in it is followed.
///
/// # Errors
/// As for [`read_no_follow_at_most`]; also when the name is absolute or contains `..`.
pub fn read_beneath(dir: &Path, name: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_at_most(require_regular_file(open_file_beneath(dir, name)?)?.0, limit)
}

/// Reads the first `limit` bytes of a regular file beneath a directory, as [`read_beneath`] does, and what the file is.
///
/// # Errors
/// As for [`open_no_follow`]; also when the name is absolute or contains `..`.
pub fn read_start_beneath(dir: &Path, name: &Path, limit: u64) -> io::Result<(Vec<u8>, Metadata)> {
    let (file, metadata) = require_regular_file(open_file_beneath(dir, name)?)?;
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    Ok((bytes, metadata))
}

/// The SHA-256 in hexadecimal digits of a regular file beneath a directory, which is opened as by [`read_beneath`].
///
/// # Errors
/// As for [`open_no_follow`]; also when the name is absolute or contains `..`.
pub fn hash_file_beneath(dir: &Path, name: &Path) -> io::Result<String> {
    sha256_hex_of_reader(require_regular_file(open_file_beneath(dir, name)?)?.0)
}

/// The target of a symlink beneath a directory, to which no other symlink leads.
///
/// # Errors
/// There is none, or the name is absolute or contains `..`.
pub fn read_link_beneath(dir: &Path, name: &Path) -> io::Result<Vec<u8>> {
    let path = beneath::join_beneath(dir, name)?;
    let target = match (name.parent(), name.file_name()) {
        (Some(parent), Some(name)) if !parent.as_os_str().is_empty() => {
            let parent = beneath::open_in(dir, parent, OFlags::RDONLY | OFlags::DIRECTORY)?;
            rustix::fs::readlinkat(parent, name, Vec::new())
        }
        _ => rustix::fs::readlink(path, Vec::new()),
    };
    target.map(CString::into_bytes).map_err(io::Error::from)
}

/// Reads a regular file of at most `limit` bytes, without following a symlink.
///
/// # Errors
/// As for [`open_no_follow`]; also when the file is larger.
pub fn read_no_follow_at_most(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    read_at_most(open_no_follow(path)?, limit)
}

fn read_at_most(file: File, limit: u64) -> io::Result<Vec<u8>> {
    let length = file.metadata()?.len();
    let mut bytes = Vec::with_capacity(usize::try_from(length.min(limit)).unwrap_or_default());
    if length <= limit {
        // The file may be growing.
        file.take(limit + 1).read_to_end(&mut bytes)?;
    }
    if length.max(bytes.len() as u64) > limit {
        let reason = format!("it is larger than {limit} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
    }
    Ok(bytes)
}

fn open_file_beneath(dir: &Path, name: &Path) -> io::Result<File> {
    beneath::join_beneath(dir, name)?;
    beneath::open_in(dir, name, OFlags::RDONLY | NO_FOLLOW_NONBLOCK).map_err(explain_file_error)
}

fn require_regular_file(file: File) -> io::Result<(File, Metadata)> {
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(rustix::io::Errno::ISDIR.into());
    }
    if metadata.is_file() { Ok((file, metadata)) } else { Err(not_regular_error()) }
}

fn require_utf8(bytes: Vec<u8>) -> io::Result<String> {
    utf8_text(bytes).map_err(|problem| io::Error::new(io::ErrorKind::InvalidData, problem))
}

pub(super) fn not_regular_error() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it is not a regular file")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn c_15_2_no_file_is_read_beyond_its_bound() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "12345").unwrap();
        assert_eq!(read_no_follow_at_most(&path, 5).unwrap(), b"12345");
        let refused = read_no_follow_at_most(&path, 4).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(refused.to_string(), "it is larger than 4 bytes");
        // A sparse file: an unbounded reader would allocate its whole length.
        File::options().write(true).open(&path).unwrap().set_len(1 << 50).unwrap_or(());
        let is_huge = fs::metadata(&path).unwrap().len() > MAX_LARGE_BYTES;
        assert!(!is_huge || read_no_follow(&path).is_err());
        assert!(!is_huge || read_small_no_follow(&path).is_err());
    }
}
