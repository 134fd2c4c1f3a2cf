//! What a second run of an agent reads from the cache that the first one has filled.

use super::{DELTA, agent_of};
use serde_json::Value;
use test_support::prompt_cache::{PromptCache, cache_blocks};
use test_support::sandbox::{Delta, Sandbox};
use test_support::server::{Answer, RecordedRequest, ScriptedServer};

/// An endpoint with this cache, which ends each run at once.
fn ending(cache: PromptCache) -> ScriptedServer {
    cache.serve(|_| Answer::text("done"))
}

/// The tokens of a request before its second system block.
fn tokens_of_tools_and_prompt(request: &RecordedRequest) -> u64 {
    let count = request.body["tools"].as_array().map_or(0, Vec::len) + 1;
    let blocks = cache_blocks(&request.body);
    blocks[..count].iter().map(|(text, _)| text.len()).sum::<usize>() as u64 / 4
}

fn asking(command: Delta, server: &ScriptedServer) -> Delta {
    command.env("ANTHROPIC_API_KEY", "k").env("ANTHROPIC_BASE_URL", server.root_url())
}

/// What run `r` in `workspace` read from the cache.
fn read_tokens(sandbox: &Sandbox, workspace: &str) -> u64 {
    let journal = sandbox.read(&format!("{workspace}/.delta/r/journal.jsonl"));
    let mut events = journal.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let thought = events.find(|event| event["type"] == "THOUGHT").unwrap();
    thought["usage"]["cached_input_tokens"].as_u64().unwrap()
}

/// Two runs of each agent: where the workspaces differ, and nowhere else.
#[test]
fn c_35_15_a_second_run_reads_the_constant_prefix() {
    for (template, min_tokens) in [(None, 512), (Some("coding"), 512), (Some("api-tester"), 64)] {
        let server = ending(PromptCache::new(min_tokens, 200));
        let sandbox = Sandbox::new(DELTA);
        if let Some(template) = template {
            sandbox.delta(["init", "-t", template, "agent-of-init"]).output().expect_code(0);
        }
        sandbox.write("two/AGENTS.md", "Be brief.\n");
        sandbox.write("two/DELTA.md", "Be brief.\n");
        for (workspace, task) in [("one", "Look around"), ("two", "Look again")] {
            sandbox.write(&format!("{workspace}/a.txt"), "a\n");
            let fixed = ["run", "--run-id", "r", "-q", "--model", "anthropic:test-model", task];
            let agent = template.map(|_| ["--agent", "../agent-of-init", "-w", "."]);
            let args = fixed.into_iter().chain(agent.into_iter().flatten());
            let command = sandbox.delta(args).cwd(sandbox.path(workspace));
            asking(command, &server).output().expect_code(0);
        }
        let requests = server.requests();
        let constant = tokens_of_tools_and_prompt(&requests[0]);
        assert_eq!(constant, tokens_of_tools_and_prompt(&requests[1]), "{template:?}");
        assert!(constant >= min_tokens as u64, "{template:?}: {constant}");
        assert_eq!(read_tokens(&sandbox, "one"), 0, "{template:?}");
        assert_eq!(read_tokens(&sandbox, "two"), constant, "{template:?}");
        assert_eq!(server.violations(), Vec::<String>::new());
    }
}

#[test]
fn c_35_15_an_entry_is_read_while_the_endpoint_keeps_it() {
    for (pause_s, min_tokens, is_read) in [(200, 64, true), (400, 64, false), (200, 4096, false)] {
        let server = ending(PromptCache::new(min_tokens, pause_s));
        let sandbox = agent_of("anthropic", &server, "");
        let prompt = "Keep to the facts. ".repeat(40);
        sandbox.write("agent/system_prompt.md", prompt);
        for workspace in ["one", "two"] {
            let args =
                ["run", "--agent", "agent", "-w", workspace, "--run-id", "r", "-m", workspace];
            asking(sandbox.delta(args), &server).output().expect_code(0);
        }
        let read = read_tokens(&sandbox, "two");
        let constant = tokens_of_tools_and_prompt(&server.requests()[1]);
        assert_eq!(read, if is_read { constant } else { 0 }, "{pause_s} {min_tokens}");
    }
}

/// A run of one request writes nothing that only a later request of the run could read.
#[test]
fn c_35_16_the_only_request_of_a_run_marks_the_constant_prefix_and_nothing_else() {
    let context = "\
sources:
  - {type: file, path: '${AGENT_HOME}/system_prompt.md'}
  - {type: file, path: '${CWD}/DELTA.md', on_missing: skip}
  - {type: file, path: '${AGENT_HOME}/hint.md'}
  - {type: journal}
";
    for (llm, is_marked) in [("", true), ("\n  cache: off", false)] {
        let server = ending(PromptCache::new(64, 1));
        let sandbox = agent_of("anthropic", &server, llm);
        sandbox.write("agent/context.yaml", context);
        sandbox.write("agent/hint.md", "Look twice.");
        sandbox.write("work/DELTA.md", "Be brief.");
        let command = sandbox.run_command("task", &["--max-iterations", "1"]);
        asking(command, &server).output().expect_code(0);
        let blocks = cache_blocks(&server.requests()[0].body);
        let marked: Vec<bool> = blocks.iter().rev().map(|(_, is_marked)| *is_marked).collect();
        // From the end: the task, the hint, DELTA.md, the system prompt, and the tools.
        assert_eq!(marked, [false, false, false, is_marked, false, false, false], "{llm}");
    }
}

/// A hook that replaces what runs share ends the shared prefix where it does.
#[test]
fn c_35_15_a_hook_that_replaces_the_system_prompt_ends_the_prefix() {
    let shout = |index: &str| format!(".messages[{index}].content += \"!\"");
    for (change, is_marked) in [(shout("0"), false), (shout("-1"), true)] {
        let server = ending(PromptCache::new(64, 1));
        let sandbox = agent_of("anthropic", &server, "");
        let hook = format!(
            "pre_llm_request: {{command: [jq, -c, '{{request: (.request | {change})}}']}}\n"
        );
        sandbox.write("agent/hooks.yaml", hook);
        let command = sandbox.run_command("task", &["--max-iterations", "1"]);
        asking(command, &server).output().expect_code(0);
        let blocks = cache_blocks(&server.requests()[0].body);
        // The system prompt is before the task.
        assert_eq!(blocks[blocks.len() - 2].1, is_marked, "{change}: {blocks:?}");
    }
}
