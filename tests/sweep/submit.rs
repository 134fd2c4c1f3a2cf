//! `delta sweep submit DIR slurm`: the script of a job array, and how Slurm gets it. Programs of the test play Slurm; a real
//! one is in tests/labs/slurm.

use super::DELTA;
use std::fs;
use std::process::Command;
use test_support::sandbox::{Ran, Sandbox};

/// A planned sweep of `runs` runs in `sweep/`, and a Slurm in `bin/` that notes how it was called.
fn planned(runs: usize) -> Sandbox {
    let sandbox = Sandbox::scripted(DELTA, "", "  - {say: done}");
    let inputs: String =
        (0..runs).map(|number| format!("{{\"id\": \"i{number}\", \"task\": \"go\"}}\n")).collect();
    sandbox.write("inputs.jsonl", inputs);
    sandbox.write("sweep.yaml", "name: words\nagents: [agent]\ninputs: inputs.jsonl\n");
    sandbox.delta(["sweep", "plan", "-d", "sweep"]).output().expect_code(0);
    sandbox.write_program(
        "bin/sbatch",
        "#!/bin/sh\nprintf '%s\\n' \"$@\" >>\"$SANDBOX/sbatch\"\nprintf '%s' \"$OPENAI_API_KEY\" >\"$SANDBOX/key\"\necho '4711;cluster'\n",
    );
    sandbox.write_program(
        "bin/scontrol",
        "#!/bin/sh\n[ \"$*\" = 'show config' ] && printf 'MaxArrayTasks = 9\\nMaxArraySize            = %s\\n' \"${SIZE:-1001}\"\n",
    );
    sandbox
}

/// PATH with the Slurm of the sandbox only.
fn submit(sandbox: &Sandbox, more: &[&str]) -> Ran {
    submit_with(sandbox, more, "1001")
}

fn submit_with(sandbox: &Sandbox, more: &[&str], size: &str) -> Ran {
    let fixed = ["sweep", "submit", "sweep", "slurm"];
    let delta = sandbox.delta(fixed.iter().chain(more).copied());
    delta
        .env("PATH", sandbox.path("bin"))
        .env("SANDBOX", sandbox.path(""))
        .env("SIZE", size)
        .env("OPENAI_API_KEY", "the key")
        .output()
}

fn tasks_of(script: &str) -> &str {
    let (_, rest) = script.split_once("--array=0-").unwrap();
    rest.split_once(' ').unwrap().0
}

#[test]
fn c_26_7_print_shows_the_script_and_does_nothing() {
    let sandbox = planned(25);
    fs::remove_dir_all(sandbox.path("bin")).unwrap();
    let ran = submit(&sandbox, &["--print"]).expect_code(0);
    let dir = sandbox.path("sweep");
    let dir = dir.display();
    assert!(ran.stdout.starts_with("#!/bin/bash\n#SBATCH "), "{}", ran.stdout);
    for line in [
        "#SBATCH --array=0-2 --requeue --signal=B:TERM@120 --open-mode=append\n",
        &format!("#SBATCH --output={dir}/slurm/%A_%a.log\n"),
        &format!(
            " sweep task {dir} \"$SLURM_ARRAY_TASK_ID/3\" --jobs \"${{SLURM_CPUS_PER_TASK:-1}}\" "
        ),
    ] {
        assert!(ran.stdout.contains(line), "{line}\n{}", ran.stdout);
    }
    assert_eq!(ran.stderr, "");
    assert!(!sandbox.path("sweep/slurm").exists());
    let checked = Command::new("bash").args(["-n", "-c", &ran.stdout]).status().unwrap();
    assert!(checked.success());
}

#[test]
fn c_26_7_a_sweep_becomes_one_array_of_at_most_as_many_tasks_as_slurm_takes() {
    let sandbox = planned(40);
    for (per_task, size, last) in [
        ("1", "1001", "39"),
        ("39", "1001", "1"),
        ("40", "1001", "0"),
        ("1", "4", "2"),
        ("1", "no", "39"),
    ] {
        let ran = submit_with(&sandbox, &["--print", "--per-task", per_task], size).expect_code(0);
        assert_eq!(tasks_of(&ran.stdout), last, "{per_task} {size}");
    }
    submit(&sandbox, &["--per-task", "0"]).expect_code(2);
}

#[test]
fn sbatch_gets_the_script_the_options_and_the_keys() {
    let sandbox = planned(25);
    let ran = submit(&sandbox, &["--", "--partition=cpu", "-t", "1:00:00"]).expect_code(0);
    let dir = sandbox.path("sweep");
    let dir = dir.display();
    assert_eq!(
        ran.stdout,
        format!(
            "submitted job 4711: 3 tasks for 25 runs\nlogs: {dir}/slurm/4711_0.log and so on\nnext: delta sweep status sweep\n"
        )
    );
    let script = format!("{dir}/slurm/submit-1.sh");
    assert_eq!(
        sandbox.read("sbatch"),
        format!("--parsable\n--partition=cpu\n-t\n1:00:00\n{script}\n")
    );
    assert_eq!(sandbox.read("key"), "the key");
    assert_eq!(sandbox.read("sweep/slurm/submit-1.sh"), submit(&sandbox, &["--print"]).stdout);

    // Again: another script, and as much as is left, which is all.
    submit(&sandbox, &[]).expect_code(0);
    assert_eq!(sandbox.files("sweep/slurm"), ["submit-1.sh", "submit-2.sh"]);
}

#[test]
fn c_26_7_a_settled_sweep_is_not_submitted() {
    let sandbox = planned(3);
    sandbox.delta(["sweep", "run", "sweep"]).output().expect_code(0);
    for more in [&[][..], &["--print"]] {
        let ran = submit(&sandbox, more).expect_code(0);
        assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("", "no run remains in sweep\n"));
    }
    assert!(!sandbox.path("sbatch").exists());
}

#[test]
fn c_26_2_only_what_is_left_is_submitted() {
    let sandbox = planned(30);
    sandbox.delta(["sweep", "run", "sweep", "--only", "input=i1*"]).output().expect_code(0);
    let ran = submit(&sandbox, &["--per-task", "1"]).expect_code(0);
    assert!(ran.stdout.starts_with("submitted job 4711: 19 tasks for 19 runs\n"), "{}", ran.stdout);
}

#[test]
fn a_missing_or_failing_sbatch_is_an_error() {
    let sandbox = planned(3);
    sandbox.write_program(
        "bin/sbatch",
        "#!/bin/sh\necho 'sbatch: error: no such partition' >&2\nexit 7\n",
    );
    let ran = submit(&sandbox, &[]).expect_code(1);
    assert!(
        ran.stderr.contains("it exited with 7\nsbatch: error: no such partition\n"),
        "{}",
        ran.stderr
    );
    sandbox.write_program("bin/sbatch", "#!/bin/sh\nexit 0\n");
    let ran = submit(&sandbox, &[]).expect_code(1);
    assert!(ran.stderr.contains("printed no job id"), "{}", ran.stderr);

    fs::remove_file(sandbox.path("bin/sbatch")).unwrap();
    let scripts = sandbox.files("sweep/slurm");
    let ran = submit(&sandbox, &[]).expect_code(126);
    assert_eq!(
        ran.stderr,
        "error: sbatch is not found\nhelp: --print shows the script; `delta sweep run sweep` works here\n"
    );
    assert_eq!(sandbox.files("sweep/slurm"), scripts);
}

#[test]
fn what_cannot_be_submitted_is_named() {
    let sandbox = planned(3);
    for option in ["--array=0-9", "--array", "--arr=0-9%2", "-a", "-a0-9"] {
        let ran = submit(&sandbox, &["--", option]).expect_code(2);
        assert!(ran.stderr.contains(&format!("`{option}`")), "{}", ran.stderr);
    }
    for option in ["--account=a", "-A", "--acctg-freq=1"] {
        submit(&sandbox, &["--", option]).expect_code(0);
    }
    let missing = sandbox.delta(["sweep", "submit", "nowhere", "slurm"]).output().expect_code(126);
    assert!(missing.stderr.contains("nowhere has no plan"), "{}", missing.stderr);
    sandbox.delta(["sweep", "submit", "sweep", "pbs"]).output().expect_code(2);
    sandbox.delta(["sweep", "submit", "sweep"]).output().expect_code(2);
}

/// Runs the printed script as task 3 of array 7, with another program in the place of delta. Returns its exit code, what the
/// program noted, and what scontrol was called with.
fn run_script(
    sandbox: &Sandbox,
    program: &str,
    restarts: &str,
    end: &str,
) -> (i32, String, String) {
    let script = submit(sandbox, &["--print", "--per-task", "1"]).expect_code(0).stdout;
    let task = sandbox.path("bin/task").display().to_string();
    let place = script.find(" sweep task ").unwrap();
    let line = script[..place].rfind('\n').unwrap() + 1;
    let script = format!("{}{task}{}", &script[..line], &script[place..]);
    sandbox.write("script.sh", &script);
    sandbox.write_program(
        "bin/task",
        &format!("#!/bin/sh\nprintf '%s ' \"$@\" >\"$SANDBOX/task\"\n{program}\n"),
    );
    sandbox.write_program(
        "bin/squeue",
        &format!("#!/bin/sh\necho \"$*\" >\"$SANDBOX/squeue\"\n{end}\n"),
    );
    sandbox.write_program("bin/scontrol", "#!/bin/sh\necho \"$*\" >>\"$SANDBOX/scontrol\"\n");
    let _ = fs::remove_file(sandbox.path("scontrol"));
    let path = format!("{}:/usr/bin:/bin", sandbox.path("bin").display());
    let ended = Command::new("bash")
        .arg(sandbox.path("script.sh"))
        .env_clear()
        .env("PATH", path)
        .env("TZ", "UTC")
        .env("SANDBOX", sandbox.path(""))
        .envs([("SLURM_ARRAY_JOB_ID", "7"), ("SLURM_JOB_ID", "7"), ("SLURM_ARRAY_TASK_ID", "3")])
        .env("SLURM_RESTART_COUNT", restarts)
        .status()
        .unwrap();
    let scontrol = fs::read_to_string(sandbox.path("scontrol")).unwrap_or_default();
    (ended.code().unwrap(), sandbox.read("task"), scontrol)
}

#[test]
fn c_26_7_a_task_that_was_stopped_requeues_itself_and_no_other() {
    let sandbox = planned(5);
    // The last task of an array has the id of the whole array: requeueing that would requeue tasks that are done.
    let requeue = "requeue 7_3\n".to_owned();
    for (program, restarts, code, expected) in [
        ("exit 130", "0", 130, requeue.as_str()),
        ("exit 130", "49", 130, &requeue),
        ("exit 130", "50", 130, ""),
        ("exit 0", "0", 0, ""),
        ("exit 3", "0", 3, ""),
        ("exit 126", "0", 126, ""),
    ] {
        let (ended, _, scontrol) = run_script(&sandbox, program, restarts, "exit 1");
        assert_eq!((ended, scontrol.as_str()), (code, expected), "{program} {restarts}");
    }
}

#[test]
fn c_26_7_a_task_gets_the_signal_of_its_script_and_is_waited_for() {
    let sandbox = planned(5);
    let program = "trap 'echo stopped >\"$SANDBOX/stopped\"; exit 130' TERM\nkill -TERM $PPID\nwhile kill -0 $PPID 2>/dev/null; do sleep 0.1; done";
    let (code, _, scontrol) = run_script(&sandbox, program, "0", "exit 1");
    assert_eq!((code, scontrol.as_str()), (130, "requeue 7_3\n"));
    assert_eq!(sandbox.read("stopped"), "stopped\n");
}

#[test]
fn a_task_knows_when_its_slot_ends() {
    let sandbox = planned(5);
    let dir = sandbox.path("sweep");
    let fixed = format!("sweep task {} 3/5 --jobs 1 ", dir.display());
    for (end, until) in [
        ("echo 2026-11-26T20:50:00", "--until 2026-11-26T20:50:00Z "),
        ("echo NONE", ""),
        ("echo N/A", ""),
        ("echo 2026-11-26T20:50:00; exit 1", ""),
        ("", ""),
    ] {
        let (_, task, _) = run_script(&sandbox, "exit 0", "0", end);
        assert_eq!(task, format!("{fixed}{until}"), "{end}");
        assert_eq!(sandbox.read("squeue"), "-h -j 7_3 -o %e\n");
    }
}
