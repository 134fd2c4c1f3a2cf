//! Every `console` block of the README, docs/ and examples/ is run, in order. Each document has a separate directory with
//! a copy of examples/.
//!
//! A line that begins with `$ ` is a command for `sh`; a line that begins with `> ` continues it. The other lines are the
//! output of the command: stderr first, then stdout. A line `...` matches any lines. A block whose info string has a
//! second word is the file of that name. With UPDATE_DOCS=1 the test corrects the documents instead. `console needs=A,B` is
//! run only where the programs A and B are installed, and a document with other blocks that need a program only where it is. DOCS=docs/guide/hooks.md checks the documents whose path begins so.

use super::markdown::{Block, blocks};
use super::{DELTA, SESSIONS, command_line, root, texts};
use regex::Regex;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use test_support::effort::in_parallel;
use test_support::needs;

/// The directory that the documents show instead of the temporary one.
const SHOWN_DIR: &str = "/home/me/delta";

#[test]
fn every_console_block_prints_what_it_shows() {
    let documents: Vec<_> = texts(&[".md"]).into_iter().filter(|(file, _)| is_run(file)).collect();
    let least = if std::env::var_os("DOCS").is_some() { 1 } else { 6 };
    assert!(documents.len() >= least, "where are the documents?");
    let wrong = in_parallel(&documents, |(file, text)| check_document(file, text)).concat();
    let count = wrong.len();
    assert!(
        wrong.is_empty(),
        "\n{}\n\n{count} blocks differ; UPDATE_DOCS=1 corrects those without `...`",
        wrong.join("\n")
    );
}

fn is_run(file: &Path) -> bool {
    let chosen = std::env::var("DOCS").unwrap_or_default();
    let is_document =
        file == Path::new("README.md") || file.starts_with("docs") || file.starts_with("examples");
    is_document && file.to_string_lossy().starts_with(&chosen)
}

/// The programs that the document uses without `needs=`, because other blocks build on these, or that its example uses, and
/// that this machine does not have.
fn missing_for_document(file: &Path, text: &str) -> Vec<&'static str> {
    let is_used = |block: &Block| {
        let second = block.info.split_whitespace().nth(1);
        second.is_none_or(|second| !second.starts_with("needs="))
    };
    let mut used: String =
        blocks(text).into_iter().filter(is_used).map(|block| block.text).collect();
    if file.starts_with("examples") {
        used += &needs::text_of_agent(&root().join(file.parent().unwrap()));
    }
    needs::missing_in_text(&used)
}

/// The programs that the block needs and this machine does not have.
fn missing_programs(needs: Option<&str>) -> Vec<&str> {
    let listed = needs.and_then(|word| word.strip_prefix("needs=")).unwrap_or_default();
    let names: Vec<&str> = listed.split(',').filter(|name| !name.is_empty()).collect();
    needs::missing_programs(&names)
}

fn check_document(file: &Path, text: &str) -> Vec<String> {
    let missing = missing_for_document(file, text);
    if !missing.is_empty() {
        needs::skip_part(format!("{} needs {}", file.display(), missing.join(", ")));
        return Vec::new();
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().canonicalize().unwrap();
    let bin = dir.join(".bin");
    fs::create_dir_all(&bin).unwrap();
    fs::create_dir(dir.join(".tmp")).unwrap();
    std::os::unix::fs::symlink(DELTA, bin.join("delta")).unwrap();
    std::os::unix::fs::symlink(&*SESSIONS, bin.join("delta-sessions")).unwrap();
    std::os::unix::fs::symlink(&*SESSIONS, bin.join("delta-sessions-pty")).unwrap();
    copy_examples(&dir);
    // The commands of an example's README run in the directory of the example.
    let work_dir =
        if file.starts_with("examples") { dir.join(file.parent().unwrap()) } else { dir.clone() };
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let (mut wrong, mut edits) = (Vec::new(), Vec::new());
    for block in blocks(text) {
        let mut info = block.info.split_whitespace();
        match (info.next(), info.next()) {
            (Some("console"), needs) => {
                let missing = missing_programs(needs);
                if !missing.is_empty() {
                    let (file, line) = (file.display(), block.first);
                    needs::skip_part(format!("{file}:{line} needs {}", missing.join(", ")));
                    continue;
                }
                let found = run_block(&block, &work_dir, &dir);
                if !matches(&block.text, &found) {
                    wrong.push(report(file, &block, &found));
                    edits.push((block, found));
                }
            }
            (Some(_), Some(name)) => {
                let path = work_dir.join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, &block.text).unwrap();
            }
            _ => {}
        }
    }
    if std::env::var_os("UPDATE_DOCS").is_none() || edits.is_empty() {
        return wrong;
    }
    for (block, found) in edits.iter().rev().filter(|(block, _)| !has_ellipsis(&block.text)) {
        lines.splice(block.first..block.end, found.lines().map(str::to_owned));
    }
    fs::write(root().join(file), lines.join("\n") + "\n").unwrap();
    edits
        .iter()
        .filter(|(block, _)| has_ellipsis(&block.text))
        .map(|(block, found)| report(file, block, found))
        .collect()
}

fn report(file: &Path, block: &Block, found: &str) -> String {
    format!(
        "{}:{}: the document shows\n{}\nbut the commands print\n{found}",
        file.display(),
        block.first + 1,
        block.text
    )
}

fn copy_examples(dir: &Path) {
    for file in super::files().iter().filter(|file| file.starts_with("examples")) {
        let to = dir.join(file);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(root().join(file), to).unwrap();
    }
}

/// The expected text of the block: its commands, each with its output.
fn run_block(block: &Block, dir: &Path, home: &Path) -> String {
    let mut out = String::new();
    for command in commands(block) {
        out.push_str(&command.shown);
        out.push_str(&run(&command.script, dir, home));
    }
    out
}

struct Shown {
    /// The lines of the document.
    shown: String,
    /// The same for `sh`.
    script: String,
}

fn commands(block: &Block) -> Vec<Shown> {
    let mut commands: Vec<Shown> = Vec::new();
    let mut is_command = false;
    for line in block.text.lines() {
        if let Some(script) = line.strip_prefix("$ ") {
            commands.push(Shown { shown: format!("{line}\n"), script: script.to_owned() });
            is_command = true;
        } else if let (Some(more), true) = (line.strip_prefix("> "), is_command) {
            let last = commands.last_mut().unwrap();
            last.shown.push_str(&format!("{line}\n"));
            last.script.push_str(&format!("\n{more}"));
        } else {
            is_command = false;
        }
    }
    assert!(!commands.is_empty(), "a console block without a command: {}", block.text);
    commands
}

fn run(script: &str, dir: &Path, home: &Path) -> String {
    let script = script.replace("cargo run -- ", "delta ");
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("sh")
        .args(["-c", &script])
        .current_dir(dir)
        .env_clear()
        .env("PATH", format!("{}:{path}", home.join(".bin").display()))
        .env("HOME", home)
        .env("TMPDIR", home.join(".tmp"))
        .env("LANG", "C.UTF-8")
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let both = [output.stderr, output.stdout]
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .concat();
    assert!(output.status.success(), "`{script}` exited with {}:\n{both}", output.status);
    let shown = both.replace(&home.join(".tmp").display().to_string(), "/tmp");
    let shown = shown.replace(&home.display().to_string(), SHOWN_DIR);
    shown.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// `text` with everything replaced that differs from run to run, and without blanks at the ends of lines.
pub fn normalised(text: &str) -> String {
    const PATTERNS: [(&str, &str); 18] = [
        (r"\b\d{8}_\d{6}_[0-9a-f]{6}\b", "RUN_ID"),
        (r"\d{8}T\d{9}Z", "STAMP"),
        (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "TIMESTAMP"),
        (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "UUID"),
        (r"(--request-id|the answer to) [0-9a-f]{8}\b", "$1 REQUEST"),
        (r"\b[0-9a-f]{64}\b", "SHA256"),
        (r"\bsess_[0-9a-f]{8}\b", "SESSION"),
        (
            r#"("(?:duration_ms|total_duration_ms|execution_time_ms|pid|start_time_unix)": ?)\d+"#,
            "${1}N",
        ),
        (r#"("hostname": ?)"[^"]*""#, "${1}\"HOST\""),
        (r"(?m)^(Duration: +)\S.*$", "${1}TIME"),
        (
            r"(?m)\b([A-Z_]+ after \d+ iterations?(?:, .*)?), [\d.]+(?:ms|s|m \d\ds|h \d\dm)$",
            "$1, TIME",
        ),
        (r"\bpid \d+\b", "pid N"),
        (r"\b127\.0\.0\.1:\d+\b", "127.0.0.1:PORT"),
        (r"\b(Ran \d+ tests?) in [\d.]+s\b", "$1 in TIME"),
        (r"\(\d+\.\d s\)", "(N s)"),
        (r"\bdelta-test-[0-9a-f]{8}\b", "delta-test-ID"),
        (r"\bchecksum [0-9a-f]{8}\b", "checksum CRC"),
        (r"[ \t]+\n", "\n"),
    ];
    PATTERNS.iter().fold(text.to_owned(), |text, (pattern, replacement)| {
        Regex::new(pattern).unwrap().replace_all(&text, *replacement).into_owned()
    })
}

fn has_ellipsis(text: &str) -> bool {
    text.lines().any(|line| line == "...")
}

/// Whether `found` is what is shown; `...` matches any lines.
fn matches(shown: &str, found: &str) -> bool {
    let (shown, found) = (normalised(shown), normalised(found));
    let (shown, found): (Vec<_>, Vec<_>) = (shown.lines().collect(), found.lines().collect());
    fits(&shown, &found)
}

fn fits(shown: &[&str], found: &[&str]) -> bool {
    match shown.split_first() {
        None => found.is_empty(),
        Some((&"...", rest)) => (0..=found.len()).any(|skipped| fits(rest, &found[skipped..])),
        Some((line, rest)) => found.first() == Some(line) && fits(rest, &found[1..]),
    }
}

#[test]
fn the_reference_of_the_command_line_is_what_help_prints() {
    let path = root().join("docs/reference/cli.md");
    let reference = command_line::reference(&[DELTA, &SESSIONS]);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &reference).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap();
    let differs = written.lines().zip(reference.lines()).find(|(line, printed)| line != printed);
    assert!(written == reference, "UPDATE_DOCS=1 corrects docs/reference/cli.md: {differs:?}");
}

#[test]
fn the_paths_in_documents_are_not_of_any_machine() {
    let named: Vec<PathBuf> = texts(&[".md"])
        .into_iter()
        .filter(|(_, text)| Regex::new("/root/|/Users/").unwrap().is_match(text))
        .map(|(file, _)| file)
        .collect();
    assert!(named.is_empty(), "{named:?}");
}
