//! The page of a fork.

use super::super::DELTA;
use super::TOOLS;
use super::browser::Browser;
use serde_json::json;
use test_support::needs;
use test_support::sandbox::Sandbox;

#[test]
fn c_18_1_the_page_of_a_fork_counts_its_own_work_and_its_tables_add_up() {
    if !needs::browser() {
        return;
    }
    let turns = "- call: [{tool: note, args: {text: \"port = 80\"}}]\n- say: \"so:\\n```\\ncode\\n```\\n\"\n- say: more\n";
    let sandbox = Sandbox::scripted(DELTA, TOOLS, turns);
    sandbox.run("task", &[]).expect_code(0);
    let fork =
        ["fork", "r", "--at", "1", "-w", "work", "--into", "own", "--run-id", "f", "-m", "on"];
    sandbox.delta(fork).output().expect_code(0);
    sandbox.delta(["view", "f", "-w", "own", "-o", "r.html"]).output().expect_code(0);
    let mut browser = Browser::start();
    browser.open(&sandbox.path("r.html"), "");
    browser.settle();
    let text = |browser: &mut Browser, selector: &str| {
        browser.value(&format!("document.querySelector({selector:?}).textContent"))
    };
    let figures = text(&mut browser, ".figures");
    assert!(figures.as_str().unwrap().starts_with("iterations, after 1 copied1"), "{figures}");
    assert_eq!(
        browser.value("[run.own.length, run.processes, run.iterations.length]"),
        json!([1, 1, 2])
    );
    let gutters = text(&mut browser, "#timeline");
    assert!(!gutters.as_str().unwrap().contains("+-"), "{gutters}");
    assert_eq!(text(&mut browser, "#i1 .args"), "text=\"port = 80\"");
    assert_eq!(text(&mut browser, "#i2 .said .md pre"), "code\n");
    browser.value("toggleMarkdown()");
    assert_eq!(text(&mut browser, "#i2 .said .fenced"), "```\ncode\n```\n");
    browser.value("(() => { const fold = document.querySelector('#i2 .req'); fold.open = true; fold.fill(); })()");
    let names = browser.value(
        "[...document.querySelectorAll('#i2 .blocks td:first-child')].map(one => one.textContent)",
    );
    assert_eq!(names, json!(["system_prompt.md", "journal", "tools", "rest", "total"]));
    let sum = "(request => request.blocks.reduce((one, other) => one + other, 0) + request.tools.bytes + request.rest.bytes - request.bytes)(run.requests[1])";
    assert_eq!(browser.value(sum), 0);
    browser.value("document.getElementById('query').value = 'code'; seek()");
    assert_eq!(text(&mut browser, "#count"), "1 / 1");
}
