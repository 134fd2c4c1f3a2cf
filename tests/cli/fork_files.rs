//! The files of a fork whose run keeps snapshots (C-16.6).

use super::DELTA;
use super::fork::{fork, forked};
use super::runs::snapshot;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use test_support::sandbox::Sandbox;

/// Writes, changes and takes away; `bare` is a directory that stays empty.
const FILES: &str = "\
- call: [{tool: sh, args: {script: 'echo one > f; chmod 751 f; mkdir bare; ln -s f link'}}]
- call: [{tool: sh, args: {script: 'echo two > f; rm -r link bare; echo more > g'}}]
- call: [{tool: sh, args: {script: 'true'}}]
- say: 'done ${last}'
";

const SH: &str = "  - name: sh\n    stdin: script\n    exec: sh\n";

/// Run `r` with snapshots, done.
fn kept() -> Sandbox {
    let sandbox = Sandbox::scripted(DELTA, SH, FILES);
    sandbox.run("task", &["--snapshots"]).expect_code(0);
    sandbox
}

/// What is in `new/` beside its runs.
fn fresh(sandbox: &Sandbox) -> Vec<String> {
    let files = sandbox.files("new").into_iter();
    files.filter(|name| !name.starts_with(".delta/")).collect()
}

#[test]
fn c_16_6_with_snapshots_the_files_are_those_of_the_iteration() {
    let sandbox = kept();
    let before = snapshot(&sandbox);
    let made = fork(&sandbox, &["--at", "1", "--into", "new"]).normal(&sandbox);
    let expected = "Restored the files of iteration 1 in DIR/new\n\
                    Continue with: delta continue --run-id f -w DIR/new\n";
    made.expect(0, "f\n", expected);
    assert!(snapshot(&sandbox) == before, "the run is only read");
    assert_eq!(fresh(&sandbox), ["f", "link"]);
    assert_eq!(sandbox.read("new/f"), "one\n");
    assert!(sandbox.path("new/bare").is_dir());
    assert_eq!(fs::read_link(sandbox.path("new/link")).unwrap().to_str(), Some("f"));
    let mode = fs::metadata(sandbox.path("new/f")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o751);
    let events = forked(&sandbox);
    let last = |kind: &str| events.iter().rfind(|event| event["type"] == kind).unwrap();
    assert_eq!(last("FORK")["files"], "snapshot");
    assert_eq!(last("FORK")["tree"], last("SNAPSHOT")["tree"]);
    // It has the snapshots of before, and goes on with its own.
    let rolled = sandbox.delta(["diff", "f", "0", "1", "--name-only", "-w", "new"]).output();
    rolled.expect(1, "bare\nf\nlink\n", "");
    sandbox.delta(["continue", "f", "-w", "new", "-q"]).output().expect_code(0);
    assert_eq!(fresh(&sandbox), ["f", "g"]);
    let iterations: Vec<Value> = forked(&sandbox)
        .into_iter()
        .filter(|event| event["type"] == "SNAPSHOT")
        .map(|event| json!([event["iteration"], event["found"]]))
        .collect();
    assert_eq!(iterations, [json!([0, null]), json!([1, null]), json!([2, null])]);
    sandbox.delta(["rollback", "f", "--to", "1", "-w", "new"]).output().expect_code(0);
    assert_eq!((fresh(&sandbox).len(), sandbox.read("new/f")), (2, "one\n".to_owned()));
}

#[test]
fn c_16_6_an_iteration_that_changed_nothing_has_the_files_of_the_one_before() {
    let sandbox = kept();
    sandbox.write("work/f", "of later");
    fork(&sandbox, &["--at", "3", "--into", "new", "--continue", "-q"]).expect_code(0);
    assert_eq!(sandbox.read("new/f"), "two\n");
    assert_eq!(sandbox.read("work/f"), "of later");
    let found = forked(&sandbox).iter().filter(|event| event["found"] == true).count();
    assert_eq!(found, 0, "the workspace is what the snapshot says");
}

#[test]
fn c_16_6_what_a_snapshot_leaves_out_is_named() {
    let sandbox = Sandbox::scripted(DELTA, SH, FILES);
    sandbox.write("agent/.env", "OPENAI_API_KEY=sk-very-secret\n");
    sandbox.write("work/.env", "OPENAI_API_KEY=sk-very-secret\n");
    sandbox.write("work/sub/x", "kept");
    assert!(Command::new("mkfifo").arg(sandbox.path("work/sub/pipe")).status().unwrap().success());
    sandbox.run("task", &["--snapshots"]).expect_code(0);
    let made = fork(&sandbox, &["--at", "1", "--into", "new"]).normal(&sandbox);
    let expected = "Note: the new workspace lacks .env, sub/pipe, which the snapshot does not contain\n\
                    Restored the files of iteration 1 in DIR/new\n\
                    Continue with: delta continue --run-id f -w DIR/new\n";
    made.expect(0, "f\n", expected);
    assert_eq!(fresh(&sandbox), ["f", "link", "sub/x"]);
}

#[test]
fn c_16_6_an_iteration_whose_end_nobody_saw_has_the_present_files() {
    let sandbox = Sandbox::scripted(DELTA, SH, FILES);
    // The engine dies between the last result of iteration 2 and its snapshot.
    let hook =
        "on_iteration_end: {command: [sh, -c, 'test $ITERATION_COUNT = 1 || kill -9 $PPID']}\n";
    sandbox.write("agent/hooks.yaml", hook);
    sandbox.run("task", &["--snapshots"]).expect_code(-1);
    let made = fork(&sandbox, &["--into", "new"]).expect_code(0);
    assert!(made.stderr.contains("the run has no snapshot of iteration 2"), "{}", made.stderr);
    assert_eq!(
        (fresh(&sandbox), sandbox.read("new/f")),
        (vec!["f".to_owned(), "g".to_owned()], "two\n".to_owned())
    );
    let made = sandbox.delta(["fork", "r", "-w", "work", "--at", "1", "--into", "first", "-q"]);
    made.output().expect_code(0);
    assert_eq!(sandbox.read("first/f"), "one\n");
}

#[test]
fn c_16_6_a_snapshot_that_is_not_whole_is_no_fork() {
    let sandbox = kept();
    fs::remove_dir_all(sandbox.path("work/.delta/r/snapshots/objects")).unwrap();
    fs::create_dir(sandbox.path("work/.delta/r/snapshots/objects")).unwrap();
    let refused = fork(&sandbox, &["--at", "1", "--into", "new"]).normal(&sandbox);
    assert_eq!((refused.code, &*refused.stdout), (1, ""));
    assert!(
        refused.stderr.starts_with(
            "error: the snapshot is damaged:\ncould not read DIR/work/.delta/r/snapshots/objects/"
        ),
        "{}",
        refused.stderr
    );
    assert!(
        refused
            .stderr
            .ends_with("\nhelp: `--into DIR/work` forks the run and keeps the files there\n"),
        "{}",
        refused.stderr
    );
    assert!(!sandbox.path("new/.delta/f/journal.jsonl").exists());
    fork(&sandbox, &["--at", "1", "--into", "work"]).expect_code(0);
}

#[test]
fn c_16_6_a_fork_in_the_same_workspace_can_put_the_files_back() {
    let sandbox = kept();
    fork(&sandbox, &["--at", "1", "--into", "work", "-q"]).expect_code(0);
    assert_eq!(sandbox.read("work/f"), "two\n");
    sandbox.delta(["rollback", "f", "--to", "1", "-w", "work"]).output().expect_code(0);
    assert_eq!(sandbox.read("work/f"), "one\n");
}

// `fork --into WS/.delta/x` left a run `x` there that `list-runs` called DAMAGED.
#[test]
fn c_16_6_a_fork_does_not_work_among_the_runs_of_a_workspace() {
    let sandbox = kept();
    let listed = || sandbox.delta(["list-runs", "-w", "work", "--format", "json"]).output().json();
    let before = listed();
    fs::create_dir(sandbox.path("work/.delta/empty")).unwrap();
    for place in ["work/.delta/x", "work/.delta/../.delta/x", "work/.delta/empty", "other/.delta"] {
        let ran = sandbox.delta(["fork", "r", "-w", "work", "--into", place]).output();
        assert!(ran.stderr.contains("is reserved for runs"), "{ran:?}");
        ran.expect_code(126);
    }
    let inside = sandbox.delta(["fork", "r", "-w", "..", "--into", "x"]);
    inside.cwd(sandbox.path("work/.delta")).output().expect_code(126);
    // A run in the directory of another one was not listed, and was removed with it while it worked.
    symlink("work/.delta/r/io", sandbox.path("link")).unwrap();
    let in_run = ["work/.delta/r", "work/.delta/r/io", "work/.delta/r/new/sub", "link/new"];
    for place in ["work/.delta/x", "work/.delta", "work/.delta/empty"].iter().chain(&in_run) {
        let run = sandbox.delta(["run", "--agent", "agent", "-w", place, "-m", "go"]).output();
        let error = format!(
            "error: could not open the workspace {place}: DIR/work/.delta is reserved for runs\n\
             help: name a directory outside of DIR/work/.delta\n"
        );
        run.normal(&sandbox).expect(126, "", &error);
    }
    fs::rename(sandbox.path("agent"), sandbox.path("work/.delta/r/moved")).unwrap();
    let new = sandbox.delta(["run", "--agent", "work/.delta/r/moved", "-y", "-m", "go"]).output();
    assert!(new.stderr.contains("is reserved for runs"), "{new:?}");
    fs::rename(sandbox.path("work/.delta/r/moved"), sandbox.path("agent")).unwrap();
    assert!(!sandbox.path("agent/workspaces").exists());
    fs::remove_file(sandbox.path("link")).unwrap();
    let inside = sandbox.delta(["run", "--agent", "../../agent", "-w", ".", "-m", "go"]);
    inside.cwd(sandbox.path("work/.delta")).output().expect_code(126);
    fs::remove_dir(sandbox.path("work/.delta/empty")).unwrap();
    assert_eq!(listed(), before);
    assert!(!sandbox.path("other").exists());
}

// A run may keep the runs that it starts in its directory, and these start others in their workspace.
#[test]
fn c_16_6_the_calls_of_a_run_may_work_in_its_directory() {
    let sandbox = kept();
    for (agent, place, inner) in [
        ("outer", "${RUN_DIR}/sub", "middle"),
        ("middle", ".", "agent"),
        ("stranger", "${AGENT_HOME}/../work/.delta/r/sub", "agent"),
    ] {
        let start = format!(
            "{DELTA} run --agent ${{AGENT_HOME}}/../{inner} -w {place} --run-id in-{agent} -q --format raw -m go"
        );
        for file in ["system_prompt.md", "context.yaml"] {
            sandbox.write(&format!("{agent}/{file}"), sandbox.read(&format!("agent/{file}")));
        }
        let yaml = format!(
            "name: {agent}\nllm: {{provider: script, model: script.yaml}}\ntools:\n  - name: start\n    exec: '{start}'\n"
        );
        sandbox.write(&format!("{agent}/agent.yaml"), yaml);
        let turns = "turns:\n- call: [{tool: start}]\n- say: '${last}'\n";
        sandbox.write(&format!("{agent}/script.yaml"), turns);
    }
    let run = |agent: &str, id: &str| {
        let args = ["run", "--agent", agent, "-w", "work", "--run-id", id, "-q", "--format", "raw"];
        sandbox.delta(args.iter().chain(&["-m", "go"]).copied()).output().expect_code(0).stdout
    };
    assert!(run("outer", "o").starts_with("done "));
    let inner = "work/.delta/o/sub/.delta/in-middle/journal.jsonl";
    assert!(sandbox.path(inner).exists(), "{:?}", sandbox.files("work/.delta/o/sub"));
    assert!(run("stranger", "s").contains("is reserved for runs"));
    assert!(!sandbox.path("work/.delta/r/sub").exists());
}

// Files that are no records of the run were copied into the new one, and readable there: whatever a tool had made
// `io/tool_executions` lead to.
#[test]
fn c_16_5_a_fork_follows_no_symlink_to_the_records() {
    for dir in ["io", "io/tool_executions", "agent"] {
        let sandbox = kept();
        let path = sandbox.path("work/.delta/r").join(dir);
        fs::rename(&path, sandbox.path("elsewhere")).unwrap();
        symlink(sandbox.path("elsewhere"), &path).unwrap();
        sandbox.unverified("its records are elsewhere");
        sandbox.delta(["fork", "r", "-w", "work", "--into", "new", "--run-id", "f"]).output();
        let below = format!("new/.delta/f/{dir}");
        assert_eq!(sandbox.files(&below), Vec::<String>::new(), "{dir}");
    }
}
