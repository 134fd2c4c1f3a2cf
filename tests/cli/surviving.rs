//! `survive: true` (C-27.3): a call goes on without its engine, and is the same call when the run is continued.

use super::DELTA;
use super::runs::{resume, text};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::process::{Child, Command, Stdio};
use test_support::needs;
use test_support::running::end_with_test;
use test_support::sandbox::{Ran, Sandbox};
use test_support::server::{Answer, ScriptedServer};
use test_support::wait::{is_alive, processes_in, until, until_line};

/// `build` says that it has begun, and goes on when the file `go` is there.
const TOOLS: &str = "  - name: build\n    shell: \"echo begun; cat; echo $$ >> begun; until [ -e go ]; do sleep 0.02; done; \
                     echo built >> ledger; echo warned >&2; exit 3\"\n    survive: true\n";
const TURNS: &str = "- call: [{tool: build}]\n- say: 'seen ${last}'\n";
const SEEN: &str = "begun\n[stderr]\nwarned\n[exit code: 3]";

pub fn building() -> Sandbox {
    Sandbox::scripted(DELTA, TOOLS, TURNS)
}

pub fn start(sandbox: &Sandbox) -> Child {
    let child = sandbox.run_command("task", &["-q"]).spawn();
    until_line(&sandbox.path("work/begun"));
    // What the command prints is read a moment later.
    until_line(&sandbox.path("work/.delta/r/surviving/call_1_1/stdout"));
    child
}

pub fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

fn end(child: Child) -> Ran {
    let output = child.wait_with_output().unwrap();
    Ran::of(output.status, &output.stdout, &output.stderr)
}

fn list(sandbox: &Sandbox) -> String {
    sandbox.delta(["list-runs", "-w", "work"]).output().expect_code(0).stdout
}

/// The holder of the call, which the lock names.
fn holder(sandbox: &Sandbox) -> i32 {
    sandbox.read("work/.delta/r/surviving/call_1_1/lock").trim().parse().unwrap()
}

fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

fn leaves_nothing(sandbox: &Sandbox) {
    let work = sandbox.path("work");
    until("the end of every process", || processes_in(&work).is_empty().then_some(()));
    assert!(!sandbox.path("work/.delta/r/surviving").exists());
}

#[test]
fn c_27_3_a_call_of_a_living_engine_is_as_every_call() {
    let sandbox = building();
    sandbox.write("work/go", "");
    sandbox.run("task", &["--format", "raw"]).expect_code(0);
    assert_eq!(sandbox.observations(), [SEEN]);
    let result = &sandbox.events("ACTION_RESULT")[0];
    let record: Value = serde_json::from_str(
        &sandbox.read(&format!("work/.delta/r/{}", text(result, "execution"))),
    )
    .unwrap();
    assert_eq!(record["argv"][0], "sh");
    assert_eq!(sandbox.events("ACTION_REQUEST")[0]["argv"], record["argv"]);
    leaves_nothing(&sandbox);
}

#[test]
fn c_27_3_a_call_goes_on_when_its_engine_is_killed() {
    let sandbox = building();
    kill(start(&sandbox));
    assert!(list(&sandbox).contains("RUNNING (died, tool at work)"), "{}", list(&sandbox));
    let shown = sandbox.delta(["show", "r", "-w", "work"]).output().expect_code(0).stdout;
    assert!(shown.contains(&format!("build is at work in process {}\n", holder(&sandbox))));
    let listed = sandbox.delta(["list-runs", "-w", "work", "--format", "json"]).output();
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(listed[0]["calls_at_work"], 1);
    // A second process dies too while it waits.
    let waiting = sandbox.delta(["continue", "r", "-w", "work", "-q"]).spawn();
    until("the second request", || (sandbox.events("ACTION_REQUEST").len() == 2).then_some(()));
    kill(waiting);
    sandbox.write("work/go", "");
    resume(&sandbox, &["-q"]).expect(0, &format!("seen {SEEN}\n"), "");
    assert_eq!(
        (sandbox.read("work/ledger").as_str(), sandbox.observations().len()),
        ("built\n", 1)
    );
    leaves_nothing(&sandbox);
}

#[test]
fn c_27_3_an_end_without_an_engine_is_taken_once() {
    let sandbox = building();
    kill(start(&sandbox));
    sandbox.write("work/go", "");
    let built = holder(&sandbox);
    until("the end of the holder", || (!is_alive(built)).then_some(()));
    assert!(list(&sandbox).contains("RUNNING (died)"), "{}", list(&sandbox));
    resume(&sandbox, &["-q"]).expect_code(0);
    assert_eq!(sandbox.observations(), [SEEN]);
    assert_eq!(sandbox.read("work/ledger"), "built\n");
    leaves_nothing(&sandbox);
}

#[test]
fn c_27_3_a_call_whose_holder_is_killed_is_unknown_and_keeps_its_output() {
    for kills_engine in [false, true] {
        let sandbox = building();
        let engine = start(&sandbox);
        let held = holder(&sandbox);
        if kills_engine {
            kill(engine);
            signal(held, Signal::KILL);
            resume(&sandbox, &["-q"]).expect_code(0);
        } else {
            signal(held, Signal::KILL);
            end(engine).expect_code(0);
        }
        let seen = &sandbox.observations()[0];
        let ended = if kills_engine {
            "the engine stopped"
        } else {
            "the process that held this call ended"
        };
        assert!(seen.starts_with(&format!("[{ended} ")), "{seen}");
        assert!(seen.contains("; whether it took effect is unknown"), "{seen}");
        assert!(seen.ends_with("[printed until then]\nbegun\n"), "{seen}");
        assert!(!sandbox.path("work/ledger").exists());
        leaves_nothing(&sandbox);
    }
}

#[test]
fn c_27_3_an_idempotent_call_whose_holder_is_killed_runs_again() {
    let tools = format!("{TOOLS}    idempotent: true\n");
    let sandbox = Sandbox::scripted(DELTA, &tools, TURNS);
    kill(start(&sandbox));
    signal(holder(&sandbox), Signal::KILL);
    sandbox.write("work/go", "");
    resume(&sandbox, &["-q"]).expect_code(0);
    assert_eq!(
        (sandbox.observations(), sandbox.read("work/ledger")),
        (vec![SEEN.to_owned()], "built\n".to_owned())
    );
    leaves_nothing(&sandbox);
}

#[test]
fn c_27_3_a_stop_ends_the_command_unless_it_is_kept() {
    let sandbox = building();
    let engine = start(&sandbox);
    let kept = sandbox.delta(["stop", "r", "-w", "work", "--keep-tools"]).output();
    kept.expect(0, "r  INTERRUPTED\n", "");
    end(engine).expect_code(130);
    assert!(list(&sandbox).contains("INTERRUPTED (tool at work)"), "{}", list(&sandbox));
    let removed = sandbox.delta(["rm", "r", "-w", "work", "--yes"]).output().expect_code(1);
    assert!(removed.stderr.contains("a tool of it is at work"), "{}", removed.stderr);
    // The next process leaves nothing at work unless it is asked to.
    let waiting = sandbox.delta(["continue", "r", "-w", "work", "-q"]).spawn();
    until("the second request", || (sandbox.events("ACTION_REQUEST").len() == 2).then_some(()));
    sandbox.delta(["stop", "r", "-w", "work"]).output().expect(0, "r  INTERRUPTED\n", "");
    end(waiting).expect_code(130);
    // The stop may have come before the process had taken the output.
    resume(&sandbox, &["-q"]).expect_code(0);
    let seen = &sandbox.observations()[0];
    assert!(seen.starts_with("begun\n[interrupted: "), "{seen}");
    leaves_nothing(&sandbox);
}

#[test]
fn c_27_3_a_stop_ends_the_command_of_a_dead_engine() {
    let sandbox = building();
    kill(start(&sandbox));
    let held = holder(&sandbox);
    let stopped = sandbox.delta(["stop", "r", "-w", "work"]).output().expect_code(0);
    assert_eq!(stopped.stdout, format!("r  RUNNING (died); ended build (process {held})\n"));
    assert!(stopped.stderr.starts_with("Continue it with: delta continue r"), "{}", stopped.stderr);
    assert!(!is_alive(held));
    let more = sandbox.delta(["stop", "r", "-w", "work"]).output().expect_code(1);
    assert!(more.stderr.contains("its process died without leaving it"), "{}", more.stderr);
    resume(&sandbox, &["-q"]).expect_code(0);
    let seen = &sandbox.observations()[0];
    assert!(seen.starts_with("begun\n[interrupted: "), "{seen}");
    leaves_nothing(&sandbox);
}

#[test]
fn c_27_3_the_timeout_holds_without_an_engine() {
    let tools = TOOLS.replace("survive: true", "survive: true\n    timeout_ms: 300");
    let sandbox = Sandbox::scripted(DELTA, &tools, TURNS);
    kill(start(&sandbox));
    let held = holder(&sandbox);
    until("the end of the holder", || (!is_alive(held)).then_some(()));
    resume(&sandbox, &["-q"]).expect_code(0);
    let seen = &sandbox.observations()[0];
    assert!(seen.starts_with("begun\n[timed out after "), "{seen}");
    assert!(!sandbox.path("work/ledger").exists());
    leaves_nothing(&sandbox);
}

#[test]
fn c_27_3_what_a_command_leaves_running_ends_with_it() {
    let tools = "  - name: build\n    shell: \"sleep 1000 & echo begun; echo >> begun; until [ -e go ]; do sleep 0.02; done\"\n    survive: true\n";
    let sandbox = Sandbox::scripted(DELTA, tools, TURNS);
    kill(start(&sandbox));
    sandbox.write("work/go", "");
    resume(&sandbox, &["-q"]).expect_code(0);
    assert_eq!(sandbox.events("ACTION_RESULT")[0]["ended_background"][0], "sleep 1000");
    leaves_nothing(&sandbox);
}

#[test]
fn c_27_3_input_and_output_of_any_length_arrive_and_secrets_do_not() {
    const KEY: &str = "sk-operator/0123456789";
    let tools = "  - name: build\n    stdin: text\n    shell: \"cat; echo $DELTA_API_KEY; until [ -e go ]; do sleep 0.02; done; \
                 head -c 300000 /dev/zero | tr '\\\\0' x\"\n    survive: true\n    pass_env: [DELTA_API_KEY]\n";
    let input = "i".repeat(100_000);
    let call = Answer::calls(vec![("build", json!({"text": input}))]);
    let server = ScriptedServer::start(vec![call, Answer::text("done")]);
    let sandbox = Sandbox::asking(DELTA, &server.url(), tools);
    let engine = sandbox.run_command("task", &["-q"]).env("DELTA_API_KEY", KEY).spawn();
    let calls = sandbox.path("work/.delta/r/surviving");
    let printed = format!("{input}[redacted]\n");
    until("the output", || {
        let call = std::fs::read_dir(&calls).ok()?.next()?.ok()?.path();
        (std::fs::read_to_string(call.join("stdout")).ok()? == printed).then_some(())
    });
    kill(engine);
    sandbox.write("work/go", "");
    let command = sandbox.delta(["continue", "r", "-w", "work", "-q"]);
    command.env("DELTA_API_KEY", KEY).output().expect_code(0);
    let result = &sandbox.events("ACTION_RESULT")[0];
    let stem = text(result, "execution").trim_end_matches(".json");
    let whole = sandbox.read(&format!("work/.delta/r/{stem}.stdout"));
    assert!(whole == printed + &"x".repeat(300_000));
    leaves_nothing(&sandbox);
}

#[test]
fn c_27_3_parallel_calls_outlive_their_engine_together() {
    let tools = "  - name: build\n    shell: \"echo ${text} >> begun; until [ -e go ]; do sleep 0.02; done; echo ${text} >> ledger; echo ${text}\"\n    survive: true\n    parallel: true\n";
    let calls = ["a", "b", "c"].map(|text| format!("{{tool: build, args: {{text: {text}}}}}"));
    let turns = format!("- call: [{}]\n- say: done\n", calls.join(", "));
    let sandbox = Sandbox::scripted(DELTA, tools, &turns);
    let engine = sandbox.run_command("task", &["-q"]).spawn();
    let begun = sandbox.path("work/begun");
    until("three commands", || {
        (std::fs::read_to_string(&begun).ok()?.lines().count() == 3).then_some(())
    });
    kill(engine);
    sandbox.write("work/go", "");
    resume(&sandbox, &["-q"]).expect_code(0);
    assert_eq!(sandbox.observations(), ["a\n", "b\n", "c\n"]);
    let mut ledger: Vec<String> = sandbox.read("work/ledger").lines().map(str::to_owned).collect();
    ledger.sort();
    assert_eq!(ledger, ["a", "b", "c"]);
    leaves_nothing(&sandbox);
}

#[test]
fn c_27_3_a_fork_of_a_run_at_work_has_no_part_in_its_call() {
    let sandbox = building();
    kill(start(&sandbox));
    let fork = |at: &str| {
        let fork = ["fork", "r", "-w", "work", "--at", at, "--run-id", "f", "--into", "work"];
        sandbox.delta(fork).output()
    };
    fork("1").expect_code(1);
    fork("0").expect_code(0);
    assert!(!sandbox.path("work/.delta/f/surviving").exists());
    assert!(is_alive(holder(&sandbox)));
    sandbox.write("work/go", "");
    resume(&sandbox, &["-q"]).expect_code(0);
    assert_eq!(
        (sandbox.observations()[0].as_str(), sandbox.read("work/ledger").as_str()),
        (SEEN, "built\n")
    );
    leaves_nothing(&sandbox);
}

#[test]
fn c_27_3_a_newer_program_takes_the_result_of_an_older_one() {
    let sandbox = building();
    let older = sandbox.path("older");
    sandbox.copy_program(DELTA, "older");
    let mut command = Command::new(&older);
    command.args(["run", "--agent", "agent", "-w", "work", "--run-id", "r", "-m", "task", "-q"]);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    command.env("HOME", sandbox.path("home")).current_dir(sandbox.path(""));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    end_with_test(&mut command);
    // A process that another test is just starting may have the new file open for writing.
    let engine = until("the start of the copy", || command.spawn().ok());
    until_line(&sandbox.path("work/begun"));
    kill(engine);
    // As a package manager replaces a program that is running.
    std::fs::remove_file(&older).unwrap();
    sandbox.write("work/go", "");
    resume(&sandbox, &["-q"]).expect_code(0);
    assert_eq!(sandbox.observations(), [SEEN]);
    leaves_nothing(&sandbox);
}

#[test]
fn c_27_3_what_cannot_outlive_the_engine_is_refused() {
    let refuse = |yaml: &str, reason: &str| {
        let sandbox = Sandbox::scripted(DELTA, &format!("{TOOLS}{yaml}"), TURNS);
        let ran = sandbox.run("task", &[]).expect_code(126);
        assert!(ran.stderr.contains(reason), "{}", ran.stderr);
    };
    refuse("    stage: ask\n", "a tool cannot have both `survive` and `stage`");
    refuse("    background: keep\n", "a tool cannot have both `survive` and `background`");
    let reason = "`build` has `survive: true`, and its sandbox would end with the engine";
    refuse("    sandbox: workspace\n", reason);
    let sandbox = building();
    let ran = sandbox.run("task", &["--sandbox", "workspace"]).expect_code(126);
    assert!(ran.stderr.contains(reason), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("run the agent without a sandbox of the operator"),
        "{}",
        ran.stderr
    );
}

/// A stream that ends like the start of a key arrives whole.
#[test]
fn c_27_3_the_end_of_a_stream_is_kept_although_a_key_could_begin_there() {
    let tools = "  - {name: build, shell: 'printf files; printf files >&2', survive: true}\n";
    let call = Answer::calls(vec![("build", json!({}))]);
    let server = ScriptedServer::start(vec![call, Answer::text("done")]);
    let sandbox = Sandbox::asking(DELTA, &server.url(), tools);
    sandbox
        .run_command("task", &[])
        .env("DELTA_API_KEY", "s-operator-012345")
        .output()
        .expect_code(0);
    assert_eq!(sandbox.observations(), ["files\n[stderr]\nfiles"]);
}

#[test]
fn c_27_3_a_stream_beyond_the_limit_keeps_its_end() {
    let tools = |survive: &str| {
        format!(
            "  - name: build\n    shell: 'seq 400000; echo ERROR the reason'\n    max_output_bytes: 100\n{survive}"
        )
    };
    let seen = ["", "    survive: true\n"].map(|survive| {
        let sandbox = Sandbox::scripted(DELTA, &tools(survive), TURNS);
        sandbox.run("task", &["-q", "--max-disk", "2M"]);
        let seen = sandbox.observations()[0].clone();
        let result = sandbox.events("ACTION_RESULT")[0].clone();
        let stem = text(&result, "execution").trim_end_matches(".json").to_owned();
        seen.replace(stem.rsplit('/').next().unwrap(), "STEM")
    });
    assert_eq!(seen[0], seen[1]);
    assert!(seen[1].contains("ERROR the reason"), "{}", seen[1]);
}

/// What the command had started ends when the run is continued, before anything runs again.
#[test]
fn c_27_3_nothing_of_a_lost_call_runs_on() {
    let tools = "  - name: build\n    shell: \"sh -c 'echo begun; echo $$ >> begun; exec sleep 1000'; true\"\n    survive: true\n";
    let sandbox = Sandbox::scripted(DELTA, tools, TURNS);
    let engine = start(&sandbox);
    let inner: i32 = sandbox.read("work/begun").trim().parse().unwrap();
    let held = holder(&sandbox);
    kill(engine);
    signal(held, Signal::KILL);
    resume(&sandbox, &["-q"]).expect_code(0);
    assert!(!is_alive(inner));
    assert!(sandbox.observations()[0].contains("whether it took effect is unknown"));
    leaves_nothing(&sandbox);
}

#[test]
fn c_27_3_a_call_is_settled_whatever_became_of_its_tool() {
    let edit = |edit: fn(&str) -> String, result: &str| {
        let sandbox = building();
        kill(start(&sandbox));
        let agent = edit(&sandbox.read("agent/agent.yaml"));
        sandbox.write("agent/agent.yaml", agent);
        sandbox.write("work/go", "");
        resume(&sandbox, &["-q"]).expect_code(0);
        let seen = &sandbox.observations()[0];
        assert!(seen.contains(result), "{seen}");
        leaves_nothing(&sandbox);
    };
    edit(|yaml| yaml.replace("    survive: true\n", ""), SEEN);
    edit(|yaml| yaml.replace("name: build", "name: other"), "whether it took effect is unknown");
}

#[test]
fn c_27_3_a_process_that_leaves_the_run_ends_every_command() {
    let tools = "  - name: build\n    shell: \"echo begun; echo >> begun; until [ -e go ]; do sleep 0.02; done\"\n    survive: true\n    parallel: true\n";
    let turns = "- call: [{tool: build}, {tool: build}]\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, tools, turns);
    let engine = sandbox.run_command("task", &["-q"]).spawn();
    let begun = sandbox.path("work/begun");
    until("both", || (std::fs::read_to_string(&begun).ok()?.len() == 2).then_some(()));
    kill(engine);
    let waiting = sandbox.delta(["continue", "r", "-w", "work", "-q"]).spawn();
    until("a request", || (sandbox.events("ACTION_REQUEST").len() == 3).then_some(()));
    signal(i32::try_from(waiting.id()).unwrap(), Signal::TERM);
    end(waiting).expect_code(130);
    let work = sandbox.path("work");
    until("the end of every process", || processes_in(&work).is_empty().then_some(()));
    resume(&sandbox, &["-q"]).expect_code(0);
    assert!(sandbox.observations().iter().all(|seen| seen.contains("[interrupted: ")));
}

#[test]
fn c_27_3_a_workspace_may_move_and_nothing_is_rolled_back_meanwhile() {
    let sandbox = building();
    sandbox.write("work/keep", "");
    let engine = sandbox.run_command("task", &["-q", "--snapshots"]).spawn();
    until_line(&sandbox.path("work/.delta/r/surviving/call_1_1/stdout"));
    kill(engine);
    let back = sandbox.delta(["rollback", "r", "-w", "work", "--to", "0"]).output().expect_code(1);
    assert!(back.stderr.contains("build of run r is at work"), "{}", back.stderr);
    std::fs::rename(sandbox.path("work"), sandbox.path("moved")).unwrap();
    sandbox.write("moved/go", "");
    let more = ["continue", "r", "-w", "moved", "-q"];
    sandbox.delta(more).output().expect_code(0);
    let journal = sandbox.read("moved/.delta/r/journal.jsonl");
    assert!(journal.contains("[exit code: 3]"), "{journal}");
    sandbox.unverified("the workspace was moved");
}

#[test]
fn c_27_3_a_stop_that_keeps_tools_names_what_a_dead_engine_has_left_at_work() {
    let sandbox = building();
    kill(start(&sandbox));
    let held = holder(&sandbox);
    let stopped = sandbox.delta(["stop", "r", "-w", "work", "--keep-tools"]).output();
    let stopped = stopped.expect_code(0);
    assert_eq!(
        stopped.stdout,
        format!("r  RUNNING (died); left at work: build (process {held})\n")
    );
    sandbox.write("work/go", "");
    resume(&sandbox, &["-q"]).expect(0, &format!("seen {SEEN}\n"), "");
    leaves_nothing(&sandbox);
}

/// The lock file has the id of another process: forged, or of another PID namespace.
#[test]
fn c_27_3_only_the_process_that_has_the_lock_is_signalled() {
    let sandbox = building();
    kill(start(&sandbox));
    let held = holder(&sandbox);
    let mut victim = Command::new("sleep").arg("1000").spawn().unwrap();
    sandbox.write("work/.delta/r/surviving/call_1_1/lock", format!("{}\n", victim.id()));
    let shown = sandbox.delta(["show", "r", "-w", "work"]).output().expect_code(0).stdout;
    assert!(shown.contains(&format!("build is at work in process {held}\n")), "{shown}");
    sandbox.delta(["stop", "r", "-w", "work"]).output().expect_code(0);
    assert!(!is_alive(held));
    assert!(victim.try_wait().unwrap().is_none());
    victim.kill().unwrap();
    victim.wait().unwrap();
}

/// The arguments as a process in another PID namespace runs them; `None` where the kernel allows none.
fn elsewhere(sandbox: &Sandbox, args: &[&str]) -> Option<Command> {
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    command.env("HOME", sandbox.path("home")).current_dir(sandbox.path(""));
    let mut probe = Command::new("unshare");
    probe.args(["--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "true"]);
    if !probe.stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        needs::skip("needs PID namespaces");
        return None;
    }
    command.args(args);
    Some(command)
}

#[test]
fn c_27_3_a_holder_in_another_pid_namespace_is_named_and_nothing_else_is_signalled() {
    let sandbox = building();
    kill(start(&sandbox));
    let held = holder(&sandbox);
    let Some(mut stop) = elsewhere(&sandbox, &[DELTA, "stop", "r", "-w", "work"]) else { return };
    let output = stop.output().unwrap();
    let ran = Ran::of(output.status, &output.stdout, &output.stderr).expect_code(1);
    assert!(
        ran.stderr.contains("could not end build of run r: its holder is in another PID namespace"),
        "{}",
        ran.stderr
    );
    assert!(is_alive(held));
    let shown = elsewhere(&sandbox, &[DELTA, "show", "r", "-w", "work"]).unwrap().output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("build is at work in a process that is not visible here\n"), "{shown}");
    sandbox.write("work/go", "");
    resume(&sandbox, &["-q"]).expect(0, &format!("seen {SEEN}\n"), "");
    leaves_nothing(&sandbox);
}

/// From outside of a PID namespace its processes are visible, by other ids than inside.
#[test]
fn c_27_3_a_holder_inside_of_a_pid_namespace_is_stopped_from_outside() {
    let sandbox = building();
    let run = format!(
        "{DELTA} run --agent agent -w work --run-id r -m task -q & engine=$!; until [ -e work/begun ]; do sleep 0.02; done; \
         kill -9 $engine; echo killed > killed; until [ -e work/over ]; do sleep 0.02; done"
    );
    let Some(mut inside) = elsewhere(&sandbox, &["sh", "-c", &run]) else { return };
    inside.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    end_with_test(&mut inside);
    let mut inside = inside.spawn().unwrap();
    until_line(&sandbox.path("killed"));
    let stopped = sandbox.delta(["stop", "r", "-w", "work"]).output();
    assert!(stopped.stdout.contains("ended build (process "), "{stopped:?}");
    assert!(!sandbox.path("work/ledger").exists());
    sandbox.write("work/over", "");
    inside.wait().unwrap();
    let work = sandbox.path("work");
    until("the end of every process", || processes_in(&work).is_empty().then_some(()));
}

/// A daemon without the session, the parent and the environment of its call still has the mark of the call.
#[test]
fn c_27_3_a_daemon_of_a_lost_call_ends() {
    let tools = "  - name: build\n    shell: \"setsid env -i sh -c 'echo $$ > daemon; exec sleep 1000' & until [ -s daemon ]; do \
                 sleep 0.02; done; echo begun; echo >> begun; sleep 1000\"\n    survive: true\n";
    for kills_engine in [true, false] {
        let sandbox = Sandbox::scripted(DELTA, tools, TURNS);
        let engine = start(&sandbox);
        let daemon: i32 = sandbox.read("work/daemon").trim().parse().unwrap();
        let held = holder(&sandbox);
        if kills_engine {
            kill(engine);
            signal(held, Signal::KILL);
            let resumed = sandbox.delta(["continue", "r", "-w", "work"]).output().expect_code(0);
            let warning = "that an earlier call had left running";
            assert!(resumed.stderr.contains(warning), "{}", resumed.stderr);
        } else {
            signal(held, Signal::KILL);
            end(engine).expect_code(0);
        }
        assert!(!is_alive(daemon));
        leaves_nothing(&sandbox);
    }
}

/// A holder that does not run keeps no timeout, so the engine ends the call.
#[test]
fn c_27_3_everything_of_a_call_ends_whose_holder_is_stopped_beyond_the_timeout() {
    let tools = "  - name: build\n    shell: \"sh -c 'echo begun; echo $$ >> begun; exec sleep 1000'; true\"\n    survive: true\n    timeout_ms: 60000\n";
    let sandbox = Sandbox::scripted(DELTA, tools, TURNS);
    let engine = start(&sandbox);
    let inner: i32 = sandbox.read("work/begun").trim().parse().unwrap();
    signal(holder(&sandbox), Signal::STOP);
    kill(engine);
    let agent = sandbox.read("agent/agent.yaml").replace("timeout_ms: 60000", "timeout_ms: 100");
    sandbox.write("agent/agent.yaml", agent);
    resume(&sandbox, &["-q"]).expect_code(0);
    let seen = &sandbox.observations()[0];
    assert!(seen.contains("[timed out after "), "{seen}");
    assert!(!is_alive(inner));
    leaves_nothing(&sandbox);
}

/// The engine is replaced while it is paused, and leaves the command to its successor.
#[test]
fn c_27_3_a_process_that_replaces_a_paused_engine_waits_for_the_command() {
    let sandbox = building();
    let mut engine = sandbox.run_command("task", &["-q"]).env("DELTA_LEASE", "turns").spawn();
    until_line(&sandbox.path("work/.delta/r/surviving/call_1_1/stdout"));
    let paused = i32::try_from(engine.id()).unwrap();
    signal(paused, Signal::STOP);
    let forced = sandbox.delta(["continue", "r", "-w", "work", "-q", "--force"]).spawn();
    until("the second request", || (sandbox.events("ACTION_REQUEST").len() == 2).then_some(()));
    signal(paused, Signal::CONT);
    engine.wait().unwrap();
    sandbox.write("work/go", "");
    let forced = end(forced).expect_code(0);
    assert!(forced.stdout.contains(&format!("seen {SEEN}\n")), "{}", forced.stdout);
    assert_eq!(sandbox.read("work/ledger"), "built\n");
    leaves_nothing(&sandbox);
}
