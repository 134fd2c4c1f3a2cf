//! The namespaces of a staged run: in them the workspace is an overlay whose upper layer is in the run directory, and
//! `.delta` is the real one.
//!
//! The engine is not dumpable, so it cannot write the `uid_map` of a user namespace. A helper, `delta __stage` with an empty
//! environment, creates the namespaces and mounts; the engine joins them, and the helper ends.

use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The name of the hidden command of the helper, its first argument.
pub const STAGE_COMMAND: &str = "__stage";

/// What the helper prints when the namespaces are ready, before its process id.
#[cfg(target_os = "linux")]
const READY: &str = "ready";

/// The directories of a stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageLayers {
    /// The workspace, absolute and without symlinks.
    pub workspace: PathBuf,
    /// The directory of all runs in the workspace, which is not staged.
    pub control: PathBuf,
    /// The directory with what the run changed.
    pub upper: PathBuf,
    /// The directory that the kernel works in.
    pub work: PathBuf,
    /// Whether the workspace is staged already, by the run whose call gets these layers: its directory of runs is a mount.
    pub is_nested: bool,
}

/// The workspace of a call whose changes are staged.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CallWorkspace {
    pub(crate) layers: StageLayers,
    /// The mount of the staged workspace without the ones in it, if it is staged already. In the namespaces of a call, no
    /// overlay can be mounted over a directory with inherited mounts; the helper lays this one over it first.
    #[serde(skip)]
    pub(crate) stage: Option<OwnedFd>,
}

impl CallWorkspace {
    /// The workspace with these layers, as the engine hands it to the helper.
    pub(crate) fn new(layers: &StageLayers) -> io::Result<Self> {
        let stage = layers.is_nested.then(|| copy_one_mount(&layers.workspace)).transpose()?;
        Ok(Self { layers: layers.clone(), stage })
    }
}

/// Why a workspace cannot be staged here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct StageError {
    /// The reason as a fragment.
    pub reason: String,
    /// What to do about it, as a sentence without a full stop.
    pub remedy: Option<String>,
}

impl StageError {
    #[cfg(target_os = "linux")]
    fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), remedy: None }
    }
}

#[cfg(target_os = "linux")]
pub(crate) use system::{build_call_stage, copy_one_mount, mount_call_stage};
#[cfg(target_os = "linux")]
pub use system::{check_stage, enter_stage, run_stage_helper};

#[cfg(not(target_os = "linux"))]
pub(crate) use elsewhere::{build_call_stage, copy_one_mount, mount_call_stage};
#[cfg(not(target_os = "linux"))]
pub use elsewhere::{check_stage, enter_stage, run_stage_helper};

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use super::{CallWorkspace, StageError, StageLayers};
    use std::ffi::OsString;
    use std::io;
    use std::os::fd::OwnedFd;
    use std::path::Path;
    use std::process::ExitCode;

    fn unsupported() -> StageError {
        StageError { reason: "staged runs need Linux".to_owned(), remedy: None }
    }

    /// Checks that this process could enter a stage of `workspace`.
    pub fn check_stage(_workspace: Option<&Path>) -> Result<(), StageError> {
        Err(unsupported())
    }

    /// Moves this process into a stage.
    pub fn enter_stage(_layers: &StageLayers) -> Result<(), StageError> {
        Err(unsupported())
    }

    /// Creates the namespaces of a call.
    pub(crate) fn build_call_stage(_workspace: &CallWorkspace) -> Result<Vec<OwnedFd>, StageError> {
        Err(unsupported())
    }

    /// Copies the mount of a directory.
    pub(crate) fn copy_one_mount(_path: &Path) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Mounts the layers of a call.
    pub(crate) fn mount_call_stage(_workspace: &CallWorkspace) -> Result<(), StageError> {
        Err(unsupported())
    }

    /// Runs the helper.
    pub fn run_stage_helper(_arguments: &[OsString]) -> ExitCode {
        ExitCode::FAILURE
    }
}

/// The first mount point below `directory` in a text of the format of /proc/PID/mountinfo (proc_pid_mountinfo(5)).
#[cfg(any(target_os = "linux", test))]
fn mount_below(mountinfo: &[u8], directory: &Path) -> Option<PathBuf> {
    mount_lines(mountinfo)
        .map(|(point, _)| point)
        .find(|point| point != directory && point.starts_with(directory))
}

/// Whether `directory` is in the workspace of a staged run: an overlay in which the directory of the runs is a mount.
#[cfg(any(target_os = "linux", test))]
fn is_in_stage(mountinfo: &[u8], directory: &Path) -> bool {
    let separator = b" - overlay ";
    let overlays = mount_lines(mountinfo)
        .filter(|(_, line)| line.windows(separator.len()).any(|part| part == separator));
    let controls: Vec<PathBuf> = overlays.map(|(point, _)| point.join(".delta")).collect();
    mount_lines(mountinfo).any(|(point, _)| {
        point.parent().is_some_and(|root| directory.starts_with(root)) && controls.contains(&point)
    })
}

/// The mount points, with their lines.
#[cfg(any(target_os = "linux", test))]
fn mount_lines(mountinfo: &[u8]) -> impl Iterator<Item = (PathBuf, &[u8])> {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;
    mountinfo.split(|byte| *byte == b'\n').filter_map(|line| {
        let escaped = line.split(|byte| *byte == b' ').nth(4)?;
        Some((PathBuf::from(OsString::from_vec(unescape_octal(escaped))), line))
    })
}

/// Replaces `\040` and the like, as the kernel writes spaces, tabs, line ends and backslashes.
#[cfg(any(target_os = "linux", test))]
fn unescape_octal(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        let digits = tail.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match escaped.filter(|_| *first == b'\\') {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    bytes
}

#[cfg(target_os = "linux")]
mod system {
    use super::{
        CallWorkspace, READY, STAGE_COMMAND, StageError, StageLayers, is_in_stage, mount_below,
    };
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::fs::{CWD, Mode, OFlags, StatVfsMountFlags};
    use rustix::io::Errno;
    use rustix::mount::{
        MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, move_mount, open_tree,
    };
    use rustix::process::{DumpableBehavior, Pid, PidfdFlags, WaitOptions};
    use rustix::thread::{CapabilitySet, ThreadNameSpaceType, UnshareFlags};
    use std::collections::BTreeMap;
    use std::ffi::OsString;
    use std::io::{self, BufRead, BufReader, Write};
    use std::os::fd::{AsFd, AsRawFd, OwnedFd};
    use std::path::{Path, PathBuf};
    use std::process::ExitCode;

    /// The program of this process, which the helper runs too.
    const THIS_PROGRAM: &str = "/proc/self/exe";

    /// How long the helper keeps its namespaces for an engine that does not join them.
    const JOIN_TIMEOUT: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };

    const DIRECTORY_FLAGS: OFlags =
        OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

    /// Where the helper mounts something to try it; any existing directory does.
    const TRIAL_DIRECTORIES: [&str; 2] = ["/tmp", "/var/tmp"];

    /// Checks that this process could enter a stage of `workspace`, an absolute path without symlinks; `None` if it does
    /// not exist yet. Changes nothing.
    ///
    /// # Errors
    /// The reason and the remedy.
    pub fn check_stage(workspace: Option<&Path>) -> Result<(), StageError> {
        if let Some(workspace) = workspace {
            check_mounts(workspace)?;
        }
        Helper::start(&[])?.end();
        Ok(())
    }

    /// Mounts the layers of a call.
    pub(crate) fn mount_call_stage(workspace: &CallWorkspace) -> Result<(), StageError> {
        let CallWorkspace { layers, stage } = workspace;
        if stage.is_none() {
            check_mounts(&layers.workspace)?;
        }
        mount_stage(layers, stage.as_ref())
    }

    /// A copy of the mount of the directory `path`, without what is mounted in it.
    pub(crate) fn copy_one_mount(path: &Path) -> io::Result<OwnedFd> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        Ok(open_tree(CWD, path, flags)?)
    }

    fn check_mounts(workspace: &Path) -> Result<(), StageError> {
        let mounts = std::fs::read("/proc/self/mountinfo")
            .map_err(|error| StageError::new(format!("could not read the mounts: {error}")))?;
        if is_in_stage(&mounts, workspace) {
            return Err(StageError {
                reason: format!(
                    "{} is in the staged workspace of another run",
                    workspace.display()
                ),
                remedy: Some(
                    "start the run outside of that run, or give it another workspace".to_owned(),
                ),
            });
        }
        let Some(point) = mount_below(&mounts, workspace) else { return Ok(()) };
        Err(StageError {
            reason: format!("{} is a mount in the workspace", point.display()),
            remedy: Some("unmount it, or stage a directory without mounts below it".to_owned()),
        })
    }

    /// Moves this process, which must have one thread, into namespaces in which the workspace is staged.
    ///
    /// # Errors
    /// The process is where it was.
    pub fn enter_stage(layers: &StageLayers) -> Result<(), StageError> {
        let StageLayers { workspace, control, upper, work, .. } = layers;
        check_mounts(workspace)?;
        let directory = std::env::current_dir();
        let parent = rustix::process::getppid();
        let death_signal = rustix::process::parent_process_death_signal().ok().flatten();
        let helper = Helper::start(&[workspace, control, upper, work])?;
        let joined = helper.join();
        helper.end();
        joined.map_err(|errno| {
            StageError::new(format!("could not join the namespaces of the stage: {errno}"))
        })?;
        // Joining a user namespace resets both.
        let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
        let _ = rustix::process::set_parent_process_death_signal(death_signal);
        if death_signal.is_some() && rustix::process::getppid() != parent {
            return Err(StageError::new("the process that started delta has ended"));
        }
        // A tool of root must not unmount the stage.
        if rustix::process::geteuid().is_root() {
            let _ = rustix::thread::remove_capability_from_bounding_set(CapabilitySet::SYS_ADMIN);
        }
        if let Ok(directory) = directory {
            let _ = std::env::set_current_dir(directory);
        }
        Ok(())
    }

    /// The process that created the namespaces and waits in them.
    struct Helper {
        pid: Pid,
        namespaces: ThreadNameSpaceType,
        /// The helper ends when this is closed.
        output: BufReader<std::io::PipeReader>,
    }

    impl Helper {
        fn start(layers: &[&PathBuf]) -> Result<Self, StageError> {
            let mut arguments = vec![STAGE_COMMAND.to_owned()];
            for layer in layers {
                let layer = layer
                    .to_str()
                    .ok_or_else(|| StageError::new(format!("{} is not UTF-8", layer.display())))?;
                arguments.push(layer.to_owned());
            }
            let output = delta_process::start_detached(
                Path::new(THIS_PROGRAM),
                &arguments,
                &BTreeMap::new(),
                Path::new("/"),
            )
            .map_err(|error| StageError::new(format!("could not start {THIS_PROGRAM}: {error}")))?;
            let mut output = BufReader::new(output);
            let mut reply = String::new();
            let _ = output.read_line(&mut reply);
            let mut words = reply.split_whitespace();
            let is_ready = words.next() == Some(READY);
            let pid = words.next().and_then(|pid| Pid::from_raw(pid.parse().ok()?));
            if let Some(pid) = pid.filter(|_| is_ready) {
                let mut namespaces = ThreadNameSpaceType::MOUNT;
                if words.next().is_some() {
                    namespaces |= ThreadNameSpaceType::USER;
                }
                return Ok(Self { pid, namespaces, output });
            }
            let (reason, remedy) = reply.trim_end().split_once('\t').unwrap_or((&reply, ""));
            let reason = match reason.trim() {
                "" => "the process that makes the namespaces ended without a reply",
                reason => reason,
            };
            let remedy = (!remedy.is_empty()).then(|| remedy.to_owned());
            Err(StageError { reason: reason.to_owned(), remedy })
        }

        fn join(&self) -> Result<(), Errno> {
            let process = rustix::process::pidfd_open(self.pid, PidfdFlags::empty())?;
            rustix::thread::move_into_thread_name_spaces(process.as_fd(), self.namespaces)
        }

        /// Ends the process and reaps it.
        fn end(self) {
            let Self { pid, output, .. } = self;
            drop(output);
            let _ = rustix::io::retry_on_intr(|| {
                rustix::process::waitpid(Some(pid), WaitOptions::empty())
            });
        }
    }

    /// Runs the helper: without `arguments` it tries what a stage needs, else they are the paths of [`StageLayers`].
    pub fn run_stage_helper(arguments: &[OsString]) -> ExitCode {
        let reply = match prepare_namespaces(arguments) {
            Ok(has_user) => {
                let pid = std::process::id();
                format!("{READY} {pid}{}\n", if has_user { " user" } else { "" })
            }
            Err(error) => {
                let remedy = error.remedy.unwrap_or_default();
                format!("{}\t{remedy}\n", error.reason.replace(['\n', '\t'], " "))
            }
        };
        let mut output = std::io::stdout();
        if output.write_all(reply.as_bytes()).and_then(|()| output.flush()).is_err() {
            return ExitCode::FAILURE;
        }
        // The engine closes its end once it has joined, and when it dies.
        let mut descriptors = [PollFd::new(&output, PollFlags::empty())];
        let _ = poll(&mut descriptors, Some(&JOIN_TIMEOUT));
        ExitCode::SUCCESS
    }

    /// Creates the namespaces of a call with these layers, which this process then is in. Returns their descriptors, the
    /// user namespace first.
    pub(crate) fn build_call_stage(workspace: &CallWorkspace) -> Result<Vec<OwnedFd>, StageError> {
        let has_user = create_namespaces()?;
        mount_call_stage(workspace)?;
        let names = if has_user { &["user", "mnt"][..] } else { &["mnt"] };
        let files = names.iter().map(|name| {
            let path = format!("/proc/self/ns/{name}");
            rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
                .map_err(|errno| StageError::new(format!("could not open {path}: {errno}")))
        });
        files.collect()
    }

    /// Creates the namespaces and mounts; whether there is a user namespace.
    fn prepare_namespaces(arguments: &[OsString]) -> Result<bool, StageError> {
        let has_user = create_namespaces()?;
        match arguments {
            [workspace, control, upper, work] => {
                let layers = StageLayers {
                    workspace: workspace.into(),
                    control: control.into(),
                    upper: upper.into(),
                    work: work.into(),
                    is_nested: false,
                };
                mount_stage(&layers, None)?;
            }
            _ => try_overlay()?,
        }
        Ok(has_user)
    }

    fn create_namespaces() -> Result<bool, StageError> {
        let has_user = unshare_namespaces()?;
        rustix::mount::mount_change(
            "/",
            MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC,
        )
        .map_err(|errno| mount_error("could not make the mounts private", errno))?;
        Ok(has_user)
    }

    /// A process with the capability gets a mount namespace, any other a user namespace too, in which it has it.
    fn unshare_namespaces() -> Result<bool, StageError> {
        match unshare(UnshareFlags::NEWNS) {
            Ok(()) => return Ok(false),
            Err(Errno::PERM) => {}
            Err(errno) => return Err(refusal(errno)),
        }
        let user = rustix::process::geteuid();
        let group = rustix::process::getegid();
        unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS).map_err(refusal)?;
        let maps = [
            ("setgroups", "deny".to_owned()),
            ("uid_map", format!("{0} {0} 1", user.as_raw())),
            ("gid_map", format!("{0} {0} 1", group.as_raw())),
        ];
        for (file, content) in maps {
            write_map(file, &content).map_err(|error| {
                StageError::new(format!("could not write /proc/self/{file}: {error}"))
            })?;
        }
        Ok(true)
    }

    fn write_map(file: &str, content: &str) -> std::io::Result<()> {
        let path = format!("/proc/self/{file}");
        // One write: the kernel takes a map as a whole.
        std::fs::OpenOptions::new().write(true).open(path)?.write_all(content.as_bytes())
    }

    fn unshare(flags: UnshareFlags) -> Result<(), Errno> {
        // SAFETY: the flags do not unshare descriptors, on which the soundness of others could depend.
        unsafe { rustix::thread::unshare_unsafe(flags) }
    }

    /// The error for namespaces that the machine refuses, with the setting that does so.
    fn refusal(errno: Errno) -> StageError {
        let settings = [
            ("kernel/apparmor_restrict_unprivileged_userns", "1"),
            ("kernel/unprivileged_userns_clone", "0"),
            ("user/max_user_namespaces", "0"),
            ("user/max_mnt_namespaces", "0"),
        ];
        for (setting, refusing) in settings {
            let value = std::fs::read_to_string(format!("/proc/sys/{setting}")).unwrap_or_default();
            if value.trim() == refusing {
                let name = setting.replace('/', ".");
                return StageError {
                    reason: format!("user namespaces are refused ({name} is {refusing})"),
                    remedy: Some(format!(
                        "let root change it: `sysctl {name}={}`",
                        match refusing {
                            "1" => "0",
                            _ if setting.starts_with("user/") => "10000",
                            _ => "1",
                        }
                    )),
                };
            }
        }
        StageError {
            reason: format!("user namespaces are refused ({errno})"),
            remedy: Some(
                "in a container, allow them: for Docker `--security-opt seccomp=unconfined`, or run delta outside of it"
                    .to_owned(),
            ),
        }
    }

    fn mount_error(action: &str, errno: Errno) -> StageError {
        let reason = format!("{action}: {errno}");
        let value =
            std::fs::read_to_string("/proc/sys/kernel/apparmor_restrict_unprivileged_userns");
        if value.unwrap_or_default().trim() == "1" {
            // AppArmor lets the namespace be created, and refuses what it is for.
            return StageError { reason, ..refusal(errno) };
        }
        StageError::new(reason)
    }

    /// Mounts an overlay of empty directories on a file system in memory.
    fn try_overlay() -> Result<(), StageError> {
        let Some(base) = TRIAL_DIRECTORIES.iter().find(|path| Path::new(path).is_dir()) else {
            return Ok(());
        };
        let base = Path::new(base);
        rustix::mount::mount("tmpfs", base, "tmpfs", MountFlags::empty(), None)
            .map_err(|errno| mount_error("could not mount a tmpfs", errno))?;
        let layers = StageLayers {
            workspace: base.join("w"),
            control: base.join("w/.delta"),
            upper: base.join("w/.delta/upper"),
            work: base.join("w/.delta/work"),
            is_nested: false,
        };
        for directory in [&layers.upper, &layers.work] {
            std::fs::create_dir_all(directory)
                .map_err(|error| StageError::new(format!("could not write in a tmpfs: {error}")))?;
        }
        mount_stage(&layers, None)
    }

    /// Mounts the overlay and the directory of the runs. The overlay is over `stage`, if there is one.
    fn mount_stage(layers: &StageLayers, stage: Option<&OwnedFd>) -> Result<(), StageError> {
        let control = open_directory(&layers.control)?;
        let upper = open_directory(&layers.upper)?;
        let work = open_directory(&layers.work)?;
        if let Some(stage) = stage {
            let target = open_directory(&layers.workspace)?;
            let flags =
                MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
            move_mount(stage, "", &target, "", flags)
                .map_err(|errno| mount_error("could not mount the stage of the run", errno))?;
        }
        let workspace = open_directory(&layers.workspace)?;
        // By descriptor: a path would have to be escaped, and could lead elsewhere by now.
        let options = format!(
            "lowerdir={},upperdir={},workdir={},userxattr\0",
            descriptor_path(&workspace),
            descriptor_path(&upper),
            descriptor_path(&work)
        );
        let options = std::ffi::CStr::from_bytes_with_nul(options.as_bytes())
            .map_err(|error| StageError::new(error.to_string()))?;
        rustix::mount::mount(
            "overlay",
            descriptor_path(&workspace),
            "overlay",
            inherited_flags(&workspace),
            Some(options),
        )
        .map_err(|errno| match errno {
            Errno::INVAL | Errno::OPNOTSUPP => StageError {
                reason: format!("the file system of the workspace cannot be the upper layer of an overlay ({errno})"),
                remedy: Some("use a workspace on ext4, xfs, btrfs or tmpfs".to_owned()),
            },
            Errno::NODEV => StageError {
                reason: "the kernel has no overlay file system".to_owned(),
                remedy: Some("let root load it: `modprobe overlay`".to_owned()),
            },
            errno => mount_error("could not mount an overlay", errno),
        })?;
        if !layers.control.starts_with(&layers.workspace) {
            return Ok(());
        }
        let name = layers.control.file_name().unwrap_or_default();
        let target = layers.workspace.join(name);
        rustix::mount::mount_bind_recursive(descriptor_path(&control), &target)
            .map_err(|errno| mount_error("could not mount the directory of the runs", errno))
    }

    fn open_directory(path: &Path) -> Result<OwnedFd, StageError> {
        rustix::fs::open(path, DIRECTORY_FLAGS, Mode::empty())
            .map_err(|errno| StageError::new(format!("could not open {}: {errno}", path.display())))
    }

    fn descriptor_path(descriptor: &OwnedFd) -> String {
        format!("/proc/self/fd/{}", descriptor.as_raw_fd())
    }

    /// The flags of the mount that contains the workspace, which the overlay must not widen.
    fn inherited_flags(workspace: &OwnedFd) -> MountFlags {
        let mut flags = MountFlags::empty();
        let Ok(vfs) = rustix::fs::fstatvfs(workspace) else { return flags };
        let pairs = [
            (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
            (StatVfsMountFlags::NODEV, MountFlags::NODEV),
            (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        ];
        for (present, flag) in pairs {
            flags.set(flag, vfs.f_flag.contains(present));
        }
        flags
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_below_a_directory_are_found_by_their_unescaped_path() {
        let text = b"22 1 8:1 / / rw - ext4 /dev/vda rw\n\
            23 22 0:5 / /w\\040x rw - tmpfs t rw\n\
            24 23 0:6 / /w\\040x/a\\134b rw - tmpfs t rw\n\
            25 22 0:7 / /w\\040xy rw - tmpfs t rw\n";
        let below = |directory: &str| mount_below(text, Path::new(directory));
        assert_eq!(below("/w x"), Some(PathBuf::from("/w x/a\\b")));
        assert_eq!(below("/w xy"), None);
        assert_eq!(below("/w"), None);
        assert_eq!(below("/"), Some(PathBuf::from("/w x")));
        let staged =
            b"23 22 0:5 / /w rw - overlay overlay rw\n24 23 8:1 / /w/.delta rw - ext4 d rw\n";
        assert!(["/w", "/w/a"].iter().all(|path| is_in_stage(staged, Path::new(path))));
        assert!(!is_in_stage(staged, Path::new("/")) && !is_in_stage(text, Path::new("/w x")));
    }
}
