//! The runs of a page: those that were asked for, and those that were begun inside them.

use super::Wanted;
use super::files::Room;
use super::run::{ChildRun, Run};
use crate::family;
use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};

/// How much of outputs and requests a page holds whole, in bytes; beyond that a browser is slow to open it.
const ROOM: usize = 128 * 1024 * 1024;
/// How many runs a page holds.
const MOST: usize = 1_000;

/// The runs, each once, and the places of those that were asked for.
pub fn collect(wanted: &Wanted) -> (Vec<Run>, Vec<usize>) {
    let mut room = Room::new(ROOM);
    let mut queue = Queue::default();
    let roots: Vec<usize> = wanted.run_dirs.iter().filter_map(|dir| queue.add(dir)).collect();
    let mut runs: Vec<Run> = Vec::new();
    while let Some(dir) = queue.waiting.pop_front() {
        let id = dir.file_name().map(|name| name.to_string_lossy().into_owned());
        let mut run = Run::read(&id.unwrap_or_default(), &dir, wanted, &mut room);
        for known in family::children(&dir) {
            let place = family::find(&dir, &known).and_then(|found| queue.add(&found));
            run.children.push(ChildRun { known, run: place });
        }
        runs.push(run);
    }
    (runs, roots)
}

/// The directories of runs in the order in which they are found; each has a place once, so that no circle is endless.
#[derive(Default)]
struct Queue {
    places: HashMap<PathBuf, usize>,
    waiting: VecDeque<PathBuf>,
}

impl Queue {
    fn add(&mut self, dir: &Path) -> Option<usize> {
        let dir = dir.canonicalize().ok()?;
        let next = self.places.len();
        if let Some(place) = self.places.get(&dir) {
            return Some(*place);
        }
        if next == MOST {
            return None;
        }
        self.places.insert(dir.clone(), next);
        self.waiting.push_back(dir);
        Some(next)
    }
}
