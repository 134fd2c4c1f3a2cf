//! Collects the requested runs and all their child runs.

use super::PageOptions;
use super::page_run::{PageChildRun, PageRun};
use super::run_files::PageCapacity;
use delta_run::run_tree;
use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};

/// Browsers open larger pages slowly.
const PAGE_CAPACITY_BYTES: usize = 128 * 1024 * 1024;
const MAX_RUNS: usize = 1_000;

/// Reads each run once; also gives the indexes of the requested runs.
pub fn collect_page_runs(options: &PageOptions) -> (Vec<PageRun>, Vec<usize>) {
    let mut capacity = PageCapacity::new(PAGE_CAPACITY_BYTES);
    let mut queue = RunQueue::default();
    let roots: Vec<usize> = options.run_dirs.iter().filter_map(|dir| queue.push(dir)).collect();
    let mut runs: Vec<PageRun> = Vec::new();
    while let Some(dir) = queue.waiting.pop_front() {
        let id = dir.file_name().map(|name| name.to_string_lossy().into_owned());
        let mut run = PageRun::read(&id.unwrap_or_default(), &dir, options, &mut capacity);
        for entry in run_tree::read_child_runs(&dir) {
            let child_dir = run_tree::locate_child_run(&dir, &entry);
            let index = child_dir.and_then(|child_dir| queue.push(&child_dir));
            run.children.push(PageChildRun { entry, run: index });
        }
        runs.push(run);
    }
    (runs, roots)
}

/// Run directories in the order of discovery. Each gets one index, so a cycle of child runs ends.
#[derive(Default)]
struct RunQueue {
    indexes: HashMap<PathBuf, usize>,
    waiting: VecDeque<PathBuf>,
}

impl RunQueue {
    /// The index of the run in `dir`; `None` when it does not exist or the page has too many runs.
    fn push(&mut self, dir: &Path) -> Option<usize> {
        let dir = dir.canonicalize().ok()?;
        let next = self.indexes.len();
        if let Some(index) = self.indexes.get(&dir) {
            return Some(*index);
        }
        if next == MAX_RUNS {
            return None;
        }
        self.indexes.insert(dir.clone(), next);
        self.waiting.push_back(dir);
        Some(next)
    }
}
