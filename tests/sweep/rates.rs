//! The rate of LLM calls of a host, against an endpoint that throttles.

use super::{DELTA, result_lines, sweep, write_sweep};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use test_support::sandbox::Sandbox;
use test_support::server::{Answer, RecordedRequest, ScriptedServer};

fn asking(server: &ScriptedServer) -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    sandbox.agent(&format!("model: test-model\n  base_url: {}", server.url()), "");
    sandbox
}

fn rate_state(sandbox: &Sandbox) -> Value {
    let host = &sandbox.files("s/rate")[0];
    let host = host.split('/').next().unwrap();
    serde_json::from_str(&sandbox.read(&format!("s/rate/{host}/state.json"))).unwrap()
}

#[test]
fn c_26_9_an_endpoint_that_throttles_gets_fewer_calls_and_no_run_fails() {
    // The first four calls are refused.
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let server = ScriptedServer::start(move |_: &RecordedRequest| {
        match counted.fetch_add(1, Ordering::SeqCst) {
            0..4 => Answer::error(429, "slow down", None).header("retry-after-ms", "50"),
            _ => Answer::text("done"),
        }
    });
    let sandbox = asking(&server);
    write_sweep(&sandbox, 12, 1, "rate: {concurrent: 8}\nrun: {max_duration: 5m}\n");
    sweep(&sandbox, &["plan"]).expect_code(0);
    sweep(&sandbox, &["run", "s", "-q"]).expect_code(0);
    let lines = result_lines(&sandbox);
    assert!(lines.iter().all(|line| line["status"] == "COMPLETED"), "{lines:?}");
    assert_eq!(count.load(Ordering::SeqCst), 16);
    // Halved once: the refusals came within a second.
    let slots = rate_state(&sandbox)["slots"].as_u64().unwrap();
    assert!((4..=6).contains(&slots), "{slots}");
    // Another rate begins anew.
    write_sweep(&sandbox, 13, 1, "rate: {concurrent: 3}\n");
    sweep(&sandbox, &["plan"]).expect_code(0);
    sweep(&sandbox, &["run", "s", "-q"]).expect_code(0);
    assert_eq!(rate_state(&sandbox)["slots"], 3);
}

#[test]
fn c_26_9_no_more_calls_run_at_a_time_than_there_are_slots() {
    let (active, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let server = {
        let most = Arc::clone(&most);
        ScriptedServer::start(move |_: &RecordedRequest| {
            most.fetch_max(active.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            active.fetch_sub(1, Ordering::SeqCst);
            Answer::text("done")
        })
    };
    let sandbox = asking(&server);
    write_sweep(&sandbox, 12, 1, "rate: {concurrent: 2}\n");
    sweep(&sandbox, &["plan"]).expect_code(0);
    sweep(&sandbox, &["run", "s", "--jobs", "6", "-q"]).expect_code(0);
    assert!(result_lines(&sandbox).iter().all(|line| line["status"] == "COMPLETED"));
    let slots = rate_state(&sandbox)["slots"].as_u64().unwrap();
    assert!((2..=3).contains(&slots), "calls that wait make slots, one after ten: {slots}");
    let host = sandbox.files("s/rate")[0].split('/').next().unwrap().to_owned();
    let files = sandbox.files(&format!("s/rate/{host}"));
    let used = files.iter().filter(|name| name.starts_with("slot-")).count() as u64;
    assert!(used <= slots, "{files:?}");
    assert!(most.load(Ordering::SeqCst) <= 3);
}

#[test]
fn c_26_9_a_share_of_a_rate_spaces_calls() {
    let server = ScriptedServer::start(|_: &RecordedRequest| Answer::text("done"));
    let sandbox = asking(&server);
    write_sweep(&sandbox, 5, 1, "");
    sweep(&sandbox, &["plan"]).expect_code(0);
    sweep(&sandbox, &["run", "s", "--rate", "fast"]).expect_code(2);
    sweep(&sandbox, &["run", "s", "--hosts", "2"]).expect_code(2);
    let began = std::time::Instant::now();
    // Half of 20 a second: one call in 100 ms.
    sweep(&sandbox, &["run", "s", "--rate", "20/s", "--hosts", "2", "-q"]).expect_code(0);
    assert!(began.elapsed().as_millis() >= 400);
    assert_eq!(server.requests().len(), 5);
    assert_eq!(rate_state(&sandbox)["settings"]["interval_ms"], 100);
}

#[test]
fn c_26_9_a_wait_for_a_slot_is_no_time_of_the_run() {
    // Two writes with a pause between them; six answers take longer than the limit of one run.
    let server = ScriptedServer::start(|_: &RecordedRequest| {
        Answer::text("done").in_pieces(100).every(Duration::from_millis(100))
    });
    let sandbox = asking(&server);
    write_sweep(&sandbox, 6, 1, "rate: {concurrent: 1}\nrun: {max_duration: 2s}\n");
    sweep(&sandbox, &["plan"]).expect_code(0);
    sweep(&sandbox, &["run", "s", "--jobs", "6", "-q"]).expect_code(0);
    let lines = result_lines(&sandbox);
    assert!(lines.iter().all(|line| line["status"] == "COMPLETED"), "{lines:?}");
    let sum = |key: &str| lines.iter().filter_map(|line| line[key].as_u64()).sum::<u64>();
    let work = sum("duration_ms") - sum("throttled_ms");
    // Each run but the first waits for all before it.
    assert!(sum("throttled_ms") > work, "{lines:?}");
    assert!(lines.iter().any(|line| line["duration_ms"].as_u64() > Some(2000)), "{lines:?}");
    // What it starts afterwards has as much time: the ledger has the later deadline.
    let waited = lines.iter().filter(|line| line["throttled_ms"].as_u64() > Some(100));
    for id in waited.map(|line| line["id"].as_str().unwrap()) {
        let shard = &id.rsplit('.').next().unwrap()[..2];
        let ledger = sandbox.read(&format!("s/runs/{shard}/{id}/.delta/{id}/budget.jsonl"));
        let entries = ledger.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let deadlines: Vec<i64> =
            entries.filter_map(|entry| entry["deadline_unix"].as_i64()).collect();
        assert!(deadlines.last() > deadlines.first(), "{ledger}");
    }
}
