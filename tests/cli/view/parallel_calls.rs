//! Calls that ran at the same time are one group on the page.

use super::super::DELTA;
use super::browser::Browser;
use super::{data, view};
use serde_json::json;
use test_support::needs;
use test_support::sandbox::Sandbox;

const TOOLS: &str = "  - {name: look, shell: 'echo ${text}', parallel: true}\n  - {name: keep, shell: 'echo ${text}'}\n";

#[test]
fn c_28_9_calls_at_the_same_time_are_a_group_and_their_time_counts_once() {
    if !needs::browser() {
        return;
    }
    let call = |tool: &str, text: u32| format!("{{tool: {tool}, args: {{text: \"{text}\"}}}}");
    let calls = [("look", 1), ("look", 2), ("look", 3), ("keep", 4), ("look", 5), ("keep", 6)];
    let calls = calls.map(|(tool, text)| call(tool, text)).join(", ");
    let turns = format!("- call: [{calls}]\n- call: [{}]\n- say: done\n", call("look", 7));
    let sandbox = Sandbox::scripted(DELTA, TOOLS, &turns);
    sandbox.run("go", &[]).expect_code(0);
    view(&sandbox, &[]).expect_code(0);

    let page = data(&sandbox);
    let groups = |iteration: usize| {
        let calls = page["runs"][0]["iterations"][iteration]["calls"].as_array().unwrap();
        calls.iter().map(|call| call["together"] == true).collect::<Vec<_>>()
    };
    assert_eq!(groups(0), [false, true, true, false, false, false]);
    assert_eq!(groups(1), [false]);

    let mut browser = Browser::start();
    browser.open(&sandbox.path("r.html"), "#i1");
    browser.settle();
    let groups = "[...document.querySelectorAll('.together')].map(group => [group.querySelectorAll('.call').length, group.querySelector('.cap').textContent.replace(/ · .*/, '')])";
    assert_eq!(browser.value(groups), json!([[3, "3 calls at the same time"]]));
    let ids = "[...document.querySelectorAll('#i1 .call')].map(call => call.id)";
    let ids = browser.value(ids);
    assert_eq!(ids, json!(["i1-c1", "i1-c2", "i1-c3", "i1-c4", "i1-c5", "i1-c6"]));
    let times = "(it => { const ms = it.calls.map(call => call.result.duration_ms); return it.toolMs === Math.max(...ms.slice(0, 3)) + ms[3] + ms[4] + ms[5]; })(run.iterations[0])";
    assert_eq!(browser.value(times), true, "the chart shows the time that passed");
}
