//! Images that reach the LLM: files in files/ of the run directory, named by the SHA-256 of their content. A PDF is one too:
//! models see its pages as images.
//!
//! A request names an image by a reference, `delta:files/SHA256.png#640x480`, and never contains its bytes: records stay
//! small, and everything that compares or counts requests works on text. The bytes are read when the request is sent.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use delta_base::durable::{self, FileError};
use delta_base::hex::sha256_hex;
use delta_base::terminal_text::strip_terminal_controls;
use memchr::memmem;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::fmt;
use std::path::Path;

mod image_header;

use image_header::{ImageHeader, PDF_MAGIC};

/// The directory of the files, in the run directory.
pub const FILES_DIR: &str = "files";
/// The largest image that delta takes, without PDFs.
const MAX_IMAGE_BYTES: u64 = 20 << 20;
/// The largest PDF that delta takes: no endpoint is known to take a larger one.
const MAX_PDF_BYTES: u64 = 50 << 20;
/// The size above which endpoints refuse an image, without PDFs.
pub const USUAL_MAX_IMAGE_BYTES: u64 = 5 << 20;
/// The size above which endpoints refuse a PDF: requests of 32 MB, in base64.
const USUAL_MAX_PDF_BYTES: u64 = 20 << 20;

/// The beginning of a reference in a request.
const REFERENCE_PREFIX: &str = "delta:";
/// The pixels of a token, and the most tokens of an image: the rule of Anthropic. Others count in other ways.
const PIXELS_PER_TOKEN: u64 = 750;
const MAX_IMAGE_TOKENS: u64 = 1_600;
/// The bytes of a token of a PDF: a page of 60 KB counts 2,000. Its pages may be compressed, so nothing else is known.
const PDF_BYTES_PER_TOKEN: u64 = 30;
const SHA256_DIGITS: usize = 64;

/// An image of a message or of a result, as the journal names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageFile {
    /// The SHA-256 of the content, in hexadecimal digits.
    pub sha256: String,
    /// The file, relative to the run directory.
    pub file: String,
    /// The media type: `image/png`, `image/jpeg`, `image/gif`, `image/webp` or `application/pdf`.
    pub media_type: String,
    /// The size of the file.
    pub bytes: u64,
    /// The width and the height in pixels; a PDF has none.
    #[serde(flatten)]
    pub size: Option<PixelSize>,
}

/// The size of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PixelSize {
    /// The width in pixels.
    pub width: u32,
    /// The height in pixels.
    pub height: u32,
}

impl fmt::Display for PixelSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.width, self.height)
    }
}

impl ImageFile {
    /// The reference to the image in a request.
    pub fn reference(&self) -> String {
        let size = self.size.map_or_else(|| self.bytes.to_string(), |size| size.to_string());
        format!("{REFERENCE_PREFIX}{}#{size}", self.file)
    }

    /// Whether many endpoints refuse it for its size; the text is the size that they take.
    pub fn exceeded_usual_limit(&self) -> Option<&'static str> {
        let (limit, text) = match self.size {
            Some(_) => (USUAL_MAX_IMAGE_BYTES, "5 MiB"),
            None => (USUAL_MAX_PDF_BYTES, "20 MiB"),
        };
        (self.bytes > limit).then_some(text)
    }

    /// The part of a message that shows the image.
    fn to_part(&self) -> Value {
        match self.size {
            Some(_) => json!({"type": "image_url", "image_url": {"url": self.reference()}}),
            None => {
                let filename = self.file.trim_start_matches("files/");
                json!({"type": "file", "file": {"filename": filename, "file_data": self.reference()}})
            }
        }
    }
}

impl fmt::Display for ImageFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let media_type = strip_terminal_controls(&self.media_type);
        let bytes = format_size(self.bytes);
        let file = strip_terminal_controls(&self.file);
        match self.size {
            Some(size) => write!(f, "[image: {media_type}, {size}, {bytes}, {file}]"),
            None => write!(f, "[document: {media_type}, {bytes}, {file}]"),
        }
    }
}

/// A size as messages show it, rounded up to KB.
fn format_size(bytes: u64) -> String {
    if bytes < 1_000 { format!("{bytes} bytes") } else { format!("{} KB", bytes.div_ceil(1_000)) }
}

/// The content of a message that has images: its text, if it has one, and the images, as Chat Completions writes them.
pub fn message_parts(text: &str, images: &[ImageFile]) -> Vec<Value> {
    let text = (!text.is_empty()).then(|| json!({"type": "text", "text": text}));
    text.into_iter().chain(images.iter().map(ImageFile::to_part)).collect()
}

/// Why an image of so many bytes is not taken.
pub fn too_large_reason(bytes: u64) -> String {
    format!("it has {}; an image may have 20 MiB", format_size(bytes))
}

/// An image that may not be in the run directory yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewImage {
    /// The entry of the journal.
    pub image: ImageFile,
    content: Vec<u8>,
}

impl NewImage {
    /// Reads the image or the PDF in the file `path`.
    ///
    /// # Errors
    /// The file cannot be read, or is not one that delta takes; the text says why.
    pub fn read(path: &Path) -> Result<Self, String> {
        let content = durable::read_regular(path).map_err(|error| error.to_string())?;
        let is_named_pdf = path.extension().is_some_and(|name| name.eq_ignore_ascii_case("pdf"));
        if is_named_pdf && !content.is_empty() && !content.starts_with(PDF_MAGIC) {
            return Err("it is not a PDF, which begins with `%PDF-`".to_owned());
        }
        Self::from_bytes(content)
    }

    /// The content of an image in base64.
    ///
    /// # Errors
    /// It is not base64, or not an image that delta takes; the text says why.
    pub fn decode_base64(data: &str) -> Result<Vec<u8>, String> {
        let content =
            BASE64.decode(data).map_err(|_| "expected its content in base64".to_owned())?;
        Self::from_image(content).map(|image| image.content)
    }

    /// The image with this content, which is not a PDF.
    ///
    /// # Errors
    /// It is not an image that delta takes; the text says why.
    pub fn from_image(content: Vec<u8>) -> Result<Self, String> {
        let bytes = content.len() as u64;
        if bytes == 0 {
            return Err("it is empty".to_owned());
        }
        if bytes > MAX_IMAGE_BYTES {
            return Err(too_large_reason(bytes));
        }
        let header = ImageHeader::parse(&content)?;
        Ok(Self::new(content, header))
    }

    /// The image or the PDF with this content.
    ///
    /// # Errors
    /// It is not one that delta takes; the text says why.
    pub fn from_bytes(content: Vec<u8>) -> Result<Self, String> {
        if !content.starts_with(PDF_MAGIC) {
            return Self::from_image(content);
        }
        let bytes = content.len() as u64;
        if bytes > MAX_PDF_BYTES {
            return Err(format!("it has {}; a PDF may have 50 MiB", format_size(bytes)));
        }
        Ok(Self::new(content, ImageHeader::PDF))
    }

    fn new(content: Vec<u8>, header: ImageHeader) -> Self {
        let ImageHeader { media_type, extension, size } = header;
        let bytes = content.len() as u64;
        let sha256 = sha256_hex(&content);
        let file = format!("{FILES_DIR}/{sha256}.{extension}");
        let media_type = media_type.to_owned();
        Self { image: ImageFile { sha256, file, media_type, bytes, size }, content }
    }

    /// Writes the file to the run directory, unless it exists. Synced: an event may name it from now on.
    ///
    /// # Errors
    /// The file could not be written.
    pub fn store(&self, run_dir: &Path) -> Result<(), FileError> {
        let path = run_dir.join(&self.image.file);
        if durable::read_no_follow_at_most(&path, MAX_PDF_BYTES)
            .is_ok_and(|stored| stored == self.content)
        {
            return Ok(());
        }
        let dir = run_dir.join(FILES_DIR);
        if !durable::is_dir_no_follow(&dir) {
            durable::create_private_dir_synced(&dir)?;
        }
        durable::replace_private_synced(&path, &self.content)
    }
}

/// The `data:` URL of the image that a reference names; `None` if the text is not a reference.
///
/// # Errors
/// The file is missing or is not what its name says; the text names it.
pub fn read_data_url(run_dir: &Path, reference: &str) -> Result<Option<String>, String> {
    let Some((file, media_type)) = parse_image_reference(reference) else { return Ok(None) };
    let kind = if media_type == ImageHeader::PDF.media_type { "document" } else { "image" };
    let content = durable::join_beneath(run_dir, file)
        .and_then(|path| durable::read_no_follow_at_most(&path, MAX_PDF_BYTES))
        .map_err(|error| format!("could not read the {kind} {file}: {error}"))?;
    let name = file.trim_start_matches("files/");
    if !name.starts_with(&sha256_hex(&content)) {
        return Err(format!("the {kind} {file} is not the one of its SHA-256: it was changed"));
    }
    Ok(Some(format!("data:{media_type};base64,{}", BASE64.encode(content))))
}

/// The file and the media type of a reference. A journal of others may contain any text: only names that delta writes count.
fn parse_image_reference(reference: &str) -> Option<(&str, &'static str)> {
    let file = reference.strip_prefix(REFERENCE_PREFIX)?;
    let file = file.split_once('#').map_or(file, |(file, _)| file);
    let name = file.strip_prefix(FILES_DIR)?.strip_prefix('/')?;
    let (digits, extension) = name.split_once('.')?;
    let is_hash = digits.len() == SHA256_DIGITS
        && digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    let media_type = image_header::media_type_of(extension)?;
    is_hash.then_some((file, media_type))
}

/// The media type of the image that a reference names; `None` if the text is not a reference.
pub fn reference_media_type(reference: &str) -> Option<&'static str> {
    parse_image_reference(reference).map(|(_, media_type)| media_type)
}

/// Copies the images that an event names from one run directory to another. Missing files are skipped.
///
/// # Errors
/// A file could not be written.
pub fn copy_images(from: &Path, to: &Path, images: &[ImageFile]) -> Result<(), FileError> {
    for image in images {
        let reference = image.reference();
        let Some((file, _)) = parse_image_reference(&reference) else { continue };
        let content = durable::join_beneath(from, file)
            .and_then(|path| durable::read_no_follow_at_most(&path, MAX_PDF_BYTES));
        if let Some(copy) = content.ok().and_then(|content| NewImage::from_bytes(content).ok()) {
            copy.store(to)?;
        }
    }
    Ok(())
}

/// A text with a line for each of its images.
pub fn text_with_images<'a>(text: &'a str, images: &[ImageFile]) -> Cow<'a, str> {
    if images.is_empty() {
        return Cow::Borrowed(text);
    }
    let lines = images.iter().map(ImageFile::to_string);
    let text = (!text.is_empty()).then(|| text.trim_end_matches('\n').to_owned());
    Cow::Owned(text.into_iter().chain(lines).collect::<Vec<_>>().join("\n"))
}

/// An estimate of the tokens of all images and PDFs that a request, or a part of it, refers to.
pub fn image_tokens(request: &str) -> u64 {
    // The quotes in a JSON text have a backslash before them, so the texts of messages have no match.
    let tokens = ["\"url\":\"", "\"file_data\":\""].map(|member| {
        let needle = format!("{member}{REFERENCE_PREFIX}{FILES_DIR}/");
        let starts = memmem::find_iter(request.as_bytes(), &needle);
        starts.map(|start| reference_tokens(&request[start + member.len()..])).sum::<u64>()
    });
    tokens.iter().sum()
}

/// The tokens of the image whose reference is at the start of `text`.
fn reference_tokens(text: &str) -> u64 {
    let reference = text.split('"').next().unwrap_or_default();
    let (_, size) = reference.split_once('#').unwrap_or_default();
    if let Ok(bytes) = size.parse::<u64>() {
        return bytes.div_ceil(PDF_BYTES_PER_TOKEN);
    }
    let size = size.split_once('x');
    let pixels = size.and_then(|(width, height)| {
        Some(width.parse::<u32>().ok()? as u64 * u64::from(height.parse::<u32>().ok()?))
    });
    pixels
        .map_or(MAX_IMAGE_TOKENS, |pixels| pixels.div_ceil(PIXELS_PER_TOKEN).min(MAX_IMAGE_TOKENS))
}

#[cfg(test)]
mod tests;
