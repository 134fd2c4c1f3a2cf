//! Hooks, approvals, replays, tests of agents and the commands for authors, with tools of MCP servers.

use super::{Server, turn};
use serde_json::json;
use test_support::needs;

fn hook(server: &Server, name: &str, script: &str) {
    let file = format!("agent/{name}.sh");
    server.sandbox.write_program(&file, &format!("#!/bin/sh\n{script}\n"));
    server
        .sandbox
        .write("agent/hooks.yaml", format!("{name}: {{command: ['${{AGENT_HOME}}/{name}.sh']}}\n"));
}

#[test]
fn c_30_1_a_hook_denies_a_call_before_its_server_starts() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let server = Server::locked("", "", &turn(&[("echo", "text: a")]));
    hook(
        &server,
        "pre_tool_execution",
        "echo '{\"decision\": \"deny\", \"reason\": \"not today\"}'",
    );
    let starts = server.noted("starts").len();
    server.run().expect_code(0);
    assert!(server.sandbox.observations()[0].contains("not today"));
    assert_eq!((server.noted("starts").len(), server.noted("calls").len()), (starts, 0));
}

#[test]
fn c_30_1_a_hook_sees_and_changes_arguments_and_results() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let server = Server::locked("", "", &turn(&[("echo", "text: a")]));
    hook(
        &server,
        "pre_tool_execution",
        "cat > ${0%/*}/seen; echo '{\"arguments\": {\"text\": \"b\"}}'",
    );
    server.run().expect_code(0);
    assert_eq!(server.sandbox.observations(), ["b\n"]);
    assert!(server.sandbox.read("agent/seen").contains("s__echo"));
    let server = Server::locked("", "", &turn(&[("echo", "text: a")]));
    hook(&server, "post_tool_execution", "echo '{\"observation\": \"filtered\"}'");
    server.run().expect_code(0);
    assert_eq!(server.sandbox.observations(), ["filtered"]);
}

#[test]
fn c_30_15_a_task_of_an_approved_call_is_approved() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let server = Server::locked("modern", "    approve: ask\n", &turn(&[("job", "")]));
    assert_eq!(server.run().code, 101);
    assert_eq!(server.noted("calls").len(), 0);
    let approve = ["approve", "r", "-w", "work"];
    let mut run = server.sandbox.delta(approve).spawn();
    server.until_noted("gets", "task 1");
    run.kill().unwrap();
    run.wait().unwrap();
    server.release();
    let ran = server.resume();
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(server.noted("calls"), ["job"]);
    assert!(server.sandbox.observations()[0].ends_with("result of task 1\n"));
}

#[test]
fn c_30_1_a_replay_verifies_without_a_server() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let server = Server::locked("", "", &turn(&[("echo", "text: a"), ("die", ""), ("count", "")]));
    server.run().expect_code(0);
    let starts = server.noted("starts").len();
    std::fs::remove_dir_all(server.sandbox.path("agent")).unwrap();
    let ran = server.sandbox.delta(["replay", "r", "-w", "work"]).output();
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("3 calls"), "{}", ran.stdout);
    assert_eq!(server.noted("starts").len(), starts);
}

#[test]
fn c_30_1_a_replay_of_the_tools_calls_the_server_again() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let server = Server::locked("", "", &turn(&[("echo", "text: a")]));
    server.run().expect_code(0);
    let tools = ["replay", "r", "-w", "work", "--mode", "tools", "--into", "fresh"];
    let ran = server.sandbox.delta(tools).output();
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    assert_eq!(server.noted("calls"), ["echo", "echo"]);
    server.expect_ended();
}

#[test]
fn c_30_1_a_test_of_an_agent_calls_the_server() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let server = Server::locked("", "", "");
    let call = "{call: [{tool: s__echo, args: {text: a}}]}";
    server.sandbox.write(
        "agent/tests/real.yaml",
        format!(
            "task: go\nllm: {{turns: [{call}, {{say: '${{last}}'}}]}}\nexpect: {{result: a}}\n"
        ),
    );
    server.sandbox.delta(["test", "agent"]).output().expect_code(0);
    assert_eq!(server.noted("calls"), ["echo"]);
    server.expect_ended();
}

#[test]
fn c_30_1_a_limit_of_tokens_ends_the_server_with_the_run() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let limits = "limits: {max_tokens: 1}\n";
    let server = Server::locked("", limits, &turn(&[("echo", "text: a")]));
    let starts = server.noted("starts").len();
    let ran = server.run();
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert_eq!(server.noted("starts").len(), starts, "nothing starts beyond a limit");
    server.expect_ended();
}

#[test]
fn c_30_1_expand_shows_what_servers_and_skills_bring() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let keys = "    tools: [echo, odd.name]\nskills: [skills]\n";
    let server = Server::unlocked("", keys, "");
    server.sandbox.write(
        "agent/skills/hello/SKILL.md",
        "---\nname: hello\ndescription: Says hello.\n---\nHello.\n",
    );
    let expand = || server.sandbox.delta(["tool", "expand", "agent"]).output();
    let ran = expand();
    assert!(ran.code == 126 && ran.stderr.contains("is not locked"), "{ran:?}");
    server.sandbox.delta(["mcp", "lock", "--agent", "agent", "--write"]).output().expect_code(0);
    let starts = server.noted("starts").len();
    let ran = expand().expect_code(0);
    let agent = server.sandbox.read("agent/agent.yaml");
    let comment = "\
# MCP servers and skills bring:
#   - name: s__echo
#     command: [\"delta\", \"mcp\", \"call\", \"s\", \"echo\"]    # its arguments are on stdin
#   - name: odd
#     command: [\"delta\", \"mcp\", \"call\", \"s\", \"odd.name\"]    # its arguments are on stdin
#   - name: skill
#     command: [\"delta\", \"skill\", \"show\", \"--in\", \"${AGENT_HOME}/skills\", \"--\", {template: \"${name}\"}]
";
    assert_eq!(ran.stdout, format!("{agent}{comment}"));
    assert_eq!(server.noted("starts").len(), starts, "expanding starts nothing");
    // What is printed is the same agent.
    server.sandbox.write("agent/agent.yaml", &ran.stdout);
    assert_eq!(expand().stdout, format!("{}{}", ran.stdout, comment_of(&ran.stdout)));
    server.run().expect_code(0);
    let tools = &server.sandbox.events("ENGINE_START")[0]["config"]["tools"];
    assert_eq!(*tools, json!(["s__echo", "odd", "skill"]));
}

fn comment_of(text: &str) -> &str {
    &text[text.find("# MCP servers").unwrap()..]
}

/// While a server lives, the engine has a child in every call; what a call leaves running must be found nevertheless.
#[test]
fn c_13_5_what_a_call_leaves_running_ends_while_a_server_lives() {
    if !needs::programs(&["python3"]) {
        return;
    }
    let tools = "tools:\n  - {name: leave, shell: 'sleep 1000 & setsid sleep 1001 & echo left'}\n  \
        - {name: keep, shell: 'sleep 1002 & echo kept', background: run}\n";
    let calls = "- call: [{tool: leave}, {tool: keep}, {tool: leave}]";
    let turns = format!("{}\n{calls}\n{}", turn(&[("count", "")]), turn(&[("count", "")]));
    let server = Server::locked("", tools, &turns);
    server.run().expect_code(0);
    let results = server.sandbox.events("ACTION_RESULT");
    let mut ended: Vec<&str> = results[1]["ended_background"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|it| it.as_str())
        .collect();
    ended.sort_unstable();
    assert_eq!(ended, ["sleep 1000", "sleep 1001"]);
    assert_eq!(results[3]["ended_background"].as_array().map(Vec::len), Some(2));
    for quiet in [0, 2, 4] {
        assert!(results[quiet].get("ended_background").is_none(), "{}", results[quiet]);
    }
    assert_eq!(server.sandbox.observations()[4], "2\n", "the server lived on");
    server.until_nothing_runs();
}
