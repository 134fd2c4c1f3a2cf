//! The steps of a person: one command from sweep.yaml to the table, and which runs did not pass.

use super::{acting_sandbox, effects, planned, sweep, write_sweep};
use serde_json::Value;
use test_support::sandbox::Sandbox;

/// A grader that passes what a run has answered to `t0`.
const GRADE: &str = "grade: [{name: right, expect: {result: {contains: t0}}}]\n";

fn answering_sandbox(inputs: usize, more: &str) -> Sandbox {
    let sandbox = acting_sandbox();
    write_sweep(&sandbox, inputs, 1, more);
    sandbox
}

/// The plans, result lines and grades of the sweep, with their names.
fn lines_of_sweep(sandbox: &Sandbox) -> Vec<(String, String)> {
    let names = ["results", "grades"].into_iter().flat_map(|dir| {
        let files = sandbox.files(&format!("s/{dir}")).into_iter();
        files.map(move |file| format!("s/{dir}/{file}"))
    });
    let names = names.filter(|file| file.ends_with(".jsonl")).chain(["s/plan.jsonl".to_owned()]);
    names.map(|file| (file.clone(), sandbox.read(&file))).collect()
}

#[test]
fn c_34_24_one_command_plans_runs_grades_and_compares_and_twice_does_nothing_more() {
    let sandbox = answering_sandbox(3, GRADE);
    let ran = sweep(&sandbox, &["run", "sweep.yaml"]).expect_code(0).stdout;
    assert!(ran.starts_with("planned 3 runs in s\n"), "{ran}");
    assert!(ran.contains("graded 3 runs: right 1 passed\n\nagent  right"), "{ran}");
    assert!(ran.contains("3 of 3"), "{ran}");
    assert!(!ran.contains("next: "), "{ran}");
    let (acts, files) = (effects(&sandbox), lines_of_sweep(&sandbox));
    assert_eq!((acts.len(), files.len()), (3, 3), "{files:?}");
    let again = sweep(&sandbox, &["run", "sweep.yaml"]).expect_code(0).stdout;
    assert!(again.starts_with("s is planned: 3 runs, nothing new\n"), "{again}");
    assert!(again.contains("nothing to grade"), "{again}");
    assert_eq!((effects(&sandbox), lines_of_sweep(&sandbox)), (acts, files));
    // More inputs: only what is new runs.
    write_sweep(&sandbox, 4, 1, GRADE);
    let more = sweep(&sandbox, &["run", "sweep.yaml"]).expect_code(0).stdout;
    assert!(more.starts_with("planned 1 more run in s; 3 runs planned before\n"), "{more}");
    assert!(more.contains("graded 1 run: right 0 passed\n"), "{more}");
    assert_eq!(effects(&sandbox).len(), 4);
}

#[test]
fn c_34_24_the_directory_and_silence_can_be_chosen_and_a_missing_file_is_one() {
    let sandbox = answering_sandbox(2, GRADE);
    let words = ["run", "sweep.yaml", "-d", "there/x", "--only", "input=i0", "--quiet"];
    assert_eq!(sweep(&sandbox, &words).expect_code(0).stdout, "");
    assert_eq!(effects(&sandbox).len(), 1);
    let listed = sweep(&sandbox, &["list", "there/x", "--todo"]).expect_code(0).stdout;
    assert_eq!(listed.lines().count(), 1, "{listed}");
    let missing = sweep(&sandbox, &["run", "sweeps.yaml"]).expect_code(126).stderr;
    assert!(missing.contains("sweeps.yaml does not exist"), "{missing}");
    let directory = sweep(&sandbox, &["plan", "there"]).expect_code(126).stderr;
    assert!(directory.contains("name the file in it: there/sweep.yaml"), "{directory}");
    let useless = sweep(&sandbox, &["run", "there/x", "-d", "s"]).expect_code(2).stderr;
    assert!(useless.contains("`--dir` requires FILE"), "{useless}");
}

#[test]
fn c_34_24_what_graders_leave_ungraded_is_the_exit_code_and_without_graders_completed_counts() {
    let sandbox = answering_sandbox(2, "grade: [{name: g, command: [sh, -c, exit 2]}]\n");
    let ran = sweep(&sandbox, &["run", "sweep.yaml"]).expect_code(1).stdout;
    assert!(ran.contains("2 ungraded:"), "{ran}");
    write_sweep(&sandbox, 2, 1, "");
    let ran = sweep(&sandbox, &["run", "sweep.yaml"]).expect_code(0).stdout;
    assert!(ran.contains("\n\nagent  completed"), "{ran}");
}

#[test]
fn c_34_25_a_placeholder_of_a_grader_without_a_value_is_found_before_anything_runs() {
    for grader in [
        "expect: {result: {contains: '${input.target}'}}",
        "expect: {files: {a: 'x ${input.target} y'}}",
        "command: [./grade.sh, '--want=${input.target}']",
    ] {
        let sandbox = acting_sandbox();
        sandbox.write_program("grade.sh", "#!/bin/sh\n");
        let inputs = "[{id: a, task: x, target: y}, {id: b, task: x, targets: y}]";
        sandbox.write(
            "sweep.yaml",
            format!(
                "name: s\nagents: [agent]\ninputs: {inputs}\ngrade: [{{name: right, {grader}}}]\n"
            ),
        );
        for command in ["plan", "run"] {
            let ran = sweep(&sandbox, &[command, "sweep.yaml"]).expect_code(126).stderr;
            let message = "error: grader `right`, input `b`: the input has no `target`\n";
            assert!(ran.contains(message), "{ran}");
            assert!(ran.contains("did you mean `targets`?"), "{ran}");
        }
        assert!(!sandbox.path("s").exists());
    }
}

#[test]
fn c_34_27_not_passed_lists_runs_with_a_grade_that_is_no_pass() {
    let sandbox = acting_sandbox();
    sandbox.write_program(
        "g.sh",
        "#!/bin/sh\ncase $1 in i0) exit 0;; i1) exit 1;; i2) exit 2;; esac\necho '{\"score\": 0.9}'\n",
    );
    let grade = "grade: [{name: g, command: [./g.sh, '${input.id}']}, {name: all, expect: {result: {contains: did}}}]\n";
    write_sweep(&sandbox, 5, 1, grade);
    sweep(&sandbox, &["plan"]).expect_code(0);
    sweep(&sandbox, &["run", "s", "--only", "input=i0,i1,i2,i3"]).expect_code(0);
    let not_passed = |more: &[&str]| {
        let words = [&["list", "s", "--not-passed"], more].concat();
        let ids = sweep(&sandbox, &words).expect_code(0).stdout;
        let inputs = ids.lines().map(|id| id.split_once('.').unwrap().0.to_owned());
        inputs.collect::<Vec<_>>()
    };
    assert!(not_passed(&[]).is_empty(), "nothing is graded");
    sweep(&sandbox, &["grade", "s"]).expect_code(1);
    assert_eq!(not_passed(&[]), ["i1", "i3"]);
    assert_eq!(not_passed(&["--only", "input=i3"]), ["i3"]);
    assert!(not_passed(&["--grader", "all"]).is_empty());
    sweep(&sandbox, &["list", "s", "--grader", "g"]).expect_code(2);
    sweep(&sandbox, &["list", "s", "--not-passed", "--failed"]).expect_code(2);
}

/// The data of a page of runs.
pub(super) fn page_data(page: &str) -> Value {
    let data = page.split_once("id=\"data\">").unwrap().1.split_once("</script>").unwrap().0;
    serde_json::from_str(data).unwrap()
}

#[test]
fn c_34_26_show_and_the_page_of_a_run_have_its_grade_and_what_was_expected() {
    let sandbox = acting_sandbox();
    let inputs = "[{id: 7, task: t0, want: t0, more: {a: 1}}, {id: b, task: t1, want: t2}]";
    let text = |inputs: &str| {
        let grade = "{name: right, expect: {result: {contains: '${input.want}'}}}";
        format!("name: s\nagents: [agent]\ninputs: {inputs}\ngrade: [{grade}]\n")
    };
    sandbox.write("sweep.yaml", text(inputs));
    let ids = || {
        let listed = sweep(&sandbox, &["list", "s"]).expect_code(0).stdout;
        listed.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let show = |id: &str, more: &[&str]| {
        let words = [&["show", id, "-w", "s"], more].concat();
        sandbox.delta(words).output().expect_code(0)
    };
    let page = |id: &str| {
        let words = ["view", id, "-w", "s", "-o", "-", "--no-requests"];
        page_data(&sandbox.delta(words).output().expect_code(0).stdout)["runs"][0]["sweep"].clone()
    };
    sweep(&sandbox, &["plan"]).expect_code(0);
    sweep(&sandbox, &["run", "s"]).expect_code(0);
    let [passed, failed] = [0, 1].map(|index| ids()[index].clone());
    assert!(show(&failed, &[]).stdout.contains("grader right: not graded yet\ninput want: t2\n"));
    sweep(&sandbox, &["grade", "s"]).expect_code(0);
    let shown = show(&passed, &[]).stdout;
    let lines = "grader right: passed, score 1.00\ninput want: t0\ninput more: {\"a\":1}\n";
    assert!(shown.contains(lines), "{shown}");
    let shown = show(&failed, &[]).stdout;
    assert!(shown.contains("grader right: not passed, score 0.00: result "), "{shown}");
    assert!(shown.contains("\ninput want: t2\n"), "{shown}");
    let json = show(&failed, &["--format", "json"]).json()["sweep"].clone();
    assert_eq!((&json["grades"][0]["pass"], &json["input"]["want"]), (&false.into(), &"t2".into()));
    assert_eq!(page(&failed), json);
    // A corrected answer is a new grade of the same run; a packed run has both too.
    sandbox.write("sweep.yaml", text(&inputs.replace("want: t2", "want: t1")));
    sweep(&sandbox, &["plan"]).expect_code(0);
    sweep(&sandbox, &["grade", "s"]).expect_code(0);
    sweep(&sandbox, &["pack", "s"]).expect_code(0);
    let lines = "grader right: passed, score 1.00\ninput want: t1\n";
    assert!(show(&failed, &[]).stdout.contains(lines), "{}", show(&failed, &[]).stdout);
    assert_eq!(page(&failed)["grades"][0]["pass"], true);
    let pages = ["view", "s", "--pages", "all"];
    sweep(&sandbox, &pages).expect_code(0);
    let page = page_data(&sandbox.read(&format!("s.runs/{failed}.html")));
    assert_eq!(page["runs"][0]["sweep"]["input"]["want"], "t1");
    // A run of no sweep has none.
    sandbox.delta(["run", "--agent", "agent", "-w", "alone", "-m", "t"]).output().expect_code(0);
    assert!(
        sandbox.delta(["show", "-w", "alone", "--format", "json"]).output().json()["sweep"]
            .is_null()
    );
}

/// All files in a directory, with their times and contents.
fn contents(sandbox: &Sandbox, dir: &str) -> Vec<(String, String)> {
    let files = sandbox.files(dir).into_iter();
    files.map(|file| (file.clone(), sandbox.read(&format!("{dir}/{file}")))).collect()
}

#[test]
fn c_34_29_forks_and_replays_are_in_forks_and_never_in_the_copies_of_agents() {
    let sandbox = acting_sandbox();
    write_sweep(&sandbox, 2, 1, "");
    sweep(&sandbox, &["run", "sweep.yaml"]).expect_code(0);
    let ids = planned(&sandbox);
    let before = contents(&sandbox, "s/agents");
    let copy = format!("s/agents/{}", before[0].0.split_once('/').unwrap().0);
    let delta = |words: &[&str]| sandbox.delta(words.iter().copied()).output();
    // A prefix of the id is enough.
    let forked = delta(&["fork", "i0", "-w", "s", "--at", "1", "--format", "json"]).json();
    let workspace = forked["workspace_path"].as_str().unwrap().to_owned();
    assert!(workspace.ends_with("/s/forks/workspaces/W001"), "{workspace}");
    delta(&["fork", &ids[0], "-w", "s", "--at", "1", "--continue"]).expect_code(0);
    delta(&["replay", &ids[1], "-w", "s", "--mode", "tools"]).expect_code(0);
    delta(&["run", "--agent", &copy, "-y", "-m", "t9"]).expect_code(0);
    let names: Vec<String> = std::fs::read_dir(sandbox.path("s/forks/workspaces"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with('W'))
        .collect();
    assert_eq!(names.len(), 4, "{names:?}");
    assert_eq!(contents(&sandbox, "s/agents"), before);
    assert!(!sandbox.path(&copy).join("workspaces").exists());
    // The fork is continued where it is, and its run of the sweep is as it was.
    let id = forked["run_id"].as_str().unwrap();
    delta(&["continue", id, "-w", &workspace]).expect_code(0);
    let again = sweep(&sandbox, &["run", "sweep.yaml"]).expect_code(0).stdout;
    assert!(again.starts_with("s is planned: 2 runs, nothing new\n"), "{again}");
}

#[test]
fn ids_of_a_sweep_may_be_shortened_also_when_they_are_packed() {
    let sandbox = acting_sandbox();
    write_sweep(&sandbox, 11, 1, "");
    sweep(&sandbox, &["run", "sweep.yaml", "-q"]).expect_code(0);
    let ids = planned(&sandbox);
    let show = |name: &str| sandbox.delta(["show", name, "-w", "s", "--format", "json"]).output();
    let shown = |name: &str| show(name).json()["run_id"].as_str().unwrap().to_owned();
    let whole = ids.iter().find(|id| id.starts_with("i1.")).unwrap();
    let end = &whole[whole.len() - 8..];
    assert_eq!([shown("i1."), shown(end), shown(whole)], [&**whole, whole, whole]);
    let several = show("i1").expect_code(1).stderr;
    assert!(several.contains("`i1` begins or ends the ids of 2 runs in s"), "{several}");
    assert!(several.contains(whole), "{several}");
    let none = show("none").stderr;
    assert!(none.contains("`delta sweep list"), "{none}");
    sweep(&sandbox, &["pack", "s"]).expect_code(0);
    assert_eq!(shown("i1."), **whole);
    assert!(
        sandbox.delta(["fork", end, "-w", "s", "--at", "1"]).output().expect_code(0).stdout.len()
            > 8
    );
    // A workspace may have a file with the name of a plan.
    sandbox
        .delta(["run", "--agent", "agent", "-w", "own", "-m", "t", "--run-id", "mine"])
        .output()
        .expect_code(0);
    sandbox.write("own/plan.jsonl", "step one\n");
    let mine = sandbox.delta(["show", "min", "-w", "own", "--format", "json"]).output().json();
    assert_eq!(mine["run_id"], "mine");
}

#[test]
fn list_runs_of_a_sweep_names_the_commands_of_sweeps() {
    let sandbox = acting_sandbox();
    write_sweep(&sandbox, 3, 1, "");
    sweep(&sandbox, &["run", "sweep.yaml", "-q"]).expect_code(0);
    let listed = sandbox.delta(["list-runs", "-w", "s"]).output().expect_code(0);
    assert_eq!(listed.stdout, "");
    assert!(listed.stderr.contains("this is a sweep: `delta sweep status s`"), "{}", listed.stderr);
    assert!(!listed.stderr.contains("runs/"), "{}", listed.stderr);
}

#[test]
fn an_agent_that_changed_has_its_age_and_the_newest_is_here() {
    let sandbox = acting_sandbox();
    write_sweep(&sandbox, 2, 1, "");
    sweep(&sandbox, &["run", "sweep.yaml", "-q"]).expect_code(0);
    sandbox.write("agent/system_prompt.md", "Another one.\n");
    let table = sweep(&sandbox, &["run", "sweep.yaml"]).expect_code(0).stdout;
    let names: Vec<Vec<&str>> = table
        .lines()
        .filter(|line| line.starts_with("agent@") && !line.contains(" - "))
        .map(|line| line.split_whitespace().take(2).collect())
        .collect();
    assert_eq!(names.len(), 2, "{table}");
    assert!(names[0][1].ends_with(['s', 'm']) && names[1][1] == "here", "{table}");
    let json = sweep(&sandbox, &["compare", "s", "--format", "json"]).expect_code(0).json();
    assert_eq!(json["rows"][1]["key"][0][1].as_str(), Some(names[1][0]), "the age is no name");
}

#[test]
fn c_34_28_a_column_of_scores_without_any_is_numeric() {
    let sandbox = acting_sandbox();
    let ungraded = "{name: none, command: [sh, -c, exit 2]}";
    let graded = "{name: some, expect: {result: {contains: t0}}}";
    write_sweep(&sandbox, 2, 1, &format!("grade: [{ungraded}, {graded}]\n"));
    sweep(&sandbox, &["run", "sweep.yaml", "-q"]).expect_code(1);
    sweep(&sandbox, &["collect", "s", "-o", "r.csv"]).expect_code(0);
    let text = sandbox.read("r.csv");
    let ends: Vec<String> = text
        .lines()
        .skip(1)
        .map(|line| line.rsplitn(5, ',').take(4).collect::<Vec<_>>().join(" "))
        .collect();
    // From the last column to the first: pass and score of `some`, of `none`.
    assert_eq!(ends, ["true 1  NaN", "false 0  NaN"], "{text}");
}

#[test]
fn c_34_28_a_table_fits_the_terminal_and_80_columns_without_one() {
    let sandbox = acting_sandbox();
    let values = ["a", "b"].map(|name| name.repeat(36)).join(", ");
    let params = format!("params: {{style: [{values}]}}\nenv: {{STYLE: '${{param.style}}'}}\n");
    write_sweep(&sandbox, 2, 1, &params);
    sweep(&sandbox, &["run", "sweep.yaml", "-q"]).expect_code(0);
    let widest = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap();
    for command in ["compare", "collect"] {
        let text = sweep(&sandbox, &[command, "s"]).expect_code(0).stdout;
        assert!((51..=80).contains(&widest(&text)), "{text}");
        let shown = sandbox.delta(["sweep", command, "s"]).wholly_at_terminal_of(50, 40).end();
        assert!(widest(&shown.stderr) <= 50, "{}", shown.stderr);
        let wide = sandbox.delta(["sweep", command, "s"]).wholly_at_terminal_of(150, 40).end();
        assert!(widest(&wide.stderr) > 80, "{}", wide.stderr);
    }
}
