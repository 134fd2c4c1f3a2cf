//! Gates that fail stay shut (C-9.4): every way to fail that a hook has, and the tool behind it leaves no trace.

use super::DELTA;
use super::hooks::hooked;
use serde_json::{Value, json};
use test_support::needs;
use test_support::running::send_signal;
use test_support::sandbox::{Ran, Sandbox};
use test_support::wait::{processes_with, until_line};

const TOOLS: &str = "  - name: t\n    shell: echo ${text} >> trace\n";

/// An agent that calls its tool once; `hooks` is its hooks.yaml, `script` the program of its hook.
fn guarded(hooks: &str, script: &str) -> Sandbox {
    let turns = "- call: [{tool: t, args: {text: a}}]\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, TOOLS, turns);
    sandbox.write("agent/hooks.yaml", hooks);
    sandbox.write_program("agent/hook", script);
    sandbox
}

/// A hooks.yaml whose only hook is the program `hook`.
fn hook(name: &str, more: &str) -> String {
    format!("{name}: {{command: ['${{AGENT_HOME}}/hook']{more}}}\n")
}

fn sh(body: &str) -> String {
    format!("#!/bin/sh\n{body}\n")
}

/// Whether the tool has run.
fn has_run(sandbox: &Sandbox) -> bool {
    sandbox.path("work/trace").exists()
}

/// The record of the only hook.
fn record(sandbox: &Sandbox) -> Value {
    let events = sandbox.events("HOOK_EXECUTION");
    assert_eq!(events.len(), 1);
    let name = events[0]["record"].as_str().unwrap();
    serde_json::from_str(&sandbox.read(&format!("work/.delta/r/{name}"))).unwrap()
}

/// Programs of a pre_tool_execution hook, and what the observation says of them.
const SHUT: &[(&str, &str)] = &[
    ("exit 1", "the hook left with exit code 1"),
    ("echo not today >&2; exit 3", "not today"),
    ("echo '{\"decision\":\"allow\"}'; echo broken >&2; exit 1", "broken"),
    ("kill -KILL $$", "the hook was killed by SIGKILL"),
    ("sleep 1000", "the hook was not done after 300 ms"),
    ("trap '' TERM; echo '{\"decision\":\"allow\"}'; sleep 1000 & kill -KILL $$", "SIGKILL"),
    ("no-such-program-at-all", "not found"),
    ("echo denied", "not one JSON object: denied"),
    ("echo checking; echo '{\"decision\":\"deny\"}'", "not one JSON object"),
    ("echo '\"deny\"'", "not one JSON object"),
    ("echo '[]'", "not one JSON object"),
    ("echo null", "not one JSON object"),
    ("echo '{\"decision\":\"allow\"'", "invalid JSON"),
    ("echo '{\"decision\":\"allow\"} {\"decision\":\"deny\"}'", "invalid JSON"),
    ("echo '{\"decision\":\"allow\"} and so on'", "invalid JSON"),
    ("echo '{decision: deny}'", "invalid JSON"),
    ("echo '{\"decision\":\"denied\"}'", "no answer"),
    ("echo '{\"decision\":\"Allow\"}'", "no answer"),
    ("echo '{\"decision\":true}'", "no answer"),
    ("echo '{\"decision\":null}'", "no answer"),
    ("echo '{\"decision\":\"deny\",\"decision\":\"allow\"}'", "no answer"),
    ("echo '{\"descision\":\"deny\"}'", "no answer"),
    ("echo '{\"decision\":\"allow\",\"until\":\"noon\"}'", "no answer"),
    ("echo '{\"reason\":\"it is late\"}'", "no `decision`"),
    ("echo '{\"decision\":\"allow\",\"reason\":7}'", "no answer"),
    ("printf '{\"decision\":\"allow\",\"reason\":\"\\377\"}'", "not UTF-8"),
    ("printf '\\357\\273\\277{\"decision\":\"allow\"}'", "not one JSON object"),
    ("echo '{\"arguments\":[]}'", "must be a JSON object, not an array"),
    ("echo '{\"arguments\":{}}'", "missing required parameter `text`"),
    ("echo '{\"arguments\":{\"text\":\"a\",\"more\":1}}'", "unknown parameter `more`"),
    ("echo '{\"arguments\":{\"text\":\"a\\u0000\"}}'", "NUL"),
    ("echo '{\"decision\":\"deny\",\"arguments\":{\"text\":\"b\"}}'", "the hook gave no reason"),
    ("echo '{\"decision\":\"deny\",\"reason\":\"no\"}'; exit 1", "no"),
    ("echo '{\"decision\":\"deny\",\"reason\":\"too slow\"}'; sleep 1000", "too slow"),
    // What the leader started has not printed its answer yet.
    ("(sleep 1000; echo '{\"decision\":\"deny\"}') &", "left its standard output open"),
    ("head -c 70000000 /dev/zero | tr '\\0' ' '; echo '{\"decision\":\"allow\"}'", "64 MiB"),
];

#[test]
fn c_9_4_a_gate_that_fails_stays_shut() {
    for (script, reason) in SHUT {
        let slow = script.contains("70000000");
        let timeout = if slow { ", timeout_ms: 60000" } else { ", timeout_ms: 300" };
        // What takes a moment more under load than the timeout is still denied, but for another reason.
        let timeout = if script.contains("sleep 1000") { timeout } else { ", timeout_ms: 60000" };
        let sandbox = guarded(&hook("pre_tool_execution", timeout), &sh(script));
        let ran = sandbox.run("go", &[]).expect_code(0);
        end_left(&sandbox);
        assert!(!has_run(&sandbox), "{script} let the tool run");
        let seen = sandbox.observations().remove(0);
        let begin = "Denied by the hook pre_tool_execution; the tool was not run.\n";
        assert!(seen.starts_with(begin) && seen.contains(reason), "{script}: {seen}");
        let request = &sandbox.events("ACTION_REQUEST")[0];
        assert_eq!((&request["argv"], &request["execution"]), (&Value::Null, &Value::Null));
        assert_eq!(sandbox.events("ACTION_RESULT")[0]["exit_code"], Value::Null, "{script}");
        assert_eq!(record(&sandbox)["decision"], "deny", "{script}");
        assert!(ran.stdout.contains("done"), "{script}: the run goes on");
        assert_eq!(sandbox.files("work/.delta/r/io/tool_executions"), Vec::<String>::new());
    }
}

#[test]
fn c_9_4_a_gate_whose_program_cannot_be_started_stays_shut() {
    let programs = [
        "['${AGENT_HOME}/nowhere']",
        "[no-such-program-at-all]",
        "['${AGENT_HOME}/agent.yaml']",
        "['${AGENT_HOME}']",
        "['${AGENT_HOME}/torn']",
    ];
    for command in programs {
        let hooks = format!("pre_tool_execution: {{command: {command}}}\n");
        let sandbox = guarded(&hooks, &sh("exit 0"));
        sandbox.write_program("agent/torn", "#!/no/such/interpreter\n");
        let ran = sandbox.run("go", &[]).expect_code(0);
        let seen = sandbox.observations().remove(0);
        assert!(!has_run(&sandbox), "{command}: {seen}");
        let begin = "Denied by the hook pre_tool_execution; the tool was not run.\nthe hook could not be started: ";
        assert!(seen.starts_with(begin), "{command}: {seen}");
        let warned = "! call denied: the hook pre_tool_execution could not be started";
        assert!(ran.stderr.contains(warned), "{}", ran.stderr);
        let code = sandbox.events("HOOK_EXECUTION")[0]["exit_code"].as_i64().unwrap();
        assert!([126, 127].contains(&code), "{code}");
    }
}

/// The agent's tools had written a `.env` into the workspace, whose "key" is a path. A process that began later took it
/// out of the command line that the gate was shown, and what was left lay inside the workspace.
#[test]
fn c_9_4_a_gate_is_shown_what_runs_or_nothing_runs() {
    if !needs::programs(&["jq"]) {
        return;
    }
    let sandbox = hooked(
        "  - {name: t, exec: 'cat -- ${directory}/${file}'}\n",
        "- call: [{tool: t, args: {directory: a0/../.., file: secret.txt}}]\n- say: '${last}'\n",
        &[(
            "pre_tool_execution",
            "file=$(jq -r '.argv[-1]')\ncase $(realpath -m -- \"$file\") in \"$CWD\"/*) ;; *) exit 1 ;; esac",
        )],
    );
    sandbox.write("work/a0/file", "");
    sandbox.write("secret.txt", "the secret\n");
    sandbox.write("work/.env", "DELTA_API_KEY=a0/../../secret.txt\n");
    let run = sandbox.run_command("go", &["--format", "raw"]).env("DELTA_TRUST", "work");
    let ran = run.output().expect_code(0);
    assert_eq!(
        ran.stdout,
        "Denied by the hook pre_tool_execution; the tool was not run.\n\
         the hook cannot be shown the call: it holds the value of a key variable\n"
    );
    assert_eq!(sandbox.events("HOOK_EXECUTION"), Vec::<serde_json::Value>::new());
    let warning = "! call denied: the hook pre_tool_execution cannot be shown the call: it holds";
    assert!(ran.stderr.contains(warning), "{}", ran.stderr);
}

#[test]
fn c_9_4_ignore_opens_a_gate_whose_hook_fails_and_says_so() {
    for script in ["exit 1", "kill -KILL $$", "sleep 1000", "echo '{'", "echo denied"] {
        let timeout = if script == "sleep 1000" { 300 } else { 60000 };
        let more = format!(", on_failure: ignore, timeout_ms: {timeout}");
        let sandbox = guarded(&hook("pre_tool_execution", &more), &sh(script));
        let ran = sandbox.run("go", &[]).expect_code(0);
        assert_eq!(sandbox.read("work/trace"), "a\n", "{script}");
        let warned = "! passed because of `on_failure: ignore`: the hook pre_tool_execution ";
        assert!(ran.stderr.contains(warned), "{script}: {}", ran.stderr);
        assert_eq!(record(&sandbox)["decision"], "allow");
    }
}

#[test]
fn c_9_4_ignore_does_not_take_an_answer_for_consent_that_it_does_not_understand() {
    for answer in [
        "{\"decision\":\"denied\"}",
        "{\"decision\":\"deny\",\"why\":\"x\"}",
        "{\"decision\":\"deny\"}",
        "{\"arguments\":{}}",
    ] {
        for code in [0, 1] {
            let script = sh(&format!("echo '{answer}'; exit {code}"));
            let sandbox = guarded(&hook("pre_tool_execution", ", on_failure: ignore"), &script);
            sandbox.run("go", &[]).expect_code(0);
            // A hook that left with an exit code did not vouch for its arguments either.
            let broken = code == 1 && answer.starts_with("{\"arguments");
            assert_eq!(has_run(&sandbox), broken, "{answer} with {code}");
        }
    }
}

#[test]
fn c_9_4_ignore_does_not_take_an_answer_with_other_text_around_it_for_consent() {
    for output in [
        "{\"decision\":\"deny\"}\\ndone\\n",
        "{}\\n{\"decision\":\"deny\"}\\n",
        "checking\\n{\"decision\": \"deny\"}\\n",
        "verdict: {\"decision\":\"deny\"}\\n",
        "\\357\\273\\277{\"decision\":\"deny\"}",
        "[{\"decision\":\"deny\"}]",
        "{\"decision\":\"deny\"",
        "\\377{\"decision\":\"deny\"}",
    ] {
        let script = sh(&format!("printf '{output}'"));
        let sandbox = guarded(&hook("pre_tool_execution", ", on_failure: ignore"), &script);
        let ran = sandbox.run("go", &[]).expect_code(0);
        assert!(!has_run(&sandbox), "{output}");
        assert!(ran.stderr.contains("! call denied"), "{output}: {}", ran.stderr);
    }
}

#[test]
fn c_9_4_a_replacement_after_other_text_is_a_failure_and_the_output_stays_secret() {
    let replacement = "{\"observation\": \"RED\"}";
    for (output, is_answer) in [
        (format!("start\\n{replacement}\\n"), true),
        (format!("start\\n  {replacement}"), true),
        (format!("\\357\\273\\277{replacement}"), true),
        ("start\\n{\\n\"observation\":\\n".to_owned(), true),
        (format!("looked at {replacement}\\n"), false),
        ("start\\n{\"level\": \"info\"}\\n".to_owned(), false),
    ] {
        let hooks = hook("post_tool_execution", ", on_failure: fail");
        let sandbox = guarded(&hooks, &sh(&format!("printf '{output}'")));
        let ran = sandbox.run("go", &[]).expect_code(i32::from(is_answer));
        assert_eq!(ran.stderr.contains("is not one JSON object"), is_answer, "{}", ran.stderr);
    }
}

#[test]
fn c_9_4_consent_is_silence_or_a_clear_yes() {
    for script in [
        "exit 0",
        "printf ' \\n\\t '",
        "echo '{}'",
        "echo '{\"decision\":\"allow\"}'",
        "printf '\\n {\"decision\": \"allow\", \"reason\": \"fine\"}\\n\\n'",
        "echo not for the engine >&2",
        "cat > /dev/null",
        // Who does not read its input is not waited for, nor a child in the background.
        "exec < /dev/null",
        "sleep 1000 > /dev/null &",
        "echo '{\"decision\":\"allow\"}'; sleep 1000 &",
    ] {
        let sandbox = guarded(&hook("pre_tool_execution", ""), &sh(script));
        sandbox.run("go", &[]).expect_code(0);
        assert_eq!(sandbox.read("work/trace"), "a\n", "{script}");
        assert_eq!(record(&sandbox)["decision"], "allow");
        end_left(&sandbox);
    }
}

/// Ends what the gate has left in the background, which the engine does not touch.
fn end_left(sandbox: &Sandbox) {
    for pid in processes_with(&["HOOK_NAME=pre_tool_execution", &run_dir(sandbox)]) {
        send("KILL", u32::try_from(pid).unwrap());
    }
}

/// The run's directory as a variable of its children.
fn run_dir(sandbox: &Sandbox) -> String {
    format!("RUN_DIR={}", sandbox.path("work/.delta/r").display())
}

#[test]
fn c_9_4_a_hook_that_is_late_is_ended_with_all_it_started() {
    let script = "setsid sleep 1000 &\n(sleep 1000 &)\ntrap '' TERM\nsleep 1000 & wait";
    let sandbox = guarded(&hook("pre_tool_execution", ", timeout_ms: 400"), &sh(script));
    sandbox.run("go", &[]).expect_code(0);
    assert!(!has_run(&sandbox));
    assert_eq!(processes_with(&[&run_dir(&sandbox)]), Vec::<i32>::new());
}

#[test]
fn c_9_4_a_request_that_its_gate_does_not_let_through_is_not_sent() {
    let failures = [
        ("echo no >&2; exit 7", "left with exit code 7:\nno"),
        ("sleep 1000", "was not done after 300 ms"),
        ("(sleep 1000; echo '{\"messages\":[]}') &", "left its standard output open"),
        ("echo hello", "printed something that is not one JSON object: hello"),
        ("echo '{\"mesages\":[]}'", "an object that is no answer"),
        ("echo '{\"messages\":[]}'", "it has no message"),
        ("echo '{\"messages\":{}}'", "an object that is no answer"),
        ("echo '{\"messages\":[{\"content\":\"x\"}]}'", "message 1 is not an object with a `role`"),
        ("echo '{\"messages\":[\"x\"]}'", "message 1 is not an object with a `role`"),
        (
            "echo '{\"messages\":[{\"role\":\"tool\",\"tool_call_id\":\"a\",\"content\":\"\"}]}'",
            "message 1 is the result of no call before it",
        ),
        (
            "echo '{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"a\"}]}]}'",
            "the call `a` has no result",
        ),
        ("echo '{\"request\":{}}'", "it has no list of `messages`"),
        ("echo '{\"request\":{\"messages\":[{\"role\":\"user\"}]}}'", "it has no `model`"),
        ("echo '{\"request\":{},\"messages\":[]}'", "only one of them counts"),
    ];
    for (script, reason) in failures {
        let timeout = if script == "sleep 1000" { 300 } else { 60000 };
        let hooks = hook("pre_llm_request", &format!(", timeout_ms: {timeout}"));
        let sandbox = guarded(&hooks, &sh(script));
        let ran = sandbox.run("go", &["--format", "json"]).expect_code(1);
        let error = &ran.json()["error"];
        let message = error["message"].as_str().unwrap();
        assert_eq!(error["type"], "hook", "{script}");
        assert!(message.starts_with("the hook pre_llm_request "), "{message}");
        assert!(message.contains(reason), "{script}: {message}");
        assert_eq!(sandbox.files("work/.delta/r/io/invocations"), Vec::<String>::new());
        assert_eq!(sandbox.events("THOUGHT").len(), 0);
    }
    let sandbox = guarded(&hook("pre_llm_request", ", on_failure: ignore"), &sh("exit 1"));
    let ran = sandbox.run("go", &[]).expect_code(0);
    let warned = "! passed because of `on_failure: ignore`: the hook pre_llm_request left with exit code 1\n";
    assert!(ran.stderr.contains(warned), "{}", ran.stderr);
    assert_eq!(sandbox.read("work/trace"), "a\n");
}

#[test]
fn c_9_4_other_hooks_warn_when_they_fail() {
    for name in [
        "post_llm_response",
        "post_tool_execution",
        "on_run_end",
        "on_iteration_start",
        "on_iteration_end",
    ] {
        let script = sh("echo '{\"observation\":\"x\",\"response\":{}}'; echo oh >&2; exit 4");
        let sandbox = guarded(&hook(name, ""), &script);
        let ran = sandbox.run("go", &[]).expect_code(0);
        let warned = format!("! the hook {name} left with exit code 4:");
        assert!(ran.stderr.contains(&warned), "{}", ran.stderr);
        assert_eq!(sandbox.observations(), ["[no output]"], "{name} changed nothing");
        let sandbox = guarded(&hook(name, ", on_failure: fail"), &script);
        let ran = sandbox.run("go", &["--format", "json"]).expect_code(1).json();
        let message = format!("the hook {name} left with exit code 4:\noh");
        assert_eq!(ran["error"]["message"], json!(message));
        assert_eq!((&ran["status"], ran.get("result")), (&json!("FAILED"), None));
    }
}

#[test]
fn c_9_4_an_observation_that_must_pass_its_hook_reaches_nobody_without_it() {
    for script in ["exit 1", "(sleep 1000; echo '{\"observation\":\"RED\"}') &"] {
        let sandbox = guarded(&hook("post_tool_execution", ", on_failure: fail"), &sh(script));
        sandbox.run("go", &[]).expect_code(1);
        assert_eq!(
            sandbox.observations(),
            [
                "[withheld: the hook post_tool_execution did not do its part; the tool has run, and its record is kept]"
            ]
        );
        assert_eq!(sandbox.events("ACTION_RESULT")[0]["exit_code"], 0);
    }
}

fn send(signal: &str, pid: u32) {
    assert!(send_signal(signal, pid));
}

/// Interrupts a run when its hook has said that it runs.
fn interrupt(sandbox: &Sandbox, signal: &str) -> Ran {
    let child = sandbox.run_command("go", &["--format", "raw"]).spawn();
    until_line(&sandbox.path("work/begun"));
    send(signal, child.id());
    let output = child.wait_with_output().unwrap();
    Ran::of(output.status, &output.stdout, &output.stderr)
}

#[test]
fn c_13_5_a_gate_that_is_interrupted_lets_nothing_through() {
    // It would have allowed the call, and even does so on its way out.
    let script = sh(
        "trap 'echo \"{\\\"decision\\\":\\\"allow\\\"}\"; exit 0' TERM\nsleep 1000 & echo $! > begun; wait",
    );
    for signal in ["INT", "TERM", "HUP"] {
        let sandbox = guarded(&hook("pre_tool_execution", ""), &script);
        interrupt(&sandbox, signal).expect_code(130);
        assert!(!has_run(&sandbox), "SIG{signal}");
        assert_eq!(sandbox.events("ACTION_REQUEST").len(), 0);
        assert_eq!(sandbox.metadata()["status"], "INTERRUPTED");
        assert_eq!(processes_with(&[&run_dir(&sandbox)]), Vec::<i32>::new());
        // It is asked again, and its consent counts then.
        sandbox.write_program("agent/hook", &sh("exit 0"));
        let resume = ["continue", "--run-id", "r", "-w", "work", "--format", "raw"];
        assert_eq!(sandbox.delta(resume).output().expect_code(0).stdout, "done\n");
        assert_eq!(sandbox.read("work/trace"), "a\n");
    }
}

#[test]
fn c_13_5_a_result_is_not_lost_when_the_hook_behind_it_is_interrupted() {
    for (more, kept) in [("", "[no output]"), (", on_failure: fail", "[withheld: the hook")] {
        let hooks = hook("post_tool_execution", more);
        let sandbox = guarded(&hooks, &sh("echo x > begun; sleep 1000"));
        interrupt(&sandbox, "TERM").expect_code(130);
        let seen = sandbox.observations();
        assert!(seen.len() == 1 && seen[0].starts_with(kept), "{seen:?}");
        sandbox.write_program("agent/hook", &sh("exit 0"));
        let resume = ["continue", "--run-id", "r", "-w", "work", "--format", "raw"];
        assert_eq!(sandbox.delta(resume).output().expect_code(0).stdout, "done\n");
        assert_eq!(sandbox.read("work/trace"), "a\n", "the tool has run once");
    }
}

#[test]
fn c_13_5_on_run_end_runs_after_a_signal_and_a_second_one_ends_it() {
    let hooks = format!(
        "{}on_run_end: {{command: ['${{AGENT_HOME}}/end']}}\n",
        hook("pre_tool_execution", "")
    );
    let sandbox = guarded(&hooks, &sh("echo x > begun; sleep 1000"));
    sandbox.write_program("agent/end", &sh("cat > end.json; echo $DELTA_RUN_ID >> ended"));
    interrupt(&sandbox, "TERM").expect_code(130);
    assert_eq!(sandbox.read("work/ended"), "r\n");
    let given: Value = serde_json::from_str(&sandbox.read("work/end.json")).unwrap();
    assert_eq!(
        given,
        json!({"hook": "on_run_end", "run_id": "r", "iteration": 1, "status": "INTERRUPTED"})
    );

    let sandbox = guarded(&hooks, &sh("echo x > begun; sleep 1000"));
    sandbox.write_program("agent/end", &sh("echo x > ending; sleep 1000"));
    let child = sandbox.run_command("go", &[]).spawn();
    until_line(&sandbox.path("work/begun"));
    send("TERM", child.id());
    until_line(&sandbox.path("work/ending"));
    // Signals that come together are one request; these are two.
    let mut child = child;
    test_support::wait::until("the second signal to end the engine", || {
        send("TERM", child.id());
        child.try_wait().unwrap()
    });
    assert_eq!(child.wait().unwrap().code(), Some(130));
    test_support::wait::until("the hook to be gone", || {
        processes_with(&[&run_dir(&sandbox)]).is_empty().then_some(())
    });
}

/// The second signal arrives when the hook has started and the engine does not know its process yet: a tracer keeps it from
/// returning from the system call.
#[test]
fn c_13_5_a_second_signal_while_a_hook_starts_leaves_nothing_of_it() {
    if !needs::programs(&["strace"]) {
        return;
    }
    let hooks = format!(
        "{}on_run_end: {{command: ['${{AGENT_HOME}}/end']}}\n",
        hook("pre_tool_execution", "")
    );
    let delayed = "strace -qq -e trace=clone,clone3,vfork,fork -e signal=none \
         -e inject=clone,clone3,vfork,fork:delay_exit=1500000 -o /dev/null";
    let sandbox = guarded(&hooks, &sh("echo x > begun; sleep 1000")).started_by(delayed);
    sandbox.write_program("agent/end", &sh("echo x > ending; sleep 1000"));
    let mut child = sandbox.run_command("go", &[]).spawn();
    until_line(&sandbox.path("work/begun"));
    let engine = u32::try_from(sandbox.metadata()["pid"].as_u64().unwrap()).unwrap();
    send("TERM", engine);
    until_line(&sandbox.path("work/ending"));
    test_support::wait::until("the second signal to end the engine", || {
        send_if_alive("TERM", engine);
        child.try_wait().unwrap()
    });
    test_support::wait::until("the hook to be gone", || {
        processes_with(&[&run_dir(&sandbox)]).is_empty().then_some(())
    });
}

fn send_if_alive(signal: &str, pid: u32) {
    let _ = send_signal(signal, pid);
}

#[test]
fn c_9_4_a_hook_that_cannot_be_started_is_told_before_it_is_needed() {
    let path = "DIR/agent/hook";
    let marker =
        format!("`{path}` is neither a program for this system nor a script with a `#!` line");
    let ends = format!(
        "the `#!` line of `{path}` ends with a carriage return: save the file with Unix line ends"
    );
    let lost = format!("the interpreter `/no/such` of `{path}` was not found");
    for (name, script, told) in [
        ("pre_tool_execution", "exit 0\n", format!("{marker}; every call will be denied")),
        ("pre_llm_request", "#!/bin/sh\r\n", format!("{ends}; the run will fail")),
        ("on_iteration_end", "#! /no/such -x\n", lost),
    ] {
        let sandbox = guarded(&hook(name, ""), script);
        let told = format!("! the hook {name} cannot be started: {told}\n");
        let loud = sandbox.run("task", &[]).normal(&sandbox);
        assert!(loud.stderr.contains(&format!("\n> task\n{told}")), "{}", loud.stderr);
        assert_eq!(loud.stderr.matches(&told).count(), 1, "{}", loud.stderr);
        let more = ["continue", "--run-id", "r", "-w", "work", "-m", "more"];
        let again = sandbox.delta(more).output().normal(&sandbox);
        assert!(again.stderr.contains(&format!("\n> more\n{told}")), "{}", again.stderr);
        let quiet = sandbox.delta([&more[..], &["-q"]].concat()).output().normal(&sandbox);
        assert!(!quiet.stderr.contains(&told), "{}", quiet.stderr);
    }
    let sandbox = guarded("on_error: {command: ['${RUN_DIR}/made-later']}\n", "");
    let ran = sandbox.run("task", &[]).expect_code(0);
    assert!(!ran.stderr.contains("cannot be started"), "{}", ran.stderr);
}
