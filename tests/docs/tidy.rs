//! What the sources promise each other.

use super::{root, texts};
use regex::Regex;
use std::fs;
use std::path::Path;

/// The text without comments, and without the items that are compiled for tests only.
fn without_tests(text: &str) -> String {
    let mut out = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.trim() != "#[cfg(test)]" {
            out.push_str(line.split("//").next().unwrap_or_default());
            out.push('\n');
            continue;
        }
        // The item ends with a `;` on its own line, or with a brace as far to the left as it began.
        let indent = &line[..line.len() - line.trim_start().len()];
        let mut item = lines.by_ref().skip_while(|line| line.trim_start().starts_with("#["));
        if item.next().is_some_and(|first| !first.ends_with(';')) {
            let end = format!("{indent}}}");
            lines.by_ref().find(|line| *line == end);
        }
    }
    out
}

#[test]
fn nothing_is_left_lying_about() {
    let words = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("dbg", "!")];
    let place = Regex::new(concat!(r"(?:^|[\s'`(=:])/work/|/tmp", "/h/")).unwrap();
    let mut found = Vec::new();
    for (file, text) in texts(&[".rs", ".md", ".yaml", ".toml", ".sh", ".ci/run"]) {
        for (number, line) in text.lines().enumerate() {
            let word = words.iter().find(|word| line.contains(**word));
            if word.is_some() || place.is_match(line) {
                found.push(format!("{}:{}: {line}", file.display(), number + 1));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_test_file_is_compiled() {
    let mut forgotten = Vec::new();
    for (file, _) in texts(&[".rs"]) {
        let Ok(inside) = file.strip_prefix("tests") else { continue };
        let (Some(parent), Some(stem)) = (inside.parent(), inside.file_stem()) else { continue };
        if parent == Path::new("") || stem == "main" || stem == "mod" {
            continue;
        }
        let dir = root().join("tests").join(parent);
        let module = format!("mod {};", stem.to_string_lossy());
        let owners = [dir.join("main.rs"), dir.join("mod.rs"), dir.with_extension("rs")];
        let named = owners
            .iter()
            .filter_map(|owner| fs::read_to_string(owner).ok())
            .any(|text| text.contains(&module));
        if !named {
            forgotten.push(file);
        }
    }
    assert!(forgotten.is_empty(), "no `mod` names {forgotten:?}");
}

/// Only what `test_support::needs` prints is counted, and shown where the test passes.
#[test]
fn no_test_reports_a_skip_by_itself() {
    let report = Regex::new(
        r#"\be?println!\(\s*"[^"]*(?i:not (tested|run|tried|shown|proven)\b|skipped|skipping|(is|are) missing|(is|are) absent)"#,
    )
    .unwrap();
    assert!(report.is_match(concat!("print", "ln!(\"not tested: {}\", ran.stderr)")));
    let mut found = Vec::new();
    for (file, text) in texts(&[".rs"]) {
        found.extend(
            report.find_iter(&text).map(|hit| format!("{}: {}", file.display(), hit.as_str())),
        );
    }
    assert!(found.is_empty(), "use `test_support::needs`:\n{}", found.join("\n"));
}

#[test]
fn the_reader_of_sources_skips_tests() {
    let text = "use crate::a; // crate::b\n#[cfg(test)]\nmod tests;\nfn x() {}\n    #[cfg(test)]\n    fn y() {\n        crate::c\n    }\n#[cfg(test)]\nmod tests {\n    use crate::d;\n}\nfn z() {}\n";
    assert_eq!(without_tests(text), "use crate::a; \nfn x() {}\nfn z() {}\n");
}

/// The crates that work in `.delta` and `.sessions`.
const WORK_IN_RUN_DIRECTORIES: [&str; 5] = [
    "crates/delta-process/src/capture.rs",
    "crates/delta-report/src",
    "crates/delta-run/src",
    "crates/delta-sessions/src",
    "crates/delta-snapshot/src",
];

/// Their files that also open what is not in a run directory, and what that is.
const OPEN_OTHER_FILES: [(&str, &str); 17] = [
    ("crates/delta-run/src/fork/workspace_copy.rs", "the files of a workspace"),
    ("crates/delta-run/src/ownership/owner_process.rs", "/proc"),
    ("crates/delta-run/src/sweep/packed.rs", "the packs of a sweep"),
    ("crates/delta-run/src/sweep/packed/run_archive.rs", "the files of a workspace"),
    ("crates/delta-run/src/ownership/run_process.rs", "/proc"),
    ("crates/delta-run/src/journal/seal_key.rs", "the operator's keys"),
    ("crates/delta-run/src/sweep/sweep_dir.rs", "the plans of a sweep"),
    ("crates/delta-run/src/workspace.rs", "directories that may be workspaces"),
    (
        "crates/delta-run/src/workspace/workspace_search.rs",
        "directories that may have workspaces below them",
    ),
    ("crates/delta-sessions/src/exec.rs", "the working directory of a session"),
    ("crates/delta-sessions/src/pty/holder.rs", "names in its own current directory"),
    ("crates/delta-snapshot/src/directory_hash.rs", "the files of an agent, by descriptors"),
    ("crates/delta-snapshot/src/lib.rs", "the workspace"),
    ("crates/delta-snapshot/src/object_store.rs", "/proc"),
    ("crates/delta-snapshot/src/restore.rs", "the files of a workspace, by descriptors"),
    ("crates/delta-snapshot/src/staging.rs", "the layers of a stage, by descriptors"),
    ("crates/delta-snapshot/src/workspace_walk.rs", "the files of a workspace, by descriptors"),
];

/// A path that is opened without `durable` follows the symlinks that a tool has made.
#[test]
fn c_20_5_files_of_runs_are_opened_in_one_place() {
    let call = Regex::new(
        r"\bfs::(read|write|copy|remove|create|rename|metadata|symlink|hard_link|set_perm|exists|canonicalize|open)|\bFile::(open|create|options)|OpenOptions|\.(exists|is_dir|is_file|is_symlink|symlink_metadata|read_dir|try_exists)\(\)",
    )
    .unwrap();
    // Questions to metadata that was read already.
    let answered =
        Regex::new(r"\b(metadata|kind|entry|file_type|found)\.(is_dir|is_file|is_symlink)\(\)")
            .unwrap();
    let own = Regex::new(r"\b(AppendFile|DraftFile|NewPrivateFile|LogFile)::").unwrap();
    let mut found = Vec::new();
    for (file, text) in texts(&[".rs"]) {
        let works_there = WORK_IN_RUN_DIRECTORIES.iter().any(|dir| file.starts_with(dir));
        let is_exempt = OPEN_OTHER_FILES.iter().any(|(exempt, _)| file == Path::new(exempt));
        if !works_there || is_exempt || file.ends_with("tests.rs") {
            continue;
        }
        for line in without_tests(&text).lines() {
            let line = own.replace_all(&answered.replace_all(line, ""), "").into_owned();
            if call.is_match(&line) && !line.trim_start().starts_with("use ") {
                found.push(format!("{}: {}", file.display(), line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "use delta_base::durable:\n{}", found.join("\n"));
}

/// The engine notifies the observer of the run. It must not know what prints that, so that another crate can.
#[test]
fn the_engine_does_not_print() {
    let printing =
        Regex::new(r"crate::(progress|result_output)|\b(anstream|anstyle)::|\be?print(ln)?!")
            .unwrap();
    let mut files = 0;
    for (file, text) in texts(&[".rs"]) {
        if !file.starts_with("crates/delta-engine/src/engine") {
            continue;
        }
        files += 1;
        let found = printing.find(&text).map(|found| found.as_str());
        assert_eq!(found, None, "{}", file.display());
    }
    assert!(files > 10, "only {files} files found");
}
