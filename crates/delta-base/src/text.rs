//! What text is made of: characters that nobody sees, widths, differences.

pub mod hidden_text;
pub mod text_diff;
pub mod text_width;
