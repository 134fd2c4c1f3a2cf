//! A run in the forms of others: OpenTelemetry spans, an ATIF trajectory, a plain conversation, an account for people.
//!
//! The formats are pure: what they are made from is a [`Subject`], read once, and the same run gives the same bytes.
//! Only [`collector`] sends something. Each format owns its mapping; nothing of it is known elsewhere.

pub mod atif;
pub mod collector;
mod hide;
pub mod markdown;
mod message;
pub mod openai;
pub mod otlp;
mod span;
mod subject;

pub use subject::{Subject, Surroundings};
