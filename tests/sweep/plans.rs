//! `plan`: what a sweep.yaml means, and what is wrong with one.

use super::{acting_sandbox, effects, planned, sweep, write_sweep};
use std::collections::BTreeSet;
use test_support::sandbox::Sandbox;

#[test]
fn inputs_and_grades_have_more_than_64_mib() {
    let sandbox = acting_sandbox();
    write_sweep(&sandbox, 11, 1, "grade: [{name: g, command: ['true']}]\n");
    let more = "x".repeat(6 << 20);
    let lines = (0..11)
        .map(|index| format!("{{\"id\":\"i{index}\",\"task\":\"t\",\"more\":\"{more}\"}}\n"));
    sandbox.write("inputs.jsonl", lines.collect::<String>());
    sweep(&sandbox, &["plan"]).expect_code(0);
    let id = &planned(&sandbox)[10];
    sweep(&sandbox, &["task", "s", id]).expect_code(0);
    sweep(&sandbox, &["grade", "s"]).expect_code(0);
    let name = sandbox.files("s/grades").into_iter().find(|name| name.ends_with(".jsonl")).unwrap();
    let torn = "x".repeat((64 << 20) - 1) + "\n";
    sandbox.write(&format!("s/grades/{name}"), torn + &sandbox.read(&format!("s/grades/{name}")));
    assert_eq!(
        sweep(&sandbox, &["grade", "s"]).expect_code(0).stdout,
        "nothing to grade: every finished run has its grades\n"
    );
}

#[test]
fn c_26_2_the_same_file_is_the_same_plan() {
    let sandbox = acting_sandbox();
    write_sweep(&sandbox, 3, 2, "params: {style: [short, long]}\nenv: {STYLE: '${param.style}'}\n");
    let text = sweep(&sandbox, &["plan"]).expect_code(0).stdout;
    assert_eq!(text, "planned 12 runs in s\nnext: delta sweep run s\n");
    let plan = sandbox.read("s/plan.jsonl");
    let again = sweep(&sandbox, &["plan"]).expect_code(0).stdout;
    assert!(again.starts_with("s is planned: 12 runs, nothing new\n"), "{again}");
    assert_eq!(sandbox.files("s").iter().filter(|file| file.contains("plan")).count(), 1);
    // Elsewhere, from another directory, it is the same byte for byte.
    let other = sandbox.delta(["sweep", "plan", "../sweep.yaml", "-d", "other"]);
    other.cwd(sandbox.path("agent")).output().expect_code(0);
    assert_eq!(sandbox.read("agent/other/plan.jsonl"), plan);
}

/// Runs a sweep.yaml whose directory is inside of what it copies, three times.
fn run_three_times(sandbox: &Sandbox) {
    let head = |count: usize, args: &[&str]| {
        let ran = sandbox.delta(["sweep"].iter().chain(args).copied());
        let ran = ran.cwd(sandbox.path("agent")).output().expect_code(0);
        let lines: Vec<String> = ran.stdout.lines().take(count).map(str::to_owned).collect();
        lines.join("\n")
    };
    assert_eq!(head(1, &["run", "sweep.yaml"]), "planned 2 runs in s");
    assert_eq!(head(1, &["run", "sweep.yaml"]), "s is planned: 2 runs, nothing new");
    assert_eq!(head(1, &["plan", "sweep.yaml"]), "s is planned: 2 runs, nothing new");
    let copies = sandbox.files("agent/s").into_iter().filter(|file| file.ends_with("/plan.jsonl"));
    assert_eq!(copies.filter(|file| !file.ends_with("/data/plan.jsonl")).count(), 0);
    assert_eq!(effects(sandbox).values().collect::<Vec<_>>(), [&1, &1]);
}

/// The directory of the sweep was copied with the agent, so each plan had another agent, and all runs were paid again.
#[test]
fn c_26_2_a_sweep_inside_of_its_agent_is_paid_once() {
    let sandbox = acting_sandbox();
    let inputs = "[{id: one, task: a}, {id: two, task: b}]";
    let text = format!("name: s\nagents: [{{id: base, path: .}}]\ninputs: {inputs}\n");
    sandbox.write("agent/sweep.yaml", text);
    // What a plan has left that was killed before it was written.
    sandbox.write("agent/s/agents/.tree.tmp/agent.yaml", "name: other\n");
    run_three_times(&sandbox);
    // What is not copied is not in the hash either.
    sandbox.write("agent/tests/one.yaml", "task: it\n");
    sandbox.write("agent/workspaces/W001/file", "x");
    let ran = sandbox.delta(["sweep", "plan", "sweep.yaml"]);
    let text = ran.cwd(sandbox.path("agent")).output().expect_code(0).stdout;
    assert!(text.starts_with("s is planned: 2 runs, nothing new\n"), "{text}");
}

#[test]
fn c_26_2_a_sweep_inside_of_its_inputs_is_paid_once() {
    let sandbox = acting_sandbox();
    let inputs = "[{id: one, task: a, from: .}, {id: two, task: b, from: ../agent}]";
    let text = format!("name: s\nagents: [../agent]\ninputs: {inputs}\n");
    sandbox.write("agent/sweep.yaml", text);
    run_three_times(&sandbox);
}

#[test]
fn c_26_2_the_directories_of_sweeps_are_no_inputs_and_in_no_copy() {
    let sandbox = acting_sandbox();
    for case in ["one", "two"] {
        sandbox.write(&format!("agent/{case}/file"), case);
    }
    // A file of this name alone is the author's.
    sandbox.write("agent/two/data/plan.jsonl", "{}\n");
    let text = "name: s\nagents: [{id: base, path: .}]\ninputs: {dirs: '*'}\ntask: go\n";
    sandbox.write("agent/sweep.yaml", text);
    run_three_times(&sandbox);
    // Another sweep there has the same agent and inputs, and so the same runs.
    sandbox.write("agent/other.yaml", text.replace("name: s", "name: other"));
    sandbox.write("agent/sweep.yaml", text);
    let plan = |file: &str| {
        let ran = sandbox.delta(["sweep", "plan", file]);
        ran.cwd(sandbox.path("agent")).output().expect_code(0)
    };
    let first = plan("other.yaml");
    assert!(first.stdout.starts_with("planned 2 runs in other\n"), "{first:?}");
    assert!(first.stderr.contains("/agent/s is not copied: it is the directory of a sweep\n"));
    let second = plan("sweep.yaml");
    assert!(second.stdout.starts_with("planned 2 more runs in s"), "{second:?}");
    assert!(plan("sweep.yaml").stdout.starts_with("s is planned: 2 runs, nothing new\n"));
    assert!(plan("other.yaml").stdout.starts_with("other is planned: 2 runs, nothing new\n"));
    let copied = sandbox.files("agent/s/inputs").into_iter();
    let copied = copied.filter(|file| file.ends_with("/data/plan.jsonl"));
    assert_eq!(copied.count(), 1, "{:?}", sandbox.files("agent/s/inputs"));
    // The directory itself is not copied into itself.
    let ran = sandbox.delta(["sweep", "plan", "sweep.yaml", "-d", "."]);
    let ran = ran.cwd(sandbox.path("agent")).output().expect_code(126);
    assert!(ran.stderr.contains("help: write another directory: `-d DIR`"), "{ran:?}");
}

#[test]
fn c_26_2_a_plan_is_extended_and_never_changed() {
    let sandbox = acting_sandbox();
    write_sweep(&sandbox, 2, 1, "");
    sweep(&sandbox, &["plan"]).expect_code(0);
    let first = planned(&sandbox);
    write_sweep(&sandbox, 3, 2, "");
    let text = sweep(&sandbox, &["plan"]).expect_code(0).stdout;
    assert!(text.starts_with("planned 4 more runs in s; 2 runs planned before\n"), "{text}");
    let second = planned(&sandbox);
    assert_eq!(second[..2], first);
    assert_eq!(second.iter().collect::<BTreeSet<_>>().len(), 6);
    // A changed prompt makes new runs, and says so.
    sandbox.write("agent/system_prompt.md", "Be brief.\n");
    let text = sweep(&sandbox, &["plan"]).expect_code(0).stdout;
    assert!(text.contains("planned 6 more runs"), "{text}");
    assert!(text.contains("agent agent has changed, so its runs are new"), "{text}");
    assert!(text.contains("6 runs of earlier plans are not in the file any more"), "{text}");
    assert_eq!(planned(&sandbox)[..6], second);
    let mode =
        std::os::unix::fs::MetadataExt::mode(&sandbox.path("s/plan-3.jsonl").metadata().unwrap());
    assert_eq!(mode & 0o777, 0o444);
}

#[test]
fn a_setting_that_no_id_depends_on_is_planned_without_new_runs() {
    let sandbox = acting_sandbox();
    write_sweep(&sandbox, 2, 1, "");
    sweep(&sandbox, &["plan"]).expect_code(0);
    let ids = planned(&sandbox);
    write_sweep(&sandbox, 2, 1, "budget: {max_cost: 2}\nretry: {attempts: 9}\n");
    let text = sweep(&sandbox, &["plan"]).expect_code(0).stdout;
    assert!(text.starts_with("planned new settings in s; 2 runs, nothing new\n"), "{text}");
    assert_eq!(planned(&sandbox), ids);
}

#[test]
fn a_dry_run_writes_nothing() {
    let sandbox = acting_sandbox();
    write_sweep(&sandbox, 2, 2, "");
    let text = sweep(&sandbox, &["plan", "--dry-run"]).expect_code(0).stdout;
    assert_eq!(text, "would plan 4 runs in s\n");
    assert!(!sandbox.path("s").exists());
}

#[test]
fn every_mistake_is_named_before_anything_is_written() {
    let sandbox = acting_sandbox();
    let base = "name: s\nagents: [agent]\n";
    for (text, message) in [
        ("", "the file is empty"),
        ("name: s\nagents: [agent]\n", "sweep.yaml has no `inputs`"),
        ("name: s\nagents: [nowhere]\ninputs: [{id: a, task: x}]\n", "nowhere"),
        ("name: a/b\nagents: [agent]\ninputs: [{id: a, task: x}]\n", "`name` must be usable"),
        (&format!("{base}inputs: missing.jsonl\n"), "missing.jsonl does not exist"),
        (&format!("{base}inputs: []\n"), "`inputs` is empty"),
        (&format!("{base}inputs: [{{id: a}}]\n"), "input `a`: the input has no `task`"),
        (
            &format!("{base}inputs: [{{id: a, task: x}}, {{id: a, task: y}}]\n"),
            "the input `a` occurs twice",
        ),
        (&format!("{base}inputs: [{{id: a, task: x}}]\nrepeat: 2\n"), "unknown key `repeat`"),
        (
            &format!("{base}inputs: [{{id: a, task: x}}]\ntask: '${{inptu.task}}'\n"),
            "unknown placeholder `${inptu.task}`",
        ),
        (
            &format!("{base}inputs: [{{id: a, task: x}}]\ntask: '${{param.style}}'\n"),
            "unknown parameter `style`",
        ),
        (
            &format!("{base}inputs: [{{id: a, task: x}}]\nenv: {{OPENAI_API_KEY: sk-1}}\n"),
            "a key would be written into the plan",
        ),
        (
            &format!("{base}inputs: [{{id: a, task: x}}]\nfiles: {{../x: y}}\n"),
            "`../x` is not a file in the workspace",
        ),
        (
            &format!("{base}inputs: [{{id: a, task: x}}]\nmodels: [opanai:gpt]\n"),
            "unknown provider `opanai`",
        ),
        (
            &format!("{base}inputs: [{{id: a, task: x}}]\nllm: {{max_retries: many}}\n"),
            "max_retries",
        ),
        (
            &format!("{base}inputs: [{{id: a, task: x}}]\nexclude: [{{modle: x}}]\n"),
            "unknown key `modle`",
        ),
        (
            &format!("{base}inputs: [{{id: a, task: x}}]\nexclude: [{{agent: agent}}]\n"),
            "the sweep has no runs",
        ),
        (&format!("{base}inputs: [{{id: a, task: x}}]\nretry: {{on: [hook]}}\n"), "`on` must be"),
        (&format!("{base}inputs: [a]\n"), "write `{id: a, task: ...}`"),
        ("name: s\nagents: agent\ninputs: [{id: a, task: x}]\n", "write `agents: [agent]`"),
        (
            &format!("{base}inputs: [{{id: a, task: x}}]\nmodels: openai:gpt\n"),
            "write `models: [openai:gpt]`",
        ),
        (&format!("{base}inputs: [{{id: a, task: x}}]\nenv: [A]\n"), "`env` must be a mapping"),
        (
            &format!("{base}inputs: [{{id: a, task: x}}]\nrun: {{max_duration: 30}}\n"),
            "write `90s`, `30m`, `2h` or `1h30m`",
        ),
        (
            &format!("{base}inputs: [{{id: a, task: x}}]\nexclude: [{{agent: agnt}}]\n"),
            "no run has `{agent: agnt}`",
        ),
        (
            &format!(
                "{base}inputs: [{{id: a, task: x}}]\ngrade: [{{name: g, command: [a], agent: b}}]\n"
            ),
            "keep one of `command`, `agent`",
        ),
        (&format!("{base}inputs: {{dirs: 'none/*'}}\n"), "write a pattern relative to the file"),
        (
            "name: s\nagents: [agent, {id: b, path: agent}]\ninputs: [{id: a, task: x}]\n",
            "two runs are the same",
        ),
    ] {
        sandbox.write("sweep.yaml", text);
        let ran = sweep(&sandbox, &["plan"]).expect_code(126);
        assert!(ran.stderr.contains(message), "{text}\n{}", ran.stderr);
        assert!(!sandbox.path("s").exists(), "{text}");
    }
    sandbox.write("inputs.jsonl", "{\"id\":\"a\",\"task\":\"x\"}\n{\"task\":\"x\"}\n");
    sandbox.write("sweep.yaml", format!("{base}inputs: inputs.jsonl\n"));
    let ran = sweep(&sandbox, &["plan"]).expect_code(126);
    assert!(
        ran.stderr.contains("error: an input has no `id`\n  --> inputs.jsonl:2:1"),
        "{}",
        ran.stderr
    );
}

/// A misspelled key of `llm` went into every request of the sweep.
#[test]
fn a_key_of_llm_that_is_close_to_a_known_one_is_a_mistake() {
    let sandbox = acting_sandbox();
    let base = "name: s\nagents: [agent]\ninputs: [{id: a, task: x}]\n";
    let plan = |more: &str| {
        sandbox.write("sweep.yaml", format!("{base}{more}"));
        sweep(&sandbox, &["plan", "--dry-run"])
    };
    let model = "models: [{id: m, model: 'script:script.yaml', llm: {temprature: 1}}]\n";
    for text in ["llm: {temprature: 1}\n", model] {
        let ran = plan(text).expect_code(126);
        assert!(
            ran.stderr.contains("delta does not know the key `temprature` of `llm`"),
            "{ran:?}"
        );
        assert!(ran.stderr.contains("did you mean `temperature`?"), "{ran:?}");
    }
    plan("llm: {min_tokens: 1}\n").expect_code(126);
    plan("x-lint-allow: [llm-key]\nllm: {min_tokens: 1}\n").expect_code(0);
    plan("llm: {temperature: 1, seed: 1, a_key_of_tomorrow: 2}\n").expect_code(0);
}

#[test]
fn models_parameters_and_files_reach_the_run() {
    let sandbox = Sandbox::new(super::DELTA);
    sandbox.write_program("look.sh", "#!/bin/sh\ncat in.txt from.txt\necho style $STYLE\n");
    let tool = format!("  - {{name: look, exec: '{}'}}", sandbox.path("look.sh").display());
    sandbox.agent("provider: script\n  model: script.yaml", &tool);
    sandbox.write("agent/script.yaml", "turns:\n  - say: own\n");
    sandbox.write(
        "careful.yaml",
        "turns:\n  - call: [{tool: look, args: {}}]\n  - say: \"${last} (${task})\"\n",
    );
    sandbox.write("cases/one/from.txt", "case one\n");
    sandbox.write(
        "sweep.yaml",
        "\
name: s
agents: [agent]
models: [{id: careful, model: 'script:careful.yaml', env: {STYLE: '${param.style}'}}]
inputs: {dirs: 'cases/*'}
task: 'do ${input.id} $${x} ${param.style}'
files: {in.txt: 'repeat ${repeat}\n'}
params: {style: [short]}
",
    );
    sweep(&sandbox, &["plan"]).expect_code(0);
    // What is planned does not change with its sources.
    sandbox.write("careful.yaml", "turns:\n  - say: changed\n");
    sandbox.write("cases/one/from.txt", "changed\n");
    sweep(&sandbox, &["run", "s"]).expect_code(0);
    let lines = super::result_lines(&sandbox);
    let result = lines[0]["result"].as_str().unwrap();
    assert!(result.contains("repeat 1"), "{result}");
    assert!(result.contains("case one") && result.contains("style short"), "{result}");
    assert!(result.ends_with("(do one ${x} short)"), "{result}");
}

/// Each process would take the model that its operator has set.
#[test]
fn an_agent_without_a_model_needs_one_in_the_sweep() {
    let sandbox = acting_sandbox();
    sandbox.write("agent/agent.yaml", "name: agent\n");
    let plan = |more: &str| {
        write_sweep(&sandbox, 1, 1, more);
        sandbox.delta(["sweep", "plan"]).env("DELTA_MODEL", "openai:m-1").output()
    };
    let refused = plan("").expect_code(126).stderr;
    let error = "error: agent `agent` has no `llm`, and sweep.yaml does not name its model\nhelp: a sweep names its models: write `models: [\"openai:m-1\"]`\n";
    assert_eq!(refused, error);
    plan("models: [\"openai:m-1\"]\n").expect_code(0);
    let judge = "models: [\"openai:m-1\"]\ngrade: [{name: j, agent: agent}]\n";
    let refused = plan(judge).expect_code(126).stderr;
    assert!(refused.contains("grader `j` has no `llm`"), "{refused}");
    assert!(refused.contains("help: write `model: \"openai:m-1\"` for it"), "{refused}");
    plan(&judge.replace("agent: agent", "agent: agent, model: openai:m-1")).expect_code(0);
}

/// The runs of a task that was corrected were tries of the same input, so the score was 0.50.
#[test]
fn c_26_3_runs_whose_input_or_task_was_edited_are_in_no_figure() {
    let sandbox = acting_sandbox();
    let text = |task: &str, more: &str| {
        let inputs = format!("[{{id: x, q: 1}}, {{id: y, q: 2}}{more}]");
        let grade = "{name: g, expect: {result: {contains: right}}}";
        format!(
            "name: s\nagents: [agent]\ninputs: {inputs}\ntask: '{task} ${{input.q}}'\ngrade: [{grade}]\n"
        )
    };
    let run = |text: &str| {
        sandbox.write("sweep.yaml", text);
        sweep(&sandbox, &["run", "sweep.yaml"]).expect_code(0)
    };
    let rows = |by: &str| {
        let compared = sweep(&sandbox, &["compare", "s", "--by", by, "--format", "json"]);
        let rows = compared.expect_code(0).json()["rows"].clone();
        let rows = rows.as_array().unwrap().clone();
        rows.iter()
            .map(|row| (row["planned"].as_u64().unwrap(), row["score"]["value"].as_f64().unwrap()))
            .collect::<Vec<_>>()
    };
    let first = run(&text("wrogn", ""));
    assert!(!first.stderr.contains("earlier plans"), "{first:?}");
    let second = run(&text("right", ""));
    assert!(second.stdout.contains("2 of 2"), "{second:?}");
    let note = "note: 2 runs of earlier plans are left out, for the newest plan has another input, task or setting: `delta sweep list s` prints all\n";
    assert!(second.stderr.contains(note), "{second:?}");
    assert_eq!(rows("agent"), [(2, 1.0)]);
    let collected = sweep(&sandbox, &["collect", "s", "-o", "-"]).expect_code(0);
    assert_eq!(collected.stdout.lines().count(), 2, "{collected:?}");
    assert!(collected.stderr.contains(note), "{collected:?}");
    let page = |sandbox: &Sandbox| {
        sweep(sandbox, &["view", "s", "-o", "page.html"]).expect_code(0);
        super::one_command::page_data(&sandbox.read("page.html"))
    };
    assert_eq!(page(&sandbox)["runs"].as_array().unwrap().len(), 2, "{}", page(&sandbox));
    // Another input adds runs, and an input that was edited has other ones.
    run(&text("right", ", {id: z, q: 3}"));
    assert_eq!(rows("agent"), [(3, 1.0)]);
    run(&text("right", ", {id: z, q: 4}"));
    assert_eq!(rows("agent"), [(3, 1.0)]);
    // Another agent has a row of its own.
    sandbox.write("agent/system_prompt.md", "Be brief.\n");
    run(&text("right", ", {id: z, q: 4}"));
    assert_eq!(rows("agent"), [(3, 1.0), (3, 1.0)]);
    // The first file again has its runs, and none is done twice.
    let before = effects(&sandbox);
    sandbox.write("agent/system_prompt.md", "You are a test.\n");
    run(&text("wrogn", ""));
    assert_eq!(rows("agent"), [(2, 0.0)]);
    assert_eq!(effects(&sandbox), before);
    // An agent in place of another one is compared with it.
    for file in sandbox.files("agent") {
        sandbox.write(&format!("other/{file}"), sandbox.read(&format!("agent/{file}")));
    }
    sandbox.write("other/system_prompt.md", "You are another test.\n");
    run(&text("wrogn", "").replace("[agent]", "[other]"));
    assert_eq!(rows("agent"), [(2, 0.0), (2, 0.0)]);
}

/// Runs that nothing asks for any more cost money.
#[test]
fn c_26_2_a_run_that_did_not_begin_and_is_not_in_the_newest_plan_is_not_started() {
    let sandbox = acting_sandbox();
    write_sweep(&sandbox, 4, 1, "");
    sweep(&sandbox, &["plan"]).expect_code(0);
    let ids = planned(&sandbox);
    sweep(&sandbox, &["run", "s", "--only", "input=i3"]).expect_code(0);
    write_sweep(&sandbox, 1, 1, "");
    let text = sweep(&sandbox, &["plan"]).expect_code(0).stdout;
    let note = "3 runs of earlier plans are not in the file any more; they do not start if their input, task or model is another one now\n";
    assert!(text.contains(note), "{text}");
    assert_eq!(planned(&sandbox), [ids[0].clone(), ids[3].clone()]);
    assert_eq!(sweep(&sandbox, &["list", "s", "--todo"]).stdout, format!("{}\n", ids[0]));
    assert_eq!(super::status(&sandbox)["not_started"], 1);
    sweep(&sandbox, &["run", "s"]).expect_code(0);
    sweep(&sandbox, &["task", "s", "0/1"]).expect_code(0);
    assert_eq!(effects(&sandbox).into_keys().collect::<Vec<_>>(), [&*ids[0], &ids[3]]);
    // They are still planned.
    write_sweep(&sandbox, 4, 1, "");
    sweep(&sandbox, &["run", "sweep.yaml"]).expect_code(0);
    assert_eq!(planned(&sandbox), ids);
    assert!(effects(&sandbox).len() == 4 && effects(&sandbox).values().all(|count| *count == 1));
}
