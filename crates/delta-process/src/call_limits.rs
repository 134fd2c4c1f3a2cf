//! The limits of one call: how many processes it may have, and how much memory.
//!
//! Only a control group counts what a call uses together with everything that it starts. Where this process cannot create
//! one, RLIMIT_AS limits the memory of each process by itself, and the number of processes is not limited, because
//! RLIMIT_NPROC counts all processes of the user.
//!
//! In version 2 of control groups, a group that distributes controllers to groups below contains no processes itself. So a
//! call gets a group with its limits and one below, `call`, for its processes. A run inside of the call creates its groups
//! in the former, so that the limits hold for them too.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// The group for the processes of a call, in version 2.
const INNER_GROUP: &str = "call";
/// The beginning of the name of a group; the id of the process that created it follows.
const GROUP_PREFIX: &str = "delta-";

/// The limits of each call. `None` is unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallLimits {
    /// The most processes and threads.
    pub processes: Option<u64>,
    /// The most bytes of memory.
    pub memory: Option<u64>,
}

/// What a control group limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Controller {
    Processes,
    Memory,
}

impl Controller {
    fn name(self) -> &'static str {
        match self {
            Self::Processes => "pids",
            Self::Memory => "memory",
        }
    }

    /// The file of a group that contains the limit, and a file without which the limit holds too.
    fn files(self, version: u8) -> (&'static str, Option<&'static str>) {
        match (self, version) {
            (Self::Processes, _) => ("pids.max", None),
            (Self::Memory, 1) => ("memory.limit_in_bytes", Some("memory.memsw.limit_in_bytes")),
            (Self::Memory, _) => ("memory.max", Some("memory.swap.max")),
        }
    }
}

/// A group in which this process creates the groups of calls.
#[derive(Debug, PartialEq, Eq)]
struct ParentGroup {
    path: PathBuf,
    /// 1 or 2.
    version: u8,
    limits: Vec<(Controller, u64)>,
}

/// The group of one call.
#[derive(Debug)]
pub(super) struct CallGroup {
    path: PathBuf,
    processes: File,
}

impl ParentGroup {
    fn create_group(&self, name: &str) -> io::Result<CallGroup> {
        let path = self.path.join(name);
        fs::create_dir(&path)?;
        self.fill_group(&path).inspect_err(|_| drop(remove_group(&path)))
    }

    fn fill_group(&self, path: &Path) -> io::Result<CallGroup> {
        for (controller, limit) in &self.limits {
            let (file, swap_file) = controller.files(self.version);
            fs::write(path.join(file), limit.to_string())?;
            if let Some(file) = swap_file {
                // Version 1 counts swap together with memory; where swap is not counted, there is no such file.
                let limit = if self.version == 1 { *limit } else { 0 };
                let _ = fs::write(path.join(file), limit.to_string());
            }
        }
        let mut leaf = path.to_owned();
        if self.version == 2 {
            let names = self.limits.iter().map(|(controller, _)| format!("+{}", controller.name()));
            let names = names.collect::<Vec<_>>().join(" ");
            fs::write(path.join("cgroup.subtree_control"), names)?;
            leaf.push(INNER_GROUP);
            fs::create_dir(&leaf)?;
        }
        let processes = OpenOptions::new().write(true).open(leaf.join("cgroup.procs"))?;
        Ok(CallGroup { path: path.to_owned(), processes })
    }

    /// Removes the groups that dead processes created here; the kernel keeps a group that has processes.
    fn remove_stale_groups(&self) {
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let creator = name.to_str().and_then(|name| {
                name.strip_prefix(GROUP_PREFIX)?.split('-').next()?.parse::<u32>().ok()
            });
            if creator.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
                let _ = remove_group(&entry.path());
            }
        }
    }
}

fn remove_group(path: &Path) -> io::Result<()> {
    let _ = fs::remove_dir(path.join(INNER_GROUP));
    fs::remove_dir(path)
}

/// What a child does to itself so that the limits hold for it.
#[derive(Debug, Default)]
pub(super) struct ChildLimits {
    /// The `cgroup.procs` of its groups.
    groups: Vec<File>,
    address_space: Option<u64>,
}

impl ChildLimits {
    /// Makes the limits hold for this process. For use between fork and exec: system calls without allocation.
    #[cfg(target_os = "linux")]
    pub(super) fn apply(&self) -> rustix::io::Result<()> {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        for group in &self.groups {
            rustix::io::write(group, b"0")?;
        }
        if let Some(limit) = self.address_space {
            let maximum =
                getrlimit(Resource::As).maximum.map_or(limit, |maximum| maximum.min(limit));
            setrlimit(Resource::As, Rlimit { current: Some(maximum), maximum: Some(maximum) })?;
        }
        Ok(())
    }
}

/// Enforces the limits of the calls of one run.
#[derive(Debug, Default)]
pub(super) struct CallLimiter {
    parents: Vec<ParentGroup>,
    /// The limit of each process, if no group limits the memory.
    address_space: Option<u64>,
    group_count: AtomicU32,
    /// The groups of processes that outlived their call.
    occupied: Mutex<Vec<CallGroup>>,
}

impl CallLimiter {
    /// Finds out how the limits can be enforced. The second value says what cannot, for the user.
    pub(super) fn new(limits: CallLimits) -> (Self, Vec<String>) {
        let mut limiter = Self::default();
        let mut warnings = Vec::new();
        if limits == CallLimits::default() {
            return (limiter, warnings);
        }
        let own_groups = OwnGroups::read();
        let both = [(Controller::Processes, limits.processes), (Controller::Memory, limits.memory)];
        for (controller, limit) in both {
            let Some(limit) = limit else { continue };
            let parent = own_groups.find_parent(controller, limit);
            if let Err(problem) = parent.and_then(|parent| limiter.add_parent(parent)) {
                warnings.push(limiter.limit_without_group(controller, limit, &problem));
            }
        }
        (limiter, warnings)
    }

    /// Adds a group with one limit, if groups can be created in it.
    fn add_parent(&mut self, parent: ParentGroup) -> Result<(), GroupProblem> {
        // A process has one group in version 2.
        let conflict = self
            .parents
            .iter()
            .find(|known| known.version == 2 && parent.version == 2 && known.path != parent.path);
        if let (Some(_), Some((controller, _))) = (conflict, parent.limits.first()) {
            return Err(GroupProblem::NotDistributed(*controller, parent.path));
        }
        match parent.create_group(&self.next_name()) {
            Ok(group) => drop(remove_group(&group.path)),
            Err(error) => return Err(GroupProblem::NotCreated(parent.path, error)),
        }
        parent.remove_stale_groups();
        match self.parents.iter_mut().find(|known| known.path == parent.path) {
            Some(known) => known.limits.extend(parent.limits),
            None => self.parents.push(parent),
        }
        Ok(())
    }

    /// Does what is possible for a limit that no group enforces; returns what is not, for the user.
    fn limit_without_group(
        &mut self,
        controller: Controller,
        limit: u64,
        problem: &GroupProblem,
    ) -> String {
        match controller {
            Controller::Processes => {
                format!("the limit of {limit} processes is not enforced: {problem}")
            }
            Controller::Memory => {
                self.address_space = Some(limit);
                format!(
                    "the limit of memory applies to each process of a call, not to all together: {problem}"
                )
            }
        }
    }

    fn next_name(&self) -> String {
        let number = self.group_count.fetch_add(1, Ordering::Relaxed);
        format!("{GROUP_PREFIX}{}-{number}", std::process::id())
    }

    /// Creates the groups of a call.
    pub(super) fn create_groups(&self) -> io::Result<Vec<CallGroup>> {
        let name = self.next_name();
        let mut groups = Vec::new();
        for parent in &self.parents {
            match parent.create_group(&name) {
                Ok(group) => groups.push(group),
                Err(error) => {
                    self.remove_groups(groups);
                    return Err(error);
                }
            }
        }
        Ok(groups)
    }

    /// What the command of a call does to itself.
    pub(super) fn child_limits(&self, groups: &[CallGroup]) -> io::Result<ChildLimits> {
        let groups = groups.iter().map(|group| group.processes.try_clone());
        Ok(ChildLimits {
            groups: groups.collect::<io::Result<_>>()?,
            address_space: self.address_space,
        })
    }

    /// Removes the groups of a call: later, where processes outlive it.
    pub(super) fn remove_groups(&self, groups: Vec<CallGroup>) {
        let occupied = groups.into_iter().filter(|group| remove_group(&group.path).is_err());
        self.occupied.lock().unwrap_or_else(PoisonError::into_inner).extend(occupied);
    }
}

impl Drop for CallLimiter {
    fn drop(&mut self) {
        let occupied = self.occupied.get_mut().unwrap_or_else(PoisonError::into_inner);
        for group in occupied {
            let _ = remove_group(&group.path);
        }
    }
}

/// Why no group limits a call.
#[derive(Debug, thiserror::Error)]
enum GroupProblem {
    #[error("the system has no control groups with the controller `{}`", .0.name())]
    NoController(Controller),
    #[error("the control group {} does not distribute the controller `{}`", .1.display(), .0.name())]
    NotDistributed(Controller, PathBuf),
    #[error("could not create a control group in {}: {}", .0.display(), .1)]
    NotCreated(PathBuf, io::Error),
}

/// The control groups of this process.
struct OwnGroups {
    /// /proc/self/cgroup
    groups: String,
    /// /proc/self/mountinfo
    mounts: String,
}

impl OwnGroups {
    fn read() -> Self {
        let read = |name| fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
        Self { groups: read("cgroup"), mounts: read("mountinfo") }
    }

    /// The group in which groups with this limit can be created.
    fn find_parent(&self, controller: Controller, limit: u64) -> Result<ParentGroup, GroupProblem> {
        let limits = vec![(controller, limit)];
        if let Some(own_group) = self.own_group(Some(controller.name())) {
            return Ok(ParentGroup { path: own_group.path, version: 1, limits });
        }
        let own_group = self.own_group(None).ok_or(GroupProblem::NoController(controller))?;
        if !lists_controller(&own_group.path.join("cgroup.controllers"), controller) {
            return Err(GroupProblem::NoController(controller));
        }
        // The group of this process usually cannot distribute controllers, because it has a process.
        let next = own_group.path.parent().filter(|_| !own_group.is_root);
        let distributor = [Some(own_group.path.as_path()), next]
            .into_iter()
            .flatten()
            .find(|path| lists_controller(&path.join("cgroup.subtree_control"), controller));
        match distributor {
            Some(path) => Ok(ParentGroup { path: path.to_owned(), version: 2, limits }),
            None => Err(GroupProblem::NotDistributed(controller, own_group.path.clone())),
        }
    }

    /// The group of this process: with a controller of version 1, or in version 2.
    fn own_group(&self, controller: Option<&str>) -> Option<OwnGroup> {
        let group = self.groups.lines().find_map(|line| find_own_path(line, controller))?;
        let mount = self.mounts.lines().find_map(|line| find_mount(line, controller))?;
        let below = Path::new(group).strip_prefix(mount.root).ok()?;
        // A group outside of the namespace of this process has a path with `..`.
        if below.components().any(|part| part.as_os_str() == "..") {
            return None;
        }
        let path = Path::new(mount.mount_point).join(below);
        Some(OwnGroup { path, is_root: below.as_os_str().is_empty() })
    }
}

/// The directory of a group of this process.
struct OwnGroup {
    path: PathBuf,
    /// Whether it is the root of its mount.
    is_root: bool,
}

/// A mount of control groups.
struct GroupMount<'a> {
    /// The group at the mount point.
    root: &'a str,
    mount_point: &'a str,
}

fn lists_controller(file: &Path, controller: Controller) -> bool {
    let list = fs::read_to_string(file).unwrap_or_default();
    list.split_whitespace().any(|name| name == controller.name())
}

/// The path of the group in a line of /proc/self/cgroup, such as `4:cpu,memory:/user` or `0::/user`, if the line is of the
/// controller, or without one, of version 2.
fn find_own_path<'a>(line: &'a str, controller: Option<&str>) -> Option<&'a str> {
    let mut fields = line.splitn(3, ':').skip(1);
    let controllers = fields.next()?;
    let is_match = match controller {
        Some(name) => controllers.split(',').any(|listed| listed == name),
        None => controllers.is_empty(),
    };
    fields.next().filter(|_| is_match)
}

/// The mount in a line of /proc/self/mountinfo, if it is of the controller, or without one, of version 2.
fn find_mount<'a>(line: &'a str, controller: Option<&str>) -> Option<GroupMount<'a>> {
    let (mount, file_system) = line.split_once(" - ")?;
    let mut file_system = file_system.split(' ');
    let kind = file_system.next()?;
    let is_match = match controller {
        Some(name) => {
            kind == "cgroup" && file_system.nth(1)?.split(',').any(|option| option == name)
        }
        None => kind == "cgroup2",
    };
    let mut mount = mount.split(' ').skip(3).filter(|_| is_match);
    Some(GroupMount { root: mount.next()?, mount_point: mount.next()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_groups(groups: &str, mounts: &str) -> OwnGroups {
        OwnGroups { groups: groups.to_owned(), mounts: mounts.to_owned() }
    }

    fn found(groups: &OwnGroups, controller: Controller) -> (PathBuf, u8) {
        let parent = groups.find_parent(controller, 9).unwrap();
        assert_eq!(parent.limits, [(controller, 9)]);
        (parent.path, parent.version)
    }

    /// A directory that looks like a mount of version 2, and the mountinfo that has it.
    fn version_2(dir: &Path, root: &str) -> String {
        format!("35 24 0:30 {root} {} rw - cgroup2 cgroup2 rw,nsdelegate", dir.display())
    }

    fn write(dir: &Path, name: &str, text: &str) {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn c_22_2_a_group_of_version_1_is_below_the_own_one() {
        let mounts = "36 23 0:39 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
            37 23 0:40 /docker/x /cg/memory rw - cgroup cgroup rw,memory\n";
        let groups = own_groups("8:pids:/user\n4:cpu,memory:/docker/x/y\n0::/", mounts);
        assert_eq!(found(&groups, Controller::Processes), ("/sys/fs/cgroup/pids/user".into(), 1));
        assert_eq!(found(&groups, Controller::Memory), ("/cg/memory/y".into(), 1));
        let outside = own_groups("8:pids:/../x", mounts).find_parent(Controller::Processes, 9);
        assert!(matches!(outside, Err(GroupProblem::NoController(_))));
    }

    #[test]
    fn c_22_2_a_group_of_version_2_is_where_controllers_are_distributed() {
        let dir = tempfile::tempdir().unwrap();
        let mount = dir.path();
        write(mount, "app/cgroup.subtree_control", "memory pids\n");
        write(mount, "app/shell/cgroup.controllers", "memory pids\n");
        write(mount, "app/shell/cgroup.subtree_control", "");
        let groups = own_groups("0::/app/shell", &version_2(mount, "/"));
        assert_eq!(found(&groups, Controller::Processes), (mount.join("app"), 2));
        write(mount, "app/shell/cgroup.subtree_control", "pids\n");
        assert_eq!(found(&groups, Controller::Processes), (mount.join("app/shell"), 2));
        write(mount, "app/cgroup.subtree_control", "");
        let memory = groups.find_parent(Controller::Memory, 9);
        assert!(matches!(memory, Err(GroupProblem::NotDistributed(..))), "{memory:?}");
        // Above the root of the mount there is no group.
        let groups = own_groups("0::/app", &version_2(&mount.join("app/shell"), "/app"));
        let memory = groups.find_parent(Controller::Memory, 9);
        assert!(matches!(memory, Err(GroupProblem::NotDistributed(..))), "{memory:?}");
    }

    #[test]
    fn c_22_2_a_group_of_version_2_has_its_processes_one_level_below() {
        let dir = tempfile::tempdir().unwrap();
        let limits = vec![(Controller::Processes, 9), (Controller::Memory, 1 << 30)];
        let parent = ParentGroup { path: dir.path().to_owned(), version: 2, limits };
        let path = dir.path().join("g");
        fs::create_dir(&path).unwrap();
        // Only the kernel creates the file `cgroup.procs`.
        assert!(parent.fill_group(&path).is_err());
        let read = |name: &str| fs::read_to_string(path.join(name)).unwrap();
        assert_eq!(
            (read("pids.max"), read("memory.max")),
            ("9".to_owned(), "1073741824".to_owned())
        );
        assert_eq!(read("memory.swap.max"), "0");
        assert_eq!(read("cgroup.subtree_control"), "+pids +memory");
        assert!(path.join(INNER_GROUP).is_dir());
    }
}
