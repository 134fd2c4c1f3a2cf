//! Agents in git repositories. `git` fetches one commit into a bare repository, and prints its objects: nothing is checked out, so
//! no filter, hook or submodule of the repository acts.

use delta_agent::agent::agent_files::{AgentFile, AgentFiles, check_path, check_target};
use delta_base::signal::CancelToken;
use delta_base::terminal_text::strip_terminal_controls;
use delta_operator::environment;
use delta_process::{
    LaunchContext, PipedProcess, ProcessCommand, ProcessEnd, find_program, run_process,
};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout};
use std::time::Duration;

/// The longest fetch.
const FETCH_TIMEOUT: Duration = Duration::from_secs(600);
/// The longest list of files: some 100,000.
const MAX_LIST_BYTES: u64 = 16 * 1024 * 1024;
/// What is kept of what git prints.
const MESSAGE_BYTES: usize = 8 * 1024;
/// Ends a fetch of more than half a GiB, in blocks of 512 bytes. POSIX has no other limit for a program.
const LIMITED: [&str; 4] = ["sh", "-c", "ulimit -f 1048576 && exec \"$@\"", "--"];
/// No configuration, which can name programs, but of the new repository, which has no hooks.
const SETTINGS: [(&str, &str); 10] = [
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_SYSTEM", "/dev/null"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    ("GIT_SSH_COMMAND", "ssh -oBatchMode=yes"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("LC_ALL", "C"),
    ("XDG_CONFIG_HOME", "/dev/null"),
];
const FETCH: [&str; 5] =
    ["fetch", "--quiet", "--no-tags", "--no-recurse-submodules", "--no-auto-gc"];

/// Fetches what `reference` names in the repository at `url`, or its default branch. Returns the files of one directory, if one is
/// named, and the id of the commit.
///
/// # Errors
/// It cannot be fetched, or has what no agent has; contains the reason.
pub fn fetch_commit(
    url: &str,
    reference: Option<&str>,
    dir: Option<&str>,
    scratch: &Path,
    cancel: &CancelToken,
) -> Result<(AgentFiles, String), String> {
    let mut env = environment::variables_without_keys(&[]);
    // What names programs of git, and what asks for a password.
    env.retain(|name, _| !name.to_string_lossy().starts_with("GIT_") && name != "SSH_ASKPASS");
    // A redirect to another protocol is refused too.
    let protocol = url.split_once("://").map_or("ssh", |(scheme, _)| scheme);
    let settings = SETTINGS.into_iter().chain([("GIT_ALLOW_PROTOCOL", protocol)]);
    env.extend(settings.map(|(name, value)| (name.into(), value.into())));
    let context = LaunchContext::new(scratch, env.clone());
    find_program("git", &context).map_err(|missing| missing.reason)?;
    let dir_option = format!("--git-dir={}", scratch.join("repository").display());
    let git = ["git", &dir_option, "-c", "protocol.ext.allow=never"].map(str::to_owned);
    let git = GitRunner { command: git, env, context, cancel };
    git.run(&["init", "--quiet", "--bare", "--template="])?;
    let reference = reference.unwrap_or("HEAD");
    git.fetch(url, reference)?;
    let name = if is_commit_id(reference) { reference } else { "FETCH_HEAD" };
    let commit = git.run(&["rev-parse", "--verify", &format!("{name}^{{commit}}")])?;
    let dir = dir.unwrap_or_default();
    let tree = git.run(&["rev-parse", "--verify", "--quiet", &format!("{commit}:{dir}")]);
    let tree = tree.map_err(|_| format!("there is no directory `{dir}` in {reference}"))?;
    Ok((git.read_tree(&tree)?, commit))
}

fn is_commit_id(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

struct GitRunner<'a> {
    /// The start of every command line.
    command: [String; 4],
    env: BTreeMap<OsString, OsString>,
    context: LaunchContext,
    cancel: &'a CancelToken,
}

impl GitRunner<'_> {
    fn argv(&self, arguments: &[&str]) -> Vec<String> {
        self.command.iter().cloned().chain(arguments.iter().map(|one| (*one).to_owned())).collect()
    }

    /// Runs git to its end; returns the first line that it prints.
    fn run(&self, arguments: &[&str]) -> Result<String, String> {
        let argv = [LIMITED.map(str::to_owned).to_vec(), self.argv(arguments)].concat();
        let command = ProcessCommand::new(&argv, &self.context, FETCH_TIMEOUT, MESSAGE_BYTES);
        let result = run_process(&command, self.cancel);
        match result.end {
            ProcessEnd::Exited(0) => {
                let output = String::from_utf8_lossy(&result.stdout.head);
                Ok(output.lines().next().unwrap_or_default().to_owned())
            }
            ProcessEnd::TimedOut => Err("git took more than 10 minutes".to_owned()),
            ProcessEnd::NotStarted { reason, .. } => Err(reason),
            _ => {
                let errors = String::from_utf8_lossy(&result.stderr.head);
                Err(strip_terminal_controls(errors.trim()))
            }
        }
    }

    /// Fetches what a name means. Some servers give a commit only as a part of a branch or a tag, and some no part of a history.
    fn fetch(&self, url: &str, reference: &str) -> Result<(), String> {
        let run_fetch = |arguments: &[&str]| self.run(&[&FETCH[..], arguments].concat()).map(drop);
        run_fetch(&["--depth=1", "--", url, reference]).or_else(|reason| {
            if is_commit_id(reference) {
                run_fetch(&["--", url, "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"])
                    .map_err(|_| reason)
            } else if ["shallow", "--depth"].iter().any(|word| reason.contains(word)) {
                run_fetch(&["--", url, reference])
            } else {
                Err(reason)
            }
        })
    }

    /// Starts git for objects that it prints.
    fn start(
        &self,
        arguments: &[&str],
    ) -> Result<(PipedProcess, ChildStdin, BufReader<ChildStdout>), String> {
        let started = PipedProcess::start(&self.argv(arguments), &self.env);
        let (process, input, output) = started.map_err(|error| error.to_string())?;
        Ok((process, input, BufReader::new(output)))
    }

    fn read_tree(&self, tree: &str) -> Result<AgentFiles, String> {
        let list = ["ls-tree", "-r", "-z", "-l", "--full-tree", tree];
        let (mut lister, _, mut list) = self.start(&list)?;
        let (_printer, mut ids, mut objects) = self.start(&["cat-file", "--batch"])?;
        let mut files = AgentFiles::default();
        let unreadable = |error: io::Error| format!("git did not print a file: {error}");
        for line in list.by_ref().take(MAX_LIST_BYTES).split(0) {
            let line = line.map_err(unreadable)?;
            let at = line.iter().position(|byte| *byte == b'\t').unwrap_or(line.len());
            let path = check_path(line.get(at + 1..).unwrap_or_default())?;
            let facts = String::from_utf8_lossy(&line[..at]);
            let (mode, id, bytes) = match *facts.split_whitespace().collect::<Vec<_>>() {
                [mode, "blob", id, bytes] => (mode, id, bytes.parse().unwrap_or(u64::MAX)),
                [_, "commit", ..] => return Err(format!("`{path}` is a submodule")),
                _ => return Err(format!("`{path}` is neither a file nor a link")),
            };
            files.check_room(bytes)?;
            let content = print_object(&mut ids, &mut objects, id, bytes).map_err(unreadable)?;
            let file = match mode {
                "120000" => AgentFile::Link(check_target(path, &content)?),
                mode => AgentFile::Regular { content, is_executable: mode == "100755" },
            };
            files.insert(path, file)?;
        }
        let is_at_end = list.fill_buf().is_ok_and(<[u8]>::is_empty);
        // Otherwise git waits for a reader.
        drop(list);
        if lister.wait().is_ok_and(|code| code == Some(0)) && is_at_end {
            return Ok(files);
        }
        Err("it has too many files, or git did not list all of them".to_owned())
    }
}

/// What git prints of an object with this length.
fn print_object(
    ids: &mut ChildStdin,
    objects: &mut BufReader<ChildStdout>,
    id: &str,
    bytes: u64,
) -> io::Result<Vec<u8>> {
    ids.write_all(format!("{id}\n").as_bytes())?;
    let mut header = String::new();
    objects.take(256).read_line(&mut header)?;
    let mut content = Vec::new();
    objects.take(bytes + 1).read_to_end(&mut content)?;
    let is_complete = content.pop() == Some(b'\n') && content.len() as u64 == bytes;
    if is_complete && header.trim_end() == format!("{id} blob {bytes}") {
        return Ok(content);
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}
