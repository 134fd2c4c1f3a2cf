//! What stdout and stderr carry, and how the process ends.

use super::DELTA;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use test_support::normal::normal;
use test_support::sandbox::{Ran, Sandbox};
use test_support::server::{Answer, ScriptedServer};
use test_support::wait::until;

const TOOLS: &str =
    "  - name: say\n    exec: printf %b ${text}\n  - name: fail\n    shell: seq 1 30; exit 3\n";

pub fn scripted(turns: &str) -> Sandbox {
    Sandbox::scripted(DELTA, TOOLS, turns)
}

const RESULTS: [(&str, &str); 3] = [
    ("a text", "- say: 'all done'\n"),
    ("an object", "- call: [{tool: finish, args: {result: {a: 1, list: [x, y]}}}]\n"),
    ("a failure", "- error: no more\n"),
];

#[test]
fn c_12_1_text_is_a_summary() {
    let expected = [
        (0, "COMPLETED", "Result:\nall done\n"),
        (0, "COMPLETED", "Result:\n{\n  \"a\": 1,\n  \"list\": [\n    \"x\",\n    \"y\"\n  ]\n}\n"),
        (1, "FAILED", "Error (llm):\nno more\n"),
    ];
    for ((what, turns), (code, status, part)) in RESULTS.into_iter().zip(expected) {
        let sandbox = scripted(turns);
        let ran = sandbox.run("hi", &[]).normal(&sandbox).expect_code(code);
        let rule = "-------------------\n";
        let wanted = format!(
            "--- Run Summary ---\nRun ID:     r\nStatus:     {status}\nDuration:   SPAN\n{rule}{part}{rule}"
        );
        assert_eq!(ran.stdout, wanted, "{what}");
    }
}

/// A terminal breaks words in two at its edge.
#[test]
fn c_12_1_a_terminal_gets_prose_broken_at_spaces() {
    let sandbox = scripted("- say: |\n    - The quick brown fox jumps over the lazy dog\n");
    let (code, screen) =
        sandbox.run_command("hi", &[]).wholly_at_terminal_of(30, 24).end_with_screen();
    assert_eq!(code, 0, "{screen:?}");
    let first = screen.iter().position(|row| row.trim_end() == "- The quick brown fox jumps");
    let second = first.and_then(|row| screen.get(row + 1));
    assert_eq!(second.map(|row| row.trim_end()), Some("  over the lazy dog"), "{screen:?}");
    let piped = sandbox.run("hi", &["-q", "--ensure"]);
    assert_eq!(piped.stdout, "- The quick brown fox jumps over the lazy dog\n");
}

/// `x=$(delta run -q ...)` was eight lines of summary.
#[test]
fn c_12_1_with_q_text_is_the_result_alone() {
    for ((what, turns), (code, stdout, stderr)) in RESULTS.into_iter().zip([
        (0, "all done\n", ""),
        (0, "{\n  \"a\": 1,\n  \"list\": [\n    \"x\",\n    \"y\"\n  ]\n}\n", ""),
        (1, "", "error: no more\n"),
    ]) {
        let sandbox = scripted(turns);
        sandbox.run("hi", &["-q"]).expect(code, stdout, stderr);
        // The stored result of a finished run is printed in the same way.
        let again = sandbox.run("hi", &["-q", "--ensure"]);
        assert_eq!((again.code, &*again.stdout), (code, stdout), "{what}");
    }
    let asks = scripted("- call: [{tool: ask_human, args: {prompt: which}}]\n");
    let ran = asks.run("hi", &["-q"]).expect_code(101);
    assert!(ran.stdout.is_empty() && ran.stderr.starts_with("? which\n"), "{}", ran.stderr);
}

#[test]
fn c_12_1_the_format_is_the_option_else_the_variable_else_the_file() {
    let printed = |file: &str, variable: &str, more: &[&str]| {
        let sandbox = scripted("- say: all done\n");
        if !file.is_empty() {
            sandbox.write("home/.config/delta/config.yaml", format!("format: {file}\n"));
        }
        let ran = sandbox.run_command("hi", more).env("DELTA_FORMAT", variable).output();
        let listed = sandbox.delta(["list-runs", "-w", "work"]).env("DELTA_FORMAT", variable);
        let listed = listed.output().expect_code(0).stdout;
        let kind = match ran.stdout.lines().next().unwrap_or_default() {
            "all done" => "raw",
            "--- Run Summary ---" => "text",
            line if line.starts_with("{\"schema_version\"") => "json",
            line if line.starts_with("{\"type\"") || line.starts_with("{\"seq\"") => "jsonl",
            _ => "other",
        };
        (kind, if listed.starts_with('[') { "json" } else { "text" })
    };
    assert_eq!(printed("", "", &[]), ("text", "text"));
    assert_eq!(printed("json", "", &[]), ("json", "json"));
    // A command takes what it has: `list-runs` has no `raw`.
    assert_eq!(printed("json", "raw", &[]), ("raw", "text"));
    assert_eq!(printed("raw", "text", &[]), ("text", "text"));
    assert_eq!(printed("raw", "json", &["--format", "text"]), ("text", "json"));
    assert_eq!(printed("", "json", &["--format=raw"]), ("raw", "json"));
}

// The default made it a usage error, which named an option that was not given.
#[test]
fn c_12_1_the_default_is_no_option_that_a_command_refuses() {
    let sandbox = Sandbox::scripted(
        DELTA,
        "  - name: t\n    shell: echo x > new\n",
        "- call: [{tool: t}]\n- say: done\n",
    );
    sandbox.run("hi", &["--snapshots"]).expect_code(0);
    let diff = |more: &[&str]| {
        let fixed = ["diff", "r", "-w", "work", "0"];
        sandbox.delta(fixed.iter().chain(more).copied()).env("DELTA_FORMAT", "json").output()
    };
    for more in [&["1"] as &[&str], &[]] {
        let patch = diff(more).expect_code(1).stdout;
        assert!(patch.starts_with("diff --git a/new b/new\n"), "{patch}");
    }
    let refused = diff(&["--format", "json"]).expect_code(2).stderr;
    assert!(refused.contains("--format is for two runs"), "{refused}");
}

#[test]
fn c_12_1_an_unknown_default_format_is_an_error_with_the_values() {
    let sandbox = scripted("- say: all done\n");
    let ran = sandbox.run_command("hi", &[]).env("DELTA_FORMAT", "xml").output().expect_code(2);
    let message = "error: DELTA_FORMAT: expected text, json, raw or jsonl, found `xml`\n";
    assert!(ran.stderr.starts_with(message), "{}", ran.stderr);
    assert!(!sandbox.path("work/.delta").exists());
    sandbox
        .run_command("hi", &["--format", "raw"])
        .env("DELTA_FORMAT", "xml")
        .output()
        .expect_code(0);
    sandbox.write("home/.config/delta/config.yaml", "format: xml\n");
    let ran = sandbox.delta(["config"]).output().expect_code(126);
    let message = "error: `format` must be `text`, `json`, `raw` or `jsonl`";
    assert!(ran.stderr.starts_with(message), "{}", ran.stderr);
}

#[test]
fn c_12_1_raw_is_the_result_alone() {
    for ((what, turns), wanted) in
        RESULTS.into_iter().zip(["all done\n", "{\"a\":1,\"list\":[\"x\",\"y\"]}\n"])
    {
        let ran = scripted(turns).run("hi", &["--format", "raw"]).expect_code(0);
        assert_eq!(ran.stdout, wanted, "{what}");
    }
    // A result that ends in a newline gets no second one, and a pipe gets every byte of it.
    assert_eq!(
        scripted("- say: \"a\\e[31m\\n\"\n").run("hi", &["--format", "raw"]).stdout,
        "a\x1b[31m\n"
    );
}

#[test]
fn c_12_2_raw_is_nothing_without_a_result() {
    let asks = "- call: [{tool: ask_human, args: {prompt: x}}]\n";
    for (turns, code) in [(RESULTS[2].1, 1), (asks, 101)] {
        let ran = scripted(turns).run("hi", &["--format", "raw"]).expect_code(code);
        assert_eq!(ran.stdout, "");
    }
}

const METRICS: &str = r#""metrics":{"iterations":ITERATIONS,"duration_ms":0,"total_duration_ms":0,"start_time":"TIME","end_time":"TIME","usage":{"total_cost_usd":null,"input_tokens":0,"output_tokens":0,"model_usage":{}}},"metadata":{"agent_name":"test-agent","workspace_path":"DIR/work"}}"#;

/// A RunResult of run `r` with the given middle part.
fn result(status: &str, part: &str, iterations: u32) -> String {
    let metrics = METRICS.replace("ITERATIONS", &iterations.to_string());
    format!(
        "{{\"schema_version\":\"2.0\",\"run_id\":\"r\",\"status\":\"{status}\",{part},{metrics}\n"
    )
}

#[test]
fn c_12_2_json_is_one_object_however_the_run_ends() {
    let check = |turns: &str, code: i32, expected: String| {
        let sandbox = scripted(turns);
        let ran = sandbox
            .run("hi", &["--format", "json", "--max-iterations", "2"])
            .normal(&sandbox)
            .expect_code(code);
        assert_eq!(ran.stdout, expected);
    };
    let say = "- call: [{tool: say, args: {text: x}}]\n";
    check(RESULTS[0].1, 0, result("COMPLETED", r#""result":"all done""#, 1));
    check(RESULTS[1].1, 0, result("COMPLETED", r#""result":{"a":1,"list":["x","y"]}"#, 1));
    check(&format!("{say}- say: ok\n"), 0, result("COMPLETED", r#""result":"ok""#, 2));
    check(RESULTS[2].1, 1, result("FAILED", r#""error":{"type":"llm","message":"no more"}"#, 0));
    check(
        &say.repeat(3),
        1,
        result(
            "FAILED",
            r#""error":{"type":"max_iterations","message":"the task is not finished after 2 iterations","details":"continue with `-m`: the count starts again with each process; `--max-iterations`, or `max_iterations` in agent.yaml, sets the limit"}"#,
            2,
        ),
    );
    check(
        "- call: [{tool: ask_human, args: {prompt: 'Key?', input_type: password}}]\n",
        101,
        result(
            "WAITING_FOR_INPUT",
            r#""interaction":{"request_id":"UUID","prompt":"Key?","input_type":"password","sensitive":true}"#,
            1,
        ),
    );
}

#[test]
fn c_12_2_json_is_one_object_for_a_broken_agent_too() {
    let sandbox = Sandbox::new(DELTA);
    sandbox.write("agent/agent.yaml", "llm: {model: t}\n");
    let message = "error: agent.yaml has no `name`\\n  --> DIR/agent/agent.yaml:1:1\\n   |\\n 1 | llm: {model: t}\\n   | ^^^\\n  = help: write `name: my-agent`";
    let metrics =
        METRICS.replace("ITERATIONS", "0").replace("test-agent", "").replace("DIR/work", "");
    let expected = |id: &str| {
        format!(
            "{{\"schema_version\":\"2.0\",\"run_id\":{id},\"status\":\"FAILED\",\"error\":{{\"type\":\"config\",\"message\":\"{message}\"}},{metrics}\n"
        )
    };
    for format in ["json", "jsonl"] {
        let ran = sandbox.run("hi", &["--format", format]).normal(&sandbox).expect_code(126);
        assert_eq!(ran.stdout, expected("\"r\""));
        let ran = sandbox
            .delta(["run", "--agent", "agent", "-m", "hi", "--format", format])
            .output()
            .normal(&sandbox);
        assert_eq!((ran.code, ran.stdout), (126, expected("null")));
    }
}

#[test]
fn c_12_1_jsonl_is_the_journal_and_then_the_result() {
    let sandbox = scripted("- call: [{tool: say, args: {text: 'a b'}}]\n- say: ok\n");
    let ran = sandbox.run("hi", &["--format", "jsonl"]).expect_code(0);
    let journal = sandbox.read("work/.delta/r/journal.jsonl");
    let rest = ran.stdout.strip_prefix(&journal).expect("the journal comes first, byte for byte");
    let last: Value = serde_json::from_str(rest.strip_suffix('\n').unwrap()).unwrap();
    assert_eq!((&last["schema_version"], &last["result"]), (&json!("2.0"), &json!("ok")));
}

#[test]
fn c_12_1_jsonl_comes_while_the_run_goes_on() {
    let sandbox =
        scripted("- say: first\n  call: [{tool: say, args: {text: x}}]\n- delay_ms: 3600000\n");
    let mut child = sandbox.run_command("hi", &["--format", "jsonl"]).spawn();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let found = lines.by_ref().map(Result::unwrap).find(|line| line.contains("ACTION_RESULT"));
    assert!(found.is_some());
    interrupt(&child);
    let last: Value = serde_json::from_str(&lines.map(Result::unwrap).last().unwrap()).unwrap();
    assert_eq!(last["status"], "INTERRUPTED");
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

fn interrupt(child: &std::process::Child) {
    rustix::process::kill_process(
        rustix::process::Pid::from_child(child),
        rustix::process::Signal::TERM,
    )
    .unwrap();
}

#[test]
fn c_12_4_an_interruption_leaves_with_130() {
    let sandbox = scripted("- delay_ms: 3600000\n");
    let mut child = sandbox.run_command("hi", &["--format", "json"]).spawn();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.by_ref().any(|line| line.unwrap() == "> hi"));
    let calls = sandbox.path("work/.delta/r/io/invocations");
    until("the call is made", || std::fs::read_dir(&calls).ok()?.next().and_then(Result::ok));
    interrupt(&child);
    let rest: Vec<String> = lines.map(|line| normal(&sandbox, &line.unwrap())).collect();
    assert_eq!(
        rest,
        [
            "! an interrupted LLM call used an estimated 277 tokens in, 0 out",
            "",
            "INTERRUPTED after 0 iterations, 277 tokens in, 0 out, SPAN",
            "Continue with: delta continue --run-id r -w DIR/work"
        ]
    );
    let output = child.wait_with_output().unwrap();
    let ran = Ran::of(output.status, &output.stdout, b"").normal(&sandbox).expect_code(130);
    assert_eq!(
        ran.stdout,
        result(
            "INTERRUPTED",
            r#""error":{"type":"interrupted","message":"the run was interrupted","details":"`delta continue --run-id r -w DIR/work` resumes the run"}"#,
            0
        )
        .replace(
            r#""input_tokens":0,"output_tokens":0,"model_usage":{}"#,
            r#""input_tokens":277,"output_tokens":0,"model_usage":{"script.yaml":{"input_tokens":277,"cached_input_tokens":0,"output_tokens":0,"cost_usd":null}}"#
        )
    );
    assert_eq!(sandbox.metadata()["status"], "INTERRUPTED");
}

#[test]
fn c_12_4_each_ending_has_its_code() {
    let asks = "- call: [{tool: ask_human, args: {prompt: which}}]\n";
    for (turns, code) in [("- say: ok\n", 0), ("- error: none\n", 1), (asks, 101)] {
        scripted(turns).run("hi", &["-q"]).expect_code(code);
    }
    let sandbox = scripted("- say: ok\n");
    sandbox.run("hi", &["--nonsense"]).expect_code(2);
    sandbox.write("agent/agent.yaml", "llm: {model: t}\n");
    sandbox.run("hi", &[]).expect_code(126);
}

#[test]
fn c_11_1_usage_errors_leave_with_2_and_say_nothing_on_stdout() {
    let sandbox = scripted("- say: x\n");
    let before = sandbox.files("");
    let lines: [&[&str]; 15] = [
        &[],
        &["nonsense"],
        &["run"],
        &["run", "-m", ""],
        &["run", "-m"],
        &["run", "-m", "x", "--format", "yaml"],
        &["run", "-m", "x", "--nonsense"],
        &["run", "-m", "x", "extra"],
        &["run", "-m", "x", "--max-iterations", "0"],
        &["run", "-m", "x", "--max-iterations", "-1"],
        &["run", "-m", "x", "-q", "-v"],
        &["run", "-m", "x", "--model", ""],
        &["run", "-m", "x", "--model", "script:"],
        &["tool"],
        &["tool", "expand"],
    ];
    for line in lines {
        let ran = sandbox.delta(line).cwd(sandbox.path("agent")).output();
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{line:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("--help"), "{line:?}: {}", ran.stderr);
        let json = sandbox.delta(line.iter().copied().chain(["--format", "json"])).output();
        assert_eq!((json.code, json.stdout.as_str()), (2, ""), "{line:?}");
    }
    assert_eq!(sandbox.files(""), before);
}

#[test]
fn c_11_1_help_is_short_with_h_and_full_with_help() {
    let sandbox = Sandbox::new(DELTA);
    for command in [&["run"] as &[&str], &["tool"], &["tool", "expand"], &["tool:expand"]] {
        let help =
            |flag| sandbox.delta(command.iter().copied().chain([flag])).output().expect_code(0);
        let (short, full) = (help("-h"), help("--help"));
        assert_eq!((short.stderr.as_str(), full.stderr.as_str()), ("", ""));
        assert!(short.stdout.contains("Usage: delta"), "{}", short.stdout);
        if command != ["tool"] {
            assert!(full.stdout.contains("Example"), "{}", full.stdout);
            assert!(short.stdout.len() < full.stdout.len(), "{command:?}");
        }
    }
    let version = sandbox.delta(["--version"]).output().expect_code(0);
    assert_eq!(version.stdout, format!("delta {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn c_11_1_the_commands_are_listed_in_groups() {
    let sandbox = Sandbox::new(DELTA);
    for command in [&["--help"] as &[&str], &["-h"], &["help"]] {
        let help = sandbox.delta(command).output().expect_code(0).stdout;
        assert!(help.contains("\nWork:\n  run          Run an agent"), "{help}");
        assert!(help.contains("\nSet up:\n  doctor "), "{help}");
        assert!(help.contains("\nOptions:\n  -V, --version"), "{help}");
        assert!(!help.contains('\u{1b}'), "{help}");
    }
    let nothing = sandbox.delta([""; 0]).output().expect_code(2);
    assert!(nothing.stderr.contains("\nWork:\n"), "{}", nothing.stderr);
    let at_terminal = sandbox.delta(["--help"]).wholly_at_terminal().end();
    assert!(at_terminal.stderr.contains("\u{1b}[1m\u{1b}[4mWork:"), "{:?}", at_terminal.stderr);
}

#[test]
fn c_25_12_a_usage_error_shows_the_usage_of_the_help() {
    let sandbox = Sandbox::new(DELTA);
    for (command, usage) in [
        (&["continue", "-w", "x", "--wrong"] as &[&str], "delta continue [OPTIONS] [RUN] [TEXT]"),
        (&["sweep", "run", "--jobs", "2", "--wrong"], "delta sweep run [OPTIONS] [DIR|FILE]"),
        (&["fork", "--at", "2"], "delta fork [OPTIONS] <RUN> [TEXT]"),
        (&["--runs-dir", "x", "show", "--wrong"], "delta show [OPTIONS] [RUN]"),
        (&["diff", "--stat", "--wrong"], "delta diff [OPTIONS] <RUN>"),
    ] {
        let ran = sandbox.delta(command).output().expect_code(2);
        assert!(ran.stderr.contains(&format!("\nUsage: {usage}\n")), "{}", ran.stderr);
    }
}

#[test]
fn c_25_12_the_other_spelling_of_json_gets_the_right_one() {
    let sandbox = Sandbox::new(DELTA);
    for (command, tip) in [
        (&["show", "--json"] as &[&str], "use `--format json`"),
        (&["sweep", "status", "--json"], "use `--format json`"),
        (&["inbox", "--format", "json"], "use `--json`"),
        (&["mcp", "list", "--format=json"], "use `--json`"),
    ] {
        let ran = sandbox.delta(command).output().expect_code(2);
        assert!(ran.stderr.contains(&format!("\n  tip: {tip}\n")), "{}", ran.stderr);
    }
    let none = sandbox.delta(["stop", "--json"]).output().expect_code(2);
    assert!(!none.stderr.contains("--format"), "{}", none.stderr);
}

/// Runs the command in a shell that does something to its streams.
fn in_shell(sandbox: &Sandbox, script: &str) -> Ran {
    let mut command = std::process::Command::new("sh");
    let run = format!("\"{DELTA}\" run --agent agent -w work --run-id r -m hi");
    command
        .args(["-c", &script.replace("DELTA", &run)])
        .current_dir(sandbox.path(""))
        .stdin(Stdio::null());
    let output = command.output().unwrap();
    Ran::of(output.status, &output.stdout, &output.stderr)
}

#[test]
fn c_12_6_a_reader_that_has_gone_changes_nothing() {
    for format in ["text", "json", "raw", "jsonl"] {
        let sandbox = scripted("- call: [{tool: say, args: {text: x}}]\n- say: ok\n");
        // The reader is gone before the first byte: the pipe is broken from the start.
        let ran = in_shell(
            &sandbox,
            &format!("{{ DELTA --format {format}; echo \"code $?\" >&2; }} | true"),
        );
        assert!(ran.stderr.ends_with("code 0\n") && !ran.stderr.contains("rror"), "{}", ran.stderr);
        assert_eq!(sandbox.metadata()["status"], "COMPLETED");
    }
    let sandbox = scripted("- error: none\n");
    let ran = in_shell(&sandbox, "{ DELTA --format json; echo \"code $?\" >&2; } | head -c0");
    assert!(ran.stderr.ends_with("code 1\n"), "{}", ran.stderr);
}

#[test]
fn c_12_6_closed_streams_change_nothing() {
    for (closed, stdout) in [
        ("2>&-", "ok\n"),
        ("2>/dev/full", "ok\n"),
        (">&-", ""),
        ("<&-", "ok\n"),
        ("<&- >&- 2>&-", ""),
    ] {
        let sandbox = scripted("- call: [{tool: say, args: {text: 'seen\\n'}}]\n- say: ok\n");
        let ran = in_shell(&sandbox, &format!("DELTA --format raw {closed}")).expect_code(0);
        assert_eq!(ran.stdout, stdout, "{closed}");
        assert_eq!(sandbox.metadata()["status"], "COMPLETED");
        assert_eq!(sandbox.observations(), ["seen\n"], "{closed}");
        let journal = sandbox.journal();
        assert_eq!(journal.last().unwrap()["type"], "ENGINE_END", "{closed}");
    }
}

#[test]
fn c_11_5_interactive_without_a_terminal_does_not_ask() {
    let sandbox = scripted("- call: [{tool: ask_human, args: {prompt: 'Who?'}}]\n");
    let ran = sandbox.run_command("hi", &["-i"]).stdin("an answer\n").output().expect_code(101);
    assert!(
        ran.stderr.contains(
            "Note: `-i` has no effect without a terminal; questions wait for `delta continue`\n"
        ),
        "{}",
        ran.stderr
    );
}

#[test]
fn c_12_7_usage_per_model_and_cost() {
    // Reported by the endpoint: `prompt_tokens`, of them cached, `completion_tokens`, and its own figure.
    let body = |input: u64, cached: u64, output: u64, cost: Option<f64>| {
        let mut usage = json!({"prompt_tokens": input, "completion_tokens": output, "prompt_tokens_details": {"cached_tokens": cached}});
        if let Some(cost) = cost {
            usage["cost"] = json!(cost);
        }
        let call = json!({"id": "c", "type": "function", "function": {"name": "say", "arguments": "{\"text\":\"x\"}"}});
        move |last: bool| {
            let message = if last {
                json!({"role": "assistant", "content": "ok"})
            } else {
                json!({"role": "assistant", "content": null, "tool_calls": [call]})
            };
            Answer::raw(
                200,
                json!({"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage})
                    .to_string(),
            )
        }
    };
    let usage = |pricing: &str, costs: [Option<f64>; 2]| {
        let server = ScriptedServer::start(vec![
            body(1000, 400, 10, costs[0])(false),
            body(2000, 0, 20, costs[1])(true),
        ]);
        let sandbox = Sandbox::new(DELTA);
        sandbox.agent(
            &format!("model: m\n  stream: false\n  base_url: {}{pricing}", server.url()),
            TOOLS,
        );
        let result = sandbox.run("hi", &["--format", "json"]).expect_code(0).json();
        assert_eq!(result["metrics"]["iterations"], 2);
        result["metrics"]["usage"].clone()
    };
    let expected = |cost: Value| {
        json!({
            "total_cost_usd": cost, "input_tokens": 3000, "output_tokens": 30,
            "model_usage": {"m": {"input_tokens": 3000, "cached_input_tokens": 400, "output_tokens": 30, "cost_usd": cost}}
        })
    };
    assert_eq!(usage("", [None, None]), expected(Value::Null), "unknown is null, never 0");
    assert_eq!(usage("", [Some(0.5), Some(0.25)]), expected(json!(0.75)));
    assert_eq!(usage("", [Some(0.5), None]), expected(Value::Null), "half of it is not known");
    // 2600 fresh, 400 cached, 30 out.
    assert_eq!(
        usage("\n  pricing: {input: 1, cached_input: 0.5, output: 10}", [None, None]),
        expected(json!(0.0031))
    );
    assert_eq!(
        usage("\n  pricing: {input: 1, output: 10}", [Some(9.0), None]),
        expected(json!(0.0033)),
        "the author's prices win"
    );
}

#[test]
fn c_12_7_each_model_has_its_usage() {
    let server = ScriptedServer::start(vec![
        Answer::text("one").usage(100, 10),
        Answer::text("two").usage(20, 2),
    ]);
    let sandbox = Sandbox::new(DELTA);
    sandbox.agent(&format!("model: m\n  base_url: {}", server.url()), TOOLS);
    sandbox.run("hi", &[]).expect_code(0);
    let more =
        ["continue", "r", "-w", "work", "-m", "more", "--model", "other", "--format", "json"];
    let usage = &sandbox.delta(more).output().expect_code(0).json()["metrics"]["usage"];
    let models = ["m", "other"].map(|model| usage["model_usage"][model]["input_tokens"].clone());
    assert_eq!((models, &usage["input_tokens"]), ([json!(100), json!(20)], &json!(120)));
}

/// An answer that was cut off, and one that said nothing, were paid for and looked free.
#[test]
fn c_12_7_answers_that_do_not_count_are_paid_for_all_the_same() {
    let nothing = || Answer::text("").usage(10, 1);
    let cut = Answer::text("half").finish_reason(Some("length")).usage(100, 50);
    let cases = [
        (vec![cut], 1, [100, 50, 150]),
        (vec![nothing(), nothing()], 1, [20, 2, 22]),
        (vec![nothing(), Answer::text("end").usage(20, 5)], 0, [30, 6, 36]),
    ];
    for (answers, code, [input, output, cost]) in cases {
        let server = ScriptedServer::start(answers);
        let sandbox = Sandbox::new(DELTA);
        let llm = "model: m\n  base_url: URL\n  pricing: {input: 1000000, output: 1000000}";
        sandbox.agent(&llm.replace("URL", &server.url()), TOOLS);
        let result = sandbox.run("hi", &["--format", "json"]).expect_code(code).json();
        let total = |result: &Value| {
            let usage = &result["metrics"]["usage"];
            ["input_tokens", "output_tokens", "total_cost_usd"].map(|name| usage[name].as_f64())
        };
        let expected = [input, output, cost].map(|number| Some(f64::from(number)));
        assert_eq!(total(&result), expected);
        let told = |args: &[&str]| sandbox.delta(args).output().expect_code(0);
        assert_eq!(total(&told(&["show", "r", "-w", "work", "--format", "json"]).json()), expected);
        let atif = told(&["export", "r", "-w", "work", "--to", "atif"]).json();
        assert_eq!(atif["final_metrics"]["total_prompt_tokens"], input);
        assert_eq!(atif["final_metrics"]["total_cost_usd"].as_f64(), expected[2]);
        let spans = told(&["export", "r", "-w", "work", "--to", "otlp"]).json();
        let spans = &spans["resourceSpans"][0]["scopeSpans"][0]["spans"];
        let sum = |kind: &str, key: &str| {
            let spans = spans.as_array().unwrap().iter();
            let named = spans.filter(|span| span["name"].as_str().unwrap().starts_with(kind));
            let pairs = named.flat_map(|span| span["attributes"].as_array().unwrap());
            let values = pairs.filter(|pair| pair["key"] == key);
            values
                .map(|pair| pair["value"]["intValue"].as_str().unwrap().parse::<i32>().unwrap())
                .sum::<i32>()
        };
        assert_eq!(sum("invoke_agent", "gen_ai.usage.input_tokens"), input);
        if code == 1 && input == 100 {
            assert_eq!(sum("chat", "gen_ai.usage.output_tokens"), output);
        }
    }
}

#[test]
fn c_12_3_the_state_is_durable_before_the_result_is_printed() {
    // A reader that looks as soon as the first byte comes finds the end.
    let sandbox = scripted("- say: ok\n");
    let mut child = sandbox.run_command("hi", &["--format", "json"]).spawn();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(sandbox.journal().last().unwrap()["type"], "ENGINE_END");
    assert_eq!(sandbox.metadata()["status"], "COMPLETED");
    child.wait().unwrap();
}

#[test]
fn the_message_may_come_from_stdin() {
    let turns = "- say: '<${task}>'\n";
    let run = |stdin: &[u8]| {
        let sandbox = scripted(turns);
        sandbox
            .delta(["run", "--agent", "agent", "-w", "work", "-m", "-", "--format", "raw"])
            .stdin(stdin)
            .output()
    };
    assert_eq!(run(b"line 1\nline 2\n\n").expect_code(0).stdout, "<line 1\nline 2>\n");
    run(b" \n").expect(
        2,
        "",
        "error: the message on stdin is empty\nhelp: pipe the text into delta, or write it in place of `-`, such as `-m TEXT`\n",
    );
    run(b"\xff").expect(
        126,
        "",
        "error: stdin is not UTF-8 text: byte 1 is 0xff\nhelp: put it in a file of the workspace, and name the file in the message\n",
    );
}

#[test]
fn c_11_1_a_value_with_a_dash_gets_a_tip_that_works() {
    let sandbox = Sandbox::scripted(DELTA, "", "- say: done");
    for (words, expected) in [
        (&["run", "--agent", "agent", "--run-id", "-x", "go"][..], "tip: write `--run-id=-x`"),
        (&["run", "--agent", "agent", "-w", "-foo", "go"], "tip: write `-w=-foo`"),
        (&["run", "--agent", "agent", "-m", "- fix a"], "tip: write `-m='- fix a'`"),
        (&["run", "--agent", "agent", "--max-cost", "-1", "go"], "'-1' for '--max-cost <USD>'"),
        (&["run", "agent", "go"], "tip: name the agent with `--agent agent`"),
        (&["continue", "r", "and", "now"], "tip: quote the text: `delta continue RUN \"TEXT\"`"),
        (&["deny", "--run-id", "r"], "tip: the run is an argument, as in "),
        (&["rollback", "r", "--at", "2"], "tip: use `--to N`"),
        (&["fork", "r", "--to", "2"], "tip: use `--at N`"),
        (
            &["mcp", "list", "python3", "server.py"],
            "tip: write the command line of a server after `--`",
        ),
        (&["export", "r"], "tip: the possible values are otlp, "),
    ] {
        let ran = sandbox.delta(words).output().expect_code(2);
        assert!(ran.stderr.contains(expected), "{words:?} {}", ran.stderr);
    }
    // An option that the command does not have is not a text.
    let ran = sandbox.delta(["demo", "-q"]).output().expect_code(2);
    assert!(!ran.stderr.contains("tip:"), "{}", ran.stderr);
    let work = ["run", "--agent", "agent", "-w=-work", "--run-id", "r", "go"];
    sandbox.delta(work).output().expect_code(0);
    assert!(sandbox.path("-work/.delta/r").exists());
}

// `delta migrate` was told of `tool:migrate`, which no help and no completion knows, and `delta lint` of `init`.
#[test]
fn c_11_1_a_tip_names_what_can_be_typed() {
    let sandbox = Sandbox::new(DELTA);
    let tip = |command: &str| {
        let ran = sandbox.delta([command]).output().expect_code(2);
        let tip = ran.stderr.lines().find_map(|line| line.trim().strip_prefix("tip: "));
        (tip.unwrap_or_default().to_owned(), ran.stderr.clone())
    };
    for (typed, expected) in [
        ("lint", "use `delta tool lint`"),
        ("migrate", "use `delta tool migrate`"),
        ("expand", "use `delta tool expand`"),
        ("ls", "use `delta list-runs`"),
        ("ps", "use `delta list-runs`"),
        ("logs", "use `delta show`"),
        ("tail", "use `delta show --follow`"),
        ("resume", "use `delta continue`"),
        ("rollbak", "a similar subcommand exists: 'rollback'"),
        ("tools", "a similar subcommand exists: 'tool'"),
        ("contineu", "a similar subcommand exists: 'continue'"),
    ] {
        assert_eq!(tip(typed).0, expected, "{typed}");
    }
    let group = sandbox.delta(["sandbox", "explain"]).output().expect_code(2);
    assert!(group.stderr.contains("tip: the commands are check, exec\n"), "{}", group.stderr);
    for typed in ["tool:lnt", "tols", "xyzzy"] {
        assert!(!tip(typed).0.contains("tool:"), "{}", tip(typed).1);
    }
}
