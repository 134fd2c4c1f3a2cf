//! docs/stability.md in force: `stable.txt` lists the names that only a major version may remove. It follows the programs, so
//! the removal of a name shows in a change, and `.ci/release semver` refuses it against the last release.

use super::command_line::subcommands;
use super::{DELTA, SESSIONS, root};
use regex::Regex;
use serde_json::Value as Json;
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

const LIST: &str = "tests/docs/stable.txt";
/// What `delta schema` describes: the files of agents and operators.
const SCHEMAS: [&str; 8] =
    ["agent", "config", "context", "hooks", "script", "sweep", "test", "tools"];

#[test]
fn the_stable_names_are_the_ones_of_the_programs() {
    let mut names = BTreeSet::new();
    for program in [DELTA, &SESSIONS] {
        list_commands(program, &[], &mut names);
    }
    for schema in SCHEMAS {
        let output = print(DELTA, &["schema".to_owned(), schema.to_owned()]);
        let json: Json = serde_json::from_str(&output).unwrap();
        list_keys(&json, &format!("{schema}:"), &mut names);
        for (name, part) in json["definitions"].as_object().into_iter().flatten() {
            list_keys(part, &format!("{schema}: {name}:"), &mut names);
        }
    }
    let variable = Regex::new("`(DELTA_[A-Z0-9_]*[A-Z0-9])`").unwrap();
    for page in ["env", "tools", "hooks-yaml", "llm", "sweep"] {
        let text = fs::read_to_string(root().join(format!("docs/reference/{page}.md"))).unwrap();
        names.extend(variable.captures_iter(&text).map(|name| format!("variable {}", &name[1])));
    }
    let list = names.into_iter().map(|name| name + "\n").collect::<String>();
    let path = root().join(LIST);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &list).unwrap();
    }
    let recorded = fs::read_to_string(path).unwrap();
    let (recorded, current): (BTreeSet<&str>, BTreeSet<&str>) =
        (recorded.lines().collect(), list.lines().collect());
    let gone = recorded.difference(&current).collect::<Vec<_>>();
    let new = current.difference(&recorded).collect::<Vec<_>>();
    assert!(gone.is_empty(), "only a major version may remove: {gone:?}");
    assert!(new.is_empty(), "UPDATE_DOCS=1 adds to {LIST}: {new:?}");
    assert!(current.len() > 1000, "where are the names?");
}

/// What a program prints.
fn print(program: &str, args: &[String]) -> String {
    let output = Command::new(program).args(args).env_clear().output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Adds a command, its options and whether they have a value, and the commands below it.
fn list_commands(program: &str, command: &[String], names: &mut BTreeSet<String>) {
    let help = print(program, &[command, &["--help".to_owned()]].concat());
    let title = [&[program.rsplit('/').next().unwrap().to_owned()], command].concat().join(" ");
    let option =
        Regex::new(r"(?m)^ {2,6}(?:-(\w)(?:, )?)?(?:--([\w-]+))?(?: (\[?<.*>\]?\S*))?$").unwrap();
    for entry in option.captures_iter(&help) {
        let value = if entry.get(3).is_some() { " VALUE" } else { "" };
        for (group, dashes) in [(1, "-"), (2, "--")] {
            if let Some(name) = entry.get(group) {
                names.insert(format!("{title} {dashes}{}{value}", name.as_str()));
            }
        }
    }
    names.insert(title);
    for name in subcommands(&help) {
        list_commands(program, &[command, &[name]].concat(), names);
    }
}

/// Adds the keys and the words of a part of a JSON Schema, by their paths.
fn list_keys(part: &Json, path: &str, names: &mut BTreeSet<String>) {
    for alternatives in ["allOf", "anyOf", "oneOf"] {
        for alternative in part[alternatives].as_array().into_iter().flatten() {
            list_keys(alternative, path, names);
        }
    }
    for (key, value) in part["properties"].as_object().into_iter().flatten() {
        let path = format!("{path} {key}");
        list_keys(value, &path, names);
        names.insert(path);
    }
    for (inner, suffix) in [("items", "[]"), ("additionalProperties", " *")] {
        if part[inner].is_object() {
            list_keys(&part[inner], &format!("{path}{suffix}"), names);
        }
    }
    for value in part["enum"].as_array().into_iter().flatten().filter_map(Json::as_str) {
        names.insert(format!("{path} = {value}"));
    }
}
