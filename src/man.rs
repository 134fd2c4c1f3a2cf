//! `delta man`, which shows a manual page at a terminal with the program `man`.

use crate::programs;
use delta_base::redact::Secrets;
use delta_launch::operator::{cancel, environment};
use delta_process::{LaunchContext, ProcessEnd, WorkerFile, find_program, run_in_foreground};
use delta_program::completions::CliProgram;
use delta_program::man::{self, ManArgs};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Prints or shows a manual page; returns the exit code.
pub fn man_command(args: &ManArgs, program: &CliProgram) -> ExitCode {
    if let Some(code) = programs::start_for_manual(args.command()) {
        return code;
    }
    match args.directory().and_then(|dir| write_pages_of_all(dir, program)) {
        Some(code) => code,
        None => man::print_manual_page(args, program, show_manual_page),
    }
}

/// Writes the pages of delta, and becomes the program that writes the pages of sweeps; `None` if it is missing or delta's
/// could not be written, which are then written alone, with a report of the error.
fn write_pages_of_all(dir: &Path, program: &CliProgram) -> Option<ExitCode> {
    let count = man::write_all_pages(program, dir).ok()?;
    let arguments = ["delta", "man", "--written", &count.to_string(), "--all"].map(OsString::from);
    programs::start_sweep(&[&arguments[..], &[dir.into()]].concat())
}

/// Shows a page of roff; false if `man` cannot.
fn show_manual_page(page: &str) -> bool {
    let launch = LaunchContext {
        cwd: std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/")),
        env: environment::variables_without_keys(&[]).into(),
        secrets: Secrets::default(),
        containment: None,
        sandbox: None,
    };
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
