//! A password or a key in the address of an endpoint: it is sent, and neither shown nor recorded (C-15.3).

use super::DELTA;
use super::runs::resume;
use test_support::sandbox::{Ran, Sandbox};
use test_support::server::{Answer, ScriptedServer};

const SECRETS: [&str; 4] = ["hunter", "long-password", "abcdef", "0123456789"];

/// The address with a short and a long secret at each place.
fn addresses(url: &str) -> [String; 2] {
    let rest = url.strip_prefix("http://").unwrap();
    [
        format!("http://me:hunter@{rest}?api_key=0123456789&api-version=1"),
        format!("http://me:long-password@{rest}?key=abcdef&api-version=1"),
    ]
}

#[track_caller]
fn shows_no_secret(ran: &Ran) {
    for secret in SECRETS {
        let text = format!("{}{}", ran.stdout, ran.stderr);
        assert!(!text.contains(secret), "{secret}: {text}");
    }
}

#[track_caller]
fn records_no_secret(sandbox: &Sandbox) {
    for name in sandbox.files("work/.delta/r") {
        let text = sandbox.read(&format!("work/.delta/r/{name}"));
        for secret in SECRETS {
            assert!(!text.contains(secret), "{secret} is in {name}: {text}");
        }
    }
}

fn agent_at(address: &str) -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    let tools = "  - name: env\n    exec: env\n";
    let llm = format!("model: m\n  max_retries: 0\n  base_url: \"{address}\"");
    sandbox.agent(&llm, tools);
    sandbox
}

#[test]
fn c_15_3_a_secret_in_an_address_is_sent_and_neither_shown_nor_recorded() {
    for (index, secret) in ["0123456789", "long-password"].into_iter().enumerate() {
        let answers = vec![
            Answer::call("env", serde_json::json!({})),
            Answer::error(404, &format!("no such model for {secret}"), None),
            Answer::text("done"),
        ];
        let server = ScriptedServer::start(answers);
        let address = &addresses(&server.url())[index];
        let sandbox = agent_at(address);
        let ran = sandbox
            .run_command("task", &["-v", "--format", "jsonl"])
            .env("OPENAI_BASE_URL", address.clone())
            .output()
            .expect_code(1);
        shows_no_secret(&ran);
        assert!(ran.stderr.contains("http://me:[redacted]@127.0.0.1:"), "{}", ran.stderr);
        assert!(ran.stderr.contains("=[redacted]&api-version=1"), "{}", ran.stderr);
        let request = &server.requests()[0];
        let query = address.split_once('?').unwrap().1;
        assert_eq!(request.target, format!("POST /v1/chat/completions?{query}"));
        assert!(request.header("authorization").is_some_and(|value| value.starts_with("Basic ")));
        shows_no_secret(&resume(&sandbox, &["--retry", "llm"]).expect_code(0));
        records_no_secret(&sandbox);
        for args in [&["show", "r", "-v"][..], &["replay", "r"], &["context", "r"]] {
            shows_no_secret(&sandbox.delta(args.iter().chain(&["-w", "work"]).copied()).output());
        }
    }
}

#[test]
fn c_15_3_errors_and_listings_mask_a_secret_in_an_address() {
    for address in addresses("http://127.0.0.1:9/v1") {
        let sandbox = agent_at(&address);
        let refused = sandbox.run("task", &[]).expect_code(1);
        assert!(
            refused.stderr.contains("could not connect to http://me:[redacted]@"),
            "{refused:?}"
        );
        shows_no_secret(&refused);
        records_no_secret(&sandbox);
        let lint = sandbox.delta(["tool", "lint", "agent"]).output();
        assert!(lint.stdout.contains("contains a password or a key"), "{lint:?}");
        shows_no_secret(&lint);

        let broken = agent_at(&address.replacen("http:", "htp:", 1));
        let broken = broken.run("task", &[]).expect_code(126);
        assert!(broken.stderr.contains("found `htp://me:[redacted]@"), "{}", broken.stderr);
        shows_no_secret(&broken);

        let other = Sandbox::new(DELTA);
        other.agent("model: m", "");
        for args in [&["config"][..], &["config", "--format", "json"], &["doctor"], &["models"]] {
            let listed = other.delta(args.iter().copied()).env("OPENAI_BASE_URL", &*address);
            let listed = listed.env("DELTA_API_KEY", "sk-a-key-for-this").output();
            shows_no_secret(&listed);
            let text = format!("{}{}", listed.stdout, listed.stderr);
            assert!(text.contains("me:[redacted]@127.0.0.1"), "{args:?}: {text}");
        }
        let public = address.replace("127.0.0.1", "host.invalid");
        let no_key = other.run_command("task", &[]).env("OPENAI_BASE_URL", public);
        let no_key = no_key.output().expect_code(126);
        assert!(no_key.stderr.contains("no API key for http://me:[redacted]@"), "{no_key:?}");
        shows_no_secret(&no_key);
    }
}

#[test]
fn c_15_3_an_address_of_an_option_is_named_again_for_the_next_process() {
    let server = ScriptedServer::start(vec![Answer::text("one"), Answer::text("two")]);
    let address = &addresses(&server.url())[0];
    let sandbox = Sandbox::new(DELTA);
    sandbox.agent("model: m", "");
    let option = format!("base_url='{address}'");
    let ensured = ["--ensure", "--llm", &option];
    sandbox.run("task", &ensured).expect_code(0);
    let again = sandbox.run("task", &ensured).expect_code(0);
    assert!(!again.stderr.contains("other values of `--llm`"), "{}", again.stderr);
    let refused = resume(&sandbox, &["-m", "more"]).expect_code(126);
    assert!(refused.stderr.contains("whose secret is not recorded"), "{}", refused.stderr);
    shows_no_secret(&refused);
    resume(&sandbox, &["-m", "more", "--llm", &option]).expect_code(0);
    records_no_secret(&sandbox);
}
