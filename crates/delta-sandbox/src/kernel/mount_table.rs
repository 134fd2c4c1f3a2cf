//! The mounts that this process sees, as /proc/self/mountinfo lists them (proc_pid_mountinfo(5)).

use delta_base::text::byte_escape::unescape_bytes;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The type of an overlay.
const OVERLAY: &str = "overlay";

/// The type of the file system of `path`, an absolute path without symlinks: `ext4`, `nfs4` and the like.
pub fn file_system_type(path: &Path) -> Option<String> {
    MountTable::read().ok()?.type_at(path).map(str::to_owned)
}

/// A list of mounts, in the order in which they were made.
pub(crate) struct MountTable(Vec<MountEntry>);

struct MountEntry {
    point: PathBuf,
    /// The type of the file system, and its source.
    file_system: String,
    source: String,
}

impl MountTable {
    /// The mounts of this process.
    pub(crate) fn read() -> io::Result<Self> {
        Ok(Self::parse(&fs::read("/proc/self/mountinfo")?))
    }

    fn parse(text: &[u8]) -> Self {
        let entries = text.split(|byte| *byte == b'\n').filter_map(|line| {
            let mut fields = line.split(|byte| *byte == b' ');
            // The kernel writes spaces, tabs, line ends and backslashes as `\040` and the like.
            let point = unescape_bytes(fields.nth(4)?, b'\\', 3, 8);
            let point = PathBuf::from(OsString::from_vec(point));
            // A varying number of fields comes before the separator.
            let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
            let mut next = || rest.next().map(|field| String::from_utf8_lossy(field).into_owned());
            Some(MountEntry { point, file_system: next()?, source: next()? })
        });
        Self(entries.collect())
    }

    /// The type of the file system that is seen at `path`.
    fn type_at(&self, path: &Path) -> Option<&str> {
        let mounts = self.0.iter().filter(|entry| path.starts_with(&entry.point));
        // Of several at one point, the last one is seen.
        let nearest = mounts.max_by_key(|entry| entry.point.components().count());
        nearest.map(|entry| entry.file_system.as_str())
    }

    /// The first mount point below `directory`.
    pub(crate) fn find_below(&self, directory: &Path) -> Option<&Path> {
        let mut points = self.0.iter().map(|entry| entry.point.as_path());
        points.find(|point| *point != directory && point.starts_with(directory))
    }

    /// Whether `directory` is in the workspace of a staged run: an overlay in which the directory of the runs is a mount.
    pub(crate) fn is_in_stage(&self, directory: &Path) -> bool {
        let overlays = self.0.iter().filter(|entry| entry.file_system == OVERLAY);
        let controls: Vec<PathBuf> = overlays.map(|entry| entry.point.join(".delta")).collect();
        self.0.iter().any(|entry| {
            let root = entry.point.parent();
            root.is_some_and(|root| directory.starts_with(root)) && controls.contains(&entry.point)
        })
    }

    /// Whether what is seen at `path` is an overlay from `source`. The last mount at a path is the one that is seen.
    pub(crate) fn is_overlay_from(&self, path: &Path, source: &str) -> bool {
        let visible_mount = self.0.iter().rfind(|entry| entry.point == path);
        visible_mount.is_some_and(|entry| entry.file_system == OVERLAY && entry.source == source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_below_a_directory_are_found_by_their_unescaped_path() {
        let table = MountTable::parse(
            b"22 1 8:1 / / rw - ext4 /dev/vda rw\n\
            23 22 0:5 / /w\\040x rw shared:1 - tmpfs t rw\n\
            24 23 0:6 / /w\\040x/a\\134b rw shared:1 master:2 - tmpfs t rw\n\
            25 22 0:7 / /w\\040xy rw - tmpfs t rw\n",
        );
        let below = |directory: &str| table.find_below(Path::new(directory));
        assert_eq!(below("/w x"), Some(Path::new("/w x/a\\b")));
        assert_eq!(below("/w xy"), None);
        assert_eq!(below("/w"), None);
        assert_eq!(below("/"), Some(Path::new("/w x")));
        assert!(!table.is_in_stage(Path::new("/w x")));
    }

    #[test]
    fn overlays_of_stages_and_of_copies_are_told_apart() {
        let table = MountTable::parse(
            b"22 1 8:1 / / rw - ext4 /dev/vda rw\n\
            23 22 0:5 / /w rw shared:1 - overlay overlay rw\n\
            24 23 8:1 / /w/.delta rw - ext4 d rw\n\
            25 22 0:6 / /h rw - tmpfs t rw\n\
            26 25 0:7 / /h rw - overlay copy rw\n",
        );
        assert!(["/w", "/w/a"].iter().all(|path| table.is_in_stage(Path::new(path))));
        assert!(["/", "/h"].iter().all(|path| !table.is_in_stage(Path::new(path))));
        assert!(table.is_overlay_from(Path::new("/h"), "copy"));
        for path in ["/w", "/", "/h/sub"] {
            assert!(!table.is_overlay_from(Path::new(path), "copy"), "{path}");
        }
    }
}
