//! Exports runs in other formats: OpenTelemetry spans, ATIF trajectories, chat transcripts, Markdown and in-toto statements.
//!
//! Every format is a pure function of an [`ExportedRun`], so the same run gives the same bytes. Nothing here sends them.

mod answer_redaction;
pub mod atif;
mod exported_run;
mod gen_ai_message;
pub mod in_toto;
pub mod markdown;
pub mod openai;
pub mod otlp;
pub mod protobuf;
mod span;

pub use exported_run::{ExportedRun, SystemContext};
