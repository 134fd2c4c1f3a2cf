//! What runs cost: the sums of a sweep, and the causes of what was paid for again, against an endpoint that caches.

use super::{DELTA, result_lines, write_sweep};
use serde_json::{Value, json};
use std::fs;
use test_support::prompt_cache::{PromptCache, cache_blocks};
use test_support::sandbox::{Ran, Sandbox};
use test_support::server::{Answer, RecordedRequest, ScriptedServer};

const ECHO: &str = "  - name: echo\n    exec: echo ${text}\n";

/// An endpoint with a cache of 1,024 tokens at least, for runs of so many answers.
fn serve(answers: usize, pause_s: u64) -> ScriptedServer {
    PromptCache::new(1024, pause_s).serve(move |request: &RecordedRequest| {
        let messages = request.body["messages"].as_array().unwrap();
        match messages.iter().filter(|message| message["role"] == "assistant").count() {
            earlier if earlier + 1 < answers => {
                Answer::call("echo", json!({"text": "look ".repeat(800)}))
            }
            _ => Answer::text("done"),
        }
    })
}

/// An agent of that endpoint, with a long system prompt and more lines of `llm`.
fn agent_of(server: &ScriptedServer, llm: &str) -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    let url = server.root_url();
    let pricing = "pricing: {input: 4, cached_input: 0.4, cache_write: 5, output: 20}";
    let llm =
        format!("provider: anthropic\n  model: test-model\n  base_url: {url}\n  {pricing}{llm}");
    sandbox.agent(&llm, ECHO);
    sandbox.write("agent/system_prompt.md", "Keep to the facts. ".repeat(400));
    sandbox
}

fn delta(sandbox: &Sandbox, args: &[&str]) -> Ran {
    sandbox.delta(args.iter().copied()).env("ANTHROPIC_API_KEY", "k").output()
}

fn run(sandbox: &Sandbox, id: &str, more: &[&str]) {
    let fixed = ["run", "--agent", "agent", "-w", "work", "--run-id", id, "-q", "-m", id];
    delta(sandbox, &[&fixed, more].concat()).expect_code(0);
}

/// The only cause of the runs in `work`.
fn only_cause(sandbox: &Sandbox) -> Value {
    let report = delta(sandbox, &["context", "cost", "work", "--format", "json"]);
    let report = report.expect_code(0).json();
    assert_eq!(report["causes"].as_array().unwrap().len(), 1, "{report}");
    report["causes"][0].clone()
}

fn is_near(one: &Value, other: f64) -> bool {
    (one.as_f64().unwrap() - other).abs() < 1e-9
}

/// The usage of each answer of run `id`.
fn usages(sandbox: &Sandbox, id: &str) -> Vec<Value> {
    let journal = sandbox.read(&format!("work/.delta/{id}/journal.jsonl"));
    let events = journal.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let thoughts = events.filter(|event| event["type"] == "THOUGHT");
    thoughts.map(|thought| thought["usage"].clone()).collect()
}

fn tokens(usage: &Value, name: &str) -> f64 {
    usage[name].as_f64().unwrap_or(0.0)
}

#[test]
fn c_35_20_the_cost_of_a_sweep_adds_up_to_its_lines_and_what_is_not_planted_is_not_found() {
    let server = serve(2, 1);
    let sandbox = agent_of(&server, "");
    write_sweep(&sandbox, 3, 1, "rate: {concurrent: 1}\n");
    delta(&sandbox, &["sweep", "plan"]).expect_code(0);
    delta(&sandbox, &["sweep", "run", "s", "-q"]).expect_code(0);
    let lines = result_lines(&sandbox);
    let sum = |name: &str| lines.iter().map(|line| line[name].as_f64().unwrap()).sum::<f64>();
    for line in &lines {
        let read = tokens(&line["usage"], "cached_input_tokens");
        let written = tokens(&line["usage"], "cache_write_tokens");
        assert!(is_near(&line["saved_usd"], (read * 3.6 - written) / 1e6), "{line}");
        assert_eq!(line["cache_breaks"], 0);
    }
    let cost =
        || delta(&sandbox, &["sweep", "cost", "s", "--format", "json"]).expect_code(0).json();
    let report = cost();
    assert!(is_near(&report["cost_usd"], sum("cost_usd")), "{report}");
    assert!(is_near(&report["saved_usd"], sum("saved_usd")), "{report}");
    assert!(is_near(&report["without_caches_usd"], sum("cost_usd") + sum("saved_usd")));
    assert_eq!((&report["causes"], &report["not_judged"]), (&json!([]), &json!([])), "{report}");
    delta(&sandbox, &["sweep", "collect", "s", "-o", "r.csv"]).expect_code(0);
    let csv = sandbox.read("r.csv");
    let header: Vec<&str> = csv.lines().next().unwrap().trim_end().split(',').collect();
    let [cost_column, saved, breaks] = ["cost_usd", "saved_usd", "cache_breaks"]
        .map(|name| header.iter().position(|column| *column == name).unwrap());
    assert_eq!((saved, breaks), (cost_column + 1, cost_column + 2));
    // A run that is gone keeps its line.
    let gone = lines[0]["id"].as_str().unwrap();
    let dir = sandbox.files("s/runs").into_iter().find(|path| path.contains(gone)).unwrap();
    let workspace = dir.split("/.delta/").next().unwrap();
    fs::remove_dir_all(sandbox.path(&format!("s/runs/{workspace}"))).unwrap();
    let report = cost();
    assert!(is_near(&report["cost_usd"], sum("cost_usd")), "{report}");
    assert_eq!(report["not_judged"], json!([gone]));
    let text = delta(&sandbox, &["sweep", "cost", "s"]).expect_code(0).stdout;
    assert!(text.contains("saved") && text.contains(gone), "{text}");
}

/// Runs of a job follow each other on one server of the endpoint, below its rate for a key.
#[test]
fn c_35_15_the_runs_of_a_job_of_a_sweep_have_one_cache_key() {
    let server = ScriptedServer::start(vec![Answer::text("done"), Answer::text("done")]);
    let sandbox = Sandbox::new(DELTA);
    let url = server.url();
    sandbox.agent(&format!("provider: responses\n  model: m\n  base_url: {url}"), "");
    sandbox.write("agent/system_prompt.md", "Keep to the facts. ".repeat(400));
    write_sweep(&sandbox, 2, 1, "rate: {concurrent: 1}\n");
    delta(&sandbox, &["sweep", "plan"]).expect_code(0);
    let ran = sandbox.delta(["sweep", "run", "s", "-q"]).env("OPENAI_API_KEY", "k");
    ran.output().expect_code(0);
    let requests = server.requests();
    let keys: Vec<&str> =
        requests.iter().filter_map(|it| it.body["prompt_cache_key"].as_str()).collect();
    assert!(keys.len() == 2 && keys[0] == keys[1] && keys[0].ends_with("-0"), "{keys:?}");
    assert_eq!(keys[0].len(), 34, "{keys:?}");
}

/// The script for a person with keys: whether tiers share a cache. Here they do, but for the first request of a pair.
#[test]
fn c_35_15_the_script_measures_what_the_second_run_of_a_pair_reads() {
    if !test_support::needs::programs(&["jq"]) {
        return;
    }
    let mut prompts = std::collections::HashSet::new();
    let server = ScriptedServer::start(move |request: &RecordedRequest| {
        let prompt = request.body["messages"][0]["content"].to_string();
        let read = if prompts.insert(prompt) { 0 } else { 4096 };
        let usage = json!({
            "prompt_tokens": 5000, "completion_tokens": 7,
            "prompt_tokens_details": {"cached_tokens": read},
        });
        Answer::text("done").usage_of(&usage)
    });
    let sandbox = Sandbox::new(DELTA);
    let url = server.url();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/shared-cache.sh");
    let ran = std::process::Command::new("bash")
        .args([script, "openai:m"])
        .current_dir(sandbox.path(""))
        .envs([("DELTA", DELTA), ("DELAYS", "0"), ("REPEATS", "1"), ("OPENAI_API_KEY", "k")])
        .envs([("TIERS", "direct:direct direct:flex"), ("OPENAI_BASE_URL", url.as_str())])
        .envs([("HOME", sandbox.path("home"))])
        .output()
        .unwrap();
    let text = String::from_utf8(ran.stdout).unwrap();
    let errors = String::from_utf8_lossy(&ran.stderr);
    let rows: Vec<Vec<&str>> =
        text.lines().skip(1).map(|line| line.split_whitespace().take(5).collect()).collect();
    let expected =
        ["direct:direct", "direct:flex"].map(|tiers| vec![tiers, "0", "5000", "4096", "0"]);
    assert_eq!(rows, expected, "{text}{errors}");
}

#[test]
fn c_35_20_a_block_that_changes_before_the_journal_is_named_with_its_amount() {
    let server = serve(3, 1);
    let sandbox = agent_of(&server, "");
    let context = "\
sources:
  - {type: file, path: '${AGENT_HOME}/system_prompt.md'}
  - {type: computed_file, id: notes, generator: {command: [sh, -c, 'echo x >> notes']}, output_path: '${CWD}/notes'}
  - {type: journal}
";
    sandbox.write("agent/context.yaml", context);
    run(&sandbox, "r", &[]);
    let cause = only_cause(&sandbox);
    assert_eq!((&cause["cause"], &cause["source"]), (&json!("block"), &json!("notes")), "{cause}");
    assert_eq!((&cause["runs"], &cause["requests"]), (&json!(1), &json!(2)), "{cause}");
    // Each could have read the request before it, but for the block itself.
    let usages = usages(&sandbox, "r");
    let pairs = usages.iter().zip(&usages[1..]);
    let unread = pairs
        .map(|(one, other)| tokens(one, "input_tokens") - tokens(other, "cached_input_tokens"));
    let unread: f64 = unread.sum();
    let paid = cause["tokens"].as_f64().unwrap();
    assert!((0.9 * unread..=unread).contains(&paid), "{paid} of {unread}: {usages:?}");
    let usd = cause["cost_usd"].as_f64().unwrap() * 1e6 / paid;
    assert!((3.6..=4.6).contains(&usd), "{usd}");
    let command = cause["command"].as_str().unwrap();
    let args: Vec<&str> = command.split(' ').skip(1).collect();
    let diff = delta(&sandbox, &args).expect_code(0).stdout;
    assert!(diff.contains("notes"), "{command}: {diff}");
    let text = delta(&sandbox, &["context", "cost", "work"]).expect_code(0).stdout;
    let is_short = |line: &&str| line.starts_with("  delta ") || line.chars().count() <= 80;
    assert_eq!(text.lines().filter(|line| !is_short(line)).count(), 0, "{text}");
}

#[test]
fn c_35_20_first_requests_without_a_mark_pay_the_constant_prefix_again() {
    let server = serve(1, 1);
    let sandbox = agent_of(&server, "\n  cache: off");
    for id in ["one", "two", "three"] {
        run(&sandbox, id, &["--max-iterations", "1"]);
    }
    let cause = only_cause(&sandbox);
    assert_eq!((&cause["cause"], &cause["runs"]), (&json!("first_request_unmarked"), &json!(2)));
    let blocks = cache_blocks(&server.requests()[0].body);
    let prompt = blocks.iter().position(|(text, _)| text.contains("Keep to the facts")).unwrap();
    let constant: usize = blocks[..=prompt].iter().map(|(text, _)| text.len()).sum();
    let paid = cause["tokens"].as_f64().unwrap() / 2.0;
    let expected = constant as f64 / 4.0;
    assert!((paid - expected).abs() < 0.1 * expected, "{paid}, not {expected}");
    assert!(is_near(&cause["cost_usd"], 2.0 * paid * 3.6 / 1e6), "{cause}");
    // The same runs with the mark.
    let server = serve(1, 1);
    let sandbox = agent_of(&server, "");
    for id in ["one", "two", "three"] {
        run(&sandbox, id, &["--max-iterations", "1"]);
    }
    let report = delta(&sandbox, &["context", "cost", "work", "--format", "json"]).json();
    assert_eq!(report["causes"], json!([]), "{report}");
}

#[test]
fn c_35_20_an_entry_that_expired_is_priced_and_so_are_entries_of_an_hour() {
    let server = serve(2, 400);
    let sandbox = agent_of(&server, "");
    run(&sandbox, "r", &[]);
    assert_eq!(only_cause(&sandbox)["cause"], "unread", "by the clock, the time was too short");
    sandbox.unverified("the time of a record is changed: tools of 400 seconds are not waited for");
    let dir = "work/.delta/r/io/invocations";
    let later = format!("{dir}/{}", sandbox.files(dir)[1]);
    let record = sandbox.read(&later);
    let (start, rest) = record.split_once("\"started_at\":\"").unwrap();
    let rest = rest.split_once('"').unwrap().1;
    let hour = delta_base::time::current_time().as_millis() + 400_000;
    let hour = delta_base::time::Timestamp::from_millis(hour);
    sandbox.write(&later, format!("{start}\"started_at\":\"{hour}\"{rest}"));
    let cause = only_cause(&sandbox);
    assert_eq!(cause["cause"], "expired", "{cause}");
    let usages = usages(&sandbox, "r");
    let written: Vec<f64> =
        usages.iter().map(|usage| tokens(usage, "cache_write_tokens")).collect();
    assert_eq!(cause["tokens"].as_f64().unwrap(), written[0], "{usages:?}");
    assert!(is_near(&cause["cost_usd"], written[0] * 4.6 / 1e6), "{cause}");
    // A write of an hour costs 8, and what had expired is not written again.
    let saved = written[0] * 4.6 - 3.0 * (written[0] + written[1] - written[0]);
    assert!(is_near(&cause["longer_entries_save_usd"], saved.max(0.0) / 1e6), "{cause}");
}
