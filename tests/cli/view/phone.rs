//! The page on a phone, tries in one line, and runs that are told apart.

use super::super::DELTA;
use super::browser::Browser;
use super::{data, view};
use serde_json::json;
use test_support::needs;
use test_support::sandbox::Sandbox;
use test_support::server::{Answer, RecordedRequest, ScriptedServer};

const LONG_TOOL: &str =
    "  - name: a_tool_with_a_name_that_is_long_enough_for_two_lines\n    shell: echo ${text}\n";

#[test]
fn c_18_1_a_phone_shows_status_and_id_and_nothing_overflows() {
    if !needs::browser() {
        return;
    }
    let turns = format!(
        "- say: {}\n  call: [{{tool: a_tool_with_a_name_that_is_long_enough_for_two_lines, args: {{text: {}}}}}]\n- say: done\n",
        "word ".repeat(300),
        "x".repeat(400)
    );
    let sandbox = Sandbox::scripted(DELTA, LONG_TOOL, &turns);
    sandbox.run(&"task".repeat(200), &[]).expect_code(0);
    view(&sandbox, &[]).expect_code(0);
    let mut browser = Browser::start();
    let phone = json!({"width": 390, "height": 800, "deviceScaleFactor": 2, "mobile": true});
    browser.call("Emulation.setDeviceMetricsOverride", phone);
    browser.open(&sandbox.path("r.html"), "#i2");
    browser.value("document.querySelectorAll('details').forEach(one => { one.open = true; if (one.fill) one.fill(); }); scrollTo(0, 900)");
    browser.settle();
    let sizes = browser
        .value("[document.documentElement.scrollWidth, innerWidth, Math.round(scrollY) > 300]");
    assert_eq!(sizes, json!([390, 390, true]));
    // Wherever the page is scrolled to, the parts of the bar are inside the screen and not cut to nothing.
    let visible = "[...document.querySelectorAll('#bar .chip, #bar .id, #bar b, #query, #theme')].map(one => { const area = one.getBoundingClientRect(); return area.top >= 0 && area.bottom <= 100 && area.left >= 0 && area.right <= 390 && area.width > 6; })";
    assert_eq!(browser.value(visible), json!([true, true, true, true, true]));
    let covered = "document.querySelector('#i2').getBoundingClientRect().top >= document.querySelector('#bar').offsetHeight - 1";
    browser.value("location.hash = ''; location.hash = '#i2'");
    browser.settle();
    assert_eq!(browser.value(covered), true, "the bar does not cover the iteration");
}

#[test]
fn c_18_1_the_tries_of_a_call_are_one_line_that_opens() {
    if !needs::browser() {
        return;
    }
    let mut count = 0;
    let server = ScriptedServer::start(move |_: &RecordedRequest| {
        count += 1;
        if count < 3 {
            Answer::error(503, "overloaded", None).header("Retry-After-Ms", "0")
        } else {
            Answer::text("done")
        }
    });
    let sandbox = Sandbox::asking(DELTA, &server.url(), "");
    sandbox.run("go", &[]).expect_code(0);
    view(&sandbox, &[]).expect_code(0);
    let mut browser = Browser::start();
    browser.open(&sandbox.path("r.html"), "");
    browser.settle();
    let line = browser.value("document.querySelector('#i1 .attempts summary').textContent");
    assert!(line.as_str().unwrap().starts_with("3 tries · HTTP 503 "), "{line}");
    assert_eq!(browser.value("document.querySelectorAll('#i1 .tries li').length"), 0);
    browser.value("document.getElementById('query').value = 'overloaded'; seek()");
    browser.settle();
    assert_eq!(browser.value("document.getElementById('count').textContent"), "1 / 2");
    assert_eq!(
        browser.value("[document.querySelector('#i1 .attempts').open, document.querySelectorAll('#i1 .tries li').length]"),
        json!([true, 3])
    );
}

#[test]
fn c_18_5_runs_with_ids_of_one_second_are_told_apart_and_an_interruption_is_no_error() {
    if !needs::browser() {
        return;
    }
    let sandbox = Sandbox::new(DELTA);
    super::write_long_run(&sandbox, 2);
    let ids = ["20260101_000000_aaaaaa", "20260101_000000_bbbbbb"];
    let journal = sandbox.read("work/.delta/r/journal.jsonl");
    let mut children = String::new();
    for id in ids {
        let dir = sandbox.path(&format!("work/.delta/{id}")).display().to_string();
        let parent =
            json!({"run_id": "r", "call_id": "call_1", "run_dir": sandbox.path("work/.delta/r")});
        let child = journal.replace("\"run_id\":\"r\"", &format!("\"run_id\":\"{id}\"")).replacen(
            "\"epoch\":1",
            &format!("\"epoch\":1,\"parent\":{parent}"),
            1,
        );
        sandbox.write(&format!("work/.delta/{id}/journal.jsonl"), child);
        children += &format!("{}\n", json!({"run_id": id, "run_dir": dir, "call_id": "call_1"}));
    }
    sandbox.write("work/.delta/r/children.jsonl", children);
    view(&sandbox, &[]).expect_code(0);
    assert_eq!(data(&sandbox)["runs"].as_array().unwrap().len(), 3);
    let mut browser = Browser::start();
    browser.open(&sandbox.path("r.html"), "");
    browser.settle();
    let ends = "[...document.querySelectorAll('.tree .tree a .id, .tree ul a .id')].map(one => [one.textContent, one.lastChild.textContent, one.lastChild.offsetWidth > 20])";
    assert_eq!(browser.value(ends), json!([[ids[0], "aaaaaa", true], [ids[1], "bbbbbb", true]]));
    let colours = "(() => { const colour = one => getComputedStyle(one).color; const side = document.querySelector('#side h2'); return [colour(document.querySelector('#bar .chip')) === colour(side), document.querySelectorAll('#top .bad, #top .bad-box, #top .warn').length, document.querySelector('#top .calm .who').textContent]; })()";
    assert_eq!(browser.value(colours), json!([true, 0, "Interrupted"]));
}
