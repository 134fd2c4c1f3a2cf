//! Snapshots of the workspace (C-16.1), the way back to one (C-16.2, C-16.3), and what differs between two (C-16.4).

mod left_out;

use super::DELTA;
use super::runs::{edit_journal, kinds, resume, text};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::process::Command;
use test_support::needs;
use test_support::sandbox::{Ran, Sandbox};
use test_support::wait::{until, until_line};

/// `do` runs a script; `die` kills the engine in the middle of a change.
const TOOLS: &str = "  - name: do\n    exec: sh -c ${script}\n  \
                     - name: die\n    shell: echo half > half; kill -9 $PPID; exec sleep 1000\n  \
                     - name: hold\n    shell: echo held > held; cat gate\n";

/// What the three iterations do.
const FIRST: &str =
    "mkdir -p src/deep empty; echo one > src/a; echo b > src/b; chmod 600 src/b; ln -s src/a link";
const SECOND: &str = "true";
const THIRD: &str = "echo two >> src/a; rm src/b; chmod 755 src/a; ln -sfn nowhere link; rmdir empty; echo new > 'untracked\nname'; mkdir link.d; mv src/deep moved; chmod 500 moved";

fn turns(scripts: &[&str]) -> String {
    let turn =
        |script: &&str| format!("- call: [{{tool: do, args: {}}}]\n", json!({"script": script}));
    scripts.iter().map(turn).collect::<String>() + "- say: done\n- say: 'seen ${last}'\n"
}

/// A run with three iterations that do something, and one that says so.
fn done() -> Sandbox {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, &turns(&[FIRST, SECOND, THIRD]));
    sandbox.write("work/there", "before\n");
    sandbox.run("go", &["--snapshots"]).expect_code(0);
    sandbox
}

/// Every path of the workspace: its kind, its rights, where it leads, its content.
fn workspace(sandbox: &Sandbox) -> String {
    let script = "find . -path ./.delta -prune -o -printf '%P %y %m %l\\n' | sort; \
                  find . -path ./.delta -prune -o -type f -exec sha256sum {} + | sort";
    let shown = Command::new("sh").args(["-c", script]).current_dir(sandbox.path("work")).output();
    String::from_utf8(shown.unwrap().stdout).unwrap()
}

fn command(sandbox: &Sandbox, command: &str, more: &[&str]) -> Ran {
    sandbox.delta([command, "r", "-w", "work"].iter().chain(more).copied()).output()
}

fn rollback(sandbox: &Sandbox, to: &str, more: &[&str]) -> Ran {
    command(sandbox, "rollback", &[&["--to", to], more].concat())
}

/// The iterations of the snapshots, those that were found with a `+`.
fn snapshots(sandbox: &Sandbox) -> Vec<String> {
    let found = |event: &Value| if event["found"] == true { "+" } else { "" };
    let events = sandbox.events("SNAPSHOT");
    events.iter().map(|event| format!("{}{}", event["iteration"], found(event))).collect()
}

#[test]
fn c_16_1_an_iteration_that_changed_something_has_a_snapshot() {
    let sandbox = done();
    assert_eq!(snapshots(&sandbox), ["0", "1", "3"]);
    assert_eq!(
        kinds(&sandbox),
        "ENGINE_START USER_MESSAGE SNAPSHOT THOUGHT ACTION_REQUEST ACTION_RESULT SNAPSHOT THOUGHT ACTION_REQUEST \
         ACTION_RESULT THOUGHT ACTION_REQUEST ACTION_RESULT SNAPSHOT THOUGHT ENGINE_END"
    );
    let first = &sandbox.events("SNAPSHOT")[0];
    assert_eq!((&first["files"], &first["bytes"]), (&json!(1), &json!(7)));
    assert_eq!(first.as_object().unwrap().len(), 9, "{first}");
    // What is kept can be checked by anybody, and is nobody else's.
    let tree = text(first, "tree");
    let script = format!(
        "cd work/.delta/r/snapshots/objects && cat {}/{} | tr '\\0' '\\n'",
        &tree[..2],
        &tree[2..]
    );
    let shown =
        Command::new("sh").args(["-c", &script]).current_dir(sandbox.path("")).output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&shown.stdout),
        format!("f 644 7 {} there\n", sha256("before\n"))
    );
}

fn sha256(content: &str) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn c_16_1_without_being_asked_for_nothing_is_kept() {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, &turns(&[FIRST]));
    sandbox.run("go", &[]).expect_code(0);
    assert_eq!(sandbox.events("SNAPSHOT"), Vec::<Value>::new());
    assert!(!sandbox.path("work/.delta/r/snapshots").exists());
    let expected = "error: run r has no snapshots\nhelp: enable them with `--snapshots`, or with `snapshots: true` in agent.yaml\n";
    let ran = rollback(&sandbox, "0", &[]);
    assert_eq!(ran, Ran { code: 1, stdout: String::new(), stderr: expected.to_owned() });
    // A run that has begun to keep them goes on with it.
    resume(&sandbox, &["-m", "more", "--snapshots"]).expect_code(0);
    assert_eq!(snapshots(&sandbox), ["2"]);
    sandbox.write("work/person", "changed\n");
    resume(&sandbox, &["-m", "more"]).expect_code(1);
    assert_eq!(snapshots(&sandbox), ["2", "3+"]);
}

#[test]
fn c_16_1_agent_yaml_says_what_is_left_out() {
    let sandbox = Sandbox::scripted(
        DELTA,
        TOOLS,
        &turns(&["mkdir -p a/build; echo x > a/build/x; echo x > a/x.log; echo x > x"]),
    );
    let agent = sandbox.read("agent/agent.yaml");
    sandbox
        .write("agent/agent.yaml", format!("{agent}snapshots: {{exclude: [build, 'a/*.log']}}\n"));
    sandbox.run("go", &[]).expect_code(0);
    let taken = sandbox.events("SNAPSHOT");
    assert_eq!(taken[1]["exclude"], json!(["build", "a/*.log"]));
    let ran = rollback(&sandbox, "0", &[]).expect_code(0);
    assert_eq!(
        ran.stdout,
        "restored the workspace to the state before the run: 0 changed, 0 created, 1 deleted\n"
    );
    assert!(sandbox.path("work/a/build/x").exists() && sandbox.path("work/a/x.log").exists());
    assert!(!sandbox.path("work/x").exists());
    // What stays because of them is not said to be gone, and once is enough.
    let again = rollback(&sandbox, "0", &[]);
    let expected = "nothing to restore: the workspace already matches the state before the run\n";
    assert_eq!(again, Ran { code: 0, stdout: expected.to_owned(), stderr: String::new() });

    sandbox.write(
        "agent/agent.yaml",
        format!("{agent}snapshots: {{exclude: ['a[b', 7, '!x'], except: x}}\n"),
    );
    let ran = sandbox
        .delta(["run", "--agent", "agent", "-w", "work", "-m", "go"])
        .output()
        .expect_code(126);
    for expected in [
        "`a[b` is not a pattern: invalid range pattern at character 1",
        "`!x` is not a pattern: it cannot include again",
        "unknown key `except` in `snapshots`",
    ] {
        assert!(ran.stderr.contains(expected), "{}", ran.stderr);
    }
}

#[test]
fn c_16_1_a_leading_slash_is_the_workspace() {
    let sandbox =
        Sandbox::scripted(DELTA, TOOLS, &turns(&["mkdir -p a; echo x | tee secrets > a/secrets"]));
    let agent = sandbox.read("agent/agent.yaml");
    sandbox.write("agent/agent.yaml", format!("{agent}snapshots: {{exclude: [/secrets]}}\n"));
    sandbox.run("go", &[]).expect_code(0);
    assert_eq!(sandbox.events("SNAPSHOT")[1]["exclude"], json!(["./secrets"]));
    rollback(&sandbox, "0", &[]).expect_code(0);
    assert!(sandbox.path("work/secrets").exists() && !sandbox.path("work/a/secrets").exists());
    // The pattern of the run, without the agent.
    sandbox.write("agent/agent.yaml", &agent);
    sandbox.write("work/a", "x\n");
    rollback(&sandbox, "0", &[]).expect_code(0);
    assert!(sandbox.path("work/secrets").exists() && !sandbox.path("work/a").exists());
}

#[test]
fn c_16_1_the_key_is_in_no_snapshot() {
    let key = "sk-0123456789abcdef";
    let script = format!("echo KEY={key} > .env.copy; echo more >> there");
    let sandbox = Sandbox::scripted(DELTA, TOOLS, &turns(&["true"]));
    sandbox.write("work/there", "before\n");
    sandbox.write("work/copy.sh", &script);
    sandbox.write("work/.env", format!("DELTA_API_KEY={key}\n"));
    let run = sandbox.run_command("go", &["--snapshots"]).env("DELTA_API_KEY", key).output();
    let run = run.expect_code(0);
    for left in [".env", "copy.sh"] {
        let told = format!("! the snapshots leave out {left}: it holds a key\n");
        assert_eq!(run.stderr.matches(&told).count(), 1, "{}", run.stderr);
    }
    fs::write(sandbox.path("work/there"), "after\n").unwrap();
    rollback(&sandbox, "0", &[]).expect_code(0);
    assert_eq!(sandbox.read("work/there"), "before\n");
    assert_eq!(sandbox.read("work/.env"), format!("DELTA_API_KEY={key}\n"));
    for name in sandbox.files("work/.delta") {
        let bytes = fs::read(sandbox.path("work/.delta").join(&name)).unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains(key), "{name}");
    }
    assert_eq!(sandbox.events("SNAPSHOT")[0]["left_out"], 2);
}

#[test]
fn c_16_3_a_rollback_puts_everything_back_and_can_be_undone() {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, &turns(&[FIRST, SECOND, THIRD]));
    sandbox.write("work/there", "before\n");
    let mut states = vec![workspace(&sandbox)];
    // One iteration for each process, to see the workspace between them.
    sandbox.run("go", &["--snapshots", "--max-iterations", "1"]).expect_code(1);
    states.push(workspace(&sandbox));
    for _ in 0..2 {
        resume(&sandbox, &["-m", "on", "--max-iterations", "1"]).expect_code(1);
        states.push(workspace(&sandbox));
    }
    assert_eq!(states[1], states[2]);
    assert_eq!(snapshots(&sandbox), ["0", "1", "3"]);
    for to in [1_usize, 3, 0, 2, 3, 1] {
        let ran = rollback(&sandbox, &to.to_string(), &[]).expect_code(0);
        assert_eq!(workspace(&sandbox), states[to], "{}", ran.stdout);
    }
    // What a person has done meanwhile is not lost.
    sandbox.write("work/src/mine", "a person's\n");
    let mine = workspace(&sandbox);
    let ran = rollback(&sandbox, "0", &[]).expect_code(0);
    assert_eq!(workspace(&sandbox), states[0]);
    let saved = sandbox.events("ROLLBACK").last().unwrap()["saved"].as_str().unwrap().to_owned();
    let way = format!("Undo it with: delta rollback r -w work --to {}\n", &saved[..12]);
    assert_eq!(ran.stderr, way);
    assert_eq!(
        ran.stdout,
        "restored the workspace to the state before the run: 0 changed, 0 created, 7 deleted\n"
    );
    let ran = rollback(&sandbox, &saved[..12], &[]).expect_code(0);
    assert_eq!(
        ran.stdout,
        format!(
            "restored the workspace to snapshot {}: 0 changed, 7 created, 0 deleted\n",
            &saved[..12]
        )
    );
    assert_eq!(workspace(&sandbox), mine);
    assert_eq!(snapshots(&sandbox), ["0", "1", "3", "3+"]);
}

#[test]
fn c_16_3_without_to_what_followed_the_last_message_is_undone() {
    let back = |sandbox: &Sandbox, more: &[&str]| command(sandbox, "rollback", more).expect_code(0);
    let nothing =
        "nothing to restore: the workspace already matches the state before the last message\n";
    let sandbox = Sandbox::scripted(DELTA, TOOLS, &turns(&[FIRST, SECOND]));
    sandbox.write("work/there", "before\n");
    let start = workspace(&sandbox);
    sandbox.run("go", &["--snapshots"]).expect_code(0);
    // There is one message.
    let ran = back(&sandbox, &["--dry-run"]);
    let end = "would restore the workspace to the state before the last message: 0 changed, 0 created, 6 deleted\n";
    assert!(ran.stdout.ends_with(end), "{}", ran.stdout);
    back(&sandbox, &[]);
    assert_eq!(workspace(&sandbox), start);
    assert_eq!(back(&sandbox, &[]).stdout, nothing);
    assert_eq!(sandbox.events("ROLLBACK")[0]["to"], 0);

    // What the user changes between two messages precedes the second one.
    rollback(&sandbox, "2", &[]).expect_code(0);
    sandbox.write("work/mine", "a person's\n");
    let mine = workspace(&sandbox);
    let answers =
        "- say: done\n- call: [{tool: do, args: {script: 'rm -r src; echo x > x'}}]\n- say: done\n";
    let calls = turns(&[FIRST, SECOND]);
    let calls = calls.split("- say").next().unwrap();
    sandbox.write("agent/script.yaml", format!("turns:\n{calls}{answers}"));
    resume(&sandbox, &["-m", "and now?"]).expect_code(0);
    assert!(sandbox.path("work/x").exists());
    back(&sandbox, &[]);
    assert_eq!(workspace(&sandbox), mine);
    assert_eq!(back(&sandbox, &[]).stdout, nothing);
    // Neither a rollback to another state nor its undoing is a message.
    rollback(&sandbox, "0", &[]).expect_code(0);
    assert_eq!(workspace(&sandbox), start);
    assert_eq!(back(&sandbox, &["--format", "json"]).json()["to"], Value::Null);
    assert_eq!(workspace(&sandbox), mine);
}

#[test]
fn c_16_3_in_a_fork_the_last_message_is_its_own_or_the_last_one_copied() {
    let sandbox = done();
    let fork = |args: &[&str]| sandbox.delta(args.iter().copied()).output();
    fork(&["fork", "r", "-w", "work", "--at", "1", "--into", "fork", "--run-id", "f"])
        .expect_code(0);
    let ran = fork(&["rollback", "f", "-w", "fork"]).expect_code(0);
    assert!(ran.stdout.contains("the state before the last message: 0 changed, 0 created, 6"));
    assert!(!sandbox.path("fork/src").exists());
    fork(&["rollback", "f", "-w", "fork", "--to", "1"]).expect_code(0);
    fork(&["continue", "f", "-w", "fork", "-m", "again"]).expect_code(0);
    assert!(!sandbox.path("fork/src/b").exists());
    fork(&["rollback", "f", "-w", "fork"]).expect_code(0);
    assert!(sandbox.path("fork/src/b").exists());
}

#[test]
fn c_16_3_a_message_without_a_snapshot_before_it_is_named() {
    let script = turns(&[FIRST]).replacen("- say", "- call: [{tool: die}]\n- say", 1);
    let sandbox = Sandbox::scripted(DELTA, TOOLS, &script);
    sandbox.run("go", &[]).expect_code(-1);
    resume(&sandbox, &["--snapshots"]).expect_code(0);
    let ran = command(&sandbox, "rollback", &[]);
    let expected = "error: run r has no snapshot from before its last message\nhelp: its first snapshot is of iteration 2\n";
    assert_eq!(ran, Ran { code: 1, stdout: String::new(), stderr: expected.to_owned() });
}

#[test]
fn c_16_1_a_larger_workspace_has_no_snapshots_unless_they_are_requested() {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, &turns(&[FIRST]));
    let agent = sandbox.read("agent/agent.yaml");
    for i in 0..4 {
        sandbox.write(&format!("work/cache/{i}"), "12345");
    }
    let note = |excess: &str| {
        format!(
            "Note: no snapshots, because the workspace has more than {excess}; `--snapshots` takes them\n"
        )
    };
    for (id, limit, excess) in [
        ("files", "{max_files: 4}", Some("4 files")),
        ("bytes", "{max_bytes: 19}", Some("19 bytes")),
        ("both", "{max_files: 4, max_bytes: 19}", Some("4 files")),
        ("fits", "{max_files: 5, max_bytes: 20}", None),
    ] {
        sandbox.write("agent/agent.yaml", format!("{agent}snapshots: {limit}\n"));
        let args = ["run", "--agent", "agent", "-w", "work", "--run-id", id, "-m", "go"];
        let ran = sandbox.delta(args).output().expect_code(0);
        let shown = excess.is_some_and(|excess| ran.stderr.contains(&note(excess)));
        assert_eq!(shown, excess.is_some(), "{}", ran.stderr);
        assert_eq!(sandbox.path(&format!("work/.delta/{id}/snapshots")).exists(), !shown, "{id}");
        sandbox.delta(["rollback", id, "-w", "work"]).output().expect_code(i32::from(shown));
        let _ = Command::new("sh")
            .args(["-c", "rm -rf src empty link"])
            .current_dir(sandbox.path("work"))
            .status();
    }
    // What is excluded does not count, and the operator's word does.
    sandbox.write(
        "agent/agent.yaml",
        format!("{agent}snapshots: {{max_files: 1, exclude: [cache]}}\n"),
    );
    sandbox.run("go", &[]).expect_code(0);
    assert_eq!(snapshots(&sandbox), ["0", "1"]);
    sandbox.write("agent/agent.yaml", format!("{agent}snapshots: {{max_files: 1}}\n"));
    let args = ["run", "--agent", "agent", "-w", "work", "--snapshots", "-m", "go"];
    let ran = sandbox.delta(args).output().expect_code(0);
    assert!(!ran.stderr.contains("Note: no snapshots"), "{}", ran.stderr);
}

#[test]
fn c_16_3_the_llm_is_told_when_the_run_goes_on() {
    let sandbox = done();
    rollback(&sandbox, "1", &[]).expect_code(0);
    let note = "[The working directory was put back to its state at the end of iteration 1, after the calls of your answer 1. \
                What was changed in it since then is undone.]";
    resume(&sandbox, &["-m", "and now?"]).expect_code(0);
    let request: Value = command(&sandbox, "show", &["--request", "5"]).json();
    let messages = request["messages"].as_array().unwrap();
    let said: Vec<&Value> = messages.iter().rev().take(2).map(|it| &it["content"]).collect();
    assert_eq!(said, [&json!("and now?"), &json!(note)]);
    // The workspace is as the rollback has left it, so that there is no snapshot in between.
    assert_eq!(snapshots(&sandbox), ["0", "1", "3"]);
    assert!(command(&sandbox, "show", &[]).stdout.contains("restored to the end of iteration 1"));
    assert_eq!(
        rollback(&sandbox, "5", &[]).stdout,
        "nothing to restore: the workspace already matches the end of iteration 5\n"
    );
    // What was the end of an iteration stays it.
    rollback(&sandbox, "3", &[]).expect_code(0);
    assert_eq!(sandbox.read("work/src/a"), "one\ntwo\n");
}

#[test]
fn c_16_3_a_rehearsal_changes_nothing() {
    let sandbox = done();
    let (before, journal) = (workspace(&sandbox), sandbox.read("work/.delta/r/journal.jsonl"));
    let ran = rollback(&sandbox, "1", &["--dry-run"]).expect_code(0);
    let expected = "create empty\nchange link\ndelete link.d\ndelete moved\nchange src/a\ncreate src/b\ncreate src/deep\n\
                    delete untracked?name\nwould restore the workspace to the end of iteration 1: 2 changed, 3 created, 3 deleted\n";
    assert_eq!(ran, Ran { code: 0, stdout: expected.to_owned(), stderr: String::new() });
    assert_eq!(
        (workspace(&sandbox), sandbox.read("work/.delta/r/journal.jsonl")),
        (before, journal)
    );
    let json = rollback(&sandbox, "1", &["--format", "json"]).expect_code(0).json();
    assert_eq!(json["done"], true);
    assert_eq!(json["changes"][7], json!({"change": "delete", "path": "untracked\nname"}));
    assert_eq!(json["saved"], sandbox.events("SNAPSHOT")[2]["tree"]);
    assert_eq!(json["tree"], sandbox.events("SNAPSHOT")[1]["tree"]);
}

#[test]
fn c_16_3_a_run_at_work_is_left_alone() {
    let sandbox = Sandbox::scripted(
        DELTA,
        TOOLS,
        "- call: [{tool: do, args: {script: echo x > x}}]\n- call: [{tool: hold}]\n- say: ok\n",
    );
    sandbox.write("work/there", "");
    assert!(Command::new("mkfifo").arg(sandbox.path("work/gate")).status().unwrap().success());
    sandbox.run("go", &["--snapshots", "--max-iterations", "1"]).expect_code(1);
    let child = sandbox.delta(["continue", "r", "-w", "work", "-m", "on"]).spawn();
    until_line(&sandbox.path("work/held"));
    let active = format!("error: Run r is still active (PID {}).\n", child.id());
    let refused = rollback(&sandbox, "0", &[]).expect_code(1).stderr;
    assert!(refused.starts_with(&active), "{refused}");
    assert!(
        refused.contains("\nCannot roll back while original process is running.\n"),
        "{refused}"
    );
    assert!(refused.contains("help: stop it with `delta stop r -w "), "{refused}");
    // Nor does another run of the workspace go back under its feet.
    let other = [
        "run",
        "--agent",
        "agent",
        "-w",
        "work",
        "--run-id",
        "s",
        "-m",
        "go",
        "--snapshots",
        "--max-iterations",
        "1",
    ];
    sandbox.delta(other).output().expect_code(1);
    let refused = sandbox.delta(["rollback", "s", "-w", "work", "--to", "0"]).output();
    let expected = format!(
        "error: run r is active in this workspace\nhelp: wait for it or stop it; `delta show r -w {}` shows its progress\n",
        sandbox.path("work").display()
    );
    assert_eq!(refused, Ran { code: 1, stdout: String::new(), stderr: expected });
    // Whoever only looks disturbs nobody, also at what is there now.
    let diff = command(&sandbox, "diff", &["1", "now", "--name-only"]);
    assert_eq!(diff, Ran { code: 1, stdout: "held\n".to_owned(), stderr: String::new() });
    fs::write(sandbox.path("work/gate"), "go\n").unwrap();
    assert!(child.wait_with_output().unwrap().status.success());
}

#[test]
fn c_16_3_a_killed_run_goes_back_too() {
    let sandbox = Sandbox::scripted(
        DELTA,
        TOOLS,
        "- call: [{tool: do, args: {script: echo x > x}}]\n- call: [{tool: die}]\n- say: ok\n",
    );
    sandbox.run("go", &["--snapshots"]).expect_code(-1);
    until("the tool is gone", || sandbox.path("work/half").exists().then_some(()));
    let expected =
        "error: run r has no complete iteration 2\nhelp: its last complete iteration is 1\n";
    let ran = rollback(&sandbox, "2", &[]);
    assert_eq!(ran, Ran { code: 1, stdout: String::new(), stderr: expected.to_owned() });
    let ran = rollback(&sandbox, "1", &[]).expect_code(0);
    assert!(ran.stdout.ends_with(": 0 changed, 0 created, 1 deleted\n"), "{}", ran.stdout);
    assert_eq!(
        sandbox.files("work").iter().filter(|it| !it.starts_with(".delta")).collect::<Vec<_>>(),
        ["x"]
    );
    assert!(
        kinds(&sandbox).ends_with(" ACTION_REQUEST ENGINE_END SNAPSHOT ROLLBACK"),
        "{}",
        kinds(&sandbox)
    );
    // The call that was begun is settled as ever, and the end of its iteration is one.
    resume(&sandbox, &[]).expect_code(0);
    assert_eq!(sandbox.observations().len(), 2);
    assert_eq!(
        rollback(&sandbox, "2", &[]).stdout,
        "nothing to restore: the workspace already matches the end of iteration 2\n"
    );
}

#[test]
fn c_16_2_a_rollback_that_stopped_half_way_is_done_once_more() {
    let sandbox = done();
    let before = workspace(&sandbox);
    // A directory that cannot be written into from outside: a mount would do that, and a file that cannot be removed.
    let script = "chattr +i untracked* 2>/dev/null || exit 1";
    let locked =
        Command::new("sh").args(["-c", script]).current_dir(sandbox.path("work")).status().unwrap();
    if !locked.success() {
        needs::skip("needs `chattr +i`");
        return;
    }
    let ran = rollback(&sandbox, "1", &[]);
    Command::new("sh")
        .args(["-c", "chattr -i untracked*"])
        .current_dir(sandbox.path("work"))
        .status()
        .unwrap();
    assert_eq!(ran.code, 126, "{}", ran.stderr);
    assert!(
        ran.stderr.contains(
            "help: the workspace is partly restored; run the same command again to finish, or `delta rollback r -w work --to "
        ),
        "{}",
        ran.stderr
    );
    assert_ne!(workspace(&sandbox), before);
    let ran = rollback(&sandbox, "1", &[]).expect_code(0);
    assert!(
        ran.stdout.starts_with("restored the workspace to the end of iteration 1: ")
            && ran.stdout.ends_with(" 1 deleted\n"),
        "{}",
        ran.stdout
    );
    let saved = sandbox.events("ROLLBACK")[0]["saved"].as_str().unwrap().to_owned();
    rollback(&sandbox, &saved, &[]).expect_code(0);
    assert_eq!(workspace(&sandbox), before);
}

#[test]
fn c_16_2_what_is_damaged_is_named_and_nothing_is_changed() {
    let sandbox = done();
    let (before, journal) = (workspace(&sandbox), sandbox.read("work/.delta/r/journal.jsonl"));
    let name = sha256("b\n");
    let object = format!("work/.delta/r/snapshots/objects/{}/{}", &name[..2], &name[2..]);
    sandbox.write(&object, "c\n");
    let ran = rollback(&sandbox, "1", &[]);
    let expected = format!(
        "error: the snapshot is damaged:\nsrc/b: {} is damaged: its SHA-256 does not match its name\n",
        sandbox.path(&object).display()
    );
    assert_eq!(ran, Ran { code: 1, stdout: String::new(), stderr: expected });
    assert_eq!(
        (workspace(&sandbox), sandbox.read("work/.delta/r/journal.jsonl")),
        (before, journal)
    );
    rollback(&sandbox, "0", &[]).expect_code(0);
    sandbox.unverified("a journal that was edited by hand is what is tested");
    // A journal that names what is no tree is not believed.
    sandbox.unverified("its journal is edited");
    edit_journal(&sandbox, |journal| journal.replacen("\"tree\":\"", "\"tree\":\"../", 1));
    assert_eq!(rollback(&sandbox, "0", &[]).code, 1);
}

#[test]
fn c_16_2_what_would_go_and_is_not_kept_whole_stays() {
    let sandbox = done();
    sandbox.write("work/mine", "my words\n");
    let name = sha256("my words\n");
    let object = format!("work/.delta/r/snapshots/objects/{}/{}", &name[..2], &name[2..]);
    rollback(&sandbox, "3", &[]).expect_code(0);
    sandbox.write("work/mine", "my words\n");
    // Of the same length, as a power failure may leave it. A file that has not changed for some time is not read again.
    sandbox.write(&object, "no words\n");
    let before = workspace(&sandbox);
    let ran = rollback(&sandbox, "3", &[]);
    if ran.code != 0 {
        let expected = format!(
            "error: the snapshot is damaged:\nmine: {} is damaged: its SHA-256 does not match its name; \
             delete that file, and the current content is stored again\n",
            sandbox.path(&object).display()
        );
        assert_eq!(ran, Ran { code: 1, stdout: String::new(), stderr: expected });
        assert_eq!(workspace(&sandbox), before);
        fs::remove_file(sandbox.path(&object)).unwrap();
        rollback(&sandbox, "3", &[]).expect_code(0);
    }
    assert!(!sandbox.path("work/mine").exists());
    assert_eq!(sandbox.read(&object), "my words\n");
}

#[test]
fn c_16_4_diff_shows_what_an_iteration_did() {
    let sandbox = done();
    let ran = command(&sandbox, "diff", &["1", "3"]);
    let expected = "Deleted directory empty\n\
diff --git a/link b/link\n--- a/link\n+++ b/link\n@@ -1 +1 @@\n-src/a\n\\ No newline at end of file\n+nowhere\n\\ No newline at end of file\n\
New directory link.d, mode 0755\nNew directory moved, mode 0500\n\
diff --git a/src/a b/src/a\nold mode 100644\nnew mode 100755\n--- a/src/a\n+++ b/src/a\n@@ -1 +1,2 @@\n one\n+two\n\
diff --git a/src/b b/src/b\ndeleted file mode 100600\n--- a/src/b\n+++ /dev/null\n@@ -1 +0,0 @@\n-b\n\
Deleted directory src/deep\n\
diff --git \"a/untracked\\nname\" \"b/untracked\\nname\"\nnew file mode 100644\n--- /dev/null\n+++ \"b/untracked\\nname\"\n@@ -0,0 +1 @@\n+new\n";
    assert_eq!(ran, Ran { code: 1, stdout: expected.to_owned(), stderr: String::new() });
    let stat = command(&sandbox, "diff", &["0", "1", "--stat"]);
    let expected = "empty | new directory, mode 0755\nlink | +1 -0\nsrc/a | +1 -0\nsrc/b | +1 -0\nsrc/deep | new directory, mode 0755\n3 added, 0 removed\n";
    assert_eq!(stat, Ran { code: 1, stdout: expected.to_owned(), stderr: String::new() });
    let equal = command(&sandbox, "diff", &["1", "2"]);
    assert_eq!(equal, Ran { code: 0, stdout: String::new(), stderr: String::new() });
    sandbox.write("work/there", [0, 1, 2]);
    let now = command(&sandbox, "diff", &["3"]);
    let expected = "Binary files a/there and b/there differ; this patch leaves them out\n";
    assert_eq!(now, Ran { code: 1, stdout: expected.to_owned(), stderr: String::new() });
    assert_eq!(sandbox.events("SNAPSHOT").len(), 3, "looking records nothing");
}

/// Comparing files of labels, one in each line, took time that grew with the square of their length.
#[test]
fn c_16_4_long_files_with_few_different_lines_are_compared() {
    let label =
        |seed: u32, line: u32| seed.wrapping_add(line).wrapping_mul(2_654_435_761) >> 13 & 1;
    let labels =
        |seed| (0..60_000).map(|line| format!("{}\n", label(seed, line))).collect::<String>();
    let tools = "  - name: work\n    shell: mv ../other labels\n";
    let sandbox = Sandbox::scripted(DELTA, tools, "- call: [{tool: work}]\n- say: ok\n");
    let config = sandbox.read("agent/agent.yaml");
    sandbox.write("agent/agent.yaml", config + "snapshots: true\n");
    sandbox.write("work/labels", labels(1));
    sandbox.write("other", labels(77_777));
    sandbox.run("hi", &[]).expect_code(0);
    // It did not end within 15 seconds of the processor, and takes less than one.
    let script = format!("ulimit -t 15; exec '{DELTA}' diff r 0 1 -w work --stat");
    let mut diff = Command::new("sh");
    let ran = diff.args(["-c", &script]).current_dir(sandbox.path(".")).output().unwrap();
    assert!(ran.status.code() == Some(1), "{ran:?}");
}

#[test]
fn c_16_4_git_and_patch_apply_names_with_blanks_beside_binary_files() {
    let tools = "  - name: work\n    shell: echo two >> 'my notes' && printf '\\000b' > a.bin && echo b > 'b c' && chmod +x zz && printf '\\000' > zzz\n";
    let sandbox = Sandbox::scripted(DELTA, tools, "- call: [{tool: work}]\n- say: ok\n");
    let config = sandbox.read("agent/agent.yaml");
    sandbox.write("agent/agent.yaml", config + "snapshots: true\n");
    for directory in ["work", "git", "patch"] {
        sandbox.write(&format!("{directory}/my notes"), "one\n");
        sandbox.write(&format!("{directory}/a.bin"), [0, 1]);
        sandbox.write(&format!("{directory}/zz"), "");
    }
    sandbox.run("hi", &[]).expect_code(0);
    let patch = command(&sandbox, "diff", &["0", "1"]).stdout;
    sandbox.write("changes", &patch);
    assert_eq!(patch.matches("this patch leaves them out\n").count(), 2, "{patch}");
    for (directory, program) in [("git", &["git", "apply"][..]), ("patch", &["patch", "-p1", "-i"])]
    {
        if !needs::programs_for_part(&program[..1]) {
            continue;
        }
        let mut apply = Command::new(program[0]);
        apply.args(&program[1..]).arg("../changes").current_dir(sandbox.path(directory));
        let applied = apply.output().unwrap();
        assert!(applied.status.success(), "{applied:?}\n{patch}");
        assert_eq!(sandbox.read(&format!("{directory}/my notes")), "one\ntwo\n");
        assert_eq!(sandbox.read(&format!("{directory}/b c")), "b\n");
    }
}

#[test]
fn c_16_4_git_applies_what_diff_prints() {
    let sandbox = done();
    let patch = command(&sandbox, "diff", &["1", "3"]).stdout;
    rollback(&sandbox, "1", &[]).expect_code(0);
    sandbox.write("patch", &patch);
    let applied = Command::new("git")
        .args(["apply", "../patch"])
        .current_dir(sandbox.path("work"))
        .output()
        .unwrap();
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    // Git knows no empty directories and few rights; all files and symlinks are there.
    let left = command(&sandbox, "diff", &["3", "now", "--name-only"]).stdout;
    assert_eq!(left, "empty\nlink.d\nmoved\nsrc/deep\n");
}

/// git refuses a whole patch with a path of its own directory, or with a change of permissions that it does not know.
#[test]
fn c_38_6_git_applies_the_patch_of_a_commit_and_of_other_permissions() {
    let script = "chmod 600 a b; chmod 755 c; echo b >> b; mkdir -p sub/.GIT 'sub/git~1'; \
                  echo x > sub/.GIT/x; echo x > 'sub/git~1/x'; echo new > sub/new; \
                  git -c user.name=a -c user.email=a@example.org commit -qam b";
    let sandbox = Sandbox::scripted(DELTA, TOOLS, &turns(&[script]));
    for name in ["a", "b", "c"] {
        sandbox.write(&format!("work/{name}"), "one\n");
        let path = sandbox.path("work").join(name);
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    }
    let git = |args: &[&str], dir: &str| {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=a", "-c", "user.email=a@example.org"]);
        let ran = git.args(args).current_dir(sandbox.path(dir)).output().unwrap();
        assert!(ran.status.success(), "{args:?}: {}", String::from_utf8_lossy(&ran.stderr));
    };
    git(&["init", "-q"], "work");
    git(&["add", "."], "work");
    git(&["commit", "-qm", "a"], "work");
    git(&["clone", "-q", "work", "copy"], "");
    sandbox.run("go", &["--snapshots"]).expect_code(0);
    let patch = command(&sandbox, "diff", &["0", "1"]).stdout;
    assert!(patch.contains("File a, mode 0644, now 0600\n"), "{patch}");
    // Whoever decides about a stage has to see what a hook or the configuration says.
    let shown = ".git/COMMIT_EDITMSG differs; this patch leaves it out\n";
    assert!(patch.contains(shown) && patch.contains("\n# +b\n"), "{patch}");
    sandbox.write("patch", &patch);
    git(&["apply", "../patch"], "copy");
    for name in ["a", "b", "c", "sub/new"] {
        let [work, copy] = ["work", "copy"].map(|dir| sandbox.read(&format!("{dir}/{name}")));
        assert_eq!(work, copy, "{patch}");
    }
    git(&["apply", "-R", "../patch"], "copy");
    if needs::programs_for_part(&["patch"]) {
        let patch = ["patch", "-p1", "-i", "../patch"];
        let ran =
            Command::new(patch[0]).args(&patch[1..]).current_dir(sandbox.path("copy")).output();
        assert!(ran.as_ref().unwrap().status.success(), "{ran:?}");
    }
}

#[test]
fn c_16_4_who_cannot_tell_says_so() {
    let sandbox = done();
    for (args, code) in [(["9", "1"], 2), (["1", "0123456789ab"], 2), (["then", "1"], 2)] {
        let ran = command(&sandbox, "diff", &args);
        assert_eq!((ran.code, ran.stdout.as_str()), (code, ""), "{}", ran.stderr);
        assert!(!ran.stderr.is_empty());
    }
}

/// A file that a container mounts cannot be replaced, and stopped every rollback at it.
#[test]
fn c_16_2_a_file_that_is_a_mount_point_is_restored() {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, &turns(&["echo 2 > a; echo 2 > m; echo 2 > z"]));
    for name in ["a", "m", "z"] {
        sandbox.write(&format!("work/{name}"), "1\n");
    }
    sandbox.run("go", &["--snapshots"]).expect_code(0);
    let mount = "unshare --user --map-root-user --mount sh -c 'mount --bind work/m work/m && exec \"$0\" \"$@\"'";
    let sandbox = sandbox.started_by(mount);
    if sandbox.delta(["--version"]).output().code != 0 {
        return needs::skip("needs a mount");
    }
    rollback(&sandbox, "0", &[]).expect_code(0);
    for name in ["a", "m", "z"] {
        assert_eq!(sandbox.read(&format!("work/{name}")), "1\n", "{name}");
    }
    assert_eq!(sandbox.files("work").iter().filter(|name| !name.contains(".delta/")).count(), 3);
}

/// Root that rolled back the change of a user's file took the file away from the user.
#[test]
fn c_16_2_a_rollback_by_root_leaves_a_file_to_its_owner() {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, &turns(&["echo two >> f; rm gone"]));
    for name in ["f", "gone"] {
        sandbox.write(&format!("work/{name}"), "one\n");
        let path = sandbox.path("work").join(name);
        if chown(&path, Some(65534), Some(65533)).is_err() {
            needs::skip("needs root, which writes the files of another user");
            return;
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o4640)).unwrap();
    }
    sandbox.run("go", &["--snapshots"]).expect_code(0);
    rollback(&sandbox, "0", &[]).expect_code(0);
    let owner_and_mode = |name: &str| {
        let file = fs::metadata(sandbox.path("work").join(name)).unwrap();
        (file.uid(), file.gid(), file.mode() & 0o7777)
    };
    assert_eq!(sandbox.read("work/f"), "one\n");
    assert_eq!(owner_and_mode("f"), (65534, 65533, 0o4640));
    // A snapshot has no owners, so a file that was gone is root's, without setuid.
    assert_eq!(owner_and_mode("gone"), (0, 0, 0o640));
}

#[test]
fn c_16_2_a_rollback_is_no_work_of_the_run() {
    let sandbox = done();
    let metrics = || command(&sandbox, "show", &["--format", "json"]).json()["metrics"].clone();
    let spans = || {
        let sent = command(&sandbox, "export", &["--to", "otlp"]).json();
        sent["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["endTimeUnixNano"].clone()
    };
    let before = (metrics(), spans());
    rollback(&sandbox, "1", &[]).expect_code(0);
    rollback(&sandbox, "3", &[]).expect_code(0);
    assert_eq!((metrics(), spans()), before);
    let ended = sandbox.events("ENGINE_END")[0]["timestamp"].clone();
    assert_eq!(metrics()["end_time"], ended);
    assert_eq!(sandbox.metadata()["end_time"], ended);
}
