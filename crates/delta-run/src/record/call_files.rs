//! What the calls of a run leave in its directory: records, output and images, and whatever tools write there themselves.

use delta_base::durable;
use std::path::Path;

/// What does not come from calls, relative to the run directory.
const OTHER_ENTRIES: [&str; 15] = [
    "journal.jsonl",
    "metadata.json",
    "engine.log",
    "lock",
    "lease",
    "budget.jsonl",
    "children.jsonl",
    "prices.json",
    "agent",
    "snapshots",
    "stage",
    "interaction",
    "surviving",
    "io/invocations",
    "io/hooks",
];

/// The bytes of the files that the calls of the run in `run_dir` have left there. A file that cannot be read counts nothing.
pub fn call_file_bytes(run_dir: &Path) -> u64 {
    let mut total = 0;
    let mut waiting = vec![run_dir.to_owned()];
    while let Some(dir) = waiting.pop() {
        for entry in durable::read_dir_no_follow(&dir).unwrap_or_default() {
            let path = dir.join(&entry.name);
            let is_other = path
                .strip_prefix(run_dir)
                .is_ok_and(|name| OTHER_ENTRIES.iter().any(|other| name == Path::new(other)));
            if is_other {
                continue;
            }
            if entry.is_dir() {
                waiting.push(path);
            } else if entry.is_file() {
                total += durable::metadata_no_follow(&path).map_or(0, |metadata| metadata.len());
            }
        }
    }
    total
}
