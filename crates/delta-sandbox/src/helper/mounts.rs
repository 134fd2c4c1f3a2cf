//! The files that the processes of a sandbox see: the tree of the machine, read-only, with exceptions on top of it.
//!
//! Mounts that can be written are copied before the tree becomes read-only, and are attached afterwards. What is attached
//! goes from the outer to the inner, so what is attached at a path hides all below it, up to the next one.
#![cfg(target_os = "linux")]

use crate::helper::home_copy::copy_home;
use crate::helper::stage_mounts::mount_layers;
use crate::kernel::devices::{COMMON_DEVICES, DEVICE_DIRECTORY, reachable_disks};
use crate::kernel::mount_tree::{MountTree, open_entry, open_place, set_attributes};
use crate::kernel::unix_sockets::{is_socket, lookup_sockets};
use crate::plan::{HelperReply, HelperResult, NamespacePlan};
use crate::profile::{HomeAccess, NetAccess, ReadAccess};
use rustix::fs::{FileType, Mode, OFlags, RawMode, fstat, mkdirat, openat};
use rustix::mount::MountAttrFlags;
use rustix::process::geteuid;
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Directories in which a sandbox has a directory of its own.
const TEMPORARY_DIRECTORIES: [&str; 2] = ["/tmp", "/var/tmp"];
/// Directories of sockets, which a sandbox sees empty.
const RUN_DIRECTORIES: [&str; 2] = ["/run", "/var/run"];
/// What stays visible in them: the answers of name lookups, and programs of distributions that live there.
const VISIBLE_IN_RUN: [&str; 9] = [
    "/run/systemd/resolve/resolv.conf",
    "/run/systemd/resolve/stub-resolv.conf",
    "/run/resolvconf/resolv.conf",
    "/run/NetworkManager/resolv.conf",
    "/run/current-system",
    "/run/booted-system",
    "/run/opengl-driver",
    "/run/opengl-driver-32",
    "/run/lock",
];
/// The resolver of systemd, for a sandbox that has the network as it is.
const RESOLVER: &str = "/run/systemd/resolve";
/// What root could write although it has no capabilities.
const KEPT_IN_PROC: [&str; 5] =
    ["/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs"];
/// What a sandbox with a list of readable paths sees of the root directory.
const SYSTEM_DIRECTORIES: [&str; 16] = [
    "bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr", "etc", "opt", "nix", "gnu", "dev",
    "proc", "sys", "run", "tmp",
];

/// What is attached at a path. The order is the order at the same path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Cover,
    Home,
    Write,
    Visible,
    Pin,
    Keep,
    Hide,
    Socket,
}

/// Where an attached mount comes from.
#[derive(Debug)]
enum Source {
    /// It was made before.
    Tree(MountTree),
    /// What is at the path itself: read-only if `true`.
    Place(bool),
    /// An empty file or directory.
    Empty,
}

#[derive(Debug)]
struct Attachment {
    path: PathBuf,
    rank: Rank,
    source: Source,
}

/// The mounts of a sandbox before they are attached.
pub(crate) struct SandboxMounts<'a> {
    plan: &'a NamespacePlan,
    attachments: Vec<Attachment>,
    /// Directories in which mount points can be created.
    covers: BTreeSet<PathBuf>,
    /// Covers that nothing may be written to.
    read_only_covers: Vec<PathBuf>,
    /// Sockets of processes outside.
    sockets: Vec<PathBuf>,
    /// Whether /dev is an empty directory with some devices.
    has_own_devices: bool,
}

/// Changes what this process sees into what the sandbox sees. The process is in new user and mount namespaces; mounts that
/// the machine makes later appear in them, and none of these appears there.
pub(crate) fn build_mounts(plan: &NamespacePlan, sockets: Vec<PathBuf>) -> HelperResult<()> {
    let mut mounts = SandboxMounts {
        plan,
        attachments: Vec::new(),
        covers: BTreeSet::new(),
        read_only_covers: Vec::new(),
        sockets,
        has_own_devices: false,
    };
    if let Some(workspace) = &plan.stage {
        // What is copied from the workspace from here on is staged.
        mount_layers(workspace)?;
    }
    mounts.add_writable()?;
    mounts.add_devices()?;
    mounts.add_covers()?;
    mounts.add_home()?;
    mounts.add_visible()?;
    mounts.add_kept();
    mounts.add_hidden();
    mounts.attach_all()
}

impl SandboxMounts<'_> {
    fn add(&mut self, path: &Path, rank: Rank, source: Source) {
        self.attachments.push(Attachment { path: path.to_owned(), rank, source });
    }

    fn add_copy(&mut self, path: &Path, rank: Rank) -> HelperResult<()> {
        let tree = MountTree::copy_path(path).map_err(|error| HelperReply::path(path, &error))?;
        if rank != Rank::Write {
            tree.set_read_only().map_err(|error| HelperReply::path(path, &error))?;
        }
        self.add(path, rank, Source::Tree(tree));
        Ok(())
    }

    fn is_writable(&self, path: &Path) -> bool {
        self.writable_root(path).is_some()
    }

    /// The innermost writable directory that contains `path`.
    fn writable_root(&self, path: &Path) -> Option<&PathBuf> {
        let profile = &self.plan.profile;
        let home = self.plan.home.as_ref().filter(|_| profile.home == HomeAccess::Write);
        let roots = profile.write.iter().chain(home).filter(|root| path.starts_with(root));
        roots.max_by_key(|root| root.as_os_str().len())
    }

    fn add_writable(&mut self) -> HelperResult<()> {
        let plan = self.plan;
        for path in &plan.profile.write {
            self.add_copy(path, Rank::Write)?;
        }
        if let (HomeAccess::Write, Some(home)) = (plan.profile.home, &plan.home) {
            self.add_copy(home, Rank::Write)?;
        }
        Ok(())
    }

    /// /proc and /dev stay usable.
    fn add_devices(&mut self) -> HelperResult<()> {
        let failed = |error: io::Error| HelperReply::failed("the mounts of /proc and /dev", &error);
        let proc = MountTree::copy_path(Path::new("/proc")).map_err(failed)?;
        if geteuid().is_root() {
            // Settings of every process of root. Others need it for namespaces of their own, which root cannot make here.
            proc.set_read_only().map_err(failed)?;
        }
        self.add(Path::new("/proc"), Rank::Cover, Source::Tree(proc));
        for path in KEPT_IN_PROC.map(Path::new).into_iter().filter(|path| path.exists()) {
            self.add(path, Rank::Keep, Source::Place(true));
        }
        if geteuid().is_root() {
            self.add_common_devices()?;
        } else {
            let directory = Path::new(DEVICE_DIRECTORY);
            let devices = MountTree::copy_path(directory).map_err(failed)?;
            devices.set_read_only().map_err(failed)?;
            self.add(directory, Rank::Cover, Source::Tree(devices));
            for device in reachable_disks() {
                let null = MountTree::copy_path(Path::new("/dev/null")).map_err(failed)?;
                self.add(&device, Rank::Hide, Source::Tree(null));
            }
        }
        if Path::new("/dev/shm").is_dir() {
            let memory = MountTree::create("tmpfs", &[("mode", "1777")], &[]).map_err(failed)?;
            self.add(Path::new("/dev/shm"), Rank::Cover, Source::Tree(memory));
        }
        self.add_terminals();
        Ok(())
    }

    /// A /dev without what only root can open: consoles, disks, virtual machines.
    fn add_common_devices(&mut self) -> HelperResult<()> {
        let directory = Path::new(DEVICE_DIRECTORY);
        self.add_empty_cover(directory, "0755")?;
        for path in COMMON_DEVICES.map(Path::new).into_iter().filter(|path| path.exists()) {
            self.add_copy(path, Rank::Visible)?;
        }
        self.has_own_devices = true;
        Ok(())
    }

    /// Pseudo-terminals of its own: the user's other terminals could be read.
    fn add_terminals(&mut self) {
        let options = [("ptmxmode", "666"), ("mode", "620")];
        let Ok(terminals) = MountTree::create("devpts", &options, &[]) else { return };
        if self.has_own_devices
            || Path::new("/dev/ptmx").is_symlink()
            || !Path::new("/dev/pts").is_dir()
        {
            self.add(Path::new("/dev/pts"), Rank::Cover, Source::Tree(terminals));
            return;
        }
        self.add(Path::new("/dev/pts"), Rank::Cover, Source::Tree(terminals));
        // Attached after /dev/pts, because it is a file in it.
        self.add(Path::new("/dev/ptmx"), Rank::Hide, Source::Place(false));
    }

    fn add_covers(&mut self) -> HelperResult<()> {
        let temporary = self.plan.scratch.join("tmp");
        create_directory(&temporary, 0o1777)
            .map_err(|error| HelperReply::path(&temporary, &error))?;
        for path in real_directories(&TEMPORARY_DIRECTORIES) {
            let tree = MountTree::copy_path(&temporary)
                .map_err(|error| HelperReply::path(&temporary, &error))?;
            self.add(&path, Rank::Cover, Source::Tree(tree));
            self.covers.insert(path);
        }
        for path in real_directories(&RUN_DIRECTORIES) {
            self.add_empty_cover(&path, "0755")?;
        }
        let hidden = self.plan.profile.hide.iter().filter(|path| self.plan.is_above_visible(path));
        for path in hidden.cloned().collect::<Vec<_>>() {
            self.add_empty_cover(&path, "0755")?;
        }
        if let ReadAccess::Only(_) = self.plan.profile.read {
            for entry in fs::read_dir("/").into_iter().flatten().flatten() {
                let is_system = SYSTEM_DIRECTORIES.iter().any(|name| entry.file_name() == *name);
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() && !is_system => {
                        self.add_empty_cover(&entry.path(), "0755")?;
                    }
                    Ok(kind) if kind.is_file() => {
                        self.add(&entry.path(), Rank::Cover, Source::Empty);
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// A directory that contains nothing but mount points.
    fn add_empty_cover(&mut self, path: &Path, mode: &str) -> HelperResult<()> {
        let tree = MountTree::create("tmpfs", &[("mode", mode)], &[])
            .map_err(|error| HelperReply::failed("tmpfs", &error))?;
        self.add(path, Rank::Cover, Source::Tree(tree));
        self.covers.insert(path.to_owned());
        self.read_only_covers.push(path.to_owned());
        Ok(())
    }

    fn add_home(&mut self) -> HelperResult<()> {
        let plan = self.plan;
        let Some(home) = plan.home.as_ref().filter(|home| home.is_dir()) else { return Ok(()) };
        if self.is_writable(home) {
            return Ok(());
        }
        match plan.profile.home {
            HomeAccess::Hidden => self.add_empty_cover(home, "0755"),
            HomeAccess::Copy => {
                for (path, tree) in copy_home(home, &plan.scratch)? {
                    self.add(&path, Rank::Home, Source::Tree(tree));
                }
                Ok(())
            }
            HomeAccess::Read => self.add_visible_path(home),
            HomeAccess::Write => Ok(()),
        }
    }

    /// What a cover would hide, and has to be seen.
    fn add_visible(&mut self) -> HelperResult<()> {
        let plan = self.plan;
        let lookups = VISIBLE_IN_RUN.into_iter().chain(lookup_sockets(&plan.profile.net));
        for path in lookups.map(Path::new).filter(|path| path.exists()) {
            if let Ok(path) = path.canonicalize() {
                self.add_visible_path(&path)?;
            }
        }
        if plan.profile.net == NetAccess::All && Path::new(RESOLVER).is_dir() {
            self.add_visible_path(Path::new(RESOLVER))?;
        }
        let listed = match &plan.profile.read {
            ReadAccess::All => &[],
            ReadAccess::Only(paths) => paths.as_slice(),
        };
        // Outer paths first, which make the inner ones visible too.
        let mut visible: Vec<&PathBuf> = plan.visible.iter().chain(listed).collect();
        visible.retain(|path| !plan.profile.hide.contains(path));
        visible.sort_unstable();
        for path in visible {
            self.add_visible_path(path)?;
        }
        for path in &plan.profile.sockets {
            self.add_copy(path, Rank::Socket)?;
        }
        Ok(())
    }

    fn add_visible_path(&mut self, path: &Path) -> HelperResult<()> {
        let depth = |path: &Path| path.components().count();
        let covers = self.covers.iter().filter(|cover| path.starts_with(cover));
        let Some(cover) = covers.map(|cover| depth(cover)).max() else { return Ok(()) };
        let is_visible = self.attachments.iter().any(|other| {
            matches!(other.rank, Rank::Visible | Rank::Home | Rank::Write)
                && path.starts_with(&other.path)
                && depth(&other.path) >= cover
        });
        if is_visible { Ok(()) } else { self.add_copy(path, Rank::Visible) }
    }

    /// Read-only paths in writable ones. The directories above them and above hidden paths are mount points too: they cannot
    /// be renamed together with what is kept or hidden in them, which later sandboxes would not find.
    fn add_kept(&mut self) {
        let plan = self.plan;
        let mut pinned = BTreeSet::new();
        for path in &plan.profile.keep {
            self.add(path, Rank::Keep, Source::Place(true));
        }
        for path in plan.profile.keep.iter().chain(&plan.profile.hide) {
            let Some(root) = self.writable_root(path).cloned() else { continue };
            pinned.extend(path.ancestors().skip(1).take_while(|parent| *parent != root));
        }
        for path in pinned {
            let is_root = plan.profile.write.iter().any(|root| root == path);
            let is_kept = plan.profile.keep.iter().any(|other| path.starts_with(other));
            if self.is_writable(path) && !is_root && !is_kept {
                self.add(path, Rank::Pin, Source::Place(false));
            }
        }
    }

    fn add_hidden(&mut self) {
        let plan = self.plan;
        for path in plan.profile.hide.iter().filter(|path| !plan.is_above_visible(path)) {
            self.add(path, Rank::Hide, Source::Empty);
        }
        // TMPDIR can be in the workspace, whose copy is older than what covers the directory elsewhere.
        if self.is_writable(&plan.scratch) {
            self.add(&plan.scratch, Rank::Hide, Source::Empty);
        }
        let lookups = lookup_sockets(&plan.profile.net);
        let masked = self.sockets.iter().filter(|path| {
            !plan.profile.sockets.contains(path)
                && !lookups.iter().any(|lookup| path.starts_with(lookup))
        });
        let masked: Vec<PathBuf> = masked.cloned().collect();
        for path in masked {
            self.add(&path, Rank::Socket, Source::Empty);
        }
    }

    fn attach_all(mut self) -> HelperResult<()> {
        let scratch = &self.plan.scratch;
        let failed = |error: io::Error| HelperReply::failed("tmpfs", &error);
        let empty = EmptyPlaces::create(scratch).map_err(failed)?;
        let root = open_place(Path::new("/")).map_err(failed)?;
        let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NODEV;
        set_attributes(root.as_fd(), attributes)
            .map_err(|error| HelperReply::failed("mount_setattr", &error))?;
        self.attachments.sort_by_key(|one| (one.path.components().count(), one.rank));
        for Attachment { path, rank, source } in self.attachments {
            // What is kept can be a symlink.
            let opened = if rank == Rank::Keep { open_entry(&path) } else { open_place(&path) };
            let target = match opened {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let is_covered = self.covers.iter().any(|cover| path.starts_with(cover));
                    match source {
                        // What is not visible does not have to be hidden, nor kept.
                        Source::Empty | Source::Place(_) => continue,
                        Source::Tree(_) if !is_covered => Err(error),
                        Source::Tree(ref tree) => create_mount_point(&path, tree.as_fd()),
                    }
                }
                // What cannot be reached without capabilities is neither read nor written.
                Err(error)
                    if error.kind() == io::ErrorKind::PermissionDenied
                        && !matches!(source, Source::Tree(_)) =>
                {
                    continue;
                }
                other => other,
            };
            let target = target.map_err(|error| HelperReply::path(&path, &error))?;
            let tree = match source {
                Source::Tree(tree) => Ok(tree),
                Source::Place(_) if path == Path::new("/dev/ptmx") => {
                    MountTree::copy_path(Path::new("/dev/pts/ptmx"))
                }
                Source::Place(is_read_only) => copy_place(target.as_fd(), is_read_only),
                Source::Empty if rank == Rank::Socket && !is_socket(target.as_fd()) => continue,
                Source::Empty => empty.copy_for(target.as_fd()),
            };
            tree.and_then(|tree| tree.attach(target.as_fd()))
                .map_err(|error| HelperReply::path(&path, &error))?;
        }
        if self.has_own_devices {
            link_devices().map_err(|error| HelperReply::failed("the links in /dev", &error))?;
        }
        for path in &self.read_only_covers {
            open_place(path)
                .and_then(|target| set_mount_read_only(target.as_fd()))
                .map_err(|error| HelperReply::path(path, &error))?;
        }
        Ok(())
    }
}

/// The links that every /dev has.
fn link_devices() -> io::Result<()> {
    let links = [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
        ("ptmx", "pts/ptmx"),
    ];
    let directory = Path::new(DEVICE_DIRECTORY);
    links.into_iter().try_for_each(|(name, target)| symlink(target, directory.join(name)))
}

fn copy_place(target: BorrowedFd<'_>, is_read_only: bool) -> io::Result<MountTree> {
    let tree = MountTree::copy(target)?;
    if is_read_only {
        tree.set_read_only()?;
    }
    Ok(tree)
}

/// Creates a file or directory like `source`, and the directories above it.
fn create_mount_point(path: &Path, source: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let parent = path.parent().ok_or(io::ErrorKind::NotFound)?;
    create_directory(parent, 0o755)?;
    if has_directory_type(source)? {
        create_directory(path, 0o755)?
    } else {
        drop(fs::File::create(path)?)
    }
    open_place(path)
}

fn create_directory(path: &Path, mode: u32) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o755).create(path)?;
    if mode == 0o755 { Ok(()) } else { fs::set_permissions(path, fs::Permissions::from_mode(mode)) }
}

fn has_directory_type(file: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(FileType::from_raw_mode(RawMode::from(fstat(file)?.st_mode)) == FileType::Directory)
}

/// Makes one mount read-only, but not those below it.
fn set_mount_read_only(mount: BorrowedFd<'_>) -> io::Result<()> {
    crate::kernel::mount_tree::set_attributes_of_one(mount, MountAttrFlags::MOUNT_ATTR_RDONLY)
}

/// The directories among `paths` that exist, without symlinks.
fn real_directories(paths: &[&str]) -> BTreeSet<PathBuf> {
    let paths = paths.iter().filter_map(|path| fs::canonicalize(path).ok());
    paths.filter(|path| path.is_dir()).collect()
}

/// An empty file and an empty directory, in a file system that hides the scratch directory.
struct EmptyPlaces {
    file: OwnedFd,
    directory: OwnedFd,
}

impl EmptyPlaces {
    fn create(scratch: &Path) -> io::Result<Self> {
        let tree = MountTree::create("tmpfs", &[("mode", "0755")], &[])?;
        let root = tree.attach(open_place(scratch)?.as_fd())?;
        mkdirat(&root, "directory", Mode::from_raw_mode(0o555))?;
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        openat(&root, "file", flags, Mode::from_raw_mode(0o444))?;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        Ok(Self {
            file: openat(&root, "file", flags, Mode::empty())?,
            directory: openat(&root, "directory", flags, Mode::empty())?,
        })
    }

    /// An empty place of the kind of `target`.
    fn copy_for(&self, target: BorrowedFd<'_>) -> io::Result<MountTree> {
        let source = if has_directory_type(target)? { &self.directory } else { &self.file };
        MountTree::copy(source.as_fd())
    }
}
