//! Agents and runs for power losses: their tools and their LLM report to files that no power loss concerns.

use crate::DELTA;
use serde_json::{Value, json};
use test_support::needs;
use test_support::sandbox::Sandbox;

pub const FORK: [&str; 9] =
    ["fork", "r", "-w", "work", "--at", "1", "--run-id", "f", "--into=work"];
pub const FORK_INTO: [&str; 9] =
    ["fork", "r", "-w", "work", "--at", "1", "--run-id", "f", "--into=copy/of/work"];
pub const ROLLBACK: [&str; 6] = ["rollback", "r", "-w", "work", "--to", "0"];
pub const APPLY: [&str; 4] = ["apply", "r", "-w", "work"];
pub const DISCARD: [&str; 4] = ["discard", "r", "-w", "work"];
pub const PACK: [&str; 5] = ["pack", "r", "-w", "work", "-q"];
pub const ADD: [&str; 2] = ["add", "--update"];
pub const UNPACK: [&str; 5] = ["unpack", "r", "-w", "work", "-q"];

/// The tools: `note` has an effect, `careful` one that has to be approved, `big` prints more than an observation has, `picture` an image, `die` kills the engine,
/// `inner` is a run of another agent.
const TOOLS: &str = "  - name: note\n    shell: echo ${text} >> ROOT/witness/ledger; echo ${text} >> notes; echo noted ${text}\n  \
     - name: big\n    shell: echo big >> ROOT/witness/ledger; seq 1 20000\n  \
     - name: picture\n    shell: echo picture >> ROOT/witness/ledger; cat ROOT/agent/dot.gif\n    output: image\n  \
     - name: careful\n    shell: echo careful >> ROOT/witness/ledger\n    approve: ask\n  \
     - name: die\n    shell: echo die >> ROOT/witness/ledger; kill -9 $PPID; exec sleep 60\n  \
     - name: change\n    shell: rm -r old; echo 2 > changed; mkdir -p new/deep; echo n > new/deep/n; ln -s deep/n new/link\n  \
     - name: inner\n    exec: 'DELTA run --agent ROOT/inner -w ROOT/work -q -m go'\n";

/// The LLM: a program that reports each request with the number of answers in it, and answers from a file.
const LLM: &str = "#!/bin/sh\n\
     number=$(jq '[.messages[] | select(.role == \"assistant\")] | length')\n\
     echo \"AGENT $number\" >> ROOT/witness/requests\n\
     cat ROOT/AGENT/answers/$number.json\n";

fn fill(text: &str, sandbox: &Sandbox, agent: &str) -> String {
    let root = sandbox.path("").display().to_string();
    let root = root.trim_end_matches('/');
    text.replace("ROOT", root).replace("DELTA ", &format!("{DELTA} ")).replace("AGENT", agent)
}

/// Writes an agent whose LLM gives these answers; `settings` ends with the key of its tools.
fn write_agent(sandbox: &Sandbox, agent: &str, settings: &str, answers: &[Value]) {
    for file in ["system_prompt.md", "context.yaml"] {
        let text = sandbox.read(&format!("agent/{file}"));
        sandbox.write(&format!("{agent}/{file}"), text);
    }
    sandbox.write(&format!("{agent}/llm.sh"), fill(LLM, sandbox, agent));
    let text = format!(
        "name: {agent}\nllm:\n  provider: command\n  model: scripted\n  \
         command: [sh, ROOT/AGENT/llm.sh]\n{settings}"
    );
    sandbox.write(&format!("{agent}/agent.yaml"), fill(&text, sandbox, agent));
    for (number, message) in answers.iter().enumerate() {
        let answer = json!({"choices": [{"message": message}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5}});
        sandbox.write(&format!("{agent}/answers/{number}.json"), answer.to_string());
    }
}

/// An answer with calls, each the name of a tool and its argument.
pub fn calls(number: usize, calls: &[(&str, &str)]) -> Value {
    let call = |(index, (tool, text)): (usize, &(&str, &str))| {
        let arguments = match *tool {
            "note" | "last" => json!({"text": text}),
            "ask_human" => json!({"prompt": text}),
            _ => json!({}),
        };
        json!({"id": format!("call-{number}-{index}"), "type": "function",
            "function": {"name": tool, "arguments": arguments.to_string()}})
    };
    let calls: Vec<Value> = calls.iter().enumerate().map(call).collect();
    json!({"role": "assistant", "content": "working", "tool_calls": calls})
}

pub fn last_answer() -> Value {
    json!({"role": "assistant", "content": "all done"})
}

fn agent_with(settings: &str, answers: &[Value]) -> Sandbox {
    agent_with_tools(&format!("{settings}tools:\n{TOOLS}"), answers)
}

/// An agent with the tools in `settings`.
pub fn agent_with_tools(settings: &str, answers: &[Value]) -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    write_agent(&sandbox, "agent", settings, answers);
    sandbox.write("agent/dot.gif", b"GIF89a\x02\0\x03\0;");
    sandbox
}

/// An agent that is installed, and has changed where it comes from.
pub fn changed_source() -> Sandbox {
    let sandbox = agent_with_tools("", &[last_answer()]);
    let look = sandbox.delta(["add", "agent"]).output().expect_code(3);
    let (_, tree) = look.stderr.split_once("--tree ").unwrap();
    sandbox.delta(["add", "agent", "--tree", &tree[..64]]).output().expect_code(0);
    sandbox.write("agent/system_prompt.md", "Work more.\n");
    sandbox
}

/// The files of a workspace that exists before its first run.
pub fn write_workspace(sandbox: &Sandbox) {
    sandbox.write("work/old/file", "old\n");
    sandbox.write("work/changed", "1\n");
}

/// Notes, a large output, an image, snapshots and limits.
pub fn working_agent() -> Sandbox {
    let sandbox = agent_with(
        "snapshots: true\nlimits: {max_tokens: 1M}\n",
        &[
            calls(0, &[("note", "a"), ("note", "b")]),
            calls(1, &[("big", ""), ("picture", ""), ("nothing", "")]),
            calls(2, &[("change", ""), ("note", "c")]),
            last_answer(),
        ],
    );
    write_workspace(&sandbox);
    sandbox
}

/// The engine is killed in the second answer.
pub fn killed_agent() -> Sandbox {
    agent_with(
        "",
        &[
            calls(0, &[("note", "a")]),
            calls(1, &[("note", "b"), ("die", ""), ("note", "c")]),
            last_answer(),
        ],
    )
}

/// A run on an ordinary file system whose engine was killed in the first answer; with messages it has up to three more.
pub fn killed_before_messages() -> Sandbox {
    let answers = [calls(0, &[("die", "")]), last_answer(), last_answer(), last_answer()];
    let sandbox = agent_with("", &answers);
    sandbox.write("witness/ledger", "");
    sandbox.run("go", &[]).expect_code(-1);
    sandbox
}

/// Two questions and a call that has to be approved, between notes.
pub fn asking_agent() -> Sandbox {
    let answers = [
        calls(0, &[("note", "a"), ("ask_human", "Really?"), ("note", "b")]),
        calls(1, &[("ask_human", "Sure?"), ("careful", ""), ("note", "c")]),
        last_answer(),
    ];
    agent_with("", &answers)
}

/// A call that is a run.
pub fn nesting_agent() -> Sandbox {
    let answers = [calls(0, &[("note", "a"), ("inner", ""), ("note", "b")]), last_answer()];
    let sandbox = agent_with("limits: {max_tokens: 1M}\n", &answers);
    write_agent(
        &sandbox,
        "inner",
        &format!("tools:\n{TOOLS}"),
        &[calls(0, &[("note", "c")]), last_answer()],
    );
    sandbox
}

/// A run that has ended, on an ordinary file system.
pub fn ended_run() -> Sandbox {
    let sandbox = working_agent();
    sandbox.write("witness/ledger", "");
    sandbox.run("go", &[]).expect_code(0);
    sandbox
}

/// A staged run that has ended; `None` if this machine refuses stages.
pub fn staged_run() -> Option<Sandbox> {
    let sandbox = agent_with("", &[calls(0, &[("change", "")]), last_answer()]);
    write_workspace(&sandbox);
    sandbox.write("witness/ledger", "");
    let ran = sandbox.run("go", &["--stage"]);
    if ran.code == 126 {
        needs::skip(&ran.stderr);
        return None;
    }
    ran.expect_code(0);
    Some(sandbox)
}
