//! What text is made of: hidden characters, widths, differences.

pub mod hidden_text;
pub mod text_diff;
pub mod text_width;
