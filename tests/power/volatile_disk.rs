//! A file system in memory that keeps a log of every change and every sync: programs run in it, unmodified.

use crate::file_tree::{FileTree, Inode, InodeContent, InodeNumber, NameChange, TreeChange};
use crate::power_loss::{DiskLog, LogEntry, SyncScope};
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

/// How long the kernel may believe what it knows: all changes come from it.
const CACHE_TIME: Duration = Duration::from_secs(3600);
const BLOCK_BYTES: u32 = 4096;
/// The bits of a mode that say of what kind a file is.
const KIND_BITS: u32 = libc::S_IFMT;

/// The directory whose files are not on the disk: what is written there was seen outside of the computer.
pub const WITNESS_DIR: &str = "witness";
/// The file in that directory to which a tracer writes each `syncfs`, of which the kernel does not inform a file system.
pub const SYNC_TRACE: &str = "syncs";

/// The state of a disk that is in use.
struct DiskState {
    tree: FileTree,
    log: DiskLog,
    /// The files in the witness directory.
    witnesses: Vec<InodeNumber>,
    sync_trace: Option<InodeNumber>,
    listings: HashMap<u64, Vec<(InodeNumber, FileType, OsString)>>,
    next_listing: u64,
}

/// A mounted disk that forgets what was not synced.
pub struct VolatileDisk {
    state: Arc<Mutex<DiskState>>,
    session: BackgroundSession,
}

impl VolatileDisk {
    /// Mounts a disk with the content of the directory `root` over it. All of that is durable.
    pub fn mount_over(root: &Path) -> io::Result<Self> {
        let tree = FileTree::load(root);
        let directory = tree.find(WITNESS_DIR).and_then(|inode| tree.get(inode));
        let entries = directory.and_then(Inode::entries).into_iter().flatten();
        let witnesses = entries.map(|(_, inode)| *inode).collect();
        let sync_trace = tree.find(&format!("{WITNESS_DIR}/{SYNC_TRACE}"));
        let log = DiskLog { base: tree.clone(), entries: Vec::new() };
        let state = Arc::new(Mutex::new(DiskState {
            tree,
            log,
            witnesses,
            sync_trace,
            listings: HashMap::new(),
            next_listing: 0,
        }));
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName("volatile".to_owned()),
            MountOption::DefaultPermissions,
            MountOption::Dev,
        ];
        let session = fuser::spawn_mount(MountedDisk(state.clone()), root, &config)?;
        Ok(Self { state, session })
    }

    /// Unmounts the disk. Returns what happened to it.
    pub fn unmount(self) -> DiskLog {
        self.session.umount_and_join().unwrap();
        let state = self.state.lock().unwrap();
        state.log.clone()
    }
}

/// The side of the disk that the kernel asks.
struct MountedDisk(Arc<Mutex<DiskState>>);

impl DiskState {
    fn node(&self, inode: INodeNo) -> Result<&Inode, Errno> {
        self.tree.get(inode.0).ok_or(Errno::ENOENT)
    }

    fn change(&mut self, change: TreeChange) {
        self.tree.apply(&change);
        let touched = match &change {
            TreeChange::Create { inode, .. }
            | TreeChange::Write { inode, .. }
            | TreeChange::Resize { inode, .. }
            | TreeChange::Mode { inode, .. }
            | TreeChange::Attribute { inode, .. } => vec![*inode],
            TreeChange::Names(changes) => changes.iter().map(|change| change.directory).collect(),
        };
        let is_seen = touched.iter().all(|inode| self.witnesses.contains(inode));
        let is_content = !matches!(change, TreeChange::Mode { .. } | TreeChange::Attribute { .. });
        for inode in touched {
            let Some(node) = self.tree.get_mut(inode) else { continue };
            node.changed = SystemTime::now();
            if is_content {
                node.modified = node.changed;
            }
        }
        let is_trace = |inode: &InodeNumber| Some(*inode) == self.sync_trace;
        match change {
            // A line of the tracer: the call has returned, and its process waits.
            TreeChange::Write { inode, bytes, .. } if is_trace(&inode) => {
                if String::from_utf8_lossy(&bytes).contains(" = 0") {
                    self.log.entries.push(LogEntry::Sync(SyncScope::Everything));
                }
            }
            change if is_seen => self.log.entries.push(LogEntry::Witness(change)),
            change => self.log.entries.push(LogEntry::Change(change)),
        }
    }

    fn sync(&mut self, scope: SyncScope) {
        self.log.entries.push(LogEntry::Sync(scope));
    }

    fn set_name(&mut self, directory: INodeNo, name: &OsStr, target: Option<InodeNumber>) {
        self.change(TreeChange::Names(vec![NameChange {
            directory: directory.0,
            name: name.to_owned(),
            target,
        }]));
    }

    fn create(
        &mut self,
        directory: INodeNo,
        name: &OsStr,
        content: InodeContent,
        mode: u32,
    ) -> Result<FileAttr, Errno> {
        if self.tree.lookup(directory.0, name).is_some() {
            return Err(Errno::EEXIST);
        }
        let inode = self.tree.take_number();
        let node = Inode::new(content, mode);
        self.change(TreeChange::Create { inode, node });
        self.set_name(directory, name, Some(inode));
        self.attributes(INodeNo(inode))
    }

    fn attributes(&self, inode: INodeNo) -> Result<FileAttr, Errno> {
        let node = self.node(inode)?;
        let size = match &node.content {
            InodeContent::File(bytes) => bytes.len(),
            InodeContent::Symlink(target) => target.as_os_str().len(),
            InodeContent::Directory(_) | InodeContent::Special(..) => 0,
        } as u64;
        let rdev = match node.content {
            InodeContent::Special(_, device) => device,
            _ => 0,
        };
        Ok(FileAttr {
            ino: inode,
            size,
            blocks: size.div_ceil(512),
            atime: node.modified,
            mtime: node.modified,
            ctime: node.changed,
            crtime: node.changed,
            kind: kind_of(node),
            perm: u16::try_from(node.permissions).unwrap_or_default(),
            nlink: u32::try_from(self.tree.count_names(inode.0)).unwrap_or_default(),
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            rdev,
            blksize: BLOCK_BYTES,
            flags: 0,
        })
    }

    fn remove(&mut self, directory: INodeNo, name: &OsStr) -> Result<(), Errno> {
        let inode = self.tree.lookup(directory.0, name).ok_or(Errno::ENOENT)?;
        if self.node(INodeNo(inode))?.entries().is_some_and(|entries| !entries.is_empty()) {
            return Err(Errno::ENOTEMPTY);
        }
        self.set_name(directory, name, None);
        Ok(())
    }

    fn rename(
        &mut self,
        from: (INodeNo, &OsStr),
        to: (INodeNo, &OsStr),
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        let moved = self.tree.lookup(from.0.0, from.1).ok_or(Errno::ENOENT)?;
        let replaced = self.tree.lookup(to.0.0, to.1);
        let is_exchange = flags.contains(RenameFlags::RENAME_EXCHANGE);
        match replaced {
            None if is_exchange => return Err(Errno::ENOENT),
            Some(_) if flags.contains(RenameFlags::RENAME_NOREPLACE) => return Err(Errno::EEXIST),
            // Two names of one file both stay.
            Some(inode) if inode == moved => return Ok(()),
            Some(inode) if !is_exchange => {
                let node = self.node(INodeNo(inode))?;
                if node.entries().is_some_and(|entries| !entries.is_empty()) {
                    return Err(Errno::ENOTEMPTY);
                }
            }
            _ => {}
        }
        let name_change = |place: (INodeNo, &OsStr), target| NameChange {
            directory: place.0.0,
            name: place.1.to_owned(),
            target,
        };
        let left = if is_exchange { replaced } else { None };
        // The name that is left comes first: a directory has one name.
        self.change(TreeChange::Names(vec![name_change(from, left), name_change(to, Some(moved))]));
        Ok(())
    }

    fn list(&self, directory: INodeNo) -> Result<Vec<(InodeNumber, FileType, OsString)>, Errno> {
        let entries = self.node(directory)?.entries().ok_or(Errno::ENOTDIR)?;
        let dots = [".", ".."].map(|name| (directory.0, FileType::Directory, name.into()));
        let named = entries.iter().filter_map(|(name, inode)| {
            Some((*inode, kind_of(self.tree.get(*inode)?), name.clone()))
        });
        Ok(dots.into_iter().chain(named).collect())
    }
}

fn kind_of(node: &Inode) -> FileType {
    match &node.content {
        InodeContent::File(_) => FileType::RegularFile,
        InodeContent::Directory(_) => FileType::Directory,
        InodeContent::Symlink(_) => FileType::Symlink,
        InodeContent::Special(mode, _) => match mode & KIND_BITS {
            libc::S_IFSOCK => FileType::Socket,
            libc::S_IFIFO => FileType::NamedPipe,
            _ => FileType::CharDevice,
        },
    }
}

fn time_from_request(time: TimeOrNow) -> SystemTime {
    match time {
        TimeOrNow::SpecificTime(time) => time,
        TimeOrNow::Now => SystemTime::now(),
    }
}

fn reply_empty(result: Result<(), Errno>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

fn reply_entry(result: Result<FileAttr, Errno>, reply: ReplyEntry) {
    match result {
        Ok(attributes) => reply.entry(&CACHE_TIME, &attributes, Generation(0)),
        Err(error) => reply.error(error),
    }
}

impl MountedDisk {
    fn state(&self) -> std::sync::MutexGuard<'_, DiskState> {
        self.0.lock().unwrap()
    }
}

impl Filesystem for MountedDisk {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let state = self.state();
        let found = state.tree.lookup(parent.0, name).ok_or(Errno::ENOENT);
        reply_entry(found.and_then(|inode| state.attributes(INodeNo(inode))), reply);
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.state().attributes(inode) {
            Ok(attributes) => reply.attr(&CACHE_TIME, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut state = self.state();
        if let Some(mode) = mode {
            let permissions = mode & !KIND_BITS;
            state.change(TreeChange::Mode { inode: inode.0, permissions });
        }
        if let Some(size) = size {
            let length = usize::try_from(size).unwrap_or_default();
            state.change(TreeChange::Resize { inode: inode.0, length });
        }
        if let (Some(time), Some(node)) = (modified, state.tree.get_mut(inode.0)) {
            // Times are not a part of what is tested.
            node.modified = time_from_request(time);
            node.changed = SystemTime::now();
        }
        match state.attributes(inode) {
            Ok(attributes) => reply.attr(&CACHE_TIME, &attributes),
            Err(error) => reply.error(error),
        }
    }

    fn readlink(&self, _: &Request, inode: INodeNo, reply: ReplyData) {
        match self.state().node(inode).map(|node| &node.content) {
            Ok(InodeContent::Symlink(target)) => reply.data(target.as_os_str().as_encoded_bytes()),
            Ok(_) => reply.error(Errno::EINVAL),
            Err(error) => reply.error(error),
        }
    }

    fn mknod(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let content = match mode & KIND_BITS {
            libc::S_IFREG => InodeContent::File(Arc::default()),
            kind => InodeContent::Special(kind, device),
        };
        reply_entry(self.state().create(parent, name, content, mode & !umask), reply);
    }

    fn mkdir(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let content = InodeContent::Directory(Default::default());
        reply_entry(self.state().create(parent, name, content, mode & !umask), reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(self.state().remove(parent, name), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(self.state().remove(parent, name), reply);
    }

    fn symlink(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let content = InodeContent::Symlink(target.to_owned());
        reply_entry(self.state().create(parent, name, content, 0o777), reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply_empty(self.state().rename((parent, name), (new_parent, new_name), flags), reply);
    }

    fn link(
        &self,
        _: &Request,
        inode: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let mut state = self.state();
        if state.tree.lookup(new_parent.0, new_name).is_some() {
            return reply.error(Errno::EEXIST);
        }
        state.set_name(new_parent, new_name, Some(inode.0));
        reply_entry(state.attributes(inode), reply);
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let content = InodeContent::File(Arc::default());
        match self.state().create(parent, name, content, mode & !umask) {
            Ok(attributes) => reply.created(
                &CACHE_TIME,
                &attributes,
                Generation(0),
                FileHandle(0),
                FopenFlags::FOPEN_KEEP_CACHE,
            ),
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.state().node(inode).map(Inode::bytes) {
            Ok(bytes) => {
                let begin = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
                let end = (begin + size as usize).min(bytes.len());
                reply.data(&bytes[begin..end]);
            }
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let offset = usize::try_from(offset).unwrap_or_default();
        self.state().change(TreeChange::Write { inode: inode.0, offset, bytes: data.to_owned() });
        reply.written(u32::try_from(data.len()).unwrap_or_default());
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, is_data: bool, reply: ReplyEmpty) {
        let scope = if is_data { SyncScope::Data(inode.0) } else { SyncScope::File(inode.0) };
        self.state().sync(scope);
        reply.ok();
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let mut state = self.state();
        state.next_listing += 1;
        reply.opened(FileHandle(state.next_listing), FopenFlags::empty());
    }

    fn readdir(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let mut state = self.state();
        if offset == 0 {
            match state.list(inode) {
                Ok(entries) => state.listings.insert(handle.0, entries),
                Err(error) => return reply.error(error),
            };
        }
        let entries = state.listings.get(&handle.0).into_iter().flatten().zip(1..);
        for ((inode, kind, name), next) in entries.skip(usize::try_from(offset).unwrap_or_default())
        {
            if reply.add(INodeNo(*inode), next, *kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.state().listings.remove(&handle.0);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.state().sync(SyncScope::Directory(inode.0));
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let blocks = 1 << 20;
        reply.statfs(blocks, blocks, blocks, blocks, blocks, BLOCK_BYTES, 255, BLOCK_BYTES);
    }

    fn setxattr(
        &self,
        _: &Request,
        inode: INodeNo,
        name: &OsStr,
        value: &[u8],
        _: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let value = Some(value.to_owned());
        let name = name.to_owned();
        self.state().change(TreeChange::Attribute { inode: inode.0, name, value });
        reply.ok();
    }

    fn getxattr(&self, _: &Request, inode: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let state = self.state();
        match state.node(inode).map(|node| node.attributes.get(name)) {
            Ok(Some(value)) => reply_attribute(value, size, reply),
            Ok(None) => reply.error(Errno::NO_XATTR),
            Err(error) => reply.error(error),
        }
    }

    fn listxattr(&self, _: &Request, inode: INodeNo, size: u32, reply: ReplyXattr) {
        let state = self.state();
        match state.node(inode) {
            Ok(node) => {
                let names = node.attributes.keys();
                let names: Vec<u8> =
                    names.flat_map(|name| [name.as_encoded_bytes(), b"\0"].concat()).collect();
                reply_attribute(&names, size, reply);
            }
            Err(error) => reply.error(error),
        }
    }
}

fn reply_attribute(value: &[u8], size: u32, reply: ReplyXattr) {
    match size as usize {
        0 => reply.size(u32::try_from(value.len()).unwrap_or_default()),
        size if size < value.len() => reply.error(Errno::ERANGE),
        _ => reply.data(value),
    }
}
