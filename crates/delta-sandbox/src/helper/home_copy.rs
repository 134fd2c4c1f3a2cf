//! A home directory that can be changed, while the real one stays as it is.
#![cfg(target_os = "linux")]

use crate::kernel::mount_table::MountTable;
use crate::kernel::mount_tree::{MountTree, open_place};
use crate::plan::{HelperReply, HelperResult};
use crate::sandbox_error::plain_error;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The source of the overlay of a copy: what tells it from any other overlay.
const COPY_SOURCE: &str = "delta-home";

/// Larger files in a home directory are not copied: they are read-only there.
const MAX_COPIED_BYTES: u64 = 1024 * 1024;

/// The mounts of the copy, outer ones first. It is one overlay, or, where mounts below the directory forbid that, one for
/// each directory in it. The layers are in `scratch`.
pub(crate) fn copy_home(home: &Path, scratch: &Path) -> HelperResult<Vec<(PathBuf, MountTree)>> {
    if is_copy(home) {
        // Of a sandbox around this one: overlays on overlays have a limit, and nothing real is changed.
        let tree = MountTree::copy_path(home).map_err(|error| HelperReply::path(home, &error))?;
        return Ok(vec![(home.to_owned(), tree)]);
    }
    let layers = scratch.join(format!("home-{}", std::process::id()));
    let first = match create_layer(&layers).and_then(|()| overlay(home, &layers)) {
        Ok(tree) => return Ok(vec![(home.to_owned(), tree)]),
        Err(error) => error,
    };
    copy_entries(home, &layers).map_err(|second| HelperReply::Home {
        reason: format!(
            "an overlay of `{}` failed: {}, and of its directories: {}",
            home.display(),
            plain_error(&first),
            plain_error(&second)
        ),
    })
}

/// Whether a directory is an overlay that a sandbox has made.
fn is_copy(home: &Path) -> bool {
    MountTable::read().is_ok_and(|mounts| mounts.is_overlay_from(home, COPY_SOURCE))
}

fn create_layer(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// An overlay of `lower` with its changes in `layer`, or in memory, where the disk of `layer` cannot have them.
fn overlay(lower: &Path, layer: &Path) -> io::Result<MountTree> {
    overlay_in(lower, layer).or_else(|_| {
        let memory = layer.join("memory");
        create_layer(&memory)?;
        MountTree::create("tmpfs", &[("mode", "0700")], &[])?
            .attach(open_place(&memory)?.as_fd())?;
        overlay_in(lower, &memory)
    })
}

fn overlay_in(lower: &Path, layer: &Path) -> io::Result<MountTree> {
    let upper = layer.join("upper");
    let work = layer.join("work");
    create_layer(&upper)?;
    create_layer(&work)?;
    fs::set_permissions(&upper, fs::metadata(lower)?.permissions())?;
    let places = [open_place(lower)?, open_place(&upper)?, open_place(&work)?];
    // By number, because a name may have characters that the options of an overlay divide at.
    let [lower, upper, work] =
        places.each_ref().map(|target: &OwnedFd| format!("/proc/self/fd/{}", target.as_raw_fd()));
    let options = [
        ("source", COPY_SOURCE),
        ("lowerdir", lower.as_str()),
        ("upperdir", &upper),
        ("workdir", &work),
    ];
    // What is thrown away need not be durable: without `volatile`, unmounting writes the whole file system of the layers to the disk.
    MountTree::create("overlay", &options, &["userxattr", "volatile"])
}

fn copy_entries(home: &Path, layers: &Path) -> io::Result<Vec<(PathBuf, MountTree)>> {
    let root = layers.join("entries");
    create_layer(&root)?;
    fs::set_permissions(&root, fs::metadata(home)?.permissions())?;
    let mut trees = Vec::new();
    for (number, entry) in fs::read_dir(home)?.enumerate() {
        let entry = entry?;
        let path = entry.path();
        let copy = root.join(entry.file_name());
        let metadata = entry.metadata()?;
        if metadata.is_symlink() {
            symlink(fs::read_link(&path)?, &copy)?;
        } else if metadata.is_dir() {
            create_layer(&copy)?;
            let layer = layers.join(number.to_string());
            create_layer(&layer)?;
            let tree = overlay(&path, &layer).or_else(|_| read_only(&path))?;
            trees.push((path, tree));
        } else if metadata.is_file()
            && (metadata.len() > MAX_COPIED_BYTES || fs::copy(&path, &copy).is_err())
        {
            fs::File::create(&copy)?;
            trees.push((path.clone(), read_only(&path)?));
        }
    }
    trees.insert(0, (home.to_owned(), MountTree::copy_path(&root)?));
    Ok(trees)
}

fn read_only(path: &Path) -> io::Result<MountTree> {
    let tree = MountTree::copy_path(path)?;
    tree.set_read_only()?;
    Ok(tree)
}
