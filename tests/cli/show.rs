//! `delta show`: one run as an account, as JSON, and the exact requests that it sent.

use super::DELTA;
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use test_support::normal::normal;
use test_support::sandbox::Sandbox;
use test_support::server::{Answer, RecordedRequest, ScriptedServer};

const TOOLS: &str = "  - name: note\n    shell: echo noted ${text}\n";

fn show(sandbox: &Sandbox, more: &[&str]) -> test_support::sandbox::Ran {
    let fixed = ["show", "r", "-w", "work"];
    sandbox.delta(fixed.iter().chain(more).copied()).output()
}

#[test]
fn c_11_1_show_gives_a_calm_account() {
    let turns = "- say: looking\n  call: [{tool: note, args: {text: a}}, {tool: ask_human, args: {prompt: Really?}}]\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, TOOLS, turns);
    sandbox.run("the task", &[]).expect_code(101);
    let shown = show(&sandbox, &[]).expect_code(0);
    assert_eq!(
        normal(&sandbox, &shown.stdout),
        "test-agent r\nworkspace DIR/work\nthe LLM is a script (script.yaml); everything else is real\n\n> the task\n\n\
             • looking\n→ note text=a\n  │ noted a\n→ ask_human\n? Really?\n\n\
             WAITING_FOR_INPUT after 1 iteration, SPAN\n\
             answer with: delta continue --run-id r -w work --request-id REQUEST -m ANSWER\n"
    );
    assert_eq!(shown.stderr, "");
    let account = show(&sandbox, &["--format", "json"]).expect_code(0).json();
    assert_eq!(account["status"], "WAITING_FOR_INPUT");
    assert_eq!(account["interaction"]["prompt"], "Really?");
    assert_eq!(account["messages"][0]["content"], "the task");
    assert_eq!(account["iterations"][0]["calls"][0]["result"]["observation"], "noted a\n");
    assert_eq!(account["iterations"][0]["calls"][1]["result"], json!(null));
}

#[test]
fn c_5_2_show_prints_the_exact_request_however_it_is_recorded() {
    // Large results make requests of more than 256 KiB, which are recorded by reference to the one before.
    let tools = "  - name: big\n    shell: head -c 60000 /dev/zero | tr '\\0' x; echo ${n}\n    max_output_bytes: 100000\n";
    let mut left = 12;
    let server = ScriptedServer::start(move |_: &RecordedRequest| {
        left -= 1;
        match left {
            0 => Answer::text("done"),
            n => Answer::call("big", json!({"n": n.to_string()})),
        }
    });
    let sandbox = Sandbox::asking(DELTA, &server.url(), tools);
    sandbox.run("go", &[]).expect_code(0);
    assert_eq!(server.violations(), Vec::<String>::new());
    let requests = server.requests();
    assert!(requests.last().unwrap().bytes.len() > 600_000, "the requests have grown");
    for (index, request) in requests.iter().enumerate() {
        let shown = show(&sandbox, &["--request", &(index + 1).to_string()]).expect_code(0);
        assert!(shown.stdout.as_bytes() == request.bytes, "request {}", index + 1);
    }
    let recorded: u64 = sandbox
        .files("work/.delta/r/io/invocations")
        .iter()
        .map(|name| {
            sandbox.path(&format!("work/.delta/r/io/invocations/{name}")).metadata().unwrap().len()
        })
        .sum();
    let sent: usize = requests.iter().map(|request| request.bytes.len()).sum();
    assert!(recorded < sent as u64 / 2, "{recorded} bytes recorded of {sent} sent");
}

#[test]
fn c_5_2_a_changed_record_is_found_by_its_hash() {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, "- say: done\n");
    sandbox.unverified("its record is changed");
    sandbox.run("the task", &[]).expect_code(0);
    let name = format!(
        "work/.delta/r/io/invocations/{}",
        sandbox.files("work/.delta/r/io/invocations")[0]
    );
    sandbox.write(&name, sandbox.read(&name).replace("the task", "the tusk"));
    let shown = show(&sandbox, &["--request", "1"]).expect_code(1);
    assert!(shown.stderr.contains("its hash differs"), "{}", shown.stderr);
    assert_eq!(shown.stdout, "");
}

#[test]
fn c_11_1_show_follows_a_run_until_its_process_leaves_it() {
    let tools = "  - name: wait\n    shell: while ! test -e go; do sleep 0.01; done\n";
    let sandbox = Sandbox::scripted(DELTA, tools, "- call: [{tool: wait}]\n- say: the end\n");
    let run = sandbox.run_command("task", &["-q"]).spawn();
    let journal = sandbox.path("work/.delta/r/journal.jsonl");
    while !std::fs::read_to_string(&journal).unwrap_or_default().contains("ACTION_REQUEST") {
        std::thread::yield_now();
    }
    let follow = sandbox.delta(["show", "r", "-w", "work", "--follow"]).spawn();
    sandbox.write("work/go", "");
    let followed = follow.wait_with_output().unwrap();
    let text = String::from_utf8(followed.stdout).unwrap();
    assert!(
        text.contains("→ wait") && text.contains("• the end") && text.contains("COMPLETED"),
        "{text}"
    );
    assert!(run.wait_with_output().unwrap().status.success());
}

#[test]
fn c_11_1_at_a_terminal_show_says_what_a_run_is_doing() {
    let tools = "  - name: wait\n    shell: while ! test -e go; do sleep 0.01; done\n";
    let sandbox = Sandbox::scripted(DELTA, tools, "- call: [{tool: wait}]\n- say: the end\n");
    let run = sandbox.run_command("task", &["-q"]).spawn();
    let journal = sandbox.path("work/.delta/r/journal.jsonl");
    while !std::fs::read_to_string(&journal).unwrap_or_default().contains("ACTION_REQUEST") {
        std::thread::yield_now();
    }
    let follow = sandbox.delta(["show", "r", "-w", "work", "--follow"]).env("NO_COLOR", "1");
    let mut terminal = follow.wholly_at_terminal();
    terminal.expect_screen(|lines| lines.iter().any(|line| line.contains(" running ")));
    sandbox.write("work/go", "");
    let (code, lines) = terminal.end_with_screen();
    assert_eq!(code, 0);
    assert!(!lines.iter().any(|line| line.contains(" running ")), "{lines:#?}");
    assert!(lines.iter().any(|line| line == "• the end"), "{lines:#?}");
    assert!(run.wait_with_output().unwrap().status.success());
}

#[test]
fn c_11_1_show_follows_a_run_until_its_process_dies() {
    let tools = "  - name: wait\n    shell: exec sleep 1000\n";
    let sandbox = Sandbox::scripted(DELTA, tools, "- call: [{tool: wait}]\n- say: the end\n");
    let mut run = sandbox.run_command("task", &["-q"]).spawn();
    let journal = sandbox.path("work/.delta/r/journal.jsonl");
    while !std::fs::read_to_string(&journal).unwrap_or_default().contains("ACTION_REQUEST") {
        std::thread::yield_now();
    }
    let follow = sandbox.delta(["show", "r", "-w", "work", "--follow"]).spawn();
    run.kill().unwrap();
    run.wait().unwrap();
    let followed = follow.wait_with_output().unwrap();
    let text = String::from_utf8(followed.stdout).unwrap();
    let end = "its process has died; continue with: delta continue --run-id r -w work\n";
    assert!(text.contains("→ wait") && text.ends_with(end), "{text}");
    assert!(followed.status.success());
    let follow = show(&sandbox, &["--follow", "--format", "json"]).expect_code(0);
    assert!(follow.stdout.ends_with('\n') && follow.stdout.contains("ACTION_REQUEST"));
}

#[test]
fn c_5_2_show_prints_a_request_that_got_no_answer() {
    let server = ScriptedServer::start(|_: &RecordedRequest| Answer::error(400, "no", None));
    let sandbox = Sandbox::asking(DELTA, &server.url(), TOOLS);
    sandbox.run("go", &[]).expect_code(1);
    let shown = show(&sandbox, &["--request", "1"]).expect_code(0);
    assert!(shown.stdout.as_bytes() == server.requests()[0].bytes, "{}", shown.stdout);
    let none = show(&sandbox, &["--request", "2"]).expect_code(1);
    assert_eq!(
        none.stderr,
        "error: there is no iteration 2\nhelp: the last iteration of the run is 1\n"
    );
}

#[test]
fn c_11_1_a_run_is_named_by_its_path_too() {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, "- say: done\n- say: more\n");
    sandbox.run("the task", &["--snapshots"]).expect_code(0);
    let path = "work/.delta/r";
    for more in [
        &["show"][..],
        &["replay"],
        &["export", "--to", "openai"],
        &["view", "-o", "-"],
        &["context", "show"],
        &["rollback", "--to", "0"],
    ] {
        let by_path = sandbox.delta(more.iter().copied().chain([path])).output();
        let by_id = sandbox.delta(more.iter().copied().chain(["r", "-w", "work"])).output();
        let (by_path, by_id) = (by_path.expect_code(0), by_id.expect_code(0));
        if more[0] != "view" {
            assert_eq!(by_path.stdout, by_id.stdout, "{more:?}");
        }
    }
    let ran = sandbox.delta(["continue", path, "-m", "go on", "--format", "raw"]).output();
    assert_eq!(ran.expect_code(0).stdout, "more\n");
    let refused = sandbox.delta(["continue", path]).output().normal(&sandbox);
    let next = "delta continue --run-id r -w DIR/work -m \"Now do something else\"";
    refused.expect(
        1,
        "",
        &format!(
            "error: Run is COMPLETED. To continue, provide a message using -m/--message\nhelp: {next}\n"
        ),
    );
    let lost = sandbox.delta(["show", "x", "-w", "work"]).output().normal(&sandbox);
    let hint =
        "`delta list-runs -w DIR/work` lists the runs there; `-w DIR` names another workspace";
    lost.expect(1, "", &format!("error: there is no run x in DIR/work\nhelp: {hint}\n"));
}

// Of a run of another user `show` said that there is no such run; `list-runs` said that the permission is missing.
#[test]
fn c_11_2_a_run_that_may_not_be_read_is_not_said_to_be_missing() {
    let sandbox = Sandbox::scripted(DELTA, "", "- say: done\n");
    sandbox.run("go", &[]).expect_code(0);
    let control = sandbox.path("work/.delta");
    let shut = |mode| {
        std::fs::set_permissions(&control, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    shut(0o000);
    // Root reads everything, unless it gives up the right to.
    let drop = ["--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all", DELTA];
    let is_root = rustix::process::geteuid().is_root();
    for command in [&["show", "r"] as &[&str], &["replay", "r"], &["list-runs"], &["continue", "r"]]
    {
        let program = if is_root { "setpriv" } else { DELTA };
        let mut denied = std::process::Command::new(program);
        denied.args(if is_root { &drop[..] } else { &[] }).args(command);
        let output = denied.args(["-w", "work"]).current_dir(sandbox.path("")).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            text.contains("Permission denied") && text.contains(".delta"),
            "{command:?}: {text}"
        );
        assert_eq!(output.status.code(), Some(126), "{command:?}: {text}");
    }
    shut(0o700);
}
