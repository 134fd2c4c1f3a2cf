//! How `delta show` and `delta view` present sandboxes: from journals of machines that this one need not be, and from a run.

use super::DELTA;
use super::sandbox::{agent, expect_done};
use super::view::browser::Browser;
use serde_json::{Value, json};
use test_support::needs;
use test_support::sandbox::{Ran, Sandbox};

const GUARANTEES: [&str; 8] =
    ["files", "metadata", "journal", "secrets", "home", "net", "sockets", "processes"];

/// Two profiles, of which the second lacks two guarantees and has another one watched, and a tool without any.
fn recorded_sandboxes() -> Value {
    let holds = |lacking: &[&str]| -> Value {
        GUARANTEES.iter().filter(|name| !lacking.contains(name)).copied().collect()
    };
    json!({
        "kernel": "6.99.1", "landlock": 6, "namespaces": false,
        "policy": [{"file": "/etc/delta/sandbox.yaml", "sha256": "abc123"}, {"file": "reader"}],
        "without": ["net", "home", "journal"],
        "tools": {"look": "p1", "list": "p1", "fetch": "p2"},
        "generators": "p1", "llm": "p1", "hooks": {"on_run_end": "p2"},
        "profiles": {
            "p1": {"by": "namespaces", "write": ["/w"], "keep": [], "net": "none", "limits": {"processes": 7},
                "holds": holds(&[]), "line": "Sandbox: writes only in the workspace and /tmp; no network."},
            "p2": {"by": "landlock", "write": ["/w", "/srv/<b>x</b>"], "keep": ["/w/.delta"], "net": ["example.com:443"], "limits": {},
                "holds": holds(&["net", "home", "journal", "metadata"]), "watched": ["journal"],
                "line": "Sandbox: writes only in the workspace; network: example.com."},
        },
    })
}

/// A run of two processes: one with [`recorded_sandboxes`], one without any. A request in `requests` is the tool, its sandbox
/// and what was refused.
fn write_run(sandbox: &Sandbox, config: &Value, requests: &[(&str, &str, Value)]) {
    let start = |epoch: u32, config: &Value| {
        json!({"type": "ENGINE_START", "run_id": "r", "epoch": epoch, "agent_home": "/a", "agent_name": "boxed", "work_dir": "/w",
            "workspace_id": "w", "max_iterations": 9, "config": config, "pid": 1, "hostname": "h", "start_time_unix": 0,
            "process_name": "delta", "engine_version": "0"})
    };
    let id = |index: usize| format!("call_1_{}", index + 1);
    let calls: Vec<Value> = requests
        .iter()
        .enumerate()
        .map(|(index, (tool, ..))| json!({"id": id(index), "type": "function", "function": {"name": tool, "arguments": "{}"}}))
        .collect();
    let mut events = vec![
        start(1, config),
        json!({"type": "USER_MESSAGE", "content": "the task"}),
        json!({"type": "THOUGHT", "iteration": 1, "content": "", "tool_calls": calls}),
    ];
    for (index, (tool, profile, refused)) in requests.iter().enumerate() {
        events.push(json!({"type": "ACTION_REQUEST", "iteration": 1, "call_id": id(index), "tool_name": tool, "tool_args": {},
            "argv": [tool], "sandbox": profile}));
        events.push(json!({"type": "ACTION_RESULT", "iteration": 1, "call_id": id(index), "tool_name": tool, "exit_code": 0,
            "observation_content": "seen", "duration_ms": 5, "sandbox": refused}));
    }
    let end =
        json!({"type": "ENGINE_END", "run_id": "r", "status": "INTERRUPTED", "final_iteration": 1});
    events.extend([end.clone(), start(2, &json!({"tools": ["look"]})), end]);
    let text = events.iter_mut().enumerate().map(|(index, event)| {
        event["seq"] = (index + 1).into();
        event["timestamp"] = format!("2026-01-01T00:00:{index:02}.000Z").into();
        format!("{event}\n")
    });
    sandbox.write("work/.delta/r/journal.jsonl", text.collect::<String>());
}

fn mixed_run() -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    let tools = json!(["look", "list", "fetch", "deploy"]);
    let config = json!({"tools": tools, "sandbox": recorded_sandboxes()});
    let refused = json!({"refused": {"evil\u{1b}[2J.test": 2, "example.com:80": 1}, "attempts": 3});
    let requests = [
        ("look", "p1", Value::Null),
        ("list", "p1", json!({"attempts": 1})),
        ("fetch", "p2", refused),
        ("deploy", "off", Value::Null),
    ];
    write_run(&sandbox, &config, &requests);
    sandbox
}

fn show(sandbox: &Sandbox, more: &[&str]) -> Ran {
    sandbox.delta(["show", "r", "-w", "work"].iter().chain(more).copied()).output().expect_code(0)
}

#[test]
fn c_22_4_show_names_what_was_enforced_and_marks_the_calls_that_differ() {
    let sandbox = mixed_run();
    let text = show(&sandbox, &[]).stdout;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[2..7],
        [
            "model ",
            "sandbox by namespaces for list, look, the generators, the command of `llm`: \
             writes only in the workspace and /tmp; no network",
            "sandbox by landlock for fetch, the hook on_run_end: writes only in the workspace; network: example.com",
            "  without net, home, as --sandbox-without says",
            "no sandbox for deploy",
        ]
    );
    assert_eq!(
        lines[9..20],
        [
            "→ look",
            "  │ seen",
            "→ list",
            "  │ seen",
            "  the sandbox refused the network, once",
            "→ fetch",
            "  │ seen",
            "  the sandbox refused evil.test (2), example.com:80 (1)",
            "→ deploy",
            "  no sandbox",
            "  │ seen",
        ]
    );
    let second = text.split_once("INTERRUPTED").unwrap().1;
    assert!(second.contains("model \nno sandbox\n"), "{second}");
    assert!(!text.contains("6.99.1"), "short without -v: {text}");
}

#[test]
fn c_22_4_show_prints_all_of_a_sandbox_on_demand() {
    let sandbox = mixed_run();
    let text = show(&sandbox, &["-v"]).stdout;
    for line in [
        "  kernel 6.99.1, landlock 6\n",
        "  limited by /etc/delta/sandbox.yaml, sha256 abc123\n  limited by reader\n",
        "  p2: fetch, the hook on_run_end\n    by: landlock\n    write: /w, /srv/<b>x</b>\n    keep (not enforced): /w/.delta\n    net: example.com:443\n",
        "    limits: processes 7\n",
        "    enforced: files, secrets, sockets, processes\n    watched: journal (the run ends at a change)\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let account = show(&sandbox, &["--format", "json"]).json();
    assert!(account.get("sandbox").is_none(), "the last process has none: {account}");
    let calls = &account["iterations"][0]["calls"];
    assert_eq!(calls[2]["sandbox"], "p2");
    assert_eq!(calls[2]["result"]["sandbox"]["refused"]["example.com:80"], 1);
    assert!(calls[0]["result"].get("sandbox").is_none());
}

#[test]
fn c_22_4_a_run_without_a_sandbox_is_shown_without_a_word_of_it() {
    let sandbox = Sandbox::scripted(DELTA, "", "- say: done\n");
    sandbox.run("go", &[]).expect_code(0);
    assert!(!show(&sandbox, &["-v"]).stdout.contains("sandbox"));
    let account = show(&sandbox, &["--format", "json"]).json();
    assert!(account.get("sandbox").is_none());
}

#[test]
fn c_22_4_the_page_marks_the_calls_that_differ_and_has_the_profiles() {
    if !needs::browser() {
        return;
    }
    let sandbox = mixed_run();
    sandbox.delta(["view", "r", "-w", "work"]).output().expect_code(0);
    let mut browser = Browser::start();
    browser.open(&sandbox.path("r.html"), "");
    browser.settle();
    let marks = "[...document.querySelectorAll('#i1 .call')].map(call => [...call.querySelectorAll('.unusual')].map(one => one.title).join('; '))";
    assert_eq!(
        browser.value(marks),
        json!([
            "",
            "refused the network, once",
            "sandbox without net, home; refused evil\u{1b}[2J.test (2), example.com:80 (1)",
            "no sandbox",
        ])
    );
    let open_all = "document.querySelectorAll('details').forEach(one => { one.open = true; if (one.fill) one.fill(); })";
    browser.value(open_all);
    // The folds in what was filled.
    browser.value(open_all);
    let part = |number: usize| {
        format!(
            "[...document.querySelectorAll('#i1-c{number} .part')].find(one => one.querySelector('.cap').textContent.startsWith('Sandbox')).innerText"
        )
    };
    let fetch = browser.value(&part(3));
    for text in [
        "by landlock",
        "not enforced, as --sandbox-without says: net, home",
        "/srv/<b>x</b>",
        "journal",
    ] {
        assert!(fetch.as_str().unwrap().contains(text), "{text}: {fetch}");
    }
    assert!(browser.value(&part(4)).as_str().unwrap().ends_with("none"));
    // The last process had no sandbox: the sidebar says it of the run, the first process has its own.
    let side = browser.value("document.getElementById('side').innerText");
    assert!(side.as_str().unwrap().contains("sandbox\nnone"), "{side}");
    let first = browser.value("document.querySelector('#i1 .small').innerText");
    for text in [
        "with another sandbox",
        "6.99.1",
        "by landlock · fetch, the hook on_run_end",
        "no sandbox · deploy",
        "reader",
    ] {
        assert!(first.as_str().unwrap().contains(text), "{text}: {first}");
    }
}

#[test]
fn c_22_4_what_a_run_records_of_its_sandbox_is_shown_and_verified() {
    let Some(sandbox) = agent("sandbox: workspace", &[("sh", "echo a > in"), ("free", "true")])
    else {
        return;
    };
    expect_done(sandbox.run("go", &[]));
    let text = show(&sandbox, &[]).stdout;
    assert!(
        text.contains("\nsandbox by namespaces for sh: writes only in the workspace"),
        "{text}"
    );
    assert!(text.contains("\nno sandbox for free\n"), "{text}");
    let account = show(&sandbox, &["--format", "json"]).json();
    assert_eq!(account["sandbox"]["tools"], json!({"sh": "p1"}));
    // A journal that names another sandbox than the one that ENGINE_START gives the tool does not agree with itself.
    sandbox.unverified("its journal names another sandbox");
    let journal = sandbox.read("work/.delta/r/journal.jsonl");
    let changed = journal.replacen("\"sandbox\":\"off\"", "\"sandbox\":\"p1\"", 1);
    assert_ne!(journal, changed);
    sandbox.write("work/.delta/r/journal.jsonl", changed);
    let replay = sandbox.delta(["replay", "r", "-w", "work"]).output().expect_code(3);
    assert!(replay.stdout.contains("the sandbox of call call_2_1 (free)"), "{}", replay.stdout);
}
