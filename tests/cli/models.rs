//! `delta models`: what the configured endpoints offer, and what it would cost (C-23.4, C-23.3).

use super::DELTA;
use serde_json::{Value, json};
use test_support::sandbox::{Delta, Sandbox};
use test_support::server::{Answer, RecordedRequest, ScriptedServer};

const PRICES: &str = r#"{
  "small": {"input_cost_per_token": 2e-07, "output_cost_per_token": 1.2e-06, "litellm_provider": "openai", "mode": "chat",
            "max_input_tokens": 1000, "max_output_tokens": 50, "input_cost_per_token_above_272k_tokens": 4e-07},
  "anthropic/big": {"input_cost_per_token": 2e-06, "output_cost_per_token": 1e-05, "litellm_provider": "anthropic", "mode": "chat"}
}"#;

fn json_answer(body: &Value) -> Answer {
    Answer::raw(200, body.to_string())
}

/// One server in the place of three endpoints; lists of Anthropic and Gemini have two pages.
fn three_endpoints() -> ScriptedServer {
    ScriptedServer::for_anything(|request: &RecordedRequest| match request.target.as_str() {
        "GET /v1/models" => json_answer(&json!({"object": "list", "data": [
            {"id": "small", "object": "model", "supported_parameters": ["tools", "top_p"]},
            {"id": "llama3:8b\u{1b}[31m", "max_model_len": 4096},
            {"id": ""}, 5,
        ]})),
        "GET /anthropic/v1/models?limit=1000" => json_answer(&json!({
            "data": [{"type": "model", "id": "big", "max_input_tokens": 1_000_000, "max_tokens": 128_000}],
            "has_more": true, "first_id": "big", "last_id": "big&1",
        })),
        "GET /anthropic/v1/models?limit=1000&after_id=big%261" => json_answer(&json!({
            "data": [{"type": "model", "id": "another"}], "has_more": false, "last_id": "another",
        })),
        "GET /gemini/v1beta/models?pageSize=1000" => json_answer(&json!({
            "models": [{"name": "models/g-2", "inputTokenLimit": 2000, "outputTokenLimit": 0}],
            "nextPageToken": "t",
        })),
        "GET /gemini/v1beta/models?pageSize=1000&pageToken=t" => {
            json_answer(&json!({"models": [{"name": "models/g-1"}]}))
        }
        _ => Answer::raw(404, r#"{"error": {"message": "no such place for the-key-of-openai"}}"#),
    })
}

fn models(sandbox: &Sandbox, server: &ScriptedServer, args: &[&str]) -> Delta {
    sandbox.write("prices.json", PRICES);
    let root = server.root_url();
    sandbox
        .delta(["models"].iter().chain(args).copied())
        .env("DELTA_BASE_URL", server.url())
        .env("DELTA_API_KEY", "the-key-of-openai")
        .env("ANTHROPIC_BASE_URL", format!("{root}/anthropic"))
        .env("ANTHROPIC_API_KEY", "key-2")
        .env("GOOGLE_GEMINI_BASE_URL", format!("{root}/gemini/"))
        .env("GEMINI_API_KEY", "key-3")
        .env("DELTA_PRICES", sandbox.path("prices.json"))
}

#[test]
fn c_23_4_the_models_of_the_configured_endpoints_are_listed() {
    let (sandbox, server) = (Sandbox::new(DELTA), three_endpoints());
    let ran = models(&sandbox, &server, &[]).output();
    let table = "openai:llama3:8b      4096       -    -    -    -\n\
                 openai:small          1000      50  0.2  1.2  yes\n\
                 anthropic:another        -       -    -    -    -\n\
                 anthropic:big      1000000  128000    -    -    -\n\
                 gemini:g-1               -       -    -    -    -\n\
                 gemini:g-2            2000       -    -    -    -\n";
    ran.expect(0, table, "");
    let requests = server.requests();
    let header = |index: usize, name: &str| requests[index].header(name).map(str::to_owned);
    assert_eq!(header(0, "authorization").as_deref(), Some("Bearer the-key-of-openai"));
    assert_eq!(header(1, "x-api-key").as_deref(), Some("key-2"));
    assert_eq!(header(1, "anthropic-version").as_deref(), Some("2026-10-21"));
    assert_eq!(header(3, "x-goog-api-key").as_deref(), Some("key-3"));
    assert_eq!(requests.len(), 5);

    let listed = models(&sandbox, &server, &["--format", "json"]).output().expect_code(0).json();
    assert_eq!(listed[1]["model"], "openai:small");
    assert_eq!((&listed[1]["max_input"], &listed[1]["max_output"]), (&json!(1000), &json!(50)));
    assert_eq!(listed[1]["pricing"]["above"][0]["input"], json!(0.4));
    assert_eq!((&listed[0]["pricing"], &listed[1]["takes_tools"]), (&Value::Null, &json!(true)));
}

#[test]
fn c_23_4_an_endpoint_that_does_not_list_is_named_and_the_others_are_listed() {
    let (sandbox, server) = (Sandbox::new(DELTA), three_endpoints());
    let ran = models(&sandbox, &server, &[])
        .env("DELTA_BASE_URL", format!("{}/nothing", server.root_url()))
        .output()
        .expect_code(1);
    let message = format!(
        "error: openai: {}/nothing/models answered 404 Not Found: no such place for [redacted]\n",
        server.root_url()
    );
    assert_eq!(ran.stderr, message);
    assert_eq!(ran.stdout.lines().count(), 4, "{}", ran.stdout);
}

#[test]
fn c_23_4_without_a_key_the_variables_are_named() {
    let sandbox = Sandbox::new(DELTA);
    // A workspace does not choose where keys go.
    sandbox.write(".env", "DELTA_BASE_URL=http://localhost:1/v1\n");
    let expected = "error: no endpoint is configured in the environment\nhelp: set a key or the address of a local server:\n        openai     DELTA_API_KEY or OPENAI_API_KEY; DELTA_BASE_URL or OPENAI_BASE_URL\n        anthropic  ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN; ANTHROPIC_BASE_URL\n        gemini     GOOGLE_API_KEY or GEMINI_API_KEY; GOOGLE_GEMINI_BASE_URL\n";
    sandbox.delta(["models"]).output().expect(126, "", expected);
}

#[test]
fn c_23_3_the_prices_that_would_count_are_printed_with_their_source() {
    let sandbox = Sandbox::new(DELTA);
    sandbox.write("prices.json", PRICES);
    let path = sandbox.path("prices.json");
    let prices = |args: &[&str]| {
        sandbox.delta(["models", "prices"].iter().chain(args).copied()).env("DELTA_PRICES", &path)
    };
    let ran = prices(&["small", "anthropic:big", "anthropic:small"]).output().expect_code(1);
    let text = ran.normal(&sandbox).stdout;
    let day = regex::Regex::new(r"file of \d{4}-\d\d-\d\d\n").unwrap();
    assert_eq!(day.find_iter(&text).count(), 2, "{text}");
    let text = day.replace_all(&text, "file of DAY\n");
    let table = regex::Regex::new(r"built-in prices of \d{4}-\d\d-\d\d").unwrap();
    let text = table.replace_all(&text, "built-in prices of DAY");
    // Which names of the table are similar depends on its day.
    let similar = regex::Regex::new("; similar names: .*").unwrap();
    let text = similar.replace_all(&text, "");
    assert_eq!(
        text,
        "small at https://api.openai.com/v1, in USD per million tokens:\n  \
           input 0.2, cached_input 0.2, cache_write 0.2, output 1.2, reasoning 1.2\n  \
           above 272000 tokens: input 0.4, cached_input 0.4, cache_write 0.4, output 1.2, reasoning 1.2\n  \
           max_output 50\n  \
           max_input 1000\n  \
           from `small` in DIR/prices.json, file of DAY\n\
         anthropic:big at https://api.anthropic.com, in USD per million tokens:\n  \
           input 2, cached_input 2, cache_write 2.5, output 10, reasoning 10\n  \
           from `anthropic/big` in DIR/prices.json, file of DAY\n\
         anthropic:small at https://api.anthropic.com: unknown\n  \
           DIR/prices.json: no chat model `anthropic/small` or `small` of anthropic\n  \
           built-in prices of DAY: no chat model `anthropic/small` or `small` of anthropic\n"
    );
    let listed = prices(&["small", "--format", "json"]).output().expect_code(0).json();
    assert_eq!(
        (&listed[0]["model"], &listed[0]["pricing"]["output"]),
        (&json!("small"), &json!(1.2))
    );
    // Without a file, the table in the program has the models of the vendors.
    let built_in = sandbox.delta(["models", "prices", "small", "openai:gpt-4o"]).output();
    let text = built_in.expect_code(1).stdout;
    let text = table.replace_all(&text, "built-in prices of DAY");
    let lines = "  built-in prices of DAY: no chat model `openai/small` or `small` of openai";
    assert!(text.contains(lines), "{text}");
    assert!(text.ends_with("  from `gpt-4o` in the built-in prices of DAY\n"), "{text}");
}

#[test]
fn c_23_4_lists_of_all_usual_shapes_are_read() {
    let names = |answer: &str| {
        let answer = answer.to_owned();
        let server = ScriptedServer::for_anything(move |_: &RecordedRequest| {
            Answer::raw(200, answer.clone())
        });
        let sandbox = Sandbox::new(DELTA);
        sandbox.delta(["models"]).env("DELTA_BASE_URL", server.url()).output()
    };
    for answer in [
        r#"[{"id": "a/b", "object": "model"}]"#,
        r#"{"data": [{"id": "a/b", "name": "The Model"}]}"#,
        r#"{"models": [{"name": "a/b", "model": "a/b", "size": 5}]}"#,
        r#"{"models": [{"name": "a/b"}]}"#,
        r#"{"data": {"models": ["a/b"]}}"#,
        r#"{"object": "list", "models": [], "data": [{"id": "a/b"}, {"object": "model"}]}"#,
    ] {
        let ran = names(answer);
        assert!(ran.code == 0 && ran.stdout.contains("openai:a/b "), "{answer}: {ran:?}");
    }
    for (answer, problem) in [
        (
            "<!doctype html><title>x</title>",
            "found a web page: `base_url` may lack a path such as `/v1`",
        ),
        (r#"{"data": [{"object": "model"}]}"#, "expected models with an `id` or a `name`"),
        (r#"{"error": "no"}"#, "expected a list of models, or one in `data` or `models`"),
    ] {
        let ran = names(answer);
        assert!(ran.code != 0 && ran.stderr.contains(problem), "{answer}: {ran:?}");
    }
}

/// A server with these answers, each at a method and path; 404 elsewhere.
fn local_server(answers: &'static [(&'static str, &'static str)]) -> ScriptedServer {
    ScriptedServer::for_anything(move |request: &RecordedRequest| {
        let of_model =
            request.body["model"].as_str().map(|model| format!("{} {model}", request.target));
        let asked = of_model.unwrap_or_else(|| request.target.clone());
        match answers.iter().find(|(target, _)| *target == asked) {
            Some((_, answer)) => Answer::raw(200, *answer),
            None => Answer::raw(404, "not found"),
        }
    })
}

/// The lines of `delta models` at a server with these answers.
fn listed(answers: &'static [(&'static str, &'static str)]) -> String {
    let (sandbox, server) = (Sandbox::new(DELTA), local_server(answers));
    let ran = sandbox.delta(["models"]).env("DELTA_BASE_URL", server.url()).output();
    ran.expect_code(0).stdout
}

const LLAMA_LIST: &str = r#"{"models": [{"name": "q", "capabilities": ["completion"]}], "object": "list", "data": [
    {"id": "q", "object": "model", "owned_by": "llamacpp", "meta": {"n_ctx": 16384, "n_ctx_train": 40960}}]}"#;

#[test]
fn c_23_4_llama_cpp_tells_the_context_of_a_slot_and_whether_its_template_shows_tools() {
    let told = listed(&[
        ("GET /v1/models", LLAMA_LIST),
        (
            "GET /props",
            r#"{"default_generation_settings": {"n_ctx": 4096}, "total_slots": 4,
                "chat_template_caps": {"supports_tools": false, "supports_tool_calls": false}}"#,
        ),
    ]);
    assert_eq!(told, "openai:q  4096  -  -  -  no\n");
    // An older server, or one that hides it.
    assert_eq!(listed(&[("GET /v1/models", LLAMA_LIST)]), "openai:q  16384  -  -  -  -\n");
}

#[test]
fn c_23_4_ollama_tells_the_context_in_use_and_not_the_one_that_a_model_could_have() {
    let told = listed(&[
        (
            "GET /v1/models",
            r#"{"object": "list", "data": [
                {"id": "a:1b", "object": "model", "created": 1, "owned_by": "library"},
                {"id": "b:8b", "object": "model", "created": 1, "owned_by": "someone"},
                {"id": "c:8b", "object": "model", "created": 1, "owned_by": "library"}]}"#,
        ),
        (
            "GET /api/ps",
            r#"{"models": [{"name": "a:1b", "model": "a:1b", "context_length": 4096}]}"#,
        ),
        (
            "POST /api/show a:1b",
            r#"{"parameters": "num_ctx 32768", "capabilities": ["completion", "tools"]}"#,
        ),
        (
            "POST /api/show b:8b",
            r#"{"parameters": "stop \"x\"\nnum_ctx    32768", "capabilities": ["completion"],
                "model_info": {"llama.context_length": 131072}}"#,
        ),
        (
            "POST /api/show c:8b",
            r#"{"capabilities": ["tools"], "model_info": {"llama.context_length": 131072}}"#,
        ),
    ]);
    let table = "openai:a:1b   4096  -  -  -  yes\n\
                 openai:b:8b  32768  -  -  -   no\n\
                 openai:c:8b      -  -  -  -  yes\n";
    assert_eq!(told, table);
}

#[test]
fn c_23_4_lm_studio_tells_the_context_of_models_that_are_loaded() {
    let told = listed(&[
        (
            "GET /v1/models",
            r#"{"object": "list", "data": [
                {"id": "a", "object": "model", "owned_by": "organization_owner"},
                {"id": "b", "object": "model", "owned_by": "organization_owner"}]}"#,
        ),
        (
            "GET /api/v0/models",
            r#"{"object": "list", "data": [
                {"id": "a", "type": "llm", "state": "loaded", "max_context_length": 32768,
                 "loaded_context_length": 8192, "capabilities": ["tool_use"]},
                {"id": "b", "type": "llm", "state": "not-loaded", "max_context_length": 32768, "capabilities": []}]}"#,
        ),
    ]);
    assert_eq!(told, "openai:a  8192  -  -  -  yes\nopenai:b     -  -  -  -   no\n");
}

#[test]
fn c_23_4_what_other_lists_tell_is_read_and_nobody_else_is_asked() {
    let server = local_server(&[(
        "GET /v1/models",
        r#"{"object": "list", "data": [
            {"id": "mistral", "owned_by": "mistralai", "max_context_length": 131072, "capabilities": {"function_calling": true}},
            {"id": "vllm", "owned_by": "vllm", "max_model_len": 16384},
            {"id": "words", "owned_by": "x", "context_length": 9, "supported_parameters": ["top_p"]}]}"#,
    )]);
    let sandbox = Sandbox::new(DELTA);
    let ran = sandbox.delta(["models"]).env("DELTA_BASE_URL", server.url()).output();
    let table = "openai:mistral  131072  -  -  -  yes\n\
                 openai:vllm      16384  -  -  -    -\n\
                 openai:words         9  -  -  -   no\n";
    ran.expect(0, table, "");
    assert_eq!(server.requests().len(), 1);
}
