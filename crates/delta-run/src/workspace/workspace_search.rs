//! Finds the workspaces below directories: every directory with a `.delta`, at any depth.

use crate::workspace::{self, CONTROL_DIR, Workspace};
use delta_base::durable::FileError;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Directories that have no workspaces below them, but perhaps very many files.
const SKIPPED_DIRS: [&str; 4] = [CONTROL_DIR, ".git", "node_modules", "target"];

/// The result of a search.
#[derive(Debug, Default)]
pub struct WorkspaceSearch {
    /// The workspaces, sorted by path, each once.
    pub workspaces: Vec<Workspace>,
    /// The directories that could not be searched, sorted by path. Workspaces below them are missing above.
    pub unreadable: Vec<FileError>,
}

/// Finds the workspaces at and below `roots`. A root may be a symlink to a directory; below it no symlink is followed. A
/// directory for the runs of all workspaces, or an entry of it, is one that the process then uses: its workspaces are found
/// wherever they are.
///
/// # Errors
/// A root is missing or cannot be reached.
pub fn find_workspaces(roots: &[&Path]) -> Result<WorkspaceSearch, FileError> {
    let mut search = WorkspaceSearch::default();
    let mut sorted_roots = BTreeSet::new();
    for root in roots {
        sorted_roots.insert(root.canonicalize().map_err(FileError::at("read", root))?);
    }
    // In this order a root comes before the roots inside it, which its search covers unless it skips them.
    let mut searched: Vec<PathBuf> = Vec::new();
    if let [root] = sorted_roots.iter().collect::<Vec<_>>()[..]
        && let Some((dir, roots)) = workspace::runs_dir_at(root)
        && workspace::runs_dir().is_none_or(|known| known == dir)
    {
        if workspace::runs_dir().is_none() {
            workspace::set_runs_dir(dir.to_owned(), true);
        }
        search.workspaces.extend(roots.into_iter().map(|root| Workspace { root }));
        sorted_roots.clear();
    }
    for root in sorted_roots {
        if !searched.iter().any(|outer| is_searched_from(&root, outer)) {
            search.visit(root.clone());
            let outside = workspace::workspaces_in_runs_dir(&root).into_iter();
            search.workspaces.extend(outside.map(|root| Workspace { root }));
            searched.push(root);
        }
    }
    search.workspaces.sort_by(|one, other| one.root.cmp(&other.root));
    search.workspaces.dedup();
    search.unreadable.sort_by(|one, other| one.path.cmp(&other.path));
    search.unreadable.dedup_by(|one, other| one.path == other.path);
    Ok(search)
}

/// Whether a search from `outer` comes through `dir`.
fn is_searched_from(dir: &Path, outer: &Path) -> bool {
    let rest = dir.strip_prefix(outer);
    rest.is_ok_and(|rest| !rest.iter().any(|name| SKIPPED_DIRS.iter().any(|skip| name == *skip)))
}

impl WorkspaceSearch {
    fn visit(&mut self, root: PathBuf) {
        let mut remaining = vec![root];
        while let Some(dir) = remaining.pop() {
            if let Err(source) = self.visit_entries(&dir, &mut remaining) {
                // A directory that was removed since its name was read has no workspaces.
                if source.kind() != io::ErrorKind::NotFound {
                    self.unreadable.push(FileError::at("read", &dir)(source));
                }
            }
        }
    }

    /// Adds `dir` if it is a workspace, and its directories to `remaining`.
    fn visit_entries(&mut self, dir: &Path, remaining: &mut Vec<PathBuf>) -> io::Result<()> {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            if !entry.file_type().is_ok_and(|file_type| file_type.is_dir()) {
                continue;
            }
            let name = entry.file_name();
            if name == CONTROL_DIR {
                self.add_workspace(dir);
            } else if !SKIPPED_DIRS.iter().any(|skip| name == *skip) {
                remaining.push(entry.path());
            }
        }
        Ok(())
    }

    fn add_workspace(&mut self, root: &Path) {
        let reason = if root.to_str().is_some() {
            workspace::explain_runs_entry(root)
        } else {
            Some("its path is not UTF-8".to_owned())
        };
        match reason {
            None => self.workspaces.push(Workspace { root: root.to_owned() }),
            Some(reason) => {
                let source = io::Error::new(io::ErrorKind::InvalidData, reason);
                self.unreadable.push(FileError::at("read", root)(source));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// The paths of the workspaces, relative to `base`.
    fn names(search: &WorkspaceSearch, base: &Path) -> Vec<String> {
        let base = base.canonicalize().unwrap();
        let roots = search.workspaces.iter().map(|workspace| &workspace.root);
        roots.map(|root| root.strip_prefix(&base).unwrap().display().to_string()).collect()
    }

    fn make_dirs(base: &Path, dirs: &[&str]) {
        dirs.iter().for_each(|dir| fs::create_dir_all(base.join(dir)).unwrap());
    }

    #[test]
    fn c_25_7_every_workspace_is_found_once_and_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path();
        make_dirs(
            base,
            &[
                "z/.delta",
                "a/.delta",
                "a/inner/deep/er/still/.delta",
                "a/.delta/r/.delta",
                ".hidden/.delta",
                "a/.git/x/.delta",
                "node_modules/p/.delta",
                "z/target/w/.delta",
                "plain/sub",
                "elsewhere/.delta",
            ],
        );
        fs::write(base.join("plain/.delta"), "a file").unwrap();
        make_dirs(base, &["linked"]);
        symlink(base.join("a/.delta"), base.join("linked/.delta")).unwrap();
        symlink(base, base.join("plain/loop")).unwrap();
        let all = [".hidden", "a", "a/inner/deep/er/still", "elsewhere", "z"];
        let search = find_workspaces(&[base]).unwrap();
        assert_eq!(names(&search, base), all);
        assert!(search.unreadable.is_empty());
        let overlapping: [PathBuf; 4] =
            [base.join("z"), base.to_owned(), base.join("a/inner"), base.join("z/target")];
        let overlapping: Vec<&Path> = overlapping.iter().map(PathBuf::as_path).collect();
        let search = find_workspaces(&overlapping).unwrap();
        let mut with_skipped = all.to_vec();
        with_skipped.push("z/target/w");
        assert_eq!(names(&search, base), with_skipped, "a root is searched whatever its name is");
        assert_eq!(names(&find_workspaces(&[&base.join("plain/loop/z")]).unwrap(), base), ["z"]);
        assert!(find_workspaces(&[]).unwrap().workspaces.is_empty());
    }

    #[test]
    fn c_25_7_what_cannot_be_read_is_reported_and_the_rest_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path();
        make_dirs(base, &["a/.delta", "closed/w/.delta"]);
        let missing = find_workspaces(&[base, &base.join("missing")]).unwrap_err();
        assert!(missing.to_string().contains("missing: No such file"), "{missing}");
        fs::set_permissions(base.join("closed"), PermissionsExt::from_mode(0o000)).unwrap();
        let search = find_workspaces(&[base]).unwrap();
        // Root may read every directory.
        if fs::read_dir(base.join("closed")).is_err() {
            assert_eq!(names(&search, base), ["a"]);
            assert_eq!(search.unreadable.len(), 1);
            assert!(search.unreadable[0].path.ends_with("closed"), "{:?}", search.unreadable);
        }
        fs::set_permissions(base.join("closed"), PermissionsExt::from_mode(0o700)).unwrap();
    }

    #[test]
    fn c_25_7_a_path_that_is_not_utf8_is_reported() {
        use std::os::unix::ffi::OsStrExt;
        let dir = tempfile::tempdir().unwrap();
        let odd = dir.path().join(std::ffi::OsStr::from_bytes(b"w\xff"));
        fs::create_dir_all(odd.join(".delta")).unwrap();
        let search = find_workspaces(&[dir.path()]).unwrap();
        assert!(search.workspaces.is_empty());
        assert!(search.unreadable[0].to_string().ends_with("its path is not UTF-8"));
    }
}
