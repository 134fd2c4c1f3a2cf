//! What the configuration of git leads to: git itself is asked, because a file of the user or of the repository can include
//! others and name hooks, attributes and programs anywhere.

use crate::child_environment::EnvMap;
use delta_base::redact::Secrets;
use delta_base::signal::CancelToken;
use delta_process::{self as process, LaunchContext, ProcessCommand, ProcessEnd};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// git reads files only, and no network.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The files and directories that git reads or runs when it is used in `workspace`, besides those in its git directory:
/// included files of configuration, the directory of hooks, files of attributes, and files that are named as a program, a
/// filter or a driver. Some may be missing. Empty where there is no git or no repository.
pub fn followed_paths(workspace: &Path, variables: &EnvMap) -> Vec<PathBuf> {
    let Some(tree) = workspace.ancestors().find(|dir| dir.join(".git").symlink_metadata().is_ok())
    else {
        return Vec::new();
    };
    let mut env = variables.clone();
    // It is asked about this repository, whichever one the caller works in.
    env.retain(|name, _| !name.to_string_lossy().starts_with("GIT_"));
    let launch = LaunchContext {
        cwd: tree.to_owned(),
        env: env.into(),
        secrets: Secrets::default(),
        containment: None,
        sandbox: None,
    };
    let argv = ["git", "config", "--list", "--show-origin", "-z"].map(str::to_owned);
    let command = ProcessCommand {
        program: None,
        argv: &argv,
        context: &launch,
        stdin: &[],
        timeout: TIMEOUT,
        spool: None,
        excerpt_bytes: 200,
        capture_whole: true,
        marks: &[],
    };
    let Ok(cancel) = CancelToken::manual() else { return Vec::new() };
    let finished = process::run_process(&command, &cancel);
    let listed = finished.stdout.whole.filter(|_| finished.end == ProcessEnd::Exited(0));
    let mut paths = named_paths(&String::from_utf8_lossy(&listed.unwrap_or_default()), tree);
    paths.sort();
    paths.dedup();
    paths
}

/// The paths in the list of a configuration, whose entries are `ORIGIN NUL KEY LF VALUE NUL`.
fn named_paths(listed: &str, tree: &Path) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    let mut parts = listed.split('\0');
    while let (Some(origin), Some(entry)) = (parts.next(), parts.next()) {
        let file = origin.strip_prefix("file:").map(|path| tree.join(path));
        paths.extend(file.clone());
        let (key, value) = entry.split_once('\n').unwrap_or((entry, ""));
        match key {
            "core.hookspath" => {
                let hooks = tree.join(value);
                // husky has its entry points in a directory below the one with the hooks.
                paths.extend(hooks.parent().filter(|_| hooks.ends_with("_")).map(Path::to_owned));
                paths.push(hooks);
            }
            "core.attributesfile" => paths.push(tree.join(value)),
            // A file that is missing is included once it exists.
            "include.path" => paths.extend(included_path(file.as_deref(), value)),
            key if key.starts_with("includeif.") => {
                paths.extend(included_path(file.as_deref(), value));
            }
            _ => paths.extend(named_files(value, tree)),
        }
    }
    paths.into_iter().filter(|path| path.starts_with(tree)).collect()
}

/// A path in `include.path` is relative to the file that has it.
fn included_path(file: Option<&Path>, value: &str) -> Option<PathBuf> {
    let path = file?.parent()?.join(value);
    let parent = path.parent()?.canonicalize().ok()?;
    Some(parent.join(path.file_name()?))
}

/// The files that are words of a value: which key starts its value as a program, only git knows.
fn named_files(value: &str, tree: &Path) -> Vec<PathBuf> {
    let words = value.split(|c: char| c.is_whitespace() || ";&|()<>'\"`$={}!".contains(c));
    let paths = words.filter(|word| !word.is_empty()).map(|word| tree.join(word));
    paths.filter_map(|path| path.canonicalize().ok()).filter(|path| path.is_file()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_38_3_what_a_configuration_names_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().canonicalize().unwrap();
        for path in [".git", "tools"] {
            std::fs::create_dir(tree.join(path)).unwrap();
        }
        for file in ["tools/clean", "README.md"] {
            std::fs::write(tree.join(file), "x").unwrap();
        }
        let listed = [
            ("file:.git/config", "core.hookspath\n.husky/_"),
            ("file:.git/config", "include.path\n../.gitconfig"),
            ("file:.git/config", "filter.x.clean\nsh 'tools/clean' %f"),
            ("file:.git/config", "alias.st\nstatus"),
            ("file:.git/config", "core.bare"),
            ("file:/etc/gitconfig", "core.attributesfile\n/etc/attributes"),
            ("command line:", "includeif.gitdir:x.path\nx"),
        ];
        let listed: String =
            listed.iter().map(|(origin, entry)| format!("{origin}\0{entry}\0")).collect();
        let mut paths = named_paths(&listed, &tree);
        paths.sort();
        paths.dedup();
        let names = [".git/config", ".gitconfig", ".husky", ".husky/_", "tools/clean"];
        assert_eq!(paths, names.map(|name| tree.join(name)));
    }
}
