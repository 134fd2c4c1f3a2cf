//! The service tier of the runs of a sweep.

use super::{DELTA, sweep, write_sweep};
use serde_json::{Value, json};
use test_support::sandbox::Sandbox;
use test_support::server::{Answer, ScriptedServer};

#[test]
fn c_35_12_the_runs_of_a_sweep_ask_in_the_tier_of_the_file_or_of_the_command() {
    let server = ScriptedServer::start(vec![Answer::text("done"), Answer::text("done")]);
    let sandbox = Sandbox::asking(DELTA, &server.url(), "");
    write_sweep(&sandbox, 1, 1, "tier: flex-or-direct\n");
    sweep(&sandbox, &["plan", "sweep.yaml"]).expect_code(0);
    let header = sandbox.read("s/plan.jsonl");
    let header: Value = serde_json::from_str(header.lines().next().unwrap()).unwrap();
    assert_eq!(header["tier"], "flex-or-direct");
    sweep(&sandbox, &["run", "s"]).expect_code(0);
    // Another tier makes no other run of an input.
    write_sweep(&sandbox, 2, 1, "tier: flex\n");
    sweep(&sandbox, &["plan", "sweep.yaml"]).expect_code(0);
    sweep(&sandbox, &["run", "s", "--tier", "direct"]).expect_code(0);
    let requests = server.requests();
    let asked: Vec<_> = requests.iter().map(|it| it.body["service_tier"].clone()).collect();
    assert_eq!(asked, [json!("flex"), Value::Null]);
    write_sweep(&sandbox, 1, 1, "tier: fast\n");
    let refused = sweep(&sandbox, &["plan", "sweep.yaml"]).expect_code(126);
    assert!(refused.stderr.contains("`flex-or-direct`"), "{}", refused.stderr);
}
