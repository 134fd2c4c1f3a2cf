//! ARCHITECTURE.md names the crates, their modules and the libraries that there are.

use super::{files, root};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// The cells in backquotes of the first column of the table under `heading`, with the text of the second column.
fn table(heading: &str) -> BTreeMap<String, String> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let (_, section) = text.split_once(&format!("\n## {heading}\n")).expect("the section is there");
    let section = section.split("\n## ").next().unwrap_or_default();
    let mut rows = BTreeMap::new();
    for line in section.lines().filter(|line| line.starts_with("| `")) {
        let mut cells = line.trim_matches('|').split(" | ");
        let names = cells.next().unwrap_or_default();
        let second = cells.next().unwrap_or_default();
        for name in names.split('`').skip(1).step_by(2) {
            rows.insert(name.to_owned(), second.to_owned());
        }
    }
    assert!(!rows.is_empty(), "no table under {heading}");
    rows
}

/// The names in backquotes of a cell.
fn quoted(cell: &str) -> BTreeSet<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The libraries of each package that are not its own: `crate -> {library}`, tests apart.
fn libraries() -> BTreeMap<String, BTreeSet<String>> {
    let mut all = BTreeMap::new();
    for file in files().into_iter().filter(|file| file.ends_with("Cargo.toml")) {
        let text = fs::read_to_string(root().join(&file)).unwrap();
        let package = match file.parent().and_then(|dir| dir.file_name()) {
            Some(dir) => dir.to_string_lossy().into_owned(),
            None => "delta".to_owned(),
        };
        if file.starts_with("fuzz") || package == "test-support" {
            continue;
        }
        let Some((_, section)) = text.split_once("\n[dependencies]\n") else { continue };
        let section = section.split("\n[").next().unwrap_or_default();
        let names = section
            .lines()
            .filter(|line| line.starts_with(|c: char| c.is_ascii_alphabetic()))
            .filter_map(|line| line.split(['.', ' ', '=']).next())
            .filter(|name| !name.starts_with("delta-"))
            .map(str::to_owned)
            .collect();
        all.insert(package, names);
    }
    assert!(all.len() > 10, "only {} packages found", all.len());
    all
}

#[test]
fn the_library_table_is_that_of_the_manifests() {
    let mut used: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (package, libraries) in libraries() {
        for library in libraries {
            used.entry(library).or_default().insert(package.clone());
        }
    }
    let listed: BTreeMap<String, BTreeSet<String>> =
        table("Libraries").into_iter().map(|(name, cell)| (name, quoted(&cell))).collect();
    assert_eq!(listed, used, "left: ARCHITECTURE.md, right: the manifests");
}

#[test]
fn the_code_map_is_that_of_the_crates() {
    let mut modules: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in files() {
        let text = file.to_string_lossy().into_owned();
        let (package, inside) =
            match text.strip_prefix("crates/").and_then(|rest| rest.split_once("/src/")) {
                Some((package, inside)) if package != "test-support" => (package, inside),
                _ => continue,
            };
        if !inside.contains('/') && inside.ends_with(".rs") && inside != "lib.rs" {
            let name = inside.trim_end_matches(".rs").to_owned();
            modules.entry(package.to_owned()).or_default().insert(name);
        }
    }
    let listed: BTreeMap<String, BTreeSet<String>> =
        table("Code map").into_iter().map(|(name, cell)| (name, quoted(&cell))).collect();
    assert_eq!(listed, modules, "left: ARCHITECTURE.md, right: crates/");
}
