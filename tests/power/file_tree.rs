//! A file system as a value: what programs see, or what a disk has after a power loss.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// The number of an inode; no number is used twice.
pub type InodeNumber = u64;

/// The directory that contains all others.
pub const ROOT_INODE: InodeNumber = 1;

/// The bits of a mode that are not its type.
const PERMISSION_BITS: u32 = 0o7777;

/// What an inode is.
#[derive(Debug, Clone, Hash, PartialEq, Eq)]
pub enum InodeContent {
    File(Arc<Vec<u8>>),
    Directory(BTreeMap<OsString, InodeNumber>),
    Symlink(PathBuf),
    /// A device, such as the marks that an overlay leaves for removed files, a socket or a pipe: its mode and its device.
    Special(u32, u32),
}

/// A file, directory, symlink or device, which may have any number of names.
#[derive(Debug, Clone)]
pub struct Inode {
    pub content: InodeContent,
    pub permissions: u32,
    pub attributes: BTreeMap<OsString, Vec<u8>>,
    pub modified: SystemTime,
    pub changed: SystemTime,
}

impl Inode {
    pub fn new(content: InodeContent, mode: u32) -> Self {
        let now = SystemTime::now();
        let permissions = mode & PERMISSION_BITS;
        Self { content, permissions, attributes: BTreeMap::new(), modified: now, changed: now }
    }

    pub fn entries(&self) -> Option<&BTreeMap<OsString, InodeNumber>> {
        match &self.content {
            InodeContent::Directory(entries) => Some(entries),
            _ => None,
        }
    }

    pub fn bytes(&self) -> &[u8] {
        match &self.content {
            InodeContent::File(bytes) => bytes,
            _ => &[],
        }
    }

    fn bytes_mut(&mut self) -> Option<&mut Vec<u8>> {
        match &mut self.content {
            InodeContent::File(bytes) => Some(Arc::make_mut(bytes)),
            _ => None,
        }
    }
}

/// A name in a directory, and what it leads to from now on.
#[derive(Debug, Clone)]
pub struct NameChange {
    pub directory: InodeNumber,
    pub name: OsString,
    pub target: Option<InodeNumber>,
}

/// The smallest change of a file system: a power loss leaves all or nothing of it, but for a write.
#[derive(Debug, Clone)]
pub enum TreeChange {
    /// A new inode, to which no name leads yet.
    Create {
        inode: InodeNumber,
        node: Inode,
    },
    /// Names that change together: two for a rename.
    Names(Vec<NameChange>),
    Write {
        inode: InodeNumber,
        offset: usize,
        bytes: Vec<u8>,
    },
    Resize {
        inode: InodeNumber,
        length: usize,
    },
    Mode {
        inode: InodeNumber,
        permissions: u32,
    },
    Attribute {
        inode: InodeNumber,
        name: OsString,
        value: Option<Vec<u8>>,
    },
}

/// Inodes and the names that lead to them.
#[derive(Debug, Clone)]
pub struct FileTree {
    inodes: BTreeMap<InodeNumber, Inode>,
    next_inode: InodeNumber,
}

impl FileTree {
    /// Reads the directory `root` of another file system.
    pub fn load(root: &Path) -> Self {
        let mut tree = Self { inodes: BTreeMap::new(), next_inode: ROOT_INODE };
        let mut known = BTreeMap::new();
        tree.load_inode(root, &mut known);
        tree
    }

    fn load_inode(&mut self, path: &Path, known: &mut BTreeMap<u64, InodeNumber>) -> InodeNumber {
        let metadata = fs::symlink_metadata(path).unwrap();
        if let Some(number) = known.get(&metadata.ino()) {
            return *number;
        }
        let number = self.take_number();
        known.insert(metadata.ino(), number);
        let kind = metadata.file_type();
        let content = if kind.is_dir() {
            let names = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name());
            let load = |name: OsString| {
                let inode = self.load_inode(&path.join(&name), known);
                (name, inode)
            };
            InodeContent::Directory(names.map(load).collect())
        } else if kind.is_symlink() {
            InodeContent::Symlink(fs::read_link(path).unwrap())
        } else if kind.is_file() {
            InodeContent::File(Arc::new(fs::read(path).unwrap()))
        } else {
            let device = u32::try_from(metadata.rdev()).unwrap();
            InodeContent::Special(metadata.mode(), device)
        };
        let is_symlink = kind.is_symlink();
        let mut node = Inode::new(content, metadata.mode());
        if !is_symlink && !kind.is_socket() {
            node.attributes = read_attributes(path);
        }
        self.inodes.insert(number, node);
        number
    }

    pub fn take_number(&mut self) -> InodeNumber {
        let number = self.next_inode;
        self.next_inode += 1;
        number
    }

    pub fn get(&self, inode: InodeNumber) -> Option<&Inode> {
        self.inodes.get(&inode)
    }

    pub fn get_mut(&mut self, inode: InodeNumber) -> Option<&mut Inode> {
        self.inodes.get_mut(&inode)
    }

    pub fn lookup(&self, directory: InodeNumber, name: &OsStr) -> Option<InodeNumber> {
        self.get(directory)?.entries()?.get(name).copied()
    }

    /// The inode of a path below the root.
    pub fn find(&self, path: &str) -> Option<InodeNumber> {
        path.split('/').try_fold(ROOT_INODE, |inode, name| self.lookup(inode, OsStr::new(name)))
    }

    /// How many names lead to an inode.
    pub fn count_names(&self, inode: InodeNumber) -> usize {
        let entries = self.inodes.values().filter_map(Inode::entries);
        entries.flat_map(BTreeMap::values).filter(|target| **target == inode).count()
    }

    /// A path for each inode that has one.
    pub fn paths(&self) -> BTreeMap<InodeNumber, PathBuf> {
        let mut paths = BTreeMap::from([(ROOT_INODE, PathBuf::new())]);
        let mut queue = vec![ROOT_INODE];
        while let Some(directory) = queue.pop() {
            let entries = self.get(directory).and_then(Inode::entries);
            for (name, inode) in entries.into_iter().flatten() {
                let path = paths[&directory].join(name);
                if paths.insert(*inode, path).is_none() {
                    queue.push(*inode);
                }
            }
        }
        paths
    }

    pub fn apply(&mut self, change: &TreeChange) {
        match change {
            TreeChange::Create { inode, node } => {
                self.inodes.insert(*inode, node.clone());
            }
            TreeChange::Names(changes) => changes.iter().for_each(|change| self.set_name(change)),
            TreeChange::Write { inode, offset, bytes } => self.write(*inode, *offset, bytes),
            TreeChange::Resize { inode, length } => {
                if let Some(content) = self.get_mut(*inode).and_then(Inode::bytes_mut) {
                    content.resize(*length, 0);
                }
            }
            TreeChange::Mode { inode, permissions } => {
                if let Some(node) = self.get_mut(*inode) {
                    node.permissions = *permissions;
                }
            }
            TreeChange::Attribute { inode, name, value } => {
                let Some(node) = self.get_mut(*inode) else { return };
                match value {
                    Some(value) => node.attributes.insert(name.clone(), value.clone()),
                    None => node.attributes.remove(name),
                };
            }
        }
    }

    fn set_name(&mut self, change: &NameChange) {
        // A directory has one name, also if the change that took the earlier one was lost.
        let target = change.target.filter(|target| {
            self.get(*target).is_some_and(|node| matches!(node.content, InodeContent::Directory(_)))
        });
        if let Some(target) = target {
            for node in self.inodes.values_mut() {
                if let InodeContent::Directory(entries) = &mut node.content {
                    entries.retain(|_, inode| *inode != target);
                }
            }
        }
        let directory = self.inodes.get_mut(&change.directory).map(|node| &mut node.content);
        let Some(InodeContent::Directory(entries)) = directory else { return };
        match change.target {
            Some(inode) => entries.insert(change.name.clone(), inode),
            None => entries.remove(&change.name),
        };
    }

    fn write(&mut self, inode: InodeNumber, offset: usize, bytes: &[u8]) {
        let Some(content) = self.get_mut(inode).and_then(Inode::bytes_mut) else { return };
        let end = offset + bytes.len();
        if content.len() < end {
            content.resize(end, 0);
        }
        content[offset..end].copy_from_slice(bytes);
    }

    /// A number that two trees with the same names, contents and permissions share.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for (inode, path) in self.reachable() {
            let node = &self.inodes[&inode];
            path.hash(&mut hasher);
            node.permissions.hash(&mut hasher);
            node.attributes.hash(&mut hasher);
            match &node.content {
                InodeContent::Directory(_) => 0_u8.hash(&mut hasher),
                content => content.hash(&mut hasher),
            }
        }
        hasher.finish()
    }

    /// Every path and its inode, each directory before what it contains.
    fn reachable(&self) -> Vec<(InodeNumber, PathBuf)> {
        let mut found = vec![(ROOT_INODE, PathBuf::new())];
        let mut next = 0;
        while let Some((directory, path)) = found.get(next).cloned() {
            next += 1;
            let entries = self.get(directory).and_then(Inode::entries).into_iter().flatten();
            // In the order of their creation, which their times then show.
            let mut entries: Vec<_> =
                entries.map(|(name, inode)| (*inode, path.join(name))).collect();
            entries.sort();
            found.extend(entries);
        }
        found
    }

    /// Writes everything into the empty directory `root` of another file system.
    pub fn store(&self, root: &Path) {
        let mut stored: BTreeMap<InodeNumber, PathBuf> = BTreeMap::new();
        let paths = self.reachable();
        for (inode, path) in &paths {
            let path = root.join(path);
            match stored.get(inode) {
                Some(first) => fs::hard_link(first, &path).unwrap(),
                None => self.store_inode(*inode, &path),
            }
            stored.entry(*inode).or_insert(path);
        }
        // The permissions of a directory come after its entries.
        for (inode, path) in stored {
            let node = &self.inodes[&inode];
            if node.entries().is_some() {
                fs::set_permissions(path, Permissions::from_mode(node.permissions)).unwrap();
            }
        }
    }

    fn store_inode(&self, inode: InodeNumber, path: &Path) {
        let node = &self.inodes[&inode];
        match &node.content {
            InodeContent::Directory(_) if inode == ROOT_INODE => {}
            InodeContent::Directory(_) => fs::create_dir(path).unwrap(),
            InodeContent::File(bytes) => {
                fs::write(path, bytes.as_slice()).unwrap();
                fs::set_permissions(path, Permissions::from_mode(node.permissions)).unwrap();
            }
            InodeContent::Symlink(target) => symlink(target, path).unwrap(),
            InodeContent::Special(mode, device) => {
                let kind = rustix::fs::FileType::from_raw_mode(*mode);
                let mode = rustix::fs::Mode::from_raw_mode(node.permissions);
                rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, u64::from(*device)).unwrap();
            }
        }
        for (name, value) in &node.attributes {
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(path, name.as_os_str(), value, flags).unwrap();
        }
    }
}

/// The extended attributes that an overlay gives to the files of its upper layer.
fn read_attributes(path: &Path) -> BTreeMap<OsString, Vec<u8>> {
    let mut names = vec![0; 4096];
    let Ok(length) = rustix::fs::llistxattr(path, &mut names) else { return BTreeMap::new() };
    let names = names[..length].split(|byte| *byte == 0).map(OsStr::from_bytes);
    let overlay = names.filter(|name| name.as_bytes().windows(8).any(|part| part == b"overlay."));
    let read = |name: &OsStr| {
        let mut value = vec![0; 4096];
        let length = rustix::fs::lgetxattr(path, name, &mut value).unwrap();
        value.truncate(length);
        (name.to_owned(), value)
    };
    overlay.map(read).collect()
}
