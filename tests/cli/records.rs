//! The io/ files (C-5.2): their names, and that nothing of a request is lost or written twice.

use super::DELTA;
use serde_json::{Value, json};
use test_support::needs;
use test_support::sandbox::Sandbox;
use test_support::server::{Answer, RecordedRequest, ScriptedServer};

#[test]
fn c_5_2_io_files_have_their_names() {
    let answers = vec![
        Answer::call("echo", json!({"text": "x"})),
        Answer::call("finish", json!({"result": "y"})),
    ];
    let server = ScriptedServer::start(answers);
    let sandbox = Sandbox::asking(DELTA, &server.url(), "  - name: echo\n    exec: echo ${text}\n");
    sandbox.run("hello", &[]).expect_code(0);
    let shape = |name: &String| -> String {
        let (stamp, rest) = name.split_at(19);
        stamp
            .chars()
            .map(|c| if c.is_ascii_digit() { '0' } else { c })
            .chain(rest.chars())
            .collect()
    };
    let names = |dir: &str| {
        sandbox.files(&format!("work/.delta/r/io/{dir}")).iter().map(shape).collect::<Vec<_>>()
    };
    assert_eq!(names("invocations"), ["00000000T000000000Z_1.json", "00000000T000000000Z_2.json"]);
    assert_eq!(
        names("tool_executions"),
        ["00000000T000000000Z_echo.json", "00000000T000000000Z_finish.json"]
    );
}

/// The records of the LLM calls, in order: file name, and content.
fn invocations(sandbox: &Sandbox) -> Vec<(String, Value)> {
    let dir = "work/.delta/r/io/invocations";
    let read = |name: String| {
        let record = serde_json::from_str(&sandbox.read(&format!("{dir}/{name}"))).unwrap();
        (name, record)
    };
    sandbox.files(dir).into_iter().map(read).collect()
}

/// The request of a record with what `same_as` leaves out.
fn rebuilt(records: &[(String, Value)], name: &str) -> Value {
    let mut request = records.iter().find(|(known, _)| known == name).unwrap().1["request"].clone();
    let first = request["messages"][0].clone();
    if let Some(file) = first.get("same_as").and_then(Value::as_str) {
        let count = usize::try_from(first["count"].as_u64().unwrap()).unwrap();
        let before = rebuilt(records, file);
        let messages = request["messages"].as_array_mut().unwrap();
        messages.splice(0..1, before["messages"].as_array().unwrap()[..count].to_vec());
    }
    request
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

const BULK: &str = "  - name: bulk\n    shell: head -c 100000 /dev/zero | tr '\\0' ${letter}\n    max_output_bytes: 200000\n";

#[test]
fn c_5_2_a_large_stream_and_one_of_bytes_are_files_next_to_their_records() {
    let tools = "  - {name: large, shell: 'yes 0123456789 | head -c 200000'}\n  \
                 - {name: bytes, shell: \"printf 'a\\\\377b'\"}\n";
    let turns = "- call: [{tool: large}, {tool: bytes}]\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, tools, turns);
    sandbox.run("go", &[]).expect_code(0);
    let large = "0123456789\n".repeat(20_000).into_bytes();
    let streams = [&large[..200_000], b"a\xffb"];
    for (request, stream) in sandbox.events("ACTION_REQUEST").iter().zip(streams) {
        let execution = request["execution"].as_str().unwrap();
        let record = sandbox.read(&format!("work/.delta/r/{execution}"));
        let record: Value = serde_json::from_str(&record).unwrap();
        let file = record["stdout"]["file"].as_str().unwrap();
        let path = sandbox.path("work/.delta/r/io/tool_executions").join(file);
        assert!(std::fs::read(path).unwrap() == stream, "{record}");
    }
}

#[test]
fn c_5_2_large_requests_are_recorded_once_and_rebuilt_to_the_byte() {
    let letters = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let refusing = move |request: &RecordedRequest| {
        if request.body.get("stream_options").is_some() {
            return Answer::error(400, "unknown field stream_options", None);
        }
        let step = request.body["messages"].as_array().unwrap().len() / 2 - 1;
        match letters.get(step) {
            Some(letter) => Answer::call("bulk", json!({"letter": letter})),
            None => Answer::text("ok"),
        }
    };
    let accepting = move |request: &RecordedRequest| {
        let step = request.body["messages"].as_array().unwrap().len() / 2 - 1;
        letters.get(step).map_or_else(
            || Answer::text("ok"),
            |letter| Answer::call("bulk", json!({"letter": letter})),
        )
    };
    for (server, refused) in
        [(ScriptedServer::start(accepting), 0), (ScriptedServer::start(refusing), 1)]
    {
        let sandbox = Sandbox::asking(DELTA, &server.url(), BULK);
        sandbox.run("hello", &[]).expect_code(0);
        let records = invocations(&sandbox);
        let requests = server.requests();
        assert_eq!((records.len(), requests.len()), (9, 9 + refused));
        for ((name, record), request) in records.iter().zip(&requests[refused..]) {
            let text = rebuilt(&records, name).to_string();
            assert_eq!(text.as_bytes(), request.bytes, "{name}");
            assert_eq!(record["request_sha256"], sha256(&request.bytes), "{name}");
        }
        let size = |(name, _): &(String, Value)| {
            sandbox.read(&format!("work/.delta/r/io/invocations/{name}")).len()
        };
        let total: usize = records.iter().map(size).sum();
        assert!(total < 1_800_000, "{total} bytes for a conversation of 800,000");
        assert!(records[8].1["request"]["messages"][0]["same_as"].is_string());
        assert_eq!(server.violations(), Vec::<String>::new());
    }
}

#[test]
fn c_5_2_a_request_of_a_hook_is_rebuilt_to_the_byte_too() {
    if !needs::programs(&["jq"]) {
        return;
    }
    let hooks = [
        "{messages: .request.messages}",
        "{messages: (.request.messages | .[-1].content += \"!\")}",
        "if .iteration % 2 == 0 then {messages: .request.messages[2:]} else {} end",
        "{request: (.request | .messages[1].content += \"\\(.messages | length)\")}",
    ];
    for hook in hooks {
        let answer = |request: &RecordedRequest| {
            let step = request.body["messages"].to_string().matches("tool_call_id").count();
            let letter = char::from(b'a' + u8::try_from(step).unwrap());
            match step {
                0..6 => Answer::call("bulk", json!({"letter": letter})),
                _ => Answer::text("ok"),
            }
        };
        let server = ScriptedServer::start(answer);
        let sandbox = Sandbox::asking(DELTA, &server.url(), BULK);
        let command = json!({"pre_llm_request": {"command": ["jq", "-c", hook]}});
        sandbox.write("agent/hooks.yaml", command.to_string());
        sandbox.run("hello", &["--max-iterations", "9"]);
        let (records, requests) = (invocations(&sandbox), server.requests());
        assert!(requests.len() >= 7, "{hook}: {}", requests.len());
        for ((name, record), request) in records.iter().zip(&requests) {
            assert_eq!(rebuilt(&records, name).to_string().as_bytes(), request.bytes, "{hook}");
            assert_eq!(record["request_sha256"], sha256(&request.bytes), "{hook}");
        }
        for iteration in 1..=requests.len() {
            let args = ["show", "r", "-w", "work", "--request", &iteration.to_string()];
            let shown = sandbox.delta(args).output().expect_code(0);
            assert_eq!(shown.stdout.trim_end().as_bytes(), requests[iteration - 1].bytes);
        }
    }
}

#[test]
fn c_5_2_what_is_written_grows_with_the_run_and_not_with_its_square() {
    let iterations = 200;
    let turns: String = (0..iterations)
        .map(|n| format!("- call: [{{tool: note, args: {{text: 'the note {n}'}}}}]\n"))
        .collect();
    let tools = "  - name: note\n    exec: echo ${text}\n";
    let sandbox = Sandbox::scripted(DELTA, tools, &format!("{turns}- say: done\n"));
    sandbox.run("go", &["--max-iterations", "500"]).expect_code(0);
    let written = |dir: &str| -> u64 {
        let files = sandbox.files(dir);
        let size = |name: &String| sandbox.path(&format!("{dir}/{name}")).metadata().unwrap().len();
        files.iter().map(size).sum()
    };
    let journal = sandbox.path("work/.delta/r/journal.jsonl").metadata().unwrap().len();
    let records =
        written("work/.delta/r/io/invocations") + written("work/.delta/r/io/tool_executions");
    // The last request alone has nearly all that was said: whole, they would be some 200 times half of it.
    assert!(records < 3 * journal + 256 * 1024, "{records} bytes beside a journal of {journal}");
    let last = invocations(&sandbox).pop().unwrap();
    assert_eq!(rebuilt(&invocations(&sandbox), &last.0)["messages"].as_array().unwrap().len(), 402);
    let shown =
        sandbox.delta(["show", "r", "-w", "work", "--request", "201"]).output().expect_code(0);
    assert_eq!(sha256(shown.stdout.as_bytes()), last.1["request_sha256"].as_str().unwrap());
}
