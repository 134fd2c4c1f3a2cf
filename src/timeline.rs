//! Which snapshots a run has of its workspace, and which of them is the end of an iteration. Pure.
//!
//! An iteration that changed nothing has none of its own. What a process found changed when it took the run up, and what
//! a rollback put in place, belongs to no iteration: it is where the next one begins.

use crate::event::Payload;

/// What the workspace was at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Point {
    /// The number of LLM answers until then.
    pub iteration: u32,
    /// Whether it is the end of that iteration.
    pub is_end: bool,
    /// What it was.
    pub tree: String,
    /// What was left out of it on demand.
    pub exclude: Vec<String>,
    /// For a rollback, what it was just before.
    pub saved: Option<String>,
}

/// The snapshots of a run, in order.
#[derive(Debug, Clone, Default)]
pub struct Timeline {
    points: Vec<Point>,
    /// The last iteration whose end has been seen, changed or not.
    closed: Option<u32>,
}

impl Timeline {
    /// Takes one more event in.
    pub fn apply(&mut self, payload: &Payload) {
        let point = match payload {
            Payload::Snapshot(taken) => Point {
                iteration: taken.iteration,
                is_end: !taken.found,
                tree: taken.tree.clone(),
                exclude: taken.exclude.clone(),
                saved: None,
            },
            Payload::Rollback { iteration, tree, saved, .. } => Point {
                iteration: *iteration,
                is_end: false,
                tree: tree.clone(),
                exclude: self.last().map(|last| last.exclude.clone()).unwrap_or_default(),
                saved: Some(saved.clone()),
            },
            Payload::Fork(fork) => {
                let iteration = fork.from.iteration;
                // Whatever the workspace is when it goes on, that iteration has not left it.
                self.closed = Some(iteration);
                let Some(tree) = fork.tree.clone() else { return };
                let exclude = self.last().map(|last| last.exclude.clone()).unwrap_or_default();
                Point { iteration, is_end: true, tree, exclude, saved: None }
            }
            _ => return,
        };
        if point.is_end {
            self.closed = Some(point.iteration);
        }
        self.points.push(point);
    }

    /// The end of an iteration has been seen.
    pub fn close(&mut self, iteration: u32) {
        self.closed = Some(iteration);
    }

    /// Whether what is there now is not the end of `iteration` any more.
    pub fn is_closed(&self, iteration: u32) -> bool {
        !self.points.is_empty() && self.closed == Some(iteration)
    }

    /// The last snapshot.
    pub fn last(&self) -> Option<&Point> {
        self.points.last()
    }

    /// The first snapshot.
    pub fn first(&self) -> Option<&Point> {
        self.points.first()
    }

    /// What the workspace was at the end of an iteration; 0 is the beginning of the run.
    pub fn at(&self, iteration: u32) -> Option<&Point> {
        let counts = |point: &&Point| {
            point.iteration < iteration || point.iteration == iteration && point.is_end
        };
        self.points.iter().rev().find(counts)
    }

    /// The snapshots whose trees begin with these digits, each tree once.
    pub fn beginning_with(&self, digits: &str) -> Vec<&Point> {
        let mut found: Vec<&Point> = Vec::new();
        for point in self.points.iter().filter(|point| point.tree.starts_with(digits)) {
            if found.iter().all(|known| known.tree != point.tree) {
                found.push(point);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::SnapshotTaken;

    fn taken(iteration: u32, tree: &str, found: bool) -> Payload {
        let (tree, exclude) = (tree.to_owned(), Vec::new());
        Payload::Snapshot(Box::new(SnapshotTaken {
            iteration,
            tree,
            files: 0,
            bytes: 0,
            written: 0,
            left_out: 0,
            found,
            exclude,
        }))
    }

    fn trees(timeline: &Timeline, iterations: std::ops::Range<u32>) -> Vec<&str> {
        iterations.map(|at| timeline.at(at).map_or("-", |point| &point.tree)).collect()
    }

    #[test]
    fn c_16_1_an_iteration_ends_with_its_own_snapshot_or_with_the_last_before_it() {
        let mut timeline = Timeline::default();
        for payload in [taken(0, "a", false), taken(2, "b", false), taken(4, "c", false)] {
            timeline.apply(&payload);
        }
        assert_eq!(trees(&timeline, 0..6), ["a", "a", "b", "b", "c", "c"]);
        // Iteration 5 changed nothing; what a person changed afterwards is where iteration 6 begins.
        timeline.close(5);
        assert!(timeline.is_closed(5));
        timeline.apply(&taken(5, "d", true));
        assert_eq!(trees(&timeline, 4..7), ["c", "c", "d"]);
        let (tree, saved) = ("a".to_owned(), "d".to_owned());
        timeline.apply(&Payload::Rollback { iteration: 6, to: Some(0), tree, saved });
        assert_eq!(trees(&timeline, 5..8), ["c", "d", "a"]);
        assert_eq!(timeline.beginning_with("a").len(), 1);
    }

    #[test]
    fn c_16_1_snapshots_that_begin_late_say_nothing_of_before() {
        let mut timeline = Timeline::default();
        timeline.close(3);
        assert!(!timeline.is_closed(3));
        timeline.apply(&taken(3, "a", false));
        assert_eq!(trees(&timeline, 2..5), ["-", "a", "a"]);
    }
}
