//! What a command line starts and finds: what a person approves is this, not only its words.

use super::EngineError;
use delta_base::hex::{sha256_hex, sha256_hex_of_reader};
use delta_base::signal::CancelToken;
use delta_process::{self as process, LaunchContext};
use delta_run::event::approval::WorkspaceCode;
use delta_run::workspace::{CONTROL_DIR, runs_dir};
use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Extensions of files that an interpreter runs.
const SCRIPT_EXTENSIONS: [&str; 16] = [
    "awk", "bash", "cjs", "fish", "js", "lua", "mjs", "php", "pl", "ps1", "py", "r", "rb", "sh",
    "ts", "zsh",
];

/// Words before a script, which may have any name. Options may be between an interpreter and its script.
const BEFORE_SCRIPTS: [&str; 18] = [
    ".",
    "source",
    "sh",
    "bash",
    "dash",
    "zsh",
    "python",
    "python3",
    "perl",
    "ruby",
    "node",
    "-f",
    "--file",
    "--makefile",
    "--init-file",
    "--rcfile",
    "BASH_ENV",
    "ENV",
];

/// Extensions of files from which programs are built, or that say what a build runs.
const SOURCE_EXTENSIONS: [&str; 30] = [
    "bat", "c", "cc", "cfg", "cmake", "cpp", "cs", "cxx", "ex", "exs", "go", "gradle", "h", "hpp",
    "hs", "ini", "java", "jsx", "kt", "kts", "mk", "ml", "nix", "pyx", "rake", "rs", "scala",
    "swift", "toml", "tsx",
];

/// Names of files that say what a build or git runs.
const BUILD_NAMES: [&str; 17] = [
    ".envrc",
    ".git",
    ".gitattributes",
    ".gitmodules",
    ".npmrc",
    "composer.json",
    "containerfile",
    "deno.json",
    "dockerfile",
    "gemfile",
    "gnumakefile",
    "go.mod",
    "justfile",
    "makefile",
    "package.json",
    "procfile",
    "rakefile",
];

/// What git follows in a git directory; the rest changes with every command of git.
const GIT_NAMES: [&str; 8] = [
    "commondir",
    "config",
    "config.worktree",
    "hooks",
    "info",
    "rebase-apply",
    "rebase-merge",
    "sequencer",
];

/// The most entries of a workspace that are looked at. 200,000 take less than a second.
const MAX_ENTRIES: usize = 200_000;

/// The most directories that a command line names in which its scripts are looked for.
const MAX_DIRECTORIES: usize = 8;

/// The SHA-256 of the program of a command and of the scripts that its words name and that are in the workspace, by their
/// paths. A script in shell text is a word of it.
pub(super) fn started_files(argv: &[String], launch: &LaunchContext) -> BTreeMap<String, String> {
    let program = argv.first().and_then(|name| process::find_program(name, launch).ok());
    let words: Vec<String> = argv.iter().flat_map(|argument| words_of_argument(argument)).collect();
    // `make -C NAME -f`, `cd NAME && sh`.
    let named = words.iter().map(|word| launch.cwd.join(word)).filter(|path| path.is_dir());
    let mut directories: BTreeSet<PathBuf> = named.take(MAX_DIRECTORIES).collect();
    directories.insert(launch.cwd.clone());
    let mut before = "";
    let mut scripts = Vec::new();
    for word in &words {
        let path = launch.cwd.join(word);
        if is_in(&path, &launch.cwd) && is_script(&path) {
            scripts.push(path);
        }
        let attached = word.strip_prefix("-f").filter(|name| !name.is_empty());
        if let Some(name) = attached.or(BEFORE_SCRIPTS.contains(&before).then_some(word)) {
            let paths = directories.iter().map(|directory| directory.join(name));
            scripts.extend(paths.filter(|path| is_in(path, &launch.cwd)));
        }
        let is_option = word.len() > 1 && word.starts_with('-');
        if !is_option || BEFORE_SCRIPTS.contains(&&**word) {
            before = word;
        }
    }
    program.into_iter().chain(scripts).filter_map(|path| hashed_file(&path)).collect()
}

/// A program of the workspace that a command line starts in place of one with its name.
pub(super) struct ShadowingProgram {
    /// Its path in the workspace; the file may be a symlink.
    pub(super) path: PathBuf,
    /// What PATH has elsewhere.
    pub(super) hides: PathBuf,
}

impl ShadowingProgram {
    /// Finds it; `None` if what starts is not in the workspace, or nothing else has its name.
    pub(super) fn find(words: &[String], launch: &LaunchContext) -> Option<Self> {
        let name = words.first().filter(|name| !name.contains('/'))?;
        let program = process::find_program_file(name, launch)?;
        let root = launch.cwd.canonicalize().ok()?;
        let is_own = |path: &Path| {
            launch.cwd.join(path).canonicalize().is_ok_and(|path| path.starts_with(&root))
        };
        if !is_own(&program) && !program.parent().is_some_and(is_own) {
            return None;
        }
        let directories = env::split_paths(launch.env.get("PATH")?);
        let elsewhere = directories.filter(|dir| !is_own(dir) && !is_own(&dir.join(name)));
        let mut outside = launch.clone();
        outside.env.set("PATH", env::join_paths(elsewhere).ok()?);
        let hides = process::find_program_file(name, &outside)?;
        let target = program.canonicalize().ok()?;
        // A virtual environment links to the interpreter.
        if hides.canonicalize().ok()? == target {
            return None;
        }
        let named = program.parent()?.canonicalize().ok()?.join(program.file_name()?);
        let path = if named.starts_with(&root) { named } else { target };
        Some(Self { path, hides })
    }
}

/// The words of an argument, which can be a script: all of it, what is between characters that end a word, also in quotes, and
/// what a shell reads in the quotes.
fn words_of_argument(argument: &str) -> Vec<String> {
    let pieces = std::iter::once(argument).chain(argument.split(is_shell_separator));
    let mut words: Vec<String> = pieces.map(str::to_owned).collect();
    let is_plain = !argument.contains(['\'', '"', '\\', '$']);
    if !is_plain {
        words.extend(quoted_words(&argument.replace("${PWD}", ".").replace("$PWD", ".")));
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The words of a script, without their quotes.
fn quoted_words(script: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    let mut characters = script.chars();
    while let Some(character) = characters.next() {
        let mut literal = Some(character);
        match quote {
            Some(end) if character == end => (quote, literal) = (None, None),
            None if character == '\'' || character == '"' => {
                (quote, literal) = (Some(character), None);
            }
            Some('"') | None if character == '\\' => literal = characters.next(),
            None if is_shell_separator(character) => {
                words.push(String::new());
                literal = None;
            }
            _ => {}
        }
        if let Some(word) = words.last_mut() {
            word.extend(literal);
        }
    }
    words
}

/// A file with the SHA-256 of its content; `None` if it cannot be read.
pub(super) fn hashed_file(path: &Path) -> Option<(String, String)> {
    let sha256 = File::open(path).and_then(sha256_hex_of_reader).ok()?;
    Some((path.to_string_lossy().into_owned(), sha256))
}

/// Whether a file, followed through symlinks, is in the directory.
fn is_in(path: &Path, directory: &Path) -> bool {
    let paths = path.canonicalize().ok().zip(directory.canonicalize().ok());
    paths.is_some_and(|(path, directory)| path.starts_with(directory) && path.is_file())
}

/// Whether something would run the file: it may be executed, begins with `#!`, or has the name of a script.
fn is_script(path: &Path) -> bool {
    let mut start = [0; 2];
    has_extension(path, &SCRIPT_EXTENSIONS)
        || process::is_program(path)
        || File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok()
            && start == *b"#!"
}

fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|extension| extensions.contains(&&*extension.to_ascii_lowercase()))
}

/// Whether a character ends a word in a script.
fn is_shell_separator(character: char) -> bool {
    character.is_whitespace() || ";&|()<>'\"`$={}".contains(character)
}

/// The files of a workspace that a command may reach by itself: programs, scripts, sources, and what says what a build or git
/// runs. Data is left out, because logs and results change all the time.
#[derive(Debug, Default)]
pub(super) struct CodeFiles {
    /// The paths, and when each was changed last: in nanoseconds, by the clock of the file system.
    changed_at: BTreeMap<PathBuf, i64>,
    fingerprint: Option<WorkspaceCode>,
}

impl CodeFiles {
    /// Looks at the files in `workspace`, and the ones that git follows elsewhere or that have other names, `followed`, but not into
    /// them: only the kernel sets the time of the last change of a file. Symlinks are not followed.
    ///
    /// # Errors
    /// Only [`EngineError::Cancelled`]; what cannot be listed is left out.
    pub(super) fn list(
        workspace: &Path,
        followed: Vec<PathBuf>,
        cancel: &CancelToken,
    ) -> Result<Self, EngineError> {
        let mut stamps = BTreeMap::new();
        let mut add = |path: &Path, metadata: &Metadata| {
            let relative = path.strip_prefix(workspace).unwrap_or(path).to_owned();
            let seconds = metadata.ctime().saturating_mul(1_000_000_000);
            let changed_at = seconds.saturating_add(metadata.ctime_nsec());
            stamps.insert(relative, (changed_at, metadata.size(), metadata.mode()));
        };
        let mut directories = vec![(workspace.to_owned(), false)];
        for path in followed {
            match path.symlink_metadata() {
                Ok(metadata) if metadata.is_dir() => directories.push((path, true)),
                Ok(metadata) => add(&path, &metadata),
                Err(_) => {}
            }
        }
        let mut entries = 0;
        while let Some((directory, is_followed)) = directories.pop() {
            if cancel.is_requested() {
                return Err(EngineError::Cancelled);
            }
            for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
                entries += 1;
                if entries > MAX_ENTRIES {
                    return Ok(Self::default());
                }
                let name = entry.file_name();
                let path = entry.path();
                let Ok(metadata) = entry.metadata() else { continue };
                let is_git_dir = directory.ends_with(".git");
                if is_git_dir && !GIT_NAMES.iter().any(|one| name == *one) {
                    continue;
                }
                if metadata.is_dir() {
                    if name != CONTROL_DIR && runs_dir() != Some(&path) {
                        directories.push((path, is_followed || name == ".git"));
                    }
                } else if is_followed || is_code(&path, &metadata) {
                    add(&path, &metadata);
                }
            }
        }
        let mut text = Vec::new();
        for (path, stamp) in &stamps {
            text.extend(path.as_os_str().as_bytes());
            text.extend(format!("\0{stamp:?}\n").bytes());
        }
        let changed_at: BTreeMap<PathBuf, i64> =
            stamps.into_iter().map(|(path, (changed_at, ..))| (path, changed_at)).collect();
        let newest = changed_at.values().max().copied().unwrap_or_default();
        let fingerprint = Some(WorkspaceCode { sha256: sha256_hex(&text), newest });
        Ok(Self { changed_at, fingerprint })
    }

    /// What a later list is compared with; `None` if the workspace has too many entries.
    pub(super) fn fingerprint(&self) -> Option<&WorkspaceCode> {
        self.fingerprint.as_ref()
    }

    /// The names of the files that have changed since `then`; one name for all that were removed.
    pub(super) fn names_changed_since(&self, then: &WorkspaceCode) -> Vec<String> {
        if self.fingerprint() == Some(then) {
            return Vec::new();
        }
        let newer = self.changed_at.iter().filter(|(_, at)| **at > then.newest);
        let names: Vec<_> = newer.map(|(path, _)| path.to_string_lossy().into_owned()).collect();
        if names.is_empty() { vec!["files of the workspace".to_owned()] } else { names }
    }
}

/// Whether something may run the file, or build from it.
fn is_code(path: &Path, metadata: &Metadata) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let has_code_name = has_extension(path, &SCRIPT_EXTENSIONS)
        || has_extension(path, &SOURCE_EXTENSIONS)
        || BUILD_NAMES.contains(&&*name);
    metadata.is_symlink() || metadata.is_file() && (has_code_name || metadata.mode() & 0o111 != 0)
}

/// The names of what differs in two maps, without `directory` before a path in it.
pub(super) fn changed_names(
    then: &BTreeMap<String, String>,
    now: &BTreeMap<String, String>,
    directory: &Path,
) -> BTreeSet<String> {
    let names = then.keys().chain(now.keys()).filter(|name| then.get(*name) != now.get(*name));
    let short = names.map(|name| {
        let path: PathBuf = Path::new(name).components().collect();
        path.strip_prefix(directory).unwrap_or(&path).to_string_lossy().into_owned()
    });
    short.collect()
}
