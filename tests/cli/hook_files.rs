//! hooks.yaml and what stands in its place (C-9.1, C-1.1): what is read, what is refused, and what is only old.

use super::DELTA;
use test_support::sandbox::{Ran, Sandbox};

const AGENT: &str = "name: a\nllm: {provider: script, model: script.yaml}\n";

/// An agent that says one thing.
fn agent(more: &str) -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    sandbox.write("agent/agent.yaml", format!("{AGENT}{more}"));
    sandbox.write("agent/script.yaml", "turns: [{say: done}]\n");
    sandbox
}

fn with_hooks(hooks: &str) -> Sandbox {
    let sandbox = agent("");
    sandbox.write("agent/hooks.yaml", hooks);
    sandbox
}

/// What is said of an agent that is refused; nothing was made.
fn refused(sandbox: &Sandbox) -> String {
    let ran = sandbox.run("go", &[]).normal(sandbox).expect_code(126);
    assert_eq!(ran.stdout, "");
    assert!(!sandbox.path("work").exists());
    ran.stderr
}

/// The lines of stderr before the run's own.
fn warnings(ran: &Ran) -> Vec<&str> {
    ran.stderr.lines().take_while(|line| *line != "a r").collect()
}

/// Each hook of the agent, once, in the order of the journal.
fn fired(sandbox: &Sandbox) -> Vec<String> {
    let events = sandbox.events("HOOK_EXECUTION");
    events.iter().map(|event| event["hook"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn c_9_1_hooks_stand_at_the_root_or_under_lifecycle_hooks() {
    let hooks =
        "on_iteration_start: {command: ['true']}\non_run_end: {command: ['true']}\nx-mine: 1\n";
    let nested =
        format!("x-mine: 1\nlifecycle_hooks:\n  {}\n", hooks.trim_end().replace('\n', "\n  "));
    for text in [hooks, &nested] {
        let sandbox = with_hooks(text);
        let ran = sandbox.run("go", &[]).expect_code(0);
        assert_eq!(warnings(&ran), Vec::<&str>::new());
        assert_eq!(fired(&sandbox), ["on_iteration_start", "on_run_end"]);
        assert_eq!(sandbox.read("work/.delta/r/agent/hooks.yaml"), text);
    }
}

/// What was commented out or cut off would be no gate, and nobody would notice.
#[test]
fn c_9_4_a_file_without_hooks_is_an_error() {
    for nothing in [
        "",
        "# on_run_end: {command: [x]}\n",
        "lifecycle_hooks:\n",
        "{}\n",
        "null\n",
        "x-note: {on_run_end: {command: [x]}}\n",
        "lifecycle_hooks: {x-note: 1}\n",
    ] {
        let sandbox = with_hooks(nothing);
        let ran = sandbox.run("go", &["-q"]).expect_code(126);
        let begin = "error: hooks.yaml has no hooks: the run would have no gates\n";
        assert!(ran.stderr.starts_with(begin), "{}", ran.stderr);
        assert!(ran.stderr.contains("or remove the file"), "{}", ran.stderr);
    }
}

#[test]
fn c_9_1_every_hook_has_its_moment_in_this_order() {
    let names = [
        "on_error",
        "on_iteration_end",
        "on_iteration_start",
        "on_run_end",
        "post_llm_response",
        "post_tool_execution",
        "pre_llm_request",
        "pre_tool_execution",
    ];
    let hooks: String =
        names.iter().map(|name| format!("{name}: {{command: ['true']}}\n")).collect();
    let sandbox = Sandbox::scripted(
        DELTA,
        "  - name: t\n    exec: 'true'\n",
        "- call: [{tool: t}]\n- error: broken\n",
    );
    sandbox.write("agent/hooks.yaml", hooks);
    sandbox.run("go", &[]).expect_code(1);
    let kinds: Vec<String> = sandbox
        .journal()
        .iter()
        .map(|event| event["hook"].as_str().or(event["type"].as_str()).unwrap().to_owned())
        .collect();
    assert_eq!(
        kinds,
        [
            "ENGINE_START",
            "USER_MESSAGE",
            "on_iteration_start",
            "pre_llm_request",
            "post_llm_response",
            "THOUGHT",
            "pre_tool_execution",
            "ACTION_REQUEST",
            "post_tool_execution",
            "ACTION_RESULT",
            "on_iteration_end",
            "on_iteration_start",
            "pre_llm_request",
            "ERROR",
            "on_error",
            "on_run_end",
            "ENGINE_END",
        ]
    );
}

#[test]
fn c_9_1_old_names_work_and_are_deprecated() {
    let names = [
        ("pre_llm_req", "pre_llm_request"),
        ("post_llm_resp", "post_llm_response"),
        ("pre_tool_exec", "pre_tool_execution"),
        ("post_tool_exec", "post_tool_execution"),
    ];
    let hooks: String =
        names.iter().map(|(old, _)| format!("{old}: {{command: ['true']}}\n")).collect();
    let sandbox = Sandbox::scripted(
        DELTA,
        "  - name: t\n    exec: 'true'\n",
        "- call: [{tool: t}]\n- say: done\n",
    );
    sandbox.write("agent/hooks.yaml", hooks);
    let ran = sandbox.run("go", &[]).expect_code(0);
    let file = sandbox.path("agent/hooks.yaml");
    let expected = names.map(|(old, new)| {
        let file = file.display();
        format!("[DEPRECATION WARNING] the hook `{old}` is now called `{new}`; rename it in {file}")
    });
    let said: Vec<&str> = ran.stderr.lines().take(4).collect();
    assert_eq!(said, expected);
    for (_, new) in names {
        assert!(fired(&sandbox).contains(&new.to_owned()), "{new}");
    }
    let quiet = sandbox.delta(["run", "--agent", "agent", "-m", "go", "-q", "-y"]).output();
    assert!(!quiet.stderr.contains("DEPRECATION"), "{}", quiet.stderr);
}

#[test]
fn c_1_1_hooks_in_agent_yaml_work_where_there_is_no_hooks_yaml() {
    let section = "lifecycle_hooks:\n  on_run_end: {command: [sh, -c, 'echo old > which']}\n";
    let sandbox = agent(section);
    let ran = sandbox.run("go", &[]).expect_code(0);
    let file = sandbox.path("agent/agent.yaml");
    let file = file.display();
    let old = format!(
        "[DEPRECATION WARNING] `lifecycle_hooks` in {file}: move its contents to hooks.yaml"
    );
    assert_eq!(warnings(&ran), [old]);
    assert_eq!(sandbox.read("work/which"), "old\n");

    let sandbox = agent(section);
    sandbox.write("agent/hooks.yaml", "on_run_end: {command: [sh, -c, 'echo new > which']}\n");
    let ran = sandbox.run("go", &[]).expect_code(0);
    let file = sandbox.path("agent/agent.yaml");
    let file = file.display();
    let both = format!(
        "Warning: `lifecycle_hooks` in {file} is ignored because hooks.yaml exists; remove it"
    );
    assert_eq!(warnings(&ran), [both]);
    assert_eq!(sandbox.read("work/which"), "new\n");
}

#[test]
fn c_9_1_what_is_wrong_comes_at_once_with_what_to_write() {
    let sandbox = with_hooks(
        "pre_tool_exectuion: {command: [x]}\n\
         on_error: {command: tidy up --all, timeout_ms: 0}\n\
         on_run_end: {command: 'echo done | mail me'}\n\
         on_iteration_start: {command: [], on_failure: warn}\n\
         on_iteration_end: {comand: [x]}\n\
         pre_llm_request: ['x']\n\
         post_llm_response:\n\
         pre_tool_exec: {command: ['${AGENT_HOEM}/x', sh, -c, '${TOOL_NAME}']}\n\
         pre_tool_execution: {command: [x], pass_env: KEY}\n",
    );
    let expected = r#"error: `pre_tool_exectuion` is not a hook
  --> DIR/agent/hooks.yaml:1:1
   |
 1 | pre_tool_exectuion: {command: [x]}
   | ^^^^^^^^^^^^^^^^^^
  = help: did you mean `pre_tool_execution`?

error: `command` must be a list, not a string
  --> DIR/agent/hooks.yaml:2:21
   |
 2 | on_error: {command: tidy up --all, timeout_ms: 0}
   |                     ^^^^^^^^^^^^^
  = help: write `command: ["tidy", "up", "--all"]`

error: `timeout_ms` must be a whole number from 1 to 4294967295
  --> DIR/agent/hooks.yaml:2:48
   |
 2 | on_error: {command: tidy up --all, timeout_ms: 0}
   |                                                ^
  = help: no value means `no limit`: write a long time, such as `24h`, or omit `timeout_ms` for 30000

error: `command` must be a list, not a string
  --> DIR/agent/hooks.yaml:3:23
   |
 3 | on_run_end: {command: 'echo done | mail me'}
   |                       ^^^^^^^^^^^^^^^^^^^^^
  = help: write `command: ["sh", "-c", "echo done | mail me"]`

error: `command` names no program
  --> DIR/agent/hooks.yaml:4:31
   |
 4 | on_iteration_start: {command: [], on_failure: warn}
   |                               ^^
  = help: write `[PROGRAM, ARG, ...]`
"#;
    let said = refused(&sandbox);
    assert!(said.starts_with(expected), "{said}");
    for part in [
        "error: `on_failure` must be `fail` or `ignore`\n",
        "error: unknown key `comand` in the hook `on_iteration_end`\n",
        "error: the hook `pre_llm_request` must be a mapping, not a list\n",
        "error: the hook `post_llm_response` must be a mapping, not empty\n",
        "  = help: write `post_llm_response: {command: [PROGRAM, ARG]}`\n",
        "error: `pre_tool_exec` is the old name of `pre_tool_execution`, which is configured as well\n",
        "error: `${AGENT_HOEM}` is not an engine variable\n",
        "  = help: the engine variables in a hook's command are `${AGENT_HOME}`, `${CWD}`, `${RUN_DIR}`; everything else is in its environment and on its standard input\n",
        "error: `pass_env` must be a list, not a string\n",
    ] {
        assert!(said.contains(part), "{part}\nis not in\n{said}");
    }
    assert_eq!(said.matches("\nerror: ").count(), 11, "{said}");
}

#[test]
fn c_9_1_both_places_at_once_are_refused() {
    let sandbox =
        with_hooks("on_error: {command: [x]}\nlifecycle_hooks:\n  on_run_end: {command: [x]}\n");
    assert_eq!(
        refused(&sandbox),
        "error: `on_error` is outside `lifecycle_hooks`\n  --> DIR/agent/hooks.yaml:1:1\n   |\n 1 | on_error: {command: [x]}\n   | ^^^^^^^^\n  = help: write all hooks under `lifecycle_hooks`, or all of them at the root\n"
    );
}

/// A gate is not open because its configuration cannot be read.
#[test]
fn c_9_1_a_hooks_yaml_that_cannot_be_read_is_not_an_absent_one() {
    let sandbox = agent("");
    std::os::unix::fs::symlink("nowhere", sandbox.path("agent/hooks.yaml")).unwrap();
    assert_eq!(
        refused(&sandbox),
        "error: could not read the file: No such file or directory (os error 2)\n  --> DIR/agent/hooks.yaml\n  = help: make it a readable UTF-8 text\n"
    );
    let sandbox = with_hooks("on_error: {command: [x]\n");
    assert!(refused(&sandbox).contains("hooks.yaml"));
}

#[test]
fn c_9_1_hooks_in_a_file_with_another_name_are_refused() {
    for name in ["hooks.yml", "hook.yaml", "hook.yml"] {
        let sandbox = agent("");
        sandbox.write(&format!("agent/{name}"), "pre_tool_execution: {command: ['false']}\n");
        assert_eq!(
            refused(&sandbox),
            format!(
                "error: the hooks are in a file that is not read\n  --> DIR/agent\n  = help: delta does not read {name}: rename it to hooks.yaml\n"
            )
        );
        let lint = sandbox.delta(["tool", "lint", "agent"]).output().expect_code(1);
        assert!((lint.stdout + &lint.stderr).contains("rename it to hooks.yaml"));
        // A copy next to the file that counts changes nothing.
        sandbox.write("agent/hooks.yaml", "on_run_end: {command: ['true']}\n");
        sandbox.run("go", &[]).expect_code(0);
        assert_eq!(fired(&sandbox), ["on_run_end"]);
    }
}

#[test]
fn c_2_2_the_engines_variables_reach_hooks_and_generators_as_one_word_each() {
    let sandbox = agent("");
    let words = "'--', 'a b ${AGENT_HOME}', '${CWD}', '${RUN_DIR}/x'";
    let command = |file: &str| format!("[sh, -c, 'printf \"%s\\n\" \"$@\" > {file}', {words}]");
    sandbox.write("agent/hooks.yaml", format!("on_run_end: {{command: {}}}\n", command("hook")));
    sandbox.write(
        "agent/context.yaml",
        format!(
            "sources:\n  - type: computed_file\n    generator: {{command: {}}}\n    \
             output_path: '${{CWD}}/generated'\n  - {{type: journal}}\n",
            command("generated")
        ),
    );
    sandbox.run("go", &[]).expect_code(0);
    let path = |name: &str| sandbox.path(name).display().to_string();
    let expected =
        format!("a b {}\n{}\n{}\n", path("agent"), path("work"), path("work/.delta/r/x"));
    assert_eq!(sandbox.read("work/hook"), expected);
    assert_eq!(sandbox.read("work/generated"), expected);
}

/// A gate that was taken away between two processes of a run was missed by nobody.
#[test]
fn c_9_4_continue_says_which_hooks_the_run_has_no_more() {
    let sandbox =
        with_hooks("pre_tool_exec: {command: ['true']}\non_run_end: {command: ['true']}\n");
    sandbox
        .write("agent/script.yaml", "turns: [{say: 1}, {say: 2}, {say: 3}, {say: 4}, {say: 5}]\n");
    sandbox.run("go", &[]).expect_code(0);
    let warnings = |more: &[&str]| {
        let args = ["continue", "-w", "work", "--run-id", "r", "-m", "more"];
        let args = args.iter().chain(more).copied();
        let ran = sandbox.delta(args).output().normal(&sandbox).expect_code(0);
        let found = ran.stderr.lines().filter(|line| line.starts_with("! "));
        found.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(warnings(&[]), Vec::<String>::new());
    sandbox.write("agent/hooks.yaml", "on_run_end: {command: ['true']}\n");
    let lost = "! the run had the hook pre_tool_execution until now; the agent in DIR/agent has no such hook";
    assert_eq!(warnings(&[]), [lost]);
    assert_eq!(warnings(&[]), Vec::<String>::new());
    std::fs::remove_file(sandbox.path("agent/hooks.yaml")).unwrap();
    assert_eq!(warnings(&["-q"]), [lost.replace("pre_tool_execution", "on_run_end")]);
}
