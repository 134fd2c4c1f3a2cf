//! What text is made of: hidden characters, widths, differences, escaped bytes.

pub mod byte_escape;
pub mod hidden_text;
pub mod text_diff;
pub mod text_width;

/// The bytes as a text.
///
/// # Errors
/// They are not UTF-8: says from which line and column on, and not which bytes these are, which may be secret.
pub fn utf8_text(bytes: Vec<u8>) -> Result<String, String> {
    String::from_utf8(bytes).map_err(|error| {
        let bytes = error.as_bytes();
        if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
            return "it is UTF-16, not UTF-8".to_owned();
        }
        let valid = String::from_utf8_lossy(&bytes[..error.utf8_error().valid_up_to()]);
        let line = valid.matches('\n').count() + 1;
        let column = valid.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        format!("it is not UTF-8 (line {line}, column {column})")
    })
}

/// A text without the byte order mark that some editors put before it.
pub fn without_byte_order_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}
