//! What a power loss may leave: the model of the disk.
//!
//! The model is the strict reading of POSIX that Pillai et al. use to find the assumptions of applications ("All File
//! Systems Are Not Created Equal", OSDI 2014, the tool ALICE), with the crash points of CrashMonkey (Mohan et al., OSDI
//! 2018): the kernel may write what was not synced in any order, or not at all.
//!
//! - `fsync` of a file makes its earlier writes, lengths and permissions durable, `fdatasync` its writes and lengths.
//!   Neither says anything about its names.
//! - `fsync` of a directory makes the earlier changes of names in it durable, and nothing in the files that they lead to.
//! - `syncfs` makes everything durable. `sync_file_range` makes nothing durable.
//! - Each other change is there or not, whatever was before or after it. A rename is one change, in one directory or two.
//! - Of a write that is not durable, any sectors may be there, and the new length of the file without its content, which is
//!   zeros then, as after a delayed allocation. What a later write has put into the same sector comes with the earlier.
//!
//! No file system in use does all of that: ext4, XFS and Btrfs keep the order of names. What holds here holds on them.

use crate::file_tree::{FileTree, InodeNumber, NameChange, TreeChange};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write as _;
use std::ops::Range;

/// The part of a write that a disk writes as a whole.
const SECTOR_BYTES: usize = 512;

/// What a sync makes durable, of all that was before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncScope {
    /// The content and the length of a file.
    Data(InodeNumber),
    /// Also its permissions and attributes.
    File(InodeNumber),
    /// The names in a directory.
    Directory(InodeNumber),
    Everything,
}

/// Something that a program did.
#[derive(Debug, Clone)]
pub enum LogEntry {
    Change(TreeChange),
    Sync(SyncScope),
    /// A change that was seen outside of the computer: it cannot be undone.
    Witness(TreeChange),
}

/// Everything that happened to a disk, in order.
#[derive(Debug, Clone)]
pub struct DiskLog {
    /// The disk before it, all of it durable.
    pub base: FileTree,
    pub entries: Vec<LogEntry>,
}

/// What becomes of a change that is not durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    Lost,
    /// Only these sectors of a write, as their numbers in the file, and whether the file has its new length.
    Sectors(BTreeSet<usize>, bool),
}

/// A way to choose fates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossKind {
    /// Nothing survives that was not synced.
    EverythingUnsynced,
    /// What a killed process leaves.
    Nothing,
    /// Names survive, and the files are empty.
    Contents,
    /// Names survive, and the files are zeros.
    ContentsZeroed,
    /// Contents survive under the old names.
    Names,
    /// The last write lacks its end.
    LastWriteTorn,
    /// The last write lacks its beginning.
    LastWriteHeadless,
    /// Each change for itself.
    Random(u64),
}

/// A power loss after the first `cut` entries of a log.
#[derive(Debug, Clone)]
pub struct PowerLoss {
    pub cut: usize,
    pub kind: LossKind,
    /// The changes that do not survive as they were.
    pub fates: BTreeMap<usize, Fate>,
}

/// Random numbers (splitmix64).
pub struct RandomNumbers(pub u64);

impl RandomNumbers {
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % (limit.max(1) as u64)).unwrap()
    }
}

impl DiskLog {
    /// The changes before `cut` that are not durable then.
    fn unsynced(&self, cut: usize) -> Vec<usize> {
        let mut synced = SyncedSet::default();
        let mut found = Vec::new();
        for (index, entry) in self.entries[..cut].iter().enumerate().rev() {
            match entry {
                LogEntry::Sync(scope) => synced.add(*scope),
                LogEntry::Change(change) if !synced.covers(change) => found.push(index),
                LogEntry::Change(_) | LogEntry::Witness(_) => {}
            }
        }
        found.reverse();
        found
    }

    /// The instants at which a power loss is most instructive: before and after each sync, and after what is seen outside.
    pub fn notable_cuts(&self) -> Vec<usize> {
        let mut cuts: Vec<usize> = Vec::new();
        for (index, entry) in self.entries.iter().enumerate() {
            match entry {
                LogEntry::Sync(_) => cuts.extend([index, index + 1]),
                LogEntry::Witness(_) => cuts.push(index + 1),
                LogEntry::Change(_) => {}
            }
        }
        cuts.push(self.entries.len());
        cuts.dedup();
        cuts
    }

    /// A legal power loss of this kind after `cut` entries.
    pub fn power_loss(&self, cut: usize, kind: LossKind) -> PowerLoss {
        let unsynced = self.unsynced(cut);
        let mut numbers = RandomNumbers(cut as u64);
        if let LossKind::Random(seed) = kind {
            numbers.0 ^= seed << 32;
        }
        let last_write = unsynced.iter().rev().find(|index| self.sectors(**index).is_some());
        let mut fates = BTreeMap::new();
        let mut written_later: HashSet<(InodeNumber, usize)> = HashSet::new();
        for index in unsynced.iter().rev() {
            let Some((inode, sectors)) = self.sectors(*index) else {
                if !self.survives(*index, kind, &mut numbers) {
                    fates.insert(*index, Fate::Lost);
                }
                continue;
            };
            let has_length = match kind {
                LossKind::ContentsZeroed | LossKind::LastWriteHeadless => true,
                LossKind::Random(_) => numbers.below(2) == 0,
                _ => false,
            };
            let is_last = Some(index) == last_write;
            let count = sectors.end - sectors.start;
            let chosen = sectors_that_survive(kind, is_last, sectors.clone(), &mut numbers);
            let mut survivors: BTreeSet<usize> = chosen.collect();
            survivors.extend(sectors.filter(|sector| written_later.contains(&(inode, *sector))));
            written_later.extend(survivors.iter().map(|sector| (inode, *sector)));
            if survivors.len() < count {
                fates.insert(*index, Fate::Sectors(survivors, has_length));
            }
        }
        PowerLoss { cut, kind, fates }
    }

    /// Whether a change other than a write survives.
    fn survives(&self, index: usize, kind: LossKind, numbers: &mut RandomNumbers) -> bool {
        match kind {
            LossKind::EverythingUnsynced => false,
            LossKind::Contents => !self.is_content(index),
            LossKind::Names => self.is_content(index),
            LossKind::Random(_) => numbers.below(2) == 0,
            LossKind::Nothing
            | LossKind::ContentsZeroed
            | LossKind::LastWriteTorn
            | LossKind::LastWriteHeadless => true,
        }
    }

    fn is_content(&self, index: usize) -> bool {
        let LogEntry::Change(change) = &self.entries[index] else { return false };
        matches!(change, TreeChange::Write { .. } | TreeChange::Resize { .. })
    }

    /// The file that a write changes, and the numbers of the sectors in it; `None` if it is another change.
    fn sectors(&self, index: usize) -> Option<(InodeNumber, Range<usize>)> {
        match &self.entries[index] {
            LogEntry::Change(TreeChange::Write { inode, offset, bytes }) => {
                let end = (offset + bytes.len()).div_ceil(SECTOR_BYTES);
                Some((*inode, offset / SECTOR_BYTES..end))
            }
            _ => None,
        }
    }

    /// What is on the disk after a power loss.
    pub fn disk_after(&self, loss: &PowerLoss) -> FileTree {
        let mut tree = self.base.clone();
        for (index, entry) in self.entries[..loss.cut].iter().enumerate() {
            let (LogEntry::Change(change) | LogEntry::Witness(change)) = entry else { continue };
            match loss.fates.get(&index) {
                None => tree.apply(change),
                Some(fate) => tree.apply_damaged(change, fate),
            }
        }
        tree
    }

    /// What a power loss has undone, for a reader.
    pub fn describe(&self, loss: &PowerLoss) -> String {
        let last = PowerLoss { cut: loss.cut, kind: LossKind::Nothing, fates: BTreeMap::new() };
        let mut paths = BTreeMap::new();
        for step in [loss.cut / 2, loss.cut] {
            let step = PowerLoss { cut: step, ..last.clone() };
            paths.extend(self.disk_after(&step).paths());
        }
        let name = |inode: &InodeNumber| {
            paths
                .get(inode)
                .map_or_else(|| format!("inode {inode}"), |path| path.display().to_string())
        };
        let mut text = format!(
            "power loss after entry {} of {} ({:?}):\n",
            loss.cut,
            self.entries.len(),
            loss.kind
        );
        for (index, fate) in &loss.fates {
            let LogEntry::Change(change) = &self.entries[*index] else { continue };
            let _ = writeln!(text, "  {index:5} {fate:?}: {}", describe_change(change, &name));
        }
        text
    }
}

/// The inodes that a later sync covers.
#[derive(Default)]
struct SyncedSet {
    data: HashSet<InodeNumber>,
    metadata: HashSet<InodeNumber>,
    directories: HashSet<InodeNumber>,
    is_everything: bool,
}

impl SyncedSet {
    fn add(&mut self, scope: SyncScope) {
        match scope {
            SyncScope::Data(inode) => drop(self.data.insert(inode)),
            SyncScope::File(inode) => {
                self.data.insert(inode);
                self.metadata.insert(inode);
            }
            SyncScope::Directory(inode) => {
                self.directories.insert(inode);
                self.metadata.insert(inode);
            }
            SyncScope::Everything => self.is_everything = true,
        }
    }

    fn covers(&self, change: &TreeChange) -> bool {
        self.is_everything
            || match change {
                TreeChange::Create { .. } => true,
                TreeChange::Names(changes) => {
                    changes.iter().any(|change| self.directories.contains(&change.directory))
                }
                TreeChange::Write { inode, .. } | TreeChange::Resize { inode, .. } => {
                    self.data.contains(inode)
                }
                TreeChange::Mode { inode, .. } | TreeChange::Attribute { inode, .. } => {
                    self.metadata.contains(inode)
                }
            }
    }
}

/// The sectors of a write that survive.
fn sectors_that_survive(
    kind: LossKind,
    is_last: bool,
    sectors: Range<usize>,
    numbers: &mut RandomNumbers,
) -> Box<dyn Iterator<Item = usize>> {
    let boundary = sectors.start + numbers.below(sectors.end - sectors.start);
    match kind {
        LossKind::Nothing | LossKind::Names => Box::new(sectors),
        LossKind::LastWriteTorn if is_last => Box::new(sectors.start..boundary),
        LossKind::LastWriteHeadless if is_last => Box::new(boundary + 1..sectors.end),
        LossKind::LastWriteTorn | LossKind::LastWriteHeadless => Box::new(sectors),
        LossKind::EverythingUnsynced | LossKind::Contents | LossKind::ContentsZeroed => {
            Box::new(std::iter::empty())
        }
        LossKind::Random(_) => match numbers.below(4) {
            0 => Box::new(std::iter::empty()),
            1 => {
                let lost = sectors.start + numbers.below(sectors.end - sectors.start);
                Box::new(sectors.filter(move |sector| *sector != lost))
            }
            _ => Box::new(sectors),
        },
    }
}

impl FileTree {
    /// Applies what is left of a change.
    fn apply_damaged(&mut self, change: &TreeChange, fate: &Fate) {
        let TreeChange::Write { inode, offset, bytes } = change else { return };
        let Fate::Sectors(sectors, has_length) = fate else { return };
        let end = offset + bytes.len();
        let length = self.get(*inode).map_or(0, |node| node.bytes().len());
        if *has_length && length < end {
            self.apply(&TreeChange::Resize { inode: *inode, length: end });
        }
        for sector in sectors {
            let begin = (sector * SECTOR_BYTES).max(*offset);
            let part = begin - offset..((sector + 1) * SECTOR_BYTES).min(end) - offset;
            let bytes = bytes[part].to_vec();
            self.apply(&TreeChange::Write { inode: *inode, offset: begin, bytes });
        }
    }
}

fn describe_change(change: &TreeChange, name: &impl Fn(&InodeNumber) -> String) -> String {
    match change {
        TreeChange::Create { inode, .. } => format!("create {}", name(inode)),
        TreeChange::Names(changes) => {
            let describe = |change: &NameChange| {
                let target = change.target.as_ref().map_or_else(|| "nothing".to_owned(), name);
                format!("{}/{} -> {target}", name(&change.directory), change.name.display())
            };
            changes.iter().map(describe).collect::<Vec<_>>().join(", ")
        }
        TreeChange::Write { inode, offset, bytes } => {
            format!("write {} bytes at {offset} of {}", bytes.len(), name(inode))
        }
        TreeChange::Resize { inode, length } => format!("resize {} to {length}", name(inode)),
        TreeChange::Mode { inode, permissions } => format!("chmod {permissions:o} {}", name(inode)),
        TreeChange::Attribute { inode, name: attribute, .. } => {
            format!("attribute {} of {}", attribute.display(), name(inode))
        }
    }
}
