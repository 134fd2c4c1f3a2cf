//! The LLM's key stays with the engine (C-15.2 to C-15.5).

mod answer;
mod background;
mod beneath;
mod bounds;
mod dotenv;
mod key;
mod later_output;
mod planted_run;
mod redaction;
mod screen;
mod setuid;
mod signals;
mod templates;
mod terminal;

use super::DELTA;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use test_support::sandbox::{Delta, Ran, Sandbox};
use test_support::server::{Answer, RecordedRequest, ScriptedServer};

const KEYS: [(&str, &str); 3] = [
    ("DELTA_API_KEY", "sk-delta-0123456789"),
    ("OPENAI_API_KEY", "sk-openai-\"quoted\\0123456789"),
    ("MY_KEY", "sk-mine-0123456789ä€"),
];

fn with_keys(delta: Delta) -> Delta {
    KEYS.iter().fold(delta, |delta, (name, value)| delta.env(name, *value))
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// Fails when a key stands in a file below `dir`, or on a stream; also in the form that JSON gives it.
#[track_caller]
fn no_key(sandbox: &Sandbox, dir: &str, ran: &Ran) {
    let files = sandbox.files(dir).into_iter().map(|name| {
        let bytes = fs::read(sandbox.path(dir).join(&name)).unwrap();
        (name, bytes)
    });
    let streams = [("stdout", &ran.stdout), ("stderr", &ran.stderr)];
    let streams = streams.map(|(name, text)| (name.to_owned(), text.clone().into_bytes()));
    for (name, bytes) in files.chain(streams) {
        for (variable, key) in KEYS {
            let escaped = json!(key).to_string();
            for form in [key, escaped.trim_matches('"')] {
                assert!(
                    !holds(&bytes, form),
                    "{variable} in {name}: {}",
                    String::from_utf8_lossy(&bytes)
                );
            }
        }
    }
}

#[test]
fn c_15_3_no_tool_and_no_generator_finds_a_key_in_its_environment() {
    let tools = "  - name: plain\n    shell: env > plain\n  - name: passed\n    shell: env > passed\n    pass_env: [OPENAI_API_KEY]\n";
    let sandbox = Sandbox::new(DELTA);
    sandbox.agent("provider: script\n  model: s.yaml\n  api_key_env: MY_KEY", tools);
    sandbox.write("agent/s.yaml", "turns:\n- call: [{tool: plain}, {tool: passed}]\n- say: ok\n");
    let generator = |name: &str, more: &str| {
        let command = format!("[sh, -c, 'env > {name}; echo x > ${{RUN_DIR}}/{name}']");
        format!(
            "  - type: computed_file\n    generator: {{command: {command}{more}}}\n    output_path: '${{RUN_DIR}}/{name}'\n"
        )
    };
    let (one, two) = (generator("gen", ""), generator("gen_passed", ", pass_env: [MY_KEY]"));
    sandbox.write("agent/context.yaml", format!("sources:\n{one}{two}  - type: journal\n"));
    with_keys(sandbox.run_command("hello", &[])).env("OTHER", "kept").output().expect_code(0);
    let found = |file: &str| -> Vec<&str> {
        let env = sandbox.read(&format!("work/{file}"));
        assert!(env.contains("OTHER=kept"));
        KEYS.iter()
            .filter(|(name, key)| env.contains(key) || env.contains(&format!("{name}=")))
            .map(|(name, _)| *name)
            .collect()
    };
    assert_eq!((found("plain"), found("passed")), (vec![], vec!["OPENAI_API_KEY"]));
    assert_eq!((found("gen"), found("gen_passed")), (vec![], vec!["MY_KEY"]));
    // Whoever keeps its environment has to know which of it is a key, when the name does not say it.
    let told = |file: &str| {
        let env = sandbox.read(&format!("work/{file}"));
        env.lines().find_map(|line| line.strip_prefix("DELTA_KEY_NAMES=")).map(str::to_owned)
    };
    let all = ["plain", "passed", "gen", "gen_passed"].map(told);
    assert_eq!(all, [None, None, None, Some("MY_KEY".to_owned())]);
}

/// A variable that is no key of a vendor reaches the tool that needs it.
#[test]
fn c_15_3_a_key_of_any_vendor_is_withheld_whichever_the_agent_uses() {
    const VENDORS: [&str; 4] =
        ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "GEMINI_API_KEY", "GOOGLE_API_KEY"];
    let tools = "  - name: plain\n    shell: env | grep sk-\n  - name: passed\n    shell: env | grep sk- > passed\n    pass_env: [ANTHROPIC_AUTH_TOKEN]\n";
    let turns = "  - call: [{tool: plain}, {tool: passed}]\n  - say: sk-GEMINI_API_KEY";
    let sandbox = Sandbox::scripted(DELTA, tools, turns);
    let others = ["GITHUB_TOKEN", "OTHER_API_KEY"];
    let run = sandbox.run_command("hello", &[]);
    let run =
        VENDORS.iter().chain(&others).fold(run, |run, name| run.env(name, format!("sk-{name}")));
    let ran = run.output().expect_code(0);
    let plain = &sandbox.observations()[0];
    assert!(others.iter().all(|name| plain.contains(&format!("{name}=sk-{name}"))), "{plain}");
    assert!(VENDORS.iter().all(|name| !plain.contains(name)), "{plain}");
    let passed = sandbox.read("work/passed");
    assert!(passed.contains("ANTHROPIC_AUTH_TOKEN=sk-ANTHROPIC_AUTH_TOKEN\n"), "{passed}");
    assert!(!passed.contains("ANTHROPIC_API_KEY"), "{passed}");
    assert!(ran.stdout.contains("\n[redacted]\n"), "{}", ran.stdout);
}

/// As a tool of an outer run, to which that run passed a key: what it starts itself does not get it by accident.
#[test]
fn c_15_3_a_key_that_an_outer_run_passed_goes_no_further() {
    let sandbox = Sandbox::scripted(
        DELTA,
        "  - name: plain\n    shell: env\n",
        "  - call: [{tool: plain}]\n  - say: ok",
    );
    let run = sandbox.run_command("hello", &[]).env("DELTA_KEY_NAMES", "OUTER_KEY");
    run.env("OUTER_KEY", "sk-outer-0123456789").output().expect_code(0);
    let read = |file: &String| std::fs::read(sandbox.path(&format!("work/{file}"))).unwrap();
    let all: Vec<u8> = sandbox.files("work").iter().flat_map(read).collect();
    let all = String::from_utf8_lossy(&all);
    assert!(all.contains("DELTA_CALL_ID=") && !all.contains("OUTER_KEY"), "{all}");
    assert!(!all.contains("sk-outer"), "{all}");
}

/// Tools that print what the LLM gives them, or what lies in the workspace, in several ways.
const LEAKS: &str = "  - name: say\n    exec: echo ${text}\n  \
    - name: show\n    shell: cat keys; cat keys >&2\n  \
    - name: split\n    shell: while read -r line; do for n in 1 5 9; do printf %s \"$line\" | cut -c$n-$((n+3)) | tr -d '\\n'; sleep 0.02; done; done < keys; printf %s sk-del; sleep 0.05; printf %s ta-0123456789\n  \
    - name: bulk\n    shell: head -c 70000 /dev/zero; cat keys; head -c 70000 /dev/zero\n  \
    - name: binary\n    shell: printf '\\377\\000'; cat keys\n";

/// An agent whose every file holds the keys.
fn leaking(server: &ScriptedServer, all: &str) -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    sandbox.agent(
        &format!(
            "model: m\n  base_url: {}\n  api_key_env: MY_KEY\n  user: sk-delta-0123456789",
            server.url()
        ),
        LEAKS,
    );
    sandbox.write("agent/note.md", format!("never say {all}"));
    sandbox.write("agent/system_prompt.md", format!("the keys are {all}"));
    let context = sandbox
        .read("agent/context.yaml")
        .replace("  - type: journal", "  - type: file\n    path: note.md\n  - type: journal");
    sandbox.write("agent/context.yaml", context);
    sandbox.write("work/keys", all);
    sandbox
}

#[test]
fn c_15_3_a_key_that_turns_up_is_written_nowhere() {
    // A header cannot hold a key that is not ASCII.
    let known = &KEYS[..2];
    let all = known.iter().map(|(_, key)| format!("{key}\n")).collect::<String>();
    let said = all.clone();
    let steps =
        move |request: &RecordedRequest| match request.body["messages"].as_array().unwrap().len() {
            3 => Answer::calls(vec![
                ("say", json!({"text": said})),
                ("show", json!({})),
                ("split", json!({})),
                ("bulk", json!({})),
                ("binary", json!({})),
                (&said, json!({"text": said})),
            ])
            .saying(&format!("I know {said}"))
            .thinking(&format!("I think of {said}")),
            10 => Answer::call("finish", json!({"result": {"answer": said, said.as_str(): 1}})),
            other => panic!("{other} messages"),
        };
    for format in ["json", "jsonl", "text"] {
        let server = ScriptedServer::start(steps.clone());
        let sandbox = leaking(&server, &all);
        for (_, key) in known {
            server.forbid(*key);
            server.forbid(json!(key).to_string().trim_matches('"'));
        }
        let message = format!("use {all}");
        let command =
            sandbox.run_command(&message, &["-v", "--format", format]).env("MY_KEY", known[0].1);
        let command = known.iter().fold(command, |command, (name, key)| command.env(name, *key));
        let ran = command.output().expect_code(0);
        no_key(&sandbox, "work/.delta", &ran);
        assert_eq!(server.violations(), Vec::<String>::new());
        assert!(ran.stderr.contains("[redacted]") && ran.stdout.contains("[redacted]"));
        let seen = sandbox.observations();
        assert!(seen.iter().take(3).all(|seen| seen.contains("[redacted]")), "{seen:?}");
        let messages = sandbox.events("USER_MESSAGE");
        assert!(
            messages[0]["content"].as_str().unwrap().starts_with("use [redacted]\n[redacted]\n")
        );
    }
}

#[test]
fn c_15_3_an_endpoint_that_repeats_the_key_does_not_spread_it() {
    let key = KEYS[0].1;
    let answers = [
        vec![Answer::error(
            401,
            &format!("Incorrect API key provided: {key}"),
            Some("invalid_api_key"),
        )],
        vec![
            Answer::error(500, &format!("{key} is overloaded"), None).header("Retry-After", "0"),
            Answer::text("ok"),
        ],
        vec![Answer::raw(400, format!("<html>{key}</html>"))],
        vec![Answer::raw(200, format!("oops {key}")), Answer::text("ok")],
        vec![Answer::event_stream(format!("data: {key}\n\n")), Answer::text("ok")],
        vec![Answer::text("ok").finish_reason(Some(key))],
    ];
    for answers in answers {
        let server = ScriptedServer::start(answers);
        let sandbox = Sandbox::new(DELTA);
        sandbox.agent(&format!("model: m\n  max_retries: 1\n  base_url: {}", server.url()), "");
        let ran = sandbox
            .run_command("hello", &["-v", "--format", "json"])
            .env("DELTA_API_KEY", key)
            .output();
        no_key(&sandbox, "work", &ran);
        assert!(ran.stderr.contains("[redacted]"), "{}", ran.stderr);
        assert_eq!(server.requests()[0].header("authorization"), Some(&*format!("Bearer {key}")));
    }
}

#[test]
fn c_15_3_the_other_providers_do_not_spread_the_key_either() {
    let message = format!("use {}", KEYS[0].1);
    let sandbox = Sandbox::scripted(DELTA, "", "- error: 'no ${task}'");
    let ran =
        with_keys(sandbox.run_command(&message, &["--format", "json"])).output().expect_code(1);
    no_key(&sandbox, "work", &ran);
    assert_eq!(ran.json()["error"]["message"], "no use [redacted]");

    let sandbox = Sandbox::new(DELTA);
    sandbox.agent("provider: command\n  model: m\n  api_key_env: DELTA_API_KEY\n  command: [sh, -c, 'echo \"my key is $DELTA_API_KEY\" >&2; exit 1']", "");
    let ran =
        with_keys(sandbox.run_command("hello", &["--format", "json"])).output().expect_code(1);
    no_key(&sandbox, "work", &ran);
    assert!(ran.stderr.contains("my key is [redacted]"), "{}", ran.stderr);
}

/// Runs the program as an ordinary user, also where the tests run as root, for whom nothing is unreadable.
fn as_user(sandbox: &Sandbox, command: &mut Command) {
    let me = fs::metadata("/proc/self").map(|data| std::os::unix::fs::MetadataExt::uid(&data));
    if me.unwrap() == 0 {
        let chown =
            Command::new("chown").args(["-R", "65534:65534"]).arg(sandbox.path("")).status();
        assert!(chown.unwrap().success());
        command.uid(65534).gid(65534);
    }
}

#[test]
fn c_15_3_the_engines_memory_is_not_readable_by_its_user() {
    let plain = Sandbox::new(DELTA);
    plain.copy_program(DELTA, "delta");
    let program = plain.path("delta").display().to_string();
    let tools = "  - name: t\n    shell: cat /proc/$PPID/environ; head -c1 /proc/$PPID/mem; head -c1 /proc/self/environ | wc -c\n";
    let sandbox = Sandbox::scripted(&program, tools, "- call: [{tool: t}]\n- say: ok");
    let mut delta = sandbox.run_command("hello", &[]).env("DELTA_API_KEY", KEYS[0].1);
    as_user(&plain, delta.command());
    as_user(&sandbox, delta.command());
    delta.output().expect_code(0);
    let seen = sandbox.observations().remove(0);
    assert!(seen.starts_with("1\n[stderr]\n"), "{seen}");
    assert_eq!(seen.matches("Permission denied").count(), 2, "{seen}");
}

#[test]
fn c_15_2_what_a_run_writes_is_private_whatever_the_umask() {
    let tools = "  - name: t\n    shell: head -c 100000 /dev/zero\n";
    let sandbox = Sandbox::scripted(
        DELTA,
        tools,
        "- call: [{tool: t}]\n- call: [{tool: finish, args: {result: x}}]",
    );
    let script = "umask 0; exec \"$0\" run --agent agent -w work --run-id r -m hello -q";
    let status = Command::new("sh")
        .args(["-c", script, DELTA])
        .current_dir(sandbox.path(""))
        .env("HOME", sandbox.path("home"))
        .stdout(std::process::Stdio::null())
        .status();
    assert!(status.unwrap().success());
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let run = sandbox.path("work/.delta/r");
    for file in sandbox.files("work/.delta/r") {
        assert_eq!(mode(&run.join(&file)), 0o600, "{file}");
    }
    for dir in ["", "io", "io/invocations", "io/tool_executions", "io/hooks", "agent"] {
        assert_eq!(mode(&run.join(dir)), 0o700, "{dir}");
    }
}

#[test]
fn c_15_2_a_control_plane_that_is_a_symlink_is_refused() {
    let sandbox = Sandbox::scripted(DELTA, "", "- say: ok");
    sandbox.write("elsewhere/keep", "");
    fs::create_dir(sandbox.path("work")).unwrap();
    std::os::unix::fs::symlink(sandbox.path("elsewhere"), sandbox.path("work/.delta")).unwrap();
    sandbox.run("hello", &[]).expect_code(126);
    assert_eq!(sandbox.files("elsewhere"), ["keep"]);
}

#[test]
fn c_15_5_nothing_steers_the_terminal() {
    let evil = "\u{1b}[2J\u{1b}]0;title\u{7}\u{9b}31m\r\u{8}";
    let answers = vec![
        Answer::calls(vec![("t", json!({"text": evil})), (evil, json!({evil: evil}))])
            .saying(evil)
            .thinking(evil),
        Answer::error(503, &format!("busy{evil}"), None).header("Retry-After", "0"),
        Answer::text(format!("end{evil}")),
    ];
    let server = ScriptedServer::start(answers);
    let sandbox =
        Sandbox::asking(DELTA, &server.url(), "  - name: t\n    exec: echo out ${text}\n");
    let ran = sandbox.run(&format!("task{evil}"), &["-v"]).expect_code(0);
    let controls =
        |text: &str| text.chars().filter(|c| c.is_control() && *c != '\n').collect::<Vec<_>>();
    assert_eq!((controls(&ran.stderr), controls(&ran.stdout)), (vec![], vec![]));
    // The LLM sees what the tool printed.
    let bodies: Vec<Value> = server.requests().into_iter().map(|request| request.body).collect();
    assert_eq!(bodies[1]["messages"][3]["content"], format!("out {evil}\n"));
}

/// `raw` printed the result of the LLM byte for byte, and `json` left U+009B as it was.
#[test]
fn c_15_5_no_format_steers_the_terminal_that_stdout_is() {
    let evil = "a\u{1b}[2J\u{1b}]0;title\u{7}\u{1b}]52;c;eA==\u{7}\u{9b}31m\u{202e}b";
    let server = ScriptedServer::for_anything(move |_: &RecordedRequest| Answer::text(evil));
    let sandbox = Sandbox::asking(DELTA, &server.url(), "");
    for format in ["text", "raw", "json", "jsonl"] {
        let shown = {
            let args =
                ["run", "--agent", "agent", "-w", "work", "-q", "-m", "go", "--format", format];
            let ran = sandbox.delta(args).wholly_at_terminal().end().expect_code(0);
            ran.stderr.replace("\r\n", "\n")
        };
        let controls: Vec<char> = shown.chars().filter(|c| c.is_control() && *c != '\n').collect();
        assert_eq!((controls, shown.contains('\u{202e}')), (vec![], false), "{format}: {shown:?}");
        if let Some(line) = shown.lines().last().filter(|_| format.starts_with("json")) {
            assert_eq!(serde_json::from_str::<Value>(line).unwrap()["result"], evil, "{format}");
        }
    }
    let args = ["run", "--agent", "agent", "-w", "work", "-q", "-m", "go", "--format", "raw"];
    assert_eq!(sandbox.delta(args).output().expect_code(0).stdout, format!("{evil}\n"));
}

/// A refusal showed what stood in a `.env` that the agent had written, escape sequences included.
#[test]
fn c_15_5_what_is_refused_does_not_steer_the_terminal_either() {
    let sandbox = Sandbox::new(DELTA);
    sandbox.agent("model: m", "");
    sandbox.write("work/.env", "DELTA_BASE_URL=\"http://\u{1b}[2J\u{1b}]0;title\u{7}\u{8}evil\"\n");
    // Trusted, because delta does not read it otherwise.
    let ran = sandbox.run_command("task", &["-q"]).env("DELTA_TRUST", "work").output();
    let said = "error: expected the URL of an LLM endpoint, found `http://evil`\n\
                help: write it with its scheme, such as `http://localhost:11434/v1`\n";
    ran.expect(126, "", said);
}

/// The key of a local server was also the name of a directory, and the journal said `[redacted]` where the agent was.
#[test]
fn c_15_3_a_run_goes_on_whose_path_holds_the_value_of_a_key() {
    let sandbox = Sandbox::new(DELTA);
    sandbox.agent("provider: script\n  model: s.yaml", "");
    sandbox.write("agent/s.yaml", "turns:\n- say: one local-llm\n- say: two\n");
    fs::rename(sandbox.path("agent"), sandbox.path("local-llm")).unwrap();
    let with_key = |args: &[&str]| {
        sandbox.delta(args).env("DELTA_API_KEY", "local-llm").output().expect_code(0).stdout
    };
    let run = ["run", "--agent", "local-llm", "-w", "work", "--run-id", "r", "-m", "go"];
    let more = ["continue", "-w", "work", "--run-id", "r", "-m", "on"];
    let raw = |args: &[&'static str]| with_key(&[args, &["--format", "raw"]].concat());
    assert_eq!((raw(&run), raw(&more)), ("one [redacted]\n".into(), "two\n".into()));
    let home = sandbox.path("local-llm").canonicalize().unwrap();
    assert_eq!(sandbox.metadata()["agent_home"], home.to_str().unwrap());
}
