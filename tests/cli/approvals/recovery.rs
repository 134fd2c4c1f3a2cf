//! Killed, changed or edited in between: a call starts only as it was approved, and once.

use super::{approvals, notes, noting, resume};
use crate::DELTA;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use test_support::sandbox::Sandbox;

const JOURNAL: &str = "work/.delta/r/journal.jsonl";
const CHANGED: &str = "What would start is no longer what was approved, because the agent or the call has changed; the tool was not run.";

#[test]
fn c_21_3_a_call_that_changed_after_the_question_does_not_start() {
    let changes = [
        // Another command line.
        ("echo noted", "echo nothing"),
        // Another environment.
        (
            "    approve: ask\n  - name: put",
            "    approve: ask\n    env: {PATH: /elsewhere}\n  - name: put",
        ),
    ];
    for (from, to) in changes {
        let sandbox = noting("ask", &["a"]);
        sandbox.run("go", &[]).expect_code(101);
        let agent = sandbox.read("agent/agent.yaml");
        assert!(agent.contains(from));
        sandbox.write("agent/agent.yaml", agent.replace(from, to));
        resume(&sandbox, &["-m", "yes"]).expect_code(0);
        assert!(notes(&sandbox).is_empty());
        assert_eq!(sandbox.observations(), [CHANGED]);
        assert!(approvals(&sandbox).is_empty());
    }
    // A tool that is gone, or takes other arguments, gives the usual observation.
    let sandbox = noting("ask", &["a"]);
    sandbox.run("go", &[]).expect_code(101);
    sandbox
        .write("agent/agent.yaml", sandbox.read("agent/agent.yaml").replace("${text}", "${word}"));
    resume(&sandbox, &["-m", "yes"]).expect_code(0);
    assert!(sandbox.observations()[0].contains("unknown parameter `text`"));
    // A rule that denies by now denies, and one that allows by now does not undo a denial.
    for (policy, answer, expected) in [
        (
            "[{do: deny, reason: new}]",
            "yes",
            "Denied by a rule of the agent; the tool was not run.\nnew",
        ),
        ("never", "no", "Denied by the operator; the tool was not run."),
    ] {
        let sandbox = noting("[{do: ask}]", &["a"]);
        sandbox.run("go", &[]).expect_code(101);
        let agent = sandbox
            .read("agent/agent.yaml")
            .replace("approve: [{do: ask}]", &format!("approve: {policy}"));
        sandbox.write("agent/agent.yaml", agent);
        resume(&sandbox, &["-m", answer]).expect_code(0);
        assert_eq!(sandbox.observations(), [expected]);
    }
}

#[test]
fn c_21_3_the_hook_comes_before_the_question() {
    let sandbox = noting("ask", &["a"]);
    sandbox
        .write("agent/hooks.yaml", "pre_tool_execution: {command: [sh, '${AGENT_HOME}/gate']}\n");
    sandbox
        .write("agent/gate", "echo gate >> gates\necho '{\"arguments\": {\"text\": \"safe\"}}'\n");
    sandbox.run("go", &[]).expect_code(101);
    let request = &sandbox.events("APPROVAL_REQUEST")[0];
    assert_eq!(request["tool_args"], json!({"text": "safe"}));
    // Another process asks the gate again: it may have changed.
    resume(&sandbox, &["-m", "yes"]).expect_code(0);
    assert_eq!(
        (notes(&sandbox), sandbox.read("work/gates")),
        (vec!["safe".to_owned()], "gate\ngate\n".to_owned())
    );

    for (gate, expected) in [
        ("echo '{\"arguments\": {\"text\": \"other\"}}'", CHANGED),
        (
            "echo '{\"decision\": \"deny\", \"reason\": \"late\"}'",
            "Denied by the hook pre_tool_execution; the tool was not run.\nlate",
        ),
    ] {
        let sandbox = noting("ask", &["a"]);
        sandbox.write(
            "agent/hooks.yaml",
            "pre_tool_execution: {command: [sh, '${AGENT_HOME}/gate']}\n",
        );
        sandbox.write("agent/gate", "echo '{}'\n");
        sandbox.run("go", &[]).expect_code(101);
        sandbox.write("agent/gate", gate);
        resume(&sandbox, &["-m", "yes"]).expect_code(0);
        assert_eq!(sandbox.observations(), [expected]);
        assert!(notes(&sandbox).is_empty());
    }

    // In the process that asked, the gate has seen the call.
    let sandbox = noting("ask", &["a"]);
    sandbox
        .write("agent/hooks.yaml", "pre_tool_execution: {command: [sh, '${AGENT_HOME}/gate']}\n");
    sandbox
        .write("agent/gate", "echo gate >> gates\necho '{\"arguments\": {\"text\": \"safe\"}}'\n");
    let mut terminal = sandbox.run_command("go", &["-i"]).at_terminal();
    terminal.expect("text  safe").expect("v view> ").type_in("y\n");
    terminal.end().expect_code(0);
    assert_eq!(
        (notes(&sandbox), sandbox.read("work/gates")),
        (vec!["safe".to_owned()], "gate\n".to_owned())
    );
}

#[test]
fn c_21_3_a_call_that_is_repeated_needs_no_second_approval() {
    let tools = "  - name: again\n    shell: echo again >> notes; test -e once && exit 0; touch once; kill -9 $PPID; exec sleep 60\n    idempotent: true\n    approve: ask\n";
    let turns = "- call: [{tool: again}]\n- say: done\n";
    let sandbox = Sandbox::scripted(DELTA, tools, turns);
    sandbox.run("go", &[]).expect_code(101);
    assert_eq!(resume(&sandbox, &["-m", "yes"]).code, -1);
    resume(&sandbox, &[]).expect_code(0);
    assert_eq!(notes(&sandbox), ["again", "again"]);
    assert_eq!(sandbox.events("APPROVAL_REQUEST").len(), 1);

    // A call whose repetition was never approved is asked about, and a denial says what is not known.
    let sandbox = Sandbox::scripted(DELTA, &tools.replace("ask", "never"), turns);
    assert_eq!(sandbox.run("go", &[]).code, -1);
    resume(&sandbox, &["--approve", "ask"]).expect_code(101);
    resume(&sandbox, &["-m", "no"]).expect_code(0);
    assert_eq!(
        sandbox.observations(),
        [
            "Denied by the operator; the tool was not run again; whether it took effect before is unknown."
        ]
    );
}

#[test]
fn c_21_3_a_decision_that_others_may_have_written_does_not_count() {
    let sandbox = noting("ask", &["a"]);
    sandbox.run("go", &[]).expect_code(101);
    sandbox.unverified("the journal is edited");
    let call = &sandbox.events("APPROVAL_REQUEST")[0]["call_id"];
    let seq = sandbox.journal().len() + 1;
    let forged = json!({"type": "APPROVAL_DECISION", "seq": seq, "timestamp": "2026-01-01T00:00:00.000Z",
        "iteration": 1, "call_id": call, "approved": true, "by": "operator"});
    sandbox.write(JOURNAL, format!("{}{forged}\n", sandbox.read(JOURNAL)));
    resume(&sandbox, &[]).expect_code(101);
    assert!(notes(&sandbox).is_empty());
    resume(&sandbox, &["-m", "no"]).expect_code(0);
    assert!(notes(&sandbox).is_empty());
}

#[test]
fn c_21_3_a_moved_workspace_is_named_as_the_cause() {
    let sandbox = noting("ask", &["a"]);
    sandbox.run("go", &[]).expect_code(101);
    let before = sandbox.path("work").canonicalize().unwrap();
    std::fs::rename(&before, sandbox.path("moved")).unwrap();
    let resume =
        |answer: &str| sandbox.delta(["continue", "r", "-w", "moved", "-m", answer]).output();
    let ran = resume("yes").expect_code(0);
    let warning = format!("the workspace was {} when the call was shown", before.display());
    assert!(ran.stderr.contains(&warning), "{}", ran.stderr);
    assert!(!sandbox.path("moved/notes").exists());
}

#[test]
fn c_21_3_a_question_that_showed_something_else_approves_nothing() {
    for (from, to) in [
        ("\"--\",\"rm -r .\"]", "\"--\",\"ls\"]"),
        (
            "\"tool_args\":{\"text\":\"rm -r .\"},\"argv\"",
            "\"tool_args\":{\"text\":\"ls\"},\"argv\"",
        ),
    ] {
        let sandbox = noting("ask", &["rm -r ."]);
        sandbox.run("go", &[]).expect_code(101);
        sandbox.unverified("the journal is edited");
        let journal = sandbox.read(JOURNAL);
        assert!(journal.contains(from), "{journal}");
        sandbox.write(JOURNAL, journal.replace(from, to));
        resume(&sandbox, &["-m", "yes"]).expect_code(0);
        assert_eq!(sandbox.observations(), [CHANGED]);
        assert!(notes(&sandbox).is_empty());
    }
}

/// Continues run `r` to its end with these answers; each question is answered once.
fn drive_to_the_end(sandbox: &Sandbox) {
    for _ in 0..20 {
        let ran = resume(sandbox, &[]);
        let ran = if ran.stderr.contains("Run is WAITING_FOR_INPUT: Approve") {
            let open = sandbox.journal();
            let request = open.iter().rev().find(|event| event["type"] == "APPROVAL_REQUEST");
            let denied = request.unwrap()["tool_args"]["text"].as_str().unwrap().starts_with("no");
            resume(sandbox, &["-m", if denied { "no: because" } else { "yes" }])
        } else {
            ran
        };
        match ran.code {
            0 => return,
            1 if ran.stderr.contains("Run is COMPLETED") => return,
            101 => {}
            _ if ran.stderr.contains("never began") || ran.stderr.contains("no whole event") => {
                sandbox.run("go", &[]);
            }
            code => panic!("{code}: {}{}", ran.stdout, ran.stderr),
        }
    }
    panic!("the run does not end");
}

#[test]
fn c_21_3_a_journal_cut_after_any_event_asks_once_and_starts_what_was_approved_once() {
    let policy = "[{match: {text: rule}, do: allow}, {do: ask}]";
    let sandbox = noting(policy, &["yes", "no", "rule", "yes2", "no2"]);
    sandbox.write("agent/hooks.yaml", "pre_tool_execution: {command: ['true']}\n");
    sandbox.run("go", &[]).expect_code(101);
    drive_to_the_end(&sandbox);
    let expected = ["yes", "rule", "yes2"];
    assert_eq!(notes(&sandbox), expected);
    let journal = sandbox.read(JOURNAL);
    let ends: Vec<usize> = journal.match_indices('\n').map(|(at, _)| at + 1).collect();
    // The first events are the start and the task: before them there is no run.
    for end in &ends[2..] {
        sandbox.write(JOURNAL, &journal[..*end]);
        std::fs::remove_file(sandbox.path("work/.delta/r/metadata.json")).unwrap();
        // What had started has had its effect.
        sandbox.write("work/notes", started(&sandbox).join("\n") + "\n");
        drive_to_the_end(&sandbox);
        let have: Vec<String> =
            notes(&sandbox).into_iter().filter(|line| !line.is_empty()).collect();
        assert_eq!(have, expected, "cut at {end}");
        assert_eq!(started(&sandbox), expected, "cut at {end}");
        for kind in ["APPROVAL_REQUEST", "APPROVAL_DECISION"] {
            let events = sandbox.events(kind);
            let calls: BTreeSet<&str> =
                events.iter().map(|event| event["call_id"].as_str().unwrap()).collect();
            assert_eq!((events.len(), calls.len()), (4, 4), "{kind}, cut at {end}");
        }
        assert_eq!(approvals(&sandbox).len(), 3);
        assert!(approvals(&sandbox).iter().all(Value::is_array), "each says who approved it");
    }
}

/// The texts of the calls that have started.
fn started(sandbox: &Sandbox) -> Vec<String> {
    let requests = sandbox.events("ACTION_REQUEST").into_iter();
    requests
        .filter(|event| event["argv"].is_array())
        .map(|event| event["tool_args"]["text"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn c_21_2_an_approval_in_a_run_inside_of_a_run_is_the_exit_code_of_its_call() {
    let sandbox = noting("ask", &["a"]);
    let program = DELTA;
    let outer = format!(
        "  - name: helper\n    shell: {program} run --agent ${{AGENT_HOME}}/../agent -w inner --run-id i -q -m go\n"
    );
    sandbox.write(
        "outer/agent.yaml",
        format!("name: outer\nllm: {{provider: script, model: script.yaml}}\ntools:\n{outer}"),
    );
    sandbox.write("outer/script.yaml", "turns:\n- call: [{tool: helper}]\n- say: done\n");
    for file in ["context.yaml", "system_prompt.md"] {
        sandbox.write(&format!("outer/{file}"), sandbox.read(&format!("agent/{file}")));
    }
    let run = ["run", "--agent", "outer", "-w", "work", "--run-id", "r", "-q", "-m", "go"];
    // What the operator says of the outer run does not hold inside.
    sandbox.delta(run).args(["--approve-all"]).output().expect_code(0);
    assert_eq!(sandbox.events("ACTION_RESULT")[0]["exit_code"], 101);
    assert!(sandbox.observations()[0].contains("? approve note"));
    let listed = sandbox.delta(["inbox", "--json"]).output().expect_code(0).json();
    assert_eq!(listed[0]["run_id"], "i");
    sandbox.delta(["approve", "i", "-w", "work/inner"]).output().expect_code(0);
    assert_eq!(sandbox.read("work/inner/notes"), "a\n");
}

#[test]
fn c_21_3_a_rollback_keeps_the_question() {
    let tools = super::TOOLS.replace("APPROVE", "ask");
    let turns = "- call: [{tool: free}]\n- call: [{tool: note, args: {text: a}}]\n- say: done\n";
    let tools = format!("{tools}  - {{name: free, exec: touch made}}\nsnapshots: true\n");
    let sandbox = Sandbox::scripted(DELTA, &tools, turns);
    sandbox.run("go", &[]).expect_code(101);
    sandbox.delta(["rollback", "r", "-w", "work", "--to", "0"]).output().expect_code(0);
    assert!(!sandbox.path("work/made").exists());
    let ran = resume(&sandbox, &[]).expect_code(1);
    assert!(ran.stderr.contains("Run is WAITING_FOR_INPUT: Approve note"), "{}", ran.stderr);
    resume(&sandbox, &["-m", "yes"]).expect_code(0);
    assert_eq!(notes(&sandbox), ["a"]);
    assert_eq!(sandbox.events("APPROVAL_REQUEST").len(), 1);
}

/// A question, what has changed before its first answer, and whether the tool started only after the second one.
fn check_asked_again(sandbox: &Sandbox, change: impl FnOnce(&Sandbox), names: &str) {
    sandbox.run("go", &[]).expect_code(101);
    change(sandbox);
    let ran = resume(sandbox, &["-m", "yes"]).expect_code(101);
    assert!(ran.stderr.contains(&format!("changed since you approved it: {names}")), "{ran:?}");
    assert!(!sandbox.path("work/planted").exists() && !sandbox.path("work/ran").exists());
    let asked = sandbox.events("APPROVAL_REQUEST");
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[1]["changed"], json!(names.split(", ").collect::<Vec<_>>()));
    // Nothing has changed since the second question.
    resume(sandbox, &["-m", "yes"]).expect_code(0);
    assert_eq!(sandbox.events("APPROVAL_DECISION").len(), 2);
    let has_run = sandbox.path("work/planted").exists() || sandbox.path("work/ran").exists();
    assert!(has_run, "{:?}", sandbox.events("ACTION_RESULT"));
}

#[test]
fn c_38_8_a_file_that_changed_after_the_question_is_asked_about_again() {
    let tools = "  - {name: own, exec: ./deploy, approve: ask}\n  - {name: script, exec: sh step.txt.sh, approve: ask}\n  - {name: shell, shell: 'cat data.txt && . lib/env.sh', approve: ask}\n  - {name: below, shell: 'cd sub && ./x', approve: ask}\n  - {name: make, shell: '. ./M*e', approve: ask}\n  - {name: rules, shell: 'sh rules', approve: ask}\n  - {name: hook, shell: '\"$PWD\"/.git/h*s/pre-push', approve: ask}\n";
    for (tool, file) in [
        ("own", "deploy"),
        ("script", "step.txt.sh"),
        ("shell", "lib/env.sh"),
        ("below", "sub/x"),
        ("make", "Makefile"),
        ("rules", "rules"),
        ("hook", ".git/hooks/pre-push"),
    ] {
        let turns = format!("- call: [{{tool: {tool}}}]\n- say: done\n");
        let sandbox = Sandbox::scripted(DELTA, tools, &turns);
        for program in ["deploy", "sub/x", ".git/hooks/pre-push"] {
            sandbox.write_program(&format!("work/{program}"), "#!/bin/sh\ntouch as-shown\n");
        }
        sandbox.write("work/step.txt.sh", "touch as-shown\n");
        sandbox.write("work/lib/env.sh", "touch as-shown\n");
        sandbox.write("work/Makefile", "touch as-shown\n");
        sandbox.write("work/rules", "touch as-shown\n");
        sandbox.write("work/data.txt", "one\n");
        let planted = |sandbox: &Sandbox| {
            sandbox.write(&format!("work/{file}"), "#!/bin/sh\ntouch \"$CWD/planted\"\n");
        };
        check_asked_again(&sandbox, planted, file);
        assert!(!sandbox.path("work/as-shown").exists(), "{tool}");
    }
    // A file that is gone has no name any more.
    let sandbox = Sandbox::scripted(DELTA, tools, "- call: [{tool: shell}]\n- say: done\n");
    sandbox.write("work/lib/env.sh", "touch ran\n");
    sandbox.write("work/old.sh", "");
    sandbox.write("work/data.txt", "one\n");
    let change = |sandbox: &Sandbox| std::fs::remove_file(sandbox.path("work/old.sh")).unwrap();
    check_asked_again(&sandbox, change, "files of the workspace");
}

/// These ran the new text of a file that a person had approved with its old one.
#[test]
fn c_38_8_a_file_is_found_however_a_command_line_names_it() {
    for (command, file) in [
        ("exec: make -ftasks", "tasks"),
        ("exec: make -C sub -f tasks", "sub/tasks"),
        ("exec: awk -fprog", "prog"),
        ("exec: bash --init-file rc -i -c true", "rc"),
        ("exec: bash --rcfile rc -i -c true", "rc"),
        ("exec: env BASH_ENV=./rc bash -c true", "rc"),
        ("shell: 'sh \"$PWD/tasks\"'", "tasks"),
        ("shell: 'sh \"$PWD\"/tasks'", "tasks"),
        ("shell: \"sh 'my tasks'\"", "my tasks"),
        ("shell: 'cd sub && sh tasks'", "sub/tasks"),
    ] {
        let tools = format!("  - {{name: t, {command}, approve: ask}}\n");
        let sandbox = Sandbox::scripted(DELTA, &tools, "- call: [{tool: t}]\n- say: done\n");
        sandbox.write(&format!("work/{file}"), "");
        let changed = match file {
            "prog" => "BEGIN {system(\"touch planted\")}\n",
            "sub/tasks" if command.contains("make") => "all:\n\ttouch ../planted\n",
            "tasks" if command.contains("make") => "all:\n\ttouch planted\n",
            _ => "touch \"$CWD/planted\"\n",
        };
        let plant = |sandbox: &Sandbox| sandbox.write(&format!("work/{file}"), changed);
        check_asked_again(&sandbox, plant, file);
    }
}

/// Of a repository, only its configuration and the files in `.git/hooks` were compared.
#[test]
fn c_38_8_what_git_follows_is_asked_about_again() {
    let git = |sandbox: &Sandbox, args: &[&str]| {
        let mut git = std::process::Command::new("git");
        git.args(["-c", "user.name=n", "-c", "user.email=n@invalid"]).args(args);
        assert!(git.current_dir(sandbox.path("work")).output().unwrap().status.success());
    };
    let env = "env: {GIT_AUTHOR_NAME: n, GIT_AUTHOR_EMAIL: n@invalid, GIT_COMMITTER_NAME: n, GIT_COMMITTER_EMAIL: n@invalid}";
    for (command, file, text) in [
        ("git st", "x.inc", "[alias]\n\tst = !touch planted\n"),
        ("git commit --allow-empty -m x", ".husky/_/h", "touch planted\n"),
        ("git rebase --continue", ".git/rebase-merge/git-rebase-todo", "exec touch planted\n"),
    ] {
        let tools = format!("  - {{name: t, exec: {command}, approve: ask, {env}}}\n");
        let sandbox = Sandbox::scripted(DELTA, &tools, "- call: [{tool: t}]\n- say: done\n");
        sandbox.write("work/x.inc", "[alias]\n\tst = status\n");
        sandbox.write_program("work/.husky/_/pre-commit", "#!/bin/sh\n. .husky/_/h\n");
        sandbox.write("work/.husky/_/h", "true\n");
        git(&sandbox, &["init", "-q"]);
        git(&sandbox, &["config", "include.path", "../x.inc"]);
        git(&sandbox, &["config", "core.hooksPath", ".husky/_"]);
        git(&sandbox, &["commit", "-q", "--allow-empty", "-m", "one"]);
        git(&sandbox, &["commit", "-q", "--allow-empty", "-m", "two"]);
        let mut stop = std::process::Command::new("git");
        stop.args(["rebase", "-q", "-i", "--keep-empty", "HEAD~"])
            .current_dir(sandbox.path("work"));
        stop.env("GIT_SEQUENCE_EDITOR", "echo break >");
        if file.starts_with(".git/") {
            assert!(stop.output().unwrap().status.success());
        }
        check_asked_again(&sandbox, |sandbox| sandbox.write(&format!("work/{file}"), text), file);
    }
}

/// What the user wrote meanwhile was replaced by a change that the question did not show.
#[test]
fn c_38_8_the_file_of_a_preview_is_asked_about_again() {
    let tools = "  - {name: put, shell: 'touch ran; cat > ${path}', stdin: content, approve: ask, preview: {path: path, content: content}}\n";
    for before in [Some("one\n"), None] {
        let turns = "- call: [{tool: put, args: {path: notes.md, content: two}}]\n- say: done\n";
        let sandbox = Sandbox::scripted(DELTA, tools, turns);
        before.into_iter().for_each(|text| sandbox.write("work/notes.md", text));
        let change = |sandbox: &Sandbox| sandbox.write("work/notes.md", "of the user\n");
        check_asked_again(&sandbox, change, "notes.md");
        assert_eq!(sandbox.read("work/notes.md"), "two");
    }
}

#[test]
fn c_38_8_data_and_what_the_run_writes_do_not_ask_again() {
    let tools = "  - {name: shell, shell: 'cat data.txt && . lib/env.sh', approve: ask}\n";
    let sandbox = Sandbox::scripted(DELTA, tools, "- call: [{tool: shell}]\n- say: done\n");
    sandbox.write("work/lib/env.sh", "touch as-shown\n");
    sandbox.write("work/data.txt", "one\n");
    sandbox.run("go", &[]).expect_code(101);
    sandbox.write("work/data.txt", "two\n");
    sandbox.write("work/run.log", "new\n");
    resume(&sandbox, &["-m", "yes"]).expect_code(0);
    assert!(sandbox.path("work/as-shown").exists());
    // Nor do changes after a yes to everything.
    let sandbox = Sandbox::scripted(DELTA, tools, "- call: [{tool: shell}]\n- say: done\n");
    sandbox.run("go", &[]).expect_code(101);
    sandbox.write("work/lib/env.sh", "touch as-shown\n");
    resume(&sandbox, &["--approve-all"]).expect_code(0);
    assert_eq!(sandbox.events("APPROVAL_REQUEST").len(), 1);
}

#[test]
fn c_38_8_another_environment_is_asked_about_again() {
    let tools = "  - {name: t, shell: 'touch \"$V\"; prog', approve: ask}\n";
    let sandbox = Sandbox::scripted(DELTA, tools, "- call: [{tool: t}]\n- say: done\n");
    sandbox.write_program("one/prog", "#!/bin/sh\ntouch one\n");
    sandbox.write_program("two/prog", "#!/bin/sh\ntouch two\n");
    let path = |dir: &str| {
        let rest = std::env::var("PATH").unwrap_or_default();
        format!("{}:{rest}", sandbox.path(dir).display())
    };
    let run = ["run", "--agent", "agent", "-w", "work", "--run-id", "r", "-m", "go"];
    let asks = sandbox.delta(run).env("V", "v1").env("SECRET", "12345").env("PATH", path("one"));
    asks.env("TERM", "one").output().expect_code(101);
    let approve = || {
        let approves = sandbox.delta(["approve", "r", "-w", "work"]).env("PATH", path("two"));
        approves.env("V", "v2").env("SSH_TTY", "/dev/x").env("XDG_SEAT", "seat9").output()
    };
    let ran = approve().expect_code(101);
    let changed = "changed since you approved it: $PATH, $SECRET, $V";
    assert!(ran.stderr.contains(changed), "{ran:?}");
    assert!(!sandbox.path("work/v2").exists() && !sandbox.path("work/two").exists());
    // No value is in the journal, nor a hash that a guess would confirm.
    let asked = sandbox.events("APPROVAL_REQUEST");
    let recorded = asked[0]["environment"]["SECRET"].as_str().unwrap();
    assert_eq!(recorded.len(), 16);
    assert!(!delta_base::hex::sha256_hex("12345").contains(recorded));
    assert!(asked[0]["environment"]["TERM"].is_null());
    approve().expect_code(0);
    assert!(sandbox.path("work/v2").exists() && sandbox.path("work/two").exists());
}
