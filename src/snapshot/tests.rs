//! Exactness, against what the standard library sees; and what a snapshot costs.

use super::*;
use crate::text::Secrets;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{PermissionsExt, symlink};

/// A workspace beside the directory of a run.
struct Place {
    dir: tempfile::TempDir,
    store: Store,
}

/// A path as it is found without any of the code under test.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
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
        let store = Store::open(&run, Exclude::default()).unwrap();
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

    fn restore(&mut self, tree: Id) -> Difference {
        let work = self.work();
        self.store.restore(tree, &work, &Secrets::default(), None).unwrap()
    }

    fn seen(&self) -> BTreeMap<Vec<u8>, Seen> {
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
        // What cannot be written cannot be removed, except by root.
        for (path, seen) in self.seen() {
            if let Seen::Directory(_) = seen {
                let path = self.at(OsString::from_vec(path));
                let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o700));
            }
        }
    }
}

fn look(dir: &Path, path: &[u8], seen: &mut BTreeMap<Vec<u8>, Seen>) {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let name = entry.file_name();
        if name == ".delta" {
            continue;
        }
        let below = tree::join(path, name.as_bytes());
        let metadata = fs::symlink_metadata(entry.path()).unwrap();
        let mode = metadata.permissions().mode() & 0o7777;
        let found = if metadata.is_dir() {
            Seen::Directory(mode)
        } else if metadata.is_symlink() {
            Seen::Symlink(fs::read_link(entry.path()).unwrap().into_os_string().into_vec())
        } else if metadata.is_file() {
            Seen::File(mode, fs::read(entry.path()).unwrap())
        } else {
            Seen::Other
        };
        let is_directory = metadata.is_dir();
        seen.insert(below.clone(), found);
        if is_directory {
            look(&entry.path(), &below, seen);
        }
    }
}

/// What an agent may do to its workspace; the numbers choose the paths.
#[derive(Debug, Clone)]
enum Deed {
    Write(u16, u16, u32),
    Append(u16),
    Directory(u16, u16),
    Remove(u16),
    Move(u16, u16, u16),
    Mode(u16, u8),
    Symlink(u16, u16, u8),
    HardLink(u16, u16, u16),
}

fn deeds(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Deed>> {
    let deed = prop_oneof![
        4 => any::<(u16, u16, u32)>().prop_map(|(a, b, c)| Deed::Write(a, b, c)),
        2 => any::<u16>().prop_map(Deed::Append),
        3 => any::<(u16, u16)>().prop_map(|(a, b)| Deed::Directory(a, b)),
        2 => any::<u16>().prop_map(Deed::Remove),
        3 => any::<(u16, u16, u16)>().prop_map(|(a, b, c)| Deed::Move(a, b, c)),
        2 => any::<(u16, u8)>().prop_map(|(a, b)| Deed::Mode(a, b)),
        2 => any::<(u16, u16, u8)>().prop_map(|(a, b, c)| Deed::Symlink(a, b, c)),
        1 => any::<(u16, u16, u16)>().prop_map(|(a, b, c)| Deed::HardLink(a, b, c)),
    ];
    proptest::collection::vec(deed, count)
}

const NAMES: [&[u8]; 9] =
    [b"a", b"b", b"c.txt", b"a-", b"new\nline", b" ", b"\xff\xfe", b"-rf", b"\xc3\xa4"];

impl Place {
    /// Does what can be done; what the system refuses changes nothing.
    fn perform(&self, deed: &Deed) {
        let paths: Vec<(PathBuf, Seen)> = self
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
            .filter(|(_, seen)| matches!(seen, Seen::Directory(_)))
            .map(|(path, _)| path.clone())
            .chain([self.work()])
            .collect();
        let fresh = |number: u16, name: u16| {
            let name = OsString::from_vec(NAMES[usize::from(name) % NAMES.len()].to_vec());
            directories[usize::from(number) % directories.len()].join(name)
        };
        let modes = [0o644, 0o755, 0o400, 0o4755, 0o2750, 0o1777, 0o500, 0o600];
        let _ = match deed {
            Deed::Write(dir, name, content) => {
                let long = if content % 16 == 0 { 300_000 } else { 1 };
                fs::write(fresh(*dir, *name), (content % 5).to_string().repeat(long))
            }
            Deed::Append(path) => {
                some(*path).filter(|path| path.is_file()).map_or(Ok(()), |path| {
                    fs::read(&path).and_then(|old| fs::write(&path, [&old[..], b"+"].concat()))
                })
            }
            Deed::Directory(dir, name) => fs::create_dir(fresh(*dir, *name)),
            Deed::Remove(path) => some(*path).map_or(Ok(()), |path| {
                fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path))
            }),
            Deed::Move(path, dir, name) => {
                let to = fresh(*dir, *name);
                some(*path).map_or(Ok(()), |path| {
                    let _ = fs::remove_dir_all(&to).or_else(|_| fs::remove_file(&to));
                    rustix::fs::rename(&path, &to).map_err(Into::into)
                })
            }
            Deed::Mode(path, mode) => {
                some(*path).filter(|path| !path.is_symlink()).map_or(Ok(()), |path| {
                    // What its owner cannot read is left out, unless he is root.
                    let owner = if path.is_dir() { 0o500 } else { 0o400 };
                    let mode = modes[usize::from(*mode) % modes.len()] | owner;
                    fs::set_permissions(path, fs::Permissions::from_mode(mode))
                })
            }
            Deed::Symlink(dir, name, target) => {
                let targets = ["a", "nowhere", "..", "/etc", "..\n", "b/a"];
                symlink(targets[usize::from(*target) % targets.len()], fresh(*dir, *name))
            }
            Deed::HardLink(path, dir, name) => {
                some(*path).map_or(Ok(()), |path| fs::hard_link(path, fresh(*dir, *name)))
            }
        };
    }
}

/// Does the deeds in groups, with a snapshot after each; then goes to every one of them, and to others in between.
fn check(place: &mut Place, groups: &[Vec<Deed>], order: &[usize]) {
    let mut known = vec![(place.take().tree, place.seen())];
    for group in groups {
        group.iter().for_each(|deed| place.perform(deed));
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
    fn c_16_2_a_workspace_is_put_back_exactly(
        groups in proptest::collection::vec(deeds(1..16), 1..6),
        order in proptest::collection::vec(any::<usize>(), 1..8),
    ) {
        check(&mut Place::new(), &groups, &order);
    }
}

/// 10,000 files: some in a directory of thousands, the others in many.
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
    fn c_16_2_a_workspace_of_10_000_files_is_put_back_exactly(
        groups in proptest::collection::vec(deeds(1..8), 2),
        order in proptest::collection::vec(any::<usize>(), 2),
    ) {
        check(&mut large(), &groups, &order);
    }
}

#[test]
fn c_16_1_what_did_not_change_is_neither_read_nor_written() {
    let mut place = large();
    let first = place.take();
    assert_eq!(first.files, 10_000);
    // Until all of them are older than a tick of the file system's clock.
    test_support::wait::until("a snapshot that reads nothing", || {
        place.take();
        (place.store.index.len() == 10_000).then_some(())
    });
    place.store.save().unwrap();
    let run = place.at(".delta/r");
    place.store = Store::open(&run, Exclude::default()).unwrap();
    assert_eq!(place.store.index.len(), 10_000, "the next process knows it too");
    // Nothing of a content that is known has to be there for a snapshot of it.
    let again = place.take();
    assert_eq!((again.tree, again.written), (first.tree, 0));
    place.write("flat/77", "changed");
    place.write("d3/e3/5.txt", "changed");
    let changed = place.take();
    assert!(changed.written < 60_000, "{} bytes for two changed files", changed.written);
    let paths = place.store.compare(first.tree, changed.tree).unwrap().changes;
    let paths: Vec<_> = paths.iter().map(|it| String::from_utf8_lossy(&it.path)).collect();
    assert_eq!(paths, ["d3/e3/5.txt", "flat/77"]);
}

/// The file of the content `text`.
fn object(place: &Place, text: &str) -> PathBuf {
    let id = Id::of(text.as_bytes()).to_string();
    place.at(".delta/r/snapshots/objects").join(&id[..2]).join(&id[2..])
}

#[test]
fn c_16_2_a_snapshot_that_is_not_whole_changes_nothing() {
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
        "the snapshot is not whole:\na: {} is damaged: its SHA-256 is not its name\n\
         b: {} cannot be read: No such file or directory (os error 2)",
        object(&place, "one").display(),
        object(&place, "two").display()
    );
    assert_eq!(error.to_string(), expected);
    assert_eq!(place.seen(), before);
    // A tree is looked at in the same way.
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
fn c_16_1_a_content_that_a_power_failure_has_emptied_is_written_again() {
    let mut place = Place::new();
    place.write("a", "one");
    let tree = place.take().tree;
    fs::write(object(&place, "one"), "").unwrap();
    place.store = Store::open(&place.at(".delta/r"), Exclude::default()).unwrap();
    assert_eq!(place.take().tree, tree);
    assert_eq!(fs::read(object(&place, "one")).unwrap(), b"one");
}

#[test]
fn c_16_2_a_symlink_in_the_place_of_a_directory_leads_nowhere() {
    let mut place = Place::new();
    let outside = place.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    for name in ["kept", "gone"] {
        fs::write(outside.join(name), "theirs").unwrap();
    }
    place.write("d/kept", "ours");
    let tree = place.take().tree;
    place.write("d/gone", "later");
    // Replaced before the look.
    rustix::fs::rename(place.at("d"), place.at("e")).unwrap();
    symlink(&outside, place.at("d")).unwrap();
    place.restore(tree);
    assert_eq!(fs::read(place.at("d/kept")).unwrap(), b"ours");
    // And between the look and the change.
    place.write("d/gone", "later");
    place.write("d/kept", "later");
    let present = place.take().tree;
    let plan = place.store.plan(present, tree, None).unwrap();
    rustix::fs::rename(place.at("d"), place.at("e")).unwrap();
    symlink(&outside, place.at("d")).unwrap();
    let work = place.work();
    let error = place.store.apply(&plan, &work, None).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("could not put back {}: Not a directory (os error 20)", place.at("d").display())
    );
    let names: Vec<_> = fs::read_dir(&outside).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2);
    assert!(["kept", "gone"].iter().all(|it| fs::read(outside.join(it)).unwrap() == b"theirs"));
    // Once more does the rest.
    place.restore(tree);
    assert_eq!(place.take().tree, tree);
}

#[test]
fn c_16_2_stopped_anywhere_it_is_done_once_more() {
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
        // What a kill leaves between writing a file and giving it its name.
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
        let plan = place.store.plan(present, tree, None).unwrap();
        let done = place.store.go(&plan, &work, &go_on);
        place.restore(tree);
        assert_eq!(place.take().tree, tree, "stopped after {stop}");
        if done.is_ok() {
            assert!(stop > 8, "only {stop} steps");
            return;
        }
    }
}

#[test]
fn c_16_1_what_is_left_out_is_told_once_and_left_as_it_is() {
    let mut place = Place::new();
    let secrets = Secrets::new(["sk-a-long-key".to_owned()]);
    place.store = Store::open(&place.at(".delta/r"), Exclude::parse(["build"]).unwrap()).unwrap();
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
        .news
        .iter()
        .map(|it| format!("{}: {}", String::from_utf8_lossy(&it.path), it.why))
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
    assert_eq!(place.take_without(&secrets).news, []);
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
    expected.insert(b"src/a".to_vec(), Seen::File(0o644, b"one".to_vec()));
    place.store.restore(first.tree, &work, &secrets, None).unwrap();
    assert_eq!(place.seen(), expected);
    // A directory with something in it that no snapshot holds cannot become a file again.
    fs::remove_dir_all(place.at("sub")).unwrap();
    place.write("sub", "a file");
    let file = place.take_without(&secrets).tree;
    fs::remove_file(place.at("sub")).unwrap();
    place.write("sub/build/x", "made");
    let before = place.seen();
    let error = place.store.restore(file, &work, &secrets, None).unwrap_err();
    let expected = "what no snapshot holds is in the way of what was there:\nsub/build";
    assert_eq!(error.to_string(), expected);
    assert_eq!(place.seen(), before);
}

#[test]
fn c_16_2_another_run_can_take_a_snapshot_over() {
    let (mut place, mut other) = (Place::new(), Place::new());
    place.write("d/a", "one");
    place.write("big", &"long".repeat(100_000));
    for number in 0..300 {
        place.write(&format!("many/{number}"), "x");
    }
    symlink("d/a", place.at("l")).unwrap();
    let tree = place.take().tree;
    other.store.adopt(&place.store, tree).unwrap();
    other.restore(tree);
    assert_eq!(other.seen(), place.seen());
}
