//! How many cases a test tries.

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
