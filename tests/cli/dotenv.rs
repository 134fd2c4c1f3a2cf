//! `.env` files: whose value counts, who gets it, and what the agent's own file cannot do (C-1.7, C-1.8, C-15.3).

use super::DELTA;
use super::agent_loading::refused;
use std::fs;
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
    let surrounded =
        |delta: Delta| delta.env("DELTA_API_KEY", PROCESS).env("DELTA_BASE_URL", server.url());
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
            let mut said = vec![
                format!("DELTA_API_KEY is from {from}"),
                "DELTA_BASE_URL is from the environment".to_owned(),
            ];
            let has_agent = sandbox.path("agent/.env").exists();
            said.extend(has_agent.then(|| "OPENAI_ORG is from DIR/agent/.env".to_owned()));
            assert_eq!(notes(&ran), said);
            assert!(!ran.stderr.contains("sk-"), "{}", ran.stderr);
        }
        if !file.is_empty() {
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
        delta.env("DELTA_BASE_URL", server.url()).output().expect_code(0);
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
    sandbox.delta(["run", "--agent", "agent", "-w", "work", "-m", "x"]).output().expect_code(0);
    assert_eq!(key(&server).as_deref(), Some(AGENT));
}

#[test]
fn c_1_7_an_address_from_the_workspace_gets_no_key_of_another_layer() {
    let sandbox = sandbox();
    sandbox.write("work/.env", "DELTA_BASE_URL=https://llm.invalid/v1\n");
    sandbox.write("agent/.env", format!("OPENAI_API_KEY={AGENT}\n"));
    let files = sandbox.files("");
    sandbox.run("hi", &[]).normal(&sandbox).expect(126, "", "\
Error: OPENAI_API_KEY is from DIR/agent/.env, and is not sent to https://llm.invalid/v1, which DIR/work/.env names: the agent can write that file
Hint: if the address is right, move it to where the agent cannot write: `base_url` of `llm` in agent.yaml, or .env in the agent directory
      or give the key for it in the same file: OPENAI_API_KEY=... in DIR/work/.env
");
    assert_eq!(sandbox.files(""), files);
    // The same file in the place of the project, because the command is started in the workspace: it is no better.
    fs::create_dir(sandbox.path("work/.git")).unwrap();
    let args = ["run", "--agent", "../agent", "-w", ".", "-m", "hi"];
    let ran = sandbox.delta(args).cwd(sandbox.path("work")).output().normal(&sandbox);
    assert!(
        ran.stderr.starts_with("Error: OPENAI_API_KEY is from DIR/agent/.env, and is not sent")
    );
    // A project that the agent made inside its workspace neither.
    sandbox.write("work/.env", "");
    sandbox.write("work/sub/.env", "OPENAI_BASE_URL=https://llm.invalid/v1\n");
    sandbox.write("work/sub/.git", "");
    let args = ["run", "--agent", "../../agent", "-w", "..", "-m", "hi"];
    let ran = sandbox.delta(args).cwd(sandbox.path("work/sub")).output().normal(&sandbox);
    assert!(ran.stderr.contains("which DIR/work/sub/.env names"), "{}", ran.stderr);
    assert_eq!(ran.code, 126);
    assert!(!sandbox.path("work/.delta").exists());
}

#[test]
fn c_1_7_a_loopback_address_and_a_key_of_the_same_file_are_fine() {
    let (sandbox, server) = (sandbox(), answers());
    sandbox.write("work/.env", format!("OPENAI_BASE_URL={}\n", server.url()));
    let ran = sandbox.run_command("hi", &[]).env("OPENAI_API_KEY", PROCESS).output();
    ran.expect_code(0);
    assert_eq!(key(&server).as_deref(), Some(PROCESS));
    // An address that is no loopback one is asked when its file brings the key; the server stands in as the proxy.
    sandbox.agent("model: m\n  max_retries: 0", "");
    let pair = format!("OPENAI_BASE_URL=http://llm.invalid/v1\nOPENAI_API_KEY={WORKSPACE}\n");
    sandbox.write("work/.env", pair);
    let args = ["run", "--agent", "agent", "-w", "work", "-m", "hi"];
    let delta = sandbox.delta(args).env("OPENAI_API_KEY", PROCESS);
    delta.env("HTTP_PROXY", server.url().replace("/v1", "")).output().expect_code(1);
    let target = server.requests().last().unwrap().target.clone();
    assert!(target.contains("llm.invalid"), "{target}");
}

#[test]
fn c_1_7_a_file_that_cannot_be_read_is_an_error_and_shows_no_value() {
    let sandbox = sandbox();
    sandbox.write("agent/.env", format!("A=1\nDELTA_API_KEY \"{AGENT}\"\n1={AGENT}\n"));
    sandbox.write(".env", b"A=\xff\n");
    let help = "  = help: a .env file is text with lines `NAME=value`";
    assert_eq!(
        refused(&sandbox),
        format!(
            "error: `DELTA_API_KEY` has no `=` after it\n  --> DIR/agent/.env:2:15\n  = help: write `NAME=value`\n\n\
             error: this is not the name of a variable\n  --> DIR/agent/.env:3:1\n  = help: a line is `NAME=value`; a name has letters, digits and `_`, and does not begin with a digit\n\n\
             error: the file cannot be read: it is not UTF-8\n  --> DIR/.env\n{help}\n"
        )
    );
    fs::remove_file(sandbox.path("agent/.env")).unwrap();
    sandbox.write(".env", vec![b'#'; (1 << 20) + 1]);
    assert_eq!(
        refused(&sandbox),
        format!(
            "error: the file cannot be read: it is larger than 1 MiB\n  --> DIR/.env\n{help}\n"
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
        refused_here(&sandbox).starts_with("Error: no API key for https://api.openai.com/v1\n")
    );
}

fn refused_here(sandbox: &Sandbox) -> String {
    sandbox.run("hi", &[]).normal(sandbox).expect_code(126).stderr
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
fn c_1_7_children_have_the_variables_of_all_layers_and_no_key() {
    let tools = "  - name: plain\n    shell: env > plain\n  - name: passed\n    shell: env > passed\n    pass_env: [DELTA_API_KEY]\n  - name: own\n    shell: env > own\n    pass_env: [MINE_KEY]\n";
    let sandbox = sandbox();
    sandbox.agent("provider: script\n  model: s.yaml\n  api_key_env: MINE_KEY", tools);
    sandbox.write(
        "agent/s.yaml",
        "turns:\n- call: [{tool: plain}, {tool: passed}, {tool: own}]\n- say: ok\n",
    );
    sandbox.write(".env", "T_A=project\nT_B=project\nT_C=project\nT_D=project\n");
    sandbox.write(
        "agent/.env",
        format!("T_B=agent\nT_C=agent\nDELTA_API_KEY={AGENT}\nPYTHONPATH=agent\n"),
    );
    sandbox.write("work/.env", format!("T_C=\"work\"\nDELTA_BASE_URL=https://llm.invalid/v1\nHTTPS_PROXY=p\nMINE_KEY={WORKSPACE}\nPYTHONPATH=work\nPATH=work\nLD_PRELOAD=x\nDELTA_IMPORT_PATH=/\nRUN_DIR=/x\n"));
    let delta = sandbox.run_command("hi", &[]).env("T_D", "process").env("T_E", "process");
    let ran = delta.output().normal(&sandbox).expect_code(0);
    assert_eq!(
        notes(&ran),
        [
            "Note: delta does not take DELTA_IMPORT_PATH, HTTPS_PROXY, LD_PRELOAD, PATH, PYTHONPATH from DIR/work/.env: the agent can write that file",
            "DELTA_API_KEY is from DIR/agent/.env",
            "DELTA_BASE_URL is from DIR/work/.env",
        ]
    );
    let common = ["PYTHONPATH=agent", "T_A=project", "T_B=agent"];
    let of_work = ["DELTA_BASE_URL=https://llm.invalid/v1", "HTTPS_PROXY=p"];
    let rest = ["T_D=project", "T_E=process"];
    let expected = |first: &[&str], c: &str| {
        let mut all: Vec<String> =
            [first, &common, &rest].concat().iter().map(|it| (*it).to_owned()).collect();
        all.push(format!("T_C={c}"));
        all.sort();
        all
    };
    assert_eq!(env_of(&sandbox, "work/plain"), expected(&of_work, "work"));
    // Who is given a key of another layer is told nothing by the workspace: it could send the key anywhere.
    let key = format!("DELTA_API_KEY={AGENT}");
    assert_eq!(env_of(&sandbox, "work/passed"), expected(&[&key], "agent"));
    let key = format!("MINE_KEY={WORKSPACE}");
    assert_eq!(env_of(&sandbox, "work/own"), expected(&[of_work[0], of_work[1], &key], "work"));
    for file in ["plain", "passed", "own"] {
        let env = sandbox.read(&format!("work/{file}"));
        assert!(!env.contains("LD_PRELOAD") && !env.contains("DELTA_IMPORT_PATH"), "{env}");
        assert!(env.contains("/work/.delta/r\n"), "{env}");
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
    let ran = sandbox.run("go", &["--format", "raw", "-v"]).expect_code(0);
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
