//! What two profiles both allow. Commutative, associative, and never wider than either.
//!
//! `write` and `keep` are one tree: the deepest path that contains a file says whether it can be written, and `keep` wins for
//! the same path.

use crate::profile::resolution::{ResolvedSandbox, sorted};
use crate::profile::{HostRule, NetAccess, ReadAccess, SandboxLimits, SandboxProfile};
use std::path::{Path, PathBuf};

impl ResolvedSandbox {
    /// What both allow.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self {
            profile: self.profile.intersection(&other.profile),
            env: self.env.intersection(&other.env),
            forbidden: sorted(self.forbidden.iter().chain(&other.forbidden).cloned().collect()),
            work_trees: sorted(self.work_trees.iter().chain(&other.work_trees).cloned().collect()),
            unhidden: sorted(self.unhidden.iter().chain(&other.unhidden).cloned().collect()),
        }
    }
}

impl SandboxProfile {
    /// Whether a file at `path` can be changed, the home directory aside.
    pub fn allows_write(&self, path: &Path) -> bool {
        let depth = |paths: &[PathBuf]| {
            let roots = paths.iter().filter(|root| path.starts_with(root));
            roots.map(|root| root.components().count()).max()
        };
        depth(&self.write) > depth(&self.keep)
    }

    /// Whether a file at `path` can be read.
    pub fn allows_read(&self, path: &Path) -> bool {
        let is_listed = match &self.read {
            ReadAccess::All => true,
            ReadAccess::Only(paths) => paths.iter().any(|root| path.starts_with(root)),
        };
        is_listed && !self.hide.iter().any(|hidden| path.starts_with(hidden))
    }

    /// What both profiles allow.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let paths = [&self.write, &self.keep, &other.write, &other.keep];
        let (write, keep) = tree_changes(paths.into_iter().flatten(), |path| {
            self.allows_write(path) && other.allows_write(path)
        });
        Self {
            write,
            keep,
            read: intersect_reads(&self.read, &other.read),
            hide: outermost(self.hide.iter().chain(&other.hide).cloned().collect()),
            home: self.home.min(other.home),
            net: intersect_nets(&self.net, &other.net),
            env: self.env.intersection(&other.env),
            sockets: {
                let common = self.sockets.iter().filter(|path| other.sockets.contains(path));
                sorted(common.cloned().collect())
            },
            limits: intersect_limits(&self.limits, &other.limits),
            runs: self.runs && other.runs,
        }
    }

    /// The same profile without what has no effect, in a fixed order.
    #[must_use]
    pub fn normalized(self) -> Self {
        let paths = self.write.iter().chain(&self.keep);
        let (write, keep) = tree_changes(paths, |path| self.allows_write(path));
        let read = match &self.read {
            ReadAccess::All => ReadAccess::All,
            ReadAccess::Only(paths) => ReadAccess::Only(outermost(paths.clone())),
        };
        let net = match &self.net {
            NetAccess::Hosts(rules) => hosts_of(rules.clone()),
            other => other.clone(),
        };
        let hide = outermost(self.hide.clone());
        Self { write, keep, read, net, hide, ..self }
    }
}

/// The paths where it changes what `allows` says, from the outside to the inside: the paths that can be written, and the paths
/// below them that cannot.
fn tree_changes<'a>(
    paths: impl Iterator<Item = &'a PathBuf>,
    allows: impl Fn(&Path) -> bool,
) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let mut write: Vec<PathBuf> = Vec::new();
    let mut keep: Vec<PathBuf> = Vec::new();
    // A path comes after the ones that contain it.
    for path in sorted(paths.cloned().collect()) {
        let depth = |roots: &[PathBuf]| {
            let roots = roots.iter().filter(|root| path.starts_with(root));
            roots.map(|root| root.components().count()).max()
        };
        let was_allowed = depth(&write) > depth(&keep);
        let is_allowed = allows(&path);
        if is_allowed && !was_allowed {
            write.push(path);
        } else if was_allowed && !is_allowed {
            keep.push(path);
        }
    }
    (write, keep)
}

/// The paths that no other one contains.
fn outermost(paths: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut outer: Vec<PathBuf> = Vec::new();
    for path in sorted(paths) {
        if !outer.iter().any(|root| path.starts_with(root)) {
            outer.push(path);
        }
    }
    outer
}

fn intersect_reads(one: &ReadAccess, other: &ReadAccess) -> ReadAccess {
    match (one, other) {
        (ReadAccess::All, access) | (access, ReadAccess::All) => access.clone(),
        (ReadAccess::Only(one), ReadAccess::Only(other)) => {
            let is_in =
                |path: &PathBuf, roots: &[PathBuf]| roots.iter().any(|root| path.starts_with(root));
            let mut paths: Vec<PathBuf> =
                one.iter().filter(|path| is_in(path, other)).cloned().collect();
            paths.extend(other.iter().filter(|path| is_in(path, one)).cloned());
            ReadAccess::Only(outermost(paths))
        }
    }
}

fn intersect_nets(one: &NetAccess, other: &NetAccess) -> NetAccess {
    match (one, other) {
        (NetAccess::None, _) | (_, NetAccess::None) => NetAccess::None,
        (NetAccess::All, access) | (access, NetAccess::All) => access.clone(),
        (NetAccess::Hosts(one), NetAccess::Hosts(other)) => {
            let covers =
                |rules: &[HostRule], rule: &HostRule| rules.iter().any(|wider| wider.covers(rule));
            let mut rules: Vec<HostRule> =
                one.iter().filter(|rule| covers(other, rule)).cloned().collect();
            rules.extend(other.iter().filter(|rule| covers(one, rule)).cloned());
            hosts_of(rules)
        }
    }
}

/// The rules that no other one covers.
fn hosts_of(mut rules: Vec<HostRule>) -> NetAccess {
    rules.sort();
    rules.dedup();
    let widest: Vec<HostRule> = rules
        .iter()
        .filter(|rule| !rules.iter().any(|wider| wider != *rule && wider.covers(rule)))
        .cloned()
        .collect();
    if widest.is_empty() { NetAccess::None } else { NetAccess::Hosts(widest) }
}

fn intersect_limits(one: &SandboxLimits, other: &SandboxLimits) -> SandboxLimits {
    let least = |one: Option<u64>, other: Option<u64>| match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    };
    SandboxLimits {
        memory: least(one.memory, other.memory),
        processes: least(one.processes, other.processes),
        cpu: least(one.cpu, other.cpu),
        file: least(one.file, other.file),
        open_files: least(one.open_files, other.open_files),
    }
}

#[cfg(test)]
mod tests;
