//! Where a run lies, whose it is, and that no two ever share one.

use super::DELTA;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use test_support::normal::normal;
use test_support::sandbox::{Delta, Ran, Sandbox};

const TURNS: &str = "- say: I look.\n  call: [{tool: look, args: {}}]\n- say: done\n";

pub fn sandbox() -> Sandbox {
    Sandbox::scripted(DELTA, "  - name: look\n    exec: pwd\n", TURNS)
}

/// Runs without `-w`.
pub fn run_own(sandbox: &Sandbox, more: &[&str]) -> Delta {
    sandbox.delta(
        ["run", "--agent", "agent", "-m", "hi", "--format", "json"].iter().chain(more).copied(),
    )
}

fn mode(sandbox: &Sandbox, path: &str) -> u32 {
    fs::metadata(sandbox.path(path)).unwrap().permissions().mode() & 0o7777
}

#[test]
fn c_5_1_the_layout_to_the_letter() {
    let sandbox = sandbox();
    sandbox.run("hi", &[]).expect_code(0);
    let files: Vec<String> =
        sandbox.files("work").iter().map(|file| normal(&sandbox, file)).collect();
    assert_eq!(
        files,
        [
            ".delta/.gitignore",
            ".delta/VERSION",
            ".delta/r/agent/agent.yaml",
            ".delta/r/agent/context.yaml",
            ".delta/r/agent/system_prompt.md",
            ".delta/r/engine.log",
            ".delta/r/io/invocations/STAMP_1.json",
            ".delta/r/io/invocations/STAMP_2.json",
            ".delta/r/io/tool_executions/STAMP_look.json",
            ".delta/r/journal.jsonl",
            ".delta/r/lock",
            ".delta/r/metadata.json",
        ]
    );
    assert!(sandbox.path("work/.delta/r/io/hooks").is_dir());
    assert!(!sandbox.path("work/.delta/r/interaction").exists());
    for name in ["agent.yaml", "context.yaml", "system_prompt.md"] {
        assert_eq!(
            sandbox.read(&format!("work/.delta/r/agent/{name}")),
            sandbox.read(&format!("agent/{name}"))
        );
    }
}

#[test]
fn c_5_1_private_under_any_umask() {
    for umask in ["000", "077", "022"] {
        let sandbox = sandbox();
        let shell = format!("umask {umask}; exec \"$0\" \"$@\"");
        let args = ["run", "--agent", "agent", "-w", "work", "--run-id", "r", "-m", "hi"];
        let mut command = Command::new("sh");
        command
            .args(["-c", &shell, DELTA])
            .args(args)
            .current_dir(sandbox.path(""))
            .env("HOME", sandbox.path("home"));
        let output = command.output().unwrap();
        Ran::of(output.status, &output.stdout, &output.stderr).expect_code(0);
        let mut queue = vec![sandbox.path("work/.delta")];
        while let Some(path) = queue.pop() {
            let wanted = if path.is_dir() { 0o700 } else { 0o600 };
            let found = fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
            assert_eq!(found, wanted, "{} under umask {umask}", path.display());
            if path.is_dir() {
                queue.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            }
        }
    }
}

#[test]
fn c_5_1_request_json_is_private_too() {
    let sandbox =
        Sandbox::scripted(DELTA, "", "- call: [{tool: ask_human, args: {prompt: 'Who?'}}]\n");
    sandbox.run("hi", &[]).expect_code(101);
    assert_eq!(mode(&sandbox, "work/.delta/r/interaction"), 0o700);
    assert_eq!(mode(&sandbox, "work/.delta/r/interaction/request.json"), 0o600);
}

#[test]
fn c_5_3_ids_are_made_of_the_time_and_chance() {
    let sandbox = sandbox();
    let ids: BTreeSet<String> = (0..3)
        .map(|_| {
            run_own(&sandbox, &["-w", "work"]).output().expect_code(0).json()["run_id"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert_eq!(ids.len(), 3);
    for id in ids {
        assert_eq!(normal(&sandbox, &id), "ID", "{id}");
        assert!(sandbox.path("work/.delta").join(id).is_dir());
    }
}

#[test]
fn c_5_3_what_is_no_id_is_refused_before_a_file_is_touched() {
    let sandbox = sandbox();
    let before = sandbox.files("");
    let long = "a".repeat(129);
    for bad in [
        "", ".", "..", "../x", "a/b", "/", "-a", "_a", ".a", "a b", "a\n", "ä", "VERSION",
        "version", &long,
    ] {
        let option = format!("--run-id={bad}");
        let ran = sandbox
            .delta([
                "run", "--agent", "agent", "-w", "work", "-m", "hi", "--format", "json", &option,
            ])
            .output();
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{bad:?}: {}", ran.stderr);
        assert!(
            ran.stderr.contains("is not a run id: expected 1 to 128 letters"),
            "{bad:?}: {}",
            ran.stderr
        );
        assert_eq!(sandbox.files(""), before, "{bad:?}");
        assert!(!sandbox.path("work").exists(), "{bad:?}");
    }
    for good in ["a", "7.b-c_D", &long[1..]] {
        sandbox
            .delta(["run", "--agent", "agent", "-w", "work", "-m", "hi", "--run-id", good])
            .output()
            .expect_code(0);
        assert!(sandbox.path("work/.delta").join(good).join("journal.jsonl").exists());
    }
}

#[test]
fn c_5_3_an_id_that_exists_is_refused_and_its_run_untouched() {
    let sandbox = sandbox();
    sandbox.run("first", &[]).expect_code(0);
    let snapshot = || -> Vec<(String, Vec<u8>)> {
        let files = sandbox.files("work");
        files
            .into_iter()
            .map(|file| (file.clone(), fs::read(sandbox.path("work").join(file)).unwrap()))
            .collect()
    };
    let before = snapshot();
    let ran = sandbox.run("second", &[]).normal(&sandbox);
    let expected = "error: run r already exists in DIR/work\nhelp: choose another `--run-id`, or add `--ensure` to get the result of this run\n";
    ran.expect(1, "", expected);
    let result = sandbox.run("second", &["--format", "json"]).expect_code(1).json();
    assert_eq!((&result["run_id"], &result["error"]["type"]), (&json!("r"), &json!("run_exists")));
    assert_eq!(snapshot(), before);
    // In another workspace the id is free.
    sandbox
        .delta(["run", "--agent", "agent", "-w", "other", "--run-id", "r", "-m", "hi"])
        .output()
        .expect_code(0);
}

/// Starts `count` commands that begin at the same instant, and waits for them.
fn at_once(sandbox: &Sandbox, count: usize, args: &[&str]) -> Vec<Ran> {
    // Each waits for the end of its input, and all inputs are the one pipe that is closed here.
    let (reader, writer) = std::io::pipe().unwrap();
    let start = |_| -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", "read -r line; exec \"$0\" \"$@\" < /dev/null", DELTA]).args(args);
        command
            .current_dir(sandbox.path(""))
            .env("HOME", sandbox.path("home"))
            .stdin(reader.try_clone().unwrap());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let children: Vec<Child> = (0..count).map(start).collect();
    drop((reader, writer));
    let wait = |child: Child| {
        let output = child.wait_with_output().unwrap();
        Ran::of(output.status, &output.stdout, &output.stderr)
    };
    children.into_iter().map(wait).collect()
}

#[test]
fn c_5_3_of_many_that_want_an_id_at_once_one_gets_it() {
    let sandbox = sandbox();
    let args = ["run", "--agent", "agent", "-w", "work", "--run-id", "r", "-m", "hi"];
    let mut ran = at_once(&sandbox, 20, &args);
    ran.sort_by_key(|ran| ran.code);
    assert_eq!(ran[0].code, 0, "{}", ran[0].stderr);
    for loser in &ran[1..] {
        assert_eq!(loser.code, 1, "{}", loser.stderr);
        assert!(loser.stderr.contains("run r already exists in"), "{}", loser.stderr);
    }
    let starts = sandbox.events("ENGINE_START");
    assert_eq!((starts.len(), sandbox.metadata()["status"].as_str()), (1, Some("COMPLETED")));
    assert_eq!(fs::read_dir(sandbox.path("work/.delta")).unwrap().count(), 3);
}

#[test]
fn c_5_5_runs_at_once_get_workspaces_of_their_own() {
    let sandbox = sandbox();
    let ran = at_once(&sandbox, 20, &["run", "--agent", "agent", "-m", "hi", "--format", "json"]);
    let paths: BTreeSet<String> = ran
        .into_iter()
        .map(|ran| {
            ran.expect_code(0).json()["metadata"]["workspace_path"].as_str().unwrap().to_owned()
        })
        .collect();
    let wanted: BTreeSet<String> = (1..=20)
        .map(|n| sandbox.path(&format!("agent/workspaces/W{n:03}")).to_string_lossy().into_owned())
        .collect();
    assert_eq!(paths, wanted);
    let names: Vec<String> = fs::read_dir(sandbox.path("agent/workspaces"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.starts_with('W'))
        .collect();
    assert_eq!(names, ["LAST_USED"], "temporary files stay behind");
}

#[test]
fn c_5_5_a_new_workspace_is_the_next_number() {
    let sandbox = sandbox();
    for other in ["W009/x", "W99x/x", "W5/x", "W011"] {
        sandbox.write(&format!("agent/workspaces/{other}"), "");
    }
    run_own(&sandbox, &[]).output().expect_code(0);
    assert_eq!(sandbox.read("agent/workspaces/LAST_USED"), "W010\n");
    assert!(sandbox.path("agent/workspaces/W010/.delta").is_dir());
    sandbox.write("agent/workspaces/W999/x", "");
    run_own(&sandbox, &["-y"]).output().expect_code(0);
    assert_eq!(sandbox.read("agent/workspaces/LAST_USED"), "W1000\n");
    // A named directory is used as it is, and the hint stays.
    sandbox.run("hi", &[]).expect_code(0);
    assert_eq!(sandbox.read("agent/workspaces/LAST_USED"), "W1000\n");
}

#[test]
fn c_5_5_a_named_workspace_is_made_and_used_as_it_is() {
    let sandbox = sandbox();
    let run = |dir: &str| {
        sandbox
            .delta(["run", "--agent", "agent", "-w", dir, "-m", "hi", "--format", "json"])
            .output()
    };
    let result = run("a/b c/d").expect_code(0).json();
    assert_eq!(result["metadata"]["workspace_path"], json!(sandbox.path("a/b c/d")));
    sandbox.write("full/file", "kept");
    run("full").expect_code(0);
    assert_eq!(sandbox.read("full/file"), "kept");
    // A symlink to a directory is that directory.
    symlink(sandbox.path("full"), sandbox.path("link")).unwrap();
    assert_eq!(
        run("link").expect_code(0).json()["metadata"]["workspace_path"],
        json!(sandbox.path("full"))
    );
    assert!(!sandbox.path("agent/workspaces").exists());
}

#[test]
fn c_5_5_a_workspace_that_cannot_be() {
    let sandbox = sandbox();
    sandbox.write("file", "x");
    let check = |dir: &str, why: &str| {
        let ran = sandbox.delta(["run", "--agent", "agent", "-w", dir, "-m", "hi"]).output();
        ran.expect(126, "", &format!("error: could not open the workspace {dir}: {why}\n"));
    };
    check("file", "it is not a directory");
    check("file/below", "Not a directory (os error 20)");
    assert_eq!(sandbox.read("file"), "x");
}

/// Runs as somebody whom file modes bind, in work/ with the given mode.
fn run_as_nobody(mode: u32) -> Ran {
    const NOBODY: u32 = 65534;
    let sandbox = sandbox();
    // Neither the sandbox nor the built program may lie where others can read.
    fs::set_permissions(sandbox.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(sandbox.path("work")).unwrap();
    fs::set_permissions(sandbox.path("work"), fs::Permissions::from_mode(mode)).unwrap();
    sandbox.copy_program(DELTA, "delta");
    let mut command = Command::new(sandbox.path("delta"));
    command.args(["run", "--agent", "agent", "-w", "work", "--run-id", "r", "-m", "hi"]);
    command.current_dir(sandbox.path(""));
    if fs::metadata("/proc/self").unwrap().uid() == 0 {
        command.uid(NOBODY).gid(NOBODY);
    }
    let output = command.output().unwrap();
    Ran::of(output.status, &output.stdout, &output.stderr).normal(&sandbox)
}

#[test]
fn c_12_4_a_workspace_that_may_not_be_written_is_a_matter_of_permission() {
    let denied =
        "error: could not create the directory DIR/work/.delta: Permission denied (os error 13)\n";
    run_as_nobody(0o555).expect(126, "", denied);
    assert_eq!(run_as_nobody(0o000).code, 126);
}

#[test]
fn c_5_5_a_workspaces_that_is_no_directory() {
    let sandbox = sandbox();
    sandbox.write("agent/workspaces", "x");
    let ran = run_own(&sandbox, &[]).output().normal(&sandbox);
    assert_eq!(ran.code, 126);
    assert_eq!(
        ran.stderr,
        "error: could not open the workspace DIR/agent/workspaces: it is not a directory\n"
    );
}

#[test]
fn c_15_2_symlinks_in_the_control_plane_are_refused() {
    let sandbox = sandbox();
    fs::create_dir_all(sandbox.path("elsewhere")).unwrap();
    fs::create_dir_all(sandbox.path("work")).unwrap();
    symlink(sandbox.path("elsewhere"), sandbox.path("work/.delta")).unwrap();
    let refusal = "error: DIR/work/.delta is a symlink; delta does not follow symlinks to its run directories\n";
    sandbox.run("hi", &[]).normal(&sandbox).expect(126, "", refusal);
    assert_eq!(fs::read_dir(sandbox.path("elsewhere")).unwrap().count(), 0);

    fs::remove_file(sandbox.path("work/.delta")).unwrap();
    symlink(sandbox.path("nowhere"), sandbox.path("work/.delta")).unwrap();
    sandbox.run("hi", &[]).normal(&sandbox).expect(126, "", refusal);
    assert!(!sandbox.path("nowhere").exists());

    fs::remove_file(sandbox.path("work/.delta")).unwrap();
    fs::create_dir(sandbox.path("work/.delta")).unwrap();
    symlink(sandbox.path("elsewhere"), sandbox.path("work/.delta/r")).unwrap();
    let ran = sandbox.run("hi", &[]).normal(&sandbox);
    let refusal = "error: DIR/work/.delta/r is a symlink; delta does not follow symlinks to its run directories\n\
         help: `rm DIR/work/.delta/r` removes the symlink only\n";
    ran.expect(126, "", refusal);
    assert_eq!(fs::read_dir(sandbox.path("elsewhere")).unwrap().count(), 0);

    sandbox.write("plain/.delta", "a file");
    let ran = sandbox
        .delta(["run", "--agent", "agent", "-w", "plain", "-m", "hi"])
        .output()
        .normal(&sandbox);
    ran.expect(
        126,
        "",
        "error: could not open the workspace DIR/plain: its .delta is not a directory\n",
    );
}

/// A reader of the file has the old content or the new one, and never a part.
#[test]
fn c_5_4_metadata_is_another_file_when_it_changes() {
    let tools = "  - name: link\n    shell: ln ${RUN_DIR}/metadata.json before.json\n";
    let sandbox = Sandbox::scripted(DELTA, tools, "- call: [{tool: link}]\n- say: done\n");
    sandbox.run("hi", &[]).expect_code(0);
    let before: Value = serde_json::from_str(&sandbox.read("work/before.json")).unwrap();
    assert_eq!((&before["status"], before["end_time"].is_null()), (&json!("RUNNING"), true));
    assert_eq!(sandbox.metadata()["status"], "COMPLETED");
}

#[test]
fn c_5_4_metadata_has_every_field() {
    let sandbox = sandbox();
    let result = sandbox
        .run("Review auth.ts", &["--format", "json", "--max-iterations", "7"])
        .expect_code(0)
        .json();
    let mut metadata = sandbox.metadata();
    let keys: Vec<&String> = metadata.as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        [
            "run_id",
            "workspace_id",
            "agent_name",
            "status",
            "created_at",
            "updated_at",
            "end_time",
            "initial_message",
            "iterations",
            "max_iterations",
            "error",
            "agent_home",
            "work_dir",
            "pid",
            "hostname",
            "start_time_unix",
            "process_name"
        ]
    );
    let journal = sandbox.journal();
    assert_eq!(metadata["created_at"], journal[0]["timestamp"]);
    assert_eq!(metadata["updated_at"], journal.last().unwrap()["timestamp"]);
    assert_eq!(metadata["end_time"], metadata["updated_at"]);
    assert_eq!(metadata["end_time"], result["metrics"]["end_time"]);
    for key in ["pid", "hostname", "start_time_unix", "process_name"] {
        assert_eq!(metadata[key], journal[0][key], "{key}");
    }
    assert_eq!(metadata["process_name"], "delta");
    let uname = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(metadata["hostname"], uname.trim());
    for key in [
        "created_at",
        "updated_at",
        "end_time",
        "pid",
        "hostname",
        "start_time_unix",
        "process_name",
    ] {
        metadata.as_object_mut().unwrap().remove(key);
    }
    assert_eq!(
        metadata,
        json!({
            "run_id": "r", "workspace_id": "work", "agent_name": "test-agent", "status": "COMPLETED",
            "initial_message": "Review auth.ts", "iterations": 2, "max_iterations": 7, "error": null,
            "agent_home": sandbox.path("agent"), "work_dir": sandbox.path("work")
        })
    );
}

#[test]
fn c_5_4_metadata_of_a_run_that_failed_and_of_one_that_goes_on() {
    let sandbox = Sandbox::scripted(
        DELTA,
        "  - name: cat\n    exec: cat ${file}\n",
        "- call: [{tool: cat, args: {file: .delta/r/metadata.json}}]\n- error: no more\n",
    );
    sandbox.run("hi", &[]).expect_code(1);
    let during: Value = serde_json::from_str(&sandbox.observations()[0]).unwrap();
    assert_eq!((&during["status"], &during["end_time"]), (&json!("RUNNING"), &Value::Null));
    let after = sandbox.metadata();
    assert_eq!((&after["status"], &after["error"]), (&json!("FAILED"), &json!("no more")));
    assert_eq!(after["iterations"], 1);
}

#[test]
fn c_5_1_a_layout_of_another_version_is_refused_untouched() {
    let sandbox = Sandbox::scripted(DELTA, "", "- say: done\n- say: again\n");
    sandbox.run("task", &[]).expect_code(0);
    sandbox.write("work/.delta/VERSION", "2\n");
    let before = sandbox.files("work");
    let message = format!(
        "error: the runs in {} have layout 2; this version of delta supports layout 1\n\
         help: use the version of delta that created them, or another workspace\n",
        sandbox.path("work/.delta").display()
    );
    let id = ["-w", "work", "--run-id", "r"];
    for args in [
        &["run", "--agent", "agent", "-m", "x", "-w", "work", "-q"][..],
        &[&["continue", "-m", "x"][..], &id].concat(),
        &["list-runs", "-w", "work"],
        &["show", "r", "-w", "work"],
    ] {
        sandbox.delta(args).output().expect(126, "", &message);
    }
    assert_eq!(sandbox.files("work"), before);
    sandbox.write("work/.delta/VERSION", "1\n");
    sandbox.delta([&["continue", "-m", "x"][..], &id].concat()).output().expect_code(0);
}

/// A power failure can leave the length of a file without its content: VERSION was a layout that is not known, and
/// .gitignore belonged to the user.
#[test]
fn c_5_1_zeros_in_the_files_of_a_control_directory_count_as_nothing() {
    let sandbox = Sandbox::scripted(DELTA, "", "- say: done\n- say: again\n");
    sandbox.run("task", &[]).expect_code(0);
    for file in ["VERSION", ".gitignore"] {
        sandbox.write(&format!("work/.delta/{file}"), "\0\0");
    }
    sandbox.delta(["show", "r", "-w", "work"]).output().expect_code(0);
    sandbox.delta(["run", "--agent", "agent", "-m", "x", "-w", "work"]).output().expect_code(0);
    assert_eq!(sandbox.read("work/.delta/.gitignore"), "*\n");
}

/// A VERSION of 1 GB was read as a whole.
#[test]
fn c_15_2_a_version_beyond_all_measure_is_refused_unread() {
    let sandbox = Sandbox::new(DELTA);
    sandbox.write("work/.delta/VERSION", "");
    let version = std::fs::File::options().write(true).open(sandbox.path("work/.delta/VERSION"));
    version.unwrap().set_len(1 << 30).unwrap();
    let ran = sandbox.delta(["list-runs", "-w", "work"]).output().expect_code(126);
    assert!(ran.stderr.contains("it is larger than 65536 bytes"), "{}", ran.stderr);
}

#[test]
fn c_5_1_a_symlink_that_leads_nowhere_is_named() {
    let sandbox = Sandbox::scripted(DELTA, "", "- say: done\n");
    for (target, link) in [("gone", "dead"), ("two", "one"), ("one", "two")] {
        symlink(target, sandbox.path(link)).unwrap();
    }
    for (dir, why) in [
        ("dead", "it is a symlink to gone, which does not exist"),
        ("dead/work", "dead is a symlink to gone, which does not exist"),
        ("one", "it is a symlink in a loop of symlinks"),
    ] {
        let run = ["run", "--agent", "agent", "-m", "x", "-w", dir, "-q"];
        for args in [&run[..], &["list-runs", "-w", dir]] {
            let expected = format!("error: could not open the workspace {dir}: {why}\n");
            sandbox.delta(args).output().expect(126, "", &expected);
        }
    }
    assert_eq!(sandbox.files("gone"), [""; 0]);
}
