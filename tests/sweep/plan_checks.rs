//! `plan` refuses what no run could begin with, and what would make runs that are the same.

use super::{acting_sandbox, planned, status, sweep, write_sweep};
use std::os::unix::fs::MetadataExt;
use test_support::sandbox::{Ran, Sandbox};

const BASE: &str = "name: s\nagents: [agent]\n";
const INPUT: &str = "inputs: [{id: a, task: x}]\n";

fn plan(sandbox: &Sandbox, more: &str) -> Ran {
    sandbox.write("sweep.yaml", format!("{BASE}{more}"));
    sweep(sandbox, &["plan"])
}

/// Plans nothing, and reports all of these.
fn refuse(sandbox: &Sandbox, more: &str, messages: &[&str]) {
    let ran = plan(sandbox, more).expect_code(126);
    for message in messages {
        assert!(ran.stderr.contains(message), "{more}\n{}", ran.stderr);
    }
    assert!(!sandbox.path("s").exists(), "{more}");
}

/// Its values made runs that were the same, and `compare` compared them.
#[test]
fn a_parameter_that_nothing_uses_is_a_mistake() {
    let sandbox = acting_sandbox();
    refuse(
        &sandbox,
        &format!("{INPUT}params: {{temperature: [0, 1], style: [short]}}\n"),
        &[
            "nothing uses the parameter `temperature`",
            "`llm: {temperature: \"${param.temperature}\"}`",
            "nothing uses the parameter `style`",
            "`task: \"${input.task} ${param.style}\"`",
        ],
    );
    for (index, place) in [
        "task: '${param.p}'\n",
        "env: {A: '${param.p}'}\n",
        "files: {a: '${param.p}'}\n",
        "llm: {seed: '${param.p}'}\n",
        "models: [{id: m, model: 'script:script.yaml', env: {A: 'x${param.p}'}}]\n",
        "grade: [{name: g, command: ['true', '${param.p}']}]\n",
    ]
    .into_iter()
    .enumerate()
    {
        sandbox.write("sweep.yaml", format!("{BASE}{INPUT}params: {{p: [1]}}\n{place}"));
        sweep(&sandbox, &["plan", "-d", &format!("s{index}")]).expect_code(0);
    }
}

#[test]
fn a_repeated_value_of_a_parameter_is_named() {
    let sandbox = acting_sandbox();
    let more =
        format!("{INPUT}params: {{temp: [0.5, 0.7, 0.5]}}\nllm: {{top_p: '${{param.temp}}'}}\n");
    refuse(&sandbox, &more, &["the value 0.5 of `temp` occurs twice"]);
}

/// They were one row of `compare`, and `--only` selected both.
#[test]
fn values_of_a_parameter_that_look_alike_are_named() {
    let sandbox = acting_sandbox();
    for (values, message) in [
        ("[1, '1']", "the values 1 and \"1\" of `p` look alike in tables and for `--only`"),
        ("['x', true, 'true']", "the values true and \"true\" of `p` look alike"),
        ("['{\"a\":1}', {a: 1}]", "the values \"{\\\"a\\\":1}\" and {\"a\":1} of `p` look alike"),
    ] {
        let more = format!("{INPUT}params: {{p: {values}}}\nllm: {{top_p: '${{param.p}}'}}\n");
        refuse(&sandbox, &more, &[message, "help: keep one of them"]);
    }
}

#[test]
fn all_wrong_placeholders_are_reported_at_once() {
    let sandbox = acting_sandbox();
    let more = format!(
        "{INPUT}task: '${{param.x}} ${{foo}} ${{bar}}'\ngrade: [{{name: g, command: ['true', '${{param.q}} ${{zoo}}']}}]\nmodels: [{{id: m, model: 'script:script.yaml', env: {{A: '${{nope}}'}}}}]\n"
    );
    let messages = [
        "unknown parameter `x`",
        "unknown placeholder `${foo}`",
        "unknown placeholder `${bar}`",
        "unknown parameter `q`",
        "unknown placeholder `${zoo}`",
        "unknown placeholder `${nope}`",
    ];
    refuse(&sandbox, &more, &messages);
}

/// Only the first combination was checked, and `run` stopped in the middle of the sweep.
#[test]
fn every_combination_of_settings_is_checked() {
    let sandbox = acting_sandbox();
    let llm = "llm: {temperature: '${param.temp}'}\n";
    for (values, value) in [("[0, 5]", "temp 5"), ("[0, 0.5, '1']", "temp \"1\"")] {
        let more = format!("{INPUT}params: {{temp: {values}}}\n{llm}");
        refuse(
            &sandbox,
            &more,
            &[&format!("a run cannot begin, input `a`, {value}"), "temperature"],
        );
    }
    let by_input = "inputs: [{id: a, task: x, t: 1}, {id: b, task: x, t: 7}]\nllm: {temperature: '${input.t}'}\n";
    refuse(&sandbox, by_input, &["temperature"]);
    let excluded = format!("{INPUT}params: {{temp: [0, 5]}}\n{llm}exclude: [{{temp: 5}}]\n");
    plan(&sandbox, &excluded).expect_code(0);
}

#[test]
fn a_limit_of_cost_needs_the_price_of_every_model() {
    let sandbox = acting_sandbox();
    let models = "models: ['script:script.yaml', 'openai:foo-bar']\n";
    for limit in ["budget: {max_cost: 2}\n", "run: {max_cost: 2}\n"] {
        refuse(
            &sandbox,
            &format!("{INPUT}{models}{limit}"),
            &["requires the price of foo-bar", "pricing: {input: 2.5, output: 10}", "DELTA_PRICES"],
        );
    }
    sandbox.write(
        "judge/agent.yaml",
        "name: judge\nllm: {provider: openai, model: judge-model}\nmax_iterations: 3\n",
    );
    for file in ["system_prompt.md", "context.yaml"] {
        sandbox.write(&format!("judge/{file}"), sandbox.read(&format!("agent/{file}")));
    }
    let judge = "grade: [{name: j, agent: judge}]\nbudget: {max_cost: 2}\n";
    refuse(&sandbox, &format!("{INPUT}{judge}"), &["requires the price of judge-model"]);
    sandbox.write(
        "prices.json",
        r#"{"foo-bar": {"input_cost_per_token": 1e-6, "output_cost_per_token": 1e-6, "litellm_provider": "openai"}}"#,
    );
    sandbox.write("sweep.yaml", format!("{BASE}{INPUT}{models}budget: {{max_cost: 2}}\n"));
    let prices = sandbox.path("prices.json");
    sandbox.delta(["sweep", "plan"]).env("DELTA_PRICES", &prices).output().expect_code(0);
}

/// Each of these was planned, and left every run with "its process died 3 times".
#[test]
fn what_a_run_refuses_is_refused_at_plan() {
    let sandbox = acting_sandbox();
    refuse(
        &sandbox,
        &format!("{INPUT}run: {{max_iterations: 2147483648}}\n"),
        &["`max_iterations` must be", "2147483647"],
    );
    refuse(&sandbox, "inputs: [{id: a, task: ''}]\n", &["input `a`: its task is empty"]);
    refuse(&sandbox, "inputs: [{id: a, task: ' '}]\n", &["input `a`: its task is empty"]);
    for (variable, message) in [
        ("DELTA_RUNS_DIR: /tmp", "`DELTA_RUNS_DIR` is not for single runs"),
        ("DELTA_BUDGET: /tmp", "write `budget: {max_cost: 2}`"),
        ("DELTA_LEASE: nope", "`env`: DELTA_LEASE: expected auto, flock or turns, found `nope`"),
        ("DELTA_LEASE_TTL: 9", "DELTA_LEASE_TTL: expected a time from 500ms to 1h"),
    ] {
        refuse(&sandbox, &format!("{INPUT}env: {{{variable}}}\n"), &[message]);
        let model =
            format!("models: [{{id: m, model: 'script:script.yaml', env: {{{variable}}}}}]\n");
        refuse(&sandbox, &format!("{INPUT}{model}"), &[message]);
    }
    let by_param =
        format!("{INPUT}params: {{l: [auto, nope]}}\nenv: {{DELTA_LEASE: '${{param.l}}'}}\n");
    refuse(&sandbox, &by_param, &["found `nope`"]);
    plan(
        &sandbox,
        &format!("{INPUT}run: {{max_iterations: 2147483647}}\nenv: {{DELTA_LEASE: flock}}\n"),
    )
    .expect_code(0);
    sweep(&sandbox, &["run", "s"]).expect_code(0);
}

/// The file cannot be written to.
fn rewrite_plan(sandbox: &Sandbox, text: &str) {
    std::fs::remove_file(sandbox.path("s/plan.jsonl")).unwrap();
    sandbox.write("s/plan.jsonl", text);
}

#[test]
fn the_reason_of_a_process_that_dies_before_its_run_begins_is_reported() {
    let sandbox = acting_sandbox();
    write_sweep(&sandbox, 2, 1, "env: {A: b}\nretry: {attempts: 2}\n");
    sweep(&sandbox, &["plan"]).expect_code(0);
    // As a plan of an earlier version may have it.
    let text = sandbox.read("s/plan.jsonl").replace("\"A\":\"b\"", "\"DELTA_LEASE\":\"nope\"");
    rewrite_plan(&sandbox, &text);
    let ran = sweep(&sandbox, &["run", "s"]).expect_code(3);
    let reason =
        "its process died 2 times: error: DELTA_LEASE: expected auto, flock or turns, found `nope`";
    assert!(ran.stderr.contains(&format!(" remains: {reason}")), "{}", ran.stderr);
    let failures = status(&sandbox)["failures"].clone();
    assert_eq!(failures[0]["type"], "start", "{failures}");
    assert_eq!(failures[0]["runs"], 2, "{failures}");
    assert!(failures[0]["message"].as_str().unwrap().starts_with("its process died 2 times"));
    let table = sweep(&sandbox, &["collect", "s"]).expect_code(3).stdout;
    assert!(table.contains("0 of 2\n  missing: 2 start; "), "{table}");
    // Whoever can begin the run does.
    rewrite_plan(&sandbox, &sandbox.read("s/plan.jsonl").replace("nope", "auto"));
    sweep(&sandbox, &["run", "s"]).expect_code(0);
    assert!(status(&sandbox)["failures"].as_array().unwrap().is_empty());
}

#[test]
fn ids_that_look_the_same_in_an_id_of_a_run_are_explained() {
    let sandbox = acting_sandbox();
    for (first, second) in [("问题一", "问题二"), ("a b", "a-b")] {
        let inputs = format!("inputs: [{{id: {first}, task: x}}, {{id: {second}, task: x}}]\n");
        let help = "in the letters a-z and A-Z, digits, `.`, `_` and `-` among the first 40 characters of their ids";
        refuse(&sandbox, &inputs, &["two runs are the same", help]);
    }
    plan(&sandbox, "inputs: [{id: 问题一, task: x}, {id: 问题二, task: y}]\n").expect_code(0);
    assert_eq!(planned(&sandbox).len(), 2);
}

#[test]
fn an_empty_id_and_a_byte_order_mark_are_read_as_what_they_are() {
    let sandbox = acting_sandbox();
    refuse(&sandbox, "inputs: [{id: '', task: x}]\n", &["`id` is empty"]);
    sandbox.write("inputs.jsonl", "\u{feff}{\"id\":\"a\",\"task\":\"x\"}\n");
    plan(&sandbox, "inputs: inputs.jsonl\n").expect_code(0);
    assert_eq!(planned(&sandbox).len(), 1);
}

/// A plan, its results and its grades are for the user alone, unless the directory is another one's.
#[test]
fn keys_and_results_are_private() {
    let sandbox = acting_sandbox();
    sandbox.agent("model: a\n  api_key_env: OWN_SECRET", "");
    for name in ["ANTHROPIC_AUTH_TOKEN", "FOO_API_KEY", "DELTA_API_KEY", "OWN_SECRET"] {
        let message = "a key would be written into the plan";
        refuse(&sandbox, &format!("{INPUT}env: {{{name}: sk-1}}\n"), &[message, name]);
        let model = format!("models: [{{id: m, model: 'openai:m', env: {{{name}: sk-1}}}}]\n");
        refuse(&sandbox, &format!("{INPUT}{model}"), &[message]);
    }
    let sandbox = acting_sandbox();
    write_sweep(&sandbox, 1, 1, "grade: [{name: g, command: ['true']}]\n");
    sweep(&sandbox, &["plan"]).expect_code(0);
    sweep(&sandbox, &["run", "s"]).expect_code(0);
    sweep(&sandbox, &["grade", "s"]).expect_code(0);
    let mode = |path: &str| sandbox.path(path).metadata().unwrap().mode() & 0o777;
    assert_eq!((mode("s"), mode("s/plan.jsonl")), (0o700, 0o444));
    for dir in ["s/results", "s/grades"] {
        for file in sandbox.files(dir) {
            assert_eq!(mode(&format!("{dir}/{file}")), 0o600, "{dir}/{file}");
        }
    }
}

/// A mistyped `--only` was a success that did nothing, in all commands but `run`.
#[test]
fn only_that_selects_nothing_is_a_mistake() {
    let sandbox = acting_sandbox();
    write_sweep(&sandbox, 1, 1, "grade: [{name: g, command: ['true']}]\n");
    sweep(&sandbox, &["plan"]).expect_code(0);
    sweep(&sandbox, &["run", "s"]).expect_code(0);
    let with_file: &[&str] = &["collect", "s", "-o", "o.csv"];
    let commands = ["run", "list", "grade", "collect", "compare", "view", "pack"];
    let commands =
        commands.map(|command| vec![command, "s"]).into_iter().chain([with_file.to_vec()]);
    for command in commands {
        let ran = sweep(&sandbox, &[&command[..], &["--only", "model=nope"]].concat());
        let ran = ran.expect_code(126);
        assert_eq!(ran.stdout, "", "{command:?}");
        assert_eq!(
            ran.stderr,
            "error: no run of the sweep is selected\nhelp: `--only` can select models: own\n",
            "{command:?}"
        );
    }
    assert!(!sandbox.path("o.csv").exists() && !sandbox.path("s.html").exists());
    assert!(
        sweep(&sandbox, &["list", "s", "--todo", "--only", "model=own"])
            .expect_code(0)
            .stdout
            .is_empty()
    );
}
