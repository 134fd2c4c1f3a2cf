//! The names of the files of a run in its directory, for the modules of a run that must not import each other.

/// The journal.
pub const JOURNAL_FILE: &str = "journal.jsonl";

/// The [`crate::state::run_metadata::RunMetadata`].
pub const METADATA_FILE: &str = "metadata.json";

/// The ledger of a run with limits.
pub(crate) const LEDGER_FILE: &str = "budget.jsonl";

/// The file that the owner of a run keeps locked.
pub const OWNER_LOCK_FILE: &str = "lock";

/// The directory with the turns of a run that is owned by turns.
pub(crate) const LEASE_DIR: &str = "lease";
