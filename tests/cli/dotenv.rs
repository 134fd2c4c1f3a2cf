//! `.env` files that count: whose value wins, who gets it, and which are errors (C-1.7, C-1.8, C-15.3).
//! What a file that is not trusted cannot do is in `security/dotenv.rs`.

use super::DELTA;
use std::fs;
use std::process::Command;
use test_support::sandbox::{Delta, Ran, Sandbox};
use test_support::server::{Answer, RecordedRequest, ScriptedServer};

const PROCESS: &str = "sk-process-0123456789";
const PROJECT: &str = "sk-project-0123456789";
const AGENT: &str = "sk-agent-0123456789";
const WORKSPACE: &str = "sk-workspace-0123456789";

/// An agent that names no address, in a project.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new(DELTA);
    sandbox.agent("model: m", "");
    fs::create_dir_all(sandbox.path(".git")).unwrap();
    sandbox
}

fn answers() -> ScriptedServer {
    ScriptedServer::start(|_: &RecordedRequest| Answer::text("done"))
}

/// The key that the server was given last.
fn key(server: &ScriptedServer) -> Option<String> {
    let requests = server.requests();
    let key = requests.last().unwrap().header("authorization")?.strip_prefix("Bearer ").unwrap();
    Some(key.to_owned())
}

fn notes(ran: &Ran) -> Vec<&str> {
    let ours = |line: &&str| line.contains(" is from ") || line.starts_with("Note: ");
    ran.stderr.lines().filter(ours).collect()
}

#[test]
fn c_1_7_the_nearer_file_wins_for_run_and_continue_alike() {
    let (sandbox, server) = (sandbox(), answers());
    sandbox.write("work/.env", format!("DELTA_API_KEY={WORKSPACE}\n"));
    sandbox.write("agent/.env", format!("export DELTA_API_KEY = '{AGENT}' # mine\nOPENAI_ORG=o\n"));
    sandbox.write(".env", format!("DELTA_API_KEY=\"{PROJECT}\"\nOTHER=x\n"));
    let surrounded = |delta: Delta| {
        let delta = delta.env("DELTA_API_KEY", PROCESS).env("DELTA_BASE_URL", server.url());
        delta.env("DELTA_TRUST", "work:.")
    };
    let layers = [
        ("DIR/work/.env", WORKSPACE, "work/.env"),
        ("DIR/agent/.env", AGENT, "agent/.env"),
        ("DIR/.env", PROJECT, ".env"),
        ("the environment", PROCESS, ""),
    ];
    let quiet = surrounded(sandbox.run_command("task", &["-q"])).output().expect_code(0);
    assert_eq!(quiet.stderr, "");
    for (from, expected, file) in layers {
        for again in ["run", "continue"] {
            let args = match again {
                "run" => vec!["run", "--agent", "agent", "-w", "work", "-m", "task"],
                _ => vec!["continue", "-w", "work", "--run-id", "r", "-m", "more"],
            };
            let ran = surrounded(sandbox.delta(args)).output().normal(&sandbox).expect_code(0);
            assert_eq!(key(&server).as_deref(), Some(expected), "{again}");
            let mut said = Vec::new();
            said.extend((!file.is_empty()).then(|| format!("DELTA_API_KEY is from {from}")));
            let has_agent = sandbox.path("agent/.env").exists();
            said.extend(has_agent.then(|| "OPENAI_ORG is from DIR/agent/.env".to_owned()));
            assert_eq!(notes(&ran), said);
            assert!(!ran.stderr.contains("sk-"), "{}", ran.stderr);
        }
        if file.is_empty() {
            let args = ["continue", "-w", "work", "--run-id", "r", "-m", "more", "-v"];
            let ran = surrounded(sandbox.delta(args)).output().normal(&sandbox).expect_code(0);
            let process =
                ["DELTA_API_KEY", "DELTA_BASE_URL"].map(|name| format!("{name} is from {from}"));
            assert_eq!(notes(&ran), process);
        } else {
            fs::remove_file(sandbox.path(file)).unwrap();
        }
    }
}

#[test]
fn c_1_7_the_projects_file_lies_beside_the_nearest_git() {
    let (sandbox, server) = (sandbox(), answers());
    sandbox.write(".env", format!("OPENAI_API_KEY={PROJECT}\n"));
    fs::create_dir_all(sandbox.path("sub/dir")).unwrap();
    let root = sandbox.path("").to_string_lossy().into_owned();
    let ask = || {
        let args = ["run", "--agent", &format!("{root}/agent"), "-m", "task"];
        let delta = sandbox.delta(args).cwd(sandbox.path("sub/dir"));
        let delta = delta.env("DELTA_BASE_URL", server.url()).env("DELTA_TRUST", "*");
        delta.output().expect_code(0);
        key(&server)
    };
    assert_eq!(ask().as_deref(), Some(PROJECT));
    // A worktree has a file of that name. It is the nearer one, and there is no `.env` beside it.
    sandbox.write("sub/.git", "gitdir: elsewhere\n");
    assert_eq!(ask(), None);
    sandbox.write("sub/.env", format!("OPENAI_API_KEY={AGENT}\n"));
    assert_eq!(ask().as_deref(), Some(AGENT));
}

#[test]
fn c_1_8_the_variable_that_the_agent_names_may_come_from_a_file() {
    let server = answers();
    let sandbox = sandbox();
    sandbox.agent(&format!("model: m\n  base_url: {}\n  api_key_env: MINE", server.url()), "");
    sandbox.write("agent/.env", format!("MINE={AGENT}\nDELTA_BASE_URL=http://127.0.0.1:9/v1\n"));
    sandbox.run("task", &[]).expect_code(0);
    assert_eq!(key(&server).as_deref(), Some(AGENT));
    // An empty value counts as none.
    sandbox.write("work/.env", "MINE=\n");
    let delta = sandbox.delta(["run", "--agent", "agent", "-w", "work", "-m", "x"]);
    delta.env("DELTA_TRUST", "work").output().expect_code(0);
    assert_eq!(key(&server).as_deref(), Some(AGENT));
}

#[test]
fn c_20_3_an_address_from_a_trusted_file_gets_no_key_of_another_layer() {
    let sandbox = sandbox();
    sandbox.write("work/.env", "DELTA_BASE_URL=https://llm.invalid/v1\n");
    sandbox.write("agent/.env", format!("OPENAI_API_KEY={AGENT}\n"));
    let files = sandbox.files("");
    let run = sandbox.run_command("hi", &[]).env("DELTA_TRUST", "work");
    run.output().normal(&sandbox).expect(126, "", "\
error: OPENAI_API_KEY from DIR/agent/.env is not sent to llm.invalid: DIR/work/.env names this address, and you have not allowed it
help: if your key is for this host:  delta trust --endpoint llm.invalid
      or set a key of its own in the same file: OPENAI_API_KEY=... in DIR/work/.env
");
    assert_eq!(sandbox.files(""), files);
}

#[test]
fn c_1_7_a_file_that_cannot_be_read_is_an_error_and_shows_no_value() {
    let sandbox = sandbox();
    sandbox.write("agent/.env", format!("A=1\nDELTA_API_KEY \"{AGENT}\"\n1={AGENT}\n"));
    sandbox.write(".env", b"A=\xff\n");
    let help = "  = help: a .env file is text with lines `NAME=value`";
    assert_eq!(
        refused_here(&sandbox),
        format!(
            "error: expected `=` after `DELTA_API_KEY`\n  --> DIR/agent/.env:2:15\n  = help: write `NAME=value`\n\n\
             error: expected the name of a variable\n  --> DIR/agent/.env:3:1\n  = help: write `NAME=value`; a name has letters, digits and `_`, and does not begin with a digit\n\n\
             error: could not read the file: it is not UTF-8 (line 1, column 3)\n  --> DIR/.env\n{help}\n"
        )
    );
    fs::remove_file(sandbox.path("agent/.env")).unwrap();
    sandbox.write(".env", vec![b'#'; (1 << 20) + 1]);
    assert_eq!(
        refused_here(&sandbox),
        format!(
            "error: could not read the file: it is larger than 1 MiB\n  --> DIR/.env\n{help}\n"
        )
    );
    fs::remove_file(sandbox.path(".env")).unwrap();
    // A pipe that nobody writes to keeps nobody waiting; a virtual environment is no file.
    let made = std::process::Command::new("mkfifo").arg(sandbox.path("agent/.env")).status();
    assert!(made.unwrap().success());
    let said = refused_here(&sandbox);
    assert!(said.contains("it is not a regular file\n  --> DIR/agent/.env\n"), "{said}");
    fs::remove_file(sandbox.path("agent/.env")).unwrap();
    fs::create_dir(sandbox.path("agent/.env")).unwrap();
    assert!(
        refused_here(&sandbox).starts_with("error: no API key for https://api.openai.com/v1\n")
    );
}

fn refused_here(sandbox: &Sandbox) -> String {
    let files = sandbox.files("");
    let run = sandbox.run_command("hi", &[]).env("DELTA_TRUST", "*");
    let ran = run.output().normal(sandbox).expect_code(126);
    assert_eq!((ran.stdout.as_str(), sandbox.files("")), ("", files));
    ran.stderr
}

/// What `env` prints for a tool, without what every child has.
fn env_of(sandbox: &Sandbox, file: &str) -> Vec<String> {
    let ours = |line: &&str| {
        line.starts_with("T_")
            || line.starts_with("PYTHONPATH=")
            || line.contains("_KEY=")
            || line.contains("_URL=")
            || line.contains("PROXY=")
    };
    let mut lines: Vec<String> =
        sandbox.read(file).lines().filter(ours).map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn c_20_2_children_have_the_agents_variables_the_named_ones_and_no_key() {
    let tools = "  - name: plain\n    shell: env > plain\n  - name: passed\n    shell: env > passed\n    pass_env: [DELTA_API_KEY]\n  - name: own\n    shell: env > own\n    pass_env: [MINE_KEY]\n";
    let sandbox = sandbox();
    sandbox.agent("provider: script\n  model: s.yaml\n  api_key_env: MINE_KEY", tools);
    let yaml = sandbox.read("agent/agent.yaml");
    sandbox.write("agent/agent.yaml", format!("{yaml}env_file: [T_A, T_B, T_C, DELTA_TRUST]\n"));
    sandbox.write(
        "agent/s.yaml",
        "turns:\n- call: [{tool: plain}, {tool: passed}, {tool: own}]\n- say: ok\n",
    );
    sandbox.write(".env", "T_A=project\nT_B=project\nT_C=project\nT_F=project\n");
    sandbox.write(
        "agent/.env",
        format!("T_B=agent\nT_C=agent\nT_D=agent\nDELTA_API_KEY={AGENT}\nPYTHONPATH=agent\n"),
    );
    sandbox.write("work/.env", format!("T_C=\"work\"\nDELTA_BASE_URL=https://llm.invalid/v1\nHTTPS_PROXY=p\nMINE_KEY={WORKSPACE}\nPYTHONPATH=work\nPATH=work\nLD_PRELOAD=x\nDELTA_IMPORT_PATH=/\nDELTA_TRUST=*\nRUN_DIR=/x\n"));
    let delta = sandbox.run_command("hi", &[]).env("T_D", "process").env("T_E", "process");
    let ran = delta.env("DELTA_TRUST", "work:.").output().normal(&sandbox).expect_code(0);
    assert_eq!(
        notes(&ran),
        [
            "Note: delta ignores DELTA_IMPORT_PATH, DELTA_TRUST in DIR/work/.env: only the environment of the process counts",
            "DELTA_API_KEY is from DIR/agent/.env",
            "DELTA_BASE_URL is from DIR/work/.env",
        ]
    );
    let common =
        ["PYTHONPATH=agent", "T_A=project", "T_B=agent", "T_C=work", "T_D=agent", "T_E=process"];
    let expected = |key: &[&str]| {
        let mut all: Vec<String> =
            [key, &common].concat().iter().map(|it| (*it).to_owned()).collect();
        all.sort();
        all
    };
    assert_eq!(env_of(&sandbox, "work/plain"), expected(&[]));
    assert_eq!(env_of(&sandbox, "work/passed"), expected(&[&format!("DELTA_API_KEY={AGENT}")]));
    assert_eq!(env_of(&sandbox, "work/own"), expected(&[&format!("MINE_KEY={WORKSPACE}")]));
    for file in ["plain", "passed", "own"] {
        let env = sandbox.read(&format!("work/{file}"));
        assert!(!env.contains("LD_PRELOAD") && !env.contains("DELTA_IMPORT_PATH"), "{env}");
        assert!(env.contains("/work/.delta/r\n") && env.contains("DELTA_TRUST=work:.\n"), "{env}");
    }
}

#[test]
fn c_15_3_the_keys_of_all_layers_are_hidden() {
    let tools = "  - name: show\n    shell: cat ../.env ../agent/.env .env\n";
    let sandbox = Sandbox::scripted(DELTA, tools, "- call: [{tool: show}]\n- say: ${last}");
    fs::create_dir(sandbox.path(".git")).unwrap();
    sandbox.write(".env", format!("OPENAI_API_KEY={PROJECT}\n"));
    sandbox.write("agent/.env", format!("DELTA_API_KEY='{AGENT}'\n"));
    sandbox.write("work/.env", format!("DELTA_API_KEY={WORKSPACE}\n"));
    let run = sandbox.run_command("go", &["--format", "raw", "-v"]).env("DELTA_TRUST", "*");
    let ran = run.output().expect_code(0);
    let hidden =
        "OPENAI_API_KEY=[redacted]\nDELTA_API_KEY='[redacted]'\nDELTA_API_KEY=[redacted]\n";
    assert_eq!(ran.stdout, hidden);
    for name in sandbox.files("work/.delta") {
        let bytes = fs::read(sandbox.path("work/.delta").join(&name)).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        for key in [PROJECT, AGENT, WORKSPACE] {
            assert!(!text.contains(key) && !ran.stderr.contains(key), "{key} in {name}");
        }
    }
}

#[test]
fn c_15_3_the_agent_cannot_have_words_hidden_by_calling_them_a_key() {
    let tools = "  - name: show\n    shell: |\n      echo observation_content '\"iteration\":' rm_everything; cat ../agent/.env\n";
    let sandbox = Sandbox::scripted(DELTA, tools, "- call: [{tool: show}]\n- say: ${last}");
    sandbox.write("agent/.env", format!("DELTA_API_KEY={AGENT}\n"));
    for word in ["observation_content", "'\"iteration\":'", "rm_everything"] {
        sandbox.write("work/.env", format!("OPENAI_API_KEY={word}\n"));
        let args = ["run", "--agent", "agent", "-w", "work", "--format", "raw", "-m", "go"];
        let ran = sandbox.delta(args).output().expect_code(0);
        assert_eq!(
            ran.stdout,
            "observation_content \"iteration\": rm_everything\nDELTA_API_KEY=[redacted]\n"
        );
    }
}

// A directory was reported as missing.
#[test]
fn c_1_7_a_named_file_is_no_directory() {
    let sandbox = Sandbox::scripted(DELTA, "", "- say: done\n");
    fs::create_dir_all(sandbox.path("vars")).unwrap();
    for (file, problem) in
        [("vars", "expected a file, found a directory"), ("gone", "the file does not exist")]
    {
        let ran = sandbox.run("task", &["--env-file", file]).expect_code(126);
        assert!(ran.stderr.contains(problem), "{}", ran.stderr);
    }
}

// "not a regular file": a key that a program prints had to be written into a file.
#[test]
fn c_1_7_a_named_file_may_be_a_pipe() {
    let sandbox = Sandbox::scripted(
        DELTA,
        "  - {name: show, shell: printenv T}\n",
        "- call: [{tool: show}]\n- say: ${last}",
    );
    let yaml = sandbox.read("agent/agent.yaml");
    sandbox.write("agent/agent.yaml", format!("{yaml}env_file: [T]\n"));
    let script = format!(
        "echo T=piped | {{ exec 3<&0 0</dev/null; exec '{DELTA}' run --agent agent -w work --run-id r --format raw -m go --env-file /dev/fd/3; }}"
    );
    let output = Command::new("sh").args(["-c", &script]).current_dir(sandbox.path("")).output();
    let output = output.unwrap();
    let ran = Ran::of(output.status, &output.stdout, &output.stderr).expect_code(0);
    assert_eq!(ran.stdout, "piped\n");
}
