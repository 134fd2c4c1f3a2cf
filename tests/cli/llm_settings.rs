//! `--llm KEY=VALUE`: a key of `llm` for one run.

use super::DELTA;
use super::runs::resume;
use serde_json::Value;
use test_support::sandbox::Sandbox;

fn scripted() -> Sandbox {
    Sandbox::scripted(DELTA, "", "- say: one\n- say: two\n- say: three\n")
}

/// The request of an iteration.
fn request(sandbox: &Sandbox, run: &str, iteration: &str) -> Value {
    let args = ["show", run, "-w", "work", "--request", iteration];
    sandbox.delta(args).output().expect_code(0).json()
}

#[test]
fn a_setting_counts_for_the_run_and_for_everything_that_continues_it() {
    let sandbox = scripted();
    let settings = ["--llm", "temperature=0.7", "--llm", "seed=3", "--llm", "seed=4"];
    sandbox.run("task", &settings).expect_code(0);
    let recorded = &sandbox.events("ENGINE_START")[0]["config"]["llm"]["settings"];
    assert_eq!(*recorded, serde_json::json!(["temperature=0.7", "seed=3", "seed=4"]));
    let first = request(&sandbox, "r", "1");
    assert_eq!((&first["temperature"], &first["seed"]), (&0.7.into(), &4.into()));
    resume(&sandbox, &["-m", "more"]).expect_code(0);
    let second = request(&sandbox, "r", "2");
    assert_eq!((&second["temperature"], &second["seed"]), (&0.7.into(), &4.into()));
    let fork =
        ["fork", "r", "-w", "work", "--run-id", "f", "--into", "work", "--at", "1", "-m", "x"];
    sandbox.delta(fork).output().expect_code(0);
    assert_eq!(request(&sandbox, "f", "2")["temperature"], 0.7);
    // A later command sets one of them again.
    resume(&sandbox, &["-m", "more", "--llm", "seed=5"]).expect_code(0);
    let third = request(&sandbox, "r", "3");
    assert_eq!((&third["temperature"], &third["seed"]), (&0.7.into(), &5.into()));
    sandbox.delta(["replay", "r", "-w", "work"]).output().expect_code(0);
}

#[test]
fn a_setting_is_checked_as_agent_yaml_is() {
    let sandbox = scripted();
    let agent = sandbox.read("agent/agent.yaml");
    for (key, value) in [("temperature", "hot"), ("messages", "[]"), ("max_retries", "-1")] {
        let with_option = sandbox.run("task", &["--llm", &format!("{key}={value}")]);
        let edited = agent.replacen("llm:", &format!("llm:\n  {key}: {value}"), 1);
        sandbox.write("agent/agent.yaml", edited);
        let in_file = sandbox.run("task", &[]).expect_code(126);
        sandbox.write("agent/agent.yaml", &*agent);
        // Line and column differ.
        let message = |stderr: &str| {
            let line = stderr.lines().find(|line| line.contains(key)).unwrap_or_default();
            line.rsplit(": ").next().unwrap_or_default().to_owned()
        };
        let refused = with_option.expect_code(126).stderr;
        assert_eq!(message(&refused), message(&in_file.stderr));
        assert!(refused.contains("agent.yaml with --llm"), "{refused}");
    }
    let refused = sandbox.run("task", &["--llm", "temperature"]).expect_code(2);
    assert!(
        refused.stderr.contains("expected KEY=VALUE, such as `temperature=0.7`"),
        "{}",
        refused.stderr
    );
}

#[test]
fn a_setting_close_to_a_known_key_is_noted() {
    let sandbox = scripted();
    let ran = sandbox.run("task", &["--llm", "temprature=0.1"]).expect_code(0);
    let note = "Note: `--llm temprature` is a key that delta does not know, and goes into the request; did you mean `temperature`?\n";
    assert!(ran.stderr.starts_with(note), "{}", ran.stderr);
    let ran = scripted().run("task", &["--llm", "seed=5"]).expect_code(0);
    assert!(!ran.stderr.contains("does not know"), "{}", ran.stderr);
}

#[test]
fn a_limit_in_the_section_of_the_llm_is_refused() {
    let limits = [
        ("max_cost: 1", "it belongs under `limits:`, next to `llm:`"),
        ("max_duration_ms: 1", "it belongs under `limits:`, next to `llm:`"),
        ("max_iterations: 1", "it belongs next to `llm:`"),
        ("limits: {max_cost: 1}", "it belongs next to `llm:`"),
    ];
    for (line, help) in limits {
        let sandbox = scripted();
        let agent = sandbox.read("agent/agent.yaml");
        sandbox.write("agent/agent.yaml", agent.replacen("llm:", &format!("llm:\n  {line}"), 1));
        let refused = sandbox.run("task", &[]).expect_code(126).stderr;
        assert!(refused.ends_with(&format!("  = help: {help}\n")), "{refused}");
    }
    let sandbox = Sandbox::scripted(DELTA, "limits: {max_iterations: 3}\n", "- say: one\n");
    let refused = sandbox.run("task", &[]).expect_code(126).stderr;
    assert!(refused.ends_with("  = help: it belongs next to `limits:`\n"), "{refused}");
}

#[test]
fn ensure_reports_a_run_of_other_settings() {
    let sandbox = scripted();
    sandbox.run("task", &["--llm", "temperature=0.7"]).expect_code(0);
    let again = sandbox.run("task", &["--ensure", "--llm", "temperature=0.7"]).expect_code(0);
    assert_eq!(again.stderr, "");
    for (settings, named) in [(&[][..], "none"), (&["--llm", "seed=1"][..], "seed=1")] {
        let other = sandbox.run("task", &[&["--ensure"], settings].concat()).expect_code(0);
        let expected = format!(
            "Note: run r was made with other values of `--llm`: temperature=0.7, and now {named}\n"
        );
        assert_eq!(other.stderr, expected);
    }
}

#[test]
fn c_11_2_ensure_reports_a_result_of_another_model() {
    let sandbox = scripted();
    sandbox.write("other.yaml", "turns:\n- say: other\n");
    sandbox.run("task", &[]).expect_code(0);
    let ensure = |more: &[&str]| {
        sandbox.run("task", &[&["--ensure", "--format", "raw"], more].concat()).expect_code(0)
    };
    let note = "Note: run r was made with another model, script:script.yaml: a stored result is from that model\n";
    for model in ["script:other.yaml", "openai:gpt-4o"] {
        let ran = ensure(&["--model", model]);
        assert_eq!((&*ran.stdout, &*ran.stderr), ("one\n", note));
    }
    for same in [&[][..], &["--model", "script:script.yaml"]] {
        assert_eq!(ensure(same).stderr, "");
    }
}
