//! How long processes worked on a run.

use crate::event::{Event, Payload, RunStatus};
use delta_base::time::Timestamp;

/// The longest time between the end that a process records for a dead one and its own start.
const TAKEOVER_MS: i64 = 1000;

/// The time in which a process worked on a run; on a fork, without the time of the run it was forked from.
#[derive(Debug, Clone, Copy, Default)]
pub struct ActiveTime {
    earlier_ms: i64,
    current: Option<WorkSpan>,
    last_ended: Option<EndedSpan>,
    throttled_ms: u64,
}

/// The events of a process so far.
#[derive(Debug, Clone, Copy)]
struct WorkSpan {
    start: Timestamp,
    last: Timestamp,
}

impl WorkSpan {
    fn millis(self) -> i64 {
        self.last.as_millis() - self.start.as_millis()
    }
}

/// A process that has ended.
#[derive(Debug, Clone, Copy)]
struct EndedSpan {
    /// Without its ENGINE_END.
    span: WorkSpan,
    end: Timestamp,
    is_interrupted: bool,
}

impl EndedSpan {
    fn millis(self) -> i64 {
        WorkSpan { last: self.end, ..self.span }.millis()
    }
}

impl ActiveTime {
    /// Adds the next event.
    pub fn apply(&mut self, event: &Event) {
        let now = event.timestamp;
        match &event.payload {
            Payload::EngineStart(_) => {
                self.earlier_ms += self.current.map_or(0, WorkSpan::millis);
                self.earlier_ms += self.last_ended.take().map_or(0, |process| {
                    // A dead process did not work until the next one recorded its end.
                    let wait = now.as_millis() - process.end.as_millis();
                    let is_recorded_later = process.is_interrupted && wait < TAKEOVER_MS;
                    if is_recorded_later { process.span.millis() } else { process.millis() }
                });
                self.current = Some(WorkSpan { start: now, last: now });
            }
            Payload::EngineEnd { status, .. } => {
                // A run that is sent ends without a process that worked on it.
                let Some(span) = self.current.take() else { return };
                let is_interrupted = *status == RunStatus::Interrupted;
                self.last_ended = Some(EndedSpan { span, end: now, is_interrupted });
            }
            Payload::Fork(_) => *self = Self::default(),
            payload => {
                if let Some(span) = &mut self.current {
                    span.last = now;
                }
                self.throttled_ms += match payload {
                    Payload::Thought(thought) => thought.throttled_ms,
                    Payload::Error { error_details, .. } => error_details.throttled_ms,
                    _ => 0,
                };
            }
        }
    }

    /// The part of it for which the endpoint of the LLM refused requests because there were too many, or calls waited for the
    /// rate of a sweep, in milliseconds.
    pub fn throttled_millis(&self) -> u64 {
        self.throttled_ms
    }

    /// The time up to the last event, in milliseconds.
    pub fn millis(&self) -> u64 {
        let current = self.current.map_or(0, WorkSpan::millis);
        let last_ended = self.last_ended.map_or(0, EndedSpan::millis);
        u64::try_from(self.earlier_ms + current + last_ended).unwrap_or(0)
    }
}
