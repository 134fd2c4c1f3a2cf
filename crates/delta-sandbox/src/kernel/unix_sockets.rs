//! The Unix sockets of processes outside of a sandbox.

use crate::profile::NetAccess;
use rustix::fs::{FileType, RawMode, fstat};
use std::collections::BTreeSet;
use std::fs;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;

/// Where lookups of users and groups are answered.
const USER_LOOKUP_SOCKETS: [&str; 3] = ["/run/systemd/userdb", "/var/lib/sss/pipes", "/run/sssd"];
/// The same, and a way to send data in names of hosts to name servers outside.
const HOST_LOOKUP_SOCKETS: [&str; 1] = ["/run/nscd"];

/// Where a sandbox with this network may look up names.
pub(crate) fn lookup_sockets(net: &NetAccess) -> Vec<&'static str> {
    let hosts = HOST_LOOKUP_SOCKETS.into_iter().filter(|_| *net == NetAccess::All);
    USER_LOOKUP_SOCKETS.into_iter().chain(hosts).collect()
}

/// The sockets that have a path, in the network namespace of this process.
pub(crate) fn bound_sockets() -> Vec<PathBuf> {
    let text = fs::read("/proc/net/unix").unwrap_or_default();
    let names = parse_sockets(&String::from_utf8_lossy(&text));
    let has_relative = names.iter().any(|name| name.is_relative());
    let directories = if has_relative { working_directories() } else { BTreeSet::new() };
    let mut parents = BTreeSet::new();
    for name in &names {
        if name.is_absolute() {
            parents.extend(name.parent().and_then(|parent| parent.canonicalize().ok()));
        } else {
            let paths = directories.iter().map(|directory| directory.join(name));
            let existing = paths.filter_map(|path| path.parent()?.canonicalize().ok());
            parents.extend(existing);
        }
    }
    // A socket may have been renamed after it was bound, so every socket next to a known one counts.
    let mut sockets = BTreeSet::new();
    for parent in parents {
        let entries = fs::read_dir(&parent).into_iter().flatten().flatten();
        let entries = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()));
        sockets.extend(entries.map(|entry| entry.path()));
    }
    // A socket in a directory that this user cannot list may still be reachable.
    sockets.extend(
        names.iter().filter(|name| name.is_absolute()).filter_map(|name| name.canonicalize().ok()),
    );
    sockets.into_iter().collect()
}

/// The working directories of the processes that this user may look at.
fn working_directories() -> BTreeSet<PathBuf> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|process| fs::read_link(process.path().join("cwd")).ok()).collect()
}

fn parse_sockets(text: &str) -> BTreeSet<PathBuf> {
    let paths = text.lines().skip(1).filter_map(|line| {
        // Seven columns, and a path that can contain blanks; names that begin with `@` are in no directory.
        let path = line.split_ascii_whitespace().nth(7)?;
        let start = line.find(&format!(" {path}"))? + 1;
        let path = &line[start..];
        (!path.starts_with('@')).then(|| PathBuf::from(path))
    });
    paths.collect()
}

pub(crate) fn is_socket(file: BorrowedFd<'_>) -> bool {
    fstat(file).is_ok_and(|status| {
        FileType::from_raw_mode(RawMode::from(status.st_mode)) == FileType::Socket
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_22_4_names_of_hosts_are_not_looked_up_outside_of_a_limited_network() {
        assert!(lookup_sockets(&NetAccess::All).contains(&"/run/nscd"));
        for net in [NetAccess::None, NetAccess::Hosts(Vec::new())] {
            assert!(!lookup_sockets(&net).iter().any(|path| path.contains("nscd")));
        }
    }

    #[test]
    fn c_22_4_the_table_of_sockets_is_read_with_blanks_and_without_abstract_names() {
        let text = "\
Num       RefCount Protocol Flags    Type St Inode Path
0000000018ef3de2: 00000003 00000000 00000000 0001 03  1658
0000000018ef3de3: 00000002 00000000 00010000 0001 01  1659 /run/a b.sock
0000000018ef3de4: 00000002 00000000 00010000 0001 01  1660 @/tmp/.X11-unix/X0
0000000018ef3de5: 00000002 00000000 00010000 0001 01  1661 relative
";
        let expected = ["/run/a b.sock", "relative"].map(PathBuf::from);
        assert_eq!(parse_sockets(text), BTreeSet::from(expected));
    }
}
