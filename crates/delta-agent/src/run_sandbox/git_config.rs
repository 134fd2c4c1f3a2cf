//! What the configuration of git leads to: git itself is asked, because a file of the user or of the repository can include
//! others and name hooks, attributes and programs anywhere.

use delta_base::signal::CancelToken;
use delta_process::{self as process, EnvVars, LaunchContext, ProcessCommand, ProcessEnd};
use delta_sandbox::{followed_in_work_trees, symlinks_in_path};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

/// git reads files only, and no network.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The files and directories that git reads or runs when it is used in `workspace`, besides those in its git directory:
/// included files of configuration, the directory of hooks, files of attributes, files that are named as a program, a filter
/// or a driver, and the same in submodules and other repositories in it. Some may be missing, or be symlinks. `home` is what
/// `~` means.
pub fn followed_paths(workspace: &Path, variables: &EnvVars, home: Option<&Path>) -> Vec<PathBuf> {
    let mut paths = followed_in_work_trees(workspace);
    let Some(tree) = workspace.ancestors().find(|dir| dir.join(".git").symlink_metadata().is_ok())
    else {
        return paths;
    };
    // It is asked about this repository, whichever one the caller works in, with the settings of the caller.
    let env = variables.iter().filter(|(name, _)| {
        let name = name.to_string_lossy();
        !name.starts_with("GIT_") || name.starts_with("GIT_CONFIG_")
    });
    let env: EnvVars = env.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let launch = LaunchContext::new(tree, env);
    // A directory of PATH can be in the workspace, where a tool may have put a program of this name.
    let program =
        process::find_program("git", &launch).ok().and_then(|git| git.canonicalize().ok());
    if workspace.parent().is_some() && program.is_some_and(|git| git.starts_with(workspace)) {
        return paths;
    }
    let mut followed = Followed { tree, home, paths: Vec::new(), included: Vec::new() };
    followed.add(&list_configuration(&launch, None));
    // The files of the user are listed only with entries, and are often links into a repository.
    let user = [".gitconfig", ".config/git/config", ".config/git/attributes"];
    for file in home.iter().flat_map(|home| user.map(|name| home.join(name))) {
        followed.add_path(&file);
    }
    // What a condition includes can include more, which git lists only while the condition holds.
    let mut read_count = 0;
    while let Some(file) = followed.included.get(read_count).cloned() {
        read_count += 1;
        followed.add(&list_configuration(&launch, Some(&file)));
    }
    paths.extend(followed.paths);
    paths.extend(followed.included);
    paths.sort();
    paths.dedup();
    paths
}

/// The configuration, or what `file` and the files that it includes have of it; empty if git cannot read it.
fn list_configuration(launch: &LaunchContext, file: Option<&Path>) -> Vec<u8> {
    // The repository may be another user's, who will use it.
    let list = ["git", "-c", "safe.directory=*", "config", "--list", "--show-origin", "-z"];
    let mut argv = list.map(str::to_owned).to_vec();
    let mut launch = launch.clone();
    if let Some(file) = file {
        argv.push("--includes".to_owned());
        // As `--file`, for a name of any bytes.
        launch.env.set("GIT_CONFIG", file);
    }
    let command =
        ProcessCommand { capture_whole: true, ..ProcessCommand::new(&argv, &launch, TIMEOUT, 200) };
    let Ok(cancel) = CancelToken::manual() else { return Vec::new() };
    let finished = process::run_process(&command, &cancel);
    let listed = finished.stdout.whole.filter(|_| finished.end == ProcessEnd::Exited(0));
    listed.unwrap_or_default()
}

/// What git follows in a work tree.
struct Followed<'a> {
    tree: &'a Path,
    home: Option<&'a Path>,
    paths: Vec<PathBuf>,
    /// The files that are included, each once.
    included: Vec<PathBuf>,
}

impl Followed<'_> {
    /// Adds the paths in the list of a configuration, whose entries are `ORIGIN NUL KEY LF VALUE NUL`.
    fn add(&mut self, listed: &[u8]) {
        let mut parts = listed.split(|byte| *byte == 0);
        while let (Some(origin), Some(entry)) = (parts.next(), parts.next()) {
            let path = origin.strip_prefix(b"file:");
            let file = path.map(|path| self.tree.join(OsStr::from_bytes(path)));
            if let Some(file) = &file {
                self.add_path(file);
            }
            let key_end = entry.iter().position(|byte| *byte == b'\n').unwrap_or(entry.len());
            let key = &entry[..key_end];
            let value = entry.get(key_end + 1..).unwrap_or_default();
            match key {
                _ if value.is_empty() => {}
                b"core.hookspath" => {
                    let hooks = self.tree.join(self.expand(value));
                    // husky has its entry points in a directory below the one with the hooks.
                    let outer = hooks.parent().filter(|_| hooks.ends_with("_"));
                    outer.into_iter().chain([&*hooks]).for_each(|path| self.add_path(path));
                }
                b"core.attributesfile" => self.add_path(&self.tree.join(self.expand(value))),
                _ if key == b"include.path" || key.starts_with(b"includeif.") => {
                    // Relative to the file that has it. One that is missing is included once it exists.
                    let directory = file.as_deref().and_then(Path::parent);
                    let Some(path) = directory.map(|dir| dir.join(self.expand(value))) else {
                        continue;
                    };
                    self.add_links(&path);
                    let path = self.in_tree(&path).filter(|path| !self.included.contains(path));
                    self.included.extend(path);
                }
                _ => self.add_named_files(value),
            }
        }
    }

    /// A value with the directory that `~` means.
    fn expand(&self, value: &[u8]) -> PathBuf {
        match (value.strip_prefix(b"~/"), self.home) {
            (Some(rest), Some(home)) => home.join(OsStr::from_bytes(rest)),
            _ => PathBuf::from(OsStr::from_bytes(value)),
        }
    }

    /// A path without symlinks, if it is in the work tree. Directories at its end may be missing.
    fn in_tree(&self, path: &Path) -> Option<PathBuf> {
        let real = path.ancestors().find_map(|existing| {
            let rest = path.strip_prefix(existing).ok()?;
            let is_plain = rest.components().all(|part| matches!(part, Component::Normal(_)));
            // `join` of nothing would add a slash.
            let real = existing.canonicalize().ok().filter(|_| is_plain)?;
            Some(if rest.as_os_str().is_empty() { real } else { real.join(rest) })
        })?;
        real.starts_with(self.tree).then_some(real)
    }

    /// Adds a path in the work tree, without symlinks, and the symlinks that lead to it.
    fn add_path(&mut self, path: &Path) {
        self.paths.extend(self.in_tree(path));
        self.add_links(path);
    }

    /// Adds the symlinks in the work tree through which a path leads.
    fn add_links(&mut self, path: &Path) {
        let links = symlinks_in_path(path).into_iter().filter(|link| link.starts_with(self.tree));
        self.paths.extend(links);
    }

    /// Adds the files that are words of a value: which key starts its value as a program, only git knows.
    fn add_named_files(&mut self, value: &[u8]) {
        let words =
            value.split(|byte| byte.is_ascii_whitespace() || b";&|()<>'\"`$={}!".contains(byte));
        for word in words.filter(|word| !word.is_empty()) {
            let path = self.tree.join(self.expand(word));
            if self.in_tree(&path).is_some_and(|path| path.is_file()) {
                self.add_path(&path);
            }
        }
    }
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
            ("file:.git/config", "core.attributesfile\n~/attributes"),
            ("file:.git/config", "includeif.onbranch:x.path\n../new/x"),
            ("command line:", "includeif.gitdir:x.path\nx"),
        ];
        let listed: String =
            listed.iter().map(|(origin, entry)| format!("{origin}\0{entry}\0")).collect();
        let home = tree.join("tools");
        let mut followed =
            Followed { tree: &tree, home: Some(&home), paths: Vec::new(), included: Vec::new() };
        followed.add(listed.as_bytes());
        followed.paths.sort();
        followed.paths.dedup();
        let names = [".git/config", ".husky", ".husky/_", "tools/attributes", "tools/clean"];
        assert_eq!(followed.paths, names.map(|name| tree.join(name)));
        assert_eq!(followed.included, [".gitconfig", "new/x"].map(|name| tree.join(name)));
    }
}
