//! Power losses while a call is a task of an MCP server.

use crate::RUN;
use crate::recorder::{Lease, judge_power_losses, succeed};
use crate::verdicts::finish_and_check;
use crate::workloads::{agent_with_tools, calls, last_answer};
use std::path::Path;
use test_support::needs;
use test_support::sandbox::Sandbox;

/// What the server has been asked, in files that no power loss concerns; what takes long ends at once.
const SERVER_FILES: [&str; 7] =
    ["calls", "tasks", "gets", "starts", "notifications", "ends", "release"];

/// An agent that calls a tool of a server twice, each call of which becomes a task.
fn task_agent() -> Sandbox {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp/server.py");
    let settings = format!(
        "mcp:\n  s:\n    command: [python3, -IS, {}, ROOT/witness, modern]\n    tools: [job]\n",
        script.display()
    );
    let answers = [calls(0, &[("s__job", "")]), calls(1, &[("s__job", "")]), last_answer()];
    let sandbox = agent_with_tools(&settings, &answers);
    sandbox.write("work/.keep", "");
    for file in SERVER_FILES {
        sandbox.write(&format!("witness/{file}"), "");
    }
    let lock = sandbox.delta(["mcp", "lock", "--write", "--agent", "../agent"]);
    lock.cwd(sandbox.path("work")).output().expect_code(0);
    sandbox
}

fn lines(sandbox: &Sandbox, file: &str) -> Vec<String> {
    sandbox.read(&format!("witness/{file}")).lines().map(str::to_owned).collect()
}

/// The run comes to its end; no call is sent twice, and a task that was asked for has its result.
fn check_tasks(sandbox: &Sandbox) {
    // The client writes its record of a task before it asks for it.
    let recorded = lines(sandbox, "gets");
    finish_and_check(sandbox);
    let observations = sandbox.observations();
    let sent = lines(sandbox, "calls").len();
    assert!(sent <= 2, "{sent} calls were sent: {observations:?}");
    for task in recorded {
        let has_result = observations.iter().any(|text| text.contains(&format!("of {task}")));
        assert!(has_result, "the result of {task} is lost: {observations:?}");
    }
    for observation in &observations {
        let reports = ["of task ", "unknown", "was not sent"];
        assert!(reports.iter().any(|text| observation.contains(text)), "{observation}");
    }
    let unknown = observations.iter().filter(|text| !text.contains("of task ")).count();
    assert!(sent + unknown >= 2, "a call was not sent: {observations:?}");
}

#[test]
fn c_30_15_a_power_loss_around_a_task_of_a_server_calls_nothing_twice() {
    if !needs::programs(&["python3"]) {
        return;
    }
    judge_power_losses(Lease::Flock, || Some(task_agent()), succeed(&RUN), check_tasks);
}
