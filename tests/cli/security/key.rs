//! The key goes only to an address that the operator chose (C-20.3), and is not left where others can read it.

use crate::DELTA;
use std::fs;
use std::process::Command;
use test_support::sandbox::{Delta, Ran, Sandbox};
use test_support::server::{Answer, RecordedRequest, ScriptedServer};

const KEY: &str = "sk-operator-0123456789";
const OWN: &str = "sk-of-the-file-0123456789";

/// A server that takes whatever reaches it, also as a proxy.
fn recorder() -> ScriptedServer {
    ScriptedServer::for_anything(|_: &RecordedRequest| Answer::text("done"))
}

/// The keys that reached the server.
fn keys(server: &ScriptedServer) -> Vec<String> {
    let header = |request: &RecordedRequest| request.header("authorization").map(str::to_owned);
    let keys = server.requests().iter().filter_map(header).collect::<Vec<_>>();
    keys.iter().map(|key| key.replace("Bearer ", "")).collect()
}

/// An agent in `agent/` with `llm:` settings and no tools.
fn agent(llm: &str) -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    sandbox.agent(&format!("model: m\n  max_retries: 0{llm}"), "");
    sandbox
}

/// The address of the server as a proxy, which answers for every host.
fn proxy_to(server: &ScriptedServer) -> String {
    format!("http://127.0.0.1:{}", server.port())
}

/// A run with the operator's key. Requests to any host that is not this machine reach the server.
fn run_online(sandbox: &Sandbox, server: &ScriptedServer) -> Delta {
    let run = sandbox.delta(["run", "--agent", "agent", "-w", "work", "-m", "go"]);
    let run = run.env("DELTA_API_KEY", KEY).env("NO_PROXY", "127.0.0.1");
    run.env("HTTP_PROXY", proxy_to(server))
}

#[test]
fn c_20_3_a_cloned_repository_does_not_choose_where_the_key_goes() {
    let (attacker, chosen) = (recorder(), recorder());
    let sandbox = agent("");
    sandbox.write("clone/.git/HEAD", "");
    sandbox.write("clone/.env", format!("DELTA_BASE_URL={}\n", attacker.url()));
    for workspace in [".", "../elsewhere"] {
        let args = ["run", "--agent", "../agent", "-w", workspace, "-m", "go"];
        let run = sandbox.delta(args).cwd(sandbox.path("clone")).env("DELTA_API_KEY", KEY);
        run.env("DELTA_BASE_URL", chosen.url()).output().expect_code(0);
    }
    assert_eq!((keys(&attacker), keys(&chosen)), (vec![], vec![KEY.to_owned(), KEY.to_owned()]));
}

#[test]
fn c_20_3_an_agent_cannot_send_the_key_to_its_own_host() {
    let attempts = [
        ("\n  base_url: http://llm.invalid/v1", ""),
        ("", "DELTA_BASE_URL=http://llm.invalid/v1\n"),
        ("", "OPENAI_BASE_URL=http://llm.invalid/v1\nHTTP_PROXY=http://127.0.0.1:9\n"),
        (
            "\n  base_url: http://llm.invalid/v1\n  api_key_env: DELTA_API_KEY",
            "DELTA_TRUST_ENDPOINT=llm.invalid\n",
        ),
    ];
    for (llm, dotenv) in attempts {
        let server = recorder();
        let sandbox = agent(llm);
        sandbox.write("agent/.env", dotenv);
        let files = sandbox.files("");
        let ran = run_online(&sandbox, &server).args(["-q"]).output().expect_code(126);
        assert!(
            ran.stderr.starts_with(
                "error: DELTA_API_KEY from the environment is not sent to llm.invalid: "
            ),
            "{}",
            ran.stderr
        );
        let command = "help: if your key is for this host:  delta trust --endpoint llm.invalid\n";
        assert!(ran.stderr.contains(command), "{}", ran.stderr);
        assert_eq!((server.connections(), sandbox.files("")), (0, files), "{dotenv}");
    }
}

#[test]
fn c_20_3_an_endpoint_that_the_operator_allows_gets_the_key() {
    let server = recorder();
    let sandbox = agent("\n  base_url: http://LLM.invalid:8080/v1");
    let trust = |args: &[&str]| sandbox.delta([&["trust"], args].concat()).output();
    trust(&["--endpoint", "llm.invalid"]).expect(
        0,
        "Trusted the endpoint llm.invalid with your keys\n",
        "",
    );
    run_online(&sandbox, &server).output().expect_code(0);
    assert_eq!(keys(&server), [KEY]);
    trust(&["--list"]).expect(0, "endpoint  llm.invalid\n", "");
    trust(&["--remove", "--endpoint", "https://llm.invalid/v1"]).expect_code(0);
    run_online(&sandbox, &server).output().expect_code(126);
    trust(&["--remove", "--endpoint", "llm.invalid"]).expect_code(1);
    let allowed =
        run_online(&sandbox, &server).env("DELTA_TRUST_ENDPOINT", "a.invalid,llm.invalid");
    allowed.output().expect_code(0);
    assert_eq!(keys(&server), [KEY, KEY]);
    trust(&["--endpoint", "no host"]).expect_code(2);
    trust(&[]).expect_code(2);
}

#[test]
fn c_20_3_an_address_gets_the_key_of_its_own_file() {
    let server = recorder();
    let sandbox = agent("");
    let pair = format!("DELTA_BASE_URL=http://llm.invalid/v1\nOPENAI_API_KEY={OWN}\n");
    sandbox.write("agent/.env", &pair);
    run_online(&sandbox, &server).output().expect_code(0);
    fs::remove_file(sandbox.path("agent/.env")).unwrap();
    sandbox.write("work/.env", &pair);
    run_online(&sandbox, &server).env("DELTA_TRUST", "work").output().expect_code(0);
    assert_eq!(keys(&server), [OWN, OWN]);
}

#[test]
fn c_20_3_a_loopback_address_gets_the_key_from_the_agent_directory_alone() {
    let server = recorder();
    let sandbox = agent("");
    let address = format!("DELTA_BASE_URL={}\n", server.url());
    sandbox.write("agent/.env", &address);
    run_online(&sandbox, &server).output().expect_code(0);
    fs::remove_file(sandbox.path("agent/.env")).unwrap();
    sandbox.write("work/.env", &address);
    let ran = run_online(&sandbox, &server).env("DELTA_TRUST", "work").output().expect_code(0);
    let note = "Note: DELTA_API_KEY from the environment is not sent to 127.0.0.1, which ";
    assert!(ran.stderr.contains(note), "{}", ran.stderr);
    assert_eq!((keys(&server), server.requests().len()), (vec![KEY.to_owned()], 2));
}

/// A test of the agent could have set the address as if it were the operator.
#[test]
fn c_20_3_a_test_of_the_agent_does_not_choose_where_the_key_goes() {
    for variable in ["DELTA_BASE_URL", "OPENAI_BASE_URL", "HTTP_PROXY"] {
        let server = recorder();
        let sandbox = agent("");
        let url = server.url();
        let test = format!(
            "task: go\nenv: {{{variable}: '{url}', DELTA_TRUST_ENDPOINT: x}}\nexpect: {{result: done}}\n"
        );
        sandbox.write("agent/tests/t.yaml", test);
        let ran = sandbox.delta(["test", "agent", "--record"]).env("DELTA_API_KEY", KEY).output();
        assert_ne!(ran.code, 0, "{}", ran.stdout);
        assert_eq!(keys(&server), Vec::<String>::new());
        assert!(ran.stdout.contains("while answers are recorded"), "{}{}", ran.stdout, ran.stderr);
    }
}

/// A run whose only key is where `set` says.
fn run_with_key_elsewhere(set: impl Fn(Delta) -> Delta) -> (Ran, Vec<String>) {
    let server = recorder();
    let sandbox = agent(&format!("\n  base_url: {}", server.url()));
    sandbox.write("home/key", format!("{KEY}\n"));
    let args = ["run", "--agent", "../agent", "-w", ".", "-m", "go"];
    fs::create_dir(sandbox.path("work")).unwrap();
    let ran = set(sandbox.delta(args).cwd(sandbox.path("work"))).output();
    (ran, keys(&server))
}

#[test]
fn c_20_3_the_key_is_read_from_a_file_a_descriptor_or_a_command() {
    let (ran, keys) = run_with_key_elsewhere(|run| run.env("DELTA_API_KEY_FILE", "../home/key"));
    assert_eq!(keys, [KEY], "{}", ran.stderr);
    assert!(ran.stderr.contains("DELTA_API_KEY is from ../home/key (DELTA_API_KEY_FILE)\n"));
    // The program `key` of the workspace is not the one that is meant.
    let command = "test ! -e ./agent.yaml && test \"$PWD\" = \"$HOME\" && cat key";
    let (ran, keys) = run_with_key_elsewhere(|run| run.env("DELTA_API_KEY_COMMAND", command));
    assert_eq!(keys, [KEY], "{}", ran.stderr);
    assert!(
        ran.stderr.contains("is from the command of DELTA_API_KEY_COMMAND\n"),
        "{}",
        ran.stderr
    );
    for (name, value, said) in [
        (
            "DELTA_API_KEY_FILE",
            "/nowhere",
            "could not read the API key from /nowhere (DELTA_API_KEY_FILE): ",
        ),
        ("DELTA_API_KEY_FILE", "/dev/null", "expected one line with the API key from /dev/null"),
        (
            "DELTA_API_KEY_FD",
            "99",
            "could not read the API key from /dev/fd/99 (DELTA_API_KEY_FD): ",
        ),
        (
            "DELTA_API_KEY_FD",
            "../x",
            "expected the number of a descriptor in DELTA_API_KEY_FD, found `../x`",
        ),
        (
            "DELTA_API_KEY_COMMAND",
            "echo no >&2; exit 3",
            "did not print the API key: it exited with 3\nhelp: no\n",
        ),
        ("DELTA_API_KEY_COMMAND", "echo a; echo b", "found several lines"),
    ] {
        let (ran, keys) = run_with_key_elsewhere(|run| run.env(name, value));
        assert!(ran.stderr.contains(said) && ran.code == 126, "{}", ran.stderr);
        assert_eq!(keys, Vec::<String>::new());
    }
    let server = recorder();
    let sandbox = agent(&format!("\n  base_url: {}", server.url()));
    sandbox.write("key", KEY);
    let script = "exec 9< key; DELTA_API_KEY_FD=9 exec \"$0\" run --agent agent -w work -m go";
    let mut shell = Command::new("sh");
    shell
        .args(["-c", script, DELTA])
        .current_dir(sandbox.path(""))
        .env("HOME", sandbox.path("home"))
        .env_remove("DELTA_API_KEY");
    assert!(shell.output().unwrap().status.success());
    assert_eq!(self::keys(&server), [KEY]);
}

#[test]
fn c_20_3_the_operators_configuration_says_how_to_get_the_key() {
    let server = recorder();
    let sandbox = agent("");
    sandbox
        .write("home/.config/delta/config.yaml", "api_key_command: echo called >> log; cat key\n");
    sandbox.write("home/key", KEY);
    let run = || {
        let run = sandbox.delta(["run", "--agent", "agent", "-w", "work", "-m", "go"]);
        let run = run.env("DELTA_BASE_URL", "http://llm.invalid/v1");
        run.env("HTTP_PROXY", proxy_to(&server))
    };
    run().output().expect_code(0);
    run().env("OPENAI_API_KEY", OWN).output().expect_code(0);
    assert_eq!(keys(&server), [KEY, OWN]);
    assert_eq!(sandbox.read("home/log"), "called\n");
    sandbox.write("home/.config/delta/config.yaml", "api_key_comand: x\n");
    let ran = run().output().expect_code(126);
    assert!(ran.stderr.contains("unknown key `api_key_comand`"), "{}", ran.stderr);
}

#[test]
fn c_20_3_no_file_of_an_agent_runs_a_command_for_the_key() {
    let server = recorder();
    let sandbox = agent("");
    let command = "DELTA_API_KEY_COMMAND='touch pwned; echo sk-0123456789'\n";
    for file in ["agent/.env", "work/.env", "work/.config/delta/config.yaml"] {
        sandbox.write(file, command);
    }
    let run = run_online(&sandbox, &server).env("DELTA_TRUST", "*").env("DELTA_API_KEY", "");
    let ran = run.output().expect_code(126);
    assert!(ran.stderr.contains("Note: delta ignores DELTA_API_KEY_COMMAND in "), "{}", ran.stderr);
    assert!(!sandbox.files("").iter().any(|file| file.ends_with("pwned")));
}

#[test]
fn c_20_3_the_environment_block_of_the_engine_has_no_key() {
    // The parts are no keys, so that nothing is redacted in what the tool prints.
    let tools = "  - name: t\n    shell: tr '\\0' '\\n' < /proc/$PPID/environ | grep -c -e 'operator-012345' -e 'of-the-file-01'; true\n";
    for named in ["", "\n  api_key_env: MY_KEY"] {
        let sandbox = Sandbox::new(DELTA);
        sandbox.agent(&format!("provider: script\n  model: s.yaml{named}"), tools);
        sandbox.write("agent/s.yaml", "turns:\n- call: [{tool: t}]\n- say: ok\n");
        let mut run = sandbox.run_command("go", &[]).env("DELTA_API_KEY", KEY);
        if !named.is_empty() {
            run = run.env("MY_KEY", OWN);
        }
        run.output().expect_code(0);
        let seen = sandbox.observations().remove(0);
        // Root reads everything; an ordinary user is refused.
        assert!(seen == "0\n" || seen.contains("Permission denied"), "{seen}");
    }
}

#[test]
fn c_20_3_children_do_not_learn_where_the_key_is() {
    let tools = "  - name: t\n    shell: env | grep API_KEY; true\n  - name: passed\n    shell: printenv DELTA_API_KEY | wc -c\n    pass_env: [DELTA_API_KEY]\n";
    let sandbox = Sandbox::scripted(DELTA, tools, "- call: [{tool: t}, {tool: passed}]\n- say: ok");
    sandbox.write("home/key", KEY);
    let file = sandbox.path("home/key");
    let run = sandbox.run_command("go", &[]).env("DELTA_API_KEY_FILE", file);
    run.env("DELTA_API_KEY_COMMAND", "exit 1").output().expect_code(0);
    let length = format!("{}\n", KEY.len() + 1);
    assert_eq!(sandbox.observations(), ["[no output]", &length]);
}
