//! Manual pages at a terminal, which the program `man` shows.

use crate::{cancel, environment};
use delta_process::{LaunchContext, ProcessEnd, WorkerFile, find_program, run_in_foreground};
use std::path::PathBuf;

/// Shows a page of roff; false if `man` cannot.
pub fn show_manual_page(page: &str) -> bool {
    let cwd = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let launch = LaunchContext::new(cwd, environment::variables_without_keys(&[]));
    if find_program("man", &launch).is_err() {
        return false;
    }
    let Ok(file) = WorkerFile::new(page.as_bytes()) else { return false };
    let Ok(cancel) = cancel::install_cancel() else { return false };
    let path = file.path_for_others();
    let argv = ["sh", "-c", "exec man -l - < \"$1\"", "sh", &path].map(str::to_owned);
    let end = run_in_foreground(&argv, &launch, &cancel);
    // A minimal system has a `man` that shows no page.
    matches!(end, ProcessEnd::Exited(0)) || cancel.is_requested()
}
