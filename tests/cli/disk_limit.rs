//! `limits.disk`: what the calls of a run may leave in its directory.

use super::DELTA;
use super::hooks::resume;
use std::fs;
use test_support::sandbox::Sandbox;

const TOOLS: &str = "  - name: fill\n    shell: head -c ${bytes} /dev/zero | tr '\\0' x\n  - name: own\n    shell: head -c 2000000 /dev/zero > \"$RUN_DIR/own\"; echo wrote\n";

fn sandbox(turns: &str) -> Sandbox {
    let sandbox = Sandbox::scripted(DELTA, TOOLS, turns);
    let main = sandbox.read("agent/agent.yaml");
    sandbox.write("agent/agent.yaml", format!("{main}limits: {{disk: 1M}}\n"));
    sandbox
}

/// The bytes of the files that calls have left.
fn left(sandbox: &Sandbox) -> u64 {
    let dir = "work/.delta/r/io/tool_executions";
    let size = |name: &String| fs::metadata(sandbox.path(dir).join(name)).unwrap().len();
    sandbox.files(dir).iter().map(size).sum()
}

#[test]
fn c_28_8_output_beyond_the_limit_is_not_kept_and_the_run_fails() {
    let call = "- call: [{tool: fill, args: {bytes: '3000000'}}]\n";
    let sandbox = sandbox(&format!("{}- say: done\n", call.repeat(40)));
    let ran = sandbox.run("go", &["--format", "json", "--max-iterations", "100"]);
    let error = ran.expect_code(1).json()["error"].clone();
    assert_eq!(error["type"], "limit");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("bytes in its directory, and the limit is 1048576"), "{message}");
    let seen = sandbox.observations();
    assert!(seen[0].contains("the run has a limit for its directory"), "{}", seen[0]);
    assert!((1 << 20..1_200_000).contains(&left(&sandbox)), "{}", left(&sandbox));
    // A process with a higher limit starts the call that did not start.
    let count = seen.len();
    let more = ["--max-disk", "20M", "--max-iterations", "100", "-m", "more"];
    resume(&sandbox, &more).output().expect_code(1);
    assert!(sandbox.observations().len() > count);
}

#[test]
fn c_28_8_files_that_a_tool_writes_there_count() {
    let sandbox = sandbox("- call: [{tool: own}, {tool: own}]\n- say: done\n");
    let ran = sandbox.run("go", &[]).expect_code(1);
    assert!(ran.stderr.contains("--max-disk 4M"), "{}", ran.stderr);
    assert_eq!(sandbox.observations(), ["wrote\n"]);
    let stdout = resume(&sandbox, &["--max-disk", "1G"]).output().expect_code(1).stderr;
    assert!(stdout.contains("-m"), "{stdout}");
    resume(&sandbox, &["--max-disk", "1G", "-m", "more"]).output().expect_code(0);
}

#[test]
fn c_28_8_an_amount_has_a_unit() {
    let sandbox = sandbox("- say: done\n");
    let stderr = sandbox.run("go", &["--max-disk", "5"]).expect_code(2).stderr;
    assert!(stderr.contains("expected an amount with a unit"), "{stderr}");
    let main = sandbox.read("agent/agent.yaml").replace("1M", "1K");
    sandbox.write("agent/agent.yaml", main);
    let stderr = sandbox.run("go", &[]).expect_code(126).stderr;
    assert!(stderr.contains("`disk`: expected at least 1M"), "{stderr}");
}
