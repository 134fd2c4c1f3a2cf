//! The server scenarios of the official conformance suite of MCP, through a bridge from HTTP to pipes.
//!
//! Every scenario of the suite is named here: it runs, with the checks that cannot pass and why, or it does not apply.

use super::{DELTA, run_script};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use test_support::sandbox::Sandbox;
use test_support::{effort, needs};

/// The scenarios that run, each at its versions.
const SCENARIOS: &[(&str, &[&str])] = &[
    ("server-stateless", &["2026-07-28"]),
    ("caching", &["2026-07-28"]),
    ("server-initialize", &["2025-11-25"]),
    ("ping", &["2025-11-25"]),
    ("tools-list", &["2026-07-28", "2025-11-25"]),
    ("tools-call-simple-text", &["2026-07-28", "2025-11-25"]),
    ("tools-call-error", &["2026-07-28", "2025-11-25"]),
    ("tools-call-with-progress", &["2026-07-28", "2025-11-25"]),
    ("tools-call-elicitation", &["2025-11-25"]),
    ("input-required-result-basic-elicitation", &["2026-07-28"]),
    ("input-required-result-request-state", &["2026-07-28"]),
    ("input-required-result-multi-round", &["2026-07-28"]),
    ("input-required-result-missing-input-response", &["2026-07-28"]),
    ("input-required-result-result-type", &["2026-07-28"]),
    ("input-required-result-unsupported-methods", &["2026-07-28"]),
    ("input-required-result-tampered-state", &["2026-07-28"]),
    ("input-required-result-validate-input", &["2026-07-28"]),
    ("tasks-lifecycle", &["extension"]),
    ("tasks-capability-negotiation", &["extension"]),
    ("tasks-wire-fields", &["extension"]),
    ("tasks-request-state-removal", &["extension"]),
    ("tasks-mrtr-input", &["extension"]),
    ("tasks-request-headers", &["extension"]),
    ("tasks-dispatch-and-envelope", &["extension"]),
    ("tasks-status-notifications", &["extension"]),
    ("tasks-mrtr-composition", &["extension"]),
];

/// The checks of these scenarios that fail.
const FAILING: &[(&str, &[&str])] = &[
    (
        "the headers of HTTP are the bridge's; delta serves pipes",
        &[
            "sep-2575-http-server-header-mismatch-400",
            "tasks-headers-reject-mismatched-method",
            "sep-2663-server-rejects-mismatched-mcp-name-on-tasks-get",
        ],
    ),
    (
        "no call needs a capability of the client",
        &["sep-2575-server-rejects-undeclared-capability", "sep-2575-missing-capability-http-400"],
    ),
    (
        "there are no prompts and resources to cache",
        &[
            "sep-2549-prompts-list-caching-hints",
            "sep-2549-resources-list-caching-hints",
            "sep-2549-resources-templates-list-caching-hints",
        ],
    ),
    (
        "a run that failed is the result of its call, never an error of the protocol",
        &["sep-2663-tasks-get-status-failed"],
    ),
    ("a run asks one question at a time", &["tasks-mrtr-partial-fulfillment"]),
];

/// The scenarios that do not apply, with the beginning of their names.
const NOT_APPLICABLE: &[(&str, &[&str])] = &[
    (
        "delta serves pipes, not HTTP",
        &[
            "server-session-lifecycle",
            "server-sse-",
            "dns-rebinding-protection",
            "http-header-validation",
            "http-custom-header-server-validation",
        ],
    ),
    (
        "an agent offers no resources, prompts, completions, logging, sampling or roots",
        &[
            "resources-",
            "sep-2164-resource-not-found",
            "sep-2640-skills-",
            "prompts-",
            "completion-complete",
            "logging-set-level",
            "tools-call-with-logging",
            "tools-call-sampling",
            "input-required-result-basic-sampling",
            "input-required-result-basic-list-roots",
            "input-required-result-non-tool-request",
            "input-required-result-capability-check",
        ],
    ),
    (
        "the results of an agent are text",
        &[
            "tools-call-image",
            "tools-call-audio",
            "tools-call-embedded-resource",
            "tools-call-mixed-content",
        ],
    ),
    ("the schemas of the four tools are fixed", &["json-schema-2020-12"]),
    ("a form has one field without a default", &["elicitation-sep"]),
    ("a run asks one question at a time", &["input-required-result-multiple-input-requests"]),
    (
        "an answer without the `requestState` of its question belongs to no run",
        &["input-required-result-ignore-extra-params"],
    ),
    ("no call needs a client with tasks", &["tasks-required-task-error"]),
];

/// The agent: its script knows the tools of the suite by the first word of the message.
const AGENT: &str = "\
name: suite
llm: {provider: script, model: script.yaml}
tools:
  - name: pause
    shell: sleep ${seconds}; printf %s ${then}
";
// A call becomes a task after 2 s, so the calls that the suite expects to be tasks take longer.
const SCRIPT: &str = r#"turns:
- {when: '^greet .*"name":"([^"]*)"', say: 'Hello, ${1}!'}
- {when: '^slow_compute .*"seconds":0\b', say: computed}
- {when: '^slow_compute .*"seconds":60', call: [{tool: pause, args: {seconds: '60', then: done}}]}
- {when: '^slow_compute ', call: [{tool: pause, args: {seconds: '2.5', then: done}}]}
- {when: '^(failing_job|protocol_error_job) ', call: [{tool: pause, args: {seconds: '2.5', then: fail}}]}
- {when: '^confirm_delete ', call: [{tool: pause, args: {seconds: '2.5', then: confirm}}]}
- {when: '^confirm$', call: [{tool: ask_human, args: {prompt: Delete?, input_type: confirmation}}]}
- {when: '^(fail$|test_error_handling )', error: it failed}
- {when: '^test_tool_with_progress ', call: [{tool: pause, args: {seconds: '0.2', then: one}}]}
- {when: '^one$', call: [{tool: pause, args: {seconds: '0.2', then: two}}]}
- when: '^test_input_required_result_multi_round '
  call: [{tool: ask_human, args: {prompt: Your name?}}, {tool: ask_human, args: {prompt: Your colour?}}]
- {when: '^test_(input_required_|tool_with_task|elicitation|streaming_elicitation)', call: [{tool: ask_human, args: {prompt: Your name?}}]}
- {when: '^Alice$', call: [{tool: pause, args: {seconds: '2.5', then: Hello Alice}}]}
- {say: '${last}'}
"#;

/// The suite and its Node. As every client of others it takes long, and is run by `.ci/run full` only.
fn find_suite() -> Option<(PathBuf, PathBuf)> {
    if !effort::is_full() {
        needs::skip("starts a hundred clients, so only with DELTA_FULL_TESTS");
        return None;
    }
    let modules = needs::fetched("mcp-suite/node_modules")?;
    let suite = (modules.join(".bin/conformance"), modules.join("node/bin"));
    needs::programs(&["python3"]).then_some(suite)
}

#[test]
fn c_29_1_the_conformance_suite_accepts_the_server() {
    let Some((conformance, node)) = find_suite() else { return };
    let sandbox = Sandbox::new(DELTA);
    sandbox.write("suite/agent.yaml", AGENT);
    sandbox.write("suite/script.yaml", SCRIPT);
    sandbox.write("suite/system_prompt.md", "Do what the suite asks.\n");
    sandbox.write("suite/context.yaml", "sources:\n  - {type: journal, id: journal}\n");
    let mut words = vec![conformance.to_str().unwrap().to_owned()];
    for (scenario, versions) in SCENARIOS {
        words.extend(versions.iter().map(|version| format!("{scenario}@{version}")));
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let path = format!("{}:{}", node.display(), std::env::var("PATH").unwrap());
    let script = "conformance_server.py";
    let seen = run_script(&sandbox, Path::new("python3"), script, &words, &[("PATH", &path)]);
    expect_every_scenario(&seen["listed"]);
    let expected: BTreeSet<&str> =
        FAILING.iter().flat_map(|(_, checks)| *checks).copied().collect();
    let mut failed = BTreeSet::new();
    let mut surprises = Vec::new();
    let mut passed = 0;
    for (scenario, checks) in seen["outcomes"].as_object().unwrap() {
        for (check, outcome) in checks.as_object().unwrap() {
            let outcome = outcome.as_str().unwrap();
            if ["SUCCESS", "SKIPPED", "INFO"].iter().any(|status| outcome.starts_with(status)) {
                passed += 1;
            } else if expected.contains(check.as_str()) {
                failed.insert(check.as_str());
            } else {
                surprises.push(format!("{scenario} {check} {outcome}"));
            }
        }
    }
    println!("{passed} checks passed");
    for (reason, checks) in FAILING {
        println!("not met: {}: {reason}", checks.join(", "));
    }
    assert!(surprises.is_empty(), "{}", surprises.join("\n"));
    assert_eq!(failed, expected, "a check that is listed as failing passes");
}

/// Fails if the suite has a scenario that this file does not name.
fn expect_every_scenario(listed: &Value) {
    for name in listed.as_array().unwrap().iter().map(|name| name.as_str().unwrap()) {
        let runs = SCENARIOS.iter().any(|(scenario, _)| *scenario == name);
        let reason = NOT_APPLICABLE
            .iter()
            .find(|(_, names)| names.iter().any(|begin| name.starts_with(begin)));
        match reason {
            Some((reason, _)) => println!("not applicable: {name}: {reason}"),
            None => assert!(runs, "the suite has a scenario {name}"),
        }
    }
}
