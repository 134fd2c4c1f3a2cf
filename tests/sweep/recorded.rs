//! Recorded runs as inputs: the journal and the files of an iteration, what is refused, and starts that were killed.

use super::{DELTA, result_lines, sweep};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use test_support::sandbox::Sandbox;
use test_support::wait::until;

const SH: &str = "  - {name: sh, stdin: script, exec: sh}\n";

/// Writes, changes and takes away, and keeps how the files were after each call.
const TURNS: &str = "\
- call: [{tool: sh, args: {script: 'printf \"one\\0\\377\" > f; chmod 751 f; mkdir -p d; ln -s ../f d/link; cp -a . ../was1; rm -r ../was1/.delta'}}]
- call: [{tool: sh, args: {script: 'echo two > f; rm given d/link; cp -a . ../was2; rm -r ../was2/.delta'}}]
- call: [{tool: sh, args: {script: 'true; cp -a . ../was3; rm -r ../was3/.delta'}}]
- say: 'done'
";

/// Run `r` with snapshots in `work/`, and an agent `other` that does nothing more.
fn recorded() -> Sandbox {
    let sandbox = Sandbox::scripted(DELTA, SH, TURNS);
    sandbox.write("work/given", "as it was given\n");
    sandbox.write("was0/given", "as it was given\n");
    sandbox.run("the task", &["--snapshots"]).expect_code(0);
    for file in ["system_prompt.md", "context.yaml"] {
        sandbox.write(&format!("other/{file}"), sandbox.read(&format!("agent/{file}")));
    }
    let llm = "llm: {provider: script, model: script.yaml}";
    sandbox.write("other/agent.yaml", format!("name: other\n{llm}\ntools: []\n"));
    sandbox.write("other/script.yaml", format!("turns:\n{}", "- say: at once\n".repeat(5)));
    write_runs(&sandbox, "work", "each");
    sandbox
}

fn write_runs(sandbox: &Sandbox, pattern: &str, at: &str) {
    let text = format!("name: s\nagents: [other]\ninputs: {{runs: '{pattern}', at: {at}}}\n");
    sandbox.write("sweep.yaml", text);
}

/// The plan lines of the runs.
fn plan_lines(sandbox: &Sandbox) -> Vec<Value> {
    let plan = sandbox.read("s/plan.jsonl");
    plan.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn workspace(sandbox: &Sandbox, id: &str) -> PathBuf {
    sandbox.path("s/runs").join(&id.rsplit('.').next().unwrap()[..2]).join(id)
}

fn journal(sandbox: &Sandbox, id: &str) -> String {
    let path = workspace(sandbox, id).join(".delta").join(id).join("journal.jsonl");
    fs::read_to_string(path).unwrap()
}

/// The files beside the runs, with their kinds, modes, targets and contents.
fn files_of(root: &Path) -> String {
    let script = "find . -mindepth 1 -path ./.delta -prune -o -mindepth 1 -printf '%P %y %m %l\\n' | sort; \
                  find . -path ./.delta -prune -o -type f -exec sha256sum {} + | sort";
    let output = Command::new("sh").args(["-c", script]).current_dir(root).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn c_34_15_a_recorded_run_begins_with_the_files_and_the_journal_of_its_iteration() {
    let sandbox = recorded();
    let before = (files_of(&sandbox.path("work")), sandbox.files("work"));
    let planned = sweep(&sandbox, &["plan"]).expect_code(0).stdout;
    assert_eq!(
        planned,
        "planned 4 runs in s\nnot restored for the recorded runs: net:sh, time\nnext: delta sweep run s\n"
    );
    let agents = sandbox.files("s/agents");
    sweep(&sandbox, &["run", "s", "-q"]).expect_code(0);
    let source = sandbox.read("work/.delta/r/journal.jsonl");
    let lines = plan_lines(&sandbox);
    assert_eq!(lines.len(), 4);
    for (at, line) in lines.iter().enumerate() {
        let id = line["id"].as_str().unwrap();
        assert_eq!((&line["input"], &line["group"]), (&json!(format!("r@{at}")), &json!("r")));
        let was = files_of(&sandbox.path(&format!("was{at}")));
        assert_eq!(files_of(&workspace(&sandbox, id)), was, "iteration {at}");
        let text = journal(&sandbox, id);
        let own = text.find("\"FORK\"").map(|at| text[..at].rfind('\n').unwrap() + 1).unwrap();
        assert!(source.starts_with(&text[..own]), "the journal begins byte for byte");
        assert_eq!(text[..own].matches("\"THOUGHT\"").count(), at);
        assert_eq!(text.matches("\"THOUGHT\"").count(), at + 1);
    }
    let mut results = result_lines(&sandbox);
    results.sort_by_key(|line| line["n"].as_u64());
    let outside: Vec<Value> = results.iter().map(|line| line["outside"].clone()).collect();
    assert_eq!(outside, [json!(null), json!(["net:sh"]), json!(["net:sh"]), json!(["net:sh"])]);
    assert!(results.iter().all(|line| line["result"] == "at once"));
    assert_eq!(sandbox.files("s/agents"), agents, "nothing writes there after the plan");
    assert_eq!((files_of(&sandbox.path("work")), sandbox.files("work")), before);
    // One copy of the run, which `gc` keeps.
    let copies = sandbox.files("s/inputs").into_iter().filter(|name| name.ends_with(".zip"));
    assert_eq!(copies.count(), 1);
    let garbage = sweep(&sandbox, &["gc", "s"]).expect_code(0);
    assert_eq!((garbage.stdout.as_str(), garbage.stderr.as_str()), ("", "nothing to remove\n"));
    sweep(&sandbox, &["run", "s"]).expect_code(0);
    assert_eq!(result_lines(&sandbox).len(), 4);
}

#[test]
fn c_34_16_a_run_that_was_moved_plans_nothing_new() {
    let sandbox = recorded();
    sweep(&sandbox, &["plan"]).expect_code(0);
    let plan = sandbox.read("s/plan.jsonl");
    fs::create_dir(sandbox.path("elsewhere")).unwrap();
    fs::rename(sandbox.path("work"), sandbox.path("elsewhere/moved")).unwrap();
    fs::remove_file(sandbox.path("elsewhere/moved/.delta/r/engine.log")).unwrap();
    sandbox.write("elsewhere/moved/f", "what came later");
    write_runs(&sandbox, "elsewhere/moved/.delta/*", "each");
    let again = sweep(&sandbox, &["plan"]).expect_code(0).stdout;
    assert!(again.starts_with("s is planned: 4 runs, nothing new\n"), "{again}");
    sweep(&sandbox, &["plan", "-d", "t"]).expect_code(0);
    assert_eq!(sandbox.read("t/plan.jsonl"), plan, "the same in another sweep, byte for byte");
    // Fewer iterations are among those that are planned.
    write_runs(&sandbox, "elsewhere/moved", "[1, 2]");
    let fewer = sweep(&sandbox, &["plan"]).expect_code(0).stdout;
    assert!(fewer.starts_with("planned new settings in s; 2 runs, nothing new\n"), "{fewer}");
    write_runs(&sandbox, "elsewhere/moved", "last");
    let last = sweep(&sandbox, &["plan"]).expect_code(0).stdout;
    assert!(last.starts_with("planned new settings in s; 1 run, nothing new\n"), "{last}");
    // Another agent, model or repeat is another run.
    sandbox.write("other/system_prompt.md", "Be brief.\n");
    let changed = sweep(&sandbox, &["plan"]).expect_code(0).stdout;
    assert!(changed.starts_with("planned 1 more run in s; 4 runs planned before\n"), "{changed}");
}

#[test]
fn c_34_17_state_outside_of_the_files_is_named() {
    let left = "sh -c 'exec >/dev/null 2>&1; cat \"$0\"' ../held &";
    let turns = format!(
        "- call: [{{tool: keep, args: {{script: \"mkfifo ../held; {} mkfifo pipe\"}}}}]\n- say: done\n",
        left.replace('"', "\\\"")
    );
    let keep = "  - {name: keep, stdin: script, exec: sh, background: keep}\n";
    let sandbox = Sandbox::scripted(DELTA, keep, &turns);
    sandbox.run("task", &["--snapshots"]).expect_code(0);
    sandbox.write("sweep.yaml", "name: s\nagents: [agent]\ninputs: {runs: work, at: [0, 1]}\n");
    let planned = sweep(&sandbox, &["plan"]).expect_code(0).stdout;
    let named = "not restored for the recorded runs: file:pipe, net:keep, process:keep, time\n";
    assert!(planned.contains(named), "{planned}");
    let lines = plan_lines(&sandbox);
    assert_eq!(lines[0]["outside"], json!(null));
    assert_eq!(lines[1]["outside"], json!(["net:keep", "process:keep", "file:pipe"]));
    // What was left running ends.
    fs::write(sandbox.path("held"), "end").unwrap();
}

#[test]
fn c_34_17_plan_lines_and_result_lines_have_the_servers_that_were_called() {
    // As delta starts the tools of a server.
    let ask = format!("  - {{name: ask, exec: '{DELTA} mcp call db rows'}}\n");
    let sandbox = Sandbox::scripted(DELTA, &ask, "- call: [{tool: ask, args: {}}]\n- say: done\n");
    sandbox.run("task", &["--snapshots"]).expect_code(0);
    sandbox.write("sweep.yaml", "name: s\nagents: [agent]\ninputs: {runs: work, at: 1}\n");
    let planned = sweep(&sandbox, &["plan"]).expect_code(0).stdout;
    let named = "\nnot restored for the recorded runs: mcp:db, time\n";
    assert!(planned.contains(named), "{planned}");
    sweep(&sandbox, &["run", "s", "-q"]).expect_code(0);
    for lines in [plan_lines(&sandbox), result_lines(&sandbox)] {
        assert_eq!(lines[0]["outside"], json!(["mcp:db"]));
    }
}

#[test]
fn c_34_15_what_no_run_can_begin_with_is_refused() {
    let sandbox = recorded();
    let plain = ["run", "--agent", "other", "-w", "plain", "--run-id", "p", "-m", "task"];
    sandbox.delta(plain).output().expect_code(0);
    let copy = |name: &str| {
        let mut cp = Command::new("cp");
        cp.args(["-a", "work", name]).current_dir(sandbox.path(""));
        assert!(cp.status().unwrap().success());
        format!("{name}/.delta/r")
    };
    let damaged = copy("damaged");
    let text = sandbox.read(&format!("{damaged}/journal.jsonl")).replacen("the task", "my task", 1);
    sandbox.write(&format!("{damaged}/journal.jsonl"), text);
    let torn = copy("torn");
    let text = sandbox.read(&format!("{torn}/journal.jsonl")).replacen("\"seq\":3", "\"seq\":4", 1);
    sandbox.write(&format!("{torn}/journal.jsonl"), text);
    copy("later");
    sandbox.write("later/.delta/VERSION", "2\n");
    let lossy = copy("lossy");
    for object in sandbox.files(&format!("{lossy}/snapshots/objects")) {
        sandbox.write(&format!("{lossy}/snapshots/objects/{object}"), "other");
    }
    let sweeps = [
        ("nothing/*", "each", "`runs`: no directory matches `nothing/*`"),
        ("other", "each", "`runs`: other is neither a run nor a workspace"),
        ("[wp]*[kn]*", "each", "run p has no snapshot of iteration 0"),
        (
            "plain",
            "1",
            "run p has its result after iteration 1, and nothing is left to do\nhelp: at: 0\n",
        ),
        (
            "plain",
            "0",
            "run p has no snapshot of iteration 0\nhelp: run: {snapshots: true}, or at: 0\n",
        ),
        ("work", "[0, 9]", "run r has no complete iteration 9\nhelp: at: 3, or less\n"),
        ("work", "4", "run r has its result after iteration 4"),
        ("work", "[]", "`at` must be iterations, each once"),
        ("work", "[1, 1]", "`at` must be iterations, each once"),
        ("work", "soon", "`at` must be"),
        ("{work,damaged}", "each", "no directory matches"),
        ("*o*/.delta/r", "each", "`runs`: two runs have the id r"),
        (
            "damaged",
            "each",
            "run r cannot be an input: the journal was changed after delta wrote it",
        ),
        ("torn", "each", "run r cannot be an input: "),
        ("later", "each", "the runs in DIR/later/.delta have layout 2"),
        ("lossy", "1", "run r cannot be an input: the snapshot is damaged"),
    ];
    for (pattern, at, message) in sweeps {
        write_runs(&sandbox, pattern, at);
        let refused = sweep(&sandbox, &["plan"]).expect_code(126);
        let root = sandbox.path("").display().to_string();
        let stderr = refused.stderr.replace(root.trim_end_matches('/'), "DIR");
        assert!(stderr.contains(message), "{pattern} {at}: {stderr}");
        assert!(!sandbox.path("s").exists());
    }
    write_runs(&sandbox, "work", "each");
    let whole = sandbox.read("sweep.yaml");
    for more in ["task: mine\n", "files: {f: mine}\n"] {
        sandbox.write("sweep.yaml", format!("{whole}{more}"));
        let refused = sweep(&sandbox, &["plan"]).expect_code(126);
        let key = &more[..more.find(':').unwrap()];
        let message = format!("recorded runs have their own `{key}`");
        assert!(refused.stderr.contains(&message), "{}", refused.stderr);
    }
    sandbox.write("sweep.yaml", whole);
    let foreign = sandbox.delta(["sweep", "plan"]).env("HOME", sandbox.path("was0"));
    let refused = foreign.output().expect_code(126);
    assert!(refused.stderr.contains("run r is foreign"), "{}", refused.stderr);
    sandbox.unverified("journals and snapshots were damaged");
}

/// The runs committed in the branch of the original, and wrote through a symlink into its files.
#[test]
fn c_38_1_a_recorded_run_begins_with_a_git_directory_and_symlinks_of_its_own() {
    let sandbox = Sandbox::new(DELTA);
    let git = |dir: &str, script: &str| {
        let program = format!(
            "git() {{ command git -c user.name=a -c user.email=a@example.org \"$@\"; }}; {script}"
        );
        let mut command = Command::new("sh");
        command.args(["-ec", &program]).current_dir(sandbox.path(dir));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{script}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    sandbox.write("repo/f", "base\n");
    git("repo", "git init -q && git add f && git commit -qm base && git worktree add -q ../work");
    git("work", "ln -s $PWD/f link");
    sandbox.script(SH, "- call: [{tool: sh, args: {script: 'true'}}]\n- say: done\n");
    sandbox.run("the task", &["--snapshots"]).expect_code(0);
    let commit = "git -c user.name=a -c user.email=a@example.org commit -qam step";
    let turns = format!("- call: [{{tool: sh, args: {{script: 'echo more >> link; {commit}'}}}}]");
    sandbox.script(SH, &format!("- say: skipped\n{turns}\n- say: done\n"));
    let text = "name: s\nagents: [agent]\ninputs: {runs: work, at: 1}\n";
    sandbox.write("sweep.yaml", text);
    sweep(&sandbox, &["plan"]).expect_code(0);
    sweep(&sandbox, &["run", "s", "-q"]).expect_code(0);
    let id = plan_lines(&sandbox)[0]["id"].as_str().unwrap().to_owned();
    let fork = workspace(&sandbox, &id);
    let log = "git log --format=%s";
    assert_eq!(git(fork.to_str().unwrap(), log), "step\nbase\n");
    assert_eq!(fs::read_to_string(fork.join("f")).unwrap(), "base\nmore\n");
    assert_eq!(fs::read_link(fork.join("link")).unwrap(), fork.join("f").canonicalize().unwrap());
    assert_eq!((git("work", log), sandbox.read("work/f")), ("base\n".into(), "base\n".into()));
    assert_eq!(git("work", "git status --short f"), "");
}

#[test]
fn a_run_that_a_process_works_on_is_no_input() {
    let sandbox = Sandbox::scripted(
        DELTA,
        SH,
        "- call: [{tool: sh, args: {script: 'cat ../held'}}]\n- say: done\n",
    );
    let fifo = Command::new("mkfifo").arg(sandbox.path("held")).status().unwrap();
    assert!(fifo.success());
    let mut running = sandbox.run_command("task", &["--snapshots"]).spawn();
    until("the call", || {
        let journal = fs::read_to_string(sandbox.path("work/.delta/r/journal.jsonl")).ok()?;
        journal.contains("ACTION_REQUEST").then_some(())
    });
    sandbox.write("sweep.yaml", "name: s\nagents: [agent]\ninputs: {runs: work, at: 0}\n");
    let refused = sweep(&sandbox, &["plan"]).expect_code(126);
    let message = "error: run r is active\nhelp: wait for it, or stop it: delta stop r -w ";
    assert!(refused.stderr.contains(message), "{}", refused.stderr);
    fs::write(sandbox.path("held"), "go on").unwrap();
    assert!(running.wait().unwrap().success());
    sweep(&sandbox, &["plan"]).expect_code(0);
}

/// Each state in which a process can die that starts a run: the next one begins it with its iterations.
#[test]
fn c_34_15_a_start_that_was_killed_is_repeated() {
    let sandbox = recorded();
    write_runs(&sandbox, "work", "[2]");
    sweep(&sandbox, &["plan"]).expect_code(0);
    let line = plan_lines(&sandbox).remove(0);
    let id = line["id"].as_str().unwrap();
    sweep(&sandbox, &["task", "s", id]).expect_code(0);
    let (whole, files) = (journal(&sandbox, id), files_of(&workspace(&sandbox, id)));
    let control = workspace(&sandbox, id).join(".delta");
    let run_dir = control.join(id);
    let fork = whole.find("\"FORK\"").unwrap();
    let begun = fork + whole[fork..].find('\n').unwrap() + 1;
    let is_same = |at: &str| {
        sweep(&sandbox, &["task", "s", id]).expect_code(0);
        let text = journal(&sandbox, id);
        assert_eq!(text.matches("\"THOUGHT\"").count(), 3, "{at}");
        let copied = whole[..fork].rfind('\n').unwrap();
        assert_eq!(text[..copied], whole[..copied], "{at}");
        assert_eq!(files_of(&workspace(&sandbox, id)), files, "{at}");
        fs::remove_dir_all(sandbox.path("s/results")).unwrap();
    };
    fs::remove_dir_all(sandbox.path("s/results")).unwrap();
    fs::remove_dir_all(workspace(&sandbox, id)).unwrap();
    is_same("no workspace");
    fs::remove_dir_all(&control).unwrap();
    is_same("a workspace without runs");
    for name in ["journal.jsonl", "metadata.json"] {
        fs::remove_file(run_dir.join(name)).unwrap();
    }
    is_same("records without a journal");
    fs::write(run_dir.join("journal.jsonl"), &whole[..begun]).unwrap();
    fs::remove_file(run_dir.join("metadata.json")).unwrap();
    is_same("a journal that no process has continued");
}

#[test]
fn c_34_15_without_snapshots_a_run_of_a_sweep_begins_with_what_its_sweep_gave_it() {
    let sandbox = recorded();
    sandbox.script(SH, "- call: [{tool: sh, args: {script: 'echo later > f'}}]\n- say: at once\n");
    sandbox.write("cases/a/given", "from a\n");
    let first = "name: first\nagents: [agent]\n\
                 inputs: [{id: 'a/1', task: go, from: cases/a, answer: at once}]\nfiles: {more: '${input.answer}'}\n";
    sandbox.write("first.yaml", first);
    sweep(&sandbox, &["plan", "first.yaml"]).expect_code(0);
    sweep(&sandbox, &["run", "first", "-q"]).expect_code(0);
    let grade = "grade: [{name: right, expect: {result: '${input.answer}'}}]\n";
    let write = |at: &str| {
        write_runs(&sandbox, "first/runs/*/*", at);
        sandbox.write("sweep.yaml", sandbox.read("sweep.yaml") + grade);
    };
    write("each");
    let refused = sweep(&sandbox, &["plan"]).expect_code(126);
    let help = "has no snapshot of iteration 1\nhelp: run: {snapshots: true}, or at: 0\n";
    assert!(refused.stderr.contains(help), "{}", refused.stderr);
    write("0");
    sweep(&sandbox, &["plan"]).expect_code(0);
    sweep(&sandbox, &["run", "s", "-q"]).expect_code(0);
    sweep(&sandbox, &["grade", "s"]).expect_code(0);
    let line = plan_lines(&sandbox).remove(0);
    assert_eq!(line["group"], "a/1");
    let root = workspace(&sandbox, line["id"].as_str().unwrap());
    assert_eq!(fs::read_to_string(root.join("given")).unwrap(), "from a\n");
    assert_eq!(fs::read_to_string(root.join("more")).unwrap(), "at once");
    assert!(!root.join("f").exists(), "a file of a later iteration");
    fs::rename(sandbox.path("first"), sandbox.path("second")).unwrap();
    sandbox.write("sweep.yaml", sandbox.read("sweep.yaml").replace("first/", "second/"));
    let again = sweep(&sandbox, &["plan"]).expect_code(0).stdout;
    assert!(again.starts_with("s is planned: 1 run, nothing new\n"), "{again}");
}
