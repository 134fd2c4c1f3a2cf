//! Finds the file of a command's program, and explains why it cannot be executed.

use super::{LaunchContext, ProcessEnd};
use rustix::fs::Access;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The exit codes of shells.
pub(super) const NOT_FOUND_EXIT_CODE: i32 = 127;
pub(super) const NOT_EXECUTABLE_EXIT_CODE: i32 = 126;

const BYTE_ORDER_MARK: &str = "\u{feff}";

/// The most bytes of one argument or variable on Linux, without the NUL at its end (`MAX_ARG_STRLEN`: 32 pages of 4 KiB).
const MAX_STRING_BYTES: usize = 32 * 4096 - 1;

/// How much of a script Linux reads for its `#!` line (`BINPRM_BUF_SIZE`).
const SHEBANG_BYTES: u64 = 256;

/// What keeps a program from starting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramDefect {
    /// The file does not exist.
    NotFound,
    /// The file may not be executed.
    NotExecutable,
    /// The file is text without a `#!` line; only a shell would interpret it.
    NoShebang,
    /// The interpreter in the `#!` line does not exist.
    NoInterpreter,
    /// The `#!` line ends with a carriage return.
    CarriageReturn,
}

/// A program would not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramError {
    /// The cause.
    pub defect: ProgramDefect,
    /// The cause as a sentence without a full stop.
    pub reason: String,
}

/// Checks that a child can start in `directory`.
pub(super) fn check_working_directory(directory: &Path) -> Result<(), ProcessEnd> {
    let reason = match fs::metadata(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => "does not exist".to_owned(),
        Err(error) => format!("cannot be entered: {error}"),
        Ok(metadata) if !metadata.is_dir() => "is not a directory".to_owned(),
        Ok(_) => match rustix::fs::access(directory, Access::EXEC_OK) {
            Ok(()) => return Ok(()),
            Err(error) => format!("cannot be entered: {}", io::Error::from(error)),
        },
    };
    Err(not_started_end(
        NOT_EXECUTABLE_EXIT_CODE,
        format!("the working directory `{}` {reason}", directory.display()),
    ))
}

/// The absolute path of the program `name`: relative to the working directory when it has a slash, else from PATH.
pub(super) fn locate_program(name: &str, context: &LaunchContext) -> Result<PathBuf, ProcessEnd> {
    if name.contains('/') {
        let path = to_absolute_path(context.cwd.join(name));
        return check_executable(&path).map(|()| path).map_err(|obstacle| obstacle.to_end(name));
    }
    // An empty name would match the directories of PATH themselves.
    let search_path = context.env.get("PATH").filter(|_| !name.is_empty());
    let directories = search_path.map(|path| path.as_bytes().split(|byte| *byte == b':'));
    let mut forbidden = None;
    for directory in directories.into_iter().flatten() {
        let mut path = Path::new(OsStr::from_bytes(directory)).join(name);
        if !path.is_absolute() {
            path = to_absolute_path(context.cwd.join(&path));
        }
        match check_executable(&path) {
            Ok(()) => return Ok(path),
            Err(ProgramObstacle::Missing | ProgramObstacle::NotAFile(_)) => {}
            Err(obstacle) => {
                forbidden.get_or_insert_with(|| obstacle.to_end(&path.display().to_string()));
            }
        }
    }
    let unset = if search_path.is_none() && !name.is_empty() { ", which is not set" } else { "" };
    Err(forbidden.unwrap_or_else(|| {
        not_started_end(
            NOT_FOUND_EXIT_CODE,
            format!("program `{name}` was not found in PATH{unset}"),
        )
    }))
}

/// Explains the system's error for the program of `argv`, whose file is `path`.
pub(super) fn explain_spawn_error(
    error: &io::Error,
    argv: &[String],
    path: &Path,
    context: &LaunchContext,
) -> ProcessEnd {
    let name = argv.first().map_or("", String::as_str);
    let interpreter = read_shebang_interpreter(path);
    let can_start_outside =
        interpreter.as_ref().is_none_or(|interpreter| context.cwd.join(interpreter).exists());
    let reason = match (Errno::from_io_error(error), interpreter) {
        (Some(Errno::TOOBIG), _) => too_long_reason(argv, context),
        (Some(Errno::NOEXEC), _) => no_shebang_reason(name, path),
        // Its file has been found outside of the sandbox.
        (Some(Errno::NOENT), interpreter) if context.sandbox.is_some() && can_start_outside => {
            let needed = interpreter.map_or_else(
                || "the loader that it needs".to_owned(),
                |interpreter| format!("its interpreter `{interpreter}`"),
            );
            let reason = format!("`{name}`, or {needed}, is not in the sandbox");
            return not_started_end(NOT_FOUND_EXIT_CODE, reason);
        }
        (Some(Errno::NOENT), Some(interpreter)) => no_interpreter_reason(name, &interpreter),
        (Some(Errno::NOENT), None) => {
            format!("`{name}`, or the loader that it needs, was not found")
        }
        (Some(Errno::ACCESS), Some(interpreter)) => {
            format!("the interpreter `{interpreter}` of `{name}` may not be executed")
        }
        (Some(Errno::TXTBSY), _) => format!("`{name}` is still open for writing somewhere"),
        _ => format!("`{name}` could not be started: {error}"),
    };
    not_started_end(NOT_EXECUTABLE_EXIT_CODE, reason)
}

/// Checks the start of the executable file `path` of the program `name`: the error that `execve` would return.
pub(super) fn inspect_program_file(
    name: &str,
    path: &Path,
    context: &LaunchContext,
) -> Option<ProgramError> {
    if has_cut_interpreter(path) {
        let reason = no_shebang_reason(name, path);
        return Some(ProgramError { defect: ProgramDefect::NoInterpreter, reason });
    }
    if let Some(interpreter) = read_shebang_interpreter(path) {
        let has_dos_lines = interpreter.ends_with('\r');
        return (!context.cwd.join(&interpreter).exists()).then(|| ProgramError {
            defect: if has_dos_lines {
                ProgramDefect::CarriageReturn
            } else {
                ProgramDefect::NoInterpreter
            },
            reason: no_interpreter_reason(name, &interpreter),
        });
    }
    // Every format of programs has a NUL near its start; scripts have none.
    let start = read_file_start(path)?;
    let is_text = !start.starts_with(b"#!") && !start.contains(&0);
    is_text.then(|| ProgramError {
        defect: ProgramDefect::NoShebang,
        reason: no_shebang_reason(name, path),
    })
}

fn no_shebang_reason(name: &str, path: &Path) -> String {
    let marked = [BYTE_ORDER_MARK.as_bytes(), b"#!"].concat();
    if read_file_start(path).is_some_and(|start| start.starts_with(&marked)) {
        return format!(
            "a byte order mark precedes the `#!` of `{name}`: save the file without it"
        );
    }
    if has_cut_interpreter(path) {
        return format!(
            "the interpreter in the `#!` line of `{name}` goes beyond the {SHEBANG_BYTES} bytes that the system reads: \
             write `#!/usr/bin/env PROGRAM`, or a shorter path"
        );
    }
    format!("`{name}` is neither a program for this system nor a script with a `#!` line")
}

/// Which of the strings that a program gets is too long for Linux, or that all of them are.
fn too_long_reason(argv: &[String], context: &LaunchContext) -> String {
    let is_too_long = |bytes: usize| bytes > MAX_STRING_BYTES;
    let mut variables =
        context.env.iter().map(|(name, value)| (name, name.len() + 1 + value.len()));
    if let Some((name, bytes)) = variables.find(|(_, bytes)| is_too_long(*bytes)) {
        return format!(
            "the variable `{}` has {bytes} bytes with its name, and the system takes {MAX_STRING_BYTES}: give the value in a file",
            name.display(),
        );
    }
    let mut lengths = argv.iter().map(String::len).zip(0..);
    if let Some((bytes, number)) = lengths.find(|(bytes, _)| is_too_long(*bytes)) {
        return format!(
            "argument {number} has {bytes} bytes, and the system takes {MAX_STRING_BYTES}: make it shorter, or let the tool read it from stdin"
        );
    }
    "the arguments and variables together are too long for the system: give large values by stdin, or in files"
        .to_owned()
}

fn no_interpreter_reason(name: &str, interpreter: &str) -> String {
    if interpreter.ends_with('\r') {
        return format!(
            "the `#!` line of `{name}` ends with a carriage return: save the file with Unix line ends"
        );
    }
    format!("the interpreter `{interpreter}` of `{name}` was not found")
}

/// The end of a command that contains a NUL byte.
pub(super) fn nul_byte_end() -> ProcessEnd {
    let reason =
        "an argument or an environment variable holds a NUL byte, which no program can be given";
    not_started_end(NOT_EXECUTABLE_EXIT_CODE, reason.to_owned())
}

/// Why a path cannot be executed; the texts continue a sentence that starts with the name.
enum ProgramObstacle {
    Missing,
    NotAFile(&'static str),
    Forbidden(&'static str),
}

impl ProgramObstacle {
    fn to_end(&self, name: &str) -> ProcessEnd {
        match self {
            Self::Missing => {
                not_started_end(NOT_FOUND_EXIT_CODE, format!("program `{name}` does not exist"))
            }
            Self::NotAFile(reason) | Self::Forbidden(reason) => {
                not_started_end(NOT_EXECUTABLE_EXIT_CODE, format!("`{name}` {reason}"))
            }
        }
    }
}

/// Whether there is a file at `path` that this process may execute.
pub fn is_program(path: &Path) -> bool {
    check_executable(path).is_ok()
}

fn check_executable(path: &Path) -> Result<(), ProgramObstacle> {
    let access = rustix::fs::access(path, Access::EXEC_OK);
    // The common case: most directories of PATH do not have the program.
    if access == Err(Errno::NOENT) {
        return Err(ProgramObstacle::Missing);
    }
    let metadata = fs::metadata(path).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            ProgramObstacle::Forbidden("is in a directory that cannot be entered")
        }
        _ => ProgramObstacle::Missing,
    })?;
    if metadata.is_dir() {
        return Err(ProgramObstacle::NotAFile("is a directory, not a program"));
    }
    if !metadata.is_file() {
        return Err(ProgramObstacle::NotAFile("is not a regular file"));
    }
    if metadata.permissions().mode() & 0o111 == 0 {
        return Err(ProgramObstacle::Forbidden("is not executable (no x permission)"));
    }
    access.map_err(|_| {
        ProgramObstacle::Forbidden(
            "may not be executed by this user, or on its file system (noexec)",
        )
    })
}

fn to_absolute_path(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

fn read_file_start(path: &Path) -> Option<Vec<u8>> {
    let mut start = Vec::new();
    File::open(path).ok()?.take(SHEBANG_BYTES).read_to_end(&mut start).ok()?;
    Some(start)
}

/// Whether the name of the interpreter of a script does not end where the system stops to read, so that it does not start.
fn has_cut_interpreter(path: &Path) -> bool {
    let Some(start) = read_file_start(path) else { return false };
    let Some(line) = start.strip_prefix(b"#!") else { return false };
    let is_whole = line.trim_ascii_start().iter().any(u8::is_ascii_whitespace);
    start.len() as u64 == SHEBANG_BYTES && !is_whole
}

/// The interpreter in the `#!` line of a script.
fn read_shebang_interpreter(path: &Path) -> Option<String> {
    let start = read_file_start(path)?;
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    line.split([' ', '\t']).find(|word| !word.is_empty()).map(str::to_owned)
}

/// `end`, unless its cause is that `directory` cannot be entered, which is only checked after a failure.
pub(super) fn directory_error_or(directory: &Path, end: ProcessEnd) -> ProcessEnd {
    check_working_directory(directory).err().unwrap_or(end)
}

/// The end of a command whose limits cannot be set.
pub(super) fn unlimited_end(error: &io::Error) -> ProcessEnd {
    let reason = format!("could not set the limits of the call: {error}");
    ProcessEnd::NotStarted { code: NOT_EXECUTABLE_EXIT_CODE, reason }
}

fn not_started_end(code: i32, reason: String) -> ProcessEnd {
    ProcessEnd::NotStarted { code, reason }
}
