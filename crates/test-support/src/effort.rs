//! How many cases a test tries, and on how many threads.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// `gate` cases, or `full` ones when `DELTA_FULL_TESTS` is set, as `.ci/run full` does.
///
/// The gate selects cases that find what they have found before; all of them are for releases, and for the one who changes
/// what they are about.
pub fn cases<T>(gate: T, full: T) -> T {
    if is_full() { full } else { gate }
}

/// Whether this test run tries all cases.
pub fn is_full() -> bool {
    std::env::var_os("DELTA_FULL_TESTS").is_some()
}

/// What `work` returns for each item, in their order. Two threads a processor, because most tests wait for processes. All
/// items are tried; the panic of the first one that failed is the caller's.
pub fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(2, usize::from) * 2;
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(usize, std::thread::Result<R>)>> = Mutex::default();
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    std::thread::scope(|scope| {
        for _ in 0..threads.min(items.len()) {
            // What a test reports has the name of its thread.
            let thread = std::thread::Builder::new().name(test.clone()).spawn_scoped(scope, || {
                loop {
                    let index = next.fetch_add(1, Ordering::SeqCst);
                    let Some(item) = items.get(index) else { break };
                    let result = catch_unwind(AssertUnwindSafe(|| work(item)));
                    results.lock().expect("no panic holds the lock").push((index, result));
                }
            });
            thread.expect("a thread");
        }
    });
    let mut results = results.into_inner().expect("no panic holds the lock");
    results.sort_by_key(|(index, _)| *index);
    results
        .into_iter()
        .map(|(_, result)| result.unwrap_or_else(|panic| resume_unwind(panic)))
        .collect()
}
