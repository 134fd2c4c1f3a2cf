//! The page of a sweep in a real browser: sorted, filtered, and harmless whatever its runs say.

use super::super::DELTA;
use super::browser::Browser;
use serde_json::{Value, json};
use test_support::needs;
use test_support::sandbox::Sandbox;

/// The name of the sweep, and with it of its page and its directories.
const NAME: &str = "s'<b> 50%#1";

/// A text that would be code, if anything made it so, and characters that would change how it is shown.
const HOSTILE: &str = "</script><script>window.probe=1</script><img src=x onerror=window.probe=2> \"'`&lt; \u{202e}gnp \u{1b}[31m\u{9b}2J";

/// Two models on six inputs with hostile names: `good` passes all of them, `poor` the first two, and fails with hostile
/// reasons; one run of it fails in the endpoint.
fn hostile_sweep() -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    sandbox.agent("provider: script\n  model: good.yaml", "");
    let script = |turns: &str| format!("turns:\n{turns}");
    sandbox.write("good.yaml", script("  - say: right\n"));
    let error = json!(format!("503 {HOSTILE}"));
    let poor = format!(
        "  - when: t5\n    error: {error}\n  - when: t[01]\n    say: right\n  - say: wrong\n"
    );
    sandbox.write("poor.yaml", script(&poor));
    let why = json!({"score": 0, "why": format!("wrong {HOSTILE}")}).to_string();
    sandbox.write("why.json", &why);
    let grader = format!(
        "#!/bin/sh\nread -r run\ncase $run in *'\"result\":\"right\"'*) exit 0;; esac\ncat '{}'\n",
        sandbox.path("why.json").display()
    );
    sandbox.write_program("grade.sh", &grader);
    let inputs = (0..6).map(|n| {
        let id = if n == 3 { format!("i{n} {HOSTILE}") } else { format!("i{n}") };
        format!(
            "{}\n",
            json!({"id": id, "task": format!("t{n}"), "group": format!("g{HOSTILE}{}", n % 3)})
        )
    });
    sandbox.write("inputs.jsonl", inputs.collect::<String>());
    let name = json!(NAME);
    let style = json!(HOSTILE);
    sandbox.write(
        "sweep.yaml",
        format!(
            "name: {name}\nagents: [agent]\nmodels: [{{id: good, model: 'script:good.yaml'}}, {{id: {style}, model: 'script:poor.yaml'}}]\n\
             inputs: inputs.jsonl\nparams: {{style: [{style}]}}\nenv: {{STYLE: '${{param.style}}'}}\ngrade: [{{name: g, command: [./grade.sh]}}]\n"
        ),
    );
    let sweep = |args: &[&str]| {
        sandbox.delta(["sweep"].iter().chain(args).copied()).output().expect_code(0)
    };
    sweep(&["plan"]);
    sweep(&["run", NAME]);
    sweep(&["grade", NAME]);
    sweep(&["view", NAME, "--pages", "failed"]);
    sandbox
}

/// The texts of a column of the table of runs.
fn column(browser: &mut Browser, number: usize) -> Vec<String> {
    let cells = browser.value(&format!(
        "[...document.querySelectorAll('#list tbody tr:not(.about)')].map(row => row.children[{number}].textContent)"
    ));
    serde_json::from_value(cells).unwrap()
}

fn click(browser: &mut Browser, element: &str) {
    browser.value(&format!("({element}).click()"));
    browser.settle();
}

fn header(name: &str) -> String {
    format!(
        "[...document.querySelectorAll('#list th button')].find(one => one.textContent.startsWith('{name}'))"
    )
}

fn count(browser: &mut Browser) -> Value {
    browser.value("document.querySelector('#count').textContent")
}

#[test]
fn c_18_3_the_page_of_a_sweep_sorts_filters_and_runs_nothing_of_its_runs() {
    if !needs::browser() {
        return;
    }
    let sandbox = hostile_sweep();
    let mut browser = Browser::start();
    let file = NAME.replace('%', "%25").replace('#', "%23") + ".html";
    browser.open(&sandbox.path(&file), "");
    browser.settle();
    assert_eq!(browser.value("document.title"), format!("{NAME} · delta"));
    assert_eq!(count(&mut browser), "12 runs");
    // Failures: the reason of the grader three times, and the endpoint.
    let groups = browser.value("[...document.querySelectorAll('.failure')].map(one => one.querySelector('b').textContent + ' ' + one.querySelector('.kind').textContent)");
    assert_eq!(groups, json!(["3 not passed by g", "1 llm"]));
    browser.value("document.querySelectorAll('details').forEach(one => { one.open = true; })");
    browser.settle();
    assert_eq!(browser.value("document.querySelectorAll('.failure li a').length"), 4);
    click(&mut browser, "document.querySelector('.failure > button')");
    assert_eq!(count(&mut browser), "3 of 12 runs");
    // Sorted: by score up, down, and back to the order of the plan.
    browser.value("filterBy({})");
    let scores = browser.value("COLUMNS.findIndex(([key]) => key === 'score')").as_u64().unwrap();
    let scores = usize::try_from(scores).unwrap();
    click(&mut browser, &header("score"));
    let sorted = column(&mut browser, scores);
    assert_eq!(sorted.first().map(String::as_str), Some("1.00"), "{sorted:?}");
    assert_eq!(sorted[8..], ["0.00", "0.00", "0.00", "llm"], "what is missing is last");
    click(&mut browser, &header("score"));
    assert_eq!(column(&mut browser, scores)[0], "0.00");
    assert_eq!(column(&mut browser, scores)[11], "llm");
    assert_eq!(browser.value("location.hash"), "#sort=score");
    click(&mut browser, &header("score"));
    assert_eq!(column(&mut browser, 0)[..2], ["i0", "i0"]);
    // Filtered by a click on a model, by a text, and by an input.
    click(&mut browser, "document.querySelectorAll('#scores .link')[1]");
    assert_eq!(count(&mut browser), "6 of 12 runs");
    browser.value("document.querySelector('#filter').value = 'I3'; document.querySelector('#filter').dispatchEvent(new Event('input'))");
    assert_eq!(count(&mut browser), "1 of 12 runs");
    // To the page of the run, and back to the filters.
    click(&mut browser, "document.querySelector('#list td a')");
    browser.wait_for("document.title.startsWith('test-agent')");
    // COMPLETED is not green for a run that did not pass.
    let chips = browser.value("[...document.querySelectorAll('#where .chip')].map(one => one.className + ' ' + one.textContent)");
    assert_eq!(chips, json!(["chip FAILED COMPLETED", "chip FAILED NOT PASSED"]));
    let grade = browser.value("document.querySelector('#top .bad-box').textContent");
    assert!(
        grade.as_str().unwrap().starts_with("Grader g · not passed, score 0.00wrong "),
        "{grade}"
    );
    browser.value("history.back()");
    browser.wait_for("document.title.startsWith('s')");
    browser.settle();
    assert_eq!(count(&mut browser), "1 of 12 runs");
    // A run without a page shows how to make one.
    browser.value("filterBy({ model: 'good', input: 'i5' })");
    click(&mut browser, "document.querySelector('#list td .link')");
    let command = browser.value("document.querySelector('.about code').textContent");
    let command = command.as_str().unwrap();
    assert!(command.contains(&format!("/{}/runs/", NAME.replace('\'', "'\\''"))), "{command}");
    let code = browser.value("[typeof window.probe, document.querySelectorAll('img,iframe,b b,script:not(:last-of-type)').length]");
    assert_eq!(code, json!(["undefined", 0]));
    let text = browser.value("document.body.textContent");
    assert!(!text.as_str().unwrap().contains(['\u{202e}', '\u{1b}', '\u{9b}']), "{text}");
    let trouble: Vec<&Value> = browser
        .events
        .iter()
        .filter(|event| {
            ["Runtime.exceptionThrown", "Log.entryAdded"]
                .iter()
                .any(|kind| event["method"] == *kind)
        })
        .collect();
    assert!(trouble.is_empty(), "{trouble:?}");
}

#[test]
fn the_page_of_a_sweep_fits_into_narrow_windows() {
    if !needs::browser() {
        return;
    }
    let sandbox = hostile_sweep();
    let mut browser = Browser::start();
    for width in [1280, 800, 390] {
        let metrics =
            json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        browser.call("Emulation.setDeviceMetricsOverride", metrics);
        browser.open(&sandbox.path(&(NAME.replace('%', "%25").replace('#', "%23") + ".html")), "");
        browser.settle();
        let overflow = browser.value("document.documentElement.scrollWidth - innerWidth");
        assert!(overflow.as_i64().unwrap() <= 0, "{width}: {overflow}");
    }
}
