//! `.env`: it is read or says where it is wrong, and every value can be one of a variable.
#![no_main]

use delta_agent::agent::env_layers::{DotenvLocations, EnvLayers};
use delta_yaml::diagnostic::Diagnostic;
use delta_fuzz::{directory, is_inside};
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::LazyLock;

static HOME: LazyLock<PathBuf> = LazyLock::new(directory);

/// What is wrong with a `.env` shows no line of it, and has its place in the name of the file.
fn placed(found: Diagnostic) -> Diagnostic {
    let mut parts = found.file.rsplitn(3, ':').filter_map(|part| part.parse().ok());
    let (column, line) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    Diagnostic { line, column, ..found }
}

fuzz_target!(|text: &str| {
    std::fs::write(HOME.join(".env"), text).expect("the file cannot be written");
    let places = DotenvLocations {
        workspace: None,
        agent_home: &HOME,
        current_dir: &HOME,
        named_files: &[],
    };
    match EnvLayers::read(&places, BTreeMap::new(), &|_, _| true) {
        Err(report) => report.diagnostics.into_iter().for_each(|it| is_inside(&placed(it), text)),
        Ok(layers) => {
            for (name, value) in layers.child_variables(&[], &[]) {
                let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
                assert!(!name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0'));
            }
        }
    }
});
