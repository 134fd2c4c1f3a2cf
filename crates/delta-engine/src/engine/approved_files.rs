//! The files that a command line starts: what a person approves is these, not only their names.

use delta_base::hex::sha256_hex_of_reader;
use delta_process::{self as process, LaunchContext};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Extensions of files that an interpreter runs.
const SCRIPT_EXTENSIONS: [&str; 16] = [
    "awk", "bash", "cjs", "fish", "js", "lua", "mjs", "php", "pl", "ps1", "py", "r", "rb", "sh",
    "ts", "zsh",
];

/// The SHA-256 of the program of a command and of the scripts that its words name and that are in the workspace, by their
/// paths. A script in shell text is a word of it.
pub(super) fn started_files(argv: &[String], launch: &LaunchContext) -> BTreeMap<String, String> {
    let program = argv.first().and_then(|name| process::find_program(name, launch).ok());
    let words = argv.iter().flat_map(|argument| {
        std::iter::once(argument.as_str()).chain(argument.split(is_shell_separator))
    });
    let named = words.filter(|word| !word.is_empty()).map(|word| launch.cwd.join(word));
    let scripts = named.filter(|path| is_in(path, &launch.cwd) && is_script(path));
    let files: Vec<PathBuf> = program.into_iter().chain(scripts).collect();
    let hashed = files.into_iter().filter_map(|path| {
        let sha256 = File::open(&path).and_then(sha256_hex_of_reader).ok()?;
        Some((path.to_string_lossy().into_owned(), sha256))
    });
    hashed.collect()
}

/// Whether a file, followed through symlinks, is in the directory.
fn is_in(path: &Path, directory: &Path) -> bool {
    let paths = path.canonicalize().ok().zip(directory.canonicalize().ok());
    paths.is_some_and(|(path, directory)| path.starts_with(directory) && path.is_file())
}

/// Whether something would run the file: it may be executed, begins with `#!`, or has the name of a script.
fn is_script(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    let mut start = [0; 2];
    extension.is_some_and(|extension| SCRIPT_EXTENSIONS.contains(&&*extension.to_ascii_lowercase()))
        || process::is_program(path)
        || File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok()
            && start == *b"#!"
}

/// Whether a character ends a word in a script.
fn is_shell_separator(character: char) -> bool {
    character.is_whitespace() || ";&|()<>'\"`$={}".contains(character)
}
