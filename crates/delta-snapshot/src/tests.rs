//! Restores are exact, checked with the standard library; and the cost of a snapshot.

use super::*;
use delta_base::redact::Secrets;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{PermissionsExt, symlink};

/// A workspace and the directory of a run.
struct Place {
    dir: tempfile::TempDir,
    store: SnapshotStore,
}

/// A path as the standard library sees it, without the code under test.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PathState {
    File(u32, Vec<u8>),
    Directory(u32),
    Symlink(Vec<u8>),
    Other,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("work/.delta/r");
        fs::create_dir_all(&run).unwrap();
        fs::write(run.join("journal.jsonl"), "mine").unwrap();
        let mut store = SnapshotStore::open(&run, ExcludePatterns::default()).unwrap();
        store.keep_special_bits();
        Self { dir, store }
    }

    fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        self.work().join(path)
    }

    fn take(&mut self) -> Snapshot {
        self.take_without(&Secrets::default())
    }

    fn take_without(&mut self, secrets: &Secrets) -> Snapshot {
        let work = self.work();
        self.store.take(&work, secrets, None).unwrap()
    }

    fn restore(&mut self, tree: SnapshotId) -> SnapshotDiff {
        let work = self.work();
        self.store.restore(tree, &work, &Secrets::default(), None).unwrap()
    }

    fn seen(&self) -> BTreeMap<Vec<u8>, PathState> {
        let mut seen = BTreeMap::new();
        look(&self.work(), &[], &mut seen);
        seen
    }

    fn write(&self, path: &str, content: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Only root can remove an entry of a read-only directory.
        for (path, seen) in self.seen() {
            if let PathState::Directory(_) = seen {
                let path = self.at(OsString::from_vec(path));
                let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o700));
            }
        }
    }
}

fn look(dir: &Path, path: &[u8], seen: &mut BTreeMap<Vec<u8>, PathState>) {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let name = entry.file_name();
        if name == ".delta" {
            continue;
        }
        let below = tree::join_tree_path(path, name.as_bytes());
        let metadata = fs::symlink_metadata(entry.path()).unwrap();
        let mode = metadata.permissions().mode() & 0o7777;
        let found = if metadata.is_dir() {
            PathState::Directory(mode)
        } else if metadata.is_symlink() {
            PathState::Symlink(fs::read_link(entry.path()).unwrap().into_os_string().into_vec())
        } else if metadata.is_file() {
            PathState::File(mode, fs::read(entry.path()).unwrap())
        } else {
            PathState::Other
        };
        let is_directory = metadata.is_dir();
        seen.insert(below.clone(), found);
        if is_directory {
            look(&entry.path(), &below, seen);
        }
    }
}

/// An action of an agent in its workspace; the numbers choose the paths.
#[derive(Debug, Clone)]
enum Action {
    Write(u16, u16, u32),
    Append(u16),
    Directory(u16, u16),
    Remove(u16),
    Move(u16, u16, u16),
    Mode(u16, u8),
    Symlink(u16, u16, u8),
    HardLink(u16, u16, u16),
}

fn actions(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Action>> {
    let action = prop_oneof![
        4 => any::<(u16, u16, u32)>().prop_map(|(a, b, c)| Action::Write(a, b, c)),
        2 => any::<u16>().prop_map(Action::Append),
        3 => any::<(u16, u16)>().prop_map(|(a, b)| Action::Directory(a, b)),
        2 => any::<u16>().prop_map(Action::Remove),
        3 => any::<(u16, u16, u16)>().prop_map(|(a, b, c)| Action::Move(a, b, c)),
        2 => any::<(u16, u8)>().prop_map(|(a, b)| Action::Mode(a, b)),
        2 => any::<(u16, u16, u8)>().prop_map(|(a, b, c)| Action::Symlink(a, b, c)),
        1 => any::<(u16, u16, u16)>().prop_map(|(a, b, c)| Action::HardLink(a, b, c)),
    ];
    proptest::collection::vec(action, count)
}

const NAMES: [&[u8]; 9] =
    [b"a", b"b", b"c.txt", b"a-", b"new\nline", b" ", b"\xff\xfe", b"-rf", b"\xc3\xa4"];

impl Place {
    /// Performs the action; an action that the system rejects changes nothing.
    fn perform(&self, action: &Action) {
        let paths: Vec<(PathBuf, PathState)> = self
            .seen()
            .into_iter()
            .map(|(path, seen)| (self.at(OsString::from_vec(path)), seen))
            .collect();
        let some = |number: u16| {
            let count = paths.len().max(1);
            paths.get(usize::from(number) % count).map(|(path, _)| path.clone())
        };
        let directories: Vec<PathBuf> = paths
            .iter()
            .filter(|(_, seen)| matches!(seen, PathState::Directory(_)))
            .map(|(path, _)| path.clone())
            .chain([self.work()])
            .collect();
        let fresh = |number: u16, name: u16| {
            let name = OsString::from_vec(NAMES[usize::from(name) % NAMES.len()].to_vec());
            directories[usize::from(number) % directories.len()].join(name)
        };
        let modes = [0o644, 0o755, 0o400, 0o4755, 0o2750, 0o1777, 0o500, 0o600];
        let _ = match action {
            Action::Write(dir, name, content) => {
                let long = if content % 16 == 0 { 300_000 } else { 1 };
                fs::write(fresh(*dir, *name), (content % 5).to_string().repeat(long))
            }
            Action::Append(path) => {
                some(*path).filter(|path| path.is_file()).map_or(Ok(()), |path| {
                    fs::read(&path).and_then(|old| fs::write(&path, [&old[..], b"+"].concat()))
                })
            }
            Action::Directory(dir, name) => fs::create_dir(fresh(*dir, *name)),
            Action::Remove(path) => some(*path).map_or(Ok(()), |path| {
                fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path))
            }),
            Action::Move(path, dir, name) => {
                let to = fresh(*dir, *name);
                some(*path).map_or(Ok(()), |path| {
                    let _ = fs::remove_dir_all(&to).or_else(|_| fs::remove_file(&to));
                    rustix::fs::rename(&path, &to).map_err(Into::into)
                })
            }
            Action::Mode(path, mode) => {
                some(*path).filter(|path| !path.is_symlink()).map_or(Ok(()), |path| {
                    // A path that its owner cannot read is omitted, unless the owner is root.
                    let owner = if path.is_dir() { 0o500 } else { 0o400 };
                    let mode = modes[usize::from(*mode) % modes.len()] | owner;
                    fs::set_permissions(path, fs::Permissions::from_mode(mode))
                })
            }
            Action::Symlink(dir, name, target) => {
                let targets = ["a", "nowhere", "..", "/etc", "..\n", "b/a"];
                symlink(targets[usize::from(*target) % targets.len()], fresh(*dir, *name))
            }
            Action::HardLink(path, dir, name) => {
                some(*path).map_or(Ok(()), |path| fs::hard_link(path, fresh(*dir, *name)))
            }
        };
    }
}

/// Performs the actions in groups, with a snapshot after each group; then restores the snapshots in `order`.
fn check(place: &mut Place, groups: &[Vec<Action>], order: &[usize]) {
    let mut known = vec![(place.take().tree, place.seen())];
    for group in groups {
        group.iter().for_each(|action| place.perform(action));
        known.push((place.take().tree, place.seen()));
    }
    for (one, (tree, seen)) in known.iter().enumerate() {
        for (other_tree, other_seen) in &known[one..] {
            assert_eq!(tree == other_tree, seen == other_seen, "trees are equal as workspaces are");
        }
    }
    for number in order {
        let (tree, seen) = &known[number % known.len()];
        let difference = place.restore(*tree);
        assert!(&place.seen() == seen, "after {difference:?}");
        assert_eq!(place.take().tree, *tree);
        assert_eq!(fs::read(place.at(".delta/r/journal.jsonl")).unwrap(), b"mine");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn c_16_2_a_workspace_is_restored_exactly(
        groups in proptest::collection::vec(actions(1..16), 1..6),
        order in proptest::collection::vec(any::<usize>(), 1..8),
    ) {
        check(&mut Place::new(), &groups, &order);
    }
}

/// 10,000 files: some in one large directory, the others in many small ones.
fn large() -> Place {
    let place = Place::new();
    for number in 0..4_000 {
        place.write(&format!("flat/{number}"), &number.to_string());
    }
    for dir in 0..60 {
        for number in 0..100 {
            place.write(&format!("d{}/e{dir}/{number}.txt", dir % 7), &format!("{dir} {number}"));
        }
    }
    place
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn c_16_2_a_workspace_of_10_000_files_is_restored_exactly(
        groups in proptest::collection::vec(actions(1..8), 2),
        order in proptest::collection::vec(any::<usize>(), 2),
    ) {
        check(&mut large(), &groups, &order);
    }
}

#[test]
fn c_16_1_unchanged_files_are_neither_read_nor_written() {
    let mut place = large();
    let first = place.take();
    assert_eq!(first.files, 10_000);
    // Wait until all files are older than a tick of the file system's clock.
    test_support::wait::until("a snapshot that reads nothing", || {
        place.take();
        (place.store.index.len() == 10_000).then_some(())
    });
    place.store.save_index().unwrap();
    let run = place.at(".delta/r");
    place.store = SnapshotStore::open(&run, ExcludePatterns::default()).unwrap();
    place.store.keep_special_bits();
    assert_eq!(place.store.index.len(), 10_000, "the next process knows it too");
    // A snapshot of known contents does not read them.
    let again = place.take();
    assert_eq!((again.tree, again.written_bytes), (first.tree, 0));
    place.write("flat/77", "changed");
    place.write("d3/e3/5.txt", "changed");
    let changed = place.take();
    assert!(
        changed.written_bytes < 60_000,
        "{} bytes for two changed files",
        changed.written_bytes
    );
    let paths = place.store.diff(first.tree, changed.tree).unwrap().changes;
    let paths: Vec<_> = paths.iter().map(|it| String::from_utf8_lossy(&it.path)).collect();
    assert_eq!(paths, ["d3/e3/5.txt", "flat/77"]);
}

/// The object file of the content `text`.
fn object(place: &Place, text: &str) -> PathBuf {
    let id = SnapshotId::from_content(text.as_bytes()).to_string();
    place.at(".delta/r/snapshots/objects").join(&id[..2]).join(&id[2..])
}

#[test]
fn c_16_2_a_damaged_snapshot_changes_nothing() {
    let mut place = Place::new();
    place.write("a", "one");
    place.write("b", "two");
    let tree = place.take().tree;
    place.write("a", "ONE");
    place.write("b", "TWO");
    place.write("c", "three");
    fs::write(object(&place, "one"), "eno").unwrap();
    fs::remove_file(object(&place, "two")).unwrap();
    let before = place.seen();
    let work = place.work();
    let error = place.store.restore(tree, &work, &Secrets::default(), None).unwrap_err();
    let expected = format!(
        "the snapshot is damaged:\na: {} is damaged: its SHA-256 does not match its name\n\
         b: could not read {}: No such file or directory (os error 2)",
        object(&place, "one").display(),
        object(&place, "two").display()
    );
    assert_eq!(error.to_string(), expected);
    assert_eq!(place.seen(), before);
    // Trees are checked in the same way.
    fs::write(
        place
            .at(".delta/r/snapshots/objects")
            .join(&tree.to_string()[..2])
            .join(&tree.to_string()[2..]),
        "f",
    )
    .unwrap();
    assert!(matches!(
        place.store.restore(tree, &work, &Secrets::default(), None),
        Err(SnapshotError::Damaged(_))
    ));
    assert_eq!(place.seen(), before);
}

#[test]
fn c_16_1_an_object_emptied_by_a_power_failure_is_written_again() {
    let mut place = Place::new();
    place.write("a", "one");
    let tree = place.take().tree;
    fs::write(object(&place, "one"), "").unwrap();
    place.store = SnapshotStore::open(&place.at(".delta/r"), ExcludePatterns::default()).unwrap();
    assert_eq!(place.take().tree, tree);
    assert_eq!(fs::read(object(&place, "one")).unwrap(), b"one");
}

#[test]
fn c_16_1_an_object_of_zeros_is_written_again_after_another_boot() {
    let mut place = Place::new();
    place.write("file", "content");
    place.write("large", &"x".repeat(600_000));
    let taken = test_support::wait::until("an index of both files", || {
        let taken = place.take();
        (place.store.index.len() == 2).then_some(taken)
    });
    place.store.save_index().unwrap();
    // What a power failure can leave: the length of the file, and not its content.
    for text in ["content", &"x".repeat(600_000)] {
        let path = object(&place, text);
        fs::write(&path, vec![0; text.len()]).unwrap();
    }
    let index = place.at(".delta/r/snapshots/index");
    let bytes = fs::read(&index).unwrap();
    let line = bytes.iter().position(|byte| *byte == b'\n').unwrap();
    fs::write(&index, [b"delta snapshots 2 an earlier boot", &bytes[line..]].concat()).unwrap();
    place.store = SnapshotStore::open(&place.at(".delta/r"), ExcludePatterns::default()).unwrap();
    assert_eq!(place.take().tree, taken.tree);
    fs::remove_file(place.at("file")).unwrap();
    place.restore(taken.tree);
    assert_eq!(fs::read_to_string(place.at("file")).unwrap(), "content");
}

#[test]
fn c_16_2_a_symlink_that_replaces_a_directory_is_not_followed() {
    let mut place = Place::new();
    let outside = place.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    for name in ["kept", "gone"] {
        fs::write(outside.join(name), "theirs").unwrap();
    }
    place.write("d/kept", "ours");
    let tree = place.take().tree;
    place.write("d/gone", "later");
    // Replaced before the snapshot.
    rustix::fs::rename(place.at("d"), place.at("e")).unwrap();
    symlink(&outside, place.at("d")).unwrap();
    place.restore(tree);
    assert_eq!(fs::read(place.at("d/kept")).unwrap(), b"ours");
    // Replaced between the snapshot and the restore.
    place.write("d/gone", "later");
    place.write("d/kept", "later");
    let present = place.take().tree;
    let plan = place.store.plan_restore(present, tree, None).unwrap();
    rustix::fs::rename(place.at("d"), place.at("e")).unwrap();
    symlink(&outside, place.at("d")).unwrap();
    let work = place.work();
    let error = place.store.apply_restore(&plan, &work, None).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("could not restore {}: Not a directory (os error 20)", place.at("d").display())
    );
    let names: Vec<_> = fs::read_dir(&outside).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2);
    assert!(["kept", "gone"].iter().all(|it| fs::read(outside.join(it)).unwrap() == b"theirs"));
    // Repeating the restore does the rest.
    place.restore(tree);
    assert_eq!(place.take().tree, tree);
}

#[test]
fn c_16_2_an_interrupted_restore_can_be_repeated() {
    let mut place = Place::new();
    for name in ["a", "b", "d/e/f", "d/g", "old/h"] {
        place.write(name, name);
    }
    symlink("a", place.at("l")).unwrap();
    let tree = place.take().tree;
    let change = |place: &Place| {
        place.write("a", "changed");
        fs::remove_dir_all(place.at("d")).unwrap();
        place.write("d", "a file");
        fs::remove_file(place.at("l")).unwrap();
        place.write("l/new", "new");
        fs::remove_dir_all(place.at("old")).unwrap();
        // A killed process leaves this between writing a file and renaming it.
        place.write(".delta-restore", "half");
    };
    for stop in 0.. {
        change(&place);
        let present = place.take().tree;
        let asked = std::cell::Cell::new(0);
        let go_on = || {
            asked.set(asked.get() + 1);
            if asked.get() > stop { Err(SnapshotError::Cancelled) } else { Ok(()) }
        };
        let work = place.work();
        let plan = place.store.plan_restore(present, tree, None).unwrap();
        let done = place.store.apply_restore_with(&plan, &work, &go_on);
        place.restore(tree);
        assert_eq!(place.take().tree, tree, "stopped after {stop}");
        if done.is_ok() {
            assert!(stop > 8, "only {stop} steps");
            return;
        }
    }
}

#[test]
fn c_16_1_omitted_paths_are_reported_once_and_stay() {
    let mut place = Place::new();
    let secrets = Secrets::new(["sk-a-long-key".to_owned()]);
    place.store =
        SnapshotStore::open(&place.at(".delta/r"), ExcludePatterns::parse(["build"]).unwrap())
            .unwrap();
    place.write("src/a", "one");
    place.write(".env", "KEY=sk-a-long-key\n");
    place.write("with sk-a-long-key", "x");
    place.write("build/x", "made");
    place.write("sub/.delta/r/journal.jsonl", "theirs");
    rustix::fs::mkfifoat(rustix::fs::CWD, place.at("pipe"), Mode::from_raw_mode(0o600)).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(place.at("socket")).unwrap();
    symlink("sk-a-long-key", place.at("link")).unwrap();
    let first = place.take_without(&secrets);
    let told: Vec<String> = first
        .newly_omitted
        .iter()
        .map(|it| format!("{}: {}", String::from_utf8_lossy(&it.path), it.reason))
        .collect();
    assert_eq!(
        told,
        [
            ".env: it holds a key",
            "link: it holds a key",
            "pipe: it is a pipe",
            "socket: it is a socket",
            "with sk-a-long-key: its name holds a key",
        ]
    );
    assert_eq!(place.take_without(&secrets).newly_omitted, []);
    let kept = fs::read_dir(place.at(".delta/r/snapshots/objects")).unwrap();
    for dir in kept.map(|it| it.unwrap().path()).filter(|it| it.is_dir()) {
        for file in fs::read_dir(dir).unwrap() {
            let bytes = fs::read(file.unwrap().path()).unwrap();
            assert!(!String::from_utf8_lossy(&bytes).contains("sk-a-long-key"));
        }
    }
    place.write("src/a", "two");
    place.write("build/y", "made later");
    place.write(".env", "KEY=sk-a-long-key and more\n");
    fs::remove_file(place.at("pipe")).unwrap();
    let work = place.work();
    let mut expected = place.seen();
    expected.insert(b"src/a".to_vec(), PathState::File(0o644, b"one".to_vec()));
    place.store.restore(first.tree, &work, &secrets, None).unwrap();
    assert_eq!(place.seen(), expected);
    // A directory that contains an omitted path cannot become a file again.
    fs::remove_dir_all(place.at("sub")).unwrap();
    place.write("sub", "a file");
    let file = place.take_without(&secrets).tree;
    fs::remove_file(place.at("sub")).unwrap();
    place.write("sub/build/x", "made");
    let before = place.seen();
    let error = place.store.restore(file, &work, &secrets, None).unwrap_err();
    let expected = "paths that are in no snapshot would be overwritten:\nsub/build";
    assert_eq!(error.to_string(), expected);
    assert_eq!(place.seen(), before);
}

#[test]
fn c_16_2_another_store_can_copy_a_snapshot() {
    let (mut place, mut other) = (Place::new(), Place::new());
    place.write("d/a", "one");
    place.write("big", &"long".repeat(100_000));
    for number in 0..300 {
        place.write(&format!("many/{number}"), "x");
    }
    symlink("d/a", place.at("l")).unwrap();
    let tree = place.take().tree;
    other.store.copy_tree_from(&place.store, tree).unwrap();
    other.restore(tree);
    assert_eq!(other.seen(), place.seen());
}
