//! The file of a statement: it is read or refused, and what it names is looked for in the directory alone.
#![no_main]

use delta_fuzz::directory;
use delta_report::statement::verify_statement::verify_statement;
use delta_run::journal::seal::SealKeys;
use libfuzzer_sys::fuzz_target;
use std::path::PathBuf;
use std::sync::LazyLock;

static CHECKOUT: LazyLock<PathBuf> = LazyLock::new(directory);

fuzz_target!(|bytes: &[u8]| {
    // Nothing in an empty directory is what a statement says, and no key has signed it.
    if let Ok(report) = verify_statement("it", bytes, &CHECKOUT, None, &SealKeys::default(), None) {
        assert!(!report.holds && !report.render_text().is_empty());
    }
});
