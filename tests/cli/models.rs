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
            {"id": "small", "object": "model"},
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
    let table = "openai:llama3:8b      4096       -    -    -\n\
                 openai:small          1000      50  0.2  1.2\n\
                 anthropic:another        -       -    -    -\n\
                 anthropic:big      1000000  128000    -    -\n\
                 gemini:g-1               -       -    -    -\n\
                 gemini:g-2            2000       -    -    -\n";
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
    assert_eq!(listed[0]["pricing"], Value::Null);
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
    assert_eq!(
        text,
        "small at https://api.openai.com/v1, in USD per million tokens:\n  \
           input 0.2, cached_input 0.2, cache_write 0.2, output 1.2, reasoning 1.2\n  \
           above 272000 tokens: input 0.4, cached_input 0.4, cache_write 0.4, output 1.2, reasoning 1.2\n  \
           max_output 50\n  \
           from `small` in DIR/prices.json, file of DAY\n\
         anthropic:big at https://api.anthropic.com, in USD per million tokens:\n  \
           input 2, cached_input 2, cache_write 2.5, output 10, reasoning 10\n  \
           from `anthropic/big` in DIR/prices.json, file of DAY\n\
         anthropic:small at https://api.anthropic.com: unknown\n  \
           DIR/prices.json: it has no chat model `anthropic/small` or `small` of anthropic\n"
    );
    let listed = prices(&["small", "--format", "json"]).output().expect_code(0).json();
    assert_eq!(
        (&listed[0]["model"], &listed[0]["pricing"]["output"]),
        (&json!("small"), &json!(1.2))
    );
    let none = sandbox.delta(["models", "prices", "small"]).output().expect_code(126);
    assert!(
        none.stderr.starts_with("error: there is no price file\nhelp: export DELTA_PRICES="),
        "{}",
        none.stderr
    );
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
