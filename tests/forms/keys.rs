//! Keys that commands print, and the headers in which keys are sent.

use super::{DELTA, ECHO, records};
use serde_json::json;
use test_support::sandbox::{Delta, Sandbox};
use test_support::server::{Answer, RecordedRequest, ScriptedServer};

const REJECTED: &str = "Incorrect API key provided";

/// An agent whose command prints `home/key` and counts its runs in `home/asked`; `llm` are more lines of its section.
fn agent_with_command(server: &ScriptedServer, llm: &str, key: &str) -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    let llm_lines = format!(
        "model: test-model\n  base_url: {}\n  api_key_command: [sh, '${{AGENT_HOME}}/key.sh']{llm}",
        server.url()
    );
    let tools = format!("{ECHO}  - name: show\n    shell: cat $HOME/key; printenv\n");
    sandbox.agent(&llm_lines, &tools);
    sandbox.write("agent/key.sh", "pwd >> $HOME/asked; cat $HOME/key || exit 3");
    sandbox.write("home/key", format!("{key}\n"));
    sandbox
}

fn count_asked(sandbox: &Sandbox) -> usize {
    sandbox.read("home/asked").lines().count()
}

fn bearer(request: &RecordedRequest) -> &str {
    request.header("authorization").unwrap_or_default()
}

/// Fails if a file of the run contains `text`.
fn expect_unwritten(sandbox: &Sandbox, text: &str) {
    for file in sandbox.files("work") {
        assert!(!sandbox.read(&format!("work/{file}")).contains(text), "{file}");
    }
}

#[test]
fn c_1_8_a_command_of_the_agent_prints_the_key() {
    let server = ScriptedServer::start(vec![Answer::call("show", json!({})), Answer::text("done")]);
    let sandbox = agent_with_command(&server, "", "sk-printed-1");
    let run = sandbox.run_command("hello", &[]).env("DELTA_API_KEY", "sk-operator-1");
    let ran = run.output().expect_code(0);
    assert!(server.requests().iter().all(|request| bearer(request) == "Bearer sk-printed-1"));
    let home = sandbox.path("home");
    assert_eq!(sandbox.read("home/asked"), format!("{}\n", home.display()), "once, and at home");
    assert!(sandbox.observations()[0].starts_with("[redacted]\n"), "{}", sandbox.observations()[0]);
    for key in ["sk-printed-1", "sk-operator-1"] {
        expect_unwritten(&sandbox, key);
        assert!(!ran.stderr.contains(key));
    }
}

/// The key of a rejected request is replaced, and the new one is a secret like the first.
#[test]
fn c_1_8_a_rejected_key_is_asked_for_once_more() {
    let server = ScriptedServer::start(vec![
        Answer::call("echo", json!({"text": "x"})),
        Answer::error(401, &format!("{REJECTED}: sk-printed-1"), None),
        Answer::call("show", json!({})),
        Answer::text("done"),
    ]);
    let sandbox = agent_with_command(&server, "", "sk-printed-1");
    // The tool renews the key, as time would.
    let yaml = sandbox.read("agent/agent.yaml");
    let renew = "    shell: cp $HOME/next $HOME/key; echo ${text}\n";
    sandbox.write("home/next", "sk-printed-22\n");
    sandbox.write("agent/agent.yaml", yaml.replace("    exec: echo ${text}\n", renew));
    let ran = sandbox.run("hello", &[]).expect_code(0);
    let keys: Vec<_> = server.requests().iter().map(|r| bearer(r).to_owned()).collect();
    let [old, new] = ["Bearer sk-printed-1", "Bearer sk-printed-22"];
    assert_eq!(keys, [old, old, new, new]);
    assert_eq!(count_asked(&sandbox), 2);
    let attempts = records(&sandbox)[1]["attempts"].clone();
    assert_eq!(attempts[0]["retry_in_ms"], 0);
    assert!(sandbox.observations()[1].starts_with("[redacted]\n"), "{:?}", sandbox.observations());
    expect_unwritten(&sandbox, "sk-printed");
    assert!(!ran.stderr.contains("sk-printed"), "{}", ran.stderr);
}

#[test]
fn c_1_8_a_key_that_stays_rejected_fails_the_run() {
    let rejection = || Answer::error(401, REJECTED, None);
    // The same key again: another try would change nothing.
    let server = ScriptedServer::start(vec![rejection()]);
    let sandbox = agent_with_command(&server, "", "sk-printed-1");
    let ran = sandbox.run("hello", &[]).expect_code(1);
    assert!(ran.stderr.contains(REJECTED), "{}", ran.stderr);
    let path = sandbox.path("agent/key.sh").display().to_string();
    let hint = format!("`sh {path}` (llm.api_key_command) prints a key that the endpoint rejects");
    assert!(ran.stderr.contains(&hint), "{}", ran.stderr);
    assert_eq!((server.requests().len(), count_asked(&sandbox)), (1, 2));
    // Always another key: asked once more, not forever.
    let server = ScriptedServer::start(vec![rejection(), rejection()]);
    let sandbox = agent_with_command(&server, "", "");
    sandbox.write(
        "agent/key.sh",
        "echo x >> $HOME/asked; echo sk-printed-$(wc -l < $HOME/asked | tr -d ' ')",
    );
    sandbox.run("hello", &[]).expect_code(1);
    assert_eq!((server.requests().len(), count_asked(&sandbox)), (2, 2));
    // A command that fails now.
    let server = ScriptedServer::start(vec![rejection()]);
    let sandbox = agent_with_command(&server, "", "sk-printed-1");
    sandbox
        .write("agent/key.sh", "cat $HOME/key && rm $HOME/key || { echo logged out >&2; exit 3; }");
    let ran = sandbox.run("hello", &[]).expect_code(1);
    let message =
        "the command of `llm.api_key_command` did not print the API key: it exited with 3";
    assert!(ran.stderr.contains(message) && ran.stderr.contains("logged out"), "{}", ran.stderr);
}

#[test]
fn c_1_8_an_old_key_is_asked_for_again() {
    for (ttl, asked) in [("", 1), ("\n  api_key_ttl_ms: 1", 3)] {
        let server = ScriptedServer::start(vec![
            Answer::call("echo", json!({"text": "x"})),
            Answer::text("done"),
        ]);
        let sandbox = agent_with_command(&server, ttl, "sk-printed-1");
        sandbox.run("hello", &[]).expect_code(0);
        assert_eq!(count_asked(&sandbox), asked);
    }
}

#[test]
fn c_1_8_a_command_without_a_key_is_an_error_before_anything_is_created() {
    for (script, message) in [
        ("echo locked >&2; exit 4", "it exited with 4"),
        ("true", "found nothing"),
        ("echo a; echo b", "found several lines"),
    ] {
        let server = ScriptedServer::start(vec![]);
        let sandbox = agent_with_command(&server, "", "");
        sandbox.write("agent/key.sh", script);
        let ran = sandbox.run("hello", &[]).expect_code(126);
        assert!(ran.stderr.contains(message), "{}", ran.stderr);
        assert!(!sandbox.path("work/.delta").exists());
    }
    for (llm, message) in [
        ("api_key_command: []", "`api_key_command` has no program"),
        ("api_key_command: [a]\n  api_key_env: B", "exclude each other"),
    ] {
        let sandbox = Sandbox::new(DELTA);
        sandbox.agent(&format!("model: m\n  {llm}"), "");
        let ran = sandbox.run("hello", &[]).expect_code(126);
        assert!(ran.stderr.contains(message), "{}", ran.stderr);
    }
}

/// The command comes with the agent: it must not be a way for a key of the operator to an address of the agent's.
#[test]
fn c_20_3_the_agents_command_gets_no_key_of_the_operator() {
    let server = ScriptedServer::start(vec![Answer::text("done")]);
    let sandbox = agent_with_command(&server, "", "");
    sandbox.write("agent/key.sh", "printenv > $HOME/env; echo sk-printed-1");
    sandbox.write("agent/.env", "OPENAI_API_KEY=sk-of-the-agent\n");
    let run = sandbox.run_command("hello", &[]).env("DELTA_API_KEY", "sk-operator-1");
    run.env("DELTA_API_KEY_COMMAND", "echo sk-operator-2").env("MINE", "1").output().expect_code(0);
    let env = sandbox.read("home/env");
    assert!(!env.contains("sk-operator"), "{env}");
    assert!(env.contains("MINE=1\n") && env.contains("OPENAI_API_KEY=sk-of-the-agent\n"), "{env}");
}

#[test]
fn c_20_3_the_agents_key_goes_to_no_address_of_the_workspace() {
    let server = ScriptedServer::start(vec![Answer::text("done")]);
    let sandbox = agent_with_command(&server, "", "sk-printed-1");
    let yaml = sandbox.read("agent/agent.yaml");
    let yaml =
        yaml.lines().filter(|line| !line.contains("base_url")).collect::<Vec<_>>().join("\n");
    sandbox.write("agent/agent.yaml", yaml);
    sandbox.write("work/.env", "DELTA_BASE_URL=http://collector.example/v1\n");
    let trusting = |run: Delta| run.env("DELTA_TRUST", "*");
    let ran = trusting(sandbox.run_command("hello", &[])).output().expect_code(126);
    assert!(
        ran.stderr.contains("is not sent to collector.example")
            && ran.stderr.contains("delta trust --endpoint collector.example"),
        "{}",
        ran.stderr
    );
    // The operator's own choice of an address counts.
    let run = sandbox.run_command("hello", &[]).env("DELTA_BASE_URL", server.url());
    run.output().expect_code(0);
    assert_eq!(bearer(&server.requests()[0]), "Bearer sk-printed-1");
}

#[test]
fn c_20_3_another_provider_of_the_operators_does_not_get_the_agents_key() {
    let server = ScriptedServer::for_anything(vec![Answer::text("done")]);
    let sandbox = agent_with_command(&server, "", "sk-printed-1");
    let run = sandbox.run_command("hello", &["--model", "anthropic:m"]);
    run.env("ANTHROPIC_API_KEY", "sk-operator-1").output();
    assert!(!sandbox.path("home/asked").exists());
}

#[test]
fn c_1_8_the_operators_command_may_differ_by_provider() {
    let config = "api_key_command: {anthropic: echo sk-of-anthropic, openai: 'echo sk-of-openai; echo x >> ~/asked'}\n";
    let server = ScriptedServer::for_anything(vec![
        Answer::error(401, REJECTED, None),
        Answer::text("done"),
    ]);
    for (provider, header, value) in [
        ("anthropic", "x-api-key", "sk-of-anthropic"),
        ("openai", "authorization", "Bearer sk-of-openai"),
    ] {
        let sandbox = Sandbox::new(DELTA);
        sandbox.agent(&format!("provider: {provider}\n  model: m"), "");
        sandbox.write("home/.config/delta/config.yaml", config);
        let variable = if provider == "openai" { "DELTA_BASE_URL" } else { "ANTHROPIC_BASE_URL" };
        // Not a loopback address by its name, so that a key is needed.
        let url = server.url().replace("127.0.0.1", "127.1");
        let ran = sandbox.run_command("hello", &[]).env(variable, url).output();
        let requests = server.requests();
        assert_eq!(requests.last().unwrap().header(header), Some(value), "{}", ran.stderr);
    }
    for (config, message) in [
        ("api_key_command: {opnai: x}\n", "unknown key `opnai` in `api_key_command`"),
        ("api_key_command: {openai: ''}\n", "the command for `openai` is empty"),
    ] {
        let sandbox = Sandbox::new(DELTA);
        sandbox.write("home/.config/delta/config.yaml", config);
        let ran = sandbox.delta(["config"]).output().expect_code(126);
        assert!(ran.stderr.contains(message), "{}", ran.stderr);
    }
    let sandbox = Sandbox::new(DELTA);
    sandbox.write(
        "home/.config/delta/config.yaml",
        "api_key_command: {anthropic: pass show a, openai: pass show o}\n",
    );
    let listed = sandbox.delta(["config"]).output().expect_code(0).stdout;
    assert!(listed.contains("anthropic: pass show a, openai: pass show o"), "{listed}");
}

#[test]
fn c_23_1_a_token_of_anthropic_is_a_bearer() {
    for (variable, header, value) in [
        ("ANTHROPIC_API_KEY", "x-api-key", "sk-of-anthropic"),
        ("ANTHROPIC_AUTH_TOKEN", "authorization", "Bearer sk-of-anthropic"),
    ] {
        let server = ScriptedServer::for_anything(vec![Answer::error(400, "enough", None)]);
        let sandbox = Sandbox::new(DELTA);
        sandbox.agent("provider: anthropic\n  model: m", "");
        let run = sandbox.run_command("hello", &[]).env(variable, "sk-of-anthropic");
        run.env("ANTHROPIC_BASE_URL", server.root_url()).output().expect_code(1);
        assert_eq!(server.requests()[0].header(header), Some(value));
    }
}
