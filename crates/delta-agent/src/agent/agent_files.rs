//! The files of an agent that comes from elsewhere: from a directory, an archive or a repository. Where they come from makes no
//! difference: the same files are refused, the same ones are left out, and the hash is the same.

use super::MAIN_FILE;
use super::agent_tree::{LIMITS, is_skipped};
use delta_base::durable::{self, FileError};
use delta_base::terminal_text::escape_to_line;
use delta_base::text::hidden_text::has_hidden_character;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// An archive may have as many times more as an agent, such as its tests.
const ARCHIVE_FACTOR: u64 = 4;
/// As the kernel: the most links that lead to one file.
const MAX_LINKS: usize = 40;

/// A file of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentFile {
    /// A regular file.
    Regular {
        /// What it contains.
        content: Vec<u8>,
        /// Whether its owner may execute it.
        is_executable: bool,
    },
    /// A symlink, with its target.
    Link(String),
}

/// The files of an agent by their paths, or at first all files of an archive.
#[derive(Debug, Default)]
pub struct AgentFiles {
    files: BTreeMap<String, AgentFile>,
    bytes: u64,
}

impl AgentFiles {
    /// Reads the files of the agent directory `dir`.
    ///
    /// # Errors
    /// A file cannot be read, or no agent has such a file; the message names it.
    pub fn read(dir: &Path) -> Result<Self, String> {
        let mut files = Self::default();
        files.read_directory(dir, "")?;
        files.into_agent("")
    }

    fn read_directory(&mut self, dir: &Path, path: &str) -> Result<(), String> {
        let failed = |error| FileError::at("read", dir)(error).to_string();
        let entries = durable::read_dir_no_follow(dir).map_err(failed)?;
        let names: Vec<Vec<u8>> =
            entries.iter().map(|entry| entry.name.as_bytes().to_vec()).collect();
        for entry in entries {
            let name = entry.name.as_bytes();
            if is_skipped(name, &names) {
                continue;
            }
            let source = dir.join(&entry.name);
            let path = join_path(path, check_path(name)?);
            let failed = |error| FileError::at("read", &source)(error).to_string();
            if entry.is_dir() {
                self.read_directory(&source, &path)?;
            } else if entry.is_symlink() {
                let target = std::fs::read_link(&source).map_err(failed)?;
                self.insert(
                    &path,
                    AgentFile::Link(check_target(&path, target.as_os_str().as_bytes())?),
                )?;
            } else if entry.is_file() {
                let file = durable::open_no_follow(&source).map_err(failed)?;
                let mode = file.metadata().map_err(failed)?.permissions().mode();
                let mut content = Vec::new();
                file.take(LIMITS.bytes + 1).read_to_end(&mut content).map_err(failed)?;
                let is_executable = mode & 0o100 != 0;
                self.insert(&path, AgentFile::Regular { content, is_executable })?;
            } else {
                return Err(refusal(&path, "is neither a file, a directory nor a link"));
            }
        }
        Ok(())
    }

    /// Checks that a file with so many bytes fits, before it is read.
    ///
    /// # Errors
    /// It does not.
    pub fn check_room(&self, bytes: u64) -> Result<(), String> {
        let is_full = self.files.len() as u64 >= ARCHIVE_FACTOR * LIMITS.entries as u64;
        if is_full || bytes > (ARCHIVE_FACTOR * LIMITS.bytes).saturating_sub(self.bytes) {
            return Err(too_large());
        }
        Ok(())
    }

    /// The file at a path.
    pub fn get(&self, path: &str) -> Option<&AgentFile> {
        self.files.get(path)
    }

    /// Adds a file, whose path [`check_path`] has.
    ///
    /// # Errors
    /// There are too many, or two of the same name.
    pub fn insert(&mut self, path: &str, file: AgentFile) -> Result<(), String> {
        let bytes = match &file {
            AgentFile::Regular { content, .. } => content.len() as u64,
            AgentFile::Link(target) => target.len() as u64,
        };
        self.check_room(bytes)?;
        self.bytes += bytes;
        match self.files.insert(path.to_owned(), file) {
            None => Ok(()),
            Some(_) => Err(refusal(path, "is there twice")),
        }
    }

    /// The directories with an agent, in an archive of several.
    pub fn agent_dirs(&self) -> BTreeSet<&str> {
        let files = self.files.keys().filter_map(|path| path.strip_suffix(MAIN_FILE));
        files.map(|dir| dir.trim_end_matches('/')).collect()
    }

    /// The first component of all paths, if it is the same.
    pub fn common_top(&self) -> Option<&str> {
        let mut tops = self.files.keys().map(|path| path.split_once('/').map(|(top, _)| top));
        let first = tops.next()??;
        tops.all(|top| top == Some(first)).then_some(first)
    }

    /// The files of the agent in the directory `root` of these files, which is empty for all, without what belongs to no agent.
    ///
    /// # Errors
    /// They are not the files of an agent; the message says which one is not.
    pub fn into_agent(self, root: &str) -> Result<Self, String> {
        let prefix = if root.is_empty() { String::new() } else { format!("{root}/") };
        let mut agent = Self::default();
        for (path, file) in &self.files {
            if let Some(path) = path.strip_prefix(&prefix)
                && self.belongs_to_agent(&prefix, path)
            {
                agent.files.insert(path.to_owned(), file.clone());
            }
        }
        agent.check()?;
        Ok(agent)
    }

    /// Whether no directory on the way to the path in the agent at `prefix`, nor the path itself, is left out of agents.
    fn belongs_to_agent(&self, prefix: &str, path: &str) -> bool {
        path.match_indices('/').map(|(end, _)| end).chain([path.len()]).all(|end| {
            let parent = path[..end].rsplit_once('/').map_or("", |(parent, _)| parent);
            let main = join_path(&format!("{prefix}{parent}"), MAIN_FILE);
            let main = self.files.contains_key(&main).then(|| MAIN_FILE.as_bytes().to_vec());
            !is_skipped(&path.as_bytes()[..end], main.as_slice())
        })
    }

    fn check(&mut self) -> Result<(), String> {
        let mut paths = BTreeSet::new();
        for (path, file) in &self.files {
            for (end, _) in path.match_indices('/') {
                if self.files.contains_key(&path[..end]) {
                    return Err(refusal(&path[..end], "is a file and a directory"));
                }
                paths.insert(&path[..end]);
            }
            paths.insert(path);
            match file {
                AgentFile::Regular { content, .. } => self.bytes += content.len() as u64,
                AgentFile::Link(target) if self.leads_out(path, target) => {
                    return Err(refusal(path, "is a link that leads out of the agent"));
                }
                AgentFile::Link(_) => {}
            }
        }
        if paths.len() > LIMITS.entries || self.bytes > LIMITS.bytes {
            return Err(too_large());
        }
        Ok(())
    }

    /// Whether a link leads out of the directory, through other links too, as the kernel resolves it.
    fn leads_out(&self, path: &str, target: &str) -> bool {
        let mut dir: Vec<&str> = path.split('/').collect();
        dir.pop();
        let mut remaining: Vec<&str> = target.split('/').rev().collect();
        let mut links = 0;
        if target.starts_with('/') {
            return true;
        }
        while let Some(name) = remaining.pop() {
            match name {
                "" | "." => {}
                ".." if dir.pop().is_none() => return true,
                ".." => {}
                name => dir.push(name),
            }
            if let Some(AgentFile::Link(next)) = self.files.get(&dir.join("/")) {
                links += 1;
                if next.starts_with('/') || links > MAX_LINKS {
                    return true;
                }
                dir.pop();
                remaining.extend(next.split('/').rev());
            }
        }
        false
    }

    /// Writes the files into the directory `dir`, which is empty. Not synced.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, dir: &Path) -> Result<(), FileError> {
        for (path, file) in &self.files {
            let path = dir.join(path);
            path.parent().map_or(Ok(()), durable::ensure_private_dir)?;
            match file {
                AgentFile::Regular { content, is_executable } => {
                    durable::create_shared_unsynced(&path, content, *is_executable)?;
                }
                AgentFile::Link(target) => {
                    symlink(target, &path).map_err(FileError::at("write", &path))?;
                }
            }
        }
        Ok(())
    }
}

fn join_path(dir: &str, name: &str) -> String {
    if dir.is_empty() || dir.ends_with('/') {
        return format!("{dir}{name}");
    }
    format!("{dir}/{name}")
}

/// The path of a file, if it is one that a person can read and that stays in its directory.
///
/// # Errors
/// It is another one.
pub fn check_path(path: &[u8]) -> Result<&str, String> {
    let text = String::from_utf8_lossy(path);
    let is_plain = text.split('/').all(|part| !matches!(part, "" | "." | ".."));
    match std::str::from_utf8(path) {
        Ok(path) if is_plain && is_visible(path) => Ok(path),
        Ok(_) if is_plain => Err(refusal(&text, "has hidden characters in its name")),
        Ok(_) => Err(refusal(&text, "leads out of the agent")),
        Err(_) => Err(refusal(&text, "has a name that is not UTF-8")),
    }
}

/// The target of a link as text.
///
/// # Errors
/// It is not UTF-8, or has hidden characters.
pub fn check_target(path: &str, target: &[u8]) -> Result<String, String> {
    let text = String::from_utf8(target.to_vec()).ok().filter(|text| is_visible(text));
    text.ok_or_else(|| refusal(path, "is a link with hidden characters in its target"))
}

fn is_visible(text: &str) -> bool {
    !has_hidden_character(text) && !text.contains(['\n', '\t'])
}

fn refusal(path: &str, reason: &str) -> String {
    format!("`{}` {reason}", escape_to_line(path))
}

fn too_large() -> String {
    format!(
        "an agent has at most {} files and {} MiB",
        LIMITS.entries,
        LIMITS.bytes / (1024 * 1024)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regular(content: &str) -> AgentFile {
        AgentFile::Regular { content: content.as_bytes().to_vec(), is_executable: false }
    }

    fn agent_with(links: &[(&str, &str)]) -> Result<AgentFiles, String> {
        let mut files = AgentFiles::default();
        for path in ["agent.yaml", "x/y/file", "z/w/file"] {
            files.insert(path, regular(path)).unwrap();
        }
        for (path, target) in links {
            files.insert(path, AgentFile::Link((*target).to_owned())).unwrap();
        }
        files.into_agent("")
    }

    #[test]
    fn c_36_14_links_stay_inside_as_the_kernel_resolves_them() {
        for inside in [
            &[("a", "x/y/file")][..],
            &[("x/a", "../z/w")],
            &[("a", "x/.."), ("b", "a/./x")],
            &[("a", "missing/file")],
        ] {
            assert!(agent_with(inside).is_ok(), "{inside:?}");
        }
        for outside in [
            &[("a", "/etc/passwd")][..],
            &[("a", "..")],
            &[("x/a", "../../x")],
            &[("x/y/a", "../../z/w"), ("b", "x/y/a/../../..")],
            &[("a", "b"), ("b", "a")],
        ] {
            let error = agent_with(outside).unwrap_err();
            assert!(error.contains("leads out of the agent"), "{outside:?}: {error}");
        }
        let error = agent_with(&[("x/y", "../z")]).unwrap_err();
        assert!(error.contains("`x/y` is a file and a directory"), "{error}");
    }

    #[test]
    fn c_36_14_names_are_readable_and_stay_inside() {
        for name in ["../x", "/etc/x", "a//b", "./a", "", "a/.."] {
            assert!(check_path(name.as_bytes()).unwrap_err().contains("leads out"), "{name}");
        }
        for name in ["a\u{202e}b", "a\u{1b}[2J", "a\nb", "a\u{200b}", "a\tb"] {
            let error = check_path(name.as_bytes()).unwrap_err();
            assert!(error.contains("hidden") && !error.contains(name), "{error}");
        }
        assert!(check_path(b"\xff").is_err());
        assert_eq!(check_path("tools/größe".as_bytes()), Ok("tools/größe"));
    }

    #[test]
    fn c_36_15_what_belongs_to_no_agent_is_left_out() {
        let mut files = AgentFiles::default();
        for path in [
            "top/agent.yaml",
            "top/.env",
            "top/.git/HEAD",
            "top/tests/one.yaml",
            "top/sub/agent.yaml",
            "top/sub/workspaces/w/file",
            "top/skills/tests/file",
            "other",
        ] {
            files.insert(path, regular(path)).unwrap();
        }
        assert_eq!(files.common_top(), None);
        assert_eq!(files.agent_dirs().into_iter().collect::<Vec<_>>(), ["top", "top/sub"]);
        let agent = files.into_agent("top").unwrap();
        let paths: Vec<&String> = agent.files.keys().collect();
        assert_eq!(paths, ["agent.yaml", "skills/tests/file", "sub/agent.yaml"]);
    }
}
