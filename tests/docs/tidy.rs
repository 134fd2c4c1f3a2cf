//! What the sources promise each other.

use super::{root, texts};
use regex::Regex;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The most lines of a source file, its tests apart.
const LONGEST: usize = 700;

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
fn modules_use_only_those_above_them() {
    let listed = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let module = Regex::new(r"(?m)^pub mod (\w+);").unwrap();
    let order: Vec<String> =
        module.captures_iter(&listed).map(|found| found[1].to_owned()).collect();
    let place = |name: &str| order.iter().position(|other| other == name);
    let used = Regex::new(r"crate::(?:(\w+)|\{([^}]*)\})").unwrap();
    let (mut wrong, mut seen) = (BTreeSet::new(), BTreeSet::new());
    for (file, text) in texts(&[".rs"]) {
        let Ok(inside) = file.strip_prefix("src") else { continue };
        let first = inside.components().next().unwrap().as_os_str().to_string_lossy();
        let name = first.trim_end_matches(".rs");
        if matches!(name, "lib" | "bin") {
            continue;
        }
        let own = place(name).unwrap_or_else(|| panic!("{} is not in src/lib.rs", file.display()));
        seen.insert(name.to_owned());
        for found in used.captures_iter(&without_tests(&text)) {
            let names = found.get(1).or(found.get(2)).unwrap().as_str();
            for name in
                names.split(',').map(|name| name.trim().split("::").next().unwrap_or_default())
            {
                if place(name).is_some_and(|theirs| theirs > own) {
                    wrong.insert(format!(
                        "{} uses {name}, which is listed below it",
                        file.display()
                    ));
                }
            }
        }
    }
    assert!(seen.len() > 20, "where are the modules?");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn files_are_short() {
    let long: Vec<String> = texts(&[".rs"])
        .into_iter()
        .filter(|(file, _)| file.starts_with("src"))
        .map(|(file, text)| (file, without_tests(&text).lines().count()))
        .filter(|(_, lines)| *lines > LONGEST)
        .map(|(file, lines)| format!("{} has {lines} lines", file.display()))
        .collect();
    assert!(long.is_empty(), "{long:#?}");
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

#[test]
fn the_reader_of_sources_skips_tests() {
    let text = "use crate::a; // crate::b\n#[cfg(test)]\nmod tests;\nfn x() {}\n    #[cfg(test)]\n    fn y() {\n        crate::c\n    }\n#[cfg(test)]\nmod tests {\n    use crate::d;\n}\nfn z() {}\n";
    assert_eq!(without_tests(text), "use crate::a; \nfn x() {}\nfn z() {}\n");
}
