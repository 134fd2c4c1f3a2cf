//! Writes files with holes: whole blocks of zeros take no room on the disk.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

/// The block size of most file systems; a smaller run of zeros would save nothing.
const BLOCK_BYTES: usize = 4096;

/// Writes `bytes` at the position of a new file, with holes for blocks of zeros. [`end_with_holes`] ends the file.
pub(super) fn write_with_holes(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    let blocks: Vec<&[u8]> = bytes.chunks(BLOCK_BYTES).collect();
    let mut start = 0;
    for run in blocks.chunk_by(|one, other| is_hole(one) == is_hole(other)) {
        let length = run.iter().map(|block| block.len()).sum::<usize>();
        if is_hole(run[0]) {
            file.seek(SeekFrom::Current(i64::try_from(length).unwrap_or(i64::MAX)))?;
        } else {
            file.write_all(&bytes[start..start + length])?;
        }
        start += length;
    }
    Ok(())
}

/// Gives a file its length, which does not change when the last bytes are in a hole.
pub(super) fn end_with_holes(file: &mut File) -> io::Result<()> {
    let end = file.stream_position()?;
    if file.metadata()?.len() < end { file.set_len(end) } else { Ok(()) }
}

fn is_hole(block: &[u8]) -> bool {
    block.len() == BLOCK_BYTES && block.iter().all(|byte| *byte == 0)
}

/// Copies everything that `source` yields into a new file, with holes for blocks of zeros. Not synced.
///
/// # Errors
/// Either could not be read or written.
pub fn copy_with_holes(source: &mut impl Read, file: &mut File) -> io::Result<()> {
    let mut buffer = vec![0; 16 * BLOCK_BYTES];
    loop {
        let mut length = 0;
        while length < buffer.len() {
            match source.read(&mut buffer[length..]) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        write_with_holes(file, &buffer[..length])?;
        if length < buffer.len() {
            return end_with_holes(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn c_38_6_a_copy_has_the_same_bytes_and_holes_for_zeros() {
        let mut content = vec![0; 1 << 20];
        content[5000] = 1;
        content[600_000..600_100].fill(2);
        let lengths = [0, 1, 4095, 4096, 4097, 65_536, 65_537, 600_050, 1 << 20];
        for length in lengths {
            let mut file = tempfile::tempfile().unwrap();
            copy_with_holes(&mut &content[..length], &mut file).unwrap();
            let mut copy = Vec::new();
            file.rewind().unwrap();
            file.read_to_end(&mut copy).unwrap();
            assert_eq!(copy, content[..length], "{length}");
            // A file system may take more than the blocks with content.
            assert!(length < 65_536 || file.metadata().unwrap().blocks() * 512 < length as u64);
        }
    }
}
