//! Agents in git repositories. `git` fetches one commit into a bare repository, and prints its files as an archive: nothing is
//! checked out, so no filter, hook, attribute or submodule of the repository acts.

use super::agent_archive::read_tar;
use delta_agent::agent::agent_files::{AgentFiles, check_path};
use delta_operator::environment;
use delta_operator::failure::CommandFailure;
use delta_operator::runs::git::Git;
use delta_process::{LaunchContext, PipedProcess};
use std::io;
use std::path::Path;
use std::time::Duration;

/// The longest fetch.
const FETCH_TIMEOUT: Duration = Duration::from_secs(600);
/// Ends a fetch of more than half a GiB, in blocks of 512 bytes. POSIX has no other limit for a program.
const LIMITED_GIT: [&str; 5] = ["sh", "-c", "ulimit -f 1048576 && exec \"$@\"", "--", "git"];
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
) -> Result<(AgentFiles, String), String> {
    let mut env = environment::variables_without_keys(&[]);
    // What names programs of git, and what asks for a password.
    env.retain(|name, _| !name.to_string_lossy().starts_with("GIT_") && name != "SSH_ASKPASS");
    // A redirect to another protocol is refused too.
    let protocol = url.split_once("://").map_or("ssh", |(scheme, _)| scheme);
    let settings = SETTINGS.into_iter().chain([("GIT_ALLOW_PROTOCOL", protocol)]);
    env.extend(settings.map(|(name, value)| (name.into(), value.into())));
    let dir_option = format!("--git-dir={}", scratch.join("repository").display());
    let options = [&*dir_option, "-c", "protocol.ext.allow=never"];
    let command = [&LIMITED_GIT[..], &options].concat();
    let launch = LaunchContext::new(scratch, env.clone());
    let git = Git::with_command(&command, launch, FETCH_TIMEOUT);
    let run = |words: &[&str]| git.line(words).map_err(|failure| failure.message().to_owned());
    run(&["init", "--quiet", "--bare", "--template="])?;
    let reference = reference.unwrap_or("HEAD");
    fetch(&git, url, reference).map_err(|failure| failure.message().to_owned())?;
    let name = if is_commit_id(reference) { reference } else { "FETCH_HEAD" };
    let commit = run(&["rev-parse", "--verify", &format!("{name}^{{commit}}")])?;
    let dir = dir.unwrap_or_default();
    let tree = run(&["rev-parse", "--verify", "--quiet", &format!("{commit}:{dir}")])
        .map_err(|_| format!("there is no directory `{dir}` in {reference}"))?;
    // Without a work tree, these options keep git from all attributes, which could change contents.
    let archive = git.argv(&["archive", "--format=tar", "--worktree-attributes", &tree]);
    let started = PipedProcess::start(&archive, &env);
    let (mut process, _, mut output) = started.map_err(|error| error.to_string())?;
    let files = read_tar(&mut output, None)?;
    // Otherwise git waits for a reader.
    let read = io::copy(&mut output, &mut io::sink()).and_then(|_| process.wait());
    if !read.is_ok_and(|code| code == Some(0)) {
        return Err("git did not print all files".to_owned());
    }
    // In the archive they are empty directories.
    let entries = git.names(&["ls-tree", "-r", "-z", "--full-tree", &tree]);
    let entries = entries.map_err(|failure| failure.message().to_owned())?;
    match entries.iter().find(|entry| entry.starts_with(b"160000 ")) {
        Some(module) => {
            let name = module.splitn(2, |byte| *byte == b'\t').last().unwrap_or_default();
            Err(format!("`{}` is a submodule", check_path(name)?))
        }
        None => Ok((files, commit)),
    }
}

fn is_commit_id(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Fetches what a name means. Some servers give a commit only as a part of a branch or a tag, and some no part of a history.
fn fetch(git: &Git, url: &str, reference: &str) -> Result<(), CommandFailure> {
    let run_fetch = |arguments: &[&str]| git.line(&[&FETCH[..], arguments].concat()).map(drop);
    run_fetch(&["--depth=1", "--", url, reference]).or_else(|failure| {
        if is_commit_id(reference) {
            // No branch of it is the HEAD here, whose attributes some versions of git apply.
            run_fetch(&["--", url, "+refs/heads/*:refs/all/*", "+refs/tags/*:refs/tags/*"])
                .map_err(|_| failure)
        } else if ["shallow", "--depth"].iter().any(|word| failure.message().contains(word)) {
            run_fetch(&["--", url, reference])
        } else {
            Err(failure)
        }
    })
}
