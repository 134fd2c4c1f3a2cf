//! The hash of an agent directory, by which a run records what it was made by.

use super::MAIN_FILE;
use delta_base::id::SnapshotId;
use delta_snapshot::{HashLimits, SnapshotStore, hash_directory};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What is larger has no hash.
pub(super) const LIMITS: HashLimits = HashLimits { entries: 2000, bytes: 64 * 1024 * 1024 };
/// What never belongs to an agent: keys, and the records of others.
const SKIPPED: [&[u8]; 3] = [b".env", b".git", b".delta"];
/// What an agent directory has that no run of the agent reads.
const SKIPPED_OF_AGENT: [&[u8]; 2] = [b"tests", b"workspaces"];

/// The hash of the agent directory `home`, without a workspace in it; `None` if it has more than 2,000 files and directories,
/// or 64 MiB. Of a symlink the target counts, not its content.
pub fn hash_agent_tree(home: &Path, workspace: &Path) -> Option<SnapshotId> {
    hash_directory(home, &skips_in(home, workspace), LIMITS)
}

/// Stores what [`hash_agent_tree`] hashes; the tree has the same id.
pub fn store_agent_tree(
    store: &mut SnapshotStore,
    home: &Path,
    workspace: &Path,
) -> Option<SnapshotId> {
    store.store_directory(home, &skips_in(home, workspace), LIMITS)
}

/// Which paths do not count, by the names in their directories.
fn skips_in(home: &Path, workspace: &Path) -> impl Fn(&[u8], &[Vec<u8>]) -> bool {
    let workspace = workspace.strip_prefix(home).ok().map(|path| path.as_os_str().as_bytes());
    move |path, names| is_skipped(path, names) || workspace == Some(path)
}

/// Whether a path does not count; `names` are in its directory.
pub(super) fn is_skipped(path: &[u8], names: &[Vec<u8>]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    SKIPPED.contains(&name)
        || SKIPPED_OF_AGENT.contains(&name) && names.iter().any(|name| name == MAIN_FILE.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// An agent, written in another order, with another umask, and with what does not count.
    fn write_agent(home: &Path, is_other: bool) {
        let mut files = vec![
            ("agent.yaml", "name: a\n"),
            ("system_prompt.md", "Work.\n"),
            ("tools/count", "#!/bin/sh\nwc -l\n"),
            ("sub/agent.yaml", "name: sub\n"),
            ("skills/one/tests/case.md", "a case\n"),
        ];
        if is_other {
            files.reverse();
            files.extend([
                (".env", "KEY=1\n"),
                ("tests/one.yaml", "task: it\n"),
                ("workspaces/W001/file", "x"),
                ("sub/workspaces/W001/file", "x"),
                ("sub/.env", "KEY=1\n"),
                ("work/file", "x"),
                (".git/HEAD", "ref: refs/heads/main\n"),
                (".delta/r/journal.jsonl", "{}\n"),
            ]);
        }
        for (name, text) in files {
            let path = home.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            let bits = if name.starts_with("tools") { 0o111 } else { 0 };
            let mode = if is_other { 0o600 | (bits & 0o700) } else { 0o664 | bits };
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        symlink("tools/count", home.join("link")).unwrap();
        if is_other {
            fs::create_dir(home.join("empty")).unwrap();
        }
    }

    #[test]
    fn c_36_13_the_hash_of_an_agent_is_of_what_it_is_made_of() {
        let dir = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| dir.path().join(name));
        write_agent(&one, false);
        write_agent(&other, true);
        let hash = |home: &Path| hash_agent_tree(home, &home.join("work"));
        let expected = hash(&one).unwrap();
        assert_eq!(hash(&other), Some(expected));
        assert_ne!(hash_agent_tree(&other, dir.path()), Some(expected), "a file of the agent");
        type Change = fn(&Path);
        let changes: [Change; 7] = [
            |home| fs::write(home.join("system_prompt.md"), "Rest.\n").unwrap(),
            |home| fs::write(home.join("skills/one/tests/case.md"), "another\n").unwrap(),
            |home| fs::write(home.join("new"), "").unwrap(),
            |home| {
                fs::copy(home.join("tools/count"), home.join("count")).unwrap();
                fs::remove_dir_all(home.join("tools")).unwrap();
            },
            |home| fs::remove_file(home.join("sub/agent.yaml")).unwrap(),
            |home| {
                let mode = fs::Permissions::from_mode(0o644);
                fs::set_permissions(home.join("tools/count"), mode).unwrap();
            },
            |home| {
                fs::remove_file(home.join("link")).unwrap();
                symlink("tools", home.join("link")).unwrap();
            },
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let home = dir.path().join(format!("changed{number}"));
            write_agent(&home, false);
            change(&home);
            assert_ne!(hash(&home), Some(expected), "change {number}");
        }
        let large = dir.path().join("large");
        write_agent(&large, false);
        fs::File::create(large.join("data")).unwrap().set_len(64 * 1024 * 1024).unwrap();
        assert_eq!(hash(&large), None);
        let many = dir.path().join("many");
        write_agent(&many, false);
        (0..2000).for_each(|number| fs::write(many.join(number.to_string()), "").unwrap());
        assert_eq!(hash(&many), None);
        assert_eq!(hash(&dir.path().join("missing")), None);
    }
}
