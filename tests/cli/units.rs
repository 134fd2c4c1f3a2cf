//! Times and counts with units (C-25.11), and the names of commands in other programs (C-25.12).

use super::DELTA;
use serde_json::json;
use test_support::sandbox::Sandbox;

#[test]
fn c_25_11_options_take_times_and_counts() {
    let sandbox = Sandbox::scripted(DELTA, "", "- say: done");
    let run = |more: &[&str]| {
        let args = ["run", "--agent", "agent", "-w", "work", "--format", "raw", "-q", "hi"];
        sandbox.delta(args.iter().chain(more).copied()).output()
    };
    for more in
        ["--max-duration=90s", "--max-duration=3d", "--max-tokens=200k", "--max-tokens=1.5M"]
    {
        run(&[more]).expect(0, "done\n", "");
    }
    let refused = [
        ("--max-duration=90", "a time needs a unit: write 90s, or 90ms for milliseconds"),
        ("--max-duration=soon", "expected a time with a unit, such as 90s, 10m, 2h or 3d"),
        ("--max-duration=0s", "expected a time from 1ms to 12725d"),
        (
            "--max-tokens=2K",
            "expected a whole number from 1 to 9007199254740991, or a count such as 2k or 1.5M",
        ),
    ];
    for (option, expected) in refused {
        let ran = run(&[option]).expect_code(2);
        assert!(ran.stderr.contains(expected), "{option}: {}", ran.stderr);
    }
    let tokens = run(&["--max-tokens=0.01k"]).expect_code(1);
    assert!(tokens.stderr.contains("limit of 10 tokens"), "{}", tokens.stderr);
}

#[test]
fn c_25_11_yaml_takes_times_and_counts() {
    let tools = "  - {name: slow, shell: 'sleep 60', timeout_ms: 0.3s}\n";
    let sandbox =
        Sandbox::scripted(DELTA, tools, "- call: [{tool: slow}]\n- say: done\n  delay_ms: 1ms");
    let agent = sandbox.read("agent/agent.yaml");
    sandbox.write(
        "agent/agent.yaml",
        format!("{agent}limits: {{max_tokens: 1.5M, max_duration_ms: 1h30m}}\n"),
    );
    let context = sandbox.read("agent/context.yaml");
    sandbox.write("agent/context.yaml", format!("total_max_tokens: 50k\n{context}"));
    sandbox.run("hi", &[]).expect_code(0);
    assert!(sandbox.observations()[0].contains("300 ms"), "{:?}", sandbox.observations());
    let limits: serde_json::Value =
        serde_json::from_str(sandbox.read("work/.delta/r/budget.jsonl").lines().next().unwrap())
            .unwrap();
    assert_eq!(
        limits["limits"],
        json!({"max_tokens": 1_500_000, "max_duration_ms": 5_400_000}),
        "{limits}"
    );
    for (wrong, right) in [("1.5M", "1.5X"), ("1h30m", "-1h"), ("0.3s", "soon")] {
        let before = sandbox.read("agent/agent.yaml");
        sandbox.write("agent/agent.yaml", before.replace(wrong, right));
        let ran = sandbox
            .delta(["run", "--agent", "agent", "-w", "other", "x"])
            .output()
            .expect_code(126);
        assert!(ran.stderr.contains("must be a whole number from 1 to "), "{}", ran.stderr);
        sandbox.write("agent/agent.yaml", before);
    }
}

#[test]
fn c_25_11_the_schemas_for_editors_have_the_units() {
    let sandbox = Sandbox::new(DELTA);

    let schema = sandbox.delta(["schema", "agent"]).output().expect_code(0).json();
    let text = schema.to_string();
    assert!(text.contains("^[0-9]+([.][0-9]+)?[kM]$") && text.contains("hrs?|hours?"), "{text}");
}

#[test]
fn c_25_12_an_unknown_command_gets_what_can_be_typed() {
    let sandbox = Sandbox::new(DELTA);
    for (typed, proposed) in [
        ("lint", "use `delta tool lint`"),
        ("ls", "use `delta list-runs`"),
        ("ps", "use `delta list-runs`"),
        ("logs", "use `delta show`"),
        ("resume", "use `delta continue`"),
        ("tail", "use `delta show --follow`"),
        ("remove", "use `delta rm`"),
        ("contnue", "'continue'"),
        ("runs", "use `delta list-runs`"),
        ("version", "use `delta --version`"),
        ("kill", "use `delta stop`"),
        ("undo", "use `delta rollback`"),
        ("validat", "use `delta tool lint`"),
        ("rnu", "use `delta run`"),
        ("fix the test", "`delta run 'fix the test'`"),
        ("login", "set DELTA_API_KEY"),
        ("cost", "use `delta list-runs --cost`, `delta context cost` or `delta sweep cost`\n"),
        ("compare", "use `delta diff` or `delta sweep compare`\n"),
        ("status", "use `delta show` or `delta sweep status`\n"),
        ("expand", "use `delta tool expand`\n"),
        ("call", "use `delta mcp call`\n"),
        ("pty", "use `delta sessions pty`\n"),
        ("usage", "use `delta list-runs --cost`"),
        ("eval", "`delta sweep` with models"),
        ("update", "`cargo install` or apt"),
        ("agents", "`delta run --agent DIR`"),
        ("chat", "use `delta run`"),
    ] {
        let ran = sandbox.delta([typed]).output().expect_code(2);
        assert!(ran.stderr.contains(proposed), "{typed}: {}", ran.stderr);
        assert!(!ran.stderr.contains("tool:"), "{typed}: {}", ran.stderr);
    }
    for (typed, proposed) in [
        (&["run", "--resume", "x"][..], "tip: use `delta continue`"),
        (&["run", "-c", "x"], "tip: use `delta continue`"),
        (&["continue", "--last"], "tip: use `delta continue`"),
        (&["run", "--yolo", "x"], "tip: use `--approve-all`"),
        (&["run", "--dangerously-skip-permissions", "x"], "tip: use `--approve-all`"),
        (&["--yolo"], "tip: use `--approve-all`"),
        (&["run", "--full-auto", "x"], "tip: use `--approve-all --sandbox workspace`"),
        (&["run", "--allowedTools", "Bash", "x"], "tip: write `approve` into agent.yaml"),
        (&["run", "--max-turns", "3", "x"], "tip: use `--max-iterations N`"),
        (&["continue", "--max-turns=3"], "tip: use `--max-iterations N`"),
        (&["run", "--budget", "3", "x"], "tip: use `--max-cost USD`"),
        (&["run", "--output-format", "json", "x"], "tip: use `--format json`"),
        (&["run", "-C", "dir", "x"], "tip: use `-w DIR`"),
        (&["run", "--system-prompt", "x"], "system_prompt.md"),
        (&["mcp", "add", "files"], "tip: write the server below `mcp` in agent.yaml"),
        (&["run", "-p", "x"], "tip: the task is an argument"),
        (&["-p", "x"], "tip: the task is an argument"),
        (&["config", "set", "model", "x"], "home/.config/delta/config.yaml"),
        (&["--verson"], "'--version'"),
        (&["fix", "the", "test"], "`delta run 'fix the test'`"),
    ] {
        let ran = sandbox.delta(typed.iter().copied()).output().expect_code(2);
        assert!(ran.stderr.contains(proposed), "{typed:?}: {}", ran.stderr);
        assert_eq!(ran.stderr.matches("tip:").count(), 1, "{typed:?}: {}", ran.stderr);
    }
    let hidden = sandbox.delta(["tool:lnt"]).output().expect_code(2);
    assert!(!hidden.stderr.contains("tool:lint"), "{}", hidden.stderr);
}

#[test]
fn c_25_12_a_command_of_a_program_is_proposed_with_its_name() {
    let sandbox = Sandbox::new(DELTA);
    for program in ["sweep", "sessions"] {
        let help = sandbox.delta([program, "--help"]).output().expect_code(0).stdout;
        let list = help.split("\nCommands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
        let names = list.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
        let unknown = names.filter(|name| !name.is_empty() && !known_to_delta(&sandbox, name));
        for name in unknown {
            let ran = sandbox.delta([name]).output().expect_code(2);
            let proposed = format!("`delta {program} {name}`");
            assert!(ran.stderr.contains(&proposed), "{name}: {}", ran.stderr);
        }
    }
}

fn known_to_delta(sandbox: &Sandbox, command: &str) -> bool {
    sandbox.delta([command, "--help"]).output().code == 0
}
