//! Runs of a sweep whose tools and hooks start other runs.

use super::{DELTA, result_lines, status, sweep};
use serde_json::Value;
use test_support::sandbox::Sandbox;

/// The agents `top`, `mid` and `kid`: a tool of each starts the next one. Only `kid` needs much of the budget.
fn nested_sandbox(levels: &[&str]) -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    let usage = "usage: {input_tokens: 100, output_tokens: 10}";
    for (index, name) in levels.iter().enumerate() {
        let (tool, turns) = match levels.get(index + 1) {
            Some(below) => {
                let home = sandbox.path(below);
                let run = format!("'{DELTA}' run --agent '{}'", home.display());
                let shell = format!("{run} -w {below} -q --format raw -m hi");
                let call = format!("call: [{{tool: sub}}], {usage}");
                (
                    format!("tools:\n  - name: sub\n    shell: \"{shell}\"\n"),
                    format!(
                        "  - {{{call}}}\n  - {{when: 'budget of the sweep', {call}}}\n  - {{say: \"${{last}}\", {usage}}}\n"
                    ),
                )
            }
            None => {
                let usage = "usage: {input_tokens: 2500, output_tokens: 500}";
                (String::new(), format!("  - {{say: answer, {usage}}}\n"))
            }
        };
        let max_tokens = if *name == "kid" { 3500 } else { 50 };
        let pricing = "pricing: {input: 2, output: 10}";
        let llm = format!(
            "{{provider: script, model: script.yaml, max_tokens: {max_tokens}, {pricing}}}"
        );
        sandbox.write(&format!("{name}/agent.yaml"), format!("name: {name}\nllm: {llm}\n{tool}"));
        sandbox.write(&format!("{name}/system_prompt.md"), "Work.\n");
        let sources = "sources: [{type: file, path: system_prompt.md}, {type: journal}]\n";
        sandbox.write(&format!("{name}/context.yaml"), sources);
        sandbox.write(&format!("{name}/script.yaml"), format!("turns:\n{turns}"));
    }
    sandbox
}

/// Plans three runs of `top`, one at a time, with more lines.
fn plan(sandbox: &Sandbox, more: &str) {
    let inputs = "inputs: [{id: a, task: a}, {id: b, task: b}, {id: c, task: c}]";
    let text = format!("name: s\nagents: [top]\n{inputs}\nrate: {{concurrent: 1}}\n{more}");
    sandbox.write("sweep.yaml", text);
    sweep(sandbox, &["plan"]).expect_code(0);
}

/// The last line of the run on this input.
fn line_of(sandbox: &Sandbox, input: &str) -> Value {
    result_lines(sandbox).into_iter().rfind(|line| line["input"] == input).unwrap()
}

#[test]
fn c_26_8_a_run_is_interrupted_with_the_run_below_it_that_the_budget_stops() {
    for levels in [&["top", "kid"][..], &["top", "mid", "kid"]] {
        let sandbox = nested_sandbox(levels);
        plan(&sandbox, "budget: {max_tokens: 10000}\n");
        let ran = sweep(&sandbox, &["run", "s"]).expect_code(3);
        assert_eq!(line_of(&sandbox, "a")["result"], "answer");
        let line = line_of(&sandbox, "c");
        assert_eq!((&line["status"], &line["settled"]), (&"INTERRUPTED".into(), &false.into()));
        assert_eq!(line["error"]["type"], "budget", "{line}");
        let message = line["error"]["message"].as_str().unwrap();
        assert!(message.starts_with("in run "), "{message}");
        assert!(message.contains(": the budget of the sweep, 10000 tokens, does not"), "{message}");
        let begin = "the sweep's budget of 10000 tokens does not allow another call: ";
        let printed = ran.stderr.lines().find(|line| line.starts_with(begin));
        assert!(printed.expect(&ran.stderr).contains(", and the next call may take "));
        // The LLM gets the failed result, and calls again.
        plan(&sandbox, "budget: {max_tokens: 100000}\n");
        sweep(&sandbox, &["run", "s"]).expect_code(0);
        assert_eq!(line_of(&sandbox, "c")["result"], "answer");
        assert_eq!(status(&sandbox)["completed"], 3);
    }
}

#[test]
fn c_26_8_the_failure_of_a_hook_that_the_budget_stops_is_no_result() {
    let sandbox = nested_sandbox(&["top", "kid"]);
    let command = format!(
        "'{DELTA}' run --agent '{}' -w kid -q --format raw -m hi",
        sandbox.path("kid").display()
    );
    sandbox.write_program("hook.sh", &format!("#!/bin/sh\n{command} >&2\n"));
    let hook = format!(
        "pre_tool_execution: {{command: ['{}'], on_failure: fail}}\n",
        sandbox.path("hook.sh").display()
    );
    sandbox.write("top/hooks.yaml", hook);
    plan(&sandbox, "budget: {max_tokens: 8000}\n");
    sweep(&sandbox, &["run", "s"]).expect_code(3);
    let line = result_lines(&sandbox).pop().unwrap();
    assert_eq!((&line["status"], &line["settled"]), (&"INTERRUPTED".into(), &false.into()));
    assert_eq!(line["error"]["type"], "budget", "{line}");
}

#[test]
fn the_cost_of_a_run_has_its_sub_agents_and_the_budget_has_the_judges() {
    let sandbox = nested_sandbox(&["top", "mid", "kid"]);
    sandbox.write("judge/agent.yaml", "name: judge\nllm: {provider: script, model: script.yaml, max_tokens: 10, pricing: {input: 2, output: 10}}\nfinish: {schema: {type: object}}\n");
    for file in ["system_prompt.md", "context.yaml"] {
        sandbox.write(&format!("judge/{file}"), sandbox.read(&format!("kid/{file}")));
    }
    let usage = "usage: {input_tokens: 100, output_tokens: 10}";
    let turn = format!("turns: [{{call: [{{tool: finish, args: {{score: 1}}}}], {usage}}}]\n");
    sandbox.write("judge/script.yaml", turn);
    plan(&sandbox, "budget: {max_cost: 1}\ngrade: [{name: j, agent: judge}]\n");
    let ran = sweep(&sandbox, &["run", "s"]).expect_code(0);
    // Two calls each of `top` and `mid` for 0.0003 USD, and one of `kid` for 0.01.
    let line = line_of(&sandbox, "a");
    assert_eq!(line["cost_usd"], 0.0112, "{line}");
    assert_eq!(
        (&line["usage"]["input_tokens"], &line["usage"]["output_tokens"]),
        (&2900.into(), &540.into())
    );
    assert!(ran.stdout.contains("\n0.034 of 1 USD\n"), "{}", ran.stdout);
    sweep(&sandbox, &["grade", "s"]).expect_code(0);
    let status = status(&sandbox);
    assert_eq!((&status["cost_usd"], &status["used_usd"]), (&0.0336.into(), &0.0345.into()));
    assert!(sweep(&sandbox, &["status", "s"]).stdout.contains("0.035 of 1 USD"));
    let table = sweep(&sandbox, &["collect", "s"]).expect_code(0).stdout;
    assert!(table.contains("0.0112"), "{table}");
}
