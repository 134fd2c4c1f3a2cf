//! Redaction hides keys of the operator, and nothing else (C-15.3).

use crate::DELTA;
use serde_json::json;
use test_support::sandbox::Sandbox;
use test_support::server::{Answer, ScriptedServer};

const KEY: &str = "sk-operator/0123456789";

/// A "key" in the workspace hid files from snapshots, and words from the LLM.
#[test]
fn c_15_3_a_file_that_is_not_trusted_has_nothing_redacted() {
    let tools = "  - {name: t, exec: 'echo rm-everything-2 ${text}'}\n";
    let turns = "- call: [{tool: t, args: {text: rm-everything-2}}]\n- say: ${last}";
    let sandbox = Sandbox::scripted(DELTA, tools, turns);
    sandbox.write("work/.env", "DELTA_API_KEY=rm-everything-2\nOPENAI_API_KEY=important-1\n");
    sandbox.write("work/file", "important-1\n");
    let ran = sandbox.run("go", &["--format", "raw", "--snapshots"]).expect_code(0);
    assert_eq!(ran.stdout, "rm-everything-2 rm-everything-2\n");
    assert!(!ran.stderr.contains("the snapshots leave out"), "{}", ran.stderr);
    assert_eq!(sandbox.events("ACTION_REQUEST")[0]["argv"][2], "rm-everything-2");
    std::fs::write(sandbox.path("work/file"), "changed\n").unwrap();
    let back = ["rollback", "r", "-w", "work", "--to", "0"];
    sandbox.delta(back).output().expect_code(0);
    assert_eq!(sandbox.read("work/file"), "important-1\n");
}

/// The tool ran, with `[redacted]` in the place of the key.
#[test]
fn c_15_3_a_call_whose_arguments_contain_a_key_is_not_run() {
    let plain = json!({"text": format!("a {KEY} b")}).to_string();
    let escaped = [KEY.replacen("sk", "\\u0073k", 1), KEY.replacen('/', "\\/", 1)]
        .map(|key| format!("{{\"text\": \"{key}\"}}"));
    for arguments in escaped.into_iter().chain([plain]) {
        let server = ScriptedServer::start(vec![
            Answer::raw_call("one", "t", &arguments),
            Answer::calls(vec![("t", json!({"text": "harmless"}))]),
            Answer::text("done"),
        ]);
        let tools = "  - {name: t, exec: 'tee -a -- seen', stdin: text}\n";
        let sandbox = Sandbox::asking(DELTA, &server.url(), tools);
        let run = sandbox.run_command("go", &[]).env("DELTA_API_KEY", KEY);
        run.output().expect_code(0);
        assert_eq!(sandbox.read("work/seen"), "harmless");
        let seen = sandbox.observations();
        assert!(
            seen[0].starts_with("The arguments of this call contain an API key"),
            "{}",
            seen[0]
        );
        assert_eq!(sandbox.events("ACTION_REQUEST")[0].get("argv"), None);
        assert_eq!(sandbox.events("THOUGHT")[0]["redacted_calls"], json!([0]));
        assert_eq!(sandbox.events("THOUGHT")[1].get("redacted_calls"), None);
    }
}

/// What Python, Go, Java and .NET print of a key, and base64 in lines in a JSON string or with an indent, were not recognised.
#[test]
fn c_15_3_a_key_in_any_usual_spelling_is_redacted() {
    const KEY: &str = "sk-aB+cD/e&F01<23456789GHIJ==";
    let base64 = ["YWRtaW5pc3RyYXRvcjpzay1hQitjRC9lJkYwMTwyMzQ1", "Njc4OUdISUo9PQ=="];
    let spelled = [
        "sk-aB%2BcD/e%26F01%3C23456789GHIJ%3D%3D".to_owned(),
        "sk-aB+cD/e&F01%3c23456789GHIJ==".to_owned(),
        "sk-aB\\u002BcD/e\\u0026F01\\u003C23456789GHIJ==".to_owned(),
        "sk-aB+cD\\/e\\u0026F01\\u003c23456789GHIJ\\u003d\\u003d".to_owned(),
        "sk-aB\\\\u002bcD/e&F01<23456789GHIJ==".to_owned(),
    ];
    for text in spelled {
        let ran = shown(KEY, &text);
        assert_eq!(ran.observations()[0], "[redacted]\n", "{text}");
    }
    for line_end in ["\n", "\r\n", "\\n", "\\r\\n", "\\\\n", "\n  ", "\n\t"] {
        let text = base64.join(line_end);
        let seen = shown(KEY, &text).observations().remove(0);
        assert!(seen.starts_with("YWRtaW5pc3RyYXRvcj") && seen.contains("[redacted]"), "{seen}");
        assert!(!seen.contains("c2stYU") && !seen.contains("Njc4OUdISUo"), "{text:?}: {seen}");
    }
    // In the arguments of a call, and in an answer.
    let text = base64.join("\n");
    let call = json!([{"tool": "t", "args": {"text": text}}]);
    let turns = format!("- call: {call}\n- say: {}\n", json!(format!("done {text}")));
    let tools = "  - {name: t, exec: 'touch ran', stdin: text}\n";
    let sandbox = Sandbox::scripted(DELTA, tools, &turns);
    let run = sandbox.run_command("go", &["--format", "raw"]).env("DELTA_API_KEY", KEY);
    let ran = run.output().expect_code(0);
    assert!(!sandbox.path("work/ran").exists());
    assert!(sandbox.observations()[0].starts_with("The arguments of this call contain an API key"));
    assert!(ran.stdout.ends_with("[redacted]Q==\n"), "{}", ran.stdout);
    assert!(!sandbox.read("work/.delta/r/journal.jsonl").contains("Njc4OUdISUo"));
}

/// A run whose tool prints a text.
fn shown(key: &str, text: &str) -> Sandbox {
    let turns = "- call: [{tool: t}]\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, "  - {name: t, exec: cat text}\n", turns);
    sandbox.write("work/text", format!("{text}\n"));
    sandbox.run_command("go", &[]).env("DELTA_API_KEY", key).output().expect_code(0);
    sandbox
}

/// The tool ran when the cassette was played, with `[redacted]` in the place of the key, and no `strict` test could pass.
#[test]
fn c_17_5_a_call_with_a_key_is_not_run_from_a_cassette_either() {
    let arguments = json!({"text": format!("a {KEY} b")});
    let server = ScriptedServer::start(vec![
        Answer::calls(vec![("t", json!({"text": "harmless"})), ("t", arguments)]),
        Answer::text("done"),
    ]);
    let tools = "  - {name: t, exec: 'tee -a -- seen', stdin: text}\n";
    let sandbox = Sandbox::asking(DELTA, &server.url(), tools);
    let test = "task: go\nllm: {cassette: cassettes/t.jsonl, strict: true}\nexpect: {result: done, files: {seen: harmless}}\n";
    sandbox.write("agent/tests/t.yaml", test);
    let record = sandbox.delta(["test", "agent", "--record"]).env("DELTA_API_KEY", KEY);
    record.output().expect_code(0);
    drop(server);
    let cassette = sandbox.read("agent/tests/cassettes/t.jsonl");
    assert!(cassette.contains("\"redacted_calls\":[1]"), "{cassette}");
    let ran = sandbox.delta(["test", "agent"]).output();
    assert!(ran.code == 0 && !ran.stdout.contains("note:"), "{}", ran.stdout);
}
