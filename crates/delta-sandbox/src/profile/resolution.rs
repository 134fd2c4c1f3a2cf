//! From what is written to what is enforced: paths become absolute and resolved, variables their values. Looks at the
//! machine and changes nothing.

use crate::profile::declaration::{DeclaredProfile, GIT_ENTRY, ReadKey};
use crate::profile::env_filter::EnvFilter;
use crate::profile::git_directory::{GitDirectory, find_git_directory, is_git_directory};
use crate::profile::git_links::symlinks_in_path;
use crate::profile::{HomeAccess, ReadAccess, SandboxProfile};
use delta_base::engine_variables::{EngineVars, is_identifier};
use rustix::fs::{Access, access};
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// What is hidden by default, below the home directory: keys, tokens, cookies, passwords, and histories of commands.
/// docs/guide/sandbox.md lists them.
const HIDDEN_IN_HOME: [&str; 78] = [
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".oci",
    ".netrc",
    ".git-credentials",
    ".npmrc",
    ".yarnrc.yml",
    ".pypirc",
    ".vault-token",
    ".pgpass",
    ".my.cnf",
    ".s3cfg",
    ".boto",
    ".fly",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".composer/auth.json",
    ".m2/settings.xml",
    ".m2/settings-security.xml",
    ".terraform.d",
    ".terraformrc",
    ".config/gh",
    ".config/glab-cli",
    ".config/hub",
    ".config/gcloud",
    ".config/op",
    ".config/sops",
    ".config/rclone",
    ".config/containers/auth.json",
    ".config/github-copilot",
    ".config/google-chrome",
    ".config/chromium",
    ".config/BraveSoftware",
    ".config/microsoft-edge",
    ".config/keepassxc",
    ".config/Bitwarden",
    ".mozilla",
    ".thunderbird",
    "snap/firefox",
    ".password-store",
    ".local/share/keyrings",
    ".local/share/opencode/auth.json",
    ".cache/huggingface/token",
    ".huggingface",
    ".claude/.credentials.json",
    ".claude.json",
    ".codex/auth.json",
    ".gemini/oauth_creds.json",
    ".bash_history",
    ".zsh_history",
    ".python_history",
    ".psql_history",
    ".mysql_history",
    ".config/git/credentials",
    ".config/age",
    ".config/argocd",
    ".config/doctl",
    ".config/hcloud",
    ".config/heroku",
    ".config/kaggle",
    ".config/netlify",
    ".config/pypoetry/auth.toml",
    ".config/stripe",
    ".databrickscfg",
    ".kaggle",
    ".local/share/fish/fish_history",
    ".local/share/uv/credentials",
    ".node_repl_history",
    ".pulumi/credentials.json",
    ".rediscli_history",
    ".snowflake",
    ".sqlite_history",
    ".local/state/delta",
];

/// What is hidden by default of the system, if this user can read it.
const HIDDEN_IN_SYSTEM: [&str; 11] = [
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/krb5.keytab",
    "/etc/kubernetes",
    "/etc/letsencrypt",
    "/etc/ssl/private",
    "/run/secrets",
    "/var/lib/kubelet",
    "/var/run/secrets",
];
/// Where the keys of an SSH server are, and how their names begin and end.
const SSH_SERVER_KEYS: (&str, &str, &str) = ("/etc/ssh", "ssh_host_", "_key");

/// The files that define an agent, where its directory is the workspace itself.
const AGENT_FILES: [&str; 7] = [
    "agent.yaml",
    "context.yaml",
    "hooks.yaml",
    "system_prompt.md",
    "system_prompt.txt",
    "hooks",
    "tools",
];

/// The places that the texts of a profile refer to.
#[derive(Clone, Copy)]
pub struct SandboxPlaces<'a> {
    /// The values of `${CWD}`, `${AGENT_HOME}` and `${RUN_DIR}`; the workspace exists, without symlinks.
    pub vars: &'a EngineVars,
    /// The home directory of the operator, which `~` is.
    pub home: Option<&'a Path>,
    /// All home directories of the operator, whose secrets are hidden.
    pub homes: &'a [PathBuf],
    /// The operator's files with keys, which are hidden.
    pub key_files: &'a [PathBuf],
    /// What git follows because its configuration names it.
    pub git_follows: &'a [PathBuf],
    /// The value of a variable of the process.
    pub variable: &'a dyn Fn(&str) -> Option<OsString>,
}

/// What is enforced for a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedSandbox {
    /// What the kernel enforces.
    pub profile: SandboxProfile,
    /// Which variables are inherited.
    pub env: EnvFilter,
    /// What git would follow if it appeared in what can be written: no mount prevents that.
    pub forbidden: Vec<PathBuf>,
    /// The work trees that can be written, none of which git takes for a git directory.
    pub work_trees: Vec<PathBuf>,
    /// What would be hidden, and does not exist.
    pub unhidden: Vec<PathBuf>,
}

impl ResolvedSandbox {
    /// What git follows and was not there before.
    pub fn appeared_paths(&self) -> Vec<PathBuf> {
        let paths = self.forbidden.iter().filter(|path| path.symlink_metadata().is_ok()).cloned();
        let trees = self.work_trees.iter().filter(|tree| is_git_directory(tree));
        // Without this file, it is none any more.
        sorted(paths.chain(trees.map(|tree| tree.join("HEAD"))).collect())
    }

    /// Whether both mean the same, except for what exists of the paths that are kept or hidden: that changes with the work of
    /// the tools and of other programs.
    pub fn leads_to_same_places(&self, other: &Self) -> bool {
        let without_content = |sandbox: &Self| Self {
            profile: SandboxProfile {
                keep: Vec::new(),
                hide: Vec::new(),
                ..sandbox.profile.clone()
            },
            env: sandbox.env.clone(),
            forbidden: Vec::new(),
            work_trees: Vec::new(),
            unhidden: Vec::new(),
        };
        without_content(self) == without_content(other)
    }
}

/// A text of a profile that means nothing on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolutionProblem {
    /// What is wrong, as a fragment.
    pub message: String,
    /// What to write instead.
    pub help: String,
}

/// Resolves a profile.
///
/// # Errors
/// Every text that cannot be resolved.
pub fn resolve_profile(
    declared: &DeclaredProfile,
    places: &SandboxPlaces<'_>,
) -> Result<ResolvedSandbox, Vec<ResolutionProblem>> {
    let mut resolver = ProfileResolver { places, problems: Vec::new() };
    let git = find_git_directory(&places.vars.cwd).unwrap_or_default();
    let git = git.following(places.git_follows);
    let mut write = Vec::new();
    for text in &declared.write {
        if text.trim_end_matches('?') == GIT_ENTRY {
            write.extend(git.roots.iter().cloned());
        } else if let Some(path) = resolver.existing_path(text, "write") {
            resolver.check_journal(text, &path);
            write.push(path);
        }
    }
    // One that `write` names by its path is a git directory, too.
    let named = write.iter().filter(|path| !git.roots.contains(path) && is_git_directory(path));
    let named = GitDirectory::new(named.cloned().collect());
    let git = git.with(named);
    let read = match &declared.read {
        ReadKey::All => ReadAccess::All,
        ReadKey::Only(texts) => {
            let mut paths = write.clone();
            paths.extend(texts.iter().filter_map(|text| resolver.existing_path(text, "read")));
            ReadAccess::Only(sorted(paths))
        }
    };
    let mut sockets = Vec::new();
    let mut passed = Vec::new();
    for text in &declared.sockets {
        if let Some((path, variable)) = resolver.socket(text) {
            sockets.push(path);
            passed.extend(variable);
        }
    }
    let show: Vec<PathBuf> =
        declared.show.iter().filter_map(|text| resolver.existing_path(text, "show")).collect();
    let (mut hide, unhidden) = resolver.hidden_paths(&declared.hide);
    for path in &show {
        hide = hide.iter().flat_map(|hidden| uncover(hidden, path)).collect();
    }
    let hide = sorted(hide);
    resolver.check_hidden(declared, &hide);
    let keep = resolver.kept_paths(&write, &git.keep);
    if !resolver.problems.is_empty() {
        return Err(resolver.problems);
    }
    let home = if places.home.is_some() { declared.home } else { HomeAccess::Read };
    let profile = SandboxProfile {
        write,
        keep,
        read,
        hide,
        home,
        net: declared.net.clone(),
        env: declared.env.clone(),
        sockets: sorted(sockets),
        limits: declared.limits,
        runs: declared.runs,
    };
    let env = EnvFilter::new(&declared.env, passed);
    let profile = profile.normalized();
    let missing = git.missing().map(|path| clean_path(&path));
    let missing =
        missing.filter(|path| profile.allows_write(path) && !profile.write.contains(path));
    let forbidden = sorted(missing.collect());
    let mut work_trees = git.work_trees(&places.vars.cwd);
    work_trees.retain(|tree| profile.allows_write(&tree.join("HEAD")));
    Ok(ResolvedSandbox { profile, env, forbidden, work_trees, unhidden: sorted(unhidden) })
}

/// The absolute path of a text of a profile, which need not exist; `None` if it begins in a home directory that is unknown.
pub(crate) fn absolute_profile_path(
    text: &str,
    vars: &EngineVars,
    home: Option<&Path>,
) -> Option<PathBuf> {
    let text = text.strip_suffix('?').unwrap_or(text);
    let text = vars.expand_text(text);
    let path = match text.strip_prefix('~') {
        Some(rest) => home?.join(rest.trim_start_matches('/')),
        None => vars.cwd.join(&text),
    };
    Some(clean_path(&path))
}

struct ProfileResolver<'a> {
    places: &'a SandboxPlaces<'a>,
    problems: Vec<ResolutionProblem>,
}

impl ProfileResolver<'_> {
    fn report(&mut self, message: String, help: String) {
        self.problems.push(ResolutionProblem { message, help });
    }

    /// The absolute path of a text, which need not exist.
    fn absolute_path(&mut self, text: &str, key: &str) -> Option<PathBuf> {
        let path = absolute_profile_path(text, self.places.vars, self.places.home);
        if path.is_none() && !text.ends_with('?') {
            let message = format!("`{text}` in `{key}`: this user has no home directory");
            let help = "set HOME to an absolute path, or write the absolute path here";
            self.report(message, help.to_owned());
        }
        path
    }

    /// The path of a text without symlinks, if it exists; below the workspace a symlink is a problem, for a tool can make
    /// one.
    fn existing_path(&mut self, text: &str, key: &str) -> Option<PathBuf> {
        let path = self.absolute_path(text, key)?;
        let resolved = match path.canonicalize() {
            Ok(resolved) => resolved,
            Err(_) if text.ends_with('?') => return None,
            Err(error) => {
                let message =
                    format!("could not open {} (`{text}` in `{key}`): {error}", path.display());
                let help = format!("create it, or write `{text}?` if it may be missing");
                self.report(message, help);
                return None;
            }
        };
        if path.starts_with(&self.places.vars.cwd) && resolved != path {
            let message = format!("`{text}` in `{key}` leads through a symlink in the workspace");
            let help = format!("write `{}` if that is meant", resolved.display());
            self.report(message, help);
            return None;
        }
        Some(resolved)
    }

    fn optional_path(&self, text: &str) -> Option<PathBuf> {
        let path = absolute_profile_path(text, self.places.vars, self.places.home)?;
        path.canonicalize().ok()
    }

    /// No profile lets a tool write the journal.
    fn check_journal(&mut self, text: &str, path: &Path) {
        let vars = self.places.vars;
        let outside = outside_runs(vars).map(|[control, _]| control);
        if path.starts_with(vars.cwd.join(".delta"))
            || outside.is_some_and(|control| path.starts_with(control))
        {
            let message = format!("`{text}` in `write` is below `.delta`, which no tool changes");
            let help = "write below the workspace; a tool that starts runs needs `runs: true`";
            self.report(message, help.to_owned());
        }
    }

    /// The path of a socket, and the variable that names it.
    fn socket(&mut self, text: &str) -> Option<(PathBuf, Option<String>)> {
        let name = text.strip_suffix('?').unwrap_or(text);
        if !is_identifier(name) {
            return Some((self.existing_path(text, "sockets")?, None));
        }
        let Some(value) = (self.places.variable)(name) else {
            if !text.ends_with('?') {
                let message = format!("`{name}` in `sockets`: the variable is not set");
                let help = format!("set it, or write `{name}?` if it may be missing");
                self.report(message, help);
            }
            return None;
        };
        let value = value.to_string_lossy().into_owned();
        let path = ["unix:path=", "unix://", "unix:"]
            .iter()
            .find_map(|prefix| value.strip_prefix(prefix))
            .unwrap_or(&value);
        let path = Path::new(path.split([',', ';']).next().unwrap_or_default());
        match path.canonicalize() {
            Ok(path) => Some((path, Some(name.to_owned()))),
            Err(_) if text.ends_with('?') => None,
            Err(error) => {
                let message =
                    format!("`{name}` in `sockets`: could not open {}: {error}", path.display());
                let help = format!("set {name} to the path of a socket, or write `{name}?`");
                self.report(message, help);
                None
            }
        }
    }

    /// What is hidden, and what would be and does not exist.
    fn hidden_paths(&mut self, declared: &[String]) -> (Vec<PathBuf>, Vec<PathBuf>) {
        // What is hidden in the system depends on what this user may read.
        let mut existing = secrets_of_system();
        let mut missing = Vec::new();
        for path in self.hidden_candidates(declared) {
            match path.canonicalize() {
                Ok(path) => existing.push(path),
                Err(_) => missing.push(path),
            }
        }
        (existing, missing)
    }

    /// What the profile hides, and what is hidden although no profile names it, whether it exists or not.
    fn hidden_candidates(&mut self, declared: &[String]) -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> =
            declared.iter().filter_map(|text| self.absolute_path(text, "hide")).collect();
        let homes = self.places.homes.iter();
        paths.extend(homes.flat_map(|home| HIDDEN_IN_HOME.iter().map(|name| home.join(name))));
        paths.extend(self.places.key_files.iter().cloned());
        paths
    }

    /// A path that is both hidden and named is a mistake: hidden wins.
    fn check_hidden(&mut self, declared: &DeclaredProfile, hide: &[PathBuf]) {
        let read = match &declared.read {
            ReadKey::All => &[][..],
            ReadKey::Only(paths) => paths,
        };
        for (key, text) in declared
            .write
            .iter()
            .map(|text| ("write", text))
            .chain(read.iter().map(|text| ("read", text)))
        {
            let Some(path) = self.optional_path(text).filter(|_| text != GIT_ENTRY) else {
                continue;
            };
            if let Some(hidden) = hide.iter().find(|hidden| path.starts_with(hidden)) {
                let message = format!("`{text}` in `{key}` is hidden, as {} is", hidden.display());
                self.report(message, format!("add `show: [\"{text}\"]` if the tool may read it"));
            }
        }
    }

    /// What stays read-only below the paths of `write`, as far as it exists, unless `write` names it.
    fn kept_paths(&self, write: &[PathBuf], of_git: &[PathBuf]) -> Vec<PathBuf> {
        let vars = self.places.vars;
        let mut candidates: Vec<PathBuf> = of_git.to_vec();
        for root in write.iter().chain([&vars.cwd]) {
            let names = [".delta", ".env", ".git/config", ".git/hooks"];
            candidates.extend(names.iter().map(|name| root.join(name)));
        }
        let agent_home = &vars.agent_home;
        if !agent_home.as_os_str().is_empty() {
            if write.iter().any(|root| root.starts_with(agent_home)) {
                candidates.extend(AGENT_FILES.iter().map(|name| agent_home.join(name)));
            }
            candidates.extend([agent_home.clone(), agent_home.join(".env")]);
        }
        // The `.git` of a linked worktree or a submodule, which says where its git directory is.
        let git_files = write.iter().chain([&vars.cwd]).map(|root| root.join(".git"));
        candidates.extend(git_files.filter(|path| path.is_file()));
        candidates.extend(outside_runs(vars).into_iter().flatten());
        // `.git` can be a symlink to a directory of another name, which a mount cannot be attached to.
        // A symlink that leads to it could be replaced.
        let links = candidates.iter().flat_map(|path| symlinks_in_path(path));
        let existing = candidates.iter().filter_map(|path| path.canonicalize().ok()).chain(links);
        let protected = existing.filter(|path| {
            let is_below = write.iter().any(|root| path.starts_with(root) && path != root);
            is_below && !write.contains(path)
        });
        sorted(protected.collect())
    }
}

/// With a directory for the runs of all workspaces: the `.delta` of this workspace there, and that directory. It can be in
/// the workspace too, or in a path of `write`.
fn outside_runs(vars: &EngineVars) -> Option<[PathBuf; 2]> {
    let control = vars.run_dir.parent().filter(|control| control.ends_with(".delta"))?;
    let directory = control.parent().filter(|directory| *directory != vars.cwd)?;
    Some([control.to_owned(), directory.parent()?.to_owned()])
}

/// The secrets of the system that this user can read: root's tools can, and in a container often all tools.
fn secrets_of_system() -> Vec<PathBuf> {
    let (directory, start, end) = SSH_SERVER_KEYS;
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let keys = entries.map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(start) && name.ends_with(end)
    });
    let paths = HIDDEN_IN_SYSTEM.into_iter().map(PathBuf::from).chain(keys);
    let readable = paths.filter(|path| access(path, Access::READ_OK).is_ok());
    readable.filter_map(|path| path.canonicalize().ok()).collect()
}

/// `path` without `.` and `..`.
fn clean_path(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                clean.pop();
            }
            other => clean.push(other),
        }
    }
    clean
}

/// What of `hidden` stays hidden when `show` can be read: its siblings on the way.
fn uncover(hidden: &Path, show: &Path) -> Vec<PathBuf> {
    if hidden.starts_with(show) {
        return Vec::new();
    }
    if !show.starts_with(hidden) {
        return vec![hidden.to_owned()];
    }
    let Ok(entries) = std::fs::read_dir(hidden) else { return vec![hidden.to_owned()] };
    entries.flatten().flat_map(|entry| uncover(&entry.path(), show)).collect()
}

/// The paths in order, each once.
pub(crate) fn sorted(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
    paths.sort();
    paths.dedup();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_22_4_a_path_in_an_unknown_home_directory_is_refused() {
        let work = tempfile::tempdir().unwrap();
        let cwd = work.path().canonicalize().unwrap();
        let vars = EngineVars { agent_home: cwd.clone(), cwd, run_dir: PathBuf::new() };
        let places = SandboxPlaces {
            vars: &vars,
            home: None,
            homes: &[],
            key_files: &[],
            git_follows: &[],
            variable: &|_| None,
        };
        let resolve = |entry: &str| {
            let hide = vec![entry.to_owned()];
            resolve_profile(&DeclaredProfile { hide, ..DeclaredProfile::workspace() }, &places)
        };
        let problems = resolve("~/.keys").unwrap_err();
        assert_eq!(problems[0].message, "`~/.keys` in `hide`: this user has no home directory");
        assert_eq!(problems.len(), 1);
        assert!(resolve("~/.keys?").is_ok());
        assert!(resolve("keys").is_ok());
    }

    #[test]
    fn c_22_4_what_is_hidden_by_default_is_documented() {
        let guide = include_str!("../../../../docs/guide/sandbox.md");
        let list = guide.lines().find(|line| line.starts_with("Below HOME: ")).unwrap();
        for path in HIDDEN_IN_HOME {
            assert!(list.contains(&format!("`{path}`")), "{path}");
        }
        assert_eq!(list.matches('`').count(), 2 * HIDDEN_IN_HOME.len());
        let list = guide.lines().find(|line| line.starts_with("In the system: ")).unwrap();
        for path in HIDDEN_IN_SYSTEM {
            assert!(list.contains(&format!("`{path}`")), "{path}");
        }
    }
}
