//! The programs and argument files of graders: as they are now, and as they were planned.

use crate::formats::grader::{GraderKind, PlannedGrader};
use crate::planning::source_copies::read_with_hash;
use delta_run::sweep::sweep_dir::SweepDir;
use std::path::{Path, PathBuf};

/// The program of the grader, if it differs from its copy. A plan has no path of its sweep.yaml, so the program is looked for in
/// the current directory and next to the directory of the sweep; if it is in neither, nothing is known.
pub fn find_changed_program(dir: &SweepDir, grader: &PlannedGrader) -> Option<PathBuf> {
    let GraderKind::Command { argv, file: Some(planned), .. } = &grader.kind else { return None };
    let program = argv.first()?;
    let bases = [Some(Path::new("")), dir.root.parent()];
    let paths = bases.into_iter().flatten().map(|base| base.join(program));
    let mut changed = None;
    for path in paths {
        match read_with_hash(&path) {
            Ok((_, hash)) if hash == *planned => return None,
            Ok(_) if changed.is_none() => changed = Some(path),
            _ => {}
        }
    }
    changed
}

/// A file that an argument of the grader names, if it is another one than when the grader was planned.
pub fn find_changed_argument(grader: &PlannedGrader) -> Option<PathBuf> {
    let GraderKind::Command { argument_files, .. } = &grader.kind else { return None };
    let mut files = argument_files.iter();
    let (path, _) = files.find(|(path, planned)| {
        read_with_hash(Path::new(path)).is_ok_and(|(_, hash)| hash != **planned)
    })?;
    Some(PathBuf::from(path))
}
