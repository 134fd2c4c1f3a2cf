//! The agents in docs/reference/llm.md load, and each form and vendor with a heading there has one.

use super::markdown::{Block, blocks};
use super::{DELTA, root};
use std::fs;
use test_support::sandbox::Sandbox;

/// The level-2 headings that are providers with an endpoint of their own.
const FORMS: [&str; 4] = ["openai", "anthropic", "gemini", "responses"];

fn page() -> String {
    fs::read_to_string(root().join("docs/reference/llm.md")).unwrap()
}

/// The blocks that have an `llm:` section, some of them as files of agents.
fn agents(page: &str) -> Vec<Block> {
    let is_agent = |block: &Block| {
        block.info.starts_with("yaml") && block.text.lines().any(|line| line.starts_with("llm:"))
    };
    blocks(page).into_iter().filter(is_agent).collect()
}

#[test]
fn c_23_1_every_agent_of_the_page_about_the_llm_loads() {
    let page = page();
    let agents = agents(&page);
    assert!(agents.len() > 15, "where are the agents?");
    for block in agents {
        let sandbox = Sandbox::new(DELTA);
        let is_complete = block.text.starts_with("name:");
        let name = if is_complete { "" } else { "name: part\n" };
        sandbox.write("agent/agent.yaml", format!("{name}{}", block.text));
        let ran = sandbox.delta(["tool", "lint", "agent", "--level", "error"]).output();
        let line = block.first + 1;
        assert_eq!(ran.code, 0, "llm.md:{line}:\n{}{}", ran.stdout, ran.stderr);
    }
}

#[test]
fn c_23_1_every_form_and_vendor_with_a_heading_has_a_complete_agent() {
    let page = page();
    let agents = agents(&page);
    let lines: Vec<&str> = page.lines().collect();
    let is_inside = |number: &usize| {
        blocks(&page).iter().any(|block| (block.first..block.end).contains(number))
    };
    let headings: Vec<usize> = (0..lines.len())
        .filter(|number| lines[*number].starts_with("##") && !is_inside(number))
        .collect();
    let vendors_begin = lines.iter().position(|line| *line == "## Vendors").unwrap();
    let vendors_end = lines.iter().position(|line| *line == "## script").unwrap();
    let mut count = 0;
    let mut without = Vec::new();
    for (index, at) in headings.iter().enumerate() {
        let title = lines[*at].trim_start_matches('#').trim();
        let is_form = lines[*at].starts_with("## ") && FORMS.contains(&title);
        let is_vendor = (vendors_begin..vendors_end).contains(at) && lines[*at].starts_with("### ");
        if !is_form && !is_vendor {
            continue;
        }
        count += 1;
        let end = headings.get(index + 1).copied().unwrap_or(lines.len());
        let has_agent = agents
            .iter()
            .any(|block| (*at..end).contains(&block.first) && block.text.starts_with("name:"));
        if !has_agent {
            without.push(title);
        }
    }
    assert!(count > 14, "where are the vendors?");
    assert_eq!(without, Vec::<&str>::new(), "headings without a complete agent");
}
