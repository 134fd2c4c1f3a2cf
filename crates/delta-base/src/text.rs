//! What text is made of: hidden characters, widths, differences, escaped bytes.

pub mod byte_escape;
pub mod hidden_text;
pub mod text_diff;
pub mod text_width;
