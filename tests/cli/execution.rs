//! Running tools (C-4): real processes, what they get, what the LLM sees of them, and what is left behind.

use super::DELTA;
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;
use test_support::running::Running;
use test_support::sandbox::Sandbox;
use test_support::server::{Answer, ScriptedServer};
use test_support::wait::{is_alive, until};

/// A sandbox in which each of `tools` (YAML) was called once, in this order, by calls (YAML).
fn ran(tools: &str, calls: &[&str]) -> Sandbox {
    let sandbox = scripted(tools, calls);
    sandbox.run("hello", &[]).expect_code(0);
    sandbox
}

fn scripted(tools: &str, calls: &[&str]) -> Sandbox {
    let turns: String = calls.iter().map(|call| format!("- call: [{call}]\n")).collect();
    Sandbox::scripted(DELTA, tools, &format!("{turns}- say: done\n"))
}

/// The observation of a shell script.
fn observed(script: &str) -> String {
    let tools = format!("  - name: t\n    shell: |-\n      {}\n", script.replace('\n', "\n      "));
    ran(&tools, &["{tool: t}"]).observations().remove(0)
}

fn pid_in(sandbox: &Sandbox, file: &str) -> i32 {
    sandbox.read(file).trim().parse().unwrap()
}

#[test]
fn c_4_1_a_tool_leads_a_process_group_of_its_own() {
    let seen = observed("echo $$; cut -d' ' -f5 /proc/$$/stat; cut -d' ' -f5 /proc/$PPID/stat");
    let numbers: Vec<&str> = seen.lines().collect();
    assert_eq!(numbers[0], numbers[1]);
    assert_ne!(numbers[1], numbers[2]);
}

#[test]
fn c_4_1_a_tool_never_reads_the_engines_input() {
    let sandbox = scripted("  - name: t\n    exec: cat\n", &["{tool: t}"]);
    sandbox.run_command("hello", &[]).stdin("meant for the engine").output().expect_code(0);
    assert_eq!(sandbox.observations(), ["[no output]"]);
}

/// `make`, `node` and others believe PWD: they wrote into the directory in which delta was started, also from a fork.
#[test]
fn c_4_1_pwd_names_the_directory_in_which_a_tool_starts() {
    let sandbox = scripted(
        "  - {name: t, exec: env}\n  - {name: s, exec: env, survive: true}\n",
        &["{tool: t}, {tool: s}", "{tool: t}"],
    );
    let yaml = sandbox.read("agent/agent.yaml");
    sandbox.write("agent/agent.yaml", yaml + "snapshots: true\n");
    let hook = "on_run_end: {command: [cp, /proc/self/environ, '${AGENT_HOME}/hook.env']}\n";
    sandbox.write("agent/hooks.yaml", hook);
    let other = sandbox.path("");
    let run = sandbox.run_command("hello", &[]);
    run.env("PWD", &other).env("OLDPWD", "/tmp").output().expect_code(0);
    let fork = ["fork", "r", "--at", "1", "-w", "work", "--into", "copy", "--run-id", "f"];
    let fork = sandbox.delta(fork).args(["-m", "go on"]).env("PWD", &other).env("OLDPWD", "/tmp");
    fork.output().expect_code(0);
    let journal = sandbox.read("copy/.delta/f/journal.jsonl");
    let forked: Value = journal
        .lines()
        .rev()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .find(|event| event["type"] == "ACTION_RESULT")
        .unwrap();
    for (shown, dir) in [
        (&*sandbox.observations()[0], "work"),
        (&*sandbox.observations()[1], "work"),
        (&*sandbox.read("agent/hook.env").replace('\0', "\n"), "copy"),
        (forked["observation_content"].as_str().unwrap(), "copy"),
    ] {
        let lines = shown.lines().filter(|line| line.contains("PWD="));
        let expected = format!("PWD={}", sandbox.path(dir).canonicalize().unwrap().display());
        assert_eq!(lines.collect::<Vec<_>>(), [expected], "{dir}");
    }
}

/// Runs one call of the tool `t` with these arguments, which may be large.
fn ran_with(tools: &str, arguments: &Value) -> Sandbox {
    let call = json!({"id": "c", "type": "function", "function": {"name": "t", "arguments": arguments.to_string()}});
    let messages = [
        json!({"role": "assistant", "content": null, "tool_calls": [call]}),
        json!({"role": "assistant", "content": "ok"}),
    ];
    let answer =
        |message: &Value| Answer::raw(200, json!({"choices": [{"message": message}]}).to_string());
    let server = ScriptedServer::start(messages.iter().map(answer).collect::<Vec<_>>());
    let sandbox = Sandbox::new(DELTA);
    sandbox.agent(&format!("model: m\n  stream: false\n  base_url: {}", server.url()), tools);
    sandbox.run("hello", &[]).expect_code(0);
    assert_eq!(server.violations(), Vec::<String>::new());
    sandbox
}

#[test]
fn c_4_1_standard_input_is_the_exact_bytes() {
    let sandbox = ran_with(
        "  - name: t\n    exec: wc -l\n    stdin: text\n",
        &json!({"text": "line1\nline2\nline3"}),
    );
    assert_eq!(sandbox.observations()[0].trim(), "2");

    let unit: String =
        (1..0x3000).filter_map(char::from_u32).chain("😀\u{10ffff}\r\n\n".chars()).collect();
    let text = unit.repeat(5_000_000 / unit.len() + 1);
    let sandbox =
        ran_with("  - name: t\n    exec: tee copy\n    stdin: text\n", &json!({"text": text}));
    assert!(fs::read(sandbox.path("work/copy")).unwrap() == text.as_bytes());
    let sandbox = ran_with(
        "  - name: t\n    shell: head -c 300000 /dev/zero | tr '\\0' x; wc -c\n    stdin: text\n",
        &json!({"text": text}),
    );
    assert!(sandbox.observations()[0].ends_with(&format!("{}\n", text.len())));
}

#[test]
fn c_4_1_a_tool_that_ignores_its_input_does_not_hold_the_engine() {
    let text = "0123456789abcdef".repeat(1 << 18);
    let sandbox = ran_with(
        "  - name: t\n    shell: echo early; exit 3\n    stdin: text\n",
        &json!({"text": text}),
    );
    assert_eq!(sandbox.observations(), ["early\n[exit code: 3]"]);
}

#[test]
fn c_4_2_a_timeout_ends_the_whole_tree() {
    let script = "setsid sh -c 'echo $$ > stray; exec sleep 1000' &\n      sleep 1000 & echo $! > child\n      \
                  until test -s stray; do :; done\n      echo begun; echo $$ > leader; wait; wait";
    let tools = format!("  - name: t\n    timeout_ms: 700\n    shell: |-\n      {script}\n");
    let sandbox = scripted(&tools, &["{tool: t}"]);
    // A tool of another run, with the same id of its call.
    let mut other = Command::new("sleep");
    other.arg("1000").env("DELTA_CALL_ID", "call_1_1").env("RUN_DIR", "/another/run");
    let mut other = Running::start(&mut other);
    sandbox.run("hello", &[]).expect_code(0);
    assert_eq!(sandbox.observations(), ["begun\n[timed out after 700 ms]"]);
    for file in ["stray", "child", "leader"] {
        assert!(!is_alive(pid_in(&sandbox, &format!("work/{file}"))), "{file} lives");
    }
    assert!(other.try_wait().unwrap().is_none(), "a process of another run was ended");
    let result = &sandbox.events("ACTION_RESULT")[0];
    assert!(result.get("exit_code").is_none());
    assert!(result["duration_ms"].as_u64().unwrap() < 5000, "the tree did not need the SIGKILL");
}

#[test]
fn c_4_2_what_is_deaf_to_sigterm_is_killed() {
    let tools = "  - name: t\n    timeout_ms: 300\n    shell: trap '' TERM; echo deaf; echo $$ > pid; while :; do sleep 1000; done\n";
    let sandbox = ran(tools, &["{tool: t}"]);
    assert_eq!(sandbox.observations(), ["deaf\n[timed out after 300 ms]"]);
    assert!(!is_alive(pid_in(&sandbox, "work/pid")));
    let duration = sandbox.events("ACTION_RESULT")[0]["duration_ms"].as_u64().unwrap();
    assert!((5300..9000).contains(&duration), "{duration}");
}

#[test]
fn c_4_2_a_background_child_does_not_hold_the_engine() {
    let began = Instant::now();
    let sandbox =
        ran("  - name: t\n    shell: sleep 1000 & echo $! > pid; echo done\n", &["{tool: t}"]);
    let pid = pid_in(&sandbox, "work/pid");
    assert!(!is_alive(pid), "what a tool leaves in the background is ended");
    let seen = sandbox.observations().remove(0);
    assert!(seen.starts_with("done\n[ended 1 background process: "), "{seen}");
    assert!(began.elapsed().as_secs() < 20);
    assert!(sandbox.events("ACTION_RESULT")[0]["duration_ms"].as_u64().unwrap() < 3000);
}

#[test]
fn c_4_3_the_observation_says_how_it_went() {
    let cases = [
        ("true", "[no output]"),
        ("printf x", "x"),
        ("echo x", "x\n"),
        ("exit 3", "[exit code: 3]"),
        ("printf x; exit 3", "x\n[exit code: 3]"),
        ("printf x >&2", "[stderr]\nx"),
        ("printf out; printf err >&2", "out\n[stderr]\nerr"),
        ("echo out; echo err >&2; exit 1", "out\n[stderr]\nerr\n[exit code: 1]"),
        ("kill -SEGV $$", "[killed by SIGSEGV]"),
        ("printf x; kill -KILL $$", "x\n[killed by SIGKILL]"),
        ("exit 127", "[exit code: 127]"),
    ];
    let tools: String = cases
        .iter()
        .enumerate()
        .map(|(at, (script, _))| format!("  - name: t{at}\n    command: [sh, -c, '{script}']\n"))
        .collect();
    let calls: Vec<String> = (0..cases.len()).map(|at| format!("{{tool: t{at}}}")).collect();
    let sandbox = ran(&tools, &calls.iter().map(String::as_str).collect::<Vec<_>>());
    for ((script, expected), seen) in cases.iter().zip(sandbox.observations()) {
        assert_eq!(seen, *expected, "{script}");
    }
    let codes: Vec<Value> =
        sandbox.events("ACTION_RESULT").iter().map(|event| event["exit_code"].clone()).collect();
    assert_eq!(codes[3..5], [json!(3), json!(3)]);
    assert_eq!((&codes[0], &codes[8], &codes[10]), (&json!(0), &Value::Null, &json!(127)));
}

#[test]
fn c_4_3_a_program_that_cannot_run_is_said_plainly() {
    let tools = "  - name: absent\n    exec: no-such-program x\n  - name: gone\n    exec: ./gone\n  \
                 - name: plain\n    exec: ./plain\n  - name: dir\n    exec: ./\n  - name: odd\n    exec: ./odd\n  \
                 - name: here\n    exec: ./here\n";
    let sandbox = scripted(
        tools,
        &[
            "{tool: absent}",
            "{tool: gone}",
            "{tool: plain}",
            "{tool: dir}",
            "{tool: odd}",
            "{tool: here}",
        ],
    );
    sandbox.write("work/plain", "text");
    sandbox.write_program("work/odd", "#!/no/such/interpreter\n");
    sandbox.write_program("work/here", "#!/bin/sh\npwd\n");
    sandbox.run("hello", &[]).expect_code(0);
    let seen = sandbox.observations();
    assert_eq!(
        seen[0],
        "The tool could not be started: program `no-such-program` was not found in PATH.\n[exit code: 127]"
    );
    assert_eq!(
        seen[1],
        "The tool could not be started: program `./gone` does not exist.\n[exit code: 127]"
    );
    assert!(
        seen[2].contains("not executable") && seen[2].ends_with("[exit code: 126]"),
        "{}",
        seen[2]
    );
    assert!(seen[3].contains("directory") && seen[3].ends_with("[exit code: 126]"), "{}", seen[3]);
    assert!(
        seen[4].contains("/no/such/interpreter") && seen[4].ends_with("[exit code: 126]"),
        "{}",
        seen[4]
    );
    // C-4.1: in the workspace, wherever the engine was started.
    assert_eq!(seen[5], format!("{}\n", sandbox.path("work").display()));
}

/// The record of the only call.
fn record(sandbox: &Sandbox) -> Value {
    let result = &sandbox.events("ACTION_RESULT")[0];
    let name = result["execution"].as_str().unwrap();
    serde_json::from_str(&sandbox.read(&format!("work/.delta/r/{name}"))).unwrap()
}

#[test]
fn c_4_4_bytes_that_are_no_text_are_shown_and_kept() {
    let sandbox = ran("  - name: t\n    shell: printf 'a\\377b'\n", &["{tool: t}"]);
    assert_eq!(sandbox.observations(), ["a\u{fffd}b"]);
    let file = record(&sandbox)["stdout"]["file"].as_str().unwrap().to_owned();
    let kept = fs::read(sandbox.path("work/.delta/r/io/tool_executions").join(file)).unwrap();
    assert_eq!(kept, b"a\xffb");
}

#[test]
fn c_4_5_head_and_tail_with_a_line_between() {
    let tools = "  - name: t\n    shell: printf 0123456789abcdefghijABCDEFGHIJ; printf xyz >&2\n    max_output_bytes: 20\n";
    let sandbox = ran(tools, &["{tool: t}"]);
    let name = sandbox.files("work/.delta/r/io/tool_executions").remove(0);
    let expected = format!(
        "0123456789\n[... 10 bytes left out; the whole lies in .delta/r/io/tool_executions/{name} ...]\nABCDEFGHIJ\n[stderr]\nxyz"
    );
    assert_eq!(sandbox.observations(), [expected]);
    assert_eq!(sandbox.events("ACTION_RESULT")[0]["truncated"], true);
    assert_eq!(record(&sandbox)["stdout"], "0123456789abcdefghijABCDEFGHIJ");

    // Beyond 64 KiB the stream lies beside its record.
    let sandbox =
        ran("  - name: t\n    shell: head -c 70000 /dev/zero | tr '\\0' x\n", &["{tool: t}"]);
    let file = record(&sandbox)["stdout"]["file"].as_str().unwrap().to_owned();
    assert!(sandbox.observations()[0].contains(&format!(
        "\n[... {} bytes left out; the whole lies in .delta/r/io/tool_executions/{file} ...]\n",
        70_000 - 32_768
    )));
    assert_eq!(
        fs::read(sandbox.path("work/.delta/r/io/tool_executions").join(file)).unwrap(),
        [b'x'; 70_000]
    );
}

/// A directory whose file system has this much room: the one for temporary files, or memory.
fn directory_with_room(bytes: u64) -> PathBuf {
    let candidates = [std::env::temp_dir(), "/dev/shm".into()];
    let room = |dir: &PathBuf| {
        rustix::fs::statvfs(dir).is_ok_and(|fs| fs.f_bavail.saturating_mul(fs.f_frsize) > bytes)
    };
    candidates.into_iter().find(room).unwrap_or_else(|| {
        panic!("this test needs {bytes} bytes of free disk or memory for a moment")
    })
}

#[test]
fn c_4_5_two_gigabytes_do_not_enter_the_engines_memory() {
    let sandbox = Sandbox::new_below(&directory_with_room((1 << 30) + (100 << 20)), DELTA);
    sandbox.script(
        "  - name: t\n    exec: head -c 2000000000 /dev/zero\n  - name: peak\n    shell: grep VmHWM /proc/$PPID/status\n",
        "- call: [{tool: t}]\n- call: [{tool: peak}]\n- say: done\n",
    );
    sandbox.run("hello", &["-q"]).expect_code(0);
    let seen = sandbox.observations();
    let discarded = 2_000_000_000 - (1 << 30);
    assert!(
        seen[0].contains(&format!("except {discarded} bytes after the first GiB")),
        "{}",
        seen[0].trim_matches('\0')
    );
    let file = sandbox
        .files("work/.delta/r/io/tool_executions")
        .into_iter()
        .find(|name| name.ends_with(".stdout"))
        .unwrap();
    let size =
        fs::metadata(sandbox.path("work/.delta/r/io/tool_executions").join(file)).unwrap().len();
    assert_eq!(size, 1 << 30);
    let peak: u64 = seen[1].split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(peak < 40_000, "{peak} kB");
}

#[test]
fn c_4_6_a_failing_tool_never_ends_the_run() {
    let sandbox = scripted("  - name: t\n    shell: kill -KILL 0\n", &["{tool: t}", "{tool: t}"]);
    sandbox.run("hello", &[]).expect_code(0);
    assert_eq!(sandbox.observations(), ["[killed by SIGKILL]", "[killed by SIGKILL]"]);
}

#[test]
fn c_2_2_a_name_that_occurs_twice_is_one_parameter() {
    let tool = "  - {name: t, exec: 'echo ${a} ${b} ${a}'}\n";
    let sandbox = ran(tool, &["{tool: t, args: {a: x, b: y}}"]);
    assert_eq!(sandbox.observations(), ["x y x\n"]);
    let request = sandbox.delta(["show", "r", "-w", "work", "--request", "1"]).output().json();
    let parameters = &request["tools"][0]["function"]["parameters"];
    assert_eq!(parameters["properties"].as_object().unwrap().len(), 2);
    assert_eq!(parameters["required"], json!(["a", "b"]));
}

#[test]
fn c_2_2_the_engines_variables_reach_every_form_of_tool_whatever_the_paths_hold() {
    let sandbox = Sandbox::new(DELTA);
    let (agent, work) = ("an $HOME \"agent's\" `id` \\dir", "wo rk'$(touch X)\"*;&|<>~#é");
    let tools = "  - name: a\n    exec: cat ${AGENT_HOME}/data.txt\n  \
        - name: b\n    shell: cat ${AGENT_HOME}/data.txt; printf '%s|' \"${CWD}\" '${RUN_DIR}' x${CWD}y \"$(echo ${CWD})\"\n  \
        - name: c\n    command: [printf, '%s|', '${AGENT_HOME}/data.txt', {template: 'in ${CWD} ${what}'}]\n  \
        - name: d\n    command: [printenv, PLACE, CWD, DELTA_CWD, AGENT_HOME, DELTA_AGENT_HOME, RUN_DIR, JOURNAL_PATH, DELTA_RUN_ID, ITERATION_COUNT, DELTA_CALL_ID]\n    \
        env: {PLACE: '${CWD}/x'}\n";
    let turns = "turns:\n- call: [{tool: a}, {tool: b}, {tool: c, args: {what: '${CWD}'}}, {tool: d}]\n- say: ok\n";
    sandbox.write(
        &format!("{agent}/agent.yaml"),
        format!("name: x\nllm: {{provider: script, model: s.yaml}}\ntools:\n{tools}"),
    );
    sandbox.write(&format!("{agent}/s.yaml"), turns);
    sandbox.write(&format!("{agent}/data.txt"), "the data\n");
    for file in ["system_prompt.md", "context.yaml"] {
        sandbox.write(&format!("{agent}/{file}"), sandbox.read(&format!("agent/{file}")));
    }
    let ran = sandbox.delta([
        "run", "--agent", agent, "-w", work, "--run-id", "r", "-m", "x", "--format", "json",
    ]);
    ran.output().expect_code(0);
    let (home, cwd) =
        (sandbox.path(agent).display().to_string(), sandbox.path(work).display().to_string());
    let run_dir = format!("{cwd}/.delta/r");
    let journal = sandbox.read(&format!("{work}/.delta/r/journal.jsonl"));
    let events = journal.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let seen: Vec<_> = events
        .filter_map(|event| event["observation_content"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(seen[0], "the data\n");
    assert_eq!(seen[1], format!("the data\n{cwd}|{run_dir}|x{cwd}y|{cwd}|"));
    assert_eq!(seen[2], format!("{home}/data.txt|in {cwd} ${{CWD}}|"));
    let expected = [
        &format!("{cwd}/x"),
        &cwd,
        &cwd,
        &home,
        &home,
        &run_dir,
        &format!("{run_dir}/journal.jsonl"),
        "r",
        "1",
        "call_1_4",
    ];
    assert_eq!(seen[3].lines().collect::<Vec<_>>(), expected);
    assert!(!sandbox.path("X").exists() && !sandbox.path(work).join("X").exists());
}

#[test]
fn c_13_5_a_tool_inherits_no_descriptor_and_no_signal_setting() {
    let sandbox = ran(
        "  - name: fds\n    exec: ls /proc/self/fd\n  - name: signals\n    exec: grep Sig /proc/self/status\n",
        &["{tool: fds}", "{tool: signals}"],
    );
    let seen = sandbox.observations();
    assert_eq!(seen[0], "0\n1\n2\n3\n", "the last one is the directory that ls reads");
    let value = |name: &str| {
        let line = seen[1].lines().find(|line| line.starts_with(name)).unwrap();
        u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap()
    };
    let (pipe, child) = (1 << 12, 1 << 16);
    assert_eq!((value("SigBlk"), value("SigIgn") & (pipe | child)), (0, 0));
}

#[test]
fn nothing_is_left_after_a_run() {
    let tools = "  - name: t\n    shell: (sleep 0.01 &) ; head -c 100000 /dev/zero\n  - name: children\n    shell: cat /proc/$PPID/task/$PPID/children\n  - name: self\n    shell: echo $$; cat /proc/$PPID/task/$PPID/children\n";
    let sandbox = scripted(tools, &["{tool: t}", "{tool: t}", "{tool: self}"]);
    sandbox.write("tmp/keep", "");
    let temporary = sandbox.path("tmp");
    sandbox.run_command("hello", &[]).env("TMPDIR", temporary).output().expect_code(0);
    let seen = sandbox.observations();
    let lines: Vec<_> = seen[2].lines().map(str::trim).collect();
    assert_eq!(lines[0], lines[1], "the engine has no child but the tool");
    assert_eq!(sandbox.files("tmp"), ["keep"]);
    let mut run: Vec<_> =
        sandbox.files("work/.delta").into_iter().filter(|name| !name.contains("/io/")).collect();
    run.retain(|name| !name.contains("/agent/"));
    assert_eq!(
        run,
        [".gitignore", "VERSION", "r/engine.log", "r/journal.jsonl", "r/lock", "r/metadata.json"]
    );
    until("the end of the background processes", || {
        let run_dir = format!("RUN_DIR={}", sandbox.path("work/.delta/r").display());
        test_support::wait::processes_with(&[&run_dir]).is_empty().then_some(())
    });
}

// `[3, 5]` for a list of texts was refused, while a text took `3`.
#[test]
fn c_3_1_numbers_and_booleans_in_a_list_of_texts_are_their_json_text() {
    let tools = "  - name: list\n    command: [printf, '<%s>']\n    parameters:\n      - {name: items, type: array}\n";
    let calls = [
        "{tool: list, args: {items: [3, 5]}}",
        "{tool: list, args: {items: [true, a, -0.5]}}",
        "{tool: list, args: {items: []}}",
        "{tool: list, args: {items: [3, [4]]}}",
        "{tool: list, args: {items: [null]}}",
        "{tool: list, args: {items: 3}}",
    ];
    let sandbox = scripted(tools, &calls);
    sandbox.run("hello", &[]).expect_code(0);
    let seen = sandbox.observations();
    assert_eq!(seen[..3], ["<3><5>", "<true><a><-0.5>", "<>"]);
    for refused in &seen[3..5] {
        let why = "parameter `items` must be an array of strings, not one with other values";
        assert!(refused.contains(why), "{refused}");
    }
    assert!(seen[5].contains("must be an array of strings, not a number"), "{}", seen[5]);
}
