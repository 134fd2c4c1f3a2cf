//! `delta man`: the pages of delta itself, and the pages of other programs.

use crate::programs;
use delta_operator::manual_page::show_manual_page;
use delta_program::completions::CliProgram;
use delta_program::man::{self, ManArgs};
use std::ffi::OsString;
use std::path::Path;
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
    let sweep = programs::find("sweep")?;
    let count = man::write_all_pages(program, dir).ok()?;
    let arguments = ["delta", "man", "--written", &count.to_string(), "--all"].map(OsString::from);
    Some(programs::become_wing(&sweep, &[&arguments[..], &[dir.into()]].concat()))
}
