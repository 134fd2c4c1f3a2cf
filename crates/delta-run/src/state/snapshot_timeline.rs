//! The snapshots of a run in order, and which of them is the end of an iteration. Pure.
//!
//! An iteration that changed nothing has no snapshot of its own. A change that a process found when it continued the run,
//! and a rollback, are not the end of an iteration: the next iteration starts from them.

use crate::event::Payload;
use delta_base::id::SnapshotId;

/// A snapshot of the workspace at one point of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotPoint {
    /// The number of LLM answers before it.
    pub iteration: u32,
    /// Whether it is the end of that iteration.
    pub is_iteration_end: bool,
    /// Its id.
    pub tree: SnapshotId,
    /// The patterns of the paths that it excludes.
    pub exclude: Vec<String>,
    /// For a rollback, the snapshot of the workspace just before it.
    pub saved: Option<SnapshotId>,
}

/// The snapshots of a run, oldest first.
#[derive(Debug, Clone, Default)]
pub struct SnapshotTimeline {
    points: Vec<SnapshotPoint>,
    /// What applies and discards have saved, for a rollback to it.
    undo_points: Vec<SnapshotPoint>,
    /// The last iteration whose end was reached, whether it changed anything or not.
    last_closed: Option<u32>,
    before_message: BeforeMessage,
}

/// The run took no snapshots at that moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoSnapshotThen;

/// The workspace at the last message to the agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum BeforeMessage {
    /// No snapshot has it, because the run took none then.
    #[default]
    Unknown,
    /// The agent has done nothing since the message.
    Unchanged,
    /// The number of the snapshot in the timeline.
    At(usize),
}

impl SnapshotTimeline {
    /// Adds the snapshot of an event, if it has one.
    pub fn apply(&mut self, payload: &Payload) {
        self.apply_message(payload);
        let last = self.points.last().map_or(0, |last| last.iteration);
        if let Some((iteration, tree)) = saved_before_change(payload, last) {
            let exclude = self.last_exclude();
            let point =
                SnapshotPoint { iteration, is_iteration_end: false, tree, exclude, saved: None };
            self.undo_points.push(point);
        }
        let point = match payload {
            Payload::Snapshot(snapshot) => SnapshotPoint {
                iteration: snapshot.iteration,
                is_iteration_end: !snapshot.found,
                tree: snapshot.tree,
                exclude: snapshot.exclude.clone(),
                saved: None,
            },
            Payload::Rollback { iteration, tree, saved, .. } => SnapshotPoint {
                iteration: *iteration,
                is_iteration_end: false,
                tree: *tree,
                exclude: self.last_exclude(),
                saved: Some(*saved),
            },
            Payload::Fork(fork) => {
                let iteration = fork.from.iteration;
                // The fork continues after this iteration, so its later snapshots are not the end of it.
                self.last_closed = Some(iteration);
                let Some(tree) = fork.tree else { return };
                let exclude = self.last_exclude();
                SnapshotPoint { iteration, is_iteration_end: true, tree, exclude, saved: None }
            }
            _ => return,
        };
        if point.is_iteration_end {
            self.last_closed = Some(point.iteration);
        }
        self.points.push(point);
    }

    /// Follows the workspace at the last message: the engine takes a snapshot after it and before it asks the LLM, unless
    /// nothing has changed since the snapshot before.
    fn apply_message(&mut self, payload: &Payload) {
        self.before_message = match (payload, self.before_message) {
            (Payload::UserMessage { .. }, _) => BeforeMessage::Unchanged,
            (Payload::Snapshot(_), BeforeMessage::Unchanged) => {
                BeforeMessage::At(self.points.len())
            }
            (Payload::Thought(_) | Payload::Rollback { .. }, BeforeMessage::Unchanged) => {
                self.points.len().checked_sub(1).map_or(BeforeMessage::Unknown, BeforeMessage::At)
            }
            (_, before) => before,
        };
    }

    /// The snapshot of the workspace at the last message to the agent: `Ok(None)` if the agent has done nothing since then.
    ///
    /// # Errors
    /// The run took no snapshots then.
    pub fn before_last_message(&self) -> Result<Option<&SnapshotPoint>, NoSnapshotThen> {
        match self.before_message {
            BeforeMessage::Unknown => Err(NoSnapshotThen),
            BeforeMessage::Unchanged => Ok(None),
            BeforeMessage::At(number) => Ok(self.points.get(number)),
        }
    }

    /// Records that the end of an iteration was reached: later snapshots are not its end.
    pub fn close(&mut self, iteration: u32) {
        self.last_closed = Some(iteration);
    }

    /// Whether the end of `iteration` was reached, so that a snapshot taken now is not its end.
    pub fn is_closed(&self, iteration: u32) -> bool {
        !self.points.is_empty() && self.last_closed == Some(iteration)
    }

    fn last_exclude(&self) -> Vec<String> {
        self.last().map(|last| last.exclude.clone()).unwrap_or_default()
    }

    /// The newest snapshot.
    pub fn last(&self) -> Option<&SnapshotPoint> {
        self.points.last()
    }

    /// The oldest snapshot.
    pub fn first(&self) -> Option<&SnapshotPoint> {
        self.points.first()
    }

    /// The snapshot of the workspace at the end of an iteration; 0 is the beginning of the run.
    pub fn at_end_of(&self, iteration: u32) -> Option<&SnapshotPoint> {
        self.points.iter().rev().find(|point| {
            point.iteration < iteration || point.iteration == iteration && point.is_iteration_end
        })
    }

    /// The snapshots whose ids start with these hexadecimal digits, each id once.
    pub fn with_id_prefix(&self, digits: &str) -> Vec<&SnapshotPoint> {
        let mut matches: Vec<&SnapshotPoint> = Vec::new();
        let points = self.points.iter().chain(&self.undo_points);
        for point in points.filter(|point| point.tree.to_string().starts_with(digits)) {
            if matches.iter().all(|known| known.tree != point.tree) {
                matches.push(point);
            }
        }
        matches
    }
}

/// The state that an apply or a discard has saved. It is not the end of an iteration.
fn saved_before_change(payload: &Payload, last: u32) -> Option<(u32, SnapshotId)> {
    match payload {
        Payload::RunTrusted { received: Some(received), .. } => Some((last, received.saved?)),
        Payload::Apply(apply) => Some((apply.iteration, apply.saved)),
        Payload::Discard { iteration, saved, .. } => Some((*iteration, *saved)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::WorkspaceSnapshot;

    /// The id that consists of this digit.
    fn id(digit: &str) -> SnapshotId {
        SnapshotId::parse(&digit.repeat(64)).unwrap()
    }

    fn taken(iteration: u32, tree: &str, found: bool) -> Payload {
        Payload::Snapshot(Box::new(WorkspaceSnapshot {
            iteration,
            tree: id(tree),
            files: 0,
            bytes: 0,
            written: 0,
            left_out: 0,
            found,
            exclude: Vec::new(),
        }))
    }

    fn trees(timeline: &SnapshotTimeline, iterations: std::ops::Range<u32>) -> Vec<String> {
        let first = |at| timeline.at_end_of(at).map(|point| point.tree.to_string()[..1].to_owned());
        iterations.map(|at| first(at).unwrap_or_else(|| "-".to_owned())).collect()
    }

    #[test]
    fn c_16_1_an_iteration_ends_with_its_own_snapshot_or_with_the_last_before_it() {
        let mut timeline = SnapshotTimeline::default();
        for payload in [taken(0, "a", false), taken(2, "b", false), taken(4, "c", false)] {
            timeline.apply(&payload);
        }
        assert_eq!(trees(&timeline, 0..6), ["a", "a", "b", "b", "c", "c"]);
        // Iteration 5 changed nothing. Iteration 6 starts from what the user changed afterwards.
        timeline.close(5);
        assert!(timeline.is_closed(5));
        timeline.apply(&taken(5, "d", true));
        assert_eq!(trees(&timeline, 4..7), ["c", "c", "d"]);
        let (tree, saved) = (id("a"), id("d"));
        timeline.apply(&Payload::Rollback { iteration: 6, to: Some(0), tree, saved, seal: None });
        assert_eq!(trees(&timeline, 5..8), ["c", "d", "a"]);
        assert_eq!(timeline.with_id_prefix("a").len(), 1);
    }

    #[test]
    fn c_16_3_the_state_before_the_last_message_is_its_first_snapshot_or_the_last_before() {
        let message = || Payload::user_message("go", Vec::new());
        let before = |timeline: &SnapshotTimeline| {
            let point = timeline.before_last_message().map(|point| point.map(|it| it.tree));
            point.map(|tree| tree.map(|tree| tree.to_string()[..1].to_owned()))
        };
        let at = |digit: &str| Ok(Some(digit.to_owned()));
        let rollback = |tree: &str, saved: &str| {
            let (tree, saved) = (id(tree), id(saved));
            Payload::Rollback { iteration: 2, to: None, tree, saved, seal: None }
        };
        let mut timeline = SnapshotTimeline::default();
        assert_eq!(before(&timeline), Err(NoSnapshotThen));
        timeline.apply(&message());
        assert_eq!(before(&timeline), Ok(None));
        for payload in [taken(0, "a", false), taken(1, "b", false), message()] {
            timeline.apply(&payload);
        }
        assert_eq!(before(&timeline), Ok(None));
        // The user has changed files between the iterations and the message.
        for payload in [taken(1, "c", true), taken(2, "d", false), rollback("c", "d")] {
            timeline.apply(&payload);
            assert_eq!(before(&timeline), at("c"));
        }
        // An engine that died before its first snapshot has left what a rollback finds.
        timeline.apply(&message());
        for payload in [taken(2, "e", true), rollback("a", "e")] {
            timeline.apply(&payload);
            assert_eq!(before(&timeline), at("e"));
        }
        timeline.apply(&message());
        timeline.apply(&rollback("b", "a"));
        assert_eq!(before(&timeline), at("a"));
    }

    #[test]
    fn c_16_1_snapshots_that_begin_late_say_nothing_of_before() {
        let mut timeline = SnapshotTimeline::default();
        timeline.close(3);
        assert!(!timeline.is_closed(3));
        timeline.apply(&taken(3, "a", false));
        assert_eq!(trees(&timeline, 2..5), ["-", "a", "a"]);
    }
}
