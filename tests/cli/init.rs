//! `delta init`: what it writes, that it overwrites nothing, and that every template works, its tools for real.

use super::DELTA;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use test_support::needs;
use test_support::sandbox::{Ran, Sandbox};

const QUESTION: &str = "Template?\r
  1) minimal      One tool, a starting point\r
  2) hello-world  One tool of each form\r
  3) file-ops     Read, write, list and search files\r
  4) api-tester   Test an HTTP API with curl\r
  5) coding       Work on a repository: search, read, edit, run commands\r
choose [1]> ";

/// A sandbox in which `made` is an agent of that template.
fn with(template: &str) -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    let ran = sandbox.delta(["init", "-t", template, "made"]).output().expect_code(0);
    assert_eq!(ran.stdout, "made\n");
    sandbox
}

/// A run of `made` on its own script, in `work/` as run `r`.
fn run_made(sandbox: &Sandbox, message: &str) -> Ran {
    sandbox
        .delta(["run", "--agent", "made", "--model", "script:script.yaml", "-w", "work"])
        .args(["--run-id", "r", "--format", "raw", "-q", "-m", message])
        .output()
        .expect_code(0)
}

/// A run of `made` on the given turns.
fn run_turns(sandbox: &Sandbox, turns: &str) {
    sandbox.write("made/turns.yaml", format!("turns:\n{turns}\n  - say: done\n"));
    sandbox
        .delta(["run", "--agent", "made", "--model", "script:turns.yaml", "-w", "work"])
        .args(["--run-id", "r", "-q", "-m", "go"])
        .output()
        .expect_code(0);
}

#[test]
fn c_11_4_minimal_runs_without_a_key() {
    let sandbox = Sandbox::new(DELTA);
    let ran = sandbox.delta(["init", "-y", "made"]).output().expect_code(0);
    assert_eq!(ran.stdout, "made\n");
    assert_eq!(
        ran.stderr,
        "Created agent `made` from template `minimal`.\n\
         Try it without an API key:\n\
         \x20 delta run --agent made --model script:script.yaml -m 'What is here?'\n\
         Run it with the model in agent.yaml:\n\
         \x20 DELTA_API_KEY=... delta run --agent made -m 'What is here?'\n"
    );
    assert_eq!(
        sandbox.files("made"),
        [
            ".gitignore",
            ".schema/agent.json",
            ".schema/context.json",
            ".schema/hooks.json",
            ".schema/script.json",
            ".schema/sweep.json",
            ".schema/test.json",
            ".schema/tools.json",
            "README.md",
            "agent.yaml",
            "context.yaml",
            "script.yaml",
            "system_prompt.md",
            "tests/looks.yaml",
            "tools/inside"
        ]
    );
    assert!(
        sandbox
            .read("made/agent.yaml")
            .starts_with("# yaml-language-server: $schema=.schema/agent.json\nname: made\n")
    );
    assert!(sandbox.read("made/README.md").starts_with("# made\n"));
    sandbox.write("work/a file", "");
    sandbox.write("work/dir/b", "");
    assert_eq!(run_made(&sandbox, "?").stdout, "In the workspace:\na file\ndir/\n");
    let run = ["run", "--model", "script:script.yaml", "--format", "raw", "-q", "What is here?"];
    let first = sandbox.delta(run).cwd(sandbox.path("made")).output().expect_code(0);
    assert_eq!(
        first.stdout,
        "The workspace is new and empty: list_files found nothing to list.\n\
         Pass `-w DIR` to look into another directory.\n"
    );
}

#[test]
fn c_11_4_hello_world_runs_without_a_key() {
    let sandbox = with("hello-world");
    assert_eq!(run_made(&sandbox, "Ada; id").stdout, "The greeting has 3 words.\n");
    assert_eq!(sandbox.read("work/greeting.txt"), "Hello, Ada; id!\n");
    assert_eq!(sandbox.observations()[..3], ["Hello, Ada; id!\n", "Hello, Ada; id!\n", "3\n"]);
    let mode = |path: &str| fs::metadata(sandbox.path(path)).unwrap().permissions().mode();
    // As far as the umask allows: what may be read may be executed.
    let tool = mode("made/tools/greet.sh");
    assert_eq!(tool & 0o111, (tool & 0o444) >> 2, "{tool:o}");
    assert_eq!(mode("made/agent.yaml") & 0o111, 0);
}

#[test]
fn c_11_4_file_ops_works_on_files_of_the_workspace() {
    let sandbox = with("file-ops");
    assert_eq!(run_made(&sandbox, "a -e b").stdout, "notes/task.md: # Task\n\na -e b\n");
    assert_eq!(
        sandbox.observations()[..5],
        [
            "wrote 15 bytes\n",
            "task.md\n",
            "./notes/task.md:3:a -e b\n",
            "[stderr]\n../agent.yaml is not in the workspace; give a path relative to it\n[exit code: 1]",
            "# Task\n\na -e b\n"
        ]
    );
}

#[test]
fn c_11_4_file_ops_takes_values_as_names_and_stays_inside() {
    let sandbox = with("file-ops");
    sandbox.write("secret", "s\n");
    sandbox.write("work/link/.keep", "");
    std::os::unix::fs::symlink(sandbox.path(""), sandbox.path("work/link/out")).unwrap();
    run_turns(
        &sandbox,
        r#"  - call:
      - {tool: write_file, args: {path: "-rf", content: "--help\n"}}
      - {tool: read_file, args: {path: "-rf"}}
      - {tool: search, args: {text: "--help", dir: "."}}
      - {tool: search, args: {text: "nowhere"}}
      - {tool: list_files}
      - {tool: read_file, args: {path: "../secret"}}
      - {tool: read_file, args: {path: "link/out/secret"}}
      - {tool: write_file, args: {path: "/proc/self/x", content: "x"}}
      - {tool: read_file, args: {path: ".delta/r/journal.jsonl"}}
      - {tool: list_files, args: {dir: "../work\n"}}"#,
    );
    let outside = |path: &str| {
        format!(
            "[stderr]\n{path} is not in the workspace; give a path relative to it\n[exit code: 1]"
        )
    };
    let kept = |path: &str| {
        format!(
            "[stderr]\n{path} is in .git, .env, .delta or the agent directory, which this agent may not use\n[exit code: 1]"
        )
    };
    assert_eq!(
        sandbox.observations(),
        [
            "wrote 7 bytes\n".to_owned(),
            "--help\n".to_owned(),
            "./-rf:1:--help\n".to_owned(),
            "no line contains this text\n".to_owned(),
            "-rf\n.delta/\nlink/\n".to_owned(),
            outside("../secret"),
            outside("link/out/secret"),
            outside("/proc/self/x"),
            kept(".delta/r/journal.jsonl"),
            outside("../work\n"),
        ]
    );
}

/// Answers requests with what it was sent, and status 404 for /missing; gives its address.
fn echo_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut lines = Vec::new();
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                match line.trim() {
                    "" => break,
                    line => lines.push(line.to_owned()),
                }
            }
            let length = lines
                .iter()
                .find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok())
                .unwrap_or(0);
            let mut body = vec![0; length];
            std::io::Read::read_exact(&mut reader, &mut body).unwrap();
            let status = if lines[0].contains("/missing") { "404 Not Found" } else { "200 OK" };
            let extra = lines.iter().find(|line| line.starts_with("X-Test")).cloned();
            let said = format!(
                "{} [{}] [{}]",
                lines[0],
                extra.unwrap_or_default(),
                String::from_utf8_lossy(&body)
            );
            let head = format!(
                "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                said.len()
            );
            let said = if lines[0].starts_with("HEAD") { "" } else { &said };
            stream.write_all(format!("{head}{said}").as_bytes()).unwrap();
        }
    });
    url
}

#[test]
fn c_11_4_api_tester_sends_requests() {
    if !needs::programs(&["curl", "jq"]) {
        return;
    }
    let (sandbox, url) = (with("api-tester"), echo_server());
    let report = format!("# Report\n\n- {url}/: HTTP/1.1 200\n");
    assert_eq!(run_made(&sandbox, &format!("{url}/")).stdout, report);
    assert_eq!(sandbox.read("work/report.md"), report);
    assert_eq!(sandbox.observations()[0], format!("pass: {url}/ returned 200\n"));
    let (sandbox, secret) = (with("api-tester"), "work/secret");
    sandbox.write(secret, "s");
    run_turns(
        &sandbox,
        &format!(
            r#"  - call:
      - {{tool: check_status, args: {{url: "{url}/missing", status: 200}}}}
      - {{tool: request, args: {{method: POST, url: "{url}/[a]", headers: ["X-Test: 1; id"], body: "@secret"}}}}
      - {{tool: request, args: {{method: HEAD, url: "{url}/"}}}}
      - {{tool: request, args: {{url: "{url}/", headers: ["@secret"]}}}}
      - {{tool: request, args: {{url: "file://{}"}}}}
      - {{tool: request, args: {{method: "--output", url: "{url}/"}}}}"#,
            sandbox.path(secret).display()
        ),
    );
    let head = |length: usize| {
        format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n")
    };
    let posted = "POST /[a] HTTP/1.1 [X-Test: 1; id] [@secret]";
    let observations = sandbox.observations();
    assert_eq!(
        observations[..4],
        [
            format!("FAIL: {url}/missing returned 404, not 200\n"),
            format!("{}{posted}", head(posted.len())),
            head("HEAD / HTTP/1.1 [] []".len()),
            "[stderr]\na header must not begin with @: @secret\n[exit code: 2]".to_owned(),
        ]
    );
    assert!(observations[4].ends_with("[exit code: 1]"), "{}", observations[4]);
    assert!(observations[5].contains("parameter `method`"), "{}", observations[5]);
}

#[test]
fn c_11_4_api_tester_says_that_curl_is_missing() {
    let sandbox = with("api-tester");
    sandbox.write("bin/.keep", "");
    std::os::unix::fs::symlink("/bin/sh", sandbox.path("bin/sh")).unwrap();
    sandbox.write("made/turns.yaml", "turns:\n  - call: [{tool: request, args: {url: \"http://127.0.0.1:1/\"}}, {tool: check_status, args: {url: x, status: 1}}]\n  - say: done\n");
    sandbox
        .delta(["run", "--agent", "made", "--model", "script:turns.yaml", "-w", "work"])
        .args(["--run-id", "r", "-q", "-m", "go"])
        .env("PATH", sandbox.path("bin"))
        .output()
        .expect_code(0);
    let missing = "[stderr]\ncurl is missing on this machine: install it, for example with `apt-get install curl`\n[exit code: 127]";
    assert_eq!(sandbox.observations(), [missing, missing]);
}

#[test]
fn c_11_4_nothing_is_overwritten() {
    let sandbox = Sandbox::new(DELTA);
    sandbox.write("full/a.txt", "mine");
    sandbox.write("file", "mine");
    sandbox.write("repository/.git/HEAD", "");
    std::os::unix::fs::symlink("nowhere", sandbox.path("dangling")).unwrap();
    let before = sandbox.files("");
    let hint = "help: name a new directory: `delta init NAME`\n";
    for (name, message) in [
        ("full", "full is not empty: it contains a.txt"),
        ("file", "file is not a directory"),
        ("dangling", "dangling is not a directory"),
    ] {
        let ran = sandbox.delta(["init", "-y", name]).output().expect_code(1);
        assert_eq!((ran.stdout, ran.stderr), (String::new(), format!("error: {message}\n{hint}")));
    }
    assert_eq!(sandbox.files(""), before);
    // A repository without files is as good as empty, and the current directory the default.
    let ran = sandbox.delta(["init", "-y"]).cwd(sandbox.path("repository")).output();
    assert_eq!(ran.expect_code(0).stdout, ".\n");
    assert!(sandbox.read("repository/agent.yaml").contains("\nname: repository\n"));
}

#[test]
fn c_11_4_a_failure_leaves_nothing() {
    let sandbox = Sandbox::new(DELTA);
    sandbox.write("file", "mine");
    let before = sandbox.files("");
    let ran = sandbox.delta(["init", "-y", "file/agent"]).output();
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    // The third file is larger than what the shell allows: what was written before is taken back.
    let script = format!("ulimit -f 1; trap '' XFSZ; exec '{DELTA}' init -t api-tester new/agent");
    let output = std::process::Command::new("sh")
        .args(["-c", &script])
        .current_dir(sandbox.path(""))
        .output()
        .unwrap();
    let ran = Ran::of(output.status, &output.stdout, &output.stderr).expect_code(1);
    assert_eq!(ran.stdout, "");
    assert!(ran.stderr.starts_with("error: could not write new/agent/"), "{}", ran.stderr);
    assert_eq!(sandbox.files(""), before);
    assert!(!sandbox.path("new").exists());
}

#[test]
fn c_11_4_bad_names_and_templates_are_usage_errors() {
    let sandbox = Sandbox::new(DELTA);
    let before = sandbox.files("");
    for (args, message) in [
        (
            ["-y", "no name"],
            "error: `no name` is not an agent name: expected 1 to 64 letters, digits, `.`, `_` or `-`, starting with a letter, but not `null`\n",
        ),
        // `new` would be created, and stay empty.
        (["-y", "new/../agent"], "error: new/..: No such file or directory (os error 2)\n"),
        (["-t", "huge"], "error: invalid value 'huge' for '--template <TEMPLATE>'\n"),
    ] {
        let ran = sandbox.delta([&["init"], &args[..]].concat()).output().expect_code(2);
        assert!(ran.stderr.starts_with(message), "{}", ran.stderr);
    }
    assert_eq!(sandbox.files(""), before);
}

#[test]
fn c_11_4_a_person_chooses_the_template() {
    let chosen = |answers: &[(&str, &str)]| {
        let sandbox = Sandbox::new(DELTA);
        let mut terminal = sandbox.delta(["init", "made"]).at_terminal();
        for (question, answer) in answers {
            terminal.expect(question).type_in(answer);
        }
        assert_eq!(terminal.end().expect_code(0).stdout, "made\n");
        sandbox.files("made")
    };
    let has = |files: Vec<String>, name: &str| files.iter().any(|file| file == name);
    assert!(!has(chosen(&[(QUESTION, "\n")]), "tools/save"));
    assert!(has(chosen(&[(QUESTION, " 3 \n")]), "tools/save"));
    assert!(has(
        chosen(&[(QUESTION, "6\n"), ("expected a number or a name, found `6`> ", "API-tester\n")]),
        "tools/request"
    ));
    // Who says what is wanted is not asked.
    let sandbox = Sandbox::new(DELTA);
    let ran = sandbox.delta(["init", "-y", "made"]).at_terminal().end().expect_code(0);
    assert!(!ran.stderr.contains("Template?"), "{}", ran.stderr);
}

/// The provider of the agent `made`, and the command with which it is started, as `delta init` prints it.
fn provider_of_made(sandbox: &Sandbox, ran: &Ran) -> (String, String) {
    let yaml = sandbox.read("made/agent.yaml");
    let provider = yaml.lines().find_map(|line| line.strip_prefix("  provider: "));
    let command = ran.stderr.lines().rev().find(|line| line.contains("delta run")).unwrap();
    (provider.unwrap_or("openai").to_owned(), command.trim().to_owned())
}

#[test]
fn c_11_4_the_provider_is_the_one_whose_key_is_set() {
    let start = "delta run --agent made -m 'What is here?'";
    for (variables, provider, command) in [
        (&[][..], "openai", format!("DELTA_API_KEY=... {start}")),
        (&["OPENAI_API_KEY"][..], "openai", start.to_owned()),
        (&["ANTHROPIC_API_KEY"][..], "anthropic", start.to_owned()),
        (&["GEMINI_API_KEY"][..], "gemini", start.to_owned()),
        (&["GEMINI_API_KEY", "ANTHROPIC_AUTH_TOKEN"][..], "anthropic", start.to_owned()),
    ] {
        let sandbox = Sandbox::new(DELTA);
        let mut init = sandbox.delta(["init", "-t", "minimal", "made"]);
        for name in variables {
            init = init.env(name, "sk-a-key-of-the-operator");
        }
        let ran = init.output().expect_code(0);
        assert_eq!(provider_of_made(&sandbox, &ran), (provider.to_owned(), command));
        let note = "Note: keys of anthropic, gemini are set; agent.yaml gets `provider: anthropic`, the first of these\n";
        assert_eq!(ran.stderr.contains(note), variables.len() > 1, "{}", ran.stderr);
        let yaml = sandbox.read("made/agent.yaml");
        let variable = variables.last().copied().unwrap_or("DELTA_API_KEY");
        assert!(yaml.contains(&format!("reads the key from {variable}.")), "{yaml}");
        assert_eq!(yaml.contains("localhost:11434"), provider == "openai", "{yaml}");
        sandbox.delta(["tool", "lint", "made"]).output().expect_code(0);
        let args = ["run", "--agent", "made", "--model", "script:script.yaml", "-m", "x"];
        sandbox.delta(args).output().expect_code(0);
    }
}

/// A model that the operator had chosen was not the one of the new agent.
#[test]
fn c_11_4_the_model_is_the_one_that_the_operator_chose() {
    for (model, variables, lines) in [
        ("claude-opus-5-5", &[][..], "  provider: anthropic\n  model: claude-opus-5-5\n"),
        ("anthropic:m", &[("OPENAI_API_KEY", "k")][..], "  provider: anthropic\n  model: m\n"),
        ("gpt-5.6-sol", &[("ANTHROPIC_API_KEY", "k")][..], "/v1\n  model: gpt-5.6-sol\n"),
        ("openai:llama3:8b", &[][..], "/v1\n  model: llama3:8b\n"),
        // The address of a gateway, which has the models of all vendors.
        (
            "anthropic/m",
            &[("DELTA_BASE_URL", "http://localhost:1/v1")][..],
            "/v1\n  model: anthropic/m\n",
        ),
        ("openai:'1 #'", &[][..], "/v1\n  model: \"'1 #'\"\n"),
    ] {
        let sandbox = Sandbox::new(DELTA);
        let mut init = sandbox.delta(["init", "-y", "made"]).env("DELTA_MODEL", model);
        for (name, value) in variables {
            init = init.env(name, *value);
        }
        let ran = init.output().expect_code(0);
        let yaml = sandbox.read("made/agent.yaml");
        assert!(yaml.contains(lines), "{model}: {yaml}");
        assert!(ran.stderr.contains(", from DELTA_MODEL\n"), "{}", ran.stderr);
        sandbox.delta(["tool", "lint", "made"]).output().expect_code(0);
        let args = ["run", "--agent", "made", "--model", "script:script.yaml", "-m", "x"];
        sandbox.delta(args).output().expect_code(0);
    }
    // A script plays a model, and is none; config.yaml counts too.
    let sandbox = Sandbox::new(DELTA);
    sandbox.write("home/.config/delta/config.yaml", "model: gemini-3.8-flash\n");
    let init = |dir: &str| sandbox.delta(["init", "-t", "coding", dir]);
    let ran = init("one").output().expect_code(0);
    let end = "Run it with your model:\n  GOOGLE_API_KEY=... delta run --agent one -m 'Fix the failing test'\n";
    assert!(ran.stderr.ends_with(end), "{}", ran.stderr);
    let ran = init("two").env("DELTA_MODEL", "script:x.yaml").output().expect_code(0);
    assert!(ran.stderr.contains("--model gpt-4o "), "{}", ran.stderr);
}

#[test]
fn c_11_4_a_person_chooses_the_provider() {
    for (answer, provider) in [("\n", "openai"), ("2\n", "anthropic"), ("anthropic\n", "anthropic")]
    {
        let sandbox = Sandbox::new(DELTA);
        let init = sandbox.delta(["init", "-t", "coding", "made"]);
        let init = init.env("ANTHROPIC_API_KEY", "sk-1").env("DELTA_API_KEY", "sk-2");
        let mut terminal = init.at_terminal();
        terminal.expect("Provider?").expect("choose [1]> ").type_in(answer);
        let ran = terminal.end().expect_code(0);
        let model = if provider == "openai" { "gpt-4o" } else { "anthropic:claude-sonnet-5-5" };
        let command = provider_of_made(&sandbox, &ran).1;
        assert!(command.contains(&format!("--model {model} ")), "{command}");
    }
}

#[test]
fn c_11_5_init_asks_nobody_without_a_terminal() {
    let sandbox = Sandbox::new(DELTA);
    let before = sandbox.files("");
    let ran = sandbox.delta(["init", "made"]).stdin("1\n").output().expect_code(2);
    assert!(
        ran.stderr.starts_with("error: delta cannot ask for the template without a terminal: pass `-t TEMPLATE` (minimal, hello-world, file-ops, api-tester, coding), or `-y` for minimal\n"),
        "{}",
        ran.stderr
    );
    let mut terminal = sandbox.delta(["init", "made"]).at_terminal();
    terminal.expect(QUESTION).type_in("\x04");
    let ran = terminal.end().expect_code(1);
    assert!(
        ran.stderr.ends_with("error: no template was chosen: end of input\nhelp: pass `-t TEMPLATE`, or `-y` for minimal\n"),
        "{}",
        ran.stderr
    );
    let mut terminal = sandbox.delta(["init", "made"]).at_terminal();
    terminal.expect(QUESTION).type_in("\x03");
    terminal.end().expect_code(130);
    assert_eq!(sandbox.files(""), before);
}

#[test]
fn c_11_4_every_template_says_how_it_is_started() {
    for template in ["minimal", "hello-world", "file-ops", "api-tester"] {
        let sandbox = with(template);
        let expanded = sandbox.delta(["tool", "expand", "made/agent.yaml"]).output().expect_code(0);
        assert!(expanded.stdout.contains("command: ["), "{}", expanded.stdout);
        // Without a key the agent itself is right, and only the key is missed.
        let ran = sandbox
            .delta(["run", "--agent", "made", "-m", "x", "--format", "json"])
            .output()
            .expect_code(126)
            .json();
        assert_eq!(ran["error"]["type"], Value::from("config"));
        assert!(ran["error"]["message"].as_str().unwrap().contains("key"), "{ran}");
    }
}

#[test]
fn c_11_4_editors_find_the_schema_of_each_file() {
    let sandbox = with("file-ops");
    for file in ["agent", "context", "script"] {
        let text = sandbox.read(&format!("made/{file}.yaml"));
        let line = format!("# yaml-language-server: $schema=.schema/{file}.json\n");
        assert!(text.starts_with(&line), "{text}");
        let printed = sandbox.delta(["schema", file]).output().expect_code(0).stdout;
        assert_eq!(sandbox.read(&format!("made/.schema/{file}.json")), printed);
        let schema: Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(schema["$schema"], "http://json-schema.org/draft-07/schema#");
        assert!(schema["title"].as_str().unwrap().ends_with(" of delta"));
    }
}
