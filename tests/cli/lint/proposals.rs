//! What lint proposes can be pasted: a proposed line has the words of the line that it replaces.

use super::lint;
use crate::DELTA;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use test_support::sandbox::Sandbox;

/// Prints its arguments, so that a run shows the words of a command.
const GREP: &str = "#!/bin/sh\nfor word; do printf '<%s>' \"$word\"; done\n";
const COUNT: usize = 50;

/// A word as an author writes it: plain, or in quotes of one kind or the other, or after backslashes.
fn written_word() -> impl Strategy<Value = String> {
    let text = "[a-c |&;<>()'\"\\\\$*?#~=%!{}:`\\[\\]-]{0,6}";
    (text, 0..3_u8).prop_map(|(text, style)| {
        // Otherwise it would be a placeholder.
        let text = text.replace("${", "$ {");
        let escape = |specials: &str| -> String {
            let escaped = text
                .chars()
                .map(|c| if specials.contains(c) { format!("\\{c}") } else { c.to_string() });
            escaped.collect()
        };
        match style {
            0 if !text.contains('\'') => format!("'{text}'"),
            1 if !text.is_empty() => escape(" |&;<>()'\"\\$*?#~=%!{}:`[]"),
            _ => format!("\"{}\"", escape("\"\\$`")),
        }
    })
}

/// An agent whose tools have these templates, and an answer that calls all of them.
fn agent_of(sandbox: &Sandbox, name: &str, templates: &[(&str, String)]) {
    let tool = |(index, (syntax, template)): (usize, &(&str, String))| {
        format!("  - {{name: t{index}, {syntax}: {}}}\n", json!(template))
    };
    let tools: String = templates.iter().enumerate().map(tool).collect();
    let call = |index: usize| format!("      - {{tool: t{index}, args: {{x: the value}}}}\n");
    let calls: String = (0..templates.len()).map(call).collect();
    let llm = "llm: {provider: script, model: script.yaml}";
    sandbox.write(&format!("{name}/agent.yaml"), format!("name: a\n{llm}\ntools:\n{tools}"));
    sandbox.write(
        &format!("{name}/script.yaml"),
        format!("turns:\n  - call:\n{calls}  - say: done\n"),
    );
    for file in ["system_prompt.md", "context.yaml"] {
        sandbox.write(&format!("{name}/{file}"), sandbox.read(&format!("agent/{file}")));
    }
}

/// The words of each tool in a run, as `grep` printed them.
fn words_of(sandbox: &Sandbox, name: &str) -> Vec<String> {
    let path = format!("{}:{}", sandbox.path("bin").display(), std::env::var("PATH").unwrap());
    let run = ["run", "--agent", name, "-w", name, "--run-id", "r", "-m", "go", "-q"];
    sandbox.delta(run).env("PATH", path).output().expect_code(0);
    let journal = sandbox.read(&format!("{name}/.delta/r/journal.jsonl"));
    let events = journal.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let results = events.filter(|event| event["type"] == "ACTION_RESULT");
    results.map(|event| event["observation_content"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn c_11_8_a_proposed_line_has_the_words_of_the_line_that_it_replaces() {
    let sandbox = Sandbox::new(DELTA);
    sandbox.write("bin/grep", GREP);
    fs::set_permissions(sandbox.path("bin/grep"), fs::Permissions::from_mode(0o755)).unwrap();
    let mut runner = TestRunner::default();
    let words = prop::collection::vec(written_word(), 0..4);
    let command = (words, prop::option::of("[a-c]{1,2}"), any::<bool>());
    let mut templates = vec![("exec", "grep -c -i -E 'a|b 50[0-9] ' ${x}".to_owned())];
    while templates.len() < COUNT {
        let (words, ending, is_exec) = command.new_tree(&mut runner).unwrap().current();
        let words = words.join(" ");
        let syntax = if is_exec { "exec" } else { "shell" };
        templates.push((syntax, format!("grep -e {words} ${{x}}{}", ending.unwrap_or_default())));
    }
    agent_of(&sandbox, "first", &templates);
    let findings = lint(&sandbox, &["first", "--format", "json"]).json();
    let proposal = |index: usize| {
        // One line for each tool, after `name`, `llm` and `tools`.
        let mut findings = findings.as_array().unwrap().iter().filter(|it| it["line"] == index + 4);
        let helps = |finding: &Value| finding["help"].as_str().unwrap().to_owned();
        let help = findings.find(|it| it["rule"] == "option-injection").map(helps)?;
        Some(help.strip_prefix("write `")?.strip_suffix('`')?.to_owned())
            .filter(|line| line.starts_with("grep"))
    };
    let proposals: Vec<(usize, String)> =
        (0..COUNT).filter_map(|index| Some((index, proposal(index)?))).collect();
    assert!(proposals.len() > COUNT / 2, "{findings:#}");
    let lines: Vec<(&str, String)> =
        proposals.iter().map(|(index, line)| (templates[*index].0, line.clone())).collect();
    agent_of(&sandbox, "second", &lines);
    let (first, second) = (words_of(&sandbox, "first"), words_of(&sandbox, "second"));
    assert_eq!((first.len(), second.len()), (COUNT, proposals.len()));
    for ((index, line), found) in proposals.iter().zip(second) {
        let expected = first[*index].replacen("<the value", "<--><the value", 1);
        assert_eq!(found, expected, "{} became {line}", templates[*index].1);
    }
}
