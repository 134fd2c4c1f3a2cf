//! What text is made of: hidden characters, widths, differences, escaped bytes.

pub mod byte_escape;
pub mod hidden_text;
pub mod text_diff;
pub mod text_width;

/// A text without the byte order mark that some editors put before it.
pub fn without_byte_order_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}
