//! Calls of one answer that run at the same time (C-28.9). The tools of these tests wait for each other, so that they end
//! only if they run together.

use super::DELTA;
use super::hooks::{give, resume};
use serde_json::{Value, json};
use test_support::running::send_signal;
use test_support::sandbox::{Ran, Sandbox};
use test_support::wait::{processes_with, until};

/// `ring` ends when the calls `me` and `other` and all others of their ring have started.
const RING: &str = "  - name: ring
    shell: mkfifo ${me} ${other} 2>/dev/null; echo go > ${me} & read line < ${other}; wait; echo ${me} $line
    parallel: true
    timeout_ms: 60000
";

/// Waits until the journal of the run has `count` lines that match `text`, which must not match itself: requests have the
/// command lines of their calls.
fn wait_for(text: &str, count: usize) -> String {
    format!(
        "until test $(grep -c {text} ${{RUN_DIR}}/journal.jsonl) -ge {count}; do sleep 0.01; done"
    )
}

/// Calls of `ring`, each of which waits for the one before.
fn ring(names: &[&str]) -> String {
    let others = names.iter().cycle().skip(names.len() - 1);
    let calls = names.iter().zip(others);
    let calls: Vec<String> = calls
        .map(|(me, other)| format!("{{tool: ring, args: {{me: {me}, other: {other}}}}}"))
        .collect();
    calls.join(", ")
}

/// The types of the requests and results in the journal, each with the index of its call.
fn order(sandbox: &Sandbox) -> Vec<String> {
    let mut calls = Vec::new();
    let mut order = Vec::new();
    for event in sandbox.journal() {
        let Some(id) = event["call_id"].as_str() else { continue };
        if !calls.iter().any(|call| call == id) {
            calls.push(id.to_owned());
        }
        let index = calls.iter().position(|call| call == id).unwrap() + 1;
        match event["type"].as_str().unwrap() {
            "ACTION_REQUEST" => order.push(format!("+{index}")),
            "ACTION_RESULT" => order.push(format!("-{index}")),
            _ => {}
        }
    }
    order
}

fn signal(name: &str, pid: u32) {
    assert!(send_signal(name, pid));
}

fn nothing_is_left(sandbox: &Sandbox) {
    let mark = format!("RUN_DIR={}", sandbox.path("work/.delta/r").display());
    until("the end of the tools", || processes_with(&[&mark]).is_empty().then_some(()));
}

#[test]
fn c_28_9_calls_run_at_the_same_time_and_their_results_are_in_order() {
    let turns = format!("- call: [{}]\n- say: done\n", ring(&["a", "b", "c"]));
    let sandbox = Sandbox::scripted(DELTA, RING, &turns);
    let ran = sandbox.run("go", &[]).expect_code(0);
    assert_eq!(sandbox.observations(), ["a go\n", "b go\n", "c go\n"]);
    assert_eq!(order(&sandbox), ["+1", "+2", "+3", "-1", "-2", "-3"]);
    let lines: Vec<&str> =
        ran.stderr.lines().filter(|line| line.starts_with(['→', '←', ' '])).collect();
    assert_eq!(
        lines,
        [
            "→ ring me=a other=c",
            "→ ring me=b other=a",
            "→ ring me=c other=b",
            "← ring me=a other=c",
            "  │ a go",
            "← ring me=b other=a",
            "  │ b go",
            "← ring me=c other=b",
            "  │ c go",
        ]
    );
}

#[test]
fn c_28_9_at_most_as_many_as_the_limit() {
    let names = ["a", "b", "c", "d", "e", "f"];
    let turns = |parts: &[&[&str]]| {
        let parts: Vec<String> = parts.iter().map(|part| ring(part)).collect();
        format!("- call: [{}]\n- say: done\n", parts.join(", "))
    };
    let sandbox = Sandbox::scripted(DELTA, RING, &turns(&[&names[..4], &names[4..]]));
    sandbox.run("go", &[]).expect_code(0);
    let four = ["+1", "+2", "+3", "+4", "-1", "-2", "-3", "-4", "+5", "+6", "-5", "-6"];
    assert_eq!(order(&sandbox), four);
    let tools = format!("{RING}limits: {{parallel: 2}}\n");
    let sandbox = Sandbox::scripted(DELTA, &tools, &turns(&[&names[..2], &names[2..4]]));
    sandbox.run("go", &[]).expect_code(0);
    assert_eq!(order(&sandbox), ["+1", "+2", "-1", "-2", "+3", "+4", "-3", "-4"]);
    let sandbox = Sandbox::scripted(DELTA, &tools, &turns(&[&names]));
    sandbox.run("go", &["--max-parallel", "6"]).expect_code(0);
    assert_eq!(sandbox.observations().len(), 6);
    assert_eq!(order(&sandbox)[..6], ["+1", "+2", "+3", "+4", "+5", "+6"]);
    sandbox.run("go", &["--max-parallel", "0"]).expect_code(2);
}

#[test]
fn c_28_9_other_calls_run_one_after_another() {
    let tools = format!("{RING}  - name: alone\n    shell: echo alone\n");
    let turns = format!(
        "- call: [{{tool: alone}}, {}, {{tool: alone}}, {{tool: finish, args: {{result: end}}}}, {}]\n",
        ring(&["a", "b"]),
        ring(&["c", "d"])
    );
    let sandbox = Sandbox::scripted(DELTA, &tools, &turns);
    assert_eq!(sandbox.run("go", &["--format", "raw"]).expect_code(0).stdout, "end\n");
    let expected = "+1 -1 +2 +3 -2 -3 +4 -4 +5 +6 -5 -6 +7 -7";
    assert_eq!(order(&sandbox).join(" "), expected);
}

#[test]
fn c_28_9_each_call_ends_in_its_own_way() {
    let tools = "  - {name: fail, shell: echo bad; exit 3, parallel: true}
  - {name: hang, shell: exec sleep 1000, timeout_ms: 300, parallel: true}
  - {name: die, shell: kill -SEGV $$, parallel: true}
  - {name: gone, exec: ./no-such-program, parallel: true}
  - {name: well, shell: 'echo ${text}', parallel: true}
limits: {parallel: 8}
";
    let turns = "- call: [{tool: fail}, {tool: hang}, {tool: die}, {tool: gone}, {tool: well, args: {}}, {tool: well, args: {text: fine}}]\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, tools, turns);
    give(&sandbox, &[("on_error", "echo failed >> $DELTA_CWD/errors")]);
    sandbox.run("go", &[]).expect_code(0);
    assert_eq!(order(&sandbox).join(" "), "+1 +2 +3 +4 +5 +6 -1 -2 -3 -4 -5 -6");
    let seen = sandbox.observations();
    assert_eq!(seen[0], "bad\n[exit code: 3]");
    assert_eq!(seen[1], "[timed out after 300 ms]");
    assert_eq!(seen[2], "[killed by SIGSEGV]");
    assert!(
        seen[3].contains("does not exist") && seen[3].ends_with("[exit code: 127]"),
        "{seen:?}"
    );
    assert!(seen[4].contains("text"), "{seen:?}");
    assert_eq!(seen[5], "fine\n");
    assert_eq!(sandbox.read("work/errors"), "failed\n");
}

#[test]
fn c_28_9_a_signal_ends_all_of_them() {
    let tools = "  - {name: wait, shell: 'touch started-${n}; exec sleep 1000', parallel: true}\n";
    let turns = "- call: [{tool: wait, args: {n: 1}}, {tool: wait, args: {n: 2}}, {tool: wait, args: {n: 3}}]\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, tools, turns);
    let child = sandbox.run_command("go", &[]).spawn();
    until("three calls", || {
        (1..=3).all(|n| sandbox.path(&format!("work/started-{n}")).exists()).then_some(())
    });
    signal("INT", child.id());
    let output = child.wait_with_output().unwrap();
    Ran::of(output.status, &output.stdout, &output.stderr).expect_code(130);
    nothing_is_left(&sandbox);
    assert_eq!(order(&sandbox), ["+1", "+2", "+3", "-1", "-2", "-3"]);
    let seen = sandbox.observations();
    assert!(seen.iter().all(|text| text.contains("interrupted")), "{seen:?}");
    resume(&sandbox, &[]).output().expect_code(0);
}

#[test]
fn c_28_9_a_result_is_known_if_the_engine_dies_during_the_calls_after_it() {
    let tools = format!(
        "  - {{name: quick, shell: echo quick, parallel: true}}
  - name: kill
    shell: {}; echo so far; kill -9 $PPID; exec sleep 1000
    parallel: true
",
        wait_for("[A]CTION_RESULT", 1)
    );
    let turns = "- call: [{tool: quick}, {tool: kill}, {tool: quick}]\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, &tools, turns);
    assert_eq!(sandbox.run("go", &[]).code, -1);
    nothing_is_left(&sandbox);
    assert_eq!(order(&sandbox), ["+1", "+2", "+3", "-1"]);
    resume(&sandbox, &[]).output().expect_code(0);
    let seen = sandbox.observations();
    assert_eq!(seen[0], "quick\n");
    assert!(seen[1].contains("whether it took effect is unknown"), "{seen:?}");
    assert!(seen[2].contains("whether it took effect is unknown"), "{seen:?}");
}

#[test]
fn c_28_9_what_a_call_leaves_running_ends_with_it_and_not_with_another() {
    // `keeper` looks after its own orphan when the other call has its result.
    let tools = format!(
        "  - name: leaver
    shell: test -e ready || mkfifo ready 2>/dev/null; read line < ready; setsid sleep 1000 > /dev/null 2>&1 & echo left
    parallel: true
  - name: keeper
    shell: |-
      mkfifo ready 2>/dev/null
      (setsid sleep 2000 > /dev/null 2>&1 & echo $! > orphan)
      echo go > ready; {}
      kill -0 $(cat orphan) && echo its own is alive
    parallel: true
",
        wait_for("[A]CTION_RESULT", 1)
    );
    let turns = "- call: [{tool: leaver}, {tool: keeper}]\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, &tools, turns);
    sandbox.run("go", &[]).expect_code(0);
    let seen = sandbox.observations();
    let has = |index: usize, text: &str, command: &str| {
        let text = format!("{text}\n[ended 1 background process: ");
        seen[index].starts_with(&text) && seen[index].ends_with(&format!("{command}]"))
    };
    assert!(has(0, "left", "sleep 1000") && has(1, "its own is alive", "sleep 2000"), "{seen:?}");
    nothing_is_left(&sandbox);
}

#[test]
fn c_28_9_every_call_passes_its_gate_before_the_first_starts() {
    let turns = format!(
        "- call: [{}, {{tool: ring, args: {{me: denied, other: denied}}}}, {{tool: ring, args: {{me: changed, other: x}}}}]\n- say: done\n",
        ring(&["a", "b"])
    );
    let sandbox = Sandbox::scripted(DELTA, RING, &turns);
    let gate = "case $TOOL_ARGS in
*denied*) echo '{\"decision\": \"deny\", \"reason\": \"no\"}' ;;
*changed*) echo '{\"arguments\": {\"me\": \"self\", \"other\": \"self\"}}' ;;
esac
test -e a && echo started >> early
exit 0";
    let filter = "test $TOOL_EXIT_CODE && echo \"{\\\"observation\\\": \\\"filtered\\\"}\"; exit 0";
    give(&sandbox, &[("pre_tool_execution", gate), ("post_tool_execution", filter)]);
    sandbox.run("go", &[]).expect_code(0);
    assert!(!sandbox.path("work/early").exists());
    assert_eq!(order(&sandbox).join(" "), "+1 +2 +3 +4 -1 -2 -3 -4");
    let seen = sandbox.observations();
    assert_eq!((&*seen[0], &*seen[1], &*seen[3]), ("filtered", "filtered", "filtered"));
    assert!(seen[2].contains("the tool was not run.\nno"), "{seen:?}");
    let requests = sandbox.events("ACTION_REQUEST");
    assert_eq!(requests[3]["tool_args"], json!({"me": "self", "other": "self"}));
    assert!(requests[2]["argv"].is_null());
}

#[test]
fn c_28_9_a_call_that_has_to_be_approved_waits_for_the_calls_before_it() {
    let tools = format!(
        "{RING}    approve: [{{match: {{me: ^c$}}, do: ask}}, {{match: {{me: ^x$}}, do: deny}}, {{do: allow}}]\n"
    );
    let turns = format!(
        "- call: [{}, {{tool: ring, args: {{me: x, other: x}}}}, {}]\n- say: done\n",
        ring(&["a", "b"]),
        ring(&["c", "d"])
    );
    let sandbox = Sandbox::scripted(DELTA, &tools, &turns);
    sandbox.run("go", &[]).expect_code(101);
    assert_eq!(order(&sandbox).join(" "), "+1 +2 +3 -1 -2 -3");
    resume(&sandbox, &["-m", "yes"]).output().expect_code(0);
    assert_eq!(order(&sandbox).join(" "), "+1 +2 +3 -1 -2 -3 +4 +5 -4 -5");
    let seen = sandbox.observations();
    assert!(seen[2].starts_with("Denied by a rule of the agent"), "{seen:?}");
    assert_eq!(seen[3..], ["c go\n", "d go\n"]);
}

#[test]
fn c_28_9_no_call_starts_before_the_question_about_one_before_it() {
    let tools = format!("{RING}    approve: [{{match: {{me: ^c$}}, do: ask}}, {{do: allow}}]\n");
    let calls = "{tool: ring, args: {me: c, other: c}}, {tool: ring, args: {me: d, other: d}}";
    let sandbox = Sandbox::scripted(DELTA, &tools, &format!("- call: [{calls}]\n- say: done\n"));
    sandbox.run("go", &[]).expect_code(101);
    assert_eq!(order(&sandbox).join(" "), "");
    resume(&sandbox, &["-m", "yes"]).output().expect_code(0);
    assert_eq!(order(&sandbox).join(" "), "+1 +2 -1 -2");
    assert_eq!(sandbox.observations(), ["c go\n", "d go\n"]);
}

#[test]
fn c_28_9_one_snapshot_after_all_of_them_and_a_full_disk_starts_none() {
    let turns = format!("- call: [{}]\n- say: done\n", ring(&["a", "b"]));
    let sandbox = Sandbox::scripted(DELTA, &format!("{RING}snapshots: true\n"), &turns);
    sandbox.run("go", &[]).expect_code(0);
    let kinds: Vec<Value> = sandbox.journal().iter().map(|event| event["type"].clone()).collect();
    let at = kinds.iter().rposition(|kind| kind == "ACTION_RESULT").unwrap();
    let first = kinds.iter().position(|kind| kind == "ACTION_REQUEST").unwrap();
    assert!(!kinds[first..at].contains(&json!("SNAPSHOT")), "{kinds:?}");
}

#[test]
fn c_28_9_only_true_and_numbers_of_calls_are_accepted() {
    let sandbox = Sandbox::scripted(DELTA, RING, "- say: done\n");
    let tools = RING.replace("parallel: true", "parallel: 3");
    sandbox.agent("{provider: script, model: script.yaml}", &tools);
    let ran = sandbox.run("go", &[]).expect_code(126);
    assert!(ran.stderr.contains("`parallel` must be `true` or `false`"), "{}", ran.stderr);
    let tools = format!("{RING}limits: {{parallel: 65}}\n");
    sandbox.agent("{provider: script, model: script.yaml}", &tools);
    let ran = sandbox.run("go", &[]).expect_code(126);
    assert!(ran.stderr.contains("parallel") && ran.stderr.contains("64"), "{}", ran.stderr);
}
