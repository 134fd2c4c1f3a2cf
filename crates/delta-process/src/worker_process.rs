//! A process that works for a server: it leads its own session, reads its input from memory, and its output is read when
//! it has ended.
#![expect(clippy::disallowed_methods, reason = "with spawn.rs the only place that starts children")]

use super::exec_image::{close_descriptors_on_exec, end_with_parent};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// What a worker needs to start.
#[derive(Debug)]
pub struct WorkerCommand<'a> {
    /// The program file.
    pub program: &'a Path,
    /// Its arguments.
    pub arguments: &'a [String],
    /// Its complete environment.
    pub env: &'a BTreeMap<OsString, OsString>,
    /// Its standard input. In memory, so that it never reads half of it because the server died.
    pub input: &'a [u8],
    /// More files for it, in memory; [`WorkerFile::path`] is an argument.
    pub files: &'a [WorkerFile],
    /// Whether it keeps working when the server has ended. Otherwise it gets SIGTERM then.
    pub outlives_server: bool,
    /// Where its standard error goes.
    pub errors: WorkerErrors,
}

/// Where the standard error of a worker goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerErrors {
    /// To the one of this process.
    Inherited,
    /// Into memory, for [`WorkerProcess::read_errors`]: one more open file.
    Memory,
    /// Nowhere.
    Lost,
}

/// A file in memory that a worker reads.
#[derive(Debug)]
pub struct WorkerFile(File);

impl WorkerFile {
    /// A file with this content.
    ///
    /// # Errors
    /// The file could not be created.
    pub fn new(content: &[u8]) -> io::Result<Self> {
        let mut file = create_memory_file()?;
        file.write_all(content)?;
        Ok(Self(file))
    }

    /// Its path in the worker.
    pub fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.0.as_raw_fd())
    }

    /// Its path in processes that do not inherit it, as long as this process has it.
    pub fn path_for_others(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}

/// A program of the operator that this process talks to through pipes, such as ssh. It shares the standard error of this
/// process.
#[derive(Debug)]
pub struct PipedProcess(Child);

impl PipedProcess {
    /// Starts a program with this environment and no other. Returns also the pipes to its standard input and from its standard
    /// output.
    ///
    /// # Errors
    /// It could not be started.
    pub fn start(
        argv: &[String],
        env: &BTreeMap<OsString, OsString>,
    ) -> io::Result<(Self, ChildStdin, ChildStdout)> {
        let missing = || io::Error::from(io::ErrorKind::InvalidInput);
        let (name, arguments) = argv.split_first().ok_or_else(missing)?;
        let mut process = Command::new(name);
        process.args(arguments).env_clear().envs(env);
        let mut child = process.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().ok_or_else(missing)?;
        let output = child.stdout.take().ok_or_else(missing)?;
        Ok((Self(child), input, output))
    }

    /// Waits for its end. Returns its exit code, if it has one.
    ///
    /// # Errors
    /// The system cannot say how it ended.
    pub fn wait(&mut self) -> io::Result<Option<i32>> {
        Ok(self.0.wait()?.code())
    }
}

/// A worker, and its output so far.
#[derive(Debug)]
pub struct WorkerProcess {
    child: Child,
    output: File,
    errors: Option<File>,
    read_bytes: u64,
    is_interrupted: bool,
}

impl WorkerProcess {
    /// Starts a worker.
    ///
    /// Call this on the main thread: the kernel ends the worker together with the *thread* that started it.
    ///
    /// # Errors
    /// The process could not be started.
    pub fn start(command: &WorkerCommand<'_>) -> io::Result<Self> {
        let mut input = create_memory_file()?;
        input.write_all(command.input)?;
        input.seek(SeekFrom::Start(0))?;
        let output = create_memory_file()?;
        let mut process = Command::new(command.program);
        process.args(command.arguments).env_clear().envs(command.env);
        process.stdin(Stdio::from(input)).stdout(Stdio::from(output.try_clone()?));
        let errors = match command.errors {
            WorkerErrors::Memory => Some(create_memory_file()?),
            WorkerErrors::Inherited | WorkerErrors::Lost => None,
        };
        match &errors {
            Some(file) => process.stderr(Stdio::from(file.try_clone()?)),
            None if command.errors == WorkerErrors::Lost => process.stderr(Stdio::null()),
            None => process.stderr(Stdio::inherit()),
        };
        let outlives_server = command.outlives_server;
        let server = rustix::process::getpid();
        let files: Vec<RawFd> = command.files.iter().map(|file| file.0.as_raw_fd()).collect();
        // SAFETY: between fork and exec the closure makes only system calls and does not allocate.
        unsafe {
            process.pre_exec(move || {
                close_descriptors_on_exec();
                for file in &files {
                    // Open until the worker has started: `command.files` keeps it.
                    let file = BorrowedFd::borrow_raw(*file);
                    rustix::io::fcntl_setfd(file, rustix::io::FdFlags::empty())?;
                }
                // Clients signal the process group of their server.
                rustix::process::setsid()?;
                if !outlives_server {
                    end_with_parent(server, Signal::TERM)?;
                }
                Ok(())
            })
        };
        Ok(Self { child: process.spawn()?, output, errors, read_bytes: 0, is_interrupted: false })
    }

    /// Whether the worker has ended. Call this after SIGCHLD.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn has_ended(&mut self) -> io::Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// What the worker has printed to its standard output since the last time.
    ///
    /// # Errors
    /// Its output could not be read.
    pub fn read_output(&mut self) -> io::Result<Vec<u8>> {
        let length = self.output.metadata()?.len().saturating_sub(self.read_bytes);
        let mut output = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
        // Reading at a position leaves alone the one at which the worker writes.
        self.output.read_exact_at(&mut output, self.read_bytes)?;
        self.read_bytes += length;
        Ok(output)
    }

    /// The end of what the worker has printed to its standard error, if that goes into memory.
    ///
    /// # Errors
    /// It could not be read.
    pub fn read_errors(&self) -> io::Result<String> {
        /// The most bytes that are read: an error is at the end.
        const MAX_BYTES: u64 = 16 << 10;
        let Some(errors) = &self.errors else { return Ok(String::new()) };
        let length = errors.metadata()?.len();
        let start = length.saturating_sub(MAX_BYTES);
        let mut bytes = vec![0; usize::try_from(length - start).unwrap_or(0)];
        errors.read_exact_at(&mut bytes, start)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Interrupts the worker, once: a second signal would end it before it has left its work in order.
    pub fn interrupt(&mut self) {
        if !std::mem::replace(&mut self.is_interrupted, true) {
            // It has ended otherwise.
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        }
    }

    /// Kills the worker, which leaves its work as it is.
    pub fn kill(&mut self) {
        // It has ended otherwise.
        let _ = self.child.kill();
    }
}

#[cfg(target_os = "linux")]
fn create_memory_file() -> io::Result<File> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    Ok(rustix::fs::memfd_create("delta-worker", flags)?.into())
}

#[cfg(not(target_os = "linux"))]
fn create_memory_file() -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(script: &str, input: &[u8], outlives_server: bool) -> WorkerProcess {
        let arguments = ["-c", script].map(str::to_owned);
        let env = BTreeMap::from([(OsString::from("PATH"), OsString::from("/usr/bin:/bin"))]);
        let command = WorkerCommand {
            program: Path::new("/bin/sh"),
            arguments: &arguments,
            env: &env,
            input,
            files: &[],
            outlives_server,
            errors: WorkerErrors::Inherited,
        };
        WorkerProcess::start(&command).unwrap()
    }

    fn wait(mut worker: WorkerProcess) -> Vec<u8> {
        let mut output = worker.read_output().unwrap();
        worker.child.wait().unwrap();
        assert!(worker.has_ended().unwrap());
        output.extend(worker.read_output().unwrap());
        output
    }

    #[test]
    fn input_and_output_are_as_long_as_they_like() {
        let input = vec![b'x'; 3_000_000];
        for outlives_server in [false, true] {
            let end = wait(start("cat; cat", &input, outlives_server));
            assert!(end == input);
        }
    }

    #[test]
    fn a_worker_is_interrupted_once() {
        let mut worker =
            start("trap 'echo stopping' TERM; echo ready; while :; do :; done", b"", false);
        while !std::fs::read_to_string(format!("/proc/self/fd/{}", fd(&worker)))
            .is_ok_and(|text| text == "ready\n")
        {}
        worker.interrupt();
        worker.interrupt();
        while !std::fs::read_to_string(format!("/proc/self/fd/{}", fd(&worker)))
            .is_ok_and(|text| text.contains("stopping"))
        {}
        worker.child.kill().unwrap();
        assert_eq!(wait(worker), b"ready\nstopping\n");
    }

    fn fd(worker: &WorkerProcess) -> i32 {
        worker.output.as_raw_fd()
    }
}
