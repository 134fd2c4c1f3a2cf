//! Every rule of docs/contract.md that is not planned is cited by a test: rule C-4.2 by the name of one that begins
//! with `c_4_2_`.

use super::{root, texts};
use regex::Regex;
use std::collections::BTreeSet;
use std::fs;

#[test]
fn every_promise_has_a_test() {
    let contract = fs::read_to_string(root().join("docs/contract.md")).unwrap();
    let rule = Regex::new(r"(?m)^- \*\*C-(\d+)\.(\d+)\*\*( \(planned\))?").unwrap();
    let number = |text: &str| text.parse::<u32>().unwrap();
    let (mut promised, mut planned) = (Vec::new(), BTreeSet::new());
    for found in rule.captures_iter(&contract) {
        let id = (number(&found[1]), number(&found[2]));
        assert!(
            !promised.contains(&id) && !planned.contains(&id),
            "C-{}.{} stands twice",
            id.0,
            id.1
        );
        match found.get(3) {
            Some(_) => _ = planned.insert(id),
            None => promised.push(id),
        }
    }
    assert!(promised.len() > 20, "where are the rules?");
    let test = Regex::new(r"fn c_(\d+)_(\d+)_").unwrap();
    let mut cited = BTreeSet::new();
    for (_, text) in texts(&[".rs"]) {
        cited.extend(test.captures_iter(&text).map(|found| (number(&found[1]), number(&found[2]))));
    }
    let shown = |ids: Vec<(u32, u32)>| {
        ids.iter().map(|(n, m)| format!("C-{n}.{m}")).collect::<Vec<_>>().join(" ")
    };
    let unknown = cited
        .iter()
        .copied()
        .filter(|id| !promised.contains(id) && !planned.contains(id))
        .collect::<Vec<_>>();
    assert!(
        unknown.is_empty(),
        "tests cite rules that docs/contract.md does not have: {}",
        shown(unknown)
    );
    let untested = promised.into_iter().filter(|id| !cited.contains(id)).collect::<Vec<_>>();
    assert!(untested.is_empty(), "no test cites {}", shown(untested));
}

/// Each mutation of tests/broken changes code that is there, for a rule that exists: `.ci/broken` tries them.
#[test]
fn every_mutation_fits_the_code() {
    let contract = fs::read_to_string(root().join("docs/contract.md")).unwrap();
    let entry = Regex::new(
        r#"(?s)\[\["(C-(\d+)\.\d+)"\]\]\nfile = "([^"\n]+)"\ncode = '''\n?(.*?)'''\nbroken = '''(.*?)'''\n"#,
    )
    .unwrap();
    let reason = Regex::new(r#"(?m)^"(C-\d+\.\d+)" = "."#).unwrap();
    let mut wrong = Vec::new();
    let mut sections = BTreeSet::new();
    let mut listed = BTreeSet::new();
    for (list, text) in texts(&[".toml"]) {
        if !list.starts_with("tests/broken") {
            continue;
        }
        if list.ends_with("unreachable.toml") {
            listed.extend(reason.captures_iter(&text).map(|rule| rule[1].to_owned()));
            continue;
        }
        let entries: Vec<_> = entry.captures_iter(&text).collect();
        assert_eq!(
            entries.len(),
            text.matches("[[").count(),
            "an entry in {} has another form",
            list.display()
        );
        for parts in &entries {
            let (rule, section, file) = (&parts[1], &parts[2], &parts[3]);
            listed.insert(rule.to_owned());
            sections.insert(section.to_owned());
            let code = fs::read_to_string(root().join(file)).unwrap_or_default();
            let matches = code.matches(&parts[4]).count();
            if matches != 1 {
                wrong.push(format!("{rule}: {file} contains this {matches} times: {}", &parts[4]));
            }
            if !contract.contains(&format!("- **{rule}** "))
                || list.file_stem().unwrap().to_str() != Some(&format!("{section:0>2}"))
            {
                wrong.push(format!("{rule} is not in section {}", list.display()));
            }
            if !parts[5].contains("BROKEN") {
                wrong.push(format!("{rule}: `broken` has no BROKEN: {}", &parts[5]));
            }
        }
    }
    let rule = Regex::new(r"(?m)^- \*\*(C-(\d+)\.\d+)\*\*").unwrap();
    for parts in rule.captures_iter(&contract) {
        if sections.contains(&parts[2]) && !listed.contains(&parts[1]) {
            wrong.push(format!("{} has no mutation, and no line in unreachable.toml", &parts[1]));
        }
    }
    assert!(!sections.is_empty(), "where are the mutations?");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// An attack that delta stops is one that a test makes.
#[test]
fn every_attack_in_the_threat_model_names_its_tests() {
    let page = fs::read_to_string(root().join("docs/guide/security.md")).unwrap();
    let (_, table) = page.split_once("| attack | what happens | tests |\n|---|---|---|\n").unwrap();
    let rows: Vec<&str> = table.lines().take_while(|line| line.starts_with("| ")).collect();
    assert!(rows.len() > 20, "where are the attacks?");
    let sources: String = texts(&[".rs"]).into_iter().map(|(_, text)| text).collect();
    let name = Regex::new("`(c_[0-9]+_[0-9]+_[a-z0-9_]+)`").unwrap();
    for row in rows {
        let (_, tests) = row.trim_end_matches(" |").rsplit_once(" | ").unwrap();
        let names: Vec<_> = name.captures_iter(tests).map(|found| found[1].to_owned()).collect();
        assert!(!names.is_empty(), "no test makes this attack: {row}");
        for name in names {
            assert!(sources.contains(&format!("fn {name}(")), "there is no test `{name}`");
        }
    }
}
