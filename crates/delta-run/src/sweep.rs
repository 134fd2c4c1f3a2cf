//! What a run of a sweep shares with the sweep: its directory, packs, limits and signs of life.

pub mod answer_scope;
pub mod packed;
pub mod shared_limits;
pub mod sweep_dir;
pub mod sweep_worker;
