//! The format of packs: a ZIP archive whose members are deflated, so that `unzip` reads it.

use miniz_oxide::deflate::compress_to_vec;
use miniz_oxide::inflate::decompress_to_vec_with_limit;
use rawzip::time::UtcDateTime;
use rawzip::{
    CompressionMethod, DataDescriptorOutput, ErrorKind, FileReader, RECOMMENDED_BUFFER_SIZE,
    ZipArchive, ZipArchiveEntryWayfinder, ZipArchiveWriter,
};
use std::fs::File;
use std::io::{self, Read, Write};

/// The level of compression, from 0 to 10.
const LEVEL: u8 = 6;
/// The time of all members: 1980-01-01, the first that a ZIP archive can have.
const MODIFIED: i64 = 315_532_800;
/// The bytes of the end of an archive without a comment, which delta does not write.
const END_BYTES: u64 = 22;

/// A member of an archive.
#[derive(Debug, Clone)]
pub struct ZipMember {
    /// Its name.
    pub name: String,
    place: ZipArchiveEntryWayfinder,
}

impl ZipMember {
    /// The bytes of the content.
    pub fn bytes(&self) -> u64 {
        self.place.uncompressed_size_hint()
    }

    /// The content, from the archive that has the member.
    ///
    /// # Errors
    /// The archive cannot be read, or is damaged.
    pub fn read(&self, archive: File) -> io::Result<Vec<u8>> {
        let archive = open_archive(archive)?;
        let entry = archive.get_entry(self.place).map_err(zip_error)?;
        let mut body = Vec::new();
        entry.reader().read_to_end(&mut body)?;
        let limit = usize::try_from(self.bytes()).unwrap_or(usize::MAX);
        let content = decompress_to_vec_with_limit(&body, limit)
            .map_err(|_| damaged_zip(&format!("{} cannot be decompressed", self.name)))?;
        io::copy(&mut entry.verifying_reader(&*content), &mut io::sink())
            .map_err(|_| damaged_zip(&format!("{} does not match its checksum", self.name)))?;
        Ok(content)
    }
}

/// The members of an archive.
///
/// # Errors
/// The archive cannot be read, or is damaged.
pub fn read_directory(archive: File) -> io::Result<Vec<ZipMember>> {
    let archive = open_archive(archive)?;
    let mut buffer = vec![0; RECOMMENDED_BUFFER_SIZE];
    let mut entries = archive.entries(&mut buffer);
    let mut members = Vec::new();
    while let Some(entry) = entries.next_entry().map_err(zip_error)? {
        let name = str::from_utf8(entry.file_path().as_bytes())
            .map_err(|_| damaged_zip("its directory has a name that is not UTF-8"))?;
        members.push(ZipMember { name: name.to_owned(), place: entry.wayfinder() });
    }
    if members.len() as u64 != archive.entries_hint() {
        return Err(damaged_zip("its directory is cut off"));
    }
    Ok(members)
}

fn open_archive(file: File) -> io::Result<ZipArchive<FileReader>> {
    // The end is at the end: what a member contains is not taken for it.
    let locator = ZipArchive::with_max_search_space(END_BYTES);
    let archive = locator.locate_in_file(file, &mut [0; 1024]);
    archive.map_err(|(_, error)| zip_error(error))
}

fn zip_error(error: rawzip::Error) -> io::Error {
    match error.into_kind() {
        ErrorKind::IO(error) => error,
        kind => damaged_zip(&kind.to_string()),
    }
}

fn damaged_zip(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the pack is damaged: {reason}"))
}

/// An archive that is being written, in memory.
#[derive(Debug)]
pub struct ZipWriter(ZipArchiveWriter<Vec<u8>>);

impl Default for ZipWriter {
    fn default() -> Self {
        Self(ZipArchiveWriter::new(Vec::new()))
    }
}

impl ZipWriter {
    /// Adds a member. Its name has at most 65,535 bytes.
    pub fn add(&mut self, name: &str, content: &[u8]) {
        let file = self.0.new_file(name).compression_method(CompressionMethod::DEFLATE);
        let end = DataDescriptorOutput::new(rawzip::crc32(content), content.len() as u64);
        file.unix_permissions(0o100_600)
            .last_modified(UtcDateTime::from_unix(MODIFIED))
            .start()
            .and_then(|(mut entry, _)| {
                entry.write_all(&compress_to_vec(content, LEVEL))?;
                entry.finish(end)
            })
            .expect("memory takes every member");
    }

    /// The bytes so far.
    pub fn written_bytes(&self) -> u64 {
        self.0.stream_offset()
    }

    /// The whole archive.
    pub fn finish(self) -> Vec<u8> {
        self.0.finish().expect("memory takes every directory")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(archive: &[u8]) -> io::Result<Vec<(String, Vec<u8>)>> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pack.zip");
        std::fs::write(&path, archive).unwrap();
        let open = || File::open(&path).unwrap();
        let members = read_directory(open())?;
        members.into_iter().map(|member| Ok((member.name.clone(), member.read(open())?))).collect()
    }

    proptest! {
        #[test]
        fn what_was_added_is_read_again(
            contents in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..2000), 0..6),
            damaged_at in any::<prop::sample::Index>(),
        ) {
            let mut writer = ZipWriter::default();
            let named: Vec<_> = contents
                .into_iter()
                .enumerate()
                .map(|(index, content)| (format!("run-{index}.tar"), content))
                .collect();
            named.iter().for_each(|(name, content)| writer.add(name, content));
            let mut archive = writer.finish();
            prop_assert_eq!(read(&archive).unwrap(), named);
            let at = damaged_at.index(archive.len());
            prop_assert!(read(&archive[..at]).is_err(), "cut off at {}", at);
            // No damage makes reading panic.
            archive[at] ^= 0x55;
            let _ = read(&archive);
        }
    }

    /// A member whose content is longer than its directory says fills no memory.
    #[test]
    fn a_member_is_not_longer_than_the_directory_says() {
        let mut writer = ZipWriter::default();
        writer.add("bomb.tar", &vec![0; 1 << 20]);
        let mut archive = writer.finish();
        let directory = archive.windows(4).rposition(|window| window == b"PK\x01\x02").unwrap();
        archive[directory + 24..directory + 28].copy_from_slice(&1000_u32.to_le_bytes());
        let error = read(&archive).unwrap_err().to_string();
        assert_eq!(error, "the pack is damaged: bomb.tar cannot be decompressed");
    }
}
