//! A `.env` that the operator did not trust is data (C-20.1), and a trusted one sets only what agent.yaml names (C-20.2).

use crate::DELTA;
use std::fs;
use test_support::sandbox::{Delta, Sandbox};
use test_support::server::{Answer, RecordedRequest, ScriptedServer};

const KEY: &str = "sk-workspace-0123456789";

fn answers() -> ScriptedServer {
    ScriptedServer::for_anything(|_: &RecordedRequest| Answer::text("done"))
}

/// The key of the last request.
fn last_key(server: &ScriptedServer) -> Option<String> {
    let request = server.requests().pop()?;
    Some(request.header("authorization")?.replace("Bearer ", ""))
}

/// An agent that names no address, and a server that the files of variables name with a key of their own.
fn asking() -> (Sandbox, ScriptedServer, String) {
    let sandbox = Sandbox::new(DELTA);
    sandbox.agent("model: m\n  max_retries: 0", "");
    let server = answers();
    let file = format!("DELTA_BASE_URL={}\nDELTA_API_KEY={KEY}\n", server.url());
    (sandbox, server, file)
}

fn run(sandbox: &Sandbox) -> Delta {
    sandbox.delta(["run", "--agent", "agent", "-w", "work", "-m", "go"])
}

#[test]
fn c_20_1_a_file_that_is_not_trusted_is_not_read_and_one_line_says_so() {
    let (sandbox, server, file) = asking();
    sandbox.write("work/.env", &file);
    fs::create_dir(sandbox.path(".git")).unwrap();
    sandbox.write(".env", &file);
    let ran = run(&sandbox).output().normal(&sandbox).expect_code(126);
    assert!(
        ran.stderr.starts_with(
            "Note: delta does not read DIR/work/.env, which you have not trusted; if it is yours: delta trust DIR/work/.env\n\
             Note: delta does not read DIR/.env, which you have not trusted; if it is yours: delta trust DIR/.env\n\
             error: no API key for https://api.openai.com/v1\n"
        ),
        "{}",
        ran.stderr
    );
    let ran = run(&sandbox).args(["-q"]).output().expect_code(126);
    assert!(ran.stderr.starts_with("error: no API key for"), "{}", ran.stderr);
    assert_eq!(server.connections(), 0);
    // Without a variable there is nothing to say; with errors there may be one, and no error is reported.
    sandbox.write(".env", "# nothing\n\n");
    sandbox.write("work/.env", "this is no file of variables\n");
    let ran = run(&sandbox).output().expect_code(126);
    assert_eq!(ran.stderr.matches("delta trust ").count(), 1, "{}", ran.stderr);
    assert!(!ran.stderr.contains("expected `=`"), "{}", ran.stderr);
}

#[test]
fn c_20_1_a_trusted_file_counts_until_it_changes() {
    let (sandbox, server, file) = asking();
    sandbox.write("work/.env", format!("{file}OTHER=x\n"));
    let trust =
        |args: &[&str]| sandbox.delta([&["trust"], args].concat()).output().normal(&sandbox);
    let trusted = "Trusted DIR/work/.env until it changes\n  delta takes DELTA_BASE_URL, DELTA_API_KEY\n  tools get of OTHER those in `env_file` of agent.yaml\n";
    trust(&["work/.env"]).expect(0, trusted, "");
    let ran = run(&sandbox).output().normal(&sandbox).expect_code(0);
    assert!(ran.stderr.starts_with("DELTA_API_KEY is from DIR/work/.env\n"), "{}", ran.stderr);
    assert_eq!(last_key(&server).as_deref(), Some(KEY));
    let id =
        sandbox.delta(["list-runs", "-w", "work", "--format", "json"]).output().json()[0]["run_id"]
            .clone();
    let resume = ["continue", id.as_str().unwrap(), "-w", "work", "-m", "more"];
    sandbox.delta(resume).output().expect_code(0);
    trust(&["--list"]).expect(0, "file      DIR/work/.env\n", "");

    sandbox.write("work/.env", format!("{file}OTHER=y\n"));
    run(&sandbox).output().expect_code(126);
    sandbox.delta(resume).output().expect_code(126);
    trust(&["--list"]).expect(0, "file      DIR/work/.env  (changed: not trusted)\n", "");
    // The directory stands for its file, and a symlink for what it leads to.
    std::os::unix::fs::symlink(sandbox.path("work"), sandbox.path("link")).unwrap();
    trust(&["link"]).expect_code(0);
    run(&sandbox).output().expect_code(0);
    trust(&["--remove", "work"]).expect(0, "Stopped trusting DIR/work/.env\n", "");
    run(&sandbox).output().expect_code(126);
    trust(&["--list"]).expect(0, "", "");
    let ran = trust(&["--remove", "work"]).expect_code(1);
    assert!(
        ran.stderr.starts_with("error: DIR/work/.env is not trusted\n")
            || ran.stderr.starts_with("error: DIR/work is not trusted\n"),
        "{}",
        ran.stderr
    );
    sandbox.write("a\nfile      b/.env", "A=1\n");
    trust(&["a\nfile      b/.env"]);
    let list = trust(&["--list"]).stdout;
    assert!(list.contains("file      DIR/a\\nfile      b/.env\n"), "{list}");
}

#[test]
fn c_20_1_what_cannot_be_read_is_not_trusted() {
    let sandbox = Sandbox::new(DELTA);
    sandbox.write("work/.env", "A=1\nnonsense\n");
    let trust = |args: &[&str]| sandbox.delta([&["trust"], args].concat());
    let ran = trust(&["work"]).output().expect_code(126);
    assert!(ran.stderr.contains("`nonsense`"), "{}", ran.stderr);
    // What is neither a file nor a directory could be a run.
    trust(&["nowhere"]).output().expect_code(1);
    // Without a home there is no place for the decision.
    sandbox.write("work/.env", "A=1\n");
    let ran = trust(&["work"]).env("HOME", "").output().expect_code(126);
    assert!(ran.stderr.contains("set DELTA_STATE_DIR"), "{}", ran.stderr);
    assert_eq!(sandbox.files("home"), Vec::<String>::new());
    let state = sandbox.path("state");
    trust(&["work"]).env("DELTA_STATE_DIR", state).output().expect_code(0);
    let mode = |path: &str| {
        use std::os::unix::fs::PermissionsExt;
        fs::metadata(sandbox.path(path)).unwrap().permissions().mode() & 0o777
    };
    assert_eq!((mode("state"), mode("state/trusted-files")), (0o700, 0o700));
    // With `sudo`, HOME may be the caller's, who could then lead the file elsewhere.
    fs::create_dir(sandbox.path("other")).unwrap();
    if std::os::unix::fs::chown(sandbox.path("other"), Some(12345), None).is_ok() {
        let ran = trust(&["work"]).env("DELTA_STATE_DIR", sandbox.path("other")).output();
        assert!(ran.stderr.contains("belongs to another user"), "{}", ran.stderr);
        assert_eq!((ran.code, sandbox.files("other")), (126, vec![]));
    } else {
        println!("not root: a state directory of another user cannot be made");
    }
    let entry = sandbox.files("state/trusted-files").remove(0);
    assert_eq!(mode(&format!("state/trusted-files/{entry}")), 0o600);
}

#[test]
fn c_20_1_a_file_is_named_for_one_command() {
    let (sandbox, server, file) = asking();
    sandbox.write("elsewhere/vars", &file);
    let named = ["--env-file", "elsewhere/vars"];
    let args = ["run", "--agent", "agent", "-w", "work", "--run-id", "r", "-m", "go"];
    sandbox.delta([&args[..], &named].concat()).output().expect_code(0);
    assert_eq!(last_key(&server).as_deref(), Some(KEY));
    let more = ["continue", "r", "-w", "work", "-m", "more"];
    sandbox.delta(more).output().expect_code(126);
    sandbox.delta([&more[..], &named].concat()).output().expect_code(0);
    let forked = ["fork", "r", "-w", "work", "--into", "fork", "-m", "again"];
    sandbox.delta([&forked[..], &named].concat()).output().expect_code(0);
    let replayed = ["replay", "r", "-w", "work", "--mode", "model"];
    sandbox.delta(replayed).output().expect_code(126);
    let ran = sandbox.delta([&replayed[..], &named].concat()).output();
    assert!(ran.code == 0 || ran.code == 3, "{}", ran.stderr);
    let preview = ["context", "preview", "--agent", "agent", "-m", "go"];
    sandbox.delta([&preview[..], &named].concat()).output().expect_code(0);
    let ran = sandbox.delta([&args[..], &["--env-file", "nowhere"]].concat()).output();
    assert!(ran.stderr.contains("the file does not exist"), "{}", ran.stderr);
    ran.expect_code(126);
}

#[test]
fn c_20_1_a_variable_trusts_for_one_process() {
    let (sandbox, _server, file) = asking();
    sandbox.write("work/.env", &file);
    let path = sandbox.path("work").display().to_string();
    for trusted in ["*", "work", "/nowhere:work/.env", &path] {
        run(&sandbox).env("DELTA_TRUST", trusted).output().expect_code(0);
    }
    for other in ["", ".", "agent:/nowhere"] {
        run(&sandbox).env("DELTA_TRUST", other).output().expect_code(126);
    }
}

/// A file-writing agent could write `.env` and `.git`, and its next run, its sub-agents and `continue` believed it.
#[test]
fn c_20_1_what_the_agent_writes_into_its_workspace_is_not_believed() {
    let (attacker, chosen) = (answers(), answers());
    let sandbox = Sandbox::new(DELTA);
    sandbox.agent(
        "provider: script\n  model: s.yaml",
        "  - {name: write, exec: 'tee -- ${file}', stdin: text}\n",
    );
    let dotenv =
        format!("DELTA_BASE_URL={}\\nDELTA_API_KEY=sk-attacker-0123456789\\n", attacker.url());
    sandbox.write(
        "agent/s.yaml",
        format!("turns:\n- call: [{{tool: write, args: {{file: .env, text: \"{dotenv}\"}}}}, {{tool: write, args: {{file: .git, text: x}}}}]\n- say: ok\n"),
    );
    sandbox.run("go", &[]).expect_code(0);
    assert!(sandbox.path("work/.env").exists() && sandbox.path("work/.git").exists());
    sandbox.agent("model: m", "");
    let in_workspace = |args: &[&str]| {
        let delta = sandbox.delta(args.iter().copied()).cwd(sandbox.path("work"));
        let delta = delta.env("DELTA_API_KEY", "sk-operator-0123456789");
        delta.env("DELTA_BASE_URL", chosen.url()).output().expect_code(0)
    };
    in_workspace(&["run", "--agent", "../agent", "-w", ".", "-m", "go"]);
    in_workspace(&["run", "--agent", "../agent", "-w", "../other", "-m", "go"]);
    in_workspace(&["continue", "r", "-w", ".", "-m", "more"]);
    assert_eq!((attacker.connections(), chosen.requests().len()), (0, 3));
}

#[test]
fn c_20_3_an_agent_directory_inside_of_its_workspace_is_named_and_its_file_not_believed() {
    let (sandbox, server, file) = asking();
    fs::create_dir(sandbox.path("place")).unwrap();
    fs::rename(sandbox.path("agent"), sandbox.path("place/agent")).unwrap();
    sandbox.write("place/agent/.env", &file);
    let inside = |more: &[&str]| {
        let args = ["run", "--agent", "place/agent", "-w", "place", "-m", "go"];
        sandbox.delta([&args[..], more].concat())
    };
    let ran = inside(&[]).output().normal(&sandbox).expect_code(126);
    let named = "Note: the agent can change its own directory DIR/place/agent: it is inside of the workspace\n";
    assert!(ran.stderr.starts_with(named), "{}", ran.stderr);
    assert!(!inside(&["-q"]).output().expect_code(126).stderr.contains("Note"));
    assert_eq!(server.connections(), 0);
    sandbox.delta(["trust", "place/agent"]).output().expect_code(0);
    let ran = inside(&[]).output().normal(&sandbox).expect_code(0);
    assert!(ran.stderr.starts_with(named), "{}", ran.stderr);
    // Nor what a symlink there leads to, which its tools can make.
    fs::remove_file(sandbox.path("place/agent/.env")).unwrap();
    sandbox.write("vars", &file);
    std::os::unix::fs::symlink(sandbox.path("vars"), sandbox.path("place/agent/.env")).unwrap();
    inside(&[]).output().expect_code(126);
    fs::rename(sandbox.path("place/agent"), sandbox.path("agent")).unwrap();
    // A symlink of the agent's leads to what its tools can write.
    fs::remove_file(sandbox.path("agent/.env")).unwrap();
    sandbox.write("work/vars", &file);
    std::os::unix::fs::symlink(sandbox.path("work/vars"), sandbox.path("agent/.env")).unwrap();
    run(&sandbox).output().expect_code(126);
}

#[test]
fn c_20_1_neither_the_agent_nor_its_files_trust() {
    let (sandbox, server, file) = asking();
    // A state directory in the workspace.
    sandbox.write("home/.env", &file);
    sandbox.delta(["trust", "home"]).output().expect_code(0);
    let at_home = ["run", "--agent", "agent", "-w", "home", "-m", "go"];
    let ran = sandbox.delta(at_home).output().expect_code(126);
    assert!(ran.stderr.contains("because the workspace contains it"), "{}", ran.stderr);
    // Variables of the agent's own file.
    sandbox.write("work/.env", &file);
    sandbox.write(
        "agent/.env",
        format!("DELTA_TRUST=*\nDELTA_STATE_DIR={}\n", sandbox.path("home").display()),
    );
    run(&sandbox).output().expect_code(126);
    assert_eq!(server.connections(), 0);
    // A tool that does what the line on stderr says.
    sandbox.agent(
        "provider: script\n  model: s.yaml",
        &format!("  - {{name: t, exec: '{DELTA} trust .env'}}\n"),
    );
    sandbox.write("agent/s.yaml", "turns:\n- call: [{tool: t}]\n- say: ok\n");
    sandbox.run("go", &[]).expect_code(0);
    let seen = sandbox.observations().remove(0);
    assert!(seen.contains("a run cannot trust anything"), "{seen}");
    let listed = sandbox.delta(["trust", "--list"]).output().expect_code(0);
    assert!(!listed.stdout.contains("work"), "{}", listed.stdout);
}

#[test]
fn c_20_2_tools_get_only_the_variables_that_agent_yaml_names() {
    let tools = "  - name: t\n    command: [bash, -c, 'echo \"<$GREETING> <$OTHER>\"; tar -cf /dev/null agent.yaml 2>/dev/null; git --version >/dev/null']\n";
    let sandbox = Sandbox::scripted(DELTA, tools, "- call: [{tool: t}]\n- say: ok");
    sandbox.write_program("work/evil", "#!/bin/sh\ntouch \"$(dirname \"$0\")/pwned\"\n");
    let evil = sandbox.path("work/evil").display().to_string();
    sandbox.write("work/evil.sh", format!("{evil}\n"));
    let steering = format!(
        "GREETING=hello\nOTHER=x\nBASH_ENV={evil}.sh\nENV={evil}.sh\nPATH=.\nLD_PRELOAD={evil}\nGIT_PAGER={evil}\nTAR_OPTIONS='--checkpoint=1 --checkpoint-action=exec={evil}'\nPROMPT_COMMAND={evil}\n"
    );
    sandbox.write("work/.env", &steering);
    let yaml = sandbox.read("agent/agent.yaml");
    let observe = |names: &str, trust: &str| {
        sandbox.write("agent/agent.yaml", format!("{yaml}{names}\n"));
        let _ = fs::remove_dir_all(sandbox.path("work/.delta"));
        let ran = sandbox.run_command("go", &[]).env("DELTA_TRUST", trust).output().expect_code(0);
        assert!(!sandbox.path("work/pwned").exists(), "{}", ran.stderr);
        sandbox.observations().remove(0)
    };
    assert_eq!(observe("", ""), "<> <>\n");
    assert_eq!(observe("env_file: [GREETING]", ""), "<> <>\n");
    assert_eq!(observe("", "work"), "<> <>\n");
    assert_eq!(observe("env_file: []", "work"), "<> <>\n");
    assert_eq!(observe("env_file: [GREETING]", "work"), "<hello> <>\n");
}

#[test]
fn c_20_2_a_name_that_no_variable_can_have_is_an_error() {
    let sandbox = Sandbox::scripted(DELTA, "", "- say: ok");
    let yaml = sandbox.read("agent/agent.yaml");
    sandbox.write("agent/agent.yaml", format!("{yaml}env_file: [GOOD, 'not good', '*']\n"));
    let ran = sandbox.run("go", &[]).expect_code(126);
    for name in ["not good", "*"] {
        let said = format!("error: `{name}` is not the name of a variable\n");
        assert!(ran.stderr.contains(&said), "{}", ran.stderr);
    }
}
