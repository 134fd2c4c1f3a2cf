//! What the kernel offers, in small pieces: Landlock, seccomp, mounts, devices, sockets.

pub(crate) mod devices;
pub(crate) mod landlock;
pub(crate) mod mount_table;
pub(crate) mod mount_tree;
pub(crate) mod other_system;
pub(crate) mod seccomp;
pub(crate) mod unix_sockets;

#[cfg(not(target_os = "linux"))]
pub(crate) use other_system::{landlock, mount_tree, seccomp};
