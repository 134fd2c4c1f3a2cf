//! The text of a file in the context: what the author of an agent, a generator, a tool or a repository has written.

use delta_base::text::without_byte_order_mark;
use std::borrow::Cow;
use std::io;

/// What a text lacks that was read from a file in another encoding.
pub(super) const NOT_UTF8: &str = "bytes that are not UTF-8";

/// The text of a file.
pub(super) struct SourceText {
    pub(super) text: String,
    /// Whether the file had bytes that are not UTF-8, which are U+FFFD in the text.
    pub(super) is_replaced: bool,
}

impl SourceText {
    /// The text of a file with these bytes, without a byte order mark.
    ///
    /// # Errors
    /// There is a NUL byte, as in UTF-16 and in binary files: the LLM would read rubbish.
    pub(super) fn decode(bytes: &[u8]) -> io::Result<Self> {
        if bytes.contains(&0) {
            let reason = "it is not UTF-8 text: it contains a NUL byte";
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        let text = String::from_utf8_lossy(bytes);
        let is_replaced = matches!(text, Cow::Owned(_));
        Ok(Self { text: without_byte_order_mark(&text).to_owned(), is_replaced })
    }
}
