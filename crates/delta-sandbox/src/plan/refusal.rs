//! Why the system refuses namespaces to this user, and what to do about it.

use std::fs;
use std::path::Path;

/// Why namespaces cannot be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceRefusal {
    /// The reason as a fragment: `user namespaces are refused (kernel.unprivileged_userns_clone is 0)`.
    pub reason: String,
    /// What to change, as a sentence without a full stop.
    pub remedy: String,
}

/// Why the system has refused a step, as its settings show.
pub(crate) fn explain_refusal(step: &str, error: &str) -> NamespaceRefusal {
    let is = |path: &str, value: &str| {
        let setting = fs::read_to_string(Path::new("/proc/sys").join(path));
        setting.is_ok_and(|setting| setting.trim() == value)
    };
    let (reason, remedy) = if is("kernel/apparmor_restrict_unprivileged_userns", "1") {
        (
            "kernel.apparmor_restrict_unprivileged_userns is 1".to_owned(),
            "install an AppArmor profile that allows `userns` to delta, or set this value to 0",
        )
    } else if is("kernel/unprivileged_userns_clone", "0") {
        (
            "kernel.unprivileged_userns_clone is 0".to_owned(),
            "run `sysctl kernel.unprivileged_userns_clone=1` as root",
        )
    } else if is("user/max_user_namespaces", "0") {
        (
            "user.max_user_namespaces is 0".to_owned(),
            "run `sysctl user.max_user_namespaces=10000` as root",
        )
    } else if is("user/max_mnt_namespaces", "0") {
        (
            "user.max_mnt_namespaces is 0".to_owned(),
            "run `sysctl user.max_mnt_namespaces=10000` as root",
        )
    } else if is_filtered() {
        (
            format!("a seccomp filter, {step}: {error}"),
            "in a container, allow `unshare`, `setns` and `mount` (docker: `--security-opt seccomp=FILE --security-opt \
             apparmor=unconfined`)",
        )
    } else {
        (format!("{step}: {error}"), "ask the administrator of this machine for user namespaces")
    };
    NamespaceRefusal {
        reason: format!("user namespaces are refused ({reason})"),
        remedy: remedy.to_owned(),
    }
}

/// Whether a seccomp filter confines this process, as in a container.
fn is_filtered() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2"))
}
