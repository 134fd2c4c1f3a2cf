//! The format of packs: a ZIP archive whose members are deflated, so that `unzip` reads it.
//!
//! Only what packs need: no comments, no encryption, less than 4 GiB.

use miniz_oxide::deflate::compress_to_vec;
use miniz_oxide::inflate::decompress_to_vec_with_limit;
use std::io;

/// The level of compression, from 0 to 10.
const LEVEL: u8 = 6;
const LOCAL_SIGNATURE: u32 = 0x0403_4b50;
const CENTRAL_SIGNATURE: u32 = 0x0201_4b50;
const END_SIGNATURE: u32 = 0x0605_4b50;
/// What a reader needs to know: deflate, and names in UTF-8. No time: 1980-01-01.
const NEEDED: [u16; 5] = [20, 1 << 11, 8, 0, 33];
/// The bytes of the headers, without names.
const LOCAL_BYTES: usize = 30;
const CENTRAL_BYTES: usize = 46;
/// The bytes of the end.
pub const END_BYTES: usize = 22;

/// A member of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZipMember {
    /// Its name.
    pub name: String,
    /// Where its header begins.
    pub offset: u64,
    /// Its bytes in the archive.
    pub compressed: u32,
    /// Its bytes.
    pub bytes: u32,
    /// The CRC-32 of them.
    pub crc: u32,
}

impl ZipMember {
    /// The bytes of the archive that [`ZipMember::unpack`] needs, from `offset` on.
    pub fn stored_length(&self) -> usize {
        LOCAL_BYTES + self.name.len() + self.compressed as usize
    }

    /// The content, from the bytes of the archive at its offset.
    ///
    /// # Errors
    /// The bytes are damaged.
    pub fn unpack(&self, stored: &[u8]) -> io::Result<Vec<u8>> {
        let member_error = |reason: &str| zip_error(&format!("{} {reason}", self.name));
        let header = stored.get(..LOCAL_BYTES).ok_or_else(|| member_error("is cut off"))?;
        let start = LOCAL_BYTES + usize::from(u16_at(header, 26)) + usize::from(u16_at(header, 28));
        if u32_at(header, 0) != LOCAL_SIGNATURE {
            return Err(member_error("is not where the directory says"));
        }
        let body = stored.get(start..start + self.compressed as usize);
        let body = body.ok_or_else(|| member_error("is cut off"))?;
        let content = decompress_to_vec_with_limit(body, self.bytes as usize)
            .map_err(|_| member_error("cannot be decompressed"))?;
        if content.len() != self.bytes as usize || crc32fast::hash(&content) != self.crc {
            return Err(member_error("does not match its checksum"));
        }
        Ok(content)
    }
}

fn zip_error(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the pack is damaged: {reason}"))
}

/// An archive that is being written, in memory.
#[derive(Debug, Default)]
pub struct ZipWriter {
    bytes: Vec<u8>,
    members: Vec<ZipMember>,
}

impl ZipWriter {
    /// Adds a member. A content of 4 GiB or more is cut, so check its length before.
    pub fn add(&mut self, name: String, content: &[u8]) {
        let body = compress_to_vec(content, LEVEL);
        let member = ZipMember {
            name,
            offset: self.bytes.len() as u64,
            compressed: u32::try_from(body.len()).unwrap_or(u32::MAX),
            bytes: u32::try_from(content.len()).unwrap_or(u32::MAX),
            crc: crc32fast::hash(content),
        };
        push_u32(&mut self.bytes, LOCAL_SIGNATURE);
        push_member(&mut self.bytes, &member);
        self.bytes.extend_from_slice(member.name.as_bytes());
        self.bytes.extend_from_slice(&body);
        self.members.push(member);
    }

    /// The bytes so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it has no member.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The whole archive, and its members.
    pub fn finish(mut self) -> (Vec<u8>, Vec<ZipMember>) {
        let start = self.bytes.len();
        for member in &self.members {
            push_u32(&mut self.bytes, CENTRAL_SIGNATURE);
            // Made by Unix: the attributes are a mode.
            push_u16(&mut self.bytes, 3 << 8 | NEEDED[0]);
            push_member(&mut self.bytes, member);
            self.bytes.extend_from_slice(&[0; 6]);
            push_u32(&mut self.bytes, 0o100_600 << 16);
            push_u32(&mut self.bytes, u32::try_from(member.offset).unwrap_or(u32::MAX));
            self.bytes.extend_from_slice(member.name.as_bytes());
        }
        let length = self.bytes.len() - start;
        let count = u16::try_from(self.members.len()).unwrap_or(u16::MAX);
        push_u32(&mut self.bytes, END_SIGNATURE);
        for value in [0, 0, count, count] {
            push_u16(&mut self.bytes, value);
        }
        push_u32(&mut self.bytes, u32::try_from(length).unwrap_or(u32::MAX));
        push_u32(&mut self.bytes, u32::try_from(start).unwrap_or(u32::MAX));
        push_u16(&mut self.bytes, 0);
        (self.bytes, self.members)
    }
}

fn push_u16(bytes: &mut Vec<u8>, value: u16) {
    bytes.extend_from_slice(&value.to_le_bytes());
}

fn push_u32(bytes: &mut Vec<u8>, value: u32) {
    bytes.extend_from_slice(&value.to_le_bytes());
}

/// What both headers of a member have.
fn push_member(bytes: &mut Vec<u8>, member: &ZipMember) {
    for value in NEEDED {
        push_u16(bytes, value);
    }
    for value in [member.crc, member.compressed, member.bytes] {
        push_u32(bytes, value);
    }
    push_u16(bytes, u16::try_from(member.name.len()).unwrap_or(u16::MAX));
    push_u16(bytes, 0);
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Where the directory of an archive is: its offset and its length, from the last [`END_BYTES`] bytes of the archive.
///
/// # Errors
/// They are not the end of an archive as delta writes it.
pub fn find_directory(end: &[u8]) -> io::Result<(u64, usize)> {
    if end.len() != END_BYTES || u32_at(end, 0) != END_SIGNATURE {
        return Err(zip_error("it has no end"));
    }
    Ok((u64::from(u32_at(end, 16)), u32_at(end, 12) as usize))
}

/// The members that the bytes of a directory name.
///
/// # Errors
/// The bytes are damaged.
pub fn read_directory(mut bytes: &[u8]) -> io::Result<Vec<ZipMember>> {
    let mut members = Vec::new();
    while !bytes.is_empty() {
        let header =
            bytes.get(..CENTRAL_BYTES).ok_or_else(|| zip_error("its directory is cut off"))?;
        if u32_at(header, 0) != CENTRAL_SIGNATURE {
            return Err(zip_error("its directory cannot be read"));
        }
        let end = CENTRAL_BYTES + usize::from(u16_at(header, 28));
        let name = bytes.get(CENTRAL_BYTES..end).and_then(|name| std::str::from_utf8(name).ok());
        let name = name.ok_or_else(|| zip_error("its directory has a name that is not UTF-8"))?;
        members.push(ZipMember {
            name: name.to_owned(),
            offset: u64::from(u32_at(header, 42)),
            compressed: u32_at(header, 20),
            bytes: u32_at(header, 24),
            crc: u32_at(header, 16),
        });
        let rest = end + usize::from(u16_at(header, 30)) + usize::from(u16_at(header, 32));
        bytes = bytes.get(rest..).ok_or_else(|| zip_error("its directory is cut off"))?;
    }
    Ok(members)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(archive: &[u8]) -> io::Result<Vec<(String, Vec<u8>)>> {
        let start = archive.len().saturating_sub(END_BYTES);
        let (offset, length) = find_directory(&archive[start..])?;
        let offset = usize::try_from(offset).unwrap();
        let directory = archive.get(offset..offset + length).ok_or_else(|| zip_error("no"))?;
        let members = read_directory(directory)?.into_iter().map(|member| {
            let stored = archive.get(usize::try_from(member.offset).unwrap()..);
            let content = member.unpack(stored.ok_or_else(|| zip_error("no"))?)?;
            Ok((member.name, content))
        });
        members.collect()
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
            named.iter().for_each(|(name, content)| writer.add(name.clone(), content));
            let (mut archive, members) = writer.finish();
            prop_assert_eq!(members.len(), named.len());
            prop_assert_eq!(read(&archive).unwrap(), named);
            // No damage makes reading panic.
            let at = damaged_at.index(archive.len());
            archive[at] ^= 0x55;
            let _ = read(&archive);
        }
    }
}
