//! The devices of the machine, and which of them a sandbox has.

use rustix::fs::Access;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Where devices are.
pub(crate) const DEVICE_DIRECTORY: &str = "/dev";
/// The devices that every program may use. Root could open all others.
pub(crate) const COMMON_DEVICES: [&str; 6] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// The disks that this user could read or write past their file systems.
pub(crate) fn reachable_disks() -> Vec<PathBuf> {
    disks_in(Path::new(DEVICE_DIRECTORY))
}

fn disks_in(directory: &Path) -> Vec<PathBuf> {
    let mut disks = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && directory == Path::new(DEVICE_DIRECTORY) => {
                disks.extend(disks_in(&path));
            }
            Ok(kind) if kind.is_block_device() => {
                let access = [Access::READ_OK, Access::WRITE_OK];
                if access.into_iter().any(|access| rustix::fs::access(&path, access).is_ok()) {
                    disks.push(path);
                }
            }
            _ => {}
        }
    }
    disks
}
