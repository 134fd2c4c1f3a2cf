//! `delta sweep gate`, killed at each of its durable operations: plans, result lines and grades are among them.

use super::*;

/// A base and a change that fails on one of two inputs.
fn gated() -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    sandbox.agent("provider: script\n  model: script.yaml", "");
    for file in sandbox.files("agent") {
        sandbox.write(&format!("old/{file}"), sandbox.read(&format!("agent/{file}")));
    }
    sandbox.write("old/script.yaml", "turns:\n  - say: did it\n");
    sandbox.write("agent/script.yaml", "turns:\n  - {when: t1, say: wrong}\n  - say: did it\n");
    // The processes of the runs have no fault, and do not count.
    let text = "name: s\nagents: [agent]\ntask: '${input.id}'\ninputs: [{id: t0}, {id: t1}]\n\
                repeats: 1\ngrade: [{name: right, expect: {result: {contains: did}}}]\n\
                env: {DELTA_FAILPOINT: '', DELTA_FAILPOINT_COUNT: /dev/null}\n";
    sandbox.write("sweep.yaml", text);
    sandbox
}

fn gate(sandbox: &Sandbox) -> Delta {
    let gate = ["sweep", "gate", "--against", "old", "--jobs", "1", "--format", "json"];
    sandbox.delta(gate)
}

/// The verdict, without which process made the runs.
fn verdict(ran: Ran) -> Value {
    let mut verdict = ran.expect_code(3).json();
    verdict["runs"].take();
    verdict
}

#[test]
fn c_34_2_a_gate_that_is_killed_anywhere_reaches_the_same_verdict() {
    let whole = gated();
    let count_file = whole.path("count");
    let expected = verdict(gate(&whole).env("DELTA_FAILPOINT_COUNT", &count_file).output());
    assert_eq!(
        (&expected["difference"], &expected["verdict"]),
        (&(-0.5).into(), &"INCONCLUSIVE".into())
    );
    let count = fs::read(count_file).unwrap().len();
    assert!(count > 20, "only {count} operations");
    println!("abort in gate: {count} operations");
    each((1..=count).collect(), |number| {
        let sandbox = gated();
        let killed = gate(&sandbox).env("DELTA_FAILPOINT", format!("abort:{number}")).output();
        assert_eq!(killed.stdout, "", "a verdict is printed when all is done");
        assert_eq!(verdict(gate(&sandbox).output()), expected, "abort:{number}");
        // C-34.9: no run is planned or made twice.
        let ids: Vec<String> = sandbox
            .files("s/runs")
            .into_iter()
            .filter(|name| name.ends_with("/journal.jsonl"))
            .collect();
        assert_eq!(ids.len(), 4, "{ids:?}");
        for journal in ids {
            let text = sandbox.read(&format!("s/runs/{journal}"));
            assert_eq!(text.matches("\"THOUGHT\"").count(), 1, "abort:{number}: {text}");
        }
    });
}
