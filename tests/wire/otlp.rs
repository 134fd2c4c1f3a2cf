//! The messages of OpenTelemetry read what `delta export` sends as protobuf.

use super::{DELTA, python};
use serde_json::{Value, json};
use test_support::sandbox::Sandbox;
use test_support::server::{Answer, RecordedRequest, ScriptedServer};

const TOOLS: &str =
    "  - name: echo\n    exec: echo ${text}\n  - name: fail\n    shell: echo no; exit 3\n";

fn accepting_collector() -> ScriptedServer {
    ScriptedServer::for_anything(|_: &RecordedRequest| {
        Answer::raw(200, "").header("Content-Type", "application/x-protobuf")
    })
}

/// Texts of several bytes a character, numbers of every kind, a failed call, a folded run: all fields that spans can have.
#[test]
fn c_19_4_opentelemetry_reads_the_same_spans_from_protobuf_and_from_json() {
    let server = ScriptedServer::start(vec![
        Answer::calls(vec![("echo", json!({"text": "Grüße 😀"})), ("fail", json!({}))])
            .saying("so")
            .thinking("first this")
            .usage(100, 20),
        Answer::error(503, "busy", None).header("Retry-After-Ms", "0"),
        Answer::call("finish", json!({"result": {"count": 9_007_199_254_740_993_u64}}))
            .usage(150_000, 5),
    ]);
    let sandbox = Sandbox::new(DELTA);
    let llm = format!(
        "model: test-model\n  base_url: {}\n  temperature: 0.5\n  pricing: {{input: 1, output: 2}}",
        server.url()
    );
    sandbox.agent(&llm, TOOLS);
    sandbox.run("task", &["--snapshots"]).expect_code(0);
    let mut cases = Vec::new();
    for content in [&[][..], &["--content"], &["--content=all"]] {
        let collector = accepting_collector();
        let url = format!("http://127.0.0.1:{}", collector.port());
        let fixed = ["export", "r", "-w", "work", "--to", "otlp"];
        let export = |more: &[&str]| {
            let words = fixed.iter().chain(content).chain(more).copied();
            sandbox.delta(words).output().expect_code(0)
        };
        export(&["--endpoint", &url]);
        let lines = export(&[]).stdout;
        let sent: Vec<String> = collector
            .requests()
            .iter()
            .map(|request| request.bytes.iter().map(|byte| format!("{byte:02x}")).collect())
            .collect();
        assert_eq!(sent.len(), lines.lines().count());
        for (protobuf, line) in sent.into_iter().zip(lines.lines()) {
            let json: Value = serde_json::from_str(line).unwrap();
            cases.push(json!({"protobuf": protobuf, "json": json}));
        }
    }
    let input: String = cases.iter().map(|case| format!("{case}\n")).collect();
    let Some(output) = python("otlp.py", "", input.into_bytes()) else { return };
    let verdicts: Vec<&str> = output.lines().collect();
    assert_eq!(verdicts.len(), cases.len());
    // The run, two calls of the LLM, three of tools.
    assert!(verdicts.iter().all(|verdict| *verdict == "ok 6"), "{output}");
}
