//! The frame of an image file: its format, its size in pixels, and whether it has its end.

use super::PixelSize;
use memchr::memmem;

/// The beginning of a PDF.
pub(super) const PDF_MAGIC: &[u8] = b"%PDF-";

/// What the first bytes of an image say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ImageHeader {
    pub(super) media_type: &'static str,
    pub(super) extension: &'static str,
    /// The size; a PDF has none.
    pub(super) size: Option<PixelSize>,
}

/// The formats that every form accepts: the media type and the extension.
const FORMATS: [(&str, &str); 4] =
    [("image/png", "png"), ("image/jpeg", "jpg"), ("image/gif", "gif"), ("image/webp", "webp")];

/// The media type of the files with this extension.
pub(super) fn media_type_of(extension: &str) -> Option<&'static str> {
    let pdf = (ImageHeader::PDF.media_type, ImageHeader::PDF.extension);
    FORMATS
        .iter()
        .chain([&pdf])
        .find(|(_, known)| *known == extension)
        .map(|(media_type, _)| *media_type)
}

impl ImageHeader {
    pub(super) const PDF: Self =
        Self { media_type: "application/pdf", extension: "pdf", size: None };

    /// Reads the header.
    ///
    /// # Errors
    /// The file is not an image of a known format, or is cut off.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let (index, size) = if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
            (0, png_size(bytes))
        } else if bytes.starts_with(b"\xff\xd8\xff") {
            (1, jpeg_size(bytes))
        } else if bytes.starts_with(b"GIF87a") || bytes.starts_with(b"GIF89a") {
            (2, gif_size(bytes))
        } else if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
            (3, webp_size(bytes))
        } else {
            return Err("it is not a PNG, JPEG, GIF or WebP image".to_owned());
        };
        let (media_type, extension) = FORMATS[index];
        match size {
            Some((width, height)) if width > 0 && height > 0 => {
                // An endpoint rejects each request that contains a part of an image.
                if !has_end(extension, bytes).unwrap_or(false) {
                    return Err(format!("it begins like {media_type}, but its end is missing"));
                }
                Ok(Self { media_type, extension, size: Some(PixelSize { width, height }) })
            }
            _ => Err(format!("it begins like {media_type}, but its size in pixels is missing")),
        }
    }
}

/// Whether the file has the end that its format requires; bytes after the end do not matter.
fn has_end(extension: &str, bytes: &[u8]) -> Option<bool> {
    Some(match extension {
        "png" => {
            let mut at = 8;
            while bytes.get(at + 4..at + 8)? != b"IEND" {
                let length = u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?);
                at += 12 + usize::try_from(length).ok()?;
            }
            true
        }
        "jpg" => {
            let (_, _, frame) = jpeg_frame(bytes)?;
            memmem::find(&bytes[frame..], b"\xff\xd9").is_some()
        }
        "gif" => bytes.iter().rfind(|byte| **byte != 0) == Some(&b';'),
        _ => little_endian(bytes, 4, 4)? as usize + 8 <= bytes.len(),
    })
}

fn png_size(bytes: &[u8]) -> Option<(u32, u32)> {
    let is_header = bytes.get(12..16)? == b"IHDR";
    is_header.then_some(())?;
    let number = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    Some((number(16)?, number(20)?))
}

fn gif_size(bytes: &[u8]) -> Option<(u32, u32)> {
    Some((little_endian(bytes, 6, 2)?, little_endian(bytes, 8, 2)?))
}

/// A number of `length` bytes, the lowest first.
fn little_endian(bytes: &[u8], at: usize, length: usize) -> Option<u32> {
    let digits = bytes.get(at..at + length)?;
    Some(digits.iter().rev().fold(0, |number, digit| number << 8 | u32::from(*digit)))
}

fn webp_size(bytes: &[u8]) -> Option<(u32, u32)> {
    match bytes.get(12..16)? {
        b"VP8 " => {
            let is_key_frame = bytes.get(23..26)? == b"\x9d\x01\x2a";
            let size =
                (little_endian(bytes, 26, 2)? & 0x3fff, little_endian(bytes, 28, 2)? & 0x3fff);
            is_key_frame.then_some(size)
        }
        b"VP8L" => {
            let bits = little_endian(bytes, 21, 4)?;
            Some(((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1))
        }
        b"VP8X" => Some((little_endian(bytes, 24, 3)? + 1, little_endian(bytes, 27, 3)? + 1)),
        _ => None,
    }
}

fn jpeg_size(bytes: &[u8]) -> Option<(u32, u32)> {
    jpeg_frame(bytes).map(|(width, height, _)| (width, height))
}

/// The size in the frame header of a JPEG and the place of the header, which follows segments of any kind and length.
fn jpeg_frame(bytes: &[u8]) -> Option<(u32, u32, usize)> {
    let number =
        |at: usize| Some(u32::from(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?)));
    let mut at = 2;
    loop {
        if *bytes.get(at)? != 0xff {
            return None;
        }
        match *bytes.get(at + 1)? {
            // A filling byte.
            0xff => at += 1,
            // Without a length.
            0x01 | 0xd0..=0xd8 => at += 2,
            // DHT, JPG and DAC are among the numbers of the frame headers.
            marker @ 0xc0..=0xcf if !matches!(marker, 0xc4 | 0xc8 | 0xcc) => {
                return Some((number(at + 7)?, number(at + 5)?, at));
            }
            _ => at += 2 + usize::try_from(number(at + 2)?).ok()?.max(2),
        }
    }
}
