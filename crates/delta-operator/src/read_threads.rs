//! Reads many runs at the same time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// The most threads that read runs. Most of the time they wait for the disk, which answers many requests at once.
const MAX_THREADS: usize = 64;
/// A thread is worth its start from this number of runs or workspaces on.
const MIN_ITEMS_PER_THREAD: usize = 16;

/// Reads something for each item on several threads, which wait for the disk at the same time. The results have the order
/// of the items.
pub fn map_on_threads<T: Sync, R: Send>(items: &[T], read: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let thread_count = (items.len() / MIN_ITEMS_PER_THREAD).clamp(1, MAX_THREADS);
    let next = AtomicUsize::new(0);
    let read_rest = || {
        let mut results = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            match items.get(index) {
                Some(item) => results.push((index, read(item))),
                None => return results,
            }
        }
    };
    let mut results = thread::scope(|scope| {
        let others: Vec<_> = (1..thread_count).map(|_| scope.spawn(read_rest)).collect();
        let mut results = read_rest();
        results.extend(others.into_iter().flat_map(|other| other.join().unwrap_or_default()));
        results
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}
