//! What the grades of a sweep say: scores, pairs, their texts and their page.

pub mod page_data;
pub mod pair_table;
pub mod score_table;
pub mod score_text;
pub mod verdict;
pub mod verdict_text;
