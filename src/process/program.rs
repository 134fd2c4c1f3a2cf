//! Which file a command's program is, and why it cannot be run, in words that help.

use super::{End, Launch};
use rustix::fs::Access;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The exit code that shells give for a program that was not found.
pub(super) const NOT_FOUND: i32 = 127;
/// The exit code that shells give for a program that cannot be executed.
const NOT_EXECUTABLE: i32 = 126;

/// As many bytes as most paths of programs have.
const ROOM: usize = 128;

/// What a program lacks that would not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// There is no such file.
    File,
    /// It may not be executed.
    Permission,
    /// It is a text without a `#!` line; a shell that starts it reads it itself.
    Marker,
    /// Its `#!` line names a program that is not there.
    Interpreter,
}

/// Why a program would not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotFound {
    /// What is not there.
    pub lack: Lack,
    /// The reason, as a sentence without its full stop.
    pub reason: String,
}

/// Checks that a child can start in `directory`.
pub(super) fn check_directory(directory: &Path) -> Result<(), End> {
    let reason = match fs::metadata(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => "does not exist".to_owned(),
        Err(error) => format!("cannot be entered: {error}"),
        Ok(found) if !found.is_dir() => "is not a directory".to_owned(),
        Ok(_) => match rustix::fs::access(directory, Access::EXEC_OK) {
            Ok(()) => return Ok(()),
            Err(error) => format!("cannot be entered: {}", io::Error::from(error)),
        },
    };
    Err(refuse(NOT_EXECUTABLE, format!("the working directory `{}` {reason}", directory.display())))
}

/// The absolute path of the program `name`: with a slash relative to the working directory, else found in PATH.
pub(super) fn find(name: &str, launch: &Launch) -> Result<PathBuf, End> {
    if name.contains('/') {
        let path = absolute(launch.cwd.join(name));
        return check(&path).map(|()| path).map_err(|obstacle| obstacle.refuse(name));
    }
    // An empty name would find the directories of PATH themselves.
    let search = launch.env.get("PATH").filter(|_| !name.is_empty());
    let directories = search.map(|search| search.as_bytes().split(|byte| *byte == b':'));
    let (mut forbidden, mut path) = (None, PathBuf::with_capacity(ROOM));
    for directory in directories.into_iter().flatten() {
        path.clear();
        path.push(OsStr::from_bytes(directory));
        path.push(name);
        if !path.is_absolute() {
            path = absolute(launch.cwd.join(&path));
        }
        match check(&path) {
            Ok(()) => return Ok(path),
            Err(Obstacle::Missing | Obstacle::NotAFile(_)) => {}
            Err(obstacle) => {
                forbidden.get_or_insert_with(|| obstacle.refuse(&path.display().to_string()));
            }
        }
    }
    let unset = if search.is_none() && !name.is_empty() { ", which is not set" } else { "" };
    Err(forbidden.unwrap_or_else(|| {
        refuse(NOT_FOUND, format!("program `{name}` was not found in PATH{unset}"))
    }))
}

/// Why the system did not start the program `name`, which is the file `path`.
pub(super) fn explain(error: &io::Error, name: &str, path: &Path) -> End {
    let reason = match (Errno::from_io_error(error), interpreter(path)) {
        (Some(Errno::TOOBIG), _) => {
            "the argument list is too long for the system: give the large value by stdin".to_owned()
        }
        (Some(Errno::NOEXEC), _) => without_marker(name),
        (Some(Errno::NOENT), Some(interpreter)) => without_interpreter(name, &interpreter),
        (Some(Errno::NOENT), None) => {
            format!("`{name}`, or the loader that it needs, was not found")
        }
        (Some(Errno::ACCESS), Some(interpreter)) => {
            format!("the interpreter `{interpreter}` of `{name}` may not be executed")
        }
        (Some(Errno::TXTBSY), _) => format!("`{name}` is still open for writing somewhere"),
        _ => format!("`{name}` could not be started: {error}"),
    };
    refuse(NOT_EXECUTABLE, reason)
}

/// Why the system would not start the program `name`, which is the executable file `path`, as far as its first line
/// tells.
pub(super) fn look_inside(name: &str, path: &Path, launch: &Launch) -> Option<(Lack, String)> {
    if let Some(interpreter) = interpreter(path) {
        let is_there = launch.cwd.join(&interpreter).exists();
        return (!is_there).then(|| (Lack::Interpreter, without_interpreter(name, &interpreter)));
    }
    // Every format of programs has a NUL near its beginning, and no script has one.
    let start = beginning(path)?;
    let is_text = !start.starts_with(b"#!") && !start.contains(&0);
    is_text.then(|| (Lack::Marker, without_marker(name)))
}

fn without_marker(name: &str) -> String {
    format!("`{name}` is neither a program for this system nor a script with a `#!` line")
}

fn without_interpreter(name: &str, interpreter: &str) -> String {
    match interpreter.ends_with('\r') {
        true => format!(
            "the `#!` line of `{name}` ends with a carriage return: save the file with Unix line ends"
        ),
        false => format!("the interpreter `{interpreter}` of `{name}` was not found"),
    }
}

/// The refusal of a command that holds a NUL byte.
pub(super) fn holds_nul() -> End {
    let reason =
        "an argument or an environment variable holds a NUL byte, which no program can be given";
    refuse(NOT_EXECUTABLE, reason.to_owned())
}

/// What stands between a path and its execution.
enum Obstacle {
    Missing,
    NotAFile(&'static str),
    Forbidden(&'static str),
}

impl Obstacle {
    fn refuse(&self, name: &str) -> End {
        match self {
            Self::Missing => refuse(NOT_FOUND, format!("program `{name}` does not exist")),
            Self::NotAFile(what) | Self::Forbidden(what) => {
                refuse(NOT_EXECUTABLE, format!("`{name}` {what}"))
            }
        }
    }
}

fn check(path: &Path) -> Result<(), Obstacle> {
    let allowed = rustix::fs::access(path, Access::EXEC_OK);
    // So it is in most directories of PATH.
    if allowed == Err(Errno::NOENT) {
        return Err(Obstacle::Missing);
    }
    let found = fs::metadata(path).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            Obstacle::Forbidden("lies in a directory that may not be entered")
        }
        _ => Obstacle::Missing,
    })?;
    if found.is_dir() {
        return Err(Obstacle::NotAFile("is a directory, not a program"));
    }
    if !found.is_file() {
        return Err(Obstacle::NotAFile("is not a regular file"));
    }
    if found.permissions().mode() & 0o111 == 0 {
        return Err(Obstacle::Forbidden("is not executable (no x permission)"));
    }
    allowed.map_err(|_| {
        Obstacle::Forbidden("may not be executed by this user, or on its file system (noexec)")
    })
}

fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

/// The first bytes of a file, when it may be read.
fn beginning(path: &Path) -> Option<Vec<u8>> {
    let mut start = Vec::new();
    File::open(path).ok()?.take(256).read_to_end(&mut start).ok()?;
    Some(start)
}

/// What the `#!` line of a script names.
fn interpreter(path: &Path) -> Option<String> {
    let start = beginning(path)?;
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    line.split([' ', '\t']).find(|word| !word.is_empty()).map(str::to_owned)
}

fn refuse(code: i32, reason: String) -> End {
    End::NotStarted { code, reason }
}
