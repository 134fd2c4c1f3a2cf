//! The format of the members of packs: a tar archive, as `tar` reads it, with GNU's entries for long names.

use std::io;

const BLOCK_BYTES: usize = 512;
/// The longest name in a header.
const MAX_NAME_BYTES: usize = 100;
const LONG_NAME: &[u8] = b"././@LongLink";

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TarKind<'a> {
    /// A file with its content.
    File(&'a [u8]),
    /// Another name of an earlier file.
    HardLink(Vec<u8>),
    /// A symlink with its target.
    Symlink(Vec<u8>),
    /// A directory.
    Directory,
}

/// A file, link or directory in an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TarEntry<'a> {
    /// The path, relative, with slashes.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: TarKind<'a>,
    /// The permissions.
    pub mode: u32,
    /// When it was changed, in seconds since the Unix epoch.
    pub modified: u64,
}

/// Appends an entry to an archive.
pub fn append_entry(archive: &mut Vec<u8>, entry: &TarEntry<'_>) {
    let (flag, link, content): (u8, &[u8], &[u8]) = match &entry.kind {
        TarKind::File(content) => (b'0', b"", content),
        TarKind::HardLink(target) => (b'1', target, b""),
        TarKind::Symlink(target) => (b'2', target, b""),
        TarKind::Directory => (b'5', b"", b""),
    };
    for (flag, name) in [(b'K', link), (b'L', &*entry.path)] {
        if name.len() > MAX_NAME_BYTES {
            let with_end = [name, b"\0"].concat();
            append_block(archive, LONG_NAME, b"", flag, 0o644, 0, &with_end);
        }
    }
    append_block(archive, &entry.path, link, flag, entry.mode, entry.modified, content);
}

/// Ends an archive.
pub fn end_archive(archive: &mut Vec<u8>) {
    archive.extend_from_slice(&[0; 2 * BLOCK_BYTES]);
}

fn append_block(
    archive: &mut Vec<u8>,
    name: &[u8],
    link: &[u8],
    flag: u8,
    mode: u32,
    modified: u64,
    content: &[u8],
) {
    let mut header = [0; BLOCK_BYTES];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &name[..name.len().min(MAX_NAME_BYTES)]);
    put(100, format!("{mode:07o}").as_bytes());
    put(108, b"0000000");
    put(116, b"0000000");
    put(124, format!("{:011o}", content.len()).as_bytes());
    put(136, format!("{modified:011o}").as_bytes());
    put(148, b"        ");
    put(156, &[flag]);
    put(157, &link[..link.len().min(MAX_NAME_BYTES)]);
    put(257, b"ustar  \0");
    let sum: u32 = header.iter().copied().map(u32::from).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    archive.extend_from_slice(&header);
    archive.extend_from_slice(content);
    archive.resize(archive.len().next_multiple_of(BLOCK_BYTES), 0);
}

fn tar_error(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the archive of a run is damaged: {reason}"))
}

/// Reads the entries of an archive that delta has written.
///
/// # Errors
/// It is damaged, or has entries that delta does not write.
pub fn read_tar_entries(mut archive: &[u8]) -> io::Result<Vec<TarEntry<'_>>> {
    let mut entries = Vec::new();
    let mut long_name: Option<Vec<u8>> = None;
    let mut long_link: Option<Vec<u8>> = None;
    loop {
        let header = archive.get(..BLOCK_BYTES).ok_or_else(|| tar_error("it is cut off"))?;
        if header.iter().all(|byte| *byte == 0) {
            return Ok(entries);
        }
        let size = number(&header[124..136])?;
        let size = usize::try_from(size).map_err(|_| tar_error("an entry is too long"))?;
        let end = BLOCK_BYTES.checked_add(size).ok_or_else(|| tar_error("an entry is too long"))?;
        let content =
            archive.get(BLOCK_BYTES..end).ok_or_else(|| tar_error("an entry is cut off"))?;
        archive = archive.get(end.next_multiple_of(BLOCK_BYTES)..).unwrap_or_default();
        let link = || long_link.clone().unwrap_or_else(|| text(&header[157..257]));
        let kind = match header[156] {
            b'L' => {
                long_name = Some(text(content));
                continue;
            }
            b'K' => {
                long_link = Some(text(content));
                continue;
            }
            b'0' => TarKind::File(content),
            b'1' => TarKind::HardLink(link()),
            b'2' => TarKind::Symlink(link()),
            b'5' => TarKind::Directory,
            _ => return Err(tar_error("it has an entry of another kind")),
        };
        entries.push(TarEntry {
            path: long_name.take().unwrap_or_else(|| text(&header[..MAX_NAME_BYTES])),
            kind,
            mode: u32::try_from(number(&header[100..108])?).unwrap_or(0) & 0o7777,
            modified: number(&header[136..148])?,
        });
        long_link = None;
    }
}

/// The bytes before the first NUL.
fn text(field: &[u8]) -> Vec<u8> {
    field.iter().copied().take_while(|byte| *byte != 0).collect()
}

fn number(field: &[u8]) -> io::Result<u64> {
    let digits = text(field);
    let digits = std::str::from_utf8(&digits).map_err(|_| tar_error("a number is not digits"))?;
    u64::from_str_radix(digits.trim(), 8).map_err(|_| tar_error("a number is not digits"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(1..=255_u8, 1..250)
    }

    proptest! {
        #[test]
        fn what_was_appended_is_read_again(
            files in prop::collection::vec((name(), prop::collection::vec(any::<u8>(), 0..1500)), 0..5),
            link in (name(), name()),
            damaged_at in any::<prop::sample::Index>(),
        ) {
            let entry = |path: &[u8], kind| {
                TarEntry { path: path.to_vec(), kind, mode: 0o640, modified: 1_700_000_000 }
            };
            let mut entries: Vec<_> =
                files.iter().map(|(path, content)| entry(path, TarKind::File(content))).collect();
            entries.push(entry(&link.0, TarKind::Symlink(link.1.clone())));
            entries.push(entry(&link.1, TarKind::HardLink(link.0.clone())));
            entries.push(entry(b"dir", TarKind::Directory));
            let mut archive = Vec::new();
            entries.iter().for_each(|entry| append_entry(&mut archive, entry));
            end_archive(&mut archive);
            prop_assert_eq!(read_tar_entries(&archive).unwrap(), entries);
            let at = damaged_at.index(archive.len());
            archive[at] ^= 0x55;
            let _ = read_tar_entries(&archive);
        }
    }
}
