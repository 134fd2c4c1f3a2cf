//! The sources keep to one style: `syntax` judges each file, this says which files and what is allowed.

use super::syntax::{self, Findings};
use super::texts;
use std::collections::BTreeMap;
use std::path::Path;

/// Production code: no tests, no benchmarks, no test support.
fn is_production(file: &Path) -> bool {
    let text = file.to_string_lossy();
    let is_source = text.starts_with("src/")
        || (text.starts_with("crates/")
            && text.contains("/src/")
            && !text.contains("test-support"));
    is_source && !text.ends_with("/tests.rs") && !text.contains("/tests/")
}

fn judged() -> BTreeMap<String, Findings> {
    let files: BTreeMap<String, Findings> = texts(&[".rs"])
        .into_iter()
        .filter(|(file, _)| is_production(file))
        .map(|(file, text)| (file.display().to_string(), syntax::judge(&text)))
        .collect();
    assert!(files.len() > 150, "only {} source files found", files.len());
    files
}

#[test]
fn a_name_has_one_definition() {
    let shared = syntax::shared_names(&judged());
    assert!(shared.is_empty(), "{}", shared.join("\n"));
}

#[test]
fn statements_and_names_follow_the_style() {
    let faults: Vec<String> = judged()
        .into_iter()
        .flat_map(|(file, findings)| {
            findings.faults.into_iter().map(move |(line, fault)| format!("{file}:{line}: {fault}"))
        })
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_judge_finds_each_fault() {
    let source = "
        struct Thing;
        fn describe((a, b): (u8, u8), pair: (u8, u8)) -> u8 {
            let (one, two) = (a, b);
            let found = match one == two { true => 1, false => 2 };
            let add = |n: u8| n + 1;
            add(found)
        }
        #[cfg(test)]
        mod tests { fn described() { let what = 1; } }
    ";
    let findings = syntax::judge(source);
    let faults: Vec<&str> = findings.faults.iter().map(|(_, fault)| fault.as_str()).collect();
    let expected = [
        "`describe` takes a tuple",
        "`describe` takes a tuple",
        "closure `add` is used once",
        "two statements in one `let`",
        "variable `found` does not say what it holds",
        "`match` on a bool",
    ];
    assert_eq!(faults, expected);
    let again = syntax::judge("enum Thing {} fn describe() {}");
    let files = BTreeMap::from([("a.rs".to_owned(), findings), ("b.rs".to_owned(), again)]);
    assert_eq!(syntax::shared_names(&files).len(), 2);
}

#[test]
fn a_definition_for_each_platform_counts_once() {
    let platforms = "
        #[cfg(target_os = \"linux\")] fn list_items() {}
        #[cfg(not(target_os = \"linux\"))] fn list_items() {}
        #[cfg(unix)] mod system { fn start_item() {} }
        #[cfg(not(unix))] mod system { fn start_item() {} }
    ";
    let files = BTreeMap::from([("a.rs".to_owned(), syntax::judge(platforms))]);
    assert_eq!(syntax::shared_names(&files), Vec::<String>::new());
    let linux = "#![cfg(target_os = \"linux\")] fn list_items() {}";
    let other = "#![cfg(not(target_os = \"linux\"))] mod system { fn list_items() {} }";
    let files = [("a.rs", linux), ("b.rs", other)];
    let files = files.map(|(name, text)| (name.to_owned(), syntax::judge(text)));
    assert_eq!(syntax::shared_names(&BTreeMap::from(files)), Vec::<String>::new());
    let conditions = "
        #[cfg(unix)] fn list_items() {}
        #[cfg(not(target_os = \"linux\"))] fn list_items() {}
        #[cfg(unix)] fn start_item() {}
        fn start_item() {}
    ";
    let files = BTreeMap::from([("a.rs".to_owned(), syntax::judge(conditions))]);
    assert_eq!(syntax::shared_names(&files).len(), 2);
}
