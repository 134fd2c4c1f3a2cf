//! Power losses while commands outlive their engine.

use crate::recorder::{Lease, Recorder, judge_power_losses, succeed};
use crate::verdicts::finish_and_check;
use crate::workloads::{agent_with_tools, calls, last_answer};
use crate::{CONTINUE, RUN};
use test_support::needs;
use test_support::sandbox::Sandbox;
use test_support::wait::until;

/// `last` notes its text; `leave` kills its engine, and ends after that.
const TOOLS: &str = "tools:\n  \
     - name: last\n    shell: echo ${text} >> ROOT/witness/ledger; echo noted ${text}\n    survive: true\n  \
     - name: leave\n    shell: echo leave >> ROOT/witness/ledger; kill -9 $(jq .pid $RUN_DIR/metadata.json); echo noted leave\n    survive: true\n";

fn lasting_agent(second: (&str, &str)) -> Sandbox {
    let answers = [
        calls(0, &[("last", "a"), ("last", "b")]),
        calls(1, &[second, ("last", "c")]),
        last_answer(),
    ];
    agent_with_tools(TOOLS, &answers)
}

/// The run comes to its end, and each call has the whole output of its command, or reports that its outcome is unknown.
fn check_lasting(sandbox: &Sandbox) {
    finish_and_check(sandbox);
    for result in sandbox.events("ACTION_RESULT") {
        let observation = result["observation_content"].as_str().unwrap();
        let mut requests = sandbox.events("ACTION_REQUEST").into_iter();
        let request = requests.find(|request| request["call_id"] == result["call_id"]).unwrap();
        let text = request["tool_args"]["text"].as_str().unwrap_or("leave");
        let is_whole = observation == format!("noted {text}\n");
        assert!(is_whole || observation.contains("unknown"), "{text}: {observation:?}");
    }
}

#[test]
fn c_27_3_a_power_loss_around_lasting_commands_runs_none_twice() {
    let make = || Some(lasting_agent(("last", "d")));
    judge_power_losses(Lease::Flock, make, succeed(&RUN), check_lasting);
}

#[test]
fn c_27_3_a_power_loss_after_the_end_of_an_engine_runs_no_lasting_command_twice() {
    let record = |recorder: &Recorder| {
        assert_eq!(recorder.run(&RUN).code, -1);
        recorder.run(&CONTINUE).expect_code(0);
    };
    let make = || Some(lasting_agent(("leave", "")));
    judge_power_losses(Lease::Flock, make, record, check_lasting);
}

/// What a power loss can leave: how the command ended, without what it has printed. None of that is synced.
#[test]
fn c_27_3_an_output_that_a_power_loss_has_cut_is_not_the_output_of_its_call() {
    if !needs::programs(&["jq"]) {
        return;
    }
    let sandbox = lasting_agent(("leave", ""));
    sandbox.write("witness/ledger", "");
    assert_eq!(sandbox.run("go", &["-q"]).code, -1);
    let call = "work/.delta/r/surviving/call-1-0";
    until("the end of the command", || {
        let end = std::fs::read_to_string(sandbox.path(&format!("{call}/result.json"))).ok()?;
        end.contains("exited").then_some(())
    });
    sandbox.write(&format!("{call}/stdout"), "");
    sandbox.delta(CONTINUE).output().expect_code(0);
    let observations = sandbox.observations();
    assert!(observations[2].contains("unknown"), "{observations:?}");
    assert_eq!(sandbox.read("witness/ledger").matches("leave").count(), 1);
}
