//! Where an agent comes from: a directory, an archive or a repository, as `delta add` takes it.

use super::agent_archive::read_archive;
use super::agent_repository::fetch_commit;
use crate::prepare::download::download;
use delta_agent::agent::agent_files::{AgentFiles, check_path};
use delta_agent::agent::agents_lock::LockedAgent;
use delta_base::signal::CancelToken;
use delta_base::terminal_text::escape_to_line;
use delta_base::text::hidden_text::has_hidden_character;
use delta_base::url_secrets::mask_url;
use delta_http::{host_of, is_loopback_host};
use delta_operator::failure::CommandFailure;
use std::fs::File;
use std::path::Path;

/// The main file of an agent.
const MAIN_FILE: &str = "agent.yaml";
const EXPECTED: &str = "name a directory, a tar.gz file, or `URL[//DIR][@REF]` of a repository";
const PASSWORD: &str = "it has a password; use ssh, or write it in ~/.netrc";
/// The ends of the names of archives.
const ARCHIVE_SUFFIXES: [&str; 2] = [".tar.gz", ".tgz"];
/// The largest archive that is downloaded.
const MAX_ARCHIVE_BYTES: usize = 256 * 1024 * 1024;
/// How often an address of an archive may name another one.
const MAX_REDIRECTS: usize = 5;

/// Where an agent comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentLocation {
    kind: LocationKind,
    /// The path or the address.
    base: String,
    /// The directory of the agent in an archive or a repository.
    dir: Option<String>,
    /// The branch, tag or commit.
    pub reference: Option<String>,
    /// The commit that is fetched in place of the reference.
    commit: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LocationKind {
    Directory,
    File,
    Download,
    Repository,
}

impl AgentLocation {
    /// Parses SOURCE: `DIR`, `FILE` or `URL`, of an archive or a repository with `//DIR` and of a repository with `@REF`.
    ///
    /// # Errors
    /// It is none of these, or one that is not safe to use; the message says what is expected.
    pub fn parse(text: &str) -> Result<Self, CommandFailure> {
        let location = match find_url_path(text) {
            _ if Path::new(text).is_dir() => Self::local(LocationKind::Directory, text, None)?,
            Some(path_start) => Self::parse_url(text, path_start)?,
            None => {
                let (file, dir) = split_dir(text, 0);
                Self::local(LocationKind::File, file, dir)?
            }
        };
        let dir = location.dir.as_deref();
        let is_odd =
            text.starts_with('-') || dir.is_some_and(|dir| check_path(dir.as_bytes()).is_err());
        let source = location.to_string();
        if is_odd || has_hidden_character(&source) || source.contains(['\n', '\t']) {
            let reason = "it begins with `-`, leads out of it, or has hidden characters";
            return Err(refused_source(text, reason));
        }
        Ok(location)
    }

    /// A directory or an archive on this machine.
    fn local(kind: LocationKind, path: &str, dir: Option<&str>) -> Result<Self, CommandFailure> {
        let Ok(Ok(base)) =
            Path::new(path).canonicalize().map(|path| path.into_os_string().into_string())
        else {
            let message = format!("there is no directory or archive `{}`", escape_to_line(path));
            let (host, rest) = path.split_once('/').unwrap_or_default();
            let is_address = host.contains('.') && !host.starts_with('.') && !rest.is_empty();
            let dir = dir.map_or_else(String::new, |dir| format!("//{dir}"));
            let address = format!("for a repository, write its address: https://{path}{dir}");
            let hint = if is_address { address } else { EXPECTED.to_owned() };
            return Err(CommandFailure::config(message, hint));
        };
        Ok(Self::new(kind, &base, dir, None))
    }

    fn parse_url(text: &str, path_start: usize) -> Result<Self, CommandFailure> {
        let (base, dir) = split_dir(text, path_start);
        let file = base.split(['?', '#']).next().unwrap_or_default();
        if base.starts_with("http") && ARCHIVE_SUFFIXES.iter().any(|suffix| file.ends_with(suffix))
        {
            check_url(base)?;
            return Ok(Self::new(LocationKind::Download, base, dir, None));
        }
        let (location, reference) = split_reference(text, path_start);
        if reference.is_some_and(is_odd_reference) {
            return Err(refused_source(text, "its ref is not a branch, a tag or a commit"));
        }
        let (base, dir) = split_dir(location, path_start);
        check_url(base)?;
        Ok(Self::new(LocationKind::Repository, base, dir, reference))
    }

    fn new(kind: LocationKind, base: &str, dir: Option<&str>, reference: Option<&str>) -> Self {
        let dir = dir.map(|dir| dir.trim_end_matches('/').to_owned());
        let reference = reference.map(str::to_owned);
        Self { kind, base: base.to_owned(), dir, reference, commit: None }
    }

    /// Parses what agents.lock.json has; `is_exact` if the same commit is fetched, although a branch or a tag may have moved.
    ///
    /// # Errors
    /// As [`AgentLocation::parse`].
    pub fn from_lock(agent: &LockedAgent, is_exact: bool) -> Result<Self, CommandFailure> {
        let location = match &agent.reference {
            Some(reference) => Self::parse(&format!("{}@{reference}", agent.source))?,
            None => Self::parse(&agent.source)?,
        };
        Ok(Self { commit: agent.commit.clone().filter(|_| is_exact), ..location })
    }

    /// What [`AgentLocation::parse`] parses.
    pub fn address(&self) -> String {
        match &self.reference {
            Some(reference) => format!("{}@{reference}", self.source()),
            None => self.source(),
        }
    }

    /// What agents.lock.json has of it, without the ref.
    pub fn source(&self) -> String {
        match &self.dir {
            Some(dir) => format!("{}//{dir}", self.base),
            None => self.base.clone(),
        }
    }

    /// Gets the files, and the commit that they are from. `scratch` is an empty directory that is removed later.
    ///
    /// # Errors
    /// They cannot be read, or are not the files of an agent.
    pub fn fetch(
        &self,
        scratch: &Path,
        cancel: &CancelToken,
    ) -> Result<(AgentFiles, Option<String>), CommandFailure> {
        let base = Path::new(&self.base);
        let dir = self.dir.as_deref();
        let mut commit = None;
        let files = match self.kind {
            LocationKind::Directory => AgentFiles::read(base),
            LocationKind::File => {
                let file = File::open(base).map_err(|error| error.to_string());
                file.and_then(|file| read_archive(file, dir))
            }
            LocationKind::Download => {
                let bytes = download(&self.base, MAX_ARCHIVE_BYTES, MAX_REDIRECTS, cancel);
                bytes.and_then(|bytes| read_archive(&*bytes, dir))
            }
            LocationKind::Repository => {
                let reference = self.commit.as_ref().or(self.reference.as_ref());
                let fetched = fetch_commit(&self.base, reference.map(String::as_str), dir, scratch);
                fetched.map(|(files, id)| {
                    commit = Some(id);
                    files
                })
            }
        };
        if cancel.is_requested() {
            return Err(CommandFailure::interrupted("interrupted"));
        }
        let selected = files.and_then(|files| self.select_agent(files)).map_err(|reason| {
            let message = format!("could not get the agent from {self}: {reason}");
            CommandFailure::config(message, self.find_mistake())
        });
        Ok((selected?, commit))
    }

    /// What may be wrong with an address copied from a browser.
    fn find_mistake(&self) -> Option<String> {
        if let Some((repository, path)) = self.base.split_once("/tree/") {
            let (reference, dir) = path.split_once('/').unwrap_or((path, ""));
            let dir = if dir.is_empty() { String::new() } else { format!("//{dir}") };
            return Some(format!("write {repository}{dir}@{reference}"));
        }
        let reference = self.reference.as_ref()?;
        let is_short = (7..40).contains(&reference.len());
        let is_short_id = is_short && reference.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_short_id.then(|| "write all 40 digits of the commit".to_owned())
    }

    /// The files of the agent among all files. An archive may have them in one directory, as git hosts write them.
    fn select_agent(&self, files: AgentFiles) -> Result<AgentFiles, String> {
        let is_archive = matches!(self.kind, LocationKind::File | LocationKind::Download);
        let dir = self.dir.as_deref().filter(|_| is_archive).unwrap_or_default();
        let top = files.common_top().filter(|_| is_archive).unwrap_or_default();
        let roots = [dir.to_owned(), format!("{top}/{dir}").trim_matches('/').to_owned()];
        for root in roots {
            if files.get(format!("{root}/{MAIN_FILE}").trim_start_matches('/')).is_some() {
                return files.into_agent(&root);
            }
        }
        let dirs = files.agent_dirs().into_iter().take(10);
        let dirs = dirs.map(|dir| dir.strip_prefix(top).unwrap_or(dir).trim_start_matches('/'));
        let agents: Vec<&str> = dirs.collect();
        match &*agents {
            [] => Err(format!("it has no {MAIN_FILE}")),
            agents => Err(format!(
                "it has no {MAIN_FILE}; name one of its agents: //{}",
                agents.join(", //")
            )),
        }
    }
}

impl std::fmt::Display for AgentLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let address = self.address();
        f.write_str(address.strip_prefix("https://").unwrap_or(&address))
    }
}

fn refused_source(text: &str, reason: &str) -> CommandFailure {
    let message = format!("refused the source `{}`: {reason}", escape_to_line(text));
    CommandFailure::usage(message, EXPECTED)
}

/// Where the path of a URL begins, after the host; also of `HOST:PATH`, as ssh has it. `None` for a path.
fn find_url_path(text: &str) -> Option<usize> {
    if let Some((scheme, rest)) = text.split_once("://") {
        let start = scheme.len() + 3;
        return Some(rest.find('/').map_or(text.len(), |slash| start + slash));
    }
    let colon = text.find(':').filter(|_| !Path::new(text).exists())?;
    let is_host = colon > 0 && !text[..colon].contains('/');
    is_host.then_some(colon + 1)
}

/// Splits at the first `//` of the path.
fn split_dir(text: &str, path_start: usize) -> (&str, Option<&str>) {
    match text[path_start..].find("//") {
        Some(at) => (&text[..path_start + at], Some(&text[path_start + at + 2..])),
        None => (text, None),
    }
}

/// Splits at the first `@` of the path that does not begin a component, as in `packages/@scope/agent`.
fn split_reference(text: &str, path_start: usize) -> (&str, Option<&str>) {
    let mut signs = text[path_start..].match_indices('@').map(|(at, _)| path_start + at);
    match signs.find(|at| *at > path_start && !text[..*at].ends_with('/')) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}

/// Whether git would take it for an option, a pattern or two refs.
fn is_odd_reference(reference: &str) -> bool {
    reference.is_empty()
        || reference.starts_with(['-', '+', '/'])
        || reference.contains([' ', '~', '^', ':', '?', '*', '[', '\\'])
        || reference.contains("..")
}

/// Refuses addresses that are not encrypted, that start something else, or that contain a secret: they are recorded.
fn check_url(url: &str) -> Result<(), CommandFailure> {
    let Some((scheme, rest)) = url.split_once("://") else {
        // HOST:PATH, and `ext::COMMAND`, which starts a command.
        let path = url.split_once(':').map_or("", |(_, path)| path);
        let is_odd = path.is_empty() || path.starts_with([':', '-']);
        return if is_odd {
            Err(refused_source(url, "expected the address of a repository"))
        } else {
            Ok(())
        };
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let user = authority.split_once('@').map(|(user, _)| user);
    let problem = match scheme {
        "https" | "http" if user.is_some() || mask_url(url) != url => PASSWORD,
        "ssh" if user.is_some_and(|user| user.contains(':')) => PASSWORD,
        "http" if !is_loopback_host(host_of(url).unwrap_or_default()) => {
            "files over http can be changed on the way; use https"
        }
        "https" | "http" => return Ok(()),
        "ssh" if !authority.starts_with('-') => return Ok(()),
        "file" if authority.is_empty() => return Ok(()),
        _ => "expected an address with https, ssh or file",
    };
    Err(refused_source(&mask_url(url), problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> [String; 3] {
        let location = AgentLocation::parse(text).map_err(|failure| failure.to_text()).unwrap();
        let AgentLocation { base, dir, reference, .. } = location;
        [base, dir.unwrap_or_default(), reference.unwrap_or_default()]
    }

    #[test]
    fn c_36_14_a_source_has_an_address_a_directory_and_a_ref() {
        for (text, expected) in [
            ("https://h/x/y", ["https://h/x/y", "", ""]),
            ("https://h/x/y.git//a/b@v3", ["https://h/x/y.git", "a/b", "v3"]),
            ("https://h/x/y@feature/one", ["https://h/x/y", "", "feature/one"]),
            ("https://h/x/y//@scope/a@@scope/a@1.0", ["https://h/x/y", "@scope/a", "@scope/a@1.0"]),
            ("git@h:x/y.git//a@v1", ["git@h:x/y.git", "a", "v1"]),
            ("ssh://git@h:22/x//a/", ["ssh://git@h:22/x", "a", ""]),
            ("file:///x/y@main", ["file:///x/y", "", "main"]),
            ("https://h/@s/p/-/p@1.tgz", ["https://h/@s/p/-/p@1.tgz", "", ""]),
            ("https://h/x.tar.gz//a@b", ["https://h/x.tar.gz", "a@b", ""]),
            ("http://127.0.0.1:80/x", ["http://127.0.0.1:80/x", "", ""]),
        ] {
            assert_eq!(parts(text), expected, "{text}");
        }
    }

    #[test]
    fn c_36_14_a_source_that_is_an_option_a_command_or_a_secret_is_refused() {
        for text in [
            "--upload-pack=x",
            "-x:y",
            "ext::sh -c x",
            "ext::x//a",
            "https://h/x@-x",
            "https://h/x@a:b",
            "https://h/x@+a",
            "https://h/x@",
            "https://h/x//../a",
            "https://h/x//a/../../b",
            "http://h/x",
            "http://127.0.0.1:80@h/x",
            "https://me:secret@h/x",
            "https://h/x.tar.gz?token=abc",
            "git://h/x",
            "ssh://-oProxyCommand=x/y",
            "ssh://me:secret@h/x",
            "file://h/x",
            "https://h/x\u{202e}y",
            "nowhere",
        ] {
            assert!(AgentLocation::parse(text).is_err(), "{text}");
        }
    }
}
