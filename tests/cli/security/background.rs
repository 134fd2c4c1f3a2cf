//! Nothing of a call lives on, whatever it does to get away (C-22.1).

use crate::DELTA;
use serde_json::json;
use std::process::{Command, Stdio};
use test_support::needs;
use test_support::running::send_signal;
use test_support::sandbox::{Ran, Sandbox};
use test_support::wait::{is_alive, processes_in, until, until_line};

/// Forks twice with a new session in between, clears its environment, closes its streams, and stays.
const DAEMON: &str = "\
#!/usr/bin/env python3
import os
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
null = os.open('/dev/null', os.O_RDWR)
for stream in range(3): os.dup2(null, stream)
open('pid', 'w').write(f'{os.getpid()}\\n')
os.execve('/bin/sleep', ['sleep', '1000'], {})
";

/// Its main thread ends, and the process looks like a zombie; another thread stays.
const HEADLESS: &str = "\
#!/usr/bin/env python3
import ctypes, os, threading, time
if os.fork(): os._exit(0)
os.setsid()
null = os.open('/dev/null', os.O_RDWR)
for stream in range(3): os.dup2(null, stream)
threading.Thread(target=lambda: time.sleep(1000)).start()
open('pid', 'w').write(f'{os.getpid()}\\n')
ctypes.CDLL(None).pthread_exit(None)
";

/// Is always another process: each forks the next one and ends.
const RUNNER: &str = "\
#!/usr/bin/env python3
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork(): os._exit(0)
os.setsid()
null = os.open('/dev/null', os.O_RDWR)
for stream in range(3): os.dup2(null, stream)
while True:
    if os.fork(): os._exit(0)
    os.setsid()
";

/// As [`RUNNER`], until the file `stop` exists, and each process holds a lock.
const LOCKING_RUNNER: &str = "\
#!/usr/bin/env python3
import fcntl, os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
fcntl.flock(os.open('lock', os.O_CREAT | os.O_RDWR), fcntl.LOCK_EX)
if os.fork(): os._exit(0)
os.setsid()
null = os.open('/dev/null', os.O_RDWR)
for stream in range(3): os.dup2(null, stream)
while not os.path.exists('stop'):
    if os.fork(): os._exit(0)
    os.setsid()
";

/// A daemon whose processes exit at once, so that the last one may start while delta looks for what the call left.
const QUICK_DAEMON: &str = "\
#!/usr/bin/env python3
import os
null = os.open('/dev/null', os.O_RDWR)
for stream in range(3): os.dup2(null, stream)
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
os.execve('/bin/sleep', ['sleep', '1000'], {})
";

/// Lowers the limits that it may lower.
const LIMITED: &str = "\
#!/usr/bin/env python3
import os, resource
if os.fork(): os._exit(0)
os.setsid()
for limit in (resource.RLIMIT_RTTIME, resource.RLIMIT_CORE, resource.RLIMIT_RTPRIO):
    resource.setrlimit(limit, (0, 0))
null = os.open('/dev/null', os.O_RDWR)
for stream in range(3): os.dup2(null, stream)
open('pid', 'w').write(f'{os.getpid()}\\n')
os.execve('/bin/sleep', ['sleep', '1000'], {})
";

/// A sandbox with a tool `t` that runs `script`, and further keys of that tool.
fn with_tool(script: &str, keys: &str, turns: &str) -> Sandbox {
    let tools = format!("  - name: t\n    shell: |-\n      {script}\n{keys}");
    let sandbox = Sandbox::scripted(DELTA, &tools, turns);
    for (name, text) in
        [("daemon", DAEMON), ("headless", HEADLESS), ("runner", RUNNER), ("limited", LIMITED)]
    {
        sandbox.write_program(name, text);
    }
    sandbox
}

fn left_in(sandbox: &Sandbox) -> Vec<i32> {
    processes_in(&sandbox.path("work"))
}

/// How many threads of a process are alive, which may be none of them its first.
fn living_threads(pid: i32) -> usize {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let stats =
        threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok());
    stats
        .filter(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z')))
        .count()
}

/// Ends what a test keeps running on purpose when it is dropped.
struct Kept<'a>(&'a Sandbox);

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        for pid in left_in(self.0) {
            let _ = send_signal("KILL", pid);
        }
    }
}

const ONE_CALL: &str = "- call: [{tool: t}]\n- say: done";

#[test]
fn c_22_1_what_a_call_leaves_behind_is_ended_and_named() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let escapes = [
        ("sleep 1000 >/dev/null 2>&1 &", "sleep"),
        ("sleep 1000 &", "sleep"),
        ("setsid sleep 1000 >/dev/null 2>&1 &", "sleep"),
        ("env -i setsid sleep 1000 >/dev/null 2>&1 &", "sleep"),
        ("(nohup sleep 1000 >/dev/null 2>&1 &)", "sleep"),
        ("${AGENT_HOME}/../daemon; until test -s pid; do :; done", "sleep"),
        ("${AGENT_HOME}/../limited; until test -s pid; do :; done", "sleep"),
        (
            "${AGENT_HOME}/../headless; until test -s pid && grep -q Z /proc/$(cat pid)/stat; do :; done",
            "[python3]",
        ),
    ];
    for (script, command) in escapes {
        let sandbox = with_tool(&format!("{script}\n      echo begun"), "", ONE_CALL);
        sandbox.run("hello", &[]).expect_code(0);
        assert_eq!(left_in(&sandbox), Vec::<i32>::new(), "{script}");
        if sandbox.path("work/pid").exists() {
            let pid = sandbox.read("work/pid").trim().parse().unwrap();
            assert_eq!(living_threads(pid), 0, "{script}");
        }
        let result = &sandbox.events("ACTION_RESULT")[0];
        let [ended] = result["ended_background"].as_array().unwrap().as_slice() else {
            panic!("{script}: {result}")
        };
        // A process that has not yet become the program is named with its script, and one that is becoming it, or
        // `nohup` before it, as `[sleep]` or `[nohup]`.
        let ended = ended.as_str().unwrap();
        let names = [command, "/agent/../", "[nohup]"];
        assert!(names.iter().any(|name| ended.contains(name)), "{script}: {ended}");
        let expected = format!("begun\n[ended 1 background process: {ended}]");
        assert_eq!(sandbox.observations(), [expected], "{script}");
        assert_eq!((result.get("left_running"), &result["exit_code"]), (None, &json!(0)));
    }
}

/// An emulator of another processor left them running, without a word.
#[test]
fn c_22_1_what_a_call_leaves_behind_is_found_where_orphans_are_not_adopted() {
    let tools = "  - {name: leave, shell: 'sleep 1000 & env -i setsid sleep 1001 & echo left'}\n  \
                 - {name: keep, shell: 'sleep 1002 & echo kept', background: run}\n";
    let turns = "- call: [{tool: keep}]\n- call: [{tool: leave}]\n- call: [{tool: keep}, {tool: leave}]\n- say: done";
    // prctl(PR_SET_CHILD_SUBREAPER), which qemu does not know.
    let sandbox = Sandbox::scripted(DELTA, tools, turns).without_system_call([157, 167], Some(36));
    let Some(sandbox) = sandbox else { return };
    sandbox.run("hello", &[]).expect_code(0);
    assert_eq!(left_in(&sandbox), Vec::<i32>::new());
    let results = sandbox.events("ACTION_RESULT");
    let ended = |index: usize| results[index]["ended_background"].as_array().map(Vec::len);
    assert_eq!([0, 1, 2, 3].map(ended), [None, Some(2), None, Some(2)], "{results:?}");
}

#[test]
fn c_22_1_a_process_that_changes_all_the_time_is_ended() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let sandbox = with_tool("${AGENT_HOME}/../runner", "", ONE_CALL);
    sandbox.run("hello", &[]).expect_code(0);
    assert_eq!(left_in(&sandbox), Vec::<i32>::new());
}

/// The numbers in the /proc of another PID namespace are other processes there.
#[test]
fn c_22_1_no_process_of_another_pid_namespace_is_taken_for_one_of_a_call() {
    let namespace = ["unshare", "--map-root-user", "--fork", "--pid", "--kill-child"];
    let trial = Command::new(namespace[0]).args(&namespace[1..]).arg("true").output();
    if !trial.is_ok_and(|trial| trial.status.success()) {
        needs::skip("needs PID namespaces");
        return;
    }
    let sandbox = with_tool("sleep 1000 >/dev/null 2>&1 &", "    background: keep\n", ONE_CALL);
    let mut run = sandbox.run_command("hello", &[]);
    let mut contained = Command::new(namespace[0]);
    contained.args(&namespace[1..]).arg(run.command().get_program());
    contained.args(run.command().get_args()).current_dir(sandbox.path("")).env_clear();
    contained.envs(run.command().get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = contained.output().expect("unshare starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("/proc does not show the processes"), "{stderr}");
    // Whatever delta says, it is not the name of a process outside.
    assert_eq!(sandbox.observations(), ["[no output]"]);
}

/// Beside a process that was kept, or was there before, it was not noticed.
#[test]
fn c_22_1_a_process_that_changes_all_the_time_is_ended_beside_one_that_lives_on() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let keep = "  - name: keep\n    shell: sleep 1000 >/dev/null 2>&1 &\n    background: keep\n";
    for (script, keys) in [
        ("exec ${AGENT_HOME}/../runner", ""),
        ("${AGENT_HOME}/../runner; exec sleep 1000", "    timeout_ms: 1500\n"),
    ] {
        let tools = format!("{keep}  - name: t\n    shell: {script}\n{keys}");
        let sandbox =
            Sandbox::scripted(DELTA, &tools, "- call: [{tool: keep}, {tool: t}]\n- say: done");
        sandbox.write_program("runner", LOCKING_RUNNER);
        let _kept = Kept(&sandbox);
        sandbox.run("hello", &[]).expect_code(0);
        let lock = std::fs::File::open(sandbox.path("work/lock")).unwrap();
        let is_free = lock.try_lock().is_ok();
        sandbox.write("work/stop", "");
        assert!(is_free, "{script}: a process of the call holds its lock");
    }
}

/// The same where the leader of the engine's session is in no PID namespace that the engine sees, as in a container.
#[test]
fn c_22_1_a_process_is_ended_in_a_pid_namespace() {
    let namespace =
        ["unshare", "--map-root-user", "--fork", "--pid", "--mount-proc", "--kill-child"];
    let trial = Command::new(namespace[0]).args(&namespace[1..]).arg("true").output();
    if !trial.is_ok_and(|trial| trial.status.success()) {
        needs::skip("needs PID namespaces");
        return;
    }
    let stubborn = "sh -c 'trap : TERM; touch ready; while :; do sleep 1000; done'";
    for (left, keys) in [
        (format!("{stubborn} & until test -e ready; do :; done"), ""),
        (format!("setsid {stubborn} & until test -e ready; do :; done"), ""),
        (format!("setsid {stubborn} & exec sleep 1000"), "    timeout_ms: 1500\n"),
    ] {
        let sandbox = with_tool(&left, keys, ONE_CALL);
        let mut run = sandbox.run_command("hello", &[]);
        let mut contained = Command::new(namespace[0]);
        contained.args(&namespace[1..]).arg(run.command().get_program());
        contained.args(run.command().get_args()).current_dir(sandbox.path("")).env_clear();
        contained.envs(run.command().get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = contained.output().expect("unshare starts");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{left}: {stderr}");
        assert_eq!(left_in(&sandbox), Vec::<i32>::new(), "{left}");
    }
}

#[test]
fn c_22_1_nothing_escapes_a_timeout() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let script = "${AGENT_HOME}/../daemon; until test -s pid; do :; done; exec sleep 1000";
    let sandbox = with_tool(script, "    timeout_ms: 1500\n    background: keep\n", ONE_CALL);
    sandbox.run("hello", &[]).expect_code(0);
    assert_eq!(sandbox.observations(), ["[timed out after 1500 ms]"]);
    assert_eq!(left_in(&sandbox), Vec::<i32>::new());
}

#[test]
fn c_22_1_what_ends_by_itself_is_not_named() {
    let script = "(cat /dev/zero | head -c 3000000 > copy) & echo begun; wait";
    let sandbox = with_tool(script, "", "- call: [{tool: t}, {tool: t}, {tool: t}]\n- say: done");
    sandbox.run("hello", &[]).expect_code(0);
    assert_eq!(sandbox.observations(), ["begun\n"; 3]);
    // Writes for a moment longer than the command.
    let script = "(until test -e done; do :; done; echo late) & echo early; touch done";
    let sandbox = with_tool(script, "", ONE_CALL);
    sandbox.run("hello", &[]).expect_code(0);
    assert_eq!(sandbox.observations(), ["early\nlate\n"]);
}

#[test]
fn c_22_1_the_shown_command_line_is_safe() {
    let script =
        "sh -c 'sleep 1000; :' \"$(printf 'a\\033[2J\\nb')\" \"$MY_KEY\" >/dev/null 2>&1 & sleep 0";
    let sandbox = with_tool(script, "    pass_env: [MY_KEY]\n", ONE_CALL);
    let llm = "llm: {provider: script, model: script.yaml, api_key_env: MY_KEY}";
    let text = sandbox.read("agent/agent.yaml");
    let tools = &text[text.find("tools:").unwrap()..];
    sandbox.write("agent/agent.yaml", format!("name: test-agent\n{llm}\n{tools}"));
    let run = sandbox.run_command("hello", &[]).env("MY_KEY", "sk-0123456789");
    run.output().expect_code(0);
    let seen = sandbox.observations().remove(0);
    assert!(seen.contains("sh -c sleep 1000; : a\\u{1b}[2J\\nb [redacted]"), "{seen}");
    assert_eq!(left_in(&sandbox), Vec::<i32>::new());
}

const SERVER: &str = "  - name: start\n    shell: ${AGENT_HOME}/../daemon; until test -s pid && grep -q sleep /proc/$(cat pid)/cmdline; do :; done; echo started\n    background: run\n";
const LOOK: &str =
    "    shell: kill -0 $(cat pid) && echo alive; setsid sleep 1000 >/dev/null 2>&1 &\n";

/// Whether a call of [`LOOK`] found the server and was rid of its own process.
fn has_ended_one(observation: &str) -> bool {
    observation.starts_with("alive\n[ended 1 background process: ")
}

#[test]
fn c_22_1_a_server_lives_until_the_process_leaves_the_run() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let tools = format!("{SERVER}  - name: t\n{LOOK}");
    let turns = "- call: [{tool: start}, {tool: t}]\n- call: [{tool: t}]\n- say: done";
    let sandbox = Sandbox::scripted(DELTA, &tools, turns);
    sandbox.write_program("daemon", DAEMON);
    sandbox.write(
        "agent/hooks.yaml",
        "on_run_end: {command: [sh, -c, 'kill -0 $(cat pid) && touch seen']}\n",
    );
    let ran = sandbox.run("hello", &[]).expect_code(0);
    let seen = sandbox.observations();
    assert_eq!((seen.len(), &*seen[0]), (3, "started\n"));
    assert!(seen[1..].iter().all(|seen| has_ended_one(seen)), "{seen:?}");
    assert!(sandbox.path("work/seen").exists(), "a hook may need it still");
    assert_eq!(left_in(&sandbox), Vec::<i32>::new());
    assert!(!ran.stderr.contains("left running"), "{}", ran.stderr);
}

/// Some of them were taken for processes of the next call, and ended with it.
#[test]
fn c_22_1_a_daemon_that_is_kept_lives_on_however_fast_it_forks() {
    if !needs::programs(&["python3"]) {
        return;
    }
    const CALLS: usize = 40;
    let tools = "  - name: t\n    exec: ${AGENT_HOME}/../quick\n    background: keep\n";
    let calls = vec!["{tool: t}"; CALLS].join(", ");
    let sandbox = Sandbox::scripted(DELTA, tools, &format!("- call: [{calls}]\n- say: done"));
    sandbox.write_program("quick", QUICK_DAEMON);
    let _kept = Kept(&sandbox);
    sandbox.run("hello", &[]).expect_code(0);
    assert_eq!(left_in(&sandbox).len(), CALLS);
    let results = sandbox.events("ACTION_RESULT");
    let counts: Vec<usize> = results
        .iter()
        .map(|result| result["left_running"].as_array().map_or(0, Vec::len))
        .collect();
    // A daemon's parent may still be alive when the call is recorded.
    assert!(counts.iter().all(|count| (1..=2).contains(count)), "{counts:?}");
}

#[test]
fn c_22_1_a_process_that_is_kept_lives_on_and_is_named() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let tools =
        format!("{}  - name: t\n{LOOK}", SERVER.replace("background: run", "background: keep"));
    let sandbox = Sandbox::scripted(
        DELTA,
        &tools,
        "- call: [{tool: start}, {tool: t}]\n- say: done\n- say: again",
    );
    sandbox.write_program("daemon", DAEMON);
    let _kept = Kept(&sandbox);
    let ran = sandbox.run("hello", &[]).expect_code(0);
    let pid: i32 = sandbox.read("work/pid").trim().parse().unwrap();
    assert!(is_alive(pid));
    let seen = sandbox.observations();
    assert_eq!(seen[0], "started\n[still running: 1 background process: sleep 1000]");
    assert!(has_ended_one(&seen[1]), "{seen:?}");
    let result = &sandbox.events("ACTION_RESULT")[0];
    assert_eq!(result["left_running"], json!(["sleep 1000"]));
    assert!(ran.stderr.contains("left running: sleep 1000"), "{}", ran.stderr);
    let more = ["continue", "r", "-w", "work", "-m", "on", "--format", "raw"];
    let ran = sandbox.delta(more).output().expect_code(0);
    assert!(is_alive(pid), "{}", ran.stderr);
}

/// Kills the engine, after `first` has started something.
fn killing(first: &str) -> Sandbox {
    let script =
        format!("{first}\n      until test -s pid; do :; done; kill -KILL $PPID; exec sleep 1000");
    with_tool(&script, "", ONE_CALL)
}

#[test]
fn c_22_1_continue_ends_what_the_calls_of_a_killed_engine_left() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let scripts = [
        "${AGENT_HOME}/../daemon",
        "env -i setsid sh -c 'echo $$ > pid; exec sleep 1000' >/dev/null 2>&1 &",
        "${AGENT_HOME}/../headless",
    ];
    for script in scripts {
        let sandbox = killing(script);
        let _kept = Kept(&sandbox);
        sandbox.run("hello", &[]).expect_code(-1);
        let pid: i32 = until_line(&sandbox.path("work/pid")).parse().unwrap();
        until("the end of the tool itself", || {
            left_in(&sandbox).iter().all(|left| *left == pid).then_some(())
        });
        assert!(living_threads(pid) > 0, "{script}");
        let ran = sandbox.delta(["continue", "r", "-w", "work", "--format", "raw"]).output();
        assert_eq!((ran.code, &*ran.stdout), (0, "done\n"), "{script}: {}", ran.stderr);
        assert_eq!(living_threads(pid), 0, "{script}");
        assert!(ran.stderr.contains("an earlier call had left running"), "{}", ran.stderr);
    }
}

/// The inner engine marks its own calls, and ends what they leave.
#[test]
fn c_22_1_a_sub_agent_cares_for_its_own_calls() {
    let sandbox = with_tool(
        "\"$DELTA\" run --agent ${AGENT_HOME}/../inner -w inner --run-id i -m go -q --format raw",
        "",
        ONE_CALL,
    );
    for file in ["agent.yaml", "script.yaml", "context.yaml", "system_prompt.md"] {
        sandbox.write(&format!("inner/{file}"), sandbox.read(&format!("agent/{file}")));
    }
    let tool =
        "tools:\n  - name: t\n    shell: env -i setsid sleep 1000 >/dev/null 2>&1 & echo inside\n";
    let llm = "name: inner\nllm: {provider: script, model: script.yaml}\n";
    sandbox.write("inner/agent.yaml", format!("{llm}{tool}"));
    sandbox.write("inner/script.yaml", "turns:\n- call: [{tool: t}]\n- say: '${last}'\n");
    sandbox.run_command("hello", &[]).env("DELTA", DELTA).output().expect_code(0);
    let seen = sandbox.observations().remove(0);
    assert!(seen.starts_with("inside\n[ended 1 background process: "), "{seen}");
    assert_eq!(seen.matches("ended").count(), 1, "the outer run found nothing: {seen}");
    assert_eq!(left_in(&sandbox), Vec::<i32>::new());
}

/// The engine of a sub-agent dies with the engine around it, and what its calls left is found by its own mark.
#[test]
fn c_22_1_continue_ends_what_a_sub_agent_left() {
    let inner =
        "\"$DELTA\" run --agent ${AGENT_HOME}/../inner -w inner --run-id i -m go -q >/dev/null";
    let sandbox = with_tool(inner, "", ONE_CALL);
    for file in ["script.yaml", "context.yaml", "system_prompt.md"] {
        sandbox.write(&format!("inner/{file}"), sandbox.read(&format!("agent/{file}")));
    }
    let tool = "env -i setsid sh -c 'echo $$ > ../pid; exec sleep 1000' >/dev/null 2>&1 &\n      until test -s ../pid; do :; done; kill -KILL $(cat ../engine) $PPID; exec sleep 1000";
    let tools = format!("tools:\n  - name: t\n    shell: |-\n      {tool}\n");
    let llm = "name: inner\nllm: {provider: script, model: script.yaml}\n";
    sandbox.write("inner/agent.yaml", format!("{llm}{tools}"));
    let hook = "on_run_end: {command: ['true']}\non_iteration_start: {command: [sh, -c, 'echo $PPID > engine']}\n";
    sandbox.write("agent/hooks.yaml", hook);
    let _kept = Kept(&sandbox);
    sandbox.run_command("hello", &[]).env("DELTA", DELTA).output().expect_code(-1);
    let pid: i32 = until_line(&sandbox.path("work/pid")).parse().unwrap();
    until("the end of the engines", || {
        left_in(&sandbox).iter().all(|left| *left == pid).then_some(())
    });
    assert!(is_alive(pid));
    let ran = sandbox.delta(["continue", "r", "-w", "work", "--format", "raw"]).output();
    assert_eq!((ran.code, &*ran.stdout), (0, "done\n"), "{}", ran.stderr);
    assert!(!is_alive(pid));
}

#[test]
fn c_22_1_what_ran_before_the_engine_is_not_touched() {
    let sandbox = with_tool("setsid sleep 1000 >/dev/null 2>&1 & echo begun", "", ONE_CALL);
    let script = "cd work; sleep 2000 & echo $! > before; cd ..; exec \"$0\" run --agent agent -w work --run-id r -m hello";
    std::fs::create_dir(sandbox.path("work")).unwrap();
    let _kept = Kept(&sandbox);
    let mut command = Command::new("sh");
    command
        .args(["-c", script, DELTA])
        .current_dir(sandbox.path(""))
        .env("HOME", sandbox.path("home"));
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert_eq!(status.unwrap().code(), Some(0));
    let before: i32 = sandbox.read("work/before").trim().parse().unwrap();
    assert!(is_alive(before));
    assert_eq!(left_in(&sandbox), [before]);
    assert!(sandbox.observations()[0].starts_with("begun\n[ended 1 background process: "));
}

#[test]
fn c_22_1_a_hook_leaves_nothing_behind() {
    let sandbox = Sandbox::scripted(DELTA, "", "- say: done");
    let command = "env -i setsid sleep 1000 >/dev/null 2>&1 &";
    sandbox.write(
        "agent/hooks.yaml",
        format!("on_iteration_start: {{command: [sh, -c, '{command}']}}\n"),
    );
    let ran: Ran = sandbox.run("hello", &[]).expect_code(0);
    assert_eq!(left_in(&sandbox), Vec::<i32>::new());
    assert!(ran.stderr.contains("left processes running, which were ended: "), "{}", ran.stderr);
}
