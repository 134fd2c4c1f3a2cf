//! The program git in a directory, and a directory for what it writes.

use crate::failure::CommandFailure;
use crate::{cancel, environment};
use delta_agent::git_places::remove_git_places;
use delta_base::durable::{self, FileError};
use delta_base::hex::encode_hex;
use delta_base::random;
use delta_process::{LaunchContext, OutputCapture, ProcessCommand, ProcessEnd, run_process};
use delta_run::record::describe_process_end;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a command of git may take.
const GIT_TIMEOUT: Duration = Duration::from_secs(120);
/// How much of its output is read as a line or an error.
const MAX_GIT_OUTPUT: usize = 64 << 10;

/// A directory that is removed at the end.
pub struct TemporaryDir(PathBuf);

impl TemporaryDir {
    /// An empty directory for a command.
    pub fn create(command: &str) -> Result<Self, CommandFailure> {
        let name = format!("delta-{command}-{}", encode_hex(&random::random_bytes::<8>()));
        let dir = Self(std::env::temp_dir().join(name));
        durable::ensure_private_dir(&dir.0)?;
        Ok(dir)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryDir {
    fn drop(&mut self) {
        // What stays is in the directory for temporary files.
        let _ = durable::remove_dir_all_no_follow(&self.0);
    }
}

/// The program git in a directory.
pub struct Git {
    launch: LaunchContext,
    /// The start of every command line.
    command: Vec<String>,
    timeout: Duration,
}

impl Git {
    /// With the index `index`, or else the one of the repository.
    pub fn new(dir: &Path, index: Option<&Path>) -> Self {
        let mut env = environment::variables_without_keys(&[]);
        // A hook of git would lead these commands to its own index or directory.
        remove_git_places(&mut env);
        if let Some(index) = index {
            env.insert("GIT_INDEX_FILE".into(), index.into());
        }
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        Self::with_command(&["git"], LaunchContext::new(dir, env), GIT_TIMEOUT)
    }

    /// In a directory that is in no repository, whatever is around it.
    pub fn outside(dir: &Path) -> Self {
        let mut git = Self::new(dir, None);
        let parent = dir.parent().unwrap_or(dir);
        git.launch.env.set("GIT_CEILING_DIRECTORIES", parent);
        git
    }

    /// With another start of every command line, which begins with git or ends with it and options.
    pub fn with_command(command: &[&str], launch: LaunchContext, timeout: Duration) -> Self {
        let command = command.iter().map(|word| (*word).to_owned()).collect();
        Self { launch, command, timeout }
    }

    /// A command line.
    pub fn argv(&self, words: &[&str]) -> Vec<String> {
        self.command.iter().cloned().chain(words.iter().map(|word| (*word).to_owned())).collect()
    }

    /// The top directory of the repository that has the directory.
    ///
    /// # Errors
    /// There is none, or git does not use it; `hint` says what to do.
    pub fn find_top_dir(&self, hint: &str) -> Result<String, CommandFailure> {
        self.line(&["rev-parse", "--show-toplevel"]).map_err(|failure| failure.with_hint(hint))
    }

    /// What a command prints, without the newline.
    ///
    /// # Errors
    /// It fails; the message has what it printed.
    pub fn line(&self, words: &[&str]) -> Result<String, CommandFailure> {
        let output = self.output(words, 0)?;
        let text = String::from_utf8_lossy(&output.head);
        Ok(text.trim_end_matches('\n').to_owned())
    }

    /// The names that a command prints, each followed by a NUL.
    ///
    /// # Errors
    /// It fails, or prints more than 64 MiB.
    pub fn names(&self, words: &[&str]) -> Result<Vec<Vec<u8>>, CommandFailure> {
        let output = self.output(words, 0)?.whole.ok_or_else(|| {
            CommandFailure::config(format!("git {}: it prints more than 64 MiB", words[0]), None)
        })?;
        let names = output.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        Ok(names.map(<[u8]>::to_vec).collect())
    }

    /// What a command prints that exits with 0 or with `code`.
    fn output(&self, words: &[&str], code: i32) -> Result<OutputCapture, CommandFailure> {
        let argv = self.argv(words);
        let command = ProcessCommand {
            capture_whole: true,
            ..ProcessCommand::new(&argv, &self.launch, self.timeout, MAX_GIT_OUTPUT)
        };
        let finished = run_process(&command, &cancel::install_cancel()?);
        let reason = match &finished.end {
            ProcessEnd::Exited(exited) if *exited == 0 || *exited == code => {
                return Ok(finished.stdout);
            }
            ProcessEnd::Cancelled => return Err(CommandFailure::interrupted("interrupted")),
            ProcessEnd::Exited(_) => String::from_utf8_lossy(&finished.stderr.head).into_owned(),
            end => describe_process_end(end).unwrap_or_else(|| "it failed".to_owned()),
        };
        let reason = reason.trim().trim_start_matches("fatal: ");
        Err(CommandFailure::config(format!("git {}: {reason}", words[0]), None))
    }

    /// What `log` or `diff` writes to the new file `output`, however much that is.
    ///
    /// # Errors
    /// It fails, or the file cannot be read.
    pub fn long_output(&self, words: &[&str], output: &Path) -> Result<Vec<u8>, CommandFailure> {
        let option = format!("--output={}", output.display());
        // `diff --no-index` exits with 1 where there is a difference.
        self.output(&[&words[..1], &[&option], &words[1..]].concat(), 1)?;
        Ok(durable::read_no_follow(output).map_err(FileError::at("read", output))?)
    }
}
